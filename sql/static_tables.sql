-- What Postgres runs below the operators: joins with static tables, LATERAL, subqueries, CTEs, views, functions that return sets;
-- and above them.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, customer int, amount numeric, words text);
CREATE TABLE customers (id int PRIMARY KEY, name text, country text);
CREATE TABLE rates (country text, since timestamptz, rate numeric);
INSERT INTO customers SELECT i, 'name ' || i, (ARRAY['nl', 'de', NULL])[1 + i % 3] FROM generate_series(1, 20) i;
INSERT INTO rates SELECT c, timestamptz '2024-01-01 00:00+00' + i * interval '3 hours', 1 + i / 10.0 FROM unnest('{nl,de}'::text[]) c, generate_series(0, 10) i;
\set closed 'hour + interval ''1 hour'' <= $1'

SELECT wmstream.create_stream('joined', $$
  SELECT lower(w) AS hour, c.country, count(*) AS n, sum(o.amount) AS total
  FROM   orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes')
  GROUP  BY w, c.country
$$);
SELECT wmstream.create_stream('outer_joined', $$
  SELECT lower(w) AS hour, coalesce(c.name, '?') AS name, count(c.id) AS known, count(*) AS n
  FROM   orders o LEFT JOIN customers c ON c.id = o.customer CROSS JOIN wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes')
  GROUP  BY w, c.name
$$);
SELECT wmstream.create_stream('as_of', $$
  SELECT lower(w) AS hour, sum(o.amount * r.rate) AS total
  FROM   orders o JOIN customers c ON c.id = o.customer
         CROSS JOIN LATERAL (SELECT rate FROM rates r WHERE r.country = c.country AND r.since <= o.ts ORDER BY since DESC LIMIT 1) r,
         wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes')
  GROUP  BY w
$$);
SELECT wmstream.create_stream('word_count', $$
  SELECT lower(w) AS hour, word, count(*) AS n
  FROM   orders, string_to_table(lower(words), ' ') AS word, wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes') AND word <> ''
  GROUP  BY w, word
$$);
SELECT wmstream.create_stream('sliding_words', $$
  SELECT lower(w) AS hour, word, count(*) AS n
  FROM   orders, string_to_table(words, ' ') AS word, wmstream.window(ts, '2 hours', '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w, word
$$);
SELECT wmstream.create_stream('with_subqueries', $$
  SELECT lower(w) AS hour, count(*) AS n, count(*) FILTER (WHERE big) AS big
  FROM   (SELECT ts, amount > (SELECT avg(rate) * 20 FROM rates) AS big FROM orders o
          WHERE  EXISTS (SELECT FROM customers c WHERE c.id = o.customer) AND customer NOT IN (SELECT id FROM customers WHERE country = 'de')) o,
         wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w
$$);
SELECT wmstream.create_stream('with_ctes', $$
  WITH dutch AS (SELECT id FROM customers WHERE country = 'nl'),
       hot AS MATERIALIZED (SELECT id FROM dutch WHERE id > 5),
       input AS (SELECT o.* FROM orders o WHERE wmstream.watermark(ts, '10 minutes'))
  SELECT lower(w) AS hour, count(*) AS n FROM input JOIN hot ON hot.id = input.customer, wmstream.window(ts, '1 hour') AS w GROUP BY w
$$);
-- a window that every row has, and one that some have
SELECT wmstream.create_stream('all_windows', $$
  SELECT lower(w) AS hour, count(*) AS n FROM orders o LEFT JOIN LATERAL wmstream.window(o.ts, '1 hour') AS w ON true WHERE wmstream.watermark(o.ts, '10 minutes') GROUP BY w
$$);
SELECT wmstream.create_stream('used_windows', $$
  SELECT lower(w) AS hour, count(*) AS n, max(o.ts - lower(w)) AS latest FROM orders o LEFT JOIN LATERAL wmstream.window(o.ts, '1 hour', '20 minutes') AS w ON true WHERE wmstream.watermark(o.ts, '10 minutes') GROUP BY w
$$);
SELECT wmstream.create_stream('some_windows', $$
  SELECT w, ts AS hour, count(*) AS n FROM orders o LEFT JOIN LATERAL wmstream.window(o.ts, '1 hour') AS w ON o.amount > 20 WHERE wmstream.watermark(o.ts, '10 minutes') GROUP BY w, ts
$$);
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid::regclass::text LIKE '%windows' ORDER BY 1;
-- groups of which some are over all values of the key
SELECT wmstream.create_stream('rolled_up', $$
  SELECT lower(w) AS hour, c.id, count(*) AS n
  FROM   orders o JOIN (SELECT id FROM customers GROUP BY ROLLUP (id)) c ON c.id = o.customer OR c.id IS NULL, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes')
  GROUP  BY w, c.id
$$);
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'rolled_up'::regclass;
CREATE VIEW dear AS SELECT ts, customer, amount FROM orders WHERE amount > 10;
CREATE VIEW dear_names AS SELECT d.*, c.name FROM dear d JOIN customers c ON c.id = d.customer;
SELECT wmstream.create_stream('over_views', $$
  SELECT lower(w) AS hour, name, count(*) AS n FROM dear_names, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, name
$$);
SELECT wmstream.create_stream('branches', $$
  SELECT lower(w) AS hour, what, count(*) AS n
  FROM   (SELECT ts, 'dear' AS what FROM orders WHERE amount > 10 UNION ALL SELECT ts, 'cheap' FROM orders WHERE amount <= 10 UNION ALL SELECT ts, 'all' FROM orders) o,
         wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w, what
$$);
-- above the operator: top-N per window, joins of finished groups, expressions
SELECT wmstream.create_stream('top_three', $$
  SELECT hour, customer, total, place FROM (
    SELECT lower(w) AS hour, customer, sum(amount) AS total, row_number() OVER (PARTITION BY w ORDER BY sum(amount) DESC NULLS LAST, customer) AS place
    FROM   orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, customer) t
  WHERE  place <= 3
$$);
SELECT wmstream.create_stream('top_raw', $$
  SELECT hour, id, amount FROM (
    SELECT lower(w) AS hour, o.id, amount, rank() OVER (PARTITION BY w ORDER BY amount DESC NULLS LAST, o.id) AS place
    FROM   orders o, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes')) t
  WHERE  place <= 2
$$);
SELECT wmstream.create_stream('named', $$
  SELECT g.hour, c.name, g.total FROM (
    SELECT lower(w) AS hour, customer, sum(amount) AS total
    FROM   orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, customer) g
  LEFT JOIN customers c ON c.id = g.customer
$$);
SELECT wmstream.create_stream('shares', $$
  SELECT lower(w) AS hour, customer, round(sum(amount) / nullif(sum(sum(amount)) OVER (PARTITION BY w), 0), 6) AS share,
         (SELECT count(*) FROM customers c WHERE c.id < orders.customer) AS smaller
  FROM   orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, customer
$$);
-- a static table alone makes no stream; the stream may not be on the side that is filled with NULLs
SELECT wmstream.create_stream('refused', 'SELECT c.id, o.id AS o FROM customers c LEFT JOIN orders o ON o.customer = c.id AND wmstream.watermark(o.ts, ''0'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('refused', 'SELECT c.id, o.id AS o FROM customers c JOIN orders o ON o.customer = c.id');
\echo :SQLSTATE

DO $$
BEGIN
	FOR batch IN 0..29 LOOP
		INSERT INTO orders (ts, customer, amount, words)
		SELECT timestamptz '2024-01-01 02:00+00' + batch * interval '17 minutes' - (n * 37 % 600) * interval '1 second',
			   (n * 7 + batch) % 25, (n * 31 + batch * 17) % 40, (ARRAY['To be or', 'not to be', 'that  is', NULL, ''])[1 + (n + batch) % 5]
		FROM   generate_series(0, 15) n;
		COMMIT;
	END LOOP;
END
$$;
SELECT s.stream, c.result > 0 AS some, missing, surplus, live_missing, live_surplus FROM wmstream.streams s,
	oracle.compare(s.stream, CASE s.stream::text WHEN 'sliding_words' THEN replace(:'closed', '1 hour', '2 hours') WHEN 'some_windows' THEN 'hour < $1' ELSE :'closed' END) c ORDER BY s.stream::text;
SELECT DISTINCT input_rows, late_rows, no_time_rows FROM wmstream.stat_streams;	-- counted by source row, however often a join multiplies it

-- Whole rows: of a view in its own type, NULL where an outer join found none.
CREATE VIEW bought AS SELECT id, ts, customer, amount FROM orders;
CREATE VIEW known AS SELECT id, name FROM customers;
CREATE FUNCTION since(bought) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1.ts; END';
CREATE FUNCTION since(orders) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1.ts; END';
SELECT wmstream.create_stream('counted_rows', $$
  SELECT lower(w) AS hour, count(c) AS known, count(k) AS dutch, count(o) AS n
  FROM   bought o LEFT JOIN known c ON c.id = o.customer LEFT JOIN (SELECT id FROM customers WHERE country = 'nl') k ON k.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes')
  GROUP  BY w
$$, start_from => 'beginning');
SELECT wmstream.create_stream('grouped_rows', $$
  SELECT lower(w) AS hour, c AS known, count(*) AS n FROM orders o LEFT JOIN known c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w, c
$$, start_from => 'beginning');
SELECT wmstream.create_stream('timed_rows', $$
  SELECT lower(w) AS hour, count(*) AS n FROM orders o, wmstream.window(since(o), '1 hour') AS w WHERE wmstream.watermark(since(o), '10 minutes') GROUP BY w
$$, start_from => 'beginning');
SELECT wmstream.create_stream('timed_view', $$
  SELECT lower(w) AS hour, count(*) AS n, count(x) AS rows FROM (SELECT since(b) AS at, b FROM bought b) x, wmstream.window(x.at, '1 hour') AS w WHERE wmstream.watermark(x.at, '10 minutes') GROUP BY w
$$, start_from => 'beginning');
SELECT s.stream, c.result > 0 AS some, missing, surplus, live_missing, live_surplus FROM unnest('{counted_rows,grouped_rows,timed_rows,timed_view}'::regclass[]) s(stream), oracle.compare(s.stream, :'closed') c;
SELECT wmstream.create_stream('shown_rows', $$
  WITH countries AS (SELECT id, country FROM customers WHERE id < 15)
  SELECT o.id, o AS bought, c AS known, c IS NULL AS unknown, to_jsonb(k) AS country, (SELECT to_jsonb(o)) AS same
  FROM   bought o LEFT JOIN known c ON c.id = o.customer LEFT JOIN countries k ON k.id = o.customer
  WHERE  wmstream.watermark(o.ts, '10 minutes')
$$, start_from => 'beginning');
SELECT c.* FROM oracle.compare('shown_rows') c;
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'shown_rows'::regclass AND attnum > 0 ORDER BY attnum;
-- also where they are kept; rows of subqueries have no type that they could be kept by, and are made anew where there always is one
SELECT wmstream.create_stream('kept_rows', $$
  SELECT lower(w) AS hour, jsonb_agg(c ORDER BY o.id) AS known, jsonb_agg(k ORDER BY o.id) AS countries
  FROM   bought o LEFT JOIN known c ON c.id = o.customer JOIN (SELECT id, country FROM customers WHERE id < 15) k ON k.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w
$$, start_from => 'beginning');
SELECT c.result > 0 AS some, missing, surplus, live_missing, live_surplus FROM oracle.compare('kept_rows', :'closed') c;
SELECT wmstream.create_stream('joined_rows', $$
  SELECT a.id, b AS former, c AS known, to_jsonb(k) AS country
  FROM   bought a LEFT JOIN (bought b LEFT JOIN known c ON c.id = b.customer AND c.id < 10 JOIN (SELECT id, country FROM customers WHERE id < 15) k ON k.id = b.customer)
         ON b.customer = a.customer AND b.ts BETWEEN a.ts - interval '2 hours' AND a.ts - interval '1 second'
  WHERE  wmstream.watermark(a.ts, '10 minutes') AND wmstream.watermark(b.ts, '10 minutes')
$$, start_from => 'beginning');
SELECT wmstream.advance_watermark('joined_rows', '2024-01-02 00:00+00');
SELECT c.* FROM oracle.compare('joined_rows') c;
SELECT count(*) FILTER (WHERE former IS NULL) > 0 AS alone, count(*) FILTER (WHERE former IS NOT NULL AND known IS NULL) > 0 AS unknown, count(*) FILTER (WHERE known IS NOT NULL) > 0 AS known FROM joined_rows;
SELECT wmstream.create_stream('refused', $$
  SELECT lower(w) AS hour, jsonb_agg(k) AS countries FROM orders o LEFT JOIN (SELECT id, country FROM customers) k ON k.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w
$$);

-- A batch sees static tables as they are when it runs.
INSERT INTO customers VALUES (24, 'new', 'xx');
UPDATE customers SET country = 'be' WHERE country = 'nl';
INSERT INTO orders (ts, customer, amount) VALUES ('2024-01-02 00:00+00', 24, 5), ('2024-01-02 00:00+00', 2, 5), ('2024-01-02 03:00+00', 1, 1);
SELECT wmstream.wait('joined');
SELECT * FROM joined WHERE hour >= '2024-01-02' ORDER BY country;
-- in the same transaction too: a commit that is decoded is visible
BEGIN;
INSERT INTO customers VALUES (25, 'same transaction', 'yy');
INSERT INTO orders (ts, customer, amount) VALUES ('2024-01-02 04:00+00', 25, 5), ('2024-01-02 08:00+00', 1, 1);
COMMIT;
SELECT wmstream.wait('joined');
SELECT * FROM joined WHERE hour >= '2024-01-02 04:00+00' ORDER BY country;
-- plans follow changes of what they read
CREATE INDEX ON customers (country);
ALTER TABLE customers ADD COLUMN extra int DEFAULT 3;
ALTER TABLE customers RENAME COLUMN name TO full_name;
CREATE OR REPLACE VIEW dear AS SELECT ts, customer, amount FROM orders WHERE amount > 30;
INSERT INTO orders (ts, customer, amount) VALUES ('2024-01-03 00:00+00', 1, 20), ('2024-01-03 00:00+00', 1, 35), ('2024-01-03 03:00+00', 1, 40);
SELECT wmstream.wait('over_views');
SELECT * FROM over_views WHERE hour = '2024-01-03';
SELECT wmstream.wait('named');
SELECT * FROM named WHERE hour = '2024-01-03';
SELECT s.stream, oracle.status(s.stream) FROM wmstream.streams s WHERE oracle.status(s.stream) <> 'running';
