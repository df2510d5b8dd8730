-- A stream is its owner's: what others may do and see, and what its code may.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
GRANT USAGE ON SCHEMA oracle TO PUBLIC;

CREATE ROLE regress_owner;
CREATE ROLE regress_member IN ROLE regress_owner;
CREATE ROLE regress_reader;
CREATE ROLE regress_monitor IN ROLE pg_monitor;
CREATE ROLE regress_nobody;
CREATE TABLE secret (ts timestamptz, k text, v int);
CREATE TABLE readable (ts timestamptz, k text, v int);
GRANT SELECT ON readable TO regress_owner;
GRANT CREATE ON SCHEMA public TO regress_owner;
\set query 'SELECT lower(w) AS hour, k, sum(v) AS v FROM readable, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w, k'

-- create_stream is not for everybody.
SET ROLE regress_owner;
SELECT wmstream.create_stream('s', :'query');
\echo :SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION wmstream.create_stream TO regress_owner, regress_nobody;
SET ROLE regress_nobody;
SELECT wmstream.create_stream('s', :'query');
\echo :SQLSTATE
SET ROLE regress_owner;
SELECT wmstream.create_stream('s', replace(:'query', 'readable', 'secret'));
\echo :SQLSTATE
SELECT wmstream.create_stream('s', :'query', late_table => 'pg_catalog.late');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', :'query', late_table => 's_late');
RESET ROLE;
SELECT c.relname, pg_get_userbyid(relowner) FROM pg_class c WHERE relname IN ('s', 's_late', 'public.s') ORDER BY 1;
CREATE TABLE others (hour timestamptz, k text, v bigint);
SET ROLE regress_owner;
SELECT wmstream.create_stream('others', :'query');	-- somebody else's table
\echo :SQLSTATE
RESET ROLE;

-- Only the owner, who is a member of it, and superusers command it.
SET ROLE regress_nobody;
SELECT wmstream.pause('s');
\echo :SQLSTATE
SELECT wmstream.resume('s');
SELECT wmstream.alter_stream('s', 'delay', '1 s');
SELECT wmstream.advance_watermark('s', '2030-01-01');
SELECT wmstream.drop_stream('s');
SELECT wmstream.wait('s');
\echo :SQLSTATE
SELECT * FROM wmstream.open_windows(NULL::s);
\echo :SQLSTATE
SELECT * FROM wmstream.live(NULL::s);
TABLE wmstream.stream;
TABLE wmstream.state_log;
DROP VIEW wmstream."public.s";
RESET ROLE;
GRANT SELECT ON s TO regress_reader;
INSERT INTO readable VALUES ('2024-01-01 10:30+00', 'a', 1), ('2024-01-01 11:30+00', 'a', 2);
SET ROLE regress_reader;
SELECT wmstream.wait('s');
TABLE s;
SELECT * FROM wmstream.open_windows(NULL::s);
SELECT * FROM wmstream.live(NULL::s) ORDER BY hour;
SELECT wmstream.pause('s');
SET ROLE regress_member;
SELECT wmstream.pause('s');
SELECT wmstream.resume('s');
SELECT wmstream.wait('s');

-- What is seen: definitions by all, figures and reasons by the owner and pg_monitor.
RESET ROLE;
CREATE FUNCTION seen(OUT role name, OUT definition bool, OUT status text, OUT "position" bool, OUT batches bool, OUT watermark timestamptz, OUT state bool, OUT source_rows bigint) LANGUAGE sql STABLE
RETURN ROW(current_user, (SELECT s.definition LIKE '%readable%' FROM wmstream.streams s), (SELECT s.status FROM wmstream.streams s), (SELECT s.position IS NOT NULL FROM wmstream.streams s),
	(SELECT f.batches > 0 FROM wmstream.stat_streams f), (SELECT f.watermark FROM wmstream.stat_streams f), (SELECT f.state_bytes > 0 FROM wmstream.stat_streams f), (SELECT s.rows FROM wmstream.stat_sources s));
SELECT * FROM seen();
SET ROLE regress_owner;
SELECT * FROM seen();
SET ROLE regress_monitor;
SELECT * FROM seen();
SET ROLE regress_nobody;
SELECT * FROM seen();
RESET ROLE;

-- The owner's privileges are looked at again whenever the plan is made: SELECT is taken away, the stream fails, nothing is lost.
REVOKE SELECT ON readable FROM regress_owner;
INSERT INTO readable VALUES ('2024-01-01 12:30+00', 'a', 3);
SELECT wmstream.wait('s');
\echo :SQLSTATE
SELECT oracle.status('s');
SELECT status, regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') AS reason FROM wmstream.streams;
SET ROLE regress_nobody;
SELECT status, reason FROM wmstream.streams;
SELECT last_error FROM wmstream.stat_streams;
RESET ROLE;
GRANT SELECT ON readable TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.resume('s');
SELECT wmstream.wait('s');
TABLE s ORDER BY hour;
RESET ROLE;
-- ... so are those on the result and on the late table
REVOKE INSERT ON s FROM regress_owner;
INSERT INTO readable VALUES ('2024-01-01 13:30+00', 'a', 4);
SELECT wmstream.wait('s');
SELECT oracle.status('s');
GRANT INSERT ON s TO regress_owner;
SELECT wmstream.resume('s');
SELECT wmstream.wait('s');

-- The code runs as the owner, in a context where it can become nobody else, with a search_path of its own.
CREATE TABLE witness (who name, session name, path text, zone text);
GRANT INSERT ON witness TO regress_owner;
SET ROLE regress_owner;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.witness VALUES (current_user, session_user, current_setting('search_path'), current_setting('TimeZone'));
	RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON s FOR EACH ROW EXECUTE FUNCTION note();
CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SET ROLE postgres'; RETURN NULL; EXCEPTION WHEN OTHERS THEN INSERT INTO public.witness VALUES (current_user, 'SET ROLE: ' || SQLSTATE); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER become AFTER INSERT ON s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION become();
CREATE CONSTRAINT TRIGGER late_note AFTER INSERT ON s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
RESET ROLE;
INSERT INTO readable VALUES ('2024-01-01 14:30+00', 'a', 5);
SELECT wmstream.wait('s');
SELECT who, CASE WHEN session LIKE 'SET ROLE%' THEN session END AS tried, path, zone, count(*) FROM witness GROUP BY 1, 2, 3, 4 ORDER BY 1, 2;
-- readers run the stream's code as its owner too, and cannot plant anything into it
SET ROLE regress_owner;
CREATE FUNCTION whoami(int) RETURNS name LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN current_user; END $$;
SELECT wmstream.create_stream('w', 'SELECT lower(w) AS hour, public.whoami(sum(v)::int) AS who FROM readable, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w');
GRANT SELECT ON w TO regress_reader;
RESET ROLE;
INSERT INTO readable VALUES ('2024-01-01 15:30+00', 'a', 5), ('2024-01-01 16:30+00', 'a', 5);
SET ROLE regress_reader;
SELECT wmstream.wait('w');
SELECT * FROM wmstream.live(NULL::w) ORDER BY hour;
RESET ROLE;

-- Row-level security that the owner does not bypass.
CREATE TABLE guarded (ts timestamptz, k text, v int);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON guarded TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.create_stream('g', 'SELECT k, v FROM guarded');
\echo :SQLSTATE
RESET ROLE;
ALTER TABLE guarded DISABLE ROW LEVEL SECURITY;
SET ROLE regress_owner;
SELECT wmstream.create_stream('g', 'SELECT k, v FROM guarded');
RESET ROLE;
INSERT INTO guarded VALUES (now(), 'seen', 1);
SELECT wmstream.wait('g');
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
INSERT INTO guarded VALUES (now(), 'hidden', 2);
SELECT wmstream.wait('g');
SELECT oracle.status('g');
TABLE g;

-- Where the result is somebody else's, that one's privileges count, whoever creates the stream, changes or rebuilds it.
CREATE TABLE theirs (k text, v int);
ALTER TABLE theirs OWNER TO regress_owner;
SELECT wmstream.create_stream('theirs', 'SELECT k, v FROM secret');
\echo :SQLSTATE
SELECT wmstream.create_stream('theirs', 'SELECT k, v FROM guarded');
\echo :SQLSTATE
ALTER TABLE guarded DISABLE ROW LEVEL SECURITY;
SELECT wmstream.create_stream('theirs', 'SELECT k, v FROM guarded WHERE wmstream.watermark(ts, ''0'')');
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
SELECT wmstream.alter_stream('theirs', 'delay', '1 s');
\echo :SQLSTATE
SELECT wmstream.resync('theirs');
\echo :SQLSTATE
SELECT wmstream.drop_stream('theirs', true);

-- A stream that may not read any more what it reads is not in the way of the stream below.
CREATE TABLE lowest (ts timestamptz);
SELECT wmstream.create_stream('lower_one', 'SELECT lower(w) AS hour, count(*) AS n FROM lowest, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w');
GRANT SELECT ON lower_one TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.create_stream('upper_one', 'SELECT n FROM lower_one');
RESET ROLE;
SELECT wmstream.alter_stream('lower_one', 'allowed_lateness', '1 hour');
SELECT wmstream.pause('upper_one');
REVOKE SELECT ON lower_one FROM regress_owner;
SELECT wmstream.alter_stream('lower_one', 'allowed_lateness', '1 hour');
SELECT wmstream.resync('lower_one');
GRANT SELECT ON lower_one TO regress_owner;
SELECT wmstream.resume('upper_one');
INSERT INTO lowest VALUES ('2024-01-01 10:00+00'), ('2024-01-01 12:00+00');
SELECT oracle.status('upper_one');
SELECT reason FROM wmstream.streams WHERE stream = 'upper_one'::regclass;
DROP TABLE lowest CASCADE;
DROP TABLE lower_one, upper_one CASCADE;

-- Functions and aggregates that the owner may not call, be their state kept or their arguments.
CREATE TABLE counted (ts timestamptz, v int);
GRANT SELECT ON counted TO regress_owner;
CREATE FUNCTION add_up(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1 + $2';
CREATE AGGREGATE total(int) (sfunc = add_up, stype = int, initcond = '0');
CREATE FUNCTION one_more(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 + 1; END';
REVOKE EXECUTE ON FUNCTION total(int), one_more(int), add_up(int, int) FROM PUBLIC;
\set total 'SELECT lower(w) AS hour, total(v) AS v FROM counted, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w'
SET ROLE regress_owner;
SELECT wmstream.create_stream('t', :'total');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', replace(:'total', 'total(v)', 'total(DISTINCT v)'));
\echo :SQLSTATE
SELECT wmstream.create_stream('t', replace(:'total', 'total(v)', 'one_more(max(v))'));
\echo :SQLSTATE
SELECT wmstream.create_stream('t', 'SELECT one_more(v) AS v FROM counted');
\echo :SQLSTATE
SELECT wmstream.explain(:'total');
\echo :SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION total(int) TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.create_stream('t', :'total');
RESET ROLE;
INSERT INTO counted VALUES ('2024-01-01 16:30+00', 6), ('2024-01-01 17:30+00', 7);
SELECT wmstream.wait('t');
TABLE t;
-- taken away; and what an aggregate is made of, from its owner
REVOKE EXECUTE ON FUNCTION total(int) FROM regress_owner;
INSERT INTO counted VALUES ('2024-01-01 17:30+00', 8), ('2024-01-01 18:30+00', 9);
SELECT oracle.status('t');
SELECT reason FROM wmstream.streams WHERE stream = 't'::regclass;
GRANT EXECUTE ON FUNCTION total(int) TO regress_owner;
GRANT CREATE ON SCHEMA public TO regress_nobody;
ALTER AGGREGATE total(int) OWNER TO regress_nobody;
SELECT wmstream.resume('t');
SELECT oracle.status('t');
SELECT reason FROM wmstream.streams WHERE stream = 't'::regclass;
GRANT EXECUTE ON FUNCTION add_up(int, int) TO regress_nobody;
SELECT wmstream.resume('t');
SELECT * FROM oracle.compare('t', 'hour + interval ''1 hour'' <= $1');
SELECT wmstream.drop_stream('t', true);

-- A privilege that came with a membership goes with it.
CREATE ROLE regress_group;
CREATE TABLE groups (v int);
GRANT SELECT ON groups TO regress_group;
GRANT regress_group TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.create_stream('in_group', 'SELECT v FROM groups');
RESET ROLE;
INSERT INTO groups VALUES (1);
SELECT wmstream.wait('in_group');
REVOKE regress_group FROM regress_owner;
INSERT INTO groups VALUES (2);
SELECT oracle.status('in_group');
TABLE in_group;
DROP TABLE groups CASCADE;

-- Rows that are put aside are shown without the columns that the owner may not read.
CREATE TABLE salaries (ts timestamptz, k text, salary int, note text, n int);
CREATE TABLE aside (stream regclass, source regclass, event_time timestamptz, watermark timestamptz, reason text, error text, arrived_at timestamptz, row_data jsonb);
GRANT SELECT, INSERT ON aside TO regress_owner;
GRANT SELECT (ts, k, n) ON salaries TO regress_owner;
-- through views: what comes out of them as it is and the definition names, but of a row that failed before it came out of them nothing
CREATE VIEW part AS SELECT ts, k, upper(note) AS note, salary AS paid, n FROM salaries WHERE k <> 'hidden' AND 1 / (n + 7) >= 0;
GRANT SELECT (ts, k, note, n) ON part TO regress_nobody;
CREATE VIEW branches AS SELECT ts, k, n FROM salaries UNION ALL SELECT ts, note, n FROM salaries WHERE k = 'late';
CREATE VIEW hours AS SELECT lower(w) AS hour, max(k) AS k, sum(n) AS n FROM salaries, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') AND k <> 'hidden' GROUP BY w;
GRANT SELECT ON branches, hours TO regress_nobody;
GRANT SELECT, INSERT ON aside TO regress_nobody;
GRANT EXECUTE ON FUNCTION wmstream.create_stream TO regress_nobody;
\set late 'SELECT lower(w) AS hour, max(k) AS k, sum(1 / n) AS n FROM salaries, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w'
SET ROLE regress_owner;
SELECT wmstream.create_stream('direct', :'late', late_table => 'aside', on_error => 'skip', max_future => '1 day');
SELECT wmstream.create_stream('once', 'SELECT DISTINCT ts, k FROM salaries WHERE wmstream.watermark(ts, ''0'')', late_table => 'aside');
SELECT wmstream.create_stream('pairs', 'SELECT a.k FROM salaries a JOIN salaries b USING (k, ts) WHERE wmstream.watermark(a.ts, ''0'') AND wmstream.watermark(b.ts, ''0'')', late_table => 'aside');
SET ROLE regress_nobody;
SELECT wmstream.create_stream('no', replace(replace(:'late', 'salaries', 'part'), '1 / n', 'paid'), late_table => 'aside');
\echo :SQLSTATE
SELECT wmstream.create_stream('viewed', replace(:'late', 'salaries', 'part'), late_table => 'aside', on_error => 'skip', max_future => '1 day');
SELECT wmstream.create_stream('viewed_less', 'SELECT lower(w) AS hour, max(note) AS note FROM part, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w', late_table => 'aside');
SELECT wmstream.create_stream('within', 'WITH p AS (SELECT * FROM (SELECT ts AS at, k AS key FROM part) q), g AS (SELECT lower(w) AS hour, max(key) AS k FROM p, wmstream.window(at, ''1 hour'') AS w WHERE wmstream.watermark(at, ''0'') GROUP BY w) TABLE g', late_table => 'aside');
SELECT wmstream.create_stream('either', replace(:'late', 'salaries', 'branches'), late_table => 'aside');
SELECT wmstream.create_stream('inside', 'TABLE hours', late_table => 'aside');
RESET ROLE;
INSERT INTO salaries VALUES ('2024-01-01 12:00+00', 'first', 1000, 'x', 1);
SELECT count(oracle.status(stream)) FROM wmstream.streams;
INSERT INTO salaries VALUES ('2024-01-01 10:00+00', 'late', 1000, 'x', 1), ('2024-01-01 10:00+00', 'hidden', 1000, 'x', 1), (NULL, 'no time', 1000, 'x', 1);
SELECT count(oracle.status(stream)) FROM wmstream.streams;
INSERT INTO salaries VALUES ('2024-01-01 12:00+00', 'failed', 1000, 'x', 0), ('2024-01-01 12:00+00', 'failed within', 1000, 'x', -7),
  ('9999-01-01 12:00+00', 'future', 1000, 'x', 1);
SELECT oracle.status(stream) FROM wmstream.streams WHERE stream IN ('direct'::regclass, 'viewed'::regclass);
SELECT stream, source, reason, row_data, count(*) FROM aside GROUP BY 1, 2, 3, 4 ORDER BY stream::text, reason, row_data::text;
SELECT regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') AS reason FROM wmstream.streams WHERE stream = 'either'::regclass;
-- as the privileges are now; a policy may hide rows, so nothing is readable then
TRUNCATE aside;
REVOKE SELECT (n) ON salaries FROM regress_owner;
GRANT SELECT (note) ON salaries TO regress_owner, regress_nobody;
INSERT INTO salaries VALUES ('2024-01-01 11:00+00', 'later', 1000, 'x', 1);
SELECT oracle.status('once'), oracle.status('viewed');
SELECT stream, reason, row_data FROM aside WHERE stream IN ('once'::regclass, 'viewed'::regclass) ORDER BY stream::text;
TRUNCATE aside;
ALTER TABLE salaries ENABLE ROW LEVEL SECURITY;
INSERT INTO salaries VALUES ('2024-01-01 11:00+00', 'latest', 1000, 'x', 1), ('2024-01-01 12:00+00', 'failed', 1000, 'x', 0);
SELECT oracle.status('viewed');
SELECT stream, reason, row_data FROM aside WHERE stream = 'viewed'::regclass ORDER BY reason;
DROP TABLE salaries CASCADE;
DROP TABLE aside;

-- The stream follows the table's owner.
ALTER TABLE s OWNER TO regress_nobody;
SELECT owner FROM wmstream.streams WHERE stream = 's'::regclass;
INSERT INTO readable VALUES ('2024-01-01 17:30+00', 'a', 5);
SELECT wmstream.wait('s');
SELECT oracle.status('s');
SELECT regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') AS reason FROM wmstream.streams WHERE stream = 's'::regclass;
ALTER TABLE s OWNER TO regress_owner;
SELECT wmstream.resume('s');
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
-- ... who needs what the stream needs, and is told one thing after the other; what came meanwhile is not lost
GRANT SELECT ON readable TO regress_nobody;
GRANT INSERT ON witness TO regress_nobody;
GRANT EXECUTE ON FUNCTION note(), become() TO regress_nobody;
TRUNCATE witness;
ALTER TABLE s OWNER TO regress_nobody;
INSERT INTO readable VALUES ('2024-01-01 18:30+00', 'a', 5), (NULL, 'late', 1);
SELECT wmstream.wait('s');
SELECT oracle.status('s');
SELECT regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') AS reason FROM wmstream.streams WHERE stream = 's'::regclass;
GRANT INSERT ON s_late TO regress_nobody;
SET ROLE regress_owner;
SELECT wmstream.resume('s');	-- it is no more its own
\echo :SQLSTATE
SET ROLE regress_nobody;
SELECT wmstream.resume('s');
SELECT wmstream.wait('s');
RESET ROLE;
DELETE FROM readable WHERE ts IS NULL;	-- the batch query has a group for it
INSERT INTO readable VALUES ('2024-01-01 20:30+00', 'a', 5);
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
SELECT who, CASE WHEN session LIKE 'SET ROLE%' THEN session END AS tried, count(*) > 0 AS some FROM witness GROUP BY 1, 2 ORDER BY 1, 2;
SELECT reason, row_data ->> 'k' AS k FROM s_late;
-- row-level security that the former owner bypassed and the new one does not
ALTER TABLE s OWNER TO regress_owner;
SELECT oracle.status('s');
ALTER TABLE readable OWNER TO regress_owner;
ALTER TABLE readable ENABLE ROW LEVEL SECURITY;
INSERT INTO readable VALUES ('2024-01-01 22:30+00', 'a', 5);
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
ALTER TABLE s OWNER TO regress_nobody;
INSERT INTO readable VALUES ('2024-01-01 23:30+00', 'a', 5);
SELECT oracle.status('s');
SELECT regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') AS reason FROM wmstream.streams WHERE stream = 's'::regclass;
ALTER TABLE readable DISABLE ROW LEVEL SECURITY;
SELECT wmstream.resume('s');
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');

-- A schema that the owner may not look into any more: no statement of its own would find the table.
CREATE SCHEMA regress_place;
GRANT USAGE, CREATE ON SCHEMA regress_place TO regress_owner;
SET ROLE regress_owner;
SELECT wmstream.create_stream('regress_place.p', 'SELECT k, v FROM readable');
RESET ROLE;
INSERT INTO readable VALUES ('2024-01-02 00:30+00', 'first', 5);
SELECT wmstream.wait('regress_place.p');
REVOKE USAGE ON SCHEMA regress_place FROM regress_owner;
INSERT INTO readable VALUES ('2024-01-02 00:30+00', 'second', 6);
SELECT oracle.status('regress_place.p');
SELECT reason FROM wmstream.streams WHERE stream = 'regress_place.p'::regclass;
GRANT USAGE ON SCHEMA regress_place TO regress_owner;
SELECT wmstream.resume('regress_place.p');
SELECT wmstream.wait('regress_place.p');
TABLE regress_place.p;

-- Who owns what no stream writes is no business of streams: the transaction can be prepared. Who owns a result is.
CREATE TABLE unrelated (x int);
BEGIN;
ALTER TABLE unrelated OWNER TO regress_member;
PREPARE TRANSACTION 'unrelated';
COMMIT PREPARED 'unrelated';
BEGIN;
REASSIGN OWNED BY regress_member TO regress_nobody;
ALTER TABLE s OWNER TO regress_nobody;	-- which it is
PREPARE TRANSACTION 'unrelated';
COMMIT PREPARED 'unrelated';
BEGIN;
ALTER TABLE s OWNER TO regress_owner;
PREPARE TRANSACTION 'related';
\echo :SQLSTATE
BEGIN;
REASSIGN OWNED BY regress_nobody TO regress_owner;
PREPARE TRANSACTION 'related';
\echo :SQLSTATE
REASSIGN OWNED BY regress_nobody TO regress_owner;
SELECT owner, pg_get_userbyid(relowner) AS definition FROM wmstream.streams JOIN pg_class ON oid = 'wmstream."public.s"'::regclass WHERE stream = 's'::regclass;

DROP FUNCTION seen;
DROP EXTENSION wmstream;
DROP OWNED BY regress_owner, regress_nobody, regress_reader CASCADE;
DROP ROLE regress_owner, regress_member, regress_reader, regress_monitor, regress_nobody, regress_group;
DROP SCHEMA regress_place;
