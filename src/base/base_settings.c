/*
 * base_settings.c
 *	  The settings wmstream.*: names, units, ranges, defaults.
 *
 * Defined only when preloaded, because max_streams sizes shared memory.  All but
 * that one follow a reload of the configuration; processes read the variables
 * at each use and keep no copies.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "base/base.h"

int			wms_state_memory = 1024;
int			wms_max_batch_rows = 100000;
int			wms_poll_interval = 10;
int			wms_max_workers = 8;
int			wms_max_followers = 2;
int			wms_catchup_distance = 64;
int			wms_max_streams = 128;
int			wms_max_retained_wal = 16384;
int			wms_batch_timeout = 300000;
int			wms_lock_timeout = 100;
int			wms_batch_memory = 65536;
bool		wms_force_kept_arguments = false;
bool		wms_force_planned_feed = false;
bool		wms_force_row_feed = false;
bool		wms_force_insert_statement = false;
int			wms_look_ahead_from = 16384;
int			wms_bundle_from = 2;
int			wms_due_rows = 65536;
char	   *wms_test_point = NULL;

/* Sizes of shared memory, numbers of processes, and what streams may hold. */
static void
define_limits(void)
{
	DefineCustomIntVariable("wmstream.max_streams",
							"Sets how many streams all databases of the server can have together.",
							"Each takes about 5 kB of shared memory.",
							&wms_max_streams, 128, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.max_workers",
							"Sets how many databases can run streams at the same time.",
							"Each takes one of max_worker_processes.",
							&wms_max_workers, 8, 1, WMS_MAX_DATABASES,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.max_followers",
							"Sets how many streams can be filled or caught up beside the others at the same time.",
							"Each takes one of max_worker_processes while it lasts, and one of max_replication_slots while it catches up.",
							&wms_max_followers, 2, 1, WMS_MAX_FOLLOWERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.state_memory",
							"Sets how much shared memory the state of all streams of one database can take.",
							"A stream that needs more waits until its watermark frees state or this is raised.",
							&wms_state_memory, 1024, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.batch_memory",
							"Sets how many source rows of a batch are kept in memory before they go to temporary files.",
							NULL,
							&wms_batch_memory, 65536, 64, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.max_retained_wal",
							"Sets how much WAL a stream that stands still or does not keep up can hold back.",
							"Beyond this it no longer counts and must be rebuilt with wmstream.resync(). 0 means no limit.",
							&wms_max_retained_wal, 16384, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
}

/* How the workers go about it. */
static void
define_behaviour(void)
{
	DefineCustomIntVariable("wmstream.max_batch_rows",
							"Sets how many source rows a batch takes before it ends with the next commit.",
							NULL,
							&wms_max_batch_rows, 100000, 1, 100000000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.catchup_distance",
							"Sets how far behind the others a stream must be to be caught up by a process of its own.",
							"Nearer ones are caught up by the worker, which reads the WAL in between once more while the others wait.",
							&wms_catchup_distance, 64, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.poll_interval",
							"Sets how long a worker that has read all WAL waits before it looks again.",
							"It is five times that when nothing has happened for two seconds, and while many transactions come and nobody waits for a result.",
							&wms_poll_interval, 10, 1, 60000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.batch_timeout",
							"Sets how long one batch of a stream can take.",
							"A stream that takes longer is blocked and tried again, once; then it fails. 0 means no limit.",
							&wms_batch_timeout, 300000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.lock_timeout",
							"Sets how long a stream waits for a lock before it lets the others go first.",
							NULL,
							&wms_lock_timeout, 100, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

static void
define_developer_settings(void)
{
	DefineCustomBoolVariable("wmstream.force_kept_arguments",
							 "Developer: keeps the arguments of every aggregate instead of its state.",
							 NULL,
							 &wms_force_kept_arguments, false,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomBoolVariable("wmstream.force_planned_feed",
							 "Developer: runs every query over a batch through the executor.",
							 NULL,
							 &wms_force_planned_feed, false,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomBoolVariable("wmstream.force_row_feed",
							 "Developer: feeds rows one by one, never many at a time.",
							 NULL,
							 &wms_force_row_feed, false,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomBoolVariable("wmstream.force_insert_statement",
							 "Developer: puts rows into every result table by a statement, one by one.",
							 NULL,
							 &wms_force_insert_statement, false,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.look_ahead_from",
							"Developer: how many groups an operator's state has when rows begin to wait for the memory they will touch.",
							"0 makes them wait always.",
							&wms_look_ahead_from, 16384, 0, INT_MAX,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.bundle_from",
							"Developer: how many streams must have yet to read a batch for its rows to be taken apart once for all of them.",
							"1 does it always.",
							&wms_bundle_from, 2, 1, INT_MAX,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("wmstream.due_rows",
							"Developer: how many of the rows that leave an outer join next are remembered.",
							"0 makes every firing look for them.",
							&wms_due_rows, 65536, 0, INT_MAX / 2,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	/* For superusers also by SET: functions that run in a session have points too. */
	DefineCustomStringVariable("wmstream.test_point",
							   "Developer: what to do at named points of the code.",
							   "A list of name:action[:stream]; actions are error, error/<SQLSTATE>, fatal, crash, wait.",
							   &wms_test_point, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

void
wms_define_settings(void)
{
	define_limits();
	define_behaviour();
	define_developer_settings();
	MarkGUCPrefixReserved("wmstream");
}
