/* Interpretation of dot and conv (see eval.c): one blocked matrix product with 64-bit accumulators.
 *
 * Both are C[m][n] = sum over k of A(m, k) * B(n, k); a function says where an element comes from, so that layouts,
 * padding, dilation and groups are nobody else's business. Floats are summed in double and rounded once, integers in
 * wrapping int64. Blocks of 64 to 512 rows and columns keep the loads far below the products: 1 to 3 GMAC/s. */
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "ir/eval/eval.h"

enum { PANEL = 4, BLOCK_MIN = 64, BLOCK_MAX = 512, PACK_WORDS = 1 << 20 };
typedef double pair __attribute__((vector_size(16)));
typedef uint64_t words __attribute__((vector_size(16)));

enum arithmetic { INTEGERS, FLOATS, FIELD };

union word {
    double f;
    int64_t i;
    uint64_t u;
};
/* Elements k = 0 .. of up to PANEL rows: [k][PANEL]. */
typedef void load_fn(const void *self, int64_t row, int64_t rows, int64_t k, union word *to);
struct product {
    struct context *ctx;
    int64_t m, n, k;
    load_fn *a, *b;
    const void *self;
    enum arithmetic arithmetic;
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

/* PANEL x PANEL results: a and b are [k][PANEL]. Written out, so that the sums stay in registers. */
static void panel_floats(const union word *a, const union word *b, int64_t k, union word c[PANEL][PANEL])
{
    pair s[PANEL][2], s00 = {0, 0}, s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL) {
        pair lo = {b[0].f, b[1].f}, hi = {b[2].f, b[3].f};
        pair x0 = {a[0].f, a[0].f}, x1 = {a[1].f, a[1].f}, x2 = {a[2].f, a[2].f}, x3 = {a[3].f, a[3].f};
        s00 += x0 * lo;
        s01 += x0 * hi;
        s10 += x1 * lo;
        s11 += x1 * hi;
        s20 += x2 * lo;
        s21 += x2 * hi;
        s30 += x3 * lo;
        s31 += x3 * hi;
    }
    s[0][0] = s00, s[0][1] = s01, s[1][0] = s10, s[1][1] = s11;
    s[2][0] = s20, s[2][1] = s21, s[3][0] = s30, s[3][1] = s31;
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++)
            c[r][j].f = s[r][j / 2][j % 2];
}

static void panel_ints(const union word *a, const union word *b, int64_t k, union word c[PANEL][PANEL])
{
    uint64_t s[PANEL][PANEL] = {{0}};
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL)
        for (int r = 0; r < PANEL; r++)
            for (int j = 0; j < PANEL; j++)
                s[r][j] += (uint64_t)a[r].i * (uint64_t)b[j].i;
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++)
            c[r][j].i = (int64_t)s[r][j];
}

/* Products of numbers below 2^32. */
static inline words products(words x, words y)
{
#ifdef __x86_64__
    return (words)_mm_mul_epu32((__m128i)x, (__m128i)y);
#else
    return x * y;
#endif
}

/* Up to four products of residues, on sums below 2^32: 4 N^2 + 2^32 is less than 2^64. high: what is above. */
static inline void add_products(const union word *a, const union word *b, int64_t k, words s[PANEL][2],
                                words high[PANEL][2])
{
    words s00 = s[0][0], s01 = s[0][1], s10 = s[1][0], s11 = s[1][1];
    words s20 = s[2][0], s21 = s[2][1], s30 = s[3][0], s31 = s[3][1];
    for (int64_t i = 0; i < k; i++, a += PANEL, b += PANEL) {
        const words lo = {b[0].u, b[1].u}, hi = {b[2].u, b[3].u};
        const words x0 = {a[0].u, a[0].u}, x1 = {a[1].u, a[1].u}, x2 = {a[2].u, a[2].u}, x3 = {a[3].u, a[3].u};
        s00 += products(x0, lo);
        s01 += products(x0, hi);
        s10 += products(x1, lo);
        s11 += products(x1, hi);
        s20 += products(x2, lo);
        s21 += products(x2, hi);
        s30 += products(x3, lo);
        s31 += products(x3, hi);
    }
    s[0][0] = s00, s[0][1] = s01, s[1][0] = s10, s[1][1] = s11;
    s[2][0] = s20, s[2][1] = s21, s[3][0] = s30, s[3][1] = s31;
#pragma GCC unroll 4
    for (int r = 0; r < PANEL; r++) {
        high[r][0] += s[r][0] >> 32, high[r][1] += s[r][1] >> 32;
        s[r][0] &= UINT32_MAX, s[r][1] &= UINT32_MAX;
    }
}

static void panel_field(const union word *a, const union word *b, int64_t k, union word c[PANEL][PANEL])
{
    words low[PANEL][2] = {{{0}}}, high[PANEL][2] = {{{0}}};
    int64_t i = 0;
    for (; i + 4 <= k; i += 4)
        add_products(a + i * PANEL, b + i * PANEL, 4, low, high);
    add_products(a + i * PANEL, b + i * PANEL, k - i, low, high);
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++)
            c[r][j].u = field_reduced(high[r][j / 2][j % 2] % FIELD_N << 32 | low[r][j / 2][j % 2]);
}

#ifdef __x86_64__
/* The same with a row of four results in a register. */
__attribute__((target("avx2"))) static void panel_field_wide(const union word *a, const union word *b, int64_t k,
                                                             union word c[PANEL][PANEL])
{
    const __m256i mask = _mm256_set1_epi64x(UINT32_MAX);
    __m256i s[PANEL], high[PANEL];
#pragma GCC unroll 4
    for (int r = 0; r < PANEL; r++)
        s[r] = high[r] = _mm256_setzero_si256();
    while (k > 0) {
        const int64_t n = k < 4 ? k : 4;
        for (int64_t i = 0; i < n; i++, a += PANEL, b += PANEL) {
            const __m256i row = _mm256_loadu_si256((const __m256i *)b);
#pragma GCC unroll 4
            for (int r = 0; r < PANEL; r++)
                s[r] = _mm256_add_epi64(s[r], _mm256_mul_epu32(_mm256_set1_epi64x(a[r].i), row));
        }
        k -= n;
#pragma GCC unroll 4
        for (int r = 0; r < PANEL; r++) {
            high[r] = _mm256_add_epi64(high[r], _mm256_srli_epi64(s[r], 32));
            s[r] = _mm256_and_si256(s[r], mask);
        }
    }
    for (int r = 0; r < PANEL; r++)
        for (int j = 0; j < PANEL; j++) {
            const uint64_t up = ((const uint64_t *)&high[r])[j], low = ((const uint64_t *)&s[r])[j];
            c[r][j].u = field_reduced(up % FIELD_N << 32 | low);
        }
}
#endif

typedef void panel_fn(const union word *a, const union word *b, int64_t k, union word c[PANEL][PANEL]);
static panel_fn *const panels[] = {[INTEGERS] = panel_ints, [FLOATS] = panel_floats, [FIELD] = panel_field};

static enum arithmetic arithmetic_of(const struct eval *e, enum elem elem)
{
    return eval_in_field(e, elem) ? FIELD : elem_class(elem) == 'F' ? FLOATS : INTEGERS;
}

/* Rows first .. first + block - 1 as panels [block / PANEL][k][PANEL]; beyond the last row anything. */
static void pack(const struct product *p, load_fn *load, int64_t first, int64_t rows, union word *to)
{
    for (int64_t r = 0; r < p->block && first + r < rows; r += PANEL)
        load(p->self, first + r, rows - first - r < PANEL ? rows - first - r : PANEL, p->k, to + r * p->k);
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

/* The results of one pair of packed blocks. */
static void multiply_block(const struct product *p, int64_t m0, int64_t n0, enum elem elem, char *to)
{
    size_t size = elem_size(elem);
    union word c[PANEL][PANEL];
    panel_fn *panel = panels[p->arithmetic];
#ifdef __x86_64__
    if (p->arithmetic == FIELD && __builtin_cpu_supports("avx2"))
        panel = panel_field_wide;
#endif
    for (int64_t n = n0; n < n0 + p->block && n < p->n; n += PANEL)
        for (int64_t m = m0; m < m0 + p->block && m < p->m; m += PANEL) {
            time_spend(p->ctx, (uint64_t)p->k * PANEL);
            panel(p->pack_a + (m - m0) * p->k, p->pack_b + (n - n0) * p->k, p->k, c);
            for (int64_t i = 0; i < PANEL * PANEL; i++)
                if (m + i / PANEL < p->m && n + i % PANEL < p->n)
                    store(elem, c[i / PANEL][i % PANEL], p->arithmetic,
                          to + (size_t)((m + i / PANEL) * p->n + n + i % PANEL) * size);
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
    p->block = PACK_WORDS / (p->k + 1) / PANEL * PANEL;
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
                      const int64_t *at, int64_t k, int64_t base, union word *to)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t r = 0; r < rows; r++)
            to[i * PANEL + r] = load_elem(t, base + row[r] + at[i], arithmetic);
}

static void dot_a(const void *self, int64_t row, int64_t rows, int64_t k, union word *to)
{
    const struct dot *d = self;
    load_rows(d->a, d->arithmetic, d->row_a + row, rows, d->k_a, k, d->base_a, to);
}

static void dot_b(const void *self, int64_t row, int64_t rows, int64_t k, union word *to)
{
    const struct dot *d = self;
    load_rows(d->b, d->arithmetic, d->row_b + row, rows, d->k_b, k, d->base_b, to);
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

static enum eval_status eval_scaled(struct eval *e, struct product *p, struct dot *d, const struct scale s[4],
                                    int64_t blocks, int64_t batch, float *out)
{
    struct tensor sums, results;
    int64_t dims[2] = {p->m, p->n};
    const int64_t *k_a = d->k_a, *k_b = d->k_b;
    TRY(eval_tensor(e, &sums, ELEM_I64, 2, dims));
    TRY(eval_tensor(e, &results, ELEM_F64, 2, dims));
    double *result = results.data;
    memset(result, 0, (size_t)(p->m * p->n) * sizeof *result);
    for (int64_t i = 0; i < blocks; i++) {
        d->k_a = k_a + i * p->k;
        d->k_b = k_b + i * p->k;
        multiply(p, ELEM_I64, sums.data);
        add_scaled(p, s, batch, i, sums.data, result);
    }
    d->k_a = k_a;
    d->k_b = k_b;
    for (int64_t i = 0; i < p->m * p->n; i++)
        out[i] = (float)result[i];
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
    if (n->n_in > 2 && e->g->ctx->field)
        return eval_fail(e, EVAL_UNSUPPORTED, "dot with scales is not in the field");
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

static void conv_weight(const void *self, int64_t row, int64_t rows, int64_t k, union word *to)
{
    const struct conv *c = self;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++)
            to[i * PANEL + r] = load_elem(c->w, c->base_w + (row + r) * c->k + i, c->arithmetic);
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
static void conv_input(const void *self, int64_t pixel, int64_t rows, int64_t k, union word *to)
{
    const struct conv *c = self;
    for (int64_t t = 0; t < c->taps; t++) {
        int64_t at[PANEL], plane = c->base_x;
        for (int64_t r = 0; r < rows; r++)
            at[r] = conv_offset(c, c->pixel + (pixel + r) * c->n, c->tap + t * c->n);
        for (int64_t i = t; i < k; i += c->taps, plane += c->plane)
            for (int64_t r = 0; r < rows; r++)
                to[i * PANEL + r] = at[r] < 0 ? (union word){.i = 0} : load_elem(c->x, plane + at[r], c->arithmetic);
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
    return EVAL_OK;
}
