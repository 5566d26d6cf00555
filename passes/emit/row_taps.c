/* Convolutions with one vector of output channels: the taps of a row share what they broadcast.
 *
 * A register tile of points by vectors uses each broadcast for as many multiply-adds as it has vectors. With one vector
 * that is one, and a broadcast takes longer to load than a multiply-add to do. But point p at tap t reads what point p
 * + 1 reads at tap t - stride: so the taps of the innermost spatial dim are unrolled, inside the loop over input
 * channels, and points and taps are passed in the order of the places that they read. Each place is then loaded once
 * for several multiply-adds, and nothing but the taps' weights has to be kept for it.
 */
#include "passes/emit/reduce.h"

/* Is point a known to lie `*ahead` places beyond point b in the same row? */
static bool same_row(struct em *em, const struct reduction *r, uint32_t a, uint32_t b, int64_t *ahead)
{
    int32_t last = value_type(em->g, r->n->out[0])->rank - 1;
    for (int32_t d = 2; d < last; d++)
        if (r->points[a][d].i != r->points[b][d].i)
            return false;
    return ex_apart(em->x, r->points[a][last], r->points[b][last], ahead);
}

struct visit {
    uint32_t row, point;
    int64_t place, tap;
};   /* row: the first point of it */

void reduction_row(struct em *em, struct reduction *r, expr_id *k, lreg *acc)
{
    struct visit visits[EM_POINTS * ROW_TAPS_MOST];
    uint32_t n = 0, row = 0;
    for (uint32_t i = 0; i < r->n_points; i++) {
        int64_t ahead = 0;
        if (!same_row(em, r, i, row, &ahead))
            row = i, ahead = 0;
        for (int64_t t = 0; t < r->row.taps; t++) {   /* sorted by row, then place */
            struct visit v = {row, i, ahead * r->row.stride + t * r->row.dilation, t};
            uint32_t j = n++;
            for (; j > 0 && visits[j - 1].row == row && visits[j - 1].place > v.place; j--)
                visits[j] = visits[j - 1];
            visits[j] = v;
        }
    }
    for (int64_t t = 0; t < r->row.taps; t++) {
        k[r->row.dim] = ex_const(em->x, t);
        reduction_ahead(em, r, k);
    }
    for (uint32_t j = 0; j < n; j++) {
        k[r->row.dim] = ex_const(em->x, visits[j].tap);
        reduction_point(em, r, visits[j].point, k, acc);
    }
}
