-- Results, seen as tables: what is written of large ones, rows and columns of their owner, times at the ends of what a timestamp can be.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

-- Complete mode with a large answer: rows that stay as they are are not written. output_rows counts what is.
CREATE TABLE hits (page int, v int);
SELECT wmstream.create_stream('all_pages', 'SELECT page, count(*) AS n, sum(v) AS v FROM hits GROUP BY page', output_mode => 'complete');
SELECT wmstream.create_stream('best_pages', 'SELECT page, sum(v) AS v FROM hits GROUP BY page ORDER BY v DESC, page LIMIT 100', output_mode => 'complete');
INSERT INTO hits SELECT i % 30000, i % 97 FROM generate_series(0, 59999) i;
SELECT result, missing, surplus FROM oracle.compare('all_pages');
SELECT result, missing, surplus FROM oracle.compare('best_pages');
CREATE TABLE written AS SELECT stream, output_rows FROM wmstream.stat_streams;
INSERT INTO hits VALUES (5, 1), (5, 1), (29999, 0), (30000, 1);		-- three pages; none of the best
SELECT result, missing, surplus FROM oracle.compare('all_pages');
SELECT result, missing, surplus FROM oracle.compare('best_pages');
SELECT stream, s.output_rows - w.output_rows AS written FROM wmstream.stat_streams s JOIN written w USING (stream) ORDER BY stream::text;
INSERT INTO hits VALUES (7, 1000);	-- the best now: one comes, one goes
SELECT result, missing, surplus FROM oracle.compare('all_pages');
SELECT result, missing, surplus FROM oracle.compare('best_pages');
SELECT stream, s.output_rows - w.output_rows AS written FROM wmstream.stat_streams s JOIN written w USING (stream) WHERE stream = 'best_pages'::regclass;
-- a row deleted by hand, one changed, one put in: the next firing makes it right, and writes no more than that
DELETE FROM all_pages WHERE page = 11;
UPDATE all_pages SET n = 0 WHERE page = 12;
INSERT INTO all_pages VALUES (-1, 1, 1);
TRUNCATE written;
INSERT INTO written SELECT stream, output_rows FROM wmstream.stat_streams;
INSERT INTO hits VALUES (13, 1);
SELECT result, missing, surplus FROM oracle.compare('all_pages');
SELECT s.output_rows - w.output_rows AS written FROM wmstream.stat_streams s JOIN written w USING (stream) WHERE stream = 'all_pages'::regclass;

-- A result that was there: partitioned, with history, defaults, and columns of its owner; in each mode. Columns are added while it runs.
CREATE TABLE sales (ts timestamptz, region text, amount numeric);
CREATE TABLE results (name text, mode text);
INSERT INTO results VALUES ('appended', 'append'), ('updated', 'update'), ('completed', 'complete');
DO $$
DECLARE
	r results;
BEGIN
	FOR r IN SELECT * FROM results LOOP
		EXECUTE format($q$CREATE TABLE %I (note text DEFAULT 'none', region text, total numeric, hour timestamptz, loaded int GENERATED ALWAYS AS IDENTITY, n bigint) PARTITION BY RANGE (hour)$q$, r.name);
		EXECUTE format($q$CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (MINVALUE) TO ('2024-01-01 12:00+00')$q$, r.name || '_1', r.name);
		EXECUTE format($q$CREATE TABLE %I (n bigint, hour timestamptz, total numeric, region text, gone int, note text DEFAULT 'none', loaded int NOT NULL)$q$, r.name || '_2');
		EXECUTE format('ALTER TABLE %I DROP gone', r.name || '_2');
		EXECUTE format($q$ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM ('2024-01-01 12:00+00') TO (MAXVALUE)$q$, r.name, r.name || '_2');
		IF r.mode <> 'complete' THEN
			EXECUTE format($q$INSERT INTO %I (note, region, total, hour, n) VALUES ('history', 'east', 1, '2020-01-01 00:00+00', 1), ('history', NULL, 1, '2020-01-01 00:00+00', 1)$q$, r.name);
		END IF;
	END LOOP;
END $$;
SELECT wmstream.create_stream(name, $$
  SELECT lower(w) AS hour, region, count(*) AS n, sum(amount) AS total FROM sales, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, region
$$, output_mode => mode) FROM results ORDER BY name;
CREATE PROCEDURE sell(batches int, since timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..batches - 1 LOOP
		INSERT INTO sales SELECT since + batch * interval '37 minutes' - (n * 37 % 600) * interval '1 second', (ARRAY['east', 'west', NULL])[1 + (n + batch) % 3], n + batch FROM generate_series(1, 9) n;
		COMMIT;
	END LOOP;
END $$;
CALL sell(20, '2024-01-01 06:00+00');
SELECT wmstream.wait(name::regclass) FROM results;
ALTER TABLE appended ADD COLUMN extra int DEFAULT 1, ADD COLUMN half numeric GENERATED ALWAYS AS (total / 2) STORED;
ALTER TABLE updated ADD COLUMN extra int DEFAULT 1, ADD COLUMN half numeric GENERATED ALWAYS AS (total / 2) STORED;
ALTER TABLE completed ADD COLUMN extra int DEFAULT 1, ADD COLUMN half numeric GENERATED ALWAYS AS (total / 2) STORED;
CALL sell(20, '2024-01-01 18:20+00');
SELECT wmstream.advance_watermark(name::regclass, '2024-01-03 00:00+00') FROM results WHERE mode <> 'complete';
SELECT count(wmstream.wait(name::regclass)) FROM results;
SELECT name, d.* FROM results, oracle.differences('SELECT lower(w), region, count(*), sum(amount), ''none'', 1, sum(amount) / 2 FROM sales, wmstream.window(ts, ''1 hour'') AS w GROUP BY w, region',
	'SELECT hour, region, n, total, note, extra, half FROM ' || name || ' WHERE note <> ''history''') d ORDER BY name;
SELECT 'appended' AS name, count(*), count(DISTINCT tableoid) AS partitions, count(*) FILTER (WHERE note = 'history') AS history FROM appended UNION ALL
SELECT 'updated', count(*), count(DISTINCT tableoid), count(*) FILTER (WHERE note = 'history') FROM updated UNION ALL
SELECT 'completed', count(*), count(DISTINCT tableoid), count(*) FILTER (WHERE note = 'history') FROM completed;
SELECT late_rows, count(*) FROM wmstream.stat_streams GROUP BY 1;

-- Windows as expressions of the SELECT list, one row for each of them; functions in SQL and in PL.
CREATE FUNCTION doubled(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN $1 * 2;
CREATE FUNCTION rounded(numeric) RETURNS numeric LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN round($1, -1); END $$;
CREATE FUNCTION parts_of(text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$ SELECT unnest(regexp_split_to_array($1, '')) $$;
SELECT wmstream.create_stream('slid', $$
  SELECT lower(w) AS since, rounded(amount) AS about, sum(doubled(amount)) AS twice
  FROM   (SELECT wmstream.window(ts, '3 hours', '50 minutes', '7 minutes') AS w, amount FROM sales WHERE wmstream.watermark(ts, '10 minutes')) s GROUP BY w, rounded(amount)
$$);
SELECT wmstream.create_stream('cumulated', $$
  SELECT lower(w) AS since, upper(w) AS until, letter, count(*) AS n
  FROM   (SELECT wmstream.cumulate_window(ts, '20 minutes', '2 hours', '-5 minutes') AS w, region FROM sales WHERE wmstream.watermark(ts, '10 minutes')) s, parts_of(region) AS letter GROUP BY w, letter
$$);
TRUNCATE sales;
CALL sell(20, '2024-02-01 06:00+00');
SELECT result > 0 AS some, missing, surplus, live_missing, live_surplus FROM oracle.compare('slid', 'since + interval ''3 hours'' <= $1');
SELECT result > 0 AS some, missing, surplus, live_missing, live_surplus FROM oracle.compare('cumulated', 'until <= $1');

-- The ends of time: before Christ, and the last microsecond.
CREATE TABLE ages (id int, ts timestamptz, k int);
CREATE TABLE others (id int, ts timestamptz, k int);
CREATE TABLE tried (name text, query text);
INSERT INTO tried VALUES
('age_days', $$SELECT lower(w) AS since, k, count(*) AS n, min(id) AS first FROM ages, wmstream.window(ts, '1 day') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w, k$$),
('age_slid', $$SELECT w, count(*) AS n FROM ages, wmstream.window(ts, '3 days', '1 day') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w$$),
('age_parts', $$SELECT w, count(*) AS n FROM ages, wmstream.cumulate_window(ts, '1 day', '3 days') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w$$),
('age_moments', $$SELECT ts, count(*) AS n FROM ages WHERE wmstream.watermark(ts, '1 hour') GROUP BY ts$$),
('age_ticks', $$SELECT w, count(*) AS n FROM ages, wmstream.window(ts, '1 microsecond') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w$$),
('age_distinct', $$SELECT DISTINCT ts, k FROM ages WHERE wmstream.watermark(ts, '1 hour')$$),
('age_keys', $$SELECT DISTINCT k FROM ages WHERE wmstream.watermark(ts, '1000000 days')$$),
('age_pairs', $$SELECT a.id, b.id AS other FROM ages a FULL JOIN others b ON a.k = b.k AND b.ts BETWEEN a.ts - interval '1 hour' AND a.ts + interval '2 hours' WHERE wmstream.watermark(a.ts, '1 hour') AND wmstream.watermark(b.ts, '1 hour')$$),
('age_after', $$SELECT a.id, b.id AS other FROM ages a LEFT JOIN others b ON a.k = b.k AND b.ts <= a.ts + interval '2 hours' WHERE wmstream.watermark(a.ts, '1 hour') AND wmstream.watermark(b.ts, '1 hour')$$);
SELECT wmstream.create_stream(name, query) FROM tried ORDER BY name;
SELECT wmstream.create_stream('age_stays', $$SELECT lower(s) AS since, upper(s) AS until, k, count(*) AS n FROM ages, wmstream.session_window(ts, '1 hour') AS s WHERE wmstream.watermark(ts, '1 hour') GROUP BY s, k$$);
INSERT INTO ages SELECT n, timestamptz '4714-11-24 00:00+00 BC' + n * interval '20 minutes', n % 3 FROM generate_series(0, 40) n;
INSERT INTO others SELECT n, timestamptz '4714-11-24 00:10+00 BC' + n * interval '25 minutes', n % 3 FROM generate_series(0, 30) n;
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'age%';
INSERT INTO ages SELECT 100 + n, timestamptz '0001-01-01 00:00+00 BC' + n * interval '20 minutes', n % 3 FROM generate_series(0, 40) n;
INSERT INTO others SELECT 100 + n, timestamptz '0001-01-01 00:10+00 BC' + n * interval '25 minutes', n % 3 FROM generate_series(0, 30) n;
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'age%';
INSERT INTO ages SELECT 200 + n, timestamptz '294276-12-31 23:59:59.999999+00' - (40 - n) * interval '20 minutes', n % 3 FROM generate_series(0, 40) n;
INSERT INTO others SELECT 200 + n, timestamptz '294276-12-31 23:59:59.999999+00' - (30 - n) * interval '25 minutes', n % 3 FROM generate_series(0, 30) n;
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'age%';
SELECT stream, late_rows, no_time_rows, oracle.status(stream) FROM wmstream.stat_streams WHERE stream::text LIKE 'age%' ORDER BY stream::text;
SELECT name, result > 0 AS some, missing, surplus, live_missing, live_surplus FROM tried, oracle.compare(name::regclass, CASE name
	WHEN 'age_days' THEN 'since <= $1 - interval ''1 day''' WHEN 'age_moments' THEN 'ts < $1' WHEN 'age_slid' THEN 'upper(w) <= $1' WHEN 'age_parts' THEN 'upper(w) <= $1' WHEN 'age_ticks' THEN 'upper(w) <= $1'
	END) WHERE name NOT IN ('age_pairs', 'age_after') ORDER BY name;
-- (by hand, sums of times must not leave their range)
CREATE TABLE early AS SELECT * FROM ages WHERE id < 200;
CREATE TABLE early_others AS SELECT * FROM others WHERE id < 200;
SELECT name, d.* FROM tried, oracle.differences(replace(replace(replace(query, 'FROM ages', 'FROM early'), 'JOIN others', 'JOIN early_others'), 'BETWEEN a.ts - interval ''1 hour'' AND', '+ interval ''1 hour'' >= a.ts AND b.ts <='), format('SELECT * FROM %I WHERE coalesce(id, other) < 200', name)) d WHERE name IN ('age_pairs', 'age_after') ORDER BY name;
SELECT * FROM oracle.differences('SELECT since, until, k, n FROM age_stays', $$
	SELECT min(ts), max(ts) + interval '1 hour', k, count(*)
	FROM (SELECT *, sum(first) OVER (PARTITION BY k ORDER BY ts) AS stay
		  FROM (SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY k ORDER BY ts) + interval '1 hour' THEN 0 ELSE 1 END AS first FROM ages WHERE id < 200) c) c
	GROUP BY k, stay$$);
SELECT count(*), sum(n) FROM wmstream.open_windows(NULL::age_stays);
-- to the very end
SELECT count(wmstream.advance_watermark(stream, '294276-12-31 23:59:59.999999+00')) FROM wmstream.streams WHERE stream::text LIKE 'age%';
SELECT count(wmstream.wait(stream)) FROM wmstream.streams WHERE stream::text LIKE 'age%';
SELECT stream, oracle.status(stream), state_rows FROM wmstream.stat_streams WHERE stream::text LIKE 'age%' ORDER BY stream::text;
SELECT name, missing, surplus FROM tried, oracle.compare(name::regclass) WHERE name IN ('age_days', 'age_slid', 'age_parts', 'age_ticks', 'age_distinct') ORDER BY name;
