-- Sessions of writers, readers and the creator, each with settings of its own; days on which clocks are changed.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

-- ts: the moment; local: what a clock at the place shows, which for an hour in autumn is no moment; what a text says, says the session.
CREATE TABLE events (id int GENERATED ALWAYS AS IDENTITY, place text, ts timestamptz, local timestamp, lasted interval, day date, span tstzrange);
CREATE TABLE zones (place text PRIMARY KEY, zone text, forward date, back date);
INSERT INTO zones VALUES ('berlin', 'Europe/Berlin', '2024-03-31', '2024-10-27'), ('york', 'America/New_York', '2024-03-10', '2024-11-03'), ('howe', 'Australia/Lord_Howe', '2024-10-06', '2024-04-07');

-- All of this depends on the settings of whoever runs it: output, casts, truncation, extraction, literals.
CREATE TABLE tried (creator text, zone text, datestyle text, intervalstyle text);
INSERT INTO tried VALUES ('utc', 'UTC', 'ISO, YMD', 'postgres'), ('berlin', 'Europe/Berlin', 'German, DMY', 'iso_8601'), ('york', 'America/New_York', 'SQL, MDY', 'sql_standard'), ('howe', 'Australia/Lord_Howe', 'Postgres, DMY', 'postgres_verbose');
\set query 'SELECT lower(w) AS since, place, min(ts)::text AS first, max(local)::text AS last, sum(lasted)::text AS lasted, min(day)::text AS day, count(*) AS n, count(DISTINCT ts::date) AS days, count(*) FILTER (WHERE ts < ''2024-10-27 03:00'') AS before, min(extract(hour FROM ts)) AS hour, min(to_char(ts, ''YYYY-MM-DD HH24:MI TZ'')) AS shown, max(ts::timestamp) AS here, to_char(lower(w), ''HH24:MI'') AS at FROM events, wmstream.window(ts, ''1 day'') AS w WHERE wmstream.watermark(ts, ''1 day'') GROUP BY w, place, date_trunc(''month'', ts)'
CREATE FUNCTION as_creator(t tried) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('timezone', t.zone, false), set_config('datestyle', t.datestyle, false), set_config('intervalstyle', t.intervalstyle, false) $$;
SELECT set_config('my.query', :'query', false) IS NOT NULL AS kept;
CREATE PROCEDURE create_all() LANGUAGE plpgsql AS $$
DECLARE
	t tried;
BEGIN
	FOR t IN SELECT * FROM tried LOOP
		PERFORM as_creator(t);
		PERFORM wmstream.create_stream('by_' || t.creator, current_setting('my.query'), late_table => 'late_rows');
	END LOOP;
END $$;
CALL create_all();
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
-- Windows by the moment, by the clock at the place, and by a fixed zone. The clock's reading goes back in autumn: that is what the delay is for.
SELECT wmstream.create_stream('by_local', $$SELECT lower(w) AS since, place, count(*) AS n, min(ts) AS first, max(ts) AS last FROM events, wmstream.window(local, '1 day') AS w WHERE wmstream.watermark(local, '40 hours') GROUP BY w, place$$);
SELECT wmstream.create_stream('half_hours', $$SELECT lower(w) AS since, place, count(*) AS n FROM events, wmstream.window(ts, '30 minutes', '15 minutes') AS w WHERE wmstream.watermark(ts, '1 day') GROUP BY w, place$$);
SELECT wmstream.create_stream('local_half_hours', $$SELECT lower(w) AS since, place, count(*) AS n FROM events, wmstream.window(local, '30 minutes') AS w WHERE wmstream.watermark(local, '40 hours') GROUP BY w, place$$);
SELECT wmstream.create_stream('berlin_days', $$SELECT lower(w) AS since, count(*) AS n, min(ts) AS first, max(ts) AS last FROM events, wmstream.window(ts AT TIME ZONE 'Europe/Berlin', '1 day') AS w WHERE wmstream.watermark(ts AT TIME ZONE 'Europe/Berlin', '40 hours') GROUP BY w$$);
SELECT wmstream.create_stream('berlin_offset', $$SELECT lower(w) AS since, count(*) AS n FROM events, wmstream.window(ts, '1 day', '1 day', '-1 hour') AS w WHERE wmstream.watermark(ts, '1 day') GROUP BY w$$);
SELECT wmstream.create_stream('pairs', $$SELECT a.id, b.id AS other, (b.ts - a.ts)::text AS later FROM events a JOIN events b ON b.place = a.place AND b.ts > a.ts AND b.ts <= a.ts + interval '1 day' AND b.id % 7 = a.id % 7 WHERE wmstream.watermark(a.ts, '1 day') AND wmstream.watermark(b.ts, '1 day')$$);

-- Writers: each row by a session with the settings of the place where it happened; written as text, as a clock there shows it.
CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT z.zone, t.datestyle, t.intervalstyle, place, at FROM zones z, (VALUES (true), (false)) f(forward),
			 LATERAL (SELECT ((CASE WHEN f.forward THEN z.forward ELSE z.back END)::timestamp AT TIME ZONE 'UTC') + n * interval '25 minutes' AS at FROM generate_series(-30, 90) n) m, tried t
			 WHERE t.zone = z.zone ORDER BY at, place
	LOOP
		PERFORM set_config('timezone', r.zone, false), set_config('datestyle', r.datestyle, false), set_config('intervalstyle', r.intervalstyle, false);
		EXECUTE format('INSERT INTO events (place, ts, local, lasted, day) VALUES (%L, %L, %L, %L, %L)', r.place, r.at, r.at::timestamp, r.at - date_trunc('day', r.at) + interval '1 day', r.at::date);
		COMMIT;
	END LOOP;
END $$;
CALL fill();
\connect
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'German';
SET intervalstyle = 'sql_standard';
SELECT count(*), count(DISTINCT ts), count(DISTINCT local), count(*) FILTER (WHERE local <> ts AT TIME ZONE zone) AS wrong FROM events JOIN zones USING (place);
SELECT wmstream.wait(stream) FROM wmstream.streams;

-- What a stream of a creator holds is what the batch query gives a session with the creator's settings; whoever compares. Open windows too.
CREATE TABLE verdicts (name text, moment text, rows bigint, only_first bigint, only_second bigint);
CREATE PROCEDURE judge(moment text) LANGUAGE plpgsql AS $$
DECLARE
	t tried;
	closed text;
BEGIN
	FOR t IN SELECT * FROM tried LOOP
		SELECT format('since + interval ''24 hours'' <= to_timestamp(%s)', extract(epoch FROM watermark)) INTO closed FROM wmstream.stat_streams WHERE stream = ('by_' || t.creator)::regclass;
		-- as the reader that we are: the values are there, and must not depend on us
		EXECUTE format('CREATE TEMP TABLE shown AS SELECT * FROM by_%1$s; CREATE TEMP TABLE live AS SELECT * FROM wmstream.live(NULL::by_%1$s)', t.creator);
		PERFORM as_creator(t);
		INSERT INTO verdicts SELECT t.creator, moment || ' closed', d.* FROM oracle.differences(format('SELECT * FROM wmstream."public.by_%s" WHERE %s', t.creator, closed), 'SELECT * FROM shown') d;
		INSERT INTO verdicts SELECT t.creator, moment || ' live', d.* FROM oracle.differences(format('SELECT * FROM wmstream."public.by_%s"', t.creator), 'SELECT * FROM live') d;
		DROP TABLE shown, live;
		SET timezone = 'Asia/Kathmandu';
		SET datestyle = 'German';
		SET intervalstyle = 'sql_standard';
	END LOOP;
END $$;
CALL judge('running');

-- The worker begins anew in a server with other settings.
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Pacific/Apia'); EXECUTE format('ALTER DATABASE %I SET datestyle = %L', current_database(), 'SQL, DMY'); END $$;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'wmstream worker' AND datname = current_database();
INSERT INTO events (place, ts, local, lasted, day) SELECT place, timestamptz '2024-11-05 00:00+00' + n * interval '2 hours', timestamp '2024-11-05' + n * interval '2 hours', '1 day', '2024-11-05' FROM zones, generate_series(1, 30) n;
SELECT wmstream.wait(stream) FROM wmstream.streams;
CALL judge('again');
SELECT * FROM verdicts ORDER BY name, moment;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
SELECT since, place, first, last, lasted, day, hour, shown, here, at FROM by_berlin WHERE since = '2024-10-27 00:00+00';
SELECT since, place, first, last, lasted, day, hour, shown, here, at FROM by_york WHERE since = '2024-10-27 00:00+00';
SELECT since, place, first, last, lasted, day, hour, shown, here, at FROM by_howe WHERE since = '2024-04-06 00:00+00';

-- Windows, whoever asks. A day of a window has 24 hours; a day of a place's clock has what the clock gave it.
SELECT * FROM oracle.compare('by_local', 'since AT TIME ZONE ''UTC'' + interval ''24 hours'' <= $1');
SELECT * FROM oracle.compare('half_hours', 'since + interval ''30 minutes'' <= $1');
SELECT * FROM oracle.compare('local_half_hours', 'since AT TIME ZONE ''UTC'' + interval ''30 minutes'' <= $1');
SELECT * FROM oracle.compare('berlin_days', 'since AT TIME ZONE ''UTC'' + interval ''24 hours'' <= $1');
SELECT * FROM oracle.compare('berlin_offset', 'since + interval ''24 hours'' <= $1');
SELECT since, place, last - first AS lasted, n FROM by_local JOIN zones USING (place) WHERE since IN (forward, back) ORDER BY place, since;
SELECT since, n, first, last FROM berlin_days WHERE since IN ('2024-03-31', '2024-10-27');
SET timezone = 'America/New_York';
SELECT since, place, n FROM half_hours WHERE place = 'york' AND since >= '2024-11-03 04:30+00' AND since < '2024-11-03 07:00+00' ORDER BY since;
SET timezone = 'UTC';
SELECT * FROM oracle.compare('pairs');
SELECT stream, late_rows FROM wmstream.stat_streams WHERE late_rows > 0;

-- Late rows: times read the same everywhere.
SET timezone = 'Europe/Berlin';
SET datestyle = 'Postgres, MDY';
INSERT INTO events (place, ts, local, lasted, day, span) VALUES
	('berlin', '2024-10-27 02:30 CEST', '2024-10-27 02:30', '-1 day -02:00:00', '2024-10-27', '[2024-10-03 00:00 CEST, 2024-10-27 02:30 CET)'),
	('berlin', '2024-10-27 02:30 CET', '2024-10-27 02:30', '1 day -02:00:00', '2024-10-27', '[2024-03-04 00:00 CEST, 2024-05-06 02:30 CET)');
SELECT wmstream.wait(stream) FROM wmstream.streams;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT stream, event_time, (r).ts, (r).local, (r).lasted, (r).day, (r).span FROM (SELECT stream, event_time, jsonb_populate_record(NULL::events, row_data) AS r FROM late_rows) l ORDER BY stream::text, event_time;
SET datestyle = 'German, MDY';
SET intervalstyle = 'sql_standard';
SELECT count(*), count(DISTINCT e.id) FROM late_rows JOIN events e ON e = jsonb_populate_record(NULL::events, row_data);
