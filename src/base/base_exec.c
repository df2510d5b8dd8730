/*
 * base_exec.c
 *	  Query trees over named row sets: planning, locking, running, watching.
 *
 * A *row set* is an ephemeral named relation: a name, a row type and a tuplestore that is
 * made anew for each batch (a scan adds a read pointer to it that is never given back).
 * A *query* is a rewritten tree that reads row sets and ordinary tables; it is planned once
 * and run many times.  Plans are not in the plan cache, for their trees have no text; so we
 * do what it would do: take the locks of every relation before a run, and let a *watch* tell
 * when something that a plan depends on has changed (types and operators cannot change under a
 * plan in ways that matter; they are not watched, for every CREATE TABLE makes a type).  Taking a lock processes invalidations,
 * so the order is: lock, look at the watch, run.
 *
 * Row sets are read with the memory and resource owner under which they were begun: both
 * end with the batch.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/tstoreReceiver.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/base.h"

/* Rows that the planner expects in a row set; a batch is small beside a table. */
#define WMS_EXPECTED_ROWS 1000

typedef struct CallReceiver
{
	DestReceiver pub;
	WmsRowFn	fn;
	void	   *arg;
} CallReceiver;

static dlist_head watches = DLIST_STATIC_INIT(watches);
static bool callbacks_registered = false;
static Oid	changes[256];		/* of relations, the newest ones; InvalidOid: all, or something else */
static uint64 nchanges = 0;

/* ---------------------------------------------------------------- row sets */

RangeTblEntry *
wms_rowset_rte(const char *name, TupleDesc desc, const char *alias)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_NAMEDTUPLESTORE;
	rte->relid = InvalidOid;
	rte->enrname = pstrdup(name);
	rte->enrtuples = WMS_EXPECTED_ROWS;
	rte->eref = makeAlias(alias, NIL);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		dropped = att->attisdropped;

		rte->eref->colnames = lappend(rte->eref->colnames,
									  makeString(dropped ? pstrdup("") : pstrdup(NameStr(att->attname))));
		rte->coltypes = lappend_oid(rte->coltypes, dropped ? InvalidOid : att->atttypid);
		rte->coltypmods = lappend_int(rte->coltypmods, dropped ? 0 : att->atttypmod);
		rte->colcollations = lappend_oid(rte->colcollations, dropped ? InvalidOid : att->attcollation);
	}
	rte->inFromCl = true;
	return rte;
}

WmsRowSet *
wms_rowset_make(QueryEnvironment *env, const char *name, TupleDesc desc)
{
	WmsRowSet  *set = palloc0(sizeof(WmsRowSet));
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));

	set->name = pstrdup(name);
	set->desc = desc;
	set->enr = enr;
	enr->md.name = set->name;
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = WMS_EXPECTED_ROWS;
	register_ENR(env, enr);
	return set;
}

Tuplestorestate *
wms_rowset_begin(WmsRowSet *set)
{
	wms_rowset_adopt(set, tuplestore_begin_heap(false, false, work_mem));
	return set->rows;
}

void
wms_rowset_adopt(WmsRowSet *set, Tuplestorestate *rows)
{
	if (set->rows)
		tuplestore_end(set->rows);
	set->rows = rows;
	set->enr->reldata = rows;
}

void
wms_rowset_end(WmsRowSet *set)
{
	if (set->rows)
		tuplestore_end(set->rows);
	wms_rowset_forget(set);
}

void
wms_rowset_forget(WmsRowSet *set)
{
	set->rows = NULL;
	set->enr->reldata = NULL;
}

/* ---------------------------------------------------------------- queries */

WmsQuery *
wms_query_make(Query *query, QueryEnvironment *env)
{
	WmsQuery   *q = palloc0(sizeof(WmsQuery));

	q->query = query;
	q->env = env;
	return q;
}

WmsQuery *
wms_query_parse(const char *sql, QueryEnvironment *env)
{
	List	   *raw = pg_parse_query(sql);
	List	   *queries;

	if (list_length(raw) != 1)
		elog(ERROR, "expected one statement: %s", sql);
	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, raw), sql, NULL, 0, env);
	if (list_length(queries) != 1 || linitial_node(Query, queries)->querySource != QSRC_ORIGINAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a table that a stream writes cannot have rewrite rules"),
				 errhint("Use a trigger instead of the rule.")));
	return wms_query_make(linitial_node(Query, queries), env);
}

/* A plan runs many times, each time over few rows, and would be compiled each time anew: half a second for what takes microseconds. */
void
wms_query_plan(WmsQuery *q)
{
	q->plan = pg_plan_query(copyObject(q->query), "wmstream", 0, NULL);
	q->plan->jitFlags = PGJIT_NONE;
}

void
wms_query_lock(WmsQuery *q)
{
	ListCell   *lc;

	foreach(lc, q->plan->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION)
			LockRelationOid(rte->relid, rte->rellockmode);
	}
}

List *
wms_query_relids(WmsQuery *q)
{
	return q->plan->relationOids;
}

uint64
wms_query_run(WmsQuery *q, DestReceiver *dest)
{
	QueryDesc  *qd;
	uint64		processed;

	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	qd = CreateQueryDesc(q->plan, "wmstream", GetActiveSnapshot(), InvalidSnapshot,
						 dest ? dest : None_Receiver, NULL, q->env, 0);
	ExecutorStart(qd, 0);
	WmsExecutorRun(qd, ForwardScanDirection, 0);
	processed = qd->estate->es_processed;
	ExecutorFinish(qd);
	ExecutorEnd(qd);
	FreeQueryDesc(qd);
	PopActiveSnapshot();
	if (q->plan->commandType != CMD_SELECT)
		CommandCounterIncrement();
	return processed;
}

uint64
wms_query_write(WmsQuery *q)
{
	uint64		processed;

	wms_query_lock(q);
	PushActiveSnapshot(GetTransactionSnapshot());
	processed = wms_query_run(q, NULL);
	PopActiveSnapshot();
	return processed;
}

/* ---------------------------------------------------------------- receivers */

static bool
call_receive(TupleTableSlot *slot, DestReceiver *self)
{
	CallReceiver *receiver = (CallReceiver *) self;

	receiver->fn(slot, receiver->arg);
	return true;
}

static void
call_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
call_shutdown(DestReceiver *self)
{
}

static void
call_destroy(DestReceiver *self)
{
	pfree(self);
}

DestReceiver *
wms_dest_call(WmsRowFn fn, void *arg)
{
	CallReceiver *receiver = palloc0(sizeof(CallReceiver));

	receiver->pub.receiveSlot = call_receive;
	receiver->pub.rStartup = call_startup;
	receiver->pub.rShutdown = call_shutdown;
	receiver->pub.rDestroy = call_destroy;
	receiver->pub.mydest = DestNone;
	receiver->fn = fn;
	receiver->arg = arg;
	return &receiver->pub;
}

/* ---------------------------------------------------------------- watching */

/* No allocation in here: core calls it at all kinds of moments. */
static void
note_change(Oid relid)
{
	changes[nchanges++ % lengthof(changes)] = relid;
}

static bool
changed_since(const List *relids, uint64 since)
{
	if (nchanges - since > lengthof(changes))
		return true;			/* who knows */
	for (; since < nchanges; since++)
	{
		Oid			relid = changes[since % lengthof(changes)];

		if (!OidIsValid(relid) || list_member_oid(relids, relid))
			return true;
	}
	return false;
}

static void
relation_changed(Datum arg, Oid relid)
{
	dlist_iter	iter;

	note_change(relid);
	dlist_foreach(iter, &watches)
	{
		WmsWatch   *watch = dlist_container(WmsWatch, node, iter.cur);

		if (!OidIsValid(relid) || list_member_oid(watch->relids, relid))
			watch->stale = true;
	}
}

static void
object_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	dlist_iter	iter;

	note_change(InvalidOid);
	dlist_foreach(iter, &watches)
		dlist_container(WmsWatch, node, iter.cur)->stale = true;
}

/* What was told before has no part in what is read from now on. */
uint64
wms_watch_moment(void)
{
	if (!callbacks_registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, object_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, object_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, object_changed, (Datum) 0);
		callbacks_registered = true;
	}
	AcceptInvalidationMessages();
	return nchanges;
}

void
wms_watch_start(WmsWatch *watch, uint64 since)
{
	watch->stale = changed_since(watch->relids, since);
	dlist_push_tail(&watches, &watch->node);
}

void
wms_watch_stop(WmsWatch *watch)
{
	dlist_delete(&watch->node);
}
