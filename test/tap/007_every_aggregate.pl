# Every aggregate that pg_aggregate knows, through real streams against the batch query: built in, contrib's, hll and tdigest where
# they are installed, and user-defined ones of every make. Each is called in every form that Postgres itself accepts (plain,
# FILTER, DISTINCT, ORDER BY, both) in tumbling windows; its plain forms also in sliding ones, which share panes and so combine states, and
# in sessions, which combine them when they merge. All that runs twice: with states kept where they can be, and with the arguments
# of all aggregates kept.
#
# An aggregate that no call was made for, or that no stream has shown a value of, fails the test by name; those that are not to be called
# are named in %not_called.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WmsTap;

my @extensions = qw(citext intagg hll tdigest);
my $calls_per_stream = 60;
my $gap = '40 s';	# many rows are further apart than that, and many that come later bridge it

# Columns of the source, one of each type that aggregates are declared for; h is a number that looks random.
my %columns = (
	bool => 'CASE WHEN h % 5 > 0 THEN h % 2 = 0 END',
	int2 => 'nullif(h % 200 - 100, 7)',
	int4 => 'nullif(h % 2000 - 1000, 1)',
	int8 => 'nullif(h::int8 * 1000003 - 500000, -500000)',
	numeric => 'CASE WHEN h % 50 <> 3 THEN (h % 100000 - 50000)::numeric / 7 END',
	float4 => 'nullif((h % 1000) / 8.0, 0)',
	float8 => 'CASE WHEN h % 11 <> 0 THEN (h % 10000) / 16.0 - 300 END',
	money => '(h % 999)::numeric::money',
	oid => '(h % 4000)::oid',
	text => q{CASE h % 6 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('long ', h % 700) ELSE md5((h % 40)::text) END},
	bpchar => '(h % 17)::text::bpchar',
	citext => q{CASE h % 3 WHEN 0 THEN 'Abc' WHEN 1 THEN 'aBD' ELSE 'x' || h % 4 END},
	bytea => q{decode(md5(h::text), 'hex')},
	bit => '(h % 256)::bit(8)',
	date => q{date '2024-01-01' + h % 400},
	time => q{time '00:00' + (h % 86400) * interval '1 s'},
	timetz => q{(time '00:00' + (h % 86400) * interval '1 s')::timetz},
	timestamp => q{timestamp '2024-01-01' + h * interval '7 s'},
	timestamptz => q{nullif(timestamptz '2024-01-01 00:00+00' + h * interval '9 s', '2024-01-01 00:00+00')},
	interval => q{(h % 500 - 250) * interval '1 hour 3 seconds'},
	inet => q{('10.0.' || h % 256 || '.1')::inet},
	tid => q{('(' || h % 70 || ',' || h % 9 + 1 || ')')::tid},
	xid8 => '(h::text)::xid8',
	pg_lsn => q{(to_hex(h) || '/0')::pg_lsn},
	uuid => 'md5(h::text)::uuid',
	xml => q{('<a n="' || h % 9 || '"/>')::xml},
	jsonb => q{CASE WHEN h % 7 > 0 THEN jsonb_build_object('v', h % 100, 'l', ARRAY[h % 3, 1.50]) END},
	mood => '(enum_range(NULL::mood))[1 + h % 3]',
	_int4 => q{CASE WHEN h % 7 > 0 THEN ARRAY[h % 9, NULL, 1] END},
	_text => q{ARRAY['a' || h % 9, 'b']},
	int4range => 'CASE WHEN h % 8 > 0 THEN int4range(h % 100, h % 100 + h % 50) END',
	int4multirange => 'int4multirange(int4range(h % 100, h % 100 + 50), int4range(h % 400, h % 400 + 9))',
	pair => q{ROW(h % 6, 'p' || h % 5)::pair},
	hll_hashval => 'hll_hash_integer(h % 300)',
	hll => 'hll_add(hll_empty(), hll_hash_integer(h % 300))',
	tdigest => '(SELECT tdigest(x, 1000) FROM generate_series(h % 7, h % 7 + 5) x)');

# What stands for arguments of other types; a polymorphic one becomes several in turn. Not NULL, where "any" includes keys of objects.
my %stands_for = (
	any => [qw(id md5(h::text))],
	anyelement => [qw(c_int4 c_text c_pair c__int4)],
	anynonarray => [qw(c_numeric c_text c_pair c_jsonb)],
	anycompatible => [qw(c_int4 c_text)],
	anyarray => [qw(c__int4 c__text)],
	anyenum => ['c_mood'],
	anyrange => ['c_int4range'],
	anymultirange => ['c_int4multirange']);

# Where arguments must have certain values: lists, by the beginning of the signature. A star is what its type says.
my %arguments = (
	'count("any")' => [ ['c_text'], ['c_pair'] ],
	'percentile_cont(double precision,' => [ [ '0.4', '*' ] ],
	'percentile_cont(double precision[],' => [ [ 'ARRAY[0.1, 0.5, 1]', '*' ] ],
	'percentile_disc(double precision,' => [ [ '0.4', '*' ] ],
	'percentile_disc(double precision[],' => [ [ 'ARRAY[0.1, 0.5, 1]', '*' ] ],
	'array_agg(anyarray)' => [ ['ARRAY[h, 7, NULL]'] ],
	'usual(' => [ [ '0.3', '*' ] ],
	'sum_all(' => [ [ 'c_int4', 'h', '3' ], ['VARIADIC c__int4'] ],
	'hll_add_agg(hll_hashval)' => [ ['*'] ],
	'hll_add_agg(hll_hashval,integer)' => [ [ '*', '11' ] ],
	'hll_add_agg(hll_hashval,integer,integer)' => [ [ '*', '11', '5' ] ],
	'hll_add_agg(hll_hashval,integer,integer,bigint)' => [ [ '*', '11', '5', '-1::int8' ] ],
	'hll_add_agg(hll_hashval,integer,integer,bigint,integer)' => [ [ '*', '11', '5', '-1::int8', '1' ] ],
	'tdigest(double precision,integer)' => [ [ '*', '100' ] ],
	'tdigest(double precision,bigint,integer)' => [ [ '*', '1 + h % 3', '100' ] ],
	'tdigest_percentile(double precision,integer,double precision)' => [ [ '*', '100', '0.4' ] ],
	'tdigest_percentile(double precision,integer,double precision[])' => [ [ '*', '100', 'ARRAY[0.4, 0.9]' ] ],
	'tdigest_percentile(double precision,bigint,integer,double precision)' => [ [ '*', '1 + h % 3', '100', '0.4' ] ],
	'tdigest_percentile(double precision,bigint,integer,double precision[])' => [ [ '*', '1 + h % 3', '100', 'ARRAY[0.4, 0.9]' ] ],
	'tdigest_percentile(tdigest,double precision)' => [ [ '*', '0.4' ] ],
	'tdigest_percentile(tdigest,double precision[])' => [ [ '*', 'ARRAY[0.4, 0.9]' ] ]);
foreach my $like (grep { /^tdigest_percentile/ } keys %arguments)
{
	$arguments{ $like =~ s/_percentile/_percentile_of/r } = [ map { [ map { s/0\.4/10.0/r } @$_ ] } @{ $arguments{$like} } ];
	next if $like =~ /\[\]/;
	foreach my $trimmed (qw(_avg _sum))
	{
		# How much of digests is cut off depends on the order in which they were combined; with Postgres' own partial aggregates it does too.
		my @trim = $like =~ /\(tdigest/ ? ('0', '1') : ('0.1', '0.9');

		$arguments{ $like =~ s/_percentile/$trimmed/r =~ s/\)$/,double precision)/r } = [ map { [ @$_[ 0 .. $#$_ - 1 ], @trim ] } @{ $arguments{$like} } ];
	}
}

# Aggregates that no definition calls, by signature. Ours is for columns that a group carries (sql/dependent.sql): with a FILTER it would show
# which of two sessions went into the other.
my %not_called = ('wmstream.latest(anyelement)' => 1);

my $user_defined = q{
	CREATE AGGREGATE mul(numeric) (SFUNC = numeric_mul, STYPE = numeric, COMBINEFUNC = numeric_mul, INITCOND = '1');
	CREATE AGGREGATE longest(text) (SFUNC = text_larger, STYPE = text);
	CREATE FUNCTION count_up(bigint, anyelement) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + CASE WHEN $2 IS NULL THEN 100 ELSE 1 END $$;
	CREATE AGGREGATE strange_count(anyelement) (SFUNC = count_up, STYPE = bigint, INITCOND = '0');
	CREATE FUNCTION keep(int[], int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN (SELECT array_agg(x ORDER BY x DESC) FROM unnest($1 || $2) x LIMIT 1); END $$;
	CREATE FUNCTION best3(int[]) RETURNS int[] LANGUAGE sql IMMUTABLE RETURN $1[1:3];
	CREATE AGGREGATE greatest3(int) (SFUNC = keep, STYPE = int[], FINALFUNC = best3, INITCOND = '{}');
	-- a polymorphic state that is a read-write array
	CREATE AGGREGATE collect(anycompatible) (SFUNC = array_append, STYPE = anycompatiblearray, INITCOND = '{}');
	-- a combine function, too; order of arrival within a pane does not show
	CREATE FUNCTION larger(anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT CASE WHEN $2 > $1 THEN $2 ELSE $1 END $$;
	CREATE AGGREGATE largest(anyelement) (SFUNC = larger, STYPE = anyelement, COMBINEFUNC = larger);
	-- internal states without serial function, without combine function, with neither
	CREATE AGGREGATE avg_memory(numeric) (SFUNC = numeric_avg_accum, STYPE = internal, FINALFUNC = numeric_avg, COMBINEFUNC = numeric_avg_combine);
	CREATE AGGREGATE avg_stored(numeric) (SFUNC = numeric_avg_accum, STYPE = internal, FINALFUNC = numeric_avg, COMBINEFUNC = numeric_avg_combine,
		SERIALFUNC = numeric_avg_serialize, DESERIALFUNC = numeric_avg_deserialize);
	CREATE AGGREGATE avg_alone(numeric) (SFUNC = numeric_avg_accum, STYPE = internal, FINALFUNC = numeric_avg);
	-- a moving-aggregate half is of no use here and does no harm; a state of a composite type; one that starts as NULL and is not strict
	CREATE AGGREGATE moving(int4) (SFUNC = int4_avg_accum, STYPE = int8[], INITCOND = '{0,0}', FINALFUNC = int8_avg, COMBINEFUNC = int4_avg_combine,
		MSFUNC = int4_avg_accum, MINVFUNC = int4_avg_accum_inv, MSTYPE = int8[], MINITCOND = '{0,0}', MFINALFUNC = int8_avg);
	CREATE FUNCTION widen(pair, int) RETURNS pair LANGUAGE sql IMMUTABLE AS $$ SELECT ROW(coalesce($1.n, 0) + $2, coalesce($1.t, '') || left($2::text, 1))::public.pair $$;
	CREATE AGGREGATE widest(int) (SFUNC = widen, STYPE = pair);
	-- a final function that is given the arguments' types; one that may write to the state
	CREATE FUNCTION typed(int8, anyelement) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || ' of ' || typname FROM pg_type WHERE oid = pg_typeof($2) $$;
	CREATE AGGREGATE typed_count(anyelement) (SFUNC = count_up, STYPE = bigint, INITCOND = '0', FINALFUNC = typed, FINALFUNC_EXTRA);
	CREATE AGGREGATE writes(int4) (SFUNC = int4_avg_accum, STYPE = int8[], INITCOND = '{0,0}', FINALFUNC = int8_avg, FINALFUNC_MODIFY = READ_WRITE);
	-- several arguments, variadic ones of one type and of any
	CREATE FUNCTION weigh(float8, float8, int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + coalesce($2 * $3, 0) $$;
	CREATE AGGREGATE weighed(float8, int) (SFUNC = weigh, STYPE = float8, INITCOND = '0');
	CREATE FUNCTION add_all(int8, VARIADIC int[]) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + coalesce(sum(x), 0) FROM unnest($2) x $$;
	CREATE AGGREGATE sum_all(VARIADIC int[]) (SFUNC = add_all, STYPE = int8, INITCOND = '0');
	CREATE AGGREGATE nothing(*) (SFUNC = int8inc, STYPE = int8, INITCOND = '0');
	-- ordered-set and hypothetical-set ones
	CREATE AGGREGATE usual(float8 ORDER BY anyelement) (SFUNC = ordered_set_transition, STYPE = internal, FINALFUNC = percentile_disc_final, FINALFUNC_EXTRA, FINALFUNC_MODIFY = READ_WRITE);
	CREATE AGGREGATE place(VARIADIC "any" ORDER BY VARIADIC "any") (SFUNC = ordered_set_transition_multi, STYPE = internal, FINALFUNC = rank_final, FINALFUNC_EXTRA, HYPOTHETICAL);
	CREATE FUNCTION last_one(pair, int, text) RETURNS pair LANGUAGE sql IMMUTABLE AS $$ SELECT ROW($2, $3)::public.pair $$;
	CREATE AGGREGATE "Last One"(int, text) (SFUNC = last_one, STYPE = pair);
	CREATE SCHEMA "Other place";
	CREATE AGGREGATE "Other place".sum(text) (SFUNC = textcat, STYPE = text)};

my $node = new_node('aggregates');
my $db = 'db';

make_database($node, $db);
make_extension($_) foreach @extensions;
make_source();
$node->safe_psql($db, $user_defined);
make_calls();
make_streams();
make_judge();
whole_run('states');
$node->append_conf('postgresql.conf', 'wmstream.force_kept_arguments = on');
$node->restart;
whole_run('arguments');
never_crashed($node);
$node->stop;
done_testing();

# ---- what there is

sub make_extension
{
	my ($name) = @_;

  SKIP:
	{
		skip "extension $name is not installed; its aggregates are not tried", 1
		  unless $node->safe_psql($db, "SELECT count(*) FROM pg_available_extensions WHERE name = '$name'");
		$node->safe_psql($db, "CREATE EXTENSION $name");
		pass("extension $name");
	}
	return;
}

sub make_source
{
	$node->safe_psql($db, q{CREATE TYPE mood AS ENUM ('low', 'middle', 'high'); CREATE TYPE pair AS (n int, t text)});
	my $all = join ', ', map { "'$_'" } sort keys %columns;
	my @types = split /\n/, $node->safe_psql($db, "SELECT t FROM unnest(ARRAY[$all]) t WHERE to_regtype(t) IS NOT NULL ORDER BY t");
	my $definitions = join ', ', map { "c_$_ $_" . ($_ eq 'bit' ? '(8)' : '') } @types;
	my $values = join ', ', map { "CASE WHEN filled THEN $columns{$_} END AS c_$_" } @types;
	my $names = join ', ', map { "c_$_" } @types;

	# Times are up to ten minutes behind those that came before. A third of each hour, and every other twenty seconds, have nothing
	# but NULLs: panes and sessions with NULLs alone are combined with others.
	$node->safe_psql($db, qq{
		CREATE TABLE facts (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, ts timestamptz, k int, h int, $definitions);
		CREATE PROCEDURE fill(since int, upto int) LANGUAGE plpgsql AS \$\$
		BEGIN
			FOR batch IN since..upto LOOP
				INSERT INTO facts (ts, k, h, $names)
				SELECT timestamptz '2024-05-01 00:00+00' + second * interval '1 second', x % 2, h, $values
				FROM  (SELECT *, second / 1200 % 3 <> 1 AND second / 20 % 2 = 0 AS filled
					   FROM (SELECT x, (x * 7919 + batch * 104729) % 99991 AS h, batch * 660 - x * 139 % 600 AS second FROM generate_series(1, 40) x) v) v;
				COMMIT;
			END LOOP;
		END \$\$});
	return;
}

# ---- the calls

# Table calls: an aggregate, a form, the expression. What Postgres itself does not accept over the table is not in it.
sub make_calls
{
	my @aggregates = map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql($db, q{
		SELECT p.oid::regprocedure, p.oid::regproc, aggkind, aggnumdirectargs,
			   CASE WHEN aggtranstype = 'internal'::regtype AND aggserialfn = 0 THEN 'no' WHEN aggcombinefn = 0 THEN 'storable' ELSE 'combinable' END,
			   (SELECT string_agg(t.typname, ' ' ORDER BY nr) FROM unnest(proargtypes) WITH ORDINALITY a(oid, nr) JOIN pg_type t USING (oid))
		FROM   pg_aggregate JOIN pg_proc p ON p.oid = aggfnoid ORDER BY p.oid});
	my @rows = map { "($_)" } map { forms(@$_) } grep { !$not_called{ $_->[0] } } @aggregates;

	cmp_ok(scalar @aggregates, '>', 140, 'pg_aggregate has its aggregates');
	$node->safe_psql($db, q{
		-- the type of a call over the table; NULL if Postgres does not accept it
		CREATE FUNCTION type_of(call text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			type text;
		BEGIN
			EXECUTE 'SELECT pg_typeof(' || call || ') FROM facts WHERE false' INTO type;
			RETURN type;
		EXCEPTION WHEN undefined_column OR undefined_function OR undefined_object OR feature_not_supported OR invalid_column_reference THEN
			RETURN NULL;
		END $$;
		CREATE TABLE calls (id int GENERATED ALWAYS AS IDENTITY, aggregate text, form text, state text, in_order bool, call text, type text);
		INSERT INTO calls (aggregate, form, state, in_order, call) VALUES } . join(', ', @rows) . q{;
		UPDATE calls SET type = type_of(call);
		DELETE FROM calls WHERE type IS NULL});
	is_sql($node, $db, q{SELECT a FROM (SELECT aggfnoid::regprocedure::text FROM pg_aggregate EXCEPT SELECT aggregate FROM calls WHERE form = 'plain') u(a) ORDER BY a},
		join("\n", sort keys %not_called), 'every aggregate has a call, but for those that are named');
	note($node->safe_psql($db, q{SELECT count(*) || ' calls of ' || count(DISTINCT aggregate) || ' aggregates' FROM calls}));
	return;
}

# The rows of one aggregate for table calls. Unordered forms of ordinary aggregates see rows in the order of their arrival.
sub forms
{
	my ($signature, $name, $kind, $direct, $state, $types) = @_;
	my @rows;

	foreach my $list (argument_lists($signature, $kind, split(/ /, $types)))
	{
		my @forms = $kind eq 'n' ? ordinary_forms($name, @$list) : set_forms($name, $kind eq 'h' ? @$list / 2 : $direct, @$list);

		while (my ($form, $call) = splice @forms, 0, 2)
		{
			my $in_order = $kind eq 'n' && $form eq 'plain';
			my $flags = $in_order ? "'$state', true" : q{'no', false};

			push @rows, map { qq{\$a\$$signature\$a\$, '$form$_->[0]', $flags, \$a\$$call$_->[1]\$a\$} } [ '', '' ], [ ', filtered', ' FILTER (WHERE h % 3 > 0)' ];
		}
	}
	return @rows;
}

sub ordinary_forms
{
	my ($name, @list) = @_;
	my $list = join ', ', @list;
	my @forms = (plain => "$name($list)", ordered => "$name($list ORDER BY h DESC, id)");

	return (plain => "$name(*)") unless @list;
	return @forms if $list =~ /VARIADIC/;
	return (@forms, distinct => "$name(DISTINCT $list)", both => "$name(DISTINCT $list ORDER BY $list)");
}

sub set_forms
{
	my ($name, $direct, @list) = @_;
	my $given = join ', ', splice @list, 0, $direct;

	return (
		plain => "$name($given) WITHIN GROUP (ORDER BY " . join(', ', @list) . ')',
		descending => "$name($given) WITHIN GROUP (ORDER BY " . join(', ', map { "$_ DESC NULLS LAST" } @list) . ')');
}

# Lists of arguments: one, or more where the aggregate is polymorphic.
sub argument_lists
{
	my ($signature, $kind, @types) = @_;
	my ($like) = sort { length $b <=> length $a } grep { index($signature, $_) == 0 } keys %arguments;

	return ([ '5', 'c_int4' ], [ '5', q{'x'::text}, 'c_int4', 'c_text' ]) if $kind eq 'h';
	return map { choices($_, @types) } $like ? @{ $arguments{$like} } : [ map { '*' } @types ];
}

sub choices
{
	my ($given, @types) = @_;
	my @lists = ([]);

	foreach my $i (0 .. $#$given)
	{
		my @ways = $given->[$i] ne '*' ? $given->[$i] : @{ $stands_for{ $types[$i] } // ["c_$types[$i]"] };

		@lists = map { my $list = $_; map { [ @$list, $_ ] } @ways } @lists;
	}
	return @lists;
}

# ---- streams and what they show

# Calls are dealt to streams. In the batch query, rows come in the order of their arrival only if nothing in it must sort.
sub make_streams
{
	$node->safe_psql($db, qq{
		CREATE TABLE tried AS
			SELECT format('%s_%s_%s', win, CASE WHEN in_order THEN 'arrival' ELSE 'sorted' END, nr / $calls_per_stream) AS name, win, in_order,
				   array_agg(id ORDER BY id) AS ids, count(*) FILTER (WHERE state = 'combinable' OR state = 'storable' AND win <> 'session') AS storable,
				   string_agg(format(CASE WHEN type = 'record' THEN '(%s)::text AS c%s' ELSE '%s AS c%s' END, call, id), ', ' ORDER BY id) AS list
			FROM  (SELECT *, row_number() OVER (PARTITION BY win, in_order ORDER BY id) - 1 AS nr
				   FROM calls, unnest(ARRAY['tumbling', 'sliding', 'session']) win
				   WHERE win = 'tumbling' OR form LIKE 'plain%') c
			GROUP BY win, in_order, nr / $calls_per_stream;
		CREATE FUNCTION definition(tried) RETURNS text LANGUAGE sql RETURN format(
			'SELECT lower(w) AS since, k, %s FROM facts, wmstream.%s AS w WHERE wmstream.watermark(ts, ''10 minutes'') GROUP BY w, k', (\$1).list,
			CASE (\$1).win WHEN 'tumbling' THEN 'window(ts, ''1 hour'')' WHEN 'sliding' THEN 'window(ts, ''1 hour'', ''20 minutes'')' ELSE 'session_window(ts, ''$gap'')' END);
		CREATE TABLE session (id int, number bigint);
		CREATE FUNCTION batch(tried) RETURNS text LANGUAGE sql RETURN
			CASE (\$1).win WHEN 'session' THEN format('(SELECT min(ts) AS since, k, %s FROM facts JOIN session USING (id) GROUP BY number, k)', (\$1).list)
			ELSE format('wmstream.%I', 'public.' || (\$1).name) END});
	return;
}

sub make_judge
{
	$node->safe_psql($db, q{
		-- equal, but for the last digits of numbers: states that are combined were added in another order
		CREATE FUNCTION same(a text, b text) RETURNS bool LANGUAGE sql AS $$
			SELECT a IS NOT DISTINCT FROM b OR
				  (SELECT regexp_replace(a, n, '#', 'g') = regexp_replace(b, n, '#', 'g') AND
						  (SELECT coalesce(bool_and(abs(x[1]::numeric - y[1]::numeric) <= 1e-9 * greatest(1, abs(x[1]::numeric))), false)
						   FROM ROWS FROM (regexp_matches(a, n, 'g'), regexp_matches(b, n, 'g')) v(x, y))
				   FROM (VALUES ('-?\d+\.?\d*(?:e[-+]?\d+)?')) v(n))
		$$;
		CREATE TABLE verdicts (run text, moment text, name text, call int, groups bigint, shown bigint, wrong bigint);
		CREATE FUNCTION judge(run text, moment text, t tried, result text) RETURNS void LANGUAGE plpgsql
			SET enable_sort = off SET enable_mergejoin = off SET enable_nestloop = off SET work_mem = '256MB' SET max_parallel_workers_per_gather = 0 AS $$
		BEGIN
			EXECUTE format(
				'INSERT INTO verdicts SELECT $1, $2, $3, v.* FROM (SELECT count(*) AS groups, %s FROM %s AS s FULL JOIN %s AS b USING (since, k)) x, LATERAL (VALUES %s) v',
				(SELECT string_agg(format('count(s.c%1$s) AS v%1$s, count(*) FILTER (WHERE s.since IS NULL OR b.since IS NULL OR NOT same(s.c%1$s::text, b.c%1$s::text)) AS w%1$s', id), ', ') FROM unnest(t.ids) id),
				result, batch(t), (SELECT string_agg(format('(%1$s, x.groups, x.v%1$s, x.w%1$s)', id), ', ') FROM unnest(t.ids) id)) USING run, moment, t.name;
		END $$});
	return;
}

# Open windows, state that was written down and read back, and finished windows of all calls.
sub whole_run
{
	my ($run) = @_;
	my $explained = q{SELECT coalesce(sum(n), 0) FROM tried, LATERAL (SELECT count(*) FILTER (WHERE line ~ ': state kept') FROM wmstream.explain(definition(tried)) line) e(n)};

	is_sql($node, $db, $explained, $run eq 'states' ? $node->safe_psql($db, 'SELECT sum(storable) FROM tried') : 0,
		"$run: states are kept of as many calls as can be");
	$node->safe_psql($db, 'SELECT wmstream.create_stream(name, definition(tried)) FROM tried');
	$node->safe_psql($db, 'CALL fill(1, 4)');
	all_wait("$run: the first rows");
	$node->safe_psql($db, 'SELECT wmstream.pause(stream) FROM wmstream.streams');
	polls($node, $db, q{SELECT bool_and(status = 'paused') FROM wmstream.streams}, "$run: the state leaves memory");
	$node->safe_psql($db, 'SELECT wmstream.resume(stream) FROM wmstream.streams');
	$node->safe_psql($db, 'CALL fill(5, 12)');
	all_wait("$run: ... and is read back");
	# Rows go into old pages where they fit; only now is the heap in the order of arrival. Sessions are islands between gaps.
	$node->safe_psql($db, qq{
		CLUSTER facts USING facts_pkey;
		INSERT INTO session SELECT id, count(*) FILTER (WHERE first) OVER (PARTITION BY k ORDER BY ts)
		FROM  (SELECT id, k, ts, (ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= '$gap') IS NOT TRUE AS first FROM facts) f ORDER BY id});
	$node->safe_psql($db, qq{SELECT judge('$run', 'open', tried, format('wmstream.live(NULL::%I)', name)) FROM tried});
	$node->safe_psql($db, q{SELECT wmstream.advance_watermark(stream, '2024-06-01 00:00+00') FROM wmstream.streams});
	all_wait("$run: all windows close");
	$node->safe_psql($db, qq{SELECT judge('$run', 'closed', tried, quote_ident(name)) FROM tried});
	is_right($run);
	is_sql($node, $db, 'SELECT sum(late_rows), sum(no_time_rows), sum(state_rows) FROM wmstream.stat_streams', '0|0|0', "$run: nothing was late, nothing is left");
	$node->safe_psql($db, 'SELECT wmstream.drop_stream(stream, true) FROM wmstream.streams; TRUNCATE facts RESTART IDENTITY; TRUNCATE session');
	return;
}

sub all_wait
{
	my ($what) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($db, q{SELECT wmstream.wait(stream, '60 s') FROM wmstream.streams});
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($stderr, '', $what);
}

sub is_right
{
	my ($run) = @_;
	my $wrong = qq{SELECT moment || ', ' || name || ': ' || c.call || ' in ' || wrong || ' of ' || groups || ' groups' FROM verdicts v JOIN calls c ON c.id = v.call WHERE run = '$run' AND wrong > 0 ORDER BY 1};
	my $unseen = qq{SELECT aggregate FROM (SELECT aggregate FROM calls EXCEPT
		SELECT aggregate FROM verdicts v JOIN calls c ON c.id = v.call WHERE run = '$run' AND moment = 'closed' AND name LIKE 'tumbling%' AND form = 'plain' AND shown > 2) u ORDER BY 1};
	my $short = qq{SELECT count(*) FROM tried, unnest(ids) id, unnest(ARRAY['open', 'closed']) m
		WHERE NOT EXISTS (SELECT FROM verdicts v WHERE run = '$run' AND v.name = tried.name AND v.call = id AND v.moment = m AND groups >= 6)};
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is_sql($node, $db, $wrong, '', "$run: every call gives what the batch query gives");
	is_sql($node, $db, $unseen, '', "$run: every aggregate has shown values");
	return is_sql($node, $db, $short, '0', "$run: every call was judged, with open and with finished windows");
}
