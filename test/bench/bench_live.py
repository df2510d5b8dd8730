"""Cases 6 and 7: what writers of single rows notice, and how soon a result shows what was committed."""
import os
import re
import statistics
import subprocess
import threading
import time

from bench_figure import Figure, median, paired, say
from bench_place import Work, WrongResult

CLIENTS = 8
SECONDS = 3                                                      # some windows close in that
SLICES = 8                                                       # of each side of a pair
INSERT = """\\set user random(1, 1000000)
\\set kind random(0, 99)
INSERT INTO events VALUES (clock_timestamp(), :user, :kind, :kind * 0.25)
"""
BY_SECOND = Work(
    query="""SELECT lower(w) AS second, kind, count(*) AS n, sum(amount) AS total FROM events, wmstream.window(ts, '1 second') AS w
             WHERE wmstream.watermark(ts, '500 milliseconds') GROUP BY w, kind""",
    batch="SELECT date_bin('1 second', ts, 'epoch') AS second, kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1, 2",
    end="second + interval '1 second'")
LIVE = Work(
    query="""SELECT lower(w) AS hour, kind, count(*) AS n FROM events, wmstream.window(ts, '1 hour') AS w
             WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, kind""",
    batch="SELECT date_bin('1 hour', ts, 'epoch') AS hour, kind, count(*) AS n FROM events GROUP BY 1, 2",
    mode="update")
KINDS = 100
AT = "2024-03-01 00:30+00"
RATE = 100                                                       # transactions a second


# ---------------------------------------------------------------- case 6

def pgbench(bench, commit):
    """Transactions per second."""
    place = bench.place
    script = os.path.join(place.server.directory, "insert.sql")
    with open(script, "w", encoding="ascii") as file:
        file.write(INSERT)
    run = subprocess.run([os.path.join(place.server.bin, "pgbench"), "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS),
                          "-f", script, "-h", place.server.directory, "-p", str(place.server.port), "-U", "postgres", "bench"],
                         env={**os.environ, "PGOPTIONS": f"-c synchronous_commit={commit}"}, capture_output=True, text=True, check=True)
    return float(re.search(r"tps = ([0-9.]+)", run.stdout)[1])


def insert_rows(bench, commit, stream):
    place = bench.place
    place.make_table()
    if stream:
        place.create_stream("result", BY_SECOND.query)
    place.checkpoint()
    with place.span() as span:
        tps = pgbench(bench, commit)
    if stream:
        place.wait("result")
        place.compare(BY_SECOND)
    place.clear()
    span.sample.more["tps"] = tps
    return span.sample


def inserts_figure(bench, commit, limit):
    pairs = paired(lambda: insert_rows(bench, commit, True), lambda: insert_rows(bench, commit, False), bench.times(7), SLICES)
    busy = statistics.median(s.worker / s.seconds for s in pairs.ours)
    for a, b in zip(pairs.ours, pairs.plain):
        say(f"with a stream {a.more['tps']:.0f} tps, plain {b.more['tps']:.0f}: {a.more['tps'] / b.more['tps']:.3f}")
    return Figure(6, f"pgbench with a stream ÷ without, synchronous_commit {commit}", pairs.median_ratio("tps"), "x", limit, median(pairs.plain, "tps"), "tps",
                  at_least=True, idle=pairs.idle, detail=f"{CLIENTS} clients of single-row INSERT, {SLICES} times {SECONDS} s a side; "
                  f"worker {busy:.1%} of a processor").judge()


def case_6(bench):
    return [inserts_figure(bench, "on", 0.97), inserts_figure(bench, "off", 0.93)]


# ---------------------------------------------------------------- case 7

class Writer(threading.Thread):
    """Commits one row after the other at the given rate and notes when each commit was told."""

    def __init__(self, place, statement, n):
        super().__init__(daemon=True)
        self.db, self.statement, self.n, self.committed = place.connect(), statement, n, []

    def run(self):
        began = time.monotonic()
        for i in range(self.n):
            time.sleep(max(0.0, began + i / RATE - time.monotonic()))
            self.db.execute(self.statement.format(kind=i % KINDS))
            self.committed.append(time.monotonic())
        self.db.close()


def watch(db, relation, n, patience):
    """When each row was seen in its group's count: row i is the one that makes it i / KINDS + 1."""
    seen, deadline = [], time.monotonic() + patience
    query = f"SELECT n FROM {relation} WHERE hour = date_bin('1 hour', timestamptz '{AT}', 'epoch') AND kind = "
    while len(seen) < n:
        i = len(seen)
        count = int(db.value(query + str(i % KINDS)) or 0)
        if count > i // KINDS:
            seen.append(time.monotonic())
        elif time.monotonic() > deadline:
            raise WrongResult(f"row {i} was not seen")
        else:
            time.sleep(0.001)
    return seen


def delays(place, statement, relation, seconds):
    """Milliseconds from commit to sight."""
    n = seconds * RATE
    writer = Writer(place, statement, n)
    with place.span() as span:
        writer.start()
        seen = watch(place.db, relation, n, seconds + 60)
        writer.join()
    waits = sorted(max(0.0, s - c) * 1000 for s, c in zip(seen, writer.committed))
    span.sample.more.update(p50=waits[n // 2], p99=waits[n * 99 // 100], highest=waits[-1])
    say(f"{relation}: p50 {waits[n // 2]:.1f}, p99 {waits[n * 99 // 100]:.1f}, highest {waits[-1]:.1f} ms"
        + (f", worker {span.sample.worker / span.sample.seconds:.1%} of a processor" if span.pid else ""))
    return span.sample


def with_stream(bench, seconds):
    place = bench.place
    place.make_table()
    place.create_stream("result", LIVE.query, LIVE.mode)
    place.checkpoint()
    sample = delays(place, f"INSERT INTO events VALUES ('{AT}', 1, {{kind}}, 1)", "result", seconds)
    batch = place.db.value(f"SELECT count(*) FROM (({LIVE.batch}) EXCEPT ALL TABLE result) d")
    if batch != "0":
        raise WrongResult(f"{batch} groups are wrong")
    place.clear()
    return sample


def by_hand(bench, seconds):
    """The writer keeps the counts himself, in the transaction of the row."""
    place = bench.place
    place.make_table()
    place.make_table("counts", "hour timestamptz, kind int, n bigint, PRIMARY KEY (hour, kind)")
    place.checkpoint()
    statement = (f"BEGIN; INSERT INTO events VALUES ('{AT}', 1, {{kind}}, 1); INSERT INTO counts VALUES (date_bin('1 hour', timestamptz '{AT}', 'epoch'), "
                 "{kind}, 1) ON CONFLICT (hour, kind) DO UPDATE SET n = counts.n + 1; COMMIT")
    sample = delays(place, statement, "counts", seconds)
    place.clear()
    return sample


def case_7(bench):
    seconds = bench.times(20)
    pairs = paired(lambda: with_stream(bench, seconds), lambda: by_hand(bench, seconds), bench.times(5))
    busy = statistics.median(s.worker / s.seconds for s in pairs.ours)
    detail = f"{RATE} one-row transactions a second; seen by a reader that looks every ms; worker {busy:.1%} of a processor; plain: the writer updates the counts"
    return [Figure(7, f"commit to visible result, {name}", median(pairs.ours, name), "ms", limit, median(pairs.plain, name), idle=pairs.idle,
                   detail=detail).judge() for name, limit in (("p50", 15), ("p99", 60))]
