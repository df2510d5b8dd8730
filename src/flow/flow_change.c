/*
 * flow_change.c
 *	  Rows of sources that were changed or deleted: an error, or taken back.
 *
 * on_change = retract.  A DELETE feeds the old row once more, marked to be taken back; an UPDATE feeds the old row so, and then the new one.
 * The marked row goes through the same filter and the same windows as it did when it came, and ends here, in each group that it was in:
 * states undo it by their inverse transition functions; where arguments are kept, it is kept too, with a mark, and
 * cancels an equal row when the group is emitted.  What was cancelled is cleared away when it outgrows what is left.
 *
 * An UPDATE of nothing that the definition reads is no change for the stream.
 *
 * A group whose last row was taken back is gone: at once where the result has no row of it, else at the next firing, which takes that
 * away.  Until then its entry stays, and says zero rows.
 *
 * A row that no group knows (it was there before the stream, or was behind W when it came) is passed over.  A row whose window is gone
 * is late, like any other; a change whose old and new row are both late is one late row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "flow/flow_internal.h"

#define CLEAR_AWAY_FROM 32		/* kept rows */

/* ---------------------------------------------------------------- errors */

/* "a row of table "t" was deleted" */
static char *
what_happened(FlowSource *source, const WmsChange *change)
{
	char	   *table = get_rel_name(source->plan->relid);

	if (change->kind == WMS_CHANGE_TRUNCATE)
		return psprintf("table \"%s\" was truncated", table);
	return psprintf("a row of table \"%s\" was %s", table, change->kind == WMS_CHANGE_UPDATE ? "updated" : "deleted");
}

/* on_change = error.  Which row it was says the worker. */
void
wms_flow_refuse_change(FlowSource *source, const WmsChange *change)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s, and on_change is 'error'", what_happened(source, change)),
			 errhint("To go on without it, set on_change to 'ignore' by wmstream.alter_stream() and resume the stream.")));
}

/* on_change = retract: is all there that it takes? */
void
wms_flow_check_change(FlowSource *source, const WmsChange *change)
{
	if (change->kind == WMS_CHANGE_INSERT || change->kind == WMS_CHANGE_TRUNCATE)
		return;
	if (change->missing_toast)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s, and it is too large to be read whole", what_happened(source, change))));
	if (change->old.t_data == NULL || change->old_is_key)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s when its replica identity was not FULL: the old row cannot be taken back", what_happened(source, change)),
				 errhint("Let all partitions of the table have REPLICA IDENTITY FULL, and rebuild the stream with wmstream.resync().")));
}

/* Did the update leave alone all that the definition reads?  old: the old row as the table's columns are now. */
bool
wms_flow_same_for_us(FlowSource *source, const WmsChange *change, HeapTuple old)
{
	HeapTuple	new = wms_flow_fit_row(source, change->shape, (HeapTuple) &change->tuple, true);
	ListCell   *lc;

	foreach(lc, source->plan->columns_used)
	{
		Form_pg_attribute att = TupleDescAttr(source->table_desc, lfirst_int(lc) - 1);
		bool		isnull[2];
		Datum		was = heap_getattr(old, lfirst_int(lc), source->table_desc, &isnull[0]);
		Datum		is = heap_getattr(new, lfirst_int(lc), source->table_desc, &isnull[1]);

		if (isnull[0] != isnull[1] || (!isnull[0] && !datum_image_eq(was, is, att->attbyval, att->attlen)))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- kept rows without those taken back */

typedef struct KeptRow
{
	const char *data;
	uint32		len;			/* without the mark */
	int			cancelled;		/* of the first of equal rows that were taken back: how many of them have met theirs */
} KeptRow;

typedef struct KeptRows
{
	List	   *rows;
	List	   *taken;
} KeptRows;

static bool
sort_out(const char *data, uint32 len, void *arg)
{
	KeptRows   *kept = arg;
	KeptRow    *row = palloc(sizeof(KeptRow));

	row->data = data;
	row->len = len - 1;
	row->cancelled = 0;
	if (data[len - 1])
		kept->taken = lappend(kept->taken, row);
	else
		kept->rows = lappend(kept->rows, row);
	return true;
}

static int
compare_rows(const KeptRow *a, const KeptRow *b)
{
	int			order = memcmp(a->data, b->data, Min(a->len, b->len));

	return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int
compare_cells(const ListCell *a, const ListCell *b)
{
	return compare_rows(lfirst(a), lfirst(b));
}

/* The first of the sorted rows that is not less. */
static int
lower_bound(const List *sorted, const KeptRow *row)
{
	int			from = 0;
	int			to = list_length(sorted);

	while (from < to)
	{
		int			middle = from + (to - from) / 2;

		if (compare_rows(list_nth(sorted, middle), row) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/* Cancels one of the rows taken back that is equal; false: there is none.  Very many may be equal. */
static bool
cancel(const List *taken, const KeptRow *row)
{
	int			at = lower_bound(taken, row);
	KeptRow    *first;

	if (at == list_length(taken))
		return false;
	first = list_nth(taken, at);
	at += first->cancelled;
	if (at == list_length(taken) || compare_rows(list_nth(taken, at), row) != 0)
		return false;
	first->cancelled++;
	return true;
}

/* Copies of the rows are made by nobody: they stay where kept has them, in the batch or in shared memory. */
static List *
survivors_of(FlowOp *op, WmsEntry *entry, WmsFlowKept kept)
{
	KeptRows	found = {NIL, NIL};
	List	   *left = NIL;
	ListCell   *lc;

	kept(op->flow, entry, sort_out, &found);
	if (found.taken == NIL)
		return found.rows;
	list_sort(found.taken, compare_cells);
	foreach(lc, found.rows)
		if (!cancel(found.taken, lfirst(lc)))
			left = lappend(left, lfirst(lc));
	return left;
}

/* Are there rows left in the group?  Those that are kept are found on the way; in the current context, for wms_flow_each_survivor. */
bool
wms_flow_has_rows(FlowOp *op, WmsEntry *entry, WmsFlowKept kept)
{
	op->survivors = NIL;
	if (!op->plan->global && wms_flow_states_rows(op, entry) <= 0)
		return false;
	if (!op->has_kept)
		return true;
	op->survivors = survivors_of(op, entry, kept);
	return op->survivors != NIL || op->plan->global;
}

void
wms_flow_each_survivor(FlowOp *op, WmsKeptFn fn, void *arg)
{
	ListCell   *lc;

	foreach(lc, op->survivors)
	{
		KeptRow    *row = lfirst(lc);

		if (!fn(row->data, row->len, arg))
			return;
	}
}

/* ---------------------------------------------------------------- groups */

/* Does the result have a row of the group, which only a firing can take away? */
static bool
may_be_shown(FlowOp *op, WmsTime end)
{
	WmsFlow    *flow = op->flow;

	if (op->plan->id != flow->plan->top_op)
		return false;
	return flow->def->output_mode == WMS_UPDATE || wms_flow_came_late(op, end);
}

/* The entry once more, without kept rows. */
static WmsEntry *
made_anew(FlowOp *op, WmsEntry *entry)
{
	WmsEntry   *anew;

	wms_state_remove(op->flow->store, entry);
	anew = wms_state_get(op->flow->store, &entry->bucket, entry->hash, entry->key, entry->key_len, true);
	anew->flags = entry->flags;
	anew->work = entry->work;
	return anew;
}

static void
become_empty(FlowOp *op, WmsEntry *entry)
{
	if (!op->plan->global && !may_be_shown(op, entry->bucket.end))
	{
		wms_state_remove(op->flow->store, entry);
		return;
	}
	if (op->has_kept)
		entry = made_anew(op, entry);
	entry->work = wms_flow_states_new(op);
	wms_flow_note_touch(op, entry);
}

/* Rows that cancel each other make room, once there are more of them than of others. */
static void
clear_away(FlowOp *op, WmsEntry *entry)
{
	List	   *left;
	ListCell   *lc;

	if (entry->nkept < CLEAR_AWAY_FROM || entry->nkept < 3 * wms_flow_states_rows(op, entry))
		return;
	left = survivors_of(op, entry, wms_flow_kept_of_store);
	entry = made_anew(op, entry);
	foreach(lc, left)
	{
		KeptRow    *row = lfirst(lc);

		wms_state_keep(op->flow->store, entry, row->data, row->len + 1);
	}
}

/* A row of the operator's input that was in this group leaves it.  Runs in the row's memory. */
void
wms_flow_take_back(FlowOp *op, const WmsWindow *window, uint32 hash, TupleTableSlot *slot)
{
	WmsBucketKey bucket = {op->plan->id, window->start, window->end};
	WmsEntry   *entry = wms_state_get(op->flow->store, &bucket, hash, op->key.data, op->key.len, false);

	if (entry == NULL || wms_flow_states_rows(op, entry) <= 0)
		return;
	if (entry->work == NULL)
		entry->work = wms_flow_states_load(op, entry->value, entry->value_len);
	if (wms_flow_states_rows(op, entry) == 1)
	{
		become_empty(op, entry);
		return;
	}
	wms_flow_note_touch(op, entry);
	wms_flow_states_retract(op, entry->work, slot);
	if (!op->has_kept)
		return;
	wms_flow_keep_row(op, entry, slot, true);
	clear_away(op, entry);
}

/* Takes note of a group that the result may have a row of, and must not. */
void
wms_flow_retire(FlowOp *op, WmsEntry *entry)
{
	int			natts = op->out->desc->natts;
	Datum	   *values;
	bool	   *isnull;

	if (op->retired == NULL)
		return;
	values = palloc0(sizeof(Datum) * natts);
	isnull = palloc(sizeof(bool) * natts);
	memset(isnull, true, natts);
	wms_flow_emit_keys(op, entry, values, isnull);
	tuplestore_putvalues(op->retired->rows, op->retired->desc, values, isnull);
}

void
wms_flow_change_prepare(WmsFlow *flow, FlowOp *op)
{
	if (op->retracts && wms_flow_replaces(flow) && op->plan->kind == WMS_OP_AGGREGATE && op->plan->id == flow->plan->top_op)
		op->retired = wms_rowset_make(flow->env, psprintf("wms_retired_%d", op->plan->id), op->plan->out_desc);
}

/* ---------------------------------------------------------------- TRUNCATE */

typedef struct Keys
{
	List	   *keys;			/* WmsEntry *, copies of what tells them */
} Keys;

static void
note_key(WmsEntry *entry, void *arg)
{
	Keys	   *found = arg;
	WmsEntry   *copy = palloc0(sizeof(WmsEntry));
	char	   *key = palloc(Max(entry->key_len, 1));

	memcpy(key, entry->key, entry->key_len);
	copy->bucket = entry->bucket;
	copy->hash = entry->hash;
	copy->key = key;
	copy->key_len = entry->key_len;
	found->keys = lappend(found->keys, copy);
}

static void
empty_bucket(FlowOp *op, const WmsBucketKey *bucket)
{
	WmsStore   *store = op->flow->store;
	Keys		found = {NIL};
	ListCell   *lc;

	if (!op->plan->global && !may_be_shown(op, bucket->end))
	{
		wms_state_close(store, bucket);
		return;
	}
	wms_state_scan(store, bucket, note_key, &found);
	foreach(lc, found.keys)
	{
		WmsEntry   *key = lfirst(lc);

		become_empty(op, wms_state_get(store, bucket, key->hash, key->key, key->key_len, true));
	}
}

static void
check_truncate(WmsFlow *flow, FlowSource *source, const WmsChange *change)
{
	char	   *table = get_rel_name(source->plan->relid);
	bool		others = false;

	for (int i = 0; i < flow->plan->nsources; i++)
		others |= flow->plan->sources[i].relid != source->plan->relid;
	if (!change->partial && !others)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 change->partial ? errmsg("a partition of table \"%s\" was truncated, and its rows cannot be told from others to take them back", table)
			 : errmsg("table \"%s\" was truncated, and its rows cannot be told from those of other sources to take them back", table),
			 errhint("Delete rows with DELETE. Rebuild the stream with wmstream.resync().")));
}

/* All rows of the only table are gone, and with them all groups that are not finished. */
void
wms_flow_truncate(WmsFlow *flow, FlowSource *source, const WmsChange *change)
{
	MemoryContext old;

	check_truncate(flow, source, change);
	if (flow->trying)
		return;
	wms_flow_chunk_end(flow);
	old = MemoryContextSwitchTo(flow->batch);
	for (int i = 0; i < flow->plan->nops; i++)
	{
		FlowOp	   *op = &flow->ops[i];
		WmsBucketKey bucket = {op->plan->id, WMS_TIME_MIN, WMS_TIME_MIN};

		while (op->retracts && wms_state_next_bucket(flow->store, &bucket))
			empty_bucket(op, &bucket);
		/* a key that comes again in this batch is another entry than the one that went with its bucket */
		memset(op->recent, 0, sizeof(op->recent));
	}
	MemoryContextSwitchTo(old);
}
