-- resync: who may, what is refused, what it does with results of every kind.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE event (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);
SELECT wmstream.create_stream('by_hour', $$ SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 min') GROUP BY w, k $$);
SELECT wmstream.create_stream('upper_only', $$ SELECT upper(w) AS until, count(*) AS n FROM event, wmstream.window(ts, '2 hours', '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 min') GROUP BY w $$, allowed_lateness => '1 hour');
SELECT wmstream.create_stream('as_range', $$ SELECT w, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 min') GROUP BY w $$, output_mode => 'update');
SELECT wmstream.create_stream('raw', $$ SELECT id, ts FROM event WHERE wmstream.watermark(ts, '10 min') $$);
SELECT wmstream.create_stream('plain', 'SELECT id, v FROM event');
SELECT wmstream.create_stream('complete', 'SELECT k, count(*) AS n FROM event GROUP BY k', output_mode => 'complete');
INSERT INTO event (ts, k, v) SELECT timestamptz '2024-01-01 00:00+00' + i * interval '7 min', 'k' || i % 2, i FROM generate_series(0, 99) i;
SELECT stream, wmstream.wait(stream) FROM wmstream.streams ORDER BY stream::text;

-- What a stream of a time shows is what tells which rows are before since.
UPDATE by_hour SET n = -1;
UPDATE upper_only SET n = -1;
UPDATE as_range SET n = -1;
UPDATE raw SET id = -1;
SELECT wmstream.resync('by_hour', '2024-01-01 03:00+00');
SELECT wmstream.resync('upper_only', '2024-01-01 03:00+00');
SELECT wmstream.resync('as_range', '2024-01-01 03:00+00');
SELECT wmstream.resync('raw', '2024-01-01 03:00+00');
SELECT stream, wmstream.wait(stream) FROM wmstream.streams ORDER BY stream::text;
SELECT max(hour) FILTER (WHERE n = -1) AS last_kept, min(hour) FILTER (WHERE n <> -1) AS first_new, count(*) FILTER (WHERE n = -1) AS kept FROM by_hour;
SELECT max(until) FILTER (WHERE n = -1) AS last_kept, min(until) FILTER (WHERE n <> -1) AS first_new, count(*) FILTER (WHERE n = -1) AS kept FROM upper_only;
SELECT max(lower(w)) FILTER (WHERE n = -1) AS last_kept, min(lower(w)) FILTER (WHERE n <> -1) AS first_new, count(*) FILTER (WHERE n = -1) AS kept FROM as_range;
SELECT max(ts) FILTER (WHERE id = -1) AS last_kept, min(ts) FILTER (WHERE id <> -1) AS first_new, count(*) FILTER (WHERE id = -1) AS kept FROM raw;

-- Without since all that the source has rows of; a row from before them stays.
INSERT INTO by_hour VALUES ('2023-12-31 00:00+00', 'old', 1, 1);
INSERT INTO plain VALUES (-7, -7);
INSERT INTO complete VALUES ('old', 1);
SELECT stream, wmstream.resync(stream) FROM wmstream.streams ORDER BY stream::text;
SELECT stream, wmstream.wait(stream) FROM wmstream.streams ORDER BY stream::text;
DELETE FROM by_hour WHERE k = 'old' RETURNING *;
SELECT * FROM oracle.compare('by_hour', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM oracle.compare('upper_only', 'until <= $1');
SELECT * FROM oracle.compare('as_range');
SELECT missing, surplus FROM oracle.compare('raw');
SELECT missing, surplus FROM oracle.compare('plain');
SELECT missing, surplus FROM oracle.compare('complete');
SELECT stream, input_rows, late_rows FROM wmstream.stat_streams ORDER BY stream::text;

-- The stream goes on, corrections within the allowed lateness too.
INSERT INTO event (ts, k, v) SELECT timestamptz '2024-01-01 11:20+00' + i * interval '7 min', 'k' || i % 2, i FROM generate_series(0, 49) i;
SELECT * FROM oracle.compare('by_hour', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM oracle.compare('upper_only', 'until <= $1');
SELECT missing, surplus FROM oracle.compare('as_range');

-- The zone's name in other date styles, IST say, is that of another zone too; a month may stand first or second.
SET TimeZone = 'Asia/Kolkata';
SET DateStyle = 'SQL, DMY';
SELECT wmstream.create_stream('elsewhere', $$ SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 min') GROUP BY w, k $$, start_from => 'beginning');
SELECT wmstream.wait('elsewhere');
RESET DateStyle;
RESET TimeZone;
UPDATE elsewhere SET n = -1;
SELECT wmstream.resync('elsewhere', '2024-01-01 03:00+00');
SELECT wmstream.wait('elsewhere');
SELECT max(hour) FILTER (WHERE n = -1) AS last_kept, min(hour) FILTER (WHERE n <> -1) AS first_new, count(*) FILTER (WHERE n = -1) AS kept FROM elsewhere;
SELECT wmstream.resync('elsewhere');
SELECT * FROM oracle.compare('elsewhere', 'hour + interval ''1 hour'' <= $1');
SELECT wmstream.drop_stream('elsewhere', true);

-- Refused.
SELECT wmstream.resync(NULL);
\echo :SQLSTATE
SELECT wmstream.resync('event');
\echo :SQLSTATE
SELECT wmstream.resync('plain', '2024-01-01 03:00+00');
\echo :SQLSTATE
SELECT wmstream.resync('complete', '2024-01-01 03:00+00');
\echo :SQLSTATE
SELECT wmstream.resync('by_hour', '-infinity');
\echo :SQLSTATE
CREATE ROLE somebody;
SET ROLE somebody;
SELECT wmstream.resync('by_hour');
\echo :SQLSTATE
RESET ROLE;
DROP ROLE somebody;
-- A definition that would be refused now.
CREATE OR REPLACE VIEW wmstream."public.plain" AS SELECT id, v FROM event LIMIT 5;
DO $$ BEGIN FOR i IN 1..1000 LOOP EXIT WHEN EXISTS (SELECT FROM wmstream.streams WHERE status = 'failed'); PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT stream, reason FROM wmstream.streams WHERE status = 'failed';
SELECT wmstream.resync('plain');
\echo :SQLSTATE
-- One that is another: rebuilt by it.
CREATE OR REPLACE VIEW wmstream."public.plain" AS SELECT id, v * 10 AS v FROM event;
INSERT INTO event (ts, k, v) VALUES ('2024-01-01 18:00+00', 'k', 1);
SELECT wmstream.resync('plain');
SELECT missing, surplus FROM oracle.compare('plain');
SELECT count(*), min(v), max(v) FROM plain;

-- Paused, resynced and dropped in one transaction; and rolled back.
BEGIN;
SELECT wmstream.pause('raw');
SELECT wmstream.resync('raw');
COMMIT;
SELECT missing, surplus FROM oracle.compare('raw');
BEGIN;
UPDATE raw SET id = -2;
SELECT wmstream.resync('raw');
ROLLBACK;
SELECT missing, surplus FROM oracle.compare('raw');
DROP EXTENSION wmstream;
