/*
 * analyze_join_tree.c
 *	  FROM and WHERE of a level that reads several streams, as a tree of joins with two streamed sides each.
 *
 * 1. [NOT] EXISTS and IN over a stream, joined by AND in WHERE, become a semi or anti join around what FROM holds.
 * 2. In a FROM list, streamed items are joined one after the other, those first that a condition links.  What else stands
 *    in the list (static tables, functions) stays beside the result, unless a condition between streams needs it.
 * 3. Conditions of WHERE go down as far as they may.  One that concerns a single stream filters below the join: such
 *    rows never enter, and are never late.  Nothing goes down to the side of an outer join that may be NULL.
 * 4. The lowest join with two streamed sides is made an operator (analyze_join.c), and so on until one streamed item is left.
 *
 * Conditions in ON, and those inside EXISTS, belong to their join.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"

#include "analyze/analyze_internal.h"

typedef struct Tree
{
	Analysis   *a;
	Query	   *query;
	List	   *streamed;		/* range table numbers */
} Tree;

/* ---------------------------------------------------------------- conditions and what they concern */

/* The parts of a condition that AND joins. */
List *
wms_an_conjuncts(Node *quals)
{
	List	   *result = NIL;
	ListCell   *lc;

	if (quals == NULL)
		return NIL;
	if (IsA(quals, List))
	{
		foreach(lc, (List *) quals)
			result = list_concat(result, wms_an_conjuncts(lfirst(lc)));
		return result;
	}
	if (!is_andclause(quals))
		return list_make1(quals);
	return wms_an_conjuncts((Node *) ((BoolExpr *) quals)->args);
}

/* Range table numbers of the level that an expression mentions, also inside its sublinks. */
Bitmapset *
wms_an_rels_of(Node *expr)
{
	Bitmapset  *rels = NULL;
	ListCell   *lc;

	foreach(lc, wms_an_level_vars(expr, -1))
		rels = bms_add_member(rels, ((Var *) lfirst(lc))->varno);
	return rels;
}

static Node *
anded(List *quals)
{
	return quals == NIL ? NULL : list_length(quals) == 1 ? linitial(quals) : (Node *) make_andclause(quals);
}

static int
count_streams(Tree *t, Node *node)
{
	Bitmapset  *rels = wms_an_rtes_in(node);
	int			n = 0;
	ListCell   *lc;

	foreach(lc, t->streamed)
		n += bms_is_member(lfirst_int(lc), rels);
	return n;
}

/* ---------------------------------------------------------------- EXISTS and IN */

/*
 * Is it [NOT] EXISTS, or IN, over a stream?  Sets the sublink.  (NOT IN is something else: one NULL among the rows, and it is
 * never true.)
 */
static bool
is_streamed_exists(Analysis *a, Node *qual, SubLink **link, bool *negated)
{
	SubLinkType type;

	*negated = is_notclause(qual);
	if (*negated)
		qual = (Node *) get_notclausearg((Expr *) qual);
	if (!IsA(qual, SubLink))
		return false;
	*link = (SubLink *) qual;
	type = (*link)->subLinkType;
	return (type == EXISTS_SUBLINK || (type == ANY_SUBLINK && !*negated)) &&
		wms_an_streamed(a, castNode(Query, (*link)->subselect));
}

static bool
is_plain_limit(Node *limit)
{
	return limit == NULL ||
		(IsA(limit, Const) && !((Const *) limit)->constisnull && DatumGetInt64(((Const *) limit)->constvalue) > 0);
}

/* What is left out does not change whether there is a row. */
static void
check_exists(Analysis *a, Query *sub, Node *where)
{
	if (sub->setOperations || sub->hasAggs || sub->groupingSets || sub->havingQual || sub->limitOffset || sub->hasTargetSRFs ||
		!is_plain_limit(sub->limitCount ? eval_const_expressions(NULL, sub->limitCount) : NULL))
		wms_no_stream_here(a, where);
}

static Node *
columns_for_params(Node *node, void *arg)
{
	List	   *tlist = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_SUBLINK)
		return copyObject((Node *) get_tle_by_resno(tlist, ((Param *) node)->paramid)->expr);
	return expression_tree_mutator(node, columns_for_params, arg);
}

/* x IN (SELECT y ...) is EXISTS (SELECT ... AND x = y), where what makes y does not go beyond single rows. */
static void
in_to_exists(Analysis *a, SubLink *link, Query *sub)
{
	Node	   *condition = copyObject(link->testexpr);

	if (sub->limitCount || sub->hasDistinctOn || sub->hasWindowFuncs || checkExprHasSubLink(condition))
	{
		wms_no_stream_here(a, (Node *) link);
		return;
	}
	IncrementVarSublevelsUp(condition, 1, 0);
	condition = columns_for_params(condition, sub->targetList);
	sub->jointree->quals = anded(lappend(wms_an_conjuncts(sub->jointree->quals), condition));
}

static void exists_to_joins(Analysis *a, Query *query);

static Node *
only_item(List *fromlist)
{
	return list_length(fromlist) == 1 ? linitial(fromlist) : (Node *) makeFromExpr(fromlist, NULL);
}

/* The sublink's FROM comes beside that of the level. */
static void
join_sublink(Analysis *a, Query *query, SubLink *link, bool negated)
{
	Query	   *sub = copyObject(castNode(Query, link->subselect));
	JoinExpr   *join = makeNode(JoinExpr);
	ListCell   *lc;

	check_exists(a, sub, (Node *) link);
	if (a->refusal == NULL && link->subLinkType == ANY_SUBLINK)
		in_to_exists(a, link, sub);
	if (a->refusal)
		return;
	wms_an_cut_subqueries(a, sub);
	wms_an_write_out_windows(a, sub);
	exists_to_joins(a, sub);
	if (a->refusal)
		return;
	OffsetVarNodes((Node *) sub, list_length(query->rtable), 0);
	IncrementVarSublevelsUp((Node *) sub, -1, 1);
	foreach(lc, sub->rtable)
		WmsClearPerms(lfirst_node(RangeTblEntry, lc));	/* were checked before; their list is not merged */
	query->rtable = list_concat(query->rtable, sub->rtable);
	join->jointype = negated ? JOIN_ANTI : JOIN_SEMI;
	join->larg = only_item(query->jointree->fromlist);
	join->rarg = only_item(sub->jointree->fromlist);
	join->quals = sub->jointree->quals;
	query->jointree->fromlist = list_make1(join);
}

static void
exists_to_joins(Analysis *a, Query *query)
{
	List	   *rest = NIL;
	ListCell   *lc;

	foreach(lc, wms_an_conjuncts(query->jointree->quals))
	{
		SubLink    *link;
		bool		negated;

		if (!is_streamed_exists(a, lfirst(lc), &link, &negated))
			rest = lappend(rest, lfirst(lc));
		else if (wms_an_streamed_rtes(a, query) == NIL)
			wms_no_stream_here(a, (Node *) link);
		else if (a->refusal == NULL)
			join_sublink(a, query, link, negated);
	}
	query->jointree->quals = anded(rest);
}

/* ---------------------------------------------------------------- conditions go down */

static Node *arrange(Tree *t, Node *node, List *quals, List **left);

/* Those of the conditions that concern nothing but these entries, taken out of the list. */
static List *
take_within(List **quals, Bitmapset *rels)
{
	List	   *within = NIL;
	List	   *rest = NIL;
	ListCell   *lc;

	foreach(lc, *quals)
	{
		Bitmapset  *mentioned = wms_an_rels_of(lfirst(lc));

		if (!bms_is_empty(mentioned) && bms_is_subset(mentioned, rels))
			within = lappend(within, lfirst(lc));
		else
			rest = lappend(rest, lfirst(lc));
	}
	*quals = rest;
	return within;
}

/* What could not go down into a side stays directly above it: for a side that is not NULL-extended that is the same. */
static Node *
arrange_side(Tree *t, Node *node, List *quals)
{
	List	   *left = NIL;

	node = arrange(t, node, quals, &left);
	return left == NIL ? node : (Node *) makeFromExpr(list_make1(node), anded(left));
}

static Node *
arrange_join(Tree *t, JoinExpr *join, List *quals, List **left)
{
	Bitmapset  *rels = wms_an_rtes_in((Node *) join);
	Bitmapset  *lrels = wms_an_rtes_in(join->larg);
	Bitmapset  *rrels = wms_an_rtes_in(join->rarg);
	List	   *on = wms_an_conjuncts(join->quals);
	List	   *lquals = NIL;
	List	   *rquals = NIL;

	if (join->jointype != JOIN_RIGHT && join->jointype != JOIN_FULL)
		lquals = take_within(&quals, lrels);
	if (join->jointype == JOIN_INNER || join->jointype == JOIN_RIGHT)
		rquals = take_within(&quals, rrels);
	if (join->jointype == JOIN_INNER)
	{
		/* a condition between the streams of one side belongs to their join */
		if (count_streams(t, join->larg) > 1)
			lquals = list_concat(lquals, take_within(&on, lrels));
		if (count_streams(t, join->rarg) > 1)
			rquals = list_concat(rquals, take_within(&on, rrels));
		on = list_concat(on, take_within(&quals, rels));
	}
	else if (join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI)
	{
		if (count_streams(t, join->rarg) > 1)
			rquals = list_concat(rquals, take_within(&on, rrels));
	}
	join->larg = arrange_side(t, join->larg, lquals);
	join->rarg = arrange_side(t, join->rarg, rquals);
	join->quals = anded(on);
	*left = quals;
	return (Node *) join;
}

/* ---------------------------------------------------------------- FROM lists */

/* Entries outside of itself that an item refers to. */
static Bitmapset *
lateral_rels(Tree *t, Node *item)
{
	List	   *parts = NIL;
	Bitmapset  *rels = wms_an_rtes_in(item);
	int			i = -1;

	while ((i = bms_next_member(rels, i)) >= 0)
		parts = lappend(parts, wms_an_rte_parts(rt_fetch(i, t->query->rtable)));
	return bms_difference(wms_an_rels_of((Node *) parts), rels);
}

/* Does a condition need the item on a side, to be compared with something else? */
static bool
is_compared(Node *item, Node *with, List *quals)
{
	Bitmapset  *rels = wms_an_rtes_in(item);
	Bitmapset  *both = bms_union(rels, wms_an_rtes_in(with));
	ListCell   *lc;

	foreach(lc, quals)
	{
		Bitmapset  *mentioned = wms_an_rels_of(lfirst(lc));

		if (bms_overlap(mentioned, rels) && !bms_is_subset(mentioned, both))
			return true;
	}
	return false;
}

/* Puts items that are made from columns of one streamed item, and compared with others, beside it. */
static List *
attach_lateral_items(Tree *t, List *items, List *quals)
{
	List	   *result = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, items)
	{
		Node	   *item = lfirst(lc);
		Bitmapset  *needs = count_streams(t, item) == 0 ? lateral_rels(t, item) : NULL;
		bool		attached = false;

		foreach(lc2, result)
		{
			Node	   *other = lfirst(lc2);

			if (bms_is_empty(needs) || count_streams(t, other) == 0 || !bms_is_subset(needs, wms_an_rtes_in(other)) ||
				!is_compared(item, other, quals))
				continue;
			lfirst(lc2) = makeFromExpr(list_make2(other, item), NULL);
			attached = true;
			break;
		}
		if (!attached)
			result = lappend(result, item);
	}
	return result;
}

/* How well do conditions link two items?  2: by an equality. */
static int
link_between(Node *a, Node *b, List *quals)
{
	Bitmapset  *arels = wms_an_rtes_in(a);
	Bitmapset  *brels = wms_an_rtes_in(b);
	Bitmapset  *both = bms_union(arels, brels);
	int			best = 0;
	ListCell   *lc;

	foreach(lc, quals)
	{
		Node	   *qual = lfirst(lc);
		Bitmapset  *mentioned = wms_an_rels_of(qual);

		if (!bms_is_subset(mentioned, both) || !bms_overlap(mentioned, arels) || !bms_overlap(mentioned, brels))
			continue;
		best = Max(best, wms_an_is_equality(qual) ? 2 : 1);
	}
	return best;
}

/* The items as one tree of inner joins, from the left. */
static Node *
joined(List *streamed, List *quals)
{
	Node	   *tree = linitial(streamed);
	List	   *rest = list_copy_tail(streamed, 1);

	while (rest != NIL)
	{
		Node	   *next = NULL;
		int			best = -1;
		JoinExpr   *join = makeNode(JoinExpr);
		ListCell   *lc;

		foreach(lc, rest)
		{
			int			links = link_between(tree, lfirst(lc), quals);

			if (links > best)
			{
				best = links;
				next = lfirst(lc);
			}
		}
		rest = list_delete_ptr(rest, next);
		join->jointype = JOIN_INNER;
		join->larg = tree;
		join->rarg = next;
		tree = (Node *) join;
	}
	return tree;
}

static Node *
arrange_from(Tree *t, FromExpr *from, List *quals, List **left)
{
	List	   *items = from->fromlist;
	List	   *streamed = NIL;
	List	   *result = NIL;
	ListCell   *lc;

	quals = list_concat(wms_an_conjuncts(from->quals), quals);
	if (count_streams(t, (Node *) from) > 1)
		items = attach_lateral_items(t, items, quals);
	foreach(lc, items)
	{
		if (count_streams(t, lfirst(lc)) > 0)
			streamed = lappend(streamed, lfirst(lc));
	}
	foreach(lc, items)
	{
		Node	   *item = lfirst(lc);

		if (!list_member_ptr(streamed, item))
			result = lappend(result, item);
		else if (item == linitial(streamed))
		{
			List	   *within;
			List	   *over = NIL;

			item = joined(streamed, quals);
			within = take_within(&quals, wms_an_rtes_in(item));
			result = lappend(result, arrange(t, item, within, &over));
			quals = list_concat(quals, over);
		}
	}
	*left = NIL;
	return (Node *) makeFromExpr(result, anded(quals));
}

/* Puts the conditions, which concern nothing else, as deep into the tree as may be; left: those that must stay above. */
static Node *
arrange(Tree *t, Node *node, List *quals, List **left)
{
	if (IsA(node, FromExpr))
		return arrange_from(t, (FromExpr *) node, quals, left);
	if (IsA(node, JoinExpr) && count_streams(t, node) > 1)
		return arrange_join(t, (JoinExpr *) node, quals, left);
	*left = quals;
	return node;
}

/* ---------------------------------------------------------------- from the lowest join upwards */

/* The first stream that a part of FROM reads; NULL: none. */
static RangeTblEntry *
stream_of(Tree *t, Node *node)
{
	Bitmapset  *rels = wms_an_rtes_in(node);
	ListCell   *lc;

	foreach(lc, t->streamed)
	{
		if (bms_is_member(lfirst_int(lc), rels))
			return rt_fetch(lfirst_int(lc), t->query->rtable);
	}
	return NULL;
}

/* A stream that an outer join with static tables may fill with NULLs. */
static void
check_nullable(Tree *t, JoinExpr *join)
{
	RangeTblEntry *left = stream_of(t, join->larg);
	RangeTblEntry *right = stream_of(t, join->rarg);

	if (left && (join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL))
		wms_no_nullable_stream(t->a, left);
	if (right && (join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL))
		wms_no_nullable_stream(t->a, right);
}

/* Where in the tree a join stands that has two streamed sides and none such below; NULL: nowhere. */
static Node **
lowest_join(Tree *t, Node **place)
{
	Node	  **found = NULL;
	ListCell   *lc;

	if (IsA(*place, FromExpr))
	{
		foreach(lc, ((FromExpr *) *place)->fromlist)
		{
			if (found == NULL)
				found = lowest_join(t, (Node **) &lfirst(lc));
		}
	}
	else if (IsA(*place, JoinExpr))
	{
		JoinExpr   *join = (JoinExpr *) *place;

		found = lowest_join(t, &join->larg);
		if (found == NULL)
			found = lowest_join(t, &join->rarg);
		if (found == NULL && count_streams(t, join->larg) > 0 && count_streams(t, join->rarg) > 0)
			found = place;
		else if (found == NULL)
			check_nullable(t, join);
	}
	return found;
}

/* Does the join with this range table number stand in a part of FROM? */
bool
wms_an_has_join(Node *node, int rtindex)
{
	ListCell   *lc;

	if (IsA(node, JoinExpr))
		return ((JoinExpr *) node)->rtindex == rtindex || wms_an_has_join(((JoinExpr *) node)->larg, rtindex) ||
			wms_an_has_join(((JoinExpr *) node)->rarg, rtindex);
	if (!IsA(node, FromExpr))
		return false;
	foreach(lc, ((FromExpr *) node)->fromlist)
	{
		if (wms_an_has_join(lfirst(lc), rtindex))
			return true;
	}
	return false;
}

/* Entries that were taken below an operator are gone here. */
static void
drop_entries(Query *query, Bitmapset *used)
{
	for (int i = 1; i <= list_length(query->rtable); i++)
	{
		RangeTblEntry *rte = rt_fetch(i, query->rtable);

		if (!bms_is_member(i, used) && (rte->rtekind != RTE_JOIN || !wms_an_has_join((Node *) query->jointree, i)))
			wms_an_void_rte(rte);
	}
}

static bool
reads_streams_in_exists(Analysis *a, Query *query)
{
	ListCell   *lc;
	SubLink    *link;
	bool		negated;

	foreach(lc, wms_an_conjuncts(query->jointree->quals))
	{
		if (is_streamed_exists(a, lfirst(lc), &link, &negated))
			return true;
	}
	return false;
}

/*
 * Makes operators of all joins of streams in a level.  with_time: something above may ask for the event time of the rows.
 */
void
wms_an_cut_joins(Analysis *a, Query *query, bool with_time)
{
	Tree		t = {.a = a,.query = query};
	List	   *left = NIL;
	Node	   *root;
	Node	  **place;

	if (list_length(wms_an_streamed_rtes(a, query)) < 2 && !reads_streams_in_exists(a, query))
		return;
	exists_to_joins(a, query);
	if (a->refusal == NULL)
		wms_an_check_sublinks(a, query);
	if (a->refusal)
		return;
	t.streamed = wms_an_streamed_rtes(a, query);
	root = arrange(&t, (Node *) query->jointree, NIL, &left);
	query->jointree = castNode(FromExpr, root);
	while (a->refusal == NULL)
	{
		root = (Node *) query->jointree;
		t.streamed = wms_an_streamed_rtes(a, query);
		place = lowest_join(&t, &root);
		if (place == NULL || a->refusal)
			break;
		wms_an_cut_join(a, query, place, with_time);
	}
	if (a->refusal)
		return;
	wms_an_open_from(query->jointree);
	drop_entries(query, wms_an_used_rtes(query));
	query->hasSubLinks = checkExprHasSubLink((Node *) query->targetList) || checkExprHasSubLink((Node *) query->jointree) ||
		checkExprHasSubLink(query->havingQual);
}
