/*
 * source_filled.c
 *	  Which transactions a snapshot saw, as something that outlives the snapshot.
 *
 * Existing rows are read by a snapshot, what comes after them from WAL.  The two meet without a gap or an overlap, though transactions
 * become visible in another order than their commits stand in WAL, because of two things.
 *
 * Everything that committed before *from* (a position in WAL) is seen by the snapshot.  A commit is written to WAL first, then
 * marked in the commit log, then, perhaps much later (synchronous replication), the transaction leaves the list of those that
 * run, and only that makes it visible.  So: the position is taken; whoever is between the first two steps is waited for, as a checkpoint
 * does; a first snapshot then shows who has committed, by the log, and still runs; these are waited for; the second snapshot is the one.
 * Where a synchronous standby is away they may run for days: then it is given up, and tried again later, without the caller's locks meanwhile.
 *
 * What committed after from is passed over when it is read from WAL if the snapshot saw it.  Nothing that commits after *upto*, the
 * end of WAL when the snapshot had been taken, can be among that, so transaction numbers are compared only for a short stretch
 * of WAL, and what is remembered here can be forgotten when the stream has passed it.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "source/source_internal.h"

#define WAIT_US 1000L
#define VISIBLE_MS 1000

/* ---------------------------------------------------------------- taking it */

/*
 * Up to where WAL was inserted.  Where the last record ended with its page, the insert position lies behind the header of a
 * page that is not there yet, and can be neither flushed nor read.
 */
XLogRecPtr
wms_end_of_wal(void)
{
	XLogRecPtr	at = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(at, wal_segment_size) == SizeOfXLogLongPHD)
		return at - SizeOfXLogLongPHD;
	if (at % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return at - SizeOfXLogShortPHD;
	return at;
}

/* Whoever has written a commit to WAL has marked it in the commit log, too. */
static void
wait_for_marks(void)
{
	int			n;
	VirtualTransactionId *vxids = GetVirtualXIDsDelayingChkpt(&n, DELAY_CHKPT_START);

	while (n > 0 && HaveVirtualXIDsDelayingChkpt(vxids, n, DELAY_CHKPT_START))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(WAIT_US);
	}
	pfree(vxids);
}

static void
check_patience(TimestampTz since, TransactionId xid)
{
	if (TimestampDifferenceExceeds(since, GetCurrentTimestamp(), VISIBLE_MS))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("transaction %u, whose rows may be among those to be read, is not visible yet", xid),
				 errdetail("Its commit may wait for a synchronous standby.")));
}

/* Those that have committed and do not show yet. */
static void
wait_for_visibility(void)
{
	TimestampTz since = GetCurrentTimestamp();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TransactionId *committed = palloc(sizeof(TransactionId) * (snapshot->xcnt + 1));
	int			n = 0;

	for (uint32 i = 0; i < snapshot->xcnt; i++)
		if (TransactionIdDidCommit(snapshot->xip[i]))
			committed[n++] = snapshot->xip[i];
	UnregisterSnapshot(snapshot);
	for (int i = 0; i < n; i++)
		while (TransactionIdIsInProgress(committed[i]))
		{
			CHECK_FOR_INTERRUPTS();
			check_patience(since, committed[i]);
			pg_usleep(WAIT_US);
		}
	pfree(committed);
}

static int
compare_xids(const void *a, const void *b)
{
	TransactionId x = *(const TransactionId *) a;
	TransactionId y = *(const TransactionId *) b;

	return x < y ? -1 : (x > y ? 1 : 0);
}

static WmsFilled *
make_filled(int nrunning)
{
	WmsFilled    *filled = palloc0(offsetof(WmsFilled, running) + sizeof(TransactionId) * Max(nrunning, 1));

	filled->nrunning = nrunning;
	return filled;
}

Snapshot
wms_filled_take(WmsFilled **filled)
{
	XLogRecPtr	from = wms_end_of_wal();
	Snapshot	snapshot;

	XLogFlush(from);
	wait_for_marks();
	wait_for_visibility();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	*filled = make_filled((int) snapshot->xcnt);
	(*filled)->from = from;
	(*filled)->upto = GetXLogInsertRecPtr();
	(*filled)->xmin = snapshot->xmin;
	(*filled)->xmax = snapshot->xmax;
	memcpy((*filled)->running, snapshot->xip, sizeof(TransactionId) * snapshot->xcnt);
	qsort((*filled)->running, (*filled)->nrunning, sizeof(TransactionId), compare_xids);
	return snapshot;
}

/* ---------------------------------------------------------------- asking it */

bool
wms_filled_has(const WmsFilled *filled, TransactionId xid, XLogRecPtr end_lsn)
{
	if (end_lsn > filled->upto)
		return false;
	if (TransactionIdPrecedes(xid, filled->xmin))
		return true;
	if (TransactionIdFollowsOrEquals(xid, filled->xmax))
		return false;
	return bsearch(&xid, filled->running, filled->nrunning, sizeof(TransactionId), compare_xids) == NULL;
}

/* ---------------------------------------------------------------- as text: from upto xmin xmax running ... */

char *
wms_filled_text(const WmsFilled *filled)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "%X/%X %X/%X %u %u", LSN_FORMAT_ARGS(filled->from), LSN_FORMAT_ARGS(filled->upto), filled->xmin, filled->xmax);
	for (int i = 0; i < filled->nrunning; i++)
		appendStringInfo(&text, " %u", filled->running[i]);
	return text.data;
}

WmsFilled *
wms_filled_parse(const char *text)
{
	WmsFilled    *filled;
	uint32		high[2];
	uint32		low[2];
	TransactionId xmin;
	TransactionId xmax;
	int			at = 0;
	int			nrunning = 0;

	if (sscanf(text, "%X/%X %X/%X %u %u%n", &high[0], &low[0], &high[1], &low[1], &xmin, &xmax, &at) != 6)
		return NULL;
	for (const char *c = text + at; *c != '\0'; c++)
		nrunning += *c == ' ';
	filled = make_filled(nrunning);
	filled->from = ((uint64) high[0] << 32) | low[0];
	filled->upto = ((uint64) high[1] << 32) | low[1];
	filled->xmin = xmin;
	filled->xmax = xmax;
	for (int i = 0; i < nrunning; i++)
	{
		int			length;

		if (sscanf(text + at, " %u%n", &filled->running[i], &length) != 1)
			return NULL;
		at += length;
	}
	return filled;
}
