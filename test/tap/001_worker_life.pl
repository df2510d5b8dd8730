# Where and when workers run: from create_stream's commit to the end of the last stream, over restarts and crashes, in the
# databases that have streams and in no other; and what DROP DATABASE, DROP EXTENSION and templates leave behind.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('life');

my $tables = 'CREATE TABLE event (id int, ts timestamptz, v int)';
my $create = q{SELECT wmstream.create_stream('copy', 'SELECT id, v FROM event')};
my $hourly = q{SELECT wmstream.create_stream('hourly', $$
	SELECT lower(w) AS hour, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
	WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w $$)};
my $next_id = 1;

# One more committed row; the stream must come to have it, and all before it once.
sub row_arrives
{
	my ($database, $test) = @_;
	my $id = $next_id++;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($database, "INSERT INTO event VALUES ($id, '2024-01-01 00:00+00', $id)");
	consumes($node, $database, 'copy', "$test: all is consumed");
	is_sql($node, $database, 'SELECT count(*), count(DISTINCT id), max(id) FROM copy',
		$node->safe_psql($database, 'SELECT count(*), count(*), max(id) FROM event'), "$test: each row once");
	return;
}

# The mark by which the launcher knows databases with streams.
sub marked
{
	my ($database, $expected, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, 'postgres', "SELECT count(l.*) = $expected FROM pg_database d LEFT JOIN pg_shseclabel l "
		  . "ON l.objoid = d.oid AND l.classoid = 'pg_database'::regclass AND l.provider = 'wmstream' WHERE datname = '$database'", $test);
}

sub slot_of
{
	my ($database) = @_;

	return 'wmstream_' . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
}

# ---- before the first stream

polls($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname IS NULL",
	'the launcher runs');
make_database($node, $_) foreach ('one', 'two', 'bare', 'pattern');
$node->safe_psql($_, $tables) foreach ('one', 'two', 'pattern');

$node->safe_psql('one', "BEGIN; $create; ROLLBACK");
no_slot($node, 'a create_stream that was rolled back leaves no slot', slot_of('one'));
is_sql($node, 'one', q{SELECT to_regclass('copy') IS NULL AND NOT EXISTS (SELECT FROM wmstream.streams)}, 't',
	'... and nothing else');

# ---- the first stream

my $session = session($node, 'one');
$session->query_safe('BEGIN');
$session->query_safe($create);
is_sql($node, 'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname = 'one'", '0',
	'no worker before create_stream commits');
$session->query_safe('COMMIT');
$session->quit;
worker_runs($node, 'one', 'the worker starts when create_stream commits');
row_arrives('one', 'first row');

is_sql($node, 'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname IN ('two', 'bare')", '0',
	'no worker in databases without streams');

$node->safe_psql('one', $hourly);
is_sql($node, 'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname = 'one'", '1',
	'a second stream has the same worker');
is_sql($node, 'postgres', "SELECT count(*) FROM pg_replication_slots WHERE database = 'one'", '1', '... and the same slot');

$node->safe_psql('two', $create);
worker_runs($node, 'two', 'a second database gets a worker of its own');
row_arrives('two', 'second database');
row_arrives('one', 'first database beside it');

# ---- first streams of several sessions at once: one makes the slot, which waits for who writes, the others wait for it

make_database($node, 'crowd');
$node->safe_psql('crowd', $tables);
my $writer = session($node, 'crowd');
$writer->query_safe('BEGIN; INSERT INTO event VALUES (1)');
my @makers = map { session($node, 'crowd', on_error_stop => 0) } (1 .. 3);
foreach my $i (0 .. 2)
{
	$makers[$i]->query_until(qr/begun/, "\\echo begun\nSELECT wmstream.create_stream('copy$i', 'SELECT id, v FROM event');\n");
}
polls($node, 'postgres', "SELECT count(*) = 3 FROM pg_stat_activity WHERE datname = 'crowd' AND state = 'active' AND query LIKE '%create_stream%'",
	'three sessions make the first stream of a database');
$writer->query_safe('COMMIT');
$writer->quit;
foreach my $i (0 .. 2)
{
	$makers[$i]->query_until(qr/done/, "\\echo done\n");
	$makers[$i]->quit;
}
$node->safe_psql('crowd', 'INSERT INTO event VALUES (2)');
foreach my $i (0 .. 2)
{
	is_sql($node, 'crowd', "SELECT to_regclass('copy$i') IS NOT NULL", 't', "stream $i of them was made") or next;
	consumes($node, 'crowd', "copy$i", "stream $i of them runs");
	is_sql($node, 'crowd', "SELECT id FROM copy$i", '2', '... from its beginning on');
}
$node->safe_psql('postgres', 'DROP DATABASE crowd');

# ---- a template

$node->safe_psql('pattern', $create);
worker_runs($node, 'pattern', 'worker in what becomes a template');
row_arrives('pattern', 'before it is a template');
$node->safe_psql('postgres', 'ALTER DATABASE pattern IS_TEMPLATE true');

# ---- ends of the worker, and of the server

my $pid = worker_pid($node, 'one');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
new_worker($node, 'one', $pid, 'a worker that was terminated comes back');
row_arrives('one', 'after pg_terminate_backend');

$node->restart;
worker_runs($node, $_, "the worker of $_ is back after a restart") foreach ('one', 'two');
row_arrives('one', 'after a restart');
row_arrives('two', 'after a restart');
no_worker($node, 'pattern', 'no worker in a template');

$pid = worker_pid($node, 'one');
my $offset = -s $node->logfile;
kill 'KILL', $pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
$node->poll_query_until('postgres', 'SELECT true') or die 'the server does not come back';
new_worker($node, 'one', $pid, 'a worker that was killed comes back, with the server');
row_arrives('one', 'after kill -9');
row_arrives('two', 'after kill -9 of the other worker');

$node->stop('immediate');
$node->start;
row_arrives($_, 'after an immediate stop') foreach ('one', 'two');

# ---- databases that cannot be connected to

# A worker that somebody ends is started again at the launcher's next look, which is at all databases.
sub launcher_looks
{
	my ($old) = worker_pid($node, 'one');

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
	return new_worker($node, 'one', $old, '... the launcher has looked');
}

# What the log has of workers that could not begin: when, in seconds of the day.
sub vain_starts
{
	my ($error) = @_;

	return map { /(\d+):(\d+):([\d.]+) \S+ \[\d+\] wmstream worker\s+FATAL:  $error/ ? $1 * 3600 + $2 * 60 + $3 : () } split(/\n/, slurp_file($node->logfile));
}

# An interrupted DROP DATABASE leaves it.
$node->safe_psql('postgres', q{UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'two'});
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . worker_pid($node, 'two') . ')');
no_worker($node, 'two', 'a database that became invalid');
launcher_looks() foreach (1 .. 2);
is(scalar(vain_starts('cannot connect to invalid database')), 0, '... and no worker is started for it');
row_arrives('one', 'beside an invalid database');
$node->safe_psql('postgres', q{UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'two'});
worker_runs($node, 'two', 'valid again, it has a worker');
row_arrives('two', '... which goes on');

# What keeps workers from beginning may last.
my $directory = $node->data_dir . '/base/' . $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'two'});
my $ended = worker_pid($node, 'two');
$node->safe_psql('postgres', 'CHECKPOINT');
rename($directory, "$directory.away") or die $!;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($ended)");
$node->wait_for_log(qr/(?:wmstream worker\s+FATAL:  database "two" does not exist.*?){3}/s);
rename("$directory.away", $directory) or die $!;
my @starts = vain_starts('database "two" does not exist');
cmp_ok($starts[2] - $starts[1], '>', 1.5, 'workers that do not come to begin are started later each time');
worker_runs($node, 'two', 'once it can begin it does');
row_arrives('two', '... and goes on');

# ---- a database that is renamed by a prepared transaction

$node->safe_psql('postgres', q{BEGIN; ALTER DATABASE two RENAME TO deux; PREPARE TRANSACTION 'renaming'});
no_worker($node, 'two', 'a database is renamed, and that is prepared');
row_arrives('one', '... beside it');
$node->safe_psql('postgres', q{COMMIT PREPARED 'renaming'});
worker_runs($node, 'deux', 'renamed, it has its worker again');
row_arrives('deux', '... which goes on');
$node->safe_psql('postgres', 'ALTER DATABASE deux RENAME TO two');
worker_runs($node, 'two', 'and under its former name');

# ---- a copy of a database that has streams

$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE pattern');
is_sql($node, 'copied', 'SELECT status FROM wmstream.streams', 'restored', 'a stream that came with a template is restored');
is_sql($node, 'copied', 'SELECT count(*) = (SELECT count(*) FROM event) FROM copy', 't', '... with its result');
no_worker($node, 'copied', '... and has no worker');
$node->safe_psql('copied', q{SELECT wmstream.drop_stream('copy')});

# ---- ends of streams

$node->safe_psql('one', q{SELECT wmstream.drop_stream('hourly')});
row_arrives('one', 'one of two streams dropped');
is_sql($node, 'one', q{SELECT count(*) FROM pg_class WHERE oid = 'hourly'::regclass}, '1', 'drop_stream keeps the result');
my $slot = slot_of('one');
$node->safe_psql('one', q{SELECT wmstream.drop_stream('copy', true)});
no_worker($node, 'one', 'the worker goes with the last stream');
no_slot($node, 'the slot goes with the last stream', $slot);
marked('one', 0, '... and the mark on the database');
is_sql($node, 'one', q{SELECT to_regclass('copy') IS NULL}, 't', 'drop_stream with drop_results drops the table');
is_sql($node, 'one', 'SELECT count(*) FROM wmstream.state_log', '0', 'no state is left');

$node->safe_psql('one', $create);
worker_runs($node, 'one', 'a new stream, a new worker');
$node->safe_psql('one', "INSERT INTO event VALUES (1000, '2024-01-01 00:00+00', 1)");
consumes($node, 'one', 'copy');
is_sql($node, 'one', 'SELECT id FROM copy', '1000', 'it begins with what comes after it');

# ---- DROP EXTENSION

$node->safe_psql('one', 'DROP EXTENSION wmstream');
no_worker($node, 'one', 'DROP EXTENSION ends the worker');
no_slot($node, '... and drops the slot', $slot);
marked('one', 0, '... and takes the mark away');
is_sql($node, 'one', 'SELECT id FROM copy', '1000', '... and keeps results');
$node->safe_psql('one', 'INSERT INTO copy VALUES (1, 1)');
pass('... as ordinary tables');
$node->safe_psql('one', "CREATE EXTENSION wmstream; TRUNCATE copy");
$node->safe_psql('one', $create);
$node->safe_psql('one', "INSERT INTO event VALUES (1001, '2024-01-01 00:00+00', 1)");
consumes($node, 'one', 'copy', 'the extension made again, a stream into the old result');
is_sql($node, 'one', 'SELECT id FROM copy', '1001', '... goes on with new rows');

$session = session($node, 'one');
$session->query_safe('BEGIN');
$session->query_safe('DROP EXTENSION wmstream');
$session->query_safe('ROLLBACK');
$session->quit;
$node->safe_psql('one', "INSERT INTO event VALUES (1002, '2024-01-01 00:00+00', 1)");
consumes($node, 'one', 'copy', 'a DROP EXTENSION that was rolled back ends nothing');
is_sql($node, 'one', 'SELECT count(*) FROM copy', '2', '... and loses nothing');

# ---- DROP DATABASE with a running worker

foreach my $database ('one', 'two')
{
	$slot = slot_of($database);
	worker_runs($node, $database, "there is a worker in $database");
	my ($ret, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '20s'; DROP DATABASE $database");
	is("$ret $stderr", '0 ', "DROP DATABASE $database does not wait for its worker");
	no_worker($node, $database, '... ends it');
	no_slot($node, '... and drops the slot', $slot);
}
$node->safe_psql('postgres', 'ALTER DATABASE pattern IS_TEMPLATE false; DROP DATABASE pattern; DROP DATABASE copied; DROP DATABASE bare');
no_slot($node, 'no slot is left in the cluster');

never_crashed($node, "PID $pid\\b.*signal 9");
$node->stop;
done_testing();
