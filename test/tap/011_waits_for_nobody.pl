# A transaction that has changed a definition or a command and stays open holds up its own stream only; what the deletion of rows of a queue
# does to other tables reaches the streams that read these.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('waits');
my $db = 'db';

# The stream has all that committed, though its worker has been given news of the registry, while the other session holds what it holds.
sub goes_on
{
	my ($stream, $source, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, "SELECT wmstream.alter_stream('$stream', 'max_future', '365 days'); INSERT INTO $source VALUES (1)");
	my ($ret, undef, $stderr) = $node->psql($db, "SELECT wmstream.wait('$stream', '10 s')", timeout => 60);
	ok($ret == 0, $test) || diag($stderr);
	return is_sql($node, $db, "SELECT count(*) = (SELECT count(*) FROM kept_$source) FROM $stream", 't', "$test: each row once");
}

sub make_source
{
	my ($source) = @_;

	$node->safe_psql($db, qq{
		CREATE TABLE $source (id int);
		CREATE TABLE kept_$source (id int);
		CREATE FUNCTION keep_$source() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.kept_$source VALUES (new.id); RETURN NULL; END';
		CREATE TRIGGER keep AFTER INSERT ON $source FOR EACH ROW EXECUTE FUNCTION keep_$source()});
	return;
}

make_database($node, $db);
make_source($_) foreach ('a', 'b', 'q', 'r');
$node->safe_psql($db, q{SELECT wmstream.create_queue('q', true); SELECT wmstream.create_queue('r', true);
	CREATE VIEW a_view AS SELECT id FROM a; CREATE VIEW q_view AS SELECT id FROM q});
$node->safe_psql($db, q{SELECT wmstream.create_stream('of_a', 'SELECT id FROM a_view')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('of_b', 'SELECT id FROM b')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('of_q', 'SELECT id FROM q_view')});
$node->safe_psql($db, q{SELECT wmstream.create_stream('of_r', 'SELECT id FROM r')});
goes_on("of_$_", $_, "before, $_") foreach ('a', 'b', 'q', 'r');

# ---- locks on definitions and on what they read

my $other = session($node, $db);
$other->query_safe('SET client_min_messages = error');
foreach my $held (q{SELECT wmstream.drop_stream('of_a')}, q{SELECT wmstream.drop_stream('of_q')}, 'DROP VIEW a_view CASCADE', 'DROP VIEW q_view CASCADE',
	q{SELECT wmstream.pause('of_a')})
{
	$other->query_safe("BEGIN; $held");
	goes_on('of_b', 'b', "beside $held, uncommitted");
	goes_on('of_r', 'r', "... a queue, too");
	$other->query_safe('ROLLBACK');
	polls($node, $db, 'SELECT count(*) = 0 FROM r', '... which is trimmed when it is over');
	goes_on("of_$_", $_, "... as are all then, $_") foreach ('a', 'q');
}
$other->quit;

# ---- what triggers do when rows of a queue are deleted

$node->safe_psql($db, q{
	CREATE TABLE gone (id int);
	SELECT wmstream.create_stream('of_gone', 'SELECT id FROM gone')});
$node->safe_psql($db, q{
	CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.gone VALUES (old.id); RETURN NULL; END';
	CREATE TRIGGER note_gone AFTER DELETE ON r FOR EACH ROW EXECUTE FUNCTION note_gone()});
$node->safe_psql($db, 'INSERT INTO r SELECT generate_series(1, 10)');
polls($node, $db, 'SELECT count(*) = 10 FROM gone', 'rows are deleted and noted');
consumes($node, $db, 'of_gone', 'what was noted is consumed');
is_sql($node, $db, 'SELECT count(*), sum(id) FROM of_gone', $node->safe_psql($db, 'SELECT count(*), sum(id) FROM gone'), 'what a trigger of a queue writes comes to streams');

never_crashed($node);
$node->stop;
done_testing();
