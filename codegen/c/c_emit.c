/* One loop-IR function -> one C function.
 *
 * A value is a variable that is assigned once; what loops carry is assigned at the end of each trip. Index arithmetic
 * that is used once is written where it is used: it is of sizes and places, so it does not overflow. Integers that come
 * from memory may, and are computed by functions (c_ops.def). Floats are a variable for each operation, which rounds
 * them where the compiler computes with more bits.
 */
#include "codegen/c/c_internal.h"

#include "ir/loop/internal.h"

#include <inttypes.h>
#include <string.h>

enum { ATOM = 3, PRODUCT = 2, SUM = 1 }; /* how tightly an expression's text binds */

struct value {
    const char *text;
    uint8_t binds;
    bool live, place;    /* used; an index of sizes and places */
    bool fixed, known, is_const; /* an index that is a number; a float constant other than NaN; of const memory */
    uint32_t uses;
    int64_t number;
};
struct c_emit {
    struct c_file *c;
    const struct lfunc *f;
    struct strbuf *out;
    struct value *v;
    uint32_t depth;
    int64_t scratch; /* bytes of LOCALs so far */
    bool fails, more;
    lblock carried_of; /* the body of the loop whose trip ends */
};

static struct value *val(struct c_emit *e, lreg r)
{
    return &e->v[r.i];
}

static void line(struct c_emit *e)
{
    for (uint32_t i = 0; i < e->depth; i++)
        strbuf_printf(e->out, "    ");
}

/* The operand's text, in parentheses where it binds less than `binds`. */
static const char *text(struct c_emit *e, lreg r, int binds)
{
    const struct value *v = val(e, r);
    return v->binds >= binds ? v->text : arena_printf(e->c->arena, "(%s)", v->text);
}

static const char *in(struct c_emit *e, const struct lstmt *s, uint32_t i)
{
    return text(e, s->in[i], 0);
}

static void set_text(struct c_emit *e, lreg r, const char *t, int binds)
{
    val(e, r)->text = t;
    val(e, r)->binds = (uint8_t)binds;
}

/* ---- what is used -------------------------------------------------------------------------------------------------
 */

static bool has_effect(const struct lstmt *s)
{
    enum lform form = lop_table[s->op].form;
    return form == LFORM_STORE || s->op == L_CHECK || s->op == L_CALL || s->op == L_LAUNCH || s->op == L_PARALLEL ||
           s->op == L_PREFETCH || s->op == L_PREFETCH2;
}

static void use(struct c_emit *e, lreg r)
{
    e->more |= !val(e, r)->live;
    val(e, r)->live = true;
}

/* Bounds of parallel loops are the count; one lane has no stride, and is inserted into nothing; mcc_rt_kept has
 * variables in place of memory. */
static bool takes(const struct c_emit *e, const struct lstmt *s, uint32_t i)
{
    bool strided = s->op == L_LOADS || s->op == L_STORES;
    struct ltype t = s->op == L_STORES ? lf_type(e->f, s->in[lstmt_mem(s).value]) : s->type;
    bool keeper = s->op == L_CALL && i == 0 && strcmp(s->name, "mcc_rt_kept") == 0;
    return s->op != L_PARALLEL && !(strided && i == 2 && t.lanes == 1) &&
           !(s->op == L_INSERT && i == 0 && t.lanes == 1) && !keeper;
}

static const struct lstmt *yield_of(const struct c_emit *e, lblock b)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    const struct lstmt *last = blk->stmts.n ? &blk->stmts.data[blk->stmts.n - 1] : NULL;
    return last && last->op == L_YIELD ? last : NULL;
}

static void mark_block(struct c_emit *, lblock);

static void mark_for(struct c_emit *e, const struct lstmt *s)
{
    const struct lblk *body = &e->f->blocks.data[s->block[0].i];
    const struct lstmt *yield = yield_of(e, s->block[0]);
    use(e, s->in[0]);
    use(e, s->in[1]);
    for (uint32_t i = 0; i + 2 < s->n_in; i++) {
        bool first = i == 0 && s->flags & L_FLAG_WHILE;
        if (!first && !val(e, body->params.data[i + 1])->live && !val(e, s->out[i])->live)
            continue;
        use(e, body->params.data[i + 1]);
        use(e, s->in[i + 2]);
        use(e, yield->in[i]);
    }
    mark_block(e, s->block[0]);
}

static void mark(struct c_emit *e, const struct lstmt *s)
{
    if (s->op == L_FOR) {
        mark_for(e, s);
        return;
    }
    if (s->op == L_YIELD)
        return;
    bool used = has_effect(s);
    for (uint32_t i = 0; i < s->n_out; i++)
        used |= val(e, s->out[i])->live && s->op != L_IF;
    for (uint32_t i = 0; i < s->n_in && (used || s->op == L_IF); i++)
        if (takes(e, s, i))
            use(e, s->in[i]);
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = s->op == L_IF ? yield_of(e, s->block[k]) : NULL;
        for (uint32_t i = 0; yield && i < s->n_out; i++)
            if (val(e, s->out[i])->live)
                use(e, yield->in[i]);
        mark_block(e, s->block[k]);
    }
}

static void mark_block(struct c_emit *e, lblock b)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    for (uint32_t i = blk->stmts.n; i > 0; i--)
        mark(e, &blk->stmts.data[i - 1]);
}

static bool is_used(struct c_emit *e, const struct lstmt *s)
{
    bool used = has_effect(s) || s->op == L_FOR || s->op == L_IF;
    for (uint32_t i = 0; i < s->n_out; i++)
        used |= val(e, s->out[i])->live;
    return used;
}

/* Twice where the text may stand for more than one evaluation, or be of another time. */
static void count_statement(struct c_emit *e, const struct lstmt *s)
{
    bool is_loop = s->op == L_FOR;
    if (s->op == L_YIELD || s->op == L_PARALLEL || !is_used(e, s))
        return;
    for (uint32_t i = 0; i < (is_loop ? 2 : s->n_in); i++)
        if (takes(e, s, i))
            val(e, s->in[i])->uses += is_loop ? 2 : 1;
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = yield_of(e, s->block[k]);
        const struct lblk *body = &e->f->blocks.data[s->block[k].i];
        for (uint32_t i = 0; yield && i < yield->n_in; i++) {
            if (!val(e, is_loop ? body->params.data[i + 1] : s->out[i])->live)
                continue;
            val(e, yield->in[i])->uses += 2;
            if (is_loop)
                val(e, s->in[i + 2])->uses += 2;
        }
    }
}

static void count_uses(struct c_emit *e)
{
    for (uint32_t b = 1; b < e->f->blocks.n; b++)
        for (uint32_t k = 0; k < e->f->blocks.data[b].stmts.n; k++)
            count_statement(e, &e->f->blocks.data[b].stmts.data[k]);
}

/* ---- values -------------------------------------------------------------------------------------------------------
 */

static const char *buffer_type(struct c_emit *e, struct ltype t, bool is_const)
{
    return arena_printf(e->c->arena, "%s%s *", is_const ? "const " : "", c_scalar(e->c, t.elem));
}

static const char *type_of(struct c_emit *e, lreg r)
{
    struct ltype t = lf_type(e->f, r);
    return t.lanes == 0 ? buffer_type(e, t, val(e, r)->is_const) : arena_printf(e->c->arena, "%s ", c_type(e->c, t));
}

/* A variable's name says what it is: n of an index, p of a buffer, else v. */
static const char *new_name(struct c_emit *e, lreg r)
{
    struct ltype t = lf_type(e->f, r);
    char letter = t.lanes == 0 ? 'p' : ltype_is_index(t) ? 'n' : 'v';
    set_text(e, r, arena_printf(e->c->arena, "%c%u", letter, r.i), ATOM);
    return val(e, r)->text;
}

static void define(struct c_emit *e, lreg r, const char *expression)
{
    const char *type = type_of(e, r), *name = new_name(e, r);
    line(e);
    strbuf_printf(e->out, lf_type(e->f, r).lanes ? "const %s%s = %s;\n" : "%sconst %s = %s;\n", type, name, expression);
}

/* f(a, b, c) of the operands from `first` on. */
static const char *call(struct c_emit *e, const char *function, const struct lstmt *s, uint32_t n)
{
    struct strbuf t;
    strbuf_init(&t, e->c->arena);
    strbuf_printf(&t, "%s(", function);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&t, "%s%s", i ? ", " : "", in(e, s, i));
    strbuf_printf(&t, ")");
    return t.data;
}

static bool fold(struct c_emit *e, const struct lstmt *s, int64_t *r)
{
    const struct value *a = val(e, s->in[0]), *b = val(e, s->in[1]);
    if (!a->fixed || !b->fixed)
        return false;
    return s->op == L_ADD   ? add_i64(a->number, b->number, r)
           : s->op == L_SUB ? sub_i64(a->number, b->number, r)
                            : mul_i64(a->number, b->number, r);
}

static void set_number(struct c_emit *e, lreg r, int64_t number)
{
    const struct lstmt literal = {.op = L_CONST, .type = {ELEM_I64, 1}, .imm = number};
    struct value *v = val(e, r);
    v->fixed = v->place = true;
    v->number = number;
    set_text(e, r, c_literal(e->c, &literal), ATOM);
}

/* Sums and products of places, written where they are used once. False: it is none. */
static bool place_arithmetic(struct c_emit *e, const struct lstmt *s)
{
    int64_t number;
    if (!ltype_is_index(s->type) || (s->op != L_ADD && s->op != L_SUB && s->op != L_MUL))
        return false;
    struct value *a = val(e, s->in[0]), *b = val(e, s->in[1]), *r = val(e, s->out[0]);
    if (!a->place || !b->place)
        return false;
    r->place = true;
    if (fold(e, s, &number)) {
        set_number(e, s->out[0], number);
        return true;
    }
    int binds = s->op == L_MUL ? PRODUCT : SUM;
    int64_t none = s->op == L_MUL;
    const char *t = b->fixed && b->number == none ? text(e, s->in[0], 0)
                    : a->fixed && a->number == none && s->op != L_SUB
                        ? text(e, s->in[1], 0)
                        : arena_printf(e->c->arena, "%s %s %s", text(e, s->in[0], binds),
                                       s->op == L_MUL   ? "*"
                                       : s->op == L_ADD ? "+"
                                                        : "-",
                                       text(e, s->in[1], binds + 1));
    if (r->uses == 1 || !strchr(t, ' ')) {
        set_text(e, s->out[0], t, strchr(t, ' ') ? binds : ATOM);
        if (!strchr(t, ' '))
            r->binds = b->fixed ? a->binds : b->binds;
    } else {
        define(e, s->out[0], t);
    }
    return true;
}

static bool gives_place(enum lop op)
{
    return op == L_FLOORDIV || op == L_FLOORMOD || op == L_MIN || op == L_MAX || op == L_AND || op == L_SHR ||
           op == L_DIV || op == L_REM;
}

static const char *arithmetic(struct c_emit *e, const struct lstmt *s)
{
    struct ltype operand = lf_type(e->f, s->in[0]);
    struct lstmt turned = *s;
    lreg swapped[2];
    bool known = false;
    const char *infix = c_infix(s, operand);
    if (infix)
        return arena_printf(e->c->arena, "%s %s %s", text(e, s->in[0], ATOM), infix, text(e, s->in[1], ATOM));
    if (s->op == L_FMA && s->type.elem == ELEM_F16)
        return call(e, c_half_fma(e->c, s->type), s, 3);
    if (s->op == L_MIN || s->op == L_MAX) { /* where one operand is a constant, the other one may be NaN and wins */
        known = val(e, s->in[0])->known || val(e, s->in[1])->known;
        if (known && !val(e, s->in[0])->known) {
            swapped[0] = s->in[1];
            swapped[1] = s->in[0];
            turned.in = e->c->machine.aarch64 ? s->in : swapped;
        }
    }
    const char *name = c_operation(e->c, s->op, s->type, operand, s->n_in, known);
    return call(e, name, &turned, s->n_in);
}

/* A vector constant, or a scalar one that takes more than a literal. */
static void constant(struct c_emit *e, const struct lstmt *s)
{
    const char *literal = c_literal(e->c, s);
    struct value *v = val(e, s->out[0]);
    bool number = ltype_is_index(s->type);
    v->known = c_is_float(s->type.elem) && s->fimm == s->fimm;
    if (number)
        set_number(e, s->out[0], s->imm);
    else if (s->type.lanes == 1 && (*literal != '-' || v->known))
        set_text(e, s->out[0], *literal == '-' ? arena_printf(e->c->arena, "(%s)", literal) : literal, ATOM);
    else if (s->type.lanes == 1)
        set_text(e, s->out[0], literal, ATOM);
    else
        define(e, s->out[0], arena_printf(e->c->arena, "%s(%s)", c_splat(e->c, s->type), literal));
}

/* ---- memory -------------------------------------------------------------------------------------------------------
 */

static const char *address(struct c_emit *e, const struct lstmt *s)
{
    const char *buffer = text(e, s->in[0], ATOM), *index = in(e, s, 1);
    return strcmp(index, "0") == 0 ? buffer : arena_printf(e->c->arena, "&%s[%s]", buffer, index);
}

static const char *load(struct c_emit *e, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    const char *mask = m.mask < 0 ? NULL : in(e, s, (uint32_t)m.mask);
    bool is_bool = s->type.elem == ELEM_BOOL;
    if (s->type.lanes == 1) {
        const char *element = arena_printf(e->c->arena, "%s[%s]%s", text(e, s->in[0], ATOM), in(e, s, 1),
                                           is_bool ? " != 0" : "");
        return mask ? arena_printf(e->c->arena, "%s ? %s : 0", mask, element) : element;
    }
    const char *name = c_memory(e->c, s->op, s->type, mask != NULL);
    const char *at = s->op == L_GATHER ? arena_printf(e->c->arena, "%s, %s", text(e, s->in[0], ATOM), in(e, s, 1))
                     : m.stride < 0    ? address(e, s)
                                    : arena_printf(e->c->arena, "%s, %s", address(e, s), in(e, s, (uint32_t)m.stride));
    return arena_printf(e->c->arena, "%s(%s%s%s)", name, at, mask ? ", " : "", mask ? mask : "");
}

static void store(struct c_emit *e, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    struct ltype t = lf_type(e->f, s->in[m.value]);
    const char *mask = m.mask < 0 ? NULL : in(e, s, (uint32_t)m.mask), *value = in(e, s, (uint32_t)m.value);
    line(e);
    if (t.lanes == 1) {
        if (mask) {
            strbuf_printf(e->out, "if (%s)\n", mask);
            e->depth++;
            line(e);
            e->depth--;
        }
        strbuf_printf(e->out, "%s[%s] = %s;\n", text(e, s->in[0], ATOM), in(e, s, 1), value);
        return;
    }
    const char *name = c_memory(e->c, s->op, t, mask != NULL);
    const char *at = s->op == L_SCATTER ? arena_printf(e->c->arena, "%s, %s", text(e, s->in[0], ATOM), in(e, s, 1))
                     : m.stride < 0     ? address(e, s)
                                    : arena_printf(e->c->arena, "%s, %s", address(e, s), in(e, s, (uint32_t)m.stride));
    strbuf_printf(e->out, "%s(%s, %s%s%s);\n", name, at, value, mask ? ", " : "", mask ? mask : "");
}

/* Kernels have their LOCALs in the scratch, one place each, programs in their frame. */
static void local(struct c_emit *e, const struct lstmt *s)
{
    int64_t bytes = (s->imm * elem_size(s->type.elem) + 63) & ~(int64_t)63;
    const char *scalar = c_scalar(e->c, s->type.elem), *name;
    if (e->f->role == LROLE_KERNEL) {
        define(e, s->out[0], arena_printf(e->c->arena, "(%s *)(void *)(scratch + %" PRId64 ")", scalar, e->scratch));
        line(e); /* tags that "made" stands for are not used otherwise */
        strbuf_printf(e->out, "(void)%s;\n", val(e, s->out[0])->text);
        e->scratch += bytes;
        return;
    }
    name = new_name(e, s->out[0]);
    line(e);
    strbuf_printf(e->out, "_Alignas(64) %s %s[%" PRId64 "] = {0};\n", scalar, name, s->imm > 0 ? s->imm : 1);
}

static void offset(struct c_emit *e, const struct lstmt *s)
{
    const struct value *from = val(e, s->in[0]), *by = val(e, s->in[1]);
    bool is_const = val(e, s->out[0])->is_const = from->is_const;
    const char *scalar = c_scalar(e->c, s->type.elem), *k = is_const ? "const " : "";
    if (by->fixed && by->number == 0)
        define(e, s->out[0], arena_printf(e->c->arena, "(%s%s *)(%svoid *)%s", k, scalar, k, from->text));
    else
        define(e, s->out[0],
               arena_printf(e->c->arena, "(%s%s *)(%svoid *)((%su8 *)%s + %s)", k, scalar, k, k, from->text,
                            text(e, s->in[1], SUM + 1)));
}

/* ---- control ------------------------------------------------------------------------------------------------------
 */

static void block(struct c_emit *, lblock);

static bool is_carried(struct c_emit *e, const struct lstmt *s, uint32_t i)
{
    return val(e, e->f->blocks.data[s->block[0].i].params.data[i + 1])->live;
}

/* What the trip carries on. An operand that is a carried value itself is kept before the first assignment. */
static void carry(struct c_emit *e, const struct lstmt *loop)
{
    const struct lblk *body = &e->f->blocks.data[loop->block[0].i];
    const struct lstmt *yield = yield_of(e, loop->block[0]);
    const char *from[1024];
    uint32_t n = loop->n_in - 2;
    if (n > COUNT_OF(from)) {
        c_fail(e->c, "loops that carry more than 1,024 values");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!is_carried(e, loop, i))
            continue;
        from[i] = val(e, yield->in[i])->text;
        for (uint32_t k = 0; k < i; k++)
            if (is_carried(e, loop, k) && strcmp(from[i], val(e, body->params.data[k + 1])->text) == 0) {
                const char *kept = arena_printf(e->c->arena, "old%u", body->params.data[i + 1].i);
                line(e);
                strbuf_printf(e->out, "%sconst %s = %s;\n", type_of(e, yield->in[i]), kept, from[i]);
                from[i] = kept;
                break;
            }
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_carried(e, loop, i) && strcmp(from[i], val(e, body->params.data[i + 1])->text) != 0) {
            line(e);
            strbuf_printf(e->out, "%s = %s;\n", val(e, body->params.data[i + 1])->text, from[i]);
        }
}

static void loop(struct c_emit *e, const struct lstmt *s)
{
    const struct lblk *body = &e->f->blocks.data[s->block[0].i];
    const char *variable = new_name(e, body->params.data[0]), *first = "";
    val(e, body->params.data[0])->place = true;
    for (uint32_t i = 0; i + 2 < s->n_in; i++) {
        lreg p = body->params.data[i + 1];
        if (!val(e, p)->live)
            continue;
        val(e, p)->is_const = val(e, s->in[i + 2])->is_const;
        const char *type = type_of(e, p), *name = new_name(e, p);
        line(e);
        strbuf_printf(e->out, "%s%s = %s;\n", type, name, in(e, s, i + 2));
        set_text(e, s->out[i], name, ATOM);
        val(e, s->out[i])->is_const = val(e, p)->is_const;
        if (i == 0 && s->flags & L_FLAG_WHILE)
            first = arena_printf(e->c->arena, " && %s", name);
    }
    line(e);
    strbuf_printf(e->out, "for (i64 %s = %s; %s < %s%s; ", variable, in(e, s, 0), variable, in(e, s, 1), first);
    strbuf_printf(e->out, s->imm == 1 ? "%s++) {\n" : "%s += %" PRId64 ") {\n", variable, s->imm);
    e->depth++;
    block(e, s->block[0]);
    if (s->n_in > 2)
        carry(e, s);
    e->depth--;
    line(e);
    strbuf_printf(e->out, "}\n");
}

static void branch(struct c_emit *e, const struct lstmt *s)
{
    for (uint32_t i = 0; i < s->n_out; i++) {
        if (!val(e, s->out[i])->live)
            continue;
        for (uint32_t k = 0; k < 2; k++) {
            const struct lstmt *yield = yield_of(e, s->block[k]);
            val(e, s->out[i])->is_const |= yield && val(e, yield->in[i])->is_const;
        }
        const char *type = type_of(e, s->out[i]);
        line(e);
        strbuf_printf(e->out, "%s%s;\n", type, new_name(e, s->out[i]));
    }
    for (uint32_t k = 0; k < 2 && s->block[k].i; k++) {
        const struct lstmt *yield = yield_of(e, s->block[k]);
        if (k == 0) {
            line(e);
            strbuf_printf(e->out, "if (%s) {\n", in(e, s, 0));
        } else {
            strbuf_printf(e->out, " else {\n");
        }
        e->depth++;
        block(e, s->block[k]);
        for (uint32_t i = 0; yield && i < s->n_out; i++)
            if (val(e, s->out[i])->live) {
                line(e);
                strbuf_printf(e->out, "%s = %s;\n", val(e, s->out[i])->text, in(e, yield, i));
            }
        e->depth--;
        line(e);
        strbuf_printf(e->out, "}");
    }
    strbuf_printf(e->out, "\n");
}

static void check(struct c_emit *e, const struct lstmt *s)
{
    struct ltype t = lf_type(e->f, s->in[0]), one = {ELEM_BOOL, 1};
    const char *cond = t.lanes == 1 ? text(e, s->in[0], ATOM) : call(e, c_hreduce(e->c, L_AND, t), s, 1);
    (void)one;
    line(e);
    strbuf_printf(e->out, "if (!%s)\n", cond);
    e->depth++;
    line(e);
    e->depth--;
    strbuf_printf(e->out, "return %" PRId64 "; /* ", s->imm);
    c_comment(e->out, s->name ? s->name : "");
    strbuf_printf(e->out, " */\n");
}

static void launch(struct c_emit *e, const struct lstmt *s)
{
    const struct c_function *k = c_function_find(e->c, s->name);
    if (!k) {
        c_fail(e->c, "a launch of what is not there");
        return;
    }
    line(e);
    strbuf_printf(e->out, k->fails ? "code = %s(" : "%s(", k->name);
    for (uint32_t i = 0; i < s->n_in; i++)
        if (i + 1 < s->n_in || k->counts)
            strbuf_printf(e->out, "%s%s", i ? ", " : "", in(e, s, i));
    strbuf_printf(e->out, k->scratch ? ", scratch);\n" : ");\n");
    if (!k->fails)
        return;
    line(e);
    strbuf_printf(e->out, "if (code != 0)\n");
    e->depth++;
    line(e);
    e->depth--;
    strbuf_printf(e->out, "return code;\n");
}

/* Of the runtime, what one thread needs none for. */
static void call_runtime(struct c_emit *e, const struct lstmt *s)
{
    const char *result = NULL;
    if (strcmp(s->name, "mcc_rt_kept") == 0 && s->n_in == 2)
        result = arena_printf(e->c->arena, "kept(&made, &tag, %s)", in(e, s, 1));
    else if (strcmp(s->name, "mcc_rt_arrive") == 0 && s->n_in == 2)
        result = arena_printf(e->c->arena, "arrive(%s, %s)", in(e, s, 0), in(e, s, 1));
    else if (strcmp(s->name, "mcc_rt_poll") == 0) /* nobody cancels */
        result = "0";
    if (!result) {
        c_fail(e->c, arena_printf(e->c->arena, "the runtime's function %s", s->name));
        return;
    }
    if (s->n_out && val(e, s->out[0])->live) {
        define(e, s->out[0], result);
        return;
    }
    line(e);
    strbuf_printf(e->out, "(void)%s;\n", result);
}

/* ---- statements ---------------------------------------------------------------------------------------------------
 */

static const char *expression(struct c_emit *e, const struct lstmt *s)
{
    struct c_file *c = e->c;
    struct ltype t = s->type, from = s->n_in ? lf_type(e->f, s->in[0]) : t;
    switch (s->op) {
    case L_DOT:
    case L_MATDOT: return call(e, c_dot(c, e->f, s), s, 3);
    case L_SELECT:
        if (from.lanes == 1)
            return arena_printf(c->arena, "%s ? %s : %s", text(e, s->in[0], ATOM), text(e, s->in[1], ATOM),
                                text(e, s->in[2], ATOM));
        return call(e, c_select(c, from, t), s, 3);
    case L_CONVERT:
        if (from.elem == t.elem)
            return in(e, s, 0);
        return call(e, c_conversion(c, from, t, s->imm != 0, s->name), s, 1);
    case L_BITCAST:
        if (strcmp(c_type(c, from), c_type(c, t)) == 0)
            return in(e, s, 0);
        return call(e, c_bitcast(c, from, t), s, 1);
    case L_SPLAT: return t.lanes == 1 ? in(e, s, 0) : call(e, c_splat(c, t), s, 1);
    case L_IOTA: return t.lanes == 1 ? "0" : arena_printf(c->arena, "%s()", c_iota(c, t));
    case L_EXTRACT:
        return from.lanes == 1 ? in(e, s, 0)
                               : arena_printf(c->arena, "%s.v[%" PRId64 "]%s", text(e, s->in[0], ATOM), s->imm,
                                              t.elem == ELEM_BOOL ? " != 0" : "");
    case L_INSERT:
        return t.lanes == 1 ? in(e, s, 1)
                            : arena_printf(c->arena, "%s(%s, %s, %" PRId64 ")", c_insert(c, t), in(e, s, 0),
                                           in(e, s, 1), s->imm);
    case L_SHUFFLE: return call(e, c_shuffle(c, from, (struct ltype){t.elem, s->n_aux}, s->aux), s, 2);
    case L_HREDUCE: return from.lanes == 1 ? in(e, s, 0) : call(e, c_hreduce(c, (enum lop)s->imm, from), s, 1);
    case L_LOAD:
    case L_LOADS:
    case L_GATHER: return load(e, s);
    case L_SHARED:
        return arena_printf(c->arena, "(const void *)%s == (const void *)%s", text(e, s->in[0], ATOM),
                            text(e, s->in[1], ATOM));
    default: return arithmetic(e, s);
    }
}

static void statement(struct c_emit *e, const struct lstmt *s)
{
    if (s->op == L_YIELD || !is_used(e, s))
        return;
    switch (s->op) {
    case L_CONST: constant(e, s); return;
    case L_STORE:
    case L_STORES:
    case L_SCATTER: store(e, s); return;
    case L_LOCAL: local(e, s); return;
    case L_OFFSET: offset(e, s); return;
    case L_PREFETCH:
    case L_PREFETCH2:
        line(e);
        strbuf_printf(e->out, "PREFETCH(%s, %s, %d);\n", in(e, s, 0), in(e, s, 1), s->op == L_PREFETCH ? 3 : 2);
        return;
    case L_FOR: loop(e, s); return;
    case L_PARALLEL: {
        lreg i = e->f->blocks.data[s->block[0].i].params.data[0];
        val(e, i)->place = true;
        const char *name = new_name(e, i);
        line(e);
        strbuf_printf(e->out, "for (i64 %s = 0; %s < count; %s++) {\n", name, name, name);
        e->depth++;
        block(e, s->block[0]);
        e->depth--;
        line(e);
        strbuf_printf(e->out, "}\n");
        return;
    }
    case L_IF: branch(e, s); return;
    case L_CHECK: check(e, s); return;
    case L_CALL: call_runtime(e, s); return;
    case L_LAUNCH: launch(e, s); return;
    case L_GLOBAL:
        val(e, s->out[0])->is_const = true;
        define(e, s->out[0], "(const u8 *)weights");
        return;
    case L_ADDRESS: c_fail(e->c, "memory that is asked for at run time"); return;
    default: break;
    }
    if (place_arithmetic(e, s))
        return;
    const char *t = expression(e, s);
    struct value *r = val(e, s->out[0]);
    r->place = ltype_is_index(s->type) && gives_place(s->op) && val(e, s->in[0])->place && val(e, s->in[1])->place;
    r->is_const = s->op == L_SELECT && (val(e, s->in[1])->is_const || val(e, s->in[2])->is_const);
    r->known = (s->op == L_SPLAT || s->op == L_SHUFFLE) && val(e, s->in[0])->known &&
               (s->op == L_SPLAT || val(e, s->in[1])->known);
    define(e, s->out[0], t);
}

static void block(struct c_emit *e, lblock b)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    for (uint32_t i = 0; i < blk->stmts.n && !e->c->why; i++)
        statement(e, &blk->stmts.data[i]);
}

/* ---- the function -------------------------------------------------------------------------------------------------
 */

/* What the function calls for: a result, the scratch, what mcc_rt_kept remembers. */
static void look(const struct c_emit *e, struct c_function *made, bool *keeps)
{
    for (uint32_t b = 1; b < e->f->blocks.n; b++)
        for (uint32_t i = 0; i < e->f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &e->f->blocks.data[b].stmts.data[i];
            const struct c_function *k = s->op == L_LAUNCH ? c_function_find(e->c, s->name) : NULL;
            made->fails |= s->op == L_CHECK || (k && k->fails);
            made->scratch |= (s->op == L_LOCAL && e->f->role == LROLE_KERNEL && e->v[s->out[0].i].live) ||
                             (k && k->scratch);
            made->launches |= k && k->fails;
            *keeps |= s->op == L_CALL && strcmp(s->name, "mcc_rt_kept") == 0;
        }
}

static void put_nodes(struct c_emit *e)
{
    struct context *ctx = e->c->ctx;
    strbuf_printf(e->out, "\n");
    for (uint32_t i = 0; i < e->f->nodes.n; i++) {
        if (e->f->nodes.data[i] >= ctx->sources.n)
            continue;
        const struct source *s = &ctx->sources.data[e->f->nodes.data[i]];
        strbuf_printf(e->out, "/* ");
        c_comment(e->out, s->op ? s->op : "");
        strbuf_printf(e->out, " ");
        c_comment(e->out, source_label(s));
        strbuf_printf(e->out, " */\n");
    }
}

static void put_parameters(struct c_emit *e, const struct c_function *made)
{
    const char *comma = "";
    for (uint32_t i = 0; i < e->f->args.n; i++, comma = ", ") {
        const struct larg *a = &e->f->args.data[i];
        lreg r = {i + 1};
        val(e, r)->is_const = a->type.lanes == 0 && !(a->flags & LARG_OUT);
        val(e, r)->place = a->type.lanes == 1;
        const char *type = type_of(e, r);
        if (e->f->role == LROLE_ENTRY && a->type.lanes == 0) /* C's arrays are pointers to rows */
            type = val(e, r)->is_const ? "const void *" : "void *";
        strbuf_printf(e->out, "%s%s%s%s", comma, type, a->flags & LARG_NOALIAS && a->type.lanes == 0 ? "restrict " : "",
                      new_name(e, r));
    }
    if (made->counts)
        strbuf_printf(e->out, "%si64 count", comma);
    if (made->scratch && e->f->role != LROLE_ENTRY)
        strbuf_printf(e->out, "%su8 *scratch", made->counts ? ", " : comma);
    if (!e->f->args.n && !made->counts && !made->scratch)
        strbuf_printf(e->out, "void");
}

static void put_function(struct c_emit *e, struct c_function *made)
{
    bool keeps = false, entry = e->f->role == LROLE_ENTRY;
    look(e, made, &keeps);
    made->fails |= entry;
    put_nodes(e);
    strbuf_printf(e->out, "static %s %s(", made->fails ? "int" : "void", made->name);
    put_parameters(e, made);
    strbuf_printf(e->out, ")\n{\n");
    e->depth = 1;
    for (uint32_t i = 0; i < e->f->args.n; i++)
        if (!e->v[i + 1].uses) {
            line(e);
            strbuf_printf(e->out, "(void)%s;\n", e->v[i + 1].text);
        }
    if (made->launches)
        strbuf_printf(e->out, "    int code;\n");
    if (entry && made->scratch) /* the memory begins with it */
        strbuf_printf(e->out, "    u8 *const scratch = (u8 *)%s;\n", e->v[e->f->args.n].text);
    if (keeps)
        strbuf_printf(e->out, "    bool made = false;\n    i64 tag = 0;\n");
    block(e, (lblock){1});
    strbuf_printf(e->out, made->fails ? "    return 0;\n}\n" : "}\n");
}

bool c_function(struct c_file *c, const struct lfunc *f)
{
    struct c_emit e = {.c = c, .f = f, .out = &c->body, .v = NEW_ARRAY(c->arena, struct value, f->types.n)};
    struct c_function made = {.of = f->name, .name = c_function_name(c, f->name), .counts = f->role == LROLE_KERNEL};
    do {
        e.more = false;
        mark_block(&e, (lblock){1});
    } while (e.more);
    count_uses(&e);
    put_function(&e, &made);
    VEC_PUSH(c->arena, &c->functions, made);
    return !c->why || error_at(c->ctx, FAIL_MODEL, (src_id){f->nodes.n ? f->nodes.data[0] : 0}, NULL,
                               "--emit=c does not support %s", c->why);
}
