/* --tile NODE=BxAxV: register tiles that the user asks for, from the options to the module, and what became of them. */
#include <stdio.h>
#include <string.h>

#include "cli/compile.h"
#include "passes/kernel.h"

enum { TILE_MOST = 64 };

bool tile_wishes_read(struct compilation *c)
{
    struct module *m = c->module;
    for (uint32_t i = 0; i < c->options->tiles.items.n; i++) {
        const char *text = c->options->tiles.items.data[i], *sign = strrchr(text, '=');
        struct tile_wish w = {0};
        int used = 0;
        if (!sign || sign == text || sscanf(sign, "=%2ux%2ux%2u%n", &w.tb, &w.ta, &w.nr, &used) != 3 || sign[used])
            return error_at(c->ctx, FAIL_USAGE, (src_id){0}, NULL, "--tile '%s': NODE=BxAxV is rows x points x vectors, as in conv1=1x6x4", text);
        if (!w.tb || !w.ta || !w.nr || w.tb > TILE_MOST || w.ta > TILE_MOST || w.nr > TILE_MOST)
            return error_at(c->ctx, FAIL_USAGE, (src_id){0}, NULL, "--tile '%s': from 1 to %d each", text, TILE_MOST);
        w.node = arena_strndup(m->arena, text, (size_t)(sign - text));
        VEC_PUSH(m->arena, &m->tile_wishes, w);
    }
    return true;
}

void tile_wishes_check(struct compilation *c)
{
    const struct module *m = c->module;
    for (uint32_t i = 0; i < m->tile_wishes.n; i++) {
        const struct tile_wish *w = &m->tile_wishes.data[i];
        bool later = false;      /* the same node again: that one counted */
        for (uint32_t j = i + 1; j < m->tile_wishes.n; j++)
            later |= !strcmp(m->tile_wishes.data[j].node, w->node);
        if (!w->met && !later)
            warn_at(c->ctx, (src_id){0}, "tile", "no kernel computes '%s' by register tiles: --tile says nothing here "
                    "(-Rpass-analysis=schedule names those that do)", w->node);
    }
}
