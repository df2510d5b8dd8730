-- The oracle of the regression topics: what a stream wrote, held against what its own definition says of the
-- source as it is now, run by hand.  A topic reads this file first:
--
--   \getenv abs_srcdir PG_ABS_SRCDIR
--   \set oracle :abs_srcdir '/test/lib/oracle.sql'
--   \i :oracle

\set ECHO none
-- pg_regress has others
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
CREATE SCHEMA oracle;

/*
 * Waits for the stream and compares, as multisets, both ways:
 *
 *   result  with the rows of the definition for which closed holds ($1 is the stream's watermark);
 *   live    with all rows of the definition.
 *
 * columns: what is compared, where a column has no equality or floats need rounding.
 * Right only as long as no row was left out as late.
 */
CREATE FUNCTION oracle.compare(stream regclass, closed text DEFAULT 'true', columns text DEFAULT NULL,
	OUT result bigint, OUT missing bigint, OUT surplus bigint,
	OUT live bigint, OUT live_missing bigint, OUT live_surplus bigint)
LANGUAGE plpgsql AS $do$
DECLARE
	definition	text;
	w			timestamptz;
	batch		text;
	shown		text;
	shown_live	text;
BEGIN
	PERFORM wmstream.wait(stream);
	SELECT rtrim(s.definition, ';'), f.watermark INTO definition, w
	FROM   wmstream.streams s JOIN wmstream.stat_streams f USING (stream) WHERE s.stream = compare.stream;
	IF columns IS NULL THEN
		SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO columns
		FROM   wmstream.list_streams() l JOIN pg_attribute a ON a.attrelid = l.view AND a.attnum > 0
		WHERE  l.stream = compare.stream;
	END IF;
	batch := format('SELECT %s FROM (%s) batch WHERE ', columns, definition);
	shown := format('SELECT %s FROM %s', columns, stream);
	shown_live := format('SELECT %s FROM wmstream.live(NULL::%s)', columns, stream);
	EXECUTE format($$
		WITH batch AS MATERIALIZED (%s %s), alle AS MATERIALIZED (%s true), shown AS MATERIALIZED (%s), live AS MATERIALIZED (%s)
		SELECT (SELECT count(*) FROM shown),
			   (SELECT count(*) FROM (TABLE batch EXCEPT ALL TABLE shown) m),
			   (SELECT count(*) FROM (TABLE shown EXCEPT ALL TABLE batch) s),
			   (SELECT count(*) FROM live),
			   (SELECT count(*) FROM (TABLE alle EXCEPT ALL TABLE live) m),
			   (SELECT count(*) FROM (TABLE live EXCEPT ALL TABLE alle) s)
		$$, batch, coalesce(closed, 'true'), batch, shown, shown_live)
	INTO result, missing, surplus, live, live_missing, live_surplus USING coalesce(w, '-infinity');
END
$do$;

/* Two queries as multisets: rows of either that the other has not. */
CREATE FUNCTION oracle.differences(a text, b text, OUT rows bigint, OUT only_first bigint, OUT only_second bigint)
LANGUAGE plpgsql AS $do$
BEGIN
	EXECUTE format($$
		WITH a AS MATERIALIZED (%s), b AS MATERIALIZED (%s)
		SELECT (SELECT count(*) FROM a),
			   (SELECT count(*) FROM (TABLE a EXCEPT ALL TABLE b) m),
			   (SELECT count(*) FROM (TABLE b EXCEPT ALL TABLE a) s)
		$$, a, b) INTO rows, only_first, only_second;
END
$do$;

/*
 * The stream's status when it has done what it can: everything that committed before is in its result, or it does not run.  A wait
 * that was refused because of a stream below says nothing of this one yet.
 */
CREATE FUNCTION oracle.status(stream regclass) RETURNS text
LANGUAGE plpgsql AS $do$
DECLARE
	now_is text;
	waited bool;
BEGIN
	FOR i IN 1..1000 LOOP
		waited := true;
		BEGIN
			PERFORM wmstream.wait(stream, '20 s');
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			waited := false;
		END;
		SELECT s.status INTO now_is FROM wmstream.streams s WHERE s.stream = status.stream;
		EXIT WHEN now_is NOT IN ('starting', 'blocked') AND (waited OR now_is <> 'running');
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN now_is;
END
$do$;
\set ECHO all
