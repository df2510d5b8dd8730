/*
 * analyze_fingerprint.c
 *	  A number that changes when state written by one version of a plan can no longer be read by
 *	  another.
 *
 * State depends on the operators: their kinds, keys, windows and aggregates; and on the definition as it was written, so that
 * a view that was put in its place by hand is noticed.  It does not depend on names, on positions in the query text, on
 * delays, nor on what views that the definition reads stand for: these may be replaced.  What is hashed is the text form of the trees with all that taken out; OIDs are stable within a database,
 * and the text form within a major version of the server: the state carries both beside this number.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "analyze/analyze_internal.h"

static bool
strip_walker(Node *node, void *arg)
{
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (IsA(node, TargetEntry))
		((TargetEntry *) node)->resname = NULL;
	else if (IsA(node, JoinExpr))
		((JoinExpr *) node)->alias = NULL;
	else if (IsA(node, RowExpr))
	{
		((RowExpr *) node)->colnames = NIL;
		((RowExpr *) node)->row_format = COERCE_IMPLICIT_CAST;
	}
	else if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		WmsClearPermInfos(query);
		foreach(lc, query->rtable)
		{
			RangeTblEntry *rte = lfirst(lc);

			rte->alias = NULL;
			rte->eref = makeAlias("", NIL);
			WmsClearPerms(rte);
		}
		return query_tree_walker(query, strip_walker, NULL, 0);
	}
	return expression_tree_walker(node, strip_walker, NULL);
}

/* Cuts ":location 17" and its like out of the text form of a tree. */
static void
cut_positions(char *text)
{
	static const char *const fields[] = {":location ", ":stmt_location ", ":stmt_len "};
	char	   *to = text;

	while (*text)
	{
		bool		cut = false;

		for (int i = 0; i < (int) lengthof(fields); i++)
		{
			if (strncmp(text, fields[i], strlen(fields[i])) == 0)
			{
				text += strlen(fields[i]);
				text += strspn(text, "-0123456789");
				cut = true;
			}
		}
		if (!cut)
			*to++ = *text++;
	}
	*to = '\0';
}

static uint64
combined(uint64 hash, const void *data, int len)
{
	return hash_combine64(hash, hash_bytes_extended(data, len, 0));
}

static uint64
combined_int(uint64 hash, int64 value)
{
	return combined(hash, &value, sizeof(value));
}

static uint64
combined_tree(uint64 hash, const void *tree)
{
	Node	   *copy = copyObject((Node *) tree);
	char	   *text;

	if (copy == NULL)
		return combined_int(hash, 0);
	/* the walker visits what is below a node, and a list's members */
	strip_walker((Node *) list_make1(copy), NULL);
	text = nodeToString(copy);
	cut_positions(text);
	return combined(hash, text, strlen(text));
}

static uint64
combined_desc(uint64 hash, TupleDesc desc)
{
	if (desc == NULL)
		return combined_int(hash, 0);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		hash = combined_int(hash, att->attisdropped ? 0 : att->atttypid);
		hash = combined_int(hash, att->atttypmod);
		hash = combined_int(hash, att->attcollation);
	}
	return hash;
}

static uint64
combined_source(uint64 hash, const WmsSourcePlan *source)
{
	hash = combined_int(hash, source->relid);
	return combined_int(hash, source->time_type);
}

static uint64
combined_join(uint64 hash, const WmsJoinPlan *join)
{
	hash = combined_int(hash, join->type);
	hash = combined_int(hash, join->bound);
	hash = combined_int(hash, join->has_min);
	hash = combined_int(hash, join->has_max);
	hash = combined_int(hash, join->min_us);
	hash = combined_int(hash, join->max_us);
	for (int s = 0; s < 2; s++)
	{
		const WmsJoinSide *side = &join->side[s];

		hash = combined_desc(hash, side->input_desc);
		hash = combined_int(hash, side->out_count);
		hash = combined_int(hash, side->time_column);
		hash = combined_int(hash, side->event_column);
		hash = combined_int(hash, side->bound_column);
		hash = combined_int(hash, side->own_column);
	}
	return hash;
}

/* An aggregate can be replaced under its OID. */
static uint64
combined_aggregate(uint64 hash, Oid aggfnoid)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggfnoid));
	Form_pg_aggregate form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	hash = combined_int(hash, form->aggtranstype);
	hash = combined_int(hash, form->aggtransfn);
	hash = combined_int(hash, form->aggcombinefn);
	hash = combined_int(hash, form->aggserialfn);
	hash = combined_int(hash, form->aggdeserialfn);
	ReleaseSysCache(tuple);
	return hash;
}

/* Keys that were once hashed by their bytes where the server said so, and are not any more. */
static uint64
combined_images(uint64 hash, const WmsOpPlan *op)
{
	for (int i = 0; i < op->nkeys; i++)
		if (WmsImagesDiffer(getBaseType(TupleDescAttr(op->input_desc, i)->atttypid)))
			hash = combined_int(hash, i);
	return hash;
}

static uint64
combined_op(uint64 hash, const WmsOpPlan *op)
{
	hash = combined_int(hash, op->kind);
	hash = combined_int(hash, op->nkeys);
	hash = combined_int(hash, op->window_key);
	hash = combined_int(hash, op->window.kind);
	hash = combined_int(hash, op->window.size);
	hash = combined_int(hash, op->window.slide);
	hash = combined_int(hash, op->window.offset);
	hash = combined_int(hash, op->time_column);
	hash = combined_int(hash, op->gap_column);
	hash = combined_int(hash, op->expires);
	hash = combined_int(hash, op->lag_us);
	for (int i = 0; i < op->nkeys; i++)
		hash = combined_int(hash, op->key_eq[i]);
	for (int i = 0; i < op->naggs; i++)
	{
		hash = combined_int(hash, op->aggs[i].kept);
		hash = combined_tree(hash, op->aggs[i].aggref);
		hash = combined_aggregate(hash, op->aggs[i].aggref->aggfnoid);
	}
	hash = combined_desc(hash, op->input_desc);
	hash = combined_desc(hash, op->out_desc);
	hash = combined_images(hash, op);
	if (op->retracts)
		hash = combined_int(hash, 1);
	return op->join ? combined_join(hash, op->join) : hash;
}

/* Of the definition as it was written: views that it reads are in it by their OIDs. */
uint64
wms_an_definition_hash(const Query *query)
{
	return combined_tree(0, query);
}

uint64
wms_an_fingerprint(const WmsStreamPlan *plan, uint64 definition)
{
	uint64		hash = combined_int(definition, plan->processing_time);

	hash = combined_int(hash, plan->mode);
	for (int i = 0; i < plan->nsources; i++)
		hash = combined_source(hash, &plan->sources[i]);
	for (int i = 0; i < plan->nops; i++)
		hash = combined_op(hash, &plan->ops[i]);
	return hash;
}
