/*
 * sqlface_views.c
 *	  The functions under the views streams, stat_streams, stat_sources, stat_operators and stat_progress.
 *
 * Each joins the rows of the registry with what workers have put into shared
 * memory.  What nobody knows, because no worker has had the stream since the server
 * started, is NULL.  Definitions and options are for everyone, as in the catalogs;
 * figures, errors and reasons only for members of the owner's role and of
 * pg_monitor: others get NULL.
 *
 * Columns are added in the order of the install script; put_row checks that all are there.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/registry.h"
#include "shared/shared.h"
#include "state/state.h"
#include "source/source.h"
#include "sqlface/sqlface_internal.h"

PG_FUNCTION_INFO_V1(wms_sql_streams);
PG_FUNCTION_INFO_V1(wms_sql_stat_streams);
PG_FUNCTION_INFO_V1(wms_sql_stat_sources);
PG_FUNCTION_INFO_V1(wms_sql_stat_operators);
PG_FUNCTION_INFO_V1(wms_sql_stat_progress);

#define MAX_COLUMNS 32
#define PHASES 4				/* of WmsFigures.phase_us */
#define RATE_US (10 * USECS_PER_SEC)

/* A result row that is being filled from the left. */
typedef struct ViewRow
{
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];
	int			n;
} ViewRow;

/* A stream as shared memory shows it. */
typedef struct LiveStream
{
	bool		visible;		/* the caller may see its figures */
	bool		known;			/* a worker has put figures there, and the caller may see them */
	bool		has_worker;		/* one is at work in this database */
	bool		in_shared;		/* it has a slot there: status is valid */
	bool		followed;		/* it is a follower's */
	WmsStatus	status;
	XLogRecPtr	upto;			/* all that committed before is in the result; InvalidXLogRecPtr: not known */
	TimestampTz caught_up_at;	/* clock when upto last was the end of WAL; 0: never */
	WmsFigures	figures;
	char		error[WMS_ERROR_LEN];
} LiveStream;

/* The database's replication slot. */
typedef struct SlotFacts
{
	char	   *name;			/* NULL: there is none */
	TransactionId catalog_xmin;
} SlotFacts;

/* ---------------------------------------------------------------- filling a row */

static void
add_null(ViewRow *row)
{
	row->values[row->n] = (Datum) 0;
	row->isnull[row->n++] = true;
}

static void
add(ViewRow *row, bool known, Datum value)
{
	row->values[row->n] = value;
	row->isnull[row->n++] = !known;
}

static void
add_text(ViewRow *row, const char *text)
{
	if (text != NULL && text[0] != '\0')
		add(row, true, CStringGetTextDatum(text));
	else
		add_null(row);
}

static void
add_oid(ViewRow *row, Oid oid)
{
	add(row, OidIsValid(oid), ObjectIdGetDatum(oid));
}

/* Infinite event times stand for "none". */
static void
add_time(ViewRow *row, bool known, WmsTime time)
{
	add(row, known && WmsTimeIsFinite(time), TimestampTzGetDatum(time));
}

/* A clock reading; 0 stands for "never". */
static void
add_clock(ViewRow *row, bool known, TimestampTz clock)
{
	add(row, known && clock != 0, TimestampTzGetDatum(clock));
}

/* A span of the registry: negative means off. */
static void
add_span(ViewRow *row, int64 us)
{
	Interval   *interval;

	if (us < 0)
	{
		add_null(row);
		return;
	}
	interval = palloc0(sizeof(Interval));
	interval->day = (int32) Min(us / USECS_PER_DAY, PG_INT32_MAX);
	interval->time = us % USECS_PER_DAY;
	add(row, true, IntervalPGetDatum(interval));
}

static void
put_row(FunctionCallInfo fcinfo, ViewRow *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	if (row->n != rsinfo->setDesc->natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a view of wmstream does not fit the loaded library"),
				 errhint("Run ALTER EXTENSION wmstream UPDATE in this database.")));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->isnull);
}

/* ---------------------------------------------------------------- what is known of a stream */

static bool
database_has_worker(void)
{
	WmsSharedWorker *worker;
	bool		attached;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	worker = wms_worker_of(MyDatabaseId);
	attached = worker != NULL && worker->proc != NULL;
	LWLockRelease(&wms_shared->lock);
	return attached;
}

/* No worker has run a batch of it since the server started: what the last batch left is in the log, if that can be read. */
static void
look_into_log(const WmsStreamDef *def, LiveStream *live)
{
	WmsFigures *figures = &live->figures;
	char	   *damage;

	if (figures->last_batch_at != 0 || !live->visible || def->foreign ||
		!wms_state_try_progress(def->stream, GetActiveSnapshot(), &figures->progress, &damage))
		return;
	live->known = true;
	figures->next_close = figures->next_close_event = WMS_TIME_MAX;
}

static void
look_at(const WmsStreamDef *def, LiveStream *live)
{
	WmsSharedStream *slot = wms_stream_slot(def->stream, false);

	memset(live, 0, sizeof(*live));
	live->visible = wms_face_may_see(def);
	live->has_worker = database_has_worker();
	live->in_shared = slot != NULL && !def->foreign;
	if (!live->in_shared)
	{
		look_into_log(def, live);
		live->upto = live->figures.progress.position;
		return;
	}

	live->status = (WmsStatus) pg_atomic_read_u32(&slot->status);
	live->followed = pg_atomic_read_u32(&slot->keeper) == WMS_KEEPER_FOLLOWER;
	live->known = live->visible;
	live->caught_up_at = (TimestampTz) pg_atomic_read_u64(&slot->caught_up_at);
	live->upto = pg_atomic_read_u64(&slot->done_lsn);
	wms_stream_figures(slot, &live->figures, live->error);
	look_into_log(def, live);
	live->upto = Max(live->upto, live->figures.progress.position);
	/* being filled anew: what it had before does not count */
	if (live->followed)
		live->upto = pg_atomic_read_u64(&slot->needs_lsn);
}

/*
 * Of the streams that the registry has as running, the worker knows better, or the last one knew what stopped it; one that
 * no worker has taken up yet is starting.
 */
static WmsStatus
status_of(const WmsStreamDef *def, const LiveStream *live)
{
	bool		lives = def->status == WMS_STARTING || def->status == WMS_RUNNING ||
		def->status == WMS_BACKFILLING || def->status == WMS_BLOCKED;

	if (!lives)
		return def->status;
	if (live->in_shared && (live->has_worker || live->status == WMS_BLOCKED) && live->status <= WMS_NEEDS_RESYNC)
		return live->status;
	return def->status == WMS_RUNNING ? WMS_STARTING : def->status;
}

/* The end of what could be read by now. */
static XLogRecPtr
end_of_wal(void)
{
	return RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
}

static int64
bytes_behind(const LiveStream *live, XLogRecPtr end)
{
	return end > live->upto ? (int64) (end - live->upto) : 0;
}

/*
 * How old the oldest commit can be that is not in the result yet: it came after the last moment at which
 * nothing was missing, and after the newest commit that is in.
 */
static double
seconds_behind(const LiveStream *live, XLogRecPtr end)
{
	TimestampTz complete = Max(live->caught_up_at, live->figures.last_commit_time);
	TimestampTz now = GetCurrentTimestamp();

	if (bytes_behind(live, end) == 0 || now <= complete)
		return 0;
	return (double) (now - complete) / USECS_PER_SEC;
}

static WmsTime
newest_event(const WmsProgress *progress)
{
	WmsTime		newest = WMS_TIME_MIN;

	for (int i = 0; i < progress->nsources; i++)
		newest = Max(newest, progress->max_time[i]);
	return newest;
}

/* ---------------------------------------------------------------- streams */

static SlotFacts
slot_facts(void)
{
	SlotFacts	facts = {NULL, InvalidTransactionId};
	char	   *name = wms_slot_name(MyDatabaseId);

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use || strcmp(NameStr(slot->data.name), name) != 0)
			continue;
		SpinLockAcquire(&slot->mutex);
		facts.catalog_xmin = slot->data.catalog_xmin;
		SpinLockRelease(&slot->mutex);
		facts.name = name;
	}
	LWLockRelease(ReplicationSlotControlLock);
	return facts;
}

static void
add_options(ViewRow *row, const WmsStreamDef *def)
{
	static const char *const modes[] = {"append", "update", "complete"};
	static const char *const changes[] = {"ignore", "error", "retract"};

	add_text(row, modes[def->output_mode]);
	add_span(row, def->trigger_us);
	add_span(row, def->lateness_us);
	add_oid(row, def->late_table);
	add_span(row, def->idle_us);
	add(row, true, BoolGetDatum(def->close_when_idle));
	add_span(row, def->max_future_us);
	add_text(row, def->watermark_max ? "max" : "min");
	add_text(row, changes[def->on_change]);
	add_text(row, def->skip_errors ? "skip" : "stop");
	add_span(row, def->delay_us);
}

/* WAL that the server keeps for the stream. */
static int64
bytes_held(const WmsStreamDef *def, const LiveStream *live)
{
	if (def->reads_queues || def->status == WMS_NEEDS_RESYNC || def->status == WMS_RESTORED || live->upto == InvalidXLogRecPtr)
		return 0;
	return bytes_behind(live, end_of_wal());
}

/* Half of what it may hold is worth a word. */
static const char *
with_warning(const char *reason, const WmsStreamDef *def, const LiveStream *live)
{
	int64		held = bytes_held(def, live) / (1024 * 1024);

	if (wms_max_retained_wal == 0 || held <= wms_max_retained_wal / 2)
		return reason;
	return psprintf("%s%sit holds back " INT64_FORMAT " MB of WAL; beyond wmstream.max_retained_wal (%d MB) it must be rebuilt with wmstream.resync()",
					reason && reason[0] ? reason : "", reason && reason[0] ? "; " : "", held, wms_max_retained_wal);
}

static const char *
reason_of(const WmsStreamDef *def, const LiveStream *live, WmsStatus status)
{
	bool		is_short;
	bool		followers_short;
	bool		launched;

	if (status == WMS_BLOCKED)
		return live->error;
	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	is_short = wms_shared->workers_short;
	launched = wms_shared->launcher != NULL;
	followers_short = wms_shared->followers_short && wms_follower_of(MyDatabaseId, def->stream) == NULL;
	LWLockRelease(&wms_shared->lock);
	if (live->followed && followers_short)
		return psprintf("it waits for its turn: wmstream.max_followers is %d, max_worker_processes is %d",
						wms_max_followers, max_worker_processes);
	if (status == WMS_STARTING && !live->has_worker && !launched)
		return psprintf("the launcher of wmstream does not run: if that lasts, raise max_worker_processes (now %d) and restart the server",
						max_worker_processes);
	if (status == WMS_STARTING && !live->has_worker && is_short)
		return psprintf("no background worker is free: raise max_worker_processes (now %d) or wmstream.max_workers (now %d)",
						max_worker_processes, wms_max_workers);
	if (status == WMS_STARTING && live->has_worker && !live->in_shared && wms_stream_slots_free() == 0)
		return psprintf("all %d places for streams are in use: raise wmstream.max_streams, or drop a stream", wms_shared->nstreams);
	return def->reason;
}

char *
wms_face_reason(const WmsStreamDef *def)
{
	LiveStream	live;
	const char *reason;

	look_at(def, &live);
	reason = reason_of(def, &live, status_of(def, &live));
	return reason ? pstrdup(reason) : NULL;
}

static void
add_status(ViewRow *row, const WmsStreamDef *def, const LiveStream *live)
{
	WmsStatus	status = status_of(def, live);
	const char *reason = reason_of(def, live, status);

	add_oid(row, def->owner);
	add_text(row, wms_status_name(status));
	add_text(row, live->visible ? with_warning(reason, def, live) : NULL);
	add(row, true, TimestampTzGetDatum(def->since));
}

/* What the stream keeps from being removed.  One that has lost its place keeps nothing. */
static void
add_holdings(ViewRow *row, const WmsStreamDef *def, const LiveStream *live, const SlotFacts *slot)
{
	bool		known = live->known && live->upto != InvalidXLogRecPtr;
	int64		bytes = slot->name != NULL ? bytes_held(def, live) : 0;
	bool		has_xmin = slot->name != NULL && TransactionIdIsNormal(slot->catalog_xmin);
	int32		xmin_age = has_xmin ? (int32) (ReadNextTransactionId() - slot->catalog_xmin) : 0;

	add(row, known, LSNGetDatum(live->upto));
	add(row, known, Int64GetDatum(bytes));
	add(row, slot->name != NULL, DirectFunctionCall1(namein, CStringGetDatum(slot->name ? slot->name : "")));
	add(row, has_xmin, Int32GetDatum(xmin_age));
}

Datum
wms_sql_streams(PG_FUNCTION_ARGS)
{
	SlotFacts	slot;
	ListCell   *cell;

	wms_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	slot = slot_facts();
	foreach(cell, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(cell);
		LiveStream	live;
		ViewRow		row = {.n = 0};

		look_at(def, &live);
		add_oid(&row, def->stream);
		add_oid(&row, def->view);
		add_options(&row, def);
		add_status(&row, def, &live);
		add_holdings(&row, def, &live, &slot);
		put_row(fcinfo, &row);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- stat_streams */

/* Of about the last ten seconds. */
static double
rows_per_second(const WmsFigures *figures)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz since = figures->rate_since[0] != 0 ? figures->rate_since[0] : figures->rate_since[1];

	if (now - figures->last_batch_at > RATE_US)
		return 0;
	return (double) (figures->rate_rows[0] + figures->rate_rows[1]) * USECS_PER_SEC / Max(now - since, USECS_PER_SEC);
}

static void
add_counters(ViewRow *row, const LiveStream *live)
{
	const int64 *counters = live->figures.progress.counters;

	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_BATCHES]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_INPUT]));
	add(row, live->known, Float8GetDatum(rows_per_second(&live->figures)));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_LATE]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_NO_TIME]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_FUTURE]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_BAD_GAP]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_CHANGED]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_ERROR]));
	add(row, live->known, Int64GetDatum(counters[WMS_COUNT_OUTPUT]));
}

static void
add_times(ViewRow *row, const LiveStream *live, XLogRecPtr end)
{
	const WmsFigures *figures = &live->figures;
	bool		has_open = figures->next_close != WMS_TIME_MAX;
	bool		has_position = live->known && live->upto != InvalidXLogRecPtr;

	add_time(row, live->known, figures->progress.watermark);
	add_time(row, live->known, newest_event(&figures->progress));
	add_time(row, live->known && has_open, figures->next_close_event);
	add(row, has_position, Int64GetDatum(bytes_behind(live, end)));
	add(row, has_position, Float8GetDatum(seconds_behind(live, end)));
}

static void
add_state(ViewRow *row, const LiveStream *live)
{
	const WmsFigures *figures = &live->figures;

	add(row, live->known, Int64GetDatum(figures->state_entries + figures->kept_rows));
	add(row, live->known, Int64GetDatum(figures->state_bytes));
	add(row, live->known, Int64GetDatum(figures->log_bytes));
}

static void
add_last_batch(ViewRow *row, const LiveStream *live)
{
	bool		had_batch = live->known && live->figures.last_batch_at != 0;

	for (int i = 0; i < PHASES; i++)
		add(row, had_batch, Float8GetDatum(live->figures.phase_us[i] / 1000.0));
	add_clock(row, live->known, live->figures.last_batch_at);
}

static void
add_last_error(ViewRow *row, const WmsStreamDef *def, const LiveStream *live)
{
	if (!live->visible)
		add_null(row);
	else
		add_text(row, live->error[0] != '\0' ? live->error : def->reason);
}

Datum
wms_sql_stat_streams(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	wms_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(cell);
		LiveStream	live;
		ViewRow		row = {.n = 0};

		look_at(def, &live);
		add_oid(&row, def->stream);
		add_counters(&row, &live);
		add_times(&row, &live, end_of_wal());
		add_state(&row, &live);
		add_last_batch(&row, &live);
		add_last_error(&row, def, &live);
		put_row(fcinfo, &row);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- stat_sources */

static void
put_source(FunctionCallInfo fcinfo, Oid stream, const LiveStream *live, int source)
{
	const WmsFigures *figures = &live->figures;
	ViewRow		row = {.n = 0};

	add_oid(&row, stream);
	add_oid(&row, figures->source_relid[source]);
	add(&row, live->known, Int64GetDatum(figures->progress.source_rows[source]));
	add_time(&row, live->known, figures->progress.max_time[source]);
	add_time(&row, live->known, figures->source_watermark[source]);
	add(&row, live->known, BoolGetDatum(figures->source_idle[source]));
	add_clock(&row, live->known, figures->source_seen_at[source]);
	put_row(fcinfo, &row);
}

Datum
wms_sql_stat_sources(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	wms_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(cell);
		LiveStream	live;

		look_at(def, &live);
		for (int i = 0; i < Min(live.figures.progress.nsources, WMS_MAX_SOURCES); i++)
			if (OidIsValid(live.figures.source_relid[i]))
				put_source(fcinfo, def->stream, &live, i);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- stat_operators */

static void
put_operator(FunctionCallInfo fcinfo, Oid stream, const LiveStream *live, int op)
{
	const WmsOpFigures *figures = &live->figures.ops[op];
	ViewRow		row = {.n = 0};

	add_oid(&row, stream);
	add(&row, true, Int32GetDatum(op));
	add_text(&row, figures->kind);
	add(&row, live->known, Int64GetDatum(figures->input_rows));
	add(&row, live->known, Int64GetDatum(figures->late_rows));
	add(&row, live->known, Int64GetDatum(figures->output_rows));
	add(&row, live->known && strcmp(figures->kind, "join") == 0, Int64GetDatum(figures->compared_rows));
	add_time(&row, live->known, figures->watermark);
	add(&row, live->known && figures->windows >= 0, Int64GetDatum(figures->windows));
	add(&row, live->known, Int64GetDatum(figures->state_rows));
	add(&row, live->known, Int64GetDatum(figures->kept_rows));
	add(&row, live->known, Int64GetDatum(figures->state_bytes));
	add(&row, live->known, Float8GetDatum(figures->seconds * 1000.0));
	put_row(fcinfo, &row);
}

Datum
wms_sql_stat_operators(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	wms_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(cell);
		LiveStream	live;

		look_at(def, &live);
		for (int i = 0; i < Min(live.figures.nops, WMS_FIGURE_OPS); i++)
			put_operator(fcinfo, def->stream, &live, i);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- stat_progress */

static const char *
phase_name(const LiveStream *live)
{
	switch (live->followed ? (WmsFillPhase) live->figures.fill.phase : WMS_PHASE_NONE)
	{
		case WMS_PHASE_NONE:
			break;
		case WMS_PHASE_READING:
			return "reading";
		case WMS_PHASE_SORTING:
			return "sorting";
		case WMS_PHASE_FEEDING:
			return "feeding";
		case WMS_PHASE_CATCHING_UP:
			return "catching up";
	}
	return "waiting";
}

static void
put_progress(FunctionCallInfo fcinfo, const WmsStreamDef *def, const LiveStream *live)
{
	const WmsFillFigures *fill = &live->figures.fill;
	bool		known = live->known && live->followed && fill->phase != WMS_PHASE_NONE;
	bool		fed = known && fill->phase >= WMS_PHASE_FEEDING;
	ViewRow		row = {.n = 0};

	add_oid(&row, def->stream);
	add_text(&row, phase_name(live));
	add(&row, known, Int64GetDatum(fill->rows_read));
	add(&row, known, Int64GetDatum(fill->rows_done));
	add(&row, known && fill->rows_total >= 0, Int64GetDatum(fill->rows_total));
	add_time(&row, fed, newest_event(&live->figures.progress));
	add_clock(&row, known, fill->started_at);
	put_row(fcinfo, &row);
}

Datum
wms_sql_stat_progress(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	wms_require_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(cell);
		LiveStream	live;
		bool		pending = def->status == WMS_RUNNING && wms_fill_pending(def);

		look_at(def, &live);
		if (live.followed || pending)
			put_progress(fcinfo, def, &live);
	}
	return (Datum) 0;
}
