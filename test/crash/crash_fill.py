"""A stream that is filled with rows that exist, filled anew, and caught up by a process of its own, while processes die.

It has a source table of its own (in a run with queues one that keeps its rows), so that the writers of the test do not matter: rows are
there before, come while it is filled, and come while it stands still. At the end its result must be the batch query's over all rows.
"""
from wmstest.pq import PgError

import crash_streams

TABLES = "CREATE TABLE life (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, k int NOT NULL)"
QUEUE = """SELECT wmstream.create_queue('life', "trim" => false)"""
NAME = "scratch_filled"
QUERY = """SELECT lower(w) AS start, k, count(*) AS n, min(id) AS first_id, max(id) AS last_id
           FROM {0}, wmstream.window(at, '10 minutes') AS w WHERE wmstream.watermark(at, '30 days') GROUP BY w, k"""
ROWS = "INSERT INTO life (at, k) SELECT timestamptz '2024-01-01 00:00+00' + i * interval '20 s', i % 7 FROM generate_series(1, $1::int) i"
EXISTING, WRITTEN = 3000, 200
PATIENCE = 20
THERE = "SELECT to_regclass('scratch_filled') IS NOT NULL"


def set_up(db):
    db.execute(TABLES)
    if crash_streams.QUEUES:
        db.execute(QUEUE)


def reaches(point):
    return point.startswith(("fill-", "follower-"))


def write(db, rows):
    db.execute(ROWS, [str(rows)])


def wait(db, happened):
    """Until the stream has consumed all, or what was to happen has."""
    for _ in range(PATIENCE):
        try:
            db.execute("SELECT wmstream.wait($1::regclass, '1 s')", [NAME])
            return
        except PgError:
            if happened():
                raise


def live(db, happened):
    """Rows come all the while."""
    db.execute("TRUNCATE life" if not crash_streams.QUEUES else "DELETE FROM life")
    write(db, EXISTING)
    db.execute("SELECT wmstream.create_stream($1, $2, start_from => 'beginning')", [NAME, QUERY.format("life")])
    write(db, WRITTEN)
    wait(db, happened)
    db.execute("SELECT wmstream.resync($1::regclass)", [NAME])
    write(db, WRITTEN)
    wait(db, happened)
    db.execute("SELECT wmstream.pause($1::regclass)", [NAME])
    write(db, EXISTING)
    db.execute("SELECT wmstream.resume($1::regclass)", [NAME])
    write(db, WRITTEN)
    wait(db, happened)


def is_there(db):
    return db.value(THERE) == "t"


def go_on(db):
    """One that stood still when the connection broke."""
    db.execute("SELECT wmstream.resume(stream) FROM wmstream.streams WHERE stream = $1::regclass AND status IN ('paused', 'failed')", [NAME])


def close(db):
    write(db, WRITTEN)
    db.execute("SELECT wmstream.wait($1::regclass, $2::interval)", [NAME, f"{PATIENCE} s"])
    db.execute("SELECT wmstream.advance_watermark($1::regclass, '2025-01-01 00:00+00')", [NAME])
    db.execute("SELECT wmstream.wait($1::regclass, $2::interval)", [NAME, f"{PATIENCE} s"])


def difference(db):
    """What is wrong with its result, as text; None if it is right."""
    return crash_streams.disagreement(db, QUERY.format("life"), f"TABLE {NAME}")


def end(db):
    db.execute("SELECT wmstream.drop_stream($1::regclass, true)", [NAME])
