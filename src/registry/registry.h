/*
 * registry.h
 *	  The durable tables of schema wmstream, as structs, and the life of a stream.
 *
 * registry_stream.c  wmstream.stream: reading, writing, transitions of status
 * registry_define.c  what create_stream makes and drop takes away: view, result table, late table, dependencies
 * registry_drop.c    object-access and utility hooks: DROP of a result, a view, the extension, a database
 *
 * Rows are read and written by table access, never by SQL text; CREATE TABLE and
 * CREATE VIEW go through the ordinary commands.
 */
#ifndef WMS_REGISTRY_H
#define WMS_REGISTRY_H

#include "base/base.h"

typedef enum WmsOutputMode
{
	WMS_APPEND,
	WMS_UPDATE,
	WMS_COMPLETE
} WmsOutputMode;

typedef enum WmsOnChange
{
	WMS_CHANGE_IGNORE,
	WMS_CHANGE_ERROR,
	WMS_CHANGE_RETRACT
} WmsOnChange;

/*
 * A stream's life.  Durable in wmstream.stream.status, but for starting and blocked,
 * which only the worker knows and shared memory shows.
 */
typedef enum WmsStatus
{
	WMS_STARTING,				/* -> running, failed, paused */
	WMS_RUNNING,				/* -> blocked, paused, failed, needs_resync */
	WMS_BACKFILLING,			/* -> running, failed, paused */
	WMS_BLOCKED,				/* -> running, failed, paused, needs_resync */
	WMS_PAUSED,					/* -> starting (resume), needs_resync */
	WMS_FAILED,					/* -> starting (resume), needs_resync */
	WMS_RESTORED,				/* -> starting (resume) */
	WMS_NEEDS_RESYNC			/* -> starting (resync) */
} WmsStatus;

extern const char *wms_status_name(WmsStatus status);
extern WmsStatus wms_status_by_name(const char *name);

/* A row of wmstream.stream.  Strings live in the context of the reader. */
typedef struct WmsStreamDef
{
	Oid			stream;			/* the result table */
	Oid			view;			/* the definition */
	Oid			owner;			/* of the result table, from pg_class */
	Oid			late_table;		/* InvalidOid: none */
	WmsOutputMode output_mode;
	WmsOnChange on_change;
	bool		skip_errors;	/* on_error = skip */
	bool		close_when_idle;
	bool		watermark_max;	/* watermark_policy = max */
	int64		trigger_us;
	int64		lateness_us;
	int64		idle_us;		/* -1: off */
	int64		max_future_us;	/* -1: off */
	int64		delay_us;		/* altered delay; -1: as the query says */
	bool		made_result;	/* create_stream made the result table */
	bool		has_key;		/* result has a key over the shown group keys */
	List	   *key_columns;	/* of result, attribute numbers; NIL without key */
	WmsStatus	status;
	char	   *reason;			/* NULL: none */
	TimestampTz since;
	char	   *timezone;
	char	   *datestyle;
	char	   *intervalstyle;
	int64		command;		/* counts up with every pause, resume, alter, advance */
	WmsTime		advance_to;		/* advance_watermark; WMS_TIME_MIN: none */
	bool		foreign;		/* made in another cluster or database: restored */
} WmsStreamDef;

/* All streams of this database, or one (NULL if there is none).  Inside a transaction; result in the current context. */
extern List *wms_registry_streams(void);
extern WmsStreamDef *wms_registry_stream(Oid stream);
extern WmsStreamDef *wms_registry_by_view(Oid view);
/* Is the extension here and usable (preloaded, same database)? */
extern bool wms_registry_exists(void);

extern void wms_registry_insert(const WmsStreamDef *def);
extern void wms_registry_update(const WmsStreamDef *def);	/* all fields but status */
extern void wms_registry_delete(Oid stream);
/* The only way to a new status; ERROR if the transition is not allowed. reason NULL clears. */
extern void wms_registry_transition(Oid stream, WmsStatus to, const char *reason);

/* ---- registry_define.c */

typedef struct WmsShape			/* what analysis says of the result */
{
	TupleDesc	desc;			/* columns of the SELECT list */
	List	   *key_columns;	/* numbers of the columns that make the key; NIL: not all keys shown */
	bool		key_not_null;	/* all of them are window bounds or NOT NULL columns */
} WmsShape;

/* CREATE VIEW wmstream."<schema>.<result>" AS query, owned by owner; returns its OID.  query_text is parsed here, in the caller's search_path. */
extern Oid	wms_define_view(const char *schema, const char *result, const char *query_text, Oid owner);
/* The result table: made, or an existing one checked against the shape (ERROR with hint).  *made tells. */
extern Oid	wms_define_result(const char *schema, const char *result, const WmsShape *shape, WmsOutputMode mode, bool key_needed, bool *made, bool *has_key);
extern Oid	wms_define_late_table(const char *name);
/* The result drops the view, the extension drops the view. */
extern void wms_define_dependencies(Oid stream, Oid view);
extern void wms_drop_definition(const WmsStreamDef *def);

/* ---- registry_drop.c: called from _PG_init only */
extern void wms_registry_install_hooks(void);

#endif							/* WMS_REGISTRY_H */
