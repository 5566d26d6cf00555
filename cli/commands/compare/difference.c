/* Comparing tensors of one type and shape: how many elements are too far apart, and which is farthest. */
#include "cli/commands/compare/difference.h"

#include <math.h>

#include "ir/eval/eval.h"

enum { STEPS_PART = 100 };

double elem_looseness(enum elem elem)
{
    switch (elem) {
    case ELEM_F32:
    case ELEM_F64:
    case ELEM_C64:
    case ELEM_C128: return 1;
    case ELEM_F16: return 10;
    default: return elem_class(elem) == 'F' ? 80 : 0;
    }
}

bool tensor_differs(const struct tensor *want, const void *got, struct closeness close, struct difference *out)
{
    uint32_t size = elem_size(want->elem);
    const char *w_data = want->data, *g_data = got;
    int64_t steps = 0;
    *out = (struct difference){.total = tensor_count(want), .at = -1};
    for (int64_t i = 0; i < out->total; i++) {
        double w = fabs(elem_to_f64(want->elem, w_data + i * size));
        if (isfinite(w) && w > out->scale)
            out->scale = w;
    }
    double allowed = close.relative * out->scale;
    for (int64_t i = 0; i < out->total; i++) {
        double g = elem_to_f64(want->elem, g_data + i * size), w = elem_to_f64(want->elem, w_data + i * size),
               d = fabs(g - w);
        if ((g == w || (isnan(g) && isnan(w))) || d <= allowed)
            continue;
        steps += d == 1;
        out->count++;
        if (out->at < 0 || !(d <= out->largest)) {
            out->largest = d;
            out->at = i;
            out->got = g;
            out->want = w;
        }
    }
    bool ties = close.step && steps == out->count && steps <= 1 + out->total / STEPS_PART;
    return out->count > 0 && !ties;
}
