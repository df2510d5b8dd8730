/*
 * registry_upsert.c
 *	  INSERT ... ON CONFLICT DO UPDATE and MERGE into queues: a row that they update stays the row of the transaction that inserted it.
 *
 * An UPDATE leaves a generated column alone whose expression reads none of the columns that are set.  But up to version 15 a statement that may both
 * insert and update has the expressions of an INSERT for both, and every row that it updates would bear its own transaction and be read
 * as a new one.  So when such a statement has been made ready to run, the expression of wm_xid is replaced by one that keeps what the row has: nothing
 * in a row that is to be inserted, the former value in one that is updated.  (A BEFORE INSERT trigger must not put anything there, then.)
 *
 * Called for every statement of the server, so it looks at as little as it can before it decides that no queue is meant.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "rewrite/rewriteHandler.h"
#include "utils/rel.h"

#include "registry/registry_internal.h"

static ExecutorStart_hook_type next_executor_start = NULL;

static Expr *
kept_or_made(AttrNumber column, Node *made)
{
	CoalesceExpr *either = makeNode(CoalesceExpr);

	either->coalescetype = XID8OID;
	either->args = list_make2(makeVar(1, column, XID8OID, -1, InvalidOid, 0), made);
	either->location = -1;
	return (Expr *) either;
}

static void
keep_transactions(ResultRelInfo *target, EState *estate)
{
	ExprState **exprs = WmsUpsertExprs(target);
	AttrNumber	column = exprs ? wms_queue_column(RelationGetDescr(target->ri_RelationDesc)) : InvalidAttrNumber;
	MemoryContext old;
	Node	   *made;

	if (column == InvalidAttrNumber)
		return;
	old = MemoryContextSwitchTo(estate->es_query_cxt);
	made = build_column_default(target->ri_RelationDesc, column);
	/* a column of that name may be somebody else's, who reads other columns in it */
	if (IsA(made, FuncExpr) && ((FuncExpr *) made)->args == NIL)
		exprs[column - 1] = ExecPrepareExpr(kept_or_made(column, made), estate);
	MemoryContextSwitchTo(old);
}

static bool
inserts_and_updates(const ModifyTableState *node)
{
	return node->operation == CMD_MERGE ||
		(node->operation == CMD_INSERT && ((ModifyTable *) node->ps.plan)->onConflictAction == ONCONFLICT_UPDATE);
}

static void
look_at(PlanState *node)
{
	ModifyTableState *modify = (ModifyTableState *) node;

	if (!IsA(node, ModifyTableState) || !inserts_and_updates(modify))
		return;
	for (int i = 0; i < modify->mt_nrels; i++)
		keep_transactions(&modify->resultRelInfo[i], node->state);
}

static void
on_executor_start(QueryDesc *desc, int flags)
{
	ListCell   *lc;

	if (next_executor_start)
		next_executor_start(desc, flags);
	else
		standard_ExecutorStart(desc, flags);
	look_at(desc->planstate);
	foreach(lc, desc->estate->es_auxmodifytables)	/* in WITH */
		look_at(lfirst(lc));
}

void
wms_upsert_install_hook(void)
{
	if (!WMS_UPSERT_GENERATES)
		return;
	next_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = on_executor_start;
}
