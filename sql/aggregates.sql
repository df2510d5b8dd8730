-- Aggregates on both paths: where the state is kept, and where the arguments are.  Both against the batch query, and against each other.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TYPE mood AS ENUM ('low', 'middle', 'high');
CREATE TABLE facts (
	id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text,
	i2 int2, i4 int4, i8 int8, n numeric, f4 float4, f8 float8, t text, c char(5), b bool, bits bit(8), by bytea,
	d date, iv interval, m mood, a int[], j jsonb, r int4range, net inet, lsn pg_lsn, u uuid);

-- A user-defined aggregate of each sort: by SQL, with a combine function; strict without an initial value; polymorphic; internal state.
CREATE AGGREGATE mul(numeric) (SFUNC = numeric_mul, STYPE = numeric, COMBINEFUNC = numeric_mul, INITCOND = '1');
CREATE AGGREGATE longest(text) (SFUNC = text_larger, STYPE = text);
CREATE FUNCTION count_up(bigint, anyelement) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + CASE WHEN $2 IS NULL THEN 100 ELSE 1 END $$;
CREATE AGGREGATE strange_count(anyelement) (SFUNC = count_up, STYPE = bigint, INITCOND = '0');
-- with what count() is made of, beginning elsewhere: without a value at the first one that comes
CREATE AGGREGATE first_and_more(bigint) (SFUNC = int8inc_any, STYPE = bigint);
CREATE AGGREGATE five_more("any") (SFUNC = int8inc_any, STYPE = bigint, INITCOND = '5');
CREATE FUNCTION keep(int[], int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN (SELECT array_agg(x ORDER BY x DESC) FROM unnest($1 || $2) x LIMIT 1); END $$;
CREATE FUNCTION best3(int[]) RETURNS int[] LANGUAGE sql IMMUTABLE RETURN $1[1:3];
CREATE AGGREGATE greatest3(int) (SFUNC = keep, STYPE = int[], FINALFUNC = best3, INITCOND = '{}');

-- Every aggregate stands in a stream of its own path; the definitions are made from one list.
CREATE TABLE tried (name text, list text, columns text);
INSERT INTO tried VALUES
('counts', $$count(*) AS c1, count(n) AS c2, count(*) FILTER (WHERE i4 > 0) AS c3, count(t) FILTER (WHERE b) AS c4, strange_count(t) AS c5, strange_count(i4) AS c6, first_and_more(i8) AS c7, five_more(i4) AS c8$$, NULL),
('integers', $$sum(i2) AS s2, sum(i4) AS s4, sum(i8) AS s8, avg(i2) AS a2, avg(i4) AS a4, avg(i8) AS a8, min(i2) AS mn2, max(i8) AS mx8, bit_and(i4) AS ba, bit_or(i8) AS bo, bit_xor(i2) AS bx$$, NULL),
('numerics', $$sum(n) AS s, avg(n) AS a, min(n) AS mn, max(n) AS mx, variance(n) AS v, stddev(n) AS sd, var_pop(n) AS vp, stddev_pop(i4) AS sp, stddev_samp(i8) AS ss, mul(i4 % 3 + 2) AS m, sum(n * n) FILTER (WHERE n < 0) AS f$$, NULL),
('floats', $$sum(f8) AS s8, sum(f4) AS s4, avg(f8) AS a8, stddev(f8) AS sd, corr(f8, f4) AS co, regr_slope(f8, i4::float8) AS sl, covar_pop(f8, f4) AS cp, max(f8) AS mx, min(f4) AS mn$$,
 $$k, hour, round(s8::numeric, 4) AS s8, round(s4::numeric, 2) AS s4, round(a8::numeric, 6) AS a8, round(sd::numeric, 6) AS sd, round(co::numeric, 6) AS co, round(sl::numeric, 6) AS sl, round(cp::numeric, 4) AS cp, mx, mn$$),
('texts', $$min(t) AS mn, max(t) AS mx, min(c) AS cmn, longest(t) AS l, string_agg(t, ',') AS sa, string_agg(t, k) FILTER (WHERE i4 > 0) AS sf, string_agg(by, '\x00') AS sb$$, NULL),
('others', $$bool_and(b) AS ba, bool_or(b) AS bo, every(i4 > -100) AS ev, bit_and(bits) AS bits_and, bit_xor(bits) AS bits_xor, min(d) AS mnd, max(iv) AS mxi, sum(iv) AS si, avg(iv) AS ai, min(m) AS mnm, max(m) AS mxm,
   max(net) AS mxn, min(lsn) AS mnl, min(a) AS mna, max(ts) AS mxt, range_agg(r) AS ra, range_intersect_agg(r) AS ri$$, NULL),
('collections', $$array_agg(i4) AS a1, array_agg(t) FILTER (WHERE b) AS a2, array_agg(a) FILTER (WHERE cardinality(a) = 2) AS a3, jsonb_agg(j) AS j1, jsonb_object_agg(id, j) AS j2, json_agg(t)::text AS j3, greatest3(i4) AS g3$$, NULL),
('orders', $$count(DISTINCT i4) AS d1, sum(DISTINCT n) AS d2, count(DISTINCT c) AS d3, array_agg(DISTINCT t) AS d4, array_agg(i4 ORDER BY n DESC NULLS LAST, id) AS o1, string_agg(t, ';' ORDER BY id DESC) AS o2,
   string_agg(DISTINCT t, ',' ORDER BY t DESC) AS o3, (array_agg(u ORDER BY id))[1] AS first, jsonb_agg(i4 ORDER BY id) FILTER (WHERE i4 > 0) AS o4$$, NULL),
('ordered_sets', $$percentile_cont(0.5) WITHIN GROUP (ORDER BY f8) AS p1, percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY n) AS p2, mode() WITHIN GROUP (ORDER BY i4 % 5) AS md, rank(5) WITHIN GROUP (ORDER BY i4) AS rk,
   percentile_disc(0.5) WITHIN GROUP (ORDER BY t COLLATE "C") AS pt, dense_rank('x', 3) WITHIN GROUP (ORDER BY t, i4) AS dr, cume_dist(7) WITHIN GROUP (ORDER BY i4 DESC) AS cd, percentile_cont(0.25) WITHIN GROUP (ORDER BY iv) FILTER (WHERE b) AS pi$$, NULL),
('expressions', $$sum(i4) * 2 + count(*) AS e1, round(avg(n), 2)::text || '!' AS e2, CASE WHEN bool_or(b) THEN max(t) END AS e3, coalesce(sum(n) FILTER (WHERE false), -1) AS e4, sum(sum_of) AS e5$$, NULL);
UPDATE tried SET list = replace(list, ', sum(sum_of) AS e5', ', sum(CASE WHEN i4 % 2 = 0 THEN n ELSE -n END) AS e5') WHERE name = 'expressions';

CREATE FUNCTION definition(tried) RETURNS text LANGUAGE sql RETURN format(
	'SELECT k, lower(w) AS hour, %s FROM facts, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, k', $1.list);
-- Every transaction brings times up to ten minutes behind those that came before.
CREATE PROCEDURE fill(batches int, per_batch int, since timestamptz, step interval) LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..batches - 1 LOOP
		INSERT INTO facts (ts, k, i2, i4, i8, n, f4, f8, t, c, b, bits, by, d, iv, m, a, j, r, net, lsn, u)
		SELECT since + batch * step - (x * 37 % 600) * interval '1 second', chr(97 + x % 3),
			   nullif(h % 200 - 100, 7), nullif(h % 2000 - 1000, 1), nullif(h::int8 * 1000003 - 500000, -500000),
			   CASE WHEN h % 50 <> 3 THEN (h % 100000 - 50000)::numeric / 7 + (h % 3) * 1e10 END,
			   nullif((h % 1000) / 8.0, 0), CASE WHEN h % 11 <> 0 THEN (h % 10000) / 16.0 - 300 END,
			   CASE h % 6 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('long ', h % 900) ELSE md5((h % 40)::text) END,
			   (h % 17)::text, CASE WHEN h % 5 > 0 THEN h % 2 = 0 END, (h % 256)::bit(8), decode(md5(h::text), 'hex'),
			   date '2024-01-01' + h % 400, (h % 500 - 250) * interval '1 hour 3 seconds', (enum_range(NULL::mood))[1 + h % 3],
			   CASE h % 4 WHEN 0 THEN NULL WHEN 1 THEN '{}'::int[] WHEN 2 THEN ARRAY[h % 9, NULL] ELSE ARRAY[h % 9, h % 8, 1] END,
			   CASE WHEN h % 7 > 0 THEN jsonb_build_object('v', h % 100, 'l', ARRAY[h % 3, 1.50]) END,
			   CASE WHEN h % 8 > 0 THEN int4range(h % 100, h % 100 + h % 50) END,
			   ('10.0.' || h % 256 || '.1')::inet, (h::text || '/0')::pg_lsn, md5(h::text)::uuid
		FROM (SELECT x, (x * 7919 + batch * 104729) % 99991 AS h FROM generate_series(1, per_batch) x) v;
		COMMIT;
	END LOOP;
END $$;

-- What is compared, at which moment; of a whole run with one way of keeping.
CREATE TABLE verdicts (moment int, prefix text, name text, result bigint, missing bigint, surplus bigint, live bigint, live_missing bigint, live_surplus bigint);
CREATE TABLE keeping (prefix text, streams bigint, with_rows bigint);
CREATE TABLE leftovers (prefix text, late_rows bigint, no_time_rows bigint, state_rows bigint);
CREATE PROCEDURE judge(at int, p text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM wmstream.wait(stream) FROM wmstream.streams;
	-- Arguments without ORDER BY come in the order of arrival; so that the batch query sees them in the same one:
	CLUSTER facts USING facts_pkey;
	COMMIT;
	INSERT INTO verdicts SELECT at, p, t.name, c.* FROM tried t, oracle.compare((p || t.name)::regclass, 'hour + interval ''1 hour'' <= $1', t.columns) c;
	COMMIT;
END $$;
CREATE PROCEDURE whole_run(p text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM wmstream.create_stream(p || name, definition(tried)) FROM tried;
	COMMIT;
	CALL fill(40, 60, '2024-05-01 00:00+00', '11 minutes');
	CALL judge(1, p);
	INSERT INTO keeping SELECT p, count(*), count(*) FILTER (WHERE kept_rows > 0) FROM wmstream.stat_operators;
	-- groups whose rows are all NULL, of one row, of many in one batch
	INSERT INTO facts (ts, k) VALUES ('2024-05-02 00:00+00', 'none');
	INSERT INTO facts (ts, k) VALUES ('2024-05-02 00:00+00', 'none');
	COMMIT;
	CALL fill(1, 1, '2024-05-02 01:00+00', '0');
	CALL fill(1, 100, '2024-05-02 05:00+00', '0');
	CALL judge(2, p);
	-- pausing throws the state out of memory; it comes back from the log
	PERFORM wmstream.pause(stream) FROM wmstream.streams;
	COMMIT;
	PERFORM oracle.status(stream) FROM wmstream.streams;
	CALL fill(3, 60, '2024-05-02 05:40+00', '11 minutes');
	PERFORM wmstream.resume(stream) FROM wmstream.streams;
	COMMIT;
	CALL judge(3, p);
	PERFORM wmstream.advance_watermark(stream, '2024-06-01 00:00+00') FROM wmstream.streams;
	COMMIT;
	CALL judge(4, p);
	-- nothing was late, nothing is left
	INSERT INTO leftovers SELECT p, sum(late_rows), sum(no_time_rows), sum(state_rows) FROM wmstream.stat_streams;
	PERFORM wmstream.drop_stream(stream) FROM wmstream.streams;
	TRUNCATE facts RESTART IDENTITY;
	COMMIT;
END $$;
SET enable_sort = off;
SET work_mem = '64MB';

SELECT name, trim(line) AS line FROM tried, wmstream.explain(definition(tried)) AS line WHERE line ~ 'state kept|arguments kept' ORDER BY name, line COLLATE "C";
CALL whole_run('f_');
SELECT * FROM verdicts WHERE prefix = 'f_' ORDER BY moment, name;

-- The same with the slow twin of every aggregate.
ALTER SYSTEM SET wmstream.force_kept_arguments = on;
SELECT pg_reload_conf();
-- until this session has heard of it; the worker is told at the same moment
\o /dev/null
\set ECHO none
SELECT 'SELECT pg_sleep(0.01) WHERE current_setting(''wmstream.force_kept_arguments'') = ''off''' FROM generate_series(1, 2000) \gexec
\set ECHO all
\o
\connect
SHOW wmstream.force_kept_arguments;
SET enable_sort = off;
SET work_mem = '64MB';
SELECT bool_or(line ~ 'arguments kept') AS kept FROM wmstream.explain('SELECT lower(w) AS hour, sum(n) AS s FROM facts, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w') AS line;
CALL whole_run('s_');
SELECT * FROM verdicts WHERE prefix = 's_' ORDER BY moment, name;
-- Both came to the same, the floats too: they were added in the same order.
SELECT name, d.* FROM tried, oracle.differences('SELECT * FROM f_' || name, 'SELECT * FROM s_' || name) d ORDER BY name;
-- and each of them did keep its arguments
SELECT prefix, streams = (SELECT count(*) FROM tried) AS all_there, with_rows = streams AS all_keep FROM keeping ORDER BY prefix;
TABLE leftovers;
ALTER SYSTEM RESET wmstream.force_kept_arguments;
SELECT pg_reload_conf();

SET timezone = 'UTC';
SET datestyle = 'ISO';
-- An aggregate that is replaced by one with another state: what is kept cannot be read any more, and the stream says so.
CREATE AGGREGATE changing(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE FUNCTION longer(text, int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || $2 $$;
CREATE FUNCTION how_long(text) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT length($1) $$;
SELECT wmstream.create_stream('changed', 'SELECT lower(w) AS hour, changing(i4) AS c FROM facts, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w');
SELECT wmstream.create_stream('unchanged', 'SELECT lower(w) AS hour, count(i4) AS c FROM facts, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w');
INSERT INTO facts (ts, i4) VALUES ('2024-06-01 00:10+00', 1);
SELECT wmstream.wait('changed');
CREATE OR REPLACE AGGREGATE changing(int) (SFUNC = longer, STYPE = text, INITCOND = 'text', FINALFUNC = how_long);
INSERT INTO facts (ts, i4) VALUES ('2024-06-01 00:20+00', 1), ('2024-06-01 03:00+00', 1);
SELECT oracle.status('changed'), oracle.status('unchanged');
TABLE changed;
TABLE unchanged;

-- Rows whose type has no name, but for a number of the process that made them, mean the same to readers, and to the next worker.
CREATE TABLE rowed (ts timestamptz, i int, j int, a text, b text);
CREATE FUNCTION earlier(state anyelement, value anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1';
CREATE AGGREGATE earliest(anyelement) (SFUNC = earlier, STYPE = anyelement);
CREATE FUNCTION rowed(what text) RETURNS text LANGUAGE sql AS
	$$ SELECT 'SELECT lower(w) AS hour, ' || what || ' AS x FROM (SELECT ts, i, j, a, b FROM rowed) r, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w' $$;
SELECT wmstream.create_stream('rowed_int', rowed('count(DISTINCT (i, j))'));
SELECT wmstream.create_stream('rowed_text', rowed('count(DISTINCT (a, b))'));
SELECT wmstream.create_stream('rowed_json', rowed('jsonb_agg(r ORDER BY ROW(a, ROW(i, 3)) DESC)'));
SELECT wmstream.create_stream('rowed_state', rowed('to_jsonb(earliest(ROW(b, j)))'));
SELECT wmstream.create_stream('rowed_array', rowed('array_agg(ROW(i, a) ORDER BY ts)::text'));
INSERT INTO rowed VALUES ('2024-01-01 10:00+00', 1, 2, 'x', 'y'), ('2024-01-01 10:01+00', 1, 3, 'x', 'z'), ('2024-01-01 10:02+00', 1, 3, NULL, 'z'), ('2024-01-01 10:03+00', NULL, NULL, NULL, NULL);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'rowed%';
\connect
SET timezone = 'UTC';
SELECT ROW(1.5, '1 day'::interval), ROW(a, b), ROW(true) FROM rowed LIMIT 1;
CREATE FUNCTION differences(result text, what text) RETURNS TABLE (rows bigint, only_first bigint, only_second bigint) LANGUAGE sql AS
	$$ SELECT * FROM oracle.differences('SELECT * FROM wmstream.live(NULL::' || result || ')', rowed(what)) $$;
CREATE TABLE rowed_as (result text, what text);
INSERT INTO rowed_as VALUES ('rowed_int', 'count(DISTINCT (i, j))'), ('rowed_text', 'count(DISTINCT (a, b))'), ('rowed_json', 'jsonb_agg(r ORDER BY ROW(a, ROW(i, 3)) DESC)'),
	('rowed_state', 'to_jsonb(earliest(ROW(b, j)))'), ('rowed_array', 'array_agg(ROW(i, a) ORDER BY ts)::text');
SELECT result, d.* FROM rowed_as, differences(result, what) d ORDER BY result;
-- another worker, which makes their flows in another order
SELECT wmstream.pause(stream) FROM wmstream.streams WHERE stream::text LIKE 'rowed%';
SELECT oracle.status(stream) FROM wmstream.streams WHERE stream::text LIKE 'rowed%';
SELECT count(pg_terminate_backend(pid)) AS workers FROM pg_stat_activity WHERE backend_type = 'wmstream worker';
SELECT wmstream.resume('rowed_array');
SELECT wmstream.wait('rowed_array');
SELECT wmstream.resume(stream) FROM wmstream.streams WHERE stream::text LIKE 'rowed%' AND status = 'paused' ORDER BY stream::text DESC;
INSERT INTO rowed VALUES ('2024-01-01 10:30+00', 2, 2, 'x', 'y'), ('2024-01-01 11:00+00', 1, 2, 'x', 'y');
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'rowed%';
DELETE FROM rowed WHERE ts >= '2024-01-01 11:00+00';
SELECT result, d.* FROM rowed_as, LATERAL (SELECT * FROM oracle.differences('TABLE ' || result, rowed(what))) d ORDER BY result;
-- what cannot be put together anew
CREATE FUNCTION some_row(i int) RETURNS record LANGUAGE sql IMMUTABLE AS 'SELECT i, $$x$$::text';
SELECT wmstream.create_stream('refused', rowed('count(DISTINCT some_row(i))'));
SELECT wmstream.create_stream('refused', 'SELECT lower(w) AS hour, count(*) AS n FROM rowed, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w, ROW(i, j)');
SELECT wmstream.create_stream('refused', 'SELECT count(*) AS n FROM (SELECT DISTINCT ts, ROW(i, j) AS r FROM rowed WHERE wmstream.watermark(ts, ''0'')) d, wmstream.window(ts, ''1 hour'') AS w GROUP BY w');
-- what is not kept need not be put together
SELECT wmstream.create_stream('rowed_first', 'SELECT to_jsonb(r) AS r FROM (SELECT DISTINCT ON (ts, i) ts, i, ROW(a, ROW(b, j)) AS r FROM rowed WHERE wmstream.watermark(ts, ''0'')) d', start_from => 'beginning');
SELECT wmstream.create_stream('rowed_count', rowed('count(ROW(i, j)) + count(r)'), start_from => 'beginning');
SELECT wmstream.wait('rowed_first');
SELECT * FROM oracle.differences('TABLE rowed_first', 'SELECT to_jsonb(ROW(a, ROW(b, j))) FROM rowed');
SELECT wmstream.wait('rowed_count');
SELECT * FROM differences('rowed_count', 'count(ROW(i, j)) + count(r)');
