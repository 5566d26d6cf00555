/* From the legal graph to kernels: what fuse, layout, plan and the emitters share.
 *
 * A *kernel* stores one or more values. Everything that it needs and that is not *stored* by another kernel is
 * computed inside it: views and maps become expressions over index expressions (emit.c), a reduction becomes a
 * loop at the depth of the symbols that its index mentions. So fusion is only the decision which values are
 * stored; nothing after it looks for patterns.
 */
#ifndef MCC_PASSES_KERNEL_H
#define MCC_PASSES_KERNEL_H

#include "ir/build/build.h"
#include "ir/graph/probe.h"
#include "ir/loop/loop.h"
#include "ir/target/target.h"

/* Channels that lie together in feature maps (NC16c) and in panels of weights ([N/16][K][16]), on every machine, so
 * that the variants of an artifact share them. */
enum { CHANNEL_BLOCK = 16, MIN_BLOCKED = 8 /* so many at least */ };

/* Where index i of one dim lies: i * outer, or (i div block) * outer + (i mod block) * inner. Elements. */
struct dim_layout {
    int64_t block; /* 0: not split */
    expr_id outer;
    int64_t inner;
};
enum place { PLACE_NONE, PLACE_INPUT, PLACE_OUTPUT, PLACE_ARENA, PLACE_WEIGHTS, PLACE_SEGMENT };
struct storage {
    enum place place;
    uint32_t port; /* PLACE_INPUT, PLACE_OUTPUT */
    uint32_t buffer; /* PLACE_ARENA: index into module.plan.buffers; PLACE_WEIGHTS: into module.plan.weights */
    int32_t rank;
    struct dim_layout *dim;
    expr_id origin; /* element offset of index 0, ..., 0 (halo, placement inside another buffer) */
    expr_id size; /* elements, halo and padding included */
    int64_t *halo; /* rank lower, then rank upper widths; NULL: none */
};

enum kernel_kind {
    KERNEL_MAP, /* stored values over their own points; inner reductions inline */
    KERNEL_REDUCE, /* anchor: reduce, window, argreduce, or dot/conv without a micro-kernel */
    KERNEL_CONTRACT, /* anchor: dot or conv by register tiles */
    KERNEL_SCAN, /* cumulate */
    KERNEL_SCATTER,
    KERNEL_OPAQUE, /* a call of the runtime, from the program */
    KERNEL_CONTROL, /* if, loop, assert: code in the program */
    KERNEL_HALO /* zeros around a stored value */
};
typedef VEC(node_id) node_list;
/* A value that several stages of one row want and that is dear to compute: stored over its dims in `inner`, in scratch
 * or, if their extent is dynamic or the row long, in the row of the kernel's result. */
struct row_local {
    value_id value;
    uint32_t inner;
    bool in_result;
};
/* One of the three: a value's memory, a dynamic size that the program computes, or the kernel's shared_bytes. start:
 * elements of the value before the place that is passed; {0}: none. */
struct karg {
    value_id value;
    expr_id size;
    bool shared;
    expr_id start;
};
static inline bool karg_same(const struct karg *a, const struct karg *b)
{
    return a->value.i == b->value.i && a->size.i == b->size.i && a->start.i == b->start.i && a->shared == b->shared;
}
/* How a kernel's anchor is computed, as far as storages, halos and constants depend on it: decided for all CPUs alike,
 * by fuse and the layouts. A schedule's kind follows from it (passes/schedule/schedule.h), and its text says what is
 * staged. */
struct kernel_form {
    value_id staged; /* the anchor's first operand, computed inside: for a chunk of points at a time, or where a
                      * Winograd kernel's tiles read it; {0}: none */
    node_id product; /* a convolution of one tap that staged is made of by maps, computed inside as well; {0}: staged is
                      * made of stored values */
    uint32_t winograd; /* a convolution by F(m x m, 3 x 3): m; 0: not (passes/module/winograd.h) */
    const struct attention
        *attention; /* what lies before the anchor is computed inside too (passes/module/attention.h); NULL: not */
};
/* Values of a shape symbol, at least 1. */
struct size_range {
    sym_id size; /* {0}: none */
    int64_t least, most;
};
/* 64-bit words that are 0 when a launch begins, for mcc_rt_arrive. */
enum { SHARED_COUNTERS = 8 };
struct kernel {
    enum kernel_kind kind;
    node_id anchor; /* {0}: none (KERNEL_MAP) */
    VEC(value_id)
    outs; /* values stored; a second one: partial results of a depthwise convolution's rows, or another reduction
             of the anchor's operand (layout/fuse_partials.c) */
    value_id domain; /* whose points the kernel runs over: outs[0], or one operand of it */
    uint32_t piece; /* k + 1: stores operand k (= domain) of the concat outs[0] in its place; 0: the whole */
    uint32_t shares; /* k + 1: what it stores may lie in the memory of input k. Then a scatter changes the rows that it
                      * scatters, and a concat's first piece nothing (layout/share_ports.c) */
    bool in_place; /* what it stores lies where an operand does, of which it reads each element at that point alone */
    node_list path; /* invertible views from the anchor's result to domain */
    node_list nodes; /* all nodes computed inside, any order */
    uint32_t row_mask; /* dims of domain that inner reductions depend on; meaningful when has_rows */
    bool has_rows;
    VEC(struct row_local) locals; /* values kept for the length of a row */
    struct kernel_form form;
    region_id region;
    uint32_t order; /* position in the region after scheduling */
    /* after emission */
    struct kernel_version {
        struct kernel *of; /* the kernel as it runs where the size is within the range; NULL: as everywhere */
        struct size_range range;
        sym_id as; /* what stands for the size in it; {0}: the range is one number */
    } version;
    const char *name;
    const char *text;
    VEC(struct karg) args;
    expr_id count; /* parallel indices */
    int64_t ns; /* estimated per index */
    uint64_t flops, bytes;
    enum products arithmetic; /* of the flops */
    int64_t local_bytes;
    uint32_t row; /* of the artifact's table */
    bool keeps_scratch; /* a parallel index asks what the thread's previous one left (mcc_rt_kept) */
    int64_t shared_bytes; /* memory that its parallel indices share during a launch, SHARED_COUNTERS in front of it */
};

struct extent_given {
    const char *symbol; /* its name */
    int64_t value;
};
struct buffer {
    value_id value;
    expr_id bytes, offset;
    uint32_t first, last, slot;
    bool segment;
};
struct weight {
    value_id value; /* its storage is the memory's layout */
    uint64_t offset, bytes;
};

/* The type to which the operands of contractions are rounded; F16_SUMS: to f16, and short sums may be f16, too. INT8:
 * choices alone have it; legalize quantizes the operands of such nodes. */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_F16, PRECISION_F16_SUMS, PRECISION_INT8 };
/* The type in which constants that contractions read are stored, where their operands are not rounded. */
enum weights_type {
    WEIGHTS_AS_THEY_ARE,
#define WEIGHTS(id, ...) WEIGHTS_##id,
#include "passes/module/weights.def"
    WEIGHTS_TYPES
};
struct weights_row {
    const char *word;
    enum elem elem;
    double most; /* 0: no scales */
};
extern const struct weights_row weights_rows[WEIGHTS_TYPES];
enum layout_choice { LAYOUT_AUTO, LAYOUT_NCHW, LAYOUT_NHWC, LAYOUT_NC16C };

/* What the user chooses for the kernel that computes `node` (choices.h), and its numbers: tile: rows, points, vectors
 * of a register tile; winograd: m, 0 off; chunk, split: how many; layout: 1 blocked; store: 1; precision: enum
 * precision, of INT8 the first operand's range, if it is given; weights: enum weights_type; version: the most, 0 off;
 * field: the number of a field of its schedule. */
enum choice_key {
    CHOOSE_TILE,
    CHOOSE_WINOGRAD,
    CHOOSE_CHUNK,
    CHOOSE_SPLIT,
    CHOOSE_LAYOUT,
    CHOOSE_STORE,
    CHOOSE_PRECISION,
    CHOOSE_WEIGHTS,
    CHOOSE_VERSION,
    CHOOSE_FIELD,
    CHOOSE_LAST = CHOOSE_FIELD
};
struct schedule;
struct choice {
    const char *text, *node;
    enum choice_key key;
    const char *field; /* its name, as records print it; NULL: another key */
    int64_t n[3];
    double range[2]; /* least, most; both 0: none is given */
    uint32_t before; /* number + 1 of the previous choice of this key for the node; 0: there is none */
    bool asked;
    const struct schedule *collected; /* the record that the node's fields were collected for last (chosen.c) */
};

/* The records of all kernels, by number, for one CPU. */
struct schedule_facts;
struct cpu_schedules {
    const char *cpu;
    const struct machine *mach;
    const struct schedule *of;
    const struct schedule_facts *facts;
    const struct schedule *version; /* of kernels with one (schedule.version); else of kind SCHEDULE_NONE */
    const struct schedule_facts *version_facts;
};
/* A field of a record as a user gives it: which one (schedule/fields.h), its value; the line is for messages. */
struct field_value {
    uint32_t field, item, line;
    int64_t value;
};
/* What a file of schedules says of one record. */
struct schedule_override {
    uint32_t kernel, line;
    bool version; /* the record is of the kernel's version */
    const char *cpu;
    int kind;
    VEC(struct field_value) fields;
};

/* What holds of a module, from the stage of passes.def on that makes it so. */
enum fact {
    IS_IMPORTED = 1, /* a graph of the file's operators */
    IS_LEGAL = 2, /* a legal graph */
    HAS_RESULTS = 4, /* each result of a region is a value of its own */
    HAS_KERNELS = 8, /* kernels, stored, kernel_of: the graph stays as it is */
    HAS_PLACES = 16, /* storage[].place */
    HAS_CONSTRAINTS = 32, /* on layouts */
    HAS_STORAGE = 64, /* storage of computed values, buffers */
    HAS_CONSTANTS = 128, /* storage of constants, weights */
    HAS_WEIGHTS = 256, /* weights[].offset */
    HAS_ORDER = 512, /* order */
    HAS_OFFSETS = 1024, /* buffers[].offset */
    HAS_SCHEDULES = 2048,
    HAS_LOOPS = 4096, /* text of kernels and programs */
    HAS_OBJECTS = 8192
};
void facts_print(uint32_t facts, struct strbuf *); /* their names, with blanks between */

/* What those who read and write a value ask of its storage, before layout_transform gives it one. */
struct layout_constraint {
    bool plain; /* read by a call of the runtime, a region, the program or the caller: row-major */
    bool blocked; /* channels in blocks */
    int32_t fastest; /* dim to lie innermost + 1; 0: the last */
    value_id frame; /* a padded copy, within which the value lies, so that nothing is copied; {0}: none */
    int32_t grows; /* dim + 1 of a port that has memory for `room` in it, whatever its extent is; 0: none has */
    int64_t room;
};

/* What was asked for: options and choices of the user, the CPUs of the artifact. */
struct module_asked {
    enum layout_choice layout;
    int opt_level;
    bool attention; /* as one kernel, where that is possible */
    bool sparse; /* weights that are mostly zeros without these */
    bool strict; /* results are the same bits on all CPUs and for all batch sizes: nothing but shapes decides on them */
    uint32_t winograd; /* largest m of F(m x m, 3 x 3) that may be chosen; 0: none */
    enum precision precision; /* of contractions, but for nodes that a choice names */
    enum weights_type weights_type;
    const struct target_row *best; /* the best CPU of the artifact: decides what all its variants share */
    uint32_t matdot; /* a bit for each dot_kind of which some variant multiplies rows by columns: so lie the panels */
    bool pairs; /* some variant multiplies pairs of bf16: they stay so in memory */
    VEC(struct choice) choices; /* made by choice_add */
    uint32_t *choice_slots, n_choice_slots; /* by node and key (choices.c) */
    VEC(struct schedule_override) overrides; /* of the cost model's schedules, from the file of --schedules */
    const char *overrides_path;
    VEC(struct extent_given) counted_at; /* sizes that operations and bytes are counted for; others: the least */
    bool always; /* Winograd forms and stages wherever they are possible, whatever they cost (tests) */
    int64_t grain_ns; /* estimate of every launch, in place of the kernel's own; 0: not (tests) */
    bool one_program; /* for all CPU variants: a kernel's arguments begin with those of the variants before */
    struct product_probe *probe; /* what a search asks of products; NULL: there is none */
    const char *broken; /* node whose kernels are computed wrong on purpose; NULL: none (tests) */
    bool broke; /* some are */
    void (*emitted)(void *, const struct kernel *); /* called with `user` after each, by emit_kernels(); NULL: not */
    void *user;
};

/* What is known of the graph: recorded by passes over it, or computed by queries when they are first asked. */
struct module_known {
    const struct attention **attention_of; /* by node below n_attention_nodes: whose scores or values it makes */
    uint32_t n_attention_nodes;
    VEC(struct missed_attention {
        node_id values; /* the product with the values */
        const char *why;
    })
    attentions_missed; /* for remarks */
    VEC(node_id) narrowed; /* contractions whose operands narrow-products rounded */
    VEC(int64_t) least; /* by symbol: its smallest value, at least 1; em_extent_least makes it longer */
    VEC(int64_t) counted; /* by symbol, as least, with the sizes of counted_at */
    VEC(int64_t) image; /* by symbol: the size of an image, as extent_of_image was asked last */
    VEC(struct module_range {
        struct size_range range;
        struct module *module;
    })
    within; /* what module_within has made */
};

/* The kernels and the storage of values: made by fuse and the layouts. */
struct module_fused {
    uint32_t n_values;
    bool *stored; /* by value: some kernel writes it, or it is a parameter or a stored constant */
    uint32_t *kernel_of; /* by node: kernel + 1 that computes it; 0: none (constant, dead) */
    VEC(struct kernel) kernels;
    struct layout_constraint *constraint; /* by value */
    struct storage *storage; /* by value; place NONE unless stored */
    VEC(uint32_t) order; /* kernels of the top region in execution order */
};

/* Memory, schedules and code of the artifact. */
struct module_plan {
    VEC(struct buffer) buffers;
    expr_id arena_bytes;
    VEC(struct weight) weights;
    uint64_t weights_bytes;
    VEC(struct cpu_schedules) schedules; /* by CPU variant (passes/schedule/schedule.h) */
    VEC(struct launch_row {
        struct kernel *const *of; /* by variant; NULL: it never comes here */
    })
    rows; /* of a program that serves several variants, by the imm of its launches */
    int64_t shared_bytes; /* the most that a kernel of any CPU variant so far asks for: all have one plan */
    struct lfunc *program, *plan_function, *entry_function;
};

struct module {
    struct context *ctx;
    struct arena *arena;
    struct graph *g;
    const struct module *whole; /* of which module_within made this one; NULL: it did not */
    sym_id within; /* ... what stands for the size then; {0}: a number */
    uint32_t facts; /* enum fact */
    struct strbuf *report; /* what passes have to say for --stats, lines; NULL: nobody asks */
    struct module_asked asked;
    struct module_known known;
    struct module_fused fused;
    struct module_plan plan;
};

/* The passes over a module: passes.def has their order, conditions and facts, their files what comes in and what goes
 * out. Each returns false after a diagnostic. */
#define STAGE(name, function, needs, makes, print, verify, always)
#define PASS(name, function, needs, makes, when) bool function(struct module *);
#include "passes/module/passes.def"
#undef STAGE
#undef PASS

/* The CPU for which a module's text decides if it names none, as most do. */
#define BEST_BY_DEFAULT "x86-64-v4"
/* The machine for what is decided once for all variants of an artifact. */
static inline const struct machine *module_machine(const struct module *m)
{
    return &m->asked.best->machine;
}
/* The machine for a decision about code for `own` that changes bits: where results are strict, the same one for all. */
static inline const struct machine *module_numerics(const struct module *m, const struct machine *own)
{
    return m->asked.strict ? module_machine(m) : own;
}

const char *kernel_kind_name(enum kernel_kind);
/* The text of a module up to its offsets, from the graph's on (print.c; docs/reference/module-text.md); full: with all
 * bytes of constants. */
void module_print(const struct module *, struct strbuf *, bool full);
/* Checks the invariants numbered at the head of verify_module.c as far as the facts go; each violation is one
 * FAIL_INTERNAL diagnostic. */
bool module_verify(struct module *);

/* The module as it is where the size is within the range (module/within.c), for decisions and emission: the same copy
 * whenever it is asked for. */
struct module *module_within(struct module *, const struct size_range *);
/* fuse/stage.c: does the kernel of a contraction compute its operand v itself, rather than read it? v is a map. Sets
 * kernel.form.staged, and kernel.form.winograd where that is how. */
bool stage_wanted(struct module *, struct kernel *, value_id v);
/* ... and may it compute the convolution, which only maps in front of the staged value read, as well? */
bool stage_adopts(const struct module *, const struct kernel *, node_id product);
/* module/choices.c: is any contraction to be rounded, by an option or a choice? */
bool is_narrowed(const struct module *);
/* Are constants to be stored with scales? */
bool is_quantized(const struct module *);
/* graph/narrow_products.c: may the operands of this contraction be rounded? narrow_constants.c: its constant be stored
 * with scales? */
bool narrow_possible(const struct module *, node_id);
bool store_possible(const struct module *, node_id);
/* graph/probe_products.c: lists the contractions for module.asked.probe, and makes the twins that it asks for. */
void probe_products(struct module *);
/* To which type the operands of this contraction are to be rounded. */
enum precision precision_wanted(const struct module *, node_id);
/* How the constants of this contraction are to be stored. */
enum weights_type weights_wanted(const struct module *, node_id);
/* After plan_memory: the workspace, its fullest moment and the nodes whose results fill it, as lines of text. */
void plan_report(const struct module *, struct strbuf *out);
/* Emits every kernel's loop IR for the CPU of module.plan.schedules[variant] (passes/emit/emit_kernels.c); the function
 * names end in suffix. */
bool emit_kernels(struct module *, uint32_t variant, const char *suffix);
/* Program and plan, for CPU levels whose kernels emit_kernels left so, best first; their names end in suffixes. Loops
 * become kernels of each level, and what only they launch loses its text. */
enum { PROGRAM_LEVELS = 64 };
bool emit_program(struct module *, struct kernel *const *levels, const char *const *suffixes, uint32_t n_levels);
/* The C function of a static network (passes/program/entry.c), as module.plan.entry_function. */
struct entry {
    const char *name, *program, *weights; /* symbols; weights NULL: there are none */
    int64_t scratch; /* bytes of the kernels: a multiple of 64 */
};
bool emit_entry(struct module *, const struct entry *);
/* Is the symbol an argument of it? */
bool entry_takes(const struct module *, sym_id);

/* Where a kernel stands: those of one region lie one after the other, in the order in which the program runs them. */
struct run_place {
    uint32_t region, order, kernel;
};
struct run_place *kernels_in_order(const struct module *, struct arena *);

/* Helpers shared by the passes. */
bool view_invertible(enum op); /* reshape, transpose, identity */
uint32_t value_const_invariant(struct graph *, value_id); /* bit d: constant does not change along dim d */

#endif
