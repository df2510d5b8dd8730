# alter_stream under load: every option is changed again and again while rows come, late ones among them. Nothing may be lost or counted twice, W may
# never go back, and no stream may stop. Then, step by step: what has left for good does not come back when the allowed lateness is
# made longer, and what was to be corrected in place still is when it is made shorter.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('alter');
my $db = 'db';
my $seconds = 6;

make_database($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY, ts timestamptz, k int);
	CREATE SEQUENCE number;

	-- Times go on by 10 seconds a transaction and come up to 2 minutes out of order, some without a time. Transactions commit in the order of
	-- their numbers: one that stood still in between, on a busy machine, would come any time late.
	CREATE FUNCTION put() RETURNS void LANGUAGE sql AS $$
		SELECT pg_advisory_xact_lock(2);
		INSERT INTO event (ts, k)
		SELECT CASE WHEN random() > 0.01 THEN timestamptz '2024-01-01 00:00+00' + n * interval '10 seconds' - random() * interval '2 minutes' END, (random() * 3)::int
		FROM   generate_series(1, 10), (SELECT nextval('number') AS n) s $$;

	-- late: rows of it may come too late. All of its rows are in the result or among the late ones.
	CREATE TABLE tried (name text PRIMARY KEY, late bool, mode text, query text);
	INSERT INTO tried VALUES
	('tumbling', true, 'append', $$SELECT lower(w) AS since, k, count(*) AS n, sum(id) AS total FROM event, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, k$$),
	('updated', true, 'update', $$SELECT lower(w) AS since, k, count(*) AS n, sum(id) AS total FROM event, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, k$$),
	('kept', true, 'append', $$SELECT lower(w) AS since, k, count(*) AS n, sum(DISTINCT id) AS total FROM event, wmstream.window(ts, '1 minute') AS w WHERE wmstream.watermark(ts, '1 minute') GROUP BY w, k$$),
	('sliding', false, 'append', $$SELECT lower(w) AS since, k, count(*) AS n, sum(id) AS total FROM event, wmstream.window(ts, '3 minutes', '1 minute') AS w WHERE wmstream.watermark(ts, '20 minutes') GROUP BY w, k$$),
	('first_of_key', false, 'append', $$SELECT DISTINCT id, k, ts AS since FROM event WHERE wmstream.watermark(ts, '20 minutes')$$),
	('passed_on', false, 'append', $$SELECT id, k, ts AS since FROM event WHERE wmstream.watermark(ts, '20 minutes')$$),
	('joined', false, 'append', $$SELECT a.id, b.id AS other, a.ts AS since FROM event a JOIN event b ON a.id = b.id AND a.ts = b.ts WHERE wmstream.watermark(a.ts, '20 minutes') AND wmstream.watermark(b.ts, '20 minutes')$$);
	SELECT wmstream.create_stream(name, query, output_mode => mode, late_table => CASE WHEN late THEN name || '_late' END) FROM tried;
	SELECT wmstream.create_stream('sessions', $$SELECT lower(s) AS since, k, count(*) AS n FROM event, wmstream.session_window(ts, '3 seconds') AS s WHERE wmstream.watermark(ts, '1 minute') GROUP BY s, k$$);

	CREATE TABLE options (option text, value text, how text);
	INSERT INTO options VALUES
	('delay', '0', 'late'), ('delay', '90 seconds', 'late'), ('delay', NULL, ''), ('delay', '3 minutes', ''), ('delay', '1 hour', ''),
	('allowed_lateness', NULL, 'window'), ('allowed_lateness', '0', 'window'), ('allowed_lateness', '1 minute', 'window'), ('allowed_lateness', '10 minutes', 'window'),
	('trigger_interval', NULL, ''), ('trigger_interval', '20 ms', ''), ('trigger_interval', '300 ms', ''),
	('idle_timeout', NULL, ''), ('idle_timeout', '10 s', ''), ('max_future', NULL, ''), ('max_future', '1 day', ''),
	('on_error', 'skip', ''), ('on_error', NULL, ''), ('on_change', 'error', ''), ('on_change', 'ignore', ''), ('close_when_idle', 'false', ''),
	('late_table', 'aside', 'table'), ('late_table', NULL, 'table');

	CREATE TABLE altered (name text, option text, value text);
	CREATE FUNCTION alter_one() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		choice record;
	BEGIN
		SELECT t.name, o.option, o.value INTO choice
		FROM   (SELECT name, late, mode FROM tried UNION ALL SELECT 'sessions', true, 'append') t, options o
		WHERE  (t.late OR o.how <> 'late') AND (o.how <> 'window' OR t.name !~ 'first|passed|joined') AND (o.how <> 'table' OR t.name ~ 'sliding|sessions')
		ORDER BY random() LIMIT 1;
		PERFORM wmstream.alter_stream(choice.name::regclass, choice.option, choice.value);
		INSERT INTO altered VALUES (choice.name, choice.option, choice.value);
	END $$;

	CREATE TABLE seen (name text PRIMARY KEY, watermark timestamptz);
	CREATE FUNCTION look() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		back text;
	BEGIN
		SELECT string_agg(format('%s from %s to %s', name, seen.watermark, f.watermark), ', ') INTO back
		FROM seen JOIN wmstream.stat_streams f ON f.stream = name::regclass WHERE f.watermark IS NULL AND seen.watermark IS NOT NULL OR f.watermark < seen.watermark;
		IF back IS NOT NULL THEN
			RAISE EXCEPTION 'W went back: %', back;
		END IF;
		INSERT INTO seen SELECT stream::text, watermark FROM wmstream.stat_streams ON CONFLICT (name) DO UPDATE SET watermark = greatest(seen.watermark, excluded.watermark);
	END $$});
consumes($node, $db, $_, "$_ runs") foreach qw(tumbling joined sessions);

$node->pgbench("-n -c 4 -j 2 -T $seconds", 0, [qr/actually processed/], [qr/^$/], 'options are altered while rows come', {
	'alter_write@6' => 'SELECT put();',
	'alter_option@2' => 'SELECT alter_one();',
	'alter_look@1' => "BEGIN ISOLATION LEVEL READ COMMITTED;\nSELECT pg_advisory_xact_lock(1);\nSELECT look();\nCOMMIT;",
}, $db);
note($node->safe_psql($db, q{SELECT (SELECT count(*) FROM event) || ' rows, ' || (SELECT count(*) FROM altered) || ' changes of options'}));
is_sql($node, $db, q{SELECT option FROM options o WHERE NOT EXISTS (SELECT FROM altered a WHERE a.option = o.option) GROUP BY option}, '', 'each option was altered');
$node->safe_psql($db, q{
	SELECT wmstream.alter_stream(stream, 'trigger_interval', NULL) FROM wmstream.streams;
	SELECT wmstream.advance_watermark(stream, (SELECT max(ts) + interval '1 day' FROM event)) FROM wmstream.streams});
consumes($node, $db, $_, "$_ comes to the end") foreach qw(tumbling updated kept sliding first_of_key passed_on joined sessions);
is_sql($node, $db, q{SELECT stream, status, reason FROM wmstream.streams WHERE status <> 'running'}, '', 'all run');

# What is in the result, and what was late, is what came.
foreach my $stream (qw(tumbling updated kept))
{
	is_sql($node, $db, qq{
		WITH batch AS (SELECT date_trunc('minute', ts) AS since, k, count(*) AS n, sum(id) AS total FROM event WHERE ts IS NOT NULL
			AND id NOT IN (SELECT (row_data ->> 'id')::int FROM ${stream}_late WHERE reason = 'late') GROUP BY 1, 2)
		SELECT * FROM ((TABLE batch EXCEPT ALL TABLE $stream) UNION ALL (TABLE $stream EXCEPT ALL TABLE batch)) d ORDER BY 1, 2 LIMIT 5},
		'', "$stream: each row once, in its window or in the late table");
	is_sql($node, $db, qq{SELECT count(*) > 0 AND count(*) = count(DISTINCT row_data ->> 'id') FROM ${stream}_late WHERE reason = 'late'}, 't', "$stream: some rows were late, each once");
}
foreach my $stream (qw(sliding first_of_key passed_on joined))
{
	is_sql($node, $db, qq{
		WITH batch AS (SELECT * FROM wmstream."public.$stream" WHERE since IS NOT NULL), shown AS (SELECT * FROM $stream WHERE since IS NOT NULL)
		SELECT * FROM ((TABLE batch EXCEPT ALL TABLE shown) UNION ALL (TABLE shown EXCEPT ALL TABLE batch)) d ORDER BY 1, 2 LIMIT 5},
		'', "$stream: as the batch query says");
}
is_sql($node, $db, q{SELECT (SELECT sum(n) FROM sessions) + late_rows = (SELECT count(ts) FROM event) FROM wmstream.stat_streams WHERE stream = 'sessions'::regclass},
	't', 'sessions: each row once, in a session or late');
is_sql($node, $db, q{SELECT count(*) FROM wmstream.stat_streams f WHERE no_time_rows <> (SELECT count(*) FROM event WHERE ts IS NULL) * CASE WHEN stream = 'joined'::regclass THEN 2 ELSE 1 END},
	'0', 'rows without a time were counted once');
$node->safe_psql($db, 'SELECT wmstream.drop_stream(stream) FROM wmstream.streams');

# ---- step by step

sub insert
{
	my @rows = map { my ($time, $k) = split / /; "('2024-01-01 $time+00', '$k')" } @_;

	$node->safe_psql($db, 'INSERT INTO step (ts, k) VALUES ' . join(', ', @rows));
	$node->safe_psql($db, 'SELECT wmstream.wait(stream) FROM wmstream.streams');
	return;
}

sub shows
{
	my ($stream, $expected, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is_sql($node, $db, "SELECT string_agg(to_char(since, 'HH24:MI') || ' ' || k || ' ' || n, ', ' ORDER BY since, k) FROM $stream", $expected, "$stream: $test");
}

sub alter_lateness
{
	my ($value) = @_;

	$node->safe_psql($db, "SELECT wmstream.alter_stream(stream, 'allowed_lateness', $value) FROM wmstream.streams");
	return;
}

$node->safe_psql($db, q{
	CREATE TABLE step (ts timestamptz, k text);
	SELECT wmstream.create_stream('hours', $$SELECT lower(w) AS since, k, count(*) AS n FROM step, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k$$, late_table => 'step_late');
	SELECT wmstream.create_stream('two_hours', $$SELECT lower(w) AS since, k, count(*) AS n FROM step, wmstream.window(ts, '2 hours', '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k$$, late_table => 'step_late');
	SELECT wmstream.create_stream('runs', $$SELECT lower(w) AS since, k, count(*) AS n FROM step, wmstream.session_window(ts, '30 minutes') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k$$, late_table => 'step_late');
	CREATE FUNCTION late() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(s || ': ' || rows, '; ' ORDER BY s) FROM (SELECT stream::text AS s, string_agg(to_char(event_time, 'HH24:MI') || ' ' || (row_data ->> 'k'), ', ' ORDER BY event_time) AS rows FROM step_late GROUP BY 1) x $$});
insert('10:10 a', '10:20 a', '12:30 a');
shows('hours', '10:00 a 2', 'W = 12:30');
shows('two_hours', '09:00 a 2, 10:00 a 2', 'W = 12:30');
shows('runs', '10:10 a 2', 'W = 12:30');
alter_lateness(q{'10 hours'});
insert('10:30 a', '10:31 b');
shows('hours', '10:00 a 2', 'a window that has left for good does not come back when the allowed lateness becomes longer');
shows('two_hours', '09:00 a 2, 10:00 a 2', 'the same');
shows('runs', '10:10 a 2', 'the same');
is_sql($node, $db, 'SELECT late()', 'hours: 10:30 a, 10:31 b; runs: 10:30 a, 10:31 b; two_hours: 10:30 a, 10:31 b', 'its rows are late');
insert('14:30 a');
insert('12:31 a', '13:10 b', '11:30 a');
shows('hours', '10:00 a 2, 12:00 a 2, 13:00 b 1', 'windows that closed since then are corrected');
shows('two_hours', '09:00 a 2, 10:00 a 2, 11:00 a 3, 12:00 a 2, 12:00 b 1', 'windows that closed since then are corrected, and of those that have left before none');
shows('runs', '10:10 a 2, 12:30 a 2, 13:10 b 1', 'sessions that closed since then are corrected');
is_sql($node, $db, 'SELECT late()', 'hours: 10:30 a, 10:31 b, 11:30 a; runs: 10:30 a, 10:31 b, 11:30 a; two_hours: 10:30 a, 10:31 b', 'late is what has left');

# A correction that waits for its firing is not lost when the lateness ends meanwhile; nor is a session that has grown.
$node->safe_psql($db, q{SELECT wmstream.alter_stream(stream, 'trigger_interval', '1 hour') FROM wmstream.streams});
insert('12:32 a', '13:20 b', '14:10 a');
alter_lateness('NULL');
$node->safe_psql($db, q{SELECT wmstream.alter_stream(stream, 'trigger_interval', NULL) FROM wmstream.streams});
insert('14:31 c');
shows('hours', '10:00 a 2, 12:00 a 3, 13:00 b 2', 'what waited for its firing is corrected, though the lateness is over');
shows('two_hours', '09:00 a 2, 10:00 a 2, 11:00 a 4, 12:00 a 3, 12:00 b 2', 'what waited for its firing is corrected, though the lateness is over');
insert('12:33 a', '13:21 b');
shows('hours', '10:00 a 2, 12:00 a 3, 13:00 b 2', 'the next is late');
insert('18:00 c');
shows('hours', '10:00 a 2, 12:00 a 3, 13:00 b 2, 14:00 a 2, 14:00 c 1', 'and so on');
is_sql($node, $db, q{SELECT since, k, n FROM runs EXCEPT SELECT min(ts), k, count(*) FROM (SELECT ts, k, count(*) FILTER (WHERE f) OVER (PARTITION BY k ORDER BY ts) AS g
	FROM (SELECT ts, k, (ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= '30 minutes') IS NOT TRUE AS f FROM step s
	WHERE NOT EXISTS (SELECT FROM step_late l WHERE l.stream = 'runs'::regclass AND event_time = ts)) x) y GROUP BY k, g}, '', 'runs: sessions of all rows that were not late');
is_sql($node, $db, q{SELECT status FROM wmstream.streams GROUP BY status}, 'running', 'all run');
is_sql($node, $db, q{SELECT sum(state_rows) FROM wmstream.stat_streams WHERE stream <> 'runs'::regclass}, '2', 'no state but that of the open windows');

never_crashed($node);
$node->stop;
done_testing();
