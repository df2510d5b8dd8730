-- open_windows() and live(): what is not finished yet, and all together, in each mode.
\getenv abs_srcdir PG_ABS_SRCDIR
\set oracle :abs_srcdir '/test/lib/oracle.sql'
\i :oracle
CREATE EXTENSION wmstream;
SET client_min_messages = warning;
CREATE TABLE sale (ts timestamptz, region text, amount numeric);

-- append: a window is in one of the two places.  The result may have other columns than the stream, and dropped ones.
CREATE TABLE hourly (gone int, note text DEFAULT 'written', total numeric, hour timestamptz, region text);
ALTER TABLE hourly DROP COLUMN gone;
SELECT wmstream.create_stream('hourly', $$
  SELECT lower(w) AS hour, region, sum(amount) AS total FROM sale, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w, region HAVING sum(amount) > 1
$$);
-- nothing yet
SELECT * FROM wmstream.open_windows(NULL::hourly);
SELECT * FROM wmstream.live(NULL::hourly);
INSERT INTO sale VALUES ('2024-01-01 10:00+00', 'n', 5), ('2024-01-01 10:10+00', NULL, 2.50), ('2024-01-01 10:20+00', 's', 1);
SELECT wmstream.wait('hourly');
SELECT * FROM wmstream.open_windows(NULL::hourly) ORDER BY hour, region;
TABLE hourly;
INSERT INTO sale VALUES ('2024-01-01 10:59+00', 's', 1), ('2024-01-01 12:00+00', 'n', 7);
SELECT wmstream.wait('hourly');
SELECT * FROM wmstream.open_windows(NULL::hourly) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::hourly) ORDER BY hour, region;
-- as part of larger queries; a row that was deleted is gone
DELETE FROM hourly WHERE region = 's';
SELECT date_trunc('day', hour) AS day, sum(total), count(note) FROM wmstream.live(NULL::hourly) GROUP BY 1;
SELECT h.hour, l.total FROM hourly AS h JOIN LATERAL (SELECT sum(total) AS total FROM wmstream.live(h) WHERE hour = h.hour) AS l ON true ORDER BY 1, 2;

-- update: open groups as they stand, each once, whatever the result has of them
SELECT wmstream.create_stream('running', $$
  SELECT lower(w) AS hour, region, sum(amount) AS total FROM sale, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w, region HAVING sum(amount) < 100
$$, output_mode => 'update');
SELECT wmstream.create_stream('rarely', $$
  SELECT lower(w) AS hour, region, sum(amount) AS total FROM sale, wmstream.window(ts, '1 hour') AS w
  WHERE wmstream.watermark(ts, '0') GROUP BY w, region HAVING sum(amount) < 100
$$, output_mode => 'update', trigger_interval => '1 day');
SELECT wmstream.create_stream('by_hour', $$
  SELECT lower(w) AS hour, max(amount) AS most FROM sale, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$, output_mode => 'update');
SELECT wmstream.create_stream('everything', 'SELECT count(*) AS n, sum(amount) AS total FROM sale WHERE wmstream.watermark(ts, ''0'')', output_mode => 'update');
SELECT wmstream.create_stream('by_region', 'SELECT region, sum(amount) AS total FROM sale GROUP BY region', output_mode => 'update');
INSERT INTO sale VALUES ('2024-01-01 13:00+00', 'n', 10), ('2024-01-01 13:00+00', NULL, 20), ('2024-01-01 13:00+00', 's', 30);
SELECT wmstream.wait(stream) FROM wmstream.streams;
-- the lazy one is fed and has not fired: its result is made by hand here
INSERT INTO rarely VALUES ('2024-01-01 13:00+00', 'n', 1), ('2024-01-01 13:00+00', NULL, 2), ('2024-01-01 09:00+00', 'n', 3);
TABLE running ORDER BY hour, region;
SELECT * FROM wmstream.open_windows(NULL::running) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::running) ORDER BY hour, region;
SELECT * FROM wmstream.open_windows(NULL::rarely) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::rarely) ORDER BY hour, region;
TABLE everything;
SELECT * FROM wmstream.live(NULL::everything);
SELECT * FROM wmstream.live(NULL::by_region) ORDER BY region;
INSERT INTO sale VALUES ('2024-01-01 13:10+00', 'n', 1000), ('2024-01-01 13:20+00', 's', 5);
SELECT wmstream.wait(stream) FROM wmstream.streams;
-- what HAVING takes out is not there
SELECT * FROM wmstream.live(NULL::running) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::rarely) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::everything);
INSERT INTO sale VALUES ('2024-01-01 15:00+00', 'w', 1);
SELECT wmstream.wait(stream) FROM wmstream.streams;
-- closed windows are the result's alone
SELECT * FROM wmstream.open_windows(NULL::running) ORDER BY hour, region;
SELECT * FROM wmstream.live(NULL::running) ORDER BY hour, region;

-- complete: the result is everything
SELECT wmstream.create_stream('best', 'SELECT region, sum(amount) AS total FROM sale GROUP BY region ORDER BY total DESC LIMIT 2', output_mode => 'complete');
INSERT INTO sale VALUES ('2024-01-01 15:10+00', 'a', 1), ('2024-01-01 15:10+00', 'b', 2), ('2024-01-01 15:10+00', 'c', 3);
SELECT wmstream.wait('best');
SELECT * FROM wmstream.live(NULL::best) ORDER BY total;
SELECT * FROM wmstream.open_windows(NULL::best) ORDER BY total;
SELECT wmstream.create_stream('nothing', 'SELECT count(*) AS n FROM sale WHERE region = ''nowhere''', output_mode => 'complete');
SELECT wmstream.wait('nothing');
SELECT * FROM wmstream.live(NULL::nothing);
SELECT * FROM wmstream.open_windows(NULL::nothing);

-- all kinds of windows, operators on top of each other, rows of several operators in one result
CREATE TABLE event (ts timestamptz, k int, v int);
SELECT wmstream.create_stream('sliding', $$
  SELECT lower(w) AS since, k, sum(v) AS v FROM event, wmstream.window(ts, '30 minutes', '10 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w, k
$$);
SELECT wmstream.create_stream('cumulating', $$
  SELECT lower(w) AS since, upper(w) AS until, k, sum(v) AS v FROM event, wmstream.cumulate_window(ts, '10 minutes', '30 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w, k
$$);
SELECT wmstream.create_stream('medians', $$
  SELECT lower(w) AS since, percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS median, count(DISTINCT k) AS ks FROM event, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w
$$);
SELECT wmstream.create_stream('top_two', $$
  SELECT * FROM (SELECT lower(w) AS since, k, v, row_number() OVER (PARTITION BY w ORDER BY v DESC, k) AS place FROM event, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes')) AS ranked
  WHERE place <= 2
$$);
SELECT wmstream.create_stream('chained', $$
  SELECT lower(w2) AS since, max(n) AS most FROM (SELECT w, k, count(*) AS n FROM event, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w, k) AS small,
  wmstream.window(w, '1 hour') AS w2 GROUP BY w2
$$);
SELECT wmstream.create_stream('several', $$
  SELECT lower(w) AS since, '10 minutes' AS what, count(*) AS n FROM event, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w
  UNION ALL
  SELECT lower(w), '1 hour', count(*) FROM event, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '5 minutes') GROUP BY w
$$);
SELECT wmstream.create_stream('copied', 'SELECT ts, v FROM event WHERE wmstream.watermark(ts, ''5 minutes'') AND v > 100');
SELECT wmstream.create_stream('firsts', 'SELECT DISTINCT ON (ts, k) ts, k, v FROM event WHERE wmstream.watermark(ts, ''5 minutes'')');
INSERT INTO event SELECT timestamptz '2024-01-01 10:00+00' + i * interval '37 seconds', i % 3, i * 7 % 101 FROM generate_series(0, 119) i;
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM oracle.compare('sliding', $$since + interval '30 minutes' <= $1$$);
SELECT * FROM oracle.compare('cumulating', $$until <= $1$$);
SELECT * FROM oracle.compare('medians', $$since + interval '10 minutes' <= $1$$);
SELECT * FROM oracle.compare('top_two', $$since + interval '10 minutes' <= $1$$);
SELECT * FROM oracle.compare('several', $$since + what::interval <= $1$$);
-- only windows of the top are shown: small ones that are open have given nothing to the wide ones yet
SELECT count(*) FROM chained;
SELECT * FROM wmstream.live(NULL::chained);
-- these hold nothing back
SELECT count(*) FROM wmstream.open_windows(NULL::copied);
SELECT count(*) FROM wmstream.open_windows(NULL::firsts);
SELECT * FROM oracle.compare('firsts');

-- allowed lateness: an emitted window is not open, a session that grew is
SELECT wmstream.create_stream('patient', $$
  SELECT lower(w) AS since, count(*) AS n FROM event, wmstream.window(ts, '10 minutes') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$, allowed_lateness => '1 hour');
SELECT wmstream.create_stream('visits', $$
  SELECT k, lower(s) AS since, upper(s) AS until, count(*) AS n FROM event, wmstream.session_window(ts, '5 minutes') AS s WHERE wmstream.watermark(ts, '0') GROUP BY s, k
$$, allowed_lateness => '1 hour');
INSERT INTO event VALUES ('2024-01-02 10:00+00', 1, 1), ('2024-01-02 10:02+00', 1, 1), ('2024-01-02 10:12+00', 2, 1);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM wmstream.open_windows(NULL::patient);
SELECT * FROM wmstream.live(NULL::patient) ORDER BY since;
SELECT * FROM wmstream.live(NULL::visits) ORDER BY k, since;
INSERT INTO event VALUES ('2024-01-02 10:05+00', 1, 1), ('2024-01-02 10:09+00', 1, 1);
SELECT wmstream.wait(stream) FROM wmstream.streams;
SELECT * FROM wmstream.open_windows(NULL::patient);
SELECT * FROM wmstream.live(NULL::patient) ORDER BY since;
TABLE visits ORDER BY k, since;
SELECT * FROM wmstream.open_windows(NULL::visits) ORDER BY k, since;
SELECT * FROM wmstream.live(NULL::visits) ORDER BY k, since;

-- a stream that stands still has no open windows in memory
SELECT wmstream.pause('hourly');
SELECT * FROM wmstream.live(NULL::hourly) ORDER BY hour, region;
SELECT wmstream.resume('hourly');
SELECT wmstream.wait('hourly');
SELECT * FROM wmstream.live(NULL::hourly) ORDER BY hour, region;

-- a result that has been altered, by those who look before the worker does
BEGIN;
ALTER TABLE running ALTER total TYPE text;
SELECT count(*) FROM wmstream.open_windows(NULL::running);
\echo :SQLSTATE
ROLLBACK;
BEGIN;
ALTER TABLE running RENAME region TO place;
SELECT count(*) FROM wmstream.live(NULL::running);
\echo :SQLSTATE
ROLLBACK;
-- who may
SELECT * FROM wmstream.live(NULL::sale);
SELECT * FROM wmstream.open_windows(NULL::int);
CREATE ROLE live_reader;
SET ROLE live_reader;
SELECT * FROM wmstream.live(NULL::hourly);
RESET ROLE;
GRANT SELECT ON hourly, running, by_hour TO live_reader;
SET ROLE live_reader;
SELECT count(*) FROM wmstream.live(NULL::hourly);
SELECT count(*) FROM wmstream.open_windows(NULL::running);
-- the caller's search_path has no part in it
RESET ROLE;
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.differs(timestamptz, timestamptz) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR hostile.= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = hostile.differs);
GRANT USAGE ON SCHEMA hostile TO live_reader;
SET ROLE live_reader;
SET search_path = hostile, pg_catalog, public;
SELECT count(*), count(DISTINCT hour::text) FROM wmstream.live(NULL::by_hour);
SELECT count(*), count(DISTINCT (hour::text, region)) FROM wmstream.live(NULL::running);
RESET search_path;
RESET ROLE;
ALTER TABLE running ENABLE ROW LEVEL SECURITY;
SET ROLE live_reader;
SELECT count(*) FROM wmstream.live(NULL::running);
RESET ROLE;
ALTER TABLE running DISABLE ROW LEVEL SECURITY;

-- Nor have the settings of the session, the role or the database connection: what is shown is what the stream will write.
CREATE ROLE live_owner;
CREATE TABLE reading (ts timestamptz, k text, f float8, b bytea);
CREATE TABLE label (k text, said text);
INSERT INTO label VALUES ('nulls', 'It''s 5 o''clock IST');
ALTER TABLE label ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_of_it ON label TO live_owner USING (true);
CREATE FUNCTION said(text) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1 || 'a\\b' || (SELECT count(*) FROM (VALUES (NULL::int)) v(x) WHERE x = NULL); END $$;
GRANT SELECT ON reading, label TO live_owner;
CREATE TABLE written (hour timestamptz, f text, b text, words tsvector, list text[], name text, said text, abbreviated timestamptz, x text, label text);
ALTER TABLE written OWNER TO live_owner;
SELECT wmstream.create_stream('written', $$
  SELECT lower(w) AS hour, sum(f)::text AS f, string_agg(b, '')::text AS b, to_tsvector(max(r.k)) AS words, ('{' || max(NULLIF(r.k, 'nulls')) || ',NULL}')::text[] AS list,
    quote_ident(max(r.k)) AS name, public.said(max(r.k)) AS said, ('2024-01-01 05:00 ' || max('IST'))::timestamptz AS abbreviated,
    xmlelement(name x, max(b::text)::bytea)::text AS x, (SELECT max(l.said) FROM label l WHERE l.k = max(r.k)) AS label
  FROM reading r, wmstream.window(ts, '1 hour') AS w WHERE wmstream.watermark(ts, '0') GROUP BY w
$$);
INSERT INTO reading VALUES ('2024-01-01 10:00+00', 'nulls', 0.1, '\x0102ff'), ('2024-01-01 10:00+00', 'null', 0.2, '\x5c');
SELECT wmstream.wait('written');
GRANT SELECT ON written TO live_reader;
BEGIN;
SET LOCAL SESSION AUTHORIZATION live_reader;
SET LOCAL extra_float_digits = -10;
SET LOCAL bytea_output = escape;
SET LOCAL default_text_search_config = simple;
SET LOCAL array_nulls = off;
SET LOCAL quote_all_identifiers = on;
SET LOCAL escape_string_warning = off;
SET LOCAL standard_conforming_strings = off;
SET LOCAL backslash_quote = off;
SET LOCAL transform_null_equals = on;
SET LOCAL timezone_abbreviations = 'India';
SET LOCAL xmlbinary = hex;
SET LOCAL xmloption = document;
SET LOCAL row_security = off;
CREATE TEMP TABLE shown AS SELECT * FROM wmstream.live(NULL::written);
COMMIT;
-- what a role has
ALTER ROLE live_reader LOGIN;
ALTER ROLE live_reader SET extra_float_digits = -10;
ALTER ROLE live_reader SET bytea_output = escape;
SELECT current_user AS me \gset
CREATE TABLE kept AS TABLE shown;
\c - live_reader
SELECT f, b, name FROM wmstream.live(NULL::written);
\c - :me
INSERT INTO reading VALUES ('2024-01-01 12:00+00');
SELECT wmstream.wait('written');
SELECT f, b, words, list, name, said, abbreviated AT TIME ZONE 'UTC' AS abbreviated, x, label FROM written;
SELECT * FROM oracle.differences('TABLE written', 'TABLE kept');
DROP OWNED BY live_reader, live_owner CASCADE;
DROP ROLE live_reader, live_owner;
