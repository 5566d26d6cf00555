/* Results of workers kept on disk: a function that was compiled before, for whatever network, is read, not compiled
 * again.
 *
 * A folder of files, one for each job, named by a hash of the job's bytes: the worker's build, target, level and text.
 * The file holds the job itself too, which must agree byte for byte, so a hash that collides, or a file that was
 * renamed, is a miss, never another module's code. Files appear whole (rename) and are checked when read, by a hash
 * over all of them with a key that the folder has ("key", for its owner alone): so any number of processes share a
 * folder, and what is damaged, or was made elsewhere, is compiled again. A folder in which others may write, or that is
 * theirs, is not used, which is a warning. Nothing here fails a compilation, or waits: a folder that cannot be read or
 * written is none. The files are listed only when the sum of their sizes, which is kept beside them, passes the limit.
 */
#pragma once

#include "ir/base/base.h"

struct cache;

/* folder: made if its parent is there, for this user alone. worker: path of the program whose products these are; one
 * without a build id (ELF note) has no cache. limit: bytes of all files. NULL: no cache. */
struct cache *cache_open(struct context *, struct arena *, const char *folder, const char *worker, int64_t limit);
/* The result of a job, into the arena; false: none. A cache of NULL has none. */
bool cache_get(struct cache *, struct span job, struct span *result);
void cache_put(struct cache *, struct span job, struct span result);
/* The same for what is made of all functions of a network. These entries have names of their own, and cache_counts
 * leaves them out. */
bool cache_get_whole(struct cache *, struct span key, struct span *result);
void cache_put_whole(struct cache *, struct span key, struct span result);
/* After the last job: removes the files that were not used longest where all are more than the limit. */
void cache_close(struct cache *);
/* How many results were found, and how many were asked for. */
void cache_counts(const struct cache *, uint32_t *found, uint32_t *asked);
