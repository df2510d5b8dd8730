/*
 * base_seen.c
 *	  Which transactions a reader of queue tables has had.
 *
 * A WmsSeen is what an MVCC snapshot says of top-level transactions, with xids that do not wrap: all before xmax have been seen, but for
 * those in xip, which were running.  It is a stream's position in the queues that it reads.  Any such value is a
 * position, also one that no snapshot ever was: a reader that stops between two transactions has seen those that it read, in
 * whatever order they committed.
 *
 * Outside of this library it is a pg_snapshot.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapshot.h"

#include "base/base.h"

static int
compare_xids(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

WmsSeen *
wms_seen_make(uint64 xmax, uint32 room)
{
	WmsSeen    *seen = palloc_extended(WmsSeenSize(room), MCXT_ALLOC_HUGE);

	seen->xmax = xmax;
	seen->nxip = 0;
	return seen;
}

WmsSeen *
wms_seen_copy(const WmsSeen *seen)
{
	WmsSeen    *copy = wms_seen_make(seen->xmax, seen->nxip);

	memcpy(copy, seen, WmsSeenSize(seen->nxip));
	return copy;
}

bool
wms_seen_running(const WmsSeen *seen, uint64 xid)
{
	return seen->nxip > 0 && bsearch(&xid, seen->xip, seen->nxip, sizeof(uint64), compare_xids) != NULL;
}

/* An xid that was assigned not long ago. */
static uint64
widen(TransactionId xid, FullTransactionId next)
{
	uint32		epoch = EpochFromFullTransactionId(next);

	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, xid));
}

/* While a transaction is being prepared its xid is there twice. */
static void
sort_and_unify(WmsSeen *seen)
{
	uint32		n = 0;

	qsort(seen->xip, seen->nxip, sizeof(uint64), compare_xids);
	for (uint32 i = 0; i < seen->nxip; i++)
		if (n == 0 || seen->xip[i] != seen->xip[n - 1])
			seen->xip[n++] = seen->xip[i];
	seen->nxip = n;
}

WmsSeen *
wms_seen_of_snapshot(Snapshot snapshot)
{
	FullTransactionId next = ReadNextFullTransactionId();
	WmsSeen    *seen = wms_seen_make(widen(snapshot->xmax, next), snapshot->xcnt);

	for (uint32 i = 0; i < snapshot->xcnt; i++)
		seen->xip[seen->nxip++] = widen(snapshot->xip[i], next);
	sort_and_unify(seen);
	return seen;
}

/* The snapshot does not hold its own transaction; what lies between it and xmax has not ended. */
WmsSeen *
wms_seen_with_own(const WmsSeen *seen, uint64 own)
{
	WmsSeen    *all;

	if (own < seen->xmax)
		return wms_seen_copy(seen);
	all = wms_seen_make(own + 1, seen->nxip + (uint32) (own - seen->xmax));
	memcpy(all->xip, seen->xip, sizeof(uint64) * seen->nxip);
	all->nxip = seen->nxip;
	for (uint64 xid = seen->xmax; xid < own; xid++)
		all->xip[all->nxip++] = xid;
	return all;
}

Datum
wms_seen_to_datum(const WmsSeen *seen)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, UINT64_FORMAT ":" UINT64_FORMAT ":", seen->nxip > 0 ? seen->xip[0] : seen->xmax, seen->xmax);
	for (uint32 i = 0; i < seen->nxip; i++)
		appendStringInfo(&text, "%s" UINT64_FORMAT, i > 0 ? "," : "", seen->xip[i]);
	return DirectFunctionCall1(pg_snapshot_in, CStringGetDatum(text.data));
}

WmsSeen *
wms_seen_from_datum(Datum snapshot)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(pg_snapshot_out, snapshot));
	char	   *at = strchr(text, ':') + 1;
	uint32		room = 1;
	WmsSeen    *seen;

	for (char *c = at; *c; c++)
		room += (*c == ',');
	seen = wms_seen_make(strtoull(at, &at, 10), room);
	while (*at == ':' || *at == ',')
	{
		if (at[1] == '\0')
			break;
		seen->xip[seen->nxip++] = strtoull(at + 1, &at, 10);
	}
	pfree(text);
	return seen;
}

AttrNumber
wms_queue_column(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && att->atttypid == XID8OID && att->attgenerated == ATTRIBUTE_GENERATED_STORED &&
			strcmp(NameStr(att->attname), WMS_QUEUE_COLUMN) == 0)
			return i + 1;
	}
	return InvalidAttrNumber;
}
