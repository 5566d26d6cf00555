/* Checks a loop-IR function against these rules; every violation is one diagnostic of class FAIL_INTERNAL that names
 * the function, the rule and the statement. What the rules cannot see (bounds, undefined memory, division by zero)
 * the interpreter of the tests (tests/interp) checks as it runs.
 *
 *   1  A statement has as many operands and results as its row in ir/loop/loop.def says.
 *   2  Every operand is defined above it in its block or an enclosing one; a value is defined once.
 *   3  Blocks form a tree of bounded depth: each belongs to one statement, and only for, parallel, if have any.
 *   4  Register types: an element type of at most 8 bytes, 1..128 lanes; arguments are buffers or indices, value k + 1
 *      being argument k.
 *   5  Elementwise operations: operands and result have one type, of an element class that the row allows.
 *   6  Constants fit their type: integers in range, bool 0 or 1, f32 exactly a float.
 *   7  Comparisons give bool of the operands' lanes; select takes bool, or bool of the result's lanes, and may choose
 *      between buffers.
 *   8  convert keeps lanes; bitcast keeps total width, not of bool or types narrower than a byte.
 *   9  splat, extract, insert, shuffle, hreduce: element types agree, lane numbers in range; hreduce takes a power of
 *      two of lanes and one of add mul min max and or.
 *  10  Memory: operand 0 is a buffer of the value's elements; the index is an index (gather, scatter: i64 in the
 *      value's lanes), the stride an index, the mask bool in the value's lanes; alignment is 0 or a power of two.
 *  11  Nothing is stored into an argument that is not `out`; invariant loads read an argument that is not `out`.
 *  12  for: index bounds, step >= 1; block parameters are an index and one value per carried operand, typed alike;
 *      results match. while: the first carried value is bool. unroll: the bounds are constants, at most 4096 trips.
 *  13  parallel: the last statement of a kernel's body and nowhere else; kernels have one; one index parameter.
 *      Kernels store inside it only.
 *  14  if: a bool; with results, both blocks yield values of their types.
 *  15  yield: last in the block of a for with carried values or an if with results, whose types it matches; and those
 *      blocks end with it.
 *  16  check: bool of any lanes, a negative code, a text.
 *  17  call: a name, operands buffers or indices, at most one result, an index. launch: in programs and entries, a
 *      name, the count an index.
 *  18  local: at least one element; in the body or the parallel block, never inside other blocks; at most 64 KiB in
 *      all outside kernels. address: not in kernels. global: a name, in entries only.
 *  19  dot: i32 lanes of four u8, four i8 and an i32 each, an i32 of 16 of them, or f32 lanes of two bf16 twice and an
 * f32.
 *  21  apply: the name of one of the function's parts, whose arguments' and result's types the operands and the result
 *      have; in a part: of an earlier one. If it has no parts: of another function, which is not looked at. A part's
 *      arguments are registers; it has no control and no memory, and yields one value.
 *  20  matmul: in the parallel loop; sums of i32 of bytes, or of f32 of bf16, in a local that has their room; a shape
 * of constants (lmatmul_of).
 */
#include "ir/loop/internal.h"

enum { ERRORS_MAX = 10, UNROLL_MAX = 4096 };

struct verifier {
    const struct lfunc *f;
    struct arena arena;              /* side tables */
    uint32_t *number;
    bool *visible, *defined, *seen_block;
    const struct lstmt **def;        /* by value: the statement whose result it is */
    uint32_t *root;                  /* by value: argument + 1 that a buffer was cut from, 0 unknown */
    uint32_t depth, parallels, errors;
    lblock parallel;                 /* the parallel loop's block; 0 outside */
};

typedef void rule_fn(struct verifier *, const struct lstmt *);

static void broken(struct verifier *v, const struct lstmt *s, int rule, const char *what)
{
    if (v->errors++ >= ERRORS_MAX)
        return;
    struct strbuf where = strbuf_of(&v->arena);
    if (s && s->n_out && s->out[0].i < v->f->types.n)
        strbuf_printf(&where, "%%%u = ", v->number[s->out[0].i]);
    strbuf_printf(&where, "%s", s ? lop_name(s->op) : "function");
    error_internal(v->f->ctx, (src_id){0}, "loop IR @%s, %s: rule %d: %s", v->f->name, where.data, rule, what);
}

static struct ltype type_of(const struct verifier *v, const struct lstmt *s, uint32_t operand)
{
    return operand < s->n_in ? lf_type(v->f, s->in[operand]) : (struct ltype){0};
}

static struct ltype result_of(const struct verifier *v, const struct lstmt *s)
{
    return s->n_out ? lf_type(v->f, s->out[0]) : (struct ltype){0};
}

static bool is_index(const struct verifier *v, const struct lstmt *s, uint32_t operand)
{
    return ltype_is_index(type_of(v, s, operand));
}

static bool in_classes(struct ltype t, uint32_t classes)
{
    return t.lanes > 0 && (loop_elem_classes(t.elem) & classes);
}

static void expect(struct verifier *v, const struct lstmt *s, bool holds, int rule, const char *what)
{
    if (!holds)
        broken(v, s, rule, what);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static bool type_legal(struct ltype t)
{
    return t.lanes <= LOOP_LANES_MAX && (loop_elem_classes(t.elem) & E_X);
}

static void define(struct verifier *v, const struct lstmt *s, lreg x)
{
    if (x.i == 0 || x.i >= v->f->types.n || v->defined[x.i]) {
        broken(v, s, 2, "a value is defined twice or does not exist");
        return;
    }
    expect(v, s, type_legal(v->f->types.data[x.i]), 4, "not a register type");
    v->defined[x.i] = v->visible[x.i] = true;
    v->def[x.i] = s;
}

static bool operands_visible(struct verifier *v, const struct lstmt *s)
{
    for (uint32_t i = 0; i < s->n_in; i++) {
        if (s->in[i].i == 0 || s->in[i].i >= v->f->types.n || !v->visible[s->in[i].i]) {
            broken(v, s, 2, "an operand is not defined here");
            return false;
        }
    }
    return true;
}

/* ---- typing rules ------------------------------------------------------------------------------------------------ */

static bool int_fits(enum elem e, int64_t x)
{
    uint32_t bits = elem_bits(e);
    if (bits >= 64)
        return true;
    if (elem_class(e) == 'I')
        return x >= -(INT64_C(1) << (bits - 1)) && x < INT64_C(1) << (bits - 1);
    return x >= 0 && x < INT64_C(1) << bits;
}

static void rule_const(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s);
    bool fits = in_classes(t, E_X);
    if (s->flags & L_FLAG_DATA)
        fits = (t.elem == ELEM_F32 || t.elem == ELEM_I32) && t.lanes == 1 && s->imm >= 0 && s->imm <= UINT16_MAX &&
               v->f->role == LROLE_KERNEL;
    else if (fits && elem_class(t.elem) == 'F')
        fits = (t.elem != ELEM_F32 || (double)(float)s->fimm == s->fimm || s->fimm != s->fimm) &&
               (!(s->flags & L_FLAG_RESIDUE) ||
                ((t.elem == ELEM_F32 || t.elem == ELEM_F64) && s->imm >= 0 && s->imm <= INT32_MAX));
    else if (fits)
        fits = t.elem == ELEM_BOOL ? s->imm == 0 || s->imm == 1 : int_fits(t.elem, s->imm);
    expect(v, s, fits, 6, "the constant does not fit its type");
}

static void rule_same(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s);
    bool same = in_classes(t, lop_table[s->op].elems);
    for (uint32_t i = 0; i < s->n_in; i++)
        same = same && ltype_equal(type_of(v, s, i), t);
    expect(v, s, same, 5, "operand or element types do not fit");
}

static void rule_dot(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s), a = type_of(v, s, 0), b = type_of(v, s, 1);
    bool bytes = t.elem == ELEM_I32 && (a.elem == ELEM_U8 || a.elem == ELEM_I8) && b.elem == ELEM_I8;
    bool halves = t.elem == ELEM_F32 && a.elem == ELEM_BF16 && b.elem == ELEM_BF16;
    uint32_t lanes = t.lanes * (bytes ? 4 : 2);
    bool whole = s->op == L_DOT && bytes && t.lanes == 1 && a.lanes == 16;
    expect(v, s,
           (bytes || halves) && t.lanes > 0 && (a.lanes == lanes || whole) && b.lanes == a.lanes &&
               ltype_equal(type_of(v, s, 2), t),
           19, "types do not fit");
}

static void rule_matdot(struct verifier *v, const struct lstmt *s)
{
    rule_dot(v, s);
    expect(v, s, result_of(v, s).lanes % 4 == 0, 19, "types do not fit");
}

/* The rule that a condition holds on the types of the result and the first operands; {0} is none. */
#define TYPING(name, ok, number, text)                                                \
    static void rule_##name(struct verifier *v, const struct lstmt *s)                \
    {                                                                                 \
        struct ltype t = result_of(v, s), a = type_of(v, s, 0), b = type_of(v, s, 1); \
        (void)t, (void)a, (void)b;                                                    \
        expect(v, s, ok, number, text);                                               \
    }

TYPING(compare, in_classes(a, lop_table[s->op].elems) && ltype_equal(a, b) && t.elem == ELEM_BOOL && t.lanes == a.lanes,
       7, "operand or result types do not fit")

static void rule_select(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s), c = type_of(v, s, 0);
    bool cond = c.elem == ELEM_BOOL && (c.lanes == 1 || c.lanes == t.lanes) && c.lanes != 0;
    expect(v, s, cond && ltype_equal(type_of(v, s, 1), t) && ltype_equal(type_of(v, s, 2), t), 7,
           "operand types do not fit");
    if (t.lanes == 0 && v->root[s->in[1].i] == v->root[s->in[2].i])
        v->root[s->out[0].i] = v->root[s->in[1].i];
}

TYPING(convert,
       in_classes(t, E_X) && in_classes(a, E_X) && a.lanes == t.lanes &&
           round_mode_by_name(s->name, &(enum round_mode){0}),
       8, "types do not fit")

static bool whole_bytes(struct ltype t)
{
    return in_classes(t, E_X) && t.elem != ELEM_BOOL && elem_bits(t.elem) >= 8;
}

TYPING(bitcast, whole_bytes(t) && whole_bytes(a) && a.lanes * elem_size(a.elem) == t.lanes * elem_size(t.elem), 8,
       "types do not fit")
TYPING(splat, in_classes(t, E_X) && a.elem == t.elem && a.lanes == 1, 9, "types do not fit")

TYPING(extract, in_classes(t, E_X) && a.elem == t.elem && t.lanes == 1 && s->imm >= 0 && s->imm < a.lanes, 9,
       "types or lane do not fit")
TYPING(insert,
       in_classes(t, E_X) && ltype_equal(a, t) && b.elem == t.elem && b.lanes == 1 && s->imm >= 0 && s->imm < t.lanes,
       9, "types or lane do not fit")

/* What the function of values yields; {0}: nothing, or several. */
static lreg yielded(const struct lfunc *f)
{
    const struct lblk *body = &f->blocks.data[1];
    const struct lstmt *last = body->stmts.n ? &body->stmts.data[body->stmts.n - 1] : NULL;
    return last && last->op == L_YIELD && last->n_in == 1 ? last->in[0] : (lreg){0};
}

static void rule_apply(struct verifier *v, const struct lstmt *s)
{
    const struct lfunc *part = s->name ? lf_part(v->f, s->name) : NULL, *of = v->f->of ? v->f->of : v->f;
    if (s->name && of->parts.n == 0) /* the linker finds it */
        return;
    bool fits = part && part->args.n == s->n_in && ltype_equal(result_of(v, s), lf_type(part, yielded(part)));
    for (uint32_t i = 0; fits && i < s->n_in; i++)
        fits = ltype_equal(type_of(v, s, i), part->args.data[i].type);
    expect(v, s, fits, 21, "name or types do not fit");
}

static void rule_shuffle(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s), a = type_of(v, s, 0);
    bool fits = in_classes(t, E_X) && a.elem == t.elem && a.lanes > 0 && ltype_equal(a, type_of(v, s, 1)) &&
                s->n_aux == t.lanes;
    for (uint32_t i = 0; fits && i < s->n_aux; i++)
        fits = s->aux[i] < 2 * a.lanes;
    expect(v, s, fits, 9, "types or lanes do not fit");
}

static void rule_hreduce(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = result_of(v, s), a = type_of(v, s, 0);
    bool known = s->imm == L_ADD || s->imm == L_MUL || s->imm == L_MIN || s->imm == L_MAX || s->imm == L_AND ||
                 s->imm == L_OR;
    expect(v, s,
           known && in_classes(t, lop_table[s->imm].elems) && a.elem == t.elem && t.lanes == 1 && a.lanes > 0 &&
               (a.lanes & (a.lanes - 1)) == 0,
           9, "types or operation do not fit");
}

static void check_access(struct verifier *v, const struct lstmt *s, struct ltype value)
{
    struct lmem m = lstmt_mem(s);
    struct ltype buffer = type_of(v, s, 0), index = type_of(v, s, 1);
    bool indirect = s->op == L_GATHER || s->op == L_SCATTER;
    expect(v, s, buffer.lanes == 0 && buffer.elem == value.elem && value.lanes > 0, 10,
           "not a buffer of these elements");
    bool bytes = s->op == L_GATHER && index.elem == ELEM_U8 && value.lanes > 1 && m.mask < 0;
    expect(v, s, (index.elem == ELEM_I64 || bytes) && index.lanes == (indirect ? value.lanes : 1), 10, "bad index");
    expect(v, s, m.stride < 0 || is_index(v, s, (uint32_t)m.stride), 10, "bad stride");
    if (m.mask > 0) {
        struct ltype mask = type_of(v, s, (uint32_t)m.mask);
        expect(v, s, mask.elem == ELEM_BOOL && mask.lanes == value.lanes, 10, "bad mask");
    }
    expect(v, s, (s->align & (s->align - 1)) == 0, 10, "alignment is not a power of two");
}

static const struct larg *root_arg(const struct verifier *v, lreg buffer)
{
    uint32_t root = v->root[buffer.i];
    return root ? &v->f->args.data[root - 1] : NULL;
}

static void rule_load(struct verifier *v, const struct lstmt *s)
{
    check_access(v, s, result_of(v, s));
    const struct larg *a = root_arg(v, s->in[0]);
    expect(v, s, !(s->flags & L_FLAG_INVARIANT) || (a && !(a->flags & LARG_OUT)), 11,
           "an invariant load reads what the function may write");
}

static void rule_store(struct verifier *v, const struct lstmt *s)
{
    check_access(v, s, type_of(v, s, (uint32_t)lstmt_mem(s).value));
    const struct larg *a = root_arg(v, s->in[0]);
    expect(v, s, !a || (a->flags & LARG_OUT), 11, "a store into an argument that is not out");
    expect(v, s, v->f->role != LROLE_KERNEL || v->parallel.i, 13, "a store outside the parallel loop");
}

static void rule_matmul(struct verifier *v, const struct lstmt *s)
{
    struct ltype c = type_of(v, s, 0), a = type_of(v, s, 1), b = type_of(v, s, 3);
    bool bytes = c.elem == ELEM_I32 && (a.elem == ELEM_U8 || a.elem == ELEM_I8) &&
                 (b.elem == ELEM_U8 || b.elem == ELEM_I8);
    bool halves = c.elem == ELEM_F32 && a.elem == ELEM_BF16 && b.elem == ELEM_BF16;
    const struct lstmt *local = v->def[s->in[0].i];
    int64_t constants[MATMUL_FIXED - MATMUL_FIRST + 3 * MATMUL_LOOPS + 1];
    struct lmatmul m;
    uint32_t n = 0;
    expect(v, s,
           (bytes || halves) && c.lanes == 0 && a.lanes == 0 && b.lanes == 0 && is_index(v, s, 2) &&
               is_index(v, s, 4) && is_index(v, s, 5) && local && local->op == L_LOCAL,
           20, "types do not fit, or the sums are not in a local");
    expect(v, s, v->f->role == LROLE_KERNEL && v->parallel.i, 20, "it stands outside the parallel loop");
    for (uint32_t i = MATMUL_FIRST; i < s->n_in && n < COUNT_OF(constants); i++) {
        const struct lstmt *of = v->def[s->in[i].i];
        bool constant = of && of->op == L_CONST && is_index(v, s, i);
        expect(v, s, constant, 20, "its shape is not constant");
        constants[n++] = constant ? of->imm : 0;
    }
    bool fits = lmatmul_of(constants, n, elem_size(a.elem), &m);
    expect(v, s, fits && lmatmul_rows(&m) * MATMUL_COLUMNS * (m.apart ? 2 : 1) <= (local ? local->imm : 0), 20,
           "a shape that no product has");
}

TYPING(local, t.lanes == 0 && s->imm >= 1 && (v->depth == 0 || (v->depth == 1 && v->parallel.i)), 18,
       "size or place of a local")

static void rule_offset(struct verifier *v, const struct lstmt *s)
{
    expect(v, s, result_of(v, s).lanes == 0 && type_of(v, s, 0).lanes == 0 && is_index(v, s, 1), 10,
           "types do not fit");
    v->root[s->out[0].i] = v->root[s->in[0].i];
}

/* Any address will do: nothing is read as far as the program can tell. */
TYPING(prefetch, a.lanes == 0 && ltype_is_index(b), 10, "types do not fit")

static void rule_address(struct verifier *v, const struct lstmt *s)
{
    expect(v, s, result_of(v, s).lanes == 0 && is_index(v, s, 0), 10, "types do not fit");
    const struct lstmt *at = v->def[s->in[0].i];
    expect(v, s, v->f->role != LROLE_KERNEL || (at && at->op == L_CONST), 18, "an address that a kernel computes");
}

static void rule_global(struct verifier *v, const struct lstmt *s)
{
    expect(v, s, result_of(v, s).lanes == 0 && s->name && *s->name && v->f->role == LROLE_ENTRY, 18,
           "type, name or place of a global");
}

TYPING(shared, t.elem == ELEM_BOOL && t.lanes == 1 && a.lanes == 0 && b.lanes == 0, 10, "types do not fit")

/* ---- control ----------------------------------------------------------------------------------------------------- */

static void check_block(struct verifier *v, const struct lstmt *owner, lblock b, const lreg *results,
                        uint32_t n_results);

static bool index_bounds(struct verifier *v, const struct lstmt *s)
{
    return is_index(v, s, 0) && is_index(v, s, 1);
}

static void check_unroll(struct verifier *v, const struct lstmt *s)
{
    const struct lstmt *lo = v->def[s->in[0].i], *hi = v->def[s->in[1].i];
    int64_t span;
    expect(v, s,
           lo && hi && lo->op == L_CONST && hi->op == L_CONST && s->imm >= 1 && sub_i64(hi->imm, lo->imm, &span) &&
               span / s->imm <= UNROLL_MAX,
           12, "bounds of an unrolled loop");
}

static void rule_for(struct verifier *v, const struct lstmt *s)
{
    uint32_t carried = s->n_in - 2;
    if (s->block[0].i == 0 || s->block[0].i >= v->f->blocks.n) {
        broken(v, s, 3, "no block");
        return;
    }
    const struct lblk *body = &v->f->blocks.data[s->block[0].i];
    bool fits = index_bounds(v, s) && s->imm >= 1 && body->params.n == carried + 1 && s->n_out == carried;
    fits = fits && ltype_is_index(lf_type(v->f, body->params.data[0]));
    for (uint32_t i = 0; fits && i < carried; i++) {
        struct ltype t = type_of(v, s, i + 2);
        fits = ltype_equal(t, lf_type(v->f, body->params.data[i + 1])) && ltype_equal(t, lf_type(v->f, s->out[i]));
    }
    if (fits && (s->flags & L_FLAG_WHILE)) {
        struct ltype t = carried ? type_of(v, s, 2) : (struct ltype){0};
        fits = t.elem == ELEM_BOOL && t.lanes == 1;
    }
    expect(v, s, fits, 12, "bounds, step, parameters or results");
    if (fits && (s->flags & L_FLAG_UNROLL))
        check_unroll(v, s);
    if (fits)
        check_block(v, s, s->block[0], s->out, s->n_out);
}

static void rule_parallel(struct verifier *v, const struct lstmt *s)
{
    const struct lblk *body = s->block[0].i < v->f->blocks.n ? &v->f->blocks.data[s->block[0].i] : NULL;
    const struct lblk *top = &v->f->blocks.data[1];
    bool last = v->depth == 0 && top->stmts.n && s == &top->stmts.data[top->stmts.n - 1];
    v->parallels++;
    bool fits = v->f->role == LROLE_KERNEL && last && index_bounds(v, s) && body && body->params.n == 1 &&
                ltype_is_index(lf_type(v->f, body->params.data[0]));
    expect(v, s, fits, 13, "place, bounds or parameter of the parallel loop");
    if (!fits)
        return;
    v->parallel = s->block[0];
    check_block(v, s, s->block[0], NULL, 0);
    v->parallel = (lblock){0};
}

static void rule_if(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = type_of(v, s, 0);
    expect(v, s, t.elem == ELEM_BOOL && t.lanes == 1, 14, "the condition is not a bool");
    for (int k = 0; k < 2; k++) {
        if (s->block[k].i && s->block[k].i < v->f->blocks.n && v->f->blocks.data[s->block[k].i].params.n)
            broken(v, s, 14, "a block with parameters");
        else if (s->block[k].i)
            check_block(v, s, s->block[k], s->out, s->n_out);
        else
            expect(v, s, k == 1 && s->n_out == 0, 14, "a block is missing");
    }
}

static void rule_yield(struct verifier *v, const struct lstmt *s)
{
    (void)v, (void)s; /* check_block compares it with what the owner needs */
}

static void rule_check(struct verifier *v, const struct lstmt *s)
{
    struct ltype t = type_of(v, s, 0);
    expect(v, s, t.elem == ELEM_BOOL && t.lanes > 0 && s->imm < 0 && s->imm > INT32_MIN && s->name, 16,
           "condition, code or text");
}

static void rule_call(struct verifier *v, const struct lstmt *s)
{
    bool fits = s->name && *s->name && s->n_out <= 1;
    for (uint32_t i = 0; i < s->n_in; i++)
        fits = fits && (type_of(v, s, i).lanes == 0 || is_index(v, s, i));
    fits = fits && (s->n_out == 0 || ltype_is_index(result_of(v, s)));
    expect(v, s, fits, 17, "name, operands or result");
}

static void rule_launch(struct verifier *v, const struct lstmt *s)
{
    rule_call(v, s);
    expect(v, s,
           (v->f->role == LROLE_PROGRAM || v->f->role == LROLE_ENTRY) && is_index(v, s, s->n_in - 1) && s->imm >= 0, 17,
           "launches stand in programs and entries and end with an index");
}

static rule_fn *const rules[L_COUNT] = {
#define LOP(id, name, least, most, results, class, form, rule, ...) [L_##id] = rule,
#include "ir/loop/loop.def"
};

static bool counts_fit(const struct lstmt *s)
{
    const struct lop_info *info = &lop_table[s->op];
    return (int64_t)s->n_in >= info->min_in && (info->max_in < 0 || (int64_t)s->n_in <= info->max_in) &&
           (info->n_out < 0 || (int64_t)s->n_out == info->n_out);
}

static void check_stmt(struct verifier *v, const struct lstmt *s)
{
    if (s->op == L_NONE || s->op >= L_COUNT || !counts_fit(s)) {
        broken(v, s, 1, "number of operands or results");
        return;
    }
    if (!lop_has_blocks(s->op) && (s->block[0].i || s->block[1].i))
        broken(v, s, 3, "a block on a statement that takes none");
    bool ok = operands_visible(v, s);
    for (uint32_t i = 0; i < s->n_out; i++)
        ok = ok && s->out[i].i && s->out[i].i < v->f->types.n;
    if (!ok)
        return;
    expect(v, s, v->f->role != LROLE_VALUE || lop_table[s->op].class == LCLASS_VALUE || s->op == L_YIELD, 21,
           "a statement that no part has");
    rules[s->op](v, s);
    for (uint32_t i = 0; i < s->n_out; i++)
        define(v, s, s->out[i]);
}

static void check_end(struct verifier *v, const struct lstmt *owner, const struct lblk *blk, const lreg *results,
                      uint32_t n_results)
{
    const struct lstmt *last = blk->stmts.n ? &blk->stmts.data[blk->stmts.n - 1] : NULL;
    if (last && last->op != L_YIELD)
        last = NULL;
    bool fits = (last != NULL) == (n_results > 0) && (!last || last->n_in == n_results);
    for (uint32_t i = 0; fits && i < n_results; i++)
        fits = ltype_equal(lf_type(v->f, last->in[i]), lf_type(v->f, results[i]));
    expect(v, owner, fits, 15, "what a block yields does not match");
}

static void check_block(struct verifier *v, const struct lstmt *owner, lblock b, const lreg *results,
                        uint32_t n_results)
{
    if (b.i == 0 || b.i >= v->f->blocks.n || v->seen_block[b.i] || v->depth > LOOP_DEPTH_MAX) {
        broken(v, owner, 3, "blocks do not form a tree, or nest too deeply");
        return;
    }
    v->seen_block[b.i] = true;
    const struct lblk *blk = &v->f->blocks.data[b.i];
    v->depth += owner != NULL;
    for (uint32_t i = 0; i < blk->params.n; i++)
        define(v, NULL, blk->params.data[i]);
    for (uint32_t i = 0; i < blk->stmts.n; i++) {
        if (blk->stmts.data[i].op == L_YIELD)
            expect(v, &blk->stmts.data[i], i + 1 == blk->stmts.n, 15, "a yield that is not last");
        check_stmt(v, &blk->stmts.data[i]);
    }
    check_end(v, owner, blk, results, n_results);
    for (uint32_t i = 0; i < blk->params.n; i++)
        v->visible[blk->params.data[i].i < v->f->types.n ? blk->params.data[i].i : 0] = false;
    for (uint32_t i = 0; i < blk->stmts.n; i++)
        for (uint32_t k = 0; k < blk->stmts.data[i].n_out; k++)
            if (blk->stmts.data[i].out[k].i < v->f->types.n)
                v->visible[blk->stmts.data[i].out[k].i] = false;
    v->depth -= owner != NULL;
}

static void check_args(struct verifier *v)
{
    for (uint32_t i = 0; i < v->f->args.n; i++) {
        const struct larg *a = &v->f->args.data[i];
        bool fits = i + 1 < v->f->types.n && ltype_equal(a->type, v->f->types.data[i + 1]) &&
                    (v->f->role == LROLE_VALUE ? a->type.lanes > 0 && type_legal(a->type)
                                               : a->type.lanes == 0 || ltype_is_index(a->type)) &&
                    (a->align & (a->align - 1)) == 0;
        expect(v, NULL, fits, 4, "an argument is of no type that it may have, or is misaligned");
        if (!fits)
            continue;
        define(v, NULL, (lreg){i + 1});
        v->root[i + 1] = a->type.lanes == 0 ? i + 1 : 0;
    }
}

bool lf_verify(struct lfunc *f)
{
    struct verifier v = {.f = f};
    arena_init(&v.arena, f->ctx);
    v.number = loop_numbers(f, &v.arena);
    v.visible = NEW_ARRAY(&v.arena, bool, f->types.n);
    v.defined = NEW_ARRAY(&v.arena, bool, f->types.n);
    v.seen_block = NEW_ARRAY(&v.arena, bool, f->blocks.n);
    v.def = NEW_ARRAY(&v.arena, const struct lstmt *, f->types.n);
    v.root = NEW_ARRAY(&v.arena, uint32_t, f->types.n);
    check_args(&v);
    const lreg result = yielded(f);
    check_block(&v, NULL, (lblock){1}, &result, f->role == LROLE_VALUE);
    bool parts = true;
    for (uint32_t i = 0; i < f->parts.n; i++) {
        expect(&v, NULL, f->parts.data[i]->role == LROLE_VALUE && f->parts.data[i]->of == f, 21, "a part that is none");
        parts &= lf_verify(f->parts.data[i]);
    }
    expect(&v, NULL, f->role != LROLE_KERNEL || v.parallels == 1, 13, "a kernel has one parallel loop");
    expect(&v, NULL, f->role == LROLE_KERNEL || f->local_bytes <= FRAME_LOCALS_MAX, 18, "locals are too large");
    arena_release(&v.arena);
    return v.errors == 0 && parts;
}
