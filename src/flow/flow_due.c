/*
 * flow_due.c
 *	  Which rows of a join leave next.
 *
 * Of the bucket that W stands in the middle of, rows are null-extended one by one, as W passes them.  Looking at all of the bucket's
 * rows at each firing would cost far more than what leaves, where firings are many.  So one scan of the bucket
 * gathers the rows that have no partner yet, and when they are due, and firings take them from there until it ends.
 *
 * The list holds those that are due first, up to a time (upto), wms_due_rows of them or an eighth of the bucket; beyond that the
 * bucket is scanned again.  Rows that come into the bucket meanwhile are added; those that find a partner stay in the list, and are
 * seen to have one when their turn comes.  When it would grow out of proportion it is forgotten.
 *
 * It lies in memory of the flow and is worth a scan, nothing more: forgotten where the state is not as it left it (wms_flow_due_begin).
 *
 * A row is named by its key and its number among the kept rows of the key's entry.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "flow/flow_internal.h"

#define FIRST_ROOM 64

struct FlowDue
{
	MemoryContext context;		/* rows, and keys that are not small */
	WmsBucketKey bucket;
	bool		known;			/* rows are those of the bucket that are due by upto */
	bool		gathering;
	WmsTime		upto;
	int64		seen;			/* rows that the scan showed, */
	int64		added;			/* and that came since */
	int64		nrows;
	int64		room;
	FlowDueRow *rows;			/* a heap, the next one first; unordered while they are gathered */
	uint64		version;		/* of the state at the beginning of the batch, */
	bool		changed;		/* in which this was changed */
};

FlowDue *
wms_flow_due_make(MemoryContext parent)
{
	FlowDue    *due = palloc0(sizeof(FlowDue));

	due->context = AllocSetContextCreate(parent, "wmstream rows that are due", ALLOCSET_DEFAULT_SIZES);
	return due;
}

static void
forget(FlowDue *due)
{
	MemoryContextReset(due->context);
	due->rows = NULL;
	due->nrows = due->room = due->seen = due->added = 0;
	due->known = due->gathering = false;
}

/* A batch begins; version: of the state. */
void
wms_flow_due_begin(FlowDue *due, uint64 version)
{
	bool		committed = version == due->version + 1;

	if (due->gathering || (!committed && (due->changed || version != due->version)))
		forget(due);
	due->version = version;
	due->changed = false;
}

/* ---------------------------------------------------------------- order */

const char *
wms_flow_due_key(const FlowDueRow *row)
{
	return row->key_len <= sizeof(row->key.small) ? row->key.small : row->key.large;
}

static int
by_time(const void *a, const void *b)
{
	const FlowDueRow *x = a;
	const FlowDueRow *y = b;

	return x->at < y->at ? -1 : x->at > y->at ? 1 : 0;
}

static int
compare_entries(const FlowDueRow *x, const FlowDueRow *y)
{
	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	if (x->key_len != y->key_len)
		return x->key_len < y->key_len ? -1 : 1;
	return memcmp(wms_flow_due_key(x), wms_flow_due_key(y), x->key_len);
}

/* Are they of one entry? */
bool
wms_flow_due_together(const FlowDueRow *x, const FlowDueRow *y)
{
	return compare_entries(x, y) == 0;
}

/* Rows of one entry stand together, in the order of their numbers. */
static int
by_entry(const void *a, const void *b)
{
	const FlowDueRow *x = a;
	const FlowDueRow *y = b;
	int			entries = compare_entries(x, y);

	if (entries != 0)
		return entries;
	return x->number < y->number ? -1 : x->number > y->number ? 1 : 0;
}

static void
sift_up(FlowDue *due, int64 at)
{
	FlowDueRow	row = due->rows[at];

	for (; at > 0 && due->rows[(at - 1) / 2].at > row.at; at = (at - 1) / 2)
		due->rows[at] = due->rows[(at - 1) / 2];
	due->rows[at] = row;
}

/* The first row is taken away. */
static void
remove_first(FlowDue *due)
{
	FlowDueRow	row = due->rows[--due->nrows];
	int64		at = 0;
	int64		child;

	while ((child = 2 * at + 1) < due->nrows)
	{
		if (child + 1 < due->nrows && due->rows[child + 1].at < due->rows[child].at)
			child++;
		if (due->rows[child].at >= row.at)
			break;
		due->rows[at] = due->rows[child];
		at = child;
	}
	due->rows[at] = row;
}

/* ---------------------------------------------------------------- rows come */

static int64
limit_of(const FlowDue *due)
{
	return wms_due_rows == 0 ? 0 : Max(wms_due_rows, due->seen / 8);
}

/* Only the earlier half stays.  Of rows that are due at one time either all stay or none. */
static void
cut(FlowDue *due)
{
	int64		keep = due->nrows / 2;

	qsort(due->rows, due->nrows, sizeof(FlowDueRow), by_time);
	due->upto = due->rows[keep].at - 1;
	while (due->nrows > 0 && due->rows[due->nrows - 1].at > due->upto)
	{
		FlowDueRow *row = &due->rows[--due->nrows];

		if (row->key_len > sizeof(row->key.small))
			pfree(row->key.large);
	}
}

static void
grow(FlowDue *due)
{
	due->room = due->room == 0 ? FIRST_ROOM : due->room * 2;
	if (due->rows)
		due->rows = repalloc_huge(due->rows, due->room * sizeof(FlowDueRow));
	else
		due->rows = MemoryContextAllocHuge(due->context, due->room * sizeof(FlowDueRow));
}

/* The bucket is going to be scanned: all rows of it that are not due yet and have no partner will be added. */
void
wms_flow_due_gather(FlowDue *due, const WmsBucketKey *bucket)
{
	forget(due);
	due->bucket = *bucket;
	due->upto = WMS_TIME_MAX;
	due->gathering = true;
	due->changed = true;
}

void
wms_flow_due_gathered(FlowDue *due)
{
	if (due->nrows > 1)
		qsort(due->rows, due->nrows, sizeof(FlowDueRow), by_time);
	due->gathering = false;
	due->known = true;
}

static bool
is_about(const FlowDue *due, const WmsBucketKey *bucket)
{
	return (due->known || due->gathering) &&
		due->bucket.op == bucket->op && due->bucket.start == bucket->start && due->bucket.end == bucket->end;
}

static void
append(FlowDue *due, WmsTime at, int64 number, uint32 hash, const char *key, uint32 key_len)
{
	FlowDueRow *row;

	if (due->nrows == due->room)
		grow(due);
	row = &due->rows[due->nrows++];
	row->at = at;
	row->number = number;
	row->hash = hash;
	row->key_len = key_len;
	if (key_len <= sizeof(row->key.small))
		memcpy(row->key.small, key, key_len);
	else
		row->key.large = memcpy(MemoryContextAllocHuge(due->context, key_len), key, key_len);
}

/* A row of a bucket is due at a time, unless it finds a partner before. */
void
wms_flow_due_add(FlowDue *due, const WmsBucketKey *bucket, WmsTime at, int64 number, uint32 hash, const char *key, uint32 key_len)
{
	int64		limit = limit_of(due);

	if (!is_about(due, bucket))
		return;
	due->changed = true;
	if (due->gathering)
		due->seen++;
	else if (++due->added > limit)
	{
		forget(due);
		return;
	}
	if (limit == 0)
		due->upto = Min(due->upto, at - 1);
	if (at > due->upto)
		return;
	append(due, at, number, hash, key, key_len);
	if (!due->gathering)
		sift_up(due, due->nrows - 1);
	else if (due->nrows >= 2 * limit)
		cut(due);
}

/* ---------------------------------------------------------------- rows go */

/* Are all rows of the bucket known that are due by now? */
bool
wms_flow_due_covers(const FlowDue *due, const WmsBucketKey *bucket, WmsTime now)
{
	return due->known && is_about(due, bucket) && now <= due->upto;
}

/*
 * Takes the rows that are due by now, in the order of entries and numbers; how many.  In the current context, but for keys, which stay until rows are
 * gathered again.
 */
int64
wms_flow_due_take(FlowDue *due, WmsTime now, FlowDueRow **rows)
{
	int64		room = FIRST_ROOM;
	int64		n = 0;

	*rows = palloc(room * sizeof(FlowDueRow));
	while (due->nrows > 0 && due->rows[0].at <= now)
	{
		if (n == room)
		{
			room *= 2;
			*rows = repalloc_huge(*rows, room * sizeof(FlowDueRow));
		}
		(*rows)[n++] = due->rows[0];
		remove_first(due);
		due->changed = true;
	}
	if (n > 1)
		qsort(*rows, n, sizeof(FlowDueRow), by_entry);
	return n;
}
