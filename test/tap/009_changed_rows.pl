# on_change => 'retract' under random INSERT, UPDATE, DELETE, TRUNCATE, by several sessions at once and with rollbacks, while streams are
# paused, workers and the server go and come: open windows are what the query says of the table as it is now, in every mode, with states
# undone and with arguments kept, direct and planned, over one source, over two, over partitions, over another stream's result.
#
# WMS_CHANGES_SEED and WMS_CHANGES_ROUNDS choose another run, WMS_CHANGES_CONF gives the server more settings.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $seed = $ENV{WMS_CHANGES_SEED} // 1;
my $rounds = $ENV{WMS_CHANGES_ROUNDS} // 12;
my $node = new_node('changes', $ENV{WMS_CHANGES_CONF});
my $db = 'db';

srand($seed);
make_database($node, $db);
$node->safe_psql($db, q{
	CREATE SEQUENCE ids;
	CREATE TABLE event (id int DEFAULT nextval('ids'), ts timestamptz, k int, v int, amount numeric(8,2), f float8, note text) PARTITION BY LIST (k);
	CREATE TABLE event_low PARTITION OF event FOR VALUES IN (0, 1);
	CREATE TABLE event_high (note text, f float8, junk int, amount numeric(8,2), id int DEFAULT nextval('ids'), v int, k int, ts timestamptz);
	ALTER TABLE event_high DROP COLUMN junk;
	ALTER TABLE event ATTACH PARTITION event_high FOR VALUES IN (2, 3);
	CREATE TABLE event_rest PARTITION OF event DEFAULT;
	CREATE TABLE other (ts timestamptz, k int, v int);
	ALTER TABLE event_low REPLICA IDENTITY FULL;
	ALTER TABLE event_high REPLICA IDENTITY FULL;
	ALTER TABLE event_rest REPLICA IDENTITY FULL;
	ALTER TABLE other REPLICA IDENTITY FULL;
	ALTER TABLE event_low ALTER note SET STORAGE EXTERNAL;
});

my $undone = q{SELECT lower(w) AS hour, k, count(*) AS n, count(note) AS notes, sum(v) AS v, avg(v) AS mean, sum(amount) AS amount, stddev(amount) AS sd,
	count(*) FILTER (WHERE v > 50) AS large FROM event, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '6 hours') AND v IS DISTINCT FROM 13 GROUP BY w, k};
my $kept = q{SELECT lower(w) AS hour, k, count(*) AS n, min(v) AS lo, max(length(note)) AS longest, round(sum(f)::numeric, 4) AS f, count(DISTINCT v) AS vs,
	array_agg(v ORDER BY v, id) AS vv FROM event, wmstream.window(ts, '2 hours', '30 minutes') AS w WHERE wmstream.watermark(ts, '6 hours') GROUP BY w, k};
my $both = q{SELECT lower(w) AS hour, k, count(*) AS n, sum(v) AS v, max(v) AS hi FROM (
	SELECT ts, k, v FROM event WHERE wmstream.watermark(ts, '6 hours') UNION ALL SELECT ts, k, -v FROM other WHERE wmstream.watermark(ts, '6 hours')) u,
	wmstream.window(ts, '1 hour') AS w GROUP BY w, k};
my $below = q{SELECT lower(w) AS hour, k, count(*) AS n, sum(x) AS v FROM (
	SELECT ts, k, v + i AS x FROM event, generate_series(1, k) AS i WHERE v > 5) e, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '6 hours') GROUP BY w, k};
my $ranked = q{SELECT hour, k, n, v, r FROM (SELECT lower(w) AS hour, w, k, id AS n, v, rank() OVER (PARTITION BY w, k ORDER BY v, id) AS r
	FROM event, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '6 hours')) x WHERE r <= 3};
my %streams = (
	undone_append => [ $undone, '', '1 hour' ],
	undone_update => [ $undone, q{, output_mode => 'update'}, '1 hour' ],
	undone_complete => [ $undone, q{, output_mode => 'complete'}, '1 hour' ],
	undone_lately => [ $undone, q{, allowed_lateness => '3 hours'}, '1 hour' ],
	undone_rarely => [ $undone, q{, output_mode => 'update', trigger_interval => '700 ms'}, '1 hour' ],
	kept_append => [ $kept, '', '2 hours' ],
	kept_update => [ $kept, q{, output_mode => 'update'}, '2 hours' ],
	kept_complete => [ $kept, q{, output_mode => 'complete'}, '2 hours' ],
	both_update => [ $both, q{, output_mode => 'update'}, '1 hour' ],
	below_update => [ $below, q{, output_mode => 'update'}, '1 hour' ],
	ranked => [ $ranked, '', '1 hour' ],
	forever => [ q{SELECT k, count(*) AS n, sum(v) AS v, max(v) AS hi FROM event GROUP BY k HAVING count(*) <> 3}, q{, output_mode => 'update'}, undef ],
);

for my $stream (sort keys %streams)
{
	$node->safe_psql($db, "SELECT wmstream.create_stream('$stream', \$q\$$streams{$stream}[0]\$q\$, on_change => 'retract'$streams{$stream}[1])");
}
$node->safe_psql($db, 'ALTER TABLE undone_update REPLICA IDENTITY FULL');
my $above = q{SELECT k, sum(n) AS n, sum(v) AS v, count(*) AS hours FROM undone_update GROUP BY k};
$streams{above} = [ $above, '', undef ];
$node->safe_psql($db, "SELECT wmstream.create_stream('above', '$above', output_mode => 'complete', on_change => 'retract')");

# ---- what is done to the tables

my $hour = 0;

sub any
{
	return int(rand($_[0]));
}

# Times of about 16 hours, which go on; some are far behind.
sub time_sql
{
	my $back = any(20) == 0 ? 40 : 12;

	return "timestamptz '2024-01-01' + $hour * interval '1 hour' + (random() * $back - $back + 2) * interval '1 hour'";
}

sub some
{
	return sprintf('hashint4(id + %d) %% %d = 0', any(1000), 2 + any(12));
}

sub statement
{
	my $which = any(100);

	return 'INSERT INTO event (ts, k, v, amount, f, note) SELECT ' . time_sql() . ', (random() * 5)::int, (random() * 100)::int, (random() * 1000)::numeric, random(), '
	  . "CASE WHEN i % 7 = 0 THEN repeat(md5(i::text), 100) WHEN i % 3 > 0 THEN 'n' || i END FROM generate_series(1, " . (1 + any(60)) . ') i'
	  if $which < 40;
	return 'INSERT INTO other SELECT ' . time_sql() . ', (random() * 5)::int, (random() * 100)::int FROM generate_series(1, 10)' if $which < 48;
	return 'UPDATE event SET v = v + 1 - (random() * 2)::int WHERE ' . some() if $which < 60;
	return "UPDATE event SET amount = amount + 0.01, note = CASE WHEN v % 2 = 0 THEN NULL ELSE 'new' END WHERE " . some() if $which < 66;
	return "UPDATE event SET ts = ts + (random() - 0.5) * interval '4 hours' WHERE " . some() if $which < 74;
	return 'UPDATE event SET k = (k + 1 + (random() * 3)::int) % 6 WHERE ' . some() if $which < 82;
	return 'UPDATE event SET v = NULL, ts = CASE WHEN v % 5 = 0 THEN NULL ELSE ts END WHERE ' . some() if $which < 85;
	return 'UPDATE other SET v = v + 1 WHERE k = ' . any(6) if $which < 88;
	return 'DELETE FROM other WHERE k = ' . any(6) if $which < 90;
	return 'DELETE FROM event WHERE k = ' . any(6) if $which < 92;
	return 'DELETE FROM event WHERE ' . some();
}

sub transaction
{
	my @statements = map { statement() } 0 .. any(4);
	my $sql = join(";\n", @statements);

	return "BEGIN; $sql; ROLLBACK;" if any(12) == 0;
	return 'BEGIN; ' . statement() . "; SAVEPOINT a; $sql; ROLLBACK TO a; " . statement() . '; COMMIT;' if any(8) == 0;
	return 'BEGIN; SAVEPOINT a; ' . statement() . "; RELEASE a; $sql; COMMIT;" if any(8) == 0;
	return "BEGIN; $sql; COMMIT;";
}

# Several sessions at once; deadlocks between them are their own.
sub work
{
	my @sessions;

	for my $i (1 .. 3)
	{
		my $sql = "SET deadlock_timeout = '50 ms';\n" . join("\n", map { transaction() } 1 .. 8);

		push @sessions, IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr($db) ], '<', \$sql, '>', \my $out, '2>', \my $err);
	}
	$_->finish for @sessions;
	return;
}

sub disturb
{
	my $which = any(8);
	my $stream = (sort keys %streams)[ any(scalar keys %streams) ];

	if ($which == 0)
	{
		$node->restart;
		return 'a restart';
	}
	elsif ($which == 1)
	{
		$node->stop('immediate');
		$node->start;
		return 'a crash';
	}
	elsif ($which == 2)
	{
		$node->safe_psql($db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname IS NOT NULL");
		return 'the end of the worker';
	}
	elsif ($which == 3)
	{
		$node->safe_psql($db, "SELECT wmstream.pause('$stream')");
		work();
		$node->safe_psql($db, "SELECT wmstream.resume('$stream')");
		return "a pause of $stream";
	}
	return 'nothing';
}

# ---- what is compared

# Rows of open windows (of all, where nothing closes), of live() and of the query, both ways.
sub open_is_right
{
	my ($stream, $when) = @_;
	my ($query, $options, $size) = @{ $streams{$stream} };
	my $open = $size && $options !~ /complete/ ? "hour + interval '$size' > coalesce((SELECT watermark FROM wmstream.stat_streams WHERE stream = '$stream'::regclass), '-infinity')"
	  : $size ? 'hour IS NOT NULL' : 'true';
	my $shown = $options =~ /update/ && $options !~ /trigger/ ? "TABLE $stream" : "SELECT * FROM wmstream.live(NULL::$stream)";
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $stream, "$when: $stream consumes all");
	return is_sql($node, $db, qq{
		WITH now_is AS MATERIALIZED ($query), shown AS MATERIALIZED ($shown)
		SELECT (SELECT count(*) FROM (SELECT * FROM now_is WHERE $open EXCEPT ALL SELECT * FROM shown WHERE $open) m),
			   (SELECT count(*) FROM (SELECT * FROM shown WHERE $open EXCEPT ALL SELECT * FROM now_is WHERE $open) s)},
		'0|0', "$when: $stream is what the table says");
}

for my $round (1 .. $rounds)
{
	my $what = "round $round of seed $seed, after ";

	$hour += any(3);
	work();
	$what .= disturb();
	work() if any(2);
	if (any(10) == 0)
	{
		$node->safe_psql($db, 'TRUNCATE event, other');
		# it has two sources, and cannot tell whose rows these were
		becomes($node, $db, 'both_update', 'failed', "$what: two tables are truncated") if delete $streams{both_update};
		work();
	}
	open_is_right($_, $what) for sort keys %streams;
}

is_sql($node, $db, q{SELECT count(*) > 0 FROM wmstream.stat_streams WHERE late_rows > 0}, 't', 'some changes were late');
is_sql($node, $db, q{SELECT sum(changed_rows) > 100 FROM wmstream.stat_streams}, 't', 'rows were changed');
is_sql($node, $db, q{SELECT string_agg(stream || ': ' || coalesce(reason, status), E'\n') FROM wmstream.streams WHERE status NOT IN ('running', 'starting') AND stream <> 'both_update'::regclass}, '',
	'no stream stands still');
never_crashed($node, undef);

done_testing();
