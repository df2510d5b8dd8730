# Streams that come with a dump into another database, where columns have other numbers: pg_dump leaves out dropped ones. Rebuilt or begun
# anew they give what they give at home, in the result and in live(). The oracle is the definition run by hand.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('restored');
my $db = 'home';

make_database($node, $db);

# Each result has dropped columns, before or between those of the key.
$node->safe_psql($db, q{
	CREATE TABLE event (gone int, id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, gone_too text, k text, v int);
	ALTER TABLE event DROP gone, DROP gone_too;
	CREATE TABLE appended (gone int, minute timestamptz, k text, n bigint, total bigint);
	CREATE TABLE updated (gone int, hour timestamptz, k text, n bigint);
	CREATE TABLE turned (n bigint, gone int, k text, note text DEFAULT 'mine', gone_too int, hour timestamptz);
	CREATE TABLE parts (gone int, hour timestamptz, k text, n bigint) PARTITION BY LIST (k);
	CREATE TABLE parts_0 (k text, gone int, n bigint, hour timestamptz);
	CREATE TABLE parts_rest (gone int, hour timestamptz, k text, n bigint);
	CREATE TABLE sessions (gone int, since timestamptz, until timestamptz, k text, n bigint);
	CREATE TABLE whole (gone int, k text, total bigint);
	CREATE TABLE late (gone int, stream regclass, source regclass, event_time timestamptz, watermark timestamptz, reason text, error text,
		arrived_at timestamptz, row_data jsonb);
	ALTER TABLE appended DROP gone;
	ALTER TABLE updated DROP gone;
	ALTER TABLE turned DROP gone, DROP gone_too;
	ALTER TABLE parts DROP gone;
	ALTER TABLE parts_0 DROP gone;
	ALTER TABLE parts_rest DROP gone;
	ALTER TABLE parts ATTACH PARTITION parts_0 FOR VALUES IN ('k0');
	ALTER TABLE parts ATTACH PARTITION parts_rest DEFAULT;
	ALTER TABLE sessions DROP gone;
	ALTER TABLE whole DROP gone;
	ALTER TABLE late DROP gone});

my $hourly = q{SELECT lower(w) AS hour, k, count(*) AS n FROM event, wmstream.window(ts, '1 hour') AS w
	WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w, k};
my %query = (
	appended => q{SELECT lower(w) AS minute, k, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 minute') AS w
		WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w, k},
	updated => $hourly,
	turned => $hourly,
	parts => $hourly,
	sessions => q{SELECT lower(w) AS since, upper(w) AS until, k, count(*) AS n FROM event, wmstream.session_window(ts, '90 s') AS w
		WHERE wmstream.watermark(ts, '2 minutes') GROUP BY w, k},
	whole => q{SELECT k, sum(v) AS total FROM event GROUP BY k});
my %options = (
	updated => q{, output_mode => 'update', late_table => 'late'},
	turned => q{, output_mode => 'update'},
	parts => q{, output_mode => 'update'},
	sessions => q{, allowed_lateness => '1 day'},
	whole => q{, output_mode => 'complete'});
my @all = sort keys %query;

sub batch
{
	my ($name) = @_;

	return $name eq 'sessions' ? sessions_by_hand() : $query{$name};
}

sub columns
{
	my ($name) = @_;

	return $name eq 'turned' ? 'hour, k, n' : '*';
}

# All rows once, in the result and the open windows.
sub is_right
{
	my ($name, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $name, "$test: $name consumes all");
	is_sql($node, $db, 'WITH batch AS MATERIALIZED (' . batch($name) . '), shown AS MATERIALIZED (SELECT ' . columns($name) . " FROM wmstream.live(NULL::$name))"
		  . q{SELECT (SELECT count(*) FROM batch) > 0, (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) x),
			(SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) y)}, 't|0|0', "$test: $name is what the batch query says");
	return;
}

sub all_are_right
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is_right($_, $test) for @all;
	return;
}

sub write_rows
{
	my ($from) = @_;

	$node->safe_psql($db, qq{INSERT INTO event (ts, k, v)
		SELECT timestamptz '2024-01-01 00:00+00' + interval '$from' + i * interval '20 s', CASE WHEN i % 4 < 3 THEN 'k' || i % 4 END, i FROM generate_series(1, 500) i});
	return;
}

# A session is emitted, and then grows beyond W.
sub write_late_rows
{
	$node->safe_psql($db, q{INSERT INTO event (ts, k, v) SELECT max(ts) - interval '2 minutes', 'apart', 1 FROM event});
	consumes($node, $db, 'sessions');
	$node->safe_psql($db, q{INSERT INTO event (ts, k, v) SELECT max(ts) + interval '2 minutes', 'k1', 1 FROM event});
	consumes($node, $db, 'sessions');
	$node->safe_psql($db, q{INSERT INTO event (ts, k, v) SELECT max(ts) + interval '80 s', 'apart', 1 FROM event WHERE k = 'apart'});
	return;
}

$node->safe_psql($db, "SELECT wmstream.create_stream('$_', \$\$ $query{$_} \$\$" . ($options{$_} // '') . ')') for @all;
write_rows('0');
all_are_right('at home');

# One that was told to let go of what is not closed: that was for the state that stays at home.
$node->safe_psql($db, qq{SELECT wmstream.create_stream('anew', \$\$ $hourly \$\$);
	SELECT wmstream.advance_watermark('anew', '2030-01-01')});
consumes($node, $db, 'anew');

my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr($db) ], 'the database is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE away');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('away') ], '... and restored');
is_sql($node, 'away', q{SELECT count(*) FROM pg_attribute a JOIN wmstream.streams s ON a.attrelid = s.stream WHERE attisdropped}, '0', 'the columns have other numbers there');

$db = 'away';
becomes($node, $db, $_, 'restored') for @all;
$node->safe_psql($db, "SELECT wmstream.resync('$_')") for @all;
all_are_right('restored and rebuilt');
write_rows('3 hours');
all_are_right('... and goes on');
$node->safe_psql($db, q{SELECT wmstream.alter_stream('appended', 'allowed_lateness', '1 hour')});
write_rows('6 hours');
all_are_right('... and with another lateness');
write_late_rows();
is_right('sessions', 'a session that has grown since it was emitted');
is_sql($node, $db, q{SELECT (SELECT n FROM sessions WHERE k = 'apart'), (SELECT n FROM wmstream.live(NULL::sessions) WHERE k = 'apart')}, '1|2', '... which the result does not show yet');
$node->safe_psql($db, q{INSERT INTO event (ts, k, v) VALUES ('2024-01-01 00:00+00', 'late', 1)});
consumes($node, $db, 'updated');
is_sql($node, $db, q{SELECT stream, source, event_time AT TIME ZONE 'UTC', reason, row_data ->> 'k' FROM late}, 'updated|event|2024-01-01 00:00:00|late|late', 'a late row is put aside');

# Begun anew, from then on.
$node->safe_psql($db, q{SELECT wmstream.resume('anew')});
consumes($node, $db, 'anew');
$node->safe_psql($db, q{INSERT INTO event (ts, k, v) SELECT timestamptz '2024-02-01 00:00+00' + i * interval '20 s', 'k' || i % 4, i FROM generate_series(1, 500) i});
consumes($node, $db, 'anew');
is_sql($node, $db, qq{WITH batch AS MATERIALIZED (SELECT * FROM ($hourly) b WHERE hour >= '2024-02-01'), shown AS MATERIALIZED (SELECT * FROM wmstream.live(NULL::anew) WHERE hour >= '2024-02-01')
	SELECT (SELECT count(*) FROM batch) > 0, (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) x), (SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) y)},
	't|0|0', 'resumed, it begins without the former watermark');

$node->stop;
never_crashed($node);
done_testing();
