-- Group keys of all sorts: equal is what GROUP BY calls equal.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE nested AS (p pair, n numeric);
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE DOMAIN words AS text[] CHECK (cardinality(value) < 5);
CREATE COLLATION case_blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION accent_blind (provider = icu, locale = 'und-u-ks-level1-kc-true', deterministic = false);
CREATE DOMAIN ci AS text COLLATE case_blind;

CREATE TABLE things (
	id int GENERATED ALWAYS AS IDENTITY, ts timestamptz,
	n numeric, f float8, t text, tb text COLLATE case_blind, "Ta" text COLLATE accent_blind, ci ci, c char(6), v varchar(9), nm name,
	e colour, p pair, ne nested, po positive, ws words, ia int[], na numeric[], r int4range, nr numrange, mr int4multirange,
	j jsonb, u uuid, b bool, bi bit(3), d date, iv interval, "Sp ace" int, net inet, m money, ta text[]);

CREATE TABLE tried (name text, keys text);
INSERT INTO tried VALUES
('numbers', 'n, f'), ('texts', 't'), ('blind', 'tb'), ('accents', '"Ta"'), ('blind_domain', 'ci'), ('padded', 'c, v, nm'), ('enums', 'e'),
('composites', 'p'), ('nested', 'ne'), ('domains', 'po, ws'), ('arrays', 'ia, na, ta'), ('ranges', 'r, nr, mr'), ('jsons', 'j'), ('uuids', 'u, net'),
('bools', 'b, bi'), ('times', 'd, iv'), ('Quo"ted', '"Sp ace", "Ta"'), ('expressions', 'n + 1 AS next, lower(tb) AS low, (p).a AS pa, j -> ''k'' AS jk'),
('moneys', 'm'), ('many', 'n, f, t, tb, c, e, p, po, ia, r, j, u, b, d, iv');

CREATE FUNCTION definition(tried) RETURNS text LANGUAGE sql RETURN format(
	'SELECT lower(w) AS hour, %s, count(*) AS "how many", sum(id) AS ids FROM things, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, %s',
	$1.keys, regexp_replace($1.keys, ' AS \w+', '', 'g'));
CREATE PROCEDURE fill(batches int, since timestamptz, step interval) LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..batches - 1 LOOP
		INSERT INTO things (ts, n, f, t, tb, "Ta", ci, c, v, nm, e, p, ne, po, ws, ia, na, r, nr, mr, j, u, b, bi, d, iv, "Sp ace", net, m, ta)
		SELECT since + batch * step - (x * 37 % 600) * interval '1 second',
			   (ARRAY['1.0', '1.00', '1', '-0.0', '0', 'NaN', '1e3', '1000', NULL, 'Infinity'])[1 + h % 10]::numeric,
			   (ARRAY['0', '-0', 'NaN', 'Infinity', '1.5', NULL])[1 + h % 6]::float8,
			   (ARRAY['a', 'A', 'ä', '', NULL, repeat('x', 3000)])[1 + h % 6],
			   (ARRAY['straße', 'STRASSE', 'Straße', 'a', 'A', NULL, ''])[1 + h % 7],
			   (ARRAY['cote', 'coté', 'COTE', 'Cote', 'other', NULL])[1 + h % 6],
			   (ARRAY['one', 'One', 'ONE', 'two', NULL])[1 + h % 5],
			   (ARRAY['ab', 'ab ', 'ab    ', '', NULL])[1 + h % 5], (ARRAY['ab', 'ab ', 'ab  '])[1 + h % 3], (ARRAY['n1', 'n2'])[1 + h % 2],
			   (enum_range(NULL::colour))[1 + h % 3],
			   CASE h % 5 WHEN 0 THEN NULL WHEN 1 THEN ROW(NULL, NULL)::pair WHEN 2 THEN ROW(1, NULL)::pair ELSE ROW(h % 2, 'x')::pair END,
			   CASE h % 4 WHEN 0 THEN ROW(NULL, 1.0)::nested WHEN 1 THEN ROW(ROW(1, 'a')::pair, 1.00)::nested ELSE ROW(ROW(1, 'a')::pair, 1)::nested END,
			   nullif(h % 4, 0), CASE WHEN h % 3 > 0 THEN ARRAY['w', NULL, (h % 2)::text]::words END,
			   CASE h % 5 WHEN 0 THEN NULL WHEN 1 THEN '{}'::int[] WHEN 2 THEN '[0:1]={1,2}'::int[] WHEN 3 THEN '{1,2}'::int[] ELSE '{{1,2},{3,NULL}}'::int[] END,
			   CASE h % 3 WHEN 0 THEN '{1.0,2}'::numeric[] WHEN 1 THEN '{1,2.00}'::numeric[] ELSE NULL END,
			   CASE h % 5 WHEN 0 THEN 'empty'::int4range WHEN 1 THEN '[1,4]'::int4range WHEN 2 THEN '[1,5)'::int4range WHEN 3 THEN '(,)'::int4range END,
			   CASE h % 3 WHEN 0 THEN '[1.0,2]'::numrange WHEN 1 THEN '[1,2.0]'::numrange END,
			   CASE h % 3 WHEN 0 THEN '{[1,2),[5,6)}'::int4multirange WHEN 1 THEN '{[1,1],[5,5]}'::int4multirange ELSE '{}'::int4multirange END,
			   (ARRAY['{"k": 1, "l": 2}', '{"l": 2, "k": 1.0}', '{"l":2,"k":1}', 'null', '[]', NULL])[1 + h % 6]::jsonb,
			   md5((h % 4)::text)::uuid, nullif(h % 3, 2) = 1, (h % 4)::bit(3),
			   (ARRAY['2024-01-01', 'infinity', '-infinity', NULL])[1 + h % 4]::date,
			   (ARRAY['1 month', '30 days', '720 hours', '1 day', '24 hours', NULL])[1 + h % 6]::interval,
			   h % 3, (ARRAY['10.0.0.1', '10.0.0.1/32', '10.0.0.1/8', '::1'])[1 + h % 4]::inet, (h % 3)::numeric::money,
			   CASE h % 3 WHEN 0 THEN ARRAY['a', NULL] WHEN 1 THEN ARRAY['a', ''] ELSE ARRAY[NULL, NULL]::text[] END
		FROM (SELECT x, (x * 7919 + batch * 104729) % 99991 AS h FROM generate_series(1, 120) x) v;
		COMMIT;
	END LOOP;
END $$;

SELECT wmstream.create_stream('"k ' || replace(name, '"', '""') || '"', definition(tried)) FROM tried ORDER BY name;
SELECT wmstream.create_stream('"u ' || replace(name, '"', '""') || '"', definition(tried), output_mode => 'update') FROM tried ORDER BY name;
SELECT wmstream.wait(stream) FROM wmstream.streams;
CALL fill(20, '2024-05-01 00:00+00', '13 minutes');

-- The values that stand for a group are those of its first row; which of several equal ones is all the same.
SELECT name, result > 0 AS some, missing, surplus, live_missing, live_surplus FROM tried,
	oracle.compare(('"k ' || replace(name, '"', '""') || '"')::regclass, $$hour + interval '1 hour' <= $1$$) ORDER BY name;
SELECT name, result > 0 AS some, missing, surplus, live_missing, live_surplus FROM tried,
	oracle.compare(('"u ' || replace(name, '"', '""') || '"')::regclass) ORDER BY name;

-- The same through pause and resume, when keys come back from the log, and to the end.
SELECT wmstream.pause(stream) FROM wmstream.streams;
SELECT count(*) FILTER (WHERE oracle.status(stream) = 'paused') AS paused FROM wmstream.streams;
SELECT wmstream.resume(stream) FROM wmstream.streams;
CALL fill(3, '2024-05-01 04:10+00', '13 minutes');
SELECT wmstream.advance_watermark(stream, '2024-06-01') FROM wmstream.streams;
SELECT name, missing, surplus, live_missing, live_surplus FROM tried,
	oracle.compare(('"k ' || replace(name, '"', '""') || '"')::regclass, $$hour + interval '1 hour' <= $1$$) ORDER BY name;
SELECT name, missing, surplus, live_missing, live_surplus FROM tried,
	oracle.compare(('"u ' || replace(name, '"', '""') || '"')::regclass) ORDER BY name;
SELECT DISTINCT late_rows, no_time_rows, state_rows FROM wmstream.stat_streams;

-- The key of the result has the collation of the column.
\d "u accents"

-- Keys that no btree knows: append does without a key, update is refused.
CREATE TABLE odd (ts timestamptz, x xid);
SELECT wmstream.create_stream('odd_keys', $$
  SELECT lower(w) AS hour, x, count(*) AS n FROM odd, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, x
$$);
INSERT INTO odd SELECT timestamptz '2024-01-01 00:00+00' + i * interval '10 minutes', (i % 3)::text::xid FROM generate_series(1, 30) i;
SELECT * FROM oracle.compare('odd_keys', $$hour + interval '1 hour' <= $1$$);
SELECT wmstream.create_stream('odd_keys_update', $$
  SELECT lower(w) AS hour, x, count(*) AS n FROM odd, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, x
$$, output_mode => 'update');
\echo :SQLSTATE

-- Strings of type character: blanks at the end do not count, however many the length of a column, or none, makes of them.  Some minor
-- releases say of this type, and of intervals, that equal values have equal images.
CREATE FUNCTION says_so(oid) RETURNS bool IMMUTABLE LANGUAGE sql RETURN true;
ALTER OPERATOR FAMILY interval_ops USING btree ADD FUNCTION 4 (interval) says_so(oid);
UPDATE pg_amproc SET amproc = 'public.says_so' WHERE amproc::text = 'btvarstrequalimage' AND amproclefttype = 'bpchar'::regtype;
CREATE TABLE short (ts timestamptz, c char(3), free bpchar);
CREATE TABLE long (ts timestamptz, c char(5), free bpchar);
CREATE DOMAIN code AS char(4);
CREATE TABLE coded (ts timestamptz, c code);
CREATE TABLE blanks (name text, query text);
INSERT INTO blanks VALUES
('b_inner', $$SELECT s.ts, s.c AS s, l.c AS l FROM short s JOIN long l ON l.c = s.c AND l.ts = s.ts WHERE wmstream.watermark(s.ts, '0') AND wmstream.watermark(l.ts, '0')$$),
('b_full', $$SELECT s.ts, s.c AS s, l.c AS l FROM short s FULL JOIN long l ON l.c = s.c AND l.ts = s.ts WHERE wmstream.watermark(s.ts, '0') AND wmstream.watermark(l.ts, '0')$$),
('b_anti', $$SELECT s.ts, s.c FROM short s WHERE wmstream.watermark(s.ts, '0') AND NOT EXISTS (SELECT FROM long l WHERE l.c = s.c AND l.ts = s.ts AND wmstream.watermark(l.ts, '0'))$$),
('b_coded', $$SELECT s.ts, s.c AS s, d.c AS d FROM short s JOIN coded d ON d.c = s.c AND d.ts = s.ts WHERE wmstream.watermark(s.ts, '0') AND wmstream.watermark(d.ts, '0')$$),
('b_free', $$SELECT lower(w) AS hour, free, count(*) AS n FROM short, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, free$$),
('b_interval', $$SELECT lower(w) AS hour, CASE WHEN free = 'x' THEN interval '30 days' ELSE '1 month' END AS i, count(*) AS n FROM short, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, 2$$),
('b_either', $$SELECT lower(w) AS hour, coalesce(c, free) AS c, count(*) AS n FROM short, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, coalesce(c, free)$$),
('b_distinct', $$SELECT DISTINCT wmstream.window(ts, '1 hour') AS w, free FROM short WHERE wmstream.watermark(ts, '0')$$),
('b_own', $$SELECT lower(w) AS hour, c, count(*) AS n FROM coded, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, c$$),
('b_union', $$SELECT lower(w) AS hour, c, count(*) AS n FROM (SELECT ts, c FROM short WHERE wmstream.watermark(ts, '0') UNION ALL SELECT ts, c FROM long WHERE wmstream.watermark(ts, '0')) u, wmstream.window(ts, '1 hour') AS w GROUP BY w, c$$);
SELECT wmstream.create_stream(name, query) FROM blanks ORDER BY name;
CREATE PROCEDURE blanks(since int, upto int) LANGUAGE sql AS $$
	INSERT INTO short SELECT timestamptz '2024-01-01 00:00+00' + n * interval '1 minute', CASE n % 3 WHEN 0 THEN 'ab' WHEN 1 THEN 'abc' END, (ARRAY['ab', 'ab  ', 'x', 'ab '])[1 + n / 2 % 4] FROM generate_series(since, upto) n;
	INSERT INTO long SELECT timestamptz '2024-01-01 00:00+00' + n * interval '1 minute', CASE n % 4 WHEN 0 THEN 'ab' WHEN 1 THEN 'abc' ELSE 'y' END FROM generate_series(since, upto) n;
	INSERT INTO coded SELECT ts, c FROM long WHERE ts >= timestamptz '2024-01-01 00:00+00' + since * interval '1 minute';
$$;
CALL blanks(0, 89);
SELECT count(wmstream.wait(name::regclass)) FROM blanks;
CALL blanks(90, 200);
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-02 00:00+00')) FROM blanks;
SELECT name, result > 0 AS some, missing, surplus, oracle.status(name::regclass) FROM blanks, oracle.compare(name::regclass) ORDER BY name;
UPDATE pg_amproc SET amproc = 'btvarstrequalimage' WHERE amproc::text = 'says_so' AND amproclefttype = 'bpchar'::regtype;
ALTER OPERATOR FAMILY interval_ops USING btree DROP FUNCTION 4 (interval);
