/* Writing an output file whole or not at all (sink.c). */
#ifndef MCC_CODEGEN_SINK_H
#define MCC_CODEGEN_SINK_H

#include "codegen/codegen.h"

struct sink {
    struct context *ctx;
    const char *path;          /* the final name, links resolved */
    int fd;
    void *hash;                /* state while weights pass */
    struct queue *queue;       /* through which they pass */
    int why;                   /* errno of what the queue's thread wrote last */
    uint64_t written, sent;    /* bytes; those of them that are on their way to the disk */
    bool ok;                   /* false after a diagnostic */
};

/* Calls fill(user, sink), which writes the file's bytes through the functions below and returns false after a
 * diagnostic; then the file is synced and takes the name `path`. Nothing is left behind on failure. */
bool sink_file(struct context *, struct arena *, const char *path, bool (*fill)(void *user, struct sink *), void *user);
/* The same for bytes that are there already. */
bool sink_bytes(struct context *, struct arena *, const char *path, struct span bytes);
bool sink_put(struct sink *, const void *, size_t size);                    /* appends */
bool sink_patch(struct sink *, const void *, size_t size, uint64_t at);     /* overwrites what was written */
/* Whether what was written and `more` bytes in other files are within --max-output-size: asked before the file gets its
 * name. */
bool sink_fits(struct sink *, uint64_t more);
bool sink_sync(struct sink *); /* on the disk, as far as disks tell */
/* Appends the weights, from a thread of its own while they are packed; *hash: XXH64 of them, seed 0. */
bool sink_weights(struct sink *, const struct weights_writer *, uint64_t *hash);

const char *path_folder(struct arena *, const char *path); /* the folder that it is in */

#endif
