/* Loop IR -> objects -> artifact. The only folder that sees LLVM, and only inside worker processes.
 *
 * The compiler's own process never loads LLVM code paths: codegen_begin() starts `self --worker` (posix_spawn, the
 * running binary by its own path), sends each function's text over a pipe and reads objects back.
 */
#ifndef MCC_CODEGEN_H
#define MCC_CODEGEN_H

#include "ir/loop/loop.h"
#include "runtime/mcc.h"

struct target {
    const char *triple;       /* LLVM's, of ir/target/platform.def */
    const char *cpu;          /* LLVM's CPU name: "x86-64-v4" */
    const char *features;     /* LLVM's feature string or "" */
};

enum emit_kind { EMIT_OBJECT, EMIT_ASSEMBLY, EMIT_LLVM };
struct codegen_unit {         /* one function: a kernel, program or plan for one target */
    const struct target *target;
    const char *symbol;       /* linker name of the function */
    const char *text;         /* loop IR */
    uint32_t line;            /* its first line in options.debug_file */
    bool by_row; /* a kernel that only rows of the artifact's table launch: its constants may lie there */
    const char *origin; /* for line tables: "file:line" of the model's source that it comes from; NULL: none */
    struct span object; /* result, arena-owned */
    const struct codegen_unit *same; /* result: an earlier unit, whose code this is under another name; NULL: its own */
    struct span data; /* result: words that the code reads in place of constants, from the row */
    uint64_t frame; /* result, of a static network: bytes of stack that the function takes */
    double began, ended; /* milliseconds of the monotonic clock; 0: made with an earlier unit, or not now */
    uint32_t worker; /* which one made it */
};
struct codegen_options {
    const char *self; /* path of the mcc binary for workers */
    uint32_t jobs;
    int opt_level; /* 0..3 */
    enum emit_kind emit;
    bool is_static; /* the functions are a static network's: without a runtime, under their own names */
    int64_t worker_memory; /* RLIMIT_AS of a worker; 0 = none */
    const char *cache; /* folder of earlier results (cache.h); NULL: none */
    int64_t cache_bytes; /* that it may hold */
    bool verbose;
    bool require_sandbox,
        no_sandbox_warning; /* where workers have no sandbox: an error instead of a warning; nothing */
    const char *debug_file, *debug_folder; /* line tables name this file, which holds the units' texts; NULL: none */
    void (*made)(const void *user, uint32_t done, uint32_t of); /* told of functions as they are done; NULL: nobody */
    const void *user;
};
/* Compilation in steps, so that workers begin while further units are made. Units are given in lots, texts stay where
 * they are; codegen_step() waits for nothing. A unit may be given ahead: it is compiled, and has a use where a later
 * lot has one with its code. What was begun is ended, in any case. */
struct codegen;
struct codegen *codegen_begin(struct context *, struct arena *, const struct codegen_options *);
void codegen_warm(struct codegen *); /* a worker starts, which the link needs in any case */
void codegen_ahead(struct codegen *, const struct codegen_unit *);
void codegen_add(struct codegen *, const struct codegen_unit *, uint32_t n); /* those after what was added before */
bool codegen_step(struct codegen *); /* false after a diagnostic */
/* Fills the object of every unit of all lots. False after a diagnostic: worker missing (FAIL_ENV), killed or aborted
 * (FAIL_INTERNAL, with a replay file named), out of memory (FAIL_LIMIT). Order and bytes do not depend on jobs. */
bool codegen_finish(struct codegen *, struct codegen_unit *);
void codegen_end(struct codegen *); /* ends the workers, whatever they do */
/* Of the functions so far: how many came from the cache, and how many were looked for there. */
void codegen_cached(const struct codegen *, uint32_t *found, uint32_t *asked);

/* What to do when operator new or LLVM's allocator fails, in this process; does not return. */
void lld_on_no_memory(void (*handler)(void));

/* ---- the artifact: table + runtime + objects + weights -------------------------------------------------------- */

struct art_port {
    const char *name;
    enum elem elem;
    int32_t rank;
    const mcc_dim *dims;
    uint64_t flags, alias; /* mcc_port's */
};
struct art_state {
    struct span initial;
    const int64_t *dims;
};
struct art_symbol {
    const char *name;
    int64_t min, max, step;
};
struct art_variant {
    const struct target *target;
    const char *name;
    uint64_t features;
    const char *program; /* symbol */
    const uint32_t *rows; /* of a program that serves several: the kernel that it launches in each; ART_NO_KERNEL */
};
#define ART_NO_KERNEL UINT32_MAX
/* One row per kernel symbol that programs launch; name is that symbol. LAUNCH finds its row by the symbol
 * NAME.index, or by a row of its variant. */
struct art_kernel {
    const char *name;
    uint32_t node, arithmetic; /* as mcc_rt_kernel's */
    uint64_t flops, bytes;
    int64_t ns; /* estimated per index */
    uint32_t unit; /* its code */
    bool version; /* runs in the place of another one at some sizes */
};
/* Writes the weights' bytes in order through put(); false after a diagnostic, or where put() failed. put() may keep
 * more than QUEUE_COPY bytes (queue.h) where they are until it is given as much again, or none, which says that all
 * buffers may go. */
struct weights_writer {
    uint64_t size, padding; /* padding: bytes of size that hold no element */
    void *user;
    bool (*write)(void *user, bool (*put)(void *sink, const void *, size_t), void *sink);
    const char *sidecar; /* path of the file that takes the weights; NULL: they lie in the artifact */
    struct span entries; /* sidecar: ,"NAME":{...} for every tensor, as safetensors' head has them (sidecar.c) */
};

struct artifact {
    const char *name, *compiler, *target_text, *features;
    struct span meta; /* as mcc_api.meta, the empty key at its end included; none: NULL, 0 */
    const struct art_port *in, *out;
    uint32_t n_in, n_out;
    const struct art_state *states; /* the last n_state of the ports on either side */
    uint32_t n_state;
    const struct art_symbol *sym;
    uint32_t n_sym;
    const mcc_node *node;
    uint32_t n_node;
    const struct art_variant *variants;
    uint32_t n_variants;
    uint32_t n_rows; /* of each variant */
    const struct art_kernel *kernels;
    uint32_t n_kernels;
    const char *plan; /* symbol of the plan function */
    uint32_t n_in_dims, n_out_dims;
    int64_t scratch_bytes;
    struct weights_writer weights;
    const struct codegen_unit *units;
    uint32_t n_units;
    struct span graph; /* of a shared object, as section .mcc.graph, which is not loaded; none: NULL, 0 */
    struct span build; /* how it was made, texts that end in a NUL: section .mcc.build, which is not loaded */
    const char *prefix; /* of mcc_query; "" by default */
};
enum output_kind { OUTPUT_SHARED, OUTPUT_OBJECT, OUTPUT_ARCHIVE };
/* Links the units, which are finished, and writes `path` atomically (temporary in the same folder, fsync, rename). */
bool codegen_link(struct codegen *, const struct artifact *, enum output_kind, const char *path);

/* A static network: the functions alone, one C function above them, the weights as constant data. */
struct static_network {
    const struct codegen_unit *units;
    uint32_t n_units;
    const char *entry, *weights_symbol;
    struct weights_writer weights;
    /* Of WebAssembly: another function for outside, bytes of stack, and what the module says of itself. */
    const char *plan;
    uint64_t stack;
    struct span description;
    bool workers; /* memory is shared and comes from outside, as does what launches kernels */
};
/* Writes it to `path` atomically, as the container of the units' platform has it: an archive. */
bool codegen_static(struct codegen *, const struct static_network *, const char *path);

/* The worker's main loop (mcc --worker): jobs on stdin, results on stdout; exit status for main. */
int codegen_worker(void);

#endif
