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
#include "common/hashfn.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "flow/flow_internal.h"

/* Do equal values of this type always have equal images? */
static bool
image_equal(TypeCacheEntry *type, Oid collation)
{
	Oid			proc;

	if (!OidIsValid(type->btree_opf))
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
	enlargeStringInfo(&op->key, op->key_size);
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

/* False: some key is NULL. */
static bool
pack_plain(FlowOp *op, const TupleTableSlot *slot)
{
	char	   *data = op->key.data;

	memset(data, 0, op->key_size);
	for (int i = 0; i < op->nkeys; i++)
	{
		int			column = op->key_columns[i];

		if (slot->tts_isnull[column])
			return false;
		store_att_byval(data + op->key_offsets[i], slot->tts_values[column], TupleDescAttr(op->key_desc, i)->attlen);
	}
	op->key.len = op->key_size;
	return true;
}

static uint32
pack_any(FlowOp *op, const TupleTableSlot *slot)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	Datum	   *v = op->nkeys <= INDEX_MAX_KEYS ? values : palloc(sizeof(Datum) * op->nkeys);
	bool	   *n = op->nkeys <= INDEX_MAX_KEYS ? isnull : palloc(sizeof(bool) * op->nkeys);

	for (int i = 0; i < op->nkeys; i++)
	{
		v[i] = slot->tts_values[op->key_columns[i]];
		n[i] = slot->tts_isnull[op->key_columns[i]];
	}
	resetStringInfo(&op->key);
	wms_pack(&op->key, op->key_desc, v, n);
	return op->hash_image ? hash_bytes((const unsigned char *) op->key.data, op->key.len) : hash_keys(op, v, n);
}

/* Images of plain values are a few words, for which a general hash function does too much. */
static uint32
hash_words(const char *data, int size)
{
	uint64		hash = 0;

	for (int at = 0; at < size; at += sizeof(uint64))
	{
		uint64		word = 0;

		memcpy(&word, data + at, Min(size - at, (int) sizeof(uint64)));
		hash = (hash ^ word) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 32;
	}
	return murmurhash32((uint32) hash);
}

/* Packs the row's keys; the hash of them. */
uint32
wms_flow_pack_key(FlowOp *op, TupleTableSlot *slot)
{
	if (op->nkeys == 0)
	{
		resetStringInfo(&op->key);
		return 0;
	}
	if (op->hash_image && op->key_size > 0 && pack_plain(op, slot))
		return hash_words(op->key.data, op->key_size);
	return pack_any(op, slot);
}
