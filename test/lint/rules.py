"""What the lints share: where the tree is, how its C files are read, how a verdict is given.

A lint collects problems, one line each, and hands them to verdict(). WMS_ROOT names another tree than the
one this file lies in; selftest uses that.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("WMS_ROOT") or pathlib.Path(__file__).resolve().parents[2])
SRC = ROOT / "src"

# From the top: a room may use the rooms after it.
ROOMS = ("worker", "sqlface", "flow", "analyze", "source", "state", "sink", "registry", "shared", "base")


def verdict(problems):
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def fail(message):
    verdict([message])


def name(path):
    return str(path.relative_to(ROOT))


def read(path):
    if not path.exists():
        fail(f"{name(path)}: there is no such file")
    return path.read_text(encoding="utf-8")


def c_files(*suffixes):
    """All C files below src with one of the suffixes; a lint that finds none has checked nothing, so it fails."""
    files = sorted(path for path in SRC.rglob("*") if path.suffix in (suffixes or (".c", ".h")))
    if not files:
        fail(f"src: no {' or '.join(suffixes or ('.c', '.h'))} file found")
    return files


def room_of(path):
    """The room a file lies in, or None for what stands directly in src."""
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else None


def without_comments(text, strings=True):
    """C text with comments blanked, and strings too unless they are kept; line numbers stay."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(found):
        if found[0][0] in "\"'":
            return found[0] if strings else found[0][0] * 2
        return re.sub(r"[^\n]", " ", found[0])

    return token.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def tracked_files():
    """What git tracks, or would at the next commit; without git, everything that is no build product."""
    command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    except (OSError, subprocess.CalledProcessError):
        return sorted(path for path in ROOT.rglob("*") if path.is_file() and not is_made(path))
    return [ROOT / file for file in sorted(set(listing.split("\0"))) if file and (ROOT / file).is_file()]


def is_made(path):
    return (path.suffix in (".o", ".so", ".bc", ".pyc") or ".git" in path.relative_to(ROOT).parts
            or ROOT / "test/tmp" in path.parents)
