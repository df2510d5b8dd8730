-- What fails inside an operator is its stream's own: a condition between two sides, a key, an equality function, a gap, a transition.
-- The others go on; with on_error => 'skip' the row is put aside and all else is right.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
-- Nothing that a stream runs is compiled, whatever the settings say: it would be for each few rows.
SELECT current_database() AS here \gset
ALTER DATABASE :"here" SET jit = on;
ALTER DATABASE :"here" SET jit_above_cost = 0;

-- a type of keys whose equality does not like 13, and is asked for any two keys
CREATE TYPE picky;
CREATE FUNCTION picky_in(cstring) RETURNS picky IMMUTABLE STRICT LANGUAGE internal AS 'int4in';
CREATE FUNCTION picky_out(picky) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'int4out';
CREATE TYPE picky (INPUT = picky_in, OUTPUT = picky_out, LIKE = int4);
CREATE FUNCTION picky_eq(a picky, b picky) RETURNS boolean IMMUTABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
	IF a::text = '13' OR b::text = '13' THEN
		RAISE EXCEPTION 'unlucky key';
	END IF;
	RETURN a::text = b::text;
END $$;
CREATE FUNCTION picky_lt(picky, picky) RETURNS boolean IMMUTABLE STRICT LANGUAGE internal AS 'int4lt';
CREATE FUNCTION picky_le(picky, picky) RETURNS boolean IMMUTABLE STRICT LANGUAGE internal AS 'int4le';
CREATE FUNCTION picky_ge(picky, picky) RETURNS boolean IMMUTABLE STRICT LANGUAGE internal AS 'int4ge';
CREATE FUNCTION picky_gt(picky, picky) RETURNS boolean IMMUTABLE STRICT LANGUAGE internal AS 'int4gt';
CREATE FUNCTION picky_cmp(picky, picky) RETURNS int IMMUTABLE STRICT LANGUAGE internal AS 'btint4cmp';
CREATE FUNCTION picky_hash(picky) RETURNS int IMMUTABLE STRICT LANGUAGE sql AS 'SELECT 1';
CREATE OPERATOR = (LEFTARG = picky, RIGHTARG = picky, FUNCTION = picky_eq, COMMUTATOR = =, HASHES, MERGES);
CREATE OPERATOR < (LEFTARG = picky, RIGHTARG = picky, FUNCTION = picky_lt);
CREATE OPERATOR <= (LEFTARG = picky, RIGHTARG = picky, FUNCTION = picky_le);
CREATE OPERATOR >= (LEFTARG = picky, RIGHTARG = picky, FUNCTION = picky_ge);
CREATE OPERATOR > (LEFTARG = picky, RIGHTARG = picky, FUNCTION = picky_gt);
CREATE OPERATOR CLASS picky_ops DEFAULT FOR TYPE picky USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 picky_cmp(picky, picky);
CREATE OPERATOR CLASS picky_hash_ops DEFAULT FOR TYPE picky USING hash AS OPERATOR 1 =, FUNCTION 1 picky_hash(picky);

CREATE TABLE l (id int, ts timestamptz, k int, v int, p picky);
CREATE TABLE r (id int, ts timestamptz, k int, v int, p picky);
-- the batch query, where it is not the definition itself: sessions, and keys that cannot be compared by hand
CREATE TABLE tried (name text, query text, batch text);
\set both 'wmstream.watermark(l.ts, ''10 minutes'') AND wmstream.watermark(r.ts, ''10 minutes'')'
\set near 'r.k = l.k AND r.ts BETWEEN l.ts AND l.ts + interval ''20 minutes'''
INSERT INTO tried VALUES
('condition_inner', 'SELECT l.id, r.id AS other FROM l JOIN r ON ' || :'near' || ' AND 100 / (l.v - r.v) <> 7 WHERE ' || :'both', NULL),
('condition_full', 'SELECT l.id, r.id AS other FROM l FULL JOIN r ON ' || :'near' || ' AND 100 / (l.v - r.v) <> 7 WHERE ' || :'both', NULL),
('condition_own', 'SELECT l.id, r.id AS other FROM l LEFT JOIN r ON ' || :'near' || ' AND 100 / l.v < 30 WHERE ' || :'both', NULL),
('condition_anti', 'SELECT l.id FROM l WHERE wmstream.watermark(l.ts, ''10 minutes'') AND NOT EXISTS (SELECT FROM r WHERE ' || :'near' || ' AND 100 / (l.v - r.v) > 3 AND wmstream.watermark(r.ts, ''10 minutes''))', NULL),
('join_key', 'SELECT l.id, r.id AS other FROM l JOIN r ON r.k = 5 / l.v AND r.ts BETWEEN l.ts AND l.ts + interval ''20 minutes'' WHERE ' || :'both', NULL),
('join_equality', 'SELECT l.id, r.id AS other FROM l LEFT JOIN r ON r.p = l.p AND r.ts BETWEEN l.ts AND l.ts + interval ''20 minutes'' WHERE ' || :'both',
	'SELECT l.id, r.id AS other FROM l LEFT JOIN r ON r.p::text = l.p::text AND r.ts BETWEEN l.ts AND l.ts + interval ''20 minutes'''),
('distinct_key', 'SELECT DISTINCT k, 100 / v AS share FROM l WHERE wmstream.watermark(ts, ''10 days'')', NULL),
('distinct_window', 'SELECT DISTINCT lower(w) AS hour, 100 / v AS share FROM l, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'')', NULL),
('distinct_equality', 'SELECT DISTINCT p FROM l', 'SELECT p::text FROM l GROUP BY p::text'),
('session_gap', 'SELECT lower(s) AS since, upper(s) AS until, k, count(*) AS n FROM l, wmstream.session_window(ts, interval ''1 second'' * (100 / v)) AS s WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY s, k',
	'SELECT ts AS since, ts + interval ''1 second'' * (100 / v) AS until, k, count(*) AS n FROM l GROUP BY 1, 2, 3'),
('session_key', 'SELECT lower(s) AS since, upper(s) AS until, 100 / v AS share, count(*) AS n FROM l, wmstream.session_window(ts, ''1 second'') AS s WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY s, 100 / v',
	'SELECT ts AS since, ts + interval ''1 second'' AS until, 100 / v AS share, count(*) AS n FROM l GROUP BY 1, 2, 3'),
('session_equality', 'SELECT lower(s) AS since, upper(s) AS until, p, count(*) AS n FROM l, wmstream.session_window(ts, ''1 second'') AS s WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY s, p',
	'SELECT ts AS since, ts + interval ''1 second'' AS until, p::text AS p, count(*) AS n FROM l GROUP BY 1, 2, 3'),
('session_transition', 'SELECT lower(s) AS since, upper(s) AS until, k, sum(100 / v) AS total FROM l, wmstream.session_window(ts, ''1 second'') AS s WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY s, k',
	'SELECT ts AS since, ts + interval ''1 second'' AS until, k, sum(100 / v) AS total FROM l GROUP BY 1, 2, 3'),
('sliding_transition', 'SELECT lower(w) AS since, count(*) AS n, sum(100 / v) AS total FROM l, wmstream.window(ts, ''1 hour'', ''20 minutes'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w', NULL),
('sliding_equality', 'SELECT lower(w) AS since, p, count(*) AS n FROM l, wmstream.window(ts, ''1 hour'', ''20 minutes'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, p',
	'SELECT lower(w) AS since, p::text AS p, count(*) AS n FROM l, wmstream.window(ts, ''1 hour'', ''20 minutes'') AS w GROUP BY w, p::text'),
('event_time', 'SELECT lower(w) AS hour, count(*) AS n FROM l, wmstream.window(to_timestamp(1704067200 + id * 180 + 100 / v), ''1 hour'') AS w WHERE wmstream.watermark(to_timestamp(1704067200 + id * 180 + 100 / v), ''3 hours'') GROUP BY w', NULL),
('kept_rank', 'SELECT id, n FROM (SELECT id, 100 / v AS share, row_number() OVER (PARTITION BY w ORDER BY 100 / v, id) AS n FROM l, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'')) t WHERE n <= 3', NULL),
('join_then_window', 'SELECT lower(w) AS hour, sum(100 / l.v) AS total FROM l LEFT JOIN r ON ' || :'near' || ', wmstream.window(l.ts, ''1 hour'') AS w WHERE ' || :'both' || ' GROUP BY w', NULL),
('copied', 'SELECT id, v FROM l', NULL);
SELECT wmstream.create_stream(name, query) FROM tried ORDER BY name;

CREATE PROCEDURE fill(first int, last int) LANGUAGE sql BEGIN ATOMIC
	INSERT INTO r SELECT n, timestamptz '2024-01-01 00:05+00' + n * interval '3 minutes', n % 4, 1000 + n, (n % 5)::text::picky FROM generate_series(first, last) n;
	INSERT INTO l SELECT n, timestamptz '2024-01-01 00:00+00' + n * interval '3 minutes', n % 4, 1 + n % 9, (n % 5)::text::picky FROM generate_series(first, last) n;
END;
CALL fill(1, 50);
SELECT name, oracle.status(name::regclass) FROM tried WHERE oracle.status(name::regclass) <> 'running';

-- one row that nobody can use but the copy, and its partner
INSERT INTO r VALUES (51, '2024-01-01 02:40+00', 3, 0, '1');
INSERT INTO l VALUES (51, '2024-01-01 02:33+00', 3, 0, '13');
SELECT DISTINCT oracle.status(name::regclass) FROM tried WHERE name NOT IN ('copied', 'kept_rank');
SELECT stream, status, regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+$', '(place)') AS reason FROM wmstream.streams ORDER BY stream::text;
CALL fill(52, 100);
SELECT wmstream.wait('copied');
SELECT count(*), count(*) = count(DISTINCT id) AS each_once FROM copied;
-- as often as one likes
SELECT count(wmstream.resume(name::regclass)) FROM tried WHERE name <> 'copied';
SELECT oracle.status(name::regclass), count(*) FROM tried GROUP BY 1 ORDER BY 1;

-- the row is put aside
SELECT count(wmstream.alter_stream(name::regclass, 'late_table', 'put_aside')) FROM tried WHERE name <> 'copied';
SELECT count(wmstream.alter_stream(name::regclass, 'on_error', 'skip')) FROM tried WHERE name <> 'copied';
SELECT count(wmstream.resume(name::regclass)) FROM tried WHERE name <> 'copied';
-- (what fails in the final query, when its window closes, has no row to blame)
SELECT name, oracle.status(name::regclass) FROM tried WHERE oracle.status(name::regclass) <> 'running';
SELECT stream, source, event_time, reason, error, row_data ->> 'id' AS id FROM put_aside ORDER BY stream::text;
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-03 00:00+00')) FROM tried WHERE name NOT IN ('copied', 'distinct_equality');
SELECT name, oracle.status(name::regclass) FROM tried WHERE oracle.status(name::regclass) <> 'running';
DELETE FROM l WHERE id = 51;
SELECT name, d.* FROM tried, oracle.differences(coalesce(batch, query), CASE WHEN name LIKE '%equality' THEN format('SELECT %s FROM %I', CASE name WHEN 'distinct_equality' THEN 'p::text' WHEN 'join_equality' THEN 'id, other' WHEN 'sliding_equality' THEN 'since, p::text, n' ELSE 'since, until, p::text, n' END, name) ELSE 'TABLE ' || name END) d
WHERE name NOT IN ('copied', 'kept_rank') ORDER BY name;

-- Rows are taken away by a type's own equality, which is in no search path there.
CREATE TABLE stock (p picky NOT NULL, n int);
SELECT wmstream.create_stream('in_stock', 'SELECT p, sum(n) AS n FROM stock GROUP BY p HAVING sum(n) > 0', output_mode => 'update');
\d in_stock
INSERT INTO stock VALUES ('1', 1), ('2', 1);
SELECT wmstream.wait('in_stock');
INSERT INTO stock VALUES ('1', -1);
SELECT oracle.status('in_stock');
TABLE in_stock;

-- A row of a table that stands twice in FROM is one row: put aside once, counted once.
CREATE TABLE twice (ts timestamptz, g int, d int);
CREATE TABLE twice_aside (LIKE put_aside);
SELECT wmstream.create_stream('with_itself', $$SELECT a.g, b.g AS other, 10 / a.d AS n FROM twice a JOIN twice b ON a.g = b.g AND a.ts = b.ts
  WHERE wmstream.watermark(a.ts, '10 minutes') AND wmstream.watermark(b.ts, '10 minutes') AND 10 / a.d > 0 AND 10 / b.d > 0$$,
  on_error => 'skip', late_table => 'twice_aside');
INSERT INTO twice VALUES ('2024-01-01 00:05+00', 1, 1), ('2024-01-01 00:05+00', 2, 0), ('2024-01-01 00:05+00', 3, 5);
SELECT oracle.status('with_itself');
TABLE with_itself ORDER BY g;
SELECT event_time, reason, error, row_data ->> 'g' AS g FROM twice_aside;
SELECT input_rows, error_rows FROM wmstream.stat_streams WHERE stream = 'with_itself'::regclass;

-- Errors that say nothing: the status and the late table say as much.
CREATE FUNCTION silent(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF $1 = 0 THEN RAISE EXCEPTION USING MESSAGE = ''; END IF; RETURN $1; END $$;
CREATE TABLE mute (id int);
SELECT wmstream.create_stream('silent_stop', 'SELECT silent(id) AS id FROM mute');
SELECT wmstream.create_stream('silent_skip', 'SELECT silent(id) AS id FROM mute', on_error => 'skip', late_table => 'silent_rows');
INSERT INTO mute VALUES (1), (0);
SELECT oracle.status('silent_stop'), oracle.status('silent_skip');
SELECT regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+$', '(place)') AS reason FROM wmstream.streams WHERE stream = 'silent_stop'::regclass;
SELECT reason, error, row_data FROM silent_rows;

-- Many rows of one batch fail: each comes into the late table once, and all others are counted.  What has been tried goes many at a time again;
-- a row among these that fails only then (here from the third to the fifth time) is found too.
CREATE TABLE often (ts timestamptz, d int);
CREATE TABLE often_aside (LIKE put_aside);
CREATE TABLE one AS SELECT 1 AS is_there;
CREATE SEQUENCE asked;
CREATE SEQUENCE asked_too;
CREATE FUNCTION moody(d int, times text) RETURNS int LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF d = -1 AND nextval(times::regclass) IN (3, 4, 5) THEN
		RAISE EXCEPTION 'in a mood';
	END IF;
	RETURN d;
END $$;
SELECT wmstream.create_stream('many_fail', $$SELECT lower(w) AS hour, count(*) AS n, sum(10 / moody(d, 'public.asked')) AS tenths FROM often, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w$$, on_error => 'skip', late_table => 'often_aside');
SELECT wmstream.create_stream('many_fail_too', $$SELECT lower(w) AS hour, count(*) AS n, sum(10 / moody(d, 'public.asked_too')) AS tenths FROM often, one, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w$$, on_error => 'skip', late_table => 'often_aside');
INSERT INTO often SELECT '2024-01-01 00:00+00'::timestamptz + n * interval '10 seconds', CASE WHEN n = 20 THEN -1 ELSE n % 17 END FROM generate_series(1, 3000) n;
SELECT oracle.status('many_fail'), oracle.status('many_fail_too');
SELECT stream, error, count(*), count(DISTINCT event_time) AS times, min(event_time) FROM often_aside GROUP BY 1, 2 ORDER BY 1, 2;
SELECT d.* FROM (VALUES ('TABLE many_fail'), ('TABLE many_fail_too')) t(result), oracle.differences($$SELECT date_trunc('hour', ts), count(*), sum(10 / d) FROM often WHERE d > 0
  GROUP BY 1 HAVING date_trunc('hour', ts) + '1 hour' <= (SELECT max(ts) FROM often) - interval '10 minutes'$$, result) d;
SELECT stream, input_rows, late_rows, error_rows FROM wmstream.stat_streams WHERE stream::text LIKE 'many_fail%' ORDER BY 1;
SELECT a.last_value, b.last_value FROM asked a, asked_too b;

-- Very many rows that fail, in one transaction: they are found together. In the feed by itself, with the executor, in operators with state
-- of their own, and in aggregates (where each costs a run of the batch: a few).
CREATE TABLE doubtful (id int PRIMARY KEY, ts timestamptz, k int, d int);
CREATE TABLE factor (k int PRIMARY KEY, f int);
INSERT INTO factor SELECT k, k FROM generate_series(0, 9) k;
CREATE FUNCTION add_positive(int8, int) RETURNS int8 LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF $2 < 0 THEN RAISE EXCEPTION 'negative: %', $2; END IF; RETURN $1 + $2; END $$;
CREATE AGGREGATE sum_positive(int) (SFUNC = add_positive, STYPE = int8, INITCOND = '0');
CREATE TABLE doubts (name text PRIMARY KEY, query text);
INSERT INTO doubts VALUES
('d_groups', $$SELECT lower(w) AS since, k, count(*) AS n, sum(100 / d) AS v FROM doubtful, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w, k$$),
('d_kept', $$SELECT lower(w) AS since, k, array_agg(100 / d ORDER BY id) AS v FROM doubtful, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w, k$$),
('d_factor', $$SELECT lower(w) AS since, f, sum(100 / d * f) AS v FROM doubtful JOIN factor USING (k), wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 hour') AND 100 / d < 50 GROUP BY w, f$$),
('d_passed', $$SELECT id, 100 / d AS v FROM doubtful WHERE wmstream.watermark(ts, '1 hour') AND id % 3 > 0$$),
('d_distinct', $$SELECT DISTINCT ts, 100 / d AS v FROM doubtful WHERE wmstream.watermark(ts, '1 hour')$$),
('d_joined', $$SELECT a.id, 100 / a.d AS v FROM doubtful a JOIN doubtful b ON a.id = b.id AND a.ts = b.ts WHERE wmstream.watermark(a.ts, '1 hour') AND wmstream.watermark(b.ts, '1 hour') AND 100 / b.d > -1000$$),
('d_times', $$SELECT lower(w) AS since, count(*) AS n FROM (SELECT ts AT TIME ZONE 'UTC' + 100 / d * interval '1 second' AS ts FROM doubtful) s, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w$$),
('d_summed', $$SELECT lower(w) AS since, sum_positive(d) AS v FROM doubtful, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 hour') AND (id > 5000 OR d >= 0) AND 100 / d IS NOT NULL GROUP BY w$$);
INSERT INTO doubts SELECT 'd_sessions', $$SELECT min(ts) AS since, k, sum(100 / d) AS v FROM doubtful, wmstream.session_window(ts, '1 second') AS s WHERE wmstream.watermark(ts, '1 hour') GROUP BY s, k$$;
SELECT count(wmstream.create_stream(name, query, on_error => 'skip', late_table => 'doubts_aside')) FROM doubts;
INSERT INTO doubtful SELECT i, timestamptz '2024-01-01 00:00+00' + i * interval '100 milliseconds', i * 7 % 10, CASE WHEN i % 7 = 0 OR i BETWEEN 2000 AND 2400 THEN 0 WHEN i % 499 = 0 THEN -1 ELSE i % 9 + 1 END FROM generate_series(1, 6000) i;
SELECT name, oracle.status(name::regclass) FROM doubts WHERE oracle.status(name::regclass) <> 'running';
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-02 00:00+00')) FROM doubts WHERE name <> 'd_passed';
SELECT count(wmstream.wait(name::regclass)) FROM doubts;
SELECT name, oracle.status(name::regclass) FROM doubts WHERE oracle.status(name::regclass) <> 'running';
SELECT stream, input_rows, error_rows FROM wmstream.stat_streams WHERE stream::text LIKE 'd\_%' ORDER BY stream::text;
SELECT stream, reason, error, count(*), count(DISTINCT row_data ->> 'id') = count(*) AS each_once FROM doubts_aside GROUP BY 1, 2, 3 ORDER BY stream::text, error;
DELETE FROM doubtful WHERE d = 0;
UPDATE doubts SET query = $$SELECT min(ts) AS since, k, sum(100 / d) AS v FROM (SELECT *, sum(first) OVER (PARTITION BY k ORDER BY ts) AS stay
	FROM (SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY k ORDER BY ts) + interval '1 second' THEN 0 ELSE 1 END AS first FROM doubtful) c) c GROUP BY k, stay$$ WHERE name = 'd_sessions';
UPDATE doubts SET query = replace(query, 'sum_positive(d)', 'sum(d) FILTER (WHERE d > 0)') WHERE name = 'd_summed';
SELECT name, d.* FROM doubts, oracle.differences(query, 'TABLE ' || name) d ORDER BY name;
