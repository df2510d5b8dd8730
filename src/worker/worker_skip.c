/*
 * worker_skip.c
 *	  Rows of a batch that raised errors.
 *
 * An error undoes the batch, and the batch is run again: without the row (on_error = skip), or row by row when it is not known which row
 * it was (WmsCare).  For a row that fails in its second aggregate has changed the first.
 *
 * A batch with many such rows would be run again for each of them.  So after a second one all rows of the batch are *tried*: each is computed
 * as in feeding, in a subtransaction that is always rolled back, and goes no further than to the operators, whose state stays as it is.
 * What still fails in the run after that does so in the state (an aggregate that overflows), and is found one by one.
 *
 * skips is in the order of row numbers, which is the order of feeding.  All of it lives in skip_context until the batch is done: from run to
 * run it is the same batch, whose changes have the same numbers.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "worker/worker.h"

void
wms_skips_forget(WmsRunner *runner)
{
	if (runner->skips == NIL && runner->care == WMS_CARE_NONE)
		return;
	runner->skips = NIL;
	runner->care = WMS_CARE_NONE;
	runner->try_rows = WMS_TRY_NOT;
	runner->sought_error = NULL;
	MemoryContextReset(runner->skip_context);
}

void
wms_skips_look_for_row(WmsRunner *runner, const ErrorData *edata)
{
	runner->care = runner->care == WMS_CARE_NONE ? WMS_CARE_NEW : WMS_CARE_ALL;
	runner->sought_error = MemoryContextStrdup(runner->skip_context, wms_error_message(edata));
}

static int
compare_skips(const ListCell *a, const ListCell *b)
{
	int64		x = ((const WmsSkip *) lfirst(a))->row;
	int64		y = ((const WmsSkip *) lfirst(b))->row;

	return (x > y) - (x < y);
}

static void
append_skip(WmsRunner *runner, const ErrorData *edata, int64 row, WmsTime time)
{
	MemoryContext old = MemoryContextSwitchTo(runner->skip_context);
	WmsSkip    *skip = palloc(sizeof(WmsSkip));

	skip->row = row;
	skip->error = pstrdup(wms_error_message(edata));
	skip->time = time;
	runner->skips = lappend(runner->skips, skip);
	MemoryContextSwitchTo(old);
}

void
wms_skips_add(WmsRunner *runner, const ErrorData *edata, int64 row, WmsTime time)
{
	append_skip(runner, edata, row, time);
	list_sort(runner->skips, compare_skips);
	runner->care = Min(runner->care, WMS_CARE_NEW);
}

bool
wms_skips_must_try(WmsRunner *runner)
{
	if (runner->skips == NIL || runner->try_rows != WMS_TRY_NOT)
		return false;
	runner->try_rows = WMS_TRY_NEXT;
	return true;
}

/* What it raises that is not the row's own leaves as any error of the batch does.  The row's own: in memory of context; else NULL. */
static ErrorData *
try_row(WmsRunner *runner, const WmsChange *change, MemoryContext context)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	WmsProgress scratch = runner->work;
	ErrorData  *volatile edata = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		wms_flow_try(runner->flow, runner->store, &scratch, context, change);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		if (!wms_error_is_rows(edata))
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;
	return edata;
}

void
wms_skips_try(WmsRunner *runner, WmsBatch *batch)
{
	MemoryContext context = AllocSetContextCreate(wms_batch_context, "wmstream row that is tried", ALLOCSET_DEFAULT_SIZES);
	int			known = list_length(runner->skips);
	int			at = 0;
	WmsChange	change;

	wms_rows_begin(runner, batch);
	for (int64 row = 0; wms_rows_next(runner, batch, &change); row++)
	{
		ErrorData  *edata;

		CHECK_FOR_INTERRUPTS();
		if (at < known && ((WmsSkip *) list_nth(runner->skips, at))->row == row)
		{
			at++;
			continue;
		}
		edata = try_row(runner, &change, context);
		if (edata)
			append_skip(runner, edata, row, wms_flow_failed_time(runner->flow));
		wms_flow_end(runner->flow);
		MemoryContextReset(context);
	}
	list_sort(runner->skips, compare_skips);
	MemoryContextDelete(context);
	runner->try_rows = WMS_TRY_DONE;
}
