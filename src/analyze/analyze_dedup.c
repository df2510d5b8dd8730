/*
 * analyze_dedup.c
 *	  DISTINCT and DISTINCT ON over streamed rows become an operator that lets the first row of each key pass.
 *
 * The level itself, without its DISTINCT, becomes the operator's input; above, only its columns are read.  Columns of the input, in
 * order: the keys; a window that is known by one of its bounds only; the other columns; the event time, where the operator needs
 * it; #ord.
 *
 * When keys leave.  With an event time or a window among them, together with it: then the late test looks at that, too.  Of
 * several the raw time decides.  Without, but with a watermark below, a delay after their first row.  A time that an
 * outer join may have left NULL counts as none: a row without it must not get lost.  So does the begin of a session.
 *
 * UNION is UNION ALL with DISTINCT around it; one below a UNION ALL gets a level of its own for that.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"

#include "analyze/analyze_internal.h"

typedef struct Dedup
{
	Analysis   *a;
	Query	   *query;			/* the level; its upper half in the end */
	Query	   *lower;
	WmsOpPlan  *op;
	List	   *tlist;			/* of lower */
	List	   *rtable;			/* of the level, for texts */
	AnTime	   *times;			/* of each column of tlist */
	int			key_time;		/* column (1-based) of the time or window that keys leave with; 0: none */
} Dedup;

/* ---------------------------------------------------------------- UNION */

static bool
all_unions(Node *node)
{
	SetOperationStmt *op = (SetOperationStmt *) node;

	if (!IsA(node, SetOperationStmt))
		return true;
	return op->op == SETOP_UNION && all_unions(op->larg) && all_unions(op->rarg);
}

static void
make_all(Node *node)
{
	SetOperationStmt *op = (SetOperationStmt *) node;

	if (!IsA(node, SetOperationStmt))
		return;
	op->all = true;
	op->groupClauses = NIL;
	make_all(op->larg);
	make_all(op->rarg);
}

/* The first branch below a place in set operations, by its number in the range table. */
int
wms_an_leftmost_leaf(Node *node)
{
	while (IsA(node, SetOperationStmt))
		node = ((SetOperationStmt *) node)->larg;
	return castNode(RangeTblRef, node)->rtindex;
}

/* A branch of set operations as a query of its own. */
static Query *
branch_query(Query *query, SetOperationStmt *op)
{
	Query	   *branch = makeNode(Query);
	int			leaf = wms_an_leftmost_leaf((Node *) op);
	List	   *names = rt_fetch(leaf, query->rtable)->subquery->targetList;
	Bitmapset  *used;

	branch->commandType = CMD_SELECT;
	branch->canSetTag = true;
	branch->stmt_location = rt_fetch(leaf, query->rtable)->subquery->stmt_location;
	branch->rtable = copyObject(query->rtable);
	branch->jointree = makeFromExpr(NIL, NULL);
	branch->setOperations = (Node *) op;
	for (int i = 0; i < list_length(op->colTypes); i++)
		wms_an_add_column(&branch->targetList,
						  (Node *) makeVar(leaf, i + 1, list_nth_oid(op->colTypes, i), list_nth_int(op->colTypmods, i),
										   list_nth_oid(op->colCollations, i), 0),
						  list_nth_node(TargetEntry, names, i)->resname);
	used = wms_an_used_rtes(branch);
	for (int i = 1; i <= list_length(branch->rtable); i++)
	{
		if (!bms_is_member(i, used))
			wms_an_void_rte(rt_fetch(i, branch->rtable));
	}
	return branch;
}

/* Every UNION below this place becomes a subquery; what it is made of goes with it. */
static void
set_unions_apart(Query *query, Node **place)
{
	SetOperationStmt *op = (SetOperationStmt *) *place;
	RangeTblEntry *rte;
	RangeTblRef *ref;
	ListCell   *lc;

	if (!IsA(op, SetOperationStmt) || op->op != SETOP_UNION)
		return;
	if (op->all)
	{
		set_unions_apart(query, &op->larg);
		set_unions_apart(query, &op->rarg);
		return;
	}
	rte = makeNode(RangeTblEntry);
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = branch_query(query, op);
	rte->eref = makeAlias("union", NIL);
	foreach(lc, rte->subquery->targetList)
		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(lfirst_node(TargetEntry, lc)->resname)));
	query->rtable = lappend(query->rtable, rte);
	ref = makeNode(RangeTblRef);
	ref->rtindex = list_length(query->rtable);
	*place = (Node *) ref;
}

static void
write_out_lower_unions(Query *query)
{
	int			before = wms_an_leftmost_leaf(query->setOperations);
	int			after;
	Bitmapset  *used;

	set_unions_apart(query, &query->setOperations);
	after = wms_an_leftmost_leaf(query->setOperations);
	if (after != before)
		ChangeVarNodes((Node *) query->targetList, before, after, 0);
	used = wms_an_used_rtes(query);
	for (int i = 1; i <= list_length(query->rtable); i++)
	{
		if (!bms_is_member(i, used))
			wms_an_void_rte(rt_fetch(i, query->rtable));
	}
}

/* Writes a UNION as SELECT DISTINCT from a UNION ALL. */
void
wms_an_write_out_union(Query *query)
{
	SetOperationStmt *op = (SetOperationStmt *) query->setOperations;
	RangeTblEntry *rte;
	Query	   *sub;
	Query	   *distinct;
	List	   *tlist = NIL;
	List	   *groups;
	ListCell   *lc;
	ListCell   *group;

	if (op && op->all)
		write_out_lower_unions(query);
	if (op == NULL || !IsA(op, SetOperationStmt) || op->all || !all_unions((Node *) op) || query->sortClause || query->limitCount)
		return;
	sub = copyObject(query);
	groups = copyObject(op->groupClauses);
	make_all(sub->setOperations);

	rte = makeNode(RangeTblEntry);
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = sub;
	rte->eref = makeAlias("union", NIL);
	rte->inFromCl = true;
	foreach(lc, sub->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *expr = (Node *) tle->expr;

		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(tle->resname)));
		wms_an_add_column(&tlist, (Node *) makeVar(1, tle->resno, exprType(expr), exprTypmod(expr), exprCollation(expr), 0), tle->resname);
	}
	forboth(lc, tlist, group, groups)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		tle->ressortgroupref = tle->resno;
		lfirst_node(SortGroupClause, group)->tleSortGroupRef = tle->resno;
	}
	distinct = wms_an_select_from(tlist, rte);
	distinct->distinctClause = groups;
	distinct->stmt_location = sub->stmt_location;
	*query = *distinct;
}

/* ---------------------------------------------------------------- keys and times */

/* Keys first, then the other columns; entries keep what clauses refer to them by. */
static void
order_columns(Dedup *d)
{
	List	   *keys = NIL;
	List	   *others = NIL;
	List	   *junk = NIL;
	AttrNumber	n = 0;
	ListCell   *lc;

	foreach(lc, d->query->distinctClause)
		keys = list_append_unique_ptr(keys, get_sortgroupclause_tle(lfirst(lc), d->query->targetList));
	foreach(lc, d->query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (list_member_ptr(keys, tle))
			continue;
		if (tle->resjunk)
			junk = lappend(junk, tle);
		else
			others = lappend(others, tle);
	}
	d->op->nkeys = list_length(keys);
	d->tlist = list_concat(list_concat(keys, others), junk);
	foreach(lc, d->tlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		tle->resno = ++n;
		if (tle->resname == NULL)
			tle->resname = psprintf("column %d", n);
	}
}

static bool
is_junk(Dedup *d, int column)
{
	return column > d->op->nkeys && list_nth_node(TargetEntry, d->tlist, column - 1)->resjunk;
}

static void
find_times(Dedup *d)
{
	int			n = list_length(d->tlist);
	Bitmapset  *sources = NULL;
	bool		any = false;

	d->times = palloc0(sizeof(AnTime) * (n + 2));	/* room for a window and the event time */
	for (int i = 1; i <= n; i++)
	{
		Node	   *expr = (Node *) list_nth_node(TargetEntry, d->tlist, i - 1)->expr;
		AnTime		time = wms_an_time(d->a, d->query, expr);

		d->times[i - 1] = time;
		if (time.kind == AN_NONE || !time.watermarked || is_junk(d, i))
			continue;
		if (any && !bms_equal(sources, time.sources))
			wms_no_two_times(d->a, expr);
		if (time.processing)
			wms_no_clock_here(d->a, expr, "DISTINCT");
		sources = time.sources;
		any = true;
	}
}

static bool
may_close(const AnTime *time, AnTimeKind kind)
{
	return time->kind == kind && time->watermarked && time->bounded && !time->nullable && wms_an_tells_end(time);
}

/* The key that has this kind of time; 0: none. */
static int
key_with(Dedup *d, AnTimeKind kind)
{
	int			found = 0;

	for (int i = 1; i <= d->op->nkeys; i++)
	{
		if (!may_close(&d->times[i - 1], kind))
			continue;
		if (found && kind == AN_WINDOW && !wms_an_same_window(&d->times[i - 1], &d->times[found - 1]))
			wms_no_two_windows(d->a, (Node *) list_nth_node(TargetEntry, d->tlist, i - 1)->expr);
		found = i;
	}
	return found;
}

/* Inserts a column that is no junk behind the keys: it becomes one of them. */
static void
insert_key(Dedup *d, Node *expr, AnTime time)
{
	int			at = d->op->nkeys++;
	AttrNumber	n = 0;
	ListCell   *lc;

	d->tlist = list_insert_nth(d->tlist, at, makeTargetEntry((Expr *) expr, 0, pstrdup("window"), false));
	memmove(&d->times[at + 1], &d->times[at], sizeof(AnTime) * (list_length(d->tlist) - 1 - at));
	d->times[at] = time;
	foreach(lc, d->tlist)
		lfirst_node(TargetEntry, lc)->resno = ++n;
}

/* A window of which a bound is a key is one too. */
static void
add_window_of_bound(Dedup *d, int column)
{
	AnTime		time = d->times[column - 1];
	Node	   *bound = (Node *) list_nth_node(TargetEntry, d->tlist, column - 1)->expr;

	insert_key(d, wms_an_window_of_bound(bound, &time), wms_an_time_of_bound(&time));
	d->key_time = d->op->nkeys;
}

static void
find_key_time(Dedup *d)
{
	int			bound;

	d->key_time = key_with(d, AN_EVENT);
	if (d->key_time == 0)
		d->key_time = key_with(d, AN_WINDOW);
	if (d->key_time > 0)
		return;
	bound = key_with(d, AN_UPPER);
	if (bound == 0)
		bound = key_with(d, AN_LOWER);
	if (bound > 0 && d->times[bound - 1].window.size > 0)
		add_window_of_bound(d, bound);
}

/* ---------------------------------------------------------------- when keys leave */

/* Adds a column before the junk. */
static AttrNumber
add_hidden(Dedup *d, Node *expr, const char *name)
{
	int			at = 0;
	AttrNumber	n = 0;
	ListCell   *lc;

	while (at < list_length(d->tlist) && !is_junk(d, at + 1))
		at++;
	d->tlist = list_insert_nth(d->tlist, at, makeTargetEntry((Expr *) expr, 0, pstrdup(name), false));
	foreach(lc, d->tlist)
		lfirst_node(TargetEntry, lc)->resno = ++n;
	return at + 1;
}

static void
leave_with_key(Dedup *d)
{
	WmsOpPlan  *op = d->op;
	AnTime	   *time = &d->times[d->key_time - 1];
	TargetEntry *tle = list_nth(d->tlist, d->key_time - 1);

	op->expires = WMS_EXPIRES_KEY;
	op->bounded = true;
	op->window_key = d->key_time - 1;
	op->window = time->window;
	op->lag_us = Max(op->lag_us, time->lag_us);
	if (time->kind == AN_EVENT)
		op->window.kind = WMS_WINDOW_TIME;
	else if (wms_an_call((Node *) tle->expr) == WMS_FN_WINDOW && tle->ressortgroupref == 0)
	{
		/* the operator makes the window; a clause of the level may need the expression */
		Node	   *argument = linitial(((FuncExpr *) tle->expr)->args);

		tle->expr = (Expr *) makeNullConst(exprType((Node *) tle->expr), -1, InvalidOid);
		op->time_column = add_hidden(d, wms_an_event_of(copyObject(argument), time->type), "time");
	}
}

static void
set_expiry(Dedup *d)
{
	WmsOpPlan  *op = d->op;
	int64		lag_us = 0;
	int64		delay_us = 0;

	op->lag_us = wms_an_lag(d->a, d->lower);
	if (d->key_time > 0)
		leave_with_key(d);
	else if (wms_an_rows_bounded(d->a, d->lower, &lag_us, &delay_us))
	{
		op->expires = WMS_EXPIRES_WITHIN;
		op->expires_us = delay_us;
		op->bounded = true;
		op->lag_us = Max(op->lag_us, lag_us);
		op->time_column = add_hidden(d, wms_an_carried(d->a, d->lower, AN_EVT), "time");
	}
	else
	{
		op->expires = WMS_EXPIRES_NEVER;
		wms_an_notice(d->a, "the state of DISTINCT never shrinks: no watermark lets its keys leave");
	}
}

/* ---------------------------------------------------------------- the two halves */

static void
make_lower(Dedup *d)
{
	d->lower = makeNode(Query);
	*d->lower = *d->query;
	d->lower->distinctClause = NIL;
	d->lower->hasDistinctOn = false;
	d->lower->sortClause = NIL;
}

static void
set_keys(Dedup *d)
{
	WmsOpPlan  *op = d->op;

	op->keys = palloc0(sizeof(TargetEntry *) * op->nkeys);
	op->key_texts = palloc0(sizeof(char *) * op->nkeys);
	op->key_eq = palloc0(sizeof(Oid) * op->nkeys);
	for (int i = 0; i < op->nkeys; i++)
	{
		TargetEntry *tle = list_nth(d->tlist, i);
		ListCell   *lc;

		op->keys[i] = copyObject(tle);
		op->key_texts[i] = wms_an_text((Node *) tle->expr, d->rtable);
		op->key_eq[i] = wms_an_equality(exprType((Node *) tle->expr));
		foreach(lc, d->query->distinctClause)
		{
			SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

			if (clause->tleSortGroupRef == tle->ressortgroupref)
				op->key_eq[i] = clause->eqop;
		}
	}
}

/* No clause refers to the keys any more, unless the level has window functions. */
static void
forget_references(Dedup *d)
{
	ListCell   *lc;

	if (d->query->windowClause != NIL)
		return;
	foreach(lc, d->tlist)
		lfirst_node(TargetEntry, lc)->ressortgroupref = 0;
}

static void
finish_lower(Dedup *d)
{
	WmsOpPlan  *op = d->op;
	Query	   *lower = d->lower;
	List	   *out = NIL;
	int			ord_column = 0;
	ListCell   *lc;

	foreach(lc, d->tlist)
	{
		if (!lfirst_node(TargetEntry, lc)->resjunk)
			out = lappend(out, lfirst(lc));
	}
	op->out_desc = wms_an_desc(out, false);
	if (wms_an_has_raw_rows(d->a, lower))
		ord_column = add_hidden(d, wms_an_carried(d->a, lower, AN_ORD), AN_ORD);
	lower->targetList = d->tlist;
	lower->hasTargetSRFs = expression_returns_set((Node *) d->tlist);
	op->input = wms_an_input(d->a, lower, ord_column);
	op->input_desc = wms_an_desc(lower->targetList, true);
}

static void
add_op_set(Dedup *d, const bool *not_null, int ncolumns)
{
	WmsOpPlan  *op = d->op;
	AnSet	   *set = wms_an_add_set(d->a, psprintf("wms_op_%d", op->id), op->out_desc);
	const AnTime *key = op->expires == WMS_EXPIRES_KEY ? &d->times[d->key_time - 1] : NULL;
	int64		behind = key && key->kind == AN_WINDOW ? key->reach_us : 0;

	set->op = op->id;
	set->location = wms_an_place(d->a, op->keys[0]->expr);
	set->sources = list_copy(op->input->sources);
	set->lag_us = op->lag_us;
	set->spread_us = wms_an_spread(d->a, d->lower) + behind;
	for (int i = 0; i < ncolumns; i++)
	{
		AnTime	   *time = &set->times[i];

		*time = d->times[i];
		set->not_null[i] = not_null[i];
		if (time->kind == AN_NONE)
			continue;
		time->finished = false;
		time->lag_us = Max(time->lag_us, op->lag_us);
		/* rows of a window may come until it closes, however old their other times are then */
		if (key && (time->kind == AN_EVENT || !wms_an_same_window(time, key)))
			time->lag_us += behind;
	}
	if (op->expires == WMS_EXPIRES_KEY)
		set->evt = d->key_time;
	else if (op->expires == WMS_EXPIRES_WITHIN)
	{
		AnTime	   *time = &set->times[op->time_column - 1];
		ListCell   *lc;

		set->evt = op->time_column;
		time->kind = AN_EVENT;
		time->type = exprType((Node *) list_nth_node(TargetEntry, d->tlist, op->time_column - 1)->expr);
		time->watermarked = time->bounded = true;
		time->lag_us = op->lag_us;
		foreach(lc, set->sources)
			time->sources = bms_add_member(time->sources, lfirst_int(lc));
	}
}

static bool *
nulls_of(Dedup *d)
{
	bool	   *not_null = palloc0(sizeof(bool) * (list_length(d->tlist) + 2));
	int			i = 0;
	ListCell   *lc;

	foreach(lc, d->tlist)
		not_null[i++] = wms_an_not_null(d->a, d->query, (Node *) lfirst_node(TargetEntry, lc)->expr);
	return not_null;
}

/* Columns that are no junk; keys are none, even if the level does not show them. */
static int
count_columns(Dedup *d)
{
	int			n = 0;

	for (int i = 1; i <= list_length(d->tlist); i++)
	{
		if (is_junk(d, i))
			continue;
		list_nth_node(TargetEntry, d->tlist, i - 1)->resjunk = false;
		n++;
	}
	return n;
}

/* Cuts a level with DISTINCT. */
void
wms_an_cut_dedup(Analysis *a, Query *query)
{
	Dedup		d = {.a = a,.query = query};
	List	   *visible = NIL;
	List	   *upper = NIL;
	Query	   *above;
	bool	   *not_null;
	int			ncolumns;
	ListCell   *lc;

	wms_an_refuse_sessions(a, query, (Node *) query);
	if (a->refusal)
		return;
	foreach(lc, query->targetList)
	{
		if (!lfirst_node(TargetEntry, lc)->resjunk)
			visible = lappend(visible, lfirst(lc));
	}
	d.rtable = copyObject(query->rtable);
	d.op = wms_an_new_op(a, WMS_OP_DEDUP);
	order_columns(&d);
	find_times(&d);
	if (a->refusal == NULL)
		find_key_time(&d);
	if (a->refusal)
		return;
	make_lower(&d);
	set_keys(&d);
	not_null = nulls_of(&d);
	forget_references(&d);
	ncolumns = count_columns(&d);
	set_expiry(&d);
	foreach(lc, visible)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *expr = (Node *) tle->expr;

		wms_an_add_column(&upper, (Node *) makeVar(1, tle->resno, exprType(expr), exprTypmod(expr), exprCollation(expr), 0), tle->resname);
	}
	finish_lower(&d);
	add_op_set(&d, not_null, ncolumns);
	above = wms_an_select_from(upper, wms_an_op_rte(d.op));
	*query = *above;
}
