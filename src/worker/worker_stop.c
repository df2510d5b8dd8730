/*
 * worker_stop.c
 *	  Streams that stop for good: with a status, and a reason that their owners read in the views.
 *
 * A runner is *sentenced* (end_reason, end_status) at once and does nothing from then on.  The end itself is a transaction of its own that writes
 * the registry, and comes when nobody is changing the stream: no lock is waited for, since a transaction that is changing a stream may stay
 * open for ever.  Until then the stream is blocked, keeps its claim on WAL and is tried again, later each time.  What is told to the stream in the meantime
 * is judged first (worker_stream.c): a command may make the end void.
 *
 * Only what has been written down lets WAL go and outlives a restart.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

/* Nobody is changing the stream just now, so that its status can be written without waiting.  Outside a transaction. */
bool
wms_runner_is_free(const WmsRunner *runner)
{
	MemoryContext old = CurrentMemoryContext;
	bool		is_free;

	wms_transaction_start();
	is_free = wms_registry_try_lock(runner->stream);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return is_free;
}

/* It has nothing to go on from, or is gone: there is nothing that would have to be kept from running. */
static bool
has_stopped(const WmsRunner *runner, const WmsStreamDef *now)
{
	return now == NULL || now->view != runner->def->view || now->foreign || now->status == WMS_NEEDS_RESYNC;
}

/* False: somebody is changing the stream. */
static bool
write_end(const WmsRunner *runner)
{
	bool		locked;
	const WmsStreamDef *now;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	locked = wms_registry_try_lock(runner->stream);
	now = locked ? wms_registry_stream(runner->stream) : NULL;
	if (locked && has_stopped(runner, now))
		;						/* nothing to write */
	else if (locked && now->command != runner->def->command)
		locked = false;			/* what it is told now is judged first */
	else if (locked)
		wms_registry_transition(runner->stream, runner->end_status, runner->end_reason);
	PopActiveSnapshot();
	WMS_POINT("stop-before-commit");
	CommitTransactionCommand();
	return locked;
}

/* NULL, or why it could not be written, in the batch context. */
static char *
try_to_write_end(const WmsRunner *runner)
{
	MemoryContext old = CurrentMemoryContext;
	const char *former = wms_current_stream;
	char	   *volatile problem = NULL;

	wms_current_stream = runner->name;
	PG_TRY();
	{
		if (!write_end(runner))
			problem = MemoryContextStrdup(wms_batch_context, "its definition is being changed");
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(wms_batch_context);
		edata = CopyErrorData();
		problem = pstrdup(wms_error_message(edata));
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
	}
	PG_END_TRY();
	wms_current_stream = former;
	MemoryContextSwitchTo(old);
	return problem;
}

/* Until that is written down the stream is blocked, and keeps what it has of WAL: it does not run, nor does a restart forget it. */
static void
put_off_end(WmsRunner *runner, const char *problem)
{
	MemoryContext old = MemoryContextSwitchTo(wms_batch_context);
	char	   *reason = psprintf("%s (%s is not written down yet: %s)", runner->end_reason, wms_status_name(runner->end_status), problem);

	MemoryContextSwitchTo(old);
	if (runner->away)
		wms_runner_put_off(runner); /* what is shown of it is its follower's */
	else
		wms_runner_block(runner, reason);
}

static bool
end_now(WmsRunner *runner)
{
	char	   *problem = try_to_write_end(runner);
	char	   *reason = runner->end_reason;

	if (problem)
	{
		put_off_end(runner, problem);
		return false;
	}
	runner->status = runner->end_status;
	runner->end_reason = NULL;
	wms_stream_set_error(runner->slot, reason);
	wms_runner_announce(runner);
	pfree(reason);
	/* a follower that has it lets go of it */
	if (runner->away)
	{
		wms_registry_changed(MyDatabaseId);
		wms_worker_wake(MyDatabaseId);
	}
	wms_crash_pardon(runner->stream, false);
	return true;
}

void
wms_runner_sentence(WmsRunner *runner, WmsStatus status, const char *reason)
{
	char	   *former = runner->end_reason;

	runner->end_status = status;
	runner->end_reason = MemoryContextStrdup(runner->context, reason);
	if (former)
		pfree(former);
	runner->behind = !runner->def->reads_queues;
	runner->retries = 0;
	runner->retry_at = 0;
	if (!runner->away)
		runner->status = WMS_BLOCKED;
}

void
wms_runner_fail(WmsRunner *runner, WmsStatus status, const char *reason)
{
	wms_runner_sentence(runner, status, reason);
	wms_runner_unload(runner);
	(void) end_now(runner);
}

bool
wms_runner_ends(WmsRunner *runner, TimestampTz now)
{
	if (runner->end_reason == NULL)
		return false;
	if (now >= runner->retry_at)
	{
		(void) end_now(runner);
		MemoryContextReset(wms_batch_context);
	}
	return true;
}
