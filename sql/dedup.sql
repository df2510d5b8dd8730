-- DISTINCT over a stream: the first row of a key to arrive passes at once.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE COLLATION case_blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE readings (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, device text COLLATE case_blind, v numeric);

-- with the time among the keys, with its window, without the time but with a watermark, without a watermark
SELECT wmstream.create_stream('by_time', 'SELECT DISTINCT ts, device, v FROM readings WHERE wmstream.watermark(ts, ''10 minutes'')');
SELECT wmstream.create_stream('by_window', $$
  SELECT DISTINCT lower(w) AS hour, device FROM readings, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes')
$$);
SELECT wmstream.create_stream('within_delay', 'SELECT DISTINCT device, v FROM readings WHERE wmstream.watermark(ts, ''10 minutes'')', late_table => 'readings_late');
SELECT wmstream.create_stream('for_ever', 'SELECT DISTINCT device, v FROM readings');
SELECT wmstream.create_stream('first_rows', 'SELECT DISTINCT ON (device) device, id, v FROM readings');
SELECT wmstream.create_stream('first_of_hour', $$
  SELECT DISTINCT ON (w, device) lower(w) AS hour, device, id FROM readings, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes')
$$);
SELECT wmstream.create_stream('united', $$
  SELECT device, v FROM readings WHERE v > 2 AND wmstream.watermark(ts, NULL) UNION SELECT device, -v FROM readings WHERE v < 4 AND wmstream.watermark(ts, NULL)
$$);
-- UNION below UNION ALL, on either side of it; and above
SELECT wmstream.create_stream('united_first', $$
  (SELECT device, 1 AS v FROM readings WHERE v > 2 AND wmstream.watermark(ts, NULL) UNION SELECT device, 2 FROM readings WHERE v < 4 AND wmstream.watermark(ts, NULL))
  UNION ALL SELECT device, v FROM readings WHERE v = 3 AND wmstream.watermark(ts, NULL)
$$);
SELECT wmstream.create_stream('united_then', $$
  SELECT v FROM readings WHERE v = 3 AND wmstream.watermark(ts, NULL)
  UNION ALL (SELECT v FROM readings WHERE v > 2 AND wmstream.watermark(ts, NULL) UNION SELECT v FROM readings WHERE v < 4 AND wmstream.watermark(ts, NULL))
  UNION ALL (SELECT -v FROM readings WHERE v > 2 AND wmstream.watermark(ts, NULL) UNION SELECT -v FROM readings WHERE v < 4 AND wmstream.watermark(ts, NULL))
$$);
SELECT wmstream.create_stream('united_above', $$
  (SELECT v FROM readings WHERE v = 3 AND wmstream.watermark(ts, NULL) UNION ALL SELECT v FROM readings WHERE v > 2 AND wmstream.watermark(ts, NULL))
  UNION SELECT v FROM readings WHERE v < 4 AND wmstream.watermark(ts, NULL)
$$);
\d for_ever

INSERT INTO readings (ts, device, v) VALUES ('2024-01-01 10:00+00', 'a', 1), ('2024-01-01 10:00+00', 'A', 1.0), ('2024-01-01 10:01+00', 'a', 1.00), ('2024-01-01 10:00+00', NULL, NULL), ('2024-01-01 10:00+00', NULL, NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams;
TABLE for_ever ORDER BY device;
TABLE first_rows ORDER BY id;
TABLE by_time ORDER BY ts, device;
-- nothing is held back
SELECT count(*) FROM wmstream.open_windows(NULL::for_ever);

DO $$
BEGIN
	FOR batch IN 0..39 LOOP
		INSERT INTO readings (ts, device, v)
		SELECT timestamptz '2024-01-01 10:10+00' + batch * interval '7 minutes' - (n * 37 % 10) * interval '1 minute',
			   (ARRAY['a', 'A', 'b', 'B', NULL, 'c'])[1 + (n * 7 + batch) % 6], ((n * 31 + batch) % 6)::numeric
		FROM   generate_series(0, 20) n;
		COMMIT;
		PERFORM wmstream.wait('within_delay');	-- so that W moves between the transactions
	END LOOP;
END
$$;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT late_rows, count(*) FROM wmstream.stat_streams GROUP BY 1;
SELECT name, d.* FROM (VALUES
	('by_time', 'SELECT DISTINCT ts, device, v FROM readings'),
	('by_window', 'SELECT DISTINCT lower(wmstream.window(ts, ''1 hour'')), device FROM readings'),
	('for_ever', 'SELECT DISTINCT device, v FROM readings'),
	('first_rows', 'SELECT DISTINCT ON (device) device, id, v FROM readings ORDER BY device, id'),
	('first_of_hour', 'SELECT DISTINCT ON (wmstream.window(ts, ''1 hour''), device) lower(wmstream.window(ts, ''1 hour'')), device, id FROM readings ORDER BY wmstream.window(ts, ''1 hour''), device, id'),
	('united', 'SELECT device, v FROM readings WHERE v > 2 UNION SELECT device, -v FROM readings WHERE v < 4'),
	('united_first', 'SELECT definition.* FROM wmstream."public.united_first" definition'),
	('united_then', 'SELECT definition.* FROM wmstream."public.united_then" definition'),
	('united_above', 'SELECT definition.* FROM wmstream."public.united_above" definition')) t(name, query),
	oracle.differences(query, 'TABLE ' || name) d ORDER BY name;
-- without the time among the keys a key is forgotten when the first row's time and the delay have passed
SELECT count(*) > (SELECT count(*) FROM for_ever) AS again, count(*) < (SELECT count(*) FROM readings) AS fewer FROM within_delay;

-- One key, step by step: W must have passed the first row's time + delay; duplicates do not extend it.
TRUNCATE readings;
SELECT wmstream.create_stream('steps', 'SELECT DISTINCT device FROM readings WHERE wmstream.watermark(ts, ''10 minutes'')', late_table => 'steps_late');
CREATE PROCEDURE step(t timestamptz, d text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO readings (ts, device) VALUES (t, d);
	COMMIT;
	PERFORM wmstream.wait('steps');
	RAISE INFO '% %: % rows, W %', t, d, (SELECT count(*) FROM steps WHERE device = d), (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'steps'::regclass);
END $$;
CALL step('2024-02-01 10:00+00', 'x');
CALL step('2024-02-01 10:15+00', 'x');
CALL step('2024-02-01 10:20+00', 'x');
CALL step('2024-02-01 10:20:00.000001+00', 'x');
CALL step('2024-02-01 10:20:00.000002+00', 'x');
CALL step('2024-02-01 10:00+00', 'x');
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'steps'::regclass;

-- The state comes back from the log.
SELECT wmstream.pause(stream) FROM wmstream.streams;
SELECT DISTINCT oracle.status(stream) FROM wmstream.streams;
SELECT wmstream.resume(stream) FROM wmstream.streams;
INSERT INTO readings (ts, device, v) SELECT '2024-02-01 10:30+00', d, 1 FROM unnest('{a,b,NEW,new,x}'::text[]) d;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT count(*) FILTER (WHERE device = 'new') AS new, count(*) FILTER (WHERE device = 'x') AS x FROM first_rows;
SELECT count(*) FILTER (WHERE device = 'new') AS new, count(*) FILTER (WHERE device = 'x') AS x FROM steps;
-- keys with a time or a window leave with it
SELECT wmstream.advance_watermark(stream, '2024-03-01') FROM wmstream.streams WHERE stream::text IN ('by_time', 'by_window', 'within_delay', 'first_of_hour', 'steps');
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT stream, state_rows = 0 AS empty FROM wmstream.stat_streams ORDER BY stream::text;

-- Above it: an aggregate of different devices.
SELECT wmstream.create_stream('devices_per_hour', $$
  SELECT lower(w) AS hour, count(*) AS devices FROM (SELECT DISTINCT w, device FROM readings, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes')) d GROUP BY w
$$);
TRUNCATE readings;
INSERT INTO readings (ts, device) SELECT timestamptz '2024-04-01 00:00+00' + n * interval '7 minutes', chr(97 + n % 5) FROM generate_series(1, 100) n;
SELECT wmstream.wait('devices_per_hour');
SELECT * FROM oracle.differences($$SELECT lower(w), count(DISTINCT device) FROM readings, wmstream.window(ts, '1 hour') w
	WHERE upper(w) <= (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'devices_per_hour'::regclass) GROUP BY w$$, 'TABLE devices_per_hour');

-- A row whose hour is open may be older than the minutes that the groups above have closed: those wait for the hour.
CREATE TABLE visits (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz);
CREATE TABLE in_hours (name text, query text);
INSERT INTO in_hours VALUES
('in_hours_minutes', $$SELECT lower(minute) AS minute, count(*) AS n FROM (SELECT DISTINCT ON (hour, id) minute, hour, id
	FROM visits, wmstream.window(ts, '1 hour') AS hour, wmstream.window(ts, '1 minute') AS minute WHERE wmstream.watermark(ts, '0')) v GROUP BY minute$$),
('in_hours_times', $$SELECT lower(minute) AS minute, count(*) AS n FROM (SELECT DISTINCT ON (hour, id) ts, hour, id
	FROM visits, wmstream.window(ts, '1 hour') AS hour WHERE wmstream.watermark(ts, '0')) v, wmstream.window(ts, '1 minute') AS minute GROUP BY minute$$),
('in_hours_cumulated', $$SELECT since, until, count(*) AS n FROM (SELECT DISTINCT ON (lower(w), id) lower(w) AS since, upper(w) AS until, id
	FROM visits, wmstream.cumulate_window(ts, '1 minute', '1 hour') AS w, wmstream.window(ts, '1 minute') AS minute WHERE wmstream.watermark(ts, '0') AND upper(w) = upper(minute)) v GROUP BY since, until$$);
SELECT wmstream.create_stream(name, query) FROM in_hours ORDER BY name;
INSERT INTO visits (ts) SELECT timestamptz '2024-04-02 00:00+00' + n * interval '50 s' FROM generate_series(0, 40) n;
SELECT count(wmstream.wait(name::regclass)) FROM in_hours;
INSERT INTO visits (ts) SELECT timestamptz '2024-04-02 00:00+00' + n * interval '70 s' FROM generate_series(0, 20) n;
SELECT count(wmstream.wait(name::regclass)) FROM in_hours;
SELECT count(wmstream.advance_watermark(name::regclass, '2024-04-02 05:00+00')) FROM in_hours;
SELECT name, result > 0 AS some, missing, surplus FROM in_hours, oracle.compare(name::regclass) ORDER BY name;

-- Groups that close by the event time leave their window open: what is said of a window has to wait for it. Rows held for a window keep their
-- times, by which they are known above.
CREATE TABLE ticks (ts timestamptz);
CREATE TABLE beside_time (name text, query text);
INSERT INTO beside_time SELECT 'beside_' || name, query FROM (VALUES
('distinct', $$SELECT DISTINCT lower(w) AS hour, n FROM (SELECT w, ts, count(*) AS n FROM ticks, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, ts) g$$),
('first', $$SELECT DISTINCT ON (w) lower(w) AS hour, ts FROM (SELECT w, ts, count(*) AS n FROM ticks, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, ts) g ORDER BY w, ts DESC$$),
('ranks', $$SELECT ts, row_number() OVER (PARTITION BY w ORDER BY ts) AS r FROM (SELECT w, ts, count(*) AS n FROM ticks, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, ts) g$$),
('held', $$SELECT DISTINCT ts, r > 0 AS ranked FROM (SELECT ts, row_number() OVER (PARTITION BY w ORDER BY ts) AS r FROM ticks, wmstream.cumulate_window(ts, '1 hour', '3 hours') AS w WHERE wmstream.watermark(ts, '0')) g$$),
('held_groups', $$SELECT lower(w) AS part, count(*) AS n, max(r) AS most FROM (SELECT ts, row_number() OVER (PARTITION BY w ORDER BY ts) AS r FROM ticks, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0')) g, wmstream.window(ts, '10 minutes') AS w GROUP BY w$$)) v(name, query);
SELECT wmstream.create_stream(name, query) FROM beside_time ORDER BY name;
CREATE PROCEDURE tick(at text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ticks VALUES (('2024-04-03 ' || at || '+00')::timestamptz);
	COMMIT;
	PERFORM wmstream.wait(name::regclass) FROM beside_time;
END
$$;
CALL tick('00:00');
CALL tick('00:10');
CALL tick('00:20');
CALL tick('02:00');
CALL tick('04:00');
CALL tick('06:00');
CALL tick('06:01');
SELECT count(wmstream.advance_watermark(name::regclass, '2024-04-04 00:00+00')) FROM beside_time;
SELECT name, result > 0 AS some, missing, surplus FROM beside_time, oracle.compare(name::regclass) ORDER BY name;

-- What a key costs, every one at a time of its own: no more than a small row of a table. And it leaves.
CREATE TABLE many (ts timestamptz, key int);
SELECT wmstream.create_stream('many_within', 'SELECT DISTINCT key FROM many WHERE wmstream.watermark(ts, ''1 hour'')');
SELECT wmstream.create_stream('many_times', 'SELECT DISTINCT ts, key FROM many WHERE wmstream.watermark(ts, ''1 hour'')');
SELECT wmstream.create_stream('many_per_day', 'SELECT DISTINCT lower(w) AS day, key FROM many, wmstream.window(ts, ''1 day'') AS w WHERE wmstream.watermark(ts, ''1 hour'')');
INSERT INTO many SELECT timestamptz '2024-05-01 00:00+00' + n * interval '10 ms', n FROM generate_series(1, 100000) n;
INSERT INTO many SELECT timestamptz '2024-05-01 00:00+00' + n * interval '10 ms', n FROM generate_series(1, 100000, 7) n;
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'many%';
SELECT stream, state_rows, state_bytes / state_rows < CASE stream::text WHEN 'many_per_day' THEN 150 ELSE 260 END AS small FROM wmstream.stat_streams WHERE stream::text LIKE 'many%' ORDER BY stream::text;
SELECT count(*), count(DISTINCT key) FROM many_within;
INSERT INTO many VALUES ('2024-05-01 02:10+00', 0);
SELECT wmstream.wait('many_within');
-- forgotten are those of the first ten minutes
INSERT INTO many VALUES ('2024-05-01 02:10+00', 0), ('2024-05-01 01:30+00', 1), ('2024-05-01 01:30+00', 59999), ('2024-05-01 01:30+00', 60000), ('2024-05-01 01:30+00', 99999);
SELECT wmstream.wait('many_within');
SELECT key, count(*) FROM many_within WHERE key IN (0, 1, 59999, 60000, 99999) GROUP BY key ORDER BY key;
SELECT state_rows BETWEEN 40000 AND 42000 AS few FROM wmstream.stat_streams WHERE stream = 'many_within'::regclass;

-- What is refused.
SELECT wmstream.create_stream('s', 'SELECT DISTINCT device FROM readings', output_mode => 'complete');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT sum(v) AS v FROM (SELECT DISTINCT device, v FROM readings) d', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT DISTINCT ON (device) device, v FROM readings ORDER BY device, v');
\echo :SQLSTATE
