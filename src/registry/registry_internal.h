/*
 * registry_internal.h
 *	  What the files of this room share among themselves.
 */
#ifndef WMS_REGISTRY_INTERNAL_H
#define WMS_REGISTRY_INTERNAL_H

#include "registry/registry.h"

/* registry_stream.c: the owner of a relation; InvalidOid if that is gone. */
extern Oid	wms_registry_owner(Oid relid);
/* registry_define.c: runs a utility command as the current user. */
extern void wms_registry_command(const char *sql);

#endif							/* WMS_REGISTRY_INTERNAL_H */
