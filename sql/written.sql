-- Into what rows are written: a plain table gets them many at a time, every other one by a statement. Nobody can tell the difference.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
SET client_min_messages = warning;

CREATE TABLE sales (ts timestamptz, shop int, what text, amount numeric);
CREATE TABLE shop (id int PRIMARY KEY);
INSERT INTO shop SELECT generate_series(0, 6);
CREATE DOMAIN worth AS int DEFAULT 5;
CREATE TABLE heard (place text, what text, n bigint);

-- Tables of every kind, all with the same four columns.
CREATE TABLE kinds (name text PRIMARY KEY, command text);
INSERT INTO kinds VALUES
('bare', 'CREATE TABLE bare (hour timestamptz, shop int, n bigint, total numeric)'),
('keyed', 'CREATE TABLE keyed (hour timestamptz, shop int, n bigint, total numeric, PRIMARY KEY (hour, shop))'),
('keyed_otherwise', 'CREATE TABLE keyed_otherwise (n bigint, shop int, total numeric, hour timestamptz, PRIMARY KEY (shop, hour))'),
('indexed', 'CREATE TABLE indexed (hour timestamptz, shop int, n bigint, total numeric, EXCLUDE USING btree (hour WITH =, shop WITH =));
	CREATE INDEX ON indexed ((total * 2)); CREATE INDEX ON indexed (shop) WHERE n > 3; CREATE INDEX ON indexed USING brin (hour); CREATE INDEX ON indexed USING hash (n)'),
('wide', 'CREATE TABLE wide (gone int, note text, hour timestamptz, gone_too text, total numeric, shop int, last int, n bigint); ALTER TABLE wide DROP gone, DROP gone_too'),
('checked', 'CREATE TABLE checked (hour timestamptz NOT NULL, shop int CHECK (shop >= 0), n bigint, total numeric NOT NULL, CHECK (n > 0 AND total <> -1))'),
('asked', 'CREATE TABLE asked (hour timestamptz, shop int, n bigint, total numeric, CHECK (tableoid <> 0))'),
('part', 'CREATE TABLE whole (hour timestamptz, shop int, n bigint, total numeric) PARTITION BY RANGE (shop); CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (7)'),
('with_default', 'CREATE TABLE with_default (note text DEFAULT ''default'', hour timestamptz, shop int, n bigint DEFAULT 0, total numeric)'),
('with_domain', 'CREATE TABLE with_domain (note worth, hour timestamptz, shop int, n bigint, total numeric)'),
('with_identity', 'CREATE TABLE with_identity (id int GENERATED ALWAYS AS IDENTITY, hour timestamptz, shop int, n bigint, total numeric)'),
('generated', 'CREATE TABLE generated (hour timestamptz, shop int, n bigint, total numeric, half numeric GENERATED ALWAYS AS (total / 2) STORED)'),
('referring', 'CREATE TABLE referring (hour timestamptz, shop int REFERENCES shop, n bigint, total numeric)'),
('deferred', 'CREATE TABLE deferred (hour timestamptz, shop int, n bigint, total numeric, UNIQUE (hour, shop) DEFERRABLE INITIALLY DEFERRED)'),
('referred', 'CREATE TABLE referred (hour timestamptz, shop int, n bigint, total numeric, UNIQUE (hour, shop)); CREATE TABLE referrer (hour timestamptz, shop int, FOREIGN KEY (hour, shop) REFERENCES referred (hour, shop))'),
('changed', 'CREATE TABLE changed (hour timestamptz, shop int, n bigint, total numeric)'),
('told', 'CREATE TABLE told (hour timestamptz, shop int, n bigint, total numeric)'),
('counted', 'CREATE TABLE counted (hour timestamptz, shop int, n bigint, total numeric)'),
('guarded', 'CREATE TABLE guarded (hour timestamptz, shop int, n bigint, total numeric); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY all_of_them ON guarded USING (true)'),
('parted', 'CREATE TABLE parted (hour timestamptz, shop int, n bigint, total numeric) PARTITION BY HASH (shop); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE parted_2 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1)');
DO $$
DECLARE
	kind kinds;
BEGIN
	FOR kind IN SELECT * FROM kinds LOOP
		EXECUTE kind.command;
	END LOOP;
END $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.heard VALUES (TG_TABLE_NAME, TG_WHEN || ' ' || TG_LEVEL, 1);
	RETURN new;
END $$;
CREATE FUNCTION note_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.heard SELECT TG_TABLE_NAME, 'rows of a statement', count(*) FROM made;
	RETURN NULL;
END $$;
CREATE TRIGGER t BEFORE INSERT ON changed FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER t AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER t AFTER INSERT ON counted REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION note_all();

SELECT count(wmstream.create_stream(name, $$
  SELECT lower(w) AS hour, shop, count(*) AS n, sum(amount) AS total FROM sales, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0 s') GROUP BY w, shop
$$)) FROM kinds;
-- values that are stored apart
SELECT wmstream.create_stream('long', $$
  SELECT lower(w) AS hour, shop, string_agg(what, '') AS words FROM sales, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0 s') GROUP BY w, shop
$$);
-- no groups: the rows as they come, more than are kept together
SELECT wmstream.create_stream('passed', $$SELECT ts, shop, what, amount FROM sales$$);
INSERT INTO sales SELECT '2024-01-01 00:00+00'::timestamptz + n * interval '1 second', n * 7 % 5, CASE WHEN n % 1000 = 0 THEN (SELECT string_agg(md5((n + i)::text), '') FROM generate_series(1, 400) i) END, n FROM generate_series(1, 9000) n;
INSERT INTO sales SELECT '2024-01-03 00:00+00'::timestamptz + n * interval '61 minutes', n % 7, 'x', n FROM generate_series(0, 3000) n;
SELECT count(wmstream.wait(name::regclass)), count(wmstream.wait('long')), count(wmstream.wait('passed')) FROM kinds;
SELECT name, d.* FROM kinds, oracle.differences($$SELECT date_trunc('hour', ts), shop, count(*), sum(amount) FROM sales GROUP BY 1, 2 HAVING date_trunc('hour', ts) + '1 hour' <= (SELECT max(ts) FROM sales)$$,
	'SELECT hour, shop, n, total FROM ' || name) d ORDER BY name;
SELECT * FROM oracle.differences($$SELECT date_trunc('hour', ts), shop, string_agg(what, '' ORDER BY ts) FROM sales GROUP BY 1, 2 HAVING date_trunc('hour', ts) + '1 hour' <= (SELECT max(ts) FROM sales)$$, 'SELECT hour, shop, words FROM long');
SELECT * FROM oracle.differences('TABLE sales', 'TABLE passed');
SELECT max(length(words)), max(pg_column_size(words)) > 2000 AS not_in_line FROM long;
SELECT note, last, count(*) > 0 AS some FROM wide GROUP BY 1, 2;
SELECT note, count(*) > 0 AS some FROM with_default GROUP BY 1;
SELECT note, count(*) > 0 AS some FROM with_domain GROUP BY 1;
SELECT count(*) = count(DISTINCT id) AND min(id) = 1 AS numbered FROM with_identity;
SELECT count(*) AS wrong FROM generated WHERE half <> total / 2;
SELECT place, what, sum(n) = (SELECT count(*) FROM told) AS each_row FROM heard GROUP BY 1, 2 ORDER BY 1;
-- each index finds them all
SET enable_seqscan = off;
SELECT count(*) FROM indexed WHERE total * 2 > 0;
SELECT count(*) FROM indexed WHERE shop >= 0 AND n > 3;
SELECT count(*) FROM indexed WHERE hour >= '2024-01-01 00:00+00';
SELECT count(*) FROM indexed WHERE n = 720;
SELECT count(*) FROM keyed WHERE hour < '2030-01-01 00:00+00';
RESET enable_seqscan;
SELECT count(*), count(*) FILTER (WHERE total * 2 > 0) AS by_total, count(*) FILTER (WHERE shop >= 0 AND n > 3) AS by_shop, count(*) FILTER (WHERE n = 720) AS by_n FROM indexed;

-- A table becomes another kind while its stream runs.
CREATE TABLE step (ts timestamptz, k int);
SELECT wmstream.create_stream('steps', $$SELECT ts, k FROM step$$);
INSERT INTO step VALUES ('2024-01-01 00:00+00', 1);
SELECT wmstream.wait('steps');
ALTER TABLE steps ADD COLUMN note text DEFAULT 'new';
INSERT INTO step VALUES ('2024-01-01 00:00+00', 2);
SELECT wmstream.wait('steps');
ALTER TABLE steps ALTER note DROP DEFAULT;
INSERT INTO step VALUES ('2024-01-01 00:00+00', 3);
SELECT wmstream.wait('steps');
CREATE TRIGGER t BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION note();
TRUNCATE heard;
INSERT INTO step VALUES ('2024-01-01 00:00+00', 4);
SELECT wmstream.wait('steps');
TABLE heard;
SELECT k, note FROM steps ORDER BY k;
DROP TRIGGER t ON steps;
ALTER TABLE steps DROP note;
INSERT INTO step VALUES ('2024-01-01 00:00+00', 5);
SELECT wmstream.wait('steps');
TABLE heard;
SELECT * FROM steps ORDER BY k;

-- What does not fit stops the stream, with Postgres' own words; nothing of the batch is there, and nothing is lost.
CREATE VIEW state AS SELECT stream, status, regexp_replace(reason, ' \(transaction.*', '') AS reason FROM wmstream.streams WHERE stream = 'steps'::regclass;
ALTER TABLE steps ADD CHECK (k <> 8);
INSERT INTO step SELECT '2024-01-01 00:00+00', k FROM generate_series(6, 9) k;
SELECT oracle.status('steps');
TABLE state;
SELECT max(k) FROM steps;
ALTER TABLE steps DROP CONSTRAINT steps_k_check;
SELECT wmstream.resume('steps');
SELECT wmstream.wait('steps');
CREATE UNIQUE INDEX only_once ON steps (k);
INSERT INTO step SELECT '2024-01-01 00:00+00', k FROM unnest(ARRAY[10, 11, 12, 11]) k;
SELECT oracle.status('steps');
TABLE state;
SELECT max(k) FROM steps;
DROP INDEX only_once;
SELECT wmstream.resume('steps');
SELECT wmstream.wait('steps');
ALTER TABLE steps ALTER ts SET NOT NULL;
INSERT INTO step VALUES ('2024-01-01 00:00+00', 13), (NULL, 14);
SELECT oracle.status('steps');
TABLE state;
ALTER TABLE steps ALTER ts DROP NOT NULL;
SELECT wmstream.resume('steps');
SELECT wmstream.wait('steps');
-- as a partition it refuses what belongs into another
CREATE TABLE steps_of_all (LIKE steps) PARTITION BY RANGE (k);
ALTER TABLE steps_of_all ATTACH PARTITION steps FOR VALUES FROM (MINVALUE) TO (16);
INSERT INTO step VALUES ('2024-01-01 00:00+00', 15), ('2024-01-01 00:00+00', 16);
SELECT oracle.status('steps');
TABLE state;
ALTER TABLE steps_of_all DETACH PARTITION steps;
SELECT wmstream.resume('steps');
SELECT wmstream.wait('steps');
-- a constraint that looks at the rows before
CREATE FUNCTION fewer_than(n bigint) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM public.steps) < n; END';
ALTER TABLE steps ADD CONSTRAINT few CHECK (fewer_than(18));
INSERT INTO step SELECT '2024-01-01 00:00+00', k FROM generate_series(17, 20) k;
SELECT oracle.status('steps');
TABLE state;
ALTER TABLE steps DROP CONSTRAINT few;
SELECT wmstream.resume('steps');
SELECT wmstream.wait('steps');
SELECT * FROM oracle.differences('TABLE step', 'TABLE steps');
DROP VIEW state;
DROP TABLE referrer, steps_of_all;
SELECT count(wmstream.drop_stream(stream, true)) FROM wmstream.streams;
