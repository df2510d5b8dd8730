/*
 * state_store.c
 *	  A stream's area of shared memory: making, bounding, measuring and freeing
 *	  it.
 *
 * A stream has one area (DSA), made by wms_store_create and pinned, so that it lives until
 * it is freed whole.  Its handle and root stand in the stream's shared slot under the stream's
 * lock; whoever finds them there may attach while holding that lock.
 *
 * The bound.  wmstream.state_memory holds for all areas of a database together.  An area may
 * be as large as its *fence*, which is the area's own size limit: when an allocation does not
 * fit, the fence moves by a fifth of itself if the bound allows.  So segments come in small
 * steps (left alone the allocator would double them; still smaller ones would use up the server's
 * segments), the fence is a fair measure of the area where the server does not tell its size,
 * and the bound is met before COMMIT, as an ERROR.
 * When memory is short, buckets that closed are given up although old snapshots may still ask
 * for them; such readers get an error (see state_read.c).
 *
 * Closed buckets.  A bucket closed by a committed batch stays in the shared list until no snapshot can
 * miss that commit; prepare finds out which these are, begin frees a bounded number of them.
 *
 * Called by the worker only, but for wms_store_free_area.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "state/state_internal.h"
#include "utils/memutils.h"

#define FENCE_FIRST ((Size) 1024 * 1024)
#define FENCE_STEP ((Size) 1024 * 1024)
/* Above this the allocator hands out whole pages. */
#define LARGE_BLOCK 8192
#define PAGE_BYTES 4096
/* What an allocation of pages costs beside them. */
#define LARGE_EXTRA 64

/* Buckets freed per batch; more if more are closed. */
#define COLLECT_BUCKETS 1000
/* Buckets taken out of the shared list per time that the lock is held. */
#define COLLECT_SLICE 256

/* Stores of this process, so that no area is attached twice. */
static WmsStore *open_stores = NULL;
static uint64 stores_made = 0;

/* ---------------------------------------------------------------- allocation */

Size
wms_area_round(Size size)
{
	Size		step;

	if (size > LARGE_BLOCK)
		return TYPEALIGN(PAGE_BYTES, size);
	if (size <= 64)
		return Max(16, TYPEALIGN(8, size));
	if (size > 1024)
		return pg_nextpower2_64(size);
	/* four sizes to each doubling */
	step = ((Size) 1 << pg_leftmost_one_pos64(size - 1)) / 4;
	return TYPEALIGN(step, size);
}

static Size
area_cost(Size size)
{
	Size		rounded = wms_area_round(size);

	return rounded > LARGE_BLOCK ? rounded + LARGE_EXTRA : rounded;
}

static Size
store_local_bytes(WmsStore *store)
{
	return MemoryContextMemAllocated(store->context, true);
}

static Size
store_bytes(WmsStore *store)
{
	return WmsDsaTotalSize(store->area, Max(store->fence, store->used)) + store_local_bytes(store);
}

/* What this store may have in all: the database's bound less what its other streams have. */
static Size
store_bound(WmsStore *store)
{
	WmsFigures	figures;
	int64		others;
	int64		bound = (int64) wms_state_memory * 1024 * 1024;

	wms_stream_figures(store->slot, &figures, NULL);
	others = wms_database_state_bytes(MyDatabaseId) - figures.state_bytes;
	return (Size) Max(bound - Max(others, 0), 0);
}

static bool
fence_move(WmsStore *store, Size step)
{
	if (store->fence + step + store_local_bytes(store) > store_bound(store))
		return false;
	store->fence += step;
	dsa_set_size_limit(store->area, store->fence);
	return true;
}

/* More room for a request that failed: a good step, else what is just enough. */
static bool
fence_advance(WmsStore *store, Size size)
{
	/* an allocation needs a map of its pages, and the segment's own head, beside itself */
	Size		least = TYPEALIGN(PAGE_BYTES, size + size / 256 + 8 * PAGE_BYTES);
	Size		step;

	/* a fence withdrawn may stand behind what came to use again */
	store->fence = Max(store->fence, TYPEALIGN(PAGE_BYTES, store->used));
	step = TYPEALIGN(PAGE_BYTES, Max(FENCE_STEP, store->fence / 5));
	least = Max(least, (Size) 128 * 1024);
	if (fence_move(store, Max(step, least)))
		return true;
	return step > least && fence_move(store, least);
}

/* After much was freed: what the area gave back to the system must not be ours to take again unasked. */
static void
fence_withdraw(WmsStore *store)
{
	Size		target = TYPEALIGN(PAGE_BYTES, store->used + store->used / 4) + 2 * FENCE_STEP;

	if (store->fence / 2 <= target)
		return;
	store->fence = target;
	dsa_set_size_limit(store->area, target);
}

/* Memory is short: frees closed buckets whether snapshots want them or not.  False: there were none. */
static bool
store_drop_closed(WmsStore *store)
{
	if (store->closed_first == NULL)
		return false;
	if (store->nremovable < store->nclosed)
	{
		LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
		store->root->dropped = store->closed_last->shared->closing;
		LWLockRelease(&store->slot->lock);
		store->nremovable = store->nclosed;
	}
	while (store->closed_first != NULL)
		wms_store_collect(store);
	/* what the open batch found out about them does not hold any more */
	if (store->overlay)
		store->overlay->nremovable = 0;
	return true;
}

static void
store_out_of_memory(WmsStore *store)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("the state of the stream does not fit into the memory for state"),
			 errdetail("It has %zu kB, and %zu kB is what wmstream.state_memory (%d MB for all streams of this database) leaves it.",
					   store_bytes(store) / 1024, store_bound(store) / 1024, wms_state_memory),
			 errhint("Raise wmstream.state_memory, or let the watermark close windows sooner.")));
}

void
wms_store_admit(WmsStore *store, Size size)
{
	while (store_bytes(store) + size > store_bound(store))
	{
		if (!store_drop_closed(store))
			store_out_of_memory(store);
	}
}

dsa_pointer
wms_area_allocate(WmsStore *store, int op, Size size)
{
	Size		rounded = wms_area_round(size);
	dsa_pointer dp;

	while (!DsaPointerIsValid(dp = dsa_allocate_extended(store->area, rounded,
														 DSA_ALLOC_HUGE | DSA_ALLOC_NO_OOM)))
	{
		CHECK_FOR_INTERRUPTS();
		if (!fence_advance(store, rounded) && !store_drop_closed(store))
			store_out_of_memory(store);
	}
	store->used += area_cost(size);
	store->sizes[op].bytes += area_cost(size);
	return dp;
}

void
wms_area_free(WmsStore *store, int op, dsa_pointer dp, Size size)
{
	dsa_free(store->area, dp);
	store->used -= area_cost(size);
	store->sizes[op].bytes -= area_cost(size);
}

/* ---------------------------------------------------------------- life */

static void
store_forget(WmsStore *store)
{
	WmsStore  **link;

	for (link = &open_stores; *link != NULL; link = &(*link)->next_open)
	{
		if (*link == store)
		{
			*link = store->next_open;
			break;
		}
	}
}

static WmsStore *
store_of_handle(dsa_handle handle)
{
	WmsStore   *store;

	for (store = open_stores; store != NULL; store = store->next_open)
	{
		if (store->handle == handle)
			return store;
	}
	return NULL;
}

dsa_area *
wms_store_area(dsa_handle handle)
{
	WmsStore   *store = store_of_handle(handle);

	return store ? store->area : NULL;
}

/* Other streams may have its memory now. */
static void
clear_figure(WmsSharedStream *slot)
{
	WmsFigures	figures;

	wms_stream_figures(slot, &figures, NULL);
	figures.state_bytes = 0;
	for (int i = 0; i < WMS_FIGURE_OPS; i++)
		figures.ops[i].state_bytes = 0;
	wms_stream_set_figures(slot, &figures);
}

/* The area leaves the slot and dies when its last user detaches; a store of ours that had it is left without. */
void
wms_store_free_area(WmsSharedStream *slot)
{
	WmsStore   *store;
	dsa_area   *area;

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	if (slot->area != DSA_HANDLE_INVALID)
	{
		store = store_of_handle(slot->area);
		area = store ? store->area : dsa_attach(slot->area);
		slot->area = DSA_HANDLE_INVALID;
		slot->root = InvalidDsaPointer;
		dsa_unpin(area);
		dsa_detach(area);
		if (store)
		{
			store->area = NULL;
			store->root = NULL;
			store_forget(store);
		}
	}
	LWLockRelease(&slot->lock);
	clear_figure(slot);
}

/* No operator has closed anything yet.  In the current context. */
static WmsTime *
horizons_make(int nops)
{
	WmsTime    *horizons = palloc(sizeof(WmsTime) * Max(nops, 1));
	int			op;

	for (op = 0; op < nops; op++)
		horizons[op] = WMS_TIME_MIN;
	return horizons;
}

WmsStore *
wms_store_create(WmsSharedStream *slot, const WmsStateOps *ops, int nops)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "wmstream store", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	WmsStore   *store = palloc0(sizeof(WmsStore));
	dsa_pointer root;

	store->context = context;
	store->number = ++stores_made;
	store->slot = slot;
	store->ops = ops;
	store->nops = nops;
	store->stream = slot->stream;
	store->horizons = horizons_make(nops);
	store->sizes = palloc0(sizeof(WmsStateSize) * Max(nops, 1));
	store->npending = palloc0(sizeof(int64) * Max(nops, 1));
	store->starts = palloc0(sizeof(WmsWalkStart) * Max(nops, 1));
	wms_buckets_init(store);
	wms_rows_reserve(store, 16);

	wms_store_free_area(slot);
	/* the area's locks go under the name that the stream's own lock has */
	store->area = dsa_create(slot->lock.tranche);
	store->handle = dsa_get_handle(store->area);
	store->fence = FENCE_FIRST;
	dsa_set_size_limit(store->area, store->fence);
	root = dsa_allocate0(store->area, sizeof(WmsRoot));
	store->root = wms_area_address(store, root);
	store->root->buckets = InvalidDsaPointer;
	store->root->dropped = InvalidFullTransactionId;
	dsa_pin(store->area);
	dsa_pin_mapping(store->area);

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	slot->area = store->handle;
	slot->root = root;
	LWLockRelease(&slot->lock);

	store->next_open = open_stores;
	open_stores = store;
	MemoryContextSwitchTo(old);
	return store;
}

/* Between two batches.  Horizons stay: what was closed by a shorter span is closed. */
void
wms_store_set_ops(WmsStore *store, const WmsStateOps *ops, int nops)
{
	if (store->overlay)
		elog(ERROR, "operators cannot change while a batch is open");
	if (nops != store->nops)
	{
		MemoryContext old = MemoryContextSwitchTo(store->context);
		WmsTime    *horizons = horizons_make(nops);

		WmsStateSize *sizes = palloc0(sizeof(WmsStateSize) * Max(nops, store->nops));
		int64	   *npending = palloc0(sizeof(int64) * Max(nops, store->nops));

		memcpy(horizons, store->horizons, sizeof(WmsTime) * Min(nops, store->nops));
		memcpy(sizes, store->sizes, sizeof(WmsStateSize) * store->nops);
		memcpy(npending, store->npending, sizeof(int64) * store->nops);
		pfree(store->horizons);
		pfree(store->sizes);
		pfree(store->npending);
		store->horizons = horizons;
		store->sizes = sizes;
		store->npending = npending;
		MemoryContextSwitchTo(old);
	}
	store->ops = ops;
	store->nops = nops;
}

void
wms_store_destroy(WmsStore *store)
{
	if (store->overlay)
	{
		/* the batch dies with its context; it must not find us then */
		store->overlay->store = NULL;
		store->overlay = NULL;
	}
	if (store->area && store->slot->area == store->handle)
		wms_store_free_area(store->slot);
	else if (store->area)
		dsa_detach(store->area);
	store_forget(store);
	MemoryContextDelete(store->context);
}

/* ---------------------------------------------------------------- closed buckets */

/* Takes up to max closed buckets out of the shared list; result linked by order. */
static WmsBucket *
collect_unlink(WmsStore *store, int64 max)
{
	WmsBucket  *first = store->closed_first;
	WmsBucket  *last = NULL;
	int64		n;

	LWLockAcquire(&store->slot->lock, LW_EXCLUSIVE);
	for (n = 0; n < max; n++)
	{
		last = store->closed_first;
		wms_bucket_unlink(store, last);
		store->closed_first = last->order;
	}
	LWLockRelease(&store->slot->lock);
	last->order = NULL;
	if (store->closed_first == NULL)
		store->closed_last = NULL;
	store->nclosed -= max;
	store->nremovable -= max;
	return first;
}

void
wms_store_collect(WmsStore *store)
{
	/* as fast as they come, or they would pile up */
	int64		budget = Max(COLLECT_BUCKETS, store->nremovable / 4);

	while (store->nremovable > 0 && budget > 0)
	{
		int64		n = Min(Min(store->nremovable, budget), COLLECT_SLICE);
		WmsBucket  *bucket = collect_unlink(store, n);

		budget -= n;
		while (bucket != NULL)
		{
			WmsBucket  *next = bucket->order;

			wms_bucket_free(store, bucket);
			bucket = next;
		}
	}
	fence_withdraw(store);
}

/* ---------------------------------------------------------------- figures */

void
wms_store_count(WmsStore *store, const WmsBucket *bucket, int64 entries, int64 kept, int64 buckets)
{
	WmsStateSize *size = &store->sizes[bucket->key.op];

	store->nentries += entries;
	store->nkept += kept;
	store->nbuckets += buckets;
	size->entries += entries;
	size->kept_rows += kept;
	size->buckets += buckets;
}

void
wms_store_flags(WmsStore *store, WmsBucket *bucket, uint8 from, uint8 to)
{
	int			change = ((to & WMS_ENTRY_PENDING) != 0) - ((from & WMS_ENTRY_PENDING) != 0);

	bucket->npending += change;
	store->npending[bucket->key.op] += change;
}

void
wms_state_op_size(WmsStore *store, int op, WmsStateSize *size)
{
	if (op < 0 || op >= store->nops)
		elog(ERROR, "state has no operator %d", op);
	*size = store->sizes[op];
}

void
wms_state_size(WmsStore *store, WmsStateSize *size)
{
	size->entries = store->nentries;
	size->kept_rows = store->nkept;
	size->buckets = store->nbuckets;
	size->bytes = store->area ? (int64) store_bytes(store) : 0;
	size->log_bytes = store->log_bytes;
}

/* Batches in the lower 40 bits. */
uint64
wms_state_version(WmsStore *store)
{
	return (store->number << 40) + store->root->version;
}
