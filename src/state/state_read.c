/*
 * state_read.c
 *	  Readers of a stream's state, in any backend.
 *
 * A reader attaches the area under the stream's lock (shared), copies what its snapshot must
 * see as open into its own memory, piece by piece, and calls back without the lock.
 *
 * What is open.  A bucket without a closing transaction, and one whose closing transaction the snapshot
 * does not see: in progress for the snapshot, or aborted.  So what the result table does not
 * show yet is here, and nothing twice.  Of an entry that is found in several versions (see shelves in state_publish.c;
 * and a bucket whose key came again after it had closed) the oldest counts: it is the one that the snapshot's own batches left.
 *
 * How new the state must be.  A snapshot can see the commit of a batch that is not published yet: then the
 * result shows what the batch emitted, while the windows that it opened are not here.  The batch's number, which the log tells
 * under the same snapshot, is compared with that of the newest one published, and the reader waits.  State that is newer than the snapshot
 * does no harm: what left it since is still here, and what came to it is open.
 *
 * Where a reader stands.  It lets go of the lock only inside a bucket that is open for it.  Such a bucket
 * cannot be freed as long as the snapshot counts, since buckets go when no snapshot can miss their closing.
 * (When memory is short they go sooner, and an area that was just loaded has none: root->dropped tells, and a reader
 * that would have wanted them fails.)
 * Chunks of a bucket live as long as the bucket; what hangs on an entry is copied with it, under one hold.
 *
 * What a reader sees of batches: the state between two publishes.  A copy that takes one hold of the
 * lock, as that of every small state does, shows that by itself.  A larger copy during which a batch
 * was published is thrown away and made again; after ATTEMPTS times it is made in one hold, however long, into memory that
 * was taken before.
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define ATTEMPTS 3
/* Bytes copied per hold of the lock. */
#define SLICE_BYTES ((Size) 1024 * 1024)
#define FIRST_BLOCK ((Size) 64 * 1024)
/* A batch that the snapshot sees is published a moment after its commit, unless the worker died there. */
#define PUBLISH_WAIT_MS 10000
#define LIVE_VERSION PG_UINT64_MAX

typedef struct CopyBlock
{
	struct CopyBlock *next;
	Size		size;
	Size		used;
} CopyBlock;

#define BLOCK_DATA(block) ((char *) (block) + MAXALIGN(sizeof(CopyBlock)))

/* An entry's copy; key, value and kept rows follow, each MAXALIGNed. */
typedef struct Copy
{
	WmsBucketKey bucket;
	uint64		version;		/* transaction that closed the bucket; LIVE_VERSION: none, or not yet */
	uint32		hash;
	uint32		key_len;
	uint32		value_len;
	uint8		flags;
	bool		hidden;			/* an older version counts */
	Size		kept_len;
	int64		nkept;
} Copy;

#define COPY_KEY(copy) ((char *) (copy) + MAXALIGN(sizeof(Copy)))
#define COPY_VALUE(copy) (COPY_KEY(copy) + MAXALIGN((Size) (copy)->key_len))
#define COPY_KEPT(copy) (COPY_VALUE(copy) + MAXALIGN((Size) (copy)->value_len))

typedef struct WmsReader
{
	const WmsReading *reading;
	WmsSharedStream *slot;
	Snapshot	snapshot;
	dsa_area   *area;
	bool		own_area;		/* attached by us */
	dsa_handle	handle;
	WmsRoot    *root;

	/* the copy */
	CopyBlock  *first;
	CopyBlock  *last;
	Size		slice;			/* bytes in this hold of the lock */
	Size		copied;			/* bytes in all */
	Size		most;			/* the most that was copied so far */
	Size		need;			/* bytes that did not fit */
	bool		whole;			/* all in one hold */
	bool		versions;		/* there are closed buckets: others may have come under their keys since */

	/* position */
	WmsSharedBucket *bucket;	/* NULL: at the end */
	const WmsChunk *chunk;
	Size		offset;

	/* verdict on the last closing transaction asked about */
	FullTransactionId asked;
	bool		open;
} WmsReader;

typedef enum Outcome
{
	READ_DONE,
	READ_AGAIN,					/* a publish came between, or the block is too small */
	READ_EARLY,					/* a batch that the snapshot sees is not published yet, or half of one is */
	READ_NO_AREA,
	READ_MOVED					/* another area now */
} Outcome;

bool
wms_rows_each(const char *data, Size len, WmsKeptFn fn, void *arg)
{
	Size		at = 0;

	while (at < len)
	{
		const WmsRow *row = (const WmsRow *) (data + at);

		if (!fn((const char *) row + MAXALIGN(sizeof(WmsRow)), row->len, arg))
			return false;
		at += WMS_ROW_SIZE(row->len);
	}
	return true;
}

void
wms_reader_kept(WmsEntry *entry, WmsKeptFn fn, void *arg)
{
	if (entry->priv->kept)
		wms_rows_each(entry->priv->kept->data, entry->priv->kept->len, fn, arg);
}

/* ---------------------------------------------------------------- what the snapshot sees */

/* Is the transaction in progress for the snapshot? */
static bool
in_progress(FullTransactionId xid, Snapshot snapshot)
{
	/* older than the short form can tell: long over */
	if (U64FromFullTransactionId(ReadNextFullTransactionId()) - U64FromFullTransactionId(xid) >= PG_INT32_MAX)
		return false;
	return XidInMVCCSnapshot(XidFromFullTransactionId(xid), snapshot);
}

static bool
is_open(WmsReader *reader, const WmsSharedBucket *bucket)
{
	if (!FullTransactionIdIsValid(bucket->closing))
		return true;
	if (!FullTransactionIdEquals(bucket->closing, reader->asked))
	{
		reader->asked = bucket->closing;
		reader->open = in_progress(bucket->closing, reader->snapshot) ||
			(!bucket->closed && !TransactionIdDidCommit(XidFromFullTransactionId(bucket->closing)));
	}
	return reader->open;
}

/* Fails if buckets were given up that this snapshot wants. */
static void
check_dropped(WmsReader *reader)
{
	if (FullTransactionIdIsValid(reader->root->dropped) && in_progress(reader->root->dropped, reader->snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("windows that closed since the snapshot was taken are not kept any more"),
				 errdetail("The stream was started anew since, or memory for state was short."),
				 errhint("Try again in a new transaction.")));
}

/* ---------------------------------------------------------------- copying */

static inline void *
address(WmsReader *reader, dsa_pointer dp)
{
	return dsa_get_address(reader->area, dp);
}

static const WmsSegment *
segment_of(WmsReader *reader, const WmsMore *more, uint32 i)
{
	if (more->segments_room == 0)
		return address(reader, more->segments);
	return address(reader, ((dsa_pointer *) address(reader, more->segments))[i]);
}

static Size
kept_bytes(WmsReader *reader, const WmsMore *more)
{
	Size		len = 0;
	uint32		i;

	for (i = 0; more && i < more->nsegments; i++)
		len += segment_of(reader, more, i)->len;
	return len;
}

/* Copies an entry if the block has room. */
static bool
copy_entry(WmsReader *reader, const WmsStored *stored)
{
	const WmsMore *more = DsaPointerIsValid(stored->more) ? address(reader, stored->more) : NULL;
	Size		kept_len = kept_bytes(reader, more);
	Size		need = MAXALIGN(sizeof(Copy)) + MAXALIGN((Size) stored->key_len) +
		MAXALIGN((Size) stored->value_len) + kept_len;
	CopyBlock  *block = reader->last;
	Copy	   *copy;
	char	   *at;
	uint32		i;

	if (block == NULL || block->size - block->used < need)
	{
		reader->need = need;
		return false;
	}
	copy = (Copy *) (BLOCK_DATA(block) + block->used);
	block->used += need;
	reader->slice += need;
	reader->copied += need;
	memset(&copy->bucket, 0, sizeof(copy->bucket));
	copy->bucket.op = reader->bucket->op;
	copy->bucket.start = reader->bucket->start;
	copy->bucket.end = reader->bucket->end;
	copy->version = reader->bucket->closed ? U64FromFullTransactionId(reader->bucket->closing) : LIVE_VERSION;
	copy->hidden = false;
	copy->hash = stored->hash;
	copy->key_len = stored->key_len;
	copy->value_len = stored->value_len;
	copy->flags = stored->flags;
	copy->kept_len = kept_len;
	copy->nkept = more ? more->nkept : 0;
	memcpy(COPY_KEY(copy), WMS_STORED_KEY(stored), stored->key_len);
	memcpy(COPY_VALUE(copy),
		   more && DsaPointerIsValid(more->value) ? (char *) address(reader, more->value) : WMS_STORED_VALUE(stored),
		   stored->value_len);
	at = COPY_KEPT(copy);
	for (i = 0; more && i < more->nsegments; i++)
	{
		const WmsSegment *segment = segment_of(reader, more, i);

		memcpy(at, WMS_SEGMENT_DATA(segment), segment->len);
		at += segment->len;
	}
	return true;
}

/* Copies on from the position; true at the end of the bucket, false when the lock is to be let go. */
static bool
copy_bucket(WmsReader *reader)
{
	for (;;)
	{
		while (reader->offset < reader->chunk->used)
		{
			const WmsStored *stored = (const WmsStored *) (WMS_CHUNK_DATA(reader->chunk) + reader->offset);

			if (!(stored->own & WMS_STORED_REMOVED))
			{
				if ((reader->slice >= SLICE_BYTES && !reader->whole) || !copy_entry(reader, stored))
					return false;
			}
			reader->offset += WMS_STORED_SIZE(stored);
		}
		if (!DsaPointerIsValid(reader->chunk->next))
			return true;
		reader->chunk = address(reader, reader->chunk->next);
		reader->offset = 0;
	}
}

/* Goes to the operator's first open bucket from dp on. */
static void
seek_bucket(WmsReader *reader, dsa_pointer dp)
{
	reader->bucket = NULL;
	while (DsaPointerIsValid(dp))
	{
		WmsSharedBucket *bucket = address(reader, dp);

		if (bucket->op == reader->reading->op && is_open(reader, bucket))
		{
			reader->versions |= bucket->closed;
			reader->bucket = bucket;
			reader->chunk = &bucket->first;
			reader->offset = 0;
			return;
		}
		dp = bucket->next;
	}
}

static void
copy_slice(WmsReader *reader)
{
	reader->slice = 0;
	while (reader->bucket != NULL && copy_bucket(reader))
		seek_bucket(reader, reader->bucket->next);
}

/* A block for what did not fit, without the lock. */
static void
add_block(WmsReader *reader, Size size)
{
	CopyBlock  *block = MemoryContextAllocHuge(CurrentMemoryContext, MAXALIGN(sizeof(CopyBlock)) + size);

	block->next = NULL;
	block->size = size;
	block->used = 0;
	if (reader->last)
		reader->last->next = block;
	else
		reader->first = block;
	reader->last = block;
	reader->need = 0;
}

static void
drop_copy(WmsReader *reader)
{
	while (reader->first)
	{
		CopyBlock  *next = reader->first->next;

		pfree(reader->first);
		reader->first = next;
	}
	reader->last = NULL;
	reader->copied = 0;
}

/* ---------------------------------------------------------------- attaching */

static void
detach(WmsReader *reader)
{
	if (reader->area && reader->own_area)
		dsa_detach(reader->area);
	reader->area = NULL;
}

/* Under the lock.  False: there is no area, or it is being loaded. */
static bool
attach(WmsReader *reader)
{
	if (reader->slot->area == DSA_HANDLE_INVALID)
		return false;
	if (reader->area == NULL)
	{
		reader->handle = reader->slot->area;
		reader->area = wms_store_area(reader->handle);
		reader->own_area = reader->area == NULL;
		if (reader->own_area)
			reader->area = dsa_attach(reader->handle);
		reader->root = address(reader, reader->slot->root);
	}
	return reader->root->ready;
}

/* Under the lock: is the state what the snapshot can do with? */
static Outcome
look_at_root(WmsReader *reader)
{
	if (reader->area && reader->slot->area != reader->handle)
		return READ_MOVED;
	if (!attach(reader))
		return READ_NO_AREA;
	if (reader->root->publishing || reader->root->batches < reader->reading->batches)
		return READ_EARLY;
	return READ_DONE;
}

/* Goes on in further holds of the lock; true when all was copied. */
static bool
copy_on(WmsReader *reader)
{
	while (reader->bucket != NULL)
	{
		LWLockRelease(&reader->slot->lock);
		CHECK_FOR_INTERRUPTS();
		if (reader->need > 0)
			add_block(reader, Max(reader->need, SLICE_BYTES));
		LWLockAcquire(&reader->slot->lock, LW_SHARED);
		if (reader->slot->area != reader->handle)
			return false;
		check_dropped(reader);
		copy_slice(reader);
	}
	return true;
}

static Outcome
read_once(WmsReader *reader)
{
	uint64		version;
	Outcome		outcome;

	LWLockAcquire(&reader->slot->lock, LW_SHARED);
	outcome = look_at_root(reader);
	if (outcome == READ_DONE)
	{
		version = reader->root->version;
		check_dropped(reader);
		reader->asked = InvalidFullTransactionId;
		reader->versions = false;
		seek_bucket(reader, reader->root->buckets);
		copy_slice(reader);
		if (reader->whole && reader->bucket != NULL)
			outcome = READ_AGAIN;
		else if (!copy_on(reader))
			outcome = READ_MOVED;
		else if (reader->root->version != version || reader->root->publishing)
			outcome = READ_AGAIN;
	}
	LWLockRelease(&reader->slot->lock);
	return outcome;
}

/* The copy's first block.  A whole copy must fit into it, and the state may have grown. */
static void
begin_copy(WmsReader *reader)
{
	Size		size = FIRST_BLOCK;

	reader->most = Max(reader->most, reader->copied + reader->need);
	if (reader->whole)
		size = FIRST_BLOCK + reader->most + reader->most / 4;
	drop_copy(reader);
	add_block(reader, size);
}

static void
wait_for_publish(int *waited_ms)
{
	if (++*waited_ms > PUBLISH_WAIT_MS)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the state of the stream is older than the snapshot"),
				 errdetail("Its last batch has committed, but the worker has not shown it in memory."),
				 errhint("Try again when the stream is running.")));
	CHECK_FOR_INTERRUPTS();
	pg_usleep(1000L);
}

/* False: there is no state to be read. */
static bool
make_copy(WmsReader *reader)
{
	int			attempts = 0;
	int			waited_ms = 0;

	for (;;)
	{
		begin_copy(reader);
		switch (read_once(reader))
		{
			case READ_DONE:
				return true;
			case READ_NO_AREA:
				return false;
			case READ_MOVED:
				detach(reader);
				break;
			case READ_EARLY:
				wait_for_publish(&waited_ms);
				break;
			case READ_AGAIN:
				reader->whole = ++attempts >= ATTEMPTS;
				break;
		}
	}
}

/* ---------------------------------------------------------------- versions */

typedef struct Versions
{
	const WmsStateOps *ops;
	int64		nbuckets;		/* keys that several of the copied buckets have, in order */
	int64		buckets_room;
	WmsBucketKey *buckets;
	const Copy *last;			/* whose bucket was looked for last, */
	bool		last_found;		/* and is it among these? */
	Copy	  **older;			/* copies of closed buckets among these, by bucket, hash and version */
	int64		n;
	int64		room;
} Versions;

static Copy *
next_copy(CopyBlock *block, Size *at)
{
	Copy	   *copy = (Copy *) (BLOCK_DATA(block) + *at);

	if (*at >= block->used)
		return NULL;
	*at += COPY_KEPT(copy) + copy->kept_len - (char *) copy;
	return copy;
}

static int
compare_buckets(const void *a, const void *b)
{
	const WmsBucketKey *x = a;
	const WmsBucketKey *y = b;

	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return 0;
}

static int
compare_place(const Copy *a, const Copy *b)
{
	int			bucket = compare_buckets(&a->bucket, &b->bucket);

	if (bucket != 0)
		return bucket;
	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return 0;
}

static int
compare_version(const void *a, const void *b)
{
	const Copy *x = *(Copy *const *) a;
	const Copy *y = *(Copy *const *) b;
	int			place = compare_place(x, y);

	if (place != 0)
		return place;
	return x->version < y->version ? -1 : (x->version > y->version ? 1 : 0);
}

static void
note_bucket(Versions *versions, const WmsBucketKey *bucket)
{
	if (versions->nbuckets == versions->buckets_room)
	{
		versions->buckets_room *= 2;
		versions->buckets = repalloc_huge(versions->buckets, sizeof(WmsBucketKey) * versions->buckets_room);
	}
	versions->buckets[versions->nbuckets++] = *bucket;
}

/* Most that have closed did not come again, and few have shelves: then there is nothing to compare. */
static void
find_buckets(WmsReader *reader, Versions *versions)
{
	const Copy *last = NULL;
	int64		n = 0;

	for (CopyBlock *block = reader->first; block != NULL; block = block->next)
	{
		Size		at = 0;
		Copy	   *copy;

		while ((copy = next_copy(block, &at)) != NULL)
		{
			if (last == NULL || copy->version != last->version || compare_buckets(&copy->bucket, &last->bucket) != 0)
				note_bucket(versions, &copy->bucket);
			last = copy;
		}
	}
	qsort(versions->buckets, versions->nbuckets, sizeof(WmsBucketKey), compare_buckets);
	for (int64 i = 1; i < versions->nbuckets; i++)
		if (compare_buckets(&versions->buckets[i - 1], &versions->buckets[i]) == 0 &&
			(n == 0 || compare_buckets(&versions->buckets[n - 1], &versions->buckets[i]) != 0))
			versions->buckets[n++] = versions->buckets[i];
	versions->nbuckets = n;
}

/* Were several buckets of this one's key copied? */
static bool
has_versions(Versions *versions, const Copy *copy)
{
	if (versions->last == NULL || compare_buckets(&copy->bucket, &versions->last->bucket) != 0)
		versions->last_found = bsearch(&copy->bucket, versions->buckets, versions->nbuckets, sizeof(WmsBucketKey), compare_buckets) != NULL;
	versions->last = copy;
	return versions->last_found;
}

static void
find_older(WmsReader *reader, Versions *versions)
{
	for (CopyBlock *block = reader->first; block != NULL; block = block->next)
	{
		Size		at = 0;
		Copy	   *copy;

		while ((copy = next_copy(block, &at)) != NULL)
		{
			if (copy->version == LIVE_VERSION || !has_versions(versions, copy))
				continue;
			if (versions->n == versions->room)
			{
				versions->room *= 2;
				versions->older = repalloc_huge(versions->older, sizeof(Copy *) * versions->room);
			}
			versions->older[versions->n++] = copy;
		}
	}
	qsort(versions->older, versions->n, sizeof(Copy *), compare_version);
}

/* The first of the older copies that is not before copy, whatever its version. */
static int64
older_from(const Versions *versions, const Copy *copy)
{
	int64		low = 0;
	int64		high = versions->n;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (compare_place(versions->older[middle], copy) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool
has_older(const Versions *versions, Copy *copy)
{
	int64		i;

	for (i = older_from(versions, copy); i < versions->n; i++)
	{
		Copy	   *older = versions->older[i];

		if (compare_place(older, copy) != 0 || older->version >= copy->version)
			return false;
		if (wms_key_same(versions->ops, COPY_KEY(older), older->key_len, COPY_KEY(copy), copy->key_len))
			return true;
	}
	return false;
}

/* Of the versions of an entry the oldest counts. */
static void
hide_newer(WmsReader *reader)
{
	Versions	versions = {.ops = reader->reading->ops,.buckets_room = 64,.room = 64};

	versions.buckets = palloc(sizeof(WmsBucketKey) * versions.buckets_room);
	versions.older = palloc(sizeof(Copy *) * versions.room);
	find_buckets(reader, &versions);
	if (versions.nbuckets > 0)
		find_older(reader, &versions);
	for (CopyBlock *block = reader->first; block != NULL && versions.n > 0; block = block->next)
	{
		Size		at = 0;
		Copy	   *copy;

		while ((copy = next_copy(block, &at)) != NULL)
		{
			CHECK_FOR_INTERRUPTS();
			copy->hidden = has_versions(&versions, copy) && has_older(&versions, copy);
		}
	}
	pfree(versions.buckets);
	pfree(versions.older);
}

/* ---------------------------------------------------------------- calling back */

static void
call_back(Copy *copy, WmsEntryFn fn, void *arg)
{
	WmsEntryPrivate private = {0};
	WmsKeptRows kept = {0};
	WmsEntry   *entry = &private.entry;

	CHECK_FOR_INTERRUPTS();
	entry->bucket = copy->bucket;
	entry->hash = copy->hash;
	entry->flags = copy->flags;
	entry->key_len = copy->key_len;
	entry->key = COPY_KEY(copy);
	entry->value_len = copy->value_len;
	entry->value = COPY_VALUE(copy);
	entry->nkept = copy->nkept;
	entry->priv = &private;
	kept.data = COPY_KEPT(copy);
	kept.len = copy->kept_len;
	private.kept = &kept;
	fn(entry, arg);
}

bool
wms_state_read(const WmsReading *reading, WmsEntryFn fn, void *arg)
{
	WmsReader	reader = {reading, reading->slot, reading->snapshot};
	bool		found;

	if (reading->snapshot->snapshot_type != SNAPSHOT_MVCC)
		elog(ERROR, "state can be read with MVCC snapshots only");
	found = make_copy(&reader);
	detach(&reader);
	if (!found)
		return false;
	if (reader.versions)
		hide_newer(&reader);
	for (CopyBlock *block = reader.first; block != NULL; block = block->next)
	{
		Size		at = 0;
		Copy	   *copy;

		while ((copy = next_copy(block, &at)) != NULL)
			if (!copy->hidden)
				call_back(copy, fn, arg);
	}
	return true;
}
