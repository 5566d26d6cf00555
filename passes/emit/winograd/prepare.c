/* emit_prepare: the function that open runs to fill the open-time constants, and the kernels that it launches.
 *
 * Transformed weights U = G g G' of a convolution: a kernel per form serves all convolutions, sizes and strides are
 * arguments. It is computed in double and rounded once, since what it costs is the memory it writes. Layout, the same
 * for every variant: [point][block of 16 output channels][input channel][16].
 */
#include "passes/emit/emit.h"
#include "passes/emit/winograd/weights.h"

struct derive {
    struct em *em;
    const struct winograd_form *f;
    uint32_t lanes;
    lreg w, u;
    expr_id ic, blocks, stride[4];   /* arguments */
    expr_id block, channel;          /* at hand */
    int64_t sub;
};

static lreg scaled_sum(struct em *em, struct ltype t, const double *c, const lreg *v)
{
    lreg sum = {0};
    for (int i = 0; i < 3; i++) {
        if (c[i] == 0)
            continue;
        double k = t.elem == ELEM_F32 ? (double)(float)c[i] : c[i];
        lreg in[3] = {v[i], em_const(em, t.elem, t.lanes, k, 0), sum};
        sum = sum.i ? em_op(em, L_FMA, t, in, 3) : c[i] == 1 ? v[i] : em_op(em, L_MUL, t, in, 2);
    }
    return sum;
}

void emit_winograd_weights(struct em *em, const struct winograd_form *f, struct ltype t, lreg g[3][3],
                           winograd_put *put, void *user)
{
    for (uint32_t a = 0; a < f->alpha; a++) {
        lreg row[3];
        for (int c = 0; c < 3; c++)
            row[c] = scaled_sum(em, t, f->g[a], g[c]);
        for (uint32_t b = 0; b < f->alpha; b++)
            put(user, a * f->alpha + b, scaled_sum(em, t, f->g[b], row));
    }
}

static void derive_put(void *user, uint32_t point, lreg v)
{
    struct derive *d = user;
    struct exprs *x = d->em->x;
    expr_id at = ex_add(x, ex_mulc(x, d->blocks, point), d->block);
    at = ex_addc(x, ex_mulc(x, ex_add(x, ex_mul(x, at, d->ic), d->channel), CHANNEL_BLOCK), d->sub);
    em_scratch_store(d->em, d->u, at, em_op(d->em, L_CONVERT, (struct ltype){ELEM_F32, d->lanes}, &v, 1));
}

/* All points of the output channels at sub .. sub + lanes of the block. */
static void derive_lanes(struct derive *d, int64_t sub)
{
    struct em *em = d->em;
    struct exprs *x = em->x;
    struct ltype wide = {ELEM_F64, d->lanes};
    lreg g[3][3];
    expr_id from = ex_add(x, ex_mul(x, d->block, d->stride[0]), ex_mul(x, d->channel, d->stride[3]));
    d->sub = sub;
    for (int64_t r = 0; r < 3; r++)
        for (int64_t c = 0; c < 3; c++) {
            expr_id at = ex_add(x, ex_mulc(x, d->stride[1], r), ex_mulc(x, d->stride[2], c));
            lreg v = em_scratch_load(em, d->w, ex_addc(x, ex_add(x, from, at), sub), d->lanes);
            g[c][r] = em_op(em, L_CONVERT, wide, &v, 1);
        }
    emit_winograd_weights(em, d->f, wide, g, derive_put, d);
}

static expr_id index_arg(struct em *em, const char *label, int64_t least)
{
    return em_bind(em, lf_arg(em->f, (struct ltype){ELEM_I64, 1}, 0, 0, label), least, INT64_MAX);
}

static bool derive_kernel(struct module *m, const struct machine *mach, uint32_t form, enum elem of, const char *name)
{
    static const char *const labels[4] = {"block", "row", "column", "channel"};
    struct kernel k = {.kind = KERNEL_MAP};
    struct arena scratch;
    struct em em;
    struct em_for par, l;
    struct derive d = {.em = &em, .f = winograd_form(form), .lanes = winograd_lanes(mach)};
    struct ltype floats = {ELEM_F32, 0}, plain = {of, 0};
    arena_init(&scratch, m->ctx);
    const struct site site = {m, &k, m->g, m->ctx->exprs, &scratch, mach};
    if (!em_begin(&em, &site, NULL, NULL, name))
        return false;
    d.w = lf_arg(em.f, plain, LARG_IN | LARG_NOALIAS, 64, "weights");
    d.u = lf_arg(em.f, floats, LARG_OUT | LARG_NOALIAS, 64, "transformed");
    d.ic = index_arg(&em, "channels", 1);
    d.blocks = index_arg(&em, "blocks", 1);
    for (int i = 0; i < 4; i++)
        d.stride[i] = index_arg(&em, labels[i], 0);
    expr_id pieces = ex_ceildiv(em.x, d.ic, ex_const(em.x, OPEN_CHANNELS));
    expr_id flat = em_parallel_begin(&em, &par, ex_mul(em.x, d.blocks, pieces));
    d.block = em_pin(&em, ex_div(em.x, flat, pieces), 0, INT64_MAX);
    expr_id first = ex_mulc(em.x, em_pin(&em, ex_mod(em.x, flat, pieces), 0, INT64_MAX), OPEN_CHANNELS);
    d.channel = em_for_begin(&em, &l, first, ex_min(em.x, d.ic, ex_addc(em.x, first, OPEN_CHANNELS)), 1, NULL, 0);
    for (int64_t sub = 0; sub < CHANNEL_BLOCK; sub += d.lanes)
        derive_lanes(&d, sub);
    em_for_end(&em, &l, NULL, NULL);
    em_parallel_end(&em, &par);
    bool ok = em_finish(&em);
    arena_release(&scratch);
    if (ok)
        VEC_PUSH(m->arena, &m->prepare_kernels, ((struct function_text){k.name, k.text, k.local_bytes}));
    return ok;
}

/* ---- the function ------------------------------------------------------------------------------------------------ */

static lreg index_const(struct lfunc *f, int64_t c)
{
    lreg v = lf_op(f, (lblock){1}, L_CONST, (struct ltype){ELEM_I64, 1}, NULL, 0);
    lf_last(f, (lblock){1})->imm = c;
    return v;
}

static lreg floats_at(struct lfunc *f, lreg base, enum elem e, uint64_t bytes)
{
    lreg in[2] = {base, index_const(f, (int64_t)bytes)};
    return lf_op(f, (lblock){1}, L_OFFSET, (struct ltype){e, 0}, in, 2);
}

static void launch(struct module *m, struct lfunc *f, lreg weights, lreg constants, const struct prepared *p,
                   const char *kernel)
{
    const struct winograd_form *form = winograd_form(p->winograd);
    lreg in[9] = {
        floats_at(f, weights, value_type(m->g, p->value)->elem, m->weights.data[m->storage[p->value.i].buffer].offset),
        floats_at(f, constants, ELEM_F32, p->offset), index_const(f, p->ic), index_const(f, p->blocks)};
    for (int i = 0; i < 4; i++)
        in[4 + i] = index_const(f, p->stride[i]);
    in[8] = index_const(f, p->blocks * ((p->ic + OPEN_CHANNELS - 1) / OPEN_CHANNELS));
    struct lstmt *s = lf_stmt(f, (lblock){1}, L_LAUNCH);
    s->name = kernel;
    s->in = lf_lregs(f, in, 9);
    s->n_in = 9;
    s->imm = (int64_t)form->alpha * form->alpha * OPEN_NS;
}

bool emit_prepare(struct module *m, const struct machine *mach, const char *suffix)
{
    const char *names[ELEM_COUNT][WINOGRAD_ALPHA_MAX] = {{NULL}};
    struct ltype bytes = {ELEM_U8, 0};
    m->prepare = NULL;
    m->prepare_kernels.n = 0;
    if (!m->prepared_bytes)
        return true;
    m->prepare = lf_new(m->ctx, m->arena, LROLE_PROGRAM, arena_printf(m->arena, "prepare%s", suffix));
    lreg weights = lf_arg(m->prepare, bytes, LARG_IN, 64, "weights");
    lreg constants = lf_arg(m->prepare, bytes, LARG_IN | LARG_OUT, 64, "constants");
    for (uint32_t i = 0; i < m->prepared.n; i++) {
        const struct prepared *p = &m->prepared.data[i];
        if (p->stored)
            continue;
        enum elem elem = value_type(m->g, p->value)->elem;
        const char **name = &names[elem][p->winograd];
        if (!*name) {
            *name = arena_printf(m->arena, "winograd%u%s%s", p->winograd, elem == ELEM_F32 ? "" : elem_name(elem),
                                 suffix);
            if (!derive_kernel(m, mach, p->winograd, elem, *name))
                return false;
        }
        launch(m, m->prepare, weights, constants, p, *name);
    }
    lf_tidy(m->prepare);
    return lf_finish(m->prepare);
}
