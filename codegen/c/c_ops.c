/* Functions that compute a statement's value from values: one for each operation and type that the file uses, made of
 * the rows of c_ops.def. A function on vectors is a loop over lanes.
 */
#include "codegen/c/c_internal.h"

struct row {
    enum lop op;
    const char *classes, *text, *whole;
};
static const struct row rows[] = {
#define C_OP(op, classes, text, whole) {op, classes, text, whole},
#include "codegen/c/c_ops.def"
};

/* What the code of some CPUs says instead. */
static const struct row fused = {L_FMA, "F", "$E_fma($a, $b, $c)", ""};
static const struct row ordered[] = {{L_MIN, "F", "$E_minimum($a, $b)", ""}, {L_MAX, "F", "$E_maximum($a, $b)", ""}};
static const char extremes[] = /* IEEE's minimum and maximum: -0 is below 0 */
    "INLINE $t $t_minimum($t a, $t b)\n{\n"
    "    return a != a ? a : b != b ? b : a < b ? a : b < a ? b : $t_of($t_bits(a) | $t_bits(b));\n}\n"
    "INLINE $t $t_maximum($t a, $t b)\n{\n"
    "    return a != a ? a : b != b ? b : a > b ? a : b > a ? b : $t_of($t_bits(a) & $t_bits(b));\n}\n";

const char *c_infix(const struct lstmt *s, struct ltype operand)
{
    static const char *const compare[L_COUNT] = {[L_EQ] = "==", [L_NE] = "!=", [L_LT] = "<", [L_LE] = "<="},
                             *const real[L_COUNT] = {[L_ADD] = "+", [L_SUB] = "-", [L_MUL] = "*", [L_DIV] = "/"};
    if (operand.lanes != 1)
        return NULL;
    return compare[s->op] ? compare[s->op] : c_is_float(operand.elem) ? real[s->op] : NULL;
}

static const struct row *row_of(struct c_file *c, enum lop op, enum elem e)
{
    bool real = c_is_float(e);
    if (real && op == L_FMA && c->machine.fma)
        return &fused;
    if (real && (op == L_MIN || op == L_MAX) && c->machine.aarch64)
        return &ordered[op == L_MAX];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].op == op && strchr(rows[i].classes, c_class(e)))
            return &rows[i];
    return NULL;
}

static void need_functions(struct c_file *c, enum lop op, enum elem e)
{
    static const char *const needed[L_COUNT] = {
        [L_ABS] = "abs",   [L_SQRT] = "sqrt",   [L_FLOOR] = "floor", [L_CEIL] = "ceil",
        [L_RINT] = "rint", [L_TRUNC] = "trunc", [L_REM] = "fmod",    [L_FMA] = "fma",
        [L_MIN] = "bits",  [L_MAX] = "bits",    [L_LDEXP] = "ldexp"};
    if (!c_is_float(e) || !needed[op] || (op == L_FMA && !c->machine.fma))
        return;
    if ((op == L_MIN || op == L_MAX) && !c->machine.aarch64)
        return;
    c_need_real(c, needed[op], e);
    if ((op == L_MIN || op == L_MAX) && c_first(c, arena_printf(c->arena, "%s_extremes", elem_name(e)))) {
        const struct c_var t = {'t', elem_name(e)};
        c_text(&c->helpers, extremes, &t, 1);
    }
}

/* How a lane is computed, for c_text: the operands are called so. */
struct lane_words {
    struct c_var var[8];
};
static struct lane_words lane_words(struct c_file *c, enum elem e, const char *a, const char *b, const char *d)
{
    const char *scalar = e == ELEM_BOOL ? "bool" : c_scalar(c, e);
    uint32_t bits = elem_size(e) * 8;
    return (struct lane_words){{{'a', a},
                                {'b', b},
                                {'c', d},
                                {'T', scalar},
                                {'U', bits == 64 ? "u64" : "u32"},
                                {'W', bits == 64   ? "64"
                                      : bits == 32 ? "32"
                                      : bits == 16 ? "16"
                                                   : "8"},
                                {'E', elem_name(e)}}};
}

static const char *names[] = {"a", "b", "c"}, *lanes[] = {"a.v[i]", "b.v[i]", "c.v[i]"},
                  *wholes[] = {"a.v", "b.v", "c.v"};

static void put_head(struct c_file *c, const char *name, struct ltype result, const struct ltype *in, uint32_t n)
{
    strbuf_printf(&c->helpers, "INLINE %s %s(", c_type(c, result), name);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&c->helpers, "%s%s %s", i ? ", " : "", c_type(c, in[i]), names[i]);
    strbuf_printf(&c->helpers, ")\n{\n");
}

/* What a lane of the result is cast to. */
static const char *lane_type(struct c_file *c, struct ltype t)
{
    return t.lanes == 1 ? c_type(c, t) : c_scalar(c, t.elem);
}

static bool is_whole(struct ltype t)
{
    return t.lanes > 1 && (t.lanes & (t.lanes - 1)) == 0;
}

static void put_lanes(struct c_file *c, const struct row *row, struct ltype result, struct ltype operand)
{
    struct strbuf *out = &c->helpers;
    bool scalar = result.lanes == 1;
    const char *const *of = scalar ? names : lanes;
    struct lane_words w = lane_words(c, operand.elem, of[0], of[1], of[2]),
                      v = lane_words(c, operand.elem, wholes[0], wholes[1], wholes[2]);
    if (scalar) {
        strbuf_printf(out, "    return (%s)(", lane_type(c, result));
        c_text(out, row->text, w.var, COUNT_OF(w.var));
        strbuf_printf(out, ");\n}\n");
        return;
    }
    bool whole = *row->whole && is_whole(result) && operand.elem == result.elem && result.elem != ELEM_BOOL;
    strbuf_printf(out, "    %s r;\n", c_type(c, result));
    strbuf_printf(out, whole ? "    WHOLE(r.v = " : "    ");
    if (whole)
        c_text(out, row->whole, v.var, COUNT_OF(v.var));
    strbuf_printf(out, "%sLANES(%u) r.v[i] = (%s)(", whole ? ", " : "", result.lanes, lane_type(c, result));
    c_text(out, row->text, w.var, COUNT_OF(w.var));
    strbuf_printf(out, ")%s;\n    return r;\n}\n", whole ? ")" : "");
}

static const char *make(struct c_file *c, enum lop op, struct ltype result, struct ltype operand, uint32_t n,
                        const char *suffix)
{
    const struct row *row = row_of(c, op, operand.elem), least = {L_MIN, "F", "$a < $b ? $a : $b", ""},
                     most = {L_MAX, "F", "$a > $b ? $a : $b", ""};
    const char *name = arena_printf(c->arena, "%s_%s%s", c_name(c, operand), lop_name(op), suffix);
    const struct ltype in[3] = {operand, operand, operand};
    if (*suffix)
        row = op == L_MIN ? &least : &most;
    if (!row) {
        c_fail(c, "arithmetic on these elements");
        return name;
    }
    need_functions(c, op, operand.elem);
    c_type(c, operand);
    c_type(c, result);
    if ((operand.lanes == 1 && row == &fused) || !c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    /* f32_abs and the like are there */
    if (operand.lanes == 1 && c_is_float(operand.elem) && strstr(row->text, "$E_") == row->text && op != L_MIN &&
        op != L_MAX && op != L_REM)
        return name;
    put_head(c, name, result, in, n);
    put_lanes(c, row, result, operand);
    return name;
}

const char *c_operation(struct c_file *c, enum lop op, struct ltype result, struct ltype operand, uint32_t n,
                        bool no_nan)
{
    bool real = c_is_float(operand.elem) && (op == L_MIN || op == L_MAX) && !c->machine.aarch64;
    return make(c, op, result, operand, n, real && no_nan ? "_number" : "");
}

/* One rounding: in f64 the product is exact, and what the sum may lose there does not matter to f16. */
const char *c_half_fma(struct c_file *c, struct ltype t)
{
    const struct ltype half = {ELEM_F16, 1}, wide = {ELEM_F64, 1}, in[3] = {t, t, t};
    const char *name = arena_printf(c->arena, "%s_fma", c_name(c, t));
    const char *up = c_conversion(c, half, wide, false, NULL), *down = c_conversion(c, wide, half, false, NULL);
    if (t.lanes > 1)
        c_half_fma(c, half);
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    c_type(c, t);
    put_head(c, name, t, in, 3);
    if (t.lanes == 1)
        strbuf_printf(&c->helpers, "    f64 p = %s(a) * %s(b), s = p + %s(c);\n    return %s(s);\n}\n", up, up, up,
                      down);
    else
        strbuf_printf(&c->helpers,
                      "    %s r;\n    LANES(%u) r.v[i] = f16_fma(a.v[i], b.v[i], c.v[i]);\n    return r;\n}\n",
                      c_type(c, t), t.lanes);
    return name;
}

/* ---- shapes of values -------------------------------------------------------------------------------------------- */

const char *c_select(struct c_file *c, struct ltype cond, struct ltype t)
{
    const struct ltype in[3] = {cond, t, t};
    const char *name = arena_printf(c->arena, cond.lanes == 1 ? "%s_choose" : "%s_select", c_type(c, t));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    c_type(c, cond);
    put_head(c, name, t, in, 3);
    if (cond.lanes == 1)
        strbuf_printf(&c->helpers, "    return a ? b : c;\n}\n");
    else
        strbuf_printf(&c->helpers, "    %s r;\n    LANES(%u) r.v[i] = a.v[i] ? b.v[i] : c.v[i];\n    return r;\n}\n",
                      c_type(c, t), t.lanes);
    return name;
}

const char *c_bitcast(struct c_file *c, struct ltype from, struct ltype to)
{
    const char *name = arena_printf(c->arena, "%s_as_%s", c_type(c, from), c_type(c, to));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    put_head(c, name, to, &from, 1);
    strbuf_printf(&c->helpers, "    %s r;\n    memcpy(&r, &a, sizeof r);\n    return r;\n}\n", c_type(c, to));
    return name;
}

/* A scalar of the lanes' type for all: bools are bool alone and bytes in vectors. */
const char *c_splat(struct c_file *c, struct ltype t)
{
    const struct ltype one = {t.elem, 1};
    const char *name = arena_printf(c->arena, "%s_splat", c_type(c, t));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    put_head(c, name, t, &one, 1);
    strbuf_printf(&c->helpers, "    %s r;\n    LANES(%u) r.v[i] = a;\n    return r;\n}\n", c_type(c, t), t.lanes);
    return name;
}

const char *c_iota(struct c_file *c, struct ltype t)
{
    const char *name = arena_printf(c->arena, "%s_iota", c_type(c, t));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    strbuf_printf(&c->helpers, "INLINE %s %s(void)\n{\n    %s r;\n    LANES(%u) r.v[i] = (%s)i;\n    return r;\n}\n",
                  c_type(c, t), name, c_type(c, t), t.lanes, c_scalar(c, t.elem));
    return name;
}

const char *c_insert(struct c_file *c, struct ltype t)
{
    const char *name = arena_printf(c->arena, "%s_insert", c_type(c, t));
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    strbuf_printf(&c->helpers, "INLINE %s %s(%s a, %s b, int lane)\n{\n    a.v[lane] = b;\n    return a;\n}\n",
                  c_type(c, t), name, c_type(c, t), c_type(c, (struct ltype){t.elem, 1}));
    return name;
}

/* Named by the number of its list among those of the file, which its text shows. */
const char *c_shuffle(struct c_file *c, struct ltype from, struct ltype to, const uint8_t *list)
{
    struct ltype in[2] = {from, from};
    uint64_t key = hash_bytes(list, to.lanes) ^ (uint64_t)from.lanes << 32;
    uint32_t k = 0;
    while (k < c->shuffles.n && c->shuffles.data[k] != key)
        k++;
    if (k == c->shuffles.n)
        VEC_PUSH(c->arena, &c->shuffles, key);
    const char *name = arena_printf(c->arena, "%s_shuffle_%u", c_type(c, to), k);
    struct strbuf *out = &c->helpers, lanes_of;
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    strbuf_init(&lanes_of, c->arena);
    for (uint32_t i = 0; i < to.lanes; i++)
        strbuf_printf(&lanes_of, "%s%u", i ? ", " : "", list[i]);
    put_head(c, name, to, in, 2);
    strbuf_printf(out, "    (void)a, (void)b;\n");
    if (to.lanes == 1) {
        strbuf_printf(out, "    return %s.v[%u];\n}\n", list[0] < from.lanes ? "a" : "b", list[0] % from.lanes);
        return name;
    }
    strbuf_printf(out, "    %s r;\n", c_type(c, to));
    if (is_whole(from) && is_whole(to))
        strbuf_printf(out, "#ifdef SHUFFLE\n    r.v = SHUFFLE(a.v, b.v, %s);\n#else\n", lanes_of.data);
    for (uint32_t i = 0; i < to.lanes; i++)
        strbuf_printf(out, from.lanes == 1 ? "    r.v[%u] = %s;\n" : "    r.v[%u] = %s.v[%u];\n", i,
                      list[i] < from.lanes ? "a" : "b", list[i] % from.lanes);
    strbuf_printf(out, "%s    return r;\n}\n", is_whole(from) && is_whole(to) ? "#endif\n" : "");
    return name;
}

/* Lane i with lane i + n/2, then the halves. */
const char *c_hreduce(struct c_file *c, enum lop op, struct ltype t)
{
    const struct ltype one = {t.elem, 1};
    const char *name = arena_printf(c->arena, "%s_hreduce_%s", c_name(c, t), lop_name(op)), *combine;
    combine = c_operation(c, op, one, one, 2, false);
    if (!c_first(c, arena_printf(c->arena, "f %s", name)))
        return name;
    put_head(c, name, one, &t, 1);
    for (uint32_t half = t.lanes / 2; half; half /= 2)
        strbuf_printf(&c->helpers, "    LANES(%u) a.v[i] = %s(a.v[i], a.v[i + %u]);\n", half, combine, half);
    strbuf_printf(&c->helpers, "    return a.v[0];\n}\n");
    return name;
}
