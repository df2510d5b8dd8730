/*
 * analyze_explain.c
 *	  A plan as text: sources, operators from the inside out, the result.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"

#include "analyze/analyze_internal.h"

static void line(List **lines, int indent, const char *format,...) pg_attribute_printf(3, 4);

static void
line(List **lines, int indent, const char *format,...)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoSpaces(&text, indent * 2);
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
	*lines = lappend(*lines, text.data);
}

static char *
span_text(int64 us)
{
	Interval	span = {.time = us % USECS_PER_DAY,.day = us / USECS_PER_DAY};

	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&span)));
}

/* Locking a query reads what the columns of its joins stand for, and once a join was cut out that is no more what it was. */
static void
forget_join_columns(Query *query)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY)
			forget_join_columns(rte->subquery);
		foreach(lc2, rte->joinaliasvars)
			lfirst(lc2) = NULL;
	}
	foreach(lc, query->cteList)
		if (IsA(lfirst_node(CommonTableExpr, lc)->ctequery, Query))
			forget_join_columns((Query *) lfirst_node(CommonTableExpr, lc)->ctequery);
}

/* An expression over the entries of a range table, as "SELECT expr" shows it. */
char *
wms_an_text(Node *expr, List *rtable)
{
	Query	   *query = makeNode(Query);
	char	   *text;
	ListCell   *lc;

	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->rtable = copyObject(rtable);
	query->jointree = makeFromExpr(NIL, NULL);
	foreach(lc, query->rtable)	/* a join without its tree cannot be printed, and nothing refers to it */
	{
		if (lfirst_node(RangeTblEntry, lc)->rtekind == RTE_JOIN)
			wms_an_void_rte(lfirst(lc));
	}
	forget_join_columns(query);
	query->targetList = list_make1(makeTargetEntry((Expr *) copyObject(expr), 1, NULL, false));
	query->hasAggs = contain_aggs_of_level(expr, 0);
	text = pg_get_querydef(query, false);
	while (*text == ' ')
		text++;
	if (strncmp(text, "SELECT ", 7) == 0)
		text += 7;
	while (*text == ' ')
		text++;
	if (strlen(text) > 9 && strcmp(text + strlen(text) - 9, " AS \"?column?\"") == 0)
		text[strlen(text) - 9] = '\0';
	return text;
}

static char *
relation_text(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

static char *
relations_text(List *relids)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, relids)
		appendStringInfo(&text, "%s%s", text.len ? ", " : "", relation_text(lfirst_oid(lc)));
	return text.data;
}

/* ---------------------------------------------------------------- sources */

static void
explain_source(List **lines, const WmsStreamPlan *plan, const WmsSourcePlan *source)
{
	RangeTblEntry *rte = wms_rowset_rte("in", source->in_desc, get_rel_name(source->relid));

	line(lines, 0, "Source %d: %s%s%s", source->index, source->queue ? "queue " : "", relation_text(source->relid),
		 source->below ? ", through a subquery" : "");
	if (plan->processing_time)
		line(lines, 1, "time: the clock, at the start of the batch");
	else if (source->event_time == NULL)
		line(lines, 1, "no event time");
	else if (source->bounded)
		line(lines, 1, "event time: %s, delay %s", wms_an_text(source->event_time, list_make1(rte)), span_text(source->delay_us));
	else
		line(lines, 1, "event time: %s, no watermark", wms_an_text(source->event_time, list_make1(rte)));
}

/* ---------------------------------------------------------------- operators */

static char *
window_text(const WmsWindowSpec *window)
{
	StringInfoData text;

	initStringInfo(&text);
	switch (window->kind)
	{
		case WMS_WINDOW_NONE:
			appendStringInfoString(&text, "none");
			break;
		case WMS_WINDOW_TIME:
			appendStringInfoString(&text, "the event time itself");
			break;
		case WMS_WINDOW_GRID:
			appendStringInfo(&text, "%s of %s", window->slide == window->size ? "tumbling" : "sliding", span_text(window->size));
			if (window->slide != window->size)
				appendStringInfo(&text, " every %s", span_text(window->slide));
			break;
		case WMS_WINDOW_CUMULATE:
			appendStringInfo(&text, "cumulating by %s up to %s", span_text(window->slide), span_text(window->size));
			break;
		case WMS_WINDOW_SESSION:
		case WMS_WINDOW_MERGED:
			appendStringInfo(&text, "session with a gap of %s", window->size > 0 ? span_text(window->size) : "each row's own");
			break;
	}
	if (window->offset != 0)
		appendStringInfo(&text, ", offset %s", span_text(window->offset));
	return text.data;
}

static void
explain_input(List **lines, const WmsInputPlan *input)
{
	if (input->direct)
		line(lines, 1, "feed: direct from %s", input->direct_set);
	else
		line(lines, 1, "feed: planned");
	if (input->reads_static)
		line(lines, 1, "static tables: %s", relations_text(input->static_relids));
}

static char *
dedup_bound_text(const WmsOpPlan *op)
{
	if (op->expires == WMS_EXPIRES_NEVER)
		return "not bounded: no watermark lets the keys leave";
	if (op->expires == WMS_EXPIRES_WITHIN)
		return psprintf("a key until the watermark passes its first row's event time by %s", span_text(op->expires_us + op->lag_us));
	if (op->window.kind == WMS_WINDOW_TIME)
		return psprintf("a key until the watermark passes its event time%s",
						op->lag_us > 0 ? psprintf(" by %s", span_text(op->lag_us)) : "");
	return NULL;
}

static char *
bound_text(const WmsStreamPlan *plan, const WmsOpPlan *op)
{
	if (op->kind == WMS_OP_DEDUP && dedup_bound_text(op))
		return dedup_bound_text(op);
	if (plan->mode == WMS_COMPLETE)
		return "not bounded: complete mode keeps all groups";
	if (!op->bounded)
		return "not bounded: no watermark closes the groups";
	if (plan->processing_time)
		return "until the clock passes the window's end";
	if (op->lag_us > 0)
		return psprintf("until the watermark passes the window's end by %s", span_text(op->lag_us));
	return "until the watermark passes the window's end";
}

static const char *
kind_text(WmsOpKind kind)
{
	switch (kind)
	{
		case WMS_OP_AGGREGATE:
			return "aggregate";
		case WMS_OP_COLLECT:
			return "rows held until their window closes";
		case WMS_OP_DEDUP:
			return "first row per key";
		case WMS_OP_JOIN:
			return "join";
	}
	return "unknown";
}

static void
explain_aggregate(List **lines, const WmsAggPlan *agg)
{
	if (agg->kept)
		line(lines, 2, "%s: arguments kept, run at emission (%s)", agg->text, agg->kept_because);
	else
		line(lines, 2, "%s: state kept%s", agg->text, agg->inverse ? ", rows are taken back by its inverse" : "");
}

static const char *
join_text(JoinType type)
{
	switch (type)
	{
		case JOIN_INNER:
			return "join";
		case JOIN_LEFT:
			return "left join";
		case JOIN_RIGHT:
			return "right join";
		case JOIN_FULL:
			return "full join";
		case JOIN_SEMI:
			return "exists";
		case JOIN_ANTI:
			return "not exists";
		default:
			return "unknown";
	}
}

static char *
range_text(const WmsJoinPlan *join)
{
	if (join->has_min && join->has_max)
		return psprintf("from %s to %s", span_text(join->min_us), span_text(join->max_us));
	return join->has_min ? psprintf("%s or more", span_text(join->min_us)) : psprintf("%s or less", span_text(join->max_us));
}

/* How long rows of a side are held. */
static char *
held_text(const WmsOpPlan *op, int s)
{
	const WmsJoinPlan *join = op->join;
	bool		has_end = s == 0 ? join->has_max : join->has_min;
	int64		us = (s == 0 ? join->max_us : -join->min_us) + op->lag_us;

	if (!join->side[1 - s].bounded)
		return "for ever: no watermark bounds the other side";
	if (join->bound == WMS_BOUND_NONE || (join->bound == WMS_BOUND_RANGE && !has_end))
		return "for ever: nothing tells when they can match no more";
	if (join->bound == WMS_BOUND_RANGE)
		return psprintf("until the watermark passes their event time %s %s", us < 0 ? "less" : "plus", span_text(us < 0 ? -us : us));
	if (op->lag_us > 0)
		return psprintf("until the watermark passes their time or window by %s", span_text(op->lag_us));
	return "until the watermark passes their time or window";
}

static void
explain_join(List **lines, const WmsOpPlan *op)
{
	const WmsJoinPlan *join = op->join;

	line(lines, 0, "Operator %d: %s", op->id, join_text(join->type));
	for (int s = 0; s < 2; s++)
	{
		line(lines, 1, "%s side: %s", s == 0 ? "left" : "right", join->side[s].name);
		explain_input(lines, s == 0 ? op->input : op->input2);
	}
	for (int i = 0; i < op->nkeys; i++)
		line(lines, 1, "key: %s", op->key_texts[i]);
	if (join->bound == WMS_BOUND_SAME)
		line(lines, 1, "times: the same event time or window on both sides");
	else if (join->bound == WMS_BOUND_RANGE)
		line(lines, 1, "times: right less left is %s", range_text(join));
	if (join->condition_text)
		line(lines, 1, "condition: %s", join->condition_text);
	for (int s = 0; s < 2; s++)
	{
		if (join->side[s].own_text)
			line(lines, 1, "condition on %s alone: %s", join->side[s].name, join->side[s].own_text);
	}
	for (int s = 0; s < 2; s++)
		line(lines, 1, "state: rows of %s are held %s", join->side[s].name, held_text(op, s));
}

static void
explain_op(List **lines, const WmsStreamPlan *plan, const WmsOpPlan *op)
{
	if (op->kind == WMS_OP_JOIN)
	{
		explain_join(lines, op);
		return;
	}
	line(lines, 0, "Operator %d: %s", op->id, kind_text(op->kind));
	explain_input(lines, op->input);
	for (int i = 0; i < op->nkeys; i++)
		line(lines, 1, "key: %s%s", op->key_texts[i], i == op->window_key ? " (closes the group)" : "");
	if (op->window_key >= 0)
		line(lines, 1, "window: %s, made %s", window_text(&op->window), op->time_column > 0 ? "by the operator" : "by the feed");
	line(lines, 1, "state: %s", bound_text(plan, op));
	if (op->retracts)
		line(lines, 1, "changed rows: taken back from its groups");
	for (int i = 0; i < op->naggs; i++)
		explain_aggregate(lines, &op->aggs[i]);
}

/* ---------------------------------------------------------------- result */

static void
explain_result(List **lines, const WmsStreamPlan *plan)
{
	static const char *const modes[] = {"append", "update", "complete"};
	ListCell   *lc;
	StringInfoData key;

	line(lines, 0, "Result: %s mode", modes[plan->mode]);
	explain_input(lines, plan->final);
	initStringInfo(&key);
	foreach(lc, plan->key_columns)
		appendStringInfo(&key, "%s%s", key.len ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(plan->result_desc, lfirst_int(lc) - 1)->attname)));
	if (key.len)
		line(lines, 1, "key: %s%s", key.data, plan->key_not_null ? "" : " (may be NULL)");
	else
		line(lines, 1, "no key");
}

List *
wms_explain_plan(const WmsStreamPlan *plan)
{
	List	   *lines = NIL;

	for (int i = 0; i < plan->nsources; i++)
		explain_source(&lines, plan, &plan->sources[i]);
	for (int i = 0; i < plan->nops; i++)
		explain_op(&lines, plan, &plan->ops[i]);
	explain_result(&lines, plan);
	return lines;
}
