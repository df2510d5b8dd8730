/*
 * registry_reach.c
 *	  What a definition reads, through views and through the results of other streams.
 *
 * A stream that read what it writes, over however many others, would feed itself for ever.  The graph
 * is small and is walked whole, each relation once.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteHandler.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "registry/registry.h"

/* Relations found, and how many of them have been looked into. */
typedef struct Reach
{
	List	   *relids;
	int			done;
} Reach;

static bool
find_relations(Node *node, void *arg)
{
	Reach	   *reach = arg;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_RELATION)
			reach->relids = list_append_unique_oid(reach->relids, rte->relid);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, find_relations, arg, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, find_relations, arg);
}

static void
look_into_view(Reach *reach, Oid relid)
{
	Relation	view = table_open(relid, AccessShareLock);

	(void) find_relations((Node *) get_view_query(view), reach);
	table_close(view, NoLock);
}

static void
look_into(Reach *reach, Oid relid)
{
	WmsStreamDef *def;

	if (get_rel_relkind(relid) == RELKIND_VIEW)
	{
		look_into_view(reach, relid);
		return;
	}
	def = wms_registry_stream(relid);
	if (def && get_rel_relkind(def->view) == RELKIND_VIEW)
		reach->relids = list_append_unique_oid(reach->relids, def->view);
}

bool
wms_definition_reaches(Oid view, Oid relid)
{
	Reach		reach = {NIL, 0};

	look_into_view(&reach, view);
	while (reach.done < list_length(reach.relids))
	{
		Oid			next = list_nth_oid(reach.relids, reach.done++);

		if (next == relid)
			return true;
		look_into(&reach, next);
	}
	return false;
}
