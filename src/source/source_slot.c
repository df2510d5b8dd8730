/*
 * source_slot.c
 *	  The database's replication slot: name, state, making, dropping.
 *
 * One slot per database, "wmstream_<database oid>".  It is made by the session that creates the first stream, before that session's
 * first write, because a stream that starts "now" must not miss a transaction that commits right after it.  While it is being made it
 * is *ephemeral*: it vanishes with an error or the session, and others do not count it as there.
 *
 * Making a slot means waiting until every transaction that writes at that moment, in any database, has ended.  Prepared transactions
 * are among them.
 *
 * Where a slot was made is written into it (two_phase_at, which core sets for slots that decode prepared transactions, and otherwise leaves alone): what
 * lies before that was never this slot's to keep, and a stream that stood there has lost WAL.
 *
 * Fields of slots are read under ReplicationSlotControlLock (shared) and the slot's spinlock, as slot.h demands.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "miscadmin.h"
#include "replication/logical.h"
#include "replication/slot.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "storage/standby.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "shared/shared.h"
#include "source/source_internal.h"

/* How many waited-for transactions are named. */
#define MAX_NAMED 10

/* ms between two looks at a slot that another session is making. */
#define OTHERS_POLL_INTERVAL 50

char *
wms_slot_name(Oid database)
{
	static char name[NAMEDATALEN];

	snprintf(name, sizeof(name), "wmstream_%u", database);
	return name;
}

/* ---------------------------------------------------------------- looking */

/* A copy of the slot; false if there is none.  *unfinished: it is being made. */
static bool
look_at_slot(Oid database, WmsSlotInfo *info, bool *unfinished)
{
	ReplicationSlot *slot;

	memset(info, 0, sizeof(WmsSlotInfo));
	*unfinished = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	slot = SearchNamedReplicationSlot(wms_slot_name(database), false);
	if (slot == NULL || !slot->in_use)
	{
		LWLockRelease(ReplicationSlotControlLock);
		return false;
	}
	SpinLockAcquire(&slot->mutex);
	info->active_pid = (int) slot->active_pid;
	*unfinished = slot->data.persistency != RS_PERSISTENT;
	if (WmsSlotIsInvalid(slot))
		info->state = WMS_SLOT_LOST;
	else
		info->state = info->active_pid != 0 ? WMS_SLOT_ACTIVE : WMS_SLOT_FREE;
	SpinLockRelease(&slot->mutex);
	LWLockRelease(ReplicationSlotControlLock);
	return true;
}

void
wms_slot_info(Oid database, WmsSlotInfo *info)
{
	bool		unfinished;

	if (!look_at_slot(database, info, &unfinished) || unfinished)
		info->state = WMS_SLOT_MISSING;
}

bool
wms_slot_exists(Oid database)
{
	WmsSlotInfo info;

	wms_slot_info(database, &info);
	return info.state == WMS_SLOT_FREE || info.state == WMS_SLOT_ACTIVE;
}

bool
wms_slot_is_there(Oid database)
{
	WmsSlotInfo info;
	bool		unfinished;

	return look_at_slot(database, &info, &unfinished);
}

/* ---------------------------------------------------------------- making */

static void
check_wal_level(void)
{
	if (wal_level < WAL_LEVEL_LOGICAL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"wal_level\" is \"%s\", but streams of ordinary tables need \"logical\"",
						GetConfigOption("wal_level", false, false)),
				 errhint("Set wal_level = logical in postgresql.conf and restart the server.")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("streams cannot be made while the server is in recovery")));
}

static void
check_free_slot(void)
{
	int			used = 0;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
		if (ReplicationSlotCtl->replication_slots[i].in_use)
			used++;
	LWLockRelease(ReplicationSlotControlLock);

	if (used >= max_replication_slots)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all replication slots are in use"),
				 errdetail("\"max_replication_slots\" is %d; wmstream needs one slot for each database with streams.",
						   max_replication_slots),
				 errhint("Drop a slot that is not needed, or set max_replication_slots to %d or more and restart the server.",
						 max_replication_slots + 1)));
}

static void
check_no_writes(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("the first stream of a database cannot be made in a transaction that has written"),
				 errdetail("Its replication slot has to be made before the transaction's first write."),
				 errhint("Create the stream first in the transaction, or in a transaction of its own.")));
}

/* Tells the user whom we are about to wait for, if anybody. */
static void
tell_whom_we_wait_for(void)
{
	RunningTransactions running = GetRunningTransactionData();
	int			nxids = running->xcnt;
	StringInfoData names;
	int			n = 0;

	/* The array is this process's own and stays; the locks were for its making. */
	LWLockRelease(XidGenLock);
	LWLockRelease(ProcArrayLock);

	initStringInfo(&names);
	for (int i = 0; i < nxids; i++)
	{
		TransactionId xid = running->xids[i];
		int			pid = BackendXidGetPid(xid);

		if (pid == 0 && !TransactionIdIsInProgress(xid))
			continue;
		if (++n > MAX_NAMED)
			continue;
		appendStringInfoString(&names, n > 1 ? ", " : "");
		if (pid != 0)
			appendStringInfo(&names, "process %d", pid);
		else
			appendStringInfo(&names, "prepared transaction %u", xid);
	}
	if (n > MAX_NAMED)
		appendStringInfo(&names, " and %d more", n - MAX_NAMED);
	if (n > 0)
		ereport(NOTICE,
				(errmsg_plural("waiting for the end of %d transaction that is writing now",
							   "waiting for the end of %d transactions that are writing now", n, n),
				 errdetail("%s.", names.data),
				 errhint("This is needed once, for the first stream of a database. Cancel to give up.")));
	pfree(names.data);
}

/* Waits until another session has finished or given up making the slot. */
static void
wait_for_others(void)
{
	WmsSlotInfo info;
	bool		unfinished;

	while (look_at_slot(MyDatabaseId, &info, &unfinished) && unfinished)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, OTHERS_POLL_INTERVAL, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
note_birth(ReplicationSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->data.two_phase_at = slot->data.confirmed_flush;
	SpinLockRelease(&slot->mutex);
}

XLogRecPtr
wms_slot_birth(void)
{
	return MyReplicationSlot->data.two_phase_at;
}

static void
make_slot(void)
{
	LogicalDecodingContext *ctx;

	WmsSlotCreate(wms_slot_name(MyDatabaseId), RS_EPHEMERAL);

	/* An error that is caught in this session must not leave the slot with us. */
	PG_TRY();
	{
		ctx = CreateInitDecodingContext("pgoutput", NIL, false, InvalidXLogRecPtr,
										XL_ROUTINE(.page_read = read_local_xlog_page,
												   .segment_open = wal_segment_open,
												   .segment_close = wal_segment_close),
										NULL, NULL, NULL);
		tell_whom_we_wait_for();
		DecodingContextFindStartpoint(ctx);
		FreeDecodingContext(ctx);
		note_birth(MyReplicationSlot);
		ReplicationSlotPersist();
	}
	PG_CATCH();
	{
		if (MyReplicationSlot != NULL)
			ReplicationSlotRelease();
		PG_RE_THROW();
	}
	PG_END_TRY();
	ReplicationSlotRelease();
}

static void
make_slot_anew(void)
{
	WmsSlotInfo info;

	if (MyReplicationSlot != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("this process already holds replication slot \"%s\"", NameStr(MyReplicationSlot->data.name))));
	wms_slot_info(MyDatabaseId, &info);
	if (info.state == WMS_SLOT_LOST)
		ReplicationSlotDrop(wms_slot_name(MyDatabaseId), true);
	check_free_slot();
	make_slot();
}

bool
wms_slot_create(void)
{
	bool		made = false;

	if (wms_slot_exists(MyDatabaseId))
		return false;
	check_wal_level();
	check_no_writes();
	wms_making_lock();
	wait_for_others();
	if (!wms_slot_exists(MyDatabaseId))
	{
		make_slot_anew();
		made = true;
	}
	wms_making_unlock();
	return made;
}

/* ---------------------------------------------------------------- copying */

char *
wms_slot_copy(Oid stream)
{
	static char copy[NAMEDATALEN];
	NameData	from;
	NameData	to;

	snprintf(copy, sizeof(copy), "%s_%u", wms_slot_name(MyDatabaseId), stream);
	namestrcpy(&from, wms_slot_name(MyDatabaseId));
	namestrcpy(&to, copy);
	wms_transaction_start();
	(void) OidFunctionCall3(F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME_BOOL, NameGetDatum(&from), NameGetDatum(&to),
							BoolGetDatum(true));
	CommitTransactionCommand();
	return copy;
}

/* ---------------------------------------------------------------- dropping */

bool
wms_slot_drop(Oid database)
{
	WmsSlotInfo info;
	bool		unfinished;

	if (!look_at_slot(database, &info, &unfinished))
		return true;
	if (info.active_pid != 0)
		return false;
	ReplicationSlotDrop(wms_slot_name(database), true);
	return true;
}
