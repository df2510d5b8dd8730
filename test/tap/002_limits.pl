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
fails_like($node, 'db', "SELECT * FROM wmstream.$_", [qr/shared_preload_libraries/], "... $_") foreach ('streams', 'stat_streams');
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

$node = new_node('processes', "max_worker_processes = 1\n");
make_database($node, 'db');
$node->safe_psql('db', 'CREATE TABLE event (id int)');
names_setting($node, 'db', 'max_worker_processes');
$node->safe_psql('db', q{SELECT wmstream.drop_stream('copy', true)}) if $node->safe_psql('db', q{SELECT to_regclass('copy') IS NOT NULL}) eq 't';
set_and_restart($node, 'max_worker_processes', 2);
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

# ---- more streams than places: some wait for one, lose nothing, and disturb nobody

sub has_all
{
	my ($node, $stream, $source, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql('db', "SELECT wmstream.wait('$stream')");
	is_sql($node, 'db', "SELECT count(*) FROM ((TABLE $source EXCEPT ALL TABLE $stream) UNION ALL (TABLE $stream EXCEPT ALL TABLE $source)) x", '0', $name);
	return;
}

sub restart_with_places
{
	my ($node, $places) = @_;

	$node->append_conf('postgresql.conf', "wmstream.max_streams = $places\n");
	$node->restart;
	return;
}

my $waiting = q{SELECT count(*) FROM wmstream.streams WHERE status = 'starting' AND reason LIKE '%wmstream.max_streams%'};

$node = new_node('few_places', "wmstream.max_streams = 4\n");
make_database($node, 'db');
$node->safe_psql('db', q{CREATE TABLE event (id int); CREATE TABLE line (id int)});
$node->safe_psql('db', q{SELECT wmstream.create_queue('line', "trim" => true)});
fails_like($node, 'db', q{SELECT wmstream.create_stream('many' || i, 'SELECT id FROM event') FROM generate_series(1, 5) i}, [qr/wmstream\.max_streams/],
	'more streams than places in one transaction');
$node->safe_psql('db', qq{SELECT wmstream.create_stream('copy$_', 'SELECT id FROM event')}) for 1 .. 3;
$node->safe_psql('db', q{SELECT wmstream.create_stream('lines', 'SELECT id FROM line')});
$node->safe_psql('db', 'INSERT INTO event VALUES (1)');
has_all($node, "copy$_", 'event', "copy$_ has its row") for 1 .. 3;

restart_with_places($node, 1);
polls($node, 'db', "SELECT ($waiting) = 3", 'three of four streams wait for a place, and say so');
$node->safe_psql('db', q{INSERT INTO event VALUES (2); INSERT INTO line VALUES (2)});
my $running = $node->safe_psql('db', q{SELECT stream FROM wmstream.streams WHERE status <> 'starting'});
has_all($node, $running, $running eq 'lines' ? 'line' : 'event', 'the one that has a place goes on');
$node->safe_psql('db', "SELECT wmstream.drop_stream('$running', true)");
polls($node, 'db', "SELECT ($waiting) = 2", 'its place goes to another one');
$node->safe_psql('db', q{INSERT INTO event VALUES (3)});

restart_with_places($node, 4);
$node->safe_psql('db', q{INSERT INTO event VALUES (4)});
has_all($node, "copy$_", 'event', "copy$_ has all rows") for grep { "copy$_" ne $running } 1 .. 3;
$node->safe_psql('db', q{SELECT wmstream.wait('lines')}) if $running ne 'lines';
is_sql($node, 'db', q{SELECT id FROM lines}, '2', 'a queue keeps its rows for a stream that waits') if $running ne 'lines';
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
