/*
 * sqlface_internal.h
 *	  What the files of this room share among themselves.
 */
#ifndef WMS_SQLFACE_INTERNAL_H
#define WMS_SQLFACE_INTERNAL_H

#include "analyze/analyze.h"
#include "registry/registry.h"
#include "utils/timestamp.h"

/* ---- sqlface_stream.c: the stream that a call names */

/* ERROR unless this session may write now. */
extern void wms_face_begin_write(const char *function);
/* The stream of a result table; ERROR if the table is none. */
extern WmsStreamDef *wms_face_stream(Oid stream);
/* The same for its owner only, locked against all others until the transaction ends. */
extern WmsStreamDef *wms_face_own_stream(Oid stream, const char *function);
/* And its result table, as for DROP TABLE. */
extern WmsStreamDef *wms_face_own_stream_and_result(Oid stream, const char *function);
/* May the caller see figures and errors of the stream? */
extern bool wms_face_may_see(const WmsStreamDef *def);
/* Counts a command and writes the row; the worker learns of it at commit. */
extern void wms_face_command(WmsStreamDef *def);

/*
 * From here to the end of the transaction the database keeps its slot and its mark, though no stream shows yet that they are wanted.  The slot is made
 * if it is missing, but not for streams of queues; before the transaction's first write.
 */
extern void wms_face_need_slot(bool only_queues);
/* All that a worker of this database needs: that, and the mark. */
extern void wms_face_need_worker(bool only_queues);

typedef struct WmsFaceOwner		/* what to go back to */
{
	Oid			user;
	int			context;
	int			guc_level;
} WmsFaceOwner;

/* From one to the other, the stream's code runs as it does in the worker: with its owner's role, its own settings and the worker's. */
extern void wms_face_become_owner(const WmsStreamDef *def, WmsFaceOwner *scope);
extern void wms_face_leave_owner(const WmsFaceOwner *scope);

/* ---- sqlface_options.c: values of options */

/* Microseconds; ERROR if negative or with months. */
extern int64 wms_face_span(const char *option, const Interval *value);
extern WmsOutputMode wms_face_output_mode(const char *value);
extern WmsOnChange wms_face_on_change(const char *value);
extern bool wms_face_skip_errors(const char *value);
extern bool wms_face_watermark_max(const char *value);
extern bool wms_face_from_beginning(const char *value);
/* The stream's plan with these options; ERROR if its definition would be refused now. */
extern WmsStreamPlan *wms_face_plan(const WmsStreamDef *def);
/* What the options must be to each other. */
extern void wms_face_check_options(const WmsStreamDef *def);
/* ERROR if rows of the result, which is to be a table that was there, would change under streams that read it. */
extern void wms_face_check_readers(const WmsStreamDef *def);
/* Sets one option of an existing stream from text; NULL: its default.  Makes what the new value needs. */
extern void wms_face_set_option(WmsStreamDef *def, const char *option, const char *value);

/* Names of the streams that take rows of this one's result as they were written first, for a message; NULL: none. */
extern char *wms_face_readers(const WmsStreamDef *def);

/* ---- sqlface_query.c: a definition's text as a tree */

/* Exactly one SELECT, analysed as the caller in the caller's search_path.  Errors point into text. */
extern Query *wms_face_query(const char *text);
/* Its plan for the role that we are, or NULL and a refusal.  options->text is the definition. */
extern WmsStreamPlan *wms_face_analyze(const Query *query, const WmsOptions *options, WmsRefusal **refusal);
/* While a definition is read: where an error stands in it; a byte location from 0. */
extern int	wms_face_errposition(const char *text, int location);
/* ERROR if Postgres itself cannot plan it, or we may not run it. */
extern void wms_face_plan_query(const Query *query, const char *text);

/* ---- sqlface_star.c: SELECT * over a queue */

/* Places of stars in a parse tree that was not analysed yet; then the query without the columns of queues that they stand for. */
extern List *wms_face_stars(Node *raw);
extern void wms_face_hide(Query *query, List *stars, const char *text);

/* ---- sqlface_views.c: why the stream does not run, as the view streams says; NULL: nothing is said. */
extern char *wms_face_reason(const WmsStreamDef *def);

#endif							/* WMS_SQLFACE_INTERNAL_H */
