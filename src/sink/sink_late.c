/*
 * sink_late.c
 *	  Rows that were put aside, into the late table.
 *
 * Rows are remembered as they come (in the batch context) and written by one INSERT at the end of
 * the batch, in the stream's own transaction, as its owner.  The source row is stored as to_jsonb gives it, without the columns that the
 * owner may not read (which these are is the flow's business), and without the one that we have added to queues.
 * Without a late table nothing is remembered; counting is the flow's business.
 *
 * A row is shown as a record of columns by which the flow reads it, not as a value of the table's type: nothing keeps the table
 * from being altered while a batch runs, and then the type says of other columns than those that are in the row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "sink/sink_internal.h"

#define LATE_COLUMNS 8

struct WmsLateSink
{
	QueryEnvironment *env;
	WmsRowSet  *set;			/* wms_late */
	WmsQuery   *insert;			/* NULL until first used */
	Oid			stream;
	char	   *target;
	int64		waiting;		/* rows in set */
	MemoryContext row;			/* while one is made */
	List	   *records;		/* LateRecord * */
	FmgrInfo	to_jsonb;		/* called for records */
};

/* How rows of a source are shown. */
typedef struct LateRecord
{
	TupleDesc	desc;			/* by which they are read, */
	const Bitmapset *columns;	/* and which of it may be shown */
	TupleDesc	record;			/* these as an anonymous type */
	int		   *from;			/* for each column of it the 0-based one of desc */
} LateRecord;

static const struct
{
	const char *name;
	Oid			type;
}			late_columns[LATE_COLUMNS] = {
	{"stream", REGCLASSOID},
	{"source", REGCLASSOID},
	{"event_time", TIMESTAMPTZOID},
	{"watermark", TIMESTAMPTZOID},
	{"reason", TEXTOID},
	{"error", TEXTOID},
	{"arrived_at", TIMESTAMPTZOID},
	{"row_data", JSONBOID}
};

static const char *const reason_names[] = {"late", "no_time", "future", "error"};

/* The function must be told its argument's type, as the parser would: by an expression that calls it. */
static void
prepare_to_jsonb(WmsLateSink *late)
{
	Const	   *argument = makeConst(RECORDOID, -1, InvalidOid, -1, (Datum) 0, true, false);

	fmgr_info(F_TO_JSONB, &late->to_jsonb);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(argument), InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &late->to_jsonb);
}

WmsLateSink *
wms_late_open(const WmsStreamDef *def)
{
	WmsLateSink *late = palloc0(sizeof(WmsLateSink));
	TupleDesc	desc = CreateTemplateTupleDesc(LATE_COLUMNS);

	if (get_rel_name(def->late_table) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the stream's late table is gone"),
				 errhint("Name another one by wmstream.alter_stream(stream, 'late_table', name), or NULL for none, and resume the stream.")));
	wms_sink_check_logged(def->late_table, "a late table");
	for (int i = 0; i < LATE_COLUMNS; i++)
		TupleDescInitEntry(desc, i + 1, late_columns[i].name, late_columns[i].type, -1, 0);
	late->env = create_queryEnv();
	late->set = wms_rowset_make(late->env, "wms_late", desc);
	late->stream = def->stream;
	late->row = AllocSetContextCreate(CurrentMemoryContext, "wmstream late row", ALLOCSET_DEFAULT_SIZES);
	prepare_to_jsonb(late);
	late->target = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->late_table)),
											  get_rel_name(def->late_table));
	return late;
}

/*
 * Values are written so that every session reads them back as they were, whatever the settings of the stream are: with SQL's intervals
 * or German dates within ranges that would depend on the reader.
 */
static Datum
portable_jsonb(WmsLateSink *late, Datum row)
{
	int			level = NewGUCNestLevel();
	Datum		value;

	(void) set_config_option("datestyle", "ISO", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("intervalstyle", "postgres", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("extra_float_digits", "1", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	value = FunctionCall1(&late->to_jsonb, row);
	AtEOXact_GUC(true, level);
	return value;
}

static bool
is_shown(TupleDesc desc, int i, const Bitmapset *columns)
{
	return !TupleDescAttr(desc, i)->attisdropped && bms_is_member(i + 1, columns) && i + 1 != wms_queue_column(desc);
}

static LateRecord *
make_record(TupleDesc desc, const Bitmapset *columns)
{
	LateRecord *record = palloc(sizeof(LateRecord));
	int			n = 0;

	record->desc = desc;
	record->columns = columns;
	record->from = palloc(sizeof(int) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		if (is_shown(desc, i, columns))
			record->from[n++] = i;
	record->record = CreateTemplateTupleDesc(n);
	for (int i = 0; i < n; i++)
		TupleDescCopyEntry(record->record, i + 1, desc, record->from[i] + 1);
	BlessTupleDesc(record->record);
	return record;
}

static LateRecord *
record_of(WmsLateSink *late, TupleDesc desc, const Bitmapset *columns)
{
	MemoryContext old;
	ListCell   *lc;

	foreach(lc, late->records)
	{
		LateRecord *record = lfirst(lc);

		if (record->desc == desc && record->columns == columns)
			return record;
	}
	old = MemoryContextSwitchTo(GetMemoryChunkContext(late));
	late->records = lappend(late->records, make_record(desc, columns));
	MemoryContextSwitchTo(old);
	return llast(late->records);
}

/* The row is formed anew as a record: the bytes in the table are not one. */
static Datum
row_as_jsonb(WmsLateSink *late, const LateRecord *record, HeapTuple row)
{
	int			natts = record->desc->natts;
	int			n = record->record->natts;
	Datum	   *values = palloc(sizeof(Datum) * (natts + n));
	bool	   *isnull = palloc(sizeof(bool) * (natts + n));

	heap_deform_tuple(row, record->desc, values, isnull);
	for (int i = 0; i < n; i++)
	{
		values[natts + i] = values[record->from[i]];
		isnull[natts + i] = isnull[record->from[i]];
	}
	return portable_jsonb(late, HeapTupleGetDatum(heap_form_tuple(record->record, values + natts, isnull + natts)));
}

void
wms_late_put(WmsLateSink *late, Oid source, TupleDesc desc, const Bitmapset *columns, HeapTuple row, bool has_time, WmsTime event_time,
			 WmsTime watermark, WmsReason reason, const char *error)
{
	Datum		values[LATE_COLUMNS];
	bool		isnull[LATE_COLUMNS] = {false};
	MemoryContext old;

	if (late->set->rows == NULL)
		wms_rowset_begin(late->set);
	old = MemoryContextSwitchTo(late->row);
	values[0] = ObjectIdGetDatum(late->stream);
	values[1] = ObjectIdGetDatum(source);
	values[2] = TimestampTzGetDatum(event_time);
	isnull[2] = !has_time;
	values[3] = TimestampTzGetDatum(watermark);
	isnull[3] = (watermark == WMS_TIME_MIN);
	values[4] = CStringGetTextDatum(reason_names[reason]);
	values[5] = error ? CStringGetTextDatum(error) : (Datum) 0;
	isnull[5] = (error == NULL);
	values[6] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[7] = row_as_jsonb(late, record_of(late, desc, columns), row);
	tuplestore_putvalues(late->set->rows, late->set->desc, values, isnull);
	MemoryContextSwitchTo(old);
	MemoryContextReset(late->row);	/* a batch may have millions */
	late->waiting++;
}

static WmsQuery *
make_insert(WmsLateSink *late)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(late));
	StringInfoData sql;
	WmsQuery   *q;

	initStringInfo(&sql);
	appendStringInfo(&sql, "INSERT INTO %s (", late->target);
	for (int i = 0; i < LATE_COLUMNS; i++)
		appendStringInfo(&sql, "%s%s", i ? ", " : "", late_columns[i].name);
	appendStringInfoString(&sql, ") SELECT * FROM wms_late");
	q = wms_query_parse(sql.data, late->env);
	wms_query_plan(q);
	MemoryContextSwitchTo(old);
	return q;
}

int64
wms_late_write(WmsLateSink *late)
{
	if (late->waiting == 0)
		return 0;
	if (late->insert == NULL)
		late->insert = make_insert(late);
	return (int64) wms_query_write(late->insert);
}

/* Whose table it is may have let the owner only write into it; then nothing is taken away. */
void
wms_late_clear(const WmsStreamDef *def, TimestampTz since)
{
	char	   *target = quote_qualified_identifier(get_namespace_name(get_rel_namespace(def->late_table)),
													get_rel_name(def->late_table));
	WmsQuery   *q;

	if (pg_class_aclmask(def->late_table, def->owner, ACL_DELETE | ACL_SELECT, ACLMASK_ALL) != (ACL_DELETE | ACL_SELECT))
		return;
	q = wms_query_parse(psprintf("DELETE FROM %s t WHERE t.stream = %u::pg_catalog.oid::pg_catalog.regclass"
								 " AND t.arrived_at >= %s", target, def->stream, wms_time_literal(since, true)),
						create_queryEnv());
	wms_query_plan(q);
	(void) wms_query_write(q);
}

void
wms_late_end(WmsLateSink *late)
{
	wms_rowset_end(late->set);
	late->waiting = 0;
}

void
wms_late_forget(WmsLateSink *late)
{
	wms_rowset_forget(late->set);
	late->waiting = 0;
}
