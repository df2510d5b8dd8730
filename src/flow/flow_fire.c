/*
 * flow_fire.c
 *	  A batch from begin to end, and the firing in it: W advances, what it passed closes, the result is written.
 *
 * A firing goes through the operators in order of their numbers, so that one insert may flow through all levels in one
 * batch: inputs that read the row sets of lower operators run first (their rows are tested against the W of
 * the last firing, like all others), then the operator emits:
 *
 *   append    buckets with end <= W, each once; again, in place, the groups of closed buckets that got
 *             rows while their allowed lateness lasted
 *   update    the groups touched since the last firing
 *   complete  all groups
 *
 * and buckets with end + allowed lateness <= W leave (never in complete mode).  Only the top operator sees the
 * output mode and the lateness; lower ones append.
 *
 * An entry that is to be shown though its window does not close carries a durable mark (WMS_ENTRY_PENDING) from its touch to the next
 * firing, which may be some batches later.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

/* ---------------------------------------------------------------- begin and end */

static void
begin_sets(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (flow->sources[i].raw)
			wms_rowset_begin(flow->sources[i].raw);
		wms_rowset_begin(flow->sources[i].in);
		flow->sources[i].shape = NULL;
	}
	for (int i = 0; i < flow->plan->nops; i++)
		wms_rowset_begin(flow->ops[i].out);
	flow->result = wms_sink_rows(flow->sink);
}

static void
lock_query(WmsQuery *q)
{
	if (q)
		wms_query_lock(q);
}

void
wms_flow_lock(WmsFlow *flow)
{
	LockRelationOid(flow->def->stream, RowExclusiveLock);
	if (OidIsValid(flow->def->late_table))
		LockRelationOid(flow->def->late_table, RowExclusiveLock);
	for (int i = 0; i < flow->plan->nsources; i++)
		lock_query(flow->sources[i].below);
	for (int i = 0; i < flow->plan->nops; i++)
	{
		for (int side = 0; side < 2; side++)
			if (flow->ops[i].inputs[side])
				lock_query(flow->ops[i].inputs[side]->query);
		lock_query(flow->ops[i].kept_query);
	}
	lock_query(flow->final->query);
	lock_query(flow->shown);
}

/* In update mode the result has groups of all windows, in append mode of those that were passed and may be refined. */
static WmsTime
shown_upto(const FlowOp *op)
{
	const WmsFlow *flow = op->flow;

	if (op->plan->id != flow->plan->top_op || !wms_flow_replaces(flow) || flow->def->output_mode == WMS_COMPLETE)
		return WMS_TIME_MIN;
	return flow->def->output_mode == WMS_UPDATE ? WMS_TIME_MAX : wms_flow_op_watermark(op, flow->old_watermark);
}

/* The moment of the batch.  W may be ahead of the clock, which can be set back: as a time of rows, of which none is late, it waits for it. */
static TimestampTz
started_at(const WmsFlow *flow)
{
	TimestampTz now = GetCurrentTransactionStartTimestamp();

	return flow->plan->processing_time ? Max(now, flow->old_watermark) : now;
}

void
wms_flow_begin(WmsFlow *flow, WmsStore *store, WmsProgress *progress, MemoryContext batch)
{
	MemoryContext old = MemoryContextSwitchTo(batch);

	flow->store = store;
	flow->progress = progress;
	flow->batch = batch;
	flow->batches++;
	flow->old_watermark = progress->watermark;
	flow->started_at = started_at(flow);
	flow->nrows = 0;
	flow->row_bytes = 0;
	flow->first_ord = 0;
	flow->fed = 0;
	flow->rows = palloc(sizeof(FlowRow) * (FLOW_CHUNK_ROWS + 2 * WMS_MAX_SOURCES));	/* what one change may add when there is just room for it */
	flow->nresult = 0;
	flow->fired = false;
	flow->trying = false;
	flow->sink_us = 0;
	for (int i = 0; i < flow->plan->nops; i++)
	{
		memset(&flow->ops[i].counts, 0, sizeof(FlowCounts));
		flow->ops[i].fed_row = NULL;	/* an error may have left one */
		flow->ops[i].shown_upto = shown_upto(&flow->ops[i]);
		wms_flow_ahead_begin(&flow->ops[i]);
		if (flow->ops[i].join)
			wms_flow_join_begin(&flow->ops[i]);
	}
	wms_flow_vector_begin(flow);
	memset(flow->source_had_rows, 0, sizeof(flow->source_had_rows));
	progress->nsources = flow->plan->nsources;
	begin_sets(flow);
	MemoryContextSwitchTo(old);
}

void
wms_flow_fed(WmsFlow *flow)
{
	wms_flow_chunk_end(flow);
	wms_flow_settle_waiting(flow);
	for (int i = 0; i < flow->plan->nsources; i++)
		if (flow->source_had_rows[i])
		{
			flow->source_seen_at[i] = GetCurrentTimestamp();
			flow->source_idle[i] = false;
		}
}

void
wms_flow_drop_rows(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (flow->sources[i].raw)
			wms_rowset_end(flow->sources[i].raw);
		wms_rowset_end(flow->sources[i].in);
	}
	for (int i = 0; i < flow->plan->nops; i++)
	{
		wms_rowset_end(flow->ops[i].out);
		if (flow->ops[i].kept)
			wms_rowset_end(flow->ops[i].kept);
		if (flow->ops[i].retired)
			wms_rowset_end(flow->ops[i].retired);
	}
	wms_sink_end(flow->sink);
	if (flow->late)
		wms_late_end(flow->late);
}

void
wms_flow_end(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (flow->sources[i].raw)
			wms_rowset_forget(flow->sources[i].raw);
		wms_rowset_forget(flow->sources[i].in);
		flow->sources[i].shape = NULL;
		ExecClearTuple(flow->sources[i].in_slot);
	}
	for (int i = 0; i < flow->plan->nops; i++)
	{
		wms_rowset_forget(flow->ops[i].out);
		if (flow->ops[i].kept)
			wms_rowset_forget(flow->ops[i].kept);
		flow->ops[i].emitting = NULL;
		if (flow->ops[i].retired)
			wms_rowset_forget(flow->ops[i].retired);
		flow->ops[i].touched = NIL;
		flow->ops[i].waiting = NIL;
		flow->ops[i].states_left = 0;
		if (flow->ops[i].join)
			wms_flow_join_end(&flow->ops[i]);
	}
	wms_sink_forget(flow->sink);
	if (flow->late)
		wms_late_forget(flow->late);
	flow->rows = NULL;
	flow->nrows = 0;
	flow->waiting = NULL;
	flow->nwaiting = flow->waiting_room = 0;
	flow->waiting_bytes = 0;
	flow->agg->curaggcontext = flow->agg_memory;
	ReScanExprContext(flow->agg_memory);
	ReScanExprContext(flow->emit_memory);
	ReScanExprContext(flow->pane_memory);
	ReScanExprContext(flow->row);
}

/* ---------------------------------------------------------------- the watermark */

/*
 * A source that had no rows for idle_timeout leaves the minimum until its next row.  Judged only when no unread
 * input waits, for else its rows may be among that.
 */
void
wms_flow_judge_idle(WmsFlow *flow)
{
	TimestampTz now = GetCurrentTimestamp();

	if (flow->def->idle_us < 0)
		return;
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		/* the clock was set back */
		flow->source_seen_at[i] = Min(flow->source_seen_at[i], now);
		if (now - flow->source_seen_at[i] >= flow->def->idle_us)
			flow->source_idle[i] = true;
	}
}

/* When the next source will be idle, if it has no row until then; 0: none will. */
TimestampTz
wms_flow_next_idle(WmsFlow *flow)
{
	TimestampTz next = 0;

	for (int i = 0; i < flow->plan->nsources && flow->def->idle_us >= 0; i++)
	{
		TimestampTz at = flow->source_seen_at[i] + flow->def->idle_us;

		if (!flow->source_idle[i] && (next == 0 || at < next))
			next = at;
	}
	return next;
}

/* Clocks and verdicts go on when a flow is built anew. */
void
wms_flow_adopt_clocks(WmsFlow *flow, const WmsFigures *figures)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (figures->source_relid[i] != flow->sources[i].plan->relid)
			continue;
		flow->source_seen_at[i] = figures->source_seen_at[i];
		flow->source_idle[i] = figures->source_idle[i];
	}
}

/* What a source alone says of W; WMS_TIME_MIN where it says nothing (yet). */
static WmsTime
source_watermark(WmsFlow *flow, int source)
{
	WmsSourcePlan *plan = flow->sources[source].plan;

	return plan->bounded ? wms_time_add(flow->progress->max_time[source], -plan->delay_us) : WMS_TIME_MIN;
}

WmsTime
wms_flow_watermark(WmsFlow *flow)
{
	WmsTime		least = WMS_TIME_MAX;
	WmsTime		greatest = WMS_TIME_MIN;
	bool		active = false;

	if (flow->plan->processing_time)
		return flow->started_at;
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		WmsTime		w = source_watermark(flow, i);

		if (!flow->sources[i].plan->bounded)
			continue;
		greatest = Max(greatest, w);
		if (flow->source_idle[i])
			continue;
		active = true;
		least = Min(least, w);
	}
	return wms_watermark_advance(flow->progress->watermark,
								 flow->def->watermark_max || !active ? greatest : least);
}

/* The last end of an operator's windows that hold data, as the W that passes it; WMS_TIME_MIN: none is open. */
static WmsTime
last_open_end(WmsFlow *flow, FlowOp *op)
{
	WmsBucketKey bucket = {op->plan->id, WMS_TIME_MAX, wms_flow_op_watermark(op, flow->progress->watermark)};
	WmsTime		last = op->sessions ? op->last_end : WMS_TIME_MIN;

	if (!op->plan->bounded || op->eager)
		return WMS_TIME_MIN;
	while (!op->sessions && wms_state_next_bucket(flow->store, &bucket))
		last = bucket.end;
	return last == WMS_TIME_MIN ? last : wms_time_add(last, op->plan->lag_us);
}

/*
 * close_when_idle: where W is to go now that all sources are idle.  First the delay is taken as over; then, firing by firing,
 * W goes to the last end of all windows that hold data, until none does.  WMS_TIME_MIN: nowhere.
 */
WmsTime
wms_flow_idle_target(WmsFlow *flow)
{
	WmsTime		greatest = WMS_TIME_MIN;
	WmsTime		last = WMS_TIME_MIN;

	if (!flow->def->close_when_idle)
		return WMS_TIME_MIN;
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (!flow->sources[i].plan->bounded)
			continue;
		if (!flow->source_idle[i])
			return WMS_TIME_MIN;
		greatest = Max(greatest, flow->progress->max_time[i]);
	}
	if (greatest > flow->progress->watermark || greatest == WMS_TIME_MIN)
		return greatest;
	for (int i = 0; i < flow->plan->nops; i++)
		last = Max(last, last_open_end(flow, &flow->ops[i]));
	return last;
}

/* ---------------------------------------------------------------- firing */

typedef struct Fire
{
	FlowOp	   *op;
	bool		top;			/* the operator whose groups the result shows */
	WmsTime		old;			/* W before and after, as the operator sees it */
	WmsTime		now;
	WmsOutputMode mode;
	int64		lateness;
	bool		refines;		/* shown groups may have rows that they do not show */
	List	   *pending;		/* entries of former batches that wait for a firing: List of PendingKey */
} Fire;

typedef struct PendingKey
{
	WmsBucketKey bucket;
	uint32		hash;
	char	   *key;
	uint32		key_len;
} PendingKey;

static void
emit_live(WmsEntry *entry, void *arg)
{
	Fire	   *fire = arg;

	wms_flow_emit_entry(fire->op, entry, wms_flow_kept_of_store);
}

/* Touched groups: of update mode all, of append those that were shown already and change in place. */
static void
emit_touched(WmsEntry *entry, void *arg)
{
	Fire	   *fire = arg;

	if (!(entry->flags & WMS_ENTRY_PENDING) || entry->removed)
		return;
	entry->flags &= ~WMS_ENTRY_PENDING;
	if (fire->mode == WMS_APPEND && entry->bucket.end > fire->old)
		return;					/* open, or closing now: not shown before */
	if (entry->flags & WMS_ENTRY_UNSHOWN)
		wms_state_shelve(fire->op->flow->store, entry);
	entry->flags &= ~WMS_ENTRY_UNSHOWN;
	if (wms_flow_emit_entry(fire->op, entry, wms_flow_kept_of_store))
		return;
	wms_flow_retire(fire->op, entry);
	wms_state_remove(fire->op->flow->store, entry);
}

static void
note_pending(WmsEntry *entry, void *arg)
{
	Fire	   *fire = arg;
	PendingKey *p;

	if (!(entry->flags & WMS_ENTRY_PENDING))
		return;
	p = palloc(sizeof(PendingKey));
	p->bucket = entry->bucket;
	p->hash = entry->hash;
	p->key_len = entry->key_len;
	p->key = palloc(Max(entry->key_len, 1));
	memcpy(p->key, entry->key, entry->key_len);
	fire->pending = lappend(fire->pending, p);
}

/* Touches the entries of former batches that wait for this firing, so that they are among the touched ones. */
static void
touch_pending(Fire *fire)
{
	WmsFlow    *flow = fire->op->flow;
	ListCell   *lc;

	wms_state_scan_pending(flow->store, fire->op->plan->id, note_pending, fire);
	foreach(lc, fire->pending)
	{
		PendingKey *p = lfirst(lc);

		wms_state_get(flow->store, &p->bucket, p->hash, p->key, p->key_len, true);
	}
}

/* The first bucket that W has not passed before. */
static void
emit_closing(Fire *fire)
{
	WmsStore   *store = fire->op->flow->store;
	WmsBucketKey bucket = {fire->op->plan->id, WMS_TIME_MAX, fire->old};

	while (wms_state_next_bucket(store, &bucket) && bucket.end <= fire->now)
		wms_state_scan(store, &bucket, emit_live, fire);
}

static void
emit_all(Fire *fire)
{
	WmsStore   *store = fire->op->flow->store;
	WmsBucketKey bucket = {fire->op->plan->id, WMS_TIME_MIN, WMS_TIME_MIN};

	while (wms_state_next_bucket(store, &bucket))
		wms_state_scan(store, &bucket, emit_live, fire);
	if (fire->op->plan->global && fire->op->emitted == 0)
		wms_flow_emit_global(fire->op);
}

static void
let_go(Fire *fire)
{
	WmsStore   *store = fire->op->flow->store;
	WmsBucketKey bucket = {fire->op->plan->id, WMS_TIME_MIN, WMS_TIME_MIN};

	if (fire->mode == WMS_COMPLETE || !fire->op->plan->bounded)
		return;
	while (wms_state_next_bucket(store, &bucket) &&
		   wms_time_add(bucket.end, fire->lateness) <= fire->now)
		wms_state_close(store, &bucket);
}

/* Rows of an update, or of a refinement, replace the ones under their key; what is touched and no longer shown is taken away. */
bool
wms_flow_replaces(const WmsFlow *flow)
{
	return flow->def->output_mode == WMS_UPDATE || flow->def->refined;
}

/* Groups of windows whose bounds are known beforehand. */
static void
fire_groups(Fire *fire)
{
	FlowOp	   *op = fire->op;

	if (fire->mode == WMS_COMPLETE)
	{
		emit_all(fire);
		return;
	}
	if (op->panes)
	{
		if (fire->refines)
		{
			touch_pending(fire);
			wms_flow_pane_emit_again(op, fire->old);
		}
		wms_flow_pane_emit(op, fire->old, fire->now);
		return;
	}
	if (fire->mode == WMS_UPDATE || fire->refines)
	{
		touch_pending(fire);
		wms_state_scan_touched(op->flow->store, op->plan->id, emit_touched, fire);
	}
	if (fire->mode == WMS_APPEND)
		emit_closing(fire);
}

static void
fire_op(WmsFlow *flow, FlowOp *op, WmsTime old, WmsTime now)
{
	Fire		fire = {op};
	WmsTime		last;

	for (int side = 0; side < 2; side++)
		if (op->inputs[side] && op->inputs[side]->query && op->inputs[side]->reads_op)
			wms_flow_run_input(op->inputs[side]);
	if (op->sessions)
	{
		wms_flow_session_settle(op);
		wms_flow_session_drop_late(op);
	}
	if (op->plan->kind == WMS_OP_JOIN)
	{
		wms_flow_join_fire(op, wms_flow_join_watermark(op, now));
		return;
	}
	if (op->plan->kind == WMS_OP_DEDUP)
	{
		wms_flow_dedup_fire(op, wms_flow_op_watermark(op, now));
		if (op->plan->expires == WMS_EXPIRES_KEY)
		{
			fire.now = wms_flow_op_watermark(op, now);
			let_go(&fire);
		}
		return;
	}
	fire.top = (op->plan->id == flow->plan->top_op);
	fire.old = wms_flow_op_watermark(op, old);
	fire.now = last = wms_flow_op_watermark(op, now);
	if (op->panes && last >= WMS_LAST_TIME)
		fire.now = WMS_TIME_MAX;
	fire.mode = fire.top ? flow->def->output_mode : WMS_APPEND;
	fire.lateness = fire.top ? flow->def->lateness_us : 0;
	fire.refines = fire.top && flow->def->refined;

	wms_flow_emit_begin(op);
	if (op->retired)
		wms_rowset_begin(op->retired);
	if (op->sessions)
		wms_flow_session_fire(op, fire.now, fire.mode);
	else
		fire_groups(&fire);
	wms_flow_emit_end(op);
	if (!op->sessions)
		let_go(&fire);
	if (fire.top && op->plan->bounded && fire.mode != WMS_COMPLETE)
		flow->progress->gone_upto = wms_watermark_advance(flow->progress->gone_upto, wms_time_add(last, -fire.lateness));
}

static void
shown_key(TupleTableSlot *slot, void *arg)
{
	tuplestore_puttupleslot((Tuplestorestate *) arg, slot);
}

/* The operator's row set becomes a copy of another one with the same columns. */
void
wms_flow_show_instead(FlowOp *op, WmsRowSet *set)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(set->desc, &TTSOpsMinimalTuple);

	wms_rowset_begin(op->out);
	tuplestore_rescan(set->rows);
	while (tuplestore_gettupleslot(set->rows, true, false, slot))
		tuplestore_puttupleslot(op->out->rows, slot);
	ExecDropSingleTupleTableSlot(slot);
}

/* Keys of the groups that were emitted, where some of them may have no row any more. */
static void
collect_shown_keys(WmsFlow *flow)
{
	FlowOp	   *op = &flow->ops[flow->plan->top_op];
	bool		retired = op->retired && op->retired->rows && tuplestore_tuple_count(op->retired->rows) > 0;
	DestReceiver *dest;

	if (flow->shown == NULL || (op->emitted <= flow->nresult && !retired))
		return;
	dest = wms_dest_call(shown_key, wms_sink_touched(flow->sink));
	wms_query_run(flow->shown, dest);
	if (retired)
	{
		wms_flow_show_instead(op, op->retired);
		wms_query_run(flow->shown, dest);
	}
	pfree(dest);
}

void
wms_flow_fire(WmsFlow *flow, WmsTime upto)
{
	MemoryContext old = MemoryContextSwitchTo(flow->batch);
	WmsTime		now = wms_watermark_advance(wms_flow_watermark(flow), upto);
	instr_time	clock;

	for (int i = 0; i < flow->plan->nops; i++)
	{
		wms_flow_clock_start(&clock);
		fire_op(flow, &flow->ops[i], flow->progress->watermark, now);
		flow->ops[i].counts.seconds += wms_flow_clock_seconds(&clock);
	}
	if (flow->final->query && flow->final->reads_op)
		wms_flow_run_input(flow->final);
	if (flow->plan->top_op >= 0 && wms_flow_replaces(flow))
		collect_shown_keys(flow);
	flow->progress->watermark = now;
	flow->progress->fired_at = GetCurrentTransactionStartTimestamp();
	flow->fired = true;
	MemoryContextSwitchTo(old);
}

/* ---------------------------------------------------------------- writing */

static int64
write_result(WmsFlow *flow)
{
	if (flow->plan->top_op < 0)
		return wms_sink_insert(flow->sink);
	if (!flow->fired)
		return wms_sink_insert(flow->sink);	/* rows beside the groups, if any */
	if (flow->def->output_mode == WMS_COMPLETE)
		return wms_sink_replace(flow->sink);
	if (wms_flow_replaces(flow) && flow->plan->key_columns == NIL)	/* one group: the table is its row, once it was touched */
		return flow->ops[flow->plan->top_op].emitted > 0 ? wms_sink_replace(flow->sink) : 0;
	if (wms_flow_replaces(flow))
		return wms_sink_upsert(flow->sink);
	return wms_sink_insert(flow->sink);
}

void
wms_flow_finish(WmsFlow *flow)
{
	MemoryContext old = MemoryContextSwitchTo(flow->batch);
	instr_time	start,
				end;

	INSTR_TIME_SET_CURRENT(start);
	flow->progress->counters[WMS_COUNT_OUTPUT] += write_result(flow);
	if (flow->late)
		wms_late_write(flow->late);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	flow->sink_us = INSTR_TIME_GET_MICROSEC(end);
	for (int i = 0; i < flow->plan->nops; i++)
		if (flow->ops[i].sessions)
			wms_flow_session_note_ends(&flow->ops[i], wms_flow_op_watermark(&flow->ops[i], flow->progress->watermark));
	MemoryContextSwitchTo(old);
}

void
wms_flow_clear_result(WmsFlow *flow, WmsTime since, TimestampTz late_since)
{
	(void) wms_sink_clear(flow->sink, &flow->plan->shown_time, since);
	if (flow->late && late_since != 0)
		wms_late_clear(flow->def, late_since);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- figures */

/* The event time that must arrive for the next window to close: its end, seen from the slowest source. */
static void
next_close(WmsFlow *flow, WmsFigures *figures)
{
	WmsTime		end = WMS_TIME_MAX;
	int64		delay = 0;

	figures->next_close = figures->next_close_event = WMS_TIME_MAX;
	for (int i = 0; i < flow->plan->nops; i++)
	{
		FlowOp	   *op = &flow->ops[i];
		WmsTime		w = wms_flow_op_watermark(op, flow->progress->watermark);
		WmsBucketKey bucket = {op->plan->id, WMS_TIME_MAX, w};

		if (op->sessions && op->plan->bounded && op->next_end != WMS_TIME_MAX)
			end = Min(end, wms_time_add(op->next_end, op->plan->lag_us));
		else if (op->sessions)
			continue;
		else if (op->plan->bounded && !op->eager && wms_state_next_bucket(flow->store, &bucket))
			end = Min(end, wms_time_add(op->panes ? wms_flow_pane_next_end(op, bucket.start, w) : bucket.end,
										op->plan->lag_us));
	}
	if (end == WMS_TIME_MAX)
		return;
	for (int i = 0; i < flow->plan->nsources; i++)
		if (flow->sources[i].plan->bounded)
			delay = Max(delay, flow->sources[i].plan->delay_us);
	figures->next_close = end;
	figures->next_close_event = wms_time_add(end, delay);
}

bool
wms_flow_has_begun(const WmsFlow *flow)
{
	return flow != NULL && flow->progress != NULL;
}

void
wms_flow_figures(WmsFlow *flow, WmsFigures *figures)
{
	double		share = wms_flow_fed_share(flow, (figures->phase_us[0] + figures->phase_us[1]) / 1e6);

	for (int i = 0; i < flow->plan->nsources; i++)
	{
		figures->source_relid[i] = flow->sources[i].plan->relid;
		figures->source_seen_at[i] = flow->source_seen_at[i];
		figures->source_idle[i] = flow->source_idle[i];
		figures->source_watermark[i] = source_watermark(flow, i);
	}
	next_close(flow, figures);
	figures->nops = flow->plan->nops;
	figures->state_entries = 0;
	for (int i = 0; i < flow->plan->nops; i++)
	{
		WmsOpFigures beyond = {0};
		WmsOpFigures *op = i < WMS_FIGURE_OPS ? &figures->ops[i] : &beyond;

		wms_flow_op_figures(&flow->ops[i], share, op);
		figures->state_entries += op->state_rows;
	}
}
