-- start_from => 'beginning': rows that are there already, of all kinds of streams and sources.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

-- Rows in no order: of one minute each, some without a time.
CREATE TABLE event (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v numeric);
INSERT INTO event (ts, k, v) SELECT timestamptz '2024-01-01 00:00+00' + (i * 7919 % 5000) * interval '1 min', 'k' || i % 3, i FROM generate_series(0, 4999) i;
INSERT INTO event (ts, k, v) VALUES (NULL, 'none', 1), ('infinity', 'none', 2);
CREATE TABLE click (ts timestamp, url text) PARTITION BY RANGE (ts);
CREATE TABLE click_a PARTITION OF click FOR VALUES FROM (MINVALUE) TO ('2024-01-02');
CREATE TABLE click_rest (url text, ts timestamp);
ALTER TABLE click ATTACH PARTITION click_rest DEFAULT;
INSERT INTO click SELECT timestamp '2024-01-01' + i * interval '10 min', 'u' || i % 5 FROM generate_series(1, 500) i;
ALTER TABLE click ADD COLUMN bytes int DEFAULT 100;

-- Not one row is late, though they come in no order.
SELECT wmstream.create_stream('tumbling', $$ SELECT lower(w) AS hour, k, sum(v) AS total, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w, k $$, start_from => 'beginning', late_table => 'aside');
SELECT wmstream.create_stream('sliding', $$ SELECT upper(w) AS until, count(*) AS n FROM event, wmstream.window(ts, '3 hours', '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w $$, start_from => 'beginning', trigger_interval => '1 day');
SELECT wmstream.create_stream('sessions', $$ SELECT lower(w) AS since, upper(w) AS until, url, count(*) AS n, sum(bytes) AS bytes FROM click, wmstream.session_window(ts, '15 min') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w, url $$, start_from => 'beginning');
SELECT wmstream.create_stream('updated', $$ SELECT lower(w) AS day, count(*) AS n FROM event, wmstream.window(ts, '1 day') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w $$, output_mode => 'update', start_from => 'beginning');
SELECT wmstream.create_stream('complete', $$ SELECT k, sum(v) AS total FROM event WHERE k <> 'none' GROUP BY k $$, output_mode => 'complete', start_from => 'beginning');
SELECT wmstream.create_stream('firsts', $$ SELECT DISTINCT ON (k) k, ts FROM event WHERE wmstream.watermark(ts, '1 day') $$, start_from => 'beginning');
SELECT wmstream.create_stream('pairs', $$ SELECT e.id, c.url FROM event e JOIN click c ON e.ts = c.ts AT TIME ZONE 'UTC' AND e.k = 'k' || right(c.url, 1)
  WHERE wmstream.watermark(e.ts, '0') AND wmstream.watermark(c.ts AT TIME ZONE 'UTC', '0') $$, start_from => 'beginning');
SELECT wmstream.create_stream('both', $$ SELECT lower(w) AS hour, count(*) AS n FROM
  (SELECT ts FROM event WHERE wmstream.watermark(ts, '0') UNION ALL SELECT ts AT TIME ZONE 'UTC' FROM click WHERE wmstream.watermark(ts AT TIME ZONE 'UTC', '0')) u,
  wmstream.window(ts, '1 hour') AS w GROUP BY w $$, start_from => 'beginning');
SELECT wmstream.create_stream('below', $$ SELECT lower(w) AS hour, count(*) AS n FROM (SELECT ts AT TIME ZONE 'UTC' + interval '1 s' AS later FROM event WHERE v > 10) e, wmstream.window(later, '1 hour') AS w
  WHERE wmstream.watermark(later, '0') GROUP BY w $$, start_from => 'beginning');
SELECT wmstream.create_stream('plain', $$ SELECT id, v * 2 AS double FROM event WHERE k NOT IN ('k1', 'none') $$, start_from => 'beginning');
CREATE TABLE nothing (ts timestamptz);
SELECT wmstream.create_stream('empty', $$ SELECT lower(w) AS hour, count(*) AS n FROM nothing, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w $$, start_from => 'beginning');
SELECT stream, wmstream.wait(stream) FROM wmstream.streams ORDER BY stream::text;
SELECT stream, s.status, s.reason, input_rows, late_rows, no_time_rows, watermark FROM wmstream.streams s JOIN wmstream.stat_streams USING (stream) ORDER BY stream::text;
SELECT * FROM wmstream.stat_progress;
SELECT reason, count(*) FROM aside GROUP BY 1;

-- the batch query has a group of rows without a time
DELETE FROM event WHERE k = 'none';
SELECT * FROM oracle.compare('tumbling', 'hour < $1 - interval ''59 min 59 s''');
SELECT missing, surplus FROM oracle.compare('updated');
SELECT missing, surplus FROM oracle.compare('complete');
SELECT missing, surplus FROM oracle.compare('pairs');
SELECT missing, surplus FROM oracle.compare('plain');
SELECT live_missing, live_surplus FROM oracle.compare('sliding');
SELECT live_missing, live_surplus FROM oracle.compare('both');
SELECT live_missing, live_surplus FROM oracle.compare('below');
TABLE updated ORDER BY day;
-- the first of a key is the earliest
SELECT k, ts FROM firsts ORDER BY k;
SELECT count(*), min(ts) FROM event WHERE k = 'k1';
SELECT url, n, bytes, count(*) FROM sessions GROUP BY url, n, bytes ORDER BY url, n;

-- What comes afterwards goes on from there.
INSERT INTO event (ts, k, v) SELECT timestamptz '2024-01-05 00:00+00' + i * interval '1 min', 'k' || i % 3, i FROM generate_series(0, 99) i;
INSERT INTO click SELECT timestamp '2024-01-05' + i * interval '10 min', 'u' || i % 5, i FROM generate_series(1, 50) i;
INSERT INTO nothing VALUES ('2024-01-01 00:00+00'), ('2024-01-01 01:00+00');
SELECT * FROM oracle.compare('tumbling', 'hour < $1 - interval ''59 min 59 s''');
SELECT missing, surplus FROM oracle.compare('plain');
SELECT live_missing, live_surplus FROM oracle.compare('both');
SELECT missing, surplus, live_missing, live_surplus FROM oracle.compare('empty', 'hour < $1 - interval ''59 min 59 s''');

-- A row that cannot be computed: the stream stops with it, or leaves it out, also where its time cannot be told.
SELECT wmstream.create_stream('ratio', 'SELECT id, 1 / v AS ratio FROM event', start_from => 'beginning');
SELECT wmstream.wait('ratio');
\echo :SQLSTATE
SELECT status, reason FROM wmstream.streams WHERE stream = 'ratio'::regclass;
CREATE TABLE number (id int GENERATED ALWAYS AS IDENTITY, seconds float8);
INSERT INTO number (seconds) VALUES (1704067200), ('NaN'), (1704070800), (1e30), (1704074400);
SELECT wmstream.create_stream('skipping', $$ SELECT lower(w) AS hour, count(*) AS n FROM number, wmstream.window(to_timestamp(seconds), '1 hour') AS w
  WHERE wmstream.watermark(to_timestamp(seconds), '0') GROUP BY w $$, start_from => 'beginning', on_error => 'skip', late_table => 'aside');
SELECT wmstream.wait('skipping');
TABLE skipping ORDER BY hour;
SELECT reason, error, row_data FROM aside WHERE stream = 'skipping'::regclass ORDER BY row_data ->> 'id';

-- Into a table with rows of its own: nothing of them is taken away.
CREATE TABLE history (hour timestamptz PRIMARY KEY, n bigint);
INSERT INTO history VALUES ('2023-12-31 00:00+00', 7), ('2023-12-31 01:00+00', 8);
SELECT wmstream.create_stream('history', $$ SELECT lower(w) AS hour, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w $$, start_from => 'beginning');
SELECT wmstream.wait('history');
SELECT count(*), sum(n), min(hour), max(hour) FROM history;

-- The result of another stream, which goes on.
SELECT wmstream.create_stream('over', 'SELECT id, double + 1 AS more FROM plain', start_from => 'beginning');
INSERT INTO event (ts, k, v) SELECT timestamptz '2024-01-06 00:00+00' + i * interval '1 min', 'k0', i FROM generate_series(0, 99) i;
SELECT wmstream.wait('plain');
SELECT missing, surplus, result FROM oracle.compare('over');

-- A queue table: what the snapshot saw, then what it did not see.
CREATE TABLE jobs (ts timestamptz, v int);
INSERT INTO jobs SELECT timestamptz '2024-01-01 00:00+00' + (i * 7919 % 500) * interval '1 min', i FROM generate_series(0, 499) i;
SELECT wmstream.create_queue('jobs');
SELECT wmstream.create_stream('from_queue', $$ SELECT lower(w) AS hour, count(*) AS n, sum(v) AS total FROM jobs, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w $$, start_from => 'beginning');
INSERT INTO jobs SELECT timestamptz '2024-01-01 08:20+00' + i * interval '1 min', i FROM generate_series(0, 99) i;
SELECT * FROM oracle.compare('from_queue', 'hour < $1 - interval ''59 min 59 s''');
INSERT INTO jobs SELECT timestamptz '2024-01-01 10:00+00' + i * interval '1 min', i FROM generate_series(0, 99) i;
SELECT * FROM oracle.compare('from_queue', 'hour < $1 - interval ''59 min 59 s''');
SELECT late_rows, input_rows FROM wmstream.stat_streams WHERE stream = 'from_queue'::regclass;
SELECT wmstream.drop_stream('from_queue');
SELECT wmstream.drop_queue('jobs');

-- Paused before it began, and gone before that.
BEGIN;
SELECT wmstream.create_stream('resting', 'SELECT id FROM event', start_from => 'beginning');
SELECT wmstream.pause('resting');
COMMIT;
SELECT status FROM wmstream.streams WHERE stream = 'resting'::regclass;
SELECT wmstream.resume('resting');
SELECT wmstream.wait('resting');
SELECT count(*), count(DISTINCT id) FROM resting;
BEGIN;
SELECT wmstream.create_stream('gone', 'SELECT id FROM event', start_from => 'beginning');
SELECT wmstream.drop_stream('gone', true);
COMMIT;
SELECT wmstream.create_stream('gone', 'SELECT id FROM event', start_from => 'beginning');
DROP TABLE gone;

SELECT wmstream.create_stream('s', 'SELECT id FROM event', start_from => 'end');
\echo :SQLSTATE
DROP EXTENSION wmstream;
DO $$ BEGIN FOR i IN 1..1000 LOOP EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots); PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT count(*) FROM pg_replication_slots;
