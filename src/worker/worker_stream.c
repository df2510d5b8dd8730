/*
 * worker_stream.c
 *	  The worker's list of streams, in line with the registry.
 *
 * A *runner* is a stream as this worker holds it.  The registry is read again whenever a transaction that
 * changed it has committed (a counter in shared memory tells).  A new stream has no position until the insert of its
 * registry row has been decoded: the end of that commit is its first one.  By its view it is told from others that were made on the same table and
 * dropped again, whose rows are decoded, too, when the worker is behind.  As decoding runs ahead of visibility, the
 * registry may not show the row yet; the stream begins when it does, and is behind then: what was read meanwhile is read again for it.
 *
 * A stream for which shared memory has no slot (wmstream.max_streams is less than there are) does not run, but is held as a paused one
 * is, so that it goes on from where it was when there is one.  The other streams do not notice.
 *
 * What a runner does next is worker_next.c's, where it stands worker_position.c's, and its end worker_stop.c's.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

typedef struct Waiting
{
	Oid			stream;
	Oid			view;
	XLogRecPtr	end_lsn;
	XLogRecPtr	hold;			/* from here on its commit is read again */
	TransactionId xid;
} Waiting;

List	   *wms_runners = NIL;
static List *waiting = NIL;		/* Waiting *, in wms_worker_context */
static bool feeding_unknown = false;	/* a definition could not be looked into */
static List *read_by_streams = NIL; /* OIDs: what all definitions read, in wms_worker_context */

/* ---------------------------------------------------------------- status */

bool
wms_runner_runs(const WmsRunner *runner)
{
	return !runner->away && !runner->placeless && runner->end_reason == NULL && (runner->status == WMS_STARTING || runner->status == WMS_RUNNING ||
							 runner->status == WMS_BACKFILLING || runner->status == WMS_BLOCKED);
}

static bool
wants_to_run(const WmsStreamDef *def)
{
	return def->status == WMS_RUNNING && !def->foreign;
}

void
wms_runner_announce(WmsRunner *runner)
{
	wms_stream_announce(runner->slot, runner->status, runner->progress.applied);
}

void
wms_runner_stands(WmsRunner *runner, const char *reason)
{
	runner->status = WMS_BLOCKED;
	wms_stream_set_error(runner->slot, reason);
	wms_runner_announce(runner);
}

/* The process ends: streams that run are blocked, for this reason, until the next one has taken them up. */
void
wms_runners_stand(const char *reason)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (runner->away || runner->slot == NULL || runner->def == NULL || !wants_to_run(runner->def))
			continue;
		wms_runner_stands(runner, reason);
	}
}

/* Everything of the stream in this process and in shared memory goes; the log stays. */
void
wms_runner_unload(WmsRunner *runner)
{
	wms_runner_let_queue_go(runner);
	if (runner->store)
		wms_store_destroy(runner->store);
	runner->store = NULL;
	if (runner->flow)
		wms_flow_free(runner->flow);
	runner->flow = NULL;
	runner->unseen_xid = InvalidTransactionId;
	wms_fill_drop(runner);
}

/* ---------------------------------------------------------------- the registry */

WmsRunner *
wms_find_runner(Oid stream)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
		if (((WmsRunner *) lfirst(lc))->stream == stream)
			return lfirst(lc);
	return NULL;
}

static WmsRunner *
add_runner(Oid stream)
{
	MemoryContext context = AllocSetContextCreate(wms_worker_context, "wmstream stream", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	WmsRunner  *runner = palloc0(sizeof(WmsRunner));

	runner->stream = stream;
	runner->context = context;
	runner->flow_context = AllocSetContextCreate(context, "wmstream flow of a stream", ALLOCSET_SMALL_SIZES);
	runner->skip_context = AllocSetContextCreate(context, "wmstream rows that failed", ALLOCSET_SMALL_SIZES);
	runner->def_context = AllocSetContextCreate(context, "wmstream definition", ALLOCSET_SMALL_SIZES);
	runner->fill_context = AllocSetContextCreate(context, "wmstream fill", ALLOCSET_SMALL_SIZES);
	runner->slot = wms_stream_slot(stream, true);
	runner->placeless = runner->slot == NULL;
	if (runner->placeless)
		runner->slot = wms_stream_slot_private();
	runner->status = WMS_STARTING;
	runner->progress.watermark = runner->progress.gone_upto = WMS_TIME_MIN;
	for (int i = 0; i < WMS_MAX_SOURCES; i++)
		runner->progress.max_time[i] = WMS_TIME_MIN;
	runner->work = runner->progress;
	MemoryContextSwitchTo(wms_worker_context);
	wms_runners = lappend(wms_runners, runner);
	MemoryContextSwitchTo(old);
	return runner;
}

/*
 * What is stored of the stream is damaged, so that it cannot go on.  As long as that is not written down it may need all the WAL that there is.  One
 * that begins anew has no use for what is stored, and where a follower has the stream it is that one's business.
 */
static void
give_up(WmsRunner *runner, const char *damage)
{
	if (runner->end_reason || runner->away || runner->def->status == WMS_NEEDS_RESYNC || wms_fill_pending(runner->def))
		return;
	wms_runner_unload(runner);
	runner->has_position = true;
	wms_runner_sentence(runner, WMS_NEEDS_RESYNC, damage);
}

/*
 * Where a stream stands is known before it runs, and though it may not run at all: what it has not consumed must be held for it.
 * Inside the transaction in which the registry is read.
 */
static void
learn_position(WmsRunner *runner)
{
	WmsSeen    *seen = runner->def->begins_after;
	WmsSeen    *former = runner->progress.seen;
	char	   *damage;
	MemoryContext old;

	if (wms_state_try_progress(runner->stream, GetActiveSnapshot(), &runner->progress, &damage))
	{
		seen = runner->progress.seen;
		runner->has_position = true;
		/* the position does not tell what was only taken in; the first batch here fires */
		runner->unfired = runner->def->trigger_us > 0;
	}
	if (runner->def->reads_queues)
	{
		old = MemoryContextSwitchTo(runner->context);
		runner->progress.seen = wms_seen_copy(seen);
		runner->has_position = true;
		MemoryContextSwitchTo(old);
		if (former)
			pfree(former);
	}
	runner->work = runner->progress;
	if (damage)
		give_up(runner, damage);
}

static void
remove_runner(WmsRunner *runner)
{
	wms_runners = list_delete_ptr(wms_runners, runner);
	wms_runner_unload(runner);
	if (!runner->away && !runner->placeless && !OidIsValid(wms_follows))
	{
		wms_store_free_area(runner->slot);
		wms_stream_slot_free(runner->slot);
	}
	MemoryContextDelete(runner->context);
}

static WmsStreamDef *
copy_def(const WmsStreamDef *def, MemoryContext context)
{
	MemoryContext old;
	WmsStreamDef *copy;

	MemoryContextReset(context);
	old = MemoryContextSwitchTo(context);
	copy = palloc(sizeof(WmsStreamDef));
	*copy = *def;
	copy->begins_after = def->begins_after ? wms_seen_copy(def->begins_after) : NULL;
	copy->damage = def->damage ? pstrdup(def->damage) : NULL;
	copy->reason = def->reason ? pstrdup(def->reason) : NULL;
	copy->filled = def->filled ? pstrdup(def->filled) : NULL;
	copy->timezone = def->timezone ? pstrdup(def->timezone) : NULL;
	copy->datestyle = def->datestyle ? pstrdup(def->datestyle) : NULL;
	copy->intervalstyle = def->intervalstyle ? pstrdup(def->intervalstyle) : NULL;
	MemoryContextSwitchTo(old);
	return copy;
}

/* The stream is to run (again): its state is loaded with its first batch. */
static void
start(WmsRunner *runner)
{
	runner->status = WMS_STARTING;
	runner->behind = !runner->def->reads_queues;
	runner->retry_at = 0;
	runner->retries = runner->timeouts = 0;
	wms_stream_set_error(runner->slot, NULL);
}

static void
stop(WmsRunner *runner)
{
	wms_runner_unload(runner);
	runner->status = runner->def->status;
	runner->behind = !runner->def->reads_queues;
	wms_stream_set_error(runner->slot, runner->def->reason);
	runner->progress.applied = runner->work.applied = runner->def->command;
}

void
wms_runner_is_well(WmsRunner *runner)
{
	WmsStatus	status = wms_fill_pending(runner->def) ? WMS_BACKFILLING : WMS_RUNNING;

	if (runner->status == status || !runner->has_position)
		return;
	runner->status = status;
	wms_stream_set_error(runner->slot, NULL);
	wms_runner_announce(runner);
}

bool
wms_runners_read_wal(bool running)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (!runner->def->reads_queues && (!running || (runner->away && runner->end_reason == NULL) || wms_runner_runs(runner)))
			return true;
	}
	return false;
}

/* A definition, or its owner, that changed under a running stream takes effect now; its flow is built again. */
static void
note_command(WmsRunner *runner, const WmsStreamDef *before, XLogRecPtr now)
{
	if (runner->flow && before && (before->command != runner->def->command || before->owner != runner->def->owner))
	{
		wms_flow_free(runner->flow);
		runner->flow = NULL;
	}
	if (runner->def->command != runner->work.applied)
		runner->command_after = now;
}

/* True: it had no place, and has one now. */
static bool
find_place(WmsRunner *runner)
{
	WmsSharedStream *slot = runner->placeless ? wms_stream_slot(runner->stream, true) : NULL;

	if (slot == NULL)
		return false;
	pfree(runner->slot);
	runner->slot = slot;
	runner->placeless = false;
	return true;
}

/* The row as it is now.  True: the stream was not ours before, or not there. */
static bool
take_row(WmsRunner *runner, const WmsStreamDef *def)
{
	bool		was_away = runner->away;
	bool		is_new = (find_place(runner) || runner->def == NULL || was_away);
	MemoryContext old;

	runner->def = copy_def(def, runner->def_context);
	old = MemoryContextSwitchTo(runner->def_context);
	runner->filled = def->filled ? wms_filled_parse(def->filled) : NULL;
	MemoryContextSwitchTo(old);
	runner->gone = false;
	runner->away = wms_is_away(runner);
	runner->came_home = was_away && !runner->away;
	wms_runner_note_name(runner);
	if (is_new && !runner->away)
	{
		wms_stream_figures(runner->slot, &runner->figures, NULL);
		memset(&runner->figures.fill, 0, sizeof(runner->figures.fill));
		/* while another process had the stream, or none, its sources were not listened to: their clocks begin anew */
		memset(runner->figures.source_relid, 0, sizeof(runner->figures.source_relid));
	}
	return is_new;
}

/* Without a place: what it has not consumed is held for it, whatever it is to do. */
static void
hold(WmsRunner *runner)
{
	const WmsStreamDef *def = runner->def;

	runner->behind = !def->reads_queues;
	if (def->foreign)
		runner->status = WMS_RESTORED;
	else
		runner->status = wants_to_run(def) ? WMS_STARTING : def->status;
}

/* A stream that is to stop does so whatever is said of it meanwhile, but that it begins anew; one that failed may be altered to go on. */
static bool
ends_all_the_same(WmsRunner *runner, const WmsStreamDef *before)
{
	const WmsStreamDef *def = runner->def;

	if (runner->end_reason == NULL)
		return false;
	if (!def->foreign && (def->command == before->command || (runner->end_status == WMS_NEEDS_RESYNC && !wms_fill_pending(def))))
	{
		if (!runner->away)
			runner->status = WMS_BLOCKED;
		return true;
	}
	pfree(runner->end_reason);
	runner->end_reason = NULL;
	runner->status = WMS_STARTING;
	return false;
}

static void
take_definition(WmsRunner *runner, const WmsStreamDef *def, XLogRecPtr now)
{
	WmsStreamDef before = {0};
	bool		is_new;

	if (runner->def)
		before = *runner->def;
	is_new = take_row(runner, def);
	if ((is_new || before.foreign) && !def->foreign)
		learn_position(runner);
	if (def->filled && runner->filled == NULL)
		give_up(runner, psprintf("wmstream.stream holds an unknown value \"%s\". Rebuild the stream with wmstream.resync().", def->filled));
	if (runner->placeless)
		hold(runner);
	if (ends_all_the_same(runner, &before) || runner->away || runner->placeless)
		return;
	if (wms_runner_sentence_lost(runner))
		return;
	if (!OidIsValid(wms_follows) && wants_to_run(def) && wms_fill_pending(def))
	{
		wms_send_away(runner, WMS_BACKFILLING, InvalidXLogRecPtr);
		return;
	}
	if (!is_new && wms_fill_outdated(runner, &before))
	{
		wms_runner_unload(runner);
		start(runner);
	}
	if (def->foreign)
		runner->status = WMS_RESTORED;
	if (wants_to_run(def) && (is_new || !wms_runner_runs(runner)))
		start(runner);
	else if (!wants_to_run(def) && (is_new || wms_runner_runs(runner)))
		stop(runner);
	if (wms_runner_runs(runner))
		note_command(runner, is_new ? NULL : &before, now);
	wms_runner_announce(runner);
}

/* Places of streams that were dropped while they were the follower's. */
static void
free_orphans(void)
{
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		WmsSharedStream *slot = &wms_shared->streams[i];
		Oid			stream;

		LWLockAcquire(&wms_shared->lock, LW_SHARED);
		stream = slot->in_use && slot->database == MyDatabaseId ? slot->stream : InvalidOid;
		LWLockRelease(&wms_shared->lock);
		if (!OidIsValid(stream) || pg_atomic_read_u32(&slot->keeper) != WMS_KEEPER_WORKER || wms_find_runner(stream))
			continue;
		wms_store_free_area(slot);
		wms_stream_slot_free(slot);
	}
}

static void
remove_gone_runners(void)
{
	List	   *all = list_copy(wms_runners);
	ListCell   *lc;

	foreach(lc, all)
		if (((WmsRunner *) lfirst(lc))->gone)
			remove_runner(lfirst(lc));
	list_free(all);
	if (!OidIsValid(wms_follows))
		free_orphans();
}

/* Does it write what others, whosesoever, read?  Its result may have become a partition of another table since that was asked last. */
void
wms_runner_note_feeding(WmsRunner *runner)
{
	runner->feeds = !runner->gone && (feeding_unknown || wms_stream_writes(runner->def, read_by_streams));
}

/* The same of all of ours.  A definition that is locked just now may read them all. */
static void
note_feeding(List *defs)
{
	List	   *read = NIL;
	MemoryContext old;
	ListCell   *lc;

	feeding_unknown = false;
	foreach(lc, defs)
	{
		List	   *reads;

		if (!wms_definition_reads_now(((WmsStreamDef *) lfirst(lc))->view, &reads))
			feeding_unknown = true;
		read = list_concat_unique_oid(read, reads);
	}
	old = MemoryContextSwitchTo(wms_worker_context);
	list_free(read_by_streams);
	read_by_streams = list_copy(read);
	MemoryContextSwitchTo(old);
	foreach(lc, wms_runners)
		wms_runner_note_feeding(lfirst(lc));
}

void
wms_runners_reload(void)
{
	List	   *defs;
	ListCell   *lc;
	XLogRecPtr	now = wms_end_of_wal();

	XLogFlush(now);
	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	defs = wms_registry_exists() ? wms_registry_streams() : NIL;
	foreach(lc, wms_runners)
		((WmsRunner *) lfirst(lc))->gone = true;
	foreach(lc, defs)
	{
		WmsStreamDef *def = lfirst(lc);
		WmsRunner  *runner = wms_find_runner(def->stream);

		if (OidIsValid(wms_follows) && def->stream != wms_follows)
			continue;
		if (runner && runner->def->view != def->view)
		{
			/* dropped and made again in one transaction: another stream, and the worker's */
			if (OidIsValid(wms_follows))
				continue;
			remove_runner(runner);
			runner = NULL;
		}
		take_definition(runner ? runner : add_runner(def->stream), def, now);
	}
	note_feeding(defs);
	if (defs != NIL)
		(void) wms_mark_database(false);	/* should somebody have removed the mark */
	PopActiveSnapshot();
	CommitTransactionCommand();
	remove_gone_runners();
}

/* Another database may have given back a place that a stream of ours waits for, and a definition that was locked may not be any more. */
void
wms_runners_look_again(void)
{
	ListCell   *lc;

	if (feeding_unknown)
		wms_registry_distrust();
	foreach(lc, wms_runners)
		if (((WmsRunner *) lfirst(lc))->placeless && wms_stream_slots_free() > 0)
			wms_registry_distrust();
}

/* ---------------------------------------------------------------- new streams */

void
wms_runners_created(WmsBatch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(wms_worker_context);
	ListCell   *lc;

	foreach(lc, batch->created)
	{
		WmsCreated *created = lfirst(lc);
		Waiting    *w = palloc(sizeof(Waiting));

		w->stream = created->stream;
		w->view = created->view;
		w->end_lsn = created->end_lsn;
		w->hold = batch->start;
		w->xid = batch->xids[batch->ntxns - 1];
		waiting = lappend(waiting, w);
	}
	MemoryContextSwitchTo(old);
}

static bool
is_visible(const Waiting *w)
{
	return !TransactionIdIsInProgress(w->xid);
}

/* NULL: the registry does not show it yet, or it was dropped again; another stream may have been made on its table. */
static WmsRunner *
registered_runner(const Waiting *w)
{
	WmsRunner  *runner = wms_find_runner(w->stream);

	return runner && runner->def->view == w->view ? runner : NULL;
}

/*
 * The new stream's position becomes durable by its first, empty batch.  One that is to be filled has its position from that.  Where another stream
 * was dropped from the table and its follower has not let go of it yet, the first batch has to wait for that.
 */
static void
begin_at(WmsRunner *runner, const Waiting *w)
{
	if (runner->has_position || wms_fill_pending(runner->def))
		return;
	runner->progress.position = runner->work.position = w->end_lsn;
	runner->hold = w->hold;
	runner->has_position = true;
	runner->behind = true;		/* transactions that are open now may have brought rows before we wanted them */
	if (wms_runner_runs(runner))
		(void) wms_run_batch(runner, NULL, WMS_TIME_MIN);
}

/* What is not in the registry when its transaction is visible was dropped again. */
void
wms_runners_begin(void)
{
	ListCell   *lc;

	foreach(lc, waiting)
	{
		Waiting    *w = lfirst(lc);
		WmsRunner  *runner;

		if (!is_visible(w))
			continue;
		wms_runners_reload();
		runner = registered_runner(w);
		if (runner)
			begin_at(runner, w);
		waiting = foreach_delete_current(waiting, lc);
		pfree(w);
	}
}

XLogRecPtr
wms_creations_hold(void)
{
	XLogRecPtr	hold = PG_UINT64_MAX;
	ListCell   *lc;

	foreach(lc, waiting)
		hold = Min(hold, ((Waiting *) lfirst(lc))->hold);
	return hold;
}

bool
wms_creations_visible(void)
{
	ListCell   *lc;

	foreach(lc, waiting)
		if (is_visible(lfirst(lc)))
			return true;
	return false;
}
