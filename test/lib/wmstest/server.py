"""A PostgreSQL server of one's own, for one test run.

Owns: which PostgreSQL is used, the cluster's directory, its settings, and the life of the server process: start, stop,
restart, crash, drop. The postmaster is a child of ours, known by its process id; processes are never looked up by name.
PostgreSQL does not run as root: for root the cluster belongs to the system user `postgres` (or $WMSTEST_USER).

    with Server(settings={"work_mem": "8MB"}) as server:
        connection = Connection(server.dsn)

Settings, later ones win: those below, test/wmstream.conf if it is there, for crash tests DURABLE, those of
the caller.
"""
import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .pq import Connection, ConnectionLost

HERE = os.path.dirname(os.path.abspath(__file__))
CONF = os.path.join(HERE, "..", "..", "wmstream.conf")
SETTINGS = {
    "listen_addresses": "",
    "shared_preload_libraries": "wmstream",
    "wal_level": "logical",
    "wal_writer_delay": "10ms",
    "max_wal_senders": "16",
    "max_replication_slots": "32",
    "max_worker_processes": "32",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %b %d ",
}
DURABLE = {"fsync": "on", "full_page_writes": "on"}              # for crash tests
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class ServerError(Exception):
    """The server did not do what it was told."""


def bindir():
    """Where the server programs are: of $PG_CONFIG, of the pg_config that test/pg-config chooses, of the one in the path, else
    Debian's place for version 15."""
    for config in filter(None, (os.environ.get("PG_CONFIG"), chosen_pg_config(), shutil.which("pg_config"))):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        if os.path.exists(os.path.join(found, "postgres")):
            return found
        if os.environ.get("PG_CONFIG"):
            raise ServerError(f"no server programs in {found} ($PG_CONFIG)")
    return "/usr/lib/postgresql/15/bin"


def chosen_pg_config():
    """What the build takes, so that tests run the server that the extension was built for."""
    script = os.path.join(HERE, "..", "..", "pg-config")
    return shutil.which(subprocess.run([script], capture_output=True, text=True).stdout.strip()) if os.path.exists(script) else None


def other_user():
    """Arguments for subprocess that make it run as an ordinary user, if we are root."""
    if os.geteuid() != 0:
        return {}
    name = os.environ.get("WMSTEST_USER", "postgres")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ServerError(f"PostgreSQL does not run as root, and there is no user {name} (set WMSTEST_USER)") from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(name, entry.pw_gid)}


def short_directory():
    """Where temporary files go; but a socket's path must stay below 100 bytes."""
    chosen = tempfile.gettempdir()
    return chosen if len(chosen) < 60 else "/tmp"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, seconds, what):
    """Polls until condition() is true; its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise ServerError(f"{what}: not within {seconds} seconds")
        time.sleep(0.02)


class Server:
    """One cluster and, between start and stop, its postmaster."""

    def __init__(self, settings=None, keep=False, durable=False):
        self.bin, self.user, self.keep = bindir(), other_user(), keep
        self.process = None
        self.directory = tempfile.mkdtemp(prefix="wms_", dir=short_directory())
        self.data, self.log = (os.path.join(self.directory, name) for name in ("data", "log"))
        self.port = free_port()
        self.dsn = f"host={self.directory} port={self.port} user=postgres dbname=postgres"
        atexit.register(self.drop)
        self.initialise({**(DURABLE if durable else {}), **(settings or {})})

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.drop()

    # ---- the cluster

    def initialise(self, settings):
        if self.user:
            os.chown(self.directory, self.user["user"], self.user["group"])
        run = subprocess.run([os.path.join(self.bin, "initdb"), "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                              "--locale=C", "--no-sync", "--no-instructions"],
                             cwd=self.directory, capture_output=True, text=True, **self.user)
        if run.returncode:
            self.drop()
            raise ServerError(f"initdb: {run.stderr.strip()}")
        own = {"unix_socket_directories": self.directory, "port": str(self.port)}
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            self.write_settings(conf, SETTINGS)
            if os.path.exists(CONF):
                with open(CONF, encoding="utf-8") as extra:
                    conf.write(extra.read() + "\n")
            self.write_settings(conf, {**settings, **own})

    @staticmethod
    def write_settings(conf, settings):
        for name, value in settings.items():
            conf.write("{} = '{}'\n".format(name, str(value).replace("'", "''")))

    # ---- its life

    def start(self, seconds=60):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([os.path.join(self.bin, "postgres"), "-D", self.data], cwd=self.directory,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self.user)
        wait_for(self.accepts_connections, seconds, "start of the server")

    def accepts_connections(self):
        if self.process.poll() is not None:
            raise ServerError(f"the server did not start:\n{self.log_tail()}")
        try:
            Connection(self.dsn, connect_timeout=10).close()
            return True
        except ConnectionLost:
            return False

    def running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, mode="fast", seconds=60):
        """Stops the server; one that does not obey in time is stopped by force, and that is an error."""
        if not self.running():
            return
        self.process.send_signal(STOP_SIGNALS[mode])
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.crash()
            raise ServerError(f"{mode} shutdown: not within {seconds} seconds") from None

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def crash(self):
        """kill -9 of the postmaster; returns when all its children have gone too. start() goes on from there."""
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not self.processes(), 60, "end of the killed server's children")

    def kill_child(self, pid):
        """kill -9 of one process of this server; the postmaster then starts all others again."""
        if pid not in self.processes():
            raise ServerError(f"process {pid} does not belong to this server")
        os.kill(pid, signal.SIGKILL)

    def processes(self):
        """Ids of the processes that work in our data directory, the postmaster too."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.path.samefile(f"/proc/{pid}/cwd", self.data):
                    found.append(int(pid))
            except OSError:
                continue                                                   # gone meanwhile, or not ours
        return found

    def log_tail(self, lines=15):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def drop(self):
        """Stops the server and removes its directory, unless it shall be kept."""
        atexit.unregister(self.drop)
        if self.keep and self.running():
            print(f"server kept: psql '{self.dsn}'   log {self.log}   stop: kill {self.process.pid}", flush=True)
            return
        try:
            self.stop("immediate", 20)
        except ServerError:
            pass                                                           # it is gone all the same
        shutil.rmtree(self.directory, ignore_errors=True)
