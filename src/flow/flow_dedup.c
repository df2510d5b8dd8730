/*
 * flow_dedup.c
 *	  DISTINCT and DISTINCT ON: the first row of a key to arrive goes on at once, the others go nowhere.
 *
 * Where a window of the event time is among the keys, the other keys are entries of that window's bucket and leave with it.  Where
 * it is the time itself, that is part of the entry's key, and a bucket holds the times of a SPAN: it leaves a little later than
 * each of them could, which nobody notices, for a row of a time that has passed is late.
 *
 * Otherwise keys lie in the one bucket that never leaves.  Where the watermark bounds them, an entry's value is the W that
 * forgets it, first row's time + delay; a duplicate does not move it.  An entry that W has forgotten counts as not there.  What takes it away
 * is a *timer*, an entry of the same key in a bucket of SLICES to the delay: so keys cost few buckets, and W no look at
 * those that stay.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

#define SLICES 256
#define SPAN USECS_PER_SEC

static void
encode_forgotten_at(WmsEntry *entry, StringInfo value, void *arg)
{
	if (entry->work)
		appendBinaryStringInfo(value, entry->work, sizeof(WmsTime));
	else
		appendBinaryStringInfo(value, entry->value, entry->value_len);
}

void
wms_flow_dedup_prepare(WmsFlow *flow, FlowOp *op)
{
	if (op->plan->expires == WMS_EXPIRES_WITHIN)
		flow->state_ops[op->plan->id].encode = encode_forgotten_at;
}

/* Whether an entry was seen before, in this batch or before it; marks it as seen. */
static bool
seen(WmsEntry *entry)
{
	bool		before = !entry->is_new || entry->work != NULL;

	entry->work = entry;
	return before;
}

/* The row goes on, with its window filled in where the operator makes it. */
static void
emit_row(FlowOp *op, const WmsBucketKey *bucket, TupleTableSlot *slot)
{
	bool		makes_window = op->plan->window_key >= 0 && op->plan->time_column > 0;

	op->emitted++;
	wms_flow_put_values(op, makes_window ? bucket : NULL, slot->tts_values, slot->tts_isnull);
}

static void
add_timer(FlowOp *op, WmsTime at, uint32 hash, StringInfo key)
{
	WmsBucketKey bucket = {op->timer_op, WMS_TIME_MIN, wms_grid_end(Max(1, op->plan->expires_us / SLICES), at)};

	(void) wms_state_get(op->flow->store, &bucket, hash, key->data, key->len, true);
}

/* The W that forgets an entry; WMS_TIME_MAX: none. */
static WmsTime
forgotten_at(const WmsEntry *entry)
{
	return *(const WmsTime *) (entry->work ? entry->work : entry->value);
}

static bool
forgotten(const WmsEntry *entry, WmsTime now)
{
	return (entry->is_new && entry->work == NULL) || forgotten_at(entry) <= now;
}

static void
remember_until(FlowOp *op, WmsEntry *entry, WmsTime at)
{
	if (entry->work == NULL)
		entry->work = MemoryContextAlloc(op->flow->batch, sizeof(WmsTime));
	*(WmsTime *) entry->work = at;
}

/* A row that is on time meets its key, in the bucket of this window; key is packed, slot holds the row of the operator's input. */
void
wms_flow_dedup_touch(FlowOp *op, const WmsWindow *window, uint32 hash, StringInfo key, TupleTableSlot *slot)
{
	WmsBucketKey bucket = {op->plan->id, window->start, window->end};
	WmsEntry   *entry = wms_state_get(op->flow->store, &bucket, hash, key->data, key->len, true);
	int			column = op->plan->time_column - 1;
	bool		timed = column >= 0 && !slot->tts_isnull[column];

	if (op->plan->expires != WMS_EXPIRES_WITHIN)
	{
		if (!seen(entry))
			emit_row(op, &bucket, slot);
		return;
	}
	if (!forgotten(entry, wms_flow_op_watermark(op, op->flow->old_watermark)))
		return;
	emit_row(op, &bucket, slot);
	remember_until(op, entry, timed ? wms_time_add(DatumGetTimestampTz(slot->tts_values[column]), op->plan->expires_us + 1) : WMS_TIME_MAX);
	if (timed)
		add_timer(op, *(WmsTime *) entry->work, hash, key);
}

/* end: what W must not have passed; WMS_TIME_MAX: nothing. */
static void
add_if_on_time(FlowOp *op, WmsTime end, const WmsWindow *bucket, uint32 hash, TupleTableSlot *slot)
{
	if (end != WMS_TIME_MAX && wms_flow_gone(op, end))
	{
		wms_flow_mark_row(op, 0, slot, FLOW_ROW_DROPPED);
		return;
	}
	wms_flow_mark_row(op, 0, slot, FLOW_ROW_KEPT);
	if (op->looks_ahead && !op->flow->single)
		wms_flow_ahead_add(op, bucket, hash, slot);
	else
		wms_flow_dedup_touch(op, bucket, hash, &op->key, slot);
}

static void
add_in_window(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot)
{
	WmsWindow	bucket = *window;

	if (op->range == NULL)		/* a raw time */
	{
		bucket.end = wms_grid_end(SPAN, window->end);
		bucket.start = wms_time_add(bucket.end, -SPAN);
	}
	add_if_on_time(op, window->end, &bucket, hash, slot);
}

/* A key without a time in it.  A row without a time is never late. */
static void
add_key(FlowOp *op, uint32 hash, TupleTableSlot *slot)
{
	WmsWindow	all = {WMS_TIME_MIN, WMS_TIME_MAX};
	int			column = op->plan->time_column - 1;
	bool		timed = column >= 0 && !slot->tts_isnull[column];

	add_if_on_time(op, timed ? wms_time_add(DatumGetTimestampTz(slot->tts_values[column]), 1) : WMS_TIME_MAX, &all, hash, slot);
}

void
wms_flow_dedup_row(FlowOp *op, TupleTableSlot *slot)
{
	WmsOpPlan  *plan = op->plan;
	uint32		hash = wms_flow_pack_key(op, slot);
	WmsWindow	window;
	WmsTime		time;

	if (plan->expires != WMS_EXPIRES_KEY)
		add_key(op, hash, slot);
	else if (plan->time_column == 0)
	{
		if (wms_flow_ready_window(op, slot->tts_values[plan->window_key], slot->tts_isnull[plan->window_key], &window))
			add_in_window(op, &window, hash, slot);
	}
	else
	{
		if (slot->tts_isnull[plan->time_column - 1])
			return;
		time = DatumGetTimestampTz(slot->tts_values[plan->time_column - 1]);
		if (!WmsTimeIsFinite(time) || !wms_window_first(&plan->window, time, &window))
			return;
		do
			add_in_window(op, &window, hash, slot);
		while (wms_window_next(&plan->window, time, &window));
	}
}

typedef struct Expired
{
	uint32		hash;
	uint32		key_len;
	char	   *key;
} Expired;

static void
note_expired(WmsEntry *timer, void *arg)
{
	List	  **expired = arg;
	Expired    *e = palloc(sizeof(Expired));

	e->hash = timer->hash;
	e->key_len = timer->key_len;
	e->key = palloc(Max(timer->key_len, 1));
	memcpy(e->key, timer->key, timer->key_len);
	*expired = lappend(*expired, e);
}

/* Keys whose time has passed leave, when all keys of their timers' bucket may. */
void
wms_flow_dedup_fire(FlowOp *op, WmsTime now)
{
	WmsStore   *store = op->flow->store;
	WmsBucketKey timer = {op->timer_op, WMS_TIME_MIN, WMS_TIME_MIN};
	WmsBucketKey all = {op->plan->id, WMS_TIME_MIN, WMS_TIME_MAX};

	while (wms_state_next_bucket(store, &timer) && timer.end <= now)
	{
		List	   *expired = NIL;
		ListCell   *lc;

		wms_state_scan(store, &timer, note_expired, &expired);
		foreach(lc, expired)
		{
			Expired    *e = lfirst(lc);
			WmsEntry   *entry = wms_state_get(store, &all, e->hash, e->key, e->key_len, false);

			/* one that came again after it was forgotten has a timer of its own */
			if (entry && forgotten(entry, now))
				wms_state_remove(store, entry);
		}
		wms_state_close(store, &timer);
	}
}
