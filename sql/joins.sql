-- Joins of streams: matches at once, rows without a match when no match can come any more.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE orders (oid int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, amount int);
CREATE TABLE payments (pid int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, amount int);
CREATE TABLE refunds (rid int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text);
CREATE TABLE names (k text, name text);
INSERT INTO names VALUES ('a', 'Anna'), ('b', 'Bert');

-- definitions, run by hand they are the batch answer
CREATE TABLE tried (name text, query text);
INSERT INTO tried VALUES
('inner_range', $$SELECT o.oid, p.pid, o.k, p.ts - o.ts AS after FROM orders o JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('inner_strict', $$SELECT o.oid, p.pid FROM orders o JOIN payments p ON p.k = o.k AND p.ts > o.ts - interval '5 minutes' AND o.ts >= p.ts - interval '1 hour' AND p.amount <> o.amount WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('same_time', $$SELECT o.oid, p.pid FROM orders o JOIN payments p ON p.k = o.k AND p.ts = o.ts WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('same_window', $$SELECT o.oid, p.pid FROM orders o JOIN payments p ON p.k = o.k AND wmstream.window(p.ts, '15 minutes') = wmstream.window(o.ts, '15 minutes') WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('left_range', $$SELECT o.oid, o.k, p.pid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('left_own_condition', $$SELECT o.oid, p.pid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' AND o.amount > 5 WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('right_range', $$SELECT o.oid, p.pid FROM orders o RIGHT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('full_range', $$SELECT o.oid, p.pid, coalesce(o.k, p.k) AS k FROM orders o FULL JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts - interval '1 minute' AND o.ts + interval '30 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('semi', $$SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, '10 minutes') AND EXISTS (SELECT FROM payments p WHERE p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' AND wmstream.watermark(p.ts, '20 minutes'))$$),
('anti', $$SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, '10 minutes') AND NOT EXISTS (SELECT FROM payments p WHERE p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' AND wmstream.watermark(p.ts, '20 minutes'))$$),
('semi_in', $$SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, '10 minutes') AND o.k IN (SELECT p.k FROM payments p WHERE p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' AND wmstream.watermark(p.ts, '20 minutes'))$$),
('semi_in_rows', $$SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, '10 minutes') AND (o.k, o.amount) IN (SELECT DISTINCT k, p.amount::bigint + 1 FROM payments p WHERE p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' AND wmstream.watermark(p.ts, '20 minutes'))$$),
('semi_in_window', $$SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, '10 minutes') AND (wmstream.window(o.ts, '15 minutes'), o.k) IN (SELECT wmstream.window(p.ts, '15 minutes'), k FROM payments p WHERE wmstream.watermark(p.ts, '20 minutes'))$$),
('self_join', $$SELECT a.oid AS first, b.oid AS second FROM orders a JOIN orders b ON a.k = b.k AND b.ts > a.ts AND b.ts <= a.ts + interval '10 minutes' WHERE wmstream.watermark(a.ts, '10 minutes') AND wmstream.watermark(b.ts, '10 minutes')$$),
('with_static', $$SELECT o.oid, p.pid, n.name FROM orders o JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' LEFT JOIN names n ON n.k = o.k WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes')$$),
('three', $$SELECT o.oid, p.pid, r.rid FROM orders o JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' JOIN refunds r ON r.k = p.k AND r.ts BETWEEN p.ts AND p.ts + interval '10 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$),
-- a payment that is not there has no time, and nothing can come that matches none
('left_left', $$SELECT o.oid, p.pid, r.rid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' LEFT JOIN refunds r ON r.k = o.k AND r.ts BETWEEN p.ts AND p.ts + interval '10 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$),
('left_full', $$SELECT o.oid, p.pid, r.rid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' FULL JOIN refunds r ON r.k = o.k AND r.ts BETWEEN p.ts - interval '1 minute' AND p.ts + interval '10 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$),
('left_same', $$SELECT o.oid, p.pid, r.rid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' LEFT JOIN refunds r ON r.k = o.k AND r.ts = p.ts WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$),
('left_inner', $$SELECT o.oid, p.pid, r.rid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' JOIN refunds r ON r.k = o.k AND r.ts BETWEEN p.ts AND p.ts + interval '10 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$),
('left_anti', $$SELECT o.oid, p.pid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND NOT EXISTS (SELECT FROM refunds r WHERE r.k = o.k AND r.ts BETWEEN p.ts AND p.ts + interval '10 minutes' AND wmstream.watermark(r.ts, '5 minutes'))$$),
('unbounded', $$SELECT o.oid, p.pid FROM orders o JOIN payments p ON p.k = o.k WHERE wmstream.watermark(o.ts, NULL) AND wmstream.watermark(p.ts, NULL)$$),
('join_then_window', $$SELECT lower(w) AS hour, count(*) AS n, sum(p.amount) AS paid FROM orders o JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes', wmstream.window(o.ts, '1 hour') AS w WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') GROUP BY w$$),
('left_then_window', $$SELECT lower(w) AS hour, count(*) AS orders, count(p.pid) AS paid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes', wmstream.window(o.ts, '1 hour') AS w WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') GROUP BY w$$);
SELECT wmstream.create_stream(name, query) FROM tried ORDER BY name;

-- step by step: the match comes with the second row, whichever that is; the row without one when its time is over
INSERT INTO orders (ts, k, amount) VALUES ('2024-01-01 10:00+00', 'a', 1), ('2024-01-01 10:00+00', 'b', 9), ('2024-01-01 10:00+00', NULL, 9);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text IN ('left_range', 'left_own_condition', 'anti');
TABLE left_range;
TABLE left_own_condition;	-- fails by itself: at once
INSERT INTO payments (ts, k, amount) VALUES ('2024-01-01 10:30+00', 'a', 1), ('2024-01-01 10:30:00.000001+00', 'b', 1);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text IN ('left_range', 'left_own_condition', 'anti');
TABLE left_range;
-- W is the least of both; a payment of 10:30 may still come until it has passed that
INSERT INTO orders (ts, k, amount) VALUES ('2024-01-01 12:00+00', 'c', 1);
INSERT INTO payments (ts, k, amount) VALUES ('2024-01-01 10:50+00', 'c', 1);
SELECT wmstream.wait('left_range');
SELECT watermark FROM wmstream.stat_streams WHERE stream = 'left_range'::regclass;
TABLE left_range;
INSERT INTO payments (ts, k, amount) VALUES ('2024-01-01 10:50:00.000001+00', 'c', 1);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text IN ('left_range', 'left_own_condition', 'anti');
TABLE left_range ORDER BY oid;
TABLE anti ORDER BY oid;

-- many rows, as late as their delay and so never late: in the end all is as the batch query says
TRUNCATE orders, payments, refunds;
SELECT wmstream.wait(stream) FROM wmstream.streams;
CREATE FUNCTION clear() RETURNS void LANGUAGE plpgsql AS $$ DECLARE s regclass; BEGIN FOR s IN SELECT stream FROM wmstream.streams LOOP EXECUTE format('DELETE FROM %s', s); END LOOP; END $$;
SELECT wmstream.advance_watermark(stream, '2024-01-01 20:00+00') FROM wmstream.streams WHERE stream <> 'unbounded'::regclass;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT clear();
CREATE PROCEDURE fill(batches int, since timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN 0..batches - 1 LOOP
		IF batch % 3 <> 1 THEN
			INSERT INTO orders (ts, k, amount)
			SELECT since + batch * interval '7 minutes' - (n * 37 % 600) * interval '1 second', (ARRAY['a', 'b', 'c', NULL, 'd', 'e'])[1 + (n * 7 + batch) % 6], (n * 31 + batch) % 11 FROM generate_series(0, 6) n;
		END IF;
		IF batch % 3 <> 2 THEN
			INSERT INTO payments (ts, k, amount)
			SELECT since + batch * interval '7 minutes' - (n * 111 % 1200) * interval '1 second', (ARRAY['a', 'b', 'c', NULL, 'd', 'e', 'x'])[1 + (n * 5 + batch) % 7], (n * 29 + batch) % 11 FROM generate_series(0, 5) n;
		END IF;
		INSERT INTO refunds (ts, k) SELECT since + batch * interval '7 minutes' - (n * 51 % 300) * interval '1 second', (ARRAY['a', 'b', 'c', 'd'])[1 + (n * 3 + batch) % 4] FROM generate_series(0, 3) n;
		COMMIT;
	END LOOP;
END $$;
-- (without an upper bound, rows of before would still match)
INSERT INTO tried VALUES ('left_after', $$SELECT o.oid, p.pid, r.rid FROM orders o LEFT JOIN payments p ON p.k = o.k AND p.ts BETWEEN o.ts AND o.ts + interval '30 minutes' JOIN refunds r ON r.k = o.k AND r.ts >= p.ts AND r.ts > p.ts + interval '2 hours' WHERE wmstream.watermark(o.ts, '10 minutes') AND wmstream.watermark(p.ts, '20 minutes') AND wmstream.watermark(r.ts, '5 minutes')$$);
SELECT wmstream.create_stream(name, query) FROM tried WHERE name = 'left_after';
CALL fill(30, '2024-01-02 00:00+00');
-- inner joins: every pair at once
SELECT name, result > 0 AS some, missing, surplus FROM tried, oracle.compare(name::regclass) WHERE name ~ '^inner|same_|self|static|three' ORDER BY name;
SELECT wmstream.pause(stream) FROM wmstream.streams;
SELECT DISTINCT oracle.status(stream) FROM wmstream.streams;
SELECT wmstream.resume(stream) FROM wmstream.streams;
CALL fill(10, '2024-01-02 03:30+00');
SELECT wmstream.advance_watermark(stream, '2024-01-03 00:00+00') FROM wmstream.streams WHERE stream <> 'unbounded'::regclass;
SELECT name, result > 0 AS some, missing, surplus FROM tried, oracle.compare(name::regclass) WHERE name <> 'unbounded' ORDER BY name;
SELECT stream, late_rows, state_rows = 0 AS empty FROM wmstream.stat_streams ORDER BY stream::text;
-- of left_after one side stays; but no row without a time does
SELECT output_rows > 0 AS some, kept_rows < input_rows - 20 AS fewer FROM wmstream.stat_operators WHERE stream = 'left_after'::regclass AND operator = 1;

-- At the end of time a row has partners that leave before it, and no time of leaving itself; the same at the beginning.
CREATE TABLE a (ts timestamptz, k int);
CREATE TABLE b (ts timestamptz, k int);
CREATE TABLE ends (name text, query text);
INSERT INTO ends SELECT format('end_%s_%s', lower(type), side), format('SELECT a.ts AS a, b.ts AS b FROM a %s JOIN b ON a.k = b.k AND %s WHERE wmstream.watermark(a.ts, ''0'') AND wmstream.watermark(b.ts, ''0'')', type, range)
FROM (VALUES ('INNER'), ('FULL')) t(type), (VALUES ('after', 'b.ts BETWEEN a.ts AND a.ts + interval ''1 day'''), ('before', 'a.ts BETWEEN b.ts AND b.ts + interval ''1 day'''),
	('around', 'b.ts BETWEEN a.ts - interval ''6 hours'' AND a.ts + interval ''1 day'''), ('beyond', 'b.ts BETWEEN a.ts + interval ''6 hours'' AND a.ts + interval ''1 day''')) r(side, range);
SELECT wmstream.create_stream(name, query) FROM ends ORDER BY name;
CREATE PROCEDURE meet(first text, at timestamptz, k int) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I VALUES (%L, %s)', first, at, k);
	COMMIT;
	PERFORM wmstream.wait(name::regclass) FROM ends;
END $$;
CALL meet('a', '4714-11-24 07:00+00 BC', 1);
CALL meet('b', '4714-11-24 07:00+00 BC', 1);
CALL meet('b', '4714-11-24 13:00+00 BC', 1);
CALL meet('a', '4714-11-25 07:00+00 BC', 1);
CALL meet('a', '294276-12-30 12:00+00', 1);
CALL meet('b', '294276-12-30 12:00+00', 2);
CALL meet('b', '294276-12-30 20:00+00', 1);
CALL meet('a', '294276-12-30 20:00+00', 2);
CALL meet('b', '294276-12-30 23:00+00', 1);
CALL meet('a', '294276-12-30 23:00+00', 2);
SELECT name, result > 0 AS some, missing, surplus FROM ends, oracle.compare(name::regclass) WHERE name ~ 'inner' ORDER BY name;
-- what can match no more is alone, what still can is not there
SELECT name, surplus FROM ends, oracle.compare(name::regclass) WHERE name ~ 'full' ORDER BY name;
DELETE FROM ends WHERE name ~ 'before';
CALL meet('b', '294276-12-31 06:00+00', 1);
CALL meet('b', '294276-12-31 19:00+00', 2);
CALL meet('b', '294276-12-31 23:59:59.999999+00', 2);
SELECT name, result > 0 AS some, missing, surplus FROM ends, oracle.compare(name::regclass) WHERE name ~ 'inner' ORDER BY name;
SELECT count(wmstream.advance_watermark(name::regclass, '294276-12-31 23:30+00')) FROM ends;
SELECT name, surplus FROM ends, oracle.compare(name::regclass) WHERE name ~ 'full' ORDER BY name;

-- A whole row of a side that is NULL-extended is NULL; a row of its columns is a row of NULLs.
CREATE TABLE cause (id int, ts timestamptz, k text);
CREATE TABLE effect (id int, ts timestamptz, k text);
CREATE VIEW known AS SELECT k, name FROM names;
CREATE VIEW happened AS SELECT id, ts, k FROM effect;
CREATE FUNCTION of_known(known) RETURNS text STRICT IMMUTABLE LANGUAGE sql RETURN ($1).name || '!';
CREATE FUNCTION of_happened(happened) RETURNS text STRICT IMMUTABLE LANGUAGE sql RETURN ($1).id || '!';
CREATE TABLE wholes (name text, query text);
INSERT INTO wholes SELECT 'rows_' || name, format('SELECT c.id, %s FROM cause c LEFT JOIN %s ON e.k = c.k AND e.ts BETWEEN c.ts AND c.ts + interval ''1 hour'' WHERE wmstream.watermark(c.ts, ''0'')%s', shown, side, wm)
FROM (VALUES ('table', 'to_jsonb(e) AS e, to_jsonb((e.id, e.k)) AS two, to_jsonb(ROW(e.id)) AS one, e IS DISTINCT FROM NULL AS is_there, (e.id, e.k) IS DISTINCT FROM NULL AS both', 'effect e', ' AND wmstream.watermark(e.ts, ''0'')'),
	('subquery', 'to_jsonb(e) AS e, to_jsonb((e.id, e.k)) AS two, to_jsonb(ROW(e.ts, e.k, e.id)) AS all_three', '(SELECT ts, k, id FROM effect WHERE wmstream.watermark(ts, ''0'')) e', ''),
	('subquery_below', 'to_jsonb(e) AS e, to_jsonb((e.id, e.k)) AS two', '(SELECT ts, k, id FROM effect) e', ' AND wmstream.watermark(e.ts, ''0'')'),
	('view', 'to_jsonb(e) AS e, of_happened(e) AS f, pg_typeof(e)::oid AS t', 'happened e', ' AND wmstream.watermark(e.ts, ''0'')'),
	('within', 'to_jsonb(e) AS e, to_jsonb(n) AS n, of_known(n) AS f', '(effect e LEFT JOIN known n ON n.k = e.k)', ' AND wmstream.watermark(e.ts, ''0'')')) v(name, shown, side, wm);
INSERT INTO wholes VALUES
('rows_static', $$SELECT c.id, to_jsonb(n) AS n, to_jsonb(m) AS m, to_jsonb(s) AS s, to_jsonb((m.k, m.name)) AS two, of_known(m) AS f, c IS DISTINCT FROM NULL AS is_there FROM cause c LEFT JOIN names n ON n.k = c.k LEFT JOIN known m ON m.k = c.k LEFT JOIN (SELECT k, name FROM names) s ON s.k = c.k WHERE wmstream.watermark(c.ts, '0')$$),
('rows_counted', $$SELECT lower(w) AS hour, count(m) AS known, count((m.k, m.name)) AS all, count(s) AS s, count(c) AS causes FROM cause c LEFT JOIN known m ON m.k = c.k LEFT JOIN (SELECT k, name FROM names) s ON s.k = c.k, wmstream.window(c.ts, '1 hour') AS w WHERE wmstream.watermark(c.ts, '0') GROUP BY w$$),
('rows_joined', $$SELECT lower(w) AS hour, count(e) AS effects, count((e.id, e.k)) AS all FROM cause c LEFT JOIN (SELECT ts, k, id FROM effect WHERE wmstream.watermark(ts, '0')) e ON e.k = c.k AND e.ts BETWEEN c.ts AND c.ts + interval '1 hour', wmstream.window(c.ts, '1 hour') AS w WHERE wmstream.watermark(c.ts, '0') GROUP BY w$$);
SELECT wmstream.create_stream(name, query) FROM wholes ORDER BY name;
INSERT INTO cause SELECT n, timestamptz '2024-01-05 00:00+00' + n * interval '10 minutes', (ARRAY['a', 'b', 'c', 'd'])[1 + n % 4] FROM generate_series(1, 30) n;
INSERT INTO effect SELECT n, timestamptz '2024-01-05 00:05+00' + n * interval '20 minutes', (ARRAY['a', 'd', NULL])[1 + n % 3] FROM generate_series(1, 15) n;
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-06 00:00+00')) FROM wholes;
SELECT name, result > 0 AS some, missing, surplus FROM wholes, oracle.compare(name::regclass) ORDER BY name;

-- Cumulating windows with the same begin end one after the other: pairs of them come until the greatest has ended.
CREATE TABLE up (ts timestamptz, k int);
CREATE TABLE down (ts timestamptz, k int);
\set u '(SELECT w, lower(w) AS since, upper(w) AS until, k FROM up, wmstream.cumulate_window(ts, \'1 minute\', \'5 minutes\') AS w WHERE wmstream.watermark(ts, \'0\')) u'
\set d '(SELECT w, lower(w) AS since, upper(w) AS until, k FROM down, wmstream.cumulate_window(ts, \'1 minute\', \'5 minutes\') AS w WHERE wmstream.watermark(ts, \'0\')) d'
CREATE TABLE cumulated (name text, query text);
INSERT INTO cumulated SELECT 'cumulated_' || name, format('SELECT %s, count(*) AS n FROM %s JOIN %s ON u.k = d.k AND %s GROUP BY %s', shown, :'u', :'d', condition, grouped)
FROM (VALUES ('begins', 'u.since, u.until', 'u.since = d.since', 'u.since, u.until'),
	('begins_right', 'd.since, d.until', 'u.since = d.since', 'd.since, d.until'),
	('begins_window', 'lower(u.w) AS since, upper(u.w) AS until', 'u.since = d.since', 'u.w'),
	('ends', 'u.since, u.until', 'u.until = d.until', 'u.since, u.until'),
	('ends_twice', 'u.since, d.until', 'u.since = d.since AND u.until = d.until', 'u.since, d.until'),
	('windows', 'd.since, d.until', 'u.w = d.w', 'd.since, d.until')) v(name, shown, condition, grouped);
SELECT wmstream.create_stream(name, query) FROM cumulated ORDER BY name;
INSERT INTO up SELECT timestamptz '2024-01-01 00:00+00' + i * interval '7 s', i % 3 FROM generate_series(0, 10) i;
INSERT INTO down SELECT timestamptz '2024-01-01 00:00+00' + i * interval '11 s', i % 3 FROM generate_series(0, 8) i;
SELECT count(wmstream.wait(name::regclass)) FROM cumulated;
INSERT INTO up SELECT timestamptz '2024-01-01 00:00+00' + i * interval '7 s', i % 3 FROM generate_series(11, 100) i;
SELECT count(wmstream.wait(name::regclass)) FROM cumulated;
INSERT INTO down SELECT timestamptz '2024-01-01 00:00+00' + i * interval '11 s', i % 3 FROM generate_series(9, 65) i;
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-01 01:00+00')) FROM cumulated;
SELECT name, result > 0 AS some, missing, surplus FROM cumulated, oracle.compare(name::regclass) ORDER BY name;
-- bounds of two windows are no window
SELECT wmstream.create_stream('s', format('SELECT u.since, d.until, count(*) AS n FROM %s JOIN %s ON u.k = d.k AND u.since = d.since GROUP BY u.since, d.until', :'u', :'d'));
\echo :SQLSTATE

-- A window over a window ends long after the times that it was made from: what goes by these waits as long.
CREATE TABLE visits (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k int);
CREATE TABLE sales (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k int);
\set v '(SELECT id, k, ts, w FROM (SELECT id, k, ts, w6 FROM visits, wmstream.window(ts, \'6 hours\') AS w6 WHERE wmstream.watermark(ts, \'0\')) b, wmstream.window(w6, \'4 hours\') AS w) v'
\set s '(SELECT k, ts, w FROM sales, wmstream.window(ts, \'4 hours\') AS w WHERE wmstream.watermark(ts, \'0\')) s'
CREATE TABLE laid_over (name text, query text);
INSERT INTO laid_over VALUES
('over_first', format('SELECT f.w, f.ts, s.ts AS sold FROM (SELECT DISTINCT ON (w, k) k, w, ts FROM %s ORDER BY w, k, ts) f JOIN %s ON s.k = f.k AND s.ts BETWEEN f.ts AND f.ts + interval ''1 hour''', :'v', :'s')),
('over_ranked', format('SELECT r.w, r.ts, s.ts AS sold FROM (SELECT k, w, ts FROM (SELECT k, w, ts, row_number() OVER (PARTITION BY w ORDER BY ts) AS n FROM %s) n WHERE n <= 2) r LEFT JOIN %s ON s.k = r.k AND s.ts BETWEEN r.ts AND r.ts + interval ''1 hour''', :'v', :'s')),
('over_distinct', format('SELECT lower(m) AS since, count(*) AS n FROM (SELECT DISTINCT ON (w, id) id, w, ts FROM %s) d, wmstream.window(ts, ''10 minutes'') AS m GROUP BY m', :'v')),
('over_joined', format('SELECT lower(m) AS since, count(*) AS n FROM %s JOIN %s ON s.w = v.w AND s.k = v.k, wmstream.window(v.ts, ''10 minutes'') AS m GROUP BY m', :'v', :'s'));
SELECT wmstream.create_stream(name, query) FROM laid_over ORDER BY name;
CREATE PROCEDURE visit_and_sell(visited text, sold text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO visits (ts, k) VALUES (('2024-01-01 ' || visited || '+00')::timestamptz, 1);
	COMMIT;
	PERFORM wmstream.wait(name::regclass) FROM laid_over;
	COMMIT;
	INSERT INTO sales (ts, k) VALUES (('2024-01-01 ' || sold || '+00')::timestamptz, 1);
	COMMIT;
	PERFORM wmstream.wait(name::regclass) FROM laid_over;
	COMMIT;
END
$$;
CALL visit_and_sell('00:00', '00:30');
CALL visit_and_sell('03:00', '03:30');
CALL visit_and_sell('07:00', '07:00');
CALL visit_and_sell('01:00', '07:20');	-- its window is open
CALL visit_and_sell('09:00', '09:00');
CALL visit_and_sell('22:00', '22:00');
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-03 00:00+00')) FROM laid_over;
SELECT name, result > 0 AS some, missing, surplus FROM laid_over, oracle.compare(name::regclass) ORDER BY name;
-- two windows of one shape over different ones are two
SELECT wmstream.create_stream('s', 'SELECT DISTINCT v.w, wmstream.window(v.ts, ''4 hours'') AS w4 FROM ' || :'v');

-- Two calls of one sliding window in FROM combine each window of a row with each: what goes by one does not end with the other.
CREATE TABLE calls (ts timestamptz, k int);
CREATE TABLE answers (ts timestamptz, k int);
CREATE TABLE twins (name text, query text);
INSERT INTO twins VALUES
('twins_in_from', $$SELECT lower(c.two) AS since, count(*) AS n FROM (SELECT k, one, two FROM calls, wmstream.window(ts, '4 hours', '2 hours') AS one, wmstream.window(ts, '4 hours', '2 hours') AS two WHERE wmstream.watermark(ts, '0')) c
	JOIN (SELECT k, w FROM answers, wmstream.window(ts, '4 hours', '2 hours') AS w WHERE wmstream.watermark(ts, '0')) a ON a.w = c.one AND a.k = c.k GROUP BY c.two$$),
('twins_above', $$SELECT lower(c.two) AS since, count(*) AS n FROM (SELECT k, one, two FROM (SELECT k, ts, one FROM calls, wmstream.window(ts, '4 hours', '2 hours') AS one WHERE wmstream.watermark(ts, '0')) b, wmstream.window(ts, '4 hours', '2 hours') AS two) c
	JOIN (SELECT k, w FROM answers, wmstream.window(ts, '4 hours', '2 hours') AS w WHERE wmstream.watermark(ts, '0')) a ON a.w = c.one AND a.k = c.k GROUP BY c.two$$),
('twins_none', $$SELECT lower(c.one) AS since, count(*) AS n FROM (SELECT k, one FROM calls, wmstream.window(ts, '4 hours', '2 hours') AS one WHERE wmstream.watermark(ts, '0')) c
	JOIN (SELECT k, w FROM answers, wmstream.window(ts, '4 hours', '2 hours') AS w WHERE wmstream.watermark(ts, '0')) a ON a.w = c.one AND a.k = c.k GROUP BY c.one$$);
SELECT wmstream.create_stream(name, query) FROM twins ORDER BY name;
INSERT INTO calls VALUES ('2024-01-01 01:30+00', 1), ('2024-01-01 03:00+00', 1);
INSERT INTO answers VALUES ('2024-01-01 03:00+00', 2);
SELECT count(wmstream.wait(name::regclass)) FROM twins;
INSERT INTO calls VALUES ('2024-01-01 05:30+00', 2);
INSERT INTO answers VALUES ('2024-01-01 04:30+00', 2);
SELECT count(wmstream.wait(name::regclass)) FROM twins;
INSERT INTO answers VALUES ('2024-01-01 05:00+00', 1);
SELECT count(wmstream.wait(name::regclass)) FROM twins;
-- what goes by the window that the join goes by ends with it
SELECT wmstream.explain(stream) FROM wmstream.streams WHERE stream = 'twins_none'::regclass;
SELECT count(wmstream.advance_watermark(name::regclass, '2024-01-02 00:00+00')) FROM twins;
SELECT name, result > 0 AS some, missing, surplus FROM twins, oracle.compare(name::regclass) ORDER BY name;

-- What is refused.
\set wm 'wmstream.watermark(o.ts, ''10 minutes'') AND wmstream.watermark(p.ts, ''20 minutes'')'
SELECT wmstream.create_stream('s', 'SELECT o.oid, p.pid FROM orders o JOIN payments p ON o.k < p.k WHERE ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT o.oid, p.pid FROM orders o CROSS JOIN payments p WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT o.oid, p.pid FROM orders o LEFT JOIN payments p ON o.k = p.k WHERE ' || :'wm');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT o.oid, p.pid FROM orders o RIGHT JOIN payments p ON o.k = p.k AND p.ts < o.ts + interval ''10 s'' WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT o.oid, p.pid FROM orders o FULL JOIN payments p ON o.k = p.k AND p.ts <= o.ts + interval ''5 s'' WHERE ' || :'wm');
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, ''0'') AND NOT EXISTS (SELECT FROM payments p WHERE p.k = o.k AND wmstream.watermark(p.ts, ''0''))');
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, NULL) AND EXISTS (SELECT FROM payments p WHERE p.k = o.k AND wmstream.watermark(p.ts, NULL))');
SELECT wmstream.create_stream('s', 'SELECT o.k, count(*) AS n FROM orders o JOIN payments p ON o.k = p.k AND p.ts BETWEEN o.ts AND o.ts + interval ''5 s'' WHERE ' || :'wm' || ' GROUP BY o.k', output_mode => 'complete');
\echo :SQLSTATE
-- only a semi join or an anti join: what may be NULL instead of false, or true for another reason, is none
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, ''0'') AND o.k NOT IN (SELECT p.k FROM payments p WHERE p.ts = o.ts AND wmstream.watermark(p.ts, ''0''))');
\echo :SQLSTATE
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, ''0'') AND (o.amount > 5 OR EXISTS (SELECT FROM payments p WHERE p.k = o.k AND p.ts = o.ts AND wmstream.watermark(p.ts, ''0'')))');
SELECT wmstream.create_stream('s', 'SELECT o.oid, EXISTS (SELECT FROM payments p WHERE p.k = o.k AND p.ts = o.ts AND wmstream.watermark(p.ts, ''0'')) FROM orders o WHERE wmstream.watermark(o.ts, ''0'')');
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, ''0'') AND o.k IN (SELECT p.k FROM payments p WHERE p.ts = o.ts AND wmstream.watermark(p.ts, ''0'') LIMIT 1)');
SELECT wmstream.create_stream('s', 'SELECT o.oid FROM orders o WHERE wmstream.watermark(o.ts, ''0'') AND o.k = ALL (SELECT p.k FROM payments p WHERE p.ts = o.ts AND wmstream.watermark(p.ts, ''0''))');
SELECT wmstream.create_stream('s', 'SELECT n.name FROM names n WHERE n.k IN (SELECT p.k FROM payments p WHERE wmstream.watermark(p.ts, ''0''))');
