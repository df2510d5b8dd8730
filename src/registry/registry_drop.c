/*
 * registry_drop.c
 *	  Hooks that let a stream end with what it stands on, and follow it to another owner.
 *
 * Object access: when a result table, a definition or a queue is dropped, by whatever road, the registry
 * row goes in the same transaction.  The definition goes alone when a source is dropped with CASCADE or
 * when the view itself is; then the result stays, as a plain table.  Called in every database of the server
 * and for every object, so it looks at as little as it can before it decides that nothing of ours is meant.
 *
 * Utility commands: a database cannot be dropped, renamed, moved or copied while our worker is connected to
 * it, so the worker is sent away first and kept away until the command's transaction ends, well or not.
 * Only who may do the command anyhow may send a worker away.  Core drops the slot of a dropped
 * database; the worker, before it goes for good, that of a dropped extension.  When a result table gets
 * another owner, its definition follows.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "registry/registry_internal.h"
#include "shared/shared.h"

static object_access_hook_type next_object_access = NULL;
static ProcessUtility_hook_type next_utility = NULL;

/* ---------------------------------------------------------------- objects */

/* May a relation be a result table or a definition?  Temporary ones are dropped by the dozen at every session's end. */
static bool
may_be_ours(Oid relid)
{
	char		kind = get_rel_relkind(relid);

	return (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_VIEW) &&
		!isAnyTempNamespace(get_rel_namespace(relid)) &&
		wms_registry_exists();
}

static void
relation_dropped(Oid relid)
{
	WmsStreamDef *def;

	if (!may_be_ours(relid))
		return;
	(void) wms_queue_forget(relid);
	def = get_rel_relkind(relid) == RELKIND_VIEW ? wms_registry_by_view(relid) : wms_registry_stream(relid);
	if (def && wms_registry_delete(def->stream))
		wms_wake_at_commit();
}

static void
on_object_access(ObjectAccessType access, Oid classid, Oid objid, int subid, void *arg)
{
	if (next_object_access)
		next_object_access(access, classid, objid, subid, arg);
	if (access != OAT_DROP || subid != 0)
		return;
	if (classid == RelationRelationId)
		relation_dropped(objid);
	else if (classid == ExtensionRelationId && objid == wms_extension_oid())
		wms_wake_at_commit();
}

/* ---------------------------------------------------------------- commands */

static const char *
option_string(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, name) == 0 && option->arg)
			return defGetString(option);
	}
	return NULL;
}

/* The database that a command needs without anybody connected to it; NULL: the command is none of these. */
static const char *
database_wanted(Node *command)
{
	if (IsA(command, DropdbStmt))
		return castNode(DropdbStmt, command)->dbname;
	if (IsA(command, RenameStmt) && castNode(RenameStmt, command)->renameType == OBJECT_DATABASE)
		return castNode(RenameStmt, command)->subname;
	if (IsA(command, AlterDatabaseStmt) && option_string(castNode(AlterDatabaseStmt, command)->options, "tablespace"))
		return castNode(AlterDatabaseStmt, command)->dbname;
	if (IsA(command, CreatedbStmt))
		return option_string(castNode(CreatedbStmt, command)->options, "template");
	return NULL;
}

static void
clear_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	if (OidIsValid(database) && WmsOwnsDatabase(database, GetUserId()))
		wms_worker_stop(database);
}

/* Does a DROP EXTENSION name ours, and may the user do it? */
static bool
drops_our_extension(DropStmt *command)
{
	Oid			extension = wms_extension_oid();
	ListCell   *lc;

	if (!OidIsValid(extension) || !WmsOwnsExtension(extension, GetUserId()))
		return false;
	foreach(lc, command->objects)
	{
		if (strcmp(strVal(lfirst(lc)), "wmstream") == 0)
			return true;
	}
	return false;
}

/* Before a command runs: sends away the worker that would be in its way. */
static void
clear_the_way(Node *command)
{
	const char *database = database_wanted(command);

	if (database)
		clear_database(database);
	else if (IsA(command, DropStmt) && castNode(DropStmt, command)->removeType == OBJECT_EXTENSION &&
			 drops_our_extension(castNode(DropStmt, command)))
		wms_worker_stop(MyDatabaseId);
}

/* May a command have given tables to another role? */
static bool
changes_owners(Node *command)
{
	ListCell   *lc;

	if (IsA(command, ReassignOwnedStmt))
		return true;
	if (!IsA(command, AlterTableStmt))
		return false;
	foreach(lc, castNode(AlterTableStmt, command)->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_ChangeOwner)
			return true;
	}
	return false;
}

static List *
streams_owned(void)
{
	return IsTransactionState() && wms_registry_exists() ? wms_define_owned() : NIL;
}

/*
 * After such a command: the definitions follow their results, and the worker runs the streams as their new owners.  Where none has changed
 * the transaction is none of ours, and may be prepared.
 */
static void
follow_owners(const List *before)
{
	if (!wms_registry_exists())
		return;
	CommandCounterIncrement();
	if (wms_define_owners(before))
		wms_wake_at_commit();
}

static void
on_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
		   ParamListInfo params, QueryEnvironment *env, DestReceiver *dest, QueryCompletion *completion)
{
	bool		owners = changes_owners(pstmt->utilityStmt);
	List	   *owned = owners ? streams_owned() : NIL;

	if (IsTransactionState())
		clear_the_way(pstmt->utilityStmt);
	if (next_utility)
		next_utility(pstmt, query, read_only_tree, context, params, env, dest, completion);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, completion);
	if (owners)
		follow_owners(owned);
}

void
wms_registry_install_hooks(void)
{
	next_object_access = object_access_hook;
	object_access_hook = on_object_access;
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = on_utility;
	wms_upsert_install_hook();
}
