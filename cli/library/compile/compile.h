/* One compilation: the state that the stages of compile.c hand on, and the pieces around them. */
#pragma once

#include "cli/library/options/options.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "ir/eval/field.h"
#include "passes/module/module.h"
#include "passes/passes.h"

/* Where a compilation's words go. kind: severity of a diagnostic line (SEV_*), or one of these. */
enum { TEXT_DATA = 16 /* for standard output */, TEXT_LOG /* for standard error */ };
struct report {
    void *user;
    void (*put)(void *user, int kind, const char *text, size_t size);
    /* A stage is under way, and `done` of so many of its kernels or functions (of 0: it does not go by them). stage
     * NULL: all of it has ended. NULL: nobody asks. */
    void (*step)(void *user, const char *stage, uint32_t done, uint32_t of);
};

/* What a stage took; start: of the monotonic clock. */
struct stage_cost {
    double start, ms;
    int64_t heap;
    bool ran;
};

/* What became of a kernel in the field (mcc prove). */
struct lowered_kernel {
    const char *kernel; /* its function */
    const char *loops; /* its text before */
    struct field_facts facts;
};
struct variant; /* cli/library/options/targets.h */
struct compilation {
    struct context *ctx;
    const struct options *options;
    struct report report;
    const char *output; /* path, or NULL: nothing is written */
    const char *last; /* stage; NULL: all of them, to an output */
    bool check; /* only the answer is wanted whether the network can be compiled */
    const char *expected; /* of verify: the BLAKE3 that the network has, or it is another one; NULL: any */
    const struct text_list *proof; /* what its note says of one; NULL: there was none */
    struct product_probe *probe; /* what legalize tells of products, and computes for that; NULL: nobody asks */
    bool in_field; /* of prove: kernels compute in GF(q) x GF(p), and so does the graph when the loops are there */
    struct field_constants constants; /* of graphs that compute there */
    VEC(struct lowered_kernel) lowered;
    uint32_t mutated; /* tests: unit + 1 whose code is wrong on purpose (--mutate, outside of the field); 0: none */
    const char *meant; /* its right text */
    uint32_t marks; /* bytes from FIELD_MARKS on that these write to */
    VEC(const char *) suffixes; /* of functions' names, by variant */
    struct file_list files; /* what was read */
    struct input_spec *inputs;
    uint32_t n_inputs;
    struct graph *graph; /* imported, then legal */
    struct graph *imported; /* from import on */
    struct module *module; /* what the passes work on (passes/module/module.h) */
    const struct machine *machine; /* in place of every CPU's (tests); NULL: not */
    VEC(struct variant *) targets; /* CPUs that code is for, from schedule on */
    VEC(struct codegen_unit) units; /* functions of all variants, from emit on */
    struct codegen *codegen; /* under way for the first n_given of them; NULL: not begun */
    uint32_t n_given;
    uint32_t n_emitted; /* kernels, of all variants */
    uint32_t debug_lines; /* of the units' texts so far, for -g */
    const struct variant *base; /* the program is for all targets, compiled for this one; NULL: each has its own */
    VEC(struct kernel *) levels; /* kernels by target */
    VEC(struct art_kernel) kernel_rows;
    uint32_t first_rows; /* of these that belong to the first variant */
    VEC(struct art_variant) variants;
    uint32_t n_rows; /* launches that name a row of each variant */
    bool recalls; /* it may take functions of an equal compilation from the cache (recall.c) */
    bool recalled; /* it did: nothing was scheduled and emitted */
    struct span key, record; /* of that; empty: not known */
    struct diag_mark recall_mark; /* before schedule */
    struct digest *digest; /* of the first n_digested of `files` as they were read; NULL: none */
    uint32_t n_digested;
    int64_t scratch; /* bytes per thread */
    uint64_t printed; /* hash of the last stage's text, for -print-changed */
    int64_t constants_in; /* bytes of the file's constants */
    struct stage_cost *costs; /* by stage, from the first one on */
};

/* ---- pipeline.c: the rows of passes/module/passes.def ---------------------------------------------------------- */

typedef bool stage_fn(struct compilation *);
struct stage {
    const char *name;
    uint32_t needs, makes; /* facts of the module */
    stage_fn *run;
    bool (*pass)(struct module *); /* one of the two */
    bool (*when)(const struct module *); /* left out where false; NULL: never */
    void (*print)(const struct compilation *, struct strbuf *);
    stage_fn *verify;
    bool always; /* verified without -verify-each */
};
extern const struct stage stage_table[];
extern const uint32_t stage_count;
const struct stage *stage_find(const char *name); /* NULL: there is none */
/* Do -stop-after and -print-after name stages? False after a usage error. */
bool stages_known(struct context *, const struct options *);

/* Tells who asks what the compilation is at, as report.step; not with -q and -v. */
void report_step(const struct compilation *, const char *stage, uint32_t done, uint32_t of);
/* Runs one stage on a compilation whose module has what the stage needs, and verifies, times and prints it as the
 * options say. False after a diagnostic. */
bool stage_run(struct compilation *, const struct stage *, struct stage_cost *);
/* Runs the stages from `first` (NULL: import) up to and including c->last (NULL: the last one), or -stop-after. The
 * module is there (module_begin). False after a diagnostic. */
bool stages_run(struct compilation *, const char *first);
/* A module for the options, with c->graph where there is one. False after a diagnostic (--choose). (backend.c) */
bool module_begin(struct compilation *);
/* Writes OUTPUT.json for -ftime-trace (trace.c). */
bool trace_write(struct compilation *);

/* ---- compile.c --------------------------------------------------------------------------------------------------- */

/* Runs the stages on `model` up to and including `last` (NULL: all). Returns the class of the failure, FAIL_NONE when
 * done; the diagnostics have been reported. sets ctx->unwind. */
enum fail compile_model(struct context *, const struct options *, const char *model, const char *last, struct report);
/* Whether compile_model would do the whole way: up to the last stage that can refuse the network. */
enum fail compile_check(struct context *, const struct options *, const char *model, struct report);
/* The same for a compilation whose ctx, options and report are set, and whose graph and module stay with the caller. */
enum fail compile_keep(struct compilation *, const char *model, const char *last);
/* The same up to the legal graph, which stays with the caller (eval); NULL after diagnostics were reported. */
struct graph *compile_graph(struct context *, const struct options *, const char *model, struct report);
/* Reports the diagnostics that were recorded since the last call, as --quiet and -fdiagnostics-format say
 * (diagnose.c). */
void report_diagnostics(struct context *, struct report, const struct options *);

/* ---- spec.c ------------------------------------------------------------------------------------------------ */

/* 'x:f32[batch=1..64,3,?,2*n]': name, optional element type, optional dims: a number, a name, a name with its range
 * (and divisor: h=32..1024%32), an expression, or ? (as the file says). Later specs of a name replace earlier ones.
 * False after a usage diagnostic; *n is then the index of the text that is wrong. */
bool input_specs_parse(struct context *, const struct text_list *, struct input_spec **out, uint32_t *n);

/* ---- choices.c ----------------------------------------------------------------------------------------------- */

/* Reads --choose into the module; false after a usage diagnostic. */
bool choices_read(struct compilation *);
/* After schedule: warns of those that no kernel asked for. */
void choices_check(struct compilation *);

/* ---- text_file.c ------------------------------------------------------------------------------------------- */

/* All bytes of a regular file and a final NUL, into the session. `what` it is, for messages. False after a
 * diagnostic: FAIL_ENV, or FAIL_MODEL when it has more than `most` bytes. */
bool text_file_read(struct context *, const char *path, const char *what, size_t most, struct span *out);

/* ---- output.c ------------------------------------------------------------------------------------------------ */

/* The output's path when none is given: the model's file name, in the working directory, with its own suffix. */
const char *output_default(struct context *, const struct options *, const char *model);
/* What the output is: by its suffix .a or .o, else an object with -c, a shared object without. */
enum output_kind output_kind(const struct options *, const char *path);
/* The weights file beside `path` when --weights=sidecar asks for one, else NULL. */
const char *output_sidecar(struct context *, const struct options *, const char *path);
/* `path` with its suffix (the part after the last dot of the file name) replaced. */
const char *output_beside(struct context *, const char *path, const char *suffix);
/* Whether a file can be made at `path`: its folder is writable, the path is not a folder or device. FAIL_ENV if not. */
/* Is it a name for what mcc makes? */
bool output_name_check(struct context *, const struct options *, const char *path);
bool output_check(struct context *, const char *path);
/* Refuses (FAIL_USAGE) an output that is one of the files read, by whatever name. */
bool output_differs(struct context *, const char *path, const struct file_list *, const char *config);
/* Writes size bytes to path, whole or not at all: temporary file beside it, fsync, rename. */
bool output_write(struct context *, const char *path, const char *data, size_t size);
/* The same for a file that comes with the output (-MF, -ftime-trace, ...): FAIL_USAGE where it would replace the output
 * or one of the files read. */
bool side_write(struct compilation *, const char *path, const char *data, size_t size);
/* The make rule of -MD, -MF, -MP. */
bool depend_write(struct compilation *, const char *output);

/* ---- stats.c -------------------------------------------------------------------------------------------------- */

/* Operators of an imported or legal graph with their counts, one a line, most frequent first. */
void stats_census(const struct graph *, const char *title, struct strbuf *);
/* One line for every node of the file: the kernels that compute it, or why there is none (census.c). */
void stats_fates(const struct compilation *, struct strbuf *out);
/* Bytes of all constants of an imported graph: initializers and tensors in attributes. */
int64_t stats_constants(const struct graph *);
/* The stage `sizes`: compares the constants that will be written with those that were read; warns above 1.5 times and
 * fails (FAIL_LIMIT) above --max-constant-growth, naming what grew most. With --stats the comparison and the fates of
 * all nodes are printed. */
bool run_sizes(struct compilation *);
void print_sizes(const struct compilation *, struct strbuf *);
