/*
 * flow_source.c
 *	  The watermark operator: rows of source tables come in, get their number and event
 *	  time, and go on to the inputs that read them.
 *
 * Where all inputs are direct ones into plain groups, inserted rows go many at a time (flow_vector.c).  Else
 * a row takes one of two roads.  *Direct*: filter and projection are evaluated on the spot and
 * the operator has the row before the next one is read.  *Planned*: rows are
 * collected in row sets, and at the end of a chunk the executor runs the queries over them.  A flow
 * with a planned input collects chunks; one without settles each row at once.  What operators give with each row of theirs (joins,
 * DISTINCT) takes the same roads to the result.
 *
 * Every row of the source moves the source's greatest event time, whatever happens to it
 * afterwards; rows without a time, or too far in the future, move nothing and go no further.  Late
 * tests use the watermark of the last firing and are the operators' business: they mark a row as
 * dropped from, or kept in, a window, and here, when the row is settled, it is late if it was dropped and
 * never kept.  A row that only a session could keep is settled at the end of the batch: rows of later chunks may join its session to one that
 * is open.  Where more than FLOW_CHUNK_BYTES of such rows wait they are settled at once.
 *
 * A row that is to be taken back (flow_change.c) takes the same road, but moves nothing and is nobody's news: what it had to say
 * of times it said when it came.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "optimizer/optimizer.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

#define WAITING_SESSION_BYTES 256	/* about what the session takes that a waiting row may have for itself */

void
wms_flow_source_prepare(WmsFlow *flow, FlowSource *source)
{
	WmsSourcePlan *plan = source->plan;
	Relation	rel = table_open(plan->relid, AccessShareLock);
	ListCell   *lc;

	source->table_desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	table_close(rel, NoLock);
	source->readable = wms_readable_columns(plan->relid, source->table_desc->natts);
	source->shown = bms_copy(source->readable);
	foreach(lc, plan->columns_passed)
		source->shown = bms_add_member(source->shown, lfirst_int(lc));
	source->in_slot = MakeSingleTupleTableSlot(plan->in_desc, &TTSOpsVirtual);
	if (plan->event_time)
		source->time = ExecInitExpr((Expr *) expression_planner((Expr *) copyObject(plan->event_time)), NULL);
}

/* ---------------------------------------------------------------- rows and their numbers */

static FlowRow *
row_of(WmsFlow *flow, int64 ord)
{
	Assert(ord >= flow->first_ord && ord < flow->first_ord + flow->nrows);
	return &flow->rows[ord - flow->first_ord];
}

static int64
number_row(WmsFlow *flow, FlowSource *source, HeapTuple tuple)
{
	FlowRow    *row = &flow->rows[flow->nrows];

	row->source = source->plan->index;
	row->time = WMS_TIME_MIN;
	row->marks = 0;
	row->retract = row->paired = false;
	row->tuple = NULL;
	if (flow->late)
	{
		MemoryContext old = MemoryContextSwitchTo(flow->batch);

		row->tuple = flow->buffered ? heap_copytuple(tuple) : tuple;
		MemoryContextSwitchTo(old);
	}
	flow->row_bytes += tuple->t_len;
	return flow->first_ord + flow->nrows++;
}

/* Where a row failed before it had a time, the views that it had to come through may not have let it: then only what may be read of any row. */
static const Bitmapset *
columns_shown(const FlowSource *source, const FlowRow *row, WmsReason reason)
{
	return reason == WMS_REASON_ERROR && !WmsTimeIsFinite(row->time) ? source->readable : source->shown;
}

void
wms_flow_put_aside(WmsFlow *flow, FlowRow *row, WmsReason reason, const char *error)
{
	static const WmsCounter counters[] = {WMS_COUNT_LATE, WMS_COUNT_NO_TIME, WMS_COUNT_FUTURE, WMS_COUNT_ERROR};
	FlowSource *source = &flow->sources[row->source];
	MemoryContext old;

	if (flow->trying)
		return;
	flow->progress->counters[counters[reason]]++;
	if (flow->late == NULL)
		return;
	old = MemoryContextSwitchTo(flow->batch);
	wms_late_put(flow->late, source->plan->relid, source->table_desc, columns_shown(source, row, reason), row->tuple,
				 WmsTimeIsFinite(row->time), row->time, flow->old_watermark, reason, error);
	MemoryContextSwitchTo(old);
}

static bool
is_late(const FlowRow *row)
{
	return (row->marks & (FLOW_ROW_DROPPED | FLOW_ROW_KEPT)) == FLOW_ROW_DROPPED;
}

/* The chunk goes, but the row's fate is open: with its tuple, if it has one. */
static void
let_wait(WmsFlow *flow, int i)
{
	if (flow->nwaiting == flow->waiting_room)
	{
		flow->waiting_room = Max(64, flow->waiting_room * 2);
		if (flow->waiting)
			flow->waiting = repalloc_huge(flow->waiting, sizeof(FlowWaiting) * flow->waiting_room);
		else
			flow->waiting = MemoryContextAlloc(flow->batch, sizeof(FlowWaiting) * flow->waiting_room);
	}
	flow->waiting[flow->nwaiting++] = (FlowWaiting) {flow->first_ord + i, flow->rows[i]};
	flow->waiting_bytes += sizeof(FlowWaiting) + WAITING_SESSION_BYTES + (flow->rows[i].tuple ? flow->rows[i].tuple->t_len : 0);
}

static bool
waits(const FlowRow *row)
{
	return (row->marks & (FLOW_ROW_WAITS | FLOW_ROW_KEPT)) == FLOW_ROW_WAITS;
}

static void
free_tuple(WmsFlow *flow, FlowRow *row)
{
	if (flow->late && flow->buffered)
		heap_freetuple(row->tuple); /* our copy */
}

/* A change of a late row that leaves it late is told once, by what the row is now. */
static void
settle_rows(WmsFlow *flow)
{
	for (int i = 0; i < flow->nrows; i++)
	{
		FlowRow    *row = &flow->rows[i];

		if (waits(row))
		{
			let_wait(flow, i);
			continue;
		}
		if (is_late(row) && !(row->paired && is_late(row + 1)))
			wms_flow_put_aside(flow, row, WMS_REASON_LATE, NULL);
		free_tuple(flow, row);
	}
	flow->first_ord += flow->nrows;
	flow->nrows = 0;
	flow->row_bytes = 0;
}

/* NULL: the row of that number does not wait. */
static FlowRow *
waiting_row(WmsFlow *flow, int64 ord)
{
	int64		low = 0;
	int64		high = flow->nwaiting;

	while (low < high)
	{
		int64		mid = low + (high - low) / 2;

		if (flow->waiting[mid].ord < ord)
			low = mid + 1;
		else
			high = mid;
	}
	return low < flow->nwaiting && flow->waiting[low].ord == ord ? &flow->waiting[low].row : NULL;
}

void
wms_flow_mark_ord(WmsFlow *flow, int64 ord, uint8 mark)
{
	FlowRow    *row = ord >= flow->first_ord ? row_of(flow, ord) : waiting_row(flow, ord);

	if (row)
		row->marks |= mark;
}

void
wms_flow_settle_waiting(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nops; i++)
		if (flow->ops[i].sessions)
			wms_flow_session_drop_late(&flow->ops[i]);
	for (int64 i = 0; i < flow->nwaiting; i++)
	{
		FlowRow    *row = &flow->waiting[i].row;

		if (is_late(row))
			wms_flow_put_aside(flow, row, WMS_REASON_LATE, NULL);
		free_tuple(flow, row);
	}
	flow->nwaiting = 0;
	flow->waiting_bytes = 0;
}

/* ---------------------------------------------------------------- inputs */

static void
planned_row(TupleTableSlot *slot, void *arg)
{
	FlowInput  *input = arg;
	ExprContext *row = input->flow->row;
	MemoryContext old = MemoryContextSwitchTo(row->ecxt_per_tuple_memory);

	slot_getallattrs(slot);
	wms_flow_op_row(input->op, input->side, slot);
	MemoryContextSwitchTo(old);
	ResetExprContext(row);
}

static void
result_row(TupleTableSlot *slot, void *arg)
{
	FlowInput  *input = arg;

	if (input->flow->trying)
		return;
	input->flow->nresult++;
	tuplestore_puttupleslot(input->flow->result, slot);
}

void
wms_flow_run_input(FlowInput *input)
{
	DestReceiver *dest = wms_dest_call(input->op ? planned_row : result_row, input);

	wms_query_run(input->query, dest);
	pfree(dest);
}

static void
feed_direct(FlowInput *input, FlowRow *fed, TupleTableSlot *slot)
{
	input->row->ecxt_scantuple = slot;
	if (input->qual && !ExecQual(input->qual, input->row))
		return;
	slot = ExecProject(input->projection);
	if (input->op == NULL)
	{
		result_row(slot, input);
		return;
	}
	input->op->fed_row = fed;
	wms_flow_op_row(input->op, input->side, slot);
	input->op->fed_row = NULL;
}

static void
direct_row(FlowInput *input, FlowRow *fed, TupleTableSlot *slot)
{
	instr_time	clock;

	if (input->op == NULL || input->op->counts.fed_rows++ % FLOW_TIMED_ROWS != 0)
	{
		feed_direct(input, fed, slot);
		return;
	}
	wms_flow_clock_start(&clock);
	feed_direct(input, fed, slot);
	input->op->counts.timed_seconds += wms_flow_clock_seconds(&clock);
	input->op->counts.timed_rows++;
}

/*
 * A row of an operator, which stands in op->out_row, goes to those that read it.  Inputs that feed the result only: the caller may be in the
 * midst of the state.
 */
void
wms_flow_put_out(FlowOp *op)
{
	TupleTableSlot *slot = op->out_row;
	ListCell   *lc;

	op->counts.output_rows++;
	if (op->out_read)
		tuplestore_putvalues(op->out->rows, op->out->desc, slot->tts_values, slot->tts_isnull);
	foreach(lc, op->direct)
	{
		FlowInput  *input = lfirst(lc);

		feed_direct(input, NULL, slot);
		ResetExprContext(input->row);
	}
}

/* ---------------------------------------------------------------- the watermark */

/* The row's event time, false when it has none: then it has been put aside. */
static bool
judge_time(WmsFlow *flow, FlowSource *source, FlowRow *row, TupleTableSlot *slot)
{
	WmsProgress *progress = flow->progress;
	int			index = source->plan->index;
	bool		isnull;
	Datum		value;

	flow->row->ecxt_scantuple = slot;
	value = ExecEvalExprSwitchContext(source->time, flow->row, &isnull);
	if (isnull || !WmsTimeIsFinite(DatumGetTimestampTz(value)))
	{
		if (!row->retract)
			wms_flow_put_aside(flow, row, WMS_REASON_NO_TIME, NULL);
		return false;
	}
	row->time = DatumGetTimestampTz(value);
	if (row->retract)
		return true;
	if (flow->def->max_future_us >= 0 && row->time > wms_time_add(flow->started_at, flow->def->max_future_us))
	{
		wms_flow_put_aside(flow, row, WMS_REASON_FUTURE, NULL);
		return false;
	}
	progress->max_time[index] = wms_watermark_advance(progress->max_time[index], row->time);
	return true;
}

/* A row that stands where watermark() stands: in_slot holds its columns but for the two hidden ones. */
static void
accept_row(WmsFlow *flow, FlowSource *source, int64 ord)
{
	TupleTableSlot *slot = source->in_slot;
	int			natts = source->plan->in_desc->natts;
	FlowRow    *row = row_of(flow, ord);
	ListCell   *lc;

	if (source->time && !judge_time(flow, source, row, slot))
		return;
	slot->tts_values[natts - 2] = Int64GetDatum(ord);
	slot->tts_isnull[natts - 2] = false;
	if (flow->plan->processing_time)
		slot->tts_values[natts - 1] = TimestampTzGetDatum(flow->started_at);
	else
		slot->tts_values[natts - 1] = TimestampTzGetDatum(row->time);
	slot->tts_isnull[natts - 1] = source->time == NULL && !flow->plan->processing_time;
	foreach(lc, source->direct)
		direct_row(lfirst(lc), row, slot);
	if (source->buffered)
		tuplestore_putvalues(source->in->rows, source->plan->in_desc, slot->tts_values, slot->tts_isnull);
}

static void
run_in_row_memory(FlowSource *source, int64 ord)
{
	MemoryContext old = MemoryContextSwitchTo(source->flow->row->ecxt_per_tuple_memory);

	accept_row(source->flow, source, ord);
	MemoryContextSwitchTo(old);
	ResetExprContext(source->flow->row);
}

/* A row of the query below watermark() into in_slot; its number. */
int64
wms_flow_take_below(FlowSource *source, TupleTableSlot *from)
{
	TupleTableSlot *slot = source->in_slot;
	int			natts = source->plan->in_desc->natts - 2;

	slot_getallattrs(from);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, from->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, from->tts_isnull, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
	return DatumGetInt64(from->tts_values[natts]);
}

static void
below_row(TupleTableSlot *from, void *arg)
{
	FlowSource *source = arg;

	run_in_row_memory(source, wms_flow_take_below(source, from));
}

/* ---------------------------------------------------------------- feeding */

/* A row of the table, as its columns are now; numbered already. */
static void
feed_row(WmsFlow *flow, FlowSource *source, HeapTuple tuple, int64 ord)
{
	TupleTableSlot *slot = source->in_slot;

	if (source->below)
	{
		int			natts = source->table_desc->natts;
		Datum	   *values = palloc(sizeof(Datum) * (natts + 1));
		bool	   *isnull = palloc(sizeof(bool) * (natts + 1));

		heap_deform_tuple(tuple, source->table_desc, values, isnull);
		values[natts] = Int64GetDatum(ord);
		isnull[natts] = false;
		tuplestore_putvalues(source->raw->rows, source->raw->desc, values, isnull);
		return;
	}
	ExecClearTuple(slot);
	heap_deform_tuple(tuple, source->table_desc, slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	accept_row(flow, source, ord);
}

/* What is known of the change at hand from when it was tried before and failed; NULL: it has not failed.  Numbers only go up. */
static const WmsSkip *
skip_of_change(WmsFlow *flow)
{
	int64		number = flow->fed - 1;

	for (; flow->next_skip < list_length(flow->skips); flow->next_skip++)
	{
		const WmsSkip *skip = list_nth(flow->skips, flow->next_skip);

		if (skip->row >= number)
			return skip->row == number ? skip : NULL;
	}
	return NULL;
}

static void
feed_new(WmsFlow *flow, FlowSource *source, const WmsChange *change)
{
	HeapTuple	tuple = wms_flow_fit_row(source, change->shape, (HeapTuple) &change->tuple, true);

	feed_row(flow, source, tuple, number_row(flow, source, tuple));
}

static void
feed_old(WmsFlow *flow, FlowSource *source, const WmsChange *change, HeapTuple tuple)
{
	int64		ord = number_row(flow, source, tuple);

	row_of(flow, ord)->retract = true;
	row_of(flow, ord)->paired = (change->kind == WMS_CHANGE_UPDATE);
	feed_row(flow, source, tuple, ord);
}

/* A change that failed before.  Its event time is not computed again: that may be what failed. */
static void
skip_change(WmsFlow *flow, FlowSource *source, const WmsChange *change, const WmsSkip *skip)
{
	FlowRow    *aside;
	const HeapTupleData *row = change->tuple.t_data ? &change->tuple : &change->old;
	HeapTuple	tuple;

	if (row->t_data == NULL)
	{
		flow->progress->counters[WMS_COUNT_ERROR]++;
		return;
	}
	tuple = wms_flow_fit_row(source, change->shape, (HeapTuple) row, false);
	aside = row_of(flow, number_row(flow, source, tuple));
	aside->time = skip->time;
	wms_flow_put_aside(flow, aside, WMS_REASON_ERROR, skip->error);
}

static void
feed_change(WmsFlow *flow, FlowSource *source, const WmsChange *change)
{
	HeapTuple	old;

	if (change->kind != WMS_CHANGE_INSERT)
	{
		if (flow->def->on_change == WMS_CHANGE_ERROR)
			wms_flow_refuse_change(source, change);
		if (change->kind == WMS_CHANGE_TRUNCATE)
		{
			wms_flow_truncate(flow, source, change);
			return;
		}
		wms_flow_check_change(source, change);
		old = wms_flow_fit_row(source, change->shape, (HeapTuple) &change->old, true);
		if (change->kind == WMS_CHANGE_UPDATE && wms_flow_same_for_us(source, change, old))
			return;
		feed_old(flow, source, change, old);
	}
	if (change->kind == WMS_CHANGE_DELETE)
		return;
	flow->source_had_rows[source->plan->index] = true;
	feed_new(flow, source, change);
}

/* Rows before the last one that failed have passed by themselves: they can go many at a time again. */
void
wms_flow_set_skips(WmsFlow *flow, List *skips, WmsCare care)
{
	flow->skips = skips;
	flow->next_skip = 0;
	flow->single = care > WMS_CARE_NONE;
	if (!(flow->has_vectors || flow->buffered) || care == WMS_CARE_ALL)
		flow->many_upto = 0;
	else if (care == WMS_CARE_NONE)
		flow->many_upto = PG_INT64_MAX;
	else
		flow->many_upto = skips != NIL ? ((WmsSkip *) llast(skips))->row : 0;
	flow->many = flow->many_upto > 0;
}

int64
wms_flow_failed_row(const WmsFlow *flow)
{
	if (flow->many)
		return -1;
	if (flow->single)
		return flow->fed - 1;
	return wms_flow_ahead_waits(flow) ? -1 : flow->fed - 1;
}

/* Only the failed change is numbered then: its rows of the first source, of an update first the old one. */
WmsTime
wms_flow_failed_time(const WmsFlow *flow)
{
	const FlowRow *row = flow->rows;

	if (flow->nrows > 0 && row->paired)
		return flow->nrows > 1 ? row[1].time : WMS_TIME_MIN;
	return flow->nrows > 0 ? row->time : WMS_TIME_MIN;
}

/* New rows of a table: true, and they are counted, if they are of the i-th source. */
static inline bool
source_has(WmsFlow *flow, int i, Oid relid, int64 rows)
{
	if (flow->sources[i].plan->relid != relid)
		return false;
	flow->progress->source_rows[i] += rows;
	flow->source_had_rows[i] = true;
	return true;
}

static void
feed_vectors(WmsFlow *flow, const WmsChange *change)
{
	bool		reads = false;

	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (!source_has(flow, i, change->shape->relid, 1))
			continue;
		reads = true;
		wms_flow_vector_add(&flow->sources[i], change);
	}
	if (reads)
		flow->progress->counters[WMS_COUNT_INPUT]++;
}

static void
feed_by_itself(WmsFlow *flow, const WmsChange *change)
{
	MemoryContext old;
	bool		reads = false;
	bool		told = false;
	const WmsSkip *skip = skip_of_change(flow);

	old = MemoryContextSwitchTo(flow->row->ecxt_per_tuple_memory);
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		FlowSource *source = &flow->sources[i];

		if (source->plan->relid != change->shape->relid)
			continue;
		reads = true;
		if (change->kind == WMS_CHANGE_INSERT)
		{
			flow->progress->source_rows[i]++;
			flow->source_had_rows[i] = true;
		}
		else if (flow->def->on_change == WMS_CHANGE_IGNORE)
			continue;
		if (skip == NULL)
			feed_change(flow, source, change);
		else if (!told)
			skip_change(flow, source, change, skip);	/* one row, of however many sources */
		told = true;
	}
	if (reads)
		flow->progress->counters[change->kind == WMS_CHANGE_INSERT ? WMS_COUNT_INPUT : WMS_COUNT_CHANGED]++;
	if (!flow->buffered)
		settle_rows(flow);
	MemoryContextSwitchTo(old);
	ResetExprContext(flow->row);
	if ((flow->single && !flow->many) || flow->nrows >= FLOW_CHUNK_ROWS || flow->row_bytes >= FLOW_CHUNK_BYTES)
		wms_flow_chunk_end(flow);
}

void
wms_flow_row(WmsFlow *flow, const WmsChange *change)
{
	flow->fed++;
	if (flow->many && flow->fed > flow->many_upto)
	{
		wms_flow_chunk_end(flow);
		flow->many = false;
	}
	if (flow->many && flow->has_vectors && change->kind == WMS_CHANGE_INSERT && skip_of_change(flow) == NULL)
	{
		feed_vectors(flow, change);
		return;
	}
	wms_flow_vector_end(flow);
	feed_by_itself(flow, change);
}

bool
wms_flow_takes_bundles(const WmsFlow *flow)
{
	return flow->has_vectors && flow->many_upto == PG_INT64_MAX && flow->skips == NIL;
}

void
wms_flow_bundle(WmsFlow *flow, WmsBatch *batch, WmsBundle *bundle)
{
	flow->fed += bundle->nrows;
	for (int i = 0; i < flow->plan->nsources; i++)
		if (source_has(flow, i, bundle->shape->relid, bundle->nrows))
			wms_flow_vector_bundle(&flow->sources[i], batch, bundle);
	flow->progress->counters[WMS_COUNT_INPUT] += bundle->nrows;
}

void
wms_flow_try(WmsFlow *flow, WmsStore *store, WmsProgress *progress, MemoryContext context, const WmsChange *change)
{
	wms_flow_begin(flow, store, progress, context);
	wms_flow_set_skips(flow, NIL, WMS_CARE_ALL);
	flow->trying = true;
	wms_flow_row(flow, change);
	wms_flow_drop_rows(flow);
}

static void
begin_sets(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		if (flow->sources[i].raw)
			wms_rowset_begin(flow->sources[i].raw);
		wms_rowset_begin(flow->sources[i].in);
	}
	for (int i = 0; i < flow->plan->nops; i++)
		if (flow->ops[i].eager)
			wms_rowset_begin(flow->ops[i].out);
}

/* Rows of the chunk, or of operators that emit at once, are there for this input. */
static void
run_if_fed(FlowInput *input)
{
	if (input && input->query && (input->reads_in || input->reads_eager))
		wms_flow_run_input(input);
}

/* Rows of the operator that have waited go on. */
static void
drain(FlowOp *op)
{
	ExprContext *row = op->flow->row;
	MemoryContext old = MemoryContextSwitchTo(row->ecxt_per_tuple_memory);

	wms_flow_ahead_drain(op);
	MemoryContextSwitchTo(old);
	ResetExprContext(row);
}

static void
run_planned(WmsFlow *flow)
{
	instr_time	clock;

	for (int i = 0; i < flow->plan->nsources; i++)
	{
		FlowSource *source = &flow->sources[i];
		DestReceiver *dest;

		if (source->below == NULL)
			continue;
		dest = wms_dest_call(below_row, source);
		wms_query_run(source->below, dest);
		pfree(dest);
	}
	for (int i = 0; i < flow->plan->nops; i++)
	{
		wms_flow_clock_start(&clock);
		for (int side = 0; side < 2; side++)
			run_if_fed(flow->ops[i].inputs[side]);
		drain(&flow->ops[i]);
		if (flow->ops[i].sessions)
			wms_flow_session_settle(&flow->ops[i]);
		flow->ops[i].counts.seconds += wms_flow_clock_seconds(&clock);
	}
	run_if_fed(flow->final);
}

/* Runs the planned inputs over the rows collected so far and settles these. */
void
wms_flow_chunk_end(WmsFlow *flow)
{
	MemoryContext old = MemoryContextSwitchTo(flow->batch);

	CHECK_FOR_INTERRUPTS();
	wms_flow_vector_end(flow);
	if (flow->buffered && flow->nrows > 0)
	{
		run_planned(flow);
		settle_rows(flow);
		begin_sets(flow);
		if (flow->waiting_bytes > FLOW_CHUNK_BYTES)
			wms_flow_settle_waiting(flow);
	}
	for (int i = 0; i < flow->plan->nops; i++)
	{
		drain(&flow->ops[i]);
		wms_flow_ahead_again(&flow->ops[i]);
	}
	MemoryContextSwitchTo(old);
}
