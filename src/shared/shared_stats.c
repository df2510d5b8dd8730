/*
 * shared_stats.c
 *	  Slots of the streams, and their figures.
 *
 * A stream's slot is made by its worker and outlives that process: the next
 * worker finds the same slot, and with it the store's area, which it frees or loads
 * anew.  It is given back when the stream is dropped.  Where all are in use, a worker holds its stream by a slot in memory of its own,
 * which nobody else finds, and does not run it.
 *
 * Finding a slot needs wms_shared->lock shared, making or freeing one needs it
 * exclusive.  A caller that is not the stream's worker may lose the slot to another stream
 * as soon as the lock is released: it reads generation (or stream) again after
 * what it read, if that matters.  Figures and error text are copied under the
 * slot's mutex, never handed out.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/proclist.h"
#include "utils/timestamp.h"

#include "shared/shared.h"

/* ---------------------------------------------------------------- slots */

static WmsSharedStream *
find_slot(Oid database, Oid stream)
{
	Assert(LWLockHeldByMe(&wms_shared->lock));
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		WmsSharedStream *slot = &wms_shared->streams[i];

		if (slot->in_use && slot->stream == stream && slot->database == database)
			return slot;
	}
	return NULL;
}

static WmsSharedStream *
free_stream_slot(void)
{
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		if (!wms_shared->streams[i].in_use)
			return &wms_shared->streams[i];
	}
	return NULL;
}

/* Figures before the first batch. */
static void
blank_figures(WmsFigures *figures)
{
	memset(figures, 0, sizeof(*figures));
	figures->progress.watermark = figures->progress.gone_upto = WMS_TIME_MIN;
	figures->next_close = WMS_TIME_MAX;
	figures->next_close_event = WMS_TIME_MAX;
	figures->fill.rows_total = -1;
	for (int i = 0; i < WMS_MAX_SOURCES; i++)
	{
		figures->progress.max_time[i] = WMS_TIME_MIN;
		figures->source_watermark[i] = WMS_TIME_MIN;
	}
}

/* The slot was freed with its area, so the store's fields are blank already. */
static void
take_slot(WmsSharedStream *slot, Oid database, Oid stream)
{
	Assert(LWLockHeldByMeInMode(&wms_shared->lock, LW_EXCLUSIVE));
	slot->database = database;
	slot->stream = stream;
	slot->generation++;
	pg_atomic_write_u64(&slot->done_lsn, 0);
	pg_atomic_write_u64(&slot->taken_lsn, 0);
	pg_atomic_write_u64(&slot->fires_at, 0);
	pg_atomic_write_u64(&slot->caught_up_at, 0);
	pg_atomic_write_u64(&slot->applied, 0);
	pg_atomic_write_u32(&slot->status, 0);
	pg_atomic_write_u32(&slot->keeper, WMS_KEEPER_WORKER);
	pg_atomic_write_u64(&slot->needs_lsn, 0);

	SpinLockAcquire(&slot->mutex);
	blank_figures(&slot->figures);
	slot->error[0] = '\0';
	SpinLockRelease(&slot->mutex);
	slot->in_use = true;
}

static WmsSharedStream *
find_or_take_slot(Oid stream)
{
	WmsSharedStream *slot;

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	slot = find_slot(MyDatabaseId, stream);
	if (slot == NULL)
	{
		slot = free_stream_slot();
		if (slot != NULL)
			take_slot(slot, MyDatabaseId, stream);
	}
	LWLockRelease(&wms_shared->lock);
	return slot;
}

WmsSharedStream *
wms_stream_slot(Oid stream, bool create)
{
	WmsSharedStream *slot;

	wms_require_preloaded();
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	slot = find_slot(MyDatabaseId, stream);
	LWLockRelease(&wms_shared->lock);

	return slot != NULL || !create ? slot : find_or_take_slot(stream);
}

WmsSharedStream *
wms_stream_slot_private(void)
{
	WmsSharedStream *slot = palloc(sizeof(WmsSharedStream));

	wms_stream_slot_init(slot);
	blank_figures(&slot->figures);
	return slot;
}

int
wms_stream_slots_free(void)
{
	int			n = 0;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nstreams; i++)
		n += !wms_shared->streams[i].in_use;
	LWLockRelease(&wms_shared->lock);
	return n;
}

void
wms_stream_slot_free(WmsSharedStream *slot)
{
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	Assert(slot->area == DSM_HANDLE_INVALID);
	slot->in_use = false;
	slot->database = InvalidOid;
	slot->stream = InvalidOid;
	LWLockRelease(&wms_shared->lock);

	/* Whoever waits for this stream sees that it is gone. */
	ConditionVariableBroadcast(&slot->changed);
}

/* ---------------------------------------------------------------- figures */

void
wms_stream_figures(WmsSharedStream *slot, WmsFigures *copy, char *error)
{
	SpinLockAcquire(&slot->mutex);
	if (copy != NULL)
		*copy = slot->figures;
	if (error != NULL)
		memcpy(error, slot->error, WMS_ERROR_LEN);
	SpinLockRelease(&slot->mutex);
}

void
wms_stream_set_figures(WmsSharedStream *slot, const WmsFigures *figures)
{
	SpinLockAcquire(&slot->mutex);
	slot->figures = *figures;
	SpinLockRelease(&slot->mutex);
}

void
wms_stream_set_error(WmsSharedStream *slot, const char *error)
{
	int			len = 0;

	/* Cut between characters, before the spinlock is held. */
	if (error != NULL)
		len = pg_mbcliplen(error, strlen(error), WMS_ERROR_LEN - 1);

	SpinLockAcquire(&slot->mutex);
	memcpy(slot->error, error ? error : "", len);
	slot->error[len] = '\0';
	SpinLockRelease(&slot->mutex);
}

int64
wms_database_state_bytes(Oid database)
{
	int64		bytes = 0;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		WmsSharedStream *slot = &wms_shared->streams[i];

		if (!slot->in_use || slot->database != database)
			continue;
		SpinLockAcquire(&slot->mutex);
		bytes += slot->figures.state_bytes;
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(&wms_shared->lock);
	return bytes;
}

/* ---------------------------------------------------------------- news for those who wait */

bool
wms_stream_awaited(WmsSharedStream *slot)
{
	bool		awaited;

	SpinLockAcquire(&slot->changed.mutex);
	awaited = !proclist_is_empty(&slot->changed.wakeup);
	SpinLockRelease(&slot->changed.mutex);
	return awaited;
}

/* Whoever finds the new place with the old time waits for a firing that has been; so the time goes first. */
void
wms_stream_taken(WmsSharedStream *slot, XLogRecPtr lsn, TimestampTz fires_at)
{
	pg_atomic_write_u64(&slot->fires_at, (uint64) fires_at);
	if (lsn <= pg_atomic_read_u64(&slot->taken_lsn))
		return;
	pg_write_barrier();
	pg_atomic_write_u64(&slot->taken_lsn, lsn);
	ConditionVariableBroadcast(&slot->changed);
}

/* Only the stream's worker writes, so reading before writing is no race. */
void
wms_stream_done(WmsSharedStream *slot, XLogRecPtr lsn)
{
	pg_atomic_write_u64(&slot->fires_at, 0);
	if (lsn >= GetFlushRecPtr(NULL))
		pg_atomic_write_u64(&slot->caught_up_at, (uint64) GetCurrentTimestamp());
	if (lsn <= pg_atomic_read_u64(&slot->done_lsn))
		return;
	pg_atomic_write_u64(&slot->done_lsn, lsn);
	ConditionVariableBroadcast(&slot->changed);
}

void
wms_stream_announce(WmsSharedStream *slot, uint32 status, uint64 applied)
{
	pg_atomic_write_u32(&slot->status, status);
	pg_atomic_write_u64(&slot->applied, applied);
	ConditionVariableBroadcast(&slot->changed);
}
