/* Arguments of PyTorch's operators: see aten.h. */
#include "passes/legalize/aten.h"

#include "passes/legalize/driver.h"

enum elem aten_elem(const struct rule *r, uint32_t k)
{
    if (k >= r->n_out || !r->node->out[k].i)
        return ELEM_NONE;
    const struct type *t = value_type(r->lg->from, r->node->out[k]);
    if (t->kind != TYPE_TENSOR)
        return ELEM_NONE;
    return t->elem == ELEM_C64 ? ELEM_F32 : t->elem == ELEM_C128 ? ELEM_F64 : t->elem;
}

static int category(enum elem e)
{
    char c = elem_class(e);
    return c == 'B' ? 0 : c == 'F' ? 2 : c == 'C' ? 3 : 1;
}

enum elem aten_elem_for(const struct rule *r, enum elem own)
{
    enum elem e = aten_elem(r, 0);
    bool lower = e != ELEM_NONE && own != ELEM_NONE && category(e) < category(own) && category(own) < 3;
    return e == ELEM_NONE || (lower && !node_attr(r->node, "dtype")) ? own : e;
}

enum elem aten_elem_or(const struct rule *r, value_id v)
{
    return aten_elem_for(r, v_elem(r->b, v));
}

bool aten_has(const struct rule *r, uint32_t i, const char *name)
{
    return rule_has(r, i) || node_attr(r->node, name);
}

value_id aten_operand(struct rule *r, uint32_t i, const char *name, enum elem e)
{
    struct builder *b = r->b;
    const struct attr *a = node_attr(r->node, name);
    if (rule_has(r, i)) {
        value_id v = rule_in(r, i);
        return e == ELEM_NONE ? v : b_convert(b, v, e);
    }
    if (!a || (a->kind != ATTR_INT && a->kind != ATTR_FLOAT))
        return rule_bad(r, "argument '%s' is neither a tensor nor a number", name), (value_id){0};
    if (a->kind == ATTR_FLOAT && e == ELEM_F32)
        return b_scalar_f64(b, e, a->u.f);
    if (a->kind == ATTR_FLOAT)
        return b_convert(b, b_scalar_f64(b, ELEM_F64, a->u.f), e == ELEM_NONE ? ELEM_F64 : e);
    return b_convert(b, b_scalar_i64(b, ELEM_I64, a->u.i), e == ELEM_NONE ? ELEM_I64 : e);
}

/* ---- integers -------------------------------------------------------------------------------------------------- */

static expr_id int_of(struct rule *r, value_id v)
{
    if (!v.i || v_rank(r->b, v) != 0 || !strchr("IUB", elem_class(v_elem(r->b, v))))
        return v.i ? rule_bad(r, "an integer argument is a tensor"), (expr_id){0} : (expr_id){0};
    return b_elem(r->b, b_convert(r->b, v, ELEM_I64), -(int64_t)INT32_MAX, INT32_MAX);
}

expr_id aten_int(struct rule *r, uint32_t i, const char *name, int64_t absent)
{
    return rule_has(r, i) ? int_of(r, rule_in(r, i)) : ex_const(r->b->x, rule_int(r, name, absent));
}

bool aten_int_known(struct rule *r, uint32_t i, const char *name, int64_t absent, int64_t *out)
{
    expr_id e = aten_int(r, i, name, absent);
    return e.i && (ex_is_const(r->b->x, e, out) ||
                   rule_refuse(r, "'%s' is known only at run time: export with a constant", name));
}

double aten_float(const struct rule *r, const char *name, double absent)
{
    const struct attr *a = node_attr(r->node, name);
    return !a ? absent : a->kind == ATTR_FLOAT ? a->u.f : a->kind == ATTR_INT ? (double)a->u.i : absent;
}

bool aten_flag(const struct rule *r, const char *name)
{
    return rule_int(r, name, 0) != 0;
}

uint32_t aten_list(const struct rule *r, uint32_t i, uint32_t *n)
{
    uint32_t count;
    const int64_t *lists = rule_ints(r, "lists", &count);
    for (uint32_t k = 0; k + 2 < count; k += 3)
        if (lists[k] == i) {
            *n = (uint32_t)lists[k + 2];
            return (uint32_t)lists[k + 1];
        }
    *n = 0;
    return 0;
}

bool aten_ints(struct rule *r, uint32_t i, const char *name, expr_id out[RANK_MAX], uint32_t *n)
{
    uint32_t first = aten_list(r, i, n);
    const struct attr *a = node_attr(r->node, name);
    const int64_t *known = NULL;
    if (!*n && rule_has(r, i)) { /* one number of the run for all */
        *n = 1;
        first = i;
    } else if (!*n && a && a->kind == ATTR_INT) {
        *n = 1;
        known = &a->u.i;
    } else if (!*n) {
        known = rule_ints(r, name, n);
    }
    if (*n > RANK_MAX)
        return rule_bad(r, "'%s' has %u entries", name, *n);
    for (uint32_t k = 0; k < *n; k++) {
        out[k] = known ? ex_const(r->b->x, known[k]) : int_of(r, rule_in(r, first + k));
        if (!out[k].i)
            return false;
    }
    return true;
}

bool aten_ints_known(struct rule *r, uint32_t i, const char *name, int64_t out[RANK_MAX], uint32_t *n)
{
    expr_id e[RANK_MAX];
    if (!aten_ints(r, i, name, e, n))
        return false;
    for (uint32_t k = 0; k < *n; k++)
        if (!ex_is_const(r->b->x, e[k], &out[k]))
            return rule_refuse(r, "'%s' is known only at run time: export with a constant", name);
    return true;
}

bool aten_window(struct rule *r, uint32_t i, const char *name, uint32_t n, int64_t absent, int64_t out[RANK_MAX])
{
    uint32_t given;
    if (!aten_ints_known(r, i, name, out, &given))
        return false;
    if (given > 1 && given != n)
        return rule_bad(r, "'%s' has %u entries for %u dimensions", name, given, n);
    for (uint32_t k = given; k < n; k++)
        out[k] = given ? out[0] : absent;
    return true;
}

bool aten_axis(struct rule *r, uint32_t i, const char *name, int64_t absent, int32_t rank, int32_t *out)
{
    int64_t axis;
    return aten_int_known(r, i, name, absent, &axis) && rule_axis(r, axis, rank ? rank : 1, out);
}

value_id aten_sizes(struct rule *r, const expr_id *sizes, uint32_t n)
{
    return b_from_exprs(r->b, ELEM_I64, sizes, n, &(int64_t){n}, 1);
}

/* ---- types ----------------------------------------------------------------------------------------------------- */

/* Of two types: the higher category, then what holds the values of both. */
static enum elem both(enum elem a, enum elem c)
{
    if (a == ELEM_NONE || c == ELEM_NONE || a == c)
        return a == ELEM_NONE ? c : a;
    if (category(a) != category(c))
        return category(a) > category(c) ? a : c;
    if (category(a) == 2 && elem_size(a) == elem_size(c))
        return elem_size(a) == 2 ? ELEM_F32 : a;
    if (category(a) == 1 && elem_class(a) != elem_class(c)) { /* unsigned with signed: the next signed type */
        enum elem u = elem_class(a) == 'U' ? a : c, s = elem_class(a) == 'U' ? c : a;
        if (elem_size(s) > elem_size(u))
            return s;
        return elem_size(u) == 1 ? ELEM_I16 : elem_size(u) == 2 ? ELEM_I32 : ELEM_I64;
    }
    return elem_size(a) > elem_size(c) ? a : c;
}

/* How much an argument counts: numbers, tensors of rank 0, tensors of dims. */
static int weight(struct rule *r, uint32_t i, const char *name, enum elem *e)
{
    const struct attr *a = node_attr(r->node, name);
    if (!rule_has(r, i)) {
        *e = a && a->kind == ATTR_FLOAT ? ELEM_F32 : ELEM_I64;
        return 0;
    }
    value_id v = rule_in(r, i);
    *e = v_elem(r->b, v);
    return v_rank(r->b, v) > 0 ? 2 : 1;
}

enum elem aten_promoted(struct rule *r, uint32_t i, const char *name, uint32_t k, const char *other)
{
    enum elem a, c;
    int wa = weight(r, i, name, &a), wc = weight(r, k, other, &c);
    if (wa == wc || a == ELEM_NONE || c == ELEM_NONE)
        return both(a, c);
    enum elem strong = wa > wc ? a : c, weak = wa > wc ? c : a;
    return category(weak) > category(strong) ? weak : strong;
}

void aten_out(struct rule *r, uint32_t k, value_id v)
{
    enum elem e = aten_elem(r, k);
    bool rounds = v.i && e != ELEM_NONE && elem_class(e) == 'F' && elem_class(v_elem(r->b, v)) == 'F';
    rule_out(r, k, rounds ? b_convert(r->b, v, e) : v);
}

bool aten_result(struct rule *r, value_id v)
{
    aten_out(r, 0, v);
    return v.i != 0;
}

bool aten_result_stated(struct rule *r, value_id v)
{
    enum elem e = aten_elem(r, 0);
    return aten_result(r, e == ELEM_NONE ? v : b_convert(r->b, v, e));
}

void aten_empty_out(struct rule *r, uint32_t k)
{
    value_id file = r->node->out[k];
    if (file.i && graph_value(r->lg->from, file)->n_uses)
        rule_refuse(r, "result %u is for the gradient: export the module for inference", k);
    expr_id none = ex_const(r->b->x, 0);
    enum elem e = aten_elem(r, k);
    rule_out(r, k, b_splat_f64(r->b, e == ELEM_NONE ? ELEM_F32 : e, 0, &none, 1));
}

/* ---- other rules ----------------------------------------------------------------------------------------------- */

bool aten_as(struct rule *r, rule_fn *rule, int32_t version, int param, const value_id *in, uint32_t n_in,
             const struct attr *attrs, uint32_t n_attrs)
{
    struct node node = *r->node;
    struct rule as = *r;
    struct lowered *arg = NEW_ARRAY(r->lg->arena, struct lowered, n_in + 1);
    for (uint32_t i = 0; i < n_in; i++) {
        bool own = i < r->n_in && r->arg[i].kind == LOWERED_VALUE && r->arg[i].v.i == in[i].i;
        arg[i] = !in[i].i ? (struct lowered){.kind = LOWERED_NONE} : own ? r->arg[i] : lowered_value(in[i]);
    }
    node.attr = arena_copy(r->lg->arena, attrs, n_attrs * sizeof *attrs);
    node.n_attr = n_attrs;
    node.n_in = n_in;
    as.node = &node;
    as.version = version;
    as.param = param;
    as.n_in = n_in;
    as.arg = arg;
    return rule(&as);
}
