/* Runs of positions through shapes, affine views and windows: no element is read here but by the two copies. */
#include "ir/eval/runs.h"

#include "ir/graph/view_map.h"

void runs_push(struct arena *arena, run_list *list, struct run run)
{
    if (list->n) {
        struct run *last = &list->data[list->n - 1];
        int64_t stride = last->n > 1 ? last->stride : run.at - last->at;
        if ((run.n == 1 || run.stride == stride) && last->at + last->n * stride == run.at) {
            last->stride = stride;
            last->n += run.n;
            return;
        }
    }
    VEC_PUSH(arena, list, run);
}

void runs_copy(const char *src, size_t size, const struct run *runs, uint32_t n, char *dst)
{
    for (uint32_t k = 0; k < n; k++) {
        const char *from = src + (size_t)runs[k].at * size;
        int64_t count = runs[k].n, stride = runs[k].stride * (int64_t)size;
        if (runs[k].stride == 1 || count == 1) {
            memcpy(dst, from, (size_t)count * size);
        } else if (size == 4) {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * 4, from + i * stride, 4);
        } else if (size == 1) {
            for (int64_t i = 0; i < count; i++)
                dst[i] = from[i * stride];
        } else if (size == 2) {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * 2, from + i * stride, 2);
        } else {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * (int64_t)size, from + i * stride, size);
        }
        dst += (size_t)count * size;
    }
}

/* ---- walking runs through a shape -------------------------------------------------------------------------------- */

struct shape shape_of(struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    struct shape s = {.rank = t->rank};
    for (int32_t i = 0; i < t->rank; i++)
        ex_is_const(g->ctx->exprs, t->dims[i], &s.dims[i]);
    dims_strides(s.dims, s.rank, s.weight);
    return s;
}

static void coordinates(const struct shape *s, int64_t at, int64_t *c)
{
    for (int32_t d = 0; d < s->rank; d++) {
        c[d] = at / s->weight[d];
        at -= c[d] * s->weight[d];
    }
}

/* The first elements of a run that move along one dim only: which dim (-1: none moves), by how much, how many. */
struct step {
    int32_t dim;
    int64_t by, n;
};

static struct step first_step(const struct shape *s, const struct run *run, const int64_t *c)
{
    struct step step = {-1, 0, run->n};
    int64_t size = run->stride < 0 ? -run->stride : run->stride;
    if (size == 0 || run->n == 1)
        return step;
    step.n = 1;
    for (int32_t d = 0; d < s->rank; d++) {
        if (s->dims[d] <= 1 || s->weight[d] > size || size % s->weight[d] != 0)
            continue;
        step.dim = d;
        step.by = run->stride / s->weight[d];
        step.n = step.by > 0 ? (s->dims[d] - 1 - c[d]) / step.by + 1 : c[d] / -step.by + 1;
        break;
    }
    if (step.n > run->n)
        step.n = run->n;
    return step;
}

/* ---- affine views: broadcast, transpose, slice ------------------------------------------------------------------- */

/* Merges dims that the operand walks as one, drops dims of one: longer steps, fewer divisions. */
static void collapse(struct affine *a)
{
    struct affine b = {.base = a->base};
    for (int32_t d = 0; d < a->shape.rank; d++) {
        if (a->shape.dims[d] == 1)
            continue;
        int32_t last = b.shape.rank - 1;
        if (last >= 0 && b.stride[last] == a->stride[d] * a->shape.dims[d]) {
            b.shape.dims[last] *= a->shape.dims[d];
            b.stride[last] = a->stride[d];
            continue;
        }
        b.shape.dims[b.shape.rank] = a->shape.dims[d];
        b.stride[b.shape.rank++] = a->stride[d];
    }
    dims_strides(b.shape.dims, b.shape.rank, b.shape.weight);
    *a = b;
}

struct affine affine_view(struct graph *g, const struct node *n)
{
    struct affine a = {.shape = shape_of(g, n->out[0])};
    struct shape x = shape_of(g, n->in[0]);
    struct view_map map = {0};
    view_map(g, n, 0, &map);
    for (int32_t d = 0; d < map.rank; d++) {
        int64_t start = 0;
        ex_is_const(g->ctx->exprs, map.dim[d].start, &start);
        a.base += start * x.weight[d];
        a.stride[map.dim[d].of] = map.dim[d].step * x.weight[d];
    }
    collapse(&a);
    return a;
}

void runs_of_operand(struct arena *arena, const struct affine *a, const struct run *runs, uint32_t n, run_list *out)
{
    int64_t c[RANK_MAX];
    out->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct run rest = runs[k];
        while (rest.n > 0) {
            int64_t from = a->base;
            coordinates(&a->shape, rest.at, c);
            struct step step = first_step(&a->shape, &rest, c);
            for (int32_t d = 0; d < a->shape.rank; d++)
                from += c[d] * a->stride[d];
            runs_push(arena, out, (struct run){from, step.dim < 0 ? 0 : step.by * a->stride[step.dim], step.n});
            rest.at += step.n * rest.stride;
            rest.n -= step.n;
        }
    }
}

void affine_copy_rows(const struct affine *a, const char *src, size_t size, int64_t first, int64_t rows, char *dst)
{
    enum { TILE = 16 };
    int32_t last = a->shape.rank - 1;
    int64_t width = a->shape.dims[last], step = a->stride[last] * (int64_t)size, c[RANK_MAX];
    for (int64_t r = 0; r < rows; r += TILE) {
        const char *from[TILE];
        int n = rows - r < TILE ? (int)(rows - r) : TILE;
        for (int i = 0; i < n; i++) {
            int64_t at = a->base;
            coordinates(&a->shape, (first + r + i) * width, c);
            for (int32_t d = 0; d < last; d++)
                at += c[d] * a->stride[d];
            from[i] = src + at * (int64_t)size;
        }
        for (int64_t k = 0; k < width; k++)
            for (int i = 0; i < n; i++) {
                char *to = dst + (size_t)((r + i) * width + k) * size;
                if (size == 4)
                    memcpy(to, from[i] + k * step, 4);
                else
                    memcpy(to, from[i] + k * step, size);
            }
    }
}

/* ---- windows: the part of a pad or concat that comes from one operand -------------------------------------------- */

/* Of n positions c, c + by, ...: the first inside [lo, lo + size) and, as the result, how many. */
static int64_t inside(int64_t c, int64_t by, int64_t n, int64_t lo, int64_t size, int64_t *first)
{
    int64_t k0 = 0, k1 = n;
    c -= lo;
    if (by == 0) {
        *first = 0;
        return c >= 0 && c < size ? n : 0;
    }
    if (by > 0) {
        if (c < 0)
            k0 = (-c + by - 1) / by;
        k1 = c >= size ? 0 : (size - 1 - c) / by + 1;
    } else {
        if (c >= size)
            k0 = (c - size) / -by + 1;
        k1 = c < 0 ? 0 : c / -by + 1;
    }
    k1 = k1 > n ? n : k1;
    *first = k0;
    return k1 > k0 ? k1 - k0 : 0;
}

int64_t runs_in_window(struct arena *arena, const struct window *w, const struct run *runs, uint32_t n, run_list *in,
                       piece_list *pieces)
{
    int64_t c[RANK_MAX], to = 0, total = 0, first;
    in->n = pieces->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct run rest = runs[k];
        while (rest.n > 0) {
            coordinates(&w->shape, rest.at, c);
            struct step step = first_step(&w->shape, &rest, c);
            int64_t from = 0, count = step.n, skip = 0;
            for (int32_t d = 0; d < w->shape.rank; d++) {
                int64_t m = inside(c[d], d == step.dim ? step.by : 0, step.n, w->lo[d], w->x.dims[d], &first);
                if (m < count || d == step.dim) {
                    count = m < count ? m : count;
                    skip = d == step.dim ? first : skip;
                }
                from += (c[d] - w->lo[d]) * w->x.weight[d];
            }
            if (count > 0) {
                int64_t stride = step.dim < 0 ? 0 : step.by * w->x.weight[step.dim];
                runs_push(arena, in, (struct run){from + skip * stride, stride, count});
                VEC_PUSH(arena, pieces, ((struct piece){to + skip, count}));
                total += count;
            }
            to += step.n;
            rest.at += step.n * rest.stride;
            rest.n -= step.n;
        }
    }
    return total;
}
