/*
 * sqlface_control.c
 *	  pause, resume, resync, alter_stream, advance_watermark, wait.
 *
 * All but wait change the registry and count a command; the worker hears of it when the transaction
 * commits, and says in shared memory which command it has applied.  None touches the worker directly.
 *
 * wait writes an empty message into the WAL and flushes it.  Everything that committed before lies before
 * that message, and the worker, which reads the same WAL, passes it even if nothing else happens.  Then it
 * waits until the stream is done with all before the message, and with the last command.  What has been taken in but waits for
 * its firing is not done; if the firing is due after the time is over, being taken in is enough.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/message.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "shared/shared.h"
#include "source/source.h"
#include "sqlface/sqlface_internal.h"

PG_FUNCTION_INFO_V1(wms_sql_pause);
PG_FUNCTION_INFO_V1(wms_sql_resume);
PG_FUNCTION_INFO_V1(wms_sql_resync);
PG_FUNCTION_INFO_V1(wms_sql_alter_stream);
PG_FUNCTION_INFO_V1(wms_sql_advance_watermark);
PG_FUNCTION_INFO_V1(wms_sql_wait);

/* While waiting: how often to look without having been told of news. */
#define WAIT_RECHECK_MS 500

/* ---------------------------------------------------------------- commands */

/* Writes a new status, then the command that tells the worker. */
static void
command_status(const WmsStreamDef *def, WmsStatus status)
{
	wms_registry_transition(def->stream, status, NULL);
	wms_face_command(wms_registry_stream(def->stream));
}

Datum
wms_sql_pause(PG_FUNCTION_ARGS)
{
	WmsStreamDef *def = wms_face_own_stream(PG_GETARG_OID(0), "wmstream.pause()");

	command_status(def, WMS_PAUSED);
	PG_RETURN_VOID();
}

/* A stream that came with a dump or a copied database begins anew here, from now on. */
static void
prepare_restored(const WmsStreamDef *def)
{
	if (get_rel_relkind(def->stream) == '\0' || get_rel_relkind(def->view) == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("result table or definition of the stream was not restored"),
				 errhint("Restore both, or drop the stream with wmstream.drop_stream() and create it again.")));
	wms_face_need_worker(def->reads_queues);
	wms_define_dependencies(def->stream, def->view);
}

/* Rows between its position and now are gone. */
static void
refuse_resume(const WmsStreamDef *def, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("stream \"%s\" cannot go on from where it was", get_rel_name(def->stream)),
			 reason ? errdetail_internal("%s", reason) : 0,
			 errhint("Rebuild it from its sources with wmstream.resync().")));
}

Datum
wms_sql_resume(PG_FUNCTION_ARGS)
{
	WmsStreamDef *def;

	wms_require_preloaded();
	def = wms_face_own_stream(PG_GETARG_OID(0), "wmstream.resume()");
	if (def->status == WMS_RESTORED)
		prepare_restored(def);
	else if (def->status == WMS_NEEDS_RESYNC)
		refuse_resume(def, def->reason);
	else if (!def->reads_queues && !wms_slot_exists(MyDatabaseId))
		refuse_resume(def, "The replication slot of this database is gone.");
	command_status(def, WMS_RUNNING);
	PG_RETURN_VOID();
}

/* Which results lie before a time must be told by themselves. */
static WmsTime
since_when(const WmsStreamDef *def, TimestampTz since)
{
	const WmsStreamPlan *plan = wms_face_plan(def);

	if (!WmsTimeIsFinite(since))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a stream cannot be rebuilt since %s", TIMESTAMP_IS_NOBEGIN(since) ? "-infinity" : "infinity"),
				 errhint("Give a time, or leave it out to rebuild all that the sources have rows of.")));
	if (def->output_mode == WMS_COMPLETE || plan->shown_time.kind == WMS_SHOWN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("stream \"%s\" cannot be rebuilt from some time on", get_rel_name(def->stream)),
				 def->output_mode == WMS_COMPLETE ? errdetail("In complete mode the result is always that of all rows.")
				 : errdetail("Its result has no column that tells the time of a row."),
				 errhint("Leave \"since\" out.")));
	return since;
}

/*
 * A stream below that is being filled will clear its result and write it again.  What is read of it meanwhile would be its former rows, and
 * the same rows once more as new ones.
 */
static void
refuse_before_those_below(const WmsStreamDef *def)
{
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		const WmsStreamDef *below = lfirst(lc);

		if (below->stream == def->stream || !wms_fill_pending(below) ||
			!wms_definition_reaches(def->view, below->stream))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream \"%s\" cannot be rebuilt yet", get_rel_name(def->stream)),
				 errdetail("It reads the result of stream \"%s\", which is still being filled.", get_rel_name(below->stream)),
				 errhint("Wait for that one first, with wmstream.wait().")));
	}
}

/* Rows that are written again are new rows to whoever reads them. */
static void
tell_readers(const WmsStreamDef *def)
{
	char	   *readers = wms_face_readers(def);

	if (readers)
		ereport(NOTICE,
				(errmsg("rows that are written again come once more to stream %s", readers),
				 errhint("Rebuild what reads this stream with wmstream.resync() after it.")));
}

/* Rows that are gone cannot be read again. */
static void
tell_of_trimmed(const WmsStreamDef *def)
{
	List	   *reads = def->reads_queues ? wms_definition_reads(def->view) : NIL;
	ListCell   *lc;

	foreach(lc, reads != NIL ? wms_queues() : NIL)
	{
		const WmsQueueDef *queue = lfirst(lc);

		if (!queue->trim || !list_member_oid(reads, queue->queue))
			continue;
		ereport(NOTICE,
				(errmsg("rows of queue \"%s\" that its streams have had may be gone", get_rel_name(queue->queue)),
				 errdetail("The result is rebuilt from those that are there. What it shows of the time before the earliest of them stays."),
				 errhint("With trim off (wmstream.set_trim) a queue keeps its rows.")));
	}
}

Datum
wms_sql_resync(PG_FUNCTION_ARGS)
{
	WmsStreamDef *def;
	WmsTime		since = WMS_TIME_MIN;

	wms_require_preloaded();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("stream cannot be NULL")));
	def = wms_face_own_stream(PG_GETARG_OID(0), "wmstream.resync()");
	if (!PG_ARGISNULL(1))
		since = since_when(def, PG_GETARG_TIMESTAMPTZ(1));
	else if (def->status != WMS_RESTORED)
		(void) wms_face_plan(def);
	if (def->status == WMS_RESTORED)
		prepare_restored(def);
	else
		wms_face_need_worker(def->reads_queues);
	refuse_before_those_below(def);
	wms_registry_transition(def->stream, WMS_RUNNING, NULL);
	def = wms_registry_stream(def->stream);
	tell_readers(def);
	tell_of_trimmed(def);
	def->fill = WMS_FILL_RESYNC;
	def->fill_since = since;
	def->fill_began = 0;
	def->filled = NULL;
	def->advance_to = WMS_TIME_MIN;
	wms_face_command(def);
	PG_RETURN_VOID();
}

Datum
wms_sql_alter_stream(PG_FUNCTION_ARGS)
{
	WmsStreamDef *def;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("stream and option cannot be NULL")));
	def = wms_face_own_stream(PG_GETARG_OID(0), "wmstream.alter_stream()");
	wms_face_set_option(def, text_to_cstring(PG_GETARG_TEXT_PP(1)),
						PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2)));
	wms_face_command(def);
	PG_RETURN_VOID();
}

Datum
wms_sql_advance_watermark(PG_FUNCTION_ARGS)
{
	WmsStreamDef *def = wms_face_own_stream(PG_GETARG_OID(0), "wmstream.advance_watermark()");
	TimestampTz upto = PG_GETARG_TIMESTAMPTZ(1);

	if (!WmsTimeIsFinite(upto))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a watermark cannot be advanced to infinity"),
				 errhint("Give a time; every later row with an earlier event time would be late.")));
	def->advance_to = wms_watermark_advance(def->advance_to, upto);
	wms_face_command(def);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- wait */

/* What somebody waits for. */
typedef struct Wait
{
	Oid			stream;
	bool		may_see;		/* may hear why a stream does not go on */
	XLogRecPtr	lsn;			/* all that committed before it must be in the result */
	uint64		command;		/* and this command applied */
	TimestampTz until;
} Wait;

/* Rows were taken in, and wait for a firing that is further away than we would wait. */
static bool
fires_too_late(const Wait *wait, WmsSharedStream *slot)
{
	bool		taken = pg_atomic_read_u64(&slot->taken_lsn) >= wait->lsn;

	pg_read_barrier();
	return taken && (TimestampTz) pg_atomic_read_u64(&slot->fires_at) > wait->until;
}

static bool
is_done(const Wait *wait, WmsSharedStream *slot)
{
	return slot && pg_atomic_read_u64(&slot->applied) >= wait->command &&
		(pg_atomic_read_u64(&slot->done_lsn) >= wait->lsn || fires_too_late(wait, slot));
}

/* Why a stream does not go on, from its worker or its registry row. */
static char *
reason_of(const WmsStreamDef *def, WmsSharedStream *slot)
{
	char		error[WMS_ERROR_LEN] = "";

	if (slot)
		wms_stream_figures(slot, NULL, error);
	if (error[0])
		return pstrdup(error);
	return def->reason ? def->reason : NULL;
}

/* The same of one that has not come to run, which may be for want of a process or a place. */
static char *
why_not(const WmsStreamDef *def, WmsSharedStream *slot)
{
	char	   *reason = reason_of(def, slot);

	return reason ? reason : wms_face_reason(def);
}

/* ERROR if the stream is in a state from which only a user can help it. */
static void
check_can_go_on(const Wait *wait, const WmsStreamDef *def, WmsSharedStream *slot)
{
	WmsStatus	status = def->status;
	char	   *reason;

	/* The worker says so before it is durable; what it said before our command was applied is not about us. */
	if (slot && pg_atomic_read_u64(&slot->applied) >= wait->command &&
		pg_atomic_read_u32(&slot->status) == WMS_FAILED)
		status = WMS_FAILED;
	if (status != WMS_PAUSED && status != WMS_FAILED && status != WMS_RESTORED && status != WMS_NEEDS_RESYNC)
		return;
	reason = wait->may_see ? reason_of(def, slot) : NULL;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("stream \"%s\" does not run, its status is %s", get_rel_name(wait->stream), wms_status_name(status)),
			 reason ? errdetail_internal("%s", reason) : 0,
			 status == WMS_NEEDS_RESYNC ? errhint("Rebuild it from its sources with wmstream.resync().")
			 : status == WMS_RESTORED ? errhint("Rebuild it from its sources with wmstream.resync(), or let it start anew with wmstream.resume().")
			 : errhint("Let it go on with wmstream.resume().")));
}

static void
give_up(const Wait *wait, const WmsStreamDef *def, WmsSharedStream *slot)
{
	XLogRecPtr	done = slot ? pg_atomic_read_u64(&slot->done_lsn) : InvalidXLogRecPtr;
	WmsStatus	status = slot ? (WmsStatus) pg_atomic_read_u32(&slot->status) : WMS_STARTING;
	char	   *reason = wait->may_see ? why_not(def, slot) : NULL;
	char	   *position = done == InvalidXLogRecPtr ? pstrdup("It has read nothing yet.") :
		done >= wait->lsn ? pstrdup("It has not applied the last command yet.") :
		psprintf("It is done with all before %X/%X, %llu bytes short.",
				 LSN_FORMAT_ARGS(done), (unsigned long long) (wait->lsn - done));

	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("timeout while waiting for stream \"%s\"", get_rel_name(wait->stream)),
			 reason ? errdetail("The stream is %s: %s%s %s", wms_status_name(status), reason, reason[strlen(reason) - 1] == '.' ? "" : ".", position)
			 : errdetail("The stream is %s. %s", wms_status_name(status), position),
			 errhint("Wait again, perhaps with a longer timeout.")));
}

/* Sleeps until there is news, at most until the time is over.  Expects to be in the slot's queue already. */
static void
sleep_a_little(const Wait *wait, WmsSharedStream *slot)
{
	long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), wait->until);
	long		ms = Max(1, Min(left, WAIT_RECHECK_MS));

	if (slot)
		(void) ConditionVariableTimedSleep(&slot->changed, ms, WMS_WAIT_EVENT("WmstreamWait"));
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Min(ms, WAIT_RECHECK_MS / 10),
						 WMS_WAIT_EVENT("WmstreamWait"));
		ResetLatch(MyLatch);
	}
	CHECK_FOR_INTERRUPTS();
}

/* One look; false: not yet. */
static bool
look(const Wait *wait, WmsSharedStream *slot)
{
	WmsStreamDef *def;

	if (is_done(wait, slot))
		return true;
	def = wms_face_stream(wait->stream);
	check_can_go_on(wait, def, slot);
	if (GetCurrentTimestamp() >= wait->until)
		give_up(wait, def, slot);
	return false;
}

/* Wakes the worker and waits. */
static void
wait_for(const Wait *wait)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "wmstream wait", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool		woken = false;
	bool		done;

	do
	{
		WmsSharedStream *slot = wms_stream_slot(wait->stream, false);

		/*
		 * Into the queue before looking, so that no news is missed in between; and before the worker is woken, who does not tell everything at
		 * once where nobody stands in it.
		 */
		if (slot)
			ConditionVariablePrepareToSleep(&slot->changed);
		if (!woken)
			wms_worker_wake(MyDatabaseId);
		woken = true;
		done = look(wait, slot);
		if (!done)
			sleep_a_little(wait, slot);
		MemoryContextReset(context);
	} while (!done);
	ConditionVariableCancelSleep();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/* The end of now: a place in the WAL that the worker will read. */
static XLogRecPtr
mark_now(void)
{
	XLogRecPtr	lsn = WmsLogMessage("wmstream", "", 0);

	XLogFlush(lsn);
	return lsn;
}

static void
check_may_wait(const WmsStreamDef *def)
{
	if (!wms_face_may_see(def) && pg_class_aclcheck(def->stream, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(def->stream));
	if (def->uncommitted)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream \"%s\" was created or changed in this transaction", get_rel_name(def->stream)),
				 errhint("COMMIT first; the worker cannot see it yet.")));
}

/*
 * What was committed reaches a stream over the streams whose results and late tables it reads: first those have to be done with it, and then all
 * that they have written is waited for.  seen: streams that are waited for already.
 */
static void
wait_in_order(const WmsStreamDef *def, TimestampTz until, List **seen)
{
	Wait		wait = {.stream = def->stream,.may_see = wms_face_may_see(def),.command = def->command,.until = until};
	ListCell   *lc;

	check_stack_depth();
	*seen = lappend_oid(*seen, def->stream);
	foreach(lc, wms_streams_into(wms_definition_reads(def->view)))
	{
		WmsStreamDef *below = wms_registry_stream(lfirst_oid(lc));

		if (below && !below->uncommitted && !list_member_oid(*seen, below->stream))
			wait_in_order(below, until, seen);
	}
	wait.lsn = mark_now();
	wait_for(&wait);
}

Datum
wms_sql_wait(PG_FUNCTION_ARGS)
{
	Interval   *timeout = PG_GETARG_INTERVAL_P(1);
	WmsStreamDef *def;
	List	   *seen = NIL;

	wms_require_preloaded();
	PreventCommandDuringRecovery("wmstream.wait()");
	def = wms_face_stream(PG_GETARG_OID(0));
	check_may_wait(def);
	wait_in_order(def, wms_time_add(GetCurrentTimestamp(), wms_face_span("timeout", timeout)), &seen);
	PG_RETURN_VOID();
}
