/*
 * analyze_output.c
 *	  What the result shows: its columns, its key, and the rules of the output modes.
 *
 * The final query is followed down to the operator whose groups it shows.  Between the two nothing may make several rows of a
 * group, or the group's keys are no key of the result.  Each result column is written in
 * terms of the operator's columns; so we see which keys it shows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "analyze/analyze_internal.h"

/* Result columns (numbers, 0: none) that show a key, or a bound of it. */
typedef struct ShownKey
{
	int			whole;
	int			lower;
	int			upper;
} ShownKey;

typedef struct Output
{
	Analysis   *a;
	Query	   *query;			/* the final query */
	WmsStreamPlan *plan;
	WmsOpPlan  *top;			/* NULL: none */
	AnSet	   *top_set;
	List	   *columns;		/* of each result column: the expression over the top operator's columns, or NULL */
	ShownKey   *shown;
} Output;

/* ---------------------------------------------------------------- modes */

/* Is a window of a column without watermark among the keys? */
static bool
groups_by_other_window(Analysis *a, const WmsOpPlan *op)
{
	AnSet	   *set = wms_an_set(a, psprintf("wms_op_%d", op->id));

	for (int i = 0; i < op->nkeys; i++)
	{
		if (set->times[i].kind == AN_WINDOW && !set->times[i].watermarked)
			return true;
	}
	return false;
}

/* Has every source that flows into the operator a delay? */
static bool
sources_are_bounded(const Analysis *a, const WmsOpPlan *op)
{
	ListCell   *lc;

	foreach(lc, op->input->sources)
	{
		const WmsSourcePlan *source = list_nth(a->sources, lfirst_int(lc));

		if (!source->bounded)
			return false;
	}
	return true;
}

/* Nothing closes the groups of an operator: a source has no delay, or a join below does not end. */
static void
refuse_unbounded(Output *out, const WmsOpPlan *op)
{
	Node	   *key = (Node *) op->keys[op->window_key]->expr;

	if (sources_are_bounded(out->a, op))
		wms_no_unbounded_join(out->a, key);
	else
		wms_no_append_bound(out->a, key, out->plan->nops == 1);
}

static void
check_append(Output *out)
{
	for (int i = 0; i < out->plan->nops; i++)
	{
		WmsOpPlan  *op = &out->plan->ops[i];

		if (op->kind != WMS_OP_AGGREGATE && op->kind != WMS_OP_COLLECT)
			continue;
		if (op->window_key < 0 || !wms_an_set(out->a, psprintf("wms_op_%d", op->id))->times[op->window_key].watermarked)
			wms_no_append_group(out->a, wms_an_place_of_set(out->a, "op", op->id), groups_by_other_window(out->a, op));
		else if (!op->bounded)
			refuse_unbounded(out, op);
	}
}

static void
check_mode(Output *out)
{
	WmsStreamPlan *plan = out->plan;

	if (plan->mode == WMS_APPEND)
		check_append(out);
	else if (plan->nops > 1)
		wms_no_chain(out->a, wms_an_place_of_set(out->a, "op", plan->nops - 1));
	else if (plan->nops == 1 && (plan->ops[0].kind == WMS_OP_DEDUP || plan->ops[0].kind == WMS_OP_JOIN))
		wms_no_append_only(out->a, plan->ops[0].kind == WMS_OP_JOIN ? "a join of streams" : "DISTINCT over a stream",
						   wms_an_place_of_set(out->a, "op", 0));
	else if (plan->nops == 1 && out->top == NULL && plan->ops[0].kind == WMS_OP_AGGREGATE)
		wms_no_rows_beside_groups(out->a, wms_an_place_of_set(out->a, "op", 0));
	else if (plan->mode == WMS_COMPLETE &&
			 (plan->nops == 0 || plan->ops[0].kind != WMS_OP_AGGREGATE || wms_an_has_raw_rows(out->a, out->query)))
		wms_no_complete(out->a);
	else if (plan->mode == WMS_UPDATE && plan->nops == 1 && !plan->ops[0].bounded)
		wms_an_notice(out->a, "groups of this stream stay in its state for ever: no watermark closes them");
}

/* ---------------------------------------------------------------- the top operator */

static void
find_top(Output *out)
{
	List	   *sets = wms_an_sets_below(out->a, out->query);
	AnSet	   *set;

	out->plan->top_op = -1;
	if (list_length(sets) != 1)
		return;
	set = linitial(sets);
	if (set->op < 0 || out->plan->ops[set->op].kind != WMS_OP_AGGREGATE)
		return;
	out->top_set = set;
	out->top = &out->plan->ops[set->op];
	out->plan->top_op = set->op;
}

/* Writes an expression of the final query in terms (varno 1) of the row set at its bottom; NULL if rows are multiplied on the way. */
static Node *
down_to_set(Query *query, Node *expr)
{
	expr = copyObject(expr);
	for (;;)
	{
		RangeTblEntry *rte;
		int			rtindex;

		if (query->setOperations || expression_returns_set((Node *) query->targetList) ||
			!bms_get_singleton_member(wms_an_used_rtes(query), &rtindex))
			return NULL;
		rte = rt_fetch(rtindex, query->rtable);
		if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		{
			ChangeVarNodes(expr, rtindex, 1, 0);
			return expr;
		}
		if (rte->rtekind != RTE_SUBQUERY)
			return NULL;
		expr = wms_an_pushed_down(expr, rtindex, rte->subquery);
		query = rte->subquery;
	}
}

/* What stops down_to_set: a set-returning function, or an entry of FROM beside the groups; NULL: something else. */
static void *
what_multiplies(Analysis *a, Query *query)
{
	List	   *streamed = wms_an_streamed_rtes(a, query);
	Bitmapset  *used = wms_an_used_rtes(query);
	int			rtindex;
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		if (expression_returns_set((Node *) lfirst_node(TargetEntry, lc)->expr))
			return lfirst_node(TargetEntry, lc)->expr;
	}
	if (bms_get_singleton_member(used, &rtindex))
		return rt_fetch(rtindex, query->rtable)->rtekind == RTE_SUBQUERY ? what_multiplies(a, rt_fetch(rtindex, query->rtable)->subquery) : NULL;
	for (rtindex = bms_next_member(used, -1); rtindex >= 0; rtindex = bms_next_member(used, rtindex))
	{
		if (!list_member_int(streamed, rtindex))
			return rt_fetch(rtindex, query->rtable);
	}
	return NULL;
}

static bool
one_row_per_group(Output *out)
{
	return down_to_set(out->query, (Node *) makeBoolConst(true, false)) != NULL;
}

/* ---------------------------------------------------------------- which keys are shown */

static void
note_shown(Output *out, Node *expr, int column)
{
	int			key;

	if (IsA(expr, Var))
	{
		key = ((Var *) expr)->varattno;
		if (key <= out->top->nkeys && out->shown[key - 1].whole == 0)
			out->shown[key - 1].whole = column;
		return;
	}
	if (!IsA(expr, FuncExpr) || list_length(((FuncExpr *) expr)->args) != 1 || !IsA(linitial(((FuncExpr *) expr)->args), Var))
		return;
	key = castNode(Var, linitial(((FuncExpr *) expr)->args))->varattno;
	if (key > out->top->nkeys)
		return;
	if (((FuncExpr *) expr)->funcid == F_LOWER_ANYRANGE && out->shown[key - 1].lower == 0)
		out->shown[key - 1].lower = column;
	if (((FuncExpr *) expr)->funcid == F_UPPER_ANYRANGE && out->shown[key - 1].upper == 0)
		out->shown[key - 1].upper = column;
}

static void
find_shown_keys(Output *out)
{
	ListCell   *lc;

	out->shown = palloc0(sizeof(ShownKey) * Max(out->top->nkeys, 1));
	foreach(lc, out->query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *expr;

		if (tle->resjunk)
			continue;
		expr = down_to_set(out->query, (Node *) tle->expr);
		out->columns = lappend(out->columns, expr);
		if (expr)
			note_shown(out, expr, tle->resno);
	}
}

/* Does either bound tell the window?  Of sessions it does where they were merged by all the other keys: then they do not overlap. */
static bool
told_by_one_bound(const Output *out, int key)
{
	if (key == out->top->window_key && out->top->window.kind == WMS_WINDOW_SESSION)
		return true;
	return out->top_set->times[key].window.kind == WMS_WINDOW_GRID;
}

/* The result columns that stand for a key; NIL when it is not shown. */
static List *
columns_for_key(Output *out, int key)
{
	const ShownKey *shown = &out->shown[key];
	bool		is_window = out->top_set->times[key].kind == AN_WINDOW;

	if (is_window && shown->lower && shown->upper && !told_by_one_bound(out, key))
		return list_make2_int(shown->lower, shown->upper);
	if (is_window && (shown->lower || shown->upper) && told_by_one_bound(out, key))
		return list_make1_int(shown->lower ? shown->lower : shown->upper);
	return shown->whole ? list_make1_int(shown->whole) : NIL;
}

/* The key that is not shown, as the definition calls it; NULL: all are.  Fills the plan. */
static TargetEntry *
set_key(Output *out)
{
	WmsStreamPlan *plan = out->plan;
	List	   *columns = NIL;
	bool		not_null = true;

	for (int i = 0; i < out->top->nkeys; i++)
	{
		List	   *shown = columns_for_key(out, i);

		if (shown == NIL)
			return out->top->keys[i];
		columns = list_concat_unique_int(columns, shown);
		not_null = not_null && out->top_set->not_null[i];
	}
	list_sort(columns, list_int_cmp);
	plan->key_columns = columns;
	plan->key_not_null = not_null && columns != NIL;
	return NULL;
}

/* The key columns of groups, whatever HAVING says of them. */
static void
set_shown_query(Output *out)
{
	List	   *tlist = NIL;
	char	   *name = psprintf("wms_op_%d", out->top->id);
	ListCell   *lc;

	foreach(lc, out->plan->key_columns)
	{
		int			column = lfirst_int(lc);

		wms_an_add_column(&tlist, list_nth(out->columns, column - 1), NameStr(TupleDescAttr(out->plan->result_desc, column - 1)->attname));
	}
	out->plan->shown_query = wms_an_select_from(tlist, wms_rowset_rte(name, out->top->out_desc, name));
}

/* Where all keys must be shown: what asks for it; NULL: nothing does. */
static const char *
who_needs_keys(const Output *out)
{
	if (out->plan->mode == WMS_UPDATE)
		return "update mode";
	if (out->plan->mode == WMS_COMPLETE)
		return "complete mode";
	return out->a->options->refines ? "allowed_lateness" : NULL;
}

static void
check_keys(Output *out)
{
	const char *needed_by = who_needs_keys(out);
	TargetEntry *hidden;

	if (out->top == NULL)
		return;
	if (!one_row_per_group(out))
	{
		if (needed_by)
			wms_no_rows_of_group(out->a, needed_by, what_multiplies(out->a, out->query));
		return;
	}
	find_shown_keys(out);
	hidden = set_key(out);
	if (hidden == NULL)
		set_shown_query(out);
	else if (needed_by)
		wms_no_hidden_key(out->a, needed_by, hidden->resname, (Node *) hidden->expr);
	else
		wms_an_notice(out->a, "the result gets no key, because group key \"%s\" is not among its columns", hidden->resname);
}

/* ---------------------------------------------------------------- columns */

static void
check_columns(Output *out)
{
	TupleDesc	desc = out->plan->result_desc;
	ListCell   *lc;
	int			i = 0;

	for (i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (get_typtype(att->atttypid) == TYPTYPE_PSEUDO)
			wms_no_type(out->a, NameStr(att->attname), att->atttypid, get_tle_by_resno(out->query->targetList, i + 1)->expr);
	}
	foreach(lc, out->query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk && wms_an_time(out->a, out->query, (Node *) tle->expr).kind == AN_WINDOW)
			wms_an_notice(out->a, "column \"%s\" is a range; BI tools want lower(...) AS window_start, upper(...) AS window_end", tle->resname);
	}
}

/* Of an operator's input: does the state keep this column?  It keeps keys, and arguments of aggregates only where it must. */
static bool
is_kept(const WmsOpPlan *op, const TargetEntry *tle)
{
	if (op->kind == WMS_OP_AGGREGATE)
		return tle->resno <= op->nkeys + op->kept_desc->natts - 2;
	return op->kind != WMS_OP_DEDUP || tle->resno <= op->nkeys;
}

static void
check_kept_columns(Output *out, const WmsOpPlan *op, const WmsInputPlan *input)
{
	ListCell   *lc;

	foreach(lc, input->query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Oid			type = exprType((Node *) tle->expr);

		if (is_kept(op, tle) && get_typtype(type) == TYPTYPE_PSEUDO)
			wms_no_kept_type(out->a, type, tle->expr);
	}
}

/* What is kept must mean the same to every process, also to one of next week. */
static void
check_state(Output *out)
{
	for (int i = 0; i < out->plan->nops; i++)
	{
		const WmsOpPlan *op = &out->plan->ops[i];

		check_kept_columns(out, op, op->input);
		if (op->input2)
			check_kept_columns(out, op, op->input2);
	}
}

/* What a column says of the time of its row. */
static WmsShownTime
shown_by(const AnTime *time, int column)
{
	WmsShownTime shown = {WMS_SHOWN_NONE, column, 0};

	if (!time->watermarked)
		return shown;
	switch (time->kind)
	{
		case AN_EVENT:
			shown.kind = WMS_SHOWN_EVENT;
			break;
		case AN_WINDOW:
			shown.kind = WMS_SHOWN_RANGE;
			break;
		case AN_UPPER:
			shown.kind = WMS_SHOWN_UPPER;
			break;
		case AN_LOWER:
			shown.size = time->window.size;
			shown.kind = time->window.kind == WMS_WINDOW_GRID ? WMS_SHOWN_LOWER : WMS_SHOWN_EVENT;
			break;
		case AN_NONE:
			break;
	}
	return shown;
}

/* Which column tells best: the kinds are in that order. */
static void
find_shown_time(Output *out)
{
	ListCell   *lc;

	foreach(lc, out->query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		AnTime		time = wms_an_time(out->a, out->query, (Node *) tle->expr);
		WmsShownTime shown = shown_by(&time, tle->resno);

		if (!tle->resjunk && shown.kind > out->plan->shown_time.kind)
			out->plan->shown_time = shown;
	}
}

static void
check_lateness(Output *out)
{
	if (out->a->options->lateness_us != 0 &&
		(out->a->options->lateness_us < 0 || out->top == NULL || out->top->window_key < 0 || !out->top->bounded))
		wms_no_lateness(out->a);
}

/* Fills the plan's part about the result; the query becomes its final input. */
void
wms_an_output(Analysis *a, Query *query, WmsStreamPlan *plan)
{
	Output		out = {.a = a,.query = query,.plan = plan};

	plan->result_desc = wms_an_desc(query->targetList, false);
	find_top(&out);
	check_mode(&out);
	if (a->refusal == NULL)
		check_lateness(&out);
	if (a->refusal == NULL)
		check_keys(&out);
	if (a->refusal == NULL)
		check_columns(&out);
	if (a->refusal == NULL)
		check_state(&out);
	if (a->refusal == NULL)
		wms_an_refuse_sessions(a, query, (Node *) query);
	if (a->refusal != NULL)
		return;
	find_shown_time(&out);
	plan->final = wms_an_input(a, query, 0);
}
