-- Windows that have closed and are corrected in place: rows come up to an hour after W, and each must be in the result. HAVING becomes true and
-- false again, for aggregates whose state is kept, whose arguments are kept, for windows that share panes, and for sessions.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;

CREATE TABLE moves (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k int, v int);
CREATE TABLE tried (name text, win text, size interval, list text, having_it text, options text);
INSERT INTO tried VALUES
('states', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'sum(v) AS total, count(*) AS n', 'sum(v) > 0', ''),
('arguments', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'array_agg(v ORDER BY id) AS total, count(DISTINCT v) AS n', 'percentile_disc(0.5) WITHIN GROUP (ORDER BY v) > 0', ''),
('both', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'sum(v) AS total, mode() WITHIN GROUP (ORDER BY v) AS n', 'sum(v) > 0 AND count(DISTINCT v) % 2 = 0', ''),
('panes', $$wmstream.window(ts, '20 minutes', '10 minutes')$$, '20 minutes', 'sum(v) AS total, count(*) AS n', 'sum(v) > 0', ''),
('pane_arguments', $$wmstream.window(ts, '20 minutes', '5 minutes')$$, '20 minutes', 'array_agg(v ORDER BY id) AS total, count(*) AS n', 'sum(v) > 0', ''),
('uneven', $$wmstream.window(ts, '20 minutes', '15 minutes', '3 minutes')$$, '20 minutes', 'sum(v) AS total, count(*) AS n', 'sum(v) > 0', ''),
('rarely', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'sum(v) AS total, count(*) AS n', 'sum(v) > 0', ', trigger_interval => ''30 ms'''),
('updated', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'sum(v) AS total, count(*) AS n', 'sum(v) > 0', ', output_mode => ''update'''),
('updated_arguments', $$wmstream.window(ts, '20 minutes')$$, '20 minutes', 'array_agg(v ORDER BY id) AS total, count(*) AS n', 'sum(v) > 0', ', output_mode => ''update''');
DO $$
DECLARE
	t tried;
BEGIN
	FOR t IN TABLE tried LOOP
		EXECUTE format($f$SELECT wmstream.create_stream(%L, %L, allowed_lateness => '1 hour'%s)$f$, t.name,
			format('SELECT lower(w) AS since, k, %s FROM moves, %s AS w WHERE wmstream.watermark(ts, ''0'') GROUP BY w, k HAVING %s', t.list, t.win, t.having_it), t.options);
	END LOOP;
END $$;
SELECT wmstream.create_stream('sessions', $$SELECT lower(s) AS since, upper(s) AS until, k, sum(v) AS total, count(*) AS n FROM moves, wmstream.session_window(ts, '2 minutes') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, k HAVING sum(v) > 0$$, allowed_lateness => '1 hour');
SELECT wmstream.create_stream('session_arguments', $$SELECT lower(s) AS since, upper(s) AS until, k, array_agg(v ORDER BY id) AS total, count(*) AS n FROM moves, wmstream.session_window(ts, '2 minutes') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, k HAVING sum(v) > 0$$, allowed_lateness => '1 hour');
SELECT name, string_agg(DISTINCT substring(line FROM '(state|arguments) kept'), ', ') AS kept
FROM tried, LATERAL wmstream.explain(name::regclass) AS line GROUP BY name ORDER BY name;

-- One group step by step: it appears, is taken away, comes again.
INSERT INTO moves (ts, k, v) VALUES ('2024-01-01 10:05+00', 1, 5), ('2024-01-01 10:30+00', 9, -1);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT since, k, total, n FROM states;
SELECT since, k, total, n FROM sessions;
INSERT INTO moves (ts, k, v) VALUES ('2024-01-01 10:06+00', 1, -7);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT (SELECT count(*) FROM states) + (SELECT count(*) FROM arguments) + (SELECT count(*) FROM panes) + (SELECT count(*) FROM sessions) + (SELECT count(*) FROM updated) AS taken_away;
INSERT INTO moves (ts, k, v) VALUES ('2024-01-01 10:06:30+00', 1, 7), ('2024-01-01 10:06:30+00', 2, 1);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT since, k, total, n FROM states ORDER BY k;
SELECT since, k, total, n FROM arguments ORDER BY k;
SELECT since, k, total, n FROM panes ORDER BY since, k;
SELECT since, k, total, n FROM sessions ORDER BY k;
SELECT stream, late_rows FROM wmstream.stat_streams WHERE late_rows > 0;

-- Many, and what closed windows show after every few transactions is what the batch query says of them.
CREATE TABLE verdicts (name text, moment int, rows bigint, missing bigint, surplus bigint);
CREATE PROCEDURE run(since int, upto int) LANGUAGE plpgsql AS $$
BEGIN
	FOR batch IN since..upto LOOP
		INSERT INTO moves (ts, k, v)
		SELECT timestamptz '2024-01-01 11:00+00' + batch * interval '4 minutes' - (n * 37 + batch * 11) % 59 * interval '1 minute', n % 3, (n * 7 + batch * 13) % 9 - 4 FROM generate_series(1, 8) n;
		COMMIT;
		IF batch % 6 = 0 THEN
			PERFORM wmstream.wait(stream) FROM wmstream.streams;
			COMMIT;
			INSERT INTO verdicts SELECT name, batch, c.result, c.missing, c.surplus FROM tried, oracle.compare(name::regclass, CASE WHEN options ~ 'update' THEN 'true' ELSE format('since + interval %L <= $1', size) END) c WHERE name <> 'rarely';
			COMMIT;
		END IF;
	END LOOP;
END $$;
CALL run(1, 30);
SELECT wmstream.pause(stream) FROM wmstream.streams;
SELECT DISTINCT oracle.status(stream) FROM wmstream.streams;
SELECT wmstream.resume(stream) FROM wmstream.streams;
CALL run(31, 60);
SELECT name, count(*) AS looks, sum(missing) AS missing, sum(surplus) AS surplus, min(rows) > 0 AS some FROM verdicts GROUP BY name ORDER BY name;
SELECT wmstream.advance_watermark(stream, '2024-01-02 00:00+00') FROM wmstream.streams;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT name, c.result > 0 AS some, c.missing, c.surplus, c.live_missing, c.live_surplus FROM tried, oracle.compare(name::regclass) c ORDER BY name;
CREATE VIEW islands AS SELECT *, count(*) FILTER (WHERE first) OVER (PARTITION BY k ORDER BY ts, id) AS island
FROM (SELECT *, (ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) <= '2 minutes') IS NOT TRUE AS first FROM moves) f;
SELECT * FROM oracle.differences('SELECT min(ts), max(ts) + interval ''2 minutes'', k, sum(v), count(*) FROM islands GROUP BY k, island HAVING sum(v) > 0', 'TABLE sessions');
SELECT * FROM oracle.differences('SELECT min(ts), max(ts) + interval ''2 minutes'', k, array_agg(v ORDER BY id), count(*) FROM islands GROUP BY k, island HAVING sum(v) > 0', 'TABLE session_arguments');
SELECT sum(late_rows) AS late, sum(state_rows) AS state FROM wmstream.stat_streams;

-- Reasons why rows are put aside: all of them, of several streams in one table, with what was wrong.
CREATE TABLE input (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, d int);
SELECT wmstream.create_stream('aside_1', $$SELECT lower(w) AS since, sum(100 / d) AS n FROM input, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w$$, late_table => 'aside', on_error => 'skip', max_future => '1 day');
SELECT wmstream.create_stream('aside_2', $$SELECT lower(w) AS since, count(*) FILTER (WHERE 100 / d > 0) AS n FROM input, wmstream.window(ts, '2 hours', '1 hour') AS w WHERE wmstream.watermark(ts, '30 minutes') GROUP BY w$$, late_table => 'aside', on_error => 'skip', max_future => '1 day');
SELECT wmstream.create_stream('aside_3', $$SELECT id, 100 / d AS n FROM input WHERE wmstream.watermark(ts, '0')$$, late_table => 'aside', on_error => 'skip', max_future => '1 day');
INSERT INTO input (ts, d) VALUES ('2024-01-01 10:10+00', 1), ('2024-01-01 12:10+00', 2);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'aside%';
INSERT INTO input (ts, d) VALUES ('2024-01-01 10:20+00', 4), ('2024-01-01 12:20+00', 0), (NULL, 1), ('infinity', 0), ('-infinity', 5), ('2924-01-01 10:20+00', 0), ('4713-01-01 00:00 BC', 10), ('0024-01-01', 0), ('294276-12-31', 1), ('2024-01-01 12:30+00', 10);
INSERT INTO input (ts, d) VALUES ('2024-01-01 12:40+00', 20);
SELECT wmstream.wait(stream) FROM wmstream.streams WHERE stream::text LIKE 'aside%';
SELECT stream, reason, count(*), string_agg(row_data ->> 'id', ' ' ORDER BY (row_data ->> 'id')::int) AS ids, min(error) AS error, count(event_time) AS times FROM aside GROUP BY 1, 2 ORDER BY stream::text, reason;
SELECT stream, input_rows, late_rows, no_time_rows, future_rows, error_rows, watermark, max_event_time FROM wmstream.stat_streams WHERE stream::text LIKE 'aside%' ORDER BY stream::text;
TABLE aside_1;
SELECT * FROM wmstream.open_windows(NULL::aside_1);
TABLE aside_2;
SELECT * FROM aside_3 ORDER BY id;
SELECT stream, status FROM wmstream.streams WHERE stream::text LIKE 'aside%' ORDER BY stream::text;
