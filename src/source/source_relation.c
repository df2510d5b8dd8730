/*
 * source_relation.c
 *	  Which relations are wanted, as whose rows, in which shape.
 *
 * For every relation that a change is decoded of, an entry says which wanted tables its rows belong to (*targets*): itself, or tables
 * that it is a partition of.  Entries are built inside decoding callbacks, under the historic snapshot of the change, so they describe
 * the relation as it was when the row was written.  A relation cache invalidation, real or replayed by decoding, makes them invalid;
 * they are built again at the next change.  Building may end in an ERROR at any catalog access (the transaction that is decoded may
 * turn out to have aborted; core swallows that error and goes on), so an entry is replaced only when its successor is complete.
 *
 * *Shapes* are row layouts.  They live as long as the process, because batches and flows refer to them: one per table and layout, some
 * kB for each DDL on a wanted table.
 *
 * Two views of the catalogs.  Decoding looks at catalogs as of a position in WAL, the worker's other transactions look at them as of
 * now, and both share this process's relation cache.  Core keeps it right as long as no DDL lies between the two: decoding replays the
 * invalidations of every transaction that it passes.  So we collect the relations that we hear invalidations of (*news*), each with an
 * LSN that is certainly behind the DDL, and while the reading position is before it their cache entries are dropped whenever we go from
 * one view to the other (all entries, while we catch up after a start and do not know).  Other caches do not matter: decoding fills and
 * reads only the relation cache, and what it looks up for that in others does not change.
 *
 * Only one WmsWal is open in a process, because only one slot can be held; the invalidation callback, which core cannot take back,
 * finds it through a static pointer.
 */
#include "postgres.h"

#include "access/tupdesc_details.h"
#include "access/xlog.h"
#include "catalog/partition.h"
#include "common/hashfn.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/relcache.h"

#include "source/source_internal.h"

/* ---------------------------------------------------------------- shapes */

typedef struct ShapeEntry
{
	Oid			relid;			/* hash key */
	List	   *shapes;			/* List of WmsRowShape *, newest first */
} ShapeEntry;

static MemoryContext shape_context = NULL;
static HTAB *shapes = NULL;

/* The value that rows written before the column was added have; NULL: none. */
static AttrMissing *
missing_value(TupleDesc desc, int i)
{
	if (!TupleDescAttr(desc, i)->atthasmissing || desc->constr == NULL || desc->constr->missing == NULL)
		return NULL;
	return desc->constr->missing[i].am_present ? &desc->constr->missing[i] : NULL;
}

static bool
same_missing(TupleDesc a, TupleDesc b, int i)
{
	Form_pg_attribute att = TupleDescAttr(a, i);
	AttrMissing *ma = missing_value(a, i);
	AttrMissing *mb = missing_value(b, i);

	if (ma == NULL || mb == NULL)
		return ma == mb;
	return datumIsEqual(ma->am_value, mb->am_value, att->attbyval, att->attlen);
}

/* Do rows read alike by both, and do their columns have the same names? */
static bool
same_layout(TupleDesc a, TupleDesc b)
{
	if (a->natts != b->natts)
		return false;
	for (int i = 0; i < a->natts; i++)
	{
		Form_pg_attribute x = TupleDescAttr(a, i);
		Form_pg_attribute y = TupleDescAttr(b, i);

		if (x->attisdropped != y->attisdropped || x->attlen != y->attlen || x->attalign != y->attalign ||
			x->attbyval != y->attbyval)
			return false;
		if (x->attisdropped)
			continue;
		if (x->atttypid != y->atttypid || x->atttypmod != y->atttypmod ||
			strcmp(NameStr(x->attname), NameStr(y->attname)) != 0 || !same_missing(a, b, i))
			return false;
	}
	return true;
}

static void
shapes_begin(void)
{
	HASHCTL		ctl = {0};

	if (shapes)
		return;
	shape_context = AllocSetContextCreate(wms_worker_context, "wmstream row shapes", ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(ShapeEntry);
	ctl.hcxt = shape_context;
	shapes = hash_create("wmstream row shapes", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * The shape of a table with that layout, made if it is new.  A partitioned table holds no rows itself: its own missing values must not
 * be applied to rows of a partition, so it is copied without them.
 */
const WmsRowShape *
wms_shape_get(Oid relid, TupleDesc desc, bool partitioned)
{
	ShapeEntry *entry;
	WmsRowShape *shape;
	MemoryContext oldcontext;
	bool		found;
	ListCell   *lc;

	shapes_begin();
	if (partitioned)
		desc = CreateTupleDescCopy(desc);
	entry = hash_search(shapes, &relid, HASH_ENTER, &found);
	if (!found)
		entry->shapes = NIL;
	foreach(lc, entry->shapes)
	{
		shape = lfirst(lc);
		if (same_layout(shape->desc, desc))
			return shape;
	}

	oldcontext = MemoryContextSwitchTo(shape_context);
	shape = palloc(sizeof(WmsRowShape));
	shape->relid = relid;
	shape->desc = CreateTupleDescCopyConstr(desc);
	entry->shapes = lcons(shape, entry->shapes);
	MemoryContextSwitchTo(oldcontext);
	return shape;
}

/* ---------------------------------------------------------------- the two views of the catalogs */

#define MAX_NEWS 256

typedef struct News
{
	Oid			relid;
	XLogRecPtr	before;			/* the change of catalogs lies before this position */
} News;

static WmsWal *active_wal = NULL;
static News news[MAX_NEWS];
static int	nnews = 0;
static XLogRecPtr news_of_all = InvalidXLogRecPtr;	/* any relation may have changed before this position */
static uint64 ninvalidations = 0;	/* counts up, so that building an entry notices */

void
wms_relations_mistrust_caches(void)
{
	news_of_all = GetXLogInsertRecPtr();
	nnews = 0;
}

static void
add_news(Oid relid)
{
	XLogRecPtr	before;

	if (!OidIsValid(relid))
	{
		wms_relations_mistrust_caches();
		return;
	}
	before = GetXLogInsertRecPtr();
	for (int i = 0; i < nnews; i++)
	{
		if (news[i].relid == relid)
		{
			news[i].before = before;
			return;
		}
	}
	if (nnews == MAX_NEWS)
	{
		wms_relations_mistrust_caches();
		return;
	}
	news[nnews].relid = relid;
	news[nnews].before = before;
	nnews++;
}

static void
invalidate_entries(WmsWal *wal)
{
	HASH_SEQ_STATUS status;
	WmsSourceRel *rel;

	hash_seq_init(&status, wal->relations);
	while ((rel = hash_seq_search(&status)) != NULL)
		rel->valid = false;
	wal->last_rel = NULL;
}

/* A table above partitions changed: their entries cannot be found by its OID. */
static void
invalidate_below(WmsWal *wal, Oid relid)
{
	HASH_SEQ_STATUS status;
	WmsSourceRel *rel;

	hash_seq_init(&status, wal->relations);
	while ((rel = hash_seq_search(&status)) != NULL)
		for (int i = 1; i < rel->nlineage; i++)
			if (rel->lineage[i] == relid)
				rel->valid = false;
}

/* No allocation, no catalog access, no error in here: core calls it at all kinds of moments. */
static void
invalidated(Datum arg, Oid relid)
{
	WmsSourceRel *rel;

	if (active_wal == NULL)
		return;
	add_news(relid);
	ninvalidations++;
	active_wal->last_rel = NULL;
	if (!OidIsValid(relid))
	{
		invalidate_entries(active_wal);
		return;
	}
	rel = hash_search(active_wal->relations, &relid, HASH_FIND, NULL);
	if (rel)
		rel->valid = false;
	if (active_wal->has_partitions)
		invalidate_below(active_wal, relid);
}

/*
 * Core's relation cache and our entries only, and without telling anybody: nothing has changed, so plans must not be made again for it.
 */
void
wms_relations_drop_caches(WmsWal *wal)
{
	RelationCacheInvalidate(false);
	invalidate_entries(wal);
}

void
wms_relations_part_caches(WmsWal *wal)
{
	int			kept = 0;

	if (wal->read_upto < news_of_all)
		wms_relations_drop_caches(wal);
	for (int i = 0; i < nnews; i++)
	{
		if (wal->read_upto >= news[i].before)
			continue;
		RelationCacheInvalidateEntry(news[i].relid);
		news[kept++] = news[i];
	}
	nnews = kept;
}

/* ---------------------------------------------------------------- entries */

static void
make_table(WmsWal *wal)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(WmsSourceRel);
	ctl.hcxt = wal->context;
	wal->relations = hash_create("wmstream relations", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	wal->last_rel = NULL;
}

void
wms_relations_begin(WmsWal *wal)
{
	static bool registered = false;

	make_table(wal);
	if (!registered)
	{
		CacheRegisterRelcacheCallback(invalidated, (Datum) 0);
		registered = true;
	}
	active_wal = wal;
	wms_relations_mistrust_caches();
}

void
wms_relations_end(WmsWal *wal)
{
	active_wal = NULL;
	nnews = 0;
}

static void
set_lineage(WmsWal *wal, WmsSourceRel *rel, Relation relation)
{
	List	   *above = NIL;
	ListCell   *lc;

	if (relation->rd_rel->relispartition)
		above = get_partition_ancestors(RelationGetRelid(relation));
	rel->lineage = palloc(sizeof(Oid) * (1 + list_length(above)));
	rel->lineage[0] = RelationGetRelid(relation);
	rel->nlineage = 1;
	foreach(lc, above)
		rel->lineage[rel->nlineage++] = lfirst_oid(lc);
	wal->has_partitions = wal->has_partitions || above != NIL;
}

/* The table above a partition, as it was when the row was written. */
static void
set_target_above(WmsSourceRel *rel, WmsTarget *target, Oid above)
{
	Relation	relation = RelationIdGetRelation(above);

	if (!RelationIsValid(relation))
		elog(ERROR, "could not open relation with OID %u", above);
	target->shape = wms_shape_get(above, RelationGetDescr(relation), true);
	RelationClose(relation);
	target->map = convert_tuples_by_name(rel->desc, target->shape->desc);
}

static void
set_targets(WmsWal *wal, WmsSourceRel *rel, Relation relation)
{
	rel->targets = palloc0(sizeof(WmsTarget) * rel->nlineage);
	for (int i = 0; i < rel->nlineage; i++)
	{
		WmsTarget  *target;

		if (!wal->wanted(rel->lineage[i], wal->arg))
			continue;
		if (rel->desc == NULL)
			rel->desc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
		target = &rel->targets[rel->ntargets++];
		if (i == 0)
			target->shape = wms_shape_get(rel->relid, rel->desc, relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE);
		else
			set_target_above(rel, target, rel->lineage[i]);
	}
}

/* There may be very many relations that nobody wants: they need no memory context of their own. */
static void
keep_lineage_only(WmsWal *wal, WmsSourceRel *fresh)
{
	Size		size = sizeof(Oid) * fresh->nlineage;
	Oid		   *lineage = MemoryContextAlloc(wal->context, size);

	memcpy(lineage, fresh->lineage, size);
	fresh->lineage = lineage;
	fresh->targets = NULL;
	MemoryContextDelete(fresh->context);
	fresh->context = NULL;
}

static void
forget_entry(WmsSourceRel *rel)
{
	if (rel->context)
		MemoryContextDelete(rel->context);
	else if (rel->lineage)
		pfree(rel->lineage);
}

/* Builds the entry again; it is untouched until all is there. */
static void
build(WmsWal *wal, WmsSourceRel *rel, Relation relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "wmstream relation", ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(context);
	WmsSourceRel fresh = {0};
	uint64		before = ninvalidations;

	fresh.relid = rel->relid;
	fresh.passed_over = rel->passed_over;
	fresh.context = context;
	fresh.registry = (rel->relid == wal->registry);
	fresh.identity_full = (relation->rd_rel->relreplident == REPLICA_IDENTITY_FULL);
	set_lineage(wal, &fresh, relation);
	if (!fresh.registry)
		set_targets(wal, &fresh, relation);
	/* If news came meanwhile, it serves for this change and is built again for the next. */
	fresh.valid = (before == ninvalidations);
	MemoryContextSwitchTo(oldcontext);

	if (fresh.ntargets == 0)
		keep_lineage_only(wal, &fresh);
	else
		MemoryContextSetParent(context, wal->context);
	forget_entry(rel);
	*rel = fresh;
}

WmsSourceRel *
wms_relations_get(WmsWal *wal, Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	WmsSourceRel *rel;
	bool		found;

	if (wal->last_rel && wal->last_rel->relid == relid)
		return wal->last_rel;

	rel = hash_search(wal->relations, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(rel, 0, sizeof(WmsSourceRel));
		rel->relid = relid;
	}
	if (!rel->valid)
		build(wal, rel, relation);
	wal->last_rel = rel->valid ? rel : NULL;
	return rel;
}

/* Is there a table among those a relation's rows belong to that is wanted now and was not? */
static bool
wanted_anew(WmsWal *wal, const WmsSourceRel *rel)
{
	for (int i = 0; i < rel->nlineage; i++)
	{
		bool		had = false;

		for (int t = 0; t < rel->ntargets; t++)
			had = had || rel->targets[t].shape->relid == rel->lineage[i];
		if (!had && wal->wanted(rel->lineage[i], wal->arg))
			return true;
	}
	return false;
}

bool
wms_relations_reset(WmsWal *wal)
{
	HASH_SEQ_STATUS status;
	WmsSourceRel *rel;
	bool		missed = false;

	hash_seq_init(&status, wal->relations);
	while ((rel = hash_seq_search(&status)) != NULL)
		if (rel->passed_over && wanted_anew(wal, rel))
			missed = true;
	invalidate_entries(wal);
	return missed;
}

void
wms_relations_none_open(WmsWal *wal)
{
	HASH_SEQ_STATUS status;
	WmsSourceRel *rel;

	hash_seq_init(&status, wal->relations);
	while ((rel = hash_seq_search(&status)) != NULL)
		rel->passed_over = false;
}
