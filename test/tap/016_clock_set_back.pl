# The clock of the server is set back, by more than anything that waits for it may take. Windows of the clock go on from where they were, none of
# their rows is late, and what is due is not put off until the clock has come there again.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

# The time of day is what the system says, and so many seconds more as a file tells.
my $library = <<'C';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

int
gettimeofday(struct timeval *tv, void *tz)
{
	static int	(*real) (struct timeval *, void *);
	char		text[32] = "";
	int			file = open(getenv("WMSTEST_CLOCK"), O_RDONLY);
	int			result;

	if (!real)
		real = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = real(tv, tz);
	if (file >= 0 && read(file, text, sizeof(text) - 1) > 0)
		tv->tv_sec += atol(text);
	if (file >= 0)
		close(file);
	return result;
}
C

my $dir = PostgreSQL::Test::Utils::tempdir;
my $db = 'db';
my $patience = '20 seconds';

chomp(my $cc = `$ENV{PG_CONFIG} --cc`);
append_to_file("$dir/clock.c", $library);
plan skip_all => "no compiler ($cc)" if system("$cc -shared -fPIC -O -o $dir/clock.so $dir/clock.c -ldl") != 0;

my $file = "$dir/clock";
my $offset = 0;

sub set_clock
{
	my ($seconds) = @_;

	$offset += $seconds;
	append_to_file("$file.new", $offset);
	rename "$file.new", $file or die "rename: $!";
	return;
}

set_clock(0);
$ENV{WMSTEST_CLOCK} = $file;
my $node = configured_node('clock');
{
	local $ENV{LD_PRELOAD} = join ' ', grep { $_ } $ENV{LD_PRELOAD}, "$dir/clock.so";
	$node->start;
}
make_database($node, $db);

$node->safe_psql($db, q{
	CREATE TABLE beats (k int);
	CREATE TABLE quiet (ts timestamptz);
	CREATE TABLE busy (ts timestamptz);
	SELECT wmstream.create_stream('by_clock', $$
		SELECT lower(w) AS since, k, count(*) AS n FROM beats, wmstream.window(now(), '10 seconds') AS w GROUP BY w, k $$);
	SELECT wmstream.create_stream('rarely', $$SELECT k, count(*) AS n FROM beats GROUP BY k $$, output_mode => 'update', trigger_interval => '2 seconds');
	SELECT wmstream.create_stream('merged', $$
		SELECT ts FROM (SELECT ts FROM quiet WHERE wmstream.watermark(ts, '0') UNION ALL SELECT ts FROM busy WHERE wmstream.watermark(ts, '0')) u $$,
		idle_timeout => '2 seconds');
	CREATE VIEW w AS SELECT stream::text, watermark, late_rows FROM wmstream.stat_streams});
consumes($node, $db, $_, "$_ runs") for qw(by_clock rarely merged);
consumes_after($node, $db, $patience, 'INSERT INTO beats VALUES (1), (2)', $_, "$_: before") for qw(by_clock rarely);
consumes_after($node, $db, $patience, q{INSERT INTO quiet VALUES ('2024-01-01 10:00+00'); INSERT INTO busy VALUES ('2024-01-01 10:00+00')}, 'merged', 'merged: before');
my $before = $node->safe_psql($db, q{SELECT watermark FROM w WHERE stream = 'by_clock'});

# ---- a stream is blocked when it happens

my $session = session($node, $db);
$session->query_safe('BEGIN; LOCK TABLE rarely IN SHARE MODE');
$node->safe_psql($db, 'INSERT INTO beats VALUES (3)');
becomes($node, $db, 'rarely', 'blocked', 'a firing finds the result locked');
set_clock(-3600);
ok($node->safe_psql($db, "SELECT now() < timestamptz '$before' - interval '50 minutes'") eq 't', 'the clock is set back');
$session->query_safe('COMMIT');
becomes($node, $db, 'rarely', 'running', 'and the stream is tried again all the same');

# ---- windows of the clock

for my $round (1 .. 3)
{
	consumes_after($node, $db, $patience, 'INSERT INTO beats VALUES (1), (2)', 'by_clock', "windows of the clock, round $round");
}
is_sql($node, $db, qq{SELECT watermark >= '$before', late_rows FROM w WHERE stream = 'by_clock'}, 't|0', 'W did not go back, and nothing was late');
is_sql($node, $db, 'SELECT sum(n) FROM wmstream.live(NULL::by_clock)', '11', 'no row was lost');

# ---- the trigger interval, and idle sources

consumes_after($node, $db, $patience, 'INSERT INTO beats VALUES (1)', 'rarely', 'a stream that fires now and then fires');
consumes_after($node, $db, $patience, 'INSERT INTO beats VALUES (1)', 'rarely', '... and again');
is_sql($node, $db, 'SELECT sum(n) FROM rarely', '13', 'with all rows');
consumes_after($node, $db, $patience, q{INSERT INTO busy VALUES ('2024-01-01 11:00+00')}, 'merged', 'a source that has rows');
set_clock(-3600);
polls($node, $db, q{SELECT watermark = '2024-01-01 11:00+00' FROM w WHERE stream = 'merged'}, 'the one that has none becomes idle');

# ---- the clock is right again

set_clock(7200);
polls($node, $db, q{SELECT count(*) = 0 FROM wmstream.open_windows(NULL::by_clock)}, 'windows close when the clock has passed them');
is_sql($node, $db, 'SELECT sum(n) FROM by_clock', '13', 'with all rows');
never_crashed($node, 'the server never crashed');
$node->stop;

done_testing();
