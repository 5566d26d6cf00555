/* What the kernels of one run store: see capture.h. */
#include "cli/commands/compare/capture.h"

#include "ir/eval/eval.h"
#include "runtime/rt_internal.h"

struct stored {
    const char *base;
    uint32_t size;
    int32_t rank;
    const int64_t *dims;
    int64_t outer[RANK_MAX], inner[RANK_MAX], block[RANK_MAX], origin;
};

static const void *stored_address(const struct stored *s, int64_t i)
{
    int64_t at = s->origin;
    for (int32_t d = s->rank - 1; d >= 0; d--) {
        int64_t k = i % s->dims[d];
        i /= s->dims[d];
        at += s->block[d] ? k / s->block[d] * s->outer[d] + k % s->block[d] * s->inner[d] : k * s->outer[d];
    }
    return s->base + at * (int64_t)s->size;
}

/* Copies n elements in row-major order. */
static void stored_read(const struct stored *s, int64_t n, char *to)
{
    const int32_t last = s->rank - 1;
    const int64_t row = last >= 0 && !s->block[last] ? s->dims[last] : 1;
    const int64_t step = row > 1 ? s->outer[last] * (int64_t)s->size : 0;
    for (int64_t i = 0; i < n; i += row) {
        const char *from = stored_address(s, i);
        for (int64_t k = 0; k < row && s->size == sizeof(uint32_t); k++, to += sizeof(uint32_t))
            memcpy(to, from + k * step, sizeof(uint32_t));
        for (int64_t k = 0; k < row && s->size != sizeof(uint32_t); k++, to += s->size)
            memcpy(to, from + k * step, s->size);
    }
}

bool capture_number(const struct capture *d, expr_id e, int64_t *out)
{
    const struct exprs *x = d->c.ctx->exprs;
    return ex_uses_only(x, e, d->known) && ex_eval(x, e, d->symbols, out);
}

static void learn(struct capture *d, sym_id s, int64_t value)
{
    d->known[s.i] = true;
    d->symbols[s.i] = value;
}

/* The symbols that elements of v stand for, of n that lie at `data` one after the other. */
static void learn_elements(struct capture *d, value_id v, const void *data, int64_t n)
{
    struct exprs *x = d->c.ctx->exprs;
    const enum elem elem = value_type(d->c.graph, v)->elem;
    for (sym_id y = sym_next(x, SYM_VALUE, (sym_id){0}); y.i; y = sym_next(x, SYM_VALUE, y)) {
        const struct symbol *s = sym_get(x, y);
        if (s->value == v.i && s->elem < n)
            learn(d, y, elem_to_i64(elem, (const char *)data + s->elem * (size_t)elem_size(elem)));
    }
}

/* The arguments of the launch that the host hears of; NULL: there is none. */
static const int64_t *launch_args(const struct capture *d)
{
    const struct mcc_ctx *ctx = d->s.api->state ? *(const struct mcc_ctx **)(void *)d->s.run : d->s.run;
    return ctx->run.seen ? ctx->run.seen->args : NULL;
}

/* The only symbol of the expression that is not known; {0}: there is none, or another one. */
static sym_id unknown_in(const struct capture *d, expr_id e)
{
    struct exprs *x = d->c.ctx->exprs;
    sym_id found = {0};
    for (sym_id y = e.i ? sym_next(x, SYM_VALUE, (sym_id){0}) : (sym_id){0}; y.i; y = sym_next(x, SYM_VALUE, y)) {
        if (d->known[y.i] || !ex_uses(x, e, y))
            continue;
        if (found.i)
            return (sym_id){0};
        found = y;
    }
    return found;
}

/* Has each of the launch's sizes that depends on no other unknown symbol than s the value that s gives it? */
static bool fits_arguments(const struct capture *d, const int64_t *args, sym_id s)
{
    int64_t value;
    for (uint32_t i = 0; i < d->code->args.n; i++) {
        const expr_id e = d->code->args.data[i].size;
        if (unknown_in(d, e).i == s.i && (!ex_eval(d->c.ctx->exprs, e, d->symbols, &value) || value != args[i]))
            return false;
    }
    return true;
}

/* Sizes that the program passes to the kernel that it launches, or of which it passes whole vectors and a rest. */
static void learn_arguments(struct capture *d)
{
    enum { TRIED = 1024 };
    const int64_t *args = launch_args(d);
    for (uint32_t i = 0; args && d->code && i < d->code->args.n; i++) {
        const expr_id e = d->code->args.data[i].size;
        const sym_id s = unknown_in(d, e);
        if (!s.i)
            continue;
        d->symbols[s.i] = 0;
        while (ex_as_sym(d->c.ctx->exprs, e).i != s.i && d->symbols[s.i] < TRIED && !fits_arguments(d, args, s))
            d->symbols[s.i]++;
        if (ex_as_sym(d->c.ctx->exprs, e).i == s.i)
            learn(d, s, args[i]);
        else if (d->symbols[s.i] < TRIED)
            learn(d, s, d->symbols[s.i]);
    }
}

/* Where the kernel that runs was told to store v; NULL: it does not. */
static const char *argument_of(const struct capture *d, value_id v)
{
    const int64_t *args = launch_args(d);
    for (uint32_t i = 0; args && d->code && i < d->code->args.n; i++)
        if (d->code->args.data[i].value.i == v.i && !d->code->args.data[i].start.i)
            return (const char *)(intptr_t)args[i];
    return NULL;
}

static struct arena *arena_of(const struct capture *d)
{
    return d->arena ? d->arena : &d->c.ctx->session;
}

/* Where the run in progress has value v; false: not in a place that can be read now. */
static bool stored_find(const struct capture *d, value_id v, const struct tensor *t, struct stored *out)
{
    const struct module *m = d->c.module;
    const struct storage *s = &m->fused.storage[v.i];
    /* one with state begins with the network's own (rt_state.c) */
    const struct mcc_ctx *ctx = d->s.api->state ? *(const struct mcc_ctx **)(void *)d->s.run : d->s.run;
    uint32_t n_in = d->s.api->n_in + d->c.graph->states.n, n_out = d->s.api->n_out + d->c.graph->states.n;
    int64_t offset = 0;
    *out = (struct stored){.size = elem_size(t->elem), .rank = t->rank, .dims = t->dims};
    if (s->place == PLACE_ARENA && capture_number(d, m->plan.buffers.data[s->buffer].offset, &offset))
        out->base = (const char *)(intptr_t)ctx->args[n_in + n_out] + offset;
    else if (s->place == PLACE_OUTPUT && elem_bits(t->elem) >= 8)
        out->base = (const char *)(intptr_t)ctx->args[n_in + s->port];
    else if (s->place == PLACE_SEGMENT)
        out->base = argument_of(d, v);
    if (!out->base || s->rank != t->rank || !s->dim || (s->origin.i && !capture_number(d, s->origin, &out->origin)))
        return false;
    for (int32_t k = 0; k < t->rank; k++) {
        if (!capture_number(d, s->dim[k].outer, &out->outer[k]))
            return false;
        out->block[k] = s->dim[k].block;
        out->inner[k] = s->dim[k].inner;
    }
    return true;
}

/* The extents of value v in the run in progress; NULL: they are not known. */
static int64_t *value_dims(const struct capture *d, const struct type *t)
{
    int64_t *dims = NEW_ARRAY(arena_of(d), int64_t, t->rank > 0 ? t->rank : 1);
    for (int32_t k = 0; k < t->rank; k++)
        if (!capture_number(d, t->dims[k], &dims[k]) || dims[k] < 0)
            return NULL;
    return dims;
}

/* Copies value v, row-major, from where the kernel that has just ended put it. */
static void capture(struct capture *d, uint32_t index, value_id v)
{
    struct arena *arena = arena_of(d);
    const struct type *t = value_type(d->c.graph, v);
    struct stored place;
    bool plain = t->kind == TYPE_TENSOR && t->elem != ELEM_STR && t->elem != ELEM_NONE && t->rank >= 0 &&
                 t->rank <= RANK_MAX;
    int64_t *dims = plain ? value_dims(d, t) : NULL;
    struct tensor *copy = NEW(arena, struct tensor);
    if (!dims)
        return;
    *copy = (struct tensor){.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank, .dims = dims};
    int64_t n = tensor_count(copy);
    if (!stored_find(d, v, copy, &place))
        return;
    copy->data = arena_alloc_array(arena, (size_t)n + 1, place.size);
    stored_read(&place, n, copy->data);
    d->got[v.i] = copy;
    d->maker[v.i] = index;
    learn_elements(d, v, copy->data, n);
}

const void **capture_places(const struct capture *d, struct arena *arena, value_id v, int64_t *n)
{
    struct stored place;
    if (!d->got[v.i] || !stored_find(d, v, d->got[v.i], &place))
        return NULL;
    *n = tensor_count(d->got[v.i]);
    const void **at = NEW_ARRAY(arena, const void *, (size_t)*n + 1);
    for (int64_t i = 0; i < *n; i++)
        at[i] = stored_address(&place, i);
    return at;
}

bool capture_keeps(const struct kernel *k)
{
    return !k->piece && k->kind != KERNEL_HALO && k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL;
}

double capture_count(const struct capture *d, const struct type *t)
{
    double all = 1;
    for (int32_t k = 0; t->kind == TYPE_TENSOR && k < t->rank; k++) {
        int64_t extent;
        if (!capture_number(d, t->dims[k], &extent))
            return 0;
        all *= (double)extent;
    }
    return all;
}

static void capture_kernel(struct capture *d, uint32_t index)
{
    const struct kernel *k = &d->c.module->fused.kernels.data[index];
    for (uint32_t i = 0; i < k->outs.n && capture_keeps(k); i++)
        if (!d->keep || d->keep[k->outs.data[i].i])
            capture(d, index, k->outs.data[i]);
}

/* Kernel i of some variant, or the version of it, that has this name; NULL: none has. */
static const struct kernel *named(const struct compilation *c, uint32_t i, const char *name)
{
    for (uint32_t v = 0; v < c->levels.n; v++)
        for (const struct kernel *k = &c->levels.data[v][i]; k; k = k->version.of)
            if (k->text && strcmp(k->name, name) == 0)
                return k;
    return NULL;
}

void capture_launch(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns)
{
    struct capture *d = user;
    (void)node;
    d->ns += (double)count * (double)ns;
    d->launched = kernel;
}

/* Finds the kernel that a row of the artifact's kernels is of, once. */
static const struct captured_row *row_of(struct capture *d, uint32_t row)
{
    const struct compilation *c = &d->c;
    if (!d->rows)
        d->rows = NEW_ARRAY(&c->ctx->session, struct captured_row, c->kernel_rows.n + 1);
    struct captured_row *r = &d->rows[row];
    for (uint32_t i = 0; !r->known && i < c->module->fused.kernels.n; i++) {
        const struct kernel *code = named(c, i, c->kernel_rows.data[row].name);
        if (code)
            *r = (struct captured_row){.known = true, .found = true, .kernel = i, .code = code};
    }
    r->known = true;
    return r;
}

/* Kernels inside of a loop or a branch store what the next trip replaces. */
void capture_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct capture *d = user;
    (void)node;
    (void)ns;
    d->ended = UINT32_MAX;
    if (!end || d->launched >= d->c.kernel_rows.n)
        return;
    const struct captured_row *r = row_of(d, d->launched);
    if (!r->found)
        return;
    d->ended = r->kernel;
    d->ran[r->kernel] = true;
    d->code = r->code;
    if (d->c.module->fused.kernels.data[r->kernel].region.i != 1)
        return;
    learn_arguments(d);
    capture_kernel(d, r->kernel);
}

void capture_begin(struct capture *d)
{
    struct arena *arena = arena_of(d);
    struct exprs *x = d->c.ctx->exprs;
    d->launched = UINT32_MAX;
    d->ns = 0;
    d->code = NULL;
    d->known = NEW_ARRAY(arena, bool, sym_count(x) + 1);
    d->ran = NEW_ARRAY(arena, bool, d->c.module->fused.kernels.n + 1);
    d->got = NEW_ARRAY(arena, struct tensor *, d->c.graph->values.n + 1);
    d->maker = NEW_ARRAY(arena, uint32_t, d->c.graph->values.n + 1);
    int64_t *values = NEW_ARRAY(arena_of(d), int64_t, d->s.api->n_sym + 1);
    uint32_t n = 0;
    d->symbols = NEW_ARRAY(arena_of(d), int64_t, sym_count(x) + 1);
    for (uint32_t i = 0; i < d->s.api->n_in; i++)
        for (int32_t k = 0; k < d->s.api->in[i].ndim && k < d->s.in[i].rank; k++)
            if (d->s.api->in[i].dims[k].extent == -1 && d->s.api->in[i].dims[k].symbol >= 0)
                values[d->s.api->in[i].dims[k].symbol] = d->s.in[i].dims[k];
    for (sym_id i = sym_next(x, SYM_SHAPE, (sym_id){0}); i.i; i = sym_next(x, SYM_SHAPE, i))
        learn(d, i, values[n++]);
    for (uint32_t i = 0; i < d->s.api->n_in; i++) {
        const struct file_tensor *t = &d->s.in[i];
        if (elem_bits(t->elem) >= 8 && strchr("IUB", elem_class(t->elem)))
            learn_elements(d, d->c.graph->inputs.data[i].value, t->data, (int64_t)(t->size / elem_size(t->elem)));
    }
}

const char *capture_words(const struct capture *d, uint32_t index)
{
    const struct module *m = d->c.module;
    const struct kernel *k = &m->fused.kernels.data[index];
    uint32_t last = 0;
    struct strbuf out = strbuf_of(&d->c.ctx->session);
    strbuf_printf(&out, "kernel k%u (%s", index, kernel_kind_name(k->kind));
    for (uint32_t i = k->nodes.n; i > 0 && out.n < 300; i--) {
        const struct source *s = source_get(m->ctx, graph_node(m->g, k->nodes.data[i - 1])->src);
        if (s->op && graph_node(m->g, k->nodes.data[i - 1])->src.i != last)
            strbuf_printf(&out, "%s %s", last ? "," : ";", source_label(s));
        last = graph_node(m->g, k->nodes.data[i - 1])->src.i;
    }
    strbuf_printf(&out, ")");
    return out.data;
}
