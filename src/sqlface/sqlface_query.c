/*
 * sqlface_query.c
 *	  The text of a definition, as a query tree; and back.
 *
 * A text is parsed as the caller and in the caller's search_path: parse analysis may run functions
 * that a user wrote.  The rest happens as the role that a definition is for.  Errors of the parser, and ours, get their position in the definition, not in the call that holds it; one that
 * has none says in its context that the definition is meant.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "sqlface/sqlface_internal.h"

PG_FUNCTION_INFO_V1(wms_sql_definition_text);

static void
point_into_definition(void *arg)
{
	int			position = geterrposition();

	if (position <= 0)
	{
		if (getinternalerrposition() <= 0)
			errcontext("definition of the stream");
		return;
	}
	errposition(0);
	internalerrposition(position);
	internalerrquery((const char *) arg);
}

/* For an error under the callback: the cursor counts characters from 1; a location counts bytes from 0. */
int
wms_face_errposition(const char *text, int location)
{
	return errposition(pg_mbstrlen_with_len(text, location) + 1);
}

/* Where the statement that should not be there begins: the first, or the second. */
static int
start_of_wrong(const char *text, List *statements)
{
	int			location = list_length(statements) > 1 ? lsecond_node(RawStmt, statements)->stmt_location : 0;

	return location + strspn(text + location, " \t\r\n\f");
}

static RawStmt *
only_select(const char *text)
{
	List	   *statements = pg_parse_query(text);

	if (list_length(statements) != 1 || !IsA(linitial_node(RawStmt, statements)->stmt, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query of a stream must be exactly one SELECT"),
				 errhint("Give it as text, for example $$SELECT ... FROM ...$$."),
				 wms_face_errposition(text, start_of_wrong(text, statements))));
	return linitial_node(RawStmt, statements);
}

/* What CREATE VIEW refuses too; INTO stands in the leftmost SELECT, and WITH that writes at the top. */
static void
check_plain_select(const char *text, const RawStmt *raw)
{
	SelectStmt *select = castNode(SelectStmt, raw->stmt);
	SelectStmt *leftmost = select;
	ListCell   *lc;

	while (leftmost->op != SETOP_NONE)
		leftmost = leftmost->larg;
	if (leftmost->intoClause)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the query of a stream cannot be SELECT INTO"),
				 errhint("The result table is named by the first argument of wmstream.create_stream()."),
				 wms_face_errposition(text, leftmost->intoClause->rel->location)));
	foreach(lc, select->withClause ? select->withClause->ctes : NIL)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		if (!IsA(cte->ctequery, SelectStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the query of a stream cannot change data in WITH"),
					 errhint("Write rows by a trigger of the result table, which runs as its owner."),
					 wms_face_errposition(text, cte->location)));
	}
}

static void
push_callback(ErrorContextCallback *callback, const char *text)
{
	callback->callback = point_into_definition;
	callback->arg = unconstify(char *, text);
	callback->previous = error_context_stack;
	error_context_stack = callback;
}

Query *
wms_face_query(const char *text)
{
	ErrorContextCallback callback;
	RawStmt    *raw;
	List	   *stars;
	Query	   *query;

	push_callback(&callback, text);
	raw = only_select(text);
	check_plain_select(text, raw);
	stars = wms_face_stars(raw->stmt);
	query = parse_analyze_fixedparams(raw, text, NULL, 0, NULL);
	wms_face_hide(query, stars, text);
	error_context_stack = callback.previous;
	return query;
}

/* The plan of a definition that came as text; NULL and a refusal if there is none. */
WmsStreamPlan *
wms_face_analyze(const Query *query, const WmsOptions *options, WmsRefusal **refusal)
{
	ErrorContextCallback callback;
	WmsStreamPlan *plan;

	push_callback(&callback, options->text);
	plan = wms_analyze_query(copyObject(unconstify(Query *, query)), options, refusal);
	error_context_stack = callback.previous;
	return plan;
}

/* As far as EXPLAIN goes: nothing runs, and functions that may not be called are found. */
static void
start_executor(PlannedStmt *plan, const char *text)
{
	QueryDesc  *desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot, None_Receiver, NULL, NULL, 0);

	ExecutorStart(desc, EXEC_FLAG_EXPLAIN_ONLY);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
}

/* What only planner and executor refuse, and constants that cannot be computed, are told at creation too. */
void
wms_face_plan_query(const Query *query, const char *text)
{
	ErrorContextCallback callback;
	ListCell   *lc;

	push_callback(&callback, text);
	foreach(lc, QueryRewrite(copyObject(unconstify(Query *, query))))
		start_executor(pg_plan_query(lfirst_node(Query, lc), text, 0, NULL), text);
	error_context_stack = callback.previous;
}

/* An error that is only news of something being dropped: the relation, the column, the type are not there any more. */
static bool
is_gone(int sqlerrcode)
{
	return ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION ||
		ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_INTERNAL_ERROR;
}

typedef struct ViewText
{
	Datum		view;
	Datum		text;
} ViewText;

static void
get_view_text(void *arg)
{
	ViewText   *view = arg;

	view->text = OidFunctionCall1(F_PG_GET_VIEWDEF_OID, view->view);
}

/*
 * A definition as text.  The list of streams is read by a snapshot, and the definition as it is now: it may have been dropped in
 * between, which must not be an error of whoever looks at the list.
 */
Datum
wms_sql_definition_text(PG_FUNCTION_ARGS)
{
	ViewText	view = {.view = PG_GETARG_DATUM(0)};
	ErrorData  *edata = wms_in_subtransaction(get_view_text, &view, true);

	if (edata && !is_gone(edata->sqlerrcode))
		ReThrowError(edata);
	if (edata)
		FreeErrorData(edata);
	if (view.text == (Datum) 0)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(view.text);
}
