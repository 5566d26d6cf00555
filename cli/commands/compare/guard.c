/* The memory of the artifact that is proved: what the code writes beyond a block is found in the margin around it. */
#include <string.h>

#include "cli/commands/compare/prove.h"

enum { MARGIN = 4096, MARK = 0xa5 };

void *guard_alloc(void *user, size_t bytes, size_t align)
{
    struct prove *p = user;
    struct arena *arena = &p->run.c.ctx->session;
    struct guarded *b = NULL;
    for (uint32_t i = 0; i < p->guard.blocks.n && !b; i++)
        if (!p->guard.blocks.data[i].used && p->guard.blocks.data[i].size == bytes)
            b = &p->guard.blocks.data[i];
    if (align > MARGIN || bytes > SIZE_MAX - 3 * (size_t)MARGIN)
        return NULL;
    if (!b) {
        unsigned char *whole = arena_try(arena, bytes + 3 * (size_t)MARGIN);
        struct guarded *more = arena_try(arena, (p->guard.blocks.n + 1) * sizeof *more);
        if (!whole || !more)
            return NULL;
        memcpy(more, p->guard.blocks.data, p->guard.blocks.n * sizeof *more);
        p->guard.blocks.data = more;
        b = &more[p->guard.blocks.n++];
        *b = (struct guarded){.data = whole + MARGIN + (size_t)(-(uintptr_t)whole % MARGIN), .size = bytes};
        memset(b->data - MARGIN, MARK, MARGIN);
        memset(b->data + bytes, MARK, MARGIN);
    }
    b->used = true;
    memset(b->data, MARK, bytes); /* what is read before it was written is no zero */
    return b->data;
}

void guard_release(void *user, void *data, size_t bytes)
{
    struct prove *p = user;
    (void)bytes;
    for (uint32_t i = 0; i < p->guard.blocks.n; i++)
        if (p->guard.blocks.data[i].data == data)
            p->guard.blocks.data[i].used = false;
}

static bool is_marked(const unsigned char *at)
{
    for (size_t i = 0; i < MARGIN; i++)
        if (at[i] != MARK)
            return false;
    return true;
}

bool guard_holds(const struct guard *g)
{
    for (uint32_t i = 0; i < g->blocks.n; i++)
        if (!is_marked(g->blocks.data[i].data - MARGIN) || !is_marked(g->blocks.data[i].data + g->blocks.data[i].size))
            return false;
    return true;
}
