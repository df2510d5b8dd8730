-- Definitions that nobody would write by hand, each of which was once answered by an internal error or ran otherwise than it should.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE TABLE left_rows (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);
CREATE TABLE right_rows (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);

-- Groups joined with groups, without a bound: the event time is carried up through both subqueries.
SELECT wmstream.create_stream('groups_joined', $$
  SELECT a.w AS a_window, b.w AS b_window, a.k, a.n, b.total
  FROM  (SELECT w, k, count(*) AS n FROM left_rows, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, k) AS a
  JOIN  (SELECT w, k, sum(v) AS total FROM right_rows, wmstream.window(ts, '2 hours') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, k) AS b ON b.k = a.k
$$);
SELECT line FROM wmstream.explain('groups_joined'::regclass) line WHERE line ~ 'side|key|state:';
INSERT INTO left_rows (ts, k, v) SELECT timestamptz '2024-01-01 10:00+00' + n * interval '7 minutes', chr(97 + n % 2), n FROM generate_series(0, 40) n;
INSERT INTO right_rows (ts, k, v) SELECT timestamptz '2024-01-01 10:00+00' + n * interval '9 minutes', chr(97 + n % 3), n FROM generate_series(0, 40) n;
SELECT wmstream.advance_watermark('groups_joined', '2024-01-02 00:00+00');
SELECT * FROM oracle.compare('groups_joined');

-- Rows joined without a bound, one side a subquery that a function in FROM refers to.
SELECT wmstream.create_stream('side_by_side', $$
  SELECT a.id, b.v FROM left_rows a JOIN (SELECT ts, k, v FROM right_rows WHERE wmstream.watermark(ts, '10 minutes')) b ON b.k = a.k AND b.v < a.v, generate_series(1, b.v % 3) g
  WHERE wmstream.watermark(a.ts, '10 minutes')
$$);
INSERT INTO left_rows (ts, k, v) VALUES ('2024-01-02 10:00+00', 'a', 5), ('2024-01-02 10:01+00', 'b', 9);
INSERT INTO right_rows (ts, k, v) VALUES ('2024-01-02 10:00+00', 'a', 1), ('2024-01-02 10:01+00', 'b', 8), ('2024-01-02 10:01+00', 'b', 9);
SELECT wmstream.wait('side_by_side');
SELECT * FROM side_by_side ORDER BY id, v;

-- A static table on the nullable side above joined streams, below an aggregate.
CREATE TABLE names (k text, name text);
INSERT INTO names VALUES ('a', 'first'), ('a', 'second');
SELECT wmstream.create_stream('static_above', $$
  SELECT lower(w) AS hour, count(*) AS n, count(name) AS named
  FROM  (SELECT a.ts, n.name FROM left_rows a JOIN right_rows b ON b.k = a.k AND b.ts BETWEEN a.ts - interval '1 minute' AND a.ts + interval '1 minute' LEFT JOIN names n ON n.k = a.k
         WHERE wmstream.watermark(a.ts, '10 minutes') AND wmstream.watermark(b.ts, '10 minutes')) q, wmstream.window(ts, '1 hour') AS w
  GROUP BY w
$$);
INSERT INTO left_rows (ts, k, v) VALUES ('2024-01-03 10:00+00', 'a', 5), ('2024-01-03 10:01+00', 'b', 9);
INSERT INTO right_rows (ts, k, v) VALUES ('2024-01-03 10:00+00', 'a', 1), ('2024-01-03 10:01+00', 'b', 8), ('2024-01-03 10:01+00', 'b', 9);
SELECT wmstream.advance_watermark('static_above', '2024-01-03 12:00+00');
SELECT wmstream.wait('static_above');
TABLE static_above;

-- What only the planner refuses is refused at creation too.
SELECT wmstream.create_stream('unplanned', $$
  SELECT a.id, c.name FROM left_rows a, names b FULL JOIN names c ON b.k = 'a' WHERE wmstream.watermark(a.ts, '0')
$$);
\echo :SQLSTATE
SELECT wmstream.create_stream('unplanned', 'SELECT id, 2147483647 + 1 AS more FROM left_rows');
\echo :SQLSTATE
SELECT count(*) FROM wmstream.streams;
