/* wmstream--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION wmstream" to load this file. \quit

-- A member of the extension, so that it leaves with it.  It must not be there before: what others put into it is not ours.
CREATE SCHEMA wmstream;
COMMENT ON SCHEMA wmstream IS 'Functions and views of wmstream, and the definitions of its streams';
GRANT USAGE ON SCHEMA wmstream TO PUBLIC;

---------------------------------------------------------------- tables

-- The library reads these columns by number.  Spans are microseconds; NULL: off, or as the definition says.
CREATE TABLE wmstream.stream (
	stream				regclass NOT NULL,
	view				regclass NOT NULL,
	late_table			regclass,
	output_mode			text NOT NULL,
	on_change			text NOT NULL,
	on_error			text NOT NULL,
	close_when_idle		bool NOT NULL,
	watermark_policy	text NOT NULL,
	trigger_us			int8 NOT NULL,
	lateness_us			int8 NOT NULL,
	refined				bool NOT NULL,
	idle_us				int8,
	max_future_us		int8,
	delay_us			int8,
	made_result			bool NOT NULL,
	has_key				bool NOT NULL,
	status				text NOT NULL,
	reason				text,
	since				timestamptz NOT NULL,
	timezone			text NOT NULL,
	datestyle			text NOT NULL,
	intervalstyle		text NOT NULL,
	command				int8 NOT NULL,
	advance_to			timestamptz,
	fill				text NOT NULL,
	fill_since			timestamptz,
	fill_began			timestamptz,
	filled				text,
	sysid				int8 NOT NULL,
	dboid				oid NOT NULL,
	begins_after		pg_snapshot,
	PRIMARY KEY (stream)
);
COMMENT ON TABLE wmstream.stream IS 'Definitions of the streams of this database. Change it only through the functions of wmstream.';
REVOKE ALL ON TABLE wmstream.stream FROM PUBLIC;

-- Definitions travel with a dump.  State and positions do not: they mean nothing in another place.
SELECT pg_catalog.pg_extension_config_dump('wmstream.stream', '');

-- Tables whose rows are read by transaction and not from the WAL.
CREATE TABLE wmstream.queue (
	queue	regclass NOT NULL,
	trim	bool NOT NULL,
	trim_stopped	text,
	PRIMARY KEY (queue)
);
COMMENT ON TABLE wmstream.queue IS 'Queue tables of this database. Change it only through the functions of wmstream.';
REVOKE ALL ON TABLE wmstream.queue FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('wmstream.queue', '');

-- What had committed when, while a stream of queues stands still.
CREATE TABLE wmstream.tick (
	taken_at	timestamptz NOT NULL,
	lsn			pg_lsn NOT NULL,
	seen		pg_snapshot NOT NULL
);
COMMENT ON TABLE wmstream.tick IS 'Which transactions had ended when: for streams of queues that stand still. Never change it.';
REVOKE ALL ON TABLE wmstream.tick FROM PUBLIC;

-- Rows come at the new end and go at the old one all the time: vacuum it, and its TOAST table, early.
CREATE TABLE wmstream.state_log (
	stream	oid NOT NULL,
	seq		int8 NOT NULL,
	data	bytea NOT NULL,
	PRIMARY KEY (stream, seq)
) WITH (
	autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_scale_factor = 0.05,
	autovacuum_vacuum_insert_threshold = -1,
	autovacuum_analyze_threshold = 10000,
	toast.autovacuum_vacuum_threshold = 10000,
	toast.autovacuum_vacuum_scale_factor = 0.05,
	toast.autovacuum_vacuum_insert_threshold = -1
);
COMMENT ON TABLE wmstream.state_log IS 'State of the streams of this database, as a log that is cleaned from its old end. Never change it.';
REVOKE ALL ON TABLE wmstream.state_log FROM PUBLIC;

-- lz4 where the server was built with it, else no compression: pglz takes longer than all the rest of a batch.
ALTER TABLE wmstream.state_log ALTER COLUMN data SET STORAGE EXTERNAL;
DO LANGUAGE plpgsql $do$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_settings AS s
			   WHERE s.name OPERATOR(pg_catalog.=) 'default_toast_compression'
			   AND 'lz4' OPERATOR(pg_catalog.=) ANY (s.enumvals))
	THEN
		ALTER TABLE wmstream.state_log ALTER COLUMN data SET STORAGE EXTENDED;
		ALTER TABLE wmstream.state_log ALTER COLUMN data SET COMPRESSION lz4;
	END IF;
END
$do$;

---------------------------------------------------------------- watermark and windows: what stands in a definition

-- Not strict, so that a call is replaced by its body also where an argument can be NULL.
CREATE FUNCTION wmstream.watermark(event_time timestamptz, delay interval)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN true;
COMMENT ON FUNCTION wmstream.watermark(timestamptz, interval) IS 'declares the event time of a stream''s source and how late its rows may come; true in an ordinary query';

CREATE FUNCTION wmstream.watermark(event_time timestamp, delay interval)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN true;
COMMENT ON FUNCTION wmstream.watermark(timestamp, interval) IS 'declares the event time of a stream''s source and how late its rows may come; true in an ordinary query';

CREATE FUNCTION wmstream.window(t timestamptz, size interval)
RETURNS tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_window_tz'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.window(timestamptz, interval) IS 'the tumbling window of a time';

CREATE FUNCTION wmstream.window(t timestamp, size interval)
RETURNS tsrange
AS 'MODULE_PATHNAME', 'wms_sql_window_ts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.window(timestamp, interval) IS 'the tumbling window of a time';

CREATE FUNCTION wmstream.window(t tstzrange, size interval)
RETURNS tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_window_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.window(tstzrange, interval) IS 'the tumbling window that holds the end of a smaller window';

CREATE FUNCTION wmstream.window(t tsrange, size interval)
RETURNS tsrange
AS 'MODULE_PATHNAME', 'wms_sql_window_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.window(tsrange, interval) IS 'the tumbling window that holds the end of a smaller window';

CREATE FUNCTION wmstream.window(t timestamptz, size interval, slide interval, start_offset interval DEFAULT '0')
RETURNS SETOF tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_slide_tz'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.window(timestamptz, interval, interval, interval) IS 'the sliding windows of a time';

CREATE FUNCTION wmstream.window(t timestamp, size interval, slide interval, start_offset interval DEFAULT '0')
RETURNS SETOF tsrange
AS 'MODULE_PATHNAME', 'wms_sql_slide_ts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.window(timestamp, interval, interval, interval) IS 'the sliding windows of a time';

CREATE FUNCTION wmstream.window(t tstzrange, size interval, slide interval, start_offset interval DEFAULT '0')
RETURNS SETOF tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_slide_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.window(tstzrange, interval, interval, interval) IS 'the sliding windows that hold the end of a smaller window';

CREATE FUNCTION wmstream.window(t tsrange, size interval, slide interval, start_offset interval DEFAULT '0')
RETURNS SETOF tsrange
AS 'MODULE_PATHNAME', 'wms_sql_slide_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.window(tsrange, interval, interval, interval) IS 'the sliding windows that hold the end of a smaller window';

CREATE FUNCTION wmstream.cumulate_window(t timestamptz, step interval, max_size interval, start_offset interval DEFAULT '0')
RETURNS SETOF tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_cumulate_tz'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.cumulate_window(timestamptz, interval, interval, interval) IS 'the windows of a time that grow step by step from a common start up to max_size';

CREATE FUNCTION wmstream.cumulate_window(t timestamp, step interval, max_size interval, start_offset interval DEFAULT '0')
RETURNS SETOF tsrange
AS 'MODULE_PATHNAME', 'wms_sql_cumulate_ts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.cumulate_window(timestamp, interval, interval, interval) IS 'the windows of a time that grow step by step from a common start up to max_size';

CREATE FUNCTION wmstream.cumulate_window(t tstzrange, step interval, max_size interval, start_offset interval DEFAULT '0')
RETURNS SETOF tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_cumulate_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.cumulate_window(tstzrange, interval, interval, interval) IS 'the growing windows that hold the end of a smaller window';

CREATE FUNCTION wmstream.cumulate_window(t tsrange, step interval, max_size interval, start_offset interval DEFAULT '0')
RETURNS SETOF tsrange
AS 'MODULE_PATHNAME', 'wms_sql_cumulate_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;
COMMENT ON FUNCTION wmstream.cumulate_window(tsrange, interval, interval, interval) IS 'the growing windows that hold the end of a smaller window';

CREATE FUNCTION wmstream.session_window(t timestamptz, gap interval)
RETURNS tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_session_tz'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.session_window(timestamptz, interval) IS 'the session of a single time; a stream merges those of a key that touch or overlap';

CREATE FUNCTION wmstream.session_window(t timestamp, gap interval)
RETURNS tsrange
AS 'MODULE_PATHNAME', 'wms_sql_session_ts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.session_window(timestamp, interval) IS 'the session of a single time; a stream merges those of a key that touch or overlap';

CREATE FUNCTION wmstream.session_window(t tstzrange, gap interval)
RETURNS tstzrange
AS 'MODULE_PATHNAME', 'wms_sql_session_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.session_window(tstzrange, interval) IS 'the session that begins with the end of a window';

CREATE FUNCTION wmstream.session_window(t tsrange, gap interval)
RETURNS tsrange
AS 'MODULE_PATHNAME', 'wms_sql_session_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION wmstream.session_window(tsrange, interval) IS 'the session that begins with the end of a window';

---------------------------------------------------------------- what a plan is made of

-- Neither is parallel safe: combined with a state that has seen no row, it forgets.
CREATE FUNCTION wmstream.latest_value(state anyelement, value anyelement)
RETURNS anyelement
AS 'MODULE_PATHNAME', 'wms_sql_latest'
LANGUAGE C IMMUTABLE;
COMMENT ON FUNCTION wmstream.latest_value(anyelement, anyelement) IS 'internal: transition function of latest()';

CREATE AGGREGATE wmstream.latest(value anyelement) (
	SFUNC = wmstream.latest_value,
	STYPE = anyelement,
	COMBINEFUNC = wmstream.latest_value
);
COMMENT ON AGGREGATE wmstream.latest(anyelement) IS 'internal: the value in the row that came last, for columns that a primary key among the group keys determines';

---------------------------------------------------------------- the life of a stream

CREATE FUNCTION wmstream.create_stream(
	result text,
	query text,
	output_mode text DEFAULT 'append',
	trigger_interval interval DEFAULT '0',
	allowed_lateness interval DEFAULT '0',
	late_table text DEFAULT NULL,
	idle_timeout interval DEFAULT NULL,
	close_when_idle bool DEFAULT false,
	max_future interval DEFAULT NULL,
	watermark_policy text DEFAULT 'min',
	on_change text DEFAULT 'ignore',
	on_error text DEFAULT 'stop',
	start_from text DEFAULT 'now',
	if_not_exists bool DEFAULT false)
RETURNS regclass
AS 'MODULE_PATHNAME', 'wms_sql_create_stream'
LANGUAGE C VOLATILE;
COMMENT ON FUNCTION wmstream.create_stream(text, text, text, interval, interval, text, interval, bool, interval, text, text, text, text, bool) IS 'makes a stream: a result table that is kept up to date by a query over what is inserted';
REVOKE EXECUTE ON FUNCTION wmstream.create_stream(text, text, text, interval, interval, text, interval, bool, interval, text, text, text, text, bool) FROM PUBLIC;

CREATE FUNCTION wmstream.alter_stream(stream regclass, option text, value text)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_alter_stream'
LANGUAGE C VOLATILE;
COMMENT ON FUNCTION wmstream.alter_stream(regclass, text, text) IS 'changes an option of a stream; NULL sets its default';

CREATE FUNCTION wmstream.drop_stream(stream regclass, drop_results bool DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_drop_stream'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.drop_stream(regclass, bool) IS 'ends a stream; keeps its result as a plain table unless told otherwise';

CREATE FUNCTION wmstream.pause(stream regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_pause'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.pause(regclass) IS 'stops a stream at its position';

CREATE FUNCTION wmstream.resume(stream regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_resume'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.resume(regclass) IS 'lets a paused or failed stream go on from its position';

CREATE FUNCTION wmstream.resync(stream regclass, since timestamptz DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_resync'
LANGUAGE C VOLATILE;
COMMENT ON FUNCTION wmstream.resync(regclass, timestamptz) IS 'rebuilds state and results of a stream from its sources; results before since stay';

CREATE FUNCTION wmstream.advance_watermark(stream regclass, upto timestamptz)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_advance_watermark'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.advance_watermark(regclass, timestamptz) IS 'moves the watermark of a stream forward by hand';

CREATE FUNCTION wmstream.wait(stream regclass, timeout interval DEFAULT '30 s')
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_wait'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.wait(regclass, interval) IS 'waits until all that was committed before the call is in the result of a stream';

---------------------------------------------------------------- queue tables

CREATE FUNCTION wmstream.create_queue("table" regclass, "trim" bool DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_create_queue'
LANGUAGE C VOLATILE;
COMMENT ON FUNCTION wmstream.create_queue(regclass, bool) IS 'makes a table a queue: streams read its rows by transaction, with any wal_level';

CREATE FUNCTION wmstream.drop_queue("table" regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_drop_queue'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.drop_queue(regclass) IS 'makes a queue an ordinary table again';

CREATE FUNCTION wmstream.set_trim("table" regclass, "trim" bool)
RETURNS void
AS 'MODULE_PATHNAME', 'wms_sql_set_trim'
LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION wmstream.set_trim(regclass, bool) IS 'says whether rows of a queue that all its streams have had are deleted, also again after that was stopped';

-- Said to be immutable, or it could not stand in a generated column.  It is, within the transaction that writes the row.
CREATE FUNCTION wmstream.row_xid()
RETURNS xid8
AS 'MODULE_PATHNAME', 'wms_sql_row_xid'
LANGUAGE C IMMUTABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION wmstream.row_xid() IS 'the transaction that writes a row: what column wm_xid of a queue is generated by';

CREATE VIEW wmstream.queues AS
SELECT q.queue, q.trim, q.trim_stopped
FROM wmstream.queue AS q;
COMMENT ON VIEW wmstream.queues IS 'the queue tables of this database, whether rows that all their streams have had are deleted, and why that has stopped';
GRANT SELECT ON wmstream.queues TO PUBLIC;

---------------------------------------------------------------- looking at a stream

CREATE FUNCTION wmstream.explain(query text)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'wms_sql_explain_query'
LANGUAGE C VOLATILE STRICT ROWS 20;
COMMENT ON FUNCTION wmstream.explain(text) IS 'how a query would run as a stream: operators, state and what bounds it';

CREATE FUNCTION wmstream.explain(stream regclass)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'wms_sql_explain_stream'
LANGUAGE C VOLATILE STRICT ROWS 20;
COMMENT ON FUNCTION wmstream.explain(regclass) IS 'how a stream runs: operators, state and what bounds it';

-- The argument is NULL and only names the result: NULL::result.
CREATE FUNCTION wmstream.open_windows(result anyelement)
RETURNS SETOF anyelement
AS 'MODULE_PATHNAME', 'wms_sql_open_windows'
LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION wmstream.open_windows(anyelement) IS 'the windows of a stream that are not emitted yet, as they stand now; call it with NULL::result_table';

CREATE FUNCTION wmstream.live(result anyelement)
RETURNS SETOF anyelement
AS 'MODULE_PATHNAME', 'wms_sql_live'
LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION wmstream.live(anyelement) IS 'the result of a stream together with its open windows, each window once; call it with NULL::result_table';

---------------------------------------------------------------- views

CREATE FUNCTION wmstream.list_streams(
	OUT stream regclass,
	OUT view regclass,
	OUT output_mode text,
	OUT trigger_interval interval,
	OUT allowed_lateness interval,
	OUT late_table regclass,
	OUT idle_timeout interval,
	OUT close_when_idle bool,
	OUT max_future interval,
	OUT watermark_policy text,
	OUT on_change text,
	OUT on_error text,
	OUT delay interval,
	OUT owner regrole,
	OUT status text,
	OUT reason text,
	OUT since timestamptz,
	OUT "position" pg_lsn,
	OUT retained_wal_bytes int8,
	OUT slot name,
	OUT catalog_xmin_age int4)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'wms_sql_streams'
LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION wmstream.list_streams() IS 'internal: rows of the view streams';

CREATE FUNCTION wmstream.definition_text(view regclass)
RETURNS text
AS 'MODULE_PATHNAME', 'wms_sql_definition_text'
LANGUAGE C STABLE PARALLEL UNSAFE STRICT;
COMMENT ON FUNCTION wmstream.definition_text(regclass) IS 'internal: a definition as text, NULL if it is gone';

CREATE VIEW wmstream.streams AS
SELECT
	s.stream,
	wmstream.definition_text(s.view) AS definition,
	s.output_mode,
	s.trigger_interval,
	s.allowed_lateness,
	s.late_table,
	s.idle_timeout,
	s.close_when_idle,
	s.max_future,
	s.watermark_policy,
	s.on_change,
	s.on_error,
	s.delay,
	s.owner,
	s.status,
	s.reason,
	s.since,
	s."position",
	s.retained_wal_bytes,
	s.slot,
	s.catalog_xmin_age
FROM wmstream.list_streams() AS s;
COMMENT ON VIEW wmstream.streams IS 'the streams of this database: definition, options, status, and what they hold';
GRANT SELECT ON wmstream.streams TO PUBLIC;

CREATE FUNCTION wmstream.list_stream_figures(
	OUT stream regclass,
	OUT batches int8,
	OUT input_rows int8,
	OUT rows_per_second float8,
	OUT late_rows int8,
	OUT no_time_rows int8,
	OUT future_rows int8,
	OUT bad_gap_rows int8,
	OUT changed_rows int8,
	OUT error_rows int8,
	OUT output_rows int8,
	OUT watermark timestamptz,
	OUT max_event_time timestamptz,
	OUT next_close timestamptz,
	OUT lag_bytes int8,
	OUT lag_seconds float8,
	OUT state_rows int8,
	OUT state_bytes int8,
	OUT log_bytes int8,
	OUT feed_ms float8,
	OUT fire_ms float8,
	OUT sink_ms float8,
	OUT commit_ms float8,
	OUT last_batch_at timestamptz,
	OUT last_error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'wms_sql_stat_streams'
LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION wmstream.list_stream_figures() IS 'internal: rows of the view stat_streams';

CREATE VIEW wmstream.stat_streams AS
SELECT
	s.stream,
	s.batches,
	s.input_rows,
	s.rows_per_second,
	s.late_rows,
	s.no_time_rows,
	s.future_rows,
	s.bad_gap_rows,
	s.changed_rows,
	s.error_rows,
	s.output_rows,
	s.watermark,
	s.max_event_time,
	s.next_close,
	s.lag_bytes,
	s.lag_seconds,
	s.state_rows,
	s.state_bytes,
	s.log_bytes,
	s.feed_ms,
	s.fire_ms,
	s.sink_ms,
	s.commit_ms,
	s.last_batch_at,
	s.last_error
FROM wmstream.list_stream_figures() AS s;
COMMENT ON VIEW wmstream.stat_streams IS 'figures of the streams of this database; NULL where the caller may not see them or nobody knows them yet';
GRANT SELECT ON wmstream.stat_streams TO PUBLIC;

CREATE FUNCTION wmstream.list_source_figures(
	OUT stream regclass,
	OUT source regclass,
	OUT rows int8,
	OUT max_event_time timestamptz,
	OUT watermark timestamptz,
	OUT idle bool,
	OUT last_seen_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'wms_sql_stat_sources'
LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION wmstream.list_source_figures() IS 'internal: rows of the view stat_sources';

CREATE VIEW wmstream.stat_sources AS
SELECT
	s.stream,
	s.source,
	s.rows,
	s.max_event_time,
	s.watermark,
	s.idle,
	s.last_seen_at
FROM wmstream.list_source_figures() AS s;
COMMENT ON VIEW wmstream.stat_sources IS 'figures of each source of each stream; watermark is what the source alone would allow';
GRANT SELECT ON wmstream.stat_sources TO PUBLIC;

CREATE FUNCTION wmstream.list_operator_figures(
	OUT stream regclass,
	OUT operator int4,
	OUT kind text,
	OUT input_rows int8,
	OUT late_rows int8,
	OUT output_rows int8,
	OUT compared_rows int8,
	OUT watermark timestamptz,
	OUT windows int8,
	OUT state_rows int8,
	OUT kept_rows int8,
	OUT state_bytes int8,
	OUT time_ms float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'wms_sql_stat_operators'
LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION wmstream.list_operator_figures() IS 'internal: rows of the view stat_operators';

CREATE VIEW wmstream.stat_operators AS
SELECT
	s.stream,
	s.operator,
	s.kind,
	s.input_rows,
	s.late_rows,
	s.output_rows,
	s.compared_rows,
	s.watermark,
	s.windows,
	s.state_rows,
	s.kept_rows,
	s.state_bytes,
	s.time_ms
FROM wmstream.list_operator_figures() AS s;
COMMENT ON VIEW wmstream.stat_operators IS 'figures of each operator of each stream, numbered as explain() does; counts and time are those since the worker began';
GRANT SELECT ON wmstream.stat_operators TO PUBLIC;

CREATE FUNCTION wmstream.list_progress(
	OUT stream regclass,
	OUT phase text,
	OUT rows_read int8,
	OUT rows_done int8,
	OUT rows_total int8,
	OUT event_time timestamptz,
	OUT started_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'wms_sql_stat_progress'
LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION wmstream.list_progress() IS 'internal: rows of the view stat_progress';

CREATE VIEW wmstream.stat_progress AS
SELECT
	s.stream,
	s.phase,
	s.rows_read,
	s.rows_done,
	s.rows_total,
	s.event_time,
	s.started_at
FROM wmstream.list_progress() AS s;
COMMENT ON VIEW wmstream.stat_progress IS 'streams that are being filled with existing rows, or caught up beside the others, and how far that is';
GRANT SELECT ON wmstream.stat_progress TO PUBLIC;
