/*
 * flow_join.c
 *	  Joins of two streams.
 *
 * Every row that may still find a partner is *held*: a kept row of the entry of its key, in the state of its side (the two sides are
 * two operators of the state room).  A row that comes looks for partners among the held rows of the other side, and is then held
 * itself; so each pair meets exactly once, when its second row comes, and matches are emitted with each batch.
 *
 * Held rows lie in *buckets* by the watermark at which they leave, that is when no row of the other side that is still on time
 * could match them:
 *
 *   equality of event times or windows   the bucket is that time or window
 *   a time range                         buckets of a grid of SLICES to the range; a row that comes looks into
 *                                        those buckets only in which a partner within the range can be
 *   no bound                             one bucket that never leaves
 *
 * A bucket that W has passed is given up whole.  Rows of preserved sides (outer, anti) that had no match are then
 * null-extended; in the one bucket that W stands in the middle of, row by row (flow_due.c knows which).  Whether a row has been *matched* (or null-extended) is
 * a bit in its entry's value, by its number among the entry's kept rows; only where somebody asks.
 *
 * NULL keys match nothing: such rows are held, for they are null-extended when their bound passes, and never looked for.  A
 * NULL event time (only what a join below has null-extended has one) has no bound that could pass: such a row can match nothing
 * any more, and is null-extended at once.
 *
 * One key may have very many rows.  Work goes by the pairs within the range: semi and anti joins look no further when a row has
 * its partner, and pass over an entry whose rows all have theirs.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "port/pg_bitutils.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

#define SLICES 8
#define OPEN_SLICE (3600 * USECS_PER_SEC)	/* width where the range has one end only */

typedef struct Side
{
	WmsJoinSide *plan;
	int			state_op;
	bool		preserved;		/* null-extended when it finds no partner */
	bool		bits;			/* whether a row was matched must be known */
	bool		once;			/* semi and anti: the left row needs one partner only */
	TypeCacheEntry *range;		/* of the window in time_column and bound_column; NULL: raw times */
	TupleTableSlot *held;		/* a held row, unpacked */
	FlowDue    *due;			/* rows that are null-extended next, where they are one by one; else NULL */
} Side;

typedef struct FlowJoin
{
	WmsJoinPlan *plan;
	Side		side[2];
	int64		slice;			/* width of a bucket with a time range */
	bool		bounded;		/* a side has a watermark */
	ExprState  *condition;
	ExprContext *pair;			/* for it */
	StringInfoData packed;
} FlowJoin;

/* What an entry knows of its kept rows, in memory while the batch works on it. */
typedef struct Matched
{
	int64		room;			/* in bits */
	int64		count;			/* bits that are set */
	uint8	   *bits;
} Matched;

/* A row that looks for partners. */
typedef struct Probe
{
	FlowOp	   *op;
	int			side;			/* its own */
	TupleTableSlot *slot;
	WmsTime		time;			/* event time, for a range */
	bool		matched;
	WmsEntry   *entry;			/* being looked through */
	int64		row;			/* number of the kept row */
} Probe;

/* ---------------------------------------------------------------- preparing */

static TypeCacheEntry *
range_of_column(TupleDesc desc, int column)
{
	Oid			type;

	if (column == 0)
		return NULL;
	type = TupleDescAttr(desc, column - 1)->atttypid;
	return type_is_range(type) ? lookup_type_cache(type, TYPECACHE_RANGE_INFO) : NULL;
}

static void
encode_bits(WmsEntry *entry, StringInfo value, void *arg)
{
	Matched    *matched = entry->work;

	/* bits that are not there are clear */
	if (matched)
		appendBinaryStringInfo(value, (char *) matched->bits, (Min(matched->room, entry->nkept) + 7) / 8);
	else
		appendBinaryStringInfo(value, entry->value, entry->value_len);
}

static void
prepare_side(WmsFlow *flow, FlowOp *op, int s)
{
	FlowJoin   *join = op->join;
	Side	   *side = &join->side[s];
	JoinType	type = join->plan->type;
	WmsStateOps *ops;

	side->plan = &join->plan->side[s];
	side->state_op = s == 0 ? op->plan->id : op->timer_op;
	side->once = s == 0 && (type == JOIN_SEMI || type == JOIN_ANTI);
	side->preserved = s == 0 ? (type == JOIN_LEFT || type == JOIN_FULL || type == JOIN_ANTI)
		: (type == JOIN_RIGHT || type == JOIN_FULL);
	side->bits = side->preserved || side->once;
	side->range = range_of_column(side->plan->input_desc, side->plan->bound_column);
	if (side->range == NULL)
		side->range = range_of_column(side->plan->input_desc, side->plan->time_column);
	side->held = MakeSingleTupleTableSlot(side->plan->input_desc, &TTSOpsVirtual);
	if (side->preserved && join->plan->bound == WMS_BOUND_RANGE)
		side->due = wms_flow_due_make(flow->context);
	ops = &flow->state_ops[side->state_op];
	ops->arg = op;
	ops->encode = side->bits ? encode_bits : NULL;
	ops->keep_span = op->plan->lag_us;
}

static int64
slice_width(const WmsJoinPlan *plan)
{
	if (!plan->has_min || !plan->has_max)
		return OPEN_SLICE;
	return Max(1, Max(0, plan->max_us - plan->min_us) / SLICES);
}

void
wms_flow_join_prepare(WmsFlow *flow, FlowOp *op)
{
	FlowJoin   *join = palloc0(sizeof(FlowJoin));

	op->join = join;
	join->plan = op->plan->join;
	join->slice = slice_width(join->plan);
	join->bounded = join->plan->side[0].bounded || join->plan->side[1].bounded;
	flow->state_ops[op->timer_op] = flow->state_ops[op->plan->id];
	prepare_side(flow, op, 0);
	prepare_side(flow, op, 1);
	join->pair = CreateStandaloneExprContext();
	if (join->plan->condition)
		join->condition = ExecInitQual(make_ands_implicit(expression_planner((Expr *) copyObject(join->plan->condition))), NULL);
	initStringInfo(&join->packed);
}

/* ---------------------------------------------------------------- times */

static WmsTime
join_watermark(FlowOp *op, WmsTime w)
{
	return op->join->bounded ? wms_time_add(w, -op->plan->lag_us) : WMS_TIME_MIN;
}

/* [t, t + 1) of a raw time, a window as it is. */
static bool
span_of(Side *side, Datum value, bool isnull, WmsWindow *span)
{
	RangeBound	lower,
				upper;
	bool		empty;

	if (isnull)
		return false;
	if (side->range == NULL)
	{
		span->start = DatumGetTimestampTz(value);
		span->end = wms_time_add(span->start, 1);
		return true;
	}
	range_deserialize(side->range, DatumGetRangeTypeP(value), &lower, &upper, &empty);
	if (empty || lower.infinite || upper.infinite)
		return false;
	span->start = DatumGetTimestampTz(lower.val);
	span->end = DatumGetTimestampTz(upper.val);
	return true;
}

static bool
column_span(Side *side, TupleTableSlot *slot, int column, WmsWindow *span)
{
	return column > 0 && span_of(side, slot->tts_values[column - 1], slot->tts_isnull[column - 1], span);
}

/* Of a row of a join with a time range; else it does not matter. */
static WmsTime
event_time(Side *side, TupleTableSlot *slot)
{
	int			column = side->plan->event_column;

	if (column == 0 || slot->tts_isnull[column - 1])
		return WMS_TIME_MIN;
	return DatumGetTimestampTz(slot->tts_values[column - 1]);
}

/* Has the row no place in the time that bounds the join? */
static bool
has_no_time(FlowJoin *join, Side *side, TupleTableSlot *slot)
{
	WmsWindow	span;

	if (join->plan->bound == WMS_BOUND_SAME)
		return !column_span(side, slot, side->plan->bound_column, &span);
	return join->plan->bound == WMS_BOUND_RANGE && slot->tts_isnull[side->plan->event_column - 1];
}

/* The W at which no row of the other side that is still on time can match a row with this event time; WMS_TIME_MAX: never. */
static WmsTime
leaves_at(FlowJoin *join, int s, WmsTime time)
{
	const WmsJoinPlan *plan = join->plan;

	if (s == 0)
		return plan->has_max ? wms_time_add(wms_time_add(time, 1), plan->max_us) : WMS_TIME_MAX;
	return plan->has_min ? wms_time_add(wms_time_add(time, 1), -plan->min_us) : WMS_TIME_MAX;
}

/* The bucket that holds a row that has a time. */
static void
bucket_of(FlowOp *op, int s, TupleTableSlot *slot, WmsBucketKey *bucket)
{
	FlowJoin   *join = op->join;
	Side	   *side = &join->side[s];
	bool		ends = join->side[1 - s].plan->bounded;
	WmsWindow	span;
	WmsTime		leaves;

	bucket->op = side->state_op;
	bucket->start = WMS_TIME_MIN;
	bucket->end = WMS_TIME_MAX;
	if (join->plan->bound == WMS_BOUND_SAME)
	{
		(void) column_span(side, slot, side->plan->bound_column, &span);
		bucket->start = span.start;
		bucket->end = span.end;
		return;
	}
	if (join->plan->bound == WMS_BOUND_NONE || !ends)
		return;
	leaves = wms_grid_end(join->slice, leaves_at(join, s, event_time(side, slot)));
	if (!WmsTimeIsFinite(leaves))
		return;
	bucket->end = leaves;
	bucket->start = wms_time_add(leaves, -join->slice);
}

/* ---------------------------------------------------------------- bits */

static Matched *
bits_of(FlowOp *op, WmsEntry *entry, int64 rows)
{
	Matched    *matched = entry->work;
	MemoryContext memory = op->flow->batch;

	if (matched == NULL)
	{
		matched = MemoryContextAlloc(memory, sizeof(Matched));
		matched->room = Max(64, (rows + 63) / 64 * 64);
		matched->bits = MemoryContextAllocZero(memory, matched->room / 8);
		if (entry->value_len > 0)
			memcpy(matched->bits, entry->value, Min((int64) entry->value_len, matched->room / 8));
		matched->count = pg_popcount((char *) matched->bits, matched->room / 8);
		entry->work = matched;
	}
	else if (rows > matched->room)
	{
		int64		room = Max(rows, matched->room * 2) / 64 * 64 + 64;
		uint8	   *wider = MemoryContextAllocZero(memory, room / 8);

		memcpy(wider, matched->bits, matched->room / 8);
		matched->bits = wider;
		matched->room = room;
	}
	return matched;
}

static bool
is_matched(const WmsEntry *entry, int64 row)
{
	const Matched *matched = entry->work;

	if (matched)
		return row < matched->room && (matched->bits[row / 8] & (1 << (row % 8)));
	return row / 8 < (int64) entry->value_len && (((const uint8 *) entry->value)[row / 8] & (1 << (row % 8)));
}

static void
set_matched(FlowOp *op, WmsEntry *entry, int64 row)
{
	Matched    *matched = bits_of(op, entry, Max(entry->nkept, row + 1));

	if (!is_matched(entry, row))
		matched->count++;
	matched->bits[row / 8] |= 1 << (row % 8);
}

static bool
all_matched(const WmsEntry *entry)
{
	const Matched *matched = entry->work;

	return (matched ? matched->count : (int64) pg_popcount(entry->value, entry->value_len)) == entry->nkept;
}

/* ---------------------------------------------------------------- emission */

static int
put_side(Side *side, TupleTableSlot *slot, Datum *values, bool *isnull)
{
	int			n = side->plan->out_count;

	if (slot == NULL)
		memset(isnull, true, sizeof(bool) * n);
	else
	{
		memcpy(values, slot->tts_values + side->plan->out_first - 1, sizeof(Datum) * n);
		memcpy(isnull, slot->tts_isnull + side->plan->out_first - 1, sizeof(bool) * n);
	}
	return n;
}

/* A row of the output; a side that is NULL is null-extended. */
static void
emit_pair(FlowOp *op, TupleTableSlot *left, TupleTableSlot *right)
{
	FlowJoin   *join = op->join;
	TupleTableSlot *out = op->out_row;
	int			n;

	ExecClearTuple(out);
	n = put_side(&join->side[0], left, out->tts_values, out->tts_isnull);
	if (n < op->out->desc->natts)
		put_side(&join->side[1], right, out->tts_values + n, out->tts_isnull + n);
	ExecStoreVirtualTuple(out);
	wms_flow_put_out(op);
}

static void
emit_alone(FlowOp *op, int s, TupleTableSlot *slot)
{
	emit_pair(op, s == 0 ? slot : NULL, s == 1 ? slot : NULL);
}

/* ---------------------------------------------------------------- looking for partners */

static bool
in_range(FlowJoin *join, WmsTime left, WmsTime right)
{
	const WmsJoinPlan *plan = join->plan;

	if (plan->bound != WMS_BOUND_RANGE)
		return true;
	if (plan->has_min && right < wms_time_add(left, plan->min_us))
		return false;
	return !plan->has_max || right <= wms_time_add(left, plan->max_us);
}

static bool
condition_holds(FlowJoin *join, TupleTableSlot *left, TupleTableSlot *right)
{
	bool		holds;

	if (join->condition == NULL)
		return true;
	join->pair->ecxt_outertuple = left;
	join->pair->ecxt_innertuple = right;
	holds = ExecQualAndReset(join->condition, join->pair);
	return holds;
}

static void
on_match(Probe *probe, TupleTableSlot *left, TupleTableSlot *right)
{
	FlowOp	   *op = probe->op;
	JoinType	type = op->join->plan->type;
	int			other = 1 - probe->side;
	bool		again = probe->side == 0 ? probe->matched : is_matched(probe->entry, probe->row);

	if (type == JOIN_SEMI)
	{
		if (!again)
			emit_pair(op, left, NULL);
	}
	else if (type != JOIN_ANTI)
		emit_pair(op, left, right);
	probe->matched = true;
	if (op->join->side[other].bits)
	{
		probe->entry = wms_state_touch(op->flow->store, probe->entry);
		set_matched(op, probe->entry, probe->row);
	}
}

/* Needs the row no further partner? */
static bool
has_enough(const Probe *probe)
{
	return probe->matched && probe->op->join->side[probe->side].once;
}

static void
show_held(Side *side, const char *row)
{
	ExecClearTuple(side->held);
	wms_unpack(row, side->plan->input_desc, side->held->tts_values, side->held->tts_isnull);
	ExecStoreVirtualTuple(side->held);
}

static bool
try_partner(const char *row, uint32 len, void *arg)
{
	Probe	   *probe = arg;
	FlowOp	   *op = probe->op;
	FlowJoin   *join = op->join;
	int			other = 1 - probe->side;
	Side	   *side = &join->side[other];
	TupleTableSlot *held = side->held;
	TupleTableSlot *left = probe->side == 0 ? probe->slot : held;
	TupleTableSlot *right = probe->side == 0 ? held : probe->slot;
	WmsTime		time;
	int64		number = probe->row;

	if ((number & 0x3FF) == 0)
		CHECK_FOR_INTERRUPTS();
	op->counts.compared_rows++;
	if (!side->once || !is_matched(probe->entry, number))
	{
		show_held(side, row);
		time = event_time(side, held);
		if (in_range(join, probe->side == 0 ? probe->time : time, probe->side == 0 ? time : probe->time) &&
			condition_holds(join, left, right))
			on_match(probe, left, right);
	}
	probe->row++;
	return !has_enough(probe);
}

/* entry: NULL where there is none. */
static void
look_through(Probe *probe, WmsEntry *entry)
{
	FlowOp	   *op = probe->op;

	if (entry == NULL || has_enough(probe) || (op->join->side[1 - probe->side].once && all_matched(entry)))
		return;
	probe->entry = entry;
	probe->row = 0;
	wms_state_kept(op->flow->store, entry, try_partner, probe);
}

static void
look_into(Probe *probe, const WmsBucketKey *bucket, uint32 hash)
{
	FlowOp	   *op = probe->op;

	look_through(probe, wms_state_peek(op->flow->store, bucket, hash, op->key.data, op->key.len));
}

/* Buckets of the other side in which a partner within the range can be. */
static void
look_into_range(Probe *probe, uint32 hash)
{
	FlowOp	   *op = probe->op;
	FlowJoin   *join = op->join;
	const WmsJoinPlan *plan = join->plan;
	int			other = 1 - probe->side;
	WmsBucketKey bucket = {join->side[other].state_op, WMS_TIME_MIN, WMS_TIME_MAX};
	WmsLook		among = {.op = bucket.op,.hash = hash,.key_len = op->key.len,.key = op->key.data};
	WmsEntry   *entry;

	look_into(probe, &bucket, hash);	/* rows that never leave; do all of them? */
	if (!(other == 0 ? plan->has_max : plan->has_min) || !join->side[probe->side].plan->bounded)
		return;
	among.first = wms_grid_end(join->slice, wms_time_add(probe->time, 1));
	among.last = WMS_TIME_MAX - 1;
	if (plan->has_min && plan->has_max)
		among.last = Min(among.last, wms_grid_end(join->slice, wms_time_add(wms_time_add(probe->time, 1), plan->max_us - plan->min_us)));
	wms_state_look(op->flow->store, &among);
	while (!has_enough(probe) && (entry = wms_state_look_next(op->flow->store, &among)) != NULL)
		look_through(probe, entry);
}

static void
look(Probe *probe, TupleTableSlot *slot, uint32 hash)
{
	FlowOp	   *op = probe->op;
	FlowJoin   *join = op->join;
	Side	   *own = &join->side[probe->side];
	WmsBucketKey bucket = {join->side[1 - probe->side].state_op, WMS_TIME_MIN, WMS_TIME_MAX};
	WmsWindow	span = {0, 0};

	if (join->plan->bound == WMS_BOUND_RANGE)
	{
		if (!(join->plan->has_min && join->plan->has_max && join->plan->min_us > join->plan->max_us))
			look_into_range(probe, hash);
		return;
	}
	if (join->plan->bound == WMS_BOUND_SAME)
	{
		(void) column_span(own, slot, own->plan->bound_column, &span);
		bucket.start = span.start;
		bucket.end = span.end;
	}
	look_into(probe, &bucket, hash);
}

/* ---------------------------------------------------------------- a row */

static bool
is_late(FlowOp *op, Side *side, TupleTableSlot *slot)
{
	WmsWindow	span;

	if (!side->plan->bounded || !column_span(side, slot, side->plan->time_column, &span))
		return false;
	return span.end <= join_watermark(op, op->flow->old_watermark);
}

static bool
own_conditions_hold(Side *side, TupleTableSlot *slot)
{
	int			column = side->plan->own_column;

	return column == 0 || (!slot->tts_isnull[column - 1] && DatumGetBool(slot->tts_values[column - 1]));
}

static bool
has_null_key(FlowOp *op, TupleTableSlot *slot)
{
	for (int i = 0; i < op->plan->nkeys; i++)
		if (slot->tts_isnull[i])
			return true;
	return false;
}

/* Without the number of its source row, which means nothing beyond the chunk. */
static void
pack_row(FlowOp *op, int s, TupleTableSlot *slot)
{
	FlowJoin   *join = op->join;
	int			ord = op->inputs[s]->plan->ord_column;
	bool		is_null = false;

	resetStringInfo(&join->packed);
	if (ord > 0)
	{
		is_null = slot->tts_isnull[ord - 1];
		slot->tts_isnull[ord - 1] = true;
	}
	wms_pack(&join->packed, join->side[s].plan->input_desc, slot->tts_values, slot->tts_isnull);
	if (ord > 0)
		slot->tts_isnull[ord - 1] = is_null;
}

static void
hold(FlowOp *op, int s, TupleTableSlot *slot, const WmsBucketKey *bucket, uint32 hash, bool matched)
{
	FlowJoin   *join = op->join;
	WmsEntry   *entry = wms_state_get(op->flow->store, bucket, hash, op->key.data, op->key.len, true);
	int64		number = entry->nkept;

	pack_row(op, s, slot);
	wms_state_keep(op->flow->store, entry, join->packed.data, join->packed.len);
	if (matched && join->side[s].bits)
		set_matched(op, entry, number);
	if (!matched && join->side[s].due)
		wms_flow_due_add(join->side[s].due, bucket, leaves_at(join, s, event_time(&join->side[s], slot)), number, hash,
						 op->key.data, op->key.len);
}

void
wms_flow_join_begin(FlowOp *op)
{
	for (int s = 0; s < 2; s++)
		if (op->join->side[s].due)
			wms_flow_due_begin(op->join->side[s].due, wms_state_version(op->flow->store));
}

void
wms_flow_join_row(FlowOp *op, int s, TupleTableSlot *slot)
{
	Side	   *side = &op->join->side[s];
	Probe		probe = {op, s, slot, event_time(side, slot), false, NULL, 0};
	WmsBucketKey bucket;
	uint32		hash;
	bool		null_key;

	if (is_late(op, side, slot))
	{
		wms_flow_mark_row(op, s, slot, FLOW_ROW_DROPPED);
		return;
	}
	wms_flow_mark_row(op, s, slot, FLOW_ROW_KEPT);
	if (has_no_time(op->join, side, slot) || !own_conditions_hold(side, slot))
	{
		if (side->preserved)
			emit_alone(op, s, slot);
		return;
	}
	hash = wms_flow_pack_key(op, slot);
	null_key = has_null_key(op, slot);
	bucket_of(op, s, slot, &bucket);
	wms_state_expect_new(op->flow->store, &bucket, hash);
	if (!null_key)
		look(&probe, slot, hash);
	else if (!side->preserved)
		return;
	if (side->once && probe.matched)
		return;					/* its one partner is found */
	hold(op, s, slot, &bucket, hash, probe.matched);
}

/* ---------------------------------------------------------------- leaving */

typedef struct Leaving
{
	FlowOp	   *op;
	int			side;
	WmsTime		now;
	WmsEntry   *entry;
	int64		row;
	const WmsBucketKey *partly; /* the bucket stays; NULL: it leaves */
	List	   *done;			/* numbers of rows that were null-extended; of one entry */
	const FlowDueRow *due;		/* rows of the entry that are to leave, and */
	const FlowDueRow *due_end;
} Leaving;

static bool
leave_row(const char *row, uint32 len, void *arg)
{
	Leaving    *leaving = arg;
	FlowJoin   *join = leaving->op->join;
	Side	   *side = &join->side[leaving->side];
	int64		number = leaving->row++;
	WmsTime		at;

	if (is_matched(leaving->entry, number))
		return true;
	show_held(side, row);
	if (leaving->partly)
	{
		at = leaves_at(join, leaving->side, event_time(side, side->held));
		if (at > leaving->now)
		{
			wms_flow_due_add(side->due, leaving->partly, at, number, leaving->entry->hash, leaving->entry->key,
							 leaving->entry->key_len);
			return true;
		}
	}
	emit_alone(leaving->op, leaving->side, side->held);
	if (leaving->partly)
		leaving->done = lappend_int(leaving->done, (int) number);
	return true;
}

static void
leave_entry(WmsEntry *entry, void *arg)
{
	Leaving    *leaving = arg;

	leaving->entry = entry;
	leaving->row = 0;
	wms_state_kept(leaving->op->flow->store, entry, leave_row, leaving);
}

/* Entries of the bucket that W stands in the middle of, with the rows that leave now; where a scan found them. */
typedef struct Partly
{
	uint32		hash;
	uint32		key_len;
	char	   *key;
	List	   *rows;
} Partly;

typedef struct PartlyScan
{
	Leaving		leaving;
	List	   *found;
} PartlyScan;

static void
leave_partly(WmsEntry *entry, void *arg)
{
	PartlyScan *scan = arg;
	Partly	   *p;

	scan->leaving.done = NIL;
	leave_entry(entry, &scan->leaving);
	if (scan->leaving.done == NIL)
		return;
	p = palloc(sizeof(Partly));
	p->hash = entry->hash;
	p->key_len = entry->key_len;
	p->key = palloc(Max(entry->key_len, 1));
	memcpy(p->key, entry->key, entry->key_len);
	p->rows = scan->leaving.done;
	scan->found = lappend(scan->found, p);
}

/* Looks at all rows of the bucket, and remembers which leave next. */
static void
leave_by_scan(FlowOp *op, int s, const WmsBucketKey *bucket, WmsTime now)
{
	PartlyScan	scan = {{.op = op,.side = s,.now = now,.partly = bucket}, NIL};
	FlowDue    *due = op->join->side[s].due;
	ListCell   *lc,
			   *row;

	wms_flow_due_gather(due, bucket);
	wms_state_scan(op->flow->store, bucket, leave_partly, &scan);
	wms_flow_due_gathered(due);
	foreach(lc, scan.found)
	{
		Partly	   *p = lfirst(lc);
		WmsEntry   *entry = wms_state_get(op->flow->store, bucket, p->hash, p->key, p->key_len, true);

		foreach(row, p->rows)
			set_matched(op, entry, lfirst_int(row));
	}
}

static bool
leave_if_due(const char *row, uint32 len, void *arg)
{
	Leaving    *leaving = arg;
	Side	   *side = &leaving->op->join->side[leaving->side];
	int64		number = leaving->row++;

	if (number != leaving->due->number)
		return true;
	if (!is_matched(leaving->entry, number))
	{
		show_held(side, row);
		emit_alone(leaving->op, leaving->side, side->held);
		set_matched(leaving->op, leaving->entry, number);
	}
	return ++leaving->due < leaving->due_end;
}

/* Rows of one entry; those that have found a partner do not count any more. */
static void
leave_due_entry(Leaving *leaving, const WmsBucketKey *bucket)
{
	WmsStore   *store = leaving->op->flow->store;
	const FlowDueRow *first = leaving->due;

	leaving->entry = wms_state_peek(store, bucket, first->hash, wms_flow_due_key(first), first->key_len);
	if (leaving->entry == NULL)
		elog(ERROR, "state of a join has lost rows that are due");
	while (leaving->due < leaving->due_end && is_matched(leaving->entry, leaving->due->number))
		leaving->due++;
	if (leaving->due == leaving->due_end)
		return;
	leaving->entry = wms_state_touch(store, leaving->entry);
	wms_state_kept_from(store, leaving->entry, leaving->due->number, &leaving->row, leave_if_due, leaving);
}

static void
leave_when_due(FlowOp *op, int s, const WmsBucketKey *bucket, WmsTime now)
{
	Leaving		leaving = {.op = op,.side = s,.now = now};
	FlowDueRow *rows;
	int64		n = wms_flow_due_take(op->join->side[s].due, now, &rows);

	for (int64 i = 0, end; i < n; i = end)
	{
		CHECK_FOR_INTERRUPTS();
		for (end = i + 1; end < n && wms_flow_due_together(&rows[i], &rows[end]);)
			end++;
		leaving.due = &rows[i];
		leaving.due_end = &rows[end];
		leave_due_entry(&leaving, bucket);
	}
	pfree(rows);
}

static void
leave_from_middle(FlowOp *op, int s, const WmsBucketKey *bucket, WmsTime now)
{
	if (wms_flow_due_covers(op->join->side[s].due, bucket, now))
		leave_when_due(op, s, bucket, now);
	else
		leave_by_scan(op, s, bucket, now);
}

static void
fire_side(FlowOp *op, int s, WmsTime now)
{
	FlowJoin   *join = op->join;
	WmsStore   *store = op->flow->store;
	Leaving		leaving = {.op = op,.side = s,.now = now};
	WmsBucketKey bucket = {join->side[s].state_op, WMS_TIME_MIN, WMS_TIME_MIN};
	bool		more;

	while ((more = wms_state_next_bucket(store, &bucket)) && bucket.end <= now)
	{
		if (join->side[s].preserved)
			wms_state_scan(store, &bucket, leave_entry, &leaving);
		wms_state_close(store, &bucket);
	}
	if (more && join->side[s].preserved && join->plan->bound == WMS_BOUND_RANGE &&
		bucket.end != WMS_TIME_MAX && bucket.start < now)
		leave_from_middle(op, s, &bucket, now);
}

void
wms_flow_join_fire(FlowOp *op, WmsTime now)
{
	if (!op->join->bounded)
		return;
	for (int s = 0; s < 2; s++)
		if (op->join->side[1 - s].plan->bounded)
			fire_side(op, s, now);
}

WmsTime
wms_flow_join_watermark(FlowOp *op, WmsTime w)
{
	return join_watermark(op, w);
}

void
wms_flow_join_end(FlowOp *op)
{
	ExecClearTuple(op->join->side[0].held);
	ExecClearTuple(op->join->side[1].held);
	ReScanExprContext(op->join->pair);
}
