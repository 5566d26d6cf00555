/* Choices, leaves and the pool of values of a random graph (draw.h). */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

uint64_t draw_bits(struct draw *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t draw_int(struct draw *d, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(draw_bits(d) % (uint64_t)(hi - lo + 1));
}

bool draw_chance(struct draw *d, int percent)
{
    return draw_int(d, 0, 99) < percent;
}

/* ---- what is known of a value ------------------------------------------------------------------------------- */

const struct type *drawn_type(struct draw *d, const struct drawn *v)
{
    return value_type(d->g, v->v);
}

void draw_extents(const struct draw *d, int k, int64_t *extents)
{
    for (uint32_t i = 0; i < d->n_symbols; i++)
        extents[i] = k == 0 ? d->extent[i] : k == 1 ? 0 : k == 2 ? 1 : d->extent[i] - d->extent[i] / 3;
}

/* -1 where the extents do not fit the expression. */
static int64_t dim_at(struct draw *d, expr_id e, const int64_t *extents)
{
    int64_t n = -1, *symbols = NEW_ARRAY(&d->ctx->session, int64_t, sym_count(d->x) + 1);
    for (uint32_t i = 0; i < d->n_symbols; i++)
        symbols[d->symbol[i].i] = extents[i];
    return ex_eval(d->x, e, symbols, &n) && n >= 0 ? n : -1;
}

int64_t draw_dim(struct draw *d, expr_id e)
{
    int64_t most = -1, extents[DRAW_SYMBOLS];
    for (int k = 0; k < DRAW_SIZES; k++) {
        draw_extents(d, k, extents);
        int64_t n = dim_at(d, e, extents);
        most = n > most ? n : most;
    }
    return most;
}

int64_t draw_places(struct draw *d, expr_id e)
{
    int64_t least = 0, extents[DRAW_SYMBOLS];
    for (int k = 0; k < DRAW_SIZES; k++) {
        draw_extents(d, k, extents);
        int64_t n = dim_at(d, e, extents);
        if (k == 0 || (n > 0 && n < least))
            least = n;
    }
    return least;
}

int64_t draw_count(struct draw *d, const struct drawn *v)
{
    const struct type *t = drawn_type(d, v);
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= draw_dim(d, t->dims[i]);
    return n;
}

double elem_eps(enum elem e)
{
    return e == ELEM_F64 ? 0x1p-52 : e == ELEM_F32 ? 0x1p-23 : e == ELEM_F16 ? 0x1p-10 : e == ELEM_BF16 ? 0x1p-7 : 0;
}

static double elem_largest(enum elem e)
{
    return e == ELEM_F64 ? 1e200 : e == ELEM_F16 ? 3e4 : 1e30;
}

bool drawn_exact(const struct drawn *v)
{
    return v->err == 0;
}

struct drawn drawn_make(struct draw *d, value_id v, double mag, double err, int places)
{
    struct drawn r = {v, mag, err, places};
    if (!v.i)
        return r;
    enum elem e = value_type(d->g, v)->elem;
    double eps = elem_eps(e);
    if (eps == 0)
        return (struct drawn){v, mag, 0, 0};
    if (err != 0 || ldexp(mag, places) * eps > 0.5)
        r.err = err + 2 * eps * mag;
    if (!(mag <= elem_largest(e)) || r.err > 0.02 * mag + 0.02)   /* nothing left to compare */
        r.v = (value_id){0};
    return r;
}

struct drawn drawn_like(struct draw *d, value_id v, const struct drawn *x)
{
    (void)d;
    return (struct drawn){v, x->mag, x->err, x->places};
}

void draw_keep(struct draw *d, struct drawn v)
{
    if (v.v.i && d->n < DRAW_VALUES && draw_count(d, &v) <= 4 * DRAW_ELEMENTS && draw_count(d, &v) > 0)
        d->value[d->n++] = v;
}

/* ---- leaves ----------------------------------------------------------------------------------------------------- */

enum elem draw_float(struct draw *d)
{
    int64_t k = draw_int(d, 0, 99);
    return k < 78 ? ELEM_F32 : k < 87 ? ELEM_F64 : k < 94 ? ELEM_F16 : ELEM_BF16;
}

static enum elem draw_elem(struct draw *d, const char *classes)
{
    static const enum elem all[] = {ELEM_I32, ELEM_I64, ELEM_I8,  ELEM_U8,   ELEM_I16,
                                    ELEM_U16, ELEM_U32, ELEM_U64, ELEM_BOOL, ELEM_BOOL};
    if (strchr(classes, 'F') && draw_chance(d, 80))
        return draw_float(d);
    for (;;) {
        enum elem e = draw_chance(d, 10) ? draw_float(d) : DRAW_PICK(d, all);
        if (strchr(classes, elem_class(e)))
            return e;
    }
}

expr_id draw_extent(struct draw *d)
{
    static const int64_t few[] = {1, 2, 3, 4, 5, 6, 7, 8}, many[] = {9, 13, 15, 16, 17, 20, 24, 31, 32, 33, 40};
    return ex_const(d->x, draw_chance(d, 70) ? DRAW_PICK(d, few) : DRAW_PICK(d, many));
}

expr_id draw_symbol(struct draw *d)
{
    return ex_sym(d->x, d->symbol[draw_int(d, 0, (int64_t)d->n_symbols - 1)]);
}

int32_t draw_shape(struct draw *d, int32_t least, expr_id *dims)
{
    int32_t rank = (int32_t)draw_int(d, least, least > 3 ? least + 1 : 4);
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++) {
        dims[i] = draw_extent(d);
        if (d->n_symbols && draw_chance(d, i == 0 ? 60 : 8))
            dims[i] = draw_symbol(d);
        if (n * draw_dim(d, dims[i]) > DRAW_ELEMENTS)
            dims[i] = ex_const(d->x, 1);
        n *= draw_dim(d, dims[i]);
    }
    return rank;
}

/* ---- elements ---- */

static double draw_element(struct draw *d, enum elem e, int places)
{
    switch (elem_class(e)) {
    case 'B': return (double)draw_int(d, 0, 1);
    case 'U': return (double)draw_int(d, 0, 12);
    case 'I': return (double)draw_int(d, -12, 12);
    default: return ldexp((double)draw_int(d, -(3 << places), 3 << places), -places);
    }
}

/* n elements at p, from the leaf's own random numbers: the choices that follow do not depend on n. */
static void fill(struct draw *d, const struct drawn_data *how, enum elem e, char *p, int64_t n)
{
    uint64_t state = d->state;
    uint32_t size = elem_size(e);
    d->state = how->seed;
    for (int64_t i = 0; i < n; i++, p += size) {
        char class = elem_class(e);
        if (how->indices)
            elem_from_i64(e, draw_int(d, how->lo, how->hi), p);
        else if (class == 'F')
            elem_from_f64(e, draw_element(d, e, how->places), p);
        else if (class != 'B' && draw_chance(d, 4))   /* any bits: what follows wraps */
            elem_from_i64(e, (int64_t)draw_bits(d), p);
        else
            elem_from_i64(e, (int64_t)draw_element(d, e, how->places), p);
    }
    d->state = state;
}

static double leaf_mag(enum elem e)
{
    return elem_class(e) == 'F' ? 3 : elem_class(e) == 'B' ? 1 : 12;
}

/* ---- inputs and constants ---- */

void draw_bind(struct draw *d, const int64_t *extents)
{
    for (uint32_t k = 0; k < d->g->inputs.n; k++) {
        const struct type *t = value_type(d->g, d->g->inputs.data[k].value);
        struct tensor *in = &d->inputs[k];
        int64_t n = 1;
        *in = (struct tensor){.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank, .present = true, .n = 1};
        in->dims = NEW_ARRAY(&d->g->arena, int64_t, t->rank + 1);
        for (int32_t i = 0; i < t->rank; i++) {
            in->dims[i] = dim_at(d, t->dims[i], extents);
            if (in->dims[i] < 0)
                in->dims[i] = 0;
            n *= in->dims[i];
        }
        in->data = arena_alloc(&d->g->arena, (size_t)(n + 1) * elem_size(t->elem));
        fill(d, &d->input_data[k], t->elem, in->data, n);
    }
}

static value_id add_input(struct draw *d, enum elem e, const expr_id *dims, int32_t rank, const struct drawn_data *how)
{
    uint32_t k = d->g->inputs.n;
    const char *name = arena_printf(&d->g->arena, "in%u", k);
    struct type t = {.kind = TYPE_TENSOR, .elem = e, .rank = rank, .dims = dims};
    value_id v = graph_param(d->g, (region_id){1}, t, name);
    VEC_PUSH(&d->g->arena, &d->g->inputs, ((struct port){name, NULL, v}));
    d->input_data[k] = *how;
    return v;
}

static value_id add_leaf(struct draw *d, enum elem e, const expr_id *dims, int32_t rank, const struct drawn_data *how,
                         bool constant)
{
    int64_t dim[RANK_MAX + 1] = {0}, n = 1;
    bool fixed = true;
    for (int32_t i = 0; i < rank; i++) {
        fixed &= ex_is_const(d->x, dims[i], &dim[i]);
        n *= dim[i];
    }
    if (!(constant && fixed) && d->g->inputs.n < DRAW_INPUTS)
        return add_input(d, e, dims, rank, how);
    if (!fixed)
        return (value_id){0};
    char *data = arena_alloc(&d->g->arena, (size_t)(n + 1) * elem_size(e));
    fill(d, how, e, data, n);
    return b_const(&d->b, e, dim, rank, data);
}

static bool leaf_fits(struct draw *d, const expr_id *dims, int32_t rank)
{
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        n *= draw_dim(d, dims[i]);
    return n >= 0 && n <= (d->largest_leaf ? d->largest_leaf : 4 * DRAW_ELEMENTS);
}

struct drawn draw_leaf(struct draw *d, enum elem e, const expr_id *dims, int32_t rank, bool constant)
{
    int64_t c;
    /* Few places: what follows stays exact for longer. Many: every product rounds. */
    int places = elem_class(e) != 'F' ? 0 : draw_chance(d, 60) ? 2 : e == ELEM_BF16 ? 4 : e == ELEM_F16 ? 4 : 18;
    struct drawn_data how = {.seed = draw_bits(d), .places = places};
    double mag = leaf_mag(e);
    if (!leaf_fits(d, dims, rank))
        return (struct drawn){0};
    if (constant && draw_chance(d, 15)) {
        value_id v = add_leaf(d, e, NULL, 0, &how, true);
        return drawn_make(d, v.i ? b_broadcast(&d->b, v, dims, rank) : v, mag, 0, places);
    }
    if (constant && rank > 0 && ex_is_const(d->x, dims[0], &c) && c > 1 && draw_chance(d, 10)) { /* equal along dim 0 */
        value_id v = add_leaf(d, e, dims + 1, rank - 1, &how, true);
        return drawn_make(d, v.i ? b_broadcast(&d->b, v, dims, rank) : v, mag, 0, places);
    }
    return drawn_make(d, add_leaf(d, e, dims, rank, &how, constant), mag, 0, places);
}

struct drawn draw_indices(struct draw *d, enum elem e, const expr_id *dims, int32_t rank, int64_t lo, int64_t hi)
{
    struct drawn_data how = {.seed = draw_bits(d), .indices = true, .lo = lo, .hi = hi};
    bool constant = draw_chance(d, 50);
    if (hi < lo || !leaf_fits(d, dims, rank))
        return (struct drawn){0};
    return drawn_make(d, add_leaf(d, e, dims, rank, &how, constant), 64, 0, 0);
}

struct drawn draw_const(struct draw *d, const struct drawn *like, double c)
{
    return drawn_make(d, b_splat_like(&d->b, like->v, c), fabs(c), 0, 4);
}

struct drawn draw_value(struct draw *d, const char *classes, int32_t rank)
{
    if (d->n && draw_chance(d, 88))
        for (int tries = 0; tries < 24; tries++) {
            uint32_t k = (uint32_t)draw_int(d, 0, d->n - 1);
            if (tries < 12 && draw_chance(d, 60)) /* the newest rather: chains grow */
                k = d->n - 1 - (uint32_t)draw_int(d, 0, d->n < 3 ? d->n - 1 : 2);
            const struct type *t = drawn_type(d, &d->value[k]);
            if (strchr(classes, elem_class(t->elem)) && t->rank >= rank)
                return d->value[k];
        }
    expr_id dims[RANK_MAX];
    int32_t r = draw_shape(d, rank, dims);
    struct drawn v = draw_leaf(d, draw_elem(d, classes), dims, r, draw_chance(d, 15));
    draw_keep(d, v);
    return v;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

void draw_op(struct draw *d)
{
    int64_t k = draw_int(d, 0, 99);
    if (draw_chance(d, 4)) {
        draw_control(d);
        return;
    }
    if (k < 36)
        draw_map(d);
    else if (k < 56)
        draw_view(d);
    else if (k < 64)
        draw_index(d);
    else if (k < 75)
        draw_reduce(d);
    else if (k < 90)
        draw_product(d);
    else if (k < 97)
        draw_rows(d);
    else
        draw_call(d);
}

static void add_output(struct draw *d, struct drawn v)
{
    uint32_t k = d->g->outputs.n;
    const char *name = arena_printf(&d->g->arena, "out%u", k);
    graph_add_result(d->g, (region_id){1}, v.v);
    VEC_PUSH(&d->g->arena, &d->g->outputs, ((struct port){name, NULL, v.v}));
    d->output[k] = v;
}

static void draw_outputs(struct draw *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (graph_value(d->g, d->value[i].v)->def.i &&
            (graph_value(d->g, d->value[i].v)->n_uses == 0 || draw_chance(d, 8)))
            add_output(d, d->value[i]);
    for (uint32_t i = 0; i < d->n_late; i++)
        add_output(d, d->late[i]);
    if (d->g->outputs.n == 0 && d->n)
        add_output(d, d->value[d->n - 1]);
}

/* What is left of the outputs when only one shall stay. */
static void keep_output(struct draw *d, uint32_t only)
{
    struct region *top = graph_get_region(d->g, (region_id){1});
    if (only >= d->g->outputs.n)
        return;
    top->results.data[0] = top->results.data[only];
    d->g->outputs.data[0] = d->g->outputs.data[only];
    d->output[0] = d->output[only];
    top->results.n = d->g->outputs.n = 1;
    for (uint32_t v = 1; v < d->g->values.n; v++)
        d->g->values.data[v].n_uses = 0;
    d->g->values.data[d->output[0].v.i].n_uses = 1;
    for (uint32_t r = 2; r < d->g->regions.n; r++)
        for (uint32_t k = 0; k < d->g->regions.data[r].results.n; k++)
            d->g->values.data[d->g->regions.data[r].results.data[k].i].n_uses++;
    for (uint32_t i = 1; i < d->g->nodes.n; i++)
        for (uint32_t k = 0; k < d->g->nodes.data[i].n_in; k++)
            d->g->values.data[d->g->nodes.data[i].in[k].i].n_uses++;
    graph_sweep(d->g);
}

struct draw *draw_graph(struct context *ctx, uint64_t seed, uint32_t n_ops, uint32_t only)
{
    struct draw *d = NEW(&ctx->session, struct draw);
    d->ctx = ctx;
    d->g = graph_new(ctx);
    d->x = ctx->exprs;
    d->state = seed * 0x2545f4914f6cdd1du + 1;
    d->b = builder_in(d->g, (region_id){1});
    for (uint32_t i = 0; i < DRAW_SYMBOLS && draw_chance(d, i ? 20 : 40); i++) {
        static const int64_t extents[] = {1, 2, 3, 5, 7, 16, 19};
        d->symbol[i] = sym_new(d->x, SYM_SHAPE, i ? "m" : "n", draw_int(d, 0, 1), draw_chance(d, 50) ? 64 : INT64_MAX);
        d->extent[i] = DRAW_PICK(d, extents);
        d->n_symbols = i + 1;
        draw_keep(d, draw_leaf(d, draw_float(d), (expr_id[]){ex_sym(d->x, d->symbol[i])}, 1, false)); /* binds it */
    }
    uint32_t most = (uint32_t)draw_int(d, 1, draw_chance(d, 80) ? 12 : 30);
    if (!n_ops)
        n_ops = most;
    for (uint32_t i = 0; i < n_ops && ctx->fail == FAIL_NONE; i++)
        draw_op(d);
    d->g->legal = true;
    if (ctx->fail != FAIL_NONE || !d->n)
        return NULL;
    draw_outputs(d);
    keep_output(d, only);
    draw_bind(d, d->extent);
    return d;
}
