/*
 * state_index.c
 *	  Finding an entry of a bucket by its key.
 *
 * A bucket of up to WMS_INDEX_FROM entries has no index: its entries are walked.  A larger one has a
 * hash index in the worker's local memory: a directory of tables with open addressing
 * (linear probing; no marks for deleted slots, later ones move up).  A table doubles up to TABLE_SLOTS;
 * then it is split in two by the next bit of the hash, one table at a time (extendible hashing), so that
 * no insertion ever moves more than one table.  Tables are filled to limits that differ, so
 * that those of a large bucket do not all split at once.
 *
 * Slots hold the whole (mixed) hash, so that neither splitting nor deleting reads entries.
 * The directory goes by the upper bits of the hash, the slot by the lower ones.
 *
 * Insertion may run out of memory and is done before COMMIT; deletion cannot fail.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bitutils.h"
#include "state/state_internal.h"

#define TABLE_MIN_SLOTS 32
#define TABLE_SLOTS 65536
#define MAX_DEPTH 16
/* Tables from this size on are asked for against the bound of memory; smaller ones are counted with what comes next. */
#define ADMIT_SLOTS 4096

/* 12 bytes: the pointer is kept in halves because it would be aligned otherwise. */
typedef struct Slot
{
	uint32		hash;			/* mixed */
	uint32		where[sizeof(void *) / sizeof(uint32)];	/* WmsStored *, all zero: empty */
} Slot;

typedef struct Table
{
	uint32		mask;			/* slots - 1 */
	uint32		count;
	uint32		limit;			/* grow when count gets here */
	uint32		depth;			/* bits of the hash that all of its entries share */
	Slot		slots[FLEXIBLE_ARRAY_MEMBER];
} Table;

/* The mask stands here too: look-ups go straight to the slot, past a header that is in no cache when there are many tables. */
typedef struct Branch
{
	Table	   *table;
	uint32		mask;			/* the table's */
} Branch;

struct WmsIndex
{
	WmsStore   *store;
	uint32		depth;			/* of the directory */
	Branch	   *branches;		/* 2^depth, neighbours may lead to the same table */
};

static inline WmsStored *
slot_get(const Slot *slot)
{
	WmsStored  *stored;

	memcpy(&stored, slot->where, sizeof(stored));
	return stored;
}

static inline void
slot_set(Slot *slot, uint32 hash, WmsStored *stored)
{
	slot->hash = hash;
	memcpy(slot->where, &stored, sizeof(stored));
}

static inline uint32
directory_position(const WmsIndex *index, uint32 hash)
{
	return index->depth == 0 ? 0 : hash >> (32 - index->depth);
}

static inline const Branch *
branch_of(const WmsIndex *index, uint32 hash)
{
	return &index->branches[directory_position(index, hash)];
}

static inline void
branches_set(WmsIndex *index, uint32 first, uint32 n, Table *table)
{
	uint32		i;

	for (i = first; i < first + n; i++)
	{
		index->branches[i].table = table;
		index->branches[i].mask = table->mask;
	}
}

/* Between 65 and 85 % of the slots, by where the table stands. */
static uint32
table_limit(uint32 slots, uint32 prefix)
{
	return (uint32) ((uint64) slots * (65 + murmurhash32(prefix + 1) % 21) / 100);
}

static inline Size
table_size(uint32 slots)
{
	return offsetof(Table, slots) + (Size) slots * sizeof(Slot);
}

static Table *
table_make(WmsStore *store, uint32 slots, uint32 depth, uint32 prefix)
{
	Size		size = table_size(slots);
	Table	   *table;

	if (slots >= ADMIT_SLOTS)
		wms_store_admit(store, size);
	table = MemoryContextAllocExtended(store->context, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	table->mask = slots - 1;
	table->limit = table_limit(slots, prefix);
	table->depth = depth;
	return table;
}

static inline void
table_put(Table *table, uint32 hash, WmsStored *stored)
{
	uint32		at = hash & table->mask;

	while (slot_get(&table->slots[at]) != NULL)
		at = (at + 1) & table->mask;
	slot_set(&table->slots[at], hash, stored);
	table->count++;
}

/* Entries of from whose bit is as wanted (bit 0: all) go to table. */
static void
table_copy(Table *table, const Table *from, uint32 bit, bool wanted)
{
	uint32		i;

	for (i = 0; i <= from->mask; i++)
	{
		WmsStored  *stored = slot_get(&from->slots[i]);
		uint32		hash = from->slots[i].hash;

		if (stored != NULL && (bit == 0 || ((hash & bit) != 0) == wanted))
			table_put(table, hash, stored);
	}
}

static void
table_double(WmsIndex *index, uint32 position)
{
	Table	   *old = index->branches[position].table;
	uint32		span = 1 << (index->depth - old->depth);
	uint32		first = position & ~(span - 1);
	Table	   *new = table_make(index->store, (old->mask + 1) * 2, old->depth, first);

	table_copy(new, old, 0, false);
	branches_set(index, first, span, new);
	pfree(old);
}

static void
directory_double(WmsIndex *index)
{
	uint32		n = 1 << index->depth;
	Branch	   *branches = MemoryContextAlloc(index->store->context, sizeof(Branch) * n * 2);
	uint32		i;

	for (i = 0; i < n * 2; i++)
		branches[i] = index->branches[i / 2];
	pfree(index->branches);
	index->branches = branches;
	index->depth++;
}

static void
table_split(WmsIndex *index, uint32 hash)
{
	Table	   *old = branch_of(index, hash)->table;
	uint32		bit = 1U << (31 - old->depth);
	uint32		span;
	uint32		first;
	Table	   *low;
	Table	   *high;

	/* both halves or none */
	wms_store_admit(index->store, 2 * table_size(old->mask + 1));
	if (old->depth == index->depth)
		directory_double(index);
	span = 1 << (index->depth - old->depth);
	first = directory_position(index, hash) & ~(span - 1);
	low = table_make(index->store, old->mask + 1, old->depth + 1, first);
	high = table_make(index->store, old->mask + 1, old->depth + 1, first + span / 2);
	table_copy(low, old, bit, false);
	table_copy(high, old, bit, true);
	branches_set(index, first, span / 2, low);
	branches_set(index, first + span / 2, span / 2, high);
	pfree(old);
}

/* Room for one more where hash belongs. */
static Table *
index_room(WmsIndex *index, uint32 hash)
{
	Table	   *table = branch_of(index, hash)->table;

	while (table->count >= table->limit)
	{
		/* hashes that agree in all bits of the directory cannot be split: then the table grows */
		if (table->mask + 1 < TABLE_SLOTS || table->depth >= MAX_DEPTH)
			table_double(index, directory_position(index, hash));
		else
			table_split(index, hash);
		table = branch_of(index, hash)->table;
	}
	return table;
}

/* ---------------------------------------------------------------- faces */

static inline bool
stored_is(const WmsStored *stored, const WmsSought *sought)
{
	return wms_key_same(sought->ops, WMS_STORED_KEY(stored), stored->key_len, sought->key, sought->key_len);
}

static WmsStored *
find_by_walking(WmsStore *store, WmsBucket *bucket, const WmsSought *sought)
{
	const WmsChunk *chunk;
	WmsStored  *stored;

	for (stored = wms_bucket_first(store, bucket->shared, &chunk); stored != NULL;
		 stored = wms_bucket_next(store, &chunk, stored))
	{
		if (stored->hash == sought->hash && stored_is(stored, sought))
			return stored;
	}
	return NULL;
}

WmsStored *
wms_index_find(WmsStore *store, WmsBucket *bucket, const WmsSought *sought)
{
	WmsIndex   *index = bucket->index;
	const Branch *branch;
	const Slot *slots;
	uint32		hash;
	uint32		at;
	WmsStored  *stored;

	if (bucket->nentries == 0)
		return NULL;
	if (index == NULL)
		return find_by_walking(store, bucket, sought);
	hash = murmurhash32(sought->hash);
	branch = branch_of(index, hash);
	slots = branch->table->slots;
	for (at = hash & branch->mask; (stored = slot_get(&slots[at])) != NULL; at = (at + 1) & branch->mask)
	{
		if (slots[at].hash != hash)
			continue;
		wms_prefetch(stored);
		if (stored_is(stored, sought))
			return stored;
	}
	return NULL;
}

/* Where a look-up of this hash will read first, for wms_prefetch_line; NULL without an index. */
const void *
wms_index_place(const WmsBucket *bucket, uint32 hash)
{
	const Branch *branch;
	uint32		mixed;

	if (bucket->index == NULL)
		return NULL;
	mixed = murmurhash32(hash);
	branch = branch_of(bucket->index, mixed);
	return &branch->table->slots[mixed & branch->mask];
}

/* The entry that a look-up of this hash will read first, from its place; NULL: none. */
const WmsStored *
wms_index_candidate(const WmsBucket *bucket, uint32 hash, const void *place)
{
	uint32		mixed = murmurhash32(hash);
	const Branch *branch = branch_of(bucket->index, mixed);
	const Slot *slots = branch->table->slots;
	uint32		at = (const Slot *) place - slots;
	WmsStored  *stored;

	for (; (stored = slot_get(&slots[at])) != NULL; at = (at + 1) & branch->mask)
	{
		if (slots[at].hash == mixed)
			return stored;
	}
	return NULL;
}

/* An index over the committed entries, with a first table for about expected of them. */
void
wms_index_build(WmsStore *store, WmsBucket *bucket, int64 expected)
{
	uint32		slots = TABLE_MIN_SLOTS;
	WmsIndex   *index;
	const WmsChunk *chunk;
	WmsStored  *stored;

	while (slots < TABLE_SLOTS && table_limit(slots, 0) <= expected)
		slots *= 2;
	index = MemoryContextAllocZero(store->context, sizeof(WmsIndex));
	index->store = store;
	index->branches = MemoryContextAlloc(store->context, sizeof(Branch));
	branches_set(index, 0, 1, table_make(store, slots, 0, 0));
	bucket->index = index;
	if (bucket->nentries == 0)
		return;
	for (stored = wms_bucket_first(store, bucket->shared, &chunk); stored != NULL;
		 stored = wms_bucket_next(store, &chunk, stored))
		wms_index_insert(store, bucket, stored, stored->hash);
}

/* The key is not there, or its entry is about to be deleted. */
void
wms_index_insert(WmsStore *store, WmsBucket *bucket, WmsStored *stored, uint32 hash)
{
	uint32		mixed = murmurhash32(hash);

	table_put(index_room(bucket->index, mixed), mixed, stored);
}

/* Slots behind an emptied one move up if they still are at or behind their own position then. */
static void
table_close_gap(Table *table, uint32 gap)
{
	uint32		at = gap;

	for (;;)
	{
		WmsStored  *stored;
		uint32		home;

		at = (at + 1) & table->mask;
		stored = slot_get(&table->slots[at]);
		if (stored == NULL)
			break;
		home = table->slots[at].hash & table->mask;
		if (((at - home) & table->mask) >= ((at - gap) & table->mask))
		{
			table->slots[gap] = table->slots[at];
			gap = at;
		}
	}
	slot_set(&table->slots[gap], 0, NULL);
}

void
wms_index_delete(WmsBucket *bucket, WmsStored *stored, uint32 hash)
{
	uint32		mixed = murmurhash32(hash);
	Table	   *table;
	uint32		at;

	if (bucket->index == NULL)
		return;
	table = branch_of(bucket->index, mixed)->table;
	for (at = mixed & table->mask; slot_get(&table->slots[at]) != stored; at = (at + 1) & table->mask)
	{
		if (slot_get(&table->slots[at]) == NULL)
			return;
	}
	table_close_gap(table, at);
	table->count--;
}

void
wms_index_free(WmsBucket *bucket)
{
	WmsIndex   *index = bucket->index;
	uint32		i;

	if (index == NULL)
		return;
	for (i = 0; i < (1U << index->depth);)
	{
		Table	   *table = index->branches[i].table;

		i += 1 << (index->depth - table->depth);
		pfree(table);
	}
	pfree(index->branches);
	pfree(index);
	bucket->index = NULL;
}
