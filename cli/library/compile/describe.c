/* What a WebAssembly module says of itself: JSON for its loader (runtime/mcc.mjs), for `mcc inspect` and for hosts of
 * their own.
 */
#include "cli/library/compile/header.h"
#include "cli/library/json.h"
#include "codegen/container/wasm.h"

/* JavaScript's typed array of such elements. */
static const char *array_of(struct arena *arena, enum elem elem)
{
    int64_t bits = 8 * elem_size(elem);
    if (elem == ELEM_F32 || elem == ELEM_F64)
        return elem == ELEM_F32 ? "Float32Array" : "Float64Array";
    bool is_signed = elem_class(elem) == 'I';
    return arena_printf(arena, "%s%s%lldArray", bits == 64 ? "Big" : "", is_signed ? "Int" : "Uint", (long long)bits);
}

static void put_port(struct json *j, const struct artifact *a, const struct art_port *p)
{
    JSON_GROUP(j, NULL, "{", j_text("name", p->name), j_text("type", elem_name(p->elem)),
               j_text("array", array_of(j->out->arena, p->elem)), j_int("bytes", elem_size(p->elem)));
    json_open(j, "dims", '[');
    for (int32_t d = 0; d < p->rank; d++) {
        const mcc_dim *dim = &p->dims[d];
        if (dim->extent >= 0)
            json_int(j, NULL, dim->extent);
        else
            json_text(j, NULL, dim->extent == -1 ? a->sym[dim->symbol].name : dim->expr);
    }
    json_close(j, "]}");
}

static void put_symbol(struct json *j, const struct art_symbol *s)
{
    JSON_GROUP(j, NULL, "{}", j_text("name", s->name), j_int("min", s->min),
               j_int("max", s->max ? s->max : WASM_NO_MAX), j_int("step", s->step));
}

struct span describe(struct compilation *c, const struct artifact *a, const struct description *d)
{
    struct strbuf *out = NEW(&c->ctx->session, struct strbuf);
    struct json json = {.out = out}, *j = &json;
    strbuf_init(out, &c->ctx->session);
    JSON_GROUP(j, NULL, "{", j_text("name", a->name), j_text("compiler", a->compiler), j_text("target", a->features),
               j_text("entry", d->entry), j_text("plan", d->plan), j_int("scratch", d->scratch),
               j_int("plan_symbols", a->n_sym), j_uint("weights", a->weights.size));
    if (d->stack)
        json_uint(j, "stack", d->stack);
    json_open(j, "build", '[');
    for (struct span left = a->build; left.size;) {
        const char *text = left.data;
        size_t n = strlen(text) + 1;
        json_text(j, NULL, text);
        left = (struct span){text + n, left.size - n};
    }
    json_close(j, "]");
    json_open(j, "symbols", '[');
    for (uint32_t i = 0; i < a->n_sym; i++)
        if (d->takes[i])
            put_symbol(j, &a->sym[i]);
    json_close(j, "]");
    json_open(j, "inputs", '[');
    for (uint32_t i = 0; i < a->n_in; i++)
        put_port(j, a, &a->in[i]);
    json_close(j, "]");
    json_open(j, "outputs", '[');
    for (uint32_t i = 0; i < a->n_out; i++)
        put_port(j, a, &a->out[i]);
    json_close(j, "]}");
    return (struct span){out->data, out->n};
}
