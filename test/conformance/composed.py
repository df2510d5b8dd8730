#!/usr/bin/env python3
"""Composed definitions: joins of groups, groups of joins, DISTINCT and ranks of either, a few levels deep, and rows for them.

    composed.py SEED [NUMBER]        prints the tables, the rows and the definitions of a round (or one of them)

A *round* is a few tables, each with a delay, steps of rows for them, and definitions in append mode that read them. The same seed always
gives the same round. Definitions are grown from a relation outward: a table with its watermark, sessions, or tables joined in one FROM; around
it joins of all kinds, groups, DISTINCT, DISTINCT ON, ranks, UNION and UNION ALL, windows over what comes from below, static tables. Times are
compared in all ways: windows with each other, one bound of each, ranges of event times and of bounds. Many are refused; that is no matter here.

The oracle is the definition itself, run as a batch query over the same rows. It is right because in these rounds
- no row is late: none lies before its table's watermark as the steps before have left it;
- only rows are compared whose times lie long before those of the last steps, which let everything close;
- everything else that would make the two differ by design is told to the batch query (Sql.batch) or not made at all:
  rows without event time and groups or ranks of a NULL window are left out; sessions are merged; DISTINCT has a time among its keys, without
  which keys are forgotten; a row that DISTINCT ON picks is told by ORDER BY or is the same whichever is picked; static tables stay as they are.
"""
import argparse
import collections
import random

TIMES = ("time", "window", "begin", "end")
FIRST_LETTER = {"id": "i", "key": "k", "value": "v", "time": "t", "window": "w", "begin": "b", "end": "e"}
TUMBLING = ["window({}, '1 hour')", "window({}, '2 hours')", "window({}, '3 hours')", "window({}, '6 hours')", "window({}, '3 hours', '3 hours', '1 hour')"]
SLIDING = ["window({}, '2 hours', '1 hour')", "window({}, '3 hours', '1 hour')", "window({}, '5 hours', '2 hours')", "window({}, '90 minutes', '1 hour')"]
CUMULATING = ["cumulate_window({}, '1 hour', '3 hours')", "cumulate_window({}, '1 hour', '4 hours')", "cumulate_window({}, '2 hours', '6 hours')",
              "cumulate_window({}, '30 minutes', '1 hour')"]
WINDOWS = TUMBLING + SLIDING + CUMULATING
SESSION = "session"                                              # in place of the call for windows that sessions made
SESSION_TEXT = """SELECT s AS {0}, k AS {1}, count(*)::int AS {2}, sum(v)::int AS {3}
    FROM {table}, wmstream.session_window(ts, '{gap}') AS s WHERE wmstream.watermark(ts, '{delay}') GROUP BY s, k"""
SESSION_BATCH = """SELECT tstzrange(min(ts), max(ts) + interval '{gap}') AS {0}, k AS {1}, count(*)::int AS {2}, sum(v)::int AS {3}
    FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY k ORDER BY ts) AS session
          FROM (SELECT *, (ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > interval '{gap}') IS NOT FALSE AS begins FROM {table}) r) r GROUP BY k, session"""
JOINS = {"JOIN": 10, "LEFT JOIN": 2, "RIGHT JOIN": 2, "FULL JOIN": 2, "EXISTS": 1.5, "NOT EXISTS": 1.5}
LONGEST = 5000                                                   # characters of a definition

HOUR, MINUTE = 3600, 60
START = 1704067200                                               # 2024-01-01 00:00 UTC
LENGTH = 44 * HOUR                                               # of the time in which the rows lie
COMPARED = START + 500 * HOUR                                    # rows of results before it are compared
CLOSING = [START + hours * HOUR for hours in (1000, 2000, 3000, 4000)]
DELAYS = {"0": 0, "30 minutes": 30 * MINUTE, "2 hours": 2 * HOUR, "5 hours": 5 * HOUR}

Round = collections.namedtuple("Round", "delays steps definitions")
Column = collections.namedtuple("Column", "name role window nullable")
Sql = collections.namedtuple("Sql", "stream batch")              # what the stream is told, what the batch query is told


class Relation:
    """A query in the making: its text, and what is known of its columns. Parts of the text are strings, Sql, or other relations."""

    def __init__(self, columns, *parts):
        self.columns = columns
        self.stream = "".join(getattr(part, "stream", part) for part in parts)
        self.batch = "".join(getattr(part, "batch", part) for part in parts)

    def having(self, *roles):
        return [column for column in self.columns if column.role in roles]

    def certain(self, *roles):
        return [column for column in self.having(*roles) if not column.nullable]

    def times(self):
        return self.having(*TIMES)

    def compared(self):
        """The condition for rows that have times, all of them well before the end."""
        ends = [f"upper({column.name})" if column.role == "window" else column.name for column in self.times()]
        return " AND ".join([f"coalesce({end} < to_timestamp({COMPARED}), true)" for end in ends] + [f"num_nonnulls({', '.join(ends)}) > 0"])


PLAIN = Relation([Column(name, role, None, False) for name, role in (("id", "id"), ("k", "key"), ("v", "value"), ("ts", "time"))])  # any table


def known(expressions):
    """Groups and ranks leave NULL windows out; a batch query has to be told."""
    return Sql("", " WHERE " + " AND ".join(f"{expression} IS NOT NULL" for expression in expressions))


def shown(pairs):
    """The list of SELECT for pairs of expression and column."""
    return ", ".join(f"{expression} AS {column.name}" for expression, column in pairs)


# ---------------------------------------------------------------- definitions

class Composer:
    """Grows definitions over tables with these delays."""

    def __init__(self, dice, delays):
        self.dice, self.delays = dice, delays
        self.names = 0
        # Windows of one definition are of few kinds, so that they meet; often one of them cumulates.
        self.usual = [dice.choice(CUMULATING if self.chance(0.5) else WINDOWS), dice.choice(WINDOWS)]

    def chance(self, probability):
        return self.dice.random() < probability

    def pick(self, things):
        return self.dice.choice(things)

    def some(self, things, least, most):
        return self.dice.sample(things, min(len(things), self.dice.randint(least, most)))

    def weighed(self, choices):
        return self.dice.choices(list(choices), list(choices.values()))[0]

    def alias(self):
        self.names += 1
        return f"q{self.names}"

    def column(self, role, window=None, nullable=False):
        self.names += 1
        return Column(f"{FIRST_LETTER[role]}{self.names}", role, window, nullable)

    def like(self, column):
        return self.column(*column[1:])

    def window_call(self):
        return self.pick(self.usual if self.chance(0.8) else WINDOWS)

    # ---- what is read

    def columns_of(self, q, nullable=False):
        """Of a table that is read under an alias: pairs of expression and column."""
        return [(f"{q}.{column.name}", self.column(column.role, None, nullable)) for column in PLAIN.columns]

    def table(self):
        name, q = self.pick(list(self.delays)), self.alias()
        pairs = self.columns_of(q)
        condition = f" AND {q}.v > 1" if self.chance(0.15) else ""
        return Relation([column for _, column in pairs], f"SELECT {shown(pairs)} FROM {name} {q} WHERE wmstream.watermark({q}.ts, '{self.delays[name]}'){condition}")

    def sessions(self):
        table, gap = self.pick(list(self.delays)), self.pick(["50 minutes 30 seconds", "2 hours 30 seconds"])
        columns = [self.column("window", SESSION), self.column("key"), self.column("value"), self.column("value")]
        stream, batch = (text.format(*(column.name for column in columns), table=table, gap=gap, delay=self.delays[table]) for text in (SESSION_TEXT, SESSION_BATCH))
        return Relation(columns, Sql(stream, batch))

    def tables_in_one(self):
        """Tables joined in one FROM, with a window over the first at times."""
        source, marks, pairs, aliases = "", [], [], []
        for _ in range(self.pick([2, 2, 3])):
            table, q = self.pick(list(self.delays)), self.alias()
            kind = self.pick(["JOIN", "JOIN", "JOIN", "LEFT JOIN"]) if aliases else ""
            source += f" {kind} {table} {q}"
            if aliases:
                other = self.pick(aliases)
                source += " ON " + " AND ".join([f"{other}.k = {q}.k"] + self.time_conditions(PLAIN, other, PLAIN, q))
            pairs += self.columns_of(q, kind == "LEFT JOIN")
            marks.append(f"wmstream.watermark({q}.ts, '{self.delays[table]}')")
            aliases.append(q)
        if self.chance(0.5):
            window = self.column("window", self.window_call())
            source += f", wmstream.{window.window.format(aliases[0] + '.ts')} AS {window.name}"
            pairs.append((window.name, window))
        return Relation([column for _, column in pairs], f"SELECT {shown(pairs)} FROM{source} WHERE {' AND '.join(marks)}")

    # ---- windows and groups

    def window_over(self, relation, q):
        """(an entry of FROM that makes a window of a time of the relation, its column)"""
        roles = ("time", "window") if self.chance(0.95) else TIMES
        time = self.pick(relation.having(*roles) or relation.times())
        expression = f"{q}.{time.name}"
        if time.role == "window" and self.chance(0.04):
            expression = f"{self.pick(['lower', 'upper'])}({expression})"
        window = self.column("window", self.window_call(), time.nullable)
        return f", wmstream.{window.window.format(expression)} AS {window.name}", window

    def windowed(self, relation):
        q = self.alias()
        source, window = self.window_over(relation, q)
        return Relation([*relation.columns, window], f"SELECT {q}.*, {window.name} FROM (", relation, f") {q}{source}")

    def group_by_window(self, q, window):
        """A window from below as it can stand in GROUP BY: itself, both bounds, or one."""
        expression = f"{q}.{window.name}"
        bounds = [(f"lower({expression})", self.column("begin", window.window)), (f"upper({expression})", self.column("end", window.window))]
        # One bound does not tell a cumulating window or a session: mostly refused, so seldom asked for.
        told_by_one = window.window in TUMBLING + SLIDING or self.chance(0.1)
        shape = self.weighed({"window": 50, "both": 25, "one": 25 if told_by_one else 0})
        return [(expression, self.column("window", window.window))] if shape == "window" else bounds if shape == "both" else [self.pick(bounds)]

    def group_by_time(self, relation, q):
        """(what is added to FROM, pairs of expression and column)"""
        way = self.dice.random()
        if way < 0.6 and relation.having("window"):
            return "", self.group_by_window(q, self.pick(relation.having("window")))
        if way < 0.75 and relation.having("time", "begin", "end"):
            time = self.pick(relation.having("time", "begin", "end"))
            return "", [(f"{q}.{time.name}", self.column(time.role, time.window))]
        source, window = self.window_over(relation, q)
        return source, [(window.name, self.column("window", window.window))]

    def grouped(self, relation):
        q = self.alias()
        source, keys = self.group_by_time(relation, q)
        if relation.certain(*TIMES) and self.chance(0.15):
            second = self.pick(relation.certain(*TIMES))
            keys.append((f"{q}.{second.name}", self.like(second)))
        without_null = known(expression for expression, _ in keys)
        if relation.having("key") and self.chance(0.6):
            keys.append((f"{q}.{self.pick(relation.having('key')).name}", self.column("key")))
        values = [("count(*)::int", self.column("value"))]
        for argument in self.some(relation.having("value", "id"), 0, 2):
            call = self.pick(["sum({})::int", "max({})", "count(DISTINCT {})::int", "min({})"])
            values.append((call.format(f"{q}.{argument.name}"), self.column("value")))
        if not any(column.role == "key" for _, column in keys):
            values.append(("count(*)::int % 2", self.column("key")))
        by = ", ".join(expression for expression, _ in keys)
        having = " HAVING count(*) > 1" if self.chance(0.1) else ""
        return Relation([column for _, column in keys + values],
                        f"SELECT {shown(keys + values)} FROM (", relation, f") {q}{source}", without_null, f" GROUP BY {by}{having}")

    # ---- DISTINCT and ranks

    def distinct(self, relation):
        """By a time or two of the relation, or by new windows over its event time. None if it has no time that tells when a key leaves."""
        times = [time for time in relation.certain(*TIMES) if (time.role, time.window) != ("begin", SESSION)]
        if not times:
            return None
        q, source, keys = self.alias(), "", []
        event_times = relation.certain("time")
        if event_times and self.chance(0.4):
            for _ in range(self.pick([1, 2])):
                window = self.column("window", self.pick(self.usual + TUMBLING))
                source += f", wmstream.{window.window.format(q + '.' + event_times[0].name)} AS {window.name}"
                keys.append((window.name, self.like(window)))
        else:
            keys = [self.distinct_key(q, time) for time in self.some(times, 1, 2)]
        keys += [(f"{q}.{column.name}", self.like(column)) for column in self.some(relation.having("key", "value"), 1, 2)]
        on, all_shown = "", list(keys)
        if self.chance(0.3):
            on = f" ON ({', '.join(expression for expression, _ in keys)})"
            if keys[0][1].role == "window":                      # another column that the key tells
                wider = self.column("window", self.pick(TUMBLING[2:4]))
                all_shown.append((f"wmstream.{wider.window.format(keys[0][0])}", wider))
        return Relation([column for _, column in all_shown], f"SELECT DISTINCT{on} {shown(all_shown)} FROM (", relation, f") {q}{source}")

    def distinct_key(self, q, time):
        if time.role == "window" and self.chance(0.4):
            role = "end" if time.window == SESSION else self.pick(["begin", "end"])
            return f"{'lower' if role == 'begin' else 'upper'}({q}.{time.name})", self.column(role, time.window)
        return f"{q}.{time.name}", self.like(time)

    def first_of_window(self, relation):
        """DISTINCT ON with an ORDER BY that tells which row is the first."""
        windows = relation.certain("window")
        if not windows:
            return None
        q = self.alias()
        keys = [self.pick(windows)] + (self.some(relation.having("key"), 1, 1) if self.chance(0.7) else [])
        on = ", ".join(f"{q}.{column.name}" for column in keys)
        order = ", ".join([on] + [f"{q}.{column.name}" for column in relation.columns if column not in keys])
        return Relation(relation.columns, f"SELECT DISTINCT ON ({on}) {q}.* FROM (", relation, f") {q} ORDER BY {order}")

    def ranked(self, relation):
        """Numbers or counts of a window's rows; half of them cut off at two."""
        times = relation.having("window") + (relation.having("time") if self.chance(0.3) else [])
        if not times:
            return None
        q, time, number = self.alias(), self.pick(times), self.column("value")
        expression = f"{q}.{time.name}"
        by_bound = time.window in TUMBLING + SLIDING and self.chance(0.25)
        part = [f"{self.pick(['lower', 'upper'])}({expression})" if by_bound else expression]
        if relation.having("key") and self.chance(0.6):
            part.append(f"{q}.{self.pick(relation.having('key')).name}")
        order = ", ".join(f"{q}.{column.name}" for column in relation.columns)
        call = self.pick([f"row_number() OVER (PARTITION BY {', '.join(part)} ORDER BY {order})", f"count(*) OVER (PARTITION BY {', '.join(part)})"])
        columns = [*relation.columns, number]
        ranks = Relation(columns, f"SELECT {q}.*, {call} AS {number.name} FROM (", relation, f") {q}", known([expression]))
        return Relation(columns, "SELECT r.* FROM (", ranks, f") r WHERE r.{number.name} <= 2") if self.chance(0.5) else ranks

    # ---- two relations

    def bound(self, q, time):
        """The time itself, or a bound of the window."""
        return f"{self.pick(['lower', 'upper'])}({q}.{time.name})" if time.role == "window" else f"{q}.{time.name}"

    def time_conditions(self, left, l, right, r):
        """One or two conditions that hold times of both sides together; none where a side has no time."""
        event_times = [(a, b) for a in left.having("time") for b in right.having("time")]
        any_times = [(a, b) for a in left.times() for b in right.times()]
        same = [(a, b) for a, b in any_times if (a.role, a.window) == (b.role, b.window)]
        windows = [(a, b) for a, b in same if a.role == "window" and a.window != SESSION]
        bounds = [(a, b) for a, b in same if a.role in ("begin", "end")]
        ways = [(self.equal_windows, windows, 3), (self.equal_bounds, bounds, 2), (self.equal_bounds, event_times, 1), (self.equal_bounds, any_times, 1),
                (self.time_range, event_times, 2), (self.time_range, any_times, 1)]
        ways = [way for way in ways if way[1]]
        chosen = self.dice.choices(ways, [weight for _, _, weight in ways], k=1 if self.chance(0.7) else 2) if ways else []
        return [way(self.pick(pairs), l, r) for way, pairs, _ in chosen]

    def equal_windows(self, pair, l, r):
        one, other = f"{l}.{pair[0].name}", f"{r}.{pair[1].name}"
        if self.chance(0.33):
            return f"{one} = {other}"
        bound = self.pick(["lower", "lower", "upper"])
        return f"{bound}({one}) = {bound if self.chance(0.9) else self.pick(['lower', 'upper'])}({other})"

    def equal_bounds(self, pair, l, r):
        return f"{self.bound(l, pair[0])} = {self.bound(r, pair[1])}"

    def time_range(self, pair, l, r):
        one, other = self.bound(l, pair[0]), self.bound(r, pair[1])
        if self.chance(0.5):
            one, other = other, one
        first = self.pick([-5, -3, -1, 0, 0, 1])
        last = first + self.pick([0, 1, 2, 4])
        since, until, after = (f"{other} + interval '{hours} hours'" if hours else other for hours in (first, last, last + 1))
        return self.weighed({f"{one} BETWEEN {since} AND {until}": 70, f"{one} >= {since} AND {one} < {after}": 15,
                             f"{one} > {since}": 7, f"{one} <= {since}": 8})

    def joined(self, left, right):
        l, r = self.alias(), self.alias()
        conditions = self.time_conditions(left, l, right, r)
        if left.having("key") and right.having("key") and self.chance(0.93):
            conditions.insert(0, f"{l}.{self.pick(left.having('key')).name} = {r}.{self.pick(right.having('key')).name}")
        if left.having("value") and right.having("value") and self.chance(0.1):
            conditions.append(f"{l}.{self.pick(left.having('value')).name} <= {r}.{self.pick(right.having('value')).name}")
        kind, on = self.weighed(JOINS), " AND ".join(conditions) or "true"
        if kind.endswith("EXISTS"):
            return Relation(left.columns, f"SELECT {l}.* FROM (", left, f") {l} WHERE {kind} (SELECT FROM (", right, f") {r} WHERE {on})")
        columns = [column._replace(nullable=column.nullable or kind in ("RIGHT JOIN", "FULL JOIN")) for column in left.columns] \
            + [column._replace(nullable=column.nullable or kind in ("LEFT JOIN", "FULL JOIN")) for column in right.columns]
        return Relation(columns, f"SELECT {l}.*, {r}.* FROM (", left, f") {l} {kind} (", right, f") {r} ON {on}")

    def with_static(self, relation):
        if not relation.having("key"):
            return None
        q, key, value = self.alias(), self.pick(relation.having("key")), self.column("value")
        return Relation([*relation.columns, value], f"SELECT {q}.*, names.v AS {value.name} FROM (", relation,
                        f") {q} {self.pick(['', 'LEFT '])}JOIN names ON names.k = {q}.{key.name}")

    def union(self, one, other, word):
        """Of the columns that both have. None where those hold no time, for UNION none that tells when its keys leave."""
        p, q, pairs, columns, free = self.alias(), self.alias(), [], [], list(other.columns)
        for column in one.columns:
            fit = [c for c in free if (c.role, c.window) == (column.role, column.window) and c.role != "id"]
            if fit:
                partner = self.pick(fit)
                free.remove(partner)
                pairs.append((column, partner))
                columns.append(self.column(column.role, column.window, column.nullable or partner.nullable))
        firsts = shown((f"{p}.{column.name}", result) for (column, _), result in zip(pairs, columns))
        seconds = ", ".join(f"{q}.{partner.name}" for _, partner in pairs)
        made = Relation(columns, f"SELECT {firsts} FROM (", one, f") {p} {word} SELECT {seconds} FROM (", other, f") {q}")
        return made if (made.times() if word == "UNION ALL" else made.certain("time", "window")) else None

    # ---- all together

    def bottom(self):
        way = self.weighed({"sessions": 7, "in one": 10, "windowed": 46, "table": 37})
        if way == "sessions":
            return self.sessions()
        if way == "in one":
            return self.tables_in_one()
        return self.windowed(self.table()) if way == "windowed" else self.table()

    def relation(self, depth):
        """So many levels; a level that cannot be built around what came out below is left out."""
        if depth <= 0:
            return self.bottom()
        below = self.relation(depth - 1)
        way = self.weighed({"joined": 44, "union": 6, "grouped": 22, "distinct": 8, "ranked": 5, "first_of_window": 7, "with_static": 2, "windowed": 6})
        if way == "joined":
            return self.joined(below, self.relation(depth - self.pick([1, 2])))
        if way == "union":
            return self.union(below, self.relation(depth - 1), self.pick(["UNION ALL", "UNION ALL", "UNION"])) or below
        made = getattr(self, way)(below) if below.times() else None
        return made or below

    def definition(self):
        while True:
            made = self.relation(self.pick([1, 2, 2, 3, 3, 3, 4]))
            if made.times() and self.chance(0.5):
                made = self.grouped(made)
            if made.times() and len(made.stream) < LONGEST:
                return made


# ---------------------------------------------------------------- rows

class Rows:
    """Steps of rows for tables with these delays, none of them late."""

    def __init__(self, dice, delays):
        self.dice, self.delays = dice, delays
        self.latest = {}                                         # table -> its greatest time so far
        self.front = dict.fromkeys(delays, START)                # table -> how far its rows go
        self.speed = {table: dice.choice([0.3, 1, 1, 3]) for table in delays}
        self.ids = 0
        self.without_time = dice.random() < 0.3
        self.keys = dice.choice([["1", "1", "2", "3", "NULL"], ["1", "1", "1", "1", "0", "NULL"]])
        # A few steps of some rows, or many of single ones: so that all sources stand at many different times between them.
        self.count, self.most = dice.choice([(dice.randint(6, 14), 4), (dice.randint(16, 26), dice.randint(1, 3))])

    def steps(self):
        """Lists of transactions (SQL). The last ones let everything close."""
        steps = [self.step() for _ in range(self.count)]
        return steps + [[self.insert(table, [("-1", str(time))]) for table in self.delays] for time in CLOSING]

    def step(self):
        tables = [table for table in self.delays if self.dice.random() < 0.7] or [self.dice.choice(list(self.delays))]
        return [self.transaction(table) for table in tables for _ in range(self.dice.choice([1, 1, 2]))]

    def transaction(self, table):
        ahead = self.dice.choice([0, HOUR // 2, HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR]) * self.speed[table]
        self.front[table] = min(START + LENGTH, self.front[table] + int(ahead) // MINUTE * MINUTE)
        since = max(START, self.latest.get(table, START) - DELAYS[self.delays[table]])
        until = max(self.front[table], since)
        times = [self.time(since, until) for _ in range(self.dice.randint(1, self.most))]
        self.latest[table] = max([self.latest.get(table, START), *times])
        return self.insert(table, [(self.key(), "NULL" if self.without_time and self.dice.random() < 0.05 else str(time)) for time in times])

    def time(self, since, until):
        """Mostly on or beside the edges of windows, at the watermark, or the newest."""
        time = self.dice.choices([since, until, self.dice.randint(since, until)], [30, 20, 50])[0]
        time = self.dice.choices([time // (HOUR // 2) * (HOUR // 2), time // HOUR * HOUR + HOUR - MINUTE, time // MINUTE * MINUTE], [75, 10, 15])[0]
        return min(max(time, since), until)

    def key(self):
        return self.dice.choice(self.keys) if self.dice.random() < 0.9 else "4"

    def insert(self, table, rows):
        values = []
        for key, time in rows:
            self.ids += 1
            values.append(f"({self.ids}, {key}, {self.dice.randint(0, 4)}, to_timestamp({time}))")
        return f"INSERT INTO {table} VALUES {', '.join(values)}"


def world(delays):
    """Statements that make the tables, and in the schema timed the views of them that batch queries read."""
    tables = [f"CREATE TABLE {table} (id int, k int, v int, ts timestamptz);\nCREATE VIEW timed.{table} AS SELECT * FROM {table} WHERE ts IS NOT NULL;" for table in delays]
    return "\n".join(["CREATE SCHEMA timed;", *tables, "CREATE TABLE names (k int, v int);", "INSERT INTO names VALUES (1, 10), (2, 20), (2, 21);"])


def generate(seed, count):
    """The round of a seed, with so many definitions."""
    dice = random.Random(f"{seed} rows")
    delays = {table: dice.choice(list(DELAYS)) for table in ["t1", "t2", "t3"][:dice.choice([2, 3])]}
    definitions = [Composer(random.Random(f"{seed} {number}"), delays).definition() for number in range(count)]
    return Round(delays, Rows(dice, delays).steps(), definitions)


def main():
    parser = argparse.ArgumentParser(description="Print a round of composed definitions.")
    parser.add_argument("seed", type=int)
    parser.add_argument("number", type=int, nargs="?", help="this definition only")
    parser.add_argument("--count", type=int, default=40, help="so many definitions (default 40)")
    given = parser.parse_args()
    made = generate(given.seed, max(given.count, (given.number or 0) + 1))
    print(world(made.delays))
    for number, definition in enumerate(made.definitions):
        if given.number in (None, number):
            print(f"SELECT wmstream.create_stream('d{number}', $${definition.stream}$$);")
    for step in made.steps:
        print("\n".join(f"{transaction};" for transaction in step))
        print("SELECT wmstream.wait(stream) FROM wmstream.streams;")


if __name__ == "__main__":
    main()
