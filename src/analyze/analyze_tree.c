/*
 * analyze_tree.c
 *	  Operations on query trees that know nothing of streams' rules: making a
 *	  rewritten tree uniform, replacing expressions at every depth, pulling up
 *	  plain subqueries, carrying a hidden column up through subqueries.
 *
 * Depth.  An expression of a level may reach into sublinks and LATERAL subqueries, where
 * its Vars have a varlevelsup as great as the way down.  Everything here that
 * looks for expressions of a level follows them down and compares with the
 * sublevels adjusted.
 *
 * After wms_an_prepare: no CTE, no Var of a join, calls of our own functions with all their arguments, constant ones folded.
 * After wms_an_find_sources: no whole-row Var of what is streamed, for that gets columns which no row may show.  Those of static
 * views stay what they are, of a type with a name, and those of other static subqueries where an outer join may find no row: there
 * they are NULL, which a row of NULLs is not.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "analyze/analyze_internal.h"

/* ---------------------------------------------------------------- CTEs */

typedef struct InlineContext
{
	Analysis   *a;
	CommonTableExpr *cte;
	int			depth;			/* of the level being walked, below the CTE's own */
} InlineContext;

static bool
inline_cte_walker(Node *node, void *arg)
{
	InlineContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		context->depth++;
		query_tree_walker((Query *) node, inline_cte_walker, context, QTW_EXAMINE_RTES_AFTER);
		context->depth--;
		return false;
	}
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_CTE && (int) rte->ctelevelsup == context->depth &&
			strcmp(rte->ctename, context->cte->ctename) == 0)
		{
			rte->rtekind = RTE_SUBQUERY;
			rte->subquery = copyObject(castNode(Query, context->cte->ctequery));
			wms_an_copy_places(context->a, castNode(Query, context->cte->ctequery), rte->subquery);
			/* the CTE's query stood one level below its own; here it stands depth levels deeper */
			IncrementVarSublevelsUp((Node *) rte->subquery, context->depth, 1);
			rte->ctename = NULL;
			rte->ctelevelsup = 0;
			rte->coltypes = NIL;
			rte->coltypmods = NIL;
			rte->colcollations = NIL;
		}
		return false;
	}
	return expression_tree_walker(node, inline_cte_walker, context);
}

/* Each reference gets the CTE's query as a subquery of its own: a CTE read twice reads its sources twice. */
static void
inline_ctes(Analysis *a, Query *query)
{
	ListCell   *lc;

	foreach(lc, query->cteList)
	{
		InlineContext context = {a, lfirst(lc), 0};

		query_tree_walker(query, inline_cte_walker, &context, QTW_EXAMINE_RTES_AFTER);
	}
	query->cteList = NIL;
}

/* ---------------------------------------------------------------- joins and whole rows */

static bool
has_joins(const Query *query)
{
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		if (lfirst_node(RangeTblEntry, lc)->rtekind == RTE_JOIN)
			return true;
	}
	return false;
}

/* From 18 on grouped expressions stand in an entry of their own; here they stand where they are used. */
static void
flatten_groups(Query *query)
{
	ListCell   *lc;

	if (!WmsHasGroupEntry(query) || query->groupingSets)
		return;
	query->targetList = (List *) WmsFlattenGroupVars(query, (Node *) query->targetList);
	query->havingQual = WmsFlattenGroupVars(query, query->havingQual);
	foreach(lc, query->rtable)
	{
		if (WmsIsGroupEntry(lfirst_node(RangeTblEntry, lc)))
			wms_an_void_rte(lfirst(lc));
	}
	WmsForgetGroupEntry(query);
}

#define FLATTEN(field) ((field) = (void *) WmsFlattenJoinAliases(query, (Node *) (field)))

static void
flatten_joins(Query *query)
{
	ListCell   *lc;

	if (!has_joins(query))
		return;
	FLATTEN(query->targetList);
	FLATTEN(query->havingQual);
	FLATTEN(query->jointree);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY && rte->lateral)
			FLATTEN(rte->subquery);
		else if (rte->rtekind == RTE_FUNCTION)
			FLATTEN(rte->functions);
		else if (rte->rtekind == RTE_TABLEFUNC)
			FLATTEN(rte->tablefunc);
		else if (rte->rtekind == RTE_VALUES)
			FLATTEN(rte->values_lists);
	}
	foreach(lc, query->windowClause)
	{
		WindowClause *wc = lfirst_node(WindowClause, lc);

		FLATTEN(wc->startOffset);
		FLATTEN(wc->endOffset);
	}
}

/* ---------------------------------------------------------------- replacing at every depth */

typedef struct SubstContext
{
	List	   *substs;
	int			depth;
	bool		done;			/* something was replaced */
} SubstContext;

static Node *
at_depth(Node *node, int depth)
{
	node = copyObject(node);
	if (depth > 0)
		IncrementVarSublevelsUp(node, depth, 0);
	return node;
}

/* A Var is known by its column alone. */
static bool
stands_for(Node *from, Node *node, int depth)
{
	if (IsA(from, Var))
	{
		Var		   *a = (Var *) from;
		Var		   *b = (Var *) node;

		return a->varno == b->varno && a->varattno == b->varattno && (int) b->varlevelsup == depth;
	}
	return equal(depth == 0 ? from : at_depth(from, depth), node);
}

static Node *
subst_mutator(Node *node, void *arg)
{
	SubstContext *context = arg;
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
	{
		Query	   *result;

		context->depth++;
		result = query_tree_mutator((Query *) node, subst_mutator, context, 0);
		context->depth--;
		return (Node *) result;
	}
	foreach(lc, context->substs)
	{
		AnSubst    *subst = lfirst(lc);

		if (nodeTag(subst->from) != nodeTag(node))
			continue;
		if (stands_for(subst->from, node, context->depth))
		{
			Node	   *result = at_depth(subst->to, context->depth);

			context->done = true;
			if (IsA(result, Var))	/* in the text it stands where that stood */
				((Var *) result)->location = exprLocation(node);
			return result;
		}
	}
	return expression_tree_mutator(node, subst_mutator, context);
}

/* Replaces in all expressions of the level, the outermost match first. */
void
wms_an_subst(Query *query, List *substs)
{
	SubstContext context = {substs, 0, false};

	if (substs != NIL)
		query_tree_mutator(query, subst_mutator, &context, QTW_DONT_COPY_QUERY);
}

Node *
wms_an_subst_node(Node *node, List *substs)
{
	SubstContext context = {substs, 0, false};

	return subst_mutator(node, &context);
}

void
wms_an_add_subst(List **substs, Node *from, Node *to)
{
	AnSubst    *subst = palloc(sizeof(AnSubst));

	subst->from = from;
	subst->to = to;
	*substs = lappend(*substs, subst);
}

/* ---------------------------------------------------------------- whole rows */

typedef struct WholeRowContext
{
	int			rtindex;
	int			depth;
	TupleDesc	desc;
	const Var  *found;
} WholeRowContext;

static Node *
whole_row(const WholeRowContext *context, const Var *var)
{
	RowExpr    *row = makeNode(RowExpr);

	row->row_typeid = var->vartype;
	row->row_format = AN_WHOLE_ROW;
	row->location = var->location;
	for (int i = 0; i < context->desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(context->desc, i);
		Node	   *field;

		if (att->attisdropped && var->vartype == RECORDOID)
			continue;
		if (att->attisdropped)	/* as the parser does it: any type will do for a NULL */
			field = (Node *) makeNullConst(INT4OID, -1, InvalidOid);
		else
			field = (Node *) makeVar(context->rtindex, i + 1, att->atttypid, att->atttypmod, att->attcollation, context->depth);
		row->args = lappend(row->args, field);
		row->colnames = lappend(row->colnames, makeString(pstrdup(att->attisdropped ? "" : NameStr(att->attname))));
	}
	return (Node *) row;
}

static Node *
whole_row_mutator(Node *node, void *arg)
{
	WholeRowContext *context = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
	{
		Query	   *result;

		context->depth++;
		result = query_tree_mutator((Query *) node, whole_row_mutator, context, 0);
		context->depth--;
		return (Node *) result;
	}
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno == context->rtindex && (int) var->varlevelsup == context->depth && var->varattno == InvalidAttrNumber)
			return whole_row(context, var);
	}
	return expression_tree_mutator(node, whole_row_mutator, context);
}

/* Writes out whole-row Vars of an entry, before it gets columns that the row must not show. */
void
wms_an_whole_rows(Query *query, int rtindex, TupleDesc desc)
{
	WholeRowContext context = {.rtindex = rtindex,.desc = desc};

	query_tree_mutator(query, whole_row_mutator, &context, QTW_DONT_COPY_QUERY);
}

/* The same in an expression of the level. */
Node *
wms_an_whole_rows_in(Node *expr, int rtindex, TupleDesc desc)
{
	WholeRowContext context = {.rtindex = rtindex,.desc = desc};

	return whole_row_mutator(expr, &context);
}

static bool
whole_row_walker(Node *node, void *arg)
{
	WholeRowContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		bool		found;

		context->depth++;
		found = query_tree_walker((Query *) node, whole_row_walker, context, 0);
		context->depth--;
		return found;
	}
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno == context->rtindex && (int) var->varlevelsup == context->depth && var->varattno == InvalidAttrNumber)
			context->found = var;
		return context->found != NULL;
	}
	return expression_tree_walker(node, whole_row_walker, context);
}

/* The row that a subquery in FROM gives, with the names that it has there. */
static TupleDesc
row_of(const RangeTblEntry *rte)
{
	TupleDesc	desc = wms_an_desc(rte->subquery->targetList, false);
	ListCell   *lc;
	int			n = 0;

	foreach(lc, rte->eref->colnames)
	{
		if (n < desc->natts)
			namestrcpy(&TupleDescAttr(desc, n)->attname, strVal(lfirst(lc)));
		n++;
	}
	return desc;
}

/*
 * Are whole rows of the entry written out?  Of a static subquery, whose row type has no name by which it could be kept, where there always
 * is one.
 */
static bool
is_written_out(Analysis *a, Query *query, int rtindex)
{
	RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
	WholeRowContext context = {.rtindex = rtindex};

	if (rte->rtekind != RTE_SUBQUERY || !query_tree_walker(query, whole_row_walker, &context, 0))
		return false;
	if (wms_an_streamed(a, rte->subquery))
		return true;
	return context.found->vartype == RECORDOID && wms_an_streamed(a, query) && !wms_an_given_on_condition(a, query, rtindex);
}

static bool
subquery_rows_walker(Node *node, void *arg)
{
	Query	   *query = (Query *) node;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, subquery_rows_walker, arg);
	for (int i = 1; i <= list_length(query->rtable); i++)
	{
		if (is_written_out(arg, query, i))
			wms_an_whole_rows(query, i, row_of(rt_fetch(i, query->rtable)));
	}
	return query_tree_walker(query, subquery_rows_walker, arg, 0);
}

/* Writes out whole-row Vars of subqueries, in the query and all below it. */
void
wms_an_subquery_rows(Analysis *a, Query *query)
{
	subquery_rows_walker((Node *) query, a);
}

/* ---------------------------------------------------------------- making the tree uniform */

/* The constant that an expression stands for, in its place; or the expression. */
static Node *
folded(Node *expr)
{
	Node	   *result = eval_const_expressions(NULL, expr);

	if (!IsA(result, Const))
		return expr;
	((Const *) result)->location = exprLocation(expr);
	return result;
}

static void
complete_call(Analysis *a, FuncExpr *call)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(call->funcid));
	ListCell   *lc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", call->funcid);
	call->args = expand_function_arguments(call->args, false, call->funcresulttype, tuple);
	ReleaseSysCache(tuple);

	/* all arguments but the time are to be constants */
	for_each_from(lc, call->args, 1)
	{
		Node	   *argument = lfirst(lc);

		if (!IsA(argument, Const) && !contain_var_clause(argument) && !checkExprHasSubLink(argument))
			lfirst(lc) = folded(argument);
	}
	wms_an_check_call(a, call);
}

/* No column of ours and one of the user may have the same name where we look one up by name. */
static void
rename_hidden_columns(Query *query)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (tle->resname && (strcmp(tle->resname, AN_ORD) == 0 || strcmp(tle->resname, AN_EVT) == 0))
			tle->resname = psprintf("%s_", tle->resname);
	}
}

static int
place_of_lock(Analysis *a, const Query *query)
{
	return wms_an_place(a, rt_fetch(linitial_node(RowMarkClause, query->rowMarks)->rti, query->rtable));
}

static bool prepare_walker(Node *node, void *arg);

static void
prepare_level(Analysis *a, Query *query)
{
	ListCell   *lc;

	if (query->commandType != CMD_SELECT || query->hasModifyingCTE)
		wms_no_clause(a, "a command that writes", -1, "Use a plain SELECT.");
	if (query->rowMarks != NIL)
		wms_no_clause(a, "FOR UPDATE or FOR SHARE", place_of_lock(a, query), "A stream locks no rows: leave the clause out.");
	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		if (cte->cterecursive)
			wms_no_clause(a, "WITH RECURSIVE", cte->location, "Put the result of the recursive query into a table and join that.");
	}
	if (a->refusal)
		return;
	inline_ctes(a, query);
	flatten_groups(query);
	flatten_joins(query);
}

static bool
prepare_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL)
		return false;
	if (a->refusal)
		return true;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		int			outside = wms_an_enter(a, query);

		prepare_level(a, query);
		rename_hidden_columns(query);
		if (a->refusal == NULL)
			query_tree_walker(query, prepare_walker, a, 0);
		a->place = outside;
		return a->refusal != NULL;
	}
	if (IsA(node, Var))
	{
		/* how the column was written, perhaps as one of a join; that may not exist any more when it is printed */
		((Var *) node)->varnosyn = 0;
		((Var *) node)->varattnosyn = 0;
	}
	if (IsA(node, FuncExpr) && wms_function_kind(((FuncExpr *) node)->funcid) != WMS_FN_OTHER)
		complete_call(a, (FuncExpr *) node);
	return expression_tree_walker(node, prepare_walker, a);
}

void
wms_an_prepare(Analysis *a, Query *query)
{
	prepare_level(a, query);
	if (a->refusal == NULL)
		query_tree_walker(query, prepare_walker, a, 0);
}

/* ---------------------------------------------------------------- what a level reads */

static void
collect_used(Node *node, Bitmapset **used)
{
	ListCell   *lc;

	if (node == NULL)
		return;
	if (IsA(node, RangeTblRef))
		*used = bms_add_member(*used, ((RangeTblRef *) node)->rtindex);
	else if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
			collect_used(lfirst(lc), used);
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);

		collect_used(join->larg, used);
		collect_used(join->rarg, used);
	}
}

/* The same of a part of FROM. */
Bitmapset *
wms_an_rtes_in(Node *jointree)
{
	Bitmapset  *used = NULL;

	collect_used(jointree, &used);
	return used;
}

/* What an entry of FROM is made of, as far as it may refer to others of its level. */
List *
wms_an_rte_parts(const RangeTblEntry *rte)
{
	switch (rte->rtekind)
	{
		case RTE_SUBQUERY:
			return list_make1(rte->subquery);
		case RTE_FUNCTION:
			return rte->functions;
		case RTE_TABLEFUNC:
			return list_make1(rte->tablefunc);
		case RTE_VALUES:
			return rte->values_lists;
		default:
			return NIL;
	}
}

static void
collect_setop_used(Node *node, Bitmapset **used)
{
	if (IsA(node, RangeTblRef))
		*used = bms_add_member(*used, ((RangeTblRef *) node)->rtindex);
	else
	{
		SetOperationStmt *op = castNode(SetOperationStmt, node);

		collect_setop_used(op->larg, used);
		collect_setop_used(op->rarg, used);
	}
}

/* Range table indexes that FROM, or a set operation, really reads; joins themselves not counted. */
Bitmapset *
wms_an_used_rtes(const Query *query)
{
	Bitmapset  *used = NULL;

	if (query->setOperations)
		collect_setop_used(query->setOperations, &used);
	else
		collect_used((Node *) query->jointree, &used);
	return used;
}

/* The branches of a set operation, from left to right. */
List *
wms_an_leaves(const Query *query)
{
	List	   *leaves = NIL;
	Bitmapset  *used = wms_an_used_rtes(query);
	int			i = -1;

	while ((i = bms_next_member(used, i)) >= 0)
		leaves = lappend(leaves, rt_fetch(i, query->rtable)->subquery);
	return leaves;
}

static bool
rte_streamed(Analysis *a, const RangeTblEntry *rte)
{
	return rte->rtekind == RTE_NAMEDTUPLESTORE || (rte->rtekind == RTE_SUBQUERY && wms_an_streamed(a, rte->subquery));
}

/* Range table indexes of the entries through which streamed rows come in. */
List *
wms_an_streamed_rtes(Analysis *a, const Query *query)
{
	List	   *result = NIL;
	Bitmapset  *used = wms_an_used_rtes(query);
	int			i = -1;

	while ((i = bms_next_member(used, i)) >= 0)
	{
		if (rte_streamed(a, rt_fetch(i, query->rtable)))
			result = lappend_int(result, i);
	}
	return result;
}

bool
wms_an_streamed(Analysis *a, const Query *query)
{
	return wms_an_streamed_rtes(a, query) != NIL;
}

/* The sets that a query reads, at any depth of its FROM. */
List *
wms_an_sets_below(Analysis *a, const Query *query)
{
	List	   *result = NIL;
	Bitmapset  *used = wms_an_used_rtes(query);
	int			i = -1;

	while ((i = bms_next_member(used, i)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(i, query->rtable);

		if (rte->rtekind == RTE_NAMEDTUPLESTORE)
			result = list_append_unique_ptr(result, wms_an_set(a, rte->enrname));
		else if (rte->rtekind == RTE_SUBQUERY)
			result = list_concat_unique_ptr(result, wms_an_sets_below(a, rte->subquery));
	}
	return result;
}

/* Do rows of a source come in without passing an operator? */
bool
wms_an_has_raw_rows(Analysis *a, const Query *query)
{
	ListCell   *lc;

	foreach(lc, wms_an_sets_below(a, query))
	{
		if (((AnSet *) lfirst(lc))->op < 0)
			return true;
	}
	return false;
}

typedef struct OutsideContext
{
	int			depth;
	Node	   *found;
} OutsideContext;

static bool
outside_walker(Node *node, void *arg)
{
	OutsideContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		bool		found;

		context->depth++;
		found = query_tree_walker((Query *) node, outside_walker, context, 0);
		context->depth--;
		return found;
	}
	if ((IsA(node, Var) && (int) ((Var *) node)->varlevelsup > context->depth) ||
		(IsA(node, Aggref) && (int) ((Aggref *) node)->agglevelsup > context->depth))
	{
		context->found = node;
		return true;
	}
	return expression_tree_walker(node, outside_walker, context);
}

/* Where the query mentions a column of a query around it; NULL: nowhere. */
Node *
wms_an_refers_outside(Query *query)
{
	OutsideContext context = {0, NULL};

	query_tree_walker(query, outside_walker, &context, 0);
	return context.found;
}

typedef struct VarsContext
{
	int			except_varno;
	int			depth;
	List	   *vars;
} VarsContext;

static bool
level_vars_walker(Node *node, void *arg)
{
	VarsContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		context->depth++;
		query_tree_walker((Query *) node, level_vars_walker, context, 0);
		context->depth--;
		return false;
	}
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if ((int) var->varlevelsup == context->depth && (int) var->varno != context->except_varno)
		{
			var = copyObject(var);
			var->varlevelsup = 0;
			if (!list_member(context->vars, var))
				context->vars = lappend(context->vars, var);
		}
		return false;
	}
	return expression_tree_walker(node, level_vars_walker, context);
}

/* The different Vars of the level that stand in an expression, also inside its sublinks. */
List *
wms_an_level_vars(Node *node, int except_varno)
{
	VarsContext context = {except_varno, 0, NIL};

	level_vars_walker(node, &context);
	return context.vars;
}

/* ---------------------------------------------------------------- changing FROM */

/* Makes an entry that nothing refers to any more harmless; numbers of the others stay. */
void
wms_an_void_rte(RangeTblEntry *rte)
{
	Alias	   *eref = rte->eref;

	memset(rte, 0, sizeof(RangeTblEntry));
	rte->type = T_RangeTblEntry;
	rte->rtekind = RTE_RESULT;
	rte->eref = makeAlias(eref ? eref->aliasname : "*RESULT*", NIL);
}

/* Is it a condition that always holds? */
bool
wms_an_is_true(Node *quals)
{
	return quals == NULL || (IsA(quals, Const) && !((Const *) quals)->constisnull && DatumGetBool(((Const *) quals)->constvalue));
}

static bool
is_ref_of(Node *node, int rtindex)
{
	return IsA(node, RangeTblRef) && ((RangeTblRef *) node)->rtindex == rtindex;
}

static Node *
without_rte(Node *node, int rtindex, bool *found)
{
	if (IsA(node, RangeTblRef))
	{
		if (((RangeTblRef *) node)->rtindex != rtindex)
			return node;
		*found = true;
		return NULL;
	}
	if (IsA(node, FromExpr))
	{
		FromExpr   *from = (FromExpr *) node;
		List	   *fromlist = NIL;
		ListCell   *lc;

		foreach(lc, from->fromlist)
		{
			Node	   *item = without_rte(lfirst(lc), rtindex, found);

			if (item)
				fromlist = lappend(fromlist, item);
		}
		return (Node *) makeFromExpr(fromlist, from->quals);
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);
		JoinExpr   *result = copyObject(join);
		bool		here = false;

		if (join->jointype == JOIN_LEFT && is_ref_of(join->rarg, rtindex) && wms_an_is_true(join->quals))
		{
			*found = true;		/* LEFT JOIN LATERAL ... ON true */
			return join->larg;
		}
		if (join->jointype == JOIN_INNER)
		{
			result->larg = without_rte(join->larg, rtindex, &here);
			result->rarg = without_rte(join->rarg, rtindex, &here);
		}
		else if (join->jointype == JOIN_LEFT)
			result->larg = without_rte(join->larg, rtindex, &here);
		else if (join->jointype == JOIN_RIGHT)
			result->rarg = without_rte(join->rarg, rtindex, &here);
		if (!here)
			return node;
		*found = true;
		if (result->larg && result->rarg)
			return (Node *) result;
		if (join->jointype != JOIN_INNER)
		{
			*found = false;
			return node;
		}
		if (join->quals == NULL)
			return result->larg ? result->larg : result->rarg;
		return (Node *) makeFromExpr(list_make1(result->larg ? result->larg : result->rarg), join->quals);
	}
}

/* FROM items that are FromExprs are opened: (a, (b, c WHERE x)) WHERE y is (a, b, c) WHERE x AND y. */
void
wms_an_open_from(FromExpr *from)
{
	List	   *items = NIL;
	List	   *quals = NIL;
	ListCell   *lc;

	foreach(lc, from->fromlist)
	{
		FromExpr   *inner = lfirst(lc);

		if (!IsA(inner, FromExpr))
		{
			items = lappend(items, inner);
			continue;
		}
		wms_an_open_from(inner);
		items = list_concat(items, inner->fromlist);
		if (inner->quals)
			quals = lappend(quals, inner->quals);
	}
	if (from->quals)
		quals = lappend(quals, from->quals);
	from->fromlist = items;
	from->quals = quals == NIL ? NULL : list_length(quals) == 1 ? linitial(quals) : (Node *) make_andclause(quals);
}

/* Takes an entry that gives exactly one row out of FROM; false if its place does not allow that.  The entry itself stays. */
bool
wms_an_remove_rte(Query *query, int rtindex, bool really)
{
	bool		found = false;
	Node	   *result = without_rte((Node *) query->jointree, rtindex, &found);

	if (found && really)
	{
		query->jointree = castNode(FromExpr, result);
		wms_an_open_from(query->jointree);
	}
	return found;
}

/* FROM becomes one row set; its number is rtindex in all expressions. */
void
wms_an_only_set(Query *query, RangeTblEntry *rte, int rtindex)
{
	RangeTblRef *ref = makeNode(RangeTblRef);

	ref->rtindex = rtindex;
	query->jointree = makeFromExpr(list_make1(ref), NULL);
	query->rtable = NIL;
	if (rtindex != 1)
		ChangeVarNodes((Node *) query, rtindex, 1, 0);
	query->rtable = list_make1(rte);
	WmsClearPermInfos(query);
}

/* ---------------------------------------------------------------- pulling up */

/* Only FROM, WHERE and plain expressions, over row sets and functions. */
static bool
is_plain(const Query *sub)
{
	Bitmapset  *used;
	int			i = -1;

	if (sub->setOperations || sub->hasAggs || sub->groupClause || sub->groupingSets || sub->havingQual || sub->hasWindowFuncs ||
		sub->distinctClause || sub->sortClause || sub->limitCount || sub->limitOffset || sub->hasTargetSRFs ||
		sub->hasSubLinks || sub->jointree->fromlist == NIL)
		return false;
	used = wms_an_used_rtes(sub);
	while ((i = bms_next_member(used, i)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(i, sub->rtable);

		if (rte->rtekind != RTE_NAMEDTUPLESTORE && rte->rtekind != RTE_FUNCTION)
			return false;
	}
	for (i = 1; i <= list_length(sub->rtable); i++)
	{
		if (rt_fetch(i, sub->rtable)->rtekind == RTE_JOIN)
			return false;
	}
	return true;
}

static void
pull_up_entry(Query *query, RangeTblEntry *rte, int rtindex, ListCell *place)
{
	Query	   *sub = copyObject(rte->subquery);
	Bitmapset  *used = wms_an_used_rtes(sub);
	int			offset = list_length(query->rtable);
	List	   *substs = NIL;
	ListCell   *lc;
	int			i = 0;

	foreach(lc, sub->rtable)
	{
		if (!bms_is_member(++i, used))
			wms_an_void_rte(lfirst(lc));
	}
	OffsetVarNodes((Node *) sub, offset, 0);
	foreach(lc, sub->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *expr = (Node *) tle->expr;

		if (!tle->resjunk)
			wms_an_add_subst(&substs, (Node *) makeVar(rtindex, tle->resno, exprType(expr), exprTypmod(expr), exprCollation(expr), 0), expr);
	}
	wms_an_void_rte(rte);
	lfirst(place) = sub->jointree;
	wms_an_subst(query, substs);
	query->rtable = list_concat(query->rtable, sub->rtable);
}

/*
 * Plain streamed subqueries in the FROM list become part of the level.  The
 * planner would do it too; done here, more inputs are seen to be direct, and
 * windows are seen where they are made.
 */
void
wms_an_pull_up(Analysis *a, Query *query)
{
	for (int i = 0; i < list_length(query->jointree->fromlist); i++)
	{
		ListCell   *place = list_nth_cell(query->jointree->fromlist, i);
		int			rtindex;
		RangeTblEntry *rte;

		if (!IsA(lfirst(place), RangeTblRef))
			continue;
		rtindex = ((RangeTblRef *) lfirst(place))->rtindex;
		rte = rt_fetch(rtindex, query->rtable);
		if (rte->rtekind == RTE_SUBQUERY && !rte->security_barrier && wms_an_streamed(a, rte->subquery) && is_plain(rte->subquery))
		{
			pull_up_entry(query, rte, rtindex, place);
			/* replacing made new nodes: start over */
			i = -1;
		}
		wms_an_open_from(query->jointree);
	}
}

/* ---------------------------------------------------------------- carrying a hidden column up */

static Oid
carried_type(const char *name)
{
	return strcmp(name, AN_ORD) == 0 ? INT8OID : TIMESTAMPTZOID;
}

/* Inserts a column behind the last one that is no junk; returns its number. */
static AttrNumber
insert_column(Query *query, Node *expr, const char *name)
{
	List	   *tlist = NIL;
	AttrNumber	resno = 0;
	AttrNumber	n = 0;
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		if (!lfirst_node(TargetEntry, lc)->resjunk)
			tlist = lappend(tlist, lfirst(lc));
	}
	resno = list_length(tlist) + 1;
	tlist = lappend(tlist, makeTargetEntry((Expr *) expr, resno, pstrdup(name), false));
	foreach(lc, query->targetList)
	{
		if (lfirst_node(TargetEntry, lc)->resjunk)
			tlist = lappend(tlist, lfirst(lc));
	}
	foreach(lc, tlist)
		lfirst_node(TargetEntry, lc)->resno = ++n;
	query->targetList = tlist;
	return resno;
}

static void
add_setop_column(Node *node, Oid type)
{
	SetOperationStmt *op;

	if (!IsA(node, SetOperationStmt))
		return;
	op = (SetOperationStmt *) node;
	op->colTypes = lappend_oid(op->colTypes, type);
	op->colTypmods = lappend_int(op->colTypmods, -1);
	op->colCollations = lappend_oid(op->colCollations, InvalidOid);
	add_setop_column(op->larg, type);
	add_setop_column(op->rarg, type);
}

static AttrNumber
carry_through_union(Analysis *a, Query *query, const char *name)
{
	Bitmapset  *used = wms_an_used_rtes(query);
	AttrNumber	attno = 0;
	int			first = bms_next_member(used, -1);
	int			i = -1;

	while ((i = bms_next_member(used, i)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(i, query->rtable);

		attno = wms_an_carry(a, rte->subquery, name);
		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(name)));
	}
	add_setop_column(query->setOperations, carried_type(name));
	return insert_column(query, (Node *) makeVar(first, attno, carried_type(name), -1, InvalidOid, 0), name);
}

/* A column as event time, with the type that #evt has: a window stands for its last microsecond. */
static Node *
column_as_event_time(const AnSet *set, int rtindex, int column)
{
	Form_pg_attribute att = TupleDescAttr(set->desc, column - 1);
	const AnTime *time = &set->times[column - 1];
	Node	   *result = (Node *) makeVar(rtindex, column, att->atttypid, att->atttypmod, InvalidOid, 0);

	if (time->kind == AN_WINDOW)
		result = wms_an_shifted(wms_an_bound(result, true, time->type), time->type, -1);
	if (exprType(result) == TIMESTAMPOID)	/* the same number of microseconds */
		result = (Node *) makeFuncExpr(F_TIMEZONE_TEXT_TIMESTAMP, TIMESTAMPTZOID,
									   list_make2(makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum("UTC"), false, false), result),
									   InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
	return result;
}

static Node *
event_time_of_set(const AnSet *set, int rtindex)
{
	Node	   *time = column_as_event_time(set, rtindex, set->evt);
	CoalesceExpr *either;

	if (set->evt2 == 0)
		return time;
	either = makeNode(CoalesceExpr);
	either->coalescetype = TIMESTAMPTZOID;
	either->args = list_make2(time, column_as_event_time(set, rtindex, set->evt2));
	either->location = -1;
	return (Node *) either;
}

/* Does the hidden column come in with the rows of a query? */
static bool
brings(Analysis *a, const Query *query, const char *name)
{
	ListCell   *lc;

	foreach(lc, wms_an_sets_below(a, query))
	{
		AnSet	   *set = lfirst(lc);

		if ((strcmp(name, AN_ORD) == 0 ? set->ord : set->evt) > 0)
			return true;
	}
	return false;
}

/* The hidden column of the streamed entry of a level, as an expression there; NULL where rows have none (#ord: they come from an operator). */
Node *
wms_an_carried(Analysis *a, Query *query, const char *name)
{
	ListCell   *lc;

	foreach(lc, wms_an_streamed_rtes(a, query))
	{
		int			rtindex = lfirst_int(lc);
		RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
		AttrNumber	attno = 0;

		if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		{
			AnSet	   *set = wms_an_set(a, rte->enrname);

			if (strcmp(name, AN_ORD) != 0 && set->evt > 0)
				return event_time_of_set(set, rtindex);
			attno = strcmp(name, AN_ORD) == 0 ? set->ord : 0;
		}
		else if (brings(a, rte->subquery, name))
		{
			int			before = list_length(rte->subquery->targetList);

			attno = wms_an_carry(a, rte->subquery, name);
			if (list_length(rte->subquery->targetList) > before)
				rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(name)));
		}
		if (attno > 0)
			return (Node *) makeVar(rtindex, attno, carried_type(name), -1, InvalidOid, 0);
	}
	return (Node *) makeNullConst(carried_type(name), -1, InvalidOid);
}

/* Gives a query the hidden column as its last one, unless it has it; returns its number. */
AttrNumber
wms_an_carry(Analysis *a, Query *query, const char *name)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk && tle->resname && strcmp(tle->resname, name) == 0)
			return tle->resno;
	}
	if (query->setOperations)
		return carry_through_union(a, query, name);
	return insert_column(query, wms_an_carried(a, query, name), name);
}

/* ---------------------------------------------------------------- target lists */

TargetEntry *
wms_an_add_column(List **tlist, Node *expr, const char *name)
{
	TargetEntry *tle = makeTargetEntry((Expr *) expr, list_length(*tlist) + 1, name ? pstrdup(name) : NULL, false);

	*tlist = lappend(*tlist, tle);
	return tle;
}

/* Removes junk columns that no clause of the level refers to. */
void
wms_an_drop_junk(Query *query)
{
	List	   *tlist = NIL;
	List	   *clauses = list_concat(list_copy(query->sortClause), query->distinctClause);
	AttrNumber	n = 0;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, query->windowClause)
	{
		WindowClause *wc = lfirst_node(WindowClause, lc);

		clauses = list_concat(clauses, wc->partitionClause);
		clauses = list_concat(clauses, wc->orderClause);
	}
	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		bool		needed = !tle->resjunk;

		foreach(lc2, clauses)
		{
			if (tle->ressortgroupref != 0 && lfirst_node(SortGroupClause, lc2)->tleSortGroupRef == tle->ressortgroupref)
				needed = true;
		}
		if (!needed)
			continue;
		tle->resno = ++n;
		tlist = lappend(tlist, tle);
	}
	query->targetList = tlist;
}

TupleDesc
wms_an_desc(List *tlist, bool junk_too)
{
	TupleDesc	desc;
	int			natts = 0;
	ListCell   *lc;

	foreach(lc, tlist)
		natts += junk_too || !lfirst_node(TargetEntry, lc)->resjunk;
	desc = CreateTemplateTupleDesc(natts);
	natts = 0;
	foreach(lc, tlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (tle->resjunk && !junk_too)
			continue;
		natts++;
		TupleDescInitEntry(desc, natts, tle->resname, exprType((Node *) tle->expr), exprTypmod((Node *) tle->expr), 0);
		TupleDescInitEntryCollation(desc, natts, exprCollation((Node *) tle->expr));
	}
	return desc;
}

/* SELECT tlist FROM the one entry. */
Query *
wms_an_select_from(List *tlist, RangeTblEntry *rte)
{
	Query	   *query = makeNode(Query);
	RangeTblRef *ref = makeNode(RangeTblRef);

	ref->rtindex = 1;
	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->targetList = tlist;
	query->rtable = list_make1(rte);
	query->jointree = makeFromExpr(list_make1(ref), NULL);
	return query;
}
