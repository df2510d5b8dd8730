/*
 * sink_internal.h
 *	  What the files of this room share among themselves.
 */
#ifndef WMS_SINK_INTERNAL_H
#define WMS_SINK_INTERNAL_H

#include "sink/sink.h"

/*
 * sink_result.c: ERROR if rows of the table, or of a partition of it, are not in this server's WAL: after a crash some of them would be gone, and the
 * state would say that all was written.
 */
extern void wms_sink_check_logged(Oid relid, const char *as_what);
/*
 * sink_bulk.c: puts the rows into the table, if that is plain (see there); false: it is not, and nothing was done.  order: columns of the
 * rows, the first of which (run > 0) has one value over many rows that follow each other.  *written: how many rows it were.
 */
extern bool wms_bulk_insert(Oid relid, WmsRowSet *rows, List *order, AttrNumber run, int64 *written);

#endif							/* WMS_SINK_INTERNAL_H */
