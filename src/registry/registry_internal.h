/*
 * registry_internal.h
 *	  What the files of this room share among themselves.
 */
#ifndef WMS_REGISTRY_INTERNAL_H
#define WMS_REGISTRY_INTERNAL_H

#include "registry/registry.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* registry_stream.c: a table of schema wmstream, opened; NULL if the extension is not here (any more). */
extern Relation wms_registry_open(const char *table, LOCKMODE lockmode);
/* registry_stream.c: the owner of a relation; InvalidOid if that is gone. */
extern Oid	wms_registry_owner(Oid relid);
/* registry_stream.c: of all streams, as wms_registry_streams has them, where they write and where their definition is; cheaper. */
typedef struct WmsOutput
{
	Oid			stream;
	Oid			view;
	Oid			late_table;		/* InvalidOid: none */
} WmsOutput;
extern List *wms_registry_outputs(void);
/* registry_stream.c: the stream, if it is still there, begins with what commits after this moment. */
extern void wms_registry_begin_now(Oid stream);
/* registry_queue.c: what has committed by now, and we ourselves; a pg_snapshot. */
extern Datum wms_queue_now(void);
/* registry_queue.c: that moment shall be our commit. */
extern void wms_queue_begins(Oid stream);
/* registry_upsert.c: rows of queues that are updated by statements that also insert stay what they were. */
extern void wms_upsert_install_hook(void);
/* registry_define.c: runs a utility command as the current user. */
extern void wms_registry_command(const char *sql);
/*
 * registry_define.c: before a relation of that name is made: waits for others of us who are making one, and keeps them waiting
 * until the transaction ends.  Afterwards it must be looked for again.
 */
extern void wms_lock_new_name(Oid schema, const char *name);

#endif							/* WMS_REGISTRY_INTERNAL_H */
