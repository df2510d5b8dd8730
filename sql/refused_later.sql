-- What would be refused at creation may become so later: the stream fails with the reason, loses nothing, and goes on once it is put right.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE TABLE events (id int, k text, ts timestamptz);
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
SELECT wmstream.create_stream('copy', 'SELECT public.twice(id) AS id, k FROM events');
SELECT wmstream.create_stream('other', 'SELECT ts, k FROM events WHERE id > 0');
INSERT INTO events VALUES (1, 'first', now());
SELECT wmstream.wait(stream) FROM wmstream.streams;
CREATE VIEW told AS SELECT stream, status, regexp_replace(regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN'), ' .Failing row contains .*', '') AS reason FROM wmstream.streams ORDER BY stream::text;

-- a function that is volatile now
CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN $1 * 2; END';
INSERT INTO events VALUES (2, 'volatile', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';
SELECT wmstream.resume('copy');
SELECT wmstream.wait('copy');
TABLE copy ORDER BY id;

-- a table with children
CREATE TABLE more_events () INHERITS (events);
INSERT INTO events VALUES (3, 'inherited', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE more_events NO INHERIT events;
DROP TABLE more_events;
VACUUM ANALYZE events;	-- which looks whether there are children still
SELECT wmstream.resume(stream) FROM wmstream.streams;
SELECT wmstream.wait(stream) FROM wmstream.streams;
TABLE copy ORDER BY id;

-- a partition
CREATE TABLE whole (id int, k text, ts timestamptz) PARTITION BY LIST (k);
ALTER TABLE whole ATTACH PARTITION events DEFAULT;
INSERT INTO whole VALUES (4, 'partition', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE whole DETACH PARTITION events;
SELECT wmstream.resume(stream) FROM wmstream.streams;
SELECT wmstream.wait(stream) FROM wmstream.streams;
TABLE copy ORDER BY id;

-- an unlogged table; what it was given meanwhile is not in the WAL
ALTER TABLE events SET UNLOGGED;
INSERT INTO events VALUES (5, 'unlogged', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE events SET LOGGED;
SELECT wmstream.resume(stream) FROM wmstream.streams;
INSERT INTO events VALUES (6, 'logged again', now());
SELECT wmstream.wait(stream) FROM wmstream.streams;
TABLE copy ORDER BY id;

-- partitions that are not logged, or become so, or are attached so, and foreign ones; of a source and of a result
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE TABLE days (id int, at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2024-02-01') PARTITION BY RANGE (at);
CREATE TABLE days_1_1 PARTITION OF days_1 DEFAULT;
CREATE TABLE copied (id int, at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE copied_1 PARTITION OF copied DEFAULT;
SELECT wmstream.create_stream('copied', $$SELECT id, at FROM days WHERE wmstream.watermark(at, '1 day')$$, late_table => 'copied_late');
INSERT INTO days VALUES (1, '2024-01-10 00:00+00');
SELECT wmstream.wait('copied');
-- it fails, without a row that would tell
CREATE FUNCTION why_failed() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	why text;
BEGIN
	FOR i IN 1..2000 LOOP
		SELECT reason INTO why FROM wmstream.streams WHERE stream = 'copied'::regclass AND status = 'failed';
		EXIT WHEN FOUND;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN why;
END $$;
ALTER TABLE days_1_1 SET UNLOGGED;
SELECT why_failed();
ALTER TABLE days_1_1 SET LOGGED;
SELECT wmstream.resume('copied');
INSERT INTO days VALUES (2, '2024-01-11 00:00+00');
SELECT wmstream.wait('copied');
CREATE UNLOGGED TABLE days_1_2 PARTITION OF days_1 FOR VALUES FROM ('2024-01-20') TO ('2024-01-21');
SELECT why_failed();
DROP TABLE days_1_2;
SELECT wmstream.resume('copied');
SELECT wmstream.wait('copied');
CREATE FOREIGN TABLE days_2 (id int, at timestamptz) SERVER nowhere;
ALTER TABLE days ATTACH PARTITION days_2 DEFAULT;
SELECT why_failed();
ALTER TABLE days DETACH PARTITION days_2;
SELECT wmstream.resume('copied');
SELECT wmstream.wait('copied');
ALTER TABLE copied_1 SET UNLOGGED;
SELECT why_failed();
ALTER TABLE copied_1 SET LOGGED;
SELECT wmstream.resume('copied');
INSERT INTO days VALUES (3, '2024-01-12 00:00+00');
SELECT wmstream.wait('copied');
TABLE copied ORDER BY id;
DROP TABLE copied, copied_late, days;
DROP FOREIGN DATA WRAPPER nothing CASCADE;

-- another definition under the stream's name
CREATE OR REPLACE VIEW wmstream."public.other" AS SELECT ts, k FROM events WHERE id > 5;
INSERT INTO events VALUES (7, 'replaced', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
CREATE OR REPLACE VIEW wmstream."public.other" AS SELECT ts, k FROM events WHERE id > 0;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
SELECT k FROM other ORDER BY ts;

-- rules that make other commands of what is written, even a single other one
CREATE TABLE elsewhere (LIKE other);
CREATE RULE there AS ON INSERT TO other DO INSTEAD INSERT INTO elsewhere VALUES (NEW.*);
INSERT INTO events VALUES (12, 'rule', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
DROP RULE there ON other;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
SELECT (SELECT count(*) FROM other WHERE k = 'rule') AS there, count(*) AS elsewhere FROM elsewhere;

-- a result that is none any more
ALTER TABLE other SET UNLOGGED;
INSERT INTO events VALUES (8, 'unlogged result', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE other SET LOGGED;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
-- columns of the result
ALTER TABLE other RENAME COLUMN k TO key;
INSERT INTO events VALUES (9, 'renamed', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE other RENAME COLUMN key TO k;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
ALTER TABLE other ALTER k TYPE varchar(20);
INSERT INTO events VALUES (12, 'retyped', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE other ALTER k TYPE text;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
ALTER TABLE other ADD COLUMN needed int NOT NULL DEFAULT 1;
ALTER TABLE other ALTER COLUMN needed DROP DEFAULT;
INSERT INTO events VALUES (10, 'needs more', now());
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE other DROP COLUMN needed;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
SELECT k FROM other ORDER BY ts;

-- a late table that would not outlive a crash
SELECT wmstream.alter_stream('other', 'late_table', 'aside');
ALTER TABLE aside SET UNLOGGED;
INSERT INTO events VALUES (11, 'aside', NULL);
SELECT oracle.status('copy'), oracle.status('other');
TABLE told;
ALTER TABLE aside SET LOGGED;
SELECT wmstream.resume('other');
SELECT wmstream.wait('other');
SELECT stream, reason FROM wmstream.streams WHERE status <> 'running';
