/*
 * source_callbacks.c
 *	  What decoding calls for each change and transaction.
 *
 * Two ways lead into a batch.
 *
 * *Whole* transactions come at their commit: begin, changes, commit, with nothing of another transaction in between and without what
 * was rolled back to a savepoint.  Their rows go straight into the store that the batch's whole transactions share.
 *
 * *Open* transactions that outgrow logical_decoding_work_mem are streamed in blocks while they run; blocks of several may alternate.
 * Each has a store of its own, in which consecutive rows of one subtransaction form a *run*.  At commit the runs of subtransactions
 * that were rolled back are left out.  Which ones those are is told by the list of live subtransactions that decoding holds at that
 * moment, not by stream_abort: decoding does not announce the abort of a subtransaction whose changes it had spilled to disk before it
 * could begin to stream, which happens when a long transaction is read again after a restart.
 *
 * The callbacks run inside a transaction that is always aborted, under the historic snapshot: they look at catalogs through the
 * relation cache only, run no user code, and write nothing but our stores.  Any catalog access may throw the error by which core learns
 * that a streamed transaction has aborted; nothing here is left half done by it.  Memory that outlives a callback is taken from
 * wal->context or the store's own.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "replication/origin.h"
#include "replication/reorderbuffer.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

static inline WmsWal *
wal_of(LogicalDecodingContext *ctx)
{
	return ctx->output_plugin_private;
}

/* ---------------------------------------------------------------- staging */

static void
count_run(WmsWal *wal, WmsOpenTxn *open, TransactionId xid)
{
	WmsRun	   *run = open->nruns > 0 ? &open->runs[open->nruns - 1] : NULL;

	if (run == NULL || run->xid != xid)
	{
		if (open->runs == NULL)
		{
			open->maxruns = 4;
			open->runs = MemoryContextAlloc(wal->context, sizeof(WmsRun) * open->maxruns);
		}
		else if (open->nruns == open->maxruns)
		{
			open->runs = repalloc_huge(open->runs, sizeof(WmsRun) * open->maxruns * 2);
			open->maxruns *= 2;
		}
		run = &open->runs[open->nruns++];
		run->xid = xid;
		run->from = wms_stage_end(open->stage);
		run->nrows = 0;
	}
	run->nrows++;
}

/* The store that a record of the transaction goes to; counts it. */
static WmsStage *
stage_for(WmsWal *wal, WmsOpenTxn *open, TransactionId xid)
{
	if (open == NULL)
	{
		if (wal->inline_stage == NULL)
			wal->inline_stage = wms_stage_make();
		wal->txn_rows++;
		return wal->inline_stage;
	}
	if (open->stage == NULL)
		open->stage = wms_stage_make();
	count_run(wal, open, xid);
	return open->stage;
}

static void
append(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, WmsChangeKind kind, const WmsRowShape *shape, const WmsRows *rows)
{
	WmsRecord	record;

	record.shape = shape;
	record.new_len = rows->new_row ? rows->new_row->t_len : 0;
	record.old_len = rows->old_row ? rows->old_row->t_len : 0;
	record.kind = (uint8) kind;
	record.missing_toast = rows->missing_toast;
	wms_stage_append(stage_for(wal, open, xid), &record,
					 rows->new_row ? rows->new_row->t_data : NULL,
					 rows->old_row ? rows->old_row->t_data : NULL);
}

/* Rows that must be built anew on their way: values from outside, or another layout. */
static void
append_built(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, WmsChangeKind kind, const WmsSourceRel *rel, WmsRows *rows)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(wal->scratch);

	wms_rows_flatten(rows, rel);
	for (int i = 0; i < rel->ntargets; i++)
	{
		const WmsTarget *target = &rel->targets[i];
		WmsRows		converted = *rows;

		if (target->map && converted.new_row)
			converted.new_row = execute_attr_map_tuple(converted.new_row, target->map);
		if (target->map && converted.old_row)
			converted.old_row = execute_attr_map_tuple(converted.old_row, target->map);
		append(wal, open, xid, kind, target->shape, &converted);
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextReset(wal->scratch);
}

static void
stage_rows(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, const WmsSourceRel *rel, ReorderBufferChange *change)
{
	WmsRows		rows;
	WmsChangeKind kind;

	rows.new_row = WmsChangeTuple(change->data.tp.newtuple);
	rows.old_row = NULL;
	rows.missing_toast = false;
	switch (change->action)
	{
		case REORDER_BUFFER_CHANGE_INSERT:
			kind = WMS_CHANGE_INSERT;
			break;
		case REORDER_BUFFER_CHANGE_UPDATE:
			kind = WMS_CHANGE_UPDATE;
			break;
		case REORDER_BUFFER_CHANGE_DELETE:
			kind = WMS_CHANGE_DELETE;
			rows.new_row = NULL;
			break;
		default:
			return;
	}
	/* Otherwise the old row is only a key, or not there. */
	if (kind != WMS_CHANGE_INSERT && rel->identity_full)
		rows.old_row = WmsChangeTuple(change->data.tp.oldtuple);

	if (rel->ntargets == 1 && rel->targets[0].map == NULL && !(rows.new_row && HeapTupleHasExternal(rows.new_row)))
		append(wal, open, xid, kind, rel->targets[0].shape, &rows);
	else
		append_built(wal, open, xid, kind, rel, &rows);
}

/* A row of wmstream.stream: its first column is the stream. */
static void
stage_created(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, Relation relation, ReorderBufferChange *change)
{
	HeapTuple	tuple = WmsChangeTuple(change->data.tp.newtuple);
	MemoryContext oldcontext;
	Datum		stream;
	bool		isnull;

	if (change->action != REORDER_BUFFER_CHANGE_INSERT || tuple == NULL)
		return;
	stream = heap_getattr(tuple, 1, RelationGetDescr(relation), &isnull);
	if (isnull)
		return;
	oldcontext = MemoryContextSwitchTo(wal->context);
	if (open == NULL)
		wal->txn_created = lappend_oid(wal->txn_created, DatumGetObjectId(stream));
	else
	{
		WmsOpenCreated *created = palloc(sizeof(WmsOpenCreated));

		created->xid = xid;
		created->stream = DatumGetObjectId(stream);
		open->created = lappend(open->created, created);
	}
	MemoryContextSwitchTo(oldcontext);
}

static void
take_change(WmsWal *wal, WmsOpenTxn *open, Relation relation, ReorderBufferChange *change)
{
	WmsSourceRel *rel = wms_relations_get(wal, relation);
	TransactionId xid = change->txn->xid;

	if (rel->ntargets > 0)
		stage_rows(wal, open, xid, rel, change);
	else if (rel->registry)
		stage_created(wal, open, xid, relation, change);
	if (open && rel->ntargets < rel->nlineage)
		rel->passed_over = true;
}

/* One TRUNCATE of a partitioned table names all its partitions too: each wanted table is told once. */
static void
take_truncate(WmsWal *wal, WmsOpenTxn *open, int nrelations, Relation relations[], ReorderBufferChange *change)
{
	WmsRows		none = {0};
	List	   *told = NIL;

	for (int r = 0; r < nrelations; r++)
	{
		WmsSourceRel *rel = wms_relations_get(wal, relations[r]);

		for (int i = 0; i < rel->ntargets; i++)
		{
			const WmsRowShape *shape = rel->targets[i].shape;

			if (list_member_oid(told, shape->relid))
				continue;
			told = lappend_oid(told, shape->relid);
			append(wal, open, change->txn->xid, WMS_CHANGE_TRUNCATE, shape, &none);
		}
		if (open && rel->ntargets < rel->nlineage)
			rel->passed_over = true;
	}
	list_free(told);
}

/* ---------------------------------------------------------------- ends of transactions */

/* The batch of which the transaction that ends now is a part. */
static WmsBatch *
batch_for(WmsWal *wal, ReorderBufferTXN *txn)
{
	if (wal->batch == NULL)
		wal->batch = wms_batch_make();
	wms_batch_add_txn(wal->batch, txn->xid, txn->end_lsn, txn->xact_time.commit_time);
	return wal->batch;
}

static void
note_catalog_changes(WmsWal *wal, ReorderBufferTXN *txn)
{
	if (!rbtxn_has_catalog_changes(txn))
		return;
	if (wal->batch == NULL)
		wal->batch = wms_batch_make();
	wal->batch->catalog_changes = true;
	wal->batch_ends = true;
}

static int
compare_xids(const void *a, const void *b)
{
	TransactionId x = *(const TransactionId *) a;
	TransactionId y = *(const TransactionId *) b;

	return x < y ? -1 : (x > y ? 1 : 0);
}

/* The transaction and those of its subtransactions that were not rolled back, sorted by number. */
static TransactionId *
live_xids(ReorderBufferTXN *txn, int *n)
{
	TransactionId *xids = palloc(sizeof(TransactionId) * (txn->nsubtxns + 1));
	dlist_iter	iter;

	*n = 0;
	xids[(*n)++] = txn->xid;
	dlist_foreach(iter, &txn->subtxns)
	{
		ReorderBufferTXN *sub = dlist_container(ReorderBufferTXN, node, iter.cur);

		if (*n > (int) txn->nsubtxns)
			elog(ERROR, "transaction %u has more subtransactions than were counted", txn->xid);
		xids[(*n)++] = sub->xid;
	}
	qsort(xids, *n, sizeof(TransactionId), compare_xids);
	return xids;
}

static bool
is_live(TransactionId xid, const TransactionId *xids, int n)
{
	return bsearch(&xid, xids, n, sizeof(TransactionId), compare_xids) != NULL;
}

/* Leaves out the runs that were rolled back. */
static void
drop_dead_runs(WmsOpenTxn *open, const TransactionId *xids, int n, uint64 *ends)
{
	int			kept = 0;

	for (int i = 0; i < open->nruns; i++)
	{
		uint64		end = i + 1 < open->nruns ? open->runs[i + 1].from : wms_stage_end(open->stage);

		if (!is_live(open->runs[i].xid, xids, n))
			continue;
		/* Runs that touch become one. */
		if (kept > 0 && ends[kept - 1] == open->runs[i].from)
			open->runs[kept - 1].nrows += open->runs[i].nrows;
		else
			open->runs[kept++] = open->runs[i];
		ends[kept - 1] = end;
	}
	open->nruns = kept;
}

/* The rows of an open transaction go to the batch. */
static void
commit_rows(WmsWal *wal, WmsOpenTxn *open, ReorderBufferTXN *txn)
{
	int			nxids;
	TransactionId *xids = live_xids(txn, &nxids);
	uint64	   *ends = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * (open->nruns + 1));
	bool		any_created = false;
	ListCell   *lc;

	drop_dead_runs(open, xids, nxids, ends);
	foreach(lc, open->created)
		any_created = any_created || is_live(((WmsOpenCreated *) lfirst(lc))->xid, xids, nxids);

	if (open->nruns > 0 || any_created)
	{
		WmsBatch   *batch = batch_for(wal, txn);

		if (open->nruns > 0)
		{
			WmsStage   *stage = open->stage;

			wms_batch_own(batch, stage);
			open->stage = NULL;
			for (int i = 0; i < open->nruns; i++)
				wms_batch_add_rows(batch, stage, open->runs[i].from, ends[i], open->runs[i].nrows);
		}
		foreach(lc, open->created)
		{
			WmsOpenCreated *created = lfirst(lc);

			if (is_live(created->xid, xids, nxids))
				wms_batch_add_created(batch, created->stream, txn->end_lsn);
		}
		wal->batch_ends = wal->batch_ends || any_created;
	}
	pfree(ends);
	pfree(xids);
}

static void
drop_open(WmsWal *wal, WmsOpenTxn *open)
{
	if (wal->streaming == open)
		wal->streaming = NULL;
	if (open->stage)
		wms_stage_free(open->stage);
	if (open->runs)
		pfree(open->runs);
	list_free_deep(open->created);
	hash_search(wal->open, &open->xid, HASH_REMOVE, NULL);
	if (hash_get_num_entries(wal->open) == 0)
		wms_relations_none_open(wal);
}

static WmsOpenTxn *
find_open(WmsWal *wal, TransactionId xid, bool create)
{
	WmsOpenTxn *open;
	bool		found;

	open = hash_search(wal->open, &xid, create ? HASH_ENTER : HASH_FIND, &found);
	if (!found && create)
	{
		memset(open, 0, sizeof(WmsOpenTxn));
		open->xid = xid;
	}
	return open;
}

/* ---------------------------------------------------------------- whole transactions */

static void
begin_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	WmsWal	   *wal = wal_of(ctx);

	wal->txn_from = wal->inline_stage ? wms_stage_end(wal->inline_stage) : 0;
	wal->txn_rows = 0;
	list_free(wal->txn_created);
	wal->txn_created = NIL;
}

static void
change_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation relation, ReorderBufferChange *change)
{
	take_change(wal_of(ctx), NULL, relation, change);
}

static void
truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[], ReorderBufferChange *change)
{
	take_truncate(wal_of(ctx), NULL, nrelations, relations, change);
}

static void
commit_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	WmsWal	   *wal = wal_of(ctx);
	ListCell   *lc;

	if (wal->txn_rows > 0 || wal->txn_created != NIL)
	{
		WmsBatch   *batch = batch_for(wal, txn);

		if (wal->txn_rows > 0)
			wms_batch_add_rows(batch, wal->inline_stage, wal->txn_from, wms_stage_end(wal->inline_stage), wal->txn_rows);
		foreach(lc, wal->txn_created)
		{
			wms_batch_add_created(batch, lfirst_oid(lc), txn->end_lsn);
			wal->batch_ends = true;
		}
		wal->txn_rows = 0;
	}
	note_catalog_changes(wal, txn);
}

/* ---------------------------------------------------------------- open transactions */

static void
stream_start_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	WmsWal	   *wal = wal_of(ctx);

	wal->streaming = find_open(wal, txn->xid, true);

	/*
	 * A transaction that has done DDL sees its own catalogs, which nobody else does.  What was loaded since its last block must not be
	 * used for it; decoding only sees to the other direction.
	 */
	if (rbtxn_has_catalog_changes(txn))
		wms_relations_drop_caches(wal);
}

static void
stream_stop_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	wal_of(ctx)->streaming = NULL;
}

static WmsOpenTxn *
streaming_txn(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	WmsWal	   *wal = wal_of(ctx);

	if (wal->streaming == NULL || wal->streaming->xid != WmsTopTxn(txn)->xid)
		elog(ERROR, "change of transaction %u outside of its block", txn->xid);
	return wal->streaming;
}

static void
stream_change_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation relation, ReorderBufferChange *change)
{
	take_change(wal_of(ctx), streaming_txn(ctx, txn), relation, change);
}

static void
stream_truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[],
				   ReorderBufferChange *change)
{
	take_truncate(wal_of(ctx), streaming_txn(ctx, txn), nrelations, relations, change);
}

/* Rolled back: the whole (also when a crash ended it: abort_lsn is invalid then), or a subtransaction, which commit sees to. */
static void
stream_abort_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr abort_lsn)
{
	WmsWal	   *wal = wal_of(ctx);
	WmsOpenTxn *open;

	if (WmsTopTxn(txn) != txn)
		return;
	open = find_open(wal, txn->xid, false);
	if (open)
		drop_open(wal, open);
}

static void
stream_commit_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	WmsWal	   *wal = wal_of(ctx);
	WmsOpenTxn *open = find_open(wal, txn->xid, false);

	if (open)
	{
		commit_rows(wal, open, txn);
		drop_open(wal, open);
	}
	note_catalog_changes(wal, txn);
}

static void
message_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr message_lsn, bool transactional, const char *prefix,
		   Size message_size, const char *message)
{
}

/* ---------------------------------------------------------------- the rest */

/* What our own worker wrote and nobody reads. */
static bool
filter_by_origin_cb(LogicalDecodingContext *ctx, RepOriginId origin_id)
{
	return origin_id == DoNotReplicateId;
}

/*
 * Not the plugin's own: some minor versions throw away its relation cache there and register new invalidation callbacks with the next
 * context, until there is no room for more.  Its memory goes with the context's.
 */
static void
shutdown_cb(LogicalDecodingContext *ctx)
{
}

/* Puts our callbacks in the place of the plugin's. */
void
wms_callbacks_install(WmsWal *wal)
{
	LogicalDecodingContext *ctx = wal->ctx;
	OutputPluginCallbacks ours = {0};

	ours.startup_cb = ctx->callbacks.startup_cb;
	ours.shutdown_cb = shutdown_cb;
	ours.filter_by_origin_cb = filter_by_origin_cb;
	ours.begin_cb = begin_cb;
	ours.change_cb = change_cb;
	ours.truncate_cb = truncate_cb;
	ours.commit_cb = commit_cb;
	ours.message_cb = message_cb;
	ours.stream_start_cb = stream_start_cb;
	ours.stream_stop_cb = stream_stop_cb;
	ours.stream_abort_cb = stream_abort_cb;
	ours.stream_commit_cb = stream_commit_cb;
	ours.stream_change_cb = stream_change_cb;
	ours.stream_truncate_cb = stream_truncate_cb;
	ours.stream_message_cb = message_cb;
	ctx->callbacks = ours;
	ctx->output_plugin_private = wal;
	ctx->streaming = true;
	ctx->twophase = false;
}

void
wms_callbacks_begin(WmsWal *wal)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(TransactionId);
	ctl.entrysize = sizeof(WmsOpenTxn);
	ctl.hcxt = wal->context;
	wal->open = hash_create("wmstream open transactions", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void
wms_callbacks_reset(WmsWal *wal)
{
	HASH_SEQ_STATUS status;
	WmsOpenTxn *open;

	hash_seq_init(&status, wal->open);
	while ((open = hash_seq_search(&status)) != NULL)
		drop_open(wal, open);
	if (wal->batch)
		wms_batch_unref(wal->batch);
	wal->batch = NULL;
	wal->batch_ends = false;
	if (wal->inline_stage)
		wms_stage_free(wal->inline_stage);
	wal->inline_stage = NULL;
	list_free(wal->txn_created);
	wal->txn_created = NIL;
	wal->streaming = NULL;
}
