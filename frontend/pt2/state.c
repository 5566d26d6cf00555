/* What a program writes and outlives the run: inputs, and weights, which are then its state.
 *
 * A weight that is written is not a constant but an input of the graph, the port after those of the program's own,
 * whose new value is an output; the artifact's context keeps it. Which ones are written is known when all nodes have
 * been read, or before that, if the file lists them: so a program with state may be imported twice. An input that is
 * written gets an output as well, of the same name.
 */
#include "frontend/pt2/pt2.h"

static struct pt2_kept *kept_find(struct pt2 *p, const char *name, bool input)
{
    const struct binding *b = name ? name_lookup(&p->kept_names[input], name) : NULL;
    return b ? &p->kept.data[b->value.i] : NULL;
}

void state_root(struct pt2 *p, uint32_t index, enum kept_kind kind, const char *name)
{
    struct pt2_kept kept = {.kind = kind, .name = name, .root = index, .first = p->values.data[index].v};
    VEC_PUSH(&p->scratch, &p->kept, kept);
    if (!kept_find(p, name, kind == KEPT_INPUT))
        name_bind(&p->kept_names[kind == KEPT_INPUT], name, (value_id){p->kept.n - 1}, 0);
    p->storages.data[p->values.data[index].storage] = (struct pt2_storage){.kind = STORAGE_KEPT, .kept = p->kept.n - 1};
}

bool state_is_written(struct pt2 *p, const char *name)
{
    return name_lookup(&p->written, name) != NULL;
}

static void state_mark(struct pt2 *p, const char *name)
{
    if (!state_is_written(p, name))
        name_bind(&p->written, name, (value_id){1}, 0);
}

void state_write(struct pt2 *p, const struct pt2_storage *s)
{
    const struct pt2_kept *kept = &p->kept.data[s->kept];
    if (kept->kind != KEPT_WEIGHT)
        return;
    state_mark(p, kept->name);
    p->again = true;
}

/* ---- what the file lists ----------------------------------------------------------------------------------------- */

static const struct json *output_specs(const struct pt2 *p)
{
    return json_get(json_get(json_get(p->program, "graph_module"), "signature"), "output_specs");
}

/* Of a specification of an output: the name of what it is the new value of; NULL: of nothing. */
static const char *mutated_by(const struct json *spec, bool *input)
{
    static const char *const kinds[][2] = {{"buffer_mutation", "buffer_name"},
                                           {"parameter_mutation", "parameter_name"},
                                           {"user_input_mutation", "user_input_name"}};
    const struct json *u = json_only(spec);
    const char *const *kind = u ? ROW_NAMED(kinds, COUNT_OF(kinds), u->key) : NULL;
    *input = kind == kinds[2];
    return kind ? json_as_text(json_get(u, kind[1])) : NULL;
}

void states_listed(struct pt2 *p)
{
    bool input;
    for (const struct json *s = json_first(output_specs(p)); s; s = s->next) {
        const char *name = mutated_by(s, &input);
        if (name && !input)
            state_mark(p, name);
    }
}

bool state_output(struct pt2 *p, const struct json *spec, const char *value, src_id src)
{
    bool input = false;
    const char *name = mutated_by(spec, &input);
    struct pt2_kept *kept = kept_find(p, name, input);
    if (!kept || !value)
        return error_model(p->ctx, src, "an output is the new value of '%.60s', which the program does not have",
                           name ? name : "");
    kept->final = value_now(p, value, src, &(uint32_t){0});
    return kept->final.i;
}

bool state_is_listed(const struct json *spec)
{
    bool input;
    return mutated_by(spec, &input) != NULL;
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

void state_path(struct pt2 *p, bool constant, const struct json *entry)
{
    const char *path = json_as_text(json_get(entry, "path_name"));
    struct binding *b = path ? name_lookup(&p->paths[constant], path) : NULL;
    if (b)
        b->value.i++;
    else if (path)
        name_bind(&p->paths[constant], path, (value_id){1}, 0);
}

static bool is_shared(struct pt2 *p, bool constant, const char *name)
{
    const struct binding *b = name_lookup(constant ? &p->constants : &p->weights, name);
    const char *path = b ? json_as_text(json_get(p->entries.data[b->value.i], "path_name")) : NULL;
    return path && name_lookup(&p->paths[constant], path)->value.i > 1;
}

bool state_input(struct pt2 *p, const char *name, const char *value, bool constant)
{
    struct graph_state state = {0};
    struct type *type = NEW(&p->g->arena, struct type);
    if (is_shared(p, constant, name))
        return pt2_refuse(
            p,
            "'%s' is written and shares its memory with another parameter: give it its own (clone()) and export again",
            name);
    if (!weight_bytes(p, constant, name, &state.initial))
        return false;
    expr_id *dims = NEW_ARRAY(&p->g->arena, expr_id, state.initial.rank + 1);
    for (int32_t i = 0; i < state.initial.rank; i++)
        dims[i] = ex_const(p->ctx->exprs, state.initial.dims[i]);
    *type = (struct type){.kind = TYPE_TENSOR, .elem = state.initial.elem, .rank = state.initial.rank, .dims = dims};
    const char *own = state.initial.name = arena_strdup(&p->ctx->session, name);
    value_id v = graph_param(p->g, (region_id){1}, *type, own);
    struct port port = {own, type, v};
    VEC_PUSH(&p->g->arena, &p->g->inputs, port);
    VEC_PUSH(&p->g->arena, &p->g->states, state);
    state_root(p, value_add(p, value, v), KEPT_STATE, own);
    return true;
}

static void port_add(struct pt2 *p, const struct pt2_kept *kept, value_id v, const char *name)
{
    struct type *type = NEW(&p->g->arena, struct type);
    *type = *value_type(p->g, kept->first);
    struct port port = {arena_strdup(&p->ctx->session, name), type, v};
    VEC_PUSH(&p->g->arena, &p->g->outputs, port);
    graph_add_result(p->g, (region_id){1}, v);
}

bool states_output(struct pt2 *p)
{
    for (int kind = KEPT_INPUT; kind <= KEPT_STATE; kind++)
        for (uint32_t i = 0; i < p->kept.n; i++) {
            const struct pt2_kept *kept = &p->kept.data[i];
            const struct pt2_value *root = &p->values.data[kept->root];
            if (kept->kind != (enum kept_kind)kind ||
                (kind == KEPT_INPUT && !kept->final.i && !p->storages.data[root->storage].version))
                continue;
            if (!kept->final.i && !value_refresh(p, kept->root, (src_id){0}))
                return false;
            const char *name = kept->name;
            while (kind == KEPT_INPUT && name_lookup(&p->ports, name))
                name = arena_printf(&p->scratch, "%s.written", name);
            if (kind == KEPT_INPUT)
                name_bind(&p->ports, name, root->v, 0);
            port_add(p, kept, kept->final.i ? kept->final : root->v, name);
        }
    return true;
}
