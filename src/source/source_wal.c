/*
 * source_wal.c
 *	  Decoding: opening, reading on, rewinding, confirming.
 *
 * A WmsWal is a held replication slot and a decoding context on it.  The slot's plugin is pgoutput, which every server allows; after its
 * startup we put our own callbacks in the place of its.  Nothing is loaded through a plugin name: our library is there because the
 * administrator preloaded it.
 *
 * The worker that decodes also writes.  A decoding context made outside of a transaction would mark the process as one that only
 * decodes, whose xid and xmin others ignore: rows it commits could vanish.  So the context is made inside a short transaction, with
 * its memory in a context of its own, and the mark is checked afterwards.
 *
 * Positions.  *read_upto* is the end of the last record read, or the start asked for while reading has not come that far (decoding
 * begins to read earlier, at the slot's restart_lsn, to know the transactions that were open at the start).  Every transaction whose
 * commit record ends at or before it has been delivered.  The slot's confirmed position follows what the caller declares durable, and
 * what lies before it can never be asked for again.
 *
 * Order of events in wms_wal_next: caches are parted (source_relation.c), records are read and decoded until something ends the batch,
 * caches are parted again.  Reading never waits: the end of the flushed WAL is a result.  Records are decoded inside one transaction,
 * which takes no snapshot of its own and no xid: core then replays each decoded transaction in a subtransaction that it rolls back, which is
 * cheaper than a transaction, and with one-row transactions that is most of the work.
 *
 * Errors.  One that is thrown while records are read leaves *reading* set; from then on only wms_wal_close is allowed.
 *
 * Called by the worker's loop, outside of transactions; inside one it works too (tests).
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "replication/decode.h"
#include "replication/slot.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

/* WAL read in one call without a transaction for us; keeps the caller's loop alive. */
#define MAX_WAL_PER_CALL	((uint64) 64 * 1024 * 1024)

/*
 * kB.  What decoding holds of a large transaction before it hands it over stays in the processor's cache: with 4 MB a row of a COPY costs
 * a tenth more.  Less would stream transactions that end soon.  A value in TOAST that is larger takes the way over a file.
 */
#define DECODING_MEMORY		512

/* ---------------------------------------------------------------- reading pages */

/* As core's callback for local WAL, but at the end of what is flushed it says so instead of sleeping. */
static int
read_page(XLogReaderState *state, XLogRecPtr page, int needed, XLogRecPtr record, char *into)
{
	TimeLineID	current;
	XLogRecPtr	upto = GetFlushRecPtr(&current);
	TimeLineID	timeline = current;
	WALReadError error;

	XLogReadDetermineTimeline(state, page, needed, current);
	if (state->currTLI != current)
	{
		/* After a promotion: the rest of an older timeline. */
		upto = state->currTLIValidUntil;
		timeline = state->currTLI;
	}
	if (page + needed > upto)
		return -1;
	/* The rest of a page that is not full yet is zero, so it may be read whole. */
	if (!WALRead(state, into, page, XLOG_BLCKSZ, timeline, &error))
		WALReadRaiseError(&error);
	return page + XLOG_BLCKSZ <= upto ? XLOG_BLCKSZ : (int) (upto - page);
}

/* ---------------------------------------------------------------- opening */

static void
set_limits(void)
{
	/* Staged rows may need any space on disk; what a transaction wrote cannot be refused. */
	SetConfigOption("temp_file_limit", "-1", PGC_SUSET, PGC_S_OVERRIDE);
	if (logical_decoding_work_mem > DECODING_MEMORY)
		SetConfigOption("logical_decoding_work_mem", "512kB", PGC_USERSET, PGC_S_OVERRIDE);
}

static void
check_slot(const WmsSlotInfo *info, const char *name)
{
	if (info->state == WMS_SLOT_MISSING)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("replication slot \"%s\" does not exist", name),
				 errhint("It was dropped, or this server was promoted or restored without it. Rebuild the streams with wmstream.resync().")));
	if (info->state == WMS_SLOT_LOST)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("replication slot \"%s\" has lost WAL that streams still need", name),
				 errhint("Raise \"max_slot_wal_keep_size\", then rebuild the streams with wmstream.resync().")));
}

/* copy_for: not the database's slot itself, but a copy of it for this stream. */
static void
acquire_slot(Oid copy_for)
{
	char	   *name = wms_slot_name(MyDatabaseId);
	WmsSlotInfo info;

	wms_slot_info(MyDatabaseId, &info);
	check_slot(&info, name);
	if (OidIsValid(copy_for))
		name = wms_slot_copy(copy_for);
	WmsSlotAcquire(name, true);
	if (MyReplicationSlot->data.database != MyDatabaseId || strcmp(NameStr(MyReplicationSlot->data.plugin), "pgoutput") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("replication slot \"%s\" was not made by wmstream", name),
				 errhint("Drop or rename it.")));
}

/* What pgoutput wants to hear before it starts. */
static List *
plugin_options(void)
{
	return list_make2(makeDefElem("proto_version", (Node *) makeString("1"), -1),
					  makeDefElem("publication_names", (Node *) makeString("wmstream"), -1));
}

static void
check_decoding_mark(void)
{
	if (MyProc->statusFlags & PROC_IN_LOGICAL_DECODING)
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("wmstream worker is marked as a process that only decodes"),
				 errdetail("Rows that it writes could be lost.")));
}

/*
 * Decoding takes its changes and transactions from slabs, whose blocks go back to the system as soon as they are empty (before server
 * version 16): with small transactions a block would be made, divided up and given back for each of them.  One place that is never
 * given back keeps a block of each.  They go with the decoding context.
 */
static void
hold_slabs(ReorderBuffer *buffer)
{
	(void) MemoryContextAlloc(buffer->change_context, sizeof(ReorderBufferChange));
	(void) MemoryContextAlloc(buffer->txn_context, sizeof(ReorderBufferTXN));
}

/* Makes the decoding context on the slot that we hold. */
static void
begin_decoding(WmsWal *wal, XLogRecPtr start)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	XLogRecPtr	confirmed = MyReplicationSlot->data.confirmed_flush;
	bool		own_transaction = !IsTransactionState();

	if (start == InvalidXLogRecPtr)
		start = confirmed;
	if (start < confirmed)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("replication slot \"%s\" no longer keeps WAL from %X/%X",
						NameStr(MyReplicationSlot->data.name), LSN_FORMAT_ARGS(start)),
				 errdetail("The earliest position is %X/%X.", LSN_FORMAT_ARGS(confirmed)),
				 errhint("Rebuild the stream with wmstream.resync().")));

	if (own_transaction)
		wms_transaction_start();
	MemoryContextSwitchTo(wal->context);
	wal->ctx = CreateDecodingContext(start, plugin_options(), false,
									 XL_ROUTINE(.page_read = read_page,
												.segment_open = wal_segment_open,
												.segment_close = wal_segment_close),
									 NULL, NULL, NULL);
	hold_slabs(wal->ctx->reorder);
	if (own_transaction)
		CommitTransactionCommand();
	MemoryContextSwitchTo(oldcontext);
	check_decoding_mark();

	wms_callbacks_install(wal);
	XLogBeginRead(wal->ctx->reader, MyReplicationSlot->data.restart_lsn);
	wal->read_upto = start;
	wal->read_again = false;
	/* What is cached now may be newer than start, and was built for another set of wanted tables. */
	wms_relations_drop_caches(wal);
	wms_relations_mistrust_caches();
}

static void
end_decoding(WmsWal *wal)
{
	LogicalDecodingContext *ctx = wal->ctx;

	wal->ctx = NULL;
	if (ctx == NULL)
		return;
	if (MyReplicationSlot != NULL)
		FreeDecodingContext(ctx);
	else
	{
		/* An error handler has given the slot back already; what the context needs of it is gone. */
		if (ctx->reader->seg.ws_file >= 0)
			wal_segment_close(ctx->reader);
		MemoryContextDelete(ctx->context);
	}
}

static WmsWal *
open_wal(XLogRecPtr start, Oid registry, Oid copy_for, WmsWanted wanted, void *arg)
{
	MemoryContext context;
	WmsWal	   *wal;

	if (MyReplicationSlot != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("this process already holds replication slot \"%s\"", NameStr(MyReplicationSlot->data.name))));
	set_limits();

	context = AllocSetContextCreate(wms_worker_context, "wmstream decoding", ALLOCSET_DEFAULT_SIZES);
	wal = MemoryContextAllocZero(context, sizeof(WmsWal));
	wal->context = context;
	wal->scratch = AllocSetContextCreate(context, "wmstream decoded row", ALLOCSET_DEFAULT_SIZES);
	wal->owner = ResourceOwnerCreate(NULL, "wmstream decoding");
	wal->registry = registry;
	wal->wanted = wanted;
	wal->arg = arg;
	wms_callbacks_begin(wal);
	wms_moves_begin(wal);
	wms_relations_begin(wal);

	/* Errors pass on, but they leave nothing behind, as the caller has nothing to close yet. */
	PG_TRY();
	{
		acquire_slot(copy_for);
		begin_decoding(wal, start);
	}
	PG_CATCH();
	{
		wms_wal_close(wal);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return wal;
}

WmsWal *
wms_wal_open(XLogRecPtr start, Oid registry, WmsWanted wanted, void *arg)
{
	return open_wal(start, registry, InvalidOid, wanted, arg);
}

/* New streams are the worker's business. */
WmsWal *
wms_wal_open_copy(Oid stream, WmsWanted wanted, void *arg)
{
	return open_wal(InvalidXLogRecPtr, InvalidOid, stream, wanted, arg);
}

void
wms_wal_close(WmsWal *wal)
{
	wms_callbacks_reset(wal);
	end_decoding(wal);
	wms_relations_end(wal);
	if (MyReplicationSlot != NULL)
		ReplicationSlotRelease();
	/* Whatever decoding has loaded may be older than what transactions must see. */
	InvalidateSystemCaches();
	if (CurrentResourceOwner == wal->owner)
		CurrentResourceOwner = NULL;
	ResourceOwnerRelease(wal->owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, true);
	ResourceOwnerRelease(wal->owner, RESOURCE_RELEASE_LOCKS, false, true);
	ResourceOwnerRelease(wal->owner, RESOURCE_RELEASE_AFTER_LOCKS, false, true);
	ResourceOwnerDelete(wal->owner);
	MemoryContextDelete(wal->context);
}

/* Broken off by an error; or an error handler of this process has given the slot back. */
static void
check_usable(WmsWal *wal)
{
	if (wal->reading || MyReplicationSlot == NULL)
		elog(ERROR, "decoding was broken off by an error and must be opened again");
}

void
wms_wal_rewind(WmsWal *wal, XLogRecPtr start)
{
	check_usable(wal);
	/* Until the new context stands there is nothing that could be read. */
	wal->reading = true;
	wms_callbacks_reset(wal);
	end_decoding(wal);
	begin_decoding(wal, start);
	wal->reading = false;
}

void
wms_wal_reset_relations(WmsWal *wal)
{
	if (wms_relations_reset(wal))
		wal->read_again = true;
}

/* ---------------------------------------------------------------- reading on */

/* Reads and decodes one record; false at the end of the flushed WAL. */
static bool
read_record(WmsWal *wal)
{
	XLogReaderState *reader = wal->ctx->reader;
	char	   *error = NULL;
	XLogRecord *record = XLogReadRecord(reader, &error);

	if (error)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read WAL after %X/%X: %s", LSN_FORMAT_ARGS(reader->EndRecPtr), error)));
	if (record == NULL)
		return false;
	wms_moves_note(wal);
	LogicalDecodingProcessRecord(wal->ctx, reader);

	/* Replaying a transaction changes both. */
	CurrentResourceOwner = wal->owner;
	MemoryContextSwitchTo(wal->ctx->context);

	if (reader->EndRecPtr > wal->read_upto)
		wal->read_upto = reader->EndRecPtr;
	return true;
}

static bool
batch_is_full(WmsWal *wal, int64 max_rows)
{
	return wal->batch_ends || (wal->batch && wal->batch->nrows >= max_rows);
}

/*
 * Reads until the batch is complete; tells whether anything was read.  Where the flushed WAL ends with a record, as it mostly does, no
 * further one is tried: the reader would forget its page and its file, and open it again with the next record.
 */
static bool
read_records(WmsWal *wal, int64 max_rows, XLogRecPtr upto)
{
	XLogReaderState *reader = wal->ctx->reader;
	XLogRecPtr	begin = reader->EndRecPtr;
	XLogRecPtr	flushed = GetFlushRecPtr(NULL);

	while (!batch_is_full(wal, max_rows) && reader->EndRecPtr - begin < MAX_WAL_PER_CALL)
	{
		if (reader->EndRecPtr >= flushed && reader->EndRecPtr >= (flushed = GetFlushRecPtr(NULL)))
			break;
		if (!XLogRecPtrIsInvalid(upto) && reader->EndRecPtr >= upto)
			break;
		CHECK_FOR_INTERRUPTS();
		if (!read_record(wal))
			break;
	}
	return reader->EndRecPtr != begin;
}

/* The batch that was filled, or an empty one, goes to the caller. */
static WmsBatch *
finish_batch(WmsWal *wal, XLogRecPtr start)
{
	WmsBatch   *batch = wal->batch ? wal->batch : wms_batch_make();

	if (wal->inline_stage)
		wms_batch_own(batch, wal->inline_stage);
	wal->inline_stage = NULL;
	wms_batch_complete(batch, start, wal->read_upto);
	wal->batch = NULL;
	wal->batch_ends = false;
	return batch;
}

WmsBatch *
wms_wal_next(WmsWal *wal, int64 max_rows, XLogRecPtr upto)
{
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext oldcontext = CurrentMemoryContext;
	bool		own_transaction = !IsTransactionState();
	XLogRecPtr	start;
	WmsBatch   *batch = NULL;

	check_usable(wal);
	if (wal->read_again)
		wms_wal_rewind(wal, wal->read_upto);
	if (wal->ctx->reader->EndRecPtr >= GetFlushRecPtr(NULL))
		return NULL;

	start = wal->read_upto;
	wal->reading = true;
	wms_relations_part_caches(wal);
	if (own_transaction)
		wms_transaction_start();
	/* The WAL reader takes buffers from the current context and keeps them. */
	MemoryContextSwitchTo(wal->ctx->context);
	CurrentResourceOwner = wal->owner;
	if (read_records(wal, max_rows, upto))
		batch = finish_batch(wal, start);
	CurrentResourceOwner = oldowner;
	if (own_transaction)
		CommitTransactionCommand();
	wms_relations_part_caches(wal);
	wal->reading = false;
	MemoryContextSwitchTo(oldcontext);
	return batch;
}

XLogRecPtr
wms_wal_read_upto(WmsWal *wal)
{
	return wal->read_upto;
}

void
wms_wal_confirm(WmsWal *wal, XLogRecPtr lsn)
{
	XLogRecPtr	confirmed;

	check_usable(wal);
	confirmed = MyReplicationSlot->data.confirmed_flush;
	lsn = Max(Min(lsn, wal->read_upto), confirmed);
	/* Even without progress: what decoding has proposed since may be acceptable now. */
	LogicalConfirmReceivedLocation(lsn);
	/* To be written with the next checkpoint, so that less is read again after a restart. */
	if (lsn > confirmed)
		ReplicationSlotMarkDirty();
}
