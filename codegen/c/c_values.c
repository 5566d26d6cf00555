/* What a value's text is: a variable that is assigned once, or an expression where it is used; and memory.
 *
 * Index arithmetic that is used once is written where it is used: it is of sizes and places, so it does not overflow.
 * Integers that come from memory may, and are computed by functions (c_ops.def). Floats are a variable for each
 * operation, which rounds them where the compiler computes with more bits.
 */
#include "codegen/c/c_emit.h"

#include <inttypes.h>

#include "ir/loop/internal.h"

void ce_indent(struct c_emit *e)
{
    for (uint32_t i = 0; i < e->depth; i++)
        strbuf_printf(e->out, "    ");
}

/* The operand's text, in parentheses where it binds less than `binds`. */
const char *ce_text(struct c_emit *e, lreg r, int binds)
{
    const struct c_value *v = ce_value(e, r);
    return v->binds >= binds ? v->text : arena_printf(e->c->arena, "(%s)", v->text);
}

const char *ce_in(struct c_emit *e, const struct lstmt *s, uint32_t i)
{
    return ce_text(e, s->in[i], 0);
}

void ce_set_text(struct c_emit *e, lreg r, const char *t, int binds)
{
    ce_value(e, r)->text = t;
    ce_value(e, r)->binds = (uint8_t)binds;
}

static const char *buffer_type(struct c_emit *e, struct ltype t, bool is_const)
{
    return arena_printf(e->c->arena, "%s%s *", is_const ? "const " : "", c_scalar(e->c, t.elem));
}

const char *ce_type(struct c_emit *e, lreg r)
{
    struct ltype t = lf_type(e->f, r);
    return t.lanes == 0 ? buffer_type(e, t, ce_value(e, r)->is_const)
                        : arena_printf(e->c->arena, "%s ", c_type(e->c, t));
}

/* A variable's name says what it is: n of an index, p of a buffer, else v. */
const char *ce_name(struct c_emit *e, lreg r)
{
    struct ltype t = lf_type(e->f, r);
    char letter = t.lanes == 0 ? 'p' : ltype_is_index(t) ? 'n' : 'v';
    ce_set_text(e, r, arena_printf(e->c->arena, "%c%u", letter, r.i), ATOM);
    return ce_value(e, r)->text;
}

void ce_define(struct c_emit *e, lreg r, const char *expression)
{
    const char *type = ce_type(e, r), *name = ce_name(e, r);
    ce_indent(e);
    strbuf_printf(e->out, lf_type(e->f, r).lanes ? "const %s%s = %s;\n" : "%sconst %s = %s;\n", type, name, expression);
}

/* f(a, b, c) of the operands from `first` on. */
const char *ce_call(struct c_emit *e, const char *function, const struct lstmt *s, uint32_t n)
{
    struct strbuf t = strbuf_of(e->c->arena);
    strbuf_printf(&t, "%s(", function);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&t, "%s%s", i ? ", " : "", ce_in(e, s, i));
    strbuf_printf(&t, ")");
    return t.data;
}

static bool fold(struct c_emit *e, const struct lstmt *s, int64_t *r)
{
    const struct c_value *a = ce_value(e, s->in[0]), *b = ce_value(e, s->in[1]);
    return a->fixed && b->fixed &&
           (s->op == L_ADD   ? add_i64(a->number, b->number, r)
            : s->op == L_SUB ? sub_i64(a->number, b->number, r)
                             : mul_i64(a->number, b->number, r));
}

static void set_number(struct c_emit *e, lreg r, int64_t number)
{
    const struct lstmt literal = {.op = L_CONST, .type = {ELEM_I64, 1}, .imm = number};
    struct c_value *v = ce_value(e, r);
    v->fixed = v->place = true;
    v->number = number;
    ce_set_text(e, r, c_literal(e->c, &literal), ATOM);
}

bool ce_place_arithmetic(struct c_emit *e, const struct lstmt *s)
{
    int64_t number;
    if (!ltype_is_index(s->type) || (s->op != L_ADD && s->op != L_SUB && s->op != L_MUL))
        return false;
    struct c_value *a = ce_value(e, s->in[0]), *b = ce_value(e, s->in[1]), *r = ce_value(e, s->out[0]);
    if (!a->place || !b->place)
        return false;
    r->place = true;
    if (fold(e, s, &number)) {
        set_number(e, s->out[0], number);
        return true;
    }
    int binds = s->op == L_MUL ? PRODUCT : SUM;
    int64_t none = s->op == L_MUL;
    const char *t = b->fixed && b->number == none ? ce_text(e, s->in[0], 0)
                    : a->fixed && a->number == none && s->op != L_SUB
                        ? ce_text(e, s->in[1], 0)
                        : arena_printf(e->c->arena, "%s %s %s", ce_text(e, s->in[0], binds),
                                       s->op == L_MUL   ? "*"
                                       : s->op == L_ADD ? "+"
                                                        : "-",
                                       ce_text(e, s->in[1], binds + 1));
    if (e->uses.of[s->out[0].i].n == 1 || !strchr(t, ' ')) {
        ce_set_text(e, s->out[0], t, strchr(t, ' ') ? binds : ATOM);
        if (!strchr(t, ' '))
            r->binds = b->fixed ? a->binds : b->binds;
    } else {
        ce_define(e, s->out[0], t);
    }
    return true;
}

const char *ce_arithmetic(struct c_emit *e, const struct lstmt *s)
{
    struct ltype operand = lf_type(e->f, s->in[0]);
    struct lstmt turned = *s;
    lreg swapped[2];
    bool known = false;
    const char *infix = c_infix(s, operand);
    if (infix)
        return arena_printf(e->c->arena, "%s %s %s", ce_text(e, s->in[0], ATOM), infix, ce_text(e, s->in[1], ATOM));
    if (s->op == L_FMA && s->type.elem == ELEM_F16)
        return ce_call(e, c_half_fma(e->c, s->type), s, 3);
    if (s->op == L_MIN || s->op == L_MAX) { /* where one operand is a constant, the other one may be NaN and wins */
        known = ce_value(e, s->in[0])->known || ce_value(e, s->in[1])->known;
        if (known && !ce_value(e, s->in[0])->known) {
            swapped[0] = s->in[1];
            swapped[1] = s->in[0];
            turned.in = e->c->machine.aarch64 ? s->in : swapped;
        }
    }
    const char *name = c_operation(e->c, s->op, s->type, operand, s->n_in, known);
    return ce_call(e, name, &turned, s->n_in);
}

/* A vector constant, or a scalar one that takes more than a literal. */
void ce_constant(struct c_emit *e, const struct lstmt *s)
{
    const char *literal = c_literal(e->c, s);
    struct c_value *v = ce_value(e, s->out[0]);
    bool number = ltype_is_index(s->type);
    v->known = c_is_float(s->type.elem) && s->fimm == s->fimm;
    if (number)
        set_number(e, s->out[0], s->imm);
    else if (s->type.lanes == 1 && (*literal != '-' || v->known))
        ce_set_text(e, s->out[0], *literal == '-' ? arena_printf(e->c->arena, "(%s)", literal) : literal, ATOM);
    else if (s->type.lanes == 1)
        ce_set_text(e, s->out[0], literal, ATOM);
    else
        ce_define(e, s->out[0], arena_printf(e->c->arena, "%s(%s)", c_splat(e->c, s->type), literal));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const char *address(struct c_emit *e, const struct lstmt *s)
{
    const char *buffer = ce_text(e, s->in[0], ATOM), *index = ce_in(e, s, 1);
    return strcmp(index, "0") == 0 ? buffer : arena_printf(e->c->arena, "&%s[%s]", buffer, index);
}

const char *ce_load(struct c_emit *e, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    const char *mask = m.mask < 0 ? NULL : ce_in(e, s, (uint32_t)m.mask);
    bool is_bool = s->type.elem == ELEM_BOOL;
    if (s->type.lanes == 1) {
        const char *element = arena_printf(e->c->arena, "%s[%s]%s", ce_text(e, s->in[0], ATOM), ce_in(e, s, 1),
                                           is_bool ? " != 0" : "");
        return mask ? arena_printf(e->c->arena, "%s ? %s : 0", mask, element) : element;
    }
    const char *name = c_memory(e->c, s->op, s->type, lf_type(e->f, s->in[1]).elem, mask != NULL);
    const char *at = s->op == L_GATHER ? arena_printf(e->c->arena, "%s, %s", ce_text(e, s->in[0], ATOM), ce_in(e, s, 1))
                     : m.stride < 0
                         ? address(e, s)
                         : arena_printf(e->c->arena, "%s, %s", address(e, s), ce_in(e, s, (uint32_t)m.stride));
    return arena_printf(e->c->arena, "%s(%s%s%s)", name, at, mask ? ", " : "", mask ? mask : "");
}

void ce_store(struct c_emit *e, const struct lstmt *s)
{
    struct lmem m = lstmt_mem(s);
    struct ltype t = lf_type(e->f, s->in[m.value]);
    const char *mask = m.mask < 0 ? NULL : ce_in(e, s, (uint32_t)m.mask), *value = ce_in(e, s, (uint32_t)m.value);
    ce_indent(e);
    if (t.lanes == 1) {
        if (mask) {
            strbuf_printf(e->out, "if (%s)\n", mask);
            e->depth++;
            ce_indent(e);
            e->depth--;
        }
        strbuf_printf(e->out, "%s[%s] = %s;\n", ce_text(e, s->in[0], ATOM), ce_in(e, s, 1), value);
        return;
    }
    const char *name = c_memory(e->c, s->op, t, ELEM_I64, mask != NULL);
    const char *at = s->op == L_SCATTER
                         ? arena_printf(e->c->arena, "%s, %s", ce_text(e, s->in[0], ATOM), ce_in(e, s, 1))
                     : m.stride < 0
                         ? address(e, s)
                         : arena_printf(e->c->arena, "%s, %s", address(e, s), ce_in(e, s, (uint32_t)m.stride));
    strbuf_printf(e->out, "%s(%s, %s%s%s);\n", name, at, value, mask ? ", " : "", mask ? mask : "");
}

/* Kernels have their LOCALs in the scratch, one place each, programs in their frame. */
void ce_local(struct c_emit *e, const struct lstmt *s)
{
    int64_t bytes = (s->imm * elem_size(s->type.elem) + 63) & ~(int64_t)63;
    const char *scalar = c_scalar(e->c, s->type.elem), *name;
    if (e->f->role == LROLE_KERNEL) {
        ce_define(e, s->out[0], arena_printf(e->c->arena, "(%s *)(void *)(scratch + %" PRId64 ")", scalar, e->scratch));
        ce_indent(e); /* tags that "made" stands for are not used otherwise */
        strbuf_printf(e->out, "(void)%s;\n", ce_value(e, s->out[0])->text);
        e->scratch += bytes;
        return;
    }
    name = ce_name(e, s->out[0]);
    ce_indent(e);
    strbuf_printf(e->out, "_Alignas(64) %s %s[%" PRId64 "] = {0};\n", scalar, name, s->imm > 0 ? s->imm : 1);
}

void ce_offset(struct c_emit *e, const struct lstmt *s)
{
    const struct c_value *from = ce_value(e, s->in[0]), *by = ce_value(e, s->in[1]);
    bool is_const = ce_value(e, s->out[0])->is_const = from->is_const;
    const char *scalar = c_scalar(e->c, s->type.elem), *k = is_const ? "const " : "";
    if (by->fixed && by->number == 0)
        ce_define(e, s->out[0], arena_printf(e->c->arena, "(%s%s *)(%svoid *)%s", k, scalar, k, from->text));
    else
        ce_define(e, s->out[0],
                  arena_printf(e->c->arena, "(%s%s *)(%svoid *)((%su8 *)%s + %s)", k, scalar, k, k, from->text,
                               ce_text(e, s->in[1], SUM + 1)));
}
