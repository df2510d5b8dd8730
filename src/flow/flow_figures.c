/*
 * flow_figures.c
 *	  What each operator did and holds, for the views.
 *
 * While a batch runs an operator counts in its own struct; when the batch has committed, the counts are added to the figures, which live
 * with the worker and outlive the flow.  So a batch that is taken back counts nothing, and the counts are those since the worker began.
 *
 * Time.  Where the executor runs an operator's input over a chunk, and at a firing, the whole is measured.  Rows that are fed one
 * by one are too quick for that: the first of a batch is measured and one of FLOW_TIMED_ROWS, for all.  On a busy machine a measured row
 * may be one that had to wait; so all of them together never count for more than feeding and firing took.
 */
#include "postgres.h"

#include "flow/flow_internal.h"

void
wms_flow_clock_start(instr_time *clock)
{
	INSTR_TIME_SET_CURRENT(*clock);
}

double
wms_flow_clock_seconds(const instr_time *clock)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, *clock);
	return INSTR_TIME_GET_DOUBLE(now);
}

/* Rows that were dropped from all their windows, and not kept in any. */
void
wms_flow_count_row(FlowOp *op)
{
	op->counts.input_rows++;
	if (op->row_marks == FLOW_ROW_DROPPED)
		op->counts.late_rows++;
}

static const char *
kind_name(const FlowOp *op)
{
	switch (op->plan->kind)
	{
		case WMS_OP_AGGREGATE:
			return op->sessions ? "session aggregate" : op->panes ? "sliding aggregate" : "aggregate";
		case WMS_OP_COLLECT:
			return "held rows";
		case WMS_OP_DEDUP:
			return "distinct";
		case WMS_OP_JOIN:
			return "join";
	}
	return "";
}

/* A join has a number in the state room for each side; the second number of the others holds timers, which are no state of the user's. */
static void
op_state(FlowOp *op, WmsOpFigures *figures)
{
	WmsStore   *store = op->flow->store;
	WmsStateSize own;
	WmsStateSize second;
	bool		is_join = op->plan->kind == WMS_OP_JOIN;

	wms_state_op_size(store, op->plan->id, &own);
	wms_state_op_size(store, op->timer_op, &second);
	figures->windows = op->sessions ? -1 : own.buckets + (is_join ? second.buckets : 0);
	figures->state_rows = own.entries + (is_join ? second.entries : 0);
	figures->kept_rows = own.kept_rows + (is_join ? second.kept_rows : 0);
	figures->state_bytes = own.bytes + second.bytes;
}

static WmsTime
op_watermark(FlowOp *op)
{
	if (op->plan->kind == WMS_OP_JOIN)
		return wms_flow_join_watermark(op, op->flow->progress->watermark);
	return wms_flow_op_watermark(op, op->flow->progress->watermark);
}

/* Seconds for rows fed one by one, as the measured ones say. */
static double
fed_seconds(const FlowOp *op)
{
	return op->counts.timed_rows > 0 ? op->counts.timed_seconds * op->counts.fed_rows / op->counts.timed_rows : 0;
}

/* What share of that is believed, when feeding and firing took so many seconds in all. */
double
wms_flow_fed_share(const WmsFlow *flow, double seconds)
{
	double		all = 0;

	for (int i = 0; i < flow->plan->nops; i++)
		all += fed_seconds(&flow->ops[i]);
	return all > seconds ? seconds / all : 1;
}

/* After a commit: what the batch did is added. */
void
wms_flow_op_figures(FlowOp *op, double fed_share, WmsOpFigures *figures)
{
	strlcpy(figures->kind, kind_name(op), sizeof(figures->kind));
	figures->watermark = op_watermark(op);
	figures->input_rows += op->counts.input_rows;
	figures->late_rows += op->counts.late_rows;
	figures->output_rows += op->counts.output_rows;
	figures->compared_rows += op->counts.compared_rows;
	figures->seconds += op->counts.seconds;
	figures->seconds += fed_seconds(op) * fed_share;
	memset(&op->counts, 0, sizeof(op->counts));
	op_state(op, figures);
}
