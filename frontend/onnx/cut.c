/* Cutting an ONNX file down: some of its nodes as a file of their own, every kept byte as it was.
 *
 * The file's wire format (wire.h) is read here directly, one level at a time, since the importer's decoded form has
 * lost what it does not need.
 */
#include "frontend/onnx/gather.h"
#include "frontend/onnx/hooks.h"
#include "frontend/onnx/wire.h"

struct cut_tensor {
    struct span bytes;
    const char *name;
    uint32_t field;
};
struct cut_file {
    struct context *ctx;
    struct span model, graph;
    VEC(struct wire_node) nodes;
    VEC(struct cut_tensor) tensors;
    struct text_list outputs;
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void read_tensor(struct cut_file *c, const struct field *f)
{
    struct arena *arena = &c->ctx->session;
    struct span body = f->body;
    struct field part;
    struct cut_tensor t = {f->whole, "", f->number};
    if (f->number == 15 && (!next_field(&body, &part) || part.number != 1))
        return;
    t.name = text_field(arena, f->number == 15 ? part.body : f->body, 8);
    VEC_PUSH(arena, &c->tensors, t);
}

static struct cut_file *cut_open(struct context *ctx, const char *path, const struct import_options *options,
                                 struct file_list *files)
{
    struct cut_file *c = NEW(&ctx->session, struct cut_file);
    struct field f;
    c->ctx = ctx;
    if (!file_gather(ctx, path, options, files, &c->model))
        return NULL;
    for (struct span s = c->model; next_field(&s, &f);)
        if (f.number == 7 && f.wire == WIRE_BYTES)
            c->graph = f.body;
    for (struct span s = c->graph; next_field(&s, &f);) {
        struct wire_node node;
        if (f.number == 1) {
            wire_node_read(&ctx->session, f.body, &node);
            VEC_PUSH(&ctx->session, &c->nodes, node);
        } else if (f.number == 5 || f.number == 15) {
            read_tensor(c, &f);
        } else if (f.number == 12) {
            VEC_PUSH(&ctx->session, &c->outputs.items, text_field(&ctx->session, f.body, 1));
        }
    }
    return c;
}

static uint32_t cut_n_nodes(const struct cut_file *c)
{
    return c->nodes.n;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* A set of names by hash: a collision would only make a candidate that the command refuses. */
struct name_set {
    uint64_t *slot;
    uint64_t mask;
};

static struct name_set set_new(struct arena *arena, size_t most)
{
    uint64_t size = 16;
    while (size < 2 * most)
        size *= 2;
    return (struct name_set){NEW_ARRAY(arena, uint64_t, size), size - 1};
}

/* Adds name when `add`; was it there? */
static bool set_has(struct name_set *s, const char *name, bool add)
{
    uint64_t hash = hash_bytes(name, strlen(name)) | 1, i = hash >> 8 & s->mask;
    for (; s->slot[i]; i = (i + 1) & s->mask)
        if (s->slot[i] == hash)
            return true;
    if (add)
        s->slot[i] = hash;
    return false;
}

struct writing {
    const struct cut_file *c;
    const bool *keep;
    struct name_set made, used, stored, ports;
    struct strbuf graph;
};

static void collect_names(struct writing *w, struct arena *arena)
{
    size_t n = w->c->tensors.n + 1;
    for (uint32_t i = 0; i < w->c->nodes.n; i++)
        n += w->c->nodes.data[i].in.items.n + w->c->nodes.data[i].out.items.n;
    w->made = set_new(arena, n);
    w->used = set_new(arena, n);
    w->stored = set_new(arena, n);
    w->ports = set_new(arena, n);
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct wire_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->in.items.n; k++)
            set_has(&w->used, node->in.items.data[k], true);
        for (uint32_t k = 0; w->keep[i] && k < node->out.items.n; k++)
            set_has(&w->made, node->out.items.data[k], true);
    }
    for (uint32_t i = 0; i < w->c->tensors.n; i++)
        set_has(&w->stored, w->c->tensors.data[i].name, true);
}

static bool put_inputs(struct writing *w, cut_type_fn *type_of, void *user)
{
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct wire_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->in.items.n; k++) {
            const char *name = node->in.items.data[k];
            struct cut_type type;
            if (set_has(&w->made, name, false) || set_has(&w->stored, name, false) || set_has(&w->ports, name, true))
                continue;
            if (!type_of(user, name, &type))
                return false;
            put_port(&w->graph, 11, name, &type);
        }
    }
    return true;
}

/* What was an output, and what nothing that is kept reads. */
static bool put_outputs(struct writing *w, cut_type_fn *type_of, void *user)
{
    int64_t open_dims[RANK_MAX];
    uint32_t n = 0;
    for (int32_t d = 0; d < RANK_MAX; d++)
        open_dims[d] = -1;
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct wire_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->out.items.n; k++) {
            const char *name = node->out.items.data[k];
            struct cut_type type;
            if ((set_has(&w->used, name, false) && !text_list_has(&w->c->outputs, name)) || !type_of(user, name, &type))
                continue;
            type.dims = open_dims;      /* smaller inputs change them */
            put_port(&w->graph, 12, name, &type);
            n++;
        }
    }
    return n > 0;
}

static bool cut_write(const struct cut_file *c, const bool *keep, cut_type_fn *type_of, void *user, struct strbuf *out)
{
    struct writing w = {.c = c, .keep = keep};
    struct field f;
    strbuf_init(&w.graph, out->arena);
    collect_names(&w, out->arena);
    for (uint32_t i = 0; i < c->nodes.n; i++)
        if (keep[i])
            put_bytes(&w.graph, 1, c->nodes.data[i].bytes.data, c->nodes.data[i].bytes.size);
    put_bytes(&w.graph, 2, "reduced", strlen("reduced"));
    for (uint32_t i = 0; i < c->tensors.n; i++)
        if (set_has(&w.used, c->tensors.data[i].name, false))
            strbuf_append(&w.graph, c->tensors.data[i].bytes.data, c->tensors.data[i].bytes.size);
    if (!put_inputs(&w, type_of, user) || !put_outputs(&w, type_of, user))
        return false;
    for (struct span s = c->model; next_field(&s, &f);)
        if (f.number != 7)
            strbuf_append(out, f.whole.data, f.whole.size);
    put_bytes(out, 7, w.graph.data, w.graph.n);
    return true;
}

const struct cutter onnx_cutter = {cut_open, cut_n_nodes, cut_write};
