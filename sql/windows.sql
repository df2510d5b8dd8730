-- The window functions and watermark() as plain SQL: they need no stream.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE EXTENSION wmstream;

-- One window, and what is shown of it.
SELECT wmstream.window(timestamptz '2024-03-01 10:17:30+00', '15 minutes');
SELECT wmstream.window(timestamp '2024-03-01 10:17:30', '15 minutes');
SELECT lower(w), upper(w), lower_inc(w), upper_inc(w) FROM wmstream.window(timestamptz '2024-03-01 10:15:00+00', '15 minutes') w;
-- A window of a window: its last microsecond decides.
SELECT wmstream.window(wmstream.window(timestamptz '2024-03-01 10:17:30+00', '15 minutes'), '1 hour');
SELECT wmstream.window(wmstream.window(timestamp '2024-03-01 10:59:59.999999', '1 hour'), '1 hour');

-- Sliding and cumulating windows, in FROM and in the SELECT list, the least end first.
SELECT w FROM wmstream.window(timestamptz '2024-03-01 10:17:30+00', '1 hour', '20 minutes') w;
SELECT wmstream.window(timestamptz '2024-03-01 10:17:30+00', '1 hour', '20 minutes', '5 minutes') AS w;
SELECT w FROM wmstream.window(timestamptz '2024-03-01 10:17:30+00', '50 minutes', '20 minutes') w;	-- the slide does not divide the size
SELECT w FROM wmstream.cumulate_window(timestamptz '2024-03-01 10:17:30+00', '15 minutes', '1 hour') w;
SELECT w FROM wmstream.cumulate_window(timestamp '2024-03-01 10:17:30', '15 minutes', '1 hour', '20 minutes') w;
SELECT w FROM wmstream.window(wmstream.window(timestamptz '2024-03-01 10:17:30+00', '15 minutes'), '1 hour', '30 minutes') w;
SELECT wmstream.session_window(timestamptz '2024-03-01 10:17:30+00', '5 minutes');
SELECT wmstream.session_window(timestamp '2024-03-01 10:17:30', '5 minutes');

-- The oracle: windows by their definition, in numeric arithmetic.  starts every slide from the offset, floored.
CREATE FUNCTION us(t timestamptz) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN trunc(extract(epoch FROM t) * 1000000);
CREATE FUNCTION us(i interval) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN trunc(extract(epoch FROM i) * 1000000);
CREATE FUNCTION at(us numeric) RETURNS timestamptz LANGUAGE sql IMMUTABLE
RETURN timestamptz '1970-01-01 00:00+00' + (us::text || ' microseconds')::interval;
CREATE FUNCTION by_definition(t timestamptz, size interval, slide interval, off interval) RETURNS SETOF tstzrange LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	SELECT tstzrange(at(s), at(s + us(size)))
	FROM   (SELECT us(off) + us(slide) * k AS s
			FROM   generate_series(floor((us(t) - us(off) - us(size)) / us(slide)), floor((us(t) - us(off)) / us(slide))) k) starts
	WHERE  us(t) >= s AND us(t) < s + us(size);
END;

CREATE TABLE times AS
SELECT t FROM (VALUES
	('2024-03-01 10:17:30+00'::timestamptz), ('2024-03-31 01:59:59.999999+00'), ('2024-02-29 00:00+00'), ('2000-01-01 00:00+00'),
	('1999-12-31 23:59:59.999999+00'), ('1970-01-01 00:00+00'), ('1969-12-31 23:59:59.999999+00'), ('1969-12-31 12:00:00.000001+00'),
	('1969-12-31 23:00+00'), ('1900-01-01 00:30+00'), ('0001-01-01 00:00+00'), ('4000-01-01 00:00+00 BC'), ('9999-12-31 23:59:59.999999+00'),
	('2024-03-01 10:00+00')) v(t);
CREATE TABLE grids (size interval, slide interval, off interval);
INSERT INTO grids
SELECT size, slide, off
FROM   unnest('{7 microseconds,10 seconds,1 hour,90 minutes,1 day,7 days,36500 days}'::interval[]) size,
	   unnest('{7 microseconds,3 seconds,7 minutes,1 hour,1 day,7 days}'::interval[]) slide,
	   unnest('{0,5 minutes,-5 minutes,3 microseconds,36 hours,-400 days,25:30:00.5}'::interval[]) off
WHERE  slide <= size AND us(size) / us(slide) <= 400;

CREATE TABLE made AS SELECT t, g.*, w FROM times, grids g, wmstream.window(t, size, slide, off) w;
CREATE TABLE wanted AS SELECT t, g.*, w FROM times, grids g, by_definition(t, size, slide, off) w;
SELECT count(*) > 50000 AS many, (SELECT count(*) FROM (TABLE made EXCEPT ALL TABLE wanted) x) AS surplus,
	   (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE made) x) AS missing FROM made;
-- timestamp is the same arithmetic without a time zone
SELECT count(*) FROM times, grids, wmstream.window(t AT TIME ZONE 'UTC', size, slide, off) WITH ORDINALITY a(w, n)
	JOIN LATERAL wmstream.window(t, size, slide, off) WITH ORDINALITY b(w, n) USING (n)
WHERE a.w <> tsrange(lower(b.w) AT TIME ZONE 'UTC', upper(b.w) AT TIME ZONE 'UTC');
-- the scalar form is the sliding one whose slide is the size
SELECT count(*) FROM times, (SELECT DISTINCT size FROM grids) g
WHERE wmstream.window(t, size) <> ALL (SELECT wmstream.window(t, size, size)) OR wmstream.window(t, size) IS NULL;
-- a cumulating window is all prefixes, by steps, of the great one that hold the time
SELECT count(*), count(*) FILTER (WHERE NOT w.same) AS different
FROM times, grids, LATERAL (
	SELECT array(SELECT wmstream.cumulate_window(t, slide, size, off)) =
		   array(SELECT tstzrange(lower(g), at(us(lower(g)) + us(slide) * k))
				 FROM wmstream.window(t, size, size, off) g, generate_series(1, (us(size) / us(slide))::int) k
				 WHERE t < at(us(lower(g)) + us(slide) * k) ORDER BY k) AS same) w
WHERE us(size) % us(slide) = 0;

-- The session's time zone and daylight saving do not matter: a day is 24 hours of UTC.
SET timezone = 'America/New_York';
SELECT wmstream.window(timestamptz '2024-03-10 12:00+00', '1 day') = tstzrange('2024-03-10 00:00+00', '2024-03-11 00:00+00');
SET timezone = 'UTC';

-- NULL and infinite times have no window.
SELECT wmstream.window(NULL::timestamptz, '1 hour') IS NULL AS scalar, (SELECT count(*) FROM wmstream.window(NULL::timestamptz, '1 hour', '1 minute')) AS sliding;
SELECT t, wmstream.window(t, '1 hour') IS NULL AS scalar, (SELECT count(*) FROM wmstream.window(t, '1 hour', '1 minute')) AS sliding,
	   (SELECT count(*) FROM wmstream.cumulate_window(t, '1 minute', '1 hour')) AS cumulating, wmstream.session_window(t, '1 hour') IS NULL AS session
FROM   (VALUES (timestamptz 'infinity'), ('-infinity')) v(t);
SELECT wmstream.window(timestamp 'infinity', '1 hour') IS NULL AS scalar;
SELECT r, wmstream.window(r, '1 hour') FROM (VALUES (tstzrange('empty')), ('[2024-01-01,)'), ('(,)'), ('[2024-01-01,infinity)'), (NULL)) v(r);
SELECT wmstream.window(tstzrange('2024-01-01 00:00+00', '2024-01-01 01:00+00', '[]'), '1 hour');
-- A gap that is not positive makes no session.
SELECT g, wmstream.session_window(timestamptz '2024-01-01', g) FROM (VALUES ('0'::interval), ('-1 s'), ('1 microsecond'), (NULL)) v(g);

-- The ends of time: bounds are cut to what a timestamp can be.
SELECT wmstream.window(timestamptz '4714-11-24 00:00:00+00 BC', '10000 days');
SELECT wmstream.window(timestamptz '294276-12-31 23:59:59.999999+00', '1 hour');
SELECT count(*) FROM wmstream.window(timestamptz '294276-12-31 23:59:59.999999+00', '1 hour', '10 minutes');
SELECT wmstream.window(timestamptz '2024-01-01', '100000000 days');
SELECT wmstream.session_window(timestamptz '294276-12-31 23:59:59.999999+00', '1 hour');

-- Sizes that are refused, with their SQLSTATE.
SELECT wmstream.window(now(), '0');
\echo :SQLSTATE
SELECT wmstream.window(now(), '-1 hour');
\echo :SQLSTATE
SELECT wmstream.window(now(), '1 month');
\echo :SQLSTATE
SELECT wmstream.window(now(), '1 year 2 days');
\echo :SQLSTATE
SELECT wmstream.window(now(), '1 hour', '2 hours');
\echo :SQLSTATE
SELECT wmstream.window(now(), '1 hour', '0');
\echo :SQLSTATE
SELECT wmstream.window(now(), '1 hour', '1 minute', '1 month');
\echo :SQLSTATE
SELECT wmstream.window(now(), '100000001 days');
\echo :SQLSTATE
SELECT wmstream.window(NULL::timestamptz, '-1 hour');	-- strict
SELECT wmstream.window(timestamptz 'infinity', '-1 hour');
\echo :SQLSTATE
SELECT wmstream.cumulate_window(now(), '7 minutes', '1 hour');
\echo :SQLSTATE
SELECT wmstream.cumulate_window(now(), '0', '1 hour');
\echo :SQLSTATE
SELECT wmstream.cumulate_window(now(), '1 hour', '1 minute');
\echo :SQLSTATE
SELECT wmstream.session_window(now(), '1 month');
\echo :SQLSTATE
SELECT wmstream.window(now(), '2 apples');
\echo :SQLSTATE
SELECT wmstream.window(current_date, '1 hour') IS NOT NULL;	-- dates are cast here; a stream wants a time

-- watermark() is true, whatever stands in it, and is inlined away.
SELECT wmstream.watermark(now(), '1 hour'), wmstream.watermark(NULL::timestamptz, NULL), wmstream.watermark(localtimestamp, '-1 hour');
EXPLAIN (COSTS off) SELECT FROM times WHERE wmstream.watermark(t, '1 hour');
-- Windows of every row, grouped: the batch answer.
SELECT lower(w) AS day, count(*) FROM times, wmstream.window(t, '1 day') w WHERE wmstream.watermark(t, '1 hour') AND t > '2024-01-01' GROUP BY w ORDER BY w LIMIT 3;

-- Every function and view has a comment.
SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'wmstream'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL;
SELECT oid::regclass FROM pg_class WHERE relnamespace = 'wmstream'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL;
