/*
 * worker_stream.c
 *	  The worker's list of streams, in line with the registry, and what is to be done next for each.
 *
 * A *runner* is a stream as this worker holds it.  The registry is read again whenever a transaction that
 * changed it has committed (a counter in shared memory tells).  A new stream has no position until the insert of its
 * registry row has been decoded: the end of that commit is its first one.  By its view it is told from others that were made on the same table and
 * dropped again, whose rows are decoded, too, when the worker is behind.  As decoding runs ahead of visibility, the
 * registry may not show the row yet; the stream begins when it does, and is behind then: what was read meanwhile is read again for it.
 *
 * Each batch is queued at every runner that wants it and does not have it yet; queues share batches by reference.  A runner
 * that cannot go on (blocked) keeps its queue, up to QUEUE_BYTES; then it lets the queue go and is *behind*, as is one
 * that was paused, failed or is new: it needs a rewind, after which batches come again from its position on, and
 * the others skip what they have had.
 *
 * A stream for which shared memory has no slot (wmstream.max_streams is less than there are) does not run, but is held as a paused one
 * is, so that it goes on from where it was when there is one.  The other streams do not notice.
 *
 * A runner whose sources are queue tables takes no part in that: it reads its queues by itself (worker_queue.c), when it has
 * nothing queued, and is never behind.
 *
 * Commands (pause, resume, alter, advance) apply at a batch boundary when everything that committed before
 * the command was noticed has been consumed, so their order against the rows is the one the user saw.
 *
 * A transaction that is changing a stream may stay open for ever, and holds up that stream only: nothing here waits for its locks.
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

#define QUEUE_BYTES (256L * 1024 * 1024)
#define FIGURES_MS 1000
/* Where one firing makes room for the next: windows that close one after the other when all is idle. */
#define AGAIN_MS 10
#define ELSEWHERE_MS 1000		/* between looks at what processes of others do, which do not wake us: whether a follower or a place is to be had */
#define WAL_LOST "the replication slot was made anew since this stream read WAL last, and what was written meanwhile is lost. " \
	"Rebuild the stream with wmstream.resync()."

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
static XLogRecPtr slot_birth = InvalidXLogRecPtr;	/* of the slot that is open, or was */
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
		runner->status = WMS_BLOCKED;
		wms_stream_set_error(runner->slot, reason);
		wms_runner_announce(runner);
	}
}

static void
let_queue_go(WmsRunner *runner)
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

/* Everything of the stream in this process and in shared memory goes; the log stays. */
void
wms_runner_unload(WmsRunner *runner)
{
	let_queue_go(runner);
	if (runner->store)
		wms_store_destroy(runner->store);
	runner->store = NULL;
	if (runner->flow)
		wms_flow_free(runner->flow);
	runner->flow = NULL;
	runner->unseen_xid = InvalidTransactionId;
	wms_fill_drop(runner);
}

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

static void
sentence(WmsRunner *runner, WmsStatus status, const char *reason)
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
	sentence(runner, status, reason);
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
	sentence(runner, WMS_NEEDS_RESYNC, damage);
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
	if (has_lost_wal(runner))
	{
		sentence(runner, WMS_NEEDS_RESYNC, WAL_LOST);
		return;
	}
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

/* ---------------------------------------------------------------- batches */

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
			let_queue_go(runner);
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
static XLogRecPtr
read_by(const WmsRunner *runner, XLogRecPtr read_upto)
{
	return runner->def->reads_queues ? runner->read_lsn : read_upto;
}

/*
 * A stream that has just been started: builds the flow and loads the state by a batch without rows.  So does one that runs when its flow was
 * built anew without running, or when something that it depends on has changed: what is not a stream any more (its table is not logged, say) might never have a row that tells.
 */
static bool
wake_up(WmsRunner *runner)
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
		!runner->has_position || read_by(runner, read_upto) < runner->command_after)
		return false;
	runner->command_after = InvalidXLogRecPtr;
	if (!wms_run_batch(runner, NULL, runner->def->advance_to))
		runner->command_after = read_by(runner, read_upto);
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
	did |= wake_up(runner);
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

	foreach(lc, waiting)
		if (reads && is_visible(lfirst(lc)))
			return true;
	foreach(lc, wms_runners)
		if (is_at_hand(lfirst(lc), reads))
			return true;
	return false;
}

/* ---------------------------------------------------------------- positions */

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
	XLogRecPtr	needed = read_upto;
	ListCell   *lc;

	foreach(lc, waiting)
		needed = Min(needed, ((Waiting *) lfirst(lc))->hold);
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

	if (feeding_unknown)
		wms_registry_distrust();	/* looked at again, but not at every turn */
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

/* Another database may have given back a place that a stream of ours waits for. */
void
wms_runners_seek_places(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
		if (((WmsRunner *) lfirst(lc))->placeless && wms_stream_slots_free() > 0)
			wms_registry_distrust();
}

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
		(void) wake_up(runner);
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

void
wms_runners_retry(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
		((WmsRunner *) lfirst(lc))->retry_at = 0;
}

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

		XLogRecPtr	upto = wms_runner_consumed_all(runner) ? read_by(runner, read_upto) : runner->progress.position;

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
