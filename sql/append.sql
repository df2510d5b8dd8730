-- Append mode: each group once, when its window closes.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, region text, amount numeric);
SELECT wmstream.create_stream('hourly_sales', $$
  SELECT lower(w) AS hour, region, sum(amount) AS total, count(*) AS orders
  FROM   orders, wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w, region
$$);
\d hourly_sales

-- Nothing before a window closes; a row at its end is not enough, the delay must have passed too.
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:05+00', 'east', 10), ('2024-03-01 10:50+00', 'west', 5), ('2024-03-01 10:20+00', 'east', 2.50);
SELECT wmstream.wait('hourly_sales');
TABLE hourly_sales;
SELECT * FROM wmstream.open_windows(NULL::hourly_sales) ORDER BY hour, region;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 11:09:59.999999+00', 'east', 1);
SELECT wmstream.wait('hourly_sales');
SELECT watermark, next_close FROM wmstream.stat_streams;
TABLE hourly_sales;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 11:10+00', NULL, NULL);
SELECT wmstream.wait('hourly_sales');
SELECT watermark, next_close FROM wmstream.stat_streams;
TABLE hourly_sales ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::hourly_sales) ORDER BY hour, region;

-- More streams over the same table: every kind of window, HAVING, expressions over aggregates, keys that are expressions.
SELECT wmstream.create_stream('busy', $$
  SELECT lower(w) AS hour, upper(region) AS r, round(avg(amount), 3) AS mean, sum(amount) / nullif(count(*), 0) AS also
  FROM   orders, wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes') AND amount > 0
  GROUP  BY w, upper(region)
  HAVING count(*) > 3 AND max(amount) <> 50
$$);
SELECT wmstream.create_stream('by_expression', $$
  SELECT upper(wmstream.window(ts, '20 minutes')) AS until, id % 3 AS part, count(DISTINCT region) AS regions
  FROM   orders
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY wmstream.window(ts, '20 minutes'), id % 3
$$);
SELECT wmstream.create_stream('sliding', $$
  SELECT lower(w) AS since, count(*) AS n, sum(amount) AS total
  FROM   orders, wmstream.window(ts, '6 hours', '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w
$$);
SELECT wmstream.create_stream('odd_slide', $$
  SELECT lower(w) AS since, region, count(*) AS n, min(id) AS first, max(id) AS last
  FROM   orders, wmstream.window(ts, '50 minutes', '15 minutes', '-3 minutes') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w, region
$$);
SELECT wmstream.create_stream('cumulating', $$
  SELECT lower(w) AS since, upper(w) AS until, count(*) AS n
  FROM   orders, wmstream.cumulate_window(ts, '1 hour', '6 hours') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w
$$);
SELECT wmstream.create_stream('raw_time', $$
  SELECT ts, count(*) AS n FROM orders WHERE wmstream.watermark(ts, '10 minutes') GROUP BY ts
$$);
SELECT wmstream.create_stream('whole_range', $$
  SELECT w, count(*) AS n FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w
$$);
SELECT wmstream.create_stream('without_key', $$
  SELECT count(*) AS n FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, region
$$);
-- keys are shown: PRIMARY KEY of window bounds, else UNIQUE NULLS NOT DISTINCT, else none
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint
WHERE contype IN ('p', 'u') AND conrelid IN (SELECT stream FROM wmstream.streams) ORDER BY conrelid::regclass::text;

-- Rows that came before a stream are not in it: from here on all see the same rows.
TRUNCATE orders;
DO $$
BEGIN
	FOR batch IN 0..59 LOOP
		-- each transaction brings times up to ten minutes behind those that came before
		INSERT INTO orders (ts, region, amount)
		SELECT timestamptz '2024-03-02 00:00+00' + batch * interval '17 minutes' - (n * 37 % 600) * interval '1 second',
			   (ARRAY['east', 'west', 'north', NULL])[1 + (n * 7 + batch) % 4], (n * 31 + batch * 17) % 100 - 5
		FROM   generate_series(0, 12) n;
		COMMIT;
	END LOOP;
END
$$;
\set hour 'hour + interval ''1 hour'' <= $1'
SELECT wmstream.wait('hourly_sales');
-- hourly_sales has the rows of the beginning as well
SELECT * FROM oracle.differences(
	$$SELECT lower(w), region, sum(amount), count(*) FROM orders, wmstream.window(ts, '1 hour') w
	  WHERE upper(w) <= (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'hourly_sales'::regclass) GROUP BY w, region$$,
	$$SELECT * FROM hourly_sales WHERE hour > '2024-03-01 12:00+00'$$);
SELECT * FROM oracle.compare('busy', :'hour');
SELECT * FROM oracle.compare('by_expression', 'until <= $1');
SELECT * FROM oracle.compare('sliding', 'since + interval ''6 hours'' <= $1');
SELECT * FROM oracle.compare('odd_slide', 'since + interval ''50 minutes'' <= $1');
SELECT * FROM oracle.compare('cumulating', 'until <= $1');
SELECT * FROM oracle.compare('raw_time', 'ts < $1');
SELECT * FROM oracle.compare('whole_range', 'upper(w) <= $1');
SELECT late_rows, no_time_rows, count(*) FROM wmstream.stat_streams GROUP BY 1, 2;

-- What was rolled back never was: savepoints, exceptions, whole transactions; what was prepared comes with its COMMIT.
BEGIN;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 20:00+00', 'kept', 1);
SAVEPOINT a;
INSERT INTO orders (ts, region, amount) VALUES ('2030-01-01 00:00+00', 'rolled back', 1);
SAVEPOINT b;
INSERT INTO orders (ts, region, amount) VALUES ('2030-01-01 00:00+00', 'rolled back', 1);
RELEASE b;
ROLLBACK TO a;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 20:01+00', 'kept', 2);
SAVEPOINT c;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 20:02+00', 'kept', 3);
RELEASE c;
COMMIT;
BEGIN;
INSERT INTO orders (ts, region, amount) VALUES ('2030-01-01 00:00+00', 'rolled back', 1);
ROLLBACK;
DO $$
BEGIN
	FOR i IN 1..300 LOOP
		BEGIN
			INSERT INTO orders (ts, region, amount) VALUES (timestamptz '2024-03-02 20:00+00' + i * interval '1 second', 'loop', i);
			IF i % 3 = 0 THEN
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END
$$;
BEGIN;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 20:10+00', 'prepared', 1);
PREPARE TRANSACTION 'p';
SELECT wmstream.wait('hourly_sales');
SELECT count(*) FROM wmstream.open_windows(NULL::hourly_sales) WHERE region = 'prepared';
COMMIT PREPARED 'p';
BEGIN;
INSERT INTO orders (ts, region, amount) VALUES ('2030-01-01 00:00+00', 'rolled back', 1);
PREPARE TRANSACTION 'q';
ROLLBACK PREPARED 'q';
COPY orders (ts, region, amount) FROM STDIN WITH (FORMAT csv);
2024-03-02 20:12+00,copied,1
2024-03-02 20:13+00,copied,2
\.
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 23:00+00', 'closes', 1);
SELECT * FROM oracle.compare('busy', :'hour');
SELECT wmstream.wait('hourly_sales');
SELECT * FROM hourly_sales WHERE hour = '2024-03-02 20:00+00' ORDER BY region;

-- Changed and removed rows are counted, not taken back.
UPDATE orders SET amount = 0 WHERE region = 'closes';
DELETE FROM orders WHERE region = 'loop';
SELECT wmstream.wait('hourly_sales');
SELECT changed_rows FROM wmstream.stat_streams WHERE stream = 'hourly_sales'::regclass;

-- A window is written once: a row of the result that was deleted by hand does not come back.
DELETE FROM hourly_sales;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-03 03:00+00', 'later', 1);
SELECT wmstream.wait('hourly_sales');
SELECT count(*) FROM hourly_sales WHERE hour < '2024-03-02 23:00+00';

-- timestamp without time zone; a delay of months counts 31 days each.
CREATE TABLE local_orders (at timestamp, n int);
SELECT wmstream.create_stream('local_hours', $$
  SELECT lower(w) AS hour, sum(n) AS n FROM local_orders, wmstream.window(at, '1 hour') AS w WHERE wmstream.watermark(at, '1 month') GROUP BY w
$$);
INSERT INTO local_orders SELECT timestamp '1969-12-01 00:30' + i * interval '7 hours', i FROM generate_series(1, 300) i;
SELECT wmstream.wait('local_hours');
SELECT max_event_time AT TIME ZONE 'UTC' - watermark AT TIME ZONE 'UTC' AS delay FROM wmstream.stat_streams WHERE stream = 'local_hours'::regclass;
SELECT * FROM oracle.compare('local_hours', $$hour + interval '1 hour' <= $1 AT TIME ZONE 'UTC'$$);

-- Windows of other sizes: a microsecond, years.
CREATE TABLE ticks (ts timestamptz, v int);
SELECT wmstream.create_stream('tiny', $$
  SELECT lower(w) AS at, count(*) AS n FROM ticks, wmstream.window(ts, '1 microsecond') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
SELECT wmstream.create_stream('huge', $$
  SELECT lower(w) AS since, count(*) AS n FROM ticks, wmstream.window(ts, '36500 days') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
INSERT INTO ticks SELECT timestamptz '1969-12-31 23:59:59.9999+00' + (i / 3) * interval '1 microsecond', i FROM generate_series(1, 900) i;
SELECT * FROM oracle.compare('tiny', $$at + interval '1 microsecond' <= $1$$);
INSERT INTO ticks VALUES ('2100-01-01 00:00+00', 1), ('2200-01-01 00:00+00', 1);
SELECT * FROM oracle.compare('huge', $$since + interval '36500 days' <= $1$$);
SELECT * FROM oracle.compare('tiny', $$at + interval '1 microsecond' <= $1$$);

-- trigger_interval: rows are fed at once; the stream fires when it is over, or when advance_watermark says so.
-- wait() waits for the firing, so the rows are seen to be consumed by the count of them.
CREATE PROCEDURE consumed(expected int8) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..3000 LOOP
    IF (SELECT input_rows = expected FROM wmstream.stat_streams WHERE stream = 'rarely'::regclass) THEN RETURN; END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RAISE 'not consumed in time';
END $$;
CREATE TABLE slow (ts timestamptz, v int);
SELECT wmstream.create_stream('rarely', $$
  SELECT lower(w) AS hour, sum(v) AS v FROM slow, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$, trigger_interval => '1 day');
INSERT INTO slow VALUES ('2024-01-01 00:00+00', 1), ('2024-01-01 05:00+00', 1);
CALL consumed(2);
INSERT INTO slow VALUES ('2024-01-01 09:00+00', 1);
INSERT INTO slow VALUES ('2024-01-01 06:00+00', 2);	-- on time: W is that of the last firing
CALL consumed(4);
SELECT watermark, late_rows FROM wmstream.stat_streams WHERE stream = 'rarely'::regclass;
SELECT * FROM wmstream.live(NULL::rarely) ORDER BY hour;
SELECT wmstream.advance_watermark('rarely', '2024-01-01 08:00+00');
SELECT * FROM oracle.compare('rarely', $$hour + interval '1 hour' <= $1$$);
SELECT watermark FROM wmstream.stat_streams WHERE stream = 'rarely'::regclass;
-- it never goes back
SELECT wmstream.advance_watermark('rarely', '2020-01-01 08:00+00');
SELECT wmstream.wait('rarely');
SELECT watermark FROM wmstream.stat_streams WHERE stream = 'rarely'::regclass;

-- A window of the clock: W that was moved by hand is ahead of the clock, and does not go back; what comes until then belongs to the window that it
-- stands in, for nothing is late.
CREATE TABLE beats (k int);
SELECT wmstream.create_stream('by_clock', $$
  SELECT lower(w) AS day, k, count(*) AS n FROM beats, wmstream.window(now(), '1 day') AS w GROUP BY w, k
$$);
INSERT INTO beats VALUES (1), (1), (2);
SELECT wmstream.advance_watermark('by_clock', '2100-01-01 12:00+00');
SELECT wmstream.wait('by_clock');
SELECT k, n, day <= now() AS by_clock FROM by_clock ORDER BY k;
INSERT INTO beats VALUES (1), (2);
SELECT wmstream.wait('by_clock');
INSERT INTO beats VALUES (2), (3);
SELECT wmstream.wait('by_clock');
SELECT watermark, late_rows FROM wmstream.stat_streams WHERE stream = 'by_clock'::regclass;
SELECT * FROM wmstream.open_windows(NULL::by_clock) ORDER BY k;
SELECT count(*), sum(n) FROM by_clock;
