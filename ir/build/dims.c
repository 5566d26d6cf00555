/* The builder's shapes and symbols: dims as values, elements of integer tensors as expressions, numpy broadcasting of
 * symbolic shapes. */
#include "ir/build/build.h"

#include <stdio.h>

#include "ir/build/lattice.h"

struct dims b_dims(struct builder *b, value_id v)
{
    static const expr_id scalar[1];
    const struct type *t = v.i ? value_type(b->g, v) : NULL;
    if (t && t->kind == TYPE_TENSOR && t->rank != RANK_UNKNOWN)
        return (struct dims){t->rank ? t->dims : scalar, t->rank};
    if (t)
        error_model(b->g->ctx, b->src, "a tensor of known rank is needed here");
    return (struct dims){NULL, 0};
}

expr_id b_dim(struct builder *b, value_id v, int32_t axis)
{
    const struct dims dims = b_dims(b, v);
    if (dims.d && axis < 0)
        axis += dims.rank;
    if (dims.d && axis >= 0 && axis < dims.rank)
        return dims.d[axis];
    if (dims.d)
        error_model(b->g->ctx, b->src, "axis %d is outside of rank %d", axis, dims.rank);
    return (expr_id){0};
}

expr_id b_count(struct builder *b, value_id v)
{
    const struct dims dims = b_dims(b, v);
    return dims.d ? dims_product(b->x, dims.d, dims.rank) : (expr_id){0};
}

expr_id b_symbol(struct builder *b, const char *what, int64_t hi)
{
    const char *name = arena_printf(&b->g->arena, "%s%u", what, sym_count(b->x));
    return ex_sym(b->x, sym_new(b->x, SYM_VALUE, name, 0, hi));
}

/* ---- numpy broadcasting ------------------------------------------------------------------------------------------ */

static const char *shape_text(struct builder *b, const expr_id *dims, int32_t rank)
{
    struct strbuf s = strbuf_of(&b->g->arena);
    strbuf_append(&s, "[", 1);
    for (int32_t i = 0; i < rank; i++) {
        strbuf_append(&s, ", ", i ? 2 : 0);
        ex_print(b->x, dims[i], &s);
    }
    strbuf_append(&s, "]", 1);
    return s.data;
}

/* {0}: provably different and neither is 1. */
static expr_id broadcast_dim(struct builder *b, expr_id x, expr_id y)
{
    expr_id one = ex_const(b->x, 1);
    if (x.i == y.i || ex_is(b->x, y, 1))
        return x;
    if (ex_is(b->x, x, 1))
        return y;
    enum truth equal = ex_cmp_eq(b->x, x, y), x1 = ex_cmp_eq(b->x, x, one), y1 = ex_cmp_eq(b->x, y, one);
    if (equal == TRUE_)
        return x;
    if (equal == FALSE_ && x1 == FALSE_ && y1 == FALSE_)
        return (expr_id){0};
    expr_id ok = ex_eq(b->x, x, y);
    if (x1 != FALSE_)
        ok = ex_or(b->x, ok, ex_eq(b->x, x, one));
    if (y1 != FALSE_)
        ok = ex_or(b->x, ok, ex_eq(b->x, y, one));
    b_assert(b, ok, EVAL_SHAPE, "dimensions do not broadcast");
    if (x1 == FALSE_ && y1 == FALSE_) { /* equal then: keep the constant one */
        return ex_is_const(b->x, y, NULL) ? y : x;
    }
    if (x1 == FALSE_)
        return x;
    if (y1 == FALSE_)
        return y;
    return ex_select(b->x, ex_eq(b->x, x, one), y, x);
}

int32_t b_broadcast_dims(struct builder *b, const expr_id *x, int32_t rx, const expr_id *y, int32_t ry, expr_id *out)
{
    int32_t rank = rx > ry ? rx : ry;
    for (int32_t i = 0; i < rank; i++) {
        int32_t ix = i - (rank - rx), iy = i - (rank - ry);
        out[i] = ix < 0 ? y[iy] : iy < 0 ? x[ix] : broadcast_dim(b, x[ix], y[iy]);
        if (out[i].i)
            continue;
        error_model(b->g->ctx, b->src, "shapes %s and %s do not broadcast", shape_text(b, x, rx), shape_text(b, y, ry));
        return -1;
    }
    return rank;
}

/* ---- elements as expressions ------------------------------------------------------------------------------------- */

/* The elements of v as an array that may be written to: a copy, with what a constant's bytes say filled in. */
static expr_id *own_elems(struct builder *b, value_id v, uint32_t n)
{
    struct graph *g = b->g;
    const expr_id *known = lattice_elems(g, v);
    expr_id *elems = NEW_ARRAY(&g->arena, expr_id, n + 1);
    bool complete = known != NULL;
    if (known)
        memcpy(elems, known, n * sizeof *elems);
    for (uint32_t i = 0; complete && i < n; i++)
        complete = elems[i].i != 0;
    if (complete || !value_is_const(g, v))
        return elems;
    const struct tensor_data *data = value_fold(g, v);
    if (!data)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (!elems[i].i)
            elems[i] = ex_const(b->x,
                                elem_to_i64(data->elem, (const char *)data->bytes.data + i * elem_size(data->elem)));
    return elems;
}

static expr_id value_symbol(struct builder *b, value_id v, uint32_t k, int64_t lo, int64_t hi)
{
    char name[40];
    snprintf(name, sizeof name, "v%u_%u", v.i, k);
    sym_id s = sym_new(b->x, SYM_VALUE, name, lo, hi);
    sym_get(b->x, s)->value = v.i;
    sym_get(b->x, s)->elem = k;
    return ex_sym(b->x, s);
}

/* Known but not proved to lie in [lo, hi]: the caller relies on it, so the run checks it. */
static void assert_range(struct builder *b, expr_id e, int64_t lo, int64_t hi)
{
    if (ex_is_const(b->x, e, NULL)) /* the caller sees it and reports in its own words */
        return;
    if (ex_lo(b->x, e) < lo)
        b_assert(b, ex_le(b->x, ex_const(b->x, lo), e), EVAL_VALUE, "a value is below %lld", (long long)lo);
    if (ex_hi(b->x, e) > hi)
        b_assert(b, ex_le(b->x, e, ex_const(b->x, hi)), EVAL_VALUE, "a value is above %lld", (long long)hi);
}

/* Is v of the region that new nodes join? What they ask of a value of an enclosing region is not asked of runs that
 * take another branch. */
static bool is_local(struct builder *b, value_id v)
{
    const struct region *region = graph_get_region(b->g, b->region);
    node_id def = graph_value(b->g, v)->def;
    bool local = region->depth == 0 || (def.i && graph_node(b->g, def)->parent.i == b->region.i);
    for (uint32_t i = 0; !local && i < region->params.n; i++)
        local = region->params.data[i].i == v.i;
    return local;
}

/* Elements first .. first + count - 1 of v become known; the whole array, or NULL after a diagnostic. */
static const expr_id *know_elems(struct builder *b, value_id v, uint32_t first, uint32_t count, int64_t lo, int64_t hi,
                                 uint32_t *n)
{
    *n = 0;
    if (!v.i)
        return NULL;
    if (!lattice_applies(b->g, value_type(b->g, v), n)) {
        error_model(b->g->ctx, b->src, "a small integer tensor of known length is needed here");
        return NULL;
    }
    if (count > *n)
        count = *n;
    if (first >= *n && count == 1) {
        error_model(b->g->ctx, b->src, "element %u of a tensor of %u elements", first, *n);
        return NULL;
    }
    expr_id *elems = own_elems(b, v, *n);
    if (!elems)
        return NULL;
    bool local = is_local(b, v);
    for (uint32_t k = first; k < first + count && k < *n; k++) {
        bool known = elems[k].i != 0;
        if (!known)
            elems[k] = value_symbol(b, v, k, local ? lo : INT64_MIN, local ? hi : INT64_MAX);
        if (known || !local)
            assert_range(b, elems[k], lo, hi);
    }
    graph_value(b->g, v)->elems = elems;
    graph_value(b->g, v)->n_elems = *n;
    return elems;
}

const expr_id *b_elems(struct builder *b, value_id v, int64_t lo, int64_t hi, uint32_t *n)
{
    return know_elems(b, v, 0, LATTICE_MAX, lo, hi, n);
}

expr_id b_elem(struct builder *b, value_id v, int64_t lo, int64_t hi)
{
    uint32_t n;
    const expr_id *elems = know_elems(b, v, 0, 1, lo, hi, &n);
    return elems && n ? elems[0] : (expr_id){0};
}

void b_brief_all(struct builder *b, expr_id *e, uint32_t n, uint32_t parts)
{
    expr_id *elems = NEW_ARRAY(&b->g->arena, expr_id, n + 1);
    int64_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (e[i].i && ex_size(b->x, e[i]) > parts)
            elems[count++] = e[i];
    value_id v = count ? b_from_exprs(b, ELEM_I64, elems, (uint32_t)count, &count, 1) : (value_id){0};
    if (!v.i)
        return;
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (e[i].i && ex_size(b->x, e[i]) > parts) {
            elems[k] = value_symbol(b, v, k, ex_lo(b->x, e[i]), ex_hi(b->x, e[i]));
            e[i] = elems[k++];
        }
    graph_value(b->g, v)->elems = elems;
    graph_value(b->g, v)->n_elems = (uint32_t)count;
}

expr_id b_brief(struct builder *b, expr_id e, uint32_t parts)
{
    b_brief_all(b, &e, 1, parts);
    return e;
}
