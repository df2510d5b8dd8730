/*
 * sink_result.c
 *	  Finished rows into the result table.
 *
 * The rows of a firing are collected in the row set wms_rows; the keys of the groups that it
 * touched, where rows may have to be taken away, in wms_touched.  Ordinary statements then read
 * these sets: INSERT; INSERT ... ON CONFLICT DO UPDATE; DELETE.  Their text is built when the sink is
 * opened, planned at first use and run as the stream's owner, so constraints, triggers,
 * partitions, defaults, generated columns, row-level security and privileges are
 * Postgres's business.  Rows are written in key order, which halves the cost of the index.
 *
 * Keys that may be NULL are compared by their images: they come from the same group
 * both times, so equal keys have equal images, and images can be merge-joined where
 * IS NOT DISTINCT FROM could only be tried pair by pair.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "sink/sink.h"

struct WmsSink
{
	QueryEnvironment *env;
	WmsRowSet  *rows;
	WmsRowSet  *touched;
	char	   *target;			/* quoted name of the result */
	TupleDesc	desc;
	List	   *key;			/* column numbers in desc that make the key */
	bool		key_not_null;
	Oid			relid;
	WmsQuery   *insert;			/* each NULL until first used */
	WmsQuery   *upsert;
	WmsQuery   *upsert_changed;
	WmsQuery   *take_away;
	WmsQuery   *clear_others;
};

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

static void
append_key_match(StringInfo sql, WmsSink *sink, const char *a, const char *b)
{
	bool		first = true;
	ListCell   *lc;

	if (!sink->key_not_null)
	{
		appendStringInfoString(sql, "ROW(");
		append_columns(sql, sink, a, true);
		appendStringInfoString(sql, ")::pg_catalog.record OPERATOR(pg_catalog.*=) ROW(");
		append_columns(sql, sink, b, true);
		appendStringInfoString(sql, ")::pg_catalog.record");
		return;
	}
	foreach(lc, sink->key)
	{
		const char *name = column(sink, lfirst_int(lc));

		appendStringInfo(sql, "%s%s%s = %s%s", first ? "" : " AND ", a, name, b, name);
		first = false;
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
}

static void
append_order(StringInfo sql, WmsSink *sink)
{
	if (sink->key == NIL)
		return;
	appendStringInfoString(sql, " ORDER BY ");
	append_columns(sql, sink, "r.", true);
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
	appendStringInfo(sql, " WHERE NOT EXISTS (SELECT FROM %s x WHERE ", sink->target);
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
	append_key_match(&sql, sink, "t.", "d.");
	return plan(sink, &sql);
}

/* Complete mode: rows whose key (or, without one, whose image) is not in the answer any more. */
static WmsQuery *
make_clear_others(WmsSink *sink)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "DELETE FROM %s t WHERE NOT EXISTS (SELECT FROM wms_rows r WHERE ", sink->target);
	if (sink->key != NIL)
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

static bool
columns_not_null(Oid relid, TupleDesc desc, List *columns)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		all = true;
	ListCell   *lc;

	foreach(lc, columns)
	{
		AttrNumber	attno = get_attnum(relid, NameStr(TupleDescAttr(desc, lfirst_int(lc) - 1)->attname));

		if (attno == InvalidAttrNumber || !TupleDescAttr(RelationGetDescr(rel), attno - 1)->attnotnull)
			all = false;
	}
	table_close(rel, NoLock);
	return all;
}

WmsSink *
wms_sink_open(const WmsStreamDef *def, TupleDesc desc, List *key_columns)
{
	WmsSink    *sink = palloc0(sizeof(WmsSink));

	if (get_rel_name(def->stream) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the stream's result table is gone")));
	sink->env = create_queryEnv();
	sink->relid = def->stream;
	sink->desc = desc;
	sink->key = def->has_key ? key_columns : NIL;
	sink->target = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->stream)),
											  get_rel_name(def->stream));
	sink->key_not_null = columns_not_null(def->stream, desc, sink->key);
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

TupleDesc
wms_sink_touched_desc(WmsSink *sink)
{
	return sink->touched->desc;
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
	wms_query_lock(*q);
	return (int64) wms_query_run(*q, NULL);
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

int64
wms_sink_insert(WmsSink *sink)
{
	if (count_rows(sink->rows) == 0)
		return 0;
	return run(sink, &sink->insert, make_insert);
}

int64
wms_sink_upsert(WmsSink *sink)
{
	int64		written = 0;

	Assert(sink->key != NIL);
	if (count_rows(sink->touched) > count_rows(sink->rows))
		written += run(sink, &sink->take_away, make_take_away);
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
