/*
 * source_stage.c
 *	  Byte stores for rows, in memory or on disk.
 *
 * A *store* is an append-only sequence of records.  A record's place is its byte offset from the store's beginning, which stays the
 * same when the store moves to disk.  The front part of a store lies in a temporary file, the rest in *chunks* of memory:
 *
 *		0 ............ file_end ............................ end
 *		[   file       ][ chunk ][ chunk ][ chunk, filling   ]
 *
 * Records never cross the end of a chunk.  All chunks of all stores of the process together stay below wmstream.batch_memory: when
 * a new chunk would not fit, the store that holds most memory is written to its file, whoever owns it and however complete it is.
 * Only stores above SPILL_SIZE are worth a file (and are listed for it); thousands of smaller ones may go beyond the bound, which whoever
 * keeps so many batches limits by WmsBatch.bytes.
 *
 * Appending costs no allocation but for a chunk now and then, and no catalog access ever: it happens while transactions are being
 * decoded, some of which may have aborted already.  Temporary files outlive transactions (they are not registered with a resource
 * owner) and vanish with the process.
 *
 * An ERROR leaves every store as it was.  One that writes a store to disk is somebody else's more often than not: who wants to append a record,
 * not who owns the rows.  So files are written at places that we name, beyond file_end, which moves when all has been written; no buffer
 * stands between (that of a BufFile is in no known state after an error).
 *
 * Called by source_take.c, source_queue.c and source_fill.c (append), source_callbacks.c and source_batch.c (read, free).
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "source/source_internal.h"

/* With its head.  Small at first: a batch of a few rows may be kept for long, and many of them. */
#define FIRST_CHUNK_SIZE	((Size) 1024)
#define LAST_CHUNK_SIZE		((Size) 1024 * 1024)
#define SPILL_SIZE			((Size) 64 * 1024)

#define BUFFER_SIZE			((Size) 16 * 1024)
#define IO_SIZE			((Size) 1024 * 1024)	/* at once */

#define SPARE_CHUNKS		16

typedef struct Chunk
{
	struct Chunk *next;
	uint64		start;			/* offset of its first byte in the store */
	Size		size;			/* of data */
	Size		used;
} Chunk;

#define ChunkData(chunk) ((char *) (chunk) + MAXALIGN(sizeof(Chunk)))

struct WmsStage
{
	dlist_node	node;			/* in large_stages, if listed */
	bool		listed;
	uint64		end;
	Chunk	   *first;
	Chunk	   *last;
	Size		chunk_size;		/* of the next chunk, with its head */
	Size		memory;			/* of all chunks */
	List	   *relids;			/* tables whose rows are in it */
	Oid			last_relid;		/* of the record added last */

	File		file;			/* 0: none yet */
	uint64		file_end;		/* what lies beyond it in the file was left by a write that failed */

	Chunk	   *reading;		/* chunk read last, NULL: none */
	char	   *buffer;			/* read from the file */
	Size		buffer_size;
	uint64		buffer_from;	/* offset of its first byte in the store, which is a record's */
	Size		buffer_used;
};

static MemoryContext stage_context = NULL;
static dlist_head large_stages = DLIST_STATIC_INIT(large_stages);	/* those worth a file */
static Size stage_memory = 0;	/* of all chunks of all stores */
static Chunk *spare_chunks = NULL;	/* of LAST_CHUNK_SIZE: the next batch takes them, and the system need not clear new memory */
static int	nspare_chunks = 0;

WmsStage *
wms_stage_make(void)
{
	WmsStage   *stage;

	if (stage_context == NULL)
		stage_context = AllocSetContextCreate(wms_worker_context, "wmstream staged rows", ALLOCSET_DEFAULT_SIZES);

	stage = MemoryContextAllocZero(stage_context, sizeof(WmsStage));
	stage->chunk_size = FIRST_CHUNK_SIZE;
	return stage;
}

static Chunk *
alloc_chunk(Size size)
{
	Chunk	   *chunk = spare_chunks;

	if (chunk == NULL || size != LAST_CHUNK_SIZE)
		return MemoryContextAllocHuge(stage_context, size);
	spare_chunks = chunk->next;
	nspare_chunks--;
	return chunk;
}

static void
free_chunk(Chunk *chunk)
{
	if (MAXALIGN(sizeof(Chunk)) + chunk->size != LAST_CHUNK_SIZE || nspare_chunks == SPARE_CHUNKS)
	{
		pfree(chunk);
		return;
	}
	chunk->next = spare_chunks;
	spare_chunks = chunk;
	nspare_chunks++;
}

static void
free_chunks(WmsStage *stage)
{
	Chunk	   *chunk = stage->first;

	while (chunk)
	{
		Chunk	   *next = chunk->next;

		free_chunk(chunk);
		chunk = next;
	}
	stage_memory -= stage->memory;
	stage->memory = 0;
	stage->first = stage->last = stage->reading = NULL;
	if (stage->listed)
		dlist_delete(&stage->node);
	stage->listed = false;
}

void
wms_stage_free(WmsStage *stage)
{
	free_chunks(stage);
	if (stage->file)
		FileClose(stage->file);
	if (stage->buffer)
		pfree(stage->buffer);
	list_free(stage->relids);
	pfree(stage);
}

uint64
wms_stage_end(const WmsStage *stage)
{
	return stage->end;
}

uint64
wms_stage_held(const WmsStage *stage)
{
	return sizeof(WmsStage) + stage->memory + stage->file_end;
}

bool
wms_stage_in_memory(const WmsStage *stage)
{
	return stage->file_end == 0;
}

/* ---------------------------------------------------------------- to disk */

static void
write_file(File file, char *data, Size size, uint64 at)
{
	while (size > 0)
	{
		int			written = FileWrite(file, data, (int) Min(size, IO_SIZE), (off_t) at, WAIT_EVENT_BUFFILE_WRITE);

		if (written <= 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write to file \"%s\": %m", FilePathName(file))));
		data += written;
		size -= written;
		at += written;
	}
}

/* All or nothing. */
static void
spill(WmsStage *stage)
{
	uint64		at = stage->file_end;

	if (stage->file == 0)
		stage->file = OpenTemporaryFile(true);
	for (Chunk *chunk = stage->first; chunk; chunk = chunk->next)
	{
		write_file(stage->file, ChunkData(chunk), chunk->used, at);
		at += chunk->used;
		WMS_POINT("chunk-spilled");
	}
	stage->file_end = at;
	free_chunks(stage);
}

/* NULL: none is worth a file. */
static WmsStage *
largest_stage(void)
{
	WmsStage   *largest = NULL;
	dlist_iter	iter;

	dlist_foreach(iter, &large_stages)
	{
		WmsStage   *stage = dlist_container(WmsStage, node, iter.cur);

		if (largest == NULL || stage->memory > largest->memory)
			largest = stage;
	}
	return largest;
}

static void
make_room(Size size, Size limit)
{
	WmsStage   *stage;

	while (stage_memory + size > limit && (stage = largest_stage()) != NULL)
		spill(stage);
}

/* ---------------------------------------------------------------- appending */

static void
add_chunk(WmsStage *stage, Size needed)
{
	Size		limit = (Size) wms_batch_memory * 1024;
	Size		size = Max(stage->chunk_size - MAXALIGN(sizeof(Chunk)), needed);
	Chunk	   *chunk;

	make_room(size, limit);
	chunk = alloc_chunk(MAXALIGN(sizeof(Chunk)) + size);
	chunk->next = NULL;
	chunk->start = stage->end;
	chunk->size = size;
	chunk->used = 0;

	if (stage->last)
		stage->last->next = chunk;
	else
		stage->first = chunk;
	stage->last = chunk;
	stage->memory += size;
	stage_memory += size;
	if (!stage->listed && stage->memory >= Min(SPILL_SIZE, limit / 4))
	{
		dlist_push_tail(&large_stages, &stage->node);
		stage->listed = true;
	}
	/* Few large chunks, but several of them within the memory that we may use. */
	if (stage->chunk_size * 2 <= Min(LAST_CHUNK_SIZE, limit / 8))
		stage->chunk_size *= 2;
}

static void
note_relation(WmsStage *stage, Oid relid)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(stage_context);

	stage->relids = list_append_unique_oid(stage->relids, relid);
	stage->last_relid = relid;
	MemoryContextSwitchTo(oldcontext);
}

bool
wms_stage_has(const WmsStage *stage, Oid relid)
{
	return list_member_oid(stage->relids, relid);
}

WmsRecord *
wms_stage_append(WmsStage *stage, const WmsRowShape *shape, uint32 new_len, uint32 old_len)
{
	Size		size = wms_record_size(new_len, old_len);
	Chunk	   *chunk = stage->last;
	WmsRecord  *record;

	if (shape->relid != stage->last_relid)
		note_relation(stage, shape->relid);

	if (chunk == NULL || chunk->size - chunk->used < size)
	{
		add_chunk(stage, size);
		chunk = stage->last;
	}
	record = (WmsRecord *) (ChunkData(chunk) + chunk->used);
	chunk->used += size;
	stage->end += size;

	record->shape = shape;
	record->new_len = new_len;
	record->old_len = old_len;
	record->kind = 0;
	record->missing_toast = record->old_is_key = record->partial = false;
	return record;
}

/* ---------------------------------------------------------------- reading */

static void
ensure_buffer(WmsStage *stage, Size size)
{
	if (stage->buffer_size >= size)
		return;
	if (stage->buffer)
		pfree(stage->buffer);
	stage->buffer = NULL;
	stage->buffer_size = 0;
	size = Max(size, BUFFER_SIZE);
	stage->buffer = MemoryContextAllocHuge(stage_context, size);
	stage->buffer_size = size;
}

/* What lies at offset, where a record begins, into the buffer: size bytes, and more if there are. */
static void
fill_buffer(WmsStage *stage, uint64 offset, Size size)
{
	stage->buffer_used = 0;
	ensure_buffer(stage, size);
	stage->buffer_from = offset;
	while (stage->buffer_used < size)
	{
		uint64		at = offset + stage->buffer_used;
		Size		wanted = Min(stage->buffer_size - stage->buffer_used, Min(IO_SIZE, stage->file_end - at));
		int			got = FileRead(stage->file, stage->buffer + stage->buffer_used, (int) wanted, (off_t) at, WAIT_EVENT_BUFFILE_READ);

		if (got < 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", FilePathName(stage->file))));
		if (got == 0)
			elog(ERROR, "unexpected end of temporary file of staged rows");
		stage->buffer_used += got;
	}
}

/* Bytes from offset on, valid until the next call. */
static const char *
from_file(WmsStage *stage, uint64 offset, Size size)
{
	if (offset < stage->buffer_from || offset + size > stage->buffer_from + stage->buffer_used)
		fill_buffer(stage, offset, size);
	return stage->buffer + (offset - stage->buffer_from);
}

static const WmsRecord *
read_from_file(WmsStage *stage, uint64 offset)
{
	const WmsRecord *head = (const WmsRecord *) from_file(stage, offset, sizeof(WmsRecord));

	return (const WmsRecord *) from_file(stage, offset, wms_record_size(head->new_len, head->old_len));
}

/* The chunk that holds offset, which is not before file_end. */
static Chunk *
find_chunk(WmsStage *stage, uint64 offset)
{
	Chunk	   *chunk = stage->reading;

	if (chunk == NULL || offset < chunk->start)
		chunk = stage->first;
	while (offset >= chunk->start + chunk->used)
		chunk = chunk->next;
	stage->reading = chunk;
	return chunk;
}

const char *
wms_stage_span(WmsStage *stage, uint64 *offset, uint64 upto)
{
	Chunk	   *chunk;
	const char *span;

	Assert(*offset < upto && upto <= stage->end);
	if (*offset < stage->file_end)
		return NULL;
	chunk = find_chunk(stage, *offset);
	span = ChunkData(chunk) + (*offset - chunk->start);
	*offset = Min(upto, chunk->start + chunk->used);
	return span;
}

const WmsRecord *
wms_stage_read(WmsStage *stage, uint64 *offset)
{
	const WmsRecord *record;

	Assert(*offset < stage->end);
	if (*offset < stage->file_end)
		record = read_from_file(stage, *offset);
	else
	{
		Chunk	   *chunk = find_chunk(stage, *offset);

		record = (const WmsRecord *) (ChunkData(chunk) + (*offset - chunk->start));
	}
	*offset += wms_record_size(record->new_len, record->old_len);
	return record;
}
