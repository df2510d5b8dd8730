# What the TAP tests of wmstream share: servers with its settings, polling for its processes and statuses.
#
# Every wait is a poll with a deadline; nothing sleeps and hopes.
# Functions whose name is a sentence (worker_runs, becomes …) are tests: they report ok or not ok.

package WmsTap;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_node configured_node session make_database is_sql polls fails_like worker_pid worker_runs no_worker new_worker
  no_slot set_point waits_at becomes consumes consumes_after never_crashed role_with_streams sessions_by_hand);

# A poll that gives up after so many seconds, and more as each look takes its time.
$PostgreSQL::Test::Utils::timeout_default = 25 unless defined $ENV{PG_TEST_TIMEOUT_DEFAULT};

my $conf = slurp_file(abs_path(dirname(__FILE__)) . '/../wmstream.conf');

my $workers = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'wmstream worker' AND datname IS NOT NULL";

# A cluster with the settings of test/wmstream.conf and more of one's own, not started.
sub configured_node
{
	my ($name, $more) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
	$node->append_conf('postgresql.conf', "$conf\nrestart_after_crash = on\nmax_wal_senders = 4\n" . ($more // ''));
	return $node;
}

sub new_node
{
	my $node = configured_node(@_);

	$node->start;
	return $node;
}

# A session that stays open beside the others; background_psql alone would end at the deadline of a single poll.
sub session
{
	my ($node, $database, %more) = @_;

	return $node->background_psql($database, timeout => 1200, %more);
}

# A database with the extension.
sub make_database
{
	my ($node, $name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, 'CREATE EXTENSION wmstream');
	return;
}

# A role without privileges of its own, but for what creating streams in schema public needs.
sub role_with_streams
{
	my ($node, $database, $role) = @_;
	my $signature =
	  $node->safe_psql($database, "SELECT oid::regprocedure FROM pg_proc WHERE proname = 'create_stream' AND pronamespace = 'wmstream'::regnamespace");

	$node->safe_psql($database, qq{
		CREATE ROLE $role LOGIN;
		GRANT USAGE, CREATE ON SCHEMA public TO $role;
		GRANT EXECUTE ON FUNCTION $signature TO $role});
	return;
}

# ---- tests

# The query's answer, as psql -At prints it.
sub is_sql
{
	my ($node, $database, $query, $expected, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($node->safe_psql($database, $query), $expected, $test);
}

# The query comes to give 't', or what is expected.
sub polls
{
	my ($node, $database, $query, $test, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok($node->poll_query_until($database, $query, $expected), $test);
}

# The statement fails, and what psql prints about it matches all the patterns.
sub fails_like
{
	my ($node, $database, $sql, $patterns, $test) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($database, $sql, timeout => 60);
	my @missing = grep { $stderr !~ $_ } @$patterns;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok($ret != 0 && !@missing, $test)
	  || diag("expected an error like @$patterns, got status $ret and: $stderr");
}

# The worker's process id, waiting for it; empty if none comes.
sub worker_pid
{
	my ($node, $database) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($workers AND datname = '$database') w") or return '';
	return $node->safe_psql('postgres', "$workers AND datname = '$database'");
}

sub worker_runs
{
	my ($node, $database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, 'postgres', "SELECT count(*) = 1 FROM ($workers AND datname = '$database') w", $test);
}

# There comes to be none.
sub no_worker
{
	my ($node, $database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, 'postgres', "SELECT count(*) = 0 FROM ($workers AND datname = '$database') w", $test);
}

# Another worker than the one with this process id.
sub new_worker
{
	my ($node, $database, $old, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, 'postgres', "SELECT count(*) = 1 FROM ($workers AND datname = '$database') w WHERE pid <> $old", $test);
}

# No slot of wmstream, in the whole cluster or by its full name.
sub no_slot
{
	my ($node, $test, $name) = @_;
	my $which = defined $name ? "slot_name = '$name'" : "slot_name LIKE 'wmstream%'";
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, 'postgres', "SELECT count(*) = 0 FROM pg_replication_slots WHERE $which", $test);
}

# What all processes of the server do at test points from now on; nothing, if empty.
sub set_point
{
	my ($node, $value) = @_;

	$node->safe_psql('postgres', $value ? "ALTER SYSTEM SET wmstream.test_point = '$value'" : 'ALTER SYSTEM RESET wmstream.test_point');
	$node->reload;
	return;
}

# A process comes to wait at the test point; offset: from where on the server's log tells.
sub waits_at
{
	my ($node, $point, $offset, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(eval { $node->wait_for_log(qr/test point "\Q$point\E": waiting/, $offset); 1 }, $test);
}

# The stream comes to have this status.
sub becomes
{
	my ($node, $database, $stream, $status, $test) = @_;
	my $query = "SELECT status FROM wmstream.streams WHERE stream = '$stream'::regclass";
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, $database, $query, $test // "$stream becomes $status", $status)
	  || diag($node->safe_psql($database, "SELECT status, reason FROM wmstream.streams WHERE stream = '$stream'::regclass"));
}

# The stream comes to the end of what is committed.
sub consumes
{
	my ($node, $database, $stream, $test) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($database, "SELECT wmstream.wait('$stream', '50 s')");
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($stderr, '', $test // "$stream consumes all");
}

# The statement is run, and the stream comes to the end of what it committed, within that time.
sub consumes_after
{
	my ($node, $database, $within, $statement, $stream, $test) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($database, "$statement; SELECT wmstream.wait('$stream', '$within')");
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($stderr, '', $test);
}

# Sessions of 90 s by k of event (id, ts, k) in plain SQL.
sub sessions_by_hand
{
	return q{
		SELECT min(ts) AS since, max(ts) + interval '90 s' AS until, k, count(*) AS n
		FROM (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts, id) AS session
			FROM (SELECT *, (ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) > interval '90 s')::int AS begins FROM event) a) b
		GROUP BY k, coalesce(session, 0)};
}

# The server's log tells of no crash; the pattern names what the test did itself.
sub never_crashed
{
	my ($node, $but) = @_;
	my @bad = grep { /\bPANIC:|\bTRAP:|terminated by signal/ && !(defined $but && /$but/) } split(/\n/, slurp_file($node->logfile));
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(join("\n", @bad), '', 'no crash in the log of ' . $node->name);
}

1;
