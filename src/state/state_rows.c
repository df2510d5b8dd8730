/*
 * state_rows.c
 *	  The worker's account of the log's rows: how large each is, and how many of its
 *	  records are the newest of their kind.
 *
 * Rows stand in an array by seq, without gaps.  It describes the published state: it changes when a
 * batch has committed, and while loading.  Changes after COMMIT must not fail, so prepare reserves room.
 */
#include "postgres.h"

#include "state/state_internal.h"
#include "utils/memutils.h"

void
wms_rows_reserve(WmsStore *store, int64 more)
{
	WmsLogRows *log = &store->log;

	if (log->offset + log->count + more <= log->room)
		return;
	if (log->offset > log->count + more)
		memmove(log->rows, log->rows + log->offset, log->count * sizeof(WmsLogRow));
	else
	{
		int64		room = Max(log->room * 2, log->count + more);
		WmsLogRow  *rows = MemoryContextAllocHuge(store->context, room * sizeof(WmsLogRow));

		if (log->count > 0)
			memcpy(rows, log->rows + log->offset, log->count * sizeof(WmsLogRow));
		if (log->rows)
			pfree(log->rows);
		log->rows = rows;
		log->room = room;
	}
	log->offset = 0;
}

/* Room was reserved. */
void
wms_rows_append(WmsStore *store, const WmsLogRow *row)
{
	*wms_row_at(store, store->log.count++) = *row;
	store->log_bytes += row->bytes;
	store->log_cost += wms_row_cost(row);
	store->live_bytes += row->live * row->average;
}

static void
forget_row(WmsStore *store, const WmsLogRow *row)
{
	store->log_bytes -= row->bytes;
	store->log_cost -= wms_row_cost(row);
	store->live_bytes -= row->live * row->average;
}

/* The newest row was written over. */
void
wms_rows_drop_newest(WmsStore *store)
{
	store->log.count--;
	forget_row(store, wms_row_at(store, store->log.count));
}

/* The oldest rows are gone. */
void
wms_rows_drop(WmsStore *store, int64 count)
{
	int64		i;

	for (i = 0; i < count; i++)
		forget_row(store, wms_row_at(store, i));
	store->log.offset += count;
	store->log.first += count;
	store->log.count -= count;
}

void
wms_rows_live(WmsStore *store, int64 seq, int change)
{
	WmsLogRow  *row;

	if (seq < store->log.first || seq >= store->log.first + store->log.count)
		return;
	row = wms_row_at(store, seq - store->log.first);
	row->live += change;
	store->live_bytes += change * (int64) row->average;
}

/* The rows that hold a stored entry, and if segments its kept rows, hold one live record less each. */
void
wms_log_unlog(WmsStore *store, const WmsStored *stored, bool segments)
{
	WmsMore    *more;
	uint32		i;

	wms_rows_live(store, wms_stored_seq(stored), -1);
	if (!segments || !DsaPointerIsValid(stored->more))
		return;
	more = wms_area_address(store, stored->more);
	for (i = 0; i < more->nsegments; i++)
	{
		WmsSegment *segment = wms_more_segment(store, more, i);

		if (segment)
			wms_rows_live(store, segment->seq, -1);
	}
}
