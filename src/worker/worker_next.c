/*
 * worker_next.c
 *	  What each stream does next: the batches that wait for it, commands, firings, and when there will be something.
 *
 * Each batch that is read is queued at every runner that wants it and does not have it yet; queues share batches by reference.  A runner
 * that cannot go on (blocked) keeps its queue, up to QUEUE_BYTES; then it lets the queue go and is *behind*, as is one
 * that was paused, failed or is new (worker_position.c).  A runner whose sources are queue tables takes no part in that: it reads its queues by
 * itself (worker_queue.c), when it has nothing queued, and is never behind.
 *
 * In one turn, for each stream: its end, if it has to stop; its flow and state, if they are not there or out of date; the queue; a command that was
 * given; a firing that is due without rows.  Commands (pause, resume, alter, advance) apply at a batch boundary when everything that committed before
 * the command was noticed has been consumed, so their order against the rows is the one the user saw.
 *
 * Between turns the process sleeps: not at all if something is at hand, else until the next timer of a stream.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define QUEUE_BYTES (256L * 1024 * 1024)
/* Where one firing makes room for the next: windows that close one after the other when all is idle. */
#define AGAIN_MS 10
#define ELSEWHERE_MS 1000		/* between looks at what processes of others do, which do not wake us: whether a follower or a place is to be had */

/* ---------------------------------------------------------------- batches */

void
wms_runner_let_queue_go(WmsRunner *runner)
{
	ListCell   *lc;

	foreach(lc, runner->queue)
		wms_batch_unref(lfirst(lc));
	list_free(runner->queue);
	runner->queue = NIL;
	runner->queue_bytes = 0;
	runner->consumed = NULL;
	wms_queue_reset(runner);
	/* rows of another batch would have these numbers */
	wms_skips_forget(runner);
}

bool
wms_runners_want(Oid relid, void *arg)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (wms_runner_runs(runner) && !runner->def->reads_queues && list_member_oid(runner->sources, relid))
			return true;
	}
	return false;
}

static bool
batch_concerns(WmsRunner *runner, WmsBatch *batch)
{
	ListCell   *lc;

	if (batch->nrows == 0)
		return false;
	foreach(lc, runner->sources)
		if (wms_batch_has(batch, lfirst_oid(lc)))
			return true;
	return runner->sources == NIL;
}

void
wms_runner_enqueue(WmsRunner *runner, WmsBatch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(runner->context);

	wms_batch_ref(batch);
	runner->queue = lappend(runner->queue, batch);
	runner->queue_bytes += batch->bytes;
	MemoryContextSwitchTo(old);
}

/* Hands a batch to every stream that wants it. */
void
wms_runners_take(WmsBatch *batch)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!wms_runner_runs(runner) || runner->def->reads_queues || runner->behind || !runner->has_position ||
			batch->end <= runner->progress.position || !batch_concerns(runner, batch))
			continue;
		if (runner->queue != NIL && runner->queue_bytes + batch->bytes > QUEUE_BYTES)
		{
			wms_runner_let_queue_go(runner);
			runner->behind = true;
			continue;
		}
		wms_runner_enqueue(runner, batch);
	}
}

bool
wms_runner_run_queue(WmsRunner *runner)
{
	bool		did = false;

	while (runner->queue != NIL && wms_runner_runs(runner))
	{
		WmsBatch   *batch = linitial(runner->queue);

		if (wms_rows_unseen(runner, batch))
			break;
		did = true;
		if (!wms_run_batch(runner, batch, WMS_TIME_MIN))
			break;
		if (runner->queue == NIL)
			break;
		runner->queue = list_delete_first(runner->queue);
		runner->queue_bytes -= batch->bytes;
		runner->consumed = NULL;
		wms_batch_unref(batch);
	}
	return did;
}

/* ---------------------------------------------------------------- what the clock and commands ask for */

bool
wms_runner_can_run(WmsRunner *runner, TimestampTz now)
{
	return wms_runner_runs(runner) && (runner->status != WMS_BLOCKED || now >= runner->retry_at) && !TransactionIdIsValid(runner->unseen_xid);
}

/* When the trigger interval is over; at once where the clock was set back to before the last firing. */
TimestampTz
wms_runner_fires_at(const WmsRunner *runner)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz last = runner->progress.fired_at;

	return last > now ? now : last + runner->def->trigger_us;
}

/* All that had committed when the flushed WAL ended here has been read. */
XLogRecPtr
wms_runner_read_by(const WmsRunner *runner, XLogRecPtr read_upto)
{
	return runner->def->reads_queues ? runner->read_lsn : read_upto;
}

/*
 * A stream that has just been started: builds the flow and loads the state by a batch without rows.  So does one that runs when its flow was
 * built anew without running, or when something that it depends on has changed: what is not a stream any more (its table is not logged, say) might never have a row that tells.
 */
bool
wms_runner_wake_up(WmsRunner *runner)
{
	bool		stale = runner->flow && (wms_flow_stale(runner->flow) || (runner->has_position && !wms_flow_has_begun(runner->flow)));
	int			retries = runner->retries;
	int			timeouts = runner->timeouts;
	bool		ok;

	if (runner->queue != NIL)
		return false;
	if (runner->flow && runner->store && !stale && (runner->status == WMS_RUNNING || !runner->has_position))
		return false;
	runner->looking = stale && runner->store && runner->status == WMS_RUNNING;
	ok = wms_run_batch(runner, NULL, WMS_TIME_MIN);
	runner->looking = false;
	if (ok && runner->has_position)
	{
		/* this is not yet what it was blocked by: a firing that fails each time must not count as the first one each time */
		runner->retries = retries;
		runner->timeouts = timeouts;
	}
	return true;
}

static bool
apply_command(WmsRunner *runner, XLogRecPtr read_upto)
{
	if (runner->command_after == InvalidXLogRecPtr || runner->queue != NIL || runner->behind ||
		!runner->has_position || wms_runner_read_by(runner, read_upto) < runner->command_after)
		return false;
	runner->command_after = InvalidXLogRecPtr;
	if (!wms_run_batch(runner, NULL, runner->def->advance_to))
		runner->command_after = wms_runner_read_by(runner, read_upto);
	wms_runner_announce(runner);
	return true;
}

/* By what is idle, W moves: *to or further. */
static bool
idle_moves(const WmsRunner *runner, WmsTime *to)
{
	*to = wms_flow_idle_target(runner->flow);
	return *to > runner->progress.watermark || wms_flow_watermark(runner->flow) > runner->progress.watermark;
}

/* Is a firing due without rows: the trigger interval is over, or W moves by the clock?  *to: how far W must move at least. */
static bool
firing_due(WmsRunner *runner, TimestampTz now, bool caught_up, WmsTime *to)
{
	*to = WMS_TIME_MIN;
	if (runner->away || runner->status != WMS_RUNNING || !wms_flow_has_begun(runner->flow) || runner->queue != NIL || runner->behind)
		return false;
	if (runner->unfired)
		return wms_runner_fires_at(runner) <= GetCurrentTimestamp();
	if (wms_flow_plan(runner->flow)->processing_time)
		return runner->figures.next_close <= now;
	if (runner->def->idle_us < 0 || !caught_up)
		return false;
	wms_flow_judge_idle(runner->flow);
	return idle_moves(runner, to);
}

static bool
work_on(WmsRunner *runner, XLogRecPtr read_upto, TimestampTz now, bool caught_up)
{
	bool		did = false;
	bool		ran;
	WmsTime		to;

	if (wms_runner_ends(runner, now) || wms_runner_waits(runner, now) || !wms_runner_can_run(runner, now))
		return false;
	did |= wms_runner_wake_up(runner);
	if (runner->def->reads_queues)
	{
		wms_queue_fill(runner);
		caught_up = runner->caught_up;
	}
	ran = wms_runner_run_queue(runner);
	did |= runner->def->reads_queues ? !caught_up && runner->status == WMS_RUNNING : ran;	/* there is more at once */
	if (wms_runner_runs(runner))
		did |= apply_command(runner, read_upto);
	if (firing_due(runner, now, caught_up, &to))
	{
		wms_run_batch(runner, NULL, to);
		did = true;
	}
	return did;
}

bool
wms_runners_work(XLogRecPtr read_upto, bool caught_up)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		did = false;
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		CHECK_FOR_INTERRUPTS();
		did |= work_on(lfirst(lc), read_upto, now, caught_up);
	}
	return did;
}

/* ---------------------------------------------------------------- when there is more to do */

/*
 * What is queued, is to be read again, or lies in queue tables does not wait for the next look.  Where a stream cannot go on it is blocked, and has a
 * timer.
 */
static bool
is_at_hand(const WmsRunner *runner, bool reads)
{
	if (!wms_runner_runs(runner) || runner->status != WMS_RUNNING || !runner->has_position || runner->flow == NULL ||
		TransactionIdIsValid(runner->unseen_xid))
		return false;
	return runner->queue != NIL || (runner->behind && reads) || (runner->def->reads_queues && !runner->caught_up);
}

bool
wms_runners_at_hand(bool reads)
{
	ListCell   *lc;

	if (reads && wms_creations_visible())
		return true;
	foreach(lc, wms_runners)
		if (is_at_hand(lfirst(lc), reads))
			return true;
	return false;
}

static TimestampTz
not_past(TimestampTz at, TimestampTz now)
{
	return at > now ? at : TimestampTzPlusMilliseconds(now, AGAIN_MS);
}

/*
 * When the stream has something to do though nothing comes; 0: never.  What is due by now became so during the turn, or waits for something else than
 * the clock.
 */
static TimestampTz
next_timer(const WmsRunner *runner, TimestampTz now)
{
	TimestampTz at;
	WmsTime		to;

	if (runner->away || runner->placeless)
		return TimestampTzPlusMilliseconds(now, ELSEWHERE_MS);
	if (runner->status == WMS_BLOCKED || TransactionIdIsValid(runner->unseen_xid))
		return runner->retry_at == 0 ? 0 : not_past(runner->retry_at, now);
	if (runner->status != WMS_RUNNING || !wms_flow_has_begun(runner->flow) || runner->queue != NIL || runner->behind)
		return 0;
	if (runner->unfired)
		at = wms_runner_fires_at(runner);
	else if (runner->def->idle_us >= 0 && idle_moves(runner, &to))
		at = now;
	else
		at = wms_flow_plan(runner->flow)->processing_time ? runner->figures.next_close : wms_flow_next_idle(runner->flow);
	return at == 0 || at == WMS_TIME_MAX ? 0 : not_past(at, now);
}

long
wms_runners_next_timer(long max)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		TimestampTz at = next_timer(lfirst(lc), now);

		if (at > 0)
			max = Min(max, Max(1, TimestampDifferenceMilliseconds(now, at)));
	}
	return max;
}

void
wms_runners_retry(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
		((WmsRunner *) lfirst(lc))->retry_at = 0;
}
