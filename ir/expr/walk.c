/* Walks over finished expressions: substitution, evaluation, the linear part in one symbol.
 *
 * They recurse: depth and size of an expression are bounded when it is made (EXPR_DEPTH_MAX, EXPR_SIZE_MAX).
 */
#include "ir/expr/internal.h"

bool ex_uses(const struct exprs *x, expr_id e, sym_id s)
{
    const struct enode *node = enode(x, e);
    if (!(node->syms & ((uint64_t)1 << (s.i % 64))))
        return false;
    if (node->kind == EX_SYM)
        return node->sym.i == s.i;
    for (uint32_t i = 0; i < node->n; i++)
        if (ex_uses(x, node->arg[i], s))
            return true;
    return false;
}

bool ex_uses_only(const struct exprs *x, expr_id e, const bool *of)
{
    const struct enode *node = enode(x, e);
    bool only = node->kind != EX_SYM || of[node->sym.i];
    for (uint32_t i = 0; i < node->n && node->syms && only; i++)
        only = ex_uses_only(x, node->arg[i], of);
    return only;
}

sym_id ex_first_sym(const struct exprs *x, expr_id e)
{
    const struct enode *node = enode(x, e);
    while (node->kind != EX_SYM && node->syms) {
        uint32_t i = 0;
        while (!enode(x, node->arg[i])->syms)
            i++;
        node = enode(x, node->arg[i]);
    }
    return node->sym;
}

bool ex_uses_kind(const struct exprs *x, expr_id e, enum sym_kind kind)
{
    return enode(x, e)->flags & F_KIND << kind;
}

/* One factor s exactly; the others are free of it. */
static bool linear_term(struct exprs *x, expr_id term, sym_id s, expr_id *others)
{
    expr_id atom, rest;
    for (uint32_t k = 0; term_atom(x, term, k, &atom, &rest); k++) {
        if (ex_as_sym(x, atom).i == s.i) {
            *others = rest;
            return !ex_uses(x, rest, s);
        }
    }
    return false;
}

bool ex_linear(struct exprs *x, expr_id e, sym_id s, expr_id *coef, expr_id *rest)
{
    struct view v;
    expr_id others;
    view_of(x, e, &v);
    *coef = ex_const(x, 0);
    for (uint32_t i = 0; i < v.n; i++) {
        if (!ex_uses(x, v.e[i], s))
            continue;
        if (!linear_term(x, v.e[i], s, &others))
            return false;
        *coef = ex_add(x, *coef, ex_mulc(x, others, v.coef[i]));
    }
    struct poly p = poly_open(x);
    for (uint32_t i = 0; i < v.n; i++)
        if (!ex_uses(x, v.e[i], s))
            poly_add(&p, v.e[i], v.coef[i]);
    poly_add_const(&p, v.c);
    *rest = poly_close(&p);
    return true;
}

/* ---- substitution -------------------------------------------------------------------------------------- */

enum { MEMO = 64 };

struct subst {
    struct exprs *x;
    const expr_id *from;         /* what is replaced, wherever it stands as a whole */
    const expr_id *to;
    uint32_t n;
    uint64_t syms;               /* of all in from: what has none of them stays */
    struct {
        uint32_t e, result;
    } memo[MEMO];
};

static expr_id subst(struct subst *s, expr_id e);

static expr_id subst_sum(struct subst *s, const struct enode *node)
{
    expr_id e = ex_const(s->x, node->c);
    for (uint32_t i = 0; i < node->n; i++)
        e = ex_add(s->x, e, ex_mulc(s->x, subst(s, node->arg[i]), node->coef[i]));
    return e;
}

static expr_id subst_prod(struct subst *s, const struct enode *node)
{
    expr_id e = subst(s, node->arg[0]);
    for (uint32_t i = 1; i < node->n; i++)
        e = ex_mul(s->x, e, subst(s, node->arg[i]));
    return e;
}

static expr_id subst_node(struct subst *s, expr_id e, const struct enode *node)
{
    struct exprs *x = s->x;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->from[i].i == e.i)
            return s->to[i];
    if (node->kind == EX_SUM)
        return subst_sum(s, node);
    if (node->kind == EX_PROD)
        return subst_prod(s, node);
    expr_id arg[3] = {{0}, {0}, {0}};
    for (uint32_t i = 0; i < node->n && i < 3; i++)
        arg[i] = subst(s, node->arg[i]);
    switch (node->kind) {
    case EX_DIV: return ex_div(x, arg[0], arg[1]);
    case EX_MOD: return ex_mod(x, arg[0], arg[1]);
    case EX_MIN: return ex_min(x, arg[0], arg[1]);
    case EX_MAX: return ex_max(x, arg[0], arg[1]);
    case EX_LT: return ex_lt(x, arg[0], arg[1]);
    case EX_EQ: return ex_eq(x, arg[0], arg[1]);
    case EX_AND: return ex_and(x, arg[0], arg[1]);
    case EX_NOT: return ex_not(x, arg[0]);
    case EX_SELECT: return ex_select(x, arg[0], arg[1], arg[2]);
    default: return e;
    }
}

static expr_id subst(struct subst *s, expr_id e)
{
    const struct enode *node = enode(s->x, e);
    if (!(node->syms & s->syms))
        return e;
    uint32_t slot = e.i % MEMO;
    if (s->memo[slot].e == e.i)
        return (expr_id){s->memo[slot].result};
    expr_id result = subst_node(s, e, node);
    s->memo[slot].e = e.i;
    s->memo[slot].result = result.i;
    return result;
}

expr_id ex_replace(struct exprs *x, expr_id e, const expr_id *from, const expr_id *to, uint32_t n)
{
    struct subst s = {.x = x, .from = from, .to = to, .n = n};
    for (uint32_t i = 0; i < n; i++)
        s.syms |= enode(x, from[i])->syms;
    return subst(&s, e);
}

expr_id ex_subst(struct exprs *x, expr_id e, const sym_id *from, const expr_id *to, uint32_t n)
{
    expr_id few[32], *pairs = 2 * n <= COUNT_OF(few) ? few : NEW_ARRAY(x->arena, expr_id, 2 * (size_t)n);
    expr_id *with = pairs + n;
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        pairs[used] = ex_sym(x, from[i]);
        with[used] = to[i];
        used += ex_as_sym(x, pairs[used]).i != 0;   /* a symbol with one value stands nowhere: it is a constant */
    }
    return ex_replace(x, e, pairs, with, used);
}

expr_id ex_subst_try(struct exprs *x, expr_id e, const sym_id *from, const expr_id *to, uint32_t n)
{
    attempt_begin(x);
    return attempt_end(x, ex_subst(x, e, from, to, n));
}

/* ---- evaluation ------------------------------------------------------------------------------------------ */

static bool eval_sum(const struct exprs *x, const struct enode *node, const int64_t *sym_value, int64_t *out)
{
    int64_t v;
    *out = node->c;
    for (uint32_t i = 0; i < node->n; i++)
        if (!ex_eval(x, node->arg[i], sym_value, &v) || !mul_i64(v, node->coef[i], &v) || !add_i64(*out, v, out))
            return false;
    return true;
}

static bool eval_prod(const struct exprs *x, const struct enode *node, const int64_t *sym_value, int64_t *out)
{
    int64_t v;
    *out = 1;
    for (uint32_t i = 0; i < node->n; i++)
        if (!ex_eval(x, node->arg[i], sym_value, &v) || !mul_i64(*out, v, out))
            return false;
    return true;
}

static bool eval_binary(enum expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    if ((kind == EX_DIV || kind == EX_MOD) && (b == 0 || (a == INT64_MIN && b == -1)))
        return false;
    switch (kind) {
    case EX_DIV: *out = floordiv_i64(a, b); break;
    case EX_MOD: *out = floormod_i64(a, b); break;
    case EX_MIN: *out = a < b ? a : b; break;
    case EX_MAX: *out = a > b ? a : b; break;
    case EX_LT: *out = a < b; break;
    case EX_EQ: *out = a == b; break;
    case EX_AND: *out = a && b; break;
    default: return false;
    }
    return true;
}

bool ex_eval(const struct exprs *x, expr_id e, const int64_t *sym_value, int64_t *out)
{
    const struct enode *node = enode(x, e);
    int64_t a, b;
    switch (node->kind) {
    case EX_CONST: *out = node->c; return true;
    case EX_SYM: *out = sym_value[node->sym.i]; return true;
    case EX_SUM: return eval_sum(x, node, sym_value, out);
    case EX_PROD: return eval_prod(x, node, sym_value, out);
    case EX_NOT:
        if (!ex_eval(x, node->arg[0], sym_value, &a))
            return false;
        *out = !a;
        return true;
    case EX_SELECT: return ex_eval(x, node->arg[0], sym_value, &a) && ex_eval(x, node->arg[a ? 1 : 2], sym_value, out);
    default:
        return node->n == 2 && ex_eval(x, node->arg[0], sym_value, &a) && ex_eval(x, node->arg[1], sym_value, &b) &&
               eval_binary((enum expr_kind)node->kind, a, b, out);
    }
}
