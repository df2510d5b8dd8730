"""What the crash test runs: two source tables, streams over them, and the oracle.

One stream reads another one's result: what is right for it is its query over that result, which is compared by itself.

Every row belongs to an *era* and every stream groups by it, so that one era can be compared without reading the history
before it. A stream's query is kept as text with {event} and {visit} in the places of its sources: with the table's name it is
the stream, with a part of the table it is the batch query that says what is right (sessions, which a query run by hand does not
merge, have one of their own beside it). Nothing is late here by the choice of event times (crash_load.Clock), so result and batch
query must agree row for row, the same number of times.
"""
from collections import namedtuple

QUEUES = False                                                   # the source tables are queues
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
# A queue loses its rows; what it ever had is in a copy.
QUEUE = """
CREATE TABLE {0}_copy (LIKE {0});
CREATE FUNCTION copy_{0}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.{0}_copy VALUES ({1}); RETURN NULL; END $$;
CREATE TRIGGER copy AFTER INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION copy_{0}();
SELECT wmstream.create_queue('{0}');
"""
COLUMNS = {"event": "new.id, new.era, new.ts, new.device, new.kind, new.amount, new.note", "visit": "new.id, new.era, new.at, new.page, new.ms"}
WORKER = """SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname = pg_catalog.current_database()"""
TABLES_IN_USE = """SELECT c.oid::regclass FROM pg_catalog.pg_class c
                   WHERE relkind = 'r' AND relnamespace IN ('public'::regnamespace, 'wmstream'::regnamespace) AND relname NOT LIKE 'scratch%' ORDER BY relname"""
AUDIT_TRIGGER = "CREATE TRIGGER audit AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION write_audit()"

Stream = namedtuple("Stream", "name mode owner sources query batch", defaults=[None])   # owner None: the superuser; batch None: the query


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

# ---- sliding windows that share panes, sessions, DISTINCT

GAP = "10 minutes"


def merged(rows, key, aggregates):
    """Sessions by hand: rows of a key begin a new one where the last is further away than the gap."""
    return f"""
        SELECT era, min(t) AS start, max(t) + interval '{GAP}' AS finish, k, {aggregates}
        FROM  (SELECT *, sum(first) OVER (PARTITION BY era, k ORDER BY t, id) AS number
               FROM (SELECT *, CASE WHEN t <= lag(t) OVER (PARTITION BY era, k ORDER BY t, id) + interval '{GAP}' THEN 0 ELSE 1 END AS first
                     FROM (SELECT *, {key} AS k FROM ({rows}) r) r) r) r
        GROUP BY era, k, number"""


STREAMS += [
    Stream("hops", "append", None, ["event"], f"""
        SELECT era, lower(w) AS start, kind, count(*) AS n, sum(amount) AS total, max(id) AS last_id, avg(device) AS mean
        FROM {{event}}, wmstream.window(ts, '1 hour', '10 minutes') AS w WHERE {watermarked('ts')}
        GROUP BY era, w, kind"""),
    Stream("stays", "append", OWNER, ["event"], f"""
        SELECT era, lower(s) AS start, upper(s) AS finish, device AS k, count(*) AS n, sum(amount) AS total, min(id) AS first_id
        FROM {{event}}, wmstream.session_window(ts, '{GAP}') AS s WHERE {watermarked('ts')}
        GROUP BY era, s, device""",
           merged("SELECT *, ts AS t FROM {event}", "device", "count(*) AS n, sum(amount) AS total, min(id) AS first_id")),
    Stream("listed_stays", "append", None, ["visit"], f"""
        SELECT era, lower(s) AS start, upper(s) AS finish, page AS k, array_agg(id ORDER BY id) AS ids, count(DISTINCT ms) AS different
        FROM {{visit}}, wmstream.session_window(at, '{GAP}') AS s WHERE {watermarked('at')}
        GROUP BY era, s, page""",
           merged("SELECT *, at AS t FROM {visit}", "page", "array_agg(id ORDER BY id) AS ids, count(DISTINCT ms) AS different")),
    Stream("once_per_window", "append", OWNER, ["event"], f"""
        SELECT DISTINCT era, lower(w) AS start, device, kind FROM {{event}}, wmstream.window(ts, '10 minutes') AS w
        WHERE {watermarked('ts')}"""),
    Stream("once_for_ever", "append", None, ["event"], "SELECT DISTINCT era, device, kind FROM {event}"),
]

# ---- joins and chains

BOTH = f"{watermarked('e.ts')} AND {watermarked('v.at AT TIME ZONE $$UTC$$')}"
NEAR = """v.era = e.era AND v.page = '/' || chr(97 + e.device % 8) AND v.ms % 10 = e.device % 10
        AND v.at AT TIME ZONE $$UTC$$ BETWEEN e.ts - interval '3 minutes' AND e.ts + interval '10 minutes'"""
FOUND = f"EXISTS (SELECT FROM {{visit}} v WHERE {NEAR} AND v.ms < 4000 AND {watermarked('v.at AT TIME ZONE $$UTC$$')})"
ONE_STREAM = f"""SELECT era, ts AS t, coalesce(kind, '-') AS k FROM {{event}} WHERE {watermarked('ts')}
                 UNION ALL SELECT era, at AT TIME ZONE 'UTC', page FROM {{visit}} WHERE {watermarked('at AT TIME ZONE $$UTC$$')}"""

STREAMS += [
    Stream("pairs", "append", None, ["event", "visit"], f"""
        SELECT e.era, e.id, v.id AS other, e.note FROM {{event}} e JOIN {{visit}} v ON {NEAR} WHERE {BOTH}"""),
    Stream("perhaps", "append", OWNER, ["event", "visit"], f"""
        SELECT e.era, e.id, v.id AS other, v.ms FROM {{event}} e LEFT JOIN {{visit}} v ON {NEAR} AND v.ms % 7 <> e.device % 7 WHERE {BOTH}"""),
    Stream("either", "append", None, ["event", "visit"], f"""
        SELECT coalesce(e.era, v.era) AS era, e.id, v.id AS other FROM {{event}} e FULL JOIN {{visit}} v ON {NEAR} AND e.kind <> 'a' WHERE {BOTH}"""),
    Stream("found", "append", OWNER, ["event", "visit"], f"SELECT e.era, e.id FROM {{event}} e WHERE {watermarked('e.ts')} AND {FOUND}"),
    Stream("missed", "append", None, ["event", "visit"], f"SELECT e.era, e.id FROM {{event}} e WHERE {watermarked('e.ts')} AND NOT {FOUND}"),
    Stream("pairs_per_hour", "append", None, ["event", "visit"], f"""
        SELECT e.era, lower(w) AS start, count(*) AS n, count(v.id) AS met, sum(v.ms) AS ms
        FROM {{event}} e LEFT JOIN {{visit}} v ON {NEAR}, wmstream.window(e.ts, '1 hour') AS w WHERE {BOTH} GROUP BY e.era, w"""),
    Stream("devices_per_window", "append", None, ["event"], f"""
        SELECT era, lower(w) AS start, count(*) AS devices, sum(device) AS total
        FROM (SELECT DISTINCT era, w, device FROM {{event}}, wmstream.window(ts, '10 minutes') AS w WHERE {watermarked('ts')}) d GROUP BY era, w"""),
    Stream("busiest", "append", OWNER, ["event"], f"""
        SELECT era, lower(h) AS start, max(n) AS most, count(*) AS groups
        FROM (SELECT era, w, device, count(*) AS n FROM {{event}}, wmstream.window(ts, '5 minutes') AS w WHERE {watermarked('ts')} GROUP BY era, w, device) m,
             wmstream.window(m.w, '1 hour') AS h GROUP BY era, h"""),
    Stream("all_stays", "append", None, ["event", "visit"], f"""
        SELECT era, lower(s) AS start, upper(s) AS finish, k, count(*) AS n
        FROM (SELECT DISTINCT era, t, k FROM ({ONE_STREAM}) u) d, wmstream.session_window(t, '{GAP}') AS s
        GROUP BY era, s, k""",
           merged(f"SELECT DISTINCT era, t, k AS word, 0 AS id FROM ({ONE_STREAM}) u", "word", "count(*) AS n")),
]

# ---- one over the result of another

STREAMS += [
    Stream("relayed", "append", None, ["per_device"], """
        SELECT era, start, device, n, total, last_id - first_id AS span FROM {per_device} WHERE n <> 2"""),
]

WITH_WATERMARK = [stream for stream in STREAMS if stream.name not in ("copied", "once_for_ever", "relayed")]
OVER_STREAMS = [stream for stream in STREAMS if stream.sources == ["per_device"]]


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
    for table, columns in COLUMNS.items() if QUEUES else ():
        db.execute(QUEUE.format(table, columns))
    if QUEUES:
        db.execute("SELECT wmstream.create_queue('noise', false)")
    for signature, in db.execute("SELECT oid::regprocedure FROM pg_catalog.pg_proc "
                                 "WHERE pronamespace = 'wmstream'::regnamespace AND proname = 'create_stream'"):
        db.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {OWNER}")
    for stream in STREAMS:
        if QUEUES and stream in OVER_STREAMS:
            db.execute("SELECT wmstream.create_queue($1::regclass)", stream.sources)
        create(db, stream)
    db.execute(AUDIT_TRIGGER)


# ---------------------------------------------------------------- the oracle

def all_rows(source):
    """Where all rows are that the source ever had."""
    return f"{source}_copy" if QUEUES and source in COLUMNS else source


def columns_of(db, stream):
    """Without the one that a queue has."""
    return db.value("""SELECT pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', ' ORDER BY attnum) FROM pg_catalog.pg_attribute
                       WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'wm_xid'""", [stream.name])


def batch_query(stream, era):
    """The stream's query over what its sources hold now; era None: all of them. Rows without a finite time are no rows of a stream
    with a watermark."""
    sources, tables = {}, []
    for source in stream.sources:
        conditions = ["true"] if era is None else [f"era = {era}"]
        if source == "event" and stream in WITH_WATERMARK:
            conditions.append("isfinite(ts)")
        sources[source] = f"{source}_here"
        tables.append(f"{source}_here AS (SELECT * FROM {all_rows(source)} WHERE {' AND '.join(conditions)})")
    return f"WITH {', '.join(tables)} {(stream.batch or stream.query).format(**sources)}"


def difference(db, stream, era):
    """What is wrong with the stream's result, as text; None if it is right."""
    here = "true" if era is None else f"era = {era}"
    return disagreement(db, batch_query(stream, era), f"SELECT {columns_of(db, stream)} FROM {stream.name} WHERE {here}")


def audit_difference(db, era):
    """The trigger of the result ran once for each row that is there, and for no other."""
    here = "true" if era is None else f"era = {era}"
    return disagreement(db, f"SELECT era, start, page, n, '{OWNER}' FROM audited WHERE {here}", f"SELECT * FROM audit WHERE {here}")


def disagreement(db, want, got):
    """Rows of one query that the other does not have, both ways, each as often as it is missing."""
    db.execute("SET enable_nestloop = off")                        # nothing is known yet of an era's rows
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
    rows = without_time = 0
    for source in stream.sources:
        no_time = "NOT coalesce(isfinite(ts), false)" if source == "event" and stream in WITH_WATERMARK else "false"
        (some, some_without_time), = db.execute(f"SELECT count(*), count(*) FILTER (WHERE {no_time}) FROM {all_rows(source)}")
        rows, without_time = rows + int(some), without_time + int(some_without_time)
    (counted, late, counted_without_time), = db.execute(
        "SELECT input_rows, late_rows, no_time_rows FROM wmstream.stat_streams WHERE stream = $1::regclass", [stream.name])
    return int(counted) - rows, int(late), int(counted_without_time) - without_time
