/*
 * state_publish.c
 *	  The end of a batch: prepare, then publish or discard.
 *
 * Prepare runs inside the transaction and does everything that may fail, its first half (reserve) before results are written, so that
 * a batch for which memory is short has not worked in vain:
 *	  stage     every touched entry that stays is encoded; what did not change is left out
 *	  reserve   blocks for new entries (written and indexed at once: no reader sees them yet), for
 *	            values that outgrew their room, for kept rows; copies of what is shelved
 *	  log       rows of wmstream.state_log (state_log.c)
 *	  tag       buckets that leave get our transaction id, for readers with older snapshots
 * After COMMIT publish makes it visible: it only copies, links and counts, and cannot fail.
 * Discard gives all reservations back, whatever prepare had done before its error; a batch whose transaction
 * has committed it publishes instead.
 *
 * Slices.  Publish holds the lock for about SLICE_ENTRIES entries or SLICE_BYTES at a time.
 * Between two slices readers find some entries of the batch new and others old, every entry whole;
 * root->publishing tells them, and root->version that a publish came between (state_read.c).
 *
 * A bucket whose last entry was removed leaves like a closed one, so that readers that stand in it
 * keep their footing.
 *
 * Shelves.  Entries that a batch shows, or takes away, without closing their bucket are copied as they were before it
 * into a bucket that is born closed by this batch: a *shelf*.  It has the key of the bucket they are in, so a reader that does not
 * see the batch finds two versions of such an entry, of which the older counts.  Shelves are not in the log.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

#define SLICE_ENTRIES 1000
#define SLICE_BYTES (1024 * 1024)

#define STAGE_BLOCK (64 * 1024)

/* Room for staged values, in the batch context. */
typedef struct Stage
{
	MemoryContext context;
	StringInfoData value;
	char	   *at;
	Size		left;
} Stage;

/* The bucket was there before and has lost its last entry. */
static inline bool
emptied(const WmsBucket *bucket)
{
	return bucket->state == WMS_BUCKET_LIVE && bucket->nlive == 0;
}

static Size
segment_size(const WmsKeptRows *kept)
{
	return MAXALIGN(sizeof(WmsSegment)) + kept->len;
}

/* ---------------------------------------------------------------- stage */

static const char *
stage_copy(Stage *stage, const char *bytes, Size len)
{
	Size		need = MAXALIGN(len);
	char	   *copy;

	if (need > STAGE_BLOCK / 4)
	{
		copy = MemoryContextAllocHuge(stage->context, need);
		memcpy(copy, bytes, len);
		return copy;
	}
	if (stage->left < need)
	{
		stage->at = MemoryContextAlloc(stage->context, STAGE_BLOCK);
		stage->left = STAGE_BLOCK;
	}
	copy = stage->at;
	memcpy(copy, bytes, len);
	stage->at += need;
	stage->left -= need;
	return copy;
}

static void
stage_value(WmsStore *store, WmsEntryPrivate *private, Stage *stage)
{
	WmsEntry   *entry = &private->entry;
	const WmsStateOps *ops = &store->ops[entry->bucket.op];
	WmsStored  *stored = private->stored;

	private->staged = entry->value;
	private->staged_len = entry->value_len;
	private->changed = stored == NULL || entry->flags != private->stored_flags;
	/* without a working form the operator has changed nothing */
	if (ops->encode == NULL || (entry->work == NULL && stored != NULL))
		return;
	resetStringInfo(&stage->value);
	ops->encode(entry, &stage->value, ops->arg);
	if (stored && entry->value_len == (uint32) stage->value.len &&
		memcmp(entry->value, stage->value.data, stage->value.len) == 0)
		return;
	private->changed = true;
	private->staged_len = stage->value.len;
	private->staged = stage_copy(stage, stage->value.data, stage->value.len);
}

static Size
block_size(const WmsEntryPrivate *private)
{
	return wms_stored_size(private->entry.key_len, private->staged_len <= WMS_INLINE_MAX ? private->staged_len : 0);
}

/* What the bucket will need, so that its memory is asked for in one piece. */
static void
stage_entry(WmsStore *store, WmsTouched *touched, WmsEntryPrivate *private, Stage *stage)
{
	if (private->entry.removed)
	{
		touched->frees |= private->stored != NULL;
		return;
	}
	stage_value(store, private, stage);
	if (private->stored == NULL)
		touched->need += block_size(private);
	else if (private->more)
		touched->frees |= private->kept != NULL ||
			private->staged_len > private->stored_room;
}

static void
stage_batch(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;
	Stage		stage = {.context = overlay->context};
	MemoryContext old = MemoryContextSwitchTo(overlay->context);
	WmsTouched *touched;
	WmsEntryPrivate *private;

	initStringInfo(&stage.value);
	MemoryContextSwitchTo(old);
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
	{
		if (!wms_bucket_stays(touched->bucket))
			continue;
		touched->need = 0;
		for (private = touched->first; private != NULL; private = private->bucket_next)
		{
			CHECK_FOR_INTERRUPTS();
			stage_entry(store, touched, private, &stage);
		}
	}
}

/* ---------------------------------------------------------------- reserve */

static WmsReserved *
reserved_of(WmsStore *store, WmsEntryPrivate *private)
{
	if (private->reserved == NULL)
	{
		private->reserved = MemoryContextAllocZero(store->overlay->context, sizeof(WmsReserved));
		private->reserved->value = InvalidDsaPointer;
		private->reserved->more = InvalidDsaPointer;
		private->reserved->segment = InvalidDsaPointer;
		private->reserved->segments = InvalidDsaPointer;
	}
	return private->reserved;
}

/* A new place for a value; one that grew is expected to grow on. */
static void
reserve_value(WmsStore *store, WmsEntryPrivate *private)
{
	WmsReserved *reserved = reserved_of(store, private);
	Size		room = private->staged_len;
	void	   *ptr;

	if (private->stored)
		room = wms_heap_is_large(room) ? room + room / 4 : (Size) pg_nextpower2_64(room);
	room = Min(room, PG_UINT32_MAX);
	reserved->value = wms_heap_allocate(store, private->bucket, room, &ptr);
	reserved->value_room = room;
	memcpy(ptr, private->staged, private->staged_len);
}

/* Room for one more pointer to a segment. */
static void
reserve_segments(WmsStore *store, WmsEntryPrivate *private, const WmsMore *more)
{
	WmsReserved *reserved = private->reserved;
	Size		room = more ? Max(4, (Size) more->segments_room * 2) : 0;
	void	   *ptr;

	if (more == NULL || more->nsegments == 0)
		return;
	if (more->segments_room > more->nsegments)
	{
		dsa_pointer *array = wms_area_address(store, more->segments);

		/* readers stop at nsegments */
		array[more->nsegments] = reserved->segment;
		return;
	}
	reserved->segments = wms_heap_allocate(store, private->bucket, room * sizeof(dsa_pointer), &ptr);
	reserved->segments_room = room;
	if (more->segments_room == 0)
		((dsa_pointer *) ptr)[0] = more->segments;
	else
		memcpy(ptr, wms_area_address(store, more->segments), more->nsegments * sizeof(dsa_pointer));
	((dsa_pointer *) ptr)[more->nsegments] = reserved->segment;
}

static void
reserve_kept(WmsStore *store, WmsEntryPrivate *private)
{
	WmsReserved *reserved = reserved_of(store, private);
	WmsKeptRows *kept = private->kept;
	void	   *ptr;

	reserved->segment = wms_heap_allocate(store, private->bucket, segment_size(kept), &ptr);
	reserved->segment_ptr = ptr;
	reserved->segment_ptr->nrows = kept->nrows;
	reserved->segment_ptr->spare = 0;
	reserved->segment_ptr->len = kept->len;
	memcpy(WMS_SEGMENT_DATA(reserved->segment_ptr), kept->data, kept->len);
	reserve_segments(store, private, private->more);
}

static void
reserve_more(WmsStore *store, WmsEntryPrivate *private)
{
	WmsReserved *reserved = private->reserved;
	WmsMore    *more;
	void	   *ptr;

	reserved->more = wms_heap_allocate(store, private->bucket, sizeof(WmsMore), &ptr);
	more = reserved->more_ptr = ptr;
	memset(more, 0, sizeof(WmsMore));
	more->value = reserved->value;
	more->value_room = reserved->value_room;
	more->segments = reserved->segment;
	if (private->kept)
	{
		more->nsegments = 1;
		more->nkept = private->kept->nrows;
	}
}

/* The header of a new entry.  In a hole it must go on telling the size, and readers may be looking at it. */
static void
reserve_header(WmsStore *store, WmsEntryPrivate *private, Size size)
{
	WmsStored  *block = private->block;
	WmsEntry   *entry = &private->entry;

	if (private->hole)
	{
		LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
		size = WMS_STORED_SIZE(block);
	}
	block->hash = entry->hash;
	block->key_len = entry->key_len;
	block->value_len = private->staged_len;
	block->room = size - MAXALIGN(sizeof(WmsStored)) - MAXALIGN((Size) entry->key_len);
	block->flags = entry->flags;
	block->more = InvalidDsaPointer;
	if (private->hole)
		LWLockRelease(&store->slot->lock);
	else
		block->own = 0;
	wms_stored_set_seq(block, 0);
}

static void
reserve_entry(WmsStore *store, WmsEntryPrivate *private)
{
	Size		size = block_size(private);
	bool		is_inline = private->staged_len <= WMS_INLINE_MAX;

	private->block = wms_arena_entry(store, private->bucket, size, &private->hole);
	reserve_header(store, private, size);
	memcpy(WMS_STORED_KEY(private->block), private->entry.key, private->entry.key_len);
	if (is_inline)
		memcpy(WMS_STORED_VALUE(private->block), private->staged, private->staged_len);
	else
		reserve_value(store, private);
	if (private->bucket->index)
	{
		wms_index_insert(store, private->bucket, private->block, private->entry.hash);
		private->indexed = true;
	}
}

static void
reserve_for(WmsStore *store, WmsEntryPrivate *private)
{
	if (private->stored == NULL)
		reserve_entry(store, private);
	else if (private->changed && private->staged_len > private->stored_room)
		reserve_value(store, private);
	if (private->kept)
		reserve_kept(store, private);
	if (private->reserved && private->more == NULL)
	{
		reserve_more(store, private);
		/* in a hole it waits: readers do not follow what is removed */
		if (private->block)
			private->block->more = private->reserved->more;
	}
}

static void
reserve_bucket(WmsStore *store, WmsTouched *touched)
{
	WmsBucket  *bucket = touched->bucket;
	WmsEntryPrivate *private;

	if (bucket->nlive == 0 && bucket->state == WMS_BUCKET_NEW)
		return;
	if (bucket->shared == NULL)
	{
		wms_bucket_reserve(store, bucket, touched->need);
		wms_arena_mark(bucket, touched);
	}
	if (touched->frees)
		wms_arena_expect_free(store, bucket);
	if (bucket->index == NULL && bucket->nentries + touched->nnew > WMS_INDEX_FROM)
		wms_index_build(store, bucket, bucket->nentries + touched->nnew);
	for (private = touched->first; private != NULL; private = private->bucket_next)
	{
		CHECK_FOR_INTERRUPTS();
		if (!private->entry.removed)
			reserve_for(store, private);
	}
}

/* ---------------------------------------------------------------- shelves */

static Size
kept_bytes(WmsStore *store, const WmsMore *more)
{
	Size		bytes = 0;
	uint32		i;

	for (i = 0; i < more->nsegments; i++)
		bytes += wms_more_segment(store, more, i)->len;
	return bytes;
}

/* The kept rows of a committed entry, all in one segment. */
static void
shelve_kept(WmsStore *store, WmsBucket *shelf, const WmsMore *more, WmsStored *copy)
{
	Size		bytes = kept_bytes(store, more);
	WmsMore    *more_copy;
	WmsSegment *segment;
	char	   *at;
	void	   *ptr;
	dsa_pointer dp;
	uint32		i;

	dp = wms_heap_allocate(store, shelf, MAXALIGN(sizeof(WmsSegment)) + bytes, &ptr);
	segment = ptr;
	segment->nrows = 0;
	segment->spare = 0;
	segment->len = bytes;
	at = WMS_SEGMENT_DATA(segment);
	for (i = 0; i < more->nsegments; i++)
	{
		WmsSegment *from = wms_more_segment(store, more, i);

		memcpy(at, WMS_SEGMENT_DATA(from), from->len);
		at += from->len;
		segment->nrows += from->nrows;
	}
	copy->more = wms_heap_allocate(store, shelf, sizeof(WmsMore), &ptr);
	more_copy = ptr;
	memset(more_copy, 0, sizeof(WmsMore));
	more_copy->value = InvalidDsaPointer;
	more_copy->segments = dp;
	more_copy->nsegments = 1;
	more_copy->nkept = more->nkept;
}

static void
shelve_entry(WmsStore *store, WmsBucket *shelf, WmsEntryPrivate *private)
{
	const WmsStored *stored = private->stored;
	Size		size = wms_stored_size(stored->key_len, stored->value_len);
	bool		hole;
	WmsStored  *copy = wms_arena_entry(store, shelf, size, &hole);

	Assert(!hole);
	memcpy(copy, stored, sizeof(WmsStored));
	copy->room = size - MAXALIGN(sizeof(WmsStored)) - MAXALIGN((Size) stored->key_len);
	copy->own = 0;
	copy->more = InvalidDsaPointer;
	memcpy(WMS_STORED_KEY(copy), WMS_STORED_KEY(stored), stored->key_len);
	memcpy(WMS_STORED_VALUE(copy), wms_stored_value(store, stored), stored->value_len);
	if (private->more && private->more->nsegments > 0)
		shelve_kept(store, shelf, private->more, copy);
}

/* Nobody reaches the shelf before it is published, so its chunks can be opened at once. */
static void
open_chunks(WmsStore *store, WmsSharedBucket *shared)
{
	WmsChunk   *chunk = &shared->first;

	for (;;)
	{
		chunk->used = chunk->bump;
		if (!DsaPointerIsValid(chunk->next))
			break;
		chunk = wms_area_address(store, chunk->next);
	}
}

/* Of a bucket that lives on; one that closes is kept as it is. */
static void
reserve_shelf(WmsStore *store, WmsTouched *touched)
{
	WmsEntryPrivate *private;
	Size		need = 0;

	for (private = touched->first; private != NULL; private = private->bucket_next)
	{
		if (private->shelved)
			need += wms_stored_size(private->stored->key_len, private->stored->value_len);
	}
	touched->shelf = wms_bucket_make_shelf(store, &touched->bucket->key);
	wms_bucket_reserve(store, touched->shelf, need);
	for (private = touched->first; private != NULL; private = private->bucket_next)
	{
		CHECK_FOR_INTERRUPTS();
		if (private->shelved)
			shelve_entry(store, touched->shelf, private);
	}
	open_chunks(store, touched->shelf->shared);
}

static void
reserve_batch(WmsStore *store)
{
	WmsTouched *touched;

	for (touched = store->overlay->touched; touched != NULL; touched = touched->next)
	{
		if (wms_bucket_stays(touched->bucket))
			reserve_bucket(store, touched);
		if (touched->shelves && touched->bucket->state == WMS_BUCKET_LIVE)
			reserve_shelf(store, touched);
	}
}

/* ---------------------------------------------------------------- tag */

/* Marks the buckets that leave with a transaction, or takes the mark off.  Uncommitted marks mean nothing to readers, so no slices. */
static void
tag_leaving(WmsStore *store, FullTransactionId xid)
{
	WmsOverlay *overlay = store->overlay;
	WmsBucket  *bucket;
	WmsTouched *touched;

	LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
	for (bucket = overlay->closing; bucket != NULL; bucket = bucket->order)
	{
		if (bucket->state == WMS_BUCKET_CLOSING)
			bucket->shared->closing = xid;
	}
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
	{
		if (emptied(touched->bucket))
			touched->bucket->shared->closing = xid;
	}
	LWLockRelease(&store->slot->lock);
}

void
wms_state_reserve(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;

	if (overlay == NULL)
		elog(ERROR, "no batch is open to be prepared");
	if (overlay->reserved)
		return;
	overlay->reserved = true;
	stage_batch(store);
	reserve_batch(store);
}

void
wms_state_prepare(WmsStore *store, const WmsProgress *progress)
{
	WmsOverlay *overlay = store->overlay;

	if (overlay == NULL || overlay->rows != NULL)
		elog(ERROR, "no batch is open to be prepared");
	wms_state_reserve(store);
	wms_log_write(store, progress);
	overlay->batches = progress->counters[WMS_COUNT_BATCHES];
	overlay->xid = GetTopFullTransactionId();
	overlay->tagged = true;
	tag_leaving(store, overlay->xid);
}

/* ---------------------------------------------------------------- publish */

/* How much was done since the lock was taken. */
typedef struct Slice
{
	int			entries;
	Size		bytes;
} Slice;

static void
slice_step(WmsStore *store, Slice *slice, Size bytes)
{
	slice->entries++;
	slice->bytes += bytes;
	if (slice->entries < SLICE_ENTRIES && slice->bytes < SLICE_BYTES)
		return;
	slice->entries = 0;
	slice->bytes = 0;
	LWLockRelease(&store->slot->lock);
	LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
}

static void
publish_removal(WmsStore *store, WmsEntryPrivate *private)
{
	WmsBucket  *bucket = private->bucket;
	WmsStored  *stored = private->stored;
	WmsMore    *more = private->more;

	wms_log_unlog(store, stored, true);
	wms_store_flags(store, bucket, stored->flags, 0);
	bucket->nentries--;
	wms_store_count(store, bucket, -1, more ? -more->nkept : 0, 0);
	if (more)
	{
		bucket->nkept -= more->nkept;
		wms_more_free(store, bucket, stored->more);
	}
	wms_index_delete(bucket, stored, stored->hash);
	stored->more = InvalidDsaPointer;
	stored->own |= WMS_STORED_REMOVED;
	wms_arena_free_entry(store, bucket, stored);
}

static void
publish_kept(WmsStore *store, WmsEntryPrivate *private, WmsMore *more)
{
	WmsReserved *reserved = private->reserved;

	if (DsaPointerIsValid(reserved->segments))
	{
		if (more->segments_room > 0)
			wms_heap_free(store, private->bucket, more->segments, (Size) more->segments_room * sizeof(dsa_pointer));
		more->segments = reserved->segments;
		more->segments_room = reserved->segments_room;
	}
	else if (more->nsegments == 0)
		more->segments = reserved->segment;
	more->nsegments++;
	more->nkept += private->kept->nrows;
}

/* Writes the new value where prepare found room for it. */
static void
publish_value(WmsStore *store, WmsEntryPrivate *private, WmsMore *more)
{
	WmsStored  *stored = private->stored;
	WmsReserved *reserved = private->reserved;

	if (reserved && DsaPointerIsValid(reserved->value))
	{
		if (more && DsaPointerIsValid(more->value))
			wms_heap_free(store, private->bucket, more->value, more->value_room);
		if (more)
		{
			more->value = reserved->value;
			more->value_room = reserved->value_room;
		}
	}
	else if (private->staged != private->entry.value)
		memcpy(unconstify(char *, wms_stored_value(store, stored)), private->staged, private->staged_len);
	stored->value_len = private->staged_len;
	if (unlikely(stored->flags != private->entry.flags))
		wms_store_flags(store, private->bucket, stored->flags, private->entry.flags);
	stored->flags = private->entry.flags;
}

static void
publish_change(WmsStore *store, WmsEntryPrivate *private)
{
	WmsStored  *stored = private->stored;
	WmsMore    *more = private->more;

	if (private->changed)
	{
		wms_log_unlog(store, stored, false);
		publish_value(store, private, more);
		wms_stored_set_seq(stored, private->seq);
	}
	if (private->kept && more)
		publish_kept(store, private, more);
	if (private->reserved && DsaPointerIsValid(private->reserved->more))
		stored->more = private->reserved->more;
	if (private->kept)
		private->reserved->segment_ptr->seq = private->segment_seq;
}

static void
publish_new(WmsStore *store, WmsEntryPrivate *private)
{
	wms_stored_set_seq(private->block, private->seq);
	if (private->kept)
		private->reserved->segment_ptr->seq = private->segment_seq;
	private->block->own = 0;
	if (private->entry.flags != 0)
		wms_store_flags(store, private->bucket, 0, private->entry.flags);
	private->bucket->nentries++;
	wms_store_count(store, private->bucket, 1, 0, 0);
}

static void
publish_removals(WmsStore *store, WmsTouched *touched, Slice *slice)
{
	WmsEntryPrivate *private = touched->removes ? touched->first : NULL;

	for (; private != NULL; private = private->bucket_next)
	{
		if (private->entry.removed && private->stored)
		{
			publish_removal(store, private);
			slice_step(store, slice, 0);
		}
	}
}

static void
publish_entries(WmsStore *store, WmsTouched *touched, Slice *slice)
{
	WmsEntryPrivate *private;
	WmsEntryPrivate *unasked = touched->first;

	for (private = touched->first; private != NULL; private = private->bucket_next)
	{
		if (private == unasked)
			unasked = wms_prefetch_group(private);
		if (private->entry.removed)
			continue;
		if (private->stored)
			publish_change(store, private);
		else
			publish_new(store, private);
		if (private->kept)
		{
			touched->bucket->nkept += private->kept->nrows;
			wms_store_count(store, touched->bucket, 0, private->kept->nrows, 0);
		}
		slice_step(store, slice, private->staged_len);
	}
}

static void
append_closed(WmsStore *store, WmsBucket *bucket)
{
	bucket->order = NULL;
	if (store->closed_last)
		store->closed_last->order = bucket;
	else
		store->closed_first = bucket;
	store->closed_last = bucket;
	store->nclosed++;
}

/* Goes to the end of the closed list; out of directory and order already. */
static void
retire(WmsStore *store, WmsBucket *bucket)
{
	wms_store_count(store, bucket, -bucket->nentries, -bucket->nkept, -1);
	store->npending[bucket->key.op] -= bucket->npending;
	append_closed(store, bucket);
	wms_index_free(bucket);
	wms_filter_free(bucket);
}

static void
publish_shelf(WmsStore *store, WmsTouched *touched, Slice *slice)
{
	WmsBucket  *shelf = touched->shelf;

	touched->shelf = NULL;
	shelf->shared->closing = store->overlay->xid;
	shelf->shared->closed = true;
	wms_bucket_link(store, shelf);
	append_closed(store, shelf);
	slice_step(store, slice, 0);
}

static void
publish_touched(WmsStore *store, WmsTouched *touched, Slice *slice)
{
	WmsBucket  *bucket = touched->bucket;
	bool		leaves = emptied(bucket);

	if (!wms_bucket_stays(bucket))
		return;
	if (bucket->shared == NULL)
	{
		/* made and emptied */
		wms_bucket_leave(store, bucket);
		wms_bucket_free(store, bucket);
		return;
	}
	if (touched->shelf)
		publish_shelf(store, touched, slice);
	/* removals first: a key may have been removed and made anew */
	publish_removals(store, touched, slice);
	wms_arena_publish(store, touched);
	publish_entries(store, touched, slice);
	bucket->touched = NULL;
	if (bucket->state == WMS_BUCKET_NEW)
	{
		wms_bucket_link(store, bucket);
		bucket->state = WMS_BUCKET_LIVE;
		wms_store_count(store, bucket, 0, 0, 1);
	}
	else if (leaves)
	{
		bucket->shared->closed = true;
		wms_bucket_leave(store, bucket);
		retire(store, bucket);
	}
}

/* A closed bucket: readers with old snapshots keep what was committed of it. */
static void
publish_closing(WmsStore *store, WmsBucket *bucket, Slice *slice)
{
	bucket->touched = NULL;
	if (bucket->state == WMS_BUCKET_GONE)
	{
		wms_bucket_free(store, bucket);
		return;
	}
	bucket->shared->closed = true;
	retire(store, bucket);
	slice_step(store, slice, 0);
}

/* What closes is dead in the log.  Nobody else looks at these fields: without the lock. */
static void
unlog_closing(WmsStore *store)
{
	WmsBucket  *bucket;

	for (bucket = store->overlay->closing; bucket != NULL; bucket = bucket->order)
	{
		const WmsChunk *chunk;
		WmsStored  *stored;

		if (bucket->state != WMS_BUCKET_CLOSING)
			continue;
		for (stored = wms_bucket_first(store, bucket->shared, &chunk); stored != NULL;
			 stored = wms_bucket_next(store, &chunk, stored))
			wms_log_unlog(store, stored, true);
		wms_index_free(bucket);
	}
}

static void
end_batch(WmsStore *store)
{
	store->last_touched = store->overlay->count;
	store->overlay->store = NULL;
	store->overlay = NULL;
}

void
wms_state_publish(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;
	WmsTouched *touched;
	WmsBucket  *bucket;
	Slice		slice = {0, 0};

	if (overlay == NULL || !overlay->tagged)
		elog(ERROR, "publishing a batch that was not prepared");
	unlog_closing(store);
	LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
	store->root->publishing = true;
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
		publish_touched(store, touched, &slice);
	while ((bucket = overlay->closing) != NULL)
	{
		overlay->closing = bucket->order;
		publish_closing(store, bucket, &slice);
	}
	store->root->publishing = false;
	store->root->ready = true;
	store->root->batches = overlay->batches;
	store->root->version++;
	LWLockRelease(&store->slot->lock);

	wms_log_publish(store);
	store->nremovable = overlay->nremovable;
	end_batch(store);
}

/* ---------------------------------------------------------------- discard */

static void
discard_block(WmsStore *store, WmsBucket *bucket, dsa_pointer dp, Size size)
{
	/* without lists the heap goes back to its mark, and only blocks of the area's own are freed one by one */
	if (DsaPointerIsValid(dp) && (wms_heap_is_large(size) || wms_heap_has_lists(bucket)))
		wms_heap_free(store, bucket, dp, size);
}

static void
discard_entry(WmsStore *store, WmsEntryPrivate *private)
{
	WmsBucket  *bucket = private->bucket;
	WmsReserved *reserved = private->reserved;

	if (private->indexed)
		wms_index_delete(bucket, private->block, private->entry.hash);
	if (private->hole)
		wms_arena_free_entry(store, bucket, private->block);
	if (reserved == NULL)
		return;
	discard_block(store, bucket, reserved->value, reserved->value_room);
	discard_block(store, bucket, reserved->more, sizeof(WmsMore));
	discard_block(store, bucket, reserved->segments, (Size) reserved->segments_room * sizeof(dsa_pointer));
	if (DsaPointerIsValid(reserved->segment))
		discard_block(store, bucket, reserved->segment, segment_size(private->kept));
}

static void
discard_touched(WmsStore *store, WmsTouched *touched)
{
	WmsBucket  *bucket = touched->bucket;
	WmsEntryPrivate *private;

	if (touched->shelf)
		wms_bucket_free(store, touched->shelf);
	bucket->touched = NULL;
	bucket->nlive = bucket->nentries;
	for (private = touched->first; private != NULL; private = private->bucket_next)
		discard_entry(store, private);
	if (bucket->shared)
		wms_arena_discard(store, touched);
	if (bucket->state == WMS_BUCKET_NEW)
	{
		wms_bucket_leave(store, bucket);
		wms_bucket_free(store, bucket);
	}
}

void
wms_state_discard(WmsStore *store)
{
	WmsOverlay *overlay = store->overlay;
	WmsTouched *touched;
	WmsBucket  *bucket;

	if (overlay == NULL)
		return;
	/* the area may have been freed under us: then there is nothing to give back */
	if (store->area == NULL)
	{
		end_batch(store);
		return;
	}
	if (overlay->tagged)
	{
		/* an error between COMMIT and publish: the log is ahead of us, so follow it */
		if (TransactionIdDidCommit(XidFromFullTransactionId(overlay->xid)))
		{
			wms_state_publish(store);
			return;
		}
		tag_leaving(store, InvalidFullTransactionId);
	}
	for (touched = overlay->touched; touched != NULL; touched = touched->next)
		discard_touched(store, touched);
	while ((bucket = overlay->closing) != NULL)
	{
		overlay->closing = bucket->order;
		if (bucket->state == WMS_BUCKET_CLOSING)
		{
			bucket->state = WMS_BUCKET_LIVE;
			wms_bucket_enter(store, bucket);
		}
		else
			wms_bucket_free(store, bucket);
	}
	end_batch(store);
}
