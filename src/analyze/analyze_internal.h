/*
 * analyze_internal.h
 *	  What the files of this room share.
 *
 * A *level* is one Query with its own FROM.  A level is *streamed* when rows of a
 * source, or of an operator, come in through its FROM.  A *set* is a named row
 * set and what we know of its columns.
 *
 * Refusals: the first reason found is put into Analysis.refusal, and everybody
 * returns; functions that may find one are void and their callers look.
 *
 * All trees are our own copies and are changed in place.
 */
#ifndef WMS_ANALYZE_INTERNAL_H
#define WMS_ANALYZE_INTERNAL_H

#include "analyze/analyze.h"
#include "catalog/pg_aggregate.h"
#include "nodes/bitmapset.h"

/* row_format of the row of its columns that stands for a whole row; the ROW(...) of a user never has it. */
#define AN_WHOLE_ROW COERCE_SQL_SYNTAX
#define AN_ORD "#ord"
#define AN_EVT "#evt"
#define AN_GROUP "#group"
#define AN_ROW "#row"

typedef enum AnTimeKind
{
	AN_NONE,
	AN_EVENT,					/* a time of rows */
	AN_WINDOW,					/* a range over it */
	AN_LOWER,					/* bounds of such a range */
	AN_UPPER
} AnTimeKind;

/* Where the time in an expression comes from. */
typedef struct AnTime
{
	AnTimeKind	kind;
	WmsWindowSpec window;		/* WINDOW, LOWER, UPPER */
	uint64		below;			/* stands for the windows that the window lies over, in their order; 0: it is made of a time */
	int			nth;			/* of several windows of one shape over one time, which a row combines with each other where a time has several */
	int64		reach_us;		/* how far before the window's end a time of the row may lie from which it was made, over these */
	Oid			type;			/* of the time: timestamptz or timestamp */
	bool		watermarked;	/* of a watermark() or of the clock; false: a window of any other column */
	bool		bounded;		/* and W moves over it */
	bool		processing;		/* the clock */
	bool		finished;		/* given by an operator at the moment when W passed it */
	bool		nullable;		/* came through the side of an outer join that may be filled with NULLs */
	bool		optional;		/* a window that an outer join gives on a condition: rows with a time may be without it */
	int64		lag_us;			/* rows may come as long as it is more than this behind W */
	Bitmapset  *sources;
} AnTime;

typedef struct AnSet
{
	char	   *name;
	TupleDesc	desc;
	int			op;				/* the operator that fills it, -1: a source */
	bool		raw;			/* rows before the watermark */
	int			source;			/* index, when op is -1 */
	List	   *sources;		/* all whose rows flow in */
	AttrNumber	ord;			/* column #ord, 0: none */
	AttrNumber	evt;			/* column that tells the rows' event time: #evt, of operators a time or a window; 0: none */
	AttrNumber	evt2;			/* where that may be NULL: the one to take then */
	int64		lag_us;			/* its rows' watermark is W - lag_us */
	int64		spread_us;		/* how far different event times of one row may lie apart */
	AnTime	   *times;			/* of each column */
	bool	   *not_null;
	int			location;		/* where the source or the operator stands in the definition's text, -1: unknown */
} AnSet;

typedef struct Analysis
{
	const WmsOptions *options;
	WmsRefusal *refusal;		/* the first reason to say no */
	bool		has_watermark;	/* some watermark() was found */
	uint64		definition;		/* hash of the query as it was given */
	bool		processing_time;
	List	   *sources;		/* WmsSourcePlan * */
	List	   *ops;			/* WmsOpPlan *, innermost first */
	List	   *sets;			/* AnSet * */
	List	   *notices;
	List	   *relids;
	List	   *relid_places;	/* int: where the first of these were named */
	List	   *column_places;	/* int: where the result's columns stand */
	List	   *static_told;	/* relids for which the NOTICE is there */
	List	   *static_places;	/* int: where each of these was read first */
	List	   *window_names;	/* AnSubst *: window calls that stood in FROM -> their names there */
	List	   *places;			/* AnPlace *, of analyze_place.c */
	int			place;			/* where in the text the level stands that is being looked at; -1: there is no text */
} Analysis;

/* An equality that rows of a join are found by: both expressions have the same type and collation. */
typedef struct AnJoinKey
{
	Node	   *expr[2];
	Oid			eq;
	Node	   *condition;		/* as it was written */
} AnJoinKey;

/* What the conditions between the two sides of a join say. */
typedef struct AnJoinBound
{
	WmsBound	bound;
	Node	   *time[2];		/* SAME: what is equal, a raw time or a window; RANGE: the raw times */
	AnTime		about[2];
	bool		has_min;
	bool		has_max;
	int64		min_us;
	int64		max_us;
	bool		equality;		/* there is one, of keys or of times */
	List	   *keys;			/* AnJoinKey * */
	List	   *rest;			/* conditions that are none of these */
} AnJoinBound;

/* from: an expression of a level, to: what stands for it there. */
typedef struct AnSubst
{
	Node	   *from;
	Node	   *to;
} AnSubst;

/* analyze_query.c */
extern List *wms_an_static_relids(Query *query);
extern WmsInputPlan *wms_an_input(Analysis *a, Query *query, int ord_column);
extern void wms_an_notice(Analysis *a, const char *format,...) pg_attribute_printf(2, 3);
extern AnSet *wms_an_set(Analysis *a, const char *name);
extern AnSet *wms_an_add_set(Analysis *a, char *name, TupleDesc desc);
extern int64 wms_an_lag(Analysis *a, const Query *query);
extern int64 wms_an_spread(Analysis *a, const Query *query);
extern bool wms_an_rows_bounded(Analysis *a, const Query *query, int64 *lag_us, int64 *delay_us);
extern void wms_an_cut_subqueries(Analysis *a, Query *query);
extern void wms_an_write_out_windows(Analysis *a, Query *query);
extern void wms_an_check_sublinks(Analysis *a, Query *query);

/* analyze_place.c */
extern void wms_an_mark_own(Query *query);
extern bool wms_an_is_own(const Query *query);
extern void wms_an_mark_places(Analysis *a, Query *query, const char *text);
extern void wms_an_note_place(Analysis *a, const void *node, int location);
extern bool wms_an_is_noted(const Analysis *a, const void *node);
extern void wms_an_copy_places(Analysis *a, Query *from, Query *to);
extern int	wms_an_place(Analysis *a, const void *where);
extern int	wms_an_place_of_set(Analysis *a, const char *kind, int number);
extern int	wms_an_enter(Analysis *a, const Query *level);
extern void wms_an_forget_places(WmsStreamPlan *plan);

/* analyze_tree.c */
extern void wms_an_prepare(Analysis *a, Query *query);
extern void wms_an_subst(Query *query, List *substs);
extern Node *wms_an_subst_node(Node *node, List *substs);
extern void wms_an_add_subst(List **substs, Node *from, Node *to);
extern List *wms_an_level_vars(Node *node, int except_varno);
extern Bitmapset *wms_an_used_rtes(const Query *query);
extern Bitmapset *wms_an_rtes_in(Node *jointree);
extern List *wms_an_rte_parts(const RangeTblEntry *rte);
extern void wms_an_open_from(FromExpr *from);
extern Node *wms_an_refers_outside(Query *query);
extern bool wms_an_streamed(Analysis *a, const Query *query);
extern List *wms_an_streamed_rtes(Analysis *a, const Query *query);
extern bool wms_an_has_raw_rows(Analysis *a, const Query *query);
extern List *wms_an_sets_below(Analysis *a, const Query *query);
extern Node *wms_an_carried(Analysis *a, Query *query, const char *name);
extern AttrNumber wms_an_carry(Analysis *a, Query *query, const char *name);
extern bool wms_an_is_true(Node *quals);
extern bool wms_an_remove_rte(Query *query, int rtindex, bool really);
extern void wms_an_pull_up(Analysis *a, Query *query);
extern void wms_an_void_rte(RangeTblEntry *rte);
extern void wms_an_only_set(Query *query, RangeTblEntry *rte, int rtindex);
extern void wms_an_drop_junk(Query *query);
extern TupleDesc wms_an_desc(List *tlist, bool junk_too);
extern TargetEntry *wms_an_add_column(List **tlist, Node *expr, const char *name);
extern void wms_an_whole_rows(Query *query, int rtindex, TupleDesc desc);
extern Node *wms_an_whole_rows_in(Node *expr, int rtindex, TupleDesc desc);
extern void wms_an_subquery_rows(Analysis *a, Query *query);
extern List *wms_an_leaves(const Query *query);
extern Query *wms_an_select_from(List *tlist, RangeTblEntry *rte);

/* analyze_source.c */
extern void wms_an_find_sources(Analysis *a, Query *query);
extern void wms_an_static_tables(Analysis *a, Query *query);

/* analyze_time.c */
extern AnTime wms_an_time(Analysis *a, Query *query, Node *expr);
extern WmsFunction wms_an_call(Node *expr);
extern bool wms_an_is_now(Node *expr);
extern void wms_an_check_call(Analysis *a, FuncExpr *call);
extern FuncExpr *wms_an_function_rte_call(const RangeTblEntry *rte);
extern bool wms_an_given_on_condition(Analysis *a, Query *query, int rtindex);
extern bool wms_an_not_null(Analysis *a, Query *query, Node *expr);
extern Node *wms_an_bound(Node *range, bool upper, Oid time_type);
extern Node *wms_an_shifted(Node *time, Oid time_type, int64 us);
extern Node *wms_an_window_of_bound(Node *bound, const AnTime *time);
extern AnTime wms_an_time_of_bound(const AnTime *bound);
extern bool wms_an_tells_greatest(const AnTime *time);
extern Node *wms_an_event_of(Node *argument, Oid time_type);
extern Node *wms_an_range(Node *lower, Node *upper, Oid time_type);
extern bool wms_an_same_shape(const WmsWindowSpec *a, const WmsWindowSpec *b);
/* Of one row: the same window, or bounds of it. */
extern bool wms_an_same_window(const AnTime *a, const AnTime *b);
extern bool wms_an_tells_end(const AnTime *time);
extern Node *wms_an_pushed_down(Node *expr, int rtindex, const Query *sub);

/* analyze_group.c */
extern void wms_an_cut_group(Analysis *a, Query *query);
extern void wms_an_cut_collect(Analysis *a, Query *query, Node *window);

extern WmsOpPlan *wms_an_new_op(Analysis *a, WmsOpKind kind);
extern RangeTblEntry *wms_an_op_rte(const WmsOpPlan *op);
extern Oid	wms_an_equality(Oid type);

/* analyze_session.c */
extern bool wms_an_is_session(const AnTime *time);
extern Node *wms_an_session_gap(Node *window, Oid time_type);
extern void wms_an_refuse_sessions(Analysis *a, Query *query, Node *expr);

/* analyze_dedup.c */
extern int	wms_an_leftmost_leaf(Node *node);
extern void wms_an_write_out_union(Query *query);
extern void wms_an_cut_dedup(Analysis *a, Query *query);

/* analyze_join_tree.c */
extern List *wms_an_conjuncts(Node *quals);
extern Bitmapset *wms_an_rels_of(Node *expr);
extern bool wms_an_has_join(Node *node, int rtindex);
extern void wms_an_cut_joins(Analysis *a, Query *query, bool with_time);

/* analyze_join_bound.c */
extern bool wms_an_is_equality(Node *condition);
extern void wms_an_read_join(Analysis *a, Query *query, Bitmapset **rels, List *conditions, JoinType type, AnJoinBound *bound);

/* analyze_join.c */
extern void wms_an_cut_join(Analysis *a, Query *query, Node **place, bool with_time);

/* analyze_output.c */
extern void wms_an_output(Analysis *a, Query *query, WmsStreamPlan *plan);

/* analyze_explain.c */
extern char *wms_an_text(Node *expr, List *rtable);

/* analyze_fingerprint.c */
extern uint64 wms_an_definition_hash(const Query *query);
extern uint64 wms_an_fingerprint(const WmsStreamPlan *plan, uint64 definition);

/* analyze_refuse.c: reasons to say no; where or location gives the position */
extern void wms_no_clause(Analysis *a, const char *clause, int location, const char *hint);
extern void wms_no_order_or_limit(Analysis *a, const char *clause, int location);
extern void wms_no_distinct_order(Analysis *a, const void *where, int location);
extern void wms_no_clock_here(Analysis *a, const void *where, const char *what);
extern void wms_no_stream_here(Analysis *a, const void *where);
extern void wms_no_join_equality(Analysis *a, const void *where);
extern void wms_no_join_bound(Analysis *a, const void *where, JoinType type, const char *side, const char *condition, bool watermark);
extern void wms_no_join_subquery(Analysis *a, const void *where);
extern void wms_no_join_condition(Analysis *a, const void *where);
extern void wms_no_months_in_range(Analysis *a, const void *where);
extern void wms_no_volatile(Analysis *a, Oid function, int location);
extern void wms_no_outer_reference(Analysis *a, const void *where);
extern void wms_no_nullable_stream(Analysis *a, const void *where);
extern void wms_no_optional_window(Analysis *a, const void *where);
extern void wms_no_mixed_union(Analysis *a, const void *where);
extern void wms_no_constant(Analysis *a, const void *where, const char *what);
extern void wms_no_null_argument(Analysis *a, const void *where, const char *what);
extern void wms_no_delay(Analysis *a, const void *where);
extern void wms_no_watermark_here(Analysis *a, const void *where);
extern void wms_no_second_watermark(Analysis *a, const void *where);
extern void wms_no_watermark_above(Analysis *a, const void *where, const char *what);
extern void wms_no_event_time_of(Analysis *a, const void *where, const char *what);
extern void wms_no_time_type(Analysis *a, const void *where, Oid type);
extern void wms_no_stable_time(Analysis *a, const void *where);
extern void wms_no_one_source(Analysis *a, const void *where);
extern void wms_no_union_source(Analysis *a, const void *where);
extern void wms_no_source(Analysis *a);
extern void wms_no_single_source(Analysis *a, int ntables, const void *where);
extern void wms_no_too_many_sources(Analysis *a, int location);
extern void wms_no_such_table(Analysis *a, const char *name, const char *kind, const char *hint, const void *where);
extern void wms_no_temporary_table(Analysis *a, const char *name, const void *where);
extern void wms_no_own_result(Analysis *a, Oid relid, const void *where);
extern void wms_no_changing_result(Analysis *a, const char *name, const void *where);
extern void wms_no_row_security(Analysis *a, const char *name, const void *where);
extern void wms_no_update_trigger(Analysis *a, const char *name, const void *where);
extern void wms_no_mixed_sources(Analysis *a, const char *queue, const char *table, int location);
extern void wms_no_system_column(Analysis *a, const void *where);
extern void wms_no_virtual_column(Analysis *a, const void *where);
extern void wms_no_two_windows(Analysis *a, const void *where);
extern void wms_no_two_times(Analysis *a, const void *where);
extern void wms_no_one_bound(Analysis *a, const void *where);
extern void wms_no_processing_time(Analysis *a, const void *where);
extern void wms_no_append_group(Analysis *a, int location, bool window_of_other);
extern void wms_no_append_bound(Analysis *a, const void *where, bool update);
extern void wms_no_unbounded_join(Analysis *a, const void *where);
extern void wms_no_rows_beside_groups(Analysis *a, int location);
extern void wms_no_complete(Analysis *a);
extern void wms_no_chain(Analysis *a, int location);
extern void wms_no_append_only(Analysis *a, const char *what, int location);
extern void wms_no_window_partition(Analysis *a, const void *where);
extern void wms_no_window_functions_in(Analysis *a, const char *what, const void *where);
extern void wms_no_hidden_key(Analysis *a, const char *what, const char *key, const void *where);
extern void wms_no_rows_of_group(Analysis *a, const char *what, const void *where);
extern void wms_no_lateness(Analysis *a);
extern void wms_no_update_session(Analysis *a, const void *where);
extern void wms_no_session_alone(Analysis *a, const void *where);
extern void wms_no_session_here(Analysis *a, const void *where);
extern void wms_no_type(Analysis *a, const char *column, Oid type, const void *where);
extern void wms_no_kept_type(Analysis *a, Oid type, const void *where);
extern void wms_no_retract_here(Analysis *a, const char *what, const char *hint, int location);
extern void wms_no_retract_clock(Analysis *a, const void *where);
extern void wms_no_identity(Analysis *a, Oid relid, int location);

/* analyze_retract.c */
extern const char *wms_an_why_no_inverse(const Aggref *agg, const FormData_pg_aggregate *form);
extern void wms_an_check_retract(Analysis *a, const WmsStreamPlan *plan, const Query *final);

#endif							/* WMS_ANALYZE_INTERNAL_H */
