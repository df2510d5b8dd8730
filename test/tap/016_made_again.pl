# A stream that is dropped and made again on its table is another one: it begins at its own creation, whoever has the table still and however far
# behind the worker is. The oracle: it has the rows that were written after it was made, once.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('again', "wmstream.catchup_distance = 1MB\nwmstream.max_batch_rows = 500\n");
my $db = 'db';
my $made = q{SELECT wmstream.create_stream('s', 'SELECT id FROM event')};
my $filled = q{SELECT wmstream.create_stream('s', 'SELECT id FROM event', start_from => 'beginning')};
my $dropped = q{SELECT wmstream.drop_stream('s')};
my $id = 0;

make_database($node, $db);
$node->safe_psql($db, q{CREATE TABLE event (id int, pad text); CREATE TABLE other (id int)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('bystander', 'SELECT id FROM other')});

sub set_to
{
	my ($setting, $value) = @_;

	$node->safe_psql('postgres', $value ? "ALTER SYSTEM SET $setting = '$value'" : "ALTER SYSTEM RESET $setting");
	$node->reload;
	return;
}

# Holds up what comes to that point, until release.
sub hold_at
{
	my ($point, $stream) = @_;

	set_to('wmstream.test_point', "$point:wait:$stream");
	return -s $node->logfile;
}

sub waits_at
{
	my ($point, $offset) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(eval { $node->wait_for_log(qr/test point "$point": waiting/, $offset); 1 }, "$point: it waits there");
}

sub release
{
	set_to('wmstream.test_point', undef);
	return;
}

# The next row; nobody has had it before.
sub write_row
{
	$id++;
	$node->safe_psql($db, "INSERT INTO event VALUES ($id)");
	return $id;
}

# It has these rows, each once.
sub has_rows
{
	my ($rows, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, 's', "$test: it consumes all");
	return is_sql($node, $db, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM s}, $rows, "$test: it has what was written since it was made");
}

# For the next one.
sub clear
{
	$node->safe_psql($db, q{SELECT wmstream.drop_stream('s', true); TRUNCATE event});
	polls($node, $db, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'wmstream follower'}, 'the follower goes');
	return;
}

# ---- the former one is being filled, and its follower has not let go of it yet

foreach my $again ("$dropped; $made", "BEGIN; $dropped; $made; COMMIT")
{
	my $how = $again =~ /BEGIN/ ? 'in one transaction' : 'one after the other';

	write_row();
	my $offset = hold_at('fill-sorting', 's');
	$node->safe_psql($db, $filled);
	waits_at('fill-sorting', $offset);
	$node->safe_psql($db, $again);
	my $row = write_row();
	$node->safe_psql($db, 'INSERT INTO other VALUES (1)');
	consumes($node, $db, 'bystander', "$how: the worker has read of it");
	release();
	has_rows($row, "while the former one was filled, $how");
	clear();
}

my $first = write_row();
my $held_from = hold_at('fill-sorting', 's');
$node->safe_psql($db, $filled);
waits_at('fill-sorting', $held_from);
my $second = write_row();
$node->safe_psql($db, "$dropped; $filled");
my $third = write_row();
release();
has_rows("$first $second $third", 'and is to be filled, too');
clear();

# ---- the former one is being caught up; the worker is another one meanwhile

foreach my $worker ('the same', 'another')
{
	$node->safe_psql($db, $made);
	consumes($node, $db, 's');
	$node->safe_psql($db, q{SELECT wmstream.pause('s')});
	becomes($node, $db, 's', 'paused');
	$node->safe_psql($db, q{INSERT INTO event SELECT 0, repeat(md5(i::text), 30) FROM generate_series(1, 5000) i; INSERT INTO other VALUES (1)});
	consumes($node, $db, 'bystander');
	my $offset = hold_at('follower-before-end', 's');
	$node->safe_psql($db, q{SELECT wmstream.resume('s')});
	waits_at('follower-before-end', $offset);
	$node->safe_psql($db, "BEGIN; SELECT wmstream.drop_stream('s'); TRUNCATE s; $made; COMMIT");
	my $row = write_row();
	$node->safe_psql($db, 'INSERT INTO other VALUES (1)');
	consumes($node, $db, 'bystander', 'the worker has read of it');
	if ($worker eq 'another')
	{
		my $pid = worker_pid($node, $db);

		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		new_worker($node, $db, $pid, 'another worker begins');
		consumes($node, $db, 'bystander', '... and has read of it');
	}
	release();
	has_rows($row, "while the former one was caught up, $worker worker");
	clear();
}

# ---- the worker is far behind: it reads of the former one's creation when there is another one

my $offset = hold_at('batch-fed', 'bystander');
$node->safe_psql($db, 'INSERT INTO other VALUES (2)');
waits_at('batch-fed', $offset);
$node->safe_psql($db, $made);
write_row();
$node->safe_psql($db, "$dropped; $made");
my $row = write_row();
release();
has_rows($row, 'the worker was behind');

$node->stop;
never_crashed($node);
done_testing();
