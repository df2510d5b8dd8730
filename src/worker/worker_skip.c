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

#include "miscadmin.h"
#include "utils/memutils.h"

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

static WmsSkip *
skip_at(const WmsRunner *runner, int at)
{
	return list_nth(runner->skips, at);
}

static void
insert_skip(WmsRunner *runner, int at, const ErrorData *edata, int64 row, WmsTime time)
{
	MemoryContext old = MemoryContextSwitchTo(runner->skip_context);
	WmsSkip    *skip = palloc(sizeof(WmsSkip));

	skip->row = row;
	skip->error = pstrdup(wms_error_message(edata));
	skip->time = time;
	runner->skips = list_insert_nth(runner->skips, at, skip);
	MemoryContextSwitchTo(old);
}

void
wms_skips_add(WmsRunner *runner, const ErrorData *edata, int64 row, WmsTime time)
{
	int			at = list_length(runner->skips);

	while (at > 0 && skip_at(runner, at - 1)->row > row)
		at--;
	insert_skip(runner, at, edata, row, time);
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

typedef struct Trial
{
	WmsRunner  *runner;
	MemoryContext context;		/* of the row */
	WmsProgress scratch;
	WmsChange	change;
} Trial;

static void
try_row(void *arg)
{
	Trial	   *trial = arg;

	trial->scratch = trial->runner->work;
	wms_flow_try(trial->runner->flow, trial->runner->store, &trial->scratch, trial->context, &trial->change);
}

/* The error that is the row's own, or NULL; any other leaves as an error of the batch does. */
static ErrorData *
error_of_row(Trial *trial)
{
	MemoryContext old = MemoryContextSwitchTo(trial->context);
	ErrorData  *edata = wms_in_subtransaction(try_row, trial, false);

	MemoryContextSwitchTo(old);
	if (edata && !wms_error_is_rows(edata))
		ReThrowError(edata);
	return edata;
}

void
wms_skips_try(WmsRunner *runner, WmsBatch *batch)
{
	Trial		trial = {.runner = runner};
	int			at = 0;			/* skips of the rows before */

	trial.context = AllocSetContextCreate(wms_batch_context, "wmstream row that is tried", ALLOCSET_DEFAULT_SIZES);
	wms_rows_begin(runner, batch);
	for (int64 row = 0; wms_rows_next(runner, batch, &trial.change); row++)
	{
		ErrorData  *edata;

		CHECK_FOR_INTERRUPTS();
		if (at < list_length(runner->skips) && skip_at(runner, at)->row == row)
		{
			at++;
			continue;
		}
		edata = error_of_row(&trial);
		if (edata)
			insert_skip(runner, at++, edata, row, wms_flow_failed_time(runner->flow));
		wms_flow_end(runner->flow);
		MemoryContextReset(trial.context);
	}
	MemoryContextDelete(trial.context);
	runner->try_rows = WMS_TRY_DONE;
}
