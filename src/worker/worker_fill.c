/*
 * worker_fill.c
 *	  Filling a stream with rows that its sources have already.  Runs in the stream's follower.
 *
 * Order of events:
 *
 *	 1. *read*: one transaction, as the owner.  The source tables, and nothing else, are locked as a reader does; a snapshot is taken and the position
 *	    in WAL before which it has seen everything; all rows are read, sorted by event time and stored in files (source_fill.c).
 *	    The snapshot is held while rows are read, the locks until they are stored.
 *	 2. *begin*: one transaction.  What the fill will write anew is deleted from the result (but in complete mode, where each firing replaces all; and,
 *	    after a crash in a former attempt, from the late table); state and counters go; the stream's position becomes that of 1.  From here on WAL is kept from there.
 *	 3. *feed*: batches of existing rows, each like any other batch; W advances with each.  The position stays.
 *	 4. *end*: the registry notes what the snapshot saw (WMS_FILL_FILLED).  From now on the stream is one that is behind: it reads WAL from its
 *	    position, but passes over transactions whose rows it has had.  A stream of queues simply has the snapshot as its position.
 *
 * A crash before 4 begins again with 1: rows are sorted in files of this process.  A stream that is paused, changed or fails in the
 * middle begins again, too, when it goes on.
 *
 * What is deleted in 2.  A stream that starts from the beginning has written nothing before its first attempt, so nothing is; later
 * attempts, and resync, delete results of the time that is rebuilt: from since on, or from the earliest existing row on; over queues that lose
 * their rows by themselves never from before the earliest row.
 * Where the result does not show the time of its rows, it is deleted whole.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

void
wms_fill_drop(WmsRunner *runner)
{
	runner->fill_rows = NULL;
	runner->fill_cleared = false;
	runner->fill_given = 0;
	MemoryContextReset(runner->fill_context);
}

static void
set_phase(WmsRunner *runner, WmsFillPhase phase)
{
	runner->figures.fill.phase = phase;
	wms_stream_set_figures(runner->slot, &runner->figures);
}

/* ---------------------------------------------------------------- 1. read */

typedef struct Times
{
	WmsFlow    *flow;
	Oid			relid;
	HeapTuple  *rows;
	int			n;
	WmsTime    *times;
} Times;

static void
compute_times(void *arg)
{
	Times	   *t = arg;

	wms_flow_times(t->flow, t->relid, t->rows, t->n, t->times);
}

/* Only where rows that fail are put aside: those of which not even the time can be told fail again when they are fed. */
static bool
try_times(WmsRunner *runner, Oid relid, HeapTuple *rows, int n, WmsTime *times)
{
	Times		t = {runner->flow, relid, rows, n, times};
	ErrorData  *edata = wms_in_subtransaction(compute_times, &t, true);

	if (edata == NULL)
		return true;
	if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(edata);
	FreeErrorData(edata);
	wms_flow_end(runner->flow);
	return false;
}

static void
find_times(WmsRunner *runner, Oid relid, HeapTuple *rows, int n, WmsTime *times)
{
	if (!runner->def->skip_errors)
	{
		wms_flow_times(runner->flow, relid, rows, n, times);
		return;
	}
	if (try_times(runner, relid, rows, n, times))
		return;
	for (int i = 0; i < n; i++)
		if (!try_times(runner, relid, &rows[i], 1, &times[i]))
			times[i] = WMS_TIME_MIN;
}

/* The owner's code, as in a batch: it may take as long as one. */
static void
times_of(Oid relid, HeapTuple *rows, int n, WmsTime *times, void *arg)
{
	wms_batch_clock_start();
	find_times(arg, relid, rows, n, times);
	(void) wms_batch_clock_stop();
}

/* Does the registry still want this fill?  Other changes can wait. */
static bool
still_wanted(const WmsRunner *runner)
{
	const WmsStreamDef *now = wms_registry_stream(runner->stream);

	return now && now->view == runner->def->view && now->status == WMS_RUNNING && !now->foreign &&
		now->fill == runner->def->fill && now->fill_since == runner->def->fill_since;
}

static bool
go_on(int64 rows_read, void *arg)
{
	WmsRunner  *runner = arg;

	runner->figures.fill.rows_read = rows_read;
	set_phase(runner, WMS_PHASE_READING);
	WMS_POINT("fill-reading");
	if (wms_worker_should_stop() || wms_flow_stale(runner->flow))
		return false;
	return !wms_registry_news() || still_wanted(runner);
}

/* Nothing holds back vacuum any more. */
static void
sorting(void *arg)
{
	InvalidateCatalogSnapshot();
	set_phase(arg, WMS_PHASE_SORTING);
	WMS_POINT("fill-sorting");
}

/* By what the planner believes. */
static int64
estimate(const WmsRunner *runner)
{
	double		rows = 0;
	ListCell   *lc;

	foreach(lc, runner->sources)
		rows += wms_source_estimate(lfirst_oid(lc));
	return rows < PG_INT64_MAX ? (int64) rows : -1;
}

static void
begin_figures(WmsRunner *runner)
{
	WmsFillFigures *fill = &runner->figures.fill;

	memset(fill, 0, sizeof(*fill));
	fill->rows_total = estimate(runner);
	fill->started_at = GetCurrentTimestamp();
	set_phase(runner, WMS_PHASE_READING);
}

/*
 * A source may be what another stream writes, whose batches are written for readers of WAL only from when its process has heard that
 * somebody reads them.  One that began before that has ended when its stream can be locked, and the snapshot will see it.
 */
static void
wait_for_writers(const WmsRunner *runner)
{
	ListCell   *lc;

	foreach(lc, wms_streams_into(runner->sources))
		wms_registry_lock(lfirst_oid(lc));
}

/* In a transaction of its own: the definition must not stay locked for as long as rows are read. */
static void
make_flow(WmsRunner *runner)
{
	WmsOwnerScope scope;

	wms_transaction_start();
	wms_runner_note_name(runner);
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_become_owner(runner->def, &scope);
	wms_runner_make_flow(runner, wms_flow_lock_sources);
	begin_figures(runner);
	wait_for_writers(runner);	/* by the scope's lock_timeout: the sources are locked */
	wms_leave_owner(&scope);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static bool
read_rows(WmsRunner *runner, void *arg)
{
	WmsFillReader reader = {times_of, go_on, sorting, runner};
	WmsOwnerScope scope;
	WmsFillRows *rows = NULL;

	make_flow(runner);
	wms_transaction_start();
	wms_become_owner(runner->def, &scope);
	WMS_POINT("fill-locking");
	wms_flow_lock_sources(runner->flow);
	MemoryContextSwitchTo(wms_batch_context);
	if (!wms_flow_stale(runner->flow))
		rows = wms_fill_read(&reader, runner->sources, runner->fill_context);
	wms_leave_owner(&scope);
	CommitTransactionCommand();
	if (rows == NULL)
		return false;
	runner->fill_rows = rows;
	runner->figures.fill.rows_total = runner->figures.fill.rows_read = wms_fill_count(rows);
	set_phase(runner, WMS_PHASE_FEEDING);
	return true;
}

/* ---------------------------------------------------------------- 2. begin */

static void
refuse_to_guess(const WmsRunner *runner)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the stream was stopped while it was filled, and which rows of \"%s\" it has written cannot be told", runner->name),
			 errdetail("The table was there before the stream, and its columns do not show the time of rows."),
			 errhint("wmstream.resync() empties the table and fills it again; save rows that are not the stream's.")));
}

static bool
reads_trimmed(const WmsRunner *runner)
{
	ListCell   *lc;

	foreach(lc, wms_queues())
	{
		const WmsQueueDef *queue = lfirst(lc);

		if (queue->trim && list_member_oid(runner->sources, queue->queue))
			return true;
	}
	return false;
}

static void
take_away(WmsRunner *runner)
{
	const WmsStreamDef *def = runner->def;
	bool		shown = wms_flow_plan(runner->flow)->shown_time.kind != WMS_SHOWN_NONE;
	WmsTime		since = def->fill_since != WMS_TIME_MIN ? def->fill_since : wms_fill_earliest(runner->fill_rows);

	/* results of rows that a queue has lost by itself cannot be made again: they stay */
	if (def->reads_queues && wms_fill_earliest(runner->fill_rows) > since && reads_trimmed(runner))
		since = wms_fill_earliest(runner->fill_rows);
	if ((def->fill == WMS_FILL_BEGINNING && def->fill_began == 0) || def->output_mode == WMS_COMPLETE)
		return;
	if (!shown && def->fill == WMS_FILL_BEGINNING && !def->made_result)
		refuse_to_guess(runner);
	wms_flow_clear_result(runner->flow, shown ? since : WMS_TIME_MIN, def->fill_began);
}

/* In the transaction of the first batch. */
static void
begin_anew(WmsRunner *runner)
{
	WmsOwnerScope scope;
	WmsProgress beginning = {0};
	MemoryContext old;

	wms_become_owner(runner->def, &scope);
	take_away(runner);
	wms_leave_owner(&scope);
	runner->fresh = true;
	if (runner->store)
		wms_store_destroy(runner->store);
	runner->store = NULL;
	wms_state_forget(runner->stream);
	CommandCounterIncrement();
	beginning.position = wms_fill_filled(runner->fill_rows)->from;
	if (runner->def->reads_queues)
	{
		old = MemoryContextSwitchTo(runner->context);
		beginning.seen = wms_seen_copy(wms_fill_seen(runner->fill_rows));
		MemoryContextSwitchTo(old);
	}
	beginning.watermark = beginning.gone_upto = WMS_TIME_MIN;
	for (int i = 0; i < WMS_MAX_SOURCES; i++)
		beginning.max_time[i] = WMS_TIME_MIN;
	if (runner->progress.seen)
		pfree(runner->progress.seen);
	runner->progress = runner->work = beginning;
	runner->has_position = true;
	wms_registry_set_fill(runner->stream, runner->def->fill, GetCurrentTransactionStartTimestamp(), NULL);
}

/* ---------------------------------------------------------------- 3. feed, 4. end */

/* Under the stream's lock: nobody has asked for another fill since this one began. */
static bool
is_this_fill(const WmsRunner *runner)
{
	const WmsStreamDef *now;

	wms_registry_lock(runner->stream);
	now = wms_registry_stream(runner->stream);
	return now && now->view == runner->def->view && now->fill == runner->def->fill && now->fill_began != 0;
}

static void
write_filled(WmsRunner *runner)
{
	if (runner->def->reads_queues)
		wms_registry_set_fill(runner->stream, WMS_FILL_NONE, 0, NULL);
	else
		wms_registry_set_fill(runner->stream, WMS_FILL_FILLED, 0, wms_filled_text(wms_fill_filled(runner->fill_rows)));
}

static bool
note_filled(WmsRunner *runner, void *arg)
{
	bool		ours;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	WMS_POINT("fill-before-end");
	ours = is_this_fill(runner);
	if (ours)
		write_filled(runner);
	PopActiveSnapshot();
	CommitTransactionCommand();
	WMS_POINT("fill-after-end");
	return ours;
}

/* The registry asks for something else than what is going on here. */
bool
wms_fill_outdated(const WmsRunner *runner, const WmsStreamDef *before)
{
	const WmsStreamDef *now = runner->def;

	return runner->fill_rows && (now->fill != before->fill || now->fill_since != before->fill_since ||
								 (runner->fill_cleared && now->fill_began == 0));
}

static void
end(WmsRunner *runner)
{
	if (!wms_run_step(runner, note_filled, NULL))
		return;
	wms_fill_drop(runner);
	set_phase(runner, WMS_PHASE_CATCHING_UP);
	wms_registry_changed(MyDatabaseId);
}

static void
feed(WmsRunner *runner)
{
	WmsBatch   *batch;

	if (runner->queue == NIL)
	{
		batch = wms_fill_next(runner->fill_rows, wms_max_batch_rows);
		if (batch == NULL)
		{
			end(runner);
			return;
		}
		runner->fill_given += batch->nrows;
		runner->figures.fill.rows_done = runner->fill_given;	/* shown with the batch's figures */
		wms_runner_enqueue(runner, batch);
		wms_batch_unref(batch);
	}
	(void) wms_runner_run_queue(runner);
}

static void
show_backfilling(WmsRunner *runner)
{
	if (runner->status != WMS_STARTING)
		return;
	runner->status = WMS_BACKFILLING;
	wms_runner_announce(runner);
}

bool
wms_fill_work(WmsRunner *runner)
{
	show_backfilling(runner);
	if (runner->fill_rows == NULL)
	{
		MemoryContextReset(runner->fill_context);
		return wms_run_step(runner, read_rows, NULL);
	}
	if (!runner->fill_cleared)
	{
		runner->fill_cleared = wms_run_first_batch(runner, begin_anew);
		return runner->fill_cleared;
	}
	feed(runner);
	return true;
}

/* ---------------------------------------------------------------- afterwards, in the worker */

static bool
forget_filled(WmsRunner *runner, void *arg)
{
	const WmsStreamDef *now;
	bool		locked;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	locked = wms_registry_try_lock(runner->stream);
	now = locked ? wms_registry_stream(runner->stream) : NULL;
	if (now && now->view == runner->def->view && now->fill == WMS_FILL_FILLED)
		wms_registry_set_fill(runner->stream, WMS_FILL_NONE, 0, NULL);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return locked;
}

void
wms_fill_forget_filled(WmsRunner *runner)
{
	if (runner->filled == NULL || !wms_runner_runs(runner) || runner->progress.position < runner->filled->upto)
		return;
	if (wms_run_step(runner, forget_filled, NULL))
		runner->filled = NULL;
}
