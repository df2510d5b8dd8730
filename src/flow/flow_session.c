/*
 * flow_session.c
 *	  Aggregates over session windows.
 *
 * All sessions of a key are one entry, in the bucket that never leaves: a list of [start, end), each with its aggregate states; and
 * the kept rows of all of them, each behind its event time, which tells its session.  A row comes as a session [t, t + gap) of
 * its own and is merged with all that it touches or overlaps; states are combined.
 *
 * *Timers* make sessions close in the order of time without looking at those that do not: an entry of the same key whose value is
 * when the key has to be looked at.  A session that grows does not move its timer; when the timer runs out the key is
 * looked at and gets a new timer for what is still open.  So a key costs one timer for each gap that its sessions last.  Timers lie in
 * buckets of SLICES to the gap, for keys cost less than buckets: of the one that W stands in the middle of, those that W has
 * passed since the last firing are run, and stay until their bucket leaves.
 *
 * Late rows: the rows of a batch are first merged with what is there, and only then is a session that lies wholly
 * behind the watermark dropped: a row that belongs to an open session is not lost.  A session is *settled* when it cannot be dropped so any
 * more: it holds rows of former batches, or did not lie behind the watermark at the end of a chunk.  The others remember their
 * rows' numbers; at the end of a chunk their rows wait (flow_source.c), and at that of the batch they are dropped.
 *
 * With allowed lateness an emitted session stays; rows that touch it make it *touched* again, and when it closes
 * (again) the result rows that it has swallowed, remembered as *shown*, are replaced.
 *
 * The value of an entry: a head, and for each session a SessionHead, its shown windows and its packed states, each MAXALIGNed.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

typedef struct Session
{
	WmsTime		start;
	WmsTime		end;
	bool		touched;		/* has rows that the result does not show */
	bool		settled;		/* cannot be late any more */
	int64		fresh;			/* rows of this batch, while it is not settled */
	int			nshown;
	WmsWindow  *shown;			/* windows of the result rows that it replaces */
	FlowState  *states;
	int			nords;			/* rows of this batch, while it is not settled; */
	int			nwaiting;		/* the first of them are known to wait */
	int			ords_room;
	int64	   *ords;
} Session;

/* The working form of a key's entry. */
typedef struct Sessions
{
	int			n;
	int			room;
	Session    *list;			/* by start; they neither touch nor overlap */
	bool		in_chunk;		/* in op->touched */
	bool		waits;			/* in op->waiting */
} Sessions;

typedef struct SessionHead
{
	WmsTime		start;
	WmsTime		end;
	int32		touched;
	int32		nshown;
	int64		state_len;
} SessionHead;

#define SLICES 256
#define SLICE_OF_GAPS USECS_PER_SEC /* where every row has a gap of its own */

void
wms_flow_session_prepare(WmsFlow *flow, FlowOp *op)
{
	op->timer_slice = op->plan->gap_column > 0 ? SLICE_OF_GAPS : Max(1, op->plan->window.size / SLICES);
	op->retired = wms_rowset_make(flow->env, psprintf("wms_retired_%d", op->plan->id), op->plan->out_desc);
	flow->state_ops[op->plan->id].keep_span = -1;
}

/* ---------------------------------------------------------------- loading and storing */

static MemoryContext
work_context(FlowOp *op)
{
	return op->flow->agg->curaggcontext->ecxt_per_tuple_memory;
}

static Sessions *
sessions_new(FlowOp *op, int room)
{
	Sessions   *sessions = MemoryContextAllocZero(work_context(op), sizeof(Sessions));

	sessions->room = Max(room, 2);
	sessions->list = MemoryContextAllocZero(work_context(op), sizeof(Session) * sessions->room);
	return sessions;
}

static const char *
load_session(FlowOp *op, const char *at, Session *session)
{
	const SessionHead *head = (const SessionHead *) at;
	Size		shown = sizeof(WmsWindow) * head->nshown;

	session->start = head->start;
	session->end = head->end;
	session->touched = head->touched != 0;
	session->settled = true;
	session->nshown = head->nshown;
	at += MAXALIGN(sizeof(SessionHead));
	if (shown > 0)
	{
		session->shown = MemoryContextAlloc(work_context(op), shown);
		memcpy(session->shown, at, shown);
	}
	at += MAXALIGN(shown);
	session->states = wms_flow_states_load(op, at, head->state_len);
	return at + MAXALIGN(head->state_len);
}

static Sessions *
sessions_of(FlowOp *op, WmsEntry *entry)
{
	Sessions   *sessions = entry->work;
	const char *at = entry->value;
	int64		n;

	if (sessions)
		return sessions;
	if (entry->is_new || entry->value_len == 0)
		sessions = sessions_new(op, 0);
	else
	{
		n = *(const int64 *) at;
		sessions = sessions_new(op, n + 1);
		at += MAXALIGN(sizeof(int64));
		for (int i = 0; i < n; i++)
			at = load_session(op, at, &sessions->list[i]);
		sessions->n = n;
	}
	entry->work = sessions;
	return sessions;
}

static void
append_aligned(StringInfo to, const void *data, Size len)
{
	appendBinaryStringInfo(to, data, len);
	while (to->len % MAXIMUM_ALIGNOF != 0)
		appendStringInfoCharMacro(to, '\0');
}

void
wms_flow_session_encode(FlowOp *op, WmsEntry *entry, StringInfo value)
{
	Sessions   *sessions = entry->work;
	int64		n = sessions->n;
	StringInfoData states;

	initStringInfo(&states);
	append_aligned(value, &n, sizeof(n));
	for (int i = 0; i < sessions->n; i++)
	{
		Session    *s = &sessions->list[i];
		SessionHead head = {s->start, s->end, s->touched, s->nshown, 0};

		resetStringInfo(&states);
		wms_flow_states_encode(op, s->states, &states);
		head.state_len = states.len;
		append_aligned(value, &head, sizeof(head));
		append_aligned(value, s->shown, sizeof(WmsWindow) * s->nshown);
		append_aligned(value, states.data, states.len);
	}
	pfree(states.data);
}

/* ---------------------------------------------------------------- merging */

/* a replaces the result rows of b too. */
static void
take_over_shown(FlowOp *op, Session *a, const Session *b)
{
	WmsWindow  *both;

	if (b->nshown == 0)
		return;
	both = MemoryContextAlloc(work_context(op), sizeof(WmsWindow) * (a->nshown + b->nshown));
	if (a->nshown > 0)
		memcpy(both, a->shown, sizeof(WmsWindow) * a->nshown);
	memcpy(both + a->nshown, b->shown, sizeof(WmsWindow) * b->nshown);
	a->shown = both;
	a->nshown += b->nshown;
}

static void
forget_ords(Session *session)
{
	if (session->ords)
		pfree(session->ords);
	session->ords = NULL;
	session->nords = session->nwaiting = session->ords_room = 0;
}

static void
remember_ords(FlowOp *op, Session *session, const int64 *ords, int n)
{
	if (session->nords + n > session->ords_room)
	{
		session->ords_room = Max(session->nords + n, Max(4, session->ords_room * 2));
		if (session->ords)
			session->ords = repalloc_huge(session->ords, sizeof(int64) * session->ords_room);
		else
			session->ords = MemoryContextAllocHuge(work_context(op), sizeof(int64) * session->ords_room);
	}
	memcpy(session->ords + session->nords, ords, sizeof(int64) * n);
	session->nords += n;
}

/* b, which touches or overlaps a, goes into a. */
static void
merge(FlowOp *op, Session *a, Session *b)
{
	a->start = Min(a->start, b->start);
	a->end = Max(a->end, b->end);
	a->touched |= b->touched;
	a->settled |= b->settled;
	a->fresh += b->fresh;
	take_over_shown(op, a, b);
	if (b->nords > 0)
		remember_ords(op, a, b->ords, b->nords);
	forget_ords(b);
	wms_flow_states_combine(op, a->states, b->states);
}

static void
remove_session(Sessions *sessions, int i)
{
	memmove(&sessions->list[i], &sessions->list[i + 1], sizeof(Session) * (sessions->n - i - 1));
	sessions->n--;
}

/* A place for a session that begins at start; the others move up. */
static int
make_room(FlowOp *op, Sessions *sessions, WmsTime start)
{
	int			i = sessions->n;

	if (sessions->n == sessions->room)
	{
		Session    *wider = MemoryContextAllocZero(work_context(op), sizeof(Session) * sessions->room * 2);

		memcpy(wider, sessions->list, sizeof(Session) * sessions->n);
		sessions->list = wider;
		sessions->room *= 2;
	}
	while (i > 0 && sessions->list[i - 1].start > start)
		i--;
	memmove(&sessions->list[i + 1], &sessions->list[i], sizeof(Session) * (sessions->n - i));
	memset(&sessions->list[i], 0, sizeof(Session));
	sessions->n++;
	return i;
}

/* Merges the session at i with those after it, and the one before it, that it touches; where it is then. */
static int
merge_neighbours(FlowOp *op, Sessions *sessions, int i)
{
	if (i > 0 && sessions->list[i - 1].end >= sessions->list[i].start)
	{
		merge(op, &sessions->list[i - 1], &sessions->list[i]);
		remove_session(sessions, i--);
	}
	while (i + 1 < sessions->n && sessions->list[i + 1].start <= sessions->list[i].end)
	{
		merge(op, &sessions->list[i], &sessions->list[i + 1]);
		remove_session(sessions, i + 1);
	}
	return i;
}

/*
 * The one session that a row's own touches or overlaps: it takes the row in, which is the usual case.  NULL: there is none, or there are
 * several, which the row joins.
 */
static Session *
session_around(Sessions *sessions, WmsTime start, WmsTime end)
{
	for (int i = sessions->n - 1; i >= 0 && sessions->list[i].end >= start; i--)
	{
		if (sessions->list[i].start <= end)
			return i == 0 || sessions->list[i - 1].end < start ? &sessions->list[i] : NULL;
	}
	return NULL;
}

/* ---------------------------------------------------------------- timers */

/* In complete mode nothing closes. */
static bool
has_timers(FlowOp *op)
{
	return op->plan->bounded && op->flow->def->output_mode != WMS_COMPLETE;
}

void
wms_flow_session_encode_timer(WmsEntry *entry, StringInfo value, void *arg)
{
	if (entry->work)
		appendBinaryStringInfo(value, entry->work, sizeof(WmsTime));
	else
		appendBinaryStringInfo(value, entry->value, entry->value_len);
}

static WmsTime
runs_out_at(const WmsEntry *timer)
{
	return *(const WmsTime *) (timer->work ? timer->work : timer->value);
}

/*
 * Of a timer for at.  Those up to done have run out.  One that should have, as it is for rows that came within the allowed lateness,
 * gets a bucket that leaves with the next firing.
 */
static WmsBucketKey
timer_bucket(FlowOp *op, WmsTime at, WmsTime done)
{
	WmsTime		end = wms_grid_end(op->timer_slice, at);

	return (WmsBucketKey) {op->timer_op, WMS_TIME_MIN, at > done && WmsTimeIsFinite(end) ? end : at};
}

/* The key is to be looked at when W comes to at. */
static void
set_timer(FlowOp *op, WmsTime at, WmsTime done, const WmsEntry *of)
{
	WmsBucketKey bucket = timer_bucket(op, at, done);
	WmsEntry   *timer = wms_state_get(op->flow->store, &bucket, of->hash, of->key, of->key_len, true);

	if ((!timer->is_new || timer->work) && runs_out_at(timer) > done)
		at = Min(at, runs_out_at(timer));
	if (timer->work == NULL)
		timer->work = MemoryContextAlloc(op->flow->batch, sizeof(WmsTime));
	*(WmsTime *) timer->work = at;
}

/* ---------------------------------------------------------------- rows */

/* The row's session; false: it has no time or no gap. */
static bool
row_window(FlowOp *op, TupleTableSlot *slot, WmsWindow *window)
{
	WmsOpPlan  *plan = op->plan;
	int64		gap = plan->window.size;
	bool		has_months = false;

	if (slot->tts_isnull[plan->time_column - 1])
		return false;
	window->start = DatumGetTimestampTz(slot->tts_values[plan->time_column - 1]);
	if (!WmsTimeIsFinite(window->start))
		return false;
	if (plan->gap_column > 0)
	{
		gap = 0;
		if (!slot->tts_isnull[plan->gap_column - 1])
			gap = wms_interval_us(DatumGetIntervalP(slot->tts_values[plan->gap_column - 1]), 0, &has_months);
		if (gap <= 0 || has_months)
		{
			op->flow->progress->counters[WMS_COUNT_BAD_GAP]++;
			return false;
		}
	}
	return wms_session_window(window->start, gap, window);
}

static void
remember_row(FlowOp *op, Session *session, TupleTableSlot *slot)
{
	int			column = op->inputs[0]->plan->ord_column;
	int64		ord;

	if (session->settled || column == 0 || slot->tts_isnull[column - 1])
	{
		wms_flow_mark_row(op, 0, slot, FLOW_ROW_KEPT);
		return;
	}
	ord = DatumGetInt64(slot->tts_values[column - 1]);
	remember_ords(op, session, &ord, 1);
}

static void
keep_timed_row(FlowOp *op, WmsEntry *entry, WmsTime time, TupleTableSlot *slot)
{
	int			first = op->plan->nkeys;

	resetStringInfo(&op->kept_row);
	appendBinaryStringInfo(&op->kept_row, (char *) &time, sizeof(time));
	wms_pack(&op->kept_row, op->kept_row_desc, slot->tts_values + first, slot->tts_isnull + first);
	wms_state_keep(op->flow->store, entry, op->kept_row.data, op->kept_row.len);
}

static List *
append_in_batch(FlowOp *op, List *list, WmsEntry *entry)
{
	MemoryContext old = MemoryContextSwitchTo(op->flow->batch);

	list = lappend(list, entry);
	MemoryContextSwitchTo(old);
	return list;
}

static void
note_touched(FlowOp *op, WmsEntry *entry, Sessions *sessions)
{
	if (sessions->in_chunk)
		return;
	op->touched = append_in_batch(op, op->touched, entry);
	sessions->in_chunk = true;
}

/* A row's session [t, t + gap) of its own into those of its key; key is packed, slot holds the row of the operator's input. */
static void
add_session(FlowOp *op, WmsWindow window, uint32 hash, StringInfo key, TupleTableSlot *slot)
{
	WmsBucketKey all = {op->plan->id, WMS_TIME_MIN, WMS_TIME_MAX};
	WmsEntry   *entry;
	Sessions   *sessions;
	Session    *session;
	int			i;

	entry = wms_state_get(op->flow->store, &all, hash, key->data, key->len, true);
	sessions = sessions_of(op, entry);
	note_touched(op, entry, sessions);
	session = session_around(sessions, window.start, window.end);
	if (session == NULL)
	{
		i = make_room(op, sessions, window.start);
		session = &sessions->list[i];
		session->start = window.start;
		session->end = window.end;
		session->states = wms_flow_states_new(op);
		session = &sessions->list[merge_neighbours(op, sessions, i)];
	}
	session->start = Min(session->start, window.start);
	session->end = Max(session->end, window.end);
	session->touched = true;
	session->fresh++;
	remember_row(op, session, slot);
	if (op->nfast > 0)
		wms_flow_states_advance(op, session->states, slot);
	if (op->has_kept)
		keep_timed_row(op, entry, window.start, slot);
}

/* A row that has waited: it has a session, as it came. */
void
wms_flow_session_touch(FlowOp *op, uint32 hash, StringInfo key, TupleTableSlot *slot)
{
	WmsWindow	window;

	if (row_window(op, slot, &window))
		add_session(op, window, hash, key, slot);
}

void
wms_flow_session_row(FlowOp *op, TupleTableSlot *slot)
{
	WmsWindow	all = {WMS_TIME_MIN, WMS_TIME_MAX};
	WmsWindow	window;
	uint32		hash;

	if (!row_window(op, slot, &window))
		return;
	hash = wms_flow_pack_key(op, slot);
	if (op->looks_ahead && !op->flow->single)
		wms_flow_ahead_add(op, &all, hash, slot);
	else
		add_session(op, window, hash, &op->key, slot);
}

/* ---------------------------------------------------------------- kept rows of some sessions only */

typedef struct KeptFilter
{
	FlowOp	   *op;
	WmsEntry   *entry;			/* rewrite: the entry they go to */
	Sessions   *sessions;		/* rewrite: rows of these stay */
	WmsKeptFn	fn;				/* emission */
	void	   *arg;
	List	   *rows;			/* rewrite: copies */
} KeptFilter;

static bool
kept_of_session(const char *row, uint32 len, void *arg)
{
	KeptFilter *filter = arg;
	WmsTime		time = *(const WmsTime *) row;

	if (time >= filter->op->kept_from && time < filter->op->kept_to)
		return filter->fn(row + sizeof(WmsTime), len - sizeof(WmsTime), filter->arg);
	return true;
}

/* Where the emission of a session finds its kept rows: those of the key, filtered by time. */
static void
kept_in_store(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	FlowOp	   *op = &flow->ops[entry->bucket.op];
	KeptFilter	filter = {op, NULL, NULL, fn, arg, NIL};

	wms_state_kept(flow->store, op->current, kept_of_session, &filter);
}

static bool
note_kept(const char *row, uint32 len, void *arg)
{
	KeptFilter *filter = arg;
	WmsTime		time = *(const WmsTime *) row;
	StringInfo	copy;

	for (int i = 0; i < filter->sessions->n; i++)
	{
		Session    *s = &filter->sessions->list[i];

		if (time < s->start || time >= s->end)
			continue;
		copy = makeStringInfo();
		appendBinaryStringInfo(copy, row, len);
		filter->rows = lappend(filter->rows, copy);
		break;
	}
	return true;
}

/* Readers that do not see this batch want the key's sessions as they were: the entry itself changes. */
static void
keep_for_readers(FlowOp *op, WmsEntry *entry)
{
	if (bms_is_member(op->plan->id, op->flow->final->ops) && op->flow->def->output_mode != WMS_COMPLETE)
		wms_state_shelve(op->flow->store, entry);
}

/*
 * The key lost sessions: its entry is taken away if none is left, and otherwise, where rows are kept, made again with the rows of
 * those that are left, for kept rows only ever grow.
 */
static void
after_removal(FlowOp *op, WmsEntry *entry, Sessions *sessions)
{
	WmsStore   *store = op->flow->store;
	WmsBucketKey all = entry->bucket;
	KeptFilter	filter = {op, NULL, sessions, NULL, NULL, NIL};
	uint32		hash = entry->hash;
	char	   *key;
	uint32		key_len = entry->key_len;
	ListCell   *lc;

	if (sessions->n > 0 && !op->has_kept)
		return;
	keep_for_readers(op, entry);
	key = MemoryContextAlloc(op->flow->batch, Max(key_len, 1));
	memcpy(key, entry->key, key_len);
	if (sessions->n > 0)
		wms_state_kept(store, entry, note_kept, &filter);
	wms_state_remove(store, entry);
	if (sessions->n == 0)
		return;
	entry = wms_state_get(store, &all, hash, key, key_len, true);
	entry->work = sessions;
	foreach(lc, filter.rows)
	{
		StringInfo	row = lfirst(lc);

		wms_state_keep(store, entry, row->data, row->len);
	}
}

/* ---------------------------------------------------------------- settling a chunk, and the batch */

static void
mark_ords(FlowOp *op, Session *session, uint8 mark)
{
	for (int i = 0; i < session->nords; i++)
		wms_flow_mark_ord(op->flow, session->ords[i], mark);
	forget_ords(session);
}

static void
let_wait(FlowOp *op, WmsEntry *entry, Sessions *sessions, Session *session)
{
	for (; session->nwaiting < session->nords; session->nwaiting++)
		wms_flow_mark_ord(op->flow, session->ords[session->nwaiting], FLOW_ROW_WAITS);
	if (!sessions->waits)
		op->waiting = append_in_batch(op, op->waiting, entry);
	sessions->waits = true;
}

static void
keep(FlowOp *op, WmsEntry *entry, Session *session)
{
	mark_ords(op, session, FLOW_ROW_KEPT);
	if (has_timers(op) && session->touched && (!session->settled || session->nshown > 0))
		set_timer(op, session->end, wms_flow_op_watermark(op, op->flow->old_watermark), entry);
	session->settled = true;
	session->fresh = 0;
}

static WmsTime
wakes_at(FlowOp *op, const Session *session)
{
	bool		top = op->plan->id == op->flow->plan->top_op;

	if (session->touched || !top)
		return session->end;
	return wms_time_add(session->end, op->flow->def->lateness_us);
}

static bool
looks_late(FlowOp *op, const Session *session)
{
	return !session->settled && wms_flow_gone(op, session->end);
}

static void
settle_entry(FlowOp *op, WmsEntry *entry)
{
	Sessions   *sessions = entry->work;

	sessions->in_chunk = false;
	for (int i = sessions->n - 1; i >= 0; i--)
	{
		Session    *s = &sessions->list[i];

		if (looks_late(op, s))
			let_wait(op, entry, sessions, s);
		else
			keep(op, entry, s);
	}
}

static void
drop_late_of(FlowOp *op, WmsEntry *entry)
{
	Sessions   *sessions = entry->work;
	bool		removed = false;

	sessions->waits = false;
	for (int i = sessions->n - 1; i >= 0; i--)
	{
		Session    *s = &sessions->list[i];

		if (!looks_late(op, s))
			continue;
		mark_ords(op, s, FLOW_ROW_DROPPED);
		op->counts.late_rows += s->fresh;
		remove_session(sessions, i);
		removed = true;
	}
	if (removed)
		after_removal(op, entry, sessions);
}

/* Between chunks, when no more rows come that could join sessions that look late to others. */
void
wms_flow_session_drop_late(FlowOp *op)
{
	ListCell   *lc;

	foreach(lc, op->waiting)
		drop_late_of(op, lfirst(lc));
	list_free(op->waiting);
	op->waiting = NIL;
}

/* The next entries of a chunk, what was made of them and their timers lie anywhere in memory: asks for all of it before any is touched. */
static void
expect_touched(FlowOp *op, int from)
{
	WmsTime		done = wms_flow_op_watermark(op, op->flow->old_watermark);
	int			upto = Min(from + WMS_EXPECT_MAX, list_length(op->touched));

	for (int i = from; i < upto; i++)
		wms_prefetch(list_nth(op->touched, i));
	for (int i = from; i < upto; i++)
		wms_prefetch(((WmsEntry *) list_nth(op->touched, i))->work);
	for (int i = from; i < upto && has_timers(op); i++)
	{
		WmsEntry   *entry = list_nth(op->touched, i);
		Sessions   *sessions = entry->work;
		WmsBucketKey timer;

		if (sessions->n == 0)
			continue;
		timer = timer_bucket(op, sessions->list[sessions->n - 1].end, done);
		wms_state_expect_new(op->flow->store, &timer, entry->hash);
	}
}

/* At the end of a chunk, before its rows are settled. */
void
wms_flow_session_settle(FlowOp *op)
{
	for (int i = 0; i < list_length(op->touched); i++)
	{
		if (i % WMS_EXPECT_MAX == 0)
			expect_touched(op, i);
		settle_entry(op, list_nth(op->touched, i));
	}
	list_free(op->touched);
	op->touched = NIL;
}

/* ---------------------------------------------------------------- emission */

static void
emit_session(FlowOp *op, WmsEntry *entry, Session *session,
			 void (*kept) (WmsFlow *, WmsEntry *, WmsKeptFn, void *))
{
	WmsEntry	shown = *entry;

	shown.bucket.start = session->start;
	shown.bucket.end = session->end;
	shown.work = session->states;
	op->current = entry;
	op->kept_from = session->start;
	op->kept_to = session->end;
	wms_flow_emit_entry(op, &shown, kept);
}

/* The rows under these windows are replaced: their keys are told to the sink, or, with its own window among them, to a reader. */
static void
retire(FlowOp *op, WmsEntry *entry, Session *session, bool own_too)
{
	int			natts = op->out->desc->natts;
	Datum	   *values = palloc0(sizeof(Datum) * natts);
	bool	   *isnull = palloc(sizeof(bool) * natts);
	WmsEntry	shown = *entry;

	for (int i = 0; i < session->nshown; i++)
	{
		if (!own_too && session->shown[i].start == session->start && session->shown[i].end == session->end)
			continue;
		shown.bucket.start = session->shown[i].start;
		shown.bucket.end = session->shown[i].end;
		memset(isnull, true, natts);
		wms_flow_emit_keys(op, &shown, values, isnull);
		tuplestore_putvalues(op->retired->rows, op->retired->desc, values, isnull);
	}
}

static void
show(FlowOp *op, WmsEntry *entry, Session *session)
{
	keep_for_readers(op, entry);
	retire(op, entry, session, false);
	emit_session(op, entry, session, kept_in_store);
	session->touched = false;
	session->shown = MemoryContextAlloc(work_context(op), sizeof(WmsWindow));
	session->shown[0].start = session->start;
	session->shown[0].end = session->end;
	session->nshown = 1;
}

/* A timer of this key has run out. */
static void
look_at(FlowOp *op, WmsEntry *entry, WmsTime now)
{
	bool		top = op->plan->id == op->flow->plan->top_op;
	int64		lateness = top ? op->flow->def->lateness_us : 0;
	Sessions   *sessions = sessions_of(op, entry);
	WmsTime		next = WMS_TIME_MAX;
	bool		removed = false;

	for (int i = 0; i < sessions->n; i++)
	{
		Session    *s = &sessions->list[i];

		if (s->end <= now && s->touched)
			show(op, entry, s);
		if (wms_time_add(s->end, lateness) <= now)
		{
			remove_session(sessions, i--);
			removed = true;
		}
		else
			next = Min(next, wakes_at(op, s));
	}
	if (next != WMS_TIME_MAX)
		set_timer(op, next, now, entry);
	if (removed)
		after_removal(op, entry, sessions);
}

typedef struct Due
{
	uint32		hash;
	uint32		key_len;
	char	   *key;
} Due;

typedef struct DueScan
{
	List	   *due;
	WmsTime		after;			/* those that run out in (after, upto] */
	WmsTime		upto;
} DueScan;

static void
note_due(WmsEntry *timer, void *arg)
{
	DueScan    *scan = arg;
	WmsTime		at = runs_out_at(timer);
	Due		   *d;

	if (at <= scan->after || at > scan->upto)
		return;
	d = palloc(sizeof(Due));

	d->hash = timer->hash;
	d->key_len = timer->key_len;
	d->key = palloc(Max(timer->key_len, 1));
	memcpy(d->key, timer->key, timer->key_len);
	scan->due = lappend(scan->due, d);
}

static void
expect_due(FlowOp *op, const WmsBucketKey *bucket, const List *due, int from)
{
	WmsExpected expected[WMS_EXPECT_MAX];
	int			n = Min(list_length(due) - from, WMS_EXPECT_MAX);

	for (int i = 0; i < n; i++)
		expected[i] = (WmsExpected) {*bucket, ((Due *) list_nth(due, from + i))->hash};
	wms_state_expect(op->flow->store, expected, n);
}

static void
look_at_due(FlowOp *op, List *due, WmsTime now)
{
	WmsBucketKey all = {op->plan->id, WMS_TIME_MIN, WMS_TIME_MAX};

	for (int i = 0; i < list_length(due); i++)
	{
		Due		   *d = list_nth(due, i);
		WmsEntry   *entry;

		if (i % WMS_EXPECT_MAX == 0)
			expect_due(op, &all, due, i);
		entry = wms_state_get(op->flow->store, &all, d->hash, d->key, d->key_len, false);
		if (entry)
			look_at(op, entry, now);
	}
}

static void
run_timers(FlowOp *op, WmsTime old, WmsTime now)
{
	WmsStore   *store = op->flow->store;
	WmsBucketKey timer = {op->timer_op, WMS_TIME_MIN, WMS_TIME_MIN};
	bool		more;

	while ((more = wms_state_next_bucket(store, &timer)) && timer.end <= now)
	{
		/* in a bucket that ends by old are those that should have run out before */
		DueScan		scan = {NIL, timer.end <= old ? WMS_TIME_MIN : old, now};

		wms_state_scan(store, &timer, note_due, &scan);
		wms_state_close(store, &timer);
		look_at_due(op, scan.due, now);
	}
	if (more && WmsTimeIsFinite(timer.end) && wms_time_add(timer.end, -op->timer_slice) < now)
	{
		DueScan		scan = {NIL, old, now};

		wms_state_scan(store, &timer, note_due, &scan);
		look_at_due(op, scan.due, now);
	}
}

/* ---------------------------------------------------------------- when the next closes, and the last */

typedef struct Ends
{
	WmsTime		after;
	WmsTime		least;			/* of those after; WMS_TIME_MAX: there is none */
	WmsTime		greatest;
} Ends;

static void
note_end(WmsEntry *timer, void *arg)
{
	Ends	   *ends = arg;
	WmsTime		at = runs_out_at(timer);

	if (at <= ends->after)
		return;
	ends->least = Min(ends->least, at);
	ends->greatest = Max(ends->greatest, at);
}

/* At the end of a batch: what figures and the idle rule want to know of timers. */
void
wms_flow_session_note_ends(FlowOp *op, WmsTime w)
{
	WmsStore   *store = op->flow->store;
	WmsBucketKey timer = {op->timer_op, WMS_TIME_MAX, w};
	WmsBucketKey last;
	Ends		ends = {w, WMS_TIME_MAX, WMS_TIME_MIN};
	bool		found = false;

	while (ends.least == WMS_TIME_MAX && wms_state_next_bucket(store, &timer))
		wms_state_scan(store, &timer, note_end, &ends);
	if (op->flow->def->close_when_idle)
	{
		while (wms_state_next_bucket(store, &timer))
		{
			last = timer;
			found = true;
		}
		if (found)
			wms_state_scan(store, &last, note_end, &ends);
	}
	op->next_end = ends.least;
	op->last_end = ends.greatest;
}

static void
emit_all_of_key(WmsEntry *entry, void *arg)
{
	FlowOp	   *op = arg;
	Sessions   *sessions = sessions_of(op, entry);

	for (int i = 0; i < sessions->n; i++)
		emit_session(op, entry, &sessions->list[i], kept_in_store);
}

void
wms_flow_session_fire(FlowOp *op, WmsTime now, WmsOutputMode mode)
{
	WmsBucketKey all = {op->plan->id, WMS_TIME_MIN, WMS_TIME_MAX};

	if (mode == WMS_COMPLETE)
		wms_state_scan(op->flow->store, &all, emit_all_of_key, op);
	else
		run_timers(op, wms_flow_op_watermark(op, op->flow->old_watermark), now);
}

/* ---------------------------------------------------------------- readers */

static void
kept_of_reader(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	FlowOp	   *op = &flow->ops[entry->bucket.op];
	KeptFilter	filter = {op, NULL, NULL, fn, arg, NIL};

	wms_reader_kept(op->current, kept_of_session, &filter);
}

/* The sessions of a key that the result does not show; entry is a reader's copy. */
void
wms_flow_session_read(FlowOp *op, WmsEntry *entry)
{
	Sessions   *sessions = sessions_of(op, entry);

	for (int i = 0; i < sessions->n; i++)
	{
		if (!sessions->list[i].touched)
			continue;
		retire(op, entry, &sessions->list[i], true);
		emit_session(op, entry, &sessions->list[i], kept_of_reader);
	}
}
