/* block_channels: which feature maps lie in blocks of 16 channels (constraint.blocked; NC16c, or channels last by
 * option).
 *
 * From the first kernel of a region of convolutions that writes one to the last that reads it; conversions are whatever
 * kernel reads a port or writes one, since reading and writing go through storage functions anyway.
 */
#include "passes/module/access_function.h"
#include "passes/module/choices.h"
#include "passes/layout/layout.h"
#include "passes/module/analysis.h"

static bool may_block(const struct layouter *l, value_id v)
{
    const struct type *t = value_type(l->g, v);
    int64_t c;
    return l->m->fused.stored[v.i] && l->m->fused.storage[v.i].place == PLACE_ARENA && !l->constraint[v.i].plain &&
           !l->constraint[v.i].fastest && t->rank >= 3 && fixed(l, t->dims[1], &c) && c >= MIN_BLOCKED &&
           elem_size(t->elem) <= 4;
}

static bool is_windowed(const struct node *n)
{
    return n->op == OP_CONV || n->op == OP_WINDOW || n->op == OP_ARGWINDOW;
}

static bool want_blocks(struct layouter *l, value_id v)
{
    bool more = may_block(l, v) && !l->constraint[v.i].blocked;
    l->constraint[v.i].blocked |= more;
    return more;
}

/* What a kernel of a convolution or a window reads and writes, if it is a convolution, or either is blocked already:
 * windows between ports, which are row-major, would gain nothing from copies of both. */
static bool want_windowed(struct layouter *l, const struct kernel *k)
{
    const struct node *n = k->anchor.i ? graph_node(l->g, k->anchor) : NULL;
    if (!n || !is_windowed(n) || conv_pixel_lanes(l->m, n))
        return false;
    value_id in = n->in[0], out = k->outs.data[0];
    bool same = k->path.n == 0 && value_type(l->g, out)->rank == value_type(l->g, n->out[0])->rank;
    if (n->op != OP_CONV && !l->constraint[in.i].blocked && !(same && l->constraint[out.i].blocked))
        return false;
    bool more = want_blocks(l, in);
    return (same && want_blocks(l, out)) || more;
}

/* What a convolution with lanes of pixels reads and writes. */
static void shun_blocks(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->fused.kernels.n; i++) {
        const struct kernel *k = &l->m->fused.kernels.data[i];
        if (!k->anchor.i || !conv_pixel_lanes(l->m, graph_node(l->g, k->anchor)))
            continue;
        l->constraint[k->outs.data[0].i].blocked = false;
        l->constraint[graph_node(l->g, k->anchor)->in[0].i].blocked = false;
    }
}

/* What a staged operand is computed from, in its own shape, and what its product reads. */
static void want_staged_blocks(struct layouter *l, const struct kernel *k)
{
    const struct type *t = value_type(l->g, k->form.staged), *in;
    if (k->form.product.i && may_block(l, graph_node(l->g, k->form.product)->in[0]))
        l->constraint[graph_node(l->g, k->form.product)->in[0].i].blocked = true;
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(l->g, k->nodes.data[j]);
        for (uint32_t o = 0; o < n->n_in; o++) {
            in = n->in[o].i ? value_type(l->g, n->in[o]) : NULL;
            if (in && in->rank == t->rank && may_block(l, n->in[o]) && in->dims[1].i == t->dims[1].i)
                l->constraint[n->in[o].i].blocked = true;
        }
    }
}

/* What the user wants of a kernel's result. */
static void chosen_blocks(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->fused.kernels.n; i++) {
        const struct kernel *k = &l->m->fused.kernels.data[i];
        const struct choice *chosen = k->outs.n == 1 ? choice_of_kernel(l->m, k, CHOOSE_LAYOUT) : NULL;
        if (chosen && chosen->n[0] && !may_block(l, k->outs.data[0]))
            choice_refuse(l->m, chosen, "the result has to be plain, or has too few channels");
        else if (chosen)
            l->constraint[k->outs.data[0].i].blocked = chosen->n[0];
    }
}

/* Elementwise kernels follow what they read. */
static bool follow_operands(struct layouter *l, const struct kernel *k)
{
    bool more = false;
    if (k->kind != KERNEL_MAP || k->has_rows)
        return false;
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(l->g, k->nodes.data[j]);
        uint32_t n_in;
        const value_id *in = kernel_operands(k, n, &n_in);
        for (uint32_t o = 0; o < n_in; o++)
            if (in[o].i && l->constraint[in[o].i].blocked &&
                value_type(l->g, in[o])->rank == value_type(l->g, k->outs.data[0])->rank)
                more |= want_blocks(l, k->outs.data[0]);
    }
    return more;
}

/* Does a node of this elementwise kernel read blocks of channels of v, if v is blocked, as it stores them? */
static bool stores_blocks_of(const struct layouter *l, const struct kernel *k, value_id v)
{
    if (k->kind != KERNEL_MAP || k->has_rows || !l->constraint[k->outs.data[0].i].blocked)
        return false;
    const struct type *t = value_type(l->g, v), *domain = value_type(l->g, k->domain);
    return t->rank >= 3 && t->rank == domain->rank && t->dims[1].i == domain->dims[1].i;
}

/* Elementwise kernels follow those that read them, if all of these store blocks: the first of a chain that begins at
 * rows of channels (the result of a product, transposed) and ends in an image, as the two axes of a Resize. */
static bool follow_readers(struct layouter *l)
{
    const struct module_fused *f = &l->m->fused;
    bool more = false, *read = NEW_ARRAY(l->m->arena, bool, f->n_values),
         *otherwise = NEW_ARRAY(l->m->arena, bool, f->n_values);
    for (uint32_t i = 0; i < f->kernels.n; i++) {
        const struct kernel *k = &f->kernels.data[i];
        for (uint32_t j = 0; j < k->nodes.n; j++) {
            uint32_t n_in;
            const value_id *in = kernel_operands(k, graph_node(l->g, k->nodes.data[j]), &n_in);
            for (uint32_t o = 0; o < n_in; o++)
                if (in[o].i && f->stored[in[o].i])
                    *(stores_blocks_of(l, k, in[o]) ? &read[in[o].i] : &otherwise[in[o].i]) = true;
        }
    }
    for (uint32_t i = 0; i < f->kernels.n; i++) {
        const struct kernel *k = &f->kernels.data[i];
        value_id out = k->outs.n == 1 ? k->outs.data[0] : (value_id){0};
        if (k->kind == KERNEL_MAP && !k->has_rows && read[out.i] && !otherwise[out.i])
            more |= want_blocks(l, out);
    }
    return more;
}

bool block_channels(struct module *m)
{
    enum { ROUNDS = 4 }; /* each goes through the kernels in their order and against it */
    struct layouter layouter = layouter_of(m), *l = &layouter;
    uint32_t n = m->fused.kernels.n;
    bool more = true;
    for (uint32_t i = 0; i < n; i++)
        if (m->fused.kernels.data[i].form.staged.i)
            want_staged_blocks(l, &m->fused.kernels.data[i]);
    chosen_blocks(l); /* others follow it */
    for (uint32_t round = 0; more && round < ROUNDS; round++) {
        more = false;
        for (uint32_t i = 0; i < 2 * n; i++) {
            const struct kernel *k = &m->fused.kernels.data[i < n ? i : 2 * n - 1 - i];
            more |= want_windowed(l, k);
            more |= follow_operands(l, k);
        }
        more |= follow_readers(l);
    }
    shun_blocks(l);
    chosen_blocks(l);
    return true;
}
