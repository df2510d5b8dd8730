# The owner's code in the worker. A role that owns a stream plants code wherever the stream runs some of it: functions and
# aggregates in the query, a column default, a check, an index expression, triggers of every kind, constraint triggers that are
# deferred. All of it writes down who it was and what it could do. It must always have been the owner, must never have become
# anybody else, and must leave nothing behind: no setting, no advisory lock, no temporary table, no time taken from other streams.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('owner');
my $db = 'db';
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my $next_id = 1;

make_database($node, $db);
role_with_streams($node, $db, 'mallory');
role_with_streams($node, $db, 'alice');
$node->safe_psql($db, q{
	CREATE TABLE event (id int, ts timestamptz, v int);
	GRANT SELECT ON event TO mallory, alice});

sub as
{
	my ($role, $sql) = @_;

	return $node->safe_psql($db, "SET SESSION AUTHORIZATION $role; $sql");
}

# One row; both streams' windows close with the next.
sub insert_row
{
	my ($v) = @_;
	my $id = $next_id++;

	$node->safe_psql($db, "INSERT INTO event VALUES ($id, timestamptz '2024-01-01 00:00+00' + $id * interval '1 hour', $v)");
	return;
}

# ---- alice: her trigger writes down the settings that it finds

as('alice', q{
	CREATE TABLE alice_seen (n serial, settings text);
	CREATE FUNCTION alice_looks() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.alice_seen (settings)
		SELECT pg_catalog.concat_ws(' ', current_user, pg_catalog.string_agg(name || '=' || setting, ' ' ORDER BY name),
			nullif(pg_catalog.current_setting('planted.leak', true), ''))
		FROM pg_catalog.pg_settings
		WHERE name IN ('search_path', 'TimeZone', 'DateStyle', 'IntervalStyle', 'lock_timeout', 'statement_timeout', 'role', 'work_mem',
			'session_replication_role', 'default_transaction_read_only', 'check_function_bodies', 'constraint_exclusion');
		RETURN NEW;
	END $$});
my $hourly = q{$$ SELECT lower(w) AS hour, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
	WHERE wmstream.watermark(ts, '0') GROUP BY w $$};
as('alice', "SELECT wmstream.create_stream('alice_hourly', $hourly)");
as('alice', 'CREATE TRIGGER looks BEFORE INSERT ON alice_hourly FOR EACH ROW EXECUTE FUNCTION alice_looks()');

insert_row(1) foreach (1 .. 3);
consumes($node, $db, 'alice_hourly');
is_sql($node, $db, 'SELECT count(*) > 0 AND count(DISTINCT settings) = 1 FROM alice_seen', 't', 'what settings a stream finds when it is alone');
like($node->safe_psql($db, 'SELECT DISTINCT settings FROM alice_seen'), qr/^alice .*search_path=pg_catalog, pg_temp/, '... its own role, a safe search_path');
my $alone = $node->safe_psql($db, 'SELECT DISTINCT settings FROM alice_seen');

# ---- mallory: plants

as('mallory', q{
	CREATE TABLE seen (n serial, place text, who text, became text, secrets text, path text);

	-- Tries to be somebody else, and says what came of it.
	CREATE FUNCTION spy(place text) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		became text := '';
		secrets text;
		attempt text;
		path text := pg_catalog.current_setting('search_path');
	BEGIN
		FOREACH attempt IN ARRAY ARRAY['SET ROLE SUPERUSER_NAME', 'SET LOCAL ROLE SUPERUSER_NAME', 'RESET ROLE', 'SET ROLE NONE',
			'SET SESSION AUTHORIZATION SUPERUSER_NAME', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET SESSION AUTHORIZATION', 'DISCARD ALL',
			$q$ SELECT pg_catalog.set_config('role', 'SUPERUSER_NAME', false) $q$,
			$q$ SELECT pg_catalog.set_config('session_authorization', 'SUPERUSER_NAME', false) $q$,
			'ALTER ROLE mallory SUPERUSER', 'CREATE ROLE planted SUPERUSER', $q$ COPY (SELECT 1) TO PROGRAM 'true' $q$,
			'CREATE TEMP TABLE planted_temp (x int)']
		LOOP
			BEGIN
				EXECUTE attempt;
			EXCEPTION WHEN OTHERS THEN
				NULL;
			END;
			IF current_user <> 'mallory' THEN
				became := became || ' ' || attempt || ': ' || current_user;
			END IF;
		END LOOP;
		BEGIN
			SELECT 'read them' INTO secrets FROM pg_catalog.pg_authid LIMIT 1;
		EXCEPTION WHEN insufficient_privilege THEN
			secrets := 'no';
		END;
		INSERT INTO public.seen (place, who, became, secrets, path) VALUES (place, current_user, became, secrets, path);
		RETURN 1;
	END $$;

	CREATE FUNCTION spy_quietly(place text, value int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM public.spy(place); RETURN value; END $$;
	CREATE FUNCTION spy_step(total int, value int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM public.spy('transition'); RETURN coalesce(total, 0) + value; END $$;
	CREATE FUNCTION spy_end(total int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM public.spy('final function'); RETURN total; END $$;
	CREATE AGGREGATE spy_sum(int) (sfunc = spy_step, stype = int, finalfunc = spy_end);

	CREATE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM public.spy(TG_NAME || ' trigger');
		-- What would stay behind, were it not cleared away.
		PERFORM pg_catalog.pg_advisory_lock(4711), pg_catalog.pg_advisory_lock_shared(4712);
		PERFORM pg_catalog.set_config(name, value, false) FROM (VALUES ('search_path', 'public'), ('TimeZone', 'Asia/Tokyo'),
			('DateStyle', 'German'), ('IntervalStyle', 'iso_8601'), ('lock_timeout', '0'), ('statement_timeout', '1h'), ('work_mem', '64kB'),
			('planted.leak', 'yes'), ('constraint_exclusion', 'off'), ('check_function_bodies', 'off')) AS s (name, value);
		RETURN NEW;
	END $$} =~ s/SUPERUSER_NAME/$superuser/gr);

# The result is there before the stream, with a default, a check and an index that run code; the triggers come with it.
as('mallory', q{
	CREATE TABLE mallory_hourly (hour timestamptz, n bigint, planted int, total int,
		extra int DEFAULT spy('default'), CHECK (spy_quietly('check', 1) = 1));
	CREATE INDEX ON mallory_hourly (spy_quietly('index', n::int));
	CREATE TRIGGER statement_before BEFORE INSERT ON mallory_hourly FOR EACH STATEMENT EXECUTE FUNCTION spy_trigger();
	CREATE TRIGGER statement_after AFTER INSERT ON mallory_hourly FOR EACH STATEMENT EXECUTE FUNCTION spy_trigger();
	CREATE TRIGGER row_before BEFORE INSERT ON mallory_hourly FOR EACH ROW EXECUTE FUNCTION spy_trigger();
	CREATE TRIGGER row_after AFTER INSERT ON mallory_hourly FOR EACH ROW EXECUTE FUNCTION spy_trigger();
	CREATE CONSTRAINT TRIGGER can_be_deferred AFTER INSERT ON mallory_hourly DEFERRABLE FOR EACH ROW EXECUTE FUNCTION spy_trigger();
	CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON mallory_hourly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION spy_trigger();
	TRUNCATE seen});
as('mallory', q{SELECT wmstream.create_stream('mallory_hourly', $$
	SELECT lower(w) AS hour, count(*) AS n, public.spy_quietly('upper expression', count(*)::int) AS planted, public.spy_sum(v)::int AS total
	FROM (SELECT ts, public.spy_quietly('lower expression', v) AS v FROM event) e, wmstream.window(ts, '1 hour') AS w
	WHERE wmstream.watermark(ts, '0') GROUP BY w HAVING public.spy_quietly('having', count(*)::int) > 0 AND public.spy_quietly('planning', 1) = 1 $$)});
# What is constant is computed when the query is planned: at creation, and by the worker when it begins.
polls($node, $db, q{SELECT count(*) > 1 FROM seen WHERE place = 'planning'}, 'code ran: planning');
is_sql($node, $db, q{SELECT string_agg(DISTINCT concat_ws(' ', who, became, secrets), ', ') FROM seen WHERE place = 'planning'}, 'mallory  no', '... as mallory and nobody else');
$node->safe_psql($db, 'TRUNCATE seen');

insert_row(1) foreach (1 .. 3);
consumes($node, $db, 'mallory_hourly');
insert_row(1) foreach (1 .. 3);
consumes($node, $db, $_) foreach ('mallory_hourly', 'alice_hourly');

my @places = ('lower expression', 'transition', 'final function', 'having', 'upper expression', 'default', 'check', 'index',
	map { "$_ trigger" } ('statement_before', 'statement_after', 'row_before', 'row_after', 'can_be_deferred', 'deferred'));
foreach my $place (@places)
{
	is_sql($node, $db, "SELECT count(*) > 0 FROM seen WHERE place = '$place'", 't', "code ran: $place");
	is_sql($node, $db, "SELECT string_agg(DISTINCT concat_ws(' ', who, became, secrets), ', ') FROM seen WHERE place = '$place'", 'mallory  no',
		'... as mallory and nobody else');
}
is_sql($node, $db, q{SELECT string_agg(DISTINCT path, '; ') FROM seen WHERE n = (SELECT min(n) FROM seen)}, 'pg_catalog, pg_temp', 'search_path at first');
is_sql($node, $db, q{SELECT count(*) FROM pg_roles WHERE rolname = 'planted' OR rolname = 'mallory' AND rolsuper}, '0', 'no role was planted');
is_sql($node, $db, q{SELECT count(*) FROM pg_class WHERE relname = 'planted_temp'}, '0', 'no temporary table was planted');

is_sql($node, $db, 'SELECT string_agg(DISTINCT settings, E\'\n\') FROM alice_seen', $alone, 'nothing leaked into another stream');
is_sql($node, $db, q{SELECT count(*) FROM seen WHERE place = 'lower expression' AND path <> 'pg_catalog, pg_temp'}, '0', '... nor into the next batch of the same');
polls($node, $db, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'}, 'session advisory locks are gone');
is_sql($node, $db, 'SELECT count(*), sum(n) FROM mallory_hourly', '5|5', 'for all that, the result is right');
becomes($node, $db, $_, 'running') foreach ('mallory_hourly', 'alice_hourly');

# ---- an advisory lock that another session holds: mallory waits, alice does not

my $session = session($node, $db);
$session->query_safe('SELECT pg_advisory_lock(4711)');
insert_row(1);
consumes($node, $db, 'alice_hourly', 'a trigger that waits for an advisory lock blocks no other stream');
becomes($node, $db, 'mallory_hourly', 'blocked');
$session->query_safe('SELECT pg_advisory_unlock(4711)');
$session->quit;
consumes($node, $db, 'mallory_hourly', 'it goes on when the lock is free');

# ---- a slow function

$node->safe_psql('postgres', q{ALTER SYSTEM SET wmstream.batch_timeout = '1s'});
$node->reload;
as('mallory', q{
	CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_catalog.pg_sleep(3600);
		RETURN NEW;
	END $$});
insert_row(1);
consumes($node, $db, 'alice_hourly', 'a slow trigger ends in time for others');
becomes($node, $db, 'mallory_hourly', 'failed', 'a stream that is slow again and again fails');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'mallory_hourly'::regclass}), qr/batch_timeout/,
	'... and the reason names batch_timeout');
insert_row(1);
consumes($node, $db, 'alice_hourly', 'others go on');

as('mallory', q{CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$});
$node->psql($db, q{SELECT wmstream.resume('mallory_hourly')});
consumes($node, $db, 'mallory_hourly', 'repaired and resumed, it goes on');
is_sql($node, $db, 'SELECT count(*), sum(n) FROM mallory_hourly', ($next_id - 5) . '|' . ($next_id - 5), '... without loss');

# A firing that no row asks for is judged in the same way: the batches without firing in between do not count for it.
as('mallory', q{CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(3600); RETURN NEW; END $$;
	SELECT wmstream.advance_watermark('mallory_hourly', '2024-01-31 00:00+00')});
becomes($node, $db, 'mallory_hourly', 'failed', 'a stream whose windows are closed by a command, slowly again and again, fails');
as('mallory', q{CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$});
$node->safe_psql($db, q{SELECT wmstream.resume('mallory_hourly')});
consumes($node, $db, 'mallory_hourly', '... and goes on, the command with it');
is_sql($node, $db, 'SELECT count(*), sum(n) FROM mallory_hourly', ($next_id - 4) . '|' . ($next_id - 4), '... which closes all windows');
is_sql($node, $db, q{SELECT watermark = '2024-01-31 00:00+00' FROM wmstream.stat_streams WHERE stream = 'mallory_hourly'::regclass}, 't', '... up to its time');
$next_id = 24 * 31;

# ---- code for the end of the transaction, planted from inside: refused, or run as the owner

as('mallory', q{
	CREATE TABLE later (x int);
	CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.spy('at commit'); RETURN NEW; END $$;
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit();
	CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		SET CONSTRAINTS ALL DEFERRED;
		INSERT INTO public.later VALUES (1);
		RETURN NEW;
	END $$;
	TRUNCATE seen});
insert_row(1);
insert_row(1);
polls($node, $db, q{SELECT EXISTS (SELECT FROM seen WHERE place = 'at commit') OR EXISTS (SELECT FROM wmstream.streams
	WHERE stream = 'mallory_hourly'::regclass AND status = 'failed')}, 'a trigger deferred from inside runs, or its stream fails');
is_sql($node, $db, q{SELECT count(*) FROM seen WHERE who <> 'mallory' OR became <> '' OR secrets <> 'no'}, '0', '... but never as somebody else');
consumes($node, $db, 'alice_hourly', '... and others go on');

is_sql($node, $db, 'SELECT string_agg(DISTINCT settings, E\'\n\') FROM alice_seen', $alone, 'nothing leaked to the end');
polls($node, $db, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'}, 'no advisory lock at the end');

# ---- a slow function that takes the cancellation for itself: its time is over all the same, and it cannot go on for ever
as('mallory', q{
	CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			PERFORM pg_catalog.pg_sleep(3600);
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
		RETURN NEW;
	END $$});
$node->safe_psql($db, q{SELECT wmstream.resume('mallory_hourly')});
insert_row(1);
consumes($node, $db, 'alice_hourly', 'others go on beside a trigger that catches its cancellation');
becomes($node, $db, 'mallory_hourly', 'failed', '... whose stream fails');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'mallory_hourly'::regclass}), qr/batch_timeout/,
	'... and the reason names batch_timeout');
as('mallory', q{
	CREATE OR REPLACE FUNCTION spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				PERFORM pg_catalog.pg_sleep(3600);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
	END $$});
my $pid = worker_pid($node, $db);
$node->safe_psql($db, q{SELECT wmstream.resume('mallory_hourly')});
insert_row(1);
becomes($node, $db, 'mallory_hourly', 'failed', 'a trigger that catches every cancellation fails its stream');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'mallory_hourly'::regclass}), qr/batch_timeout and could not be stopped/,
	'... and the reason says that it could not be stopped');
new_worker($node, $db, $pid, '... after another worker has come');
consumes($node, $db, 'alice_hourly', '... in which others go on');

# ---- what values look like is the worker's business, for readers of open windows too: not their database's by now, nor their client's

$node->safe_psql($db, 'CREATE TABLE figures (ts timestamptz, f float8, b bytea)');
$node->safe_psql($db, q{SELECT wmstream.create_stream('looks', $$ SELECT lower(w) AS hour, sum(f)::text AS f, string_agg(b, '')::text AS b
	FROM figures, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w $$)});
$node->safe_psql($db, q{INSERT INTO figures VALUES ('2024-01-01 10:00+00', 0.1, '\x01'), ('2024-01-01 10:00+00', 0.2, '\x02')});
consumes($node, $db, 'looks', 'a stream of figures');
my $open = 'SELECT f, b FROM wmstream.live(NULL::looks) ORDER BY hour LIMIT 1';
$node->safe_psql($db, "ALTER DATABASE $db SET bytea_output = escape");
{
	local $ENV{PGOPTIONS} = '-c extra_float_digits=-10';

	is_sql($node, $db, $open, '0.30000000000000004|\x0102', 'shown as the worker would write it');
}
$node->append_conf('postgresql.conf', 'extra_float_digits = 0');
$node->reload;
polls($node, $db, "SELECT (SELECT f FROM ($open) o) = '0.3'", 'after the configuration was read again, as the worker writes then');
is_sql($node, $db, $open, '0.3|\x0102', '... the rest as before');
$node->safe_psql($db, q{INSERT INTO figures VALUES ('2024-01-01 12:00+00')});
consumes($node, $db, 'looks', '... and the window closes');
is_sql($node, $db, 'SELECT f, b FROM looks', '0.3|\x0102', '... into what was shown');

never_crashed($node);
$node->stop('immediate');
done_testing();
