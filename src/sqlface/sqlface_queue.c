/*
 * sqlface_queue.c
 *	  create_queue, drop_queue, set_trim, row_xid.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "utils/xid8.h"

#include "registry/registry.h"
#include "shared/shared.h"
#include "sqlface/sqlface_internal.h"

PG_FUNCTION_INFO_V1(wms_sql_create_queue);
PG_FUNCTION_INFO_V1(wms_sql_drop_queue);
PG_FUNCTION_INFO_V1(wms_sql_set_trim);
PG_FUNCTION_INFO_V1(wms_sql_row_xid);

Datum
wms_sql_create_queue(PG_FUNCTION_ARGS)
{
	wms_require_preloaded();
	wms_face_begin_write("wmstream.create_queue()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the table of a queue cannot be NULL")));
	wms_queue_create(PG_GETARG_OID(0), !PG_ARGISNULL(1) && PG_GETARG_BOOL(1), PG_ARGISNULL(1));
	wms_wake_at_commit();
	PG_RETURN_VOID();
}

Datum
wms_sql_drop_queue(PG_FUNCTION_ARGS)
{
	wms_require_preloaded();
	wms_face_begin_write("wmstream.drop_queue()");
	wms_queue_drop(PG_GETARG_OID(0));
	wms_wake_at_commit();
	PG_RETURN_VOID();
}

Datum
wms_sql_set_trim(PG_FUNCTION_ARGS)
{
	wms_require_preloaded();
	wms_face_begin_write("wmstream.set_trim()");
	wms_queue_set_trim(PG_GETARG_OID(0), PG_GETARG_BOOL(1));
	wms_wake_at_commit();
	PG_RETURN_VOID();
}

/* Works in servers without the library preloaded too, where a dump may be restored. */
Datum
wms_sql_row_xid(PG_FUNCTION_ARGS)
{
	PG_RETURN_FULLTRANSACTIONID(GetTopFullTransactionId());
}
