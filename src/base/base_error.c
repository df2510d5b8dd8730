/*
 * base_error.c
 *	  Refusals as values, errors that undo no more than what raised them, how our processes begin a transaction,
 *	  and the one error that every SQL function may raise.
 *
 * A check returns a WmsRefusal and leaves to its caller whether that becomes an
 * ERROR, a line of explain, or the reason of a failed stream.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/resowner.h"

#include "base/base.h"

bool		wms_preloaded = false;

static char *format_message(const char *format, va_list args) pg_attribute_printf(1, 0);

static char *
format_message(const char *format, va_list args)
{
	StringInfoData text;
	va_list		again;
	int			needed;

	initStringInfo(&text);
	for (;;)
	{
		va_copy(again, args);
		needed = appendStringInfoVA(&text, format, again);
		va_end(again);
		if (needed == 0)
			return text.data;
		enlargeStringInfo(&text, needed);
	}
}

/* The clock first: a transaction begins at what it says. */
void
wms_transaction_start(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
}

/*
 * An error must not leave the function before the subtransaction is gone: in a session of a user's nobody else would end it, and the
 * session would be left in a transaction that has failed.
 */
ErrorData *
wms_in_subtransaction(void (*fn) (void *arg), void *arg, bool keep)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile edata = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		fn(arg);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	if (keep && edata == NULL)
		ReleaseCurrentSubTransaction();
	else
		RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return edata;
}

WmsRefusal *
wms_refuse(int sqlerrcode, int location, const char *hint, const char *message,...)
{
	WmsRefusal *refusal = palloc0(sizeof(WmsRefusal));
	va_list		args;

	refusal->sqlerrcode = sqlerrcode;
	refusal->location = location;
	refusal->hint = hint ? pstrdup(hint) : NULL;
	va_start(args, message);
	refusal->message = format_message(message, args);
	va_end(args);
	return refusal;
}

/* The error cursor counts characters from 1; a parse location counts bytes from 0. */
static int
cursor_position(const char *query_text, int location)
{
	return pg_mbstrlen_with_len(query_text, Min(location, (int) strlen(query_text))) + 1;
}

int
wms_errplace(const char *query_text, int location)
{
	if (query_text == NULL || location < 0)
		return 0;
	internalerrquery(query_text);
	return internalerrposition(cursor_position(query_text, location));
}

void
wms_refusal_raise(const WmsRefusal *refusal, const char *query_text)
{
	ereport(ERROR,
			(errcode(refusal->sqlerrcode),
			 errmsg_internal("%s", refusal->message),
			 refusal->detail ? errdetail_internal("%s", refusal->detail) : 0,
			 refusal->hint ? errhint("%s", refusal->hint) : 0,
			 wms_errplace(query_text, refusal->location)));
	pg_unreachable();
}

/* What shared_preload_libraries must be set to; its present value is shown only to those who may see it. */
static char *
preload_hint(void)
{
	bool		may_see = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS);
	bool		is_set = shared_preload_libraries_string != NULL && shared_preload_libraries_string[0] != '\0';

	if (is_set && !may_see)
		return "Add wmstream to shared_preload_libraries in postgresql.conf and restart the server.";
	return psprintf("Set shared_preload_libraries = '%s%swmstream' in postgresql.conf and restart the server.",
					is_set ? shared_preload_libraries_string : "", is_set ? ", " : "");
}

void
wms_require_preloaded(void)
{
	if (wms_preloaded)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("wmstream must be loaded when the server starts"),
			 errhint("%s", preload_hint())));
}
