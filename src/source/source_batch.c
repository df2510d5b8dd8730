/*
 * source_batch.c
 *	  A batch: whole committed transactions, to be read many times.
 *
 * A *part* is a piece of a store that belongs to one transaction.  A batch is a list of parts in commit order and owns the stores
 * they lie in.  Transactions that came whole share one store, one part each; one that was streamed while it was open has a store of
 * its own, and several parts where subtransactions between them were rolled back.
 *
 * Filled by source_callbacks.c, source_queue.c or source_fill.c, complete when wms_wal_next, wms_queue_read or wms_fill_next returns it, constant from then on but for the reading position, the
 * count of references, and bundles of its rows (source_bundle.c), which come and go.  Each batch has a memory context of its own below wms_worker_context, deleted with the last reference.
 * Single-threaded like everything here: one reader at a time.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "source/source_internal.h"

typedef struct Part
{
	WmsStage   *stage;
	uint64		from;
	uint64		to;
	XLogRecPtr	end_lsn;
	TransactionId xid;
} Part;

struct WmsBatchRows
{
	MemoryContext context;
	List	   *stages;			/* List of WmsStage *, owned */
	Part	   *parts;
	int64		nparts;
	int64		maxparts;
	int			maxtxns;		/* room in batch->xids */

	/* the transaction added last */
	XLogRecPtr	end_lsn;
	TransactionId xid;

	/* reading */
	int64		at;				/* part */
	uint64		offset;			/* in its store */
	const char *span;			/* records before offset that lie in memory and are to be read first; */
	const char *span_end;		/* equal: there are none */
};

WmsBatch *
wms_batch_make(void)
{
	MemoryContext context = AllocSetContextCreate(wms_worker_context, "wmstream source batch", ALLOCSET_SMALL_SIZES);
	WmsBatch   *batch = MemoryContextAllocZero(context, sizeof(WmsBatch));

	batch->refs = 1;
	batch->rows = MemoryContextAllocZero(context, sizeof(struct WmsBatchRows));
	batch->rows->context = context;
	return batch;
}

WmsBatch *
wms_batch_of_position(XLogRecPtr end)
{
	WmsBatch   *batch = wms_batch_make();

	wms_batch_complete(batch, end, end);
	return batch;
}

void
wms_batch_add_txn(WmsBatch *batch, TransactionId xid, XLogRecPtr end_lsn, TimestampTz commit_time)
{
	struct WmsBatchRows *rows = batch->rows;

	if (batch->xids == NULL)
	{
		rows->maxtxns = 4;
		batch->xids = MemoryContextAlloc(rows->context, sizeof(TransactionId) * rows->maxtxns);
	}
	else if (batch->ntxns == rows->maxtxns)
	{
		batch->xids = repalloc(batch->xids, sizeof(TransactionId) * rows->maxtxns * 2);
		rows->maxtxns *= 2;
	}
	batch->xids[batch->ntxns++] = xid;
	rows->xid = xid;
	rows->end_lsn = end_lsn;
	batch->newest = Max(batch->newest, commit_time);
}

void
wms_batch_add_rows(WmsBatch *batch, WmsStage *stage, uint64 from, uint64 to, int64 nrows)
{
	struct WmsBatchRows *rows = batch->rows;
	Part	   *part = rows->nparts > 0 ? &rows->parts[rows->nparts - 1] : NULL;

	batch->nrows += nrows;
	if (part && part->stage == stage && part->to == from && part->xid == rows->xid && part->end_lsn == rows->end_lsn)
	{
		part->to = to;
		return;
	}
	if (rows->parts == NULL)
	{
		rows->maxparts = 2;
		rows->parts = MemoryContextAlloc(rows->context, sizeof(Part) * rows->maxparts);
	}
	else if (rows->nparts == rows->maxparts)
	{
		rows->parts = repalloc_huge(rows->parts, sizeof(Part) * rows->maxparts * 2);
		rows->maxparts *= 2;
	}
	if (rows->nparts == 0)
		rows->offset = from;
	part = &rows->parts[rows->nparts++];
	part->stage = stage;
	part->from = from;
	part->to = to;
	part->end_lsn = rows->end_lsn;
	part->xid = rows->xid;
}

void
wms_batch_put_rows(WmsBatch *batch, WmsStage *stage, uint64 from, uint64 to, int64 nrows, XLogRecPtr lsn)
{
	batch->rows->end_lsn = lsn;
	wms_batch_add_rows(batch, stage, from, to, nrows);
}

void
wms_batch_add_created(WmsBatch *batch, const WmsRegistered *row, XLogRecPtr end_lsn)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(batch->rows->context);
	WmsCreated *created = palloc(sizeof(WmsCreated));

	created->stream = row->stream;
	created->view = row->view;
	created->end_lsn = end_lsn;
	batch->created = lappend(batch->created, created);
	MemoryContextSwitchTo(oldcontext);
}

void
wms_batch_own(WmsBatch *batch, WmsStage *stage)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(batch->rows->context);

	batch->rows->stages = lappend(batch->rows->stages, stage);
	MemoryContextSwitchTo(oldcontext);
}

void
wms_batch_complete(WmsBatch *batch, XLogRecPtr start, XLogRecPtr end)
{
	ListCell   *lc;

	batch->start = start;
	batch->end = end;
	batch->bytes = (int64) MemoryContextMemAllocated(batch->rows->context, false);
	foreach(lc, batch->rows->stages)
		batch->bytes += (int64) wms_stage_held(lfirst(lc));
}

void
wms_batch_complete_queue(WmsBatch *batch, XLogRecPtr end, const WmsSeen *seen)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(batch->rows->context);

	batch->seen = wms_seen_copy(seen);
	MemoryContextSwitchTo(oldcontext);
	wms_batch_complete(batch, InvalidXLogRecPtr, end);
}

bool
wms_batch_has(const WmsBatch *batch, Oid relid)
{
	ListCell   *lc;

	foreach(lc, batch->rows->stages)
		if (wms_stage_has(lfirst(lc), relid))
			return true;
	return false;
}

void
wms_batch_ref(WmsBatch *batch)
{
	Assert(batch->refs > 0);
	batch->refs++;
}

void
wms_batch_unref(WmsBatch *batch)
{
	ListCell   *lc;

	Assert(batch->refs > 0);
	if (--batch->refs > 0)
		return;
	wms_bundles_free(batch);
	foreach(lc, batch->rows->stages)
		wms_stage_free(lfirst(lc));
	MemoryContextDelete(batch->rows->context);
}

bool
wms_batch_is_whole(const WmsBatch *batch, XLogRecPtr after)
{
	const struct WmsBatchRows *rows = batch->rows;

	return batch->seen || rows->nparts == 0 || rows->parts[0].end_lsn > after;
}

bool
wms_batch_in_memory(const WmsBatch *batch)
{
	ListCell   *lc;

	foreach(lc, batch->rows->stages)
		if (!wms_stage_in_memory(lfirst(lc)))
			return false;
	return true;
}

/* ---------------------------------------------------------------- reading */

void
wms_batch_rewind(WmsBatch *batch, XLogRecPtr after)
{
	struct WmsBatchRows *rows = batch->rows;
	int64		low = 0;
	int64		high = batch->seen ? 0 : rows->nparts;

	/* The first part beyond after: parts are in commit order.  Queues were read from the position on. */
	while (low < high)
	{
		int64		mid = low + (high - low) / 2;

		if (rows->parts[mid].end_lsn <= after)
			low = mid + 1;
		else
			high = mid;
	}
	rows->at = low;
	rows->span = rows->span_end = NULL;
	if (low < rows->nparts)
		rows->offset = rows->parts[low].from;
}

void
wms_batch_skip(WmsBatch *batch)
{
	batch->rows->at = batch->rows->nparts;
	batch->rows->span = batch->rows->span_end = NULL;
}

/* The next record when the span is used up; NULL: there is none. */
static const WmsRecord *
beyond_span(struct WmsBatchRows *rows, bool *fleeting)
{
	Part	   *part;
	uint64		from;

	while (rows->at < rows->nparts && rows->offset >= rows->parts[rows->at].to)
	{
		if (++rows->at < rows->nparts)
			rows->offset = rows->parts[rows->at].from;
	}
	if (rows->at >= rows->nparts)
		return NULL;
	part = &rows->parts[rows->at];
	from = rows->offset;
	rows->span = wms_stage_span(part->stage, &rows->offset, part->to);
	*fleeting = rows->span == NULL;
	if (*fleeting)
	{
		rows->span_end = NULL;
		return wms_stage_read(part->stage, &rows->offset);
	}
	rows->span_end = rows->span + (rows->offset - from);
	return (const WmsRecord *) rows->span;
}

bool
wms_batch_next(WmsBatch *batch, WmsChange *change)
{
	struct WmsBatchRows *rows = batch->rows;
	const WmsRecord *record = (const WmsRecord *) rows->span;
	const Part *part;

	change->fleeting = false;
	if (rows->span == rows->span_end)
		record = beyond_span(rows, &change->fleeting);
	if (record == NULL)
		return false;
	if (!change->fleeting)
		rows->span += wms_record_size(record->new_len, record->old_len);
	part = &rows->parts[rows->at];
	change->kind = (WmsChangeKind) record->kind;
	change->shape = record->shape;
	change->missing_toast = record->missing_toast;
	change->old_is_key = record->old_is_key;
	change->partial = record->partial;
	change->end_lsn = part->end_lsn;
	change->xid = part->xid;
	wms_set_tuple(&change->tuple, record->shape->relid, record->new_len, (HeapTupleHeader) WmsRecordNew(record));
	wms_set_tuple(&change->old, record->shape->relid, record->old_len, (HeapTupleHeader) WmsRecordOld(record));
	return true;
}
