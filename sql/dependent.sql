-- GROUP BY a primary key: the other columns of its table may be shown, and are no keys. A row of it may change while a group is open: the
-- group stays one, and shows the row that came to it last.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE COLLATION case_blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN rating AS int CHECK (value BETWEEN 1 AND 5);
CREATE TABLE orders (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, ts timestamptz NOT NULL, customer int);
CREATE TABLE customers (id int PRIMARY KEY, name text COLLATE case_blind, code varchar(7) NOT NULL, rate rating, at point, doc json, nick text[], note text);
ALTER TABLE customers ALTER note SET STORAGE EXTERNAL;
INSERT INTO customers SELECT i, nullif('Name ' || i, 'Name 3'), 'code ' || i, 1 + i % 5, point(i, i), json_build_object('i', i), ARRAY['nick', i::text], repeat('long' || i, 1000) FROM generate_series(1, 6) i;
\set joined 'orders AS o LEFT JOIN customers AS c ON c.id = o.customer'
\set shown 'c.name, c.code, c.rate, c.at, c.doc, c.nick, c.note, c.name || ''!'' AS loud'
\set compared 'hour, id, n, name::text COLLATE "C", code, rate, at::text, doc::text, nick, note, loud::text COLLATE "C"'
\set query 'SELECT lower(w) AS hour, c.id, ' :shown ', count(*) AS n, c.nick[1] = max(c.nick[1]) AS same FROM ' :joined ', wmstream.window(o.ts, ''1 hour'') AS w WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY w, c.id'
\set query_kept 'SELECT lower(w) AS hour, c.id, ' :shown ', count(DISTINCT o.id) AS n FROM ' :joined ', wmstream.window(o.ts, ''1 hour'') AS w WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY w, c.id'
\set query_sliding 'SELECT lower(w) AS hour, c.id, ' :shown ', count(*) AS n FROM ' :joined ', wmstream.window(o.ts, ''1 hour'', ''30 minutes'') AS w WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY w, c.id'
\set query_ever 'SELECT c.id, ' :shown ', count(*) AS n FROM ' :joined ' WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY c.id'
\set query_ordered 'SELECT lower(w) AS hour, c.id, ' :shown ', count(*) AS n FROM ' :joined ', wmstream.window(o.ts, ''1 hour'') AS w WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY w, c.id ORDER BY c.code, w LIMIT 1000'
SELECT wmstream.create_stream('appended', :'query');
SELECT wmstream.create_stream('updated', :'query', output_mode => 'update');
SELECT wmstream.create_stream('rarely', :'query', output_mode => 'update', trigger_interval => '1 day');
SELECT wmstream.create_stream('refined', :'query', allowed_lateness => '1 hour');
SELECT wmstream.create_stream('kept', :'query_kept', output_mode => 'update');
SELECT wmstream.create_stream('sliding', :'query_sliding');
SELECT wmstream.create_stream('sliding_updated', :'query_sliding', output_mode => 'update');
SELECT wmstream.create_stream('ever', :'query_ever', output_mode => 'update');
SELECT wmstream.create_stream('completed', :'query_ordered', output_mode => 'complete');
SELECT wmstream.explain('appended'::regclass);
\d appended
SELECT wmstream.create_stream('having_it', $$
  SELECT lower(w) AS hour, c.id, lower(c.name) AS name, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w, c.id HAVING c.name LIKE 'Name%' COLLATE "C" AND count(*) > 0
$$, output_mode => 'update');
SELECT wmstream.create_stream('ranked', $$
  SELECT lower(w) AS hour, c.id, c.name, row_number() OVER (PARTITION BY w ORDER BY c.code DESC, c.id) AS place,
         (SELECT count(*) FROM customers x WHERE x.code >= c.code) AS upwards, count(*) AS n
  FROM   orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w, c.id
$$);
-- What is grouped by stays a key.
SELECT wmstream.create_stream('grouped', $$
  SELECT lower(w) AS hour, c.id, c.code, c.rate, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
  WHERE  wmstream.watermark(o.ts, '10 minutes') GROUP BY w, c.id, c.code
$$);
\d grouped
-- A level above sees them as ordinary columns.
SELECT wmstream.create_stream('by_code', $$
  SELECT lower(d) AS day, code, sum(n) AS n, count(DISTINCT id) AS ids
  FROM   (SELECT w, c.id, c.code, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, '1 hour') AS w
          WHERE wmstream.watermark(o.ts, '10 minutes') GROUP BY w, c.id) h, wmstream.window(w, '1 day') AS d
  GROUP  BY d, code
$$);
\d by_code
SELECT wmstream.create_stream('visits', $$
  SELECT lower(s) AS since, upper(s) AS until, c.id, c.name, c.code, count(*) AS n
  FROM   orders o JOIN customers c ON c.id = o.customer, wmstream.session_window(o.ts, '5 minutes') AS s
  WHERE  wmstream.watermark(o.ts, '30 minutes') GROUP BY s, c.id
$$);

-- wait() waits for the firing, so what the stream that fires rarely has had is seen by the count of it.
CREATE PROCEDURE all_had(of regclass) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM wmstream.wait(stream) FROM wmstream.streams WHERE stream <> of;
	FOR i IN 1..3000 LOOP
		EXIT WHEN (SELECT input_rows FROM wmstream.stat_streams WHERE stream = of) = (SELECT count(*) FROM orders);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CREATE FUNCTION all_same(columns text) RETURNS TABLE (stream text, missing bigint, surplus bigint, live_missing bigint, live_surplus bigint) LANGUAGE sql AS $$
	SELECT s, c.missing, c.surplus, c.live_missing, c.live_surplus FROM unnest(ARRAY['completed', 'kept', 'sliding_updated', 'updated']) s, oracle.compare(s::regclass, 'true', columns) c
	UNION ALL SELECT s, c.missing, c.surplus, c.live_missing, c.live_surplus FROM unnest(ARRAY['appended', 'refined', 'sliding']) s, oracle.compare(s::regclass, 'hour + interval ''1 hour'' <= $1', columns) c
	ORDER BY 1 $$;

-- Nothing has changed: the batch query.
INSERT INTO orders (ts, customer) SELECT timestamptz '2024-01-01 10:00+00' + i * interval '1 minute', i FROM generate_series(1, 6) i;
INSERT INTO orders (ts, customer) VALUES ('2024-01-01 10:10+00', 99), ('2024-01-01 10:11+00', NULL);
CALL all_had('rarely');
SELECT * FROM all_same(:'compared');
SELECT * FROM oracle.compare('ever', 'true', replace(:'compared', 'hour, ', ''));
SELECT * FROM oracle.compare('having_it', 'true', 'hour, id, name::text COLLATE "C", n');

-- Rows of customers change, to other values, to NULL and from NULL. The group is the same; those of 4 and 6 get no more rows.
UPDATE customers SET name = CASE id WHEN 2 THEN NULL ELSE 'New ' || id END, code = 'new ' || id, rate = 5, at = point(0, id), doc = '{}', nick = nullif(nick, ARRAY['nick', '5']), note = repeat('other' || id, 1000) WHERE id <> 4;
INSERT INTO orders (ts, customer) SELECT timestamptz '2024-01-01 10:15+00' + nr * interval '1 minute', i FROM unnest('{1,2,3,5,99,1}'::int[]) WITH ORDINALITY v(i, nr);
CALL all_had('rarely');
SELECT * FROM all_same('hour, id, n');
SELECT * FROM oracle.compare('ever', 'true', 'id, n');
SELECT id, name, code, rate, at, doc, nick, left(note, 6) AS note, loud, n FROM updated ORDER BY id;
SELECT id, name, code, n FROM completed ORDER BY id;
SELECT * FROM oracle.differences('SELECT ' || :'compared' || ' FROM updated', 'SELECT ' || :'compared' || ' FROM wmstream.live(NULL::appended)');
SELECT * FROM oracle.differences('SELECT ' || :'compared' || ' FROM updated', 'SELECT ' || :'compared' || ' FROM kept');
SELECT * FROM oracle.differences('SELECT ' || :'compared' || ' FROM wmstream.live(NULL::sliding)', 'SELECT ' || :'compared' || ' FROM sliding_updated');
TABLE having_it ORDER BY hour, id;

-- States come back from the log.
SELECT wmstream.pause(stream) FROM wmstream.streams WHERE stream <> 'rarely'::regclass;
SELECT count(*) FROM wmstream.streams WHERE stream <> 'rarely'::regclass AND oracle.status(stream) = 'paused';
SELECT wmstream.resume(stream) FROM wmstream.streams WHERE stream <> 'rarely'::regclass;

-- With a row for each, the batch query again; two versions in one firing; then all windows close.
INSERT INTO orders (ts, customer) SELECT timestamptz '2024-01-01 10:20+00' + i * interval '1 minute', i FROM generate_series(1, 6) i;
CALL all_had('rarely');
SELECT wmstream.alter_stream('rarely', 'trigger_interval', '0');
INSERT INTO orders (ts, customer) VALUES ('2024-01-01 10:30+00', 99);
SELECT * FROM all_same('hour, id, n');
SELECT * FROM oracle.compare('ever', 'true', replace(:'compared', 'hour, ', ''));
SELECT * FROM oracle.compare('rarely', 'true', :'compared');
SELECT * FROM oracle.compare('updated', 'true', :'compared');
SELECT * FROM oracle.compare('having_it', 'true', 'hour, id, name::text COLLATE "C", n');
INSERT INTO orders (ts, customer) VALUES ('2024-01-02 10:00+00', 99);
SELECT * FROM all_same(:'compared');
SELECT * FROM oracle.compare('ranked', $$hour + interval '1 hour' <= $1$$);
-- Within the allowed lateness.
UPDATE customers SET name = 'Newest' WHERE id = 1;
INSERT INTO orders (ts, customer) VALUES ('2024-01-02 09:20+00', 1), ('2024-01-02 09:20+00', 2);
SELECT wmstream.wait('refined');
UPDATE customers SET name = 'Newer' WHERE id IN (1, 2);
INSERT INTO orders (ts, customer) VALUES ('2024-01-02 09:30+00', 1), ('2024-01-02 11:05+00', 99);
SELECT * FROM oracle.compare('refined', $$hour + interval '1 hour' <= $1$$, 'hour, id, n');
SELECT hour, id, name, n FROM refined WHERE hour = '2024-01-02 09:00+00' ORDER BY id;
-- A key that is one by itself splits.
TABLE grouped ORDER BY hour, id, code;
INSERT INTO orders (ts, customer) VALUES ('2024-01-04 10:00+00', 99);
SELECT wmstream.wait('by_code');
TABLE by_code ORDER BY day, code;
SELECT count(*) FROM wmstream.streams WHERE status <> 'running';

-- Sessions that merge.
SELECT since, until, id, name, code, n FROM visits ORDER BY since, id;
INSERT INTO orders (ts, customer) VALUES ('2024-01-04 10:00+00', 4), ('2024-01-04 10:08+00', 4), ('2024-01-04 10:20+00', 4), ('2024-01-04 10:00+00', 5), ('2024-01-04 10:08+00', 5);
SELECT wmstream.wait('visits');
UPDATE customers SET name = 'Merged ' || id, code = 'm' || id WHERE id IN (4, 5);
INSERT INTO orders (ts, customer) VALUES ('2024-01-04 10:04+00', 4), ('2024-01-04 10:07+00', 5);
SELECT wmstream.wait('visits');
INSERT INTO orders (ts, customer) VALUES ('2024-01-05 10:00+00', 1);
SELECT wmstream.wait('visits');
SELECT since, until, id, name, code, n FROM visits WHERE since >= '2024-01-04' ORDER BY since, id;

-- The source's own primary key: a row that comes again after it was deleted belongs to the same group.
CREATE TABLE keyed (id int PRIMARY KEY, name text, ts timestamptz NOT NULL);
SELECT wmstream.create_stream('by_key', $$
  SELECT lower(w) AS hour, id, name, ts, count(*) AS n FROM keyed, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, keyed.id
$$);
SELECT wmstream.create_stream('by_key_updated', $$
  SELECT lower(w) AS hour, id, name, count(*) AS n FROM keyed, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, keyed.id
$$, output_mode => 'update');
\d by_key_updated
INSERT INTO keyed SELECT i, 'name ' || i, timestamptz '2024-01-01 00:00+00' + i * interval '10 minutes' FROM generate_series(1, 30) i;
SELECT * FROM oracle.compare('by_key', $$hour + interval '1 hour' <= $1$$);
SELECT * FROM oracle.compare('by_key_updated');
DELETE FROM keyed WHERE id = 30;
INSERT INTO keyed VALUES (30, 'other', '2024-01-01 05:20+00');
DELETE FROM keyed WHERE id = 30;
INSERT INTO keyed VALUES (30, NULL, '2024-01-01 05:30+00'), (31, 'last', '2024-01-02 00:00+00');
SELECT wmstream.wait('by_key');
SELECT * FROM by_key WHERE id = 30;
SELECT wmstream.wait('by_key_updated');
SELECT * FROM by_key_updated WHERE id = 30;

-- The same where rows are taken back.
ALTER TABLE keyed REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('by_key_retracted', $$
  SELECT lower(w) AS hour, id, name, count(*) AS n, sum(length(word)) AS letters FROM keyed, string_to_table(name, ' ') AS word, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '1 day') GROUP BY w, keyed.id
$$, output_mode => 'update', on_change => 'retract', start_from => 'beginning');
SELECT e FROM wmstream.explain('by_key_retracted'::regclass) e WHERE e LIKE '%name%';
SELECT * FROM oracle.compare('by_key_retracted');
UPDATE keyed SET name = 'another name ' || id WHERE id % 2 = 0;
DELETE FROM keyed WHERE id % 5 = 0;
INSERT INTO keyed SELECT i * 5, 'again', timestamptz '2024-01-01 00:00+00' + i * interval '50 minutes' FROM generate_series(1, 3) i;
SELECT * FROM oracle.compare('by_key_retracted');
UPDATE keyed SET name = nullif(name, 'again');
UPDATE keyed SET name = 'moved', ts = ts + interval '1 hour' WHERE id BETWEEN 7 AND 12;
SELECT * FROM oracle.compare('by_key_retracted');

-- A time that a group carries is not the one that closes it.
SELECT wmstream.create_stream('from_carried', $$
  SELECT lower(v) AS since, count(*) AS n
  FROM   (SELECT w, id, ts, count(*) AS n FROM keyed, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, keyed.id) k, wmstream.window(k.ts, '5 minutes') AS v
  GROUP  BY v
$$);
\echo :SQLSTATE
-- Only keys must be shown.
SELECT wmstream.create_stream('hidden', 'SELECT lower(w) AS hour, c.name, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer, wmstream.window(o.ts, ''1 hour'') AS w WHERE wmstream.watermark(o.ts, ''10 minutes'') GROUP BY w, c.id', output_mode => 'update');
\echo :SQLSTATE
