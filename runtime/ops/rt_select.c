/* NonZero-13 and NonMaxSuppression-11: operators whose number of results the data decides. */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

/* ---- nonzero ------------------------------------------------------------------------------------------------ */

/* Floats whose zero has a sign: the mask without it. 0: compare all bytes. */
static uint64_t magnitude_mask(int64_t elem)
{
    switch (elem) {
    case RT_ELEM_F32: return 0x7fffffff;
    case RT_ELEM_F64: return 0x7fffffffffffffff;
    case RT_ELEM_F16:
    case RT_ELEM_BF16: return 0x7fff;
    case RT_ELEM_F8E4M3FN:
    case RT_ELEM_F8E5M2: return 0x7f;
    case RT_ELEM_F4E2M1: return 0x7;
    case RT_ELEM_F8E8M0: return 0;   /* has no zero; masked below to "never zero" */
    default: return ~(uint64_t)0;
    }
}

static bool is_zero(int64_t elem, int64_t size, const char *p, uint64_t mask)
{
    uint64_t word = 0;
    if (elem == RT_ELEM_STR)
        return ((const struct rt_string *)(const void *)p)->bytes == 0;
    if (elem == RT_ELEM_F8E8M0)
        return false;
    if (elem == RT_ELEM_C64 || elem == RT_ELEM_C128) {
        int64_t half = size / 2, part = elem == RT_ELEM_C64 ? RT_ELEM_F32 : RT_ELEM_F64;
        uint64_t re = 0, im = 0;
        memcpy(&re, p, (size_t)half);
        memcpy(&im, p + half, (size_t)half);
        return ((re | im) & magnitude_mask(part)) == 0;
    }
    memcpy(&word, p, (size_t)size);
    return (word & mask) == 0;
}

/* Which of n <= 64 bytes are not zero in the bits of mask, eight at a time: what carries into a byte's highest bit, or
 * is there, is brought together by a product. */
static uint64_t nonzero_bytes(const char *p, int64_t n, uint64_t mask)
{
    uint64_t bits = 0, high = 0x8080808080808080, all = (mask & 0xff) * 0x0101010101010101;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        word &= all;
        word = (word | ((word & ~high) + ~high)) & high;
        bits |= word * 0x0002040810204081 >> 56 << i;
    }
    for (; i < n; i++)
        bits |= (uint64_t)((p[i] & mask) != 0) << i;
    return bits;
}

/* Which of n <= 64 elements are not zero: bit i stands for element i. Elements of one to eight bytes go without a
 * branch. */
static uint64_t nonzero_bits(int64_t elem, int64_t size, const char *p, int64_t n, uint64_t mask)
{
    uint64_t bits = 0;
    bool words = elem != RT_ELEM_F8E8M0 && elem != RT_ELEM_C64 && elem != RT_ELEM_C128 && elem != RT_ELEM_STR;
    if (words && size == 1)
        return nonzero_bytes(p, n, mask);
    for (int64_t i = 0; words && size == 2 && i < n; i++) {
        uint16_t word;
        memcpy(&word, p + 2 * i, sizeof word);
        bits |= (uint64_t)((word & mask) != 0) << i;
    }
    for (int64_t i = 0; words && size == 4 && i < n; i++) {
        uint32_t word;
        memcpy(&word, p + 4 * i, sizeof word);
        bits |= (uint64_t)((word & mask) != 0) << i;
    }
    for (int64_t i = 0; words && size == 8 && i < n; i++) {
        uint64_t word;
        memcpy(&word, p + 8 * i, sizeof word);
        bits |= (uint64_t)((word & mask) != 0) << i;
    }
    for (int64_t i = 0; !words && i < n; i++)
        bits |= (uint64_t)!is_zero(elem, size, p + i * size, mask) << i;
    return bits;
}

int64_t mcc_rt_nonzero_count(struct mcc_rt_run *run, int64_t elem, const void *src, int64_t n)
{
    int64_t size = rt_elem_bytes(elem), count = 0;
    uint64_t mask = magnitude_mask(elem);
    (void)run;
    for (int64_t i = 0; i < n; i += 64)
        count += __builtin_popcountll(
            nonzero_bits(elem, size, (const char *)src + i * size, n - i < 64 ? n - i : 64, mask));
    return count;
}

/* Lines along the last dim; places of the others count up from line to line. */
int64_t mcc_rt_nonzero(struct mcc_rt_run *run, int64_t elem, const void *src, int64_t rank, const int64_t *dims,
                       int64_t *indices, int64_t count)
{
    int64_t size = rt_elem_bytes(elem), n = 1, found = 0, at[RT_RANK_MAX] = {0}, line = rank ? dims[rank - 1] : 1;
    uint64_t mask = magnitude_mask(elem);
    (void)run;
    for (int64_t i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n && found < count; i += line) {
        for (int64_t j = 0; j < line; j += 64) {
            int64_t part = line - j < 64 ? line - j : 64;
            uint64_t bits = nonzero_bits(elem, size, (const char *)src + (i + j) * size, part, mask);
            for (; bits && found < count; bits &= bits - 1) {
                for (int64_t k = 0; k + 1 < rank; k++)
                    indices[k * count + found] = at[k];
                if (rank)
                    indices[(rank - 1) * count + found] = j + __builtin_ctzll(bits);
                found++;
            }
        }
        for (int64_t k = rank - 2; k >= 0 && ++at[k] == dims[k]; k--)
            at[k] = 0;
    }
    return found;
}

/* ---- non-maximum suppression ------------------------------------------------------------------------------------- */

struct box {
    float y0, x0, y1, x1, area;
};

static struct box box_of(const float *p, bool center)
{
    struct box b;
    if (center) {
        b = (struct box){p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2, 0};
    } else {
        b.y0 = p[0] < p[2] ? p[0] : p[2];
        b.y1 = p[0] < p[2] ? p[2] : p[0];
        b.x0 = p[1] < p[3] ? p[1] : p[3];
        b.x1 = p[1] < p[3] ? p[3] : p[1];
    }
    b.area = (b.y1 - b.y0) * (b.x1 - b.x0);
    return b;
}

/* Boxes that were selected, in whole groups of BOXES; those that lack in the last one are empty. */
enum { BOXES = 8 };
struct boxes {
    float y0[BOXES], x0[BOXES], y1[BOXES], x1[BOXES], area[BOXES];
};

/* Whether one of a group overlaps b by more than iou. No branch, so that the compiler makes vectors of it. */
static bool group_overlaps(const struct boxes *a, const struct box *b, float iou)
{
    int found = 0;
    for (int i = 0; i < BOXES; i++) {
        float y0 = a->y0[i] > b->y0 ? a->y0[i] : b->y0, y1 = a->y1[i] < b->y1 ? a->y1[i] : b->y1;
        float x0 = a->x0[i] > b->x0 ? a->x0[i] : b->x0, x1 = a->x1[i] < b->x1 ? a->x1[i] : b->x1;
        float common = (y1 - y0) * (x1 - x0), either = a->area[i] + b->area - common;
        found |= (y1 > y0) & (x1 > x0) & (a->area[i] > 0) & (b->area > 0) & (either > 0) & (common / either > iou);
    }
    return found != 0;
}

static void add_box(struct boxes *selected, int64_t n, const struct box *b)
{
    struct boxes *group = selected + n / BOXES;
    int64_t i = n % BOXES;
    if (i == 0)
        memset(group, 0, sizeof *group);
    group->y0[i] = b->y0, group->x0[i] = b->x0, group->y1[i] = b->y1, group->x1[i] = b->x1, group->area[i] = b->area;
}

struct nms {
    const float *scores;
    struct box *boxes;
    struct boxes *selected; /* of the class at hand */
    int64_t *order, *spare, n, max;
    float iou;
    bool limit;
    float least;
};

/* The best `most` of one class by falling score; equal scores by position; NaN, which comes first, is below every
 * threshold. */
static int64_t candidates(struct mcc_rt_run *run, const struct nms *nms, const float *scores, int64_t most)
{
    int64_t n = 0;
    if (mcc_rt_sort(run, RT_ELEM_F32, scores, NULL, nms->spare, 1, nms->n, 1, 1, most) < 0)
        return MCC_E_NOMEM;
    for (int64_t i = 0; i < most; i++) {
        int64_t k = nms->spare[i];
        if (scores[k] == scores[k] && (!nms->limit || !(scores[k] <= nms->least))) /* NaN: no limit */
            nms->order[n++] = k;
    }
    return n;
}

/* Rows for one class of n candidates; their number. */
static int64_t suppress(const struct nms *nms, int64_t n, int64_t batch, int64_t class, int64_t *rows)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n && kept < nms->max; i++) {
        int64_t k = nms->order[i];
        bool close = false;
        for (int64_t j = 0; j < kept && !close; j += BOXES)
            close = group_overlaps(&nms->selected[j / BOXES], &nms->boxes[k], nms->iou);
        if (close)
            continue;
        add_box(nms->selected, kept, &nms->boxes[k]);
        rows[3 * kept] = batch;
        rows[3 * kept + 1] = class;
        rows[3 * kept + 2] = k;
        kept++;
    }
    return kept;
}

/* Rows for one class. A few more candidates than there may be rows mostly do; else all are sorted. */
static int64_t nms_class(struct mcc_rt_run *run, const struct nms *nms, const float *scores, int64_t batch,
                         int64_t class, int64_t *rows)
{
    int64_t some = nms->max < nms->n / 4 ? nms->max + nms->max / 2 + 32 : nms->n, kept;
    for (some = some < nms->n ? some : nms->n;; some = nms->n) {
        int64_t found = candidates(run, nms, scores, some);
        if (found < 0 || mcc_rt_poll(run) < 0)
            return MCC_E_NOMEM;
        kept = suppress(nms, found, batch, class, rows);
        if (kept == nms->max || some == nms->n)
            return kept;
    }
}

static int64_t nms_all(struct mcc_rt_run *run, struct nms *nms, const float *boxes, const float *scores,
                       int64_t batches, int64_t classes, bool center, int64_t *selected)
{
    int64_t rows = 0;
    nms->boxes = rt_run_alloc(run, nms->n * (int64_t)sizeof *nms->boxes);
    nms->selected = rt_run_alloc(run, (nms->n / BOXES + 1) * (int64_t)sizeof *nms->selected);
    nms->order = rt_run_alloc(run, nms->n * 8);
    nms->spare = rt_run_alloc(run, nms->n * 8);
    if (!nms->boxes || !nms->selected || !nms->order || !nms->spare)
        return MCC_E_NOMEM;
    for (int64_t batch = 0; batch < batches; batch++) {
        for (int64_t i = 0; i < nms->n; i++)
            nms->boxes[i] = box_of(boxes + 4 * (batch * nms->n + i), center);
        for (int64_t class = 0; class < classes; class ++) {
            int64_t kept = nms_class(run, nms, scores + (batch * classes + class) * nms->n, batch, class,
                                     selected + 3 * rows);
            if (kept < 0)
                return kept;
            rows += kept;
        }
    }
    return rows;
}

int64_t mcc_rt_nms(struct mcc_rt_run *run, const float *boxes, const float *scores, int64_t batches, int64_t n,
                   int64_t classes, const int64_t *max_per_class, const float *iou, const float *score, int64_t center,
                   int64_t *selected)
{
    struct nms nms = {.n = n,
                      .max = max_per_class ? *max_per_class : 0,
                      .iou = iou ? *iou : 0,
                      .limit = score != NULL,
                      .least = score ? *score : 0};
    if (nms.max <= 0 || n == 0)
        return 0;
    struct rt_mark mark = rt_run_mark(run);
    int64_t rows = nms_all(run, &nms, boxes, scores, batches, classes, center != 0, selected);
    rt_run_reset(run, mark);
    return rows;
}
