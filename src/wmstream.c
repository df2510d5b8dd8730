/*
 * wmstream.c
 *	  Where the library is loaded.
 *
 * Preloaded, it brings settings, shared memory, hooks and the launcher.  Loaded later,
 * by the first call of one of its functions in a session, it defines nothing but its label: the
 * window functions work, and what asks shared memory or the worker for something says what to set (wms_require_preloaded).
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/base.h"
#include "registry/registry.h"
#include "shared/shared.h"
#include "worker/worker.h"

PG_MODULE_MAGIC;

void
_PG_init(void)
{
	/* A dump that holds our label can be restored wherever the library is loaded. */
	wms_mark_install();
	if (!process_shared_preload_libraries_in_progress)
		return;

	wms_preloaded = true;
	wms_define_settings();
	wms_shared_install_hooks();
	wms_registry_install_hooks();

	/* pg_upgrade wants no process to write while it works. */
	if (!IsBinaryUpgrade)
		wms_launcher_register();
}
