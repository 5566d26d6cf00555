/* A launch of a kernel, by machine code and by the interpreter of the loop IR.
 *
 * The interpreter works on a copy of the run's memory, on as many parallel indices as its work allows: all, or the
 * first, the last and drawn ones. Machine code runs the same indices. Then both memories have to be the same, byte for
 * byte, except for what the loop IR leaves open. After that the same indices run on other values, put where the first
 * run has read: numbers at the ends of their ranges, and values that are no numbers. In the end all is as before, and
 * the machine code runs the whole launch.
 */
#include <inttypes.h>
#include <math.h>

#include "cli/commands/compare/bounds.h"
#include "ir/loop/internal.h"

/* Launches of a function that are compared in one run; pieces that are drawn of a long one; by how much work grows, and
 * how much more it may be, to finish an index that seems to differ or has stored nothing. */
enum {
    LAUNCHES_MOST = 2,
    PIECES = 8,
    MORE = 8,
    PATIENCE = 64,
    ARGUMENTS_MOST = 256,
    RESULTS_MOST = 16,
    LOCAL_MOST = 1 << 17
};

struct launch {
    struct agreement *k;
    struct lfunc *f;
    mcc_rt_fn *fn;
    const void *data; /* of its row */
    const struct linterp_arg *args;
    uint32_t n;
    int64_t count;
    struct linterp_arg shadow[ARGUMENTS_MOST];
    int64_t words[ARGUMENTS_MOST];
    const char *values; /* that it runs on, in words */
    bool often; /* its code was compared before */
    struct linterp_result interpreted;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void code_region(struct code_check *m, void *data, int64_t bytes, bool shared)
{
    struct code_region r = {.real = data, .shadow = shared ? data : NULL, .bytes = bytes};
    if (bytes > 0)
        VEC_PUSH(&m->run.c.ctx->session, &m->regions, r);
}

/* The copy has the same distance from an aligned address. */
static void region_use(struct code_check *m, struct code_region *r)
{
    if (!r->shadow) {
        unsigned char *block = arena_alloc(&m->run.c.ctx->session, (size_t)r->bytes + 2 * RT_ALIGN);
        r->shadow = block + (uintptr_t)(-(uintptr_t)block % RT_ALIGN) + (uintptr_t)r->real % RT_ALIGN;
    }
    r->used = true;
}

/* The latest one, as the run may have memory again. */
static struct code_region *region_of(const struct code_check *m, const unsigned char *at)
{
    for (uint32_t i = m->regions.n; i > 0; i--) {
        struct code_region *r = &m->regions.data[i - 1];
        if (at >= r->real && at - r->real < r->bytes)
            return r;
    }
    return NULL;
}

unsigned char *code_real(const struct code_check *m, unsigned char *shadow)
{
    for (uint32_t i = 0; i < m->regions.n; i++) {
        const struct code_region *r = &m->regions.data[i];
        if (r->used && shadow >= r->shadow && shadow - r->shadow < r->bytes)
            return r->real + (shadow - r->shadow);
    }
    return shadow; /* read only, and not copied */
}

static bool is_copied(const struct code_region *r)
{
    return r->used && r->shadow != r->real;
}

static void copy_out(struct code_check *m)
{
    for (uint32_t i = 0; i < m->regions.n; i++)
        if (is_copied(&m->regions.data[i]))
            memcpy(m->regions.data[i].shadow, m->regions.data[i].real, (size_t)m->regions.data[i].bytes);
}

static void copy_back(struct code_check *m)
{
    for (uint32_t i = 0; i < m->regions.n; i++)
        if (is_copied(&m->regions.data[i]))
            memcpy(m->regions.data[i].real, m->regions.data[i].shadow, (size_t)m->regions.data[i].bytes);
}

/* The copied region in which the two differ, and where; NULL: none. */
static const struct code_region *memory_differs(const struct code_check *m, int64_t *at)
{
    for (uint32_t i = 0; i < m->regions.n; i++) {
        const struct code_region *r = &m->regions.data[i];
        if (!is_copied(r) || memcmp(r->real, r->shadow, (size_t)r->bytes) == 0)
            continue;
        for (*at = 0; r->real[*at] == r->shadow[*at];)
            ++*at;
        return r;
    }
    return NULL;
}

static uint64_t bits_at(enum elem elem, const void *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, elem_size(elem));
    return bits;
}

static void on_store(void *user, enum elem elem, void *at)
{
    struct code_check *m = user;
    VEC_PUSH(&m->run.c.ctx->session, &m->stores, ((struct touched){at, bits_at(elem, at), elem}));
}

static void on_load(void *user, enum elem elem, void *at)
{
    struct code_check *m = user;
    if (m->records)
        VEC_PUSH(&m->run.c.ctx->session, &m->loads, ((struct touched){at, 0, elem}));
}

static void undo_stores(struct code_check *m)
{
    for (uint32_t i = m->stores.n; i > 0; i--) {
        const struct touched *t = &m->stores.data[i - 1];
        memcpy(t->at, &t->old, elem_size(t->elem));
    }
    m->stores.n = 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Numbers near the ends of what is exact, normal and finite. */
static const double extremes[] = {0,      -0.0,   0x1p-149, -0x1p-149, 0x1.8p-130, 0x1p-126, 0x1.fffffep127, -0x1p100,
                                  0x1p24, 0x1p23, 0.5,      1.5,       2.5,        -87,      88.7,           65504,
                                  65520,  448,    127.5,    128,       255.5,      -128.5,   2147483648.0,   -1};

enum values { VALUES_OF_RUN, VALUES_EXTREME, VALUES_NO_NUMBERS, VALUES_COUNT };

/* A kernel may take for granted what the kernels before it have made sure of: indices within a range, exponents of one
 * sign. If the loop IR is undefined on what was drawn, less is. */
enum daring { DARES_ALL, DARES_NO_INDICES, DARES_SMALL, DARING_COUNT };

static uint64_t draw_float(enum values values, enum daring daring, bool normal, const struct touched *t, uint64_t r)
{
    uint64_t bits = 0;
    if (daring == DARES_SMALL) { /* a zero or a subnormal number, of the same sign */
        const double old = elem_to_f64(t->elem, &t->old), small = normal || r & 1 ? 0 : 0x1p-140;
        if (r >> 32 & 3)
            return t->old;
        elem_from_f64(t->elem, copysign(small, old), &bits);
        return bits;
    }
    double x = extremes[r % COUNT_OF(extremes)];
    if ((values == VALUES_NO_NUMBERS && r >> 32 & 0x1ff) || (values == VALUES_EXTREME && r >> 32 & 7))
        return t->old;
    if (values == VALUES_NO_NUMBERS)
        x = r >> 8 & 1 ? (double)NAN : r >> 9 & 1 ? (double)INFINITY : -(double)INFINITY;
    if (normal && fpclassify((float)x) == FP_SUBNORMAL)
        x = 1;
    elem_from_f64(t->elem, x, &bits);
    return bits;
}

/* Bytes and narrower ones have all values; of wider integers, which may be indices, some are the ends of their range */
static uint64_t draw_integer(enum daring daring, const struct touched *t, uint64_t r)
{
    const uint32_t bits = elem_bits(t->elem);
    uint64_t x = r >> 20;
    if (bits > 8 && (daring != DARES_ALL || r & 31))
        return t->old;
    if (bits > 8)
        x = r & 32 ? UINT64_MAX : r & 64 ? (uint64_t)1 << (bits - 1) : ((uint64_t)1 << (bits - 1)) - 1;
    if (bits < 64)
        x &= ((uint64_t)1 << bits) - 1;
    if (bits < 8 && elem_class(t->elem) == 'I')
        x = (uint8_t)((int8_t)(x << (8 - bits)) >> (8 - bits));
    return x;
}

static void put_values(struct code_check *m, const struct launch *l, enum values values, enum daring daring)
{
    for (uint32_t i = 0; i < m->loads.n; i++) {
        struct touched *t = &m->loads.data[i];
        unsigned char *real = code_real(m, t->at);
        const uint64_t r = random_next(&m->state);
        t->old = bits_at(t->elem, t->at);
        uint64_t x = elem_class(t->elem) == 'F' && t->elem != ELEM_F8E8M0
                         ? draw_float(values, daring, l->k->subnormals, t, r)
                     : elem_class(t->elem) == 'B'                               ? r & 1
                     : strchr("IU", elem_class(t->elem)) && elem_class(t->elem) ? draw_integer(daring, t, r)
                                                                                : t->old;
        memcpy(t->at, &x, elem_size(t->elem));
        memcpy(real, &x, elem_size(t->elem));
    }
}

static void undo_values(struct code_check *m)
{
    for (uint32_t i = m->loads.n; i > 0; i--) {
        const struct touched *t = &m->loads.data[i - 1];
        memcpy(t->at, &t->old, elem_size(t->elem));
    }
}

/* ---- the two runs ------------------------------------------------------------------------------------------------ */

/* Of kernels: a launch of one index after another keeps nothing in scratch (mcc_rt_kept). */
static int64_t kernel_call(void *user, const char *name, const struct linterp_arg *a, uint32_t n, bool *failed)
{
    if (strcmp(name, "mcc_rt_kept") == 0 || strcmp(name, "mcc_rt_poll") == 0)
        return 0;
    if (strcmp(name, "mcc_rt_arrive") != 0 || n != 2) {
        *failed = true;
        return -1;
    }
    on_store(user, ELEM_I64, a[0].buffer.data);
    int64_t arrived = (int64_t)bits_at(ELEM_I64, a[0].buffer.data) + 1, last = arrived >= a[1].index;
    arrived = last ? 0 : arrived;
    memcpy(a[0].buffer.data, &arrived, sizeof arrived);
    return last;
}

/* False: it ended early, for whatever reason. */
static bool interpret(struct code_check *m, struct launch *l, int64_t begin, int64_t end, int64_t work)
{
    const struct linterp_host host = {.user = m,
                                      .call = kernel_call,
                                      .load = on_load,
                                      .store = on_store,
                                      .read_error = m->bounds ? bounds_read : NULL,
                                      .write_error = m->bounds ? bounds_write : NULL,
                                      .work = work > 0 ? work : 1,
                                      .unfused = m->unfused};
    l->interpreted = lf_interpret(l->f, l->shadow, begin, end, &host);
    m->partial = l->interpreted.code == LINTERP_ENDED;
    if (m->bounds)
        bounds_indices(m, l->interpreted.code == 0);
    return l->interpreted.code == 0;
}

static bool interpret_next(struct code_check *m, struct launch *l, int64_t begin, int64_t end, int64_t work)
{
    VEC_PUSH(&m->run.c.ctx->session, &m->indices, ((struct indices){begin, end, m->stores.n}));
    m->tried = m->indices.n;
    return interpret(m, l, begin, end, work);
}

/* Some of these: what they store in place of what they read would be another value. */
static bool was_interpreted(const struct code_check *m, int64_t begin, int64_t end)
{
    bool was = false;
    for (uint32_t i = 0; i < m->indices.n; i++)
        was |= begin < m->indices.data[i].end && m->indices.data[i].begin < end;
    return was;
}

/* Chooses indices for so much work and interprets them. */
static void interpret_some(struct code_check *m, struct launch *l, int64_t work)
{
    m->indices.n = m->stores.n = m->loads.n = 0;
    if (!interpret_next(m, l, 0, 1, work))
        return;
    const int64_t one = l->interpreted.work + 1, fit = work / one;
    if (fit >= l->count) {
        if (l->count > 1)
            interpret_next(m, l, 1, l->count, 4 * work);
        return;
    }
    const int64_t pieces = fit < PIECES ? fit : PIECES, length = fit / PIECES > 1 ? fit / PIECES : 1;
    for (int64_t i = 1, at = l->count - length; i < pieces; i++) {
        if (!was_interpreted(m, at, at + length) && !interpret_next(m, l, at, at + length, 4 * length * one))
            return;
        at = (int64_t)(random_next(&m->state) % (uint64_t)(l->count - length + 1));
    }
}

/* The same indices again, on other values. */
static void interpret_again(struct code_check *m, struct launch *l, int64_t work)
{
    m->tried = m->indices.n;
    for (uint32_t i = 0; i < m->indices.n; i++) {
        m->indices.data[i].stores = m->stores.n;
        if (!interpret(m, l, m->indices.data[i].begin, m->indices.data[i].end, work)) {
            m->tried = i + 1;
            return;
        }
    }
}

static void run_code(struct code_check *m, const struct launch *l, int64_t begin, int64_t end)
{
    struct mcc_rt_run *run = &m->native->run;
    run->launches++;
    run->data = l->data;
    l->fn(l->words, begin, end, run->scratch, run);
}

/* What failed checks have left. */
static void run_reset(struct code_check *m)
{
    struct mcc_rt_run *run = &m->native->run;
    run->code = 0;
    run->index = 0;
    run->text = NULL;
    run->stop = 0;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Different bits of one value, as far as the loop IR leaves that open: which NaN; of kernels with L_MIN and L_MAX the
 * sign of a zero and of what was divided by it; of those that may take subnormals for 0 what is that small. */
static bool same_value(const struct agreement *k, enum elem elem, const void *a, const void *b)
{
    if (elem_class(elem) != 'F')
        return false;
    const double x = elem_to_f64(elem, a), y = elem_to_f64(elem, b);
    if (isnan(x) && isnan(y))
        return true;
    return (k->zeros && fabs(x) == fabs(y) && (x == 0 || isinf(x))) || (k->subnormals && fabs(x - y) <= 0x1p-120);
}

static const char *argument_of(const struct code_check *m, const struct launch *l, const unsigned char *at,
                               int64_t *element)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < l->n; i++) {
        const unsigned char *from = l->shadow[i].buffer.data;
        if (l->f->args.data[i].type.lanes == 0 && from && at >= from && at - from < l->shadow[i].buffer.bytes &&
            (best == UINT32_MAX || from > (unsigned char *)l->shadow[best].buffer.data))
            best = i;
    }
    if (best == UINT32_MAX)
        return "memory of no argument";
    const struct larg *a = &l->f->args.data[best];
    *element = (at - (unsigned char *)l->shadow[best].buffer.data) / (int64_t)elem_size(a->type.elem);
    return arena_printf(&m->run.c.ctx->session, "argument %u%s%s", best, a->label ? " of " : "",
                        a->label ? a->label : "");
}

/* Which indices made store number i, in words. */
static const char *indices_of(const struct code_check *m, const struct launch *l, uint32_t store)
{
    uint32_t i = m->tried;
    while (i > 1 && m->indices.data[i - 1].stores > store)
        i--;
    return arena_printf(&m->run.c.ctx->session, "parallel indices %" PRId64 " to %" PRId64 " of %" PRId64,
                        m->indices.data[i - 1].begin, m->indices.data[i - 1].end - 1, l->count);
}

static void report_store(struct code_check *m, struct launch *l, uint32_t i, const unsigned char *real)
{
    const struct touched *t = &m->stores.data[i];
    int64_t element = 0;
    const char *argument = argument_of(m, l, t->at, &element);
    const bool real_number = elem_class(t->elem) == 'F';
    l->k->differs = arena_printf(&m->run.c.ctx->session,
                                 "element %" PRId64 " of %s (%s) is 0x%" PRIx64 " (%.9g) by machine code and 0x%" PRIx64
                                 " (%.9g) by the loop IR, %s, %s",
                                 element, argument, elem_name(t->elem), bits_at(t->elem, real),
                                 real_number ? elem_to_f64(t->elem, real) : (double)elem_to_i64(t->elem, real),
                                 bits_at(t->elem, t->at),
                                 real_number ? elem_to_f64(t->elem, t->at) : (double)elem_to_i64(t->elem, t->at),
                                 indices_of(m, l, i), l->values);
}

/* Both memories, after both runs. False: of an index that was not interpreted to its end nothing was stored, or what
 * differs, as it may have been stored again. */
static bool compare_memory(struct code_check *m, struct launch *l)
{
    int64_t at;
    const uint32_t last = m->indices.data[m->tried - 1].stores;
    if (m->partial && !m->stores.n)
        return false;
    for (uint32_t i = 0; i < m->stores.n; i++) {
        const struct touched *t = &m->stores.data[i];
        const unsigned char *real = code_real(m, t->at);
        const uint32_t size = elem_size(t->elem);
        if (memcmp(real, t->at, size) == 0)
            continue;
        if (m->partial && i >= last)
            return false;
        if (!same_value(l->k, t->elem, t->at, real)) {
            report_store(m, l, i, real);
            return true;
        }
        memcpy(t->at, real, size);
    }
    const struct code_region *r = m->partial ? NULL : memory_differs(m, &at);
    if (r) {
        int64_t element = 0;
        const char *argument = argument_of(m, l, r->shadow + at, &element);
        l->k->differs = arena_printf(&m->run.c.ctx->session,
                                     "machine code stores to element %" PRId64 " of %s, which the loop IR does not, %s",
                                     element, argument, l->values);
    }
    return true;
}

/* A check failed in one of the two. */
static void compare_failures(struct code_check *m, struct launch *l)
{
    const struct mcc_rt_run *run = &m->native->run;
    const struct linterp_result *r = &l->interpreted;
    const char *text = r->text ? r->text : "", *native = run->text ? run->text : "";
    if (run->code != r->code || strcmp(text, native) != 0)
        l->k->differs = arena_printf(&m->run.c.ctx->session,
                                     "machine code ends with %d '%s', the loop IR with %d '%s', %s", run->code, native,
                                     r->code, text, l->values);
}

/* After the interpreter. False: again, with more work. */
static bool compare_code(struct code_check *m, struct launch *l)
{
    const int code = l->interpreted.code;
    bool done = true;
    run_reset(m);
    for (uint32_t i = 0; i < m->tried; i++)
        run_code(m, l, m->indices.data[i].begin, m->indices.data[i].end);
    if ((code && !m->partial) || (m->native->run.code && !m->partial))
        compare_failures(m, l);
    else if (!m->native->run.code)
        done = compare_memory(m, l);
    run_reset(m);
    return done;
}

/* What was compared: all that was stored, and indices that were interpreted to their end. */
static void count_compared(struct code_check *m, struct agreement *k, enum values values)
{
    k->elements += m->stores.n;
    for (uint32_t i = 0; values == VALUES_OF_RUN && i + m->partial < m->tried; i++)
        k->indices += m->indices.data[i].end - m->indices.data[i].begin;
}

/* On one kind of values. False: the loop IR is undefined for them. */
static bool compare_values(struct code_check *m, struct launch *l, enum values values, enum daring daring, int64_t work)
{
    static const char *const words[VALUES_COUNT] = {"on values of a run", "on numbers at the ends of their ranges",
                                                    "on infinities and NaN"};
    bool more = true, broken = false;
    l->values = words[values];
    m->records = values == VALUES_OF_RUN;
    for (int64_t factor = 1; more && !broken && factor <= PATIENCE; factor *= MORE) {
        if (values != VALUES_OF_RUN)
            put_values(m, l, values, daring);
        if (values != VALUES_OF_RUN)
            interpret_again(m, l, MORE * factor * work);
        else
            interpret_some(m, l, factor * work);
        broken = l->interpreted.code == LINTERP_BROKEN;
        more = !broken && !compare_code(m, l);
        if (!broken && !more)
            count_compared(m, l->k, values);
        undo_stores(m);
        if (values != VALUES_OF_RUN)
            undo_values(m);
        copy_back(m);
    }
    if (more && !l->k->elements)
        l->k->why = "its parallel indices take too long to interpret";
    return !broken;
}

static void compare_launch(struct code_check *m, struct launch *l)
{
    const int64_t all = m->run.c.options->machine_work, work = l->often ? all / MORE : all;
    copy_out(m);
    l->k->of += l->count;
    if (!compare_values(m, l, VALUES_OF_RUN, DARES_ALL, work)) {
        l->k->why = arena_printf(&m->run.c.ctx->session, "the loop IR is undefined on values of a run: %s",
                                 l->interpreted.text);
        return;
    }
    l->k->draws++;
    for (enum values v = VALUES_EXTREME; v < VALUES_COUNT && !l->k->differs && !l->k->why; v++) {
        enum daring daring = DARES_ALL;
        while (daring < DARING_COUNT && !compare_values(m, l, v, daring, work))
            daring++;
        l->k->draws += daring < DARING_COUNT;
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static void learn(struct agreement *k)
{
    for (uint32_t b = 1; b < k->f->blocks.n; b++)
        for (uint32_t i = 0; i < k->f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &k->f->blocks.data[b].stmts.data[i];
            const bool real = loop_elem_classes(s->type.elem) & E_F;
            const enum lop op = s->op == L_HREDUCE ? (enum lop)s->imm : s->op;
            k->zeros |= real && (op == L_MIN || op == L_MAX);
            k->subnormals |= ((s->op == L_DOT || s->op == L_MATDOT) && real) ||
                             (s->op == L_CONVERT && s->name && strcmp(s->name, "normal") == 0);
        }
}

struct lfunc *code_function(struct code_check *m, uint32_t i)
{
    struct context *ctx = m->run.c.ctx;
    const char *text = m->run.c.mutated == i + 1 ? m->run.c.meant : m->run.c.units.data[i].text;
    if (m->of[i].f)
        return m->of[i].f;
    struct lfunc *f = lf_parse(ctx, &ctx->session, &text);
    if (!f || !lf_finish(f))
        return NULL;
    m->of[i].f = f;
    learn(&m->of[i]);
    return f;
}

/* The unit and the code of what is launched; UINT32_MAX: it is not there. */
static uint32_t find_code(const struct code_check *m, const struct lstmt *s, struct launch *l)
{
    const struct compilation *c = &m->run.c;
    if (s->flags & L_FLAG_ROW) {
        const uint32_t kernel = c->variants.data[m->variant].rows[s->imm];
        const struct mcc_rt_row *row = &m->native->run.model->variant->rows[s->imm];
        l->fn = row->fn;
        l->data = row->data;
        return kernel == ART_NO_KERNEL ? UINT32_MAX : c->kernel_rows.data[kernel].unit;
    }
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        if (strcmp(u->symbol, s->name) != 0)
            continue;
        const uintptr_t at = code_symbol(m, u->same ? u->same->symbol : u->symbol);
        memcpy(&l->fn, &at, sizeof l->fn);
        return at ? i : UINT32_MAX;
    }
    return UINT32_MAX;
}

/* Where the interpreter has the arguments. Why it cannot be compared; NULL: it can. */
static const char *place_arguments(struct code_check *m, struct launch *l)
{
    for (uint32_t i = 0; i < m->regions.n; i++)
        m->regions.data[i].used = false;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct larg *a = &l->f->args.data[i];
        struct code_region *r = a->type.lanes == 0 ? region_of(m, l->args[i].buffer.data) : NULL;
        if (!r && a->type.lanes == 0 && l->args[i].buffer.data && l->args[i].buffer.bytes < LOCAL_MOST) {
            code_region(m, l->args[i].buffer.data, l->args[i].buffer.bytes, false); /* of the program's frame */
            r = region_of(m, l->args[i].buffer.data);
        }
        l->shadow[i] = l->args[i];
        if (r) {
            region_use(m, r);
            l->shadow[i].buffer.data = r->shadow + ((unsigned char *)l->args[i].buffer.data - r->real);
        } else if (a->type.lanes == 0 && a->flags & LARG_OUT && l->args[i].buffer.bytes > 0) {
            return "it stores to memory of which the size is not known";
        }
    }
    return NULL;
}

/* What the indices store gets bounds; kernels that others are judged with get more work. */
static void bound_launch(struct code_check *m, struct launch *l, const char *symbol)
{
    int64_t done = 0;
    if (!bounds_begin(m, symbol))
        return;
    const char *why = place_arguments(m, l);
    struct kernel_bounds *of = &m->bounds->of[m->bounds->kernel];
    copy_out(m);
    for (int64_t factor = of->kept ? 1 : PATIENCE; !why && !done && factor <= PATIENCE; factor *= MORE) {
        interpret_some(m, l, m->run.c.options->machine_work * factor);
        for (uint32_t i = 0; i + (l->interpreted.code != 0) < m->indices.n; i++)
            done += m->indices.data[i].end - m->indices.data[i].begin;
        if (l->interpreted.code && l->interpreted.code != LINTERP_ENDED)
            why = l->interpreted.text;
        undo_stores(m);
    }
    of->why = why ? why : of->why;
    bounds_end(m, !why && done >= l->count);
}

/* The first unit with its code. */
static uint32_t first_of(const struct code_check *m, uint32_t unit)
{
    const struct codegen_unit *u = &m->run.c.units.data[unit];
    return u->same ? (uint32_t)(u->same - m->run.c.units.data) : unit;
}

int code_launch(void *user, const struct lstmt *s, const struct linterp_arg *args, uint32_t n, int64_t count)
{
    struct code_check *m = user;
    struct launch l = {.args = args, .n = n, .count = count};
    const uint32_t unit = find_code(m, s, &l);
    if (unit == UINT32_MAX || !l.fn || n > ARGUMENTS_MOST)
        return LINTERP_BROKEN;
    l.k = &m->of[unit];
    l.f = code_function(m, unit);
    if (!l.f || l.f->args.n > n)
        return LINTERP_BROKEN;
    l.n = l.f->args.n; /* kernels of other levels in the row take more */
    for (uint32_t i = 0; i < l.n; i++)
        l.words[i] = l.f->args.data[i].type.lanes ? args[i].index : (int64_t)(intptr_t)args[i].buffer.data;
    if (count <= 0)
        return 0;
    if (m->bounds) {
        bound_launch(m, &l, m->run.c.units.data[unit].symbol);
    } else if (!l.k->differs && !l.k->why && l.k->seen++ < LAUNCHES_MOST) {
        l.k->why = place_arguments(m, &l);
        l.often = m->of[first_of(m, unit)].draws > 0;
        if (!l.k->why)
            compare_launch(m, &l);
    }
    run_reset(m);
    run_code(m, &l, 0, count);
    return m->native->run.code;
}

/* ---- functions of the runtime ------------------------------------------------------------------------------------ */

typedef int64_t runtime_fn(struct mcc_rt_run *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                           int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);

int64_t code_call(void *user, const char *name, const struct linterp_arg *args, uint32_t n, bool *failed)
{
    struct code_check *m = user;
    int64_t w[RESULTS_MOST] = {0};
    runtime_fn *fn;
    const uintptr_t at = code_symbol(m, name);
    if (!at || n > RESULTS_MOST) {
        *failed = true;
        return LINTERP_BROKEN;
    }
    for (uint32_t i = 0; i < n; i++)
        w[i] = args[i].buffer.data ? (int64_t)(intptr_t)args[i].buffer.data : args[i].index;
    memcpy(&fn, &at, sizeof fn);
    int64_t r = fn(&m->native->run, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                   w[13], w[14], w[15]);
    if (strcmp(name, "mcc_rt_segment") == 0 && n == 1 && r > 0)
        code_region(m, (void *)(intptr_t)r, w[0], false);
    if (strcmp(name, "mcc_rt_grow") == 0 && n == 3 && r > 0)
        code_region(m, (void *)(intptr_t)r, ((const int64_t *)(intptr_t)w[0])[1], false);
    return r;
}
