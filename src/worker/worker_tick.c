/*
 * worker_tick.c
 *	  Ticks: what had committed when, for streams of queues that stand still.
 *
 * A queue knows by which transaction a row was written, not when that committed.  A stream that reads along does not need to know:
 * each reading brings what has committed since the last one.  One that is paused, failed or blocked would later find all that it missed in one
 * heap, in the order of xids: a transaction that was open for an hour would come before all that committed during that
 * hour, and its event times would make the others late.
 *
 * So, while a stream of queues has not caught up, the worker notes every second which transactions have ended (wmstream.tick), and the
 * stream reads from one tick to the next.  The more ticks there are the further apart they are taken.  They are deleted when no stream
 * needs them any more.  While no worker runs there are no ticks; what committed meanwhile comes in the order of xids.
 *
 * The list in memory is the table's content; only the database's worker reads and writes either.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define TICKS_APART 10000		/* with so many more they are taken half as often */

static List *ticks = NIL;		/* WmsTick *, oldest first, in wms_worker_context */
static bool loaded = false;
static TimestampTz last_taken = 0;
static WmsSeen *last_known = NULL;	/* the last tick and the transaction that wrote it */

/* Had a reader at that position all that the tick holds? */
static bool
covers(const WmsSeen *position, const WmsSeen *tick)
{
	if (position->xmax < tick->xmax)
		return false;
	for (uint32 i = 0; i < position->nxip && position->xip[i] < tick->xmax; i++)
		if (!wms_seen_running(tick, position->xip[i]))
			return false;
	return true;
}

static void
load(void)
{
	MemoryContext old;
	ListCell   *lc;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, wms_ticks())
	{
		WmsTick    *tick = lfirst(lc);
		WmsTick    *copy;

		old = MemoryContextSwitchTo(wms_worker_context);
		copy = palloc(sizeof(WmsTick));
		*copy = *tick;
		copy->seen = wms_seen_copy(tick->seen);
		ticks = lappend(ticks, copy);
		MemoryContextSwitchTo(old);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(wms_worker_context);
	loaded = true;
}

const WmsTick *
wms_next_tick(const WmsSeen *position)
{
	ListCell   *lc;

	foreach(lc, ticks)
	{
		WmsTick    *tick = lfirst(lc);

		if (!covers(position, tick->seen))
			return tick;
	}
	return NULL;
}

static bool
is_due(TimestampTz now)
{
	int64		apart = (int64) WMS_TICK_MS << Min(list_length(ticks) / TICKS_APART, 20);

	return now - last_taken >= apart * 1000;
}

/* Has anything ended but the taking of the last tick? */
static bool
is_news(const WmsSeen *seen)
{
	return ticks == NIL || last_known == NULL || !covers(last_known, seen);
}

/* In wms_worker_context, in the transaction that writes the tick. */
static void
add_tick(WmsTick *tick)
{
	wms_tick_insert(tick);
	ticks = lappend(ticks, tick);
	if (last_known)
		pfree(last_known);
	last_known = wms_seen_with_own(tick->seen, U64FromFullTransactionId(GetTopFullTransactionId()));
}

static void
take_tick(TimestampTz now)
{
	MemoryContext old = CurrentMemoryContext;
	XLogRecPtr	lsn = GetFlushRecPtr(NULL);
	WmsTick    *tick;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(wms_worker_context);
	tick = palloc(sizeof(WmsTick));
	tick->taken_at = now;
	tick->lsn = lsn;
	tick->seen = wms_seen_of_snapshot(GetActiveSnapshot());
	if (is_news(tick->seen))
		add_tick(tick);
	else
	{
		pfree(tick->seen);
		pfree(tick);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	last_taken = now;
}

/* Those that every stream that may go on is past. */
static int
count_old(void)
{
	int			n = 0;
	ListCell   *lc;
	ListCell   *ls;

	foreach(lc, ticks)
	{
		foreach(ls, wms_runners)
		{
			WmsRunner  *runner = lfirst(ls);

			if (wms_runner_holds_queue(runner) && !covers(wms_queue_position(runner), ((WmsTick *) lfirst(lc))->seen))
				return n;
		}
		n++;
	}
	return n;
}

static void
forget_old(void)
{
	int			n = count_old();

	if (n == 0)
		return;
	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_ticks_delete(((WmsTick *) list_nth(ticks, n - 1))->taken_at);
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(wms_worker_context);
	while (n-- > 0)
	{
		WmsTick    *tick = linitial(ticks);

		pfree(tick->seen);
		pfree(tick);
		ticks = list_delete_first(ticks);
	}
}

/* Does a stream that may go on stand still, or has it not caught up yet? */
bool
wms_ticks_needed(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (wms_runner_holds_queue(runner) &&
			!(runner->status == WMS_RUNNING && runner->caught_up && runner->queue == NIL))
			return true;
	}
	return false;
}

void
wms_tick(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!loaded)
		load();
	if (is_due(now) && wms_ticks_needed())
		take_tick(now);
	else if (ticks != NIL)
		forget_old();
}
