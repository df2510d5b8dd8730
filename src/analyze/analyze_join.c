/*
 * analyze_join.c
 *	  One join of two streamed sides becomes an operator.
 *
 * Each side is cut out of FROM as a query of its own (with the static tables that are joined within it) and in its place stands the
 * operator's row set.  Columns of a side's query, in order:
 *
 *   keys: the sides of the equalities, of the same types on both sides      |
 *   what is read of the side above the join                                 |  these go out
 *   its event time, where something above may ask for it                    |
 *   what else the remaining conditions read
 *   the time or window that bounds the join, unless it is among the above
 *   own: whether the conditions hold that concern this side alone
 *   #ord
 *
 * Own conditions are no filters: a row that is late is late also when it fails them, and a row of a preserved side that fails
 * them goes out alone.
 *
 * How far behind.  A row is held until nothing on time can match it, so what goes out may be older than W by the
 * range; a time beside the one that bounds the join by as much more as the two may lie apart.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"

#include "analyze/analyze_internal.h"

typedef struct Side
{
	Node	   *node;			/* in FROM */
	Bitmapset  *rels;
	Query	   *query;
	List	   *tlist;
	List	   *about;			/* AnTime * of each column */
	List	   *own;			/* conditions on this side alone */
	int			out_count;
	bool		nullable;		/* may be filled with NULLs */
	bool		emptied;		/* its rows must leave: they go out when they do, or are kept for one match only */
	bool		bounded;		/* has a watermark */
	bool		leaves;
	AttrNumber	evt;			/* column that tells the event time above; 0: none */
	List	   *rows;			/* whole rows of its entries that are read above */
	AttrNumber	there;			/* column that is true but where the side is NULL-extended; 0: not needed */
	WmsInputPlan *input;
} Side;

typedef struct JoinCut
{
	Analysis   *a;
	Query	   *query;
	JoinType	type;
	int			rtindex;		/* of the join itself; 0: none */
	int			set;			/* range table number of the operator's row set */
	Side		side[2];
	AnJoinBound bound;
	int			location;		/* of the right stream */
	List	   *above;			/* conditions with subqueries, that an inner join can leave to the level */
	WmsOpPlan  *op;
	WmsJoinPlan *plan;
} JoinCut;

/* ---------------------------------------------------------------- sides */

static void
set_side(JoinCut *j, int s, Node *node)
{
	Side	   *side = &j->side[s];

	side->node = node;
	side->rels = wms_an_rtes_in(node);
	side->query = makeNode(Query);
	side->query->commandType = CMD_SELECT;
	side->query->canSetTag = true;
	side->query->rtable = copyObject(j->query->rtable);
	side->query->jointree = makeFromExpr(list_make1(copyObject(node)), NULL);
	for (int i = 1; i <= list_length(side->query->rtable); i++)
	{
		RangeTblEntry *rte = rt_fetch(i, side->query->rtable);

		if (rte->rtekind == RTE_JOIN ? !wms_an_has_join(node, i) : !bms_is_member(i, side->rels))
			wms_an_void_rte(rte);
	}
	if (s == 0)
	{
		side->nullable = j->type == JOIN_RIGHT || j->type == JOIN_FULL;
		side->emptied = j->type == JOIN_LEFT || j->type == JOIN_FULL || j->type == JOIN_SEMI || j->type == JOIN_ANTI;
	}
	else
	{
		side->nullable = j->type == JOIN_LEFT || j->type == JOIN_FULL;
		side->emptied = j->type == JOIN_RIGHT || j->type == JOIN_FULL;
	}
}

/* Does the right side go out too? */
static bool
shows_right(const JoinCut *j)
{
	return j->type != JOIN_SEMI && j->type != JOIN_ANTI;
}

/* The first streamed entry of a side. */
static int
streamed_entry(JoinCut *j, int s)
{
	ListCell   *lc;

	foreach(lc, wms_an_streamed_rtes(j->a, j->side[s].query))
		return lfirst_int(lc);
	elog(ERROR, "side of a join reads no stream");
}

static void *
stream_of(JoinCut *j, int s)
{
	return rt_fetch(streamed_entry(j, s), j->query->rtable);
}

/* As the user calls it; a join below goes by the names of its sides. */
static const char *
side_name(JoinCut *j, int s)
{
	RangeTblEntry *rte = rt_fetch(streamed_entry(j, s), j->query->rtable);
	AnSet	   *set = rte->rtekind == RTE_NAMEDTUPLESTORE ? wms_an_set(j->a, rte->enrname) : NULL;
	WmsOpPlan  *op = set && set->op >= 0 ? list_nth(j->a->ops, set->op) : NULL;

	if (op && op->kind == WMS_OP_JOIN)
		return psprintf("%s, %s", op->join->side[0].name, op->join->side[1].name);
	return rte->eref->aliasname;
}

/* The event time of a side, for a hint. */
static char *
time_text(JoinCut *j, int s)
{
	int			rtindex = streamed_entry(j, s);
	RangeTblEntry *rte = rt_fetch(rtindex, j->query->rtable);
	AnSet	   *set = rte->rtekind == RTE_NAMEDTUPLESTORE ? wms_an_set(j->a, rte->enrname) : NULL;
	Node	   *time;

	if (set == NULL || set->op >= 0)
		return psprintf("(event time of %s)", rte->eref->aliasname);
	time = copyObject(((WmsSourcePlan *) list_nth(j->a->sources, set->source))->event_time);
	ChangeVarNodes(time, 1, rtindex, 0);
	return wms_an_text(time, j->query->rtable);
}

/* ---------------------------------------------------------------- conditions */

static void
read_conditions(JoinCut *j, Node *quals)
{
	Bitmapset  *rels[2] = {j->side[0].rels, j->side[1].rels};
	Bitmapset  *all = bms_union(rels[0], rels[1]);
	List	   *both = NIL;
	ListCell   *lc;

	foreach(lc, wms_an_conjuncts(quals))
	{
		/* constants are folded, but NOT (a OR b) stays one condition: a row is null-extended at once for what is written alone */
		Node	   *condition = eval_const_expressions(NULL, copyObject(lfirst(lc)));
		Bitmapset  *mentioned = wms_an_rels_of(condition);

		if (!equal(condition, lfirst(lc)))
			wms_an_note_place(j->a, condition, wms_an_place(j->a, lfirst(lc)));
		if (wms_an_is_true(condition))
			continue;
		if (!bms_is_subset(mentioned, all))
			wms_no_join_condition(j->a, condition);
		else if (!bms_is_subset(mentioned, rels[0]) && !bms_is_subset(mentioned, rels[1]))
			both = lappend(both, condition);
		for (int s = 0; s < 2; s++)
		{
			if (bms_is_subset(mentioned, rels[s]))
				j->side[s].own = lappend(j->side[s].own, condition);
		}
	}
	if (j->a->refusal)
		return;
	wms_an_read_join(j->a, j->query, rels, both, j->type, &j->bound);
	if (!j->bound.equality)
		wms_no_join_equality(j->a, both != NIL ? linitial(both) : stream_of(j, 1));
}

/* The operator evaluates conditions by itself and cannot run subqueries. */
static void
set_subqueries_apart(JoinCut *j)
{
	List	   *rest = NIL;
	ListCell   *lc;

	foreach(lc, j->bound.rest)
	{
		if (!checkExprHasSubLink(lfirst(lc)))
			rest = lappend(rest, lfirst(lc));
		else if (j->type == JOIN_INNER)
			j->above = lappend(j->above, lfirst(lc));
		else
			wms_no_join_subquery(j->a, lfirst(lc));
	}
	j->bound.rest = rest;
}

/* ---------------------------------------------------------------- when rows leave */

static void
check_bound(JoinCut *j)
{
	const AnJoinBound *bound = &j->bound;

	for (int s = 0; s < 2; s++)
	{
		int64		lag_us = 0;
		int64		delay_us = 0;

		if (bound->bound == WMS_BOUND_NONE)
			j->side[s].bounded = wms_an_rows_bounded(j->a, j->side[s].query, &lag_us, &delay_us);
		else
			j->side[s].bounded = bound->about[s].bounded;
	}
	for (int s = 0; s < 2; s++)
	{
		Side	   *side = &j->side[s];
		bool		ends = bound->bound == WMS_BOUND_SAME ||
		(bound->bound == WMS_BOUND_RANGE && (s == 0 ? bound->has_max : bound->has_min));

		side->leaves = ends && j->side[1 - s].bounded;
		if (side->emptied && !side->leaves)
			wms_no_join_bound(j->a, bound->rest != NIL ? linitial(bound->rest) : stream_of(j, s), j->type, side_name(j, s),
							  psprintf("%s <= %s + interval '10 minutes'", time_text(j, 1 - s), time_text(j, s)), ends);
	}
}

static void
tell_of_state(JoinCut *j)
{
	if (!j->side[0].leaves && !j->side[1].leaves)
		wms_an_notice(j->a, "the state of the join of \"%s\" and \"%s\" never shrinks: nothing tells when a row can match no more",
					  side_name(j, 0), side_name(j, 1));
	else if (!j->side[0].leaves || !j->side[1].leaves)
		wms_an_notice(j->a, "rows of \"%s\" stay in the state of the join for ever: nothing tells when they can match no more",
					  side_name(j, j->side[0].leaves ? 1 : 0));
}

/* ---------------------------------------------------------------- columns */

static AnTime *
time_about(JoinCut *j, int s, Node *expr)
{
	AnTime	   *about = palloc(sizeof(AnTime));

	*about = wms_an_time(j->a, j->side[s].query, expr);
	return about;
}

/* A side's own range table: only there entries know of columns that were added to carry the event time. */
static const char *
column_name(const Side *side, Node *expr, int n)
{
	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		return get_rte_attribute_name(rt_fetch(((Var *) expr)->varno, side->query->rtable), ((Var *) expr)->varattno);
	return psprintf("column %d", n);
}

static int
add_column(JoinCut *j, int s, Node *expr, const AnTime *about)
{
	Side	   *side = &j->side[s];
	AnTime	   *copy = time_about(j, s, expr);

	if (about)
		*copy = *about;
	side->about = lappend(side->about, copy);
	return wms_an_add_column(&side->tlist, copyObject(expr), column_name(side, expr, list_length(side->tlist) + 1))->resno;
}

/* The column that holds an expression; about: what is known of it, NULL: see for yourself. */
static int
column_of(JoinCut *j, int s, Node *expr, const AnTime *about)
{
	ListCell   *lc;

	expr = WmsWithoutNulling(expr, j->rtindex);
	foreach(lc, j->side[s].tlist)
	{
		if (equal(lfirst_node(TargetEntry, lc)->expr, expr))
			return lfirst_node(TargetEntry, lc)->resno;
	}
	return add_column(j, s, expr, about);
}

static void
add_keys(JoinCut *j)
{
	ListCell   *lc;

	foreach(lc, j->bound.keys)
	{
		AnJoinKey  *key = lfirst(lc);

		for (int s = 0; s < 2; s++)
			add_column(j, s, key->expr[s], NULL);
	}
}

/* Everything of the level that reads what is joined here, once the join has gone from FROM. */
static List *
rest_of_level(JoinCut *j)
{
	Query	   *query = j->query;
	List	   *rest = list_make3(query->targetList, query->jointree, query->havingQual);
	Bitmapset  *used = wms_an_used_rtes(query);
	int			i = -1;
	ListCell   *lc;

	foreach(lc, query->windowClause)
	{
		rest = lappend(rest, lfirst_node(WindowClause, lc)->startOffset);
		rest = lappend(rest, lfirst_node(WindowClause, lc)->endOffset);
	}
	while ((i = bms_next_member(used, i)) >= 0)
		rest = lappend(rest, wms_an_rte_parts(rt_fetch(i, query->rtable)));
	return rest;
}

/* May what the side computes stand above for the expression itself?  Where the side is NULL-extended, it must be NULL then. */
static bool
may_go_out(const JoinCut *j, int s, Node *expr)
{
	return IsA(expr, Var) || (!bms_is_empty(wms_an_rels_of(expr)) && !(j->side[s].nullable && contain_nonstrict_functions(expr)));
}

/* Makes a column of an expression that stands above; rest with it replaced. */
static List *
add_if_used(JoinCut *j, int s, Node *expr, const AnTime *about, List *rest)
{
	List	   *substs = NIL;
	List	   *without;

	if (IsA(expr, Var) || !may_go_out(j, s, expr))
		return rest;
	wms_an_add_subst(&substs, expr, (Node *) makeVar(j->set, 1, exprType(expr), -1, InvalidOid, 0));
	without = (List *) wms_an_subst_node((Node *) rest, substs);
	if (!equal(without, rest))
		column_of(j, s, expr, about);
	return without;
}

/*
 * Event times that are expressions over a source's columns are looked for above as a whole, or nothing would know them as such there.
 * So is the window that bounds the join.
 */
static List *
add_times(JoinCut *j, int s, List *rest)
{
	int			i = -1;

	if (j->bound.bound == WMS_BOUND_SAME)
		rest = add_if_used(j, s, j->bound.time[s], &j->bound.about[s], rest);

	while ((i = bms_next_member(j->side[s].rels, i)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(i, j->query->rtable);
		AnSet	   *set = rte->rtekind == RTE_NAMEDTUPLESTORE ? wms_an_set(j->a, rte->enrname) : NULL;
		Node	   *time;

		if (set == NULL || set->op >= 0)
			continue;
		time = copyObject(((WmsSourcePlan *) list_nth(j->a->sources, set->source))->event_time);
		if (time == NULL)
			continue;
		ChangeVarNodes(time, 1, i, 0);
		rest = add_if_used(j, s, time, NULL, rest);
	}
	return rest;
}

/* What tells the event time of a side's rows; NULL: nothing.  Fills about. */
static Node *
row_time(JoinCut *j, int s, AnTime *about)
{
	Node	   *time;
	int64		lag_us = 0;
	int64		delay_us = 0;
	ListCell   *lc;

	*about = j->bound.about[s];
	if (j->bound.bound != WMS_BOUND_NONE)
		return j->bound.time[s];
	time = wms_an_carried(j->a, j->side[s].query, AN_EVT);
	if (IsA(time, Const))
		return NULL;
	memset(about, 0, sizeof(*about));
	about->kind = AN_EVENT;
	about->type = exprType(time);
	about->watermarked = true;
	about->bounded = wms_an_rows_bounded(j->a, j->side[s].query, &lag_us, &delay_us);
	about->lag_us = lag_us;
	foreach(lc, wms_an_sets_below(j->a, j->side[s].query))
	{
		ListCell   *lc2;

		foreach(lc2, ((AnSet *) lfirst(lc))->sources)
			about->sources = bms_add_member(about->sources, lfirst_int(lc2));
	}
	return time;
}

/* The event time goes out with the sides that are always there, or with both if none is. */
static void
add_row_time(JoinCut *j)
{
	for (int s = 0; s < 2; s++)
	{
		Side	   *side = &j->side[s];
		bool		wanted = s == 0 ? (!side->nullable || j->type == JOIN_FULL)
		: (j->type == JOIN_RIGHT || j->type == JOIN_FULL);
		AnTime		about;
		Node	   *time = wanted ? row_time(j, s, &about) : NULL;

		if (time)
			side->evt = column_of(j, s, time, &about);
	}
}

typedef struct RowsContext
{
	const Side *side;
	int			depth;
	List	   *rows;
} RowsContext;

/* Whole rows were written out as the row of their columns (AN_WHOLE_ROW tells them from ROW(...)). */
static bool
rows_walker(Node *node, void *arg)
{
	RowsContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		context->depth++;
		query_tree_walker((Query *) node, rows_walker, context, 0);
		context->depth--;
		return false;
	}
	if (IsA(node, RowExpr) && ((RowExpr *) node)->row_format == AN_WHOLE_ROW)
	{
		Node	   *row = copyObject(node);
		Bitmapset  *rels;

		if (context->depth > 0)
			IncrementVarSublevelsUp(row, -context->depth, context->depth);
		rels = wms_an_rels_of(row);
		if (bms_membership(rels) == BMS_SINGLETON && bms_is_subset(rels, context->side->rels) && !list_member(context->rows, row))
			context->rows = lappend(context->rows, row);
	}
	return expression_tree_walker(node, rows_walker, arg);
}

/* A whole row of a NULL-extended side is NULL, not a row of NULLs. */
static void
find_rows(JoinCut *j, int s, List *rest)
{
	Side	   *side = &j->side[s];
	RowsContext context = {side, 0, NIL};

	if (!side->nullable)
		return;
	rows_walker((Node *) rest, &context);
	side->rows = context.rows;
	if (side->rows != NIL)
		side->there = wms_an_add_column(&side->tlist, makeBoolConst(true, false), "there")->resno;
	if (side->rows != NIL)
		side->about = lappend(side->about, palloc0(sizeof(AnTime)));
}

static void
add_out_columns(JoinCut *j, bool with_time)
{
	List	   *rest = rest_of_level(j);
	ListCell   *lc;

	for (int s = 0; s < 2; s++)
		rest = add_times(j, s, rest);
	foreach(lc, wms_an_level_vars((Node *) rest, j->set))
	{
		Var		   *var = lfirst(lc);

		for (int s = 0; s < 2; s++)
		{
			if (bms_is_member(var->varno, j->side[s].rels))
				column_of(j, s, (Node *) var, NULL);
		}
	}
	if (with_time)
		add_row_time(j);
	for (int s = 0; s < 2; s++)
		find_rows(j, s, rest);
	j->side[0].out_count = list_length(j->side[0].tlist);
	j->side[1].out_count = shows_right(j) ? list_length(j->side[1].tlist) : 0;
}

/* The remaining conditions over columns of the two inputs. */
static void
set_condition(JoinCut *j)
{
	Node	   *condition = j->bound.rest == NIL ? NULL : (Node *) make_ands_explicit(j->bound.rest);
	BooleanTest *test;
	List	   *substs = NIL;
	ListCell   *lc;

	if (condition == NULL)
		return;
	j->plan->condition_text = wms_an_text(condition, j->query->rtable);
	foreach(lc, wms_an_level_vars(condition, -1))
	{
		Var		   *var = lfirst(lc);
		int			s = bms_is_member(var->varno, j->side[0].rels) ? 0 : 1;
		int			column = column_of(j, s, (Node *) var, NULL);

		wms_an_add_subst(&substs, (Node *) var,
						 (Node *) makeVar(s == 0 ? OUTER_VAR : INNER_VAR, column, var->vartype, var->vartypmod, var->varcollid, 0));
	}
	test = makeNode(BooleanTest);	/* so that it is never NULL */
	test->arg = (Expr *) wms_an_subst_node(condition, substs);
	test->booltesttype = IS_TRUE;
	test->location = -1;
	j->plan->condition = (Node *) test;
}

/* Columns that the operator needs for itself. */
static void
add_own_columns(JoinCut *j, int s)
{
	Side	   *side = &j->side[s];
	WmsJoinSide *plan = &j->plan->side[s];
	AnTime		about;
	Node	   *time = row_time(j, s, &about);

	if (time)
	{
		int			column = column_of(j, s, time, &about);

		plan->time_column = side->bounded ? column : 0;
		plan->event_column = j->bound.bound == WMS_BOUND_RANGE ? column : 0;
		plan->bound_column = j->bound.bound == WMS_BOUND_SAME ? column : 0;
	}
	if (side->own != NIL)
		plan->own_text = wms_an_text((Node *) make_ands_explicit(side->own), j->query->rtable);
	if (side->own != NIL)
		plan->own_column = wms_an_add_column(&side->tlist, copyObject((Node *) make_ands_explicit(side->own)), "own")->resno;
	plan->bounded = side->bounded;
	plan->out_first = 1;
	plan->out_count = side->out_count;
}

static void
finish_side(JoinCut *j, int s)
{
	Side	   *side = &j->side[s];
	Query	   *query = side->query;
	int			ord_column = 0;

	if (wms_an_has_raw_rows(j->a, query))
		ord_column = wms_an_add_column(&side->tlist, wms_an_carried(j->a, query, AN_ORD), AN_ORD)->resno;
	query->targetList = copyObject(side->tlist);
	query->hasSubLinks = checkExprHasSubLink((Node *) query->targetList) || checkExprHasSubLink((Node *) query->jointree);
	wms_an_refuse_sessions(j->a, query, (Node *) query->targetList);
	wms_an_refuse_sessions(j->a, query, (Node *) query->jointree);
	if (j->a->refusal)
		return;
	wms_an_open_from(query->jointree);
	wms_an_pull_up(j->a, query);
	side->input = wms_an_input(j->a, query, ord_column);
	j->plan->side[s].input_desc = wms_an_desc(query->targetList, true);
}

/* ---------------------------------------------------------------- the operator */

static void
set_keys(JoinCut *j)
{
	WmsOpPlan  *op = j->op;
	int			i = 0;
	ListCell   *lc;

	op->nkeys = list_length(j->bound.keys);
	op->keys = palloc0(sizeof(TargetEntry *) * Max(op->nkeys, 1));
	op->key_texts = palloc0(sizeof(char *) * Max(op->nkeys, 1));
	op->key_eq = palloc0(sizeof(Oid) * Max(op->nkeys, 1));
	foreach(lc, j->bound.keys)
	{
		AnJoinKey  *key = lfirst(lc);

		op->key_texts[i] = wms_an_text(key->condition, j->query->rtable);
		op->keys[i] = makeTargetEntry((Expr *) copyObject(key->condition), i + 1, op->key_texts[i], false);
		op->key_eq[i] = key->eq;
		i++;
	}
}

static void
set_plan(JoinCut *j)
{
	WmsOpPlan  *op = j->op;
	WmsJoinPlan *plan = j->plan;

	plan->type = j->type;
	plan->bound = j->bound.bound;
	plan->has_min = j->bound.has_min;
	plan->has_max = j->bound.has_max;
	plan->min_us = j->bound.min_us;
	plan->max_us = j->bound.max_us;
	op->join = plan;
	op->bounded = j->side[0].bounded || j->side[1].bounded;
	for (int s = 0; s < 2; s++)
	{
		op->lag_us = Max(op->lag_us, wms_an_lag(j->a, j->side[s].query));
		op->lag_us = Max(op->lag_us, j->bound.about[s].lag_us);
		plan->side[s].name = pstrdup(side_name(j, s));
	}
}

/* How much older than W a row may be when it goes out, besides what it could be when it came. */
static int64
held_us(const JoinCut *j)
{
	if (j->bound.bound != WMS_BOUND_RANGE)
		return 0;
	return Max(0, Max(j->bound.has_max ? j->bound.max_us : 0, j->bound.has_min ? -j->bound.min_us : 0));
}

static int64
window_us(const JoinCut *j)
{
	if (j->bound.bound != WMS_BOUND_SAME || j->bound.about[0].kind != AN_WINDOW)
		return 0;
	return Max(j->bound.about[0].reach_us, j->bound.about[1].reach_us);
}

/* Is the column the time that bounds the join, or as good as it? */
static bool
is_bound_time(JoinCut *j, int s, Node *expr, const AnTime *time)
{
	const AnTime *about = &j->bound.about[s];

	if (j->bound.bound == WMS_BOUND_NONE)
		return false;
	if (equal(expr, j->bound.time[s]))
		return true;
	return about->kind == AN_WINDOW && time->kind != AN_EVENT && wms_an_same_window(about, time);
}

static AnTime
out_time(JoinCut *j, int s, Node *expr, const AnTime *in)
{
	Side	   *side = &j->side[s];
	AnTime		time = *in;
	bool		bounds = is_bound_time(j, s, expr, in);

	if (time.kind == AN_NONE)
		return time;
	time.finished = false;
	time.nullable |= side->nullable;
	time.bounded &= side->leaves;
	time.lag_us = Max(time.lag_us, j->op->lag_us) + held_us(j);
	if (!bounds)
		time.lag_us += wms_an_spread(j->a, side->query) + window_us(j);
	else if (j->bound.bound == WMS_BOUND_SAME && j->type == JOIN_INNER)
		time.sources = bms_union(j->bound.about[0].sources, j->bound.about[1].sources);
	return time;
}

static AttrNumber
out_number(const JoinCut *j, int s, int column)
{
	return s == 0 ? column : j->side[0].out_count + column;
}

static void
set_out(JoinCut *j)
{
	WmsOpPlan  *op = j->op;
	List	   *tlist = NIL;
	AnSet	   *set;

	for (int s = 0; s < 2; s++)
	{
		for (int i = 0; i < j->side[s].out_count; i++)
		{
			TargetEntry *tle = list_nth(j->side[s].tlist, i);

			wms_an_add_column(&tlist, (Node *) tle->expr, tle->resname);
		}
	}
	op->out_desc = wms_an_desc(tlist, false);
	set = wms_an_add_set(j->a, psprintf("wms_op_%d", op->id), op->out_desc);
	set->op = op->id;
	set->location = j->location;
	set->lag_us = op->lag_us + held_us(j);
	set->spread_us = Max(Max(0, -j->bound.min_us), Max(0, j->bound.max_us)) + window_us(j);
	for (int s = 0; s < 2; s++)
	{
		Side	   *side = &j->side[s];

		set->spread_us += wms_an_spread(j->a, side->query);
		for (int i = 0; i < side->out_count; i++)
		{
			Node	   *expr = (Node *) list_nth_node(TargetEntry, side->tlist, i)->expr;
			int			n = out_number(j, s, i + 1) - 1;

			set->times[n] = out_time(j, s, expr, list_nth(side->about, i));
			set->not_null[n] = !side->nullable && wms_an_not_null(j->a, side->query, expr);
		}
		if (side->evt > 0 && set->evt == 0)
			set->evt = out_number(j, s, side->evt);
		else if (side->evt > 0)
			set->evt2 = out_number(j, s, side->evt);
	}
}

/* CASE WHEN there THEN row END */
static Node *
row_if_there(JoinCut *j, int s, Node *row, List *substs)
{
	CaseExpr   *result = makeNode(CaseExpr);
	CaseWhen   *when = makeNode(CaseWhen);

	when->expr = (Expr *) makeVar(j->set, out_number(j, s, j->side[s].there), BOOLOID, -1, InvalidOid, 0);
	when->result = (Expr *) wms_an_subst_node(row, substs);
	when->location = -1;
	result->casetype = exprType(row);
	result->args = list_make1(when);
	result->defresult = (Expr *) makeNullConst(result->casetype, -1, InvalidOid);
	result->location = -1;
	return (Node *) result;
}

/* In the level, columns of the operator stand where columns of the sides stood. */
static void
replace_in_level(JoinCut *j)
{
	List	   *substs = NIL;
	List	   *rows = NIL;
	ListCell   *lc;

	for (int s = 0; s < 2; s++)
	{
		for (int i = 0; i < j->side[s].out_count; i++)
		{
			Node	   *expr = (Node *) list_nth_node(TargetEntry, j->side[s].tlist, i)->expr;

			if (may_go_out(j, s, expr) && bms_is_subset(wms_an_rels_of(expr), j->side[s].rels))
				wms_an_add_subst(&substs, expr,
								 (Node *) makeVar(j->set, out_number(j, s, i + 1), exprType(expr), exprTypmod(expr), exprCollation(expr), 0));
		}
	}
	for (int s = 0; s < 2; s++)
	{
		foreach(lc, j->side[s].rows)
			wms_an_add_subst(&rows, lfirst(lc), row_if_there(j, s, lfirst(lc), substs));
	}
	wms_an_subst(j->query, list_concat(rows, substs));
}

/* The row set's place in the level, still empty. */
static void
take_place(JoinCut *j, Node **place)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);

	rte->eref = makeAlias("join", NIL);
	wms_an_void_rte(rte);
	j->query->rtable = lappend(j->query->rtable, rte);
	ref->rtindex = j->set;
	*place = (Node *) ref;
	if (j->above != NIL)
		*place = (Node *) makeFromExpr(list_make1(ref), (Node *) make_ands_explicit(j->above));
}

/* Makes an operator of the join that stands at this place in the tree of a level. */
void
wms_an_cut_join(Analysis *a, Query *query, Node **place, bool with_time)
{
	JoinExpr   *join = castNode(JoinExpr, *place);
	JoinCut		j = {.a = a,.query = query,.type = join->jointype,.rtindex = join->rtindex,.set = list_length(query->rtable) + 1};

	set_side(&j, 0, join->larg);
	set_side(&j, 1, join->rarg);
	j.location = wms_an_place(a, stream_of(&j, 1));
	read_conditions(&j, join->quals);
	if (a->refusal == NULL)
		set_subqueries_apart(&j);
	if (a->refusal == NULL)
		check_bound(&j);
	if (a->refusal)
		return;
	tell_of_state(&j);
	j.op = wms_an_new_op(a, WMS_OP_JOIN);
	j.plan = palloc0(sizeof(WmsJoinPlan));
	add_keys(&j);
	take_place(&j, place);
	add_out_columns(&j, with_time);
	set_condition(&j);
	set_keys(&j);
	for (int s = 0; s < 2; s++)
		add_own_columns(&j, s);
	set_plan(&j);
	set_out(&j);
	for (int s = 0; s < 2 && a->refusal == NULL; s++)
		finish_side(&j, s);
	if (a->refusal)
		return;
	j.op->input = j.side[0].input;
	j.op->input2 = j.side[1].input;
	j.op->input_desc = j.plan->side[0].input_desc;
	wms_an_set(a, psprintf("wms_op_%d", j.op->id))->sources = list_concat_unique_int(list_copy(j.op->input->sources), j.op->input2->sources);
	replace_in_level(&j);
	lfirst(list_nth_cell(query->rtable, j.set - 1)) = wms_an_op_rte(j.op);
}
