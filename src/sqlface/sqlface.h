/*
 * sqlface.h
 *	  What a user calls: check arguments and permission, then one call into the rooms below.
 *
 * sqlface_create.c   create_stream, drop_stream
 * sqlface_control.c  pause, resume, resync, alter_stream, advance_watermark, wait
 * sqlface_queue.c    create_queue, drop_queue, set_trim, row_xid
 * sqlface_views.c    the functions under the statistics views
 * sqlface_read.c     explain, open_windows, live
 * sqlface_options.c  values of options
 * sqlface_query.c    a definition's text as a tree
 * sqlface_star.c     the column of a queue that SELECT * does not show
 * sqlface_stream.c   the stream that a call names, and its owner
 */
#ifndef WMS_SQLFACE_H
#define WMS_SQLFACE_H

/* Everything here is reached through SQL; there are no C callers. */

#endif							/* WMS_SQLFACE_H */
