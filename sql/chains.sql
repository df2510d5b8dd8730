-- Streams over the results of other streams.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, region text, amount int);
SELECT wmstream.create_stream('hourly', $$
  SELECT lower(w) AS hour, region, sum(amount) AS total, count(*) AS n FROM orders, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w, region
$$, late_table => 'late');
-- what was there before is not read, what comes after is, over three levels; a view may stand between
INSERT INTO orders (ts, region, amount) SELECT timestamptz '2024-01-01 00:00+00' + i * interval '7 minutes', 'r' || i % 3, i FROM generate_series(1, 300) i;
SELECT wmstream.wait('hourly');
SELECT count(*) AS before, max(hour) FROM hourly;
CREATE TABLE before AS TABLE hourly;
CREATE VIEW totals AS SELECT hour, total FROM hourly WHERE total IS NOT NULL;
SELECT wmstream.create_stream('daily', $$
  SELECT lower(w) AS day, sum(total) AS total, count(*) AS hours FROM totals, wmstream.window(hour, '1 day') AS w WHERE wmstream.watermark(hour, '2 hours') GROUP BY w
$$);
SELECT wmstream.create_stream('weekly', $$
  SELECT lower(w) AS week, max(total) AS best, count(*) AS days FROM daily, wmstream.window(day, '7 days') AS w WHERE wmstream.watermark(day, '0') GROUP BY w
$$, output_mode => 'update');
SELECT wmstream.create_stream('copied', 'SELECT * FROM hourly');
SELECT wmstream.create_stream('of_late', 'SELECT reason, row_data ->> ''id'' AS id FROM late');
INSERT INTO orders (ts, region, amount) SELECT timestamptz '2024-01-02 11:07+00' + i * interval '7 minutes', 'r' || i % 3, i FROM generate_series(1, 5000) i;
INSERT INTO orders (ts, region, amount) VALUES ('2024-01-02 00:00+00', 'late', 1);
SELECT wmstream.wait('weekly'), wmstream.wait('copied');
SELECT * FROM oracle.differences('TABLE copied', 'SELECT * FROM hourly EXCEPT ALL TABLE before');
SELECT * FROM oracle.differences('TABLE daily', format($$SELECT date_trunc('day', hour, 'UTC'), sum(total), count(*) FROM copied WHERE date_trunc('day', hour, 'UTC') + interval '1 day' <= %L GROUP BY 1$$, (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'daily'::regclass)));
SELECT * FROM oracle.differences('TABLE weekly', $$SELECT lower(w), max(total), count(*) FROM daily, wmstream.window(day, '7 days') w GROUP BY w$$);
SELECT wmstream.wait('of_late');
TABLE of_late;
-- the lower one stands still: what waits for it says so; then both go on
SELECT wmstream.pause('hourly');
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 00:00+00', 'x', 1);
SELECT wmstream.wait('weekly');
\echo :SQLSTATE
SELECT wmstream.resume('hourly');
SELECT wmstream.wait('weekly'), wmstream.wait('copied');
SELECT * FROM oracle.differences('TABLE copied', 'SELECT * FROM hourly EXCEPT ALL TABLE before');
SELECT max(day) FROM daily;
-- rows that its triggers write are rows of other tables
CREATE TABLE noted (at timestamptz, hour timestamptz);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.noted VALUES ('2024-01-01', NEW.hour); RETURN NULL; END $$;
SELECT wmstream.create_stream('of_noted', 'SELECT hour FROM noted');
CREATE TRIGGER note AFTER INSERT ON hourly FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO orders (ts, region, amount) VALUES ('2024-03-01 05:00+00', 'x', 1);
SELECT wmstream.wait('hourly');
SELECT wmstream.wait('of_noted');
TABLE of_noted;
DROP TRIGGER note ON hourly;

-- A result and a late table become parts of tables that others read, at once or over a table in between: what is written from then on is read, each row once.
CREATE TABLE sale (ts timestamptz);
SELECT wmstream.create_stream(name, $$SELECT lower(w) AS hour, count(*) AS n FROM sale, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w$$,
  late_table => name || '_late') FROM unnest(ARRAY['sold', 'sold_too']) AS name;
CREATE TABLE all_sold (LIKE sold) PARTITION BY RANGE (hour);
CREATE TABLE some_sold (LIKE sold) PARTITION BY RANGE (hour);
CREATE TABLE all_late (LIKE sold_late) PARTITION BY LIST (reason);
SELECT wmstream.create_stream('of_sold', 'SELECT hour, n FROM all_sold');
SELECT wmstream.create_stream('of_all_late', 'SELECT row_data FROM all_late');
INSERT INTO sale VALUES ('2024-01-01 00:30+00'), ('2024-01-01 01:00+00'), ('2024-01-01 00:40+00');
SELECT wmstream.wait(name) FROM unnest(ARRAY['sold', 'sold_too', 'of_sold', 'of_all_late']) AS name;
SELECT (SELECT count(*) FROM sold) AS sold, (SELECT count(*) FROM sold_too) AS sold_too, (SELECT count(*) FROM sold_late) AS late,
  (SELECT count(*) FROM of_sold) AS read, (SELECT count(*) FROM of_all_late) AS late_read;
ALTER TABLE all_sold ATTACH PARTITION sold FOR VALUES FROM ('2024-01-01 00:00+00') TO ('2024-01-02 00:00+00');
ALTER TABLE some_sold ATTACH PARTITION sold_too FOR VALUES FROM ('2024-01-01 00:00+00') TO ('2024-03-01 00:00+00');
ALTER TABLE all_late ATTACH PARTITION sold_late DEFAULT;
INSERT INTO sale SELECT timestamptz '2024-01-01 01:00+00' + i * interval '1 hour' FROM generate_series(1, 5) i;
SELECT wmstream.wait(name) FROM unnest(ARRAY['sold', 'sold_too']) AS name;
INSERT INTO sale VALUES ('2024-01-01 02:30+00');
SELECT wmstream.wait('of_sold');
SELECT wmstream.wait('of_all_late');
SELECT * FROM oracle.differences('TABLE of_sold', $$SELECT * FROM sold WHERE hour > '2024-01-01 00:00+00'$$);
SELECT * FROM oracle.differences('TABLE of_all_late', 'SELECT row_data FROM sold_late');
SELECT count(*), (SELECT count(*) FROM of_all_late) AS late FROM of_sold;
ALTER TABLE all_sold DETACH PARTITION sold;
DELETE FROM sold_too;
ALTER TABLE all_sold ATTACH PARTITION some_sold FOR VALUES FROM ('2024-01-01 00:00+00') TO ('2024-03-01 00:00+00');
INSERT INTO sale SELECT timestamptz '2024-01-01 06:00+00' + i * interval '1 hour' FROM generate_series(1, 5) i;
SELECT wmstream.wait('of_sold');
SELECT wmstream.wait('sold');
SELECT * FROM oracle.differences('TABLE of_sold', $$SELECT * FROM sold WHERE hour > '2024-01-01 00:00+00'$$);
SELECT count(*) FROM of_sold;

-- Results whose rows change are read with on_change => 'retract' only.
SELECT wmstream.create_stream('up', 'SELECT lower(w) AS hour, region, sum(amount) AS total FROM orders, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, region', output_mode => 'update');
SELECT wmstream.create_stream('over_up', 'SELECT * FROM up');
\echo :SQLSTATE
SELECT wmstream.create_stream('over_up', 'SELECT region, sum(total) AS total, max(hour) AS last FROM up GROUP BY region', output_mode => 'complete', on_change => 'retract');
\echo :SQLSTATE
ALTER TABLE up REPLICA IDENTITY FULL;
SELECT wmstream.create_stream('over_up', 'SELECT region, sum(total) AS total, max(hour) AS last FROM up GROUP BY region', output_mode => 'complete', on_change => 'retract');
INSERT INTO orders (ts, region, amount) SELECT timestamptz '2024-03-01 06:00+00' + i * interval '1 minute', 'r' || i % 3, i FROM generate_series(1, 100) i;
INSERT INTO orders (ts, region, amount) SELECT timestamptz '2024-03-01 07:35+00' + i * interval '1 minute', 'r' || i % 5, i FROM generate_series(1, 100) i;
SELECT * FROM oracle.compare('over_up');
SELECT wmstream.alter_stream('hourly', 'allowed_lateness', '1 hour');
\echo :SQLSTATE

-- Who is rebuilt tells whom to rebuild after it, not before it is done.
BEGIN;
SELECT wmstream.resync('hourly');
SELECT wmstream.resync('daily');
\echo :SQLSTATE
ROLLBACK;
SELECT wmstream.resync('hourly');
SELECT wmstream.wait('hourly');
SELECT wmstream.resync('daily');
SELECT wmstream.resync('copied');
SELECT wmstream.wait('daily');
SELECT wmstream.wait('copied');
SELECT * FROM oracle.differences('TABLE copied', 'TABLE hourly');
SELECT * FROM oracle.differences('TABLE daily', format($$SELECT date_trunc('day', hour, 'UTC'), sum(total), count(*) FROM hourly WHERE date_trunc('day', hour, 'UTC') + interval '1 day' <= %L GROUP BY 1$$, (SELECT watermark FROM wmstream.stat_streams WHERE stream = 'daily'::regclass)));
SELECT * FROM oracle.compare('over_up');

-- Who reads itself, over however many others.
SELECT wmstream.create_stream('hourly', 'SELECT * FROM copied');
SELECT wmstream.drop_stream('hourly');
SELECT wmstream.create_stream('hourly', 'SELECT * FROM copied');
\echo :SQLSTATE
SELECT wmstream.create_stream('hourly', 'SELECT * FROM hourly');
\echo :SQLSTATE
-- the dropped one has left its table, which others go on reading
INSERT INTO hourly VALUES ('2024-04-01 00:00+00', 'by hand', 1, 1);
SELECT wmstream.wait('copied');
SELECT * FROM copied WHERE region = 'by hand';
-- a view that is put in between later
CREATE VIEW via AS SELECT * FROM before;
SELECT wmstream.create_stream('one', 'SELECT hour, region, total, n FROM via');
SELECT wmstream.create_stream('two', 'SELECT hour, region, total, n FROM one');
CREATE OR REPLACE VIEW via AS SELECT hour, region, total, n FROM two;
INSERT INTO two VALUES ('2024-04-01 00:00+00', 'round', 1, 1);
SELECT oracle.status('one');
SELECT reason FROM wmstream.streams WHERE stream = 'one'::regclass;
-- with the table goes what reads it
DROP TABLE hourly;
\echo :SQLSTATE
DROP TABLE hourly CASCADE;
SELECT stream FROM wmstream.streams ORDER BY stream::text;
SELECT count(*) > 0 AS kept FROM copied;
