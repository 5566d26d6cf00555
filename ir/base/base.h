/* What every layer stands on: arenas, spans, vectors, checked 64-bit arithmetic, diagnostics.
 *
 * Memory: everything a compilation owns lives in an arena of its context and goes with it; there is no
 * free() elsewhere. arena_alloc never returns NULL: when memory (or the context's budget) ends, it records a
 * diagnostic of class FAIL_LIMIT and longjmps to the context's unwind point, which mcc_compile() set. So no
 * foreign frame (LLVM, protobuf-c with its own checks, qsort callbacks) may lie between the two.
 */
#ifndef MCC_IR_BASE_H
#define MCC_IR_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
/* Two arguments: an array of the values that follow, and how many there are. It lives as long as the block. */
#define ARRAY(type, ...) (const type[]){__VA_ARGS__}, (sizeof((const type[]){__VA_ARGS__}) / sizeof(type))
/* The caller has to look at the result. */
#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
/* Declares text: fmt with the arguments that follow it in the function's list, cut after size - 1 bytes. */
#define TEXT_OF_ARGUMENTS(text, size, fmt)               \
    char text[size];                                     \
    va_list text##_arguments;                            \
    va_start(text##_arguments, fmt);                     \
    vsnprintf(text, sizeof text, fmt, text##_arguments); \
    va_end(text##_arguments)

struct context;

/* ---- arenas ------------------------------------------------------------------------------------ */

struct arena_block;
struct arena {
    struct context *ctx;
    struct arena_block *block;
    size_t used; /* bytes handed out, all blocks */
};

void *arena_alloc(struct arena *, size_t size); /* zeroed, 16-aligned, never NULL */
/* For use under foreign frames: NULL, with the diagnostic recorded, where arena_alloc would
 * unwind. */
void *arena_try(struct arena *, size_t size);
void *arena_alloc_array(struct arena *, size_t n, size_t size); /* overflow-checked n * size */
void *arena_copy(struct arena *, const void *, size_t size);
char *arena_strdup(struct arena *, const char *);
char *arena_strndup(struct arena *, const char *, size_t n);
char *arena_printf(struct arena *, const char *fmt, ...) PRINTF_LIKE(2, 3);
void arena_init(struct arena *, struct context *);
void arena_release(struct arena *); /* gives every block back; the arena is empty again */

#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEW_ARRAY(arena, T, n) ((T *)arena_alloc_array((arena), (size_t)(n), sizeof(T)))

/* ---- vectors: struct { T *data; uint32_t n, cap; } ----------------------------------------------- */

#define VEC(T)           \
    struct {             \
        T *data;         \
        uint32_t n, cap; \
    }
void vec_grow(struct arena *, void **data, uint32_t *cap, uint32_t need, size_t size);
/* Appends x. Pointers into the vector do not survive this. */
#define VEC_PUSH(arena, v, x)                                                                         \
    do {                                                                                              \
        if ((v)->n == (v)->cap)                                                                       \
            vec_grow((arena), (void **)(void *)&(v)->data, &(v)->cap, (v)->n + 1, sizeof *(v)->data); \
        (v)->data[(v)->n++] = (x);                                                                    \
    } while (0)

/* ---- spans and text ------------------------------------------------------------------------------ */

struct span {
    const void *data;
    size_t size;
}; /* borrows, never owns */

struct strbuf {
    struct arena *arena;
    char *data;
    size_t n, cap;
}; /* data stays NUL-terminated once non-NULL */
void strbuf_init(struct strbuf *, struct arena *);
/* An empty one. */
static inline struct strbuf strbuf_of(struct arena *arena)
{
    return (struct strbuf){.arena = arena};
}
void strbuf_printf(struct strbuf *, const char *fmt, ...) PRINTF_LIKE(2, 3);
void strbuf_append(struct strbuf *, const void *, size_t n);
void strbuf_varint(struct strbuf *, uint64_t v); /* as protobuf writes it: 7 bits a byte, low ones first */
bool span_varint(struct span *, uint64_t *v); /* takes one off the front; false: none that ends is there */
/* Appends s with control bytes, bad UTF-8 and bidirectional marks as \xNN, cut to max bytes of output. */
void strbuf_escaped(struct strbuf *, const char *s, size_t max);
/* Appends s as a quoted literal: \" \\ \n, control bytes, bad UTF-8 and bidirectional marks as \xNN. */
void strbuf_quoted(struct strbuf *, const char *s);

/* ---- hashing (xxhash, 64 bits of XXH3) ------------------------------------------------------------ */

uint64_t hash_bytes(const void *, size_t);
/* Of the size and of some bytes spread over all: for what is compared as a whole where this is equal. */
uint64_t hash_spread(const void *, size_t);
/* Multiply and fold, the two constants are odd and have mixed bits (golden ratio, xxhash's PRIME64_2). */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xC2B2AE3D27D4EB4Fu;
    return h ^ (h >> 29);
}

/* ---- checked arithmetic: true when the result fits, as __builtin_*_overflow inverted ---------------- */

NODISCARD static inline bool add_i64(int64_t a, int64_t b, int64_t *r)
{
    return !__builtin_add_overflow(a, b, r);
}
NODISCARD static inline bool sub_i64(int64_t a, int64_t b, int64_t *r)
{
    return !__builtin_sub_overflow(a, b, r);
}
NODISCARD static inline bool mul_i64(int64_t a, int64_t b, int64_t *r)
{
    return !__builtin_mul_overflow(a, b, r);
}
/* Rounds towards minus infinity; b != 0 and not (INT64_MIN, -1). */
static inline int64_t floordiv_i64(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
static inline int64_t floormod_i64(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

/* ---- where something came from ------------------------------------------------------------------- */

typedef struct {
    uint32_t i;
} src_id; /* a node of the imported file; 0 = none */
struct source {
    const char *name; /* node name; "" when the file gives none */
    const char *op; /* ONNX operator type */
    const char *domain; /* "" for the default domain */
    int32_t version; /* since_version that the node is bound to; 0 unknown */
    const char *output; /* name of its first output: what a nameless node is called by */
    const char *origin; /* "file:line" of the Python source when metadata has it, else NULL */
};

/* ---- diagnostics --------------------------------------------------------------------------------- */

/* The class of a failure is the exit code of the command (docs/architecture.md). */
enum fail {
    FAIL_NONE = 0,
    FAIL_MODEL = 1,
    FAIL_USAGE = 2,
    FAIL_ENV = 3,
    FAIL_LIMIT = 4,
    FAIL_INTERNAL = 5,
    FAIL_CLAIM = 6
};
enum severity { SEV_NOTE, SEV_REMARK, SEV_WARNING, SEV_ERROR };
struct diag {
    enum severity severity;
    enum fail fail; /* errors only */
    src_id src; /* 0: about the file as a whole, or see tensor */
    const char *tensor; /* NULL, or the tensor (value, port) it is about */
    const char *flag; /* NULL, or the warning/remark group: "constant-growth" prints [-Wconstant-growth] */
    const char *text; /* one line, under 1000 bytes, hostile bytes escaped */
    const char *format; /* what text was printed from: errors of one format are of one kind */
    uint32_t repeats; /* how often the same text came again at the same place */
    uint32_t similar; /* further ones of this kind that were counted only */
};

/* ---- limits: defaults in base.c, each raised by --limit-NAME ----------------- */

struct limits {
    int64_t import_heap; /* bytes of decoded messages beyond 32 x file size */
    int64_t nodes; /* nodes after inlining and unrolling */
    int64_t tensor_bytes; /* one tensor */
    int64_t arena_bytes; /* workspace */
    int64_t fold_bytes; /* one folded constant: inputs + this */
    int64_t fold_total; /* all folded constants */
    int64_t sparse_bytes; /* of external data that sparse files do not store */
    int64_t compile_heap; /* bytes of all arenas of the context */
    int32_t message_depth, subgraph_depth, call_depth, rank, name_bytes, unroll_nodes;
    double compile_time; /* seconds of processor time of a compilation; 0 = no limit */
    double max_constant_growth; /* constants out / weights in; 0 = no limit */
    int64_t max_output_size; /* bytes of the artifact; 0 = no limit */
};
extern const struct limits limits_default;

/* ---- the context of one compilation; nothing is global ------------------------------------------------ */

struct exprs; /* ir/expr/expr.h */
struct time { /* see time_begin */
    double most; /* seconds; 0: nothing is counted */
    double began; /* the thread's clock at the beginning */
    double workers; /* seconds that workers have used: the pool adds them (codegen/spawn.c) */
    uint64_t work; /* since the clock was looked at */
    const char *text; /* what to say when they are over */
};
struct context {
    struct arena session; /* lives as long as the context */
    struct limits limits;
    struct time time;
    const char *model_path; /* as the user gave it: every message begins with it */
    uint32_t line, column; /* after it, from 1 on, where it is a configuration; 0: none */
    struct exprs *exprs;
    VEC(struct source) sources; /* [0] unused */
    VEC(struct diag) diags;
    enum fail fail; /* class of the first error; FAIL_NONE: fine so far */
    uint32_t n_errors;
    uint32_t kind_limit; /* errors or warnings of one kind that are recorded, the rest is counted; 0: no limit */
    bool werror; /* warnings are errors */
    bool field_code; /* functions in loops are hashes: what is emitted is lowered by lf_field (mcc prove) */
    bool function_marks; /* lf_math says in statements whose result it is, for bounds of rounding (mcc diff) */
    bool field; /* f32 in constants and in the interpreter is GF(q) x GF(p) (ir/ops/field.h) */
    src_id at; /* the node at work: what failures too deep to know are about */
    jmp_buf *unwind; /* set by whoever called into the compiler */
    int64_t heap_used; /* bytes of all arena blocks */
    const char
        *volatile temp_files[3]; /* outputs being written; who ends the process by a signal removes them. NULL: none */
    const char *volatile temp_made; /* the folder of some of them, empty after them; NULL: none */
    const char *volatile temp_folder; /* one with files that a program of the user reads; NULL: none */
    volatile int child; /* that program's process; 0: it does not run */
    struct context *volatile apart; /* at work for this one, with temporary files of its own; NULL: none */
    int64_t fail_alloc; /* tests: the allocation that fails, counted down; 0 = never */
    struct arena_block *blocks; /* every block of every arena: context_free gives back what an unwinding left */
};

/* A context without index expressions: enough for the loop IR. context_new of ir/expr/expr.h makes a whole one. NULL
 * when not even that fits into memory. */
struct context *context_bare(void);
void context_free(struct context *);

src_id source_add(struct context *, struct source);
const struct source *source_get(const struct context *, src_id);
const char *source_label(
    const struct source *); /* the node's name, else its first output's, else its operator's; never NULL */
const char *origin_short(const char *origin); /* source.origin without folders; "" for NULL */

/* Record a diagnostic; false, so that `return error_model(...)` reads well. Equal texts at one source are
 * counted, not repeated; after kind_limit errors of one kind the rest is counted. */
bool error_at(struct context *, enum fail, src_id, const char *tensor, const char *fmt, ...) PRINTF_LIKE(5, 6);
#define error_usage(ctx, ...) error_at((ctx), FAIL_USAGE, (src_id){0}, NULL, __VA_ARGS__)
#define error_model(ctx, src, ...) error_at((ctx), FAIL_MODEL, (src), NULL, __VA_ARGS__)
#define error_limit(ctx, src, ...) error_at((ctx), FAIL_LIMIT, (src), NULL, __VA_ARGS__)
#define error_env(ctx, ...) error_at((ctx), FAIL_ENV, (src_id){0}, NULL, __VA_ARGS__)
#define error_internal(ctx, src, ...) error_at((ctx), FAIL_INTERNAL, (src), NULL, __VA_ARGS__)
/* A place in the list of diagnostics, to which it can be taken back: for work that is tried out. */
struct diag_mark {
    uint32_t n, n_errors;
    enum fail fail;
};
struct diag_list {
    const struct diag *data;
    uint32_t n;
};
struct diag_mark diag_mark(const struct context *);
/* Takes out what was recorded since the mark, if its errors all say that the model is bad: then true, and the context
 * counts as if nothing had happened. false: all stays. */
bool diag_take(struct context *, const struct diag_mark *, struct diag_list *out);
void diag_put_back(struct context *, const struct diag_list *);
/* Takes out everything since the mark, errors too. */
void diag_drop(struct context *, const struct diag_mark *);
void warn_at(struct context *, src_id, const char *flag, const char *fmt, ...) PRINTF_LIKE(4, 5);
void remark_at(struct context *, src_id, const char *flag, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "FILE: node 'NAME' (OP-VERSION): error: TEXT [-Wflag]", one line without the newline, hostile bytes escaped. */
void diag_render(const struct context *, const struct diag *, struct strbuf *out);
/* Calls run(user), then end(user): also when run unwinds, which goes on after it. For what is not the arena's:
 * descriptors, processes, memory of libraries. */
bool run_guarded(struct context *, bool (*run)(void *user), void (*end)(void *user), void *user);
/* Records an error and unwinds to ctx->unwind: for failures met too deep to return through (memory, budgets). */
_Noreturn void context_unwind(struct context *, enum fail, src_id, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The same in two steps, without allocating, where a limit is reached: the text stays where it is. */
void limit_record(struct context *, const char *text);
_Noreturn void limit_unwind(struct context *);

/* ---- the processor time of a compilation (time.c) ------------------------------------------------------ */

/* From time_begin to time_end, what the calling thread and the workers use counts against limits.compile_time. When it
 * is over, the next look at the clock unwinds as an allocation does when memory ends; every arena_alloc may look. */
void time_begin(struct context *);
void time_end(struct context *);
double time_left(const struct context *); /* seconds; infinite where nothing is counted */
bool time_is_over(struct context *); /* true after a diagnostic */
void time_check(struct context *); /* unwinds when it is over */

/* Loops that allocate nothing say what they do: so many elementary steps of some nanoseconds. May unwind. */
enum { TIME_WORK = 1 << 20, TIME_ALLOC = 1 << 12, TIME_EXPR = 1 << 6 };
static inline void time_spend(struct context *ctx, uint64_t steps)
{
    ctx->time.work += steps;
    if (ctx->time.work >= TIME_WORK)
        time_check(ctx);
}

#endif
