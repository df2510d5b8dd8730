# A stream that takes the server down each time it runs: it is found out, stopped with that reason, and the others go on.

use strict;
use warnings;

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

never_crashed($node, 'wmstream worker.*signal 11');
$node->stop;
done_testing();
