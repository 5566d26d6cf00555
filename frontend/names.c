/* Interning by open addressing; scopes as a stack of bindings, each remembering what it hid. */
#include "frontend/names.h"

void names_init(struct names *n, struct arena *arena)
{
    *n = (struct names){.arena = arena};
    VEC_PUSH(arena, &n->list, (struct name){0});
    VEC_PUSH(arena, &n->bindings, (struct binding){0});
}

static uint32_t *slot_find(const struct names *n, const char *text, uint64_t hash)
{
    uint32_t mask = n->n_slots - 1;
    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        const struct name *name = &n->list.data[n->slots[i]];
        if (!n->slots[i] || (name->hash == hash && strcmp(name->text, text) == 0))
            return &n->slots[i];
    }
}

static void slots_grow(struct names *n)
{
    n->n_slots = n->n_slots ? n->n_slots * 2 : 64;
    n->slots = NEW_ARRAY(n->arena, uint32_t, n->n_slots);
    for (uint32_t i = 1; i < n->list.n; i++)
        *slot_find(n, n->list.data[i].text, n->list.data[i].hash) = i;
}

uint32_t name_intern(struct names *n, const char *text)
{
    if (2 * n->list.n >= n->n_slots)
        slots_grow(n);
    uint64_t hash = hash_bytes(text, strlen(text));
    uint32_t *slot = slot_find(n, text, hash);
    if (!*slot) {
        VEC_PUSH(n->arena, &n->list, ((struct name){.text = text, .hash = hash}));
        *slot = n->list.n - 1;
    }
    return *slot;
}

struct name *name_get(struct names *n, uint32_t i)
{
    return &n->list.data[i];
}

struct binding *name_lookup(struct names *n, const char *text)
{
    uint32_t i = n->n_slots ? *slot_find(n, text, hash_bytes(text, strlen(text))) : 0;
    uint32_t top = i ? n->list.data[i].top : 0;
    return top ? &n->bindings.data[top] : NULL;
}

void scope_open(struct names *n)
{
    n->scope++;
}

void scope_close(struct names *n)
{
    while (n->bindings.n > 1 && n->bindings.data[n->bindings.n - 1].scope == n->scope) {
        const struct binding *b = &n->bindings.data[--n->bindings.n];
        n->list.data[b->name].top = b->below;
    }
    n->scope--;
}

struct binding *name_bind(struct names *n, const char *text, value_id value, uint32_t producer)
{
    uint32_t i = name_intern(n, text);
    struct binding b = {i, n->list.data[i].top, n->scope, producer, value};
    VEC_PUSH(n->arena, &n->bindings, b);
    n->list.data[i].top = n->bindings.n - 1;
    return &n->bindings.data[n->bindings.n - 1];
}
