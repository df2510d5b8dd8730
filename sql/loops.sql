-- No stream reads what it writes: as a whole, as a partition, over other streams and their late tables.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
CREATE TABLE ev (id int, ts timestamptz, k text) PARTITION BY LIST (k);
CREATE TABLE ev_a PARTITION OF ev FOR VALUES IN ('a');
CREATE TABLE ev_out PARTITION OF ev FOR VALUES IN ('out');
CREATE TABLE ev_more PARTITION OF ev FOR VALUES IN ('deep', 'deeper') PARTITION BY LIST (k);
CREATE TABLE ev_deep PARTITION OF ev_more FOR VALUES IN ('deep');
CREATE TABLE src (id int, ts timestamptz);

-- The source is the partitioned table that the result is a part of, or beside the source.
SELECT wmstream.create_stream('ev_out', 'SELECT id, ts, ''out''::text AS k FROM ev');
\echo :SQLSTATE
SELECT wmstream.create_stream('ev_deep', 'SELECT id, ts, ''deep''::text AS k FROM ev');
\echo :SQLSTATE
SELECT wmstream.create_stream('ev_out', 'SELECT id, s.ts, ''out''::text AS k FROM src s JOIN ev USING (id) WHERE wmstream.watermark(s.ts, NULL)');
\echo :SQLSTATE
SELECT wmstream.create_stream('ev', 'SELECT id, s.ts, ''out''::text AS k FROM src s JOIN ev_a USING (id) WHERE wmstream.watermark(s.ts, NULL)');
\echo :SQLSTATE
-- a partition beside it is another table
SELECT wmstream.create_stream('ev_out', 'SELECT id, s.ts, ''out''::text AS k FROM src s JOIN ev_a USING (id) WHERE wmstream.watermark(s.ts, NULL)');
SELECT wmstream.drop_stream('ev_out');
-- over another stream
SELECT wmstream.create_stream('middle', 'SELECT id, ts FROM ev');
SELECT wmstream.create_stream('ev_deep', 'SELECT id, ts, ''deep''::text AS k FROM middle');
\echo :SQLSTATE
SELECT wmstream.drop_stream('middle', true);

-- Late tables: as a partition of what is read, and of one stream that another reads, in either order.
CREATE TABLE lates (stream regclass, source regclass, event_time timestamptz, watermark timestamptz, reason text, error text, arrived_at timestamptz, row_data jsonb) PARTITION BY LIST (reason);
CREATE TABLE lates_late PARTITION OF lates FOR VALUES IN ('late');
\set hours 'SELECT lower(w) AS hour, count(*) AS n FROM %s, wmstream.window(ts, ''1 hour'') AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w'
SELECT wmstream.create_stream('of_lates', 'SELECT lower(w) AS hour, count(*) AS n FROM lates, wmstream.window(event_time, ''1 hour'') AS w WHERE wmstream.watermark(event_time, ''0'') GROUP BY w', late_table => 'lates_late');
\echo :SQLSTATE
CREATE TABLE t (ts timestamptz, k text);
SELECT wmstream.create_stream('a', format(:'hours', 't'), late_table => 'late');
SELECT wmstream.create_stream('t', 'SELECT event_time AS ts, reason AS k FROM late');
\echo :SQLSTATE
SELECT wmstream.drop_stream('a', true);
SELECT wmstream.create_stream('t', 'SELECT event_time AS ts, reason AS k FROM late');
SELECT wmstream.create_stream('a', format(:'hours', 't'), late_table => 'late');
\echo :SQLSTATE
SELECT wmstream.create_stream('a', format(:'hours', 't'));
SELECT wmstream.alter_stream('a', 'late_table', 'late');
\echo :SQLSTATE
-- one that is no loop: who waits for the upper one has waited for the lower one
SELECT wmstream.create_stream('b', format(:'hours', 'src'), late_table => 'late');
INSERT INTO src VALUES (1, '2024-01-01 10:30+00'), (2, '2024-01-01 20:30+00');
SELECT wmstream.wait('b');
INSERT INTO src VALUES (3, '2024-01-01 10:40+00');
SELECT wmstream.wait('t');
TABLE t;
SELECT wmstream.drop_stream('b', true), wmstream.drop_stream('a', true), wmstream.drop_stream('t');
DROP TABLE t, late;

-- What becomes a loop later fails with the reason before it has read anything of its own.
CREATE VIEW told AS SELECT stream, reason FROM wmstream.streams WHERE status = 'failed' ORDER BY stream::text;
SELECT wmstream.create_stream('ev_later', 'SELECT id, ts, ''later''::text AS k FROM ev');
SELECT wmstream.create_stream('one', 'SELECT id, ts FROM ev');
SELECT wmstream.create_stream('two', 'SELECT id, ts, ''two''::text AS k FROM one');
INSERT INTO ev VALUES (1, '2024-01-01 10:00+00', 'a');
SELECT wmstream.wait(stream) FROM wmstream.streams;
ALTER TABLE ev ATTACH PARTITION ev_later FOR VALUES IN ('later');
INSERT INTO ev VALUES (2, '2024-01-01 11:00+00', 'a');
SELECT oracle.status('ev_later');
TABLE told;
SELECT wmstream.wait('one');
\echo :SQLSTATE
SELECT * FROM ev ORDER BY id, k;
ALTER TABLE ev DETACH PARTITION ev_later;
SELECT wmstream.resume('ev_later');
SELECT wmstream.wait('ev_later');
SELECT id, k FROM ev_later ORDER BY id;
ALTER TABLE ev ATTACH PARTITION two FOR VALUES IN ('two');
INSERT INTO ev VALUES (3, '2024-01-01 12:00+00', 'a');
SELECT oracle.status('one'), oracle.status('two');
TABLE told;
ALTER TABLE ev DETACH PARTITION two;
SELECT wmstream.resume('one'), wmstream.resume('two');
SELECT wmstream.wait('two');
SELECT id, k FROM two ORDER BY id;
SELECT wmstream.drop_stream('two', true), wmstream.drop_stream('one', true), wmstream.drop_stream('ev_later', true);
-- a late table
CREATE TABLE apart (LIKE lates);
SELECT wmstream.create_stream('of_lates', 'SELECT lower(w) AS hour, count(*) AS n FROM lates, wmstream.window(event_time, ''1 hour'') AS w WHERE wmstream.watermark(event_time, ''0'') GROUP BY w', late_table => 'apart');
SELECT wmstream.wait('of_lates');
ALTER TABLE lates ATTACH PARTITION apart FOR VALUES IN ('no_time');
INSERT INTO lates (reason) VALUES ('no_time');
SELECT oracle.status('of_lates');
TABLE told;
SELECT count(*) FROM lates;
SELECT wmstream.drop_stream('of_lates', true);

-- A result that is a part of what others read: they have its rows, also those that were written after it became one.
SELECT wmstream.create_stream('all_of_ev', 'SELECT id, k FROM ev');
SELECT wmstream.create_stream('ev_out', 'SELECT id, ts, ''out''::text AS k FROM src');
SELECT wmstream.create_stream('ev_next', 'SELECT id, ts, ''next''::text AS k FROM src');
INSERT INTO src SELECT i, '2024-01-02 00:00+00' FROM generate_series(11, 15) i;
SELECT wmstream.wait('all_of_ev'), wmstream.wait('ev_next');
SELECT k, count(*) FROM all_of_ev GROUP BY k ORDER BY k;
CREATE TABLE before AS SELECT id, k FROM ev_next;
ALTER TABLE ev ATTACH PARTITION ev_next FOR VALUES IN ('next');
INSERT INTO src SELECT i, '2024-01-02 01:00+00' FROM generate_series(16, 20) i;
SELECT wmstream.wait('all_of_ev');
SELECT k, count(*), min(id) FROM all_of_ev GROUP BY k ORDER BY k;
SELECT * FROM oracle.differences('TABLE all_of_ev', 'SELECT id, k FROM ev WHERE id > 10 EXCEPT TABLE before');
ALTER TABLE ev DETACH PARTITION ev_next;
INSERT INTO src VALUES (21, '2024-01-02 02:00+00');
SELECT wmstream.wait('all_of_ev'), wmstream.wait('ev_next');
SELECT k, max(id) FROM all_of_ev GROUP BY k ORDER BY k;

-- Rows that change later: in a part of the source, and in a table that others read already.
CREATE TABLE sums (hour timestamptz, n bigint) PARTITION BY RANGE (hour);
CREATE TABLE sums_now PARTITION OF sums DEFAULT;
SELECT wmstream.create_stream('sums_now', format(:'hours', 'src'), output_mode => 'update');
SELECT wmstream.create_stream('over_sums', 'SELECT * FROM sums');
\echo :SQLSTATE
SELECT wmstream.drop_stream('sums_now');
SELECT wmstream.create_stream('over_sums', 'SELECT * FROM sums');
SELECT wmstream.create_stream('sums_now', format(:'hours', 'src'), output_mode => 'update');
\echo :SQLSTATE
SELECT wmstream.create_stream('sums', format(:'hours', 'src'), allowed_lateness => '1 hour');
\echo :SQLSTATE
SELECT wmstream.create_stream('sums_now', format(:'hours', 'src'));
SELECT wmstream.alter_stream('sums_now', 'allowed_lateness', '1 hour');
\echo :SQLSTATE
SELECT wmstream.resync('sums_now');
SELECT wmstream.wait('over_sums');
SELECT * FROM oracle.differences('TABLE over_sums', 'TABLE sums');
