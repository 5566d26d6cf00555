/* mcc prove: loops and branches that no size lets run, as a loop over whole vectors of an extent of a few elements.
 *
 * Extents that data decides are symbols with wide bounds. But a part of a tensor is no longer than the tensor, no
 * extent of a reshaped one exceeds the number of its elements, and the network checks sizes: it refuses others, and so
 * does the program, before it launches a kernel that computes such a value. If few sizes are left, each is tried: the
 * indices that the kernel computes of its arguments rule out loops and branches, if it has a parallel index at all.
 */
#include "cli/commands/compare/never.h"
#include "ir/expr/expr.h"

enum { SIZES_MOST = 8, TRIED_MOST = 1 << 14, CHECKED_MOST = 32, COMPUTED_MOST = 32, FEW_MOST = 16 };

/* Of one kernel. Symbols replace extents that are not symbols. */
struct sizes {
    struct prove *p;
    struct exprs *x;
    sym_id computed[COMPUTED_MOST]; /* elements that the network computes of other symbols, as `by` */
    expr_id by[COMPUTED_MOST];
    uint32_t n_computed;
    expr_id from[SIZES_MOST], to[SIZES_MOST];
    uint32_t n_replaced;
    sym_id size[SIZES_MOST];
    int64_t least[SIZES_MOST], most[SIZES_MOST];
    uint32_t n;
    int64_t *value; /* by symbol, those at hand */
    bool *known;    /* by symbol: it has such a value */
    const struct node *reshape; /* of as many elements as are known: then `last`, an extent of the result, follows */
    sym_id last;
    expr_id checked[CHECKED_MOST]; /* conditions that the run checks before it launches the kernel */
    uint32_t n_checked;
};

static expr_id replaced(const struct sizes *s, expr_id e)
{
    const expr_id by = s->n_computed ? ex_subst_try(s->x, e, s->computed, s->by, s->n_computed) : e;
    e = by.i ? by : e;
    return s->n_replaced ? ex_replace(s->x, e, s->from, s->to, s->n_replaced) : e;
}

static uint32_t size_of(struct sizes *s, sym_id y, int64_t lo, int64_t hi)
{
    uint32_t i = 0;
    while (i < s->n && s->size[i].i != y.i)
        i++;
    if (i < s->n || i == SIZES_MOST)
        return i;
    s->size[i] = y;
    s->least[i] = lo;
    s->most[i] = hi;
    return s->n++;
}

/* An extent that symbols of few values decide stays what it is: these are tried. False: it is none. */
static bool is_of_few(struct sizes *s, expr_id e)
{
    sym_id used[SIZES_MOST];
    uint32_t n = 0;
    for (sym_id y = {1}; y.i <= sym_count(s->x); y.i++) {
        const struct symbol *sym = sym_get(s->x, y);
        if (!ex_uses(s->x, e, y))
            continue;
        if (n == SIZES_MOST || sym->lo < -FEW_MOST || sym->hi > FEW_MOST)
            return false;
        used[n++] = y;
    }
    for (uint32_t i = 0; i < n; i++)
        size_of(s, used[i], sym_get(s->x, used[i])->lo, sym_get(s->x, used[i])->hi);
    return true;
}

/* Extent e lies between these, too. */
static void bound(struct sizes *s, expr_id e, int64_t lo, int64_t hi)
{
    int64_t c;
    e = replaced(s, e);
    if (ex_is_const(s->x, e, &c))
        return;
    sym_id y = ex_as_sym(s->x, e);
    const struct loop_range own = {ex_lo(s->x, e) > 0 ? ex_lo(s->x, e) : 0, ex_hi(s->x, e)};
    if (!y.i) {
        if (is_of_few(s, e))
            return;
        if (s->n_replaced == SIZES_MOST || own.lo > own.hi)
            return;
        y = sym_new(s->x, SYM_LOOP, arena_printf(&s->p->run.c.ctx->session, "never.%u", sym_count(s->x)), 0, INT64_MAX);
        s->from[s->n_replaced] = e;
        s->to[s->n_replaced++] = ex_sym(s->x, y);
    }
    const uint32_t i = size_of(s, y, own.lo, own.hi);
    if (i == SIZES_MOST)
        return;
    s->least[i] = lo > s->least[i] ? lo : s->least[i];
    s->most[i] = hi < s->most[i] ? hi : s->most[i];
}

/* Between which numbers an expression lies that has known sizes. */
static struct loop_range range_of(const struct sizes *s, expr_id e)
{
    const sym_id y = ex_as_sym(s->x, e);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->size[i].i == y.i)
            return (struct loop_range){s->least[i], s->most[i]};
    return (struct loop_range){ex_lo(s->x, e), ex_hi(s->x, e)};
}

/* The least and the most elements of a tensor; false: not known. */
static bool elements_of(const struct sizes *s, const struct type *t, struct loop_range *out)
{
    *out = (struct loop_range){1, 1};
    for (int32_t k = 0; k < t->rank; k++) {
        const struct loop_range d = range_of(s, replaced(s, t->dims[k]));
        if (d.lo < 0 || d.hi == INT64_MAX || !mul_i64(out->lo, d.lo, &out->lo) || !mul_i64(out->hi, d.hi, &out->hi))
            return false;
    }
    return true;
}

/* What one of the kernel's nodes says of extents. */
static void node_bounds(struct sizes *s, const struct graph *g, const struct node *n)
{
    const struct type *to = n->n_out ? value_type(g, n->out[0]) : NULL;
    const struct type *from = n->n_in && n->in[0].i ? value_type(g, n->in[0]) : NULL;
    struct loop_range all = {0, INT64_MAX};
    if (!to || to->kind != TYPE_TENSOR)
        return;
    if (n->op == OP_RESHAPE && (!elements_of(s, from, &all) || !all.lo))
        all = (struct loop_range){0, INT64_MAX}; /* of none any extent but one may be anything */
    all.lo = all.lo > 0;
    for (int32_t d = 0; d < to->rank; d++) {
        const bool part = n->op == OP_SLICE && d < from->rank;
        bound(s, to->dims[d], all.lo, part ? range_of(s, replaced(s, from->dims[d])).hi : all.hi);
    }
}

/* The conditions of the network before the kernel. One of a size and a number bounds that size. */
static void check_bounds(struct sizes *s, const struct graph *g, const struct kernel *of)
{
    for (uint32_t i = 0; i < prove_kernels(s->p) && of->region.i == 1; i++) {
        const struct kernel *k = prove_kernel(s->p, i);
        const struct node *n = k->kind == KERNEL_CONTROL ? graph_node(g, k->anchor) : NULL;
        int64_t end;
        if (!n || n->op != OP_ASSERT || k->region.i != 1 || k->order >= of->order || s->n_checked == CHECKED_MOST)
            continue;
        const expr_id cond = s->checked[s->n_checked++] = replaced(s, node_expr(n, "cond"));
        if (ex_kind(s->x, cond) != EX_LT || !ex_is_const(s->x, ex_arg(s->x, cond, 1), &end) || end < 1)
            continue;
        for (uint32_t j = 0; j < s->n; j++)
            if (s->size[j].i == ex_as_sym(s->x, ex_arg(s->x, cond, 0)).i && end <= s->most[j])
                s->most[j] = end - 1;
    }
}

/* Do all symbols in it have values? */
static bool is_known(const struct sizes *s, expr_id e)
{
    for (sym_id y = {1}; y.i <= sym_count(s->x); y.i++)
        if (!s->known[y.i] && ex_uses(s->x, e, y))
            return false;
    return true;
}

/* Of a tensor whose extents are all known. */
static bool product_of(const struct sizes *s, const struct type *t, int64_t *out)
{
    int64_t d;
    *out = 1;
    for (int32_t k = 0; k < t->rank; k++) {
        const expr_id e = replaced(s, t->dims[k]);
        if (!is_known(s, e) || !ex_eval(s->x, e, s->value, &d) || !mul_i64(*out, d, out))
            return false;
    }
    return true;
}

/* Leaves the conditions whose sizes are all tried. */
static void known_checks(struct sizes *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_checked; i++)
        if (is_known(s, s->checked[i]))
            s->checked[n++] = s->checked[i];
    s->n_checked = n;
}

/* Do the sizes at hand leave the numbers of elements as they are, as far as is known, and does the network take them?
 */
static bool fits(const struct sizes *s, const struct kernel *k)
{
    const struct graph *g = s->p->run.c.graph;
    int64_t in, out, holds;
    for (uint32_t i = 0; i < s->n_checked; i++)
        if (ex_eval(s->x, s->checked[i], s->value, &holds) && !holds)
            return false;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        if (n->op == OP_RESHAPE && product_of(s, value_type(g, n->in[0]), &in) &&
            product_of(s, value_type(g, n->out[0]), &out) && in != out)
            return false;
    }
    return true;
}

/* The sizes that are tried: as many as give few tuples. */
static void take_sizes(struct sizes *s)
{
    int64_t all = 1, n;
    s->value = NEW_ARRAY(&s->p->run.c.ctx->session, int64_t, sym_count(s->x) + 1);
    s->known = NEW_ARRAY(&s->p->run.c.ctx->session, bool, sym_count(s->x) + 1);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->most[i] >= TRIED_MOST || s->most[i] < s->least[i] || !mul_i64(all, s->most[i] - s->least[i] + 1, &n) ||
            n > TRIED_MOST)
            continue;
        all = n;
        s->known[s->size[i].i] = true;
        s->value[s->size[i].i] = s->least[i];
    }
}

/* A reshape of a fixed number of elements of which one extent is not tried: that one follows from the others. */
static void find_last(struct sizes *s, const struct kernel *k)
{
    const struct graph *g = s->p->run.c.graph;
    int64_t count;
    for (uint32_t i = 0; i < k->nodes.n && !s->reshape; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        const struct type *t = n->op == OP_RESHAPE ? value_type(g, n->out[0]) : NULL;
        uint32_t unknown = 0;
        for (int32_t d = 0; t && d < t->rank; d++)
            if (!is_known(s, replaced(s, t->dims[d]))) {
                s->last = ex_as_sym(s->x, replaced(s, t->dims[d]));
                unknown++;
            }
        if (unknown == 1 && s->last.i && product_of(s, value_type(g, n->in[0]), &count) && count > 0) {
            s->reshape = n;
            s->known[s->last.i] = true;
        }
    }
}

/* Computes the last extent; false: there is none for the sizes at hand. */
static bool set_last(struct sizes *s)
{
    const struct graph *g = s->p->run.c.graph;
    int64_t in, others;
    if (!s->reshape)
        return true;
    s->value[s->last.i] = 1;
    if (!product_of(s, value_type(g, s->reshape->in[0]), &in) ||
        !product_of(s, value_type(g, s->reshape->out[0]), &others) || others < 1 || in % others)
        return false;
    s->value[s->last.i] = in / others;
    return true;
}

/* The next tuple; false: that was the last. */
static bool next_sizes(struct sizes *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->known[s->size[i].i] || s->size[i].i == s->last.i)
            continue;
        if (s->value[s->size[i].i]++ < s->most[i])
            return true;
        s->value[s->size[i].i] = s->least[i];
    }
    return false;
}

/* e at the sizes at hand. whole: is_known of it. */
static struct loop_range range_now(const struct sizes *s, expr_id e, bool whole)
{
    int64_t x;
    if (e.i && whole && ex_eval(s->x, e, s->value, &x))
        return (struct loop_range){x, x};
    return e.i ? (struct loop_range){ex_lo(s->x, e), ex_hi(s->x, e)} : (struct loop_range){INT64_MIN, INT64_MAX};
}

bool never_begin(struct prove *p, const struct kernel *code, const struct lowered_kernel *of, struct never_code *n)
{
    struct context *ctx = p->run.c.ctx;
    const char *text = of->loops;
    *n = (struct never_code){.of = of, .f = lf_parse(ctx, &ctx->session, &text), .n_args = code->args.n};
    if (!n->f || n->f->args.n != n->n_args)
        return false;
    n->args = NEW_ARRAY(&ctx->session, struct loop_range, n->n_args + 1);
    n->scratch = NEW_ARRAY(&ctx->session, struct loop_range, n->f->types.n + 1);
    n->never = NEW_ARRAY(&ctx->session, bool, of->facts.blocks + 1);
    n->may = NEW_ARRAY(&ctx->session, bool, of->facts.blocks + 1);
    return true;
}

bool never_try(struct never_code *n)
{
    const uint32_t blocks = n->of->facts.blocks;
    if (lf_never(n->f, n->args, n->scratch, n->never, blocks) != blocks)
        return false;
    for (uint32_t i = 0; i < blocks; i++)
        n->may[i] |= !n->never[i];
    return true;
}

void never_end(struct prove *p, const struct never_code *n)
{
    const uint32_t first = n->of->facts.first;
    for (uint32_t i = 0; i < n->of->facts.blocks; i++)
        p->never[first + i] |= !n->may[i] && !p->runs[first + i];
}

/* of: the kernel whose nodes the sizes are of; k: this one, or a version of it. */
static void find_of(struct sizes *s, const struct kernel *of, const struct kernel *k, const struct lowered_kernel *l)
{
    struct context *ctx = s->p->run.c.ctx;
    struct never_code code;
    const uint32_t n = k->args.n;
    if (!never_begin(s->p, k, l, &code))
        return;
    expr_id *size = NEW_ARRAY(&ctx->session, expr_id, n + 1);
    bool *whole = NEW_ARRAY(&ctx->session, bool, n + 1);
    for (uint32_t i = 0; i <= n; i++) { /* the last one: parallel indices */
        size[i] = i < n ? k->args.data[i].size : k->count;
        size[i] = size[i].i ? replaced(s, size[i]) : size[i];
        whole[i] = size[i].i && is_known(s, size[i]);
    }
    do {
        if (!set_last(s) || range_now(s, size[n], whole[n]).hi < 1 || !fits(s, of))
            continue;
        for (uint32_t i = 0; i < n; i++)
            code.args[i] = range_now(s, size[i], whole[i]);
        if (!never_try(&code))
            return;
    } while (next_sizes(s));
    never_end(s->p, &code);
}

bool never_lacks(const struct prove *p, const struct lowered_kernel *l)
{
    for (uint32_t k = 0; l && k < l->facts.blocks; k++)
        if (!p->runs[l->facts.first + k] && !p->never[l->facts.first + k])
            return true;
    return false;
}

void never_find(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    p->never = NEW_ARRAY(&p->run.c.ctx->session, bool, p->run.c.marks + 1);
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        struct sizes s = {.p = p, .x = p->run.c.ctx->exprs};
        const struct kernel *of = prove_kernel(p, i), *code = prove_code(p, i);
        for (; code; code = code->version.of) {
            const struct lowered_kernel *l = verdict_lowered(p, code);
            if (!never_lacks(p, l))
                continue;
            if (!s.n_computed)
                s.n_computed = sizing_computed(g, s.computed, s.by, COMPUTED_MOST);
            for (uint32_t k = of->nodes.n; k-- > 0 && !s.value;) /* operands first */
                node_bounds(&s, g, graph_node(g, of->nodes.data[k]));
            if (!s.value) {
                check_bounds(&s, g, of);
                take_sizes(&s);
                find_last(&s, of);
                known_checks(&s);
            }
            find_of(&s, of, code, l);
        }
    }
}
