-- Queue tables: making them, which can be one, what their streams give, what happens to the rows.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE events (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v numeric DEFAULT 1);
SELECT wmstream.create_queue('events');
\d events
TABLE wmstream.queues;
SELECT * FROM wmstream.create_queue('events');

-- rows that are there before: no trim by default
CREATE TABLE "Old rows" ("Id" int, ts timestamptz);
INSERT INTO "Old rows" VALUES (1, '2024-01-01 10:00+00');
SELECT wmstream.create_queue('"Old rows"');
SELECT wmstream.create_queue(NULL);
CREATE TABLE asked (id int, ts timestamptz);
INSERT INTO asked VALUES (1, '2024-01-01 10:00+00');
SELECT wmstream.create_queue('asked', "trim" => true);
SELECT * FROM wmstream.queues ORDER BY queue::text;

-- what cannot be one
CREATE TABLE part (id int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part DEFAULT;
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE TEMP TABLE temporary (id int);
CREATE UNLOGGED TABLE unlogged (id int);
CREATE VIEW a_view AS SELECT 1 AS id;
CREATE TABLE has_column (id int, wm_xid bigint);
CREATE TABLE has_trigger (id int);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER before_update BEFORE UPDATE ON has_trigger FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT wmstream.create_queue('part');
SELECT wmstream.create_queue('part_1');
SELECT wmstream.create_queue('parent');
SELECT wmstream.create_queue('child');
SELECT wmstream.create_queue('temporary');
SELECT wmstream.create_queue('unlogged');
SELECT wmstream.create_queue('a_view');
SELECT wmstream.create_queue('has_column');
SELECT wmstream.create_queue('has_trigger');
SELECT wmstream.create_queue('pg_class');
SELECT wmstream.create_queue('wmstream.stream');
SELECT wmstream.drop_queue('part');
SELECT wmstream.drop_queue('has_trigger');
CREATE ROLE somebody;
SET ROLE somebody;
SELECT wmstream.create_queue('events');
SELECT wmstream.drop_queue('events');
RESET ROLE;
DROP ROLE somebody;

-- Streams.  The same transaction's rows come before the stream, later ones after it.
BEGIN;
INSERT INTO events (ts, k) VALUES ('2024-01-01 09:00+00', 'before, same transaction');
SELECT wmstream.create_stream('hourly', $$
  SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS v FROM events, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, k
$$, late_table => 'events_late');
INSERT INTO events (ts, k) VALUES ('2024-01-01 09:00+00', 'after, same transaction');
COMMIT;
SELECT wmstream.create_stream('everything', 'SELECT * FROM events');
SELECT wmstream.create_stream('everything_once', $$SELECT DISTINCT * FROM (SELECT * FROM events WHERE k = 'twin') t WHERE wmstream.watermark(ts, '10 minutes')$$);
SELECT wmstream.create_stream('with_xid', 'SELECT id, wm_xid FROM events');
SELECT stream, array_agg(a.attname ORDER BY a.attnum) FROM wmstream.streams s JOIN pg_attribute a ON a.attrelid = s.stream AND a.attnum > 0 GROUP BY 1 ORDER BY stream::text;
SELECT definition FROM wmstream.streams WHERE stream = 'everything'::regclass;
SELECT * FROM wmstream.explain('everything'::regclass);
-- savepoints, rollbacks, COPY without a column list, several statements
INSERT INTO events (ts, k) VALUES ('2024-01-01 10:10+00', 'plain');
BEGIN;
INSERT INTO events (ts, k) VALUES ('2024-01-01 10:20+00', 'kept');
SAVEPOINT a;
INSERT INTO events (ts, k) VALUES ('2024-01-01 10:20+00', 'rolled back');
ROLLBACK TO a;
SAVEPOINT b;
INSERT INTO events (ts, k) VALUES ('2024-01-01 10:21+00', 'kept');
RELEASE b;
COMMIT;
BEGIN;
INSERT INTO events (ts, k) VALUES ('2024-01-01 23:20+00', 'rolled back');
ROLLBACK;
BEGIN;
INSERT INTO events (ts, k) VALUES ('2024-01-01 10:30+00', 'prepared');
PREPARE TRANSACTION 'one';
COMMIT PREPARED 'one';
BEGIN;
INSERT INTO events (ts, k) VALUES ('2024-01-01 23:30+00', 'rolled back');
PREPARE TRANSACTION 'two';
ROLLBACK PREPARED 'two';
COPY events (ts, k, v) FROM stdin;
2024-01-01 10:40+00	copied	2.50
2024-01-01 10:50+00	copied	NaN
\.
PREPARE again AS INSERT INTO events (ts, k) VALUES ($1, 'again');
EXECUTE again ('2024-01-01 10:01+00');
EXECUTE again ('2024-01-01 10:02+00');
DO $$ BEGIN FOR i IN 0..9 LOOP EXECUTE format('INSERT INTO events (ts, k) VALUES (%L, %L)', '2024-01-01 10:03+00', 'looped'); COMMIT; END LOOP; END $$;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT count(*) AS looped, count(DISTINCT wm_xid) AS transactions FROM with_xid JOIN everything USING (id) WHERE k = 'looped';
INSERT INTO events (ts, k) SELECT '2024-01-01 11:00+00', 'twin' FROM generate_series(1, 3);
INSERT INTO events (ts, k) VALUES ('2024-01-01 11:30+00', 'plain'), ('2024-01-01 12:30+00', NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams;
TABLE hourly ORDER BY hour, k;
SELECT count(*) AS n, count(DISTINCT id) AS ids, count(*) FILTER (WHERE k LIKE 'rolled back' OR k LIKE '%same%') AS wrong FROM everything;
SELECT k, count(*) FROM everything_once GROUP BY k;

-- late rows are kept as rows of the table, without the transaction
INSERT INTO events (ts, k) OVERRIDING SYSTEM VALUE VALUES ('2024-01-01 10:00+00', 'late');
SELECT wmstream.wait('hourly');
SELECT row_data - 'id' AS row_data FROM events_late;
INSERT INTO events (ts, k, v) SELECT l.ts + interval '1 day', l.k || ', back', l.v FROM events_late, jsonb_populate_record(NULL::events, row_data) l;

-- what happens to rows is not read
UPDATE events SET v = v + 1;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT count(*) - count(DISTINCT id) AS twice, count(*) FILTER (WHERE k = 'late, back') AS back FROM everything;
SELECT wmstream.create_stream('e', 'SELECT id FROM events', on_change => 'error');
SELECT wmstream.alter_stream('hourly', 'on_change', 'error');
SELECT stream, changed_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass;

-- not even by statements that may insert and update: each key came when it was inserted, as it was then
CREATE TABLE keyed (id int PRIMARY KEY, v int, note text DEFAULT 'none');
SELECT wmstream.create_queue('keyed', false);
SELECT wmstream.create_stream('of_keyed', 'SELECT id, v FROM keyed');
CREATE TABLE came AS SELECT id, v FROM keyed;
INSERT INTO keyed VALUES (1, 1), (2, 1);
INSERT INTO came VALUES (1, 1), (2, 1);
SELECT wmstream.wait('of_keyed');
INSERT INTO keyed VALUES (1, 2), (3, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
INSERT INTO came VALUES (3, 1);
SELECT wmstream.wait('of_keyed');
WITH sent AS (INSERT INTO keyed VALUES (1, 3), (4, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id)
INSERT INTO keyed SELECT id + 10, 1 FROM sent ON CONFLICT DO NOTHING;
INSERT INTO came VALUES (4, 1), (11, 1), (14, 1);
SELECT wmstream.wait('of_keyed');
MERGE INTO keyed USING (VALUES (1), (2), (5)) s (id) ON keyed.id = s.id WHEN MATCHED THEN UPDATE SET v = v + 1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 1);
INSERT INTO came VALUES (5, 1);
SELECT wmstream.wait('of_keyed');
PREPARE sent (int, int) AS INSERT INTO keyed VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET v = excluded.v, note = DEFAULT;
EXECUTE sent (1, 9);
EXECUTE sent (6, 1);
BEGIN;
EXECUTE sent (7, 1);
EXECUTE sent (7, 2);
COMMIT;
INSERT INTO came VALUES (6, 1), (7, 2);
SELECT wmstream.wait('of_keyed');
DO $$ BEGIN FOR i IN 6..9 LOOP INSERT INTO keyed VALUES (i, 3) ON CONFLICT (id) DO UPDATE SET v = excluded.v; COMMIT; END LOOP; END $$;
INSERT INTO came VALUES (8, 3), (9, 3);
SELECT wmstream.wait('of_keyed');
(TABLE of_keyed EXCEPT ALL TABLE came) UNION ALL (TABLE came EXCEPT ALL TABLE of_keyed);
SELECT id, v FROM keyed ORDER BY id;
-- a table that only looks like a queue is as it was
CREATE TABLE alike (id int PRIMARY KEY, x xid8, wm_xid xid8 GENERATED ALWAYS AS (x) STORED);
INSERT INTO alike VALUES (1, '5');
INSERT INTO alike VALUES (1, '6') ON CONFLICT (id) DO UPDATE SET x = excluded.x;
TABLE alike;
DROP TABLE alike, of_keyed;
DROP TABLE keyed;

-- one kind of source
CREATE TABLE ordinary (id int, ts timestamptz);
SELECT wmstream.create_stream('mixed', $$SELECT e.id FROM events e JOIN ordinary o ON o.id = e.id AND o.ts = e.ts WHERE wmstream.watermark(e.ts, '0') AND wmstream.watermark(o.ts, '0')$$);
SELECT wmstream.create_stream('unions', $$SELECT * FROM events WHERE wmstream.watermark(ts, '0') UNION ALL SELECT * FROM events WHERE wmstream.watermark(ts, '0')$$);
SELECT wmstream.create_stream('joined', $$SELECT e.id, e.ts, a.id AS other FROM events e JOIN asked a ON a.ts = e.ts WHERE wmstream.watermark(e.ts, '10 minutes') AND wmstream.watermark(a.ts, '10 minutes')$$);
BEGIN;
INSERT INTO asked VALUES (7, '2024-01-02 10:00+00');
INSERT INTO events (ts, k) VALUES ('2024-01-02 10:00+00', 'joined');
COMMIT;
SELECT wmstream.wait('joined');
SELECT ts, other FROM joined;
SELECT wmstream.create_queue('ordinary');
SELECT wmstream.drop_queue('ordinary');
SELECT wmstream.create_stream('of_ordinary', 'SELECT id FROM ordinary');
SELECT wmstream.create_queue('ordinary');
SELECT wmstream.drop_queue('events');

-- trim: rows that all had are gone, those of a stream that stands still stay
CREATE FUNCTION trimmed(queue regclass, expected bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	FOR i IN 1..3000 LOOP
		EXECUTE format('SELECT count(*) FROM %s', queue) INTO n;
		EXIT WHEN n = expected;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN n = expected;
END $$;
CREATE FUNCTION become(what text, expected bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	FOR i IN 1..3000 LOOP
		SELECT count(*) INTO n FROM wmstream.streams WHERE status = what;
		EXIT WHEN n = expected;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN n = expected;
END $$;
DROP TABLE joined;
SELECT trimmed('events', 0);
SELECT wmstream.pause('with_xid');
INSERT INTO events (ts, k) VALUES ('2024-01-02 12:00+00', 'kept for one');
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE status <> 'paused';
SELECT count(*) FROM events;
-- it holds no WAL, though the database has a slot
SELECT retained_wal_bytes, slot IS NOT NULL AS has_slot FROM wmstream.streams WHERE stream = 'with_xid'::regclass;
SELECT wmstream.resume('with_xid');
SELECT wmstream.wait('with_xid');
SELECT trimmed('events', 0);
SELECT count(*) FROM everything WHERE k = 'kept for one';

-- a queue whose index or column is gone
SELECT indexrelid::regclass AS index FROM pg_index WHERE indrelid = 'events'::regclass \gset
DROP INDEX :"index";
INSERT INTO events (ts, k) VALUES ('2024-01-02 12:01+00', 'without index');
SELECT wmstream.wait('everything');
SELECT become('failed', 4);
CREATE INDEX ON events (wm_xid);
SELECT wmstream.resume(stream) FROM wmstream.streams WHERE status = 'failed';
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT count(*) FROM everything WHERE k = 'without index';

-- the end: a queue dropped with its streams, or with the extension
DROP TABLE events CASCADE;
SELECT stream FROM wmstream.streams;
SELECT * FROM wmstream.queues ORDER BY queue::text;
SELECT count(*) > 0 AS stays FROM everything;
DROP EXTENSION wmstream;
SET client_min_messages = warning;
DROP EXTENSION wmstream CASCADE;
RESET client_min_messages;
\d "Old rows"
