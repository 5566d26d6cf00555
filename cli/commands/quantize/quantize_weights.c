/* Weights as bytes: scales by channel, bias correction, cross-layer equalization. */
#include <math.h>

#include "cli/commands/quantize/quantize.h"

/* Parts of the largest weight of a channel that the largest byte may stand for. */
static const double shrink_step = 0.02, shrink_least = 0.7;
/* Moves of less than this factor between two channels are not worth it; larger ones than that are cut. */
static const double worth_most = 1.5, move_most = 64;
/* A bias has to fit into 32 bits, with room for the sums. */
static const double bias_most = 1 << 29;
/* Operators f with f(s x) = s f(x) for s > 0, channel by channel. */
static bool is_homogeneous(const struct edit_node *e)
{
    return e->kind == EDIT_RELU || e->kind == EDIT_LEAKY_RELU || e->kind == EDIT_MAX_POOL ||
           e->kind == EDIT_AVERAGE_POOL || e->kind == EDIT_GLOBAL_POOL;
}
enum { CHAIN_MOST = 4 };

/* The channels of element i of a site's weights. */
static void weights_place(const struct site *s, int64_t i, uint32_t *out, uint32_t *in)
{
    int64_t at[RANK_MAX];
    for (int32_t d = s->w.rank - 1; d >= 0; d--) {
        at[d] = i % s->w.dims[d];
        i /= s->w.dims[d];
    }
    *out = (uint32_t)at[s->out_axis];
    *in = (uint32_t)at[s->in_axis] + *out / (s->outs / s->groups) * (s->ins / s->groups);
}

/* ---- equalization ------------------------------------------------------------------------------------------------ */

/* The product that alone reads, through homogeneous maps, what `first` makes. */
static struct site *next_product(struct quantizer *q, const struct site *first)
{
    const struct edit_node *e = q->editor->node(q->file, first->node);
    for (int k = 0; k < CHAIN_MOST && e->n_out == 1; k++) {
        uint32_t node = 0;
        if (plan_readers(q, e->out[0], &node) != 1 || q->editor->is_open(q->file, e->out[0]))
            return NULL;
        struct site *next = plan_site(q, node);
        const char *from = e->out[0];
        e = q->editor->node(q->file, node);
        if (next && next->is_product)
            return strcmp(e->in[0], from) == 0 ? next : NULL;
        if (!is_homogeneous(e))
            return NULL;
    }
    return NULL;
}

static void scale_weights(struct site *s, const double *by, bool outputs)
{
    uint32_t o, c;
    for (int64_t i = 0; i < s->w.n; i++) {
        weights_place(s, i, &o, &c);
        s->w.now[i] = (float)(outputs ? (double)s->w.now[i] / by[o] : (double)s->w.now[i] * by[c]);
    }
    for (uint32_t k = 0; outputs && s->bias.now && k < s->outs; k++)
        s->bias.now[k] = (float)((double)s->bias.now[k] / by[k]);
    s->w.changed = true;
    s->bias.changed |= outputs && s->bias.now;
}

/* By how much each channel between the two is to shrink: until activations and the weights that read them are equally
 * wide, or the activations alone where each weight has a scale of its own. False: it is not worth it. */
static bool find_moves(const struct quantizer *q, const struct site *b, double *move)
{
    const struct seen *seen = &q->edges.data[b->edges[0]].seen;
    double *widest = NEW_ARRAY(&q->ctx->session, double, b->ins), mean = 0, least = INFINITY, most = 0;
    uint32_t n = 0, o, c;
    if (seen->channels != b->ins)
        return false;
    for (int64_t i = 0; i < b->w.n; i++) {
        weights_place(b, i, &o, &c);
        widest[c] = fmax(widest[c], fabs((double)b->w.now[i]));
    }
    for (c = 0; c < b->ins; c++) {
        bool alive = seen->top[c] > 0 && widest[c] > 0;
        move[c] = alive ? b->groups == b->ins ? seen->top[c] : sqrt(seen->top[c] / widest[c]) : 0;
        mean += alive ? log(move[c]) : 0;
        n += alive;
    }
    for (c = 0; c < b->ins && n; c++) {
        move[c] = move[c] > 0 ? fmin(fmax(move[c] / exp(mean / n), 1 / move_most), move_most) : 1;
        least = fmin(least, move[c]);
        most = fmax(most, move[c]);
    }
    return n && most / least > worth_most;
}

uint32_t weights_equalize(struct quantizer *q)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < q->sites.n; i++) {
        struct site *a = &q->sites.data[i];
        struct site *b = a->is_product && a->takes_bias && a->w.only && (!a->bias.now || a->bias.only)
                             ? next_product(q, a)
                             : NULL;
        if (!b || !b->w.only || b->ins != a->outs)
            continue;
        double *move = NEW_ARRAY(&q->ctx->session, double, b->ins);
        if (!find_moves(q, b, move))
            continue;
        scale_weights(a, move, true);
        scale_weights(b, move, false);
        pairs++;
    }
    return pairs;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static double rounded(double w, double scale)
{
    return fmin(fmax(rint(w / scale), -STEPS_I8), STEPS_I8);
}

/* The scales whose rounding errors have the least squares, of one pass over the weights for each candidate. */
static void choose_scales(struct quantizer *q, struct site *s)
{
    struct arena *arena = &q->ctx->session;
    double *widest = NEW_ARRAY(arena, double, s->outs), *least = NEW_ARRAY(arena, double, s->outs),
           *sum = NEW_ARRAY(arena, double, s->outs);
    const double x = (double)q->edges.data[s->edges[0]].range.scale;
    uint32_t o, c;
    s->scales = NEW_ARRAY(arena, float, s->outs);
    for (int64_t i = 0; i < s->w.n; i++) {
        weights_place(s, i, &o, &c);
        widest[o] = fmax(widest[o], fabs((double)s->w.now[i]));
    }
    for (double part = 1; part >= (q->method == OPT_RANGES_SQUARED ? shrink_least : 1); part -= shrink_step) {
        memset(sum, 0, s->outs * sizeof *sum);
        for (int64_t i = 0; i < s->w.n; i++) {
            weights_place(s, i, &o, &c);
            double scale = fmax(widest[o] * part / STEPS_I8, 1e-30), w = (double)s->w.now[i],
                   off = w - scale * rounded(w, scale);
            sum[o] += off * off;
        }
        for (o = 0; o < s->outs; o++)
            if (part == 1 || sum[o] < least[o]) {
                least[o] = sum[o];
                s->scales[o] = widest[o] > 0 ? (float)(widest[o] * part / STEPS_I8) : 1;
            }
    }
    for (o = 0; o < s->outs && s->bias.now; o++)
        s->scales[o] = fmaxf(s->scales[o], (float)(fabs((double)s->bias.now[o]) / (x * bias_most)));
}

/* Rounds, with what that does to the mean of each output channel. */
static void quantize_site(struct quantizer *q, struct site *s)
{
    const struct seen *seen = &q->edges.data[s->edges[0]].seen;
    struct arena *arena = &q->ctx->session;
    bool channels = seen->channels == s->ins && seen->count;
    double each = channels ? (double)seen->count / seen->channels : 1;
    double *shift = NEW_ARRAY(arena, double, s->outs);
    uint32_t o, c;
    choose_scales(q, s);
    s->bytes = arena_alloc_array(arena, (size_t)s->w.n, 1);
    for (int64_t i = 0; i < s->w.n; i++) {
        weights_place(s, i, &o, &c);
        double w = (double)s->w.now[i], v = rounded(w, (double)s->scales[o]), off = v * (double)s->scales[o] - w;
        s->bytes[i] = (int8_t)v;
        shift[o] += channels ? off * seen->sum[c] / each : 0;
    }
    if (!s->takes_bias)
        return;
    s->corrected = NEW_ARRAY(arena, float, s->outs);
    for (o = 0; o < s->outs; o++)
        s->corrected[o] = (float)((s->bias.now ? (double)s->bias.now[o] : 0) - shift[o]);
}

void weights_quantize(struct quantizer *q)
{
    for (uint32_t i = 0; i < q->sites.n; i++)
        if (q->sites.data[i].is_product)
            quantize_site(q, &q->sites.data[i]);
}
