/*
 * sqlface_query.c
 *	  The text of a definition, as a query tree.
 *
 * Everything here happens as the caller and in the caller's search_path: parse analysis may run functions
 * that a user wrote.  Errors of the parser get their position in the definition, not in the call that holds it.
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "tcop/tcopprot.h"

#include "sqlface/sqlface_internal.h"

static void
point_into_definition(void *arg)
{
	int			position = geterrposition();

	if (position <= 0)
		return;
	errposition(0);
	internalerrposition(position);
	internalerrquery((const char *) arg);
}

static RawStmt *
only_select(const char *text)
{
	List	   *statements = pg_parse_query(text);

	if (list_length(statements) != 1 || !IsA(linitial_node(RawStmt, statements)->stmt, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query of a stream must be exactly one SELECT"),
				 errhint("Give it as text, for example $$SELECT ... FROM ...$$.")));
	return linitial_node(RawStmt, statements);
}

/* What CREATE VIEW refuses too. */
static void
check_plain_select(const Query *query)
{
	if (query->commandType != CMD_SELECT || query->utilityStmt)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the query of a stream cannot be SELECT INTO"),
				 errhint("The result table is named by the first argument of wmstream.create_stream().")));
	if (query->hasModifyingCTE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the query of a stream cannot change data in WITH"),
				 errhint("Write rows by a trigger of the result table, which runs as its owner.")));
}

Query *
wms_face_query(const char *text)
{
	ErrorContextCallback callback;
	Query	   *query;

	callback.callback = point_into_definition;
	callback.arg = unconstify(char *, text);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	query = parse_analyze_fixedparams(only_select(text), text, NULL, 0, NULL);
	error_context_stack = callback.previous;

	check_plain_select(query);
	return query;
}
