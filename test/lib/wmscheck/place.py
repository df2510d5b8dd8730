"""Where the suites run, and as whom.

A server refuses to run as root, and another user can often neither read nor write root's checkout. So a root
run copies the tree to a directory of its own, gives that to the test user and runs the suites there; anybody
else runs them in the checkout. Either way data directories, sockets and temporary files lie in that one
directory under /tmp, and logs in test/tmp of the checkout when all is over.

What may be assumed after close(): every server that was started below the directory is gone, and so is the directory.
"""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Place:
    def __init__(self, checkout, user, pg_config):
        self.checkout = checkout
        self.as_root = os.getuid() == 0
        self.user = user if self.as_root else pwd.getpwuid(os.getuid()).pw_name
        self.pg_config = pg_config
        self.bindir = pathlib.Path(self.ask("--bindir"))
        self.pgxs = pathlib.Path(self.ask("--pgxs")).parent.parent.parent
        self.logs_home = checkout / "test/tmp"
        shutil.rmtree(self.logs_home, ignore_errors=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="wmstream-check.", dir="/tmp"))
        self.tree = self.work / "tree" if self.as_root else checkout
        self.logs = self.tree / "test/tmp"
        if self.as_root:
            shutil.copytree(checkout, self.tree, symlinks=True,
                            ignore=shutil.ignore_patterns(".git", "*.o", "*.so", "__pycache__"))
        self.logs.mkdir(parents=True)
        (self.work / "tmp").mkdir()
        if self.as_root:
            subprocess.run(["chown", "-R", self.user + ":", self.work], check=True)

    def ask(self, option):
        return subprocess.run([self.pg_config, option], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()

    def environment(self):
        return {
            "PATH": f"{self.bindir}:{PATH}",
            "HOME": str(self.work),
            "TMPDIR": str(self.work / "tmp"),
            "LANG": "C.UTF-8",
            "PG_CONFIG": self.pg_config,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def directory(self, name):
        """A fresh directory for data, owned by the test user."""
        return self.give(self.work / name)

    def log_directory(self, name):
        """The same for what is kept."""
        return self.give(self.logs / name)

    def give(self, path):
        path.mkdir(parents=True)
        if self.as_root:
            shutil.chown(path, self.user)
        return path

    def run(self, command, log, minutes, extra_env=None, show=None):
        """Runs a command as the test user in the tree, its output into the file `log`.

        Lines for which show(line) is true are printed as they come. Returns (exit status, output);
        the status is None when the time was over.
        """
        environment = {**self.environment(), **(extra_env or {})}
        return run_logged(command, self.tree, environment, log, minutes, show, self.identity())

    def identity(self):
        """Arguments for subprocess that make root the test user."""
        if not self.as_root:
            return {}
        entry = pwd.getpwnam(self.user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(self.user, entry.pw_gid)}

    def stop_servers(self):
        """Ends servers that a suite left behind: those whose data directory lies below ours."""
        pids = []
        for file in self.work.rglob("postmaster.pid"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(file.read_text().split()[0])
                os.kill(pid, signal.SIGQUIT)
                pids.append(pid)
        deadline = time.monotonic() + 20
        while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        return len(pids)

    def close(self):
        self.stop_servers()
        if self.as_root:
            shutil.copytree(self.logs, self.logs_home, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(self.work, ignore_errors=True)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def run_logged(command, cwd, environment, log, minutes, show=None, identity=None):
    """Like Place.run, but as the caller and anywhere. The command gets no stdin and a process group of its own.

    It writes to the file and not to a pipe: a server that it leaves behind would keep a pipe open.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as out, open(log, encoding="utf-8", errors="replace") as tail:
        process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True, **(identity or {}))
        try:
            status = wait_showing(process, minutes, tail, show or (lambda line: False))
        finally:
            end_group(process)
            process.wait()
        if status is None:
            out.write(f"\nstopped after {minutes} minutes\n")
    return status, log.read_text(encoding="utf-8", errors="replace").splitlines()


def wait_showing(process, minutes, tail, show):
    """Waits for the process, printing its lines meanwhile; its status, or None when the time is over."""
    deadline = time.monotonic() + 60 * minutes
    status, part = None, ""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout=0.1)
        *lines, part = (part + tail.read()).split("\n")
        for line in filter(show, lines):
            print(line, flush=True)
        if status is not None or time.monotonic() > deadline:
            return status


def end_group(process, patience=30):
    """Asks the process group to end, so that it can stop its servers, and ends what does not."""
    with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=patience)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def die(message):
    print(f"test/check: {message}", file=sys.stderr)
    print("0 passed, 1 failed", flush=True)
    sys.exit(1)
