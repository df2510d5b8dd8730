# What a worker takes for a batch does not grow with the batch: rows that are put aside, rows that wait for the end of a chunk or for their
# group's memory are let go as they go.
#
# Measured is how far the worker's own memory rises, which only Linux tells.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

plan skip_all => 'needs /proc' unless -w "/proc/$$/clear_refs" && slurp_file("/proc/$$/status") =~ /^VmHWM:/m;

my $node = new_node('memory', "shared_buffers = 16MB\nwmstream.look_ahead_from = 0");
my $db = 'db';

make_database($node, $db);
$node->safe_psql($db, 'CREATE TABLE event (id int, ts timestamptz, note text); ALTER TABLE event ALTER note SET STORAGE EXTERNAL');
my $worker;

# In MB: a figure of the worker's.
sub figure
{
	my ($name) = @_;

	slurp_file("/proc/$worker/status") =~ /^$name:\s+(\d+) kB/m or die "no $name";
	return $1 / 1024;
}

# How far the worker's memory rises at the most, while a stream takes in what a statement writes.
sub rises_below
{
	my ($limit, $definition, $options, $insert, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, "SELECT wmstream.create_stream('tried', \$\$$definition\$\$$options); INSERT INTO event VALUES (0, '2024-01-02 00:00+00')");
	consumes($node, $db, 'tried', "$test: it runs");
	$worker = worker_pid($node, $db);
	append_to_file("/proc/$worker/clear_refs", '5');	# what was the most is forgotten
	my $before = figure('VmRSS');
	$node->safe_psql($db, $insert);
	consumes($node, $db, 'tried', "$test: it has all rows");
	my $rise = figure('VmHWM') - $before;
	note sprintf('%s: %.0f MB', $test, $rise);
	cmp_ok($rise, '<', $limit, "$test: memory does not grow with the rows");
	$node->safe_psql($db, q{SELECT wmstream.drop_stream('tried', true); TRUNCATE event});
	return;
}

my $late = q{INSERT INTO event SELECT n, '2024-01-01 00:00+00', repeat('x', 500) FROM generate_series(1, 100000) n};
my $wide = q{INSERT INTO event SELECT n, '2024-01-02 00:00+00', repeat('x', 1800) FROM generate_series(1, 80000) n};
my $window = q{wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0')};

rises_below(130, "SELECT lower(w) AS hour, count(*) AS n FROM event, $window GROUP BY w", q{, late_table => 'aside'}, $late, 'late rows');
rises_below(130, "SELECT DISTINCT id, ts FROM event WHERE wmstream.watermark(ts, '0')", q{, late_table => 'aside'}, $late, 'late rows of a DISTINCT');
is_sql($node, $db, 'SELECT reason, count(*), min(length(row_data ->> $$note$$)) FROM aside GROUP BY 1', 'late|200000|500', 'all are put aside');
rises_below(130, "SELECT DISTINCT id % 10 AS id, ts FROM event WHERE wmstream.watermark(ts, '1 day')", q{, late_table => 'aside'}, $wide, 'rows that wait for the end of a chunk');
rises_below(130, "SELECT DISTINCT ON (id, ts) id, ts, note FROM event WHERE wmstream.watermark(ts, '1 day')", '',
	q{INSERT INTO event SELECT n, '2024-01-02 00:00+00', repeat(md5(n::text), 6000) FROM generate_series(1, 800) n}, 'large rows that wait for their group');
rises_below(130, "SELECT lower(s) AS since, upper(s) AS until, id % 3 AS k, count(*) AS n FROM event, wmstream.session_window(ts, '1 minute') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, id % 3",
	q{, late_table => 'aside'}, q{INSERT INTO event SELECT n, timestamptz '2024-01-02 00:00+00' + n * interval '1 ms' + n / 8000 * interval '10 minutes' FROM generate_series(1, 160000) n},
	'sessions of many rows');
never_crashed($node);
$node->stop;
done_testing();
