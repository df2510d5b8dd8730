/*
 * source.h
 *	  Rows of source tables in commit order, with positions.
 *
 * source_slot.c       the database's replication slot: name, state, making, dropping
 * source_wal.c        decoding: opening, reading on, rewinding, confirming
 * source_callbacks.c  what decoding calls: transactions on their way into a batch
 * source_take.c       a decoded change on its way into a store
 * source_relation.c   which relations are wanted, as whose rows, in which shape
 * source_row.c        rows made flat, and converted from a partition to its root
 * source_move.c       updates that move a row between partitions
 * source_stage.c      byte stores for rows, in memory or on disk
 * source_queue.c      rows of queue tables by transaction
 * source_batch.c      a batch: whole committed transactions, to be read many times
 * source_bundle.c     rows of a batch that several streams read, gathered by table and taken apart once
 * source_filled.c     which transactions a snapshot saw
 * source_fill.c       rows that are there already, in event-time order
 *
 * Errors that a caller can tell apart by their code:
 *
 *   UNDEFINED_OBJECT                     there is no slot
 *   OBJECT_NOT_IN_PREREQUISITE_STATE     the slot has lost its WAL (or is not ours); wal_level is too low
 *   OBJECT_IN_USE                        another process holds the slot
 *   UNDEFINED_FILE                       the start asked for lies before what the slot still keeps
 *   CONFIGURATION_LIMIT_EXCEEDED         no free slot in the cluster
 *   ACTIVE_SQL_TRANSACTION               the slot cannot be made in a transaction that has written
 */
#ifndef WMS_SOURCE_H
#define WMS_SOURCE_H

#include "access/htup.h"
#include "base/base.h"
#include "utils/snapshot.h"

/*
 * The shape of a source table at the time its rows were written.  One per table and layout; lives as long as the process, so that
 * pointers may be compared and kept.
 */
typedef struct WmsRowShape
{
	Oid			relid;			/* the table; for rows of a leaf partition the wanted table above it */
	TupleDesc	desc;			/* with constraints, so that missing values are known (a partitioned table has none) */
} WmsRowShape;

typedef enum WmsChangeKind
{
	WMS_CHANGE_INSERT,
	WMS_CHANGE_UPDATE,
	WMS_CHANGE_DELETE,
	WMS_CHANGE_TRUNCATE
} WmsChangeKind;

/* One change, valid until the next call of wms_batch_next (but see fleeting).  An update that moves a row between partitions is an UPDATE. */
typedef struct WmsChange
{
	WmsChangeKind kind;
	const WmsRowShape *shape;	/* the table; for TRUNCATE too */
	HeapTupleData tuple;		/* INSERT, UPDATE: the new row; t_data NULL otherwise. Flat: nothing toasted outside */
	HeapTupleData old;			/* UPDATE, DELETE: the old row, whole under REPLICA IDENTITY FULL; t_data NULL if it was not logged */
	bool		old_is_key;		/* old has only the columns of the replica identity, others stand as NULL */
	bool		partial;		/* TRUNCATE of partitions, not of the table itself */
	bool		fleeting;		/* read from a file: the rows' bytes go with the next call; others stay while the batch is read */
	bool		missing_toast;	/* a toasted value of tuple could not be had (unchanged by an UPDATE without REPLICA IDENTITY
								 * FULL, or the row is too large to be flat): it stands as NULL */
	XLogRecPtr	end_lsn;		/* end of the commit record of its transaction: the stream's position after it; of a queue: invalid */
	TransactionId xid;			/* top-level */
} WmsChange;

/* A row as a tuple; len 0: none. */
static inline void
wms_set_tuple(HeapTuple tuple, Oid relid, uint32 len, HeapTupleHeader row)
{
	tuple->t_len = len;
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = relid;
	tuple->t_data = len > 0 ? row : NULL;
}

/* Whole committed transactions, in commit order.  Reference-counted; outlives the WmsWal that made it. */
typedef struct WmsBatch
{
	XLogRecPtr	start;			/* up to here was read before */
	XLogRecPtr	end;			/* up to here everything that committed has been delivered, by this batch and those before */
	WmsSeen    *seen;			/* of queues: position after it; NULL: from the WAL */
	int64		nrows;			/* rows and truncates */
	int64		bytes;			/* what it takes in memory and on disk */
	int			ntxns;
	TransactionId *xids;		/* top-level xids of its transactions (to wait for their visibility) */
	TimestampTz newest;			/* when the last of them committed; of a queue: when it was read */
	int			refs;
	bool		existing;		/* not transactions at all: rows that were there before */
	TransactionId catalog_xid;	/* its last transaction, if that changed catalogs; else invalid */
	List	   *created;		/* List of WmsCreated *: streams whose registry row was inserted by its last transaction */
	struct WmsBatchRows *rows;	/* private */
	struct WmsBundles *bundles; /* private; NULL: nobody has asked for them */
} WmsBatch;

/* A stream was registered by a transaction of this batch. */
typedef struct WmsCreated
{
	Oid			stream;
	Oid			view;			/* tells it from others that were made on the same table */
	XLogRecPtr	end_lsn;		/* its first position */
} WmsCreated;

typedef struct WmsWal WmsWal;

/* ---------------------------------------------------------------- source_slot.c */

typedef enum WmsSlotState
{
	WMS_SLOT_MISSING,			/* or not finished yet */
	WMS_SLOT_FREE,
	WMS_SLOT_ACTIVE,			/* held by a process */
	WMS_SLOT_LOST				/* invalidated: its WAL is gone */
} WmsSlotState;

typedef struct WmsSlotInfo
{
	WmsSlotState state;
	int			active_pid;		/* 0: none */
} WmsSlotInfo;

/* Where the slot that this process holds was made; InvalidXLogRecPtr: not known. */
extern XLogRecPtr wms_slot_birth(void);
/* Name of the slot of a database: "wmstream_<oid>".  Static buffer. */
extern char *wms_slot_name(Oid database);
extern void wms_slot_info(Oid database, WmsSlotInfo *info);
/* Is it there, finished and not lost? */
extern bool wms_slot_exists(Oid database);
/* Is it there, in whatever state? */
extern bool wms_slot_is_there(Oid database);
/*
 * Makes the slot of this database, in the caller's transaction, which must not have
 * written yet (ERROR with hint otherwise).  Interruptible; NOTICE naming whom it waits for.
 * Returns at once if a usable one is there; waits if another session is just making it; replaces a lost one.
 */
extern bool wms_slot_create(void);	/* true: this call made it */
/*
 * Makes a copy of the slot, which may be in use, for a stream; it is temporary and this process's.  Waits for nobody.  Its name, in a
 * static buffer.  Outside a transaction.
 */
extern char *wms_slot_copy(Oid stream);
/* Drops the slot if it is there and free; false if it is in use.  Needs no database connection. */
extern bool wms_slot_drop(Oid database);

/* ---------------------------------------------------------------- source_wal.c */

/*
 * Opens the slot for this worker and begins to decode at start (InvalidXLogRecPtr: where
 * the slot stands).  wanted(relid, arg) says whether rows of a table are to be staged; for a leaf partition it is asked for the leaf
 * and for every table above it, and may be called while decoding, so it must not touch catalogs.  registry is the OID of
 * wmstream.stream, or InvalidOid.  Lives in wms_worker_context; one per process at a time.  After an ERROR nothing stays open.
 */
typedef bool (*WmsWanted) (Oid relid, void *arg);
extern WmsWal *wms_wal_open(XLogRecPtr start, Oid registry, WmsWanted wanted, void *arg);
/* The same on a copy of the slot, made for a stream; it goes with this process. */
extern WmsWal *wms_wal_open_copy(Oid stream, WmsWanted wanted, void *arg);
/* Begins again at start, which may lie behind what was read: what streams that are behind need.  Implies wms_wal_reset_relations. */
extern void wms_wal_rewind(WmsWal *wal, XLogRecPtr start);
/* Gives the slot back.  The only call allowed after an ERROR in one of the others (besides exit). */
extern void wms_wal_close(WmsWal *wal);
/*
 * The set of wanted tables changed: forget what was remembered about relations.  If rows that are wanted now were passed over in
 * transactions that are still open, the next call of wms_wal_next reads them again.
 */
extern void wms_wal_reset_relations(WmsWal *wal);

/*
 * Reads on, up to the flushed end of WAL or to upto (InvalidXLogRecPtr: no such bound), until max_rows are together and a transaction
 * ends; DDL and new streams end a batch too, and so do 64 MB of WAL without a transaction for us (call again at once).
 * A batch without transactions says only how far was read;
 * NULL: nothing at all was read.  Must be called outside a transaction.  References: 1.  Interruptible.
 */
extern WmsBatch *wms_wal_next(WmsWal *wal, int64 max_rows, XLogRecPtr upto);
/* End of what was read so far: every transaction that ended before it was delivered. */
extern XLogRecPtr wms_wal_read_upto(WmsWal *wal);
/* Tells the slot that all up to lsn is durable with us.  Never goes back, never beyond what was read. */
extern void wms_wal_confirm(WmsWal *wal, XLogRecPtr lsn);

/* ---------------------------------------------------------------- source_queue.c */

/* What there is in queues beyond a position. */
typedef struct WmsQueueRead
{
	WmsBatch   *batch;			/* its rows; NULL: there were none.  References: 1 */
	WmsSeen    *seen;			/* position after it; in the caller's context */
	bool		complete;		/* the position that was to be reached was reached */
	XLogRecPtr	lsn;			/* then, set by the caller: all that committed before this has been read */
} WmsQueueRead;

/*
 * To be called before the snapshot is taken under which queues (a list of OIDs) are read, or their rows found.
 * ERROR LOCK_NOT_AVAILABLE if a table cannot be locked without waiting.
 */
extern void wms_queue_lock(List *queues);
/*
 * Reads queues on from a position to another, which may be no newer than the active snapshot, until max_rows are together and
 * a transaction ends.  wms_queue_read_end completes the batch when the caller has set the lsn.
 * ERROR OBJECT_NOT_IN_PREREQUISITE_STATE if a table is no queue or has lost its index.
 */
extern void wms_queue_read(List *queues, const WmsSeen *seen, const WmsSeen *upto, int64 max_rows, WmsQueueRead *read);
extern void wms_queue_read_end(WmsQueueRead *read);

/* Rows of a queue to be found by their transactions, in the order of these. */
typedef struct WmsQueueFind
{
	uint64		from;			/* of transactions from this */
	uint64		upto;			/* and before this */
	bool		(*wanted) (uint64 xid, void *arg);
	void	   *arg;
	ItemPointerData *tids;		/* found, at most room */
	int			room;
	int			ntids;
	Oid			owner;			/* of the table */
	bool		has_effects;	/* deleting them may do something to other tables, by triggers (foreign keys too) or rules */
} WmsQueueFind;

/* The queue is locked, as above; what the active snapshot sees of it.  Errors as above. */
extern void wms_queue_find(Oid queue, WmsQueueFind *find);

/* ---------------------------------------------------------------- source_batch.c */

/* May it hold rows of this table?  False is certain. */
extern bool wms_batch_has(const WmsBatch *batch, Oid relid);
extern void wms_batch_ref(WmsBatch *batch);
extern void wms_batch_unref(WmsBatch *batch);
/* A batch of nothing, by which a stream comes to that position. */
extern WmsBatch *wms_batch_of_position(XLogRecPtr end);
/* Reading: from the first change again; false at the end.  Skips changes with end_lsn <= after. */
extern void wms_batch_rewind(WmsBatch *batch, XLogRecPtr after);
extern void wms_batch_skip(WmsBatch *batch);	/* reading: to the end */
extern bool wms_batch_next(WmsBatch *batch, WmsChange *change);

/* ---------------------------------------------------------------- source_bundle.c */

/* A bundle ends when it has so much. */
#define WMS_BUNDLE_ROWS 256
#define WMS_BUNDLE_BYTES ((Size) 1024 * 1024)

/* A column of a bundle's rows. */
typedef struct WmsColumn
{
	Datum	   *values;			/* of each row; NULL: not taken out of them yet */
	bool	   *isnull;
	bool		has_nulls;		/* some of them are NULL; else isnull need not be looked at */
} WmsColumn;

/* Rows of one table that were inserted, one after the other.  They and their columns stay while the batch is being read. */
typedef struct WmsBundle
{
	const WmsRowShape *shape;
	int			nrows;
	Size		bytes;
	HeapTupleHeader *rows;
	uint32	   *lens;			/* of rows, in bytes */
	WmsColumn  *columns;		/* by columns of the shape, from 0; NULL: none has been taken yet */
	TransactionId xid;			/* of the last row: top-level, */
	XLogRecPtr	end_lsn;		/* and where its transaction ends */
} WmsBundle;

/*
 * Begins to read all rows of these tables as bundles, for a stream that has had all up to after; false: they cannot be had so.  Makes the bundles
 * when at least wmstream.bundle_from streams have yet to read the batch.  They can be read until something is appended to any store.
 */
extern bool wms_bundles_begin(WmsBatch *batch, XLogRecPtr after, const List *relids);
/* The i-th bundle, of whatever table, those of one table in order; NULL: that was all. */
extern WmsBundle *wms_bundles_get(const WmsBatch *batch, int i);
/* Sees to it that these columns are there.  False: they cannot be had so; the rows can. */
extern bool wms_bundle_take(WmsBatch *batch, WmsBundle *bundle, const int *columns, int n);

/* ---------------------------------------------------------------- source_filled.c */

typedef struct WmsFilled
{
	XLogRecPtr	from;			/* the snapshot saw all that committed before */
	XLogRecPtr	upto;			/* and nothing that committed after */
	TransactionId xmin;			/* in between it saw those before xmin, none from xmax on, and */
	TransactionId xmax;
	int			nrunning;		/* none of these */
	TransactionId running[FLEXIBLE_ARRAY_MEMBER];	/* sorted */
} WmsFilled;

/* The end of WAL as a position that can be flushed and read. */
extern XLogRecPtr wms_end_of_wal(void);
/* A new, registered snapshot, and what it sees.  Waits a little for commits that are on their way, then raises an error that passes.  Inside a transaction; in the current context. */
extern Snapshot wms_filled_take(WmsFilled **filled);
extern bool wms_filled_has(const WmsFilled *filled, TransactionId xid, XLogRecPtr end_lsn);
extern char *wms_filled_text(const WmsFilled *filled);
extern WmsFilled *wms_filled_parse(const char *text);	/* in the current context; NULL: it is none */

/* ---------------------------------------------------------------- source_fill.c */

typedef struct WmsFillRows WmsFillRows;

/* What reading existing rows asks of its caller. */
typedef struct WmsFillReader
{
	/* event times of n rows of relid, in its layout; WMS_TIME_MIN: none */
	void		(*times) (Oid relid, HeapTuple *rows, int n, WmsTime *times, void *arg);
	bool		(*go_on) (int64 rows_read, void *arg);	/* false: never mind */
	void		(*sorting) (void *arg); /* all are read */
	void	   *arg;
} WmsFillReader;

/* How many rows a table has with its partitions, as the planner would believe. */
extern double wms_source_estimate(Oid relid);
/*
 * Reads all rows of these tables, which the caller has locked (partitions are locked here).  Holds a snapshot while it reads, and
 * bounded memory.  The result lives in a context below parent, with its files; NULL if it was not to go on.  Inside a transaction.
 */
extern WmsFillRows *wms_fill_read(const WmsFillReader *reader, List *relids, MemoryContext parent);
/* The next rows; they stay with rows, which must live longer than the batch.  NULL: that was all. */
extern WmsBatch *wms_fill_next(WmsFillRows *rows, int64 max_rows);
extern const WmsFilled *wms_fill_filled(const WmsFillRows *rows);
extern const WmsSeen *wms_fill_seen(const WmsFillRows *rows);	/* position in queues after them */
extern int64 wms_fill_count(const WmsFillRows *rows);
extern WmsTime wms_fill_earliest(const WmsFillRows *rows);	/* WMS_TIME_MAX: no row has a time */

#endif							/* WMS_SOURCE_H */
