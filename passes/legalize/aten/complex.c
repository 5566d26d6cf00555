/* Complex numbers: within a graph a tensor of them is a list of two tensors, the real and the imaginary parts.
 *
 * Operators that move elements, and linear ones, run their rule on each part. Others have a rule here.
 */
#include "passes/legalize/aten/complex.h"

#include <math.h>

bool complex_is(const struct rule *r, uint32_t i)
{
    return rule_has(r, i) && r->arg[i].kind == LOWERED_LIST;
}

struct pair complex_in(struct rule *r, uint32_t i, const char *name, enum elem e)
{
    if (complex_is(r, i) && r->arg[i].n == 2)
        return (struct pair){b_convert(r->b, r->arg[i].items[0].v, e), b_convert(r->b, r->arg[i].items[1].v, e)};
    value_id re = aten_operand(r, i, name, e);
    return (struct pair){re, re.i ? b_splat_like(r->b, re, 0) : re};
}

bool complex_out(struct rule *r, struct pair p)
{
    struct lowered *items = NEW_ARRAY(r->lg->arena, struct lowered, 2);
    enum elem e = aten_elem(r, 0);
    e = e == ELEM_NONE ? v_elem(r->b, p.re) : e;
    items[0] = lowered_value(b_convert(r->b, p.re, e));
    items[1] = lowered_value(b_convert(r->b, p.im, e));
    r->out[0] = (struct lowered){.kind = LOWERED_LIST, .items = items, .n = 2, .elem = e};
    return items[0].v.i && items[1].v.i;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

/* The type of the parts, of operand 0 or 1 or of the result. */
static enum elem part_elem(struct rule *r)
{
    enum elem e = aten_elem(r, 0);
    for (uint32_t i = 0; i < 2; i++)
        if (complex_is(r, i))
            return e == ELEM_NONE || elem_class(e) != 'F' ? v_elem(r->b, r->arg[i].items[0].v) : e;
    return e;
}

static value_id product_sum(struct builder *b, enum op op, value_id x, value_id y, value_id z, value_id w)
{
    return b_binary(b, op, b_binary(b, OP_MUL, x, y), b_binary(b, OP_MUL, z, w));
}

static struct pair times(struct builder *b, struct pair x, struct pair y)
{
    return (struct pair){product_sum(b, OP_SUB, x.re, y.re, x.im, y.im),
                         product_sum(b, OP_ADD, x.re, y.im, x.im, y.re)};
}

static bool complex_mul(struct rule *r)
{
    enum elem e = part_elem(r);
    return complex_out(r, times(r->b, complex_in(r, 0, "self", e), complex_in(r, 1, "other", e)));
}

static bool complex_div(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = part_elem(r);
    struct pair x = complex_in(r, 0, "self", e), y = complex_in(r, 1, "other", e);
    if (*rule_str(r, "rounding_mode", ""))
        return rule_refuse(r, "rounding_mode with complex numbers");
    if (!complex_is(r, 1)) /* keeps infinities and zeros as they are */
        return complex_out(r, (struct pair){b_binary(b, OP_DIV, x.re, y.re), b_binary(b, OP_DIV, x.im, y.re)});
    value_id norm = product_sum(b, OP_ADD, y.re, y.re, y.im, y.im);
    struct pair q = times(b, x, (struct pair){y.re, b_unary(b, OP_NEG, y.im)});
    return complex_out(r, (struct pair){b_binary(b, OP_DIV, q.re, norm), b_binary(b, OP_DIV, q.im, norm)});
}

/* self + alpha * other; param as rule_aten_sum has it. */
static bool complex_sum(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = part_elem(r);
    struct pair x = complex_in(r, 0, "self", e), y = complex_in(r, 1, "other", e), swap;
    bool turned = r->param < 0;
    enum op op = (enum op)(turned ? -r->param : r->param);
    value_id alpha = rule_has(r, 2) || node_attr(r->node, "alpha") ? aten_operand(r, 2, "alpha", e) : (value_id){0};
    struct pair *scaled = turned ? &x : &y;
    if (alpha.i && aten_float(r, "alpha", 0) != 1)
        *scaled = (struct pair){b_binary(b, OP_MUL, scaled->re, alpha), b_binary(b, OP_MUL, scaled->im, alpha)};
    if (turned) {
        swap = x;
        x = y;
        y = swap;
    }
    value_id re = b_binary(b, op, x.re, y.re), im = b_binary(b, op, x.im, y.im);
    return complex_out(r, (struct pair){re, im});
}

/* The length, in f64 so that no square is out of range where the length is not. */
static bool complex_abs(struct rule *r)
{
    struct pair x = complex_in(r, 0, "self", ELEM_F64);
    return aten_result(r, b_unary(r->b, OP_SQRT, product_sum(r->b, OP_ADD, x.re, x.re, x.im, x.im)));
}

/* e^re (cos im, sin im) */
static bool complex_exp(struct rule *r)
{
    struct builder *b = r->b;
    struct pair x = complex_in(r, 0, "self", part_elem(r));
    value_id size = b_unary(b, OP_EXP, x.re);
    return complex_out(r, (struct pair){b_binary(b, OP_MUL, size, b_unary(b, OP_COS, x.im)),
                                        b_binary(b, OP_MUL, size, b_unary(b, OP_SIN, x.im))});
}

static bool complex_matmul(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = part_elem(r);
    struct pair x = complex_in(r, 0, "self", e), y = complex_in(r, 1, "other", e);
    if (!complex_is(r, 0) || !complex_is(r, 1))
        return rule_refuse(r, "one matrix is complex and the other is real: convert the real one before the export");
    value_id re = b_binary(b, OP_SUB, b_matmul(b, x.re, y.re), b_matmul(b, x.im, y.im));
    value_id im = b_binary(b, OP_ADD, b_matmul(b, x.re, y.im), b_matmul(b, x.im, y.re));
    return complex_out(r, (struct pair){re, im});
}

/* To complex numbers of another precision, or from real ones. */
static bool complex_to(struct rule *r)
{
    enum elem e = aten_elem(r, 0);
    if (e == ELEM_NONE || !complex_result(r))
        return rule_refuse(r, "the conversion drops the imaginary part: use .real");
    struct pair x = complex_in(r, 0, "self", e);
    return x.re.i && complex_out(r, (struct pair){x.re, b_broadcast_like(r->b, x.im, x.re)});
}

/* ---- rows of their own ----------------------------------------------------------------------------------------- */

/* A last dim of two: the parts. */
bool rule_aten_view_as_real(struct rule *r)
{
    if (!complex_is(r, 0))
        return rule_bad(r, "the operand is real, and a complex one is needed");
    value_id parts[2];
    for (uint32_t k = 0; k < 2; k++)
        parts[k] = b_unsqueeze(r->b, r->arg[0].items[k].v, v_rank(r->b, r->arg[0].items[k].v));
    return rule_result(r, b_concat(r->b, parts, 2, v_rank(r->b, parts[0]) - 1));
}

bool rule_aten_view_as_complex(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t last = v_rank(r->b, x) - 1;
    if (!x.i)
        return false;
    if (last < 0 || !ex_is(r->b->x, b_dim(r->b, x, last), 2))
        return rule_bad(r, "the last dimension is not of size 2, for real and imaginary parts");
    return complex_out(r, complex_of(r->b, x));
}

struct pair complex_of(struct builder *b, value_id parts)
{
    int32_t last = v_rank(b, parts) - 1;
    expr_id one = ex_const(b->x, 1);
    return (struct pair){b_squeeze(b, b_slice_axis(b, parts, last, ex_const(b->x, 0), one), last),
                         b_squeeze(b, b_slice_axis(b, parts, last, one, one), last)};
}

/* param: 0 complex(real, imaginary), 1 polar(length, angle) */
bool rule_aten_complex(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), y = rule_in(r, 1);
    if (r->param) {
        value_id angle = y;
        y = b_binary(b, OP_MUL, x, b_unary(b, OP_SIN, angle));
        x = b_binary(b, OP_MUL, x, b_unary(b, OP_COS, angle));
    }
    int32_t rank;
    expr_id dims[RANK_MAX];
    const struct dims dims_x = b_dims(b, x), dims_y = b_dims(b, y);
    if (!dims_x.d || !dims_y.d || (rank = b_broadcast_dims(b, dims_x.d, dims_x.rank, dims_y.d, dims_y.rank, dims)) < 0)
        return false;
    return complex_out(r, (struct pair){b_broadcast(b, x, dims, rank), b_broadcast(b, y, dims, rank)});
}

/* param: 0 real, 1 imaginary. Real numbers are their own real part. */
bool rule_aten_complex_part(struct rule *r)
{
    if (complex_is(r, 0))
        return rule_result(r, r->arg[0].items[r->param].v);
    return r->param ? rule_bad(r, "the operand is real and has no imaginary part") : rule_result(r, rule_in(r, 0));
}

bool rule_aten_conj(struct rule *r)
{
    if (!complex_is(r, 0))
        return rule_result(r, rule_in(r, 0));
    return complex_out(r, (struct pair){r->arg[0].items[0].v, b_unary(r->b, OP_NEG, r->arg[0].items[1].v)});
}

bool rule_aten_angle(struct rule *r)
{
    struct builder *b = r->b;
    if (complex_is(r, 0)) {
        struct pair x = complex_in(r, 0, "self", part_elem(r));
        return aten_result(r, b_binary(b, OP_ATAN2, x.im, x.re));
    }
    value_id x = rule_in(r, 0);
    enum elem e = aten_elem(r, 0);
    x = b_convert(b, x, e == ELEM_NONE ? ELEM_F32 : e);
    value_id y = b_select(b, b_binary(b, OP_LT, x, b_splat_like(b, x, 0)), b_splat_like(b, x, M_PI),
                          b_splat_like(b, x, 0));
    return aten_result(r, b_select(b, b_unary(b, OP_ISNAN, x), x, y));
}

/* ---- which rule ------------------------------------------------------------------------------------------------ */

bool complex_result(const struct rule *r)
{
    for (uint32_t k = 0; k < r->n_out; k++)
        if (r->node->out[k].i) {
            const struct type *t = value_type(r->lg->from, r->node->out[k]);
            if (t->kind == TYPE_TENSOR && elem_class(t->elem) == 'C')
                return true;
        }
    return false;
}

/* Is the operator's name, without its overload, in a list of names between spaces? */
static bool is_named(const struct rule *r, const char *list)
{
    const char *dot = strchr(r->op, '.');
    size_t n = dot ? (size_t)(dot - r->op) : strlen(r->op);
    for (const char *at = list; (at = strchr(at, ' ')) && at[1]; at++)
        if (strncmp(at + 1, r->op, n) == 0 && at[1 + n] == ' ')
            return true;
    return false;
}

/* Is operand i a tensor whose elements are in the result, next to those of others? */
static bool is_element(struct rule *r, uint32_t i)
{
    uint32_t n, first = aten_list(r, 0, &n);
    return is_named(r, " cat concat stack ") ? i >= first && i - first < n
                                             : is_named(r, " slice_scatter select_scatter ") && i < 2;
}

/* Each part by the rule, which moves elements or is linear. */
static bool by_parts(struct rule *r, rule_fn *rule)
{
    struct lowered *out[2], *items;
    bool any = false;
    for (uint32_t i = 0; i < r->n_in; i++)
        any |= complex_is(r, i);
    if (!any || (aten_elem(r, 0) != ELEM_NONE && !complex_result(r)))
        return rule_refuse(
            r, "the operand is real where a complex one is needed, or the reverse: use torch.complex, .real or .abs()");
    for (uint32_t part = 0; part < 2; part++) {
        struct lowered *arg = NEW_ARRAY(r->lg->arena, struct lowered, r->n_in + 1);
        struct rule one = *r;
        for (uint32_t i = 0; i < r->n_in; i++)
            arg[i] = complex_is(r, i)                             ? r->arg[i].items[part]
                     : part && rule_has(r, i) && is_element(r, i) ? lowered_value(b_splat_like(r->b, rule_in(r, i), 0))
                                                                  : r->arg[i];
        one.arg = arg;
        one.out = out[part] = NEW_ARRAY(r->lg->arena, struct lowered, r->n_out + 1);
        if (!rule(&one))
            return false;
    }
    for (uint32_t k = 0; k < r->n_out; k++) {
        items = NEW_ARRAY(r->lg->arena, struct lowered, 2);
        items[0] = out[0][k];
        items[1] = out[1][k];
        if (items[0].kind == LOWERED_VALUE && items[1].kind == LOWERED_VALUE)
            r->out[k] = (struct lowered){
                .kind = LOWERED_LIST, .items = items, .n = 2, .elem = v_elem(r->b, items[0].v)};
    }
    return true;
}

static bool is_complex(const struct rule *r)
{
    bool found = complex_result(r);
    for (uint32_t i = 0; i < r->n_in; i++)
        found |= complex_is(r, i);
    return found && strcmp(r->node->domain, "aten") == 0;
}

bool rule_numbers(struct rule *r, rule_fn *rule)
{
    static const char by_rule[] =
        " view_as_real view_as_complex complex polar real imag conj _conj conj_physical angle fft_fft fft_ifft fft_rfft "
        "fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn _fft_c2c _fft_r2c "
        "_fft_c2r stft istft ";
    static const char of_parts[] =
        " neg sum mean alias clone contiguous detach lift_fresh lift_fresh_copy resolve_conj resolve_neg positive view "
        "_unsafe_view reshape view_as reshape_as expand_as flatten unflatten unsqueeze squeeze permute transpose "
        "swapaxes swapdims t numpy_T mT movedim expand broadcast_to slice select narrow slice_scatter select_scatter "
        "cat concat stack split split_with_sizes chunk unbind tensor_split flip roll index index_select unfold diagonal "
        "fft_fftshift fft_ifftshift ";
    static const struct {
        const char *names;
        rule_fn *rule;
    } own[] = {{" mul multiply ", complex_mul},
               {" div divide true_divide ", complex_div},
               {" add sub subtract rsub ", complex_sum},
               {" abs ", complex_abs},
               {" exp ", complex_exp},
               {" mm bmm matmul ", complex_matmul},
               {" to _to_copy type_as ", complex_to}};
    if (!is_complex(r))
        return rule_move(r, rule);
    if (is_named(r, by_rule))
        return rule(r);
    if (is_named(r, of_parts))
        return by_parts(r, rule);
    for (uint32_t i = 0; i < COUNT_OF(own); i++)
        if (is_named(r, own[i].names))
            return own[i].rule(r);
    return rule_refuse(r, "it has no lowering for complex numbers: compute with .real and .imag");
}
