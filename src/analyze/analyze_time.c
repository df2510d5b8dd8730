/*
 * analyze_time.c
 *	  Where the time in an expression comes from: a source's event time, a window of
 *	  one, a bound of such a window, or nothing that a watermark closes.
 *
 * An expression is followed down: through Vars of subqueries to what stands there,
 * through all branches of a UNION ALL, down to a column of a row set.  There the answer is
 * known: a source's set has its event-time expression, an operator's set remembers what
 * its columns were.  Calls of window functions are taken apart on the way.
 *
 * Also here: calls of our own functions and their constant arguments.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "analyze/analyze_internal.h"

static const AnTime no_time = {.kind = AN_NONE};

static AnTime time_in_subquery(Analysis *a, Query *sub, Node *expr, int rtindex);

/* ---------------------------------------------------------------- calls of our functions */

/* What the call is; WMS_FN_OTHER for everything else. */
WmsFunction
wms_an_call(Node *expr)
{
	return expr && IsA(expr, FuncExpr) ? wms_function_kind(((FuncExpr *) expr)->funcid) : WMS_FN_OTHER;
}

static WmsWindowKind
window_kind(WmsFunction function)
{
	return function == WMS_FN_CUMULATE ? WMS_WINDOW_CUMULATE : function == WMS_FN_SESSION ? WMS_WINDOW_SESSION : WMS_WINDOW_GRID;
}

static const Interval *
interval_argument(const FuncExpr *call, int n)
{
	Node	   *argument = n < list_length(call->args) ? list_nth(call->args, n) : NULL;

	return argument && IsA(argument, Const) && !((Const *) argument)->constisnull ?
		DatumGetIntervalP(((Const *) argument)->constvalue) : NULL;
}

static WmsRefusal *
read_spec(const FuncExpr *call, WmsWindowSpec *spec)
{
	WmsFunction function = wms_function_kind(call->funcid);
	bool		cumulates = function == WMS_FN_CUMULATE;
	const Interval *first = interval_argument(call, 1);
	const Interval *second = interval_argument(call, 2);
	WmsRefusal *refusal;

	if (function == WMS_FN_SESSION && first == NULL)
	{
		memset(spec, 0, sizeof(*spec));
		spec->kind = WMS_WINDOW_SESSION;	/* the gap comes with each row */
		return NULL;
	}
	if (cumulates)
		refusal = wms_window_spec(WMS_WINDOW_CUMULATE, second, first, interval_argument(call, 3), spec);
	else
		refusal = wms_window_spec(window_kind(function), first, second, interval_argument(call, 3), spec);
	if (refusal == NULL && spec->slide > 0)
	{
		/* one and the same grid is to look the same */
		spec->offset %= spec->slide;
		if (spec->offset < 0)
			spec->offset += spec->slide;
	}
	return refusal;
}

/* The window of a call that was checked. */
static void
spec_of(const FuncExpr *call, WmsWindowSpec *spec)
{
	if (read_spec(call, spec) != NULL)
		elog(ERROR, "window call was not checked");
}

static const char *
argument_name(WmsFunction function, int n)
{
	static const char *const window_names[] = {"", "size", "slide", "start_offset"};
	static const char *const cumulate_names[] = {"", "step", "max_size", "start_offset"};

	if (function == WMS_FN_SESSION)
		return "gap";
	if (function == WMS_FN_WATERMARK)
		return "delay";
	n = Min(n, 3);
	return function == WMS_FN_CUMULATE ? cumulate_names[n] : window_names[n];
}

/* Where the size that wms_window_spec blames is written; a cumulating window has its step before its size.  A default: the call. */
static int
place_of_size(Analysis *a, FuncExpr *call, int which)
{
	bool		cumulates = wms_function_kind(call->funcid) == WMS_FN_CUMULATE;
	int			n = cumulates && which < 3 ? 3 - which : which;
	Node	   *argument = n > 0 && n < list_length(call->args) ? list_nth(call->args, n) : NULL;

	return wms_an_place(a, argument && exprLocation(argument) >= 0 ? argument : (Node *) call);
}

/* Are the arguments behind the time constants, and do the sizes make sense? */
void
wms_an_check_call(Analysis *a, FuncExpr *call)
{
	WmsFunction function = wms_function_kind(call->funcid);
	WmsWindowSpec spec;
	WmsRefusal *refusal;

	for (int n = 1; n < list_length(call->args); n++)
	{
		Node	   *argument = list_nth(call->args, n);

		if (!IsA(argument, Const))
		{
			if (function == WMS_FN_SESSION)
				return;
			wms_no_constant(a, argument, argument_name(function, n));
			return;
		}
		if (((Const *) argument)->constisnull && function != WMS_FN_WATERMARK)
		{
			wms_no_null_argument(a, argument, argument_name(function, n));
			return;
		}
	}
	if (function == WMS_FN_WATERMARK)
		return;					/* its delay is checked with its source */
	refusal = read_spec(call, &spec);
	if (refusal && a->refusal == NULL)
	{
		refusal->location = place_of_size(a, call, refusal->which);
		a->refusal = refusal;
	}
}

/* The call in FROM, when the entry is one call of one function with one column. */
FuncExpr *
wms_an_function_rte_call(const RangeTblEntry *rte)
{
	RangeTblFunction *function;

	if (rte->rtekind != RTE_FUNCTION || rte->funcordinality || list_length(rte->functions) != 1)
		return NULL;
	function = linitial_node(RangeTblFunction, rte->functions);
	return wms_an_call(function->funcexpr) != WMS_FN_OTHER ? (FuncExpr *) function->funcexpr : NULL;
}

bool
wms_an_is_now(Node *expr)
{
	if (IsA(expr, FuncExpr))
	{
		Oid			funcid = ((FuncExpr *) expr)->funcid;

		return funcid == F_NOW || funcid == F_TRANSACTION_TIMESTAMP;
	}
	return IsA(expr, SQLValueFunction) && ((SQLValueFunction *) expr)->op == SVFOP_CURRENT_TIMESTAMP;
}

/* ---------------------------------------------------------------- expressions about windows */

static Oid
range_type(Oid time_type)
{
	return time_type == TIMESTAMPOID ? TSRANGEOID : TSTZRANGEOID;
}

/* lower(range) or upper(range) */
Node *
wms_an_bound(Node *range, bool upper, Oid time_type)
{
	return (Node *) makeFuncExpr(upper ? F_UPPER_ANYRANGE : F_LOWER_ANYRANGE, time_type, list_make1(range), InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* time + a number of microseconds */
Node *
wms_an_shifted(Node *time, Oid time_type, int64 us)
{
	Interval   *span = palloc0(sizeof(Interval));
	Const	   *by;

	span->time = us;
	by = makeConst(INTERVALOID, -1, InvalidOid, sizeof(Interval), IntervalPGetDatum(span), false, false);
	return (Node *) makeFuncExpr(time_type == TIMESTAMPOID ? F_TIMESTAMP_PL_INTERVAL : F_TIMESTAMPTZ_PL_INTERVAL, time_type,
								 list_make2(time, by), InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * The window that a bound tells.  One bound of a cumulating window does not tell which; then it is one that ends when the
 * last window with this bound does.
 */
Node *
wms_an_window_of_bound(Node *bound, const AnTime *time)
{
	int64		size = time->window.size;
	Node	   *other;

	if (time->window.kind == WMS_WINDOW_GRID && IsA(bound, FuncExpr))	/* lower(window), upper(window) */
		return copyObject(linitial(((FuncExpr *) bound)->args));
	other = wms_an_shifted(copyObject(bound), time->type, time->kind == AN_LOWER ? size : -size);
	if (time->kind == AN_LOWER)
		return wms_an_range(copyObject(bound), other, time->type);
	return wms_an_range(other, copyObject(bound), time->type);
}

/*
 * What is known of that window.  That of the begin of a cumulating one is the whole of the greatest: windows with the same begin may have ended long
 * before it.
 */
AnTime
wms_an_time_of_bound(const AnTime *bound)
{
	AnTime		time = *bound;

	time.kind = AN_WINDOW;
	if (wms_an_tells_greatest(bound))
	{
		time.window.kind = WMS_WINDOW_GRID;
		time.window.slide = time.window.size;
	}
	return time;
}

/* The event time that a window is made of: a time as it is; a smaller window stands for its last microsecond. */
Node *
wms_an_event_of(Node *argument, Oid time_type)
{
	if (!type_is_range(exprType(argument)))
		return argument;
	return wms_an_shifted(wms_an_bound(argument, true, time_type), time_type, -1);
}

/* tstzrange(lower, upper) */
Node *
wms_an_range(Node *lower, Node *upper, Oid time_type)
{
	Oid			funcid = time_type == TIMESTAMPOID ? F_TSRANGE_TIMESTAMP_TIMESTAMP : F_TSTZRANGE_TIMESTAMPTZ_TIMESTAMPTZ;

	return (Node *) makeFuncExpr(funcid, range_type(time_type), list_make2(lower, upper), InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* ---------------------------------------------------------------- following an expression */

bool
wms_an_same_shape(const WmsWindowSpec *a, const WmsWindowSpec *b)
{
	return a->kind == b->kind && a->size == b->size && a->slide == b->slide && a->offset == b->offset;
}

/* Of the same shape over windows of the same shapes. */
static bool
is_made_alike(const AnTime *a, const AnTime *b)
{
	return wms_an_same_shape(&a->window, &b->window) && a->below == b->below && a->nth == b->nth;
}

bool
wms_an_same_window(const AnTime *a, const AnTime *b)
{
	return is_made_alike(a, b) && bms_equal(a->sources, b->sources);
}

/* What stands for a window and those below it. */
static uint64
window_hash(const AnTime *time)
{
	int64		parts[] = {time->window.kind, time->window.size, time->window.slide, time->window.offset, (int64) time->below, time->nth};

	return hash_bytes_extended((unsigned char *) parts, sizeof(parts), 0) | 1;
}

/* A window lies over the one that the time is.  One that was finished when its row came is the time of that row. */
static void
lay_over(AnTime *time, const WmsWindowSpec *spec)
{
	bool		is_window = time->kind == AN_WINDOW;

	time->reach_us = (is_window && !time->finished ? time->reach_us : 0) + spec->size;
	time->below = is_window ? window_hash(time) : 0;
	time->nth = 0;
	time->window = *spec;
}

/* Does it tell only when the last of several windows ends? */
bool
wms_an_tells_greatest(const AnTime *time)
{
	return time->kind == AN_LOWER && time->window.kind == WMS_WINDOW_CUMULATE;
}

/* Is it known when the window ends, at the latest?  Not from the begin of a session, which may be of any length. */
bool
wms_an_tells_end(const AnTime *time)
{
	return time->kind != AN_LOWER || time->window.kind == WMS_WINDOW_GRID || time->window.kind == WMS_WINDOW_CUMULATE;
}

/* What a column of a UNION ALL is: what all branches say. */
static AnTime
merged(AnTime a, AnTime b)
{
	if (a.kind == AN_WINDOW && wms_an_is_session(&a) && wms_an_is_session(&b) && a.window.size != b.window.size)
		a.window.size = a.window.slide = b.window.size = b.window.slide = 0;	/* the gap comes with each row */
	if (a.below != b.below || a.nth != b.nth)
	{
		/* now these, now those */
		a.below = b.below = window_hash(&a) ^ window_hash(&b);
		a.nth = b.nth = Max(a.nth, b.nth);
	}
	if (a.kind != b.kind || a.type != b.type || a.watermarked != b.watermarked || !is_made_alike(&a, &b))
		return no_time;
	a.reach_us = Max(a.reach_us, b.reach_us);
	a.bounded = a.bounded && b.bounded;
	a.finished = a.finished && b.finished;
	a.finished = a.finished && a.lag_us == b.lag_us;
	a.processing = a.processing && b.processing;
	a.nullable = a.nullable || b.nullable;
	a.optional = a.optional || b.optional;
	a.lag_us = Max(a.lag_us, b.lag_us);
	a.sources = bms_union(a.sources, b.sources);
	return a;
}

/* The one entry of the level that all Vars of the expression belong to; 0: none, several, outside ones, or whole rows. */
static int
only_entry(Node *expr)
{
	List	   *vars;
	int			rtindex = 0;
	ListCell   *lc;

	if (checkExprHasSubLink(expr))
		return 0;
	vars = wms_an_level_vars(expr, -1);
	foreach(lc, vars)
	{
		Var		   *var = lfirst(lc);

		if ((rtindex != 0 && (int) var->varno != rtindex) || var->varattno == InvalidAttrNumber)
			return 0;			/* a whole row is no time, and nothing of it is followed */
		rtindex = var->varno;
	}
	return rtindex;
}

/* A domain is its base type here. */
static Node *
without_relabel(Node *expr)
{
	while (expr && IsA(expr, RelabelType))
		expr = (Node *) ((RelabelType *) expr)->arg;
	return expr;
}

/* Is the expression the event time of the source whose set is entry rtindex? */
static bool
is_event_time(Analysis *a, const AnSet *set, Node *expr, int rtindex)
{
	WmsSourcePlan *source;

	if (set->op >= 0 || set->raw)
		return false;
	source = list_nth(a->sources, set->source);
	if (source->event_time == NULL)
		return false;
	expr = copyObject(expr);
	ChangeVarNodes(expr, rtindex, 1, 0);
	return equal(expr, without_relabel(source->event_time));
}

static AnTime
source_time(Analysis *a, const AnSet *set)
{
	WmsSourcePlan *source = list_nth(a->sources, set->source);
	AnTime		time = no_time;

	time.kind = AN_EVENT;
	time.type = source->time_type;
	time.watermarked = true;
	time.bounded = source->bounded;
	time.sources = bms_make_singleton(set->source);
	return time;
}

/* The expression as it reads inside the subquery: its Vars replaced by what stands there. */
Node *
wms_an_pushed_down(Node *expr, int rtindex, const Query *sub)
{
	List	   *substs = NIL;
	ListCell   *lc;

	foreach(lc, sub->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *column = (Node *) tle->expr;

		wms_an_add_subst(&substs, (Node *) makeVar(rtindex, tle->resno, exprType(column), -1, InvalidOid, 0), column);
	}
	return wms_an_subst_node(expr, substs);
}

static AnTime
time_in_subquery(Analysis *a, Query *sub, Node *expr, int rtindex)
{
	AnTime		result = no_time;
	bool		first = true;
	ListCell   *lc;

	if (sub->setOperations == NULL)
		return wms_an_time(a, sub, wms_an_pushed_down(expr, rtindex, sub));
	foreach(lc, wms_an_leaves(sub))
	{
		Query	   *leaf = lfirst(lc);
		AnTime		time = wms_an_time(a, leaf, wms_an_pushed_down(expr, rtindex, leaf));

		result = first ? time : merged(result, time);
		first = false;
	}
	return result;
}

static AnTime
time_of_clock(void)
{
	AnTime		time = no_time;

	time.kind = AN_EVENT;
	time.type = TIMESTAMPTZOID;
	time.watermarked = time.bounded = time.processing = true;
	time.sources = bms_make_singleton(0);
	return time;
}

/* ---------------------------------------------------------------- one of several windows */

/* Has a time only one such window? */
static bool
is_single(const WmsWindowSpec *spec)
{
	return spec->kind == WMS_WINDOW_GRID && spec->slide == spec->size;
}

/* The number after the other's, if that is a window of the same shape over the same time. */
static int
number_after(const AnTime *time, AnTime other)
{
	int			nth = other.nth;

	other.nth = time->nth;
	return other.kind != AN_NONE && other.kind != AN_EVENT && wms_an_same_window(time, &other) ? nth + 1 : 0;
}

/* The same for all columns of an entry of FROM. */
static int
number_after_columns(Analysis *a, RangeTblEntry *rte, const AnTime *time)
{
	int			nth = 0;
	ListCell   *lc;

	if (rte->rtekind == RTE_NAMEDTUPLESTORE)
	{
		const AnSet *set = wms_an_set(a, rte->enrname);

		for (int i = 0; i < set->desc->natts; i++)
			nth = Max(nth, number_after(time, set->times[i]));
	}
	if (rte->rtekind != RTE_SUBQUERY)
		return nth;
	foreach(lc, rte->subquery->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node	   *column = (Node *) makeVar(1, tle->resno, exprType((Node *) tle->expr), -1, InvalidOid, 0);

		nth = Max(nth, number_after(time, time_in_subquery(a, rte->subquery, column, 1)));
	}
	return nth;
}

static bool
is_same_call(FuncExpr *a, FuncExpr *b)
{
	WmsWindowSpec specs[2] = {{0}, {0}};

	spec_of(a, &specs[0]);
	spec_of(b, &specs[1]);
	return equal(linitial(a->args), linitial(b->args)) && wms_an_same_shape(&specs[0], &specs[1]);
}

/*
 * Which of the windows of its shape a call gives: FROM combines it with those of calls before it there, and with those that its entries bring along.
 * entry: where the call stands in FROM; 0: elsewhere, where equal calls go in step.
 */
static int
number_of_window(Analysis *a, Query *query, const AnTime *time, FuncExpr *call, int entry)
{
	int			nth = 0;
	int			before = 0;
	int			rtindex = 0;
	ListCell   *lc;

	if (!time->watermarked || is_single(&time->window))
		return 0;
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);
		FuncExpr   *other = wms_an_function_rte_call(rte);

		rtindex++;
		if (other)
			before += (entry == 0 || rtindex < entry) && is_same_call(call, other);
		else
			nth = Max(nth, number_after_columns(a, rte, time));
	}
	return nth + before;
}

static AnTime
time_of_call(Analysis *a, Query *query, FuncExpr *call, int entry)
{
	Node	   *argument = linitial(call->args);
	AnTime		time = wms_an_is_now(argument) ? time_of_clock() : wms_an_time(a, query, argument);
	WmsWindowSpec spec = {0};

	if (time.kind != AN_EVENT && time.kind != AN_WINDOW)
	{
		/* a window of some other column: its shape is known, but nothing closes it */
		time = no_time;
		time.type = call->funcresulttype == TSRANGEOID ? TIMESTAMPOID : TIMESTAMPTZOID;
	}
	spec_of(call, &spec);
	lay_over(&time, &spec);
	time.kind = AN_WINDOW;
	/* what was finished when the lower window closed goes into a window that is not */
	time.finished = false;
	time.nth = number_of_window(a, query, &time, call, entry);
	return time;
}

static bool
reads_stream(Analysis *a, Query *query, Node *node)
{
	Bitmapset  *rels = wms_an_rtes_in(node);
	ListCell   *lc;

	foreach(lc, wms_an_streamed_rtes(a, query))
	{
		if (bms_is_member(lfirst_int(lc), rels))
			return true;
	}
	return false;
}

static bool
is_function(Query *query, Node *node)
{
	return IsA(node, RangeTblRef) && rt_fetch(((RangeTblRef *) node)->rtindex, query->rtable)->rtekind == RTE_FUNCTION;
}

static bool
missing_in(Analysis *a, Query *query, Node *node, int rtindex, bool nullable)
{
	ListCell   *lc;

	if (IsA(node, RangeTblRef))
		return nullable && ((RangeTblRef *) node)->rtindex == rtindex;
	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
		{
			if (missing_in(a, query, lfirst(lc), rtindex, nullable))
				return true;
		}
		return false;
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);
		bool		of_streams = reads_stream(a, query, join->larg) && reads_stream(a, query, join->rarg);
		bool		left = nullable || (!of_streams && (join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL));
		bool		right = nullable || (!of_streams && (join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL));

		if (join->jointype == JOIN_LEFT && is_function(query, join->rarg) && wms_an_is_true(join->quals))
			right = nullable;	/* LEFT JOIN LATERAL ... ON true: rows that have a time have a window */
		return missing_in(a, query, join->larg, rtindex, left) || missing_in(a, query, join->rarg, rtindex, right);
	}
}

/*
 * Does FROM give what the entry holds only where a condition holds?  Joins of streams do not count: what their rows may be without, their
 * operators say.
 */
bool
wms_an_given_on_condition(Analysis *a, Query *query, int rtindex)
{
	return missing_in(a, query, (Node *) query->jointree, rtindex, false);
}

/* A window that a function, or a static subquery, gives beside the stream. */
static AnTime
time_in_from(Analysis *a, Query *query, int rtindex, AnTime time)
{
	if (time.kind == AN_NONE || !wms_an_given_on_condition(a, query, rtindex))
		return time;
	time.nullable = true;
	time.optional = true;
	return time;
}

static AnTime
time_of_var(Analysis *a, Query *query, Var *var)
{
	RangeTblEntry *rte;

	if (var->varlevelsup != 0 || var->varattno <= 0)
		return no_time;
	rte = rt_fetch(var->varno, query->rtable);
	if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		return wms_an_set(a, rte->enrname)->times[var->varattno - 1];
	if (rte->rtekind == RTE_FUNCTION && wms_an_function_rte_call(rte))
		return time_in_from(a, query, var->varno, time_of_call(a, query, wms_an_function_rte_call(rte), var->varno));
	return no_time;
}

AnTime
wms_an_time(Analysis *a, Query *query, Node *expr)
{
	RangeTblEntry *rte;
	int			rtindex;

	expr = without_relabel(expr);
	if (expr == NULL)
		return no_time;

	rtindex = only_entry(expr);
	rte = rtindex > 0 ? rt_fetch(rtindex, query->rtable) : NULL;
	if (rte && rte->rtekind == RTE_NAMEDTUPLESTORE)
	{
		AnSet	   *set = wms_an_set(a, rte->enrname);

		if (is_event_time(a, set, expr, rtindex))
			return source_time(a, set);
	}

	if (IsA(expr, Var) && (rte == NULL || rte->rtekind != RTE_SUBQUERY))
		return time_of_var(a, query, (Var *) expr);
	if (wms_an_call(expr) != WMS_FN_OTHER && wms_an_call(expr) != WMS_FN_WATERMARK)
		return time_of_call(a, query, (FuncExpr *) expr, 0);
	if (IsA(expr, FuncExpr) && (((FuncExpr *) expr)->funcid == F_LOWER_ANYRANGE || ((FuncExpr *) expr)->funcid == F_UPPER_ANYRANGE))
	{
		AnTime		time = wms_an_time(a, query, linitial(((FuncExpr *) expr)->args));

		if (time.kind != AN_WINDOW)
			return no_time;
		time.kind = ((FuncExpr *) expr)->funcid == F_LOWER_ANYRANGE ? AN_LOWER : AN_UPPER;
		return time;
	}
	if (rte && rte->rtekind == RTE_SUBQUERY && wms_an_streamed(a, rte->subquery))
		return time_in_subquery(a, rte->subquery, expr, rtindex);
	if (rte && rte->rtekind == RTE_SUBQUERY)
		return time_in_from(a, query, rtindex, time_in_subquery(a, rte->subquery, expr, rtindex));
	return no_time;
}

/* ---------------------------------------------------------------- NOT NULL */

static bool
nullable_in(Node *node, int rtindex, bool nullable)
{
	ListCell   *lc;

	if (IsA(node, RangeTblRef))
		return nullable && ((RangeTblRef *) node)->rtindex == rtindex;
	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
		{
			if (nullable_in(lfirst(lc), rtindex, nullable))
				return true;
		}
		return false;
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);
		bool		left = nullable || join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL;
		bool		right = nullable || join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL;

		return nullable_in(join->larg, rtindex, left) || nullable_in(join->rarg, rtindex, right);
	}
}

static bool
column_not_null(Analysis *a, Query *query, Var *var)
{
	RangeTblEntry *rte;
	ListCell   *lc;

	if (var->varlevelsup != 0 || var->varattno <= 0 || nullable_in((Node *) query->jointree, var->varno, false))
		return false;
	rte = rt_fetch(var->varno, query->rtable);
	if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		return wms_an_set(a, rte->enrname)->not_null[var->varattno - 1];
	if (rte->rtekind == RTE_RELATION)
	{
		HeapTuple	tuple = SearchSysCacheAttNum(rte->relid, var->varattno);
		bool		result = HeapTupleIsValid(tuple) && ((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;

		if (HeapTupleIsValid(tuple))
			ReleaseSysCache(tuple);
		return result;
	}
	if (rte->rtekind != RTE_SUBQUERY)
		return false;
	foreach(lc, rte->subquery->setOperations ? wms_an_leaves(rte->subquery) : list_make1(rte->subquery))
	{
		Query	   *sub = lfirst(lc);
		TargetEntry *tle = get_tle_by_resno(sub->targetList, var->varattno);

		/* what one set groups by is NULL in the groups of others */
		if (tle == NULL || sub->groupingSets || !wms_an_not_null(a, sub, (Node *) tle->expr))
			return false;
	}
	return true;
}

/* Can the expression never be NULL, as far as is easily seen? */
bool
wms_an_not_null(Analysis *a, Query *query, Node *expr)
{
	expr = without_relabel(expr);
	if (expr == NULL)
		return false;
	if (IsA(expr, Const))
		return !((Const *) expr)->constisnull;
	if (wms_an_time(a, query, expr).watermarked && !wms_an_time(a, query, expr).nullable)
		return true;
	return IsA(expr, Var) && column_not_null(a, query, (Var *) expr);
}
