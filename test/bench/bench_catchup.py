"""Cases 5, 8, 12, 13 and 14: a stream that has much to read at once.

Catch-up: the stream is paused, the rows are written, it goes on; measured is the time until all windows that can be closed are in the
result. Plain is the batch query over the same rows into a table.
"""
import threading
import time

import bench_machine
from bench_data import Data
from bench_figure import Figure, median, paired, quiet, say
from bench_place import Work, WrongResult, wait_for
from bench_write import BY_KIND, USER_BATCHES

SLIDING = Work(
    query=BY_KIND.query.replace("'1 minute') AS w", "'1 hour', '1 minute') AS w"),
    batch="""SELECT start AS minute, kind, sum(n)::bigint AS n, sum(total) AS total
             FROM (SELECT date_bin('1 minute', ts, 'epoch') AS at, kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1, 2) minutes,
                  generate_series(at - interval '59 minutes', at, '1 minute') start
             GROUP BY 1, 2""",
    end="minute + interval '1 hour'")
ORDERED = Work(
    query=BY_KIND.query.replace("count(*) AS n, sum(amount) AS total",
                                "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS middle, count(DISTINCT user_id) AS users"),
    batch="""SELECT date_bin('1 minute', ts, 'epoch') AS minute, kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS middle,
                    count(DISTINCT user_id) AS users FROM events GROUP BY 1, 2""")
ONE_BY_ONE = """
    CREATE PROCEDURE one_by_one() LANGUAGE plpgsql AS $$
    DECLARE r record;
    BEGIN
        FOR r IN SELECT ts, user_id, kind, amount FROM staged LOOP
            INSERT INTO events VALUES (r.ts, r.user_id, r.kind, r.amount);
            COMMIT;
        END LOOP;
    END $$"""
STREAMS = 50
OTHER_MEMORY = 64                                                # MB that a worker may take beside the rows of a batch


# ---------------------------------------------------------------- catch-up

def catch_up(place, work, write):
    """Leaves the table for the batch query."""
    place.create_stream("result", work.query)
    place.db.execute("SELECT wmstream.pause('result')")
    wait_for(lambda: place.status("result")[0] == "paused", 60, "pause")
    write()
    place.checkpoint()
    with place.span() as span:
        place.db.execute("SELECT wmstream.resume('result')")
        place.wait("result")
    span.sample.more["groups"] = place.compare(work)
    return span.sample


def batch_query(place, work):
    place.checkpoint()
    with place.span() as span:
        place.db.execute(f"CREATE TABLE batch_result AS {work.batch}")
    place.clear()
    return span.sample


def caught_up(bench, work, write, prepare=None, times=5):
    place = bench.place
    bench.data                                                   # made before anything is measured

    def ours():
        place.make_table()
        if prepare:
            prepare()
        return catch_up(place, work, write)

    pairs = paired(ours, lambda: batch_query(place, work), bench.times(times))
    say(f"worker {median(pairs.ours, 'worker'):.2f} s CPU, batch query {median(pairs.plain, 'session'):.2f} s CPU")
    return pairs


def speed_figure(case, name, rows, pairs, limit):
    worker = median(pairs.ours, "worker")
    return Figure(case, name, rows / median(pairs.ours) / 1e6, "M rows/s", limit, rows / median(pairs.plain) / 1e6, at_least=True, idle=pairs.idle,
                  detail=f"worker {worker:.2f} s CPU, {worker / rows * 1e9:.0f} ns a row; plain: the batch query").judge()


def case_5(bench):
    place, data = bench.place, bench.data
    pairs = caught_up(bench, BY_KIND, lambda: data.load(place))
    figures = [speed_figure(5, "catch-up of rows that came by COPY", data.rows, pairs, 3.5)]

    def stage():
        place.make_table("staged")
        data.load(place, USER_BATCHES, table="staged")
        place.db.execute(ONE_BY_ONE)

    def one_by_one():
        place.db.execute("SET synchronous_commit = off")
        place.db.execute("CALL one_by_one()")
        place.db.execute("RESET synchronous_commit")
        place.db.execute("DROP PROCEDURE one_by_one")

    pairs = caught_up(bench, BY_KIND, one_by_one, stage)
    return figures + [speed_figure(5, "catch-up of one-row transactions", USER_BATCHES * data.batch_rows, pairs, 0.65)]


def case_12(bench):
    pairs = caught_up(bench, SLIDING, lambda: bench.data.load(bench.place))
    return [speed_figure(12, "catch-up of 60 sliding windows a row", bench.data.rows, pairs, 1.0)]


def case_13(bench):
    pairs = caught_up(bench, ORDERED, lambda: bench.data.load(bench.place))
    worker, batch = median(pairs.ours, "worker"), median(pairs.plain, "session")
    return [Figure(13, "percentile_cont and count(DISTINCT): CPU ÷ CPU of the batch query", worker / batch, "x", 3, batch, "s CPU", idle=pairs.idle,
                   detail=f"worker {worker:.2f} s CPU").judge()]


# ---------------------------------------------------------------- many streams

def same_stream(bench, n):
    """So many equal streams over one table while rows are written; a Sample."""
    place = bench.place
    place.make_table()
    results = [f"result_{i}" for i in range(n)]
    for result in results:
        place.create_stream(result, BY_KIND.query)
    place.checkpoint()
    with place.span() as span:
        bench.data.load(place, USER_BATCHES)
        for result in results:
            place.wait(result)
    place.compare(BY_KIND, results[0])
    for result in results[1:]:
        if place.db.value(f"SELECT count(*) FROM ((TABLE {result} EXCEPT ALL TABLE {results[0]}) UNION ALL (TABLE {results[0]} EXCEPT ALL TABLE {result})) d") != "0":
            raise WrongResult(f"{result} is not {results[0]}")
    place.clear()
    return span.sample


def case_8(bench):
    bench.data
    many, few, one = [], [], []
    idle = 1.0
    for _ in range(bench.times(5)):
        idle = min(idle, quiet())
        many.append(same_stream(bench, STREAMS))
        few.append(same_stream(bench, 10))
        one.append(same_stream(bench, 1))
        say(f"worker: {STREAMS} streams {many[-1].worker:.2f} s, 10 streams {few[-1].worker:.2f} s, one {one[-1].worker:.2f} s CPU")
    cost = median(one, "worker")
    return [Figure(8, f"CPU of {STREAMS} streams over one table ÷ of one", median(many, "worker") / cost, "x", 13, cost, "s CPU", idle=idle,
                   detail=f"10 streams: {median(few, 'worker') / cost:.2f} x").judge()]


# ---------------------------------------------------------------- one large transaction

class Watcher(threading.Thread):
    """Looks at the worker's memory, and at the figures of a stream that move while it reads."""
    LOOK = 0.1

    def __init__(self, place, result):
        super().__init__(daemon=True)
        self.db, self.pid, self.result = place.connect(), place.worker(), result
        self.memory = self.standstill = 0.0
        self.committed = threading.Event()
        self.over = threading.Event()

    def run(self):
        last, since = None, time.monotonic()
        while not self.over.wait(self.LOOK):
            self.memory = max(self.memory, bench_machine.private_megabytes(self.pid))
            now = self.db.execute("SELECT input_rows, lag_bytes, batches FROM wmstream.stat_streams WHERE stream = $1::regclass", [self.result])
            if now != last or not self.committed.is_set():
                last, since = now, time.monotonic()
            self.standstill = max(self.standstill, time.monotonic() - since)
        self.db.close()


def large_transaction(place, rows):
    """(Sample, watcher, spilled transactions)"""
    place.make_table()
    place.create_stream("result", BY_KIND.query)
    place.checkpoint()
    watcher = Watcher(place, "result")
    watcher.start()
    with place.span() as span:
        place.db.execute("INSERT INTO events " + Data(rows, "").select(0, rows - 1))
        span_written = time.monotonic() - span.began
        watcher.committed.set()
        place.wait("result")
    watcher.over.set()
    watcher.join()
    place.db.execute("SELECT pg_stat_force_next_flush()")
    spilled = int(place.db.value("SELECT coalesce(sum(spill_txns), 0) FROM pg_stat_replication_slots"))
    place.compare(BY_KIND)
    place.clear()
    span.sample.more["written"] = span_written
    return span.sample, watcher, spilled


def megabytes(setting):
    """A setting of memory as SHOW has it."""
    digits = setting.rstrip("kMGB")
    return int(digits) * {"kB": 1 / 1024, "MB": 1, "GB": 1024}[setting[len(digits):]]


def case_14(bench):
    rows = bench.scaled(20000000)
    idle = quiet()
    sample, watcher, spilled = large_transaction(bench.place, rows)
    allowed = megabytes(bench.place.db.value("SHOW wmstream.batch_memory")) + OTHER_MEMORY
    detail = f"{rows:,} rows: written in {sample.more['written']:.1f} s, in the result after {sample.seconds:.1f} s, worker {sample.worker:.1f} s CPU"
    say(detail)
    return [Figure(14, "one large transaction: private memory of the worker", watcher.memory, "MB", allowed,
                   detail=f"target: wmstream.batch_memory and {OTHER_MEMORY} MB for all else").judge(),
            Figure(14, "one large transaction: spills of the reorder buffer", spilled, "", 0).judge(),
            Figure(14, "one large transaction: longest time without visible progress", watcher.standstill, "s", 5, idle=idle, detail=detail).judge()]
