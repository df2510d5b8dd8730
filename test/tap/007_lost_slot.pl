# A replication slot that is gone: the worker comes all the same, for the database is marked, and says what to do; the mark itself, over
# rollback, removal by hand, dumps and databases made from this one.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('lost');
my $db = 'db';
my $create = q{SELECT wmstream.create_stream('copy', 'SELECT id FROM event')};
my $mark = "SELECT label FROM pg_shseclabel WHERE provider = 'wmstream' AND classoid = 'pg_database'::regclass AND objoid =";

sub mark_of
{
	my ($database) = @_;

	return "$mark (SELECT oid FROM pg_database WHERE datname = '$database')";
}

make_database($node, $db);
$node->safe_psql($db, 'CREATE TABLE event (id int)');

# ---- the mark is the transaction's

my $session = session($node, $db);
$session->query_safe("BEGIN; $create");
is_sql($node, 'postgres', mark_of($db), '', 'no mark before create_stream commits');
$session->query_safe('ROLLBACK');
is_sql($node, 'postgres', mark_of($db), '', 'none after it rolled back');
$session->quit;
$node->safe_psql($db, $create);
is_sql($node, 'postgres', mark_of($db), 'streams', 'a database with a stream is marked');
fails_like($node, 'postgres', "SECURITY LABEL FOR wmstream ON DATABASE $db IS 'another'", [qr/only security label of wmstream/],
	'no other label is taken');

# ---- it comes back when somebody removes it, with the next change

$node->safe_psql('postgres', "SECURITY LABEL FOR wmstream ON DATABASE $db IS NULL");
$node->safe_psql($db, q{SELECT wmstream.create_stream('twin', 'SELECT id FROM event')});
is_sql($node, 'postgres', mark_of($db), 'streams', 'a mark that was removed is put back by the next create_stream');
$node->safe_psql('postgres', "SECURITY LABEL FOR wmstream ON DATABASE $db IS NULL");
$node->safe_psql($db, q{SELECT wmstream.pause('twin'); SELECT wmstream.resume('twin')});
polls($node, 'postgres', mark_of($db), '... or by the worker', 'streams');

# ---- a database made from it is not marked; a dump with --create can be restored

$node->safe_psql('postgres', "CREATE DATABASE copied TEMPLATE $db");
is_sql($node, 'postgres', mark_of('copied'), '', 'a copied database is not marked');
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-C', '-f', $dump, '-d', $node->connstr($db) ], 'a dump with --create');
$node->safe_psql('postgres', "ALTER DATABASE $db RENAME TO former");
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', $dump ], '... is restored');
is_sql($node, $db, q{SELECT DISTINCT status FROM wmstream.streams}, 'restored', '... its streams are restored');
(undef, undef, my $told) = $node->psql($db, q{SELECT wmstream.wait(stream) FROM wmstream.streams LIMIT 1});
like($told, qr/status is restored.*wmstream\.resync\(\).*wmstream\.resume\(\)/s, '... and wait names both ways on');
$node->safe_psql('postgres', "DROP DATABASE $db; DROP DATABASE copied");
is_sql($node, 'postgres', "SELECT count(*) FROM pg_shseclabel WHERE provider = 'wmstream'", '1', 'DROP DATABASE takes the mark along');
$node->safe_psql('postgres', "ALTER DATABASE former RENAME TO $db");

# ---- the slot is gone

$node->safe_psql($db, 'INSERT INTO event VALUES (1)');
consumes($node, $db, 'copy', 'before: a stream runs');
my $slot = $node->safe_psql('postgres', "SELECT slot_name FROM pg_replication_slots WHERE database = '$db'");
$node->stop;
system('rm', '-rf', $node->data_dir . "/pg_replslot/$slot") == 0 or die "could not remove the slot";
$node->start;
becomes($node, $db, $_, 'needs_resync', "without its slot $_ needs to be rebuilt") foreach ('copy', 'twin');
my $reason = $node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'copy'::regclass});
like($reason, qr/slot "$slot" does not exist/, '... and says so');
like($reason, qr/wmstream\.resync\(\)/, '... and names the way out');
worker_runs($node, $db, 'the worker stays');
$node->safe_psql($db, q{SELECT wmstream.create_stream('later', 'SELECT id FROM event'); INSERT INTO event VALUES (2)});
consumes($node, $db, 'later', 'a new stream runs');
is_sql($node, $db, 'SELECT id FROM later', '2', '... from its beginning on');
is_sql($node, $db, q{SELECT status FROM wmstream.streams WHERE stream = 'copy'::regclass}, 'needs_resync', '... the others stay as they are');

# ---- a slot that is gone is made anew while streams stand still: they never learn of it but by where it was made

sub lose_slot
{
	$node->stop;
	system('rm', '-rf', $node->data_dir . "/pg_replslot/$slot") == 0 or die "could not remove the slot";
	$node->start;
	return;
}

$node->safe_psql($db, q{SELECT wmstream.resync('copy'); SELECT wmstream.resync('twin')});
consumes($node, $db, $_, "$_ is rebuilt") foreach ('copy', 'twin', 'later');
$node->safe_psql($db, qq{SELECT wmstream.pause('$_')}) foreach ('copy', 'twin', 'later');
$node->safe_psql($db, 'INSERT INTO event VALUES (3)');
lose_slot();
$node->safe_psql($db, q{SELECT wmstream.create_stream('newest', 'SELECT id FROM event')});
becomes($node, $db, $_, 'needs_resync', "the slot was made anew while $_ stood still: it needs to be rebuilt") foreach ('copy', 'twin', 'later');
$node->safe_psql($db, 'INSERT INTO event VALUES (4)');
consumes($node, $db, 'newest', '... the one that it was made for runs');
is_sql($node, $db, q{SELECT string_agg(id::text, ',') FROM newest}, '4', '... from its beginning on');

$node->safe_psql($db, qq{SELECT wmstream.resync('$_')}) foreach ('copy', 'twin', 'later');
consumes($node, $db, $_) foreach ('copy', 'twin', 'later');
$node->safe_psql($db, qq{SELECT wmstream.pause('$_')}) foreach ('copy', 'twin', 'later', 'newest');
$node->safe_psql($db, 'INSERT INTO event VALUES (5)');
lose_slot();
$node->safe_psql($db, q{BEGIN; SELECT wmstream.create_stream('never', 'SELECT id FROM event'); ROLLBACK});
$node->psql($db, q{SELECT wmstream.resume('copy')});	# refused, if the worker was quicker
becomes($node, $db, $_, 'needs_resync', "the same for $_ if the transaction that made the slot rolled back") foreach ('copy', 'twin', 'later', 'newest');
$node->safe_psql($db, qq{SELECT wmstream.resync('$_')}) foreach ('copy', 'twin', 'later', 'newest');
foreach my $stream ('copy', 'twin', 'later', 'newest')
{
	consumes($node, $db, $stream);
	is_sql($node, $db, "SELECT string_agg(id::text, ',' ORDER BY id) FROM $stream", '1,2,3,4,5', "rebuilt, $stream has each row once");
}

# ---- whoever makes the slot anew is slow: what others make or rebuild on it meanwhile is theirs

$node->safe_psql($db, qq{SELECT wmstream.pause('$_')}) foreach ('copy', 'twin', 'later', 'newest');
$node->safe_psql($db, q{UPDATE wmstream.stream SET status = 'sideways' WHERE stream = 'newest'::regclass});
lose_slot();
set_point($node, 'slot-made:wait');
my $offset = -s $node->logfile;
my $slow = session($node, $db);
$slow->query_until(qr/begun/, "\\echo begun\nSELECT wmstream.create_stream('slow', 'SELECT id FROM event');\n");
waits_at($node, 'slot-made', $offset, 'a session has made the slot and does not go on');
$node->safe_psql($db, q{SELECT wmstream.create_stream('quick', 'SELECT id FROM event'); INSERT INTO event VALUES (6)});
$node->safe_psql($db, q{SELECT wmstream.resync('copy')});
set_point($node, '');
is($slow->query_safe(q{SELECT 'goes on'}), "slow\ngoes on", '... when it does, the stream with a damaged row is not its trouble');
$slow->quit;
$node->safe_psql($db, 'INSERT INTO event VALUES (7)');
consumes($node, $db, $_, "$_ runs") foreach ('quick', 'copy', 'slow');
is_sql($node, $db, q{SELECT string_agg(id::text, ',' ORDER BY id) FROM quick}, '6,7', 'the one made meanwhile has its rows');
is_sql($node, $db, q{SELECT string_agg(id::text, ',' ORDER BY id) FROM copy}, '1,2,3,4,5,6,7', '... the one rebuilt meanwhile too');
$node->safe_psql($db, q{UPDATE wmstream.stream SET status = 'paused' WHERE status = 'sideways'});
$node->safe_psql($db, q{SELECT wmstream.pause('quick'); SELECT wmstream.resume('quick')});	# so that the worker reads it
becomes($node, $db, $_, 'needs_resync', "... $_ needs to be rebuilt") foreach ('twin', 'later', 'newest');

# ---- DROP EXTENSION takes mark and slot along

$node->safe_psql($db, 'DROP EXTENSION wmstream CASCADE');
no_slot($node, 'DROP EXTENSION takes the slot along');
no_worker($node, $db, '... and the worker');
is_sql($node, 'postgres', mark_of($db), '', '... which has taken the mark away');

$node->stop;
done_testing();
