/*
 * flow_emit.c
 *	  Groups that are finished (or only shown): entries become rows of the operator's row set, or go to the result at once.
 *
 * A row is the group's keys, the window among them, and the results of its aggregates.  Aggregates on the fast path
 * are finished from their states.  Those with kept arguments are run by the executor over all
 * groups of the firing at once: the kept rows go into wms_kept with the number of their group, a query with
 * the original aggregate calls gives one row per group in the order of these numbers, and the
 * two halves are put together.  That is the slow twin that is right for every aggregate: DISTINCT,
 * ORDER BY, ordered sets, anything that Postgres can run.
 *
 * An operator that only collects rows gives its kept rows back as they are.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

typedef struct KeptSink
{
	FlowOp	   *op;
	int64		group;
	int64		row;
	Datum	   *values;
	bool	   *isnull;
	const WmsEntry *entry;
} KeptSink;

void
wms_flow_kept_of_store(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	wms_state_kept(flow->store, entry, fn, arg);
}

/* Groups of one window mostly come together: the range made last is kept. */
static void
make_range_shown(FlowOp *op, const WmsBucketKey *bucket)
{
	RangeBound	lower = {TimestampTzGetDatum(bucket->start), false, true, true};
	RangeBound	upper = {TimestampTzGetDatum(bucket->end), false, false, false};
	RangeType  *former = op->range_shown;
	RangeType  *range = WmsMakeRange(op->range, &lower, &upper);
	MemoryContext old = MemoryContextSwitchTo(op->flow->context);

	op->range_shown = DatumGetRangeTypeP(datumCopy(RangeTypePGetDatum(range), false, -1));
	op->window_shown = (WmsWindow) {bucket->start, bucket->end};
	MemoryContextSwitchTo(old);
	if (former)
		pfree(former);
}

/* The window of a bucket as the key column shows it.  Stays until another one is asked for. */
static Datum
window_datum(FlowOp *op, const WmsBucketKey *bucket)
{
	if (op->range == NULL)
		return TimestampTzGetDatum(bucket->start);
	if (op->range_shown == NULL || op->window_shown.start != bucket->start || op->window_shown.end != bucket->end)
		make_range_shown(op, bucket);
	return RangeTypePGetDatum(op->range_shown);
}

/* A row goes on; window: the bucket whose window is filled in, where the operator makes it, else NULL. */
void
wms_flow_put_values(FlowOp *op, const WmsBucketKey *window, const Datum *values, const bool *isnull)
{
	int			natts = op->out->desc->natts;
	TupleTableSlot *out = ExecClearTuple(op->out_row);

	memcpy(out->tts_values, values, sizeof(Datum) * natts);
	memcpy(out->tts_isnull, isnull, sizeof(bool) * natts);
	if (window)
	{
		out->tts_values[op->plan->window_key] = window_datum(op, window);
		out->tts_isnull[op->plan->window_key] = false;
	}
	ExecStoreVirtualTuple(out);
	wms_flow_put_out(op);
}

/* ---------------------------------------------------------------- kept rows */

static bool
kept_to_set(const char *row, uint32 len, void *arg)
{
	KeptSink   *sink = arg;
	FlowOp	   *op = sink->op;

	sink->values[0] = Int64GetDatum(sink->group);
	sink->values[1] = Int64GetDatum(sink->row++);
	sink->isnull[0] = sink->isnull[1] = false;
	wms_unpack(row, op->kept_row_desc, sink->values + 2, sink->isnull + 2);
	tuplestore_putvalues(op->kept->rows, op->kept->desc, sink->values, sink->isnull);
	return true;
}

static bool
kept_to_out(const char *row, uint32 len, void *arg)
{
	KeptSink   *sink = arg;
	FlowOp	   *op = sink->op;

	wms_unpack(row, op->kept_row_desc, sink->values, sink->isnull);
	wms_flow_put_values(op, op->plan->window_key >= 0 ? &sink->entry->bucket : NULL, sink->values, sink->isnull);
	return true;
}

static void
emit_kept(FlowOp *op, WmsEntry *entry, WmsKeptFn to, WmsFlowKept kept)
{
	int			natts = op->kept_row_desc->natts + 2;
	KeptSink	sink = {op, op->emitted, 0, palloc(sizeof(Datum) * natts), palloc(sizeof(bool) * natts), entry};

	if (op->retracts)
		wms_flow_each_survivor(op, to, &sink);
	else
		kept(op->flow, entry, to, &sink);
	pfree(sink.values);
	pfree(sink.isnull);
}

/* Runs the aggregates with kept arguments and puts their results beside the rows that wait in op->emitting. */
typedef struct Zip
{
	FlowOp	   *op;
	TupleTableSlot *waiting;
	int64		group;
} Zip;

static void
zip_row(TupleTableSlot *slot, void *arg)
{
	Zip		   *zip = arg;
	FlowOp	   *op = zip->op;
	WmsOpPlan  *plan = op->plan;
	int			column = 1;

	slot_getallattrs(slot);
	if (!tuplestore_gettupleslot(op->emitting, true, false, zip->waiting) ||
		DatumGetInt64(slot->tts_values[0]) != zip->group++)
		elog(ERROR, "groups and their kept aggregates do not fit together");
	slot_getallattrs(zip->waiting);
	for (int i = 0; i < plan->naggs; i++)
	{
		if (!plan->aggs[i].kept)
			continue;
		zip->waiting->tts_values[plan->nkeys + i] = slot->tts_values[column];
		zip->waiting->tts_isnull[plan->nkeys + i] = slot->tts_isnull[column];
		column++;
	}
	wms_flow_put_values(op, NULL, zip->waiting->tts_values, zip->waiting->tts_isnull);
	/* a row that was read back from disk lies in the executor's memory, which the slot will outlive */
	ExecClearTuple(zip->waiting);
}

static void
run_kept_aggregates(FlowOp *op)
{
	Zip			zip = {op, MakeSingleTupleTableSlot(op->out->desc, &TTSOpsMinimalTuple), 0};
	DestReceiver *dest = wms_dest_call(zip_row, &zip);

	tuplestore_rescan(op->emitting);
	wms_query_run(op->kept_query, dest);
	if (zip.group != op->emitted)
		elog(ERROR, "groups and their kept aggregates do not fit together");
	pfree(dest);
	ExecDropSingleTupleTableSlot(zip.waiting);
}

/* ---------------------------------------------------------------- entries */

void
wms_flow_emit_begin(FlowOp *op)
{
	wms_rowset_begin(op->out);
	op->emitted = 0;
	if (op->kept_query)
	{
		wms_rowset_begin(op->kept);
		op->emitting = tuplestore_begin_heap(false, false, work_mem);
	}
}

/* The group's keys into the first columns of its row; values lie in the entry. */
void
wms_flow_emit_keys(FlowOp *op, WmsEntry *entry, Datum *values, bool *isnull)
{
	int			window = op->plan->window_key;

	if (op->nkeys > 0)
		wms_unpack(entry->key, op->key_desc, op->key_values, op->key_isnull);
	for (int i = 0; i < op->nkeys; i++)
	{
		values[op->key_columns[i]] = op->key_values[i];
		isnull[op->key_columns[i]] = op->key_isnull[i];
	}
	if (window >= 0)
	{
		values[window] = window_datum(op, &entry->bucket);
		isnull[window] = false;
	}
}

static void
emit_group(FlowOp *op, WmsEntry *entry)
{
	TupleTableSlot *out = ExecClearTuple(op->out_row);
	FlowState  *states = entry->work;

	memset(out->tts_isnull, true, op->out->desc->natts);
	wms_flow_emit_keys(op, entry, out->tts_values, out->tts_isnull);
	if (op->has_states)
	{
		if (states == NULL)
			states = entry->value_len ? wms_flow_states_load(op, entry->value, entry->value_len)
				: wms_flow_states_new(op);
		wms_flow_states_finish(op, states, out->tts_values, out->tts_isnull);
	}
	ExecStoreVirtualTuple(out);
	if (op->kept_query)
		tuplestore_putvalues(op->emitting, op->out->desc, out->tts_values, out->tts_isnull);
	else
		wms_flow_put_out(op);
}

static void
emit(FlowOp *op, WmsEntry *entry, WmsFlowKept kept)
{
	if (op->plan->kind == WMS_OP_COLLECT)
		emit_kept(op, entry, kept_to_out, kept);
	else
	{
		emit_group(op, entry);
		if (op->kept_query)
			emit_kept(op, entry, kept_to_set, kept);
	}
	op->emitted++;
}

/*
 * One group.  False: all its rows were taken back, there is nothing to show.  States that are only loaded to be shown live in the memory of one group, not of the batch; kept says
 * where its kept rows come from.
 */
bool
wms_flow_emit_entry(FlowOp *op, WmsEntry *entry, WmsFlowKept kept)
{
	WmsFlow    *flow = op->flow;
	ExprContext *states = flow->agg->curaggcontext;
	MemoryContext old;
	bool		has_rows;

	if ((op->emitted & 0xFFF) == 0)
		CHECK_FOR_INTERRUPTS();
	old = MemoryContextSwitchTo(flow->emit_memory->ecxt_per_tuple_memory);
	flow->agg->curaggcontext = flow->emit_memory;
	has_rows = !op->retracts || wms_flow_has_rows(op, entry, kept);
	if (has_rows)
		emit(op, entry, kept);
	flow->agg->curaggcontext = states;
	MemoryContextSwitchTo(old);
	ReScanExprContext(flow->emit_memory);
	return has_rows;
}

static void
no_kept_rows(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
}

/* The one group of an aggregate without keys, when it has had no row: initial states. */
void
wms_flow_emit_global(FlowOp *op)
{
	WmsEntry	entry = {{op->plan->id, WMS_TIME_MIN, WMS_TIME_MAX}};

	entry.is_new = true;
	wms_flow_emit_entry(op, &entry, no_kept_rows);
}

void
wms_flow_emit_end(FlowOp *op)
{
	if (!op->kept_query)
		return;
	if (op->emitted > 0)
		run_kept_aggregates(op);
	tuplestore_end(op->emitting);
	op->emitting = NULL;
}
