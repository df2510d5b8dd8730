/*
 * shared_wake.c
 *	  What our part of a transaction does to workers when it ends.
 *
 * A command that changes the registry only remembers that it did
 * (wms_wake_at_commit).  If the transaction commits, the change is counted and
 * worker and launcher are woken, after it has become visible to them; if not, nothing
 * happens.  A subtransaction that rolls back leaves the mark: a wake-up
 * without news is harmless.  Bars on databases are lifted at either end.
 *
 * A prepared transaction ends in another session, whose callbacks know nothing of
 * it, so preparing one that changed the registry is refused.  Bars are lifted by then: they
 * keep workers from coming before the command has locked the database, and the lock goes
 * on with the prepared transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "shared/shared.h"

/* Of the current transaction. */
static bool wake_pending = false;
static List *barred = NIL;		/* databases, in TopMemoryContext */

static void
lift_bars(void)
{
	ListCell   *cell;

	foreach(cell, barred)
		wms_bar_lift(lfirst_oid(cell));
	list_free(barred);
	barred = NIL;
}

static void
wake_all(void)
{
	wms_registry_changed(MyDatabaseId);
	wms_worker_wake(MyDatabaseId);
	wms_launcher_wake();
}

static void
refuse_prepare(void)
{
	if (wake_pending)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has changed streams of wmstream"),
				 errhint("Use COMMIT instead.")));
}

/* At PREPARE no wake-up is pending, by refuse_prepare. */
static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			break;
		case XACT_EVENT_COMMIT:
			if (wake_pending)
				wake_all();
			wake_pending = false;
			lift_bars();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			wake_pending = false;
			lift_bars();
			break;
		default:
			break;
	}
}

static void
listen_for_end(void)
{
	static bool listening = false;

	if (!listening)
		RegisterXactCallback(at_transaction_end, NULL);
	listening = true;
}

void
wms_wake_at_commit(void)
{
	/* Without shared memory there is nobody to wake. */
	if (wms_shared == NULL)
		return;
	listen_for_end();
	wake_pending = true;
}

void
wms_bar_until_end(Oid database)
{
	MemoryContext caller;

	listen_for_end();
	if (list_member_oid(barred, database))
		return;

	/* Into the list first, for that may fail; a bar that is not in the list would stay for ever. */
	caller = MemoryContextSwitchTo(TopMemoryContext);
	barred = lappend_oid(barred, database);
	MemoryContextSwitchTo(caller);
	if (wms_bar_add(database))
		return;

	barred = list_delete_oid(barred, database);
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many databases are being dropped at the same time"),
			 errhint("Try again later.")));
}
