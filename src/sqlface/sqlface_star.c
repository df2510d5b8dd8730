/*
 * sqlface_star.c
 *	  The column of a queue that SELECT * must not show.
 *
 * A definition is to give the same over a queue as over an ordinary table, so what a star stands for leaves out the column that
 * create_queue has added.  Written out by its name the column is one like any other.
 *
 * Parse analysis has replaced the star by columns, which are told from others by their place in the text: it is the star's.  In the
 * outermost SELECT such a column is taken out; further inside, where others count columns by number, it is made NULL, which
 * also keeps DISTINCT from looking at it, and then a star outside of that does not show it either.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "registry/registry.h"
#include "sqlface/sqlface_internal.h"

/* ---------------------------------------------------------------- where stars stand */

static bool
stars_walker(Node *node, void *arg)
{
	List	  **stars = arg;

	if (node == NULL)
		return false;
	if (IsA(node, ColumnRef) && IsA(llast(((ColumnRef *) node)->fields), A_Star))
		*stars = lappend_int(*stars, ((ColumnRef *) node)->location);
	return raw_expression_tree_walker(node, stars_walker, arg);
}

/* ---------------------------------------------------------------- what columns come from */

static TargetEntry *
column_of(Query *query, int resno)
{
	return get_tle_by_resno(query->targetList, resno);
}

static CommonTableExpr *
find_cte(List *parents, const RangeTblEntry *rte)
{
	ListCell   *lc;

	if ((int) rte->ctelevelsup >= list_length(parents))
		return NULL;
	foreach(lc, ((Query *) list_nth(parents, rte->ctelevelsup))->cteList)
		if (strcmp(((CommonTableExpr *) lfirst(lc))->ctename, rte->ctename) == 0)
			return lfirst(lc);
	return NULL;
}

static bool is_hidden(Node *expr, List *parents, List *stars);

static bool
is_hidden_below(Query *query, int resno, List *parents, List *stars)
{
	TargetEntry *tle = column_of(query, resno);

	return tle && is_hidden((Node *) tle->expr, lcons(query, list_copy(parents)), stars);
}

/* Does a star stand for it, and is it a queue's column? parents: the query that it is in, then those around it. */
static bool
is_hidden(Node *expr, List *parents, List *stars)
{
	Var		   *var = (Var *) expr;
	RangeTblEntry *rte;
	CommonTableExpr *cte;

	if (expr == NULL || !IsA(expr, Var) || var->varlevelsup > 0 || var->vartype != XID8OID || var->varattno <= 0 ||
		!list_member_int(stars, var->location))
		return false;
	rte = rt_fetch(var->varno, ((Query *) linitial(parents))->rtable);
	switch (rte->rtekind)
	{
		case RTE_RELATION:
			return strcmp(get_attname(rte->relid, var->varattno, false), WMS_QUEUE_COLUMN) == 0 && wms_is_queue(rte->relid);
		case RTE_SUBQUERY:
			return is_hidden_below(rte->subquery, var->varattno, parents, stars);
		case RTE_JOIN:
			/* the join's own variables stand for columns of its inputs, but have no place in the text */
			var = copyObject(list_nth(rte->joinaliasvars, var->varattno - 1));
			if (!IsA(var, Var))
				return false;
			var->location = ((Var *) expr)->location;
			return is_hidden((Node *) var, parents, stars);
		case RTE_CTE:
			cte = find_cte(parents, rte);
			return cte && IsA(cte->ctequery, Query) &&
				is_hidden_below((Query *) cte->ctequery, var->varattno, list_copy_tail(parents, rte->ctelevelsup), stars);
		default:
			return false;
	}
}

/* ---------------------------------------------------------------- hiding them */

typedef struct Hide
{
	List	   *stars;
	List	   *parents;		/* of Query *, the innermost first */
	List	   *hidden;			/* of TargetEntry *, in all queries */
} Hide;

/* Before anything is changed: all of them, wherever they are. */
static bool
find_walker(Node *node, void *arg)
{
	Hide	   *hide = arg;
	List	   *outside = hide->parents;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, find_walker, arg);
	hide->parents = lcons(node, list_copy(outside));
	foreach(lc, ((Query *) node)->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && is_hidden((Node *) tle->expr, hide->parents, hide->stars))
			hide->hidden = lappend(hide->hidden, tle);
	}
	query_tree_walker((Query *) node, find_walker, arg, 0);
	hide->parents = outside;
	return false;
}

static bool
is_named(List *clause, Index ref)
{
	ListCell   *lc;

	foreach(lc, clause)
		if (((SortGroupClause *) lfirst(lc))->tleSortGroupRef == ref)
			return true;
	return false;
}

static List *
without(List *clause, Index ref)
{
	ListCell   *lc;

	foreach(lc, clause)
		if (((SortGroupClause *) lfirst(lc))->tleSortGroupRef == ref)
			clause = foreach_delete_current(clause, lc);
	return clause;
}

/* Out of the outermost SELECT.  What is sorted or grouped by stays, unseen. */
static void
take_out(Query *query, List *hidden)
{
	int			resno = 1;
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (list_member_ptr(hidden, tle))
		{
			if (!query->hasDistinctOn && tle->ressortgroupref > 0)
				query->distinctClause = without(query->distinctClause, tle->ressortgroupref);
			if (tle->ressortgroupref == 0 ||
				!(is_named(query->groupClause, tle->ressortgroupref) || is_named(query->sortClause, tle->ressortgroupref) ||
				  is_named(query->distinctClause, tle->ressortgroupref)))
			{
				query->targetList = foreach_delete_current(query->targetList, lc);
				continue;
			}
			tle->resjunk = true;
		}
		tle->resno = resno++;
	}
}

/* The text's parse tree tells where stars stand; it must be walked before analysis, which scribbles on it. */
List *
wms_face_stars(Node *raw)
{
	List	   *stars = NIL;

	(void) stars_walker(raw, &stars);
	return stars;
}

void
wms_face_hide(Query *query, List *stars, const char *text)
{
	Hide		hide = {stars, NIL, NIL};
	ListCell   *lc;

	if (stars == NIL)
		return;
	(void) find_walker((Node *) query, &hide);
	if (hide.hidden == NIL)
		return;
	if (query->setOperations)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("SELECT * over a queue is not possible in UNION ALL"),
				 errhint("Name the columns."),
				 wms_face_errposition(text, exprLocation((Node *) linitial_node(TargetEntry, hide.hidden)->expr))));
	take_out(query, hide.hidden);
	foreach(lc, hide.hidden)
	{
		TargetEntry *tle = lfirst(lc);

		if (!list_member_ptr(query->targetList, tle))
			tle->expr = (Expr *) makeNullConst(XID8OID, -1, InvalidOid);
	}
}
