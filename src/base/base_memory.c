/*
 * base_memory.c
 *	  The memory contexts of a worker process.
 *
 * Only workers call wms_memory_init; elsewhere both contexts stay NULL.  The
 * batch context is reset at one place, in the worker's batch, after commit or
 * abort.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/base.h"

MemoryContext wms_worker_context = NULL;
MemoryContext wms_batch_context = NULL;

void
wms_memory_init(void)
{
	Assert(wms_worker_context == NULL);

	wms_worker_context = AllocSetContextCreate(TopMemoryContext, "wmstream worker", ALLOCSET_DEFAULT_SIZES);
	wms_batch_context = AllocSetContextCreate(wms_worker_context, "wmstream batch", ALLOCSET_DEFAULT_SIZES);
}
