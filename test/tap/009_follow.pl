# Streams that are far behind are caught up by a process of their own on a copy of the slot, and come back to the worker without a gap or
# an overlap, while the others go on. The oracle: a copy of the table has each row once.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('follow', "wmstream.catchup_distance = 1MB\nwmstream.max_batch_rows = 500\n");
my $db = 'db';
my $follower = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'wmstream follower'};

make_database($node, $db);
$node->safe_psql($db, q{CREATE TABLE event (id int GENERATED ALWAYS AS IDENTITY, v int, pad text)});
$node->safe_psql($db, "SELECT wmstream.create_stream('$_', 'SELECT id, v FROM event')") for qw(bystander late);
worker_runs($node, $db, 'a worker runs');

sub write_rows
{
	my ($times) = @_;

	$node->safe_psql($db, q{INSERT INTO event (v, pad) SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i}) for 1 .. $times;
	return;
}

sub has_all
{
	my ($name, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $name, "$test: $name consumes all");
	is_sql($node, $db, "SELECT count(*) - count(DISTINCT id), count(*) - (SELECT count(*) FROM event) FROM $name", '0|0', "$test: $name has each row once");
	return;
}

# How often followers have begun to read WAL.
sub followers_begun
{
	my @begun = slurp_file($node->logfile) =~ /starting logical decoding for slot "wmstream_\d+_\d+"/g;

	return scalar @begun;
}

sub lsn_number
{
	my ($high, $low) = split m{/}, shift;

	return hex($high) * 2**32 + hex($low);
}

# From where the worker has begun to read since then, if it has.
sub worker_read_from
{
	my ($offset) = @_;

	return slurp_file($node->logfile, $offset) =~ m{slot "wmstream_\d+"\n[^\n]*transactions committing after ([0-9A-F]+/[0-9A-F]+)}g;
}

# It is not given away twice from the same position, so it must have moved on since the last time.
sub fall_behind
{
	consumes($node, $db, 'late');
	$node->safe_psql($db, q{SELECT wmstream.pause('late')});
	becomes($node, $db, 'late', 'paused');
	write_rows(5);
	consumes($node, $db, 'bystander');
	return;
}

# ---- resumed, far behind

fall_behind();
my $behind = lsn_number($node->safe_psql($db, 'SELECT pg_current_wal_flush_lsn()'));
my $followers_before = followers_begun();
my $offset = -s $node->logfile;
set_point($node, 'follower-before-end:wait:late');
$node->safe_psql($db, q{SELECT wmstream.resume('late')});
waits_at($node, 'follower-before-end', $offset, 'a stream that is far behind is caught up by a follower');
is_sql($node, $db, q{SELECT stream, phase FROM wmstream.stat_progress}, 'late|catching up', '... as stat_progress says');
is_sql($node, $db, q{SELECT status FROM wmstream.streams WHERE stream = 'late'::regclass}, 'running', '... and it runs');
is_sql($node, 'postgres', q{SELECT count(*), count(*) FILTER (WHERE temporary) FROM pg_replication_slots}, '2|1', '... on a copy of the slot');
write_rows(1);
has_all('bystander', 'meanwhile');
set_point($node, '');
has_all('late', 'back with the worker');
polls($node, $db, $follower, '... and the follower is gone', '0');
polls($node, 'postgres', q{SELECT count(*) FROM pg_replication_slots}, '... with its slot', '1');
is_sql($node, $db, q{SELECT count(*) FROM wmstream.stat_progress}, '0', '... and out of stat_progress');
# a few steps back are the worker's, if it went on while the follower left
my @again = grep { lsn_number($_) < $behind } worker_read_from($offset);
is("@again", '', 'the worker has not read WAL again for it');
cmp_ok(followers_begun() - $followers_before, '>=', 1, 'the follower has');
write_rows(1);
has_all($_, 'afterwards') for qw(late bystander);

# ---- while others write all the time, with transactions that stay open over the handing over, large and small

my $script = $node->basedir . '/write.sql';
append_to_file($script, q{
\set n random(1, 50)
BEGIN;
INSERT INTO event (v, pad) SELECT i, repeat('y', 200) FROM generate_series(1, :n) i;
\sleep :n ms
INSERT INTO event (v, pad) SELECT i, repeat('z', 200) FROM generate_series(1, :n) i;
COMMIT;
});
my ($out, $err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', '4', '-T', '600', '-f', $script, '-h', $node->host, '-p', $node->port, $db ], '>', \$out, '2>', \$err);
for my $round (1 .. 3)
{
	my $large = session($node, $db);

	$large->query_safe(q{BEGIN; INSERT INTO event (v, pad) SELECT i, repeat('l', 500) FROM generate_series(1, 20000) i});
	fall_behind();
	$followers_before = followers_begun();
	$node->safe_psql($db, q{SELECT wmstream.resume('late')});
	polls($node, $db, "SELECT count(*) > 0 FROM wmstream.streams WHERE stream = 'late'::regclass AND status = 'running'", "round $round: it runs again");
	consumes($node, $db, 'late', "round $round: it consumes what was there");
	$large->query_safe('COMMIT');
	$large->quit;
	cmp_ok(followers_begun(), '>', $followers_before, "round $round: by a follower");
}
$bench->kill_kill;
has_all($_, 'writers beside it') for qw(late bystander);

# ---- terminated, paused, dropped, and crashed in the middle

for my $harm ('terminate', 'crash', 'pause')
{
	fall_behind();
	$offset = -s $node->logfile;
	set_point($node, 'batch-fed:' . ($harm eq 'crash' ? 'crash' : 'wait') . ':late');
	$node->psql($db, q{SELECT wmstream.resume('late')});
	if ($harm eq 'crash')
	{
		ok(eval { $node->wait_for_log(qr/terminated by signal 9/, $offset); 1 }, "$harm: the server crashes");
		polls($node, 'postgres', q{ALTER SYSTEM RESET wmstream.test_point; SELECT pg_reload_conf()}, "$harm: it comes back", "ALTER SYSTEM\nt");
		becomes($node, $db, 'late', 'running');
	}
	else
	{
		waits_at($node, 'batch-fed', $offset, "$harm: it waits");
	}
	$node->safe_psql($db, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'wmstream follower'}) if $harm eq 'terminate';
	if ($harm eq 'pause')
	{
		my $pausing = session($node, $db);
		$pausing->query_until(qr/asked/, "\\echo asked\nSELECT wmstream.pause('late');\n");
		set_point($node, '');
		$pausing->quit;
		becomes($node, $db, 'late', 'paused');
		$node->safe_psql($db, q{SELECT wmstream.resume('late')});
	}
	set_point($node, '');
	has_all($_, $harm) for qw(late bystander);
}
fall_behind();
$offset = -s $node->logfile;
set_point($node, 'follower-before-end:wait:late');
$node->safe_psql($db, q{SELECT wmstream.resume('late')});
waits_at($node, 'follower-before-end', $offset, 'drop: it waits');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('late', true)});
set_point($node, '');
polls($node, $db, $follower, 'drop: the follower goes', '0');
write_rows(1);
has_all('bystander', 'drop');

# ---- one that is filled from what another one's follower writes into its late table: that does not know yet that somebody reads it

$node->safe_psql($db, q{
	CREATE TABLE task (ts timestamptz);
	INSERT INTO task SELECT NULL FROM generate_series(1, 2000);
	CREATE TABLE unread (reason text);
	CREATE VIEW reasons AS SELECT reason FROM unread});
$node->safe_psql($db, q{SELECT wmstream.create_stream('reader', 'SELECT reason FROM reasons')});
consumes($node, $db, 'reader');
$offset = -s $node->logfile;
set_point($node, 'batch-fed:wait:writer');
$node->safe_psql($db, q{SELECT wmstream.create_stream('writer', 'SELECT lower(w) AS hour, count(*) AS n FROM task, wmstream.window(ts, ''1 hour'') AS w
	WHERE wmstream.watermark(ts, ''0'') GROUP BY w', late_table => 'put_aside', start_from => 'beginning')});
waits_at($node, 'batch-fed', $offset, 'late table: its writer is in the middle of a batch');
$node->safe_psql($db, q{CREATE OR REPLACE VIEW reasons AS SELECT reason FROM put_aside; SELECT wmstream.resync('reader')});
polls($node, $db, q{SELECT status = 'running' OR (status = 'blocked' AND reason LIKE '%lock timeout%') FROM wmstream.streams WHERE stream = 'reader'::regclass},
	'late table: who is filled with what it writes waits for that');
set_point($node, '');
consumes($node, $db, $_, "late table: $_ consumes all") for qw(writer reader);
is_sql($node, $db, q{SELECT (SELECT count(*) FROM put_aside), (SELECT count(*) FROM reader)}, '2000|2000', 'late table: all that was written is read, once');

# ---- no slot for the copy: the worker does it

$node->append_conf('postgresql.conf', 'max_replication_slots = 1');
$node->restart;
$node->safe_psql($db, q{TRUNCATE event, bystander; SELECT wmstream.create_stream('late', 'SELECT id, v FROM event')});
consumes($node, $db, 'late');
fall_behind();
$offset = -s $node->logfile;
$node->safe_psql($db, q{SELECT wmstream.resume('late')});
has_all($_, 'without a slot for the copy') for qw(late bystander);
like(slurp_file($node->logfile, $offset), qr/all replication slots are in use/, '... which was tried');

# ---- no process: the worker takes it back

$node->append_conf('postgresql.conf', "max_replication_slots = 10\nmax_worker_processes = 3");
$node->restart;
consumes($node, $db, $_) for qw(late bystander);
fall_behind();
$node->safe_psql($db, q{SELECT wmstream.resume('late')});
has_all($_, 'without a process for it') for qw(late bystander);

$node->stop;
never_crashed($node, 'terminated by signal 9');
done_testing();
