/*
 * flow_read.c
 *	  Open windows for readers: groups that have not been emitted yet, as rows of the result.
 *
 * Runs in the reader's backend, as the stream's owner (the caller switches), with a flow of its own that has no
 * store: entries are copied out of shared memory for the caller's snapshot, finished like those of a
 * firing, and sent through the final query.  Kept rows come with the copies.
 *
 * A window is open for a snapshot if the transaction that emitted it is not visible to that snapshot; the state room
 * decides that for closed buckets.  Windows that were emitted but stay for their allowed lateness are left out
 * here, by the watermark.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "flow/flow_internal.h"

static void
kept_of_reader(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	wms_reader_kept(entry, fn, arg);
}

/* The operator whose windows the result shows: the last aggregate, or rows that wait for their window. */
static FlowOp *
shown_op(WmsFlow *flow)
{
	int			last = flow->plan->nops - 1;

	if (flow->plan->top_op >= 0)
		return &flow->ops[flow->plan->top_op];
	if (last >= 0 && flow->ops[last].plan->kind == WMS_OP_COLLECT)
		return &flow->ops[last];
	return NULL;
}

static void
emit_open(WmsEntry *entry, void *arg)
{
	WmsFlow    *flow = arg;
	FlowOp	   *op = shown_op(flow);

	if (entry->bucket.op != op->plan->id)
		return;
	if (op->sessions)
		wms_flow_session_read(op, entry);
	else
		wms_flow_emit_entry(op, entry, kept_of_reader);
}

static void
read_entries(WmsFlow *flow, WmsSharedStream *slot, Snapshot snapshot)
{
	FlowOp	   *op = shown_op(flow);
	WmsProgress progress;

	wms_flow_emit_begin(op);
	if (!op->panes)
		wms_state_read(slot, snapshot, emit_open, flow);
	else if (wms_state_read_progress(flow->def->stream, snapshot, &progress))
		wms_flow_pane_read(op, slot, snapshot, wms_flow_op_watermark(op, progress.watermark));
	wms_flow_emit_end(op);
}

static void
begin_reading(WmsFlow *flow, Tuplestorestate *store)
{
	flow->batch = CurrentMemoryContext;
	flow->result = store;
	for (int i = 0; i < flow->plan->nsources; i++)
		wms_rowset_begin(flow->sources[i].in);
	for (int i = 0; i < flow->plan->nops; i++)
		wms_rowset_begin(flow->ops[i].out);
}

/* Not left to the memory context: rows may have gone into files. */
static void
end_reading(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
		wms_rowset_end(flow->sources[i].in);
	for (int i = 0; i < flow->plan->nops; i++)
	{
		wms_rowset_end(flow->ops[i].out);
		if (flow->ops[i].kept)
			wms_rowset_end(flow->ops[i].kept);
	}
}

/* desc is the row type that the caller wants; the result's columns come first in it by name, others are NULL. */
typedef struct Reshape
{
	Tuplestorestate *to;
	TupleDesc	desc;
	int		   *from;			/* column of the row for each of desc's, -1: none */
	Datum	   *values;
	bool	   *isnull;
} Reshape;

static void
reshape_row(TupleTableSlot *slot, Reshape *reshape)
{
	slot_getallattrs(slot);
	for (int i = 0; i < reshape->desc->natts; i++)
	{
		int			from = reshape->from[i];

		reshape->isnull[i] = from < 0 || slot->tts_isnull[from];
		reshape->values[i] = reshape->isnull[i] ? (Datum) 0 : slot->tts_values[from];
	}
	tuplestore_putvalues(reshape->to, reshape->desc, reshape->values, reshape->isnull);
}

static void
reshape_all(Tuplestorestate *rows, TupleDesc row_desc, Tuplestorestate *to, TupleDesc desc)
{
	Reshape		reshape = {to, desc, palloc(sizeof(int) * desc->natts), palloc(sizeof(Datum) * desc->natts),
	palloc(sizeof(bool) * desc->natts)};
	TupleTableSlot *slot = MakeSingleTupleTableSlot(row_desc, &TTSOpsMinimalTuple);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		reshape.from[i] = -1;
		for (int j = 0; j < row_desc->natts && !att->attisdropped; j++)
			if (strcmp(NameStr(att->attname), NameStr(TupleDescAttr(row_desc, j)->attname)) == 0)
				reshape.from[i] = j;
	}
	while (tuplestore_gettupleslot(rows, true, false, slot))
		reshape_row(slot, &reshape);
	ExecDropSingleTupleTableSlot(slot);
}

void
wms_flow_read_open(const WmsStreamDef *def, WmsSharedStream *slot, Snapshot snapshot, Tuplestorestate *store,
				   TupleDesc desc)
{
	WmsFlow    *flow = wms_flow_build(def, CurrentMemoryContext);
	Tuplestorestate *rows;

	if (shown_op(flow) != NULL)
	{
		rows = tuplestore_begin_heap(false, false, work_mem);
		begin_reading(flow, rows);
		read_entries(flow, slot, snapshot);
		if (flow->final->query && flow->final->reads_op)
			wms_flow_run_input(flow->final);
		reshape_all(rows, flow->plan->result_desc, store, desc);
		tuplestore_end(rows);
		end_reading(flow);
	}
	wms_flow_free(flow);
}
