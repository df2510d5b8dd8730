/*
 * worker_trim.c
 *	  Rows of queues that all streams have had are deleted.
 *
 * A queue with trim loses the rows that every stream that reads it has had, by its durable position.  One round looks at one
 * queue: it collects up to TRIM_ROWS such rows by the index, from its lower end on, and deletes them by an ordinary statement, as the
 * owner of the queue, in one short transaction.  That blocks neither writers nor dumps; triggers, rules and foreign keys do what they do, to tables
 * that streams may read: the deletion is decoded where there are such.
 * Rows of a transaction that some stream has not seen yet stay, and hold nothing else up.
 *
 * A stream that is to be filled with existing rows holds all of them.  Which streams read a queue is asked of the registry in the same transaction: a stream that was made just now, and is
 * not in the list of runners yet, holds what committed after it.  A queue without streams is not trimmed.  Streams that begin anew
 * whatever happens (restored, needs_resync) hold nothing.
 *
 * Rounds come every second, at once after one that found its fill, and seldom where there is nothing to do or something stands in the way
 * (an error, or rows that stay though they were to be deleted), which goes to the server's log.  Code of the queue's owner that takes until
 * batch_timeout has to wait longer each time, or it would take most of the worker's time.  That is not remembered over a restart, which costs
 * one more attempt for each queue.
 *
 * Where deleting rows crashes the server (a trigger's C code), that is charged to the queue (worker_crash.c): after some crashes its rows stay until
 * its owner says otherwise (wmstream.set_trim), which is noted in wmstream.queue; its streams and other queues go on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define TRIM_ROWS 5000
#define FIRST_WAIT_MS 1000
#define LAST_WAIT_MS 30000
#define ERROR_WAIT_MS 60000
#define LAST_SLOW_WAIT_MS 3600000

/* What is remembered of a queue from round to round. */
typedef struct Trimmed
{
	Oid			queue;
	TimestampTz next_at;
	int			wait_ms;
	int			slow_wait_ms;	/* after batch_timeout; 0: the last round did not take so long */
	bool		stuck;			/* the last round had rows to delete, and deleted none */
	uint64		below;			/* nothing before this transaction is left */
	bool		present;		/* it is a queue still */
} Trimmed;

/* One whose rows stay, though that is not written down yet. */
typedef struct Stopped
{
	Oid			queue;
	char	   *reason;
} Stopped;

static List *stopped = NIL;		/* Stopped *, in wms_worker_context */
static List *trimmed = NIL;		/* Trimmed *, in wms_worker_context */
static TimestampTz next_look = 0;

/* ---------------------------------------------------------------- who has had what */

/* Its durable position, or where it begins. */
static const WmsSeen *
position_of(const WmsStreamDef *def)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);

		if (runner->stream == def->stream && runner->def->view == def->view && runner->progress.seen)
			return runner->progress.seen;
	}
	return def->begins_after;
}

/*
 * Positions (const WmsSeen *) of the streams that may still want rows of the queue; NIL: there are none, or it cannot be known, as somebody is just
 * changing a definition.
 */
static List *
positions_in(Oid queue)
{
	static const WmsSeen nothing = {0};
	List	   *positions = NIL;
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(lc);
		List	   *reads;

		if (!def->reads_queues || get_rel_relkind(def->view) != RELKIND_VIEW)
			continue;
		if (!wms_definition_reads_now(def->view, &reads))
			return NIL;
		if (!list_member_oid(reads, queue))
			continue;
		if (wms_fill_pending(def))
			return list_make1(unconstify(WmsSeen *, &nothing));	/* it wants all rows that there are */
		if (def->status != WMS_RESTORED && def->status != WMS_NEEDS_RESYNC)
			positions = lappend(positions, unconstify(WmsSeen *, position_of(def)));
	}
	return positions;
}

static bool
had_by_all(uint64 xid, void *arg)
{
	ListCell   *lc;

	foreach(lc, (List *) arg)
	{
		const WmsSeen *seen = lfirst(lc);

		if (!wms_seen_has(seen, xid))
			return false;
	}
	return true;
}

/* All before it have been had by all. */
static uint64
had_below(List *positions)
{
	uint64		below = PG_UINT64_MAX;
	ListCell   *lc;

	foreach(lc, positions)
	{
		const WmsSeen *seen = lfirst(lc);

		below = Min(below, seen->nxip > 0 ? seen->xip[0] : seen->xmax);
	}
	return below;
}

static uint64
had_upto(List *positions)
{
	uint64		upto = PG_UINT64_MAX;
	ListCell   *lc;

	foreach(lc, positions)
		upto = Min(upto, ((const WmsSeen *) lfirst(lc))->xmax);
	return upto;
}

/* ---------------------------------------------------------------- deleting */

/* Number of rows deleted: not all if somebody else was quicker, or if a trigger or row-level security leaves them there. */
static int64
delete_rows(Oid queue, Oid owner, const ItemPointerData *tids, int ntids)
{
	QueryEnvironment *env = create_queryEnv();
	TupleDesc	desc = CreateTemplateTupleDesc(1);
	WmsStreamDef as_owner = {.owner = owner};
	WmsOwnerScope scope;
	WmsRowSet  *set;
	WmsQuery   *query;
	int64		deleted;

	TupleDescInitEntry(desc, 1, "tid", TIDOID, -1, 0);
	set = wms_rowset_make(env, "wms_trim", desc);
	wms_rowset_begin(set);
	for (int i = 0; i < ntids; i++)
	{
		Datum		value = PointerGetDatum(&tids[i]);
		bool		isnull = false;

		tuplestore_putvalues(set->rows, desc, &value, &isnull);
	}
	wms_become_owner(&as_owner, &scope);
	wms_batch_clock_start();
	query = wms_query_parse(psprintf("DELETE FROM ONLY %s WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT tid FROM wms_trim))",
									 quote_qualified_identifier(get_namespace_name(get_rel_namespace(queue)), get_rel_name(queue))), env);
	wms_query_plan(query);
	deleted = wms_query_write(query);
	(void) wms_batch_clock_stop();
	wms_leave_owner(&scope);
	wms_rowset_end(set);
	return deleted;
}

/* Looks for rows under a snapshot that is not older than the lock, and deletes them.  How many were deleted. */
static int64
find_and_delete(Oid queue, WmsQueueFind *find)
{
	int64		deleted = 0;

	WMS_POINT("trim-locking");
	wms_queue_lock(list_make1_oid(queue));
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_queue_find(queue, find);
	if (find->ntids > 0)
	{
		if (find->has_effects)
			replorigin_session_origin = InvalidRepOriginId;
		deleted = delete_rows(queue, find->owner, find->tids, find->ntids);
		WMS_POINT("queue-trimmed");
	}
	PopActiveSnapshot();
	return deleted;
}

static void
trim_some(Trimmed *t)
{
	int64		deleted = 0;
	WmsQueueFind find = {.from = t->below,.tids = palloc(sizeof(ItemPointerData) * TRIM_ROWS),.room = TRIM_ROWS,.wanted = had_by_all};
	List	   *positions;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(wms_batch_context);
	positions = positions_in(t->queue);
	PopActiveSnapshot();
	if (positions != NIL)
	{
		find.upto = had_upto(positions);
		find.arg = positions;
		deleted = find_and_delete(t->queue, &find);
		if (find.ntids < TRIM_ROWS)
			find.from = had_below(positions);
	}
	CommitTransactionCommand();
	/* what is left behind is looked for again */
	if (positions != NIL && find.ntids < TRIM_ROWS && deleted == find.ntids)
		t->below = find.from;
	t->stuck = find.ntids > 0 && deleted == 0;
	if (find.ntids > 0)
		t->wait_ms = deleted == TRIM_ROWS ? 0 : FIRST_WAIT_MS;
	else
		t->wait_ms = Min(Max(t->wait_ms, FIRST_WAIT_MS) * 2, LAST_WAIT_MS);
}

static void
put_off(Trimmed *t)
{
	t->wait_ms = Max(t->slow_wait_ms, ERROR_WAIT_MS);
	ereport(LOG,
			(errmsg("rows of queue with OID %u could not be deleted", t->queue),
			 errhint("It is tried again in %d seconds. DELETE of its owner must be possible, and no trigger or row-level security may leave the rows there.",
					 t->wait_ms / 1000)));
}

static void
note_error(Trimmed *t)
{
	MemoryContextSwitchTo(wms_batch_context);
	EmitErrorReport();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	t->slow_wait_ms = wms_batch_clock_stop() ? Min(Max(t->slow_wait_ms * 2, ERROR_WAIT_MS), LAST_SLOW_WAIT_MS) : 0;
	put_off(t);
}

static void
trim_one(Trimmed *t)
{
	bool		was_stuck = t->stuck;

	wms_crash_trimming(t->queue);
	PG_TRY();
	{
		trim_some(t);
		t->slow_wait_ms = 0;
		/* once may be somebody else's DELETE */
		if (t->stuck && was_stuck)
			put_off(t);
	}
	PG_CATCH();
	{
		note_error(t);
	}
	PG_END_TRY();
	wms_crash_trimming(InvalidOid);
	wms_after_owner();
	replorigin_session_origin = DoNotReplicateId;
	t->next_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), t->wait_ms);
	MemoryContextReset(wms_batch_context);
}

/* ---------------------------------------------------------------- which queues */

static bool
is_stopped(Oid queue)
{
	ListCell   *lc;

	foreach(lc, stopped)
		if (((Stopped *) lfirst(lc))->queue == queue)
			return true;
	return false;
}

void
wms_trim_stop(Oid queue, const char *reason)
{
	MemoryContext old = MemoryContextSwitchTo(wms_worker_context);
	Stopped    *s;

	if (!is_stopped(queue))
	{
		s = palloc(sizeof(Stopped));
		s->queue = queue;
		s->reason = pstrdup(reason);
		stopped = lappend(stopped, s);
	}
	MemoryContextSwitchTo(old);
}

static void
write_stop(const Stopped *s)
{
	char	   *name;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_queue_stop_trim(s->queue, s->reason);
	name = get_rel_name(s->queue);
	if (name)
		ereport(WARNING,
				(errmsg("rows of queue \"%s\" are not deleted any more", name),
				 errdetail_internal("%s", s->reason),
				 errhint("Mend its triggers, then call wmstream.set_trim('%s', true).", name)));
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Crashes are counted anew when it is written down that they have had this effect. */
static void
write_stops(void)
{
	volatile bool done = true;
	ListCell   *lc;

	if (stopped == NIL)
		return;
	PG_TRY();
	{
		foreach(lc, stopped)
			write_stop(lfirst(lc));
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(wms_batch_context);
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		done = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(wms_worker_context);
	if (!done)
		return;					/* at the next round */
	XLogFlush(wms_last_commit());
	foreach(lc, stopped)
	{
		wms_crash_pardon(((Stopped *) lfirst(lc))->queue, true);
		pfree(((Stopped *) lfirst(lc))->reason);
	}
	list_free_deep(stopped);
	stopped = NIL;
}

static Trimmed *
find_trimmed(Oid queue)
{
	ListCell   *lc;
	Trimmed    *t;
	MemoryContext old;

	foreach(lc, trimmed)
		if (((Trimmed *) lfirst(lc))->queue == queue)
			return lfirst(lc);
	old = MemoryContextSwitchTo(wms_worker_context);
	t = palloc0(sizeof(Trimmed));
	t->queue = queue;
	trimmed = lappend(trimmed, t);
	MemoryContextSwitchTo(old);
	return t;
}

static void
look_for_queues(void)
{
	ListCell   *lc;

	foreach(lc, trimmed)
		((Trimmed *) lfirst(lc))->present = false;
	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, wms_queues())
	{
		WmsQueueDef *def = lfirst(lc);

		if (def->trim && def->trim_stopped == NULL && !is_stopped(def->queue))
			find_trimmed(def->queue)->present = true;
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(wms_worker_context);
	foreach(lc, trimmed)
	{
		Trimmed    *t = lfirst(lc);

		if (t->present)
			continue;
		trimmed = foreach_delete_current(trimmed, lc);
		pfree(t);
	}
}

static bool
any_reads_queues(void)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
		if (((WmsRunner *) lfirst(lc))->def->reads_queues)
			return true;
	return false;
}

bool
wms_trim_queues(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		more = false;
	ListCell   *lc;

	if (!any_reads_queues())
		return false;
	if (now >= next_look)
	{
		write_stops();
		look_for_queues();
		next_look = TimestampTzPlusMilliseconds(now, FIRST_WAIT_MS);
	}
	foreach(lc, trimmed)
	{
		Trimmed    *t = lfirst(lc);

		if (now < t->next_at)
			continue;
		trim_one(t);
		more = more || t->wait_ms == 0;
	}
	return more;
}
