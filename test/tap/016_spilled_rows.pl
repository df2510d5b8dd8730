# Rows that wait in memory go to a file when others need the memory. Where that fails half-way (no space left), they are as they were: another
# stream's rows were only in the way.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('spilled', "wmstream.batch_memory = 2MB\n");
my $db = 'db';
my $sums = 'count(*), count(DISTINCT id), sum(id), md5(string_agg(note, $$,$$ ORDER BY id))';

make_database($node, $db);
foreach my $name ('a', 'b')
{
	$node->safe_psql($db, qq{
		CREATE TABLE q$name (id int, note text);
		SELECT wmstream.create_queue('q$name', false)});
	$node->safe_psql($db, qq{SELECT wmstream.create_stream('$name', 'SELECT id, note FROM q$name')});
}

# About 1.5 MB, in one transaction.
sub insert_into
{
	my ($queue, $from) = @_;

	$node->safe_psql($db, "INSERT INTO $queue SELECT i, repeat(md5(i::text), 30) FROM generate_series($from, $from + 1499) i");
	return;
}

sub set
{
	my ($setting) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM $setting");
	$node->reload;
	return;
}

sub has_all
{
	my ($stream, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $stream, "$test: $stream consumes all");
	return is_sql($node, $db, "SELECT $sums FROM $stream", $node->safe_psql($db, "SELECT $sums FROM q$stream"), "$test: $stream has each row once, as it was written");
}

# The rows of a wait in memory, as its result is locked; those of b need it.
foreach my $round (1, 2)
{
	my $locker = session($node, $db);

	$locker->query_safe('BEGIN; LOCK TABLE a IN SHARE MODE');
	insert_into('qa', $round * 10000);
	becomes($node, $db, 'a', 'blocked');
	my $log_end = -s $node->logfile;
	set(q{SET wmstream.test_point = 'queue-read:wait'});
	ok($node->wait_for_log(qr/test point "queue-read": waiting/, $log_end), 'the worker is held before it reads on');
	insert_into('qb', $round * 10000);
	set(q{SET wmstream.test_point = 'chunk-spilled:error/53100'});
	becomes($node, $db, 'b', 'blocked');
	like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'b'::regclass}), qr/"chunk-spilled" reached/, 'who needs the memory has to wait');
	set('RESET wmstream.test_point');
	has_all('b', "round $round");
	$locker->query_safe('COMMIT');
	$locker->quit;
	has_all('a', "round $round");
}
is_sql($node, $db, q{SELECT count(*) FROM pg_ls_tmpdir()}, '0', 'no file is left when all is read');

never_crashed($node);
$node->stop;
done_testing();
