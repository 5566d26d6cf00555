/* The weights sidecar's table of tensors, as safetensors has it: name, type, shape, first and last byte of each.
 *
 * A tensor stored row-major keeps its shape; a packed one (blocks, panels, broadcast dims that take no room) is a list
 * of its stored elements. What lies between tensors is named too, since the format allows no holes.
 */
#include "cli/library/compile/backend.h"
#include "cli/library/json.h"

/* The format's name of a type; NULL: stored as bytes. */
static const char *type_name(enum elem elem)
{
    static const char *const names[ELEM_COUNT] = {
        [ELEM_F32] = "F32",   [ELEM_F64] = "F64",          [ELEM_F16] = "F16",        [ELEM_BF16] = "BF16",
        [ELEM_I8] = "I8",     [ELEM_I16] = "I16",          [ELEM_I32] = "I32",        [ELEM_I64] = "I64",
        [ELEM_U8] = "U8",     [ELEM_U16] = "U16",          [ELEM_U32] = "U32",        [ELEM_U64] = "U64",
        [ELEM_BOOL] = "BOOL", [ELEM_F8E4M3FN] = "F8_E4M3", [ELEM_F8E5M2] = "F8_E5M2",
    };
    return names[elem];
}

struct listing {
    struct module *m;
    struct strbuf text;
    uint64_t *hash;              /* of the names so far */
    uint32_t n, n_pads;
};

static void put_range(struct listing *l, uint64_t from, uint64_t to)
{
    strbuf_printf(&l->text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)from, (unsigned long long)to);
}

static void put_padding(struct listing *l, uint64_t from, uint64_t to)
{
    if (from == to)
        return;
    strbuf_printf(&l->text, ",\"__padding_%u\":{\"dtype\":\"U8\",\"shape\":[%llu", l->n_pads++,
                  (unsigned long long)(to - from));
    put_range(l, from, to);
}

/* The tensor's name in the model; nameless ones and second ones of a name get their number. */
static const char *unique_name(struct listing *l, const struct weight *w)
{
    const char *name = graph_value(l->m->g, w->value)->name;
    bool taken = !name || !*name || strncmp(name, "__", 2) == 0;
    for (;;) {
        if (taken)
            name = arena_printf(l->m->arena, "%s.%u", name ? name : "constant", l->n);
        uint64_t hash = hash_bytes(name, strlen(name));
        taken = false;
        for (uint32_t i = 0; i < l->n && !taken; i++)
            taken = l->hash[i] == hash;
        if (!taken) {
            l->hash[l->n++] = hash;
            return name;
        }
    }
}

static void put_weight(struct listing *l, const struct weight *w)
{
    const struct type *t = value_type(l->m->g, w->value);
    const char *type = type_name(t->elem);
    int64_t elements = 1, n = 0;
    strbuf_append(&l->text, ",", 1);
    json_string(&l->text, unique_name(l, w));
    strbuf_printf(&l->text, ":{\"dtype\":\"%s\",\"shape\":[", type ? type : "U8");
    bool plain = type && weight_is_dense(l->m, w);
    for (int32_t d = 0; plain && d < t->rank; d++) {
        ex_is_const(l->m->ctx->exprs, t->dims[d], &n);
        elements *= n;
    }
    if (plain && (uint64_t)elements * elem_size(t->elem) == w->bytes) {
        for (int32_t d = 0; d < t->rank; d++) {
            ex_is_const(l->m->ctx->exprs, t->dims[d], &n);
            strbuf_printf(&l->text, d ? ",%lld" : "%lld", (long long)n);
        }
    } else {
        strbuf_printf(&l->text, "%llu", (unsigned long long)(w->bytes / (type ? elem_size(t->elem) : 1)));
    }
    put_range(l, w->offset, w->offset + w->bytes);
}

struct span sidecar_entries(struct module *m)
{
    struct listing l = {.m = m, .hash = NEW_ARRAY(m->arena, uint64_t, m->plan.weights.n + 1)};
    uint64_t at = 0;
    strbuf_init(&l.text, m->arena);
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        const struct weight *w = &m->plan.weights.data[i];
        put_padding(&l, at, w->offset);
        put_weight(&l, w);
        at = w->offset + w->bytes;
    }
    put_padding(&l, at, m->plan.weights_bytes);
    return (struct span){l.text.data ? l.text.data : "", l.text.n};
}
