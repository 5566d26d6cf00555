/* Inference of reductions: reduce, arg-reductions, windows, dot and conv (see infer.c). */
#include "ir/graph/infer.h"

bool infer_reduce(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    uint32_t n;
    const int64_t *axes = node_ints(&f->attrs, "axes", &n);
    if (!t || !infer_monoid(f, "", t->elem))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (axes[i] < 0 || axes[i] >= t->rank || (i && axes[i] <= axes[i - 1]))
            return infer_error(f, "axis %lld for %s (axes are sorted and within the rank)", (long long)axes[i],
                               type_text(f->g, t));
    expr_id *dims = infer_dims(f, t->rank);
    int32_t rank = 0;
    uint32_t k = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        if (k < n && axes[k] == i)
            k++;
        else
            dims[rank++] = t->dims[i];
    }
    return infer_set(f, 0, t->elem, rank, dims);
}

bool infer_segments(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0), *starts = infer_tensor(f, 1);
    int64_t axis, n;
    if (!t || !starts || !infer_elem_in(f, 0, "FI") || !infer_axis(f, t->rank, &axis))
        return false;
    if (starts->elem != ELEM_I32 || starts->rank != 1 || !ex_is_const(f->ex, starts->dims[0], &n) || n < 1)
        return infer_error(f, "segments of %s from %s", type_text(f->g, t), type_text(f->g, starts));
    expr_id *dims = infer_dims(f, t->rank);
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    dims[axis] = ex_const(f->ex, n - 1);
    return infer_set(f, 0, t->elem, t->rank, dims);
}

bool infer_argreduce(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis;
    if (!t || !infer_elem_in(f, 0, "BIUF") || !infer_axis(f, t->rank, &axis))
        return false;
    if (ex_is(f->ex, t->dims[axis], 0))
        return infer_error(f, "axis %lld of %s is empty", (long long)axis, type_text(f->g, t));
    expr_id *dims = infer_dims(f, t->rank);
    int32_t rank = 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (i != axis)
            dims[rank++] = t->dims[i];
    return infer_set(f, 0, ELEM_I64, rank, dims);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

struct spatial {
    uint32_t n;
    const int64_t *strides, *dilations, *xdil; /* xdil NULL: 1 */
    const expr_id *lo, *hi;
};

static bool read_spatial(struct infer *f, struct spatial *s, uint32_t n)
{
    uint32_t ns, nl, nh, nd, nx = n;
    s->n = n;
    s->strides = node_ints(&f->attrs, "strides", &ns);
    s->dilations = node_ints(&f->attrs, "dilations", &nd);
    s->xdil = f->op == OP_CONV ? node_ints(&f->attrs, "xdil", &nx) : NULL;
    s->lo = node_exprs(&f->attrs, "lo", &nl);
    s->hi = node_exprs(&f->attrs, "hi", &nh);
    if (ns != n || nl != n || nh != n || nd != n || nx != n)
        return infer_error(f, "strides %u, lo %u, hi %u, dilations %u entries for %u spatial dims", ns, nl, nh, nd, n);
    for (uint32_t i = 0; i < n; i++)
        if (s->strides[i] < 1 || s->dilations[i] < 1 || (s->xdil && s->xdil[i] < 1))
            return infer_error(f, "stride %lld and dilation %lld of spatial dim %u must be positive",
                               (long long)s->strides[i], (long long)s->dilations[i], i);
    return true;
}

/* floor((dilated size + pads - dilated kernel) / stride) + 1. */
static bool window_dim(struct infer *f, const struct spatial *s, uint32_t i, expr_id size, expr_id kernel, expr_id *out)
{
    struct exprs *ex = f->ex;
    if (ex_hi(ex, kernel) < 1)
        return infer_error(f, "kernel size of spatial dim %u is %s", i, expr_text(f->g, kernel));
    if (s->xdil && s->xdil[i] > 1)
        size = ex_addc(ex, ex_mulc(ex, ex_addc(ex, size, -1), s->xdil[i]), 1);
    expr_id padded = ex_add(ex, size, ex_add(ex, s->lo[i], s->hi[i]));
    expr_id reach = ex_addc(ex, ex_mulc(ex, ex_addc(ex, kernel, -1), s->dilations[i]), 1);
    expr_id room = ex_sub(ex, padded, reach);
    *out = ex_addc(ex, ex_div(ex, room, ex_const(ex, s->strides[i])), 1);
    if (ex_hi(ex, *out) < 0)
        return infer_error(f, "window of %s is larger than spatial dim %u with its padding, %s, in %s",
                           expr_text(f->g, reach), i, expr_text(f->g, padded), type_text(f->g, infer_in(f, 0)));
    return true;
}

bool infer_window(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    uint32_t n;
    struct spatial s;
    const int64_t *kernel = node_ints(&f->attrs, "kernel", &n);
    bool arg = f->op == OP_ARGWINDOW;
    if (!t || !read_spatial(f, &s, n) || (arg ? !infer_elem_in(f, 0, "IUF") : !infer_monoid(f, "", t->elem)))
        return false;
    if (n < 1 || n > (uint32_t)t->rank)
        return infer_error(f, "%u spatial dims for %s", n, type_text(f->g, t));
    expr_id *dims = infer_dims(f, t->rank);
    int32_t lead = t->rank - (int32_t)n;
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    for (uint32_t i = 0; i < n; i++)
        if (!window_dim(f, &s, i, t->dims[lead + (int32_t)i], ex_const(f->ex, kernel[i]), &dims[lead + (int32_t)i]))
            return false;
    return infer_set(f, 0, arg ? ELEM_I64 : t->elem, t->rank, dims);
}

/* Element type of a sum of products: the operands' one type, or acc for integers of any two types. */
static bool product_elem(struct infer *f, enum elem *elem)
{
    enum elem a = infer_in(f, 0)->elem, b = infer_in(f, 1)->elem;
    *elem = node_elem(&f->attrs, "acc");
    bool ints = strchr("IU", elem_class(a)) && strchr("IU", elem_class(b));
    bool fits = *elem == ELEM_NONE || (strchr("IU", elem_class(*elem)) != NULL) == ints;
    if (strchr("IUF", elem_class(a)) && fits && (a == b || (ints && *elem != ELEM_NONE))) {
        *elem = *elem != ELEM_NONE ? *elem : a;
        return elem_class(*elem) != 'C' && elem_class(*elem) != 'S' && elem_class(*elem) != 'B';
    }
    return infer_error(f, "element types %s and %s (sum: %s) do not go together", elem_name(a), elem_name(b),
                       *elem ? elem_name(*elem) : "the operands'");
}

bool infer_conv(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *w = infer_tensor(f, 1);
    struct spatial s;
    struct exprs *ex = f->ex;
    enum elem elem;
    int64_t groups = node_int(&f->attrs, "groups", 1), m;
    if (!x || !w || !product_elem(f, &elem))
        return false;
    if (x->rank < 2 || w->rank != x->rank)
        return infer_error(f, "input %s with weights %s", type_text(f->g, x), type_text(f->g, w));
    if (groups < 1)
        return infer_error(f, "groups is %lld", (long long)groups);
    if (!read_spatial(f, &s, (uint32_t)x->rank - 2) ||
        !infer_agree(f, x->dims[1], ex_mulc(ex, w->dims[1], groups), "channels of input and weights differ"))
        return false;
    if (ex_is_const(ex, w->dims[0], &m) && m % groups != 0)
        return infer_error(f, "%lld output channels in %lld groups (weights %s)", (long long)m, (long long)groups,
                           type_text(f->g, w));
    expr_id *dims = infer_dims(f, x->rank);
    dims[0] = x->dims[0];
    dims[1] = w->dims[0];
    for (int32_t i = 2; i < x->rank; i++)
        if (!window_dim(f, &s, (uint32_t)i - 2, x->dims[i], w->dims[i], &dims[i]))
            return false;
    return infer_set(f, 0, elem, x->rank, dims);
}

/* ---- dot --------------------------------------------------------------------------------------------------------- */

/* Marks the dims of one operand that a list names; each once. */
static bool mark(struct infer *f, const int64_t *list, uint32_t n, const struct type *t, uint64_t *seen)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= t->rank || (*seen >> list[i] & 1))
            return infer_error(f, "dim %lld of %s is named twice or outside", (long long)list[i], type_text(f->g, t));
        *seen |= (uint64_t)1 << list[i];
    }
    return true;
}

/* The scales and offsets of blocks, after operands of bytes. */
static bool dot_scales(struct infer *f)
{
    for (uint32_t k = 0; k < f->n_in; k++) {
        const struct type *t = infer_tensor(f, k);
        uint32_t n;
        if (!t || (k < 2 ? t->elem != ELEM_U8 && t->elem != ELEM_I8 : t->elem != ELEM_F32))
            return t && infer_error(f, "operand %u of a scaled product is %s", k, type_text(f->g, t));
        const struct type *of = infer_in(f, k & 1);
        const int64_t *contract = node_ints(&f->attrs, k & 1 ? "contract_b" : "contract_a", &n);
        if (k < 2)
            continue;
        if (n < 2 || t->rank != of->rank)
            return infer_error(f, "%s scales %s, %u contracted dims", type_text(f->g, t), type_text(f->g, of), n);
        for (int32_t d = 0; d < t->rank; d++) {
            expr_id want = of->dims[d];
            for (uint32_t i = 1; i < n; i++)
                want = contract[i] == d ? ex_const(f->ex, 1) : want;
            if (!infer_agree(f, t->dims[d], want, "dims of scales differ"))
                return false;
        }
    }
    return (node_elem(&f->attrs, "acc") == ELEM_NONE && f->n_in != 3) ||
           infer_error(f, "%u operands of a scaled product", f->n_in);
}

bool infer_dot(struct infer *f)
{
    const struct type *a = infer_tensor(f, 0), *b = infer_tensor(f, 1);
    uint32_t nba, nbb, nca, ncb;
    uint64_t sa = 0, sb = 0;
    enum elem elem = ELEM_F32; /* of a scaled product */
    const int64_t *ba = node_ints(&f->attrs, "batch_a", &nba), *bb = node_ints(&f->attrs, "batch_b", &nbb);
    const int64_t *ca = node_ints(&f->attrs, "contract_a", &nca), *cb = node_ints(&f->attrs, "contract_b", &ncb);
    if (!a || !b || (f->n_in == 2 && !product_elem(f, &elem)))
        return false;
    if (nba != nbb || nca != ncb)
        return infer_error(f, "%u and %u batch dims, %u and %u contracted dims", nba, nbb, nca, ncb);
    if (!mark(f, ba, nba, a, &sa) || !mark(f, ca, nca, a, &sa) || !mark(f, bb, nbb, b, &sb) ||
        !mark(f, cb, ncb, b, &sb))
        return false;
    for (uint32_t i = 0; i < nba; i++)
        if (!infer_agree(f, a->dims[ba[i]], b->dims[bb[i]], "batch dims differ"))
            return false;
    for (uint32_t i = 0; i < nca; i++)
        if (!infer_agree(f, a->dims[ca[i]], b->dims[cb[i]], "contracted dims differ"))
            return false;
    if (f->n_in > 2 && !dot_scales(f))
        return false;
    expr_id *dims = infer_dims(f, a->rank + b->rank);
    int32_t rank = 0;
    for (uint32_t i = 0; i < nba; i++)
        dims[rank++] = a->dims[ba[i]];
    for (int32_t i = 0; i < a->rank; i++)
        if (!(sa >> i & 1))
            dims[rank++] = a->dims[i];
    for (int32_t i = 0; i < b->rank; i++)
        if (!(sb >> i & 1))
            dims[rank++] = b->dims[i];
    return rank > RANK_MAX ? infer_error(f, "rank %d is above %d", rank, RANK_MAX) : infer_set(f, 0, elem, rank, dims);
}
