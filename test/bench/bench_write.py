"""Cases 1 to 4 and 11: rows are written by COPY, and a stream keeps up with them.

Ours is the time until the windows that can be closed are all in the result, plain the same COPY into the same table without any
stream (and so without a worker, which reads the WAL of all tables).
"""
from dataclasses import dataclass

from bench_data import BATCHES
from bench_figure import Figure, median, paired, rounded, say
from bench_place import Work

BY_KIND = Work(
    query="""SELECT lower(w) AS minute, kind, count(*) AS n, sum(amount) AS total FROM events, wmstream.window(ts, '1 minute') AS w
             WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, kind""",
    batch="SELECT date_bin('1 minute', ts, 'epoch') AS minute, kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY 1, 2")
BY_USER = Work(query=BY_KIND.query.replace("kind", "user_id"), batch=BY_KIND.batch.replace("kind", "user_id"))
USER_BATCHES = BATCHES // 4                                      # a million rows of a million users


@dataclass(frozen=True)
class Writing:
    """How the rows come."""
    by_user: bool = False
    form: str = "text"
    piece: int = 0                                               # rows in a COPY from the client; 0: whole files, read by the server

    @property
    def work(self):
        return BY_USER if self.by_user else BY_KIND


def writer(bench, writing):
    """A function that writes all rows."""
    if writing.piece:
        pieces = bench.data.pieces(writing.piece)
        return lambda: [bench.place.db.copy_in("COPY events FROM STDIN", piece) for piece in pieces]
    batches = USER_BATCHES if writing.by_user else BATCHES
    return lambda: bench.data.load(bench.place, batches, writing.form)


def write_with_stream(place, work, write):
    place.make_table()
    place.create_stream("result", work.query)
    place.checkpoint()
    with place.span() as span:
        write()
        place.wait("result")
    groups = place.compare(work)
    place.clear()
    span.sample.more["groups"] = groups
    return span.sample


def write_plainly(place, write):
    place.make_table()
    place.checkpoint()
    with place.span() as span:
        write()
    place.clear()
    return span.sample


def measured(bench, writing):
    """Pairs of runs; measured once for all figures that are made of them."""
    if writing not in bench.written:
        write = writer(bench, writing)
        bench.data                                               # made before anything is measured
        bench.written[writing] = paired(lambda: write_with_stream(bench.place, writing.work, write),
                                        lambda: write_plainly(bench.place, write), bench.times(5))
    return bench.written[writing]


def cpu_text(pairs):
    return (f"{pairs.ours[0].more['groups']:,} groups; ours: worker {median(pairs.ours, 'worker'):.2f} s and session {median(pairs.ours, 'session'):.2f} s "
            f"CPU in {median(pairs.ours):.2f} s, plain: session {median(pairs.plain, 'session'):.2f} s CPU")


def copy_figure(bench, case, name, writing, limit):
    pairs = measured(bench, writing)
    say(cpu_text(pairs))
    return [Figure(case, name, pairs.ratio(), "x", limit, median(pairs.plain), "s", idle=pairs.idle, detail=cpu_text(pairs)).judge()]


def case_1(bench):
    return copy_figure(bench, 1, "COPY with a stream by minute and kind ÷ plain COPY", Writing(), 1.10)


def case_2(bench):
    return copy_figure(bench, 2, "COPY with a stream by minute and user ÷ plain COPY", Writing(by_user=True), 2.5)


def case_3(bench):
    return copy_figure(bench, 3, "COPY binary with a stream by minute and kind ÷ plain", Writing(form="binary"), 1.25)


def case_4(bench):
    return copy_figure(bench, 4, "COPY in pieces of 1,000 rows with a stream ÷ plain", Writing(piece=1000), 1.10)


def wal_figure(bench, name, writing, limit):
    """What the WAL grew by beyond plain COPY, in parts of that."""
    pairs = measured(bench, writing)
    ours, plain = median(pairs.ours, "wal"), median(pairs.plain, "wal")
    detail = f"{(ours - plain) / 1e6:.1f} MB of our own, {plain / 1e6:.1f} MB of the rows"
    say(detail)
    return Figure(11, name, (ours - plain) / plain, "x", limit, rounded(plain / 1e6), "MB", detail=detail).judge()


def case_11(bench):
    return [wal_figure(bench, "WAL of our own ÷ WAL of the rows, by minute and kind", Writing(), 0.05),
            wal_figure(bench, "WAL of our own ÷ WAL of the rows, by minute and user", Writing(by_user=True), 1.2)]
