/*
 * source_fill.c
 *	  Rows that a stream's sources have already, in the order of their event times, as batches.
 *
 * 1. *Reading*.  The snapshot is taken (source_filled.c), and every source table, with its partitions, is read by it.  Rows are made
 *    flat, given the layout of the source table, and go into a sort by (event time, number of the row), so that rows of all
 *    sources are merged, and rows of one time stay in the order in which the tables hold them.  Rows without a usable time come first.
 * 2. *Sorting*, within maintenance_work_mem and temporary files.  The snapshot has been given back: nothing is held any more but
 *    the locks of an ordinary reader, until the transaction ends.
 * 3. The sorted rows are written into a store of their own, in memory or on disk like all stores, which outlives the transaction.
 *    From it, batches are cut as they are asked for.
 *
 * So xmin is held while rows are read, and no longer; the rows take about twice their size in temporary files while they are written
 * into the store, and once their size while they are fed.
 *
 * Rows of queue tables come in the same way; what comes after them is what the snapshot did not see.
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/tupconvert.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

#include "source/source_internal.h"

/* Rows whose event times are asked for at once. */
#define CHUNK_ROWS 4096
#define CHUNK_BYTES (4 * 1024 * 1024)

/* Columns of what is sorted. */
enum
{
	SORT_TIME,
	SORT_NUMBER,
	SORT_SHAPE,					/* number in shapes */
	SORT_ROW,
	SORT_COLUMNS
};

struct WmsFillRows
{
	MemoryContext context;
	MemoryContextCallback callback; /* the store goes with the context */
	WmsFilled  *filled;
	WmsSeen    *seen;			/* the same for queues */
	WmsStage   *stage;
	uint64		offset;			/* of the next row in it */
	int64		nrows;
	WmsTime		earliest;		/* finite event time; WMS_TIME_MAX: none */
	List	   *shapes;			/* const WmsRowShape * */
};

/* The reading that is going on. */
typedef struct Reading
{
	const WmsFillReader *reader;
	WmsFillRows *rows;
	Tuplesortstate *sort;
	TupleTableSlot *slot;		/* of what is sorted */
	MemoryContext chunk_context;
	int			shape;			/* of the rows of the chunk */
	Oid			relid;
	HeapTuple	chunk[CHUNK_ROWS];
	WmsTime		times[CHUNK_ROWS];
	int			nchunk;
	Size		chunk_bytes;
	bool		stopped;
} Reading;

/* ---------------------------------------------------------------- reading */

static TupleDesc
sort_desc(void)
{
	TupleDesc	desc = CreateTemplateTupleDesc(SORT_COLUMNS);

	TupleDescInitEntry(desc, SORT_TIME + 1, "time", INT8OID, -1, 0);
	TupleDescInitEntry(desc, SORT_NUMBER + 1, "number", INT8OID, -1, 0);
	TupleDescInitEntry(desc, SORT_SHAPE + 1, "shape", INT4OID, -1, 0);
	TupleDescInitEntry(desc, SORT_ROW + 1, "row", BYTEAOID, -1, 0);
	return desc;
}

static void
begin_sort(Reading *reading)
{
	TupleDesc	desc = sort_desc();
	AttrNumber	columns[] = {SORT_TIME + 1, SORT_NUMBER + 1};
	Oid			operators[] = {Int8LessOperator, Int8LessOperator};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};

	reading->slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	reading->sort = tuplesort_begin_heap(desc, 2, columns, operators, collations, nulls_first, maintenance_work_mem, NULL,
										 TUPLESORT_NONE);
}

static void
sort_row(Reading *reading, HeapTuple tuple, WmsTime time)
{
	TupleTableSlot *slot = reading->slot;
	bytea	   *row = palloc(VARHDRSZ + tuple->t_len);

	SET_VARSIZE(row, VARHDRSZ + tuple->t_len);
	memcpy(VARDATA(row), tuple->t_data, tuple->t_len);
	ExecClearTuple(slot);
	slot->tts_values[SORT_TIME] = Int64GetDatum(time);
	slot->tts_values[SORT_NUMBER] = Int64GetDatum(reading->rows->nrows++);
	slot->tts_values[SORT_SHAPE] = Int32GetDatum(reading->shape);
	slot->tts_values[SORT_ROW] = PointerGetDatum(row);
	memset(slot->tts_isnull, false, SORT_COLUMNS);
	ExecStoreVirtualTuple(slot);
	tuplesort_puttupleslot(reading->sort, slot);
	pfree(row);
}

/* The chunk's rows get their times and go into the sort. */
static void
end_chunk(Reading *reading)
{
	WmsFillRows *rows = reading->rows;

	reading->reader->times(reading->relid, reading->chunk, reading->nchunk, reading->times, reading->reader->arg);
	for (int i = 0; i < reading->nchunk; i++)
	{
		if (WmsTimeIsFinite(reading->times[i]))
			rows->earliest = Min(rows->earliest, reading->times[i]);
		sort_row(reading, reading->chunk[i], reading->times[i]);
	}
	reading->nchunk = 0;
	reading->chunk_bytes = 0;
	MemoryContextReset(reading->chunk_context);
	CHECK_FOR_INTERRUPTS();
	reading->stopped = !reading->reader->go_on(rows->nrows, reading->reader->arg);
}

/* A copy in the chunk's memory. */
static HeapTuple
flat_row(Reading *reading, TupleTableSlot *slot, TupleConversionMap *map)
{
	MemoryContext old = MemoryContextSwitchTo(reading->chunk_context);
	HeapTuple	tuple = ExecCopySlotHeapTuple(slot);

	if (HeapTupleHasExternal(tuple))
		tuple = toast_flatten_tuple(tuple, slot->tts_tupleDescriptor);
	if (map)
		tuple = execute_attr_map_tuple(tuple, map);
	MemoryContextSwitchTo(old);
	return wms_row_as_stored(tuple);
}

static void
read_table(Reading *reading, Relation rel, Snapshot snapshot, TupleConversionMap *map)
{
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	while (!reading->stopped && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple = flat_row(reading, slot, map);

		reading->chunk[reading->nchunk++] = tuple;
		reading->chunk_bytes += tuple->t_len;
		if (reading->nchunk == CHUNK_ROWS || reading->chunk_bytes >= CHUNK_BYTES)
			end_chunk(reading);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
}

/* The table and all its partitions, as rows of the table. */
static void
read_source(Reading *reading, Oid relid, Snapshot snapshot)
{
	Relation	root = table_open(relid, NoLock);
	List	   *members = find_all_inheritors(relid, AccessShareLock, NULL);
	ListCell   *lc;

	reading->relid = relid;
	reading->shape = list_length(reading->rows->shapes);
	reading->rows->shapes = lappend(reading->rows->shapes,
									(void *) wms_shape_get(relid, RelationGetDescr(root), root->rd_rel->relkind == RELKIND_PARTITIONED_TABLE));
	foreach(lc, members)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (rel->rd_rel->relkind == RELKIND_RELATION)
			read_table(reading, rel, snapshot, rel == root ? NULL :
					   convert_tuples_by_name(RelationGetDescr(rel), RelationGetDescr(root)));
		table_close(rel, NoLock);
	}
	if (reading->nchunk > 0)
		end_chunk(reading);
	table_close(root, NoLock);
}

/* ---------------------------------------------------------------- into the store */

static void
store_row(WmsFillRows *rows, TupleTableSlot *slot)
{
	WmsRecord  *record;
	bytea	   *row;

	slot_getallattrs(slot);
	row = DatumGetByteaPP(slot->tts_values[SORT_ROW]);
	record = wms_stage_append(rows->stage, list_nth(rows->shapes, DatumGetInt32(slot->tts_values[SORT_SHAPE])),
							  VARSIZE_ANY_EXHDR(row), 0);
	record->kind = WMS_CHANGE_INSERT;
	memcpy(WmsRecordNew(record), VARDATA_ANY(row), VARSIZE_ANY_EXHDR(row));
}

static void
store_sorted(Reading *reading)
{
	WmsFillRows *rows = reading->rows;
	TupleTableSlot *slot = MakeSingleTupleTableSlot(reading->slot->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	uint64		n = 0;

	tuplesort_performsort(reading->sort);
	rows->stage = wms_stage_make();
	while (tuplesort_gettupleslot(reading->sort, true, false, slot, NULL))
	{
		store_row(rows, slot);
		if ((++n & 0xFFF) == 0)
			CHECK_FOR_INTERRUPTS();
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* Before the snapshot is taken: it would see a table empty that an ALTER TABLE has written anew since. */
static void
lock_all(List *relids)
{
	ListCell   *lc;

	foreach(lc, relids)
		(void) find_all_inheritors(lfirst_oid(lc), AccessShareLock, NULL);
}

/* Under one snapshot. */
static void
read_all(Reading *reading, List *relids)
{
	Snapshot	snapshot = wms_filled_take(&reading->rows->filled);
	ListCell   *lc;

	reading->rows->seen = wms_seen_of_snapshot(snapshot);
	PushActiveSnapshot(snapshot);
	foreach(lc, relids)
		if (!reading->stopped)
			read_source(reading, lfirst_oid(lc), snapshot);
	PopActiveSnapshot();
	UnregisterSnapshot(snapshot);
}

static void
free_stage(void *arg)
{
	WmsFillRows *rows = arg;

	if (rows->stage)
		wms_stage_free(rows->stage);
}

static WmsFillRows *
make_rows(MemoryContext context)
{
	WmsFillRows *rows = MemoryContextAllocZero(context, sizeof(WmsFillRows));

	rows->context = context;
	rows->earliest = WMS_TIME_MAX;
	rows->callback.func = free_stage;
	rows->callback.arg = rows;
	MemoryContextRegisterResetCallback(context, &rows->callback);
	return rows;
}

WmsFillRows *
wms_fill_read(const WmsFillReader *reader, List *relids, MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "wmstream existing rows", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	WmsFillRows *rows = make_rows(context);
	Reading    *reading = palloc0(sizeof(Reading));

	reading->reader = reader;
	reading->rows = rows;
	reading->chunk_context = AllocSetContextCreate(context, "wmstream chunk of existing rows", ALLOCSET_DEFAULT_SIZES);
	begin_sort(reading);
	lock_all(relids);
	read_all(reading, relids);
	if (!reading->stopped)
	{
		reader->sorting(reader->arg);
		store_sorted(reading);
	}
	tuplesort_end(reading->sort);
	ExecDropSingleTupleTableSlot(reading->slot);
	MemoryContextDelete(reading->chunk_context);
	MemoryContextSwitchTo(old);
	if (!reading->stopped)
		return rows;
	MemoryContextDelete(rows->context);
	return NULL;
}

double
wms_source_estimate(Oid relid)
{
	List	   *members = find_all_inheritors(relid, AccessShareLock, NULL);
	double		total = 0;
	ListCell   *lc;

	foreach(lc, members)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		BlockNumber pages;
		double		rows = 0;
		double		visible;

		if (rel->rd_rel->relkind == RELKIND_RELATION)
			table_relation_estimate_size(rel, NULL, &pages, &rows, &visible);
		total += rows;
		table_close(rel, NoLock);
	}
	return total;
}

/* ---------------------------------------------------------------- batches */

WmsBatch *
wms_fill_next(WmsFillRows *rows, int64 max_rows)
{
	uint64		from = rows->offset;
	int64		n = 0;
	WmsBatch   *batch;

	while (n < max_rows && rows->offset < wms_stage_end(rows->stage))
	{
		(void) wms_stage_read(rows->stage, &rows->offset);
		n++;
	}
	if (n == 0)
		return NULL;
	batch = wms_batch_make();
	batch->existing = true;
	wms_batch_put_rows(batch, rows->stage, from, rows->offset, n, rows->filled->from);
	wms_batch_complete(batch, rows->filled->from, rows->filled->from);
	return batch;
}

const WmsFilled *
wms_fill_filled(const WmsFillRows *rows)
{
	return rows->filled;
}

const WmsSeen *
wms_fill_seen(const WmsFillRows *rows)
{
	return rows->seen;
}

int64
wms_fill_count(const WmsFillRows *rows)
{
	return rows->nrows;
}

WmsTime
wms_fill_earliest(const WmsFillRows *rows)
{
	return rows->earliest;
}
