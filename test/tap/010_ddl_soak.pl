# DDL on the source tables while streams read them: columns come, go and change their type, tables are rewritten, renamed and moved, partitions
# in another column order come and go, in transactions with rows and without. No stream stops whose columns are not touched, and none loses
# or doubles a row; one that is touched says how.
#
# WMS_SOAK_SECONDS (12) says how long, WMS_SOAK_SEED which run.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WmsTap;

my $seconds = $ENV{WMS_SOAK_SECONDS} // 12;
my $seed = $ENV{WMS_SOAK_SEED} // 1;
my $node = new_node('soak', "wal_keep_size = 0\nlock_timeout = '10 s'");
my $db = 'db';

srand($seed);
make_database($node, $db);
$node->safe_psql($db, q{
	CREATE SEQUENCE ids;
	CREATE TABLE written (upto bigint);
	CREATE TYPE mood AS ENUM ('good');
	CREATE SCHEMA "Other place";
	CREATE TABLE plain (a int, id int PRIMARY KEY, b text, ts timestamptz, v int, c numeric DEFAULT 1.5, m mood);
	CREATE TABLE parts (a int, id int, b text, ts timestamptz, v int, c numeric DEFAULT 1.5) PARTITION BY RANGE (id);
	CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
	CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE ROLE somebody;
});
for my $table ('plain', 'parts')
{
	my $window = "wmstream.window(ts, '10 seconds') AS w WHERE wmstream.watermark(ts, '1 hour') GROUP BY w";

	$node->safe_psql($db, qq{
		SELECT wmstream.create_stream('${table}_copy', 'SELECT id, v, v * 2 AS twice FROM $table');
		SELECT wmstream.create_stream('${table}_windows', \$\$SELECT lower(w) AS since, count(*) AS n, sum(v) AS v, min(id) AS first FROM $table, $window\$\$);
		SELECT wmstream.create_stream('${table}_planned', \$\$SELECT lower(w) AS since, count(*) AS n, sum(x) AS v FROM (SELECT ts, v * i AS x FROM $table, generate_series(1, 2) i) t, $window\$\$, output_mode => 'update');
		ALTER TABLE ${table} REPLICA IDENTITY FULL;
	});
}
$node->safe_psql($db, q{ALTER TABLE parts_rest REPLICA IDENTITY FULL;
	SELECT wmstream.create_stream('plain_counts', 'SELECT v % 10 AS d, count(*) AS n, sum(v) AS v, max(v) AS hi FROM plain GROUP BY v % 10', output_mode => 'complete', on_change => 'retract')});

# ---- what is done

my $ncolumns = 0;
my %extra = (plain => [], parts => []);
my $nparts = 0;
my @attached;

sub any
{
	return int(rand($_[0]));
}

sub one_of
{
	return $_[ any(scalar @_) ];
}

sub rows
{
	my ($table) = @_;

	return "INSERT INTO $table (id, ts, v) SELECT nextval('ids'), timestamptz '2024-01-01' + currval('ids') * interval '1 second', (random() * 100)::int FROM generate_series(1, "
	  . (1 + any(20)) . ')';
}

sub add_column
{
	my ($table) = @_;
	my $name = 'x' . ++$ncolumns;
	my $type = one_of('int', 'text', 'numeric', 'float8', 'timestamptz', 'jsonb', 'boolean', '"char"', 'int[]');
	my %default = (int => '7', text => "'filled'", numeric => '1.25', float8 => 'random()', timestamptz => 'now()', jsonb => q{'{"a": 1}'}, boolean => 'true');

	push @{ $extra{$table} }, $name;
	return "ALTER TABLE $table ADD COLUMN $name $type" . ($default{$type} && any(2) ? " DEFAULT $default{$type}" : '');
}

sub column
{
	my ($table) = @_;

	return @{ $extra{$table} } ? one_of(@{ $extra{$table} }) : undef;
}

sub drop_column
{
	my ($table) = @_;
	my $name = column($table) // return add_column($table);

	$extra{$table} = [ grep { $_ ne $name } @{ $extra{$table} } ];
	return "ALTER TABLE $table DROP COLUMN $name";
}

sub retype
{
	my ($table) = @_;
	my $name = column($table) // return add_column($table);
	my $type = one_of('text', 'int', 'bytea', 'date', 'numeric(6,1)', 'mood');

	# the old values do not matter
	return "ALTER TABLE $table ALTER $name DROP DEFAULT, ALTER $name TYPE $type USING NULL::$type";
}

# A partition with columns in an order of its own, with rows that the stream does not see, for ids that nobody uses.
sub attach
{
	my $from = -1000 * ++$nparts;
	my $name = "part_$nparts";
	my @columns = split(/\n/, $node->safe_psql($db, q{SELECT quote_ident(attname) || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = 'parts'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY random()}));

	push @attached, $name;
	return "CREATE TABLE $name (gone int, " . join(', ', @columns) . "); ALTER TABLE $name DROP COLUMN gone; ALTER TABLE $name REPLICA IDENTITY FULL; "
	  . "INSERT INTO $name (id, ts, v) VALUES ($from, '2024-01-01', 1); "
	  . "ALTER TABLE parts ATTACH PARTITION $name FOR VALUES FROM ($from) TO (" . ($from + 10) . ')';
}

sub detach
{
	my $name = pop @attached or return add_column('parts');

	return "ALTER TABLE parts DETACH PARTITION $name; DROP TABLE $name";
}

my @ddl = (
	\&add_column, \&add_column, \&drop_column, \&retype, \&retype,
	sub { return "ALTER TABLE $_[0] ALTER a TYPE " . one_of('bigint', 'int', 'text') . ' USING NULL' },
	sub { return "ALTER TABLE $_[0] ALTER c SET DEFAULT " . any(100) },
	sub { return "ALTER TABLE $_[0] ALTER b SET STORAGE " . one_of('EXTERNAL', 'EXTENDED', 'MAIN') },
	sub { return "ALTER TABLE $_[0] RENAME b TO \"B b\"; ALTER TABLE $_[0] RENAME \"B b\" TO b" },
	sub { return "ALTER TABLE $_[0] RENAME v TO w; ALTER TABLE $_[0] RENAME w TO v" },
	sub { return "ALTER TABLE $_[0] RENAME TO renamed; " . rows('renamed') . "; ALTER TABLE renamed RENAME TO $_[0]" },
	sub { return "ALTER TABLE $_[0] SET SCHEMA \"Other place\"; ALTER TABLE \"Other place\".$_[0] SET SCHEMA public" },
	sub { return "CREATE INDEX ON $_[0] (v)" },
	sub { return "DROP INDEX IF EXISTS plain_v_idx, parts_v_idx" },
	sub { return "ALTER TABLE $_[0] ADD CONSTRAINT positive CHECK (id > -100000); ALTER TABLE $_[0] DROP CONSTRAINT positive" },
	sub { return "CREATE TRIGGER nothing BEFORE UPDATE ON $_[0] FOR EACH ROW EXECUTE FUNCTION nothing(); DROP TRIGGER nothing ON $_[0]" },
	sub { return "GRANT SELECT ON $_[0] TO somebody; REVOKE SELECT ON $_[0] FROM somebody" },
	sub { return "COMMENT ON TABLE $_[0] IS 'seen " . any(10) . "'" },
	sub { return "ALTER TABLE plain SET (fillfactor = " . (50 + any(50)) . ')' },
	sub { return 'CLUSTER plain USING plain_pkey' },
	sub { return "ALTER TYPE mood ADD VALUE IF NOT EXISTS 'm" . any(30) . q{'} },
	\&attach, \&attach, \&detach);

# Alone, in a transaction with rows of the table, or rolled back.
sub change
{
	my $table = one_of('plain', 'parts');
	my %before = map { $_ => [ @{ $extra{$_} } ] } keys %extra;
	my @attached_before = @attached;
	my $sql = $ddl[ any(scalar @ddl) ]->($table);
	my $how = any(4);

	if ($how == 0)
	{
		%extra = %before;
		@attached = @attached_before;
		return 'BEGIN; ' . rows($table) . "; $sql; " . rows($table) . '; ROLLBACK;' if $sql !~ /ADD VALUE/;
	}
	return 'BEGIN; ' . rows($table) . "; $sql; " . rows($table) . '; COMMIT;' if $how < 3 && $sql !~ /ADD VALUE/;
	return "$sql;";
}

# Several sessions write all the while; they end with the file.
my $go_on = PostgreSQL::Test::Utils::tempdir() . '/go_on';
append_to_file($go_on, '');
my @writers = map {
	my $sql = join("\n", map { my $table = one_of('plain', 'parts'); rows($table) . ';' .
		  ($_ % 9 == 0 && $table eq 'plain' ? 'UPDATE plain SET v = v + 1 WHERE id % 50 = ' . any(50) . '; DELETE FROM plain WHERE id % 97 = ' . any(97) . ';' : '') } 1 .. 60) .
	  "\nINSERT INTO written SELECT last_value FROM ids;";
	my $script = PostgreSQL::Test::Utils::tempdir() . '/writer.sql';

	append_to_file($script, $sql);
	IPC::Run::start([ 'sh', '-c', "while [ -f $go_on ]; do psql -Xqc \"SET lock_timeout = '5 s'\" -f $script '" . $node->connstr($db) . q{' >/dev/null 2>&1; sleep 0.2; done} ]);
} 1 .. 2;

my $stands_still = q{SELECT string_agg(stream || ': ' || status || ' ' || coalesce(reason, ''), E'\n') FROM wmstream.streams WHERE status NOT IN ('running', 'starting', 'blocked')};
my $until = time() + $seconds;
my ($done, $refused) = (0, 0);
my $problem = '';

while (time() < $until && !$problem)
{
	my $sql = change();
	my ($ret, $out, $err) = $node->psql($db, $sql);

	$done++;
	if ($ret != 0)
	{
		$refused++;
		diag("$sql\n$err") unless $err =~ /lock timeout|deadlock|canceling/;
	}
	$problem = $node->safe_psql($db, $stands_still);
	diag("after: $sql") if $problem;
}
unlink $go_on;
$_->finish for @writers;
cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM written'), '>=', 2, 'the writers wrote meanwhile');
is($problem, '', "no stream stood still during $done changes of seed $seed");
cmp_ok($refused, '<', $done / 3, 'most of them were made');

# ---- what came of it

# a long run leaves much to read, and what was blocked by locks is read again
my $patience = 50 + $seconds;
is(($node->psql($db, "SELECT wmstream.wait('$_', '$patience s')"))[2], '', "$_ consumes all")
  for qw(plain_copy plain_windows plain_planned plain_counts parts_copy parts_windows parts_planned);
is_sql($node, $db, 'SELECT count(*) - count(DISTINCT id) FROM plain_copy', '0', 'no row of the table came twice');
is_sql($node, $db, 'SELECT count(*) FROM plain WHERE NOT EXISTS (SELECT FROM plain_copy c WHERE c.id = plain.id)', '0', 'and none is missing');
is_sql($node, $db, q{SELECT count(*), (SELECT count(*) FROM parts WHERE id > 0) FROM parts_copy WHERE id > 0}, $node->safe_psql($db, 'SELECT count(*), count(*) FROM parts WHERE id > 0'),
	'rows of the partitioned table came once each');
is_sql($node, $db, 'SELECT count(*) FROM (SELECT id, v, v * 2 FROM parts WHERE id > 0 EXCEPT ALL TABLE parts_copy) m', '0', 'with their values');
is_sql($node, $db, qq{SELECT sum(n), sum(v) FROM wmstream.live(NULL::${_}_windows)}, $node->safe_psql($db, "SELECT count(*), sum(v) FROM ${_}_copy"), "windows of $_ hold them all")
  for 'plain', 'parts';
is_sql($node, $db, qq{SELECT sum(n), sum(v) FROM ${_}_planned}, $node->safe_psql($db, "SELECT 2 * count(*), 3 * sum(v) FROM ${_}_copy"), "also where they are read by a plan")
  for 'plain', 'parts';
is_sql($node, $db, q{SELECT count(*) FROM ((SELECT v % 10, count(*), sum(v), max(v) FROM plain GROUP BY 1 EXCEPT ALL TABLE plain_counts)
	UNION ALL (TABLE plain_counts EXCEPT ALL SELECT v % 10, count(*), sum(v), max(v) FROM plain GROUP BY 1)) d}, '0', 'rows that were changed are what the table says');

# ---- a stream that is touched says so

fails_like($node, $db, 'ALTER TABLE plain ALTER v TYPE text', [qr/used by a view/], 'a column that a stream reads cannot change its type');
fails_like($node, $db, 'ALTER TABLE plain DROP COLUMN v', [qr/depends on column v/], 'nor go');
$node->safe_psql($db, 'ALTER TABLE plain SET UNLOGGED');
becomes($node, $db, 'plain_copy', 'failed', 'a table that is not logged any more stops its streams');
like($node->safe_psql($db, q{SELECT reason FROM wmstream.streams WHERE stream = 'plain_copy'::regclass}), qr/"plain".*unlogged/, 'which say so');
$node->safe_psql($db, 'ALTER TABLE plain SET LOGGED');
$node->safe_psql($db, q{SELECT wmstream.resume(stream) FROM wmstream.streams WHERE status = 'failed'});
$node->safe_psql($db, 'INSERT INTO plain (id, ts, v) VALUES (-1, NULL, 1)');
consumes($node, $db, 'plain_copy', 'they go on when it is logged again');
is_sql($node, $db, 'SELECT count(*) FROM plain_copy WHERE id = -1', '1', 'with the next row');
$node->safe_psql($db, 'ALTER TABLE plain DROP COLUMN v CASCADE');
is_sql($node, $db, q{SELECT string_agg(stream::text, ' ' ORDER BY stream::text) FROM wmstream.streams}, 'parts_copy parts_planned parts_windows', 'with the column its streams go');
is_sql($node, $db, 'SELECT count(*) > 0 FROM plain_copy', 't', 'and their results stay');
consumes($node, $db, 'parts_copy', 'the others go on');
never_crashed($node, undef);

done_testing();
