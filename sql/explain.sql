-- How a query would run, and how a stream runs.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE TABLE orders (id int, ts timestamptz, local timestamp, customer int, amount numeric);
CREATE TABLE customers (id int PRIMARY KEY, name text);

SELECT wmstream.explain($$
  SELECT lower(w) AS hour, customer, sum(amount) AS total, count(*) AS orders
  FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, customer HAVING count(*) > 1
$$);
SELECT wmstream.explain($$
  SELECT w, count(DISTINCT customer) AS customers, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS median, array_agg(id ORDER BY ts) AS ids, avg(amount) FILTER (WHERE id > 0) AS mean
  FROM orders, wmstream.window(ts, '6 hours', '1 hour', '5 minutes') AS w WHERE wmstream.watermark(ts, '1 month') GROUP BY w
$$);
SELECT wmstream.explain($$
  SELECT lower(w) AS since, upper(w) AS until, c.name, count(*) AS n
  FROM orders o JOIN customers c ON c.id = o.customer, wmstream.cumulate_window(local, '1 hour', '1 day') AS w WHERE wmstream.watermark(local, '0') AND amount > 0 GROUP BY w, c.name
$$);
SELECT wmstream.explain('SELECT id, amount * 2 AS twice FROM orders WHERE amount > 5');
SELECT wmstream.explain('SELECT ts, count(*) AS n FROM (SELECT * FROM orders WHERE id > 0) o WHERE wmstream.watermark(ts, ''1 s'') GROUP BY ts');
SELECT wmstream.explain($$
  SELECT hour, customer, total FROM (
    SELECT lower(w) AS hour, customer, sum(amount) AS total, rank() OVER (PARTITION BY w ORDER BY sum(amount) DESC) AS place
    FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, customer) t WHERE place <= 3
$$);
SELECT wmstream.explain($$
  SELECT * FROM (SELECT lower(w) AS hour, id, row_number() OVER (PARTITION BY w ORDER BY amount) AS place
    FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes')) t WHERE place = 1
$$);
-- a window of windows
SELECT wmstream.explain($$
  SELECT lower(d) AS day, max(n) AS busiest FROM (
    SELECT w, count(*) AS n FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w) h, wmstream.window(h.w, '1 day') AS d GROUP BY d
$$);
-- where append mode is refused, the next mode that is possible is shown too; an error of the query is one here too
SELECT wmstream.explain('SELECT customer, count(*) FROM orders GROUP BY customer');
\echo :SQLSTATE
SELECT wmstream.explain('SELECT nothing');
SELECT wmstream.explain('');
\echo :SQLSTATE

-- of a stream: with its own options
SELECT wmstream.create_stream('by_customer', 'SELECT customer, count(*) AS n, max(ts) AS newest FROM orders GROUP BY customer', output_mode => 'update');
SELECT wmstream.explain('by_customer'::regclass);
SELECT wmstream.create_stream('ranked', 'SELECT customer, count(*) AS n FROM orders GROUP BY customer ORDER BY n DESC LIMIT 5', output_mode => 'complete');
SELECT wmstream.explain('ranked'::regclass);
SELECT wmstream.create_stream('hours', 'SELECT lower(w) AS hour, count(*) AS n FROM orders, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w');
SELECT wmstream.alter_stream('hours', 'delay', '2 hours');
SELECT wmstream.explain('hours'::regclass);
SELECT wmstream.explain('orders'::regclass);
\echo :SQLSTATE
-- nothing was made by looking
SELECT count(*) FROM wmstream.streams;
-- and what was shown is what runs
INSERT INTO orders SELECT n, timestamptz '2024-01-01 00:00+00' + n * interval '10 minutes', NULL, n % 7, n FROM generate_series(1, 100) n;
SELECT stream, result > 0 AS some, missing, surplus FROM wmstream.streams, oracle.compare(stream, CASE stream::text WHEN 'hours' THEN 'hour + interval ''1 hour'' <= $1' END) WHERE stream::text IN ('hours', 'by_customer') ORDER BY stream::text;
