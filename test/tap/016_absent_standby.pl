# A synchronous standby is away, so that commits are in WAL, and decoded, and nobody sees them. A stream that joins tables as they are now waits for
# its rows to be visible, and says so; nothing and nobody else waits: other streams, of tables and of queues, commands, DROP DATABASE, DDL,
# new streams. When the standby is not waited for any more nothing is lost.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WmsTap;

my $node = new_node('standby');
my $db = 'db';
my $local = 'SET synchronous_commit = local';
my @hanging;

make_database($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE event (id int, k int);
	CREATE TABLE name (k int, name text);
	CREATE TABLE plain (id int);
	CREATE TABLE queue (id int);
	CREATE TABLE later (id int);
	CREATE VIEW shown AS SELECT id FROM plain;
	SELECT wmstream.create_queue('queue', false)});
$node->safe_psql($db, $_) foreach (
	q{SELECT wmstream.create_stream('joined', 'SELECT id, name FROM event JOIN name USING (k) WHERE wmstream.watermark(to_timestamp(id), NULL)')},
	q{SELECT wmstream.create_stream('joined_too', 'SELECT id, name FROM event JOIN name USING (k) WHERE wmstream.watermark(to_timestamp(id), NULL)')},
	q{SELECT wmstream.create_stream('other', 'SELECT id FROM plain')},
	q{SELECT wmstream.create_stream('viewed', 'SELECT id FROM shown')},
	q{SELECT wmstream.create_stream('queued', 'SELECT id FROM queue')});

sub standby
{
	my ($name) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	return;
}

# A session whose commit waits for the standby.
sub hangs
{
	my ($sql, $database) = @_;
	my $session = session($node, $database // $db);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	push @hanging, $session;
	$session->query_until(qr/begun/, "\\echo begun\n$sql;\n");
	return polls($node, 'postgres', "SELECT count(*) = " . scalar(@hanging) . " FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "its commit waits: $sql");
}

sub standby_is_back
{
	standby('');
	$_->quit foreach (@hanging);
	@hanging = ();
	return;
}

# It has all rows of its table, each once, soon.
sub goes_on
{
	my ($stream, $table, $test) = @_;
	my $began = time;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, "$local; INSERT INTO $table SELECT coalesce(max(id), 0) + 1 FROM $table");
	my ($ret, undef, $stderr) = $node->psql($db, "SELECT wmstream.wait('$stream', '10 s')");
	ok($ret == 0, "$test: $stream goes on") || diag($stderr);
	return is_sql($node, $db, "SELECT count(*), count(DISTINCT id), max(id) FROM $stream", $node->safe_psql($db, "SELECT count(*), count(*), max(id) FROM $table"),
		'... with each row once');
}

sub others_go_on
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	goes_on('other', 'plain', $test);
	goes_on('queued', 'queue', $test);
	return;
}

sub is_joined
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $stream ('joined', 'joined_too')
	{
		consumes($node, $db, $stream, "$test: $stream");
		is_sql($node, $db, "SELECT id, name FROM $stream ORDER BY id", $node->safe_psql($db, 'SELECT id, name FROM event JOIN name USING (k) ORDER BY id'),
			'... has what the query gives');
	}
	return;
}

others_go_on('before');
$node->safe_psql($db, q{INSERT INTO name VALUES (1, 'one'); INSERT INTO event VALUES (1, 1)});
is_joined('before');

# ---- rows that are not visible yet

standby('nobody');
hangs(q{BEGIN; INSERT INTO name VALUES (2, 'two'); INSERT INTO event VALUES (2, 2); COMMIT});
others_go_on('rows that nobody sees');
is_sql($node, $db, q{SELECT max(id) FROM joined}, '1', 'they are not joined before they are visible');
foreach my $stream ('joined', 'joined_too')
{
	becomes($node, $db, $stream, 'blocked', "$stream waits");
	like($node->safe_psql($db, "SELECT reason FROM wmstream.streams WHERE stream = '$stream'::regclass"),
		qr/^transaction \d+, .* is not visible yet: its commit may wait for a synchronous standby$/, '... and says what for');
}
fails_like($node, $db, q{SELECT wmstream.wait('joined', '1 s')}, [qr/The stream is blocked: transaction \d+/], '... to who waits for it, too');
$node->safe_psql($db, "$local; INSERT INTO event VALUES (3, 1)");
others_go_on('... more rows for it');
$node->safe_psql($db, "$local; SELECT wmstream.pause('joined_too')");
becomes($node, $db, 'joined_too', 'paused', 'it can be paused');
$node->safe_psql($db, "$local; SELECT wmstream.resume('joined_too')");
becomes($node, $db, 'joined_too', 'blocked', '... and resumed, and waits again');
my $worker = worker_pid($node, $db);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
new_worker($node, $db, $worker, 'a new worker');
becomes($node, $db, 'joined', 'blocked', '... finds the same');
others_go_on('a new worker');
standby_is_back();
is_joined('rows that became visible');
becomes($node, $db, 'joined', 'running');

# ---- catalogs that are not visible yet

standby('nobody');
hangs('CREATE TABLE unrelated (x int)');
others_go_on('DDL that nobody sees');
hangs('CREATE OR REPLACE VIEW shown AS SELECT id FROM plain WHERE id > 0');
others_go_on('DDL that a stream depends on');
$node->safe_psql($db, "$local; INSERT INTO name VALUES (4, 'four'); INSERT INTO event VALUES (4, 4)");
is_joined('beside DDL');
hangs(q{SELECT wmstream.create_stream('new', 'SELECT id FROM later')});
others_go_on('a new stream that nobody sees');
$node->safe_psql($db, "$local; INSERT INTO later VALUES (1)");
standby_is_back();
goes_on('new', 'later', 'what came while nobody saw the new stream');
goes_on('viewed', 'plain', 'a definition that was changed');

# ---- a fill, which begins with what is visible

standby('nobody');
hangs('INSERT INTO later VALUES (3)');
$node->safe_psql($db, qq{$local; SELECT wmstream.create_stream('filled', 'SELECT id FROM later', start_from => 'beginning')});
becomes($node, $db, 'filled', 'blocked', 'it waits');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'filled'::regclass}), qr/^transaction \d+, .* is not visible yet/, '... and says what for');
polls($node, $db, q{SELECT count(*) = 0 FROM pg_locks WHERE relation = 'later'::regclass AND pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%')},
	'... and locks nothing meanwhile');
others_go_on('a fill');
$node->safe_psql($db, "$local; SELECT wmstream.drop_stream('filled', true)");
polls($node, 'postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'wmstream follower'}, 'a stream that waits to be filled can be dropped');
$node->safe_psql($db, qq{$local; SELECT wmstream.create_stream('filled', 'SELECT id FROM later', start_from => 'beginning')});
standby_is_back();
goes_on('filled', 'later', 'a fill that waited');

# ---- the worker goes when it is to

standby('nobody');
hangs(q{BEGIN; INSERT INTO name VALUES (5, 'five'); INSERT INTO event VALUES (5, 5); COMMIT});
becomes($node, $db, 'joined', 'blocked');
my ($ret, undef, $stderr) = $node->psql('postgres', "$local; SET statement_timeout = '20 s'; DROP DATABASE $db WITH (FORCE)", timeout => 60);
is("$ret $stderr", '0 ', 'DROP DATABASE does not wait');
no_worker($node, $db, '... and the worker is gone');
standby('');
never_crashed($node);
$node->stop;
done_testing();
