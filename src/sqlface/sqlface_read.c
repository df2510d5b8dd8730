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

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "flow/flow.h"
#include "sqlface/sqlface_internal.h"

#define SHOWN_OF_PLACE 60		/* characters of the definition that explain shows from where a refusal points */

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

/* Where a refusal points, as what stands there. */
static void
put_place(ReturnSetInfo *rsinfo, const char *definition, int location)
{
	const char *place = definition + location;
	int			rest = strcspn(place, "\r\n");
	int			shown = pg_mbcharcliplen(place, rest, SHOWN_OF_PLACE);
	int			line = 1;

	for (const char *c = definition; c < place; c++)
		line += *c == '\n';
	put_line(rsinfo, psprintf("  at line %d: %.*s%s", line, shown, place, shown < rest ? " ..." : ""));
}

/* definition: NULL if it is not known as text. */
static void
put_refusal(ReturnSetInfo *rsinfo, const char *mode, const WmsRefusal *refusal, const char *definition)
{
	put_line(rsinfo, psprintf("refused in %s mode: %s", mode, refusal->message));
	if (definition && refusal->location >= 0)
		put_place(rsinfo, definition, refusal->location);
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
	char	   *definition = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Query	   *query = wms_face_query(definition);
	const char *told = NULL;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < (int) lengthof(modes); i++)
	{
		WmsOptions	options = {.mode = modes[i].mode,.delay_us = -1,
		.force_kept = wms_force_kept_arguments,.text = definition};
		WmsRefusal *refusal = NULL;
		WmsStreamPlan *plan = wms_face_analyze(query, &options, &refusal);

		if (plan)
		{
			put_line(rsinfo, psprintf("output_mode: %s", modes[i].name));
			put_plan(rsinfo, plan);
			break;
		}
		if (!told || strcmp(told, refusal->message) != 0)
			put_refusal(rsinfo, modes[i].name, refusal, definition);
		told = refusal->message;
	}
	return (Datum) 0;
}

/* The stream, whose table and definition stay until the transaction ends. */
static WmsStreamDef *
hold_stream(Oid stream)
{
	char	   *name = get_rel_name(stream);
	WmsStreamDef *def;

	LockRelationOid(stream, AccessShareLock);
	if (name && get_rel_name(stream) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" does not exist", name)));
	def = wms_face_stream(stream);
	if (OidIsValid(def->view))
		LockRelationOid(def->view, AccessShareLock);
	return wms_face_stream(stream);	/* it may have gone while we waited */
}

Datum
wms_sql_explain_stream(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WmsStreamDef *def = hold_stream(PG_GETARG_OID(0));
	WmsOptions	options = {.mode = def->output_mode,.lateness_us = def->lateness_us,.refines = def->refined,.delay_us = def->delay_us,
	.retract = def->on_change == WMS_CHANGE_RETRACT,.result = def->stream,.force_kept = wms_force_kept_arguments};
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
		put_refusal(rsinfo, "its", refusal, NULL);
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
	return hold_stream(relid);
}

/* The state of a stream that stands still is in the log only. */
static bool
stands_still(const WmsStreamDef *def)
{
	return def->foreign || def->status == WMS_PAUSED || def->status == WMS_FAILED || def->status == WMS_RESTORED ||
		def->status == WMS_NEEDS_RESYNC;
}

static void
read_open(const WmsStreamDef *def, WmsOpenRows *into)
{
	WmsFaceOwner scope;
	bool		still = stands_still(def);

	into->known = false;
	into->groups = 0;
	into->key = NIL;
	if (!still)
	{
		wms_face_become_owner(def, &scope);
		wms_flow_read_open(def, GetActiveSnapshot(), into);
		wms_face_leave_owner(&scope);
	}
	if (!into->known)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream \"%s\" is %s: its open windows are not in memory", get_rel_name(def->stream),
						wms_status_name(def->foreign ? WMS_RESTORED : still ? def->status : WMS_STARTING))));
}

Datum
wms_sql_open_windows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WmsStreamDef *def;
	WmsOpenRows open = {0};

	wms_require_preloaded();
	def = stream_of_argument(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	open.rows = rsinfo->setResult;
	open.desc = rsinfo->setDesc;
	open.replaced = tuplestore_begin_heap(false, false, work_mem);
	read_open(def, &open);
	tuplestore_end(open.replaced);
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

/* Columns of the result by name: the numbers that they have here are not those they had in another database. */
static TupleDesc
key_desc(Oid stream, List *names)
{
	Relation	rel = table_open(stream, AccessShareLock);
	TupleDesc	desc = CreateTemplateTupleDesc(list_length(names));
	int			i = 0;
	ListCell   *lc;

	foreach(lc, names)
	{
		AttrNumber	number = get_attnum(stream, lfirst(lc));

		if (number <= 0)		/* the flow was built over it under our lock */
			elog(ERROR, "no column \"%s\" in table \"%s\"", (char *) lfirst(lc), RelationGetRelationName(rel));
		TupleDescCopyEntry(desc, ++i, RelationGetDescr(rel), number);
		TupleDescAttr(desc, i - 1)->attnotnull = TupleDescAttr(RelationGetDescr(rel), number - 1)->attnotnull;
	}
	table_close(rel, NoLock);
	return desc;
}

static const char *
equality_of(Oid type)
{
	Oid			operator = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "type %u has no equality operator", type);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	text = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)), NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return text;
}

static const char *
key_name(TupleDesc key, int i)
{
	return quote_identifier(NameStr(TupleDescAttr(key, i)->attname));
}

static void
append_record(StringInfo sql, TupleDesc key, const char *alias)
{
	appendStringInfoString(sql, "CAST(ROW(");
	for (int i = 0; i < key->natts; i++)
		appendStringInfo(sql, "%s%s.%s", i == 0 ? "" : ", ", alias, key_name(key, i));
	appendStringInfoString(sql, ") AS pg_catalog.record)");
}

/* Is NULL in the key of this row?  False (and nothing appended) if none of the columns can be NULL. */
static bool
append_null_test(StringInfo sql, TupleDesc key, const char *alias)
{
	bool		any = false;

	for (int i = 0; i < key->natts; i++)
	{
		if (TupleDescAttr(key, i)->attnotnull)
			continue;
		appendStringInfo(sql, "%s%s.%s IS NULL", any ? " OR " : "(", alias, key_name(key, i));
		any = true;
	}
	if (any)
		appendStringInfoChar(sql, ')');
	return any;
}

/* Rows r of the result without NULL in their key, but for those that are replaced: compared column by column, so that keys may be hashed. */
static void
append_rows_without_null(StringInfo sql, TupleDesc key, const char *table)
{
	StringInfoData null_test;

	initStringInfo(&null_test);
	appendStringInfo(sql, " UNION ALL SELECT * FROM %s AS r WHERE ", table);
	if (append_null_test(&null_test, key, "r"))
		appendStringInfo(sql, "NOT %s AND ", null_test.data);
	appendStringInfoString(sql, "NOT EXISTS (SELECT FROM wms_replaced AS o WHERE ");
	for (int i = 0; i < key->natts; i++)
		appendStringInfo(sql, "%so.%s %s r.%s", i == 0 ? "" : " AND ", key_name(key, i),
						 equality_of(TupleDescAttr(key, i)->atttypid), key_name(key, i));
	appendStringInfoChar(sql, ')');
}

/* Those with NULL in their key: images are compared, which come from the same group. */
static void
append_rows_with_null(StringInfo sql, TupleDesc key, const char *table)
{
	StringInfoData null_test;

	initStringInfo(&null_test);
	if (!append_null_test(&null_test, key, "r"))
		return;
	appendStringInfo(sql, " UNION ALL SELECT * FROM %s AS r WHERE %s AND NOT EXISTS (SELECT FROM wms_replaced AS o WHERE ",
					 table, null_test.data);
	append_null_test(sql, key, "o");
	appendStringInfoString(sql, " AND ");
	append_record(sql, key, "o");
	appendStringInfoString(sql, " OPERATOR(pg_catalog.*=) ");
	append_record(sql, key, "r");
	appendStringInfoChar(sql, ')');
}

/*
 * In append mode a window is in one of the two places, but for a session that has grown since it was emitted.  In update mode an open window
 * has left its last value in the result: the newer one counts.
 */
static char *
live_query(const WmsStreamDef *def, const WmsOpenRows *open, TupleDesc key)
{
	StringInfoData sql;
	char	   *table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->stream)), get_rel_name(def->stream));

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT * FROM wms_open");
	if (open->groups == 0)
		appendStringInfo(&sql, " UNION ALL SELECT * FROM %s AS r", table);
	else if (key->natts > 0)
	{
		append_rows_without_null(&sql, key, table);
		append_rows_with_null(&sql, key, table);
	}
	return sql.data;
}

/* In complete mode every group is open for ever, and the result shows them all. */
static void
read_live(const WmsStreamDef *def, LiveRows *rows)
{
	QueryEnvironment *env = create_queryEnv();
	WmsRowSet  *open_set = wms_rowset_make(env, "wms_open", rows->desc);
	WmsRowSet  *replaced_set;
	WmsOpenRows open = {0};
	TupleDesc	key;
	WmsQuery   *query;

	open.rows = wms_rowset_begin(open_set);
	open.desc = rows->desc;
	open.replaced = tuplestore_begin_heap(false, false, work_mem);
	if (def->output_mode != WMS_COMPLETE)
		read_open(def, &open);
	key = key_desc(def->stream, open.key);
	replaced_set = wms_rowset_make(env, "wms_replaced", key);
	wms_rowset_adopt(replaced_set, open.replaced);
	query = wms_query_parse(live_query(def, &open, key), env);
	wms_query_plan(query);
	wms_query_run(query, wms_dest_call(put_live_row, rows));
	wms_rowset_end(open_set);
	wms_rowset_end(replaced_set);
}

Datum
wms_sql_live(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WmsStreamDef *def;
	LiveRows	rows;

	wms_require_preloaded();
	def = stream_of_argument(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	rows.store = rsinfo->setResult;
	rows.desc = rsinfo->setDesc;
	rows.values = palloc(rows.desc->natts * sizeof(Datum));
	rows.isnull = palloc(rows.desc->natts * sizeof(bool));
	read_live(def, &rows);
	return (Datum) 0;
}
