/*
 * state_log.c
 *	  The durable log of a stream's state: writing a batch, compaction, book-keeping.
 *
 * wmstream.state_log holds, by stream and seq, rows of up to 64 kB.  A batch appends at least
 * one; its last one carries the stream's progress (WMS_LOG_HEAD), so the newest row of a stream
 * tells where the stream is.  Rows consist of a header and records: the whole of an
 * entry's value (ENTRY), a run of kept rows (SEGMENT), what left before its time (REMOVED,
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
 * Compaction.  Every entry and segment knows the seq of the row with its newest version, and every row how
 * many of its records are newest.  While the log is longer than twice its live bytes, a batch moves what is still
 * newest of the oldest row to the end and deletes the row; it may move four times what it appended itself
 * and a little more (credit).  Rows with nothing live are deleted when they are the oldest.
 * The newest row is written over, instead of appending, if the batch leaves nothing
 * alive in it: so the log of a stream without state is one row.
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

/* The log may exceed twice its live bytes by this. */
#define SLACK (256 * 1024)
/* What compaction may move per batch: times what the batch appended, and beside that. */
#define MOVE_FACTOR 4
#define MOVE_LEAST (64 * 1024)
/* Dead rows deleted per batch, beside eight per row appended. */
#define DELETE_LEAST 64

/* Buckets behind the horizon-to-be that are looked at for one that still lives, per operator. */
#define HORIZON_LOOK 100

typedef struct LogWriter
{
	WmsStore   *store;
	WmsOverlay *overlay;
	WmsLogTable *log;
	CatalogIndexState indexes;
	MemoryContext row_context;	/* reset after each row */
	char	   *data;			/* the row as a bytea */
	char	   *body;			/* records so far, BODY_MAX */
	int			body_len;
	int64		seq;			/* of the row being filled */
	uint32		nrecords;		/* in it */
	bool		tombstones;
	bool		follows;
	bool		record_lives;	/* the record at hand counts as live */
	bool		splitting;		/* it goes over several rows */
	int			split_row;		/* the first of them, in overlay->rows */
	WmsBucket  *bucket;			/* named last in this row */
	int64		appended;		/* bytes of rows written */
} LogWriter;

/* ---------------------------------------------------------------- the table */

void
wms_log_open(WmsLogTable *log, LOCKMODE lockmode)
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
	log->snapshot = RegisterSnapshot(GetLatestSnapshot());
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

	wms_log_open(&log, RowExclusiveLock);
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

static Size
head_encode(char *into, const WmsProgress *progress, const WmsTime *horizons, int nhorizons, int64 first)
{
	int32		counts[4] = {WMS_NCOUNTERS, progress->nsources, nhorizons, 0};
	char	   *at = into;

	at = put_bytes(at, counts, sizeof(counts));
	at = put_bytes(at, &first, sizeof(first));
	at = put_bytes(at, &progress->position, sizeof(progress->position));
	at = put_bytes(at, &progress->watermark, sizeof(progress->watermark));
	at = put_bytes(at, &progress->fired_at, sizeof(progress->fired_at));
	at = put_bytes(at, &progress->applied, sizeof(progress->applied));
	at = put_bytes(at, progress->counters, sizeof(progress->counters));
	at = put_bytes(at, progress->max_time, sizeof(int64) * progress->nsources);
	at = put_bytes(at, progress->source_rows, sizeof(int64) * progress->nsources);
	at = put_bytes(at, horizons, sizeof(WmsTime) * nhorizons);
	return at - into;
}

StaticAssertDecl(7 * sizeof(int64) + sizeof(((WmsProgress *) 0)->counters) +
				 2 * sizeof(int64) * WMS_MAX_SOURCES + sizeof(int64) * WMS_MAX_HORIZONS <= HEAD_MAX, "progress must fit into a head");

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
		counts[2] < 0 || counts[2] > WMS_MAX_HORIZONS ||
		len != 7 * sizeof(int64) + sizeof(progress->counters) + (2 * counts[1] + counts[2]) * sizeof(int64))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the head of the stream's state log is damaged"),
				 errhint("Rebuild the stream with wmstream.resync().")));
	progress->nsources = counts[1];
	at = take_bytes(at, first, sizeof(*first));
	at = take_bytes(at, &progress->position, sizeof(progress->position));
	at = take_bytes(at, &progress->watermark, sizeof(progress->watermark));
	at = take_bytes(at, &progress->fired_at, sizeof(progress->fired_at));
	at = take_bytes(at, &progress->applied, sizeof(progress->applied));
	at = take_bytes(at, progress->counters, sizeof(progress->counters));
	at = take_bytes(at, progress->max_time, sizeof(int64) * progress->nsources);
	at = take_bytes(at, progress->source_rows, sizeof(int64) * progress->nsources);
	take_bytes(at, horizons, sizeof(WmsTime) * Min(nhorizons, counts[2]));
}

/* ---------------------------------------------------------------- rows: book-keeping */

static WmsLogRow *
row_at(WmsStore *store, int64 i)
{
	return &store->log.rows[store->log.offset + i];
}

static inline int64
row_cost(const WmsLogRow *row)
{
	return (int64) row->bytes + WMS_LOG_ROW_COST;
}

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
	*row_at(store, store->log.count++) = *row;
	store->log_bytes += row->bytes;
	store->log_cost += row_cost(row);
	store->live_bytes += row->live * row->average;
}

static void
forget_row(WmsStore *store, const WmsLogRow *row)
{
	store->log_bytes -= row->bytes;
	store->log_cost -= row_cost(row);
	store->live_bytes -= row->live * row->average;
}

/* The oldest rows are gone. */
void
wms_rows_drop(WmsStore *store, int64 count)
{
	int64		i;

	for (i = 0; i < count; i++)
		forget_row(store, row_at(store, i));
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
	row = row_at(store, seq - store->log.first);
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

/* ---------------------------------------------------------------- writing rows */

/* Writes a tuple over the newest row. */
static void
replace_row(LogWriter *writer, HeapTuple tuple)
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
insert_row(LogWriter *writer, Size len)
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
note_row(LogWriter *writer, Size len)
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
oldest_row(LogWriter *writer)
{
	WmsLogRows *log = &writer->store->log;

	return log->count == 0 ? 1 : log->first + writer->overlay->deleted;
}

/* Writes the row and begins the next.  progress: with the last row only. */
static void
flush_row(LogWriter *writer, uint16 flags, const WmsProgress *progress)
{
	WmsLogHeader header = {0};
	char	   *at = VARDATA(writer->data);
	Size		len;

	CHECK_FOR_INTERRUPTS();
	header.format = WMS_LOG_FORMAT;
	header.flags = flags | (writer->follows ? WMS_LOG_FOLLOWS : 0);
	header.server_version = PG_VERSION_NUM;
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
put(LogWriter *writer, const void *bytes, Size len)
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
put_bucket(LogWriter *writer, WmsRecordKind kind, const WmsBucket *bucket)
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
begin_record(LogWriter *writer, WmsBucket *bucket, Size large, bool lives)
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
end_record(LogWriter *writer)
{
	bool		was_split = writer->splitting && writer->follows;

	writer->splitting = false;
	if (was_split)
		flush_row(writer, 0, NULL);
	else
		writer->nrecords += writer->record_lives;
}

static int64
put_entry(LogWriter *writer, WmsBucket *bucket, const WmsRecord *record)
{
	int64		seq = begin_record(writer, bucket, (Size) record->key_len + record->value_len, true);
	char		small[SMALL_RECORD];
	char	   *at = small;

	*at++ = WMS_RECORD_ENTRY;
	*at++ = record->flags;
	at = put_bytes(at, &record->hash, sizeof(uint32));
	at = put_number(at, record->key_len);
	at = put_number(at, record->value_len);
	put(writer, small, at - small);
	put(writer, record->key, record->key_len);
	put(writer, record->value, record->value_len);
	end_record(writer);
	return seq;
}

static int64
put_segment(LogWriter *writer, WmsBucket *bucket, const WmsRecord *record)
{
	int64		seq = begin_record(writer, bucket, (Size) record->key_len + record->rows_len, true);
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
put_removed(LogWriter *writer, WmsBucket *bucket, const WmsEntry *entry)
{
	char		small[SMALL_RECORD];
	char	   *at = small;

	begin_record(writer, bucket, entry->key_len, false);
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
write_tombstones(LogWriter *writer)
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
		begin_record(writer, NULL, 0, false);
		writer->tombstones = true;
		put_bucket(writer, WMS_RECORD_CLOSED, bucket);
		end_record(writer);
	}
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
	{
		if (touched->bucket->state != WMS_BUCKET_LIVE)
			continue;
		for (private = touched->first; private != NULL; private = private->bucket_next)
		{
			if (private->entry.removed && private->stored)
				put_removed(writer, touched->bucket, &private->entry);
		}
	}
}

static void
write_entry(LogWriter *writer, WmsEntryPrivate *private)
{
	WmsRecord	record = {0};

	record.hash = private->entry.hash;
	record.key_len = private->entry.key_len;
	record.key = private->entry.key;
	if (private->changed)
	{
		record.flags = private->entry.flags;
		record.value_len = private->staged_len;
		record.value = private->staged;
		private->seq = put_entry(writer, private->bucket, &record);
	}
	if (private->kept)
	{
		record.ordinal = private->more ? private->more->nsegments : 0;
		record.nrows = private->kept->nrows;
		record.rows_len = private->kept->len;
		record.rows = private->kept->data;
		private->segment_seq = put_segment(writer, private->bucket, &record);
	}
}

static void
write_entries(LogWriter *writer)
{
	WmsTouched *touched;
	WmsEntryPrivate *private;

	for (touched = writer->overlay->touched; touched != NULL; touched = touched->next)
	{
		if (touched->bucket->state != WMS_BUCKET_LIVE && touched->bucket->state != WMS_BUCKET_NEW)
			continue;
		for (private = touched->first; private != NULL; private = private->bucket_next)
		{
			CHECK_FOR_INTERRUPTS();
			if (!private->entry.removed)
				write_entry(writer, private);
		}
	}
}

/* ---------------------------------------------------------------- what this batch makes obsolete */

typedef struct Obsolete
{
	int64		newest;			/* records of the newest row */
	int64		bytes;			/* of all rows, about */
} Obsolete;

static void
count_obsolete(WmsStore *store, int64 seq, Obsolete *obsolete)
{
	int64		last = store->log.first + store->log.count - 1;

	if (seq < store->log.first || seq > last)
		return;
	obsolete->newest += seq == last;
	obsolete->bytes += row_at(store, seq - store->log.first)->average;
}

/* Touched entries only: other entries of closing buckets are counted when they have gone. */
static void
find_obsolete(WmsStore *store, Obsolete *obsolete)
{
	WmsEntryPrivate *private;

	for (private = store->overlay->first; private != NULL; private = private->next)
	{
		bool		leaves = private->entry.removed || private->bucket->state == WMS_BUCKET_CLOSING;
		WmsMore    *more = private->more;
		uint32		i;

		if (private->stored == NULL || !(leaves || private->changed))
			continue;
		count_obsolete(store, private->stored_seq, obsolete);
		for (i = 0; leaves && more && i < more->nsegments; i++)
			count_obsolete(store, wms_more_segment(store, more, i)->seq, obsolete);
	}
}

/* May the newest row be written over?  Its tombstones count only if there are rows before it. */
static bool
newest_is_dead(WmsStore *store, const Obsolete *obsolete)
{
	WmsLogRow  *newest;

	if (store->log.count == 0)
		return false;
	newest = row_at(store, store->log.count - 1);
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
move_record(LogWriter *writer, const WmsRecord *record, int64 seq, StringInfo key)
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
			note_move(writer->overlay, stored, NULL, put_entry(writer, bucket, record));
	}
	else if (DsaPointerIsValid(stored->more))
	{
		WmsMore    *more = wms_area_address(store, stored->more);
		WmsSegment *segment = wms_more_segment(store, more, record->ordinal);

		if (segment && segment->seq == seq)
			note_move(writer->overlay, NULL, segment, put_segment(writer, bucket, record));
	}
}

static void
move_records(LogWriter *writer, const char *data, Size len, int64 seq)
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
compact_rows(LogWriter *writer, WmsLogScan scan, int64 seq, int64 nrows, bool move)
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

	while (i + n < store->log.count && row_at(store, i + n)->follows)
		n++;
	return n;
}

static void
compact(LogWriter *writer, const Obsolete *obsolete)
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
		WmsLogRow  *row = row_at(store, overlay->deleted);
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
			cost -= row_cost(row_at(store, overlay->deleted + i));
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
writer_begin(LogWriter *writer, WmsStore *store, WmsLogTable *log, bool replace)
{
	WmsOverlay *overlay = store->overlay;

	memset(writer, 0, sizeof(LogWriter));
	writer->store = store;
	writer->overlay = overlay;
	writer->log = log;
	writer->row_context = AllocSetContextCreate(overlay->context, "wmstream log row", ALLOCSET_DEFAULT_SIZES);
	writer->data = MemoryContextAlloc(overlay->context, VARHDRSZ + WMS_LOG_ROW_BYTES);
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
	LogWriter	writer;
	Obsolete	obsolete = {0, 0};

	move_horizons(store, progress->watermark);
	revive_new_buckets(store);
	find_obsolete(store, &obsolete);

	wms_log_open(&log, RowExclusiveLock);
	writer_begin(&writer, store, &log, newest_is_dead(store, &obsolete));
	write_tombstones(&writer);
	write_entries(&writer);
	compact(&writer, &obsolete);
	flush_row(&writer, 0, progress);
	wms_rows_reserve(store, overlay->nrows);
	overlay->nremovable = count_removable(store, log.table);

	CatalogCloseIndexes(writer.indexes);
	wms_log_close(&log);
}

/* After COMMIT: what wms_log_write did is true now.  Obsolete versions have been taken off their rows. */
void
wms_log_publish(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;
	int64		i;

	if (overlay->replaced)
	{
		store->log.count--;
		forget_row(store, row_at(store, store->log.count));
	}
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
