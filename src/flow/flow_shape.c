/*
 * flow_shape.c
 *	  Rows of a source table that were written in another layout than the table has now.
 *
 * A flow reads rows by the table's columns as they were when it was built.  Rows may be older or, for a moment, newer: columns may have been
 * added, dropped, or changed to another type since.  Where each column still reads the same (by far most rows), rows are taken as
 * they are: columns that were added since read as their missing values.  Others are taken apart by the layout that
 * they were written in and put together anew: a column of another type that the definition does not use is NULL, and one that it
 * uses stops the stream, for nothing says what its old values would be now.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "flow/flow_internal.h"

/* Does a column that both layouts have read as the same value in either? */
static bool
same_column(Form_pg_attribute ours, Form_pg_attribute theirs)
{
	if (ours->attlen != theirs->attlen || ours->attalign != theirs->attalign || ours->attbyval != theirs->attbyval)
		return false;
	return ours->attisdropped || theirs->attisdropped || ours->atttypid == theirs->atttypid;
}

static bool
reads_as_is(TupleDesc ours, TupleDesc theirs)
{
	for (int i = 0; i < Min(ours->natts, theirs->natts); i++)
		if (!same_column(TupleDescAttr(ours, i), TupleDescAttr(theirs, i)))
			return false;
	return true;
}

static void
check_used_columns(FlowSource *source, TupleDesc theirs)
{
	ListCell   *lc;

	foreach(lc, source->plan->columns_used)
	{
		int			attnum = lfirst_int(lc);
		Form_pg_attribute ours = TupleDescAttr(source->table_desc, attnum - 1);
		Form_pg_attribute was = attnum <= theirs->natts ? TupleDescAttr(theirs, attnum - 1) : ours;

		if (was->attisdropped || was->atttypid == ours->atttypid)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\", which the stream reads, has changed its type", NameStr(ours->attname),
						get_rel_name(source->plan->relid)),
				 errdetail("It was %s when rows that are still to be read were written, and is %s now.",
						   format_type_be(was->atttypid), format_type_be(ours->atttypid)),
				 errhint("Rebuild the stream with wmstream.resync().")));
	}
}

/* Judges the layout of the rows that come; remembered until another one does. */
static void
look_at(FlowSource *source, const WmsRowShape *shape)
{
	source->shape_as_is = reads_as_is(source->table_desc, shape->desc);
	source->shape = shape;
}

/* Has the table the columns that such rows were written with, each read as it stands there, and no others? */
bool
wms_flow_same_shape(FlowSource *source, const WmsRowShape *shape)
{
	if (source->shape != shape)
		look_at(source, shape);
	return source->shape_as_is && source->table_desc->natts == shape->desc->natts;
}

/*
 * The row as the table's columns are now; in the current context, or the row itself.  to_use: ERROR if a column that the definition uses
 * cannot be read.
 */
HeapTuple
wms_flow_fit_row(FlowSource *source, const WmsRowShape *shape, HeapTuple row, bool to_use)
{
	TupleDesc	ours = source->table_desc;
	TupleDesc	theirs = shape->desc;
	int			natts = Max(ours->natts, theirs->natts);
	Datum	   *values;
	bool	   *isnull;

	if (source->shape != shape)
		look_at(source, shape);
	if (source->shape_as_is)
		return row;
	if (to_use)
		check_used_columns(source, theirs);
	values = palloc(sizeof(Datum) * natts);
	isnull = palloc(sizeof(bool) * natts);
	heap_deform_tuple(row, theirs, values, isnull);
	for (int i = 0; i < ours->natts; i++)
	{
		if (i >= theirs->natts)
			values[i] = getmissingattr(ours, i + 1, &isnull[i]);
		else if (!same_column(TupleDescAttr(ours, i), TupleDescAttr(theirs, i)) || TupleDescAttr(ours, i)->attisdropped)
			isnull[i] = true;
	}
	return heap_form_tuple(ours, values, isnull);
}
