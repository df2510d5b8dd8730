# What is due happens without anybody's waking the worker, which looks by itself once a minute here (poll_interval): every wait that comes to its end
# long before that tells. And the clock of a batch is the moment of the batch, however long ago the one before it was.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my ($db, $other) = qw(db other);
my $patience = '20 seconds';	# less than poll_interval
my $node = new_node('due', "wmstream.poll_interval = '60s'\nwmstream.max_batch_rows = 10\n");

make_database($node, $db);

# ---- rows that fail are left out one by one: each costs a run of the batch, and none a look

for my $kind (qw(table queue))
{
	$node->safe_psql($db, "CREATE TABLE of_$kind (ts timestamptz, k int, v int)");
	$node->safe_psql($db, "SELECT wmstream.create_queue('of_$kind')") if $kind eq 'queue';
	$node->safe_psql($db, "SELECT wmstream.create_stream('by_$kind', 'SELECT k, count(*) AS n, sum(100 / v) AS x FROM of_$kind GROUP BY k', output_mode => 'update', on_error => 'skip')");
	consumes($node, $db, "by_$kind", "a stream of a $kind");
	for my $round (1 .. 3)
	{
		consumes_after($node, $db, $patience, "INSERT INTO of_$kind SELECT now(), 1, CASE WHEN i % 3 > 0 THEN 1 ELSE 0 END FROM generate_series(1, 9) i", "by_$kind", "$kind: bad rows, round $round");
	}
	is_sql($node, $db, "SELECT n, x FROM by_$kind", '18|1800', "$kind: all good rows are in the result");
}

# ---- a stream that is made right after its table, with nobody who waits for it

$node->safe_psql($db, q{CREATE TABLE fresh (k int); SELECT wmstream.create_stream('made', 'SELECT k FROM fresh')});
becomes($node, $db, 'made', 'running', 'a new stream comes to run');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('made')});

# ---- many batches of a queue, while the WAL that is read says nothing of them

for my $round (1 .. 3)
{
	consumes_after($node, $db, $patience, "INSERT INTO of_queue SELECT now(), 2, 1 FROM generate_series(1, 5) i;\n" x 40, 'by_queue', "many batches of a queue, round $round");
}
is_sql($node, $db, 'SELECT n FROM by_queue WHERE k = 2', '600', 'all of them are in the result');

# ---- a command that is left open and rolled back

my $session = session($node, $db);
for my $round (1 .. 2)
{
	my $worker = worker_pid($node, $db);

	$session->query_safe(q{BEGIN; SELECT wmstream.alter_stream('by_table', 'on_error', 'stop')});
	$node->safe_psql($db, "INSERT INTO of_table VALUES (now(), 3, 1); SELECT pg_terminate_backend($worker)");
	becomes($node, $db, 'by_table', 'blocked', "round $round: the new worker finds the stream held");
	$session->query_safe('ROLLBACK');
	consumes_after($node, $db, $patience, 'INSERT INTO of_table VALUES (now(), 3, 1)', 'by_table', "round $round: ... and goes on when it is given back");
}
is_sql($node, $db, 'SELECT n FROM by_table WHERE k = 3', '4', 'with nothing lost');

# ---- rows that were taken in and wait for their firing are not done, for another worker neither

$node->safe_psql($db, q{CREATE TABLE ticked (ts timestamptz, k int);
	SELECT wmstream.create_stream('rarely', 'SELECT k, count(*) AS n FROM ticked GROUP BY k', output_mode => 'update', trigger_interval => '15 seconds')});
consumes($node, $db, 'rarely', 'a stream that fires now and then');
consumes_after($node, $db, $patience, 'INSERT INTO ticked VALUES (now(), 1)', 'rarely', 'it has fired');
$node->safe_psql($db, q{INSERT INTO ticked VALUES (now(), 1); SELECT wmstream.wait('by_table')});
polls($node, $db, q{SELECT input_rows FROM wmstream.stat_streams WHERE stream = 'rarely'::regclass}, 'a row is taken in', '2');
my $worker = worker_pid($node, $db);
$session->query_safe('BEGIN; LOCK TABLE rarely IN SHARE MODE');
$node->safe_psql($db, "SELECT pg_terminate_backend($worker)");
new_worker($node, $db, $worker, 'a new worker');
my (undef, undef, $stderr) = $node->psql($db, q{SELECT wmstream.wait('rarely', '18 seconds')});
like($stderr, qr/timeout while waiting for stream "rarely"/, 'wait does not return before the row is in the result');
is_sql($node, $db, 'SELECT n FROM rarely', '1', '... where it is not while the result is locked');
$session->query_safe('COMMIT');
$session->quit;
consumes($node, $db, 'rarely', 'with the lock gone it fires');
is_sql($node, $db, 'SELECT n FROM rarely', '2', '... and the row is there');

# ---- a place that another database gives back

make_database($node, $other);
$node->safe_psql($other, 'CREATE TABLE t (k int)');
$node->safe_psql($other, "SELECT wmstream.create_stream('s$_', 'SELECT k FROM t')") for 1 .. 2;
consumes($node, $other, 's2');
my $streams = $node->safe_psql($db, 'SELECT count(*) FROM wmstream.streams') + 1;
$node->append_conf('postgresql.conf', "wmstream.max_streams = $streams");
$node->restart;
polls($node, $_, q{SELECT bool_or(status <> 'starting') FROM wmstream.streams}, "streams of $_ have found places") for $db, $other;
my ($full, $short) = $node->safe_psql($other, q{SELECT count(*) FROM wmstream.streams WHERE status = 'running'}) == 2 ? ($other, $db) : ($db, $other);
my $placeless = $node->safe_psql($short, q{SELECT stream FROM wmstream.streams WHERE status = 'starting'});
isnt($placeless, '', "a stream of $short has none");
my $any = $node->safe_psql($full, 'SELECT min(stream::text) FROM wmstream.streams');
$node->safe_psql($full, "SELECT wmstream.drop_stream('$any')");
becomes($node, $short, $placeless, 'running', '... until one is given back');

never_crashed($node);
$node->stop;

# ---- the clock of a batch

$node = new_node('clock');
make_database($node, $db);
$node->safe_psql($db, q{CREATE TABLE told (id int, ts timestamptz DEFAULT clock_timestamp());
	SELECT wmstream.create_stream('by_clock', $$SELECT lower(w) AS since, max(id) AS id, count(*) AS n FROM told, wmstream.window(now(), '1 second') AS w GROUP BY w$$);
	SELECT wmstream.create_stream('by_time', $$SELECT lower(w) AS since, count(*) AS n FROM told, wmstream.window(ts, '1 second') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w$$, max_future => '2 seconds')});
for my $id (1 .. 3)
{
	$node->safe_psql($db, "INSERT INTO told VALUES ($id); SELECT wmstream.wait('by_time'); SELECT wmstream.wait('by_clock'); SELECT pg_sleep(3)");	# longer than max_future
}
is_sql($node, $db, q{SELECT future_rows, late_rows FROM wmstream.stat_streams WHERE stream = 'by_time'::regclass}, '0|0', 'rows of now are not of the future, however long nothing came before');
polls($node, $db, 'SELECT count(*) FROM by_clock', 'all windows of the clock close', '3');
is_sql($node, $db, q{SELECT count(*) FROM told JOIN by_clock USING (id) WHERE since + interval '1 second' <= ts}, '0', 'no row lies in a window that had closed when it came');
never_crashed($node);
$node->stop;

done_testing();
