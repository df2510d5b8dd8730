/*
 * worker_crash.c
 *	  A stream whose code crashes the server must not do so again and again; nor must a queue, whose triggers run when its rows are deleted.
 *
 * A segfault in the worker, in a C function of some extension that a stream calls say, restarts the whole server, and the worker
 * with it, which would run the same batch again.  So the worker notes, in the handler of the fatal signal and by nothing but
 * open(2) and write(2), which stream it was running; the note survives in a small file of the data directory.  At start it counts:
 * a stream that crashed the server MAX_CRASHES times within WINDOW_S is set to failed, and when that is written down its notes are dropped, so
 * that a resume begins to count anew.  Code that the batch's clock cannot stop (worker_owner.c) ends the process, and would run again just so: the
 * clock takes as many notes at once as it takes to stop the stream.
 *
 * The worker has a file, and each follower has one.  It is there only while there are notes.
 *
 * The same goes for the queue of which rows were being deleted: those stay from then on (worker_trim.c), and its streams go on.
 *
 * A kill from outside (SIGKILL, SIGTERM) is nobody's fault and is not noted.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "miscadmin.h"
#include "storage/fd.h"

#include "worker/worker.h"

#define MAX_CRASHES 3
#define WINDOW_S 600
#define MAX_NOTES 1000

#define NOTE_DIRECTORY "pg_stat"
#define NOTE_NAME "wmstream_crashes.%u"	/* the database; a follower's has its stream after that */

#define NOTE_ENDLESS 1			/* it did not crash: its code could not be stopped */
#define NOTE_TRIM 2				/* a queue: deleting its rows */

typedef struct CrashNote
{
	Oid			what;			/* stream or queue */
	uint32		flags;			/* NOTE_ above */
	int64		at;				/* seconds since 1970 */
} CrashNote;

static char note_file[MAXPGPATH] = "";	/* empty: no notes are taken yet */
static volatile Oid running = InvalidOid;
static volatile uint32 running_flags = 0;

/* Of the follower of a stream; InvalidOid: of the worker. */
static void
note_path(char *path, Oid follows)
{
	if (OidIsValid(follows))
		snprintf(path, MAXPGPATH, NOTE_DIRECTORY "/" NOTE_NAME ".%u", MyDatabaseId, follows);
	else
		snprintf(path, MAXPGPATH, NOTE_DIRECTORY "/" NOTE_NAME, MyDatabaseId);
}

/* Async-signal-safe.  What cannot be written is not: there is nobody to be told. */
static void
take_note(uint32 flags)
{
	CrashNote	note = {running, flags | running_flags, (int64) time(NULL)};
	int			fd;

	if (note_file[0] == '\0' || !OidIsValid(running))
		return;
	fd = open(note_file, O_WRONLY | O_CREAT | O_APPEND, pg_file_create_mode);
	if (fd < 0)
		return;
	if (write(fd, &note, sizeof(note)) < 0)
		note_file[0] = '\0';
	close(fd);
}

/* Once is enough: the process has to end because of it. */
void
wms_crash_note_endless(void)
{
	for (int i = 0; i < MAX_CRASHES; i++)
		take_note(NOTE_ENDLESS);
}

static void
fatal_signal(SIGNAL_ARGS)
{
	take_note(0);
	signal(postgres_signal_arg, SIG_DFL);
	raise(postgres_signal_arg);
}

/* Which stream's batch is being run; InvalidOid: none. */
void
wms_crash_running(Oid stream)
{
	running = InvalidOid;
	running_flags = 0;
	running = stream;
}

void
wms_crash_trimming(Oid queue)
{
	running = InvalidOid;
	running_flags = NOTE_TRIM;
	running = queue;
}

static int
read_notes(const char *path, CrashNote *notes)
{
	int			fd = open(path, O_RDONLY);
	ssize_t		bytes;

	if (fd < 0)
		return 0;
	bytes = read(fd, notes, sizeof(CrashNote) * MAX_NOTES);
	close(fd);
	return bytes > 0 ? bytes / sizeof(CrashNote) : 0;
}

/* What is left of those that were found. */
static void
keep_notes(const char *path, const CrashNote *notes, int n, int found)
{
	int			fd;

	if (n == 0)
		unlink(path);
	if (n == 0 || n == found)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, pg_file_create_mode);
	if (fd < 0)
		return;
	if (write(fd, notes, sizeof(CrashNote) * n) < 0)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not write file \"%s\": %m", path)));
	close(fd);
}

/* kind: NOTE_TRIM, of a queue; 0, of a stream.  A table may be both. */
static bool
is_about(const CrashNote *note, Oid what, uint32 kind)
{
	return note->what == what && (note->flags & NOTE_TRIM) == kind;
}

/* *endless: one of them says so. */
static int
count_notes(const CrashNote *notes, int n, Oid what, uint32 kind, bool *endless)
{
	int			count = 0;

	*endless = false;
	for (int i = 0; i < n; i++)
	{
		if (!is_about(&notes[i], what, kind))
			continue;
		count++;
		*endless = *endless || (notes[i].flags & NOTE_ENDLESS) != 0;
	}
	return count;
}

/* How many are left. */
static int
drop_notes(CrashNote *notes, int n, Oid what, uint32 kind)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
		if (!is_about(&notes[i], what, kind))
			notes[kept++] = notes[i];
	return kept;
}

static int
drop_old_notes(CrashNote *notes, int n)
{
	int64		since = (int64) time(NULL) - WINDOW_S;
	int			kept = 0;

	for (int i = 0; i < n; i++)
		if (notes[i].at >= since)
			notes[kept++] = notes[i];
	return kept;
}

/* Those that are to stop are pardoned when that is written down, until when their notes stay. */
static int
stop_streams(CrashNote *notes, int n)
{
	ListCell   *lc;

	foreach(lc, wms_runners)
	{
		WmsRunner  *runner = lfirst(lc);
		bool		endless;

		if (count_notes(notes, n, runner->stream, 0, &endless) < MAX_CRASHES)
			continue;
		if (runner->status == WMS_STARTING)
			wms_runner_fail(runner, WMS_FAILED, endless ? "its code took longer than wmstream.batch_timeout and could not be stopped" :
							"it crashed the server");
		if (runner->end_reason == NULL)
			n = drop_notes(notes, n, runner->stream, 0);
	}
	return n;
}

static void
stop_trims(const CrashNote *notes, int n)
{
	for (int i = 0; i < n; i++)
	{
		bool		endless;

		if ((notes[i].flags & NOTE_TRIM) && count_notes(notes, n, notes[i].what, NOTE_TRIM, &endless) >= MAX_CRASHES)
			wms_trim_stop(notes[i].what, endless ? "deleting its rows took longer than wmstream.batch_timeout and could not be stopped" :
						  "deleting its rows crashed the server");
	}
}

/* Of streams that are gone, or of all. */
static void
forget_followers(bool all)
{
	DIR		   *directory = AllocateDir(NOTE_DIRECTORY);
	struct dirent *entry;

	while ((entry = ReadDirExtended(directory, NOTE_DIRECTORY, LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		Oid			database;
		Oid			stream;

		if (sscanf(entry->d_name, NOTE_NAME ".%u", &database, &stream) != 2 || database != MyDatabaseId ||
			(!all && wms_find_runner(stream)))
			continue;
		snprintf(path, MAXPGPATH, NOTE_DIRECTORY "/%s", entry->d_name);
		unlink(path);
	}
	FreeDir(directory);
}

/* At start, after the list of streams has been read: stops those that crash the server, and begins to take notes. */
void
wms_crash_begin(void)
{
	char		path[MAXPGPATH];
	CrashNote  *notes = palloc(sizeof(CrashNote) * MAX_NOTES);
	int			found;
	int			n;

	note_path(path, wms_follows);
	found = read_notes(path, notes);
	n = drop_old_notes(notes, found);
	n = stop_streams(notes, n);
	stop_trims(notes, n);
	keep_notes(path, notes, n, found);
	pfree(notes);
	if (!OidIsValid(wms_follows))
		forget_followers(false);

	strcpy(note_file, path);
	pqsignal(SIGSEGV, fatal_signal);
	pqsignal(SIGBUS, fatal_signal);
	pqsignal(SIGABRT, fatal_signal);
	pqsignal(SIGILL, fatal_signal);
}

void
wms_crash_pardon(Oid what, bool trim)
{
	char		path[MAXPGPATH];
	CrashNote  *notes;
	int			found;
	int			n;

	note_path(path, wms_follows);
	notes = palloc(sizeof(CrashNote) * MAX_NOTES);
	found = read_notes(path, notes);
	n = drop_notes(notes, found, what, trim ? NOTE_TRIM : 0);
	keep_notes(path, notes, n, found);
	pfree(notes);
	if (trim || OidIsValid(wms_follows))
		return;
	note_path(path, what);
	unlink(path);
}

/* The database has no streams any more, or is itself to go. */
void
wms_crash_forget(void)
{
	char		path[MAXPGPATH];

	note_path(path, wms_follows);
	unlink(path);
	forget_followers(true);
}
