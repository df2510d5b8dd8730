/*
 * state_arena.c
 *	  Blocks of a bucket's memory: entries in its chunks, everything else in its
 *	  heap.
 *
 * Chunks hold entries only, back to back, so that readers can walk them.  The *heap* holds what entries
 * point to: values that outgrew their room, kept rows.  Both grow by half of what they have, up to
 * 256 kB at a time, and are freed whole with the bucket.
 *
 * Freed blocks go to lists by size class and are used again; classes lie at most a quarter apart, so that what a
 * never-closing bucket wastes stays in proportion.  Blocks of the heap above 8 kB are the area's own and go
 * back to it.  The lists exist only where a prepared batch is going to free something
 * (wms_arena_expect_free), because publishing must not allocate.
 *
 * What a batch took is given back by the discard functions: chunks and heap return to their
 * marks (WmsTouched), blocks that came from a list return to it.
 *
 * An entry freed stays where it is, marked as removed; its header keeps telling its size
 * until a new entry is published there.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "state/state_internal.h"

#define CHUNK_MIN ((Size) 256)
#define CHUNK_MAX ((Size) 256 * 1024)

/* Up to here classes are multiples of a grain; then four to each doubling, up to the greatest. */
#define CLASS_FINE ((Size) 256)
#define CLASS_GREATEST ((Size) 8192)
#define CLASS_STEPS 20
#define ENTRY_GRAIN 8
#define HEAP_GRAIN 16
#define ENTRY_CLASSES ((int) (CLASS_FINE / ENTRY_GRAIN) + CLASS_STEPS)
#define HEAP_CLASSES ((int) (CLASS_FINE / HEAP_GRAIN) + CLASS_STEPS)

/* A free block of the heap. */
typedef struct FreeBlock
{
	struct FreeBlock *next;
	dsa_pointer dp;
} FreeBlock;

/* A free entry: the link lies behind the header, which readers still read. */
#define FREE_ENTRY_NEXT(stored) (*(WmsStored **) WMS_STORED_KEY(stored))

typedef struct FreeLists
{
	WmsStored  *entries[ENTRY_CLASSES];
	WmsStored  *large_entries;
	FreeBlock  *blocks[HEAP_CLASSES];
} FreeLists;

/* Head of a heap's chunk and of a block that is the area's own. */
typedef struct HeapChunk
{
	dsa_pointer next;
	Size		size;			/* all of it */
} HeapChunk;

typedef struct LargeBlock
{
	struct LargeBlock *prev;
	struct LargeBlock *next;
	dsa_pointer dp;
	Size		size;			/* all of it */
} LargeBlock;

struct WmsHeap
{
	int			op;				/* the bucket's */
	WmsHeapMark mark;
	LargeBlock *large;
	FreeLists  *lists;			/* NULL: nothing was ever freed */
};

static int
size_class(Size size, Size grain, Size *rounded)
{
	int			power;
	Size		step;

	if (size <= CLASS_FINE)
	{
		*rounded = TYPEALIGN(grain, size);
		return (int) (*rounded / grain) - 1;
	}
	power = pg_leftmost_one_pos64(size - 1);
	step = ((Size) 1 << power) / 4;
	*rounded = TYPEALIGN(step, size);
	return (int) (CLASS_FINE / grain) + (power - 8) * 4 + (int) ((*rounded - ((Size) 1 << power)) / step) - 1;
}

static WmsHeap *
heap_of(WmsStore *store, WmsBucket *bucket)
{
	if (bucket->heap == NULL)
	{
		bucket->heap = MemoryContextAllocZero(store->context, sizeof(WmsHeap));
		bucket->heap->op = bucket->key.op;
	}
	return bucket->heap;
}

static Size
next_chunk(Size need, Size have)
{
	return Max(need, Max(CHUNK_MIN, Min(CHUNK_MAX, have / 2)));
}

void
wms_arena_expect_free(WmsStore *store, WmsBucket *bucket)
{
	WmsHeap    *heap = heap_of(store, bucket);

	if (heap->lists == NULL)
		heap->lists = MemoryContextAllocZero(store->context, sizeof(FreeLists));
}

/* ---------------------------------------------------------------- entries */

Size
wms_stored_size(Size key_len, Size value_len)
{
	Size		size = MAXALIGN(sizeof(WmsStored)) + MAXALIGN(key_len) + MAXALIGN(value_len);
	Size		rounded;

	/* a removed entry must have room for a link */
	size = Max(size, MAXALIGN(sizeof(WmsStored)) + MAXALIGN(sizeof(WmsStored *)));
	if (size > CLASS_GREATEST)
		return size;
	size_class(size, ENTRY_GRAIN, &rounded);
	return rounded;
}

/* A new last chunk; readers do not know of it before the batch is published. */
static void
arena_grow(WmsStore *store, WmsBucket *bucket, Size size)
{
	WmsTouched *touched = bucket->touched;
	Size		need = touched ? Max(size, Min(touched->need, CHUNK_MAX)) : size;
	Size		header = MAXALIGN(sizeof(WmsChunk));
	Size		bytes = wms_area_round(header + next_chunk(need, bucket->chunk_bytes));
	dsa_pointer dp = wms_area_allocate(store, bucket->key.op, bytes);
	WmsChunk   *chunk = wms_area_address(store, dp);

	memset(chunk, 0, sizeof(WmsChunk));
	chunk->next = InvalidDsaPointer;
	chunk->size = bytes - header;
	if (touched && !DsaPointerIsValid(touched->chunks))
		touched->chunks = dp;
	else
		bucket->tail->next = dp;
	bucket->tail = chunk;
	bucket->chunk_bytes += chunk->size;
}

static WmsStored *
take_hole(WmsBucket *bucket, Size size)
{
	FreeLists  *lists = bucket->heap ? bucket->heap->lists : NULL;
	WmsStored **link;
	WmsStored  *found;
	Size		rounded;

	if (lists == NULL)
		return NULL;
	if (size <= CLASS_GREATEST)
		link = &lists->entries[size_class(size, ENTRY_GRAIN, &rounded)];
	else
	{
		link = &lists->large_entries;
		while (*link != NULL && (WMS_STORED_SIZE(*link) < size || WMS_STORED_SIZE(*link) / 2 > size))
			link = &FREE_ENTRY_NEXT(*link);
	}
	found = *link;
	if (found)
		*link = FREE_ENTRY_NEXT(found);
	return found;
}

WmsStored *
wms_arena_entry(WmsStore *store, WmsBucket *bucket, Size size, bool *hole)
{
	WmsStored  *stored = take_hole(bucket, size);

	*hole = stored != NULL;
	if (stored == NULL)
	{
		if (bucket->tail->size - bucket->tail->bump < size)
			arena_grow(store, bucket, size);
		stored = (WmsStored *) (WMS_CHUNK_DATA(bucket->tail) + bucket->tail->bump);
		bucket->tail->bump += size;
	}
	if (bucket->touched)
		bucket->touched->need -= Min(bucket->touched->need, size);
	return stored;
}

/* Needs the lists, if the entry was ever published. */
void
wms_arena_free_entry(WmsStore *store, WmsBucket *bucket, WmsStored *stored)
{
	FreeLists  *lists = bucket->heap->lists;
	WmsStored **link;
	Size		size = WMS_STORED_SIZE(stored);
	Size		rounded;

	Assert(stored->own & WMS_STORED_REMOVED);
	if (size <= CLASS_GREATEST)
		link = &lists->entries[size_class(size, ENTRY_GRAIN, &rounded)];
	else
		link = &lists->large_entries;
	FREE_ENTRY_NEXT(stored) = *link;
	*link = stored;
}

/* Readers may see what the batch put into the chunks.  Under the lock. */
void
wms_arena_publish(WmsStore *store, WmsTouched *touched)
{
	WmsChunk   *chunk = touched->old_tail;

	if (DsaPointerIsValid(touched->chunks))
		chunk->next = touched->chunks;
	for (;;)
	{
		chunk->used = chunk->bump;
		if (!DsaPointerIsValid(chunk->next))
			break;
		chunk = wms_area_address(store, chunk->next);
	}
}

static void
free_chunks(WmsStore *store, WmsBucket *bucket, dsa_pointer dp)
{
	while (DsaPointerIsValid(dp))
	{
		WmsChunk   *chunk = wms_area_address(store, dp);
		dsa_pointer next = chunk->next;

		wms_area_free(store, bucket->key.op, dp, MAXALIGN(sizeof(WmsChunk)) + chunk->size);
		dp = next;
	}
}

void
wms_arena_free_chunks(WmsStore *store, WmsBucket *bucket)
{
	free_chunks(store, bucket, bucket->shared->first.next);
}

/* ---------------------------------------------------------------- heap */

static dsa_pointer
heap_large(WmsStore *store, WmsHeap *heap, Size size, void **ptr)
{
	Size		header = MAXALIGN(sizeof(LargeBlock));
	Size		bytes = wms_area_round(header + size);
	dsa_pointer dp = wms_area_allocate(store, heap->op, bytes);
	LargeBlock *block = wms_area_address(store, dp);

	block->dp = dp;
	block->size = bytes;
	block->prev = NULL;
	block->next = heap->large;
	if (heap->large)
		heap->large->prev = block;
	heap->large = block;
	*ptr = (char *) block + header;
	return dp + header;
}

static void
heap_free_large(WmsStore *store, WmsHeap *heap, dsa_pointer dp)
{
	LargeBlock *block = wms_area_address(store, dp - MAXALIGN(sizeof(LargeBlock)));

	if (block->prev)
		block->prev->next = block->next;
	else
		heap->large = block->next;
	if (block->next)
		block->next->prev = block->prev;
	wms_area_free(store, heap->op, block->dp, block->size);
}

static void
heap_grow(WmsStore *store, WmsHeap *heap, Size need)
{
	Size		header = MAXALIGN(sizeof(HeapChunk));
	Size		bytes = wms_area_round(header + next_chunk(need, heap->mark.bytes));
	dsa_pointer dp = wms_area_allocate(store, heap->op, bytes);
	HeapChunk  *chunk = wms_area_address(store, dp);

	chunk->next = heap->mark.chunk;
	chunk->size = bytes;
	heap->mark.chunk = dp;
	heap->mark.at = (char *) chunk + header;
	heap->mark.left = bytes - header;
	heap->mark.bytes += bytes;
}

dsa_pointer
wms_heap_allocate(WmsStore *store, WmsBucket *bucket, Size size, void **ptr)
{
	WmsHeap    *heap = heap_of(store, bucket);
	Size		rounded;
	int			class;
	dsa_pointer dp;

	if (size > CLASS_GREATEST)
		return heap_large(store, heap, size, ptr);
	class = size_class(Max(size, HEAP_GRAIN), HEAP_GRAIN, &rounded);
	if (heap->lists && heap->lists->blocks[class])
	{
		FreeBlock  *block = heap->lists->blocks[class];

		heap->lists->blocks[class] = block->next;
		dp = block->dp;
		*ptr = block;
		return dp;
	}
	if (heap->mark.left < rounded)
		heap_grow(store, heap, rounded);
	*ptr = heap->mark.at;
	dp = heap->mark.chunk + (heap->mark.at - (char *) wms_area_address(store, heap->mark.chunk));
	heap->mark.at += rounded;
	heap->mark.left -= rounded;
	return dp;
}

/* size as it was asked for.  Blocks up to 8 kB need the lists. */
void
wms_heap_free(WmsStore *store, WmsBucket *bucket, dsa_pointer dp, Size size)
{
	WmsHeap    *heap = bucket->heap;
	FreeBlock  *block;
	Size		rounded;
	int			class;

	if (size > CLASS_GREATEST)
	{
		heap_free_large(store, heap, dp);
		return;
	}
	class = size_class(Max(size, HEAP_GRAIN), HEAP_GRAIN, &rounded);
	block = wms_area_address(store, dp);
	block->dp = dp;
	block->next = heap->lists->blocks[class];
	heap->lists->blocks[class] = block;
}

/* Frees the heap's chunks down to keep. */
static void
heap_free_chunks(WmsStore *store, WmsHeap *heap, dsa_pointer keep)
{
	dsa_pointer dp = heap->mark.chunk;

	while (dp != keep)
	{
		HeapChunk  *chunk = wms_area_address(store, dp);
		dsa_pointer next = chunk->next;

		wms_area_free(store, heap->op, dp, chunk->size);
		dp = next;
	}
}

void
wms_heap_destroy(WmsStore *store, WmsBucket *bucket)
{
	WmsHeap    *heap = bucket->heap;

	if (heap == NULL)
		return;
	while (heap->large)
		heap_free_large(store, heap, heap->large->dp + MAXALIGN(sizeof(LargeBlock)));
	heap_free_chunks(store, heap, InvalidDsaPointer);
	if (heap->lists)
		pfree(heap->lists);
	pfree(heap);
	bucket->heap = NULL;
}

/* ---------------------------------------------------------------- a batch taken back */

void
wms_arena_mark(WmsBucket *bucket, WmsTouched *touched)
{
	touched->old_tail = bucket->tail;
	touched->old_bytes = bucket->chunk_bytes;
	if (bucket->heap)
		touched->heap = bucket->heap->mark;
	else
		touched->heap.chunk = InvalidDsaPointer;
}

bool
wms_heap_has_lists(WmsBucket *bucket)
{
	return bucket->heap && bucket->heap->lists;
}

bool
wms_heap_is_large(Size size)
{
	return size > CLASS_GREATEST;
}

/*
 * Chunks and heap as they were before the batch; for a bucket that lives on.
 * With lists the batch's blocks of the heap have been freed one by one, into them.
 */
void
wms_arena_discard(WmsStore *store, WmsTouched *touched)
{
	WmsBucket  *bucket = touched->bucket;

	free_chunks(store, bucket, touched->chunks);
	bucket->tail = touched->old_tail;
	bucket->chunk_bytes = touched->old_bytes;
	bucket->tail->bump = bucket->tail->used;
	if (bucket->heap && bucket->heap->lists == NULL)
	{
		heap_free_chunks(store, bucket->heap, touched->heap.chunk);
		bucket->heap->mark = touched->heap;
	}
}

/* ---------------------------------------------------------------- what hangs on an entry */

const char *
wms_stored_value(WmsStore *store, const WmsStored *stored)
{
	if (DsaPointerIsValid(stored->more))
	{
		WmsMore    *more = wms_area_address(store, stored->more);

		if (DsaPointerIsValid(more->value))
			return wms_area_address(store, more->value);
	}
	return WMS_STORED_VALUE(stored);
}

WmsSegment *
wms_more_segment(WmsStore *store, const WmsMore *more, uint32 ordinal)
{
	dsa_pointer *array;

	if (ordinal >= more->nsegments)
		return NULL;
	if (more->segments_room == 0)
		return wms_area_address(store, more->segments);
	array = wms_area_address(store, more->segments);
	return DsaPointerIsValid(array[ordinal]) ? wms_area_address(store, array[ordinal]) : NULL;
}

void
wms_more_free(WmsStore *store, WmsBucket *bucket, dsa_pointer dp)
{
	WmsMore    *more = wms_area_address(store, dp);
	uint32		i;

	if (DsaPointerIsValid(more->value))
		wms_heap_free(store, bucket, more->value, more->value_room);
	for (i = 0; i < more->nsegments; i++)
	{
		WmsSegment *segment = wms_more_segment(store, more, i);
		dsa_pointer segment_dp = more->segments_room == 0 ? more->segments :
			((dsa_pointer *) wms_area_address(store, more->segments))[i];

		/* while loading there are gaps */
		if (segment == NULL)
			continue;
		wms_heap_free(store, bucket, segment_dp, MAXALIGN(sizeof(WmsSegment)) + segment->len);
	}
	if (more->segments_room > 0)
		wms_heap_free(store, bucket, more->segments, (Size) more->segments_room * sizeof(dsa_pointer));
	wms_heap_free(store, bucket, dp, sizeof(WmsMore));
}
