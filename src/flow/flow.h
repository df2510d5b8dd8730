/*
 * flow.h
 *	  A stream's operators at work: rows of a batch in, finished rows out.
 *
 * flow_build.c      from WmsStreamPlan to running operators
 * flow_source.c     watermark operator: event times, rows without one, source maxima; raw and direct feeds
 * flow_vector.c     direct feeds, many rows at a time
 * flow_ahead.c      rows that wait for the memory they will touch
 * flow_shape.c      rows that were written in another layout than the table has now
 * flow_change.c     rows of sources that were changed or deleted: an error, or taken back
 * flow_group.c      operators that collect rows into groups: windows, late tests
 * flow_key.c        the keys of groups, as bytes
 * flow_session.c    aggregates over session windows
 * flow_dedup.c      DISTINCT
 * flow_join.c       joins of two streams
 * flow_due.c        which rows leave an outer join next
 * flow_transition.c aggregate states on the fast path
 * flow_pane.c       sliding and cumulating windows that share panes
 * flow_emit.c       finished groups become rows; aggregates with kept arguments are run
 * flow_fire.c       W advances, everything closes, the result is written
 * flow_read.c       open windows for readers
 * flow_times.c      event times of rows that are not fed yet
 * flow_figures.c    what operators did and hold
 */
#ifndef WMS_FLOW_H
#define WMS_FLOW_H

#include "analyze/analyze.h"
#include "base/base.h"
#include "registry/registry.h"
#include "shared/shared.h"
#include "sink/sink.h"
#include "source/source.h"
#include "state/state.h"

typedef struct WmsFlow WmsFlow;

/* Builds the flow of a stream: analyses the view as the owner.  ERROR with the refusal if it no longer holds.  Lives in a context of its own
 * below parent.  Must run inside a transaction, as the owner. */
extern WmsFlow *wms_flow_build(const WmsStreamDef *def, MemoryContext parent);
extern void wms_flow_free(WmsFlow *flow);
/* Takes the locks that a batch needs, until the end of the transaction; that may bring the news that the flow is stale. */
extern void wms_flow_lock(WmsFlow *flow);
/* Something it depends on changed: build it again. */
extern bool wms_flow_stale(const WmsFlow *flow);
extern const WmsStreamPlan *wms_flow_plan(const WmsFlow *flow);
extern bool wms_flow_reads_static(const WmsFlow *flow);	/* ordinary tables too */
extern bool wms_flow_writes_elsewhere(const WmsFlow *flow);	/* triggers or rules may write into any table: writes must be decoded */
extern const WmsStateOps *wms_flow_state_ops(WmsFlow *flow, int *nops);

/* One batch.  begin; row for each change of a source table (others are ignored); fire or not; the caller prepares the state and commits. */
extern void wms_flow_begin(WmsFlow *flow, WmsStore *store, WmsProgress *progress, MemoryContext batch);
extern void wms_flow_row(WmsFlow *flow, const WmsChange *change);
/* Instead of row by row: rows of a source table that were inserted, if the flow takes them so, which is known after wms_flow_set_skips. */
extern bool wms_flow_takes_bundles(const WmsFlow *flow);
extern void wms_flow_bundle(WmsFlow *flow, WmsBatch *batch, WmsBundle *bundle);
/*
 * on_error = skip: rows of the batch that failed before, in their order, are put aside.  Rows are worked on one by one, so that the one that
 * fails is known: wms_flow_failed_row gives its number in the batch, -1 while it is not known.
 */
typedef enum WmsCare
{
	WMS_CARE_NONE,				/* no rows: none has failed, or all others have been tried */
	WMS_CARE_NEW,				/* those after the last that failed: the ones before have passed */
	WMS_CARE_ALL				/* all: one of the ones before has failed now */
} WmsCare;
typedef struct WmsSkip
{
	int64		row;			/* number of the change in the batch */
	char	   *error;
	WmsTime		time;			/* its event time, if that was known when it failed; WMS_TIME_MIN: not */
} WmsSkip;
extern void wms_flow_set_skips(WmsFlow *flow, List *skips, WmsCare care);
/*
 * Outside of a batch, inside a transaction that will not stay: computes a row as feeding it by itself does and does nothing with what comes
 * out; raises what feeding would.  progress: a copy, which is spoilt.  Afterwards, and after an error when that has been undone,
 * wms_flow_end; before that wms_flow_failed_time tells the row's time.
 */
extern void wms_flow_try(WmsFlow *flow, WmsStore *store, WmsProgress *progress, MemoryContext context, const WmsChange *change);
extern int64 wms_flow_failed_row(const WmsFlow *flow);
extern WmsTime wms_flow_failed_time(const WmsFlow *flow);	/* of that row; as WmsSkip has it */
extern void wms_flow_lock_sources(WmsFlow *flow);	/* as a reader of the source tables */
/* Event times of rows of a source table, in its layout, outside of a batch; WMS_TIME_MIN: none.  As the owner. */
extern void wms_flow_times(WmsFlow *flow, Oid relid, HeapTuple *rows, int n, WmsTime *times);
extern void wms_flow_fed(WmsFlow *flow);	/* all rows of the batch are in */
/* W as the sources say now, by the rules of watermark policy and idleness. */
extern WmsTime wms_flow_watermark(WmsFlow *flow);
/* Idle sources: judged when no unread input waits; with close_when_idle, where W is to go (WMS_TIME_MIN: nowhere). */
extern void wms_flow_judge_idle(WmsFlow *flow);
extern TimestampTz wms_flow_next_idle(WmsFlow *flow);
extern WmsTime wms_flow_idle_target(WmsFlow *flow);
extern void wms_flow_adopt_clocks(WmsFlow *flow, const WmsFigures *figures);
/* Advances W to at least upto, closes, emits, writes the result. */
extern void wms_flow_fire(WmsFlow *flow, WmsTime upto);
/* Emits what does not wait for a firing (projections) and writes late rows. */
extern void wms_flow_finish(WmsFlow *flow);
/* The batch's rows are written: what they took, files too, goes before the transaction ends. */
extern void wms_flow_drop_rows(WmsFlow *flow);
/* Takes away what a fill writes anew: results but for those from before since (WMS_TIME_MIN: all), late rows that came after late_since. */
extern void wms_flow_clear_result(WmsFlow *flow, WmsTime since, TimestampTz late_since);
extern void wms_flow_end(WmsFlow *flow);	/* after commit or error */
/* Has it run a batch?  One that was built anew and has not knows nothing that could be shown. */
extern bool wms_flow_has_begun(const WmsFlow *flow);
extern void wms_flow_figures(WmsFlow *flow, WmsFigures *figures);	/* once after each commit: counts are added */

/* Open windows as rows of the result, as a snapshot sees them. */
typedef struct WmsOpenRows
{
	Tuplestorestate *rows;		/* where they go, */
	TupleDesc	desc;			/* and how they look: columns of the result by name, all others NULL */
	Tuplestorestate *replaced;	/* where keys of the result go: rows that it may have and that are older than the open ones */
	bool		known;			/* set: the state is in memory, or there is none yet */
	int64		groups;			/* set: open groups that the result may have rows of */
	List	   *key;			/* set, if there are any: names of the key's columns, in their order; NIL: without them there is one group at most */
} WmsOpenRows;
extern void wms_flow_read_open(const WmsStreamDef *def, Snapshot snapshot, WmsOpenRows *into);

#endif							/* WMS_FLOW_H */
