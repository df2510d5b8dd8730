/*
 * state_read.c
 *	  Readers of a stream's state, in any backend.
 *
 * A reader attaches the area under the stream's lock (shared), copies what its snapshot must
 * see as open into its own memory, piece by piece, and calls back without the lock.
 *
 * What is open.  A bucket without a closing transaction, and one whose closing transaction the snapshot
 * does not see: in progress for the snapshot, or aborted.  So what the result table does not
 * show yet is here, and nothing twice.
 *
 * Where a reader stands.  It lets go of the lock only inside a bucket that is open for it.  Such a bucket
 * cannot be freed as long as the snapshot counts, since buckets go when no snapshot can miss their closing.
 * (When memory is short they go sooner, and an area that was just loaded has none: root->dropped tells, and a reader
 * that would have wanted them fails.)
 * Chunks of a bucket live as long as the bucket; what hangs on an entry is copied with it, under one hold.
 *
 * What a reader sees of batches.  Every entry is whole.  A copy that took one hold of the
 * lock, as that of every small state does, shows the state between two publishes.  A larger copy during which a batch
 * was published is thrown away and made again, ATTEMPTS times at most; the last one may show some entries
 * before and some after that batch, and may miss an entry that moved from one bucket to another.
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
/* A publish is waited for this often, for a millisecond. */
#define PUBLISH_WAITS 100

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
	uint32		hash;
	uint32		key_len;
	uint32		value_len;
	uint32		flags;
	Size		kept_len;
	int64		nkept;
} Copy;

struct WmsReader
{
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
	Size		need;			/* bytes that did not fit */

	/* position */
	WmsSharedBucket *bucket;	/* NULL: at the end */
	const WmsChunk *chunk;
	Size		offset;

	/* verdict on the last closing transaction asked about */
	FullTransactionId asked;
	bool		open;
};

typedef enum Outcome
{
	READ_DONE,
	READ_AGAIN,					/* a publish came between */
	READ_NO_AREA,
	READ_MOVED					/* another area now */
} Outcome;

void
wms_rows_each(const char *data, Size len, WmsKeptFn fn, void *arg)
{
	Size		at = 0;

	while (at < len)
	{
		const WmsRow *row = (const WmsRow *) (data + at);

		fn((const char *) row + MAXALIGN(sizeof(WmsRow)), row->len, arg);
		at += WMS_ROW_SIZE(row->len);
	}
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
	memset(&copy->bucket, 0, sizeof(copy->bucket));
	copy->bucket.op = reader->bucket->op;
	copy->bucket.start = reader->bucket->start;
	copy->bucket.end = reader->bucket->end;
	copy->hash = stored->hash;
	copy->key_len = stored->key_len;
	copy->value_len = stored->value_len;
	copy->flags = stored->flags;
	copy->kept_len = kept_len;
	copy->nkept = more ? more->nkept : 0;
	at = (char *) copy + MAXALIGN(sizeof(Copy));
	memcpy(at, WMS_STORED_KEY(stored), stored->key_len);
	at += MAXALIGN((Size) stored->key_len);
	memcpy(at, more && DsaPointerIsValid(more->value) ? (char *) address(reader, more->value) : WMS_STORED_VALUE(stored),
		   stored->value_len);
	at += MAXALIGN((Size) stored->value_len);
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
				if (reader->slice >= SLICE_BYTES || !copy_entry(reader, stored))
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

/* Goes to the first open bucket from dp on. */
static void
seek_bucket(WmsReader *reader, dsa_pointer dp)
{
	reader->bucket = NULL;
	while (DsaPointerIsValid(dp))
	{
		WmsSharedBucket *bucket = address(reader, dp);

		if (is_open(reader, bucket))
		{
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
add_block(WmsReader *reader)
{
	Size		size = Max(reader->need, reader->first ? SLICE_BYTES : FIRST_BLOCK);
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

/* Takes the lock when no publish is between two slices, or has been for too long. */
static void
lock_between_publishes(WmsReader *reader)
{
	int			waits = 0;

	LWLockAcquire(&reader->slot->lock, LW_SHARED);
	while (reader->area && reader->slot->area == reader->handle && reader->root->publishing &&
		   waits++ < PUBLISH_WAITS)
	{
		LWLockRelease(&reader->slot->lock);
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
		LWLockAcquire(&reader->slot->lock, LW_SHARED);
	}
}

static Outcome
read_once(WmsReader *reader)
{
	uint64		version;
	Outcome		outcome = READ_DONE;

	lock_between_publishes(reader);
	if (reader->area && reader->slot->area != reader->handle)
		outcome = READ_MOVED;
	else if (!attach(reader))
		outcome = READ_NO_AREA;
	if (outcome != READ_DONE)
	{
		LWLockRelease(&reader->slot->lock);
		return outcome;
	}
	version = reader->root->version;
	check_dropped(reader);
	reader->asked = InvalidFullTransactionId;
	seek_bucket(reader, reader->root->buckets);
	copy_slice(reader);
	while (reader->bucket != NULL)
	{
		LWLockRelease(&reader->slot->lock);
		CHECK_FOR_INTERRUPTS();
		if (reader->need > 0)
			add_block(reader);
		LWLockAcquire(&reader->slot->lock, LW_SHARED);
		if (reader->slot->area != reader->handle)
		{
			LWLockRelease(&reader->slot->lock);
			return READ_MOVED;
		}
		check_dropped(reader);
		copy_slice(reader);
	}
	if (reader->root->version != version || reader->root->publishing)
		outcome = READ_AGAIN;
	LWLockRelease(&reader->slot->lock);
	return outcome;
}

static void
call_back(WmsReader *reader, WmsEntryFn fn, void *arg)
{
	CopyBlock  *block;

	for (block = reader->first; block != NULL; block = block->next)
	{
		Size		at = 0;

		while (at < block->used)
		{
			Copy	   *copy = (Copy *) (BLOCK_DATA(block) + at);
			WmsEntryPrivate private = {0};
			WmsKeptRows kept = {0};
			WmsEntry   *entry = &private.entry;

			CHECK_FOR_INTERRUPTS();
			entry->bucket = copy->bucket;
			entry->hash = copy->hash;
			entry->flags = copy->flags;
			entry->key_len = copy->key_len;
			entry->key = (char *) copy + MAXALIGN(sizeof(Copy));
			entry->value_len = copy->value_len;
			entry->value = entry->key + MAXALIGN((Size) copy->key_len);
			entry->nkept = copy->nkept;
			entry->priv = &private;
			kept.data = unconstify(char *, entry->value) + MAXALIGN((Size) copy->value_len);
			kept.len = copy->kept_len;
			private.kept = &kept;
			at += kept.data + kept.len - (char *) copy;
			fn(entry, arg);
		}
	}
}

bool
wms_state_read(WmsSharedStream *slot, Snapshot snapshot, WmsEntryFn fn, void *arg)
{
	WmsReader	reader = {0};
	Outcome		outcome;
	int			attempt = 1;

	if (snapshot->snapshot_type != SNAPSHOT_MVCC)
		elog(ERROR, "state can be read with MVCC snapshots only");
	reader.slot = slot;
	reader.snapshot = snapshot;
	for (;;)
	{
		outcome = read_once(&reader);
		if (outcome == READ_MOVED)
			detach(&reader);
		else if (outcome != READ_AGAIN || attempt == ATTEMPTS)
			break;
		attempt++;
		drop_copy(&reader);
	}
	detach(&reader);
	if (outcome == READ_NO_AREA)
		return false;
	call_back(&reader, fn, arg);
	return true;
}
