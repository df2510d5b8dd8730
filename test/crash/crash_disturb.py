"""The disturbances of the crash test.

Two families: those at a moment that chance chooses (a worker terminated, a worker killed, the server killed, the server stopped
without a shutdown), and those at a named point of the code, between two durable effects. The names are read from the sources, so
a new point is covered without a change here.

A test point is set in a file that postgresql.conf includes, not by ALTER SYSTEM: it must be cleared also while the server is
crashing again and again at it.
"""
import os
import re
import signal
import time

from wmstest.pq import PgError
from wmstest.server import wait_for

import crash_fill
import crash_streams
from crash_streams import STREAMS, TABLES_IN_USE, WORKER

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "..", "..", "src")
POINT = re.compile(r'\bWMS_POINT\("([^"]+)"\)')
POINT_FILE = "test_point.conf"
ACTIONS = ["crash", "wait", "fatal", "error", "error/40001"]
CRASHED = "all server processes terminated; reinitializing"      # in the server's log, when no connection of before is left
WAITED_WITH = 5                                                  # streams
PATIENCE = 20                                                    # seconds until the load must have come to a point
TRIMS = ("trim-locking", "queue-trimmed")                          # the points that only trimming comes to
TRIM_PATIENCE = 75                                               # trimming rests up to 30 where it found nothing, and 60 after an error

def sign_of(point, action):
    """What the server's log says when the action was done at the point."""
    return {"crash": CRASHED, "wait": f'test point "{re.escape(point)}": waiting'}.get(action, f'test point "{re.escape(point)}" reached')

def points():
    """Names of all test points, in the order in which they stand in the sources; those that the source does not come to left out."""
    found = []
    for directory, _, files in sorted(os.walk(SOURCES)):
        for name in sorted(files):
            if name.endswith(".c"):
                with open(os.path.join(directory, name), encoding="utf-8") as source:
                    found += POINT.findall(source.read())
    # those of queues are not caught up by reading WAL; no load here is so large that it goes to disk (test/tap/016_spilled_rows.pl), and none
    # makes the slot, which is there (007_lost_slot.pl)
    unreached = ("chunk-", "slot-", "follower-") if crash_streams.QUEUES else ("chunk-", "slot-", "queue", "trim-")
    return [point for point in dict.fromkeys(found) if not point.startswith(unreached)]

class Log:
    """What the server writes to its log from now on."""

    def __init__(self, server):
        self.path, self.start = server.log, os.path.getsize(server.log)

    def has(self, pattern):
        with open(self.path, encoding="utf-8", errors="replace") as log:
            log.seek(self.start)
            return re.search(pattern, log.read())

class Disturber:
    """Does harm to one server. db: a connection that is connected again here when the harm broke it."""

    def __init__(self, server, db, rng):
        self.server, self.db, self.rng = server, db, rng
        self.crashes = 0
        self.set_point("")

    # ---- at chance moments

    def terminate_worker(self):
        pid = self.worker()
        self.db.execute("SELECT pg_terminate_backend($1)", [pid])
        wait_for(lambda: self.db.value(f"SELECT count(*) FROM ({WORKER}) w WHERE pid = $1", [pid]) == "0", PATIENCE, "end of the worker")

    def kill_worker(self):
        log = Log(self.server)
        self.server.kill_child(int(self.worker()))
        wait_for(lambda: log.has(CRASHED), PATIENCE, "the server's end after its worker was killed")
        self.crashed()

    def kill_server(self):
        self.server.crash()
        self.server.start()
        self.crashed()

    def stop_immediately(self):
        self.server.restart("immediate")
        self.crashed()

    def restart(self):
        self.server.restart("fast")
        self.back()

    def kill_twice(self):
        """The second time while the worker is on its way back."""
        self.kill_server()
        self.kill_worker()

    CHANCE = [terminate_worker, kill_worker, kill_server, stop_immediately, restart, kill_twice]

    # ---- at a named point

    def at_point(self, point, action, provoke):
        """Waits until the load, or else provoke(), which is told how to see that it has happened, came to the point and the action was done there; then it is cleared."""
        log, pattern = Log(self.server), sign_of(point, action)
        self.set_point(f"{point}:{action}")
        try:
            if crash_fill.reaches(point) or not self.happens(log, pattern, 3):
                try:
                    provoke(lambda: log.has(pattern))
                except PgError:
                    pass                                                   # what it wanted is what the point prevented
                patience = TRIM_PATIENCE if point in TRIMS else PATIENCE
                wait_for(lambda: log.has(pattern), patience, f"point {point} being reached")
            if action == "wait":
                self.wait_with_each(point)
        finally:
            self.set_point("")
        if action == "crash":
            self.crashed()
        self.back()

    def wait_with_each(self, point):
        """The worker waits at the point; then it waits there once more with each of some streams that comes to it."""
        self.look_and_vacuum()
        for stream in self.rng.sample(STREAMS, WAITED_WITH):
            log = Log(self.server)
            self.set_point(f"{point}:wait:{stream.name}")
            if self.happens(log, sign_of(point, "wait"), 0.3):
                self.look_and_vacuum()

    def look_and_vacuum(self):
        """While a worker stands in the middle of its transaction: a row that others take for aborted is lost for good, were it
        committed ten times (the xid of a process that only decodes is in nobody's snapshot)."""
        tables = [table for table, in self.db.execute(TABLES_IN_USE)]
        for table in tables:
            self.db.execute(f"SELECT count(*) FROM {table}")
        for table in tables:
            self.db.execute(f"VACUUM {table}")

    @staticmethod
    def happens(log, pattern, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if log.has(pattern):
                return True
            time.sleep(0.02)
        return False

    def set_point(self, value):
        path = os.path.join(self.server.data, POINT_FILE)
        with open(path + ".new", "w", encoding="utf-8") as new:
            new.write(f"wmstream.test_point = '{value}'\n")
            if value.startswith("follower-"):
                new.write("wmstream.catchup_distance = 0\n")        # nobody is near enough to be caught up otherwise
        os.chmod(path + ".new", 0o644)
        os.replace(path + ".new", path)
        self.server.process.send_signal(signal.SIGHUP)

    # ---- coming back

    def worker(self):
        return wait_for(lambda: self.db.value(WORKER), 60, "a worker of wmstream")

    def crashed(self):
        self.crashes += 1
        self.back()

    def back(self):
        """Waits until the server takes connections and answers."""
        def answers():
            try:
                if not self.db.handle:
                    self.db.reconnect()
                return self.db.value("SELECT NOT pg_catalog.pg_is_in_recovery()") == "t"
            except PgError:
                self.db.close()
                return False
        wait_for(answers, 60, "the server's return")
