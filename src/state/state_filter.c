/*
 * state_filter.c
 *	  Which keys a bucket does not have.
 *
 * A join asks a dozen buckets for a key that one of them has, or none.  Each such question is a walk through the overlay's table and
 * the bucket's index, to find nothing.  So a bucket that is often asked in vain gets a *filter*: a small table of bits in
 * the worker's local memory, in which each of its hashes has set two bits of one word.  Where they are not both set, the key is not there.
 *
 * The filter may say that a key is there which is not (removed, taken back, or another's bits), never the reverse: it is built over
 * all entries of the bucket, those of the open batch among them, and every entry made later enters.  It is built anew, twice
 * as large, when it is full; a load begins without any.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

/* Entries to a word of a full filter: a fiftieth of what is asked in vain passes then, some thousandths of it when the filter is new. */
#define FILLED_ENTRIES 4
/* Fewer entries are soon looked at. */
#define FILTER_FROM 2
/* Filters from this size on are asked for against the bound of memory; smaller ones are counted with what comes next. */
#define ADMIT_BYTES ((Size) 48 * 1024)

struct WmsFilter
{
	uint32		mask;			/* words - 1 */
	int64		left;			/* entries until it is full */
	uint64		words[FLEXIBLE_ARRAY_MEMBER];
};

/* The hash's word, and its bits there. */
static inline uint64 *
word_of(WmsFilter *filter, uint32 hash, uint64 *bits)
{
	uint64		mixed = (uint64) murmurhash32(hash) * UINT64CONST(0x9E3779B97F4A7C15);

	*bits = UINT64CONST(1) << (mixed & 63) | UINT64CONST(1) << (mixed >> 6 & 63);
	return &filter->words[(mixed >> 32) & filter->mask];
}

static inline void
set_bits(WmsFilter *filter, uint32 hash)
{
	uint64		bits;
	uint64	   *word = word_of(filter, hash, &bits);

	*word |= bits;
	filter->left--;
}

static void
build(WmsStore *store, WmsBucket *bucket)
{
	uint32		words = pg_nextpower2_32((uint32) Min(bucket->nlive * 2 / FILLED_ENTRIES + 1, PG_INT32_MAX / 16));
	Size		size = offsetof(WmsFilter, words) + sizeof(uint64) * words;
	WmsFilter  *filter;
	const WmsChunk *chunk;
	WmsStored  *stored;
	WmsEntryPrivate *private;

	if (size >= ADMIT_BYTES)
		wms_store_admit(store, size);
	filter = MemoryContextAllocExtended(store->context, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	filter->mask = words - 1;
	filter->left = (int64) words * FILLED_ENTRIES;
	for (stored = bucket->shared ? wms_bucket_first(store, bucket->shared, &chunk) : NULL; stored != NULL;
		 stored = wms_bucket_next(store, &chunk, stored))
		set_bits(filter, stored->hash);
	for (private = bucket->touched ? bucket->touched->first : NULL; private != NULL; private = private->bucket_next)
	{
		if (private->entry.is_new)
			set_bits(filter, private->entry.hash);
	}
	wms_filter_free(bucket);
	bucket->filter = filter;
}

/* A key was looked for and is not there: from some number on, in proportion to what was looked through, a filter is worth its making. */
void
wms_filter_missed(WmsStore *store, WmsBucket *bucket)
{
	if (bucket->filter != NULL || ++bucket->missed < FILTER_FROM || bucket->missed < bucket->nlive / 4 || bucket->nlive < FILTER_FROM)
		return;
	build(store, bucket);
}

/* An entry was made. */
void
wms_filter_add(WmsStore *store, WmsBucket *bucket, uint32 hash)
{
	set_bits(bucket->filter, hash);
	if (bucket->filter->left <= 0)
		build(store, bucket);
}

bool
wms_filter_excludes(WmsFilter *filter, uint32 hash)
{
	uint64		bits;

	return (*word_of(filter, hash, &bits) & bits) != bits;
}

void
wms_filter_free(WmsBucket *bucket)
{
	if (bucket->filter)
		pfree(bucket->filter);
	bucket->filter = NULL;
	bucket->missed = 0;
}
