/*
 * registry.h
 *	  The durable tables of schema wmstream, as structs, and the life of a stream.
 *
 * registry_stream.c  wmstream.stream: reading, writing, transitions of status
 * registry_result.c  the result table: finding, making, checking it
 * registry_define.c  what else create_stream makes and drop takes away: view, late table, dependencies
 * registry_reach.c   what a definition reads, through views and other streams
 * registry_queue.c   queue tables: making, dropping, which there are; where their streams begin
 * registry_upsert.c  rows of queues that ON CONFLICT and MERGE update
 * registry_tick.c    what had committed when, for streams of queues that stand still
 * registry_mark.c    the mark on a database that has streams, by which the launcher knows it
 * registry_drop.c    object-access and utility hooks: DROP of a result, a view, the extension, a database
 *
 * Rows are read and written by table access, never by SQL text; CREATE TABLE goes
 * through the ordinary command.
 *
 * Locks.  Whoever changes a row of the registry takes wms_registry_lock (exclusive, until
 * the transaction ends) first and reads the row after it; the functions that write take it
 * themselves.  A batch takes wms_registry_hold (shared, without waiting) first, so a stream
 * is never dropped or changed in the middle of one, and state that was forgotten stays forgotten.
 */
#ifndef WMS_REGISTRY_H
#define WMS_REGISTRY_H

#include "base/base.h"

typedef enum WmsOutputMode
{
	WMS_APPEND,
	WMS_UPDATE,
	WMS_COMPLETE
} WmsOutputMode;

typedef enum WmsOnChange
{
	WMS_CHANGE_IGNORE,
	WMS_CHANGE_ERROR,
	WMS_CHANGE_RETRACT
} WmsOnChange;

/*
 * A stream's life.  Durable in wmstream.stream.status, but for starting, backfilling and blocked,
 * which only the worker knows and shared memory shows: they are stored as running.
 * To become what it is already is always allowed (the reason may be a new one).
 */
typedef enum WmsStatus
{
	WMS_STARTING,				/* -> running, backfilling, blocked, paused, failed, needs_resync */
	WMS_RUNNING,				/* -> starting, blocked, paused, failed, needs_resync */
	WMS_BACKFILLING,			/* -> starting, running, blocked, paused, failed, needs_resync */
	WMS_BLOCKED,				/* -> starting, running, backfilling, paused, failed, needs_resync */
	WMS_PAUSED,					/* -> starting, running (resume), failed (its last batch), needs_resync */
	WMS_FAILED,					/* -> starting, running (resume), needs_resync */
	WMS_RESTORED,				/* -> starting, running (resume) */
	WMS_NEEDS_RESYNC			/* -> starting, running, backfilling (resync), failed */
} WmsStatus;

extern const char *wms_status_name(WmsStatus status);

/*
 * Existing rows of the sources that a stream is to take in before it goes on with what is written.  A stream with one of the
 * middle two runs as backfilling.  FILLED stays until the stream has passed filled.
 */
typedef enum WmsFillKind
{
	WMS_FILL_NONE,				/* -> RESYNC */
	WMS_FILL_BEGINNING,			/* start_from => beginning -> FILLED, RESYNC */
	WMS_FILL_RESYNC,			/* results are replaced -> FILLED */
	WMS_FILL_FILLED				/* they are in; filled says which transactions that are still to be read they had -> NONE, RESYNC */
} WmsFillKind;

/* A row of wmstream.stream.  Strings live in the context of the reader. */
typedef struct WmsStreamDef
{
	Oid			stream;			/* the result table */
	Oid			view;			/* the definition */
	Oid			owner;			/* of the result table, from pg_class; InvalidOid: the table is gone */
	Oid			late_table;		/* InvalidOid: none */
	WmsOutputMode output_mode;
	WmsOnChange on_change;
	bool		skip_errors;	/* on_error = skip */
	bool		close_when_idle;
	bool		watermark_max;	/* watermark_policy = max */
	int64		trigger_us;
	int64		lateness_us;
	bool		refined;		/* the lateness is or was above zero: state may hold groups whose rows were written and change in place */
	int64		idle_us;		/* -1: off */
	int64		max_future_us;	/* -1: off */
	int64		delay_us;		/* altered delay; -1: as the query says */
	bool		made_result;	/* create_stream made the result table */
	bool		has_key;		/* result has a key over the shown group keys */
	WmsStatus	status;
	char	   *reason;			/* NULL: none */
	TimestampTz since;
	char	   *timezone;
	char	   *datestyle;
	char	   *intervalstyle;
	int64		command;		/* counts up with every pause, resume, resync, alter, advance */
	WmsTime		advance_to;		/* advance_watermark; WMS_TIME_MIN: none */
	WmsFillKind fill;
	WmsTime		fill_since;		/* resync: results before stay; WMS_TIME_MIN: those before the earliest row */
	TimestampTz fill_began;		/* results were taken away then, and rows may have come since; 0: not yet */
	char	   *filled;		/* wms_filled_text; NULL but for FILLED */
	bool		foreign;		/* made in another cluster or database: restored */
	bool		reads_queues;	/* its sources are queue tables */
	WmsSeen    *begins_after;	/* then: what had committed when it was made */
	char	   *damage;			/* a value that nothing can be done with: failed, for that reason; NULL: none */
	bool		uncommitted;	/* the row was written by the reader's own transaction */
} WmsStreamDef;

/* Does it have to be filled before it runs? */
static inline bool
wms_fill_pending(const WmsStreamDef *def)
{
	return def->fill == WMS_FILL_BEGINNING || def->fill == WMS_FILL_RESYNC;
}

/* All streams of this database, or one (NULL if there is none; ERROR if its row is damaged), as of now, whatever the transaction's snapshot.
 * Inside a transaction; result in the current context. */
extern List *wms_registry_streams(void);
extern WmsStreamDef *wms_registry_stream(Oid stream);
extern WmsStreamDef *wms_registry_by_view(Oid view);
/* Is the extension here, so that the functions above find something to read? */
extern bool wms_registry_exists(void);

/* Until the transaction ends nobody else changes this stream nor runs a batch of it.  Waits. */
extern void wms_registry_lock(Oid stream);
extern bool wms_registry_try_lock(Oid stream);	/* the same without waiting; false: somebody has it */
/* Until the transaction ends nobody changes this stream.  Never waits; false: somebody does just now. */
extern bool wms_registry_hold(Oid stream);

/* The fill columns alone. */
extern void wms_registry_set_fill(Oid stream, WmsFillKind fill, TimestampTz began, const char *filled);
/* reason, since, begins_after and uncommitted are not taken from def; status is. */
extern void wms_registry_insert(const WmsStreamDef *def);
/* All fields but status, reason and since. */
extern void wms_registry_update(const WmsStreamDef *def);
/* Row and state log of a stream.  False: there was no row. */
extern bool wms_registry_delete(Oid stream);
/*
 * The only way to a new status; ERROR if the transition is not allowed. reason NULL clears.
 * A restored stream that is set running becomes one of this database: its row is inserted anew, so that
 * the worker takes it for a new stream, and it has no state.
 */
extern void wms_registry_transition(Oid stream, WmsStatus to, const char *reason);

/* ---- registry_result.c */

typedef struct WmsShape			/* what analysis says of the result */
{
	TupleDesc	desc;			/* columns of the SELECT list */
	List	   *key_columns;	/* numbers of the columns that make the key; NIL: not all keys shown */
	bool		key_not_null;	/* all of them are window bounds or NOT NULL columns */
	const char *text;			/* of the definition, for errors that point into it; NULL: unknown */
	const int  *places;			/* where in it each column stands (1-based); 0: the whole.  NULL: unknown */
} WmsShape;

/* The table that a stream writes to: found by name first, made or checked later. */
typedef struct WmsTarget
{
	char	   *schema;
	char	   *name;
	Oid			schema_oid;
	Oid			relid;			/* InvalidOid: to be made */
	Oid			owner;			/* of the table; the current user if it is to be made */
	bool		made;
	bool		has_key;		/* set by wms_define_result: a key over the shape's key columns */
} WmsTarget;

/* What name (perhaps qualified, perhaps quoted) stands for.  An existing table is locked; it may be a stream already.  Writes nothing. */
extern WmsTarget *wms_target_resolve(const char *name);
/* ERROR unless the current user may let a stream write there. Writes nothing. */
extern void wms_target_check(const WmsTarget *target);
/* ERROR unless a table of that shape can be made, or the existing one fits it.  Writes nothing. */
extern void wms_target_check_shape(const WmsTarget *target, const WmsShape *shape, bool key_needed);
/* Makes the table, or finds the key of an existing one.  key_needed: makes one if there is none. */
extern void wms_define_result(WmsTarget *target, const WmsShape *shape, bool key_needed);
/* The key of an existing result, made if it is missing. */
extern void wms_define_key(Oid stream, const WmsShape *shape);
/* ERROR unless an existing result still has all columns of the query by name and type: its owner may have altered it. */
extern void wms_result_check(Oid stream, TupleDesc desc);

/* ---- registry_define.c */

/* The view wmstream."<schema>.<result>" over a query as parse analysis left it, owned by the target's owner. */
extern Oid	wms_define_view(const WmsTarget *target, Query *query);
/* Finds or makes the late table; owner must be able to insert into it. */
extern Oid	wms_define_late_table(const char *name, Oid stream, Oid view, Oid owner);
/* Dropping the result drops the view, so does dropping the extension.  May be called again. */
extern void wms_define_dependencies(Oid stream, Oid view);
/* Streams and who owns their results, to be given to wms_define_owners. */
extern List *wms_define_owned(void);
/* Every definition gets the owner that its result table has; true: one of either has another owner than before. */
extern bool wms_define_owners(const List *before);
/* Row, state log and view of a stream; with results the table too. */
extern void wms_drop_definition(const WmsStreamDef *def, bool results);

/* ---- registry_reach.c */

/* Tables that the definition reads, itself or through views (which are among them). */
extern List *wms_definition_reads(Oid view);
/* The same without waiting for a lock; false: there may be more, behind a view that somebody is changing. */
extern bool wms_definition_reads_now(Oid view, List **relids);
/* Is the table, or one that it is a partition of, among these? */
extern bool wms_is_part_of(Oid relid, const List *relids);
/* Is one of the two the other, or a partition of it?  False if one is InvalidOid. */
extern bool wms_tables_overlap(Oid a, Oid b);
/* The partitions of a table, at all levels.  They are not locked: who relies on what they are watches them. */
extern List *wms_partitions(Oid relid);
/* Rows of a stream must be in this server's WAL: what to say of a table one of whose partitions is unlogged or foreign; NULL: none is. */
extern char *wms_foreign_part(const List *partitions);
/* Are rows of its result updated or deleted after they were written? */
extern bool wms_stream_changes_rows(const WmsStreamDef *def);
/* Such a stream whose result is the table or a partition of it; InvalidOid: there is none. */
extern Oid	wms_changing_result(Oid relid);
/* Does the stream write into one of these tables or a partition of them, by its result or its late table? */
extern bool wms_stream_writes(const WmsStreamDef *def, const List *relids);
/* OIDs, in their order, of the streams that write what is read in these tables. */
extern List *wms_streams_into(const List *relids);
/* Does the definition read relid, or a table that overlaps it, itself or through views, results and late tables of other streams?  Not asked of
 * the view itself. */
extern bool wms_definition_reaches(Oid view, Oid relid);
/* The same of a table or view that a definition reads. */
extern bool wms_relation_reaches(Oid from, Oid relid);

/* ---- registry_queue.c */

typedef struct WmsQueueDef
{
	Oid			queue;
	bool		trim;			/* rows that all its streams have had are deleted */
	char	   *trim_stopped;	/* but not any more, for this reason; NULL: they are */
} WmsQueueDef;

/* Queue tables of this database, in the current context. */
extern List *wms_queues(void);
extern bool wms_is_queue(Oid relid);
/* Adds column and index and registers the table; ERROR if it cannot be a queue.  trim_default: only if it is empty. */
extern void wms_queue_create(Oid relid, bool trim, bool trim_default);
/* ERROR if it is none, or if streams read it. */
extern void wms_queue_drop(Oid relid);
/* ERROR if it is none, or not the current user's. */
extern void wms_queue_set_trim(Oid relid, bool trim);
/* For the worker: its rows are not deleted any more, until wms_queue_set_trim says so again. */
extern void wms_queue_stop_trim(Oid relid, const char *reason);
/* The table is gone: so is its row. False: it was no queue. */
extern bool wms_queue_forget(Oid relid);

/* ---- registry_tick.c: for the worker */

typedef struct WmsTick
{
	TimestampTz taken_at;
	XLogRecPtr	lsn;			/* all that committed before this is seen */
	WmsSeen    *seen;
} WmsTick;

/* List of WmsTick *, oldest first, in the current context. */
extern List *wms_ticks(void);
extern void wms_tick_insert(const WmsTick *tick);
extern void wms_ticks_delete(TimestampTz upto);

/* ---- registry_mark.c */

/* Marks this database as one with streams, in our transaction; under the creation lock.  Waits for others who are doing so only if told to; false: not done. */
extern bool wms_mark_database(bool wait);
extern void wms_unmark_database(void);
/* All that are marked.  Inside a transaction; needs no database. */
extern List *wms_marked_databases(void);
/* Called from _PG_init only. */
extern void wms_mark_install(void);

/* ---- registry_drop.c: called from _PG_init only */
extern void wms_registry_install_hooks(void);

#endif							/* WMS_REGISTRY_H */
