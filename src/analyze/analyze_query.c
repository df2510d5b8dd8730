/*
 * analyze_query.c
 *	  From a definition to the plan of a stream: the order of things.
 *
 * 1. The query is copied, locked and rewritten as Postgres does it for any query; views become subqueries.  Where its parts stand in
 *    the definition's text is noted now (analyze_place.c): later they are moved about.
 * 2. Privileges are checked on that tree, as those of the role that we are.
 * 3. It is made uniform (analyze_tree.c), sources are found (analyze_source.c): from here on streamed rows come from row sets.
 * 4. Levels are cut from the inside out.  A level: its streamed subqueries first; then what must not be there is refused; plain
 *    subqueries are pulled up; GROUP BY, ranks and DISTINCT become operators, each leaving the level with a row set in its FROM.
 * 5. What is left is the final query; modes, keys and columns of the result are checked (analyze_output.c).
 *
 * The first refusal ends it.  A level that reads no stream is left as it is: Postgres runs it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteManip.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "analyze/analyze_internal.h"

/* ---------------------------------------------------------------- sets, notices */

AnSet *
wms_an_set(Analysis *a, const char *name)
{
	ListCell   *lc;

	foreach(lc, a->sets)
	{
		AnSet	   *set = lfirst(lc);

		if (strcmp(set->name, name) == 0)
			return set;
	}
	elog(ERROR, "row set \"%s\" not found", name);
}

AnSet *
wms_an_add_set(Analysis *a, char *name, TupleDesc desc)
{
	AnSet	   *set = palloc0(sizeof(AnSet));

	set->name = name;
	set->desc = desc;
	set->times = palloc0(sizeof(AnTime) * Max(desc->natts, 1));
	set->not_null = palloc0(sizeof(bool) * Max(desc->natts, 1));
	a->sets = lappend(a->sets, set);
	return set;
}

/* How far the watermark of the rows that a query reads lies behind W: with several sets, the one furthest behind. */
int64
wms_an_lag(Analysis *a, const Query *query)
{
	int64		lag_us = 0;
	ListCell   *lc;

	foreach(lc, wms_an_sets_below(a, query))
		lag_us = Max(lag_us, ((AnSet *) lfirst(lc))->lag_us);
	return lag_us;
}

/* How far different event times of a row may lie apart. */
int64
wms_an_spread(Analysis *a, const Query *query)
{
	int64		spread_us = 0;
	ListCell   *lc;

	foreach(lc, wms_an_sets_below(a, query))
		spread_us = Max(spread_us, ((AnSet *) lfirst(lc))->spread_us);
	return spread_us;
}

/* Has every row that a query reads an event time over which a watermark moves?  Its lag, and the longest delay. */
bool
wms_an_rows_bounded(Analysis *a, const Query *query, int64 *lag_us, int64 *delay_us)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, wms_an_sets_below(a, query))
	{
		AnSet	   *set = lfirst(lc);
		const AnTime *time = set->evt > 0 ? &set->times[set->evt - 1] : NULL;
		const AnTime *time2 = set->evt2 > 0 ? &set->times[set->evt2 - 1] : time;

		if (time == NULL || !time->watermarked || !time->bounded || !time2->bounded || (time == time2 && time->nullable))
			return false;
		*lag_us = Max(*lag_us, Max(time->lag_us, time2->lag_us));
		foreach(lc2, set->sources)
			*delay_us = Max(*delay_us, ((WmsSourcePlan *) list_nth(a->sources, lfirst_int(lc2)))->delay_us);
	}
	return true;
}

void
wms_an_notice(Analysis *a, const char *format,...)
{
	StringInfoData text;

	initStringInfo(&text);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&text, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&text, needed);
	}
	a->notices = lappend(a->notices, text.data);
}

/* ---------------------------------------------------------------- rewriting, privileges */

static Query *
rewritten(Query *query)
{
	List	   *result;

	query = copyObject(query);
	AcquireRewriteLocks(query, true, false);
	wms_an_mark_own(query);
	result = QueryRewrite(query);
	if (list_length(result) != 1)
		elog(ERROR, "a definition was rewritten to %d queries", list_length(result));
	return linitial_node(Query, result);
}

static bool
relids_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		ListCell   *lc;

		foreach(lc, ((Query *) node)->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

			if (!OidIsValid(rte->relid) || list_member_oid(a->relids, rte->relid))
				continue;
			a->relids = lappend_oid(a->relids, rte->relid);
			a->relid_places = lappend_int(a->relid_places, wms_an_place(a, rte));
		}
		return query_tree_walker((Query *) node, relids_walker, a, 0);
	}
	return expression_tree_walker(node, relids_walker, a);
}

static void
check_call(Oid function, Oid role, ObjectType type)
{
	if (!OidIsValid(function))
		return;
	if (!WmsMayCall(function, role))
		aclcheck_error(ACLCHECK_NO_PRIV, type, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

static Oid
owner_of_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* We must be allowed to call it, and its owner to call what it is made of. */
static void
check_aggregate(Oid aggregate, bool moving)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	Oid			owner = owner_of_function(aggregate);
	Form_pg_aggregate form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	check_call(aggregate, GetUserId(), OBJECT_AGGREGATE);
	check_call(form->aggtransfn, owner, OBJECT_FUNCTION);
	check_call(form->aggfinalfn, owner, OBJECT_FUNCTION);
	check_call(form->aggcombinefn, owner, OBJECT_FUNCTION);
	check_call(form->aggserialfn, owner, OBJECT_FUNCTION);
	check_call(form->aggdeserialfn, owner, OBJECT_FUNCTION);
	check_call(moving ? form->aggmtransfn : InvalidOid, owner, OBJECT_FUNCTION);
	check_call(moving ? form->aggminvtransfn : InvalidOid, owner, OBJECT_FUNCTION);
	check_call(moving ? form->aggmfinalfn : InvalidOid, owner, OBJECT_FUNCTION);
	ReleaseSysCache(tuple);
}

/*
 * The rows of sources reach us without passing the executor's checks, and aggregates whose state is kept run without its node: what it would ask
 * is asked here, for all that is read and aggregated.
 */
static bool
privileges_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		WmsCheckPerms(query->rtable, query->rteperminfos);
		return query_tree_walker(query, privileges_walker, a, 0);
	}
	if (IsA(node, Aggref))
		check_aggregate(castNode(Aggref, node)->aggfnoid, a->options->retract);
	return expression_tree_walker(node, privileges_walker, a);
}

/* ---------------------------------------------------------------- inputs */

static bool
static_relids_walker(Node *node, void *arg)
{
	List	  **relids = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		Bitmapset  *used = wms_an_used_rtes(query);
		int			i = -1;

		while ((i = bms_next_member(used, i)) >= 0)
		{
			RangeTblEntry *rte = rt_fetch(i, query->rtable);

			if (rte->rtekind == RTE_RELATION)
				*relids = list_append_unique_oid(*relids, rte->relid);
		}
		return query_tree_walker(query, static_relids_walker, relids, 0);
	}
	return expression_tree_walker(node, static_relids_walker, relids);
}

List *
wms_an_static_relids(Query *query)
{
	List	   *relids = NIL;

	static_relids_walker((Node *) query, &relids);
	return relids;
}

/* The number of the one row set that a query filters and projects; 0 if it does more than that. */
static int
direct_entry(const Query *query)
{
	Bitmapset  *used = wms_an_used_rtes(query);
	int			rtindex;

	if (query->setOperations || query->hasAggs || query->groupClause || query->hasWindowFuncs || query->distinctClause ||
		query->sortClause || query->limitCount || query->limitOffset || query->havingQual ||
		expression_returns_set((Node *) query->targetList) ||
		checkExprHasSubLink((Node *) query->targetList) || checkExprHasSubLink((Node *) query->jointree) ||
		!bms_get_singleton_member(used, &rtindex) || !IsA(linitial(query->jointree->fromlist), RangeTblRef) ||
		rt_fetch(rtindex, query->rtable)->rtekind != RTE_NAMEDTUPLESTORE)
		return 0;
	return rtindex;
}

/* Makes an input of a finished query tree. */
WmsInputPlan *
wms_an_input(Analysis *a, Query *query, int ord_column)
{
	WmsInputPlan *input = palloc0(sizeof(WmsInputPlan));
	int			rtindex = direct_entry(query);
	ListCell   *lc;

	input->query = query;
	input->ord_column = ord_column;
	foreach(lc, wms_an_sets_below(a, query))
		input->sources = list_concat_unique_int(input->sources, ((AnSet *) lfirst(lc))->sources);
	list_sort(input->sources, list_int_cmp);
	input->static_relids = wms_an_static_relids(query);
	input->reads_static = (input->static_relids != NIL);
	if (rtindex > 0)
	{
		RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
		Node	   *quals = query->jointree->quals;

		input->direct = true;
		input->direct_set = pstrdup(rte->enrname);
		query->jointree->quals = NULL;
		query->targetList = copyObject(query->targetList);
		quals = copyObject(quals);
		wms_an_only_set(query, rte, rtindex);
		if (quals && rtindex != 1)
			ChangeVarNodes(quals, rtindex, 1, 0);
		query->jointree->quals = quals;
		query->hasSubLinks = false;
	}
	return input;
}

/* ---------------------------------------------------------------- what a streamed level must not have */

static bool
volatile_function(Oid funcid, void *arg)
{
	if (func_volatile(funcid) != PROVOLATILE_VOLATILE)
		return false;
	*(Oid *) arg = funcid;
	return true;
}

static bool
volatile_walker(Node *node, void *arg)
{
	Analysis   *a = arg;
	Oid			funcid = InvalidOid;

	if (node == NULL || a->refusal)
		return false;
	if (check_functions_in_node(node, volatile_function, &funcid))
		wms_no_volatile(a, funcid, exprLocation(node));
	else if (IsA(node, NextValueExpr))
		wms_no_volatile(a, F_NEXTVAL, -1);
	if (IsA(node, Query))
	{
		int			outside = wms_an_enter(a, (Query *) node);

		query_tree_walker((Query *) node, volatile_walker, a, QTW_IGNORE_JOINALIASES);
		a->place = outside;
		return false;
	}
	return expression_tree_walker(node, volatile_walker, a);
}

/* A batch must give the same when it is run again, also in static subqueries. */
static void
check_volatile(Analysis *a, Query *query)
{
	ListCell   *lc;

	volatile_walker((Node *) query, a);
	foreach(lc, a->sources)
		volatile_walker((Node *) ((WmsSourcePlan *) lfirst(lc))->below, a);
}

static bool
hidden_stream_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL || a->refusal)
		return false;
	if (IsA(node, SubLink) && wms_an_streamed(a, castNode(Query, ((SubLink *) node)->subselect)))
		wms_no_stream_here(a, node);
	if (IsA(node, Query))
	{
		if (wms_an_streamed(a, (Query *) node))
			wms_no_stream_here(a, node);
		return query_tree_walker((Query *) node, hidden_stream_walker, a, 0);
	}
	return expression_tree_walker(node, hidden_stream_walker, a);
}

/* Streams in sublinks, of the level or of what it joins, are joins. */
void
wms_an_check_sublinks(Analysis *a, Query *query)
{
	ListCell   *lc;

	query_tree_walker(query, hidden_stream_walker, a, QTW_IGNORE_RANGE_TABLE);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY && !wms_an_streamed(a, rte->subquery))
			hidden_stream_walker((Node *) rte->subquery, a);
		else if (rte->rtekind == RTE_FUNCTION)
			hidden_stream_walker((Node *) rte->functions, a);
		else if (rte->rtekind == RTE_TABLEFUNC)
			hidden_stream_walker((Node *) rte->tablefunc, a);
		else if (rte->rtekind == RTE_VALUES)
			hidden_stream_walker((Node *) rte->values_lists, a);
	}
}

/* A streamed entry on the side of an outer join that may be filled with NULLs; NULL: there is none. */
static RangeTblEntry *
stream_may_be_null(Analysis *a, Query *query, Node *node, bool nullable)
{
	ListCell   *lc;

	RangeTblEntry *found = NULL;

	if (IsA(node, RangeTblRef))
	{
		int			rtindex = ((RangeTblRef *) node)->rtindex;

		return nullable && list_member_int(wms_an_streamed_rtes(a, query), rtindex) ? rt_fetch(rtindex, query->rtable) : NULL;
	}
	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
		{
			if (found == NULL)
				found = stream_may_be_null(a, query, lfirst(lc), nullable);
		}
		return found;
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);
		bool		left = nullable || join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL;
		bool		right = nullable || join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL;

		found = stream_may_be_null(a, query, join->larg, left);
		return found ? found : stream_may_be_null(a, query, join->rarg, right);
	}
}

/* What stands first behind the word of a set operation. */
static int
place_behind(Analysis *a, Query *query, const SetOperationStmt *op)
{
	return wms_an_place(a, rt_fetch(wms_an_leftmost_leaf(op->rarg), query->rtable)->subquery);
}

static void
check_union(Analysis *a, Query *query, Node *node)
{
	SetOperationStmt *op;

	if (IsA(node, RangeTblRef))
	{
		Query	   *branch = rt_fetch(((RangeTblRef *) node)->rtindex, query->rtable)->subquery;

		if (!wms_an_streamed(a, branch))
			wms_no_mixed_union(a, branch);
		return;
	}
	op = castNode(SetOperationStmt, node);
	if (op->op != SETOP_UNION)
		wms_no_clause(a, op->op == SETOP_EXCEPT ? "EXCEPT" : "INTERSECT", place_behind(a, query, op), "Use a join, or [NOT] EXISTS.");
	else if (!op->all)
		wms_no_clause(a, "UNION below UNION ALL", place_behind(a, query, op), "Write SELECT DISTINCT ... FROM (... UNION ALL ...) for this branch.");
	check_union(a, query, op->larg);
	check_union(a, query, op->rarg);
}

/* ORDER BY and LIMIT make sense where the whole answer is computed anew. */
static void
check_order_and_limit(Analysis *a, Query *query, int order_location)
{
	bool		whole = a->options->mode == WMS_COMPLETE && !wms_an_has_raw_rows(a, query);

	if (query->limitOffset)
		wms_no_clause(a, "OFFSET", exprLocation(query->limitOffset), "Number the rows with row_number() and filter them in the query around.");
	if (query->limitCount && !whole)
		wms_no_order_or_limit(a, "LIMIT", exprLocation(query->limitCount));
	if (query->sortClause && !query->hasDistinctOn && !whole)
		wms_no_order_or_limit(a, "ORDER BY", order_location);
}

/* ---------------------------------------------------------------- windows in FROM */

/* Calls that give exactly one row are written where they are used, and leave FROM. */
void
wms_an_write_out_windows(Analysis *a, Query *query)
{
	for (int i = 1; i <= list_length(query->rtable); i++)
	{
		RangeTblEntry *rte = rt_fetch(i, query->rtable);
		FuncExpr   *call = wms_an_function_rte_call(rte);
		List	   *substs = NIL;

		if (call == NULL || call->funcretset || !bms_is_member(i, wms_an_used_rtes(query)) || !wms_an_remove_rte(query, i, false))
			continue;
		wms_an_add_subst(&substs, (Node *) makeVar(i, 1, call->funcresulttype, -1, InvalidOid, 0), (Node *) call);
		wms_an_add_subst(&substs, (Node *) makeVar(i, 0, call->funcresulttype, -1, InvalidOid, 0), (Node *) call);
		wms_an_add_subst(&a->window_names, copyObject((Node *) call), (Node *) makeString(pstrdup(strVal(linitial(rte->eref->colnames)))));
		wms_an_subst(query, substs);
		wms_an_remove_rte(query, i, true);
		wms_an_void_rte(rt_fetch(i, query->rtable));
	}
}

/* ---------------------------------------------------------------- ranks and DISTINCT */

/* Do rows that agree in an expression of this time all come in the same firing? */
static bool
decides_firing(const AnTime *time)
{
	if (!time->watermarked)
		return false;
	return time->kind == AN_WINDOW || time->kind == AN_EVENT || time->kind == AN_UPPER ||
		(time->kind == AN_LOWER && time->window.kind == WMS_WINDOW_GRID);
}

/* The window among the expressions of PARTITION BY or DISTINCT; NULL: none. */
static Node *
window_among(Analysis *a, Query *query, List *clauses, AnTime *time)
{
	ListCell   *lc;

	foreach(lc, clauses)
	{
		Node	   *expr = get_sortgroupclause_expr(lfirst(lc), query->targetList);

		*time = wms_an_time(a, query, expr);
		if (decides_firing(time))
			return expr;
	}
	return NULL;
}

/* Groups that may still change cannot be ranked or compared with each other. */
static void
check_groups_are_final(Analysis *a, const char *what, Node *where)
{
	if (a->options->mode == WMS_UPDATE)
		wms_no_window_functions_in(a, psprintf("%s in update mode", what), where);
	else if (a->options->refines)
		wms_no_window_functions_in(a, psprintf("%s with allowed_lateness", what), where);
}

static bool
window_call_walker(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, WindowFunc))
	{
		*(Node **) arg = node;
		return true;
	}
	return expression_tree_walker(node, window_call_walker, arg);
}

static void
rank_rows(Analysis *a, Query *query)
{
	Node	   *raw = NULL;
	ListCell   *lc;

	if (a->options->mode == WMS_COMPLETE && !wms_an_has_raw_rows(a, query))
		return;
	foreach(lc, query->windowClause)
	{
		WindowClause *clause = lfirst_node(WindowClause, lc);
		AnTime		time;
		Node	   *window = window_among(a, query, clause->partitionClause, &time);

		if (window == NULL)
		{
			Node	   *call = NULL;

			window_call_walker((Node *) query->targetList, &call);
			wms_no_window_partition(a, call);
			return;
		}
		if (!time.finished && raw == NULL)
			raw = window;
		else if (!time.finished && !equal(raw, window))
			wms_no_two_windows(a, window);
		check_groups_are_final(a, "a window function", window);
	}
	if (raw && a->refusal == NULL)
		wms_an_cut_collect(a, query, raw);
}

static void
distinct_rows(Analysis *a, Query *query, int order_location)
{
	AnTime		time;
	Node	   *window;

	if (a->options->mode == WMS_COMPLETE && !wms_an_has_raw_rows(a, query))
		return;
	window = window_among(a, query, query->distinctClause, &time);
	if (window && time.finished)
		check_groups_are_final(a, "DISTINCT", window);
	else if (window && query->hasDistinctOn && query->sortClause)
	{
		check_groups_are_final(a, "DISTINCT ON", window);
		if (a->refusal == NULL)
			wms_an_cut_collect(a, query, window);
	}
	else if (query->hasDistinctOn && query->sortClause)
		wms_no_distinct_order(a, get_sortgroupclause_expr(linitial(query->distinctClause), query->targetList), order_location);
	else
	{
		check_order_and_limit(a, query, order_location);
		if (a->refusal == NULL)
			wms_an_cut_dedup(a, query);
	}
}

/* ---------------------------------------------------------------- a level */

static void cut_level(Analysis *a, Query *query, bool top);

void
wms_an_cut_subqueries(Analysis *a, Query *query)
{
	Bitmapset  *used = wms_an_used_rtes(query);
	int			i = -1;

	while (a->refusal == NULL && (i = bms_next_member(used, i)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(i, query->rtable);

		if (rte->rtekind == RTE_SUBQUERY && wms_an_streamed(a, rte->subquery))
			cut_level(a, rte->subquery, false);
	}
}

static void
check_from(Analysis *a, Query *query)
{
	RangeTblEntry *nullable = query->setOperations ? NULL : stream_may_be_null(a, query, (Node *) query->jointree, false);

	if (query->setOperations)
		check_union(a, query, query->setOperations);
	else if (nullable)
		wms_no_nullable_stream(a, nullable);
	if (a->refusal == NULL)
		wms_an_check_sublinks(a, query);
}

static void
cut_entered_level(Analysis *a, Query *query, bool top)
{
	Node	   *outer;

	/* positions in the query text, before expressions are replaced */
	int			order_location = query->sortClause ?
	exprLocation(get_sortgroupclause_expr(linitial(query->sortClause), query->targetList)) : -1;

	wms_an_write_out_union(query);
	wms_an_cut_subqueries(a, query);
	outer = top ? NULL : wms_an_refers_outside(query);
	if (a->refusal == NULL && outer)
		wms_no_outer_reference(a, outer);
	if (a->refusal == NULL && query->setOperations == NULL)
	{
		wms_an_write_out_windows(a, query);
		wms_an_cut_joins(a, query, !top || query->distinctClause != NIL);
	}
	if (a->refusal == NULL)
		check_from(a, query);
	if (a->refusal)
		return;
	if (query->setOperations == NULL)
	{
		wms_an_pull_up(a, query);
		if (query->hasAggs || query->groupClause || query->groupingSets || query->havingQual)
			wms_an_cut_group(a, query);
		if (a->refusal == NULL && query->hasWindowFuncs)
			rank_rows(a, query);
	}
	if (a->refusal == NULL && query->distinctClause)
		distinct_rows(a, query, order_location);
	if (a->refusal == NULL)
		check_order_and_limit(a, query, order_location);
}

static void
cut_level(Analysis *a, Query *query, bool top)
{
	int			outside = wms_an_enter(a, query);

	cut_entered_level(a, query, top);
	a->place = outside;
}

/* ---------------------------------------------------------------- all of it */

static int *
places_of(Analysis *a)
{
	int		   *places = palloc(sizeof(int) * (list_length(a->column_places) + 1));
	int			n = 0;
	ListCell   *lc;

	places[n++] = a->place;
	foreach(lc, a->column_places)
		places[n++] = lfirst_int(lc);
	return places;
}

static WmsStreamPlan *
finished_plan(Analysis *a, Query *query)
{
	WmsStreamPlan *plan = palloc0(sizeof(WmsStreamPlan));
	ListCell   *lc;

	plan->mode = a->options->mode;
	plan->processing_time = a->processing_time;
	plan->sources = palloc0(sizeof(WmsSourcePlan) * Max(list_length(a->sources), 1));
	foreach(lc, a->sources)
		plan->sources[plan->nsources++] = *(WmsSourcePlan *) lfirst(lc);
	plan->queues = plan->nsources > 0 && plan->sources[0].queue;
	plan->ops = palloc0(sizeof(WmsOpPlan) * Max(list_length(a->ops), 1));
	foreach(lc, a->ops)
		plan->ops[plan->nops++] = *(WmsOpPlan *) lfirst(lc);
	plan->retract = a->options->retract;
	wms_an_check_retract(a, plan, query);
	wms_an_output(a, query, plan);
	plan->notices = a->notices;
	plan->relids = a->relids;
	plan->relid_places = a->relid_places;
	plan->places = places_of(a);
	plan->definition = a->definition;
	if (a->refusal == NULL)
		plan->fingerprint = wms_an_fingerprint(plan, a->definition);
	return plan;
}

static void
check_below(Analysis *a)
{
	ListCell   *lc;

	foreach(lc, a->sources)
	{
		Query	   *below = ((WmsSourcePlan *) lfirst(lc))->below;
		int			outside;

		if (below == NULL)
			continue;
		outside = wms_an_enter(a, below);
		wms_an_cut_subqueries(a, below);
		if (a->refusal == NULL)
			check_from(a, below);
		a->place = outside;
	}
}

WmsStreamPlan *
wms_analyze_query(Query *query, const WmsOptions *options, WmsRefusal **refusal)
{
	Analysis	a = {.options = options};
	WmsStreamPlan *plan = NULL;

	a.definition = wms_an_definition_hash(query);
	query = rewritten(query);
	wms_an_mark_places(&a, query, options->text);
	relids_walker((Node *) query, &a);
	privileges_walker((Node *) query, &a);
	wms_an_prepare(&a, query);
	if (a.refusal == NULL)
		wms_an_find_sources(&a, query);
	if (a.refusal == NULL)
		wms_an_static_tables(&a, query);
	if (a.refusal == NULL)
		check_volatile(&a, query);
	if (a.refusal == NULL)
		check_below(&a);
	if (a.refusal == NULL)
		cut_level(&a, query, true);
	if (a.refusal == NULL)
		plan = finished_plan(&a, query);
	if (a.refusal == NULL)
		wms_an_forget_places(plan);
	*refusal = a.refusal;
	return a.refusal ? NULL : plan;
}

WmsStreamPlan *
wms_analyze_view(Oid view, const WmsOptions *options, WmsRefusal **refusal)
{
	Relation	rel = table_open(view, AccessShareLock);
	Query	   *query = copyObject(get_view_query(rel));

	table_close(rel, NoLock);
	return wms_analyze_query(query, options, refusal);
}
