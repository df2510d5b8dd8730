/*
 * worker_main.c
 *	  The worker of one database: reads committed rows, hands them to the streams, tells the slot.
 *
 * One turn of the loop:
 *
 *	 1. signals, settings, the registry if it changed; without streams it leaves
 *	 2. the slot is opened, or rewound if a stream that can go on is behind; ticks of queues are noted
 *	 3. the next batch is decoded and queued at the streams that want it
 *	 4. every stream works on its queue, commands and clock (worker_next.c, worker_batch.c)
 *	 5. our commits are flushed; waiters and the slot are told (not in every turn: must_tell)
 *	 6. rows of queues that all have had are trimmed; now and then places in shared memory and held WAL are looked at
 *	 7. nothing done, or everything read: wait for the latch or the poll interval, which rest makes longer or shorter
 *
 * The decoding context is made in a short transaction and outlives it (source room).  No snapshot, lock or transaction is
 * held between batches.  Errors of streams are handled where they happen; any other error ends the process, and the
 * launcher starts it again.
 *
 * Streams of queue tables read these by themselves (worker_queue.c); where there are no others there is no slot, and 2, 3 fall out.
 * A worker whose database has no streams (any more) drops the slot, removes the database's mark and goes away.  A create_stream that has made the slot
 * and not committed yet holds the creation lock, so that its slot is not taken away under it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define IDLE_AFTER_MS 2000		/* without work for so long: poll less often */
#define LONG_REST_FACTOR 5
#define GATHER_FROM 16			/* transactions a look */
#define WAL_CHECK_MS 1000
#define TELL_MS 100				/* between two turns that tell, while batches come one after the other and nobody waits */
#define PUT_OFF_MS 10

/* What a turn has found, for the rest after it. */
typedef struct Turn
{
	bool		read;			/* something */
	bool		caught_up;		/* nothing that was flushed when the turn began is unread */
	bool		put_off;		/* something could not be done that nobody will wake us for */
	bool		told;			/* all that was done */
	int			ntxns;			/* how many transactions' rows came */
} Turn;

static WmsWal *wal = NULL;
static WmsSharedWorker *my_slot = NULL;
static uint64 registry_seen = 0;
static bool registry_distrusted = false;
static TimestampTz told_at = 0;

/* ---------------------------------------------------------------- start */

static void
pin_setting(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

static void
attach(Datum arg)
{
	int			index = DatumGetInt32(arg);
	uint32		generation;
	Oid			database;

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	memcpy(&database, MyBgworkerEntry->bgw_extra + sizeof(generation), sizeof(database));
	memcpy(&wms_follows, MyBgworkerEntry->bgw_extra + sizeof(generation) + sizeof(database), sizeof(wms_follows));
	if (!wms_worker_attach(index, generation))
		proc_exit(0);
	my_slot = &wms_shared->workers[index];
	wms_worker_ends(true);		/* should it not come to work: what is raised here cannot be caught */
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
}

/* What others go by, who run our streams' code. */
static void
tell_values(void)
{
	if (!OidIsValid(wms_follows))
		wms_values_tell(my_slot);
}

static void
set_up(void)
{
	wms_memory_init();
	wms_batch_clock_register();
	pin_setting("search_path", "pg_catalog, pg_temp");
	pin_setting("synchronous_commit", "off");
	pin_setting("temp_file_limit", "-1");
	pin_setting("statement_timeout", "0");
	pin_setting("idle_in_transaction_session_timeout", "0");
	pin_setting("default_transaction_isolation", "read committed");
	pin_setting("default_transaction_read_only", "off");
	pin_setting("row_security", "on");
	tell_values();
	replorigin_session_origin = DoNotReplicateId;
	pgstat_report_appname(OidIsValid(wms_follows) ? "wmstream follower" : "wmstream worker");
}

/* ---------------------------------------------------------------- parts of a turn */

static void
check_signals(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		tell_values();
		wms_runners_retry();
	}
	if (wms_worker_should_stop())
	{
		if (!OidIsValid(wms_follows))
			wms_crash_forget();
		proc_exit(0);
	}
}

/* The clock was set back: what is tried again at a time by it would have to wait for as long. */
static void
check_clock(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now < last)
		wms_runners_retry();
	last = now;
}

bool
wms_registry_news(void)
{
	return registry_distrusted || pg_atomic_read_u64(&my_slot->registry_changes) != registry_seen;
}

/* What was read of the registry is not (any more) what is there. */
void
wms_registry_distrust(void)
{
	registry_distrusted = true;
}

static bool
read_registry(void)
{
	if (!wms_registry_news())
		return false;
	registry_seen = pg_atomic_read_u64(&my_slot->registry_changes);
	registry_distrusted = false;
	wms_runners_reload();
	if (wal)
		wms_wal_reset_relations(wal);
	return true;
}

static void
unmark_database(void)
{
	wms_transaction_start();
	wms_unmark_database();
	CommitTransactionCommand();
}

static void
give_up_slot(void)
{
	if (wal)
		wms_wal_close(wal);
	wal = NULL;
	(void) wms_slot_drop(MyDatabaseId);
}

/* Without streams that read the WAL the slot would hold it for nobody; without any the process has nothing to do. */
static void
leave_if_alone(void)
{
	if (wms_runners_read_wal(false) || (wms_runners != NIL && wal == NULL && !wms_slot_is_there(MyDatabaseId)) ||
		!wms_creation_lock_exclusive())
		return;
	wms_runners_reload();		/* a create_stream may have committed just now */
	if (!wms_runners_read_wal(false))
		give_up_slot();
	if (wms_runners == NIL)
	{
		unmark_database();
		wms_crash_forget();
		wms_worker_ends(false);
		proc_exit(0);
	}
	wms_creation_unlock();
}

/* A slot that is gone or has lost its WAL does not come back by trying: the streams are told, once. */
static bool
slot_is_lost(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_UNDEFINED_OBJECT || sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ||
		sqlerrcode == ERRCODE_UNDEFINED_FILE;
}

static WmsWal *
try_open(Oid registry)
{
	WmsWal	   *volatile opened = NULL;
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		opened = OidIsValid(wms_follows) ? wms_wal_open_copy(wms_follows, wms_runners_want, NULL) :
			wms_wal_open(InvalidXLogRecPtr, registry, wms_runners_want, NULL);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		if (!slot_is_lost(edata->sqlerrcode) && !OidIsValid(wms_follows))
			PG_RE_THROW();
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		if (OidIsValid(wms_follows))
			wms_follow_cannot();
		wms_runners_lost(edata->hint ? psprintf("%s. %s", wms_error_message(edata), edata->hint) : wms_error_message(edata));
		FreeErrorData(edata);
	}
	PG_END_TRY();
	return opened;
}

static void
open_wal(void)
{
	Oid			registry;

	if (wal || !wms_runners_read_wal(true))
		return;
	wms_transaction_start();
	registry = wms_relation_oid("stream");
	CommitTransactionCommand();
	wal = try_open(registry);
	if (wal == NULL)
		return;
	wms_runners_judge_slot(wms_slot_birth());
	wms_runners_rewound();
}

/*
 * To the least position of a stream; the slot keeps no WAL from before what it was told, and was told nothing that a stream
 * still needs: an older position is one after which nothing came for its stream.
 */
static void
rewind_wal(void)
{
	XLogRecPtr	to = wms_runners_rewind_to(wms_wal_read_upto(wal));

	wms_wal_rewind(wal, Max(to, MyReplicationSlot->data.confirmed_flush));
	wms_runners_rewound();
}

/* Streams that are behind: a follower's business if they are far behind. */
static void
see_to_laggards(void)
{
	if (wms_runners_welcome(wms_wal_read_upto(wal)))
		wms_wal_reset_relations(wal);
	if (!OidIsValid(wms_follows))
		wms_send_laggards(wms_wal_read_upto(wal), MyReplicationSlot->data.confirmed_flush);
	if (wms_runners_behind())
		rewind_wal();
}

static Turn
decode(void)
{
	Turn		turn = {0};
	WmsBatch   *batch;
	XLogRecPtr	flushed = GetFlushRecPtr(NULL); /* before it is looked what is visible */

	if (wal == NULL)
		return turn;
	turn.put_off = wms_catalogs_unseen();
	wms_runners_begin();
	see_to_laggards();
	batch = wms_wal_next(wal, wms_max_batch_rows, turn.put_off ? flushed : InvalidXLogRecPtr);
	turn.caught_up = wms_wal_read_upto(wal) >= flushed;
	if (batch == NULL)
		return turn;
	wms_catalogs_note(batch);
	turn.read = true;
	turn.ntxns = batch->ntxns;
	wms_runners_take(batch);
	wms_runners_created(batch);
	wms_batch_unref(batch);
	return turn;
}

/* For followers, who want to know how far they have to come. */
static void
show_position(XLogRecPtr read_upto)
{
	pg_atomic_write_u64(&my_slot->read_upto, read_upto);
}

/*
 * Who is told must be able to rely on what has been flushed, and a flush costs as much as a small batch does, and holds up the writers that
 * commit at that moment.  Results are visible without it, and what is told late is not wrong: the slot keeps more WAL for as long, and after
 * a crash a stream goes on from what was flushed of its log, be it told or not.  So while there is work, telling waits for somebody who waits for it, or
 * for a flush of somebody else's, but not for much longer than TELL_MS.  With more to read at once a waiter has no use for being told how far it is.
 */
static bool
must_tell(bool busy, bool caught_up)
{
	if (!busy || TimestampDifferenceExceeds(told_at, GetCurrentTimestamp(), TELL_MS))
		return true;
	return wms_last_commit() <= GetFlushRecPtr(NULL) || (caught_up && wms_runners_awaited());
}

/* What is in the results is flushed before anyone is told. */
static void
tell(void)
{
	XLogRecPtr	read_upto = wal ? wms_wal_read_upto(wal) : InvalidXLogRecPtr;

	told_at = GetCurrentTimestamp();
	if (!XLogRecPtrIsInvalid(wms_last_commit()))
		XLogFlush(wms_last_commit());
	WMS_POINT("confirm-before");
	wms_runners_consumed(read_upto);
	if (wal)
		wms_wal_confirm(wal, wms_runners_needed(read_upto));
	WMS_POINT("confirm-after");
}

/*
 * Each look and each commit takes processor time from the writers, and caches.  Where many transactions come at each, fewer looks bring the same,
 * a little later; unless somebody waits for it.
 */
static bool
gathers(const Turn *turn)
{
	return turn->ntxns >= GATHER_FROM && !wms_runners_awaited();
}

/* Looks after what does not belong to every turn; it may bring news of the registry. */
static void
check_now_and_then(TimestampTz now)
{
	static TimestampTz last_check = 0;

	if (now >= last_check && !TimestampDifferenceExceeds(last_check, now, WAL_CHECK_MS))
		return;
	last_check = now;
	wms_runners_look_again();
	if (!OidIsValid(wms_follows))
		wms_runners_check_retention(wal ? MyReplicationSlot->data.confirmed_flush : InvalidXLogRecPtr);
}

/*
 * For how long at most, in ms.  Whoever writes to the registry or waits wakes us; nobody does for what we found ourselves and left, so that
 * poll_interval, which may be minutes, is not the measure of it.
 */
static long
longest_rest(const Turn *turn, bool quiet)
{
	long		timeout = wms_poll_interval;

	if (quiet || gathers(turn))
		timeout *= LONG_REST_FACTOR;
	if (!turn->told)
		timeout = Min(timeout, TELL_MS);
	if (turn->put_off || registry_distrusted)
		timeout = Min(timeout, PUT_OFF_MS);
	if (wms_ticks_needed() && !OidIsValid(wms_follows))
		timeout = Min(timeout, WMS_TICK_MS);
	return wms_runners_next_timer(timeout);
}

static void
rest(const Turn *turn, bool active, bool again)
{
	static TimestampTz last_busy = 0;
	TimestampTz now = GetCurrentTimestamp();
	bool		quiet = false;

	if (active)
		last_busy = now;
	else if (TimestampDifferenceExceeds(last_busy, now, IDLE_AFTER_MS))
	{
		quiet = true;
		pgstat_report_stat(false);
	}
	check_now_and_then(now);
	if (again || (wms_registry_news() && !registry_distrusted))
	{
		/* without waiting there is nobody else to tell */
		if (!PostmasterIsAlive())
			proc_exit(1);
		return;
	}
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 longest_rest(turn, quiet), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
}

static void
follower_turn(void)
{
	Turn		turn = {.told = true};
	bool		did;

	check_signals();
	check_clock();
	(void) read_registry();
	did = wms_follow();
	if (wms_follow_reads(wal != NULL))
	{
		if (wal == NULL)
			wal = try_open(InvalidOid);
		turn = decode();
		turn.told = true;
		did |= turn.read;
		did |= wms_runners_work(wms_wal_read_upto(wal), turn.caught_up);
		tell();
		wms_follow_told(wms_wal_read_upto(wal));
	}
	/* what keeps it from going on does not wake it, and it has no other business */
	turn.put_off |= !did && wms_follow_goes_on();
	rest(&turn, did, did);
}

static void
turn(void)
{
	Turn		turn;
	bool		news,
				worked,
				trims,
				again;

	check_signals();
	check_clock();
	news = read_registry();
	leave_if_alone();
	open_wal();
	wms_tick();
	turn = decode();
	worked = wms_runners_work(wal ? wms_wal_read_upto(wal) : InvalidXLogRecPtr, turn.caught_up);
	show_position(wal ? wms_wal_read_upto(wal) : InvalidXLogRecPtr);
	if (must_tell(news || turn.read || worked, turn.caught_up || wal == NULL))
	{
		tell();
		turn.told = true;
	}
	trims = wms_trim_queues();
	again = news || trims || wms_runners_at_hand(wal != NULL);

	/* With everything read, new transactions gather for a moment: a turn for each of them would take the writers' processor time. */
	rest(&turn, news || turn.read || worked || wms_queues_had_rows(), again || (turn.read ? !turn.caught_up : worked));
}

static void
turns(void)
{
	for (;;)
	{
		MemoryContextSwitchTo(wms_worker_context);
		if (OidIsValid(wms_follows))
			follower_turn();
		else
			turn();
	}
}

/*
 * An error that is no stream's (reading the WAL, staging what was read when the disk is full): the next process begins from what is
 * durable, which is safer than going on with what decoding left behind.  Until then the streams say why they stand.
 */
static void
end_in_error(void)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(wms_worker_context);
	edata = CopyErrorData();
	LWLockReleaseAll();
	wms_runners_stand(psprintf("the worker has ended and is started again: %s", wms_error_message(edata)));
	wms_worker_ends(true);
}

void
wms_worker_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, StatementCancelHandler);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	attach(arg);
	set_up();
	PG_TRY();
	{
		registry_seen = pg_atomic_read_u64(&my_slot->registry_changes);
		wms_runners_reload();
		wms_crash_begin();
		wms_worker_begins();
		turns();
	}
	PG_CATCH();
	{
		end_in_error();
		PG_RE_THROW();
	}
	PG_END_TRY();
}
