"""What the crash test runs: two source tables, streams over them, and the oracle.

Every row belongs to an *era* and every stream groups by it, so that one era can be compared without reading the history
before it. A stream's query is kept as text with {event} and {visit} in the places of its sources: with the table's name it is
the stream, with a subquery over the table it is the batch query that says what is right. Nothing is late here by the choice of
event times (crash_load.Clock), so result and batch query must agree row for row, the same number of times.
"""
from collections import namedtuple

DELAY = "6 hours"
OWNER = "crash_owner"                                            # a plain role; the other streams belong to the superuser

TABLES = """
CREATE TABLE event (id bigint PRIMARY KEY, era int NOT NULL, ts timestamptz, device int NOT NULL, kind text, amount numeric(12,2), note text);
CREATE TABLE visit (id bigint PRIMARY KEY, era int NOT NULL, at timestamp NOT NULL, page text NOT NULL, ms int);
CREATE TABLE noise (id bigint GENERATED ALWAYS AS IDENTITY, filler text);
CREATE TABLE audit (era int, start timestamp, page text, n bigint, written_by text);
GRANT SELECT ON event, visit TO crash_owner;
GRANT INSERT, SELECT ON audit TO crash_owner;
GRANT USAGE, CREATE ON SCHEMA public TO crash_owner;
GRANT USAGE ON SCHEMA wmstream TO crash_owner;
CREATE FUNCTION write_audit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.audit VALUES (new.era, new.start, new.page, new.n, current_user); RETURN NULL; END $$;
"""
WORKER = """SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname = pg_catalog.current_database()"""
TABLES_IN_USE = """SELECT c.oid::regclass FROM pg_catalog.pg_class c
                   WHERE relkind = 'r' AND relnamespace IN ('public'::regnamespace, 'wmstream'::regnamespace) ORDER BY relname"""
AUDIT_TRIGGER = "CREATE TRIGGER audit AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION write_audit()"

Stream = namedtuple("Stream", "name mode owner sources query")   # owner None: the superuser


def watermarked(column):
    return f"wmstream.watermark({column}, '{DELAY}')"


STREAMS = [
    Stream("per_device", "append", None, ["event"], f"""
        SELECT era, lower(w) AS start, device, count(*) AS n, sum(amount) AS total, min(id) AS first_id, max(id) AS last_id,
               count(*) FILTER (WHERE kind = 'a') AS n_a, avg(amount) AS mean
        FROM {{event}}, wmstream.window(ts, '10 minutes') AS w WHERE {watermarked('ts')}
        GROUP BY era, w, device"""),
    Stream("kinds", "append", OWNER, ["event"], f"""
        SELECT era, lower(w) AS start, kind, array_agg(id ORDER BY id DESC) AS ids, count(DISTINCT device) AS devices,
               string_agg(left(note, 6), ',' ORDER BY id) AS notes
        FROM {{event}}, wmstream.window(ts, '1 hour') AS w WHERE {watermarked('ts')}
        GROUP BY era, w, kind"""),
    Stream("latest", "update", OWNER, ["event"], f"""
        SELECT era, lower(w) AS start, upper(w) AS finish, device, count(*) AS n, sum(amount) AS total, max(kind) AS last_kind
        FROM {{event}}, wmstream.window(ts, '15 minutes') AS w WHERE {watermarked('ts')} AND device < 40
        GROUP BY era, w, device HAVING count(*) % 5 <> 0"""),
    Stream("spread", "update", None, ["event"], f"""
        SELECT era, lower(w) AS start, count(*) AS n, array_agg(DISTINCT device ORDER BY device) AS devices,
               percentile_disc(0.5) WITHIN GROUP (ORDER BY amount) AS median, max(length(note)) AS longest
        FROM {{event}}, wmstream.window(ts, '1 hour') AS w WHERE {watermarked('ts')}
        GROUP BY era, w"""),
    Stream("copied", "append", None, ["event"], """
        SELECT id, era, ts, device * 2 AS twice, md5(note) AS note_hash, length(note) AS note_length
        FROM {event} WHERE device % 3 <> 0"""),
    Stream("audited", "append", OWNER, ["visit"], f"""
        SELECT era, lower(w) AS start, page, count(*) AS n, sum(ms) AS total_ms, min(ms) AS least, bool_or(ms IS NULL) AS some_unknown
        FROM {{visit}}, wmstream.window(at, '10 minutes') AS w WHERE {watermarked('at')}
        GROUP BY era, w, page"""),
]
WITH_WINDOWS = [stream for stream in STREAMS if stream.name != "copied"]


def create(db, stream):
    """Makes the stream as its owner. One statement: nothing may have been written before it in its transaction."""
    if stream.owner:
        db.execute(f"SET ROLE {stream.owner}")
    sources = {source: source for source in stream.sources}
    db.execute("SELECT wmstream.create_stream($1, $2, output_mode => $3)", [stream.name, stream.query.format(**sources), stream.mode])
    db.execute("RESET ROLE")


def set_up(db):
    """Tables, role, streams; db is a superuser's connection to a database with the extension."""
    db.execute(f"CREATE ROLE {OWNER} LOGIN")
    db.execute(TABLES)
    for signature, in db.execute("SELECT oid::regprocedure FROM pg_catalog.pg_proc "
                                 "WHERE pronamespace = 'wmstream'::regnamespace AND proname = 'create_stream'"):
        db.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {OWNER}")
    for stream in STREAMS:
        create(db, stream)
    db.execute(AUDIT_TRIGGER)


# ---------------------------------------------------------------- the oracle

def batch_query(stream, era):
    """The stream's query over what its sources hold now; era None: all of them. Rows without a finite time make no window."""
    sources = {}
    for source in stream.sources:
        conditions = ["true"] if era is None else [f"era = {era}"]
        if source == "event" and stream in WITH_WINDOWS:
            conditions.append("isfinite(ts)")
        sources[source] = f"(SELECT * FROM {source} WHERE {' AND '.join(conditions)}) AS {source}"
    return stream.query.format(**sources)


def difference(db, stream, era):
    """What is wrong with the stream's result, as text; None if it is right."""
    here = "true" if era is None else f"era = {era}"
    return disagreement(db, batch_query(stream, era), f"SELECT * FROM {stream.name} WHERE {here}")


def audit_difference(db, era):
    """The trigger of the result ran once for each row that is there, and for no other."""
    here = "true" if era is None else f"era = {era}"
    return disagreement(db, f"SELECT era, start, page, n, '{OWNER}' FROM audited WHERE {here}", f"SELECT * FROM audit WHERE {here}")


def disagreement(db, want, got):
    """Rows of one query that the other does not have, both ways, each as often as it is missing."""
    rows = db.execute(f"""
        WITH want AS ({want}), got AS ({got}),
             missing AS (SELECT m::text AS row FROM (TABLE want EXCEPT ALL TABLE got) m),
             surplus AS (SELECT s::text AS row FROM (TABLE got EXCEPT ALL TABLE want) s)
        SELECT (SELECT count(*) FROM want), (SELECT count(*) FROM missing), (SELECT count(*) FROM surplus),
               (SELECT string_agg(left(row, 150), ' ') FROM (SELECT row FROM missing ORDER BY row LIMIT 3) r),
               (SELECT string_agg(left(row, 150), ' ') FROM (SELECT row FROM surplus ORDER BY row LIMIT 3) r)""")
    wanted, missing, surplus, some_missing, some_surplus = rows[0]
    if missing == surplus == "0":
        return None
    return f"of {wanted} rows {missing} missing ({some_missing or ''}), {surplus} too many ({some_surplus or ''})"


def counter_gap(db, stream):
    """Counters are durable with the rows they count: every row of the source was counted once, none was late. By how much
    input_rows, late_rows and no_time_rows are wrong; all 0 when all is well."""
    source, = stream.sources
    no_time = "NOT coalesce(isfinite(ts), false)" if source == "event" and stream in WITH_WINDOWS else "false"
    (rows, without_time), = db.execute(f"SELECT count(*), count(*) FILTER (WHERE {no_time}) FROM {source}")
    (counted, late, counted_without_time), = db.execute(
        "SELECT input_rows, late_rows, no_time_rows FROM wmstream.stat_streams WHERE stream = $1::regclass", [stream.name])
    return int(counted) - int(rows), int(late), int(counted_without_time) - int(without_time)
