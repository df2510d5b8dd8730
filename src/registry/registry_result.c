/*
 * registry_result.c
 *	  The result table of a stream: finding it by name, making it, or checking that an existing one will do.
 *
 * A table is made by CREATE TABLE as the calling user, so privileges, defaults, event triggers and
 * tablespaces are what they always are.  An existing one must have each column of the SELECT list by
 * name, with its type; what else it has must be able to stay out of an INSERT.
 *
 * The *key* is the unique index that upserts go by.  It covers exactly the shown group keys, and it must
 * treat two NULLs as equal, as GROUP BY does: a primary key, or UNIQUE NULLS NOT DISTINCT.
 *
 * Locking: resolving takes ShareUpdateExclusiveLock on an existing table, or a lock of the name of one that is to
 * be made, so that two create_stream on one table wait for each other.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/varlena.h"

#include "registry/registry.h"
#include "registry/registry_internal.h"

/* ---------------------------------------------------------------- finding */

/* Called before a table of that name is locked: others' tables are not locked at all. */
static void
must_own(const RangeVar *relation, Oid relid, Oid oldrelid, void *arg)
{
	if (OidIsValid(relid) && !WmsOwnsRelation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)), relation->relname);
}

static Oid
find_table(const RangeVar *relation)
{
	return RangeVarGetRelidExtended(relation, ShareUpdateExclusiveLock, RVR_MISSING_OK, must_own, NULL);
}

WmsTarget *
wms_target_resolve(const char *name)
{
	WmsTarget  *target = palloc0(sizeof(WmsTarget));
	RangeVar   *relation = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name)));

	target->relid = find_table(relation);
	if (!OidIsValid(target->relid))
	{
		target->schema_oid = RangeVarGetCreationNamespace(relation);
		wms_lock_new_name(target->schema_oid, relation->relname);
		target->relid = find_table(relation);
	}
	if (OidIsValid(target->relid))
	{
		target->schema_oid = get_rel_namespace(target->relid);
		target->owner = wms_registry_owner(target->relid);
	}
	else
		target->owner = GetUserId();
	target->schema = get_namespace_name(target->schema_oid);
	target->name = relation->relname;
	return target;
}

static void
refuse_existing(const WmsTarget *target, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" cannot be the result of a stream: it is %s", target->name, what),
			 errhint("Name an ordinary or partitioned table, or one that does not exist yet.")));
}

/* A rule makes other commands of those that we write. */
static void
check_no_rules(const WmsTarget *target)
{
	Relation	rel = table_open(target->relid, NoLock);

	if (rel->rd_rules)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be the result of a stream: it has rewrite rules", target->name),
				 errhint("Use triggers instead of the rules, or name a table that does not exist yet.")));
	table_close(rel, NoLock);
}

/* Rows of a stream must be as durable as its state, and must be found where they were put. */
static void
check_kind(const WmsTarget *target)
{
	char		kind = get_rel_relkind(target->relid);

	if (kind == RELKIND_VIEW || kind == RELKIND_MATVIEW)
		refuse_existing(target, "a view");
	if (kind == RELKIND_FOREIGN_TABLE)
		refuse_existing(target, "a foreign table");
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		refuse_existing(target, "no table");
	if (get_rel_persistence(target->relid) == RELPERSISTENCE_UNLOGGED)
		refuse_existing(target, "an unlogged table, which a crash empties");
	if (kind == RELKIND_RELATION && find_inheritance_children(target->relid, NoLock) != NIL)
		refuse_existing(target, "the parent of an inheritance tree");
	check_no_rules(target);
	if (wms_foreign_part(wms_partitions(target->relid)))
		refuse_existing(target, wms_foreign_part(wms_partitions(target->relid)));
}

void
wms_target_check(const WmsTarget *target)
{
	if (isAnyTempNamespace(target->schema_oid))
		refuse_existing(target, "a temporary table");
	if (IsCatalogNamespace(target->schema_oid) || IsToastNamespace(target->schema_oid) ||
		target->schema_oid == wms_schema_oid())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_SCHEMA_NAME),
				 errmsg("schema \"%s\" cannot hold the result of a stream", target->schema),
				 errhint("Name a table in a schema of your own.")));
	if (OidIsValid(target->relid))
		check_kind(target);
	else if (!WmsMayCreateIn(target->schema_oid, GetUserId()))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA, target->schema);
}

/* ---------------------------------------------------------------- making */

static const char *
qualified(const WmsTarget *target)
{
	return quote_qualified_identifier(target->schema, target->name);
}

static void
append_column(StringInfo sql, Form_pg_attribute column)
{
	appendStringInfo(sql, "%s %s", quote_identifier(NameStr(column->attname)),
					 format_type_extended(column->atttypid, column->atttypmod,
										  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(column->attcollation) && column->attcollation != get_typcollation(column->atttypid))
		appendStringInfo(sql, " COLLATE %s", generate_collation_name(column->attcollation));
}

/* In an ereport: where a column of the query stands, 0: the query. */
static int
errplace_of(const WmsShape *shape, int column)
{
	return wms_errplace(shape->text, shape->places ? shape->places[column] : -1);
}

/* The names of columns of desc by number, in parentheses. */
static void
append_columns(StringInfo sql, TupleDesc desc, List *numbers)
{
	ListCell   *lc;

	appendStringInfoChar(sql, '(');
	foreach(lc, numbers)
	{
		if (lc != list_head(numbers))
			appendStringInfoString(sql, ", ");
		appendStringInfoString(sql, quote_identifier(NameStr(TupleDescAttr(desc, lfirst_int(lc) - 1)->attname)));
	}
	appendStringInfoChar(sql, ')');
}

/* The first key column whose type cannot stand in a unique index; 0: there is none. */
static int
unindexable_column(const WmsShape *shape)
{
	ListCell   *lc;

	foreach(lc, shape->key_columns)
	{
		Form_pg_attribute column = TupleDescAttr(shape->desc, lfirst_int(lc) - 1);

		if (!OidIsValid(GetDefaultOpClass(column->atttypid, BTREE_AM_OID)))
			return lfirst_int(lc);
	}
	return 0;
}

/* May a unique index over the key be made?  If it is needed, it must be. */
static bool
key_possible(const WmsShape *shape, bool needed)
{
	int			bad;

	if (shape->key_columns == NIL)
		return false;
	bad = unindexable_column(shape);
	if (bad == 0 && list_length(shape->key_columns) <= INDEX_MAX_KEYS)
		return true;
	if (needed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the group keys cannot be the key of the result table"),
				 bad ? errdetail("Type %s of column \"%s\" has no default btree operator class.",
								 format_type_be(TupleDescAttr(shape->desc, bad - 1)->atttypid),
								 NameStr(TupleDescAttr(shape->desc, bad - 1)->attname)) : 0,
				 errhint("Cast the column, or use output_mode => 'append' without allowed_lateness."),
				 errplace_of(shape, bad)));
	return false;
}

static void
make_table(WmsTarget *target, const WmsShape *shape, bool key_needed)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE %s (", qualified(target));
	for (int i = 0; i < shape->desc->natts; i++)
	{
		if (i > 0)
			appendStringInfoString(&sql, ", ");
		append_column(&sql, TupleDescAttr(shape->desc, i));
	}
	if (key_possible(shape, key_needed))
	{
		appendStringInfoString(&sql, shape->key_not_null ? ", PRIMARY KEY " : ", UNIQUE NULLS NOT DISTINCT ");
		append_columns(&sql, shape->desc, shape->key_columns);
		target->has_key = true;
	}
	appendStringInfoChar(&sql, ')');
	wms_registry_command(sql.data);

	target->relid = get_relname_relid(target->name, target->schema_oid);
	if (!OidIsValid(target->relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("result table \"%s\" is gone right after it was made", target->name)));
	target->owner = wms_registry_owner(target->relid);
	target->made = true;
}

/* ---------------------------------------------------------------- an existing table */

/* Do values of one type modifier and collation mean the same in both columns? */
static bool
same_type(Form_pg_attribute want, Form_pg_attribute have)
{
	return want->atttypid == have->atttypid &&
		(have->atttypmod < 0 || have->atttypmod == want->atttypmod) &&
		(want->attcollation == have->attcollation ||
		 (get_collation_isdeterministic(want->attcollation) && get_collation_isdeterministic(have->attcollation)));
}

static void
check_column(Relation rel, const WmsShape *shape, int column)
{
	Form_pg_attribute want = TupleDescAttr(shape->desc, column - 1);
	const char *name = NameStr(want->attname);
	AttrNumber	number = get_attnum(RelationGetRelid(rel), name);
	Form_pg_attribute have;

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("table \"%s\" has no column \"%s\" of the stream's query", RelationGetRelationName(rel), name),
				 errhint("Add it: ALTER TABLE %s ADD COLUMN %s %s.",
						 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel)),
						 quote_identifier(name), format_type_with_typemod(want->atttypid, want->atttypmod)),
				 errplace_of(shape, column)));
	have = TupleDescAttr(RelationGetDescr(rel), number - 1);
	if (!same_type(want, have))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" does not fit the stream's query", name, RelationGetRelationName(rel)),
				 errdetail("The query gives %s, the table has %s%s.",
						   format_type_with_typemod(want->atttypid, want->atttypmod),
						   format_type_with_typemod(have->atttypid, have->atttypmod),
						   want->atttypid == have->atttypid && want->atttypmod == have->atttypmod ? " of another collation" : ""),
				 errhint("Cast the expression in the query to the type of the column, or alter the column."),
				 errplace_of(shape, column)));
	if (have->attgenerated || have->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of table \"%s\" is generated and cannot be written by a stream",
						name, RelationGetRelationName(rel)),
				 errhint("Give the column of the query another name."),
				 errplace_of(shape, column)));
}

static bool
in_shape(const WmsShape *shape, const char *name)
{
	return SPI_fnumber(shape->desc, name) > 0;
}

/* Columns that the stream does not know must be able to stay out. */
static void
check_left_out(Relation rel, const WmsShape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || !column->attnotnull || column->atthasdef || column->attidentity ||
			in_shape(shape, NameStr(column->attname)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("column \"%s\" of table \"%s\" is NOT NULL, has no default, and is not in the stream's query",
						NameStr(column->attname), RelationGetRelationName(rel)),
				 errhint("Give the column a default, allow NULL, or add it to the query."),
				 errplace_of(shape, 0)));
	}
}

static void
check_names(const WmsShape *shape)
{
	if (shape->desc->natts == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("the stream's query has no columns"),
				 errhint("Put something into the SELECT list."),
				 errplace_of(shape, 0)));
	for (int i = 0; i < shape->desc->natts; i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (strcmp(NameStr(TupleDescAttr(shape->desc, i)->attname), NameStr(TupleDescAttr(shape->desc, j)->attname)) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" stands twice in the stream's query", NameStr(TupleDescAttr(shape->desc, i)->attname)),
						 errhint("Give each column of the SELECT list a name of its own."),
						 errplace_of(shape, i + 1)));
		}
	}
}

/* ---------------------------------------------------------------- the key of an existing table */

/* Attribute numbers in rel of the shape's key columns. */
static List *
key_attributes(Relation rel, const WmsShape *shape)
{
	List	   *attributes = NIL;
	ListCell   *lc;

	foreach(lc, shape->key_columns)
		attributes = lappend_int(attributes,
								 get_attnum(RelationGetRelid(rel), NameStr(TupleDescAttr(shape->desc, lfirst_int(lc) - 1)->attname)));
	return attributes;
}

/* Does the i-th column of an index compare as GROUP BY does? */
static bool
compares_by_default(Relation index, int i, Form_pg_attribute column)
{
	Oid			opclass = GetDefaultOpClass(column->atttypid, BTREE_AM_OID);

	return OidIsValid(opclass) && index->rd_opfamily[i] == get_opclass_family(opclass) &&
		index->rd_indcollation[i] == column->attcollation;
}

static bool
index_is_key(Relation rel, Relation index, List *attributes)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisunique || !form->indisvalid || !form->indisready || !form->indimmediate ||
		form->indnkeyatts != list_length(attributes) ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	number = form->indkey.values[i];
		Form_pg_attribute column;

		if (number <= 0 || !list_member_int(attributes, number))
			return false;
		column = TupleDescAttr(RelationGetDescr(rel), number - 1);
		if (!compares_by_default(index, i, column) || !(form->indnullsnotdistinct || column->attnotnull))
			return false;
	}
	return true;
}

static bool
has_key_over(Relation rel, List *attributes)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		found = false;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		found = index_is_key(rel, index, attributes);
		index_close(index, NoLock);
		if (found)
			break;
	}
	list_free(indexes);
	return found;
}

static void
make_key(Oid relid, const WmsShape *shape)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE UNIQUE INDEX ON %s USING btree ",
					 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)));
	append_columns(&sql, shape->desc, shape->key_columns);
	appendStringInfoString(&sql, " NULLS NOT DISTINCT");
	wms_registry_command(sql.data);
}

/* Has the table that key, or does it get it because it is needed? */
static bool
find_or_make_key(Oid relid, const WmsShape *shape, bool needed)
{
	Relation	rel;
	bool		found;

	if (!key_possible(shape, needed))
		return false;
	rel = table_open(relid, ShareUpdateExclusiveLock);
	found = has_key_over(rel, key_attributes(rel, shape));
	table_close(rel, NoLock);
	/* CREATE INDEX wants the table closed. */
	if (!found && needed)
		make_key(relid, shape);
	return found || needed;
}

void
wms_define_key(Oid stream, const WmsShape *shape)
{
	(void) find_or_make_key(stream, shape, true);
}

static void
check_columns(Relation rel, const WmsShape *shape)
{
	for (int i = 0; i < shape->desc->natts; i++)
		check_column(rel, shape, i + 1);
}

static void
check_table(const WmsTarget *target, const WmsShape *shape)
{
	Relation	rel = table_open(target->relid, NoLock);

	check_columns(rel, shape);
	check_left_out(rel, shape);
	table_close(rel, NoLock);
}

void
wms_target_check_shape(const WmsTarget *target, const WmsShape *shape, bool key_needed)
{
	check_names(shape);
	(void) key_possible(shape, key_needed);
	if (OidIsValid(target->relid))
		check_table(target, shape);
}

/* What must stay out of an INSERT is found out by the INSERT. */
void
wms_result_check(Oid stream, TupleDesc desc)
{
	WmsShape	shape = {.desc = desc};
	Relation	rel = table_open(stream, AccessShareLock);

	check_columns(rel, &shape);
	table_close(rel, NoLock);
}

void
wms_define_result(WmsTarget *target, const WmsShape *shape, bool key_needed)
{
	if (OidIsValid(target->relid))
		target->has_key = find_or_make_key(target->relid, shape, key_needed);
	else
		make_table(target, shape, key_needed);
}
