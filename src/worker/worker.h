/*
 * worker.h
 *	  The processes.
 *
 * worker_launcher.c  one per server: starts a worker in each database that has streams
 * worker_main.c      one per database with streams: the loop
 * worker_stream.c    the worker's list of streams, in line with the registry
 * worker_next.c      what each stream does next: its batches, commands, firings, timers
 * worker_position.c  where the streams stand in WAL
 * worker_stop.c      streams that stop for good
 * worker_queue.c     streams of queue tables: reading on
 * worker_tick.c      what had committed when, for those that stand still
 * worker_trim.c      rows of queues that all streams have had are deleted
 * worker_batch.c     one batch of one stream: the only file that knows the order of effects
 * worker_skip.c      rows of a batch that raised errors
 * worker_error.c     what a stream's owner is told of an error
 * worker_follow.c    streams that another process works for: letting go, taking back, what that process does
 * worker_fill.c      filling a stream with rows that are there already
 * worker_crash.c     streams and queues whose code crashes the server
 * worker_owner.c     running as the stream's owner, and leaving nothing of that behind
 */
#ifndef WMS_WORKER_H
#define WMS_WORKER_H

#include "base/base.h"
#include "flow/flow.h"
#include "registry/registry.h"
#include "shared/shared.h"
#include "source/source.h"
#include "state/state.h"

/* Called from _PG_init only: registers the static launcher. */
extern void wms_launcher_register(void);

/* Entry points of the processes. */
extern PGDLLEXPORT void wms_launcher_main(Datum arg);
extern PGDLLEXPORT void wms_worker_main(Datum arg);

/*
 * A stream as its worker holds it, in a context of its own below wms_worker_context.
 *
 * Positions.  progress.position is durable.  A runner with an empty queue that is not behind has in fact
 * consumed everything that was read (nothing in it was for this stream).
 */
typedef struct WmsRunner
{
	Oid			stream;
	char		name[NAMEDATALEN];
	WmsStreamDef *def;			/* in def_context */
	MemoryContext context;
	MemoryContext flow_context;	/* reset before a flow is built */
	MemoryContext def_context;	/* reset when the registry is read again */
	WmsSharedStream *slot;
	WmsFlow    *flow;			/* NULL until built, and after it went stale */
	List	   *sources;		/* tables that it reads, as of the last flow that was built */
	bool		reads_static;	/* likewise: ordinary tables too, as they are now */
	uint64		definition;		/* of the same plan */
	uint64		fingerprint;	/* of the plan that the store's state belongs to */
	WmsStore   *store;			/* NULL while paused or failed */
	bool		loading;		/* the store is being filled from the log */
	WmsProgress progress;		/* as of the last commit */
	WmsProgress work;			/* of the batch that is being worked on; equal to progress between batches */
	WmsFigures	figures;
	bool		has_position;
	XLogRecPtr	hold;			/* while its first position is not durable: from here on its creation is read again */
	WmsStatus	status;
	List	   *queue;			/* WmsBatch *, not consumed yet, oldest first; lives in context */
	int64		queue_bytes;
	const WmsBatch *consumed;	/* that of the queue which has been committed, though it may be run again after an error that came then */
	bool		behind;			/* batches were missed: needs a rewind */
	bool		feeds;			/* another stream reads what it writes */
	bool		looking;		/* the batch is only there to see whether the definition still holds */
	List	   *skips;			/* WmsSkip *: rows of the batch at hand that failed, in their order; in skip_context */
	WmsCare		care;			/* its rows are worked on one by one, to find the one that fails */
	enum
	{
		WMS_TRY_NOT,
		WMS_TRY_NEXT,			/* at the next run of the batch all of its rows are tried first */
		WMS_TRY_DONE
	}			try_rows;
	char	   *sought_error;	/* what it raised; in skip_context */
	MemoryContext skip_context;	/* reset when the batch is done */
	WmsSeen    *read_seen;		/* of queues: read up to here, without rows since progress.seen; NULL: not beyond that; in context */
	XLogRecPtr	read_lsn;		/* and all that committed before this was read by then */
	bool		caught_up;		/* nothing that had committed then is left, but what is queued */
	bool		came_home;		/* it was the follower's until now */
	XLogRecPtr	sent_at;		/* the position with which it was sent to a follower last: not twice for the same */
	bool		away;			/* the follower's, or the worker's if we are that: not ours to touch */
	bool		placeless;		/* shared memory has no slot for it: it does not run, slot is our own */
	bool		fresh;			/* it begins anew in the transaction that is going on */
	WmsFillRows *fill_rows;		/* being filled: existing rows, once they are read; in fill_context */
	bool		fill_cleared;	/* and what they replace is gone: they may be fed */
	int64		fill_given;		/* rows of them that went into the queue */
	MemoryContext fill_context;
	const WmsFilled *filled; /* transactions that are in already, though they lie behind its position; in def_context; NULL: none */
	bool		unfired;		/* rows were fed and wait for the next firing */
	bool		warned;			/* that it holds back half of max_retained_wal */
	XLogRecPtr	command_after;	/* commands apply when everything before this was consumed */
	char	   *end_reason;		/* it is to stop, which could not be written down yet: till then it is blocked; in context; NULL: not so */
	WmsStatus	end_status;		/* then: as what */
	TimestampTz retry_at;		/* blocked, or waiting: when to try again */
	TransactionId unseen_xid;	/* it waits until this is visible; invalid: for none */
	TimestampTz unseen_since;	/* and has since then */
	int			retries;
	int			timeouts;		/* batches in a row that took longer than batch_timeout */
	int64		batch_rows;		/* input rows of the last batch */
	bool		gone;			/* not in the registry any more */
} WmsRunner;

/* ---- worker_main.c */
extern bool wms_registry_news(void);	/* the registry has changed since it was read */
extern void wms_registry_distrust(void);
extern Oid	wms_follows;		/* the stream that this process is the follower of; InvalidOid: it is the database's worker */

/* ---- worker_batch.c */

/*
 * Runs batch (NULL: a firing without rows) for a stream in a transaction of its own.  Never throws: false when the
 * stream became blocked or failed (status and error are set).  advance_to: W moves at least this far (WMS_TIME_MIN: no).
 */
extern bool wms_run_batch(WmsRunner *runner, WmsBatch *batch, WmsTime advance_to);
/*
 * The first batch of a stream that begins anew: prepare, in the same transaction, takes away what there was and sets runner->progress
 * to the beginning.
 */
extern bool wms_run_first_batch(WmsRunner *runner, void (*prepare) (WmsRunner *runner));
/*
 * Anything else that is done for a stream, in transactions of its own: whatever fails in it is the stream's failure, as with a
 * batch.  False from step means: not now.
 */
typedef bool (*WmsStepFn) (WmsRunner *runner, void *arg);
extern bool wms_run_step(WmsRunner *runner, WmsStepFn step, void *arg);
extern void wms_runner_note_name(WmsRunner *runner);
/* As the owner, inside a transaction: runner->flow is there, locked by lock and up to date. */
extern void wms_runner_make_flow(WmsRunner *runner, void (*lock) (WmsFlow *flow));
/* The rows of a batch that the stream has not had, from the first on; false at the end. */
extern void wms_rows_begin(WmsRunner *runner, WmsBatch *batch);
extern bool wms_rows_next(WmsRunner *runner, WmsBatch *batch, WmsChange *change);
/* End of the newest commit record of ours: what must be flushed before a slot may be told. */
extern XLogRecPtr wms_last_commit(void);

/* The caller has caught an error of the stream's and aborted the transaction: it becomes blocked or failed. */
extern void wms_runner_error(WmsRunner *runner, ErrorData *edata);
/* It cannot go on for a reason that may pass by itself: it is tried again, later each time. */
extern void wms_runner_block(WmsRunner *runner, const char *reason);
extern void wms_runner_put_off(WmsRunner *runner);	/* only when, not what is shown of it */

/* ---- worker_error.c */

/* Where the batch was when an error came. */
typedef struct WmsWhere
{
	Oid			source;
	XLogRecPtr	end_lsn;
	TransactionId xid;
	bool		in_rows;
	WmsBatch   *batch;
} WmsWhere;
extern bool wms_error_is_transient(int sqlerrcode);	/* the moment's: worth another try */
extern bool wms_error_is_rows(const ErrorData *edata);	/* raised while rows were fed: the row's own, not the server's or the moment's */
extern const char *wms_error_message(const ErrorData *edata);
extern char *wms_error_text(WmsRunner *runner, WmsBatch *batch, const WmsWhere *where, const ErrorData *edata, int64 row, bool timed_out);

/* ---- worker_unseen.c */

/* True: it cannot be run yet, and is tried again when it can be. */
extern bool wms_rows_unseen(WmsRunner *runner, const WmsBatch *batch);
extern bool wms_runner_waits(WmsRunner *runner, TimestampTz now);	/* still, for what it could not run by then */
/* The batch that was read last: has it changed catalogs that are not visible yet? */
extern void wms_catalogs_note(const WmsBatch *batch);
extern bool wms_catalogs_unseen(void);	/* still, any of those; outside a transaction */

/* ---- worker_skip.c */

/* The batch is done, or is not the same any more. */
extern void wms_skips_forget(WmsRunner *runner);
/* The batch has to be run again row by row: what it raised has no row yet. */
extern void wms_skips_look_for_row(WmsRunner *runner, const ErrorData *edata);
/* The batch is to be run again without this row. */
extern void wms_skips_add(WmsRunner *runner, const ErrorData *edata, int64 row, WmsTime time);
/* It is not the batch's first row that raises an error: true once, the next run tries all of them. */
extern bool wms_skips_must_try(WmsRunner *runner);
/* As the owner, inside the batch's transaction and before its flow begins: finds all rows that raise errors by themselves. */
extern void wms_skips_try(WmsRunner *runner, WmsBatch *batch);

/* ---- worker_queue.c */

/* Queues the next rows of a stream of queues that has nothing to do. */
extern void wms_queue_fill(WmsRunner *runner);
extern bool wms_queues_had_rows(void);	/* any, since the last call */
/* The stream goes on from its durable position. */
extern void wms_queue_reset(WmsRunner *runner);
/* Where it is: there is no row for it between its durable position and this. */
extern const WmsSeen *wms_queue_position(const WmsRunner *runner);
/* Has it a position in queues, to which it may return? */
extern bool wms_runner_holds_queue(const WmsRunner *runner);

/* ---- worker_tick.c */

/* At every turn: takes one if that is due, and forgets those that nobody needs.  Outside a transaction. */
extern void wms_tick(void);
extern bool wms_ticks_needed(void); /* every WMS_TICK_MS, or less often */
#define WMS_TICK_MS 1000
/* The first that holds more than that position; NULL: none. */
extern const WmsTick *wms_next_tick(const WmsSeen *position);

/* ---- worker_trim.c */

/* At every turn: deletes some rows if that is due; true: there may be more.  Outside a transaction. */
extern bool wms_trim_queues(void);
/* Rows of that queue are not to be deleted any more. */
extern void wms_trim_stop(Oid queue, const char *reason);

/* ---- worker_owner.c */

typedef struct WmsOwnerScope
{
	Oid			user;
	int			context;
	int			guc_level;
} WmsOwnerScope;
extern void wms_become_owner(const WmsStreamDef *def, WmsOwnerScope *scope);
extern void wms_leave_owner(WmsOwnerScope *scope);
/* After the transaction ended, also by an error: what outlives transactions. */
extern void wms_after_owner(void);
/* The clock of one batch. */
extern void wms_batch_clock_register(void);
extern void wms_batch_clock_start(void);
extern bool wms_batch_clock_stop(void);	/* true: it had run out */

/* ---- worker_fill.c */
extern bool wms_fill_work(WmsRunner *runner);	/* the next thing to do for it; true if anything was */
extern void wms_fill_drop(WmsRunner *runner);	/* forgets the rows */
/* Its registry row, which was before, has come to ask for another fill than the one that is going on. */
extern bool wms_fill_outdated(const WmsRunner *runner, const WmsStreamDef *before);
extern void wms_fill_forget_filled(WmsRunner *runner);	/* if it is past them */

/* ---- worker_follow.c */
extern bool wms_is_away(const WmsRunner *runner);
/* The worker lets the stream go, with what is needed of WAL. */
extern void wms_send_away(WmsRunner *runner, WmsStatus status, XLogRecPtr needs);
extern XLogRecPtr wms_away_needs(const WmsRunner *runner);
/* Those that are so far behind that reading WAL again for them would hold up the others. */
extern void wms_send_laggards(XLogRecPtr read_upto, XLogRecPtr confirmed);
extern void wms_take_back(WmsRunner *runner);	/* if there is no follower for it */
/* The follower's part of a turn; true if anything was done.  Does not come back when there is nothing left to do. */
extern bool wms_follow(void);
extern bool wms_follow_goes_on(void);	/* may the follower's stream run? */
extern bool wms_follow_reads(bool already);	/* is WAL to be read? */
extern void wms_follow_told(XLogRecPtr read_upto);	/* results up to there are durable: gives the stream back if that is enough */
extern void wms_follow_cannot(void);	/* gives it back */

/* ---- worker_crash.c */
extern void wms_crash_begin(void);
extern void wms_crash_running(Oid stream);
extern void wms_crash_trimming(Oid queue);	/* rows of it are being deleted; InvalidOid: not any more */
extern void wms_crash_note_endless(void);	/* its code does not end: async-signal-safe */
extern void wms_crash_pardon(Oid what, bool trim);	/* the stream, or the trimming of the queue, has been stopped: should it go on, counting begins anew */
extern void wms_crash_forget(void);

/* ---- worker_stream.c */

extern List *wms_runners;		/* WmsRunner * */

/* Reads the registry again and brings the list in line with it.  Outside a transaction. */
extern void wms_runners_reload(void);
/* Looks anew whether another stream reads what it writes.  Inside a transaction. */
extern void wms_runner_note_feeding(WmsRunner *runner);
/* Something of what the list rests on can be told only by looking: reads the registry again if that may have changed. */
extern void wms_runners_look_again(void);
extern WmsRunner *wms_find_runner(Oid stream);
extern bool wms_runner_runs(const WmsRunner *runner);
/* What it did went well: so it is known to all, too. */
extern void wms_runner_is_well(WmsRunner *runner);
extern void wms_runner_announce(WmsRunner *runner);
/* It is blocked, and all may read why. */
extern void wms_runner_stands(WmsRunner *runner, const char *reason);
/* The process ends: streams that run are blocked, for this reason, until the next one has taken them up. */
extern void wms_runners_stand(const char *reason);
/* Everything of the stream in this process and in shared memory goes; the log stays. */
extern void wms_runner_unload(WmsRunner *runner);
/* Is there a stream that reads the WAL?  running: and that runs. */
extern bool wms_runners_read_wal(bool running);
/* Streams that a batch registers; they begin when the registry shows them. */
extern void wms_runners_created(WmsBatch *batch);
extern void wms_runners_begin(void);
/* From where on the commits of those that have not begun are read again; the end of all WAL: there are none. */
extern XLogRecPtr wms_creations_hold(void);
extern bool wms_creations_visible(void);	/* of any: it can begin */

/* ---- worker_next.c */

extern bool wms_runners_want(Oid relid, void *arg);
/* Hands a batch to every stream that wants it. */
extern void wms_runners_take(WmsBatch *batch);
extern void wms_runner_enqueue(WmsRunner *runner, WmsBatch *batch);
extern void wms_runner_let_queue_go(WmsRunner *runner);
extern bool wms_runner_run_queue(WmsRunner *runner);
extern bool wms_runner_can_run(WmsRunner *runner, TimestampTz now);
/* When the trigger interval is over; at once where the clock was set back to before the last firing. */
extern TimestampTz wms_runner_fires_at(const WmsRunner *runner);
/* All that had committed when the flushed WAL ended here has been read for the stream. */
extern XLogRecPtr wms_runner_read_by(const WmsRunner *runner, XLogRecPtr read_upto);
/* Builds its flow and loads its state if need be; true if anything was done. */
extern bool wms_runner_wake_up(WmsRunner *runner);
/* Runs what is queued and what the clock or commands ask for; true if anything was done. */
extern bool wms_runners_work(XLogRecPtr read_upto, bool caught_up);
extern bool wms_runners_at_hand(bool reads);	/* has a stream more to do at once?  reads: WAL can be read */
/* Milliseconds until the next thing that the clock asks for, at most max. */
extern long wms_runners_next_timer(long max);
/* Settings have changed: what was in a stream's way may not be any more. */
extern void wms_runners_retry(void);

/* ---- worker_position.c */

/* The WAL of all is gone, also of those that stand still. */
extern void wms_runners_lost(const char *reason);
/* The slot has been opened; it was made at birth: streams that stood before that have lost WAL.  Outside a transaction. */
extern void wms_runners_judge_slot(XLogRecPtr birth);
/* The same of one, as of the slot that was opened last: true, it is to stop. */
extern bool wms_runner_sentence_lost(WmsRunner *runner);
extern bool wms_runner_consumed_all(const WmsRunner *runner);
/* The least position that must still be read; for confirming and for rewinding. */
extern XLogRecPtr wms_runners_needed(XLogRecPtr read_upto);
/* No stream may hold WAL without limit: beyond max_retained_wal it gives up its place.  confirmed: where the slot stands.  Outside a transaction. */
extern void wms_runners_check_retention(XLogRecPtr confirmed);
extern bool wms_runners_behind(void);	/* does a stream that can go on miss batches? */
/* Where reading again has to begin for those that are. */
extern XLogRecPtr wms_runners_rewind_to(XLogRecPtr read_upto);
extern void wms_runners_rewound(void);
/* Streams that came back from followers are taken up without reading again, if they are ahead; true: there are such. */
extern bool wms_runners_welcome(XLogRecPtr read_upto);
/* Is there somebody who cannot go on before our commits are flushed: a session in wait(), or a stream that reads what another one writes? */
extern bool wms_runners_awaited(void);
/* Tells who waits how far each stream is; everything up to read_upto has been handed out, and our commits are flushed. */
extern void wms_runners_consumed(XLogRecPtr read_upto);

/* ---- worker_stop.c */

/* Nobody is changing the stream just now, so that its status can be written without waiting.  Outside a transaction. */
extern bool wms_runner_is_free(const WmsRunner *runner);
/* It does nothing more, and is to stop as soon as that can be written down; may be said inside a transaction. */
extern void wms_runner_sentence(WmsRunner *runner, WmsStatus status, const char *reason);
/*
 * The stream stops, durably, with a reason that its owner reads in the views.  If that cannot be written down now (no lock is waited for) it is
 * blocked, and it is tried again: only what has been written down lets WAL go and outlives a restart.  Outside a transaction.
 */
extern void wms_runner_fail(WmsRunner *runner, WmsStatus status, const char *reason);
/* True: it is to stop, and does nothing else.  Tries to write that down, if it is time to. */
extern bool wms_runner_ends(WmsRunner *runner, TimestampTz now);

#endif							/* WMS_WORKER_H */
