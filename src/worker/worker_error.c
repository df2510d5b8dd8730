/*
 * worker_error.c
 *	  What a stream's owner is told of an error.
 *
 * The text goes into the status: the error's own message and detail, the table, the row with its values if it is known, the
 * transaction it came with, and the hint.
 *
 * Values are written out by their types' output functions, which may be anybody's code and may fail in turn: that runs as the owner, in a
 * transaction of its own, under the batch's clock; if it fails, the text does without them.  The batch is read again up to the row, for
 * nothing of the failed attempt is left.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "worker/worker.h"

/* Bytes of a value that are shown. */
#define VALUE_SHOWN 64

static void
append_value(StringInfo text, Form_pg_attribute att, Datum value, bool isnull)
{
	Oid			output;
	bool		is_varlena;
	char	   *string;
	int			len;

	if (isnull)
	{
		appendStringInfoString(text, "null");
		return;
	}
	getTypeOutputInfo(att->atttypid, &output, &is_varlena);
	string = OidOutputFunctionCall(output, value);
	len = strlen(string);
	if (len <= VALUE_SHOWN)
	{
		appendStringInfoString(text, string);
		return;
	}
	appendBinaryStringInfo(text, string, pg_mbcliplen(string, len, VALUE_SHOWN));
	appendStringInfoString(text, "...");
}

/*
 * Of the columns that are there those which the stream's owner, who we are, may read, with their names where some are left out.
 * only_key: of the others nothing is known, and they stand as NULL.
 */
static void
append_row(StringInfo text, const WmsRowShape *shape, HeapTuple tuple, bool only_key)
{
	int			natts = shape->desc->natts;
	Datum	   *values = palloc(sizeof(Datum) * natts);
	bool	   *isnull = palloc(sizeof(bool) * natts);
	Bitmapset  *readable = wms_readable_columns(shape->relid, natts);
	bool		named = only_key || bms_num_members(readable) < natts;
	const char *separator = "(";

	heap_deform_tuple(tuple, shape->desc, values, isnull);
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(shape->desc, i);

		if (att->attisdropped || (only_key && isnull[i]) || !bms_is_member(i + 1, readable))
			continue;
		appendStringInfoString(text, separator);
		separator = ", ";
		if (named)
			appendStringInfo(text, "%s=", NameStr(att->attname));
		append_value(text, att, values[i], isnull[i]);
	}
	if (text->len > 0)
		appendStringInfoChar(text, ')');
}

/* The row of that number among those that the stream has not consumed. */
static bool
find_row(WmsRunner *runner, WmsBatch *batch, int64 row, WmsChange *change)
{
	wms_rows_begin(runner, batch);
	for (int64 i = 0; i <= row; i++)
		if (!wms_rows_next(runner, batch, change))
			return false;
	return change->tuple.t_data != NULL || change->old.t_data != NULL;
}

static void
write_row(WmsRunner *runner, const WmsChange *change, StringInfo text)
{
	WmsOwnerScope scope;

	wms_transaction_start();
	PushActiveSnapshot(GetTransactionSnapshot());
	wms_become_owner(runner->def, &scope);
	wms_batch_clock_start();
	MemoryContextSwitchTo(wms_batch_context);
	if (change->tuple.t_data)
		append_row(text, change->shape, (HeapTuple) &change->tuple, false);
	else
		append_row(text, change->shape, (HeapTuple) &change->old, change->old_is_key);
	(void) wms_batch_clock_stop();
	wms_leave_owner(&scope);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* The row's values; NULL: they cannot be had.  Outside a transaction; the result lives in the batch context. */
static char *
describe_row(WmsRunner *runner, WmsBatch *batch, int64 row)
{
	MemoryContext old = MemoryContextSwitchTo(wms_batch_context);
	StringInfo	text = makeStringInfo();
	volatile bool ok = false;
	WmsChange	change;

	PG_TRY();
	{
		if (find_row(runner, batch, row, &change))
		{
			write_row(runner, &change, text);
			ok = text->len > 0;
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(wms_batch_context);
		FlushErrorState();
		AbortOutOfAnyTransaction();
		(void) wms_batch_clock_stop();
	}
	PG_END_TRY();
	wms_after_owner();
	MemoryContextSwitchTo(old);
	return ok ? text->data : NULL;
}

static char *
table_name(Oid relid)
{
	char	   *name;

	wms_transaction_start();
	MemoryContextSwitchTo(wms_batch_context);
	name = get_rel_name(relid);
	CommitTransactionCommand();
	MemoryContextSwitchTo(wms_batch_context);
	return name ? name : "?";
}

static void
append_place(StringInfo text, const WmsWhere *where, const char *row)
{
	const char *table = table_name(where->source);

	bool		existing = where->batch && where->batch->existing;

	if (row)
		appendStringInfo(text, ", at the %srow %s of \"%s\"", existing ? "existing " : "", row, table);
	else
		appendStringInfo(text, ", at %s of \"%s\"", existing ? "an existing row" : "a row", table);
	if (existing)
		return;
	if (XLogRecPtrIsInvalid(where->end_lsn))
		appendStringInfo(text, " in transaction %u", where->xid);
	else
		appendStringInfo(text, " in the transaction that ends at %X/%X", LSN_FORMAT_ARGS(where->end_lsn));
}

/*
 * A key of the result that its index cannot take; what the index says of itself does not help who wrote a query.  Very long ones
 * fail before the index is known: then the place in core tells.
 */
static bool
is_too_long_key(const ErrorData *edata)
{
	const char *file = edata->filename ? strrchr(edata->filename, '/') : NULL;

	if (edata->sqlerrcode != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		return false;
	return edata->constraint_name != NULL || (edata->filename && strcmp(file ? file + 1 : edata->filename, "indextuple.c") == 0);
}

/* Another time it may go well. */
bool
wms_error_is_transient(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
			return true;
		default:
			/* a cancellation that is not the batch's clock's is somebody's who may want it again */
			return sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || sqlerrcode == ERRCODE_QUERY_CANCELED;
	}
}

/* That rows are being fed is known. */
bool
wms_error_is_rows(const ErrorData *edata)
{
	return !wms_error_is_transient(edata->sqlerrcode) && ERRCODE_TO_CATEGORY(edata->sqlerrcode) != ERRCODE_INTERNAL_ERROR;
}

/* Code of users may raise errors that say nothing: then what the server's log has of them. */
const char *
wms_error_message(const ErrorData *edata)
{
	return edata->message && edata->message[0] ? edata->message : "missing error text";
}

/*
 * The text for an error of a batch; row: the number of the row that raised it, -1: not known, or none.  Outside a transaction; lives in
 * the batch context.
 */
char *
wms_error_text(WmsRunner *runner, WmsBatch *batch, const WmsWhere *where, const ErrorData *edata, int64 row, bool timed_out)
{
	MemoryContext old = MemoryContextSwitchTo(wms_batch_context);
	StringInfo	text = makeStringInfo();

	if (timed_out)
		appendStringInfo(text, "the batch took longer than wmstream.batch_timeout (%d ms)", wms_batch_timeout);
	else
		appendStringInfoString(text, wms_error_message(edata));
	if (edata->detail && !timed_out)
		appendStringInfo(text, " (%s)", edata->detail);
	if (where->in_rows)
		append_place(text, where, batch && row >= 0 && !timed_out ? describe_row(runner, batch, row) : NULL);
	if (is_too_long_key(edata))
		appendStringInfoString(text, ". A key of the result must fit into a row of an index: show a hash of it, such as md5(...), or in append mode leave it out");
	else if (edata->hint)
		appendStringInfo(text, ". %s", edata->hint);
	MemoryContextSwitchTo(old);
	return text->data;
}
