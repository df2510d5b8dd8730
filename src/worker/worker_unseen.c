/*
 * worker_unseen.c
 *	  Transactions that have been decoded and are not visible yet.
 *
 * A commit is in WAL, and decoded, before its transaction leaves the list of those that run, and only that makes it visible.  Between the two lie
 * microseconds, or as long as a synchronous standby takes, which may be away for days.  Nobody waits for it but:
 *
 *   rows       A stream that also reads tables as they are now would miss what the same transaction did to them.  It waits, alone: for a moment here,
 *              where nearly all become visible, then it is looked after now and then, and is shown as blocked when that lasts.
 *
 *   catalogs   Flows that are built meanwhile are by the catalogs from before, as are rows that others write meanwhile: who writes by the new ones has
 *              seen them, or had to wait for the locks of their transaction.  So reading goes on, but only in what was flushed before it was looked whether
 *              they are visible; when they are, everything that was read of catalogs is read again before reading goes further.
 *
 *   streams    A new one begins when its row in the registry is visible, and reads what came since (worker_stream.c).
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

#define AT_ONCE_MS 10
#define FIRST_LOOK_MS 10
#define LAST_LOOK_MS 1000
#define SHOWN_AFTER_MS 1000

/* ---------------------------------------------------------------- rows */

/* False: not in a moment.  Once that is known of a transaction, the next stream does not try again. */
static bool
becomes_visible(TransactionId xid)
{
	static TransactionId slow = InvalidTransactionId;

	for (int ms = 0; TransactionIdIsInProgress(xid); ms++)
	{
		if (ms == AT_ONCE_MS)
			slow = xid;
		if (xid == slow)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
	return true;
}

static void
show(WmsRunner *runner)
{
	char		reason[WMS_ERROR_LEN];

	snprintf(reason, sizeof(reason),
			 "transaction %u, whose rows it has to work on, is not visible yet: its commit may wait for a synchronous standby",
			 runner->unseen_xid);
	wms_runner_stands(runner, reason);
}

/* The next look comes the later the longer it has waited. */
static void
wait_for(WmsRunner *runner, TransactionId xid)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		waited;

	if (!TransactionIdIsValid(runner->unseen_xid))
		runner->unseen_since = now;
	runner->unseen_xid = xid;
	waited = (now - runner->unseen_since) / 1000;
	runner->retry_at = TimestampTzPlusMilliseconds(now, Max(FIRST_LOOK_MS, Min(waited / 10, LAST_LOOK_MS)));
	if (waited >= SHOWN_AFTER_MS)
		show(runner);
}

bool
wms_rows_unseen(WmsRunner *runner, const WmsBatch *batch)
{
	if (!runner->reads_static)
		return false;
	for (int i = 0; i < batch->ntxns; i++)
	{
		if (becomes_visible(batch->xids[i]))
			continue;
		wait_for(runner, batch->xids[i]);
		return true;
	}
	return false;
}

bool
wms_runner_waits(WmsRunner *runner, TimestampTz now)
{
	if (!TransactionIdIsValid(runner->unseen_xid))
		return false;
	if (now < runner->retry_at)
		return true;
	if (TransactionIdIsInProgress(runner->unseen_xid))
	{
		wait_for(runner, runner->unseen_xid);
		return true;
	}
	runner->unseen_xid = InvalidTransactionId;
	runner->retry_at = 0;
	return false;
}

/* ---------------------------------------------------------------- catalogs */

static List *catalog_xids = NIL;	/* transactions, which are as wide as OIDs; in wms_worker_context */

void
wms_catalogs_note(const WmsBatch *batch)
{
	MemoryContext old;

	if (!TransactionIdIsValid(batch->catalog_xid) || !TransactionIdIsInProgress(batch->catalog_xid))
		return;
	old = MemoryContextSwitchTo(wms_worker_context);
	catalog_xids = list_append_unique_oid(catalog_xids, batch->catalog_xid);
	MemoryContextSwitchTo(old);
}

bool
wms_catalogs_unseen(void)
{
	int			former = list_length(catalog_xids);
	ListCell   *lc;

	foreach(lc, catalog_xids)
		if (!TransactionIdIsInProgress(lfirst_oid(lc)))
			catalog_xids = foreach_delete_current(catalog_xids, lc);
	if (list_length(catalog_xids) < former)
	{
		wms_transaction_start();
		InvalidateSystemCaches();
		CommitTransactionCommand();
	}
	return catalog_xids != NIL;
}
