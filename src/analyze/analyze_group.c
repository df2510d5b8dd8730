/*
 * analyze_group.c
 *	  A level with GROUP BY or aggregates becomes an operator; so does one that ranks raw rows of a window.
 *
 * The level is cut in two.  The *lower query* has its FROM and WHERE and gives, per row, the group's keys, the arguments of the
 * aggregates and hidden columns.  The level itself goes on with the rest (HAVING as its WHERE, select list, window
 * functions, ORDER BY ...) over the row set of finished groups: what was a key or an
 * aggregate there is now a column.
 *
 * Columns of an aggregate's lower query, in order: keys; arguments of aggregates with kept arguments;
 * arguments of the others; the event time, if the operator makes the windows; #ord.
 *
 * GROUP BY a primary key lets a level use the table's other columns too.  To Postgres they are the same all over the group; to a stream they
 * are not, for the row may change while the group is open.  So they are no part of the key, or one group would become several: a
 * group *carries* their values, those of the row that came last, by an aggregate of ours for each.
 *
 * Who makes the windows.  A window call over the event time that is a key is computed by
 * the operator from the time, unless a set-returning call is used for something else too: then it must
 * stay in the lower query.  A key that is made from a window (lower(w), or a column that
 * is one) and determines it is replaced by the window.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_agg.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "analyze/analyze_internal.h"

typedef struct GroupKey
{
	Node	   *expr;			/* as the lower query computes it */
	Node	   *shown;			/* as the definition has it */
	char	   *name;			/* of the row set's column */
	char	   *label;			/* for messages */
	Oid			eq;
	AnTime		time;
} GroupKey;

typedef struct Cut
{
	Analysis   *a;
	Query	   *query;			/* the level; its upper half in the end */
	int			set;			/* range table number that the operator's row set gets while we replace */
	List	   *keys;			/* GroupKey * */
	List	   *aggs;			/* Aggref *, different ones */
	List	   *carried;		/* Var *: columns that the keys determine, different ones; their values come behind those of aggs */
	List	   *substs;			/* bounds of windows that stand for them */
	WmsOpPlan  *op;
	Query	   *lower;
	List	   *tlist;			/* of lower */
} Cut;

/* ---------------------------------------------------------------- keys */

/* The default equality operator of a type; InvalidOid: it has none. */
Oid
wms_an_equality(Oid type)
{
	return lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
}

static GroupKey *
key_of(Cut *g, Node *expr)
{
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		if (equal(key->expr, expr))
			return key;
	}
	return NULL;
}

static int
key_number(Cut *g, const GroupKey *key)
{
	int			n = 0;
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		n++;
		if (lfirst(lc) == key)
			return n;
	}
	elog(ERROR, "key not found");
}

/* What to call a key that is not in the SELECT list, and a column that is carried. */
static char *
label_of(Cut *g, Node *expr)
{
	ListCell   *lc;

	if (IsA(expr, Var) && ((Var *) expr)->varattno == InvalidAttrNumber)
		return rt_fetch(((Var *) expr)->varno, g->query->rtable)->eref->aliasname;
	if (IsA(expr, Var))
		return get_rte_attribute_name(rt_fetch(((Var *) expr)->varno, g->query->rtable), ((Var *) expr)->varattno);
	foreach(lc, g->a->window_names)
	{
		AnSubst    *name = lfirst(lc);

		if (equal(name->from, expr))
			return strVal(name->to);
	}
	return wms_an_text(expr, g->query->rtable);
}

static GroupKey *
add_key(Cut *g, Node *expr, Node *shown, const char *name, Oid eq, AnTime time)
{
	GroupKey   *key = key_of(g, expr);

	if (key)
		return key;
	key = palloc0(sizeof(GroupKey));
	key->expr = expr;
	key->shown = shown;
	key->name = name ? pstrdup(name) : psprintf("key %d", list_length(g->keys) + 1);
	key->label = name ? key->name : label_of(g, shown);
	key->eq = eq;
	key->time = time;
	g->keys = lappend(g->keys, key);
	return key;
}

static bool
has_fixed_size(const AnTime *time)
{
	return time->window.kind == WMS_WINDOW_GRID;
}

/* The other bound of the same window among the group expressions. */
static Node *
other_bound(Cut *g, const AnTime *time)
{
	AnTimeKind	wanted = time->kind == AN_LOWER ? AN_UPPER : AN_LOWER;
	ListCell   *lc;

	foreach(lc, g->query->groupClause)
	{
		Node	   *expr = (Node *) get_sortgroupclause_expr(lfirst(lc), g->query->targetList);
		AnTime		other = wms_an_time(g->a, g->query, expr);

		if (other.kind == wanted && other.watermarked && wms_an_same_window(&other, time))
			return expr;
	}
	return NULL;
}

/* A window of which only bounds are at hand. */
static Node *
window_from_bounds(Node *bound, Node *other, const AnTime *time)
{
	Node	   *lower = time->kind == AN_LOWER ? bound : other;
	Node	   *upper = time->kind == AN_UPPER ? bound : other;

	if (lower == NULL)
		lower = wms_an_shifted(copyObject(upper), time->type, -time->window.size);
	if (upper == NULL)
		upper = wms_an_shifted(copyObject(lower), time->type, time->window.size);
	return wms_an_range(copyObject(lower), copyObject(upper), time->type);
}

static Node *
key_column(Cut *g, const GroupKey *key)
{
	return (Node *) makeVar(g->set, key_number(g, key), exprType(key->expr), exprTypmod(key->expr), exprCollation(key->expr), 0);
}

/* A bound of a window as key: the window takes its place, if the bound determines it. */
static void
add_bound_key(Cut *g, TargetEntry *tle, AnTime time)
{
	Node	   *expr = (Node *) tle->expr;
	Node	   *other = has_fixed_size(&time) ? NULL : other_bound(g, &time);
	Node	   *window;
	bool		upper = time.kind == AN_UPPER;
	GroupKey   *key;

	if (!has_fixed_size(&time) && other == NULL)
	{
		wms_no_one_bound(g->a, expr);
		return;
	}
	if (IsA(expr, FuncExpr))
		window = linitial(((FuncExpr *) expr)->args);
	else
		window = window_from_bounds(expr, other, &time);
	time.kind = AN_WINDOW;
	key = add_key(g, window, window, tle->resname, wms_an_equality(exprType(window)), time);
	wms_an_add_subst(&g->substs, expr, wms_an_bound(key_column(g, key), upper, time.type));
}

static void
collect_keys(Cut *g)
{
	ListCell   *lc;

	foreach(lc, g->query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		TargetEntry *tle = get_sortgroupclause_tle(clause, g->query->targetList);
		AnTime		time = wms_an_time(g->a, g->query, (Node *) tle->expr);

		if (time.watermarked && (time.kind == AN_LOWER || time.kind == AN_UPPER))
			add_bound_key(g, tle, time);
		else
			add_key(g, (Node *) tle->expr, (Node *) tle->expr, tle->resname, clause->eqop, time);
	}
}

/* ---------------------------------------------------------------- aggregates */

typedef struct AggsContext
{
	Cut		   *g;
	int			depth;
} AggsContext;

static bool
aggs_walker(Node *node, void *arg)
{
	AggsContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		context->depth++;
		query_tree_walker((Query *) node, aggs_walker, context, 0);
		context->depth--;
		return false;
	}
	if (IsA(node, Aggref) && (int) ((Aggref *) node)->agglevelsup == context->depth)
	{
		node = copyObject(node);
		if (context->depth > 0)
			IncrementVarSublevelsUp(node, -context->depth, context->depth);
		if (!list_member(context->g->aggs, node))
			context->g->aggs = lappend(context->g->aggs, node);
		return false;
	}
	return expression_tree_walker(node, aggs_walker, context);
}

/* Without grouping sets every GROUPING() is 0. */
static Node *
grouping_mutator(Node *node, void *arg)
{
	int		   *depth = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
	{
		Query	   *result;

		(*depth)++;
		result = query_tree_mutator((Query *) node, grouping_mutator, arg, 0);
		(*depth)--;
		return (Node *) result;
	}
	if (IsA(node, GroupingFunc) && (int) ((GroupingFunc *) node)->agglevelsup == *depth)
		return (Node *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(0), false, true);
	return expression_tree_mutator(node, grouping_mutator, arg);
}

static void
write_out_grouping(Query *query)
{
	int			depth = 0;

	query_tree_mutator(query, grouping_mutator, &depth, QTW_DONT_COPY_QUERY);
}

static void
collect_aggs(Cut *g)
{
	AggsContext context = {g, 0};

	aggs_walker((Node *) g->query->targetList, &context);
	aggs_walker(g->query->havingQual, &context);
}

static void
add_column_subst(Cut *g, List **substs, Node *expr, int column)
{
	wms_an_add_subst(substs, expr, (Node *) makeVar(g->set, column, exprType(expr), exprTypmod(expr), exprCollation(expr), 0));
}

/* What becomes of the level's expressions above the operator. */
static List *
upper_substs(Cut *g)
{
	List	   *substs = list_copy(g->substs);
	int			n = list_length(g->keys);
	ListCell   *lc;

	foreach(lc, g->aggs)
		add_column_subst(g, &substs, lfirst(lc), ++n);
	foreach(lc, g->carried)
		add_column_subst(g, &substs, lfirst(lc), ++n);
	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		if (!IsA(key->expr, Const))
			wms_an_add_subst(&substs, key->expr, key_column(g, key));
	}
	return substs;
}

/* What the level uses besides. */
static void
collect_carried(Cut *g)
{
	List	   *substs = upper_substs(g);
	List	   *rest = list_make2(wms_an_subst_node((Node *) g->query->targetList, substs), wms_an_subst_node(g->query->havingQual, substs));

	g->carried = wms_an_level_vars((Node *) rest, g->set);
}

/* The value in the row that came last, as the parser would make the call. */
static Aggref *
latest_of(Var *var)
{
	Aggref	   *agg = makeNode(Aggref);

	agg->aggfnoid = wms_latest_aggregate();
	agg->aggtype = var->vartype;
	agg->aggcollid = agg->inputcollid = var->varcollid;
	agg->aggargtypes = list_make1_oid(var->vartype);
	agg->args = list_make1(makeTargetEntry(copyObject((Expr *) var), 1, NULL, false));
	agg->aggkind = AGGKIND_NORMAL;
	agg->aggno = agg->aggtransno = -1;
	agg->location = -1;
	return agg;
}

/* ---------------------------------------------------------------- the window */

static bool
is_time_key(const GroupKey *key)
{
	return key->time.watermarked && (key->time.kind == AN_WINDOW || key->time.kind == AN_EVENT);
}

/*
 * Which key closes the group: the window, or the raw time, which decides when both are there.  -1: none.
 */
static int
find_window_key(Cut *g)
{
	GroupKey   *found = NULL;
	int			result = -1;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		n++;
		if (!is_time_key(key))
			continue;
		if (found)
		{
			if (!bms_equal(found->time.sources, key->time.sources) || (found->time.kind == AN_EVENT && key->time.kind == AN_EVENT))
				wms_no_two_times(g->a, key->shown);
			else if (found->time.kind == AN_WINDOW && key->time.kind == AN_WINDOW)
				wms_no_two_windows(g->a, key->shown);
			else if (found->time.kind == AN_EVENT)
				continue;
		}
		found = key;
		result = n - 1;
	}
	return result;
}

/* Sessions that are still to be merged make the groups by themselves; -1: there are none. */
static int
find_session_key(Cut *g)
{
	GroupKey   *session = NULL;
	int			result = -1;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		n++;
		if (!wms_an_is_session(&key->time))
			continue;
		if (g->a->options->mode == WMS_UPDATE)
			wms_no_update_session(g->a, key->shown);
		else if (g->op->kind != WMS_OP_AGGREGATE)
			wms_no_session_here(g->a, key->shown);
		else if (key->time.kind != AN_WINDOW)
			wms_no_one_bound(g->a, key->shown);
		else if (list_length(g->keys) < 2)
			wms_no_session_alone(g->a, key->shown);
		session = key;
		result = n - 1;
	}
	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		if (session && key != session && (is_time_key(key) || wms_an_is_session(&key->time)))
			wms_no_two_windows(g->a, key->shown);
	}
	return result;
}

/* A row that has a time, but is without the window that closes its group, would get lost. */
static void
check_windows_are_given(Cut *g)
{
	int			n = 0;
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		if (key->time.optional && (n == g->op->window_key || !key->time.watermarked))
			wms_no_optional_window(g->a, key->shown);
		n++;
	}
}

static void
set_window(Cut *g)
{
	WmsOpPlan  *op = g->op;
	GroupKey   *key;

	op->window_key = find_session_key(g);
	if (op->window_key < 0 && g->a->refusal == NULL)
		op->window_key = find_window_key(g);
	check_windows_are_given(g);
	if (op->window_key < 0 || g->a->refusal)
		return;
	key = list_nth(g->keys, op->window_key);
	op->bounded = key->time.watermarked && key->time.bounded;
	op->window = key->time.window;
	if (key->time.kind == AN_EVENT)
		op->window.kind = WMS_WINDOW_TIME;
	if (key->time.processing)
	{
		if (g->a->has_watermark || list_length(g->a->sources) != 1)
			wms_no_processing_time(g->a, key->shown);
		g->a->processing_time = true;
	}
}

/* ---------------------------------------------------------------- the lower query */

static void
make_lower(Cut *g)
{
	Query	   *lower = makeNode(Query);

	*lower = *g->query;
	lower->rtable = copyObject(g->query->rtable);
	lower->jointree = copyObject(g->query->jointree);
	lower->targetList = NIL;
	lower->groupClause = NIL;
	lower->groupDistinct = false;
	lower->havingQual = NULL;
	lower->windowClause = NIL;
	lower->distinctClause = NIL;
	lower->hasDistinctOn = false;
	lower->sortClause = NIL;
	lower->limitCount = lower->limitOffset = NULL;
	lower->constraintDeps = NIL;
	lower->hasAggs = lower->hasWindowFuncs = lower->hasTargetSRFs = false;
	g->lower = lower;
}

/* The input column that holds an expression, behind the keys. */
static AttrNumber
argument_column(Cut *g, Node *expr)
{
	ListCell   *lc;
	char		name[NAMEDATALEN];

	for_each_from(lc, g->tlist, list_length(g->keys))
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (equal(tle->expr, expr))
			return tle->resno;
	}
	snprintf(name, sizeof(name), "arg %d", list_length(g->tlist) + 1 - list_length(g->keys));
	return wms_an_add_column(&g->tlist, copyObject(expr), name)->resno;
}

static Expr *as_column(Cut *g, Expr *expr, int offset, bool by_executor);

/* A row whose type has no name, but for a number that this process gave it, is not kept: its fields are, and it is made of them again. */
static Expr *
row_of_columns(Cut *g, RowExpr *row, int offset)
{
	RowExpr    *result = copyObject(row);
	ListCell   *lc;

	foreach(lc, result->args)
		lfirst(lc) = as_column(g, lfirst(lc), offset, true);
	return (Expr *) result;
}

/* An argument as a column of the input, counted from offset; where the executor runs the aggregate it may be made of columns and constants. */
static Expr *
as_column(Cut *g, Expr *expr, int offset, bool by_executor)
{
	AttrNumber	column;

	if (expr == NULL || (by_executor && IsA(expr, Const)))
		return expr;
	if (by_executor && IsA(expr, RowExpr) && ((RowExpr *) expr)->row_typeid == RECORDOID)
		return row_of_columns(g, (RowExpr *) expr, offset);
	column = argument_column(g, (Node *) expr);
	return (Expr *) makeVar(1, column + offset, exprType((Node *) expr), exprTypmod((Node *) expr), exprCollation((Node *) expr), 0);
}

static Aggref *
over_columns(Cut *g, Aggref *agg, int offset, bool by_executor)
{
	Aggref	   *result = copyObject(agg);
	ListCell   *lc;

	foreach(lc, result->args)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		tle->expr = as_column(g, tle->expr, offset, by_executor);
	}
	foreach(lc, result->aggdirectargs)
		lfirst(lc) = as_column(g, lfirst(lc), offset, by_executor);
	result->aggfilter = as_column(g, result->aggfilter, offset, by_executor);
	return result;
}

static bool
has_unnamed_state(const Aggref *agg, Form_pg_aggregate form)
{
	Oid			types[FUNC_MAX_ARGS];
	int			n = get_aggregate_argtypes((Aggref *) agg, types);
	Oid			state = resolve_aggregate_transtype(agg->aggfnoid, form->aggtranstype, types, n);

	return state == RECORDOID || state == RECORDARRAYOID;
}

/* Why the arguments of an aggregate must be kept; NULL if its state can be. */
static const char *
why_kept(Cut *g, const Aggref *agg)
{
	HeapTuple	tuple;
	Form_pg_aggregate form;
	const char *why = NULL;

	if (agg->aggkind == AGGKIND_ORDERED_SET)
		return "an ordered-set aggregate";
	if (agg->aggkind == AGGKIND_HYPOTHETICAL)
		return "a hypothetical-set aggregate";
	if (agg->aggdistinct)
		return "DISTINCT";
	if (agg->aggorder)
		return "ORDER BY";
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(agg->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", agg->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	if (has_unnamed_state(agg, form))
		why = "its state is a row whose type has no name";
	else if (form->aggtranstype == INTERNALOID && (!OidIsValid(form->aggserialfn) || !OidIsValid(form->aggdeserialfn)))
		why = "its state cannot be stored";
	else if (g->op->window.kind == WMS_WINDOW_SESSION && !OidIsValid(form->aggcombinefn))
		why = "its states cannot be combined when sessions merge";
	else if (g->op->retracts)
		why = wms_an_why_no_inverse(agg, form);
	ReleaseSysCache(tuple);
	if (why == NULL && g->a->options->force_kept)
		why = "wmstream.force_kept_arguments is on";
	return why;
}

/* "SELECT * FROM kept rows ORDER BY #group, #row", so that rows of a group come in the order of their arrival. */
static Query *
sorted_kept_rows(Cut *g, char *name)
{
	TypeCacheEntry *type = lookup_type_cache(INT8OID, TYPECACHE_EQ_OPR | TYPECACHE_LT_OPR);
	TupleDesc	desc = g->op->kept_desc;
	List	   *tlist = NIL;
	Query	   *query;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		wms_an_add_column(&tlist, (Node *) makeVar(1, i + 1, att->atttypid, att->atttypmod, att->attcollation, 0), NameStr(att->attname));
	}
	query = wms_an_select_from(tlist, wms_rowset_rte(name, desc, name));
	for (int i = 0; i < 2; i++)
	{
		SortGroupClause *sort = makeNode(SortGroupClause);

		sort->tleSortGroupRef = i + 1;
		sort->eqop = type->eq_opr;
		sort->sortop = type->lt_opr;
		sort->hashable = true;
		list_nth_node(TargetEntry, tlist, i)->ressortgroupref = i + 1;
		query->sortClause = lappend(query->sortClause, sort);
	}
	return query;
}

/* The aggregates with kept arguments over these rows, one row per group. */
static void
make_kept_query(Cut *g, List *calls)
{
	char	   *name = psprintf("wms_kept_%d", g->op->id);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	List	   *tlist = NIL;
	Query	   *query;
	ListCell   *lc;

	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = sorted_kept_rows(g, name);
	rte->eref = makeAlias("kept", NIL);
	rte->inFromCl = true;
	foreach(lc, rte->subquery->targetList)
		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(lfirst_node(TargetEntry, lc)->resname)));

	if (g->keys == NIL)
		wms_an_add_column(&tlist, (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(0), false, FLOAT8PASSBYVAL), AN_GROUP);
	else
		wms_an_add_column(&tlist, (Node *) makeVar(1, 1, INT8OID, -1, InvalidOid, 0), AN_GROUP)->ressortgroupref = 1;
	foreach(lc, calls)
		wms_an_add_column(&tlist, lfirst(lc), psprintf("agg %d", list_length(tlist)));
	query = wms_an_select_from(tlist, rte);
	query->hasAggs = true;
	g->op->kept_query = query;
	if (g->keys == NIL)
		return;					/* the one group 0, also of no rows */
	query->sortClause = list_make1(copyObject(linitial(rte->subquery->sortClause)));
	query->groupClause = copyObject(query->sortClause);
}

/* Columns "#group", "#row", then the arguments that are in the target list so far. */
static void
set_kept_desc(Cut *g)
{
	int			nkeys = list_length(g->keys);
	TupleDesc	arguments = wms_an_desc(g->tlist, true);
	TupleDesc	desc = CreateTemplateTupleDesc(2 + arguments->natts - nkeys);

	TupleDescInitEntry(desc, 1, AN_GROUP, INT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, AN_ROW, INT8OID, -1, 0);
	for (int i = nkeys; i < arguments->natts; i++)
		TupleDescCopyEntry(desc, 3 + i - nkeys, arguments, i + 1);
	g->op->kept_desc = desc;
}

/* All aggregates of the operator, and for explain what each is called. */
static List *
all_aggs(Cut *g, List **texts)
{
	List	   *aggs = list_copy(g->aggs);
	ListCell   *lc;

	*texts = NIL;
	foreach(lc, g->aggs)
		*texts = lappend(*texts, wms_an_text(lfirst(lc), g->query->rtable));
	foreach(lc, g->carried)
	{
		aggs = lappend(aggs, latest_of(lfirst_node(Var, lc)));
		*texts = lappend(*texts, psprintf("latest %s", wms_an_text(lfirst(lc), g->query->rtable)));
	}
	return aggs;
}

static void
plan_aggregates(Cut *g)
{
	WmsOpPlan  *op = g->op;
	List	   *texts;
	List	   *aggs = all_aggs(g, &texts);
	int			offset = 2 - list_length(g->keys);
	List	   *kept_calls = NIL;
	int			i = 0;
	ListCell   *lc;

	op->naggs = list_length(aggs);
	op->aggs = palloc0(sizeof(WmsAggPlan) * Max(op->naggs, 1));
	foreach(lc, aggs)
	{
		Aggref	   *agg = lfirst(lc);
		WmsAggPlan *plan = &op->aggs[i];

		plan->text = list_nth(texts, i++);
		plan->kept_because = why_kept(g, agg);
		plan->kept = (plan->kept_because != NULL);
		plan->inverse = op->retracts && !plan->kept;
		if (!plan->kept)
			continue;
		plan->aggref = over_columns(g, agg, 0, true);
		kept_calls = lappend(kept_calls, over_columns(g, agg, offset, true));
	}
	set_kept_desc(g);
	if (kept_calls)
		make_kept_query(g, kept_calls);
	i = 0;
	foreach(lc, aggs)
	{
		WmsAggPlan *plan = &op->aggs[i++];

		if (!plan->kept)
			plan->aggref = over_columns(g, lfirst(lc), 0, false);
	}
}

/* ---------------------------------------------------------------- the operator makes the windows */

/* Does any expression of the lower query mention an entry of its FROM, or give a set? */
static bool
mentions(Query *lower, int rtindex)
{
	List	   *parts = list_make2(lower->targetList, lower->jointree);
	ListCell   *lc;

	foreach(lc, lower->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY)
			parts = lappend(parts, rte->subquery);
		else if (rte->rtekind == RTE_FUNCTION)
			parts = lappend(parts, rte->functions);
		else if (rte->rtekind == RTE_TABLEFUNC)
			parts = lappend(parts, rte->tablefunc);
		else if (rte->rtekind == RTE_VALUES)
			parts = lappend(parts, rte->values_lists);
	}
	foreach(lc, wms_an_level_vars((Node *) parts, -1))
	{
		if ((int) ((Var *) lfirst(lc))->varno == rtindex)
			return true;
	}
	return false;
}

/* The time that a call makes windows of, as an expression of the lower query. */
static Node *
time_of_windows(Cut *g, FuncExpr *call, const AnTime *time)
{
	Node	   *argument = linitial(call->args);

	if (wms_an_is_now(argument))
		return wms_an_carried(g->a, g->lower, AN_EVT);
	return wms_an_event_of(copyObject(argument), time->type);
}

/* The operator makes and merges the sessions: it gets time and gap. */
static void
move_session_to_operator(Cut *g, GroupKey *key)
{
	WmsOpPlan  *op = g->op;
	TargetEntry *tle = list_nth(g->tlist, op->window_key);
	Node	   *window = (Node *) tle->expr;
	Node	   *time;

	tle->expr = (Expr *) makeNullConst(exprType(window), -1, InvalidOid);
	wms_an_refuse_sessions(g->a, g->lower, (Node *) g->tlist);
	wms_an_refuse_sessions(g->a, g->lower, g->lower->jointree->quals);
	if (wms_an_call(window) == WMS_FN_SESSION)
		time = time_of_windows(g, (FuncExpr *) window, &key->time);
	else
		time = wms_an_bound(copyObject(window), false, key->time.type);
	op->time_column = wms_an_add_column(&g->tlist, time, "time")->resno;
	if (op->window.size == 0)
		op->gap_column = wms_an_add_column(&g->tlist, wms_an_session_gap(window, key->time.type), "gap")->resno;
}

/*
 * Takes the window call out of the lower query where possible, and gives the operator the time instead.
 * The target list holds keys and arguments at this point.
 */
static void
move_window_to_operator(Cut *g)
{
	WmsOpPlan  *op = g->op;
	GroupKey   *key = op->window_key >= 0 ? list_nth(g->keys, op->window_key) : NULL;
	TargetEntry *tle;
	Expr	   *was;
	FuncExpr   *call = NULL;
	int			rtindex = 0;

	if (key && wms_an_is_session(&key->time))
		move_session_to_operator(g, key);
	if (key == NULL || op->window.kind == WMS_WINDOW_TIME || op->window.kind == WMS_WINDOW_SESSION || key->time.finished)
		return;
	tle = list_nth(g->tlist, op->window_key);
	was = tle->expr;
	if (wms_an_call((Node *) was) != WMS_FN_OTHER)
		call = (FuncExpr *) was;
	else if (IsA(was, Var))
	{
		rtindex = ((Var *) was)->varno;
		call = wms_an_function_rte_call(rt_fetch(rtindex, g->lower->rtable));
	}
	if (call == NULL)
		return;

	tle->expr = (Expr *) makeNullConst(exprType((Node *) was), -1, InvalidOid);
	g->lower->targetList = g->tlist;
	if ((rtindex > 0 && (mentions(g->lower, rtindex) || !wms_an_remove_rte(g->lower, rtindex, true))) ||
		(call->funcretset && expression_returns_set((Node *) g->tlist)))
	{
		tle->expr = was;		/* used otherwise: it stays, and the key is ready-made */
		return;
	}
	if (rtindex > 0)
	{
		call = copyObject(call);
		wms_an_void_rte(rt_fetch(rtindex, g->lower->rtable));
	}
	op->time_column = wms_an_add_column(&g->tlist, time_of_windows(g, call, &key->time), "time")->resno;
}

/* Rows without a window make no group, also where nothing watches over their times. */
static void
leave_out_null_windows(Cut *g)
{
	ListCell   *lc;

	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);
		NullTest   *test;

		if (key->time.kind == AN_NONE || key->time.watermarked || wms_an_is_session(&key->time) || expression_returns_set(key->expr))
			continue;
		test = makeNode(NullTest);
		test->arg = copyObject((Expr *) key->expr);
		test->nulltesttype = IS_NOT_NULL;
		test->location = -1;
		g->lower->jointree->quals = make_and_qual(g->lower->jointree->quals, (Node *) test);
	}
}

/* ---------------------------------------------------------------- finishing both halves */

/* Adds #ord and makes the operator's input of the lower query. */
static void
finish_lower(Cut *g)
{
	Query	   *lower = g->lower;
	int			ord_column = 0;

	lower->targetList = g->tlist;
	if (wms_an_has_raw_rows(g->a, lower))
		ord_column = wms_an_add_column(&g->tlist, wms_an_carried(g->a, lower, AN_ORD), AN_ORD)->resno;
	lower->targetList = g->tlist;
	lower->hasTargetSRFs = expression_returns_set((Node *) g->tlist);
	g->op->input = wms_an_input(g->a, lower, ord_column);
	g->op->input_desc = wms_an_desc(lower->targetList, true);
	g->op->lag_us = wms_an_lag(g->a, lower);
	if (g->op->window_key >= 0)
		g->op->lag_us = Max(g->op->lag_us, ((GroupKey *) list_nth(g->keys, g->op->window_key))->time.lag_us);
}

static void
set_keys(Cut *g)
{
	WmsOpPlan  *op = g->op;
	int			i = 0;
	ListCell   *lc;

	op->nkeys = list_length(g->keys);
	op->keys = palloc0(sizeof(TargetEntry *) * Max(op->nkeys, 1));
	op->key_texts = palloc0(sizeof(char *) * Max(op->nkeys, 1));
	op->key_eq = palloc0(sizeof(Oid) * Max(op->nkeys, 1));
	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		op->keys[i] = makeTargetEntry((Expr *) copyObject(key->shown), i + 1, key->label, false);
		op->key_texts[i] = wms_an_text(key->shown, g->query->rtable);
		op->key_eq[i] = key->eq;
		i++;
	}
}

/* What is known of the operator's row set. */
static void
add_op_set(Cut *g, List *sources)
{
	WmsOpPlan  *op = g->op;
	AnSet	   *set = wms_an_add_set(g->a, psprintf("wms_op_%d", op->id), op->out_desc);
	int			i = 0;
	ListCell   *lc;

	set->op = op->id;
	set->location = wms_an_place(g->a, g->keys ? ((GroupKey *) linitial(g->keys))->shown : g->aggs ? linitial(g->aggs) : NULL);
	set->sources = list_copy(sources);
	set->lag_us = op->lag_us;
	foreach(lc, g->keys)
	{
		GroupKey   *key = lfirst(lc);

		set->not_null[i] = i == op->window_key || (key->time.kind != AN_NONE && !key->time.nullable) ||
			wms_an_not_null(g->a, g->query, key->expr);
		set->times[i] = key->time;
		set->times[i].finished = i == op->window_key;	/* a window beside the time that closes the group goes on */
		set->times[i].nullable = key->time.nullable && i != op->window_key;
		if (wms_an_is_session(&set->times[i]))
			set->times[i].window.kind = WMS_WINDOW_MERGED;
		set->times[i].lag_us = op->lag_us;
		if (i == op->window_key && key->time.watermarked)
			set->evt = i + 1;
		i++;
	}
	i += list_length(g->aggs);
	foreach(lc, g->carried)
		set->not_null[i++] = wms_an_not_null(g->a, g->query, lfirst(lc));
}

WmsOpPlan *
wms_an_new_op(Analysis *a, WmsOpKind kind)
{
	WmsOpPlan  *op = palloc0(sizeof(WmsOpPlan));

	op->kind = kind;
	op->id = list_length(a->ops);
	op->window_key = -1;
	a->ops = lappend(a->ops, op);
	return op;
}

static void
set_aggregate_out(Cut *g)
{
	List	   *tlist = NIL;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, g->keys)
		wms_an_add_column(&tlist, ((GroupKey *) lfirst(lc))->expr, ((GroupKey *) lfirst(lc))->name);
	foreach(lc, g->aggs)
		wms_an_add_column(&tlist, lfirst(lc), psprintf("agg %d", ++n));
	foreach(lc, g->carried)
		wms_an_add_column(&tlist, lfirst(lc), label_of(g, lfirst(lc)));
	g->op->out_desc = wms_an_desc(tlist, true);
}

RangeTblEntry *
wms_an_op_rte(const WmsOpPlan *op)
{
	char	   *name = psprintf("wms_op_%d", op->id);

	return wms_rowset_rte(name, op->out_desc, name);
}

static void
finish_upper(Cut *g)
{
	Query	   *query = g->query;
	Node	   *having;

	wms_an_subst(query, upper_substs(g));
	having = query->havingQual;
	query->havingQual = NULL;
	query->groupClause = NIL;
	query->groupDistinct = false;
	query->hasAggs = false;
	query->constraintDeps = NIL;
	wms_an_only_set(query, wms_an_op_rte(g->op), g->set);
	if (having)
	{
		if (g->set != 1)
			ChangeVarNodes(having, g->set, 1, 0);
		query->jointree->quals = having;
	}
	query->hasTargetSRFs = expression_returns_set((Node *) query->targetList);
	wms_an_drop_junk(query);
}

/* Cuts a level with GROUP BY or aggregates in two. */
void
wms_an_cut_group(Analysis *a, Query *query)
{
	Cut			g = {.a = a,.query = query,.set = list_length(query->rtable) + 1};

	if (query->groupingSets)
	{
		wms_no_clause(a, "GROUPING SETS, ROLLUP or CUBE", wms_an_place(a, query->groupingSets), "Create one stream for each grouping.");
		return;
	}
	write_out_grouping(query);
	collect_keys(&g);
	collect_aggs(&g);
	if (a->refusal)
		return;
	collect_carried(&g);

	g.op = wms_an_new_op(a, WMS_OP_AGGREGATE);
	g.op->global = (query->groupClause == NIL);
	set_window(&g);
	if (a->refusal)
		return;
	make_lower(&g);
	for (int i = 0; i < list_length(g.keys); i++)
	{
		GroupKey   *key = list_nth(g.keys, i);

		wms_an_add_column(&g.tlist, copyObject(key->expr), key->name);
	}
	g.op->retracts = a->options->retract && wms_an_has_raw_rows(a, g.lower);
	plan_aggregates(&g);
	move_window_to_operator(&g);
	leave_out_null_windows(&g);
	set_keys(&g);
	set_aggregate_out(&g);
	finish_lower(&g);
	add_op_set(&g, g.op->input->sources);
	finish_upper(&g);
}

/* ---------------------------------------------------------------- raw rows held until their window closes */

/*
 * Times of the rows beside the window that they were held for: they come when it closes, and may be as old as it is then.  times: of each column
 * but the window.
 */
static void
add_held_times(Cut *g, List *times)
{
	AnSet	   *set = wms_an_set(g->a, psprintf("wms_op_%d", g->op->id));
	int			i = 1;
	ListCell   *lc;

	set->spread_us = wms_an_spread(g->a, g->lower) + ((GroupKey *) linitial(g->keys))->time.reach_us;
	foreach(lc, times)
	{
		AnTime	   *time = lfirst(lc);

		time->finished = false;
		time->lag_us = Max(time->lag_us, g->op->lag_us) + set->spread_us;
		if (time->watermarked && !time->processing && !wms_an_is_session(time))
			set->times[i] = *time;
		i++;
	}
}

/*
 * Cuts a level that ranks raw rows: everything but FROM and WHERE goes on above, over the rows of windows that have
 * closed.  window: the expression in PARTITION BY or DISTINCT ON.
 */
void
wms_an_cut_collect(Analysis *a, Query *query, Node *window)
{
	Cut			g = {.a = a,.query = query,.set = list_length(query->rtable) + 1};
	AnTime		time = wms_an_time(a, query, window);
	Node	   *whole = window;
	List	   *substs = NIL;
	List	   *times = NIL;
	ListCell   *lc;

	if (time.kind == AN_LOWER || time.kind == AN_UPPER)
	{
		if (!IsA(window, FuncExpr) && !has_fixed_size(&time))
		{
			wms_no_one_bound(a, window);
			return;
		}
		whole = IsA(window, FuncExpr) ? linitial(((FuncExpr *) window)->args) : window_from_bounds(window, NULL, &time);
		time.kind = AN_WINDOW;
	}
	add_key(&g, whole, window, "window", wms_an_equality(exprType(whole)), time);
	g.op = wms_an_new_op(a, WMS_OP_COLLECT);
	set_window(&g);
	if (a->refusal)
		return;
	make_lower(&g);
	g.op->retracts = a->options->retract && wms_an_has_raw_rows(a, g.lower);
	wms_an_add_column(&g.tlist, copyObject(whole), "window");
	wms_an_add_subst(&substs, whole, key_column(&g, linitial(g.keys)));
	foreach(lc, wms_an_level_vars(wms_an_subst_node((Node *) query->targetList, substs), g.set))
	{
		Var		   *var = lfirst(lc);
		TargetEntry *tle = wms_an_add_column(&g.tlist, (Node *) copyObject(var),
											 get_rte_attribute_name(rt_fetch(var->varno, query->rtable), var->varattno));
		AnTime	   *about = palloc(sizeof(AnTime));

		*about = wms_an_time(a, query, (Node *) var);
		times = lappend(times, about);
		wms_an_add_subst(&substs, (Node *) var, (Node *) makeVar(g.set, tle->resno, var->vartype, var->vartypmod, var->varcollid, 0));
	}
	set_keys(&g);
	g.op->out_desc = wms_an_desc(g.tlist, true);
	finish_lower(&g);
	add_op_set(&g, g.op->input->sources);
	add_held_times(&g, times);

	wms_an_subst(query, substs);
	wms_an_only_set(query, wms_an_op_rte(g.op), g.set);
	query->hasTargetSRFs = expression_returns_set((Node *) query->targetList);
	wms_an_drop_junk(query);
}
