/*
 * base.h
 *	  What every room may use: times and windows, refusals, settings, memory
 *	  contexts, test points, packed values, and running a query tree over
 *	  named row sets.
 *
 * An event time, a window bound and a watermark are all int64 microseconds
 * since 2000-01-01 (PostgreSQL's own timestamp), whether the column is
 * timestamptz or timestamp.  WMS_TIME_MIN stands for "before everything" and is
 * the watermark before the first row.
 */
#ifndef WMS_BASE_H
#define WMS_BASE_H

#include "access/tupdesc.h"
#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/dest.h"
#include "utils/queryenvironment.h"
#include "utils/tuplestore.h"

#include "base/base_compat.h"

typedef int64 WmsTime;

#define WMS_TIME_MIN DT_NOBEGIN
#define WMS_TIME_MAX DT_NOEND
#define WmsTimeIsFinite(t) ((t) != DT_NOBEGIN && (t) != DT_NOEND)

/* ---------------------------------------------------------------- windows: base_window.c (SQL faces), base_watermark.c (arithmetic) */

typedef enum WmsWindowKind
{
	WMS_WINDOW_NONE,			/* no window: the group is never closed by time */
	WMS_WINDOW_TIME,			/* a raw event time t: stands for [t, t + 1 us) */
	WMS_WINDOW_GRID,			/* tumbling and sliding: size, slide, offset */
	WMS_WINDOW_CUMULATE,		/* slide = step, size = max_size */
	WMS_WINDOW_SESSION,			/* size = gap; 0: the gap comes with each row */
	WMS_WINDOW_MERGED			/* a session whose rows an operator has merged: it comes ready-made; size = gap, how long it is nobody knows */
} WmsWindowKind;

/* In how many windows a time may lie: so many groups every row would make. */
#define WMS_MAX_WINDOWS_OF_TIME 1000000

typedef struct WmsWindowSpec
{
	WmsWindowKind kind;
	int64		size;			/* all in microseconds */
	int64		slide;
	int64		offset;
} WmsWindowSpec;

typedef struct WmsWindow
{
	WmsTime		start;			/* inclusive */
	WmsTime		end;			/* exclusive */
} WmsWindow;

/*
 * The windows of time t by a grid or cumulating spec.  wms_window_first gives
 * the one with the least end; wms_window_next steps to the next greater end and
 * returns false when t is in no further one.  t must be finite.  Bounds are cut
 * to the range of timestamps, so nothing overflows.
 */
extern bool wms_window_first(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window);
extern bool wms_window_next(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window);

/* The session [t, t + gap) of a single row, cut likewise; false if gap is not positive or t infinite. */
extern bool wms_session_window(WmsTime t, int64 gap, WmsWindow *window);

/* Sizes, slides, gaps and offsets are at most this long either way: 100,000,000 days. */
#define WMS_SPAN_MAX (INT64CONST(100000000) * USECS_PER_DAY)

/* A column of the result that tells the time of its rows. */
typedef enum WmsShownKind
{
	WMS_SHOWN_NONE,
	WMS_SHOWN_EVENT,			/* a time of rows, or the begin of a window whose size is not known */
	WMS_SHOWN_LOWER,			/* the begin of a window of a known size */
	WMS_SHOWN_UPPER,			/* the end of a window */
	WMS_SHOWN_RANGE				/* a window */
} WmsShownKind;

typedef struct WmsShownTime
{
	WmsShownKind kind;
	int			column;			/* 1-based */
	int64		size;			/* LOWER */
} WmsShownTime;

typedef struct WmsRefusal WmsRefusal;

/*
 * Checks the constants of a window and fills spec; NULL if they are good, else a refusal whose which says: 1 size, 2 slide, 3 offset.  slide NULL: as
 * size; offset NULL: 0.  Cumulating: size = max_size, slide = step.  Sessions: size = gap.
 */
extern WmsRefusal *wms_window_spec(WmsWindowKind kind, const Interval *size, const Interval *slide,
								   const Interval *offset, WmsWindowSpec *spec);

/* Asks for memory that will be read soon, for any address. */
static inline void
wms_prefetch_line(const void *address)
{
#if defined(__GNUC__)
	__builtin_prefetch(address);
#endif
}

static inline void
wms_prefetch(const void *address)
{
	wms_prefetch_line(address);
	wms_prefetch_line((const char *) address + 64);
}

/* a + b for times and spans, saturating at WMS_TIME_MIN/MAX; infinite a stays. */
extern WmsTime wms_time_add(WmsTime a, int64 span);
/* The last valid timestamp; END_TIMESTAMP itself is not one. */
#define WMS_LAST_TIME (END_TIMESTAMP - 1)
/* A window as it is shown: cut to valid timestamps, never empty. */
extern void wms_window_cut(WmsWindow *window, WmsTime start, WmsTime end);
/* The end of the cell of a grid that t lies in, or is the end of. */
extern WmsTime wms_grid_end(int64 cell, WmsTime t);

/* A watermark only moves forward: the greater of both. */
extern WmsTime wms_watermark_advance(WmsTime current, WmsTime candidate);

/* Interval to microseconds: a day is 24 h; a month counts month_days days, or (0) is an error that *has_months reports. */
extern int64 wms_interval_us(const Interval *interval, int month_days, bool *has_months);

/* OIDs of our own SQL functions, so that calls are recognised by OID and never by name. */
typedef enum WmsFunction
{
	WMS_FN_OTHER,
	WMS_FN_WATERMARK,
	WMS_FN_WINDOW,				/* scalar, one window */
	WMS_FN_WINDOW_SLIDE,		/* set-returning */
	WMS_FN_CUMULATE,
	WMS_FN_SESSION,
	WMS_FN_LATEST				/* the aggregate latest() */
} WmsFunction;

/* What funcid is to us.  Cached; the cache is dropped when pg_proc changes. */
extern WmsFunction wms_function_kind(Oid funcid);

/* Our aggregate for columns that a group carries. */
extern Oid	wms_latest_aggregate(void);

/* OID of schema wmstream, of the extension, and of one of its relations; InvalidOid when the extension is not there. */
extern Oid	wms_schema_oid(void);
extern Oid	wms_extension_oid(void);
extern Oid	wms_relation_oid(const char *name);

/* ---------------------------------------------------------------- refusals and errors: base_error.c */

/* A reason to say no, as a value: the caller raises, prints or stores it. */
struct WmsRefusal
{
	int			sqlerrcode;
	int			location;		/* in the query text, -1 when unknown */
	int			which;			/* of the values that were checked, the number of the one to blame, from 1; 0: no single one */
	char	   *message;
	char	   *detail;			/* may be NULL */
	char	   *hint;			/* may be NULL */
};

/* Makes a refusal in the current memory context.  message as errmsg's format. */
extern WmsRefusal *wms_refuse(int sqlerrcode, int location, const char *hint, const char *message,...) pg_attribute_printf(4, 5);
/* In an ereport: points into a definition's text, by a location as WmsRefusal has it.  Nothing if either is unknown. */
extern int	wms_errplace(const char *query_text, int location);
/* Raises it as ERROR; query_text may be NULL (then no position is given). */
extern WMS_NORETURN void wms_refusal_raise(const WmsRefusal *refusal, const char *query_text);

/*
 * StartTransactionCommand for our processes: now() and all that goes by the transaction's beginning are the moment of the call.  (Core takes it
 * from the last statement, which a background process has none of.)
 */
extern void wms_transaction_start(void);
/*
 * Runs fn in a subtransaction of its own, in the current memory context.  Returns the error that it raised, in that context; then what it did
 * is undone.  NULL: it raised none, and what it did stays (keep) or is undone too.
 */
extern ErrorData *wms_in_subtransaction(void (*fn) (void *arg), void *arg, bool keep);

/* ERROR that names the setting, unless we were preloaded. */
extern void wms_require_preloaded(void);
extern bool wms_preloaded;

/* wmstream.c: what the server calls when it loads the library; declared by its own headers from 16 on. */
extern PGDLLEXPORT void _PG_init(void);

/* ---------------------------------------------------------------- privileges: base_privilege.c */

/* Of the first natts columns of a table, by number, those that the current user may read by statements of its own. */
extern Bitmapset *wms_readable_columns(Oid relid, int natts);

/* ---------------------------------------------------------------- settings: base_settings.c */

/* Slots for workers in shared memory: the most databases that can run streams. */
#define WMS_MAX_DATABASES 64
#define WMS_MAX_FOLLOWERS 64
#define WMS_MAX_WORKERS (WMS_MAX_DATABASES + WMS_MAX_FOLLOWERS)

extern int	wms_state_memory;	/* MB, per database */
extern int	wms_max_batch_rows;
extern int	wms_poll_interval;	/* ms */
extern int	wms_max_workers;
extern int	wms_max_followers;
extern int	wms_catchup_distance;	/* MB */
extern int	wms_max_streams;	/* slots in shared memory, of all databases */
extern int	wms_max_retained_wal;	/* MB; 0: no limit */
extern int	wms_batch_timeout;	/* ms; 0: none */
extern int	wms_lock_timeout;	/* ms */
extern int	wms_batch_memory;	/* kB of staged rows kept in memory before they go to disk */
extern bool wms_force_kept_arguments;	/* developer: every aggregate by its slow twin */
extern bool wms_force_planned_feed;	/* developer: every lower query through the executor */
extern int	wms_due_rows;	/* developer: of a join, how many rows that leave next are remembered; 0: none */
extern bool wms_force_row_feed;	/* developer: rows are fed one by one */
extern bool wms_force_insert_statement; /* developer: rows go into every result by a statement */
extern int	wms_bundle_from;		/* developer: rows are taken apart once for so many streams */
extern int	wms_look_ahead_from;	/* developer: rows wait for memory in a state of so many groups */
extern char *wms_test_point;	/* developer: "point:action", see WMS_POINT */

extern void wms_define_settings(void);

/*
 * A named point between two durable effects.  wmstream.test_point = 'name:action[:stream]' (or a
 * list of such) makes it act: error (ereport ERROR), error/<SQLSTATE>, fatal, crash (kill -9 of ourselves), wait (until
 * the setting changes; interruptible), restart-safe as the setting is re-read by SIGHUP.
 */
#define WMS_POINT(name) \
	do { if (wms_test_point && wms_test_point[0]) wms_point_reached(name); } while (0)
extern void wms_point_reached(const char *name);
/* Name (without schema) of the stream that this process works for at the moment, for points with a stream; NULL: none. */
extern const char *wms_current_stream;

/* ---------------------------------------------------------------- memory: base_memory.c */

/*
 * Worker-process contexts.  worker: until the process ends.  batch: reset after
 * each batch's commit or abort.  A flow's own context hangs below worker.
 */
extern MemoryContext wms_worker_context;
extern MemoryContext wms_batch_context;
extern void wms_memory_init(void);

/* ---------------------------------------------------------------- packed values: base_pack.c */

/* Most keys are a few words long: a call of memcmp costs more than they do. */
static inline bool
wms_bytes_same(const char *a, const char *b, uint32 len)
{
	for (; len >= sizeof(uint64); len -= sizeof(uint64))
	{
		uint64		x,
					y;

		memcpy(&x, a, sizeof(uint64));
		memcpy(&y, b, sizeof(uint64));
		if (x != y)
			return false;
		a += sizeof(uint64);
		b += sizeof(uint64);
	}
	return len == 0 || memcmp(a, b, len) == 0;
}

/*
 * A row of values as bytes that can be compared, copied and stored anywhere:
 * null flags, then the values as a heap tuple's data area lays them out, all
 * padding zero, everything detoasted and flat.  The bytes start MAXALIGNed.
 */
extern void wms_pack(StringInfo into, TupleDesc desc, const Datum *values, const bool *isnull);
/* By-reference results point into packed, which must be MAXALIGNed and outlive them. */
extern void wms_unpack(const char *packed, TupleDesc desc, Datum *values, bool *isnull);

/* ---------------------------------------------------------------- queries over named row sets: base_exec.c */

/* A named row set (an ephemeral named relation) that query trees can read. */
typedef struct WmsRowSet
{
	char	   *name;
	TupleDesc	desc;
	Tuplestorestate *rows;		/* NULL: reads as empty */
	EphemeralNamedRelation enr;
} WmsRowSet;

/* A query tree with its plan, over row sets and ordinary tables. */
typedef struct WmsQuery
{
	Query	   *query;			/* rewritten; kept untouched */
	PlannedStmt *plan;			/* made by wms_query_plan; NULL before */
	QueryEnvironment *env;		/* the row sets by name; shared by the queries of a flow */
} WmsQuery;

/* A range table entry that reads the row set named; desc gives the columns, of them ncolumns are seen by name. */
extern RangeTblEntry *wms_rowset_rte(const char *name, TupleDesc desc, const char *alias);
extern WmsRowSet *wms_rowset_make(QueryEnvironment *env, const char *name, TupleDesc desc);
/*
 * Empties the set; its new tuplestore lives in the current context and, where it spills, under the current
 * resource owner.  wms_rowset_forget is for the end of a batch and for after an error, when the memory of the rows
 * is about to go or has gone: nothing is freed.
 */
extern Tuplestorestate *wms_rowset_begin(WmsRowSet *set);
/* Rows that were collected before the set was made become its own. */
extern void wms_rowset_adopt(WmsRowSet *set, Tuplestorestate *rows);
extern void wms_rowset_forget(WmsRowSet *set);
extern void wms_rowset_end(WmsRowSet *set);	/* frees the rows, and files that they spilled into */

extern WmsQuery *wms_query_make(Query *query, QueryEnvironment *env);
/* From SQL text with row sets visible; one statement; planned by wms_query_plan. */
extern WmsQuery *wms_query_parse(const char *sql, QueryEnvironment *env);
extern void wms_query_plan(WmsQuery *q);
/* Locks what the plan reads or writes; until the end of the transaction. */
extern void wms_query_lock(WmsQuery *q);
/* Relations that the plan depends on. */
extern List *wms_query_relids(WmsQuery *q);
/* Runs the plan under the active snapshot; returns rows processed. dest may be NULL (rows thrown away). */
extern uint64 wms_query_run(WmsQuery *q, DestReceiver *dest);
/*
 * Locks and runs a statement that writes, under a snapshot that is taken between the two: what had locked a table may have written all of
 * its rows anew, and they do not show in older ones.
 */
extern uint64 wms_query_write(WmsQuery *q);
/* A receiver that calls fn for each row; slot valid during the call only. */
typedef void (*WmsRowFn) (TupleTableSlot *slot, void *arg);
extern DestReceiver *wms_dest_call(WmsRowFn fn, void *arg);

/*
 * Watching what plans depend on: stale is set when one of relids changed, or any function, role or membership did.  What changed since a
 * moment before the plan was made counts too: only then is it known what the plan depends on.
 * Memory is the caller's and must outlive the watch.
 */
typedef struct WmsWatch
{
	List	   *relids;
	bool		stale;
	dlist_node	node;			/* private */
} WmsWatch;
extern uint64 wms_watch_moment(void);
extern void wms_watch_start(WmsWatch *watch, uint64 since);
extern void wms_watch_stop(WmsWatch *watch);

/* ---------------------------------------------------------------- transactions that were seen: base_seen.c */

/* As a snapshot, with xids that do not wrap: those before xmax have been seen, but for xip (ascending). */
typedef struct WmsSeen
{
	uint64		xmax;
	uint32		nxip;
	uint64		xip[FLEXIBLE_ARRAY_MEMBER];
} WmsSeen;

#define WmsSeenSize(nxip) (offsetof(WmsSeen, xip) + sizeof(uint64) * (Size) (nxip))

/* All results are palloc'd.  No xip yet, room for so many. */
extern WmsSeen *wms_seen_make(uint64 xmax, uint32 room);
extern WmsSeen *wms_seen_copy(const WmsSeen *seen);
extern bool wms_seen_running(const WmsSeen *seen, uint64 xid);	/* is it one of xip? */
struct SnapshotData;
extern WmsSeen *wms_seen_of_snapshot(struct SnapshotData *snapshot);
/* And the transaction that took the snapshot. */
extern WmsSeen *wms_seen_with_own(const WmsSeen *seen, uint64 own);
extern Datum wms_seen_to_datum(const WmsSeen *seen);	/* a pg_snapshot */
extern WmsSeen *wms_seen_from_datum(Datum snapshot);

#define wms_seen_has(seen, xid) ((xid) < (seen)->xmax && !wms_seen_running(seen, xid))

/* The column of queue tables that holds the transaction of each row. */
#define WMS_QUEUE_COLUMN "wm_xid"
/* Its number; 0: there is none that we made. */
extern AttrNumber wms_queue_column(TupleDesc desc);

/* ---------------------------------------------------------------- progress of a stream: a value that several rooms pass on */

typedef enum WmsCounter
{
	WMS_COUNT_BATCHES,
	WMS_COUNT_INPUT,
	WMS_COUNT_LATE,
	WMS_COUNT_NO_TIME,
	WMS_COUNT_FUTURE,
	WMS_COUNT_BAD_GAP,
	WMS_COUNT_CHANGED,
	WMS_COUNT_ERROR,
	WMS_COUNT_OUTPUT,
	WMS_NCOUNTERS
} WmsCounter;

#define WMS_MAX_SOURCES 16

/* What a stream's last committed batch left: durable with it, in the head of its newest log row. */
typedef struct WmsProgress
{
	XLogRecPtr	position;		/* end LSN of the last source transaction consumed; of queues: all that committed before it was */
	WmsSeen    *seen;			/* position in queue tables; NULL: reads none. Never changed in place; not in figures that are shared */
	WmsTime		watermark;		/* W of the last firing */
	WmsTime		gone_upto;		/* what ends by then has left the top operator for good, whatever the allowed lateness is now */
	TimestampTz fired_at;		/* when the last firing was */
	int32		nsources;
	WmsTime		max_time[WMS_MAX_SOURCES];	/* greatest event time seen, WMS_TIME_MIN before the first row */
	int64		source_rows[WMS_MAX_SOURCES];
	int64		counters[WMS_NCOUNTERS];
	int64		applied;		/* number of the last command applied (registry) */
} WmsProgress;

#endif							/* WMS_BASE_H */
