/* Regular files, whole, into memory. */
#ifndef MCC_FILE_H
#define MCC_FILE_H

#include "ir/base.h"

/* FILE_FAILED: why says it without the path; NULL: there is a diagnostic already (memory). FILE_LARGE: size is above max. */
enum file_status { FILE_OK, FILE_FAILED, FILE_LARGE };
struct file_bytes { const char *data; size_t size; const char *why; };

/* Reads a regular file of at most max bytes into session memory, with a NUL behind it. Never mapped: a mapped file that is
 * cut short kills its reader. Never waits for the writer of a FIFO. */
enum file_status file_whole(struct context *, const char *path, int64_t max, struct file_bytes *out);

#endif
