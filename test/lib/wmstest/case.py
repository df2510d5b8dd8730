"""One conformance case against one database.

Owns what a step means: test/conformance/README.md is its description. A CaseRun makes a schema, runs the case in it and
raises Failure at the first thing that is not as expected; cleanup() then removes everything again. Where the case runs, and
how that server is restarted or killed, is the business of the site (runner.py) that is given to it.
"""
import json
import random
import re
import time

from .pq import PgError
from .server import ServerError
from .values import differences, read, read_rows, show

RESULT = "result"
WAIT_PATIENCE = 5                                                # seconds that checks after a wait step may take to come true
REASON_COUNTERS = {"late": "late_rows", "no_time": "no_time_rows", "future": "future_rows"}
NO_REFUSAL = re.compile(r"XX|08|57|58|53")                        # SQLSTATE classes that are accidents, no refusals

RELATIONS = r"""SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname !~ '^pg_(toast|temp|catalog)' AND n.nspname <> 'information_schema'"""
WORKERS = """SELECT pid FROM pg_catalog.pg_stat_activity
             WHERE backend_type LIKE 'wmstream%' AND datname = pg_catalog.current_database()"""
LATE_DIFFERENCE = """
WITH want AS (SELECT e->>'reason' AS reason, to_jsonb(jsonb_populate_record(NULL::{source}, e->'row')) AS r FROM jsonb_array_elements($1::jsonb) e),
     got AS (SELECT reason, to_jsonb(jsonb_populate_record(NULL::{source}, row_data)) AS r FROM {late}
             WHERE stream = '{result}'::regclass AND source::regclass::text = $2)
SELECT 'missing', reason, r::text FROM (TABLE want EXCEPT ALL TABLE got) m
UNION ALL SELECT 'too many', reason, r::text FROM (TABLE got EXCEPT ALL TABLE want) s"""
LATE_STRANGERS = """
SELECT source::regclass::text, reason, error, row_data::text FROM {late}
WHERE stream = '{result}'::regclass AND (error IS NOT NULL OR source IS NULL OR source::regclass::text <> ALL ($1::text[]))"""


class Failure(Exception):
    """Where a case went wrong, and how."""

    def __init__(self, place, text):
        super().__init__(f"{place}: {text}")


class Mismatch(Exception):
    """A check that did not come true; whoever catches it knows the place."""


def quote(name):
    return '"' + name.replace('"', '""') + '"'


def cell(value):
    """A cell of an insert step as PostgreSQL's input text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "{" + ",".join("NULL" if v is None else json.dumps(str(cell(v))) for v in value) + "}"
    return value if value is None else str(value)


def tables_scanned(plan, found):
    """The tables that a plan reads as streams, not as static tables."""
    if isinstance(plan, dict):
        if plan.get("op") == "scan":
            found.add(plan["table"])
        for part in plan.values():
            tables_scanned(part, found)
    elif isinstance(plan, list):
        for part in plan:
            tables_scanned(part, found)
    return found


class CaseRun:
    """A case on its way through its steps."""

    def __init__(self, case, site, schema, settings):
        self.case, self.site, self.schema, self.settings = case, site, schema, settings
        self.db = site.connection
        self.sources = case["sources"]
        self.late_table = case.get("options", {}).get("late_table")
        self.patience = 0
        self.role = None
        self.rng = random.Random(case["name"])

    # ---- the whole

    def run(self):
        try:
            self.set_up()
        except (PgError, KeyError) as error:
            raise Failure("setup", error) from None
        if "refused" in self.case:
            return self.refused()
        try:
            self.create_stream()
        except PgError as error:
            raise Failure("create_stream", error) from None
        for number, step in enumerate(self.case["steps"]):
            kind = next((k for k in step if k in STEPS), "unknown")
            try:
                STEPS[kind](self, step.get(kind), number)
            except (PgError, ServerError, Mismatch, ValueError) as error:
                raise Failure(f"step {number} {kind}", error) from None
            except KeyError as error:
                raise Failure(f"step {number} {kind}", f"no {error}") from None

    def set_up(self):
        self.db.execute(f"CREATE SCHEMA {quote(self.schema)}")
        self.session()
        for table, columns in self.sources.items():
            self.db.execute(f"CREATE TABLE {quote(table)} ({', '.join(f'{quote(c)} {t}' for c, t in columns.items())})")
        for statement in self.case.get("setup", []):
            self.db.execute(statement)
        if any("ROW LEVEL SECURITY" in s.upper() for s in self.case.get("setup", [])):
            self.become_plain_owner()
        if self.settings.source == "queue":
            for table in sorted(tables_scanned(self.case["plan"], set()) if "plan" in self.case else self.sources):
                self.db.execute("SELECT wmstream.create_queue($1::regclass)", [quote(table)])

    def session(self):
        """Settings of every session of the case."""
        self.db.execute(f"SET search_path = {quote(self.schema)}; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'")

    def become_plain_owner(self):
        """The sources go to a role that is no superuser, and the stream is created by it."""
        self.role = quote(f"plain_{self.schema}_{self.db.pid}")
        self.db.execute(f"CREATE ROLE {self.role}")
        for table in self.sources:
            self.db.execute(f"ALTER TABLE {quote(table)} OWNER TO {self.role}")
        self.db.execute(f"GRANT USAGE, CREATE ON SCHEMA {quote(self.schema)} TO {self.role}")
        self.db.execute(f"GRANT USAGE ON SCHEMA wmstream TO {self.role}")
        for signature, in self.db.execute("SELECT oid::regprocedure FROM pg_catalog.pg_proc "
                                          "WHERE pronamespace = 'wmstream'::regnamespace AND proname = 'create_stream'"):
            self.db.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {self.role}")
        self.db.execute(f"SET ROLE {self.role}")

    def create_stream(self):
        options = {"output_mode": self.case.get("output_mode", "append"), **self.case.get("options", {})}
        named = "".join(f", {name} => ${n}" for n, name in enumerate(options, 3))
        self.db.execute(f"SELECT wmstream.create_stream($1, $2{named})", [RESULT, self.case["query"], *map(cell, options.values())])

    def cleanup(self):
        """Drops stream and schema; what a failed cleanup says is a failure of the case."""
        try:
            self.db.execute("RESET ROLE; DISCARD TEMP")
            if self.db.value("SELECT to_regclass($1)", [RESULT]) and "refused" not in self.case:
                self.db.execute(f"SELECT wmstream.drop_stream('{RESULT}', true)")
            self.db.execute(f"DROP SCHEMA {quote(self.schema)} CASCADE")
            if self.role:
                self.db.execute(f"DROP OWNED BY {self.role}; DROP ROLE {self.role}")
        except PgError as error:
            raise Failure("cleanup", error) from None
        left = self.db.value("SELECT count(*) FROM wmstream.streams")
        if left != "0":
            raise Failure("cleanup", f"expected no stream after drop_stream and DROP SCHEMA, got {left}")

    # ---- refused cases

    def refused(self):
        """create_stream must fail, for the right reason, and leave nothing behind."""
        relations, workers = self.column(RELATIONS), self.column(WORKERS)
        rule = self.case["refused"].get("rule", "")
        try:
            self.create_stream()
        except PgError as error:
            self.check_reason(error)
        else:
            raise Failure("create_stream", f"expected an error ({rule}) got none")
        if self.role:
            self.db.execute("RESET ROLE")
        new = self.column(RELATIONS) - relations
        if new:
            raise Failure("create_stream", f"expected nothing left behind, got {', '.join(sorted(new))}")
        if self.column("SELECT stream::text FROM wmstream.streams"):
            raise Failure("create_stream", "expected no stream left behind, got one in wmstream.streams")
        try:
            self.settle(lambda: self.column(WORKERS) - workers and "expected no worker left behind, got one", 5)
        except Mismatch as error:
            raise Failure("create_stream", error) from None

    def column(self, sql):
        return {row[0] for row in self.db.execute(sql)}

    def check_reason(self, error):
        text = " ".join(filter(None, (error.message, error.detail, error.hint)))
        missing = error.sqlstate == "42883" and "create_stream" in text
        if missing or NO_REFUSAL.match(error.sqlstate or "XX"):
            raise Failure("create_stream", f"expected a refusal, got the error {error}")
        wanted = self.settings.reasons.get(self.case["name"])
        if wanted and not re.search(wanted, text, re.IGNORECASE):
            raise Failure("create_stream", f"expected an error that names the reason (/{wanted}/), got {error}")

    # ---- steps that do something

    def insert(self, tables, number):
        self.patience = 0
        self.db.execute("BEGIN")
        for table, rows in tables.items():
            for part in [[row] for row in rows] if self.settings.split else [rows] if rows else []:
                self.insert_rows(table, part)
        self.db.execute("COMMIT")
        if self.settings.crash_random and "restart" in self.steps_until_insert(number):
            time.sleep(self.rng.uniform(0, 0.03))                          # not waiting: the moment of the crash is chosen
            self.site.crash("server")
            self.session()
        self.wait_for_stream()

    def insert_rows(self, table, rows):
        columns = self.sources[table]
        numbers = iter(range(1, 1 + len(columns) * len(rows)))
        values = ", ".join("(" + ", ".join(f"${next(numbers)}::{t}" for t in columns.values()) + ")" for _ in rows)
        self.db.execute(f"INSERT INTO {quote(table)} ({', '.join(map(quote, columns))}) VALUES {values}",
                        [cell(v) for row in rows for v in self.whole(row, columns)])

    @staticmethod
    def whole(row, columns):
        if len(row) != len(columns):
            raise ValueError(f"row {json.dumps(row)} does not have the table's {len(columns)} columns")
        return row

    def steps_until_insert(self, number):
        """Kinds of the steps after step `number`, up to the next insert."""
        kinds = []
        for step in self.case["steps"][number + 1:]:
            if "insert" in step:
                break
            kinds += step
        return kinds

    def wait_for_stream(self):
        self.db.execute(f"SELECT wmstream.wait('{RESULT}'::regclass, '30 seconds'::interval)")

    def pause(self, duration, _):
        seconds = float(self.db.value("SELECT extract(epoch FROM $1::interval)", [duration]))
        time.sleep(seconds)                                                # what this step is: time that passes
        self.wait_for_stream()
        self.patience = WAIT_PATIENCE

    def advance_watermark(self, upto, _):
        self.patience = 0
        self.db.execute(f"SELECT wmstream.advance_watermark('{RESULT}'::regclass, $1::timestamptz)", [upto])
        self.wait_for_stream()

    def restart(self, _, __):
        """After a restart all must be there at once. After a crash the results of the last moment may have to be made again."""
        self.patience = 0
        if self.settings.crash:
            self.site.crash(self.site.next_victim())
        else:
            self.site.restart()
        self.session()
        if self.settings.crash:
            self.wait_for_stream()

    # ---- steps that check

    @staticmethod
    def settle(problem, seconds):
        """problem() must become false within so many seconds (0: at once)."""
        deadline = time.monotonic() + seconds
        while True:
            found = problem()
            if not found:
                return
            if time.monotonic() >= deadline:
                raise Mismatch(found)
            time.sleep(0.05)

    def expect(self, rows, _):
        self.settle(lambda: self.result_problem(rows), self.patience)

    def result_problem(self, rows):
        types = [t for t, in self.db.execute(f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{RESULT}'::regclass "
                                             "AND attnum > 0 AND NOT attisdropped ORDER BY attnum")]
        expected, got = read_rows(rows, types), read_rows(self.db.execute(f"TABLE {RESULT}"), types)
        missing, surplus = differences(expected, got)
        return (missing or surplus) and f"expected {show(expected)} got {show(got)}"

    def watermark(self, expected, _):
        def problem():
            got = self.statistics("watermark")[0]
            want = read(expected, "timestamptz")
            return want != read(got, "timestamptz") and f"expected {json.dumps(expected)} got {json.dumps(got)}"
        self.settle(problem, self.patience)

    def statistics(self, columns):
        rows = self.db.execute(f"SELECT {columns} FROM wmstream.stat_streams WHERE stream = '{RESULT}'::regclass")
        if len(rows) != 1:
            raise Mismatch(f"expected one row of this stream in stat_streams, got {len(rows)}")
        return rows[0]

    def expect_late(self, entries, _):
        self.settle(lambda: (self.late_table and self.late_rows_problem(entries)) or self.late_counts_problem(entries), self.patience)

    def late_counts_problem(self, entries):
        got = dict(zip(REASON_COUNTERS.values(), self.statistics(", ".join(REASON_COUNTERS.values()))))
        want = {counter: str(sum(e["reason"] == reason for e in entries)) for reason, counter in REASON_COUNTERS.items()}
        return want != got and f"expected {json.dumps(want)} got {json.dumps(got)}"

    def late_rows_problem(self, entries):
        names = {"late": quote(self.late_table), "result": RESULT}
        known = cell([quote_if_needed(self.db, t) for t in self.sources])
        problems = [["unexpected", *row] for row in self.db.execute(LATE_STRANGERS.format(**names), [known])]
        for table, columns in self.sources.items():
            wanted = [{"reason": e["reason"], "row": dict(zip(columns, e["row"]))} for e in entries if e["source"] == table]
            problems += [[what, table, *rest] for what, *rest in self.db.execute(
                LATE_DIFFERENCE.format(source=quote(table), **names), [json.dumps(wanted), quote_if_needed(self.db, table)])]
        return problems and f"expected {json.dumps(entries)} got {'; '.join(' '.join(map(str, p)) for p in problems)}"

    def unknown(self, _, __):
        raise Mismatch("no step of a kind that is known")


def quote_if_needed(db, name):
    return db.value("SELECT quote_ident($1)", [name])


STEPS = {"insert": CaseRun.insert, "expect": CaseRun.expect, "expect_late": CaseRun.expect_late, "watermark": CaseRun.watermark,
         "wait": CaseRun.pause, "advance_watermark": CaseRun.advance_watermark, "restart": CaseRun.restart, "unknown": CaseRun.unknown}
