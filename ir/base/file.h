/* Regular files, whole, into memory; descriptors; a thread that helps with them. */
#pragma once

#include <pthread.h>

#include "ir/base/base.h"

/* FILE_FAILED: why says it without the path; NULL: there is a diagnostic already (memory). FILE_LARGE: size is above
 * max. */
enum file_status { FILE_OK, FILE_FAILED, FILE_LARGE };
struct file_bytes {
    const char *data;
    size_t size;
    const char *why;
};

/* Reads a regular file of at most max bytes into session memory, with a NUL after it. Never mapped: a mapped file that
 * is cut short kills its reader. Never waits for the writer of a FIFO. */
enum file_status file_whole(struct context *, const char *path, int64_t max, struct file_bytes *out);

/* The first n bytes of a regular file. False: not that many, or not readable. */
bool file_head(const char *path, void *out, size_t n);

/* A thread of ours beside the one that calls: it takes no signals, so handlers run where they always did. False: there
 * is none, and the caller does the work. */
bool thread_begin(pthread_t *, void *(*run)(void *user), void *user);

/* What follows the last slash of a path; the path's suffix is this one, and not all of it. */
const char *path_name(const char *path);
bool path_ends(const char *path, const char *suffix);
/* `name` in the folder of `path`. */
const char *path_beside(struct arena *, const char *path, const char *name);

/* Where temporary files go: TMPDIR, else /tmp. */
const char *temp_folder(void);

/* All bytes to or from a descriptor, through short transfers and interruptions; fd_pread from offset. False: it ended
 * early or failed. */
bool fd_write(int fd, const void *data, size_t size);
bool fd_read(int fd, void *data, size_t size);
bool fd_pread(int fd, void *data, size_t size, uint64_t offset);
