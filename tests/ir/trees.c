/* Random expressions as trees (trees.h). */
#include "tests/ir/trees.h"

#include <string.h>

uint64_t tree_bits(struct trees *t)
{
    t->state += 0x9E3779B97F4A7C15u;   /* splitmix64 */
    uint64_t z = t->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t tree_int(struct trees *t, int64_t lo, int64_t hi)
{
    uint64_t n = (uint64_t)hi - (uint64_t)lo + 1;
    return (int64_t)((uint64_t)lo + (n ? tree_bits(t) % n : tree_bits(t)));
}

#define TREE_PICK(t, list) ((list)[tree_int((t), 0, (int64_t)COUNT_OF(list) - 1)])

static int64_t plausible_constant(struct trees *t)
{
    static const int64_t few[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 32, 64, -1, -2, -3, -4, -20};
    return TREE_PICK(t, few);
}

static int64_t hostile_constant(struct trees *t)
{
    static const int64_t huge[] = {(int64_t)1 << 31,    ((int64_t)1 << 31) - 1,
                                   -((int64_t)1 << 31), (int64_t)1 << 32,
                                   (int64_t)1 << 40,    1000000007,
                                   999999999999,        (int64_t)1 << 61,
                                   (int64_t)1 << 62,    -((int64_t)1 << 62),
                                   (int64_t)3 << 61,    INT64_MAX,
                                   INT64_MAX - 1,       INT64_MIN,
                                   INT64_MIN + 1};
    return TREE_PICK(t, huge);
}

static int64_t constant(struct trees *t)
{
    return t->profile == PLAUSIBLE || tree_int(t, 0, 99) < 70 ? plausible_constant(t) : hostile_constant(t);
}

/* ---- symbols --------------------------------------------------------------------------------------------------- */

static wide floordiv(wide a, wide b)
{
    wide q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t multiple_above(int64_t v, int64_t d)
{
    wide r = ((wide)v + d - 1) / d * d;
    return v <= 0 ? v / d * d : r > INT64_MAX ? INT64_MAX : (int64_t)r;
}

static void draw_symbol(struct trees *t, struct tree_sym *s)
{
    static const int64_t least[] = {0, 0, 1, 1, 1, 2, -20}, above[] = {0, 1, 15, 20, 63, 100};
    static const int64_t divisors[] = {1, 1, 1, 1, 2, 3, 8, 16};
    bool hostile = t->profile != PLAUSIBLE;
    *s = (struct tree_sym){.lo = TREE_PICK(t, least), .hi = INT64_MAX, .divisor = TREE_PICK(t, divisors), .below = -1};
    if (hostile && tree_int(t, 0, 4) == 0)
        s->lo = tree_int(t, 0, 1) ? INT64_MIN : hostile_constant(t);
    if (hostile && tree_int(t, 0, 9) == 0)
        s->divisor = (int64_t)1 << tree_int(t, 4, 62);
    if (tree_int(t, 0, 1) && s->lo < INT64_MAX - 100)
        s->hi = s->lo + TREE_PICK(t, above);
    if (hostile && tree_int(t, 0, 4) == 0)
        s->hi = hostile_constant(t);
    s->lo = multiple_above(s->lo, s->divisor);
    if (s->hi != INT64_MAX)
        s->hi = (int64_t)(floordiv(s->hi, s->divisor) * s->divisor);
    if (s->hi < s->lo || s->lo % s->divisor)
        *s = (struct tree_sym){.lo = 0, .hi = INT64_MAX, .divisor = 1, .below = -1};
}

void trees_start(struct trees *t, uint64_t seed, enum profile profile)
{
    t->state = seed;
    t->profile = profile;
    for (int i = 0; i < TREE_SYMS; i++)
        draw_symbol(t, &t->sym[i]);
    if (t->sym[0].lo >= 1 && tree_int(t, 0, 1))   /* an index of s0 places */
        t->sym[1] = (struct tree_sym){.lo = 0, .hi = INT64_MAX, .divisor = 1, .below = 0};
    trees_clear(t);
}

void trees_clear(struct trees *t)
{
    t->n = 0;
}

bool tree_allows(const struct trees *t, const int64_t *value)
{
    for (int i = 0; i < TREE_SYMS; i++) {
        const struct tree_sym *s = &t->sym[i];
        bool infinite = (value[i] == INT64_MAX && s->hi == INT64_MAX) || (value[i] == INT64_MIN && s->lo == INT64_MIN);
        if (infinite || value[i] < s->lo || value[i] > s->hi || value[i] % s->divisor ||
            (s->below >= 0 && value[i] >= value[s->below]))
            return false;
    }
    return true;
}

static int64_t draw_value(struct trees *t, const struct tree_sym *s)
{
    int64_t small = tree_int(t, 0, 40), v;
    switch (t->profile == PLAUSIBLE ? 0 : tree_int(t, 0, 5)) {
    case 1: v = s->lo; break;
    case 2: v = s->hi; break;
    case 3: v = s->hi < INT64_MIN + 40 ? s->hi : s->hi - small; break;
    case 4: v = (int64_t)((uint64_t)1 << tree_int(t, 0, 62)) + tree_int(t, -1, 1); break;
    case 5: v = tree_int(t, s->lo, s->hi); break;
    default: v = s->lo > INT64_MAX - 41 || s->lo < -1000 ? small - 20 : s->lo + small;
    }
    return v / s->divisor * s->divisor;
}

bool tree_values(struct trees *t, int64_t *value)
{
    for (int tries = 0; tries < 40; tries++) {
        for (int i = 0; i < TREE_SYMS; i++) {
            const struct tree_sym *s = &t->sym[i];
            value[i] = draw_value(t, s);
            if (value[i] < s->lo || value[i] > s->hi)
                value[i] = multiple_above(s->lo, s->divisor);
            if (s->below >= 0 && value[i] >= value[s->below])
                value[i] = tree_int(t, 0, value[s->below] - 1);
        }
        if (tree_allows(t, value))
            return true;
    }
    return false;
}

/* ---- trees ------------------------------------------------------------------------------------------------------ */

static struct tree *add(struct trees *t, enum tree_op op, int64_t c)
{
    struct tree *node = &t->node[t->n < TREES - 1 ? t->n++ : t->n];
    *node = (struct tree){.op = op, .c = c};
    return node;
}

static struct tree *add2(struct trees *t, enum tree_op op, struct tree *a, struct tree *b)
{
    struct tree *node = add(t, op, 0);
    node->arg[0] = a;
    node->arg[1] = b;
    return node;
}

static struct tree *leaf(struct trees *t)
{
    return tree_int(t, 0, 3) ? add(t, T_SYM, tree_int(t, 0, TREE_SYMS - 1)) : add(t, T_CONST, constant(t));
}

/* Of what a division divides by: in plausible trees never zero. */
static struct tree *divisor(struct trees *t, int depth)
{
    static const int64_t common[] = {2, 3, 4, 8, 16, 6, 12, 7, 64, -4, -3, 1, -1};
    if (t->profile != PLAUSIBLE && tree_int(t, 0, 2) == 0)
        return tree_int(t, 0, 1) ? add(t, T_CONST, constant(t)) : tree_draw(t, depth - 1);
    for (int tries = 0; tries < 8 && tree_int(t, 0, 2); tries++) {
        int64_t s = tree_int(t, 0, TREE_SYMS - 1);
        if (t->sym[s].lo < 1)
            continue;
        struct tree *sym = add(t, T_SYM, s);
        int64_t kind = tree_int(t, 0, 2);
        return kind == 0   ? sym
               : kind == 1 ? add2(t, T_MUL, sym, tree_int(t, 0, 1) ? sym : add(t, T_CONST, 4))
                           : add2(t, T_ADD, sym, add(t, T_CONST, tree_int(t, 1, 3)));
    }
    return add(t, T_CONST, TREE_PICK(t, common));
}

static struct tree *condition(struct trees *t, int depth)
{
    static const enum tree_op ops[] = {T_LT, T_LE, T_EQ, T_AND, T_OR, T_NOT};
    enum tree_op op = depth <= 0 ? T_LT : TREE_PICK(t, ops);
    bool logic = op == T_AND || op == T_OR || op == T_NOT;
    struct tree *a = logic ? condition(t, depth - 1) : tree_draw(t, depth - 1);
    return add2(t, op, a, op == T_NOT ? NULL : logic ? condition(t, depth - 1) : tree_draw(t, depth - 1));
}

static struct tree *draw_node(struct trees *t, int depth)
{
    static const enum tree_op ops[] = {T_ADD, T_ADD, T_ADD,    T_ADD, T_SUB, T_SUB,  T_MUL, T_MUL,
                                       T_MUL, T_DIV, T_DIV,    T_DIV, T_MOD, T_MOD,  T_MOD, T_CEILDIV,
                                       T_MIN, T_MAX, T_SELECT, T_LT,  T_DOT, T_ADDC, T_MULC};
    enum tree_op op = TREE_PICK(t, ops);
    if (op == T_LT)
        return condition(t, depth - 1);
    if (op == T_DIV || op == T_MOD || op == T_CEILDIV) {
        struct tree *a = tree_draw(t, depth - 1);
        return add2(t, op, a, divisor(t, depth));
    }
    struct tree *a = op == T_SELECT ? condition(t, depth - 2) : tree_draw(t, depth - 1);
    if (op == T_ADDC || op == T_MULC) {
        struct tree *node = add2(t, op, a, NULL);
        node->c = constant(t);
        return node;
    }
    struct tree *node = add2(t, op, a, tree_draw(t, depth - 1 - (op == T_MUL || op == T_DOT)));
    if (op == T_SELECT || op == T_DOT)
        node->arg[2] = tree_draw(t, depth - 1 - (op == T_DOT));
    return node;
}

/* Few operators, over and over: x / c / c ..., x + x, remainders of remainders, choices within choices. */
static struct tree *draw_chain(struct trees *t)
{
    static const enum tree_op ops[] = {T_ADD,     T_ADD, T_MUL, T_DIV,    T_DIV, T_MOD,
                                       T_CEILDIV, T_MIN, T_MAX, T_SELECT, T_SUB};
    enum tree_op op[3];
    struct tree *x = leaf(t), *by[3];
    int64_t steps = tree_int(t, 1, 3), n = tree_int(t, 2, 60);
    bool fresh = tree_int(t, 0, 1);
    for (int64_t i = 0; i < steps; i++)
        op[i] = TREE_PICK(t, ops);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % steps;
        bool divides = op[k] == T_DIV || op[k] == T_MOD || op[k] == T_CEILDIV;
        if (i < steps || fresh)
            by[k] = divides ? divisor(t, 1) : tree_int(t, 0, 2) ? leaf(t) : NULL;
        if (op[k] == T_SELECT) {
            struct tree *c = add2(t, tree_int(t, 0, 1) ? T_EQ : T_LT, by[k] ? by[k] : x, leaf(t)), *last = x;
            x = add2(t, T_SELECT, c, tree_int(t, 0, 1) ? leaf(t) : last);
            x->arg[2] = last;
        } else {
            x = add2(t, op[k], x, by[k] ? by[k] : x);
        }
    }
    return x;
}

struct tree *tree_draw(struct trees *t, int depth)
{
    if (depth <= 0 || t->n > TREES - 200 || tree_int(t, 0, 9) == 0)
        return leaf(t);
    if (t->profile == CHAINS && t->n == 0)
        return draw_chain(t);
    return draw_node(t, depth);
}

/* ---- ir/expr ------------------------------------------------------------------------------------------------------
 */

struct context *tree_context(const struct trees *t, sym_id *syms)
{
    static const char *const names[TREE_SYMS] = {"s0", "s1", "s2", "s3", "s4"};
    struct context *ctx = context_new();
    if (!ctx)
        return NULL;
    for (int i = 0; i < TREE_SYMS; i++) {
        syms[i] = sym_new(ctx->exprs, SYM_SHAPE, names[i], t->sym[i].lo, t->sym[i].hi);
        sym_get(ctx->exprs, syms[i])->divisor = t->sym[i].divisor;
        if (t->sym[i].below >= 0)
            sym_get(ctx->exprs, syms[i])->bound = ex_addc(ctx->exprs, ex_sym(ctx->exprs, syms[t->sym[i].below]), -1);
    }
    return ctx;
}

static expr_id construct(struct exprs *x, const sym_id *syms, const struct tree *t)
{
    static expr_id (*const binary[])(struct exprs *, expr_id, expr_id) = {
        [T_ADD] = ex_add,         [T_SUB] = ex_sub, [T_MUL] = ex_mul, [T_DIV] = ex_div, [T_MOD] = ex_mod,
        [T_CEILDIV] = ex_ceildiv, [T_MIN] = ex_min, [T_MAX] = ex_max, [T_LT] = ex_lt,   [T_LE] = ex_le,
        [T_EQ] = ex_eq,           [T_AND] = ex_and, [T_OR] = ex_or,
    };
    expr_id a[3] = {{0}, {0}, {0}};
    for (int i = 0; i < 3 && t->arg[i]; i++)
        a[i] = t->arg[i]->e;
    switch (t->op) {
    case T_CONST: return ex_const(x, t->c);
    case T_SYM: return ex_sym(x, syms[t->c]);
    case T_ADDC: return ex_addc(x, a[0], t->c);
    case T_MULC: return ex_mulc(x, a[0], t->c);
    case T_NOT: return ex_not(x, a[0]);
    case T_SELECT: return ex_select(x, a[0], a[1], a[2]);
    case T_DOT: return ex_dot(x, a[0], &a[1], &a[2], 1);
    default: return binary[t->op](x, a[0], a[1]);
    }
}

static void build(struct trees *all, struct exprs *x, const sym_id *syms, struct tree *t)
{
    if (t->built == all->round)
        return;
    for (int i = 0; i < 3 && t->arg[i]; i++)
        build(all, x, syms, t->arg[i]);
    t->e = construct(x, syms, t);
    t->built = all->round;
}

expr_id tree_build(struct trees *all, struct exprs *x, const sym_id *syms, struct tree *t)
{
    all->round++;
    build(all, x, syms, t);
    return t->e;
}

/* ---- exact values -------------------------------------------------------------------------------------------------
 */

static bool compute(const struct tree *t, wide a, wide b, wide c, const int64_t *value, wide *out)
{
    wide product;
    switch (t->op) {
    case T_CONST: *out = t->c; return true;
    case T_SYM: *out = value[t->c]; return true;
    case T_ADDC: *out = a + t->c; return true;
    case T_MULC: return !__builtin_mul_overflow(a, (wide)t->c, out);
    case T_ADD: *out = a + b; return true;
    case T_SUB: *out = a - b; return true;
    case T_MUL: return !__builtin_mul_overflow(a, b, out);
    case T_DOT: return !__builtin_mul_overflow(b, c, &product) && !__builtin_add_overflow(a, product, out);
    case T_CEILDIV: a += b - 1; break;
    case T_MIN: *out = a < b ? a : b; return true;
    case T_MAX: *out = a > b ? a : b; return true;
    case T_LT: *out = a < b; return true;
    case T_LE: *out = a <= b; return true;
    case T_EQ: *out = a == b; return true;
    case T_AND: *out = a && b; return true;
    case T_OR: *out = a || b; return true;
    case T_NOT: *out = !a; return true;
    default: break;
    }
    if (b == 0)
        return false;
    *out = t->op == T_MOD ? a - floordiv(a, b) * b : floordiv(a, b);
    return true;
}

/* Of a choice only the arm that is taken has to be defined. */
static bool eval(struct trees *all, struct tree *t, const int64_t *value)
{
    if (t->seen == all->round)
        return t->defined;
    t->seen = all->round;
    t->defined = t->fits = true;
    for (int i = 0; i < (t->op == T_SELECT ? 1 : 3) && t->arg[i]; i++)
        t->defined &= eval(all, t->arg[i], value);
    if (!t->defined)
        return false;
    for (int i = 0; i < (t->op == T_SELECT ? 1 : 3) && t->arg[i]; i++)
        t->fits &= t->arg[i]->fits;
    if (t->op == T_SELECT) {
        struct tree *arm = t->arg[t->arg[0]->value ? 1 : 2];
        t->defined = eval(all, arm, value);
        t->value = arm->value;
        t->fits &= arm->fits;
        return t->defined;
    }
    const wide most = (wide)1 << 120;   /* so that no sum or negation of two wraps */
    t->defined = compute(t, t->arg[0] ? t->arg[0]->value : 0, t->arg[1] ? t->arg[1]->value : 0,
                         t->arg[2] ? t->arg[2]->value : 0, value, &t->value) &&
                 t->value < most && t->value > -most;
    t->fits &= t->value >= INT64_MIN && t->value <= INT64_MAX;
    return t->defined;
}

bool tree_eval(struct trees *all, struct tree *t, const int64_t *value, wide *out, bool *fits)
{
    all->round++;
    if (!eval(all, t, value))
        return false;
    *out = t->value;
    *fits = t->fits;
    return true;
}

void tree_print(const struct tree *t, struct strbuf *out, size_t most)
{
    static const char *const names[] = {
        [T_ADDC] = "addc", [T_MULC] = "mulc",     [T_NOT] = "not", [T_ADD] = "add",         [T_SUB] = "sub",
        [T_MUL] = "mul",   [T_DIV] = "div",       [T_MOD] = "mod", [T_CEILDIV] = "ceildiv", [T_MIN] = "min",
        [T_MAX] = "max",   [T_LT] = "lt",         [T_LE] = "le",   [T_EQ] = "eq",           [T_AND] = "and",
        [T_OR] = "or",     [T_SELECT] = "select", [T_DOT] = "dot"};
    if (out->n > most) {
        strbuf_printf(out, "...");
    } else if (t->op == T_CONST) {
        strbuf_printf(out, "%lld", (long long)t->c);
    } else if (t->op == T_SYM) {
        strbuf_printf(out, "s%lld", (long long)t->c);
    } else {
        strbuf_printf(out, "%s(", names[t->op]);
        for (int i = 0; i < 3 && t->arg[i]; i++) {
            strbuf_printf(out, "%s", i ? ", " : "");
            tree_print(t->arg[i], out, most);
        }
        if (t->op == T_ADDC || t->op == T_MULC)
            strbuf_printf(out, ", %lld", (long long)t->c);
        strbuf_printf(out, ")");
    }
}
