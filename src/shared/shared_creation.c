/*
 * shared_creation.c
 *	  The lock between those who create streams and the worker that finds that its database has none.
 *
 * create_stream makes the replication slot before it writes anything, and only its commit shows that the slot is wanted.
 * Until then it holds this lock in share mode.  A worker without streams takes it exclusively, without waiting, looks at the
 * registry once more and only then drops the slot and the database's mark.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"

#include "shared/shared.h"

/*
 * Two sessions that both find no slot must not both make it: a second lock, held only while one looks again and makes it.
 */

/* Keys of our advisory locks: a class of their own beside those of SQL (1 and 2). */
#define CREATION_KEY 0x776d7374
#define LOCK_CLASS 17

#define MAKING_KEY 0x776d736d
#define MARK_KEY 0x776d736b

static void
making_tag(LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, MAKING_KEY, 0, LOCK_CLASS);
}

/* Waits; until wms_making_unlock, or the end of the transaction after an error. */
void
wms_making_lock(void)
{
	LOCKTAG		tag;

	making_tag(&tag);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

void
wms_making_unlock(void)
{
	LOCKTAG		tag;

	making_tag(&tag);
	(void) LockRelease(&tag, ExclusiveLock, false);
}

static void
creation_tag(LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, CREATION_KEY, 0, LOCK_CLASS);
}

/* Until the end of the transaction. */
void
wms_creation_lock_share(void)
{
	LOCKTAG		tag;

	creation_tag(&tag);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

/* Until wms_creation_unlock; false: somebody creates. */
bool
wms_creation_lock_exclusive(void)
{
	LOCKTAG		tag;

	creation_tag(&tag);
	return LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
wms_creation_unlock(void)
{
	LOCKTAG		tag;

	creation_tag(&tag);
	(void) LockRelease(&tag, ExclusiveLock, true);
}

/* Until the end of the transaction.  False, without wait: another one does it just now. */
bool
wms_mark_lock(bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, MARK_KEY, 0, LOCK_CLASS);
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}
