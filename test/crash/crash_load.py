"""The load of the crash test: sessions that write, read and vacuum while processes die.

A Load has a Clock and threads, each with a connection of its own. Losing a connection is expected and repaired; any other
error of a session is a finding: writers and readers of ordinary tables must notice nothing of wmstream. Findings are
collected in Load.problems.

The writers can be paused: pause() returns when none is in a transaction and no transaction is left prepared.
"""
import datetime
import random
import threading
import time

from wmstest.pq import Connection, ConnectionLost, PgError

import crash_streams
from crash_streams import STREAMS, TABLES_IN_USE, WORKER

BEGINNING = datetime.datetime(2024, 3, 1)
MINUTE, HOUR = 60, 3600                                          # seconds of event time
BEFORE, AFTER = 2 * HOUR, 20 * MINUTE                            # how far rows lie from the clock at their transaction's begin
LEAD = 3 * HOUR                                                  # how far the clock may run ahead of an open transaction
RECOVERY = 60                                                    # seconds until a server must accept connections again


def stamp(seconds):
    return (BEGINNING + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S.%f")


class Clock:
    """Event time. A transaction takes the time at its begin and lets go of it at its end; the clock never runs further ahead
    of an open transaction than LEAD. So no row is older than LEAD + BEFORE + AFTER, less than the streams' delay, behind the
    newest that was committed before it: nothing is ever late."""

    def __init__(self):
        self.lock, self.now, self.era, self.open = threading.Lock(), 0, 1, {}

    def begin(self, key, step):
        with self.lock:
            self.now = min([self.now + step, *(t + LEAD for t in self.open.values())])
            self.open[key] = self.now
            return self.now, self.era

    def end(self, key):
        with self.lock:
            self.open.pop(key, None)

    def end_all(self):
        with self.lock:
            self.open.clear()

    def next_era(self):
        with self.lock:
            self.now += 48 * HOUR
            self.era += 1

    def after_all(self):
        """An event time after every row's and window's so far, and before all of the next era."""
        return stamp(self.now + 24 * HOUR)


class Session(threading.Thread):
    """A thread that does one thing again and again on its own connection."""

    def __init__(self, load, name, seed):
        super().__init__(name=name, daemon=True)
        self.load, self.rng, self.db = load, random.Random(seed), None
        self.turns = 0

    def run(self):
        while not self.load.stopping.is_set():
            if not self.admitted():
                continue
            try:
                self.connected()
                self.turn()
                self.turns += 1
            except ConnectionLost:
                self.disconnect()
            except PgError as error:
                self.load.problem(f"{self.name}: {error}")
                self.disconnect()
            finally:
                self.leave()
            self.load.stopping.wait(self.rest())
        self.disconnect()

    def disconnect(self):
        if self.db:
            self.db.close()
        self.db = None

    def admitted(self):
        return True

    def leave(self):
        pass

    def connected(self):
        if not self.db:
            self.db = Connection(self.load.dsn, connect_timeout=10, timeout=60, application_name=self.name)
            self.fresh()

    def fresh(self):
        """What a new connection needs."""


class Writer(Session):
    """Transactions of all sizes and kinds. Rows of different writers come in no order of event time."""

    def __init__(self, load, number, seed):
        super().__init__(load, f"writer {number}", seed)
        self.number, self.last_id, self.prepared = number, number * 10 ** 9, 0
        self.idle = threading.Event()
        self.now = self.era = 0

    def rest(self):
        return self.rng.uniform(0, 0.01)

    def fresh(self):
        self.db.execute(f"SET synchronous_commit = {'off' if self.number == 1 else 'on'}")

    # ---- being paused

    def admitted(self):
        if self.load.open_gate.is_set():
            self.idle.clear()
            if self.load.open_gate.is_set():
                return True
        self.idle.set()
        self.load.open_gate.wait(0.05)
        return False

    def leave(self):
        self.load.clock.end(self.name)

    # ---- transactions

    def turn(self):
        self.now, self.era = self.load.clock.begin(self.name, self.rng.uniform(60, 600))
        kind, = self.rng.choices([self.single, self.several, self.big, self.copy, self.two_phase, self.slow, self.noise],
                                 [25, 45, 2, 8, 4, 3, 3])
        kind()

    def single(self):
        self.insert(1)

    def several(self):
        self.db.execute("BEGIN")
        for _ in range(self.rng.randint(1, 5)):
            self.level(0)
        self.finish()

    def level(self, depth):
        """An insert, perhaps inside savepoints, perhaps undone."""
        if depth == 3 or self.rng.random() < 0.5:
            return self.insert(self.rng.choice([1, 1, 2, 5, 20]))
        self.db.execute(f"SAVEPOINT s{depth}")
        for _ in range(self.rng.randint(1, 3)):
            self.level(depth + 1)
        self.db.execute(f"ROLLBACK TO s{depth}" if self.rng.random() < 0.4 else f"RELEASE s{depth}")

    def finish(self):
        self.db.execute("ROLLBACK" if self.rng.random() < 0.15 else "COMMIT")

    def big(self):
        """More rows than fit the decoder's memory, in subtransactions."""
        self.db.execute("BEGIN")
        for part in range(self.rng.randint(1, 3)):
            self.db.execute(f"SAVEPOINT p{part}")
            rows = self.rng.randint(300, 1500)
            first = self.take_ids(rows)
            self.db.execute(f"""INSERT INTO event SELECT i, {self.era}, timestamptz '{stamp(self.now - BEFORE)}+00' + random() * interval '{BEFORE} s',
                                hashint8(i) & 63, chr(97 + (i % 3)::int), (i % 1000) / 4.0, CASE WHEN i % 50 = 0 THEN repeat(md5(i::text), 100) END
                                FROM generate_series({first}::bigint, {first + rows - 1}) i""")
            if self.rng.random() < 0.25:
                self.db.execute(f"ROLLBACK TO p{part}")
        self.finish()

    def copy(self):
        rows = [self.event_row() for _ in range(self.rng.randint(1, 200))]
        text = "".join("\t".join("\\N" if v is None else str(v) for v in row) + "\n" for row in rows)
        self.db.copy_in("COPY event FROM STDIN", text)

    def two_phase(self):
        """Committed in a second step; what a crash leaves prepared is ended by pause()."""
        self.prepared += 1
        name = f"{self.name} {self.prepared} {self.db.pid}"
        self.db.execute("BEGIN")
        self.insert(self.rng.randint(1, 10))
        self.load.clock.begin(name, 0)
        self.db.execute(f"PREPARE TRANSACTION '{name}'")
        self.db.execute(f"{'COMMIT' if self.rng.random() < 0.8 else 'ROLLBACK'} PREPARED '{name}'")
        self.load.clock.end(name)

    def slow(self):
        """Open for a while, so that others overtake it."""
        self.db.execute("BEGIN")
        for _ in range(3):
            self.insert(2)
            self.load.stopping.wait(self.rng.uniform(0.02, 0.15))
        self.finish()

    def noise(self):
        """Writes to a table that no stream reads, and conflicts that end in no row."""
        self.db.execute("INSERT INTO noise (filler) SELECT repeat('x', 100) FROM generate_series(1, 300)")
        row = self.literal(self.event_row())
        self.db.execute("BEGIN")                                           # a queue may lose the row when it is committed
        self.db.execute(f"INSERT INTO event VALUES {row}")
        self.db.execute(f"INSERT INTO event VALUES {row}, {self.literal(self.event_row())} ON CONFLICT DO NOTHING")
        self.db.execute("COMMIT")

    # ---- rows

    def insert(self, rows):
        if self.rng.random() < 0.35:
            self.db.execute("INSERT INTO visit VALUES " + ", ".join(self.literal(self.visit_row()) for _ in range(rows)))
        if self.rng.random() < 0.9:
            self.db.execute("INSERT INTO event VALUES " + ", ".join(self.literal(self.event_row()) for _ in range(rows)))

    def take_ids(self, count):
        first = self.last_id + 1
        self.last_id += count
        return first

    def event_time(self):
        return stamp(self.now + self.rng.uniform(-BEFORE, AFTER))

    def event_row(self):
        rng, chance = self.rng, self.rng.random()
        time_text = None if chance < 0.01 else "infinity" if chance < 0.013 else self.event_time() + "+00"
        note = None if rng.random() < 0.5 else "%x" % rng.getrandbits(80)
        if rng.random() < 0.02:
            note = rng.randbytes(rng.randint(2000, 8000)).hex()            # does not compress: stored out of line
        return (self.take_ids(1), self.era, time_text, rng.randrange(64), rng.choice(["a", "b", "c", None]),
                None if rng.random() < 0.05 else rng.randrange(-10000, 100000) / 100, note)

    def visit_row(self):
        return (self.take_ids(1), self.era, self.event_time(), "/" + self.rng.choice("abcdefgh"), None if self.rng.random() < 0.1 else self.rng.randrange(5000))

    @staticmethod
    def literal(row):
        return "(" + ", ".join("NULL" if v is None else f"'{v}'" for v in row) + ")"


class Reader(Session):
    """Reads results and open windows. Whatever it sees must be possible, and what one connection once saw never vanishes."""

    SHOWN = """SELECT count(*), coalesce(max(times), 1), coalesce(sum(n), 0) FROM (
                   SELECT count(*) AS times, sum(n) AS n
                   FROM (SELECT era, start, device, n FROM per_device UNION ALL SELECT era, start, device, n FROM wmstream.open_windows(NULL::per_device)) r
                   GROUP BY era, start, device) g"""

    RUNNING = f"""SELECT w.pid FROM wmstream.streams s, ({WORKER}) w WHERE s.stream = 'per_device'::regclass AND s.status = 'running'"""

    twice = "0"

    def fresh(self):
        self.seen = {}

    def rest(self):
        return self.rng.uniform(0, 0.05)

    def turn(self):
        name = self.rng.choice([stream.name for stream in STREAMS if stream.mode == "append"])
        self.never_less(f"rows of {name}", int(self.db.value(f"SELECT count(*) FROM {name}")))
        twice = self.db.value("SELECT count(*) FROM (SELECT FROM copied GROUP BY id HAVING count(*) > 1) d")
        self.demand(twice in ("0", self.twice), f"{twice} ids twice in copied")
        self.twice = twice
        unlike = self.db.value("""SELECT count(*) FROM (SELECT era, start, page, n FROM audited) r
                                  FULL JOIN audit a USING (era, start, page, n) WHERE r IS NULL OR a IS NULL""")
        self.demand(unlike == "0", f"{unlike} rows of audited without their audit row, or the other way round")
        if self.load.open_windows:
            self.look_at_open_windows()

    def look_at_open_windows(self):
        """Finished and open windows in one statement: each once, and no row of them ever goes away. Open windows are in
        shared memory, so while a worker is on its way back they cannot be seen."""
        before = self.db.execute(self.RUNNING)
        try:
            (windows, times, rows), = self.db.execute(self.SHOWN)
        except PgError as error:
            if error.sqlstate == "40001":
                return                                                     # an older snapshot than the worker that answers
            raise
        if before and before == self.db.execute(self.RUNNING):
            self.demand(times == "1", f"of {windows} finished and open windows of per_device one is shown {times} times")
            self.never_less("rows in finished and open windows of per_device", int(rows))

    def never_less(self, what, value):
        self.demand(value >= self.seen.get(what, 0), f"{what}: {self.seen.get(what)} before, now {value}")
        self.seen[what] = value

    def demand(self, condition, finding):
        if not condition:
            self.load.problem(f"{self.name}: {finding}")


class Vacuumer(Session):
    """VACUUM of all tables, those of schema wmstream too: it removes for good what the writing process did not hold on to."""

    def rest(self):
        return self.rng.uniform(0.02, 0.2)

    def turn(self):
        tables = self.db.execute(TABLES_IN_USE)
        for table, in self.rng.sample(tables, len(tables)):
            self.db.execute(f"VACUUM (INDEX_CLEANUP ON) {table}")
        if self.rng.random() < 0.1:
            self.db.execute("CHECKPOINT")


class Load:
    """All sessions together."""

    def __init__(self, dsn, seed, writers=3):
        self.dsn, self.clock = dsn, Clock()
        self.stopping, self.open_gate = threading.Event(), threading.Event()
        self.problems, self.lock = [], threading.Lock()
        self.writers = [Writer(self, n, f"{seed} writer {n}") for n in range(1, writers + 1)]
        self.others = [Reader(self, "reader", f"{seed} reader"), Vacuumer(self, "vacuumer", f"{seed} vacuumer")]
        with Connection(dsn) as db:
            self.open_windows = db.value("SELECT count(*) FROM pg_catalog.pg_proc WHERE proname = 'open_windows' AND pronamespace = 'wmstream'::regnamespace") != "0"

    def start(self):
        for session in self.writers + self.others:
            session.start()

    def stop(self):
        self.stopping.set()
        for session in self.writers + self.others:
            session.join(30)

    def problem(self, text):
        with self.lock:
            self.problems.append(text)

    def take_problems(self):
        with self.lock:
            taken, self.problems = self.problems, []
        return taken

    def resume(self):
        self.open_gate.set()

    def pause(self, db):
        """Returns when every transaction of the writers has ended. db: a connection that works."""
        self.open_gate.clear()
        deadline = time.monotonic() + RECOVERY
        for writer in self.writers:
            if not writer.idle.wait(deadline - time.monotonic()):
                self.problem(f"{writer.name}: its transaction did not end within {RECOVERY} seconds")
        for name, in db.execute("SELECT gid FROM pg_catalog.pg_prepared_xacts"):
            db.execute(f"COMMIT PREPARED '{name}'")
        self.clock.end_all()
