"""Many conformance cases: where they run, in how many jobs, and the report.

A Site is one database in which cases run one after another, each in a schema of its own. Without --dsn every site has a
server of its own (so that one job's restart does not disturb another's cases), with --dsn all sites are databases of the
given server. After a case that failed the site goes on in a fresh database; a server that died is started again.
"""
import json
import os
import queue
import signal
import sys
import threading
import time

from .case import CaseRun, Failure
from .pq import Connection, ConnectionLost, PgError
from .server import Server, ServerError, wait_for

RECOVERY = 60                                                    # seconds a server may take until it accepts connections again
EXTENSION_PROCESSES = """SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type LIKE 'wmstream%'
                         AND (datname = pg_catalog.current_database() OR datname IS NULL)"""
WORKER = """SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type LIKE 'wmstream%'
            AND datname = pg_catalog.current_database() ORDER BY random() LIMIT 1"""


class Settings:
    """What the command line says; one object for all jobs."""

    def __init__(self, **given):
        self.source, self.dsn, self.jobs = "wal", None, 1
        self.crash = self.crash_random = self.split = self.keep = self.verbose = False
        self.server_settings, self.reasons = {}, {}
        vars(self).update(given)
        self.crash = self.crash or self.crash_random


class Site:
    """A database for cases; see the head of this file."""

    def __init__(self, settings, number=0):
        self.settings, self.number = settings, number
        self.server = self.connection = self.database = None
        self.made, self.crashes = 0, 0

    # ---- databases

    def dsn(self):
        return self.settings.dsn or self.server.dsn

    def ready(self):
        """Makes sure that there is a server and a database; raises PgError or ServerError if that cannot be."""
        if not self.settings.dsn:
            self.ready_server()
        if not self.connection:
            self.fresh_database()

    def ready_server(self):
        if not self.server:
            self.server = Server(self.settings.server_settings, keep=self.settings.keep, durable=self.settings.crash)
        if not self.server.running():
            self.abandon()
            self.server.start()

    def fresh_database(self):
        self.made += 1
        self.database = f"wms_conformance_{os.getpid()}_{self.number}_{self.made}"
        with Connection(self.dsn(), timeout=RECOVERY) as admin:
            admin.execute(f"CREATE DATABASE {self.database}")
        connection = Connection(self.dsn(), dbname=self.database, timeout=RECOVERY)
        connection.execute("CREATE EXTENSION wmstream")
        self.connection = connection

    def abandon(self):
        """Leaves the database; the next case gets another one. Best effort: it may be the database that is broken."""
        if self.connection:
            self.connection.close()
        self.connection = None
        if self.settings.keep or not self.database:
            return
        try:
            with Connection(self.dsn(), timeout=20) as admin:
                admin.execute(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")
        except PgError:
            pass

    def close(self):
        if self.settings.keep and self.database:
            print(f"database kept: {self.database}", flush=True)
        if self.settings.dsn:
            self.abandon()
        elif self.server:
            self.server.drop()

    # ---- restarts and crashes

    def restart(self):
        if self.server:
            self.server.restart()
        else:
            self.end_workers()
        self.connection.reconnect(RECOVERY)

    def end_workers(self):
        """The nearest to a restart that a given server allows."""
        pids = [pid for pid, in self.connection.execute(EXTENSION_PROCESSES)]
        for pid in pids:
            self.connection.execute("SELECT pg_terminate_backend($1)", [pid])
        wait_for(lambda: not {p for p, in self.connection.execute(EXTENSION_PROCESSES)} & set(pids), 30, "end of the extension's workers")

    def next_victim(self):
        self.crashes += 1
        return "server" if self.crashes % 2 else "worker"

    def crash(self, victim):
        """kill -9 of the server, or of the extension's worker, which makes the postmaster start all processes again."""
        if victim == "server":
            self.server.crash()
            self.server.start()
        else:
            pid = wait_for(lambda: self.connection.value(WORKER), 10, "a wmstream worker in this database")
            self.server.kill_child(int(pid))
            wait_for(self.connection_broke, 30, "restart of the server after its worker was killed")
        self.connection.reconnect(RECOVERY)

    def connection_broke(self):
        try:
            self.connection.execute("SELECT 1")
            return False
        except ConnectionLost:
            return True


# ---------------------------------------------------------------- running

class Runner:
    """Runs cases in jobs and counts."""

    def __init__(self, settings):
        self.settings = settings
        self.passed = self.failed = 0
        self.lock = threading.Lock()
        self.stopping = False

    def say(self, line):
        with self.lock:
            print(line, flush=True)

    def count(self, name, problem, seconds=0.0):
        if problem:
            self.failed += 1
            self.say(f"FAIL {name} {problem}".replace("\n", " | "))
        else:
            self.passed += 1
            if self.settings.verbose:
                self.say(f"pass {name} ({seconds:.2f} s)")

    def run(self, cases):
        """Runs all cases; the report goes to stdout as they end."""
        waiting = queue.SimpleQueue()
        for case in cases:
            waiting.put(case)
        jobs = max(1, min(self.settings.jobs, len(cases)))
        threads = [threading.Thread(target=self.job, args=(n, waiting), daemon=True) for n in range(1, jobs)]
        for thread in threads:
            thread.start()
        try:
            self.job(0, waiting)
        finally:
            self.stopping = True
            for thread in threads:
                thread.join()

    def job(self, number, waiting):
        site = Site(self.settings, number)
        try:
            while not (self.stopping and number):
                case = waiting.get_nowait()
                started = time.monotonic()
                problem = run_case(case, site)
                self.count(case_name(case), problem, time.monotonic() - started)
        except queue.Empty:
            pass
        finally:
            site.close()


def case_name(case):
    return str(case.get("name", "unnamed")) if isinstance(case, dict) else "unnamed"


def run_case(case, site):
    """None, or what went wrong. The site is left ready for the next case."""
    try:
        site.ready()
        run = CaseRun(case, site, f"case_{site.made}_{time.monotonic_ns()}", site.settings)
        run.run()
        if not site.settings.keep:
            run.cleanup()
        return None
    except Failure as error:
        problem = str(error)
    except (PgError, ServerError) as error:
        problem = f"server: {error}"
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"cannot be run: {type(error).__name__} {error}"
    site.abandon()
    return problem


# ---------------------------------------------------------------- files

def parse_names(text):
    """Names, one a line; # begins a comment."""
    return set(filter(None, (line.split("#")[0].strip() for line in text.splitlines())))


def read_file(path, parse):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def parse_reasons(text):
    """name: regular expression"""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): pattern.strip() for name, pattern in (line.split(":", 1) for line in lines)}


def load_cases(paths, runner):
    """The cases of all files; a file that cannot be read is a failure."""
    cases = []
    for path in paths:
        try:
            content = read_file(path, json.loads)
            found = content if isinstance(content, list) else [content]
            if not all(isinstance(c, dict) for c in found):
                raise ValueError("not a list of cases")
            cases += found
        except (OSError, ValueError) as error:
            runner.count(path, f"cannot be read: {error}")
    return cases


def exit_on_termination():
    """SIGTERM ends us as Ctrl-C does, so that servers are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
