/*
 * sqlface_stream.c
 *	  The stream that a call names: finding it, who may do what with it, and running its code as its owner.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "shared/shared.h"
#include "source/source.h"
#include "sqlface/sqlface_internal.h"

void
wms_face_begin_write(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
}

WmsStreamDef *
wms_face_stream(Oid stream)
{
	WmsStreamDef *def = wms_registry_stream(stream);
	char	   *name;

	if (def)
		return def;
	name = get_rel_name(stream);
	ereport(ERROR,
			(errcode(name ? ERRCODE_UNDEFINED_OBJECT : ERRCODE_UNDEFINED_TABLE),
			 name ? errmsg("\"%s\" is not the result table of a stream", name)
			 : errmsg("table with OID %u does not exist", stream),
			 errhint("SELECT stream FROM wmstream.streams lists the streams of this database.")));
	return NULL;
}

/* The owner, members of that role, and superusers. */
static void
must_own(const WmsStreamDef *def)
{
	if (OidIsValid(def->owner) ? has_privs_of_role(GetUserId(), def->owner) : superuser())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("must be owner of stream \"%s\"", get_rel_name(def->stream)),
			 errhint("The owner of a stream is the owner of its result table.")));
}

WmsStreamDef *
wms_face_own_stream(Oid stream, const char *function)
{
	wms_face_begin_write(function);
	/* Before the lock, so that only who may change a stream can hold it up; and after it, for what holds now. */
	must_own(wms_face_stream(stream));
	wms_registry_lock(stream);
	return wms_face_stream(stream);
}

/* The table before the stream, as DROP TABLE does, or the two would wait for each other. */
WmsStreamDef *
wms_face_own_stream_and_result(Oid stream, const char *function)
{
	wms_face_begin_write(function);
	must_own(wms_face_stream(stream));
	LockRelationOid(stream, AccessExclusiveLock);
	return wms_face_own_stream(stream, function);
}

bool
wms_face_may_see(const WmsStreamDef *def)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_MONITOR) ||
		(OidIsValid(def->owner) && has_privs_of_role(GetUserId(), def->owner));
}

void
wms_face_command(WmsStreamDef *def)
{
	def->command++;
	wms_registry_update(def);
	wms_wake_at_commit();
}

/* As it was before: nobody has made another stream of it, nor told it to begin anew. */
static bool
is_as_before(const WmsStreamDef *now, const WmsStreamDef *before)
{
	return now && now->view == before->view && now->command == before->command;
}

/*
 * Streams that were there when their slot was not have lost what was written since.  Those that others make, or rebuild, as soon as there is a
 * slot again have not.  One whose row is damaged runs no more anyway, and is nobody else's trouble.
 */
static void
give_up_streams(const List *without_slot)
{
	ListCell   *lc;

	foreach(lc, without_slot)
	{
		const WmsStreamDef *before = lfirst(lc);
		const WmsStreamDef *def;

		if (before->damage)
			continue;
		wms_registry_lock(before->stream);
		def = wms_registry_stream(before->stream);
		if (is_as_before(def, before) && !def->reads_queues && def->status != WMS_RESTORED && def->status != WMS_NEEDS_RESYNC)
			wms_registry_transition(def->stream, WMS_NEEDS_RESYNC,
									"the replication slot was gone, and with it rows that were not read yet. Rebuild the stream with wmstream.resync().");
	}
}

void
wms_face_need_slot(bool only_queues)
{
	List	   *without_slot;

	wms_creation_lock_share();
	if (only_queues || wms_slot_exists(MyDatabaseId))
		return;
	without_slot = wms_registry_streams();
	if (!wms_slot_create())
		return;
	WMS_POINT("slot-made");
	give_up_streams(without_slot);
}

void
wms_face_need_worker(bool only_queues)
{
	wms_face_need_slot(only_queues);
	/* Only after the slot, which only a transaction that has not written can make. */
	wms_mark_database(true);
}

static void
set_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
wms_face_become_owner(const WmsStreamDef *def, WmsFaceOwner *scope)
{
	scope->guc_level = NewGUCNestLevel();
	set_local("search_path", "pg_catalog, pg_temp");
	set_local("TimeZone", def->timezone);
	set_local("DateStyle", def->datestyle);
	set_local("IntervalStyle", def->intervalstyle);
	wms_values_adopt();
	GetUserIdAndSecContext(&scope->user, &scope->context);
	SetUserIdAndSecContext(def->owner, scope->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

void
wms_face_leave_owner(const WmsFaceOwner *scope)
{
	SetUserIdAndSecContext(scope->user, scope->context);
	AtEOXact_GUC(false, scope->guc_level);
}
