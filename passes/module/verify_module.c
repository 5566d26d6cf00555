/* The verifier of modules. Every violation is one FAIL_INTERNAL diagnostic that names the invariant; what is checked
 * follows from the facts of the module. The graph's own invariants are those of ir/graph/verify_graph.c.
 *
 *   1  a fact holds with those that it is built on (passes.def)
 *  kernels
 *   2  a kernel stores something, except for calls and control flow; what it stores is marked stored
 *   3  a value is stored by one kernel, or by one for each operand of a concat; a halo kernel comes on top
 *   4  a value marked stored is stored by a kernel, or a parameter, or a constant
 *   5  the nodes computed inside are live, of the kernel's region, and none is there twice
 *   6  maps and halos have no anchor; every other kernel has one among its nodes, of an operator of its kind
 *   7  the domain is what is stored, or the operand that a piece says of the concat that is stored
 *   8  the path consists of invertible views among the nodes
 *   9  kernel_of names the last kernel that computes a node, or none
 *  10  rows and kept values are of maps, of dims of the domain; kept values are computed inside
 *  11  the staged value is the anchor's first operand, computed inside and not stored; its product is a convolution
 *      inside that is not the anchor
 *  12  a Winograd form is 2, 4 or 6, of a convolution
 *  13  a kernel has the attention whose results its anchor makes, if there is one
 *  14  operands of nodes inside are computed inside, constant, stored, or views of such
 *  15  what is read from memory is stored by a kernel no later in the same region
 *  28  what may lie in an input's memory is stored in the top region, of the input's type and rank: by a scatter, or by
 *      the first piece of a concat, the input, along the dim in which both have the same room
 *  attentions (module/attention.h)
 *  29  two contractions, and steps that lead from one to the other; what lies between is live, of their region, and
 *      read by nobody else
 *  places (verify_memory.c)
 *  16  inputs lie with the caller, and of computed values only outputs
 *  17  a stored tensor has a place; what has a place is stored, or a constant of the file
 *  18  a value is constrained plain or blocked or with a fastest dim of its own, not two of these; only ports have room
 *  19  a value in memory has a stride for each dim, in blocks of 2 elements or more, and a size
 *  20  all its elements, those of halos included, lie within its size
 *  21  no two of its elements lie in one place, unless it is a constant
 *  22  a value of the arena has a buffer of its size
 *  23  a stored constant has a weight, which has its storage or that of a constant of its type that lies alike
 *  24  the order has each kernel of the top region once, by place
 *  25  weights lie one after the other on cache lines, within the segment
 *  26  a buffer lives while kernels that write or read it run
 *  27  buffers that live at the same time lie apart, on cache lines, within the workspace
 */
#include "passes/module/attention.h"
#include "passes/module/analysis.h"
#include "passes/module/verify.h"

#include <stdio.h>

void violated(struct check *c, int number, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 300, fmt);
    c->ok = false;
    error_internal(c->m->ctx, (src_id){0}, "module invariant %d: %s", number, text);
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static void check_facts(struct check *c)
{
    static const struct {
        uint32_t fact, needs;
    } rows[] = {
#define STAGE(name, function, needs, makes, print, verify, always) {makes, needs},
#define PASS(name, function, needs, makes, when) {makes, needs},
#include "passes/module/passes.def"
#undef STAGE
#undef PASS
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint32_t missing = rows[i].needs & ~c->m->facts & ~(uint32_t)IS_IMPORTED;
        if (!(c->m->facts & rows[i].fact) || !missing)
            continue;
        struct strbuf text = strbuf_of(&c->arena);
        facts_print(rows[i].fact, &text);
        strbuf_printf(&text, " without ");
        facts_print(missing, &text);
        violated(c, 1, "%s", text.data);
    }
}

/* ---- one kernel -------------------------------------------------------------------------------------------------- */

static bool has_node(const struct kernel *k, node_id id)
{
    for (uint32_t i = 0; i < k->nodes.n; i++)
        if (k->nodes.data[i].i == id.i)
            return true;
    return false;
}

static bool computes(const struct check *c, const struct kernel *k, value_id v)
{
    node_id def = graph_value(c->g, v)->def;
    return def.i && has_node(k, def);
}

static void check_outs(struct check *c, uint32_t index, const struct kernel *k)
{
    bool may_be_none = k->kind == KERNEL_OPAQUE || k->kind == KERNEL_CONTROL;
    if (!k->outs.n && !may_be_none)
        violated(c, 2, "k%u stores nothing", index);
    for (uint32_t i = 0; i < k->outs.n; i++) {
        value_id v = k->outs.data[i];
        if (!c->m->fused.stored[v.i])
            violated(c, 2, "k%u stores %%%u, which is not marked", index, c->n.value[v.i]);
        if (k->kind == KERNEL_HALO)
            continue;
        if (c->maker[v.i] && !(k->piece && c->m->fused.kernels.data[c->maker[v.i] - 1].piece))
            violated(c, 3, "k%u and k%u store %%%u", c->maker[v.i] - 1, index, c->n.value[v.i]);
        for (uint32_t j = k->piece && c->maker[v.i] ? c->maker[v.i] - 1 : index; j < index; j++)
            if (c->m->fused.kernels.data[j].outs.n && c->m->fused.kernels.data[j].outs.data[0].i == v.i &&
                c->m->fused.kernels.data[j].piece == k->piece)
                violated(c, 3, "k%u and k%u store piece %u of %%%u", j, index, k->piece - 1, c->n.value[v.i]);
        c->maker[v.i] = index + 1;
    }
}

static void check_nodes(struct check *c, uint32_t index, const struct kernel *k)
{
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        node_id id = k->nodes.data[i];
        if (c->inside[id.i] == index + 1)
            violated(c, 5, "k%u computes node %u twice", index, c->n.node[id.i]);
        c->inside[id.i] = index + 1;
        c->last[id.i] = index + 1;
        if (graph_node(c->g, id)->dead || graph_node(c->g, id)->parent.i != k->region.i)
            violated(c, 5, "k%u computes node %u of another region", index, c->n.node[id.i]);
    }
}

static bool kind_fits(enum kernel_kind kind, const struct node *n)
{
    switch (op_shape(n->op)) {
    case SHAPE_SCAN: return kind == KERNEL_SCAN;
    case SHAPE_SCATTER: return kind == KERNEL_SCATTER;
    case SHAPE_OPAQUE: return kind == KERNEL_OPAQUE;
    case SHAPE_CONTROL: return kind == KERNEL_CONTROL;
    default: return kind == (n->op == OP_DOT || n->op == OP_CONV ? KERNEL_CONTRACT : KERNEL_REDUCE);
    }
}

static void check_anchor(struct check *c, uint32_t index, const struct kernel *k)
{
    bool none = k->kind == KERNEL_MAP || k->kind == KERNEL_HALO;
    if (none != !k->anchor.i)
        violated(c, 6, "k%u %s an anchor", index, none ? "is a map or a halo with" : "is without");
    else if (k->anchor.i && !has_node(k, k->anchor))
        violated(c, 6, "k%u does not compute its anchor", index);
    else if (k->anchor.i && !kind_fits(k->kind, graph_node(c->g, k->anchor)))
        violated(c, 6, "k%u is a %s, and its anchor %s", index, kernel_kind_name(k->kind),
                 op_name(graph_node(c->g, k->anchor)->op));
}

static void check_domain(struct check *c, uint32_t index, const struct kernel *k)
{
    if (k->kind == KERNEL_OPAQUE || k->kind == KERNEL_CONTROL || k->kind == KERNEL_HALO || !k->outs.n)
        return;
    const struct node *concat = value_node(c->g, k->outs.data[0]);
    value_id want = !k->piece                                                       ? k->outs.data[0]
                    : concat && concat->op == OP_CONCAT && k->piece <= concat->n_in ? concat->in[k->piece - 1]
                                                                                    : (value_id){0};
    if (k->domain.i != want.i || !want.i)
        violated(c, 7, "k%u does not run over what it stores", index);
    for (uint32_t i = 0; i < k->path.n; i++)
        if (!has_node(k, k->path.data[i]) || !view_invertible(graph_node(c->g, k->path.data[i])->op))
            violated(c, 8, "the path of k%u goes through node %u", index, c->n.node[k->path.data[i].i]);
    uint32_t rank = k->domain.i ? (uint32_t)value_type(c->g, k->domain)->rank : 0;
    if (k->has_rows && (k->kind != KERNEL_MAP || (rank < 32 && k->row_mask >> rank)))
        violated(c, 10, "k%u has rows of dims that it has not", index);
    for (uint32_t i = 0; i < k->locals.n; i++) {
        const struct row_local *l = &k->locals.data[i];
        int32_t kept = value_type(c->g, l->value)->rank;
        bool fits = k->has_rows && computes(c, k, l->value) && (kept >= 32 || !(l->inner >> kept));
        if (fits && l->in_result)
            fits = !k->piece && !(l->inner & k->row_mask) && __builtin_popcount(l->inner) == 1 &&
                   type_equal(value_type(c->g, l->value), value_type(c->g, k->domain));
        if (!fits)
            violated(c, 10, "k%u cannot keep %%%u", index, c->n.value[l->value.i]);
    }
}

/* Is it the first piece of a concat of port and more, both with the same room? */
static bool grows_in_place(const struct check *c, const struct kernel *k, const struct port *in)
{
    const struct layout_constraint *from = &c->m->fused.constraint[in->value.i],
                                   *to = &c->m->fused.constraint[k->outs.data[0].i];
    return k->piece == 1 && k->domain.i == in->value.i && from->grows && from->grows == to->grows &&
           from->room == to->room;
}

static void check_shares(struct check *c, uint32_t index, const struct kernel *k)
{
    const struct port *in = k->shares && k->shares <= c->g->inputs.n ? &c->g->inputs.data[k->shares - 1] : NULL;
    if (k->shares && (!in || k->region.i != 1 || (k->kind != KERNEL_SCATTER && !grows_in_place(c, k, in)) ||
                      value_type(c->g, in->value)->elem != value_type(c->g, k->outs.data[0])->elem ||
                      value_type(c->g, in->value)->rank != value_type(c->g, k->outs.data[0])->rank))
        violated(c, 28, "k%u cannot share an input's memory", index);
}

static void check_form(struct check *c, uint32_t index, const struct kernel *k)
{
    const struct node *anchor = k->anchor.i ? graph_node(c->g, k->anchor) : NULL;
    const struct kernel_form *f = &k->form;
    if (f->staged.i &&
        (!anchor || anchor->in[0].i != f->staged.i || !computes(c, k, f->staged) || c->m->fused.stored[f->staged.i]))
        violated(c, 11, "k%u cannot stage %%%u", index, c->n.value[f->staged.i]);
    if (f->product.i && (!f->staged.i || f->product.i == k->anchor.i || !has_node(k, f->product) ||
                         graph_node(c->g, f->product)->op != OP_CONV))
        violated(c, 11, "k%u stages no product of node %u", index, c->n.node[f->product.i]);
    if (f->winograd && (!anchor || anchor->op != OP_CONV || (f->winograd != 2 && f->winograd != 4 && f->winograd != 6)))
        violated(c, 12, "k%u has no form F(%u x %u)", index, f->winograd, f->winograd);
    if (f->attention != attention_of_values(c->m, k->anchor))
        violated(c, 13, "the attention of k%u is not that of its anchor", index);
}

/* ---- attentions -------------------------------------------------------------------------------------------------- */

/* Do the steps lead from `from` back to `to`? */
static bool leads(const struct check *c, const attention_steps *steps, value_id from, value_id to)
{
    for (uint32_t i = 0; i < steps->n; i++) {
        if (graph_value(c->g, from)->def.i != steps->data[i].node.i)
            return false;
        from = attention_operand(c->g, steps->data[i]);
    }
    return from.i == to.i;
}

/* The first value of the steps; of none: `else_of`. */
static value_id first_of(const struct check *c, const attention_steps *steps, value_id else_of)
{
    return steps->n ? graph_node(c->g, steps->data[0].node)->out[0] : else_of;
}

/* Reads of each value by the nodes inside and the second contraction, added to or taken from c->reads. */
static void count_reads(struct check *c, const struct attention *a, uint32_t by)
{
    for (uint32_t i = 0; i <= a->nodes.n; i++) {
        const struct node *n = graph_node(c->g, i < a->nodes.n ? a->nodes.data[i] : a->values);
        for (uint32_t k = 0; k < n->n_in; k++)
            c->reads[n->in[k].i] += by;
    }
}

static void check_attention(struct check *c, const struct attention *a)
{
    const struct node *values = graph_node(c->g, a->values), *scores = graph_node(c->g, a->scores);
    uint32_t number = c->n.node[a->values.i];
    if (values->dead || values->op != OP_DOT || scores->dead || scores->op != OP_DOT || a->rows_of > 1) {
        violated(c, 29, "node %u has no two contractions", number);
        return;
    }
    if (first_of(c, &a->to_z, values->in[0]).i != values->in[0].i ||
        !leads(c, &a->to_max, first_of(c, &a->to_max, a->max), a->max) ||
        !leads(c, &a->to_scores, a->z, scores->out[0]))
        violated(c, 29, "the attention of node %u does not lead to its scores", number);
    count_reads(c, a, 1);
    for (uint32_t i = 0; i < a->nodes.n; i++) {
        const struct node *n = graph_node(c->g, a->nodes.data[i]);
        if (n->dead || n->parent.i != values->parent.i || c->reads[n->out[0].i] != graph_value(c->g, n->out[0])->n_uses)
            violated(c, 29, "the attention of node %u does not have node %u alone", number,
                     c->n.node[a->nodes.data[i].i]);
    }
    count_reads(c, a, UINT32_MAX);
}

static void check_attentions(struct check *c)
{
    c->reads = NEW_ARRAY(&c->arena, uint32_t, c->g->values.n);
    for (uint32_t i = 1; i < c->m->known.n_attention_nodes; i++)
        if (c->m->known.attention_of[i] && c->m->known.attention_of[i]->values.i == i)
            check_attention(c, c->m->known.attention_of[i]);
}

/* ---- what a kernel reads ----------------------------------------------------------------------------------------- */

void kernel_reads(struct check *c, uint32_t index, read_fn *read)
{
    const struct kernel *k = &c->m->fused.kernels.data[index];
    c->work.n = 0;
    c->turn++;
    for (uint32_t i = 0; i < k->nodes.n; i++)
        c->inside[k->nodes.data[i].i] = index + 1;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(c->g, k->nodes.data[i]);
        uint32_t n_in;
        const value_id *in = kernel_operands(k, n, &n_in);
        for (uint32_t o = 0; o < n_in; o++)
            VEC_PUSH(&c->arena, &c->work, in[o]);
    }
    while (c->work.n) {
        value_id v = c->work.data[--c->work.n];
        if (!v.i || c->seen[v.i] == c->turn || value_is_const(c->g, v))
            continue;
        c->seen[v.i] = c->turn;
        node_id def = graph_value(c->g, v)->def;
        bool mine = def.i && c->inside[def.i] == index + 1;
        if (c->m->fused.stored[v.i] || mine) {
            if (!mine)
                read(c, index, v);
            continue;
        }
        const struct node *n = value_node(c->g, v);
        if (!n || op_shape(n->op) != SHAPE_VIEW) {
            violated(c, 14, "k%u reads %%%u, which nobody stores", index, c->n.value[v.i]);
            continue;
        }
        for (uint32_t o = 0; o < n->n_in; o++)
            VEC_PUSH(&c->arena, &c->work, n->in[o]);
    }
}

static void check_read(struct check *c, uint32_t index, value_id v)
{
    const struct kernel *k = &c->m->fused.kernels.data[index],
                        *maker = c->maker[v.i] ? &c->m->fused.kernels.data[c->maker[v.i] - 1] : NULL;
    if (maker && maker->region.i == k->region.i && maker->order > k->order)
        violated(c, 15, "k%u reads %%%u before k%u stores it", index, c->n.value[v.i], c->maker[v.i] - 1);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void check_kernels(struct check *c)
{
    struct module *m = c->m;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        check_outs(c, i, k);
        check_nodes(c, i, k);
        check_anchor(c, i, k);
        check_domain(c, i, k);
        check_form(c, i, k);
        check_shares(c, i, k);
    }
    for (uint32_t v = 1; v < m->fused.n_values; v++) {
        const struct value *value = graph_value(c->g, (value_id){v});
        if (m->fused.stored[v] && value->def.i && !c->maker[v] && !value_is_const(c->g, (value_id){v}))
            violated(c, 4, "nobody stores %%%u", c->n.value[v]);
    }
    for (uint32_t i = 1; i < c->g->nodes.n; i++)
        if (m->fused.kernel_of[i] != c->last[i])
            violated(c, 9, "kernel_of of node %u is %u, not %u", c->n.node[i], m->fused.kernel_of[i], c->last[i]);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        kernel_reads(c, i, check_read);
}

bool module_verify(struct module *m)
{
    struct check c = {.m = m, .g = m->g, .x = m->ctx->exprs, .ok = true};
    if (!graph_verify(m->g))
        return false;
    arena_init(&c.arena, m->ctx);
    c.n = graph_numbers(m->g, &c.arena);
    check_facts(&c);
    check_attentions(&c);
    if (c.ok && (m->facts & HAS_KERNELS)) {
        c.maker = NEW_ARRAY(&c.arena, uint32_t, m->fused.n_values);
        c.seen = NEW_ARRAY(&c.arena, uint32_t, m->fused.n_values);
        c.inside = NEW_ARRAY(&c.arena, uint32_t, m->g->nodes.n);
        c.last = NEW_ARRAY(&c.arena, uint32_t, m->g->nodes.n);
        check_kernels(&c);
        verify_memory(&c);
    }
    arena_release(&c.arena);
    return c.ok;
}
