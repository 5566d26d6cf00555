/* Memory and text under every layer: arenas, vectors, string buffers, hashing, the context of a compilation.
 *
 * Every block of every arena hangs on its context, so that unwinding out of any depth leaks nothing:
 * context_free gives back what nobody released. Each arena_alloc is one failure point for tests
 * (fail_alloc), whether or not it needs a new block.
 */
#include "ir/base/base.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define KIB ((int64_t)1024)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)

enum { ALIGN = 16, BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20, DIAGS_RESERVED = 64 };

const struct limits limits_default = {
    .import_heap = 64 * MIB,
    .nodes = 1000000,
    .tensor_bytes = 16 * GIB,
    .arena_bytes = 16 * GIB,
    .fold_bytes = 1 * MIB,
    .fold_total = 256 * MIB,
    .sparse_bytes = 256 * MIB,
    .compile_heap = 16 * GIB,
    .compile_time = 600,
    .message_depth = 100,
    .subgraph_depth = 30,
    .call_depth = 100,
    .rank = 32,
    .name_bytes = 1 << 20,
    .unroll_nodes = 2000,
};

/* ---- arenas ------------------------------------------------------------------------------------ */

struct arena_block {
    struct arena_block *below;              /* the arena's block before this one */
    struct arena_block *ctx_prev, *ctx_next;
    size_t size, used;                      /* bytes of data[] */
    _Alignas(ALIGN) unsigned char data[];
};

/* diags always has room for one more (see diag_push). */
void limit_record(struct context *ctx, const char *text)
{
    struct diag d = {.severity = SEV_ERROR, .fail = FAIL_LIMIT, .text = text, .format = text};
    if (ctx->diags.n < ctx->diags.cap)
        ctx->diags.data[ctx->diags.n++] = d;
    if (ctx->fail == FAIL_NONE)
        ctx->fail = FAIL_LIMIT;
    ctx->n_errors++;
}

void limit_unwind(struct context *ctx)
{
    if (!ctx->unwind) {
        fprintf(stderr, "mcc: %s, and nobody set an unwind point\n", ctx->diags.data[ctx->diags.n - 1].text);
        abort();
    }
    longjmp(*ctx->unwind, 1);
}

static _Noreturn void heap_fail(struct context *ctx, const char *text)
{
    limit_record(ctx, text);
    limit_unwind(ctx);
}

static struct arena_block *block_add(struct arena *a, size_t size)
{
    struct context *ctx = a->ctx;
    if ((int64_t)size > ctx->limits.compile_heap - ctx->heap_used)
        heap_fail(ctx, "the compiler's memory budget is used up (--limit-compile-heap)");
    struct arena_block *b = calloc(1, sizeof *b + size);
    if (!b)
        heap_fail(ctx, "out of memory");
    b->size = size;
    b->ctx_next = ctx->blocks;
    if (b->ctx_next)
        b->ctx_next->ctx_prev = b;
    ctx->blocks = b;
    ctx->heap_used += (int64_t)size;
    return b;
}

/* Large objects get a block of their own below the current one, which stays open for small ones. */
static void *alloc_large(struct arena *a, size_t size)
{
    struct arena_block *b = block_add(a, size);
    b->used = size;
    if (a->block) {
        b->below = a->block->below;
        a->block->below = b;
    } else {
        a->block = b;
    }
    a->used += size;
    return b->data;
}

void *arena_alloc(struct arena *a, size_t size)
{
    struct context *ctx = a->ctx;
    if (ctx->fail_alloc && --ctx->fail_alloc == 0)
        heap_fail(ctx, "out of memory (provoked)");
    time_spend(ctx, TIME_ALLOC);
    if (size > PTRDIFF_MAX - BLOCK_MAX)
        heap_fail(ctx, "out of memory: an object is larger than the address space");
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size == 0)
        size = ALIGN;
    struct arena_block *b = a->block;
    if (!b || size > b->size - b->used) {
        size_t next = b ? b->size * 2 : BLOCK_MIN;
        if (next > BLOCK_MAX || next < BLOCK_MIN)
            next = BLOCK_MAX;
        if (size > next / 2)
            return alloc_large(a, size);
        struct arena_block *fresh = block_add(a, next);
        fresh->below = b;
        a->block = b = fresh;
    }
    void *p = b->data + b->used;
    b->used += size;
    a->used += size;
    return p;
}

void *arena_alloc_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        heap_fail(a->ctx, "out of memory: an array is larger than the address space");
    return arena_alloc(a, bytes);
}

void *arena_copy(struct arena *a, const void *data, size_t size)
{
    void *p = arena_alloc(a, size);
    if (size)
        memcpy(p, data, size);
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

void *arena_try(struct arena *a, size_t size)
{
    jmp_buf here, *outer = a->ctx->unwind;
    void *volatile p = NULL;
    if (setjmp(here) == 0) {
        a->ctx->unwind = &here;
        p = arena_alloc(a, size);
    }
    a->ctx->unwind = outer;
    return p;
}

bool run_guarded(struct context *ctx, bool (*run)(void *user), void (*end)(void *user), void *user)
{
    jmp_buf here, *outer = ctx->unwind;
    volatile bool ok = false, unwound = true;
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        ok = run(user);
        unwound = false;
    }
    ctx->unwind = outer;
    end(user);
    if (unwound && outer)
        longjmp(*outer, 1);
    return ok;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        n = 0;
    char *p = arena_alloc(a, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    return p;
}

void arena_init(struct arena *a, struct context *ctx)
{
    *a = (struct arena){.ctx = ctx};
}

void arena_release(struct arena *a)
{
    struct context *ctx = a->ctx;
    for (struct arena_block *b = a->block, *below; b; b = below) {
        below = b->below;
        ctx->heap_used -= (int64_t)b->size;
        if (b->ctx_next)
            b->ctx_next->ctx_prev = b->ctx_prev;
        if (b->ctx_prev)
            b->ctx_prev->ctx_next = b->ctx_next;
        else
            ctx->blocks = b->ctx_next;
        free(b);
    }
    a->block = NULL;
    a->used = 0;
}

/* ---- vectors ------------------------------------------------------------------------------------- */

void vec_grow(struct arena *a, void **data, uint32_t *cap, uint32_t need, size_t size)
{
    uint64_t grown = (uint64_t)*cap * 2;
    if (grown < 8)
        grown = 8;
    if (grown < need)
        grown = need;
    if (need == 0 || grown > UINT32_MAX) {
        if (need == 0)
            heap_fail(a->ctx, "a list is longer than 2^32 - 1");
        grown = UINT32_MAX;
    }
    void *fresh = arena_alloc_array(a, (size_t)grown, size);
    if (*cap)
        memcpy(fresh, *data, (size_t)*cap * size);
    *data = fresh;
    *cap = (uint32_t)grown;
}

/* ---- text ---------------------------------------------------------------------------------------- */

void strbuf_init(struct strbuf *b, struct arena *a)
{
    *b = (struct strbuf){.arena = a};
}

/* Makes room for n bytes more and the NUL. */
static void strbuf_reserve(struct strbuf *b, size_t n)
{
    if (n < b->cap - b->n)
        return;
    if (n > PTRDIFF_MAX - b->n - 1)
        heap_fail(b->arena->ctx, "out of memory: a text is larger than the address space");
    size_t cap = b->cap ? b->cap * 2 : 128;
    if (cap < b->n + n + 1)
        cap = b->n + n + 1;
    char *fresh = arena_alloc(b->arena, cap);
    if (b->n)
        memcpy(fresh, b->data, b->n);
    b->data = fresh;
    b->cap = cap;
}

void strbuf_append(struct strbuf *b, const void *data, size_t n)
{
    strbuf_reserve(b, n);
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
    b->data[b->n] = 0;
}

void strbuf_varint(struct strbuf *b, uint64_t v)
{
    do {
        unsigned char byte = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
        strbuf_append(b, &byte, 1);
        v >>= 7;
    } while (v);
}

bool span_varint(struct span *s, uint64_t *out)
{
    const unsigned char *p = s->data;
    *out = 0;
    for (size_t i = 0; i < s->size && i < 10; i++) {
        *out |= (uint64_t)(p[i] & 127) << (7 * i);
        if (p[i] < 128) {
            *s = (struct span){p + i + 1, s->size - i - 1};
            return true;
        }
    }
    return false;
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t room = b->cap - b->n;
    int n = vsnprintf(room ? b->data + b->n : NULL, room, fmt, args);
    va_end(args);
    if (n < 0)
        n = 0;
    if ((size_t)n >= room) {
        strbuf_reserve(b, (size_t)n);
        va_start(args, fmt);
        vsnprintf(b->data + b->n, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    b->n += (size_t)n;
}

/* ---- hashing --------------------------------------------------------------------------------------- */

uint64_t hash_bytes(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

uint64_t hash_spread(const void *data, size_t n)
{
    unsigned char sample[64];
    size_t step = n / sizeof sample + 1, k = 0;
    for (size_t at = 0; at < n && k < sizeof sample; at += step)
        sample[k++] = ((const unsigned char *)data)[at];
    return hash_mix(n, hash_bytes(sample, k));
}

/* ---- the context -------------------------------------------------------------------------------------- */

/* Everything of a fresh context that allocates; false when memory ends. */
static bool context_fill(struct context *ctx)
{
    jmp_buf point;
    if (setjmp(point))
        return false;
    ctx->unwind = &point;
    ctx->diags.data = NEW_ARRAY(&ctx->session, struct diag, DIAGS_RESERVED);
    ctx->diags.cap = DIAGS_RESERVED;
    VEC_PUSH(&ctx->session, &ctx->sources, ((struct source){.name = "", .op = "", .domain = "", .output = ""}));
    ctx->unwind = NULL;
    return true;
}

struct context *context_bare(void)
{
    struct context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return NULL;
    ctx->limits = limits_default;
    ctx->kind_limit = 20;
    ctx->model_path = "";
    arena_init(&ctx->session, ctx);
    if (context_fill(ctx))
        return ctx;
    context_free(ctx);
    return NULL;
}

void context_free(struct context *ctx)
{
    if (!ctx)
        return;
    for (struct arena_block *b = ctx->blocks, *next; b; b = next) {
        next = b->ctx_next;
        free(b);
    }
    free(ctx);
}

src_id source_add(struct context *ctx, struct source source)
{
    VEC_PUSH(&ctx->session, &ctx->sources, source);
    return (src_id){ctx->sources.n - 1};
}

int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void *row_named(const void *rows, size_t n, size_t size, const char *name)
{
    for (const char *row = rows; n > 0; row += size, n--)
        if (strcmp(*(const char *const *)(const void *)row, name) == 0)
            return (void *)(uintptr_t)row;
    return NULL;
}

const struct source *source_get(const struct context *ctx, src_id src)
{
    return &ctx->sources.data[src.i < ctx->sources.n ? src.i : 0];
}

const char *origin_short(const char *origin)
{
    const char *slash = origin ? strrchr(origin, '/') : NULL;
    return slash ? slash + 1 : origin ? origin : "";
}

const char *source_label(const struct source *s)
{
    const char *const words[] = {s->name, s->output, s->op};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (words[i] && *words[i])
            return words[i];
    return "";
}
