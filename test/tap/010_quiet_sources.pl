# Sources that fall silent. What is due by the clock happens by itself, on time, though nothing wakes the worker but its own timer. A source is idle
# only when no unread input waits, and the clock for that begins anew with the worker.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WmsTap;

my $db = 'db';

# ---- timers; the worker looks by itself only once a minute

my $node = new_node('timers', "wmstream.poll_interval = '60s'\n");

make_database($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE event (ts timestamptz, k int);
	CREATE TABLE other (ts timestamptz, k int);
	SELECT wmstream.create_stream('by_clock', $$SELECT lower(w) AS since, upper(w) AS until, count(*) AS n FROM event, wmstream.window(now(), '2 seconds') AS w GROUP BY w$$);
	SELECT wmstream.create_stream('rarely', $$SELECT k, count(*) AS n FROM event GROUP BY k$$, output_mode => 'update', trigger_interval => '2 seconds');
	SELECT wmstream.create_stream('quiet', $$SELECT lower(w) AS since, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w$$, idle_timeout => '2 seconds', close_when_idle => true);
	SELECT wmstream.create_stream('pair', $$SELECT lower(w) AS since, count(*) AS n FROM (SELECT ts FROM event WHERE wmstream.watermark(ts, '0') UNION ALL SELECT ts FROM other WHERE wmstream.watermark(ts, '0')) u, wmstream.window(ts, '1 hour') AS w GROUP BY w$$, idle_timeout => '2 seconds')});
consumes($node, $db, $_, "$_ runs") foreach qw(by_clock rarely quiet pair);
$node->safe_psql($db, q{BEGIN; INSERT INTO event VALUES ('2024-01-01 10:30+00', 1), ('2024-01-01 11:30+00', 1); INSERT INTO other VALUES ('2024-01-01 10:30+00', 1); COMMIT});
$node->safe_psql($db, q{SELECT wmstream.wait(stream, '20 seconds') FROM wmstream.streams WHERE stream <> 'rarely'::regclass});
my $began = time;
polls($node, $db, q{SELECT count(*) = 1 AND sum(n) = 2 FROM by_clock}, 'a window of the clock closes by itself');
polls($node, $db, q{SELECT count(*) = 1 AND sum(n) = 2 FROM rarely}, 'a firing that waits for its time comes by itself');
polls($node, $db, q{SELECT count(*) = 2 AND sum(n) = 2 FROM quiet}, 'all windows of a source that is quiet close by themselves');
polls($node, $db, q{SELECT count(*) = 1 AND sum(n) = 2 FROM pair}, 'of two quiet sources the one that is further counts');
cmp_ok(time - $began, '<', 15, '... long before the worker would look by itself');
is_sql($node, $db, q{SELECT count(*) FROM by_clock c WHERE until > (SELECT last_batch_at FROM wmstream.stat_streams WHERE stream = 'by_clock'::regclass)}, '0', 'no window of the clock closed before its end');
is_sql($node, $db, q{SELECT count(*), sum(late_rows) FROM wmstream.stat_streams WHERE stream IN ('by_clock'::regclass, 'quiet'::regclass)}, '2|0', 'nothing was late');
my $batches = $node->safe_psql($db, q{SELECT sum(batches) FROM wmstream.stat_streams});
$node->safe_psql($db, 'SELECT pg_sleep(3)');	# the time in which a timer that is not disarmed would fire again
is_sql($node, $db, q{SELECT sum(batches) FROM wmstream.stat_streams}, $batches, 'then all is quiet: nothing is done again');
# many transactions at a look: the next look may come later, but not for those who wait
for my $round (1 .. 2)
{
	$node->safe_psql($db, "INSERT INTO event VALUES ('2024-01-01 12:30+00', $round);\n" x 40);
	$node->safe_psql($db, q{SELECT wmstream.wait('quiet', '30 seconds')});
}
is_sql($node, $db, q{SELECT input_rows FROM wmstream.stat_streams WHERE stream = 'quiet'::regclass}, '82', 'many transactions delay nobody who waits');
never_crashed($node);
$node->stop;

# ---- unread input

$node = new_node('unread');
make_database($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE event (ts timestamptz);
	CREATE TABLE other (ts timestamptz);
	SELECT wmstream.create_stream('pair', $$SELECT lower(w) AS since, count(*) AS n FROM (SELECT ts FROM event WHERE wmstream.watermark(ts, '0') UNION ALL SELECT ts FROM other WHERE wmstream.watermark(ts, '0')) u, wmstream.window(ts, '10 minutes') AS w GROUP BY w$$, idle_timeout => '3 seconds');
	BEGIN;
	INSERT INTO event VALUES ('2024-01-01 10:01+00');
	INSERT INTO other VALUES ('2024-01-01 10:00+00');
	COMMIT});
consumes($node, $db, 'pair', 'two sources');
my $session = session($node, $db);
$session->query_safe('BEGIN; LOCK TABLE pair IN ACCESS EXCLUSIVE MODE');
$node->safe_psql($db, q{INSERT INTO event VALUES ('2024-01-01 12:00+00')});
becomes($node, $db, 'pair', 'blocked', 'the stream waits for its result');
$node->safe_psql($db, q{INSERT INTO other VALUES ('2024-01-01 10:30+00')});
$node->safe_psql($db, 'SELECT pg_sleep(5)');	# longer than the timeout: what is tested is that this time does not count
$session->query_safe('COMMIT');
$session->quit;
consumes($node, $db, 'pair', 'it goes on');
is_sql($node, $db, q{SELECT late_rows FROM wmstream.stat_streams}, '0', 'a source whose rows waited to be read was not idle: they are not late');
is_sql($node, $db, q{SELECT watermark = '2024-01-01 10:30+00' FROM wmstream.stat_streams}, 't', '... and held W back');
polls($node, $db, q{SELECT watermark = '2024-01-01 12:00+00' FROM wmstream.stat_streams}, 'later it is idle');
is_sql($node, $db, q{SELECT string_agg(to_char(since AT TIME ZONE 'UTC', 'HH24:MI') || ' ' || n, ', ' ORDER BY since) FROM pair}, '10:00 2, 10:30 1', 'what that closes is there');

# ---- the clock begins anew with the worker

$node->safe_psql($db, q{SELECT wmstream.alter_stream('pair', 'idle_timeout', '8 seconds')});
$node->safe_psql($db, q{BEGIN; INSERT INTO event VALUES ('2024-01-01 13:00+00'); INSERT INTO other VALUES ('2024-01-01 12:30+00'); COMMIT});
consumes($node, $db, 'pair', 'both have rows again');
$node->safe_psql($db, 'SELECT pg_sleep(4)');	# half of the timeout
my $worker = worker_pid($node, $db);
$began = time;
$node->safe_psql($db, "SELECT pg_terminate_backend($worker)");
new_worker($node, $db, $worker, 'a new worker');
polls($node, $db, q{SELECT watermark = '2024-01-01 13:00+00' FROM wmstream.stat_streams}, 'idle once more');
cmp_ok(time - $began, '>=', 7.5, '... not before the whole time has passed in the new worker');
$node->safe_psql($db, q{INSERT INTO other VALUES ('2024-01-01 12:40+00'), ('2024-01-01 13:20+00')});
consumes($node, $db, 'pair', 'the idle source has rows again');
is_sql($node, $db, q{SELECT late_rows FROM wmstream.stat_streams}, '1', '... and the one that is before W is late');

# ---- a flow that was made anew and put off before it ran: the clock asks it for nothing

$node->safe_psql($db, q{SELECT wmstream.create_stream('beside', 'SELECT ts FROM other')});
consumes($node, $db, 'beside');
my $offset = -s $node->logfile;
$node->safe_psql($db, q{ALTER SYSTEM SET wmstream.test_point = 'flow-made:wait:pair'});
$node->reload;
$node->safe_psql($db, q{ALTER TABLE event ADD COLUMN spare int});
$node->wait_for_log(qr/test point "flow-made": waiting/, $offset);
$node->safe_psql($db, q{SELECT wmstream.alter_stream('beside', 'on_error', 'skip')});	# the news for which it is put off
$node->safe_psql($db, q{ALTER SYSTEM RESET wmstream.test_point});
$node->reload;
$node->safe_psql($db, q{INSERT INTO event VALUES ('2024-01-01 14:00+00')});
consumes($node, $db, $_) foreach qw(pair beside);
is_sql($node, $db, q{SELECT count(*) FROM wmstream.streams WHERE status = 'running'}, '2', 'all run');
never_crashed($node);
$node->stop;
done_testing();
