/* See evaluate.h. */
#include "tests/ir/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_open(struct bench *t)
{
    memset(t, 0, sizeof *t);
    t->ctx = context_new();
    assert_non_null(t->ctx);
    t->g = graph_new(t->ctx);
    t->g->legal = true;
    t->b = builder_in(t->g, (region_id){1});
}

void bench_close(struct bench *t)
{
    context_free(t->ctx);
}

const char *last_error(const struct context *ctx)
{
    return ctx->diags.n ? ctx->diags.data[ctx->diags.n - 1].text : "";
}

struct tensor tensor_parse(struct context *ctx, const char *text)
{
    struct tensor t = {.kind = TYPE_TENSOR, .present = true};
    char name[16] = {0};
    size_t len = strcspn(text, " :");
    int64_t count = 1;
    memcpy(name, text, len);
    t.elem = elem_by_name(name);
    assert_int_not_equal(t.elem, ELEM_NONE);
    t.dims = NEW_ARRAY(&ctx->session, int64_t, RANK_MAX);
    char *p = (char *)(uintptr_t)text + len;
    while (*p && *p != ':') {
        p++;
        t.dims[t.rank] = strtoll(p, &p, 10);
        count *= t.dims[t.rank++];
    }
    p += *p == ':';
    t.data = NEW_ARRAY(&ctx->session, char, (size_t)count *elem_size(t.elem) + 16);
    for (int64_t i = 0; i < count; i++) {
        char *to = (char *)t.data + (size_t)i * elem_size(t.elem);
        if (elem_class(t.elem) == 'F')
            elem_from_f64(t.elem, strtod(p, &p), to);
        else if (t.elem == ELEM_U64)
            *(uint64_t *)(void *)to = strtoull(p, &p, 0);
        else
            elem_from_i64(t.elem, strtoll(p, &p, 0), to);
    }
    p += strspn(p, " ");
    if (*p)
        fail_msg("left over in \"%s\": \"%s\"", text, p);
    return t;
}

static value_id add_input(struct bench *t, struct type type, const struct tensor *fed)
{
    char name[16];
    uint32_t n = t->g->inputs.n;
    assert_true(n < COUNT_OF(t->inputs));
    snprintf(name, sizeof name, "in%u", n);
    value_id v = graph_param(t->g, (region_id){1}, type, name);
    t->inputs[n] = *fed;
    VEC_PUSH(&t->g->arena, &t->g->inputs, ((struct port){arena_strdup(&t->g->arena, name), NULL, v}));
    return v;
}

value_id bench_input(struct bench *t, const char *text)
{
    struct tensor fed = tensor_parse(t->ctx, text);
    expr_id dims[RANK_MAX];
    for (int32_t i = 0; i < fed.rank; i++)
        dims[i] = ex_const(t->ctx->exprs, fed.dims[i]);
    return add_input(t, (struct type){.kind = TYPE_TENSOR, .elem = fed.elem, .rank = fed.rank, .dims = dims}, &fed);
}

value_id bench_symbolic(struct bench *t, const char *dims, const char *text)
{
    struct tensor fed = tensor_parse(t->ctx, text);
    expr_id list[RANK_MAX];
    char copy[200];
    int32_t rank = 0;
    snprintf(copy, sizeof copy, "%s", dims);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        const char *p = word;
        list[rank++] = ex_parse(t->ctx->exprs, &p, true);
    }
    return add_input(t, (struct type){.kind = TYPE_TENSOR, .elem = fed.elem, .rank = rank, .dims = list}, &fed);
}

value_id bench_const(struct bench *t, const char *text)
{
    struct tensor x = tensor_parse(t->ctx, text);
    return b_const(&t->b, x.elem, x.dims, x.rank, x.data);
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

static expr_id expr_parse(struct bench *t, const char *p)
{
    static int fresh;
    char name[24];
    if (*p != '@')
        return ex_parse(t->ctx->exprs, &p, true);
    snprintf(name, sizeof name, "count%d", fresh++);
    return ex_sym(t->ctx->exprs, sym_new(t->ctx->exprs, SYM_VALUE, name, 0, INT64_MAX));
}

static struct attr attr_parse(struct bench *t, char kind, const char *name, char *text)
{
    int64_t *ints = NEW_ARRAY(&t->ctx->session, int64_t, RANK_MAX);
    expr_id *exprs = NEW_ARRAY(&t->ctx->session, expr_id, RANK_MAX);
    uint32_t n = 0;
    char *rest = text;
    if (kind == 'I' || kind == 'E') {
        for (char *item = strsep(&rest, ","); item && *item; item = rest ? strsep(&rest, ",") : NULL, n++) {
            ints[n] = strtoll(item, NULL, 0);
            exprs[n] = kind == 'E' ? expr_parse(t, item) : (expr_id){0};
        }
        return kind == 'I' ? attr_ints(name, ints, n) : attr_exprs(name, exprs, n);
    }
    switch (kind) {
    case 'e': return attr_expr(name, expr_parse(t, text));
    case 'f': return attr_float(name, strtod(text, NULL));
    case 's': return attr_str(name, text);
    case 't': return attr_elem(name, elem_by_name(text));
    default: return attr_int(name, strtoll(text, NULL, 0));
    }
}

uint32_t attrs_parse(struct bench *t, enum op op, const char *text, struct attr out[OP_ATTR_MAX])
{
    struct op_attr rows[OP_ATTR_MAX];
    uint32_t n_rows = op_attrs(op, rows), n = 0;
    char *copy = arena_strdup(&t->ctx->session, text), *rest = copy;
    for (char *word = strsep(&rest, " "); word; word = rest ? strsep(&rest, " ") : NULL) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = 0;
        for (uint32_t i = 0; i < n_rows; i++)
            if (strcmp(rows[i].name, word) == 0)
                out[n++] = attr_parse(t, rows[i].kind, arena_strdup(&t->ctx->session, word), value);
    }
    return n;
}

bool bench_op(struct bench *t, enum op op, const char *attrs, const value_id *in, uint32_t n_in, value_id *out,
              uint32_t n_out)
{
    struct attr list[OP_ATTR_MAX];
    uint32_t n = attrs_parse(t, op, attrs, list);
    return b_op_multi(&t->b, op, in, n_in, list, n, out, n_out);
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

enum eval_status bench_eval(struct bench *t, value_id v, struct tensor *out, const char **text)
{
    struct tensor **wanted = NEW_ARRAY(&t->ctx->session, struct tensor *, t->g->values.n);
    wanted[v.i] = out;
    return graph_eval_values(t->g, t->inputs, wanted, &t->ctx->session, text);
}

static bool same_element(enum elem elem, const void *a, const void *b)
{
    if (elem_class(elem) != 'F')
        return memcmp(a, b, elem_size(elem)) == 0;
    double x = elem_to_f64(elem, a), y = elem_to_f64(elem, b);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    return x == y ? signbit(x) == signbit(y) || elem != ELEM_F32 : fabs(x - y) <= 2e-6 * fabs(y) + 1e-12;
}

void tensor_expect(struct context *ctx, const char *what, const struct tensor *t, const char *text)
{
    struct tensor want = tensor_parse(ctx, text);
    bool ok = t->elem == want.elem && t->rank == want.rank;
    int64_t count = 1;
    for (int32_t i = 0; ok && i < t->rank; i++) {
        ok = t->dims[i] == want.dims[i];
        count *= t->dims[i];
    }
    if (!ok)
        fail_msg("%s: %s of rank %d (first dim %lld), expected %s", what, elem_name(t->elem), t->rank,
                 t->rank ? (long long)t->dims[0] : 0, text);
    for (int64_t i = 0; i < count; i++) {
        size_t at = (size_t)i * elem_size(t->elem);
        if (!same_element(t->elem, (char *)t->data + at, (char *)want.data + at))
            fail_msg("%s: element %lld is %.9g, expected %s", what, (long long)i,
                     elem_to_f64(t->elem, (char *)t->data + at), text);
    }
}

void bench_expect(struct bench *t, value_id v, const char *text)
{
    struct tensor out = {0};
    const char *why = "";
    assert_true(v.i != 0);
    enum eval_status status = bench_eval(t, v, &out, &why);
    if (status != EVAL_OK)
        fail_msg("evaluation ends with %d: %s (expected %s)", status, why, text);
    tensor_expect(t->ctx, "value", &out, text);
}

value_id b_shape_of(struct builder *b, value_id v)
{
    const struct dims dims = b_dims(b, v);
    int64_t n = dims.rank;
    return dims.d ? b_from_exprs(b, ELEM_I64, dims.d, (uint32_t)n, &n, 1) : (value_id){0};
}
