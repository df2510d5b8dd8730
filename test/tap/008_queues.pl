# Streams of queues on a server whose WAL nobody could decode: long, prepared and broken-up transactions, restarts, streams that stood
# still, rows deleted beside a dump, what is done to the table meanwhile, dump and restore, and a standby that takes over.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('minimal', "wal_level = minimal\nmax_wal_senders = 0\nmax_replication_slots = 0\nwmstream.max_batch_rows = 100\n");
my $db = 'db';
my $hourly = q{SELECT lower(w) AS hour, count(*) AS n, sum(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
	WHERE wmstream.watermark(ts, '10 minutes') GROUP BY w};

# A queue and, beside it, a table that keeps what the queue loses; written by the same statements through a trigger.
sub make_queue
{
	my ($database, $trim) = @_;

	$node->safe_psql($database, qq{
		CREATE TABLE event (id int GENERATED ALWAYS AS IDENTITY, ts timestamptz, v int);
		CREATE TABLE kept (id int, ts timestamptz, v int);
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.kept VALUES (new.id, new.ts, new.v); RETURN NULL; END';
		CREATE TRIGGER keep AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION keep();
		SELECT wmstream.create_queue('event', $trim)});
	return;
}

# Stream copy has all rows that were committed, each once.
sub has_all
{
	my ($test, $stream) = @_;
	$stream //= 'copy';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $stream, "$test: all is consumed");
	return is_sql($node, $db, "SELECT count(*), count(DISTINCT id), sum(id) FROM $stream", $node->safe_psql($db, 'SELECT count(*), count(*), sum(id) FROM kept'),
		"$test: each row once");
}

sub rows
{
	my ($n, $from) = @_;

	return "INSERT INTO event (ts, v) SELECT timestamptz '$from+00' + i * interval '1 s', i FROM generate_series(1, $n) i";
}

make_database($node, $db);
make_queue($db, 'true');
$node->safe_psql($db, q{SELECT wmstream.create_stream('copy', 'SELECT id, v FROM event')});
$node->safe_psql($db, qq{SELECT wmstream.create_stream('hourly', '$hourly')} =~ s/'(1 hour|10 minutes)'/''$1''/gr);
worker_runs($node, $db, 'a worker with wal_level = minimal and no slots');
fails_like($node, $db, q{CREATE TABLE ordinary (id int); SELECT wmstream.create_stream('o', 'SELECT id FROM ordinary')}, [qr/"wal_level" is "minimal"/],
	'an ordinary table cannot be read');

# ---- transactions of all kinds; a long one holds nobody up

my $long = session($node, $db);
$long->query_safe('BEGIN');
$long->query_safe(rows(10, '2024-01-01 00:00'));
$node->safe_psql($db, rows(500, '2024-01-01 00:00'));
$node->safe_psql($db, 'BEGIN; ' . rows(3, '2024-01-01 00:00') . '; SAVEPOINT a; ' . rows(3, '2024-01-01 00:00') . '; ROLLBACK TO a; '
	  . rows(3, '2024-01-01 00:00') . '; SAVEPOINT b; ' . rows(3, '2024-01-01 00:00') . '; RELEASE b; COMMIT');
$node->safe_psql($db, 'BEGIN; ' . rows(5, '2024-01-01 00:00') . '; ROLLBACK');
$node->safe_psql($db, 'BEGIN; ' . rows(5, '2024-01-01 00:00') . q{; PREPARE TRANSACTION 'p'});
has_all('beside a long and a prepared transaction');
is_sql($node, $db, 'SELECT count(*) FROM copy', '509', '... which are not there yet');
$long->query_safe('SAVEPOINT c');
$long->query_safe(rows(10, '2024-01-01 00:00'));
$long->query_safe('COMMIT');
has_all('the long one committed');
$node->safe_psql($db, q{COMMIT PREPARED 'p'});
has_all('the prepared one committed');
polls($node, $db, 'SELECT count(*) = 0 FROM event', 'the queue is trimmed');

# ---- restarts, with transactions open and prepared

$node->safe_psql($db, 'BEGIN; ' . rows(5, '2024-01-01 00:10') . q{; PREPARE TRANSACTION 'over restart'});
$node->safe_psql($db, rows(20, '2024-01-01 00:10'));
$node->restart('immediate');
has_all('after a crash');
$node->safe_psql($db, q{COMMIT PREPARED 'over restart'});
has_all('what was prepared before the crash');
$node->safe_psql($db, rows(20, '2024-01-01 00:10'));
$node->restart('fast');
has_all('after a restart');
polls($node, $db, 'SELECT count(*) = 0 FROM event', 'trimmed all the same');

# ---- a stream that stands still: what it missed comes in the order in which it was committed

sub tick_after
{
	my ($test) = @_;
	my $now = $node->safe_psql($db, 'SELECT pg_current_xact_id()');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return polls($node, $db, "SELECT coalesce(max(pg_snapshot_xmax(seen)) > '$now'::xid8, false) FROM wmstream.tick", $test);
}

$node->safe_psql($db, q{SELECT wmstream.pause('copy'); SELECT wmstream.pause('hourly')});
$long->quit;
$long = session($node, $db);
$long->query_safe('BEGIN');
$long->query_safe(rows(150, '2024-01-02 10:00'));	# more than a batch: before the others it would make them late
$node->safe_psql($db, q{INSERT INTO event (ts, v) VALUES ('2024-01-01 05:00+00', 1), ('2024-01-01 05:10+00', 1)});
tick_after('while streams are paused ticks are taken');
$node->safe_psql($db, q{INSERT INTO event (ts, v) VALUES ('2024-01-01 06:00+00', 1)});
tick_after('... again and again');
$long->query_safe('COMMIT');
tick_after('... after the long transaction too');
$node->safe_psql($db, q{INSERT INTO event (ts, v) VALUES ('2024-01-02 12:00+00', 1)});
is_sql($node, $db, 'SELECT count(*) FROM event', '154', 'their rows are kept');
$node->restart('fast');
$node->safe_psql($db, q{SELECT wmstream.resume('copy'); SELECT wmstream.resume('hourly')});
has_all('resumed');
consumes($node, $db, 'hourly');
is_sql($node, $db, q{SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, '0',
	'a transaction that was open while others committed does not come before them: nothing is late');
is_sql($node, $db, q{SELECT count(*) FROM (SELECT date_trunc('hour', ts) AS hour, count(*) AS n, sum(v) AS total FROM kept WHERE ts < '2024-01-02 11:00+00' GROUP BY 1) k
	FULL JOIN hourly h USING (hour, n, total) WHERE k IS NULL OR h IS NULL}, '0', '... and windows equal the batch query');
polls($node, $db, 'SELECT count(*) = 0 FROM wmstream.tick', 'ticks that nobody needs are gone');
polls($node, $db, 'SELECT count(*) = 0 FROM event', '... so are the rows');

# ---- much at once, in bounded batches

my $before = $node->safe_psql($db, q{SELECT batches FROM wmstream.stat_streams WHERE stream = 'copy'::regclass});
$node->safe_psql($db, q{SELECT wmstream.pause('copy')});
$node->safe_psql($db, 'DO $$ BEGIN FOR turn IN 1..400 LOOP ' . rows(10, '2024-01-02 12:00') . '; COMMIT; END LOOP; END $$');
$node->safe_psql($db, q{SELECT wmstream.resume('copy')});
has_all('a backlog of 400 transactions');
is_sql($node, $db, "SELECT batches - $before >= 40 FROM wmstream.stat_streams WHERE stream = 'copy'::regclass", 't', '... in batches of 100 rows');

# ---- trim beside a dump and beside writers

my $dump = session($node, $db);
$dump->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
$dump->query_safe('LOCK TABLE event IN ACCESS SHARE MODE');
my $writer = session($node, $db);
$writer->query_safe('BEGIN');
$writer->query_safe(rows(5, '2024-01-02 12:00'));
$node->safe_psql($db, rows(50, '2024-01-02 12:00'));
has_all('beside a dump and a writer');
polls($node, $db, 'SELECT count(*) = 0 FROM event', 'rows are deleted while a dump and a writer are under way');
my $seen = $dump->query_safe('SELECT count(*) FROM event');
$node->safe_psql($db, rows(50, '2024-01-02 12:00'));
pass('... and others write on');
$writer->query_safe('COMMIT');
$writer->quit;
$dump->query_safe('COMMIT');
$dump->quit;
has_all('after both');

# ---- what is done to the table

my $locker = session($node, $db);
$locker->query_safe('BEGIN');
$locker->query_safe('LOCK TABLE event IN ACCESS EXCLUSIVE MODE');
becomes($node, $db, 'copy', 'blocked', 'a locked queue blocks its stream');
$locker->query_safe('COMMIT');
$locker->quit;
becomes($node, $db, 'copy', 'running', '... for as long as it is locked');
$node->safe_psql($db, q{ALTER TABLE event ADD COLUMN more text DEFAULT 'x'; ALTER TABLE event DROP COLUMN more; ALTER TABLE event ADD COLUMN other int});
$node->safe_psql($db, rows(20, '2024-01-02 12:00'));
$node->safe_psql($db, 'VACUUM FULL event');
has_all('columns added and dropped, the table rewritten');
$node->safe_psql($db, 'ALTER TABLE event ALTER COLUMN other TYPE bigint; ALTER TABLE event RENAME TO renamed; ALTER TABLE renamed RENAME TO event');
$node->safe_psql($db, 'REINDEX TABLE event; ' . rows(20, '2024-01-02 12:00'));
has_all('a rewrite does not bring old rows again');
$node->safe_psql($db, 'TRUNCATE event');
$node->safe_psql($db, rows(20, '2024-01-02 12:00'));
has_all('after TRUNCATE');
$node->safe_psql($db, q{CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
	CREATE TRIGGER same BEFORE UPDATE ON event FOR EACH ROW EXECUTE FUNCTION same()});
$node->safe_psql($db, rows(20, '2024-01-02 12:00'));
becomes($node, $db, 'copy', 'failed', 'a trigger that would make updated rows new ones stops the stream');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'copy'::regclass}), qr/BEFORE UPDATE trigger/, '... with the reason');
$node->safe_psql($db, q{DROP TRIGGER same ON event; SELECT wmstream.resume(stream) FROM wmstream.streams WHERE status = 'failed'});
has_all('without it the stream goes on');

# ---- what hinders trimming is its own

$node->safe_psql($db, q{CREATE FUNCTION let_none_go() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER let_none_go BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION let_none_go()});
$node->safe_psql($db, rows(20, '2024-01-02 12:00'));
has_all('a trigger that lets no row go');
ok($node->wait_for_log(qr/no trigger or row-level security may leave the rows there/), '... is told in the log');
is_sql($node, $db, 'SELECT count(*) >= 20 FROM event', 't', '... and the rows stay');
$node->safe_psql($db, 'DROP TRIGGER let_none_go ON event');
$node->safe_psql($db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'wmstream worker' AND datname = '$db'");
polls($node, $db, 'SELECT count(*) = 0 FROM event', '... until it is gone and they are looked for again');

$node->safe_psql($db, q{CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this table''; END';
	CREATE TRIGGER no BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION no()});
$node->safe_psql($db, rows(20, '2024-01-02 12:00'));
has_all('a trigger that forbids DELETE');
ok($node->wait_for_log(qr/not this table/), '... is told in the log');
is_sql($node, $db, 'SELECT count(*) >= 20 FROM event', 't', '... and the rows stay');

# ---- dump and restore

$dump = $node->basedir . '/queue.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($db) ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], '... is restored');
is_sql($node, 'restored', 'SELECT queue, trim FROM wmstream.queues', 'event|t', '... the queue is one');
is_sql($node, 'restored', 'SELECT DISTINCT status FROM wmstream.streams', 'restored', '... its streams begin anew when they are resumed');
$node->safe_psql('restored', q{TRUNCATE copy; SELECT wmstream.resume('copy'); INSERT INTO event (ts, v) VALUES (now(), 7)});
consumes($node, 'restored', 'copy');
is_sql($node, 'restored', 'SELECT v FROM copy', '7', '... from then on');
$node->safe_psql('restored', q{TRUNCATE hourly; SELECT wmstream.resume('hourly'); INSERT INTO event (ts, v) VALUES ('2024-01-01 00:00+00', 8), ('2024-01-01 03:00+00', 8)});
consumes($node, 'restored', 'hourly', 'resumed beside a worker');
is_sql($node, 'restored', 'SELECT n, total FROM hourly', '1|8', '... from then on');

# ---- the end

$node->safe_psql($db, q{SELECT wmstream.drop_stream(stream) FROM wmstream.streams});
no_worker($node, $db, 'without streams there is no worker');
$node->safe_psql($db, q{SELECT wmstream.drop_queue('event')});
is_sql($node, $db, q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'event'::regclass AND attname = 'wm_xid'}, '0', 'drop_queue takes the column away');
never_crashed($node);
$node->stop;

# ---- where there are ordinary sources too, the slot goes with the last of them

$node = new_node('both');
make_database($node, $db);
make_queue($db, 'false');
$node->safe_psql($db, 'CREATE TABLE ordinary (id int)');
$node->safe_psql($db, q{SELECT wmstream.create_stream('o', 'SELECT id FROM ordinary')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('copy', 'SELECT id, v FROM event')});
$node->safe_psql($db, q{INSERT INTO ordinary VALUES (1); } . rows(20, '2024-01-01 00:00'));
has_all('a queue beside an ordinary source');
consumes($node, $db, 'o');
is_sql($node, $db, 'SELECT id FROM o', '1', '... which is read as well');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('o')});
no_slot($node, 'the slot goes with the last stream that needs it');
worker_runs($node, $db, '... the worker stays');
$node->safe_psql($db, rows(20, '2024-01-01 00:00'));
has_all('... and reads on');
$node->safe_psql($db, q{SELECT wmstream.create_stream('o', 'SELECT id FROM ordinary', if_not_exists => true); INSERT INTO ordinary VALUES (2)});
consumes($node, $db, 'o', 'an ordinary source again');
is_sql($node, $db, 'SELECT id FROM o WHERE id = 2', '2', '... from now on');
$node->stop;

# ---- a stream over a queue that has lost rows is rebuilt: what was made of them stays

$node = new_node('rebuilt', "wal_level = replica\n");
make_database($node, $db);
$node->safe_psql($db, q{CREATE TABLE event (ts timestamptz, v int); SELECT wmstream.create_queue('event', "trim" => true)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('timed', $$SELECT ts, v FROM event WHERE wmstream.watermark(ts, '1 minute')$$)});
$node->safe_psql($db, rows(20, '2024-01-01 00:00'));
consumes($node, $db, 'timed');
polls($node, $db, 'SELECT count(*) = 0 FROM event', 'the queue has lost its rows');
$node->safe_psql($db, q{SELECT wmstream.set_trim('event', false)});
$node->safe_psql($db, rows(20, '2024-01-02 00:00'));
consumes($node, $db, 'timed');
$node->safe_psql($db, q{SELECT wmstream.set_trim('event', true); SELECT wmstream.pause('timed')});
$before = $node->safe_psql($db, 'SELECT count(*), sum(v) FROM timed');
(undef, undef, my $told) = $node->psql($db, q{SELECT wmstream.resync('timed', '2023-01-01 00:00+00')});
like($told, qr/NOTICE:  rows of queue "event" that its streams have had may be gone/, 'resync says that rows are gone');
consumes($node, $db, 'timed');
is_sql($node, $db, 'SELECT count(*), sum(v) FROM timed', $before, '... and keeps what was made of them, whatever since says');
$node->stop;

# ---- a standby takes over

$node = configured_node('first', "wal_level = replica\n");
$node->append_conf('pg_hba.conf', 'local replication all trust');
$node->start;
make_database($node, $db);
make_queue($db, 'true');
$node->safe_psql($db, q{SELECT wmstream.create_stream('copy', 'SELECT id, v FROM event')});
$node->safe_psql($db, rows(20, '2024-01-01 00:00'));
has_all('on the primary');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('second');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql($db, rows(20, '2024-01-01 00:00'));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop('immediate');
$standby->promote;
$node = $standby;
worker_runs($node, $db, 'a promoted standby has a worker');
has_all('it goes on where the other was');
$node->safe_psql($db, rows(20, '2024-01-01 00:00'));
has_all('... with new rows');
$node->stop;
done_testing();
