/*
 * worker_launcher.c
 *	  One process per server that sees to it that every database with streams has its worker, and every stream that is a follower's has
 *	  that.
 *
 * A database has streams if it bears our mark (registry_mark.c).  One that has our replication slot gets a worker too:
 * a create_stream that rolled back has left it, and the worker of a database without streams drops it before it goes.  So the launcher
 * needs no database: it looks at marks and slots, claims a worker slot in shared memory for each database that has none, and registers the process.  A worker that
 * dies is started again at the next look, not sooner than RESTART_MS after its last start; one that left, because there was nothing more
 * to do, as soon as there is; one that ends in an error again and again (the disk is full, say), or does not get so far as to begin, later each
 * time, up to RESTART_MAX_MS.
 *
 * It looks when it is woken (a create_stream has committed, a worker has gone) and every LOOK_MS.  It
 * never exits by itself: an exit status of 0 would unregister it until the next server start.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define LOOK_MS 5000
#define RESTART_MS 1000
#define RESTART_MAX_MS 30000
#define STEADY_MS 60000			/* one that ran for so long may be started again at once */
#define SLOT_PREFIX "wmstream_"

/* When a worker was last started for a database, or a follower for one of its streams. */
typedef struct Started
{
	Oid			database;
	Oid			stream;			/* InvalidOid: the worker */
	TimestampTz at;
	int			delay;			/* ms from then on to the next start */
} Started;

static List *started = NIL;

void
wms_launcher_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "wmstream");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "wms_launcher_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "wmstream launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "wmstream launcher");
	RegisterBackgroundWorker(&worker);
}

/* ---------------------------------------------------------------- databases that need a worker */

static Oid
database_of_slot(const char *name)
{
	char	   *end;
	unsigned long oid;

	if (strncmp(name, SLOT_PREFIX, strlen(SLOT_PREFIX)) != 0)
		return InvalidOid;
	oid = strtoul(name + strlen(SLOT_PREFIX), &end, 10);
	return *end == '\0' ? (Oid) oid : InvalidOid;
}

static List *
add_databases_with_slots(List *databases)
{
	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];
		Oid			database = InvalidOid;

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		if (slot->data.persistency == RS_PERSISTENT)
			database = slot->data.database;
		SpinLockRelease(&slot->mutex);
		if (OidIsValid(database) && database == database_of_slot(NameStr(slot->data.name)))
			databases = list_append_unique_oid(databases, database);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return databases;
}

/* In the current context. */
static List *
databases_with_streams(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *marked;

	wms_transaction_start();
	(void) GetTransactionSnapshot();
	MemoryContextSwitchTo(context);
	marked = wms_marked_databases();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return add_databases_with_slots(marked);
}

/*
 * Templates are copied by others, who need them without sessions; a database that refuses connections refuses ours, as does one whose DROP was
 * interrupted, mark and all.
 */
static bool
takes_worker(Oid database)
{
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		takes = false;

	wms_transaction_start();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(database));
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		takes = form->datallowconn && !form->datistemplate && !WmsIsInvalidDatabase(form);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	return takes;
}

/* Streams of databases that have neither mark, slot nor worker any more (dropped, or without the extension) give their places back. */
static void
collect_stream_slots(List *databases)
{
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		WmsSharedStream *slot = &wms_shared->streams[i];
		Oid			database;
		bool		alive;

		LWLockAcquire(&wms_shared->lock, LW_SHARED);
		database = slot->in_use ? slot->database : InvalidOid;
		alive = OidIsValid(database) &&
			(wms_worker_of(database) != NULL || wms_follower_of(database, slot->stream) != NULL ||
			 list_member_oid(databases, database));
		LWLockRelease(&wms_shared->lock);
		if (!OidIsValid(database) || alive)
			continue;
		wms_store_free_area(slot);
		wms_stream_slot_free(slot);
	}
}

static Started *
last_start(Oid database, Oid stream)
{
	ListCell   *lc;
	Started    *s;
	MemoryContext old;

	foreach(lc, started)
		if (((Started *) lfirst(lc))->database == database && ((Started *) lfirst(lc))->stream == stream)
			return lfirst(lc);
	old = MemoryContextSwitchTo(TopMemoryContext);
	s = palloc0(sizeof(Started));
	s->database = database;
	s->stream = stream;
	s->delay = RESTART_MS;
	started = lappend(started, s);
	MemoryContextSwitchTo(old);
	return s;
}

/* ---------------------------------------------------------------- starting */

static void
complain_of_slots(Oid database)
{
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker is free for the streams of database %u", database),
			 errhint("Raise max_worker_processes (now %d) or wmstream.max_workers (now %d).",
					 max_worker_processes, wms_max_workers)));
}

/* Of followers there may be too few for a while: they end, and the next ones begin. */
static void
note_shortage(Oid database, Oid stream, bool is_short)
{
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (OidIsValid(stream))
		wms_shared->followers_short = is_short;
	else
		wms_shared->workers_short = is_short;
	LWLockRelease(&wms_shared->lock);
	if (is_short && !OidIsValid(stream))
		complain_of_slots(database);
}

static void
name_worker(BackgroundWorker *worker, Oid database, Oid stream)
{
	const char *kind = OidIsValid(stream) ? "follower" : "worker";

	snprintf(worker->bgw_type, BGW_MAXLEN, "wmstream %s", kind);
	if (OidIsValid(stream))
		snprintf(worker->bgw_name, BGW_MAXLEN, "wmstream follower for stream %u of database %u", stream, database);
	else
		snprintf(worker->bgw_name, BGW_MAXLEN, "wmstream worker for database %u", database);
}

static void
register_worker(WmsSharedWorker *slot, int index, uint32 generation, Oid database, Oid stream)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "wmstream");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "wms_worker_main");
	name_worker(&worker, database, stream);
	worker.bgw_main_arg = Int32GetDatum(index);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &generation, sizeof(generation));
	memcpy(worker.bgw_extra + sizeof(generation), &database, sizeof(database));
	memcpy(worker.bgw_extra + sizeof(generation) + sizeof(database), &stream, sizeof(stream));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		note_shortage(database, stream, false);
	else
	{
		wms_worker_release(index, generation);
		note_shortage(database, stream, true);
	}
}

static bool
all_in_use(bool followers)
{
	return wms_workers_in_use(followers) >= (followers ? wms_max_followers : wms_max_workers);
}

/*
 * Starts the worker of a database, or the follower of a stream, unless it runs; milliseconds until it may be tried again, 0:
 * nothing to wait for.
 */
static long
see_to(Oid database, Oid stream, TimestampTz now)
{
	Started    *s = last_start(database, stream);
	WmsSharedWorker *slot;
	bool		failed;
	bool		full = false;

	if (!TimestampDifferenceExceeds(s->at, now, s->delay) && !wms_worker_has_ended(database, stream, false))
		return Max(1, s->delay - (now - s->at) / 1000);
	if (wms_follower_of(database, stream) != NULL || !takes_worker(database))
		return 0;
	failed = wms_worker_has_ended(database, stream, true);
	full = all_in_use(OidIsValid(stream));
	slot = full ? NULL : wms_worker_claim(database, stream, &full);
	if (full)
		note_shortage(database, stream, true);
	if (slot == NULL)
		return 0;
	s->delay = failed && !TimestampDifferenceExceeds(s->at, now, STEADY_MS) ? Min(s->delay * 2, RESTART_MAX_MS) : RESTART_MS;
	s->at = now;
	register_worker(slot, slot - wms_shared->workers, slot->generation, database, stream);
	return 0;
}

/* All that need no process any more are forgotten, so that the list does not grow with every stream that there ever was. */
static void
forget_starts(TimestampTz now)
{
	ListCell   *lc;

	foreach(lc, started)
	{
		Started    *s = lfirst(lc);

		if (!OidIsValid(s->stream) || !TimestampDifferenceExceeds(s->at, now, STEADY_MS))
			continue;
		started = foreach_delete_current(started, lc);
		pfree(s);
	}
}

static Oid
stream_to_follow(const WmsSharedStream *slot, Oid *database)
{
	Oid			stream = InvalidOid;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	if (slot->in_use && pg_atomic_read_u32((pg_atomic_uint32 *) &slot->keeper) == WMS_KEEPER_FOLLOWER)
	{
		stream = slot->stream;
		*database = slot->database;
	}
	LWLockRelease(&wms_shared->lock);
	return stream;
}

/* Followers of databases that have streams; milliseconds as see_to, at most timeout. */
static long
see_to_followers(List *databases, TimestampTz now, long timeout)
{
	forget_starts(now);
	for (int i = 0; i < wms_shared->nstreams; i++)
	{
		Oid			database = InvalidOid;
		Oid			stream = stream_to_follow(&wms_shared->streams[i], &database);
		long		again;

		if (!OidIsValid(stream) || !list_member_oid(databases, database))
			continue;
		again = see_to(database, stream, now);
		if (again > 0)
			timeout = Min(timeout, again);
	}
	return timeout;
}

void
wms_launcher_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	wms_launcher_attach();
	context = AllocSetContextCreate(TopMemoryContext, "wmstream launcher", ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		long		timeout = LOOK_MS;
		List	   *databases;
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		databases = databases_with_streams();
		collect_stream_slots(databases);
		foreach(lc, databases)
		{
			long		again = see_to(lfirst_oid(lc), InvalidOid, GetCurrentTimestamp());

			if (again > 0)
				timeout = Min(timeout, again);
		}
		timeout = see_to_followers(databases, GetCurrentTimestamp(), timeout);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
