/* Draws at other sizes: see sizes.h. */
#include "cli/commands/compare/sizes.h"

#include "cli/commands/artifact/session.h"
#include "cli/commands/compare/refusal.h"
#include "cli/commands/compare/single.h"
#include "ir/expr/expr.h"

/* Sizes in the place of those that are not given: a kernel has other loops for a few rows than for many. The first are
 * drawn in any case: all symbols the same, then different ones, where the network takes that. */
static const int64_t first_sizes[] = {2, 7, 16, 33};
enum { SIZES_MOST = 64, ELEMENTS_MOST = 1 << 20 };
/* Of one size beyond SIZES_MOST: elements of the inputs, and what a run may be estimated to take as floats beyond the
 * first one (the field takes some 20 times as long). And how many tuples of sizes are drawn. */
enum { ELEMENTS_LONG = 1 << 17, LONG_NS = 60000000, DRAWN_MOST = 128 };
#define VALUES_LONG 0x1p22 /* of the run before */
/* Beyond so many elements of inputs, or of all values, the interpreter judges single kernels where these are all that
 * need the size. */
enum { ELEMENTS_WHOLE = 1 << 14 };
#define VALUES_WHOLE 0x1p22
/* Tuples of sizes that are drawn in any case, and how many values these may have: sizes decide which way integers go.
 * Further ones may have VALUES_WHOLE, as long as integers have shown few of their values. */
enum { TUPLES = 16, TIED_SIZE = 7 };
#define VALUES_TUPLE 0x1p18
/* Of all values in one draw that the interpreter judges as a whole: it has them in memory, of two graphs. */
#define VALUES_MOST 0x1p27
/* Elements of the inputs of all such draws. */
#define ELEMENTS_REST ((uint64_t)1 << 24)
/* Elements of inputs in all draws that are too large for the interpreter. */
#define ELEMENTS_PARTS ((uint64_t)1 << 29)
/* The same where kernels have two parallel indices, and the largest size. */
#define ELEMENTS_LATER ((uint64_t)1 << 24)
enum { LATER_MOST = 1 << 16 };
/* Draws in which a size may serve nothing, if data decides which branch is taken. */
enum { VAIN_MOST = 8 };
/* Draws that a run may refuse before its sizes change, if the data decides whether a condition is checked. */
enum { SETTLE_ATTEMPTS = 4 };

bool sizes_settle(struct prove *p, bool last, uint32_t branch)
{
    if (sizing_holds(&p->sizing))
        return true;
    const uint32_t attempts = sizing_holds_outside(&p->sizing) ? SETTLE_ATTEMPTS : 1;
    for (uint32_t attempt = 0; attempt < attempts && !p->now->ended; attempt++) {
        prove_attempt(p, 0, attempt);
        if (p->code == MCC_OK && !p->now->ended) {
            prove_release(p);
            return true;
        }
        if (!p->now->ended)
            refusal_judge(p);
    }
    return !p->now->ended && sizing_mend(&p->sizing, last, branch);
}

static uint64_t input_elements(const struct prove *p)
{
    return sizing_elements(&p->sizing);
}

/* Elements of all values at the sizes of the inputs, as far as these say. */
static double value_elements(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    double all = 0;
    capture_begin(&p->run);
    for (uint32_t i = 1; i < g->values.n; i++)
        if (value_node(g, (value_id){i}) && value_type(g, (value_id){i})->kind == TYPE_TENSOR &&
            !value_is_const(g, (value_id){i}))
            all += capture_count(&p->run, value_type(g, (value_id){i}));
    return all;
}

struct sized {
    int64_t size;
    uint32_t form;
    uint32_t vain; /* draws since it has served */
};

/* Inputs of another size: of all symbols that --dim does not give. False: there are none, or not of this form, or it is
 * none of theirs, or the inputs would have more elements than `most`. */
static bool resize_at(struct prove *p, struct sized at, uint64_t most)
{
    const uint32_t branch = 1 + (uint32_t)((at.size / 2 + at.vain) % 2);
    p->resized = true;
    return sizing_put(&p->sizing, at.size, at.form, most) && sizes_settle(p, at.size % 2 == 0, branch) &&
           input_elements(p) <= most;
}

static bool resize(struct prove *p, int64_t size, uint32_t form, uint64_t most)
{
    return resize_at(p, (struct sized){size, form, 0}, most);
}

/* Is there a size that neither --dim gives nor the data of the run decides? */
static bool is_open(const struct prove *p)
{
    const mcc_api *api = p->run.s.api;
    struct exprs *x = p->run.c.ctx->exprs;
    bool open = sym_next(x, SYM_VALUE, (sym_id){0}).i;
    for (uint32_t i = 0; i < api->n_sym; i++)
        open |= sizing_is_free(&p->sizing, i);
    return open;
}

/* Does the one free symbol take no sizes but those from 1 to SIZES_MOST, all of which are drawn? */
static bool is_small(const struct prove *p)
{
    const mcc_api *api = p->run.s.api;
    uint32_t n = 0;
    bool small = !sym_next(p->run.c.ctx->exprs, SYM_VALUE, (sym_id){0}).i;
    for (uint32_t i = 0; i < api->n_sym; i++)
        if (sizing_is_free(&p->sizing, i)) {
            n++;
            small &= api->sym[i].min > 0 && api->sym[i].max && api->sym[i].max <= SIZES_MOST;
        }
    return small && n == 1;
}

/* Draws at a size that is too large for the interpreter, where single kernels need it. False: nothing more is to be
 * drawn. left: elements of inputs that such draws may still have. */
static bool draw_part(struct prove *p, int64_t size, uint32_t draw, uint64_t *left)
{
    p->part.gained = false;
    if (!resize(p, size, SIZES_SAME, UINT64_MAX) || input_elements(p) <= ELEMENTS_MOST || !single_begin(p))
        return true;
    const bool few = input_elements(p) <= *left;
    *left -= few ? input_elements(p) : 0;
    const bool ok = few && prove_draw(p, draw, DRAW_PARTS);
    single_end(p);
    return ok;
}

/* Sizes to SIZES_MOST that are too large for the interpreter, then those that have served, as long as they serve. */
static bool draw_parts(struct prove *p, uint32_t draw)
{
    uint64_t left = ELEMENTS_PARTS;
    bool serves[SIZES_MOST + 1], any = !p->by_data, ok = true;
    memset(serves, true, sizeof serves);
    while (any && ok) {
        any = false;
        for (int64_t size = 2; ok && size <= SIZES_MOST && !p->now->ended && verdict_lacks(p); size++) {
            if (!serves[size])
                continue;
            ok = draw_part(p, size, draw++, &left);
            any |= serves[size] = p->part.gained;
        }
    }
    return p->run.c.ctx->fail == FAIL_NONE;
}

/* How many parallel indices the kernel has if all free symbols have this size; 0: that is not known. */
static int64_t indices_at(struct prove *p, const struct kernel *k, int64_t size)
{
    struct exprs *x = p->run.c.ctx->exprs;
    uint32_t n = 0;
    int64_t count;
    for (sym_id i = sym_next(x, SYM_SHAPE, (sym_id){0}); i.i; i = sym_next(x, SYM_SHAPE, i), n++)
        if (sizing_is_free(&p->sizing, n))
            p->run.symbols[i.i] = size;
    return capture_number(&p->run, k->count, &count) && count > 0 ? count : 0;
}

/* The largest size at which the kernel has two parallel indices: both are as long as they get. 0: there is none. */
static int64_t later_size(struct prove *p, const struct kernel *k)
{
    int64_t low = 0, high = LATER_MOST; /* two at the most, more */
    if (!k || !k->count.i || indices_at(p, k, high) <= 2)
        return 0;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(indices_at(p, k, middle) <= 2 ? &low : &high) = middle;
    }
    return low && indices_at(p, k, low) == 2 ? low : 0;
}

/* Single kernels where they have two parallel indices, or a third one of few elements: blocks of an open extent are not
 * as long as they should be where two do not reach its end. */
static bool draw_later(struct prove *p)
{
    uint64_t left = ELEMENTS_LATER;
    uint32_t draw = 8 * INTEGER_DRAWS;
    int64_t next = 1;
    bool ok = !p->by_data;
    p->part.asks = PART_LATER;
    p->part.sizes = NEW_ARRAY(&p->run.c.ctx->session, int64_t, prove_kernels(p) + 1);
    if (ok)
        capture_begin(&p->run);
    for (uint32_t i = 0; ok && i < prove_kernels(p); i++)
        p->part.sizes[i] = later_size(p, prove_code(p, i));
    while (ok && next && !p->now->ended) {
        next = 0;
        for (uint32_t i = 0; i < prove_kernels(p); i++)
            if (p->part.sizes[i] > p->part.size && (!next || p->part.sizes[i] < next))
                next = p->part.sizes[i];
        p->part.size = next;
        for (int64_t k = 0; ok && k < PROVE_RUNS && k <= next && next && !p->now->ended; k++) {
            p->part.turn = (uint32_t)k;
            if (!resize(p, next + 1 - k, SIZES_SAME, left) || !single_begin(p))
                continue;
            left -= input_elements(p);
            ok = prove_draw(p, draw++, DRAW_PARTS);
            single_end(p);
        }
    }
    p->part.size = 0;
    p->part.asks = PART_BLOCKS;
    return ok || p->by_data;
}

/* All sizes to SIZES_MOST, which are all that the network takes. */
static bool draw_small(struct prove *p, uint32_t draw)
{
    bool ok = true;
    for (int64_t size = 1; ok && size <= SIZES_MOST && !p->now->ended; size++)
        ok = !resize(p, size, SIZES_SAME, UINT64_MAX) || prove_draw(p, draw++, DRAW_ALL);
    p->now->whole = !p->now->ended;
    return ok;
}

/* Sizes at which a loop or branch has run that had not run often. */
struct size_list {
    struct sized *data;
    uint32_t n, cap;
};

/* Draws at the sizes, unless they are too large or were drawn before, and adds them to `gained`. Single kernels are
 * judged where all that need the draw can be. False: nothing more is to be drawn. */
static bool draw_size(struct prove *p, struct sized at, uint64_t most, bool again, uint32_t *draw,
                      struct size_list *gained)
{
    if (p->now->ended || !verdict_lacks(p))
        return false;
    if (!resize_at(p, at, most) || (!again && !sizing_is_new(&p->sizing)))
        return true;
    const uint64_t n = input_elements(p);
    const double values = value_elements(p);
    if (n > ELEMENTS_WHOLE && n > p->rest)
        return true;
    p->rest -= n > ELEMENTS_WHOLE ? n : 0;
    const bool single = (n > ELEMENTS_WHOLE || values > VALUES_WHOLE) && single_begin(p) && p->part.all;
    if (!single)
        single_end(p);
    if (!single && values > VALUES_MOST && at.size > first_sizes[0])
        return true;
    const bool ok = prove_draw(p, (*draw)++, single ? DRAW_PARTS : DRAW_GAINS);
    single_end(p);
    at.vain = p->part.gained ? 0 : at.vain + 1;
    if (p->part.gained || (at.vain < VAIN_MOST && p->integers.deciding.n)) /* another branch was taken */
        VEC_PUSH(&p->run.c.ctx->session, gained, at);
    return ok;
}

/* Sizes beyond SIZES_MOST, until a run takes long or has many values. False: nothing more is to be drawn. */
static bool draw_long(struct prove *p, uint32_t form, uint32_t *draw, struct size_list *gained)
{
    bool on = true, more = true;
    double first = 0;
    for (int64_t size = SIZES_MOST; on && more && size < LATER_MOST; size += size / 4 + 1) {
        p->run.ns = 0;
        on = draw_size(p, (struct sized){size, form, 0}, ELEMENTS_LONG, false, draw, gained);
        first = first > 0 ? first : p->run.ns;
        more = p->run.ns < first + LONG_NS && value_elements(p) < VALUES_LONG;
    }
    return on;
}

/* Draws at the sizes that have served once more, as long as they serve. False: nothing more is to be drawn. */
static bool draw_again(struct prove *p, uint32_t *draw, struct size_list *gained)
{
    bool on = true;
    while (on && gained->n) {
        const struct size_list turn = *gained;
        *gained = (struct size_list){0};
        for (uint32_t k = 0; on && k < turn.n; k++)
            on = draw_size(p, turn.data[k], ELEMENTS_MOST, true, draw, gained);
    }
    return on;
}

/* Sizes as long as loops and branches have not run often: small inputs first, as each draw costs what they have. */
static bool draw_rest(struct prove *p)
{
    const uint32_t forms = sizing_forms(&p->sizing);
    uint32_t draw = INTEGER_DRAWS + 2 * COUNT_OF(first_sizes);
    struct size_list gained = {0};
    const struct sized first = {first_sizes[0], SIZES_SAME, 0}; /* large images have no other one */
    bool on = true;
    VEC_PUSH(&p->run.c.ctx->session, &gained, first);
    p->rest = ELEMENTS_REST;
    p->now->whole = !is_open(p);
    if (p->now->whole)
        return draw_parts(p, draw);
    if (is_small(p))
        return draw_small(p, draw);
    for (uint32_t alone = 2; alone-- > 0;) {
        if (!alone && verdict_lacks(p))
            never_find_open(p);
        for (uint32_t form = forms; form-- > 0;)
            for (int64_t size = 0; on && size <= SIZES_MOST && sizing_is_alone(&p->sizing, form) == alone; size++)
                on = draw_size(p, (struct sized){size, form, 0}, ELEMENTS_MOST, false, &draw, &gained);
        on = on && draw_again(p, &draw, &gained);
        for (uint32_t form = forms; on && alone && form-- > 0;)
            on = !sizing_is_alone(&p->sizing, form) || draw_long(p, form, &draw, &gained);
        for (uint32_t k = 0; on && alone && k < DRAWN_MOST; k++)
            on = draw_size(p, (struct sized){k, SIZES_DRAWN, 0}, ELEMENTS_MOST, false, &draw, &gained);
        on = on && draw_again(p, &draw, &gained);
    }
    return p->run.c.ctx->fail == FAIL_NONE && draw_parts(p, draw);
}

/* Each symbol 0 once, where the network takes that, and the rest 1. */
static bool draw_zeros(struct prove *p)
{
    bool ok = true;
    for (uint32_t form = sizing_forms(&p->sizing); ok && form-- > 0 && !p->now->ended;)
        if (sizing_is_alone(&p->sizing, form) && resize(p, 0, form, ELEMENTS_WHOLE))
            ok = prove_draw(p, 11 * INTEGER_DRAWS + form, DRAW_ALL);
    return ok;
}

static bool draw_tuples(struct prove *p)
{
    bool ok = true;
    for (uint32_t k = 0;
         ok && !p->now->ended && (k < TUPLES || (k < DRAWN_MOST && verdict_lacks_integers(p, p->now->draws, 0))); k++)
        if (resize(p, DRAWN_MOST + k, SIZES_DRAWN, ELEMENTS_WHOLE) &&
            value_elements(p) <= (k < TUPLES ? VALUES_TUPLE : VALUES_WHOLE))
            ok = prove_draw(p, 10 * INTEGER_DRAWS + k, DRAW_ALL);
    return ok;
}

/* A tensor of one element has no equal ones, so equal floats are also drawn at a larger size. */
static bool draw_tied(struct prove *p)
{
    return !verdict_lacks_ties(p, 0) || !resize(p, TIED_SIZE, SIZES_SAME, ELEMENTS_WHOLE) ||
           value_elements(p) > VALUES_TUPLE || prove_draw_ties(p);
}

/* Sizes that the network refuses, which the code has to refuse as well. */
static void draw_refused(struct prove *p)
{
    for (uint32_t i = 0; i < p->legal->size_checks.n; i++)
        for (uint32_t way = 0; way < SIZING_WAYS && !p->now->ended; way++) {
            if (!sizing_break(&p->sizing, i, way))
                continue;
            p->resized = true;
            prove_attempt(p, 0, 0);
            if (!p->now->ended)
                refusal_judge(p);
            if (p->code == MCC_OK)
                prove_release(p);
        }
}

bool sizes_draw(struct prove *p)
{
    bool ok = true;
    for (uint32_t k = 0; ok && !p->now->ended && k < 2 * COUNT_OF(first_sizes); k++)
        ok = !resize(p, first_sizes[k / 2], k % 2, ELEMENTS_MOST) || (k > 1 && value_elements(p) > VALUES_MOST) ||
             prove_draw(p, INTEGER_DRAWS + k, DRAW_ALL);
    ok = ok && draw_zeros(p);
    ok = ok && (p->now->ended || draw_tuples(p));
    ok = ok && (p->now->ended || draw_rest(p));
    ok = ok && (p->now->ended || p->now->whole || draw_later(p));
    ok = ok && (p->now->ended || draw_tied(p));
    draw_refused(p);
    return ok;
}
