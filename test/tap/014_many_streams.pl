# Many streams over the same tables: rows that are taken apart once for all of them are for each what the batch query has, whatever comes between
# them - rows of other tables, NULLs, new and dropped columns, changes that are ignored, rows that are late, have no time or raise errors - also
# where memory is too small for that, and where a stream stands still while the others go on.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my $node = new_node('many');
my $db = 'db';
my $watermark = q{wmstream.watermark(ts, '10 minutes')};

# Results by stream: the definition, and the same as a batch query over what was inserted.
my %select = (
	by_key => 'k, count(*) AS n, sum(v) AS total FROM a',
	by_note => 'note, count(v) AS n, max(k) AS most FROM a',
	filtered => 'k % 3 AS k, count(DISTINCT note) AS n, string_agg(note, $$,$$ ORDER BY note, v) AS notes FROM a',
	counted => 'count(*) AS n FROM a',
	in_order => 'k, array_agg(v) AS vs FROM b',
	skips => 'k, sum(100 / (k - 77)) AS n FROM a',
	twice => 'k, count(*) AS n FROM (SELECT ts, k FROM a WHERE :watermark AND k > 2 UNION ALL SELECT ts, k FROM a WHERE :watermark) AS aa',
	aside => 'k, min(v) AS least FROM a',
	newest => 'k, sum(added) AS added, count(added) AS n FROM a',
	other => 'k, avg(v) AS mean FROM b',
	united => 'k, count(*) AS n FROM (SELECT ts, k FROM a WHERE :watermark UNION ALL SELECT ts, k FROM b WHERE :watermark) AS ab',
	changed => 'k, count(*) AS n FROM c',
	parts => 'k, count(*) AS n, min(note) AS note FROM p',
	longest => 'k, max(length(note)) AS most FROM p',
);
my %group = (by_note => 'note', filtered => 'k % 3', counted => '');
my %options = (aside => q{, late_table => 'aside_late'}, skips => q{, on_error => 'skip'}, changed => q{, on_change => 'ignore'});

sub query_of
{
	my ($stream, $from) = @_;
	my $group = join(', ', grep { $_ ne '' } 'w', $group{$stream} // 'k');
	my $where = $stream eq 'filtered' ? ' AND v IS NOT NULL' : '';
	my $select = $select{$stream};

	if ($from eq 'stream')
	{
		$where = " AND $watermark$where" unless $select =~ s/:watermark/$watermark/g;
		return "SELECT lower(w) AS since, $select, wmstream.window(ts, '1 minute') AS w WHERE true$where GROUP BY $group";
	}
	$select =~ s/FROM c$/FROM c_inserted/;
	$select =~ s/:watermark/true/g;
	$select =~ s/array_agg\(v\)/array_agg(v ORDER BY number)/;
	$where .= ' AND k <> 77' if $stream eq 'skips';
	return "SELECT w AS since, $select, date_bin('1 minute', ts, 'epoch') AS w WHERE ts BETWEEN '2023-12-31' AND '2024-01-02'$where GROUP BY $group";
}

# Rows of all tables by turns; many in one transaction, and many transactions.
my $write = q{
	CREATE PROCEDURE put(i int) LANGUAGE plpgsql AS $$
	DECLARE
		at timestamptz := timestamptz '2024-01-01 00:00+00' + i * interval '1 second' - (i * 7 % 10) * interval '20 seconds';
	BEGIN
		INSERT INTO a (ts, k, v, note) VALUES (at, i % 5, nullif(i % 11, 3)::float8 / 4, nullif('note ' || i % 3, 'note 1'));
		INSERT INTO b (ts, k, v) VALUES (at, nullif(i % 4, 2), i % 13);
		IF i % 3 = 0 THEN
			INSERT INTO p (ts, k, note) VALUES (at, i % 6, repeat('p', i % 9));
		END IF;
		IF i % 2 = 0 THEN
			INSERT INTO c (ts, k) VALUES (at, i % 7);
			INSERT INTO c_inserted (ts, k) VALUES (at, i % 7);
		END IF;
	END $$;
	CREATE PROCEDURE put_rows(since int, upto int, one_by_one bool DEFAULT false) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN since .. upto LOOP
			CALL put(i);
			IF one_by_one THEN
				COMMIT;
			END IF;
		END LOOP;
	END $$};

sub all_consume
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	consumes($node, $db, $_, "$test: $_") foreach sort keys %select;
	return;
}

sub all_are_right
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, "INSERT INTO $_ (ts, k) VALUES ('2024-01-03 00:00+00', 1)") foreach qw(a b c p);
	all_consume($test);
	foreach my $stream (sort keys %select)
	{
		my $batch = query_of($stream, 'batch');
		my $count = $node->safe_psql($db, "SELECT count(*) > 20 FROM $stream");

		is($count, 't', "$test: $stream has rows");
		is_sql($node, $db, qq{
			SELECT (SELECT count(*) FROM (TABLE $stream EXCEPT ALL ($batch)) AS s), (SELECT count(*) FROM (($batch) EXCEPT ALL TABLE $stream) AS b)},
			'0|0', "$test: $stream is what the batch query says");
	}
	# of each stream over a: five late rows, one without a time; twice reads it twice
	is_sql($node, $db, q{
		SELECT string_agg(stream || ': ' || concat_ws(' ', late_rows, no_time_rows, error_rows), ', ' ORDER BY stream::text) FROM wmstream.stat_streams
		WHERE late_rows + no_time_rows + error_rows <> 0},
		join(', ', map { "$_: 5 1 " . ($_ eq 'skips' ? 3 : 0) } qw(aside by_key by_note counted filtered newest skips)) . ', twice: 8 2 0, united: 5 1 0',
		"$test: as many rows were put aside as there were");
	is_sql($node, $db, q{SELECT string_agg(concat_ws(' ', reason, row_data ->> 'k', row_data ->> 'note'), ', ' ORDER BY row_data ->> 'note') FROM aside_late},
		join(', ', (map { "late $_ late $_" } 1 .. 5), 'no_time 1 no time'), "$test: and these they were");
	return;
}

sub try_with
{
	my ($test, %settings) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET wmstream.$_ = '$settings{$_}'") foreach keys %settings;
	$node->restart;
	$node->safe_psql('postgres', "DROP DATABASE IF EXISTS $db");
	make_database($node, $db);
	$node->safe_psql($db, q{
		CREATE TABLE a (dropped text, ts timestamptz, k int, v float8, note text, added int DEFAULT 1);
		ALTER TABLE a DROP COLUMN dropped;
		CREATE TABLE b (k int, ts timestamptz, v int, number serial);
		CREATE TABLE c (ts timestamptz, k int, touched bool);
		CREATE TABLE c_inserted (LIKE c);
		CREATE TABLE p (ts timestamptz, k int, note text) PARTITION BY HASH (k);
		CREATE TABLE p0 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE p1 (note text, k int, ts timestamptz);
		ALTER TABLE p ATTACH PARTITION p1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)});
	$node->safe_psql($db, $write);
	$node->safe_psql($db, "SELECT wmstream.create_stream('$_', \$q\$" . query_of($_, 'stream') . "\$q\$" . ($options{$_} // '') . ')')
	  foreach sort keys %select;
	all_consume("$test: nothing");

	$node->safe_psql($db, 'CALL put_rows(0, 1500)');
	# a stream that was paused makes the worker read again what others have had, some of it in the same batch as what they have not
	$node->safe_psql($db, q{SELECT wmstream.pause('by_note')});
	becomes($node, $db, 'by_note', 'paused', "$test: by_note is paused");
	$node->safe_psql($db, 'CALL put_rows(1501, 1750, one_by_one => true)');
	consumes($node, $db, 'aside', "$test: aside has what by_note has not");
	my $holder = session($node, $db);
	$holder->query_safe('BEGIN; LOCK aside IN SHARE MODE');
	$node->safe_psql($db, 'CALL put_rows(1751, 2000, one_by_one => true)');
	consumes($node, $db, 'counted', "$test: counted goes on");
	$node->safe_psql($db, q{SELECT wmstream.resume('by_note')});
	consumes($node, $db, 'by_note', "$test: by_note goes on");
	$holder->query_safe('COMMIT');
	consumes($node, $db, 'aside', "$test: aside goes on");
	# rows in several shapes, some unread by streams that stand still meanwhile, and changes that are ignored
	$holder->query_safe('BEGIN; LOCK by_key, united, changed IN SHARE MODE');
	$node->safe_psql($db, q{
		BEGIN;
		CALL put_rows(2001, 2300);
		INSERT INTO a (ts, k, v, note) SELECT '2023-12-01 00:00+00', n, n, 'late ' || n FROM generate_series(1, 5) AS n;
		INSERT INTO a (k, note) VALUES (1, 'no time');
		INSERT INTO a (ts, k, v, note) SELECT timestamptz '2024-01-01 00:38+00' + n * interval '1 second', 77, n, 'raises' FROM generate_series(1, 3) AS n;
		CALL put_rows(2301, 2600);
		COMMIT});
	# one transaction in which a table has one shape, another, and the first again
	$node->safe_psql($db, q{
		BEGIN;
		INSERT INTO b (ts, k, v) SELECT '2024-01-01 00:43:20+00', 1, n FROM generate_series(1, 100) AS n;
		ALTER TABLE b RENAME k TO other_k;
		ALTER TABLE b RENAME v TO other_v;
		INSERT INTO b (ts, other_k, other_v) SELECT '2024-01-01 00:43:20+00', 1, n FROM generate_series(101, 200) AS n;
		ALTER TABLE b RENAME other_k TO k;
		ALTER TABLE b RENAME other_v TO v;
		INSERT INTO b (ts, k, v) SELECT '2024-01-01 00:43:20+00', 1, n FROM generate_series(201, 300) AS n;
		COMMIT});
	# where memory is little, rows that a stream has yet to read go to disk when more come after the others have had them
	my $other_holder = session($node, $db);
	$other_holder->query_safe('BEGIN; LOCK parts IN SHARE MODE');
	foreach my $i (1 .. 3)
	{
		$node->safe_psql($db, q{INSERT INTO p SELECT timestamptz '2024-01-01 00:43+00', n % 6, lpad(n::text, 1500, 'w') FROM generate_series(1, 300) AS n});
		consumes($node, $db, 'longest', "$test: wide rows $i");
	}
	$other_holder->query_safe('COMMIT');
	$other_holder->quit;
	consumes($node, $db, 'parts', "$test: wide rows");
	$node->safe_psql($db, 'ALTER TABLE a ADD COLUMN later int DEFAULT 5; ALTER TABLE b ADD COLUMN later text');
	$node->safe_psql($db, 'UPDATE c SET touched = true WHERE k = 3; DELETE FROM c WHERE k = 4; CALL put_rows(2601, 3200)');
	$node->safe_psql($db, 'ALTER TABLE a ALTER later DROP DEFAULT; ALTER TABLE b DROP COLUMN later');
	$node->safe_psql($db, 'CALL put_rows(3201, 3700, one_by_one => true)');
	$node->safe_psql($db, 'CALL put_rows(3701, 6000)');
	consumes($node, $db, $_, "$test: $_ goes on beside those that stand still") foreach qw(by_note aside other parts);
	$holder->query_safe('COMMIT');
	$holder->quit;
	all_are_right($test);
	return;
}

try_with('as it is');
try_with('for one stream too', bundle_from => 1);
try_with('little memory', batch_memory => '1MB');
try_with('hardly any memory', batch_memory => '64kB');
try_with('small batches', batch_memory => '64MB', max_batch_rows => 100);
never_crashed($node);
done_testing();
