/*
 * worker_follow.c
 *	  Streams that another process works for: letting go, taking back, and what that process does.
 *
 * The database's worker reads WAL once for all its streams, and what takes one of them long would hold up the others.  So it lets go
 * of a stream that is to be filled with rows that exist; a process of its own, the *follower*, takes it up, does that work, and
 * gives it back.  A follower has one stream and ends with its work.
 *
 * Whose a stream is stands in its slot in shared memory (WmsKeeper), so a stream is never worked on by two.  Each side unloads
 * the stream before it writes the other's name there, and reads the registry and the log anew when it finds its own.  The launcher
 * starts followers for streams that are theirs.  If a follower dies, the stream stays its, and another one begins again; if
 * the server restarts, shared memory is empty and the streams are the worker's, which lets them go again.
 *
 *		worker: unload, needs_lsn, keeper = FOLLOWER --> follower: ... --> flush, unload, keeper = WORKER --> worker: as if new
 *
 * WAL.  Only the worker's slot counts.  While a stream is away, the worker keeps what needs_lsn says, which the follower moves on after
 * its commits are flushed; 0 keeps all that there is.
 *
 * A stream that was dropped, paused or failed meanwhile is given back as it is; what to do with it is the worker's business.  The worker
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

bool
wms_follow(void)
{
	WmsRunner  *runner = wms_find_runner(wms_follows);
	bool		did = false;

	if (runner == NULL || runner->away || !wms_runner_runs(runner))
		give_back(runner);
	if (!wms_runner_can_run(runner, GetCurrentTimestamp()))
		return false;
	if (!wms_fill_pending(runner->def))
		give_back(runner);
	did = wms_fill_work(runner);
	tell_needs(runner);
	return did;
}
