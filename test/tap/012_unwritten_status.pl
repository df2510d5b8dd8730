# A stream that has to stop, when that cannot be written down (a full disk, somebody's lock on its definition): it is blocked, keeps its WAL, and
# stops as soon as it can be written. Whatever happened meanwhile, no stream goes on behind WAL that is gone.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('unwritten', "max_wal_size = 64MB\nmin_wal_size = 32MB\nautovacuum = off\n");
my $db = 'db';
my $next_id = 1;
my $log_offset = 0;

make_database($node, $db);
$node->safe_psql($db, q{CREATE TABLE event (id int); CREATE TABLE line (id int); CREATE TABLE filler (t text)});
$node->safe_psql($db, q{SELECT wmstream.create_queue('line')});
$node->safe_psql($db, "SELECT wmstream.create_stream('$_', 'SELECT id FROM event')") foreach ('copy', 'twin');
$node->safe_psql($db, q{SELECT wmstream.create_stream('lines', 'SELECT id FROM line')});

sub write_rows
{
	$node->safe_psql($db, "INSERT INTO event VALUES ($next_id), (" . ($next_id + 1) . ')');
	$next_id += 2;
	return;
}

sub set_to
{
	my ($setting, $value) = @_;

	$node->safe_psql('postgres', defined $value ? "ALTER SYSTEM SET $setting = '$value'" : "ALTER SYSTEM RESET $setting");
	$node->reload;
	return;
}

sub reason_is
{
	my ($stream, $pattern, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return like($node->safe_psql($db, "SELECT reason FROM wmstream.streams WHERE stream = '$stream'::regclass"), $pattern, $test);
}

# Each row of the source once.
sub is_whole
{
	my ($stream, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is_sql($node, $db, qq{SELECT count(*) FROM ((TABLE event EXCEPT ALL SELECT id FROM $stream) UNION ALL (SELECT id FROM $stream EXCEPT ALL TABLE event)) x},
		'0', $test);
}

# What the slot was told is not beyond the position at which the stream stands.
sub held_wal
{
	my ($stream) = @_;

	return "SELECT confirmed_flush_lsn <= (SELECT position FROM wmstream.streams WHERE stream = '$stream'::regclass) FROM pg_replication_slots WHERE database = '$db'";
}

# The worker comes to the point where copy would stop.
sub tries_to_stop
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(eval { $node->wait_for_log(qr/test point "stop-before-commit" reached/, $log_offset); 1 }, $test);
}

# Much WAL, and no stream's rows in it.
sub write_wal
{
	my ($segments) = @_;

	foreach (1 .. $segments)
	{
		$node->safe_psql($db, q{INSERT INTO filler SELECT repeat('x', 500) FROM generate_series(1, 500); SELECT pg_switch_wal()});
	}
	return;
}

write_rows();
consumes($node, $db, $_) foreach ('copy', 'twin');

# ---- a full disk at each step of a batch: blocked with a word, and on by itself

foreach my $point ('batch-fed', 'batch-fired', 'batch-before-prepare', 'batch-before-commit')
{
	set_to('wmstream.test_point', "$point:error/53100:copy");
	write_rows();
	polls($node, $db, qq{SELECT status = 'blocked' AND reason LIKE '%"$point"%' FROM wmstream.streams WHERE stream = 'copy'::regclass},
		"$point without space: blocked, with the reason");
	consumes($node, $db, 'twin', '... another stream goes on');
	set_to('wmstream.test_point', undef);
	consumes($node, $db, 'copy', '... and with space it goes on by itself');
	is_whole('copy', '... and is whole');
}

# ---- and where no stream's batch is under way: the process ends, later each time, and the streams say why they stand

my $log_before = -s $node->logfile;
set_to('wmstream.test_point', 'confirm-before:error/53100');
write_rows();
polls($node, $db, qq{SELECT status = 'blocked' AND reason LIKE '%started again%"confirm-before"%' FROM wmstream.streams WHERE stream = '$_'::regclass},
	"an error that is no stream's: $_ is blocked, with the reason") foreach ('copy', 'twin', 'lines');
ok(eval { $node->wait_for_log(qr/(?:test point "confirm-before" reached.*){4}/s, $log_before); 1 }, '... it is tried again');
my @tries = slurp_file($node->logfile, $log_before) =~ /(\d\d):(\d\d):(\d\d\.\d+) [^\n]*ERROR:  [^\n]*"confirm-before"/g;
my @at = map { $tries[3 * $_] * 3600 + $tries[3 * $_ + 1] * 60 + $tries[3 * $_ + 2] } (0 .. 3);
cmp_ok($at[3] - $at[0], '>', 5, '... later each time');
set_to('wmstream.test_point', undef);
consumes($node, $db, $_, "... with space $_ goes on by itself") foreach ('copy', 'twin', 'lines');
is_whole($_, "... and $_ is whole") foreach ('copy', 'twin');

# ---- failed, on a full disk

my $bad = $next_id;
set_to('wmstream.test_point', 'stop-before-commit:error/53100:ratio');
$node->safe_psql($db, qq{SELECT wmstream.create_stream('ratio', 'SELECT id, 1 / (id - $bad) AS ratio FROM event')});
write_rows();
polls($node, $db, q{SELECT status = 'blocked' AND reason LIKE 'division by zero%failed is not written down yet%' FROM wmstream.streams WHERE stream = 'ratio'::regclass},
	'a stream that fails when that cannot be written is blocked, and says both');
consumes($node, $db, $_, "... $_ goes on") foreach ('copy', 'twin');
is_whole($_, "... $_ has all rows") foreach ('copy', 'twin');
$node->safe_psql($db, q{SELECT wmstream.pause('twin'); SELECT wmstream.resume('twin')});
consumes($node, $db, 'twin');
becomes($node, $db, 'ratio', 'blocked', '... and news of the registry do not start it');
set_to('wmstream.test_point', undef);
becomes($node, $db, 'ratio', 'failed', 'as soon as it can be written it has failed');
reason_is('ratio', qr/^division by zero, at the row \($bad\)[^()]*$/, '... for the same reason');
$node->safe_psql($db, qq{SELECT wmstream.drop_stream('ratio', true)});

# ---- needs_resync: WAL is let go only when that is written

set_to('wmstream.max_retained_wal', '20MB');
$log_offset = -s $node->logfile;
set_to('wmstream.test_point', 'stop-before-commit:error/53100:copy');
$node->safe_psql($db, q{SELECT wmstream.pause('copy')});
becomes($node, $db, 'copy', 'paused');
write_rows();
write_wal(3);
tries_to_stop('a stream that stands still would have to give up its WAL, but cannot write that');
becomes($node, $db, 'copy', 'paused', '... so it stays what it is');
consumes($node, $db, 'twin', '... another stream goes on');
is_sql($node, $db, held_wal('copy'), 't', '... and the WAL is kept');
$node->safe_psql($db, q{SELECT wmstream.resume('copy')});
consumes($node, $db, 'twin');
becomes($node, $db, 'copy', 'blocked', 'resumed, it does not run');
reason_is('copy', qr/max_retained_wal.*needs_resync is not written down yet/, '... and says why');
is_sql($node, $db, held_wal('copy'), 't', '... and the WAL is kept');
set_to('wmstream.max_retained_wal', '0');
$node->stop('immediate');
$node->start;
$log_offset = -s $node->logfile;
consumes($node, $db, 'copy', 'after a restart, with a limit that allows it, it goes on');
is_whole($_, "... $_ is whole") foreach ('copy', 'twin');

set_to('wmstream.max_retained_wal', '20MB');
$node->safe_psql($db, q{SELECT wmstream.pause('copy')});
becomes($node, $db, 'copy', 'paused');
write_rows();
write_wal(3);
tries_to_stop('once more it cannot be written');
set_to('wmstream.test_point', undef);
becomes($node, $db, 'copy', 'needs_resync', 'as soon as it can be written it needs to be rebuilt');
polls($node, $db, 'SELECT NOT coalesce((' . held_wal('copy') . '), false)', '... and the WAL is let go');
$node->safe_psql($db, q{SELECT wmstream.resync('copy')});
consumes($node, $db, 'copy');
is_whole('copy', '... and rebuilt it is whole');
set_to('wmstream.max_retained_wal', undef);

# ---- the WAL is lost while somebody holds a definition: nobody else waits for that

my $session = session($node, $db);
$session->query_safe(q{BEGIN; SELECT wmstream.alter_stream('copy', 'on_error', 'stop')});
write_rows();
becomes($node, $db, 'copy', 'blocked');
set_to('max_slot_wal_keep_size', '1MB');
write_wal(4);
$node->safe_psql('postgres', 'CHECKPOINT');
becomes($node, $db, 'twin', 'needs_resync', 'the slot has lost its WAL');
polls($node, $db, q{SELECT status = 'blocked' AND reason LIKE '%lost WAL%needs_resync is not written down yet: its definition is being changed%' FROM wmstream.streams WHERE stream = 'copy'::regclass},
	'... a stream that is being changed is blocked');
$node->safe_psql($db, q{INSERT INTO line VALUES (1)});
consumes($node, $db, 'lines', '... and does not keep streams of queues from going on');
set_to('max_slot_wal_keep_size', undef);
$session->query_safe('ROLLBACK');
$session->quit;
becomes($node, $db, 'copy', 'needs_resync', 'when the other transaction has ended it needs to be rebuilt');
$node->safe_psql($db, qq{SELECT wmstream.resync('$_')}) foreach ('copy', 'twin');
consumes($node, $db, $_) foreach ('copy', 'twin');
is_whole($_, "... and rebuilt, $_ is whole") foreach ('copy', 'twin');

# ---- a row of wmstream.stream that somebody spoilt: only that stream suffers

$node->safe_psql($db, q{UPDATE wmstream.stream SET output_mode = 'sideways' WHERE stream = 'twin'::regclass});
write_rows();
consumes($node, $db, 'copy', 'beside a damaged row another stream goes on');
$node->restart;
write_rows();
consumes($node, $db, 'copy', '... also after a restart');
is_whole('copy', '... and is whole');
is_sql($node, $db, q{SELECT status, reason FROM wmstream.streams WHERE stream = 'twin'::regclass}, 'failed|wmstream.stream holds an unknown value "sideways"',
	'... the damaged one has failed, and says why');
fails_like($node, $db, q{SELECT wmstream.resume('twin')}, [qr/unknown value "sideways"/, qr/UPDATE wmstream\.stream/], '... resume says how it can be mended');
$node->safe_psql($db, q{UPDATE wmstream.stream SET output_mode = 'append' WHERE stream = 'twin'::regclass});
$node->safe_psql($db, q{SELECT wmstream.pause('twin'); SELECT wmstream.resume('twin')});
consumes($node, $db, 'twin', '... and mended it goes on');
is_whole('twin', '... and is whole');

# ---- what is stored of where a stream stands was spoilt: only that stream suffers, and it can be rebuilt

my %spoil = (
	'head' => q{UPDATE wmstream.state_log SET data = '\\x00' WHERE stream = 'twin'::regclass},
	'bytes that lie elsewhere' => q{
		ALTER TABLE wmstream.state_log ALTER COLUMN data SET STORAGE EXTERNAL;
		UPDATE wmstream.state_log SET data = data || decode(repeat('00', 10000), 'hex') WHERE stream = 'twin'::regclass},
	'what a fill had' => q{UPDATE wmstream.stream SET fill = 'filled', filled = '1/2 sideways' WHERE stream = 'twin'::regclass});
my %says = (
	'head' => qr/state log cannot be read: a row is too short. Rebuild the stream with wmstream\.resync\(\)/,
	'bytes that lie elsewhere' => qr/state log cannot be read: missing chunk.* Rebuild the stream with wmstream\.resync\(\)/,
	'what a fill had' => qr{unknown value "1/2 sideways". Rebuild the stream with wmstream\.resync\(\)});
my $elsewhere = $node->safe_psql($db, q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'wmstream.state_log'::regclass});

# Its pages are empty from now on.
sub zero_file
{
	my ($path) = @_;
	my $file = $node->data_dir . "/$path";
	my $size = -s $file;

	open(my $handle, '>', $file) or die "could not open $file: $!";
	print $handle "\0" x $size;
	close($handle) or die "could not write $file: $!";
	return;
}

foreach my $what (sort keys %spoil)
{
	consumes($node, $db, $_) foreach ('copy', 'twin', 'lines');
	$node->safe_psql($db, $spoil{$what});
	$node->stop;
	zero_file($elsewhere) if $what =~ /elsewhere/;
	$node->start;
	becomes($node, $db, 'twin', 'needs_resync', "$what: the stream needs to be rebuilt");
	reason_is('twin', $says{$what}, '... and says why');
	is_sql($node, $db, 'SELECT count(*) FROM wmstream.streams JOIN wmstream.stat_streams USING (stream)', '3', '... the views answer');
	write_rows();
	consumes($node, $db, 'copy', '... another one goes on');
	is_whole('copy', '... and is whole');
	$node->restart;
	becomes($node, $db, 'twin', 'needs_resync', '... it is so after a restart');
	$node->safe_psql($db, q{SELECT wmstream.resync('twin')});
	consumes($node, $db, 'twin', '... and is rebuilt');
	write_rows();
	consumes($node, $db, 'twin', '... and goes on');
	is_whole('twin', '... and is whole');
}

# ---- what all streams need is not there: they wait for it, and say so

$node->safe_psql($db, q{ALTER TABLE wmstream.state_log DROP CONSTRAINT state_log_pkey});
my $former = worker_pid($node, $db);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($former)");
polls($node, $db, q{SELECT count(*) > 0 FROM wmstream.streams WHERE status = 'blocked' AND reason LIKE '%is started again: table wmstream.state_log has lost its primary key'},
	'without its primary key the log cannot be read, as a stream says');
$node->safe_psql($db, q{ALTER TABLE wmstream.state_log ADD PRIMARY KEY (stream, seq)});
write_rows();
foreach my $stream ('copy', 'twin')
{
	consumes($node, $db, $stream, '... put right, they go on');
	is_whole($stream, "... and $stream is whole");
}

never_crashed($node);
$node->stop;
done_testing();
