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
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}
