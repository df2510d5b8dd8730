-- Streams without aggregates: rows pass in the batch they came in; nothing is late.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE readings (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, sensor text, value float8, tags text[], doc jsonb);
-- the only table is the source, no watermark() is needed
SELECT wmstream.create_stream('alarms', $$
  SELECT id, ts, sensor, value * 1.8 + 32 AS fahrenheit FROM readings WHERE value > 30 OR sensor IS NULL
$$);
\d alarms
SELECT wmstream.create_stream('with_watermark', $$
  SELECT id, lower(wmstream.window(ts, '1 hour')) AS hour FROM readings WHERE wmstream.watermark(ts, '5 minutes') AND isfinite(ts)
$$);
-- set-returning functions: several rows of one, or none
SELECT wmstream.create_stream('tags', $$
  SELECT id, tag, nr FROM readings, unnest(tags) WITH ORDINALITY AS t(tag, nr) WHERE tag <> 'x'
$$);
SELECT wmstream.create_stream('docs', $$
  SELECT id, jsonb_array_elements(doc -> 'l') AS element, doc ->> 'k' AS k FROM readings
$$);
SELECT wmstream.create_stream('windows_of', $$
  SELECT id, w FROM readings, wmstream.window(ts, '1 hour', '30 minutes') AS w
$$);
-- whole rows, cases, casts, functions of the owner
CREATE FUNCTION grade(float8) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN CASE WHEN $1 > 20 THEN 'hot' ELSE 'cold' END; END $$;
SELECT wmstream.create_stream('whole', $$
  SELECT r.id, r AS whole, to_jsonb(r) ->> 'sensor' AS sensor, grade(value) AS grade, (SELECT max(x) FROM unnest(tags) x) AS last_tag FROM readings r
$$);
SELECT wmstream.create_stream('twice', $$
  SELECT id, 'hot' AS what FROM readings WHERE value > 20 UNION ALL SELECT id, 'tagged' FROM readings WHERE tags <> '{}'
$$);
-- ... without watermark(), two branches of one table are two tables: named
SELECT wmstream.create_stream('twice', $$
  SELECT id, 'hot' AS what FROM readings WHERE value > 20 AND isfinite(ts) AND wmstream.watermark(ts, NULL)
  UNION ALL SELECT id, 'tagged' FROM readings WHERE tags <> '{}' AND isfinite(ts) AND wmstream.watermark(ts, NULL)
$$);

INSERT INTO readings (ts, sensor, value, tags, doc) VALUES
('2024-01-01 10:00+00', 's1', 35, '{a,b}', '{"k": "v", "l": [1, "two", null]}'), ('2024-01-01 10:00+00', 's2', 10, '{x}', NULL),
(NULL, NULL, NULL, NULL, '{"l": []}'), ('infinity', 's3', 31, '{}', '{"l": [{}]}'), ('-infinity', 's4', 'NaN', '{NULL,x}', '{}');
SELECT wmstream.wait('alarms');
TABLE alarms ORDER BY id;
INSERT INTO readings (ts, sensor, value, tags, doc) VALUES ('2020-01-01 10:00+00', 'old', 40, '{z}', NULL);	-- far behind, and yet
SELECT name, c.* FROM unnest('{alarms,tags,docs,windows_of,whole,twice}'::text[]) name, oracle.compare(name::regclass) c;
-- below a watermark(), rows whose time is none are left out and counted, whatever WHERE says
SELECT * FROM oracle.compare('with_watermark');
SELECT late_rows, no_time_rows, input_rows FROM wmstream.stat_streams WHERE stream = 'with_watermark'::regclass;

DO $$
BEGIN
	FOR batch IN 0..29 LOOP
		INSERT INTO readings (ts, sensor, value, tags, doc)
		SELECT timestamptz '2024-01-02 00:00+00' + (n * 7919 % 86400) * interval '1 second', 's' || n % 5, (n * 31 + batch) % 47,
			   (ARRAY['a', 'x', NULL, 'long ' || repeat('y', 200)])[1:n % 5], jsonb_build_object('k', n, 'l', (ARRAY[n, batch, 0])[1:n % 4])
		FROM   generate_series(1, 50) n;
		COMMIT;
	END LOOP;
END
$$;
SELECT name, c.* FROM unnest('{alarms,tags,docs,windows_of,whole,twice,with_watermark}'::text[]) name, oracle.compare(name::regclass) c;
-- duplicates stay duplicates
SELECT wmstream.create_stream('duplicates', 'SELECT sensor FROM readings');
INSERT INTO readings (sensor) SELECT 'same' FROM generate_series(1, 5);
SELECT wmstream.wait('duplicates');
SELECT sensor, count(*) FROM duplicates GROUP BY 1;

-- A projection needs no state and has no open windows; complete mode is refused.
SELECT count(*) FROM wmstream.open_windows(NULL::alarms);
SELECT state_rows FROM wmstream.stat_streams WHERE stream = 'alarms'::regclass;
SELECT wmstream.create_stream('refused', 'SELECT id FROM readings', output_mode => 'complete');
\echo :SQLSTATE

-- A stream may read the append result of another one.
SELECT wmstream.create_stream('alarms_per_day', $$
  SELECT lower(w) AS day, count(*) AS n FROM alarms, wmstream.window(ts, '1 day') AS w WHERE wmstream.watermark(ts, '1 day') GROUP BY w
$$);
INSERT INTO readings (ts, sensor, value) SELECT timestamptz '2024-02-01 00:00+00' + n * interval '1 hour', 'z', n % 60 FROM generate_series(1, 200) n;
SELECT wmstream.wait('alarms');
SELECT wmstream.wait('alarms_per_day');
SELECT * FROM oracle.differences(
	$$SELECT lower(w), count(*) FROM alarms, wmstream.window(ts, '1 day') w WHERE ts >= '2024-02-01' AND upper(w) <= (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'alarms_per_day'::regclass) GROUP BY w$$,
	'TABLE alarms_per_day');
SELECT count(*) > 3 AS some FROM alarms_per_day;
