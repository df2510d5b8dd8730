/*
 * shared_values.c
 *	  Settings that say how values are read and written, as the worker of the database has them.
 *
 * Expressions of a stream run in other processes than its worker too: for readers of open windows, where a definition is looked at, in followers.  What
 * such a process has from its session, its role or its client must not matter: it takes the worker's values instead, for as long as it runs the stream's
 * code.  What belongs to the stream itself, its time zone and styles, is not among them.
 *
 * The worker writes its values down when it begins and when it has read the configuration again.  Where no worker runs, the values are
 * those that RESET would give.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "shared/shared.h"

/* What any user may set, and what can change the answer of a function that is not volatile. */
static const char *const names[] = {
	"array_nulls",
	"backslash_quote",
	"bytea_output",
	"default_text_search_config",
	"extra_float_digits",
	"gin_fuzzy_search_limit",
	"lc_monetary",
	"lc_numeric",
	"lc_time",
	"quote_all_identifiers",
	"row_security",
	"standard_conforming_strings",
	"timezone_abbreviations",
	"transform_null_equals",
	"xmlbinary",
	"xmloption"
};

/* All of them, one after the other, each with its end; false: there is no room. */
static bool
write_down(char *values)
{
	Size		used = 0;

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		used += strlcpy(values + used, GetConfigOption(names[i], false, false), WMS_VALUES_LEN - used) + 1;
		if (used > WMS_VALUES_LEN)
			return false;
	}
	return true;
}

void
wms_values_tell(WmsSharedWorker *worker)
{
	char		values[WMS_VALUES_LEN] = "";
	bool		known = write_down(values);

	LWLockAcquire(&wms_shared->lock, LW_EXCLUSIVE);
	worker->values_known = known;
	memcpy(worker->values, values, sizeof(values));
	LWLockRelease(&wms_shared->lock);
}

static bool
worker_values(char *values)
{
	WmsSharedWorker *worker;
	bool		known;

	LWLockAcquire(&wms_shared->lock, LW_SHARED);
	worker = wms_worker_of(MyDatabaseId);
	known = worker && worker->values_known;
	if (known)
		memcpy(values, worker->values, WMS_VALUES_LEN);
	LWLockRelease(&wms_shared->lock);
	return known;
}

/* Most have the value already, and to set some of them takes reading a file. */
void
wms_values_adopt(void)
{
	char		values[WMS_VALUES_LEN];
	const char *next = wms_shared && worker_values(values) ? values : NULL;

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		const char *value = next ? next : GetConfigOptionResetString(names[i]);

		if (strcmp(GetConfigOption(names[i], false, false), value) != 0)
			(void) set_config_option(names[i], value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		if (next)
			next += strlen(next) + 1;
	}
}
