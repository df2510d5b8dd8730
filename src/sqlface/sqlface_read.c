/*
 * sqlface_read.c
 *	  explain, open_windows, live.
 *
 * open_windows and live are called with NULL::result_table: the type of the argument names the stream and is
 * the type of the rows.  A reader needs what reading the result table needs.  The stream's own code, which
 * makes rows out of open groups, runs as the stream's owner, as it does in the worker.
 *
 * Both read under the snapshot of the calling query, so that a window is either among the result's rows that this
 * snapshot sees or among the open ones.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "flow/flow.h"
#include "sqlface/sqlface_internal.h"

PG_FUNCTION_INFO_V1(wms_sql_explain_query);
PG_FUNCTION_INFO_V1(wms_sql_explain_stream);
PG_FUNCTION_INFO_V1(wms_sql_open_windows);
PG_FUNCTION_INFO_V1(wms_sql_live);

/* ---------------------------------------------------------------- explain */

static void
put_line(ReturnSetInfo *rsinfo, const char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

static void
put_plan(ReturnSetInfo *rsinfo, const WmsStreamPlan *plan)
{
	ListCell   *lc;

	foreach(lc, wms_explain_plan(plan))
		put_line(rsinfo, (char *) lfirst(lc));
	foreach(lc, plan->notices)
		put_line(rsinfo, psprintf("notice: %s", (char *) lfirst(lc)));
}

static void
put_refusal(ReturnSetInfo *rsinfo, const char *mode, const WmsRefusal *refusal)
{
	put_line(rsinfo, psprintf("refused in %s mode: %s", mode, refusal->message));
	if (refusal->detail)
		put_line(rsinfo, psprintf("  detail: %s", refusal->detail));
	if (refusal->hint)
		put_line(rsinfo, psprintf("  hint: %s", refusal->hint));
}

/* A text says nothing of the mode it is meant for: the first that takes it is explained, after the reasons of those that do not. */
Datum
wms_sql_explain_query(PG_FUNCTION_ARGS)
{
	static const struct
	{
		WmsOutputMode mode;
		const char *name;
	}			modes[] = {{WMS_APPEND, "append"}, {WMS_UPDATE, "update"}, {WMS_COMPLETE, "complete"}};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Query	   *query = wms_face_query(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	const char *told = NULL;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < (int) lengthof(modes); i++)
	{
		WmsOptions	options = {.mode = modes[i].mode,.delay_us = -1,.owner = GetUserId(),
		.force_kept = wms_force_kept_arguments};
		WmsRefusal *refusal = NULL;
		WmsStreamPlan *plan = wms_analyze_query(copyObject(query), &options, &refusal);

		if (plan)
		{
			put_line(rsinfo, psprintf("output_mode: %s", modes[i].name));
			put_plan(rsinfo, plan);
			break;
		}
		if (!told || strcmp(told, refusal->message) != 0)
			put_refusal(rsinfo, modes[i].name, refusal);
		told = refusal->message;
	}
	return (Datum) 0;
}

Datum
wms_sql_explain_stream(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WmsStreamDef *def = wms_face_stream(PG_GETARG_OID(0));
	WmsOptions	options = {.mode = def->output_mode,.lateness_us = def->lateness_us,.delay_us = def->delay_us,
	.owner = def->owner,.result = def->stream,.force_kept = wms_force_kept_arguments};
	WmsRefusal *refusal = NULL;
	WmsStreamPlan *plan;
	WmsFaceOwner scope;

	if (!wms_face_may_see(def))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(def->stream));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	wms_face_become_owner(def, &scope);
	plan = wms_analyze_view(def->view, &options, &refusal);
	wms_face_leave_owner(&scope);
	if (plan)
		put_plan(rsinfo, plan);
	else
		put_refusal(rsinfo, "its", refusal);
	return (Datum) 0;
}

/* ---------------------------------------------------------------- open windows */

/* The stream whose row type the argument has, if the caller may read it. */
static WmsStreamDef *
stream_of_argument(FunctionCallInfo fcinfo)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);
	Oid			relid = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the argument must have the row type of a stream's result table"),
				 errhint("Call it with NULL::result_table.")));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(relid));
	if (check_enable_rls(relid, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("open windows of \"%s\" cannot be read under row-level security", get_rel_name(relid)),
				 errhint("Read the result table, or use a role that bypasses row-level security.")));
	return wms_face_stream(relid);
}

/* Rows of open windows in the shape of desc, the result's row type. */
static void
read_open(const WmsStreamDef *def, Tuplestorestate *store, TupleDesc desc)
{
	WmsSharedStream *slot = wms_stream_slot(def->stream, false);
	WmsFaceOwner scope;

	if (def->status == WMS_PAUSED || def->status == WMS_FAILED || def->status == WMS_RESTORED || def->status == WMS_NEEDS_RESYNC)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream \"%s\" is %s: its open windows are not in memory", get_rel_name(def->stream), wms_status_name(def->status))));
	if (!slot)
		return;
	wms_face_become_owner(def, &scope);
	wms_flow_read_open(def, slot, GetActiveSnapshot(), store, desc);
	wms_face_leave_owner(&scope);
}

Datum
wms_sql_open_windows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WmsStreamDef *def;

	wms_require_preloaded();
	def = stream_of_argument(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	read_open(def, rsinfo->setResult, rsinfo->setDesc);
	return (Datum) 0;
}

/* ---------------------------------------------------------------- live */

/* A place for rows of SELECT *, which leaves out dropped columns, in the table's row type. */
typedef struct LiveRows
{
	Tuplestorestate *store;
	TupleDesc	desc;
	Datum	   *values;
	bool	   *isnull;
} LiveRows;

static void
put_live_row(TupleTableSlot *slot, void *arg)
{
	LiveRows   *rows = arg;
	int			from = 0;

	slot_getallattrs(slot);
	for (int i = 0; i < rows->desc->natts; i++)
	{
		bool		dropped = TupleDescAttr(rows->desc, i)->attisdropped;

		rows->isnull[i] = dropped || slot->tts_isnull[from];
		rows->values[i] = rows->isnull[i] ? (Datum) 0 : slot->tts_values[from];
		from += dropped ? 0 : 1;
	}
	tuplestore_putvalues(rows->store, rows->desc, rows->values, rows->isnull);
}

/* The key of a row as one value, in which NULL equals NULL. */
static char *
key_record(const WmsStreamDef *def, const char *alias)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	appendStringInfoString(&text, "CAST(ROW(");
	foreach(lc, def->key_columns)
		appendStringInfo(&text, "%s%s.%s", lc == list_head(def->key_columns) ? "" : ", ", alias,
						 quote_identifier(get_attname(def->stream, lfirst_int(lc), false)));
	appendStringInfoString(&text, ") AS pg_catalog.record)");
	return text.data;
}

/*
 * In append mode a window is in one of the two places.  In update mode an open one has left its last value in the
 * result: the newer one counts.  In complete mode all groups are open for ever.
 */
static char *
live_query(const WmsStreamDef *def)
{
	StringInfoData sql;
	char	   *table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->stream)), get_rel_name(def->stream));

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT * FROM wms_open");
	if (def->output_mode == WMS_COMPLETE)
		return sql.data;
	appendStringInfo(&sql, " UNION ALL SELECT * FROM %s AS r", table);
	if (def->output_mode == WMS_UPDATE && def->has_key)
		appendStringInfo(&sql, " WHERE NOT EXISTS (SELECT FROM wms_open AS o WHERE %s OPERATOR(pg_catalog.=) %s)",
						 key_record(def, "o"), key_record(def, "r"));
	return sql.data;
}

Datum
wms_sql_live(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	QueryEnvironment *env = create_queryEnv();
	WmsStreamDef *def;
	WmsRowSet  *open;
	WmsQuery   *query;
	LiveRows	rows;

	wms_require_preloaded();
	def = stream_of_argument(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	rows.store = rsinfo->setResult;
	rows.desc = rsinfo->setDesc;
	rows.values = palloc(rows.desc->natts * sizeof(Datum));
	rows.isnull = palloc(rows.desc->natts * sizeof(bool));

	open = wms_rowset_make(env, "wms_open", rows.desc);
	read_open(def, wms_rowset_begin(open), rows.desc);
	query = wms_query_parse(live_query(def), env);
	wms_query_plan(query);
	wms_query_run(query, wms_dest_call(put_live_row, &rows));
	return (Datum) 0;
}
