/* See networks.h. */
#include "tests/fuzz/networks.h"

#include "passes/legalize/legalize.h"
#include "tests/text/text.h"

#include <stdarg.h>
#include <string.h>

enum { OPEN = -1 }; /* an extent: the symbol */

/* ---- parts of networks ------------------------------------------------------------------------------------------- */

/* What follows belongs to the next node. */
static void node(struct draw *d)
{
    const char *name = arena_printf(&d->ctx->session, "n%u", d->ctx->sources.n ? d->ctx->sources.n - 1 : 0);
    d->b.src = source_add(d->ctx, (struct source){.name = name, .op = "Test", .domain = "", .output = name});
}

static uint32_t dims_of(struct draw *d, const int64_t *size, expr_id *dims)
{
    uint32_t n = 0;
    for (; size[n]; n++)
        dims[n] = size[n] == OPEN ? ex_sym(d->x, d->symbol[0]) : ex_const(d->x, size[n]);
    return n;
}

/* Multiples of 1/4: sums of few products are exact. A drawn constant may be one number everywhere, which leaves
 * decisions out. */
static value_id constant(struct draw *d, enum elem e, const int64_t *size)
{
    int64_t count = 1;
    uint32_t rank = 0;
    while (size[rank])
        count *= size[rank++];
    char *data = arena_alloc(&d->g->arena, (size_t)count * elem_size(e));
    for (int64_t i = 0; i < count; i++)
        if (elem_class(e) == 'F')
            elem_from_f64(e, (double)draw_int(d, -8, 8) / 4, data + i * elem_size(e));
        else
            elem_from_i64(e, draw_int(d, elem_class(e) == 'I' ? -9 : 0, 9), data + i * elem_size(e));
    return b_const(&d->b, e, size, (int32_t)rank, data);
}

static value_id leaf(struct draw *d, enum elem e, bool is_constant, const int64_t *size)
{
    expr_id dims[RANK_MAX];
    uint32_t n = dims_of(d, size, dims);
    return is_constant ? constant(d, e, size) : draw_leaf(d, e, dims, (int32_t)n, false).v;
}
#define INPUT(d, e, ...) leaf(d, e, false, (const int64_t[]){__VA_ARGS__, 0})
#define CONST(d, e, ...) leaf(d, e, true, (const int64_t[]){__VA_ARGS__, 0})

static void open_symbol(struct draw *d, int64_t extent)
{
    d->extent[0] = extent;
    d->symbol[d->n_symbols++] = sym_new(d->x, SYM_SHAPE, "n", 0, INT64_MAX);
}

static void result(struct draw *d, value_id v)
{
    uint32_t k = d->g->outputs.n;
    if (!v.i)
        return;
    graph_add_result(d->g, (region_id){1}, v);
    VEC_PUSH(&d->g->arena, &d->g->outputs, ((struct port){arena_printf(&d->g->arena, "out%u", k), NULL, v}));
    d->output[k] = (struct drawn){.v = v};
}

static value_id relu(struct draw *d, value_id v)
{
    node(d);
    return b_binary_f64(&d->b, OP_MAX, v, 0);
}

struct conv {
    int64_t channels, taps, stride, pad, groups;
    enum elem weights, acc; /* acc ELEM_NONE: as the operands */
};
static value_id conv(struct draw *d, value_id x, struct conv c)
{
    const int64_t strides[2] = {c.stride, c.stride}, one[2] = {1, 1};
    int64_t in = 0;
    node(d);
    if (!x.i)
        return x;
    ex_is_const(d->x, b_dims(&d->b, x).d[1], &in);
    expr_id pad[2] = {ex_const(d->x, c.pad), ex_const(d->x, c.pad)};
    const int64_t size[] = {c.channels, in / c.groups, c.taps, c.taps, 0};
    struct attr a[] = {attr_ints("strides", strides, 2), attr_exprs("lo", pad, 2),  attr_exprs("hi", pad, 2),
                       attr_ints("dilations", one, 2),   attr_ints("xdil", one, 2), attr_int("groups", c.groups),
                       attr_elem("acc", c.acc)};
    value_id operands[2] = {x, leaf(d, c.weights ? c.weights : ELEM_F32, true, size)};
    return b_op(&d->b, OP_CONV, operands, 2, a, c.acc ? 7 : 6);
}

static value_id product(struct draw *d, value_id a, value_id b, enum elem acc)
{
    node(d);
    return b_matmul_acc(&d->b, a, b, acc);
}

static value_id reduced(struct draw *d, value_id v, int64_t axis, const char *monoid)
{
    node(d);
    return b_reduce(&d->b, v, &axis, 1, monoid, false);
}

static value_id argmax(struct draw *d, value_id v, int64_t axis)
{
    const struct attr a[] = {attr_int("axis", axis), attr_int("max", 1), attr_int("last", 0)};
    node(d);
    return b_op(&d->b, OP_ARGREDUCE, &v, 1, a, 3);
}

static value_id window(struct draw *d, value_id v, int64_t taps, int64_t stride, const char *monoid)
{
    const int64_t kernel[2] = {taps, taps}, strides[2] = {stride, stride}, one[2] = {1, 1};
    const expr_id pad[2] = {ex_const(d->x, 1), ex_const(d->x, 1)};
    const struct attr a[] = {attr_str("monoid", monoid),       attr_ints("kernel", kernel, 2),
                             attr_ints("strides", strides, 2), attr_exprs("lo", pad, 2),
                             attr_exprs("hi", pad, 2),         attr_ints("dilations", one, 2)};
    node(d);
    return b_op(&d->b, OP_WINDOW, &v, 1, a, COUNT_OF(a));
}

static value_id cumulated(struct draw *d, value_id v, int64_t axis)
{
    const struct attr a[] = {attr_int("axis", axis), attr_str("monoid", "sum"), attr_int("exclusive", axis & 1),
                             attr_int("reverse", axis & 1)};
    node(d);
    return b_op(&d->b, OP_CUMULATE, &v, 1, a, COUNT_OF(a));
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

static void products(struct draw *d)
{
    value_id y = product(d, INPUT(d, ELEM_F32, 7, 64), CONST(d, ELEM_F32, 64, 320), ELEM_NONE);
    result(d, relu(d, y));
    result(d, product(d, INPUT(d, ELEM_F32, 3, 5, 20), INPUT(d, ELEM_F32, 3, 20, 33), ELEM_NONE));
}

static void open_product(struct draw *d)
{
    open_symbol(d, 13);
    value_id y = product(d, INPUT(d, ELEM_F32, OPEN, 48), CONST(d, ELEM_F32, 48, 100), ELEM_NONE);
    result(d, relu(d, y));
    result(d, product(d, INPUT(d, ELEM_F32, 9, 16), INPUT(d, ELEM_F32, 16, OPEN), ELEM_NONE));
}

static void rows(struct draw *d)
{
    result(d, product(d, INPUT(d, ELEM_F32, 1, 130), CONST(d, ELEM_F32, 130, 200), ELEM_NONE));
    result(d, product(d, INPUT(d, ELEM_F32, 12, 600), CONST(d, ELEM_F32, 600, 72), ELEM_NONE));
}

static void wide_product(struct draw *d)
{
    result(d, product(d, INPUT(d, ELEM_F64, 6, 30), CONST(d, ELEM_F64, 30, 41), ELEM_NONE));
    result(d, product(d, INPUT(d, ELEM_I64, 3, 9), CONST(d, ELEM_I64, 9, 11), ELEM_NONE));
}

static void narrow_product(struct draw *d)
{
    result(d, product(d, INPUT(d, ELEM_F16, 6, 40), CONST(d, ELEM_F16, 40, 50), ELEM_NONE));
    result(d, product(d, INPUT(d, ELEM_BF16, 6, 40), CONST(d, ELEM_BF16, 40, 70), ELEM_F32));
    result(d, product(d, INPUT(d, ELEM_BF16, 5, 40), INPUT(d, ELEM_BF16, 40, 33), ELEM_F32));
}

/* Numbers of one byte that are no integers: nothing sums them in fours. */
static void small_product(struct draw *d)
{
    result(d, product(d, INPUT(d, ELEM_F8E4M3FN, 6, 40), CONST(d, ELEM_F8E4M3FN, 40, 50), ELEM_F32));
    result(d, product(d, INPUT(d, ELEM_F8E5M2, 1, 40), CONST(d, ELEM_F8E5M2, 40, 70), ELEM_F32));
    result(d, product(d, INPUT(d, ELEM_F8E4M3FNUZ, 5, 40), INPUT(d, ELEM_F8E4M3FNUZ, 40, 33), ELEM_F32));
}

static void byte_product(struct draw *d)
{
    value_id y = product(d, INPUT(d, ELEM_U8, 9, 37), CONST(d, ELEM_I8, 37, 50), ELEM_I32);
    node(d);
    y = b_clamp(&d->b, y, 0, 255);
    result(d, b_convert(&d->b, y, ELEM_U8));
    result(d, product(d, INPUT(d, ELEM_I8, 4, 64), CONST(d, ELEM_I8, 64, 48), ELEM_I32));
}

/* Weights that the kernel computes of bytes: panels that are computed first. */
static void packed_product(struct draw *d)
{
    node(d);
    value_id w = b_convert(&d->b, CONST(d, ELEM_I8, 64, 80), ELEM_F32);
    w = b_binary_f64(&d->b, OP_MUL, w, 0.0625);
    result(d, product(d, INPUT(d, ELEM_F32, 40, 64), w, ELEM_NONE));
    open_symbol(d, 30);
    result(d, product(d, INPUT(d, ELEM_F32, OPEN, 64), w, ELEM_NONE));
}

static void winograd(struct draw *d)
{
    value_id x = INPUT(d, ELEM_F32, 2, 24, 13, 12);
    x = relu(d, conv(d, x, (struct conv){32, 3, 1, 1, 1, ELEM_F32, ELEM_NONE}));
    result(d, conv(d, x, (struct conv){40, 3, 1, 1, 1, ELEM_F32, ELEM_NONE}));
}

static void mapped_winograd(struct draw *d)
{
    value_id x = conv(d, INPUT(d, ELEM_F32, 1, 8, 9, 11), (struct conv){17, 1, 1, 0, 1, ELEM_F32, ELEM_NONE});
    node(d);
    value_id y = b_binary(&d->b, OP_ADD, b_binary(&d->b, OP_MUL, x, CONST(d, ELEM_F32, 17, 1, 1)), x);
    result(d, conv(d, y, (struct conv){33, 3, 1, 1, 1, ELEM_F32, ELEM_NONE}));
    result(d, x);
}

static void convolutions(struct draw *d)
{
    value_id x = conv(d, INPUT(d, ELEM_F32, 2, 3, 17, 21), (struct conv){8, 3, 2, 1, 1, ELEM_F32, ELEM_NONE});
    x = relu(d, conv(d, relu(d, x), (struct conv){48, 1, 1, 0, 1, ELEM_F32, ELEM_NONE}));
    x = relu(d, conv(d, x, (struct conv){48, 3, 1, 1, 48, ELEM_F32, ELEM_NONE}));
    x = conv(d, x, (struct conv){20, 1, 1, 0, 1, ELEM_F32, ELEM_NONE});
    result(d, window(d, x, 3, 2, "max"));
    result(d, conv(d, x, (struct conv){24, 3, 2, 1, 4, ELEM_F32, ELEM_NONE}));
}

static void open_convolutions(struct draw *d)
{
    open_symbol(d, 3);
    value_id x = conv(d, INPUT(d, ELEM_F32, OPEN, 16, 9, 10), (struct conv){32, 1, 1, 0, 1, ELEM_F32, ELEM_NONE});
    x = conv(d, relu(d, x), (struct conv){32, 3, 2, 1, 1, ELEM_F32, ELEM_NONE});
    result(d, reduced(d, reduced(d, x, 3, "sum"), 2, "sum"));
}

/* An operand that the kernel computes for itself: a map behind one with two readers, by points and by rows. */
static void staged(struct draw *d)
{
    value_id x = conv(d, INPUT(d, ELEM_F32, 1, 16, 14, 14), (struct conv){40, 1, 1, 0, 1, ELEM_F32, ELEM_NONE});
    node(d);
    value_id y = b_binary(&d->b, OP_MUL, x, b_unary(&d->b, OP_SIGMOID, x));
    result(d, conv(d, y, (struct conv){24, 1, 1, 0, 1, ELEM_F32, ELEM_NONE}));
    node(d);
    y = b_binary(&d->b, OP_ADD, b_binary(&d->b, OP_MUL, x, CONST(d, ELEM_F32, 40, 1, 1)), x);
    result(d, conv(d, y, (struct conv){24, 3, 1, 1, 1, ELEM_F32, ELEM_NONE}));
    result(d, x);
}

static void byte_convolutions(struct draw *d)
{
    value_id x = INPUT(d, ELEM_U8, 1, 24, 9, 9);
    value_id y = conv(d, x, (struct conv){40, 1, 1, 0, 1, ELEM_I8, ELEM_I32});
    node(d);
    y = b_convert(&d->b, b_clamp(&d->b, b_binary_f64(&d->b, OP_SHR, y, 4), 0, 255), ELEM_U8);
    result(d, conv(d, y, (struct conv){40, 3, 1, 1, 40, ELEM_I8, ELEM_I32}));
    result(d, conv(d, x, (struct conv){17, 3, 2, 1, 1, ELEM_I8, ELEM_I32}));
}

static value_id attended(struct draw *d, value_id q, value_id k, value_id v)
{
    static const int64_t last[] = {2};
    value_id z = product(d, q, k, ELEM_NONE);
    node(d);
    z = b_binary_f64(&d->b, OP_MUL, z, 0.125);
    return product(d, v_softmax(&d->b, z, last, 1, false), v, ELEM_NONE);
}

static void attention(struct draw *d)
{
    result(d, attended(d, INPUT(d, ELEM_F32, 2, 35, 16), INPUT(d, ELEM_F32, 2, 16, 45), INPUT(d, ELEM_F32, 2, 45, 24)));
}

static void cached_attention(struct draw *d)
{
    open_symbol(d, 140);
    result(d,
           attended(d, INPUT(d, ELEM_F32, 1, 9, 20), INPUT(d, ELEM_F32, 1, 20, OPEN), INPUT(d, ELEM_F32, 1, OPEN, 16)));
}

static void maps(struct draw *d)
{
    static const int64_t swap[] = {0, 2, 1}, last[] = {0, 2, 3, 1};
    value_id x = INPUT(d, ELEM_F32, 3, 40, 36), u = INPUT(d, ELEM_U8, 3, 33, 36);
    node(d);
    value_id t = b_transpose(&d->b, x, swap);
    result(d, b_binary(&d->b, OP_ADD, t, t));
    node(d);
    result(d, b_copy(&d->b, b_transpose(&d->b, u, swap)));
    node(d);
    result(d, b_copy(&d->b, b_transpose(&d->b, INPUT(d, ELEM_F32, 1, 3, 11, 23), last)));
    node(d);
    result(d, b_unary(&d->b, OP_EXP, INPUT(d, ELEM_F64, 5, 19)));
    node(d);
    result(d, b_convert(&d->b, b_unary(&d->b, OP_ABS, INPUT(d, ELEM_F16, 4, 50)), ELEM_U8));
    node(d);
    result(d, b_binary(&d->b, OP_ADD, INPUT(d, ELEM_BF16, 300), CONST(d, ELEM_BF16, 300)));
    node(d);
    result(d, b_binary(&d->b, OP_MAX, INPUT(d, ELEM_U8, 4, 600), INPUT(d, ELEM_U8, 4, 600)));
    node(d);
    result(d, b_binary(&d->b, OP_LT, INPUT(d, ELEM_I16, 7, 130), INPUT(d, ELEM_I16, 7, 130)));
}

static void padded(struct draw *d)
{
    value_id x = INPUT(d, ELEM_F32, 2, 5, 40), both[2] = {x, INPUT(d, ELEM_F32, 2, 5, 21)};
    expr_id zero = ex_const(d->x, 0), lo[3] = {zero, ex_const(d->x, 2), ex_const(d->x, 3)},
            hi[3] = {zero, zero, ex_const(d->x, 9)};
    node(d);
    result(d, b_unary(&d->b, OP_ABS, b_pad(&d->b, x, (value_id){0}, lo, hi, "reflect")));
    node(d);
    result(d, b_unary(&d->b, OP_ABS, b_pad(&d->b, x, (value_id){0}, lo, hi, "constant")));
    node(d);
    result(d, b_unary(&d->b, OP_NEG, b_concat(&d->b, both, 2, 2)));
}

static void open_maps(struct draw *d)
{
    static const int64_t swap[] = {1, 0};
    open_symbol(d, 37);
    value_id x = INPUT(d, ELEM_F32, OPEN, 21);
    node(d);
    result(d, b_unary(&d->b, OP_ABS, b_transpose(&d->b, x, swap)));
    node(d);
    result(d, b_binary_f64(&d->b, OP_ADD, INPUT(d, ELEM_U8, 3, OPEN), 5));
}

/* Rows with sums of their own, and values that are kept for the length of one. */
static void rows_with_sums(struct draw *d)
{
    static const int64_t last[] = {2};
    value_id x = INPUT(d, ELEM_F32, 2, 5, 70);
    node(d);
    result(d, v_softmax(&d->b, x, last, 1, false));
    node(d);
    value_id e = b_unary(&d->b, OP_ERF, x), mean = b_mean(&d->b, e, last, 1, true),
             apart = b_binary(&d->b, OP_SUB, e, mean), square = b_binary(&d->b, OP_MUL, apart, apart);
    value_id variance = b_binary_f64(&d->b, OP_ADD, b_mean(&d->b, square, last, 1, true), 0.01);
    result(d, b_binary(&d->b, OP_DIV, apart, b_unary(&d->b, OP_SQRT, variance)));
    node(d);
    result(d, v_softmax(&d->b, INPUT(d, ELEM_F64, 3, 2, 30), last, 1, true));
}

static void reductions(struct draw *d)
{
    value_id x = INPUT(d, ELEM_F32, 5, 30, 70), u = INPUT(d, ELEM_U8, 6, 150);
    result(d, reduced(d, x, 2, "sum"));
    result(d, reduced(d, x, 0, "max"));
    result(d, reduced(d, x, 1, "min"));
    result(d, reduced(d, u, 1, "max"));
    result(d, reduced(d, u, 0, "sum"));
    result(d, reduced(d, INPUT(d, ELEM_F64, 4, 33), 1, "sum"));
    result(d, reduced(d, INPUT(d, ELEM_BOOL, 4, 90), 1, "and"));
    result(d, reduced(d, INPUT(d, ELEM_F16, 20, 50), 0, "sum"));
    result(d, argmax(d, x, 1));
    result(d, argmax(d, x, 2));
}

static void open_reductions(struct draw *d)
{
    open_symbol(d, 85);
    value_id x = INPUT(d, ELEM_F32, 6, OPEN);
    result(d, reduced(d, x, 1, "sum"));
    result(d, reduced(d, x, 0, "max"));
}

static void serial(struct draw *d)
{
    expr_id rows[2] = {ex_const(d->x, 4), ex_const(d->x, 1)}, each[2] = {ex_const(d->x, 5), ex_const(d->x, 7)};
    result(d, cumulated(d, INPUT(d, ELEM_F32, 6, 30), 0));
    result(d, cumulated(d, INPUT(d, ELEM_F32, 6, 30), 1));
    result(d, cumulated(d, INPUT(d, ELEM_I64, 9, 40), 0));
    result(d, cumulated(d, INPUT(d, ELEM_U8, 3, 200), 0));
    value_id nd[3] = {INPUT(d, ELEM_U8, 9, 300), draw_indices(d, ELEM_I64, rows, 2, 0, 8).v, INPUT(d, ELEM_U8, 4, 300)},
             one[3] = {INPUT(d, ELEM_F32, 5, 20), draw_indices(d, ELEM_I64, each, 2, 0, 19).v,
                       INPUT(d, ELEM_F32, 5, 7)};
    const struct attr add = attr_str("monoid", "sum"), a[] = {attr_int("axis", 1), add};
    node(d);
    result(d, b_op(&d->b, OP_SCATTER_ND, nd, 3, &add, 1));
    node(d);
    result(d, b_op(&d->b, OP_SCATTER_ELEMENTS, one, 3, a, 2));
}

const struct network networks[] = {
    {.name = "products", .build = products},
    {.name = "product of open rows", .build = open_product},
    {.name = "few rows", .build = rows},
    {.name = "f64 and i64 product", .build = wide_product},
    {.name = "f16 and bf16 product", .build = narrow_product},
    {.name = "f8 product", .build = small_product},
    {.name = "product of bytes", .build = byte_product},
    {.name = "product by packed weights", .build = packed_product},
    {.name = "product summed in f16", .build = products, .precision = OPT_PRECISION_F16_SUMS},
    {.name = "product in bf16", .build = open_product, .precision = OPT_PRECISION_BF16},
    {.name = "Winograd 2", .build = winograd, .winograd = 2},
    {.name = "Winograd 4", .build = winograd, .winograd = 4},
    {.name = "Winograd 6", .build = winograd, .winograd = 6},
    {.name = "Winograd of a map", .build = mapped_winograd, .winograd = 4},
    {.name = "convolutions that may be Winograd's", .build = winograd},
    {.name = "convolutions", .build = convolutions},
    {.name = "convolutions, row-major", .build = convolutions, .layout = LAYOUT_NCHW},
    {.name = "convolutions, channels last", .build = convolutions, .layout = LAYOUT_NHWC},
    {.name = "convolutions of open batch", .build = open_convolutions},
    {.name = "staged operands", .build = staged},
    {.name = "convolutions of bytes", .build = byte_convolutions},
    {.name = "attention", .build = attention},
    {.name = "attention over a cache", .build = cached_attention},
    {.name = "maps", .build = maps},
    {.name = "pad and concat", .build = padded},
    {.name = "maps of open size", .build = open_maps},
    {.name = "rows with sums", .build = rows_with_sums},
    {.name = "reductions", .build = reductions},
    {.name = "reductions of open size", .build = open_reductions},
    {.name = "scans and scatters", .build = serial},
};
const uint32_t network_count = COUNT_OF(networks);

static struct draw *begin(struct context *ctx)
{
    struct draw *d = NEW(&ctx->session, struct draw);
    *d = (struct draw){.ctx = ctx, .x = ctx->exprs, .state = 12345, .largest_leaf = 1 << 17};
    return d;
}

struct draw *network_draw(struct context *ctx, const struct network *n)
{
    struct draw *d = begin(ctx);
    d->g = graph_new(ctx);
    d->b = builder_in(d->g, (region_id){1});
    n->build(d);
    d->g->legal = true;
    if (ctx->fail != FAIL_NONE || !d->g->outputs.n)
        return NULL;
    draw_bind(d, d->extent);
    return d;
}

struct draw *network_read(struct context *ctx, const char *text)
{
    struct draw *d = begin(ctx);
    d->g = graph_parse(ctx, text);
    if (!d->g || d->g->inputs.n > DRAW_INPUTS || d->g->outputs.n > DRAW_VALUES)
        return NULL;
    for (uint32_t i = 1; i <= sym_count(d->x); i++) {
        if (sym_get(d->x, (sym_id){i})->kind != SYM_SHAPE)
            continue;
        if (d->n_symbols == DRAW_SYMBOLS)
            return NULL;
        int64_t most = sym_get(d->x, (sym_id){i})->hi;
        d->extent[d->n_symbols] = most < 5 ? most : 5;
        d->symbol[d->n_symbols++] = (sym_id){i};
    }
    for (uint32_t k = 0; k < d->g->inputs.n; k++)
        d->input_data[k] = (struct drawn_data){.seed = k + 1, .places = 4};
    for (uint32_t k = 0; k < d->g->outputs.n; k++)
        d->output[k] = (struct drawn){.v = d->g->outputs.data[k].value};
    draw_bind(d, d->extent);
    return d;
}
