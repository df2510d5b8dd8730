"""Odd definitions of streams: what a user might write, and what nobody would.

    odd.py [--seed S] [N]        prints N definitions

Two ways, chosen at random. A *mutation* takes queries of the conformance cases and deletes, doubles, swaps and replaces
tokens, balanced groups and clauses, or puts whole queries into one another. A *growth* follows a grammar of SELECT that knows types and
what is in scope, so that most of what it gives can be run, and puts watermark() and windows into right and wrong places.
The same seed always gives the same definitions. world() is the SQL of all that they read.
"""
import argparse
import json
import pathlib
import random
import re

CASES = pathlib.Path(__file__).resolve().parent / "cases"
TOKEN = re.compile(r"""\s*('(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_][\w.$]*|\d+(?:\.\d+)?|::|=>|<=|>=|<>|!=|\|\||->>|->|@>|&&|.)""", re.S)

# ---------------------------------------------------------------- what there is to read

COMMON = {"id": "text", "k": "text", "v": "int", "value": "int", "n": "numeric", "ts": "timestamptz", "ts2": "timestamptz",
          "local": "timestamp", "day": "date", "gap": "interval", "f": "float8", "ok": "bool", "arr": "int[]", "j": "jsonb"}
SPECIAL = """
CREATE TABLE dim (k text PRIMARY KEY, name text, rank int);
CREATE TABLE part (id text, k text, v int, ts timestamptz NOT NULL) PARTITION BY RANGE (ts);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE part_2 (ts timestamptz NOT NULL, v int, k text, id text);
ALTER TABLE part ATTACH PARTITION part_2 DEFAULT;
CREATE VIEW seen AS SELECT id, k, v, ts FROM events WHERE v > 0;
CREATE VIEW watched AS SELECT id, k, v, ts FROM events WHERE wmstream.watermark(ts, '5 seconds');
CREATE MATERIALIZED VIEW mat AS SELECT id, k, v, ts FROM events;
CREATE UNLOGGED TABLE loose (LIKE events);
CREATE TEMP TABLE passing (LIKE events);
CREATE TABLE parent (LIKE events);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE nothing ();
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE "Odd ""name" (gone int, id text, "K" text, v positive, p pair, ts timestamptz, made int GENERATED ALWAYS AS (1 + 1) STORED, x xml, pt point, e timestamptz);
ALTER TABLE "Odd ""name" DROP COLUMN gone;
CREATE TABLE guarded (LIKE events);
CREATE SEQUENCE seq;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION volatile_twice(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1 * 2; END';
CREATE FUNCTION several(int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT generate_series(1, $1 % 3)';
CREATE FUNCTION rows_of(text) RETURNS TABLE (x int, y text) LANGUAGE sql STABLE AS 'SELECT 1, $1';
CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM public.dim';
CREATE AGGREGATE mul(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
INSERT INTO dim VALUES ('a', 'first', 1), ('b', 'second', 2), ('c', NULL, 3);
"""
SPECIAL_TABLES = {"part": "id k v ts", "part_1": "id k v ts", "seen": "id k v ts", "watched": "id k v ts", "mat": "id k v ts", "dim": "k name",
                  "loose": "id k v ts", "passing": "id k v ts", "parent": "id k v ts", "child": "id k v ts", "nothing": "",
                  '"Odd ""name"': "id v ts", "pg_class": "relname", "guarded": "id k v ts"}


def cases():
    found = [case for path in sorted(CASES.glob("spec_*.json")) for case in json.loads(path.read_text(encoding="utf-8"))]
    if not found:
        raise ValueError(f"no cases in {CASES}")
    return found


def tables(of_cases):
    """table → {column: type}: the columns of all cases that have the table, and common ones."""
    found = {}
    for case in of_cases:
        for table, columns in case["sources"].items():
            merged = found.setdefault(table, {})
            for column, kind in columns.items():
                merged.setdefault(column, kind)
    return {table: {**COMMON, **columns} for table, columns in found.items()}


def world(of_tables):
    """Statements that make everything the definitions read."""
    made = [f"CREATE TABLE {table} ({', '.join(f'{c} {t}' for c, t in columns.items())});" for table, columns in of_tables.items()]
    return "\n".join(made) + SPECIAL


# ---------------------------------------------------------------- growth

INTERVALS = ["'1 second'", "'5 seconds'", "'10 seconds'", "'1 hour'", "'0'", "'1 microsecond'", "'1 day'"]
ODD_INTERVALS = ["'-1 s'", "'1 month'", "'1 year -400 days'", "NULL", "NULL::interval", "''", "'178000000 years'", "'99999999 days'", "'100000001 days'", "gap",
                 "v * interval '1 s'", "interval '1 s' * 2", "'1 s'::text::interval", "random() * interval '1 s'", "(SELECT interval '1 s')", "'P1D'", "'3 seconds'", "7"]
CONSTANTS = {
    "int": ["0", "1", "-7", "2147483647", "NULL::int"], "text": ["'a'", "''", "'it''s'", "NULL::text"], "numeric": ["1.5", "0.0", "'NaN'::numeric"],
    "timestamptz": ["'2024-01-01 10:00+00'::timestamptz", "now()", "current_timestamp", "'infinity'::timestamptz", "clock_timestamp()", "NULL::timestamptz"],
    "timestamp": ["'2024-01-01'::timestamp", "localtimestamp"], "date": ["'2024-01-01'::date", "current_date"], "interval": ["'1 hour'::interval", "'1 month'::interval"],
    "float8": ["1e10::float8", "'-0'::float8"], "bool": ["true", "false", "NULL::bool"], "int[]": ["ARRAY[1,2]", "'{}'::int[]"], "jsonb": ["'{\"a\": 1}'::jsonb"],
    "tstzrange": ["tstzrange('2024-01-01', '2024-01-02')", "'empty'::tstzrange"], "bigint": ["1::bigint"]}
MAKERS = {
    "int": ["{int} + {int}", "{int} / nullif({int}, 0)", "twice({int})", "length({text})", "CASE WHEN {bool} THEN {int} ELSE {int} END", "coalesce({int}, 0)", "cardinality({int[]})",
            "{int[]}[1]", "extract(hour FROM {timestamptz})::int", "abs({int})", "(SELECT {int})", "volatile_twice({int})", "({jsonb}->>'a')::int", "(SELECT max(rank) FROM dim)", "(SELECT rank FROM dim WHERE dim.k = {text})"],
    "bigint": ["{int}::bigint", "reads()"],
    "text": ["{text} || {text}", "upper({text})", "{int}::text", "{timestamptz}::text", "coalesce({text}, 'x')", "md5({text})", "{text} COLLATE \"C\"", "{jsonb}->>'a'", "(SELECT name FROM dim LIMIT 1)", "current_user::text"],
    "numeric": ["{int}::numeric", "{numeric} * 2", "round({numeric}, 2)"],
    "float8": ["{int}::float8", "sqrt(abs({float8}))", "random()"],
    "timestamptz": ["{timestamptz} + {interval}", "date_trunc('hour', {timestamptz})", "greatest({timestamptz}, {timestamptz})", "to_timestamp({int})", "{timestamp} AT TIME ZONE 'UTC'", "{text}::timestamptz",
                    "lower({tstzrange})", "upper({tstzrange})", "{date}::timestamptz", "coalesce({timestamptz}, {timestamptz})"],
    "timestamp": ["{timestamptz} AT TIME ZONE 'Europe/Berlin'", "{timestamptz}::timestamp", "{date}::timestamp"],
    "date": ["{timestamptz}::date", "{timestamp}::date"],
    "interval": ["{timestamptz} - {timestamptz}", "{int} * interval '1 minute'", "make_interval(secs => {int})"],
    "bool": ["{int} > {int}", "{text} = {text}", "{timestamptz} < {timestamptz}", "{bool} AND {bool}", "{bool} OR {bool}", "NOT {bool}", "{text} IN ('a', 'b')", "{int} IS NULL", "{text} LIKE 'a%'", "{int} = ANY ({int[]})",
             "EXISTS (SELECT 1 FROM dim WHERE dim.k = {text})", "{text} IN (SELECT k FROM dim)", "{timestamptz} BETWEEN {timestamptz} AND {timestamptz}", "wmstream.watermark({timestamptz}, {delay})"],
    "int[]": ["ARRAY[{int}, {int}]", "{int[]} || {int}"],
    "jsonb": ["to_jsonb({int})", "jsonb_build_object('a', {int})"],
    "tstzrange": ["wmstream.window({timestamptz}, {size})", "wmstream.session_window({timestamptz}, {size})", "wmstream.window({tstzrange}, {size})", "tstzrange({timestamptz}, {timestamptz} + '1 s')",
                  "wmstream.window({timestamptz}, {size}, {size})", "wmstream.cumulate_window({timestamptz}, {size}, {size})"]}
AGGREGATES = ["count(*)", "count({int})", "sum({int})", "avg({numeric})", "min({timestamptz})", "max({text})", "array_agg({int})", "string_agg({text}, ',' ORDER BY {int})", "count(DISTINCT {text})",
              "sum({int}) FILTER (WHERE {bool})", "percentile_cont(0.5) WITHIN GROUP (ORDER BY {float8})", "mode() WITHIN GROUP (ORDER BY {int})", "rank(3) WITHIN GROUP (ORDER BY {int})",
              "jsonb_agg({jsonb})", "mul({numeric})", "bool_or({bool})", "range_agg({tstzrange})", "min({int})", "max({numeric})", "regr_slope({float8}, {float8})", "sum({int} + 1)", "every({bool})"]
ODD_AGGREGATES = ["grouping({int})", "sum(sum({int}))", "sum({int}) OVER (PARTITION BY {text})", "sum(random())", "array_agg({int} ORDER BY random())", "count(*) FILTER (WHERE wmstream.watermark({timestamptz}, {delay}))"]
OVER = ["row_number() OVER (PARTITION BY {key} ORDER BY {int})", "rank() OVER (PARTITION BY {key}, {text} ORDER BY {int} DESC)", "sum({int}) OVER (PARTITION BY {key})", "lag({int}) OVER (ORDER BY {timestamptz})", "count(*) OVER ()",
        "first_value({int}) OVER w2"]
PARTS = re.compile(r"\{([a-z0-9\[\]]+)\}")


class Growth:
    """One definition by the grammar."""

    def __init__(self, dice, of_tables):
        self.dice, self.tables, self.names = dice, of_tables, 0

    def alias(self):
        self.names += 1
        return f"x{self.names}"

    def chance(self, p):
        return self.dice.random() < p

    def interval(self):
        return self.dice.choice(ODD_INTERVALS if self.chance(0.08) else INTERVALS)

    def fill(self, pattern, scope, depth, key="1"):
        def part(found):
            kind = found[1]
            if kind in ("delay", "size"):
                return self.interval()
            return key if kind == "key" else self.expression(kind, scope, depth - 1)
        return PARTS.sub(part, pattern)

    def expression(self, kind, scope, depth):
        """scope: list of (name, type)."""
        fitting = [name for name, of in scope if of == kind]
        if fitting and (depth <= 0 or self.chance(0.75)):
            return self.dice.choice(fitting)
        if depth <= 0 or self.chance(0.3):
            return self.dice.choice(CONSTANTS[kind])
        return "(" + self.fill(self.dice.choice(MAKERS[kind]), scope, depth) + ")"

    # ---- FROM

    def item(self, depth, watermarks):
        """(SQL of an entry of FROM, its columns); conditions that name its event time go to watermarks."""
        name = self.alias()
        pick = self.dice.random()
        if pick < 0.18 and depth > 0:
            inner, columns = self.select(depth - 1)
            return f"({inner}) AS {name}", [(f"{name}.{c}", t) for c, t in columns]
        if pick < 0.25:
            table = self.dice.choice(list(SPECIAL_TABLES))
            columns = [(f"{name}.{c}", COMMON.get(c, "text")) for c in SPECIAL_TABLES[table].split()]
        else:
            table = self.dice.choice(["events", "events", "l", "r", "a"])
            columns = [(f"{name}.{c}", t) for c, t in self.tables[table].items()]
        if f"{name}.ts" in dict(columns) and self.chance(0.8):
            watermarks.append(f"wmstream.watermark({name}.ts, {self.interval()})")
        sample = " TABLESAMPLE BERNOULLI (50)" if self.chance(0.01) else ""
        return f"{'ONLY ' if self.chance(0.01) else ''}{table} AS {name}{sample}", columns

    def window_item(self, scope):
        name = self.alias()
        time = self.dice.choice([n for n, t in scope if t == "timestamptz"] or ["now()"])
        call = self.dice.choice(["window({0}, {1})"] * 4 + ["window({0}, '10 seconds', '5 seconds')", "window({0}, {1}, {1}, {1})", "cumulate_window({0}, '5 seconds', '10 seconds')", "session_window({0}, {1})", "window(now(), {1})"])
        return f"wmstream.{call.format(time, self.interval())} AS {name}", (name, "tstzrange")

    def sources(self, depth, watermarks):
        text, scope = self.item(depth, watermarks)
        while self.chance(0.2):
            more, columns = self.item(depth - 1, watermarks)
            kind = self.dice.choice([",", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "NATURAL JOIN"])
            more = "LATERAL " + more if more.startswith("(") and self.chance(0.3) else more
            both = scope + columns
            if kind in (",", "CROSS JOIN", "NATURAL JOIN"):
                text += f"{kind if kind == ',' else ' ' + kind} {more}"
            else:
                text += f" {kind} {more} ON {self.join_condition(scope, columns, both)}"
            scope = both
        if self.chance(0.1):
            name = self.alias()
            call = self.dice.choice(["generate_series(1, 3)", f"several({self.expression('int', scope, 1)})", f"unnest({self.expression('int[]', scope, 1)})"])
            text, scope = f"{text}, {call} AS {name}", [*scope, (name, "int")]
        return text, scope

    def join_condition(self, left, right, both):
        parts = []
        if self.chance(0.85):
            parts.append(f"{self.expression('text', left, 0)} = {self.expression('text', right, 0)}")
        if self.chance(0.6):
            a, b = self.expression("timestamptz", left, 0), self.expression("timestamptz", right, 0)
            parts.append(self.dice.choice([f"{a} = {b}", f"{b} BETWEEN {a} - interval '5 s' AND {a} + interval '10 s'", f"{a} <= {b} + interval {self.interval()}", f"wmstream.window({a}, '5 s') = wmstream.window({b}, '5 s')"]))
        if not parts or self.chance(0.15):
            parts.append(self.expression("bool", both, 2))
        return " AND ".join(parts)

    # ---- SELECT

    def select(self, depth):
        """(SQL, [(column, type)])"""
        if depth > 0 and self.chance(0.08):
            return self.union(depth)
        watermarks = []
        text, scope = self.sources(depth, watermarks)
        keys = []
        if self.chance(0.65):
            item, window = self.window_item(scope)
            text, scope = f"{text}, {item}", [*scope, window]
            keys.append(window)
        where = watermarks + [self.expression("bool", scope, 2) for _ in range(3) if self.chance(0.2)]
        if self.chance(0.08):
            where.append(self.exists(scope))
        if self.chance(0.08):
            self.dice.shuffle(where)
            where = [self.dice.choice([" OR ", " AND NOT "]).join(where)] if where else []
        grouped = self.chance(0.6) if keys else self.chance(0.2)
        head, columns, tail = self.grouped(scope, keys) if grouped else self.plain(scope, keys)
        sql = f"SELECT {head} FROM {text}" + (f" WHERE {' AND '.join(where)}" if where else "") + tail
        return sql + self.ending(columns), columns

    def plain(self, scope, keys):
        chosen = [(self.dice.choice([n for n, _ in scope] or ["1"]), None) for _ in range(self.dice.randint(1, 3))]
        types = dict(scope)
        columns, head = [], []
        for number, (expression, _) in enumerate(chosen):
            kind = types.get(expression, "text")
            if self.chance(0.25):
                kind = self.dice.choice(list(MAKERS))
                expression = self.expression(kind, scope, 2)
            head.append(f"{expression} AS c{number}")
            columns.append((f"c{number}", kind))
        if keys and self.chance(0.4):
            head.append(f"{keys[0][0]} AS win")
            columns.append(("win", "tstzrange"))
        if self.chance(0.06):
            head.append(self.fill(self.dice.choice(OVER), scope, 1, keys[0][0] if keys else "1") + " AS nr")
            columns.append(("nr", "bigint"))
        if self.chance(0.02):
            head.append(self.dice.choice(["ctid", "xmin", "tableoid"]) + " AS sys")
        distinct = self.dice.choice(["DISTINCT ", "DISTINCT ON (c0) "]) if self.chance(0.12) else ""
        return distinct + ", ".join(head), columns, ""

    def grouped(self, scope, keys):
        keys = list(keys) + [pair for pair in self.dice.sample(scope, min(len(scope), self.dice.randint(0, 2))) if pair[1] in CONSTANTS]
        if self.chance(0.1):
            keys.append((self.expression("text", scope, 2), "text"))
        head, columns = [], []
        for number, (key, kind) in enumerate(keys):
            shown, of = key, kind
            if kind == "tstzrange" and self.chance(0.7):
                shown, of = f"{self.dice.choice(['lower', 'lower', 'upper'])}({key})", "timestamptz"
            if self.chance(0.93):
                head.append(f"{shown} AS c{number}")
                columns.append((f"c{number}", of))
        for number in range(self.dice.randint(0 if head else 1, 3)):
            head.append(self.fill(self.dice.choice(ODD_AGGREGATES if self.chance(0.04) else AGGREGATES), scope, 1) + f" AS a{number}")
            columns.append((f"a{number}", "int"))
        if self.chance(0.06) and keys:
            head.append(f"row_number() OVER (PARTITION BY {keys[0][0]} ORDER BY count(*)) AS nr")
            columns.append(("nr", "bigint"))
        by = ", ".join(key for key, _ in keys)
        if by and self.chance(0.03):
            by = self.dice.choice([f"GROUPING SETS (({by}), ())", f"ROLLUP ({by})", f"CUBE ({by})"])
        tail = f" GROUP BY {by}" if by else ""
        if self.chance(0.15):
            tail += " HAVING " + self.dice.choice(["count(*) > 1", self.fill("sum({int}) > {int}", scope, 1), "max(ts) IS NULL"])
        return ", ".join(head), columns, tail

    def exists(self, scope):
        inner, name = [], self.alias()
        key = self.expression("text", scope, 0)
        time = self.expression("timestamptz", scope, 0)
        inner = [f"{name}.k = {key}", f"wmstream.watermark({name}.ts, {self.interval()})", f"{name}.ts BETWEEN {time} AND {time} + interval '5 s'", f"{name}.v > 0"]
        return f"{self.dice.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM r AS {name} WHERE {' AND '.join(p for p in inner if self.chance(0.8)) or 'true'})"

    def union(self, depth):
        one, columns = self.select(depth - 1)
        other = self.select(depth - 1)[0] if self.chance(0.3) else one.replace("events AS", "l AS") if self.chance(0.7) else one
        word = self.dice.choice(["UNION ALL"] * 5 + ["UNION", "EXCEPT", "INTERSECT ALL"])
        return f"({one}) {word} ({other})", columns

    def ending(self, columns):
        ends = ["ORDER BY 1", "LIMIT 3", "ORDER BY 1 DESC LIMIT 2", "OFFSET 1", "FOR UPDATE", "FOR SHARE SKIP LOCKED", "FETCH FIRST 1 ROWS WITH TIES", "LIMIT ALL", "WINDOW w2 AS (PARTITION BY 1)", "ORDER BY ctid"]
        return f" {self.dice.choice(ends)}" if self.chance(0.06) else ""

    def definition(self):
        sql, columns = self.select(self.dice.choice([0, 0, 1, 1, 2]))
        if self.chance(0.12):
            by = self.window_item([(c, t) for c, t in columns])[0] if any(t in ("timestamptz", "tstzrange") for _, t in columns) else None
            sql = f"SELECT lower(x0) AS d, count(*) AS n FROM ({sql}) q, {re.sub(' AS x[0-9]+$', ' AS x0', by)} GROUP BY x0" if by else f"SELECT count(*) AS n FROM ({sql}) q"
        elif self.chance(0.06):
            sql = f"WITH {'RECURSIVE ' if self.chance(0.2) else ''}q AS {self.dice.choice(['', 'MATERIALIZED ', 'NOT MATERIALIZED '])}({sql}) SELECT {self.dice.choice(['*', 'count(*) AS n', 'q.c0 AS c'])} FROM q"
        return sql


# ---------------------------------------------------------------- mutation

def tokens(text):
    return [found[1] for found in TOKEN.finditer(text) if found[1].strip()]


def join(parts):
    return " ".join(parts)


def groups(parts):
    """(begin, end) of balanced parentheses, end after the closing one."""
    opened, found = [], []
    for position, token in enumerate(parts):
        if token == "(":
            opened.append(position)
        elif token == ")" and opened:
            found.append((opened.pop(), position + 1))
    return found


class Mutation:
    """Seeds made odd."""

    def __init__(self, dice, seeds, of_tables):
        self.dice, self.seeds = dice, seeds
        self.growth = Growth(dice, of_tables)
        self.pool = sorted({t for s in seeds for t in tokens(s) if not t.startswith("'") and re.match(r"[A-Za-z_]", t)} | set(SPECIAL_TABLES) | {"DISTINCT", "ALL", "LATERAL", "ONLY", "random()", "now()"})

    def seed(self):
        return self.dice.choice(self.seeds)

    def definition(self):
        text = self.seed()
        for _ in range(self.dice.choice([1, 1, 1, 1, 2, 2, 3, 5])):
            text = self.dice.choice(self.STEPS)(self, text)
        return text

    def replace_token(self, text):
        parts = tokens(text)
        where = self.dice.randrange(len(parts))
        if parts[where].startswith("'"):
            parts[where] = self.growth.interval() if self.dice.random() < 0.7 else "'x'"
        elif re.match(r"[A-Za-z_]", parts[where]):
            parts[where] = self.dice.choice(self.pool)
        else:
            parts[where] = self.dice.choice([parts[where], "=", "<", "+", "0", ",", "-1"])
        return join(parts)

    def replace_interval(self, text):
        found = [m for m in re.finditer(r"'[^']*'", text)]
        if not found:
            return text
        one = self.dice.choice(found)
        return text[:one.start()] + self.dice.choice(INTERVALS + ODD_INTERVALS) + text[one.end():]

    def drop_token(self, text):
        parts = tokens(text)
        del parts[self.dice.randrange(len(parts))]
        return join(parts) or "SELECT 1"

    def double_or_swap(self, text):
        parts = tokens(text)
        a, b = self.dice.randrange(len(parts)), self.dice.randrange(len(parts))
        if self.dice.random() < 0.5:
            parts.insert(a, parts[a])
        else:
            parts[a], parts[b] = parts[b], parts[a]
        return join(parts)

    def replace_group(self, text):
        parts, other = tokens(text), tokens(self.seed())
        own, given = groups(parts), groups(other)
        if not own or not given:
            return text
        (a, b), (c, d) = self.dice.choice(own), self.dice.choice(given)
        return join(parts[:a] + other[c:d] + parts[b:])

    def wrap_group(self, text):
        parts = tokens(text)
        found = groups(parts)
        if not found:
            return text
        a, b = self.dice.choice(found)
        return join(parts[:a] + ["("] + self.dice.choice([["SELECT"], ["NOT"], ["DISTINCT"], ["ALL"], []]) + parts[a:b] + [")"] + parts[b:])

    def replace_table(self, text):
        names = "|".join(["events", "l", "r", "a", "b"])
        return re.sub(rf"\bFROM ({names})\b", lambda m: "FROM " + self.dice.choice([*SPECIAL_TABLES, "(SELECT * FROM events)", f"(SELECT DISTINCT * FROM {m[1]})", f"(SELECT * FROM {m[1]} LIMIT 3)"])
                      + ("" if re.match(r"\s+(AS\s+)?[a-z]\b", text[m.end():]) else f" AS {m[1]}"), text, count=1)

    def add_ending(self, text):
        return text + " " + self.dice.choice(["ORDER BY 1", "LIMIT 1", "OFFSET 1", "FOR UPDATE", "FOR SHARE", "HAVING count(*) > 1", "GROUP BY 1", "ORDER BY 1 LIMIT 2", "WINDOW w AS ()", "UNION ALL SELECT NULL", "EXCEPT SELECT 1", "; SELECT 1"])

    def add_condition(self, text):
        extra = self.dice.choice(["random() > 0.5", "wmstream.watermark(ts, '1 s')", "ts > now()", "xmin IS NOT NULL", "EXISTS (SELECT 1 FROM dim)", "k IN (SELECT k FROM dim)", "NOT EXISTS (SELECT 1 FROM r WHERE wmstream.watermark(r.ts, '1 s'))", "nextval('seq') > 0",
                                  "(SELECT true)", "true", "NULL", "volatile_twice(v) > 0", "count(*) > 1"])
        return re.sub(r"\bWHERE\b", lambda _: f"WHERE {extra} {self.dice.choice(['AND', 'AND', 'OR'])}", text, count=1)

    def add_source(self, text):
        extra = self.dice.choice(["dim", "generate_series(1, 2) AS g", "LATERAL (SELECT 1 AS one) lat", "(VALUES (1), (2)) AS val(x)", "wmstream.window(ts, '1 s') AS w9", "rows_of('a')", "events AS again", "LATERAL (SELECT * FROM dim WHERE dim.k = k LIMIT 1) AS d1"])
        return re.sub(r"\bFROM\b", f"FROM {extra}{self.dice.choice([',', ' CROSS JOIN'])}", text, count=1)

    def add_column(self, text):
        extra = self.dice.choice(["DISTINCT", "DISTINCT ON (1)", "random() AS rnd,", "1 AS one,", "NULL AS nul,", "count(*) OVER () AS ov,", "ROW(1, 2) AS pair,", "(SELECT max(rank) FROM dim) AS mx,", "now() AS at,", "generate_series(1, 2) AS gs,", "'unknown',", "ctid,"])
        return re.sub(r"\bSELECT\b", f"SELECT {extra}", text, count=1)

    def wrap(self, text):
        return self.dice.choice([
            "SELECT * FROM ({0}) q", "SELECT count(*) AS n FROM ({0}) q", "SELECT DISTINCT * FROM ({0}) q", "WITH q AS ({0}) SELECT * FROM q", "({0}) UNION ALL ({0})", "SELECT q.* FROM ({0}) q JOIN dim USING (k)",
            "SELECT q.*, row_number() OVER () FROM ({0}) q", "SELECT lower(z) AS z, count(*) AS n FROM ({0}) q, wmstream.window(q.w, '1 hour') AS z GROUP BY z", "WITH q AS ({0}), p AS (SELECT * FROM q) SELECT p.* FROM p, q",
            "SELECT * FROM dim WHERE EXISTS ({0})", "SELECT ({0}) AS x FROM events", "({0})", "SELECT * FROM events e1 LEFT JOIN LATERAL ({0}) q ON true WHERE wmstream.watermark(e1.ts, '1 s')", "TABLE events", "VALUES (1)"]).format(text)

    def combine(self, text):
        other = self.seed()
        return self.dice.choice([f"{text} UNION ALL {other}", f"SELECT * FROM ({text}) q1, ({other}) q2", f"SELECT q1.* FROM ({text}) q1 JOIN ({other}) q2 USING (w)", f"{text} UNION {other}", f"SELECT q1.* FROM ({text}) q1 LEFT JOIN ({other}) q2 ON q1.k = q2.k AND q1.w = q2.w"])

    STEPS = [replace_token, replace_token, drop_token, double_or_swap, replace_group, wrap_group, combine, add_ending,
             *[replace_interval, replace_table, add_condition, add_source, add_column, wrap] * 2]


# ---------------------------------------------------------------- options

def odd_options(dice):
    """Arguments of create_stream by name; most definitions have none but a mode."""
    choices = {
        "output_mode": ["append"] * 26 + ["update"] * 6 + ["complete"] * 6 + ["Append", ""],
        "allowed_lateness": ["0"] * 6 + ["5 s", "-1 s", "1 month"],
        "trigger_interval": ["0"] * 6 + ["10 ms", "1 year"], "idle_timeout": [None] * 6 + ["1 s", "0", "-1 s"], "close_when_idle": [None] * 6 + ["true"],
        "max_future": [None] * 6 + ["1 day", "0"], "watermark_policy": ["min"] * 6 + ["max", "average"], "on_change": ["ignore"] * 7 + ["shout"], "on_error": ["stop"] * 5 + ["skip", "skip", "go"],
        "late_table": [None] * 8 + ["late_rows", "dim", "no_schema.late", "seen", ""], "start_from": ["now"] * 8 + ["yesterday"]}
    options = {"output_mode": dice.choice(choices["output_mode"])}
    for name in [n for n in choices if n != "output_mode" and dice.random() < 0.03]:
        value = dice.choice(choices[name])
        if value is not None:
            options[name] = value
    return options


def odd_result(dice):
    return dice.choice(["made"] * 150 + ["dim", "events", "seen", "nothing", "part", "seq", "no_schema.x", "pg_catalog.x", '"', "", "Made \"odd", "wmstream.x", "pg_temp.x", "fits", "fits"])


def generate(seed, count):
    """(result, query, options), count times."""
    of_cases = cases()
    of_tables, seeds = tables(of_cases), [case["query"] for case in of_cases]
    for number in range(count):
        dice = random.Random(f"{seed} {number}")
        maker = Growth(dice, of_tables) if dice.random() < 0.55 else Mutation(dice, seeds, of_tables)
        yield odd_result(dice), maker.definition(), odd_options(dice)


def main():
    parser = argparse.ArgumentParser(description="Print odd definitions.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("count", type=int, nargs="?", default=10)
    given = parser.parse_args()
    for result, query, options in generate(given.seed, given.count):
        print(f"{result} {options}\n    {query}")


if __name__ == "__main__":
    main()
