/* .pt2 file -> imported graph: the archive, the signature of the program, its inputs and outputs.
 *
 * Which records there are says which layout the file has, never its version. All records lie in one folder of any name.
 */
#include "frontend/pt2/pt2.h"

#include "ir/base/file.h"

enum { SCHEMA_MAJOR = 8 };
static const int64_t ARCHIVE_MAX = (int64_t)1 << 40;

/* ---- records --------------------------------------------------------------------------------------------------- */

bool pt2_record(struct pt2 *p, const char *name, struct span *out)
{
    struct zip_record *r = zip_find(&p->zip, arena_printf(&p->scratch, "%s%s", p->root, name));
    if (!r)
        return pt2_refuse(p, "the archive has no record '%s': save the program again", name);
    return zip_read(&p->zip, r, out);
}

static struct json *pt2_json(struct pt2 *p, const char *name)
{
    struct span bytes;
    if (!pt2_record(p, name, &bytes))
        return NULL;
    char *text = arena_alloc(&p->scratch, bytes.size + 1);
    memcpy(text, bytes.data, bytes.size);
    return json_parse(p->ctx, &p->scratch, text, bytes.size, arena_printf(&p->scratch, "record '%s'", name));
}

static bool record_is(const struct pt2 *p, const char *name, const char *end)
{
    size_t root = strlen(p->root), n = strlen(name), k = strlen(end);
    return n >= root + k && strncmp(name, p->root, root) == 0 && strcmp(name + n - k, end) == 0;
}

/* The folder that holds everything: up to the first slash of the first record. */
static void root_find(struct pt2 *p)
{
    const char *first = p->zip.n ? p->zip.records[0].name : "", *slash = strchr(first, '/');
    size_t n = slash ? (size_t)(slash - first + 1) : 0;
    for (uint32_t i = 0; i < p->zip.n && n; i++)
        if (strncmp(p->zip.records[i].name, first, n) != 0)
            n = 0;
    p->root = arena_strndup(&p->scratch, first, n);
}

#define FLAT_PROGRAM "serialized_exported_program.json" /* PyTorch 2.7 and older */

/* The name of the one program: NAME of models/NAME.json. NULL after a diagnostic. */
static const char *program_find(struct pt2 *p)
{
    const char *found = NULL, *folder = arena_printf(&p->scratch, "%smodels/", p->root);
    size_t n = strlen(folder);
    bool script = false, pickle = false;
    for (uint32_t i = 0; i < p->zip.n; i++) {
        const char *name = p->zip.records[i].name;
        script |= record_is(p, name, "constants.pkl");
        pickle |= record_is(p, name, "data.pkl");
        if (strncmp(name, folder, n) != 0 || !record_is(p, name, ".json"))
            continue;
        const char *program = arena_strndup(&p->scratch, name + n, strlen(name) - n - 5);
        if (!found || strcmp(program, "model") == 0)
            found = program;
    }
    if (found)
        return found;
    p->flat = zip_find(&p->zip, arena_printf(&p->scratch, "%s" FLAT_PROGRAM, p->root)) != NULL;
    if (p->flat)
        return FLAT_PROGRAM;
    if (script)
        pt2_refuse(p, "this is a TorchScript program; save what torch.export.export gives, with torch.export.save");
    else if (pickle)
        pt2_refuse(
            p,
            "this file has weights or objects of torch.save, and no program; save what torch.export.export gives, with "
            "torch.export.save");
    else
        pt2_refuse(p, "this is a zip archive without a program (models/NAME.json); save one with torch.export.save");
    return NULL;
}

static bool byteorder_check(struct pt2 *p)
{
    struct span order;
    if (!zip_find(&p->zip, arena_printf(&p->scratch, "%sbyteorder", p->root)))
        return true;
    if (!pt2_record(p, "byteorder", &order))
        return false;
    return (order.size == 6 && memcmp(order.data, "little", 6) == 0) ||
           pt2_refuse(p,
                      "the weights are not of little-endian byte order: save the program on a little-endian machine");
}

/* The table of where weights or constants lie; drafts of the format gave it another name. */
static bool config_read(struct pt2 *p, const char *folder, const char *program, const char *const ends[2],
                        struct names *table)
{
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = arena_printf(&p->scratch, "data/%s/%s%s", folder, program, ends[i]);
        if (!zip_find(&p->zip, arena_printf(&p->scratch, "%s%s", p->root, name)))
            continue;
        p->tables[table == &p->constants] = name;
        const struct json *config = json_get(pt2_json(p, name), "config");
        for (const struct json *e = json_first(config); e; e = e->next) {
            VEC_PUSH(&p->scratch, &p->entries, e);
            state_path(p, table == &p->constants, e);
            if (e->key)
                name_bind(table, e->key, (value_id){p->entries.n - 1}, 0);
        }
        return json_is(config, JSON_OBJECT) || p->ctx->n_errors || pt2_refuse(p, "record '%s' has no 'config'", name);
    }
    const char *pickled = p->flat
                              ? arena_printf(&p->scratch, "serialized_%s.pt", *folder == 'w' ? "state_dict" : folder)
                              : arena_printf(&p->scratch, "data/%s/%s.pt", folder, program);
    if (!zip_find(&p->zip, arena_printf(&p->scratch, "%s%s", p->root, pickled)))
        return true;
    p->tables[table == &p->constants] = pickled;
    return pickle_import(p, pickled, &p->inside[table == &p->constants], table);
}

static bool program_read(struct pt2 *p)
{
    static const char *const weights[] = {"_weights_config.json", "_model_param_config.json"};
    static const char *const constants[] = {"_constants_config.json", "_model_constants_config.json"};
    const char *program = program_find(p);
    int64_t major;
    if (!program || !byteorder_check(p))
        return false;
    p->record = p->flat ? program : arena_printf(&p->scratch, "models/%s.json", program);
    p->program = pt2_json(p, p->record);
    if (!p->program)
        return false;
    if (!json_as_int(json_get(json_get(p->program, "schema_version"), "major"), &major))
        return pt2_refuse(p, "the program has no schema_version");
    if (major != SCHEMA_MAJOR)
        return pt2_refuse(
            p,
            "schema version %lld of torch.export, this mcc reads %d: export again with PyTorch 2.9 or later, or "
            "use a newer mcc",
            (long long)major, SCHEMA_MAJOR);
    p->graph = json_get(json_get(p->program, "graph_module"), "graph");
    return (json_is(p->graph, JSON_OBJECT) || pt2_refuse(p, "the program has no graph")) &&
           config_read(p, "weights", program, weights, &p->weights) &&
           config_read(p, "constants", program, constants, &p->constants);
}

/* ---- the signature ---------------------------------------------------------------------------------------------- */

const struct json *pt2_specs(const struct pt2 *p, const char *which)
{
    return json_first(json_get(json_get(json_get(p->program, "graph_module"), "signature"), which));
}

const char *pt2_spec_value(const struct json *spec)
{
    const struct json *arg = json_get(json_only(spec), "arg");
    const char *name = json_as_text(json_get(arg, "name"));
    return name ? name : json_as_text(json_get(json_only(arg), "name"));
}

const char *pt2_spec_owner(const struct json *spec)
{
    static const char *const keys[] = {"parameter_name", "buffer_name", "tensor_constant_name", "user_input_name"};
    const char *name = NULL;
    for (uint32_t i = 0; i < COUNT_OF(keys) && !name; i++)
        name = json_as_text(json_get(json_only(spec), keys[i]));
    return name;
}

/* ---- inputs ---------------------------------------------------------------------------------------------------- */

static const char *name_of(const struct json *arg)
{
    const char *name = json_as_text(json_get(arg, "name"));
    return name ? name : json_as_text(json_get(json_get(arg, "as_tensor"), "name"));
}

static void metas_bind(struct pt2 *p, const struct json *metas, struct names *names)
{
    for (const struct json *m = json_first(metas); m; m = m->next) {
        VEC_PUSH(&p->scratch, &p->meta_list, m);
        if (m->key)
            name_bind(names, m->key, (value_id){p->meta_list.n - 1}, 0);
    }
}

void pt2_metas(struct pt2 *p, const struct json *graph)
{
    metas_bind(p, json_get(graph, "tensor_values"), &p->metas);
    metas_bind(p, json_get(graph, "sym_int_values"), &p->numbers);
}

/* Complex numbers are two real ones, within the graph alone. */
static bool border_check(struct pt2 *p, const char *name, const struct type *type)
{
    return type->elem == ELEM_NONE || elem_class(type->elem) != 'C' ||
           error_at(
               p->ctx, FAIL_MODEL, (src_id){0}, name,
               "an input or output is of complex numbers: give the program the pairs of torch.view_as_real, and use "
               "view_as_complex and view_as_real within");
}

static bool user_input(struct pt2 *p, const char *name)
{
    const struct binding *b = name_lookup(&p->metas, name);
    struct type *type = NEW(&p->g->arena, struct type);
    if (!b)
        return pt2_refuse(p, "the file does not say what input '%s' is", name);
    if (!meta_type(p, p->meta_list.data[b->value.i], name, true, type) || !border_check(p, name, type))
        return false;
    const char *own = arena_strdup(&p->ctx->session, name);
    value_id v = graph_param(p->g, (region_id){1}, *type, own);
    struct port port = {own, type, v};
    VEC_PUSH(&p->g->arena, &p->g->inputs, port);
    uint32_t index = value_add(p, name, v);
    state_root(p, index, KEPT_INPUT, own);
    return true;
}

/* Written weights, whose ports come after all others. */
struct late {
    const char *name, *value;
    bool constant;
};
struct lates {
    VEC(struct late) list;
};

static bool weight(struct pt2 *p, const struct json *spec, const char *key, const char *kind, struct lates *lates)
{
    const char *name = name_of(json_get(spec, "arg")), *of = json_as_text(json_get(spec, key));
    const struct json *persistent = json_get(spec, "persistent");
    bool constant = strcmp(kind, "constant") == 0 || (json_is(persistent, JSON_BOOL) && !persistent->u.truth);
    if (!name || !of)
        return pt2_refuse(p, "a %s of the program's signature has no name", kind);
    if (name_lookup(&p->names, name))
        return pt2_refuse(p, "two inputs of the program are called '%s'", name);
    if (state_is_written(p, of)) {
        struct late late = {of, name, constant};
        VEC_PUSH(&p->scratch, &lates->list, late);
        return true;
    }
    value_id v = weight_import(p, constant ? &p->constants : &p->weights, constant ? "constants" : "weights", of);
    state_root(p, value_add(p, name, v), KEPT_WEIGHT, of);
    return v.i;
}

static bool input_import(struct pt2 *p, const struct json *spec, struct lates *lates)
{
    const struct json *u = json_only(spec);
    const char *kind = u ? u->key : "";
    if (strcmp(kind, "parameter") == 0)
        return weight(p, u, "parameter_name", kind, lates);
    if (strcmp(kind, "buffer") == 0)
        return weight(p, u, "buffer_name", kind, lates);
    if (strcmp(kind, "tensor_constant") == 0)
        return weight(p, u, "tensor_constant_name", "constant", lates);
    if (strcmp(kind, "constant_input") == 0)
        return true; /* the graph was traced with its value */
    const char *name = name_of(json_get(u, "arg"));
    if (strcmp(kind, "user_input") != 0)
        return pt2_refuse(p, "an input of kind '%.40s' is not supported: give the program tensors", kind);
    if (name)
        return name_lookup(&p->names, name) ? pt2_refuse(p, "two inputs of the program are called '%s'", name)
                                            : user_input(p, name);
    const struct json *arg = json_only(json_get(u, "arg"));
    return (arg && strncmp(arg->key, "as_sym", 6) != 0 && strcmp(arg->key, "as_custom_obj") != 0) ||
           pt2_refuse(p, "an input of the program is not a tensor: give it the number as a tensor of rank 0");
}

static bool inputs_import(struct pt2 *p)
{
    const struct json *specs = json_get(json_get(json_get(p->program, "graph_module"), "signature"), "input_specs");
    struct lates lates = {0};
    bool ok = true;
    if (!json_is(specs, JSON_LIST))
        return pt2_refuse(p, "the program has no signature");
    for (const struct json *s = json_first(specs); s; s = s->next)
        ok = input_import(p, s, &lates) && ok;
    for (uint32_t i = 0; ok && i < lates.list.n; i++)
        ok = state_input(p, lates.list.data[i].name, lates.list.data[i].value, lates.list.data[i].constant);
    return ok;
}

/* ---- outputs --------------------------------------------------------------------------------------------------- */

/* Leaves of the tree of results, named by the way to them: "logits", "past.0.1"; "output" where there is one alone. */
struct leaves {
    struct pt2 *p;
    VEC(const char *) names;
};

static void leaves_read(struct leaves *l, const struct json *spec, const char *path, uint32_t depth)
{
    const struct json *children = json_get(spec, "children_spec"), *keys = NULL;
    struct arena *scratch = &l->p->scratch;
    const char *type = json_as_text(json_get(spec, "type")), *context = json_as_text(json_get(spec, "context"));
    uint32_t i = 0;
    if (!type || depth > 20) {
        VEC_PUSH(scratch, &l->names, *path ? path : "output");
        return;
    }
    if (context && (*context == '[' || *context == '{')) {
        struct diag_mark mark = diag_mark(l->p->ctx);
        keys = json_parse(l->p->ctx, scratch, arena_strdup(scratch, context), strlen(context), "a tree of results");
        diag_drop(l->p->ctx, &mark); /* a context of another kind: no keys */
    }
    if (json_is(keys, JSON_OBJECT))
        keys = json_get(keys, "keys");
    const struct json *key = json_first(keys);
    for (const struct json *c = json_first(children); c; c = c->next, i++) {
        const char *step = json_as_text(key) ? json_as_text(key) : arena_printf(scratch, "%u", i);
        leaves_read(l, c,
                    *path               ? arena_printf(scratch, "%s.%s", path, step)
                    : json_as_text(key) ? step
                                        : arena_printf(scratch, "output.%s", step),
                    depth + 1);
        key = key ? key->next : NULL;
    }
}

/* The names of the outputs by the program's own tree, as many as there are; NULL: the file does not say. */
static const char *const *output_names(struct pt2 *p, uint32_t n)
{
    const struct json *calls = json_get(json_get(p->program, "graph_module"), "module_call_graph");
    const char *text = json_as_text(json_get(json_get(json_first(calls), "signature"), "out_spec"));
    struct leaves l = {.p = p};
    if (!text)
        return NULL;
    const struct json *spec = json_parse(p->ctx, &p->scratch, arena_strdup(&p->scratch, text), strlen(text),
                                         "out_spec");
    const struct json *tree = json_first(spec) ? json_first(spec)->next : NULL;
    if (tree)
        leaves_read(&l, tree, "", 0);
    return l.names.n == n ? l.names.data : NULL;
}

static bool output_add(struct pt2 *p, const char *value, const char *name)
{
    const struct binding *b = name_lookup(&p->metas, value);
    struct type *type = NEW(&p->g->arena, struct type);
    uint32_t index;
    *type = (struct type){.kind = TYPE_UNKNOWN, .rank = RANK_UNKNOWN};
    value_id v = value_now(p, value, (src_id){0}, &index);
    if (!v.i || (b && !meta_type(p, p->meta_list.data[b->value.i], value, true, type)) || !border_check(p, name, type))
        return false;
    if (name_lookup(&p->ports, name))
        return pt2_refuse(p, "two outputs are called '%s'", name);
    name_bind(&p->ports, name, v, 0);
    struct port port = {arena_strdup(&p->ctx->session, name), type, v};
    VEC_PUSH(&p->g->arena, &p->g->outputs, port);
    graph_add_result(p->g, (region_id){1}, v);
    return true;
}

static bool outputs_import(struct pt2 *p)
{
    const struct json *specs = json_get(json_get(json_get(p->program, "graph_module"), "signature"), "output_specs");
    uint32_t n = 0, at = 0;
    for (const struct json *s = json_first(specs); s; s = s->next)
        n += json_get(s, "user_output") != NULL;
    const char *const *names = output_names(p, n);
    for (const struct json *s = json_first(specs); s; s = s->next) {
        const struct json *u = json_only(s), *arg = json_get(u, "arg");
        if (state_is_listed(s)) {
            if (!state_output(p, s, name_of(arg), (src_id){0}))
                return false;
            continue;
        }
        if (!u || strcmp(u->key, "user_output") != 0)
            return pt2_refuse(p, "an output of kind '%.40s' (of '%.60s') is not supported: give the program tensors",
                              u ? u->key : "", name_of(arg) ? name_of(arg) : "");
        const char *value = name_of(arg), *symbol = json_as_text(json_get(json_get(arg, "as_sym_int"), "as_name"));
        value = value ? value : symbol;
        if (value && !output_add(p, value, names ? names[at] : value))
            return false;
        at++; /* what is not a tensor was constant when the program was traced */
    }
    return states_output(p) && (p->g->outputs.n > 0 || pt2_refuse(p, "the program has no tensor as output"));
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static void program_begin(struct pt2 *p)
{
    p->g = graph_new(p->ctx);
    p->g->name = "model";
    p->region = (region_id){1};
    p->again = false;
    p->n_imported = 0;
    p->values.n = p->storages.n = p->kept.n = 0;
    names_init(&p->names, &p->scratch);
    names_init(&p->metas, &p->scratch);
    names_init(&p->numbers, &p->scratch);
    names_init(&p->ports, &p->scratch);
    names_init(&p->kept_names[0], &p->scratch);
    names_init(&p->kept_names[1], &p->scratch);
    VEC_PUSH(&p->scratch, &p->values, (struct pt2_value){0});
    VEC_PUSH(&p->g->arena, &p->g->opsets, ((struct opset){"aten", 1}));
    pt2_metas(p, p->graph);
}

static bool program_import(struct pt2 *p)
{
    if (!symbols_import(p))
        return false;
    states_listed(p);
    uint32_t sources = p->ctx->sources.n;
    struct diag_mark mark = diag_mark(p->ctx);
    for (;;) {
        program_begin(p);
        if (!inputs_import(p) || (guards_import(p), !pt2_nodes(p, p->graph)) || !outputs_import(p))
            return false;
        if (!p->again)
            return true;
        graph_free(p->g);
        p->ctx->sources.n = sources;
        diag_drop(p->ctx, &mark);
    }
}

static bool archive_read(struct pt2 *p, const char *path)
{
    struct file_bytes file;
    enum file_status status = file_whole(p->ctx, path, ARCHIVE_MAX, &file);
    if (status == FILE_LARGE)
        return pt2_refuse(p, "the file has %zu bytes, the limit is %lld", file.size, (long long)ARCHIVE_MAX);
    if (status == FILE_FAILED)
        return file.why && error_env(p->ctx, "cannot read the file: %s", file.why);
    p->inflate_left = 32 * (int64_t)file.size + p->ctx->limits.import_heap;
    p->zip = (struct zip){
        .ctx = p->ctx, .what = "the archive", .data = (uint8_t *)(uintptr_t)file.data, .size = file.size};
    p->zip.inflate_left = &p->inflate_left;
    if (!zip_open(&p->zip, &p->scratch))
        return false;
    root_find(p);
    return true;
}

bool pt2_open(struct pt2 *p, struct context *ctx, const char *path, struct file_list *files)
{
    *p = (struct pt2){.ctx = ctx};
    if (files)
        VEC_PUSH(&ctx->session, &files->paths, arena_strdup(&ctx->session, path));
    arena_init(&p->scratch, ctx);
    struct names *tables[] = {&p->symbols,   &p->inputs,   &p->written,  &p->metas,  &p->numbers,
                              &p->constants, &p->paths[0], &p->paths[1], &p->weights};
    for (size_t i = 0; i < COUNT_OF(tables); i++)
        names_init(tables[i], &p->scratch);
    return archive_read(p, path) && program_read(p);
}

bool pt2_unmoved(struct pt2 *p, const char *path)
{
    struct file_bytes file;
    if (!zip_is_short(&p->zip))
        return pt2_refuse(p, "archives of 2 GB or of 65,535 records cannot be written: export the network to ONNX");
    if (!p->inside[0].root && !p->inside[1].root)
        return true;
    if (file_whole(p->ctx, path, (int64_t)p->zip.size, &file) != FILE_OK || file.size != p->zip.size)
        return error_env(p->ctx, "the file changed while it was read");
    p->zip.data = (uint8_t *)(uintptr_t)file.data;
    for (uint32_t i = 0; i < p->zip.n; i++)
        p->zip.records[i].open = false;
    return true;
}

struct graph *pt2_import(struct context *ctx, const char *path, const struct import_options *options,
                         struct file_list *files)
{
    struct pt2 p;
    uint32_t before = ctx->n_errors;
    if (options && options->n_overridable) {
        error_at(ctx, FAIL_USAGE, (src_id){0}, options->overridable[0],
                 "the parameters of a .pt2 file cannot be overridden");
        return NULL;
    }
    bool ok = pt2_open(&p, ctx, path, files) && program_import(&p);
    arena_release(&p.scratch);
    return ok && ctx->n_errors == before ? p.g : NULL;
}
