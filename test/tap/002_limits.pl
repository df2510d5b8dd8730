# What is missing is named: the library not preloaded, wal_level, slots, processes, places for streams. Each error tells the setting and
# the way out, leaves nothing behind, and the stream works once the setting is right.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $create = q{SELECT wmstream.create_stream('copy', 'SELECT id FROM event')};

# A database with a source table; create_stream there fails and names what it must.
sub refuses
{
	my ($node, $database, $patterns, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	make_database($node, $database);
	$node->safe_psql($database, 'CREATE TABLE event (id int)');
	fails_like($node, $database, $create, $patterns, $test);
	is_sql($node, $database, q{SELECT to_regclass('copy') IS NULL}, 't', '... and leaves no table');
	no_slot($node, '... and no slot');
	return;
}

# After the restart or reload the same call works, and rows flow.
sub works_now
{
	my ($node, $database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($database, $create);
	flows($node, $database, $test);
	return;
}

sub flows
{
	my ($node, $database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($database, 'INSERT INTO event VALUES (1)');
	consumes($node, $database, 'copy', "$test: a stream runs");
	is_sql($node, $database, 'SELECT count(*) FROM copy', '1', "$test: with its row");
	return;
}

sub set_and_restart
{
	my ($node, $setting, $value) = @_;

	$node->append_conf('postgresql.conf', "$setting = $value");
	$node->restart;
	return;
}

# ---- not preloaded

my $node = new_node('preload', "shared_preload_libraries = ''\n");
refuses($node, 'db', [qr/shared_preload_libraries/, qr/wmstream/], 'not preloaded: the error names shared_preload_libraries');
set_and_restart($node, 'shared_preload_libraries', "'wmstream'");
works_now($node, 'db', 'preloaded');

# Streams of a server that no longer preloads the library: what can be asked still is an answer, not a crash.
set_and_restart($node, 'shared_preload_libraries', "''");
fails_like($node, 'db', q{SELECT wmstream.wait('copy', '5 s')}, [qr/shared_preload_libraries/], 'wait without the library preloaded');
is_sql($node, 'db', q{SELECT count(*) FROM copy}, '1', 'the result stays readable');
$node->psql('db', 'SELECT * FROM wmstream.streams');
$node->psql('db', 'SELECT * FROM wmstream.stat_streams');
is_sql($node, 'db', 'INSERT INTO event VALUES (2) RETURNING id', '2', 'the source stays writable');
set_and_restart($node, 'shared_preload_libraries', "'wmstream'");
consumes($node, 'db', 'copy', 'preloaded again: goes on');
is_sql($node, 'db', 'SELECT count(*) FROM copy', '2', '... with what was written meanwhile');
never_crashed($node);
$node->stop;

# ---- wal_level

$node = new_node('wal_level', "wal_level = replica\n");
refuses($node, 'db', [qr/wal_level/, qr/logical/], 'wal_level = replica: the error names it and the value');
set_and_restart($node, 'wal_level', 'logical');
works_now($node, 'db', 'wal_level = logical');
never_crashed($node);
$node->stop;

# ---- replication slots

$node = new_node('slots', "max_replication_slots = 1\n");
$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('other')});
refuses($node, 'db', [qr/max_replication_slots/], 'no free slot: the error names max_replication_slots');
set_and_restart($node, 'max_replication_slots', 2);
works_now($node, 'db', 'one slot more');
never_crashed($node);
$node->stop;

# ---- processes: the server's own limit (one goes to the server's logical replication launcher, one to ours)

$node = new_node('processes', "max_worker_processes = 2\n");
make_database($node, 'db');
$node->safe_psql('db', 'CREATE TABLE event (id int)');
names_setting($node, 'db', 'max_worker_processes');
set_and_restart($node, 'max_worker_processes', 3);
$node->psql('db', $create);
flows($node, 'db', 'one process more');
never_crashed($node);
$node->stop;

# ---- processes: our share

$node = new_node('share', "wmstream.max_workers = 1\n");
make_database($node, 'first');
$node->safe_psql('first', 'CREATE TABLE event (id int)');
works_now($node, 'first', 'the first database');
make_database($node, 'second');
$node->safe_psql('second', 'CREATE TABLE event (id int)');
names_setting($node, 'second', 'wmstream.max_workers');
$node->append_conf('postgresql.conf', 'wmstream.max_workers = 2');
$node->reload;
$node->psql('second', $create);
flows($node, 'second', 'the second database');
$node->safe_psql('first', 'INSERT INTO event VALUES (2)');
consumes($node, 'first', 'copy', 'the first database goes on');
never_crashed($node);
$node->stop;

# ---- places for streams

$node = new_node('places', "wmstream.max_streams = 1\n");
make_database($node, 'db');
$node->safe_psql('db', 'CREATE TABLE event (id int)');
works_now($node, 'db', 'the only place');
fails_like($node, 'db', q{SELECT wmstream.create_stream('copy2', 'SELECT id FROM event')}, [qr/wmstream\.max_streams/],
	'no free place: the error names wmstream.max_streams');
is_sql($node, 'db', q{SELECT to_regclass('copy2') IS NULL}, 't', '... and leaves no table');
$node->safe_psql('db', 'INSERT INTO event VALUES (2)');
consumes($node, 'db', 'copy', 'the first stream goes on');
$node->safe_psql('db', q{SELECT wmstream.drop_stream('copy', true)});
polls($node, 'db', q{SELECT count(*) = 0 FROM wmstream.streams}, 'the place is free again');
works_now($node, 'db', 'the place taken again');
never_crashed($node);
$node->stop;

# Either create_stream fails and names the setting, or it succeeds and the stream's reason names it.
sub names_setting
{
	my ($node, $database, $setting) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($database, $create, timeout => 60);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	if ($ret != 0)
	{
		return like($stderr, qr/\Q$setting\E/, "no free process: create_stream's error names $setting");
	}
	return polls($node, $database, "SELECT reason LIKE '%$setting%' FROM wmstream.streams", "no free process: the reason names $setting");
}

done_testing();
