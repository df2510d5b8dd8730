/*
 * state.h
 *	  The state of one stream: a store in shared memory, the overlay of the
 *	  batch that is being worked on, and the durable log.
 *
 * state_store.c    the area in shared memory: life, bound, figures, closed buckets
 * state_bucket.c   buckets: directory, order, the readers' list
 * state_arena.c    memory of a bucket
 * state_index.c    entries of a bucket by key
 * state_filter.c   which keys a bucket does not have
 * state_overlay.c  what the open batch touches
 * state_publish.c  prepare, publish, discard
 * state_log.c      wmstream.state_log: table, format, writing
 * state_compact.c  keeping the log short
 * state_rows.c     account of its rows
 * state_load.c     reading it
 * state_read.c     readers in other backends
 *
 * Nouns.  A *bucket* is the unit of expiry of one operator: [start, end) of a
 * window, or of an expiry interval; all its entries leave together and its memory
 * is freed whole.  An *entry* is a key with a value (bytes, up to the operator) and a
 * list of *kept rows* (byte strings in order of arrival).  Keys and values are opaque
 * here, MAXALIGNed wherever they are handed out.
 *
 * Order of events in a batch: wms_state_begin; any number of get/keep/remove/close;
 * wms_state_reserve (values are encoded, memory is taken); wms_state_prepare (inside the
 * transaction: the log is written, closing buckets are tagged with our xid); COMMIT; wms_state_publish.  After an
 * error: wms_state_discard.  Nothing that others can see changes before the commit
 * except tags with an xid that has not committed, which readers ignore.
 */
#ifndef WMS_STATE_H
#define WMS_STATE_H

#include "base/base.h"
#include "shared/shared.h"
#include "utils/snapshot.h"

typedef struct WmsStore WmsStore;

typedef struct WmsBucketKey
{
	int32		op;				/* operator number in the flow */
	WmsTime		start;
	WmsTime		end;			/* WMS_TIME_MAX: never leaves by itself */
} WmsBucketKey;

/* Flag bits of an entry that are the operator's own, durable with it. */
#define WMS_ENTRY_UNSHOWN	0x01	/* came into a window after that was emitted, and was not emitted itself yet */
#define WMS_ENTRY_PENDING	0x02	/* touched since the last firing, and to be shown by the next one though its bucket stays */

/* An entry as the current batch sees it.  Lives in the batch context; pointers are stable until the batch ends. */
typedef struct WmsEntry
{
	WmsBucketKey bucket;
	uint32		hash;
	uint8		flags;			/* operator sets; written with the value */
	bool		is_new;			/* not in shared memory before this batch */
	bool		removed;		/* the scans leave it out; the same key may be made anew */
	uint32		key_len;
	const char *key;
	uint32		value_len;		/* committed value; 0 with is_new */
	const char *value;
	void	   *work;			/* operator's working form, NULL until the operator makes it */
	int64		nkept;			/* kept rows, old and new */
	struct WmsEntryPrivate *priv;
} WmsEntry;

/* Do two keys of equal hash mean the same?  Called only when their bytes differ. */
typedef bool (*WmsKeyMatch) (const char *a, uint32 a_len, const char *b, uint32 b_len, void *arg);
/*
 * Writes the entry's value from its working form; called by prepare for every touched entry that was not removed and
 * is new or has a working form.  Without one (work NULL) an old entry keeps its value.  What turns out as it was is not written.
 */
typedef void (*WmsEncode) (WmsEntry *entry, StringInfo value, void *arg);
typedef bool (*WmsKeptFn) (const char *row, uint32 len, void *arg);	/* false: no more */
typedef void (*WmsEntryFn) (WmsEntry *entry, void *arg);

/* How the operator numbered op treats its entries. */
typedef struct WmsStateOps
{
	WmsKeyMatch match;			/* NULL: bytes decide */
	WmsEncode	encode;			/* NULL: entries have no value */
	void	   *arg;
	int64		keep_span;		/* a bucket leaves when end + keep_span <= W; < 0: never by itself */
} WmsStateOps;

/* ---- life: the worker */

/*
 * Makes an empty store for a stream in a new DSA area (a former area of that slot is freed) and remembers it in the
 * shared slot.  ops is an array by operator number, kept by reference.  Result in the current context.
 */
extern WmsStore *wms_store_create(WmsSharedStream *slot, const WmsStateOps *ops, int nops);
/* The flow was built anew: other ops for the same operators. */
extern void wms_store_set_ops(WmsStore *store, const WmsStateOps *ops, int nops);
/* Detaches and frees the area. */
extern void wms_store_destroy(WmsStore *store);
extern void wms_store_free_area(WmsSharedStream *slot);	/* also for a slot whose worker is gone */

/*
 * Loads the state of the stream from the log: every bucket that no committed batch closed.  (keep_span tells which
 * closings need no tombstone, because the watermark in the same commit implies them.)  False: there is no log (a new stream).  ERROR DATA_CORRUPTED with hint if
 * format, server version or fingerprint do not fit.  Inside a transaction.  After an error the store is
 * good for wms_store_destroy only.
 */
extern bool wms_store_load(WmsStore *store, Oid stream, uint64 fingerprint, WmsProgress *progress);

/* ---- a batch: the worker */

/* All of the batch lives in this context; a batch that is still open when it is reset is discarded. */
extern void wms_state_begin(WmsStore *store, MemoryContext batch);
/* The entry of a key in a bucket; made if create and not there, else NULL.  Key bytes are copied on creation. */
extern WmsEntry *wms_state_get(WmsStore *store, const WmsBucketKey *bucket, uint32 hash,
							   const char *key, uint32 key_len, bool create);
/*
 * Looking without touching: the entry of a key as the batch sees it, NULL if there is none.  One that the batch has not touched is shown by a
 * temporary, as in scans, that is valid until the next look: wms_state_touch gives the lasting form of what is to be changed.
 */
extern WmsEntry *wms_state_peek(WmsStore *store, const WmsBucketKey *bucket, uint32 hash, const char *key, uint32 key_len);
extern WmsEntry *wms_state_touch(WmsStore *store, WmsEntry *entry);
/*
 * The same for all buckets of an operator with first <= end <= last, in order of (end, start): wms_state_look, then wms_state_look_next until
 * that gives NULL.  Meanwhile no bucket of the operator may come or go.
 */
typedef struct WmsLook
{
	int32		op;
	WmsTime		first;
	WmsTime		last;
	uint32		hash;
	uint32		key_len;
	const char *key;
	struct WmsBucket *next;		/* the state room's own */
} WmsLook;
extern void wms_state_look(WmsStore *store, WmsLook *look);
extern WmsEntry *wms_state_look_next(WmsStore *store, WmsLook *look);
/*
 * wms_state_get will be asked for these hashes in these buckets (n <= WMS_EXPECT_MAX) next: has their memory fetched, all at
 * once.  Never needed, never wrong; in a state of millions of entries it saves most of the time of a first touch.
 */
#define WMS_EXPECT_MAX 32
typedef struct WmsExpected
{
	WmsBucketKey bucket;
	uint32		hash;
} WmsExpected;

extern void wms_state_expect(WmsStore *store, const WmsExpected *rows, int n);
/* The same in two steps, for those who know of more rows than they will touch next: other work in between hides the waiting. */
extern void wms_state_expect_slots(WmsStore *store, const WmsExpected *rows, int n);
extern void wms_state_expect_entries(WmsStore *store, const WmsExpected *rows, int n);
/* The same for an entry that is probably not there, to be made soon. */
extern void wms_state_expect_new(WmsStore *store, const WmsBucketKey *bucket, uint32 hash);
extern void wms_state_keep(WmsStore *store, WmsEntry *entry, const char *row, uint32 len);
extern void wms_state_remove(WmsStore *store, WmsEntry *entry);	/* one that was got or touched */
/* All kept rows of an entry in order of arrival. */
extern void wms_state_kept(WmsStore *store, WmsEntry *entry, WmsKeptFn fn, void *arg);
/* The same from the run of rows on that holds the row with this number; *number gets that of the first one shown, and fn must count it up. */
extern void wms_state_kept_from(WmsStore *store, WmsEntry *entry, int64 from, int64 *number, WmsKeptFn fn, void *arg);
/*
 * Buckets of an operator in order of (end, start), this batch's among them; start with *key = {op, WMS_TIME_MIN, WMS_TIME_MIN};
 * finds the first one greater than *key that is not closed, false if there is none.
 */
extern bool wms_state_next_bucket(WmsStore *store, WmsBucketKey *key);
/* All live entries of a bucket.  An untouched entry is shown by a temporary that is not part of the overlay (value points to
 * a copy or to shared memory that only we change) and valid during the call only; fn must not touch the store. */
extern void wms_state_scan(WmsStore *store, const WmsBucketKey *bucket, WmsEntryFn fn, void *arg);
/* The same of an operator's buckets that hold committed entries with WMS_ENTRY_PENDING: these are known without looking at others. */
extern void wms_state_scan_pending(WmsStore *store, int op, WmsEntryFn fn, void *arg);
/* The entries touched by this batch and not removed, in the order of first touch, those in closed buckets too. */
extern void wms_state_scan_touched(WmsStore *store, int op, WmsEntryFn fn, void *arg);
/* The bucket leaves with this batch.  Its touched entries stay in scan_touched; the same key may come again, as a new bucket. */
extern void wms_state_close(WmsStore *store, const WmsBucketKey *bucket);

/*
 * Readers whose snapshot does not see this batch go on seeing the touched entry, removed or not, as it was committed before: for
 * entries that change from open to shown in a bucket that stays.
 */
extern void wms_state_shelve(WmsStore *store, WmsEntry *entry);

/*
 * After the last touch: encodes what was touched and takes memory for it.  ERROR OUT_OF_MEMORY with hint when state_memory is not
 * enough.  Then prepare, before COMMIT (which reserves if that was not done).
 */
extern void wms_state_reserve(WmsStore *store);
extern void wms_state_prepare(WmsStore *store, const WmsProgress *progress);
extern void wms_state_publish(WmsStore *store);
/* After an error, when the transaction is over.  (If it did commit, the batch is published: memory follows the log.) */
extern void wms_state_discard(WmsStore *store);

/* Removes all log rows of a stream (drop, resync).  Inside a transaction. */
extern void wms_state_forget(Oid stream);

/* Counts up with each batch that is published; never the same for two stores of this process. */
extern uint64 wms_state_version(WmsStore *store);

/* How many entries the batch has touched so far. */
extern int64 wms_state_touched(WmsStore *store);

/* Figures. */
typedef struct WmsStateSize
{
	int64		entries;
	int64		kept_rows;
	int64		buckets;
	int64		bytes;			/* size of the area, and the worker's own index to it */
	int64		log_bytes;
} WmsStateSize;
extern void wms_state_size(WmsStore *store, WmsStateSize *size);
/* Of one operator: bytes of the area only, log_bytes not at all. */
extern void wms_state_op_size(WmsStore *store, int op, WmsStateSize *size);

/* ---- readers: any backend */

/* What a reader asks for. */
typedef struct WmsReading
{
	WmsSharedStream *slot;
	Snapshot	snapshot;
	int64		batches;		/* number of the newest batch that the snapshot sees (WMS_COUNT_BATCHES of wms_state_read_progress); 0: none */
	int			op;				/* entries of this operator */
	const WmsStateOps *ops;		/* of it: how its keys compare */
} WmsReading;

/*
 * Calls fn for a copy (in the current context, where it stays) of every entry that a reader with this snapshot must see as open:
 * all of live buckets, and those of buckets that closed in a transaction the snapshot does not see; shelved entries as they were before.
 * Kept rows by wms_reader_kept inside fn.  The state is seen as it was between two batches, and at least as new as the snapshot.  False if the
 * stream has no area at the moment, or it is being loaded.  ERROR T_R_SERIALIZATION_FAILURE if buckets
 * that closed are not kept for a snapshot as old as this (the stream was started since, or memory was short).
 */
extern bool wms_state_read(const WmsReading *reading, WmsEntryFn fn, void *arg);
extern void wms_reader_kept(WmsEntry *entry, WmsKeptFn fn, void *arg);
/* W, position and counters of the newest batch that a snapshot sees; false: it sees none.  What was seen of queues lies in the current context. */
extern bool wms_state_read_progress(Oid stream, Snapshot snapshot, WmsProgress *progress);
/* The same, but a log that is damaged raises nothing: *damage says so, in the current context; else it is NULL. */
extern bool wms_state_try_progress(Oid stream, Snapshot snapshot, WmsProgress *progress, char **damage);

#endif							/* WMS_STATE_H */
