/*
 * state_log.c
 *	  The durable log of a stream's state: its table, its format, writing a batch.
 *
 * wmstream.state_log holds, by stream and seq, rows of up to 64 kB.  A batch appends at least
 * one; its last one carries the stream's progress (WMS_LOG_HEAD), so the newest row of a stream
 * tells where the stream is.  Rows consist of a header and records: the whole of an
 * entry's value (ENTRY), a run of kept rows (SEGMENT), both at once of what is new (BOTH), what left before its time (REMOVED,
 * CLOSED), each behind a BUCKET record that names its bucket.  A record that does not fit into a
 * row of its own is cut over several rows and has them for itself.
 *
 * Reading the rows by seq gives the state: entries overwrite, segments are put at their ordinal,
 * tombstones delete.  In a batch tombstones come first, then new versions, then what
 * compaction moved.
 *
 * The horizon.  Most buckets close because the watermark passed them, and need no tombstone: what ends at or before
 * its operator's horizon, a time kept in the head that only moves forward, is dead.  It is the watermark less the
 * operator's keep_span, but never at or beyond the end of a bucket that still lives; so a bucket is never
 * lost that the operator did not close, whatever watermark it goes by.  A bucket that is
 * made behind the horizon is *revived*: its records say so, the horizon does not count for them, and it
 * gets a tombstone.
 *
 * Rows have consecutive seqs.  All changes are our transaction's; the book-keeping of rows follows when the batch is
 * published (wms_log_publish), so an aborted batch leaves no trace and its seqs are used again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define LOG_STREAM 1
#define LOG_SEQ 2
#define LOG_DATA 3
#define LOG_COLUMNS 3

/* Room for records in a row, beside header and progress. */
#define HEAD_MAX 1024
#define BODY_MAX (WMS_LOG_ROW_BYTES - (int) sizeof(WmsLogHeader) - HEAD_MAX)
#define SMALL_RECORD 64			/* bytes of a record beside key, value and rows, at most */


/* Buckets behind the horizon-to-be that are looked at for one that still lives, per operator. */
#define HORIZON_LOOK 100

/* ---------------------------------------------------------------- the table */

void
wms_log_open(WmsLogTable *log, LOCKMODE lockmode, Snapshot snapshot)
{
	Oid			relid = wms_relation_oid("state_log");

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table wmstream.state_log does not exist"),
				 errhint("Extension wmstream is not installed in this database.")));
	log->table = table_open(relid, lockmode);
	list_free(RelationGetIndexList(log->table));
	if (!OidIsValid(log->table->rd_pkindex))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table wmstream.state_log has lost its primary key")));
	log->index = index_open(log->table->rd_pkindex, lockmode);
	log->snapshot = RegisterSnapshot(snapshot ? snapshot : GetLatestSnapshot());
	log->context = CurrentMemoryContext;
}

/* The lock stays until the transaction ends. */
void
wms_log_close(WmsLogTable *log)
{
	UnregisterSnapshot(log->snapshot);
	index_close(log->index, NoLock);
	table_close(log->table, NoLock);
}

WmsLogScan
wms_log_scan(WmsLogTable *log, Oid stream, int64 min_seq)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], LOG_STREAM, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	ScanKeyInit(&keys[1], LOG_SEQ, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(min_seq));
	return systable_beginscan_ordered(log->table, log->index, log->snapshot, min_seq > 0 ? 2 : 1, keys);
}

HeapTuple
wms_log_next(WmsLogTable *log, WmsLogScan scan, bool backward, int64 *seq)
{
	MemoryContext old = MemoryContextSwitchTo(log->context);
	HeapTuple	tuple = systable_getnext_ordered(scan, backward ? BackwardScanDirection : ForwardScanDirection);
	bool		isnull;

	/* the index keeps notes from one call to the next, made where the first of them was needed */
	MemoryContextSwitchTo(old);
	if (tuple)
		*seq = DatumGetInt64(heap_getattr(tuple, LOG_SEQ, RelationGetDescr(log->table), &isnull));
	return tuple;
}

struct varlena *
wms_log_data(WmsLogTable *log, HeapTuple tuple)
{
	bool		isnull;
	Datum		datum = heap_getattr(tuple, LOG_DATA, RelationGetDescr(log->table), &isnull);

	return PG_DETOAST_DATUM_COPY(datum);
}

void
wms_state_forget(Oid stream)
{
	WmsLogTable log;
	WmsLogScan	scan;
	HeapTuple	tuple;
	int64		seq;

	wms_log_open(&log, RowExclusiveLock, NULL);
	scan = wms_log_scan(&log, stream, 0);
	while ((tuple = wms_log_next(&log, scan, false, &seq)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		CatalogTupleDelete(log.table, &tuple->t_self);
	}
	systable_endscan_ordered(scan);
	wms_log_close(&log);
}

/* ---------------------------------------------------------------- numbers and progress */

static inline char *
put_number(char *at, uint64 number)
{
	while (number >= 0x80)
	{
		*at++ = (char) (number | 0x80);
		number >>= 7;
	}
	*at++ = (char) number;
	return at;
}

static inline char *
put_bytes(char *at, const void *bytes, Size len)
{
	memcpy(at, bytes, len);
	return at + len;
}

/* Bytes in the head; 0: none. */
static int32
seen_size(const WmsProgress *progress)
{
	return progress->seen ? (int32) WmsSeenSize(progress->seen->nxip) : 0;
}

static Size
head_encode(char *into, const WmsProgress *progress, const WmsTime *horizons, int nhorizons, int64 first)
{
	int32		counts[4] = {WMS_NCOUNTERS, progress->nsources, nhorizons, seen_size(progress)};
	char	   *at = into;

	at = put_bytes(at, counts, sizeof(counts));
	at = put_bytes(at, &first, sizeof(first));
	at = put_bytes(at, &progress->position, sizeof(progress->position));
	at = put_bytes(at, &progress->watermark, sizeof(progress->watermark));
	at = put_bytes(at, &progress->gone_upto, sizeof(progress->gone_upto));
	at = put_bytes(at, &progress->fired_at, sizeof(progress->fired_at));
	at = put_bytes(at, &progress->applied, sizeof(progress->applied));
	at = put_bytes(at, progress->counters, sizeof(progress->counters));
	at = put_bytes(at, progress->max_time, sizeof(int64) * progress->nsources);
	at = put_bytes(at, progress->source_rows, sizeof(int64) * progress->nsources);
	at = put_bytes(at, horizons, sizeof(WmsTime) * nhorizons);
	if (progress->seen)
		at = put_bytes(at, progress->seen, counts[3]);
	return at - into;
}

StaticAssertDecl(8 * sizeof(int64) + sizeof(((WmsProgress *) 0)->counters) +
				 2 * sizeof(int64) * WMS_MAX_SOURCES + sizeof(int64) * WMS_MAX_HORIZONS <= HEAD_MAX,
				 "progress, but for what was seen of queues, must fit into a head");

static const char *
take_bytes(const char *at, void *into, Size len)
{
	memcpy(into, at, len);
	return at + len;
}

void
wms_head_decode(const char *at, Size len, WmsProgress *progress, WmsTime *horizons, int nhorizons, int64 *first)
{
	int32		counts[4];

	memset(progress, 0, sizeof(WmsProgress));
	if (len < sizeof(counts))
		memset(counts, -1, sizeof(counts));
	else
		at = take_bytes(at, counts, sizeof(counts));
	if (counts[0] != WMS_NCOUNTERS || counts[1] < 0 || counts[1] > WMS_MAX_SOURCES ||
		counts[2] < 0 || counts[2] > WMS_MAX_HORIZONS || counts[3] < 0 ||
		len != 8 * sizeof(int64) + sizeof(progress->counters) + (2 * counts[1] + counts[2]) * sizeof(int64) + counts[3])
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the head of the stream's state log is damaged"),
				 errhint("Rebuild the stream with wmstream.resync().")));
	progress->nsources = counts[1];
	at = take_bytes(at, first, sizeof(*first));
	at = take_bytes(at, &progress->position, sizeof(progress->position));
	at = take_bytes(at, &progress->watermark, sizeof(progress->watermark));
	at = take_bytes(at, &progress->gone_upto, sizeof(progress->gone_upto));
	at = take_bytes(at, &progress->fired_at, sizeof(progress->fired_at));
	at = take_bytes(at, &progress->applied, sizeof(progress->applied));
	at = take_bytes(at, progress->counters, sizeof(progress->counters));
	at = take_bytes(at, progress->max_time, sizeof(int64) * progress->nsources);
	at = take_bytes(at, progress->source_rows, sizeof(int64) * progress->nsources);
	if (nhorizons > 0)
		take_bytes(at, horizons, sizeof(WmsTime) * Min(nhorizons, counts[2]));
	if (counts[3] > 0)
	{
		progress->seen = palloc(counts[3]);
		take_bytes(at + sizeof(WmsTime) * counts[2], progress->seen, counts[3]);
	}
}

/* ---------------------------------------------------------------- writing rows */

/* Writes a tuple over the newest row. */
static void
replace_row(WmsLogWriter *writer, HeapTuple tuple)
{
	WmsLogTable *log = writer->log;
	WmsLogScan	scan = wms_log_scan(log, writer->store->stream, writer->seq);
	int64		seq = 0;
	HeapTuple	former = wms_log_next(log, scan, false, &seq);

	if (former == NULL || seq != writer->seq)
		elog(ERROR, "row " INT64_FORMAT " of the state log of stream %u is missing", writer->seq, writer->store->stream);
	CatalogTupleUpdateWithInfo(log->table, &former->t_self, tuple, writer->indexes);
	systable_endscan_ordered(scan);
}

static void
insert_row(WmsLogWriter *writer, Size len)
{
	TupleDesc	desc = RelationGetDescr(writer->log->table);
	MemoryContext old = MemoryContextSwitchTo(writer->row_context);
	Datum		values[LOG_COLUMNS];
	bool		nulls[LOG_COLUMNS] = {false};
	HeapTuple	tuple;

	if (desc->natts != LOG_COLUMNS)
		elog(ERROR, "wmstream.state_log has %d columns", desc->natts);
	SET_VARSIZE(writer->data, VARHDRSZ + len);
	values[LOG_STREAM - 1] = ObjectIdGetDatum(writer->store->stream);
	values[LOG_SEQ - 1] = Int64GetDatum(writer->seq);
	values[LOG_DATA - 1] = PointerGetDatum(writer->data);
	tuple = heap_form_tuple(desc, values, nulls);
	if (writer->overlay->replaced && writer->overlay->nrows == 0)
		replace_row(writer, tuple);
	else
		CatalogTupleInsertWithInfo(writer->log->table, tuple, writer->indexes);
	MemoryContextSwitchTo(old);
	MemoryContextReset(writer->row_context);
}

static void
note_row(WmsLogWriter *writer, Size len)
{
	WmsOverlay *overlay = writer->overlay;
	WmsLogRow  *row;

	if (overlay->nrows == overlay->rows_room)
	{
		overlay->rows_room *= 2;
		overlay->rows = repalloc_huge(overlay->rows, overlay->rows_room * sizeof(WmsLogRow));
	}
	row = &overlay->rows[overlay->nrows++];
	row->bytes = len;
	row->live = writer->nrecords;
	row->average = writer->nrecords > 0 ? len / writer->nrecords : 0;
	row->follows = writer->follows;
	row->tombstones = writer->tombstones;
	/* the record's first row answers for all of them */
	if (writer->follows)
		overlay->rows[writer->split_row].average += len;
	writer->appended += len;
}

/* Seq of the oldest row that there will be. */
static int64
oldest_row(WmsLogWriter *writer)
{
	WmsLogRows *log = &writer->store->log;

	return log->count == 0 ? 1 : log->first + writer->overlay->deleted;
}

/* Writes the row and begins the next.  progress: with the last row only. */
static void
flush_row(WmsLogWriter *writer, uint16 flags, const WmsProgress *progress)
{
	WmsLogHeader header = {0};
	char	   *at = VARDATA(writer->data);
	Size		len;

	CHECK_FOR_INTERRUPTS();
	header.format = WMS_LOG_FORMAT;
	header.flags = flags | (writer->follows ? WMS_LOG_FOLLOWS : 0);
	header.server_version = WMS_SERVER_VERSION;
	header.fingerprint = writer->store->fingerprint;
	if (progress)
	{
		header.flags |= WMS_LOG_HEAD;
		header.head_len = head_encode(at + sizeof(header), progress, writer->overlay->horizons,
									  Min(writer->store->nops, WMS_MAX_HORIZONS), oldest_row(writer));
	}
	memcpy(at, &header, sizeof(header));
	memcpy(at + sizeof(header) + header.head_len, writer->body, writer->body_len);
	len = sizeof(header) + header.head_len + writer->body_len;
	insert_row(writer, len);
	note_row(writer, len);

	writer->seq++;
	writer->body_len = 0;
	writer->nrecords = 0;
	writer->tombstones = false;
	writer->bucket = NULL;
	writer->follows = (flags & WMS_LOG_CONTINUES) != 0;
}

static void
put(WmsLogWriter *writer, const void *bytes, Size len)
{
	const char *from = bytes;

	while (writer->splitting && len > (Size) (BODY_MAX - writer->body_len))
	{
		Size		part = BODY_MAX - writer->body_len;

		memcpy(writer->body + writer->body_len, from, part);
		writer->body_len += part;
		from += part;
		len -= part;
		if (!writer->follows)
		{
			/* the record counts where it begins */
			writer->split_row = writer->overlay->nrows;
			writer->nrecords = writer->record_lives;
		}
		flush_row(writer, WMS_LOG_CONTINUES, NULL);
	}
	memcpy(writer->body + writer->body_len, from, len);
	writer->body_len += len;
}

static void
put_bucket(WmsLogWriter *writer, WmsRecordKind kind, const WmsBucket *bucket)
{
	char		small[SMALL_RECORD];
	char	   *at = small;

	*at++ = kind;
	*at++ = bucket->revived;
	at = put_number(at, bucket->key.op);
	at = put_bytes(at, &bucket->key.start, sizeof(WmsTime));
	at = put_bytes(at, &bucket->key.end, sizeof(WmsTime));
	put(writer, small, at - small);
}

/* Makes room for a record of a bucket (NULL: of none); small + large bytes.  Result: seq of the row where it begins. */
static int64
begin_record(WmsLogWriter *writer, WmsBucket *bucket, Size large, int lives)
{
	Size		need = large + 2 * SMALL_RECORD;

	if (writer->body_len > 0 && writer->body_len + need > BODY_MAX)
		flush_row(writer, 0, NULL);
	writer->splitting = need > BODY_MAX;
	writer->record_lives = lives;
	if (bucket && writer->bucket != bucket)
	{
		put_bucket(writer, WMS_RECORD_BUCKET, bucket);
		writer->bucket = bucket;
	}
	return writer->seq;
}

static void
end_record(WmsLogWriter *writer)
{
	bool		was_split = writer->splitting && writer->follows;

	writer->splitting = false;
	if (was_split)
		flush_row(writer, 0, NULL);
	else
		writer->nrecords += writer->record_lives;
}

int64
wms_log_put_entry(WmsLogWriter *writer, WmsBucket *bucket, const WmsRecord *record)
{
	bool		both = record->nrows > 0;
	int64		seq = begin_record(writer, bucket, (Size) record->key_len + record->value_len + record->rows_len, both ? 2 : 1);
	char		small[SMALL_RECORD];
	char	   *at = small;

	*at++ = both ? WMS_RECORD_BOTH : WMS_RECORD_ENTRY;
	*at++ = record->flags;
	at = put_bytes(at, &record->hash, sizeof(uint32));
	at = put_number(at, record->key_len);
	at = put_number(at, record->value_len);
	if (both)
	{
		at = put_number(at, record->nrows);
		at = put_number(at, record->rows_len);
	}
	put(writer, small, at - small);
	put(writer, record->key, record->key_len);
	put(writer, record->value, record->value_len);
	put(writer, record->rows, record->rows_len);
	end_record(writer);
	return seq;
}

int64
wms_log_put_segment(WmsLogWriter *writer, WmsBucket *bucket, const WmsRecord *record)
{
	int64		seq = begin_record(writer, bucket, (Size) record->key_len + record->rows_len, 1);
	char		small[SMALL_RECORD];
	char	   *at = small;

	*at++ = WMS_RECORD_SEGMENT;
	at = put_bytes(at, &record->hash, sizeof(uint32));
	at = put_number(at, record->key_len);
	at = put_number(at, record->ordinal);
	at = put_number(at, record->nrows);
	at = put_number(at, record->rows_len);
	put(writer, small, at - small);
	put(writer, record->key, record->key_len);
	put(writer, record->rows, record->rows_len);
	end_record(writer);
	return seq;
}

static void
put_removed(WmsLogWriter *writer, WmsBucket *bucket, const WmsEntry *entry)
{
	char		small[SMALL_RECORD];
	char	   *at = small;

	begin_record(writer, bucket, entry->key_len, 0);
	writer->tombstones = true;
	*at++ = WMS_RECORD_REMOVED;
	at = put_bytes(at, &entry->hash, sizeof(uint32));
	at = put_number(at, entry->key_len);
	put(writer, small, at - small);
	put(writer, entry->key, entry->key_len);
	end_record(writer);
}

/* ---------------------------------------------------------------- a batch's own records */

/*
 * How far an operator's horizon may move: to the watermark less the span, but not past a bucket that lives on, was logged,
 * and is not revived.  Buckets that this batch made do not count: they are revived if need be.
 */
static WmsTime
next_horizon(WmsStore *store, int op, WmsTime watermark)
{
	WmsTime		horizon = store->horizons[op];
	WmsBucketKey first = {op, WMS_TIME_MIN, WMS_TIME_MIN};
	WmsTime		target;
	WmsBucket  *bucket;
	int			looked = 0;

	if (op >= WMS_MAX_HORIZONS || store->ops[op].keep_span < 0 || !WmsTimeIsFinite(watermark))
		return horizon;
	target = wms_time_add(watermark, -store->ops[op].keep_span);
	if (target <= horizon)
		return horizon;
	for (bucket = wms_bucket_after(store, &first); bucket != NULL; bucket = bucket->order)
	{
		if (bucket->key.op != op || bucket->key.end > target)
			break;
		if (bucket->state == WMS_BUCKET_LIVE && !bucket->revived && bucket->nlive > 0)
		{
			target = bucket->key.end - 1;
			break;
		}
		if (++looked == HORIZON_LOOK)
			return horizon;
	}
	return Max(target, horizon);
}

static void
move_horizons(WmsStore *store, WmsTime watermark)
{
	WmsOverlay *overlay = store->overlay;
	int			op;

	overlay->horizons = MemoryContextAlloc(overlay->context, sizeof(WmsTime) * Max(store->nops, 1));
	for (op = 0; op < store->nops; op++)
		overlay->horizons[op] = next_horizon(store, op, watermark);
}

static void
revive_new_buckets(WmsStore *store)
{
	WmsTouched *touched;

	for (touched = store->overlay->touched; touched != NULL; touched = touched->next)
	{
		if (touched->bucket->state == WMS_BUCKET_NEW)
			touched->bucket->revived = touched->bucket->key.end <= store->overlay->horizons[touched->bucket->key.op];
	}
}

static void
write_tombstones(WmsLogWriter *writer)
{
	WmsOverlay *overlay = writer->overlay;
	WmsBucket  *bucket;
	WmsTouched *touched;
	WmsEntryPrivate *private;

	for (bucket = overlay->closing; bucket != NULL; bucket = bucket->order)
	{
		if (bucket->state != WMS_BUCKET_CLOSING ||
			(bucket->key.end <= overlay->horizons[bucket->key.op] && !bucket->revived))
			continue;
		begin_record(writer, NULL, 0, 0);
		writer->tombstones = true;
		put_bucket(writer, WMS_RECORD_CLOSED, bucket);
		end_record(writer);
	}
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
	{
		if (touched->bucket->state != WMS_BUCKET_LIVE || !touched->removes)
			continue;
		for (private = touched->first; private != NULL; private = private->bucket_next)
		{
			if (private->entry.removed && private->stored)
				put_removed(writer, touched->bucket, &private->entry);
		}
	}
}

static void
write_entry(WmsLogWriter *writer, WmsEntryPrivate *private)
{
	WmsRecord	record = {0};
	bool		both = private->changed && private->kept && private->more == NULL;

	record.hash = private->entry.hash;
	record.key_len = private->entry.key_len;
	record.key = private->entry.key;
	if (private->kept)
	{
		record.ordinal = private->more ? private->more->nsegments : 0;
		record.nrows = private->kept->nrows;
		record.rows_len = private->kept->len;
		record.rows = private->kept->data;
		if (!both)
			private->segment_seq = wms_log_put_segment(writer, private->bucket, &record);
	}
	if (!private->changed)
		return;
	if (!both)
	{
		record.nrows = 0;
		record.rows_len = 0;
	}
	record.flags = private->entry.flags;
	record.value_len = private->staged_len;
	record.value = private->staged;
	private->seq = wms_log_put_entry(writer, private->bucket, &record);
	if (both)
		private->segment_seq = private->seq;
}

static void
write_entries(WmsLogWriter *writer)
{
	WmsTouched *touched;
	WmsEntryPrivate *private;

	for (touched = writer->overlay->touched; touched != NULL; touched = touched->next)
	{
		if (!wms_bucket_stays(touched->bucket))
			continue;
		for (private = touched->first; private != NULL; private = private->bucket_next)
		{
			CHECK_FOR_INTERRUPTS();
			if (!private->entry.removed)
				write_entry(writer, private);
		}
	}
}

/* ---------------------------------------------------------------- faces */

/* How many of the closed buckets no snapshot of this database can want any more. */
static int64
count_removable(WmsStore *store, Relation table)
{
	GlobalVisState *visible;
	WmsBucket  *bucket;
	int64		n = 0;

	if (store->closed_first == NULL)
		return 0;
	visible = GlobalVisTestFor(table);
	for (bucket = store->closed_first; bucket != NULL; bucket = bucket->order)
	{
		if (!GlobalVisTestIsRemovableFullXid(visible, bucket->shared->closing))
			break;
		n++;
	}
	return n;
}

static void
writer_begin(WmsLogWriter *writer, WmsStore *store, WmsLogTable *log, const WmsProgress *progress, bool replace)
{
	WmsOverlay *overlay = store->overlay;

	memset(writer, 0, sizeof(WmsLogWriter));
	writer->store = store;
	writer->overlay = overlay;
	writer->log = log;
	writer->row_context = AllocSetContextCreate(overlay->context, "wmstream log row", ALLOCSET_DEFAULT_SIZES);
	writer->data = MemoryContextAlloc(overlay->context, VARHDRSZ + WMS_LOG_ROW_BYTES + seen_size(progress));
	writer->body = MemoryContextAlloc(overlay->context, BODY_MAX);
	writer->indexes = CatalogOpenIndexes(log->table);
	writer->seq = store->log.count == 0 ? 1 : store->log.first + store->log.count - (replace ? 1 : 0);
	overlay->replaced = replace;
	overlay->rows_room = 16;
	overlay->rows = MemoryContextAlloc(overlay->context, overlay->rows_room * sizeof(WmsLogRow));
}

/* Inside prepare, when everything is staged and reserved. */
void
wms_log_write(WmsStore *store, const WmsProgress *progress)
{
	WmsOverlay *overlay = store->overlay;
	WmsLogTable log;
	WmsLogWriter	writer;
	WmsObsolete	obsolete = {0, 0};

	move_horizons(store, progress->watermark);
	revive_new_buckets(store);
	wms_log_find_obsolete(store, &obsolete);

	wms_log_open(&log, RowExclusiveLock, NULL);
	writer_begin(&writer, store, &log, progress, wms_log_newest_is_dead(store, &obsolete));
	write_tombstones(&writer);
	write_entries(&writer);
	wms_log_compact(&writer, &obsolete);
	flush_row(&writer, 0, progress);
	wms_rows_reserve(store, overlay->nrows);
	overlay->nremovable = count_removable(store, log.table);

	CatalogCloseIndexes(writer.indexes);
	wms_log_close(&log);
}

/* After COMMIT: what wms_log_write did is true now.  WmsObsolete versions have been taken off their rows. */
void
wms_log_publish(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;
	int64		i;

	if (overlay->replaced)
		wms_rows_drop_newest(store);
	else if (store->log.count == 0)
		store->log.first = 1;
	for (i = 0; i < overlay->nrows; i++)
		wms_rows_append(store, &overlay->rows[i]);
	wms_rows_drop(store, overlay->deleted);
	for (i = 0; i < overlay->nmoves; i++)
	{
		if (overlay->moves[i].stored)
			wms_stored_set_seq(overlay->moves[i].stored, overlay->moves[i].seq);
		else
			overlay->moves[i].segment->seq = overlay->moves[i].seq;
	}
	memcpy(store->horizons, overlay->horizons, sizeof(WmsTime) * store->nops);
	store->credit = overlay->credit;
}
