# resync rebuilds a stream from its sources: the way out of a lost slot, of WAL that was held back for too long, of a restored dump and of
# a replaced aggregate; the status says so and names the function. Results before since stay. The oracle is the definition run by hand.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('resync', "wmstream.max_batch_rows = 1000\nwmstream.max_retained_wal = 0\n");
my $db = 'db';
my $minute = 0;

make_database($node, $db);
$node->safe_psql($db, q{
	CREATE TABLE event (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, k text, v int);
	CREATE TABLE junk (t text)});

my %query = (
	windows => q{SELECT lower(w) AS minute, k, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 minute') AS w
		WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w, k},
	updated => q{SELECT upper(w) AS until, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w
		WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w HAVING count(*) > 10},
	whole => q{SELECT k, sum(v) AS total FROM event GROUP BY k},
	sessions => q{SELECT lower(w) AS since, upper(w) AS until, k, count(*) AS n FROM event, wmstream.session_window(ts, '90 s') AS w
		WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w, k},
	plain => q{SELECT id, v FROM event WHERE k <> 'k1'});
my %mode = (updated => 'update', whole => 'complete');

# Rows of ten minutes, 3,000 of them, in no order.
sub write_rows
{
	$node->safe_psql($db, qq{
		INSERT INTO event (ts, k, v)
		SELECT timestamptz '2024-01-01 00:00+00' + $minute * interval '1 min' + (i * 7919 % 600) * interval '1 s', 'k' || i % 3, i
		FROM generate_series(1, 3000) i});
	$minute += 10;
	return;
}

sub batch
{
	my ($name) = @_;

	return $name eq 'sessions' ? sessions_by_hand() : $query{$name};
}

# All rows once, in the result and the open windows.
sub is_right
{
	my ($name, $test) = @_;
	my $shown = $name eq 'whole' ? 'SELECT * FROM whole' : "SELECT * FROM wmstream.live(NULL::$name)";
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $name, "$test: $name consumes all");
	is_sql($node, $db, 'WITH batch AS MATERIALIZED (' . batch($name) . "), shown AS MATERIALIZED ($shown)"
		  . q{SELECT (SELECT count(*) FROM batch) > 0, (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) x),
			(SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) y)}, 't|0|0', "$test: $name is what the batch query says");
	return;
}

sub resync
{
	my ($name, $more) = @_;

	$node->safe_psql($db, "SELECT wmstream.resync('$name'" . ($more // '') . ')');
	return;
}

sub all_are_right
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is_right($_, $test) for sort keys %query;
	return;
}

sub reason_is
{
	my ($name, $pattern, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return like($node->safe_psql($db, "SELECT reason FROM wmstream.streams WHERE stream = '$name'::regclass"), $pattern, $test);
}

for my $name (sort keys %query)
{
	my $mode = $mode{$name} // 'append';

	$node->safe_psql($db, "SELECT wmstream.create_stream('$name', \$\$ $query{$name} \$\$, output_mode => '$mode')");
}
write_rows();
all_are_right('before');

# ---- one that runs, and one whose result was spoiled

$node->safe_psql($db, q{UPDATE windows SET n = n + 1; DELETE FROM plain WHERE id % 2 = 0});
resync($_) for sort keys %query;
all_are_right('rebuilt while running');
write_rows();
all_are_right('and goes on');

# ---- the slot is dropped

my $slot = $node->safe_psql('postgres', q{SELECT slot_name FROM pg_replication_slots});
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;
$node->safe_psql('postgres', "SELECT pg_drop_replication_slot('$slot')");
write_rows();
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'wmstream'\n");
$node->restart;
becomes($node, $db, $_, 'needs_resync', "slot dropped: $_ needs a resync") for sort keys %query;
reason_is('windows', qr/slot.*does not exist.*resync|resync/, '... and the status says so');
fails_like($node, $db, q{SELECT wmstream.resume('windows')}, [qr/cannot go on from where it was/, qr/wmstream\.resync\(\)/], '... resume names it');
fails_like($node, $db, q{SELECT wmstream.wait('windows')}, [qr/needs_resync/, qr/wmstream\.resync\(\)/], '... so does wait');
fails_like($node, $db, q{BEGIN; INSERT INTO junk VALUES ('x'); SELECT wmstream.resync('windows')}, [qr/in a transaction that has written/], '... which needs a transaction that has not written, as the slot is to be made');
resync($_) for sort keys %query;
all_are_right('slot dropped');
write_rows();
all_are_right('slot dropped, and goes on');

# ---- max_slot_wal_keep_size, with a stream that is paused

sub write_wal
{
	my ($megabytes) = @_;

	$node->safe_psql($db, q{INSERT INTO junk SELECT repeat(md5(i::text), 30) FROM generate_series(1, 1000) i; SELECT pg_switch_wal()})
	  for (1 .. $megabytes);
	return;
}

$node->safe_psql($db, q{SELECT wmstream.pause('windows')});
becomes($node, $db, 'windows', 'paused');
$node->safe_psql('postgres', q{ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'});
$node->reload;
write_wal(8);
write_rows();
$node->safe_psql($db, 'CHECKPOINT');
polls($node, 'postgres', q{SELECT wal_status = 'lost' FROM pg_replication_slots}, 'max_slot_wal_keep_size: the slot is lost');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET max_slot_wal_keep_size});
$node->reload;
becomes($node, $db, 'updated', 'needs_resync', '... those that ran need a resync');
reason_is('updated', qr/has lost WAL.*wmstream\.resync\(\)/, '... and say so');
fails_like($node, $db, q{SELECT wmstream.resume('windows')}, [qr/cannot go on/, qr/wmstream\.resync\(\)/], '... the paused one cannot be resumed');
resync($_) for sort keys %query;
all_are_right('slot lost');

# ---- max_retained_wal: a word at half, then the place is given up

$node->safe_psql($db, q{SELECT wmstream.pause('windows')});
becomes($node, $db, 'windows', 'paused');
my $offset = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET wmstream.max_retained_wal = '100MB'});
$node->reload;
write_wal(4);
ok(eval { $node->wait_for_log(qr/stream "windows" holds back \d+ MB of WAL/, $offset); 1 }, 'half of max_retained_wal: a warning');
reason_is('windows', qr/holds back \d+ MB.*max_retained_wal.*wmstream\.resync\(\)/, '... in the status too');
is_sql($node, $db, q{SELECT status FROM wmstream.streams WHERE stream = 'windows'::regclass}, 'paused', '... and it is still paused');
write_wal(3);
becomes($node, $db, 'windows', 'needs_resync', 'beyond it: its place is given up');
reason_is('windows', qr/max_retained_wal.*wmstream\.resync\(\)/, '... and the status says so');
my @warnings = slurp_file($node->logfile, $offset) =~ /stream "windows" holds back/g;
is(scalar @warnings, 1, '... after a single warning');
is_right($_, 'another stream holds WAL back') for qw(updated plain);
my $blocker = session($node, $db);
$blocker->query_safe('BEGIN; LOCK TABLE updated IN ACCESS EXCLUSIVE MODE');
write_rows();
becomes($node, $db, 'updated', 'blocked');
write_wal(7);
becomes($node, $db, 'updated', 'needs_resync', 'a blocked one, too');
$blocker->query_safe('ROLLBACK');
$blocker->quit;
resync($_) for qw(windows updated);
all_are_right('max_retained_wal');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET wmstream.max_retained_wal});
$node->reload;

# ---- since: what was before stays, though its rows are gone

$node->safe_psql($db, q{CREATE TABLE former AS SELECT * FROM windows WHERE minute < '2024-01-01 00:20+00'});
$node->safe_psql($db, q{DELETE FROM event WHERE ts < '2024-01-01 00:20+00'; UPDATE windows SET n = 0 WHERE minute >= '2024-01-01 00:20+00'});
resync('windows', q{, '2024-01-01 00:20+00'});
consumes($node, $db, 'windows');
is_sql($node, $db, qq{
	WITH should AS MATERIALIZED (TABLE former UNION ALL $query{windows}), shown AS MATERIALIZED (SELECT * FROM wmstream.live(NULL::windows))
	SELECT (SELECT count(*) FROM former) > 0, (SELECT count(*) FROM (TABLE should EXCEPT ALL TABLE shown) x),
		(SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE should) y)}, 't|0|0', 'since: windows before it stay, the others are rebuilt');
$node->safe_psql($db, q{UPDATE windows SET n = -1 WHERE minute < '2024-01-01 00:30+00'});
resync('windows', q{, '2024-01-01 00:30+00'});
consumes($node, $db, 'windows');
is_sql($node, $db, q{SELECT count(*) FILTER (WHERE minute < '2024-01-01 00:30+00'), count(*) FILTER (WHERE minute >= '2024-01-01 00:30+00')
	FROM windows WHERE n = -1}, '90|0', 'since: nor are windows before it that have rows written again');
resync('windows');
consumes($node, $db, 'windows');
is_sql($node, $db, q{SELECT count(*) FILTER (WHERE minute < '2024-01-01 00:20+00'), count(*) FILTER (WHERE minute >= '2024-01-01 00:20+00')
	FROM windows WHERE n = -1}, '60|0', 'without since: those before the earliest row stay');
fails_like($node, $db, q{SELECT wmstream.resync('plain', '2024-01-01')}, [qr/cannot be rebuilt from some time on/, qr/no column that tells/], 'a result without times has no since');
fails_like($node, $db, q{SELECT wmstream.resync('whole', '2024-01-01')}, [qr/cannot be rebuilt from some time on/, qr/complete mode/], 'nor has complete mode');
fails_like($node, $db, q{SELECT wmstream.resync('windows', 'infinity')}, [qr/since infinity/], 'nor infinity');

# ---- a crash in the middle, and another resync in the middle of the first

for my $point ('fill-reading', 'batch-after-commit', 'fill-before-end')
{
	$offset = -s $node->logfile;
	$node->safe_psql('postgres', "ALTER SYSTEM SET wmstream.test_point = '$point:crash:updated'");
	$node->reload;
	$node->psql($db, q{SELECT wmstream.resync('updated')});
	ok(eval { $node->wait_for_log(qr/terminated by signal 9/, $offset); 1 }, "$point: the server crashes");
	polls($node, 'postgres', q{ALTER SYSTEM RESET wmstream.test_point; SELECT pg_reload_conf()}, "$point: it comes back", "ALTER SYSTEM\nt");
	becomes($node, $db, 'updated', 'running');
	is_right('updated', "$point: after the crash");
}
for my $point ('batch-fed', 'fill-before-end')
{
	$offset = -s $node->logfile;
	$node->safe_psql('postgres', "ALTER SYSTEM SET wmstream.test_point = '$point:wait:sessions'");
	$node->reload;
	resync('sessions');
	ok(eval { $node->wait_for_log(qr/test point "$point": waiting/, $offset); 1 }, "$point: it waits");
	my $again = session($node, $db);
	$again->query_until(qr/asked/, "\\echo asked\nSELECT wmstream.resync('sessions');\n");
	$node->safe_psql($db, q{DELETE FROM event WHERE id % 10 = 0});
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET wmstream.test_point');
	$node->reload;
	$again->quit;
	resync('sessions');
	is_right('sessions', "$point: after another resync in the middle");
}

# ---- a restored dump, and an aggregate that is another one now

$node->safe_psql($db, q{
	CREATE AGGREGATE public.mine (int) (sfunc = int4pl, stype = int, initcond = '0');
	SELECT wmstream.create_stream('own', 'SELECT lower(w) AS hour, public.mine(v) AS m FROM event, wmstream.window(ts, ''1 hour'') AS w
		WHERE wmstream.watermark(ts, ''0'') GROUP BY w', start_from => 'beginning')});
consumes($node, $db, 'own');
$node->safe_psql($db, q{CREATE OR REPLACE AGGREGATE public.mine (int) (sfunc = int4larger, stype = int, initcond = '0')});
write_rows();
becomes($node, $db, 'own', 'needs_resync', 'a replaced aggregate: needs_resync');
reason_is('own', qr/made by another definition.*wmstream\.resync\(\)/, '... and the status says so');
resync('own');
$query{own} = q{SELECT date_trunc('hour', ts) AS hour, max(v) AS m FROM event GROUP BY 1};
is_right('own', 'rebuilt with it');

my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr($db) ], 'the database is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('copy') ], '... and restored');
$db = 'copy';
becomes($node, $db, 'windows', 'restored');
fails_like($node, $db, q{SELECT wmstream.wait('windows')}, [qr/restored/], 'a restored stream waits');
$node->safe_psql($db, q{UPDATE updated SET n = 0});
resync($_) for qw(updated whole sessions plain own);
is_right($_, 'a restored dump') for qw(updated whole sessions plain own);
write_rows();
is_right($_, 'a restored dump, and goes on') for qw(updated plain);

$node->stop;
never_crashed($node, 'terminated by signal 9');
done_testing();
