/*
 * flow_internal.h
 *	  The parts of a running flow, for this room alone.
 *
 * Life of memory.  flow->context: until the flow is built anew (plans, expression
 * states, slots).  flow->batch: one batch (overlay, row sets, states being worked on).
 * flow->row->ecxt_per_tuple_memory: one row.
 *
 * Order of events in a batch: begin; rows are collected into chunks; at the end of
 * a chunk the planned inputs run over it and rows that turned out late are settled; at a
 * firing the operators close what W has passed, in order of their numbers, each
 * filling its row set, and inputs that read these sets run; at the end the sink writes.
 */
#ifndef WMS_FLOW_INTERNAL_H
#define WMS_FLOW_INTERNAL_H

#include "executor/executor.h"
#include "flow/flow.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "portability/instr_time.h"
#include "utils/rangetypes.h"
#include "utils/typcache.h"

/* Rows of source tables in one chunk; a late row is found again by its number. */
#define FLOW_CHUNK_ROWS 8192
#define FLOW_CHUNK_BYTES (16 * 1024 * 1024)

#define FLOW_ROW_DROPPED 0x01	/* late for at least one window */
#define FLOW_ROW_KEPT 0x02		/* on time for at least one window */
#define FLOW_ROW_WAITS 0x04		/* late, unless rows that are still to come in this batch say otherwise */

typedef struct FlowRow
{
	int			source;
	HeapTuple	tuple;			/* in the batch context, or the change's own while it is being fed; NULL unless there is a late table */
	WmsTime		time;			/* event time; WMS_TIME_MIN when it has none */
	uint8		marks;
	bool		retract;		/* to be taken back, */
	bool		paired;			/* and the next row is what it became */
} FlowRow;

/* A row of a former chunk that waits for the end of the batch; by number. */
typedef struct FlowWaiting
{
	int64		ord;
	FlowRow		row;
} FlowWaiting;

typedef struct FlowOp FlowOp;
typedef struct FlowAhead FlowAhead;

/* An input of an operator, or of the result (op NULL). */
typedef struct FlowInput
{
	WmsFlow    *flow;
	WmsInputPlan *plan;
	FlowOp	   *op;
	int			side;			/* of a join: 0 left, 1 right */
	WmsQuery   *query;			/* planned feed; NULL for a direct one */
	bool		reads_in;		/* reads rows of sources */
	bool		reads_op;		/* reads rows of operators: */
	Bitmapset  *ops;			/* these */
	bool		reads_eager;	/* of such as emit with each batch */
	List	   *targets;		/* direct feed: as planned; all Vars are of the source's row set */
	Node	   *quals;
	ExprState  *qual;
	ProjectionInfo *projection;
	ExprContext *row;			/* for both */
} FlowInput;

typedef struct FlowSource
{
	WmsFlow    *flow;
	WmsSourcePlan *plan;
	TupleDesc	table_desc;		/* the table's, with missing values */
	Bitmapset  *readable;		/* columns of it that the owner may read by itself, */
	Bitmapset  *shown;			/* and those that it may of a row that has come through the views below watermark() */
	WmsRowSet  *raw;
	WmsRowSet  *in;
	WmsQuery   *below;			/* NULL: the table itself */
	TupleTableSlot *in_slot;	/* virtual: the row after the watermark, with #ord and #evt */
	ExprState  *time;			/* NULL: no watermark() */
	List	   *direct;			/* FlowInputs fed directly */
	struct FlowVector *vector;	/* flow_vector.c; NULL: row by row */
	bool		buffered;		/* planned inputs read its row set */
	const WmsRowShape *shape;	/* of the last change of this batch: */
	bool		shape_as_is;	/* its rows read as they are: flow_shape.c */
} FlowSource;

/* A transition state on the fast path, as the batch works on it. */
typedef struct FlowState
{
	Datum		value;
	bool		isnull;
	bool		no_value;		/* strict with NULL initial value, and no input yet */
	bool		owned;			/* value was allocated by us: free it when replaced */
	int64		nvalues;		/* where rows are taken back: how many went in.  There the state after the last one counts rows of the group */
} FlowState;

/* Rows by column: column c of the operator's input in row i is values[place[c] + i].  Used by flow_vector.c. */
#define FLOW_VECTOR_ROWS WMS_BUNDLE_ROWS
typedef struct FlowRows
{
	const Datum *values;
	const bool *isnull;
	const int  *place;
	int			n;
	const uint16 *rows;			/* which rows, in their order; one that goes into several groups stands there several times */
	FlowState **states;			/* of the group that each goes into; NULL: not known yet */
} FlowRows;

/* Their keys. */
typedef struct FlowKeys
{
	StringInfoData bytes;
	int			at[FLOW_VECTOR_ROWS];	/* where each begins, */
	int			len[FLOW_VECTOR_ROWS];	/* how long it is, */
	uint32		hash[FLOW_VECTOR_ROWS]; /* and its hash */
} FlowKeys;

/* All of them into the states of the operator's i-th aggregate on the fast path. */
typedef void (*FlowAdvanceRows) (FlowOp *op, int i, const FlowRows *rows);

/* An aggregate on the fast path. */
typedef struct FlowAgg
{
	Aggref	   *aggref;
	int			column;			/* 0-based column of the operator's output */
	int			nargs;
	int		   *args;			/* 0-based input columns */
	int			filter;			/* 0-based input column, -1: none */
	bool		counts;			/* count(*) or count(x): done in place */
	FlowAdvanceRows advance_rows;
	FmgrInfo	transfn;
	FmgrInfo	inversefn;		/* where rows are taken back; all functions are those of the moving form then */
	FmgrInfo	finalfn;
	FmgrInfo	serialfn;
	FmgrInfo	deserialfn;
	FmgrInfo	combinefn;		/* fn_oid invalid: none; in the moving form only where states are serialised, for what comes back */
	FunctionCallInfo trans_call;
	FunctionCallInfo inverse_call;
	FunctionCallInfo final_call;
	bool		has_final;
	bool		final_scribbles;
	bool		internal;		/* state type is internal: serialised outside a batch */
	int			nfinal;			/* arguments of the final function */
	Oid			transtype;
	int16		translen;
	bool		transbyval;
	Datum		initial;
	bool		initial_null;
} FlowAgg;

/* A group that was found lately. */
#define FLOW_RECENT 1024
typedef struct FlowRecent
{
	int64		batch;			/* in which that was: flow->batches */
	uint32		hash;
	WmsEntry   *entry;
} FlowRecent;

/* What an operator did in this batch. */
typedef struct FlowCounts
{
	int64		input_rows;
	int64		late_rows;
	int64		output_rows;
	int64		compared_rows;	/* joins: held rows that were looked at */
	double		seconds;		/* measured in whole */
	int64		fed_rows;		/* fed one by one, */
	int64		timed_rows;		/* of these measured, */
	double		timed_seconds;	/* which took so long */
} FlowCounts;

struct FlowOp
{
	WmsFlow    *flow;
	WmsOpPlan  *plan;
	FlowInput  *inputs[2];
	WmsRowSet  *out;
	bool		eager;			/* emits with each batch, not only at firings: DEDUP, JOIN */
	TupleTableSlot *out_row;	/* a row of out in the making */
	List	   *direct;			/* FlowInputs that have it at once */
	bool		out_read;		/* some query reads out */
	bool		sessions;		/* AGGREGATE over session windows */
	bool		panes;			/* sliding windows share panes */
	bool		retracts;		/* rows may be taken back: flow_change.c */
	WmsWindowSpec pane;			/* these, as tumbling windows */
	int			timer_op;		/* number in the state room of what wakes its entries up */

	/* keys without the window: the bucket says which window */
	int			nkeys;
	int		   *key_columns;	/* 0-based input columns */
	TupleDesc	key_desc;
	FmgrInfo   *key_hash;		/* fn_oid invalid: type cannot be hashed */
	FmgrInfo   *key_eq;
	Datum	   *key_values;		/* of one row, before they are packed, or of a group that is shown */
	bool	   *key_isnull;
	StringInfoData key;
	int		   *key_offsets;	/* where plain values lie in it, */
	int			key_size;		/* which together are so long; 0: rows differ */
	bool		hash_image;		/* bytes decide, and the hash is theirs */
	TypeCacheEntry *range;		/* of the window key; NULL: none, or a raw time */
	RangeType  *range_shown;	/* the last window that was shown, as a range; NULL: none yet */
	WmsWindow	window_shown;

	/* aggregates */
	int			nfast;
	FlowAgg    *fast;
	TupleDesc	state_desc;
	FlowState  *states;			/* room for states of the batch, */
	int			states_left;	/* of so many groups */
	bool		has_states;		/* an entry has a value: theirs, or counts of its rows */
	bool		has_kept;
	int			first_kept;		/* 0-based first input column that kept rows hold, */
	int			nkept_columns;	/* and how many they hold */
	TupleDesc	kept_row_desc;
	Datum	   *kept_values;	/* of one row, before they are packed */
	bool	   *kept_isnull;
	WmsRowSet  *kept;
	WmsQuery   *kept_query;
	StringInfoData kept_row;

	/* the firing that is going on */
	Tuplestorestate *emitting;	/* rows without their kept aggregates, when has_kept */
	int64		emitted;
	WmsRowSet  *retired;		/* rows that were shown and are replaced (sessions) or gone (emptied groups); NULL: none can be */
	List	   *survivors;		/* kept rows of the group that is being emitted, without those taken back: KeptRow * */
	List	   *touched;		/* sessions: entries of the chunk, to be settled at its end; */
	List	   *waiting;		/* those with sessions that look late, to be settled at the batch's */
	int64		timer_slice;	/* sessions: width of a bucket of timers */
	WmsTime		next_end;		/* sessions: after the batch, the end that is next; WMS_TIME_MAX: none */
	WmsTime		last_end;		/* and the last one, for close_when_idle; WMS_TIME_MIN: none */
	WmsEntry   *current;		/* sessions: the key that is being emitted */
	WmsTime		kept_from;		/* sessions: which kept rows of the key belong to the session being emitted */
	WmsTime		kept_to;
	struct FlowJoin *join;		/* joins: flow_join.c */

	WmsWindow	last_window;	/* first one of the last row's time, or its pane; empty: none yet */
	WmsWindow	former_window;	/* where windows tumble, the one before that */
	WmsTime		last_pane_end;	/* where the last window with that pane ends */
	FlowRecent	recent[FLOW_RECENT];	/* by hash */
	FlowRow    *fed_row;		/* the source row that is being fed directly; NULL: the input's rows tell theirs */
	FlowAhead  *ahead;			/* flow_ahead.c; NULL: rows never wait */
	bool		looks_ahead;	/* they do in this batch */
	WmsTime		shown_upto;		/* the result has groups of windows that end by then: those touched in this batch are to be shown again */
	uint8		row_marks;		/* of the row that is being worked on */
	FlowCounts	counts;
};

struct WmsFlow
{
	MemoryContext context;
	const WmsStreamDef *def;	/* a copy of our own */
	WmsStreamPlan *plan;
	QueryEnvironment *env;
	WmsWatch	watch;

	FlowSource *sources;
	FlowOp	   *ops;
	FlowInput  *final;
	bool		buffered;		/* some source is: rows wait for the end of the chunk */
	bool		has_vectors;	/* all sources have */
	WmsSink    *sink;
	WmsLateSink *late;			/* NULL: no late table */
	WmsQuery   *shown;			/* keys of touched groups */
	WmsStateOps *state_ops;
	bool		writes_elsewhere;	/* by triggers or rules of what it writes into */

	ExprContext *row;			/* for expressions over one row */
	AggState   *agg;			/* stands in for the executor's node where aggregate functions ask for it */
	ExprContext *agg_memory;	/* states of the batch */
	ExprContext *pane_memory;	/* states of one window that is being put together from panes */
	ExprContext *emit_memory;	/* states of one group that is only being shown */
	MemoryContext revive_memory; /* one state, while it comes back */

	/* the batch */
	WmsStore   *store;
	WmsProgress *progress;
	MemoryContext batch;
	int64		batches;		/* begun so far, this one among them */
	TimestampTz started_at;
	FlowRow    *rows;
	int			nrows;
	Size		row_bytes;
	int64		first_ord;		/* number of rows[0] */
	FlowWaiting *waiting;		/* in the batch context; NULL until there is one */
	int64		nwaiting;
	int64		waiting_room;
	Size		waiting_bytes;
	int64		fed;			/* changes of the batch so far */
	int64		many_upto;		/* the first so many changes go many at a time, in vectors or chunks */
	bool		many;			/* these are at work: an error is of some row of theirs */
	List	   *skips;			/* WmsSkip *: rows that failed before, in their order */
	int			next_skip;		/* of these, the first that is still to come */
	bool		trying;			/* rows are computed and nothing is done with them */
	bool		single;			/* a chunk is one row, but for the first many_upto changes */
	WmsTime		old_watermark;	/* W of the last firing: late tests */
	Tuplestorestate *result;	/* finished rows of this batch, the sink's */
	int64		nresult;
	bool		fired;
	bool		source_had_rows[WMS_MAX_SOURCES];
	TimestampTz source_seen_at[WMS_MAX_SOURCES];
	bool		source_idle[WMS_MAX_SOURCES];
	int64		sink_us;
};

/* flow_source.c */
extern void wms_flow_source_prepare(WmsFlow *flow, FlowSource *source);
extern void wms_flow_chunk_end(WmsFlow *flow);
/* Of a row of this batch by its number, be it settled already (then nothing happens) or not. */
extern void wms_flow_mark_ord(WmsFlow *flow, int64 ord, uint8 mark);
/* No more rows come that could save one that looks late. */
extern void wms_flow_settle_waiting(WmsFlow *flow);
extern int64 wms_flow_take_below(FlowSource *source, TupleTableSlot *from);
extern void wms_flow_run_input(FlowInput *input);
extern void wms_flow_put_out(FlowOp *op);
extern void wms_flow_put_aside(WmsFlow *flow, FlowRow *row, WmsReason reason, const char *error);

/* flow_vector.c */
typedef struct FlowVector FlowVector;
extern void wms_flow_vector_prepare(WmsFlow *flow);
extern void wms_flow_vector_begin(WmsFlow *flow);
extern void wms_flow_vector_add(FlowSource *source, const WmsChange *change);
extern void wms_flow_vector_bundle(FlowSource *source, WmsBatch *batch, WmsBundle *bundle);
extern void wms_flow_vector_end(WmsFlow *flow);

/* flow_shape.c */
extern bool wms_flow_same_shape(FlowSource *source, const WmsRowShape *shape);
extern HeapTuple wms_flow_fit_row(FlowSource *source, const WmsRowShape *shape, HeapTuple row, bool to_use);

/* flow_group.c */
extern void wms_flow_group_prepare(WmsFlow *flow, FlowOp *op);
extern void wms_flow_op_row(FlowOp *op, int side, TupleTableSlot *slot);
extern WmsTime wms_flow_op_watermark(const FlowOp *op, WmsTime w);
extern void wms_flow_note_touch(FlowOp *op, WmsEntry *entry);

/* flow_key.c */
extern void wms_flow_key_prepare(FlowOp *op);
extern uint32 wms_flow_pack_key(FlowOp *op, TupleTableSlot *slot);
extern int	wms_flow_pack_rows(FlowOp *op, const FlowRows *rows, FlowKeys *keys, int bytes);

extern bool wms_flow_ready_window(FlowOp *op, Datum value, bool isnull, WmsWindow *window);
extern void wms_flow_mark_row(FlowOp *op, int side, TupleTableSlot *slot, uint8 mark);
extern bool wms_flow_gone(FlowOp *op, WmsTime end);

extern bool wms_flow_came_late(FlowOp *op, WmsTime end);
extern void wms_flow_keep_values(FlowOp *op, WmsEntry *entry, const Datum *values, const bool *isnull, bool retract);
extern void wms_flow_keep_row(FlowOp *op, WmsEntry *entry, TupleTableSlot *slot, bool retract);
extern bool wms_flow_first_window(FlowOp *op, WmsTime time, WmsWindow *window);
extern bool wms_flow_next_window(FlowOp *op, WmsTime time, WmsWindow *window);
extern WmsEntry *wms_flow_group(FlowOp *op, const WmsWindow *window, uint32 hash, const char *key, uint32 key_len);
extern void wms_flow_touch_group(FlowOp *op, const WmsWindow *window, uint32 hash, StringInfo key, TupleTableSlot *slot);

/* flow_ahead.c */
extern void wms_flow_ahead_prepare(FlowOp *op);
extern void wms_flow_ahead_begin(FlowOp *op);
extern void wms_flow_ahead_again(FlowOp *op);
extern void wms_flow_ahead_add(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot);
extern void wms_flow_ahead_drain(FlowOp *op);
extern bool wms_flow_ahead_waits(const WmsFlow *flow);

/* flow_change.c: rows that were changed or deleted */
typedef void (*WmsFlowKept) (WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg);	/* where an entry's kept rows come from */
extern void wms_flow_change_prepare(WmsFlow *flow, FlowOp *op);
extern WMS_NORETURN void wms_flow_refuse_change(FlowSource *source, const WmsChange *change);
extern bool wms_flow_same_for_us(FlowSource *source, const WmsChange *change, HeapTuple old);
extern void wms_flow_check_change(FlowSource *source, const WmsChange *change);
extern void wms_flow_take_back(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot);
extern void wms_flow_truncate(WmsFlow *flow, FlowSource *source, const WmsChange *change);
extern bool wms_flow_has_rows(FlowOp *op, WmsEntry *entry, WmsFlowKept kept);
extern void wms_flow_each_survivor(FlowOp *op, WmsKeptFn fn, void *arg);
extern void wms_flow_retire(FlowOp *op, WmsEntry *entry);

/* flow_session.c: aggregates over session windows */
extern void wms_flow_session_prepare(WmsFlow *flow, FlowOp *op);
extern void wms_flow_session_encode(FlowOp *op, WmsEntry *entry, StringInfo value);
extern void wms_flow_session_row(FlowOp *op, TupleTableSlot *slot);
extern void wms_flow_session_touch(FlowOp *op, uint32 hash, StringInfo key, TupleTableSlot *slot);
extern void wms_flow_session_settle(FlowOp *op);
extern void wms_flow_session_drop_late(FlowOp *op);
extern void wms_flow_session_fire(FlowOp *op, WmsTime now, WmsOutputMode mode);
extern void wms_flow_session_encode_timer(WmsEntry *entry, StringInfo value, void *arg);
extern void wms_flow_session_note_ends(FlowOp *op, WmsTime w);
extern void wms_flow_session_read(FlowOp *op, WmsEntry *entry);

/* flow_pane.c: sliding windows that share work */
extern void wms_flow_pane_prepare(WmsFlow *flow, FlowOp *op);
extern void wms_flow_pane_bucket(FlowOp *op, WmsTime time, WmsWindow *bucket);
extern WmsTime wms_flow_pane_next_end(FlowOp *op, WmsTime pane_start, WmsTime w);
extern void wms_flow_pane_emit(FlowOp *op, WmsTime old, WmsTime now);
extern void wms_flow_pane_emit_again(FlowOp *op, WmsTime old);
extern bool wms_flow_pane_read(FlowOp *op, const WmsReading *reading, WmsTime w);

/* flow_dedup.c */
extern void wms_flow_dedup_prepare(WmsFlow *flow, FlowOp *op);
extern void wms_flow_dedup_row(FlowOp *op, TupleTableSlot *slot);
extern void wms_flow_dedup_touch(FlowOp *op, const WmsWindow *window, uint32 hash, StringInfo key, TupleTableSlot *slot);
extern void wms_flow_dedup_fire(FlowOp *op, WmsTime now);

/* flow_due.c: which rows of a join leave next */
typedef struct FlowDue FlowDue;
typedef struct FlowDueRow
{
	WmsTime		at;
	int64		number;			/* among the entry's kept rows */
	uint32		hash;
	uint32		key_len;
	union
	{
		char		small[16];
		char	   *large;
	}			key;
} FlowDueRow;
extern FlowDue *wms_flow_due_make(MemoryContext parent);
extern void wms_flow_due_begin(FlowDue *due, uint64 version);
extern void wms_flow_due_gather(FlowDue *due, const WmsBucketKey *bucket);
extern void wms_flow_due_gathered(FlowDue *due);
extern void wms_flow_due_add(FlowDue *due, const WmsBucketKey *bucket, WmsTime at, int64 number, uint32 hash, const char *key, uint32 key_len);
extern bool wms_flow_due_covers(const FlowDue *due, const WmsBucketKey *bucket, WmsTime now);
extern int64 wms_flow_due_take(FlowDue *due, WmsTime now, FlowDueRow **rows);
extern const char *wms_flow_due_key(const FlowDueRow *row);
extern bool wms_flow_due_together(const FlowDueRow *x, const FlowDueRow *y);

/* flow_join.c */
extern void wms_flow_join_prepare(WmsFlow *flow, FlowOp *op);
extern void wms_flow_join_begin(FlowOp *op);
extern void wms_flow_join_row(FlowOp *op, int side, TupleTableSlot *slot);
extern void wms_flow_join_fire(FlowOp *op, WmsTime now);
extern WmsTime wms_flow_join_watermark(FlowOp *op, WmsTime w);
extern void wms_flow_join_end(FlowOp *op);

/* flow_transition.c */
extern void wms_flow_states_combine(FlowOp *op, FlowState *into, FlowState *from);
extern void wms_flow_fast_prepare(FlowOp *op, FlowAgg *agg, WmsAggPlan *plan, int column);
extern FlowState *wms_flow_states_new(FlowOp *op);
extern FlowState *wms_flow_states_load(FlowOp *op, const char *value, uint32 len);
extern void wms_flow_states_retract(FlowOp *op, FlowState *states, TupleTableSlot *slot);
extern int64 wms_flow_states_rows(FlowOp *op, const WmsEntry *entry);
extern void wms_flow_states_advance(FlowOp *op, FlowState *states, TupleTableSlot *slot);
extern void wms_flow_states_advance_rows(FlowOp *op, const FlowRows *rows);
extern void wms_flow_states_encode(FlowOp *op, FlowState *states, StringInfo value);
extern void wms_flow_states_finish(FlowOp *op, FlowState *states, Datum *values, bool *isnull);
extern TupleDesc wms_flow_states_desc(FlowOp *op);

/* flow_emit.c */
extern void wms_flow_emit_begin(FlowOp *op);
extern bool wms_flow_emit_entry(FlowOp *op, WmsEntry *entry, WmsFlowKept kept);
/* One session of a key: entry's bucket says its window, its work the states. */
extern void wms_flow_put_values(FlowOp *op, const WmsBucketKey *window, const Datum *values, const bool *isnull);
extern void wms_flow_emit_keys(FlowOp *op, WmsEntry *entry, Datum *values, bool *isnull);
extern void wms_flow_emit_end(FlowOp *op);
extern void wms_flow_emit_global(FlowOp *op);
extern void wms_flow_kept_of_store(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg);

/* flow_fire.c */
extern bool wms_flow_replaces(const WmsFlow *flow);
extern void wms_flow_show_instead(FlowOp *op, WmsRowSet *set);

/* flow_figures.c */
#define FLOW_TIMED_ROWS 64		/* of rows that are fed one by one, one in so many is measured */
extern void wms_flow_clock_start(instr_time *clock);
extern double wms_flow_clock_seconds(const instr_time *clock);
extern void wms_flow_count_row(FlowOp *op);
extern double wms_flow_fed_share(const WmsFlow *flow, double seconds);
extern void wms_flow_op_figures(FlowOp *op, double fed_share, WmsOpFigures *figures);

#endif							/* WMS_FLOW_INTERNAL_H */
