/*
 * analyze_source.c
 *	  Stream sources: which entries of FROM they are, what stands below their
 *	  watermark(), and which tables cannot be one.
 *
 * Levels are visited from the inside out.  Each watermark() that stands in WHERE or ON, joined by AND, is taken out of the
 * condition; the entry that its event time belongs to is replaced by the row set
 * wms_in_<source>.  If that entry was a subquery, the subquery is kept as the source's
 * query below the watermark, with the table in it replaced by wms_raw_<source> and the row's number carried up.
 * Whole rows of what is streamed are written out before it gets columns of ours.
 * A watermark() that is left over afterwards stood where it must not.
 *
 * Privileges are checked before, by the caller, on the tree as it came from the rewriter.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "analyze/analyze_internal.h"

/* ---------------------------------------------------------------- tables that can be read as a stream */

static void
check_kind(Analysis *a, Relation rel, const RangeTblEntry *rte)
{
	const char *name = RelationGetRelationName(rel);
	Oid			schema = RelationGetNamespace(rel);

	if (IsCatalogRelation(rel) || IsCatalogNamespace(schema) || IsToastNamespace(schema) || schema == wms_schema_oid())
		wms_no_such_table(a, name, "a system catalog", "Only ordinary tables can be stream sources.", rte);
	else if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		wms_no_such_table(a, name, "a foreign table", "Its changes are not in this server's WAL. Copy the rows into an ordinary table, or join it as a static table.", rte);
	else if (rel->rd_rel->relkind == RELKIND_MATVIEW)
		wms_no_such_table(a, name, "a materialized view", "Read the tables below it, or another stream's result table.", rte);
	else if (rel->rd_rel->relkind == RELKIND_VIEW)
		wms_no_such_table(a, name, "a view that cannot be looked into", "Read the tables below it.", rte);
	else if (rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		wms_no_such_table(a, name, "not a table", "Only ordinary and partitioned tables can be stream sources.", rte);
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		wms_no_such_table(a, name, "a temporary table", "Other sessions cannot read it. Use an ordinary table.", rte);
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		wms_no_such_table(a, name, "an unlogged table", "Its changes are not in the WAL. Use ALTER TABLE ... SET LOGGED.", rte);
	else if (rel->rd_rel->relispartition)
		wms_no_such_table(a, name, "a partition", "Read its partitioned table, with a WHERE condition in a subquery for this part.", rte);
	else if (rel->rd_rel->relkind == RELKIND_RELATION && (rel->rd_rel->relhassubclass || has_superclass(RelationGetRelid(rel))))
		wms_no_such_table(a, name, "part of an inheritance tree", "Use a partitioned table instead.", rte);
}

static void
check_sample(Analysis *a, const RangeTblEntry *rte)
{
	if (rte->tablesample)
		wms_no_clause(a, "TABLESAMPLE", wms_an_place(a, wms_an_is_noted(a, rte->tablesample) ? (void *) rte->tablesample : (void *) rte),
					  "Use a WHERE condition on a hash of the key.");
}

/* The rows of a partitioned table are those of its partitions: the table alone has none. */
static void
check_only(Analysis *a, Relation rel, const RangeTblEntry *rte)
{
	if (!rte->inh && rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		wms_no_clause(a, "ONLY with a partitioned table", wms_an_place(a, rte), "Leave ONLY out: the rows are in the partitions.");
}

/* What a partition is, and which there are, may change: they are watched like the table. */
static void
check_partitions(Analysis *a, const RangeTblEntry *rte)
{
	List	   *partitions = wms_partitions(rte->relid);
	const char *foreign = wms_foreign_part(partitions);

	a->relids = list_concat_unique_oid(a->relids, partitions);
	if (foreign)
		wms_no_such_table(a, get_rel_name(rte->relid), foreign, "Its changes are not in this server's WAL. Use ALTER TABLE ... SET LOGGED, or DETACH PARTITION.", rte);
}

static void
check_table(Analysis *a, const RangeTblEntry *rte)
{
	Relation	rel = table_open(rte->relid, NoLock);
	Oid			lower;

	if (wms_tables_overlap(rte->relid, a->options->result))
		wms_no_own_result(a, rte->relid, rte);
	check_kind(a, rel, rte);
	check_only(a, rel, rte);
	check_partitions(a, rte);
	lower = a->options->retract ? InvalidOid : wms_changing_result(rte->relid);
	if (OidIsValid(lower))
		wms_no_changing_result(a, get_rel_name(lower), rte);
	if (rel->trigdesc && rel->trigdesc->trig_update_before_row && wms_is_queue(rte->relid))
		wms_no_update_trigger(a, RelationGetRelationName(rel), rte);
	if (rte->securityQuals != NIL)
		wms_no_row_security(a, RelationGetRelationName(rel), rte);
	check_sample(a, rte);
	table_close(rel, NoLock);
}

/* ---------------------------------------------------------------- row sets of a source */

static TupleDesc
raw_desc_of(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TupleDesc	table = RelationGetDescr(rel);
	TupleDesc	desc = CreateTemplateTupleDesc(table->natts + 1);

	/* without NOT NULL, defaults and so on: these rows were checked when they were written */
	for (int i = 1; i <= table->natts; i++)
	{
		TupleDescCopyEntry(desc, i, table, i);
		TupleDescAttr(desc, i - 1)->attnotnull = false;
	}
	TupleDescInitEntry(desc, table->natts + 1, AN_ORD, INT8OID, -1, 0);
	table_close(rel, NoLock);
	return desc;
}

/* The columns of from, up to n of them, then extra ones. */
static TupleDesc
in_desc_of(TupleDesc from, int n)
{
	TupleDesc	desc = CreateTemplateTupleDesc(n + 2);

	for (int i = 1; i <= n; i++)
		TupleDescCopyEntry(desc, i, from, i);
	TupleDescInitEntry(desc, n + 1, AN_ORD, INT8OID, -1, 0);
	TupleDescInitEntry(desc, n + 2, AN_EVT, TIMESTAMPTZOID, -1, 0);
	return desc;
}

/* The first n columns. */
static TupleDesc
first_columns(TupleDesc from, int n)
{
	TupleDesc	desc = CreateTemplateTupleDesc(n);

	for (int i = 1; i <= n; i++)
		TupleDescCopyEntry(desc, i, from, i);
	return desc;
}

static WmsSourcePlan *
add_source(Analysis *a, const RangeTblEntry *rte)
{
	Oid			relid = rte->relid;
	WmsSourcePlan *source = palloc0(sizeof(WmsSourcePlan));
	AnSet	   *raw;
	char		name[NAMEDATALEN];

	source->index = list_length(a->sources);
	source->relid = relid;
	source->queue = wms_is_queue(relid);
	source->raw_desc = raw_desc_of(relid);
	source->time_type = TIMESTAMPTZOID;
	a->sources = lappend(a->sources, source);
	if (list_length(a->sources) > WMS_MAX_SOURCES)
		wms_no_too_many_sources(a, wms_an_place(a, rte));

	snprintf(name, sizeof(name), "wms_raw_%d", source->index);
	raw = wms_an_add_set(a, pstrdup(name), source->raw_desc);
	raw->op = -1;
	raw->raw = true;
	raw->source = source->index;
	raw->sources = list_make1_int(source->index);
	raw->ord = source->raw_desc->natts;
	raw->location = wms_an_place(a, rte);
	return source;
}

static void
add_in_set(Analysis *a, WmsSourcePlan *source, Query *query, int rtindex)
{
	AnSet	   *set;
	int			natts = source->in_desc->natts;
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "wms_in_%d", source->index);
	set = wms_an_add_set(a, pstrdup(name), source->in_desc);
	set->op = -1;
	set->source = source->index;
	set->sources = list_make1_int(source->index);
	set->ord = natts - 1;
	set->evt = natts;
	set->location = wms_an_place(a, rt_fetch(rtindex, query->rtable));
	if (source->event_time)
	{
		set->times[natts - 1].kind = AN_EVENT;
		set->times[natts - 1].type = source->time_type;
		set->times[natts - 1].watermarked = true;
		set->times[natts - 1].bounded = source->bounded;
		set->times[natts - 1].sources = bms_make_singleton(source->index);
	}
	for (int i = 0; i < natts - 2; i++)
		set->not_null[i] = wms_an_not_null(a, query, (Node *) makeVar(rtindex, i + 1, INT4OID, -1, InvalidOid, 0));
}

/* The user's own columns of an entry, by number: which are read? */
typedef struct ColumnsContext
{
	int			rtindex;
	int			depth;
	int			natts;
	Bitmapset  *columns;
	Node	   *system;			/* a system column */
} ColumnsContext;

static bool
columns_walker(Node *node, void *arg)
{
	ColumnsContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		context->depth++;
		query_tree_walker((Query *) node, columns_walker, context, QTW_IGNORE_JOINALIASES);
		context->depth--;
		return false;
	}
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno != context->rtindex || (int) var->varlevelsup != context->depth)
			return false;
		if (var->varattno < 0)
			context->system = node;
		else if (var->varattno > 0)
			context->columns = bms_add_member(context->columns, var->varattno);
		else
			context->columns = bms_add_range(context->columns, 1, context->natts);
		return false;
	}
	return expression_tree_walker(node, columns_walker, context);
}

/* Takes note of the columns that a level reads of a source's table, and writes out whole rows of it. */
static void
note_columns(Analysis *a, WmsSourcePlan *source, Query *query, int rtindex)
{
	ColumnsContext context = {rtindex, 0, source->raw_desc->natts - 1, NULL, NULL};
	int			attno = -1;

	query_tree_walker(query, columns_walker, &context, QTW_IGNORE_JOINALIASES);
	if (context.system)
		wms_no_system_column(a, context.system);
	while ((attno = bms_next_member(context.columns, attno)) >= 0)
	{
		Form_pg_attribute att = TupleDescAttr(source->raw_desc, attno - 1);

		if (!att->attisdropped)
			source->columns_used = list_append_unique_int(source->columns_used, attno);
		if (WmsIsVirtualGenerated(att->attgenerated))
			wms_no_virtual_column(a, (Node *) makeVar(rtindex, attno, att->atttypid, -1, InvalidOid, 0));
	}
	list_sort(source->columns_used, list_int_cmp);
	wms_an_whole_rows(query, rtindex, first_columns(source->raw_desc, source->raw_desc->natts - 1));
}

static void
replace_entry(Query *query, int rtindex, const char *name, TupleDesc desc)
{
	ListCell   *cell = list_nth_cell(query->rtable, rtindex - 1);
	RangeTblEntry *old = lfirst(cell);

	lfirst(cell) = wms_rowset_rte(name, desc, old->eref->aliasname);
}

static char *
set_name(const char *kind, int index)
{
	return psprintf("wms_%s_%d", kind, index);
}

/* ---------------------------------------------------------------- a table directly under its watermark */

static WmsSourcePlan *
source_of_table(Analysis *a, Query *query, int rtindex)
{
	RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
	WmsSourcePlan *source;

	check_table(a, rte);
	if (a->refusal)
		return NULL;
	source = add_source(a, rte);
	note_columns(a, source, query, rtindex);
	source->in_desc = in_desc_of(source->raw_desc, source->raw_desc->natts - 1);
	return source;
}

/* ---------------------------------------------------------------- a subquery under a watermark */

/* Why a query may not stand below a watermark; NULL if it may. */
static const char *
why_not_below(const Query *query)
{
	if (query->hasAggs || query->groupClause || query->groupingSets || query->havingQual)
		return "an aggregate";
	if (query->distinctClause)
		return "DISTINCT";
	if (query->hasWindowFuncs)
		return "a window function";
	if (query->limitCount || query->limitOffset)
		return "LIMIT";
	if (query->sortClause)
		return "ORDER BY";
	return NULL;
}

static bool
only_union_all(Node *node)
{
	SetOperationStmt *op;

	if (!IsA(node, SetOperationStmt))
		return true;
	op = (SetOperationStmt *) node;
	return op->op == SETOP_UNION && op->all && only_union_all(op->larg) && only_union_all(op->rarg);
}

static Oid	trace_table(Analysis *a, Query *query, Node *expr, WmsSourcePlan **source, Node *where);

/* Replaces the table that an event time comes from, in a level below the watermark. */
static Oid
trace_to_entry(Analysis *a, Query *query, Node *expr, int rtindex, WmsSourcePlan **source, Node *where)
{
	RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
	Oid			relid;

	if (rte->rtekind == RTE_SUBQUERY)
	{
		Node	   *outer = wms_an_refers_outside(rte->subquery);

		if (outer)
		{
			wms_no_outer_reference(a, outer);
			return InvalidOid;
		}
		return trace_table(a, rte->subquery, expr, source, where);
	}
	if (rte->rtekind == RTE_NAMEDTUPLESTORE)
	{
		wms_no_watermark_above(a, where, "another watermark");
		return InvalidOid;
	}
	if (rte->rtekind != RTE_RELATION)
	{
		wms_no_one_source(a, where);
		return InvalidOid;
	}
	relid = rte->relid;
	check_table(a, rte);
	if (a->refusal)
		return InvalidOid;
	if (*source == NULL)
		*source = add_source(a, rte);
	else if ((*source)->relid != relid)
	{
		wms_no_union_source(a, where);
		return InvalidOid;
	}
	note_columns(a, *source, query, rtindex);
	replace_entry(query, rtindex, set_name("raw", (*source)->index), (*source)->raw_desc);
	return relid;
}

/* The expressions of a query's columns that a Var of its output means. */
static List *
what_stands_for(const Query *query, const Var *var)
{
	List	   *exprs = NIL;
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (var->varattno == InvalidAttrNumber ? !tle->resjunk : tle->resno == var->varattno)
			exprs = lappend(exprs, tle->expr);
	}
	return exprs;
}

/* expr: over columns of query's output, every Var of level 0 is one. */
static Oid
trace_table(Analysis *a, Query *query, Node *expr, WmsSourcePlan **source, Node *where)
{
	const char *why = why_not_below(query);
	List	   *columns = wms_an_level_vars(expr, -1);
	List	   *inner = NIL;
	ListCell   *lc;
	int			rtindex = 0;

	if (why)
	{
		wms_no_watermark_above(a, where, why);
		return InvalidOid;
	}
	if (query->setOperations)
	{
		Bitmapset  *used = wms_an_used_rtes(query);
		Oid			relid = InvalidOid;
		int			i = -1;

		if (!only_union_all(query->setOperations))
			wms_no_watermark_above(a, where, "UNION, INTERSECT or EXCEPT");
		while (a->refusal == NULL && (i = bms_next_member(used, i)) >= 0)
			relid = trace_table(a, rt_fetch(i, query->rtable)->subquery, expr, source, where);
		return relid;
	}
	foreach(lc, columns)
		inner = list_concat(inner, what_stands_for(query, lfirst(lc)));
	foreach(lc, wms_an_level_vars((Node *) inner, -1))
	{
		Var		   *var = lfirst(lc);

		if (rtindex != 0 && (int) var->varno != rtindex)
		{
			wms_no_one_source(a, where);
			return InvalidOid;
		}
		rtindex = var->varno;
	}
	if (rtindex == 0)
	{
		wms_no_one_source(a, where);
		return InvalidOid;
	}
	if (contain_mutable_functions((Node *) inner))
	{
		wms_no_stable_time(a, where);
		return InvalidOid;
	}
	return trace_to_entry(a, query, (Node *) inner, rtindex, source, where);
}

static AttrNumber passed_column(const Query *query, AttrNumber resno);

/* Of a UNION ALL: a row comes out of any of the branches. */
static AttrNumber
passed_by_all(const Query *query, AttrNumber resno)
{
	Bitmapset  *branches = wms_an_used_rtes(query);
	int			i = bms_next_member(branches, -1);
	AttrNumber	column = passed_column(rt_fetch(i, query->rtable)->subquery, resno);

	while ((i = bms_next_member(branches, i)) >= 0)
		if (passed_column(rt_fetch(i, query->rtable)->subquery, resno) != column)
			return InvalidAttrNumber;
	return column;
}

/* The column of the source's table that a query below watermark() gives, as it is, as one of its own; 0: none. */
static AttrNumber
passed_column(const Query *query, AttrNumber resno)
{
	TargetEntry *tle = get_tle_by_resno(query->targetList, resno);
	Var		   *var = tle && IsA(tle->expr, Var) ? (Var *) tle->expr : NULL;
	RangeTblEntry *rte;

	if (query->setOperations)
		return passed_by_all(query, resno);
	if (var == NULL || var->varattno <= 0 || var->varlevelsup > 0)
		return InvalidAttrNumber;
	rte = rt_fetch(var->varno, query->rtable);
	if (rte->rtekind == RTE_SUBQUERY)
		return passed_column(rte->subquery, var->varattno);
	return rte->rtekind == RTE_NAMEDTUPLESTORE ? var->varattno : InvalidAttrNumber;
}

/*
 * The columns of the table that the owner has through a subquery: what the level names of it, which the owner wrote, was checked to be readable.
 * Through a level of a view nothing can be said to come: it is the view's owner who may read what that names, and may hide some rows.
 */
static void
note_passed(WmsSourcePlan *source, Query *query, int rtindex, FuncExpr *call)
{
	ColumnsContext context = {rtindex, 0, list_length(rt_fetch(rtindex, query->rtable)->subquery->targetList), NULL, NULL};
	int			attno = -1;

	if (!wms_an_is_own(query))
		return;
	query_tree_walker(query, columns_walker, &context, QTW_IGNORE_JOINALIASES);
	columns_walker((Node *) call, &context);
	while ((attno = bms_next_member(context.columns, attno)) >= 0)
	{
		AttrNumber	column = passed_column(rt_fetch(rtindex, query->rtable)->subquery, attno);

		if (column != InvalidAttrNumber)
			source->columns_passed = list_append_unique_int(source->columns_passed, column);
	}
}

static WmsSourcePlan *
source_of_subquery(Analysis *a, Query *query, int rtindex, FuncExpr *call)
{
	RangeTblEntry *rte = rt_fetch(rtindex, query->rtable);
	WmsSourcePlan *source = NULL;
	Node	   *outer = wms_an_refers_outside(rte->subquery);
	AttrNumber	ord;

	if (wms_an_streamed(a, rte->subquery))
	{
		wms_no_watermark_above(a, (Node *) call, "another watermark");
		return NULL;
	}
	if (outer)
	{
		wms_no_outer_reference(a, outer);
		return NULL;
	}
	trace_table(a, rte->subquery, linitial(call->args), &source, (Node *) call);
	if (a->refusal)
		return NULL;
	note_passed(source, query, rtindex, call);
	wms_an_subquery_rows(a, rte->subquery);
	ord = wms_an_carry(a, rte->subquery, AN_ORD);
	source->below = rte->subquery;
	source->in_desc = in_desc_of(wms_an_desc(rte->subquery->targetList, false), ord - 1);
	for (int i = 0; i < ord - 1; i++)	/* a column list of the alias renames */
		namestrcpy(&TupleDescAttr(source->in_desc, i)->attname, strVal(list_nth(rte->eref->colnames, i)));
	return source;
}

/* ---------------------------------------------------------------- one watermark() */

static void
check_event_time(Analysis *a, Node *time)
{
	Oid			type = exprType(time);
	ListCell   *lc;

	if (type != TIMESTAMPTZOID && type != TIMESTAMPOID)
		wms_no_time_type(a, time, type);
	if (checkExprHasSubLink(time))
		wms_no_event_time_of(a, time, "a subquery");
	else if (expression_returns_set(time))
		wms_no_event_time_of(a, time, "a set-returning function");
	else if (contain_agg_clause(time))
		wms_no_event_time_of(a, time, "an aggregate");
	else if (contain_mutable_functions(time))
		wms_no_stable_time(a, time);
	foreach(lc, wms_an_level_vars(time, -1))
	{
		if (((Var *) lfirst(lc))->varattno < 0)
			wms_no_system_column(a, lfirst(lc));
	}
}

/* The entry whose columns an event time is made of; 0 after a refusal. */
static int
entry_of_event_time(Analysis *a, FuncExpr *call)
{
	Node	   *time = linitial(call->args);
	List	   *vars = pull_vars_of_level(time, 0);
	int			rtindex = 0;
	ListCell   *lc;

	if (vars == NIL || contain_vars_of_level(time, 1))
		wms_no_one_source(a, (Node *) call);
	foreach(lc, vars)
	{
		Var		   *var = lfirst(lc);

		if (rtindex != 0 && (int) var->varno != rtindex)
			wms_no_one_source(a, (Node *) call);
		rtindex = var->varno;
	}
	return a->refusal ? 0 : rtindex;
}

static void
set_delay(Analysis *a, WmsSourcePlan *source, FuncExpr *call)
{
	Const	   *delay = lsecond(call->args);
	bool		has_months;

	if (delay->constisnull)
		return;					/* a source without a watermark */
	source->bounded = true;
	source->delay_us = wms_interval_us(DatumGetIntervalP(delay->constvalue), 31, &has_months);
	if (source->delay_us < 0)
		wms_no_delay(a, (Node *) delay);
	if (a->options->delay_us >= 0)
		source->delay_us = a->options->delay_us;
}

/* The call is gone from the condition already, so its columns are not among those noted. */
static void
note_event_time(WmsSourcePlan *source)
{
	ListCell   *lc;

	foreach(lc, pull_vars_of_level(source->event_time, 0))
		source->columns_used = list_append_unique_int(source->columns_used, ((Var *) lfirst(lc))->varattno);
	list_sort(source->columns_used, list_int_cmp);
}

static void
take_watermark(Analysis *a, Query *query, FuncExpr *call)
{
	Node	   *time = linitial(call->args);
	RangeTblEntry *rte;
	WmsSourcePlan *source = NULL;
	TupleDesc	row;
	int			rtindex;

	a->has_watermark = true;
	check_event_time(a, time);
	rtindex = a->refusal ? 0 : entry_of_event_time(a, call);
	if (rtindex == 0)
		return;
	rte = rt_fetch(rtindex, query->rtable);
	if (rte->rtekind == RTE_RELATION)
		source = source_of_table(a, query, rtindex);
	else if (rte->rtekind == RTE_SUBQUERY)
		source = source_of_subquery(a, query, rtindex, call);
	else if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		wms_no_second_watermark(a, (Node *) call);
	else
		wms_no_one_source(a, (Node *) call);
	if (a->refusal)
		return;

	row = first_columns(source->in_desc, source->in_desc->natts - 2);
	wms_an_whole_rows(query, rtindex, row);
	source->event_time = wms_an_whole_rows_in(time, rtindex, row);
	ChangeVarNodes(source->event_time, rtindex, 1, 0);
	if (source->below == NULL)
		note_event_time(source);
	source->time_type = exprType(time);
	set_delay(a, source, call);
	add_in_set(a, source, query, rtindex);
	replace_entry(query, rtindex, set_name("in", source->index), source->in_desc);
}

/* ---------------------------------------------------------------- all of them */

/* Takes watermark() calls out of a condition; the rest of it, NULL if nothing is left. */
static Node *
without_watermarks(Node *quals, List **calls)
{
	List	   *rest = NIL;
	ListCell   *lc;

	if (quals == NULL)
		return NULL;
	if (wms_an_call(quals) == WMS_FN_WATERMARK)
	{
		*calls = lappend(*calls, quals);
		return NULL;
	}
	if (!is_andclause(quals))
		return quals;
	foreach(lc, ((BoolExpr *) quals)->args)
	{
		Node	   *arg = without_watermarks(lfirst(lc), calls);

		if (arg)
			rest = lappend(rest, arg);
	}
	if (list_length(rest) <= 1)
		return rest == NIL ? NULL : linitial(rest);
	((BoolExpr *) quals)->args = rest;
	return quals;
}

static void
collect_watermarks(Node *node, List **calls)
{
	ListCell   *lc;

	if (node == NULL || IsA(node, RangeTblRef))
		return;
	if (IsA(node, FromExpr))
	{
		FromExpr   *from = (FromExpr *) node;

		foreach(lc, from->fromlist)
			collect_watermarks(lfirst(lc), calls);
		from->quals = without_watermarks(from->quals, calls);
	}
	else
	{
		JoinExpr   *join = castNode(JoinExpr, node);

		collect_watermarks(join->larg, calls);
		collect_watermarks(join->rarg, calls);
		join->quals = without_watermarks(join->quals, calls);
		if (join->quals == NULL && join->jointype != JOIN_INNER)
			join->quals = makeBoolConst(true, false);
	}
}

static bool sources_walker(Node *node, void *arg);

static void
find_in_level(Analysis *a, Query *query)
{
	int			outside = wms_an_enter(a, query);
	List	   *calls = NIL;
	ListCell   *lc;

	query_tree_walker(query, sources_walker, a, 0);
	collect_watermarks((Node *) query->jointree, &calls);
	foreach(lc, calls)
	{
		if (a->refusal == NULL)
			take_watermark(a, query, lfirst(lc));
	}
	a->place = outside;
}

static bool
sources_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL || a->refusal)
		return false;
	if (IsA(node, Query))
	{
		find_in_level(a, (Query *) node);
		return false;
	}
	return expression_tree_walker(node, sources_walker, a);
}

static bool
leftover_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL || a->refusal)
		return false;
	if (wms_an_call(node) == WMS_FN_WATERMARK)
	{
		wms_no_watermark_here(a, node);
		return false;
	}
	if (IsA(node, Query))
	{
		int			outside = wms_an_enter(a, (Query *) node);

		query_tree_walker((Query *) node, leftover_walker, a, 0);
		a->place = outside;
		return false;
	}
	return expression_tree_walker(node, leftover_walker, a);
}

/* ---------------------------------------------------------------- no watermark(): the only table */

typedef struct TablesContext
{
	int			count;
	Query	   *query;			/* the level with the last one found */
	int			rtindex;
} TablesContext;

static bool
tables_walker(Node *node, void *arg)
{
	TablesContext *context = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		Bitmapset  *used = wms_an_used_rtes(query);
		int			i = -1;

		while ((i = bms_next_member(used, i)) >= 0)
		{
			if (rt_fetch(i, query->rtable)->rtekind != RTE_RELATION)
				continue;
			context->count++;
			context->query = query;
			context->rtindex = i;
		}
		return query_tree_walker(query, tables_walker, context, 0);
	}
	return expression_tree_walker(node, tables_walker, context);
}

static void
only_table_is_source(Analysis *a, Query *query)
{
	TablesContext context = {0, NULL, 0};
	WmsSourcePlan *source;

	tables_walker((Node *) query, &context);
	if (context.count == 0)
		wms_no_source(a);
	else if (context.count > 1)
		wms_no_single_source(a, context.count, rt_fetch(context.rtindex, context.query->rtable));
	if (a->refusal)
		return;
	source = source_of_table(a, context.query, context.rtindex);
	if (source == NULL || a->refusal)
		return;
	add_in_set(a, source, context.query, context.rtindex);
	replace_entry(context.query, context.rtindex, set_name("in", source->index), source->in_desc);
}

/* A position is one in the WAL, or one in queues. */
static void
check_one_kind(Analysis *a)
{
	WmsSourcePlan *first = linitial(a->sources);
	ListCell   *lc;

	foreach(lc, a->sources)
	{
		WmsSourcePlan *other = lfirst(lc);

		if (other->queue != first->queue)
			wms_no_mixed_sources(a, get_rel_name(first->queue ? first->relid : other->relid),
								 get_rel_name(first->queue ? other->relid : first->relid), wms_an_place_of_set(a, "raw", other->index));
	}
}

void
wms_an_find_sources(Analysis *a, Query *query)
{
	find_in_level(a, query);
	if (a->refusal == NULL)
		leftover_walker((Node *) query, a);
	if (a->refusal == NULL && !a->has_watermark)
		only_table_is_source(a, query);
	if (a->refusal == NULL)
		wms_an_subquery_rows(a, query);
	if (a->refusal == NULL && a->sources != NIL)
		check_one_kind(a);
}

/* ---------------------------------------------------------------- static tables */

/* Also a view that was looked into: the definition depends on it, and it goes with the session. */
static void
check_not_temporary(Analysis *a, List *rtable)
{
	ListCell   *lc;

	foreach(lc, rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && get_rel_persistence(rte->relid) == RELPERSISTENCE_TEMP)
			wms_no_temporary_table(a, get_rel_name(rte->relid), rte);
	}
}

static bool
static_walker(Node *node, void *arg)
{
	Analysis   *a = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		int			outside = wms_an_enter(a, query);
		Bitmapset  *used = wms_an_used_rtes(query);
		int			i = -1;

		check_not_temporary(a, query->rtable);
		while ((i = bms_next_member(used, i)) >= 0)
		{
			RangeTblEntry *rte = rt_fetch(i, query->rtable);

			check_sample(a, rte);
			if (rte->rtekind != RTE_RELATION || list_member_oid(a->static_told, rte->relid))
				continue;
			a->static_told = lappend_oid(a->static_told, rte->relid);
			a->static_places = lappend_int(a->static_places, wms_an_place(a, rte));
			if (wms_tables_overlap(rte->relid, a->options->result))
				wms_no_own_result(a, rte->relid, rte);
			wms_an_notice(a, "\"%s\" is read as a static table", get_rel_name(rte->relid));
		}
		query_tree_walker(query, static_walker, a, 0);
		a->place = outside;
		return false;
	}
	return expression_tree_walker(node, static_walker, a);
}

/* Tells of every table that is read but is no source; below: also in the queries below watermarks. */
void
wms_an_static_tables(Analysis *a, Query *query)
{
	ListCell   *lc;

	static_walker((Node *) query, a);
	foreach(lc, a->sources)
	{
		WmsSourcePlan *source = lfirst(lc);

		if (source->below)
			static_walker((Node *) source->below, a);
	}
}
