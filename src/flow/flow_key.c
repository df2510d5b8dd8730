/*
 * flow_key.c
 *	  The keys of groups, as bytes.
 *
 * The keys of a row, without the window that its bucket stands for, are packed into op->key, with a hash that agrees with the types' own
 * equality, so that 1.0 and 1.00 are one group.  Where equal values of all key types have equal images, bytes decide, and the hash
 * is theirs; else the types' hash and equality functions do.  (The two sides of a join always hash by the types' functions.)
 *
 * Keys of plain values that are not NULL have the same layout in every row, which is computed once.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "flow/flow_internal.h"

/* Do equal values of this type always have equal images? */
static bool
image_equal(TypeCacheEntry *type, Oid collation)
{
	Oid			proc;

	if (!OidIsValid(type->btree_opf) || WmsImagesDiffer(type->btree_opintype))
		return false;
	proc = get_opfamily_proc(type->btree_opf, type->btree_opintype, type->btree_opintype, BTEQUALIMAGE_PROC);
	return OidIsValid(proc) &&
		DatumGetBool(OidFunctionCall1Coll(proc, collation, ObjectIdGetDatum(type->btree_opintype)));
}

static bool
key_match(const char *a, uint32 a_len, const char *b, uint32 b_len, void *arg)
{
	FlowOp	   *op = arg;
	int			n = op->nkeys;
	Datum	   *va = palloc(sizeof(Datum) * n * 2);
	bool	   *na = palloc(sizeof(bool) * n * 2);
	bool		same = true;

	wms_unpack(a, op->key_desc, va, na);
	wms_unpack(b, op->key_desc, va + n, na + n);
	for (int i = 0; i < n && same; i++)
	{
		if (na[i] || na[n + i])
			same = (na[i] == na[n + i]);
		else
			same = DatumGetBool(FunctionCall2Coll(&op->key_eq[i], TupleDescAttr(op->key_desc, i)->attcollation,
												  va[i], va[n + i]));
	}
	pfree(va);
	pfree(na);
	return same;
}

/*
 * Is the window key no part of an entry's key?  The bucket says which window it is; but for DISTINCT a bucket may hold
 * many raw times, and a join's time stands for itself.
 */
static bool
bucket_says(const WmsOpPlan *plan, int key)
{
	if (key != plan->window_key || plan->kind == WMS_OP_JOIN)
		return false;
	return plan->kind != WMS_OP_DEDUP || type_is_range(TupleDescAttr(plan->input_desc, key)->atttypid);
}

/* As wms_pack lays out plain values: op->key_size stays 0 where rows differ. */
static void
prepare_layout(FlowOp *op)
{
	Size		offset = (op->nkeys + 7) / 8;

	op->key_offsets = palloc(sizeof(int) * Max(op->nkeys, 1));
	for (int i = 0; i < op->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(op->key_desc, i);

		if (!att->attbyval)
			return;
		offset = att_align_nominal(offset, att->attalign);
		op->key_offsets[i] = (int) offset;
		offset += att->attlen;
	}
	op->key_size = (int) offset;
}

void
wms_flow_key_prepare(FlowOp *op)
{
	WmsOpPlan  *plan = op->plan;
	bool		bytes_decide = true;

	op->key_columns = palloc(sizeof(int) * Max(plan->nkeys, 1));
	for (int i = 0; i < plan->nkeys; i++)
		if (!bucket_says(plan, i) && plan->kind != WMS_OP_COLLECT)
			op->key_columns[op->nkeys++] = i;
	op->key_desc = CreateTemplateTupleDesc(op->nkeys);
	op->key_values = palloc0(sizeof(Datum) * Max(op->nkeys, 1));
	op->key_isnull = palloc0(sizeof(bool) * Max(op->nkeys, 1));
	op->key_hash = palloc0(sizeof(FmgrInfo) * Max(op->nkeys, 1));
	op->key_eq = palloc0(sizeof(FmgrInfo) * Max(op->nkeys, 1));
	for (int i = 0; i < op->nkeys; i++)
	{
		int			column = op->key_columns[i];
		Form_pg_attribute att;
		TypeCacheEntry *type;

		TupleDescCopyEntry(op->key_desc, i + 1, plan->input_desc, column + 1);
		att = TupleDescAttr(op->key_desc, i);
		type = lookup_type_cache(att->atttypid, TYPECACHE_HASH_PROC | TYPECACHE_BTREE_OPFAMILY);
		if (OidIsValid(type->hash_proc))
			fmgr_info(type->hash_proc, &op->key_hash[i]);
		fmgr_info(get_opcode(plan->key_eq[column]), &op->key_eq[i]);
		bytes_decide &= image_equal(type, att->attcollation);
	}
	op->hash_image = bytes_decide && plan->kind != WMS_OP_JOIN;
	op->flow->state_ops[plan->id].match = bytes_decide ? NULL : key_match;
	op->flow->state_ops[plan->id].arg = op;
	initStringInfo(&op->key);
	prepare_layout(op);
}

static uint32
hash_keys(FlowOp *op, const Datum *values, const bool *isnull)
{
	uint32		hash = 0;

	for (int i = 0; i < op->nkeys; i++)
	{
		uint32		h = 0;

		if (!isnull[i] && OidIsValid(op->key_hash[i].fn_oid))
			h = DatumGetUInt32(FunctionCall1Coll(&op->key_hash[i], TupleDescAttr(op->key_desc, i)->attcollation,
												 values[i]));
		hash = hash_combine(hash, h);
	}
	return murmurhash32(hash);
}

/* Where a key of so many bytes is to lie, as words of zeros. */
static inline char *
make_place(StringInfo into, int size)
{
	char	   *place;

	size = MAXALIGN(size);
	enlargeStringInfo(into, size);
	place = into->data + into->len;
	Assert(PointerIsAligned(place, uint64));
	for (int at = 0; at < size; at += sizeof(uint64))
		*(uint64 *) (place + at) = 0;
	return place;
}

/* Images of plain values are a few words, for which a general hash function does too much; what lies behind them in the last one is zero. */
static inline uint32
hash_words(const char *data, int size)
{
	uint64		hash = 0;

	for (int at = 0; at < size; at += sizeof(uint64))
	{
		hash = (hash ^ *(const uint64 *) (data + at)) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 32;
	}
	return murmurhash32((uint32) hash);
}

/* False: some key is NULL. */
static inline bool
pack_plain(FlowOp *op, const Datum *values, const bool *isnull, StringInfo into, uint32 *hash)
{
	char	   *data = make_place(into, op->key_size);

	for (int i = 0; i < op->nkeys; i++)
	{
		if (isnull[i])
			return false;
		store_att_byval(data + op->key_offsets[i], values[i], TupleDescAttr(op->key_desc, i)->attlen);
	}
	into->len += op->key_size;
	*hash = hash_words(data, op->key_size);
	return true;
}

/* Appends the packed keys, at a MAXALIGNed place, to into; the hash of them. */
static uint32
pack_keys(FlowOp *op, const Datum *values, const bool *isnull, StringInfo into)
{
	int			start = into->len;
	uint32		hash = 0;

	if (op->nkeys == 0)
		return 0;
	if (op->hash_image && op->key_size > 0 && pack_plain(op, values, isnull, into, &hash))
		return hash;
	wms_pack(into, op->key_desc, values, isnull);
	if (op->hash_image)
		return hash_bytes((const unsigned char *) into->data + start, into->len - start);
	return hash_keys(op, values, isnull);
}

/* ---------------------------------------------------------------- keys of many rows */

/* Plain values of one column into all keys; false: some are NULL. */
static bool
pack_column(FlowOp *op, int key, const FlowRows *rows, char *first, int distance)
{
	int			column = op->key_columns[key];
	const Datum *values = rows->values + rows->place[column];
	const bool *isnull = rows->isnull + rows->place[column];
	int			len = TupleDescAttr(op->key_desc, key)->attlen;
	char	   *at = first + op->key_offsets[key];
	bool		any_null = false;

	for (int i = 0; i < rows->n; i++, at += distance)
	{
		int			row = rows->rows[i];

		any_null |= isnull[row];
		store_att_byval(at, values[row], len);
	}
	return !any_null;
}

/* Column by column, and the hashes when all words are complete.  False: some key is NULL, and rows differ. */
static bool
pack_all_plain(FlowOp *op, const FlowRows *rows, FlowKeys *keys)
{
	int			distance = MAXALIGN(op->key_size);
	int			first = keys->bytes.len;
	char	   *data;

	enlargeStringInfo(&keys->bytes, distance * rows->n);
	data = keys->bytes.data + first;
	memset(data, 0, distance * rows->n);
	for (int key = 0; key < op->nkeys; key++)
		if (!pack_column(op, key, rows, data, distance))
			return false;
	for (int i = 0; i < rows->n; i++)
	{
		keys->at[i] = first + i * distance;
		keys->len[i] = op->key_size;
		keys->hash[i] = hash_words(data + i * distance, op->key_size);
	}
	keys->bytes.len += distance * rows->n;
	return true;
}

static void
pack_one(FlowOp *op, const FlowRows *rows, int i, FlowKeys *keys)
{
	for (int key = 0; key < op->nkeys; key++)
	{
		int			from = rows->place[op->key_columns[key]] + rows->rows[i];

		op->key_values[key] = rows->values[from];
		op->key_isnull[key] = rows->isnull[from];
	}
	keys->at[i] = keys->bytes.len;
	keys->hash[i] = pack_keys(op, op->key_values, op->key_isnull, &keys->bytes);
	keys->len[i] = keys->bytes.len - keys->at[i];
	enlargeStringInfo(&keys->bytes, MAXIMUM_ALIGNOF);
	keys->bytes.len = MAXALIGN(keys->bytes.len);
}

/* Packs the keys of the rows, until they have taken about so many bytes; of how many rows. */
int
wms_flow_pack_rows(FlowOp *op, const FlowRows *rows, FlowKeys *keys, int bytes)
{
	int			n = 0;

	resetStringInfo(&keys->bytes);
	if (op->nkeys > 0 && op->hash_image && op->key_size > 0 && pack_all_plain(op, rows, keys))
		return rows->n;
	while (n < rows->n && keys->bytes.len < bytes)
		pack_one(op, rows, n++, keys);
	return n;
}

/* ---------------------------------------------------------------- the key of one row */

/* Packs the row's keys into op->key; the hash of them. */
uint32
wms_flow_pack_key(FlowOp *op, TupleTableSlot *slot)
{
	for (int i = 0; i < op->nkeys; i++)
	{
		op->key_values[i] = slot->tts_values[op->key_columns[i]];
		op->key_isnull[i] = slot->tts_isnull[op->key_columns[i]];
	}
	resetStringInfo(&op->key);
	return pack_keys(op, op->key_values, op->key_isnull, &op->key);
}
