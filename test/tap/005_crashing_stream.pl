# A stream that takes the server down each time it runs: it is found out, stopped with that reason, and the others go on. So is a queue, when deleting
# its rows does that: they stay, and its streams go on.

use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('crashing');
my $db = 'db';

make_database($node, $db);
$node->safe_psql($db, 'CREATE TABLE event (id int)');

# Takes a number for a pointer: a C function with a fault, as an extension may have one.
$node->safe_psql($db, q{CREATE FUNCTION faulty(int) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'textlen'});
$node->safe_psql($db, "SELECT wmstream.create_stream('$_', 'SELECT id FROM event')") foreach ('good', 'late');
$node->safe_psql($db, q{SELECT wmstream.create_stream('bad', 'SELECT id, CASE WHEN id > 1 THEN faulty(id) END AS length FROM event')});
$node->safe_psql($db, 'INSERT INTO event VALUES (1)');
consumes($node, $db, $_) foreach ('good', 'bad', 'late');

$node->safe_psql($db, 'INSERT INTO event VALUES (2)');

# The server comes and goes; psql cannot always connect.
polls($node, $db, q{SELECT status = 'failed' AND reason LIKE '%crashed the server%' FROM wmstream.streams WHERE stream = 'bad'::regclass},
	'the stream that crashes the server is stopped, and says so');
foreach my $stream ('good', 'late')
{
	becomes($node, $db, $stream, 'running', "$stream is not blamed");
	consumes($node, $db, $stream);
	is_sql($node, $db, "SELECT count(*), count(DISTINCT id), max(id) FROM $stream", '2|2|2', "$stream has each row once");
}

my $crashes = () = slurp_file($node->logfile) =~ /terminated by signal 11/g;
cmp_ok($crashes, '<=', 6, "the server crashed a few times only ($crashes)");
$node->safe_psql($db, 'INSERT INTO event VALUES (3)');
consumes($node, $db, 'good', 'peace has come');

$node->restart;
becomes($node, $db, 'bad', 'failed', 'it stays stopped over a restart');
$node->safe_psql($db, 'CREATE OR REPLACE FUNCTION faulty(int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT $1 $$');
$node->safe_psql($db, q{SELECT wmstream.resume('bad')});
consumes($node, $db, 'bad', 'its cause gone and resumed, it goes on');
is_sql($node, $db, 'SELECT count(*), count(DISTINCT id), max(id) FROM bad', '3|3|3', '... without loss');

# ---- a follower crashes, too; what was noted of that goes with the stream, or when it has been stopped

sub notes
{
	my $directory = $node->data_dir . '/pg_stat';

	return join(' ', sort(map { basename($_) } glob("$directory/wmstream_crashes.*")));
}

my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$db'");

is(notes(), '', 'those that were stopped or do not crash leave no notes');
$node->safe_psql($db, q{
	CREATE OR REPLACE FUNCTION faulty(int) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'textlen';
	CREATE TABLE filled_event (id int);
	INSERT INTO filled_event VALUES (1), (2)});
$node->safe_psql($db, q{SELECT wmstream.create_stream('filled', 'SELECT id FROM filled_event', start_from => 'beginning')});
consumes($node, $db, 'filled');
is(notes(), '', '... nor does a follower');
my $offset = -s $node->logfile;
$node->psql($db, q{SELECT wmstream.create_stream('bad_fill', 'SELECT CASE WHEN id > 1 THEN faulty(id) END AS length FROM filled_event', start_from => 'beginning')});
ok(eval { $node->wait_for_log(qr/wmstream follower.*terminated by signal 11/, $offset); 1 }, 'a follower crashes the server');
polls($node, $db, q{SELECT status = 'failed' AND reason LIKE '%crashed the server%' FROM wmstream.streams WHERE stream = 'bad_fill'::regclass},
	'... until its stream is stopped, which says so');
is(notes(), '', '... and nothing is left of that');
append_to_file($node->data_dir . "/pg_stat/wmstream_crashes.$oid.4242", 'of a stream that is gone');
append_to_file($node->data_dir . '/pg_stat/wmstream_crashes.4242.4242', 'of another database');
$node->restart;
consumes($node, $db, 'good');
is(notes(), 'wmstream_crashes.4242.4242', 'what was noted of a stream that is gone goes when a worker begins');
make_database($node, 'leaving');
$node->safe_psql('leaving', 'CREATE TABLE event (id int)');
$node->safe_psql('leaving', q{SELECT wmstream.create_stream('copy', 'SELECT id FROM event')});
consumes($node, 'leaving', 'copy');
my $leaving = $node->safe_psql('leaving', q{SELECT d.oid || ' ' || 'copy'::regclass::oid FROM pg_database d WHERE datname = 'leaving'});
append_to_file($node->data_dir . '/pg_stat/wmstream_crashes.' . $leaving =~ tr/ /./r, 'of a stream that is there');
$node->safe_psql('postgres', 'DROP DATABASE leaving');
is(notes(), 'wmstream_crashes.4242.4242', '... and with the database what was noted of its streams');
$node->safe_psql($db, q{SELECT wmstream.drop_stream('bad_fill', true), wmstream.drop_stream('filled', true)});

# ---- a queue whose trigger crashes the server when rows are deleted that all streams have had

$offset = -s $node->logfile;
$node->safe_psql($db, q{
	CREATE OR REPLACE FUNCTION faulty(int) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'textlen';
	CREATE TABLE doomed (id int);
	CREATE TABLE line (id int);
	CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.faulty(old.id); RETURN NULL; END $$;
	SELECT wmstream.drop_stream('bad', true);
	SELECT wmstream.create_queue('doomed', "trim" => true);
	SELECT wmstream.create_queue('line', "trim" => true);
	SELECT wmstream.create_stream('doomed_copy', 'SELECT id FROM doomed');
	SELECT wmstream.create_stream('line_copy', 'SELECT id FROM line');
	CREATE TRIGGER crash AFTER DELETE ON doomed FOR EACH ROW EXECUTE FUNCTION crash();
	INSERT INTO doomed SELECT generate_series(1, 3)});
polls($node, $db, q{SELECT trim_stopped = 'deleting its rows crashed the server' FROM wmstream.queues WHERE queue = 'doomed'::regclass},
	'a queue that crashes the server when its rows are deleted keeps them, and says so');
like(slurp_file($node->logfile), qr/WARNING:  rows of queue "doomed" are not deleted any more/, '... and so does the log');
$node->safe_psql($db, q{INSERT INTO doomed VALUES (4); INSERT INTO line SELECT generate_series(1, 4); INSERT INTO event VALUES (4)});
foreach my $stream ('doomed_copy', 'line_copy', 'good', 'late')
{
	consumes($node, $db, $stream, "... $stream goes on");
	is_sql($node, $db, "SELECT count(*), count(DISTINCT id), max(id) FROM $stream", '4|4|4', "... $stream has each row once");
}
polls($node, $db, 'SELECT count(*) = 0 FROM line', '... another queue is trimmed');
$node->restart;
worker_runs($node, $db, 'it comes back');
is_sql($node, $db, 'SELECT count(*) FROM doomed', '4', '... and the rows stay over a restart');
$crashes = () = slurp_file($node->logfile, $offset) =~ /terminated by signal 11/g;
cmp_ok($crashes, '<=', 6, "the server crashed a few times only ($crashes)");
fails_like($node, $db, q{SELECT wmstream.set_trim('event', true)}, [qr/"event" is not a queue/], 'set_trim of what is no queue');
$node->safe_psql($db, q{DROP TRIGGER crash ON doomed; SELECT wmstream.set_trim('doomed', true)});
polls($node, $db, 'SELECT count(*) = 0 FROM doomed', 'the trigger gone and told so, it is trimmed again');
is_sql($node, $db, q{SELECT trim_stopped IS NULL FROM wmstream.queues WHERE queue = 'doomed'::regclass}, 't', '... and nothing is said of it any more');

never_crashed($node, 'wmstream (worker|follower).*signal 11');
$node->stop;
done_testing();
