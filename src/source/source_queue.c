/*
 * source_queue.c
 *	  Rows of queue tables by transaction.
 *
 * Every row of a queue bears the top-level transaction that wrote it, in a column with an index.  A position is a WmsSeen: which
 * transactions have been read.  One reading takes the rows that the active snapshot sees, of transactions that had not been seen.  These are
 * of two kinds, read one after the other, each in the order of xids:
 *
 *		old		were running at the position, and have ended since
 *		new		began after it, and have ended
 *
 * What was running then is left for later, and holds nothing up.  As the snapshot sees rows of transactions that have committed, and of these all
 * rows that were not rolled back to a savepoint, every committed row comes once and transactions come whole, in whatever order they commit.
 * A prepared transaction runs until COMMIT PREPARED.
 *
 * When enough rows are together the reading stops before the next transaction.  The position then says just what was read, which is
 * not what any snapshot saw, but as good a position.
 *
 * Several queues are read side by side, so that a transaction that wrote to more than one comes whole; within a transaction the rows come
 * table by table, each in the order of the index.
 *
 * Called by the worker in a transaction of its own, under a snapshot that it takes when it has locked the queues (wms_queue_lock): an ALTER
 * TABLE that writes all rows anew hides them from every older snapshot, and they would count as seen.  Rows are copied flat into a batch.
 * To delete rows that are not needed any more they are found by the same index (wms_queue_find).
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "source/source_internal.h"

/* One queue that is being read. */
typedef struct Cursor
{
	Relation	table;
	Relation	index;
	AttrNumber	column;
	const WmsRowShape *shape;
	IndexScanDesc scan;			/* NULL: none */
	TupleTableSlot *slot;		/* its next row */
	bool		has_row;
	uint64		xid;			/* of that row */
} Cursor;

typedef struct Reading
{
	const WmsSeen *from;
	const WmsSeen *now;			/* up to where: what a snapshot sees that is not newer than the active one */
	int			ncursors;
	Cursor	   *cursors;
	int64		max_rows;
	TimestampTz at;
	WmsStage   *stage;			/* NULL until there is a row */
	WmsBatch   *batch;
	int64		nrows;
	uint64		last_xid;		/* all up to this are read, of the kind that is being read */
	bool		full;			/* stopped before a transaction, as enough rows are together */
} Reading;

/* ---------------------------------------------------------------- tables and their indexes */

/* Not to be waited for: other streams are to go on.  A table that has just been dropped takes its streams along, in a moment. */
static Relation
lock_table(Oid relid)
{
	Relation	rel = ConditionalLockRelationOid(relid, AccessShareLock) ? try_table_open(relid, NoLock) : NULL;
	char	   *name = rel ? NULL : get_rel_name(relid);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not lock queue \"%s\"", name ? name : "?")));
	return rel;
}

void
wms_queue_lock(List *queues)
{
	ListCell   *lc;

	foreach(lc, queues)
		table_close(lock_table(lfirst_oid(lc)), NoLock);
}

static bool
is_usable(Relation index, AttrNumber column)
{
	Form_pg_index form = index->rd_index;

	return index->rd_rel->relam == BTREE_AM_OID && form->indisvalid && form->indkey.values[0] == column &&
		index->rd_opcintype[0] == XID8OID && RelationGetIndexPredicate(index) == NIL && !(index->rd_indoption[0] & INDOPTION_DESC);
}

static Relation
open_index(Relation table, AttrNumber column)
{
	Relation	found = NULL;
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(table))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (found == NULL && is_usable(index, column))
			found = index;
		else
			index_close(index, NoLock);
	}
	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("queue \"%s\" has no index on column \"%s\"", RelationGetRelationName(table), WMS_QUEUE_COLUMN),
				 errhint("Run CREATE INDEX ON %s (%s), then wmstream.resume().", RelationGetRelationName(table), WMS_QUEUE_COLUMN)));
	return found;
}

static void
open_cursor(Cursor *cursor, Oid relid)
{
	cursor->table = table_open(relid, NoLock);
	cursor->column = wms_queue_column(RelationGetDescr(cursor->table));
	if (cursor->column == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("queue \"%s\" has lost its column \"%s\"", RelationGetRelationName(cursor->table), WMS_QUEUE_COLUMN),
				 errhint("Drop the stream; then make the table a queue again by wmstream.drop_queue() and wmstream.create_queue().")));
	cursor->index = open_index(cursor->table, cursor->column);
	cursor->shape = wms_shape_get(relid, RelationGetDescr(cursor->table), false);
	cursor->slot = table_slot_create(cursor->table, NULL);
}

static void
end_scan(Cursor *cursor)
{
	if (cursor->scan)
		index_endscan(cursor->scan);
	cursor->scan = NULL;
	cursor->has_row = false;
}

static void
close_cursor(Cursor *cursor)
{
	end_scan(cursor);
	ExecDropSingleTupleTableSlot(cursor->slot);
	index_close(cursor->index, NoLock);
	table_close(cursor->table, NoLock);
}

/* ---------------------------------------------------------------- rows in the order of transactions */

/* What was running at the position to be reached may have ended by now. */
static void
advance(const Reading *reading, Cursor *cursor)
{
	bool		isnull;

	do
	{
		cursor->has_row = index_getnext_slot(cursor->scan, ForwardScanDirection, cursor->slot);
		if (!cursor->has_row)
			return;
		cursor->xid = U64FromFullTransactionId(DatumGetFullTransactionId(slot_getattr(cursor->slot, cursor->column, &isnull)));
		CHECK_FOR_INTERRUPTS();
	} while (wms_seen_running(reading->now, cursor->xid));
}

static void
begin_scan(const Reading *reading, Cursor *cursor, ScanKey keys, int nkeys)
{
	end_scan(cursor);
	cursor->scan = WmsIndexBeginScan(cursor->table, cursor->index, GetActiveSnapshot(), nkeys);
	index_rescan(cursor->scan, keys, nkeys, NULL, 0);
	advance(reading, cursor);
}

/* The one whose next row is of the least transaction; NULL: there are no more. */
static Cursor *
least(Reading *reading)
{
	Cursor	   *found = NULL;

	for (int i = 0; i < reading->ncursors; i++)
	{
		Cursor	   *cursor = &reading->cursors[i];

		if (cursor->has_row && (found == NULL || cursor->xid < found->xid))
			found = cursor;
	}
	return found;
}

static void
begin_transaction(Reading *reading, uint64 xid)
{
	if (reading->batch == NULL)
	{
		reading->batch = wms_batch_make();
		reading->stage = wms_stage_make();
		wms_batch_own(reading->batch, reading->stage);
	}
	wms_batch_add_txn(reading->batch, (TransactionId) xid, InvalidXLogRecPtr, reading->at);
	reading->last_xid = xid;
}

static void
take_row(Reading *reading, Cursor *cursor)
{
	bool		must_free;
	HeapTuple	tuple = ExecFetchSlotHeapTuple(cursor->slot, false, &must_free);
	HeapTuple	flat = HeapTupleHasExternal(tuple) ? toast_flatten_tuple(tuple, RelationGetDescr(cursor->table)) : tuple;
	uint64		from = wms_stage_end(reading->stage);
	WmsRecord  *record = wms_stage_append(reading->stage, cursor->shape, flat->t_len, 0);

	record->kind = WMS_CHANGE_INSERT;
	memcpy(WmsRecordNew(record), flat->t_data, flat->t_len);
	wms_batch_add_rows(reading->batch, reading->stage, from, wms_stage_end(reading->stage), 1);
	reading->nrows++;
	if (flat != tuple)
		heap_freetuple(flat);
	if (must_free)
		heap_freetuple(tuple);
}

/* Until nothing is left, or enough rows are together. */
static void
read_rows(Reading *reading)
{
	Cursor	   *cursor;

	while ((cursor = least(reading)) != NULL)
	{
		if (cursor->xid != reading->last_xid)
		{
			reading->full = reading->nrows >= reading->max_rows;
			if (reading->full)
				return;
			begin_transaction(reading, cursor->xid);
		}
		take_row(reading, cursor);
		advance(reading, cursor);
	}
}

/* ---------------------------------------------------------------- the two kinds of transactions */

static bool
ended_since(const Reading *reading, uint64 xid)
{
	return xid < reading->now->xmax && !wms_seen_running(reading->now, xid);
}

static void
read_old(Reading *reading)
{
	const WmsSeen *from = reading->from;
	Datum	   *xids = palloc_extended(sizeof(Datum) * Max(from->nxip, 1), MCXT_ALLOC_HUGE);
	int			n = 0;
	ScanKeyData key;

	for (uint32 i = 0; i < from->nxip; i++)
		if (ended_since(reading, from->xip[i]))
			xids[n++] = FullTransactionIdGetDatum(FullTransactionIdFromU64(from->xip[i]));
	if (n == 0)
		return;
	ScanKeyEntryInitialize(&key, SK_SEARCHARRAY, 1, BTEqualStrategyNumber, XID8OID, InvalidOid, F_XID8EQ,
						   PointerGetDatum(construct_array(xids, n, XID8OID, sizeof(uint64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
	for (int i = 0; i < reading->ncursors; i++)
		begin_scan(reading, &reading->cursors[i], &key, 1);
	read_rows(reading);
}

/* [from, upto) */
static void
set_range(ScanKey keys, uint64 from, uint64 upto)
{
	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_XID8GE, FullTransactionIdGetDatum(FullTransactionIdFromU64(from)));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_XID8LT, FullTransactionIdGetDatum(FullTransactionIdFromU64(upto)));
}

static void
read_new(Reading *reading)
{
	ScanKeyData keys[2];

	if (reading->from->xmax >= reading->now->xmax)
		return;
	reading->last_xid = reading->from->xmax - 1;
	set_range(keys, reading->from->xmax, reading->now->xmax);
	for (int i = 0; i < reading->ncursors; i++)
		begin_scan(reading, &reading->cursors[i], keys, 2);
	read_rows(reading);
}

/* ---------------------------------------------------------------- the position after it */

/* Stopped among the old ones: those up to the last are seen too. */
static WmsSeen *
seen_of_old(const Reading *reading)
{
	const WmsSeen *from = reading->from;
	WmsSeen    *seen = wms_seen_make(from->xmax, from->nxip);

	for (uint32 i = 0; i < from->nxip; i++)
		if (from->xip[i] > reading->last_xid || !ended_since(reading, from->xip[i]))
			seen->xip[seen->nxip++] = from->xip[i];
	return seen;
}

/* All that had ended is seen, up to an xid.  What was seen before stays so: a stream has seen the transaction that made it, which ran then. */
static WmsSeen *
seen_before(const Reading *reading, uint64 xmax)
{
	const WmsSeen *now = reading->now;
	WmsSeen    *seen = wms_seen_make(xmax, now->nxip);

	for (uint32 i = 0; i < now->nxip && now->xip[i] < xmax; i++)
		if (!wms_seen_has(reading->from, now->xip[i]))
			seen->xip[seen->nxip++] = now->xip[i];
	return seen;
}

/* The position that was to be reached may lack what was seen already. */
static WmsSeen *
seen_of_all(Reading *reading)
{
	if (reading->now->xmax >= reading->from->xmax)
		return seen_before(reading, reading->now->xmax);
	reading->last_xid = reading->from->xmax;
	return seen_of_old(reading);
}

static void
read_both(Reading *reading, WmsQueueRead *read)
{
	read_old(reading);
	if (reading->full)
		read->seen = seen_of_old(reading);
	else
	{
		read_new(reading);
		read->seen = reading->full ? seen_before(reading, reading->last_xid + 1) : seen_of_all(reading);
	}
}

void
wms_queue_read(List *queues, const WmsSeen *seen, const WmsSeen *upto, int64 max_rows, WmsQueueRead *read)
{
	Reading		reading = {.from = seen,.now = upto,.max_rows = max_rows,.at = GetCurrentTimestamp()};
	ListCell   *lc;

	memset(read, 0, sizeof(*read));
	reading.cursors = palloc0(sizeof(Cursor) * Max(list_length(queues), 1));
	foreach(lc, queues)
		open_cursor(&reading.cursors[reading.ncursors++], lfirst_oid(lc));
	PG_TRY();
	{
		read_both(&reading, read);
	}
	PG_CATCH();
	{
		if (reading.batch)
			wms_batch_unref(reading.batch);
		PG_RE_THROW();
	}
	PG_END_TRY();
	for (int i = 0; i < reading.ncursors; i++)
		close_cursor(&reading.cursors[i]);
	read->complete = !reading.full;
	read->batch = reading.batch;
}

void
wms_queue_read_end(WmsQueueRead *read)
{
	if (read->batch)
		wms_batch_complete_queue(read->batch, read->lsn, read->seen);
}

/* ---------------------------------------------------------------- finding */

void
wms_queue_find(Oid queue, WmsQueueFind *find)
{
	Cursor		cursor = {0};
	ScanKeyData keys[2];
	WmsSeen		none = {0};
	Reading		reading = {.now = &none};

	open_cursor(&cursor, queue);
	find->owner = cursor.table->rd_rel->relowner;
	find->has_effects = cursor.table->rd_rel->relhastriggers || cursor.table->rd_rel->relhasrules;
	find->ntids = 0;
	set_range(keys, find->from, find->upto);
	begin_scan(&reading, &cursor, keys, 2);
	while (cursor.has_row && find->ntids < find->room)
	{
		if (find->wanted(cursor.xid, find->arg))
			find->tids[find->ntids++] = cursor.slot->tts_tid;
		advance(&reading, &cursor);
	}
	close_cursor(&cursor);
}
