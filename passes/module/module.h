/* From the legal graph to kernels: what fuse, layout, plan and the emitters share.
 *
 * A *kernel* stores one or more values. It computes all values that it needs, except those that another kernel
 * *stores*: views and maps become expressions at points (passes/emit/emit.h), and a reduction becomes a loop at the
 * depth of the symbols in its point. So fusion only decides which values are stored, and later passes match no
 * patterns.
 */
#pragma once

#include "ir/build/build.h"
#include "ir/graph/probe.h"
#include "ir/loop/loop.h"
#include "ir/target/target.h"

/* Consecutive channels in a block of feature maps (NC16c) and of weight panels ([N/16][K][16]). The same on every
 * machine, so that the variants of an artifact share memory. MIN_BLOCKED: channels are blocked if there are so many. */
enum { CHANNEL_BLOCK = 16, MIN_BLOCKED = 8 };

/* Offset of index i of one dim, in elements: i * outer, or (i div block) * outer + (i mod block) * inner. */
struct dim_layout {
    int64_t block; /* 0: the dim is not blocked */
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
    expr_id origin; /* offset of index 0, ..., 0 in elements (after a halo, or inside another buffer) */
    expr_id size; /* in elements, halo and padding included */
    int64_t *halo; /* widths in points: the lower ones of all dims, then the upper ones; NULL: no halo */
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
/* A row buffer: an expensive value that several stages of one row read. */
struct row_local {
    value_id value;
    uint32_t inner; /* bit d: dim d of the value is stored; the others are those of the row */
    bool in_result; /* stored in the row of the kernel's result, if the extent is dynamic or long; else in scratch */
};
/* An argument of a kernel: a value's memory, or a dynamic size that the program computes, or the kernel's shared
 * memory. start: offset into the value in elements; {0}: 0. */
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
/* The part of a kernel's algorithm on which storages, halos and constants depend. fuse and the layout passes decide it
 * once for all CPUs. It determines the kind of the schedule (passes/schedule/schedule.h). */
struct kernel_form {
    value_id staged; /* the anchor's first operand, if the kernel computes it: for a group of points at a time, or where
                      * a Winograd kernel's tiles read it; {0}: the operand is stored */
    node_id product; /* a convolution with one tap that the kernel computes too, because maps compute `staged` from it;
                      * {0}: none, `staged` depends on stored values */
    uint32_t winograd; /* m of F(m x m, 3 x 3); 0: no Winograd kernel (passes/module/winograd.h) */
    const struct attention
        *attention; /* the attention that ends in the anchor (passes/module/attention.h); NULL: none */
};
/* A range of values of a shape symbol, from `least` >= 1 to `most`, inclusive. */
struct size_range {
    sym_id size; /* {0}: none */
    int64_t least, most;
};
/* Counters of a launch for mcc_rt_arrive: 64-bit words that are 0 when the launch begins. */
enum { SHARED_COUNTERS = 8 };
struct kernel {
    enum kernel_kind kind;
    node_id anchor; /* {0}: none (KERNEL_MAP) */
    VEC(value_id)
    outs; /* stored values; the second one is the partial results of a depthwise convolution's rows, or another
             reduction of the anchor's operand (layout/fuse_partials.c) */
    value_id domain; /* the kernel runs over its points: outs[0], or one operand of a concat */
    uint32_t piece; /* k + 1: it stores operand k (= domain) of the concat outs[0] in place; 0: all of outs[0] */
    uint32_t shares; /* k + 1: outs[0] may use the memory of input k. Then a scatter stores only the scattered rows, and
                      * the first operand of a concat is not copied (layout/share_ports.c) */
    bool in_place; /* outs[0] uses the memory of an operand whose elements are each read only at their own point */
    node_list path; /* invertible views from the anchor's result to the domain */
    node_list nodes; /* all nodes that the kernel computes, in any order */
    uint32_t row_mask; /* bit d: inner reductions depend on dim d of the domain; valid if has_rows */
    bool has_rows;
    VEC(struct row_local) locals; /* row buffers */
    struct kernel_form form;
    region_id region;
    uint32_t order; /* position in the region */
    /* after emission */
    struct kernel_version {
        struct kernel *of; /* the second version, for sizes within the range; NULL: there is none */
        struct size_range range;
        sym_id as; /* symbol for the size in that version; {0}: the range has one size */
    } version;
    const char *name;
    const char *text;
    VEC(struct karg) args;
    expr_id count; /* parallel indices */
    int64_t ns; /* estimated time of one parallel index */
    uint64_t flops, bytes;
    enum products arithmetic; /* of the flops */
    int64_t local_bytes;
    uint32_t row; /* number of its row in the artifact's table */
    bool keeps_scratch; /* parallel indices reuse scratch of earlier ones of the thread (mcc_rt_kept) */
    int64_t shared_bytes; /* bytes that the parallel indices of a launch share; the SHARED_COUNTERS come first */
};

/* A size that the user gives for a symbol. */
struct extent_given {
    const char *symbol;
    int64_t value;
};
struct buffer {
    value_id value;
    expr_id bytes, offset;
    uint32_t first, last, slot;
    bool segment;
};
struct weight {
    value_id value; /* the storage of this value is the layout of the weight */
    uint64_t offset, bytes;
};

/* The type to which operands of contractions are rounded. F16_SUMS: f16, and short sums may be in f16, too. INT8: only
 * for a choice; legalize quantizes the operands of the node. */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_F16, PRECISION_F16_SUMS, PRECISION_INT8 };
/* The type in which constants of contractions are stored, if their operands are not rounded. */
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

/* An override of --choose for the kernel that computes `node` (choices.h). Its numbers: TILE: rows, points, vectors of
 * the register tile; WINOGRAD: m, 0 off; CHUNK, SPLIT: a count; LAYOUT: 1 blocked; STORE: 1; PRECISION: enum precision,
 * and for INT8 the range of the first operand, if given; WEIGHTS: enum weights_type; VERSION: the largest size, 0 off;
 * FIELD: the value of a field of the schedule. */
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
    const char *field; /* FIELD: its name, as schedules print it; else NULL */
    int64_t n[3];
    double range[2]; /* least, most; both 0: no range is given */
    uint32_t before; /* index + 1 of the previous choice of this key for the node; 0: none */
    bool asked; /* some pass has looked the choice up; others give -Wchoose */
    const struct schedule *collected; /* the last schedule for which the node's fields were collected (chosen.c) */
};

/* The schedules of all kernels for one CPU, indexed by kernel. */
struct schedule_facts;
struct cpu_schedules {
    const char *cpu;
    const struct machine *mach;
    const struct schedule *of;
    const struct schedule_facts *facts;
    const struct schedule *version; /* of second versions (schedule.version); kind SCHEDULE_NONE: the kernel has none */
    const struct schedule_facts *version_facts;
};
/* A field of a schedule that a user sets (schedule/fields.h); line: of the file, for messages. */
struct field_value {
    uint32_t field, item, line;
    int64_t value;
};
/* One schedule in a file of --schedules. */
struct schedule_override {
    uint32_t kernel, line;
    bool version; /* it is the schedule of the kernel's second version */
    const char *cpu;
    int kind;
    VEC(struct field_value) fields;
};

/* Facts about a module; passes.def says which stage establishes each. */
enum fact {
    IS_IMPORTED = 1, /* the graph has the file's operators */
    IS_LEGAL = 2, /* the graph is legal */
    HAS_RESULTS = 4, /* the results of a region are distinct values */
    HAS_KERNELS = 8, /* kernels, stored, kernel_of are valid, and the graph no longer changes */
    HAS_PLACES = 16, /* storage[].place */
    HAS_CONSTRAINTS = 32, /* layout constraints */
    HAS_STORAGE = 64, /* storage of computed values, buffers */
    HAS_CONSTANTS = 128, /* storage of constants, weights */
    HAS_WEIGHTS = 256, /* weights[].offset */
    HAS_ORDER = 512, /* order */
    HAS_OFFSETS = 1024, /* buffers[].offset */
    HAS_SCHEDULES = 2048,
    HAS_LOOPS = 4096, /* text of kernels and programs */
    HAS_OBJECTS = 8192
};
void facts_print(uint32_t facts, struct strbuf *); /* appends the names of the facts, separated by blanks */

/* What readers and writers of a value require of its storage, before layout_transform assigns one. */
struct layout_constraint {
    bool plain; /* row-major: a call of the runtime, a region, the program or the caller reads the value */
    bool blocked; /* channels in blocks */
    int32_t fastest; /* dim + 1 that must be innermost; 0: the last dim */
    value_id frame; /* a padded copy of the value that also contains it, so that nothing is copied; {0}: none */
    int32_t grows; /* dim + 1 of a port whose memory has `room` indices, whatever its extent is; 0: none */
    int64_t room;
};

/* The user's options and choices, and the CPUs of the artifact. */
struct module_asked {
    enum layout_choice layout;
    int opt_level;
    bool attention; /* compile attention to one kernel if possible */
    bool sparse; /* skip the zeros of weights that are mostly zeros */
    bool strict; /* results have the same bits on all CPUs and for all batch sizes, so they depend on shapes only */
    uint32_t winograd; /* largest m of F(m x m, 3 x 3) that may be chosen; 0: none */
    enum precision precision; /* of contractions, except nodes with a choice */
    enum weights_type weights_type;
    const struct target_row *best; /* best CPU of the artifact, for decisions that all variants share */
    uint32_t matdot; /* a bit for each dot_kind that some variant multiplies with L_MATDOT; the panels suit it */
    bool pairs; /* some variant multiplies pairs of bf16, so memory holds bf16 */
    VEC(struct choice) choices; /* made by choice_add */
    uint32_t *choice_slots, n_choice_slots; /* by node and key (choices.c) */
    VEC(struct schedule_override) overrides; /* of the cost model's schedules, from the file of --schedules */
    const char *overrides_path;
    VEC(struct extent_given)
    counted_at; /* sizes for counts of operations and bytes; other symbols: their least value */
    bool always; /* tests: use Winograd forms and staging wherever possible, at any cost */
    int64_t grain_ns; /* tests: estimate for every launch; 0: the kernel's own */
    bool one_program; /* all CPU variants share a program: a kernel's arguments begin with those of earlier variants */
    struct product_probe *probe; /* requests of a search about products; NULL: none */
    const char *broken; /* tests: node whose kernels compute wrong results; NULL: none */
    bool broke; /* there was such a kernel */
    void (*emitted)(void *, const struct kernel *); /* emit_kernels() calls it with `user` after each kernel; or NULL */
    void *user;
};

/* Analysis results of the graph: passes record them, or queries compute them at their first call. */
struct module_known {
    const struct attention **attention_of; /* by node below n_attention_nodes: the attention that the node is part of */
    uint32_t n_attention_nodes;
    VEC(struct missed_attention {
        node_id values; /* the product with the values */
        const char *why;
    })
    attentions_missed; /* for remarks */
    VEC(node_id) limited; /* conversions to bytes before whose rounding fold-scales moved or dropped a limit */
    VEC(struct pooled_bytes {
        node_id from; /* conversion to bytes after a maximum of windows, ... */
        node_id to; /* ... and the one before it that push-concats made */
    })
    pooled;
    VEC(node_id) narrowed; /* contractions whose operands narrow-products rounded */
    VEC(int64_t) least; /* by symbol: its smallest value, at least 1; em_extent_least appends */
    VEC(int64_t) counted; /* by symbol: as least, but with the sizes of counted_at */
    VEC(int64_t) image; /* by symbol: the size of an image for the last call of extent_of_image */
    VEC(struct module_range {
        struct size_range range;
        struct module *module;
    })
    within; /* the results of module_within */
};

/* The kernels and the storage of values, from fuse and the layout passes. */
struct module_fused {
    uint32_t n_values;
    bool *stored; /* by value: a kernel stores it, or it is a parameter or a stored constant */
    uint32_t *kernel_of; /* by node: kernel + 1 that computes it; 0: none (constant, dead) */
    VEC(struct kernel) kernels;
    struct layout_constraint *constraint; /* by value */
    struct storage *storage; /* by value; PLACE_NONE unless stored */
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
        struct kernel *const *of; /* by variant; NULL: the variant never launches this row */
    })
    rows; /* kernels of a program that serves several variants; a launch has the index of its row */
    int64_t shared_bytes; /* largest shared_bytes of the kernels of all CPU variants so far, which share one plan */
    struct lfunc *program, *plan_function, *entry_function;
};

struct module {
    struct context *ctx;
    struct arena *arena;
    struct graph *g;
    const struct module *whole; /* the module that module_within copied; NULL: this is not a copy */
    sym_id within; /* in a copy: symbol for the restricted size; {0}: the size is a number */
    uint32_t facts; /* bits of enum fact */
    struct strbuf *report; /* passes append lines for --stats; NULL: not requested */
    struct module_asked asked;
    struct module_known known;
    struct module_fused fused;
    struct module_plan plan;
};

/* The passes over a module. passes.def has their order, conditions and facts; the head of each file describes input and
 * output. Each returns false after a diagnostic. */
#define STAGE(name, function, needs, makes, print, verify, always)
#define PASS(name, function, needs, makes, when) bool function(struct module *);
#include "passes/module/passes.def"
#undef STAGE
#undef PASS

/* The CPU of a module's text that names none. */
#define BEST_BY_DEFAULT "x86-64-v4"
/* The machine for decisions that all variants of an artifact share. */
static inline const struct machine *module_machine(const struct module *m)
{
    return &m->asked.best->machine;
}
/* The machine for decisions about code for `own` that change bits of results: with --strict the same one for all
 * variants, else own. */
static inline const struct machine *module_numerics(const struct module *m, const struct machine *own)
{
    return m->asked.strict ? module_machine(m) : own;
}

const char *kernel_kind_name(enum kernel_kind);
/* Appends the text of the graph and the module, as far as its facts go (print.c; docs/reference/module-text.md). full:
 * with all bytes of constants. */
void module_print(const struct module *, struct strbuf *, bool full);
/* Checks the invariants numbered at the head of verify_module.c, as far as the facts go. Each violation is one
 * FAIL_INTERNAL diagnostic; returns false if there is any. */
bool module_verify(struct module *);

/* A copy of the module in which the size is restricted to the range (module/within.c), for decisions and emission.
 * Later calls with the same range return the same copy. */
struct module *module_within(struct module *, const struct size_range *);
/* fuse/stage.c: should the kernel of a contraction compute its operand v, a map, instead of reading it? Sets
 * kernel.form.staged, and kernel.form.winograd if a Winograd kernel does so. */
bool stage_wanted(struct module *, struct kernel *, value_id v);
/* May this kernel also compute the convolution `product`, which only maps of the staged value read? */
bool stage_adopts(const struct module *, const struct kernel *, node_id product);
/* module/choices.c: does an option or a choice round any contraction? */
bool is_narrowed(const struct module *);
/* Does an option or a choice store constants with scales? */
bool is_quantized(const struct module *);
/* graph/narrow_products.c: may the operands of this contraction be rounded? */
bool narrow_possible(const struct module *, node_id);
/* graph/narrow_constants.c: may the constant of this contraction be stored with scales? */
bool store_possible(const struct module *, node_id);
/* graph/probe_products.c: lists the contractions for module.asked.probe, and adds the copies that it requests. */
void probe_products(struct module *);
/* The type to which options and choices round the operands of this contraction. */
enum precision precision_wanted(const struct module *, node_id);
/* The type in which options and choices store the constants of this contraction. */
enum weights_type weights_wanted(const struct module *, node_id);
/* After plan_memory: appends lines about the workspace, the moment when it is fullest, and the nodes whose results fill
 * it then. */
void plan_report(const struct module *, struct strbuf *out);
/* Emits every kernel's loop IR for the CPU of module.plan.schedules[variant] (passes/emit/emit_kernels.c). The function
 * names end in suffix. false after a diagnostic. */
bool emit_kernels(struct module *, uint32_t variant, const char *suffix);
/* Emits program and plan for the kernels that emit_kernels made for each CPU level, best level first; names end in
 * suffixes. Loops may become kernels of each level; kernels that only such loops launch lose their text. false after a
 * diagnostic. */
enum { PROGRAM_LEVELS = 64 };
bool emit_program(struct module *, struct kernel *const *levels, const char *const *suffixes, uint32_t n_levels);
/* Emits the C function of a static network (passes/program/entry.c) as module.plan.entry_function. */
struct entry {
    const char *name, *program, *weights; /* symbols; weights NULL: there are none */
    int64_t scratch; /* bytes of scratch for the kernels, a multiple of 64 */
};
bool emit_entry(struct module *, const struct entry *);
/* Is the symbol an argument of this function? */
bool entry_takes(const struct module *, sym_id);

/* Position of a kernel. kernels_in_order sorts all kernels by region, then by execution order. */
struct run_place {
    uint32_t region, order, kernel;
};
struct run_place *kernels_in_order(const struct module *, struct arena *);

/* Helpers shared by the passes. */
bool view_invertible(enum op); /* reshape, transpose, identity */
uint32_t value_const_invariant(struct graph *, value_id); /* bit d: constant does not change along dim d */
