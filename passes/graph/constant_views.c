/* Is a constant another one transposed or reshaped? Samples are compared first, then all elements. */
#include "passes/graph/constant_views.h"

enum { RANK_MOST = 4, SAMPLES = 64, TILE = 32 };

static const char *element(const struct tensor_data *c, int64_t i)
{
    return (const char *)c->bytes.data + i * (int64_t)elem_size(c->elem);
}

/* Where a step along each dim of b goes in a: b's dim d is a's dim perm[d]. */
static void steps_of(const struct tensor_data *a, const int32_t *perm, int64_t *step)
{
    int64_t stride[RANK_MAX], at = 1;
    for (int32_t d = a->rank - 1; d >= 0; d--) {
        stride[d] = at;
        at *= a->dims[d];
    }
    for (int32_t d = 0; d < a->rank; d++)
        step[d] = stride[perm[d]];
}

static bool samples_equal(const struct tensor_data *a, const struct tensor_data *b, const int64_t *step)
{
    size_t size = elem_size(a->elem);
    uint64_t count = b->bytes.size / size;
    for (uint64_t k = 0; k < SAMPLES; k++) {
        uint64_t i = hash_mix(k, count) % count, rest = i;
        int64_t at = 0;
        for (int32_t d = b->rank - 1; d >= 0; d--) {
            at += (int64_t)(rest % (uint64_t)b->dims[d]) * step[d];
            rest /= (uint64_t)b->dims[d];
        }
        if (memcmp(element(a, at), element(b, (int64_t)i), size) != 0)
            return false;
    }
    return true;
}

/* memcmp of a fixed size is a load and a comparison. */
static bool same_element(const char *a, const char *b, size_t size)
{
    switch (size) {
    case 1: return *a == *b;
    case 2: return memcmp(a, b, 2) == 0;
    case 4: return memcmp(a, b, 4) == 0;
    case 8: return memcmp(a, b, 8) == 0;
    default: return memcmp(a, b, size) == 0;
    }
}

/* One plane of b, rows by columns: element (r, c) lies at b + r * row + c, and in a at r * step_r + c * step_c. By
 * squares, so that neither side jumps from page to page. */
static bool plane_equal(const char *a, const char *b, size_t size, int64_t rows, int64_t cols, int64_t row,
                        int64_t step_r, int64_t step_c)
{
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
                    if (!same_element(a + (r * step_r + c * step_c) * (int64_t)size, b + (r * row + c) * (int64_t)size,
                                      size))
                        return false;
    return true;
}

/* All elements. The plane is b's last dim and that of its dims which is a's last; the (at most two) others are
 * walked. */
static bool elements_equal(const struct tensor_data *a, const struct tensor_data *b, const int64_t *step)
{
    int32_t last = b->rank - 1, fast = 0;
    int64_t row[RANK_MAX], at = 1, outer = 1;
    for (int32_t d = last; d >= 0; d--) {
        row[d] = at;
        at *= b->dims[d];
        if (d != last && step[d] <= step[fast])
            fast = d;
    }
    for (int32_t d = 0; d < last; d++)
        outer *= d == fast ? 1 : b->dims[d];
    for (int64_t i = 0; i < outer; i++) {
        int64_t rest = i, from_a = 0, from_b = 0;
        for (int32_t d = last - 1; d >= 0; d--)
            if (d != fast) {
                from_a += rest % b->dims[d] * step[d];
                from_b += rest % b->dims[d] * row[d];
                rest /= b->dims[d];
            }
        if (!plane_equal(element(a, from_a), element(b, from_b), elem_size(a->elem), b->dims[fast], b->dims[last],
                         row[fast], step[fast], step[last]))
            return false;
    }
    return true;
}

bool budget_spend(uint64_t *budget, uint64_t bytes)
{
    if (*budget < bytes)
        return false;
    *budget -= bytes;
    return true;
}

bool constant_is_transposed(uint64_t *budget, const struct tensor_data *a, const struct tensor_data *b, int32_t *perm)
{
    int32_t rank = a->rank, radix = rank, codes = 1;
    if (rank != b->rank || rank < 2 || rank > RANK_MOST)
        return false;
    for (int32_t d = 0; d < rank; d++)
        codes *= radix;
    for (int32_t code = 0; code < codes; code++) {
        uint32_t used = 0;
        bool fits = true, same = true;
        int64_t step[RANK_MAX];
        for (int32_t d = 0, rest = code; d < rank; d++, rest /= radix) {
            perm[d] = rest % radix;
            fits &= !(used >> perm[d] & 1) && b->dims[d] == a->dims[perm[d]];
            used |= 1u << perm[d];
            same &= perm[d] == d;
        }
        if (!fits || same)
            continue;
        steps_of(a, perm, step);
        if (samples_equal(a, b, step) && budget_spend(budget, b->bytes.size) && elements_equal(a, b, step))
            return true;
    }
    return false;
}

bool constant_is_reshaped(uint64_t *budget, const struct tensor_data *a, const struct tensor_data *b)
{
    size_t size = a->bytes.size, step = size / SAMPLES + 1;
    const char *x = a->bytes.data, *y = b->bytes.data;
    for (size_t i = 0; i < size; i += step)
        if (x[i] != y[i])
            return false;
    return budget_spend(budget, size) && memcmp(x, y, size) == 0;
}
