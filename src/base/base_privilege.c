/*
 * base_privilege.c
 *	  What of a table the current user may read by statements of its own.
 *
 * Decoded rows come whole, whoever the stream belongs to.  Where one of them is shown to its owner, who we are, it is without the columns that
 * a SELECT of the owner's would not get.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rls.h"

#include "base/base.h"

/* Which rows a policy would let through is not known here, so it lets none through. */
Bitmapset *
wms_readable_columns(Oid relid, int natts)
{
	Bitmapset  *columns = NULL;
	bool		gone;

	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return NULL;
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return bms_add_range(NULL, 1, natts);
	for (int i = 1; i <= natts; i++)
		if (pg_attribute_aclcheck_ext(relid, i, GetUserId(), ACL_SELECT, &gone) == ACLCHECK_OK)
			columns = bms_add_member(columns, i);
	return columns;
}
