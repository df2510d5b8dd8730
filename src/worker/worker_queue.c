/*
 * worker_queue.c
 *	  Streams of queue tables: reading on.
 *
 * A stream whose sources are queues reads them by itself, when it has nothing queued: what committed since its position becomes its
 * next batch (source_queue.c), at most about max_batch_rows.  The batch runs like any other (worker_batch.c), and its
 * commit holds the position after it.
 *
 * It reads up to the next tick, if there is one (worker_tick.c), else up to now.
 *
 * A reading that finds no rows moves the position in memory only (read_seen): to read that stretch again after a restart costs a look
 * into an index.  It becomes durable with the next commit of the stream.
 *
 * Errors are the stream's own: it becomes blocked if the queue is locked, and failed if column or index are gone.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "worker/worker.h"

static bool had_rows = false;	/* since it was asked last */

void
wms_queue_reset(WmsRunner *runner)
{
	if (runner->read_seen)
		pfree(runner->read_seen);
	runner->read_seen = NULL;
	runner->caught_up = false;
}

bool
wms_runner_holds_queue(const WmsRunner *runner)
{
	return runner->def->reads_queues && runner->progress.seen != NULL && runner->status != WMS_RESTORED &&
		runner->status != WMS_NEEDS_RESYNC;
}

const WmsSeen *
wms_queue_position(const WmsRunner *runner)
{
	return runner->read_seen ? runner->read_seen : runner->progress.seen;
}

/* The end of the WAL is asked for first: who committed before that is seen by the snapshot, which is not taken before the queues are locked. */
static void
read_on(WmsRunner *runner, const WmsTick *tick, WmsQueueRead *read)
{
	XLogRecPtr	lsn = GetFlushRecPtr(NULL);

	wms_transaction_start();
	WMS_POINT("queue-locking");
	wms_queue_lock(runner->sources);
	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(wms_batch_context);
	wms_queue_read(runner->sources, wms_queue_position(runner), tick ? tick->seen : wms_seen_of_snapshot(GetActiveSnapshot()), wms_max_batch_rows,
				   read);
	if (read->complete)
		read->lsn = tick ? tick->lsn : lsn;
	wms_queue_read_end(read);
	PopActiveSnapshot();
	WMS_POINT("queue-read");
	CommitTransactionCommand();
	MemoryContextSwitchTo(wms_batch_context);
}

static bool
try_read(WmsRunner *runner, const WmsTick *tick, WmsQueueRead *read)
{
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		read_on(runner, tick, read);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(wms_batch_context);
		edata = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
	}
	PG_END_TRY();
	if (edata)
		wms_runner_error(runner, edata);
	return edata == NULL;
}

static void
take(WmsRunner *runner, const WmsTick *tick, WmsQueueRead *read)
{
	MemoryContext old = MemoryContextSwitchTo(runner->context);

	wms_queue_reset(runner);
	if (read->batch)
	{
		runner->queue = lappend(runner->queue, read->batch);
		runner->queue_bytes = read->batch->bytes;
	}
	else
		runner->read_seen = wms_seen_copy(read->seen);
	runner->caught_up = read->complete && tick == NULL;
	if (read->complete)
		runner->read_lsn = read->lsn;
	MemoryContextSwitchTo(old);
}

void
wms_queue_fill(WmsRunner *runner)
{
	MemoryContext old = CurrentMemoryContext;
	const WmsTick *tick;
	WmsQueueRead read;

	if (runner->status != WMS_RUNNING || runner->queue != NIL || runner->flow == NULL)
		return;
	tick = wms_next_tick(wms_queue_position(runner));
	if (try_read(runner, tick, &read))
	{
		take(runner, tick, &read);
		had_rows = had_rows || read.batch != NULL;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(wms_batch_context);
}

bool
wms_queues_had_rows(void)
{
	bool		had = had_rows;

	had_rows = false;
	return had;
}
