-- Complete mode: after each firing the result is the full answer; only what differs is written.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE events (ts timestamptz, word text, v int);
SELECT wmstream.create_stream('per_word', $$
  SELECT word, count(*) AS n, max(v) AS greatest FROM events GROUP BY word
$$, output_mode => 'complete');
SELECT wmstream.create_stream('top_three', $$
  SELECT word, sum(v) AS total FROM events GROUP BY word ORDER BY total DESC, word LIMIT 3
$$, output_mode => 'complete');
-- one row from the start, also when there are no rows
SELECT wmstream.create_stream('overall', $$
  SELECT count(*) AS n, coalesce(sum(v), 0) AS total FROM events
$$, output_mode => 'complete');
-- windows are never closed, nothing is late
SELECT wmstream.create_stream('per_hour', $$
  SELECT lower(w) AS hour, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place
  FROM   events, wmstream.window(ts, '1 hour') AS w
  WHERE  wmstream.watermark(ts, '10 minutes')
  GROUP  BY w HAVING count(*) > 1
$$, output_mode => 'complete');

SELECT wmstream.wait('overall');
TABLE overall;
INSERT INTO events VALUES ('2024-01-01 00:00+00', 'a', 5), ('2024-01-01 00:10+00', 'b', 3), ('2024-01-01 00:20+00', 'a', 1), ('2024-01-01 05:00+00', NULL, 2);
SELECT * FROM oracle.compare('per_word');
SELECT * FROM oracle.compare('top_three');
SELECT * FROM oracle.compare('overall');
SELECT * FROM oracle.compare('per_hour');

-- only rows that differ are written
CREATE TABLE seen AS SELECT word, xmin::text::bigint AS version FROM per_word;
INSERT INTO events VALUES ('2024-01-01 00:30+00', 'b', 1), ('2023-12-31 00:00+00', 'c', 4);
SELECT * FROM oracle.compare('per_word');
SELECT p.word, p.xmin::text::bigint = s.version AS untouched FROM per_word p LEFT JOIN seen s ON p.word IS NOT DISTINCT FROM s.word ORDER BY 1;
SELECT * FROM oracle.compare('per_hour');
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'per_hour'::regclass;

-- rows put or taken away by hand do not stay
INSERT INTO per_word VALUES ('intruder', 1, 1);
DELETE FROM per_word WHERE word = 'a';
DELETE FROM overall;
INSERT INTO events VALUES ('2024-01-01 00:30+00', 'd', 1);
SELECT * FROM oracle.compare('per_word');
SELECT * FROM oracle.compare('overall');

DO $$
BEGIN
	FOR batch IN 0..19 LOOP
		INSERT INTO events
		SELECT timestamptz '2024-01-02 00:00+00' + (n * 7919 % 86400) * interval '1 second', chr(97 + (n * n + batch) % 26), (n * 31 + batch) % 17 - 8
		FROM   generate_series(1, 200) n;
		COMMIT;
	END LOOP;
END
$$;
SELECT * FROM oracle.compare('per_word');
SELECT * FROM oracle.compare('top_three');
SELECT * FROM oracle.compare('overall');
SELECT * FROM oracle.compare('per_hour');
