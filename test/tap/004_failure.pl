# A stream's failure is its own: rows that raise, privileges that are taken away, locked, altered and dropped tables. The stream says
# what is wrong, the others go on, and once the cause is gone it goes on itself, without loss.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('failure');
my $db = 'db';
my $next_id = 1;

make_database($node, $db);
role_with_streams($node, $db, 'plain');
$node->safe_psql($db, 'CREATE TABLE event (id int, ts timestamptz, v int, note text, spare int); GRANT SELECT ON event TO plain');

# The bystander: a copy of every row, which must never stop.
$node->safe_psql($db, q{SELECT wmstream.create_stream('bystander', 'SELECT id, v FROM event')});

sub insert_rows
{
	my ($how_many, $v) = @_;
	my $last = $next_id + $how_many - 1;

	$node->safe_psql($db, "INSERT INTO event (id, ts, v) SELECT i, timestamptz '2024-01-01 00:00+00' + i * interval '1 min', "
		  . ($v // 1) . " FROM generate_series($next_id, $last) i");
	$next_id = $last + 1;
	return;
}

sub bystander_goes_on
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, 'bystander', "$when: another stream goes on");
	is_sql($node, $db, 'SELECT count(*), count(DISTINCT id) FROM bystander', $node->safe_psql($db, 'SELECT count(*), count(*) FROM event'),
		"$when: it has every row once");
	return;
}

# A stream made now that copies rows; rows before it are not its.
sub make_copy
{
	my ($name, $query, $role) = @_;

	$node->safe_psql($db, ($role ? "SET SESSION AUTHORIZATION $role; " : '') . "SELECT wmstream.create_stream('$name', '$query')");
	return $next_id;
}

# The stream has all rows from the first that it was made for, each once.
sub has_all
{
	my ($name, $first, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is_sql($node, $db, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM $name",
		$node->safe_psql($db, "SELECT count(*), count(*), min(id), max(id) FROM event WHERE id >= $first"), $test);
}

sub reason
{
	my ($name) = @_;

	return $node->safe_psql($db, "SELECT reason FROM wmstream.streams WHERE stream = '$name'::regclass");
}

# ---- a row that raises

my $first = make_copy('ratio', 'SELECT id, 100 / v AS ratio FROM event');
insert_rows(3);
consumes($node, $db, 'ratio');
has_all('ratio', $first, 'before the bad row');
insert_rows(1, 0);
becomes($node, $db, 'ratio', 'failed', 'a row that raises: failed');
like(reason('ratio'), qr/division by zero, at the row \(4, 2024-01-01 00:04:00\+00, 0, null, null\) of "event" in the transaction that ends at [0-9A-F]+\/[0-9A-F]+$/,
	'... with the error and the row');
like($node->safe_psql($db, q{SELECT last_error FROM wmstream.stat_streams WHERE stream = 'ratio'::regclass}), qr/division by zero/, '... in stat_streams too');
insert_rows(3);
bystander_goes_on('a row that raises');

my $began = time;
fails_like($node, $db, q{SELECT wmstream.wait('ratio', '100 s')}, [qr/division by zero/], 'wait for a failed stream tells the reason');
cmp_ok(time - $began, '<', 30, '... at once');
$node->psql($db, q{SELECT wmstream.resume('ratio')});
becomes($node, $db, 'ratio', 'failed', 'resume with the cause still there: failed again');
bystander_goes_on('resumed in vain');
is_sql($node, $db, 'SELECT count(*) FROM ratio', 3, '... and no row twice');

# No busy loop: a failed stream is left alone. Its counters do not move while the bystander works.
is_sql($node, $db, q{SELECT count(*) FROM wmstream.streams WHERE stream = 'ratio'::regclass AND status = 'failed'}, '1', 'it stays failed');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('ratio')});
is_sql($node, $db, 'SELECT count(*) FROM ratio', '3', 'a failed stream can be dropped');
bystander_goes_on('the failed stream dropped');

# ---- a row that raises in the state of a window, in its last expression, in the result's constraint

foreach my $case (
	[ 'in_transition', q{SELECT lower(w) AS hour, sum(v * 2000000000) AS total FROM event, wmstream.window(ts, '1 hour') AS w
		WHERE wmstream.watermark(ts, '0') GROUP BY w}, 'integer out of range' ],
	[ 'in_final', q{SELECT lower(w) AS hour, count(*) / (max(v) - 7) AS total FROM event, wmstream.window(ts, '1 hour') AS w
		WHERE wmstream.watermark(ts, '0') GROUP BY w}, 'division by zero' ],
	[ 'in_check', q{SELECT lower(w) AS hour, max(v) AS total FROM event, wmstream.window(ts, '1 hour') AS w
		WHERE wmstream.watermark(ts, '0') GROUP BY w}, 'violates check constraint' ])
{
	my ($name, $query, $error) = @$case;

	$node->safe_psql($db, "SELECT wmstream.create_stream('$name', \$\$ $query \$\$)");
	$node->safe_psql($db, "ALTER TABLE $name ADD CHECK (total <> 7)") if $name eq 'in_check';
	insert_rows(5);
	consumes($node, $db, $name);
	insert_rows(1, 7);
	insert_rows(130);
	becomes($node, $db, $name, 'failed', "an error $name: failed");
	like(reason($name), qr/$error/, '... with the error');
	like(reason($name), qr/at the row \(\d+, [^,]+, 7, null, null\) of "event"/, '... and the row') if $name eq 'in_transition';
	bystander_goes_on("an error $name");
	if ($name eq 'in_check')
	{
		$node->safe_psql($db, 'ALTER TABLE in_check DROP CONSTRAINT in_check_total_check');
		$node->safe_psql($db, "SELECT wmstream.resume('in_check')");
		consumes($node, $db, 'in_check', 'the constraint dropped and resumed, it goes on');
		my $from = $next_id - 136;
		is_sql($node, $db, 'SELECT hour, total FROM in_check ORDER BY 1', $node->safe_psql($db,
			qq{SELECT date_trunc('hour', ts), max(v) FROM event WHERE id >= $from GROUP BY 1
			   HAVING date_trunc('hour', ts) + interval '1 hour' <= (SELECT max(ts) FROM event) ORDER BY 1}), '... without loss');
	}
	$node->safe_psql($db, "SELECT wmstream.drop_stream('$name', true)");
}

# ---- which row it was: found among many, where the executor runs the query over all of them at once, where state is large; long values
# are cut, and values that cannot be written are left out

$node->safe_psql($db, q{
	CREATE TYPE hard;
	CREATE FUNCTION hard_in(cstring) RETURNS hard LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
	CREATE FUNCTION hard_out(hard) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'shell_out';
	CREATE TYPE hard (INPUT = hard_in, OUTPUT = hard_out, LIKE = int4);
	CREATE TABLE odd (id int, v int, note text);
	CREATE TABLE names (v int, name text);
	INSERT INTO names VALUES (1, 'one'), (7, 'seven');
	CREATE TABLE unwritable (id int, v int, note hard)});

foreach my $case (
	[ 'direct', 'SELECT id, 100 / (v - 7) AS ratio FROM odd' ],
	[ 'planned', 'SELECT id, 100 / (o.v - 7) AS ratio, name FROM odd o JOIN names n ON n.v = o.v WHERE wmstream.watermark(to_timestamp(id), NULL)' ],
	[ 'waiting', 'SELECT id, sum(1 / (v - 7)) AS ratio FROM odd WHERE wmstream.watermark(to_timestamp(id), NULL) GROUP BY id' ],
	[ 'in_sum', q{SELECT lower(w) AS hour, sum(v * 306783379) AS total FROM odd, wmstream.window(to_timestamp(id), '1 hour') AS w
		WHERE wmstream.watermark(to_timestamp(id), '0') GROUP BY w} ])
{
	my ($name, $query) = @$case;
	my $mode = $name eq 'waiting' ? ', output_mode => \'complete\'' : '';

	$node->append_conf('postgresql.conf', 'wmstream.look_ahead_from = ' . ($name eq 'waiting' ? 0 : 16384));
	$node->reload;
	$node->safe_psql($db, "TRUNCATE odd; SELECT wmstream.create_stream('$name', \$\$ $query \$\$ $mode)");
	$node->safe_psql($db, q{INSERT INTO odd SELECT i, CASE i WHEN 777 THEN 7 ELSE 1 END, repeat('ä', 100) FROM generate_series(1, 1000) i});
	becomes($node, $db, $name, 'failed', "$name: failed");
	like(reason($name), qr/, at the row \(777, 7, (?:ä){32}\.\.\.\) of "odd" in/, "$name: the row that did it");
	$node->safe_psql($db, "SELECT wmstream.drop_stream('$name', true)");
}

$node->append_conf('postgresql.conf', 'wmstream.look_ahead_from = 16384');
$node->reload;

# Only columns that the owner may read.
$node->safe_psql($db, q{CREATE TABLE partly (id int, secret text, v int); GRANT SELECT (id, v) ON partly TO plain;
	SET SESSION AUTHORIZATION plain; SELECT wmstream.create_stream('of_partly', 'SELECT id, 1 / v AS ratio FROM partly')});
$node->safe_psql($db, q{INSERT INTO partly VALUES (5, 'hidden', 0)});
becomes($node, $db, 'of_partly', 'failed', 'columns that the owner may not read: failed');
like(reason('of_partly'), qr/^division by zero, at the row \(id=5, v=0\) of "partly" in/, '... and they are not shown');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('of_partly')});

$node->safe_psql($db, q{SELECT wmstream.create_stream('unwritten', 'SELECT id, 1 / v AS ratio FROM unwritable')});
$node->safe_psql($db, q{INSERT INTO unwritable VALUES (1, 0, '5')});
becomes($node, $db, 'unwritten', 'failed', 'a row whose values cannot be written: failed');
like(reason('unwritten'), qr/^division by zero, at a row of "unwritable" in/, '... with the error that it was');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('unwritten')});
bystander_goes_on('rows that were looked for');

# ---- a privilege taken away and given back

$first = make_copy('granted', 'SELECT id, v FROM event', 'plain');
insert_rows(3);
consumes($node, $db, 'granted');
$node->safe_psql($db, 'REVOKE SELECT ON event FROM plain');
insert_rows(3);
becomes($node, $db, 'granted', 'failed', 'the owner may no longer read the source: failed');
like(reason('granted'), qr/permission denied/, '... with the reason');
bystander_goes_on('a privilege taken away');
insert_rows(3);
$node->safe_psql($db, 'GRANT SELECT ON event TO plain');
$node->safe_psql($db, q{SELECT wmstream.resume('granted')});
consumes($node, $db, 'granted', 'granted again and resumed, it goes on');
has_all('granted', $first, '... without loss');

# Who may do what to it.
fails_like($node, $db, q{CREATE ROLE stranger; SET ROLE stranger; SELECT wmstream.pause('granted')}, [qr/must be owner|permission denied/],
	'a stranger cannot pause it');
fails_like($node, $db, q{SET ROLE stranger; SELECT wmstream.drop_stream('granted')}, [qr/must be owner|permission denied/], '... nor drop it');
is_sql($node, $db, q{SET ROLE stranger; SELECT count(*) FROM wmstream.stat_streams WHERE input_rows IS NOT NULL OR last_error IS NOT NULL}, '0',
	'... nor see its figures');

# ---- a locked result table

my $locker = session($node, $db);
$locker->query_safe('BEGIN; LOCK TABLE granted');
insert_rows(3);
becomes($node, $db, 'granted', 'blocked', 'its result locked by another session: blocked');
bystander_goes_on('a locked result');
fails_like($node, $db, q{SELECT wmstream.wait('granted', '1 s')}, [qr/time/], 'wait for a blocked stream ends at its timeout');
insert_rows(3);
bystander_goes_on('a locked result, still');
$locker->query_safe('COMMIT');
consumes($node, $db, 'granted', 'after COMMIT it goes on by itself');
becomes($node, $db, 'granted', 'running');
has_all('granted', $first, '... without loss');

$locker->query_safe('BEGIN; LOCK TABLE granted');
insert_rows(3);
becomes($node, $db, 'granted', 'blocked', 'blocked again');
$node->safe_psql($db, q{SELECT wmstream.pause('granted')});
becomes($node, $db, 'granted', 'paused', 'a blocked stream can be paused');
$locker->query_safe('COMMIT');
$locker->quit;
$node->safe_psql($db, q{SELECT wmstream.resume('granted')});
consumes($node, $db, 'granted', 'resumed, it goes on');
has_all('granted', $first, '... without loss');

# Locked while the worker is on its way back: others must not carry the position past it.
$locker = session($node, $db);
$locker->query_safe('BEGIN; LOCK TABLE granted');
insert_rows(3);
my $worker = worker_pid($node, $db);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
new_worker($node, $db, $worker, 'a new worker finds the result locked');
insert_rows(3);
bystander_goes_on('a new worker, a locked result');
$node->safe_psql('postgres', 'CHECKPOINT');
$locker->query_safe('COMMIT');
$locker->quit;
consumes($node, $db, 'granted', 'after COMMIT it goes on');
has_all('granted', $first, '... without loss');

# ---- pause and resume

$node->safe_psql($db, q{SELECT wmstream.pause('granted')});
becomes($node, $db, 'granted', 'paused');
insert_rows(5);
bystander_goes_on('a paused stream');
is_sql($node, $db, "SELECT count(*) FROM granted WHERE id >= $next_id - 5", '0', 'a paused stream takes no rows');
$node->restart;
becomes($node, $db, 'granted', 'paused', 'paused it stays over a restart');
insert_rows(5);
bystander_goes_on('after the restart');
$node->safe_psql($db, q{SELECT wmstream.resume('granted')});
consumes($node, $db, 'granted', 'resumed');
has_all('granted', $first, '... without loss');

# With open windows: what was in them before the pause stays.
$node->safe_psql($db, q{SELECT wmstream.create_stream('hourly', $$ SELECT lower(w) AS hour, count(*) AS n, min(id) AS first, max(id) AS last
	FROM event, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w $$)});
my $hourly_from = $next_id;
my $hourly_truth = sub {
	return $node->safe_psql($db, "SELECT date_trunc('hour', ts), count(*), min(id), max(id) FROM event WHERE id >= $hourly_from GROUP BY 1 ORDER BY 1");
};
insert_rows(40);
consumes($node, $db, 'hourly');
$node->safe_psql($db, q{SELECT wmstream.pause('hourly')});
insert_rows(40);
$node->safe_psql($db, q{SELECT wmstream.resume('hourly')});
insert_rows(40);
consumes($node, $db, 'hourly', 'windows over a pause');
is_sql($node, $db, 'SELECT count(*) > 0 FROM hourly', 'f', 'nothing is closed before its time') if $next_id - $hourly_from < 60;

# ---- advance_watermark

$node->safe_psql($db, q{SELECT wmstream.advance_watermark('hourly', '2024-12-31 00:00+00')});
consumes($node, $db, 'hourly', 'advance_watermark is done when wait returns');
is_sql($node, $db, 'SELECT * FROM hourly ORDER BY hour', $hourly_truth->(), 'advance_watermark closes what is open');
is_sql($node, $db, q{SELECT watermark = '2024-12-31 00:00+00' FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, 't', 'the watermark is what was asked for');
is_sql($node, $db, q{SELECT state_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, '0', 'no state is left');
insert_rows(2);
consumes($node, $db, 'hourly');
is_sql($node, $db, q{SELECT late_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, '2', 'rows behind it are late');
$node->safe_psql($db, q{SELECT wmstream.advance_watermark('hourly', '2024-06-01 00:00+00')});
consumes($node, $db, 'hourly');
is_sql($node, $db, q{SELECT watermark = '2024-12-31 00:00+00' FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, 't', 'the watermark never goes back');
$node->restart;
consumes($node, $db, 'hourly', 'after a restart');
is_sql($node, $db, q{SELECT watermark = '2024-12-31 00:00+00', late_rows FROM wmstream.stat_streams WHERE stream = 'hourly'::regclass}, 't|2',
	'watermark and counters are durable');

# ---- the source is altered

$node->safe_psql($db, 'ALTER TABLE event RENAME COLUMN v TO value; ALTER TABLE event RENAME TO measurement');
$node->safe_psql($db, 'INSERT INTO measurement (id, value) VALUES (100001, 1)');
consumes($node, $db, 'granted', 'source and column renamed: goes on');
is_sql($node, $db, 'SELECT max(id) FROM granted', '100001', '... with the next row');
$node->safe_psql($db, 'ALTER TABLE measurement RENAME COLUMN value TO v; ALTER TABLE measurement RENAME TO event');
$node->safe_psql($db, q{ALTER TABLE event DROP COLUMN note; ALTER TABLE event ADD COLUMN more text DEFAULT 'x'});
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100002, 1)');
consumes($node, $db, 'granted', 'columns that it does not use dropped and added: goes on');
is_sql($node, $db, 'SELECT max(id) FROM granted', '100002', '... with the next row');
fails_like($node, $db, 'ALTER TABLE event DROP COLUMN v', [qr/depend/], 'a column that it uses cannot just be dropped');
$node->safe_psql($db, 'ALTER TABLE granted RENAME TO given');
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100003, 1)');
consumes($node, $db, 'given', 'result renamed: goes on');
is_sql($node, $db, 'SELECT max(id) FROM given', '100003', '... with the next row');

# ---- tables are dropped

make_copy('dropped', 'SELECT id FROM event');
$node->safe_psql($db, 'DROP TABLE dropped');
is_sql($node, $db, q{SELECT count(*) FROM pg_class WHERE relname LIKE '%dropped%'}, '0', 'DROP TABLE of a result drops its view');
is_sql($node, $db, q{SELECT count(*) FROM wmstream.streams WHERE stream::text LIKE '%dropped%'}, '0', '... and its stream');
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100004, 1)');
consumes($node, $db, 'bystander', '... and others go on');

$node->safe_psql($db, 'CREATE TABLE other (id int, v int)');
make_copy('from_other', 'SELECT id, v FROM other');
make_copy('column_gone', 'SELECT id, spare FROM event');
$node->safe_psql($db, 'INSERT INTO other VALUES (1, 1); INSERT INTO event (id, v) VALUES (100005, 1)');
consumes($node, $db, $_) foreach ('from_other', 'column_gone');
fails_like($node, $db, 'DROP TABLE other', [qr/depend/], 'DROP TABLE of a source says what depends on it');
$node->safe_psql($db, 'DROP TABLE other CASCADE; ALTER TABLE event DROP COLUMN spare CASCADE');
is_sql($node, $db, q{SELECT count(*) FROM wmstream.streams WHERE stream IN ('from_other'::regclass, 'column_gone'::regclass)}, '0',
	'DROP … CASCADE of a source or column ends the streams');
is_sql($node, $db, 'SELECT (SELECT count(*) FROM from_other), (SELECT count(*) FROM column_gone)', '1|1', '... and keeps the results');
$node->safe_psql($db, 'INSERT INTO from_other VALUES (2, 2); INSERT INTO event (id, v) VALUES (100006, 1)');
consumes($node, $db, 'bystander', '... and others go on');

# The view replaced by hand: the stream says so.
make_copy('replaced', 'SELECT id FROM event');
consumes($node, $db, 'replaced');
my $view = $node->safe_psql($db, q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'wmstream'::regnamespace AND relname LIKE '%replaced%' AND relkind = 'v'});
$node->safe_psql($db, qq{CREATE OR REPLACE VIEW $view AS SELECT id + 1 AS id FROM event});
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100007, 1)');
becomes($node, $db, 'replaced', 'failed', 'a definition replaced by hand: failed');
consumes($node, $db, 'bystander', '... and others go on');
$node->safe_psql($db, qq{DROP VIEW $view});
is_sql($node, $db, q{SELECT count(*) FROM wmstream.streams WHERE stream = 'replaced'::regclass}, '0', 'DROP VIEW of a definition ends the stream');
is_sql($node, $db, q{SELECT count(*) FROM replaced}, '0', '... and keeps the result');

# ---- transient errors: tried again by themselves

$node->safe_psql('postgres', q{ALTER SYSTEM SET wmstream.test_point = 'batch-fed:error/40001:given'});
$node->reload;
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100008, 1)');
becomes($node, $db, 'given', 'blocked', 'a transient error: blocked');
consumes($node, $db, 'bystander', '... and others go on');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET wmstream.test_point});
$node->reload;
consumes($node, $db, 'given', '... and tried again by itself');
becomes($node, $db, 'given', 'running');
is_sql($node, $db, 'SELECT count(*), count(DISTINCT id), max(id) FROM given', $node->safe_psql($db, "SELECT count(*), count(*), max(id) FROM event WHERE id >= $first"),
	'... without loss');

$node->safe_psql('postgres', q{ALTER SYSTEM SET wmstream.test_point = 'batch-fed:error:given'});
$node->reload;
$node->safe_psql($db, 'INSERT INTO event (id, v) VALUES (100009, 1)');
becomes($node, $db, 'given', 'failed', 'any other error: failed');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET wmstream.test_point});
$node->reload;
$node->restart;
becomes($node, $db, 'given', 'failed', 'failed it stays over a restart');
$node->safe_psql($db, q{SELECT wmstream.resume('given')});
consumes($node, $db, 'given', 'resumed after the restart');
is_sql($node, $db, 'SELECT count(*), count(DISTINCT id), max(id) FROM given', $node->safe_psql($db, "SELECT count(*), count(*), max(id) FROM event WHERE id >= $first"),
	'... without loss');

# ---- a firing that fails is made up for: what batches before it took in is shown

$node->safe_psql($db, q{CREATE TABLE visit (ts timestamptz, k text)});
my %kinds = (
	updated => [ q{wmstream.window(ts, '1 hour')}, 'count(*)', q{allowed_lateness => '1 day', output_mode => 'update'} ],
	refined => [ q{wmstream.window(ts, '1 hour')}, 'count(*)', q{allowed_lateness => '1 day'} ],
	refined_panes => [ q{wmstream.window(ts, '1 hour', '30 minutes')}, 'count(*)', q{allowed_lateness => '1 day'} ],
	refined_arguments => [ q{wmstream.window(ts, '1 hour')}, 'count(DISTINCT ts)', q{allowed_lateness => '1 day'} ]);
my @kinds = sort keys %kinds;
my %batch;

for my $kind (@kinds)
{
	my ($window, $n, $options) = @{ $kinds{$kind} };

	$batch{$kind} = "SELECT lower(w) AS since, k, $n AS n FROM visit, $window AS w WHERE wmstream.watermark(ts, '0') GROUP BY w, k";
	$node->safe_psql($db, qq{SELECT wmstream.create_stream('$kind', \$\$$batch{$kind}\$\$, trigger_interval => '1 day', $options)});
	consumes($node, $db, $kind);
}

sub visits
{
	my ($rows) = @_;

	$node->safe_psql($db, "INSERT INTO visit VALUES $rows");
	polls($node, $db, 'SELECT bool_and(input_rows = (SELECT count(*) FROM visit)) FROM wmstream.stat_streams WHERE stream::text IN ('
		  . join(', ', map { "'$_'" } @kinds) . ')', 'rows are taken in');
	return;
}

sub fire
{
	my ($upto) = @_;

	$node->safe_psql($db, "SELECT wmstream.advance_watermark('$_', '$upto')") for @kinds;
	return;
}

# Closed windows are as the batch query has them; of update mode all.
sub shows_all
{
	my ($kind, $upto, $test) = @_;
	my $closed = $kind eq 'updated' ? 'true' : "since + interval '1 hour' <= '$upto'";
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is_sql($node, $db, qq{WITH batch AS (SELECT * FROM ($batch{$kind}) b WHERE $closed), result AS (SELECT since, k, n FROM $kind)
		SELECT (SELECT count(*) > 0 FROM result), (SELECT count(*) FROM (TABLE batch EXCEPT TABLE result) m), (SELECT count(*) FROM (TABLE result EXCEPT TABLE batch) s)},
		't|0|0', $test);
}

visits(q{('2024-01-01 10:00+00', 'a'), ('2024-01-01 10:10+00', 'b'), ('2024-01-01 12:10+00', 'a')});
fire('2024-01-01 12:00+00');
my $minute = 20;
for my $point (qw(batch-fired batch-before-prepare batch-before-commit))
{
	consumes($node, $db, $_) for @kinds;
	visits("('2024-01-01 10:$minute+00', 'a'), ('2024-01-01 10:$minute+00', '$point'), ('2024-01-01 12:$minute+00', 'a')");
	$node->safe_psql('postgres', "ALTER SYSTEM SET wmstream.test_point = '" . join(', ', map { "$point:error/40001:$_" } @kinds) . "'");
	$node->reload;
	fire("2024-01-01 12:$minute+00");
	becomes($node, $db, $_, 'blocked', "$point: the firing of $_ fails") for @kinds;
	$node->safe_psql('postgres', q{ALTER SYSTEM RESET wmstream.test_point});
	$node->reload;
	consumes($node, $db, $_, '... and is tried again') for @kinds;
	shows_all($_, "2024-01-01 12:$minute+00", "$point: $_ has what was taken in before it") for @kinds;
	$minute += 10;
}
visits(q{('2024-01-03 00:00+00', 'a')});
fire('2024-01-03 00:00+00');
consumes($node, $db, $_) for @kinds;
shows_all($_, '2024-01-03 00:00+00', "$_ has all when its windows have gone") for @kinds;

# ---- a source that is altered while a batch runs: what the batch puts aside is shown as it reads it

$node->safe_psql($db, q{
	CREATE TABLE altered (gone text, id int, spare int, ts timestamptz);
	INSERT INTO altered VALUES ('from before', 1, 1, '2024-01-01 00:00+00');
	ALTER TABLE altered DROP gone;
	SELECT wmstream.create_stream('of_altered', $$SELECT lower(w) AS hour, count(*) AS n FROM altered, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0 s') GROUP BY w$$,
		late_table => 'altered_late');
	INSERT INTO altered VALUES (2, 2, '2024-01-02 00:00+00');
});
consumes($node, $db, 'of_altered');
my $offset = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET wmstream.test_point = 'batch-begin:wait:of_altered'});
$node->reload;
$node->safe_psql($db, q{INSERT INTO altered VALUES (3, 1000000001, '2024-01-01 00:00+00'), (4, NULL, NULL)});
$node->wait_for_log(qr/test point "batch-begin": waiting/, $offset);
$node->safe_psql($db, 'ALTER TABLE altered ALTER spare TYPE text, ADD more text');
$node->safe_psql($db, q{INSERT INTO altered VALUES (5, 'five', '2024-01-01 00:00+00', 'x')});
$node->safe_psql('postgres', q{ALTER SYSTEM RESET wmstream.test_point});
$node->reload;
consumes($node, $db, 'of_altered', 'a source altered while a batch runs: the stream goes on');
is_sql($node, $db, q{SELECT reason, row_data - 'ts' FROM altered_late ORDER BY row_data ->> 'id'},
	qq{late|{"id": 3, "spare": 1000000001}\nno_time|{"id": 4, "spare": null}\nlate|{"id": 5, "more": "x", "spare": "five"}}, '... and what was put aside is as it was');

never_crashed($node);
$node->stop;
done_testing();
