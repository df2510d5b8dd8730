# Commands that commit at the moment between a worker's looking at a table and its having the lock.  After an ALTER TABLE that writes all rows anew
# older snapshots see the table empty, so none of them may be used: static tables, results and partitions of them, queues (read and trimmed),
# and sources that fill a stream.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('altered', "wmstream.lock_timeout = 30s\n");
my $db = 'db';
my $other;

make_database($node, $db);
$other = session($node, $db);

sub waits_for_lock
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, $db, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND wait_event_type = 'Lock'}, $test);
}

# Rows come while the table is being written anew; the worker has to wait, and then goes on.
sub beside
{
	my ($alter, $insert, $test, $more) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$other->query_safe("BEGIN; $alter");
	$node->safe_psql($db, $insert);
	waits_for_lock("$test: the worker waits");
	$node->safe_psql($db, $more) if $more;
	$other->query_safe('COMMIT');
	return;
}

# Something is done (by a statement or a function) while a worker stands at the point, which comes before the lock.
sub at_point
{
	my ($point, $insert, $meanwhile, $test, $stream) = @_;
	my $log_end = -s $node->logfile;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	set_point($node, "$point:wait" . ($stream ? ":$stream" : ''));
	$node->safe_psql($db, $insert);
	waits_at($node, $point, $log_end, "$test: the worker stands at $point");
	ref $meanwhile ? $meanwhile->() : $node->safe_psql($db, $meanwhile);
	set_point($node, '');
	return;
}

my $anew = 'ADD COLUMN "more" float8 DEFAULT random()';

# ---- a static table

$node->safe_psql($db, q{
	CREATE TABLE src (id int, k int, ts timestamptz);
	CREATE TABLE dim (k int, name text);
	INSERT INTO dim VALUES (1, 'one')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('named', 'SELECT s.id, d.name FROM src s LEFT JOIN dim d USING (k) WHERE wmstream.watermark(s.ts, NULL)')});
$node->safe_psql($db, q{INSERT INTO src VALUES (1, 1, now())});
consumes($node, $db, 'named');
beside("ALTER TABLE dim $anew", 'INSERT INTO src VALUES (2, 1, now())', 'static table');
consumes($node, $db, 'named');
is_sql($node, $db, 'TABLE named ORDER BY id', "1|one\n2|one", 'rows find what is in a static table');

# ---- results

$node->safe_psql($db, q{SELECT wmstream.create_stream('total', 'SELECT count(*) AS n, max(id) AS last FROM src', output_mode => 'complete')});
$node->safe_psql($db, q{INSERT INTO src VALUES (3, 1, now())});
consumes($node, $db, 'total');
beside("ALTER TABLE total $anew", 'INSERT INTO src VALUES (4, 1, now())', 'result');
consumes($node, $db, 'total');
is_sql($node, $db, 'SELECT n, last FROM total', '2|4', 'what is not in the answer any more is taken out of the result');

$node->safe_psql($db, q{
	CREATE TABLE parted (k int PRIMARY KEY, n bigint) PARTITION BY RANGE (k);
	CREATE TABLE parted_1 PARTITION OF parted DEFAULT});
$node->safe_psql($db, q{SELECT wmstream.create_stream('parted', 'SELECT k, count(*) AS n FROM src GROUP BY k HAVING count(*) < 2', output_mode => 'update')});
$node->safe_psql($db, q{INSERT INTO src VALUES (5, 1, now()), (6, 2, now())});
consumes($node, $db, 'parted');
at_point('batch-fed', 'INSERT INTO src VALUES (7, 1, now())', 'BEGIN; ALTER TABLE parted_1 SET UNLOGGED; ALTER TABLE parted_1 SET LOGGED; COMMIT',
	'partition of a result', 'parted');
consumes($node, $db, 'parted');
is_sql($node, $db, 'TABLE parted', '2|1', '... also where it lies in a partition');
$node->safe_psql($db, q{SELECT wmstream.drop_stream(stream, true) FROM wmstream.streams});

# ---- existing rows

$node->safe_psql($db, q{
	CREATE TABLE whole (id int, ts timestamptz) PARTITION BY RANGE (id);
	CREATE TABLE whole_1 PARTITION OF whole DEFAULT;
	INSERT INTO whole SELECT i, timestamptz '2024-01-01 00:00+00' + i * interval '1 s' FROM generate_series(1, 100) i});
at_point('fill-locking', q{SELECT wmstream.create_stream('filled', 'SELECT id FROM whole', start_from => 'beginning')},
	sub { $other->query_safe('BEGIN; ALTER TABLE whole_1 SET UNLOGGED; ALTER TABLE whole_1 SET LOGGED') }, 'existing rows');
waits_for_lock('existing rows: the worker waits');
$other->query_safe('COMMIT');
becomes($node, $db, 'filled', 'running');
consumes($node, $db, 'filled');
is_sql($node, $db, 'SELECT count(*), count(DISTINCT id) FROM filled', '100|100', 'existing rows of a partition come, each once');

# ---- queues

$node->safe_psql($db, q{CREATE TABLE q (id int); SELECT wmstream.create_queue('q', true)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('copy', 'SELECT id FROM q')});
$node->safe_psql($db, 'INSERT INTO q VALUES (1)');
consumes($node, $db, 'copy');
polls($node, $db, 'SELECT count(*) = 0 FROM q', 'the queue is trimmed');
$node->safe_psql($db, q{SELECT wmstream.set_trim('q', false)});
at_point('queue-read', 'SELECT', sub {
	$node->safe_psql($db, 'INSERT INTO q VALUES (2)');
	at_point('queue-locking', 'SELECT', "ALTER TABLE q $anew", 'queue');
}, 'queue');
consumes($node, $db, 'copy');
is_sql($node, $db, 'TABLE copy ORDER BY id', "1\n2", 'a row that was committed before comes');
at_point('trim-locking', q{SELECT wmstream.set_trim('q', true)}, 'ALTER TABLE q ALTER "more" TYPE text', 'trimming');
polls($node, $db, 'SELECT count(*) = 0 FROM q', '... and goes when all streams have had it');

# ---- a change that comes while what a stream depends on is being looked at; no decoding tells of it once more

$other->quit;
$db = 'queues';
make_database($node, $db);
$other = session($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE q (id int);
	SELECT wmstream.create_queue('q', false);
	CREATE TABLE copied (id int) PARTITION BY RANGE (id);
	CREATE TABLE copied_1 PARTITION OF copied FOR VALUES FROM (1) TO (10);
	CREATE UNLOGGED TABLE copied_2 (id int)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('copied', 'SELECT id FROM q')});
$node->safe_psql($db, 'INSERT INTO q VALUES (1)');
consumes($node, $db, 'copied');
beside('LOCK TABLE copied_1', 'ALTER TABLE q ALTER id SET STATISTICS 10', 'a change', 'ALTER TABLE copied ATTACH PARTITION copied_2 FOR VALUES FROM (10) TO (20)');
becomes($node, $db, 'copied', 'failed', 'a partition that comes after partitions were looked at is noticed');

# ---- whoever waits for a stream is not in the way of somebody who drops it, for whom the stream waits

$node->safe_psql($db, q{CREATE TABLE watched (id int)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('awaited', 'SELECT id FROM watched')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('above', 'SELECT id FROM awaited')});
consumes($node, $db, $_) foreach ('awaited', 'above');
$other->query_safe(q{BEGIN; SELECT wmstream.alter_stream('awaited', 'trigger_interval', '1 hour')});
$node->safe_psql($db, q{INSERT INTO watched VALUES (1)});
my $waiter = session($node, $db, on_error_stop => 0);
$waiter->query_until(qr/begun/, "\\echo begun\nSELECT wmstream.wait('above', '10 minutes');\n");
polls($node, $db, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%wait(''above''%' AND wait_event_type = 'Extension'}, 'a session waits for both');
is($node->safe_psql($db, q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE query LIKE '%wait(''above''%' AND pid <> pg_backend_pid()
	AND locktype <> 'virtualxid' AND relation IS DISTINCT FROM 'pg_class'::regclass}), '0', '... without a lock on anything');
$other->query_safe(q{SET lock_timeout = '20 s'; SELECT wmstream.drop_stream('above', true), wmstream.drop_stream('awaited', true); COMMIT});
$waiter->query(q{SELECT 'goes on'});
like($waiter->{stderr}, qr/table with OID \d+ does not exist/, '... and hears that the stream is gone');
$waiter->quit;

$other->quit;
never_crashed($node);
$node->stop;
done_testing();
