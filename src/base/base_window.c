/*
 * base_window.c
 *	  The SQL functions window, cumulate_window and session_window, and the check
 *	  of their sizes.
 *
 * They work without preloading: nothing here touches shared memory or settings.
 *
 * Each function comes in three shapes by its first argument: timestamptz (_tz),
 * timestamp (_ts), and a range of either (_range), which is a window of a lower
 * level and stands for its last microsecond.  A time that is no event time
 * (infinite, or a range that is empty or has no end) has no window: NULL from the
 * scalar functions, no row from the others.  The result type is the range over
 * the argument's type.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/base.h"

PG_FUNCTION_INFO_V1(wms_sql_window_tz);
PG_FUNCTION_INFO_V1(wms_sql_window_ts);
PG_FUNCTION_INFO_V1(wms_sql_window_range);
PG_FUNCTION_INFO_V1(wms_sql_slide_tz);
PG_FUNCTION_INFO_V1(wms_sql_slide_ts);
PG_FUNCTION_INFO_V1(wms_sql_slide_range);
PG_FUNCTION_INFO_V1(wms_sql_cumulate_tz);
PG_FUNCTION_INFO_V1(wms_sql_cumulate_ts);
PG_FUNCTION_INFO_V1(wms_sql_cumulate_range);
PG_FUNCTION_INFO_V1(wms_sql_session_tz);
PG_FUNCTION_INFO_V1(wms_sql_session_ts);
PG_FUNCTION_INFO_V1(wms_sql_session_range);

/* The first argument of a call: an event time, and the type of its windows. */
typedef struct EventTime
{
	Oid			range_type;
	WmsTime		time;
	bool		usable;			/* it has a window */
} EventTime;

/* Where a set-returning call stands. */
typedef struct WindowScan
{
	TypeCacheEntry *range_type;
	WmsWindowSpec spec;
	WmsTime		time;
	WmsWindow	window;			/* to be returned next */
	bool		more;			/* window is valid */
} WindowScan;

/* ---------------------------------------------------------------- checking sizes */

static WmsRefusal *
refuse_months(const char *what)
{
	return wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
					  "Months and years have no fixed length. Use days, hours, minutes or seconds.",
					  "%s must not contain months or years", what);
}

/*
 * An interval of fixed length in microseconds, or a refusal.  what names the
 * argument in messages.
 */
static WmsRefusal *
fixed_length(const char *what, const Interval *interval, int64 *us)
{
	bool		has_months;

	*us = wms_interval_us(interval, 0, &has_months);
	if (has_months)
		return refuse_months(what);
	if (*us > WMS_SPAN_MAX || *us < -WMS_SPAN_MAX)
		return wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
						  "At most 100000000 days are possible.",
						  "%s is out of range", what);
	return NULL;
}

static WmsRefusal *
positive_length(const char *what, const Interval *interval, int64 *us)
{
	WmsRefusal *refusal = fixed_length(what, interval, us);

	if (refusal == NULL && *us <= 0)
		refusal = wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
							 "Give at least 1 microsecond.",
							 "%s must be greater than zero", what);
	return refusal;
}

/* In how many windows a time lies, at most. */
static int64
windows_of_time(const WmsWindowSpec *spec)
{
	if (spec->kind == WMS_WINDOW_SESSION)
		return 1;
	return spec->size / spec->slide + (spec->size % spec->slide != 0);
}

/* Rules between the two lengths of a window. */
static WmsRefusal *
lengths_fit(const WmsWindowSpec *spec)
{
	if (spec->kind == WMS_WINDOW_GRID && spec->slide > spec->size)
		return wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
						  "With a slide greater than the size some times would lie in no window. Make the slide smaller or the size greater.",
						  "window slide must not be greater than window size");
	if (spec->kind == WMS_WINDOW_CUMULATE && spec->size % spec->slide != 0)
		return wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
						  "Choose a max_size that is a whole number of steps.",
						  "window step must divide window max_size");
	if (windows_of_time(spec) > WMS_MAX_WINDOWS_OF_TIME)
		return wms_refuse(ERRCODE_INVALID_PARAMETER_VALUE, -1,
						  psprintf("At most %d are possible, and each is a group of its own. Make the %s greater or the %s smaller.", WMS_MAX_WINDOWS_OF_TIME,
								   spec->kind == WMS_WINDOW_CUMULATE ? "step" : "slide", spec->kind == WMS_WINDOW_CUMULATE ? "max_size" : "size"),
						  "every time would lie in %lld windows", (long long) windows_of_time(spec));
	return NULL;
}

WmsRefusal *
wms_window_spec(WmsWindowKind kind, const Interval *size, const Interval *slide,
				const Interval *offset, WmsWindowSpec *spec)
{
	const char *size_name = kind == WMS_WINDOW_CUMULATE ? "window max_size" :
	kind == WMS_WINDOW_SESSION ? "session gap" : "window size";
	WmsRefusal *refusal;
	int			which = 1;

	memset(spec, 0, sizeof(*spec));
	spec->kind = kind;

	refusal = positive_length(size_name, size, &spec->size);
	spec->slide = spec->size;
	if (refusal == NULL && slide != NULL)
	{
		which = 2;
		refusal = positive_length(kind == WMS_WINDOW_CUMULATE ? "window step" : "window slide", slide, &spec->slide);
	}
	if (refusal == NULL)
		refusal = lengths_fit(spec);
	if (refusal == NULL && offset != NULL)
	{
		which = 3;
		refusal = fixed_length("window start_offset", offset, &spec->offset);
	}
	if (refusal)
		refusal->which = which;
	return refusal;
}

static void
spec_or_error(WmsWindowKind kind, const Interval *size, const Interval *slide,
			  const Interval *offset, WmsWindowSpec *spec)
{
	WmsRefusal *refusal = wms_window_spec(kind, size, slide, offset, spec);

	if (refusal != NULL)
		wms_refusal_raise(refusal, NULL);
}

/* ---------------------------------------------------------------- arguments and results */

static EventTime
time_argument(FunctionCallInfo fcinfo, Oid range_type)
{
	EventTime	event;

	/* timestamp and timestamptz are the same number */
	event.range_type = range_type;
	event.time = PG_GETARG_TIMESTAMPTZ(0);
	event.usable = WmsTimeIsFinite(event.time);
	return event;
}

/* A window stands for its end - 1 us: the last time that can lie in it. */
static EventTime
range_argument(FunctionCallInfo fcinfo)
{
	RangeType  *range = PG_GETARG_RANGE_P(0);
	TypeCacheEntry *type;
	RangeBound	lower;
	RangeBound	upper;
	bool		empty;
	EventTime	event;

	event.range_type = RangeTypeGetOid(range);
	type = lookup_type_cache(event.range_type, TYPECACHE_RANGE_INFO);
	range_deserialize(type, range, &lower, &upper, &empty);

	event.usable = !empty && !upper.infinite && WmsTimeIsFinite(DatumGetTimestampTz(upper.val));
	event.time = event.usable ? DatumGetTimestampTz(upper.val) : WMS_TIME_MIN;
	if (event.usable && !upper.inclusive)
		event.time = wms_time_add(event.time, -1);
	event.usable = WmsTimeIsFinite(event.time);
	PG_FREE_IF_COPY(range, 0);
	return event;
}

static Datum
range_datum(TypeCacheEntry *range_type, const WmsWindow *window)
{
	RangeBound	lower = {.val = TimestampTzGetDatum(window->start), .inclusive = true, .lower = true};
	RangeBound	upper = {.val = TimestampTzGetDatum(window->end)};

	return RangeTypePGetDatum(WmsMakeRange(range_type, &lower, &upper));
}

/* ---------------------------------------------------------------- window(t, size) */

static Datum
tumbling(FunctionCallInfo fcinfo, EventTime event)
{
	WmsWindowSpec spec;
	WmsWindow	window;

	/* A wrong size is an error whatever the time is. */
	spec_or_error(WMS_WINDOW_GRID, PG_GETARG_INTERVAL_P(1), NULL, NULL, &spec);
	if (!event.usable)
		PG_RETURN_NULL();
	wms_window_first(&spec, event.time, &window);
	return range_datum(range_get_typcache(fcinfo, event.range_type), &window);
}

Datum
wms_sql_window_tz(PG_FUNCTION_ARGS)
{
	return tumbling(fcinfo, time_argument(fcinfo, TSTZRANGEOID));
}

Datum
wms_sql_window_ts(PG_FUNCTION_ARGS)
{
	return tumbling(fcinfo, time_argument(fcinfo, TSRANGEOID));
}

Datum
wms_sql_window_range(PG_FUNCTION_ARGS)
{
	return tumbling(fcinfo, range_argument(fcinfo));
}

/* ---------------------------------------------------------------- session_window(t, gap) */

static Datum
session(FunctionCallInfo fcinfo, EventTime event)
{
	bool		has_months;
	int64		gap = wms_interval_us(PG_GETARG_INTERVAL_P(1), 0, &has_months);
	WmsWindow	window;

	/* The gap may come with each row: one that is not positive makes no session, one that is too long lasts for ever. */
	if (has_months)
		wms_refusal_raise(refuse_months("session gap"), NULL);
	if (!event.usable || !wms_session_window(event.time, gap, &window))
		PG_RETURN_NULL();
	return range_datum(range_get_typcache(fcinfo, event.range_type), &window);
}

Datum
wms_sql_session_tz(PG_FUNCTION_ARGS)
{
	return session(fcinfo, time_argument(fcinfo, TSTZRANGEOID));
}

Datum
wms_sql_session_ts(PG_FUNCTION_ARGS)
{
	return session(fcinfo, time_argument(fcinfo, TSRANGEOID));
}

Datum
wms_sql_session_range(PG_FUNCTION_ARGS)
{
	return session(fcinfo, range_argument(fcinfo));
}

/* ---------------------------------------------------------------- window(t, size, slide, start_offset), cumulate_window(t, step, max_size, start_offset) */

/* First call: everything that the later ones need, in the memory of the whole scan. */
static void
begin_scan(FunctionCallInfo fcinfo, FuncCallContext *funcctx, const WmsWindowSpec *spec, EventTime event)
{
	WindowScan *scan = MemoryContextAllocZero(funcctx->multi_call_memory_ctx, sizeof(WindowScan));

	scan->spec = *spec;
	scan->time = event.time;
	if (event.usable)
	{
		scan->range_type = lookup_type_cache(event.range_type, TYPECACHE_RANGE_INFO);
		scan->more = wms_window_first(spec, event.time, &scan->window);
	}
	funcctx->user_fctx = scan;
}

static Datum
next_of_scan(FunctionCallInfo fcinfo)
{
	FuncCallContext *funcctx = SRF_PERCALL_SETUP();
	WindowScan *scan = funcctx->user_fctx;
	Datum		result;

	if (!scan->more)
		SRF_RETURN_DONE(funcctx);
	result = range_datum(scan->range_type, &scan->window);
	scan->more = wms_window_next(&scan->spec, scan->time, &scan->window);
	SRF_RETURN_NEXT(funcctx, result);
}

/* event is looked at in the first call only. */
static void
begin_slide(FunctionCallInfo fcinfo, EventTime event)
{
	WmsWindowSpec spec;

	spec_or_error(WMS_WINDOW_GRID, PG_GETARG_INTERVAL_P(1), PG_GETARG_INTERVAL_P(2), PG_GETARG_INTERVAL_P(3), &spec);
	begin_scan(fcinfo, SRF_FIRSTCALL_INIT(), &spec, event);
}

static void
begin_cumulate(FunctionCallInfo fcinfo, EventTime event)
{
	WmsWindowSpec spec;

	spec_or_error(WMS_WINDOW_CUMULATE, PG_GETARG_INTERVAL_P(2), PG_GETARG_INTERVAL_P(1), PG_GETARG_INTERVAL_P(3), &spec);
	begin_scan(fcinfo, SRF_FIRSTCALL_INIT(), &spec, event);
}

Datum
wms_sql_slide_tz(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_slide(fcinfo, time_argument(fcinfo, TSTZRANGEOID));
	return next_of_scan(fcinfo);
}

Datum
wms_sql_slide_ts(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_slide(fcinfo, time_argument(fcinfo, TSRANGEOID));
	return next_of_scan(fcinfo);
}

Datum
wms_sql_slide_range(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_slide(fcinfo, range_argument(fcinfo));
	return next_of_scan(fcinfo);
}

Datum
wms_sql_cumulate_tz(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_cumulate(fcinfo, time_argument(fcinfo, TSTZRANGEOID));
	return next_of_scan(fcinfo);
}

Datum
wms_sql_cumulate_ts(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_cumulate(fcinfo, time_argument(fcinfo, TSRANGEOID));
	return next_of_scan(fcinfo);
}

Datum
wms_sql_cumulate_range(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_cumulate(fcinfo, range_argument(fcinfo));
	return next_of_scan(fcinfo);
}
