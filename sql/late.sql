-- Rows that come too late, rows without a usable time, and where they go.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE clicks (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, page text, "Odd name" numeric);
SELECT wmstream.create_stream('per_hour', $$
  SELECT lower(w) AS hour, page, count(*) AS n FROM clicks, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') AND page <> 'none' GROUP BY w, page
$$, late_table => 'clicks_late');
\d clicks_late
-- one late table may serve several streams
SELECT wmstream.create_stream('sliding', $$
  SELECT lower(w) AS since, count(*) AS n FROM clicks, wmstream.window(ts, '3 hours', '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w
$$, late_table => 'clicks_late');
SELECT wmstream.create_stream('raw_time', $$
  SELECT ts, count(*) AS n FROM clicks WHERE wmstream.watermark(ts, '10 minutes') GROUP BY ts
$$, late_table => 'clicks_late');
CREATE VIEW late AS SELECT stream, source, event_time, watermark, reason, error, row_data FROM clicks_late;

-- W moves with every row, also with those that WHERE removes: W = 12:00
INSERT INTO clicks (ts, page, "Odd name") VALUES ('2024-01-01 10:30+00', 'a', 1.50), ('2024-01-01 12:10+00', 'none', NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT stream, watermark FROM wmstream.stat_streams ORDER BY stream::text;
TABLE per_hour;
-- a window that ends at W is closed; a time at W is on time
INSERT INTO clicks (ts, page, "Odd name") VALUES ('2024-01-01 11:59:59.999999+00', 'a', 'NaN'), ('2024-01-01 12:00+00', 'a', 2), ('2024-01-01 09:00+00', 'none', 3), ('2024-01-01 09:30+00', 'b', NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams;
-- NULL and infinite times never make a window nor move W; they are judged before WHERE
INSERT INTO clicks (ts, page) VALUES (NULL, 'a'), ('infinity', 'none'), ('-infinity', NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT stream, input_rows, late_rows, no_time_rows, future_rows, error_rows, watermark, max_event_time FROM wmstream.stat_streams ORDER BY stream::text;
TABLE late ORDER BY stream::text, reason, (row_data ->> 'id')::int;
SELECT count(*) FILTER (WHERE arrived_at IS NULL) FROM clicks_late;
-- of a row that is late for some of its windows, the others are kept, and it does not count
SELECT * FROM wmstream.open_windows(NULL::sliding) ORDER BY since;
-- rows can be put back as they were
SELECT (jsonb_populate_record(NULL::clicks, row_data)).* FROM clicks_late WHERE stream = 'per_hour'::regclass ORDER BY 1;

-- Within one transaction nothing is late: rows are tested against the W of the last firing.
INSERT INTO clicks (ts, page) VALUES ('2024-01-01 20:00+00', 'c'), ('2024-01-01 12:30+00', 'c');
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM per_hour WHERE page = 'c';
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'per_hour'::regclass;

-- The batch query over the rows that were not put aside is the result.
TRUNCATE clicks_late;
CREATE TEMP TABLE before AS SELECT stream, late_rows AS n FROM wmstream.stat_streams;
DO $$
BEGIN
	FOR batch IN 0..59 LOOP
		INSERT INTO clicks (ts, page)
		SELECT timestamptz '2024-01-02 00:00+00' + batch * interval '17 minutes' - (n * 37 % 200) * interval '1 minute',
			   CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN 'none' ELSE 'p' || n % 5 END
		FROM   generate_series(0, 12) n;
		COMMIT;
		PERFORM wmstream.wait(stream) FROM wmstream.streams;	-- so that each is a batch of its own
	END LOOP;
END
$$;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT stream, count(*) > 10 AS many, count(*) - count(DISTINCT row_data ->> 'id') AS twice FROM clicks_late GROUP BY stream ORDER BY stream::text;
SELECT * FROM oracle.differences($$
	SELECT lower(w), page, count(*) FROM clicks c, wmstream.window(ts, '1 hour') w
	WHERE page <> 'none' AND ts > '2024-01-01 21:00+00' AND upper(w) <= (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'per_hour'::regclass)
	AND NOT EXISTS (SELECT FROM clicks_late WHERE stream = 'per_hour'::regclass AND (row_data ->> 'id')::int = c.id)
	GROUP BY w, page$$, $$SELECT * FROM per_hour WHERE hour >= '2024-01-01 21:00+00'$$);
SELECT * FROM oracle.differences($$
	SELECT ts, count(*) FROM clicks c
	WHERE ts > '2024-01-01 21:00+00' AND ts < (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'raw_time'::regclass)
	AND NOT EXISTS (SELECT FROM clicks_late WHERE stream = 'raw_time'::regclass AND (row_data ->> 'id')::int = c.id)
	GROUP BY ts$$, $$SELECT * FROM raw_time WHERE ts > '2024-01-01 21:00+00'$$);
-- each late row has a time before the W that it was tested against, by all its windows
SELECT count(*) FROM clicks_late WHERE reason <> 'late' OR
	event_time > watermark OR (stream = 'per_hour'::regclass AND upper(wmstream.window(event_time, '1 hour')) > watermark) OR
	(stream = 'sliding'::regclass AND upper(wmstream.window(event_time, '1 hour')) + interval '2 hours' > watermark);
SELECT stream, f.late_rows - before.n = count(*) AS counted FROM wmstream.stat_streams f JOIN clicks_late USING (stream)
JOIN before USING (stream) GROUP BY stream, f.late_rows, before.n ORDER BY stream::text;

-- A filter in a subquery below watermark() keeps rows from moving it.
CREATE TABLE mixed (ts timestamptz, good bool);
SELECT wmstream.create_stream('only_good', $$
  SELECT lower(w) AS hour, count(*) AS n FROM (SELECT ts FROM mixed WHERE good) m, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
INSERT INTO mixed VALUES ('2024-01-01 10:30+00', true), ('2030-01-01 10:30+00', false), (NULL, false);
SELECT wmstream.wait('only_good');
SELECT watermark, no_time_rows, input_rows FROM wmstream.stat_streams WHERE stream = 'only_good'::regclass;
INSERT INTO mixed VALUES ('2024-01-01 11:00+00', true);
SELECT * FROM oracle.compare('only_good', $$hour + interval '1 hour' <= $1$$);

-- A source without a watermark is never late.
SELECT wmstream.create_stream('never_late', $$
  SELECT lower(w) AS hour, count(*) AS n FROM mixed, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, NULL) GROUP BY w
$$, output_mode => 'update');
INSERT INTO mixed VALUES ('2024-01-01 23:00+00', true);
INSERT INTO mixed VALUES ('2024-01-01 22:00+00', true), (NULL, true);
SELECT wmstream.wait('never_late');
TABLE never_late ORDER BY hour;
SELECT watermark, late_rows, no_time_rows FROM wmstream.stat_streams WHERE stream = 'never_late'::regclass;

-- Late tables that will not do.
CREATE TABLE bad_late (stream regclass, source regclass, event_time timestamptz, watermark timestamptz, reason text, error text, arrived_at timestamptz, row_data json);
SELECT wmstream.create_stream('no', 'SELECT id FROM clicks', late_table => 'bad_late');
\echo :SQLSTATE
ALTER TABLE bad_late ALTER row_data TYPE jsonb, ADD more int NOT NULL;
SELECT wmstream.create_stream('no', 'SELECT id FROM clicks', late_table => 'bad_late');
\echo :SQLSTATE
CREATE TABLE part_late (LIKE bad_late) PARTITION BY LIST (reason);
ALTER TABLE part_late DROP more;
CREATE UNLOGGED TABLE part_late_1 PARTITION OF part_late DEFAULT;
SELECT wmstream.create_stream('no', 'SELECT id FROM clicks', late_table => 'part_late');
\echo :SQLSTATE
DROP TABLE part_late;
ALTER TABLE bad_late ALTER more SET DEFAULT 7;
CREATE RULE none AS ON INSERT TO bad_late DO INSTEAD NOTHING;
SELECT wmstream.create_stream('no', 'SELECT id FROM clicks', late_table => 'bad_late');
\echo :SQLSTATE
DROP RULE none ON bad_late;
SELECT wmstream.create_stream('yes', 'SELECT id FROM clicks WHERE wmstream.watermark(ts, ''0'')', late_table => 'bad_late');
INSERT INTO clicks (page) VALUES ('without time');
SELECT wmstream.wait('yes');
SELECT reason, row_data ->> 'page' AS page, more FROM bad_late;
-- it can be changed, and done without
SELECT wmstream.alter_stream('yes', 'late_table', NULL);
INSERT INTO clicks (page) VALUES ('without time');
SELECT wmstream.wait('yes');
SELECT count(*) FROM bad_late;
SELECT no_time_rows FROM wmstream.stat_streams WHERE stream = 'yes'::regclass;
