/* Interpretation of dot and conv (see eval.c): one blocked matrix product with 64-bit accumulators.
 *
 * Both are C[m][n] = sum over k of A(m, k) * B(n, k); a function says where an element comes from, so that layouts,
 * padding, dilation and groups are nobody else's business. Floats are summed in double and rounded once, integers in
 * wrapping int64. Blocks of 64 to 512 rows and columns keep the loads far below the products. */

#include "ir/eval/eval.h"
#include "ir/eval/panel.h"

enum { BLOCK_MIN = 64, BLOCK_MAX = 512, PACK_WORDS = 1 << 20 };

/* Elements k = 0 .. of up to `width` rows: [k][width]. */
typedef void load_fn(const void *self, int64_t row, int64_t rows, int64_t k, int64_t width, union word *to);
struct product {
    struct context *ctx;
    int64_t m, n, k;
    load_fn *a, *b;
    const void *self;
    enum arithmetic arithmetic;
    struct panel panel;
    int64_t block;                    /* rows of a and of b packed at a time */
    union word *pack_a, *pack_b;      /* block * k each */
};

static inline union word load_elem(const struct tensor *t, int64_t at, enum arithmetic arithmetic)
{
    union word w;
    if (arithmetic == FIELD && t->elem == ELEM_F32)
        w.u = ((const uint32_t *)t->data)[at];
    else if (arithmetic == FIELD)
        w.i = field_load(t->elem, (char *)t->data + (size_t)at * elem_size(t->elem));
    else if (t->elem == ELEM_F32)
        w.f = ((const float *)t->data)[at];
    else if (arithmetic == FLOATS)
        w.f = elem_to_f64(t->elem, (char *)t->data + (size_t)at * elem_size(t->elem));
    else
        w.i = elem_to_i64(t->elem, (char *)t->data + (size_t)at * elem_size(t->elem));
    return w;
}

static enum arithmetic arithmetic_of(const struct eval *e, enum elem elem)
{
    return eval_in_field(e, elem) ? FIELD : elem_class(elem) == 'F' ? FLOATS : INTEGERS;
}

/* Rows first .. first + block - 1 as panels [block / width][k][width]; beyond the last row anything. */
static void pack(const struct product *p, load_fn *load, int64_t first, int64_t rows, union word *to)
{
    const int64_t width = p->panel.width;
    for (int64_t r = 0; r < p->block && first + r < rows; r += width)
        load(p->self, first + r, rows - first - r < width ? rows - first - r : width, p->k, width, to + r * p->k);
}

static void store(enum elem elem, union word w, enum arithmetic arithmetic, char *to)
{
    if (arithmetic == FIELD)
        field_store(elem, (uint32_t)w.i, false, to);
    else if (arithmetic == FLOATS)
        elem_from_f64(elem, w.f, to);
    else
        elem_from_i64(elem, w.i, to);
}

static void store_row(enum elem elem, const union word *w, int64_t n, enum arithmetic arithmetic, char *to)
{
    const size_t size = elem_size(elem);
    if (arithmetic == FIELD && elem == ELEM_F32)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[i] = (uint32_t)w[i].u;
    else
        for (int64_t i = 0; i < n; i++)
            store(elem, w[i], arithmetic, to + (size_t)i * size);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The results of one pair of packed blocks. */
static void multiply_block(const struct product *p, int64_t m0, int64_t n0, enum elem elem, char *to)
{
    const int64_t width = p->panel.width;
    union word c[PANEL_MOST * PANEL_MOST];
    for (int64_t n = n0; n < n0 + p->block && n < p->n; n += width)
        for (int64_t m = m0; m < m0 + p->block && m < p->m; m += width) {
            const int64_t rows = least(width, p->m - m), columns = least(width, p->n - n);
            time_spend(p->ctx, (uint64_t)(p->k * width));
            p->panel.multiply(p->pack_a + (m - m0) * p->k, p->pack_b + (n - n0) * p->k, p->k, rows, c);
            for (int64_t r = 0; r < rows; r++)
                store_row(elem, c + r * width, columns, p->arithmetic,
                          to + (size_t)((m + r) * p->n + n) * elem_size(elem));
        }
}

/* Writes C as [m][n] at `to`. */
static void multiply(const struct product *p, enum elem elem, char *to)
{
    for (int64_t n0 = 0; n0 < p->n; n0 += p->block) {
        pack(p, p->b, n0, p->n, p->pack_b);
        for (int64_t m0 = 0; m0 < p->m; m0 += p->block) {
            if (n0 == 0 || p->m > p->block)    /* else it is packed already */
                pack(p, p->a, m0, p->m, p->pack_a);
            multiply_block(p, m0, n0, elem, to);
        }
    }
}

static enum eval_status make_packs(struct eval *e, struct product *p, struct tensor *packs)
{
    p->ctx = e->g->ctx;
    struct panel panels[PANELS_MOST];
    panels_of(p->arithmetic, panels);
    p->panel = panels[0];
    p->block = PACK_WORDS / (p->k + 1) / PANEL_MOST * PANEL_MOST;
    p->block = p->block < BLOCK_MIN ? BLOCK_MIN : p->block > BLOCK_MAX ? BLOCK_MAX : p->block;
    int64_t dims[3] = {2, p->block, p->k + 1};
    TRY(eval_tensor(e, packs, ELEM_I64, 3, dims));
    p->pack_a = packs->data;
    p->pack_b = p->pack_a + p->block * (p->k + 1);
    return EVAL_OK;
}

/* ---- dot --------------------------------------------------------------------------------------------------------- */

struct dot {
    const struct tensor *a, *b;
    const int64_t *row_a, *row_b, *k_a, *k_b; /* element offsets by m, n, k */
    int64_t base_a, base_b;
    enum arithmetic arithmetic;
};

static void load_rows(const struct tensor *t, enum arithmetic arithmetic, const int64_t *row, int64_t rows,
                      const int64_t *at, int64_t k, int64_t base, int64_t width, union word *to)
{
    const uint32_t *residues = t->data;
    if (arithmetic == FIELD && t->elem == ELEM_F32)
        for (int64_t i = 0; i < k; i++)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r].u = residues[base + row[r] + at[i]];
    else
        for (int64_t i = 0; i < k; i++)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r] = load_elem(t, base + row[r] + at[i], arithmetic);
}

static void dot_a(const void *self, int64_t row, int64_t rows, int64_t k, int64_t width, union word *to)
{
    const struct dot *d = self;
    load_rows(d->a, d->arithmetic, d->row_a + row, rows, d->k_a, k, d->base_a, width, to);
}

static void dot_b(const void *self, int64_t row, int64_t rows, int64_t k, int64_t width, union word *to)
{
    const struct dot *d = self;
    load_rows(d->b, d->arithmetic, d->row_b + row, rows, d->k_b, k, d->base_b, width, to);
}

/* Element offsets of all index tuples over the given dims of t, row-major. */
static const int64_t *dim_offsets(struct eval *e, const struct tensor *t, const int64_t *which, uint32_t n,
                                  int64_t *count)
{
    int64_t strides[RANK_MAX], dims[RANK_MAX], at[RANK_MAX] = {0};
    dims_strides(t->dims, t->rank, strides);
    for (uint32_t i = 0; i < n; i++)
        dims[i] = t->dims[which[i]];
    *count = dims_count(dims, (int32_t)n);
    int64_t *list = NEW_ARRAY(e->arena, int64_t, *count + 1);
    for (int64_t k = 0; k < *count; k++) {
        for (uint32_t i = 0; i < n; i++)
            list[k] += at[i] * strides[which[i]];
        dims_next(dims, (int32_t)n, at);
    }
    return list;
}

/* The dims that neither list names. */
static uint32_t free_dims(const struct tensor *t, const int64_t *x, uint32_t nx, const int64_t *y, uint32_t ny,
                          int64_t *out)
{
    uint32_t n = 0;
    for (int32_t d = 0; d < t->rank; d++) {
        bool named = false;
        for (uint32_t i = 0; i < nx; i++)
            named |= x[i] == d;
        for (uint32_t i = 0; i < ny; i++)
            named |= y[i] == d;
        if (!named)
            out[n++] = d;
    }
    return n;
}

/* A scale or an offset of blocks; t NULL: 1 everywhere. */
struct scale {
    const struct tensor *t;
    const int64_t *batch, *row, *block;
};

static double scale_at(const struct scale *s, int64_t batch, int64_t row, int64_t block)
{
    return s->t ? load_elem(s->t, s->batch[batch] + s->row[row] + s->block[block], FLOATS).f : 1;
}

static int64_t residue_at(const struct scale *s, int64_t batch, int64_t row, int64_t block)
{
    return s->t ? load_elem(s->t, s->batch[batch] + s->row[row] + s->block[block], FIELD).i : FIELD_ONE;
}

static bool is_scale(const struct tensor *t, const struct tensor *of, const int64_t *contract, uint32_t n)
{
    for (int32_t d = 0; d < of->rank; d++) {
        bool inner = false;
        for (uint32_t i = 1; i < n; i++)
            inner |= contract[i] == d;
        if (t->dims[d] != (inner ? 1 : of->dims[d]))
            return false;
    }
    return true;
}

/* The lists say which dims of the operand are batch, free and contracted: the scale has the same. */
static struct scale scale_of(struct eval *e, struct tensor *t, const int64_t *batch, uint32_t nb, const int64_t *rows,
                             uint32_t nr, const int64_t *contract)
{
    int64_t count;
    return (struct scale){t, dim_offsets(e, t, batch, nb, &count), dim_offsets(e, t, rows, nr, &count),
                          dim_offsets(e, t, contract, 1, &count)};
}

/* One batch of a scaled product: out [m][n] += (scale_a * sums + offset_a * offset_b) * scale_b, block by block. */
static void add_scaled(const struct product *p, const struct scale s[4], int64_t batch, int64_t block,
                       const int64_t *sums, double *out)
{
    for (int64_t i = 0; i < p->m; i++) {
        double scale = scale_at(&s[0], batch, i, block), offset = s[2].t ? scale_at(&s[2], batch, i, block) : 0;
        for (int64_t j = 0; j < p->n; j++)
            out[i * p->n + j] += ((double)sums[i * p->n + j] * scale + offset * scale_at(&s[3], batch, j, block)) *
                                 scale_at(&s[1], batch, j, block);
    }
}

/* The same in the field; out has residues. */
static void add_scaled_in_field(const struct product *p, const struct scale s[4], int64_t batch, int64_t block,
                                const int64_t *sums, int64_t *out)
{
    for (int64_t i = 0; i < p->m; i++) {
        int64_t scale = residue_at(&s[0], batch, i, block), offset = residue_at(&s[2], batch, i, block);
        for (int64_t j = 0; j < p->n; j++) {
            int64_t sum = field_apply(OP_MUL, field_of_integer(sums[i * p->n + j]), scale);
            if (s[2].t)
                sum = field_apply(OP_ADD, sum, field_apply(OP_MUL, offset, residue_at(&s[3], batch, j, block)));
            sum = field_apply(OP_MUL, sum, residue_at(&s[1], batch, j, block));
            out[i * p->n + j] = field_apply(OP_ADD, out[i * p->n + j], sum);
        }
    }
}

static enum eval_status eval_scaled(struct eval *e, struct product *p, struct dot *d, const struct scale s[4],
                                    int64_t blocks, int64_t batch, float *out)
{
    struct tensor sums, results;
    int64_t dims[2] = {p->m, p->n};
    const int64_t *k_a = d->k_a, *k_b = d->k_b;
    bool field = eval_in_field(e, ELEM_F32);
    TRY(eval_tensor(e, &sums, ELEM_I64, 2, dims));
    TRY(eval_tensor(e, &results, field ? ELEM_I64 : ELEM_F64, 2, dims)); /* zeros of both have the same bits */
    memset(results.data, 0, (size_t)(p->m * p->n) * elem_size(ELEM_F64));
    for (int64_t i = 0; i < blocks; i++) {
        d->k_a = k_a + i * p->k;
        d->k_b = k_b + i * p->k;
        multiply(p, ELEM_I64, sums.data);
        if (field)
            add_scaled_in_field(p, s, batch, i, sums.data, results.data);
        else
            add_scaled(p, s, batch, i, sums.data, results.data);
    }
    d->k_a = k_a;
    d->k_b = k_b;
    for (int64_t i = 0; i < p->m * p->n; i++)
        if (field)
            field_store(ELEM_F32, (uint32_t)((int64_t *)results.data)[i], false, &out[i]);
        else
            out[i] = (float)((double *)results.data)[i];
    return EVAL_OK;
}

enum eval_status eval_dot(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t nb, nc;
    const int64_t *ba = node_ints(n, "batch_a", &nb), *bb = node_ints(n, "batch_b", &nb);
    const int64_t *ca = node_ints(n, "contract_a", &nc), *cb = node_ints(n, "contract_b", &nc);
    int64_t fa[RANK_MAX], fb[RANK_MAX], batch, batch_b, k_b, blocks = 1;
    uint32_t nfa, nfb;
    struct scale scales[4] = {{.t = NULL}};
    struct dot d = {.a = in[0], .b = in[1], .arithmetic = arithmetic_of(e, in[0]->elem)};
    struct product p = {.a = dot_a, .b = dot_b, .self = &d, .arithmetic = d.arithmetic};
    struct tensor packs;
    TRY(eval_result(e, n, 0, out));
    const int64_t *batches_a = dim_offsets(e, in[0], ba, nb, &batch),
                  *batches_b = dim_offsets(e, in[1], bb, nb, &batch_b);
    d.row_a = dim_offsets(e, in[0], fa, nfa = free_dims(in[0], ba, nb, ca, nc, fa), &p.m);
    d.row_b = dim_offsets(e, in[1], fb, nfb = free_dims(in[1], bb, nb, cb, nc, fb), &p.n);
    d.k_a = dim_offsets(e, in[0], ca, nc, &p.k);
    d.k_b = dim_offsets(e, in[1], cb, nc, &k_b);
    if (batch != batch_b || p.k != k_b || tensor_count(out) != batch * p.m * p.n)
        return eval_fail(e, EVAL_SHAPE, "dot: operands of %lld and %lld products, %lld and %lld batches",
                         (long long)p.k, (long long)k_b, (long long)batch, (long long)batch_b);
    for (uint32_t k = 2; k < n->n_in; k++) {
        if (!is_scale(in[k], in[k & 1], k & 1 ? cb : ca, nc))
            return eval_fail(e, EVAL_SHAPE, "dot: scales of other dims than the operand's");
        scales[k - 2] = k & 1 ? scale_of(e, in[k], bb, nb, fb, nfb, cb) : scale_of(e, in[k], ba, nb, fa, nfa, ca);
    }
    if (n->n_in > 2) {
        blocks = in[0]->dims[ca[0]];
        p.k /= blocks ? blocks : 1;
    }
    TRY(make_packs(e, &p, &packs));
    for (int64_t i = 0; i < batch; i++) {
        d.base_a = batches_a[i];
        d.base_b = batches_b[i];
        if (n->n_in > 2)
            TRY(eval_scaled(e, &p, &d, scales, blocks, i, (float *)out->data + i * p.m * p.n));
        else
            multiply(&p, out->elem, (char *)out->data + (size_t)(i * p.m * p.n) * elem_size(out->elem));
    }
    eval_recycle(e, &packs);
    return EVAL_OK;
}

/* ---- conv -------------------------------------------------------------------------------------------------------- */

struct conv {
    const struct tensor *x, *w;
    int32_t n; /* spatial dims */
    const int64_t *size, *xdil; /* operand's spatial dims */
    int64_t *pixel, *tap; /* [pixels][n] first position, [taps][n] distance from it, both in dilated coordinates */
    int64_t taps, plane; /* of a channel: weights of a row, elements of the operand */
    int64_t base_x, base_w, k;
    enum arithmetic arithmetic;
};

static void conv_weight(const void *self, int64_t row, int64_t rows, int64_t k, int64_t width, union word *to)
{
    const struct conv *c = self;
    const int64_t first = c->base_w + row * c->k;
    const uint32_t *residues = c->w->data;
    if (c->arithmetic == FIELD && c->w->elem == ELEM_F32)
        for (int64_t i = 0; i < k; i++)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r].u = residues[first + r * c->k + i];
    else
        for (int64_t i = 0; i < k; i++)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r] = load_elem(c->w, first + r * c->k + i, c->arithmetic);
}

/* The offset of the pixel's tap in a plane; -1: it is padding. */
static int64_t conv_offset(const struct conv *c, const int64_t *pixel, const int64_t *tap)
{
    int64_t at = 0;
    for (int32_t d = 0; d < c->n; d++) {
        int64_t i = pixel[d] + tap[d];
        if (i < 0 || (c->xdil[d] > 1 && i % c->xdil[d] != 0))
            return -1;
        i = c->xdil[d] > 1 ? i / c->xdil[d] : i;
        if (i >= c->size[d])
            return -1;
        at = at * c->size[d] + i;
    }
    return at;
}

/* The taps of one channel are those of every other one, in its plane. */
static void conv_input(const void *self, int64_t pixel, int64_t rows, int64_t k, int64_t width, union word *to)
{
    const struct conv *c = self;
    const uint32_t *residues = c->arithmetic == FIELD && c->x->elem == ELEM_F32 ? c->x->data : NULL;
    for (int64_t t = 0; t < c->taps; t++) {
        int64_t at[PANEL_MOST], plane = c->base_x;
        for (int64_t r = 0; r < rows; r++)
            at[r] = conv_offset(c, c->pixel + (pixel + r) * c->n, c->tap + t * c->n);
        for (int64_t i = t; i < k && residues; i += c->taps, plane += c->plane)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r].u = at[r] < 0 ? 0 : residues[plane + at[r]];
        for (int64_t i = t; i < k && !residues; i += c->taps, plane += c->plane)
            for (int64_t r = 0; r < rows; r++)
                to[i * width + r] = at[r] < 0 ? (union word){.i = 0} : load_elem(c->x, plane + at[r], c->arithmetic);
    }
}

static enum eval_status conv_tables(struct eval *e, const struct node *n, struct conv *c, const int64_t *out_dims,
                                    int64_t pixels)
{
    uint32_t count;
    const int64_t *strides = node_ints(n, "strides", &count), *dilations = node_ints(n, "dilations", &count);
    int64_t lo[RANK_MAX], at[RANK_MAX] = {0};
    c->plane = dims_count(c->size, c->n);
    c->taps = dims_count(c->w->dims + 2, c->n);
    TRY(eval_exprs(e, n, "lo", lo));
    c->pixel = NEW_ARRAY(e->arena, int64_t, pixels * c->n + 1);
    c->tap = NEW_ARRAY(e->arena, int64_t, c->taps * c->n + 1);
    for (int64_t p = 0; p < pixels; p++) {
        for (int32_t d = 0; d < c->n; d++)
            c->pixel[p * c->n + d] = at[d] * strides[d] - lo[d];
        dims_next(out_dims, c->n, at);
    }
    memset(at, 0, sizeof at);
    for (int64_t k = 0; k < c->taps; k++) {
        for (int32_t d = 0; d < c->n; d++)
            c->tap[k * c->n + d] = at[d] * dilations[d];
        dims_next(c->w->dims + 2, c->n, at);
    }
    return EVAL_OK;
}

enum eval_status eval_conv(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *w = in[1];
    uint32_t count;
    int64_t groups = node_int(n, "groups", 1);
    struct conv c = {.x = x,
                     .w = w,
                     .n = x->rank - 2,
                     .size = x->dims + 2,
                     .xdil = node_ints(n, "xdil", &count),
                     .arithmetic = arithmetic_of(e, x->elem)};
    struct tensor packs;
    TRY(eval_result(e, n, 0, out));
    if (x->dims[1] != w->dims[1] * groups || w->dims[0] % groups != 0)
        return eval_fail(e, EVAL_SHAPE, "conv: %lld channels, weights for %lld in %lld groups", (long long)x->dims[1],
                         (long long)w->dims[1], (long long)groups);
    c.k = dims_count(w->dims + 1, w->rank - 1);
    struct product p = {.m = w->dims[0] / groups,
                        .n = dims_count(out->dims + 2, c.n),
                        .k = c.k,
                        .a = conv_weight,
                        .b = conv_input,
                        .self = &c,
                        .arithmetic = c.arithmetic};
    if (tensor_count(out) == 0)
        return EVAL_OK;
    TRY(conv_tables(e, n, &c, out->dims + 2, p.n));
    TRY(make_packs(e, &p, &packs));
    for (int64_t i = 0; i < x->dims[0] * groups; i++) { /* image i / groups, group i % groups */
        c.base_x = i * w->dims[1] * c.plane;
        c.base_w = i % groups * p.m * c.k;
        multiply(&p, out->elem, (char *)out->data + (size_t)(i * p.m * p.n) * elem_size(out->elem));
    }
    eval_recycle(e, &packs);
    return EVAL_OK;
}
