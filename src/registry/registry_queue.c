/*
 * registry_queue.c
 *	  Queue tables: wmstream.queue, making and dropping, whether their rows are deleted, and where streams of queues begin.
 *
 * A queue is an ordinary table with one column more, wm_xid, which tells the top-level transaction that wrote the row, and an index on
 * it; a row of wmstream.queue says that it is one.  The column is a stored generated one, as COPY without a column list, INSERT
 * without one and logical replication leave it alone, and nobody can write another value into it.  (Updates: registry_upsert.c.)  Column and index are made by ordinary
 * commands as the caller, who owns the table.
 *
 * A table is made a queue, or an ordinary one again, under an exclusive lock and only if no stream reads it: a stream is one of queues or one
 * of ordinary tables for all its life, which its registry row tells (begins_after).
 *
 * Beginning.  A stream of queues begins with what commits after its own commit.  What had committed is said by a snapshot, which is taken when
 * the registry row is written, and once more just before the transaction commits: what commits in the moment
 * between that and the commit counts as coming after.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

#define QUEUE_TABLE "queue"

/* Columns of wmstream.queue. */
enum
{
	COLUMN_QUEUE = 1,
	COLUMN_TRIM,
	COLUMN_TRIM_STOPPED
};

#define NCOLUMNS COLUMN_TRIM_STOPPED

/* ---------------------------------------------------------------- wmstream.queue */

static WmsQueueDef *
def_from_tuple(HeapTuple tuple, TupleDesc desc)
{
	WmsQueueDef *def = palloc0(sizeof(WmsQueueDef));
	Datum		value;
	bool		isnull;

	def->queue = DatumGetObjectId(heap_getattr(tuple, COLUMN_QUEUE, desc, &isnull));
	def->trim = DatumGetBool(heap_getattr(tuple, COLUMN_TRIM, desc, &isnull));
	value = heap_getattr(tuple, COLUMN_TRIM_STOPPED, desc, &isnull);
	def->trim_stopped = isnull ? NULL : TextDatumGetCString(value);
	return def;
}

List *
wms_queues(void)
{
	Relation	rel = wms_registry_open(QUEUE_TABLE, AccessShareLock);
	List	   *queues = NIL;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!rel)
		return NIL;
	/* the newest rows, but in a parallel query */
	scan = systable_beginscan(rel, InvalidOid, false, IsInParallelMode() ? GetActiveSnapshot() : NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		queues = lappend(queues, def_from_tuple(tuple, RelationGetDescr(rel)));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return queues;
}

bool
wms_is_queue(Oid relid)
{
	List	   *queues = wms_queues();
	bool		found = false;
	ListCell   *lc;

	foreach(lc, queues)
		found = found || ((WmsQueueDef *) lfirst(lc))->queue == relid;
	list_free_deep(queues);
	return found;
}

static void
insert_queue(Oid relid, bool trim)
{
	Relation	rel = wms_registry_open(QUEUE_TABLE, RowExclusiveLock);
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {false};
	HeapTuple	tuple;

	if (!rel)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"wmstream\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION wmstream.")));
	values[COLUMN_QUEUE - 1] = ObjectIdGetDatum(relid);
	values[COLUMN_TRIM - 1] = BoolGetDatum(trim);
	isnull[COLUMN_TRIM_STOPPED - 1] = true;
	tuple = heap_form_tuple(RelationGetDescr(rel), values, isnull);
	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* What is done to the row of a queue, which is locked against nobody: two that change it at once are an error for one of them. */
typedef void (*RowFn) (Relation rel, HeapTuple tuple, void *arg);

/* False: it is no queue. */
static bool
do_with_row(Oid relid, RowFn fn, void *arg)
{
	Relation	rel = wms_registry_open(QUEUE_TABLE, RowExclusiveLock);
	bool		found = false;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		isnull;

	if (!rel)
		return false;
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (DatumGetObjectId(heap_getattr(tuple, COLUMN_QUEUE, RelationGetDescr(rel), &isnull)) != relid)
			continue;
		fn(rel, tuple, arg);
		found = true;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	if (found)
		CommandCounterIncrement();
	return found;
}

static void
delete_queue(Relation rel, HeapTuple tuple, void *arg)
{
	CatalogTupleDelete(rel, &tuple->t_self);
}

/* arg: a WmsQueueDef. */
static void
update_trim(Relation rel, HeapTuple tuple, void *arg)
{
	const WmsQueueDef *def = arg;
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {false};
	bool		replace[NCOLUMNS] = {false};

	values[COLUMN_TRIM - 1] = BoolGetDatum(def->trim);
	isnull[COLUMN_TRIM_STOPPED - 1] = def->trim_stopped == NULL;
	values[COLUMN_TRIM_STOPPED - 1] = def->trim_stopped ? CStringGetTextDatum(def->trim_stopped) : (Datum) 0;
	replace[COLUMN_TRIM - 1] = replace[COLUMN_TRIM_STOPPED - 1] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, isnull, replace);
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
}

bool
wms_queue_forget(Oid relid)
{
	return do_with_row(relid, delete_queue, NULL);
}

void
wms_queue_stop_trim(Oid relid, const char *reason)
{
	WmsQueueDef def = {.queue = relid,.trim = true,.trim_stopped = unconstify(char *, reason)};

	(void) do_with_row(relid, update_trim, &def);
}

/* ---------------------------------------------------------------- which tables can be one */

static void
refuse_table(const char *name, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is %s and cannot be a queue", name, what),
			 errhint("%s", hint)));
}

static void
check_kind(Relation rel)
{
	const char *name = RelationGetRelationName(rel);
	Oid			schema = RelationGetNamespace(rel);

	if (IsCatalogRelation(rel) || IsCatalogNamespace(schema) || IsToastNamespace(schema) || schema == wms_schema_oid())
		refuse_table(name, "a system catalog", "Use a table of your own.");
	else if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE || rel->rd_rel->relispartition)
		refuse_table(name, rel->rd_rel->relispartition ? "a partition" : "a partitioned table",
					 "A row that moves to another partition would look like a new one. Make several queues and read them with UNION ALL, or read the partitioned table through the WAL.");
	else if (rel->rd_rel->relkind != RELKIND_RELATION)
		refuse_table(name, "not an ordinary table", "Make an ordinary table a queue.");
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		refuse_table(name, "a temporary table", "Other sessions cannot read it. Use an ordinary table.");
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		refuse_table(name, "an unlogged table", "A crash empties it. Use ALTER TABLE ... SET LOGGED.");
	else if (rel->rd_rel->relhassubclass || has_superclass(RelationGetRelid(rel)))
		refuse_table(name, "part of an inheritance tree", "Use a table of its own.");
}

/* A queue's own stored values are computed again for every row that such a trigger is fired for. */
static void
check_triggers(Relation rel)
{
	if (rel->trigdesc && rel->trigdesc->trig_update_before_row)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" has a BEFORE UPDATE trigger for rows and cannot be a queue", RelationGetRelationName(rel)),
				 errdetail("With it every row that is updated would look like a new one."),
				 errhint("Drop the trigger, or make it an AFTER trigger.")));
}

/* Nobody may read it as what it is not any more. */
static void
check_no_stream_reads(Oid relid)
{
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(lc);

		if (get_rel_relkind(def->view) == RELKIND_VIEW && wms_definition_reaches(def->view, relid))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("stream \"%s\" reads table \"%s\"", get_rel_name(def->stream), get_rel_name(relid)),
					 errhint("Drop the stream, which keeps its result, and create it again afterwards.")));
	}
}

/* Locked until the transaction ends. */
static Relation
lock_table(Oid relid)
{
	char	   *name = get_rel_name(relid);
	Relation	rel;

	if (name && !WmsOwnsRelation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	if (name && get_rel_relkind(relid) != RELKIND_RELATION && get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		refuse_table(name, "not an ordinary table", "Make an ordinary table a queue.");
	rel = try_table_open(relid, AccessExclusiveLock);
	if (!rel)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table with OID %u does not exist", relid)));
	return rel;
}

static bool
is_empty(Relation rel)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	bool		found = table_scan_getnextslot(scan, ForwardScanDirection, slot);

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return !found;
}

/* ---------------------------------------------------------------- making and dropping */

/* It may have come with a dump, or the extension may have been made anew. */
static bool
has_column(Relation rel)
{
	if (get_attnum(RelationGetRelid(rel), WMS_QUEUE_COLUMN) == InvalidAttrNumber)
		return false;
	if (wms_queue_column(RelationGetDescr(rel)) == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_COLUMN),
				 errmsg("table \"%s\" has a column \"%s\" of its own", RelationGetRelationName(rel), WMS_QUEUE_COLUMN),
				 errhint("Rename it; a queue has a column of that name.")));
	return true;
}

void
wms_queue_create(Oid relid, bool trim, bool trim_default)
{
	Relation	rel = lock_table(relid);
	char	   *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
	bool		there;

	check_kind(rel);
	check_triggers(rel);
	if (wms_is_queue(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("\"%s\" is a queue already", RelationGetRelationName(rel))));
	check_no_stream_reads(relid);
	there = has_column(rel);
	if (trim_default)
		trim = is_empty(rel) && wms_registry_stream(relid) == NULL;	/* nobody wants results to vanish unasked */
	table_close(rel, NoLock);
	if (!there)
	{
		wms_registry_command(psprintf("ALTER TABLE %s ADD COLUMN " WMS_QUEUE_COLUMN " pg_catalog.xid8 GENERATED ALWAYS AS (wmstream.row_xid()) STORED", name));
		wms_registry_command(psprintf("CREATE INDEX ON %s (" WMS_QUEUE_COLUMN ")", name));
	}
	insert_queue(relid, trim);
}

static void
refuse_no_queue(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("\"%s\" is not a queue", name),
			 errhint("SELECT queue FROM wmstream.queues lists the queues of this database.")));
}

void
wms_queue_drop(Oid relid)
{
	Relation	rel = lock_table(relid);
	char	   *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));

	if (!wms_is_queue(relid))
		refuse_no_queue(RelationGetRelationName(rel));
	check_no_stream_reads(relid);
	table_close(rel, NoLock);
	(void) wms_queue_forget(relid);
	wms_registry_command(psprintf("ALTER TABLE %s DROP COLUMN IF EXISTS " WMS_QUEUE_COLUMN, name));
}

void
wms_queue_set_trim(Oid relid, bool trim)
{
	char	   *name = get_rel_name(relid);
	WmsQueueDef def = {.queue = relid,.trim = trim};

	if (name && !WmsOwnsRelation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	if (!do_with_row(relid, update_trim, &def))
		refuse_no_queue(name ? name : "?");
}

/* ---------------------------------------------------------------- where streams begin */

static List *beginning = NIL;	/* streams that this transaction has made; in TopMemoryContext */

Datum
wms_queue_now(void)
{
	WmsSeen    *seen = wms_seen_of_snapshot(GetLatestSnapshot());

	return wms_seen_to_datum(wms_seen_with_own(seen, U64FromFullTransactionId(GetTopFullTransactionId())));
}

static void
begin_all_now(void)
{
	ListCell   *lc;

	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, beginning)
		wms_registry_begin_now(lfirst_oid(lc));
	PopActiveSnapshot();
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (beginning == NIL)
		return;
	if (event == XACT_EVENT_PRE_COMMIT)
		begin_all_now();
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		list_free(beginning);
		beginning = NIL;
	}
}

void
wms_queue_begins(Oid stream)
{
	static bool listening = false;
	MemoryContext caller;

	if (!listening)
		RegisterXactCallback(at_transaction_end, NULL);
	listening = true;
	caller = MemoryContextSwitchTo(TopMemoryContext);
	beginning = list_append_unique_oid(beginning, stream);
	MemoryContextSwitchTo(caller);
}
