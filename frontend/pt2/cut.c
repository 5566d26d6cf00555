/* Cutting a .pt2 file down: some of its nodes as a program of their own (mcc reduce).
 *
 * The program's JSON is written again with the kept nodes and the inputs, weights and outputs that they need: a tensor
 * that they read and do not make becomes an input, one that they make and do not read an output. Records of weights
 * stay as they are, packed or not. While all inputs have the file's sizes, so do all other tensors; else the sizes of
 * these are left open.
 */
#include "frontend/pt2/pt2.h"

struct cut_file {
    struct pt2 p;
    VEC(const struct json *) nodes;
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static struct cut_file *cut_open(struct context *ctx, const char *path, const struct import_options *options,
                                 struct file_list *files)
{
    struct cut_file *c = NEW(&ctx->session, struct cut_file);
    struct pt2 *p = &c->p;
    (void)options;
    if (!pt2_open(p, ctx, path, files) || !pt2_unmoved(p, path))
        return NULL;
    pt2_metas(p, p->graph);
    for (const struct json *n = json_first(json_get(p->graph, "nodes")); n; n = n->next)
        VEC_PUSH(&p->scratch, &c->nodes, n);
    return c;
}

static uint32_t cut_n_nodes(const struct cut_file *c)
{
    return c->nodes.n;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* In the order in which they came. */
struct name_set {
    struct names names;
    VEC(const char *) list;
};
struct specs {
    VEC(const struct json *) list;
};

struct writing {
    struct cut_file *c;
    const bool *keep;
    cut_type_fn *type_of;
    void *user;
    struct arena *arena;
    struct strbuf json;
    struct name_set made, read; /* values of the kept nodes */
    struct name_set inputs, outputs; /* of the program as it is written; inputs: with weights */
    struct name_set fed; /* inputs that the file does not have */
    struct specs in, out; /* specifications of the file that are kept */
    struct names sizes; /* of inputs -> index into types */
    VEC(struct cut_type) types;
    bool resized; /* an input has another size than in the file */
    bool changed; /* the inputs are others, of which guards may speak */
};

static void set_init(struct name_set *s, struct arena *arena)
{
    names_init(&s->names, arena);
}

static bool set_has(struct name_set *s, const char *name)
{
    return name_lookup(&s->names, name) != NULL;
}

static void set_add(struct name_set *s, const char *name)
{
    if (set_has(s, name))
        return;
    name_bind(&s->names, name, (value_id){1}, 0);
    VEC_PUSH(s->names.arena, &s->list, name);
}

/* The values that an argument or a result names; a graph within a node has names of its own. */
static void names_add(struct name_set *s, const struct json *j)
{
    bool inner = j && j->key && strcmp(j->key, "as_graph") == 0;
    if (json_as_text(j) && j->key && (strcmp(j->key, "name") == 0 || strcmp(j->key, "as_name") == 0))
        set_add(s, json_as_text(j));
    if (!inner && (json_is(j, JSON_LIST) || json_is(j, JSON_OBJECT)))
        for (const struct json *e = json_first(j); e; e = e->next)
            names_add(s, e);
}

static const struct json *meta_of(struct writing *w, const char *name)
{
    const struct binding *b = name_lookup(&w->c->p.metas, name);
    return b ? w->c->p.meta_list.data[b->value.i] : NULL;
}

/* ---- what is kept ----------------------------------------------------------------------------------------------- */

static void nodes_collect(struct writing *w)
{
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct json *node = w->c->nodes.data[i];
        if (!w->keep[i])
            continue;
        for (const struct json *a = json_first(json_get(node, "inputs")); a; a = a->next)
            names_add(&w->read, json_get(a, "arg"));
        names_add(&w->made, json_get(node, "outputs"));
    }
}

/* Where a kept node makes the new value of a buffer or an input, that one stays, too. */
static void writes_collect(struct writing *w)
{
    for (const struct json *s = pt2_specs(&w->c->p, "output_specs"); s; s = s->next) {
        const char *owner = pt2_spec_owner(s), *value = pt2_spec_value(s);
        if (!state_is_listed(s) || !owner || !value || !set_has(&w->made, value))
            continue;
        VEC_PUSH(w->arena, &w->out.list, s);
        for (const struct json *i = pt2_specs(&w->c->p, "input_specs"); i; i = i->next)
            if (pt2_spec_value(i) && strcmp(pt2_spec_owner(i) ? pt2_spec_owner(i) : pt2_spec_value(i), owner) == 0)
                set_add(&w->read, pt2_spec_value(i));
    }
}

/* An input that is no weight, of the size that is asked for. False: the value is not a tensor. */
static bool input_size(struct writing *w, const char *name)
{
    const struct json *meta = meta_of(w, name), *sizes = json_get(meta, "sizes"), *size = json_first(sizes);
    struct cut_type type;
    int64_t n;
    if (!json_is(sizes, JSON_LIST))
        return false;
    if (!w->type_of(w->user, name, &type) || type.rank != (int32_t)sizes->n)
        return true;
    name_bind(&w->sizes, name, (value_id){w->types.n}, 0);
    VEC_PUSH(w->arena, &w->types, type);
    for (int32_t d = 0; size; d++, size = size->next)
        w->resized |= type.dims[d] >= 0 && !(json_as_int(json_get(size, "as_int"), &n) && n == type.dims[d]);
    return true;
}

static bool inputs_collect(struct writing *w)
{
    for (const struct json *s = pt2_specs(&w->c->p, "input_specs"); s; s = s->next) {
        const char *name = pt2_spec_value(s);
        bool weight = pt2_spec_owner(s) != NULL;
        w->changed |= name && !weight && !set_has(&w->read, name);
        if (!name || !set_has(&w->read, name) || set_has(&w->inputs, name))
            continue;
        VEC_PUSH(w->arena, &w->in.list, s);
        set_add(&w->inputs, name);
        if (!weight && !input_size(w, name))
            return false;
    }
    for (uint32_t i = 0; i < w->read.list.n; i++) {
        const char *name = w->read.list.data[i];
        if (set_has(&w->made, name) || set_has(&w->inputs, name))
            continue;
        set_add(&w->inputs, name);
        set_add(&w->fed, name);
        if (!input_size(w, name))
            return false;
    }
    w->changed |= w->fed.list.n > 0 || w->resized;
    return true;
}

/* Outputs of the file, and what no kept node reads. A value that the legal graph lacks is a result that nobody needs,
 * unless there are no others. */
static bool outputs_collect(struct writing *w)
{
    struct name_set own = {0};
    set_init(&own, w->arena);
    for (const struct json *s = pt2_specs(&w->c->p, "output_specs"); s; s = s->next)
        if (json_get(s, "user_output") && pt2_spec_value(s))
            set_add(&own, pt2_spec_value(s));
    for (int all = 0; all < 2 && !w->outputs.list.n; all++)
        for (uint32_t i = 0; i < w->made.list.n; i++) {
            const char *name = w->made.list.data[i];
            struct cut_type type;
            if ((!set_has(&w->read, name) || set_has(&own, name)) && meta_of(w, name) &&
                (all || w->type_of(w->user, name, &type)))
                set_add(&w->outputs, name);
        }
    return w->outputs.list.n > 0;
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

static void nothing_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    strbuf_printf(&w->json, "[]");
}

static void tensors_put(struct writing *w, const struct name_set *s, const char *before, const char *after)
{
    for (uint32_t i = 0; i < s->list.n; i++) {
        json_comma_put(&w->json);
        strbuf_printf(&w->json, "%s{\"as_tensor\":{\"name\":", before);
        json_text_put(&w->json, s->list.data[i]);
        strbuf_printf(&w->json, "}}%s", after);
    }
}

static void inputs_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    strbuf_printf(&w->json, "[");
    tensors_put(w, &w->inputs, "", "");
    strbuf_printf(&w->json, "]");
}

static void outputs_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    strbuf_printf(&w->json, "[");
    tensors_put(w, &w->outputs, "", "");
    strbuf_printf(&w->json, "]");
}

static void nodes_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    strbuf_printf(&w->json, "[");
    for (uint32_t i = 0; i < w->c->nodes.n; i++)
        if (w->keep[i])
            json_put(&w->json, w->c->nodes.data[i]);
    strbuf_printf(&w->json, "]");
}

static void size_put(struct writing *w, const struct json *size, int64_t asked, bool open)
{
    json_comma_put(&w->json);
    if (asked >= 0)
        strbuf_printf(&w->json, "{\"as_int\":%lld}", (long long)asked);
    else if (open)
        strbuf_printf(&w->json, "{\"as_expr\":{\"expr_str\":\"?\"}}"); /* which no reader knows */
    else
        json_put(&w->json, size);
}

/* Within values: the sizes of the tensor of that name. */
static void sizes_put(struct writing *w, const struct json *sizes, const char *name)
{
    const struct binding *b = name_lookup(&w->sizes, name);
    bool open = w->resized && !set_has(&w->inputs, name);
    int32_t d = 0;
    strbuf_printf(&w->json, "[");
    for (const struct json *s = json_first(sizes); s; s = s->next, d++)
        size_put(w, s, b ? w->types.data[b->value.i].dims[d] : -1, open);
    strbuf_printf(&w->json, "]");
}

static void values_put(void *user, const struct json *old)
{
    struct writing *w = user;
    strbuf_printf(&w->json, "{");
    for (const struct json *e = json_first(old); e; e = e->next) {
        if (!set_has(&w->made, e->key) && !set_has(&w->inputs, e->key))
            continue;
        json_key_put(&w->json, e->key);
        strbuf_printf(&w->json, "{");
        for (const struct json *m = json_first(e); m; m = m->next) {
            json_key_put(&w->json, m->key);
            if (strcmp(m->key, "sizes") == 0)
                sizes_put(w, m, e->key);
            else
                json_put(&w->json, m);
        }
        strbuf_printf(&w->json, "}");
    }
    strbuf_printf(&w->json, "}");
}

static void specs_put(struct writing *w, const struct specs *specs, const struct name_set *more, const char *kind)
{
    strbuf_printf(&w->json, "[");
    for (uint32_t i = 0; i < specs->list.n; i++)
        json_put(&w->json, specs->list.data[i]);
    tensors_put(w, more, arena_printf(w->arena, "{\"%s\":{\"arg\":", kind), "}}");
    strbuf_printf(&w->json, "]");
}

static void in_specs_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    specs_put(w, &w->in, &w->fed, "user_input");
}

static void out_specs_put(void *user, const struct json *old)
{
    struct writing *w = user;
    (void)old;
    specs_put(w, &w->out, &w->outputs, "user_output");
}

static void guards_put(void *user, const struct json *old)
{
    struct writing *w = user;
    if (w->changed)
        nothing_put(user, old);
    else
        json_put(&w->json, old);
}

static const struct json_member members[] = {
    {"graph", "inputs", inputs_put},
    {"graph", "outputs", outputs_put},
    {"graph", "nodes", nodes_put},
    {"graph", "tensor_values", values_put},
    {"signature", "input_specs", in_specs_put},
    {"signature", "output_specs", out_specs_put},
    {"graph_module", "module_call_graph", nothing_put},
    {"", "guards_code", guards_put},
    {"", "graph_module", NULL},
    {"graph_module", "graph", NULL},
    {"graph_module", "signature", NULL},
};

/* ---- the file --------------------------------------------------------------------------------------------------- */

/* Records of weights and constants of the kept inputs, below the root; `config`: their table. */
static void weights_collect(struct writing *w, bool constants, struct name_set *records, struct strbuf *config)
{
    struct pt2 *p = &w->c->p;
    strbuf_printf(config, "{\"config\":{");
    for (uint32_t i = 0; i < w->in.list.n; i++) {
        const char *owner = pt2_spec_owner(w->in.list.data[i]);
        const struct binding *b = owner ? name_lookup(constants ? &p->constants : &p->weights, owner) : NULL;
        const struct json *entry = b ? p->entries.data[b->value.i] : NULL;
        const char *path = json_as_text(json_get(entry, "path_name"));
        if (!path)
            continue;
        json_key_put(config, owner);
        json_put(config, entry);
        set_add(records, arena_printf(w->arena, "data/%s/%s", constants ? "constants" : "weights", path));
    }
    strbuf_printf(config, "}}");
}

static void records_put(struct writing *w, struct strbuf *out)
{
    static const char *const others[] = {"archive_format", "archive_version", "byteorder", ".data/version", "version"};
    struct pt2 *p = &w->c->p;
    struct zip_writer z = {.out = out};
    struct strbuf configs[2];
    struct name_set copied = {0};
    set_init(&copied, w->arena);
    strbuf_init(&z.directory, w->arena);
    for (uint32_t i = 0; i < COUNT_OF(others); i++)
        set_add(&copied, others[i]);
    for (int k = 0; k < 2; k++) {
        strbuf_init(&configs[k], w->arena);
        weights_collect(w, k, &copied, &configs[k]);
        if (p->inside[k].root)
            set_add(&copied, p->tables[k]); /* pickled: whole */
        else if (p->tables[k])
            zip_store(&z, arena_printf(w->arena, "%s%s", p->root, p->tables[k]),
                      (struct span){configs[k].data, configs[k].n});
    }
    zip_store(&z, arena_printf(w->arena, "%s%s", p->root, p->record), (struct span){w->json.data, w->json.n});
    for (uint32_t i = 0; i < p->zip.n; i++)
        if (set_has(&copied, p->zip.records[i].name + strlen(p->root)))
            zip_copy(&z, &p->zip, &p->zip.records[i]);
    zip_end(&z);
}

static bool cut_write(const struct cut_file *c, const bool *keep, cut_type_fn *type_of, void *user, struct strbuf *out)
{
    struct writing w = {
        .c = (struct cut_file *)(uintptr_t)c, .keep = keep, .type_of = type_of, .user = user, .arena = out->arena};
    struct name_set *sets[] = {&w.made, &w.read, &w.inputs, &w.outputs, &w.fed};
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        set_init(sets[i], w.arena);
    names_init(&w.sizes, w.arena);
    strbuf_init(&w.json, w.arena);
    nodes_collect(&w);
    writes_collect(&w);
    if (!inputs_collect(&w) || !outputs_collect(&w))
        return false;
    json_put_with(&w.json, c->p.program, members, COUNT_OF(members), &w);
    records_put(&w, out);
    return true;
}

const struct cutter pt2_cutter = {cut_open, cut_n_nodes, cut_write};
