-- From create_stream to the end of a stream, whichever way it ends.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE FUNCTION left_behind() RETURNS TABLE (streams bigint, views bigint, state bigint) LANGUAGE sql VOLATILE AS $$
	SELECT (SELECT count(*) FROM wmstream.stream), (SELECT count(*) FROM pg_class WHERE relnamespace = 'wmstream'::regnamespace AND relkind = 'v' AND relname LIKE '%.%'),
		   (SELECT count(*) FROM wmstream.state_log) $$;

CREATE TABLE events (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);
\set query 'SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS v FROM events, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, k'

-- Rows count from create_stream's own commit on: none that committed before, all that commit after, when they were written does not matter.
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 09:30+00', 'before', 1);
BEGIN;
SELECT wmstream.create_stream('s', :'query');
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 09:30+00', 'same transaction', 1);
SELECT wmstream.wait('s');
ROLLBACK;
SELECT to_regclass('s') IS NULL AS gone;
BEGIN;
SELECT wmstream.create_stream('s', :'query');
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 09:30+00', 'same transaction', 1);
COMMIT;
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 10:30+00', 'after', 1);
SELECT wmstream.wait('s');
SELECT * FROM wmstream.open_windows(NULL::s);
DELETE FROM events WHERE k <> 'after';	-- now the batch query has what the stream has
SELECT output_mode, trigger_interval, allowed_lateness, late_table, idle_timeout, close_when_idle, max_future, watermark_policy, on_change, on_error, delay,
	   owner = current_user::regrole AS mine, reason, retained_wal_bytes IS NOT NULL AS wal, slot LIKE 'wmstream\_%' AS slot FROM wmstream.streams;
SELECT definition FROM wmstream.streams;
SELECT oracle.status('s');

-- Names that are taken; if_not_exists.
SELECT wmstream.create_stream('s', :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', :'query', if_not_exists => true);
SELECT wmstream.create_stream('s', 'SELECT nonsense FROM nowhere', if_not_exists => true);

-- pause keeps position and state, resume loses nothing.
SELECT wmstream.pause('s');
SELECT oracle.status('s');
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 10:40+00', 'paused', 2);
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 12:40+00', 'paused', 3);
SELECT wmstream.wait('s', '5 s');	-- says at once that it cannot
\echo :SQLSTATE
TABLE s;
SELECT wmstream.pause('s');	-- twice is fine
SELECT wmstream.resume('s');
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
SELECT wmstream.resume('s');
SELECT oracle.status('s');
-- what commits before pause is called is still read
BEGIN;
INSERT INTO events (ts, k, v) VALUES ('2024-01-01 12:45+00', 'x', 4);
SELECT wmstream.pause('s');
ROLLBACK;
SELECT oracle.status('s');

-- Options.
SELECT wmstream.alter_stream('s', 'delay', '1 day');
SELECT delay FROM wmstream.streams;
INSERT INTO events (ts, k, v) VALUES ('2024-01-02 12:00+00', 'y', 5);
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
SELECT watermark FROM wmstream.stat_streams;	-- it does not go back
SELECT wmstream.alter_stream('s', 'delay', NULL);
INSERT INTO events (ts, k, v) VALUES ('2024-01-02 12:01+00', 'y', 5);
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');
SELECT watermark FROM wmstream.stat_streams;
SELECT wmstream.alter_stream('s', 'output_mode', 'update');
\echo :SQLSTATE
SELECT wmstream.alter_stream('s', 'colour', 'blue');
\echo :SQLSTATE
SELECT wmstream.alter_stream('s', 'trigger_interval', '-1 s');
\echo :SQLSTATE
SELECT wmstream.alter_stream('events', 'trigger_interval', '1 s');
\echo :SQLSTATE
SELECT wmstream.alter_stream('s', 'trigger_interval', '1 minute');
SELECT trigger_interval FROM wmstream.streams;
SELECT wmstream.alter_stream('s', 'trigger_interval', NULL);

-- Arguments.
SELECT wmstream.create_stream(NULL, :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', NULL);
\echo :SQLSTATE
SELECT wmstream.create_stream('t', :'query', output_mode => 'often');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', :'query', trigger_interval => '1 month');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', :'query', close_when_idle => true);
\echo :SQLSTATE
SELECT wmstream.create_stream('t', 'SELECT 1; SELECT 2');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', 'DELETE FROM events');
\echo :SQLSTATE
SELECT wmstream.create_stream('t', 'SELECT FROM');
\echo :SQLSTATE
SELECT wmstream.create_stream('no_such_schema.t', :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('pg_catalog.t', :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('wmstream.t', :'query');
\echo :SQLSTATE
SELECT wmstream.pause('events');
\echo :SQLSTATE

-- A stream's tables can be renamed and moved; the definition follows.
CREATE SCHEMA "Other Place";
ALTER TABLE events RENAME TO occurrences;
ALTER TABLE occurrences RENAME COLUMN v TO "Value";
ALTER TABLE s RENAME TO "S renamed";
ALTER TABLE "S renamed" SET SCHEMA "Other Place";
INSERT INTO occurrences (ts, k, "Value") VALUES ('2024-01-02 14:00+00', 'z', 6);
SELECT * FROM oracle.compare('"Other Place"."S renamed"', 'hour + interval ''1 hour'' <= $1');
SELECT definition FROM wmstream.streams;
ALTER TABLE "Other Place"."S renamed" SET SCHEMA public;
ALTER TABLE "S renamed" RENAME TO s;
ALTER TABLE occurrences RENAME TO events;
ALTER TABLE events RENAME COLUMN "Value" TO v;

-- drop_stream keeps the result as a plain table ...
SELECT wmstream.drop_stream('s');
SELECT count(*) FROM s;
SELECT * FROM left_behind();
SELECT wmstream.drop_stream('s');
\echo :SQLSTATE
-- ... which can be a result again, keys and rows included
DELETE FROM s;
SELECT wmstream.create_stream('s', :'query');
INSERT INTO events (ts, k, v) VALUES ('2024-03-01 10:00+00', 'a', 1), ('2024-03-01 12:00+00', 'a', 1);
SELECT wmstream.wait('s');
TABLE s;
-- or drops it too
SELECT wmstream.drop_stream('s', drop_results => true);
SELECT to_regclass('s') IS NULL AS gone, l.* FROM left_behind() l;

-- DROP TABLE of the result ends the stream.
SELECT wmstream.create_stream('s', :'query');
INSERT INTO events (ts, k, v) VALUES ('2024-03-01 10:00+00', 'a', 1), ('2024-03-01 12:00+00', 'a', 1);
SELECT wmstream.wait('s');
DROP TABLE s;
SELECT * FROM left_behind();
-- DROP TABLE of the source: not without CASCADE, which keeps the result.
SELECT wmstream.create_stream('s', :'query');
INSERT INTO events (ts, k, v) VALUES ('2024-03-01 10:00+00', 'a', 1), ('2024-03-01 12:00+00', 'a', 1);
SELECT wmstream.wait('s');
DROP TABLE events;
\echo :SQLSTATE
ALTER TABLE events DROP COLUMN k;
\echo :SQLSTATE
DROP TABLE events CASCADE;
SELECT count(*) FROM s;
SELECT * FROM left_behind();
DROP TABLE s;
-- Dropping the view is dropping the stream.
CREATE TABLE events (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);
SELECT wmstream.create_stream('s', :'query');
DROP VIEW wmstream."public.s";
SELECT to_regclass('s') IS NOT NULL AS there, l.* FROM left_behind() l;
DROP TABLE s;
-- A rolled back end is none.
SELECT wmstream.create_stream('s', :'query');
BEGIN;
DROP TABLE s;
ROLLBACK;
BEGIN;
SELECT wmstream.drop_stream('s', true);
ROLLBACK;
INSERT INTO events (ts, k, v) VALUES ('2024-03-01 10:00+00', 'a', 1), ('2024-03-01 12:00+00', 'a', 1);
SELECT * FROM oracle.compare('s', 'hour + interval ''1 hour'' <= $1');

-- Result tables that are there: more columns, defaults, generated ones, partitions, history.
CREATE TABLE wide (more text DEFAULT 'default', n bigint, made timestamptz DEFAULT now(), hour timestamptz, v bigint, twice bigint GENERATED ALWAYS AS (n * 2) STORED, k text);
ALTER TABLE wide DROP COLUMN made;
INSERT INTO wide (hour, k, n) VALUES ('2023-01-01 00:00+00', 'history', 7);
SELECT wmstream.create_stream('wide', :'query');
CREATE TABLE parts (hour timestamptz, k text, n bigint, v bigint) PARTITION BY RANGE (hour);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-03-01 00:00+00') TO ('2024-03-02 00:00+00');
CREATE TABLE parts_2 (v bigint, n bigint, k text, hour timestamptz);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM ('2024-03-02 00:00+00') TO ('2024-03-03 00:00+00');
SELECT wmstream.create_stream('parts', :'query', output_mode => 'update');
-- the key that update mode needs was made
SELECT indexdef FROM pg_indexes WHERE tablename = 'parts';
INSERT INTO events (ts, k, v) SELECT timestamptz '2024-03-01 12:00+00' + i * interval '20 minutes', i % 3, i FROM generate_series(1, 70) i;
SELECT wmstream.wait('wide');
SELECT count(*), count(DISTINCT more), bool_and(twice = n * 2) FROM wide;
SELECT * FROM oracle.differences('SELECT hour, k, n, v FROM wide WHERE hour > ''2024-01-01''', 'SELECT hour, k, n, v FROM s WHERE hour > ''2024-03-01 12:00+00'' OR k IN (''0'', ''1'', ''2'')');
SELECT wmstream.wait('parts');
SELECT tableoid::regclass, count(*), sum(n) FROM parts GROUP BY 1 ORDER BY 1;
-- columns that do not fit, or cannot be left out
CREATE TABLE bad (hour timestamp, k text, n bigint, v bigint);
SELECT wmstream.create_stream('bad', :'query');
\echo :SQLSTATE
ALTER TABLE bad DROP COLUMN hour;
SELECT wmstream.create_stream('bad', :'query');
\echo :SQLSTATE
ALTER TABLE bad ADD hour timestamptz, ADD needed int NOT NULL;
SELECT wmstream.create_stream('bad', :'query');
\echo :SQLSTATE
ALTER TABLE bad ALTER needed DROP NOT NULL, DROP v, ADD v bigint GENERATED ALWAYS AS (1) STORED;
SELECT wmstream.create_stream('bad', :'query');
\echo :SQLSTATE
CREATE VIEW a_view AS TABLE s;
SELECT wmstream.create_stream('a_view', :'query');
\echo :SQLSTATE
CREATE UNLOGGED TABLE loose (LIKE s);
SELECT wmstream.create_stream('loose', :'query');
\echo :SQLSTATE
CREATE TABLE ruled (LIKE s);
CREATE TABLE elsewhere (LIKE s);
CREATE RULE aside AS ON INSERT TO ruled DO INSTEAD INSERT INTO elsewhere VALUES (NEW.*);
SELECT wmstream.create_stream('ruled', :'query');
\echo :SQLSTATE
DROP TABLE ruled, elsewhere;
CREATE TEMP TABLE passing (LIKE s);
SELECT wmstream.create_stream('pg_temp.passing', :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('events', :'query');
\echo :SQLSTATE
SELECT wmstream.create_stream('double', 'SELECT k, v AS k FROM events');
\echo :SQLSTATE
SELECT count(*) FROM wmstream.streams;

-- Failures are the stream's own: a duplicate that the owner put there, a partition that is missing.
INSERT INTO wide (hour, k, n) VALUES ('2024-03-09 10:00+00', 'b', 1);
ALTER TABLE wide ADD PRIMARY KEY (hour, k);
INSERT INTO events (ts, k, v) VALUES ('2024-03-09 10:00+00', 'b', 1), ('2024-03-09 20:00+00', 'b', 1);
SELECT wmstream.wait('s');
SELECT oracle.status('s'), oracle.status('wide'), oracle.status('parts');
SELECT stream, regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') FROM wmstream.streams WHERE status = 'failed' ORDER BY stream::text;
SELECT wmstream.wait('wide');
\echo :SQLSTATE
DELETE FROM wide WHERE hour = '2024-03-09 10:00+00';
SELECT wmstream.resume('wide');
SELECT wmstream.wait('wide');
SELECT hour, k, n FROM wide WHERE hour > '2024-03-05';
CREATE TABLE parts_default PARTITION OF parts DEFAULT;
SELECT wmstream.resume('parts');
SELECT wmstream.wait('parts');
SELECT hour, k, n FROM parts_default;

-- DROP EXTENSION ends all and leaves nothing but results.
DROP EXTENSION wmstream;
SELECT (SELECT count(*) FROM s) > 0 AS kept, to_regnamespace('wmstream') IS NULL AS gone;
DO $$ BEGIN FOR i IN 1..1000 LOOP EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots); PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT count(*) FROM pg_replication_slots;
CREATE EXTENSION wmstream;
SELECT wmstream.create_stream('s2', :'query');
INSERT INTO events (ts, k, v) VALUES ('2025-03-01 10:00+00', 'a', 1), ('2025-03-01 12:00+00', 'a', 1);
SELECT wmstream.wait('s2');
TABLE s2;
