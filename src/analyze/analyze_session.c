/*
 * analyze_session.c
 *	  What is special about session windows.
 *
 * session_window(t, gap) of a row is only where a session begins to grow: which session the row belongs to is known when all of
 * its key have been merged.  So such a call may be a group key, and its bounds may be shown above; used for anything else it would
 * mean something that the batch query does not mean either, and is refused.  The operator gets the row's time, and its gap where
 * that is no constant, and makes the sessions itself.
 *
 * Above that operator a session is a window like others (WMS_WINDOW_MERGED), but that its begin does not tell when it ends, and that
 * two of different keys may have one bound in common.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"

#include "analyze/analyze_internal.h"

/* A session of one row, or a bound of it: still to be merged. */
bool
wms_an_is_session(const AnTime *time)
{
	return time->kind != AN_NONE && time->kind != AN_EVENT && time->window.kind == WMS_WINDOW_SESSION;
}

/* The gap of a row's session, as an expression where the window is one. */
Node *
wms_an_session_gap(Node *window, Oid time_type)
{
	List	   *bounds;

	if (wms_an_call(window) == WMS_FN_SESSION)
		return copyObject(lsecond(((FuncExpr *) window)->args));
	bounds = list_make2(wms_an_bound(copyObject(window), true, time_type), wms_an_bound(copyObject(window), false, time_type));
	return (Node *) makeFuncExpr(time_type == TIMESTAMPOID ? F_TIMESTAMP_MI : F_TIMESTAMPTZ_MI, INTERVALOID, bounds, InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

typedef struct SessionsContext
{
	Analysis   *a;
	Query	   *query;
	int			depth;
} SessionsContext;

static bool
sessions_walker(Node *node, void *arg)
{
	SessionsContext *context = arg;

	if (node == NULL || context->a->refusal)
		return false;
	if (wms_an_call(node) == WMS_FN_SESSION)
	{
		wms_no_session_here(context->a, node);
		return false;
	}
	if (IsA(node, Query))
	{
		if (node == (Node *) context->query)
			return query_tree_walker((Query *) node, sessions_walker, arg, 0);
		context->depth++;
		query_tree_walker((Query *) node, sessions_walker, arg, 0);
		context->depth--;
		return false;
	}
	if (IsA(node, Var) && context->depth == 0)
	{
		AnTime		time = wms_an_time(context->a, context->query, node);

		if (wms_an_is_session(&time))
			wms_no_session_here(context->a, node);
		return false;
	}
	return expression_tree_walker(node, sessions_walker, arg);
}

/* Refuses sessions in an expression of the level, or anywhere in the level when that is what is given. */
void
wms_an_refuse_sessions(Analysis *a, Query *query, Node *expr)
{
	SessionsContext context = {a, query, 0};

	sessions_walker(expr, &context);
}
