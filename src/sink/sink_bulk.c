/*
 * sink_bulk.c
 *	  Finished rows into a plain table, many at a time.
 *
 * A statement puts one row after the other into a page: for each it finds and locks the page and writes a WAL record.  COPY puts a page's worth of
 * them there at once, through the access method's multi_insert, and enters them into the indexes afterwards.  The same is done here where nobody
 * could tell the difference.  A table is *plain* if an INSERT does nothing with it but checking constraints and filling indexes: it has no triggers
 * for INSERT, no rules, no row-level security that would hold the writer, no partitions, and is none; none of its constraints could see the rows
 * that are written before the one it checks; the columns that the stream does not give stay NULL; and the writer may insert into all of it.
 * Every other table gets the statement, which is the slow twin (wmstream.force_insert_statement).
 *
 * Order of events: the rows are read, in the order of the key, into slots of the table, each checked against the constraints; when
 * SLOTS_MAX rows or BYTES_MAX are together, and at the end, they are put into the table and then, row by row, into its indexes.
 *
 * Order of the rows.  Rows in the order of the key's index cost half of what they cost in any other; what order it is, and whether it is one at
 * all, is of no consequence to the result.  Rows come window by window.  So where the key begins with the window, the rows of each *run* of equal
 * windows are sorted by the rest of the key, which is often one number: sorts by one number are far cheaper than sorts by two columns of which
 * the first seldom decides.
 *
 * Memory: the executor state's, which ends with the call, but for the rows of a run, which the sort puts on disk beyond work_mem.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "sink/sink_internal.h"

#define SLOTS_MAX 1000			/* rows kept together */
#define BYTES_MAX 65536			/* and their size: some pages */

typedef struct Bulk
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *result;
	AttrNumber *given;			/* for each column of the table, the row's; 0: NULL */
	bool		as_is;			/* the row's columns are the table's */
	TupleTableSlot *slots[SLOTS_MAX];	/* NULL until first used */
	int			nslots;			/* that hold a row */
	Size		bytes;			/* of these rows */
	int64		written;
} Bulk;

/* ---------------------------------------------------------------- is the table plain? */

static bool
has_insert_triggers(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	return triggers && (triggers->trig_insert_before_row || triggers->trig_insert_after_row || triggers->trig_insert_instead_row ||
						triggers->trig_insert_before_statement || triggers->trig_insert_after_statement || triggers->trig_insert_new_table);
}

/*
 * A volatile function in a CHECK constraint may look at the table, and finds there the rows that a statement has written so far, as it may find
 * what the checks of these have written.  (Any other sees what was there before the statement, and those of indexes are not volatile.)
 */
static bool
checks_see_rows(Relation rel)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	bool		see = false;

	for (int i = 0; constr && i < constr->num_check && !see; i++)
		see = contain_volatile_functions(stringToNode(constr->check[i].ccbin));
	return see;
}

/* Would an INSERT store the value as it is, or NULL where the stream gives none (have NULL)? */
static bool
column_is_plain(Form_pg_attribute want, Form_pg_attribute have)
{
	if (want->attgenerated || want->attidentity)
		return false;
	if (!have)
		return !want->atthasdef && get_typtype(want->atttypid) != TYPTYPE_DOMAIN;
	return want->atttypid == have->atttypid && (want->atttypmod < 0 || want->atttypmod == have->atttypmod);
}

/* For each column of the table the one of desc, 0: NULL; NULL if a column needs more than that, or one of desc is not there. */
static AttrNumber *
columns_given(Relation rel, TupleDesc desc)
{
	TupleDesc	table = RelationGetDescr(rel);
	AttrNumber *given = palloc0(sizeof(AttrNumber) * table->natts);
	int			found = 0;

	for (int i = 0; i < table->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table, i);

		if (att->attisdropped)
			continue;
		given[i] = Max(SPI_fnumber(desc, NameStr(att->attname)), 0);
		if (!column_is_plain(att, given[i] > 0 ? TupleDescAttr(desc, given[i] - 1) : NULL))
			return NULL;
		found += given[i] > 0;
	}
	return found == desc->natts ? given : NULL;
}

/* Are the row's columns, natts of them, the table's, in their order?  They have its types then. */
static bool
are_columns_of(TupleDesc table, const AttrNumber *given, int natts)
{
	bool		are = table->natts == natts;

	for (int i = 0; i < natts && are; i++)
		are = given[i] == i + 1;
	return are;
}

/* By all that a statement would ask: also the schema, through which it finds the table. */
static bool
may_insert(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	return check_enable_rls(relid, InvalidOid, true) != RLS_ENABLED && WmsMayLookInto(RelationGetNamespace(rel), GetUserId()) &&
		pg_class_aclcheck(relid, GetUserId(), ACL_INSERT) == ACLCHECK_OK;
}

/* Rows are put into slots as heap tuples: not into tables of other kinds. */
static bool
is_plain(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_RELATION && !rel->rd_rel->relispartition && table_slot_callbacks(rel) == &TTSOpsBufferHeapTuple &&
		rel->rd_rules == NULL && !has_insert_triggers(rel) && !checks_see_rows(rel);
}

/* ---------------------------------------------------------------- writing */

static void
bulk_begin(Bulk *bulk)
{
	bulk->estate->es_output_cid = GetCurrentCommandId(true);
	bulk->result = makeNode(ResultRelInfo);
	InitResultRelInfo(bulk->result, bulk->rel, 0, NULL, 0);
	ExecOpenIndices(bulk->result, false);
}

static void
bulk_end(Bulk *bulk)
{
	ExecCloseIndices(bulk->result);
	ExecResetTupleTable(bulk->estate->es_tupleTable, false);
}

static void
enter_into_indexes(Bulk *bulk, TupleTableSlot *slot)
{
	/* What it finds to be checked again later is for triggers, of which there are none. */
	if (bulk->result->ri_NumIndices > 0)
		(void) WmsInsertIndexTuples(bulk->result, slot, bulk->estate);
	ResetPerTupleExprContext(bulk->estate);
}

static void
bulk_flush(Bulk *bulk)
{
	MemoryContext old;

	if (bulk->nslots == 0)
		return;
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(bulk->estate));
	table_multi_insert(bulk->rel, bulk->slots, bulk->nslots, bulk->estate->es_output_cid, 0, NULL);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < bulk->nslots; i++)
	{
		CHECK_FOR_INTERRUPTS();
		enter_into_indexes(bulk, bulk->slots[i]);
		ExecClearTuple(bulk->slots[i]);
	}
	bulk->written += bulk->nslots;
	bulk->nslots = 0;
	bulk->bytes = 0;
}

static TupleTableSlot *
next_slot(Bulk *bulk)
{
	TupleTableSlot **slot = &bulk->slots[bulk->nslots];

	if (*slot == NULL)
		*slot = table_slot_create(bulk->rel, &bulk->estate->es_tupleTable);
	return *slot;
}

static void
copy_columns(Bulk *bulk, TupleTableSlot *slot, TupleTableSlot *row)
{
	int			natts = RelationGetDescr(bulk->rel)->natts;

	slot_getallattrs(row);
	for (int i = 0; i < natts; i++)
	{
		AttrNumber	given = bulk->given[i];

		slot->tts_values[i] = given > 0 ? row->tts_values[given - 1] : (Datum) 0;
		slot->tts_isnull[i] = given > 0 ? row->tts_isnull[given - 1] : true;
	}
	ExecStoreVirtualTuple(slot);
}

/* Copies the row. */
static void
bulk_put(Bulk *bulk, TupleTableSlot *row)
{
	TupleTableSlot *slot = next_slot(bulk);

	if (bulk->as_is)
		ExecCopySlot(slot, row);
	else
		copy_columns(bulk, slot, row);
	slot->tts_tableOid = RelationGetRelid(bulk->rel);	/* a constraint may ask */
	if (RelationGetDescr(bulk->rel)->constr)
	{
		ExecConstraints(bulk->result, slot, bulk->estate);
		ResetPerTupleExprContext(bulk->estate);
	}
	bulk->bytes += ExecFetchSlotHeapTuple(slot, true, NULL)->t_len;
	bulk->nslots++;
	if (bulk->nslots == SLOTS_MAX || bulk->bytes >= BYTES_MAX)
		bulk_flush(bulk);
}

/* ---------------------------------------------------------------- in the order of the key */

typedef struct Sorted
{
	Bulk	   *bulk;
	TupleDesc	desc;
	Tuplesortstate *sort;
	bool		filled;			/* sort holds rows */
	AttrNumber	run;			/* the column by which the rows come; 0: none */
	TupleTableSlot *first;		/* of the run */
	TupleTableSlot *out;
} Sorted;

/* By the columns' own order, if they have one; NULL: none has. */
static Tuplesortstate *
begin_sort(TupleDesc desc, List *columns)
{
	int			room = list_length(columns);
	AttrNumber *attnos = palloc(sizeof(AttrNumber) * room);
	Oid		   *operators = palloc(sizeof(Oid) * room);
	Oid		   *collations = palloc(sizeof(Oid) * room);
	bool	   *nulls_first = palloc0(sizeof(bool) * room);
	int			n = 0;
	ListCell   *lc;

	foreach(lc, columns)
	{
		Form_pg_attribute att = TupleDescAttr(desc, lfirst_int(lc) - 1);
		Oid			less = lookup_type_cache(att->atttypid, TYPECACHE_LT_OPR)->lt_opr;

		if (!OidIsValid(less))
			continue;
		attnos[n] = att->attnum;
		operators[n] = less;
		collations[n++] = att->attcollation;
	}
	return n == 0 ? NULL : tuplesort_begin_heap(desc, n, attnos, operators, collations, nulls_first, work_mem, NULL, TUPLESORT_NONE);
}

static bool
in_run(Sorted *sorted, TupleTableSlot *row)
{
	Form_pg_attribute att = TupleDescAttr(sorted->desc, sorted->run - 1);
	bool		null;
	bool		first_null;
	Datum		value = slot_getattr(row, sorted->run, &null);
	Datum		first = slot_getattr(sorted->first, sorted->run, &first_null);

	return null == first_null && (null || datum_image_eq(value, first, att->attbyval, att->attlen));
}

static void
sorted_flush(Sorted *sorted)
{
	tuplesort_performsort(sorted->sort);
	while (tuplesort_gettupleslot(sorted->sort, true, false, sorted->out, NULL))
		bulk_put(sorted->bulk, sorted->out);
	tuplesort_reset(sorted->sort);
	sorted->filled = false;
}

static void
sorted_put(Sorted *sorted, TupleTableSlot *row)
{
	if (sorted->run > 0)
	{
		if (sorted->filled && !in_run(sorted, row))
			sorted_flush(sorted);
		if (!sorted->filled)
			ExecCopySlot(sorted->first, row);
	}
	tuplesort_puttupleslot(sorted->sort, row);
	sorted->filled = true;
}

static void
put_sorted(Bulk *bulk, WmsRowSet *rows, TupleTableSlot *row, Tuplesortstate *sort, AttrNumber run)
{
	List	  **table = &bulk->estate->es_tupleTable;
	Sorted		sorted = {.bulk = bulk,.desc = rows->desc,.sort = sort,.run = run};

	sorted.first = ExecAllocTableSlot(table, rows->desc, &TTSOpsMinimalTuple);
	sorted.out = ExecAllocTableSlot(table, rows->desc, &TTSOpsMinimalTuple);
	while (tuplestore_gettupleslot(rows->rows, true, false, row))
		sorted_put(&sorted, row);
	sorted_flush(&sorted);
	tuplesort_end(sort);
}

static void
put_all(Bulk *bulk, WmsRowSet *rows, List *order, AttrNumber run)
{
	TupleTableSlot *row = ExecAllocTableSlot(&bulk->estate->es_tupleTable, rows->desc, &TTSOpsMinimalTuple);
	bool		by_run = run > 0 && list_length(order) > 1 && linitial_int(order) == run;
	Tuplesortstate *sort = NULL;

	if (order != NIL && tuplestore_tuple_count(rows->rows) > 1)
		sort = begin_sort(rows->desc, by_run ? list_copy_tail(order, 1) : order);
	if (sort)
		put_sorted(bulk, rows, row, sort, by_run ? run : 0);
	else
	{
		while (tuplestore_gettupleslot(rows->rows, true, false, row))
			bulk_put(bulk, row);
	}
	bulk_flush(bulk);
}

static int64
put_rows(Relation rel, AttrNumber *given, WmsRowSet *rows, List *order, AttrNumber run)
{
	Bulk		bulk = {.rel = rel,.given = given,.as_is = are_columns_of(RelationGetDescr(rel), given, rows->desc->natts)};
	MemoryContext old;

	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	bulk.estate = CreateExecutorState();
	old = MemoryContextSwitchTo(bulk.estate->es_query_cxt);
	bulk_begin(&bulk);
	put_all(&bulk, rows, order, run);
	bulk_end(&bulk);
	MemoryContextSwitchTo(old);
	FreeExecutorState(bulk.estate);
	PopActiveSnapshot();
	CommandCounterIncrement();
	return bulk.written;
}

bool
wms_bulk_insert(Oid relid, WmsRowSet *rows, List *order, AttrNumber run, int64 *written)
{
	Relation	rel = table_open(relid, RowExclusiveLock);
	AttrNumber *given = is_plain(rel) && may_insert(rel) ? columns_given(rel, rows->desc) : NULL;

	if (given)
		*written = put_rows(rel, given, rows, order, run);
	table_close(rel, NoLock);
	return given != NULL;
}
