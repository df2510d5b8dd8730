/*
 * flow_build.c
 *	  From the plan of a stream to a flow that can run.
 *
 * Runs inside a transaction, as the stream's owner: planning may call the owner's functions.  Everything
 * is made in the flow's own context; when something it depends on changes (the watch tells), the flow is thrown
 * away and built anew, while the state, which the flow only refers to by operator number, stays.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

/* ---------------------------------------------------------------- inputs */

typedef struct SetsRead
{
	WmsFlow    *flow;
	bool		in;
	bool		eager;
	Bitmapset  *ops;
} SetsRead;

/* Operators that an input reads come before it, so they are made already. */
static void
note_op_set(SetsRead *sets, const char *name)
{
	for (int i = 0; i < sets->flow->plan->nops; i++)
	{
		FlowOp	   *op = &sets->flow->ops[i];

		if (op->out == NULL || strcmp(op->out->name, name) != 0)
			continue;
		sets->ops = bms_add_member(sets->ops, i);
		sets->eager |= op->eager;
	}
}

static bool
sets_read_walker(Node *node, SetsRead *sets)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = castNode(RangeTblEntry, node);

		if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		{
			sets->in |= strncmp(rte->enrname, "wms_in_", 7) == 0;
			note_op_set(sets, rte->enrname);
		}
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, sets_read_walker, sets, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, sets_read_walker, sets);
}

static FlowSource *
source_by_set(WmsFlow *flow, const char *name)
{
	for (int i = 0; i < flow->plan->nsources; i++)
		if (strcmp(flow->sources[i].in->name, name) == 0)
			return &flow->sources[i];
	return NULL;
}

static FlowOp *
op_by_set(WmsFlow *flow, const char *name)
{
	for (int i = 0; i < flow->plan->nops; i++)
		if (flow->ops[i].out && strcmp(flow->ops[i].out->name, name) == 0)
			return &flow->ops[i];
	return NULL;
}

/* desc: of the row set that it reads; row: where expressions are evaluated. */
static void
prepare_direct(FlowInput *input, TupleDesc set_desc, ExprContext *row)
{
	Query	   *query = copyObject(input->plan->query);
	List	   *targets = (List *) expression_planner((Expr *) query->targetList);
	Node	   *quals = (Node *) expression_planner((Expr *) query->jointree->quals);
	TupleDesc	desc = ExecTypeFromTL(targets);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);

	input->targets = targets;
	input->quals = quals;
	/* as if it were the plan of one scan: all Vars are of the row set */
	if (quals)
		input->qual = ExecInitQual(make_ands_implicit((Expr *) quals), NULL);
	input->row = row;
	input->projection = ExecBuildProjectionInfo(targets, row, slot, NULL, set_desc);
}

static FlowInput *
make_input(WmsFlow *flow, WmsInputPlan *plan, FlowOp *op, int side)
{
	FlowInput  *input;
	FlowSource *source = NULL;
	FlowOp	   *from = NULL;
	SetsRead	sets = {flow, false, false, NULL};

	if (plan == NULL)
		return NULL;
	input = palloc0(sizeof(FlowInput));
	input->flow = flow;
	input->plan = plan;
	input->op = op;
	input->side = side;
	sets_read_walker((Node *) plan->query, &sets);
	input->reads_in = sets.in;
	input->ops = sets.ops;
	input->reads_op = sets.ops != NULL;
	input->reads_eager = sets.eager;
	if (plan->direct && !wms_force_planned_feed)
	{
		source = source_by_set(flow, plan->direct_set);
		from = op == NULL ? op_by_set(flow, plan->direct_set) : NULL;
	}
	if (source)
	{
		prepare_direct(input, source->plan->in_desc, flow->row);
		source->direct = lappend(source->direct, input);
	}
	else if (from)
	{
		prepare_direct(input, from->out->desc, CreateStandaloneExprContext());
		from->direct = lappend(from->direct, input);
	}
	else
		input->query = wms_query_make(plan->query, flow->env);
	return input;
}

/* Sources whose row sets are read by a planned input. */
static bool
buffered_walker(Node *node, WmsFlow *flow)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = castNode(RangeTblEntry, node);
		FlowSource *source = rte->rtekind == RTE_NAMEDTUPLESTORE ? source_by_set(flow, rte->enrname) : NULL;

		if (source)
			source->buffered = flow->buffered = true;
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, buffered_walker, flow, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, buffered_walker, flow);
}

static void
note_buffered(WmsFlow *flow, FlowInput *input)
{
	if (input && input->query)
		buffered_walker((Node *) input->query->query, flow);
}

/* Operators whose row sets are read by a planned input, or by the query for shown keys where that runs. */
static void
note_readers(WmsFlow *flow, WmsQuery *query)
{
	SetsRead	sets = {flow, false, false, NULL};
	int			i = -1;

	if (query == NULL)
		return;
	sets_read_walker((Node *) query->query, &sets);
	while ((i = bms_next_member(sets.ops, i)) >= 0)
		flow->ops[i].out_read = true;
}

/* ---------------------------------------------------------------- parts */

static TupleDesc
with_number(TupleDesc desc)
{
	TupleDesc	wide = CreateTemplateTupleDesc(desc->natts + 1);

	for (int i = 1; i <= desc->natts; i++)
		TupleDescCopyEntry(wide, i, desc, i);
	TupleDescInitEntry(wide, desc->natts + 1, "#ord", INT8OID, -1, 0);
	return wide;
}

static void
make_sources(WmsFlow *flow)
{
	flow->sources = palloc0(sizeof(FlowSource) * Max(flow->plan->nsources, 1));
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		FlowSource *source = &flow->sources[i];
		WmsSourcePlan *plan = &flow->plan->sources[i];
		TupleDesc	raw;

		source->flow = flow;
		source->plan = plan;
		source->in = wms_rowset_make(flow->env, psprintf("wms_in_%d", i), plan->in_desc);
		wms_flow_source_prepare(flow, source);
		if (plan->below)
		{
			raw = plan->raw_desc->natts > source->table_desc->natts ? plan->raw_desc
				: with_number(plan->raw_desc);
			source->raw = wms_rowset_make(flow->env, psprintf("wms_raw_%d", i), raw);
			source->below = wms_query_make(plan->below, flow->env);
			flow->buffered = true;
		}
		flow->source_seen_at[i] = GetCurrentTimestamp();
	}
}

static void
make_ops(WmsFlow *flow)
{
	flow->ops = palloc0(sizeof(FlowOp) * Max(flow->plan->nops, 1));
	flow->state_ops = palloc0(sizeof(WmsStateOps) * Max(flow->plan->nops * 2, 1));
	for (int i = 0; i < flow->plan->nops; i++)
	{
		FlowOp	   *op = &flow->ops[i];
		WmsOpPlan  *plan = &flow->plan->ops[i];

		Assert(plan->id == i);
		op->flow = flow;
		op->plan = plan;
		op->out = wms_rowset_make(flow->env, psprintf("wms_op_%d", i), plan->out_desc);
		op->out_row = MakeSingleTupleTableSlot(op->out->desc, &TTSOpsVirtual);
		wms_flow_group_prepare(flow, op);
		flow->buffered |= op->eager || op->sessions;	/* their rows are settled, and go on, at the end of a chunk */
		if (plan->kept_query)
		{
			op->kept = wms_rowset_make(flow->env, psprintf("wms_kept_%d", i), plan->kept_desc);
			op->kept_query = wms_query_make(plan->kept_query, flow->env);
		}
		op->inputs[0] = make_input(flow, plan->input, op, 0);
		op->inputs[1] = make_input(flow, plan->input2, op, 1);
		note_buffered(flow, op->inputs[0]);
		note_buffered(flow, op->inputs[1]);
		for (int side = 0; side < 2; side++)
			note_readers(flow, op->inputs[side] ? op->inputs[side]->query : NULL);
		wms_flow_ahead_prepare(op);
	}
}

static void
plan_query(WmsFlow *flow, WmsQuery *q)
{
	if (q == NULL)
		return;
	wms_query_plan(q);
	flow->watch.relids = list_concat_unique_oid(flow->watch.relids, wms_query_relids(q));
}

static void
plan_queries(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
		plan_query(flow, flow->sources[i].below);
	for (int i = 0; i < flow->plan->nops; i++)
	{
		for (int side = 0; side < 2; side++)
			if (flow->ops[i].inputs[side])
				plan_query(flow, flow->ops[i].inputs[side]->query);
		plan_query(flow, flow->ops[i].kept_query);
	}
	plan_query(flow, flow->final->query);
	plan_query(flow, flow->shown);
}

/* What stands in for the executor's node where aggregate functions ask who calls them. */
static void
make_contexts(WmsFlow *flow)
{
	flow->row = CreateStandaloneExprContext();
	flow->agg_memory = CreateStandaloneExprContext();
	flow->emit_memory = CreateStandaloneExprContext();
	flow->pane_memory = CreateStandaloneExprContext();
	flow->revive_memory = AllocSetContextCreate(flow->context, "wmstream state that comes back", ALLOCSET_DEFAULT_SIZES);
	flow->agg = makeNode(AggState);
	flow->agg->curaggcontext = flow->agg_memory;
	flow->agg->tmpcontext = flow->row;
}

/* A view that it reads may have been replaced, a table that it writes may have become a partition of one that it reads. */
static void
check_no_loop(const WmsStreamDef *def)
{
	if (wms_definition_reaches(def->view, def->stream))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("the stream would read its own result \"%s\" through others", get_rel_name(def->stream))));
	if (OidIsValid(def->late_table) && wms_definition_reaches(def->view, def->late_table))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("the stream would read its own late table \"%s\"", get_rel_name(def->late_table))));
}

static WmsStreamPlan *
analyze_definition(const WmsStreamDef *def)
{
	WmsOptions	options = {0};
	WmsRefusal *refusal = NULL;
	WmsStreamPlan *plan;

	options.mode = def->output_mode;
	options.lateness_us = def->lateness_us;
	options.refines = def->refined;
	options.delay_us = def->delay_us;
	options.force_kept = wms_force_kept_arguments;
	options.retract = def->on_change == WMS_CHANGE_RETRACT;
	options.result = def->stream;
	plan = wms_analyze_view(def->view, &options, &refusal);
	if (plan == NULL)
		wms_refusal_raise(refusal, NULL);
	check_no_loop(def);
	return plan;
}

/* Has the table, or a partition of it, triggers or rules?  The watch looks after all of them. */
static bool
has_side_effects(WmsFlow *flow, Oid relid)
{
	ListCell   *lc;
	bool		found = false;

	if (!OidIsValid(relid))
		return false;
	LockRelationOid(relid, AccessShareLock);
	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		found |= rel->rd_rel->relhastriggers || rel->rd_rel->relhasrules;
		flow->watch.relids = list_append_unique_oid(flow->watch.relids, lfirst_oid(lc));
		table_close(rel, NoLock);
	}
	return found;
}

/* The result's column that tells the window, where groups are put out window by window; else 0. */
static AttrNumber
window_column(const WmsStreamPlan *plan)
{
	WmsWindowKind kind = plan->top_op >= 0 ? plan->ops[plan->top_op].window.kind : WMS_WINDOW_NONE;

	return (kind == WMS_WINDOW_GRID || kind == WMS_WINDOW_CUMULATE) && plan->shown_time.kind > WMS_SHOWN_EVENT ? plan->shown_time.column : 0;
}

static WmsStreamDef *
copy_def(const WmsStreamDef *def)
{
	WmsStreamDef *copy = palloc(sizeof(WmsStreamDef));

	*copy = *def;
	copy->reason = copy->filled = NULL;
	copy->timezone = copy->datestyle = copy->intervalstyle = NULL;	/* the worker's business */
	return copy;
}

static void
stop_watch(void *arg)
{
	wms_watch_stop(arg);
}

/* The watch ends with the flow's memory, also when an error takes that away. */
static void
start_watch(WmsFlow *flow, uint64 since)
{
	MemoryContextCallback *callback = MemoryContextAlloc(flow->context, sizeof(MemoryContextCallback));

	callback->func = stop_watch;
	callback->arg = &flow->watch;
	wms_watch_start(&flow->watch, since);
	MemoryContextRegisterResetCallback(flow->context, callback);
}

WmsFlow *
wms_flow_build(const WmsStreamDef *def, MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "wmstream flow", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	WmsFlow    *flow = palloc0(sizeof(WmsFlow));
	uint64		before = wms_watch_moment();

	flow->context = context;
	flow->def = copy_def(def);
	flow->env = create_queryEnv();
	flow->plan = analyze_definition(def);
	flow->plan->mode = def->output_mode;
	make_contexts(flow);
	make_sources(flow);
	make_ops(flow);
	flow->final = make_input(flow, flow->plan->final, NULL, 0);
	note_buffered(flow, flow->final);
	note_readers(flow, flow->final->query);
	wms_flow_vector_prepare(flow);
	if (flow->plan->shown_query)
		flow->shown = wms_query_make(flow->plan->shown_query, flow->env);
	if (wms_flow_replaces(flow))
		note_readers(flow, flow->shown);
	plan_queries(flow);
	flow->sink = wms_sink_open(flow->def, flow->plan->result_desc, flow->plan->key_columns, window_column(flow->plan));
	if (def->fill == WMS_FILL_RESYNC && def->fill_since != WMS_TIME_MIN)
		wms_sink_keep_before(flow->sink, &flow->plan->shown_time, def->fill_since);
	if (OidIsValid(def->late_table))
		flow->late = wms_late_open(flow->def);
	flow->watch.relids = list_concat_unique_oid(flow->watch.relids, flow->plan->relids);
	flow->watch.relids = list_append_unique_oid(flow->watch.relids, def->view);
	flow->writes_elsewhere = has_side_effects(flow, def->stream);
	flow->writes_elsewhere |= has_side_effects(flow, def->late_table);
	MemoryContextSwitchTo(old);
	start_watch(flow, before);
	return flow;
}

void
wms_flow_free(WmsFlow *flow)
{
	MemoryContextDelete(flow->context);
}

bool
wms_flow_stale(const WmsFlow *flow)
{
	return flow->watch.stale;
}

const WmsStreamPlan *
wms_flow_plan(const WmsFlow *flow)
{
	return flow->plan;
}

const WmsStateOps *
wms_flow_state_ops(WmsFlow *flow, int *nops)
{
	*nops = flow->plan->nops * 2;	/* with those of timers */
	return flow->state_ops;
}

bool
wms_flow_reads_static(const WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nops; i++)
		for (int side = 0; side < 2; side++)
			if (flow->ops[i].inputs[side] && flow->ops[i].inputs[side]->plan->reads_static)
				return true;
	return flow->final->plan->reads_static;
}

bool
wms_flow_writes_elsewhere(const WmsFlow *flow)
{
	return flow->writes_elsewhere;
}
