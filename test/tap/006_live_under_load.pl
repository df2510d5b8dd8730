# Readers beside writers and emission: every window is there once, in a new snapshot and in an old one, in every mode; nothing that was there
# is missing later; what was committed before a wait() is counted. The worker is sent away now and then: a snapshot that windows were lost for
# says so.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('live');
my %options = (
	hourly => '',
	patient => q{, allowed_lateness => '10 minutes', trigger_interval => '100 ms'},
	running => q{, output_mode => 'update'},
	slowly => q{, output_mode => 'update', allowed_lateness => '10 minutes', trigger_interval => '100 ms'},
	visits => '',
	patient_visits => q{, allowed_lateness => '10 minutes'},
);

sub query_of
{
	my ($stream) = @_;
	my $window = $stream =~ /visits/ ? q{wmstream.session_window(ts, '1 second')} : q{wmstream.window(ts, '5 seconds')};
	my $delay = $stream =~ /patient|slowly/ ? '0' : '10 minutes';

	return "SELECT k, lower(w) AS since, count(*) AS n FROM event, $window AS w WHERE wmstream.watermark(ts, '$delay') GROUP BY w, k";
}

make_database($node, 'load');
$node->safe_psql('load', q{
	CREATE TABLE event (ts timestamptz, k int);
	CREATE SEQUENCE number;

	-- Times go on by 20 seconds a transaction and come up to 5 minutes out of order.
	CREATE FUNCTION put() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		base timestamptz := timestamptz '2024-01-01' + nextval('number') * interval '20 seconds';
	BEGIN
		INSERT INTO event SELECT base - random() * interval '5 minutes', (random() * 9)::int FROM generate_series(1, 20);
	END $$;

	CREATE FUNCTION live_of(stream text) RETURNS TABLE (k int, since timestamptz, n bigint) LANGUAGE plpgsql AS $$
	BEGIN
		RETURN QUERY EXECUTE format('SELECT k, since, n FROM wmstream.live(NULL::%I)', stream);
	END $$;

	CREATE FUNCTION each_once(stream text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		twice text;
	BEGIN
		SELECT string_agg(k || ' ' || since, ', ') INTO twice
		FROM (SELECT k, since FROM live_of(stream) GROUP BY k, since HAVING count(*) > 1) AS t;
		IF twice IS NOT NULL THEN
			RAISE EXCEPTION '% has twice: %', stream, twice;
		END IF;
	END $$;

	-- in an old snapshot: windows stay, and keep what they had
	CREATE FUNCTION nothing_goes(stream text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		gone text;
	BEGIN
		SELECT string_agg(k || ' ' || since, ', ') INTO gone
		FROM   first_look AS a LEFT JOIN live_of(stream) AS b USING (k, since)
		WHERE  b.n IS NULL OR b.n < a.n;
		IF gone IS NOT NULL AND stream NOT LIKE '%visits' THEN	-- a session may begin earlier by now
			RAISE EXCEPTION '% lacks: %', stream, gone;
		END IF;
		SELECT string_agg(k::text, ', ') INTO gone
		FROM   (SELECT k, sum(n) AS n FROM first_look GROUP BY k) AS a LEFT JOIN (SELECT k, sum(n) AS n FROM live_of(stream) GROUP BY k) AS b USING (k)
		WHERE  b.n IS NULL OR b.n < a.n;
		IF gone IS NOT NULL THEN
			RAISE EXCEPTION '% lacks rows of %', stream, gone;
		END IF;
	END $$;

	CREATE FUNCTION counts() RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_object_agg(k, n) FROM (SELECT k, count(*) AS n FROM event GROUP BY k) AS c';

	-- each statement with a snapshot of its own
	CREATE PROCEDURE counts_what_was_there(stream text) LANGUAGE plpgsql AS $$
	DECLARE
		before jsonb := counts();
		live jsonb;
		after jsonb;
		wrong text;
	BEGIN
		COMMIT;
		PERFORM wmstream.wait(stream::regclass, '60 s');
		COMMIT;
		live := (SELECT jsonb_object_agg(k, n) FROM (SELECT k, sum(n) AS n FROM live_of(stream) GROUP BY k) AS c);
		COMMIT;
		after := counts();
		SELECT string_agg(format('%s: %s <= %s <= %s', k, before -> k, live -> k, after -> k), ', ') INTO wrong
		FROM   jsonb_object_keys(before) AS k
		WHERE  NOT coalesce((before ->> k)::int <= (live ->> k)::int AND (live ->> k)::int <= (after ->> k)::int, false);
		IF wrong IS NOT NULL THEN
			RAISE EXCEPTION '% counts %', stream, wrong;
		END IF;
	END $$;
});
$node->safe_psql('load', "SELECT wmstream.create_stream('$_', \$\$" . query_of($_) . "\$\$$options{$_})") for sort keys %options;
$node->safe_psql('load', 'INSERT INTO event SELECT timestamptz \'2024-01-01\', k FROM generate_series(0, 9) AS k');
consumes($node, 'load', $_, "$_ runs") for sort keys %options;

# The pgbench scripts of one run; each run wants files of its own.
sub scripts
{
	my ($run) = @_;
	my %files = ("$run-put\@12" => 'SELECT put();');

	for my $stream (keys %options)
	{
		$files{"$run-new-$stream\@1"} = "CALL counts_what_was_there('$stream'); SELECT each_once('$stream');";
		$files{"$run-old-$stream\@1"} = qq{
			BEGIN ISOLATION LEVEL REPEATABLE READ;
			CREATE TEMP TABLE first_look ON COMMIT DROP AS SELECT * FROM live_of('$stream');
			\\sleep 100 ms
			SELECT nothing_goes('$stream');
			SELECT each_once('$stream');
			\\sleep 300 ms
			SELECT nothing_goes('$stream');
			SELECT each_once('$stream');
			COMMIT;};
	}
	return \%files;
}

# What a check finds wrong is an error, which ends pgbench; a serialization failure does not.
sub under_load
{
	my ($run, $test) = @_;

	$node->pgbench('-n -c 6 -t 60', 0, [qr{actually processed}], [qr{^$}], $test, scripts($run), 'load');
	return;
}

under_load('quiet', 'readers see every window once, and none is missing');

# ---- the worker goes and comes

my $away = session($node, 'load');

$away->query_until(qr/begun/, q{
	\echo begun
	DO $$ BEGIN
		FOR i IN 1..6 LOOP
			PERFORM pg_sleep(1);
			PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'wmstream%' AND datname IS NOT NULL;
		END LOOP;
	END $$;
});
under_load('restless', 'also while the worker goes and comes');
$away->quit;
consumes($node, 'load', $_, "$_ still runs") for sort keys %options;
is_sql($node, 'load', q{SELECT sum(late_rows) FROM wmstream.stat_streams}, '0', 'no row was late');
never_crashed($node);

done_testing();
