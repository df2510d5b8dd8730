/*
 * sqlface_create.c
 *	  create_stream, drop_stream.
 *
 * Order of events in create_stream.  Everything that can be refused is refused before anything is written: arguments,
 * the result's name, the query (parsed as the caller, analysed and planned as the role that will own the stream), room for one more stream.  Where the database has no replication
 * slot, all of that happens once more before, in a subtransaction that is rolled back, and then the slot is made, unless the stream reads
 * queues: only a transaction that has not written can make it, it should hold no locks while it waits for others (make_slot_first), and
 * the slot is all that stays if it rolls back.  Then the result, the definition, the late table, their dependencies, and the
 * registry row, whose commit is the stream's first position.
 */
#include "postgres.h"

#include "catalog/pg_extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "shared/shared.h"
#include "source/source.h"
#include "sqlface/sqlface_internal.h"
#include "state/state.h"

PG_FUNCTION_INFO_V1(wms_sql_create_stream);
PG_FUNCTION_INFO_V1(wms_sql_drop_stream);

/* Arguments of create_stream by position. */
enum
{
	ARG_RESULT,
	ARG_QUERY,
	ARG_OUTPUT_MODE,
	ARG_TRIGGER_INTERVAL,
	ARG_ALLOWED_LATENESS,
	ARG_LATE_TABLE,
	ARG_IDLE_TIMEOUT,
	ARG_CLOSE_WHEN_IDLE,
	ARG_MAX_FUTURE,
	ARG_WATERMARK_POLICY,
	ARG_ON_CHANGE,
	ARG_ON_ERROR,
	ARG_START_FROM,
	ARG_IF_NOT_EXISTS
};

/* A stream that is to be made. */
typedef struct Creation
{
	char	   *result;
	char	   *query_text;
	char	   *late_table;		/* NULL: none */
	bool		if_not_exists;
	WmsStreamDef def;
	WmsTarget  *target;
	Query	   *query;
	WmsStreamPlan *plan;
	WmsShape	shape;			/* of the result, from the plan */
	bool		key_needed;		/* rows are changed in place: they must be found */
} Creation;

/* ---------------------------------------------------------------- arguments */

/* NULL is the default, which is the first of an option's values. */
static char *
text_arg(FunctionCallInfo fcinfo, int arg, const char *if_null)
{
	if (!PG_ARGISNULL(arg))
		return text_to_cstring(PG_GETARG_TEXT_PP(arg));
	return if_null ? pstrdup(if_null) : NULL;
}

static int64
span_arg(FunctionCallInfo fcinfo, int arg, const char *option, int64 if_null)
{
	return PG_ARGISNULL(arg) ? if_null : wms_face_span(option, PG_GETARG_INTERVAL_P(arg));
}

static bool
bool_arg(FunctionCallInfo fcinfo, int arg)
{
	return !PG_ARGISNULL(arg) && PG_GETARG_BOOL(arg);
}

static char *
required_arg(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of a stream cannot be NULL", name),
				 errhint("Give the name of a table and the text of one SELECT.")));
	return text_arg(fcinfo, arg, NULL);
}

static void
read_options(FunctionCallInfo fcinfo, WmsStreamDef *def)
{
	def->output_mode = wms_face_output_mode(text_arg(fcinfo, ARG_OUTPUT_MODE, "append"));
	def->trigger_us = span_arg(fcinfo, ARG_TRIGGER_INTERVAL, "trigger_interval", 0);
	def->lateness_us = span_arg(fcinfo, ARG_ALLOWED_LATENESS, "allowed_lateness", 0);
	def->refined = def->lateness_us > 0;
	def->idle_us = span_arg(fcinfo, ARG_IDLE_TIMEOUT, "idle_timeout", -1);
	def->close_when_idle = bool_arg(fcinfo, ARG_CLOSE_WHEN_IDLE);
	def->max_future_us = span_arg(fcinfo, ARG_MAX_FUTURE, "max_future", -1);
	def->watermark_max = wms_face_watermark_max(text_arg(fcinfo, ARG_WATERMARK_POLICY, "min"));
	def->on_change = wms_face_on_change(text_arg(fcinfo, ARG_ON_CHANGE, "ignore"));
	def->skip_errors = wms_face_skip_errors(text_arg(fcinfo, ARG_ON_ERROR, "stop"));
	def->fill = wms_face_from_beginning(text_arg(fcinfo, ARG_START_FROM, "now")) ? WMS_FILL_BEGINNING : WMS_FILL_NONE;
	def->fill_since = WMS_TIME_MIN;
	def->delay_us = -1;
	def->advance_to = WMS_TIME_MIN;
	def->status = WMS_RUNNING;
	def->timezone = pstrdup(GetConfigOption("TimeZone", false, false));
	def->datestyle = pstrdup(GetConfigOption("DateStyle", false, false));
	def->intervalstyle = pstrdup(GetConfigOption("IntervalStyle", false, false));
	wms_face_check_options(def);
}

static void
read_arguments(FunctionCallInfo fcinfo, Creation *creation)
{
	creation->result = required_arg(fcinfo, ARG_RESULT, "the result");
	creation->query_text = required_arg(fcinfo, ARG_QUERY, "the query");
	creation->late_table = text_arg(fcinfo, ARG_LATE_TABLE, NULL);
	creation->if_not_exists = bool_arg(fcinfo, ARG_IF_NOT_EXISTS);
	read_options(fcinfo, &creation->def);
}

/* ---------------------------------------------------------------- before anything is written */

/* Against a DROP EXTENSION that has begun before there was a view to drop. */
static void
lock_extension(void)
{
	Oid			extension = wms_extension_oid();

	LockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock);
	if (!OidIsValid(extension) || wms_extension_oid() != extension)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"wmstream\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION wmstream.")));
}

/* Is the target a stream already?  ERROR unless that was said to be fine. */
static bool
exists_already(const Creation *creation)
{
	Oid			relid = creation->target->relid;

	if (!OidIsValid(relid))
		return false;
	wms_registry_lock(relid);
	if (!wms_registry_stream(relid))
		return false;
	if (!creation->if_not_exists)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("stream \"%s\" already exists", creation->target->name),
				 errhint("Drop it with wmstream.drop_stream(), or use if_not_exists => true.")));
	ereport(NOTICE,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("stream \"%s\" already exists, skipping", creation->target->name)));
	return true;
}

/*
 * Streams that write what the new one reads must know of it from its commit on, for only then what they write is decoded: until then they
 * wait.  Locks are taken in the order of OIDs.  Tells whether there are any.
 */
static bool
hold_streams_below(const List *relids)
{
	List	   *streams = wms_streams_into(relids);
	ListCell   *lc;

	foreach(lc, streams)
		wms_registry_lock(lfirst_oid(lc));
	return streams != NIL;
}

/* As it is done later, by the role and in the context that the stream runs in: privileges are that role's, and planning may run functions. */
static WmsStreamPlan *
plan_of(const Creation *creation, const WmsOptions *options)
{
	WmsStreamDef def = creation->def;
	WmsRefusal *refusal = NULL;
	WmsStreamPlan *plan;
	WmsFaceOwner scope;

	def.owner = creation->target->owner;
	wms_face_become_owner(&def, &scope);
	plan = wms_face_analyze(creation->query, options, &refusal);
	if (plan)
		wms_face_plan_query(creation->query, creation->query_text);
	wms_face_leave_owner(&scope);
	if (!plan)
		wms_refusal_raise(refusal, creation->query_text);
	return plan;
}

/* A row that came before the stream is in no group, and cannot be taken back from one. */
static void
tell_of_rows_there(const WmsStreamPlan *plan)
{
	Oid			relid = plan->retract ? wms_source_with_rows(plan) : InvalidOid;

	if (OidIsValid(relid))
		ereport(NOTICE,
				(errmsg("rows that \"%s\" has already are not in the stream", get_rel_name(relid)),
				 errdetail("Changing or deleting them takes back what was never added.")));
}

static void
analyse(Creation *creation)
{
	const WmsStreamDef *def = &creation->def;
	WmsOptions	options = {.mode = def->output_mode,.lateness_us = def->lateness_us,.refines = def->refined,.delay_us = def->delay_us,
	.retract = def->on_change == WMS_CHANGE_RETRACT,.result = creation->target->relid,.text = creation->query_text};
	WmsStreamPlan *plan;

	creation->query = wms_face_query(creation->query_text);
	plan = plan_of(creation, &options);
	if (hold_streams_below(plan->relids))
		plan = plan_of(creation, &options); /* they may have been altered before we had them */
	creation->def.reads_queues = plan->queues;
	wms_face_check_options(def);
	creation->shape.desc = plan->result_desc;
	creation->shape.key_columns = plan->key_columns;
	creation->shape.key_not_null = plan->key_not_null;
	creation->shape.text = creation->query_text;
	creation->shape.places = plan->places;
	creation->plan = plan;
	creation->key_needed = def->output_mode == WMS_UPDATE || def->refined;
	wms_target_check_shape(creation->target, &creation->shape, creation->key_needed);
}

static void
tell(const Creation *creation)
{
	ListCell   *lc;

	foreach(lc, creation->plan->notices)
		ereport(NOTICE, (errmsg_internal("%s", (char *) lfirst(lc))));
	if (creation->def.fill == WMS_FILL_NONE)
		tell_of_rows_there(creation->plan);
}

/* Streams of this database that have no place in shared memory yet, those of this transaction among them. */
static int
streams_without_place(void)
{
	int			n = 0;
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
		n += wms_stream_slot(((WmsStreamDef *) lfirst(lc))->stream, false) == NULL;
	return n;
}

/* The worker takes the places; here is only looked whether there will be some, so that a user hears of it at once. */
static void
check_room(void)
{
	bool		stream_free = wms_stream_slots_free() > streams_without_place();
	bool		worker_free = wms_workers_in_use(false) < wms_max_workers;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	worker_free = worker_free || wms_worker_of(MyDatabaseId) != NULL;
	LWLockRelease(&wms_shared->lock);

	if (!stream_free)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all %d places for streams are in use", wms_shared->nstreams),
				 errhint("Set wmstream.max_streams to at least %d and restart the server.", wms_shared->nstreams + 1)));
	if (!worker_free)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all %d workers of wmstream are in use by other databases", wms_max_workers),
				 errhint("Set wmstream.max_workers to at least %d, and max_worker_processes accordingly.", wms_max_workers + 1)));
}

/* All that can be refused; the target stays NULL if there is such a stream already, which is told later. */
static void
check_beforehand(void *arg)
{
	Creation   *creation = arg;
	WmsTarget  *target = wms_target_resolve(creation->result);

	if (OidIsValid(target->relid) && wms_registry_stream(target->relid))
		return;
	creation->target = target;
	wms_target_check(target);
	analyse(creation);
	check_room();
}

/*
 * The database's first slot waits for the transactions that are under way, which may want to change what the stream reads: so it is made
 * while no lock on that is held.  But only for a definition that is good: this is found out before, in a subtransaction whose locks go with it.
 */
static void
make_slot_first(Creation *creation)
{
	ErrorData  *refused = wms_in_subtransaction(check_beforehand, creation, false);

	if (refused)
		ReThrowError(refused);
	if (creation->target && !creation->def.reads_queues)
		wms_face_need_slot(false);
}

/* ---------------------------------------------------------------- writing */

/* Where the definition reads what another stream writes that reads the result; that may be through streams between them. */
static int
place_of_loop(const WmsStreamPlan *plan, Oid result)
{
	ListCell   *lc;
	ListCell   *lc2;

	forboth(lc, plan->relids, lc2, plan->relid_places)
	{
		if (wms_relation_reaches(lfirst_oid(lc), result))
			return lfirst_int(lc2);
	}
	return plan->places[0];
}

/* An existing table may be read by other streams already. */
static void
check_no_loop(const Creation *creation)
{
	const WmsStreamDef *def = &creation->def;

	if (!def->made_result && wms_definition_reaches(def->view, def->stream))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the stream would read its own result \"%s\" through others", get_rel_name(def->stream)),
				 errhint("Write into another table."),
				 wms_errplace(creation->query_text, place_of_loop(creation->plan, def->stream))));
}

static void
define(Creation *creation)
{
	WmsStreamDef *def = &creation->def;
	WmsTarget  *target = creation->target;

	wms_define_result(target, &creation->shape, creation->key_needed);
	def->stream = target->relid;
	def->made_result = target->made;
	def->has_key = target->has_key;
	def->view = wms_define_view(target, creation->query);
	check_no_loop(creation);
	if (!def->made_result)
		wms_face_check_readers(def);
	if (creation->late_table)
		def->late_table = wms_define_late_table(creation->late_table, def->stream, def->view, target->owner);
	wms_define_dependencies(def->stream, def->view);
	/* A table may have been a stream before, or have the number of one that was. */
	wms_state_forget(def->stream);
	wms_registry_insert(def);
	wms_wake_at_commit();
}

Datum
wms_sql_create_stream(PG_FUNCTION_ARGS)
{
	Creation   *creation = palloc0(sizeof(Creation));

	wms_require_preloaded();
	wms_face_begin_write("wmstream.create_stream()");
	lock_extension();
	read_arguments(fcinfo, creation);
	wms_creation_lock_share();	/* a slot that is there stays */
	if (!wms_slot_exists(MyDatabaseId))
		make_slot_first(creation);
	creation->target = wms_target_resolve(creation->result);
	if (exists_already(creation))
		PG_RETURN_OID(creation->target->relid);
	wms_target_check(creation->target);
	analyse(creation);
	tell(creation);
	check_room();
	wms_face_need_slot(creation->def.reads_queues);
	define(creation);
	/* last: whoever puts the mark holds up all others that want one */
	wms_mark_database(true);
	PG_RETURN_OID(creation->def.stream);
}

Datum
wms_sql_drop_stream(PG_FUNCTION_ARGS)
{
	bool		drop_results = PG_GETARG_BOOL(1);
	WmsStreamDef *def = drop_results ? wms_face_own_stream_and_result(PG_GETARG_OID(0), "wmstream.drop_stream()") :
		wms_face_own_stream(PG_GETARG_OID(0), "wmstream.drop_stream()");

	wms_drop_definition(def, drop_results);
	wms_wake_at_commit();
	PG_RETURN_VOID();
}
