/*
 * registry_tick.c
 *	  wmstream.tick: snapshots that the worker takes while streams of queues stand still.
 *
 * A tick says which transactions had ended at a moment.  A stream that goes on later reads its queues from one tick to the next, so
 * that what it missed comes in the order in which it was committed, second by second, and not all at once.
 * Only the worker reads and writes them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "utils/fmgroids.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

#define TICK_TABLE "tick"

/* Columns of wmstream.tick. */
enum
{
	COLUMN_TAKEN_AT = 1,
	COLUMN_LSN,
	COLUMN_SEEN
};

#define NCOLUMNS COLUMN_SEEN

static int
by_order(const ListCell *a, const ListCell *b)
{
	const WmsTick *x = lfirst(a);
	const WmsTick *y = lfirst(b);

	return x->seen->xmax != y->seen->xmax ? (x->seen->xmax < y->seen->xmax ? -1 : 1) :
		(x->taken_at < y->taken_at ? -1 : x->taken_at > y->taken_at);
}

List *
wms_ticks(void)
{
	Relation	rel = wms_registry_open(TICK_TABLE, AccessShareLock);
	List	   *ticks = NIL;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!rel)
		return NIL;
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		WmsTick    *tick = palloc(sizeof(WmsTick));
		Datum		values[NCOLUMNS];
		bool		isnull[NCOLUMNS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, isnull);
		tick->taken_at = DatumGetTimestampTz(values[COLUMN_TAKEN_AT - 1]);
		tick->lsn = DatumGetLSN(values[COLUMN_LSN - 1]);
		tick->seen = wms_seen_from_datum(values[COLUMN_SEEN - 1]);
		ticks = lappend(ticks, tick);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_sort(ticks, by_order);
	return ticks;
}

void
wms_tick_insert(const WmsTick *tick)
{
	Relation	rel = wms_registry_open(TICK_TABLE, RowExclusiveLock);
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {false};

	if (!rel)
		return;
	values[COLUMN_TAKEN_AT - 1] = TimestampTzGetDatum(tick->taken_at);
	values[COLUMN_LSN - 1] = LSNGetDatum(tick->lsn);
	values[COLUMN_SEEN - 1] = wms_seen_to_datum(tick->seen);
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, isnull));
	table_close(rel, NoLock);
}

void
wms_ticks_delete(TimestampTz upto)
{
	Relation	rel = wms_registry_open(TICK_TABLE, RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!rel)
		return;
	ScanKeyInit(&key, COLUMN_TAKEN_AT, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(upto));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
}
