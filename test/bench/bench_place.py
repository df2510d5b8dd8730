"""The server that is measured, and what every case does with it.

Owns: the server's settings, its database, the source table `events` and the life of streams over it, waiting, the
comparison of a result with the batch query, and spans (wall time, CPU of the worker and of our session, WAL).

A case leaves nothing behind: the next begins without streams, so without a worker and a slot, and without tables.
"""
import os
import sys
import time
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from wmstest.pq import Connection, PgError  # noqa: E402
from wmstest.server import Server, ServerError, wait_for  # noqa: E402

import bench_machine  # noqa: E402

HOUR = 3600
WAIT = "5 s"
QUERY_CANCELED = "57014"
SETTINGS = {
    # as a server that keeps its promises
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_writer_delay": "10ms",
    # no checkpoint inside a measured span; one is made before it
    "max_wal_size": "64GB",
    "min_wal_size": "4GB",
    "checkpoint_timeout": "1d",
    # the batch query shall not suffer either
    "shared_buffers": "1GB",
    "work_mem": "256MB",
    "maintenance_work_mem": "512MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "wmstream.state_memory": "4GB",
}
STATED = ("server_version", *SETTINGS, "wmstream.max_batch_rows", "wmstream.poll_interval", "wmstream.batch_memory")
EVENTS = "ts timestamptz, user_id int, kind int, amount float8"
WORKER = """SELECT pid FROM pg_catalog.pg_stat_activity
            WHERE backend_type LIKE 'wmstream%' AND datname = pg_catalog.current_database()"""
DIFFERENCE = """
    WITH batch AS MATERIALIZED (SELECT * FROM ({batch}) b WHERE {end} <= $1::timestamptz), shown AS MATERIALIZED (TABLE {result})
    SELECT (SELECT count(*) FROM shown),
           (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) m),
           (SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) s)"""


class WrongResult(Exception):
    """A stream's result is not what the batch query says: no figure counts then."""


@dataclass
class Work:
    """A stream and the same work as one plain query.

    batch gives the same columns without any help of ours; end is the end of a row's window, in terms of those columns.
    """
    query: str
    batch: str
    end: str = "minute + interval '1 minute'"
    mode: str = "append"
    table: str = "events"


@dataclass
class Sample:
    """One measured run."""
    seconds: float = 0.0
    worker: float = 0.0                                          # CPU seconds of the worker
    session: float = 0.0                                         # CPU seconds of our session's backend
    wal: int = 0                                                 # bytes
    more: dict = field(default_factory=dict)


class Place:
    def __init__(self):
        self.server = Server(SETTINGS)
        self.server.start()
        self.db = self.connect("postgres")
        self.db.execute("CREATE DATABASE bench")
        self.db.close()
        self.db = self.connect()
        self.db.execute("CREATE EXTENSION wmstream")
        self.stated = {name: self.db.value("SELECT current_setting($1)", [name]) for name in STATED}

    def connect(self, database="bench"):
        return Connection(self.server.dsn, timeout=2 * HOUR, dbname=database, host=self.server.directory, port=self.server.port, user="postgres")

    def reconnect(self):
        self.db.reconnect(60)

    def close(self):
        self.db.close()
        self.server.drop()

    # ---- tables and streams

    def make_table(self, name="events", columns=EVENTS):
        """Left alone by autovacuum, which would come or not come as it likes."""
        self.db.execute(f"CREATE TABLE {name} ({columns}) WITH (autovacuum_enabled = false)")

    def create_stream(self, result, query, mode="append"):
        self.db.execute("SELECT wmstream.create_stream($1, $2, output_mode => $3)", [result, query, mode])
        self.db.execute(f"ALTER TABLE {result} SET (autovacuum_enabled = false)")
        self.wait(result)

    def clear(self):
        """Drops all streams and tables; returns when the worker has gone too."""
        for stream, in self.db.execute("SELECT stream FROM wmstream.streams"):
            self.db.execute("SELECT wmstream.drop_stream($1, true)", [stream])
        for table, in self.db.execute("SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"):
            self.db.execute(f"DROP TABLE {table}")
        wait_for(lambda: not self.db.execute(WORKER), 60, "end of the worker")

    def checkpoint(self):
        self.db.execute("CHECKPOINT")

    def wait(self, result, seconds=2 * HOUR):
        """In short calls: each holds a snapshot, for which the state keeps what closes meanwhile."""
        ends = time.monotonic() + seconds
        while True:
            try:
                self.db.execute("SELECT wmstream.wait($1, $2)", [result, WAIT])
                return
            except PgError as error:
                if error.sqlstate != QUERY_CANCELED or time.monotonic() > ends:
                    raise

    def worker(self):
        """The worker's process id; None if there is none."""
        pid = self.db.value(WORKER)
        return int(pid) if pid else None

    def figure(self, result, what):
        return self.db.value(f"SELECT {what} FROM wmstream.stat_streams WHERE stream = $1::regclass", [result])

    def status(self, result):
        """(status, reason)"""
        return self.db.execute("SELECT status, reason FROM wmstream.streams WHERE stream = $1::regclass", [result])[0]

    # ---- results

    def compare(self, work, result="result"):
        """Every group of every closed window; how many there were."""
        watermark, late = self.db.execute("SELECT watermark, late_rows + no_time_rows FROM wmstream.stat_streams WHERE stream = $1::regclass", [result])[0]
        if late != "0":
            raise WrongResult(f"{late} rows were late")
        shown, missing, surplus = self.db.execute(DIFFERENCE.format(batch=work.batch, end=work.end, result=result), [watermark])[0]
        if (missing, surplus) != ("0", "0") or shown == "0":
            raise WrongResult(f"of {shown} rows in the result {surplus} are wrong, and {missing} are missing")
        return int(shown)

    # ---- spans

    def wal_position(self):
        return int(self.db.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))

    def span(self):
        return Span(self)


class Span:
    """with place.span() as span: …; then span.sample."""

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        self.pid = self.place.worker()
        self.wal = self.place.wal_position()
        self.worker, self.session = self.cpu()
        self.began = time.monotonic()
        return self

    def cpu(self):
        return bench_machine.cpu_seconds(self.pid) if self.pid else 0.0, bench_machine.cpu_seconds(self.place.db.pid)

    def __exit__(self, kind, *_):
        if kind:
            return
        seconds = time.monotonic() - self.began
        worker, session = self.cpu()
        self.sample = Sample(seconds, worker - self.worker, session - self.session, self.place.wal_position() - self.wal)
