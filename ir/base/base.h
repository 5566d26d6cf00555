/* Used by every layer: arenas, spans, vectors, checked 64-bit arithmetic, diagnostics.
 *
 * Memory: a compilation allocates all memory in arenas of its context, and context_free frees them; nothing else calls
 * free(). arena_alloc never returns NULL: if memory or the context's budget is exhausted, it records a diagnostic of
 * class FAIL_LIMIT and longjmps to the context's unwind point, which mcc_compile() set. So no foreign frame (LLVM,
 * protobuf-c, qsort) may lie between the two.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
/* Expands to two arguments: an array of the values, and their number. The array lives as long as the block. */
#define ARRAY(type, ...) (const type[]){__VA_ARGS__}, (sizeof((const type[]){__VA_ARGS__}) / sizeof(type))
/* Defines `by`, a comparison function for qsort and bsearch. It compares a number or a text that is a member of type;
 * ASCENDING_NUMBERS compares values of a number type. */
typedef int order_fn(const void *, const void *);
#define ORDER(by, type, order)                                 \
    static int by(const void *a, const void *b)                \
    {                                                          \
        const type *x = (const type *)a, *y = (const type *)b; \
        return order;                                          \
    }                                                          \
    static order_fn by
#define ASCENDING(by, type, member) ORDER(by, type, (x->member > y->member) - (x->member < y->member))
#define DESCENDING(by, type, member) ORDER(by, type, (x->member < y->member) - (x->member > y->member))
#define ASCENDING_NUMBERS(by, type) ORDER(by, type, (*x > *y) - (*x < *y))
#define ASCENDING_TEXTS(by, type, member) ORDER(by, type, strcmp(x->member, y->member))
order_fn by_text; /* of const char * */
/* Searches n rows whose first member is a text (const char *, not NULL). Returns the first row whose text equals name,
 * or NULL. */
#define ROW_NAMED(rows, n, name) row_named(rows, n, sizeof *(rows), name)
void *row_named(const void *rows, size_t n, size_t size, const char *name);
/* Defines an index type. The compiler refuses an index of another type in its place. */
#define INDEX_TYPE(name) \
    typedef struct {     \
        uint32_t i;      \
    } name
/* The caller must check the result. */
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
/* For use under foreign frames: where arena_alloc would unwind, records the diagnostic and returns NULL. */
void *arena_try(struct arena *, size_t size);
void *arena_alloc_array(struct arena *, size_t n, size_t size); /* overflow-checked n * size */
void *arena_copy(struct arena *, const void *, size_t size);
char *arena_strdup(struct arena *, const char *);
char *arena_strndup(struct arena *, const char *, size_t n);
char *arena_printf(struct arena *, const char *fmt, ...) PRINTF_LIKE(2, 3);
void arena_init(struct arena *, struct context *);
void arena_release(struct arena *); /* frees every block; the arena is empty and may be used again */

#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEW_ARRAY(arena, T, n) ((T *)arena_alloc_array((arena), (size_t)(n), sizeof(T)))

/* ---- vectors: struct { T *data; uint32_t n, cap; } ----------------------------------------------- */

#define VEC(T)           \
    struct {             \
        T *data;         \
        uint32_t n, cap; \
    }
void vec_grow(struct arena *, void **data, uint32_t *cap, uint32_t need, size_t size);
/* Appends x. Invalidates pointers into the vector. */
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
}; /* does not own the bytes */

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
bool span_varint(struct span *, uint64_t *v); /* removes one from the front; false: no complete one is there */
/* Appends s with control bytes, bad UTF-8 and bidirectional marks as \xNN, cut to max bytes of output. */
void strbuf_escaped(struct strbuf *, const char *s, size_t max);
/* Appends s as a quoted literal: \" \\ \n, control bytes, bad UTF-8 and bidirectional marks as \xNN. */
void strbuf_quoted(struct strbuf *, const char *s);

/* ---- hashing (xxhash, 64 bits of XXH3) ------------------------------------------------------------ */

uint64_t hash_bytes(const void *, size_t);
/* Hashes the size and a sample of the bytes: if two hashes are equal, the caller compares all bytes. */
uint64_t hash_spread(const void *, size_t);
/* Multiply and fold; both constants are odd (golden ratio, xxhash's PRIME64_2). */
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

INDEX_TYPE(src_id); /* a node of the imported file; 0 = none */
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
    src_id src; /* 0: about the whole file, or about `tensor` */
    const char *tensor; /* NULL, or the tensor (value, port) it is about */
    const char *flag; /* NULL, or the warning/remark group: "constant-growth" prints [-Wconstant-growth] */
    const char *text; /* one line, under 1000 bytes, hostile bytes escaped */
    const char *format; /* the format of `text`: errors of one format are of one kind */
    uint32_t repeats; /* how often the same text was repeated at the same place */
    uint32_t similar; /* further diagnostics of this kind that are counted, not recorded */
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
    double began; /* the thread's clock at time_begin */
    double workers; /* seconds that workers have used: the pool adds them (codegen/spawn.c) */
    uint64_t work; /* steps since the clock was last read */
    const char *text; /* the diagnostic when they are used up */
};
struct context {
    struct arena session; /* lives as long as the context */
    struct limits limits;
    struct time time;
    const char *model_path; /* as the user gave it; every message begins with it */
    uint32_t line, column; /* in a configuration file, from 1; 0: none */
    struct exprs *exprs;
    VEC(struct source) sources; /* [0] unused */
    VEC(struct diag) diags;
    enum fail fail; /* class of the first error; FAIL_NONE: fine so far */
    uint32_t n_errors;
    uint32_t kind_limit; /* records so many errors or warnings of one kind and counts the rest; 0: no limit */
    bool werror; /* warnings are errors */
    bool field_code; /* functions in loops are hashes: what is emitted is lowered by lf_field (mcc prove) */
    bool function_marks; /* lf_math says in statements whose result it is, for bounds of rounding (mcc diff) */
    bool field; /* f32 in constants and in the interpreter is GF(q) x GF(p) (ir/ops/field.h) */
    int64_t *eval_left; /* elements that the interpreter may still compute, which it counts down; NULL: no limit */
    struct shared_results *shared; /* of the interpreter (ir/eval/shared.h); NULL: it computes every node */
    struct read_watch { /* is given all bytes of each file that file_whole reads; file NULL: nobody asks */
        void *user;
        void (*file)(void *user, const void *data, size_t size);
    } watch;
    src_id at; /* the current node, for failures in code that does not know its node */
    jmp_buf *unwind; /* set by whoever called into the compiler */
    int64_t heap_used; /* bytes of all arena blocks */
    const char *volatile temp_files[3]; /* outputs being written, which the signal handler removes; NULL: none */
    const char *volatile temp_made; /* the folder of some of them, which it removes after them; NULL: none */
    const char *volatile temp_folder; /* a folder of files that a program of the user reads; NULL: none */
    volatile int child; /* that program's process; 0: it does not run */
    struct context *volatile apart; /* a context that works for this one, with its own temporary files; NULL: none */
    int64_t fail_alloc; /* tests: the allocation that fails, counted down; 0 = never */
    struct arena_block *blocks; /* all blocks of all arenas: context_free frees those that an unwinding left */
};

/* A context without index expressions, which suffices for the loop IR; context_new (ir/expr/expr.h) makes a complete
 * one. NULL: out of memory. */
struct context *context_bare(void);
void context_free(struct context *);

src_id source_add(struct context *, struct source);
const struct source *source_get(const struct context *, src_id);
/* The node's name, else its first output's, else its operator's; never NULL. */
const char *source_label(const struct source *);
const char *origin_short(const char *origin); /* source.origin without folders; "" for NULL */

/* Records an error and returns false, for `return error_model(...)`. Only counts a text that is there at the same
 * source, and errors of one kind after kind_limit of them. */
bool error_at(struct context *, enum fail, src_id, const char *tensor, const char *fmt, ...) PRINTF_LIKE(5, 6);
#define error_usage(ctx, ...) error_at((ctx), FAIL_USAGE, (src_id){0}, NULL, __VA_ARGS__)
#define error_model(ctx, src, ...) error_at((ctx), FAIL_MODEL, (src), NULL, __VA_ARGS__)
#define error_limit(ctx, src, ...) error_at((ctx), FAIL_LIMIT, (src), NULL, __VA_ARGS__)
#define error_env(ctx, ...) error_at((ctx), FAIL_ENV, (src_id){0}, NULL, __VA_ARGS__)
#define error_internal(ctx, src, ...) error_at((ctx), FAIL_INTERNAL, (src), NULL, __VA_ARGS__)
/* A position in the list of diagnostics, to roll back to after speculative work. */
struct diag_mark {
    uint32_t n, n_errors;
    enum fail fail;
};
struct diag_list {
    const struct diag *data;
    uint32_t n;
};
struct diag_mark diag_mark(const struct context *);
/* If all errors since the mark are of class FAIL_MODEL, moves the diagnostics since the mark to *out, restores the
 * context's counts and returns true. Else changes nothing and returns false. */
bool diag_take(struct context *, const struct diag_mark *, struct diag_list *out);
void diag_put_back(struct context *, const struct diag_list *);
/* Discards all diagnostics since the mark. */
void diag_drop(struct context *, const struct diag_mark *);
void warn_at(struct context *, src_id, const char *flag, const char *fmt, ...) PRINTF_LIKE(4, 5);
void remark_at(struct context *, src_id, const char *flag, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "FILE: node 'NAME' (OP-VERSION): error: TEXT [-Wflag]", one line without the newline, hostile bytes escaped. */
void diag_render(const struct context *, const struct diag *, struct strbuf *out);
/* Calls run(user), then end(user). If run unwinds, calls end(user) and continues the unwinding. For resources that no
 * arena owns: descriptors, processes, memory of libraries. */
bool run_guarded(struct context *, bool (*run)(void *user), void (*end)(void *user), void *user);
/* Records an error and unwinds to ctx->unwind: for failures in functions that return no error (memory, budgets). */
_Noreturn void context_unwind(struct context *, enum fail, src_id, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The same in two steps without allocation, when a limit is reached. The text is not copied. */
void limit_record(struct context *, const char *text);
_Noreturn void limit_unwind(struct context *);

/* ---- the processor time of a compilation (time.c) ------------------------------------------------------ */

double time_now(void); /* seconds of a clock that only goes forward */

/* From time_begin to time_end, the processor time of the calling thread and of the workers counts against
 * limits.compile_time. When it is used up, the next check of the clock unwinds as a failed allocation does; every
 * arena_alloc may check. */
void time_begin(struct context *);
void time_end(struct context *);
double time_left(const struct context *); /* seconds; infinite: there is no limit */
bool time_is_over(struct context *); /* true after a diagnostic */
void time_check(struct context *); /* unwinds if it is used up */

/* Loops that do not allocate report their work here, in steps of a few nanoseconds. May unwind. */
enum { TIME_WORK = 1 << 20, TIME_ALLOC = 1 << 12, TIME_EXPR = 1 << 6 };
static inline void time_spend(struct context *ctx, uint64_t steps)
{
    ctx->time.work += steps;
    if (ctx->time.work >= TIME_WORK)
        time_check(ctx);
}
