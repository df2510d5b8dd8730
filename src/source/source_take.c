/*
 * source_take.c
 *	  A decoded change on its way into a store.
 *
 * A change of a relation becomes one record for each wanted table that its rows belong to (source_relation.c).  Rows that are flat and
 * fit are copied as they come, which is nearly always so and must be fast: no allocation, one lookup.  Others are built anew in
 * wal->scratch, which is reset after each.
 *
 * Where records go: the batch's common store for whole transactions, the transaction's own for open ones (open not NULL), where runs of
 * subtransactions are counted along.
 *
 * Called by source_callbacks.c inside decoding; what that demands is said there.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "replication/reorderbuffer.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

static void
count_run(WmsWal *wal, WmsOpenTxn *open, TransactionId xid)
{
	WmsRun	   *run = open->nruns > 0 ? &open->runs[open->nruns - 1] : NULL;

	if (run == NULL || run->xid != xid)
	{
		if (open->runs == NULL)
		{
			open->maxruns = 4;
			open->runs = MemoryContextAlloc(wal->context, sizeof(WmsRun) * open->maxruns);
		}
		else if (open->nruns == open->maxruns)
		{
			open->runs = repalloc_huge(open->runs, sizeof(WmsRun) * open->maxruns * 2);
			open->maxruns *= 2;
		}
		run = &open->runs[open->nruns++];
		run->xid = xid;
		run->from = wms_stage_end(open->stage);
		run->nrows = 0;
	}
	run->nrows++;
}

/* The store that a record of the transaction goes to; counts it. */
static WmsStage *
stage_for(WmsWal *wal, WmsOpenTxn *open, TransactionId xid)
{
	if (open == NULL)
	{
		if (wal->inline_stage == NULL)
			wal->inline_stage = wms_stage_make();
		wal->txn_rows++;
		return wal->inline_stage;
	}
	if (open->stage == NULL)
		open->stage = wms_stage_make();
	count_run(wal, open, xid);
	return open->stage;
}

static void
append(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, WmsChangeKind kind, const WmsRowShape *shape, const WmsRows *rows)
{
	uint32		new_len = rows->new_row ? rows->new_row->t_len : 0;
	uint32		old_len = rows->old_row ? rows->old_row->t_len : 0;
	WmsRecord  *record = wms_stage_append(stage_for(wal, open, xid), shape, new_len, old_len);

	record->kind = (uint8) kind;
	record->missing_toast = rows->missing_toast;
	record->old_is_key = rows->old_is_key;
	record->partial = rows->partial;
	if (new_len > 0)
		memcpy(WmsRecordNew(record), rows->new_row->t_data, new_len);
	if (old_len > 0)
		memcpy(WmsRecordOld(record), rows->old_row->t_data, old_len);
}

static WmsMove **
move_of(WmsWal *wal, WmsOpenTxn *open)
{
	return open ? &open->move : &wal->txn_move;
}

/* The row that left came nowhere: a DELETE after all. */
void
wms_take_end(WmsWal *wal, WmsOpenTxn *open)
{
	WmsMove   **held = move_of(wal, open);
	WmsMove    *move = *held;

	if (move == NULL)
		return;
	for (int i = 0; i < move->nleft; i++)
	{
		WmsRows		rows = {.old_row = move->left[i].old_row,.old_is_key = move->old_is_key};

		if (move->left[i].shape)
			append(wal, open, move->xid, WMS_CHANGE_DELETE, move->left[i].shape, &rows);
	}
	*held = NULL;
	wms_move_free(move);
}

/* Is an INSERT the other half of the move? */
static bool
completes_move(WmsMove *move, TransactionId xid, const WmsSourceRel *rel)
{
	if (move == NULL || move->xid != xid)
		return false;
	for (int i = 0; i < rel->ntargets; i++)
		if (wms_move_find(move, rel->targets[i].shape))
			return true;
	return false;
}

/*
 * Rows that take more than copying on their way: they have values from outside or another layout, or belong to several tables, or
 * complete a move.
 */
static void
append_built(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, WmsChangeKind kind, const WmsSourceRel *rel, WmsRows *rows,
			 WmsMove *move)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(wal->scratch);

	wms_rows_flatten(rows, rel);
	for (int i = 0; i < rel->ntargets; i++)
	{
		const WmsTarget *target = &rel->targets[i];
		WmsMovedRow *moved = move ? wms_move_find(move, target->shape) : NULL;
		WmsRows		converted;

		wms_rows_convert(rows, target, &converted);
		if (moved)
		{
			converted.old_row = moved->old_row;
			converted.old_is_key = move->old_is_key;
			moved->shape = NULL;
		}
		append(wal, open, xid, moved ? WMS_CHANGE_UPDATE : kind, target->shape, &converted);
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextReset(wal->scratch);
	if (move)
		wms_take_end(wal, open);
}

/* A DELETE that is half of an update. */
static void
begin_move(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, const WmsSourceRel *rel, WmsRows *rows)
{
	MemoryContext oldcontext;

	wms_take_end(wal, open);
	oldcontext = MemoryContextSwitchTo(wal->scratch);
	*move_of(wal, open) = wms_move_make(wal, xid, rel, rows);
	MemoryContextSwitchTo(oldcontext);
	MemoryContextReset(wal->scratch);
}

static WmsChangeKind
kind_of(ReorderBufferChange *change)
{
	switch (change->action)
	{
		case REORDER_BUFFER_CHANGE_INSERT:
			return WMS_CHANGE_INSERT;
		case REORDER_BUFFER_CHANGE_UPDATE:
			return WMS_CHANGE_UPDATE;
		case REORDER_BUFFER_CHANGE_DELETE:
			return WMS_CHANGE_DELETE;
		default:
			elog(ERROR, "unexpected kind of change %d", (int) change->action);
			return WMS_CHANGE_INSERT;	/* keep compiler quiet */
	}
}

static void
stage_rows(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, const WmsSourceRel *rel, ReorderBufferChange *change, bool moved)
{
	WmsChangeKind kind = kind_of(change);
	WmsMove    *move = *move_of(wal, open);
	WmsRows		rows = {0};

	if (kind != WMS_CHANGE_DELETE)
		rows.new_row = WmsChangeTuple(change->data.tp.newtuple);
	if (kind != WMS_CHANGE_INSERT)
		rows.old_row = WmsChangeTuple(change->data.tp.oldtuple);
	rows.old_is_key = rows.old_row != NULL && !rel->identity_full;

	if (moved)
	{
		begin_move(wal, open, xid, rel, &rows);
		return;
	}
	if (move && (kind != WMS_CHANGE_INSERT || !completes_move(move, xid, rel)))
		move = NULL;
	if (rel->ntargets == 1 && rel->targets[0].map == NULL && move == NULL && !(rows.new_row && HeapTupleHasExternal(rows.new_row)))
		append(wal, open, xid, kind, rel->targets[0].shape, &rows);
	else
		append_built(wal, open, xid, kind, rel, &rows, move);
}

/* A row of wmstream.stream: its first two columns are the stream and its view. */
static void
stage_created(WmsWal *wal, WmsOpenTxn *open, TransactionId xid, Relation relation, ReorderBufferChange *change)
{
	HeapTuple	tuple = WmsChangeTuple(change->data.tp.newtuple);
	List	  **created = open ? &open->created : &wal->txn_created;
	WmsRegistered *row;
	MemoryContext oldcontext;
	Datum		stream;
	Datum		view;
	bool		no_stream;
	bool		no_view;

	if (change->action != REORDER_BUFFER_CHANGE_INSERT || tuple == NULL)
		return;
	stream = heap_getattr(tuple, 1, RelationGetDescr(relation), &no_stream);
	view = heap_getattr(tuple, 2, RelationGetDescr(relation), &no_view);
	if (no_stream || no_view)
		return;
	oldcontext = MemoryContextSwitchTo(wal->context);
	row = palloc(sizeof(WmsRegistered));
	row->xid = xid;
	row->stream = DatumGetObjectId(stream);
	row->view = DatumGetObjectId(view);
	*created = lappend(*created, row);
	MemoryContextSwitchTo(oldcontext);
}

void
wms_take_change(WmsWal *wal, WmsOpenTxn *open, Relation relation, ReorderBufferChange *change)
{
	WmsSourceRel *rel = wms_relations_get(wal, relation);
	TransactionId xid = change->txn->xid;
	bool		moved = change->action == REORDER_BUFFER_CHANGE_DELETE && wms_moves_take(wal, change->lsn);

	if (rel->ntargets > 0)
		stage_rows(wal, open, xid, rel, change, moved);
	else if (rel->registry)
		stage_created(wal, open, xid, relation, change);
	if (open && rel->ntargets < rel->nlineage)
		rel->passed_over = true;
}

static bool
among(Oid relid, int nrelations, Relation relations[])
{
	for (int r = 0; r < nrelations; r++)
	{
		if (RelationGetRelid(relations[r]) == relid)
			return true;
	}
	return false;
}

/* One TRUNCATE of a partitioned table names all its partitions too: each wanted table is told once. */
void
wms_take_truncate(WmsWal *wal, WmsOpenTxn *open, int nrelations, Relation relations[], ReorderBufferChange *change)
{
	WmsRows		rows = {0};
	List	   *told = NIL;

	for (int r = 0; r < nrelations; r++)
	{
		WmsSourceRel *rel = wms_relations_get(wal, relations[r]);

		for (int i = 0; i < rel->ntargets; i++)
		{
			const WmsRowShape *shape = rel->targets[i].shape;

			if (list_member_oid(told, shape->relid))
				continue;
			told = lappend_oid(told, shape->relid);
			rows.partial = !among(shape->relid, nrelations, relations);
			append(wal, open, change->txn->xid, WMS_CHANGE_TRUNCATE, shape, &rows);
		}
		if (open && rel->ntargets < rel->nlineage)
			rel->passed_over = true;
	}
	list_free(told);
}
