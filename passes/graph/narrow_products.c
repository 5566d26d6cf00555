/* narrow-products: operands of contractions rounded to bf16 or f16 (--precision, --choose NODE:precision=).
 *
 *   conv(x, w)     ->     conv(convert(x, bf16), convert(w, bf16)) summed in f32
 *
 * The graph says all of it, so the interpreter computes what kernels do. A value is narrowed where it is made, in front
 * of the views that contractions read it through, and everybody else then reads the narrow one too: it is stored once,
 * in half the bytes. Not so where a contraction that stays in f32 reads it, where it is a result of its region, and of
 * rows of a matrix product, which are small next to their products: a sum that runs through all layers is not rounded
 * in each.
 *
 * Pairs of bf16 stay narrow up to the multiplication, if some variant has an instruction for them (module.asked.pairs).
 * Else, and where Winograd's form in f32 is faster, operands are widened again: a computed one right after its
 * rounding, so that loops find f32 in memory, a constant in the loads of its panels. Depthwise and grouped
 * convolutions, products of dynamic length, and attention stay in f32.
 *
 * f16-sums says so of contractions (attribute part); schedules take it where the CPU has FP16 arithmetic.
 */
#include "passes/module/attention.h"
#include "passes/module/winograd.h"

/* What becomes of a value that existed at the start. */
struct fate {
    enum elem narrow; /* wanted in this type; ELEM_NONE: not */
    bool push; /* ... in memory: its views are narrow, too */
    bool exact; /* wanted as it is */
    bool rounded; /* everybody reads what has been narrow */
    value_id made; /* the narrow one */
};
/* An operand of a contraction that is narrowed. */
struct operand {
    node_id node;
    uint32_t k;
    value_id value;
    enum elem elem;
    bool wide; /* narrow in memory at most */
};
struct narrower {
    struct module *m;
    struct graph *g;
    struct fate *fate; /* by value */
    uint32_t n_values;
    VEC(struct operand) operands;
    VEC(value_id) stack;
};

/* ---- which ones -------------------------------------------------------------------------------------------------- */

/* The view that makes v; NULL: something else does. */
static const struct node *view_of(const struct graph *g, value_id v)
{
    return op_shape(value_op(g, v)) == SHAPE_VIEW ? value_node(g, v) : NULL;
}

/* A contraction of f32 with at least two products in each sum; of colours the first layer stays as it is. */
static bool is_candidate(const struct module *m, const struct node *n)
{
    int64_t extent;
    uint32_t count;
    if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || value_is_const(m->g, n->out[0]) ||
        (n->op == OP_CONV && node_int(n, "groups", 1) != 1))
        return false;
    const struct type *b = value_type(m->g, n->in[1]);
    if (value_type(m->g, n->in[0])->elem != ELEM_F32 || b->elem != ELEM_F32 ||
        value_type(m->g, n->out[0])->elem != ELEM_F32)
        return false;
    const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &count) : NULL;
    if (contract && !count)
        return false;
    return ex_is_const(m->ctx->exprs, b->dims[contract ? contract[count - 1] : 1], &extent) &&
           extent >= (contract ? 2 : MIN_BLOCKED);
}

bool narrow_possible(const struct module *m, node_id id)
{
    return is_candidate(m, graph_node(m->g, id)) && !is_attention_product(m, id);
}

static enum elem elem_wanted(const struct module *m, node_id id)
{
    static const enum elem elems[] = {[PRECISION_F32] = ELEM_NONE,
                                      [PRECISION_BF16] = ELEM_BF16,
                                      [PRECISION_F16] = ELEM_F16,
                                      [PRECISION_F16_SUMS] = ELEM_F16,
                                      [PRECISION_INT8] = ELEM_NONE};
    return narrow_possible(m, id) ? elems[precision_wanted(m, id)] : ELEM_NONE;
}

/* Of constants whose contraction stays in f32 (--weights-type). */
static enum elem elem_stored(const struct module *m, node_id id)
{
    const struct weights_row *w = &weights_rows[is_candidate(m, graph_node(m->g, id)) ? weights_wanted(m, id) : 0];
    return !(w->most > 0) ? w->elem : ELEM_NONE;
}

/* v and, through its views, what it is made of are wanted: exact (elem NONE), or narrow. */
static void want(struct narrower *w, value_id v, enum elem elem, bool push)
{
    VEC_PUSH(w->m->arena, &w->stack, v);
    while (w->stack.n) {
        v = w->stack.data[--w->stack.n];
        struct fate *f = &w->fate[v.i];
        bool exact = !elem || (f->narrow && f->narrow != elem),
             seen = exact ? f->exact : f->narrow == elem && (f->push || !push);
        if (seen || value_type(w->g, v)->elem != ELEM_F32)
            continue;
        f->exact |= exact;
        if (!exact) {
            f->narrow = elem;
            f->push |= push;
        }
        const struct node *n = view_of(w->g, v);
        for (uint32_t k = 0; n && k < n->n_in; k++)
            VEC_PUSH(w->m->arena, &w->stack, n->in[k]);
    }
}

static void find_operands(struct narrower *w)
{
    for (uint32_t i = 1; i < w->g->nodes.n; i++) {
        const struct node *n = graph_node(w->g, (node_id){i});
        if (n->dead || (n->op != OP_DOT && n->op != OP_CONV))
            continue;
        enum elem elem = elem_wanted(w->m, (node_id){i});
        if (elem)
            VEC_PUSH(w->m->arena, &w->m->known.narrowed, ((node_id){i}));
        enum elem stored = elem ? elem : elem_stored(w->m, (node_id){i});
        bool wide = elem != ELEM_BF16 || !w->m->asked.pairs || winograd_beats_pairs(w->m, n);
        for (uint32_t k = 0; k < n->n_in; k++) {
            bool constant = value_is_const(w->g, n->in[k]);
            enum elem to = constant ? stored : elem;
            if (to)
                VEC_PUSH(w->m->arena, &w->operands, ((struct operand){{i}, k, n->in[k], to, wide}));
            want(w, n->in[k], to, !wide || constant);
            if (to && !constant && n->op == OP_DOT) /* small next to its products: sums along the layers stay exact */
                want(w, n->in[k], ELEM_NONE, false);
        }
    }
    for (uint32_t r = 1; r < w->g->regions.n; r++) {
        const struct region *region = graph_get_region(w->g, (region_id){r});
        for (uint32_t i = 0; i < region->results.n; i++)
            if (region->results.data[i].i && value_type(w->g, region->results.data[i])->kind == TYPE_TENSOR)
                want(w, region->results.data[i], ELEM_NONE, false);
    }
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

static value_id convert_before(struct graph *g, node_id where, value_id v, enum elem elem, src_id src)
{
    struct attr attrs[] = {attr_elem("elem", elem), attr_str("round", "normal")};
    struct builder b = builder_before(g, where);
    b.src = src;
    return b_op(&b, OP_CONVERT, &v, 1, attrs, elem == ELEM_BF16 ? 2 : 1);
}

/* The narrow form of operand v, which may have been replaced by that one widened; {0}: there is none. */
static value_id narrow_of(const struct narrower *w, value_id v, enum elem elem)
{
    value_id made = v.i < w->n_values ? w->fate[v.i].made : value_node(w->g, v)->in[0];
    return made.i && value_type(w->g, made)->elem == elem ? made : (value_id){0};
}

/* The view that makes v, of the narrow values that it reads; {0}: not all of them are narrow. */
static value_id view_before(struct narrower *w, node_id where, value_id v)
{
    const struct fate *f = &w->fate[v.i];
    if (!f->push || !view_of(w->g, v))
        return (value_id){0};
    const struct node n = *view_of(w->g, v);
    struct type t = *value_type(w->g, v);
    value_id *in = NEW_ARRAY(w->m->arena, value_id, n.n_in);
    t.elem = f->narrow;
    for (uint32_t k = 0; k < n.n_in; k++) {
        in[k] = narrow_of(w, n.in[k], f->narrow);
        if (!in[k].i)
            return (value_id){0};
    }
    node_id id = graph_insert_before(w->g, where, n.op, n.src, in, n.n_in, n.attr, n.n_attr, &t, 1);
    return graph_node(w->g, id)->out[0];
}

/* Is v, as it is now, a narrow value widened? */
static bool is_rounded(const struct narrower *w, value_id v)
{
    return v.i < w->n_values ? w->fate[v.i].rounded : value_op(w->g, v) == OP_CONVERT;
}

/* v narrow, and wide again for its other readers, before the node `where`. */
static void narrow_value(struct narrower *w, value_id v, node_id where)
{
    struct fate *f = &w->fate[v.i];
    src_id src = graph_node(w->g, graph_value(w->g, v)->def.i ? graph_value(w->g, v)->def : where)->src;
    if (!f->narrow)
        return;
    const struct node *n = view_of(w->g, v);
    if (n && !f->push) {
        f->rounded = true;
        for (uint32_t k = 0; k < n->n_in; k++)
            f->rounded &= is_rounded(w, n->in[k]);
        return;
    }
    f->made = view_before(w, where, v);
    bool pushed = f->made.i;
    if (!pushed)
        f->made = convert_before(w->g, where, v, f->narrow, src);
    if (f->exact)
        return;
    f->rounded = true;
    value_id wide = convert_before(w->g, where, f->made, ELEM_F32, src);
    graph_replace_uses(w->g, v, wide);
    if (!pushed)
        graph_set_operand(w->g, graph_value(w->g, f->made)->def, 0, v);
}

/* The values that region r makes, each after its node: a narrowed value is read by a node that comes later. */
static void narrow_region(struct narrower *w, region_id r)
{
    for (uint32_t i = 0; i < graph_get_region(w->g, r)->params.n && graph_get_region(w->g, r)->nodes.n; i++)
        if (graph_get_region(w->g, r)->params.data[i].i < w->n_values)
            narrow_value(w, graph_get_region(w->g, r)->params.data[i], graph_get_region(w->g, r)->nodes.data[0]);
    for (uint32_t i = 0; i + 1 < graph_get_region(w->g, r)->nodes.n; i++) {
        node_id id = graph_get_region(w->g, r)->nodes.data[i], next = graph_get_region(w->g, r)->nodes.data[i + 1];
        for (uint32_t k = 0; k < graph_node(w->g, id)->n_out; k++)
            if (graph_node(w->g, id)->out[k].i < w->n_values)
                narrow_value(w, graph_node(w->g, id)->out[k], next);
    }
}

/* The element type `name` of a contraction: of its sum, of parts of it. */
static void set_sum(struct graph *g, node_id id, const char *name, enum elem elem)
{
    struct node *n = graph_node(g, id);
    if (node_attr(n, name))
        return;
    struct attr *attr = arena_alloc_array(&g->arena, n->n_attr + 1, sizeof *attr);
    memcpy(attr, n->attr, n->n_attr * sizeof *attr);
    attr[n->n_attr] = attr_elem(name, elem);
    n->attr = attr;
    n->n_attr++;
}

static void set_operand(struct narrower *w, const struct operand *o)
{
    const struct fate *f = &w->fate[o->value.i];
    src_id src = graph_node(w->g, o->node)->src;
    bool narrow = f->narrow == o->elem && f->made.i;
    value_id v = graph_node(w->g, o->node)->in[o->k];
    if (o->wide && f->rounded)
        return;
    v = narrow ? f->made : convert_before(w->g, o->node, v, o->elem, src);
    if (o->wide)
        v = convert_before(w->g, o->node, v, ELEM_F32, src);
    else
        set_sum(w->g, o->node, "acc", ELEM_F32);
    graph_set_operand(w->g, o->node, o->k, v);
}

bool narrow_products(struct module *m)
{
    probe_products(m);
    struct narrower w = {.m = m, .g = m->g, .n_values = m->g->values.n};
    w.fate = NEW_ARRAY(m->arena, struct fate, w.n_values);
    find_operands(&w);
    uint32_t deepest = 0;
    for (uint32_t depth = 0; depth <= deepest; depth++)
        for (uint32_t r = 1; r < m->g->regions.n; r++) {
            const struct region *region = graph_get_region(m->g, (region_id){r});
            if (region->depth > deepest)
                deepest = region->depth;
            if (region->depth == depth && (r == 1 || region->owner.i))
                narrow_region(&w, (region_id){r});
        }
    for (uint32_t i = 0; i < w.operands.n; i++)
        set_operand(&w, &w.operands.data[i]);
    for (uint32_t i = 0; i < m->known.narrowed.n; i++) {
        node_id id = m->known.narrowed.data[i];
        if (precision_wanted(m, id) == PRECISION_F16_SUMS)
            set_sum(m->g, id, "part", ELEM_F16);
    }
    graph_sweep(m->g);
    return true;
}
