/*
 * registry_mark.c
 *	  The mark on a database that has streams.
 *
 * The launcher must know which databases need a worker, and it is connected to none.  So a database with streams bears
 * a mark in a shared catalog: a security label of our provider on the database itself.  pg_shseclabel is one of the few catalogs that
 * can be read without a database; a label is transactional, written to the WAL (a promoted standby has it), goes with
 * DROP DATABASE, and is not copied to a database that is made from this one.  A dump of the database with --create brings it along, and it
 * does no harm there: a worker that finds no stream takes the mark away and goes.
 *
 * The mark is set by the first create_stream of a database, in its transaction, and removed by the worker that finds that
 * there is no stream any more.  Both hold the creation lock (shared_creation.c), the former in share mode.  Those who set the mark go
 * one by one (wms_mark_lock), as two of them would insert the same row.  A mark that somebody took away by hand is
 * put back by the worker when it next reads the registry.
 *
 * The provider takes the label from anybody who may label the database, which is its owner: pg_restore needs that.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_database.h"
#include "catalog/pg_shseclabel.h"
#include "commands/seclabel.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "registry/registry.h"
#include "shared/shared.h"

#define PROVIDER "wmstream"
#define LABEL "streams"

static void
check_label(const ObjectAddress *object, const char *label)
{
	if (object->classId == DatabaseRelationId && (label == NULL || strcmp(label, LABEL) == 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_NAME),
			 errmsg("the only security label of wmstream is '%s' on a database", LABEL),
			 errhint("It is set with the first stream of a database and needs nobody's care.")));
}

void
wms_mark_install(void)
{
	register_label_provider(PROVIDER, check_label);
}

static bool
is_marked(const ObjectAddress *database)
{
	return GetSecurityLabel(database, PROVIDER) != NULL;
}

bool
wms_mark_database(bool wait)
{
	ObjectAddress database;

	ObjectAddressSet(database, DatabaseRelationId, MyDatabaseId);
	if (is_marked(&database))
		return true;
	if (!wms_mark_lock(wait))
		return false;
	if (!is_marked(&database))
	{
		SetSecurityLabel(&database, PROVIDER, LABEL);
		CommandCounterIncrement();
	}
	return true;
}

void
wms_unmark_database(void)
{
	ObjectAddress database;

	ObjectAddressSet(database, DatabaseRelationId, MyDatabaseId);
	if (is_marked(&database))
		SetSecurityLabel(&database, PROVIDER, NULL);
}

List *
wms_marked_databases(void)
{
	Relation	rel = table_open(SharedSecLabelRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	List	   *databases = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_shseclabel form = (Form_pg_shseclabel) GETSTRUCT(tuple);
		bool		isnull;
		Datum		provider = heap_getattr(tuple, Anum_pg_shseclabel_provider, RelationGetDescr(rel), &isnull);

		if (form->classoid == DatabaseRelationId && strcmp(TextDatumGetCString(provider), PROVIDER) == 0)
			databases = lappend_oid(databases, form->objoid);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return databases;
}
