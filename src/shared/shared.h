/*
 * shared.h
 *	  Fixed shared memory: a slot per database worker, a slot per stream with
 *	  its figures, and waking.
 *
 * shared_memory.c  request, start-up, locks
 * shared_slots.c   worker slots: claim, attach, release, wake (the protocol of
 *                  core's logical replication launcher: claimed under the lock with a
 *                  new generation before the process is registered, attached by the process
 *                  itself, released in its exit hook, stale claims collected by age)
 * shared_stats.c   stream slots and their figures
 * shared_values.c  settings by which values are read and written
 * shared_creation.c  lock between create_stream and a worker without streams
 * shared_wake.c    what a transaction does to workers when it ends: waking, and lifting its bars
 *
 * Locks.  WmsShared->lock guards which slots are in use and all of the worker slots'
 * plain fields.  WmsSharedStream->lock guards that stream's store (state room): shared
 * to read, exclusive to publish.  WmsSharedStream->mutex (a spinlock) guards the figures.
 * Order: WmsShared->lock, then a stream's lock, then a mutex; no two locks of streams at once.
 */
#ifndef WMS_SHARED_H
#define WMS_SHARED_H

#include "base/base.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#define WMS_ERROR_LEN 512

#define WMS_VALUES_LEN 512

#define WMS_FIGURE_OPS 32		/* operators with figures; those of a stream beyond that are not shown */

/* What an operator did since its worker began, and holds now. */
typedef struct WmsOpFigures
{
	char		kind[24];
	WmsTime		watermark;		/* W as it reaches the operator; WMS_TIME_MIN: none */
	int64		input_rows;
	int64		late_rows;
	int64		output_rows;
	int64		compared_rows;	/* joins: held rows that were looked at for the rows that came */
	int64		windows;		/* with state; -1: not known */
	int64		state_rows;
	int64		kept_rows;
	int64		state_bytes;
	double		seconds;
} WmsOpFigures;

/* What a follower does for a stream. */
typedef enum WmsFillPhase
{
	WMS_PHASE_NONE,				/* there is none, or it has not begun */
	WMS_PHASE_READING,			/* existing rows are read */
	WMS_PHASE_SORTING,			/* and brought into the order of their event times */
	WMS_PHASE_FEEDING,			/* they go through the stream */
	WMS_PHASE_CATCHING_UP		/* what was committed since is read from WAL */
} WmsFillPhase;

typedef struct WmsFillFigures
{
	int32		phase;			/* WmsFillPhase */
	int64		rows_total;		/* while reading an estimate; -1: none */
	int64		rows_read;
	int64		rows_done;
	TimestampTz started_at;
} WmsFillFigures;

/* Figures of a stream that views show.  Written by its worker only. */
typedef struct WmsFigures
{
	WmsProgress progress;
	Oid			source_relid[WMS_MAX_SOURCES];
	TimestampTz source_seen_at[WMS_MAX_SOURCES];	/* clock of the last batch with rows of it */
	bool		source_idle[WMS_MAX_SOURCES];
	WmsTime		source_watermark[WMS_MAX_SOURCES];	/* what it gives to W; WMS_TIME_MIN: nothing yet, or it has no delay */
	WmsTime		next_close;		/* W that the next window needs; WMS_TIME_MAX: none open */
	WmsTime		next_close_event;	/* the event time that must arrive for it */
	int64		state_entries;
	int64		state_bytes;
	int64		kept_rows;
	int64		log_bytes;
	TimestampTz rate_since[2];	/* input rows are counted in two spans, the former and the one that is going on; 0: none */
	int64		rate_rows[2];
	int64		phase_us[4];	/* last batch: feed, fire, sink, commit */
	int32		nops;
	WmsOpFigures ops[WMS_FIGURE_OPS];
	TimestampTz last_batch_at;
	TimestampTz last_commit_time;	/* commit time of the newest source transaction consumed */
	WmsFillFigures fill;
} WmsFigures;

/*
 * Whose the stream is.  The worker lets go of a stream and sets FOLLOWER; the follower lets go and sets WORKER.  Neither
 * touches a stream that is the other's.
 */
typedef enum WmsKeeper
{
	WMS_KEEPER_WORKER,
	WMS_KEEPER_FOLLOWER
} WmsKeeper;

typedef struct WmsSharedStream
{
	/* guarded by WmsShared->lock */
	bool		in_use;
	Oid			database;
	Oid			stream;
	uint32		generation;		/* counts up when the slot gets another stream */

	LWLock		lock;			/* the store */
	dsa_handle	area;			/* guarded by lock; DSA_HANDLE_INVALID: none */
	dsa_pointer root;			/* guarded by lock */

	pg_atomic_uint64 done_lsn;	/* everything that committed before this is in the result, durably */
	pg_atomic_uint64 taken_lsn; /* not before done_lsn: what lies between waits for its firing, */
	pg_atomic_uint64 fires_at;	/* which is due at this time; 0: nothing waits for it */
	pg_atomic_uint64 caught_up_at;	/* clock when done_lsn last was the flushed end of WAL */
	pg_atomic_uint64 applied;	/* number of the last command applied */
	pg_atomic_uint32 status;	/* WmsStatus of registry.h, as the worker sees it */
	pg_atomic_uint32 keeper;	/* WmsKeeper */
	pg_atomic_uint64 needs_lsn;	/* with a follower: the stream still needs WAL from here on; 0: all that there is */
	ConditionVariable changed;	/* broadcast when done_lsn, applied or status moves */

	slock_t		mutex;			/* guards what follows */
	WmsFigures	figures;
	char		error[WMS_ERROR_LEN];	/* last error or reason; empty: none */
} WmsSharedStream;

typedef struct WmsSharedWorker
{
	/* guarded by WmsShared->lock */
	bool		in_use;
	Oid			database;
	Oid			stream;			/* of a follower: the only stream that it works for; InvalidOid: the database's worker */
	uint32		generation;
	TimestampTz claimed_at;
	struct PGPROC *proc;		/* NULL until attached */
	pid_t		pid;			/* 0 until attached */
	bool		stop;			/* asked to go away (DROP DATABASE, DROP EXTENSION) */
	Oid			ended_database; /* whose process in this place has last ended by itself; InvalidOid: none */
	Oid			ended_stream;
	bool		ended_in_error; /* else it left, with nothing more to do */
	bool		values_known;
	char		values[WMS_VALUES_LEN]; /* of settings, one after the other: shared_values.c */
	pg_atomic_uint64 registry_changes;	/* bumped at commit of every change of the registry */
	pg_atomic_uint64 read_upto; /* how far the worker has read WAL; written by itself */
} WmsSharedWorker;

/*
 * A database in which no worker may start: transactions that stopped its worker are under way (DROP DATABASE, DROP EXTENSION).
 * Lifted when they end, whichever way.
 */
typedef struct WmsSharedBar
{
	Oid			database;
	int			count;			/* transactions; 0: this entry is free */
} WmsSharedBar;

typedef struct WmsShared
{
	/* constant after start */
	int			lock_tranche;
	int			store_tranche;	/* locks of the streams, and of their areas */

	LWLock		lock;
	struct PGPROC *launcher;	/* NULL when it does not run; guarded by lock */
	pid_t		launcher_pid;	/* guarded by lock */
	bool		workers_short;	/* the launcher found no process for a database that needs one; guarded by lock */
	bool		followers_short;	/* likewise for a stream that needs a follower */
	int			nworkers;		/* slots: WMS_MAX_WORKERS */
	int			nstreams;		/* slots: wms_max_streams */
	ConditionVariable workers_changed;	/* broadcast when a worker slot is given back */
	WmsSharedBar bars[WMS_MAX_DATABASES];	/* guarded by lock */
	WmsSharedWorker workers[WMS_MAX_WORKERS];
	WmsSharedStream streams[FLEXIBLE_ARRAY_MEMBER];
} WmsShared;

extern WmsShared *wms_shared;	/* NULL unless preloaded */

/* Called from _PG_init only. */
extern void wms_shared_install_hooks(void);

/* ---- workers */

/*
 * Claims a slot for the worker of a database, or for the follower of one of its streams, about to be registered.  NULL if there is
 * one already or the database is barred, or if none is free (*full tells).  Give it back by wms_worker_release if the
 * registration fails.
 */
extern WmsSharedWorker *wms_worker_claim(Oid database, Oid stream, bool *full);
/*
 * The worker itself, in its slot by index and generation; ERROR-free; false: the claim is not ours any more, exit.
 * Installs the hook that releases the slot at exit.
 */
extern bool wms_worker_attach(int index, uint32 generation);
extern void wms_worker_release(int index, uint32 generation);
/*
 * This process is about to end: because there is nothing more to do, and should there be again, another may start at once; or
 * in an error, and then the next one waits.
 */
extern void wms_worker_ends(bool in_error);
extern void wms_worker_begins(void);	/* it is not, whatever was said before */
extern bool wms_worker_has_ended(Oid database, Oid stream, bool in_error);
/* The caller of these holds WmsShared->lock, or needs a hint only. */
extern WmsSharedWorker *wms_worker_of(Oid database);
extern WmsSharedWorker *wms_follower_of(Oid database, Oid stream);
extern int	wms_workers_in_use(bool followers);
/*
 * Asks the worker and followers of a database, which may be another one than ours, to stop, and waits until they are gone; interruptible.
 * None starts there until our transaction ends.  Call it before locking anything that the worker may need to finish.
 */
extern void wms_worker_stop(Oid database);
/* Has our process's claim been told to stop? */
extern bool wms_worker_should_stop(void);
extern void wms_worker_wake(Oid database);	/* and the followers */
/* The launcher itself, once; gives the place back at exit. */
extern void wms_launcher_attach(void);
extern void wms_launcher_wake(void);
/* At commit of this transaction, not before: count a registry change and wake worker and launcher. */
extern void wms_wake_at_commit(void);

/* Between shared_slots.c and shared_wake.c. */
extern bool wms_bar_add(Oid database);	/* false: no room */
extern void wms_bar_lift(Oid database);
extern void wms_bar_until_end(Oid database);	/* until our transaction ends */
/* Processes of a database read the registry again. */
extern void wms_registry_changed(Oid database);

/* ---- shared_values.c: settings by which values are read and written */
extern void wms_values_tell(WmsSharedWorker *worker);	/* the worker itself, in its slot */
/* Ours become those of the database's worker, until the nest level of settings ends that the caller has begun. */
extern void wms_values_adopt(void);

/* ---- shared_creation.c: a database without streams loses its slot, but not while one is being created */
extern void wms_creation_lock_share(void);	/* until the end of the transaction */
extern bool wms_creation_lock_exclusive(void);	/* without waiting; until the unlock */
extern void wms_creation_unlock(void);
extern void wms_making_lock(void);	/* one session at a time makes the slot */
extern void wms_making_unlock(void);
extern bool wms_mark_lock(bool wait);	/* one transaction at a time marks the database; until its end */

/* ---- streams */

/* The slot of a stream of this database, made if create; NULL: none (or, with create, none free). */
extern WmsSharedStream *wms_stream_slot(Oid stream, bool create);
extern WmsSharedStream *wms_stream_slot_private(void);	/* one that nobody else sees, in the current memory context */
extern void wms_stream_slot_init(WmsSharedStream *slot);
extern int	wms_stream_slots_free(void);	/* how many no stream has taken */
extern void wms_stream_slot_free(WmsSharedStream *slot);	/* the store's area must be freed before */
extern void wms_stream_figures(WmsSharedStream *slot, WmsFigures *copy, char *error);	/* error: WMS_ERROR_LEN bytes or NULL */
extern void wms_stream_set_figures(WmsSharedStream *slot, const WmsFigures *figures);
extern void wms_stream_set_error(WmsSharedStream *slot, const char *error);	/* NULL clears */
/* Rows up to lsn were taken in and wait for the firing that is due at that time. */
extern void wms_stream_taken(WmsSharedStream *slot, XLogRecPtr lsn, TimestampTz fires_at);
/* Moves done_lsn on (never back) and tells who waits.  To be called at every turn of an idle worker too: it notes being caught up. */
extern void wms_stream_done(WmsSharedStream *slot, XLogRecPtr lsn);
/* Does anybody sleep until there is news of it?  Who begins to at this moment may be missed. */
extern bool wms_stream_awaited(WmsSharedStream *slot);
extern void wms_stream_announce(WmsSharedStream *slot, uint32 status, uint64 applied);
/* Bytes of all areas of a database's streams, as the figures say. */
extern int64 wms_database_state_bytes(Oid database);

#endif							/* WMS_SHARED_H */
