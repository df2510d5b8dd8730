/*
 * analyze_retract.c
 *	  What on_change => 'retract' asks of a definition.
 *
 * A row that is changed or deleted is taken back: it goes through the same query a second time, as it was, and each group that it was in
 * forgets it.  That is right only if the query gives the same for a row at any time, and where rows are in groups that are still open
 * or kept.  What would need more is refused here: results that were emitted for single rows (projections, DISTINCT, joins), sessions, which
 * would have to fall apart again, static tables and the clock, which may say something else by then.
 *
 * An aggregate takes rows back by its inverse transition function where that is known to be exact for these arguments; else its arguments
 * are kept, and the row's are taken out of them.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "analyze/analyze_internal.h"

/* ---------------------------------------------------------------- aggregates */

/*
 * Sums of integers, of money, of intervals are exact, whatever the order.  A numeric state forgets its scale when the last value that
 * had it goes, which cannot happen where all values have the same: where the type says how many digits.
 */
const char *
wms_an_why_no_inverse(const Aggref *agg, const FormData_pg_aggregate *form)
{
	Node	   *argument = agg->args ? (Node *) linitial_node(TargetEntry, agg->args)->expr : NULL;

	if (!OidIsValid(form->aggminvtransfn))
		return "it has no inverse";
	if (form->aggmtranstype == INTERNALOID && form->aggmtransfn != form->aggtransfn)
		return "the state of its inverse cannot be stored";
	switch (form->aggminvtransfn)
	{
		case F_INT8DEC:
		case F_INT8DEC_ANY:
		case F_INT2_AVG_ACCUM_INV:
		case F_INT4_AVG_ACCUM_INV:
		case F_INT8_AVG_ACCUM_INV:
		case F_INT2_ACCUM_INV:
		case F_INT4_ACCUM_INV:
		case F_INT8_ACCUM_INV:
		case F_INTERVAL_MI:
		case WmsIntervalAccumInv:
		case F_CASH_MI:
			return NULL;
		case F_NUMERIC_ACCUM_INV:
			return exprTypmod(argument) < 0 ? "its inverse is exact only for numeric(p,s)" : NULL;
		default:
			return "its inverse is not known to be exact";
	}
}

/* ---------------------------------------------------------------- rows that are there already */

static bool
has_rows(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		found = false;

	if (RELKIND_HAS_TABLE_AM(rel->rd_rel->relkind))
	{
		TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
		TupleTableSlot *slot = table_slot_create(rel, NULL);

		found = table_scan_getnextslot(scan, ForwardScanDirection, slot);
		ExecDropSingleTupleTableSlot(slot);
		table_endscan(scan);
	}
	table_close(rel, NoLock);
	return found;
}

/* Does any table that the plan reads as a stream have rows?  The first such, or InvalidOid. */
Oid
wms_source_with_rows(const WmsStreamPlan *plan)
{
	for (int i = 0; i < plan->nsources; i++)
	{
		ListCell   *lc;

		foreach(lc, find_all_inheritors(plan->sources[i].relid, AccessShareLock, NULL))
		{
			if (has_rows(lfirst_oid(lc)))
				return plan->sources[i].relid;
		}
	}
	return InvalidOid;
}

/* ---------------------------------------------------------------- what is refused */

static bool
clock_function(Oid funcid, void *arg)
{
	return funcid == F_NOW || funcid == F_TRANSACTION_TIMESTAMP || funcid == F_STATEMENT_TIMESTAMP ||
		funcid == F_AGE_TIMESTAMPTZ || funcid == F_AGE_TIMESTAMP;
}

static bool
is_clock_value(SQLValueFunctionOp op)
{
	return op >= SVFOP_CURRENT_DATE && op <= SVFOP_LOCALTIMESTAMP_N;
}

static bool
clock_walker(Node *node, void *arg)
{
	Node	  **found = arg;

	if (node == NULL || *found)
		return false;
	if ((IsA(node, SQLValueFunction) && is_clock_value(((SQLValueFunction *) node)->op)) ||
		check_functions_in_node(node, clock_function, NULL))
	{
		*found = node;
		return true;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, clock_walker, arg, 0);
	return expression_tree_walker(node, clock_walker, arg);
}

static void
check_no_clock(Analysis *a, void *tree)
{
	Node	   *found = NULL;

	clock_walker(tree, &found);
	if (found)
		wms_no_retract_clock(a, found);
}

/* Where the first of some static tables was read first. */
static int
place_of_static(Analysis *a, List *relids)
{
	ListCell   *lc;
	ListCell   *lc2;

	forboth(lc, a->static_told, lc2, a->static_places)
	{
		if (list_member_oid(relids, lfirst_oid(lc)))
			return lfirst_int(lc2);
	}
	return -1;
}

static void
check_op(Analysis *a, const WmsOpPlan *op)
{
	int			location = wms_an_place_of_set(a, "op", op->id);

	if (op->kind == WMS_OP_JOIN)
		wms_no_retract_here(a, "a join of streams", "Aggregate one source, and join the results when you read them.", location);
	else if (op->kind == WMS_OP_DEDUP)
		wms_no_retract_here(a, "DISTINCT on rows", "Group by the same columns in a window instead.", location);
	if (!op->retracts)
		return;
	if (op->window.kind == WMS_WINDOW_SESSION)
		wms_no_retract_here(a, "a session window of rows", "Use wmstream.window() instead.", wms_an_place(a, op->keys[op->window_key]->expr));
	if (op->input->reads_static)
		wms_no_retract_here(a, "a static table below an aggregate", "Join it above the aggregate, or when you read the result: by the time a row is taken back, it may say something else.",
							place_of_static(a, op->input->static_relids));
	check_no_clock(a, op->input->query);
}

/* Partitions are looked after like the table itself: the identity is each one's own. */
static void
check_identity(Analysis *a, const WmsSourcePlan *source)
{
	List	   *tables = find_all_inheritors(source->relid, AccessShareLock, NULL);
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		a->relids = list_append_unique_oid(a->relids, lfirst_oid(lc));
		if (rel->rd_rel->relkind == RELKIND_RELATION && rel->rd_rel->relreplident != REPLICA_IDENTITY_FULL)
			wms_no_identity(a, lfirst_oid(lc), wms_an_place_of_set(a, "raw", source->index));
		table_close(rel, NoLock);
	}
}

/* final: what gives the result's rows. */
void
wms_an_check_retract(Analysis *a, const WmsStreamPlan *plan, const Query *final)
{
	if (!a->options->retract)
		return;
	if (plan->processing_time)
		wms_no_retract_here(a, "windows of the clock", "Use the event time of the rows.", plan->nops > 0 ? wms_an_place_of_set(a, "op", 0) : -1);
	for (int i = 0; i < plan->nops; i++)
		check_op(a, &plan->ops[i]);
	if (wms_an_has_raw_rows(a, final))
		wms_no_retract_here(a, "a result with a row for each source row", "Rows that were emitted are not taken back. Aggregate them, or read the table itself.", -1);
	for (int i = 0; i < plan->nsources; i++)
	{
		const WmsSourcePlan *source = &plan->sources[i];

		check_no_clock(a, source->below);
		if (source->below && wms_an_static_relids(source->below))
			wms_no_retract_here(a, "a static table below a watermark", "Join it above the aggregate, or when you read the result.",
								place_of_static(a, wms_an_static_relids(source->below)));
		if (a->refusal == NULL)
			check_identity(a, source);
	}
}
