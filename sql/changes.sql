-- Rows of a source that are updated, deleted, truncated: on_change.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE FUNCTION why(stream regclass) RETURNS text LANGUAGE sql AS $$
  SELECT oracle.status(why.stream);
  SELECT status || ': ' || regexp_replace(reason, '[0-9A-F]+/[0-9A-F]+', 'LSN') FROM wmstream.streams s WHERE s.stream = why.stream
$$;

-- 'error': the stream fails, and says where; resume tries again; another value lets it go on.
CREATE TABLE watched (id int PRIMARY KEY, part int DEFAULT 0, ts timestamptz, v text);
SELECT wmstream.create_stream('strict', 'SELECT id, v FROM watched', on_change => 'error', late_table => 'aside');
INSERT INTO watched VALUES (1, 0, '2024-01-01 00:00+00', 'one'), (2, 0, '2024-01-01 00:00+00', 'two');
SELECT oracle.status('strict');
UPDATE watched SET v = 'changed' WHERE id = 2;
INSERT INTO watched VALUES (3, 0, '2024-01-01 00:00+00', 'three');
SELECT why('strict');
SELECT wmstream.resume('strict');
SELECT why('strict');
SELECT wmstream.alter_stream('strict', 'on_change', 'ignore');
SELECT wmstream.resume('strict');
SELECT oracle.status('strict');
SELECT wmstream.alter_stream('strict', 'on_change', 'error');
DELETE FROM watched WHERE id = 1;
SELECT why('strict');
SELECT wmstream.alter_stream('strict', 'on_error', 'skip');
SELECT wmstream.resume('strict');
SELECT oracle.status('strict');
SELECT reason, error, row_data FROM aside;
SELECT wmstream.alter_stream('strict', 'on_error', 'stop');
-- the old row in whole; without a key; a row that keys do not tell
ALTER TABLE watched REPLICA IDENTITY FULL;
UPDATE watched SET id = 30, v = repeat('long ''text''', 100) WHERE id = 3;
SELECT why('strict');
SELECT wmstream.alter_stream('strict', 'on_change', NULL);
SELECT wmstream.resume('strict');
SELECT oracle.status('strict');
ALTER TABLE watched DROP CONSTRAINT watched_pkey;
SELECT wmstream.alter_stream('strict', 'on_change', 'error');
DELETE FROM watched WHERE id = 30;
SELECT why('strict');
SELECT wmstream.alter_stream('strict', 'on_change', 'ignore');
SELECT wmstream.resume('strict');
SELECT oracle.status('strict');
SELECT wmstream.alter_stream('strict', 'on_change', 'error');
TRUNCATE watched;
SELECT why('strict');
SELECT count(*) FROM strict;
SELECT wmstream.drop_stream('strict');

-- 'retract': open windows are what the query says of the table as it is now.
CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, region text, amount numeric(10,2), weight float8, n int, big bigint, note text, took interval, price money);
SELECT wmstream.create_stream('refused', $$
  SELECT lower(w) AS hour, count(*) AS n FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w
$$, on_change => 'retract');
\echo :SQLSTATE
ALTER TABLE orders REPLICA IDENTITY FULL;
\set query 'SELECT lower(w) AS hour, region, count(*) AS n, count(note) AS notes, sum(amount) AS amount, avg(amount) AS mean, sum(n) AS ns, avg(n) AS an, sum(big) AS bigs, variance(n) AS vn, stddev(big) AS sb, sum(took) AS took, avg(took) AS at, sum(price) AS price, count(*) FILTER (WHERE n > 5) AS few, sum(n) FILTER (WHERE n % 2 = 0) AS even FROM orders, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''100 minutes'') AND ts IS NOT NULL AND n IS DISTINCT FROM 99 GROUP BY w, region'
\set kept 'SELECT w, region, count(*) AS n, round(sum(weight)::numeric, 6) AS weight, min(n) AS lo, max(ts) AS hi, array_agg(note ORDER BY note, id) AS notes, count(DISTINCT n) AS ns, percentile_disc(0.5) WITHIN GROUP (ORDER BY n) AS median, bool_and(n > 0) AS pos, sum(amount * n) AS total FROM orders, wmstream.window(ts, ''2 hours'', ''1 hour'') AS w WHERE wmstream.watermark(ts, ''100 minutes'') AND ts IS NOT NULL GROUP BY w, region'
SELECT wmstream.create_stream('appended', :'query', on_change => 'retract', late_table => 'late');
SELECT wmstream.create_stream('updated', :'query', on_change => 'retract', output_mode => 'update');
SELECT wmstream.create_stream('completed', :'query', on_change => 'retract', output_mode => 'complete');
SELECT wmstream.create_stream('kept_appended', :'kept', on_change => 'retract');
SELECT wmstream.create_stream('kept_updated', :'kept', on_change => 'retract', output_mode => 'update');
SELECT wmstream.create_stream('kept_completed', :'kept', on_change => 'retract', output_mode => 'complete');
SELECT wmstream.create_stream('all_rows', 'SELECT count(*) AS n, sum(n) AS s, max(note) AS last FROM orders', on_change => 'retract', output_mode => 'complete');
SELECT wmstream.create_stream('having_many', 'SELECT region, count(*) AS n FROM orders GROUP BY region HAVING count(*) > 1', on_change => 'retract', output_mode => 'update');
SELECT wmstream.create_stream('refined', :'query', on_change => 'retract', allowed_lateness => '3 hours');
SELECT wmstream.create_stream('ranked', $$
  SELECT * FROM (SELECT w, id, n, rank() OVER (PARTITION BY w ORDER BY n DESC, id) AS r FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '100 minutes') AND ts IS NOT NULL) x WHERE r <= 2
$$, on_change => 'retract');
SELECT wmstream.create_stream('by_the_minute', :'query', on_change => 'retract', output_mode => 'update', trigger_interval => '1 hour');
SELECT e FROM wmstream.explain('appended'::regclass) e WHERE e LIKE '%inverse%' OR e LIKE '%taken%';
SELECT e FROM wmstream.explain('kept_appended'::regclass) e WHERE e LIKE '%kept%';

CREATE FUNCTION all_same() RETURNS TABLE (stream text, missing bigint, surplus bigint, live_missing bigint, live_surplus bigint) LANGUAGE sql AS $$
  SELECT s, c.missing, c.surplus, c.live_missing, c.live_surplus FROM unnest(ARRAY['updated', 'completed', 'kept_updated', 'kept_completed', 'all_rows', 'having_many']) s, oracle.compare(s::regclass) c
  UNION ALL SELECT s, c.missing, c.surplus, c.live_missing, c.live_surplus FROM unnest(ARRAY['appended', 'refined']) s, oracle.compare(s::regclass, 'hour + interval ''1 hour'' <= $1') c
  UNION ALL SELECT s, c.missing, c.surplus, c.live_missing, c.live_surplus FROM unnest(ARRAY['kept_appended', 'ranked']) s, oracle.compare(s::regclass, 'upper(w) <= $1') c
$$;
INSERT INTO orders (ts, region, amount, weight, n, big, note, took, price)
SELECT timestamptz '2024-03-01 10:00+00' + i * interval '1 minute', (ARRAY['east', 'west', NULL])[1 + i % 3], i * 1.25, i / 7.0, i % 11, i * 10000000000, CASE WHEN i % 4 > 0 THEN 'note ' || i END, i * interval '1 month 1 day 1 second', i
FROM   generate_series(1, 110) i;
SELECT * FROM all_same();
-- values, keys, filters, what WHERE says; NULLs; nothing at all
UPDATE orders SET amount = amount + 1, n = n + 1, note = NULL, weight = -weight WHERE id > 60 AND id % 5 = 0;
UPDATE orders SET region = 'north' WHERE id IN (61, 66, 71);
UPDATE orders SET n = 99 WHERE id IN (62, 63);
UPDATE orders SET n = 1 WHERE id = 62;
UPDATE orders SET n = NULL, amount = NULL, big = NULL, took = NULL, price = NULL WHERE region = 'west' AND id > 60;
UPDATE orders SET n = n WHERE id > 60;
SELECT * FROM all_same();
-- to another window, and back; to an event time of NULL, and back
UPDATE orders SET ts = ts + interval '1 hour' WHERE id > 80 AND id < 90;
SELECT wmstream.wait('appended');
UPDATE orders SET ts = NULL WHERE id = 70;
SELECT * FROM all_same();
UPDATE orders SET ts = '2024-03-01 11:45+00' WHERE id IN (70, 81, 82);
SELECT * FROM all_same();
-- rows that go; a group without rows disappears
DELETE FROM orders WHERE id % 2 = 0 AND id > 60;
DELETE FROM orders WHERE region = 'north';
SELECT * FROM all_same();
SELECT count(*) FROM updated WHERE region = 'north';
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 12:50+00', 'north', 3), ('2024-03-01 12:51+00', 'south', 3);
DELETE FROM orders WHERE region = 'south';
BEGIN;
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 12:52+00', 'south', 4);
SAVEPOINT a;
DELETE FROM orders WHERE region = 'north';
ROLLBACK TO a;
UPDATE orders SET n = 5 WHERE region = 'south';
DELETE FROM orders WHERE region = 'south';
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 12:53+00', 'south', 6);
COMMIT;
SELECT * FROM all_same();
-- one row many times: what cancels is cleared away
DO $$ BEGIN FOR i IN 1..500 LOOP UPDATE orders SET n = i WHERE region = 'south'; END LOOP; END $$;
SELECT * FROM all_same();
SELECT sum(kept_rows) < 300 AS few FROM wmstream.stat_operators WHERE stream = 'kept_updated'::regclass;
-- behind W: late, and nothing changes; one change is one late row
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'appended'::regclass;
BEGIN;
UPDATE orders SET amount = 1000 WHERE id = 20;
DELETE FROM orders WHERE id = 21;
UPDATE orders SET ts = '2024-03-01 12:54+00' WHERE id = 22;
SELECT wmstream.wait('appended');
ROLLBACK;
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'appended'::regclass;
CREATE TABLE before AS TABLE orders;
UPDATE orders SET amount = 1000 WHERE id = 20;
DELETE FROM orders WHERE id = 21;
UPDATE orders SET ts = '2024-03-01 12:54+00' WHERE id = 22;
SELECT wmstream.wait('appended');
SELECT late_rows, changed_rows > 500 AS changed FROM wmstream.stat_streams WHERE stream = 'appended'::regclass;
SELECT row_data ->> 'id' AS id, row_data ->> 'amount' AS amount, watermark FROM late ORDER BY 1;
-- what the stream does not read is nobody's change
ALTER TABLE orders ADD COLUMN unread text;
UPDATE orders SET unread = 'x';
SELECT wmstream.wait('appended');
SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'appended'::regclass;
-- within the allowed lateness closed windows change in place
SELECT * FROM oracle.compare('refined', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM oracle.compare('completed');
DELETE FROM orders WHERE ts < '2024-03-01 11:00+00' AND region = 'east';
SELECT * FROM oracle.compare('refined', 'hour + interval ''1 hour'' <= $1');
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 10:20+00', 'east', 3);
SELECT * FROM oracle.compare('refined', 'hour + interval ''1 hour'' <= $1');
DELETE FROM orders WHERE ts < '2024-03-01 11:00+00' AND region = 'east';
SELECT * FROM oracle.compare('refined', 'hour + interval ''1 hour'' <= $1');
-- a firing that comes later: what is gone is gone in live() at once
SELECT live_missing, live_surplus FROM oracle.compare('by_the_minute');
SELECT wmstream.alter_stream('by_the_minute', 'trigger_interval', NULL);
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 12:54+00', 'last', 3);
SELECT missing, surplus, live_missing, live_surplus FROM oracle.compare('by_the_minute');
-- restarts in between
SELECT wmstream.pause('kept_updated'), wmstream.pause('updated'), wmstream.pause('refined');
UPDATE orders SET n = n + 1, ts = ts + interval '1 minute' WHERE id % 3 = 0 AND ts > '2024-03-01 12:00+00';
SELECT wmstream.resume('kept_updated'), wmstream.resume('updated'), wmstream.resume('refined');
DELETE FROM orders WHERE id % 3 = 1 AND ts > '2024-03-01 12:00+00';
SELECT * FROM oracle.compare('completed');
SELECT * FROM oracle.compare('kept_completed');
SELECT * FROM oracle.compare('refined', 'hour + interval ''1 hour'' <= $1');
-- TRUNCATE takes back all that is not finished
TRUNCATE orders;
INSERT INTO orders (ts, region, n, note) VALUES ('2024-03-01 12:55+00', 'anew', 1, 'x');
SELECT * FROM oracle.compare('completed');
SELECT * FROM oracle.compare('kept_completed');
SELECT * FROM oracle.compare('all_rows');
SELECT * FROM oracle.compare('having_many');
SELECT wmstream.wait('appended'), wmstream.wait('updated'), wmstream.wait('refined');
SELECT count(*) FROM wmstream.open_windows(NULL::appended);
SELECT hour, region, n FROM updated WHERE hour >= '2024-03-01 12:00+00';
SELECT hour, region, n FROM refined WHERE hour >= '2024-03-01 10:00+00';
-- one transaction: rows of the same groups before it, after it, and between two
BEGIN;
INSERT INTO orders (ts, region, n, note) VALUES ('2024-03-01 12:55+00', 'anew', 2, 'x'), ('2024-03-01 12:55+00', 'again', 1, 'x');
TRUNCATE orders;
INSERT INTO orders (ts, region, n, note) VALUES ('2024-03-01 12:55+00', 'anew', 4, 'x'), ('2024-03-01 12:55+00', 'again', 5, 'x');
TRUNCATE orders;
INSERT INTO orders (ts, region, n, note) VALUES ('2024-03-01 12:55+00', 'anew', 7, 'x'), ('2024-03-01 12:55+00', 'again', 8, 'x');
COMMIT;
SELECT * FROM oracle.compare('completed');
SELECT * FROM oracle.compare('kept_completed');
SELECT * FROM oracle.compare('all_rows');
SELECT wmstream.wait('appended'), wmstream.wait('updated');
SELECT hour, region, n FROM updated WHERE hour >= '2024-03-01 12:00+00';
SELECT count(*) FROM wmstream.open_windows(NULL::appended);
DELETE FROM orders;
SELECT * FROM oracle.compare('completed');
SELECT * FROM oracle.compare('all_rows');
TABLE all_rows;

-- TRUNCATE between rows of one transaction, and of one group: those before it go, those after it count.
CREATE TABLE emptied (ts timestamptz NOT NULL, g int, n int);
ALTER TABLE emptied REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('after_it', $$
  SELECT lower(w) AS hour, g, count(*) AS n, sum(n) AS total FROM emptied, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, g$$,
  on_change => 'retract');
SELECT wmstream.create_stream('after_it_slid', $$
  SELECT lower(w) AS hour, g, count(*) AS n, array_agg(n) AS all_n FROM emptied, wmstream.window(ts, '1 hour', '20 minutes') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, g$$,
  on_change => 'retract');
BEGIN;
INSERT INTO emptied VALUES ('2024-01-01 00:01+00', 1, 1), ('2024-01-01 00:02+00', 2, 2);
TRUNCATE emptied;
INSERT INTO emptied VALUES ('2024-01-01 00:03+00', 1, 4), ('2024-01-01 00:04+00', 3, 8);
TRUNCATE emptied;
INSERT INTO emptied VALUES ('2024-01-01 00:05+00', 1, 16), ('2024-01-01 00:06+00', 3, 32);
COMMIT;
SELECT * FROM oracle.compare('after_it', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM oracle.compare('after_it_slid', 'hour + interval ''1 hour'' <= $1');
BEGIN;
INSERT INTO emptied VALUES ('2024-01-01 00:07+00', 1, 64);
TRUNCATE emptied;
INSERT INTO emptied VALUES ('2024-01-01 00:08+00', 1, 128), ('2024-01-01 00:08+00', 2, 256);
COMMIT;
INSERT INTO emptied VALUES ('2024-01-01 03:00+00', 1, 512);
SELECT * FROM oracle.compare('after_it', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM oracle.compare('after_it_slid', 'hour + interval ''1 hour'' <= $1');
SELECT * FROM after_it ORDER BY hour, g;

-- Options that cannot be had, and what cannot be taken back.
SELECT wmstream.alter_stream('appended', 'on_change', 'ignore');
\echo :SQLSTATE
SELECT wmstream.alter_stream('appended', 'max_future', '1 hour');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT id, n FROM orders', on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT DISTINCT n FROM orders', on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT a.id FROM orders a JOIN orders b ON a.id = b.n AND a.ts = b.ts WHERE wmstream.watermark(a.ts, '0') AND wmstream.watermark(b.ts, '0')$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT region, w, count(*) FROM orders, wmstream.session_window(ts, '1 hour') w WHERE wmstream.watermark(ts, '0') GROUP BY region, w$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT w, count(*) FROM orders, wmstream.window(now(), '1 hour') w GROUP BY w$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT w, count(*) FROM orders JOIN before USING (id), wmstream.window(orders.ts, '1 hour') w WHERE wmstream.watermark(orders.ts, '0') GROUP BY w$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT w, count(*) FROM (SELECT orders.ts FROM orders JOIN before USING (id)) o, wmstream.window(ts, '1 hour') w WHERE wmstream.watermark(ts, '0') GROUP BY w$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT w, count(*) FROM orders, wmstream.window(ts, '1 hour') w WHERE wmstream.watermark(ts, '0') AND ts > now() - interval '1 day' GROUP BY w$$, on_change => 'retract');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', $$SELECT w, count(*) FROM orders, wmstream.window(ts, '1 hour') w WHERE wmstream.watermark(ts, '0') GROUP BY w$$, on_change => 'retract', max_future => '1 hour');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT n FROM orders', on_change => 'forget');
\echo :SQLSTATE

-- The replica identity becomes another: failed, with the reason; nothing is lost as long as no row was changed meanwhile.
ALTER TABLE orders REPLICA IDENTITY DEFAULT;
INSERT INTO orders (ts, region, n) VALUES ('2024-03-01 12:56+00', 'identity', 1);
SELECT why('all_rows');
ALTER TABLE orders REPLICA IDENTITY FULL;
SELECT wmstream.resume('all_rows');
SELECT * FROM oracle.compare('all_rows');
SELECT wmstream.pause('all_rows');
ALTER TABLE orders REPLICA IDENTITY DEFAULT;
UPDATE orders SET n = 2;
ALTER TABLE orders REPLICA IDENTITY FULL;
SELECT wmstream.resume('all_rows');
SELECT why('all_rows');
SELECT wmstream.resync('all_rows');
SELECT * FROM oracle.compare('all_rows');

-- Values out of line that an update leaves alone; partitions in another column order; a row that moves between them.
CREATE TABLE parts (id int, ts timestamptz, place text, long text, v int) PARTITION BY LIST (place);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
CREATE TABLE parts_b (v int, gone int, long text, id int, place text, ts timestamptz);
ALTER TABLE parts_b DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
ALTER TABLE parts_a ALTER long SET STORAGE EXTERNAL;
ALTER TABLE parts_a REPLICA IDENTITY FULL;
ALTER TABLE parts_b REPLICA IDENTITY FULL;
\set query 'SELECT lower(w) AS hour, place, count(*) AS n, sum(v) AS v, max(md5(long)) AS long, string_agg(left(long, 10), '','' ORDER BY long, id) AS texts FROM parts, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''1 hour'') GROUP BY w, place'
SELECT wmstream.create_stream('of_parts', :'query', on_change => 'retract', output_mode => 'complete');
\echo :SQLSTATE
ALTER TABLE parts_rest REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('of_parts', :'query', on_change => 'retract', output_mode => 'complete');
INSERT INTO parts SELECT i, timestamptz '2024-01-01 00:00+00' + i * interval '1 minute', (ARRAY['a', 'b', 'c'])[1 + i % 3], repeat(md5(i::text), 500), i FROM generate_series(1, 90) i;
UPDATE parts SET v = v + 1 WHERE id % 2 = 0;
SELECT * FROM oracle.compare('of_parts');
UPDATE parts SET place = (ARRAY['b', 'c', 'a'])[1 + id % 3] WHERE id > 30 AND id < 50;
UPDATE parts SET long = 'short' WHERE id % 10 = 0;
DELETE FROM parts WHERE id % 7 = 0;
SELECT * FROM oracle.compare('of_parts');
SELECT wmstream.alter_stream('of_parts', 'on_error', 'stop');
TRUNCATE parts;
INSERT INTO parts VALUES (1, '2024-01-01 05:00+00', 'b', 'x', 1), (2, '2024-01-01 05:00+00', 'a', 'x', 1);
SELECT * FROM oracle.compare('of_parts');
TRUNCATE parts_b;
SELECT why('of_parts');
SELECT wmstream.resync('of_parts');
SELECT * FROM oracle.compare('of_parts');
ALTER TABLE parts_rest REPLICA IDENTITY NOTHING;
INSERT INTO parts VALUES (3, '2024-01-01 05:00+00', 'c', 'x', 1);
SELECT why('of_parts');
ALTER TABLE parts_rest REPLICA IDENTITY FULL;
SELECT wmstream.resume('of_parts');
SELECT * FROM oracle.compare('of_parts');
SELECT wmstream.drop_stream('of_parts', true);

-- Several sources: rows of each are taken back, and none can be truncated alone.
CREATE TABLE left_in (ts timestamptz, k int);
CREATE TABLE right_in (ts timestamptz, k int);
ALTER TABLE left_in REPLICA IDENTITY FULL;
ALTER TABLE right_in REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('both', $$
  SELECT lower(w) AS hour, k, count(*) AS n, sum(m) AS m, min(m) AS lo FROM (SELECT ts, k, 1 AS m FROM left_in WHERE wmstream.watermark(ts, '1 hour') UNION ALL SELECT ts, k, 2 FROM right_in WHERE wmstream.watermark(ts, '1 hour')) u, wmstream.window(ts, '1 hour') w GROUP BY w, k
$$, on_change => 'retract', output_mode => 'complete');
INSERT INTO left_in SELECT timestamptz '2024-01-01 00:00+00' + i * interval '1 minute', i % 4 FROM generate_series(1, 100) i;
INSERT INTO right_in SELECT timestamptz '2024-01-01 00:00+00' + i * interval '1 minute', i % 4 FROM generate_series(1, 100) i;
DELETE FROM left_in WHERE k = 1;
UPDATE right_in SET k = 2 WHERE k = 3 AND ts < '2024-01-01 00:30+00';
SELECT * FROM oracle.compare('both');
TRUNCATE left_in;
SELECT why('both');

-- Rows that were there before: from now on they are unknown, from the beginning they can be taken back too.
CREATE TABLE older (id int, ts timestamptz, k int, v int);
ALTER TABLE older REPLICA IDENTITY FULL;
INSERT INTO older SELECT i, timestamptz '2024-01-01 00:00+00' + i * interval '1 minute', i % 3, i FROM generate_series(1, 300) i;
\set query 'SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS v, max(v) AS hi FROM older, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 hours'') GROUP BY w, k'
SELECT wmstream.create_stream('from_now', :'query', on_change => 'retract', output_mode => 'update');
SELECT wmstream.drop_stream('from_now', true);
SELECT wmstream.create_stream('from_beginning', :'query', on_change => 'retract', output_mode => 'update', start_from => 'beginning');
UPDATE older SET v = v + 1, k = 2 WHERE id % 7 = 0;
DELETE FROM older WHERE id % 5 = 0;
SELECT * FROM oracle.compare('from_beginning');
UPDATE older SET ts = ts + interval '1 hour' WHERE k = 1;
DELETE FROM older WHERE k = 0;
INSERT INTO older VALUES (1000, '2024-01-01 05:30+00', 1, 1);
SELECT * FROM oracle.compare('from_beginning');

-- Very many rows that are equal, of which very many go: what is left is found as fast as among different ones.
CREATE TABLE alike (id int, ts timestamptz, v int);
ALTER TABLE alike REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('of_alike', 'SELECT lower(w) AS hour, max(v) AS hi, array_agg(v) FILTER (WHERE v > 1) AS others FROM alike, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w',
	on_change => 'retract', output_mode => 'update');
INSERT INTO alike SELECT i, '2024-01-01 00:00+00', 1 FROM generate_series(1, 100000) i;
INSERT INTO alike VALUES (0, '2024-01-01 00:00+00', 2), (0, '2024-01-01 00:00+00', 0), (0, '2024-01-01 00:00+00', 3), (0, '2024-01-01 00:00+00', 3);
SELECT wmstream.wait('of_alike');
DELETE FROM alike WHERE id BETWEEN 1 AND 45000;
DELETE FROM alike WHERE ctid = (SELECT ctid FROM alike WHERE v = 3 LIMIT 1);
SELECT wmstream.wait('of_alike', '15 s');
SELECT * FROM oracle.compare('of_alike');
DELETE FROM alike WHERE v = 3;
SELECT * FROM oracle.compare('of_alike');
