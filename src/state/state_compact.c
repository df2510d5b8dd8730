/*
 * state_compact.c
 *	  Keeping the log short.
 *
 * Every entry and segment knows the seq of the row with its newest version, and every row how
 * many of its records are newest.  While the log is longer than twice its live bytes, a batch moves what is still
 * newest of the oldest row to the end and deletes the row; it may move four times what it appended itself
 * and a little more, so no batch waits for the log.  Rows with nothing live are deleted when they are the
 * oldest, a bounded number per batch.  A record that needs more than one batch may spend is saved up for.
 * The newest row is written over, instead of appending, if the batch leaves nothing
 * alive in it: so the log of a stream without state is one row.
 *
 * Runs inside wms_log_write, when the batch's own records are written.  What it moves is noted in the overlay and takes effect
 * when the batch is published.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "catalog/indexing.h"
#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

/* The log may exceed twice its live bytes by this. */
#define SLACK (256 * 1024)
/* What compaction may move per batch: times what the batch appended, and beside that. */
#define MOVE_FACTOR 4
#define MOVE_LEAST (64 * 1024)
/* Dead rows deleted per batch, beside eight per row appended. */
#define DELETE_LEAST 64

static void
count_obsolete(WmsStore *store, int64 seq, WmsObsolete *obsolete)
{
	int64		last = store->log.first + store->log.count - 1;

	if (seq < store->log.first || seq > last)
		return;
	obsolete->newest += seq == last;
	obsolete->bytes += wms_row_at(store, seq - store->log.first)->average;
}

static void
count_obsolete_entry(WmsStore *store, const WmsEntryPrivate *private, WmsObsolete *obsolete)
{
	bool		leaves = private->entry.removed || private->bucket->state == WMS_BUCKET_CLOSING;
	const WmsMore *more = private->more;

	if (private->stored == NULL || !(leaves || private->changed))
		return;
	count_obsolete(store, private->stored_seq, obsolete);
	for (uint32 i = 0; leaves && more && i < more->nsegments; i++)
		count_obsolete(store, wms_more_segment(store, more, i)->seq, obsolete);
}

/* Touched entries only: other entries of closing buckets are counted when they have gone.  Those of new buckets are not in the log yet. */
void
wms_log_find_obsolete(WmsStore *store, WmsObsolete *obsolete)
{
	WmsTouched *touched;
	WmsEntryPrivate *private;

	for (touched = store->overlay->touched; touched != NULL; touched = touched->next)
	{
		if (touched->bucket->state != WMS_BUCKET_LIVE && touched->bucket->state != WMS_BUCKET_CLOSING)
			continue;
		for (private = touched->first; private != NULL; private = private->bucket_next)
			count_obsolete_entry(store, private, obsolete);
	}
}

/* May the newest row be written over?  Its tombstones count only if there are rows before it. */
bool
wms_log_newest_is_dead(WmsStore *store, const WmsObsolete *obsolete)
{
	WmsLogRow  *newest;

	if (store->log.count == 0)
		return false;
	newest = wms_row_at(store, store->log.count - 1);
	return newest->live == obsolete->newest && !newest->follows &&
		(!newest->tombstones || store->log.count == 1);
}

/* ---------------------------------------------------------------- compaction */

static void
note_move(WmsOverlay *overlay, WmsStored *stored, WmsSegment *segment, int64 seq)
{
	WmsMove    *move;

	if (overlay->nmoves == overlay->moves_room)
	{
		overlay->moves_room = Max(256, overlay->moves_room * 2);
		if (overlay->moves)
			overlay->moves = repalloc_huge(overlay->moves, overlay->moves_room * sizeof(WmsMove));
		else
			overlay->moves = MemoryContextAllocHuge(overlay->context, overlay->moves_room * sizeof(WmsMove));
	}
	move = &overlay->moves[overlay->nmoves++];
	move->stored = stored;
	move->segment = segment;
	move->seq = seq;
}

/* The entry of a record, if the record may be newest: it is stored and this batch leaves it.  *changed: this batch writes its value. */
static WmsStored *
holder_of(WmsStore *store, const WmsRecord *record, StringInfo key, WmsBucket **bucket, bool *changed)
{
	WmsSought	sought;
	WmsEntryPrivate *private;
	bool		removed;

	*changed = false;
	*bucket = wms_bucket_find(store, &record->bucket);
	if (*bucket == NULL || (*bucket)->state != WMS_BUCKET_LIVE)
		return NULL;
	/* operators compare aligned keys */
	resetStringInfo(key);
	appendBinaryStringInfo(key, record->key, record->key_len);
	sought.hash = record->hash;
	sought.key_len = record->key_len;
	sought.key = key->data;
	sought.ops = &store->ops[record->bucket.op];
	private = wms_overlay_find(store, *bucket, &sought, &removed);
	if (removed)
		return NULL;
	if (private)
	{
		*changed = private->changed;
		return private->stored;
	}
	return wms_index_find(store, *bucket, &sought);
}

static void
move_record(WmsLogWriter *writer, const WmsRecord *record, int64 seq, StringInfo key)
{
	WmsStore   *store = writer->store;
	WmsBucket  *bucket;
	WmsStored  *stored;
	bool		changed;

	stored = holder_of(store, record, key, &bucket, &changed);
	if (stored == NULL)
		return;
	if (record->kind == WMS_RECORD_ENTRY)
	{
		if (wms_stored_seq(stored) == seq && !changed)
			note_move(writer->overlay, stored, NULL, wms_log_put_entry(writer, bucket, record));
	}
	else if (DsaPointerIsValid(stored->more))
	{
		WmsMore    *more = wms_area_address(store, stored->more);
		WmsSegment *segment = wms_more_segment(store, more, record->ordinal);

		if (segment && segment->seq == seq)
			note_move(writer->overlay, NULL, segment, wms_log_put_segment(writer, bucket, record));
	}
}

static void
move_records(WmsLogWriter *writer, const char *data, Size len, int64 seq)
{
	WmsRecordReader reader = {data, data + len};
	StringInfoData key;

	initStringInfo(&key);
	while (wms_record_next(&reader))
	{
		CHECK_FOR_INTERRUPTS();
		if (reader.record.kind == WMS_RECORD_ENTRY || reader.record.kind == WMS_RECORD_SEGMENT)
			move_record(writer, &reader.record, seq, &key);
	}
	pfree(key.data);
}

/* The records of one row appended to what is there of a record that began before. */
static void
collect_body(WmsStore *store, struct varlena *row, char **body, Size *len)
{
	WmsLogHeader header;
	Size		row_len = VARSIZE(row) - VARHDRSZ;
	Size		skip;

	wms_log_check(VARDATA(row), row_len, &header, store->fingerprint);
	skip = sizeof(header) + header.head_len;
	*body = *body ? repalloc_huge(*body, *len + row_len - skip) : MemoryContextAllocHuge(CurrentMemoryContext, row_len - skip + 1);
	memcpy(*body + *len, VARDATA(row) + skip, row_len - skip);
	*len += row_len - skip;
}

/* Deletes the next nrows rows of the scan; moves what is newest in them to the end, if move. */
static void
compact_rows(WmsLogWriter *writer, WmsLogScan scan, int64 seq, int64 nrows, bool move)
{
	WmsStore   *store = writer->store;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "wmstream compaction", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	char	   *body = NULL;
	Size		len = 0;
	int64		i;

	for (i = 0; i < nrows; i++)
	{
		int64		found = 0;
		HeapTuple	tuple = wms_log_next(writer->log, scan, false, &found);

		if (tuple == NULL || found != seq + i)
			elog(ERROR, "row " INT64_FORMAT " of the state log of stream %u is missing", seq + i, store->stream);
		if (move)
			collect_body(store, wms_log_data(writer->log, tuple), &body, &len);
		CatalogTupleDelete(writer->log->table, &tuple->t_self);
	}
	if (move)
		move_records(writer, body, len, seq);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* How many rows hold the record or records that begin in row i. */
static int64
rows_together(WmsStore *store, int64 i)
{
	int64		n = 1;

	while (i + n < store->log.count && wms_row_at(store, i + n)->follows)
		n++;
	return n;
}

void
wms_log_compact(WmsLogWriter *writer, const WmsObsolete *obsolete)
{
	WmsStore   *store = writer->store;
	WmsOverlay *overlay = writer->overlay;
	int64		own = writer->appended + writer->body_len;
	int64		cost = store->log_cost + own + (overlay->nrows + 1) * WMS_LOG_ROW_COST;
	int64		live = store->live_bytes - obsolete->bytes + own;
	int64		end = store->log.count - (overlay->replaced ? 1 : 0);
	int64		deletions = DELETE_LEAST + 8 * overlay->nrows;
	WmsLogScan	scan = NULL;

	overlay->credit = store->credit + MOVE_FACTOR * own + MOVE_LEAST;
	while (overlay->deleted < end && deletions > 0)
	{
		WmsLogRow  *row = wms_row_at(store, overlay->deleted);
		int64		together = rows_together(store, overlay->deleted);
		int64		moving = row->live * row->average;
		int64		i;

		if (row->live > 0 && cost <= 2 * live + SLACK)
		{
			overlay->credit = 0;
			break;
		}
		if (moving > overlay->credit)
			break;
		if (scan == NULL)
			scan = wms_log_scan(writer->log, store->stream, store->log.first + overlay->deleted);
		compact_rows(writer, scan, store->log.first + overlay->deleted, together, row->live > 0);
		for (i = 0; i < together; i++)
			cost -= wms_row_cost(wms_row_at(store, overlay->deleted + i));
		cost += moving;
		overlay->credit -= moving;
		overlay->deleted += together;
		deletions -= together;
	}
	/* what is left is saved for a record that needs more than one batch may spend, and for nothing else */
	if (overlay->deleted == end || deletions <= 0)
		overlay->credit = 0;
	if (scan)
		systable_endscan_ordered(scan);
}
