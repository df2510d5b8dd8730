/*
 * worker_owner.c
 *	  Running a stream's code as its owner inside a superuser's worker.
 *
 * Expressions, aggregates, triggers and constraints of a stream are its owner's code.  It must do no more than the owner could,
 * and nothing of it may reach the next stream's transaction:
 *
 *   settings    a nest level of our own; rolled back whatever the code has set.  In it those of the stream, and in a follower the worker's
 *   constraints made immediate first, for a deferred trigger would run at COMMIT, as ourselves; what the code has deferred
 *               all the same is run before we are ourselves again
 *   role        SetUserIdAndSecContext with a security-restricted context: no SET ROLE, no temporary tables, no
 *               cursors that outlive the transaction
 *   locks       session-level advisory locks are released when the transaction has ended
 *   time        statement_timeout does nothing in a worker; the batch has a clock of its own, which cancels like Ctrl-C
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "worker/worker.h"

static TimeoutId batch_timer = MAX_TIMEOUTS;
static volatile sig_atomic_t batch_timed_out = false;

static void
set_local(const char *name, const char *value)
{
	if (value)
		(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static void
constraints_immediate(void)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = NIL;
	stmt->deferred = false;
	AfterTriggerSetState(stmt);
}

void
wms_become_owner(const WmsStreamDef *def, WmsOwnerScope *scope)
{
	scope->guc_level = NewGUCNestLevel();
	set_local("search_path", "pg_catalog, pg_temp");
	set_local("TimeZone", def->timezone);
	set_local("DateStyle", def->datestyle);
	set_local("IntervalStyle", def->intervalstyle);
	if (OidIsValid(wms_follows))
		wms_values_adopt();
	set_local("lock_timeout", psprintf("%dms", wms_lock_timeout));
	constraints_immediate();
	GetUserIdAndSecContext(&scope->user, &scope->context);
	SetUserIdAndSecContext(def->owner, scope->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

void
wms_leave_owner(WmsOwnerScope *scope)
{
	AfterTriggerFireDeferred();
	SetUserIdAndSecContext(scope->user, scope->context);
	AtEOXact_GUC(false, scope->guc_level);
}

void
wms_after_owner(void)
{
	LockReleaseSession(USER_LOCKMETHOD);
}

/* ---------------------------------------------------------------- the batch's clock */

/* Code that catches its cancellation is told again, and at last the process ends under it: that cannot be caught. */
#define TELL_AGAIN_MS 1000
#define TELL_TIMES 5

static volatile sig_atomic_t times_told = 0;

/* In a signal handler. */
static void
batch_time_is_over(void)
{
	batch_timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	if (++times_told > TELL_TIMES)
	{
		wms_crash_note_endless();
		ProcDiePending = true;
	}
	SetLatch(MyLatch);
}

void
wms_batch_clock_register(void)
{
	batch_timer = RegisterTimeout(USER_TIMEOUT, batch_time_is_over);
}

void
wms_batch_clock_start(void)
{
	batch_timed_out = false;
	times_told = 0;
	if (wms_batch_timeout > 0)
		enable_timeout_every(batch_timer, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), wms_batch_timeout),
							 TELL_AGAIN_MS);
}

bool
wms_batch_clock_stop(void)
{
	bool		over;

	if (batch_timer != MAX_TIMEOUTS)
		disable_timeout(batch_timer, false);
	over = batch_timed_out;
	batch_timed_out = false;
	QueryCancelPending = false;
	return over;
}
