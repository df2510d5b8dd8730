/*
 * analyze_place.c
 *	  Where in the definition's text the parts of a query stand, so that every refusal can point at what is to blame.
 *
 * An analysed tree has positions in its expressions only, and those of a view have none.  So the text is parsed once more, and the
 * tree of the parser is walked beside the rewritten one: branches of set operations beside branches, items of FROM beside items,
 * WITH queries by name, sublinks by their position.
 *
 * - A query bears its place, its first expression, in stmt_location: that survives every copy, and is taken away again
 *   before the plan leaves the room.  All queries of a view have the place where the user's text names the view.
 * - A query of the definition's own, as against one of a view, bears a mark in stmt_len, likewise.
 * - An entry of FROM is known by its eref, which the mutators of trees leave alone; what copies entries hands the places on, or
 *   happens when they are not asked for any more.  A row set that takes an entry's place remembers it (AnSet.location).
 * - An expression that was folded may have become the body of a function, with positions in that: its place is noted before.
 *
 * Analysis.place is the place of the level that is being looked at: what has no position of its own is blamed there.
 *
 * Locations are bytes from 0 into the text, -1: unknown.  A definition that comes from its view has no text, and no places at all.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "parser/parser.h"
#include "parser/parsetree.h"

#include "analyze/analyze_internal.h"

#define OWN_QUERY (-2)			/* in stmt_len */

typedef struct AnPlace
{
	const void *node;
	int			location;
} AnPlace;

typedef struct Marking
{
	Analysis   *a;
	List	   *links;			/* SubLink *, of the parser's tree, at any depth */
} Marking;

/* ---------------------------------------------------------------- whose queries they are */

static bool
own_walker(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, own_walker, arg);
	((Query *) node)->stmt_len = OWN_QUERY;
	return query_tree_walker((Query *) node, own_walker, arg, 0);
}

/* To be called before views stand in the query. */
void
wms_an_mark_own(Query *query)
{
	own_walker((Node *) query, NULL);
}

/* Did the definition's owner write it?  Then what it names of the entries of its FROM was named with the owner's privileges. */
bool
wms_an_is_own(const Query *query)
{
	return query->stmt_len == OWN_QUERY;
}

/* ---------------------------------------------------------------- notes */

/* A node has its place at a location; it is known by its address. */
void
wms_an_note_place(Analysis *a, const void *node, int location)
{
	AnPlace    *place;

	if (node == NULL || location < 0)
		return;
	place = palloc(sizeof(AnPlace));
	place->node = node;
	place->location = location;
	a->places = lcons(place, a->places);
}

static int
noted_place(const Analysis *a, const void *node)
{
	ListCell   *lc;

	foreach(lc, a->places)
	{
		const AnPlace *place = lfirst(lc);

		if (place->node == node)
			return place->location;
	}
	return -1;
}

bool
wms_an_is_noted(const Analysis *a, const void *node)
{
	return noted_place(a, node) >= 0;
}

static bool
erefs_walker(Node *node, void *arg)
{
	List	  **erefs = arg;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, erefs_walker, arg);
	foreach(lc, ((Query *) node)->rtable)
		*erefs = lappend(*erefs, lfirst_node(RangeTblEntry, lc)->eref);
	return query_tree_walker((Query *) node, erefs_walker, arg, 0);
}

/* to is a copy of from: its entries stand at the same places. */
void
wms_an_copy_places(Analysis *a, Query *from, Query *to)
{
	List	   *old = NIL;
	List	   *new = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	erefs_walker((Node *) from, &old);
	erefs_walker((Node *) to, &new);
	forboth(lc, old, lc2, new)
		wms_an_note_place(a, lfirst(lc2), noted_place(a, lfirst(lc)));
}

/* ---------------------------------------------------------------- asking */

static bool
leftmost_walker(Node *node, void *arg)
{
	int		   *leftmost = arg;
	int			location;

	if (node == NULL || IsA(node, Query))
		return false;
	location = exprLocation(node);
	if (location >= 0 && (*leftmost < 0 || location < *leftmost))
		*leftmost = location;
	return expression_tree_walker(node, leftmost_walker, arg);
}

static int
place_of_entry(const Analysis *a, const RangeTblEntry *rte)
{
	int			location = noted_place(a, rte->eref);
	ListCell   *lc;

	if (location >= 0 || (rte->rtekind == RTE_SUBQUERY && rte->subquery->stmt_location > 0))
		return location >= 0 ? location : rte->subquery->stmt_location;
	foreach(lc, a->sets)
	{
		const AnSet *set = lfirst(lc);

		if (rte->rtekind == RTE_NAMEDTUPLESTORE && strcmp(set->name, rte->enrname) == 0)
			location = set->location;
	}
	return location;
}

/* The place of an expression, a query or an entry of FROM; if it has none, or is NULL, that of the level. */
int
wms_an_place(Analysis *a, const void *where)
{
	int			location = where ? noted_place(a, where) : -1;

	if (where == NULL || location >= 0)
		 /* it is known, or never will be */ ;
	else if (IsA(where, RangeTblEntry))
		location = place_of_entry(a, where);
	else if (IsA(where, Query))
		location = ((const Query *) where)->stmt_location > 0 ? ((const Query *) where)->stmt_location : -1;
	else if ((location = exprLocation(where)) < 0)
		leftmost_walker(unconstify(void *, where), &location);
	return location >= 0 ? location : a->place;
}

/* The place of an operator's or a source's row set. */
int
wms_an_place_of_set(Analysis *a, const char *kind, int number)
{
	int			location = wms_an_set(a, psprintf("wms_%s_%d", kind, number))->location;

	return location >= 0 ? location : a->place;
}

/* From here on the level is what is looked at; the caller puts back what is returned when it leaves the level. */
int
wms_an_enter(Analysis *a, const Query *level)
{
	int			outside = a->place;

	if (level->stmt_location > 0)
		a->place = level->stmt_location;
	return outside;
}

/* ---------------------------------------------------------------- the parser's tree */

static bool
first_walker(Node *node, void *arg)
{
	int		   *first = arg;
	int			location;

	if (node == NULL)
		return false;
	location = exprLocation(node);
	if (location >= 0 && (*first < 0 || location < *first))
		*first = location;
	return raw_expression_tree_walker(node, first_walker, arg);
}

static int
first_in(void *raw)
{
	int			first = -1;

	first_walker(raw, &first);
	return first;
}

/* The first thing that a SELECT says: an item of its list, or what it reads (TABLE t, SELECT FROM t). */
static int
place_of_select(SelectStmt *raw)
{
	int			location;

	if (raw->op != SETOP_NONE)
		return place_of_select(raw->larg);
	location = first_in(raw->valuesLists ? raw->valuesLists : raw->targetList);
	return location >= 0 ? location : first_in(raw->fromClause);
}

static bool
links_walker(Node *node, void *arg)
{
	Marking    *m = arg;

	if (node == NULL)
		return false;
	if (IsA(node, SubLink))
		m->links = lappend(m->links, node);
	return raw_expression_tree_walker(node, links_walker, arg);
}

/* ---------------------------------------------------------------- both trees side by side */

typedef struct Below
{
	Analysis   *a;
	int			location;
} Below;

static bool
below_walker(Node *node, void *arg)
{
	Below	   *below = arg;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, below_walker, arg);
	((Query *) node)->stmt_location = below->location;
	foreach(lc, ((Query *) node)->rtable)
		wms_an_note_place(below->a, lfirst_node(RangeTblEntry, lc)->eref, below->location);
	return query_tree_walker((Query *) node, below_walker, arg, 0);
}

/* Everything in the query stands at one place. */
static void
mark_below(Marking *m, Query *query, int location)
{
	Below		below = {m->a, location};

	below_walker((Node *) query, &below);
}

static void mark_level(Marking *m, Query *query, Node *raw, int location);

/* A table, view or WITH query that is named; a sample is blamed where its method is. */
static void
mark_name(Marking *m, RangeTblEntry *rte, const RangeVar *name)
{
	wms_an_note_place(m->a, rte->eref, name->location);
	if (rte->rtekind == RTE_SUBQUERY)
		mark_below(m, rte->subquery, name->location);
}

static void
mark_item(Marking *m, Query *query, Node *item, Node *raw)
{
	RangeTblEntry *rte;

	if (IsA(raw, JoinExpr) && IsA(item, JoinExpr))
	{
		mark_item(m, query, ((JoinExpr *) item)->larg, ((JoinExpr *) raw)->larg);
		mark_item(m, query, ((JoinExpr *) item)->rarg, ((JoinExpr *) raw)->rarg);
	}
	if (!IsA(item, RangeTblRef))
		return;
	rte = rt_fetch(((RangeTblRef *) item)->rtindex, query->rtable);
	if (IsA(raw, RangeTableSample))
	{
		wms_an_note_place(m->a, rte->tablesample, ((RangeTableSample *) raw)->location);
		raw = ((RangeTableSample *) raw)->relation;
	}
	if (IsA(raw, RangeVar))
		mark_name(m, rte, (RangeVar *) raw);
	else if (IsA(raw, RangeSubselect) && rte->rtekind == RTE_SUBQUERY)
	{
		mark_level(m, rte->subquery, ((RangeSubselect *) raw)->subquery, query->stmt_location);
		wms_an_note_place(m->a, rte->eref, rte->subquery->stmt_location);
	}
	else
		wms_an_note_place(m->a, rte->eref, first_in(raw));
}

/* Branches of set operations. */
static void
mark_branches(Marking *m, Query *query, Node *node, SelectStmt *raw)
{
	if (IsA(node, RangeTblRef))
	{
		RangeTblEntry *rte = rt_fetch(((RangeTblRef *) node)->rtindex, query->rtable);

		mark_level(m, rte->subquery, (Node *) raw, query->stmt_location);
		wms_an_note_place(m->a, rte->eref, rte->subquery->stmt_location);
	}
	else if (raw->op != SETOP_NONE)
	{
		mark_branches(m, query, ((SetOperationStmt *) node)->larg, raw->larg);
		mark_branches(m, query, ((SetOperationStmt *) node)->rarg, raw->rarg);
	}
}

static void
mark_ctes(Marking *m, Query *query, const WithClause *with)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		foreach(lc2, with ? with->ctes : NIL)
		{
			CommonTableExpr *raw = lfirst_node(CommonTableExpr, lc2);

			if (strcmp(raw->ctename, cte->ctename) == 0)
				mark_level(m, castNode(Query, cte->ctequery), raw->ctequery, cte->location);
		}
	}
}

/* An expression may have been copied by the parser: every copy has the position of the one that was written. */
static bool
mark_links_walker(Node *node, void *arg)
{
	Marking    *m = arg;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, SubLink))
		return expression_tree_walker(node, mark_links_walker, arg);
	foreach(lc, m->links)
	{
		SubLink    *raw = lfirst(lc);
		SubLink    *link = (SubLink *) node;

		if (raw->location >= 0 && raw->location == link->location)
			mark_level(m, castNode(Query, link->subselect), raw->subselect, link->location);
	}
	return mark_links_walker(((SubLink *) node)->testexpr, arg);
}

/* location: for what cannot be found. */
static void
mark_level(Marking *m, Query *query, Node *raw, int location)
{
	SelectStmt *select = (SelectStmt *) raw;
	int			own = IsA(raw, SelectStmt) ? place_of_select(select) : -1;
	ListCell   *lc;
	ListCell   *lc2;

	mark_below(m, query, own >= 0 ? own : location);
	if (!IsA(raw, SelectStmt))
		return;
	mark_ctes(m, query, select->withClause);
	if (query->setOperations)
		mark_branches(m, query, query->setOperations, select);
	else
	{
		forboth(lc, query->jointree->fromlist, lc2, select->fromClause)
			mark_item(m, query, lfirst(lc), lfirst(lc2));
	}
	(void) query_tree_walker(query, mark_links_walker, m, QTW_IGNORE_RT_SUBQUERIES | QTW_IGNORE_CTE_SUBQUERIES);
}

static void
mark_text(Analysis *a, Query *query, const char *text)
{
	Marking		m = {a, NIL};
	List	   *statements = raw_parser(text, RAW_PARSE_DEFAULT);

	if (list_length(statements) != 1)
		elog(ERROR, "the text of a definition has %d statements", list_length(statements));
	links_walker(linitial_node(RawStmt, statements)->stmt, &m);
	mark_level(&m, query, linitial_node(RawStmt, statements)->stmt, 0);
	wms_an_enter(a, query);
	a->place = Max(a->place, 0);
}

/* Notes the places of a rewritten query, whose text is given; NULL: it has none. */
void
wms_an_mark_places(Analysis *a, Query *query, const char *text)
{
	ListCell   *lc;

	a->place = -1;
	if (text)
		mark_text(a, query, text);
	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk)
			a->column_places = lappend_int(a->column_places, wms_an_place(a, tle->expr));
	}
}

/* ---------------------------------------------------------------- forgetting */

static bool
forget_walker(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, forget_walker, arg);
	((Query *) node)->stmt_location = -1;
	((Query *) node)->stmt_len = 0;
	return query_tree_walker((Query *) node, forget_walker, arg, 0);
}

static void
forget_input(WmsInputPlan *input)
{
	if (input)
		forget_walker((Node *) input->query, NULL);
}

/* Queries of a plan run under texts of their own, in which the server looks for a statement's location. */
void
wms_an_forget_places(WmsStreamPlan *plan)
{
	for (int i = 0; i < plan->nsources; i++)
		forget_walker((Node *) plan->sources[i].below, NULL);
	for (int i = 0; i < plan->nops; i++)
	{
		forget_input(plan->ops[i].input);
		forget_input(plan->ops[i].input2);
		forget_walker((Node *) plan->ops[i].kept_query, NULL);
	}
	forget_input(plan->final);
	forget_walker((Node *) plan->shown_query, NULL);
}
