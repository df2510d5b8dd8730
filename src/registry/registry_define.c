/*
 * registry_define.c
 *	  What create_stream makes besides the result table, and drop_stream takes away: the view that keeps
 *	  the definition, the late table, and the dependencies that let Postgres drop things together.
 *
 * The view lives in schema wmstream, where users may create nothing, so it is made as the bootstrap
 * superuser.  For that reason it is made from a query that the user's own parse analysis has produced:
 * analysing text may run functions (a domain's CHECK behind a constant of a composite type), and those
 * must never run as a superuser.  Making a relation from types and storing a finished tree runs none.
 *
 * Dependencies: the view hangs, by automatic ones, on the result table (dropping the result drops it) and on the
 * extension (so DROP EXTENSION needs no CASCADE and leaves the results).  Sources it depends on as any view
 * does.  Nothing depends on the view; the registry row goes when the view or the result goes (registry_drop.c).
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "commands/view.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_type.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

/* Columns of a late table. */
static const struct
{
	const char *name;
	Oid			type;
	const char *sql_type;
}			late_columns[] = {
	{"stream", REGCLASSOID, "regclass"},
	{"source", REGCLASSOID, "regclass"},
	{"event_time", TIMESTAMPTZOID, "timestamptz"},
	{"watermark", TIMESTAMPTZOID, "timestamptz"},
	{"reason", TEXTOID, "text"},
	{"error", TEXTOID, "text"},
	{"arrived_at", TIMESTAMPTZOID, "timestamptz"},
	{"row_data", JSONBOID, "jsonb"}
};

void
wms_registry_command(const char *sql)
{
	int			result;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	result = SPI_execute(sql, false, 0);
	if (result != SPI_OK_UTILITY)
		elog(ERROR, "command failed: %s", SPI_result_code_string(result));
	SPI_finish();
}

/*
 * Two who make a table of one name at the same time would both find that there is none, and one would fail with a duplicate key of
 * pg_class.  The lock is one of the schema with a number made from the name: two names with the same number wait for each other in vain,
 * which harms nobody.  0 is the schema itself.
 */
void
wms_lock_new_name(Oid schema, const char *name)
{
	uint16		number = 1 + hash_bytes((const unsigned char *) name, strlen(name)) % PG_UINT16_MAX;

	LockDatabaseObject(NamespaceRelationId, schema, number, ShareUpdateExclusiveLock);
}

/* ---------------------------------------------------------------- the view */

static List *
view_columns(const Query *query)
{
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Oid			type = exprType((Node *) tle->expr);
		Oid			collation = exprCollation((Node *) tle->expr);

		if (tle->resjunk)
			continue;
		if (type_is_collatable(type) && !OidIsValid(collation))
			ereport(ERROR,
					(errcode(ERRCODE_INDETERMINATE_COLLATION),
					 errmsg("could not determine which collation to use for column \"%s\"", tle->resname),
					 errhint("Use the COLLATE clause to set the collation explicitly.")));
		columns = lappend(columns, makeColumnDef(tle->resname, type, exprTypmod((Node *) tle->expr), collation));
	}
	return columns;
}

/*
 * "<schema>.<result>", or something close to it if that is too long or taken: a renamed result leaves its view under the
 * old name.
 */
static char *
view_name(const WmsTarget *target, Oid schema)
{
	char	   *wanted = psprintf("%s.%s", target->schema, target->name);
	char	   *name;

	wms_lock_new_name(schema, wanted);
	if (strlen(wanted) < NAMEDATALEN && !OidIsValid(get_relname_relid(wanted, schema)) &&
		!OidIsValid(GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(wanted), ObjectIdGetDatum(schema))))
		return wanted;
	/* Others would choose the same. */
	wms_lock_new_name(schema, "");
	name = ChooseRelationName(wanted, NULL, "stream", schema, false);
	ereport(NOTICE,
			(errmsg("the definition is kept as view %s", quote_qualified_identifier(get_namespace_name(schema), name))));
	return name;
}

Oid
wms_define_view(const WmsTarget *target, Query *query)
{
	Oid			schema = wms_schema_oid();
	CreateStmt *create = makeNode(CreateStmt);
	ObjectAddress view;
	Oid			user;
	int			context;

	create->relation = makeRangeVar(get_namespace_name(schema), view_name(target, schema), -1);
	create->tableElts = view_columns(query);

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE);
	view = DefineRelation(create, RELKIND_VIEW, target->owner, NULL, NULL);
	CommandCounterIncrement();
	StoreViewQuery(view.objectId, copyObject(query), false);
	CommandCounterIncrement();
	SetUserIdAndSecContext(user, context);
	return view.objectId;
}

/* ---------------------------------------------------------------- the late table */

static void
make_late_table(const RangeVar *relation, Oid schema)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE %s (", quote_qualified_identifier(get_namespace_name(schema), relation->relname));
	for (int i = 0; i < (int) lengthof(late_columns); i++)
		appendStringInfo(&sql, "%s%s pg_catalog.%s", i > 0 ? ", " : "", quote_identifier(late_columns[i].name), late_columns[i].sql_type);
	appendStringInfoChar(&sql, ')');
	wms_registry_command(sql.data);
}

static void
late_table_misfit(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("table \"%s\" cannot be a late table", RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("Name a table that does not exist yet, or one with the columns stream regclass, source regclass, "
					 "event_time timestamptz, watermark timestamptz, reason text, error text, arrived_at timestamptz, row_data jsonb.")));
}

static int
late_column_number(const char *name)
{
	for (int i = 0; i < (int) lengthof(late_columns); i++)
	{
		if (strcmp(late_columns[i].name, name) == 0)
			return i;
	}
	return -1;
}

/* Every column of ours by name and type, and nothing else that would have to be given. */
static void
check_late_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			found = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		int			ours;

		if (column->attisdropped)
			continue;
		ours = late_column_number(NameStr(column->attname));
		if (ours < 0)
		{
			if (column->attnotnull && !column->atthasdef && !column->attidentity)
				late_table_misfit(rel, psprintf("Its column \"%s\" is NOT NULL and has no default.", NameStr(column->attname)));
			continue;
		}
		if (column->atttypid != late_columns[ours].type || column->attgenerated || column->attidentity)
			late_table_misfit(rel, psprintf("Its column \"%s\" must be of type %s, and not generated.",
											late_columns[ours].name, late_columns[ours].sql_type));
		found++;
	}
	if (found < (int) lengthof(late_columns))
		late_table_misfit(rel, "It lacks columns.");
}

static void
check_late_table(Oid relid, Oid stream)
{
	Relation	rel = table_open(relid, NoLock);

	if (relid == stream)
		late_table_misfit(rel, "It is the result table.");
	if (rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		late_table_misfit(rel, "It is not a table.");
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		late_table_misfit(rel, "It is temporary or unlogged.");
	if (rel->rd_rules)
		late_table_misfit(rel, "It has rewrite rules.");
	if (wms_foreign_part(wms_partitions(relid)))
		late_table_misfit(rel, psprintf("It is %s.", wms_foreign_part(wms_partitions(relid))));
	check_late_columns(rel);
	table_close(rel, NoLock);
}

static void
check_may_insert(Oid relid, Oid role)
{
	if (pg_class_aclcheck(relid, role, ACL_INSERT) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" may not insert into late table \"%s\"", GetUserNameFromId(role, false), get_rel_name(relid)),
				 errhint("Run GRANT INSERT ON %s TO %s.",
						 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)),
						 quote_identifier(GetUserNameFromId(role, false)))));
}

static void
refuse_loop(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the stream would read its own late table \"%s\"", get_rel_name(relid)),
			 errhint("Name a table that the stream does not read, directly or through views or other streams.")));
}

/* The stream runs as its owner, but whoever names a table for it must be allowed to write there too: called before the table is locked. */
static void
caller_may_insert(const RangeVar *relation, Oid relid, Oid oldrelid, void *arg)
{
	if (OidIsValid(relid))
		check_may_insert(relid, GetUserId());
}

/* Locked against being dropped; InvalidOid if there is none. */
static Oid
find_late_table(const RangeVar *relation)
{
	return RangeVarGetRelidExtended(relation, AccessShareLock, RVR_MISSING_OK, caller_may_insert, NULL);
}

static Oid
new_late_table(const RangeVar *relation, Oid schema, Oid owner)
{
	Oid			relid;

	make_late_table(relation, schema);
	relid = get_relname_relid(relation->relname, schema);
	if (owner != GetUserId() && pg_class_aclcheck(relid, owner, ACL_INSERT) != ACLCHECK_OK)
		wms_registry_command(psprintf("GRANT INSERT ON %s TO %s",
									  quote_qualified_identifier(get_namespace_name(schema), relation->relname),
									  quote_identifier(GetUserNameFromId(owner, false))));
	return relid;
}

Oid
wms_define_late_table(const char *name, Oid stream, Oid view, Oid owner)
{
	RangeVar   *relation = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name)));
	Oid			relid = find_late_table(relation);

	if (!OidIsValid(relid))
	{
		Oid			schema = RangeVarGetCreationNamespace(relation);

		wms_lock_new_name(schema, relation->relname);
		relid = find_late_table(relation);
		if (!OidIsValid(relid))
			relid = new_late_table(relation, schema, owner);
	}
	check_late_table(relid, stream);
	if (wms_definition_reaches(view, relid))
		refuse_loop(relid);
	check_may_insert(relid, owner);
	return relid;
}

/* ---------------------------------------------------------------- dependencies and the end */

static void
depend_automatically(Oid view, Oid classid, Oid objid)
{
	ObjectAddress dependent;
	ObjectAddress referenced;

	ObjectAddressSet(dependent, RelationRelationId, view);
	ObjectAddressSet(referenced, classid, objid);
	deleteDependencyRecordsForSpecific(RelationRelationId, view, DEPENDENCY_AUTO, classid, objid);
	recordDependencyOn(&dependent, &referenced, DEPENDENCY_AUTO);
}

void
wms_define_dependencies(Oid stream, Oid view)
{
	depend_automatically(view, RelationRelationId, stream);
	depend_automatically(view, ExtensionRelationId, wms_extension_oid());
	CommandCounterIncrement();
}

List *
wms_define_owned(void)
{
	List	   *owned = NIL;
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		const WmsStreamDef *def = lfirst(lc);

		owned = lappend_oid(lappend_oid(owned, def->stream), def->owner);
	}
	return owned;
}

bool
wms_define_owners(const List *before)
{
	bool		changed = !equal(before, wms_define_owned());
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		WmsStreamDef *def = lfirst(lc);
		Oid			owner = wms_registry_owner(def->view);

		/* Whoever could change the owner of the table may change that of its definition, wherever that lives. */
		if (!OidIsValid(owner) || !OidIsValid(def->owner) || owner == def->owner)
			continue;
		ATExecChangeOwner(def->view, def->owner, true, AccessExclusiveLock);
		changed = true;
	}
	return changed;
}

/* As our own: the owner of a definition owns nothing in our schema but it. */
static void
drop_view(Oid view)
{
	ObjectAddress object;

	if (get_rel_relkind(view) == '\0')
		return;
	ObjectAddressSet(object, RelationRelationId, view);
	performDeletion(&object, DROP_RESTRICT, 0);
}

/* As the current user, by the command that everybody knows. */
static void
drop_result(Oid stream)
{
	char	   *name = get_rel_name(stream);

	if (name)
		wms_registry_command(psprintf("DROP TABLE %s",
									  quote_qualified_identifier(get_namespace_name(get_rel_namespace(stream)), name)));
}

void
wms_drop_definition(const WmsStreamDef *def, bool results)
{
	wms_registry_delete(def->stream);
	/* The view first: a restored stream has no dependency that would take it along. */
	drop_view(def->view);
	if (results)
		drop_result(def->stream);
}
