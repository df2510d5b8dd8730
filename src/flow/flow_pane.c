/*
 * flow_pane.c
 *	  Sliding windows that share work.
 *
 * Windows of a grid that overlap are cut into *panes*, as long as the greatest common divisor of size and slide, so that every window is a
 * run of whole panes.  A row is aggregated once, into its pane; when a window closes, the states of its panes are combined, group by group.
 * Where a row would otherwise go into size / slide windows, it goes into one pane.
 *
 * Panes are buckets [start of the pane, end of the last window that holds it): they leave when that window has closed.  A row that is late
 * for some of its windows and on time for others goes into its pane all the same: the windows it is late for have been emitted.
 *
 * A row that comes within the allowed lateness of windows that were emitted has them put together once more, whole.
 *
 * Ends of windows are not cut to what a timestamp can be here, or several windows at the end of time would have one end; what is
 * shown is, and when W comes to the last time all have passed.
 *
 * Only in append mode, and where all states can be combined; else each window has states of its own.  Both give the same rows.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "flow/flow_internal.h"

#define FIRST_GROUPS 256
#define SIZE_MAX_US (3650 * USECS_PER_DAY)	/* so that sums of an end, size and slide do not overflow */

/* A group of the window that is being put together. */
typedef struct PaneGroup
{
	uint32		hash;
	uint32		key_len;
	const char *key;			/* NULL: free place */
	FlowState  *states;
} PaneGroup;

/* Open addressing, at most half full; lives in flow->pane_memory with the states. */
typedef struct PaneGroups
{
	FlowOp	   *op;
	int64		size;
	int64		used;
	PaneGroup  *places;
} PaneGroups;

static int64
common_divisor(int64 a, int64 b)
{
	while (b != 0)
	{
		int64		rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static bool
all_combine(FlowOp *op)
{
	for (int i = 0; i < op->nfast; i++)
		if (!OidIsValid(op->fast[i].combinefn.fn_oid) || OidIsValid(op->fast[i].inversefn.fn_oid))
			return false;
	return !op->has_kept;
}

void
wms_flow_pane_prepare(WmsFlow *flow, FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;
	const WmsWindowSpec *window = &plan->window;
	bool		top = plan->id == flow->plan->top_op;
	int64		pane;

	if (plan->kind != WMS_OP_AGGREGATE || window->kind != WMS_WINDOW_GRID || plan->time_column == 0 ||
		window->size == window->slide || window->size > SIZE_MAX_US || !plan->bounded || plan->retracts || !all_combine(op))
		return;
	if (top && flow->def->output_mode != WMS_APPEND)
		return;
	pane = common_divisor(window->size, window->slide);
	if (window->size / pane > 4 * (window->size / window->slide + 1))
		return;					/* more panes to combine than windows to update */
	op->panes = true;
	op->pane = *window;
	op->pane.size = op->pane.slide = pane;
}

/* ---------------------------------------------------------------- times */

/* The pane of a time, with the first and the last end of the windows that hold it. */
static void
pane_of(FlowOp *op, WmsTime time, WmsWindow *pane, WmsTime *first_end, WmsTime *last_end)
{
	WmsWindowSpec tumbling = op->plan->window;
	WmsWindow	start;
	WmsWindow	first;

	(void) wms_window_first(&op->pane, time, pane);
	(void) wms_window_first(&op->plan->window, time, &first);
	tumbling.size = tumbling.slide;
	(void) wms_window_first(&tumbling, time, &start);
	*first_end = first.start > MIN_TIMESTAMP ? first.start + op->plan->window.size : first.end;
	*last_end = start.start + op->plan->window.size;
}

/* The end of the first window after W that holds this pane. */
WmsTime
wms_flow_pane_next_end(FlowOp *op, WmsTime pane_start, WmsTime w)
{
	int64		slide = op->plan->window.slide;
	WmsWindow	pane;
	WmsTime		first,
				last;

	pane_of(op, pane_start, &pane, &first, &last);
	if (first <= w)
		first += (w - first) / slide * slide + slide;
	return first;
}

/* ---------------------------------------------------------------- rows */

/* The bucket of a row's pane: often that of the row before. */
void
wms_flow_pane_bucket(FlowOp *op, WmsTime time, WmsWindow *bucket)
{
	WmsTime		first;

	if (time < op->last_window.start || time >= op->last_window.end)
		pane_of(op, time, &op->last_window, &first, &op->last_pane_end);
	bucket->start = op->last_window.start;
	bucket->end = op->last_pane_end;
}

/* ---------------------------------------------------------------- putting a window together */

static bool
same_key(FlowOp *op, const PaneGroup *group, const WmsEntry *entry)
{
	const WmsStateOps *ops = &op->flow->state_ops[op->plan->id];

	if (group->hash != entry->hash)
		return false;
	if (group->key_len == entry->key_len && memcmp(group->key, entry->key, entry->key_len) == 0)
		return true;
	return ops->match && ops->match(group->key, group->key_len, entry->key, entry->key_len, ops->arg);
}

static PaneGroup *
place_of(PaneGroups *groups, const WmsEntry *entry)
{
	int64		at = entry->hash & (groups->size - 1);

	while (groups->places[at].key && !same_key(groups->op, &groups->places[at], entry))
		at = (at + 1) & (groups->size - 1);
	return &groups->places[at];
}

static void
make_places(PaneGroups *groups, int64 size)
{
	groups->size = size;
	groups->places = MemoryContextAllocExtended(groups->op->flow->pane_memory->ecxt_per_tuple_memory,
												sizeof(PaneGroup) * size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static void
grow(PaneGroups *groups)
{
	PaneGroup  *old = groups->places;
	int64		n = groups->size;

	make_places(groups, n * 2);
	for (int64 i = 0; i < n; i++)
	{
		int64		at = old[i].hash & (groups->size - 1);

		if (old[i].key == NULL)
			continue;
		while (groups->places[at].key)
			at = (at + 1) & (groups->size - 1);
		groups->places[at] = old[i];
	}
}

static PaneGroup *
group_of(PaneGroups *groups, const WmsEntry *entry)
{
	PaneGroup  *group = place_of(groups, entry);
	char	   *key;

	if (group->key)
		return group;
	if (++groups->used * 2 > groups->size)
	{
		grow(groups);
		group = place_of(groups, entry);
	}
	key = MemoryContextAlloc(groups->op->flow->pane_memory->ecxt_per_tuple_memory, MAXALIGN(entry->key_len + 1));
	memcpy(key, entry->key, entry->key_len);
	group->key = key;
	group->key_len = entry->key_len;
	group->hash = entry->hash;
	group->states = wms_flow_states_new(groups->op);
	return group;
}

/* A pane's group goes into the window's. */
static void
add_entry(WmsEntry *entry, void *arg)
{
	PaneGroups *groups = arg;
	FlowOp	   *op = groups->op;
	MemoryContext old = MemoryContextSwitchTo(op->flow->emit_memory->ecxt_per_tuple_memory);
	PaneGroup  *group = group_of(groups, entry);
	FlowState  *states = entry->work;

	if (states == NULL && op->nfast > 0)
	{
		/* only to be read: they live as long as this call */
		op->flow->agg->curaggcontext = op->flow->emit_memory;
		states = wms_flow_states_load(op, entry->value, entry->value_len);
		op->flow->agg->curaggcontext = op->flow->pane_memory;
	}
	wms_flow_states_combine(op, group->states, states);
	MemoryContextSwitchTo(old);
	ReScanExprContext(op->flow->emit_memory);
}

static void
no_kept_rows(WmsFlow *flow, WmsEntry *entry, WmsKeptFn fn, void *arg)
{
}

static void
emit_groups(PaneGroups *groups, WmsTime end)
{
	FlowOp	   *op = groups->op;
	WmsWindow	window;

	wms_window_cut(&window, end - op->plan->window.size, end);
	for (int64 i = 0; i < groups->size; i++)
	{
		PaneGroup  *group = &groups->places[i];
		WmsEntry	shown = {{op->plan->id, window.start, window.end}};

		if (group->key == NULL)
			continue;
		shown.hash = group->hash;
		shown.key = group->key;
		shown.key_len = group->key_len;
		shown.work = group->states;
		wms_flow_emit_entry(op, &shown, no_kept_rows);
	}
}

/* Entries of all panes of a window. */
static void
scan_window(FlowOp *op, WmsTime end, PaneGroups *groups)
{
	WmsBucketKey pane = {op->plan->id, WMS_TIME_MIN, end};

	while (wms_state_next_bucket(op->flow->store, &pane) && pane.start < end)
		wms_state_scan(op->flow->store, &pane, add_entry, groups);
}

static void
emit_window(FlowOp *op, WmsTime end)
{
	WmsFlow    *flow = op->flow;
	ExprContext *states = flow->agg->curaggcontext;
	PaneGroups	groups = {op, 0, 0, NULL};

	CHECK_FOR_INTERRUPTS();
	flow->agg->curaggcontext = flow->pane_memory;
	make_places(&groups, FIRST_GROUPS);
	scan_window(op, end, &groups);
	emit_groups(&groups, end);
	flow->agg->curaggcontext = states;
	ReScanExprContext(flow->pane_memory);
}

/* All windows with data that end in (old, now]. */
void
wms_flow_pane_emit(FlowOp *op, WmsTime old, WmsTime now)
{
	WmsBucketKey pane = {op->plan->id, WMS_TIME_MAX, old};
	WmsTime		end = old;

	while (wms_state_next_bucket(op->flow->store, &pane))
	{
		end = wms_flow_pane_next_end(op, pane.start, end);
		if (end > now)
			break;
		emit_window(op, end);
		/* on from the first pane that a later window holds */
		pane.start = WMS_TIME_MAX;
		pane.end = end;
	}
}

typedef struct Touched
{
	FlowOp	   *op;
	WmsTime		last_pane;		/* start of the pane looked at last: entries come in runs */
	List	   *panes;			/* starts, as pointers to WmsTime */
} Touched;

static void
note_touched(WmsEntry *entry, void *arg)
{
	Touched    *touched = arg;
	WmsTime    *start;

	if (!(entry->flags & WMS_ENTRY_PENDING))
		return;
	entry->flags &= ~WMS_ENTRY_PENDING;
	if (touched->panes != NIL && touched->last_pane == entry->bucket.start)
		return;
	touched->last_pane = entry->bucket.start;
	start = palloc(sizeof(WmsTime));
	*start = entry->bucket.start;
	touched->panes = lappend(touched->panes, start);
}

static int
by_time(const ListCell *a, const ListCell *b)
{
	WmsTime		x = *(WmsTime *) lfirst(a);
	WmsTime		y = *(WmsTime *) lfirst(b);

	return x < y ? -1 : (x > y ? 1 : 0);
}

/* Windows that were emitted, ended by old and are not gone, and hold a pane that rows came into since. */
void
wms_flow_pane_emit_again(FlowOp *op, WmsTime old)
{
	Touched		touched = {op, WMS_TIME_MIN, NIL};
	WmsTime		done = op->flow->progress->gone_upto;
	ListCell   *lc;

	wms_state_scan_touched(op->flow->store, op->plan->id, note_touched, &touched);
	list_sort(touched.panes, by_time);
	foreach(lc, touched.panes)
	{
		WmsTime		start = *(WmsTime *) lfirst(lc);
		WmsTime		end = wms_flow_pane_next_end(op, start, done);

		for (; end <= old && start >= end - op->plan->window.size; end += op->plan->window.slide)
		{
			emit_window(op, end);
			done = end;
		}
	}
}

/* ---------------------------------------------------------------- readers */

/* Copies of entries of panes, in order of the panes. */
typedef struct PaneCopies
{
	FlowOp	   *op;
	int64		n;
	int64		room;
	WmsEntry   *entries;
} PaneCopies;

static int
by_start(const void *a, const void *b)
{
	const WmsEntry *x = a;
	const WmsEntry *y = b;

	return x->bucket.start < y->bucket.start ? -1 : (x->bucket.start > y->bucket.start ? 1 : 0);
}

static void
note_entry(WmsEntry *entry, void *arg)
{
	PaneCopies *copies = arg;

	if (entry->bucket.op != copies->op->plan->id)
		return;
	if (copies->n == copies->room)
	{
		copies->room = copies->room ? copies->room * 2 : 1024;
		copies->entries = copies->entries ?
			repalloc_huge(copies->entries, sizeof(WmsEntry) * copies->room) :
			palloc_extended(sizeof(WmsEntry) * copies->room, MCXT_ALLOC_HUGE);
	}
	copies->entries[copies->n++] = *entry;
}

/* The open windows, those after w, of the panes that the snapshot may see; false: the state is not in memory. */
bool
wms_flow_pane_read(FlowOp *op, const WmsReading *reading, WmsTime w)
{
	PaneCopies	copies = {op, 0, 0, NULL};
	int64		size = op->plan->window.size;
	WmsTime		end = w;
	int64		first = 0;

	if (!wms_state_read(reading, note_entry, &copies))
		return false;
	if (copies.n == 0)
		return true;
	qsort(copies.entries, copies.n, sizeof(WmsEntry), by_start);
	while (first < copies.n)
	{
		PaneGroups	groups = {op, 0, 0, NULL};
		ExprContext *states = op->flow->agg->curaggcontext;

		end = wms_flow_pane_next_end(op, copies.entries[first].bucket.start, end);
		while (first < copies.n && copies.entries[first].bucket.start < end - size)
			first++;
		if (first == copies.n)
			break;
		if (copies.entries[first].bucket.start >= end)
			continue;
		CHECK_FOR_INTERRUPTS();
		op->flow->agg->curaggcontext = op->flow->pane_memory;
		make_places(&groups, FIRST_GROUPS);
		for (int64 i = first; i < copies.n && copies.entries[i].bucket.start < end; i++)
			add_entry(&copies.entries[i], &groups);
		emit_groups(&groups, end);
		op->flow->agg->curaggcontext = states;
		ReScanExprContext(op->flow->pane_memory);
	}
	return true;
}
