-- What create_stream refuses, with SQLSTATE, position, reason and hint; and that a refusal leaves nothing behind.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE EXTENSION wmstream;
CREATE TABLE l (id int, k text, ts timestamptz, local timestamp, ts2 timestamptz, day date, txt text, v numeric);
CREATE TABLE r (id int, k text, ts timestamptz, v numeric);
CREATE TABLE dim (id int, k text);
\set of_l 'FROM l, wmstream.window(ts, ''10 seconds'') AS w WHERE wmstream.watermark(ts, ''10 seconds'')'

-- Clauses.
SELECT wmstream.create_stream('s', 'SELECT id FROM l ORDER BY id');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n ' || :'of_l' || ' GROUP BY w, k ORDER BY n');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY k ORDER BY n', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT count(*) AS n FROM (SELECT id FROM l ORDER BY id) s', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT id FROM l LIMIT 10');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY k ORDER BY n LIMIT 10 OFFSET 1', output_mode => 'complete');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l FOR UPDATE');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l TABLESAMPLE BERNOULLI (10)');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, id, count(*) AS n FROM l GROUP BY GROUPING SETS ((k), (id))', output_mode => 'complete');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, id, count(*) AS n FROM l GROUP BY ROLLUP (k, id)', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT id, i FROM l, n WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') EXCEPT SELECT k FROM r WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') INTERSECT ALL SELECT k FROM r WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') UNION ALL SELECT k FROM dim');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id, random() AS x FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE ts > clock_timestamp()');
SELECT wmstream.create_stream('s', 'SELECT g FROM l, generate_series(1, (random() * 3)::int) g WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS nr FROM l WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n, row_number() OVER (PARTITION BY k ORDER BY w) AS nr ' || :'of_l' || ' GROUP BY w, k');
SELECT wmstream.create_stream('s', 'SELECT w, k, rank() OVER (PARTITION BY w ORDER BY count(*)) AS nr ' || :'of_l' || ' GROUP BY w, k', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT xmin, id FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT tableoid::regclass AS t, id FROM l');
SELECT wmstream.create_stream('s', 'SELECT id, ROW(id, k) AS r FROM l');
\echo :SQLSTATE

-- watermark().
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, ''-10 seconds'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, ''1 month -40 days'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, ''1 foo'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, v * interval ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(day, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(txt::timestamptz, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(local::timestamptz, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(id, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(bad_column, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(now(), ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(timestamptz ''2024-01-01'', ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l, r WHERE wmstream.watermark(greatest(l.ts, r.ts), ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark((SELECT max(ts) FROM r), ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, ''1 s'') AND wmstream.watermark(ts2, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, ''1 s'') OR id > 0');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE NOT wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id, wmstream.watermark(ts, ''1 s'') AS x FROM l');
SELECT wmstream.create_stream('s', 'SELECT k, count(*) FILTER (WHERE wmstream.watermark(ts, ''1 s'')) AS x FROM l GROUP BY k', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT m FROM (SELECT k, max(ts) AS m FROM l GROUP BY k) x WHERE wmstream.watermark(m, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS hour, count(*) AS n FROM (SELECT ts, ts2 FROM l WHERE wmstream.watermark(ts, ''1 s'')) x, wmstream.window(ts2, ''1 hour'') AS w WHERE wmstream.watermark(ts2, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT DISTINCT id, ts FROM l) x WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT id, ts FROM l LIMIT 5) x WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r USING (k)');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT 1 AS x');
\echo :SQLSTATE

-- Windows.
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''0'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''-2 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 month'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''5 s'', ''10 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''5 s'', ''-1 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''730 days'', ''1 year'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''3 s'', ''10 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, v * interval ''1 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, NULL) AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''2 apples'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, x, count(*) AS n FROM l, wmstream.window(ts, ''1 s'') AS w, wmstream.window(ts, ''2 s'') AS x WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w, x');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS a, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''5 s'', ''10 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY lower(w)');
\echo :SQLSTATE

-- Output modes.
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY k');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''5 s'') AS w GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT ts2, count(*) AS n FROM l WHERE wmstream.watermark(ts, ''1 s'') GROUP BY ts2');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts2, ''5 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''5 s'') AS w WHERE wmstream.watermark(ts, NULL) GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT a.ts, count(*) AS n FROM l a JOIN l b ON a.k = b.k WHERE wmstream.watermark(a.ts, ''1 s'') AND wmstream.watermark(b.ts, ''1 s'') GROUP BY a.ts');
SELECT wmstream.create_stream('s', 'SELECT a.ts, count(*) AS n FROM l a JOIN l b ON a.k = b.k AND a.ts = b.ts WHERE wmstream.watermark(a.ts, ''1 s'') AND wmstream.watermark(b.ts, NULL) GROUP BY a.ts');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE id > 1', output_mode => 'complete');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n ' || :'of_l' || ' GROUP BY w, k', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n ' || :'of_l' || ' GROUP BY w, k', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n ' || :'of_l' || ' GROUP BY w, k', allowed_lateness => '1 s');
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS a, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''5 s'', ''10 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT id FROM l', allowed_lateness => '1 s');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n ' || :'of_l' || ' GROUP BY w', allowed_lateness => '-1 s');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(x) AS d, sum(n) AS n FROM (SELECT w, count(*) AS n ' || :'of_l' || ' GROUP BY w) a, wmstream.window(a.w, ''1 minute'') AS x GROUP BY x', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(x) AS d, sum(n) AS n FROM (SELECT w, count(*) AS n ' || :'of_l' || ' GROUP BY w) a, wmstream.window(a.w, ''1 minute'') AS x GROUP BY x', output_mode => 'complete');
-- groups beside rows that are in none
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l WHERE wmstream.watermark(ts, NULL) GROUP BY k UNION ALL SELECT k, 1 FROM r WHERE wmstream.watermark(ts, NULL)', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT k, 1 AS n FROM r WHERE wmstream.watermark(ts, NULL) UNION ALL SELECT k, count(*) FROM l WHERE wmstream.watermark(ts, NULL) GROUP BY k', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n ' || :'of_l' || ' GROUP BY w, k UNION ALL SELECT NULL, k, 1 FROM r WHERE wmstream.watermark(ts, ''1 s'')', allowed_lateness => '1 s');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.window(now(), ''5 s'') AS w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w, k');
\echo :SQLSTATE

-- Sources.
CREATE TEMP TABLE passing (ts timestamptz);
SELECT wmstream.create_stream('s', 'SELECT ts FROM passing');
\echo :SQLSTATE
CREATE UNLOGGED TABLE loose (ts timestamptz);
SELECT wmstream.create_stream('s', 'SELECT ts FROM loose');
\echo :SQLSTATE
CREATE MATERIALIZED VIEW mat AS SELECT * FROM l;
SELECT wmstream.create_stream('s', 'SELECT ts FROM mat');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT relname FROM pg_class');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT status FROM wmstream.stream');
\echo :SQLSTATE
CREATE TABLE parent (ts timestamptz);
CREATE TABLE child () INHERITS (parent);
SELECT wmstream.create_stream('s', 'SELECT ts FROM parent');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT ts FROM child');
SELECT wmstream.create_stream('s', 'SELECT ts FROM ONLY parent');
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE abroad (ts timestamptz) SERVER nowhere;
SELECT wmstream.create_stream('s', 'SELECT ts FROM abroad');
\echo :SQLSTATE
CREATE TABLE part (ts timestamptz) PARTITION BY RANGE (ts);
CREATE TABLE part1 PARTITION OF part DEFAULT;
SELECT wmstream.create_stream('s', 'SELECT ts FROM part1');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT ts FROM ONLY part');
\echo :SQLSTATE
CREATE VIEW only_part AS SELECT ts FROM ONLY part;
SELECT wmstream.create_stream('s', 'SELECT p.ts FROM l, only_part p WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(p.ts, ''1 s'') AND l.ts = p.ts');
DROP VIEW only_part;
-- nor a partition, however far down, whose rows are not in the WAL; the same of results
CREATE TABLE part2 PARTITION OF part FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') PARTITION BY RANGE (ts);
CREATE UNLOGGED TABLE part2_1 PARTITION OF part2 DEFAULT;
SELECT wmstream.create_stream('s', 'SELECT ts FROM part');
\echo :SQLSTATE
SELECT wmstream.create_stream('part', 'SELECT ts FROM l');
\echo :SQLSTATE
DROP TABLE part2_1;
CREATE FOREIGN TABLE part2_1 PARTITION OF part2 DEFAULT SERVER nowhere;
SELECT wmstream.create_stream('s', 'SELECT ts FROM part');
\echo :SQLSTATE
SELECT wmstream.create_stream('part', 'SELECT ts FROM l');
\echo :SQLSTATE
DROP TABLE part2;
CREATE TABLE own (id int);
SELECT wmstream.create_stream('own', 'SELECT id FROM own');
\echo :SQLSTATE
CREATE SEQUENCE seq;
SELECT wmstream.create_stream('s', 'SELECT last_value FROM seq');
SELECT wmstream.create_stream('s', 'SELECT * FROM generate_series(1, 3) g');

-- Every argument of a window: months, zero, negative, NULL, not constant, too large.
\set wm 'WHERE wmstream.watermark(ts, ''1 s'')'
ALTER TABLE l ADD gap interval;
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', ''1 month'') AS w ' || :'wm' || ' GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', ''1 day'', ''1 month'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 month'', ''60 days'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 s'', ''1 year'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 s'', ''2 s'', ''1 month'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, ''1 month'') AS w ' || :'wm' || ' GROUP BY w, k');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', ''0'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''0'', ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''-1 s'', ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 s'', ''0'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''2 s'', ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, ''0'') AS w ' || :'wm' || ' GROUP BY w, k');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, ''-1 s'') AS w ' || :'wm' || ' GROUP BY w, k');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, NULL) AS w ' || :'wm' || ' GROUP BY w, k');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', NULL) AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', ''1 day'', NULL) AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1 day'', ''1 day'', gap) AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''100000001 days'') AS w ' || :'wm' || ' GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, random() * interval ''1 s'') AS w ' || :'wm' || ' GROUP BY w, k');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(txt, ''1 day'') AS w ' || :'wm' || ' GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r ON l.k = r.k AND wmstream.window(l.ts, ''10 s'', ''5 s'') = wmstream.window(r.ts, ''10 s'', ''5 s'') WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(r.ts, ''1 s'')');
\echo :SQLSTATE

-- Sessions.
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.session_window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l, wmstream.session_window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY w, k', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS a, k, count(*) AS n FROM l, wmstream.session_window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY lower(w), k');
SELECT wmstream.create_stream('s', 'SELECT w, k FROM l, wmstream.session_window(ts, ''1 s'') AS w ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT DISTINCT w, k FROM l, wmstream.session_window(ts, ''1 s'') AS w ' || :'wm');

-- Windows that an outer join gives on a condition: a row without it would be in no group.
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS a, count(*) AS n FROM l LEFT JOIN LATERAL wmstream.window(l.ts, ''1 s'') AS w ON l.v > 5 ' || :'wm' || ' GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT lower(w) AS a, count(*) AS n FROM l LEFT JOIN (dim CROSS JOIN LATERAL wmstream.window(l.ts, ''1 s'', ''1 ms'') AS w) ON dim.k = l.k ' || :'wm' || ' GROUP BY lower(w)', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l LEFT JOIN LATERAL wmstream.window(l.ts, ''1 s'') AS w ON l.v > 5 GROUP BY w', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT x.w, k, count(*) AS n FROM l LEFT JOIN LATERAL (SELECT wmstream.window(l.ts, ''1 s'') AS w) AS x ON l.v > 5 GROUP BY x.w, k', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT w, k, count(*) AS n FROM l LEFT JOIN LATERAL wmstream.session_window(l.ts, ''1 s'') AS w ON l.v > 5 ' || :'wm' || ' GROUP BY w, k');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM (SELECT w FROM l LEFT JOIN LATERAL wmstream.window(l.ts, ''1 s'') AS w ON l.v > 5 ' || :'wm' || ') AS x GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT id, rank() OVER (PARTITION BY w ORDER BY id) AS nr FROM l LEFT JOIN LATERAL wmstream.window(l.ts, ''1 s'') AS w ON l.v > 5 ' || :'wm');

-- Windows of the clock.
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM (SELECT 1 FROM l WHERE wmstream.watermark(ts, NULL) UNION ALL SELECT 1 FROM r WHERE wmstream.watermark(ts, NULL)) u, wmstream.window(now(), ''5 s'') AS w GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(clock_timestamp(), ''5 s'') AS w GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(now() - interval ''1 s'', ''5 s'') AS w GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT DISTINCT w FROM l, wmstream.window(now(), ''5 s'') AS w');

-- Two event times, or two windows, in one operator.
SELECT wmstream.create_stream('s', 'SELECT l.ts, r.ts AS ts2, count(*) AS n FROM l JOIN r ON l.k = r.k AND l.ts = r.ts + interval ''1 s'' WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(r.ts, ''1 s'') GROUP BY l.ts, r.ts');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT DISTINCT l.ts, r.ts AS ts2 FROM l JOIN r ON l.k = r.k AND l.ts = r.ts + interval ''1 s'' WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(r.ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT DISTINCT w, x FROM l, wmstream.window(ts, ''1 s'') AS w, wmstream.window(ts, ''2 s'') AS x ' || :'wm');
\echo :SQLSTATE

-- DISTINCT and joins in other modes, joins that cannot be.
SELECT wmstream.create_stream('s', 'SELECT DISTINCT k FROM l', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT DISTINCT k FROM l', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT k FROM l ' || :'wm' || ' UNION SELECT k FROM r ' || :'wm', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT DISTINCT ON (k) k, id FROM l ' || :'wm' || ' ORDER BY k, ts');
\echo :SQLSTATE
\set both 'WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(r.ts, ''1 s'')'
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + interval ''1 month'' ' || :'both');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r ON l.k = r.k AND l.ts = r.ts ' || :'both', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r ON l.k = r.k AND l.ts = r.ts ' || :'both', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l JOIN r ON l.k < r.k AND l.ts BETWEEN r.ts AND r.ts + interval ''1 s'' ' || :'both');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, r.id AS rid FROM l LEFT JOIN r ON l.k = r.k ' || :'both');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT d.id FROM dim d LEFT JOIN l ON d.k = l.k WHERE wmstream.watermark(l.ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, (SELECT max(v) FROM r WHERE r.k = l.k AND wmstream.watermark(r.ts, ''1 s'')) AS m FROM l WHERE wmstream.watermark(l.ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l WHERE wmstream.watermark(l.ts, ''1 s'') AND l.k NOT IN (SELECT k FROM r WHERE wmstream.watermark(r.ts, ''1 s''))');
SELECT wmstream.create_stream('s', 'SELECT x.id FROM dim d, LATERAL (SELECT * FROM l WHERE l.k = d.k AND wmstream.watermark(ts, ''1 s'')) x');
\echo :SQLSTATE

-- More of the clauses, wherever they stand.
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY CUBE (k)', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT id FROM l FOR NO KEY UPDATE SKIP LOCKED');
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT * FROM l FOR SHARE) x');
SELECT wmstream.create_stream('s', 'SELECT id FROM l FETCH FIRST 3 ROWS ONLY');
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY k ORDER BY n LIMIT random()::int', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'WITH x AS (INSERT INTO dim VALUES (1) RETURNING id) SELECT l.id FROM l, x ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id INTO other FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, sum(v * random()) AS n FROM l, wmstream.window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, sum(v) * random() AS n FROM l, wmstream.window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, sum(v) AS n FROM l, wmstream.window(ts, ''1 s'') AS w ' || :'wm' || ' GROUP BY w HAVING random() > 0.5');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE ctid IS NOT NULL');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts, interval ''1 s'' * random())');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(ts + random() * interval ''1 s'', ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM l GROUP BY k HAVING wmstream.watermark(max(ts), ''1 s'')', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE wmstream.watermark(date_trunc(''day'', ts), ''1 s'')');

SELECT wmstream.create_stream('s', 'SELECT l.id FROM l JOIN dim TABLESAMPLE BERNOULLI (10) USING (k) WHERE wmstream.watermark(l.ts, ''1 s'')');
\echo :SQLSTATE

-- What is temporary cannot be read beside a stream either: its worker is another session.
CREATE TEMP VIEW passing_view AS SELECT * FROM dim;
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l LEFT JOIN passing p ON p.ts = l.ts ' || replace(:'wm', 'ts', 'l.ts'));
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l ' || :'wm' || ' AND k IN (SELECT k FROM passing_view)');
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT l.id, l.ts FROM l WHERE ts NOT IN (TABLE passing)) x ' || :'wm');

-- Errors that Postgres raises itself point into the definition.
SELECT wmstream.create_stream('s', 'SELECT idd FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id
FROM   l
WHERE  nonsense(ts)');
SELECT wmstream.create_stream('s', 'SELECT id, count(*) FROM l');

-- A slot can be made only before the transaction writes; here is none yet.
BEGIN;
CREATE TABLE written (id int);
SELECT wmstream.create_stream('s', 'SELECT id FROM l');
\echo :SQLSTATE
ROLLBACK;

-- Nothing was left by all that: no tables, no streams, no slot.
SELECT relname FROM pg_class WHERE relnamespace IN ('public'::regnamespace, 'wmstream'::regnamespace) AND relkind IN ('r', 'v', 'p') AND relname NOT IN ('l', 'r', 'dim', 'loose', 'parent', 'child', 'part', 'part1', 'own') ORDER BY 1;
SELECT count(*) FROM wmstream.streams;
SELECT count(*) FROM pg_replication_slots;
