/*
 * base_testpoint.c
 *	  Named points at which tests make a process fail, die or wait.
 *
 * wmstream.test_point is a list of name:action[:stream] with commas between.
 * It is parsed at every point that is reached while it is not empty, so nothing
 * can be out of date; while it is empty a point costs one comparison (WMS_POINT).
 * With a stream, the entry counts only while this process works for the stream
 * of that name (wms_current_stream).
 *
 * A process that waits says so in the log and goes on as soon as the setting no
 * longer tells it to wait here.  It reads the configuration anew after SIGHUP and
 * can be cancelled or terminated.  Points lie where that is harmless: never under a
 * spinlock or LWLock, never in a critical section.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "base/base.h"

#define RECHECK_MS 20
#define ACTION_LEN 64

const char *wms_current_stream = NULL;

/* Copies the next field, up to one of the ends, and returns where it stopped. */
static const char *
copy_field(const char *from, const char *ends, char *field)
{
	size_t		len = strcspn(from, ends);

	while (*from == ' ')
	{
		from++;
		len--;
	}
	strlcpy(field, from, Min(len + 1, ACTION_LEN));
	return from + len;
}

/* The action that the setting has for this point and the current stream, into action; false: none. */
static bool
find_action(const char *point, char *action)
{
	const char *next = wms_test_point ? wms_test_point : "";
	char		name[ACTION_LEN];
	char		stream[ACTION_LEN];

	while (*next)
	{
		action[0] = stream[0] = '\0';
		next = copy_field(next, ":,", name);
		if (*next == ':')
			next = copy_field(next + 1, ":,", action);
		if (*next == ':')
			next = copy_field(next + 1, ",", stream);
		if (*next == ',')
			next++;

		if (strcmp(name, point) == 0 &&
			(stream[0] == '\0' || (wms_current_stream && strcmp(stream, wms_current_stream) == 0)))
			return true;
	}
	return false;
}

static void
wait_here(const char *point)
{
	char		action[ACTION_LEN];

	ereport(LOG, (errmsg("test point \"%s\": waiting", point)));
	while (find_action(point, action) && strcmp(action, "wait") == 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, RECHECK_MS,
						 WMS_WAIT_EVENT("WmstreamTestPoint"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
	ereport(LOG, (errmsg("test point \"%s\": going on", point)));

	/* Whoever set the latch meanwhile meant the loop that we keep from running. */
	SetLatch(MyLatch);
}

static void
crash_here(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

/* "error/53200": the SQLSTATE after the slash; else internal error. */
static int
error_code_of(const char *action)
{
	const char *code = strchr(action, '/');

	if (code == NULL || strlen(code) != 6)
		return ERRCODE_INTERNAL_ERROR;
	return MAKE_SQLSTATE(code[1], code[2], code[3], code[4], code[5]);
}

void
wms_point_reached(const char *name)
{
	char		action[ACTION_LEN];

	if (!find_action(name, action))
		return;
	if (strcmp(action, "wait") == 0)
		wait_here(name);
	else if (strcmp(action, "crash") == 0)
		crash_here();
	else if (strcmp(action, "fatal") == 0)
		ereport(FATAL, (errmsg("test point \"%s\" reached", name)));
	else if (strncmp(action, "error", 5) == 0)
		ereport(ERROR, (errcode(error_code_of(action)), errmsg("test point \"%s\" reached", name)));
	else
		ereport(WARNING, (errmsg("test point \"%s\" has no action \"%s\"", name, action)));
}
