"""Cases 15 to 17: DISTINCT, an interval join, session windows.

Catch-up, as in bench_catchup: the stream is paused, the rows are written, it goes on; measured is the time until all is in the
result. Plain is the batch query over the same rows. Rows are made by the server from their numbers, in transactions of PIECE rows, and never late.
"""
from bench_catchup import batch_query
from bench_figure import Figure, median, paired, say
from bench_place import Work, WrongResult, wait_for

PIECE = 100000
BEGIN = "timestamptz '2024-03-01 00:00+00'"
COLUMNS = "ts timestamptz, key int, number bigint"


def rows_query(n, keys, seconds, later="interval '0'"):
    """n rows over so many seconds, and that much later; the keys take turns. A query for some of them: {first} … {last}."""
    return f"""SELECT {BEGIN} + interval '1 us' * (i * {max(1, seconds * 1000000 // n)}) + {later}, (i * 7919 % {keys})::int, i
               FROM generate_series({{first}}::bigint, {{last}}) i"""


def insert_rows(place, rows, *tables):
    """tables: (name, query); the tables take turns, a piece each."""
    for first in range(0, rows, PIECE):
        for table, query in tables:
            place.db.execute(f"INSERT INTO {table} " + query.format(first=first, last=min(first + PIECE, rows) - 1))


def caught_up(place, work, write, more=None):
    """A Sample of the stream's way through all rows; more(): what else is to be noted before anything leaves."""
    place.create_stream("result", work.query)
    place.db.execute("SELECT wmstream.pause('result')")
    wait_for(lambda: place.status("result")[0] == "paused", 60, "pause")
    write()
    place.checkpoint()
    with place.span() as span:
        place.db.execute("SELECT wmstream.resume('result')")
        place.wait("result")
    if more:
        span.sample.more.update(more())
    place.compare(work)
    return span.sample


def operator(place, *columns):
    """Figures of the stream's first operator."""
    row, = place.db.execute(f"SELECT {', '.join(columns)} FROM wmstream.stat_operators WHERE stream = 'result'::regclass AND operator = 0")
    return dict(zip(columns, map(float, row)))


def pairs_of(bench, work, tables, write, more=None, times=3):
    place = bench.place

    def ours():
        for table in tables:
            place.make_table(table, COLUMNS)
        return caught_up(place, work, write, more)

    return paired(ours, lambda: batch_query(place, work), bench.times(times))


def speed_figure(case, name, rows, pairs, limit, detail=""):
    worker = median(pairs.ours, "worker")
    text = f"worker {worker:.2f} s CPU, {worker / rows * 1e9:.0f} ns a row; {detail}plain: the batch query"
    say(text)
    return Figure(case, name, rows / median(pairs.ours) / 1e6, "M rows/s", limit, rows / median(pairs.plain) / 1e6, at_least=True, idle=pairs.idle, detail=text).judge()


def bytes_figure(case, name, rows, pairs, limit):
    """rows: how many must be in the state."""
    sample = pairs.ours[-1].more
    if sample["state_rows"] != rows:
        raise WrongResult(f"{sample['state_rows']:.0f} rows of state, not {rows}")
    say(f"{name}: {sample['state_bytes'] / rows:.1f}")
    return Figure(case, name, sample["state_bytes"] / rows, "B", limit).judge()


# ---------------------------------------------------------------- case 15: DISTINCT

def distinct(keys_query, batch):
    return Work(query=keys_query, batch=batch, end="'-infinity'")


def case_15(bench):
    rows, keys = bench.scaled(20000000), bench.scaled(5000000)
    forms = (("within the delay", "SELECT DISTINCT key FROM clicks WHERE wmstream.watermark(ts, '2 hours')", "SELECT DISTINCT key FROM clicks", 300),
             ("per window", "SELECT DISTINCT lower(w) AS day, key FROM clicks, wmstream.window(ts, '1 day') AS w WHERE wmstream.watermark(ts, '1 minute')",
              "SELECT DISTINCT date_bin('1 day', ts, 'epoch') AS day, key FROM clicks", 120))
    figures = []
    for name, query, batch, limit in forms:
        pairs = pairs_of(bench, distinct(query, batch), ["clicks"], lambda: insert_rows(bench.place, rows, ("clicks", rows_query(rows, keys, 3600))),
                         lambda: operator(bench.place, "state_rows", "state_bytes"))
        figures += [speed_figure(15, f"DISTINCT {name}, {rows:,} rows of {keys:,} keys", rows, pairs, 0.8),
                    bytes_figure(15, f"bytes per key, DISTINCT {name}", keys, pairs, limit)]
    return figures


# ---------------------------------------------------------------- case 16: interval join

MATCH = "r.key = l.key AND r.ts BETWEEN l.ts AND l.ts + interval '10 seconds'"
BOUNDED = "wmstream.watermark(l.ts, '30 seconds') AND wmstream.watermark(r.ts, '30 seconds')"


def join(kind):
    columns = "SELECT l.number AS l, r.number AS r, coalesce(l.ts, r.ts) AS ts FROM l {kind} JOIN r ON " + MATCH
    # a match is there at once; what goes out alone does so when W has passed it by the range
    return Work(query=f"{columns.format(kind=kind)} WHERE {BOUNDED}", batch=columns.format(kind=kind),
                end="CASE WHEN l IS NULL THEN ts + interval '1 us' WHEN r IS NULL THEN ts + interval '10.000001 seconds' ELSE '-infinity' END")


def profile(place):
    """What bounds it, in words: the operator's time, the phases of the last batch, pairs compared."""
    row = operator(place, "time_ms", "compared_rows", "output_rows", "state_rows", "state_bytes")
    row["phases"] = place.db.execute("SELECT feed_ms, fire_ms, sink_ms, commit_ms FROM wmstream.stat_streams WHERE stream = 'result'::regclass")[0]
    return row


def profile_text(pairs):
    last = pairs.ours[-1]
    phases = ", ".join(f"{name} {float(ms):.0f}" for name, ms in zip(("feed", "fire", "sink", "commit"), last.more["phases"]))
    return (f"of {last.worker:.2f} s the join took {last.more['time_ms'] / 1000:.2f} s; {last.more['compared_rows']:.0f} rows compared for {last.more['output_rows']:.0f} "
            f"that went out; last batch: {phases} ms; ")


def case_16(bench):
    rows, keys = bench.scaled(2000000), bench.scaled(200000)
    figures = []
    for kind in ("INNER", "FULL"):
        # every key once in a hundred seconds; on the right side 5 seconds later, and one in five not at all
        left, right = rows_query(rows, keys, rows // keys * 100), rows_query(rows, keys, rows // keys * 100, "interval '5 seconds'")
        right = right.replace(")::int", " + CASE WHEN i % 5 = 0 THEN 1000000000 ELSE 0 END)::int")
        pairs = pairs_of(bench, join(kind), ["l", "r"], lambda: insert_rows(bench.place, rows, ("l", left), ("r", right)), lambda: profile(bench.place))
        figures.append(speed_figure(16, f"interval join, {kind}, rows of each side", rows, pairs, 0.2, profile_text(pairs)))
    return figures


# ---------------------------------------------------------------- case 17: sessions

GAP = "10 minutes"
VISITS = Work(
    query=f"""SELECT lower(s) AS since, upper(s) AS until, key, count(*) AS n, sum(number) AS total FROM clicks, wmstream.session_window(ts, '{GAP}') AS s
              WHERE wmstream.watermark(ts, '1 minute') GROUP BY s, key""",
    batch=f"""SELECT min(ts) AS since, max(ts) + interval '{GAP}' AS until, key, count(*) AS n, sum(number) AS total
              FROM (SELECT *, sum(first) OVER (PARTITION BY key ORDER BY ts) AS visit
                    FROM (SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY key ORDER BY ts) + interval '{GAP}' THEN 0 ELSE 1 END AS first FROM clicks) c) c
              GROUP BY key, visit""",
    end="until")


def case_17(bench):
    rows, keys = bench.scaled(8000000), bench.scaled(1000000)
    # one row of each key in seven minutes; after half of them a pause that ends all sessions: then each key has an open one again
    visits = rows_query(rows, keys, 7 * 60 * rows // keys, f"interval '30 minutes' * (i / {rows // 2})")
    pairs = pairs_of(bench, VISITS, ["clicks"], lambda: insert_rows(bench.place, rows, ("clicks", visits)), lambda: operator(bench.place, "state_rows", "state_bytes"))
    return [speed_figure(17, f"sessions of {keys:,} keys", rows, pairs, 0.5), bytes_figure(17, "bytes per key with an open session", keys, pairs, 400)]
