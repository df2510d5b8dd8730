/*
 * shared_memory.c
 *	  The one piece of fixed shared memory: asking for it, making it.
 *
 * Called from _PG_init, after the settings are defined, because max_streams
 * decides the size.  All slots are initialised once, at server start (and again
 * after a crash, when the postmaster makes shared memory anew); later only their
 * contents change.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "shared/shared.h"

WmsShared  *wms_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(WmsShared, streams), mul_size(wms_max_streams, sizeof(WmsSharedStream)));
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(shared_size());
}

static void
init_worker_slot(WmsSharedWorker *worker)
{
	pg_atomic_init_u64(&worker->registry_changes, 0);
	pg_atomic_init_u64(&worker->read_upto, 0);
}

void
wms_stream_slot_init(WmsSharedStream *stream)
{
	memset(stream, 0, sizeof(*stream));
	LWLockInitialize(&stream->lock, wms_shared->store_tranche);
	stream->area = DSM_HANDLE_INVALID;
	stream->root = InvalidDsaPointer;
	pg_atomic_init_u64(&stream->done_lsn, 0);
	pg_atomic_init_u64(&stream->taken_lsn, 0);
	pg_atomic_init_u64(&stream->fires_at, 0);
	pg_atomic_init_u64(&stream->caught_up_at, 0);
	pg_atomic_init_u64(&stream->applied, 0);
	pg_atomic_init_u32(&stream->status, 0);
	pg_atomic_init_u32(&stream->keeper, WMS_KEEPER_WORKER);
	pg_atomic_init_u64(&stream->needs_lsn, 0);
	ConditionVariableInit(&stream->changed);
	SpinLockInit(&stream->mutex);
}

static void
init_shared(void)
{
	memset(wms_shared, 0, shared_size());
	wms_shared->lock_tranche = LWLockNewTrancheId();
	wms_shared->store_tranche = LWLockNewTrancheId();
	LWLockInitialize(&wms_shared->lock, wms_shared->lock_tranche);
	ConditionVariableInit(&wms_shared->workers_changed);

	wms_shared->nworkers = WMS_MAX_WORKERS;
	for (int i = 0; i < wms_shared->nworkers; i++)
		init_worker_slot(&wms_shared->workers[i]);

	wms_shared->nstreams = wms_max_streams;
	for (int i = 0; i < wms_shared->nstreams; i++)
		wms_stream_slot_init(&wms_shared->streams[i]);
}

/* In the postmaster, and where processes do not inherit its memory in each of them. */
static void
attach_memory(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	wms_shared = ShmemInitStruct("wmstream", shared_size(), &found);
	if (!found)
		init_shared();
	LWLockRelease(AddinShmemInitLock);

	LWLockRegisterTranche(wms_shared->lock_tranche, "WmstreamSlots");
	LWLockRegisterTranche(wms_shared->store_tranche, "WmstreamStore");
}

void
wms_shared_install_hooks(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = attach_memory;
}
