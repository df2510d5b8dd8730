-- Every refusal of a definition points at what is to blame: in many lines, behind letters of several bytes, in a longer statement, through views and WITH.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE EXTENSION wmstream;
CREATE TABLE l (id int, k text, ts timestamptz, "größe" numeric, doc json, gap interval);
CREATE TABLE r (id int, k text, ts timestamptz, v numeric);
CREATE TABLE dim (id int PRIMARY KEY, k text);
CREATE TABLE other (k text);
CREATE VIEW l_view AS SELECT id, k, ts FROM l;
CREATE VIEW l_locked AS SELECT * FROM l_view WHERE id IN (SELECT id FROM dim FOR SHARE);
CREATE VIEW l_sampled AS WITH s AS (SELECT * FROM l TABLESAMPLE BERNOULLI (10)) SELECT id, k, ts FROM s;
CREATE VIEW l_ordered AS SELECT * FROM l_view ORDER BY id;
CREATE VIEW l_random AS SELECT id, k, ts, random() AS chance FROM l;
CREATE FUNCTION same_key(text, text) RETURNS bool IMMUTABLE LANGUAGE sql AS $$SELECT $1 < $2$$;
CREATE FUNCTION within_a_month(timestamptz, timestamptz) RETURNS bool STABLE LANGUAGE sql AS $$SELECT $1 <= $2 + interval '1 month'$$;
\set wm 'wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(r.ts, ''1 s'')'

-- Lines, letters of several bytes, tabs.
SELECT wmstream.create_stream('s', $$
  SELECT id, 'größer als später' AS "überschrift"	-- ein längerer Vermerk: äöüß
  FROM   l TABLESAMPLE SYSTEM (10)
  WHERE  wmstream.watermark(ts, '1 s')
$$);
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$
  SELECT '日本語' AS "語", "größe"
  FROM   l
  FOR UPDATE OF l
$$);
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$
/* ąćęłńóśźż */ SELECT 'ąćęłńóśźż' AS x, l.id
FROM   dim
       LEFT JOIN l ON l.k = dim.k
WHERE  wmstream.watermark(l.ts, '1 s')
$$);
\echo :SQLSTATE
-- As part of a longer statement, in a function, as a parameter, and as an escape string.
SELECT 'ä', (SELECT wmstream.create_stream('s', definition) FROM (VALUES (E'SELECT l.id,\n\t\'\u00e4\u00f6\u00fc\' AS "\u00fc"\nFROM l, dim')) v(definition)), 'ö';
\echo :SQLSTATE
DO $do$
BEGIN
  PERFORM wmstream.create_stream('s', $$SELECT k FROM l WHERE wmstream.watermark(ts, '1 s')
    UNION ALL SELECT k FROM dim$$);
END $do$;
\echo :SQLSTATE
PREPARE make(text) AS SELECT wmstream.create_stream('s', $1, output_mode => 'complete');
EXECUTE make('SELECT id FROM l');
\echo :SQLSTATE

-- What stands in a view is blamed where the definition names it, however deep it is.
SELECT wmstream.create_stream('s', 'SELECT a.id FROM l_locked AS a WHERE wmstream.watermark(a.ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT x.id FROM dim, (SELECT id, ts FROM l_sampled) x WHERE wmstream.watermark(x.ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l, l_ordered o WHERE wmstream.watermark(l.ts, ''1 s'') AND wmstream.watermark(o.ts, ''1 s'') AND o.k = l.k');
SELECT wmstream.create_stream('s', 'SELECT count(*) AS n FROM l_random', output_mode => 'complete');
SELECT wmstream.create_stream('s', 'SELECT dim.id FROM dim LEFT JOIN l_view USING (k) WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM l_view v ORDER BY k');

CREATE VIEW l_windows AS SELECT w, k, ts FROM l, wmstream.window(ts, '0') w;
CREATE VIEW l_gone AS SELECT w, k FROM l, wmstream.window(ts, NULL) w WHERE wmstream.watermark(ts, '-1 s');
SELECT wmstream.create_stream('s', 'SELECT w FROM l_windows WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT k FROM dim JOIN l_gone USING (k)');

-- WITH: where the query stands, not where it is named.
SELECT wmstream.create_stream('s', 'WITH a AS (SELECT id, k, ts FROM l), b AS (SELECT * FROM a, dim FOR UPDATE OF dim) SELECT ts FROM b');
SELECT wmstream.create_stream('s', 'WITH d AS (SELECT * FROM dim TABLESAMPLE SYSTEM (1)) SELECT l.id FROM l JOIN d USING (k) WHERE wmstream.watermark(l.ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT id FROM l WHERE k IN (WITH RECURSIVE n AS (SELECT k FROM dim UNION SELECT k FROM n) SELECT k FROM n)');
SELECT wmstream.create_stream('s', 'WITH d AS (SELECT id FROM dim), e AS (SELECT id FROM d UNION ALL SELECT id FROM l WHERE wmstream.watermark(ts, ''1 s'')) SELECT id FROM e');
SELECT wmstream.create_stream('s', 'WITH x AS (INSERT INTO dim VALUES (1) RETURNING id) SELECT l.id FROM l, x');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id INTO another FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', E'SELECT id FROM l;\n  DELETE FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', '  UPDATE l SET id = 1');
SELECT wmstream.create_stream('s', '');

-- Set operations: what stands behind the word.
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT id FROM l WHERE wmstream.watermark(ts, ''1 s'') UNION ALL (SELECT id FROM r WHERE wmstream.watermark(ts, ''1 s'') EXCEPT SELECT id FROM dim)) x');
SELECT wmstream.create_stream('s', '(SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') INTERSECT (TABLE other))');
SELECT wmstream.create_stream('s', 'SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') UNION ALL VALUES (''x'')');
SELECT wmstream.create_stream('s', 'SELECT k FROM l WHERE wmstream.watermark(ts, ''1 s'') UNION ALL SELECT k FROM r WHERE wmstream.watermark(ts, ''1 s'') UNION (SELECT k FROM dim)');

-- Joins: the condition if there is one to blame, else the stream that must be bounded.
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l, r WHERE ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l JOIN r ON same_key(l.k, r.k) WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l JOIN r ON l.k = r.k AND within_a_month(l.ts, r.ts) WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l FULL JOIN r ON l.k = r.k AND r.ts >= l.ts WHERE ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l WHERE wmstream.watermark(l.ts, ''1 s'') AND NOT EXISTS (SELECT FROM r WHERE r.k = l.k AND wmstream.watermark(r.ts, ''1 s''))');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l LEFT JOIN r ON l.k = r.k AND l.ts = r.ts AND r.id IN (SELECT id FROM dim WHERE dim.k > l.k) WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l WHERE wmstream.watermark(l.ts, ''1 s'') AND (id > 5 OR EXISTS (SELECT FROM r WHERE r.k = l.k AND wmstream.watermark(r.ts, ''1 s'')))');
SELECT wmstream.create_stream('s', 'SELECT d.id FROM dim d RIGHT JOIN (l JOIN r ON l.k = r.k AND l.ts = r.ts) ON d.k = l.k FULL JOIN dim e ON e.k = l.k WHERE ' || :'wm');

SELECT wmstream.create_stream('s', 'SELECT l.id FROM l WHERE wmstream.watermark(l.ts, ''1 s'') AND EXISTS (SELECT FROM r WHERE r.k = l.k AND r.ts = l.ts AND wmstream.watermark(r.ts, ''1 s'')
  AND EXISTS (SELECT FROM r AS x WHERE x.k = r.k AND x.ts = r.ts AND x.id > l.id AND wmstream.watermark(x.ts, ''1 s'')))');
\echo :SQLSTATE

-- Sources.
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT id, ts FROM l UNION ALL SELECT id, ts FROM r) x WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', (SELECT string_agg('SELECT id FROM r AS r' || n || ' WHERE wmstream.watermark(ts, ''1 s'')', E'\n UNION ALL ' ORDER BY n) FROM generate_series(1, 17) n));
\echo :SQLSTATE
CREATE TABLE queue (id int, ts timestamptz);
SELECT wmstream.create_queue('queue');
CREATE FUNCTION untouched() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER untouched BEFORE UPDATE ON queue FOR EACH ROW EXECUTE FUNCTION untouched();
SELECT wmstream.create_stream('s', 'SELECT id FROM (SELECT id FROM queue) AS q');
\echo :SQLSTATE

-- Modes, options, the result.
SELECT wmstream.create_stream('s', 'SELECT max(id) AS id FROM l');
SELECT wmstream.create_stream('s', 'SELECT k, count(*) AS n FROM (SELECT DISTINCT k, id FROM l) x GROUP BY k', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT w, generate_series(1, 2) AS g, count(*) AS n FROM l, wmstream.window(ts, ''1 s'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w', output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT a.w, a.n, d.id FROM (SELECT w, k, count(*) AS n FROM l, wmstream.window(ts, ''1 s'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w, k) a JOIN dim AS d USING (k)', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT a.w, a.n, g FROM (SELECT w, k, count(*) AS n FROM l, wmstream.window(ts, ''1 s'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w, k) a, LATERAL (SELECT g FROM generate_series(1, a.n) g) x', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l WHERE id > 1', on_change => 'retract');
SELECT wmstream.create_stream('s', 'SELECT DISTINCT k FROM l', on_change => 'retract');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l JOIN dim AS d USING (k), wmstream.window(ts, ''1 s'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w', on_change => 'retract');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM (SELECT l.ts FROM l WHERE l.k IN (SELECT k FROM dim)) x, wmstream.window(ts, ''1 s'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w', on_change => 'retract');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l AS x, wmstream.window(x.ts, ''1 s'') w WHERE wmstream.watermark(x.ts, ''1 s'') GROUP BY w', on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id, l AS whole, ROW(l.k, 1) FROM l');

SELECT wmstream.create_stream('s', 'SELECT id, ts FROM r WHERE wmstream.watermark(ts, NULL)
  UNION ALL SELECT count(*), max(ts) FROM l WHERE wmstream.watermark(ts, NULL)', output_mode => 'update');
SELECT wmstream.create_stream('s', 'SELECT upper(w) AS till, count(*) AS n FROM l LEFT JOIN wmstream.window(ts, ''1 s'') AS w
  ON id > 5 WHERE wmstream.watermark(ts, ''1 s'') GROUP BY 1');
CREATE TABLE parts (id int, ts timestamptz) PARTITION BY RANGE (id);
SELECT wmstream.create_stream('s', 'SELECT x.id FROM
  (SELECT * FROM ONLY (parts)) x WHERE wmstream.watermark(x.ts, ''1 s'')');

-- Sizes: at the argument, folded or not, named or not.
SELECT wmstream.create_stream('s', 'SELECT w FROM l, wmstream.window(size => interval ''1 s'' * 0, t => ts) w WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT w FROM l, wmstream.window(ts, ''1 minute'', make_interval(secs => random())) w WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w FROM l, wmstream.window(ts, ''1 minute'', gap) w WHERE wmstream.watermark(ts, ''1 s'')');
SELECT wmstream.create_stream('s', 'SELECT w FROM l, wmstream.window(ts, interval ''1 s'' / 0) w WHERE wmstream.watermark(ts, ''1 s'')');
\echo :SQLSTATE

-- More windows than could ever be kept: the limit is on what a row makes.
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''365000 days'', ''1 ms'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1000001 us'', ''1 us'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT wmstream.create_stream('s', 'SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 us'', ''1000001 us'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w');
SELECT count(*) FROM wmstream.explain('SELECT w, count(*) AS n FROM l, wmstream.window(ts, ''1000000 us'', ''1 us'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w') line WHERE line ~ 'refused';
SELECT count(*) FROM wmstream.explain('SELECT w, count(*) AS n FROM l, wmstream.cumulate_window(ts, ''1 us'', ''1000000 us'') w WHERE wmstream.watermark(ts, ''1 s'') GROUP BY w') line WHERE line ~ 'refused';
SELECT * FROM wmstream.window('2024-01-01'::timestamptz, '365000 days', '1 ms') LIMIT 1;

-- What Postgres says without a position, when it plans the query, says at least what it is about.
SELECT wmstream.create_stream('s', 'SELECT id, 1 / 0 AS x FROM l');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT l.id FROM l, r a FULL JOIN dim b ON a.k < b.k WHERE wmstream.watermark(l.ts, ''0'')');
\echo :SQLSTATE
-- explain points too.
SELECT * FROM wmstream.explain('SELECT id FROM l FOR UPDATE');
SELECT count(*) AS streams FROM wmstream.streams;
