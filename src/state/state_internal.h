/*
 * state_internal.h
 *	  What the files of the state room share among themselves.
 *
 * Two kinds of memory.  *Shared* structs (WmsRoot, WmsSharedBucket, WmsChunk, WmsStored,
 * WmsMore, WmsSegment) lie in the stream's area; readers in other processes walk them
 * under the stream's lock.  *Local* structs (WmsStore, WmsBucket, WmsIndex, WmsHeap,
 * WmsTouched ...) belong to the one worker that owns the store.  The worker maps every
 * segment of the area for as long as something lives in it, so its local structs point into
 * shared memory with plain pointers.
 *
 * Locking.  Only the worker changes the area.  It reads without the lock.  What a reader
 * can reach it changes under the stream's lock, exclusive; what no reader reaches yet
 * (room behind WmsChunk.used, blocks that nothing points to, removed entries' bodies) and the
 * fields marked "worker's own" it changes without.
 */
#ifndef WMS_STATE_INTERNAL_H
#define WMS_STATE_INTERNAL_H

#include "access/transam.h"
#include "catalog/indexing.h"
#include "port/pg_bitutils.h"
#include "state/state.h"
#include "storage/lockdefs.h"
#include "utils/hsearch.h"
#include "utils/relcache.h"

StaticAssertDecl(sizeof(dsa_pointer) == 8, "wmstream needs 64-bit dsa pointers");

/* ---------------------------------------------------------------- shared memory */

/* The root of an area; slot->root points to it. */
typedef struct WmsRoot
{
	bool		ready;			/* loaded: readers may look */
	bool		publishing;		/* between the slices of a publish */
	uint64		version;		/* publishes finished */
	int64		batches;		/* WMS_COUNT_BATCHES of the newest batch published, or loaded */
	dsa_pointer buckets;		/* newest first */
	FullTransactionId dropped;	/* newest transaction that may have closed a bucket which is gone though snapshots may want it */
} WmsRoot;

/* A run of entries.  Blocks lie back to back from the header's end; readers stop at used. */
typedef struct WmsChunk
{
	dsa_pointer next;
	uint32		size;			/* bytes for blocks */
	uint32		used;			/* bytes of committed blocks */
	uint32		bump;			/* worker's own: bytes given out, those of the open batch too */
	uint32		spare;
} WmsChunk;

#define WMS_CHUNK_DATA(chunk) ((char *) (chunk) + MAXALIGN(sizeof(WmsChunk)))

typedef struct WmsSharedBucket
{
	dsa_pointer next;			/* older bucket */
	FullTransactionId closing;	/* transaction that closes it, or closed it; invalid: none */
	WmsTime		start;
	WmsTime		end;
	int32		op;
	bool		closed;			/* that transaction has committed */
	WmsChunk	first;			/* its blocks follow */
} WmsSharedBucket;

#define WMS_STORED_REMOVED 0x01

/* Values up to this lie in the entry from the start. */
#define WMS_INLINE_MAX 4096

/*
 * An entry.  Its block is the header, the key and room for the value, each
 * MAXALIGNed; key_len and room always add up to the block, also after removal.
 */
typedef struct WmsStored
{
	uint32		hash;
	uint32		key_len;
	uint32		value_len;
	uint32		room;			/* for a value behind the key */
	uint32		seq_low;		/* worker's own: log row of the newest version, see wms_stored_seq */
	uint16		seq_high;
	uint8		flags;			/* the operator's */
	uint8		own;			/* WMS_STORED_... */
	dsa_pointer more;			/* WmsMore, or invalid */
} WmsStored;

#define WMS_STORED_KEY(stored) ((char *) (stored) + MAXALIGN(sizeof(WmsStored)))
#define WMS_STORED_VALUE(stored) (WMS_STORED_KEY(stored) + MAXALIGN((stored)->key_len))
#define WMS_STORED_SIZE(stored) \
	(MAXALIGN(sizeof(WmsStored)) + MAXALIGN((Size) (stored)->key_len) + (Size) (stored)->room)

/* What only some entries have: a value that outgrew its room, kept rows. */
typedef struct WmsMore
{
	dsa_pointer value;			/* invalid: the value is in the entry */
	uint32		value_room;
	uint32		nsegments;
	uint32		segments_room;	/* 0: segments is the only segment itself, not an array */
	uint32		spare;
	dsa_pointer segments;		/* array of pointers to WmsSegment by ordinal */
	int64		nkept;
} WmsMore;

/* The kept rows that one batch added to an entry. */
typedef struct WmsSegment
{
	int64		seq;			/* worker's own: log row that holds it */
	uint32		nrows;
	uint32		spare;
	Size		len;			/* of what follows: rows, each WmsRow and bytes, MAXALIGNed */
} WmsSegment;

#define WMS_SEGMENT_DATA(segment) ((char *) (segment) + MAXALIGN(sizeof(WmsSegment)))

typedef struct WmsRow
{
	uint32		len;
	uint32		spare;
} WmsRow;

#define WMS_ROW_SIZE(len) (MAXALIGN(sizeof(WmsRow)) + MAXALIGN((Size) (len)))

static inline int64
wms_stored_seq(const WmsStored *stored)
{
	return ((int64) stored->seq_high << 32) | stored->seq_low;
}

static inline void
wms_stored_set_seq(WmsStored *stored, int64 seq)
{
	stored->seq_low = (uint32) seq;
	stored->seq_high = (uint16) (seq >> 32);
}

/* ---------------------------------------------------------------- local memory */

typedef struct WmsIndex WmsIndex;
typedef struct WmsFilter WmsFilter;
typedef struct WmsHeap WmsHeap;
typedef struct WmsTouched WmsTouched;
typedef struct WmsOverlay WmsOverlay;
typedef struct WmsEntryPrivate WmsEntryPrivate;

typedef enum WmsBucketState
{
	WMS_BUCKET_NEW,				/* made by the open batch */
	WMS_BUCKET_LIVE,
	WMS_BUCKET_CLOSING,			/* closed by the open batch: out of directory and order; was LIVE */
	WMS_BUCKET_GONE				/* closed by the open batch that made it */
} WmsBucketState;

#define WMS_ORDER_LEVELS 12
#define WMS_RECENT_BUCKETS 64	/* a power of two */

typedef struct WmsBucket
{
	WmsBucketKey key;
	uint32		salt;			/* of the key: for the overlay's hash */
	uint8		state;			/* WmsBucketState */
	uint8		levels;			/* in the order: 1 + number of up pointers */
	bool		revived;		/* its end had passed the horizon when it was made: its log records say so */
	WmsSharedBucket *shared;	/* NULL until reserved */
	dsa_pointer dp;				/* of shared */
	struct WmsBucket *prev;		/* neighbours in the shared list */
	struct WmsBucket *next;
	struct WmsBucket *order;	/* next in the order; in a list of closed buckets, next there */
	struct WmsBucket **up;		/* next on the levels above */
	WmsChunk   *tail;			/* last chunk */
	int64		chunk_bytes;	/* of all chunks */
	int64		nentries;		/* committed */
	int64		nkept;
	int64		nlive;			/* entries as the open batch sees them */
	int64		npending;		/* committed ones with WMS_ENTRY_PENDING */
	WmsIndex   *index;			/* NULL while there are few entries */
	WmsFilter  *filter;			/* NULL until keys were often looked for in vain, */
	int64		missed;			/* so many times by now */
	WmsHeap    *heap;			/* NULL until something needs it */
	WmsTouched *touched;		/* the open batch's part in it, or NULL */
} WmsBucket;

/* Does the open batch leave it open? */
static inline bool
wms_bucket_stays(const WmsBucket *bucket)
{
	return bucket->state == WMS_BUCKET_NEW || bucket->state == WMS_BUCKET_LIVE;
}

/* How far a heap was filled. */
typedef struct WmsHeapMark
{
	dsa_pointer chunk;			/* current chunk, invalid: none */
	char	   *at;				/* free room in it */
	Size		left;
	int64		bytes;
} WmsHeapMark;

/* What the open batch knows of a bucket it touched; in the batch context. */
struct WmsTouched
{
	WmsBucket  *bucket;
	WmsTouched *next;
	WmsEntryPrivate *first;		/* entries, in the order of first touch */
	WmsEntryPrivate *last;
	Size		need;			/* bytes of blocks that are still to be reserved */
	int64		nnew;			/* of the entries, those to be added */
	bool		removes;		/* some entries were removed */
	bool		frees;			/* publishing it will free blocks */
	bool		shelves;		/* some entries are to be shelved */
	WmsBucket  *shelf;			/* their copies, made by prepare; NULL: none */
	dsa_pointer chunks;			/* chunks made by this batch, linked among themselves only */
	WmsChunk   *old_tail;		/* tail before those */
	int64		old_bytes;		/* chunk_bytes before those */
	WmsHeapMark heap;			/* the heap before this batch */
};

/* A row of the log. */
typedef struct WmsLogRow
{
	uint32		bytes;
	uint32		live;			/* records that are newest */
	uint64		average;		/* bytes per record, those of rows that continue it included */
	bool		follows;		/* holds the rest of a record that began in an earlier row */
	bool		tombstones;		/* holds some */
} WmsLogRow;

/* The rows of the log by seq, without gaps: seq first + i is rows[offset + i]. */
typedef struct WmsLogRows
{
	int64		first;
	int64		count;
	int64		offset;
	int64		room;
	WmsLogRow  *rows;
} WmsLogRows;

/* A bucket that was looked for lately, by its key. */
typedef struct WmsRecentBucket
{
	bool		valid;
	WmsBucketKey key;
	WmsBucket  *bucket;			/* NULL: there is none */
} WmsRecentBucket;

/* Where the last walk through an operator's buckets by their ends began. */
typedef struct WmsWalkStart
{
	uint64		version;		/* order_version then */
	WmsTime		first;			/* the least end it asked for */
	WmsBucket  *bucket;			/* the first bucket that ends there or later; NULL: none */
} WmsWalkStart;

struct WmsStore
{
	MemoryContext context;		/* all local memory of the store */
	uint64		number;			/* of the stores that this process has made */
	MemoryContext buckets_context;	/* slab of WmsBucket */
	WmsSharedStream *slot;
	const WmsStateOps *ops;
	int			nops;
	struct WmsStore *next_open; /* stores of this process */

	/* shared memory */
	dsa_area   *area;
	dsa_handle	handle;
	WmsRoot    *root;
	Size		fence;			/* size limit of the area, moved in steps */
	Size		used;			/* bytes allocated in it */

	/* buckets */
	HTAB	   *directory;		/* by key */
	WmsBucket  *order[WMS_ORDER_LEVELS];	/* heads of the skip list by (op, end, start) */
	WmsBucket  *newest;			/* head of the shared list */
	WmsBucket  *closed_first;	/* closed by committed batches, still in the shared list, oldest first */
	WmsBucket  *closed_last;
	int64		nclosed;
	int64		nremovable;		/* of these, from the first: no snapshot wants them */

	/* committed figures */
	int64		nentries;
	int64		nkept;
	int64		nbuckets;
	WmsStateSize *sizes;		/* the same by operator; bytes: of the area, closed buckets that are still there and the open batch's among them */
	int64	   *npending;		/* by operator, of live buckets */

	/* log */
	Oid			stream;
	uint64		fingerprint;
	WmsTime    *horizons;		/* by operator: buckets with end <= this need no tombstone, a load leaves them out */
	WmsLogRows	log;
	int64		log_bytes;
	int64		log_cost;		/* log_bytes and what the rows themselves cost */
	int64		live_bytes;
	int64		credit;			/* bytes that compaction may re-append */

	bool		broken;			/* loading failed: good for wms_store_destroy only */
	WmsOverlay *overlay;		/* the open batch, or NULL */
	uint32		last_touched;	/* by the last batch: first guess for the next table */
	WmsRecentBucket recent[WMS_RECENT_BUCKETS]; /* by a cheap hash */
	uint64		order_version;	/* counts buckets that came or went */
	WmsWalkStart *starts;		/* by operator */
};

/* Fixed part of a batch; in its context. */
typedef struct WmsOverlaySlot
{
	uint32		hash;
	WmsEntryPrivate *entry;
} WmsOverlaySlot;

/* A record that compaction moved: its holder gets the new seq when the batch is published. */
typedef struct WmsMove
{
	WmsStored  *stored;			/* one of both */
	WmsSegment *segment;
	int64		seq;
} WmsMove;

struct WmsOverlay
{
	WmsStore   *store;			/* NULL: the store is gone */
	MemoryContext context;
	MemoryContextCallback callback;

	WmsOverlaySlot *slots;
	uint32		mask;
	uint32		count;
	WmsEntryPrivate *first;		/* all, in the order of first touch */
	WmsEntryPrivate *last;
	WmsTouched *touched;
	WmsTouched *touched_last;
	char	   *pool;			/* entries not given out yet */
	int			pool_left;

	WmsEntryPrivate *peeked;	/* shows an entry that is not touched; made when first needed */

	WmsBucket  *closing;		/* CLOSING and GONE, linked by order, newest first */
	bool		reserved;		/* prepare's first half is done */
	bool		tagged;
	FullTransactionId xid;
	int64		batches;		/* this batch's number */

	/* what the log will have when we commit */
	WmsTime    *horizons;
	bool		replaced;		/* the newest row was written anew as the first of ours */
	int64		deleted;		/* rows taken from the old end */
	int64		credit;
	WmsLogRow  *rows;
	int			nrows;
	int			rows_room;
	WmsMove    *moves;
	int64		nmoves;
	int64		moves_room;
	int64		nremovable;
};

/* Blocks that a batch reserved for an entry beside the entry itself. */
typedef struct WmsReserved
{
	dsa_pointer value;			/* a new place for the value */
	uint32		value_room;
	dsa_pointer more;
	WmsMore    *more_ptr;
	dsa_pointer segment;		/* the rows this batch keeps */
	WmsSegment *segment_ptr;
	dsa_pointer segments;		/* a larger array */
	uint32		segments_room;
} WmsReserved;

/* Rows that the open batch keeps, as a segment lays them out. */
typedef struct WmsKeptRows
{
	char	   *data;
	Size		len;
	Size		room;
	uint32		nrows;
} WmsKeptRows;

#define WMS_SMALL_KEY 32
#define WMS_SMALL_VALUE 32

struct WmsEntryPrivate
{
	WmsEntry	entry;			/* must be first: what the operator sees */
	WmsBucket  *bucket;
	WmsStored  *stored;			/* committed form, NULL with is_new; and copies of what is in it, which lies nearer here: */
	WmsMore    *more;			/* what hangs on it, or NULL */
	int64		stored_seq;
	uint32		stored_room;	/* for a value where it lies now */
	uint8		stored_flags;
	WmsEntryPrivate *next;
	WmsEntryPrivate *bucket_next;
	WmsKeptRows *kept;			/* NULL: none */

	/* made by prepare */
	const char *staged;			/* the value to be */
	uint32		staged_len;
	bool		changed;		/* value or flags are to be written */
	bool		shelved;		/* its committed form is kept for readers that do not see this batch */
	bool		hole;			/* block comes from a removed entry */
	bool		indexed;		/* block is in the index */
	WmsStored  *block;			/* new entries: the entry to be */
	WmsReserved *reserved;		/* NULL: nothing beside the block */
	int64		seq;			/* log row of the new version */
	int64		segment_seq;

	/* key and committed value, if they fit: looking the key up again, and comparing the value with the new one, stays in here */
	uint64		small_key[WMS_SMALL_KEY / sizeof(uint64)];
	uint64		small_value[WMS_SMALL_VALUE / sizeof(uint64)];
};

/*
 * Entries of a large state lie anywhere in memory.  Whoever is about to touch many of them asks for the next WMS_PREFETCH_GROUP
 * in one go: each is likely to need a walk through page tables, and processors make several such walks at a time if the
 * requests stand close together, but make the program wait for each of them if other work lies between.
 */
#define WMS_PREFETCH_GROUP 16

/* Asks for the committed forms of a bucket's touched entries from first on; returns the entry to ask from next, or NULL. */
static inline WmsEntryPrivate *
wms_prefetch_group(WmsEntryPrivate *first)
{
	int			i;

	for (i = 0; i < WMS_PREFETCH_GROUP && first != NULL; i++, first = first->bucket_next)
	{
		if (first->stored)
			wms_prefetch(first->stored);
	}
	return first;
}

/* ---------------------------------------------------------------- state_store.c */

/* Allocates in the area, for an operator; ERROR OUT_OF_MEMORY at the bound.  Never under the stream's lock. */
extern dsa_pointer wms_area_allocate(WmsStore *store, int op, Size size);
extern void wms_area_free(WmsStore *store, int op, dsa_pointer dp, Size size);
/* Committed entries, kept rows and live buckets come and go. */
extern void wms_store_count(WmsStore *store, const WmsBucket *bucket, int64 entries, int64 kept, int64 buckets);
/* The flags of a committed entry change; 0 for one that is not there. */
extern void wms_store_flags(WmsStore *store, WmsBucket *bucket, uint8 from, uint8 to);
/* May local memory grow by size?  ERROR OUT_OF_MEMORY if not. */
extern void wms_store_admit(WmsStore *store, Size size);
/* The size that the allocator would give anyway. */
extern Size wms_area_round(Size size);
/* The area of a store of this process, or NULL. */
extern dsa_area *wms_store_area(dsa_handle handle);
/* Frees closed buckets that no snapshot wants. */
extern void wms_store_collect(WmsStore *store);

static inline void *
wms_area_address(WmsStore *store, dsa_pointer dp)
{
	return dsa_get_address(store->area, dp);
}

/* ---------------------------------------------------------------- state_bucket.c: directory and order of the live buckets */

extern void wms_buckets_init(WmsStore *store);
extern WmsBucket *wms_bucket_find(WmsStore *store, const WmsBucketKey *key);
extern WmsBucket *wms_bucket_make(WmsStore *store, const WmsBucketKey *key);
/* One that is found by nobody but readers. */
extern WmsBucket *wms_bucket_make_shelf(WmsStore *store, const WmsBucketKey *key);
extern void wms_bucket_enter(WmsStore *store, WmsBucket *bucket);
extern void wms_bucket_leave(WmsStore *store, WmsBucket *bucket);
/* The operator's first one in the order that ends at first or later, NULL: none. */
extern WmsBucket *wms_bucket_walk(WmsStore *store, int op, WmsTime first);
/* The first in the order greater than key. */
extern WmsBucket *wms_bucket_after(WmsStore *store, const WmsBucketKey *key);
extern void wms_bucket_reserve(WmsStore *store, WmsBucket *bucket, Size need);
/* Into and out of the shared list; the caller holds the lock or nobody can look. */
extern void wms_bucket_link(WmsStore *store, WmsBucket *bucket);
extern void wms_bucket_unlink(WmsStore *store, WmsBucket *bucket);
/* Gives back all memory; it is in no list any more. */
extern void wms_bucket_free(WmsStore *store, WmsBucket *bucket);
extern WmsStored *wms_bucket_first(WmsStore *store, const WmsSharedBucket *shared, const WmsChunk **chunk);
extern WmsStored *wms_bucket_next(WmsStore *store, const WmsChunk **chunk, WmsStored *stored);

/* ---------------------------------------------------------------- state_arena.c: blocks of a bucket */

extern Size wms_stored_size(Size key_len, Size value_len);
/* Room for an entry; *hole: it was one, its header must stay until it is published. */
extern WmsStored *wms_arena_entry(WmsStore *store, WmsBucket *bucket, Size size, bool *hole);
extern void wms_arena_free_entry(WmsStore *store, WmsBucket *bucket, WmsStored *stored);
extern void wms_arena_publish(WmsStore *store, WmsTouched *touched);
/* Remembers how far the bucket's memory was filled; discard goes back to it. */
extern void wms_arena_mark(WmsBucket *bucket, WmsTouched *touched);
extern bool wms_heap_has_lists(WmsBucket *bucket);
extern bool wms_heap_is_large(Size size);
extern void wms_arena_discard(WmsStore *store, WmsTouched *touched);
/* Blocks of the bucket will be freed where no memory can be had: makes the lists for them. */
extern void wms_arena_expect_free(WmsStore *store, WmsBucket *bucket);
extern void wms_arena_free_chunks(WmsStore *store, WmsBucket *bucket);
/* Room for anything else; ptr gets the address. */
extern dsa_pointer wms_heap_allocate(WmsStore *store, WmsBucket *bucket, Size size, void **ptr);
extern void wms_heap_free(WmsStore *store, WmsBucket *bucket, dsa_pointer dp, Size size);
extern void wms_heap_destroy(WmsStore *store, WmsBucket *bucket);
/* Frees what hangs on an entry. */
extern void wms_more_free(WmsStore *store, WmsBucket *bucket, dsa_pointer more);
extern const char *wms_stored_value(WmsStore *store, const WmsStored *stored);
extern WmsSegment *wms_more_segment(WmsStore *store, const WmsMore *more, uint32 ordinal);

/* ---------------------------------------------------------------- state_index.c: entries of a bucket by key */

typedef struct WmsSought
{
	uint32		hash;
	uint32		key_len;
	const char *key;
	const WmsStateOps *ops;
} WmsSought;


static inline bool
wms_key_same(const WmsStateOps *ops, const char *a, uint32 a_len, const char *b, uint32 b_len)
{
	if (a_len == b_len && wms_bytes_same(a, b, a_len))
		return true;
	return ops->match && ops->match(a, a_len, b, b_len, ops->arg);
}

extern WmsStored *wms_index_find(WmsStore *store, WmsBucket *bucket, const WmsSought *sought);
extern const void *wms_index_place(const WmsBucket *bucket, uint32 hash);
extern const WmsStored *wms_index_candidate(const WmsBucket *bucket, uint32 hash, const void *place);
/* Buckets get an index when they have more entries than this; then the committed ones are in it. */
#define WMS_INDEX_FROM 8
extern void wms_index_build(WmsStore *store, WmsBucket *bucket, int64 expected);
extern void wms_index_insert(WmsStore *store, WmsBucket *bucket, WmsStored *stored, uint32 hash);
extern void wms_index_delete(WmsBucket *bucket, WmsStored *stored, uint32 hash);
extern void wms_index_free(WmsBucket *bucket);

/* ---------------------------------------------------------------- state_filter.c: which keys a bucket does not have */

extern void wms_filter_missed(WmsStore *store, WmsBucket *bucket);
extern void wms_filter_add(WmsStore *store, WmsBucket *bucket, uint32 hash);
extern bool wms_filter_excludes(WmsFilter *filter, uint32 hash);
extern void wms_filter_free(WmsBucket *bucket);

/* ---------------------------------------------------------------- state_overlay.c, state_publish.c */

/* The live touched entry of a key, or NULL; *removed: it was touched and removed. */
extern WmsEntryPrivate *wms_overlay_find(WmsStore *store, WmsBucket *bucket, const WmsSought *sought, bool *removed);

/* ---------------------------------------------------------------- state_read.c */

/* Calls fn for each row of a segment's data; false: it has had enough. */
extern bool wms_rows_each(const char *data, Size len, WmsKeptFn fn, void *arg);

/* ---------------------------------------------------------------- state_log.c, state_load.c */

#define WMS_LOG_FORMAT 3
#define WMS_LOG_ROW_BYTES (64 * 1024 - 64)
/* Operators beyond these have no horizon: every bucket of theirs that closes gets a tombstone. */
#define WMS_MAX_HORIZONS 64
#define WMS_LOG_ROW_COST 1024	/* what a row costs beside its bytes, in bytes */

/* Head of every row's data; native byte order. */
typedef struct WmsLogHeader
{
	uint16		format;
	uint16		flags;
	int32		server_version;
	uint64		fingerprint;
	uint32		head_len;		/* bytes of progress behind this, with WMS_LOG_HEAD */
	uint32		spare;
} WmsLogHeader;

#define WMS_LOG_HEAD 0x01		/* carries the progress: last row of its batch */
#define WMS_LOG_CONTINUES 0x02	/* its last record goes on in the next row */
#define WMS_LOG_FOLLOWS 0x04	/* begins inside a record */

typedef enum WmsRecordKind
{
	WMS_RECORD_BUCKET = 1,		/* names the bucket of what follows in this row */
	WMS_RECORD_ENTRY,
	WMS_RECORD_SEGMENT,
	WMS_RECORD_REMOVED,			/* the entry is gone */
	WMS_RECORD_CLOSED,			/* the bucket is gone */
	WMS_RECORD_BOTH				/* ENTRY, and SEGMENT with its first kept rows; read as these two */
} WmsRecordKind;

/* A record as it was read; pointers into the row. */
typedef struct WmsRecord
{
	WmsRecordKind kind;
	WmsBucketKey bucket;
	bool		revived;
	uint32		hash;
	uint8		flags;
	uint32		key_len;
	const char *key;			/* not aligned */
	uint32		value_len;
	const char *value;			/* not aligned */
	uint32		ordinal;
	uint32		nrows;
	Size		rows_len;
	const char *rows;			/* not aligned */
} WmsRecord;

typedef struct WmsRecordReader
{
	const char *at;
	const char *end;
	WmsRecord	record;			/* bucket stays from record to record */
	bool		segment_follows;	/* the second half of BOTH is still to be shown: */
	uint32		nrows;
	Size		rows_len;
	const char *rows;
} WmsRecordReader;

/* The table of the log, open. */
typedef struct WmsLogTable
{
	Relation	table;
	Relation	index;
	Snapshot	snapshot;
	MemoryContext context;		/* where it was opened: scans must allocate in one that lasts as long */
} WmsLogTable;

typedef struct SysScanDescData *WmsLogScan;

/* Rows of a stream, or of it from seq on (min_seq > 0). */
extern void wms_log_open(WmsLogTable *log, LOCKMODE lockmode, Snapshot snapshot);	/* NULL: the latest */
extern void wms_log_close(WmsLogTable *log);
extern WmsLogScan wms_log_scan(WmsLogTable *log, Oid stream, int64 min_seq);
extern HeapTuple wms_log_next(WmsLogTable *log, WmsLogScan scan, bool backward, int64 *seq);
/* The row's data, detoasted in the current context. */
extern struct varlena *wms_log_data(WmsLogTable *log, HeapTuple tuple);

/* A batch's rows in the making. */
typedef struct WmsLogWriter
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
	int			record_lives;	/* the record at hand counts so often as live */
	bool		splitting;		/* it goes over several rows */
	int			split_row;		/* the first of them, in overlay->rows */
	WmsBucket  *bucket;			/* named last in this row */
	int64		appended;		/* bytes of rows written */
} WmsLogWriter;

/* What a batch makes obsolete. */
typedef struct WmsObsolete
{
	int64		newest;			/* records of the newest row */
	int64		bytes;			/* of all rows, about */
} WmsObsolete;

extern void wms_log_write(WmsStore *store, const WmsProgress *progress);
extern void wms_log_publish(WmsStore *store);
/* Append a record, that of an entry with its first kept rows if it has any; result: seq of the row where it begins. */
extern int64 wms_log_put_entry(WmsLogWriter *writer, WmsBucket *bucket, const WmsRecord *record);
extern int64 wms_log_put_segment(WmsLogWriter *writer, WmsBucket *bucket, const WmsRecord *record);
extern bool wms_record_next(WmsRecordReader *reader);
extern void wms_log_check(const char *data, Size len, WmsLogHeader *header, uint64 fingerprint);
/* *first: seq of the oldest row. */
extern void wms_head_decode(const char *at, Size len, WmsProgress *progress, WmsTime *horizons, int nhorizons, int64 *first);

/* ---------------------------------------------------------------- state_compact.c */

extern void wms_log_find_obsolete(WmsStore *store, WmsObsolete *obsolete);
/* May the newest row be written over? */
extern bool wms_log_newest_is_dead(WmsStore *store, const WmsObsolete *obsolete);
extern void wms_log_compact(WmsLogWriter *writer, const WmsObsolete *obsolete);

/* ---------------------------------------------------------------- state_rows.c */

extern void wms_rows_reserve(WmsStore *store, int64 more);
extern void wms_rows_append(WmsStore *store, const WmsLogRow *row);
extern void wms_rows_drop(WmsStore *store, int64 count);
extern void wms_rows_drop_newest(WmsStore *store);
extern void wms_rows_live(WmsStore *store, int64 seq, int change);
extern void wms_log_unlog(WmsStore *store, const WmsStored *stored, bool segments);

/* The i-th oldest row. */
static inline WmsLogRow *
wms_row_at(WmsStore *store, int64 i)
{
	return &store->log.rows[store->log.offset + i];
}

static inline int64
wms_row_cost(const WmsLogRow *row)
{
	return (int64) row->bytes + WMS_LOG_ROW_COST;
}

#endif							/* WMS_STATE_INTERNAL_H */
