/*
 * worker.h
 *	  The processes.
 *
 * worker_launcher.c  one per server: starts a worker in each database that has streams, collects orphan slots
 * worker_main.c      one per database with streams: the loop
 * worker_batch.c     one batch of one stream: the only file that knows the order of effects
 * worker_stream.c    the worker's list of streams: loading, status, queues of batches, positions
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

/* A stream as its worker holds it.  In a context of its own below wms_worker_context. */
typedef struct WmsRunner
{
	WmsStreamDef *def;
	WmsSharedStream *slot;
	WmsFlow    *flow;			/* NULL until built, and after it went stale */
	WmsStore   *store;			/* NULL while paused or failed */
	WmsProgress progress;		/* as of the last commit */
	bool		has_position;
	WmsStatus	status;
	List	   *queue;			/* batches not consumed yet, oldest first */
	int64		queue_bytes;
	bool		behind;			/* batches were missed: needs a rewind */
	TimestampTz retry_at;		/* blocked: when to try again */
	int			retries;
	int64		applied;		/* commands applied */
	MemoryContext context;
} WmsRunner;

/* Runs batch (NULL: a firing without rows) for a stream in a transaction of its own.  Never throws: false when the stream became
 * blocked or failed (status and error are set).  *commit_lsn: end of its commit record. */
extern bool wms_run_batch(WmsRunner *runner, WmsBatch *batch, WmsTime advance_to, XLogRecPtr *commit_lsn);

#endif							/* WMS_WORKER_H */
