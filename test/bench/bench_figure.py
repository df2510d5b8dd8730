"""Figures, pairs of runs, and what is printed and written of them.

A figure compares ours with the same work done plainly in the same run: A B A B …, medians. A figure of time is judged only if
the machine had nothing else to do before any of its pairs: ok is then true or false, else None. Bytes do not depend on that.
"""
import json
import os
import statistics
import time
from dataclasses import dataclass, field

import bench_machine
from bench_place import Sample

ENOUGH_IDLE = 0.90
PATIENCE = 15                                                    # seconds until the machine must be quiet before a pair
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


@dataclass
class Figure:
    """value must be at most (or at least) the limit; plain is what plain work gave, in plain_unit where that is not the unit."""
    case: int
    name: str
    value: float
    unit: str
    limit: float
    plain: float = None
    plain_unit: str = None
    at_least: bool = False
    idle: float = 1.0                                            # before any of its pairs; 1 where the figure is no time
    detail: str = ""
    ok: bool = None
    wrong: bool = False                                          # the result was not what it should be

    @property
    def target(self):
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"

    def judge(self):
        """What is wrong needs no quiet machine to be so."""
        good = self.value >= self.limit if self.at_least else self.value <= self.limit
        self.ok = False if self.wrong else (good if self.idle >= ENOUGH_IDLE else None)
        return self

    def entry(self):
        return {"case": self.case, "name": self.name, "value": rounded(self.value), "unit": self.unit,
                "plain": rounded(self.plain), "plain_unit": self.plain_unit or self.unit, "target": self.target, "ok": self.ok,
                "idle": rounded(self.idle), "detail": self.detail}


@dataclass
class Pairs:
    """Samples of both sides, and the least idle share before a pair."""
    ours: list = field(default_factory=list)
    plain: list = field(default_factory=list)
    idle: float = 1.0

    def ratio(self, what="seconds"):
        return median(self.ours, what) / median(self.plain, what)

    def median_ratio(self, what):
        """Of the ratios of the pairs: what drifts from pair to pair is in both sides of each."""
        return statistics.median(a.more[what] / b.more[what] for a, b in zip(self.ours, self.plain))


def rounded(value):
    return None if value is None else float(f"{value:.4g}")


def median(samples, what="seconds"):
    """Of an attribute, or of what was noted under that name in more."""
    return statistics.median(s.more[what] if what in s.more else getattr(s, what) for s in samples)


def quiet():
    """The idle share before a pair, said aloud."""
    share = bench_machine.settled_idle_share(ENOUGH_IDLE, PATIENCE)
    say(f"idle {share:.0%}" + ("" if share >= ENOUGH_IDLE else ": too busy to judge"))
    return share


def say(text):
    print(f"    {text}", flush=True)


def together(samples):
    """Several runs as one: sums, and the means of what is in more."""
    more = {name: statistics.mean(s.more[name] for s in samples) for name in samples[0].more}
    return Sample(*(sum(getattr(s, name) for s in samples) for name in ("seconds", "worker", "session", "wal")), more)


def paired(ours, plain, times, slices=1):
    """
    Runs both functions in turn; each returns a Sample. A pair of several slices is that many short runs of each side, A B B A …: what
    drifts within seconds, as disks do, is the same for both then.
    """
    pairs = Pairs()
    for _ in range(times):
        pairs.idle = min(pairs.idle, quiet())
        runs = ([], [])
        for i in range(slices):
            for side in (0, 1) if i % 2 == 0 else (1, 0):
                runs[side].append((ours, plain)[side]())
        pairs.ours.append(together(runs[0]))
        pairs.plain.append(together(runs[1]))
        a, b = pairs.ours[-1], pairs.plain[-1]
        say(f"ours {a.seconds:.2f} s (worker {a.worker:.2f}, session {a.session:.2f} s CPU), plain {b.seconds:.2f} s (session {b.session:.2f} s CPU)")
    return pairs


# ---------------------------------------------------------------- output

VERDICT = {True: "ok", False: "MISSED", None: "not judged"}


def table(figures):
    """The figures as lines of text."""
    rows = [("case", "figure", "value", "plain", "target", "")]
    rows += [(str(f.case), f.name, f"{f.value:.4g} {f.unit}", "" if f.plain is None else f"{f.plain:.4g} {f.plain_unit or f.unit}",
              f.target, VERDICT[f.ok]) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    right = (True, False, True, True, True, False)
    for row in rows:
        yield "  ".join(cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(row, widths, right)).rstrip()


def figures_of_today(name, machine, settings):
    """What a run of today on the same machine with the same settings has left in the file."""
    try:
        with open(name, encoding="utf-8") as file:
            content = json.load(file)
    except (FileNotFoundError, ValueError):
        return []
    return content["figures"] if (content["machine"], content["settings"]) == (machine, settings) else []


def results_file():
    os.makedirs(RESULTS, exist_ok=True)
    return os.path.join(RESULTS, time.strftime("%Y-%m-%d") + ".json")


def results_refused():
    """Why results could not be written, which should be known before a case has been measured; None: they can."""
    name = results_file()
    place = name if os.path.exists(name) else RESULTS
    return None if os.access(place, os.W_OK) else f"results cannot be written: no permission for {place}"


def write(figures, settings):
    """Enters a case's figures into the results of the day, in place of older ones of that case; the file's name."""
    name = results_file()
    machine, cases = bench_machine.description(), {f.case for f in figures}
    kept = [entry for entry in figures_of_today(name, machine, settings) if entry["case"] not in cases]
    entries = sorted(kept + [f.entry() for f in figures], key=lambda entry: entry["case"])
    content = {"machine": machine, "settings": settings, "idle": min(entry["idle"] for entry in entries), "figures": entries}
    with open(name, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    return name
