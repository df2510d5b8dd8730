-- Rows as they are in the WAL: toasted, with dropped and added columns, of partitions, domains, generated columns.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

-- Large values: compressed, out of line, of several kinds.
CREATE TABLE large (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, compressed text, outside text, small text, doc jsonb, bytes bytea);
ALTER TABLE large ALTER outside SET STORAGE EXTERNAL, ALTER small SET STORAGE PLAIN;
SELECT wmstream.create_stream('large_rows', 'SELECT id, md5(compressed) AS c, outside, length(small) AS s, doc -> ''list'' -> 3 AS d, bytes FROM large');
SELECT wmstream.create_stream('large_states', $$
  SELECT lower(w) AS hour, md5(outside) AS key, count(*) AS n, max(compressed) AS mx, string_agg(outside, '' ORDER BY id) AS long, min(doc::text) AS mn, array_agg(bytes ORDER BY id) AS aa, max(length(doc::text)) AS l
  FROM   large, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, outside
$$);
INSERT INTO large (ts, compressed, outside, small, doc, bytes)
SELECT timestamptz '2024-01-01 00:00+00' + i * interval '9 minutes', repeat('compress ' || i, 20000), (SELECT string_agg(md5((i % 4 * 1000 + n)::text), '') FROM generate_series(1, 300) n), repeat('s', i),
	   jsonb_build_object('list', (SELECT jsonb_agg(md5((n * i)::text)) FROM generate_series(1, 500) n)), decode(repeat(md5(i::text), 3000), 'hex')
FROM   generate_series(1, 40) i;
INSERT INTO large (ts, outside) VALUES ('2024-01-01 06:50+00', NULL), ('2024-01-01 06:50+00', '');
INSERT INTO large (ts, outside, compressed) SELECT '2024-01-01 07:00+00', repeat(md5('x'), 200000), repeat('y', 30000000);
SELECT * FROM oracle.compare('large_rows');
SELECT * FROM oracle.compare('large_states', 'hour + interval ''1 hour'' <= $1');
SELECT wmstream.pause('large_states');
SELECT wmstream.resume('large_states');
INSERT INTO large (ts, outside) VALUES ('2024-01-01 07:01+00', NULL), ('2024-01-01 08:30+00', '');
SELECT * FROM oracle.compare('large_states', 'hour + interval ''1 hour'' <= $1');
-- an unchanged value of an update is not looked for
UPDATE large SET small = 'changed' WHERE id % 5 = 0;
DELETE FROM large WHERE id = 1;
INSERT INTO large (ts, outside) VALUES ('2024-01-01 09:30+00', 'after');
SELECT wmstream.wait('large_rows');
SELECT changed_rows, oracle.status('large_rows') FROM wmstream.stat_streams WHERE stream = 'large_rows'::regclass;

-- Columns that were dropped, added with a default that no row holds, changed in order by partitions.
CREATE TABLE shifting (a int, gone text, ts timestamptz, gone_too numeric, b text);
INSERT INTO shifting VALUES (0, 'x', '2024-01-01 00:00+00', 1, 'before');
ALTER TABLE shifting DROP COLUMN gone;
SELECT wmstream.create_stream('shifted', 'SELECT a, b, s.ts, to_jsonb(s) AS whole FROM shifting s');
SELECT wmstream.create_stream('shifted_hours', $$
  SELECT lower(w) AS hour, b, count(*) AS n, max(a) AS a FROM shifting, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') AND ts IS NOT NULL GROUP BY w, b
$$, late_table => 'shifted_late');
INSERT INTO shifting VALUES (1, '2024-01-01 10:00+00', 2, 'one');
ALTER TABLE shifting DROP COLUMN gone_too;
INSERT INTO shifting VALUES (2, '2024-01-01 10:01+00', 'two');
ALTER TABLE shifting ADD COLUMN c int DEFAULT 42, ADD COLUMN d text;
INSERT INTO shifting VALUES (3, '2024-01-01 10:02+00', 'three', NULL, 'd');
INSERT INTO shifting (a, ts, b) VALUES (4, '2024-01-01 10:03+00', 'four');
BEGIN;
INSERT INTO shifting (a, ts, b) VALUES (5, '2024-01-01 10:04+00', 'five');
ALTER TABLE shifting ADD COLUMN e int DEFAULT 7;
INSERT INTO shifting (a, ts, b) VALUES (6, '2024-01-01 10:05+00', 'six');
ALTER TABLE shifting DROP COLUMN d;
INSERT INTO shifting (a, ts, b) VALUES (7, '2024-01-01 10:06+00', 'seven'), (8, NULL, 'eight');
COMMIT;
SELECT wmstream.wait('shifted');
SELECT a, b, ts FROM shifted ORDER BY a;
SELECT whole FROM shifted WHERE a = 8;
INSERT INTO shifting (a, ts, b) VALUES (9, '2024-01-01 12:00+00', 'nine');
DELETE FROM shifting WHERE a = 0;
SELECT * FROM oracle.compare('shifted_hours', 'hour + interval ''1 hour'' <= $1');
SELECT row_data FROM shifted_late;
-- a column that the stream reads cannot go; one whose type changes ends in failed, with the reason
ALTER TABLE shifting DROP COLUMN b;
ALTER TABLE shifting ALTER COLUMN b TYPE varchar(20);
\echo :SQLSTATE
SELECT oracle.status('shifted_hours');

-- Columns that the stream does not read may become anything, also while older rows are unread; what cannot be read of these is NULL
-- in the late table.
CREATE TABLE retyped (a int, ts timestamptz, free text, num int, added_later int, k text);
ALTER TABLE retyped DROP COLUMN added_later;
SELECT wmstream.create_stream('of_retyped', $$
  SELECT lower(w) AS hour, k, count(*) AS n, sum(a) AS a FROM retyped, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k
$$, late_table => 'retyped_late');
SELECT wmstream.wait('of_retyped');
SELECT wmstream.pause('of_retyped');
INSERT INTO retyped VALUES (1, '2024-01-01 10:00+00', '11', 1, 'x'), (2, NULL, '12', 2, NULL);
ALTER TABLE retyped ALTER free TYPE int USING free::int, ALTER num TYPE text, ADD COLUMN more int DEFAULT 5;
INSERT INTO retyped VALUES (3, '2024-01-01 10:01+00', 13, '3', 'x', 6), (4, NULL, 14, '4', 'y', NULL);
ALTER TABLE retyped ALTER num TYPE jsonb USING to_jsonb(num), DROP COLUMN free, ALTER more TYPE bigint;
INSERT INTO retyped VALUES (5, '2024-01-01 10:02+00', '[3]', 'x', 6), (6, NULL, '"z"', 'y', NULL);
SELECT wmstream.resume('of_retyped');
INSERT INTO retyped VALUES (7, '2024-01-01 12:02+00', '[3]', 'x', 6);
SELECT * FROM oracle.compare('of_retyped', 'hour + interval ''1 hour'' <= $1');
SELECT row_data FROM retyped_late ORDER BY row_data ->> 'a';
ALTER TABLE retyped ALTER num TYPE text, ALTER more TYPE float8;
INSERT INTO retyped VALUES (8, '2024-01-01 13:02+00', 'text', 'x', 1.5);
SELECT * FROM oracle.compare('of_retyped', 'hour + interval ''1 hour'' <= $1');

-- A table that is rewritten is the same table: nothing comes twice.
VACUUM FULL shifting;
CREATE INDEX shifting_a ON shifting (a);
CLUSTER shifting USING shifting_a;
ALTER TABLE shifting ALTER COLUMN e TYPE bigint;
SELECT wmstream.wait('shifted_hours');
SELECT input_rows FROM wmstream.stat_streams WHERE stream = 'shifted_hours'::regclass;

-- Partitions: rows of leaves are rows of the root, in its shape.
CREATE TABLE measured (id int, ts timestamptz NOT NULL, city text, v numeric) PARTITION BY RANGE (ts);
CREATE TABLE measured_old PARTITION OF measured FOR VALUES FROM (MINVALUE) TO ('2024-01-01 00:00+00');
CREATE TABLE measured_q1 (junk int, v numeric, ts timestamptz NOT NULL, id int, city text);
ALTER TABLE measured_q1 DROP COLUMN junk;
ALTER TABLE measured ATTACH PARTITION measured_q1 FOR VALUES FROM ('2024-01-01 00:00+00') TO ('2024-04-01 00:00+00');
SELECT wmstream.create_stream('per_city', $$
  SELECT lower(w) AS day, city, count(*) AS n, sum(v) AS v, max(id) AS id FROM measured, wmstream.window(ts, '1 day') AS w WHERE wmstream.watermark(ts, '1 day') GROUP BY w, city
$$);
INSERT INTO measured SELECT i, timestamptz '2023-12-20 00:00+00' + i * interval '5 hours', 'c' || i % 3, i * 1.5 FROM generate_series(1, 100) i;
CREATE TABLE measured_q2 PARTITION OF measured FOR VALUES FROM ('2024-04-01 00:00+00') TO ('2024-07-01 00:00+00') PARTITION BY LIST (city);
CREATE TABLE measured_q2_c0 PARTITION OF measured_q2 FOR VALUES IN ('c0');
CREATE TABLE measured_q2_other (city text, v numeric, extra int, ts timestamptz NOT NULL, id int);
ALTER TABLE measured_q2_other DROP COLUMN extra;
ALTER TABLE measured_q2 ATTACH PARTITION measured_q2_other DEFAULT;
INSERT INTO measured SELECT i, timestamptz '2024-03-25 00:00+00' + i * interval '5 hours', 'c' || i % 3, i * 1.5 FROM generate_series(1, 100) i;
SELECT wmstream.wait('per_city');
INSERT INTO measured_q1 (id, ts, city, v) VALUES (1000, '2024-03-31 23:00+00', 'leaf', 1);	-- late
INSERT INTO measured_q2_other (id, ts, city, v) VALUES (1001, '2024-04-15 23:00+00', 'leaf', 1);
SELECT wmstream.wait('per_city');
SELECT late_rows, input_rows FROM wmstream.stat_streams WHERE stream = 'per_city'::regclass;
DELETE FROM measured WHERE id = 1000;
SELECT * FROM oracle.compare('per_city', 'day + interval ''1 day'' <= $1');
-- one that leaves the table takes no rows along; one that comes brings none
ALTER TABLE measured DETACH PARTITION measured_old;
INSERT INTO measured_old (id, ts, city, v) VALUES (1002, '2024-05-01 00:00+00', 'elsewhere', 1);
CREATE TABLE measured_q3 (LIKE measured);
INSERT INTO measured_q3 VALUES (1003, '2024-07-01 00:00+00', 'came along', 1);
ALTER TABLE measured ATTACH PARTITION measured_q3 FOR VALUES FROM ('2024-07-01 00:00+00') TO ('2024-10-01 00:00+00');
INSERT INTO measured VALUES (1004, '2024-07-02 00:00+00', 'counted', 1);
SELECT wmstream.wait('per_city');
SELECT input_rows FROM wmstream.stat_streams WHERE stream = 'per_city'::regclass;
-- a row that an update moves to another partition counts as one change, not as a new row
UPDATE measured SET ts = '2024-07-03 00:00+00' WHERE id = 100 AND ts > '2024-03-01';
SELECT wmstream.wait('per_city');
SELECT input_rows, changed_rows FROM wmstream.stat_streams WHERE stream = 'per_city'::regclass;
TRUNCATE measured;
SELECT wmstream.wait('per_city');
SELECT oracle.status('per_city');

-- Domains, generated columns, composite types, enums with values that come later.
CREATE DOMAIN event_time AS timestamptz CHECK (value > '1900-01-01');
CREATE TYPE point3 AS (x int, y int, z text);
CREATE TYPE size AS ENUM ('s', 'm');
CREATE TABLE typed (at event_time, p point3, s size, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, ps point3[], bits varbit, r tstzrange);
SELECT wmstream.create_stream('typed_hours', $$
  SELECT lower(w) AS hour, s, (p).x AS x, sum(twice) AS t, max(ps[1].y) AS y, array_agg(p ORDER BY n) AS ps, count(r * tstzrange('2024-01-01', NULL)) AS c
  FROM   typed, wmstream.window(at::timestamptz, '1 hour') AS w WHERE wmstream.watermark(at::timestamptz, '0') GROUP BY w, s, (p).x
$$);
INSERT INTO typed (at, p, s, n, ps, bits, r) SELECT timestamptz '2024-01-01 00:00+00' + i * interval '7 minutes', ROW(i % 3, NULL, 'z' || i)::point3, (enum_range(NULL::size))[1 + i % 2], i, ARRAY[ROW(1, i, NULL)::point3], i::bit(10), tstzrange('2024-01-01', NULL) FROM generate_series(1, 60) i;
ALTER TYPE size ADD VALUE 'xl' BEFORE 's';
INSERT INTO typed (at, p, s, n) SELECT timestamptz '2024-01-01 07:01+00' + i * interval '7 minutes', ROW(i % 3, NULL, 'z' || i)::point3, 'xl', i FROM generate_series(1, 30) i;
SELECT * FROM oracle.compare('typed_hours', 'hour + interval ''1 hour'' <= $1');
ALTER TYPE point3 ADD ATTRIBUTE w float8;
INSERT INTO typed (at, p, s, n) VALUES ('2024-01-01 10:20+00', ROW(1, 2, 'after', 0.5), 'xl', 100), ('2024-01-01 11:20+00', NULL, NULL, NULL);
SELECT * FROM oracle.compare('typed_hours', 'hour + interval ''1 hour'' <= $1');

-- Names that need quotes, in several schemas.
CREATE SCHEMA "My ""odd"" schema";
CREATE SCHEMA "select";
CREATE TABLE "My ""odd"" schema"."Order" ("Time" timestamptz, "group" text, "a b" int, "ünï" int GENERATED ALWAYS AS ("a b" % 3) STORED);
CREATE TABLE "select"."Order" ("Time" timestamptz, "group" text, "a b" int);
ALTER TABLE "My ""odd"" schema"."Order" REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('"select"."From here!"', $$
  SELECT lower(w) AS "Hour", "group", "ünï", sum("a b") AS "Sum of it" FROM "My ""odd"" schema"."Order", wmstream.window("Time", '1 hour') AS w
  WHERE wmstream.watermark("Time", '0') AND "Time" IS NOT NULL GROUP BY w, "group", "ünï"
$$, output_mode => 'update', on_change => 'retract', late_table => '"My ""odd"" schema"."Late"');
SELECT wmstream.create_stream('"Both"', $$
  SELECT "Time", "group" FROM "My ""odd"" schema"."Order" WHERE wmstream.watermark("Time", NULL) UNION ALL SELECT "Time", "group" FROM "select"."Order" o WHERE wmstream.watermark(o."Time", NULL)
$$);
INSERT INTO "My ""odd"" schema"."Order" SELECT timestamptz '2024-01-01 10:00+00' + i * interval '1 minute', 'g' || i % 2, i FROM generate_series(1, 50) i;
INSERT INTO "select"."Order" VALUES ('2024-01-01 10:00+00', 'other', 1);
UPDATE "My ""odd"" schema"."Order" SET "a b" = "a b" + 1, "group" = 'x' WHERE "a b" % 5 = 0;
DELETE FROM "My ""odd"" schema"."Order" WHERE "a b" > 45;
INSERT INTO "My ""odd"" schema"."Order" VALUES (NULL, 'late', 1);
SELECT * FROM oracle.compare('"select"."From here!"');
SELECT * FROM wmstream.live(NULL::"select"."From here!") ORDER BY 2, 3 LIMIT 2;
SELECT source, row_data FROM "My ""odd"" schema"."Late";
SELECT wmstream.wait('"Both"');
SELECT "group", count(*) FROM "Both" GROUP BY 1 ORDER BY 1;
SELECT wmstream.drop_stream('"select"."From here!"', true), wmstream.drop_stream('"Both"');

-- The creator's time zone and styles are the stream's, whatever session writes or reads.
SET timezone = 'Asia/Kolkata';
SET datestyle = 'German';
SET intervalstyle = 'iso_8601';
CREATE TABLE zoned (ts timestamptz, i interval);
SELECT wmstream.create_stream('styles', 'SELECT ts, ts::text AS t, i::text AS i, ts::date AS d, extract(hour FROM ts)::int AS h FROM zoned');
SET timezone = 'America/New_York';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
INSERT INTO zoned VALUES ('2024-01-01 20:00+00', '1 day 02:00');
SELECT wmstream.wait('styles');
SET timezone = 'UTC';
TABLE styles;
