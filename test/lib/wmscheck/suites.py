"""The suites of test/check, in the order in which they run.

A suite is a function of the place; it returns (passed, failed) and prints what failed. Nothing counts as passed
unless it ran and said so: a suite that is missing, crashes, or prints no count has failed once.
"""

import os
import re

from .place import run_logged

COUNT = re.compile(r"^(\d+) passed, (\d+) failed$")
CRASH = re.compile(r"\bPANIC:|\bTRAP:|terminated by signal")
SHOWN = re.compile(r"^(FAIL|not ok)\b")


def lint(place):
    """Reads the checkout, objects included, so it runs there and as the caller."""
    return counted(*run_logged(["test/lint/run"], place.checkout, dict(os.environ), place.logs / "lint.log", 5,
                               lambda line: not COUNT.match(line)))


def regress(place):
    topics = sorted(path.stem for path in place.tree.glob("sql/*.sql"))
    return pg_regress(place, "regress", "regress/pg_regress", place.tree, topics, [])


def isolation(place):
    home = place.tree / "test/isolation"
    specs = sorted(path.stem for path in home.glob("specs/*.spec"))
    return pg_regress(place, "isolation", "isolation/pg_isolation_regress", home, specs, ["--load-extension=wmstream"])


def pg_regress(place, suite, program, inputs, tests, options):
    """Each test alone, on a new server of its own, whose log must hold no crash."""
    if not tests:
        return none_found(suite)
    passed = failed = 0
    for test in tests:
        output = place.log_directory(f"{suite}/{test}")
        data = place.directory(f"{suite}/{test}")
        command = [place.pgxs / "src/test" / program, f"--inputdir={inputs}", f"--outputdir={output}",
                   f"--temp-instance={data}/pg", f"--temp-config={place.tree}/test/wmstream.conf",
                   f"--bindir={place.bindir}", "--encoding=UTF8", "--no-locale", *options, test]
        status, lines = place.run([str(word) for word in command], output / "run.log", 10)
        crash = first_crash(output)
        if status == 0 and not crash:
            passed += 1
            continue
        failed += 1
        place.stop_servers()
        print(f"FAIL {suite} {test}: {crash or 'differs from what is expected'}")
        print_some(differences(output)[:60] or lines[-20:])
    return passed, failed


def differences(output):
    diffs = output / "regression.diffs"
    return diffs.read_text(errors="replace").splitlines() if diffs.exists() else []


def first_crash(output):
    for log in sorted(output.rglob("postmaster.log")):
        for line in log.read_text(errors="replace").splitlines():
            if CRASH.search(line):
                return line
    return None


def tap(place):
    files = sorted(place.tree.glob("test/tap/*.pl"))
    if not files:
        return none_found("tap")
    perl = place.pgxs / "src/test/perl"
    passed = failed = 0
    for file in files:
        data = place.directory(f"tap/{file.stem}")
        environment = {
            "TESTDIR": str(data),
            "TESTDATADIR": str(data / "tmp_check"),
            "TESTLOGDIR": str(data / "tmp_check/log"),
            "PG_REGRESS": str(place.pgxs / "src/test/regress/pg_regress"),
            "PG_TEST_PORT_DIR": str(data),
            "PGPORT": "65432",
        }
        command = ["prove", "--verbose", "-I", str(perl), "-I", "test/lib", str(file.relative_to(place.tree))]
        status, lines = place.run(command, place.logs / "tap" / f"{file.stem}.log", 10, environment, is_failure)
        good, bad = count_tap(lines, status)
        for line in lines:
            if skipped := re.match(r"(?:ok \d+|1\.\.0) # skip (.*)", line, re.I):
                print(f"note: {file.name}: {skipped[1]}", flush=True)
        if bad:
            print(f"FAIL tap {file.name}: {good} passed, {bad} failed")
            kept = place.logs / "tap" / file.stem
            keep_logs(data / "tmp_check/log", kept)
            own_log = kept / f"regress_log_{file.stem}"
            told = own_log.read_text(errors="replace").splitlines() if own_log.exists() else lines
            print_some(what_failed(told) + told[-30:])
        passed, failed = passed + good, failed + bad
        place.stop_servers()
    return passed, failed


def count_tap(lines, status):
    """Tests of one file; one that is skipped or to do is neither, nor is a whole file that says why it is skipped. Planned but not run, a bad exit or no
    test at all is a failure."""
    if status == 0 and any(re.match(r"1\.\.0 # skip \S", line, re.I) for line in lines):
        return 0, 0
    good = sum(bool(re.match(r"ok \d+(?!.*# skip)", line, re.I)) for line in lines)
    aside = sum(bool(re.match(r"ok \d+.*# skip|not ok \d+.*# todo", line, re.I)) for line in lines)
    bad = sum(bool(re.match(r"not ok \d+(?!.*# todo)", line, re.I)) for line in lines)
    plan = next((int(found[1]) for line in lines if (found := re.match(r"1\.\.(\d+)", line))), None)
    if plan is None or plan != good + bad + aside or good + bad == 0 or (status != 0 and bad == 0):
        bad += 1
    return good, bad


def what_failed(lines):
    """Each test that failed with what it says of itself: its comments, which hold what it got."""
    found, follows = [], 0
    for line in lines:
        text = re.sub(r"^\[[\d:.]+\]\([\d.]+s\) ", "", line)
        follows = 15 if text.startswith("not ok") else follows - 1 if text.startswith("#") or not text else 0
        if follows > 0:
            found.append(line)
    return found


def keep_logs(source, target):
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for log in source.iterdir():
            if log.is_file():
                (target / log.name).write_bytes(log.read_bytes())


def oracle(place):
    """The oracle and the helpers of the other suites, without a server; each program is one test, by its exit status."""
    cases = sorted(str(path.relative_to(place.tree)) for path in place.tree.glob("test/conformance/cases/spec_*.json"))
    passed = failed = 0
    for command in (["test/conformance/selftest.py"], ["test/conformance/model.py", *cases]):
        word = command[0].split("/")[-1]
        status, lines = place.run(["python3", *command], place.logs / "oracle" / f"{word}.log", 5)
        if status == 0:
            passed += 1
        else:
            failed += 1
            print(f"FAIL oracle {word}: exit status {status}")
            print_some(lines[-20:])
    return passed, failed


def conformance(place):
    cases = sorted(str(path.relative_to(place.tree)) for path in place.tree.glob("test/conformance/cases/*.json"))
    if not cases:
        return none_found("conformance")
    counts = [program(place, f"conformance-{source}", 20, "test/conformance/run", "--jobs", "2", "--source", source,
                      "--except", "test/conformance/skipped", *cases) for source in ("wal", "queue")]
    return tuple(map(sum, zip(*counts)))


# Each fast way has a slow twin, or is not taken in small states: these settings choose the other one.
TWINS = (("wmstream.force_kept_arguments=on", "13", "15"), ("wmstream.force_planned_feed=on", "16", "18"),
         ("wmstream.look_ahead_from=0", "19", "21"), ("wmstream.due_rows=0", "22", "23"), ("wmstream.due_rows=1", "24", "25"),
         ("wmstream.force_row_feed=on", "26", "28"), ("wmstream.force_insert_statement=on", "29", "30"),
         ("wmstream.bundle_from=1", "31", "33"))


def fuzz(place):
    runs = [("fuzz", ())] + [(f"fuzz-{setting.partition('=')[0]}", ("--set", setting, *seeds)) for setting, *seeds in TWINS]
    counts = [program(place, name, 15, "test/conformance/fuzz_run", "--jobs", "2", *arguments) for name, arguments in runs]
    return tuple(map(sum, zip(*counts)))


def odd(place):
    return program(place, "odd", 10, "test/conformance/odd_run", "--seed", "1", "400")


def composed(place):
    return program(place, "composed", 10, "test/conformance/composed_run", "--jobs", "2", "1", "80")


def realdata(place):
    return program(place, "realdata", 10, "test/realdata/run")


def crash(place):
    counts = [program(place, f"crash-{source}", 15, "test/crash/run", "--quick", "--source", source) for source in ("wal", "queue")]
    return tuple(map(sum, zip(*counts)))


def program(place, suite, minutes, *command):
    """A suite that is a program of ours: it prints FAIL lines and, last of all, its count."""
    if not (place.tree / command[0]).exists():
        print(f"FAIL {suite}: there is no {command[0]}")
        return 0, 1
    result = place.run(list(command), place.logs / f"{suite}.log", minutes, show=First(20))
    place.stop_servers()
    return counted(*result)


def counted(status, lines):
    """What the program says it did, held against how it ended."""
    found = COUNT.match(lines[-1]) if lines else None
    if not found:
        print("FAIL no count at the end" + (" (out of time)" if status is None else f" (exit status {status})"))
        print_some(lines[-20:])
        return 0, 1
    passed, failed = int(found[1]), int(found[2])
    if (status == 0) != (failed == 0) or passed + failed == 0:
        print(f"FAIL exit status {status} with \"{found[0]}\"")
        failed += 1
    return passed, failed


def is_failure(line):
    return bool(SHOWN.match(line))


class First:
    """True for the first few lines that tell of a failure; the log has them all."""

    def __init__(self, limit):
        self.left = limit

    def __call__(self, line):
        self.left -= is_failure(line)
        return self.left >= 0 and is_failure(line)


def none_found(suite):
    print(f"FAIL {suite}: no test found")
    return 0, 1


def print_some(lines):
    for line in lines:
        print("    " + line)


SUITES = (lint, oracle, regress, isolation, tap, conformance, fuzz, odd, composed, realdata, crash)
