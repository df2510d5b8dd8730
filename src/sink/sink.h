/*
 * sink.h
 *	  Writing finished rows into the result table, and rows that were put aside into the late table.
 *
 * sink_result.c  insert, upsert, take away, replace by difference
 * sink_bulk.c    insert into plain tables, many rows at a time
 * sink_late.c    late table
 *
 * Everything runs as the stream's owner, inside the stream's transaction, by ordinary statements, or as COPY does it where the table is plain: constraints,
 * triggers, partitions, defaults and privileges are Postgres's business.
 */
#ifndef WMS_SINK_H
#define WMS_SINK_H

#include "base/base.h"
#include "registry/registry.h"

typedef struct WmsSink WmsSink;

/*
 * desc: columns of the SELECT list, matched to the result's columns by name.  run: the column that tells the window, if rows come window by
 * window; else 0.  Lives in the current context.
 */
extern WmsSink *wms_sink_open(const WmsStreamDef *def, TupleDesc desc, List *key_columns, AttrNumber run);
/* Rows from before since (before_since says which) are not written, and what stands there in the table stays. */
extern void wms_sink_keep_before(WmsSink *sink, const WmsShownTime *shown, WmsTime since);
/* Deletes the rows of the table but for those from before since (WMS_TIME_MIN: all). */
extern int64 wms_sink_clear(WmsSink *sink, const WmsShownTime *shown, WmsTime since);
/* The store to put the firing's rows into; made anew at each call. */
extern Tuplestorestate *wms_sink_rows(WmsSink *sink);
/* The store for keys (key columns in order of key_columns) of groups touched by this firing: rows of them that are not among the rows are taken away. */
extern Tuplestorestate *wms_sink_touched(WmsSink *sink);
extern char *wms_time_literal(WmsTime time, bool tz);	/* as an expression of SQL, of type timestamptz or timestamp */
/* Writes it all; returns rows inserted, updated or deleted. */
extern int64 wms_sink_insert(WmsSink *sink);	/* append */
extern int64 wms_sink_upsert(WmsSink *sink);	/* by the key; with touched keys, takes away */
extern int64 wms_sink_replace(WmsSink *sink);	/* complete: the table becomes the rows, only differences are written */
/* At the end of a batch, also after an error: the rows are gone with the batch. */
extern void wms_sink_end(WmsSink *sink);	/* frees the rows, while their transaction lives */
extern void wms_sink_forget(WmsSink *sink);

typedef enum WmsReason
{
	WMS_REASON_LATE,
	WMS_REASON_NO_TIME,
	WMS_REASON_FUTURE,
	WMS_REASON_ERROR
} WmsReason;

typedef struct WmsLateSink WmsLateSink;
extern WmsLateSink *wms_late_open(const WmsStreamDef *def);
/*
 * Remembers a source row (copied into the batch context), of which these columns are shown. event_time WMS_TIME_MIN..MAX, or has_time false.
 * desc and columns are the source's, and stay as long as the sink does.
 */
extern void wms_late_put(WmsLateSink *late, Oid source, TupleDesc desc, const Bitmapset *columns, HeapTuple row, bool has_time, WmsTime event_time,
						 WmsTime watermark, WmsReason reason, const char *error);
extern int64 wms_late_write(WmsLateSink *late);
/* Takes away what the stream has put there since. */
extern void wms_late_clear(const WmsStreamDef *def, TimestampTz since);
extern void wms_late_end(WmsLateSink *late);
extern void wms_late_forget(WmsLateSink *late);	/* as wms_sink_forget */

#endif							/* WMS_SINK_H */
