/*
 * flow_group.c
 *	  Operators that collect rows into groups: windows, keys, late tests.
 *
 * A row of the operator's input belongs to one window or several (or to none that ever closes), and in each of
 * them to the group of its keys.  The window is the *bucket* of the state room, the other keys are the entry's
 * key (flow_key.c).
 *
 * A window [start, end) is gone when end + allowed lateness <= the watermark of the last firing as this operator sees
 * it (never in complete mode): the row is then marked as dropped from it.  What has gone stays so when the allowed lateness
 * is made longer, for its state is not there any more.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

/* ---------------------------------------------------------------- preparing */

static void
prepare_window(FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;
	Oid			type;

	if (plan->window_key < 0)
		return;
	type = TupleDescAttr(plan->input_desc, plan->window_key)->atttypid;
	if (type_is_range(type))
		op->range = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
}

static void
encode_entry(WmsEntry *entry, StringInfo value, void *arg)
{
	FlowOp	   *op = arg;

	if (entry->work && op->sessions)
		wms_flow_session_encode(op, entry, value);
	else if (entry->work)
		wms_flow_states_encode(op, entry->work, value);
	else
		appendBinaryStringInfo(value, entry->value, entry->value_len);
}

static void
prepare_aggregates(FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;

	op->fast = palloc0(sizeof(FlowAgg) * Max(plan->naggs, 1));
	for (int i = 0; i < plan->naggs; i++)
	{
		if (plan->aggs[i].kept)
			op->has_kept = true;
		else
			wms_flow_fast_prepare(op, &op->fast[op->nfast++], &plan->aggs[i], plan->nkeys + i);
	}
	op->state_desc = wms_flow_states_desc(op);
	op->has_states = op->nfast > 0 || op->retracts;
	if (op->has_states || op->sessions)
		op->flow->state_ops[plan->id].encode = encode_entry;
}

static void
prepare_kept_rows(FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;

	op->first_kept = plan->kind == WMS_OP_COLLECT ? 0 : plan->nkeys;
	op->nkept_columns = plan->kind == WMS_OP_COLLECT ? plan->out_desc->natts : plan->kept_desc->natts - 2;
	op->kept_row_desc = CreateTemplateTupleDesc(op->nkept_columns);
	for (int i = 0; i < op->nkept_columns; i++)
		TupleDescCopyEntry(op->kept_row_desc, i + 1, plan->input_desc, op->first_kept + i + 1);
	op->kept_values = palloc0(sizeof(Datum) * Max(op->nkept_columns, 1));
	op->kept_isnull = palloc0(sizeof(bool) * Max(op->nkept_columns, 1));
	initStringInfo(&op->kept_row);
}

/* How long state stays after the end of its bucket, as a span of W; never by itself where nothing closes. */
static int64
keep_span(WmsFlow *flow, FlowOp *op)
{
	const WmsStreamDef *def = flow->def;

	if (!op->plan->bounded || def->output_mode == WMS_COMPLETE)
		return -1;
	return op->plan->lag_us + (op->plan->id == flow->plan->top_op ? def->lateness_us : 0);
}

void
wms_flow_group_prepare(WmsFlow *flow, FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;

	op->retracts = plan->retracts;
	op->sessions = plan->kind == WMS_OP_AGGREGATE && plan->window.kind == WMS_WINDOW_SESSION;
	op->eager = plan->kind == WMS_OP_DEDUP || plan->kind == WMS_OP_JOIN;
	op->timer_op = flow->plan->nops + plan->id;
	flow->state_ops[plan->id].keep_span = keep_span(flow, op);
	wms_flow_key_prepare(op);
	prepare_window(op);
	if (plan->kind == WMS_OP_AGGREGATE || plan->kind == WMS_OP_COLLECT)
		prepare_aggregates(op);
	if (plan->kind == WMS_OP_COLLECT)
		op->has_kept = true;
	if (op->has_kept)
		prepare_kept_rows(op);
	if (op->sessions)
		wms_flow_session_prepare(flow, op);
	if (plan->kind == WMS_OP_DEDUP)
		wms_flow_dedup_prepare(flow, op);
	wms_flow_pane_prepare(flow, op);
	wms_flow_change_prepare(flow, op);
	if (plan->kind == WMS_OP_JOIN)
	{
		wms_flow_join_prepare(flow, op);
		return;
	}
	/* timers: keys that are to be looked at */
	flow->state_ops[op->timer_op] = flow->state_ops[plan->id];
	flow->state_ops[op->timer_op].encode = op->sessions ? wms_flow_session_encode_timer : NULL;
	flow->state_ops[op->timer_op].keep_span = plan->bounded ? plan->lag_us : -1;
}

/* ---------------------------------------------------------------- a row */

WmsTime
wms_flow_op_watermark(const FlowOp *op, WmsTime w)
{
	if (!op->plan->bounded)
		return WMS_TIME_MIN;
	return wms_time_add(w, -op->plan->lag_us);
}

/* Is what ends there gone, by the watermark of the last firing as this operator sees it? */
bool
wms_flow_gone(FlowOp *op, WmsTime end)
{
	const WmsFlow *flow = op->flow;
	WmsTime		w;

	if (!op->plan->bounded || flow->def->output_mode == WMS_COMPLETE)
		return false;
	w = wms_flow_op_watermark(op, flow->old_watermark);
	if (op->plan->id != flow->plan->top_op)
		return end <= w;
	return end <= flow->progress->gone_upto || wms_time_add(end, flow->def->lateness_us) <= w;
}

/* values: of the columns that are kept.  Where rows may be taken back, one more byte says whether this is one that is. */
void
wms_flow_keep_values(FlowOp *op, WmsEntry *entry, const Datum *values, const bool *isnull, bool retract)
{
	resetStringInfo(&op->kept_row);
	wms_pack(&op->kept_row, op->kept_row_desc, values, isnull);
	if (op->retracts)
		appendStringInfoCharMacro(&op->kept_row, retract);
	wms_state_keep(op->flow->store, entry, op->kept_row.data, op->kept_row.len);
}

void
wms_flow_keep_row(FlowOp *op, WmsEntry *entry, TupleTableSlot *slot, bool retract)
{
	wms_flow_keep_values(op, entry, slot->tts_values + op->first_kept, slot->tts_isnull + op->first_kept, retract);
}

/* The source row that a row of the operator's input stands for; NULL: none. */
static FlowRow *
source_row(FlowOp *op, int side, TupleTableSlot *slot)
{
	int			column = op->inputs[side]->plan->ord_column;

	if (op->fed_row)
		return op->fed_row;
	if (column == 0 || slot->tts_isnull[column - 1])
		return NULL;
	return &op->flow->rows[DatumGetInt64(slot->tts_values[column - 1]) - op->flow->first_ord];
}

void
wms_flow_mark_row(FlowOp *op, int side, TupleTableSlot *slot, uint8 mark)
{
	FlowRow    *row = source_row(op, side, slot);

	op->row_marks |= mark;
	if (row)
		row->marks |= mark;
}

/* Within the allowed lateness, into a window that was emitted. */
bool
wms_flow_came_late(FlowOp *op, WmsTime end)
{
	return op->flow->def->refined && !op->panes && op->flow->def->output_mode != WMS_COMPLETE &&
		end <= wms_flow_op_watermark(op, op->flow->old_watermark);
}

/* Rows have come to a group or were taken back: if the result may have a row of it, the next firing shows it again. */
void
wms_flow_note_touch(FlowOp *op, WmsEntry *entry)
{
	if (op->panes ? entry->bucket.start < op->shown_upto : entry->bucket.end <= op->shown_upto)
		entry->flags |= WMS_ENTRY_PENDING;
}

static bool
is_taken_back(FlowOp *op, TupleTableSlot *slot)
{
	FlowRow    *row = op->retracts ? source_row(op, 0, slot) : NULL;

	return row && row->retract;
}

/*
 * The entry of a group, made if it is not there.  Few groups get most rows: those found lately are remembered by their hash, which
 * spares the walk through the store.  Entries stay where they are until the batch ends.
 */
static inline WmsEntry *
group_entry(FlowOp *op, const WmsWindow *window, uint32 hash, const char *key, uint32 key_len)
{
	FlowRecent *recent = &op->recent[(hash ^ (uint32) ((uint64) window->end >> 20)) % FLOW_RECENT];
	WmsEntry   *entry = recent->entry;
	WmsBucketKey bucket = {op->plan->id, window->start, window->end};

	if (recent->batch == op->flow->batches && recent->hash == hash && entry->bucket.end == window->end &&
		entry->bucket.start == window->start && !entry->removed && entry->key_len == key_len &&
		wms_bytes_same(entry->key, key, key_len))
		return entry;
	entry = wms_state_get(op->flow->store, &bucket, hash, key, key_len, true);
	recent->batch = op->flow->batches;
	recent->hash = hash;
	recent->entry = entry;
	return entry;
}

/* The group that a row goes into, made if it is not there, with its states at work. */
WmsEntry *
wms_flow_group(FlowOp *op, const WmsWindow *window, uint32 hash, const char *key, uint32 key_len)
{
	WmsEntry   *entry = group_entry(op, window, hash, key, key_len);

	if (entry->is_new && entry->flags == 0 && wms_flow_came_late(op, window->end))
		entry->flags = WMS_ENTRY_UNSHOWN;
	wms_flow_note_touch(op, entry);
	if (op->has_states && entry->work == NULL)
		entry->work = entry->is_new ? wms_flow_states_new(op)
			: wms_flow_states_load(op, entry->value, entry->value_len);
	return entry;
}

/* One row into its group; key is packed, slot holds the row of the operator's input. */
void
wms_flow_touch_group(FlowOp *op, const WmsWindow *window, uint32 hash, StringInfo key, TupleTableSlot *slot)
{
	WmsEntry   *entry = wms_flow_group(op, window, hash, key->data, key->len);

	if (op->has_states)
		wms_flow_states_advance(op, entry->work, slot);
	if (op->has_kept)
		wms_flow_keep_row(op, entry, slot, false);
}

static void
add_to_group(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot)
{
	if (wms_flow_gone(op, window->end))
	{
		wms_flow_mark_row(op, 0, slot, FLOW_ROW_DROPPED);
		return;
	}
	wms_flow_mark_row(op, 0, slot, FLOW_ROW_KEPT);
	if (is_taken_back(op, slot))
		wms_flow_take_back(op, window, hash, slot);
	else if (op->looks_ahead && !op->flow->single)
		wms_flow_ahead_add(op, window, hash, slot);
	else
		wms_flow_touch_group(op, window, hash, &op->key, slot);
}

/* The window that a value stands for: a range, or a raw time; false: the row is in none. */
bool
wms_flow_ready_window(FlowOp *op, Datum value, bool isnull, WmsWindow *window)
{
	RangeBound	lower,
				upper;
	bool		empty;

	if (isnull)
		return false;
	if (op->range == NULL)
	{
		window->start = DatumGetTimestampTz(value);
		window->end = wms_time_add(window->start, 1);
		return WmsTimeIsFinite(window->start);
	}
	range_deserialize(op->range, DatumGetRangeTypeP(value), &lower, &upper, &empty);
	if (empty || lower.infinite || upper.infinite)
		return false;
	window->start = DatumGetTimestampTz(lower.val);
	window->end = DatumGetTimestampTz(upper.val);
	return true;
}

/*
 * The first window of a time.  Rows mostly come to one of the two windows that the last ones came to, which are tried first: finding a
 * place on the grid takes several divisions.
 */
static bool
first_window(FlowOp *op, WmsTime time, WmsWindow *window)
{
	const WmsWindowSpec *spec = &op->plan->window;

	if (spec->size == spec->slide)
	{
		WmsWindow	former = op->former_window;

		if (time >= op->last_window.start && time < op->last_window.end)
		{
			*window = op->last_window;
			return true;
		}
		op->former_window = op->last_window;
		if (time >= former.start && time < former.end)
		{
			*window = op->last_window = former;
			return true;
		}
	}
	if (!wms_window_first(spec, time, window))
		return false;
	op->last_window = *window;
	return true;
}

/*
 * The first bucket of a row whose operator makes the windows itself, by its time; false: it is in none.  Then wms_flow_next_window gives
 * the others.
 */
bool
wms_flow_first_window(FlowOp *op, WmsTime time, WmsWindow *window)
{
	if (!WmsTimeIsFinite(time))
		return false;
	if (op->panes)
	{
		wms_flow_pane_bucket(op, time, window);
		return true;
	}
	return first_window(op, time, window);
}

bool
wms_flow_next_window(FlowOp *op, WmsTime time, WmsWindow *window)
{
	const WmsWindowSpec *spec = &op->plan->window;

	return !op->panes && spec->size != spec->slide && wms_window_next(spec, time, window);
}

static void
group_row(FlowOp *op, TupleTableSlot *slot)
{
	WmsOpPlan  *plan = op->plan;
	WmsWindow	window = {WMS_TIME_MIN, WMS_TIME_MAX};
	uint32		hash = wms_flow_pack_key(op, slot);
	WmsTime		time;

	if (plan->window_key < 0)
		add_to_group(op, &window, hash, slot);
	else if (plan->time_column == 0)
	{
		if (wms_flow_ready_window(op, slot->tts_values[plan->window_key], slot->tts_isnull[plan->window_key], &window))
			add_to_group(op, &window, hash, slot);
	}
	else
	{
		if (slot->tts_isnull[plan->time_column - 1])
			return;
		time = DatumGetTimestampTz(slot->tts_values[plan->time_column - 1]);
		if (!wms_flow_first_window(op, time, &window))
			return;
		do
			add_to_group(op, &window, hash, slot);
		while (wms_flow_next_window(op, time, &window));
	}
}

/* A row of the operator's input; its columns are in tts_values.  Runs in the row's memory. */
void
wms_flow_op_row(FlowOp *op, int side, TupleTableSlot *slot)
{
	if (op->flow->trying)
		return;
	op->row_marks = 0;
	if (op->plan->kind == WMS_OP_JOIN)
		wms_flow_join_row(op, side, slot);
	else if (op->plan->kind == WMS_OP_DEDUP)
		wms_flow_dedup_row(op, slot);
	else if (op->sessions)
		wms_flow_session_row(op, slot);
	else
		group_row(op, slot);
	wms_flow_count_row(op);
}
