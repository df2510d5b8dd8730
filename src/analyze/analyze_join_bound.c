/*
 * analyze_join_bound.c
 *	  What the conditions of a join say: equalities that rows are found by, and what tells when a row can match no more.
 *
 * Every condition between the two sides is looked at once.
 *
 *   same time      X = Y, both event times, or both the same kind of window, or the same bound of one (but not the begin of a
 *                  session, which does not tell its end): matches have it in common
 *   time range     any comparison of the two event times, shifted by constants, also written as a difference of them;
 *                  all such conditions on the same two times together give one range
 *   key            any other X = Y with the default equality of a type, after a cast of one side where types differ
 *
 * An equality of times bounds state better than a range, a raw time better than a window; what is not used remains a condition.
 * Days in an interval count 24 hours here, as everywhere.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "analyze/analyze_internal.h"

typedef struct Reader
{
	Analysis   *a;
	Query	   *query;
	Bitmapset **rels;			/* of each side */
	Node	   *months;			/* an interval with months, in the condition that is being read */
} Reader;

/* An event time of one side plus a constant. */
typedef struct Shifted
{
	int			side;
	Node	   *time;
	AnTime		about;
	int64		us;
} Shifted;

/* Conditions on the same pair of event times. */
typedef struct Range
{
	Node	   *time[2];
	AnTime		about[2];
	bool		has_min;
	bool		has_max;
	int64		min_us;
	int64		max_us;
	bool		equality;
	List	   *conditions;
} Range;

typedef enum Comparison
{
	CMP_NONE,
	CMP_LT,
	CMP_LE,
	CMP_EQ,
	CMP_GE,
	CMP_GT
} Comparison;

/* ---------------------------------------------------------------- sides */

/* The side that an expression belongs to; -1: none, or both. */
static int
side_of(Reader *r, Node *expr)
{
	Bitmapset  *mentioned = wms_an_rels_of(expr);

	if (bms_is_empty(mentioned))
		return -1;
	return bms_is_subset(mentioned, r->rels[0]) ? 0 : bms_is_subset(mentioned, r->rels[1]) ? 1 : -1;
}

static Node *
without_relabel(Node *expr)
{
	while (expr && IsA(expr, RelabelType))
		expr = (Node *) ((RelabelType *) expr)->arg;
	return expr;
}

/* The arguments of X op Y with X of the left side and Y of the right one, in this order. */
static bool
two_sided(Reader *r, Node *condition, Node **left, Node **right, bool *swapped)
{
	OpExpr	   *op = (OpExpr *) condition;

	if (!IsA(condition, OpExpr) || list_length(op->args) != 2)
		return false;
	*swapped = side_of(r, linitial(op->args)) == 1;
	*left = *swapped ? lsecond(op->args) : linitial(op->args);
	*right = *swapped ? linitial(op->args) : lsecond(op->args);
	return side_of(r, *left) == 0 && side_of(r, *right) == 1;
}

/* ---------------------------------------------------------------- equalities */

/* X = Y by an operator that is the equality of a B-tree family. */
bool
wms_an_is_equality(Node *condition)
{
	OpExpr	   *op = (OpExpr *) condition;

	return IsA(condition, OpExpr) && list_length(op->args) == 2 && get_mergejoin_opfamilies(op->opno) != NIL;
}

/* Is the operator the one by which values of the type are the same? */
static bool
is_equality_of(Oid opno, Oid type)
{
	return lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr == opno;
}

/* A type to which both can be cast without loss, with an equality that agrees with the operator. */
static Oid
common_type(Oid opno, Oid left, Oid right)
{
	Oid			types[2] = {left, right};
	List	   *families = get_mergejoin_opfamilies(opno);

	if (left == right)
		return is_equality_of(opno, left) ? left : InvalidOid;
	for (int i = 0; i < 2; i++)
	{
		Oid			eq = lookup_type_cache(types[i], TYPECACHE_EQ_OPR)->eq_opr;
		Oid			cast;
		CoercionPathType path = find_coercion_pathway(types[i], types[1 - i], COERCION_IMPLICIT, &cast);
		ListCell   *lc;

		if (path != COERCION_PATH_RELABELTYPE && (path != COERCION_PATH_FUNC || func_volatile(cast) != PROVOLATILE_IMMUTABLE))
			continue;
		foreach(lc, families)
		{
			if (OidIsValid(eq) && op_in_opfamily(eq, lfirst_oid(lc)))
				return types[i];
		}
	}
	return InvalidOid;
}

/* The expression with the type and the collation that both sides of a key have. */
static Node *
as_key(Node *expr, Oid type, Oid collation)
{
	expr = copyObject(expr);
	if (exprType(expr) != type)
		expr = coerce_type(NULL, expr, exprType(expr), type, -1, COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1);
	if (OidIsValid(collation) && exprCollation(expr) != collation)
	{
		CollateExpr *collate = makeNode(CollateExpr);

		collate->arg = (Expr *) expr;
		collate->collOid = collation;
		collate->location = -1;
		expr = (Node *) collate;
	}
	return expr;
}

static AnJoinKey *
read_key(Reader *r, Node *condition)
{
	OpExpr	   *op = (OpExpr *) condition;
	AnJoinKey  *key;
	Node	   *left;
	Node	   *right;
	bool		swapped;
	Oid			type;

	if (!wms_an_is_equality(condition) || !two_sided(r, condition, &left, &right, &swapped) ||
		checkExprHasSubLink(condition))
		return NULL;
	type = common_type(op->opno, exprType(left), exprType(right));
	if (!OidIsValid(type))
		return NULL;
	key = palloc0(sizeof(AnJoinKey));
	key->expr[0] = as_key(left, type, op->inputcollid);
	key->expr[1] = as_key(right, type, op->inputcollid);
	key->eq = wms_an_equality(type);
	key->condition = condition;
	return key;
}

/* ---------------------------------------------------------------- the same time */

/* Windows over whatever: it is their values that are equal. */
static bool
same_kind_of_time(const AnTime *a, const AnTime *b)
{
	return a->kind == b->kind && a->type == b->type && a->watermarked && b->watermarked && !a->processing && !b->processing &&
		(a->kind == AN_EVENT || (wms_an_same_shape(&a->window, &b->window) && a->window.size > 0 && wms_an_tells_end(a)));
}

/* How well an equality of times bounds the state. */
typedef enum Tightness
{
	TIGHT_NOT,					/* it is none */
	TIGHT_GREATEST,				/* to the end of the greatest of several windows */
	TIGHT_WINDOW,
	TIGHT_TIME
} Tightness;

static Tightness
tightness_of(const AnTime *time)
{
	return time->kind == AN_EVENT ? TIGHT_TIME : wms_an_tells_greatest(time) ? TIGHT_GREATEST : TIGHT_WINDOW;
}

/* An equality of event times, or of windows or bounds of them; fills both times. */
static Tightness
read_same(Reader *r, Node *condition, AnJoinBound *bound)
{
	OpExpr	   *op = (OpExpr *) condition;
	Node	   *exprs[2];
	AnTime		times[2];
	bool		swapped;

	if (!wms_an_is_equality(condition) || !two_sided(r, condition, &exprs[0], &exprs[1], &swapped) ||
		exprType(exprs[0]) != exprType(exprs[1]) || !is_equality_of(op->opno, exprType(exprs[0])))
		return TIGHT_NOT;
	for (int s = 0; s < 2; s++)
	{
		times[s] = wms_an_time(r->a, r->query, exprs[s]);
		if (wms_an_is_session(&times[s]))
			return TIGHT_NOT;
	}
	if (times[0].kind == AN_NONE || !same_kind_of_time(&times[0], &times[1]))
		return TIGHT_NOT;
	for (int s = 0; s < 2; s++)
	{
		bound->time[s] = exprs[s];
		bound->about[s] = times[s];
		if (times[s].kind != AN_LOWER && times[s].kind != AN_UPPER)
			continue;
		bound->time[s] = wms_an_window_of_bound(exprs[s], &times[s]);
		bound->about[s] = wms_an_time_of_bound(&times[s]);
	}
	return tightness_of(&times[0]);
}

/* ---------------------------------------------------------------- time ranges */

/* Microseconds of a constant interval; months are taken note of: how long they are depends on where they begin. */
static bool
constant_us(Reader *r, Node *expr, int64 *us)
{
	Const	   *constant = (Const *) without_relabel(expr);
	bool		has_months;

	if (constant == NULL || !IsA(constant, Const) || constant->consttype != INTERVALOID || constant->constisnull)
		return false;
	*us = wms_interval_us(DatumGetIntervalP(constant->constvalue), 0, &has_months);
	if (has_months)
		r->months = expr;
	return true;
}

static Oid
function_of(Node *expr, List **args)
{
	if (IsA(expr, OpExpr))
	{
		set_opfuncid((OpExpr *) expr);
		*args = ((OpExpr *) expr)->args;
		return ((OpExpr *) expr)->opfuncid;
	}
	if (IsA(expr, FuncExpr))
	{
		*args = ((FuncExpr *) expr)->args;
		return ((FuncExpr *) expr)->funcid;
	}
	return InvalidOid;
}

/* A bound of a window that is finished when the row comes is the row's event time but for a constant. */
static bool
finished_bound(Reader *r, Node *expr, const AnTime *time, Shifted *result)
{
	int64		us = time->kind == AN_UPPER ? 1 : 1 - time->window.size;

	if (!time->finished || (time->kind != AN_UPPER && (time->kind != AN_LOWER || time->window.kind != WMS_WINDOW_GRID)))
		return false;
	result->time = wms_an_shifted(copyObject(expr), time->type, -us);
	if (IsA(expr, FuncExpr))
		result->time = wms_an_event_of(copyObject(linitial(((FuncExpr *) expr)->args)), time->type);
	result->us = us;
	return true;
}

/* Is the expression an event time of one side, plus or minus constants? */
static bool
read_shifted(Reader *r, Node *expr, Shifted *result)
{
	List	   *args = NIL;
	AnTime		time;
	int64		us;
	Oid			function;

	expr = without_relabel(expr);
	time = wms_an_time(r->a, r->query, expr);
	if (time.kind != AN_NONE && time.watermarked && !time.processing)
	{
		result->side = side_of(r, expr);
		result->about = time;
		result->time = expr;
		result->us = 0;
		return result->side >= 0 && (time.kind == AN_EVENT || finished_bound(r, expr, &time, result));
	}
	function = function_of(expr, &args);
	switch (function)
	{
		case F_TIMESTAMPTZ_PL_INTERVAL:
		case F_TIMESTAMP_PL_INTERVAL:
		case F_TIMESTAMPTZ_MI_INTERVAL:
		case F_TIMESTAMP_MI_INTERVAL:
			if (!read_shifted(r, linitial(args), result) || !constant_us(r, lsecond(args), &us))
				return false;
			if (function == F_TIMESTAMPTZ_MI_INTERVAL || function == F_TIMESTAMP_MI_INTERVAL)
				us = -us;
			break;
		case F_INTERVAL_PL_TIMESTAMPTZ:
		case F_INTERVAL_PL_TIMESTAMP:
			if (!read_shifted(r, lsecond(args), result) || !constant_us(r, linitial(args), &us))
				return false;
			break;
		default:
			return false;
	}
	result->us += us;
	return true;
}

static Comparison
comparison_of(Oid function)
{
	switch (function)
	{
		case F_TIMESTAMPTZ_LT:
		case F_TIMESTAMP_LT:
		case F_INTERVAL_LT:
			return CMP_LT;
		case F_TIMESTAMPTZ_LE:
		case F_TIMESTAMP_LE:
		case F_INTERVAL_LE:
			return CMP_LE;
		case F_TIMESTAMPTZ_EQ:
		case F_TIMESTAMP_EQ:
		case F_INTERVAL_EQ:
			return CMP_EQ;
		case F_TIMESTAMPTZ_GE:
		case F_TIMESTAMP_GE:
		case F_INTERVAL_GE:
			return CMP_GE;
		case F_TIMESTAMPTZ_GT:
		case F_TIMESTAMP_GT:
		case F_INTERVAL_GT:
			return CMP_GT;
	}
	return CMP_NONE;
}

static Comparison
mirrored(Comparison c)
{
	return c == CMP_NONE ? CMP_NONE : CMP_GT - (c - CMP_LT);
}

/*
 * A condition as "right event time - left event time  c  us".
 * Times may stand on both sides of the operator, or their difference on one.
 */
static bool
read_distance(Reader *r, Node *condition, Shifted times[2], Comparison *c, int64 *us)
{
	List	   *args = NIL;
	List	   *parts = NIL;
	Shifted		x;
	Shifted		y;
	Node	   *difference;
	Node	   *constant;
	Oid			function;

	if (!IsA(condition, OpExpr))
		return false;
	*c = comparison_of(function_of(condition, &args));
	if (*c == CMP_NONE)
		return false;
	if (read_shifted(r, linitial(args), &x) && read_shifted(r, lsecond(args), &y))
		*us = y.us - x.us;		/* x.time - y.time  c  us */
	else
	{
		difference = without_relabel(linitial(args));
		constant = lsecond(args);
		if (IsA(without_relabel(difference), Const))
		{
			difference = without_relabel(lsecond(args));
			constant = linitial(args);
			*c = mirrored(*c);
		}
		function = function_of(difference, &parts);
		if ((function != F_TIMESTAMPTZ_MI && function != F_TIMESTAMP_MI) ||
			!read_shifted(r, linitial(parts), &x) || !read_shifted(r, lsecond(parts), &y) || !constant_us(r, constant, us))
			return false;
		*us += y.us - x.us;
	}
	if (x.side == y.side)
		return false;
	times[x.side] = x;
	times[y.side] = y;
	if (x.side == 0)			/* left - right  c  us */
	{
		*c = mirrored(*c);
		*us = -*us;
	}
	return true;
}

static Range *
range_of(List **ranges, const Shifted times[2])
{
	Range	   *range;
	ListCell   *lc;

	foreach(lc, *ranges)
	{
		range = lfirst(lc);
		if (equal(range->time[0], times[0].time) && equal(range->time[1], times[1].time))
			return range;
	}
	range = palloc0(sizeof(Range));
	for (int s = 0; s < 2; s++)
	{
		range->time[s] = times[s].time;
		range->about[s] = times[s].about;
	}
	*ranges = lappend(*ranges, range);
	return range;
}

static void
narrow(Range *range, bool upper, int64 us)
{
	if (upper)
		range->max_us = range->has_max ? Min(range->max_us, us) : us;
	else
		range->min_us = range->has_min ? Max(range->min_us, us) : us;
	range->has_max |= upper;
	range->has_min |= !upper;
}

static bool
read_range(Reader *r, Node *condition, List **ranges)
{
	Shifted		times[2];
	Range	   *range;
	Comparison	c;
	int64		us;

	r->months = NULL;
	if (!read_distance(r, condition, times, &c, &us))
		return false;
	if (r->months)
		wms_no_months_in_range(r->a, wms_an_is_noted(r->a, condition) ? condition : r->months);
	range = range_of(ranges, times);
	range->conditions = lappend(range->conditions, condition);
	if (c == CMP_LT || c == CMP_LE || c == CMP_EQ)
		narrow(range, true, c == CMP_LT ? us - 1 : us);
	if (c == CMP_GT || c == CMP_GE || c == CMP_EQ)
		narrow(range, false, c == CMP_GT ? us + 1 : us);
	range->equality |= c == CMP_EQ;
	return true;
}

/* The range that bounds the join best; needs: which of its ends must not be missing. */
static Range *
best_range(List *ranges, bool needs_min, bool needs_max)
{
	Range	   *best = NULL;
	int			best_score = -1;
	ListCell   *lc;

	foreach(lc, ranges)
	{
		Range	   *range = lfirst(lc);
		int			score = range->has_min * (1 + 2 * needs_min) + range->has_max * (1 + 2 * needs_max);

		if (score > best_score)
		{
			best = range;
			best_score = score;
		}
	}
	return best;
}

/* ---------------------------------------------------------------- all conditions */

/* The best equality of times among the conditions; NULL: there is none. */
static Node *
find_same(Reader *r, List *conditions, AnJoinBound *bound)
{
	Node	   *found = NULL;
	Tightness	best = TIGHT_NOT;
	ListCell   *lc;

	foreach(lc, conditions)
	{
		AnJoinBound candidate;
		Tightness	tightness = read_same(r, lfirst(lc), &candidate);

		if (tightness <= best)
			continue;
		best = tightness;
		found = lfirst(lc);
		for (int s = 0; s < 2; s++)
		{
			bound->time[s] = candidate.time[s];
			bound->about[s] = candidate.about[s];
		}
	}
	return found;
}

static void
use_range(AnJoinBound *bound, const Range *range)
{
	bound->bound = WMS_BOUND_RANGE;
	bound->has_min = range->has_min;
	bound->has_max = range->has_max;
	bound->min_us = range->min_us;
	bound->max_us = range->max_us;
	bound->equality = range->equality;
	for (int s = 0; s < 2; s++)
	{
		bound->time[s] = range->time[s];
		bound->about[s] = range->about[s];
		bound->about[s].kind = AN_EVENT;
	}
}

/*
 * Reads the conditions between two sides of a level.  rels: range table numbers of each side.
 */
void
wms_an_read_join(Analysis *a, Query *query, Bitmapset **rels, List *conditions, JoinType type, AnJoinBound *bound)
{
	Reader		r = {a, query, rels};
	bool		needs_min = type == JOIN_RIGHT || type == JOIN_FULL;
	bool		needs_max = type != JOIN_INNER && type != JOIN_RIGHT;
	List	   *ranges = NIL;
	Range	   *range = NULL;
	Node	   *same;
	ListCell   *lc;

	memset(bound, 0, sizeof(*bound));
	same = find_same(&r, conditions, bound);
	if (same)
	{
		bound->bound = WMS_BOUND_SAME;
		bound->equality = true;
	}
	else
	{
		foreach(lc, conditions)
			read_range(&r, lfirst(lc), &ranges);
		range = best_range(ranges, needs_min, needs_max);
		if (range)
			use_range(bound, range);
	}
	foreach(lc, conditions)
	{
		Node	   *condition = lfirst(lc);
		AnJoinKey  *key;

		if (condition == same || (range && list_member_ptr(range->conditions, condition)))
			continue;
		key = read_key(&r, condition);
		if (key)
		{
			bound->keys = lappend(bound->keys, key);
			bound->equality = true;
		}
		else
			bound->rest = lappend(bound->rest, condition);
	}
}
