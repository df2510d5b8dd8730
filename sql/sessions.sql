-- Session windows: rows of a key that are not further apart than the gap.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

-- The oracle: gaps and islands.  A row begins a session if it comes more than the gap after all that came before (of its key).
CREATE TABLE clicks (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, ts timestamptz, who text, v int, gap interval);
CREATE FUNCTION sessions(gap_of text DEFAULT 'interval ''5 minutes''') RETURNS TABLE (since timestamptz, until timestamptz, who text, n bigint, v bigint, ids int[]) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		SELECT min(ts), max(ts + gap), who, count(*), sum(v)::bigint, array_agg(id ORDER BY id)
		FROM (SELECT *, count(*) FILTER (WHERE starts) OVER (PARTITION BY who ORDER BY ts, id) AS nr
			  FROM (SELECT *, ts > max(ts + gap) OVER (PARTITION BY who ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) IS NOT FALSE AS starts
					FROM (SELECT id, ts, who, v, %s AS gap FROM clicks WHERE isfinite(ts)) c WHERE gap > '0') c) c
		GROUP BY who, nr$q$, gap_of);
END $$;

SELECT wmstream.create_stream('visits', $$
  SELECT lower(s) AS since, upper(s) AS until, who, count(*) AS n, sum(v) AS v, array_agg(id ORDER BY id) AS ids
  FROM   clicks, wmstream.session_window(ts, '5 minutes') AS s
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY s, who
$$, late_table => 'clicks_late');
\d visits
SELECT wmstream.create_stream('by_gap', $$
  SELECT lower(s) AS since, upper(s) AS until, who, count(*) AS n, sum(v)::bigint AS v, array_agg(id ORDER BY id) AS ids
  FROM   clicks, wmstream.session_window(ts, gap) AS s
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY s, who
$$);
SELECT wmstream.create_stream('long_visits', $$
  SELECT s, who, upper(s) - lower(s) AS length, max(v) AS greatest
  FROM   clicks, wmstream.session_window(ts, '5 minutes') AS s
  WHERE  wmstream.watermark(ts, '10 minutes') AND v IS NOT NULL
  GROUP  BY s, who HAVING count(*) > 2
$$);
SELECT wmstream.create_stream('all_visits', $$
  SELECT lower(s) AS since, upper(s) AS until, who, count(*) AS n
  FROM   clicks, wmstream.session_window(ts, '5 minutes') AS s
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY s, who
$$, output_mode => 'complete');

-- Rows that touch belong together, whichever comes first; a row between two sessions makes them one.
INSERT INTO clicks (ts, who, v, gap) VALUES ('2024-01-01 10:00+00', 'a', 1, '5 minutes'), ('2024-01-01 10:05+00', 'a', 2, '1 minute'), ('2024-01-01 10:00+00', 'b', 3, '1 hour'), ('2024-01-01 10:10:00.000001+00', 'a', 4, '5 minutes');
SELECT wmstream.wait('visits');
SELECT since, until, who, n FROM wmstream.open_windows(NULL::visits) ORDER BY who, since;
INSERT INTO clicks (ts, who, v, gap) VALUES ('2024-01-01 10:07+00', 'a', 5, '5 minutes');
SELECT wmstream.wait('visits');
SELECT since, until, who, n FROM wmstream.open_windows(NULL::visits) ORDER BY who, since;
-- times that are none, and gaps that are none
INSERT INTO clicks (ts, who, v, gap) VALUES (NULL, 'a', 1, '5 minutes'), ('infinity', 'a', 1, '5 minutes'), ('2024-01-01 10:08+00', 'b', 1, NULL), ('2024-01-01 10:08+00', 'b', 1, '0'), ('2024-01-01 10:08+00', 'b', 1, '-1 s');
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT stream, no_time_rows, bad_gap_rows, late_rows FROM wmstream.stat_streams ORDER BY stream::text;

DO $$
BEGIN
	FOR batch IN 0..39 LOOP
		-- as late as the delay, and so never late
		INSERT INTO clicks (ts, who, v, gap)
		SELECT timestamptz '2024-01-01 11:00+00' + batch * interval '7 minutes' - (n * 37 % 600) * interval '1 second',
			   (ARRAY['a', 'b', 'c', NULL, 'd'])[1 + (n * batch) % 5], nullif(n, 3), (1 + (n * 13 + batch) % 9) * interval '1 minute'
		FROM   generate_series(0, (batch * 7) % 4) n;
		COMMIT;
	END LOOP;
END
$$;
SELECT wmstream.wait(stream) FROM wmstream.streams;
\set w '(SELECT watermark FROM wmstream.stat_streams WHERE stream = ''visits''::regclass)'
SELECT * FROM oracle.differences('SELECT * FROM sessions() WHERE until <= ' || :'w', 'TABLE visits');
SELECT * FROM oracle.differences('SELECT * FROM sessions()', 'SELECT * FROM wmstream.live(NULL::visits)');
SELECT * FROM oracle.differences('SELECT * FROM sessions(''gap'') WHERE until <= ' || :'w', 'TABLE by_gap');
SELECT * FROM oracle.differences('SELECT * FROM sessions(''gap'')', 'SELECT * FROM wmstream.live(NULL::by_gap)');
SELECT * FROM oracle.differences('SELECT since, until, who, n FROM sessions()', 'TABLE all_visits');
SELECT count(*) > 3 AS some, bool_and(length >= interval '5 minutes') AS long FROM long_visits;
SELECT stream, late_rows FROM wmstream.stat_streams ORDER BY stream::text;

-- The state comes back from the log; everything closes in the end.
SELECT wmstream.pause(stream) FROM wmstream.streams;
SELECT DISTINCT oracle.status(stream) FROM wmstream.streams;
INSERT INTO clicks (ts, who, v, gap) VALUES ('2024-01-01 15:33+00', 'a', 1, '3 minutes'), ('2024-01-01 15:34+00', NULL, 1, '3 minutes');
SELECT wmstream.resume(stream) FROM wmstream.streams;
SELECT wmstream.advance_watermark(stream, '2024-01-02 00:00+00') FROM wmstream.streams;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM oracle.differences('SELECT * FROM sessions()', 'TABLE visits');
SELECT * FROM oracle.differences('SELECT * FROM sessions(''gap'')', 'TABLE by_gap');
SELECT * FROM oracle.differences('SELECT since, until, who, n FROM sessions()', 'TABLE all_visits');
SELECT stream, state_rows = 0 AS empty FROM wmstream.stat_streams ORDER BY stream::text;

-- Late: a row whose own session has ended by W, unless an open one takes it in.
INSERT INTO clicks (ts, who, v) VALUES ('2024-01-02 00:04+00', 'e', 1);	-- W is 2024-01-02 00:00
SELECT wmstream.wait('visits');
INSERT INTO clicks (ts, who, v) VALUES ('2024-01-01 23:59+00', 'e', 2), ('2024-01-01 23:55+00', 'e', 3), ('2024-01-01 23:55+00', 'f', 4), ('2024-01-01 23:55:00.000001+00', 'g', 5);
SELECT wmstream.wait('visits');
SELECT since, until, who, v FROM wmstream.open_windows(NULL::visits) ORDER BY who;
SELECT reason, row_data ->> 'who' AS who, row_data ->> 'v' AS v FROM clicks_late WHERE reason = 'late';

-- With allowed lateness a session that grows replaces the rows that it swallows.
SELECT wmstream.create_stream('patient', $$
  SELECT lower(s) AS since, upper(s) AS until, who, count(*) AS n FROM clicks, wmstream.session_window(ts, '5 minutes') AS s
  WHERE  wmstream.watermark(ts, '0') GROUP BY s, who
$$, allowed_lateness => '1 hour');
INSERT INTO clicks (ts, who) VALUES ('2024-02-01 10:00+00', 'a'), ('2024-02-01 10:08+00', 'a'), ('2024-02-01 10:30+00', 'b');
SELECT wmstream.wait('patient');
TABLE patient ORDER BY since;
INSERT INTO clicks (ts, who) VALUES ('2024-02-01 10:04+00', 'a');
SELECT wmstream.wait('patient');
TABLE patient ORDER BY since;

-- Above the operator a session is a window that has ended.  Only its end says when: a session that grows begins long before it goes out.
CREATE TABLE steps (ts timestamptz, who text);
CREATE VIEW walks AS SELECT s, who, count(*) AS n FROM steps, wmstream.session_window(ts, '5 minutes') AS s WHERE wmstream.watermark(ts, '1 minute') GROUP BY s, who;
SELECT wmstream.create_stream('walked', 'SELECT lower(s) AS since, upper(s) AS until, who, n FROM walks');
SELECT wmstream.create_stream('starts', 'SELECT DISTINCT lower(s) AS since, who FROM walks');
SELECT wmstream.create_stream('ends', 'SELECT DISTINCT a.who, upper(a.s) AS until FROM walks a JOIN walks b ON a.s = b.s AND a.n = b.n');
SELECT wmstream.create_stream('pairs', 'SELECT a.who, b.who AS other, lower(a.s) AS since, b.s FROM walks a JOIN walks b ON lower(a.s) = lower(b.s) AND a.who <> b.who');
SELECT wmstream.create_stream('others', 'SELECT a.who, b.who AS other, a.s, b.s AS same FROM walks a LEFT JOIN walks b ON a.s = b.s AND a.who <> b.who');
SELECT wmstream.create_stream('groups', 'SELECT lower(s) AS since, upper(s) AS until, count(*) AS n, sum(n) AS steps FROM walks GROUP BY s');
\d groups
SELECT wmstream.create_stream('by_bounds', 'SELECT lower(s) AS since, upper(s) AS until, string_agg(who, '','' ORDER BY who) AS who FROM walks GROUP BY lower(s), upper(s)');
SELECT wmstream.create_stream('beginnings', 'SELECT lower(s) AS since, n, count(*) AS walks FROM walks GROUP BY s, n');
SELECT wmstream.create_stream('places', 'SELECT s, who, rank() OVER (PARTITION BY s ORDER BY n DESC) AS place FROM (SELECT a.s, a.who, a.n FROM walks a JOIN walks b ON a.s = b.s AND a.who = b.who) x');
SELECT wmstream.create_stream('hours', 'SELECT lower(h) AS hour, count(*) AS n FROM (SELECT a.s FROM walks a JOIN walks b ON a.s = b.s AND a.who = b.who) x, wmstream.window(x.s, ''1 hour'') AS h GROUP BY h');
SELECT wmstream.create_stream('s', 'SELECT a.who FROM walks a LEFT JOIN walks b ON a.who = b.who AND lower(a.s) = lower(b.s)');
SELECT wmstream.create_stream('s', 'SELECT lower(s) AS since, count(*) AS n FROM walks GROUP BY lower(s)');
-- each a batch of its own
INSERT INTO steps VALUES ('2024-03-01 10:00+00', 'a'), ('2024-03-01 10:00+00', 'b'), ('2024-03-01 10:00+00', 'c');
DO 'BEGIN PERFORM wmstream.wait(stream) FROM wmstream.streams; END';
INSERT INTO steps VALUES ('2024-03-01 10:04+00', 'a'), ('2024-03-01 10:04+00', 'b');
DO 'BEGIN PERFORM wmstream.wait(stream) FROM wmstream.streams; END';
INSERT INTO steps VALUES ('2024-03-01 10:08+00', 'a'), ('2024-03-01 10:08+00', 'b');
DO 'BEGIN PERFORM wmstream.wait(stream) FROM wmstream.streams; END';
INSERT INTO steps VALUES ('2024-03-01 10:12+00', 'a');
DO 'BEGIN PERFORM wmstream.wait(stream) FROM wmstream.streams; END';
INSERT INTO steps VALUES ('2024-03-01 10:30+00', 'b'), ('2024-03-01 10:30+00', 'c'), ('2024-03-01 12:00+00', 'd');
DO 'BEGIN PERFORM wmstream.wait(stream) FROM wmstream.streams; END';
TABLE walked ORDER BY since, until, who;
TABLE starts ORDER BY since, who;
SELECT * FROM oracle.differences('SELECT DISTINCT since, who FROM walked', 'TABLE starts');
SELECT * FROM oracle.differences('SELECT DISTINCT who, until FROM walked', 'TABLE ends');
SELECT * FROM oracle.differences('SELECT a.who, b.who, a.since, tstzrange(b.since, b.until) FROM walked a JOIN walked b ON a.since = b.since AND a.who <> b.who', 'TABLE pairs');
SELECT * FROM oracle.differences('SELECT a.who, b.who, tstzrange(a.since, a.until), CASE WHEN b.who IS NOT NULL THEN tstzrange(b.since, b.until) END FROM walked a LEFT JOIN walked b ON a.since = b.since AND a.until = b.until AND a.who <> b.who', 'TABLE others');
SELECT * FROM oracle.differences('SELECT since, until, count(*), sum(n) FROM walked GROUP BY since, until', 'TABLE groups');
SELECT * FROM oracle.differences('SELECT since, until, string_agg(who, '','' ORDER BY who) FROM walked GROUP BY since, until', 'TABLE by_bounds');
SELECT * FROM oracle.differences('SELECT since, n, count(*) FROM walked GROUP BY since, until, n', 'TABLE beginnings');
SELECT * FROM oracle.differences('SELECT tstzrange(since, until), who, rank() OVER (PARTITION BY since, until ORDER BY n DESC) FROM walked', 'TABLE places');
SELECT * FROM oracle.differences('SELECT date_trunc(''hour'', until - interval ''1 us''), count(*) FROM walked GROUP BY 1', 'TABLE hours');
SELECT stream, late_rows FROM wmstream.stat_streams WHERE late_rows > 0 AND stream IN ('walked'::regclass, 'starts', 'ends', 'pairs', 'others', 'groups', 'by_bounds', 'beginnings', 'places', 'hours');

-- What is refused.
SELECT wmstream.create_stream('s', 'SELECT who, lower(s) AS since, count(*) AS n FROM clicks, wmstream.session_window(ts, ''1 minute'') AS s WHERE wmstream.watermark(ts, ''0'') GROUP BY s, who', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(s) AS since, count(*) AS n FROM clicks, wmstream.session_window(ts, ''1 minute'') AS s WHERE wmstream.watermark(ts, ''0'') GROUP BY s');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT who, wmstream.session_window(ts, ''1 minute'') AS s FROM clicks WHERE wmstream.watermark(ts, ''0'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT who, lower(s) AS since, count(*) AS n FROM clicks, wmstream.session_window(ts, ''0'') AS s WHERE wmstream.watermark(ts, ''0'') GROUP BY s, who');
\echo :SQLSTATE

-- Sessions in which every value was NULL meet others, as the earlier one and as the later one, in one batch and in several; all rows of a key make one session.
CREATE TABLE beats (ts timestamptz, k text, v int, x numeric, f float8, t text, b bool);
SELECT wmstream.create_stream('beaten', $$
  SELECT s, k, count(*) AS n, count(v) AS nv, sum(v) AS sum, sum(v) FILTER (WHERE v > 1) AS big, min(v) AS min, max(t) AS max, avg(v) AS avg, sum(x) AS sum_x, avg(x) AS avg_x, stddev(f) AS dev, bool_and(b) AS every, bit_or(v) AS bits
  FROM beats, wmstream.session_window(ts, '10 s') AS s WHERE wmstream.watermark(ts, '1 minute') GROUP BY s, k
$$);
-- a: NULLs first; b: NULLs last; c: NULLs alone; d: what joins them is NULL; e: each of three
CREATE FUNCTION beat(key text, second int, v int) RETURNS void LANGUAGE sql AS
	$$ INSERT INTO beats VALUES (timestamptz '2024-01-01 00:00+00' + second * interval '1 second', key, v, v / 4.0, v / 8.0, 'v' || v, v > 0) $$;
SELECT sum(1) FROM (SELECT beat(k, s, v) FROM (VALUES ('a', 0, NULL), ('a', 15, 7), ('a', 8, 1), ('b', 0, 7), ('b', 15, NULL), ('b', 8, 1), ('c', 0, NULL), ('c', 15, NULL), ('c', 8, NULL), ('d', 0, 3), ('d', 15, 5), ('d', 8, NULL), ('e', 0, NULL), ('e', 15, 2), ('e', 30, NULL), ('e', 8, NULL), ('e', 23, 4)) r(k, s, v) OFFSET 0) r;
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM (VALUES ('f', 0, NULL), ('f', 15, 7), ('f', 8, 1), ('g', 0, 7), ('g', 15, NULL), ('g', 8, 1), ('h', 0, NULL), ('h', 15, NULL), ('h', 8, NULL), ('i', 0, NULL), ('i', 15, 2), ('i', 30, NULL), ('i', 8, NULL), ('i', 23, 4)) r(k, s, v) LOOP
		PERFORM beat(r.k, r.s, r.v);
		COMMIT;
	END LOOP;
END $$;
SELECT wmstream.advance_watermark('beaten', '2024-01-02 00:00+00');
SELECT wmstream.wait('beaten');
SELECT * FROM oracle.differences('TABLE beaten', $$SELECT tstzrange(min(ts), max(ts) + interval '10 s'), k, count(*), count(v), sum(v), sum(v) FILTER (WHERE v > 1), min(v), max(t), avg(v), sum(x), avg(x), stddev(f), bool_and(b), bit_or(v) FROM beats GROUP BY k$$);
SELECT k, n, nv, sum, big FROM beaten ORDER BY k;

-- A batch is merged with the open sessions first, and only then what ends before W is dropped, whatever lies between its rows: behind a row that
-- failed, where they are looked at one by one, and in a transaction of more rows than are taken together.
CREATE TABLE merged (ts timestamptz, who text, v int);
SELECT wmstream.create_stream('merges', $$
  SELECT lower(s) AS since, upper(s) AS until, who, count(*) AS n, sum(10 / v) AS tenths, array_agg(v ORDER BY ts) AS all_v
  FROM merged, wmstream.session_window(ts, '10 minutes') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, who
$$, on_error => 'skip', late_table => 'merged_late');
INSERT INTO merged VALUES ('2024-01-01 12:00+00', 'z', 1);
SELECT wmstream.wait('merges');
INSERT INTO merged VALUES ('2024-01-01 12:00+00', 'failed', 0), ('2024-01-01 11:40+00', 'a', 1), ('2024-01-01 11:48+00', 'a', 2), ('2024-01-01 11:30+00', 'late', 1), ('2024-01-01 11:49+00', 'late', 1),
	('2024-01-01 11:56+00', 'a', 5), ('2024-01-01 11:41+00', 'late', 1);
SELECT wmstream.wait('merges');
INSERT INTO merged
SELECT '2024-01-01 11:40+00'::timestamptz, 'b', 1 UNION ALL SELECT '2024-01-01 11:20+00', 'later', 1
UNION ALL SELECT '2024-01-01 11:59+00', 'other ' || i, 1 FROM generate_series(1, 20000) i UNION ALL SELECT '2024-01-01 11:48+00', 'b', 2
UNION ALL SELECT '2024-01-01 11:10+00', 'other ' || i, 1 FROM generate_series(1, 9000) i
UNION ALL SELECT '2024-01-01 11:56+00', 'b', 5 UNION ALL SELECT '2024-01-01 11:31+00', 'later', 1;
SELECT wmstream.wait('merges');
SELECT * FROM wmstream.open_windows(NULL::merges) WHERE who NOT LIKE 'other%' ORDER BY who;
SELECT reason, count(*), min((row_data->>'ts')::timestamptz), max((row_data->>'ts')::timestamptz), CASE WHEN row_data->>'who' LIKE 'other%' THEN 'other' ELSE row_data->>'who' END AS who FROM merged_late GROUP BY 1, 5 ORDER BY who;
SELECT late_rows, error_rows FROM wmstream.stat_streams WHERE stream = 'merges'::regclass;
SELECT wmstream.advance_watermark('merges', '2024-01-02 00:00+00');
SELECT wmstream.wait('merges');
SELECT * FROM oracle.differences('TABLE merges', $$
	SELECT min(ts), max(ts) + interval '10 minutes', who, count(*), sum(10 / v), array_agg(v ORDER BY ts)
	FROM merged WHERE v > 0 AND who NOT LIKE 'late%' AND NOT (who LIKE 'other%' AND ts < '2024-01-01 11:30+00') GROUP BY who$$);
