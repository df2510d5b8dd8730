/*
 * worker_launcher.c
 *	  One process per server that sees to it that every database with streams has its worker.
 *
 * A database has streams if it bears our mark (registry_mark.c).  One that has our replication slot gets a worker too:
 * a create_stream that rolled back has left it, and the worker of a database without streams drops it before it goes.  So the launcher
 * needs no database: it looks at marks and slots, claims a worker slot in shared memory for each database that has none, and registers the process.  A worker that
 * dies is started again at the next look, not sooner than RESTART_MS after its last start.
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
#define SLOT_PREFIX "wmstream_"

/* When a worker was last started for a database. */
typedef struct Started
{
	Oid			database;
	TimestampTz at;
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

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	MemoryContextSwitchTo(context);
	marked = wms_marked_databases();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return add_databases_with_slots(marked);
}

/* Templates are copied by others, who need them without sessions; a database that refuses connections refuses ours. */
static bool
takes_worker(Oid database)
{
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		takes = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(database));
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		takes = form->datallowconn && !form->datistemplate;
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
			(wms_worker_of(database) != NULL || list_member_oid(databases, database));
		LWLockRelease(&wms_shared->lock);
		if (!OidIsValid(database) || alive)
			continue;
		wms_store_free_area(slot);
		wms_stream_slot_free(slot);
	}
}

static Started *
last_start(Oid database)
{
	ListCell   *lc;
	Started    *s;
	MemoryContext old;

	foreach(lc, started)
		if (((Started *) lfirst(lc))->database == database)
			return lfirst(lc);
	old = MemoryContextSwitchTo(TopMemoryContext);
	s = palloc0(sizeof(Started));
	s->database = database;
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

static void
note_shortage(bool is_short)
{
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	wms_shared->workers_short = is_short;
	LWLockRelease(&wms_shared->lock);
}

static void
register_worker(WmsSharedWorker *slot, int index, uint32 generation, Oid database)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "wmstream");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "wms_worker_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "wmstream worker for database %u", database);
	snprintf(worker.bgw_type, BGW_MAXLEN, "wmstream worker");
	worker.bgw_main_arg = Int32GetDatum(index);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &generation, sizeof(generation));
	memcpy(worker.bgw_extra + sizeof(generation), &database, sizeof(database));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		note_shortage(false);
	else
	{
		note_shortage(true);
		wms_worker_release(index, generation);
		complain_of_slots(database);
	}
}

static int
workers_in_use(void)
{
	int			n = 0;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nworkers; i++)
		n += wms_shared->workers[i].in_use;
	LWLockRelease(&wms_shared->lock);
	return n;
}

/* Starts the worker of a database unless it runs; milliseconds until it may be tried again, 0: nothing to wait for. */
static long
see_to(Oid database, TimestampTz now)
{
	Started    *s = last_start(database);
	WmsSharedWorker *slot;
	bool		full = false;

	if (!TimestampDifferenceExceeds(s->at, now, RESTART_MS))
		return RESTART_MS;
	if (wms_worker_of(database) != NULL || !takes_worker(database))
		return 0;
	full = workers_in_use() >= wms_max_workers;
	slot = full ? NULL : wms_worker_claim(database, &full);
	if (full)
	{
		note_shortage(true);
		complain_of_slots(database);
	}
	if (slot == NULL)
		return 0;
	s->at = now;
	register_worker(slot, slot - wms_shared->workers, slot->generation, database);
	return 0;
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
			long		again = see_to(lfirst_oid(lc), GetCurrentTimestamp());

			if (again > 0)
				timeout = Min(timeout, again);
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
