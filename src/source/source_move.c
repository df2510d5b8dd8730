/*
 * source_move.c
 *	  Updates that move a row from one partition to another.
 *
 * The server writes them as a DELETE in one partition and an INSERT in another.  For a stream over the partitioned table they are
 * updates: taken as they come, a row would be an event a second time.  The record of the DELETE bears a flag, which decoding does not
 * hand on; so the *positions* of such records are noted while WAL is read, and a DELETE that is decoded from one of them is held back as
 * a *move* until the INSERT comes, by the same subtransaction, that has a wanted table in common with it.  For those tables the two
 * become one UPDATE.  What finds no INSERT (a trigger may have suppressed it) is staged as the DELETE that it is.
 *
 * Called by source_wal.c (noting) and source_take.c (the rest).  Moves are held per transaction: in WmsWal for the whole one, in
 * WmsOpenTxn for one that is streamed, as a block may end between the two changes.
 */
#include "postgres.h"

#include "access/heapam_xlog.h"
#include "access/htup_details.h"
#include "access/rmgr.h"
#include "access/xlogreader.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

/* Positions kept before those of transactions that are gone are looked for. */
#define FIRST_PRUNE_AT 4096

void
wms_moves_begin(WmsWal *wal)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(XLogRecPtr);
	ctl.entrysize = sizeof(XLogRecPtr);
	ctl.hcxt = wal->context;
	wal->moves = hash_create("wmstream moves between partitions", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	wal->prune_moves_at = FIRST_PRUNE_AT;
}

/* Forgets the positions that lie before (InvalidXLogRecPtr: all). */
static void
forget(WmsWal *wal, XLogRecPtr before)
{
	HASH_SEQ_STATUS status;
	XLogRecPtr *position;

	hash_seq_init(&status, wal->moves);
	while ((position = hash_seq_search(&status)) != NULL)
		if (before == InvalidXLogRecPtr || *position < before)
			hash_search(wal->moves, position, HASH_REMOVE, NULL);
}

void
wms_moves_reset(WmsWal *wal)
{
	forget(wal, InvalidXLogRecPtr);
}

/* Most are taken when they are decoded; those of transactions that were rolled back or skipped stay behind. */
static void
prune(WmsWal *wal)
{
	ReorderBufferTXN *oldest = ReorderBufferGetOldestTXN(wal->ctx->reorder);

	forget(wal, oldest ? oldest->first_lsn : InvalidXLogRecPtr);
	wal->prune_moves_at = Max(FIRST_PRUNE_AT, 2 * hash_get_num_entries(wal->moves));
}

/* The record that was just read, before it is decoded. */
void
wms_moves_note(WmsWal *wal)
{
	XLogReaderState *reader = wal->ctx->reader;

	if (XLogRecGetRmid(reader) != RM_HEAP_ID || (XLogRecGetInfo(reader) & XLOG_HEAP_OPMASK) != XLOG_HEAP_DELETE)
		return;
	if (!(((xl_heap_delete *) XLogRecGetData(reader))->flags & XLH_DELETE_IS_PARTITION_MOVE))
		return;
	if (WmsBlockDatabase(reader) != MyDatabaseId || XLogRecGetOrigin(reader) == DoNotReplicateId)
		return;
	if (hash_get_num_entries(wal->moves) >= wal->prune_moves_at)
		prune(wal);
	hash_search(wal->moves, &reader->ReadRecPtr, HASH_ENTER, NULL);
}

/* Was the DELETE at that position part of a move?  Forgets it. */
bool
wms_moves_take(WmsWal *wal, XLogRecPtr position)
{
	bool		found;

	if (hash_get_num_entries(wal->moves) == 0)
		return false;
	hash_search(wal->moves, &position, HASH_REMOVE, &found);
	return found;
}

/* The row that left, in the shape of each wanted table.  rows are flat and in the relation's own layout; the result is in wal->context. */
WmsMove *
wms_move_make(WmsWal *wal, TransactionId xid, const WmsSourceRel *rel, const WmsRows *rows)
{
	WmsMove    *move = MemoryContextAlloc(wal->context, offsetof(WmsMove, left) + sizeof(WmsMovedRow) * rel->ntargets);

	move->xid = xid;
	move->old_is_key = rows->old_is_key;
	move->nleft = 0;
	for (int i = 0; i < rel->ntargets; i++)
	{
		WmsRows		converted;
		MemoryContext oldcontext;

		wms_rows_convert(rows, &rel->targets[i], &converted);
		oldcontext = MemoryContextSwitchTo(wal->context);
		move->left[i].shape = rel->targets[i].shape;
		move->left[i].old_row = converted.old_row ? heap_copytuple(converted.old_row) : NULL;
		move->nleft++;
		MemoryContextSwitchTo(oldcontext);
	}
	return move;
}

/* The row that left a table, if it is there with that shape: NULL otherwise. */
WmsMovedRow *
wms_move_find(WmsMove *move, const WmsRowShape *shape)
{
	for (int i = 0; i < move->nleft; i++)
		if (move->left[i].shape == shape)
			return &move->left[i];
	return NULL;
}

void
wms_move_free(WmsMove *move)
{
	for (int i = 0; i < move->nleft; i++)
		if (move->left[i].old_row)
			heap_freetuple(move->left[i].old_row);
	pfree(move);
}
