/*
 * flow_ahead.c
 *	  Rows wait a little, so that the memory they will touch is there when their turn comes.
 *
 * In a state of millions of groups, keys of sessions or of DISTINCT, nearly every row touches one for the first time in its batch, and
 * each such touch is a walk through memory that no cache holds; so it is when a batch itself touches very many.  So rows of an
 * operator with a large state, or in a batch that has come to be one, gather in WMS_EXPECT_MAX places; when these are full, the
 * memory of all their groups is asked for at once, and then all of them go on into their groups.
 *
 * What enters has passed the late test and is settled as far as its source is concerned (but in sessions, where the chunk's end
 * settles it); only the group is still to be touched.  Order is kept.  Nothing waits beyond the end of the chunk
 * (wms_flow_ahead_drain), nor when inputs run that read the operator's rows: these, firings and readers see whole groups.
 *
 * The row's memory is gone when its turn comes, so the queue has its own copies: key and plain values in each place, other values in
 * one of two contexts that are used in turn, each for GENERATION_ROWS rows or until it has GENERATION_BYTES, but for more rows than can wait;
 * so when one is reset, its rows have left.
 *
 * Rows that are fed many at a time (flow_vector.c) need no queue: they are there already, and ask for their groups' memory themselves.
 *
 * While a failed row is looked for (flow->single), in operators with little state, and where firings feed rows, they do not wait.
 */
#include "postgres.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "flow/flow_internal.h"

#define GENERATION_ROWS 1024
#define GENERATION_BYTES ((Size) 1024 * 1024)

StaticAssertDecl(GENERATION_ROWS > WMS_EXPECT_MAX, "rows must have left when their memory is used again");

typedef struct AheadRow
{
	WmsWindow	window;
	StringInfoData key;
	Datum	   *values;
	bool	   *isnull;
} AheadRow;

struct FlowAhead
{
	AheadRow	rows[WMS_EXPECT_MAX];
	WmsExpected expected[WMS_EXPECT_MAX];	/* where the rows belong */
	int			nrows;
	TupleTableSlot *slot;		/* shows the row whose turn it is */
	int			natts;
	bool	   *copied;			/* columns that are not plain values */
	bool		any_copied;
	MemoryContext generations[2];
	uint32		entered;		/* into the present generation */
	int			generation;
};

static void
prepare_places(FlowAhead *ahead)
{
	for (int i = 0; i < WMS_EXPECT_MAX; i++)
	{
		AheadRow   *row = &ahead->rows[i];

		initStringInfo(&row->key);
		row->values = palloc0(sizeof(Datum) * Max(ahead->natts, 1));
		row->isnull = palloc0(sizeof(bool) * Max(ahead->natts, 1));
	}
}

/* Rows of an operator that is fed by firings too must be in their groups at once, and so must rows that may be taken back. */
static bool
may_wait(const FlowOp *op)
{
	return (op->plan->kind == WMS_OP_AGGREGATE || op->plan->kind == WMS_OP_DEDUP) && !op->retracts && !op->inputs[0]->reads_op;
}

/* In the flow's memory, when the inputs are there. */
void
wms_flow_ahead_prepare(FlowOp *op)
{
	TupleDesc	desc = op->plan->input_desc;
	FlowAhead  *ahead;

	if (!may_wait(op))
		return;
	ahead = palloc0(sizeof(FlowAhead));
	ahead->natts = desc->natts;
	ahead->slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	ahead->copied = palloc0(sizeof(bool) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		ahead->copied[i] = !TupleDescAttr(desc, i)->attbyval;
		ahead->any_copied |= ahead->copied[i];
	}
	for (int i = 0; i < 2; i++)
		ahead->generations[i] = AllocSetContextCreate(op->flow->context, "wmstream rows that wait", ALLOCSET_SMALL_SIZES);
	prepare_places(ahead);
	op->ahead = ahead;
}

/* A batch begins: what an error left behind is forgotten. */
void
wms_flow_ahead_begin(FlowOp *op)
{
	WmsStateSize size;

	if (op->ahead == NULL)
		return;
	op->ahead->nrows = 0;
	wms_state_op_size(op->flow->store, op->plan->id, &size);
	/* with few entries the caches do well by themselves */
	op->looks_ahead = size.entries >= wms_look_ahead_from;
}

/* A chunk of the batch has ended, and nothing waits: the batch's own copies of the groups that it touched may have become many. */
void
wms_flow_ahead_again(FlowOp *op)
{
	if (op->ahead && !op->looks_ahead)
		op->looks_ahead = wms_state_touched(op->flow->store) >= wms_look_ahead_from;
}

static bool
is_full(const FlowAhead *ahead)
{
	return ahead->entered >= GENERATION_ROWS ||
		(ahead->entered >= WMS_EXPECT_MAX && MemoryContextMemAllocated(ahead->generations[ahead->generation], false) >= GENERATION_BYTES);
}

static MemoryContext
generation(FlowAhead *ahead)
{
	if (is_full(ahead))
	{
		ahead->generation = 1 - ahead->generation;
		MemoryContextReset(ahead->generations[ahead->generation]);
		ahead->entered = 0;
	}
	ahead->entered++;
	return ahead->generations[ahead->generation];
}

static void
copy_values(FlowOp *op, AheadRow *row, TupleTableSlot *slot)
{
	FlowAhead  *ahead = op->ahead;
	MemoryContext old;

	memcpy(row->values, slot->tts_values, sizeof(Datum) * ahead->natts);
	memcpy(row->isnull, slot->tts_isnull, sizeof(bool) * ahead->natts);
	if (!ahead->any_copied)
		return;
	old = MemoryContextSwitchTo(generation(ahead));
	for (int i = 0; i < ahead->natts; i++)
		if (ahead->copied[i] && !row->isnull[i])
			row->values[i] = datumCopy(row->values[i], false, TupleDescAttr(op->plan->input_desc, i)->attlen);
	MemoryContextSwitchTo(old);
}

static void
take_turn(FlowOp *op, int place)
{
	FlowAhead  *ahead = op->ahead;
	AheadRow   *row = &ahead->rows[place];
	uint32		hash = ahead->expected[place].hash;

	ahead->slot->tts_values = row->values;
	ahead->slot->tts_isnull = row->isnull;
	if (op->plan->kind == WMS_OP_DEDUP)
		wms_flow_dedup_touch(op, &row->window, hash, &row->key, ahead->slot);
	else if (op->sessions)
		wms_flow_session_touch(op, hash, &row->key, ahead->slot);
	else
		wms_flow_touch_group(op, &row->window, hash, &row->key, ahead->slot);
}

/* All that wait go on; runs in memory that is reset often. */
void
wms_flow_ahead_drain(FlowOp *op)
{
	FlowAhead  *ahead = op->ahead;
	FlowRow    *fed = op->fed_row;
	int			nrows;

	if (ahead == NULL || ahead->nrows == 0)
		return;
	nrows = ahead->nrows;
	ahead->nrows = 0;
	wms_state_expect(op->flow->store, ahead->expected, nrows);
	op->fed_row = NULL;			/* that is another one: these tell their numbers */
	for (int i = 0; i < nrows; i++)
		take_turn(op, i);
	op->fed_row = fed;
}

/* A row that passed the late test, with op->key; runs in the row's memory. */
void
wms_flow_ahead_add(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot)
{
	FlowAhead  *ahead = op->ahead;
	AheadRow   *row = &ahead->rows[ahead->nrows];
	WmsExpected *expected = &ahead->expected[ahead->nrows];

	row->window = *window;
	expected->bucket = (WmsBucketKey) {op->plan->id, window->start, window->end};
	expected->hash = hash;
	resetStringInfo(&row->key);
	appendBinaryStringInfo(&row->key, op->key.data, op->key.len);
	copy_values(op, row, slot);
	if (++ahead->nrows == WMS_EXPECT_MAX)
		wms_flow_ahead_drain(op);
}

/* May an error be that of a row that has waited? */
bool
wms_flow_ahead_waits(const WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nops; i++)
		if (flow->ops[i].looks_ahead)
			return !flow->single;
	return false;
}
