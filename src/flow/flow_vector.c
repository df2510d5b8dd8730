/*
 * flow_vector.c
 *	  Direct feeds, many rows at a time, column by column.
 *
 * What it takes to call one function after the other for a row costs more than what they do with it.  So inserted rows of a source gather
 * in a *vector*, and when it is full each step goes through all of them before the next one begins:
 *
 *	 the columns that the definition reads are taken out of the row as it comes, for the row's bytes are in the cache then; or they are copied
 *	 from a bundle (source_bundle.c), which is a vector of its own, in which they stand already for all streams
 *	 event times are judged; what has none, or one too far in the future, is put aside
 *	 filter, and what the query computes: the only step for which a row must stand in a slot, and left out where columns are only passed on
 *	 keys are packed, windows found, late tests done: a list of *visits*, one for each row and window
 *	 the visits find their groups, and then each aggregate takes in all of them
 *	 rows that were dropped from all their windows are put aside
 *
 * Rows of one source keep their order; those of several come source by source, as far as their vectors go: nothing says in which order rows from
 * both sides of a UNION ALL go into an aggregate.
 *
 * All that a flow does with a row is the same as row by row (flow_source.c, flow_group.c), which is the slow twin, and what is done:
 *
 *	 in flows with a planned input, that take rows back, or with operators other than plain groups, or inputs that are the result itself
 *	 for all other changes than inserts: the vectors are emptied first, so that order is kept
 *	 while a failed row is looked for, and for one that is left out: so an error in a vector, which is of some row in it, comes again in the
 *	 row's own turn
 *
 * Memory.  Values lie where the batch keeps its rows, as long as these stay there; else in v->copies.  What the query
 * computes lies in the memory of v->context.  Both are bounded, for a vector ends, or a part of it goes on, when they have taken VECTOR_BYTES;
 * both are reset when it has.  Transitions run in flow->row's memory, which is reset after each.
 *
 * Where the state is large, the visits ahead have the memory of their groups asked for, as rows in the queue of flow_ahead.c have.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

#define VECTOR_BYTES WMS_BUNDLE_BYTES

/* A row on its way into a group. */
typedef struct Visit
{
	WmsWindow	window;
	int			chosen;			/* of the row, in v->chosen, and of its key */
} Visit;

/* A column of the table that is taken out of rows. */
typedef struct Taken
{
	int			column;			/* 0-based */
	int			at;				/* where it begins in v->values */
	int			offset;			/* in rows without NULLs, where v->fixed */
	int			len;
	bool		byval;
} Taken;

/* An input that the vector's rows go to. */
typedef struct VectorInput
{
	FlowInput  *input;
	int		   *place;			/* where each column of the operator's input begins in v->values */
	ProjectionInfo *computed;	/* columns that are more than passed on; NULL: there are none */
	int			ncomputed;
	int		   *computed_at;	/* where they begin */
} VectorInput;

struct FlowVector
{
	FlowSource *source;
	List	   *inputs;			/* VectorInput * */
	int			ntaken;
	Taken	   *taken;
	int		   *columns;		/* of taken */
	int			last_taken;		/* attributes that a row must have for all of them */
	bool		fixed;			/* offsets are known */
	bool		had_nulls;		/* some row had, so isnull is to be cleared */
	int			ncolumns;
	int			time_at;		/* where event times begin; -1: there are none */
	int			ord_at;			/* where the numbers of rows begin; -1: nobody reads them */
	int			evt_at;			/* where the hidden event times begin; the same as time_at, or a column of its own */
	bool		time_is_column; /* a column of the table, which need not be computed */

	ExprContext *context;		/* of one row that is computed */
	MemoryContext copies;

	/* what is in it */
	int			nrows;
	Size		bytes;			/* of rows */
	Datum	   *values;			/* ncolumns times FLOW_VECTOR_ROWS */
	bool	   *isnull;
	HeapTupleData *tuples;		/* NULL unless there is a late table */
	uint8		marks[FLOW_VECTOR_ROWS];
	bool		dropped;		/* some row was dropped from some window */
	uint16		timely[FLOW_VECTOR_ROWS];	/* rows with an event time */
	int			ntimely;
	uint16		chosen[FLOW_VECTOR_ROWS];	/* of these, those that passed the input's filter */
	int			nchosen;

	Visit		visits[FLOW_VECTOR_ROWS];
	int			nvisits;
	uint16		visitors[FLOW_VECTOR_ROWS];	/* row of each visit */
	WmsEntry   *entries[FLOW_VECTOR_ROWS];	/* group of each visit */
	FlowState  *states[FLOW_VECTOR_ROWS];
	FlowKeys	keys;			/* of chosen rows */
	WmsTime		judged_end;		/* the late test of windows with this end */
	bool		judged_gone;	/* says so */
};

/* ---------------------------------------------------------------- preparing */

static bool
takes_rows(const FlowInput *input)
{
	const FlowOp *op = input->op;

	return op && (op->plan->kind == WMS_OP_AGGREGATE || op->plan->kind == WMS_OP_COLLECT) && !op->sessions && !op->retracts;
}

static int
new_column(FlowVector *v)
{
	return v->ncolumns++ * FLOW_VECTOR_ROWS;
}

/* Where a column of the source's row set is, hidden ones too; it is taken out of rows from now on. */
static int
source_column(FlowVector *v, int column)
{
	FlowSource *source = v->source;
	int			natts = source->plan->in_desc->natts;
	Taken	   *taken;

	if (column == natts - 2 && v->ord_at < 0)
		v->ord_at = new_column(v);
	if (column == natts - 1 && v->evt_at < 0)
		v->evt_at = v->time_at >= 0 && !source->flow->plan->processing_time ? v->time_at : new_column(v);
	if (column >= natts - 2)
		return column == natts - 2 ? v->ord_at : v->evt_at;
	for (int i = 0; i < v->ntaken; i++)
		if (v->taken[i].column == column)
			return v->taken[i].at;
	v->columns[v->ntaken] = column;
	taken = &v->taken[v->ntaken++];
	taken->column = column;
	taken->at = new_column(v);
	taken->len = TupleDescAttr(source->table_desc, column)->attlen;
	taken->byval = TupleDescAttr(source->table_desc, column)->attbyval;
	v->last_taken = Max(v->last_taken, column + 1);
	return taken->at;
}

static void
take_columns(FlowVector *v, Node *expr)
{
	Bitmapset  *columns = NULL;
	int			i = -1;

	pull_varattnos(expr, 1, &columns);
	while ((i = bms_next_member(columns, i)) >= 0)
	{
		AttrNumber	attnum = i + FirstLowInvalidHeapAttributeNumber;

		if (attnum > 0)
			(void) source_column(v, attnum - 1);
		for (int c = 0; attnum == 0 && c < v->source->plan->in_desc->natts; c++)
			(void) source_column(v, c);	/* the row as a whole */
	}
}

static bool
is_column(const Expr *expr)
{
	return IsA(expr, Var) && ((const Var *) expr)->varattno > 0;
}

static void
prepare_time(FlowVector *v)
{
	Node	   *expr = v->source->plan->event_time;

	v->time_at = v->evt_at = v->ord_at = -1;
	if (expr == NULL)
		return;
	v->time_is_column = is_column((Expr *) expr);
	if (v->time_is_column)
		v->time_at = source_column(v, ((Var *) expr)->varattno - 1);
	else
	{
		v->time_at = new_column(v);
		take_columns(v, expr);
	}
}

static void
prepare_input(FlowVector *v, FlowInput *input)
{
	VectorInput *vi = palloc0(sizeof(VectorInput));
	List	   *computed = NIL;
	int			n = 0;
	ListCell   *lc;

	vi->input = input;
	vi->place = palloc(sizeof(int) * list_length(input->targets));
	vi->computed_at = palloc(sizeof(int) * list_length(input->targets));
	take_columns(v, input->quals);
	foreach(lc, input->targets)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (is_column(tle->expr))
			vi->place[n++] = source_column(v, ((Var *) tle->expr)->varattno - 1);
		else if (IsA(tle->expr, Const))
			vi->place[n++] = new_column(v);
		else
		{
			take_columns(v, (Node *) tle->expr);
			vi->place[n++] = vi->computed_at[vi->ncomputed++] = new_column(v);
			tle = flatCopyTargetEntry(tle);
			tle->resno = vi->ncomputed;
			computed = lappend(computed, tle);
		}
	}
	if (computed)
		vi->computed = ExecBuildProjectionInfo(computed, v->context,
											   MakeSingleTupleTableSlot(ExecTypeFromTL(computed), &TTSOpsVirtual), NULL,
											   v->source->plan->in_desc);
	v->inputs = lappend(v->inputs, vi);
}

/* Columns that are the same in all rows. */
static void
fill_constants(FlowVector *v, const VectorInput *vi)
{
	int			n = 0;
	ListCell   *lc;

	foreach(lc, vi->input->targets)
	{
		const Const *constant = (Const *) lfirst_node(TargetEntry, lc)->expr;
		int			at = vi->place[n++];

		for (int row = 0; row < FLOW_VECTOR_ROWS && IsA(constant, Const); row++)
		{
			v->values[at + row] = constant->constvalue;
			v->isnull[at + row] = constant->constisnull;
		}
	}
}

static void
prepare_vector(FlowSource *source)
{
	FlowVector *v = palloc0(sizeof(FlowVector));
	ListCell   *lc;

	v->source = source;
	v->taken = palloc(sizeof(Taken) * source->plan->in_desc->natts);
	v->columns = palloc(sizeof(int) * source->plan->in_desc->natts);
	v->context = CreateStandaloneExprContext();
	v->copies = AllocSetContextCreate(source->flow->context, "wmstream rows of a vector", ALLOCSET_DEFAULT_SIZES);
	prepare_time(v);
	foreach(lc, source->direct)
		prepare_input(v, lfirst(lc));
	v->values = palloc0(sizeof(Datum) * FLOW_VECTOR_ROWS * v->ncolumns);
	v->isnull = palloc0(sizeof(bool) * FLOW_VECTOR_ROWS * v->ncolumns);
	foreach(lc, v->inputs)
		fill_constants(v, lfirst(lc));
	initStringInfo(&v->keys.bytes);
	source->vector = v;
}

/* When all inputs are there: for all sources, or for none. */
void
wms_flow_vector_prepare(WmsFlow *flow)
{
	ListCell   *lc;

	if (flow->buffered || flow->plan->retract || wms_force_row_feed)
		return;
	for (int i = 0; i < flow->plan->nsources; i++)
		foreach(lc, flow->sources[i].direct)
			if (!takes_rows(lfirst(lc)))
				return;
	for (int i = 0; i < flow->plan->nsources; i++)
		prepare_vector(&flow->sources[i]);
	flow->has_vectors = flow->plan->nsources > 0;
}

/* ---------------------------------------------------------------- rows come in */

/* Offsets become known when a row without NULLs was taken apart by the whole. */
static void
learn_offsets(FlowVector *v)
{
	v->fixed = true;
	for (int i = 0; i < v->ntaken; i++)
	{
		v->taken[i].offset = WmsCachedOffset(v->source->table_desc, v->taken[i].column);
		v->fixed &= v->taken[i].offset >= 0;
	}
}

static void
take_apart_slowly(FlowVector *v, HeapTuple tuple)
{
	TupleTableSlot *slot = v->source->in_slot;

	ExecClearTuple(slot);
	heap_deform_tuple(tuple, v->source->table_desc, slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	for (int i = 0; i < v->ntaken; i++)
	{
		const Taken *taken = &v->taken[i];

		v->values[taken->at + v->nrows] = slot->tts_values[taken->column];
		v->isnull[taken->at + v->nrows] = slot->tts_isnull[taken->column];
		v->had_nulls |= slot->tts_isnull[taken->column];
	}
	if (!v->fixed && !HeapTupleHasNulls(tuple))
		learn_offsets(v);
}

static inline void
take_apart(FlowVector *v, HeapTuple tuple)
{
	const char *data = (const char *) tuple->t_data + tuple->t_data->t_hoff;

	if (!v->fixed || HeapTupleHasNulls(tuple) || HeapTupleHeaderGetNatts(tuple->t_data) < v->last_taken)
	{
		take_apart_slowly(v, tuple);
		return;
	}
	for (int i = 0; i < v->ntaken; i++)
	{
		const Taken *taken = &v->taken[i];

		v->values[taken->at + v->nrows] = fetch_att(data + taken->offset, taken->byval, taken->len);
	}
}

/* The row in the table's layout, where it stays until the vector is done. */
static HeapTuple
lasting_row(FlowVector *v, const WmsChange *change)
{
	MemoryContext old = MemoryContextSwitchTo(v->copies);
	HeapTuple	row = (HeapTuple) &change->tuple;
	HeapTuple	tuple = wms_flow_fit_row(v->source, change->shape, row, true);

	if (tuple == row && change->fleeting)
		tuple = heap_copytuple(row);
	MemoryContextSwitchTo(old);
	return tuple;
}

static void run_vector(FlowVector *v);

void
wms_flow_vector_add(FlowSource *source, const WmsChange *change)
{
	FlowVector *v = source->vector;
	HeapTuple	tuple = (HeapTuple) &change->tuple;

	if (change->fleeting || source->shape != change->shape || !source->shape_as_is)
		tuple = lasting_row(v, change);
	take_apart(v, tuple);
	if (v->tuples)
		v->tuples[v->nrows] = *tuple;
	v->bytes += tuple->t_len;
	if (++v->nrows == FLOW_VECTOR_ROWS || v->bytes >= VECTOR_BYTES)
		run_vector(v);
}

static void
copy_columns(FlowVector *v, const WmsBundle *bundle)
{
	for (int i = 0; i < v->ntaken; i++)
	{
		const WmsColumn *column = &bundle->columns[v->taken[i].column];

		memcpy(v->values + v->taken[i].at, column->values, sizeof(Datum) * bundle->nrows);
		if (column->has_nulls)
			memcpy(v->isnull + v->taken[i].at, column->isnull, sizeof(bool) * bundle->nrows);
		v->had_nulls |= column->has_nulls;
	}
}

static void
add_bundle_by_rows(FlowSource *source, const WmsBundle *bundle)
{
	WmsChange	change = {.kind = WMS_CHANGE_INSERT,.shape = bundle->shape};

	for (int row = 0; row < bundle->nrows; row++)
	{
		wms_set_tuple(&change.tuple, bundle->shape->relid, bundle->lens[row], bundle->rows[row]);
		wms_flow_vector_add(source, &change);
	}
}

/* A bundle is a vector of its own, with columns that another stream may have taken out of the rows. */
void
wms_flow_vector_bundle(FlowSource *source, WmsBatch *batch, WmsBundle *bundle)
{
	FlowVector *v = source->vector;

	if (v->nrows > 0)
		run_vector(v);
	if (!wms_flow_same_shape(source, bundle->shape) || !wms_bundle_take(batch, bundle, v->columns, v->ntaken))
	{
		add_bundle_by_rows(source, bundle);
		return;
	}
	copy_columns(v, bundle);
	for (int row = 0; row < bundle->nrows && v->tuples; row++)
		wms_set_tuple(&v->tuples[row], bundle->shape->relid, bundle->lens[row], bundle->rows[row]);
	v->nrows = bundle->nrows;
	run_vector(v);
}

/* ---------------------------------------------------------------- event times */

/* The row as in_slot has it when rows are fed one by one. */
static void
show_row(FlowVector *v, int row)
{
	TupleTableSlot *slot = v->source->in_slot;
	int			natts = v->source->plan->in_desc->natts;

	ExecClearTuple(slot);
	for (int i = 0; i < v->ntaken; i++)
	{
		const Taken *taken = &v->taken[i];

		slot->tts_values[taken->column] = v->values[taken->at + row];
		slot->tts_isnull[taken->column] = v->isnull[taken->at + row];
	}
	if (v->ord_at >= 0)
	{
		slot->tts_values[natts - 2] = v->values[v->ord_at + row];
		slot->tts_isnull[natts - 2] = false;
	}
	if (v->evt_at >= 0)
	{
		slot->tts_values[natts - 1] = v->values[v->evt_at + row];
		slot->tts_isnull[natts - 1] = v->isnull[v->evt_at + row];
	}
	ExecStoreVirtualTuple(slot);
	v->context->ecxt_scantuple = slot;
}

static void
compute_times(FlowVector *v)
{
	for (int row = 0; row < v->nrows; row++)
	{
		show_row(v, row);
		v->values[v->time_at + row] = ExecEvalExprSwitchContext(v->source->time, v->context, &v->isnull[v->time_at + row]);
		ResetExprContext(v->context);
	}
}

static void
put_row_aside(FlowVector *v, int row, WmsReason reason)
{
	FlowRow		aside = {.source = v->source->plan->index,.time = WMS_TIME_MIN};

	if (v->tuples)
		aside.tuple = &v->tuples[row];
	if (reason != WMS_REASON_NO_TIME && v->time_at >= 0)
		aside.time = DatumGetTimestampTz(v->values[v->time_at + row]);
	wms_flow_put_aside(v->source->flow, &aside, reason, NULL);
}

static void
judge_times(FlowVector *v)
{
	WmsFlow    *flow = v->source->flow;
	WmsTime    *greatest = &flow->progress->max_time[v->source->plan->index];
	WmsTime		limit = flow->def->max_future_us >= 0 ? wms_time_add(flow->started_at, flow->def->max_future_us) : WMS_TIME_MAX;
	WmsTime		max = *greatest;
	const Datum *times = v->values + v->time_at;
	const bool *isnull = v->isnull + v->time_at;

	v->ntimely = 0;
	for (int row = 0; row < v->nrows; row++)
	{
		WmsTime		time = DatumGetTimestampTz(times[row]);

		if (unlikely(isnull[row] || !WmsTimeIsFinite(time)))
			put_row_aside(v, row, WMS_REASON_NO_TIME);
		else if (unlikely(time > limit))
			put_row_aside(v, row, WMS_REASON_FUTURE);
		else
		{
			max = wms_watermark_advance(max, time);
			v->timely[v->ntimely++] = row;
		}
	}
	*greatest = max;
}

static void
pass_all(FlowVector *v)
{
	for (int row = 0; row < v->nrows; row++)
		v->timely[row] = row;
	v->ntimely = v->nrows;
}

static void
fill_hidden(FlowVector *v)
{
	WmsFlow    *flow = v->source->flow;

	for (int row = 0; row < v->nrows && v->ord_at >= 0; row++)
		v->values[v->ord_at + row] = Int64GetDatum(flow->first_ord + row);
	if (v->evt_at < 0 || v->evt_at == v->time_at)
		return;
	for (int row = 0; row < v->nrows; row++)
	{
		v->values[v->evt_at + row] = TimestampTzGetDatum(flow->started_at);
		v->isnull[v->evt_at + row] = !flow->plan->processing_time;
	}
}

/* ---------------------------------------------------------------- filter and projection */

static void
compute_columns(FlowVector *v, VectorInput *vi, int row)
{
	TupleTableSlot *slot = ExecProject(vi->computed);

	for (int i = 0; i < vi->ncomputed; i++)
	{
		v->values[vi->computed_at[i] + row] = slot->tts_values[i];
		v->isnull[vi->computed_at[i] + row] = slot->tts_isnull[i];
	}
}

/* From the at-th timely row on, until there are no more or what was computed has become much; how far it came. */
static int
choose_rows(FlowVector *v, VectorInput *vi, int at)
{
	v->nchosen = 0;
	if (vi->input->qual == NULL && vi->computed == NULL)
	{
		memcpy(v->chosen, v->timely, sizeof(uint16) * v->ntimely);
		v->nchosen = v->ntimely;
		return v->ntimely;
	}
	while (at < v->ntimely && MemoryContextMemAllocated(v->context->ecxt_per_tuple_memory, false) < VECTOR_BYTES)
	{
		int			row = v->timely[at++];

		show_row(v, row);
		if (vi->input->qual && !ExecQual(vi->input->qual, v->context))
			continue;
		if (vi->computed)
			compute_columns(v, vi, row);
		v->chosen[v->nchosen++] = row;
	}
	return at;
}

/* ---------------------------------------------------------------- visits of groups */

static void
keep_rows(FlowVector *v, VectorInput *vi)
{
	FlowOp	   *op = vi->input->op;

	for (int at = 0; at < v->nvisits; at++)
	{
		for (int i = 0; i < op->nkept_columns; i++)
		{
			int			from = vi->place[op->first_kept + i] + v->visitors[at];

			op->kept_values[i] = v->values[from];
			op->kept_isnull[i] = v->isnull[from];
		}
		wms_flow_keep_values(op, v->entries[at], op->kept_values, op->kept_isnull, false);
	}
}

static void
expect_visits(FlowVector *v, FlowOp *op, int at, void (*expect) (WmsStore *, const WmsExpected *, int))
{
	WmsExpected expected[WMS_EXPECT_MAX];
	int			n = Min(WMS_EXPECT_MAX, v->nvisits - at);

	for (int i = 0; i < n; i++)
	{
		const Visit *visit = &v->visits[at + i];

		expected[i].bucket = (WmsBucketKey) {op->plan->id, visit->window.start, visit->window.end};
		expected[i].hash = v->keys.hash[visit->chosen];
	}
	if (n > 0)
		expect(op->flow->store, expected, n);
}

/*
 * Has memory of the groups fetched that come after the next WMS_EXPECT_MAX: entries of those that follow, slots of those that follow these.  It
 * comes while the groups before are worked on.
 */
static void
look_ahead(FlowVector *v, FlowOp *op, int at)
{
	if (at == 0)
	{
		expect_visits(v, op, 0, wms_state_expect_slots);
		expect_visits(v, op, WMS_EXPECT_MAX, wms_state_expect_slots);
		expect_visits(v, op, 0, wms_state_expect_entries);
	}
	expect_visits(v, op, at + 2 * WMS_EXPECT_MAX, wms_state_expect_slots);
	expect_visits(v, op, at + WMS_EXPECT_MAX, wms_state_expect_entries);
}

static void
visit_groups(FlowVector *v, VectorInput *vi)
{
	FlowOp	   *op = vi->input->op;
	FlowRows	rows = {v->values, v->isnull, vi->place, v->nvisits, v->visitors, v->states};

	CHECK_FOR_INTERRUPTS();		/* a row can be in very many windows */
	for (int at = 0; at < v->nvisits; at++)
	{
		const Visit *visit = &v->visits[at];

		if (op->looks_ahead && at % WMS_EXPECT_MAX == 0)
			look_ahead(v, op, at);
		v->entries[at] = wms_flow_group(op, &visit->window, v->keys.hash[visit->chosen], v->keys.bytes.data + v->keys.at[visit->chosen],
										v->keys.len[visit->chosen]);
		v->states[at] = v->entries[at]->work;
		v->visitors[at] = v->chosen[visit->chosen];
	}
	wms_flow_states_advance_rows(op, &rows);
	if (op->has_kept)
		keep_rows(v, vi);
	v->nvisits = 0;
}

/* Is a window with this end gone?  Asked again and again for the same few. */
static inline bool
is_gone(FlowVector *v, FlowOp *op, WmsTime end)
{
	if (v->judged_end != end)
	{
		v->judged_gone = wms_flow_gone(op, end);
		v->judged_end = end;
	}
	return v->judged_gone;
}

/* What became of the chosen row there. */
static inline uint8
plan_visit(FlowVector *v, VectorInput *vi, int chosen, const WmsWindow *window)
{
	Visit	   *visit;

	if (is_gone(v, vi->input->op, window->end))
		return FLOW_ROW_DROPPED;
	if (v->nvisits == FLOW_VECTOR_ROWS)
		visit_groups(v, vi);
	visit = &v->visits[v->nvisits++];
	visit->window = *window;
	visit->chosen = chosen;
	return FLOW_ROW_KEPT;
}

static uint8
plan_visits(FlowVector *v, VectorInput *vi, int chosen)
{
	FlowOp	   *op = vi->input->op;
	WmsWindow	window = {WMS_TIME_MIN, WMS_TIME_MAX};
	uint8		marks = 0;
	int			at;
	WmsTime		time;

	if (op->plan->window_key < 0)
		return plan_visit(v, vi, chosen, &window);
	at = vi->place[op->plan->time_column > 0 ? op->plan->time_column - 1 : op->plan->window_key] + v->chosen[chosen];
	if (op->plan->time_column == 0)
		return wms_flow_ready_window(op, v->values[at], v->isnull[at], &window) ? plan_visit(v, vi, chosen, &window) : 0;
	time = DatumGetTimestampTz(v->values[at]);
	if (v->isnull[at] || !wms_flow_first_window(op, time, &window))
		return 0;
	do
		marks |= plan_visit(v, vi, chosen, &window);
	while (wms_flow_next_window(op, time, &window));
	return marks;
}

static void
forget_keys(FlowVector *v)
{
	MemoryContext old = MemoryContextSwitchTo(v->source->flow->context);

	if (v->keys.bytes.maxlen > (int) VECTOR_BYTES)
	{
		pfree(v->keys.bytes.data);
		initStringInfo(&v->keys.bytes);
	}
	MemoryContextSwitchTo(old);
}

/* The first chosen rows into the groups of the input's operator; those whose keys fit are the first ones. */
static int
group_some(FlowVector *v, VectorInput *vi, const FlowRows *rows)
{
	FlowOp	   *op = vi->input->op;
	int			n = wms_flow_pack_rows(op, rows, &v->keys, (int) VECTOR_BYTES);

	for (int i = 0; i < n; i++)
	{
		uint8		marks = plan_visits(v, vi, i);

		v->marks[rows->rows[i]] |= marks;
		v->dropped |= (marks & FLOW_ROW_DROPPED) != 0;
		op->counts.late_rows += (marks == FLOW_ROW_DROPPED);
	}
	visit_groups(v, vi);
	forget_keys(v);
	return n;
}

static void
group_rows(FlowVector *v, VectorInput *vi)
{
	v->judged_end = WMS_TIME_MIN;
	v->judged_gone = wms_flow_gone(vi->input->op, WMS_TIME_MIN);
	vi->input->op->counts.input_rows += v->nchosen;
	while (v->nchosen > 0)
	{
		FlowRows	rows = {v->values, v->isnull, vi->place, v->nchosen, v->chosen, NULL};
		int			n = group_some(v, vi, &rows);

		v->nchosen -= n;
		memmove(v->chosen, v->chosen + n, sizeof(uint16) * v->nchosen);
	}
}

static void
run_input(FlowVector *v, VectorInput *vi)
{
	instr_time	clock;
	int			at = 0;

	wms_flow_clock_start(&clock);
	while (at < v->ntimely)
	{
		at = choose_rows(v, vi, at);
		group_rows(v, vi);
		ResetExprContext(v->context);
		ResetExprContext(v->source->flow->row);
	}
	vi->input->op->counts.seconds += wms_flow_clock_seconds(&clock);
}

/* ---------------------------------------------------------------- the whole */

static void
put_late_aside(FlowVector *v)
{
	for (int row = 0; row < v->nrows; row++)
		if ((v->marks[row] & (FLOW_ROW_DROPPED | FLOW_ROW_KEPT)) == FLOW_ROW_DROPPED)
			put_row_aside(v, row, WMS_REASON_LATE);
}

static void
forget_rows(FlowVector *v)
{
	for (int i = 0; i < v->ntaken && v->had_nulls; i++)
		memset(v->isnull + v->taken[i].at, false, sizeof(bool) * FLOW_VECTOR_ROWS);
	v->had_nulls = v->dropped = false;
	v->nrows = 0;
	v->bytes = 0;
	MemoryContextReset(v->copies);
}

/* A batch begins: what an error left behind is forgotten. */
void
wms_flow_vector_begin(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources && flow->has_vectors; i++)
	{
		FlowVector *v = flow->sources[i].vector;

		forget_rows(v);
		forget_keys(v);
		ResetExprContext(v->context);
		v->nvisits = 0;
		if (flow->late && v->tuples == NULL)
			v->tuples = MemoryContextAlloc(flow->context, sizeof(HeapTupleData) * FLOW_VECTOR_ROWS);
	}
}

static void
run_vector(FlowVector *v)
{
	WmsFlow    *flow = v->source->flow;
	MemoryContext old = MemoryContextSwitchTo(flow->row->ecxt_per_tuple_memory);
	ListCell   *lc;

	memset(v->marks, 0, v->nrows);
	fill_hidden(v);
	if (v->time_at >= 0 && !v->time_is_column)
		compute_times(v);
	if (v->time_at >= 0)
		judge_times(v);
	else
		pass_all(v);
	foreach(lc, v->inputs)
		run_input(v, lfirst(lc));
	if (v->dropped)
		put_late_aside(v);
	flow->first_ord += v->nrows;
	forget_rows(v);
	MemoryContextSwitchTo(old);
}

/* What is in the vectors goes on; in memory that is reset often. */
void
wms_flow_vector_end(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources && flow->has_vectors; i++)
		if (flow->sources[i].vector->nrows > 0)
			run_vector(flow->sources[i].vector);
}
