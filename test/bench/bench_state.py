"""Cases 9 and 10: what open groups cost in memory, whether they slow a batch down, how long a restart takes with them.

The stream counts and sums by an integer key in windows of one hour, and all rows fall in one hour: so every key is an open
group, and stays one.
"""
import statistics
import time

import bench_machine
from bench_figure import Figure, median, quiet, say
from bench_place import Sample, Work, WrongResult, wait_for

HOURLY = Work(
    query="""SELECT lower(w) AS hour, key, count(*) AS n, sum(part) AS total FROM {table}, wmstream.window(ts, '1 hour') AS w
             WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, key""",
    batch="SELECT date_bin('1 hour', ts, 'epoch') AS hour, key, count(*) AS n, sum(part) AS total FROM {table} GROUP BY 1, 2")
COLUMNS = "ts timestamptz, key int, part int"
ROWS = "SELECT timestamptz '2024-03-01 00:30+00', {key}, (i % 1000)::int FROM generate_series({first}, {last}) i"
LOADED_AT_ONCE = 100000
BATCH = 10000
OPEN_DIFFERENCE = """
    WITH batch AS MATERIALIZED ({batch}), shown AS MATERIALIZED (SELECT * FROM wmstream.open_windows(NULL::{result}))
    SELECT (SELECT count(*) FROM shown),
           (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) m),
           (SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) s)"""


class Groups:
    """A stream with so many open groups: table and result are named after a word."""

    def __init__(self, place, word, groups):
        self.place, self.groups = place, groups
        self.table, self.result = f"source_{word}", f"result_{word}"
        place.make_table(self.table, COLUMNS)
        place.create_stream(self.result, HOURLY.query.format(table=self.table))

    def load(self):
        """Each key once."""
        for first in range(1, self.groups + 1, LOADED_AT_ONCE):
            last = min(first + LOADED_AT_ONCE - 1, self.groups)
            self.place.db.execute(f"INSERT INTO {self.table} " + ROWS.format(key="i", first=first, last=last))
        self.place.wait(self.result)

    def batch(self, number):
        """One transaction of as many rows as keys, spread evenly over all groups and others each time; a Sample of its batch."""
        step = self.groups // BATCH
        key = f"(i - 1) * {step} + {number % step} + 1"
        with self.place.span() as span:
            self.place.db.execute(f"INSERT INTO {self.table} " + ROWS.format(key=key, first=1, last=BATCH))
            self.place.wait(self.result)
        phases = self.place.db.execute("SELECT feed_ms, fire_ms, sink_ms, commit_ms FROM wmstream.stat_streams WHERE stream = $1::regclass", [self.result])[0]
        span.sample.more = dict(zip(("feed", "fire", "sink", "commit"), map(float, phases)))
        span.sample.more["batch"] = sum(span.sample.more.values())
        return span.sample

    def compare(self):
        """All groups are open still: they must stand in open_windows as the batch query has them."""
        batch = HOURLY.batch.format(table=self.table)
        shown, missing, surplus = self.place.db.execute(OPEN_DIFFERENCE.format(batch=batch, result=self.result))[0]
        if (missing, surplus) != ("0", "0") or int(shown) != self.groups:
            raise WrongResult(f"of {self.groups} groups {shown} are open, {surplus} of them wrong, and {missing} are missing")

    def bytes_per_group(self):
        rows, size = self.place.db.execute("SELECT state_rows, state_bytes FROM wmstream.stat_streams WHERE stream = $1::regclass", [self.result])[0]
        if int(rows) != self.groups:
            raise WrongResult(f"{rows} groups are open, not {self.groups}")
        return int(size) / int(rows)

    def bytes_of_table(self):
        """What a row takes in an ordinary table of the same groups, with its key."""
        db = self.place.db
        db.execute(f"CREATE TABLE plain_groups AS {HOURLY.batch.format(table=self.table)}")
        db.execute("ALTER TABLE plain_groups ADD PRIMARY KEY (hour, key)")
        size = int(db.value("SELECT pg_total_relation_size('plain_groups')"))
        db.execute("DROP TABLE plain_groups")
        return size / self.groups


# ---------------------------------------------------------------- case 9

def memory_figure(groups):
    size, plain = groups.bytes_per_group(), groups.bytes_of_table()
    say(f"{groups.groups} groups: {size:.1f} bytes each in state, {plain:.1f} in a table with a primary key")
    return Figure(9, f"bytes per open group, {groups.groups:,} groups", size, "B", 120, plain,
                  detail="plain: the same groups in a table with a primary key").judge()


def flat_figure(few, many, batches):
    """Batches of both streams in turn; one before, unmeasured."""
    few.batch(0), many.batch(0)
    idle, samples = 1.0, ([], [])
    for number in range(1, batches + 1):
        if number % 10 == 1:
            idle = min(idle, quiet())
        samples[0].append(few.batch(number))
        samples[1].append(many.batch(number))
    text, medians = [], []
    for groups, side in zip((few, many), samples):
        middle = {name: statistics.median(s.more[name] for s in side) for name in ("batch", "feed", "fire", "sink", "commit")}
        cpu = sum(s.worker for s in side) / len(side) * 1000
        medians.append(middle["batch"])
        text.append(f"{groups.groups:,} groups: {middle['batch']:.2f} ms (feed {middle['feed']:.2f}, fire {middle['fire']:.2f}, "
                    f"sink {middle['sink']:.2f}, commit {middle['commit']:.2f}), worker {cpu:.1f} ms CPU")
        say(text[-1])
    return Figure(9, f"batch of 10,000 rows with {many.groups:,} ÷ with {few.groups:,} open groups", medians[1] / medians[0], "x", 1.3,
                  medians[0], "ms", idle=idle, detail="; ".join(text)).judge()


def case_9(bench):
    place, figures, streams = bench.place, [], []
    for word, groups in (("few", BATCH), ("some", bench.scaled(1000000)), ("many", bench.scaled(5000000))):
        streams.append(Groups(place, word, groups))
        streams[-1].load()
        if groups > BATCH:
            figures.append(memory_figure(streams[-1]))
    place.checkpoint()
    figures.append(flat_figure(streams[0], streams[2], bench.times(40)))
    for groups in streams:
        groups.compare()
    return figures


# ---------------------------------------------------------------- case 10

def wait_until_running(place, groups):
    """Until the stream runs and all its groups are there for readers."""
    def running():
        status, reason = place.status(groups.result)
        if status not in ("starting", "running", "blocked"):
            raise WrongResult(f"{groups.result} is {status}: {reason}")
        return status == "running" and place.figure(groups.result, "state_rows") == str(groups.groups)
    wait_for(running, 120, f"{groups.result} running")


def read_open_windows(place, groups):
    """Seconds for reading them all: by a session that asks right after the restart."""
    began = time.monotonic()
    if place.db.value(f"SELECT count(*) FROM wmstream.open_windows(NULL::{groups.result})") != str(groups.groups):
        raise WrongResult("not all groups came back")
    return time.monotonic() - began


def restart_server(place, groups):
    """From the start of the postmaster; a Sample, in more: until the first connection."""
    place.db.close()
    place.server.stop()
    began = time.monotonic()
    place.server.start()
    place.reconnect()
    connected = time.monotonic() - began
    if groups:
        wait_until_running(place, groups)
    return Sample(time.monotonic() - began, worker=bench_machine.cpu_seconds(place.worker()) if groups else 0.0, more={"connected": connected})


def restart_worker(place, groups):
    """From pg_terminate_backend; it must be another process afterwards."""
    old = place.worker()
    began = time.monotonic()
    place.db.execute("SELECT pg_terminate_backend($1)", [old])
    wait_for(lambda: place.worker() not in (None, old), 60, "another worker")
    wait_until_running(place, groups)
    return Sample(time.monotonic() - began, worker=bench_machine.cpu_seconds(place.worker()))


def restart_figure(name, samples, plain, idle, detail):
    say(f"{name}: {median(samples):.2f} s, worker {median(samples, 'worker'):.2f} s CPU")
    return Figure(10, name, median(samples), "s", 2.0, plain, idle=idle,
                  detail=f"{detail}; CPU of the worker {median(samples, 'worker'):.2f} s").judge()


def case_10(bench):
    place = bench.place
    groups = Groups(place, "many", bench.scaled(1000000))
    groups.load()
    for number in range(bench.times(20)):
        groups.batch(number)
    detail = f"{groups.groups:,} open groups, log of {int(place.figure(groups.result, 'log_bytes')) / 1e6:.0f} MB"
    place.checkpoint()
    idle, server, worker, reading = 1.0, [], [], []
    for _ in range(bench.times(5)):
        idle = min(idle, quiet())
        server.append(restart_server(place, groups))
        reading.append(read_open_windows(place, groups))
        worker.append(restart_worker(place, groups))
    detail += f", all read through open_windows in {statistics.median(reading):.2f} s"
    groups.compare()
    place.clear()
    alone = [restart_server(place, None) for _ in range(bench.times(5))]
    return [restart_figure("start of the server until the stream runs", server, median(alone), idle,
                           f"{detail}; connections after {median(server, 'connected'):.2f} s; plain: the server alone, until connections"),
            restart_figure("end of the worker until the stream runs again", worker, None, idle, detail)]
