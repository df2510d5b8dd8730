/*
 * base_compat.h
 *	  Differences between PostgreSQL versions, and nothing else.
 *
 * This is the only file that may test PG_VERSION_NUM.  Everything here has the
 * shape of the newest version that we know; older versions are bent to it.
 */
#ifndef WMS_BASE_COMPAT_H
#define WMS_BASE_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "wmstream needs PostgreSQL 15 or newer"
#endif

/* ExecutorRun lost its execute_once argument in 18. */
#if PG_VERSION_NUM >= 180000
#define WmsExecutorRun(qd, dir, count) ExecutorRun(qd, dir, count)
#else
#define WmsExecutorRun(qd, dir, count) ExecutorRun(qd, dir, count, true)
#endif

/* Index entries of a new row; from 16 on it can be left to summarizing indexes. */
#if PG_VERSION_NUM >= 160000
#define WmsInsertIndexTuples(result, slot, estate) ExecInsertIndexTuples(result, slot, estate, false, false, NULL, NIL, false)
#else
#define WmsInsertIndexTuples(result, slot, estate) ExecInsertIndexTuples(result, slot, estate, false, false, NULL, NIL)
#endif

/* Types of which some minor releases say that equal values have equal images; but 'a' and 'a ' have not, nor 1 month and 30 days. */
#define WmsImagesDiffer(type) ((type) == BPCHAROID || (type) == INTERVALOID)

/* Change tuples are plain HeapTuples from 17 on. */
#if PG_VERSION_NUM >= 170000
#define WmsChangeTuple(t) (t)
#else
#define WmsChangeTuple(t) ((t) ? &(t)->tuple : NULL)
#endif

/* The top-level transaction of a (sub)transaction of the reorder buffer. */
#if PG_VERSION_NUM >= 160000
#define WmsTopTxn(txn) rbtxn_get_toptxn(txn)
#else
#define WmsTopTxn(txn) ((txn)->toptxn ? (txn)->toptxn : (txn))
#endif

/* Ownership checks are generic from 16 on. */
#if PG_VERSION_NUM >= 160000
#define WmsOwnsRelation(relid, roleid) object_ownercheck(RelationRelationId, relid, roleid)
#else
#define WmsOwnsRelation(relid, roleid) pg_class_ownercheck(relid, roleid)
#endif

#if PG_VERSION_NUM >= 160000
#define WmsOwnsDatabase(dboid, roleid) object_ownercheck(DatabaseRelationId, dboid, roleid)
#define WmsOwnsExtension(extoid, roleid) object_ownercheck(ExtensionRelationId, extoid, roleid)
#define WmsMayCreateIn(nspoid, roleid) (object_aclcheck(NamespaceRelationId, nspoid, roleid, ACL_CREATE) == ACLCHECK_OK)
#define WmsMayLookInto(nspoid, roleid) (object_aclcheck(NamespaceRelationId, nspoid, roleid, ACL_USAGE) == ACLCHECK_OK)
#define WmsMayCall(funcoid, roleid) (object_aclcheck(ProcedureRelationId, funcoid, roleid, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define WmsOwnsDatabase(dboid, roleid) pg_database_ownercheck(dboid, roleid)
#define WmsOwnsExtension(extoid, roleid) pg_extension_ownercheck(extoid, roleid)
#define WmsMayCreateIn(nspoid, roleid) (pg_namespace_aclcheck(nspoid, roleid, ACL_CREATE) == ACLCHECK_OK)
#define WmsMayLookInto(nspoid, roleid) (pg_namespace_aclcheck(nspoid, roleid, ACL_USAGE) == ACLCHECK_OK)
#define WmsMayCall(funcoid, roleid) (pg_proc_aclcheck(funcoid, roleid, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/* Permissions of range table entries live in a list of their own from 16 on. */
#if PG_VERSION_NUM >= 160000
#define WmsCheckPerms(rtable, perminfos) ExecCheckPermissions(rtable, perminfos, true)
#else
#define WmsCheckPerms(rtable, perminfos) ExecCheckRTPerms(rtable, true)
#endif

/* Where a column begins in rows without NULLs, as far as that is known (-1: not), stands in the compact form of the attribute from 18 on. */
#if PG_VERSION_NUM >= 180000
#define WmsCachedOffset(desc, i) (TupleDescCompactAttr(desc, i)->attcacheoff)
#else
#define WmsCachedOffset(desc, i) (TupleDescAttr(desc, i)->attcacheoff)
#endif

/* Wait events of extensions have names of their own from 17 on. */
#if PG_VERSION_NUM >= 170000
#define WMS_WAIT_EVENT(name) WaitEventExtensionNew(name)
#else
#define WMS_WAIT_EVENT(name) PG_WAIT_EXTENSION
#endif

/* Slots: failover slots from 17 on; acquiring may complain of invalidation from 18 on. */
#if PG_VERSION_NUM >= 170000
#define WmsSlotCreate(name, persistency) ReplicationSlotCreate(name, true, persistency, false, true, false)
#else
#define WmsSlotCreate(name, persistency) ReplicationSlotCreate(name, true, persistency, false)
#endif
#if PG_VERSION_NUM >= 180000
#define WmsSlotAcquire(name, nowait) ReplicationSlotAcquire(name, nowait, true)
#else
#define WmsSlotAcquire(name, nowait) ReplicationSlotAcquire(name, nowait)
#endif

/* The database of the first block of the WAL record read last. */
#if PG_VERSION_NUM >= 160000
#define WmsBlockDatabase(reader) (XLogRecGetBlock(reader, 0)->rlocator.dbOid)
#else
#define WmsBlockDatabase(reader) (XLogRecGetBlock(reader, 0)->rnode.dbNode)
#endif

/* How an invalidated slot is told; its spinlock is held. */
#if PG_VERSION_NUM >= 160000
#define WmsSlotIsInvalid(slot) ((slot)->data.invalidated != RS_INVAL_NONE)
#else
#define WmsSlotIsInvalid(slot) ((slot)->data.invalidated_at != InvalidXLogRecPtr && (slot)->data.restart_lsn == InvalidXLogRecPtr)
#endif

/* Join aliases are flattened on behalf of a planner from 16 on; permissions of entries are listed apart. */
#if PG_VERSION_NUM >= 160000
#define WmsFlattenJoinAliases(query, node) flatten_join_alias_vars(NULL, query, node)
#define WmsClearPermInfos(query) ((query)->rteperminfos = NIL)
#define WmsClearPerms(rte) ((rte)->perminfoindex = 0)
#else
#define WmsFlattenJoinAliases(query, node) flatten_join_alias_vars(query, node)
#define WmsClearPermInfos(query) ((void) 0)
#define WmsClearPerms(rte) \
	((rte)->requiredPerms = 0, (rte)->checkAsUser = InvalidOid, (rte)->selectedCols = NULL)
#endif

/* Generated columns may be virtual from 18 on: then they are not in the row. */
#if PG_VERSION_NUM >= 180000
#define WmsIsVirtualGenerated(generated) ((generated) == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define WmsIsVirtualGenerated(generated) false
#endif

/* Shared-memory areas tell their size from 17 on; own is the caller's account of it. */
#if PG_VERSION_NUM >= 170000
#define WmsDsaTotalSize(area, own) dsa_get_total_size(area)
#else
#define WmsDsaTotalSize(area, own) (own)
#endif
#ifndef DSA_HANDLE_INVALID
#define DSA_HANDLE_INVALID ((dsa_handle) DSM_HANDLE_INVALID)
#endif

/* Grouped expressions stand in a range table entry of their own from 18 on. */
#if PG_VERSION_NUM >= 180000
#define WmsHasGroupEntry(query) ((query)->hasGroupRTE)
#define WmsFlattenGroupVars(query, node) flatten_group_exprs(NULL, query, node)
#define WmsIsGroupEntry(rte) ((rte)->rtekind == RTE_GROUP)
#define WmsForgetGroupEntry(query) ((query)->hasGroupRTE = false)
#else
#define WmsHasGroupEntry(query) false
#define WmsFlattenGroupVars(query, node) (node)
#define WmsIsGroupEntry(rte) false
#define WmsForgetGroupEntry(query) ((void) 0)
#endif

/* Columns say from 16 on which outer joins may make them NULL; one that is not there any more must not be among these. */
#if PG_VERSION_NUM >= 160000
#define WmsWithoutNulling(node, rtindex) remove_nulling_relids(node, bms_make_singleton(rtindex), NULL)
#else
#define WmsWithoutNulling(node, rtindex) (node)
#endif

/* The inverse of sums and averages of intervals has another name, and state, from 17 on. */
#if PG_VERSION_NUM >= 170000
#define WmsIntervalAccumInv F_INTERVAL_AVG_ACCUM_INV
#else
#define WmsIntervalAccumInv F_INTERVAL_ACCUM_INV
#endif

/* Up to 15 a statement that inserts and updates has one set of expressions for generated columns of both. */
#if PG_VERSION_NUM >= 160000
#define WMS_UPSERT_GENERATES false
#define WmsUpsertExprs(target) ((ExprState **) NULL)
#else
#define WMS_UPSERT_GENERATES true
#define WmsUpsertExprs(target) ((target)->ri_GeneratedExprs)
#endif

/* A database whose DROP was interrupted bears this as its connection limit; the constant has a name from 15.4 on. */
#define WmsIsInvalidDatabase(form) ((form)->datconnlimit == -2)

/* For what must be told from what another server wrote. */
#define WMS_SERVER_VERSION PG_VERSION_NUM

/* Functions that do not return say so before everything else from 18 on. */
#if PG_VERSION_NUM >= 180000
#define WMS_NORETURN pg_noreturn
#else
#define WMS_NORETURN pg_attribute_noreturn()
#endif

/* Ranges are made with errors raised, not saved. */
#if PG_VERSION_NUM >= 160000
#define WmsMakeRange(type, lower, upper) make_range(type, lower, upper, false, NULL)
#else
#define WmsMakeRange(type, lower, upper) make_range(type, lower, upper, false)
#endif

/* Since 17 the caller of LogLogicalMessage says whether to flush it. */
#if PG_VERSION_NUM >= 170000
#define WmsLogMessage(prefix, message, size) LogLogicalMessage(prefix, message, size, false, false)
#else
#define WmsLogMessage(prefix, message, size) LogLogicalMessage(prefix, message, size, false)
#endif

/* Index scans count for EXPLAIN ANALYZE, if asked, from 18 on. */
#if PG_VERSION_NUM >= 180000
#define WmsIndexBeginScan(table, index, snapshot, nkeys) index_beginscan(table, index, snapshot, NULL, nkeys, 0)
#else
#define WmsIndexBeginScan(table, index, snapshot, nkeys) index_beginscan(table, index, snapshot, nkeys, 0)
#endif

#endif							/* WMS_BASE_COMPAT_H */
