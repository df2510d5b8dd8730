/*
 * analyze_refuse.c
 *	  One short function per reason to say no.
 *
 * Each writes a refusal with the position of what is to blame, unless one is there already: the first is what the user sees.  where is an
 * expression, a query or an entry of FROM; location one that the caller knows.  NULL, -1, or what has no position in the
 * text (parts of a view, what we made ourselves) points at the level that is looked at: no refusal is without a position when the definition
 * is given as text.  The hint names the way out.  README.md's list of what is refused follows this file.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "analyze/analyze_internal.h"

#define SAY_NO(a, code, where, ...) \
	do { if ((a)->refusal == NULL) (a)->refusal = wms_refuse(code, wms_an_place(a, where), __VA_ARGS__); } while (0)
#define SAY_NO_AT(a, code, location, ...) \
	do { if ((a)->refusal == NULL) (a)->refusal = wms_refuse(code, (location) >= 0 ? (location) : (a)->place, __VA_ARGS__); } while (0)

#define NOT_SUPPORTED ERRCODE_FEATURE_NOT_SUPPORTED
#define BAD_VALUE ERRCODE_INVALID_PARAMETER_VALUE

/* ---------------------------------------------------------------- clauses */

void
wms_no_clause(Analysis *a, const char *clause, int location, const char *hint)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, hint, "a stream cannot use %s", clause);
}

void
wms_no_order_or_limit(Analysis *a, const char *clause, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location,
		   "Order the rows when you read the result. Rows of a window can be ranked with row_number() OVER (PARTITION BY the window ...).",
		   "%s is possible only above the aggregate of a stream in complete mode", clause);
}

void
wms_no_volatile(Analysis *a, Oid function, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, "Compute the value when the row is inserted, for example as a column default.",
		   "volatile function %s cannot be used in a stream", format_procedure(function));
}

void
wms_no_outer_reference(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Join the stream in FROM instead.",
		   "a subquery that reads a stream cannot refer to the query around it");
}

void
wms_no_nullable_stream(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Put the stream on the other side: stream LEFT JOIN table.",
		   "a stream cannot be on the nullable side of an outer join with a static table");
}

void
wms_no_optional_window(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Join the window without a condition, and put that into WHERE, or into FILTER of the aggregates.",
		   "a window that an outer join gives on a condition cannot be a group key");
}

void
wms_no_mixed_union(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Give each branch a watermark() (its delay may be NULL), or leave the static branch out.",
		   "a branch of UNION ALL reads no stream");
}

/* ---------------------------------------------------------------- joins and DISTINCT */

void
wms_no_stream_here(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where,
		   "Put it into FROM, or into IN or [NOT] EXISTS (SELECT ... FROM the stream WHERE ...), joined to other conditions of WHERE by AND. Instead of NOT IN write NOT EXISTS; instead of OR make two streams.",
		   "a stream cannot be read here");
}

void
wms_no_join_equality(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Add a condition such as a.key = b.key to those between the two streams.",
		   "a join of two streams needs at least one equality between them");
}

static const char *
join_name(JoinType type)
{
	switch (type)
	{
		case JOIN_LEFT:
			return "a LEFT JOIN";
		case JOIN_RIGHT:
			return "a RIGHT JOIN";
		case JOIN_FULL:
			return "a FULL JOIN";
		case JOIN_SEMI:
			return "EXISTS";
		case JOIN_ANTI:
			return "NOT EXISTS";
		default:
			return "a join";
	}
}

/* side, condition: what would bound it; watermark: the other side has none. */
void
wms_no_join_bound(Analysis *a, const void *where, JoinType type, const char *side, const char *condition, bool watermark)
{
	const char *hint;

	if (watermark)
		hint = psprintf("No watermark tells when a matching row can come no more: give the other stream a delay in its watermark(), and bound the times, for example by %s.", condition);
	else
		hint = psprintf("Add a condition that tells how late a matching row can come, for example %s, or an equality of event times or of windows.", condition);
	SAY_NO(a, NOT_SUPPORTED, where, hint,
		   "%s of streams needs a bound on the event time, or rows of \"%s\" could never be given up", join_name(type), side);
}

void
wms_no_join_subquery(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Join the static table to one of the streams, or to the result of the join.",
		   "a subquery cannot stand in a condition between two streams of an outer join, EXISTS or NOT EXISTS");
}

void
wms_no_join_condition(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Join the streams one after the other, each with its own conditions.",
		   "a condition of a join refers to a table outside of it");
}

void
wms_no_months_in_range(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Write days or hours: a month is not always of the same length.",
		   "a time range between two streams cannot be given in months");
}

void
wms_no_distinct_order(Analysis *a, const void *where, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location >= 0 ? location : wms_an_place(a, where),
		   "Leave ORDER BY out: then the first row to arrive wins, and is emitted at once. Or put a window of the event time among the DISTINCT ON expressions: then the rows are ranked when it closes.",
		   "ORDER BY of a DISTINCT ON over a stream needs the window among its expressions");
}

void
wms_no_clock_here(Analysis *a, const void *where, const char *what)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Group by the window instead.",
		   "windows of the clock are for aggregates, not for %s", what);
}

/* ---------------------------------------------------------------- arguments */

void
wms_no_constant(Analysis *a, const void *where, const char *what)
{
	SAY_NO(a, BAD_VALUE, where, "Write it as a literal, for example '10 minutes'.", "%s must be a constant", what);
}

void
wms_no_null_argument(Analysis *a, const void *where, const char *what)
{
	SAY_NO(a, BAD_VALUE, where, "Give a value, or leave the argument out.", "%s must not be NULL", what);
}

void
wms_no_delay(Analysis *a, const void *where)
{
	SAY_NO(a, BAD_VALUE, where, "Give zero or more; a month counts 31 days.", "delay of a watermark must not be negative");
}

/* ---------------------------------------------------------------- watermark() */

void
wms_no_watermark_here(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Put it into the WHERE clause beside its table, joined to other conditions by AND.",
		   "watermark() cannot stand here");
}

void
wms_no_second_watermark(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Keep one of them.", "a source can have only one watermark()");
}

void
wms_no_watermark_above(Analysis *a, const void *where, const char *what)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Move watermark() into the subquery, beside its table.",
		   "watermark() cannot stand above %s", what);
}

void
wms_no_event_time_of(Analysis *a, const void *where, const char *what)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Compute the event time from columns of its table.",
		   "an event time cannot contain %s", what);
}

void
wms_no_time_type(Analysis *a, const void *where, Oid type)
{
	SAY_NO(a, ERRCODE_DATATYPE_MISMATCH, where,
		   "Use a column of type timestamptz or timestamp, or an immutable conversion such as to_timestamp(seconds).",
		   "event time has type %s", format_type_be(type));
}

void
wms_no_stable_time(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where,
		   "Store the time as timestamptz or timestamp, or convert it with AT TIME ZONE and a fixed zone: a cast depends on the session's time zone.",
		   "event time must be an immutable expression");
}

void
wms_no_one_source(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Use columns of exactly one table.", "the event time must come from one source");
}

void
wms_no_union_source(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Give each branch its own watermark().",
		   "the event time of a UNION ALL comes from different tables");
}

/* ---------------------------------------------------------------- sources */

void
wms_no_source(Analysis *a)
{
	SAY_NO(a, NOT_SUPPORTED, NULL, "Read at least one table.", "the query reads no table");
}

void
wms_no_single_source(Analysis *a, int ntables, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Name the event time of the stream in WHERE: wmstream.watermark(column, delay); its delay may be NULL.",
		   "the query reads %d tables, and no watermark() says which is the stream", ntables);
}

void
wms_no_too_many_sources(Analysis *a, int location)
{
	SAY_NO_AT(a, ERRCODE_PROGRAM_LIMIT_EXCEEDED, location, "Split the query into several streams.",
		   "a stream can have at most %d sources", WMS_MAX_SOURCES);
}

void
wms_no_such_table(Analysis *a, const char *name, const char *kind, const char *hint, const void *where)
{
	SAY_NO(a, ERRCODE_WRONG_OBJECT_TYPE, where, hint, "\"%s\" is %s and cannot be a stream source", name, kind);
}

void
wms_no_temporary_table(Analysis *a, const char *name, const void *where)
{
	SAY_NO(a, ERRCODE_WRONG_OBJECT_TYPE, where, "Streams run in other sessions, which cannot read it. Use an ordinary table or view.",
		   "\"%s\" is temporary and cannot be read by a stream", name);
}

void
wms_no_own_result(Analysis *a, Oid relid, const void *where)
{
	const char *hint = "Write into another table.";
	char	   *result = get_rel_name(a->options->result);
	char	   *name = get_rel_name(relid);

	if (relid == a->options->result)
		SAY_NO(a, ERRCODE_INVALID_OBJECT_DEFINITION, where, hint, "a stream cannot read its own result \"%s\"", result);
	else if (wms_is_part_of(relid, list_make1_oid(a->options->result)))
		SAY_NO(a, ERRCODE_INVALID_OBJECT_DEFINITION, where, hint, "a stream cannot read \"%s\", a partition of its own result \"%s\"", name, result);
	else
		SAY_NO(a, ERRCODE_INVALID_OBJECT_DEFINITION, where, hint, "a stream cannot read \"%s\", of which its own result \"%s\" is a partition", name, result);
}

void
wms_no_changing_result(Analysis *a, const char *name, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Read the result of a stream in append mode without allowed_lateness, or take changes back with on_change => 'retract'.",
		   "\"%s\" is the result of a stream that changes its rows", name);
}

void
wms_no_row_security(Analysis *a, const char *name, const void *where)
{
	SAY_NO(a, ERRCODE_INSUFFICIENT_PRIVILEGE, where, "Let the stream's owner bypass it: BYPASSRLS, or NO FORCE ROW LEVEL SECURITY for the owner of the table.",
		   "row-level security of \"%s\" would apply to the stream", name);
}

void
wms_no_update_trigger(Analysis *a, const char *name, const void *where)
{
	SAY_NO(a, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, where, "Drop the trigger, or make it an AFTER trigger: with it every row that is updated would look like a new one.",
		   "queue \"%s\" has a BEFORE UPDATE trigger for rows", name);
}

void
wms_no_mixed_sources(Analysis *a, const char *queue, const char *table, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, "Make both queues, or neither: wmstream.create_queue(), wmstream.drop_queue().",
		   "queue \"%s\" and ordinary table \"%s\" cannot be sources of the same stream", queue, table);
}

void
wms_no_system_column(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Use a column of the table.", "system columns of a stream source cannot be read");
}

void
wms_no_virtual_column(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Make the column STORED, or write its expression into the query.",
		   "virtual generated columns of a stream source cannot be read");
}

/* ---------------------------------------------------------------- groups */

void
wms_no_two_windows(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Create one stream per window, or build one window on the other in a subquery.",
		   "two different windows in one operator");
}

void
wms_no_two_times(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Keep the one that decides when a group is finished.", "two event times in one operator");
}

void
wms_no_one_bound(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Group by the window itself, or by both bounds of it.",
		   "one bound does not tell a cumulating or session window");
}

void
wms_no_processing_time(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Use the event time that watermark() names, or read one table and leave watermark() out.",
		   "windows of the clock need exactly one source and no watermark()");
}

void
wms_no_append_group(Analysis *a, int location, bool window_of_other)
{
	if (window_of_other)
		SAY_NO_AT(a, NOT_SUPPORTED, location, "Add wmstream.watermark(column, delay) to WHERE with the same column as the window.",
			   "append mode needs a window over an event time with a watermark, and this window's time has none");
	else
		SAY_NO_AT(a, NOT_SUPPORTED, location,
				  "Group by wmstream.window(event time, size) too, with a watermark() on that event time; or use output_mode => 'update' or 'complete'.",
			   "append mode needs a watermarked window or event time among the group keys");
}

void
wms_no_append_bound(Analysis *a, const void *where, bool update)
{
	SAY_NO(a, NOT_SUPPORTED, where, update ? "Give every source of the group a delay, or use output_mode => 'update'." : "Give every source of the group a delay.",
		   "append mode needs a watermark, and a delay of NULL declares a source without one");
}

void
wms_no_unbounded_join(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Add a condition on the event times of both sides to the join, for example b.ts BETWEEN a.ts AND a.ts + interval '10 minutes', or an equality of event times or of windows.",
		   "append mode needs groups that end, and nothing tells when rows of the join below can match no more");
}

void
wms_no_rows_beside_groups(Analysis *a, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, "Create one stream for each branch of UNION ALL, or use output_mode => 'append'.",
			  "groups beside rows that are in none are possible in append mode only");
}

void
wms_no_complete(Analysis *a)
{
	SAY_NO(a, NOT_SUPPORTED, NULL, "Use output_mode => 'append'.", "complete mode needs an aggregate");
}

void
wms_no_chain(Analysis *a, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, "Use output_mode => 'append', or create two streams, one reading the other's result.",
		   "several stateful operators in one stream are possible in append mode only");
}

void
wms_no_append_only(Analysis *a, const char *what, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, "Use output_mode => 'append'.", "%s is possible in append mode only", what);
}

void
wms_no_window_partition(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where,
		   "Add the window to PARTITION BY, or rank the rows when you read the result.",
		   "the PARTITION BY of a window function over a stream must hold the window");
}

void
wms_no_window_functions_in(Analysis *a, const char *what, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "It needs groups that change no more: use append mode without allowed_lateness, or complete mode.",
		   "%s is not possible", what);
}

void
wms_no_update_session(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Use output_mode => 'append' or 'complete'.", "session windows are not possible in update mode");
}

void
wms_no_session_alone(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Group by what the session belongs to, such as a user or a device, too.",
		   "a session window needs another group key beside it");
}

void
wms_no_session_here(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where,
		   "Sessions are known when their rows have been merged: use the window, lower() and upper() of it in the SELECT list and HAVING of the query that groups by it.",
		   "a session window of rows can only be a group key");
}

/* ---------------------------------------------------------------- on_change => 'retract' */

void
wms_no_retract_here(Analysis *a, const char *what, const char *hint, int location)
{
	SAY_NO_AT(a, NOT_SUPPORTED, location, hint, "changed rows cannot be taken back through %s", what);
}

void
wms_no_retract_clock(Analysis *a, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Compare the event time when you read the result.",
		   "the clock cannot be used below an aggregate that takes rows back: it may say something else by then");
}

void
wms_no_identity(Analysis *a, Oid relid, int location)
{
	char	   *name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
	char	   *hint = psprintf("ALTER TABLE %s REPLICA IDENTITY FULL;", name);

	SAY_NO_AT(a, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, location, hint,
		   "on_change => 'retract' needs the old rows of \"%s\", whose replica identity is not FULL", get_rel_name(relid));
}

/* ---------------------------------------------------------------- the result */

void
wms_no_hidden_key(Analysis *a, const char *what, const char *key, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where,
		   "Add the column to the SELECT list. A window may be shown as lower(w) AS window_start; a cumulating one needs both bounds, or itself.",
		   "%s needs all group keys among the result's columns, and \"%s\" is not", what, key);
}

void
wms_no_rows_of_group(Analysis *a, const char *what, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Join static tables below the aggregate, and expand sets when you read the result.",
		   "%s needs one result row per group", what);
}

void
wms_no_lateness(Analysis *a)
{
	SAY_NO(a, a->options->lateness_us < 0 ? BAD_VALUE : NOT_SUPPORTED, NULL, "Leave allowed_lateness out, or give the watermark a longer delay.",
		   a->options->lateness_us < 0 ? "allowed_lateness must not be negative"
		   : "allowed_lateness is for a window aggregate at the top of the query only");
}

void
wms_no_type(Analysis *a, const char *column, Oid type, const void *where)
{
	SAY_NO(a, ERRCODE_INVALID_TABLE_DEFINITION, where, "Cast it to a type that a table can hold.",
		   "result column \"%s\" has pseudo-type %s", column, format_type_be(type));
}

void
wms_no_kept_type(Analysis *a, Oid type, const void *where)
{
	SAY_NO(a, NOT_SUPPORTED, where, "Use its fields as columns of their own, or cast it, for example to a composite type, to text or to jsonb.",
		   "values of pseudo-type %s cannot be kept from one batch to the next", format_type_be(type));
}
