/*
 * base_names.c
 *	  Which OIDs belong to us: the extension, its schema, its relations, its
 *	  window and watermark functions, its aggregate.
 *
 * Calls in a user's query are recognised by function OID, never by name, so a
 * search_path cannot pass another function off as ours; and only functions that
 * are members of the extension count.  What was found is kept until pg_proc
 * changes.  The extension cannot come or go without such a change, as it always
 * brings functions, so the same event covers its own OID.
 *
 * All functions need a transaction and a database; without them, as in the
 * launcher, the extension is not there.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/catcache.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/base.h"

#define SCHEMA_NAME "wmstream"
#define EXTENSION_NAME "wmstream"
#define MAX_FUNCTIONS 32

/* An SQL function that analysis knows. */
typedef struct KnownFunction
{
	Oid			oid;
	WmsFunction kind;
} KnownFunction;

/* How often pg_proc has changed since we listen, and as of which change the rest was read; 0: never. */
static uint64 changes = 1;
static uint64 known_as_of = 0;

static Oid	known_extension = InvalidOid;
static int	nknown = 0;
static KnownFunction known[MAX_FUNCTIONS];

static void
forget_known(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
}

static WmsFunction
kind_of(const char *name, bool returns_set)
{
	if (strcmp(name, "watermark") == 0)
		return WMS_FN_WATERMARK;
	if (strcmp(name, "window") == 0)
		return returns_set ? WMS_FN_WINDOW_SLIDE : WMS_FN_WINDOW;
	if (strcmp(name, "cumulate_window") == 0)
		return WMS_FN_CUMULATE;
	if (strcmp(name, "session_window") == 0)
		return WMS_FN_SESSION;
	return WMS_FN_LATEST;
}

/* Adds the extension's own functions of a name, whatever their arguments. */
static void
learn_functions(const char *name, Oid schema)
{
	CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));

	for (int i = 0; i < list->n_members && nknown < MAX_FUNCTIONS; i++)
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&list->members[i]->tuple);

		if (proc->pronamespace == schema &&
			getExtensionOfObject(ProcedureRelationId, proc->oid) == known_extension)
		{
			known[nknown].oid = proc->oid;
			known[nknown].kind = kind_of(name, proc->proretset);
			nknown++;
		}
	}
	ReleaseSysCacheList(list);
}

static void
learn(void)
{
	static bool listening = false;
	static const char *const names[] = {"watermark", "window", "cumulate_window", "session_window", "latest"};
	uint64		as_of = changes;	/* a change that arrives while we read makes us read again */
	Oid			schema;

	if (!listening)
	{
		CacheRegisterSyscacheCallback(PROCOID, forget_known, (Datum) 0);
		listening = true;
	}

	nknown = 0;
	known_extension = get_extension_oid(EXTENSION_NAME, true);
	schema = wms_schema_oid();
	if (OidIsValid(known_extension) && OidIsValid(schema))
	{
		for (int i = 0; i < (int) lengthof(names); i++)
			learn_functions(names[i], schema);
	}
	known_as_of = as_of;
}

/* Is what we know up to date, or can it be made so? */
static bool
can_know(void)
{
	if (!IsTransactionState() || !OidIsValid(MyDatabaseId))
		return false;
	if (known_as_of != changes)
		learn();
	return true;
}

WmsFunction
wms_function_kind(Oid funcid)
{
	/* Built-in functions are most of what we are asked about. */
	if (funcid < FirstNormalObjectId || !can_know())
		return WMS_FN_OTHER;
	for (int i = 0; i < nknown; i++)
	{
		if (known[i].oid == funcid)
			return known[i].kind;
	}
	return WMS_FN_OTHER;
}

Oid
wms_latest_aggregate(void)
{
	for (int i = 0; can_know() && i < nknown; i++)
	{
		if (known[i].kind == WMS_FN_LATEST)
			return known[i].oid;
	}
	elog(ERROR, "aggregate wmstream.latest() is not there");
}

Oid
wms_extension_oid(void)
{
	return can_know() ? known_extension : InvalidOid;
}

Oid
wms_schema_oid(void)
{
	if (!IsTransactionState() || !OidIsValid(MyDatabaseId))
		return InvalidOid;
	return get_namespace_oid(SCHEMA_NAME, true);
}

Oid
wms_relation_oid(const char *name)
{
	Oid			schema = wms_schema_oid();

	return OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
}
