/* Sums of segments of bytes: four lines at a time.
 *
 * A step of such a sum multiplies four elements of each point's column, which lie in four lines, by a group of the
 * constant. Vectors a, b, c, d of R bytes of the lines become four vectors of groups, by interleaving bytes and then
 * pairs within each block of 16 bytes, as one instruction of every SIMD set does:
 *
 *   a0 b0 a1 b1 ... ; c0 d0 c1 d1 ...   ->   a0 b0 c0 d0 a1 b1 c1 d1 ...
 *
 * So four vectors of points share four loads and eight interleavings. Lane 4 l + j of vector i then has point
 * 16 l + 4 i + j; the sums are put in order behind the last step.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"
#include "passes/emit/register_tile.h"
#include "passes/module/access_function.h"

enum { LINES = 4, BLOCK = 16, BLOCK_LANES = BLOCK / LINES };

/* The product of bytes [..., k, 4, l] and [..., k, 4] that the kernel computes for each element of the segments. */
static const struct node *product_of(struct em *em, const struct reduction *r)
{
    const struct node *n = value_node(em->g, r->n->in[0]);
    if (r->n->op != OP_SEGMENTS || !n || n->op != OP_DOT || em_is_stored(em, r->n->in[0]) ||
        dot_group(em->m, n) != LINES)
        return NULL;
    int32_t rank = value_type(em->g, n->in[0])->rank;
    bool lines = elem_size(value_type(em->g, n->in[0])->elem) == 1 && value_type(em->g, n->in[1])->rank == rank - 1 &&
                 node_int(r->n, "axis", 0) == rank - 3;
    return lines ? n : NULL;
}

/* Do points first .. first + 3 follow one another along dim, by whole vectors? */
static bool vectors_follow(struct em *em, const struct reduction *r, uint32_t first, int32_t dim)
{
    int64_t apart;
    expr_id *const *p = r->points + first;
    uint32_t lanes = em_expr_lanes(em, p[0][dim]);
    int32_t rank = value_type(em->g, r->n->out[0])->rank;
    for (uint32_t i = 0; i < LINES; i++) {
        if (em_lanes_live(em, p[i], rank).i || em_expr_lanes(em, p[i][dim]) != lanes)
            return false;
        for (int32_t d = 0; d < rank; d++)
            if (d == dim ? !ex_apart(em->x, em_at_lane(em, p[i][d], 0), em_at_lane(em, p[0][d], 0), &apart) ||
                               apart != (int64_t)(i * lanes)
                         : p[i][d].i != p[0][d].i || em_expr_lanes(em, p[i][d]))
                return false;
    }
    return true;
}

void em_lines_begin(struct em *em, struct reduction *r)
{
    const struct node *product = product_of(em, r);
    int32_t dim = value_type(em->g, r->n->out[0])->rank - 1;
    uint32_t lanes = em_expr_lanes(em, r->points[0][dim]);
    if (!product || r->n_points % LINES || lanes % BLOCK_LANES || !lanes)
        return;
    for (uint32_t i = 0; i < r->n_points; i += LINES)
        if (!vectors_follow(em, r, i, dim))
            return;
    r->line = em_lane(em, lanes * LINES, (lreg){0});
}

/* The interleaved halves of a and b's blocks, where an item is `size` lanes: the low ones, or the high ones. */
static lreg half_interleaved(struct em *em, lreg a, lreg b, uint32_t size, bool high)
{
    uint32_t n = lf_type(em->f, a).lanes;
    uint8_t from[UINT8_MAX];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t of = i % BLOCK / size;
        from[i] = (uint8_t)((of % 2 ? n : 0) + i / BLOCK * BLOCK + high * BLOCK / 2 + of / 2 * size + i % size);
    }
    return em_shuffle(em, a, b, from, n);
}

static lreg line_at(struct em *em, const struct node *product, const expr_id *p, expr_id at, int64_t k, expr_id lane)
{
    expr_id idx[RANK_MAX], along = ex_const(em->x, k);
    contraction_point(em->g, product, 0, p, &along, idx);
    int32_t last = value_type(em->g, product->in[0])->rank - 1;
    idx[last] = ex_add(em->x, em_at_lane(em, at, 0), lane);
    return em_value(em, product->in[0], idx, ex_const(em->x, 1));
}

void em_lines_step(struct em *em, struct reduction *r, const expr_id *k, lreg *acc)
{
    const struct node *product = product_of(em, r);
    int32_t rank = value_type(em->g, r->n->out[0])->rank;
    for (uint32_t first = 0; first < r->n_points; first += LINES) {
        expr_id p[RANK_MAX], weights[RANK_MAX], zero = ex_const(em->x, 0);
        lreg line[LINES], pairs[LINES], group[LINES];
        memcpy(p, r->points[first], (size_t)rank * sizeof *p);
        p[node_int(r->n, "axis", 0)] = ex_add(em->x, r->first, k[0]);
        for (int64_t i = 0; i < LINES; i++)
            line[i] = line_at(em, product, p, r->points[first][rank - 1], i, r->line);
        for (uint32_t i = 0; i < LINES; i++)
            pairs[i] = half_interleaved(em, line[i / 2 * 2], line[i / 2 * 2 + 1], 1, i % 2);
        for (uint32_t i = 0; i < LINES; i++)
            group[i] = half_interleaved(em, pairs[i / 2], pairs[i / 2 + 2], 2, i % 2);
        contraction_point(em->g, product, 1, p, &zero, weights);
        struct em_group g = {.idx[1] = weights, .step[1] = 1, .size = LINES, .valid = LINES};
        g.dim[1] = value_type(em->g, product->in[1])->rank - 1;
        g.lanes = lf_type(em->f, acc[first]).lanes;
        lreg factors = em_panel_group(em, product, &g, r->cond);
        for (uint32_t i = 0; i < LINES; i++)
            em_tile_product(em, L_DOT, (const lreg[2]){group[i], factors}, &acc[first + i]);
    }
}

/* Lanes of vectors a and b, an even one and the next, as vector v has them in order; those of others are of no use. */
static lreg points_of(struct em *em, lreg a, lreg b, uint32_t v)
{
    uint32_t n = lf_type(em->f, a).lanes;
    uint8_t from[UINT8_MAX];
    for (uint32_t lane = 0; lane < n; lane++) {
        uint32_t point = v * n + lane, i = point % BLOCK / BLOCK_LANES;
        from[lane] = (uint8_t)((i % 2 ? n : 0) + point / BLOCK * BLOCK_LANES + point % BLOCK_LANES);
    }
    return em_shuffle(em, a, b, from, n);
}

void em_lines_end(struct em *em, const struct reduction *r, lreg *acc)
{
    for (uint32_t first = 0; first < r->n_points; first += LINES) {
        lreg sum[LINES];
        uint32_t n = lf_type(em->f, acc[first]).lanes;
        memcpy(sum, acc + first, sizeof sum);
        for (uint32_t v = 0; v < LINES; v++) {
            uint8_t from[UINT8_MAX];
            lreg low = points_of(em, sum[0], sum[1], v), high = points_of(em, sum[2], sum[3], v);
            for (uint32_t lane = 0; lane < n; lane++)
                from[lane] = (uint8_t)(((v * n + lane) % BLOCK / BLOCK_LANES >= LINES / 2 ? n : 0) + lane);
            acc[first + v] = em_shuffle(em, low, high, from, n);
        }
    }
}
