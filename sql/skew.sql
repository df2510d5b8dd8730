-- One key has all the rows, on both sides of a join: work goes by the pairs within the range, memory by what may still match.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE l (id int, ts timestamptz, k text);
CREATE TABLE r (id int, ts timestamptz, k text);
CREATE TABLE tried (name text, query text);
INSERT INTO tried VALUES
('pairs', $$SELECT l.id, r.id AS other FROM l JOIN r ON r.k = l.k AND r.ts BETWEEN l.ts AND l.ts + interval '3 s' WHERE wmstream.watermark(l.ts, '1 minute') AND wmstream.watermark(r.ts, '1 minute')$$),
('outer_pairs', $$SELECT l.id, r.id AS other FROM l FULL JOIN r ON r.k = l.k AND r.ts BETWEEN l.ts + interval '0.5 s' AND l.ts + interval '2 s' WHERE wmstream.watermark(l.ts, '1 minute') AND wmstream.watermark(r.ts, '1 minute')$$),
-- each row has a partner among any of a hundred thousand
('has_partner', $$SELECT l.id FROM l WHERE wmstream.watermark(l.ts, '1 minute') AND EXISTS (SELECT FROM r WHERE r.k = l.k AND r.ts BETWEEN l.ts - interval '2 days' AND l.ts + interval '2 days' AND wmstream.watermark(r.ts, '1 minute'))$$),
('has_none', $$SELECT l.id FROM l WHERE wmstream.watermark(l.ts, '1 minute') AND NOT EXISTS (SELECT FROM r WHERE r.k = l.k AND r.ts BETWEEN l.ts - interval '2 days' AND l.ts + interval '2 days' AND wmstream.watermark(r.ts, '1 minute'))$$);
SELECT wmstream.create_stream(name, query) FROM tried ORDER BY name;

-- 100,000 rows a side, a second apart, in ten transactions each: the left one first, then the right one
CREATE TABLE peak (stream regclass PRIMARY KEY, kept_rows bigint, state_bytes bigint);
CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..9 LOOP
		INSERT INTO l SELECT n, timestamptz '2024-01-01 00:00+00' + n * interval '1 s', 'k' FROM generate_series(batch * 10000, batch * 10000 + 9999) n;
		COMMIT;
		INSERT INTO r SELECT n, timestamptz '2024-01-01 00:00+00' + n * interval '1 s', 'k' FROM generate_series(batch * 10000, batch * 10000 + 9999) n;
		COMMIT;
		PERFORM wmstream.wait(stream, '120 s') FROM wmstream.streams;
		INSERT INTO peak SELECT stream, kept_rows, state_bytes FROM wmstream.stat_operators
		ON CONFLICT (stream) DO UPDATE SET kept_rows = greatest(peak.kept_rows, excluded.kept_rows), state_bytes = greatest(peak.state_bytes, excluded.state_bytes);
	END LOOP;
END $$;
CALL fill();

-- pairs: what the bound holds, and not more; some and none: all within two days, but a row whose partner is known needs no place
SELECT stream, kept_rows < 500 AS few, state_bytes < 16000000 AS small FROM peak WHERE stream::text ~ 'pairs' ORDER BY stream::text;
SELECT stream, kept_rows <= 110000 AS one_side, state_bytes < 40000000 AS small FROM peak WHERE stream::text !~ 'pairs' ORDER BY stream::text;
-- rows compared: each pair once, and at the edges of the range a few more; some, none: each row about once
SELECT stream, output_rows, compared_rows <= 2.5 * output_rows AS by_matches FROM wmstream.stat_operators WHERE stream::text ~ 'pairs' ORDER BY stream::text;
SELECT stream, input_rows, compared_rows <= 2 * input_rows AS by_rows FROM wmstream.stat_operators WHERE stream::text !~ 'pairs' ORDER BY stream::text;

SELECT wmstream.advance_watermark(stream, '2024-02-01 00:00+00') FROM wmstream.streams;
-- (the definitions themselves, run by hand, compare each row with each)
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM oracle.differences('TABLE pairs', 'SELECT l.id, l.id + n FROM l, generate_series(0, 3) n WHERE l.id + n < 100000');
SELECT * FROM oracle.differences('TABLE outer_pairs', 'SELECT l.id, l.id + n FROM l, generate_series(1, 2) n WHERE l.id + n < 100000 UNION ALL VALUES (99999, NULL), (NULL, 0)');
SELECT * FROM oracle.differences('TABLE has_partner', 'SELECT id FROM l');
SELECT * FROM oracle.differences('TABLE has_none', 'SELECT id FROM l WHERE false');
SELECT stream, state_rows, kept_rows FROM wmstream.stat_operators ORDER BY stream::text;
