/*
 * state_overlay.c
 *	  What the open batch touches.
 *
 * The overlay is a hash table, in the batch's context, of the entries that this batch asked for.
 * The first touch of a committed entry copies what is small; else its WmsEntry points into shared memory, where
 * only we write and not before the batch is published.  Everything the batch does stands in the overlay
 * and in bucket objects marked NEW or CLOSING, so taking it back is forgetting it.
 *
 * The table goes by bucket, hash and key; an entry that was removed stays in it as a mark
 * that hides its committed form, until the same key is made anew and takes its slot.
 *
 * Begin, then get, keep, remove, close and the scans in any order, then prepare (state_publish.c).
 * A batch that is neither published nor discarded is discarded when its context is reset.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

#define TABLE_MIN 256
#define TABLE_FIRST_MAX 262144
#define POOL_ENTRIES 32
#define CLEAR_PIECE 32
#define KEPT_MIN ((Size) 128 - sizeof(WmsKeptRows))

static inline uint32
overlay_hash(const WmsBucket *bucket, uint32 hash)
{
	return murmurhash32(hash ^ bucket->salt);
}

static void
batch_context_reset(void *arg)
{
	WmsOverlay *overlay = arg;

	if (overlay->store && overlay->store->overlay == overlay)
		wms_state_discard(overlay->store);
}

static void
table_alloc(WmsOverlay *overlay, uint32 size)
{
	overlay->slots = MemoryContextAllocExtended(overlay->context, (Size) size * sizeof(WmsOverlaySlot),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	overlay->mask = size - 1;
}

void
wms_state_begin(WmsStore *store, MemoryContext batch)
{
	WmsOverlay *overlay;

	if (store->area == NULL || store->broken)
		elog(ERROR, "store of stream %u has lost its area or was not loaded", store->slot->stream);
	if (store->overlay)
		wms_state_discard(store);
	wms_store_collect(store);

	overlay = MemoryContextAllocZero(batch, sizeof(WmsOverlay));
	overlay->store = store;
	overlay->context = batch;
	table_alloc(overlay, pg_nextpower2_32(Min(TABLE_FIRST_MAX, Max(TABLE_MIN, store->last_touched * 2))));
	overlay->callback.func = batch_context_reset;
	overlay->callback.arg = overlay;
	store->overlay = overlay;
	MemoryContextRegisterResetCallback(batch, &overlay->callback);
}

static WmsOverlay *
open_overlay(WmsStore *store)
{
	if (store->overlay == NULL)
		elog(ERROR, "no batch is open");
	return store->overlay;
}

/* ---------------------------------------------------------------- the table */

/* Where a key's slot is, or close behind. */
static inline const WmsOverlaySlot *
overlay_place(const WmsOverlay *overlay, const WmsBucket *bucket, uint32 hash)
{
	return &overlay->slots[overlay_hash(bucket, hash) & overlay->mask];
}

/* The slot of a key: its entry, or the empty one where it belongs. */
static WmsOverlaySlot *
overlay_slot(WmsOverlay *overlay, const WmsBucket *bucket, uint32 hash, const WmsSought *sought)
{
	uint32		at = hash & overlay->mask;

	for (;;)
	{
		WmsOverlaySlot *slot = &overlay->slots[at];
		WmsEntryPrivate *private = slot->entry;

		if (private == NULL)
			return slot;
		if (slot->hash == hash && private->bucket == bucket && private->entry.hash == sought->hash &&
			wms_key_same(sought->ops, private->entry.key, private->entry.key_len, sought->key, sought->key_len))
			return slot;
		at = (at + 1) & overlay->mask;
	}
}

static void
overlay_grow(WmsOverlay *overlay)
{
	WmsOverlaySlot *old = overlay->slots;
	uint32		size = overlay->mask + 1;
	uint32		i;

	table_alloc(overlay, size * 2);
	for (i = 0; i < size; i++)
	{
		uint32		at = old[i].hash & overlay->mask;

		if (old[i].entry == NULL)
			continue;
		while (overlay->slots[at].entry != NULL)
			at = (at + 1) & overlay->mask;
		overlay->slots[at] = old[i];
	}
	pfree(old);
}

WmsEntryPrivate *
wms_overlay_find(WmsStore *store, WmsBucket *bucket, const WmsSought *sought, bool *removed)
{
	WmsEntryPrivate *private;

	*removed = false;
	if (bucket->touched == NULL)
		return NULL;
	private = overlay_slot(store->overlay, bucket, overlay_hash(bucket, sought->hash), sought)->entry;
	if (private && private->entry.removed)
	{
		*removed = true;
		return NULL;
	}
	return private;
}

/* ---------------------------------------------------------------- touching */

/*
 * The copies at its end are written before they are read.  In pieces: larger ones are cleared by an instruction that is slow to begin, and
 * what is read back soon after waits until it is done.
 */
static inline void
entry_clear(WmsEntryPrivate *private)
{
	char	   *at = (char *) private;

	StaticAssertStmt(offsetof(WmsEntryPrivate, small_key) + CLEAR_PIECE <= sizeof(WmsEntryPrivate), "pieces end within the entry");
	for (Size done = 0; done < offsetof(WmsEntryPrivate, small_key); done += CLEAR_PIECE)
		memset(at + done, 0, CLEAR_PIECE);
}

static WmsEntryPrivate *
entry_alloc(WmsOverlay *overlay)
{
	WmsEntryPrivate *private;

	if (overlay->pool_left == 0)
	{
		overlay->pool = MemoryContextAlloc(overlay->context, POOL_ENTRIES * sizeof(WmsEntryPrivate));
		overlay->pool_left = POOL_ENTRIES;
	}
	private = (WmsEntryPrivate *) overlay->pool;
	overlay->pool += sizeof(WmsEntryPrivate);
	overlay->pool_left--;
	entry_clear(private);
	return private;
}

static WmsTouched *
touch_bucket(WmsOverlay *overlay, WmsBucket *bucket)
{
	WmsTouched *touched = MemoryContextAllocZero(overlay->context, sizeof(WmsTouched));

	touched->bucket = bucket;
	touched->chunks = InvalidDsaPointer;
	wms_arena_mark(bucket, touched);
	if (overlay->touched_last)
		overlay->touched_last->next = touched;
	else
		overlay->touched = touched;
	overlay->touched_last = touched;
	bucket->touched = touched;
	return touched;
}

/* A copy of a small key in the entry itself; NULL: it is not small. */
static const char *
keep_key(WmsEntryPrivate *private, const char *key, uint32 key_len)
{
	if (key_len > WMS_SMALL_KEY)
		return NULL;
	return memcpy(private->small_key, key, key_len);
}

static void
entry_from_stored(WmsStore *store, WmsEntryPrivate *private, WmsBucket *bucket, WmsStored *stored)
{
	WmsEntry   *entry = &private->entry;

	private->bucket = bucket;
	private->stored = stored;
	entry->bucket = bucket->key;
	entry->hash = stored->hash;
	entry->flags = stored->flags;
	entry->key_len = stored->key_len;
	entry->key = keep_key(private, WMS_STORED_KEY(stored), stored->key_len);
	if (entry->key == NULL)
		entry->key = WMS_STORED_KEY(stored);
	entry->value_len = stored->value_len;
	entry->value = wms_stored_value(store, stored);
	if (entry->value_len <= WMS_SMALL_VALUE)
		entry->value = memcpy(private->small_value, entry->value, entry->value_len);
	entry->priv = private;
	private->stored_seq = wms_stored_seq(stored);
	private->stored_room = stored->room;
	private->stored_flags = stored->flags;
	if (DsaPointerIsValid(stored->more))
	{
		private->more = wms_area_address(store, stored->more);
		if (DsaPointerIsValid(private->more->value))
			private->stored_room = private->more->value_room;
		entry->nkept = private->more->nkept;
	}
}

static void
entry_from_key(WmsOverlay *overlay, WmsEntryPrivate *private, WmsBucket *bucket, const WmsSought *sought)
{
	WmsEntry   *entry = &private->entry;
	const char *key = keep_key(private, sought->key, sought->key_len);

	if (key == NULL)
		key = memcpy(MemoryContextAllocHuge(overlay->context, sought->key_len), sought->key, sought->key_len);
	private->bucket = bucket;
	entry->bucket = bucket->key;
	entry->hash = sought->hash;
	entry->is_new = true;
	entry->key_len = sought->key_len;
	entry->key = key;
	entry->value = "";
	entry->priv = private;
}

/* Enters an entry into the lists and the table's slot. */
static void
overlay_enter(WmsOverlay *overlay, WmsOverlaySlot *slot, uint32 hash, WmsEntryPrivate *private)
{
	WmsTouched *touched = private->bucket->touched;

	if (overlay->last)
		overlay->last->next = private;
	else
		overlay->first = private;
	overlay->last = private;
	if (touched->last)
		touched->last->bucket_next = private;
	else
		touched->first = private;
	touched->last = private;
	if (slot->entry == NULL)
		overlay->count++;
	slot->hash = hash;
	slot->entry = private;
	if (private->entry.is_new)
	{
		touched->nnew++;
		private->bucket->nlive++;
		if (private->bucket->filter)
			wms_filter_add(overlay->store, private->bucket, private->entry.hash);
	}
	/* three quarters full at most */
	if (overlay->count > overlay->mask - overlay->mask / 4)
		overlay_grow(overlay);
}

static const WmsStateOps *
ops_of(WmsStore *store, int32 op)
{
	if (op < 0 || op >= store->nops)
		elog(ERROR, "state has no operator %d", op);
	return &store->ops[op];
}

WmsEntry *
wms_state_get(WmsStore *store, const WmsBucketKey *key_of_bucket, uint32 hash,
			  const char *key, uint32 key_len, bool create)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsBucket  *bucket = wms_bucket_find(store, key_of_bucket);
	WmsSought	sought = {hash, key_len, key, ops_of(store, key_of_bucket->op)};
	WmsOverlaySlot *slot = NULL;
	WmsEntryPrivate *private;
	WmsStored  *stored = NULL;
	uint32		slot_hash;

	if (bucket == NULL)
	{
		if (!create)
			return NULL;
		bucket = wms_bucket_make(store, key_of_bucket);
	}
	slot_hash = overlay_hash(bucket, hash);
	slot = overlay_slot(overlay, bucket, slot_hash, &sought);
	if (slot->entry && !slot->entry->entry.removed)
		return &slot->entry->entry;

	if (slot->entry == NULL && !(bucket->filter && wms_filter_excludes(bucket->filter, hash)))
		stored = wms_index_find(store, bucket, &sought);
	if (stored == NULL && !create)
		return NULL;
	if (bucket->touched == NULL)
		touch_bucket(overlay, bucket);
	private = entry_alloc(overlay);
	if (stored)
		entry_from_stored(store, private, bucket, stored);
	else
		entry_from_key(overlay, private, bucket, &sought);
	overlay_enter(overlay, slot, slot_hash, private);
	return &private->entry;
}

/* ---------------------------------------------------------------- looking without touching */

static WmsEntry *
peek(WmsStore *store, WmsBucket *bucket, const WmsSought *sought)
{
	WmsOverlay *overlay = store->overlay;
	WmsStored  *stored = NULL;

	if (bucket->filter && wms_filter_excludes(bucket->filter, sought->hash))
		return NULL;
	if (bucket->touched)
	{
		WmsEntryPrivate *private = overlay_slot(overlay, bucket, overlay_hash(bucket, sought->hash), sought)->entry;

		if (private)
			return private->entry.removed ? NULL : &private->entry;
	}
	stored = wms_index_find(store, bucket, sought);
	if (stored == NULL)
	{
		wms_filter_missed(store, bucket);
		return NULL;
	}
	if (overlay->peeked == NULL)
		overlay->peeked = MemoryContextAlloc(overlay->context, sizeof(WmsEntryPrivate));
	entry_clear(overlay->peeked);
	entry_from_stored(store, overlay->peeked, bucket, stored);
	return &overlay->peeked->entry;
}

WmsEntry *
wms_state_peek(WmsStore *store, const WmsBucketKey *key_of_bucket, uint32 hash, const char *key, uint32 key_len)
{
	WmsBucket  *bucket = wms_bucket_find(store, key_of_bucket);
	WmsSought	sought = {hash, key_len, key, ops_of(store, key_of_bucket->op)};

	open_overlay(store);
	return bucket ? peek(store, bucket, &sought) : NULL;
}

void
wms_state_look(WmsStore *store, WmsLook *look)
{
	open_overlay(store);
	(void) ops_of(store, look->op);
	look->next = wms_bucket_walk(store, look->op, look->first);
}

WmsEntry *
wms_state_look_next(WmsStore *store, WmsLook *look)
{
	WmsSought	sought = {look->hash, look->key_len, look->key, &store->ops[look->op]};
	WmsBucket  *bucket;
	WmsEntry   *entry;

	while ((bucket = look->next) != NULL && bucket->key.end <= look->last && bucket->key.op == look->op)
	{
		look->next = bucket->order;
		entry = peek(store, bucket, &sought);
		if (entry)
			return entry;
	}
	return NULL;
}

WmsEntry *
wms_state_touch(WmsStore *store, WmsEntry *entry)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsEntryPrivate *peeked = entry->priv;
	WmsBucket  *bucket = peeked->bucket;
	WmsSought	sought = {entry->hash, entry->key_len, entry->key, ops_of(store, bucket->key.op)};
	WmsEntryPrivate *private;
	uint32		hash;

	if (peeked != overlay->peeked)
		return entry;
	hash = overlay_hash(bucket, sought.hash);
	if (bucket->touched == NULL)
		touch_bucket(overlay, bucket);
	private = entry_alloc(overlay);
	entry_from_stored(store, private, bucket, peeked->stored);
	overlay_enter(overlay, overlay_slot(overlay, bucket, hash, &sought), hash, private);
	return &private->entry;
}

void
wms_state_expect_new(WmsStore *store, const WmsBucketKey *key, uint32 hash)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsBucket  *bucket = wms_bucket_find(store, key);

	if (bucket)
		wms_prefetch_line(overlay_place(overlay, bucket, hash));
}

/* Nothing but requests in the loops that make them. */
void
wms_state_expect_slots(WmsStore *store, const WmsExpected *rows, int n)
{
	WmsOverlay *overlay = open_overlay(store);
	const void *touched[WMS_EXPECT_MAX];
	const void *places[WMS_EXPECT_MAX];
	int			i;

	for (i = 0; i < n; i++)
	{
		const WmsBucket *bucket = wms_bucket_find(store, &rows[i].bucket);

		touched[i] = bucket ? overlay_place(overlay, bucket, rows[i].hash) : NULL;
		places[i] = bucket ? wms_index_place(bucket, rows[i].hash) : NULL;
	}
	for (i = 0; i < n; i++)
		wms_prefetch_line(places[i]);
	for (i = 0; i < n; i++)
		wms_prefetch_line(touched[i]);
}

void
wms_state_expect_entries(WmsStore *store, const WmsExpected *rows, int n)
{
	WmsOverlay *overlay = open_overlay(store);
	const void *stored[WMS_EXPECT_MAX];
	const void *copies[WMS_EXPECT_MAX];
	int			nstored = 0;
	int			ncopies = 0;
	int			i;

	for (i = 0; i < n; i++)
	{
		const WmsBucket *bucket = wms_bucket_find(store, &rows[i].bucket);
		const void *place = bucket ? wms_index_place(bucket, rows[i].hash) : NULL;

		if (place && (stored[nstored] = wms_index_candidate(bucket, rows[i].hash, place)) != NULL)
			nstored++;
		if (bucket && (copies[ncopies] = overlay_place(overlay, bucket, rows[i].hash)->entry) != NULL)
			ncopies++;
	}
	for (i = 0; i < nstored; i++)
		wms_prefetch(stored[i]);
	for (i = 0; i < ncopies; i++)
		wms_prefetch(copies[i]);
}

void
wms_state_expect(WmsStore *store, const WmsExpected *rows, int n)
{
	wms_state_expect_slots(store, rows, n);
	wms_state_expect_entries(store, rows, n);
}

int64
wms_state_touched(WmsStore *store)
{
	return open_overlay(store)->count;
}

void
wms_state_keep(WmsStore *store, WmsEntry *entry, const char *row, uint32 len)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsKeptRows *kept = entry->priv->kept;
	Size		need = WMS_ROW_SIZE(len);
	WmsRow	   *into;

	if (kept == NULL)
	{
		Size		room = Max(KEPT_MIN, need);

		/* most entries keep a row or two: these lie behind the head */
		kept = MemoryContextAllocHuge(overlay->context, sizeof(WmsKeptRows) + room);
		kept->data = (char *) (kept + 1);
		kept->room = room;
		kept->len = 0;
		kept->nrows = 0;
		entry->priv->kept = kept;
	}
	else if (kept->room - kept->len < need)
	{
		Size		room = Max(kept->room * 2, kept->len + need);

		if (kept->data != (char *) (kept + 1))
			kept->data = repalloc_huge(kept->data, room);
		else
			kept->data = memcpy(MemoryContextAllocHuge(overlay->context, room), kept->data, kept->len);
		kept->room = room;
	}
	into = (WmsRow *) (kept->data + kept->len);
	/* padding is zero: it goes to disk */
	memset((char *) into + need - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
	into->len = len;
	into->spare = 0;
	memcpy((char *) into + MAXALIGN(sizeof(WmsRow)), row, len);
	kept->len += need;
	kept->nrows++;
	entry->nkept++;
}

void
wms_state_remove(WmsStore *store, WmsEntry *entry)
{
	open_overlay(store);
	if (entry->removed)
		return;
	Assert(entry->priv->bucket->touched != NULL);
	entry->removed = true;
	entry->priv->bucket->touched->removes = true;
	entry->priv->bucket->nlive--;
}

void
wms_state_shelve(WmsStore *store, WmsEntry *entry)
{
	WmsEntryPrivate *private = entry->priv;

	open_overlay(store);
	if (private->stored == NULL)
		return;
	private->shelved = true;
	private->bucket->touched->shelves = true;
}

void
wms_state_kept(WmsStore *store, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	int64		number;

	wms_state_kept_from(store, entry, 0, &number, fn, arg);
}

void
wms_state_kept_from(WmsStore *store, WmsEntry *entry, int64 from, int64 *number, WmsKeptFn fn, void *arg)
{
	WmsEntryPrivate *private = entry->priv;
	uint32		i;

	*number = 0;
	for (i = 0; private->more && i < private->more->nsegments; i++)
	{
		WmsSegment *segment = wms_more_segment(store, private->more, i);

		CHECK_FOR_INTERRUPTS();
		if (*number + segment->nrows <= from)
		{
			*number += segment->nrows;
			continue;
		}
		if (!wms_rows_each(WMS_SEGMENT_DATA(segment), segment->len, fn, arg))
			return;
	}
	if (private->kept)
		wms_rows_each(private->kept->data, private->kept->len, fn, arg);
}

/* ---------------------------------------------------------------- buckets */

bool
wms_state_next_bucket(WmsStore *store, WmsBucketKey *key)
{
	WmsBucket  *bucket;

	for (bucket = wms_bucket_after(store, key); bucket != NULL; bucket = bucket->order)
	{
		if (bucket->key.op != key->op)
			return false;
		/* all its entries removed: nothing is left to see */
		if (bucket->nlive > 0)
		{
			*key = bucket->key;
			return true;
		}
	}
	return false;
}

void
wms_state_close(WmsStore *store, const WmsBucketKey *key)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsBucket  *bucket = wms_bucket_find(store, key);

	if (bucket == NULL)
		return;
	wms_bucket_leave(store, bucket);
	bucket->state = bucket->state == WMS_BUCKET_NEW ? WMS_BUCKET_GONE : WMS_BUCKET_CLOSING;
	bucket->order = overlay->closing;
	overlay->closing = bucket;
}

/* ---------------------------------------------------------------- scans */

/* Is this committed entry in the overlay, removed or not? */
static WmsEntryPrivate *
touched_form(WmsOverlay *overlay, WmsBucket *bucket, WmsStored *stored)
{
	uint32		hash = overlay_hash(bucket, stored->hash);
	uint32		at = hash & overlay->mask;
	WmsEntryPrivate *private;

	while ((private = overlay->slots[at].entry) != NULL)
	{
		if (overlay->slots[at].hash == hash && private->stored == stored)
			return private;
		at = (at + 1) & overlay->mask;
	}
	return NULL;
}

/*
 * Committed entries.  One that was removed and made anew is not found by touched_form, since the new one has
 * its slot: those are rare, and looked for by key.
 */
static void
scan_stored(WmsStore *store, WmsBucket *bucket, WmsEntryFn fn, void *arg)
{
	WmsOverlay *overlay = store->overlay;
	const WmsChunk *chunk;
	WmsStored  *stored;
	WmsStored  *next = wms_bucket_first(store, bucket->shared, &chunk);

	while ((stored = next) != NULL)
	{
		WmsEntryPrivate temporary;

		CHECK_FOR_INTERRUPTS();
		next = wms_bucket_next(store, &chunk, stored);
		if (next && bucket->touched)
			wms_prefetch_line(overlay_place(overlay, bucket, next->hash));
		if (bucket->touched)
		{
			WmsSought	sought = {stored->hash, stored->key_len, WMS_STORED_KEY(stored), &store->ops[bucket->key.op]};
			WmsEntryPrivate *private = touched_form(overlay, bucket, stored);
			bool		removed;

			if (private == NULL && bucket->touched->removes && bucket->touched->nnew > 0 &&
				(wms_overlay_find(store, bucket, &sought, &removed) != NULL || removed))
				continue;
			if (private)
			{
				if (!private->entry.removed)
					fn(&private->entry, arg);
				continue;
			}
		}
		entry_clear(&temporary);
		entry_from_stored(store, &temporary, bucket, stored);
		fn(&temporary.entry, arg);
	}
}

void
wms_state_scan(WmsStore *store, const WmsBucketKey *key, WmsEntryFn fn, void *arg)
{
	WmsBucket  *bucket;
	WmsEntryPrivate *private;

	open_overlay(store);
	bucket = wms_bucket_find(store, key);
	if (bucket == NULL)
		return;
	if (bucket->shared)
		scan_stored(store, bucket, fn, arg);
	if (bucket->touched == NULL)
		return;
	for (private = bucket->touched->first; private != NULL; private = private->bucket_next)
	{
		CHECK_FOR_INTERRUPTS();
		if (private->entry.is_new && !private->entry.removed)
			fn(&private->entry, arg);
	}
}

void
wms_state_scan_pending(WmsStore *store, int op, WmsEntryFn fn, void *arg)
{
	WmsBucketKey before = {op, WMS_TIME_MIN, WMS_TIME_MIN};
	WmsBucket  *bucket;

	open_overlay(store);
	if (store->npending[op] == 0)
		return;
	for (bucket = wms_bucket_after(store, &before); bucket != NULL && bucket->key.op == op; bucket = bucket->order)
		if (bucket->npending > 0)
			scan_stored(store, bucket, fn, arg);
}

void
wms_state_scan_touched(WmsStore *store, int op, WmsEntryFn fn, void *arg)
{
	WmsOverlay *overlay = open_overlay(store);
	WmsEntryPrivate *private;

	for (private = overlay->first; private != NULL; private = private->next)
	{
		CHECK_FOR_INTERRUPTS();
		if (private->entry.bucket.op == op && !private->entry.removed)
			fn(&private->entry, arg);
	}
}
