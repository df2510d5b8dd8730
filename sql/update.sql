-- Update mode: at each firing the groups that rows have touched are written under their key.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, region text, amount numeric);
SELECT wmstream.create_stream('hourly', $$
  SELECT lower(w) AS hour, region, count(*) AS n, sum(amount) AS total
  FROM   orders, wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w, region
$$, output_mode => 'update');
\d hourly
-- without a window: one row per region, for ever
SELECT wmstream.create_stream('by_region', $$
  SELECT region, count(*) AS n, avg(amount) AS mean FROM orders GROUP BY region
$$, output_mode => 'update');
-- HAVING takes rows away that no longer pass
SELECT wmstream.create_stream('in_debt', $$
  SELECT region, sum(amount) AS balance, array_agg(id ORDER BY id) AS ids FROM orders GROUP BY region HAVING sum(amount) < 0
$$, output_mode => 'update');
SELECT wmstream.create_stream('sliding', $$
  SELECT w, count(*) AS n FROM orders, wmstream.window(ts, '3 hours', '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes') AND amount IS DISTINCT FROM 1000 GROUP BY w
$$, output_mode => 'update');
SELECT wmstream.create_stream('only_keys', $$
  SELECT region, id % 4 AS part FROM orders GROUP BY region, id % 4
$$, output_mode => 'update');

INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:05+00', 'east', 10), ('2024-03-01 10:50+00', 'west', -5), ('2024-03-01 10:20+00', NULL, NULL);
SELECT wmstream.wait('hourly');
TABLE hourly ORDER BY hour, region;
SELECT wmstream.wait('in_debt');
TABLE in_debt;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:30+00', 'west', 4), ('2024-03-01 10:30+00', NULL, 1);
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:31+00', 'west', 1), ('2024-03-01 10:30+00', 'north', -1);
SELECT wmstream.wait('in_debt');
TABLE in_debt;
SELECT * FROM oracle.compare('hourly');

-- Only what was touched is written: rows of other groups are not even looked at.
CREATE TABLE seen AS SELECT hour, region, xmin::text::bigint AS version FROM hourly;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:45+00', 'west', 1);
SELECT wmstream.wait('hourly');
SELECT h.region, h.xmin::text::bigint = s.version AS untouched FROM hourly h JOIN seen s ON h.hour = s.hour AND h.region IS NOT DISTINCT FROM s.region ORDER BY 1;
-- The owner's own columns, indexes and deletions are left alone.
ALTER TABLE hourly ADD COLUMN remark text DEFAULT 'new';
CREATE INDEX ON hourly (total);
UPDATE hourly SET remark = 'mine' WHERE region = 'west';
DELETE FROM hourly WHERE region = 'east';
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:46+00', 'west', 1), ('2024-03-01 10:46+00', 'south', 1);
SELECT wmstream.wait('hourly');
SELECT region, n, total, remark FROM hourly ORDER BY region;
-- a deleted row comes back whole with the next row of its group
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:47+00', 'east', 1);
SELECT * FROM oracle.compare('hourly');

-- State leaves at W, the last value stays.
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 11:10+00', 'east', 1);
SELECT * FROM oracle.compare('hourly');
SELECT state_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 10:59+00', 'east', 1000);	-- late
SELECT wmstream.wait('hourly');
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass;
SELECT hour, region, n, total FROM hourly WHERE region = 'east' ORDER BY 1;
SELECT * FROM oracle.compare('by_region');	-- has no windows, drops nothing
DELETE FROM orders WHERE amount = 1000;	-- so that the batch answer is that of the rows on time

DO $$
BEGIN
	FOR batch IN 0..49 LOOP
		INSERT INTO orders (ts, region, amount)
		SELECT timestamptz '2024-03-01 11:30+00' + batch * interval '17 minutes' - (n * 37 % 600) * interval '1 second',
			   (ARRAY['east', 'west', 'north', NULL])[1 + (n * 7 + batch) % 4], (n * 31 + batch * 17) % 100 - 50
		FROM   generate_series(0, 12) n;
		COMMIT;
	END LOOP;
END
$$;
SELECT * FROM oracle.compare('hourly');
SELECT * FROM oracle.compare('sliding');
SELECT * FROM oracle.differences($$
	SELECT region, sum(amount), array_agg(id ORDER BY id) FROM (TABLE orders UNION ALL SELECT 14, '2024-03-01 10:59+00', 'east', 1000) o
	GROUP BY 1 HAVING sum(amount) < 0$$, 'SELECT region, balance, ids FROM in_debt');
SELECT * FROM oracle.compare('only_keys');

-- trigger_interval: many batches, one write.
SELECT wmstream.create_stream('lazy', $$
  SELECT region, count(*) AS n FROM orders GROUP BY region
$$, output_mode => 'update', trigger_interval => '1 day');
-- wait() waits for the firing, so the rows are seen to be consumed by the count of them.
CREATE PROCEDURE consumed(expected int8) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..3000 LOOP
    IF (SELECT input_rows = expected FROM wmstream.stat_streams WHERE stream = 'lazy'::regclass) THEN RETURN; END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RAISE 'not consumed in time';
END $$;
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 10:00+00', 'a', 1);
CALL consumed(1);
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 10:00+00', 'a', 1), ('2024-03-02 10:00+00', 'b', 1);
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 10:00+00', 'a', 1);
CALL consumed(4);
TABLE lazy ORDER BY region;
SELECT * FROM wmstream.live(NULL::lazy) ORDER BY region;
SELECT wmstream.alter_stream('lazy', 'trigger_interval', '0');
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-02 10:00+00', 'b', 1);
SELECT wmstream.wait('lazy');
TABLE lazy ORDER BY region;

-- Rows are taken away by the key's index, NULL or not: none of the others is read.
CREATE TABLE stock (a int, b text, n int);
SELECT wmstream.create_stream('in_stock', 'SELECT a, b, sum(n) AS n FROM stock GROUP BY a, b HAVING sum(n) > 0', output_mode => 'update');
INSERT INTO stock VALUES (0, '0', 1), (NULL, NULL, 1);
SELECT wmstream.wait('in_stock');
INSERT INTO stock VALUES (0, '0', -1);
SELECT wmstream.wait('in_stock');
TABLE in_stock;
INSERT INTO stock SELECT nullif(i % 100, 0), nullif(i / 100, 0)::text, 1 FROM generate_series(1, 5000) i;
SELECT wmstream.wait('in_stock');
INSERT INTO stock VALUES (NULL, NULL, -1), (NULL, '5', -1), (7, NULL, -1), (7, '7', -1), (7, '8', 1);
SELECT wmstream.wait('in_stock');
CREATE FUNCTION taken(rows int, OUT read_in_order boolean) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..1000 LOOP
    PERFORM pg_stat_clear_snapshot();
    SELECT seq_tup_read > 100 INTO read_in_order FROM pg_stat_user_tables WHERE relid = 'in_stock'::regclass AND n_tup_del >= rows;
    IF FOUND THEN RETURN; END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RAISE 'not told in time';
END $$;
SELECT * FROM taken(5);
SELECT * FROM oracle.differences('SELECT a, b, sum(n) FROM stock GROUP BY a, b HAVING sum(n) > 0', 'TABLE in_stock');
-- a key that no index takes
SELECT wmstream.create_stream('long_keys', 'SELECT b, count(*) AS n FROM stock GROUP BY b', output_mode => 'update');
SELECT wmstream.create_stream('longer_keys', 'SELECT b || b AS b, count(*) AS n FROM stock GROUP BY b || b', output_mode => 'update');
INSERT INTO stock SELECT 1, string_agg(md5(i::text), ''), 1 FROM generate_series(1, 150) i;
SELECT oracle.status('long_keys'), oracle.status('longer_keys');
SELECT stream, regexp_replace(reason, '[0-9]+', 'N', 'g') AS reason FROM wmstream.streams WHERE stream::text LIKE 'long%' ORDER BY stream::text;
