/*
 * worker_batch.c
 *	  One batch of one stream, in one transaction: the only file that knows the order of effects.
 *
 *	 1. a transaction begins; the flow is built if it is not there or went stale, the state loaded
 *	 2. as the owner: rows are fed; if the stream fires, W advances, windows close, results are computed; memory for the new state
 *		is taken
 *	 3. as the owner: results and late rows are written
 *	 4. as ourselves: the state's changes, W, maxima, counters and position go to the log (wms_state_prepare)
 *	 5. COMMIT: from here on it all happened, or none of it
 *	 6. the changes become visible in shared memory (wms_state_publish); figures; waiters are told
 *
 * Our writes carry the origin that logical decoding leaves out (ours and others'), but for results and late tables that another stream
 * reads, and for those with triggers, which may write into any table.  The commit is asynchronous; the slot is told only what has been flushed, which is the main loop's business.  A crash
 * between 5 and 6 loses shared memory too, and the log has it all.
 *
 * An error before 5 undoes everything: the transaction aborts, the overlay is thrown away, the batch stays in the stream's queue.
 * Errors that may pass by themselves (locks, memory, disk, serialization, time) make the stream blocked, and it is tried
 * again with back-off; all others make it failed, and its owner is told why in the status.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "replication/origin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define FIRST_RETRY_MS 100
#define MAX_BUILDS 5
#define LAST_RETRY_MS 10000
#define RATE_SPAN_US (5 * USECS_PER_SEC)

static WmsWhere where;

/* What is to be done in a transaction of a stream. */
typedef struct Work
{
	WmsBatch   *batch;			/* NULL: a firing without rows */
	WmsTime		advance_to;
	void		(*prepare) (WmsRunner *runner); /* NULL: nothing before it */
} Work;

XLogRecPtr
wms_last_commit(void)
{
	return XactLastCommitEnd;
}

/* ---------------------------------------------------------------- before the rows */

static void
drop_flow(WmsRunner *runner)
{
	if (runner->flow)
		wms_flow_free(runner->flow);
	runner->flow = NULL;
}

/* The definition still reads the state that it has made: an aggregate, say, may have been replaced by another one. */
static void
check_fingerprint(WmsRunner *runner)
{
	if (wms_flow_plan(runner->flow)->definition != runner->definition)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the view that defines the stream was replaced"),
				 errhint("Put the former definition back and resume the stream, or rebuild the stream by the new one with wmstream.resync().")));
	if (wms_flow_plan(runner->flow)->fingerprint != runner->fingerprint)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the stream's state was made by another definition"),
				 errdetail("Something that its query uses was replaced."),
				 errhint("Rebuild the stream with wmstream.resync().")));
}

/* What it reads is known also while its flow is being built anew. */
static void
note_sources(WmsRunner *runner)
{
	const WmsStreamPlan *plan = wms_flow_plan(runner->flow);
	MemoryContext old = MemoryContextSwitchTo(runner->context);

	list_free(runner->sources);
	runner->sources = NIL;
	for (int i = 0; i < plan->nsources; i++)
		runner->sources = list_append_unique_oid(runner->sources, plan->sources[i].relid);
	runner->reads_static = wms_flow_reads_static(runner->flow);
	MemoryContextSwitchTo(old);
}

static void
build_flow(WmsRunner *runner)
{
	const WmsStateOps *ops;
	int			nops;

	drop_flow(runner);
	MemoryContextReset(runner->flow_context);	/* what a build that failed left */
	runner->flow = wms_flow_build(runner->def, runner->flow_context);
	wms_flow_adopt_clocks(runner->flow, &runner->figures);
	note_sources(runner);
	wms_runner_note_feeding(runner);
	if (runner->store)
	{
		check_fingerprint(runner);
		ops = wms_flow_state_ops(runner->flow, &nops);
		wms_store_set_ops(runner->store, ops, nops);
	}
}

/* A flow that is up to date when lock has been called: taking a lock may bring the news that it is not. */
void
wms_runner_make_flow(WmsRunner *runner, void (*lock) (WmsFlow *flow))
{
	for (int i = 0; i < MAX_BUILDS; i++)
	{
		if (runner->flow == NULL || wms_flow_stale(runner->flow))
			build_flow(runner);
		lock(runner->flow);
		if (!wms_flow_stale(runner->flow))
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("what the stream reads keeps changing")));
}

/* The state as the last committed batch left it. */
static void
load_state(WmsRunner *runner)
{
	MemoryContext old;
	const WmsStateOps *ops;
	WmsProgress loaded = {0};
	int			nops;
	bool		found;

	if (runner->store)
		return;
	old = MemoryContextSwitchTo(runner->context);
	ops = wms_flow_state_ops(runner->flow, &nops);
	runner->definition = wms_flow_plan(runner->flow)->definition;
	runner->fingerprint = wms_flow_plan(runner->flow)->fingerprint;
	runner->store = wms_store_create(runner->slot, ops, nops);
	MemoryContextSwitchTo(old);
	runner->loading = true;
	found = wms_store_load(runner->store, runner->stream, wms_flow_plan(runner->flow)->fingerprint, &loaded);
	runner->loading = false;
	if (found)
	{
		loaded.seen = runner->progress.seen;	/* known before, and the same */
		runner->progress = runner->work = loaded;
		runner->has_position = true;
	}
}

/* ---------------------------------------------------------------- the rows */

void
wms_rows_begin(WmsRunner *runner, WmsBatch *batch)
{
	if (batch == runner->consumed)
		wms_batch_skip(batch);
	else
		wms_batch_rewind(batch, batch->existing ? InvalidXLogRecPtr : runner->progress.position);
}

bool
wms_rows_next(WmsRunner *runner, WmsBatch *batch, WmsChange *change)
{
	while (wms_batch_next(batch, change))
		if (runner->filled == NULL || batch->existing || !wms_filled_has(runner->filled, change->xid, change->end_lsn))
			return true;
	return false;
}

static inline void
note_where(const WmsRowShape *shape, TransactionId xid, XLogRecPtr end_lsn)
{
	where.source = shape->relid;
	where.end_lsn = end_lsn;
	where.xid = xid;
	where.in_rows = true;
}

static void
feed_rows(WmsRunner *runner, WmsBatch *batch)
{
	WmsChange	change;
	uint64		n = 0;

	wms_rows_begin(runner, batch);
	while (wms_rows_next(runner, batch, &change))
	{
		note_where(change.shape, change.xid, change.end_lsn);
		wms_flow_row(runner->flow, &change);
		if ((++n & 0x3FFF) == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

/* Where all rows are the stream's, and each is taken: for a filled stream each would have to be asked for. */
static bool
begin_bundles(const WmsRunner *runner, WmsBatch *batch)
{
	return batch != runner->consumed && runner->filled == NULL && wms_flow_takes_bundles(runner->flow) &&
		wms_bundles_begin(batch, runner->progress.position, runner->sources);
}

static void
feed_bundles(WmsRunner *runner, WmsBatch *batch)
{
	WmsBundle  *bundle;

	for (int i = 0; (bundle = wms_bundles_get(batch, i)) != NULL; i++)
	{
		if (!list_member_oid(runner->sources, bundle->shape->relid))
			continue;
		CHECK_FOR_INTERRUPTS();
		note_where(bundle->shape, bundle->xid, bundle->end_lsn);
		wms_flow_bundle(runner->flow, batch, bundle);
	}
}

static void
feed(WmsRunner *runner, WmsBatch *batch)
{
	wms_flow_set_skips(runner->flow, runner->skips, runner->care);
	if (begin_bundles(runner, batch))
		feed_bundles(runner, batch);
	else
		feed_rows(runner, batch);
	runner->figures.last_commit_time = Max(runner->figures.last_commit_time, batch->newest);
	wms_flow_fed(runner->flow);
	where.in_rows = false;
}

static bool
must_fire(WmsRunner *runner, WmsBatch *batch, WmsTime advance_to)
{
	const WmsStreamDef *def = runner->def;

	/* existing rows do not wait for a clock: W bounds what is held of them */
	if ((batch == NULL && !runner->looking) || (batch && batch->existing) || advance_to != WMS_TIME_MIN || def->trigger_us == 0)
		return true;
	return wms_runner_fires_at(runner) <= GetCurrentTimestamp();
}

static int64
elapsed_us(instr_time *since)
{
	instr_time	now;
	int64		us;

	INSTR_TIME_SET_CURRENT(now);
	us = INSTR_TIME_GET_MICROSEC(now) - INSTR_TIME_GET_MICROSEC(*since);
	*since = now;
	return us;
}

/* Steps 2 and 3.  False: it did not fire, and its rows, or those of batches before, wait for that. */
static bool
run_as_owner(WmsRunner *runner, WmsBatch *batch, WmsTime advance_to)
{
	bool		fires = must_fire(runner, batch, advance_to);
	instr_time	clock;

	INSTR_TIME_SET_CURRENT(clock);
	if (batch && runner->try_rows == WMS_TRY_NEXT)
		wms_skips_try(runner, batch);
	wms_flow_begin(runner->flow, runner->store, &runner->work, wms_batch_context);
	if (batch)
	{
		WMS_POINT("batch-begin");
		feed(runner, batch);
		WMS_POINT("batch-fed");
	}
	runner->figures.phase_us[0] = elapsed_us(&clock);
	if (fires)
	{
		wms_flow_fire(runner->flow, advance_to);
		WMS_POINT("batch-fired");
	}
	wms_state_reserve(runner->store);
	runner->figures.phase_us[1] = elapsed_us(&clock);
	wms_flow_finish(runner->flow);
	runner->figures.phase_us[2] = elapsed_us(&clock);
	CHECK_FOR_INTERRUPTS();
	return fires || (batch == NULL && !runner->unfired);
}

/* ---------------------------------------------------------------- one transaction */

/* Also without rows: how far the queues have been read. */
static void
note_queue_position(WmsRunner *runner, WmsBatch *batch)
{
	const WmsSeen *seen = batch ? batch->seen : runner->read_seen;
	MemoryContext old;

	if (seen == NULL)
		return;
	old = MemoryContextSwitchTo(runner->context);
	runner->work.seen = wms_seen_copy(seen);
	MemoryContextSwitchTo(old);
	if (batch == NULL)
		runner->work.position = Max(runner->work.position, runner->read_lsn);
}

/* The batch happened. */
static void
keep_progress(WmsRunner *runner, bool all_fired)
{
	WmsSeen    *former = runner->progress.seen;

	runner->progress = runner->work;
	runner->unfired = !all_fired;
	if (former && former != runner->progress.seen)
		pfree(former);
}

/* It did not. */
static void
forget_progress(WmsRunner *runner)
{
	if (runner->work.seen && runner->work.seen != runner->progress.seen)
		pfree(runner->work.seen);
	runner->work = runner->progress;
}

static void
note_position(WmsRunner *runner, WmsBatch *batch)
{
	if (batch && batch->end > runner->work.position)
		runner->work.position = batch->end;
	if (runner->def->reads_queues)
		note_queue_position(runner, batch);
	runner->work.counters[WMS_COUNT_BATCHES]++;
	runner->batch_rows = runner->work.counters[WMS_COUNT_INPUT] - runner->progress.counters[WMS_COUNT_INPUT];
	if (runner->def->command > runner->work.applied && runner->command_after == InvalidXLogRecPtr)
		runner->work.applied = runner->def->command;
}

/* For messages and test points; the result may have been renamed. */
void
wms_runner_note_name(WmsRunner *runner)
{
	char	   *name = get_rel_name(runner->stream);

	strlcpy(runner->name, name ? name : "", NAMEDATALEN);
}

void
wms_runner_put_off(WmsRunner *runner)
{
	int64		delay = Min((int64) FIRST_RETRY_MS << Min(runner->retries, 10), LAST_RETRY_MS);

	runner->retries++;
	runner->retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay);
}

void
wms_runner_block(WmsRunner *runner, const char *reason)
{
	wms_runner_put_off(runner);
	wms_runner_stands(runner, reason);
}

/*
 * The result may have another owner than the registry's news, which come a moment before those of the system catalogs, made us read; or
 * decoding brings those before either.
 */
static bool
owner_is_known(const WmsStreamDef *def)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(def->stream));
	bool		known = true;

	if (HeapTupleIsValid(tuple))
	{
		known = ((Form_pg_class) GETSTRUCT(tuple))->relowner == def->owner;
		ReleaseSysCache(tuple);
	}
	if (!known)
		wms_registry_distrust();
	return known;
}

/*
 * The stream cannot change while its batch runs, and does not run while somebody changes it.  A change that has committed
 * since the registry was read was counted before its lock was released.
 */
static bool
hold_stream(WmsRunner *runner)
{
	if (!wms_registry_hold(runner->stream))
	{
		wms_runner_block(runner, "its definition is being changed");
		return false;
	}
	return owner_is_known(runner->def) && !wms_registry_news();
}

/*
 * When all is locked: who held a lock that was waited for may have written a table's rows anew (ALTER TABLE), and every older snapshot
 * sees that table empty.
 */
static void
take_newer_snapshot(void)
{
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/* False: not now. */
static bool
transaction(WmsRunner *runner, void *arg)
{
	const Work *work = arg;
	WmsBatch   *batch = work->batch;
	WmsOwnerScope scope;
	instr_time	clock;
	bool		all_fired = true;

	where.batch = batch;
	wms_transaction_start();
	if (!hold_stream(runner))
	{
		CommitTransactionCommand();
		return false;
	}
	wms_runner_note_name(runner);
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_become_owner(runner->def, &scope);
	wms_runner_make_flow(runner, wms_flow_lock);
	if (runner->feeds || wms_flow_writes_elsewhere(runner->flow))
		replorigin_session_origin = InvalidRepOriginId;
	wms_leave_owner(&scope);
	take_newer_snapshot();
	WMS_POINT("flow-made");
	if (wms_registry_news())	/* while its locks were waited for: it may be another role's by now, as which it must run */
	{
		PopActiveSnapshot();
		CommitTransactionCommand();
		return false;
	}
	if (work->prepare)
		work->prepare(runner);
	load_state(runner);
	if (runner->has_position)
	{
		wms_state_begin(runner->store, wms_batch_context);
		wms_become_owner(runner->def, &scope);
		wms_batch_clock_start();
		all_fired = run_as_owner(runner, batch, work->advance_to);
		(void) wms_batch_clock_stop();
		wms_leave_owner(&scope);
		INSTR_TIME_SET_CURRENT(clock);
		wms_flow_drop_rows(runner->flow);
		note_position(runner, batch);
		WMS_POINT("batch-before-prepare");
		wms_state_prepare(runner->store, &runner->work);
		WMS_POINT("batch-before-commit");
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (!runner->has_position)
		return true;
	runner->fresh = false;
	keep_progress(runner, all_fired);	/* it happened, whatever comes now */
	if (batch)
		runner->consumed = batch;
	runner->hold = InvalidXLogRecPtr;	/* once it is flushed, which comes before the slot is told */
	WMS_POINT("batch-after-commit");
	wms_state_publish(runner->store);
	WMS_POINT("batch-after-publish");
	runner->figures.phase_us[3] = elapsed_us(&clock);
	return true;
}

/* ---------------------------------------------------------------- after it */

/* Rows come in spans of RATE_SPAN_US; after a pause the count begins anew. */
static void
count_rate(WmsFigures *figures, int64 rows, TimestampTz now)
{
	if (now - figures->last_batch_at > 2 * RATE_SPAN_US)
	{
		figures->rate_since[0] = 0;
		figures->rate_rows[0] = figures->rate_rows[1] = 0;
		figures->rate_since[1] = now;
	}
	figures->rate_rows[1] += rows;
	if (now - figures->rate_since[1] < RATE_SPAN_US)
		return;
	figures->rate_since[0] = figures->rate_since[1];
	figures->rate_rows[0] = figures->rate_rows[1];
	figures->rate_since[1] = now;
	figures->rate_rows[1] = 0;
}

static void
set_figures(WmsRunner *runner)
{
	WmsFigures *figures = &runner->figures;
	TimestampTz now = GetCurrentTimestamp();
	WmsStateSize size = {0};

	count_rate(figures, runner->batch_rows, now);
	figures->progress = runner->progress;
	figures->progress.seen = NULL;	/* not in shared memory */
	figures->last_batch_at = now;
	wms_state_size(runner->store, &size);
	figures->state_entries = size.entries;
	figures->state_bytes = size.bytes;
	figures->kept_rows = size.kept_rows;
	figures->log_bytes = size.log_bytes;
	wms_flow_figures(runner->flow, figures);
	wms_stream_set_figures(runner->slot, figures);
}

/* The transaction is gone; so is what the batch made. */
static void
clean_up(WmsRunner *runner)
{
	if (runner->flow)
		wms_flow_end(runner->flow);
	if (runner->loading || runner->fresh)
	{
		if (runner->store)
			wms_store_destroy(runner->store);	/* half loaded, or its beginning was undone */
		runner->store = NULL;
		runner->loading = runner->fresh = false;
	}
	if (runner->store)
		wms_state_discard(runner->store);
	forget_progress(runner);
}

/* An error that is a row's own, and not the server's or the moment's. */
static bool
is_rows_error(const ErrorData *edata)
{
	return where.in_rows && wms_error_is_rows(edata);
}

/* While somebody is changing the stream the others do not wait for that: then it is tried again. */
static void
fail(WmsRunner *runner, const ErrorData *edata, const char *reason)
{
	drop_flow(runner);
	if (!wms_runner_is_free(runner))
		wms_runner_block(runner, reason);
	else
		wms_runner_fail(runner, edata->sqlerrcode == ERRCODE_DATA_CORRUPTED ? WMS_NEEDS_RESYNC : WMS_FAILED, reason);
}

static void
handle_timeout(WmsRunner *runner, WmsBatch *batch, const ErrorData *edata)
{
	if (runner->sought_error)
		fail(runner, edata, pstrdup(runner->sought_error)); /* row by row the batch took too long: known is what was raised */
	else if (runner->timeouts++ == 0)
		wms_runner_block(runner, wms_error_text(runner, batch, &where, edata, -1, true));
	else
		fail(runner, edata, wms_error_text(runner, batch, &where, edata, -1, true));
}

static void
handle_error(WmsRunner *runner, WmsBatch *batch, const ErrorData *edata, int64 row, WmsTime time)
{
	bool		timed_out = wms_batch_clock_stop();

	MemoryContextSwitchTo(wms_batch_context);
	if (wms_registry_news() && !timed_out)
		drop_flow(runner);		/* perhaps the error of an owner or a definition that it has no more: it is run again */
	else if (timed_out)
		handle_timeout(runner, batch, edata);
	else if (is_rows_error(edata) && runner->def->skip_errors && wms_skips_must_try(runner))
		runner->care = WMS_CARE_NONE;	/* the batch is run again when all of its rows have been tried */
	else if (is_rows_error(edata) && row < 0 && runner->care != WMS_CARE_ALL)
		wms_skips_look_for_row(runner, edata);
	else if (is_rows_error(edata) && row >= 0 && runner->def->skip_errors)
		wms_skips_add(runner, edata, row, time);
	else if (wms_error_is_transient(edata->sqlerrcode))
		wms_runner_block(runner, wms_error_text(runner, batch, &where, edata, -1, false));
	else
		fail(runner, edata, wms_error_text(runner, batch, &where, edata, row, false));
}

void
wms_runner_error(WmsRunner *runner, ErrorData *edata)
{
	where.in_rows = false;
	handle_error(runner, NULL, edata, -1, WMS_TIME_MIN);
}

/* One step of a stream: what fails in it is the stream's failure. */
bool
wms_run_step(WmsRunner *runner, WmsStepFn step, void *arg)
{
	MemoryContext old = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;
	volatile bool done = false;
	volatile int64 failed_row = -1;
	volatile WmsTime failed_time = WMS_TIME_MIN;

	where.in_rows = false;
	where.batch = NULL;
	wms_current_stream = runner->name;
	wms_crash_running(runner->stream);
	pgstat_report_activity(STATE_RUNNING, "wmstream batch");
	PG_TRY();
	{
		done = step(runner, arg);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(wms_batch_context);
		edata = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		if (runner->flow)
		{
			failed_row = wms_flow_failed_row(runner->flow);
			failed_time = wms_flow_failed_time(runner->flow);
		}
		clean_up(runner);
	}
	PG_END_TRY();
	wms_after_owner();
	replorigin_session_origin = DoNotReplicateId;
	if (edata && wms_registry_news())
	{
		/* what it ran by may be old: again, when that has been read */
		(void) wms_batch_clock_stop();
		drop_flow(runner);
	}
	else if (edata)
		handle_error(runner, where.batch, edata, failed_row, failed_time);
	else if (done)
	{
		if (runner->flow)
			wms_flow_end(runner->flow);
		if (runner->store && runner->has_position && wms_flow_has_begun(runner->flow))
			set_figures(runner);
		runner->retries = runner->timeouts = 0;
		if (runner->store || runner->status == WMS_BLOCKED)
			wms_runner_is_well(runner);
	}
	wms_current_stream = NULL;
	wms_crash_running(InvalidOid);
	MemoryContextSwitchTo(old);
	MemoryContextReset(wms_batch_context);
	pgstat_report_activity(STATE_IDLE, NULL);
	return done;
}

static bool
run_work(WmsRunner *runner, Work *work)
{
	bool		done = wms_run_step(runner, transaction, work);

	if (done && work->batch)
		wms_skips_forget(runner);
	return done;
}

bool
wms_run_batch(WmsRunner *runner, WmsBatch *batch, WmsTime advance_to)
{
	Work		work = {.batch = batch,.advance_to = advance_to};

	return run_work(runner, &work);
}

bool
wms_run_first_batch(WmsRunner *runner, void (*prepare) (WmsRunner *runner))
{
	Work		work = {.advance_to = WMS_TIME_MIN,.prepare = prepare};

	return run_work(runner, &work);
}
