/*
 * registry_stream.c
 *	  wmstream.stream: one row per stream of this database, and the only road to a new status.
 *
 * Rows are read with the newest snapshot, not with the transaction's, because a control must see
 * what was committed before it got its lock, and a worker must never act on an old row.  The table
 * is small and is read whole.
 *
 * Writers hold the stream's object lock (class wmstream.stream, object the result table) until their
 * transaction ends, so two of them never meet in one row.  They do not wake anybody: that is
 * their callers' business (wms_wake_at_commit), as the worker writes here too.
 *
 * A row carries the system identifier and the database it was made in.  In another cluster or a
 * copied database it reads as restored, whatever its status says, until it is resumed there.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

#define STREAM_TABLE "stream"
#define LOG_TABLE "state_log"
#define LOG_INDEX "state_log_pkey"
#define LOG_STREAM_COLUMN 1

/* Columns of wmstream.stream. */
enum
{
	COLUMN_STREAM = 1,
	COLUMN_VIEW,
	COLUMN_LATE_TABLE,
	COLUMN_OUTPUT_MODE,
	COLUMN_ON_CHANGE,
	COLUMN_ON_ERROR,
	COLUMN_CLOSE_WHEN_IDLE,
	COLUMN_WATERMARK_POLICY,
	COLUMN_TRIGGER_US,
	COLUMN_LATENESS_US,
	COLUMN_REFINED,
	COLUMN_IDLE_US,
	COLUMN_MAX_FUTURE_US,
	COLUMN_DELAY_US,
	COLUMN_MADE_RESULT,
	COLUMN_HAS_KEY,
	COLUMN_STATUS,
	COLUMN_REASON,
	COLUMN_SINCE,
	COLUMN_TIMEZONE,
	COLUMN_DATESTYLE,
	COLUMN_INTERVALSTYLE,
	COLUMN_COMMAND,
	COLUMN_ADVANCE_TO,
	COLUMN_FILL,
	COLUMN_FILL_SINCE,
	COLUMN_FILL_BEGAN,
	COLUMN_FILLED,
	COLUMN_SYSID,
	COLUMN_DBOID,
	COLUMN_BEGINS_AFTER
};

#define NCOLUMNS COLUMN_BEGINS_AFTER

/* A row on its way into the table. */
typedef struct Row
{
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS];
	bool		replace[NCOLUMNS];
} Row;

static const char *const mode_names[] = {"append", "update", "complete"};
static const char *const change_names[] = {"ignore", "error", "retract"};
static const char *const error_names[] = {"stop", "skip"};
static const char *const policy_names[] = {"min", "max"};
static const char *const fill_names[] = {"none", "beginning", "resync", "filled"};
static const char *const status_names[] = {
	"starting", "running", "backfilling", "blocked", "paused", "failed", "restored", "needs_resync"
};

#define BIT(status) (1 << (status))

/* By status: what it may become.  The comments of WmsStatus say the same. */
static const int successors[] = {
	[WMS_STARTING] = BIT(WMS_RUNNING) | BIT(WMS_BACKFILLING) | BIT(WMS_BLOCKED) | BIT(WMS_PAUSED) | BIT(WMS_FAILED) | BIT(WMS_NEEDS_RESYNC),
	[WMS_RUNNING] = BIT(WMS_STARTING) | BIT(WMS_BLOCKED) | BIT(WMS_PAUSED) | BIT(WMS_FAILED) | BIT(WMS_NEEDS_RESYNC),
	[WMS_BACKFILLING] = BIT(WMS_STARTING) | BIT(WMS_RUNNING) | BIT(WMS_BLOCKED) | BIT(WMS_PAUSED) | BIT(WMS_FAILED) | BIT(WMS_NEEDS_RESYNC),
	[WMS_BLOCKED] = BIT(WMS_STARTING) | BIT(WMS_RUNNING) | BIT(WMS_BACKFILLING) | BIT(WMS_PAUSED) | BIT(WMS_FAILED) | BIT(WMS_NEEDS_RESYNC),
	[WMS_PAUSED] = BIT(WMS_STARTING) | BIT(WMS_RUNNING) | BIT(WMS_FAILED) | BIT(WMS_NEEDS_RESYNC),
	[WMS_FAILED] = BIT(WMS_STARTING) | BIT(WMS_RUNNING) | BIT(WMS_NEEDS_RESYNC),
	[WMS_RESTORED] = BIT(WMS_STARTING) | BIT(WMS_RUNNING),
	[WMS_NEEDS_RESYNC] = BIT(WMS_STARTING) | BIT(WMS_RUNNING) | BIT(WMS_BACKFILLING) | BIT(WMS_FAILED)
};

/* ---------------------------------------------------------------- names */

const char *
wms_status_name(WmsStatus status)
{
	Assert(status >= 0 && status < lengthof(status_names));
	return status_names[status];
}

/* Position of name in names; a name that is not there was put into the table by hand: 0, and *damage says so. */
static int
index_of(const char *name, const char *const *names, int nnames, char **damage)
{
	for (int i = 0; i < nnames; i++)
	{
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	*damage = psprintf("wmstream.stream holds an unknown value \"%s\"", name);
	return 0;
}

#define INDEX_OF(name, names) index_of(name, names, lengthof(names), &def->damage)

/* ---------------------------------------------------------------- a row as a struct */

static char *
text_or_null(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

/* Registered.  In a parallel query no newer snapshot than the query's own may be taken. */
static Snapshot
newest_snapshot(void)
{
	return RegisterSnapshot(IsInParallelMode() ? GetActiveSnapshot() : GetLatestSnapshot());
}

/* Not from the cache: a commit is counted, and the worker looks, a moment before it has told caches what it changed. */
Oid
wms_registry_owner(Oid relid)
{
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	Snapshot	snapshot = newest_snapshot();
	Oid			owner = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, ClassOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return owner;
}

#define VALUE(column) (values[(column) - 1])
#define ISNULL(column) (isnull[(column) - 1])
#define TEXT(column) text_or_null(VALUE(column), ISNULL(column))

static WmsStreamDef *
def_from_tuple(HeapTuple tuple, TupleDesc desc)
{
	WmsStreamDef *def = palloc0(sizeof(WmsStreamDef));
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));

	heap_deform_tuple(tuple, desc, values, isnull);
	def->stream = DatumGetObjectId(VALUE(COLUMN_STREAM));
	def->view = DatumGetObjectId(VALUE(COLUMN_VIEW));
	def->owner = wms_registry_owner(def->stream);
	def->late_table = ISNULL(COLUMN_LATE_TABLE) ? InvalidOid : DatumGetObjectId(VALUE(COLUMN_LATE_TABLE));
	def->output_mode = (WmsOutputMode) INDEX_OF(TEXT(COLUMN_OUTPUT_MODE), mode_names);
	def->on_change = (WmsOnChange) INDEX_OF(TEXT(COLUMN_ON_CHANGE), change_names);
	def->skip_errors = INDEX_OF(TEXT(COLUMN_ON_ERROR), error_names) == 1;
	def->close_when_idle = DatumGetBool(VALUE(COLUMN_CLOSE_WHEN_IDLE));
	def->watermark_max = INDEX_OF(TEXT(COLUMN_WATERMARK_POLICY), policy_names) == 1;
	def->trigger_us = DatumGetInt64(VALUE(COLUMN_TRIGGER_US));
	def->lateness_us = DatumGetInt64(VALUE(COLUMN_LATENESS_US));
	def->refined = DatumGetBool(VALUE(COLUMN_REFINED));
	def->idle_us = ISNULL(COLUMN_IDLE_US) ? -1 : DatumGetInt64(VALUE(COLUMN_IDLE_US));
	def->max_future_us = ISNULL(COLUMN_MAX_FUTURE_US) ? -1 : DatumGetInt64(VALUE(COLUMN_MAX_FUTURE_US));
	def->delay_us = ISNULL(COLUMN_DELAY_US) ? -1 : DatumGetInt64(VALUE(COLUMN_DELAY_US));
	def->made_result = DatumGetBool(VALUE(COLUMN_MADE_RESULT));
	def->has_key = DatumGetBool(VALUE(COLUMN_HAS_KEY));
	def->status = (WmsStatus) INDEX_OF(TEXT(COLUMN_STATUS), status_names);
	def->reason = TEXT(COLUMN_REASON);
	def->since = DatumGetTimestampTz(VALUE(COLUMN_SINCE));
	def->timezone = TEXT(COLUMN_TIMEZONE);
	def->datestyle = TEXT(COLUMN_DATESTYLE);
	def->intervalstyle = TEXT(COLUMN_INTERVALSTYLE);
	def->command = DatumGetInt64(VALUE(COLUMN_COMMAND));
	def->advance_to = ISNULL(COLUMN_ADVANCE_TO) ? WMS_TIME_MIN : DatumGetTimestampTz(VALUE(COLUMN_ADVANCE_TO));
	def->fill = (WmsFillKind) INDEX_OF(TEXT(COLUMN_FILL), fill_names);
	def->fill_since = ISNULL(COLUMN_FILL_SINCE) ? WMS_TIME_MIN : DatumGetTimestampTz(VALUE(COLUMN_FILL_SINCE));
	def->fill_began = ISNULL(COLUMN_FILL_BEGAN) ? 0 : DatumGetTimestampTz(VALUE(COLUMN_FILL_BEGAN));
	def->filled = TEXT(COLUMN_FILLED);
	def->foreign = (uint64) DatumGetInt64(VALUE(COLUMN_SYSID)) != GetSystemIdentifier() ||
		DatumGetObjectId(VALUE(COLUMN_DBOID)) != MyDatabaseId;
	if (def->foreign)
		def->status = WMS_RESTORED;
	def->reads_queues = !ISNULL(COLUMN_BEGINS_AFTER);
	if (def->reads_queues)
		def->begins_after = wms_seen_from_datum(VALUE(COLUMN_BEGINS_AFTER));
	if (def->damage)
	{
		def->status = WMS_FAILED;
		def->reason = def->damage;
	}
	def->uncommitted = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	pfree(values);
	pfree(isnull);
	return def;
}

/* ---------------------------------------------------------------- a struct as a row */

static void
put(Row *row, int column, Datum value)
{
	row->values[column - 1] = value;
	row->isnull[column - 1] = false;
	row->replace[column - 1] = true;
}

static void
put_null(Row *row, int column)
{
	row->isnull[column - 1] = true;
	row->replace[column - 1] = true;
}

static void
put_text(Row *row, int column, const char *string)
{
	if (string)
		put(row, column, CStringGetTextDatum(string));
	else
		put_null(row, column);
}

/* A span that may be off, which is -1 in the struct and NULL in the table. */
static void
put_span(Row *row, int column, int64 span)
{
	if (span >= 0)
		put(row, column, Int64GetDatum(span));
	else
		put_null(row, column);
}

static void
put_time(Row *row, int column, bool known, TimestampTz time)
{
	if (known)
		put(row, column, TimestampTzGetDatum(time));
	else
		put_null(row, column);
}

static void
put_fill(Row *row, WmsFillKind fill, TimestampTz began, const char *filled)
{
	put_text(row, COLUMN_FILL, fill_names[fill]);
	put_time(row, COLUMN_FILL_BEGAN, began != 0, began);
	put_text(row, COLUMN_FILLED, filled);
}

/* What a user sets, at creation or later. */
static void
put_settings(Row *row, const WmsStreamDef *def)
{
	put(row, COLUMN_STREAM, ObjectIdGetDatum(def->stream));
	put(row, COLUMN_VIEW, ObjectIdGetDatum(def->view));
	if (OidIsValid(def->late_table))
		put(row, COLUMN_LATE_TABLE, ObjectIdGetDatum(def->late_table));
	else
		put_null(row, COLUMN_LATE_TABLE);
	put_text(row, COLUMN_OUTPUT_MODE, mode_names[def->output_mode]);
	put_text(row, COLUMN_ON_CHANGE, change_names[def->on_change]);
	put_text(row, COLUMN_ON_ERROR, error_names[def->skip_errors ? 1 : 0]);
	put(row, COLUMN_CLOSE_WHEN_IDLE, BoolGetDatum(def->close_when_idle));
	put_text(row, COLUMN_WATERMARK_POLICY, policy_names[def->watermark_max ? 1 : 0]);
	put(row, COLUMN_TRIGGER_US, Int64GetDatum(def->trigger_us));
	put(row, COLUMN_LATENESS_US, Int64GetDatum(def->lateness_us));
	put(row, COLUMN_REFINED, BoolGetDatum(def->refined));
	put_span(row, COLUMN_IDLE_US, def->idle_us);
	put_span(row, COLUMN_MAX_FUTURE_US, def->max_future_us);
	put_span(row, COLUMN_DELAY_US, def->delay_us);
	put(row, COLUMN_MADE_RESULT, BoolGetDatum(def->made_result));
	put(row, COLUMN_HAS_KEY, BoolGetDatum(def->has_key));
	put_text(row, COLUMN_TIMEZONE, def->timezone);
	put_text(row, COLUMN_DATESTYLE, def->datestyle);
	put_text(row, COLUMN_INTERVALSTYLE, def->intervalstyle);
	put(row, COLUMN_COMMAND, Int64GetDatum(def->command));
	put_time(row, COLUMN_ADVANCE_TO, def->advance_to != WMS_TIME_MIN, def->advance_to);
	put_fill(row, def->fill, def->fill_began, def->filled);
	put_time(row, COLUMN_FILL_SINCE, def->fill_since != WMS_TIME_MIN, def->fill_since);
}

static void
put_status(Row *row, WmsStatus status, const char *reason, bool changed)
{
	/* Only the worker knows these, and only while it runs. */
	if (status == WMS_STARTING || status == WMS_BACKFILLING || status == WMS_BLOCKED)
		status = WMS_RUNNING;
	put_text(row, COLUMN_STATUS, status_names[status]);
	put_text(row, COLUMN_REASON, reason);
	if (changed)
		put(row, COLUMN_SINCE, TimestampTzGetDatum(GetCurrentTimestamp()));
}

/* This cluster, this database. */
static void
put_place(Row *row)
{
	put(row, COLUMN_SYSID, Int64GetDatum((int64) GetSystemIdentifier()));
	put(row, COLUMN_DBOID, ObjectIdGetDatum(MyDatabaseId));
}

/* Where a stream of queue tables begins; what is said here is said again just before the commit (registry_queue.c). */
static void
put_beginning(Row *row, const WmsStreamDef *def)
{
	if (!def->reads_queues)
	{
		put_null(row, COLUMN_BEGINS_AFTER);
		return;
	}
	put(row, COLUMN_BEGINS_AFTER, wms_queue_now());
	wms_queue_begins(def->stream);
}

/* ---------------------------------------------------------------- access */

Relation
wms_registry_open(const char *table, LOCKMODE lockmode)
{
	Oid			relid = wms_relation_oid(table);

	return OidIsValid(relid) ? try_table_open(relid, lockmode) : NULL;
}

/* NULL if the extension is not here (any more). */
static Relation
open_registry(LOCKMODE lockmode)
{
	Relation	rel = wms_registry_open(STREAM_TABLE, lockmode);

	if (rel && RelationGetNumberOfAttributes(rel) < NCOLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table wmstream.stream does not fit the loaded library"),
				 errhint("Run ALTER EXTENSION wmstream UPDATE in this database.")));
	return rel;
}

static Relation
open_registry_to_write(void)
{
	Relation	rel = open_registry(RowExclusiveLock);

	if (!rel)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"wmstream\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION wmstream.")));
	return rel;
}

/*
 * A copy of the row with that value in an Oid column, as of now; NULL if there is none.  A row that was
 * changed while we looked is found by its new version, as the change holds a lock that our callers wait for.
 */
static HeapTuple
find_row(Relation rel, AttrNumber column, Oid value)
{
	Snapshot	snapshot = newest_snapshot();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	return tuple;
}

static void
refuse_damaged(const WmsStreamDef *def)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s", def->damage),
			 errdetail("It stands in the row of the stream with result table %u.", def->stream),
			 errhint("A superuser can put it right with UPDATE wmstream.stream.")));
}

static WmsStreamDef *
read_one(AttrNumber column, Oid value)
{
	Relation	rel = open_registry(AccessShareLock);
	WmsStreamDef *def = NULL;
	HeapTuple	tuple;

	if (!rel)
		return NULL;
	tuple = find_row(rel, column, value);
	if (HeapTupleIsValid(tuple))
	{
		def = def_from_tuple(tuple, RelationGetDescr(rel));
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
	if (def && def->damage)
		refuse_damaged(def);
	return def;
}

WmsStreamDef *
wms_registry_stream(Oid stream)
{
	return read_one(COLUMN_STREAM, stream);
}

WmsStreamDef *
wms_registry_by_view(Oid view)
{
	return read_one(COLUMN_VIEW, view);
}

typedef void *(*RowFn) (HeapTuple tuple, TupleDesc desc);

/* What fn makes of each stream's row, as a list. */
static List *
of_all_rows(RowFn fn)
{
	Relation	rel = open_registry(AccessShareLock);
	List	   *all = NIL;
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!rel)
		return NIL;
	snapshot = newest_snapshot();
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		all = lappend(all, fn(tuple, RelationGetDescr(rel)));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return all;
}

static void *
whole_def(HeapTuple tuple, TupleDesc desc)
{
	return def_from_tuple(tuple, desc);
}

List *
wms_registry_streams(void)
{
	return of_all_rows(whole_def);
}

static Oid
oid_or_none(HeapTuple tuple, int column, TupleDesc desc)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, column, desc, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

static void *
output_only(HeapTuple tuple, TupleDesc desc)
{
	WmsOutput  *output = palloc(sizeof(WmsOutput));

	output->stream = oid_or_none(tuple, COLUMN_STREAM, desc);
	output->view = oid_or_none(tuple, COLUMN_VIEW, desc);
	output->late_table = oid_or_none(tuple, COLUMN_LATE_TABLE, desc);
	return output;
}

List *
wms_registry_outputs(void)
{
	return of_all_rows(output_only);
}

bool
wms_registry_exists(void)
{
	return OidIsValid(wms_extension_oid()) && OidIsValid(wms_relation_oid(STREAM_TABLE));
}

void
wms_registry_lock(Oid stream)
{
	LockDatabaseObject(wms_relation_oid(STREAM_TABLE), stream, 0, ExclusiveLock);
}

bool
wms_registry_try_lock(Oid stream)
{
	return ConditionalLockDatabaseObject(wms_relation_oid(STREAM_TABLE), stream, 0, ExclusiveLock);
}

bool
wms_registry_hold(Oid stream)
{
	return ConditionalLockDatabaseObject(wms_relation_oid(STREAM_TABLE), stream, 0, RowExclusiveLock);
}

/* ---------------------------------------------------------------- writing */

static void
insert_row(Relation rel, const Row *row)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	memset(isnull, true, desc->natts * sizeof(bool));
	memcpy(values, row->values, sizeof(row->values));
	memcpy(isnull, row->isnull, sizeof(row->isnull));
	tuple = heap_form_tuple(desc, values, isnull);
	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

/* The old row with the columns that were put. */
static HeapTuple
changed_row(Relation rel, HeapTuple old, const Row *row)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc0(desc->natts * sizeof(bool));
	bool	   *replace = palloc0(desc->natts * sizeof(bool));

	memcpy(values, row->values, sizeof(row->values));
	memcpy(isnull, row->isnull, sizeof(row->isnull));
	memcpy(replace, row->replace, sizeof(row->replace));
	return heap_modify_tuple(old, desc, values, isnull, replace);
}

static void
update_row(Relation rel, HeapTuple old, const Row *row)
{
	HeapTuple	new = changed_row(rel, old, row);

	CatalogTupleUpdate(rel, &old->t_self, new);
	heap_freetuple(new);
	CommandCounterIncrement();
}

/* The row of a stream that must be there, locked. */
static HeapTuple
lock_row(Relation rel, Oid stream)
{
	HeapTuple	tuple;

	wms_registry_lock(stream);
	tuple = find_row(rel, COLUMN_STREAM, stream);
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("stream with result table %u does not exist", stream),
				 errhint("It was dropped in the meantime.")));
	return tuple;
}

void
wms_registry_insert(const WmsStreamDef *def)
{
	Relation	rel = open_registry_to_write();
	Row			row;

	wms_registry_lock(def->stream);
	memset(&row, 0, sizeof(row));
	put_settings(&row, def);
	put_status(&row, def->status, NULL, true);
	put_place(&row);
	put_beginning(&row, def);
	insert_row(rel, &row);
	table_close(rel, NoLock);
}

void
wms_registry_update(const WmsStreamDef *def)
{
	Relation	rel = open_registry_to_write();
	HeapTuple	old = lock_row(rel, def->stream);
	Row			row;

	memset(&row, 0, sizeof(row));
	put_settings(&row, def);
	update_row(rel, old, &row);
	table_close(rel, NoLock);
}

void
wms_registry_set_fill(Oid stream, WmsFillKind fill, TimestampTz began, const char *filled)
{
	Relation	rel = open_registry_to_write();
	HeapTuple	old = lock_row(rel, stream);
	Row			row;

	memset(&row, 0, sizeof(row));
	put_fill(&row, fill, began, filled);
	update_row(rel, old, &row);
	table_close(rel, NoLock);
}

/*
 * Removes the state of a stream.  A row that somebody else is just deleting is no error: the
 * state room may be compacting, and gone is what it shall be.
 */
static void
delete_log(Oid stream)
{
	Oid			index = wms_relation_oid(LOG_INDEX);
	Relation	rel = wms_registry_open(LOG_TABLE, RowExclusiveLock);
	Snapshot	snapshot;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!rel)
		return;
	snapshot = newest_snapshot();
	ScanKeyInit(&key, LOG_STREAM_COLUMN, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	scan = systable_beginscan(rel, index, OidIsValid(index), snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TM_FailureData failure;

		CHECK_FOR_INTERRUPTS();
		(void) table_tuple_delete(rel, &tuple->t_self, GetCurrentCommandId(true), snapshot, InvalidSnapshot, true, &failure, false);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
wms_registry_begin_now(Oid stream)
{
	Relation	rel = open_registry(RowExclusiveLock);
	HeapTuple	old = rel ? find_row(rel, COLUMN_STREAM, stream) : NULL;
	Row			row;

	if (HeapTupleIsValid(old))
	{
		memset(&row, 0, sizeof(row));
		put(&row, COLUMN_BEGINS_AFTER, wms_queue_now());
		update_row(rel, old, &row);
	}
	if (rel)
		table_close(rel, NoLock);
}

bool
wms_registry_delete(Oid stream)
{
	Relation	rel = open_registry(RowExclusiveLock);
	HeapTuple	tuple;

	if (!rel)
		return false;
	wms_registry_lock(stream);
	tuple = find_row(rel, COLUMN_STREAM, stream);
	if (HeapTupleIsValid(tuple))
	{
		CatalogTupleDelete(rel, &tuple->t_self);
		CommandCounterIncrement();
		delete_log(stream);
	}
	table_close(rel, NoLock);
	return HeapTupleIsValid(tuple);
}

/* ---------------------------------------------------------------- transitions */

static void
check_transition(Oid stream, WmsStatus from, WmsStatus to)
{
	if (from == to || (successors[from] & BIT(to)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("stream \"%s\" is %s and cannot become %s", get_rel_name(stream), status_names[from], status_names[to]),
			 from == WMS_FAILED || from == WMS_RESTORED ? errhint("Run wmstream.resume() first.") : 0,
			 from == WMS_NEEDS_RESYNC ? errhint("Rebuild it from its sources with wmstream.resync().") : 0));
}

/* A row that came from elsewhere becomes one of this database. */
static void
adopt_row(Relation rel, HeapTuple old, Row *row)
{
	put_place(row);
	CatalogTupleDelete(rel, &old->t_self);
	CommandCounterIncrement();
	CatalogTupleInsert(rel, changed_row(rel, old, row));
	CommandCounterIncrement();
}

void
wms_registry_transition(Oid stream, WmsStatus to, const char *reason)
{
	Relation	rel = open_registry_to_write();
	HeapTuple	old = lock_row(rel, stream);
	WmsStreamDef *def = def_from_tuple(old, RelationGetDescr(rel));
	Row			row;

	if (def->damage)
		refuse_damaged(def);
	check_transition(stream, def->status, to);
	memset(&row, 0, sizeof(row));
	put_status(&row, to, reason, def->status != to);
	if (def->foreign && to != WMS_RESTORED)
	{
		delete_log(stream);
		put_beginning(&row, def);
		if (def->fill == WMS_FILL_FILLED)
			put_fill(&row, WMS_FILL_NONE, 0, NULL);	/* transactions of another place */
		put_time(&row, COLUMN_ADVANCE_TO, false, 0);	/* it begins without the former watermark */
		adopt_row(rel, old, &row);
	}
	else
		update_row(rel, old, &row);
	table_close(rel, NoLock);
}
