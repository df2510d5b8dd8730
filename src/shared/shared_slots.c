/*
 * shared_slots.c
 *	  Slots of the database workers and of the followers of their streams: claim, attach, release, stop, wake.
 *
 * A slot goes through: free -> claimed (by the launcher, before it registers the
 * process) -> attached (by the process itself) -> free (by the process's exit hook).
 * Each claim counts the slot's generation up, and the process is told index and
 * generation, so a process that comes too late finds that its claim is not its own
 * any more and exits.  A claim that nobody attached to within ATTACH_TIMEOUT_MS is
 * stale, and free for whoever looks: the process was never started, or died before
 * it got that far.
 *
 * The exit hook runs late: by then the process has rolled back, given back its
 * replication slot and left the list of processes of its database, so who waited for it may drop
 * either.  It runs before the process loses its PGPROC.
 *
 * A bar keeps workers out of a database until the transactions that set it
 * are over.  Without it the launcher would start a new worker between the
 * end of the old one and the DROP that wanted it gone.
 *
 * Locking: everything here happens under wms_shared->lock; static functions
 * expect it held.  Pointers to a worker's PGPROC are used only under it: the exit hook
 * clears them before the PGPROC can belong to another process.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "shared/shared.h"

#define ATTACH_TIMEOUT_MS 60000

/* While we wait for a worker to stop: how often to look for a claim gone stale. */
#define STOP_RECHECK_MS 1000

/* The slot that this process is attached to. */
static int	my_index = -1;
static uint32 my_generation = 0;

/* ---------------------------------------------------------------- slots, under the lock */

static void
free_slot(WmsSharedWorker *worker)
{
	worker->in_use = false;
	worker->database = InvalidOid;
	worker->stream = InvalidOid;
	worker->proc = NULL;
	worker->pid = 0;
	worker->stop = false;
	worker->values_known = false;
}

static void
collect_stale_claims(void)
{
	TimestampTz now = GetCurrentTimestamp();

	Assert(LWLockHeldByMeInMode(&wms_shared->lock, LW_EXCLUSIVE));
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		WmsSharedWorker *worker = &wms_shared->workers[i];

		if (worker->in_use && worker->proc == NULL &&
			TimestampDifferenceExceeds(worker->claimed_at, now, ATTACH_TIMEOUT_MS))
			free_slot(worker);
	}
}

static WmsSharedWorker *
free_worker_slot(void)
{
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		if (!wms_shared->workers[i].in_use)
			return &wms_shared->workers[i];
	}
	return NULL;
}

static WmsSharedBar *
bar_of(Oid database)
{
	for (int i = 0; i < WMS_MAX_DATABASES; i++)
	{
		WmsSharedBar *bar = &wms_shared->bars[i];

		if (bar->count > 0 && bar->database == database)
			return bar;
	}
	return NULL;
}

static WmsSharedBar *
free_bar(void)
{
	for (int i = 0; i < WMS_MAX_DATABASES; i++)
	{
		if (wms_shared->bars[i].count == 0)
			return &wms_shared->bars[i];
	}
	return NULL;
}

WmsSharedWorker *
wms_follower_of(Oid database, Oid stream)
{
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		WmsSharedWorker *worker = &wms_shared->workers[i];

		if (worker->in_use && worker->database == database && worker->stream == stream)
			return worker;
	}
	return NULL;
}

WmsSharedWorker *
wms_worker_of(Oid database)
{
	return wms_follower_of(database, InvalidOid);
}

int
wms_workers_in_use(bool followers)
{
	int			n = 0;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nworkers; i++)
		n += wms_shared->workers[i].in_use && OidIsValid(wms_shared->workers[i].stream) == followers;
	LWLockRelease(&wms_shared->lock);
	return n;
}

/* ---------------------------------------------------------------- the life of a claim */

static bool
has_ended(const WmsSharedWorker *worker, Oid database, Oid stream)
{
	return worker->ended_database == database && worker->ended_stream == stream;
}

static void
forget_who_ended(Oid database, Oid stream)
{
	for (int i = 0; i < wms_shared->nworkers; i++)
		if (has_ended(&wms_shared->workers[i], database, stream))
			wms_shared->workers[i].ended_database = InvalidOid;
}

static void
claim_slot(WmsSharedWorker *worker, Oid database, Oid stream)
{
	forget_who_ended(database, stream);
	worker->ended_database = InvalidOid;
	worker->in_use = true;
	worker->database = database;
	worker->stream = stream;
	pg_atomic_write_u64(&worker->read_upto, InvalidXLogRecPtr);
	worker->generation++;
	worker->claimed_at = GetCurrentTimestamp();
	worker->proc = NULL;
	worker->pid = 0;
	worker->stop = false;
}

WmsSharedWorker *
wms_worker_claim(Oid database, Oid stream, bool *full)
{
	WmsSharedWorker *worker = NULL;

	*full = false;
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	collect_stale_claims();
	if (wms_follower_of(database, stream) == NULL && bar_of(database) == NULL)
	{
		worker = free_worker_slot();
		if (worker != NULL)
			claim_slot(worker, database, stream);
		else
			*full = true;
	}
	LWLockRelease(&wms_shared->lock);
	return worker;
}

static bool
is_claim(const WmsSharedWorker *worker, uint32 generation)
{
	return worker->in_use && worker->generation == generation;
}

void
wms_worker_release(int index, uint32 generation)
{
	WmsSharedWorker *worker = &wms_shared->workers[index];

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (is_claim(worker, generation))
		free_slot(worker);
	LWLockRelease(&wms_shared->lock);

	ConditionVariableBroadcast(&wms_shared->workers_changed);
	wms_launcher_wake();
}

void
wms_worker_ends(bool in_error)
{
	WmsSharedWorker *worker = &wms_shared->workers[my_index];

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (is_claim(worker, my_generation))
	{
		worker->ended_database = worker->database;
		worker->ended_stream = worker->stream;
		worker->ended_in_error = in_error;
	}
	LWLockRelease(&wms_shared->lock);
}

void
wms_worker_begins(void)
{
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (is_claim(&wms_shared->workers[my_index], my_generation))
		wms_shared->workers[my_index].ended_database = InvalidOid;
	LWLockRelease(&wms_shared->lock);
}

bool
wms_worker_has_ended(Oid database, Oid stream, bool in_error)
{
	bool		ended = false;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nworkers; i++)
		ended |= !wms_shared->workers[i].in_use && has_ended(&wms_shared->workers[i], database, stream) &&
			wms_shared->workers[i].ended_in_error == in_error;
	LWLockRelease(&wms_shared->lock);
	return ended;
}

static void
release_at_exit(int code, Datum arg)
{
	wms_worker_release(my_index, my_generation);
}

bool
wms_worker_attach(int index, uint32 generation)
{
	WmsSharedWorker *worker;
	bool		ours;

	if (index < 0 || index >= wms_shared->nworkers)
		return false;
	worker = &wms_shared->workers[index];

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	ours = is_claim(worker, generation) && worker->proc == NULL;
	if (ours)
	{
		worker->proc = MyProc;
		worker->pid = MyProcPid;
	}
	LWLockRelease(&wms_shared->lock);
	if (!ours)
		return false;

	my_index = index;
	my_generation = generation;
	on_shmem_exit(release_at_exit, (Datum) 0);

	/* Told to stop before it began: the caller exits, and the hook releases the slot. */
	return !wms_worker_should_stop();
}

/* ---------------------------------------------------------------- stopping and waking */

bool
wms_worker_should_stop(void)
{
	bool		stop;

	if (my_index < 0)
		return false;
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	stop = wms_shared->workers[my_index].stop;
	LWLockRelease(&wms_shared->lock);
	return stop;
}

/* Tells the worker and the followers of a database to stop; false: there are none. */
static bool
ask_to_stop(Oid database)
{
	bool		any = false;

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	collect_stale_claims();
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		WmsSharedWorker *worker = &wms_shared->workers[i];

		if (!worker->in_use || worker->database != database)
			continue;
		any = true;
		worker->stop = true;
		if (worker->proc != NULL)
			SetLatch(&worker->proc->procLatch);
		/* it may sort for a long time before it looks, and has nothing to bring to an end */
		if (worker->proc != NULL && OidIsValid(worker->stream))
			(void) kill(worker->pid, SIGTERM);
	}
	LWLockRelease(&wms_shared->lock);
	return any;
}

void
wms_worker_stop(Oid database)
{
	/* First the bar: from here on only those that are there can be there. */
	wms_bar_until_end(database);

	ConditionVariablePrepareToSleep(&wms_shared->workers_changed);
	while (ask_to_stop(database))
		(void) ConditionVariableTimedSleep(&wms_shared->workers_changed, STOP_RECHECK_MS,
										   WMS_WAIT_EVENT("WmstreamWorkerStop"));
	ConditionVariableCancelSleep();
}

void
wms_worker_wake(Oid database)
{
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		WmsSharedWorker *worker = &wms_shared->workers[i];

		if (worker->in_use && worker->database == database && worker->proc != NULL)
			SetLatch(&worker->proc->procLatch);
	}
	LWLockRelease(&wms_shared->lock);
}

void
wms_registry_changed(Oid database)
{
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	for (int i = 0; i < wms_shared->nworkers; i++)
	{
		WmsSharedWorker *worker = &wms_shared->workers[i];

		if (worker->in_use && worker->database == database)
			pg_atomic_fetch_add_u64(&worker->registry_changes, 1);
	}
	LWLockRelease(&wms_shared->lock);
}

/* ---------------------------------------------------------------- the launcher */

static void
detach_launcher(int code, Datum arg)
{
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	if (wms_shared->launcher_pid == MyProcPid)
	{
		wms_shared->launcher = NULL;
		wms_shared->launcher_pid = 0;
	}
	LWLockRelease(&wms_shared->lock);
}

void
wms_launcher_attach(void)
{
	on_shmem_exit(detach_launcher, (Datum) 0);
	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	wms_shared->launcher = MyProc;
	wms_shared->launcher_pid = MyProcPid;
	LWLockRelease(&wms_shared->lock);
}

void
wms_launcher_wake(void)
{
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	if (wms_shared->launcher != NULL)
		SetLatch(&wms_shared->launcher->procLatch);
	LWLockRelease(&wms_shared->lock);
}

/* ---------------------------------------------------------------- bars */

bool
wms_bar_add(Oid database)
{
	WmsSharedBar *bar;

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	bar = bar_of(database);
	if (bar == NULL)
		bar = free_bar();
	if (bar != NULL)
	{
		bar->database = database;
		bar->count++;
	}
	LWLockRelease(&wms_shared->lock);
	return bar != NULL;
}

void
wms_bar_lift(Oid database)
{
	WmsSharedBar *bar;

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	bar = bar_of(database);
	if (bar != NULL)
		bar->count--;
	LWLockRelease(&wms_shared->lock);
	wms_launcher_wake();
}
