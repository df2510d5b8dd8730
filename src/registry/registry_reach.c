/*
 * registry_reach.c
 *	  What a definition reads, through views and through the results of other streams.
 *
 * A stream that read what it writes, over however many others, would feed itself for ever.  The graph
 * is small and is walked whole, each relation once.  What is written into a partition is read in the tables above it.
 *
 * What a stream writes, into its result or its late table, must be decoded only if some definition reads it: as that table, or as the
 * partitioned table that it is a part of.
 *
 * A view that somebody is dropping or replacing is locked until that transaction ends.  The worker waits for nobody, so it asks for what can be
 * known now.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

/* Relations found, and how many of them have been looked into. */
typedef struct Reach
{
	List	   *relids;
	int			done;
	List	   *outputs;		/* of all streams */
	bool		no_wait;		/* for a lock */
	bool		missed;			/* a view was locked by somebody else */
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

/*
 * A view that is just being dropped reads nothing.  Its lock is let go at once: whoever waits for the stream then must not stand in the way of
 * somebody who drops it, for whom the stream waits.
 */
static void
look_into_view(Reach *reach, Oid relid)
{
	Relation	view;

	if (!reach->no_wait)
		LockRelationOid(relid, AccessShareLock);
	else if (!ConditionalLockRelationOid(relid, AccessShareLock))
	{
		reach->missed = true;
		return;
	}
	view = try_relation_open(relid, NoLock);
	if (view && view->rd_rel->relkind == RELKIND_VIEW)
		(void) find_relations((Node *) get_view_query(view), reach);
	if (view)
		relation_close(view, NoLock);
	UnlockRelationOid(relid, AccessShareLock);
}

/* ---------------------------------------------------------------- partitions */

/* The table and those that it is a partition of. */
static List *
lineage(Oid relid)
{
	List	   *relids = list_make1_oid(relid);

	if (OidIsValid(relid) && get_rel_relispartition(relid))
		relids = list_concat(relids, get_partition_ancestors(relid));
	return relids;
}

bool
wms_is_part_of(Oid relid, const List *relids)
{
	ListCell   *lc;

	if (!OidIsValid(relid) || relids == NIL)
		return false;
	if (list_member_oid(relids, relid))
		return true;
	if (!get_rel_relispartition(relid))
		return false;
	foreach(lc, get_partition_ancestors(relid))
	{
		if (list_member_oid(relids, lfirst_oid(lc)))
			return true;
	}
	return false;
}

bool
wms_tables_overlap(Oid a, Oid b)
{
	return wms_is_part_of(a, list_make1_oid(b)) || wms_is_part_of(b, list_make1_oid(a));
}

List *
wms_partitions(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? list_delete_oid(find_all_inheritors(relid, NoLock, NULL), relid) : NIL;
}

char *
wms_foreign_part(const List *partitions)
{
	ListCell   *lc;

	foreach(lc, partitions)
	{
		Oid			part = lfirst_oid(lc);
		char		kind = get_rel_relkind(part);	/* none, if it has been dropped meanwhile */

		if (kind == RELKIND_FOREIGN_TABLE)
			return psprintf("a table with a foreign partition (\"%s\")", get_rel_name(part));
		if (kind == RELKIND_RELATION && get_rel_persistence(part) != RELPERSISTENCE_PERMANENT)
			return psprintf("a table with an unlogged partition (\"%s\")", get_rel_name(part));
	}
	return NULL;
}

/* ---------------------------------------------------------------- through streams */

/* Those of the outputs that go into the table, a partition of it, or one that it is a partition of. */
static List *
outputs_into(Oid relid, List *outputs)
{
	List	   *above = lineage(relid);
	List	   *whole = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? list_make1_oid(relid) : NIL;
	List	   *into = NIL;
	ListCell   *lc;

	foreach(lc, outputs)
	{
		WmsOutput  *output = lfirst(lc);

		if (list_member_oid(above, output->stream) || list_member_oid(above, output->late_table) ||
			wms_is_part_of(output->stream, whole) || wms_is_part_of(output->late_table, whole))
			into = lappend(into, output);
	}
	return into;
}

static void
look_into(Reach *reach, Oid relid)
{
	ListCell   *lc;

	if (get_rel_relkind(relid) == RELKIND_VIEW)
	{
		look_into_view(reach, relid);
		return;
	}
	foreach(lc, outputs_into(relid, reach->outputs))
	{
		const WmsOutput *output = lfirst(lc);

		if (get_rel_relkind(output->view) == RELKIND_VIEW)
			reach->relids = list_append_unique_oid(reach->relids, output->view);
	}
}

static void
follow_views(Reach *reach, Oid view)
{
	look_into_view(reach, view);
	while (reach->done < list_length(reach->relids))
	{
		Oid			next = list_nth_oid(reach->relids, reach->done++);

		if (get_rel_relkind(next) == RELKIND_VIEW)
			look_into_view(reach, next);
	}
}

List *
wms_definition_reads(Oid view)
{
	Reach		reach = {NIL};

	follow_views(&reach, view);
	return reach.relids;
}

bool
wms_definition_reads_now(Oid view, List **relids)
{
	Reach		reach = {NIL,.no_wait = true};

	follow_views(&reach, view);
	*relids = reach.relids;
	return !reach.missed;
}

bool
wms_stream_changes_rows(const WmsStreamDef *def)
{
	return def->output_mode != WMS_APPEND || def->lateness_us > 0 || def->refined;
}

bool
wms_stream_writes(const WmsStreamDef *def, const List *relids)
{
	return wms_is_part_of(def->stream, relids) || wms_is_part_of(def->late_table, relids);
}

Oid
wms_changing_result(Oid relid)
{
	List	   *whole = list_make1_oid(relid);
	ListCell   *lc;

	foreach(lc, wms_registry_outputs())
	{
		Oid			stream = ((const WmsOutput *) lfirst(lc))->stream;
		WmsStreamDef *def = wms_is_part_of(stream, whole) ? wms_registry_stream(stream) : NULL;

		if (def && wms_stream_changes_rows(def))
			return stream;
	}
	return InvalidOid;
}

List *
wms_streams_into(const List *relids)
{
	List	   *outputs = wms_registry_outputs();
	List	   *streams = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, relids)
		foreach(lc2, outputs_into(lfirst_oid(lc), outputs))
			streams = list_append_unique_oid(streams, ((const WmsOutput *) lfirst(lc2))->stream);
	list_sort(streams, list_oid_cmp);
	return streams;
}

static bool
reaches(Reach *reach, Oid relid)
{
	reach->outputs = wms_registry_outputs();
	while (reach->done < list_length(reach->relids))
	{
		Oid			next = list_nth_oid(reach->relids, reach->done++);

		if (wms_tables_overlap(next, relid))
			return true;
		look_into(reach, next);
	}
	return false;
}

bool
wms_definition_reaches(Oid view, Oid relid)
{
	Reach		reach = {NIL};

	look_into_view(&reach, view);
	return reaches(&reach, relid);
}

bool
wms_relation_reaches(Oid from, Oid relid)
{
	Reach		reach = {list_make1_oid(from)};

	return reaches(&reach, relid);
}
