/*
 * source_callbacks.c
 *	  What decoding calls: transactions on their way into a batch.
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

#include "replication/origin.h"
#include "replication/reorderbuffer.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

static inline WmsWal *
wal_of(LogicalDecodingContext *ctx)
{
	return ctx->output_plugin_private;
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
	wal->batch->catalog_xid = txn->xid;
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
		any_created = any_created || is_live(((WmsRegistered *) lfirst(lc))->xid, xids, nxids);

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
			const WmsRegistered *row = lfirst(lc);

			if (is_live(row->xid, xids, nxids))
				wms_batch_add_created(batch, row, txn->end_lsn);
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
	if (open->move)
		wms_move_free(open->move);
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
	list_free_deep(wal->txn_created);
	wal->txn_created = NIL;
	Assert(wal->txn_move == NULL);
}

static void
change_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation relation, ReorderBufferChange *change)
{
	wms_take_change(wal_of(ctx), NULL, relation, change);
}

static void
truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[], ReorderBufferChange *change)
{
	wms_take_truncate(wal_of(ctx), NULL, nrelations, relations, change);
}

static void
commit_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	WmsWal	   *wal = wal_of(ctx);
	ListCell   *lc;

	wms_take_end(wal, NULL);
	if (wal->txn_rows > 0 || wal->txn_created != NIL)
	{
		WmsBatch   *batch = batch_for(wal, txn);

		if (wal->txn_rows > 0)
			wms_batch_add_rows(batch, wal->inline_stage, wal->txn_from, wms_stage_end(wal->inline_stage), wal->txn_rows);
		foreach(lc, wal->txn_created)
		{
			wms_batch_add_created(batch, lfirst(lc), txn->end_lsn);
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
	wms_take_change(wal_of(ctx), streaming_txn(ctx, txn), relation, change);
}

static void
stream_truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[],
				   ReorderBufferChange *change)
{
	wms_take_truncate(wal_of(ctx), streaming_txn(ctx, txn), nrelations, relations, change);
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
		wms_take_end(wal, open);
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
	list_free_deep(wal->txn_created);
	wal->txn_created = NIL;
	if (wal->txn_move)
		wms_move_free(wal->txn_move);
	wal->txn_move = NULL;
	wal->streaming = NULL;
	wms_moves_reset(wal);
}
