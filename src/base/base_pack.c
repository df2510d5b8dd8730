/*
 * base_pack.c
 *	  Rows of values as comparable, position-independent bytes.
 *
 * Layout: one bit per column in the first (natts + 7) / 8 bytes, set where the
 * column is NULL, then the values, each aligned relative to the first byte, as in
 * a heap tuple: short varlena headers are used where they fit and are not
 * aligned.  Alignment gaps are zero, so that equal images are equal bytes, and so
 * that a reader can tell a gap from a short header.  Nothing in it points
 * elsewhere: values are detoasted, decompressed and flattened first.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "fmgr.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"

#include "base/base.h"

/* Room for a fixed-length value and the gap before it was made beforehand. */
static inline void
pad_to(StringInfo into, int start, Size offset)
{
	int			gap = start + (int) offset - into->len;

	memset(into->data + into->len, 0, gap);
	into->len += gap;
}

static void
pack_varlena(StringInfo into, int start, Form_pg_attribute att, Datum value)
{
	struct varlena *flat = PG_DETOAST_DATUM_PACKED(value);

	if (VARATT_IS_SHORT(flat))
		appendBinaryStringInfo(into, (char *) flat, VARSIZE_SHORT(flat));
	else if (att->attstorage != TYPSTORAGE_PLAIN && VARATT_CAN_MAKE_SHORT(flat))
	{
		Size		len = VARATT_CONVERTED_SHORT_SIZE(flat);
		char		header;

		SET_VARSIZE_SHORT(&header, len);
		appendStringInfoCharMacro(into, header);
		appendBinaryStringInfo(into, VARDATA(flat), len - 1);
	}
	else
	{
		enlargeStringInfo(into, MAXIMUM_ALIGNOF);
		pad_to(into, start, att_align_nominal(into->len - start, att->attalign));
		appendBinaryStringInfo(into, (char *) flat, VARSIZE(flat));
	}
	if ((Pointer) flat != DatumGetPointer(value))
		pfree(flat);
}

static void
pack_value(StringInfo into, int start, Form_pg_attribute att, Datum value)
{
	if (att->attlen == -1)
	{
		pack_varlena(into, start, att, value);
		return;
	}
	if (att->attlen == -2)
	{
		char	   *str = DatumGetCString(value);

		appendBinaryStringInfo(into, str, strlen(str) + 1);
		return;
	}
	enlargeStringInfo(into, MAXIMUM_ALIGNOF + sizeof(Datum));
	pad_to(into, start, att_align_nominal(into->len - start, att->attalign));
	if (att->attbyval)
	{
		store_att_byval(into->data + into->len, value, att->attlen);
		into->len += att->attlen;
	}
	else
		appendBinaryStringInfo(into, DatumGetPointer(value), att->attlen);
}

void
wms_pack(StringInfo into, TupleDesc desc, const Datum *values, const bool *isnull)
{
	int			start = into->len;
	int			nbytes = (desc->natts + 7) / 8;

	Assert((Size) start == MAXALIGN(start));
	enlargeStringInfo(into, nbytes);
	memset(into->data + into->len, 0, nbytes);
	into->len += nbytes;
	for (int i = 0; i < desc->natts; i++)
	{
		if (isnull[i])
			into->data[start + i / 8] |= 1 << (i % 8);
		else
			pack_value(into, start, TupleDescAttr(desc, i), values[i]);
	}
}

void
wms_unpack(const char *packed, TupleDesc desc, Datum *values, bool *isnull)
{
	Size		offset = (desc->natts + 7) / 8;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		isnull[i] = (packed[i / 8] & (1 << (i % 8))) != 0;
		if (isnull[i])
		{
			values[i] = (Datum) 0;
			continue;
		}
		if (att->attlen == -1)
			offset = att_align_pointer(offset, att->attalign, -1, packed + offset);
		else if (att->attlen >= 0)
			offset = att_align_nominal(offset, att->attalign);
		values[i] = fetch_att(packed + offset, att->attbyval, att->attlen);
		offset = att_addlength_pointer(offset, att->attlen, packed + offset);
	}
}
