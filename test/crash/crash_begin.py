"""Where streams begin, exactly, while writers commit and processes die.

Several sessions make streams under load. Each must have every row that committed after its own create_stream, and none that
committed before. The order of commits is taken from the WAL by test_decoding, on a slot of our own that was there before: it
tells each transaction with its rows, in that order, that of create_stream too.
"""
import re
import threading

from wmstest.pq import PgError

from crash_load import Session

ROW = re.compile(r"table public\.act: INSERT: id\[bigint\]:(\d+)")
ORACLE = "crash_oracle"
MAKERS, EACH = 3, 6
WAIT = 30


class Actor(Session):
    """Small transactions, many at a time, some with savepoints, some slow."""

    def __init__(self, load, number, seed):
        super().__init__(load, f"actor {number}", seed)
        self.last_id = number * 10 ** 9

    def rest(self):
        return 0

    def insert(self):
        self.last_id += 1
        self.db.execute(f"INSERT INTO act VALUES ({self.last_id})")

    def turn(self):
        self.db.execute("BEGIN")
        for _ in range(self.rng.randint(1, 4)):
            self.insert()
            if self.rng.random() < 0.2:
                self.db.execute("SAVEPOINT s")
                self.insert()
                self.db.execute("ROLLBACK TO s" if self.rng.random() < 0.5 else "RELEASE s")
            if self.rng.random() < 0.1:
                self.load.stopping.wait(self.rng.uniform(0, 0.03))
        self.db.execute("COMMIT" if self.rng.random() < 0.9 else "ROLLBACK")


class Maker(Session):
    """Makes streams one after another, each in a transaction that stays open for a moment. Whether one that lost its connection
    was committed, the registry tells later."""

    def __init__(self, load, number, seed):
        super().__init__(load, f"maker {number}", seed)
        self.number, self.left = number, EACH

    def admitted(self):
        if self.left == 0:
            self.load.stopping.wait(0.05)
        return self.left > 0

    def rest(self):
        return self.rng.uniform(0.05, 0.3)

    def turn(self):
        self.left -= 1
        name = f"begin_{self.number}_{self.left}"
        self.db.execute("BEGIN")
        self.db.execute(f"SELECT wmstream.create_stream('{name}', 'SELECT id FROM act')")
        self.load.made[name] = self.db.value("SELECT pg_catalog.pg_current_xact_id()::xid")
        self.load.stopping.wait(self.rng.uniform(0, 0.05))
        self.db.execute("COMMIT")


class Beginnings:
    """The sessions, and what the sessions of crash_load expect of a load."""

    def __init__(self, dsn, seed):
        self.dsn, self.made, self.problems = dsn, {}, []
        self.stopping = threading.Event()
        self.makers = [Maker(self, n, f"{seed} maker {n}") for n in range(MAKERS)]
        self.sessions = [Actor(self, n, f"{seed} actor {n}") for n in range(1, 4)] + self.makers

    def problem(self, text):
        self.problems.append(text)

    def start(self):
        for session in self.sessions:
            session.start()

    def making(self):
        return any(maker.left for maker in self.makers)

    def stop(self):
        self.stopping.set()
        for session in self.sessions:
            session.join(30)


def run(test, rng):
    """test: what checks and harms (CrashTest of run). Leaves nothing behind but the empty slot's past."""
    db = test.db
    db.execute("CREATE TABLE act (id bigint)")
    try:
        db.execute(f"SELECT pg_catalog.pg_create_logical_replication_slot('{ORACLE}', 'test_decoding')")
    except PgError as error:
        return print(f"beginnings of streams left out: {error}", flush=True)
    load = Beginnings(test.server.dsn, test.given.seed)
    load.start()
    harms = [test.harm.terminate_worker, test.harm.kill_worker, test.harm.stop_immediately]
    rng.shuffle(harms)
    while load.making():
        load.stopping.wait(rng.uniform(0.2, 0.8))
        if harms and db.value("SELECT count(*) FROM wmstream.streams") != "0":
            harm = harms.pop()
            test.attempt(f"beginnings: {harm.__name__}", harm)
    load.stop()
    test.check("beginnings: sessions", "; ".join(load.problems[:5]) or None)
    compare(test, load)
    for name, in db.execute("SELECT stream::text FROM wmstream.streams WHERE stream::text LIKE 'begin%'"):
        db.execute(f"SELECT wmstream.drop_stream('{name}', true)")
    db.execute(f"SELECT pg_catalog.pg_drop_replication_slot('{ORACLE}')")
    db.execute("DROP TABLE act")


def compare(test, load):
    order, rows = commits(test.db)
    streams = {name for name, in test.db.execute("SELECT stream::text FROM wmstream.streams")}
    test.check("beginnings: streams made", None if len(streams) > MAKERS else f"only {len(streams)}")
    for name in sorted(streams):
        if test.attempt(f"beginnings: {name} consumes", lambda s=name: test.db.execute(f"SELECT wmstream.wait('{s}', '{WAIT} s')")):
            place = order.index(load.made[name])
            want = sorted(row for xid in order[place + 1:] for row in rows[xid])
            got = sorted(int(row) for row, in test.db.execute(f"SELECT id FROM {name}"))
            test.check(f"beginnings: {name} has what came after it", difference(want, got))


def commits(db):
    """Transactions (xid) in the order of their commits, and each one's rows."""
    order, rows = [], {}
    for xid, data in db.execute(f"SELECT xid, data FROM pg_catalog.pg_logical_slot_get_changes('{ORACLE}', NULL, NULL)"):
        if data.startswith("BEGIN"):
            order.append(xid)
            rows[xid] = []
        elif ROW.match(data):
            rows[xid].append(int(ROW.match(data)[1]))
    return order, rows


def difference(want, got):
    if want == got:
        return None
    missing, surplus = sorted(set(want) - set(got)), sorted(set(got) - set(want))
    return f"of {len(want)} rows {len(missing)} missing {missing[:5]}, {len(surplus)} too many {surplus[:5]}, {len(got) - len(set(got))} twice"
