/*
 * state_bucket.c
 *	  The buckets of a store: found by key, walked in order, listed for readers.
 *
 * Live buckets, those that the open batch made among them, stand in a directory (a
 * hash table by key) and in an order (a skip list by operator, end, start), both in the
 * worker's local memory; so there may be hundreds of thousands, and coming and going costs a
 * logarithm.  Readers have a list of their own in shared memory, newest first, which also
 * holds closed buckets that old snapshots may ask for.
 *
 * A bucket object is one life of its key: closed, it leaves directory and order at once; should the key
 * come again, that is another object.  Dead objects are freed by the collector
 * (state_store.c) or, if the batch that made them never published them, at once.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

/* Largest first chunk; and how large chunks get. */
#define FIRST_CHUNK_MAX ((Size) 256 * 1024)

typedef struct DirectoryEntry
{
	WmsBucketKey key;
	WmsBucket  *bucket;
} DirectoryEntry;

/* The key with its padding zero, as hashing by bytes wants it. */
static inline void
clean_key(WmsBucketKey *clean, const WmsBucketKey *key)
{
	memset(clean, 0, sizeof(WmsBucketKey));
	clean->op = key->op;
	clean->start = key->start;
	clean->end = key->end;
}

static inline int
compare_keys(const WmsBucketKey *a, const WmsBucketKey *b)
{
	if (a->op != b->op)
		return a->op < b->op ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return 0;
}

void
wms_buckets_init(WmsStore *store)
{
	HASHCTL		control;

	store->order_version = 1;
	control.keysize = sizeof(WmsBucketKey);
	control.entrysize = sizeof(DirectoryEntry);
	control.hcxt = store->context;
	store->directory = hash_create("wmstream buckets", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	store->buckets_context = SlabContextCreate(store->context, "wmstream buckets", SLAB_DEFAULT_BLOCK_SIZE,
											   sizeof(WmsBucket));
}

/* ---------------------------------------------------------------- order */

/* The link that leads on from bucket (NULL: the head) on a level. */
static inline WmsBucket **
order_link(WmsStore *store, WmsBucket *bucket, int level)
{
	if (bucket == NULL)
		return &store->order[level];
	return level == 0 ? &bucket->order : &bucket->up[level - 1];
}

/* before[level] gets the last bucket less than key (or, with or_equal, not greater) on each level; NULL is the head. */
static void
order_search(WmsStore *store, const WmsBucketKey *key, bool or_equal, WmsBucket **before)
{
	WmsBucket  *at = NULL;
	int			level;

	for (level = WMS_ORDER_LEVELS - 1; level >= 0; level--)
	{
		WmsBucket  *next;

		while ((next = *order_link(store, at, level)) != NULL &&
			   compare_keys(&next->key, key) < (or_equal ? 1 : 0))
			at = next;
		before[level] = at;
	}
}

static int
random_levels(void)
{
	uint32		bits = pg_prng_uint32(&pg_global_prng_state);
	int			levels = 1;

	while (levels < WMS_ORDER_LEVELS && (bits & 3) == 0)
	{
		levels++;
		bits >>= 2;
	}
	return levels;
}

WmsBucket *
wms_bucket_after(WmsStore *store, const WmsBucketKey *key)
{
	WmsBucket  *before[WMS_ORDER_LEVELS];

	order_search(store, key, true, before);
	return *order_link(store, before[0], 0);
}

/* ---------------------------------------------------------------- directory */

/* Rows come to few buckets at a time: sliding windows to some dozens, most others to one or two. */
static inline WmsRecentBucket *
recent_slot(WmsStore *store, const WmsBucketKey *key)
{
	uint64		mix = ((uint64) key->end + (uint64) key->op) * UINT64CONST(0x9E3779B97F4A7C15) +
		(uint64) key->start * UINT64CONST(0xC2B2AE3D27D4EB4F);

	return &store->recent[(mix >> 40) % WMS_RECENT_BUCKETS];
}

WmsBucket *
wms_bucket_find(WmsStore *store, const WmsBucketKey *key)
{
	WmsRecentBucket *recent = recent_slot(store, key);
	WmsBucketKey clean;
	DirectoryEntry *found;

	if (recent->valid && compare_keys(&recent->key, key) == 0)
		return recent->bucket;
	clean_key(&clean, key);
	found = hash_search(store->directory, &clean, HASH_FIND, NULL);
	recent->valid = true;
	recent->key = *key;
	recent->bucket = found ? found->bucket : NULL;
	return recent->bucket;
}

/* A bucket came or went: what was found lately may not hold any more. */
static void
order_changed(WmsStore *store, const WmsBucketKey *key)
{
	recent_slot(store, key)->valid = false;
	store->order_version++;
}

/* Rows that come in order of time walk from the same bucket many times. */
WmsBucket *
wms_bucket_walk(WmsStore *store, int op, WmsTime first)
{
	WmsWalkStart *start = &store->starts[op];
	WmsBucketKey before = {op, WMS_TIME_MIN, first};

	if (start->version == store->order_version && start->first == first)
		return start->bucket;
	start->version = store->order_version;
	start->first = first;
	start->bucket = wms_bucket_after(store, &before);
	if (start->bucket && start->bucket->key.op != op)
		start->bucket = NULL;
	return start->bucket;
}

/* A bucket object of its own, in no directory. */
static WmsBucket *
bucket_alloc(WmsStore *store, const WmsBucketKey *key)
{
	WmsBucket  *bucket = MemoryContextAllocZero(store->buckets_context, sizeof(WmsBucket));

	clean_key(&bucket->key, key);
	bucket->salt = hash_bytes((const unsigned char *) &bucket->key, sizeof(WmsBucketKey));
	bucket->state = WMS_BUCKET_NEW;
	bucket->revived = key->end <= store->horizons[key->op];
	bucket->levels = random_levels();
	if (bucket->levels > 1)
		bucket->up = MemoryContextAllocZero(store->context, sizeof(WmsBucket *) * (bucket->levels - 1));
	return bucket;
}

/* Enters a bucket whose key is not there; cannot fail if the key was there a moment ago (a batch that is taken back). */
void
wms_bucket_enter(WmsStore *store, WmsBucket *bucket)
{
	WmsBucket  *before[WMS_ORDER_LEVELS];
	DirectoryEntry *entry;
	bool		found;
	int			level;

	entry = hash_search(store->directory, &bucket->key, HASH_ENTER, &found);
	Assert(!found);
	entry->bucket = bucket;
	order_search(store, &bucket->key, false, before);
	for (level = 0; level < bucket->levels; level++)
	{
		WmsBucket **link = order_link(store, before[level], level);

		*order_link(store, bucket, level) = *link;
		*link = bucket;
	}
	order_changed(store, &bucket->key);
}

void
wms_bucket_leave(WmsStore *store, WmsBucket *bucket)
{
	WmsBucket  *before[WMS_ORDER_LEVELS];
	int			level;

	hash_search(store->directory, &bucket->key, HASH_REMOVE, NULL);
	order_search(store, &bucket->key, false, before);
	for (level = 0; level < bucket->levels; level++)
	{
		WmsBucket **link = order_link(store, before[level], level);

		Assert(*link == bucket);
		*link = *order_link(store, bucket, level);
	}
	bucket->order = NULL;
	order_changed(store, &bucket->key);
}

/* A new live bucket; it is found from now on. */
WmsBucket *
wms_bucket_make(WmsStore *store, const WmsBucketKey *key)
{
	WmsBucket  *bucket = bucket_alloc(store, key);

	wms_bucket_enter(store, bucket);
	return bucket;
}

WmsBucket *
wms_bucket_make_shelf(WmsStore *store, const WmsBucketKey *key)
{
	return bucket_alloc(store, key);
}

/* ---------------------------------------------------------------- shared memory */

/* Its shared form, with a first chunk for need bytes of blocks as far as that is reasonable. */
void
wms_bucket_reserve(WmsStore *store, WmsBucket *bucket, Size need)
{
	Size		size = wms_area_round(sizeof(WmsSharedBucket) + Min(need, FIRST_CHUNK_MAX));
	dsa_pointer dp = wms_area_allocate(store, bucket->key.op, size);
	WmsSharedBucket *shared = wms_area_address(store, dp);

	memset(shared, 0, sizeof(WmsSharedBucket));
	shared->next = InvalidDsaPointer;
	shared->closing = InvalidFullTransactionId;
	shared->start = bucket->key.start;
	shared->end = bucket->key.end;
	shared->op = bucket->key.op;
	shared->first.next = InvalidDsaPointer;
	shared->first.size = size - sizeof(WmsSharedBucket);
	bucket->dp = dp;
	bucket->shared = shared;
	bucket->tail = &shared->first;
	bucket->chunk_bytes = shared->first.size;
}

void
wms_bucket_link(WmsStore *store, WmsBucket *bucket)
{
	bucket->shared->next = store->root->buckets;
	store->root->buckets = bucket->dp;
	bucket->prev = NULL;
	bucket->next = store->newest;
	if (store->newest)
		store->newest->prev = bucket;
	store->newest = bucket;
}

void
wms_bucket_unlink(WmsStore *store, WmsBucket *bucket)
{
	if (bucket->prev)
	{
		bucket->prev->shared->next = bucket->shared->next;
		bucket->prev->next = bucket->next;
	}
	else
	{
		store->root->buckets = bucket->shared->next;
		store->newest = bucket->next;
	}
	if (bucket->next)
		bucket->next->prev = bucket->prev;
}

void
wms_bucket_free(WmsStore *store, WmsBucket *bucket)
{
	wms_index_free(bucket);
	wms_filter_free(bucket);
	wms_heap_destroy(store, bucket);
	if (bucket->shared)
	{
		Size		size = sizeof(WmsSharedBucket) + bucket->shared->first.size;

		wms_arena_free_chunks(store, bucket);
		wms_area_free(store, bucket->key.op, bucket->dp, size);
	}
	if (bucket->up)
		pfree(bucket->up);
	pfree(bucket);
}

/* ---------------------------------------------------------------- walking the committed entries */

static WmsStored *
walk_chunk(WmsStore *store, const WmsChunk **chunk, Size offset)
{
	for (;;)
	{
		while (offset < (*chunk)->used)
		{
			WmsStored  *stored = (WmsStored *) (WMS_CHUNK_DATA(*chunk) + offset);

			if (!(stored->own & WMS_STORED_REMOVED))
				return stored;
			offset += WMS_STORED_SIZE(stored);
		}
		if (!DsaPointerIsValid((*chunk)->next))
			return NULL;
		*chunk = wms_area_address(store, (*chunk)->next);
		offset = 0;
	}
}

WmsStored *
wms_bucket_first(WmsStore *store, const WmsSharedBucket *shared, const WmsChunk **chunk)
{
	*chunk = &shared->first;
	return walk_chunk(store, chunk, 0);
}

WmsStored *
wms_bucket_next(WmsStore *store, const WmsChunk **chunk, WmsStored *stored)
{
	return walk_chunk(store, chunk, (char *) stored - WMS_CHUNK_DATA(*chunk) + WMS_STORED_SIZE(stored));
}
