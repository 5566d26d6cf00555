/* Writing an edited .pt2 file: the members of the archive that the edits are about, and all others as they are. */
#include "frontend/pt2/edit.h"

struct editing {
    const struct edit_file *e;
    struct arena *arena;
    struct strbuf *json;
    struct names read; /* values that are read after the edits */
    VEC(const struct edit_constant *) changed; /* of the file's constants */
    VEC(const struct edit_constant *) added;
    struct names now; /* constants that have other values, or are new -> index */
};

static bool is_in(struct names *names, const char *name)
{
    return name_lookup(names, name) != NULL;
}

static void put_in(struct names *names, const char *name)
{
    if (!is_in(names, name))
        name_bind(names, name, (value_id){1}, 0);
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static void reads_collect(struct editing *w)
{
    const struct edit_file *e = w->e;
    for (uint32_t i = 0; i < e->nodes.n; i++)
        for (uint32_t k = 0; k < e->nodes.data[i].slots.n; k++) {
            const char *shown = e->nodes.data[i].in[k];
            put_in(&w->read, *shown ? shown : json_as_text(e->nodes.data[i].slots.data[k].text));
        }
    for (uint32_t i = 0; i < e->added.n; i++)
        for (int k = 0; k < 2; k++)
            put_in(&w->read, e->added.data[i].in[k]);
    for (uint32_t i = 0; i < e->outputs.n; i++)
        put_in(&w->read, e->outputs.data[i]);
}

/* Was it read by the file's nodes, and is no longer? */
static bool is_gone(struct editing *w, const char *name)
{
    const struct edit_value *v = edit_value(w->e, name);
    return v && v->owner && v->reads && v->last != UINT32_MAX && !is_in(&w->read, name);
}

static void constants_collect(struct editing *w)
{
    const struct edit_file *e = w->e;
    for (int pass = 0; pass < 2; pass++) /* edits come before what opening has folded */
        for (uint32_t i = pass ? e->folded.n : e->constants.n; i-- > 0;) {
            const struct edit_constant *c = pass ? &e->folded.data[i] : &e->constants.data[i];
            if (is_in(&w->now, c->name) || !is_in(&w->read, c->name))
                continue;
            put_in(&w->now, c->name);
            if (edit_value(e, c->name))
                VEC_PUSH(w->arena, &w->changed, c);
            else
                VEC_PUSH(w->arena, &w->added, c);
        }
}

static const struct edit_constant *changed_of(struct editing *w, const char *name)
{
    for (uint32_t i = 0; i < w->changed.n; i++)
        if (strcmp(w->changed.data[i]->name, name) == 0)
            return w->changed.data[i];
    return NULL;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void sizes_put(struct strbuf *out, const int64_t *n, int32_t rank)
{
    strbuf_printf(out, "[");
    for (int32_t d = 0; d < rank; d++)
        strbuf_printf(out, "%s{\"as_int\":%lld}", d ? "," : "", (long long)n[d]);
    strbuf_printf(out, "]");
}

/* A packed tensor of that type. */
static void tensor_put(struct strbuf *out, enum elem elem, const struct tensor_data *t, bool trained)
{
    int64_t strides[RANK_MAX], step = 1;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        strides[d] = step;
        step *= t->dims[d];
    }
    strbuf_printf(out, "{\"dtype\":%lld,\"sizes\":", (long long)elem_torch(elem));
    sizes_put(out, t->dims, t->rank);
    strbuf_printf(out, ",\"requires_grad\":%s,\"device\":{\"type\":\"cpu\",\"index\":null},\"strides\":",
                  trained ? "true" : "false");
    sizes_put(out, strides, t->rank);
    strbuf_printf(out, ",\"storage_offset\":{\"as_int\":0},\"layout\":7}");
}

static bool is_trained(const struct json *meta)
{
    const struct json *grad = json_get(meta, "requires_grad");
    return json_is(grad, JSON_BOOL) && grad->u.truth;
}

/* What the file says of another tensor, with that type. */
static void like_put(struct strbuf *out, const struct json *like, enum elem elem)
{
    strbuf_printf(out, "{");
    for (const struct json *m = json_first(like); m; m = m->next) {
        json_key_put(out, m->key);
        if (strcmp(m->key, "dtype") == 0)
            strbuf_printf(out, "%lld", (long long)elem_torch(elem));
        else
            json_put(out, m);
    }
    strbuf_printf(out, "}");
}

static void values_put(void *user, const struct json *old)
{
    struct editing *w = user;
    strbuf_printf(w->json, "{");
    for (const struct json *m = json_first(old); m; m = m->next) {
        const struct edit_constant *c = changed_of(w, m->key);
        if (is_gone(w, m->key))
            continue;
        json_key_put(w->json, m->key);
        if (c)
            tensor_put(w->json, c->data.elem, &c->data, is_trained(m));
        else
            json_put(w->json, m);
    }
    for (uint32_t i = 0; i < w->added.n; i++) {
        json_key_put(w->json, w->added.data[i]->name);
        tensor_put(w->json, w->added.data[i]->data.elem, &w->added.data[i]->data, false);
    }
    for (uint32_t i = 0; i < w->e->metas.n; i++) {
        const struct edit_meta *m = &w->e->metas.data[i];
        json_key_put(w->json, m->name);
        if (m->data)
            tensor_put(w->json, m->elem, m->data, false);
        else
            like_put(w->json, edit_meta(w->e, m->like), m->elem);
    }
    strbuf_printf(w->json, "}");
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static void added_put(struct editing *w, uint32_t before)
{
    for (uint32_t i = 0; i < w->e->added.n; i++)
        if (w->e->added.data[i].before == before) {
            json_comma_put(w->json);
            strbuf_append(w->json, w->e->added.data[i].json.data, w->e->added.data[i].json.n);
        }
}

/* Puts the names of operands into the file's own tree, from which the node is written. */
static void operands_set(const struct edit_file_node *n)
{
    for (uint32_t k = 0; k < n->slots.n; k++) {
        const struct edit_slot *s = &n->slots.data[k];
        if (s->optional)
            s->optional->u.first = *n->in[k] ? s->present : s->absent;
        if (*n->in[k] || s->optional)
            s->text->u.text = n->in[k];
    }
}

static void nodes_put(void *user, const struct json *old)
{
    struct editing *w = user;
    (void)old;
    for (uint32_t i = 0; i < w->e->nodes.n; i++)
        operands_set(&w->e->nodes.data[i]);
    strbuf_printf(w->json, "[");
    for (uint32_t i = 0; i < w->e->nodes.n; i++) {
        const struct edit_file_node *n = &w->e->nodes.data[i];
        added_put(w, i);
        if (n->gone)
            continue;
        json_comma_put(w->json);
        strbuf_printf(w->json, "{");
        for (const struct json *m = json_first(n->json); m; m = m->next) {
            json_key_put(w->json, m->key);
            if (n->pure && strcmp(m->key, "target") == 0)
                strbuf_printf(w->json, "\"torch.ops.%s.%s\"", n->domain, n->op);
            else
                json_put(w->json, m);
        }
        strbuf_printf(w->json, "}");
    }
    added_put(w, w->e->nodes.n);
    strbuf_printf(w->json, "]");
}

static void name_put(struct strbuf *out, const char *before, const char *name, const char *after)
{
    json_comma_put(out);
    strbuf_printf(out, "%s{\"name\":", before);
    json_text_put(out, name);
    strbuf_printf(out, "}%s", after);
}

/* The file's inputs that are left, in which the new constants stand in front of the program's own. The lists of inputs
 * and of what they are run side by side. */
static void inputs_put_as(struct editing *w, const struct json *old, bool specs)
{
    const struct json *spec = pt2_specs(&w->e->p, "input_specs"), *item = json_first(old);
    bool put = false;
    strbuf_printf(w->json, "[");
    for (;; spec = spec->next, item = item->next) {
        if (!put && (!spec || json_get(spec, "user_input"))) {
            for (uint32_t i = 0; i < w->added.n; i++) {
                const char *name = w->added.data[i]->name;
                name_put(w->json, specs ? "{\"buffer\":{\"arg\":" : "{\"as_tensor\":", name,
                         specs ? ",\"buffer_name\":" : "}");
                if (specs) {
                    json_text_put(w->json, name);
                    strbuf_printf(w->json, ",\"persistent\":true}}");
                }
            }
            put = true;
        }
        if (!spec || !item)
            break;
        if (!pt2_spec_value(spec) || !is_gone(w, pt2_spec_value(spec)))
            json_put(w->json, item);
    }
    strbuf_printf(w->json, "]");
}

static void inputs_put(void *user, const struct json *old)
{
    inputs_put_as(user, old, false);
}

static void in_specs_put(void *user, const struct json *old)
{
    inputs_put_as(user, old, true);
}

static void outputs_put_as(struct editing *w, const struct json *old, const char *before, const char *after)
{
    strbuf_printf(w->json, "[");
    for (const struct json *o = json_first(old); o; o = o->next)
        json_put(w->json, o);
    for (uint32_t i = 0; i < w->e->outputs.n; i++)
        name_put(w->json, before, w->e->outputs.data[i], after);
    strbuf_printf(w->json, "]");
}

static void outputs_put(void *user, const struct json *old)
{
    outputs_put_as(user, old, "{\"as_tensor\":", "}");
}

static void out_specs_put(void *user, const struct json *old)
{
    outputs_put_as(user, old, "{\"user_output\":{\"arg\":{\"as_tensor\":", "}}}");
}

/* The tree of results does not have the outputs that were added: they all have the names of values then. */
static void calls_put(void *user, const struct json *old)
{
    struct editing *w = user;
    if (w->e->outputs.n)
        strbuf_printf(w->json, "[]");
    else
        json_put(w->json, old);
}

static const struct json_member members[] = {
    {"graph", "inputs", inputs_put},
    {"graph", "outputs", outputs_put},
    {"graph", "nodes", nodes_put},
    {"graph", "tensor_values", values_put},
    {"signature", "input_specs", in_specs_put},
    {"signature", "output_specs", out_specs_put},
    {"graph_module", "module_call_graph", calls_put},
    {"", "graph_module", NULL},
    {"graph_module", "graph", NULL},
    {"graph_module", "signature", NULL},
};

/* ---- the archive ------------------------------------------------------------------------------------------------- */

/* An archive that is written in place of another one: the file, or the one of torch.save within a record of it. */
struct store {
    struct editing *w;
    struct zip_writer zip;
    const struct zip *from;
    const char *root;
    const char *folder, *prefix; /* of records of weights: below the root, and of their paths below the folder */
    struct names used, unused; /* records below the root that are needed, and that something else stands for */
    uint32_t n_new;
};

static void store_begin(struct store *s, struct editing *w, const struct zip *from, const char *root,
                        struct strbuf *out)
{
    *s = (struct store){.w = w, .zip = {.out = out}, .from = from, .root = root};
    strbuf_init(&s->zip.directory, w->arena);
    names_init(&s->used, w->arena);
    names_init(&s->unused, w->arena);
}

/* A record in place of the one of that name, or a new one. */
static void store_put(struct store *s, const char *name, struct span bytes)
{
    put_in(&s->unused, name);
    zip_store(&s->zip, arena_printf(s->w->arena, "%s%s", s->root, name), bytes);
}

/* With all other records. */
static void store_end(struct store *s)
{
    for (uint32_t i = 0; i < s->from->n; i++) {
        const char *name = s->from->records[i].name + strlen(s->root);
        if (is_in(&s->used, name) || !is_in(&s->unused, name))
            zip_copy(&s->zip, s->from, &s->from->records[i]);
    }
    zip_end(&s->zip);
}

static void entry_put(struct store *s, struct strbuf *config, const char *owner, const struct edit_constant *c,
                      const struct json *old)
{
    const struct json *is_param = json_get(old, "is_param");
    const char *path;
    do
        path = arena_printf(s->w->arena, "%s%u", s->prefix, s->n_new++);
    while (zip_find(s->from, arena_printf(s->w->arena, "%s%s%s", s->root, s->folder, path)));
    store_put(s, arena_printf(s->w->arena, "%s%s", s->folder, path), c->data.bytes);
    json_key_put(config, owner);
    strbuf_printf(config, "{\"path_name\":\"%s\",\"is_param\":%s,\"use_pickle\":false,\"tensor_meta\":", path,
                  json_is(is_param, JSON_BOOL) && is_param->u.truth ? "true" : "false");
    tensor_put(config, c->data.elem, &c->data, is_trained(json_get(old, "tensor_meta")));
    strbuf_printf(config, "}");
}

/* The table of weights or constants, with the records of what is new. */
static void table_put(struct store *s, bool constants, struct names *owners, struct strbuf *config)
{
    const struct edit_file *e = s->w->e;
    struct names *table = (struct names *)(uintptr_t)(constants ? &e->p.constants : &e->p.weights);
    strbuf_printf(config, "{\"config\":{");
    for (uint32_t i = 0; i < e->p.entries.n; i++) {
        const struct json *entry = e->p.entries.data[i];
        const struct binding *b = entry->key ? name_lookup(table, entry->key) : NULL, *owner;
        const char *path = json_as_text(json_get(entry, "path_name"));
        if (!b || b->value.i != i)
            continue;
        owner = name_lookup(owners, entry->key);
        const struct edit_value *v = owner ? &e->values.data[owner->value.i] : NULL;
        v = v && v->constant == constants ? v : NULL;
        const struct edit_constant *now = v ? changed_of(s->w, v->name) : NULL;
        bool kept = !now && !(v && is_gone(s->w, v->name));
        if (path)
            put_in(kept ? &s->used : &s->unused, arena_printf(s->w->arena, "%s%s", s->folder, path));
        if (now) {
            entry_put(s, config, entry->key, now, entry);
        } else if (kept) {
            json_key_put(config, entry->key);
            json_put(config, entry);
        }
    }
    for (uint32_t i = 0; !constants && i < s->w->added.n; i++)
        entry_put(s, config, s->w->added.data[i]->name, s->w->added.data[i], NULL);
    strbuf_printf(config, "}}");
}

/* The record that holds the table: JSON beside the weights, or an archive with a pickle and the weights. */
static void tables_put(struct store *file, bool constants, struct names *owners)
{
    const struct pt2 *p = &file->w->e->p;
    const struct pt2_inside *inside = &p->inside[constants];
    const char *name = p->tables[constants];
    struct strbuf config = strbuf_of(file->w->arena);
    if (name && inside->root) {
        struct strbuf archive, pickle;
        struct store s;
        strbuf_init(&archive, file->w->arena);
        strbuf_init(&pickle, file->w->arena);
        store_begin(&s, file->w, &inside->zip, inside->root, &archive);
        s.folder = "";
        s.prefix = "data/";
        table_put(&s, constants, owners, &config);
        pickle_put(&pickle, inside, json_parse(p->ctx, file->w->arena, config.data, config.n, "the table of weights"));
        store_put(&s, "data.pkl", (struct span){pickle.data, pickle.n});
        store_end(&s);
        store_put(file, name, (struct span){archive.data, archive.n});
        return;
    }
    file->folder = constants ? "data/constants/" : "data/weights/";
    file->prefix = "weight_";
    table_put(file, constants, owners, &config);
    if (!name && !constants) { /* models/NAME.json has data/weights/NAME_weights_config.json */
        const char *program = p->record + strlen("models/");
        name = arena_printf(file->w->arena, "data/weights/%.*s_weights_config.json", (int)strlen(program) - 5, program);
    }
    if (name)
        store_put(file, name, (struct span){config.data, config.n});
}

void edit_write(const struct edit_file *e, struct strbuf *out)
{
    struct strbuf json;
    struct names owners; /* parameters, buffers and constants of the signature -> the value's index */
    struct editing w = {.e = e, .arena = out->arena, .json = &json};
    struct store file;
    names_init(&w.read, w.arena);
    names_init(&w.now, w.arena);
    names_init(&owners, w.arena);
    strbuf_init(&json, w.arena);
    reads_collect(&w);
    constants_collect(&w);
    for (uint32_t i = 1; i < e->values.n; i++)
        if (e->values.data[i].owner)
            name_bind(&owners, e->values.data[i].owner, (value_id){i}, 0);
    json_put_with(&json, e->p.program, members, COUNT_OF(members), &w);
    store_begin(&file, &w, &e->p.zip, e->p.root, out);
    store_put(&file, e->p.record, (struct span){json.data, json.n});
    for (int k = 0; k < 2; k++)
        tables_put(&file, k, &owners);
    store_end(&file);
}
