/*
 * sink_result.c
 *	  Finished rows into the result table.
 *
 * The rows of a firing are collected in the row set wms_rows; the keys of the groups that it
 * touched, where rows may have to be taken away, in wms_touched.  Ordinary statements then read
 * these sets: INSERT (sink_bulk.c has a faster way into plain tables); INSERT ... ON CONFLICT DO UPDATE; DELETE.  Their text is built when the sink is
 * opened, planned at first use and run as the stream's owner, so constraints, triggers,
 * partitions, defaults, generated columns, row-level security and privileges are
 * Postgres's business.  Rows are written in key order, which halves the cost of the index.
 *
 * Keys that may be NULL.  To take rows away there is a statement for each choice of key columns that are NULL, so that every row is
 * found by the key's index.  Where the whole table is compared, and where there would be too many such statements, keys are
 * compared by their images: they come from the same group both times, so equal keys have equal images, and images
 * can be merge-joined where IS NOT DISTINCT FROM could only be tried pair by pair.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "sink/sink_internal.h"

#define NULLABLE_MAX 4			/* key columns that may be NULL, for statements of their own */

struct WmsSink
{
	QueryEnvironment *env;
	WmsRowSet  *rows;
	WmsRowSet  *touched;
	char	   *target;			/* quoted name of the result */
	TupleDesc	desc;
	List	   *key;			/* column numbers in desc that make the key */
	List	   *nullable;		/* those of them that the table lets be NULL */
	Oid			relid;
	AttrNumber	run;			/* column by which the rows of a firing come; 0: none */
	int			nulls;			/* of the statement that is being made: which of nullable are NULL, as bits */
	char	   *before;			/* condition on r: the row is from before what is to be written; NULL: none is */
	char	   *before_there;	/* the same on t, a row of the table */
	WmsQuery   *insert;			/* each NULL until first used */
	WmsQuery   *upsert;
	WmsQuery   *upsert_changed;
	WmsQuery   *take_away[1 << NULLABLE_MAX];
	WmsQuery   *clear_others;
};

static char *
operator_schema(Oid op)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(op));
	char	   *schema;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", op);
	schema = get_namespace_name(((Form_pg_operator) GETSTRUCT(tuple))->oprnamespace);
	ReleaseSysCache(tuple);
	return schema;
}

static const char *
column(WmsSink *sink, int attno)
{
	return quote_identifier(NameStr(TupleDescAttr(sink->desc, attno - 1)->attname));
}

/* "prefix.c1, prefix.c2" of the key columns, or of all columns. */
static void
append_columns(StringInfo sql, WmsSink *sink, const char *prefix, bool key_only)
{
	bool		first = true;

	for (int i = 1; i <= sink->desc->natts; i++)
	{
		if (key_only && !list_member_int(sink->key, i))
			continue;
		appendStringInfo(sql, "%s%s%s", first ? "" : ", ", prefix, column(sink, i));
		first = false;
	}
}

/* t.c = r.c as the key's index compares: by the type's own equality, wherever that is.  (Collations are the same, or the table does not fit.) */
static void
append_equal(StringInfo sql, WmsSink *sink, int attno, const char *a, const char *b)
{
	const char *name = column(sink, attno);
	AttrNumber	in_table = get_attnum(sink->relid, NameStr(TupleDescAttr(sink->desc, attno - 1)->attname));
	Oid			type = get_atttype(sink->relid, in_table);
	Oid			op = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;

	appendStringInfo(sql, "%s%s OPERATOR(%s.%s) %s%s", a, name, quote_identifier(operator_schema(op)), get_opname(op), b, name);
}

static void
append_images_match(StringInfo sql, WmsSink *sink, const char *a, const char *b)
{
	appendStringInfoString(sql, "ROW(");
	append_columns(sql, sink, a, true);
	appendStringInfoString(sql, ")::pg_catalog.record OPERATOR(pg_catalog.*=) ROW(");
	append_columns(sql, sink, b, true);
	appendStringInfoString(sql, ")::pg_catalog.record");
}

/* Keys that are alike; of those that may be NULL, sink->nulls are. */
static void
append_key_match(StringInfo sql, WmsSink *sink, const char *a, const char *b)
{
	bool		first = true;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, sink->key)
	{
		int			attno = lfirst_int(lc);
		const char *name = column(sink, attno);

		if (!first)
			appendStringInfoString(sql, " AND ");
		first = false;
		if (list_member_int(sink->nullable, attno) && (sink->nulls & (1 << n++)) != 0)
			appendStringInfo(sql, "%s%s IS NULL AND %s%s IS NULL", a, name, b, name);
		else
			append_equal(sql, sink, attno, a, b);
	}
}

static void
append_row_differs(StringInfo sql, WmsSink *sink, const char *a, const char *b, const char *op)
{
	appendStringInfoString(sql, "ROW(");
	append_columns(sql, sink, a, false);
	appendStringInfo(sql, ")::pg_catalog.record OPERATOR(pg_catalog.%s) ROW(", op);
	append_columns(sql, sink, b, false);
	appendStringInfoString(sql, ")::pg_catalog.record");
}

static void
append_insert(StringInfo sql, WmsSink *sink)
{
	appendStringInfo(sql, "INSERT INTO %s AS t (", sink->target);
	append_columns(sql, sink, "", false);
	appendStringInfoString(sql, ") SELECT ");
	append_columns(sql, sink, "r.", false);
	appendStringInfoString(sql, " FROM wms_rows r");
	if (sink->before)
		appendStringInfo(sql, " WHERE (%s) IS NOT TRUE", sink->before);
}

static void
append_order(StringInfo sql, WmsSink *sink)
{
	if (sink->key == NIL)
		return;
	appendStringInfoString(sql, " ORDER BY ");
	append_columns(sql, sink, "r.", true);
}

/*
 * A time as an expression of SQL.  Without its zone's name, which in date styles other than ISO is an abbreviation that is read back as
 * another zone's.
 */
char *
wms_time_literal(WmsTime time, bool tz)
{
	char	   *value = quote_literal_cstr(DatumGetCString(DirectFunctionCall1(timestamp_out, TimestampGetDatum(time))));

	if (!tz)
		return psprintf("%s::pg_catalog.timestamp", value);
	return psprintf("pg_catalog.timezone('UTC'::pg_catalog.text, %s::pg_catalog.timestamp)", value);
}

/* Is the row (alias with its dot) from before since?  NULL where its time is not known. */
static char *
before_since(WmsSink *sink, const WmsShownTime *shown, WmsTime since, const char *alias)
{
	Form_pg_attribute att = TupleDescAttr(sink->desc, shown->column - 1);
	bool		tz = att->atttypid == TIMESTAMPTZOID || att->atttypid == TSTZRANGEOID;
	WmsTime		limit = shown->kind == WMS_SHOWN_LOWER ? wms_time_add(since, -shown->size) : since;

	return psprintf("%s%s%s%s OPERATOR(pg_catalog.%s) %s", shown->kind == WMS_SHOWN_RANGE ? "pg_catalog.upper(" : "",
					alias, column(sink, shown->column), shown->kind == WMS_SHOWN_RANGE ? ")" : "",
					shown->kind == WMS_SHOWN_EVENT ? "<" : "<=", wms_time_literal(limit, tz));
}

static WmsQuery *
plan(WmsSink *sink, StringInfo sql)
{
	WmsQuery   *q = wms_query_parse(sql->data, sink->env);

	wms_query_plan(q);
	return q;
}

static WmsQuery *
make_insert(WmsSink *sink)
{
	StringInfoData sql;

	initStringInfo(&sql);
	append_insert(&sql, sink);
	append_order(&sql, sink);
	return plan(sink, &sql);
}

/* Rows that the table does not hold as they are, compared whole; a conflict would lock the others. */
static void
append_only_missing(StringInfo sql, WmsSink *sink)
{
	appendStringInfo(sql, " %s NOT EXISTS (SELECT FROM %s x WHERE ", sink->before ? "AND" : "WHERE", sink->target);
	append_row_differs(sql, sink, "x.", "r.", "*=");
	appendStringInfoString(sql, ")");
}

/* The row under its key becomes the new one; only_changed leaves equal rows alone. */
static WmsQuery *
make_upsert(WmsSink *sink, bool only_changed)
{
	StringInfoData sql;
	bool		any = false;

	initStringInfo(&sql);
	append_insert(&sql, sink);
	if (only_changed)
		append_only_missing(&sql, sink);
	append_order(&sql, sink);
	appendStringInfoString(&sql, " ON CONFLICT (");
	append_columns(&sql, sink, "", true);
	appendStringInfoString(&sql, ")");
	for (int i = 1; i <= sink->desc->natts; i++)
	{
		if (list_member_int(sink->key, i))
			continue;
		appendStringInfo(&sql, "%s%s = excluded.%s", any ? ", " : " DO UPDATE SET ",
						 column(sink, i), column(sink, i));
		any = true;
	}
	if (!any)
		appendStringInfoString(&sql, " DO NOTHING");
	return plan(sink, &sql);
}

/* Without a key: rows that are not there yet, compared whole. */
static WmsQuery *
make_insert_missing(WmsSink *sink)
{
	StringInfoData sql;

	initStringInfo(&sql);
	append_insert(&sql, sink);
	append_only_missing(&sql, sink);
	return plan(sink, &sql);
}

static bool
too_many_nullable(WmsSink *sink)
{
	return list_length(sink->nullable) > NULLABLE_MAX;
}

/* By the key's index, row by row: the plan is kept while the table grows, and may be made when it is small. */
static WmsQuery *
plan_by_index(WmsSink *sink, StringInfo sql)
{
	static const char *const others[] = {"enable_hashjoin", "enable_mergejoin", "enable_seqscan"};
	int			level = NewGUCNestLevel();
	WmsQuery   *q;

	for (size_t i = 0; i < lengthof(others); i++)
		SetConfigOption(others[i], "off", PGC_USERSET, PGC_S_SESSION);
	q = plan(sink, sql);
	AtEOXact_GUC(false, level);
	return q;
}

/* Rows of the table from before what is to be written stay. */
static void
append_since(StringInfo sql, WmsSink *sink)
{
	if (sink->before_there)
		appendStringInfo(sql, " AND (%s) IS NOT TRUE", sink->before_there);
}

static WmsQuery *
make_take_away(WmsSink *sink)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "DELETE FROM %s t USING (SELECT ", sink->target);
	append_columns(&sql, sink, "", true);
	appendStringInfoString(&sql, " FROM wms_touched EXCEPT SELECT ");
	append_columns(&sql, sink, "", true);
	appendStringInfoString(&sql, " FROM wms_rows) d WHERE ");
	if (too_many_nullable(sink))
	{
		append_images_match(&sql, sink, "t.", "d.");
		append_since(&sql, sink);
		return plan(sink, &sql);
	}
	append_key_match(&sql, sink, "t.", "d.");
	append_since(&sql, sink);
	return plan_by_index(sink, &sql);
}

/* Complete mode: rows whose key (or, without one, whose image) is not in the answer any more. */
static WmsQuery *
make_clear_others(WmsSink *sink)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "DELETE FROM %s t WHERE NOT EXISTS (SELECT FROM wms_rows r WHERE ", sink->target);
	sink->nulls = 0;
	if (sink->key != NIL && sink->nullable != NIL)
		append_images_match(&sql, sink, "t.", "r.");
	else if (sink->key != NIL)
		append_key_match(&sql, sink, "t.", "r.");
	else
		append_row_differs(&sql, sink, "t.", "r.", "*=");
	appendStringInfoString(&sql, ")");
	return plan(sink, &sql);
}

static TupleDesc
key_desc(WmsSink *sink)
{
	TupleDesc	desc = CreateTemplateTupleDesc(list_length(sink->key));
	int			i = 0;
	ListCell   *lc;

	foreach(lc, sink->key)
		TupleDescCopyEntry(desc, ++i, sink->desc, lfirst_int(lc));
	return desc;
}

/* Those of the columns that the table lets be NULL. */
static List *
nullable_columns(Oid relid, TupleDesc desc, List *columns)
{
	Relation	rel = table_open(relid, AccessShareLock);
	List	   *nullable = NIL;
	ListCell   *lc;

	foreach(lc, columns)
	{
		AttrNumber	attno = get_attnum(relid, NameStr(TupleDescAttr(desc, lfirst_int(lc) - 1)->attname));

		if (attno == InvalidAttrNumber || !TupleDescAttr(RelationGetDescr(rel), attno - 1)->attnotnull)
			nullable = lappend_int(nullable, lfirst_int(lc));
	}
	table_close(rel, NoLock);
	return nullable;
}

void
wms_sink_check_logged(Oid relid, const char *as_what)
{
	const char *part = wms_foreign_part(wms_partitions(relid));

	if (part || get_rel_persistence(relid) != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be %s: it is %s", get_rel_name(relid), as_what, part ? part : "an unlogged table"),
				 errhint("Use ALTER TABLE ... SET LOGGED%s.", part ? ", or DETACH PARTITION" : "")));
}

WmsSink *
wms_sink_open(const WmsStreamDef *def, TupleDesc desc, List *key_columns, AttrNumber run)
{
	WmsSink    *sink = palloc0(sizeof(WmsSink));

	if (get_rel_name(def->stream) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the stream's result table is gone")));
	wms_sink_check_logged(def->stream, "the result of a stream");
	wms_result_check(def->stream, desc);
	sink->env = create_queryEnv();
	sink->relid = def->stream;
	sink->desc = desc;
	sink->run = run;
	sink->key = def->has_key ? key_columns : NIL;
	sink->target = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->stream)),
											  get_rel_name(def->stream));
	sink->nullable = nullable_columns(def->stream, desc, sink->key);
	sink->rows = wms_rowset_make(sink->env, "wms_rows", desc);
	sink->touched = wms_rowset_make(sink->env, "wms_touched", key_desc(sink));
	return sink;
}

Tuplestorestate *
wms_sink_rows(WmsSink *sink)
{
	return wms_rowset_begin(sink->rows);
}

Tuplestorestate *
wms_sink_touched(WmsSink *sink)
{
	return wms_rowset_begin(sink->touched);
}

void
wms_sink_end(WmsSink *sink)
{
	wms_rowset_end(sink->rows);
	wms_rowset_end(sink->touched);
}

void
wms_sink_forget(WmsSink *sink)
{
	wms_rowset_forget(sink->rows);
	wms_rowset_forget(sink->touched);
}

static int64
count_rows(WmsRowSet *set)
{
	return set->rows ? tuplestore_tuple_count(set->rows) : 0;
}

/* Statements are planned once, in the sink's own context: they outlive the batch. */
static int64
run(WmsSink *sink, WmsQuery **q, WmsQuery *(*make) (WmsSink *))
{
	if (*q == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(sink));

		*q = make(sink);
		MemoryContextSwitchTo(old);
	}
	return (int64) wms_query_write(*q);
}

static WmsQuery *
make_upsert_all(WmsSink *sink)
{
	return make_upsert(sink, false);
}

static WmsQuery *
make_upsert_changed(WmsSink *sink)
{
	return make_upsert(sink, true);
}

void
wms_sink_keep_before(WmsSink *sink, const WmsShownTime *shown, WmsTime since)
{
	sink->before = before_since(sink, shown, since, "r.");
	sink->before_there = before_since(sink, shown, since, "t.");
}

int64
wms_sink_clear(WmsSink *sink, const WmsShownTime *shown, WmsTime since)
{
	StringInfoData sql;
	WmsQuery   *q;

	initStringInfo(&sql);
	appendStringInfo(&sql, "DELETE FROM %s t", sink->target);
	if (since != WMS_TIME_MIN)
		appendStringInfo(&sql, " WHERE (%s) IS NOT TRUE", before_since(sink, shown, since, "t."));
	q = plan(sink, &sql);
	return (int64) wms_query_write(q);
}

int64
wms_sink_insert(WmsSink *sink)
{
	int64		written;

	if (count_rows(sink->rows) == 0)
		return 0;
	if (!sink->before && !wms_force_insert_statement && wms_bulk_insert(sink->relid, sink->rows, sink->key, sink->run, &written))
		return written;
	return run(sink, &sink->insert, make_insert);
}

static int64
take_away(WmsSink *sink)
{
	int			choices = too_many_nullable(sink) ? 1 : 1 << list_length(sink->nullable);
	int64		written = 0;

	for (sink->nulls = 0; sink->nulls < choices; sink->nulls++)
		written += run(sink, &sink->take_away[sink->nulls], make_take_away);
	return written;
}

int64
wms_sink_upsert(WmsSink *sink)
{
	int64		written = 0;

	Assert(sink->key != NIL);
	if (count_rows(sink->touched) > count_rows(sink->rows))
		written += take_away(sink);
	if (count_rows(sink->rows) > 0)
		written += run(sink, &sink->upsert, make_upsert_all);
	return written;
}

int64
wms_sink_replace(WmsSink *sink)
{
	int64		written = run(sink, &sink->clear_others, make_clear_others);

	if (sink->key != NIL)
		written += run(sink, &sink->upsert_changed, make_upsert_changed);
	else
		written += run(sink, &sink->insert, make_insert_missing);
	return written;
}
