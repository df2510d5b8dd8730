/*
 * base_watermark.c
 *	  Arithmetic of event times: sums, the advance of watermarks, the windows of
 *	  a time.
 *
 * Everything here is a pure function of its arguments: no memory, no catalogs,
 * no errors.  The SQL functions and the worker call the same code, so a query
 * run by hand and a stream cannot disagree about a window.
 *
 * A time is finite or infinite.  Finite times are valid timestamps, from
 * MIN_TIMESTAMP to LAST_TIME.  Results keep to that: a sum that leaves the range
 * becomes infinite, a window bound that leaves it is cut to the nearest valid
 * timestamp.  Spans are at most WMS_SPAN_MAX (wms_window_spec sees to it), which
 * is small enough that a valid time minus a span never overflows; only sums that
 * grow need care.
 *
 * Two windows that differ only beyond the valid range are cut to the same
 * bounds; they count as one window and are returned once.  The very last
 * microsecond cannot lie inside a half-open window whose end is valid; it is given
 * to the window that ends with it.
 */
#include "postgres.h"

#include "common/int.h"

#include "base/base.h"

#define LAST_TIME WMS_LAST_TIME

/* 1970-01-01 00:00, where window grids are anchored. */
#define UNIX_EPOCH ((WmsTime) (UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

/* Remainder in [0, divisor), also for negative values. */
static int64
floor_mod(int64 value, int64 divisor)
{
	int64		rest = value % divisor;

	return rest < 0 ? rest + divisor : rest;
}

/* a + b, clamped to the range of int64. */
static int64
saturating_add(int64 a, int64 b)
{
	int64		sum;

	if (pg_add_s64_overflow(a, b, &sum))
		return b < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return sum;
}

WmsTime
wms_time_add(WmsTime a, int64 span)
{
	WmsTime		sum;

	if (!WmsTimeIsFinite(a))
		return a;
	sum = saturating_add(a, span);
	if (sum < MIN_TIMESTAMP)
		return WMS_TIME_MIN;
	if (sum > LAST_TIME)
		return WMS_TIME_MAX;
	return sum;
}

WmsTime
wms_grid_end(int64 cell, WmsTime t)
{
	int64		rest = t % cell;

	if (!WmsTimeIsFinite(t))
		return t;
	if (rest < 0)
		rest += cell;
	return rest == 0 ? t : wms_time_add(t, cell - rest);
}

WmsTime
wms_watermark_advance(WmsTime current, WmsTime candidate)
{
	return Max(current, candidate);
}

int64
wms_interval_us(const Interval *interval, int month_days, bool *has_months)
{
	int64		days = (int64) interval->day + (int64) interval->month * month_days;
	int64		us;

	if (has_months)
		*has_months = interval->month != 0;

	/* Whole days of the time part first: then only a true overflow overflows. */
	days += interval->time / USECS_PER_DAY;
	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &us))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return saturating_add(us, interval->time % USECS_PER_DAY);
}

/* Distance from t back to the start of the grid cell of length period that holds it. */
static int64
into_cell(const WmsWindowSpec *spec, int64 period, WmsTime t)
{
	int64		anchor = floor_mod(UNIX_EPOCH, period) - period + floor_mod(spec->offset, period);

	/* Remainders are below period, so a difference of two never overflows; a sum could. */
	if (anchor < 0)
		anchor += period;
	return floor_mod(floor_mod(t, period) - anchor, period);
}

/* Cuts bounds to valid timestamps; never leaves an empty window. */
void
wms_window_cut(WmsWindow *window, WmsTime start, WmsTime end)
{
	window->end = Min(end, LAST_TIME);
	window->start = Max(start, MIN_TIMESTAMP);
	if (window->start >= window->end)
		window->start = window->end - 1;
}

static void
grid_first(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	int64		into = into_cell(spec, spec->slide, t);
	int64		earlier = (spec->size - 1 - into) / spec->slide;	/* cells before this one that still reach t */
	WmsTime		start = t - into - earlier * spec->slide;

	wms_window_cut(window, start, saturating_add(start, spec->size));
}

/*
 * The start of the window after this one.  Bounds may have been cut: whichever
 * is not tells where the window lies on the grid.  If both are, all windows with
 * a start before the valid range look alike, and the next one is the first that
 * starts inside it.
 */
static bool
grid_next(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	WmsTime		next;

	if (window->start > MIN_TIMESTAMP)
		next = saturating_add(window->start, spec->slide);
	else if (window->end < LAST_TIME)
		next = window->end - spec->size + spec->slide;
	else
	{
		WmsTime		last = t - into_cell(spec, spec->slide, t);

		if (last <= MIN_TIMESTAMP)
			return false;
		next = last - (last - MIN_TIMESTAMP - 1) / spec->slide * spec->slide;
	}

	/* A window from the last microsecond on was cut to one that we gave already. */
	if (next > t || next >= LAST_TIME)
		return false;
	wms_window_cut(window, next, saturating_add(next, spec->size));
	return true;
}

static void
cumulate_first(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	int64		into = into_cell(spec, spec->size, t);
	WmsTime		start = t - into;

	wms_window_cut(window, start, saturating_add(start, (into / spec->slide + 1) * spec->slide));
}

/* All windows of a time share their start; ends beyond the valid range are one. */
static bool
cumulate_next(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	WmsTime		start = t - into_cell(spec, spec->size, t);
	WmsTime		end;

	if (window->end >= LAST_TIME)
		return false;
	end = saturating_add(window->end, spec->slide);
	if (end > saturating_add(start, spec->size))
		return false;
	wms_window_cut(window, start, end);
	return true;
}

bool
wms_window_first(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	if (!WmsTimeIsFinite(t))
		return false;

	switch (spec->kind)
	{
		case WMS_WINDOW_NONE:
			return false;
		case WMS_WINDOW_TIME:
			window->start = t;
			window->end = t + 1;
			return true;
		case WMS_WINDOW_GRID:
			grid_first(spec, t, window);
			return true;
		case WMS_WINDOW_CUMULATE:
			cumulate_first(spec, t, window);
			return true;
		case WMS_WINDOW_SESSION:
			return wms_session_window(t, spec->size, window);
		case WMS_WINDOW_MERGED:
			return false;
	}
	return false;
}

bool
wms_window_next(const WmsWindowSpec *spec, WmsTime t, WmsWindow *window)
{
	if (!WmsTimeIsFinite(t))
		return false;

	switch (spec->kind)
	{
		case WMS_WINDOW_GRID:
			return grid_next(spec, t, window);
		case WMS_WINDOW_CUMULATE:
			return cumulate_next(spec, t, window);
		case WMS_WINDOW_NONE:
		case WMS_WINDOW_TIME:
		case WMS_WINDOW_SESSION:
		case WMS_WINDOW_MERGED:
			return false;
	}
	return false;
}

bool
wms_session_window(WmsTime t, int64 gap, WmsWindow *window)
{
	if (!WmsTimeIsFinite(t) || gap <= 0)
		return false;
	wms_window_cut(window, t, saturating_add(t, gap));
	return true;
}
