/*
 * source_internal.h
 *	  What the files of room source share among themselves.
 */
#ifndef WMS_SOURCE_INTERNAL_H
#define WMS_SOURCE_INTERNAL_H

#include "access/tupconvert.h"
#include "replication/logical.h"
#include "utils/hsearch.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "source/source.h"

/* ---------------------------------------------------------------- source_stage.c */

/* An append-only store of records; a place in it is its byte offset from the beginning, in memory or not. */
typedef struct WmsStage WmsStage;

/* A change in a store.  The new row's bytes follow, then the old row's, each MAXALIGNed. */
typedef struct WmsRecord
{
	const WmsRowShape *shape;
	uint32		new_len;		/* 0: none */
	uint32		old_len;		/* 0: none */
	uint8		kind;			/* WmsChangeKind */
	bool		missing_toast;
	bool		old_is_key;
	bool		partial;
} WmsRecord;

extern WmsStage *wms_stage_make(void);
extern void wms_stage_free(WmsStage *stage);
extern uint64 wms_stage_end(const WmsStage *stage);
/* Bytes it takes, in memory and on disk. */
extern uint64 wms_stage_held(const WmsStage *stage);
extern bool wms_stage_has(const WmsStage *stage, Oid relid);	/* rows of this table, rolled back ones too */
/*
 * Appends a record with room for rows of these lengths (0: none), which the caller puts there; kind is its business too, and flags
 * that are not false.
 */
extern WmsRecord *wms_stage_append(WmsStage *stage, const WmsRowShape *shape, uint32 new_len, uint32 old_len);
static inline Size
wms_record_size(uint32 new_len, uint32 old_len)
{
	return MAXALIGN(sizeof(WmsRecord)) + MAXALIGN((Size) new_len) + MAXALIGN((Size) old_len);
}

/*
 * The records from *offset on, and at most up to upto, that lie in memory one behind the other; *offset moves behind them.  NULL: the
 * next one is in the file.  Valid until the next append to any store.
 */
extern const char *wms_stage_span(WmsStage *stage, uint64 *offset, uint64 upto);
/* Reads the record at *offset and moves *offset behind it.  The result is valid until the next read from or append to any store. */
extern const WmsRecord *wms_stage_read(WmsStage *stage, uint64 *offset);
/* Where the rows of a record lie. */
#define WmsRecordNew(record) ((char *) (record) + MAXALIGN(sizeof(WmsRecord)))
#define WmsRecordOld(record) (WmsRecordNew(record) + MAXALIGN((record)->new_len))
extern bool wms_stage_in_memory(const WmsStage *stage);

/* ---------------------------------------------------------------- source_batch.c */

/* A registry row of a transaction that has not ended yet. */
typedef struct WmsRegistered
{
	TransactionId xid;			/* subtransaction that inserted it */
	Oid			stream;
	Oid			view;
} WmsRegistered;

extern WmsBatch *wms_batch_make(void);
/* A transaction of the batch; its rows follow by wms_batch_add_rows. */
extern void wms_batch_add_txn(WmsBatch *batch, TransactionId xid, XLogRecPtr end_lsn, TimestampTz commit_time);
extern void wms_batch_add_rows(WmsBatch *batch, WmsStage *stage, uint64 from, uint64 to, int64 nrows);
extern void wms_batch_add_created(WmsBatch *batch, const WmsRegistered *row, XLogRecPtr end_lsn);
/* Rows that belong to no transaction; the store stays its owner's. */
extern void wms_batch_put_rows(WmsBatch *batch, WmsStage *stage, uint64 from, uint64 to, int64 nrows, XLogRecPtr lsn);
/* The batch owns the store from now on. */
extern void wms_batch_own(WmsBatch *batch, WmsStage *stage);
/* It covers WAL from start to end and is complete. */
extern void wms_batch_complete(WmsBatch *batch, XLogRecPtr start, XLogRecPtr end);
/* It brings queues to this position and is complete. */
extern void wms_batch_complete_queue(WmsBatch *batch, XLogRecPtr end, const WmsSeen *seen);

/* Has a stream that has had all up to after yet to read every row of it? */
extern bool wms_batch_is_whole(const WmsBatch *batch, XLogRecPtr after);
extern bool wms_batch_in_memory(const WmsBatch *batch);	/* all of it; none lies in a file */

/* ---------------------------------------------------------------- source_bundle.c */

typedef struct WmsBundles WmsBundles;
extern void wms_bundles_free(WmsBatch *batch);	/* for good: they are not made again */

/* ---------------------------------------------------------------- source_relation.c */

/* A wanted table that a relation's rows belong to: the relation itself, or a table that it is a partition of. */
typedef struct WmsTarget
{
	const WmsRowShape *shape;
	TupleConversionMap *map;	/* from the relation's layout; NULL: rows fit as they are */
} WmsTarget;

/* What is remembered of a relation that rows were decoded of, wanted or not. */
typedef struct WmsSourceRel
{
	Oid			relid;			/* hash key */
	bool		valid;			/* false: to be built (again) before use */
	bool		passed_over;	/* rows were skipped in a transaction that was open then */
	bool		registry;		/* wmstream.stream itself */
	bool		identity_full;
	int			ntargets;
	WmsTarget  *targets;
	int			nlineage;
	Oid		   *lineage;		/* the relation, then the tables above it */
	TupleDesc	desc;			/* own layout; only with targets */
	MemoryContext context;		/* what the pointers lead to; NULL without targets: lineage stands in wal->context then */
} WmsSourceRel;

extern void wms_relations_begin(WmsWal *wal);
extern void wms_relations_end(WmsWal *wal);
/* The entry of an open relation, valid. */
extern WmsSourceRel *wms_relations_get(WmsWal *wal, Relation relation);
/* Forgets all; tells whether a table that is wanted now had rows passed over. */
extern bool wms_relations_reset(WmsWal *wal);
/* No transaction is open whose rows may have been passed over. */
extern void wms_relations_none_open(WmsWal *wal);
/* The shape of an ordinary table as it is now, or was when rows were written. */
extern const WmsRowShape *wms_shape_get(Oid relid, TupleDesc desc, bool partitioned);
/* Around decoding: entries of the relation cache that may differ between then and now are dropped. */
extern void wms_relations_part_caches(WmsWal *wal);
extern void wms_relations_mistrust_caches(void);
/* Drops all of this process's relation cache. */
extern void wms_relations_drop_caches(WmsWal *wal);

/* ---------------------------------------------------------------- source_row.c */

/* The rows of a change on their way to a target. */
typedef struct WmsRows
{
	HeapTuple	new_row;		/* NULL: none */
	HeapTuple	old_row;		/* NULL: none */
	bool		missing_toast;
	bool		old_is_key;
	bool		partial;		/* a TRUNCATE's */
} WmsRows;

/* A row that was formed here or read from a table, changed in place so that it is neither. */
extern HeapTuple wms_row_as_stored(HeapTuple row);
/* Makes the rows flat; results that had to be built lie in the current context. */
extern void wms_rows_flatten(WmsRows *rows, const WmsSourceRel *rel);
/* Flat rows of a relation as rows of a target; likewise. */
extern void wms_rows_convert(const WmsRows *rows, const WmsTarget *target, WmsRows *converted);

/* ---------------------------------------------------------------- source_move.c */

typedef struct WmsMovedRow
{
	const WmsRowShape *shape;	/* NULL: it has found its INSERT */
	HeapTuple	old_row;		/* NULL: not known */
} WmsMovedRow;

/* A row that left a partition and has not come to another yet. */
typedef struct WmsMove
{
	TransactionId xid;			/* subtransaction */
	bool		old_is_key;
	int			nleft;
	WmsMovedRow left[FLEXIBLE_ARRAY_MEMBER];
} WmsMove;

extern void wms_moves_begin(WmsWal *wal);
extern void wms_moves_reset(WmsWal *wal);
extern void wms_moves_note(WmsWal *wal);
extern bool wms_moves_take(WmsWal *wal, XLogRecPtr position);
extern WmsMove *wms_move_make(WmsWal *wal, TransactionId xid, const WmsSourceRel *rel, const WmsRows *rows);
extern WmsMovedRow *wms_move_find(WmsMove *move, const WmsRowShape *shape);
extern void wms_move_free(WmsMove *move);

/* ---------------------------------------------------------------- source_wal.c, source_take.c, source_callbacks.c */

/* Consecutive records of one subtransaction in the store of an open transaction. */
typedef struct WmsRun
{
	TransactionId xid;
	uint64		from;
	int64		nrows;
} WmsRun;

/* A transaction that is streamed to us while it is open. */
typedef struct WmsOpenTxn
{
	TransactionId xid;			/* hash key, top-level */
	WmsStage   *stage;			/* NULL until there is a row */
	WmsRun	   *runs;
	int			nruns;
	int			maxruns;
	List	   *created;		/* List of WmsRegistered * */
	WmsMove    *move;			/* NULL: none */
} WmsOpenTxn;

struct WmsWal
{
	MemoryContext context;		/* everything but batches, stores and shapes */
	MemoryContext scratch;		/* one change; reset after use */
	ResourceOwner owner;		/* current while records are read outside of decoded transactions */
	LogicalDecodingContext *ctx;
	Oid			registry;
	WmsWanted	wanted;
	void	   *arg;

	XLogRecPtr	read_upto;
	bool		reading;		/* still set at the next call: an ERROR broke off, only closing is allowed */
	bool		read_again;		/* wms_wal_reset_relations found rows that were passed over */

	/* relations: source_relation.c */
	HTAB	   *relations;		/* Oid -> WmsSourceRel */
	WmsSourceRel *last_rel;		/* found last, NULL: none */
	bool		has_partitions; /* some entry has tables above it */

	/* rows that move between partitions: source_move.c */
	HTAB	   *moves;			/* positions (XLogRecPtr) of their DELETE records */
	long		prune_moves_at; /* number of them */

	/* the batch that is being filled */
	WmsBatch   *batch;			/* NULL until a transaction for us has ended */
	bool		batch_ends;		/* DDL or a new stream */
	WmsStage   *inline_stage;	/* rows of transactions that come whole; goes to the batch.  NULL until there is a row */

	/* the whole transaction that is being passed on: its rows in inline_stage */
	uint64		txn_from;
	int64		txn_rows;
	List	   *txn_created;	/* List of WmsRegistered * */
	WmsMove    *txn_move;		/* NULL: none */

	/* open transactions */
	HTAB	   *open;			/* TransactionId -> WmsOpenTxn */
	WmsOpenTxn *streaming;		/* the one whose block is being passed on; NULL: none */
};

/* ---- source_take.c; open is NULL for the whole transaction that is being passed on */

extern void wms_take_change(WmsWal *wal, WmsOpenTxn *open, Relation relation, ReorderBufferChange *change);
extern void wms_take_truncate(WmsWal *wal, WmsOpenTxn *open, int nrelations, Relation relations[], ReorderBufferChange *change);
/* No more changes of the transaction come. */
extern void wms_take_end(WmsWal *wal, WmsOpenTxn *open);

/* ---- source_callbacks.c */

extern void wms_callbacks_install(WmsWal *wal);
extern void wms_callbacks_begin(WmsWal *wal);
/* Throws away all open transactions and what is staged for the batch that is being filled. */
extern void wms_callbacks_reset(WmsWal *wal);

#endif							/* WMS_SOURCE_INTERNAL_H */
