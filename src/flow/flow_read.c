/*
 * flow_read.c
 *	  Open windows for readers: groups that have not been emitted yet, as rows of the result.
 *
 * Runs in the reader's backend, as the stream's owner (the caller switches), with a flow of its own that has no
 * store: entries are copied out of shared memory for the caller's snapshot, finished like those of a
 * firing, and sent through the final query.  Kept rows come with the copies.
 *
 * Everything goes by the caller's snapshot, so that the result's rows which it sees and the rows from here belong together.  A window is
 * open for a snapshot if the transaction that emitted it is not visible to it.  The state room decides that for buckets that closed.
 * Windows that were emitted but stay for their allowed lateness are told by W as the snapshot sees it.  A group that came late into such a
 * window is not emitted before the next firing: till then it is marked (WMS_ENTRY_UNSHOWN) and open.
 *
 *   append    what is open has no row in the result, but for sessions that were emitted and have grown since
 *   update    all groups of windows that have not closed are open, though the result has rows of most of them
 *   complete  all groups are open for ever
 *
 * Where the result has rows of open groups, it is told which: their keys are collected.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "flow/flow_internal.h"

#define WAIT_MS 10000
#define WAIT_STEP_MS 5

typedef struct OpenReader
{
	FlowOp	   *op;
	WmsTime		w;				/* as the snapshot and the operator see it */
} OpenReader;

static void
kept_of_reader(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	wms_reader_kept(entry, fn, arg);
}

/* Does the result that the snapshot sees show the entry's window, once and for all? */
static bool
was_emitted(const OpenReader *reader, const WmsEntry *entry)
{
	return reader->op->flow->def->output_mode != WMS_COMPLETE && entry->bucket.end <= reader->w &&
		!(entry->flags & WMS_ENTRY_UNSHOWN);
}

static void
emit_open(WmsEntry *entry, void *arg)
{
	OpenReader *reader = arg;

	if (reader->op->sessions)
		wms_flow_session_read(reader->op, entry);
	else if (!was_emitted(reader, entry) && !wms_flow_emit_entry(reader->op, entry, kept_of_reader))
		wms_flow_retire(reader->op, entry);
}

/* The operator's open groups into its row set; false: the state is not in memory. */
static bool
read_op(FlowOp *op, WmsReading *reading, WmsTime w)
{
	OpenReader	reader = {op, wms_flow_op_watermark(op, w)};
	bool		known;

	reading->op = op->plan->id;
	reading->ops = &op->flow->state_ops[op->plan->id];
	wms_flow_emit_begin(op);
	if (op->retired)
		wms_rowset_begin(op->retired);
	if (op->panes)
		known = wms_flow_pane_read(op, reading, reader.w);
	else
		known = wms_state_read(reading, emit_open, &reader);
	if (known && op->plan->global && op->flow->def->output_mode == WMS_COMPLETE && op->emitted == 0)
		wms_flow_emit_global(op);
	wms_flow_emit_end(op);
	return known;
}

/* Groups that wait for the end of their window; operators that emit with each batch hold nothing back. */
static bool
holds_groups(FlowOp *op)
{
	return op->plan->kind == WMS_OP_AGGREGATE || op->plan->kind == WMS_OP_COLLECT;
}

/* Only what the final query reads: groups further down are not yet rows of anything. */
static bool
read_ops(WmsFlow *flow, WmsReading *reading, WmsTime w)
{
	int			i = -1;
	bool		known = true;

	/* an attempt before may have come half-way */
	tuplestore_clear(flow->result);
	flow->nresult = 0;
	while ((i = bms_next_member(flow->final->ops, i)) >= 0)
		if (holds_groups(&flow->ops[i]))
			known = read_op(&flow->ops[i], reading, w) && known;
	return known;
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
		if (flow->ops[i].retired)
			wms_rowset_end(flow->ops[i].retired);
	}
}

/* ---------------------------------------------------------------- which rows of the result they replace */

static void
put_row(TupleTableSlot *slot, void *arg)
{
	tuplestore_puttupleslot((Tuplestorestate *) arg, slot);
}

static List *
key_names(const WmsStreamPlan *plan)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, plan->key_columns)
		names = lappend(names, pstrdup(NameStr(TupleDescAttr(plan->result_desc, lfirst_int(lc) - 1)->attname)));
	return names;
}

/* Keys of the result from the operator's row set, which has groups. */
static void
put_keys(WmsFlow *flow, WmsOpenRows *into, int64 groups)
{
	if (groups > 0 && flow->plan->key_columns != NIL)
		wms_query_run(flow->shown, wms_dest_call(put_row, into->replaced));
}

static void
find_replaced(WmsFlow *flow, WmsOpenRows *into)
{
	FlowOp	   *op = flow->plan->top_op >= 0 ? &flow->ops[flow->plan->top_op] : NULL;

	if (op == NULL || flow->shown == NULL)
		return;
	if (flow->def->output_mode == WMS_UPDATE)
	{
		into->groups = op->emitted;
		put_keys(flow, into, op->emitted);
	}
	if (op->retired && flow->def->output_mode != WMS_COMPLETE)
	{
		int64		retired = tuplestore_tuple_count(op->retired->rows);

		into->groups += retired;
		wms_flow_show_instead(op, op->retired);
		put_keys(flow, into, retired);
	}
}

/* ---------------------------------------------------------------- the shape of the result */

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

/* ---------------------------------------------------------------- all of it */

/*
 * The state is put into memory a moment after the worker takes the stream up; a snapshot that sees batches of it waits for that,
 * WAIT_MS at most.
 */
static bool
read_when_there(WmsFlow *flow, WmsReading *reading, WmsTime w, bool must_be_there)
{
	for (int waited = 0;; waited += WAIT_STEP_MS)
	{
		reading->slot = wms_stream_slot(flow->def->stream, false);
		if (reading->slot && read_ops(flow, reading, w))
			return true;
		if (!must_be_there || waited >= WAIT_MS)
			return !must_be_there;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(WAIT_STEP_MS * 1000L);
	}
}

void
wms_flow_read_open(const WmsStreamDef *def, Snapshot snapshot, WmsOpenRows *into)
{
	WmsFlow    *flow = wms_flow_build(def, CurrentMemoryContext);
	Tuplestorestate *rows = tuplestore_begin_heap(false, false, work_mem);
	WmsReading	reading = {NULL, snapshot};
	WmsProgress seen;
	bool		sees_batches = wms_state_read_progress(def->stream, snapshot, &seen);

	into->known = true;
	into->groups = 0;
	into->key = NIL;
	if (sees_batches)
		reading.batches = seen.counters[WMS_COUNT_BATCHES];
	if (flow->final->reads_op)
	{
		begin_reading(flow, rows);
		into->known = read_when_there(flow, &reading, sees_batches ? seen.watermark : WMS_TIME_MIN, sees_batches);
		if (flow->final->query)
			wms_flow_run_input(flow->final);
		reshape_all(rows, flow->plan->result_desc, into->rows, into->desc);
		find_replaced(flow, into);
		if (into->groups > 0)
			into->key = key_names(flow->plan);
		end_reading(flow);
	}
	tuplestore_end(rows);
	wms_flow_free(flow);
}
