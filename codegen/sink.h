/* Writes an output file whole or not at all (sink.c). */
#pragma once

#include "codegen/codegen.h"

struct sink {
    struct context *ctx;
    const char *path;          /* the final name, links resolved */
    int fd;
    void *hash;                /* state of the hash of the weights */
    struct queue *queue;       /* of the thread that writes the weights */
    int why;                   /* errno of the last write of that thread */
    uint64_t written, sent;    /* bytes written; bytes whose write to disk has begun */
    bool ok;                   /* false after a diagnostic */
};

/* Functions of this header return false after a diagnostic. */

/* Calls fill(user, sink), which writes the file's bytes with the functions below, then syncs the file and renames it to
 * `path`. On failure it removes the temporary file. */
bool sink_file(struct context *, struct arena *, const char *path, bool (*fill)(void *user, struct sink *), void *user);
/* The same for a file with these bytes. */
bool sink_bytes(struct context *, struct arena *, const char *path, struct span bytes);
bool sink_put(struct sink *, const void *, size_t size); /* appends */
bool sink_patch(struct sink *, const void *, size_t size, uint64_t at); /* overwrites bytes at offset `at` */
/* Checks --max-output-size for this file and `more` bytes in other files; to call before the file is renamed. */
bool sink_fits(struct sink *, uint64_t more);
bool sink_sync(struct sink *); /* fsync */
/* Appends the weights, on a second thread while the caller packs them. *hash: XXH64 of the bytes, seed 0. */
bool sink_weights(struct sink *, const struct weights_writer *, uint64_t *hash);

const char *path_folder(struct arena *, const char *path); /* the folder of a file */
