/*
 * flow_transition.c
 *	  Aggregates on the fast path: states that are carried from batch to batch.
 *
 * A *state* is what the aggregate's transition function makes of the rows of a group.  While a
 * batch works on a group its states are live (in flow->agg_memory); before the commit they are
 * *encoded*: plain values and flat varlenas as they are, internal ones through the aggregate's
 * own serialisation function.  One more bit per aggregate says that a strict transition function has
 * not had its first value yet.
 *
 * Aggregate functions ask for the executor node that calls them (AggCheckCallContext); an AggState of
 * ours stands in, with nothing but the memory contexts that they use.  Functions that need more than
 * that (ordered sets) never come here.
 *
 * Where rows are taken back (op->retracts), an aggregate runs in its moving form: the inverse transition function undoes a row.  As in
 * a moving window frame, the number of values that went in is counted, and when the last one goes the state begins anew; one
 * more count, after the last aggregate, is that of the group's rows.
 *
 * A final function that may scribble on its state gets a copy, for the state lives on.
 *
 * One aggregate is our own: latest(), by which a group carries the columns that its keys determine (analyze_group.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_agg.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "flow/flow_internal.h"

#define STATES_POOL 32			/* groups whose states are asked for together */

PG_FUNCTION_INFO_V1(wms_sql_latest);

/* ---------------------------------------------------------------- preparing */

static void advance_by_calls(FlowOp *op, int i, const FlowRows *rows);
static void count_rows(FlowOp *op, int i, const FlowRows *rows);
static void sum_floats(FlowOp *op, int i, const FlowRows *rows);
static void sum_integers(FlowOp *op, int i, const FlowRows *rows);

static int
input_column(Expr *expr)
{
	if (!IsA(expr, Var))
		elog(ERROR, "an aggregate's argument is not a column of its input");
	return castNode(Var, expr)->varattno - 1;
}

static FunctionCallInfo
make_call(FmgrInfo *fn, int nargs, Oid collation, WmsFlow *flow)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(Max(nargs, 1)));

	InitFunctionCallInfoData(*call, fn, nargs, collation, (Node *) flow->agg, NULL);
	return call;
}

/* The parts of an aggregate that make its form: the ordinary one, or the moving one. */
typedef struct AggForm
{
	Oid			transfn;
	Oid			inversefn;		/* InvalidOid: none */
	Oid			finalfn;
	bool		final_extra;
	char		final_modify;
	Oid			transtype;
	AttrNumber	initial;		/* column of pg_aggregate */
} AggForm;

static AggForm
form_of(Form_pg_aggregate form, bool moving)
{
	AggForm		plain = {form->aggtransfn, InvalidOid, form->aggfinalfn, form->aggfinalextra, form->aggfinalmodify,
	form->aggtranstype, Anum_pg_aggregate_agginitval};
	AggForm		inverse = {form->aggmtransfn, form->aggminvtransfn, form->aggmfinalfn, form->aggmfinalextra, form->aggmfinalmodify,
	form->aggmtranstype, Anum_pg_aggregate_aggminitval};

	return moving ? inverse : plain;
}

static void
prepare_transitions(FlowOp *op, FlowAgg *agg, const AggForm *parts, Oid *argtypes)
{
	Aggref	   *aggref = agg->aggref;
	Expr	   *expr,
			   *inverse;

	build_aggregate_transfn_expr(argtypes, agg->nargs, 0, aggref->aggvariadic, agg->transtype,
								 aggref->inputcollid, parts->transfn, parts->inversefn, &expr, &inverse);
	fmgr_info(parts->transfn, &agg->transfn);
	fmgr_info_set_expr((Node *) expr, &agg->transfn);
	agg->trans_call = make_call(&agg->transfn, agg->nargs + 1, aggref->inputcollid, op->flow);
	if (!OidIsValid(parts->inversefn))
		return;
	fmgr_info(parts->inversefn, &agg->inversefn);
	fmgr_info_set_expr((Node *) inverse, &agg->inversefn);
	agg->inverse_call = make_call(&agg->inversefn, agg->nargs + 1, aggref->inputcollid, op->flow);
}

/* As a transition function whose input is a state. */
static void
prepare_combine(FlowAgg *agg, Oid combinefn)
{
	Oid			input = agg->transtype;
	Expr	   *expr,
			   *inverse;

	build_aggregate_transfn_expr(&input, 1, 0, false, agg->transtype, agg->aggref->inputcollid, combinefn, InvalidOid, &expr, &inverse);
	fmgr_info(combinefn, &agg->combinefn);
	fmgr_info_set_expr((Node *) expr, &agg->combinefn);
}

static void
prepare_functions(FlowOp *op, FlowAgg *agg, Form_pg_aggregate form, const AggForm *parts, Oid *argtypes)
{
	Aggref	   *aggref = agg->aggref;
	Expr	   *expr;

	prepare_transitions(op, agg, parts, argtypes);
	agg->has_final = OidIsValid(parts->finalfn);
	agg->final_scribbles = parts->final_modify != AGGMODIFY_READ_ONLY;
	agg->nfinal = parts->final_extra ? agg->nargs + 1 : 1;
	if (agg->has_final)
	{
		build_aggregate_finalfn_expr(argtypes, agg->nfinal, agg->transtype, aggref->aggtype,
									 aggref->inputcollid, parts->finalfn, &expr);
		fmgr_info(parts->finalfn, &agg->finalfn);
		fmgr_info_set_expr((Node *) expr, &agg->finalfn);
		agg->final_call = make_call(&agg->finalfn, agg->nfinal, aggref->inputcollid, op->flow);
	}
	/* one that is internal is of the same kind in both forms */
	if (OidIsValid(form->aggcombinefn) && (agg->internal || !OidIsValid(parts->inversefn)))
		prepare_combine(agg, form->aggcombinefn);
	if (agg->internal)
	{
		build_aggregate_serialfn_expr(form->aggserialfn, &expr);
		fmgr_info(form->aggserialfn, &agg->serialfn);
		fmgr_info_set_expr((Node *) expr, &agg->serialfn);
		build_aggregate_deserialfn_expr(form->aggdeserialfn, &expr);
		fmgr_info(form->aggdeserialfn, &agg->deserialfn);
		fmgr_info_set_expr((Node *) expr, &agg->deserialfn);
	}
}

static void
prepare_initial(FlowAgg *agg, HeapTuple tuple, AttrNumber column)
{
	Datum		initial = SysCacheGetAttr(AGGFNOID, tuple, column, &agg->initial_null);
	Oid			input,
				ioparam;

	if (agg->initial_null)
		return;
	getTypeInputInfo(agg->transtype, &input, &ioparam);
	agg->initial = OidInputFunctionCall(input, TextDatumGetCString(initial), ioparam, -1);
}

/* By the functions of count(), as which somebody else's aggregate may begin elsewhere (without a value: at the first argument). */
static bool
counts_from_zero(const FlowAgg *agg, const AggForm *parts)
{
	if (parts->transfn != F_INT8INC && parts->transfn != F_INT8INC_ANY)
		return false;
	if (OidIsValid(parts->inversefn) && parts->inversefn != F_INT8DEC && parts->inversefn != F_INT8DEC_ANY)
		return false;
	return !agg->initial_null && DatumGetInt64(agg->initial) == 0;
}

/* Transitions that are done in place, without a call for each row. */
static FlowAdvanceRows
advance_rows_of(const FlowAgg *agg)
{
	if (agg->counts)
		return count_rows;
	switch (agg->transfn.fn_oid)
	{
		case F_FLOAT8PL:
			return agg->initial_null ? sum_floats : advance_by_calls;
		case F_INT2_SUM:
		case F_INT4_SUM:
			return sum_integers;
		default:
			return advance_by_calls;
	}
}

void
wms_flow_fast_prepare(FlowOp *op, FlowAgg *agg, WmsAggPlan *plan, int column)
{
	Aggref	   *aggref = plan->aggref;
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	AggForm		parts;
	Oid			argtypes[FUNC_MAX_ARGS];
	ListCell   *lc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	parts = form_of(form, plan->inverse);
	agg->aggref = aggref;
	agg->column = column;
	agg->args = palloc0(sizeof(int) * Max(list_length(aggref->args), 1));
	foreach(lc, aggref->args)
		agg->args[agg->nargs++] = input_column(lfirst_node(TargetEntry, lc)->expr);
	agg->filter = aggref->aggfilter ? input_column(aggref->aggfilter) : -1;
	get_aggregate_argtypes(aggref, argtypes);
	agg->transtype = resolve_aggregate_transtype(aggref->aggfnoid, parts.transtype, argtypes, agg->nargs);
	get_typlenbyval(agg->transtype, &agg->translen, &agg->transbyval);
	agg->internal = (agg->transtype == INTERNALOID);
	prepare_functions(op, agg, form, &parts, argtypes);
	prepare_initial(agg, tuple, parts.initial);
	agg->counts = counts_from_zero(agg, &parts);
	agg->advance_rows = advance_rows_of(agg);
	ReleaseSysCache(tuple);
}

/* The columns under which states are packed: internal ones as bytea. */
TupleDesc
wms_flow_states_desc(FlowOp *op)
{
	TupleDesc	desc = CreateTemplateTupleDesc(op->nfast);

	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		TupleDescInitEntry(desc, i + 1, "state", agg->internal ? BYTEAOID : agg->transtype, -1, 0);
	}
	return desc;
}

/* ---------------------------------------------------------------- states */

static MemoryContext
state_context(FlowOp *op)
{
	return op->flow->agg->curaggcontext->ecxt_per_tuple_memory;
}

static Datum
copy_state(FlowOp *op, FlowAgg *agg, Datum value)
{
	MemoryContext old;
	Datum		copy;

	if (agg->transbyval)
		return value;
	old = MemoryContextSwitchTo(state_context(op));
	copy = datumCopy(value, agg->transbyval, agg->translen);
	MemoryContextSwitchTo(old);
	return copy;
}

static void
begin_state(FlowOp *op, FlowAgg *agg, FlowState *state)
{
	state->isnull = agg->initial_null;
	state->no_value = agg->initial_null;
	state->value = agg->initial_null ? (Datum) 0 : copy_state(op, agg, agg->initial);
	state->owned = !agg->initial_null && !agg->transbyval;
	state->nvalues = 0;
}

/* Room for the states of one group; those that stay until the batch ends lie side by side. */
static FlowState *
alloc_states(FlowOp *op)
{
	int			n = op->nfast + (op->retracts ? 1 : 0);
	FlowState  *states;

	if (op->flow->agg->curaggcontext != op->flow->agg_memory)
		return MemoryContextAlloc(state_context(op), sizeof(FlowState) * n);
	if (op->states_left == 0)
	{
		op->states = MemoryContextAllocHuge(state_context(op), sizeof(FlowState) * n * STATES_POOL);
		op->states_left = STATES_POOL;
	}
	states = op->states;
	op->states += n;
	op->states_left--;
	return states;
}

FlowState *
wms_flow_states_new(FlowOp *op)
{
	FlowState  *states = alloc_states(op);

	for (int i = 0; i < op->nfast; i++)
		begin_state(op, &op->fast[i], &states[i]);
	if (op->retracts)
		states[op->nfast].nvalues = 0;
	return states;
}

/* Calls a serialisation or deserialisation function; the result lies in the current context. */
static Datum
convert_state(FlowOp *op, FmgrInfo *fn, int nargs, Datum value)
{
	LOCAL_FCINFO(call, 2);
	Datum		result;

	InitFunctionCallInfoData(*call, fn, nargs, InvalidOid, (Node *) op->flow->agg, NULL);
	call->args[0].value = value;
	call->args[0].isnull = false;
	call->args[1].value = (Datum) 0;
	call->args[1].isnull = false;
	result = FunctionCallInvoke(call);
	if (call->isnull)
		elog(ERROR, "function %u returned NULL for a state", fn->fn_oid);
	return result;
}

/* In the current context.  These functions want an ordinary, aligned bytea. */
static Datum
deserialize(FlowOp *op, FlowAgg *agg, Datum value)
{
	return convert_state(op, &agg->deserialfn, 2, PointerGetDatum(PG_DETOAST_DATUM_COPY(value)));
}

static NullableDatum
call_combine(FlowOp *op, FlowAgg *agg, NullableDatum into, NullableDatum from)
{
	LOCAL_FCINFO(call, 2);
	NullableDatum combined;

	InitFunctionCallInfoData(*call, &agg->combinefn, 2, agg->aggref->inputcollid, (Node *) op->flow->agg, NULL);
	call->args[0] = into;
	call->args[1] = from;
	combined.value = FunctionCallInvoke(call);
	combined.isnull = call->isnull;
	return combined;
}

/*
 * What a deserialisation function gives is good for a combine function, and for no other: an executor does nothing else with it, and transition
 * functions may miss something in it.  (Those of variance() and its like left out all squares for years.)  So it is combined with no state, which
 * copies it, as an executor has it in memory that is reset by then.
 */
static Datum
deserialize_state(FlowOp *op, FlowAgg *agg, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(op->flow->revive_memory);
	NullableDatum none = {.isnull = true};
	NullableDatum state = none;

	if (OidIsValid(agg->combinefn.fn_oid) && !agg->combinefn.fn_strict)
		state = call_combine(op, agg, none, (NullableDatum) {.value = deserialize(op, agg, value)});
	MemoryContextSwitchTo(state_context(op));
	if (state.isnull)
		state.value = deserialize(op, agg, value);
	MemoryContextSwitchTo(old);
	MemoryContextReset(op->flow->revive_memory);
	return state.value;
}

/* The counts at the end of a value. */
static Size
counts_size(FlowOp *op)
{
	return op->retracts ? sizeof(int64) * (op->nfast + 1) : 0;
}

FlowState *
wms_flow_states_load(FlowOp *op, const char *value, uint32 len)
{
	FlowState  *states = alloc_states(op);
	Datum		values[FUNC_MAX_ARGS];
	bool		isnull[FUNC_MAX_ARGS];
	Datum	   *v = op->nfast <= FUNC_MAX_ARGS ? values : palloc(sizeof(Datum) * op->nfast);
	bool	   *n = op->nfast <= FUNC_MAX_ARGS ? isnull : palloc(sizeof(bool) * op->nfast);
	const char *counts = value + len - counts_size(op);
	const char *bits = counts - (op->nfast + 7) / 8;

	wms_unpack(value, op->state_desc, v, n);
	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		states[i].isnull = n[i];
		states[i].no_value = (bits[i / 8] & (1 << (i % 8))) != 0;
		states[i].owned = !n[i] && !agg->transbyval;
		if (n[i])
			states[i].value = (Datum) 0;
		else if (agg->internal)
			states[i].value = deserialize_state(op, agg, v[i]);
		else
			states[i].value = copy_state(op, agg, v[i]);
	}
	for (int i = 0; i <= op->nfast && op->retracts; i++)
		memcpy(&states[i].nvalues, counts + sizeof(int64) * i, sizeof(int64));
	return states;
}

/* Rows of a group, where they can be taken back. */
int64
wms_flow_states_rows(FlowOp *op, const WmsEntry *entry)
{
	int64		rows = 0;

	if (entry->work)
		return ((FlowState *) entry->work)[op->nfast].nvalues;
	if (entry->value_len > 0)
		memcpy(&rows, entry->value + entry->value_len - sizeof(int64), sizeof(int64));
	return rows;
}

void
wms_flow_states_encode(FlowOp *op, FlowState *states, StringInfo value)
{
	Datum	   *v = palloc(sizeof(Datum) * Max(op->nfast, 1));
	bool	   *n = palloc(sizeof(bool) * Max(op->nfast, 1));
	char		bits = 0;

	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		n[i] = states[i].isnull;
		v[i] = states[i].value;
		if (!n[i] && agg->internal)
			v[i] = convert_state(op, &agg->serialfn, 1, states[i].value);
	}
	wms_pack(value, op->state_desc, v, n);
	for (int i = 0; i < op->nfast; i++)
	{
		if (states[i].no_value)
			bits |= 1 << (i % 8);
		if (i % 8 == 7 || i == op->nfast - 1)
		{
			appendStringInfoCharMacro(value, bits);
			bits = 0;
		}
	}
	for (int i = 0; i <= op->nfast && op->retracts; i++)
		appendBinaryStringInfo(value, (char *) &states[i].nvalues, sizeof(int64));
	pfree(v);
	pfree(n);
}

/* ---------------------------------------------------------------- transitions */

/* The state becomes a value that lies in the row's memory, or is the old one changed in place. */
static void
replace_state(FlowOp *op, FlowAgg *agg, FlowState *state, Datum value, bool isnull)
{
	Datum		old = state->value;
	bool		free_old = state->owned && !state->isnull;

	if (!isnull && !agg->transbyval)
	{
		if (DatumIsReadWriteExpandedObject(value, false, agg->translen) &&
			MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) == state_context(op))
			;					/* lives with the states already */
		else
			value = copy_state(op, agg, value);
	}
	if (free_old && !agg->transbyval)
	{
		if (DatumIsReadWriteExpandedObject(old, false, agg->translen))
			DeleteExpandedObject(old);
		else
			pfree(DatumGetPointer(old));
	}
	state->value = value;
	state->isnull = isnull;
	state->owned = !isnull && !agg->transbyval;
}

/* The row's arguments for a transition or its inverse; false: strict, and one is NULL. */
static inline bool
give_arguments(const FlowAgg *agg, FunctionCallInfo call, TupleTableSlot *slot)
{
	for (int i = 0; i < agg->nargs; i++)
	{
		call->args[i + 1].value = slot->tts_values[agg->args[i]];
		call->args[i + 1].isnull = slot->tts_isnull[agg->args[i]];
		if (agg->transfn.fn_strict && call->args[i + 1].isnull)
			return false;
	}
	return true;
}

/* With the arguments given. */
static void
advance(FlowOp *op, FlowAgg *agg, FlowState *state)
{
	FunctionCallInfo call = agg->trans_call;
	Datum		value;

	state->nvalues++;
	if (agg->transfn.fn_strict)
	{
		if (state->no_value)
		{
			state->no_value = false;
			replace_state(op, agg, state, call->args[1].value, false);
			return;
		}
		if (state->isnull)
			return;
	}
	call->args[0].value = state->value;
	call->args[0].isnull = state->isnull;
	call->isnull = false;
	value = FunctionCallInvoke(call);
	state->no_value = false;
	if (agg->transbyval)
	{
		state->value = value;
		state->isnull = call->isnull;
	}
	else if (DatumGetPointer(value) != DatumGetPointer(state->value) || call->isnull != state->isnull)
		replace_state(op, agg, state, value, call->isnull);
}

static bool
filtered_out(const FlowAgg *agg, TupleTableSlot *slot)
{
	return agg->filter >= 0 && (slot->tts_isnull[agg->filter] || !DatumGetBool(slot->tts_values[agg->filter]));
}

/* One row into all states.  Runs in the row's memory. */
void
wms_flow_states_advance(FlowOp *op, FlowState *states, TupleTableSlot *slot)
{
	if (op->retracts)
		states[op->nfast].nvalues++;
	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		if (filtered_out(agg, slot))
			continue;
		if (agg->counts)
		{
			if (agg->nargs == 0 || !slot->tts_isnull[agg->args[0]])
				states[i].value = Int64GetDatum(DatumGetInt64(states[i].value) + 1);
		}
		else if (give_arguments(agg, agg->trans_call, slot))
			advance(op, agg, &states[i]);
	}
}

/* ---------------------------------------------------------------- transitions of many rows */

/* The column of a row, of the operator's input. */
#define ROWS_VALUE(rows, column) ((rows)->values + (rows)->place[column])
#define ROWS_ISNULL(rows, column) ((rows)->isnull + (rows)->place[column])

static inline bool
row_is_filtered_out(const FlowAgg *agg, const FlowRows *rows, int row)
{
	return agg->filter >= 0 &&
		(ROWS_ISNULL(rows, agg->filter)[row] || !DatumGetBool(ROWS_VALUE(rows, agg->filter)[row]));
}

static inline bool
give_row_arguments(const FlowAgg *agg, FunctionCallInfo call, const FlowRows *rows, int row)
{
	for (int i = 0; i < agg->nargs; i++)
	{
		call->args[i + 1].value = ROWS_VALUE(rows, agg->args[i])[row];
		call->args[i + 1].isnull = ROWS_ISNULL(rows, agg->args[i])[row];
		if (agg->transfn.fn_strict && call->args[i + 1].isnull)
			return false;
	}
	return true;
}

/* What a transition left in the row's memory goes before the next one. */
static void
advance_by_calls(FlowOp *op, int i, const FlowRows *rows)
{
	FlowAgg    *agg = &op->fast[i];

	for (int at = 0; at < rows->n; at++)
	{
		if (row_is_filtered_out(agg, rows, rows->rows[at]) || !give_row_arguments(agg, agg->trans_call, rows, rows->rows[at]))
			continue;
		advance(op, agg, &rows->states[at][i]);
		if (!CurrentMemoryContext->isReset)
			MemoryContextReset(CurrentMemoryContext);
	}
}

static void
count_rows(FlowOp *op, int i, const FlowRows *rows)
{
	const FlowAgg *agg = &op->fast[i];

	for (int at = 0; at < rows->n; at++)
	{
		FlowState  *state = &rows->states[at][i];

		if (row_is_filtered_out(agg, rows, rows->rows[at]) ||
			(agg->nargs > 0 && ROWS_ISNULL(rows, agg->args[0])[rows->rows[at]]))
			continue;
		state->value = Int64GetDatum(DatumGetInt64(state->value) + 1);
	}
}

/* As float8pl, which is strict and has no initial value. */
static void
sum_floats(FlowOp *op, int i, const FlowRows *rows)
{
	const FlowAgg *agg = &op->fast[i];
	const Datum *values = ROWS_VALUE(rows, agg->args[0]);
	const bool *isnull = ROWS_ISNULL(rows, agg->args[0]);

	for (int at = 0; at < rows->n; at++)
	{
		FlowState  *state = &rows->states[at][i];
		int			row = rows->rows[at];

		if (isnull[row] || row_is_filtered_out(agg, rows, row))
			continue;
		if (!state->no_value)
			state->value = Float8GetDatum(float8_pl(DatumGetFloat8(state->value), DatumGetFloat8(values[row])));
		else
			state->value = values[row];
		state->isnull = state->no_value = false;
	}
}

/* As int4_sum and int2_sum, whose sums are bigint, NULL until the first value. */
static void
sum_integers(FlowOp *op, int i, const FlowRows *rows)
{
	const FlowAgg *agg = &op->fast[i];
	const Datum *values = ROWS_VALUE(rows, agg->args[0]);
	const bool *isnull = ROWS_ISNULL(rows, agg->args[0]);
	bool		small = agg->transfn.fn_oid == F_INT2_SUM;

	for (int at = 0; at < rows->n; at++)
	{
		FlowState  *state = &rows->states[at][i];
		int			row = rows->rows[at];
		int64		value;

		if (row_is_filtered_out(agg, rows, row))
			continue;
		state->no_value = false;
		if (isnull[row])
			continue;
		value = small ? DatumGetInt16(values[row]) : DatumGetInt32(values[row]);
		state->value = Int64GetDatum(state->isnull ? value : DatumGetInt64(state->value) + value);
		state->isnull = false;
	}
}

/*
 * Rows into the states of their groups, one aggregate after the other.  Runs in the row's memory, in which nothing of the rows lies.  Not
 * where rows are taken back: nothing is counted here.
 */
void
wms_flow_states_advance_rows(FlowOp *op, const FlowRows *rows)
{
	Assert(!op->retracts);
	for (int i = 0; i < op->nfast; i++)
		op->fast[i].advance_rows(op, i, rows);
}

static void
take_back(FlowOp *op, FlowAgg *agg, FlowState *state, TupleTableSlot *slot)
{
	FunctionCallInfo call = agg->inverse_call;
	Datum		value;

	if (!give_arguments(agg, call, slot))
		return;
	if (--state->nvalues <= 0)
	{
		begin_state(op, agg, state);
		return;
	}
	call->args[0].value = state->value;
	call->args[0].isnull = state->isnull;
	call->isnull = false;
	value = FunctionCallInvoke(call);
	if (call->isnull)
		elog(ERROR, "inverse transition function %u has lost its state", agg->inversefn.fn_oid);
	if (agg->transbyval)
		state->value = value;
	else if (DatumGetPointer(value) != DatumGetPointer(state->value))
		replace_state(op, agg, state, value, false);
}

/* One row out of all states; it went in before, as it is now. */
void
wms_flow_states_retract(FlowOp *op, FlowState *states, TupleTableSlot *slot)
{
	states[op->nfast].nvalues--;
	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		if (filtered_out(agg, slot))
			continue;
		if (!agg->counts)
			take_back(op, agg, &states[i], slot);
		else if (agg->nargs == 0 || !slot->tts_isnull[agg->args[0]])
			states[i].value = Int64GetDatum(DatumGetInt64(states[i].value) - 1);
	}
}

static void
combine(FlowOp *op, FlowAgg *agg, FlowState *into, FlowState *from)
{
	NullableDatum combined;

	/*
	 * Two states that are NULL stay that: nothing came into either, or nothing but what left it NULL.  A combine function that is not strict
	 * may make something of them that other states can be added to, but rows cannot, as an executor never adds any after combining.
	 */
	if (from->isnull && (into->isnull || agg->combinefn.fn_strict))
		return;
	/* As with the first of an executor's partial states. */
	if (into->isnull && agg->combinefn.fn_strict)
	{
		replace_state(op, agg, into, from->value, false);
		into->no_value = false;
		return;
	}
	combined = call_combine(op, agg, (NullableDatum) {.value = into->value,.isnull = into->isnull},
							(NullableDatum) {.value = from->value,.isnull = from->isnull});
	if (!from->no_value)
		into->no_value = false;
	if (agg->transbyval)
	{
		into->value = combined.value;
		into->isnull = combined.isnull;
	}
	else if (DatumGetPointer(combined.value) != DatumGetPointer(into->value) || combined.isnull != into->isnull)
		replace_state(op, agg, into, combined.value, combined.isnull);
}

/* Two groups become one: from's states go into into's. */
void
wms_flow_states_combine(FlowOp *op, FlowState *into, FlowState *from)
{
	for (int i = 0; i < op->nfast; i++)
		combine(op, &op->fast[i], &into[i], &from[i]);
}

/* ---------------------------------------------------------------- latest() */

/*
 * The value of the row that came last, also if it is NULL: of all columns that are carried the group shows one and the same row.  As a
 * combine function: that of the group that goes into the other.  The row that brings sessions together comes after that; the panes of a
 * sliding window go in in the order of time.
 */
Datum
wms_sql_latest(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(1));
}

/* ---------------------------------------------------------------- results */

static Datum
state_for_final(FlowOp *op, FlowAgg *agg, FlowState *state)
{
	if (state->isnull)
		return (Datum) 0;
	if (!agg->final_scribbles)
		return MakeExpandedObjectReadOnly(state->value, state->isnull, agg->translen);
	if (agg->internal)
		return deserialize_state(op, agg, convert_state(op, &agg->serialfn, 1, state->value));
	return datumCopy(state->value, agg->transbyval, agg->translen);
}

static Datum
finish(FlowOp *op, FlowAgg *agg, FlowState *state, bool *isnull)
{
	FunctionCallInfo call = agg->final_call;
	Datum		value;

	if (!agg->has_final)
	{
		*isnull = state->isnull;
		return MakeExpandedObjectReadOnly(state->value, state->isnull, agg->translen);
	}
	call->args[0].value = state_for_final(op, agg, state);
	call->args[0].isnull = state->isnull;
	for (int i = 1; i < agg->nfinal; i++)
	{
		call->args[i].value = (Datum) 0;
		call->args[i].isnull = true;
	}
	*isnull = true;
	if (agg->finalfn.fn_strict && (state->isnull || agg->nfinal > 1))
		return (Datum) 0;
	call->isnull = false;
	value = FunctionCallInvoke(call);
	*isnull = call->isnull;
	return value;
}

/* Results of all fast aggregates into the output columns; they live in the current context or in the states. */
void
wms_flow_states_finish(FlowOp *op, FlowState *states, Datum *values, bool *isnull)
{
	for (int i = 0; i < op->nfast; i++)
	{
		FlowAgg    *agg = &op->fast[i];

		values[agg->column] = finish(op, agg, &states[i], &isnull[agg->column]);
	}
}
