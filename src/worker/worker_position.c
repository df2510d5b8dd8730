/*
 * worker_position.c
 *	  Where the streams stand in WAL: what must be kept and read again for them, and what is told to those who wait.
 *
 * progress.position of a runner is durable.  One with an empty queue that is not behind has in fact consumed all that was read, as nothing in that
 * was for it.  From these the slot's position follows (the least that a stream still needs), and the point to which reading goes back when a stream
 * that can go on is *behind*: the others skip then what they have had.
 *
 * No stream holds WAL without limit: beyond max_retained_wal it stops, and has to be rebuilt.  So has one that stood at a position which
 * lies before the making of the slot.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define WAL_LOST "the replication slot was made anew since this stream read WAL last, and what was written meanwhile is lost. " \
	"Rebuild the stream with wmstream.resync()."

static XLogRecPtr slot_birth = InvalidXLogRecPtr;	/* of the slot that is open, or was */

/* ---------------------------------------------------------------- what is lost */

static bool
needs_no_wal(const WmsRunner *runner)
{
	return runner->def->reads_queues || runner->status == WMS_NEEDS_RESYNC || runner->status == WMS_RESTORED;
}

void
wms_runners_lost(const char *reason)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!needs_no_wal(runner) && (runner->end_reason == NULL || runner->end_status != WMS_NEEDS_RESYNC))
			wms_runner_fail(runner, WMS_NEEDS_RESYNC, reason);
	}
}

/*
 * Its position lies before the slot was made, so what it would have read of WAL next was let go with a former slot.  That alone tells: nobody
 * need have noticed that the former one went, nor have been able to write it down.
 */
static bool
has_lost_wal(const WmsRunner *runner)
{
	return !needs_no_wal(runner) && !runner->def->foreign && runner->def->status != WMS_NEEDS_RESYNC && runner->has_position &&
		runner->end_reason == NULL && !wms_fill_pending(runner->def) && runner->progress.position < slot_birth;
}

bool
wms_runner_sentence_lost(WmsRunner *runner)
{
	if (!has_lost_wal(runner))
		return false;
	wms_runner_sentence(runner, WMS_NEEDS_RESYNC, WAL_LOST);
	return true;
}

void
wms_runners_judge_slot(XLogRecPtr birth)
{
	ListCell   *lc;

	slot_birth = birth;
	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!runner->away && has_lost_wal(runner))
			wms_runner_fail(runner, WMS_NEEDS_RESYNC, WAL_LOST);
	}
}

/* ---------------------------------------------------------------- what is held */

bool
wms_runner_consumed_all(const WmsRunner *runner)
{
	return wms_runner_runs(runner) && runner->has_position && !runner->behind && runner->queue == NIL &&
		runner->status == WMS_RUNNING && (runner->caught_up || !runner->def->reads_queues);
}

static bool
holds_wal(const WmsRunner *runner)
{
	return !runner->away && !needs_no_wal(runner) && runner->has_position;
}

/* It may be a former stream's follower that has the table, which does not hold what the new one needs. */
static XLogRecPtr
needs_while_away(const WmsRunner *runner)
{
	XLogRecPtr	needs = wms_away_needs(runner);

	return XLogRecPtrIsInvalid(runner->hold) ? needs : Min(needs, runner->hold);
}

XLogRecPtr
wms_runners_needed(XLogRecPtr read_upto)
{
	XLogRecPtr	needed = Min(read_upto, wms_creations_hold());
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (runner->away)
		{
			needed = Min(needed, needs_while_away(runner));
			continue;
		}
		if (holds_wal(runner) && !wms_runner_consumed_all(runner))
			needed = Min(needed, runner->progress.position);
		if (!XLogRecPtrIsInvalid(runner->hold) && !needs_no_wal(runner))
			needed = Min(needed, runner->hold);
	}
	return needed;
}

/*
 * From where on a stream holds WAL; InvalidXLogRecPtr: it holds none.  What one that runs has at hand is not counted: a transaction that
 * is larger than the limit must get through.
 */
static XLogRecPtr
holds_from(const WmsRunner *runner, XLogRecPtr confirmed)
{
	if (runner->away)
		return Max(needs_while_away(runner), confirmed);
	if (!holds_wal(runner) || wms_runner_consumed_all(runner))
		return InvalidXLogRecPtr;
	if (runner->status == WMS_RUNNING && runner->queue != NIL)
		return ((WmsBatch *) linitial(runner->queue))->end;
	/* where nothing came for it its position did not move, but the slot did */
	return Max(runner->progress.position, confirmed);
}

static void
warn_of_retention(WmsRunner *runner, uint64 held, uint64 limit)
{
	if (held > limit / 2 && !runner->warned)
		ereport(WARNING,
				(errmsg("stream \"%s\" holds back %llu MB of WAL", runner->name, (unsigned long long) (held / (1024 * 1024))),
				 errdetail("Beyond wmstream.max_retained_wal (%d MB) it gives up its place and must be rebuilt.", wms_max_retained_wal),
				 errhint("See the stream's status and reason in wmstream.streams, or raise the setting.")));
	runner->warned = held > limit / 2;
}

/* No stream may hold WAL without limit: beyond max_retained_wal it gives up its place. */
void
wms_runners_check_retention(XLogRecPtr confirmed)
{
	XLogRecPtr	now = GetFlushRecPtr(NULL);
	uint64		limit = (uint64) wms_max_retained_wal * 1024 * 1024;
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);
		XLogRecPtr	from = holds_from(runner, confirmed);
		uint64		held = from != InvalidXLogRecPtr && now > from ? now - from : 0;

		wms_fill_forget_filled(runner);
		wms_take_back(runner);
		if (limit == 0)
			continue;
		warn_of_retention(runner, held, limit);
		if (held > limit && runner->end_reason == NULL && wms_runner_is_free(runner))
			wms_runner_fail(runner, WMS_NEEDS_RESYNC,
							psprintf("it held back more WAL than wmstream.max_retained_wal (%d MB) allows. "
									 "Rebuild the stream with wmstream.resync().", wms_max_retained_wal));
	}
}

/* ---------------------------------------------------------------- what is read again */

/* Does a stream that can go on miss batches? */
bool
wms_runners_behind(void)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (runner->behind && runner->has_position && runner->flow && runner->status == WMS_RUNNING &&
			wms_runner_can_run(runner, now))
			return true;
	}
	return false;
}

XLogRecPtr
wms_runners_rewind_to(XLogRecPtr read_upto)
{
	XLogRecPtr	to = read_upto;
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (wms_runner_runs(runner) && runner->flow && runner->behind && runner->has_position)
			to = Min(to, runner->progress.position);
	}
	return to;
}

bool
wms_runners_welcome(XLogRecPtr read_upto)
{
	bool		any = false;
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!runner->came_home)
			continue;
		runner->came_home = false;
		if (!wms_runner_runs(runner) || !runner->has_position || !runner->behind || runner->progress.position < read_upto)
			continue;
		(void) wms_runner_wake_up(runner);
		if (runner->status != WMS_RUNNING || runner->flow == NULL)
			continue;
		runner->behind = false;
		any = true;
	}
	return any;
}

void
wms_runners_rewound(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (wms_runner_runs(runner) && runner->flow)
			runner->behind = false;
	}
}

/* ---------------------------------------------------------------- what is told */

/* Is there somebody who cannot go on before our commits are flushed: a session in wait(), or a stream that reads what another one writes? */
bool
wms_runners_awaited(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (runner->feeds || wms_stream_awaited(runner->slot))
			return true;
	}
	return false;
}

/* Tells who waits how far each stream is; everything up to read_upto has been handed out, and our commits are flushed. */
void
wms_runners_consumed(XLogRecPtr read_upto)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		XLogRecPtr	upto = wms_runner_consumed_all(runner) ? wms_runner_read_by(runner, read_upto) : runner->progress.position;

		/* the position of one that is to be filled says nothing of what is in the result */
		if (!runner->has_position || XLogRecPtrIsInvalid(upto) || runner->away || wms_fill_pending(runner->def))
			continue;
		/* rows that wait for their firing are not in the result yet */
		if (runner->unfired)
			wms_stream_taken(runner->slot, upto, wms_runner_fires_at(runner));
		else
			wms_stream_done(runner->slot, upto);
	}
}
