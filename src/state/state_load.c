/*
 * state_load.c
 *	  Reading the log: records, and the store that they make.
 *
 * The newest row is read first, for the progress and the horizons; then all rows from the oldest on, each
 * record applied to the store at once (see state_log.c for their meaning).  Nobody else looks at
 * the area meanwhile: root->ready is false.  After an error the store is half-filled and good for
 * wms_store_destroy only.
 *
 * What cannot be is DATA_CORRUPTED: rows missing, records cut off, kept rows without their entry.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

typedef struct Loader
{
	WmsStore   *store;
	int64		seq;			/* row at hand */
	uint32		nrecords;		/* entries and segments in it */
	int64		headless;		/* entries of which only kept rows were read so far */
	int64		missing;		/* segments whose later ones were read already */
} Loader;

/* Bytes decide: a key is written to the log as it is stored. */
static const WmsStateOps bytes_only = {NULL, NULL, NULL, -1};

static void
corrupted(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the stream's state log cannot be read: %s", what),
			 errhint("Rebuild the stream with wmstream.resync().")));
}

/* ---------------------------------------------------------------- records */

static void
check_header(const char *data, Size len, WmsLogHeader *header)
{
	if (len < sizeof(WmsLogHeader))
		corrupted("a row is too short");
	memcpy(header, data, sizeof(WmsLogHeader));
	if (header->format != WMS_LOG_FORMAT)
		corrupted(psprintf("it has format %d, this version of wmstream reads %d", header->format, WMS_LOG_FORMAT));
	if (header->server_version / 10000 != WMS_SERVER_VERSION / 10000)
		corrupted(psprintf("it was written by PostgreSQL %d", header->server_version / 10000));
	if (len - sizeof(WmsLogHeader) < header->head_len)
		corrupted("a row is too short");
}

void
wms_log_check(const char *data, Size len, WmsLogHeader *header, uint64 fingerprint)
{
	check_header(data, len, header);
	if (header->fingerprint != fingerprint)
		corrupted("it belongs to another definition of the stream");
}

static const char *
take(WmsRecordReader *reader, Size len)
{
	const char *at = reader->at;

	if ((Size) (reader->end - at) < len)
		corrupted("a record is cut off");
	reader->at += len;
	return at;
}

static uint64
take_number(WmsRecordReader *reader)
{
	uint64		number = 0;
	int			shift = 0;
	unsigned char byte;

	do
	{
		if (reader->at == reader->end || shift > 63)
			corrupted("a record is cut off");
		byte = *(const unsigned char *) reader->at++;
		number |= (uint64) (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return number;
}

static void
take_bucket(WmsRecordReader *reader)
{
	WmsRecord  *record = &reader->record;

	memset(&record->bucket, 0, sizeof(record->bucket));
	record->revived = *take(reader, 1) != 0;
	record->bucket.op = (int32) take_number(reader);
	memcpy(&record->bucket.start, take(reader, sizeof(WmsTime)), sizeof(WmsTime));
	memcpy(&record->bucket.end, take(reader, sizeof(WmsTime)), sizeof(WmsTime));
}

/* Of a record BOTH, whose first half was shown as an ENTRY. */
static void
take_second_half(WmsRecordReader *reader)
{
	WmsRecord  *record = &reader->record;

	reader->segment_follows = false;
	record->kind = WMS_RECORD_SEGMENT;
	record->ordinal = 0;
	record->nrows = reader->nrows;
	record->rows_len = reader->rows_len;
	record->rows = reader->rows;
}

/* The next record but BUCKET ones, which only set record.bucket.  False at the end. */
bool
wms_record_next(WmsRecordReader *reader)
{
	WmsRecord  *record = &reader->record;
	bool		both;

	if (reader->segment_follows)
	{
		take_second_half(reader);
		return true;
	}
	for (;;)
	{
		if (reader->at == reader->end)
			return false;
		record->kind = *reader->at++;
		if (record->kind != WMS_RECORD_BUCKET)
			break;
		take_bucket(reader);
	}
	if (record->kind == WMS_RECORD_CLOSED)
	{
		take_bucket(reader);
		return true;
	}
	both = record->kind == WMS_RECORD_BOTH;
	if (both)
		record->kind = WMS_RECORD_ENTRY;
	if (record->kind < WMS_RECORD_ENTRY || record->kind > WMS_RECORD_REMOVED)
		corrupted("a record is of unknown kind");
	record->nrows = 0;
	record->rows_len = 0;
	if (record->kind == WMS_RECORD_ENTRY)
		record->flags = *(const uint8 *) take(reader, 1);
	memcpy(&record->hash, take(reader, sizeof(uint32)), sizeof(uint32));
	record->key_len = (uint32) take_number(reader);
	if (record->kind == WMS_RECORD_ENTRY)
		record->value_len = (uint32) take_number(reader);
	if (both)
	{
		reader->nrows = (uint32) take_number(reader);
		reader->rows_len = (Size) take_number(reader);
	}
	else if (record->kind == WMS_RECORD_SEGMENT)
	{
		record->ordinal = (uint32) take_number(reader);
		record->nrows = (uint32) take_number(reader);
		record->rows_len = (Size) take_number(reader);
	}
	record->key = take(reader, record->key_len);
	if (record->kind == WMS_RECORD_ENTRY)
		record->value = take(reader, record->value_len);
	if (both)
		reader->rows = take(reader, reader->rows_len);
	else if (record->kind == WMS_RECORD_SEGMENT)
		record->rows = take(reader, record->rows_len);
	reader->segment_follows = both;
	return true;
}

/* ---------------------------------------------------------------- entries */

static WmsStored *
load_find(Loader *loader, WmsBucket *bucket, const WmsRecord *record)
{
	WmsSought	sought = {record->hash, record->key_len, record->key, &bytes_only};

	return bucket->shared ? wms_index_find(loader->store, bucket, &sought) : NULL;
}

/* A new entry with room for a value of value_len. */
static WmsStored *
load_insert(Loader *loader, WmsBucket *bucket, const WmsRecord *record, Size value_len)
{
	WmsStore   *store = loader->store;
	Size		size = wms_stored_size(record->key_len, value_len);
	WmsStored  *stored;
	bool		hole;

	if (bucket->shared == NULL)
	{
		wms_bucket_reserve(store, bucket, size);
		wms_bucket_link(store, bucket);
	}
	if (bucket->index == NULL && bucket->nentries + 1 > WMS_INDEX_FROM)
		wms_index_build(store, bucket, bucket->nentries + 1);
	stored = wms_arena_entry(store, bucket, size, &hole);
	if (hole)
		size = WMS_STORED_SIZE(stored);
	memset(stored, 0, sizeof(WmsStored));
	stored->hash = record->hash;
	stored->key_len = record->key_len;
	stored->room = size - MAXALIGN(sizeof(WmsStored)) - MAXALIGN((Size) record->key_len);
	stored->more = InvalidDsaPointer;
	memcpy(WMS_STORED_KEY(stored), record->key, record->key_len);
	if (!hole)
		bucket->tail->used = bucket->tail->bump;
	if (bucket->index)
		wms_index_insert(store, bucket, stored, record->hash);
	bucket->nentries++;
	bucket->nlive++;
	wms_store_count(store, bucket, 1, 0, 0);
	return stored;
}

static WmsMore *
load_more(Loader *loader, WmsBucket *bucket, WmsStored *stored)
{
	WmsMore    *more;
	void	   *ptr;

	if (DsaPointerIsValid(stored->more))
		return wms_area_address(loader->store, stored->more);
	stored->more = wms_heap_allocate(loader->store, bucket, sizeof(WmsMore), &ptr);
	more = ptr;
	memset(more, 0, sizeof(WmsMore));
	more->value = InvalidDsaPointer;
	more->segments = InvalidDsaPointer;
	return more;
}

/* A value that does not fit into the entry. */
static void
load_value_elsewhere(Loader *loader, WmsBucket *bucket, WmsStored *stored, const WmsRecord *record)
{
	WmsStore   *store = loader->store;
	WmsMore    *more = load_more(loader, bucket, stored);
	void	   *ptr;

	if (!DsaPointerIsValid(more->value) || more->value_room < record->value_len)
	{
		if (DsaPointerIsValid(more->value))
		{
			wms_arena_expect_free(store, bucket);
			wms_heap_free(store, bucket, more->value, more->value_room);
			more->value = InvalidDsaPointer;
		}
		more->value = wms_heap_allocate(store, bucket, record->value_len, &ptr);
		more->value_room = record->value_len;
	}
	memcpy(wms_area_address(store, more->value), record->value, record->value_len);
}

static void
load_entry(Loader *loader, WmsBucket *bucket, const WmsRecord *record)
{
	WmsStored  *stored = load_find(loader, bucket, record);

	if (stored == NULL)
		stored = load_insert(loader, bucket, record, record->value_len <= WMS_INLINE_MAX ? record->value_len : 0);
	else if (wms_stored_seq(stored) == 0)
		loader->headless--;
	else
		wms_log_unlog(loader->store, stored, false);
	if (record->value_len <= stored->room && wms_stored_value(loader->store, stored) == WMS_STORED_VALUE(stored))
		memcpy(WMS_STORED_VALUE(stored), record->value, record->value_len);
	else
		load_value_elsewhere(loader, bucket, stored, record);
	stored->value_len = record->value_len;
	wms_store_flags(loader->store, bucket, stored->flags, record->flags);
	stored->flags = record->flags;
	wms_stored_set_seq(stored, loader->seq);
	wms_rows_live(loader->store, loader->seq, 1);
}

/* ---------------------------------------------------------------- kept rows */

/* The array of segments with room for an ordinal; gaps are invalid pointers. */
static dsa_pointer *
load_array(Loader *loader, WmsBucket *bucket, WmsMore *more, uint32 ordinal)
{
	WmsStore   *store = loader->store;
	Size		room = Max(4, more->segments_room);
	dsa_pointer array;
	dsa_pointer *new;
	void	   *ptr;
	Size		i;

	if (ordinal < more->segments_room)
		return wms_area_address(store, more->segments);
	while (room <= ordinal)
		room *= 2;
	array = wms_heap_allocate(store, bucket, room * sizeof(dsa_pointer), &ptr);
	new = ptr;
	for (i = 0; i < room; i++)
		new[i] = InvalidDsaPointer;
	if (more->segments_room > 0)
	{
		memcpy(new, wms_area_address(store, more->segments), more->nsegments * sizeof(dsa_pointer));
		wms_arena_expect_free(store, bucket);
		wms_heap_free(store, bucket, more->segments, (Size) more->segments_room * sizeof(dsa_pointer));
	}
	else if (more->nsegments == 1)
		new[0] = more->segments;
	more->segments = array;
	more->segments_room = room;
	return new;
}

static void
load_place(Loader *loader, WmsBucket *bucket, WmsMore *more, uint32 ordinal, dsa_pointer segment)
{
	if (ordinal == 0 && more->nsegments == 0 && more->segments_room == 0)
	{
		more->segments = segment;
		more->nsegments = 1;
		return;
	}
	load_array(loader, bucket, more, ordinal)[ordinal] = segment;
	if (ordinal >= more->nsegments)
	{
		loader->missing += ordinal - more->nsegments;
		more->nsegments = ordinal + 1;
	}
	else
		loader->missing--;
}

static void
load_segment(Loader *loader, WmsBucket *bucket, const WmsRecord *record)
{
	WmsStore   *store = loader->store;
	WmsStored  *stored = load_find(loader, bucket, record);
	WmsMore    *more;
	WmsSegment *segment;

	if (stored == NULL)
	{
		stored = load_insert(loader, bucket, record, 0);
		loader->headless++;
	}
	if (record->ordinal > PG_INT32_MAX)
		corrupted("kept rows have an impossible number");
	more = load_more(loader, bucket, stored);
	segment = wms_more_segment(store, more, record->ordinal);
	if (segment)
		wms_rows_live(store, segment->seq, -1);
	else
	{
		void	   *ptr;
		dsa_pointer dp = wms_heap_allocate(store, bucket, MAXALIGN(sizeof(WmsSegment)) + record->rows_len, &ptr);

		segment = ptr;
		segment->nrows = record->nrows;
		segment->spare = 0;
		segment->len = record->rows_len;
		memcpy(WMS_SEGMENT_DATA(segment), record->rows, record->rows_len);
		load_place(loader, bucket, more, record->ordinal, dp);
		more->nkept += record->nrows;
		bucket->nkept += record->nrows;
		wms_store_count(store, bucket, 0, record->nrows, 0);
	}
	segment->seq = loader->seq;
	wms_rows_live(store, loader->seq, 1);
}

/* ---------------------------------------------------------------- tombstones */

/* What an entry that goes away leaves of our counts. */
static void
load_uncount(Loader *loader, WmsBucket *bucket, const WmsStored *stored)
{
	WmsStore   *store = loader->store;
	WmsMore    *more;
	uint32		i;

	wms_log_unlog(store, stored, true);
	wms_store_count(store, bucket, -1, 0, 0);
	wms_store_flags(store, bucket, stored->flags, 0);
	loader->headless -= wms_stored_seq(stored) == 0;
	if (!DsaPointerIsValid(stored->more))
		return;
	more = wms_area_address(store, stored->more);
	wms_store_count(store, bucket, 0, -more->nkept, 0);
	for (i = 0; i < more->nsegments; i++)
		loader->missing -= wms_more_segment(store, more, i) == NULL;
}

static void
load_drop_bucket(Loader *loader, WmsBucket *bucket)
{
	wms_bucket_leave(loader->store, bucket);
	if (bucket->shared)
		wms_bucket_unlink(loader->store, bucket);
	wms_store_count(loader->store, bucket, 0, 0, -1);
	wms_bucket_free(loader->store, bucket);
}

static void
load_closed(Loader *loader, WmsBucket *bucket)
{
	const WmsChunk *chunk;
	WmsStored  *stored;

	for (stored = wms_bucket_first(loader->store, bucket->shared, &chunk); stored != NULL;
		 stored = wms_bucket_next(loader->store, &chunk, stored))
		load_uncount(loader, bucket, stored);
	load_drop_bucket(loader, bucket);
}

static void
load_removed(Loader *loader, WmsBucket *bucket, const WmsRecord *record)
{
	WmsStore   *store = loader->store;
	WmsStored  *stored = load_find(loader, bucket, record);

	if (stored == NULL)
		return;
	load_uncount(loader, bucket, stored);
	wms_arena_expect_free(store, bucket);
	if (DsaPointerIsValid(stored->more))
	{
		bucket->nkept -= ((WmsMore *) wms_area_address(store, stored->more))->nkept;
		wms_more_free(store, bucket, stored->more);
	}
	wms_index_delete(bucket, stored, stored->hash);
	stored->more = InvalidDsaPointer;
	stored->own |= WMS_STORED_REMOVED;
	wms_arena_free_entry(store, bucket, stored);
	bucket->nlive--;
	if (--bucket->nentries == 0)
		load_drop_bucket(loader, bucket);
}

/* ---------------------------------------------------------------- rows */

static void
load_record(Loader *loader, const WmsRecord *record)
{
	WmsStore   *store = loader->store;
	bool		stands = record->kind == WMS_RECORD_ENTRY || record->kind == WMS_RECORD_SEGMENT;
	WmsBucket  *bucket;

	loader->nrecords += stands;
	if (record->bucket.op < 0 || record->bucket.op >= store->nops)
		corrupted("a record belongs to an operator that is not there");
	if (record->bucket.end <= store->horizons[record->bucket.op] && !record->revived)
		return;
	bucket = wms_bucket_find(store, &record->bucket);
	if (bucket == NULL)
	{
		if (!stands)
			return;
		bucket = wms_bucket_make(store, &record->bucket);
		bucket->state = WMS_BUCKET_LIVE;
		bucket->revived = record->revived;
		wms_store_count(store, bucket, 0, 0, 1);
	}
	switch (record->kind)
	{
		case WMS_RECORD_ENTRY:
			load_entry(loader, bucket, record);
			break;
		case WMS_RECORD_SEGMENT:
			load_segment(loader, bucket, record);
			break;
		case WMS_RECORD_REMOVED:
			load_removed(loader, bucket, record);
			break;
		case WMS_RECORD_CLOSED:
			load_closed(loader, bucket);
			break;
		case WMS_RECORD_BUCKET:
		case WMS_RECORD_BOTH:
			break;
	}
}

/* Enters a row into the book-keeping; its average is set when its records are known. */
static void
load_note_row(Loader *loader, int64 seq, Size len, bool follows)
{
	WmsStore   *store = loader->store;
	WmsLogRow	row = {0};

	if (seq != store->log.first + store->log.count)
		corrupted("rows are missing");
	row.bytes = len;
	row.follows = follows;
	wms_rows_reserve(store, 1);
	wms_rows_append(store, &row);
}

static void
load_body(Loader *loader, const char *body, Size len, Size row_bytes)
{
	WmsStore   *store = loader->store;
	WmsRecordReader reader = {body, body + len};
	WmsLogRow  *row;

	loader->nrecords = 0;
	row = &store->log.rows[store->log.offset + loader->seq - store->log.first];
	while (wms_record_next(&reader))
	{
		row->tombstones |= reader.record.kind == WMS_RECORD_REMOVED || reader.record.kind == WMS_RECORD_CLOSED;
		load_record(loader, &reader.record);
	}
	row->average = loader->nrecords > 0 ? row_bytes / loader->nrecords : 0;
	store->live_bytes += row->live * row->average;
}

/* A row, or the rows of a record that was cut.  False: there are no more. */
static bool
load_next(Loader *loader, WmsLogTable *log, WmsLogScan scan)
{
	char	   *body = NULL;
	Size		len = 0;
	Size		row_bytes = 0;
	WmsLogHeader header;
	HeapTuple	tuple;
	int64		seq = 0;

	do
	{
		struct varlena *row;
		Size		row_len;
		Size		skip;

		CHECK_FOR_INTERRUPTS();
		tuple = wms_log_next(log, scan, false, &seq);
		if (tuple == NULL)
		{
			if (body)
				corrupted("rows are missing");
			return false;
		}
		row = wms_log_data(log, tuple);
		row_len = VARSIZE(row) - VARHDRSZ;
		wms_log_check(VARDATA(row), row_len, &header, loader->store->fingerprint);
		if (((header.flags & WMS_LOG_FOLLOWS) != 0) != (body != NULL))
			corrupted("rows are missing");
		load_note_row(loader, seq, row_len, body != NULL);
		skip = sizeof(header) + header.head_len;
		if (body == NULL)
		{
			loader->seq = seq;
			body = VARDATA(row) + skip;
			len = row_len - skip;
			if (header.flags & WMS_LOG_CONTINUES)
				body = memcpy(MemoryContextAllocHuge(CurrentMemoryContext, len), body, len);
		}
		else
		{
			body = repalloc_huge(body, len + row_len - skip);
			memcpy(body + len, VARDATA(row) + skip, row_len - skip);
			len += row_len - skip;
			pfree(row);
		}
		row_bytes += row_len;
	} while (header.flags & WMS_LOG_CONTINUES);
	load_body(loader, body, len, row_bytes);
	return true;
}

/*
 * Windows that closed before are in no area any more.  A snapshot that does not see the batch which wrote the newest
 * row may want some of them.
 */
static void
load_dropped(WmsStore *store, HeapTuple tuple)
{
	FullTransactionId next = ReadNextFullTransactionId();
	TransactionId xid = HeapTupleHeaderGetXmin(tuple->t_data);
	uint32		epoch = EpochFromFullTransactionId(next);

	if (!TransactionIdIsNormal(xid))
		return;
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	store->root->dropped = FullTransactionIdFromEpochAndXid(epoch, xid);
}

/* Progress and horizons from the newest row. */
static bool
load_head(WmsStore *store, WmsLogTable *log, WmsProgress *progress)
{
	WmsLogScan	scan = wms_log_scan(log, store->stream, 0);
	int64		seq;
	HeapTuple	tuple = wms_log_next(log, scan, true, &seq);

	if (tuple)
	{
		struct varlena *row = wms_log_data(log, tuple);
		WmsLogHeader header;

		wms_log_check(VARDATA(row), VARSIZE(row) - VARHDRSZ, &header, store->fingerprint);
		if (!(header.flags & WMS_LOG_HEAD))
			corrupted("its newest row has no head");
		load_dropped(store, tuple);
		wms_head_decode(VARDATA(row) + sizeof(header), header.head_len, progress, store->horizons, store->nops,
						&store->log.first);
	}
	systable_endscan_ordered(scan);
	return tuple != NULL;
}

static void
load_rows(WmsStore *store, WmsLogTable *log)
{
	Loader		loader = {store};
	WmsLogScan	scan = wms_log_scan(log, store->stream, 0);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "wmstream load", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	while (load_next(&loader, log, scan))
		MemoryContextReset(context);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	systable_endscan_ordered(scan);
	if (loader.headless != 0 || loader.missing != 0)
		corrupted("kept rows are missing");
}

bool
wms_store_load(WmsStore *store, Oid stream, uint64 fingerprint, WmsProgress *progress)
{
	WmsLogTable log;
	bool		found;

	if (store->area == NULL || store->log.count > 0 || store->nbuckets > 0)
		elog(ERROR, "a state log can be loaded into an empty store only");
	store->broken = true;
	store->stream = stream;
	store->fingerprint = fingerprint;
	wms_log_open(&log, AccessShareLock, NULL);
	found = load_head(store, &log, progress);
	if (found)
		load_rows(store, &log);
	wms_log_close(&log);

	store->broken = false;
	LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
	store->root->ready = true;
	store->root->batches = found ? progress->counters[WMS_COUNT_BATCHES] : 0;
	LWLockRelease(&store->slot->lock);
	return found;
}

/* ---------------------------------------------------------------- progress alone: any backend */

bool
wms_state_read_progress(Oid stream, Snapshot snapshot, WmsProgress *progress)
{
	WmsLogTable log;
	WmsLogScan	scan;
	HeapTuple	tuple;
	int64		seq;

	wms_log_open(&log, AccessShareLock, snapshot);
	scan = wms_log_scan(&log, stream, 0);
	tuple = wms_log_next(&log, scan, true, &seq);
	if (tuple)
	{
		struct varlena *row = wms_log_data(&log, tuple);
		WmsLogHeader header;
		int64		first;

		check_header(VARDATA(row), VARSIZE(row) - VARHDRSZ, &header);
		if (!(header.flags & WMS_LOG_HEAD))
			corrupted("its newest row has no head");
		wms_head_decode(VARDATA(row) + sizeof(header), header.head_len, progress, NULL, 0, &first);
		pfree(row);
	}
	systable_endscan_ordered(scan);
	wms_log_close(&log);
	return tuple != NULL;
}

typedef struct ProgressTrial
{
	Oid			stream;
	Snapshot	snapshot;
	WmsProgress progress;
	bool		found;
} ProgressTrial;

static void
try_progress(void *arg)
{
	ProgressTrial *trial = arg;

	trial->found = wms_state_read_progress(trial->stream, trial->snapshot, &trial->progress);
}

/* What is there cannot be read, now or later; as against what stands in the way for a while, or what somebody wants. */
static bool
is_damage(const ErrorData *edata)
{
	int			category = ERRCODE_TO_CATEGORY(edata->sqlerrcode);

	return category == ERRCODE_INTERNAL_ERROR || category == ERRCODE_SYSTEM_ERROR;
}

bool
wms_state_try_progress(Oid stream, Snapshot snapshot, WmsProgress *progress, char **damage)
{
	ProgressTrial trial = {stream, snapshot};
	ErrorData  *edata = wms_in_subtransaction(try_progress, &trial, true);

	*damage = NULL;
	if (edata && !is_damage(edata))
		ReThrowError(edata);
	if (edata && edata->sqlerrcode == ERRCODE_DATA_CORRUPTED && edata->hint)
		*damage = psprintf("%s. %s", edata->message, edata->hint);
	else if (edata)
		*damage = psprintf("the stream's state log cannot be read: %s. Rebuild the stream with wmstream.resync().",
						   edata->message ? edata->message : "missing error text");
	else if (trial.found)
		*progress = trial.progress;
	return edata == NULL && trial.found;
}
