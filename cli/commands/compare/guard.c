/* See guard.h. */
#include "cli/commands/compare/guard.h"

#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "runtime/rt_internal.h"

enum { PAGE = 4096, AROUND = 1 << 16, BLOCKS = 256 };

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void block_end(const struct guarded *b)
{
    munmap(b->first - AROUND, b->pages + 2 * (size_t)AROUND);
}

/* Makes room for one more. False: memory is short; the artifact gets NULL, as its frames must not be unwound. */
static bool blocks_grow(struct guard *g, struct arena *arena)
{
    const uint32_t cap = g->blocks.n < BLOCKS ? BLOCKS : 2 * g->blocks.n;
    if (g->blocks.n < g->blocks.cap)
        return true;
    struct guarded *more = arena_try(arena, cap * sizeof *more);
    if (!more)
        return false;
    if (g->blocks.n)
        memcpy(more, g->blocks.data, g->blocks.n * sizeof *more);
    g->blocks.data = more;
    g->blocks.cap = cap;
    return true;
}

static struct guarded *block_new(struct guard *g, struct arena *arena, size_t bytes, size_t align)
{
    size_t held = (bytes + align - 1) / align * align, pages = (held + PAGE - 1) / PAGE * PAGE;
    if (!blocks_grow(g, arena))
        return NULL;
    unsigned char *at = mmap(NULL, pages + 2 * (size_t)AROUND, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    g->blocks.data[g->blocks.n] = (struct guarded){
        .data = at + AROUND + pages - held, .first = at + AROUND, .size = bytes, .pages = pages};
    if (mprotect(at + AROUND, pages, PROT_READ | PROT_WRITE) != 0) {
        block_end(&g->blocks.data[g->blocks.n]);
        return NULL;
    }
    return &g->blocks.data[g->blocks.n++];
}

void *guard_alloc(struct guard *g, struct arena *arena, size_t bytes, size_t align)
{
    struct guarded *b = NULL;
    for (uint32_t i = 0; i < g->blocks.n && !b; i++)
        if (!g->blocks.data[i].used && g->blocks.data[i].size == bytes)
            b = &g->blocks.data[i];
    if (align > PAGE || bytes > SIZE_MAX - 4 * (size_t)AROUND || (!b && !(b = block_new(g, arena, bytes, align))))
        return NULL;
    b->used = true;
    memset(b->first, GUARD_MARK, b->pages); /* what is read before it was written is no zero */
    return b->data;
}

void guard_release(struct guard *g, void *data)
{
    for (uint32_t i = 0; i < g->blocks.n; i++)
        if (g->blocks.data[i].data == data)
            g->blocks.data[i].used = false;
}

static bool is_marked(const unsigned char *from, const unsigned char *to)
{
    while (from < to && *from == GUARD_MARK)
        from++;
    return from == to;
}

bool guard_holds(const struct guard *g)
{
    for (uint32_t i = 0; i < g->blocks.n; i++) {
        const struct guarded *b = &g->blocks.data[i];
        if (!is_marked(b->first, b->data) || !is_marked(b->data + b->size, b->first + b->pages))
            return false;
    }
    return true;
}

void guard_trim(struct guard *g, bool all)
{
    uint32_t n = 0;
    if (g->blocks.n <= BLOCKS && !all)
        return;
    for (uint32_t i = 0; i < g->blocks.n; i++)
        if (g->blocks.data[i].used)
            g->blocks.data[n++] = g->blocks.data[i];
        else
            block_end(&g->blocks.data[i]);
    g->blocks.n = n;
}

void guard_end(struct guard *g)
{
    for (uint32_t i = 0; i < g->blocks.n; i++)
        block_end(&g->blocks.data[i]);
    g->blocks.n = 0;
}

void guard_spoil_work(mcc_ctx *ctx, int byte)
{
    if (ctx->work)
        memset(ctx->work, byte, ctx->work_size);
}

void guard_spoil_scratch(mcc_ctx *ctx, int byte)
{
    memset(ctx->run.scratch, byte, ctx->run.threads * (size_t)ctx->run.model->scratch);
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct guarded_call {
    void (*code)(void *user);
    void *user;
    struct sigaction before[COUNT_OF(numbers)];
    fenv_t modes; /* of floats, which the artifact changes while it runs */
};
static sigjmp_buf before_code;
static volatile sig_atomic_t fault;

static void on_fault(int number)
{
    fault = number;
    siglongjmp(before_code, 1);
}

static bool call(void *user)
{
    struct guarded_call *c = user;
    if (sigsetjmp(before_code, 0) == 0)
        c->code(c->user);
    return true;
}

static void call_end(void *user)
{
    struct guarded_call *c = user;
    fesetenv(&c->modes);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        sigaction(numbers[i], &c->before[i], NULL);
}

int guard_call(struct context *ctx, void (*code)(void *user), void *user)
{
    const struct sigaction action = {.sa_handler = on_fault, .sa_flags = (int)SA_NODEFER};
    struct guarded_call c = {.code = code, .user = user};
    fault = 0;
    fegetenv(&c.modes);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        sigaction(numbers[i], &action, &c.before[i]);
    run_guarded(ctx, call, call_end, &c);
    return fault;
}
