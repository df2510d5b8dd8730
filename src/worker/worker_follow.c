/*
 * worker_follow.c
 *	  Streams that another process works for: letting go, taking back, and what that process does.
 *
 * The database's worker reads WAL once for all its streams, and what takes one of them long would hold up the others.  So it lets go
 * of a stream that is to be filled with rows that exist, or that is far behind the others (resumed, blocked for long, just filled); a process of its
 * own, the *follower*, takes it up, does that work, and gives it back.  A follower has one stream and ends with its work.
 *
 * Whose a stream is stands in its slot in shared memory (WmsKeeper), so a stream is never worked on by two.  Each side unloads
 * the stream before it writes the other's name there, and reads the registry and the log anew when it finds its own.  The launcher
 * starts followers for streams that are theirs.  If a follower dies, the stream stays its, and another one begins again; if
 * the server restarts, shared memory is empty and the streams are the worker's, which lets them go again.
 *
 *		worker: unload, needs_lsn, keeper = FOLLOWER --> follower: ... --> flush, unload, keeper = WORKER --> worker: as if new
 *
 * Catching up.  The follower reads WAL on a copy of the worker's slot, made while that is in use, which takes some milliseconds and waits for nobody.
 * When it has read as far as the worker, it writes that position down with an empty batch and gives the stream back.  The worker takes it
 * up before it reads on, so that it need not read anything again.  Where no copy can be had, the worker does it all by itself, by reading
 * WAL again for the stream, and does so too where the distance is small.
 *
 * WAL.  Only the worker's slot counts.  While a stream is away, the worker keeps what needs_lsn says, which the follower moves on after
 * its commits are flushed; 0 keeps all that there is.
 *
 * A stream that was dropped, paused or failed meanwhile is given back as it is; what to do with it is the worker's business.  If another one was made
 * on its table, that one waits until then.  The worker
 * also frees the places of streams that are gone (worker_stream.c).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

Oid			wms_follows = InvalidOid;

bool
wms_is_away(const WmsRunner *runner)
{
	bool		followed = pg_atomic_read_u32(&runner->slot->keeper) == WMS_KEEPER_FOLLOWER;

	return followed != OidIsValid(wms_follows);
}

XLogRecPtr
wms_away_needs(const WmsRunner *runner)
{
	return pg_atomic_read_u64(&runner->slot->needs_lsn);
}

void
wms_send_away(WmsRunner *runner, WmsStatus status, XLogRecPtr needs)
{
	wms_runner_unload(runner);
	runner->status = status;
	runner->behind = true;
	runner->away = true;
	wms_stream_set_error(runner->slot, NULL);
	wms_runner_announce(runner);
	pg_atomic_write_u64(&runner->slot->needs_lsn, needs);
	pg_write_barrier();
	pg_atomic_write_u32(&runner->slot->keeper, WMS_KEEPER_FOLLOWER);
	wms_launcher_wake();
}

/* The follower's end: what it did is durable, and the worker hears of it. */
static void
give_back(WmsRunner *runner)
{
	WmsSharedStream *slot = wms_stream_slot(wms_follows, false);

	if (!XLogRecPtrIsInvalid(wms_last_commit()))
		XLogFlush(wms_last_commit());
	if (runner)
		wms_runner_unload(runner);
	if (slot)
	{
		pg_memory_barrier();
		pg_atomic_write_u32(&slot->keeper, WMS_KEEPER_WORKER);
	}
	wms_registry_changed(MyDatabaseId);
	wms_worker_wake(MyDatabaseId);
	wms_worker_ends(false);
	proc_exit(0);
}

/* What our commits make superfluous. */
static void
tell_needs(WmsRunner *runner)
{
	if (!runner->fill_cleared && wms_fill_pending(runner->def))
		return;
	XLogFlush(wms_last_commit());
	pg_atomic_write_u64(&runner->slot->needs_lsn, runner->progress.position);
}

void
wms_follow_cannot(void)
{
	give_back(wms_find_runner(wms_follows));
}

/* How far the worker has read; 0: there is none. */
static XLogRecPtr
worker_position(void)
{
	WmsSharedWorker *worker;
	XLogRecPtr	position = InvalidXLogRecPtr;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	worker = wms_worker_of(MyDatabaseId);
	if (worker)
		position = pg_atomic_read_u64(&worker->read_upto);
	LWLockRelease(&wms_shared->lock);
	return position;
}

static bool
is_far_from(XLogRecPtr position, XLogRecPtr reader)
{
	return reader > position && reader - position > (uint64) wms_catchup_distance * 1024 * 1024;
}

static void
show_catching_up(WmsRunner *runner)
{
	runner->figures.fill.phase = WMS_PHASE_CATCHING_UP;
	if (runner->figures.fill.started_at == 0)
		runner->figures.fill.started_at = GetCurrentTimestamp();
	wms_stream_set_figures(runner->slot, &runner->figures);
}

bool
wms_follow_reads(bool already)
{
	WmsRunner  *runner = wms_find_runner(wms_follows);

	if (wms_fill_pending(runner->def) || runner->end_reason)
		return false;
	if (already)
		return true;
	if (runner->def->reads_queues || !runner->has_position || !is_far_from(runner->progress.position, worker_position()))
		give_back(runner);
	show_catching_up(runner);
	return true;
}

/* Nothing came for it since its position: that is written down all the same, so that the worker begins from there. */
static bool
write_position(WmsRunner *runner, XLogRecPtr position)
{
	WmsBatch   *batch = wms_batch_of_position(position);
	bool		done = wms_run_batch(runner, batch, WMS_TIME_MIN);

	runner->consumed = NULL;	/* another one may come to lie there */
	wms_batch_unref(batch);
	return done;
}

void
wms_follow_told(XLogRecPtr read_upto)
{
	WmsRunner  *runner = wms_find_runner(wms_follows);

	pg_atomic_write_u64(&runner->slot->needs_lsn, wms_runners_needed(read_upto));
	if (!wms_runner_consumed_all(runner) || read_upto < worker_position())
		return;
	wms_current_stream = runner->name;
	WMS_POINT("follower-before-end");
	wms_current_stream = NULL;
	if (write_position(runner, read_upto))
		give_back(runner);
}

/* ---------------------------------------------------------------- which streams are sent */

/* One that would have to wait while WAL is read again. */
static bool
somebody_is_up_to_date(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (wms_runner_runs(runner) && !runner->def->reads_queues && !runner->behind)
			return true;
	}
	return false;
}

void
wms_send_laggards(XLogRecPtr read_upto, XLogRecPtr confirmed)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!runner->behind || !runner->has_position || runner->flow == NULL || runner->status != WMS_RUNNING ||
			runner->sent_at == runner->progress.position || !is_far_from(Max(runner->progress.position, confirmed), read_upto))
			continue;
		if (!somebody_is_up_to_date() || wms_workers_in_use(true) >= wms_max_followers)
			return;
		runner->sent_at = runner->progress.position;
		wms_send_away(runner, WMS_STARTING, runner->progress.position);
	}
}

/* No process can be had for a stream that was sent because it is behind: it is better off here. */
void
wms_take_back(WmsRunner *runner)
{
	bool		taken = false;

	if (!runner->away || wms_fill_pending(runner->def))
		return;
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (wms_shared->followers_short && wms_follower_of(MyDatabaseId, runner->stream) == NULL)
	{
		pg_atomic_write_u32(&runner->slot->keeper, WMS_KEEPER_WORKER);
		taken = true;
	}
	LWLockRelease(&wms_shared->lock);
	if (taken)
		wms_registry_changed(MyDatabaseId);
}

/* ---------------------------------------------------------------- a turn of the follower */

bool
wms_follow(void)
{
	WmsRunner  *runner = wms_find_runner(wms_follows);
	bool		did = false;

	if (runner && !runner->away && wms_runner_ends(runner, GetCurrentTimestamp()))
		return false;
	if (runner == NULL || runner->away || !wms_runner_runs(runner))
		give_back(runner);
	if (!wms_fill_pending(runner->def) || !wms_runner_can_run(runner, GetCurrentTimestamp()))
		return false;
	did = wms_fill_work(runner);
	tell_needs(runner);
	return did;
}

bool
wms_follow_goes_on(void)
{
	WmsRunner  *runner = wms_find_runner(wms_follows);

	return runner && !runner->away && wms_runner_can_run(runner, GetCurrentTimestamp());
}
