/*
 * analyze.h
 *	  From the query tree of a definition to the plan of a stream, or a refusal.
 *
 * analyze_query.c    rewriting, the walk over query levels, cutting out operators
 * analyze_tree.c     query trees: finding, replacing and moving parts of them
 * analyze_source.c   stream sources, watermark() calls, permissions
 * analyze_time.c     where an expression's event time or window comes from
 * analyze_group.c    a GROUP BY level as an operator
 * analyze_session.c  what is special about session windows
 * analyze_dedup.c    DISTINCT as an operator
 * analyze_join_tree.c, analyze_join.c, analyze_join_bound.c  joins of streams: which, as operators, what bounds their state
 * analyze_retract.c  what on_change => 'retract' asks of a definition
 * analyze_output.c   what the result shows, its key, rules of the output modes
 * analyze_refuse.c   one short function per reason to say no
 * analyze_place.c    where in the definition's text its parts stand
 * analyze_explain.c  the plan as text
 * analyze_fingerprint.c  what state that was written under a plan depends on
 *
 * How a query is cut.  The rewritten tree is walked from the inside out.  Each place
 * where wmstream must hold state (or judge times) is cut out and replaced, in place, by a
 * range table entry over a named row set that the operator fills; what lies below the
 * cut becomes the operator's input query, what lies above goes on reading the row set.
 * So the pieces are ordinary query trees that Postgres plans and runs:
 *
 *   source rows -> [below watermark()] -> watermark -> [lower query] -> operator -> [lower query] -> ... -> [final query] -> result
 *
 * Row sets are named wms_raw_<source>, wms_in_<source> (rows that passed the watermark), wms_op_<operator>, wms_kept_<operator>.
 */
#ifndef WMS_ANALYZE_H
#define WMS_ANALYZE_H

#include "base/base.h"
#include "nodes/primnodes.h"
#include "registry/registry.h"

/*
 * A stream source: a range table entry that a watermark() names (or the only table).
 *
 * wms_raw_<i>:  the table's columns by attribute number (dropped ones too), then "#ord" int8.
 * wms_in_<i>:   the columns of the raw set, or of below without its "#ord", then "#ord" int8, "#evt" timestamptz (the event
 *               time; of timestamp columns the same int64).  #ord numbers the rows of a batch over all sources of the stream.
 */
typedef struct WmsSourcePlan
{
	int			index;
	Oid			relid;
	bool		queue;			/* a queue table; then all sources of the stream are */
	TupleDesc	raw_desc;
	Query	   *below;			/* subquery under the watermark: reads wms_raw_<i>, last column #ord; NULL: the table itself */
	TupleDesc	in_desc;
	Node	   *event_time;		/* over Vars (varno 1) of below's or the raw columns; NULL: no watermark() at all */
	Oid			time_type;		/* TIMESTAMPTZOID or TIMESTAMPOID */
	bool		bounded;		/* has a delay that is not NULL */
	int64		delay_us;
	List	   *columns_used;	/* attribute numbers of relid that the definition reads */
	List	   *columns_passed; /* those that it has out of below as they are, and names itself: views may have been made to show them */
} WmsSourcePlan;

typedef enum WmsOpKind
{
	WMS_OP_AGGREGATE,
	WMS_OP_COLLECT,				/* raw rows held until their window closes */
	WMS_OP_DEDUP,
	WMS_OP_JOIN
} WmsOpKind;

/* When the state of a deduplication leaves. */
typedef enum WmsExpires
{
	WMS_EXPIRES_KEY,			/* the event time or its window is a key: with it (window_key, window, time_column) */
	WMS_EXPIRES_WITHIN,			/* the first row's event time + expires_us */
	WMS_EXPIRES_NEVER
} WmsExpires;

/* What bounds the state of a join. */
typedef enum WmsBound
{
	WMS_BOUND_NONE,				/* never leaves */
	WMS_BOUND_SAME,				/* equality of event times or of windows: bound_column of each side is equal in a match */
	WMS_BOUND_RANGE				/* min_us <= right event time - left event time <= max_us, either end may be missing */
} WmsBound;

typedef struct WmsJoinSide
{
	TupleDesc	input_desc;		/* columns of its input: keys 1..nkeys, then any others */
	int			out_first;		/* its columns out_first .. out_first + out_count - 1 (1-based) go into the result */
	int			out_count;
	int			time_column;	/* input column (1-based) that the late test looks at: a raw time, or the window with windows that are
								 * equal; 0: never late */
	int			event_column;	/* input column with the raw event time for WMS_BOUND_RANGE; 0 otherwise */
	int			bound_column;	/* input column for WMS_BOUND_SAME: a raw time or a window; 0 otherwise */
	int			own_column;		/* boolean input column: the conditions on this side alone; 0: there are none */
	bool		bounded;		/* its rows have a watermark */
	char	   *name;			/* for explain */
	char	   *own_text;		/* NULL: there are none */
} WmsJoinSide;

/* Only joins: key columns have the same types on both sides and are compared by key_eq. */
typedef struct WmsJoinPlan
{
	JoinType	type;			/* JOIN_INNER, LEFT, RIGHT, FULL, SEMI, ANTI */
	WmsJoinSide side[2];
	WmsBound	bound;
	bool		has_min;
	bool		has_max;
	int64		min_us;			/* strict bounds are written as 1 us more or less */
	int64		max_us;
	Node	   *condition;		/* all other conditions: Vars with varno OUTER_VAR are columns of the left input, INNER_VAR of the right one; never gives NULL. NULL: none */
	char	   *condition_text; /* the same as the definition has it, for explain; NULL: none */
} WmsJoinPlan;

typedef struct WmsAggPlan
{
	Aggref	   *aggref;			/* args, filter and direct arguments are Vars (varno 1) of the lower query's columns */
	bool		kept;			/* slow path: arguments kept, run at emission */
	const char *kept_because;	/* for explain; NULL on the fast path */
	bool		inverse;		/* takes rows back by its inverse transition function: the state is that of its moving form */
	char	   *text;			/* as the definition has it, for explain */
} WmsAggPlan;

/* An input of an operator: a query, or columns projected directly from one row set. */
typedef struct WmsInputPlan
{
	Query	   *query;			/* columns as the operator says; reads row sets and static tables */
	bool		direct;			/* only filter and projection of one row set: can run without the executor */
	const char *direct_set;		/* its name */
	int			ord_column;		/* resno of #ord in the output; 0: rows do not stand for source rows */
	List	   *sources;		/* indexes of the sources whose rows flow in (through operators too) */
	bool		reads_static;	/* reads ordinary tables */
	List	   *static_relids;
} WmsInputPlan;

typedef struct WmsOpPlan
{
	WmsOpKind	kind;
	int			id;				/* also the number of its row set and of its state; inner operators have smaller ones */
	WmsInputPlan *input;
	WmsInputPlan *input2;		/* joins */
	TupleDesc	input_desc;		/* columns of input->query, junk included */

	/* group: AGGREGATE, COLLECT, DEDUP.  Keys are columns 1..nkeys of the input. */
	int			nkeys;
	TargetEntry **keys;			/* the expressions as in the definition, for explain */
	char	  **key_texts;		/* the same as text */
	Oid		   *key_eq;			/* equality operators */
	int			window_key;		/* 0-based index of the key that closes the group; -1: none */
	WmsWindowSpec window;		/* of that key */
	int			time_column;	/* input column (1-based) with the raw event time from which the operator makes the windows itself;
								 * 0: the window stands in the key column ready-made (a range, or a raw time) */
	bool		bounded;		/* a watermark closes the groups */
	int64		lag_us;			/* the watermark at the operator's input is W - lag_us */
	bool		global;			/* no GROUP BY at all: one group, also of no rows (complete mode) */
	int			naggs;
	WmsAggPlan *aggs;
	int			gap_column;		/* session windows: input column (1-based) with the row's gap, an interval; 0: window.size */
	bool		retracts;		/* rows may be taken back from its groups */
	WmsExpires	expires;		/* DEDUP */
	int64		expires_us;
	WmsJoinPlan *join;			/* JOIN */

	/*
	 * What the operator gives: for AGGREGATE wms_op_<id>: keys 1..nkeys, then the aggregates (those that carry a column last); for COLLECT and DEDUP the input's columns without
	 * #ord; for JOIN the left side's columns that go out, then the right side's. kept_query: for aggregates with kept arguments: reads wms_kept_<id> (columns "#group" int8, "#row" int8, then the input
	 * columns nkeys+1..), gives #group and one column per kept aggregate, in order of #group.  NULL when there is none.
	 */
	TupleDesc	out_desc;
	Query	   *kept_query;
	TupleDesc	kept_desc;
} WmsOpPlan;

typedef struct WmsStreamPlan
{
	int			nsources;
	WmsSourcePlan *sources;
	int			nops;
	WmsOpPlan  *ops;			/* in the order in which they must run */
	WmsInputPlan *final;		/* gives the result's columns (junk last) */
	TupleDesc	result_desc;	/* columns of the SELECT list */
	WmsOutputMode mode;
	bool		queues;			/* the sources are queue tables */
	bool		processing_time;	/* windows of now() */
	bool		retract;		/* changed rows are taken back */
	int			top_op;			/* operator whose groups the result shows; -1: none */
	List	   *key_columns;	/* result columns that make the key; NIL: keys not all shown, or none */
	bool		key_not_null;
	WmsShownTime shown_time;	/* how the result tells the time of its rows */
	Query	   *shown_query;	/* from wms_op_<top>: only the key columns in result order, without HAVING: rows to take away in update mode.
								 * NULL when not all keys are shown */
	List	   *notices;		/* List of char *: told at creation */
	uint64		fingerprint;	/* of everything that state depends on */
	uint64		definition;		/* of the definition as it was written; part of the fingerprint */
	List	   *relids;			/* every table, view read: what invalidates the plan */
	List	   *relid_places;	/* int: where the definition's text names each of the first of them; -1: unknown */
	int		   *places;			/* where each result column stands there (1-based); 0: the query */
} WmsStreamPlan;

typedef struct WmsOptions		/* what analysis must know beyond the query */
{
	WmsOutputMode mode;
	int64		lateness_us;
	bool		refines;		/* rows that were written may change in place, by this lateness or a former one */
	int64		delay_us;		/* altered delay; -1: as written */
	bool		force_kept;
	bool		retract;		/* on_change */
	Oid			result;			/* InvalidOid before creation */
	const char *text;			/* of the definition: refusals point into it; NULL: it comes from its view, and they point nowhere */
} WmsOptions;

/*
 * Analyses the stored view, or an analysed (not yet rewritten) query.  The plan lives in the current context.  Returns NULL and sets
 * *refusal when the definition must be refused.  ERRORs only for what Postgres itself raises: the lack of a privilege among it, of the role that
 * we are, which is to be the stream's owner.  Locks the tables it reads.
 */
extern WmsStreamPlan *wms_analyze_view(Oid view, const WmsOptions *options, WmsRefusal **refusal);
extern WmsStreamPlan *wms_analyze_query(Query *query, const WmsOptions *options, WmsRefusal **refusal);

/* A stream source of the plan that has rows now; InvalidOid: none has.  Needs an active snapshot. */
extern Oid	wms_source_with_rows(const WmsStreamPlan *plan);

/* Lines of text (List of char *). */
extern List *wms_explain_plan(const WmsStreamPlan *plan);

#endif							/* WMS_ANALYZE_H */
