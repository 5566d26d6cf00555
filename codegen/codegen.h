/* Loop IR -> objects -> artifact. Only this folder calls LLVM, and only in worker processes.
 *
 * The compiler's own process never runs LLVM code: codegen_begin() starts `self --worker` (posix_spawn of the running
 * binary), sends each function's text over a pipe and reads objects back.
 */
#pragma once

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
    bool by_row; /* a kernel that is launched only by rows of the artifact's table, which may hold its constants */
    const char *origin; /* for line tables: "file:line" in the model's source; NULL: unknown */
    struct span object; /* result, in the arena of codegen_begin */
    const struct codegen_unit *same; /* result: an earlier unit with the same code under another name; NULL: none */
    struct span data; /* result: words in the row that the code reads instead of constants */
    uint64_t frame; /* result for a static network: bytes of stack that the function uses */
    double began, ended; /* milliseconds of the monotonic clock; 0: compiled with an earlier unit, or from the cache */
    uint32_t worker; /* number of the worker that compiled it */
};
struct codegen_options {
    const char *self; /* path of the mcc binary for workers */
    uint32_t jobs;
    int opt_level; /* 0..3 */
    enum emit_kind emit;
    bool is_static; /* the functions belong to a static network: no runtime, symbols without suffixes */
    int64_t worker_memory; /* RLIMIT_AS of a worker in bytes; 0: none */
    const char *cache; /* folder of the cache (cache.h); NULL: none */
    int64_t cache_bytes; /* largest size of the cache */
    bool verbose;
    bool require_sandbox, no_sandbox_warning; /* if workers have no sandbox: fail, or do not even warn; default: warn */
    const char *debug_file, *debug_folder; /* line tables name this file, which contains the units' texts; NULL: none */
    void (*made)(const void *user, uint32_t done, uint32_t of); /* called when a function is compiled; or NULL */
    const void *user;
};
/* Compilation in steps, so that workers compile while the caller emits further units. The caller adds units in lots,
 * and keeps their texts in memory until codegen_end. It must call codegen_end after codegen_begin in any case. */
struct codegen;
struct codegen *codegen_begin(struct context *, struct arena *, const struct codegen_options *);
void codegen_warm(struct codegen *); /* starts a worker, which the link needs in any case */
/* Starts to compile a unit before its lot is added. The result is used if a later lot has a unit with the same code. */
void codegen_ahead(struct codegen *, const struct codegen_unit *);
void codegen_add(struct codegen *, const struct codegen_unit *, uint32_t n); /* adds a lot of n units */
/* Sends and receives as much as possible without waiting; false after a diagnostic. */
bool codegen_step(struct codegen *);
/* Fills the object of every unit of all lots. False after a diagnostic: worker missing (FAIL_ENV), killed or aborted
 * (FAIL_INTERNAL, with a replay file named), out of memory (FAIL_LIMIT). Order and bytes do not depend on jobs. */
bool codegen_finish(struct codegen *, struct codegen_unit *);
void codegen_end(struct codegen *); /* ends the workers, also in the middle of a job */
/* What codegen_remember stored in the cache under this key, in the arena of codegen_begin; false: nothing. The key must
 * say all that the record depends on, except the worker's build. */
bool codegen_recall(struct codegen *, struct span key, struct span *record);
void codegen_remember(struct codegen *, struct span key, struct span record);
/* Cache hits and cache lookups so far. */
void codegen_cached(const struct codegen *, uint32_t *found, uint32_t *asked);

/* Sets the function to call if operator new or LLVM's allocator fails in this process. It must not return. */
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
    const uint32_t *rows; /* by row of the table: index of the kernel that this variant launches, or ART_NO_KERNEL */
};
#define ART_NO_KERNEL UINT32_MAX
/* One row per kernel symbol that programs launch; name is that symbol. LAUNCH finds its row by the symbol
 * NAME.index, or by a row of its variant. */
struct art_kernel {
    const char *name;
    uint32_t node, arithmetic; /* as mcc_rt_kernel's */
    uint64_t flops, bytes;
    int64_t ns; /* estimated time of one parallel index */
    uint32_t unit; /* index of the unit with its code */
    bool version; /* it is the second version of another kernel, for some sizes */
};
/* write() passes all bytes of the weights in order to put(); false after a diagnostic, or if put() failed. A buffer of
 * more than QUEUE_COPY bytes (queue.h) must stay unchanged until the next call of put() with so many bytes returns, or
 * a call with 0 bytes. */
struct weights_writer {
    uint64_t size, padding; /* padding: bytes of size that hold no element */
    void *user;
    bool (*write)(void *user, bool (*put)(void *sink, const void *, size_t), void *sink);
    const char *sidecar; /* path of the separate file for the weights; NULL: the artifact contains them */
    struct span entries; /* sidecar: ,"NAME":{...} for every tensor, for the head of the safetensors file (sidecar.c) */
};

struct artifact {
    const char *name, *compiler, *target_text, *features;
    struct span meta; /* as mcc_api.meta, with the empty key at its end; none: NULL, 0 */
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
    struct span graph; /* shared objects: contents of section .mcc.graph, which is not loaded; none: NULL, 0 */
    struct span build; /* contents of section .mcc.build, which is not loaded: options, each ends in a NUL */
    const char *prefix; /* of the symbol mcc_query; "" by default */
};
enum output_kind { OUTPUT_SHARED, OUTPUT_OBJECT, OUTPUT_ARCHIVE };
/* Links the units after codegen_finish, and writes `path` atomically (temporary file in the same folder, fsync,
 * rename). false after a diagnostic. */
bool codegen_link(struct codegen *, const struct artifact *, enum output_kind, const char *path);

/* A static network: its functions, one C function that calls them, and the weights as constant data. */
struct static_network {
    const struct codegen_unit *units;
    uint32_t n_units;
    const char *entry, *weights_symbol;
    struct weights_writer weights;
    /* WebAssembly only. */
    const char *plan; /* symbol of a second exported function */
    uint64_t stack; /* bytes */
    struct span description; /* of the module, for its host */
    bool workers; /* the host supplies shared memory and the function that launches kernels */
};
/* Writes it to `path` atomically, in the format of the units' platform, as an archive. false after a diagnostic. */
bool codegen_static(struct codegen *, const struct static_network *, const char *path);

/* The worker's main loop (mcc --worker): jobs on stdin, results on stdout; exit status for main. */
int codegen_worker(void);
