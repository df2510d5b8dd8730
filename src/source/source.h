/*
 * source.h
 *	  Rows of source tables in commit order, with positions.
 *
 * source_wal.c    the database's replication slot and its decoding
 * source_stage.c  rows of transactions that are still open
 * source_batch.c  a batch: whole committed transactions, to be read many times
 */
#ifndef WMS_SOURCE_H
#define WMS_SOURCE_H

#include "access/htup.h"
#include "base/base.h"

/* The shape of a source table at the time its rows were written. */
typedef struct WmsRowShape
{
	Oid			relid;			/* the table, for a leaf partition its root */
	uint32		signature;		/* hash over number, type, length and alignment of all attributes */
	TupleDesc	desc;			/* with constraints, so that missing values are known */
} WmsRowShape;

typedef enum WmsChangeKind
{
	WMS_CHANGE_INSERT,
	WMS_CHANGE_UPDATE,
	WMS_CHANGE_DELETE,
	WMS_CHANGE_TRUNCATE
} WmsChangeKind;

/* One change, valid until the next call of wms_batch_next. */
typedef struct WmsChange
{
	WmsChangeKind kind;
	const WmsRowShape *shape;	/* the table; for TRUNCATE too */
	HeapTupleData tuple;		/* INSERT, UPDATE: the new row; t_data NULL otherwise. Flat: nothing toasted outside */
	HeapTupleData old;			/* UPDATE, DELETE where the old row is known; t_data NULL otherwise */
	XLogRecPtr	end_lsn;		/* end of the commit record of its transaction: the stream's position after it */
	TransactionId xid;			/* top-level */
	TimestampTz commit_time;
} WmsChange;

/* Whole committed transactions, in commit order.  Reference-counted. */
typedef struct WmsBatch
{
	XLogRecPtr	start;			/* end LSN of what was read before */
	XLogRecPtr	end;			/* end LSN of the last transaction, or of what was read without finding any */
	int64		nrows;
	int64		bytes;
	int			ntxns;
	TransactionId *xids;		/* top-level xids of its transactions (to wait for their visibility) */
	int			refs;
	bool		catalog_changes;	/* a transaction in it changed catalogs */
	List	   *created;		/* List of WmsCreated *: streams whose registry row was inserted in it */
	struct WmsBatchRows *rows;	/* private */
} WmsBatch;

/* A stream was registered by a transaction of this batch. */
typedef struct WmsCreated
{
	Oid			stream;
	XLogRecPtr	end_lsn;		/* its first position */
} WmsCreated;

typedef struct WmsWal WmsWal;

/* Name of the slot of a database: "wmstream_<oid>".  Static buffer. */
extern char *wms_slot_name(Oid database);
extern bool wms_slot_exists(Oid database);
/*
 * Makes the slot of this database, in the caller's transaction, which must not have
 * written yet (ERROR with hint otherwise).  Interruptible; NOTICE naming whom it waits for.
 */
extern void wms_slot_create(void);
/* Drops the slot if it is there and free; false if it is in use. */
extern bool wms_slot_drop(Oid database);

/*
 * Opens the slot for this worker and begins to decode at start (InvalidXLogRecPtr: where
 * the slot stands).  wanted(relid, arg) says whether rows of a table (root of partitions)
 * are to be staged; registry is the OID of wmstream.stream.  Lives in wms_worker_context.
 * ERROR if the slot is missing, lost or in use.
 */
typedef bool (*WmsWanted) (Oid relid, void *arg);
extern WmsWal *wms_wal_open(XLogRecPtr start, Oid registry, WmsWanted wanted, void *arg);
/* Begins again at start, which may lie behind what was read: what streams that are behind need. */
extern void wms_wal_rewind(WmsWal *wal, XLogRecPtr start);
extern void wms_wal_close(WmsWal *wal);
/* The set of wanted tables changed: forget what was remembered about relations. */
extern void wms_wal_reset_relations(WmsWal *wal);

/*
 * Reads on, up to the flushed end of WAL, until max_rows are together and a transaction
 * ends; DDL ends a batch too.  A batch without transactions says only how far was read;
 * NULL: nothing at all was read.  Must be called outside a transaction.  References: 1.
 */
extern WmsBatch *wms_wal_next(WmsWal *wal, int64 max_rows);
/* End of what was read so far: every transaction that ended before it was delivered. */
extern XLogRecPtr wms_wal_read_upto(WmsWal *wal);
/* Tells the slot that all up to lsn is durable with us.  Never goes back. */
extern void wms_wal_confirm(WmsWal *wal, XLogRecPtr lsn);

extern void wms_batch_ref(WmsBatch *batch);
extern void wms_batch_unref(WmsBatch *batch);
/* Reading: from the first change again; false at the end.  Skips changes with end_lsn <= after. */
extern void wms_batch_rewind(WmsBatch *batch, XLogRecPtr after);
extern bool wms_batch_next(WmsBatch *batch, WmsChange *change);

#endif							/* WMS_SOURCE_H */
