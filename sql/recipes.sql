-- The examples of README.md as they stand there: each is made, and holds what its own query says of the tables.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE wanted (name text, compared boolean DEFAULT true);
INSERT INTO wanted VALUES ('hourly_sales'), ('six_hours'), ('word_count'), ('top_regions'), ('by_region'), ('best_days'), ('big_orders'), ('all_sales'),
	('careful'), ('beats_per_minute'), ('clicks_once'), ('paid_orders'), ('busiest_hour'), ('daily_sales'), ('open_baskets'), ('per_minute');
-- sessions are compared with a query of another kind, and nothing can tell what the clock said
INSERT INTO wanted VALUES ('visits', false), ('arrivals', false);
\set readme :abs_srcdir '/README.md'
-- statements of the page's SQL, in order; the first of each kind
CREATE TABLE page AS
SELECT statement, block * 1000 + n AS place, substring(statement FROM $$create_stream\('(\w+)'$$) AS stream, substring(statement FROM 'CREATE TABLE (\w+)') AS made
FROM   regexp_matches(pg_read_file(:'readme'), '```sql\n(.*?)```', 'g') WITH ORDINALITY b(text, block),
	   regexp_split_to_table(text[1], ';[^\n]*\n') WITH ORDINALITY s(statement, n);
-- (a stream must not be the first of its database inside a function)
CREATE TABLE nothing (v int);
SELECT wmstream.create_stream('first', 'SELECT v FROM nothing');
SET client_min_messages = warning;
DO $$
DECLARE
	p page;
BEGIN
	FOR p IN SELECT DISTINCT ON (made) * FROM page WHERE made IN ('orders', 'posts', 'regions', 'web', 'shop', 'beats', 'clicks', 'payments', 'readings') ORDER BY made, place LOOP
		EXECUTE p.statement;
	END LOOP;
	FOR p IN SELECT * FROM page WHERE statement LIKE 'ALTER TABLE orders REPLICA IDENTITY FULL%' OR statement LIKE 'SELECT wmstream.create_queue(%' ORDER BY place LOOP
		EXECUTE p.statement;
	END LOOP;
	PERFORM wmstream.set_trim('readings', false);	-- what was read is compared
	FOR p IN SELECT * FROM (SELECT DISTINCT ON (stream) * FROM page WHERE stream IN (SELECT name FROM wanted) ORDER BY stream, place) once ORDER BY place LOOP
		EXECUTE p.statement;
	END LOOP;
END $$;
RESET client_min_messages;
SELECT name AS not_made FROM wanted WHERE name NOT IN (SELECT stream::text FROM wmstream.streams);
SELECT DISTINCT stream AS not_wanted FROM page WHERE stream NOT IN (SELECT name FROM wanted) ORDER BY stream;

-- rows out of order, but by no more than ten seconds: for none of the examples they are late
CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..23 LOOP
		INSERT INTO orders (ts, region, amount)
		SELECT since + batch * interval '97 minutes' + n * interval '40 seconds' - (n * 7 % 10) * interval '1 second',
			   (ARRAY['east', 'west', 'north', 'south', 'far', NULL])[1 + (n * 7 + batch) % 6], (n * 31 + batch * 17) % 300 / 2.0 FROM generate_series(0, 30) n, since;
		INSERT INTO posts SELECT since + batch * interval '97 minutes' + n * interval '9 seconds' - (n * 7 % 10) * interval '1 second', (ARRAY['To be or', 'not to be', 'that  is', NULL, ''])[1 + (n + batch) % 5]
		FROM generate_series(0, 30) n, since;
		INSERT INTO web SELECT ts, amount FROM orders WHERE id % 3 = 0 AND ts >= (SELECT * FROM since) + batch * interval '97 minutes' - interval '10 seconds';
		INSERT INTO shop SELECT ts - interval '50 minutes', amount FROM orders WHERE id % 3 = 1 AND ts >= (SELECT * FROM since) + batch * interval '97 minutes' - interval '10 seconds';
		INSERT INTO beats SELECT since + batch * interval '97 minutes' + n * interval '5 seconds' - (n * 7 % 10) * interval '1 second', 'host ' || n % 3 FROM generate_series(0, 30) n, since;
		INSERT INTO readings SELECT since + batch * interval '97 minutes' + n * interval '7 seconds' - (n * 7 % 10) * interval '1 second', 'sensor ' || n % 3, n FROM generate_series(0, 30) n, since;
		INSERT INTO clicks SELECT since + batch * interval '97 minutes' + n * interval '50 seconds' - (n * 7 % 10) * interval '1 second', 'user ' || n % 4, 'page ' || batch || n % 5 FROM generate_series(0, 30) n, since;
		INSERT INTO payments SELECT ts + id % 45 * interval '1 minute', id, amount FROM orders WHERE id % 4 <> 0 AND ts >= (SELECT * FROM since) + (batch - 1) * interval '97 minutes' - interval '10 seconds'
			AND ts < (SELECT * FROM since) + batch * interval '97 minutes' - interval '10 seconds' ORDER BY 1;
		COMMIT;
	END LOOP;
END $$;
CREATE TABLE since AS SELECT timestamptz '2024-03-01 00:00+00' AS since;
INSERT INTO regions VALUES ('east', 'Eva'), ('west', 'Wim'), ('far', NULL);
CALL fill();
SELECT wmstream.wait(name::regclass) FROM wanted;
SELECT name, late_rows FROM wanted JOIN wmstream.stat_streams ON stream = name::regclass WHERE late_rows > 0;
-- all windows close
SELECT count(wmstream.advance_watermark(name::regclass, '2024-04-01 00:00+00')) FROM wanted WHERE name NOT IN ('by_region', 'big_orders', 'daily_sales', 'arrivals');
SELECT count(wmstream.wait(name::regclass)) FROM wanted;
SELECT wmstream.advance_watermark('daily_sales', '2024-04-01 00:00+00');
SELECT name, result > 0 AS some, missing, surplus FROM wanted, oracle.compare(name::regclass) WHERE compared ORDER BY name;
SELECT * FROM oracle.differences('TABLE visits', $$
	SELECT min(ts), max(ts) + interval '5 minutes', who, count(*)
	FROM (SELECT *, sum(first) OVER (PARTITION BY who ORDER BY ts) AS visit
		  FROM (SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY who ORDER BY ts) + interval '5 minutes' THEN 0 ELSE 1 END AS first FROM clicks) c) c
	GROUP BY who, visit$$);
