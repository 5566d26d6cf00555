/* pack-constants: numbers of 2 and 4 bits that contractions and lookups read become bytes that hold several of them.
 *
 *   convert(q: i4)     ->     convert(unpacked(bytes)) - 8,     bytes = packed(q + 8)
 *
 * An element of such a type takes a byte wherever it is computed or stored; a byte of several is unpacked where it is
 * read (passes/module/compressed.h). Those of a byte lie side by side along what a contraction sums over, or along the
 * last dim of a table, so that a vector of lanes unpacks by one shift. All of it is operators over the constant. In and
 * out: a legal graph.
 *
 * For language models of 2- and 4-bit weights (MatMulNBits): none of the 554 networks of ../shared/models that compile.
 */
#include "passes/module/access_function.h"
#include "passes/module/compressed.h"

struct packer {
    struct module *m;
    struct graph *g;
    int32_t *axis; /* by value: along which it is packed, + 1; 0: not */
    sym_id along; /* of the point at hand: the index of what is summed; {0}: the last dim */
};

static uint32_t bits_of(const struct packer *p, value_id v)
{
    enum elem e = value_type(p->g, v)->elem;
    return e == ELEM_I4 || e == ELEM_U4 ? 4 : e == ELEM_I2 || e == ELEM_U2 ? 2 : 0;
}

/* Is everyone who reads it a conversion to whole numbers or f32? */
static bool only_converted(const struct packer *p, value_id v)
{
    for (const struct graph_user *u = graph_user(p->g, v, NULL); u; u = graph_user(p->g, v, u)) {
        const struct node *n = u->node.i ? graph_node(p->g, u->node) : NULL;
        if (!n || n->op != OP_CONVERT || bits_of(p, n->out[0]))
            return false;
    }
    return true;
}

static void note_leaf(void *user, value_id leaf, const expr_id *point)
{
    struct packer *p = user;
    struct exprs *x = p->g->ctx->exprs;
    uint32_t bits = bits_of(p, leaf);
    const struct type *t = value_type(p->g, leaf);
    int64_t extent;
    if (!bits || p->axis[leaf.i])
        return;
    for (int32_t d = t->rank - 1; d >= 0; d--)
        if (p->along.i ? ex_as_sym(x, point[d]).i == p->along.i : d == t->rank - 1) {
            if (ex_is_const(x, t->dims[d], &extent) && extent % (8 / bits) == 0 && only_converted(p, leaf))
                p->axis[leaf.i] = d + 1;
            return;
        }
}

/* What node n reads of the constant v; contract: the dim that it sums over, -1: none. */
static void note_reader(struct packer *p, value_id v, int32_t contract)
{
    struct exprs *x = p->g->ctx->exprs;
    const struct type *t = value_type(p->g, v);
    expr_id idx[RANK_MAX];
    int64_t n;
    if (!value_is_const(p->g, v) || t->kind != TYPE_TENSOR)
        return;
    for (int32_t d = 0; d < t->rank; d++) {
        if (!ex_is_const(x, t->dims[d], &n) || n < 1)
            return;
        const char *name = arena_printf(p->m->arena, "p%u", sym_count(x));
        idx[d] = ex_sym(x, sym_new(x, SYM_LOOP, name, 0, n - 1));
    }
    p->along = contract >= 0 ? ex_as_sym(x, idx[contract]) : (sym_id){0};
    constant_leaves(&(struct leaf_walk){.m = p->m, .leaf = note_leaf, .user = p}, v, idx);
}

/* The conversion of a constant, from bytes that hold several of its elements along the axis. */
static void pack(struct packer *p, node_id id, int32_t axis)
{
    const struct node n = *graph_node(p->g, id);
    struct builder b = builder_before(p->g, id);
    enum elem to = value_type(p->g, n.out[0])->elem, wide = elem_class(to) == 'F' ? ELEM_F32 : ELEM_I32;
    uint32_t bits = bits_of(p, n.in[0]);
    bool is_signed = elem_class(value_type(p->g, n.in[0])->elem) == 'I';
    value_id q = b_convert(&b, n.in[0], ELEM_I32);
    if (is_signed)
        q = b_binary_f64(&b, OP_ADD, q, 1 << (bits - 1));
    value_id bytes = b_packed(&b, b_convert(&b, q, ELEM_U8), bits, axis);
    value_id y = b_convert(&b, b_unpacked(&b, bytes, bits, axis), wide);
    if (is_signed)
        y = b_binary_f64(&b, OP_SUB, y, 1 << (bits - 1));
    graph_replace(p->g, id, b_convert(&b, y, to));
}

/* Does a type of 16 bits hold all those floats exactly: bf16, or else f16's normal numbers and zeros? */
static bool held_by_halves(const struct span *data, enum elem *half)
{
    enum { LEAST = 127 - 14, MOST = 127 + 15, LOST_BF16 = 0xffff, LOST_F16 = 0x1fff };
    bool bf16 = true, f16 = true;
    for (size_t at = 0; at + sizeof(uint32_t) <= data->size && (bf16 || f16); at += sizeof(uint32_t)) {
        uint32_t bits, exponent;
        memcpy(&bits, (const char *)data->data + at, sizeof bits);
        exponent = bits >> 23 & 0xff;
        bf16 &= !(bits & LOST_BF16);
        f16 &= !(bits & LOST_F16) && (!(bits << 1) || (exponent >= LEAST && exponent <= MOST));
    }
    *half = bf16 ? ELEM_BF16 : ELEM_F16;
    return bf16 || f16;
}

/* Stores the scales or zero points, operand o of a scaled product, in 16 bits if a type of 16 bits holds them exactly;
 * their users convert them back. A token then reads a tenth fewer bytes of 4-bit weights in blocks of 32. */
static void halve(struct module *m, const struct node *dot, uint32_t o, node_id first)
{
    struct graph *g = m->g;
    value_id v = o < dot->n_in ? dot->in[o] : (value_id){0};
    const struct node *n = v.i ? value_node(g, v) : NULL;
    enum elem half;
    for (; n && op_shape(n->op) == SHAPE_VIEW && n->n_in == 1; n = value_node(g, v))
        v = n->in[0];
    const struct attr *data = n && n->op == OP_CONSTANT ? node_attr(n, "data") : NULL;
    if (!data || data->kind != ATTR_DATA || value_type(g, v)->elem != ELEM_F32 || !held_by_halves(&data->u.data, &half))
        return;
    struct builder b = builder_before(g, first);
    value_id small = b_convert(&b, v, half), wide = b_convert(&b, small, ELEM_F32);
    graph_replace_uses(g, v, wide);
    graph_set_operand(g, graph_value(g, small)->def, 0, v);
}

/* Where all constants are known: they come first in the top region (ir/graph/pool.c). */
static node_id first_computed(const struct graph *g)
{
    const struct region *top = graph_get_region(g, (region_id){1});
    for (uint32_t i = 0; i < top->nodes.n; i++)
        if (graph_node(g, top->nodes.data[i])->op != OP_CONSTANT)
            return top->nodes.data[i];
    return (node_id){0};
}

bool pack_constants(struct module *m)
{
    struct packer p = {.m = m, .g = m->g, .axis = NEW_ARRAY(m->arena, int32_t, m->g->values.n)};
    uint32_t n_nodes = m->g->nodes.n, n_values = m->g->values.n, count;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        if (n->dead)
            continue;
        const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &count) : NULL;
        if (contract && count)
            note_reader(&p, weight_whole(m->g, n->in[1]), (int32_t)contract[count - 1]);
        else if (n->op == OP_CONV)
            note_reader(&p, n->in[1], 1);
        else if (op_shape(n->op) == SHAPE_INDEX)
            note_reader(&p, n->in[0], -1);
    }
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        value_id q = !n->dead && n->op == OP_CONVERT && n->in[0].i < n_values ? n->in[0] : (value_id){0};
        if (q.i && p.axis[q.i])
            pack(&p, (node_id){i}, p.axis[q.i] - 1);
    }
    node_id first = first_computed(m->g);
    for (uint32_t i = 1; i < n_nodes; i++)
        for (uint32_t o = 3; o <= 5; o += 2) {
            const struct node n = *graph_node(m->g, (node_id){i});
            if (!n.dead && n.op == OP_DOT && n.n_in > 2)
                halve(m, &n, o, first);
        }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}
