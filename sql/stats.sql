-- What the views tell of a stream, held against what it did.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
SET client_min_messages = warning;
CREATE TABLE a (ts timestamptz, k int, v int);
CREATE TABLE b (ts timestamptz, k int, v int);
CREATE FUNCTION wait_all() RETURNS bigint LANGUAGE sql AS 'SELECT count(wmstream.wait(stream)) FROM wmstream.streams';

-- before any batch with rows
SELECT wmstream.create_stream('hourly', $$
  SELECT lower(w) AS hour, k, sum(v) AS v, count(*) AS n FROM a, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') AND v > 0 GROUP BY w, k
$$);
SELECT wmstream.wait('hourly');
SELECT stream, operator, kind, input_rows, late_rows, output_rows, watermark, windows, state_rows, kept_rows, state_bytes, time_ms >= 0 AS timed FROM wmstream.stat_operators;
SELECT input_rows, rows_per_second, state_rows, next_close FROM wmstream.stat_streams;

-- one operator: rows that WHERE leaves, rows too late, groups in memory, groups given away
INSERT INTO a VALUES ('2024-01-01 10:00+00', 1, 1), ('2024-01-01 10:10+00', 2, 1), ('2024-01-01 10:20+00', 2, 0), ('2024-01-01 11:30+00', 1, 1), ('2024-01-01 12:50+00', 1, 1);
SELECT wmstream.wait('hourly');
INSERT INTO a VALUES ('2024-01-01 10:05+00', 1, 1), (NULL, 1, 1), ('2024-01-01 10:05+00', 1, -1), ('2024-01-01 12:10+00', 2, 1);
SELECT wmstream.wait('hourly');
SELECT operator, kind, input_rows, late_rows, output_rows, watermark, windows, state_rows, kept_rows, state_bytes > 0 AS has_bytes, time_ms > 0 AS timed FROM wmstream.stat_operators;
SELECT input_rows, rows_per_second > 0 AS flows, late_rows, no_time_rows, output_rows, watermark, max_event_time, next_close, state_rows, state_bytes > 0 AS has_bytes, log_bytes > 0 AS has_log FROM wmstream.stat_streams;

-- all kinds, and several on top of each other
SELECT wmstream.create_stream('sliding', $$
  SELECT lower(w) AS since, count(*) AS n FROM a, wmstream.window(ts, '1 hour', '10 minutes') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
SELECT wmstream.create_stream('medians', $$
  SELECT lower(w) AS since, percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS median FROM a, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
SELECT wmstream.create_stream('visits', $$
  SELECT k, lower(s) AS since, upper(s) AS until, count(*) AS n FROM a, wmstream.session_window(ts, '5 minutes') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, k
$$);
SELECT wmstream.create_stream('top_one', $$
  SELECT * FROM (SELECT lower(w) AS since, k, v, row_number() OVER (PARTITION BY w ORDER BY v DESC, k) AS place FROM a, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0')) AS ranked WHERE place = 1
$$);
SELECT wmstream.create_stream('firsts', 'SELECT DISTINCT ts, k FROM a WHERE wmstream.watermark(ts, ''0'')');
SELECT wmstream.create_stream('pairs', $$
  SELECT a.k, a.ts AS a_ts, b.ts AS b_ts FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval '1 hour' WHERE wmstream.watermark(a.ts, '0') AND wmstream.watermark(b.ts, '0')
$$);
SELECT wmstream.create_stream('chained', $$
  SELECT lower(w2) AS since, sum(n) AS n FROM (SELECT w, k, count(*) AS n FROM a, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k) AS small,
  wmstream.window(w, '1 hour') AS w2 GROUP BY w2
$$);
SELECT wmstream.create_stream('running', $$
  SELECT lower(w) AS since, count(*) AS n FROM a, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$, output_mode => 'update');
SELECT wmstream.create_stream('copied', 'SELECT ts FROM a WHERE wmstream.watermark(ts, ''0'')');
SELECT wait_all();
INSERT INTO a VALUES ('2024-01-02 10:00+00', 1, 1), ('2024-01-02 10:01+00', 1, 2), ('2024-01-02 10:00+00', 1, 3), ('2024-01-02 10:02+00', 2, 4), ('2024-01-02 10:31+00', 2, 5);
SELECT wait_all();
INSERT INTO b VALUES ('2024-01-02 10:30+00', 1, 1), ('2024-01-02 10:31+00', 2, 2);
SELECT wait_all();
-- late for some: before 10:31 for raw times and sessions, before 10:00 for hours
INSERT INTO a VALUES ('2024-01-02 10:20+00', 3, 6), ('2024-01-02 09:10+00', 3, 7);
SELECT wait_all();
INSERT INTO a VALUES ('2024-01-02 11:05+00', 3, 8);
SELECT wait_all();
SELECT stream, operator, kind, input_rows, late_rows, output_rows, watermark, windows, state_rows, kept_rows, state_bytes > 0 OR state_rows = 0 AS has_bytes, time_ms > 0 AS timed
FROM wmstream.stat_operators WHERE stream <> 'hourly'::regclass ORDER BY stream::text, operator;
SELECT stream, input_rows, late_rows, output_rows, state_rows FROM wmstream.stat_streams ORDER BY stream::text;
SELECT stream, source, rows, max_event_time, watermark, idle FROM wmstream.stat_sources WHERE stream IN ('pairs'::regclass, 'chained'::regclass) ORDER BY 1, 2;
-- numbers are those of explain
SELECT line FROM wmstream.explain('chained'::regclass) AS line WHERE line LIKE 'Operator%';

-- time by phase, where the time is known: 0.2 s in the rows, in the groups, in the result's trigger
CREATE FUNCTION slowly(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN $1; END $$;
CREATE FUNCTION slow_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$;
CREATE TABLE c (ts timestamptz, v int);
SELECT wmstream.create_stream('slow_rows', 'SELECT lower(w) AS hour, count(*) AS n FROM c, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') AND slowly(v) > 0 GROUP BY w');
SELECT wmstream.create_stream('slow_groups', 'SELECT lower(w) AS hour, count(*) AS n FROM c, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w HAVING slowly(count(*)::int) > 0');
SELECT wmstream.create_stream('slow_sink', 'SELECT lower(w) AS hour, count(*) AS n FROM c, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w');
CREATE TRIGGER slow_sink BEFORE INSERT ON slow_sink FOR EACH ROW EXECUTE FUNCTION slow_trigger();
SELECT wait_all();
INSERT INTO c VALUES ('2024-01-01 10:00+00', 1), ('2024-01-01 11:00+00', 2);
SELECT wait_all();
SELECT stream, CASE stream::text WHEN 'slow_rows' THEN feed_ms >= 400 WHEN 'slow_groups' THEN fire_ms >= 200 ELSE sink_ms >= 200 END AS told,
	greatest(feed_ms, fire_ms, sink_ms, commit_ms) = CASE stream::text WHEN 'slow_rows' THEN feed_ms WHEN 'slow_groups' THEN fire_ms ELSE sink_ms END AS longest,
	feed_ms + fire_ms + sink_ms + commit_ms < 60000 AS plausible, last_batch_at > now() - interval '1 hour' AS recent
FROM wmstream.stat_streams WHERE stream::text LIKE 'slow%' ORDER BY stream::text;
SELECT stream, time_ms >= 400 AS rows_are_slow FROM wmstream.stat_operators WHERE stream::text LIKE 'slow%' ORDER BY stream::text;

-- the figures of operators go on when a stream is altered, paused and resumed; state that is not in memory takes none
SELECT wmstream.alter_stream('running', 'trigger_interval', '1 ms');
SELECT wait_all();
SELECT input_rows, output_rows FROM wmstream.stat_operators WHERE stream = 'running'::regclass;
SELECT wmstream.pause('running');
DO $$ BEGIN WHILE (SELECT status FROM wmstream.streams WHERE stream = 'running'::regclass) <> 'paused' OR (SELECT state_bytes > 0 FROM wmstream.stat_streams WHERE stream = 'running'::regclass) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT s.state_bytes, o.state_bytes, o.input_rows, o.output_rows FROM wmstream.stat_operators AS o JOIN wmstream.stat_streams AS s USING (stream) WHERE stream = 'running'::regclass;
-- what stands still holds WAL and is behind
INSERT INTO a VALUES ('2024-01-02 11:06+00', 3, 8);
SELECT wmstream.wait('hourly');
SELECT status, retained_wal_bytes BETWEEN 1 AND 1e9 AS holds, catalog_xmin_age BETWEEN 0 AND 1e6 AS has_age, lag_bytes > 0 AS behind, lag_seconds BETWEEN 0.000001 AND 3600 AS old
FROM wmstream.streams JOIN wmstream.stat_streams USING (stream) WHERE stream = 'running'::regclass;
SELECT source, last_seen_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS seen FROM wmstream.stat_sources WHERE stream = 'hourly'::regclass;
SELECT wmstream.resume('running');
SELECT wait_all();
SELECT state_bytes > 0 AS has_bytes, input_rows, output_rows, state_rows FROM wmstream.stat_operators WHERE stream = 'running'::regclass;

-- what the figures are of is right, too
SELECT result > 0 AS some, missing, surplus FROM oracle.compare('copied', 'ts >= ''2024-01-02 00:00+00''');
SELECT result > 0 AS some, missing, surplus FROM oracle.compare('slow_sink', 'hour + interval ''1 hour'' <= $1');
SELECT s.stream, input_rows = (SELECT count(*) FROM c) AS all_counted FROM wmstream.stat_streams s WHERE stream::text LIKE 'slow%' ORDER BY stream::text;

-- figures are for the owner, members of the role, and pg_monitor
CREATE ROLE stats_other;
CREATE ROLE stats_monitor IN ROLE pg_monitor;
SET ROLE stats_other;
SELECT stream, operator, kind, input_rows, late_rows, output_rows, watermark, windows, state_rows, kept_rows, state_bytes, time_ms FROM wmstream.stat_operators WHERE stream::text = 'hourly';
SELECT input_rows, rows_per_second, state_rows, feed_ms FROM wmstream.stat_streams WHERE stream::text = 'hourly';
SET ROLE stats_monitor;
SELECT stream, operator, input_rows FROM wmstream.stat_operators WHERE stream::text = 'hourly';
RESET ROLE;
DROP ROLE stats_other, stats_monitor;
SELECT wmstream.drop_stream('chained');
SELECT count(*) FROM wmstream.stat_operators WHERE stream = 'chained'::regclass;
