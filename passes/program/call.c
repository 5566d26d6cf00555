/* Operators that are functions over whole buffers: calls of the runtime (runtime/ops/rt_ops.h) from the program. */
#include "passes/program/program.h"

struct axis_split {
    lreg outer, n, inner;
};

static struct axis_split split_axis(struct prog *p, value_id v, int64_t axis)
{
    const struct type *t = value_type(p->g, v);
    struct axis_split s;
    s.outer = prog_index(p, dims_product(p->x, t->dims, (int32_t)axis));
    s.n = prog_index(p, t->rank ? t->dims[axis] : ex_const(p->x, 1));
    s.inner = prog_index(p, t->rank ? dims_product(p->x, t->dims + axis + 1, t->rank - (int32_t)axis - 1)
                                    : ex_const(p->x, 1));
    return s;
}

static lreg operand(struct prog *p, value_id v)
{
    return prog_buffer(p, v, value_type(p->g, v)->elem);
}

static lreg elem_code(struct prog *p, value_id v)
{
    return prog_const(p, (int64_t)value_type(p->g, v)->elem);
}

/* Memory for result r: its buffer, or none (0) when nobody reads it and none was made before the call. */
static lreg result(struct prog *p, const struct node *n, uint32_t r)
{
    const struct value *v = graph_value(p->g, n->out[r]);
    return v->n_uses == 0 && !p->pointer[n->out[r].i].i ? prog_const(p, 0) : prog_buffer(p, n->out[r], v->type.elem);
}

static void call_sort(struct prog *p, const struct node *n)
{
    int64_t axis = node_int(n, "axis", 0);
    struct axis_split s = split_axis(p, n->in[0], axis);
    PROG_CALL(p, "mcc_rt_sort", true, elem_code(p, n->in[0]), operand(p, n->in[0]), result(p, n, 0), result(p, n, 1),
              s.outer, s.n, s.inner, prog_const(p, node_int(n, "descending", 0)),
              prog_index(p, value_type(p->g, n->out[0])->dims[axis]));
}

static void bind_count(struct prog *p, const struct node *n, lreg count)
{
    sym_id s = ex_as_sym(p->x, node_expr(n, "count"));
    if (s.i)
        prog_bind(p, s, count);
}

static void call_nonzero(struct prog *p, const struct node *n)
{
    const struct type *t = value_type(p->g, n->in[0]);
    lreg elem = elem_code(p, n->in[0]), src = operand(p, n->in[0]);
    lreg total = prog_index(p, dims_product(p->x, t->dims, t->rank));
    lreg count = prog_call(p, "mcc_rt_nonzero_count", ARRAY(lreg, elem, src, total), false);
    bind_count(p, n, count);
    if (graph_value(p->g, n->out[0])->n_uses == 0)   /* only the count is wanted */
        return;
    prog_place(p, n->out[0]);
    PROG_CALL(p, "mcc_rt_nonzero", false, elem, src, prog_const(p, t->rank), prog_dims(p, t), result(p, n, 0), count);
}

/* Room for as many slices as there are; the results are cut to the count by their types. */
static void call_unique(struct prog *p, const struct node *n)
{
    int64_t axis = node_int(n, "axis", -1);
    const struct type *t = value_type(p->g, n->in[0]);
    lreg total = prog_index(p, dims_product(p->x, t->dims, t->rank));
    struct axis_split s = {prog_const(p, 1), total, prog_const(p, 1)};
    if (axis >= 0)
        s = split_axis(p, n->in[0], axis);
    lreg eight = prog_const(p, 8), in_bytes[2] = {total, prog_const(p, elem_size(t->elem))}, n_bytes[2] = {s.n, eight};
    struct ltype index = {ELEM_I64, 1};
    for (uint32_t r = 0; r < 4; r++)
        if (!p->pointer[n->out[r].i].i && graph_value(p->g, n->out[r])->n_uses &&
            late_type(p->x, value_type(p->g, n->out[r])))
            p->pointer[n->out[r].i] = prog_memory(p, prog_op(p, L_MUL, index, r == 0 ? in_bytes : n_bytes, 2));
    bind_count(p, n,
               PROG_CALL(p, "mcc_rt_unique", true, elem_code(p, n->in[0]), operand(p, n->in[0]), s.outer, s.n, s.inner,
                         prog_const(p, node_int(n, "sorted", 1)), result(p, n, 0), result(p, n, 1), result(p, n, 2),
                         result(p, n, 3)));
}

static void call_nms(struct prog *p, const struct node *n)
{
    const struct type *boxes = value_type(p->g, n->in[0]), *scores = value_type(p->g, n->in[1]);
    lreg classes = prog_index(p, scores->dims[1]), count = prog_index(p, boxes->dims[1]),
         batches = prog_index(p, boxes->dims[0]);
    expr_id rows = ex_mul(p->x, ex_mul(p->x, boxes->dims[0], scores->dims[1]), boxes->dims[1]);
    if (!p->pointer[n->out[0].i].i)
        p->pointer[n->out[0].i] = prog_memory(p, prog_index(p, ex_mulc(p->x, rows, 24)));
    bind_count(p, n,
               PROG_CALL(p, "mcc_rt_nms", true, prog_numbers(p, n->in[0]), prog_numbers(p, n->in[1]), batches, count,
                         classes, operand(p, n->in[2]), prog_numbers(p, n->in[3]), prog_numbers(p, n->in[4]),
                         prog_const(p, node_int(n, "center", 0)), result(p, n, 0)));
}

static void call_dft(struct prog *p, const struct node *n)
{
    const struct type *x = value_type(p->g, n->in[0]), *y = value_type(p->g, n->out[0]);
    int64_t axis = node_int(n, "axis", 1);
    expr_id inner = dims_product(p->x, x->dims + axis + 1, x->rank - (int32_t)axis - 2);
    bool real_result = ex_is(p->x, y->dims[y->rank - 1], 1);
    PROG_CALL(p, "mcc_rt_dft", true, elem_code(p, n->in[0]), prog_numbers(p, n->in[0]), result(p, n, 0),
              prog_index(p, dims_product(p->x, x->dims, (int32_t)axis)), prog_index(p, x->dims[axis]),
              prog_index(p, inner), prog_index(p, x->dims[x->rank - 1]), prog_index(p, node_expr(n, "length")),
              prog_index(p, y->dims[axis]), prog_index(p, y->dims[y->rank - 1]),
              prog_const(p, node_int(n, "inverse", 0)), prog_const(p, real_result && node_int(n, "onesided", 0)));
    prog_residues(p, n->out[0]);
}

static void call_det(struct prog *p, const struct node *n)
{
    const struct type *t = value_type(p->g, n->in[0]);
    PROG_CALL(p, "mcc_rt_det", true, elem_code(p, n->in[0]), prog_numbers(p, n->in[0]), result(p, n, 0),
              prog_index(p, dims_product(p->x, t->dims, t->rank - 2)), prog_index(p, t->dims[t->rank - 1]));
    prog_residues(p, n->out[0]);
}

static int64_t double_bits(double d)
{
    int64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

static void call_rng(struct prog *p, const struct node *n)
{
    const struct type *t = value_type(p->g, n->out[0]);
    double seed = node_float(n, "seed", 0);
    PROG_CALL(p, "mcc_rt_rng", true, elem_code(p, n->out[0]), result(p, n, 0),
              prog_index(p, dims_product(p->x, t->dims, t->rank)),
              prog_const(p, strcmp(node_str(n, "kind", "uniform"), "normal") == 0),
              prog_const(p, seed >= 0 && seed < 4294967296.0 ? (int64_t)seed : 0),
              prog_const(p, double_bits(node_float(n, "a", 0))), prog_const(p, double_bits(node_float(n, "b", 1))));
    prog_residues(p, n->out[0]);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

enum { STRING_BYTES = 16 };

/* Constant strings lie packed as bytes (rt_ops.h): a list of them in memory of the run. */
static lreg string_list(struct prog *p, value_id packed)
{
    lreg in = operand(p, packed), at = PROG_CALL(p, "mcc_rt_str_list", true, in);
    return prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &at, 1);
}

static lreg operand_count(struct prog *p, value_id v)
{
    const struct type *t = value_type(p->g, v);
    return prog_index(p, dims_product(p->x, t->dims, t->rank));
}

static void string_spread(struct prog *p, const struct node *n)
{
    const struct type *x = value_type(p->g, n->in[0]), *y = value_type(p->g, n->out[0]);
    PROG_CALL(p, "mcc_rt_str_spread", false, operand(p, n->in[0]), prog_const(p, x->rank), prog_dims(p, x),
              result(p, n, 0), prog_const(p, y->rank), prog_dims(p, y));
}

/* A function of the runtime, with its arguments; true: it may fail. */
#define CALLS(name, function, may_fail, ...)               \
    static void name(struct prog *p, const struct node *n) \
    {                                                      \
        PROG_CALL(p, function, may_fail, __VA_ARGS__);     \
    }

CALLS(string_equal, "mcc_rt_str_equal", false, operand(p, n->in[0]), operand(p, n->in[1]), result(p, n, 0),
      operand_count(p, n->out[0]))
CALLS(string_find, "mcc_rt_str_find", false, operand(p, n->in[0]), operand_count(p, n->in[0]), operand(p, n->in[1]),
      result(p, n, 0))
CALLS(string_pick, "mcc_rt_str_pick", true, operand(p, n->in[0]), operand_count(p, n->in[0]), string_list(p, n->in[1]),
      prog_const(p, node_int(n, "option", 0)), result(p, n, 0))
CALLS(string_match, "mcc_rt_str_match", false, operand(p, n->in[0]), operand_count(p, n->in[0]), operand(p, n->in[1]),
      result(p, n, 0))

/* The type of the numbers is the operand's or the result's: f64, i64 or u64. */
CALLS(string_format, "mcc_rt_str_format", true, elem_code(p, n->in[0]), operand(p, n->in[0]),
      operand_count(p, n->in[0]), result(p, n, 0))
CALLS(string_parse, "mcc_rt_str_parse", true, prog_const(p, n->src.i), elem_code(p, n->out[0]), operand(p, n->in[0]),
      operand_count(p, n->in[0]), result(p, n, 0))
CALLS(string_concat, "mcc_rt_str_concat", true, operand(p, n->in[0]), operand(p, n->in[1]), result(p, n, 0),
      operand_count(p, n->out[0]))

/* Counts of the pieces; their largest becomes a dim of what `split` gives. */
static void string_split_count(struct prog *p, const struct node *n)
{
    bind_count(p, n,
               PROG_CALL(p, "mcc_rt_str_split_count", false, operand(p, n->in[0]), operand_count(p, n->in[0]),
                         string_list(p, n->in[1]), prog_const(p, node_int(n, "option", -1)), result(p, n, 0)));
}

static void string_split(struct prog *p, const struct node *n)
{
    const struct type *y = value_type(p->g, n->out[0]);
    PROG_CALL(p, "mcc_rt_str_split", false, operand(p, n->in[0]), operand_count(p, n->in[0]), string_list(p, n->in[1]),
              prog_const(p, node_int(n, "option", -1)), prog_index(p, y->dims[y->rank - 1]), result(p, n, 0));
}

/* Room for every string, and for the empty one that stands for none. */
static void string_normalize(struct prog *p, const struct node *n)
{
    const struct type *x = value_type(p->g, n->in[0]);
    lreg count = operand_count(p, n->in[0]);
    expr_id room = ex_addc(p->x, dims_product(p->x, x->dims, x->rank), 1);
    if (!p->pointer[n->out[0].i].i)
        p->pointer[n->out[0].i] = prog_memory(p, prog_index(p, ex_mulc(p->x, room, STRING_BYTES)));
    bind_count(p, n,
               PROG_CALL(p, "mcc_rt_str_normalize", true, operand(p, n->in[0]), count,
                         prog_const(p, node_int(n, "mapping", 0)), string_list(p, n->in[1]), prog_load(p, n->in[2], 0),
                         prog_const(p, node_int(n, "option", 0)), result(p, n, 0)));
}

static bool is_string_fn(const struct node *n, const char *fn)
{
    return n->op == OP_STRING && !strcmp(node_str(n, "fn", ""), fn);
}

static void call_string(struct prog *p, const struct node *n)
{
    static const struct {
        const char *fn;
        uint32_t n_in;
        prog_call_fn *call;
    } table[] = {
        {"spread", 1, string_spread}, {"equal", 2, string_equal},         {"concat", 2, string_concat},
        {"find", 2, string_find},     {"pick", 2, string_pick},           {"match", 2, string_match},
        {"format", 1, string_format}, {"parse", 1, string_parse},         {"split_count", 2, string_split_count},
        {"split", 3, string_split},   {"normalize", 3, string_normalize},
    };
    for (uint32_t k = 0; k < n->n_in; k++)
        if (value_is_const(p->g, n->in[k]) && value_type(p->g, n->in[k])->elem == ELEM_STR) {
            p->failed = true;
            error_model(p->m->ctx, n->src, "constants of strings are not supported in compiled code");
            return;
        }
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (is_string_fn(n, table[i].fn) && n->n_in == table[i].n_in) {
            table[i].call(p, n);
            return;
        }
    p->failed = true;
    error_model(p->m->ctx, n->src, "the function '%.40s' of strings is not supported", node_str(n, "fn", ""));
}

static prog_call_fn *const calls[OP_COUNT] = {
#define CALL(id, name, least, most, results, infer, eval, check, call, ...) [OP_##id] = call,
#include "ir/ops/ops.def"
};

void prog_opaque(struct prog *p, struct kernel *k)
{
    const struct node *n = graph_node(p->g, k->anchor);
    /* Else the call says where the result is, or how large. */
    bool given = op_info(n->op)->memory == MEMORY_GIVEN && !is_string_fn(n, "normalize");
    for (uint32_t r = 0; r < n->n_out && given; r++)
        prog_place(p, n->out[r]);
    calls[n->op](p, n);
}
