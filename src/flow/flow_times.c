/*
 * flow_times.c
 *	  The event times of rows that are not fed yet: what existing rows are sorted by.
 *
 * A row is given the way to where watermark() stands, alone, and nothing else happens: no counter moves, no row is put aside.  One that
 * does not get there, or has no usable time there, has WMS_TIME_MIN.  A table that is several sources gives its rows
 * several times; the least counts.
 *
 * Runs as the stream's owner, between batches.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

typedef struct Times
{
	FlowSource *source;
	WmsTime    *times;
} Times;

static void
note_time(Times *into, int64 number, TupleTableSlot *slot)
{
	WmsFlow    *flow = into->source->flow;
	WmsTime    *time = &into->times[number];
	bool		isnull;
	Datum		value;

	if (into->source->time == NULL)
		return;
	flow->row->ecxt_scantuple = slot;
	value = ExecEvalExprSwitchContext(into->source->time, flow->row, &isnull);
	if (isnull || !WmsTimeIsFinite(DatumGetTimestampTz(value)))
		return;
	*time = *time == WMS_TIME_MIN ? DatumGetTimestampTz(value) : Min(*time, DatumGetTimestampTz(value));
}

static void
note_below(TupleTableSlot *from, void *arg)
{
	Times	   *into = arg;
	FlowSource *source = into->source;
	int64		number = wms_flow_take_below(source, from);

	note_time(into, number, source->in_slot);
	ResetExprContext(source->flow->row);
}

/* The rows go through what stands below watermark(). */
static void
times_below(Times *into, HeapTuple *rows, int n)
{
	FlowSource *source = into->source;
	int			natts = source->table_desc->natts;
	Datum	   *values = palloc(sizeof(Datum) * (natts + 1));
	bool	   *isnull = palloc(sizeof(bool) * (natts + 1));
	DestReceiver *dest = wms_dest_call(note_below, into);

	wms_rowset_begin(source->raw);
	for (int i = 0; i < n; i++)
	{
		heap_deform_tuple(rows[i], source->table_desc, values, isnull);
		values[natts] = Int64GetDatum(i);
		isnull[natts] = false;
		tuplestore_putvalues(source->raw->rows, source->raw->desc, values, isnull);
	}
	wms_query_run(source->below, dest);
	wms_rowset_end(source->raw);
	pfree(dest);
	pfree(values);
	pfree(isnull);
}

static void
times_direct(Times *into, HeapTuple *rows, int n)
{
	FlowSource *source = into->source;
	TupleTableSlot *slot = source->in_slot;

	for (int i = 0; i < n; i++)
	{
		ExecClearTuple(slot);
		heap_deform_tuple(rows[i], source->table_desc, slot->tts_values, slot->tts_isnull);
		ExecStoreVirtualTuple(slot);
		note_time(into, i, slot);
		ResetExprContext(source->flow->row);
	}
	ExecClearTuple(slot);
}

void
wms_flow_lock_sources(WmsFlow *flow)
{
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		LockRelationOid(flow->plan->sources[i].relid, AccessShareLock);
		if (flow->sources[i].below)
			wms_query_lock(flow->sources[i].below);
	}
}

void
wms_flow_times(WmsFlow *flow, Oid relid, HeapTuple *rows, int n, WmsTime *times)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "wmstream event times", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);

	for (int i = 0; i < n; i++)
		times[i] = WMS_TIME_MIN;
	for (int i = 0; i < flow->plan->nsources; i++)
	{
		Times		into = {&flow->sources[i], times};

		if (into.source->plan->relid != relid)
			continue;
		if (into.source->below)
			times_below(&into, rows, n);
		else
			times_direct(&into, rows, n);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
}
