/*
 * source_bundle.c
 *	  Rows of a batch that several streams read, gathered by table and taken apart once.
 *
 * Each stream reads a batch by itself, and finding a row and taking its columns out of it costs as much as what most streams do with them.  So
 * where several streams have yet to read a batch, the first one that can read many rows at a time makes *bundles* of it: inserted rows of one
 * table that follow each other in one shape, however rows of other tables lie between them.  Columns are taken out of a bundle's
 * rows when a stream first asks for them, and stay for the next one.
 *
 * A batch has bundles or has not: it has none if it is small, if some of its rows lie in a file, if they would take too much memory, and once they
 * were let go.  Tables with other changes than inserts are known; streams that read one of them read change by change, as do those that are in the
 * midst of the batch.  A batch of queue tables is one stream's own.
 *
 * Memory.  Bundles lie in a context below their batch's and point to its rows, which must be in memory whenever they are read: that is asked
 * before each reading, and bundles of a store that was written to disk meanwhile go then.  All bundles of the process stay below a quarter of
 * wmstream.batch_memory: for new ones those of the oldest batch go, which is read by few streams any more; a bundle for whose
 * columns there is no room even then is read without them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

#define FEW_ROWS 64				/* for which bundles are not worth it */
#define INTERRUPT_CHANGES 0x4000	/* gathered between two looks for interrupts */

struct WmsBundles
{
	dlist_node	node;			/* in all_bundles, while context is there */
	MemoryContext context;		/* NULL: let go, for good */
	Size		memory;
	bool		complete;		/* else there was no room, or an error came while something was made */
	List	   *bundles;		/* WmsBundle *, by their first rows */
	List	   *others;			/* tables with other changes than inserts */
};

#define ROW_SIZE (sizeof(HeapTupleHeader) + sizeof(uint32))

/* While they are made: what comes of a table. */
typedef struct Filling
{
	Oid			relid;
	bool		others;			/* it has other changes than inserts */
	WmsBundle  *bundle;			/* for the next row; NULL: that begins one */
} Filling;

static dlist_head all_bundles = DLIST_STATIC_INIT(all_bundles); /* oldest first */
static Size bundle_memory = 0;	/* of all of them */

static Size
memory_limit(void)
{
	return (Size) wms_batch_memory * 1024 / 4;
}

static void
let_go(WmsBundles *bundles)
{
	if (bundles->context == NULL)
		return;
	dlist_delete(&bundles->node);
	bundle_memory -= bundles->memory;
	MemoryContextDelete(bundles->context);
	bundles->context = NULL;
	bundles->bundles = bundles->others = NIL;
}

/* False: there is none. */
static bool
make_room(WmsBundles *bundles, Size size)
{
	while (bundle_memory + size > memory_limit())
	{
		WmsBundles *oldest = dlist_head_element(WmsBundles, node, &all_bundles);

		if (oldest == bundles)
			return false;
		let_go(oldest);
	}
	bundles->memory += size;
	bundle_memory += size;
	return true;
}

void
wms_bundles_free(WmsBatch *batch)
{
	if (batch->bundles)
		let_go(batch->bundles);
}

/* ---------------------------------------------------------------- gathering */

static WmsBundle *
begin_bundle(WmsBundles *bundles, const WmsRowShape *shape, int room)
{
	WmsBundle  *bundle;

	if (!make_room(bundles, sizeof(WmsBundle) + ROW_SIZE * room))
		return NULL;
	bundle = MemoryContextAllocZero(bundles->context, sizeof(WmsBundle));
	bundle->shape = shape;
	bundle->rows = MemoryContextAlloc(bundles->context, sizeof(HeapTupleHeader) * room);
	bundle->lens = MemoryContextAlloc(bundles->context, sizeof(uint32) * room);
	bundles->bundles = lappend(bundles->bundles, bundle);
	return bundle;
}

/* True: it is full. */
static bool
add_row(WmsBundle *bundle, const WmsChange *change, int room)
{
	bundle->rows[bundle->nrows] = change->tuple.t_data;
	bundle->lens[bundle->nrows] = change->tuple.t_len;
	bundle->bytes += change->tuple.t_len;
	bundle->xid = change->xid;
	bundle->end_lsn = change->end_lsn;
	return ++bundle->nrows == room || bundle->bytes >= WMS_BUNDLE_BYTES;
}

static Filling *
filling_of(HTAB *fillings, Oid relid)
{
	bool		found;
	Filling    *filling = hash_search(fillings, &relid, HASH_ENTER, &found);

	if (!found)
	{
		filling->others = false;
		filling->bundle = NULL;
	}
	return filling;
}

static HTAB *
make_fillings(MemoryContext context)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(Filling),.hcxt = context};

	return hash_create("wmstream bundles being filled", 8, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* False: no room. */
static bool
gather_change(WmsBundles *bundles, Filling *filling, const WmsChange *change, int room)
{
	if (change->kind != WMS_CHANGE_INSERT || change->missing_toast || change->fleeting)
	{
		if (!filling->others)
			bundles->others = lappend_oid(bundles->others, filling->relid);
		filling->others = true;
	}
	if (filling->others)
		return true;			/* nobody will read its bundles */
	if (filling->bundle == NULL || filling->bundle->shape != change->shape)
		filling->bundle = begin_bundle(bundles, change->shape, room);
	if (filling->bundle == NULL)
		return false;
	if (add_row(filling->bundle, change, room))
		filling->bundle = NULL;
	return true;
}

/* False: they take too much. */
static bool
gather(WmsBatch *batch, WmsBundles *bundles)
{
	HTAB	   *fillings = make_fillings(bundles->context);
	int			room = (int) Min(batch->nrows, WMS_BUNDLE_ROWS);
	Filling    *filling = NULL;
	int64		n = 0;
	WmsChange	change;

	wms_batch_rewind(batch, InvalidXLogRecPtr);
	while (wms_batch_next(batch, &change))
	{
		if (n++ % INTERRUPT_CHANGES == 0)
			CHECK_FOR_INTERRUPTS();
		if (filling == NULL || filling->relid != change.shape->relid)
			filling = filling_of(fillings, change.shape->relid);
		if (!gather_change(bundles, filling, &change, room))
			return false;
	}
	hash_destroy(fillings);
	return true;
}

static void
make_bundles(WmsBatch *batch)
{
	MemoryContext parent = GetMemoryChunkContext(batch);
	WmsBundles *bundles = MemoryContextAllocZero(parent, sizeof(WmsBundles));
	MemoryContext old;

	bundles->context = AllocSetContextCreate(parent, "wmstream bundles", ALLOCSET_DEFAULT_SIZES);
	dlist_push_tail(&all_bundles, &bundles->node);
	batch->bundles = bundles;
	old = MemoryContextSwitchTo(bundles->context);
	bundles->complete = gather(batch, bundles);
	MemoryContextSwitchTo(old);
}

/* ---------------------------------------------------------------- reading */

/* Are bundles worth being made?  Of few rows, only if that is tried on purpose. */
static bool
worth_it(const WmsBatch *batch)
{
	return batch->refs >= wms_bundle_from && (batch->nrows >= FEW_ROWS || wms_bundle_from == 1) &&
		(Size) batch->nrows * ROW_SIZE < memory_limit();
}

bool
wms_bundles_begin(WmsBatch *batch, XLogRecPtr after, const List *relids)
{
	const ListCell *lc;

	if (batch->existing || !wms_batch_is_whole(batch, after))
		return false;
	if (!wms_batch_in_memory(batch))
	{
		wms_bundles_free(batch);
		return false;
	}
	if (batch->bundles == NULL && worth_it(batch))
		make_bundles(batch);
	if (batch->bundles == NULL)
		return false;
	if (!batch->bundles->complete)
		let_go(batch->bundles);
	foreach(lc, relids)
		if (list_member_oid(batch->bundles->others, lfirst_oid(lc)))
			return false;
	return batch->bundles->context != NULL;
}

WmsBundle *
wms_bundles_get(const WmsBatch *batch, int i)
{
	return i < list_length(batch->bundles->bundles) ? list_nth(batch->bundles->bundles, i) : NULL;
}

/* ---------------------------------------------------------------- columns */

static void
begin_column(WmsBundles *bundles, WmsBundle *bundle, int column)
{
	WmsColumn  *into = &bundle->columns[column];

	into->isnull = MemoryContextAllocZero(bundles->context, sizeof(bool) * bundle->nrows);
	into->values = MemoryContextAlloc(bundles->context, sizeof(Datum) * bundle->nrows);
}

/* They become known when a row without NULLs has been taken apart by the whole. */
static bool
offsets_known(TupleDesc desc, const int *columns, int n)
{
	bool		known = true;

	for (int i = 0; i < n && known; i++)
		known = WmsCachedOffset(desc, columns[i]) >= 0;
	return known;
}

/* Has it all columns, so that each stands where it stands in every such row? */
static inline bool
is_even(HeapTupleHeader row, TupleDesc desc)
{
	return (row->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(row) == desc->natts;
}

static void
take_at_offsets(WmsBundle *bundle, int row, const int *columns, int n)
{
	const char *data = (char *) bundle->rows[row] + bundle->rows[row]->t_hoff;

	for (int i = 0; i < n; i++)
	{
		Form_pg_attribute att = TupleDescAttr(bundle->shape->desc, columns[i]);

		bundle->columns[columns[i]].values[row] = fetch_att(data + WmsCachedOffset(bundle->shape->desc, columns[i]), att->attbyval, att->attlen);
	}
}

/* values and isnull: room for a whole row. */
static void
take_slowly(WmsBundle *bundle, int row, const int *columns, int n, Datum *values, bool *isnull)
{
	HeapTupleData tuple = {.t_len = bundle->lens[row],.t_data = bundle->rows[row]};

	heap_deform_tuple(&tuple, bundle->shape->desc, values, isnull);
	for (int i = 0; i < n; i++)
	{
		WmsColumn  *into = &bundle->columns[columns[i]];

		into->values[row] = values[columns[i]];
		into->isnull[row] = isnull[columns[i]];
		into->has_nulls |= isnull[columns[i]];
	}
}

static void
take_rows(WmsBundle *bundle, const int *columns, int n)
{
	TupleDesc	desc = bundle->shape->desc;
	Datum	   *values = palloc(sizeof(Datum) * desc->natts);
	bool	   *isnull = palloc(sizeof(bool) * desc->natts);
	bool		known = offsets_known(desc, columns, n);

	for (int row = 0; row < bundle->nrows; row++)
	{
		bool		even = is_even(bundle->rows[row], desc);

		if (even && known)
			take_at_offsets(bundle, row, columns, n);
		else
			take_slowly(bundle, row, columns, n, values, isnull);
		if (even && !known)
			known = offsets_known(desc, columns, n);
	}
	pfree(values);
	pfree(isnull);
}

/* Those that are not there yet. */
static int
missing_columns(const WmsBundle *bundle, const int *columns, int n, int *missing)
{
	int			nmissing = 0;

	for (int i = 0; i < n; i++)
		if (bundle->columns[columns[i]].values == NULL)
			missing[nmissing++] = columns[i];
	return nmissing;
}

/* Makes the list of columns; false: no room. */
static bool
begin_columns(WmsBundles *bundles, WmsBundle *bundle)
{
	Size		size = sizeof(WmsColumn) * bundle->shape->desc->natts;

	if (bundle->columns)
		return true;
	if (!make_room(bundles, size))
		return false;
	bundle->columns = MemoryContextAllocZero(bundles->context, size);
	return true;
}

static void
take_missing(WmsBundles *bundles, WmsBundle *bundle, const int *columns, int n)
{
	bundles->complete = false;	/* until they hold what they promise */
	for (int i = 0; i < n; i++)
		begin_column(bundles, bundle, columns[i]);
	take_rows(bundle, columns, n);
	bundles->complete = true;
}

bool
wms_bundle_take(WmsBatch *batch, WmsBundle *bundle, const int *columns, int n)
{
	WmsBundles *bundles = batch->bundles;
	int		   *missing;
	int			nmissing;
	bool		taken;

	if (!begin_columns(bundles, bundle))
		return false;
	missing = palloc(sizeof(int) * Max(n, 1));
	nmissing = missing_columns(bundle, columns, n, missing);
	taken = nmissing == 0 || make_room(bundles, (sizeof(Datum) + sizeof(bool)) * bundle->nrows * nmissing);
	if (taken && nmissing > 0)
		take_missing(bundles, bundle, missing, nmissing);
	pfree(missing);
	return taken;
}
