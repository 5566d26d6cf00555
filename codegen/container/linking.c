/* What formats have in common (container.h): objects before they have a format, archives, what the linker gets. */
#include "codegen/container/container.h"

#include <stdio.h>

#include "codegen/container/bytes.h"
#include "codegen/rt_objects.h"

/* ---- objects ---- */

void object_init(struct object *o, struct arena *arena)
{
    *o = (struct object){.arena = arena};
    for (int s = SECTION_RODATA; s < SECTIONS; s++)
        strbuf_init(&o->bytes[s], arena);
}

uint64_t object_put(struct object *o, enum section section, const void *data, size_t size, size_t align)
{
    struct strbuf *b = &o->bytes[section];
    put_aligned(b, align);
    uint64_t at = b->n;
    strbuf_append(b, data, size);
    return at;
}

void object_define(struct object *o, const char *name, enum section section, uint64_t offset, uint64_t size)
{
    VEC_PUSH(o->arena, &o->symbols, ((struct object_symbol){name, offset, size, section}));
}

uint32_t object_undefined(struct object *o, const char *name)
{
    for (uint32_t i = 0; i < o->symbols.n; i++)
        if (!o->symbols.data[i].section && strcmp(o->symbols.data[i].name, name) == 0)
            return SECTIONS + i;
    VEC_PUSH(o->arena, &o->symbols, ((struct object_symbol){.name = name}));
    return SECTIONS + o->symbols.n - 1;
}

void object_pointer(struct object *o, uint64_t at, uint32_t symbol, uint64_t addend)
{
    VEC_PUSH(o->arena, &o->pointers, ((struct object_pointer){at, symbol, addend}));
}

struct span archive_of(struct arena *arena, const struct span *members, uint32_t n)
{
    struct strbuf out = strbuf_of(arena);
    strbuf_append(&out, "!<arch>\n", 8);
    for (uint32_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "m%u.o/", i);
        strbuf_printf(&out, "%-16s%-12d%-6d%-6d%-8s%-10zu`\n", name, 0, 0, 0, "644", members[i].size);
        strbuf_append(&out, members[i].data, members[i].size);
        if (members[i].size % 2)
            strbuf_append(&out, "\n", 1);
    }
    return (struct span){out.data, out.n};
}

struct span archive_head(struct arena *arena, const char *symbol, uint64_t member_size)
{
    size_t index = 8 + strlen(symbol) + 1, room = (index + 63) & ~(size_t)63;
    uint32_t at = (uint32_t)(8 + 60 + room);
    struct strbuf out = strbuf_of(arena);
    strbuf_printf(&out, "!<arch>\n%-16s%-12d%-6d%-6d%-8s%-10zu`\n", "/", 0, 0, 0, "0", room);
    put_big(&out, 1, 4);
    put_big(&out, at, 4);
    put_name(&out, symbol);
    put_up_to(&out, at);
    strbuf_printf(&out, "%-16s%-12d%-6d%-6d%-8s%-10llu`\n", "model.o/", 0, 0, 0, "644",
                  (unsigned long long)member_size);
    return (struct span){out.data, out.n};
}

/* ---- linking ---- */

void linking_option(struct linking *l, const char *option)
{
    strbuf_append(&l->options, option, strlen(option) + 1);
}

void linking_options(struct linking *l, const char *const *options, size_t n)
{
    for (size_t i = 0; i < n; i++)
        linking_option(l, options[i]);
}

void linking_file(struct linking *l, const char *option, struct span file)
{
    linking_option(l, arena_printf(l->arena, "%s%%", option));
    VEC_PUSH(l->arena, &l->files, file);
}

struct span *linking_runtime(struct linking *l, uint32_t *n)
{
    uint32_t count = 0;
    while (rt_objects[count].arch)
        count++;
    struct span *members = NEW_ARRAY(l->arena, struct span, count + 1);
    *n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rt_objects[i].arch, l->platform->runtime) == 0)
            members[(*n)++] = (struct span){rt_objects[i].data, (size_t)(rt_objects[i].end - rt_objects[i].data)};
    return members;
}

struct span *linking_units(struct linking *l, uint32_t *n,
                           void (*alias)(struct linking *, const char *name, const char *of))
{
    struct span *members = NEW_ARRAY(l->arena, struct span, l->n_units + 1);
    *n = 0;
    members[(*n)++] = l->table;
    for (uint32_t i = 0; i < l->n_units; i++) {
        const struct codegen_unit *same = l->units[i].same;
        if (same)
            alias(l, l->units[i].symbol, same->symbol);
        else
            members[(*n)++] = l->units[i].object;
    }
    return members;
}
