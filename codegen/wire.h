/* What travels between mcc and its workers: frames over one socket, lengths first, parts after.
 *
 *   parent -> worker   struct wire_job, then n_parts times {uint64_t size, bytes}
 *   worker -> parent   struct wire_result, then size bytes: the product, or a text when status is not WIRE_OK. The
 * product of WIRE_COMPILE: {uint64_t size, bytes} for each function
 *
 * Both ends are the same binary on the same machine, so fields have the machine's layout. A stored job replays:
 * `mcc --worker <FILE >/dev/null`.
 */
#pragma once

#include "codegen/codegen.h"

enum { WIRE_MAGIC = 0x6a63636d, WIRE_PARTS_MAX = 1 << 20 };
enum wire_kind { WIRE_COMPILE = 1, WIRE_LINK = 2 };
enum wire_status { WIRE_OK, WIRE_REFUSED, WIRE_NO_MEMORY, WIRE_ENVIRONMENT, WIRE_FATAL, WIRE_UNCONFINED };

/* Parts of WIRE_COMPILE: triple, CPU, features; for line tables the name and the folder of the file of texts, the line
 * (uint32_t) of each function in it, and where each comes from ("file:line" or "", ended by a NUL), else empty; then
 * symbol and text of each function. Of WIRE_LINK: the linker's name and options, each ended by a NUL; then files, which
 * the options that end in % take in this order. */
enum {
    COMPILE_TRIPLE,
    COMPILE_CPU,
    COMPILE_FEATURES,
    COMPILE_FILE,
    COMPILE_FOLDER,
    COMPILE_LINES,
    COMPILE_ORIGINS,
    COMPILE_FUNCTIONS
};
enum { LINK_OPTIONS, LINK_FILES };

struct wire_job {
    uint32_t magic, kind;
    int32_t opt_level, emit;
    int64_t memory; /* RLIMIT_AS for the worker; 0: none */
    int64_t seconds; /* RLIMIT_CPU for the worker; 0: none */
    uint64_t confine; /* 1: WIRE_UNCONFINED, and no work, where there is no sandbox */
    uint64_t is_static; /* functions of a static network */
    uint64_t n_parts;
};
struct wire_result {
    uint32_t magic, status;
    uint64_t confined; /* 1: the worker is in its sandbox */
    uint64_t size;
};

/* One job and what came of it. */
struct job {
    struct wire_job head;
    const struct span *parts;
    const char *what; /* for messages: "kernel 'k7_conv1'" */
    uint64_t length; /* of its parts */
    bool given; /* to a worker */
    struct span result; /* arena-owned */
    double began, ended; /* milliseconds of the monotonic clock */
    uint32_t worker;
};
/* Up to options->jobs workers, started as there are jobs for them (spawn.c). Jobs are numbered as they are added; only
 * head.kind, opt_level, emit, is_static, n_parts, parts and what are read. A pool that was warmed or stepped must be
 * ended. */
typedef void job_done(void *user, uint32_t number, const struct job *); /* it went well: the result is there */
struct pool *pool_new(struct context *, struct arena *, const struct codegen_options *, job_done *, void *user);
void pool_add(struct pool *, const struct job *, uint32_t n);
bool pool_step(struct pool *); /* hands out and takes back without waiting; false after a diagnostic */
void pool_warm(struct pool *); /* starts the first worker, for jobs to come */
bool pool_wait(struct pool *); /* for all jobs; false after a diagnostic: some results are empty, no worker is left */
/* No more than so many workers get jobs from now on. The others end while this process goes on; all rest. */
void pool_dismiss(struct pool *, uint32_t keep);
void pool_end(struct pool *); /* ends workers, whatever they do */
const struct job *pool_job(const struct pool *, uint32_t);
struct span job_bytes(struct arena *, const struct job *); /* as they are sent */
/* One more job, when all functions are done (objects.c): its result, which lives as long as they. No other follows. */
struct context *codegen_context(const struct codegen *);
bool codegen_last(struct codegen *, const struct job *, struct span *result);
