/*
 * source_row.c
 *	  Rows made flat, and converted from a partition to a table above it.
 *
 * A decoded row may point at values outside itself.  Values written together with the row are at hand: decoding has put them together
 * in memory (an *indirect* pointer).  Values that an UPDATE left alone are still pointers into the TOAST table; these must not be
 * followed, as the table may have changed since.  They are taken from the old row, which is whole and flat under REPLICA IDENTITY
 * FULL; failing that the value is NULL and the row is marked.  Values that are compressed stay so.
 *
 * Called by source_take.c inside decoding.  Works in the current memory context, which the caller resets.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "utils/memutils.h"

#include "source/source_internal.h"

/* Room for the tuple header and the small values of a row that is to be flat. */
#define ROW_SLACK	((Size) 1024 * 1024)

/* The value of an attribute in a whole and flat old row. */
static bool
take_from_old(const WmsRows *rows, const WmsSourceRel *rel, int attnum, Datum *value)
{
	bool		isnull;

	if (!rel->identity_full || rows->old_row == NULL)
		return false;
	*value = heap_getattr(rows->old_row, attnum, rel->desc, &isnull);
	return !isnull && !VARATT_IS_EXTERNAL(DatumGetPointer(*value));
}

/* Gives the value that an external pointer stands for; false if it cannot be had. */
static bool
resolve(const WmsRows *rows, const WmsSourceRel *rel, int attnum, Size *room, Datum *value)
{
	struct varlena *pointer = (struct varlena *) DatumGetPointer(*value);

	if (!VARATT_IS_EXTERNAL_INDIRECT(pointer))
	{
		if (!take_from_old(rows, rel, attnum, value))
			return false;
		pointer = (struct varlena *) DatumGetPointer(*value);
		if (VARSIZE_ANY(pointer) > *room)
			return false;
	}
	else
	{
		struct varatt_indirect redirect;

		VARATT_EXTERNAL_GET_POINTER(redirect, pointer);
		pointer = (struct varlena *) redirect.pointer;
		if (VARATT_IS_EXTERNAL(pointer) || VARSIZE_ANY(pointer) > *room)
			return false;
		*value = PointerGetDatum(pointer);
	}
	*room -= VARSIZE_ANY(pointer);
	return true;
}

/*
 * A row that was formed bears its type in the header, as a value of a composite type does; servers that know of it refuse to
 * read such a value by a later version of the type.  Rows of a table are none: they are read by what their columns are now.
 */
HeapTuple
wms_row_as_stored(HeapTuple row)
{
	HeapTupleHeader header = row->t_data;

	memset(&header->t_choice, 0, sizeof(header->t_choice));
	ItemPointerSetInvalid(&header->t_ctid);
	header->t_infomask &= ~HEAP_XACT_MASK;
	return row;
}

static void
flatten_new(WmsRows *rows, const WmsSourceRel *rel)
{
	TupleDesc	desc = rel->desc;
	Datum	   *values = palloc(sizeof(Datum) * desc->natts);
	bool	   *isnull = palloc(sizeof(bool) * desc->natts);
	Size		room = MaxAllocSize - ROW_SLACK;

	heap_deform_tuple(rows->new_row, desc, values, isnull);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (isnull[i] || att->attlen != -1 || !VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			continue;
		if (!att->attisdropped && resolve(rows, rel, i + 1, &room, &values[i]))
			continue;
		isnull[i] = true;
		if (!att->attisdropped)
			rows->missing_toast = true;
	}
	rows->new_row = wms_row_as_stored(heap_form_tuple(desc, values, isnull));
}

void
wms_rows_flatten(WmsRows *rows, const WmsSourceRel *rel)
{
	if (rows->new_row && HeapTupleHasExternal(rows->new_row))
		flatten_new(rows, rel);
}

void
wms_rows_convert(const WmsRows *rows, const WmsTarget *target, WmsRows *converted)
{
	*converted = *rows;
	if (target->map == NULL)
		return;
	if (rows->new_row)
		converted->new_row = wms_row_as_stored(execute_attr_map_tuple(rows->new_row, target->map));
	if (rows->old_row)
		converted->old_row = wms_row_as_stored(execute_attr_map_tuple(rows->old_row, target->map));
}
