/* What the functions of all operators share: tensors and their memory, expressions as numbers, failures. */
#include "ir/eval/eval.h"

#include <stdio.h>

enum eval_status eval_fail(struct eval *e, enum eval_status status, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 400, fmt);
    e->text = arena_strdup(e->arena, text);
    return status;
}

/* ---- shapes and memory ------------------------------------------------------------------------------------------ */

int64_t dims_count(const int64_t *dims, int32_t rank)
{
    uint64_t n = 1;    /* unsigned: next to a zero the other dims may be anything */
    for (int32_t i = 0; i < rank; i++)
        n *= (uint64_t)dims[i];
    return (int64_t)n;
}

int64_t tensor_count(const struct tensor *t)
{
    return dims_count(t->dims, t->rank);
}

void dims_strides(const int64_t *dims, int32_t rank, int64_t *strides)
{
    uint64_t s = 1;
    for (int32_t i = rank - 1; i >= 0; i--) {
        strides[i] = (int64_t)s;
        s *= (uint64_t)dims[i];
    }
}

bool dims_next(const int64_t *dims, int32_t rank, int64_t *at)
{
    for (int32_t i = rank - 1; i >= 0; i--) {
        if (++at[i] < dims[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static uint32_t bucket(int64_t size)
{
    uint32_t b = 6;
    while (b < EVAL_BUCKETS - 1 && ((int64_t)1 << b) < size)
        b++;
    return b;
}

enum { BUCKET_MOST = 20 };

/* A tensor costs the time of that many elements, even if it has none. */
enum { TENSOR_ELEMENTS = 64 };

/* False: context.eval_left does not suffice for a tensor of n elements. */
static bool spend(const struct eval *e, int64_t n)
{
    int64_t *left = e->g->ctx->eval_left;
    if (left && n > *left - TENSOR_ELEMENTS)
        return false;
    if (left)
        *left -= n + TENSOR_ELEMENTS;
    return true;
}

/* NULL: there is none. */
static void *free_block(struct eval *e, uint32_t b, size_t bytes)
{
    if (b <= BUCKET_MOST)
        return e->free_blocks[b].n ? e->free_blocks[b].data[--e->free_blocks[b].n] : NULL;
    for (uint32_t i = e->free_large.n; i-- > 0;) {
        const struct span s = e->free_large.data[i];
        if (s.size != bytes)
            continue;
        e->free_large.data[i] = e->free_large.data[--e->free_large.n];
        return (void *)(uintptr_t)s.data;
    }
    return NULL;
}

enum eval_status eval_tensor(struct eval *e, struct tensor *t, enum elem elem, int32_t rank, const int64_t *dims)
{
    const struct limits *limits = &e->g->ctx->limits;
    int64_t size = elem_size(elem);
    bool empty = false;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return eval_fail(e, EVAL_SHAPE, "dimension %d of a result is %lld", i, (long long)dims[i]);
        empty |= dims[i] == 0;
    }
    for (int32_t i = 0; i < rank; i++)
        if (!empty && !mul_i64(size, dims[i], &size))
            return eval_fail(e, EVAL_NOMEM, "a tensor exceeds 2^63 bytes");
    if (size > limits->tensor_bytes || size > limits->compile_heap - e->g->ctx->heap_used)
        return eval_fail(e, EVAL_NOMEM, "a tensor of %lld bytes exceeds the limit (--limit-%s)", (long long)size,
                         size > limits->tensor_bytes ? "tensor-bytes" : "compile-heap");
    if (!spend(e, empty ? 0 : size / elem_size(elem)))
        return eval_fail(e, EVAL_NOMEM, "the tensors have more elements than the interpreter may compute");
    *t = (struct tensor){.kind = TYPE_TENSOR, .elem = elem, .rank = rank, .present = true};
    t->dims = NEW_ARRAY(e->arena, int64_t, rank + 1);
    memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
    const uint32_t b = bucket(empty ? 1 : size);
    /* large blocks keep their size: rounding up would cost half as much again */
    const size_t bytes = b > BUCKET_MOST ? (size_t)size : (size_t)1 << b;
    t->data = free_block(e, b, bytes);
    if (t->data)
        memset(t->data, 0, bytes);
    else
        t->data = arena_alloc(e->arena, bytes);
    return EVAL_OK;
}

void eval_recycle(struct eval *e, const struct tensor *t)
{
    const int64_t size = tensor_count(t) * elem_size(t->elem);
    const uint32_t b = bucket(size);
    if (b <= BUCKET_MOST)
        VEC_PUSH(e->arena, &e->free_blocks[b], t->data);
    else
        VEC_PUSH(e->arena, &e->free_large, ((struct span){t->data, (size_t)size}));
}

struct tensor tensor_copy(struct eval *e, const struct tensor *from)
{
    struct tensor t = *from;
    t.dims = arena_copy(e->arena, from->dims, (size_t)(from->rank > 0 ? from->rank : 0) * sizeof *from->dims);
    return t;
}

/* ---- expressions and symbols ------------------------------------------------------------------------------------- */

enum eval_status eval_expr(struct eval *e, expr_id x, int64_t *out)
{
    if (ex_is_const(e->ex, x, out) || ex_eval(e->ex, x, e->sym, out))
        return EVAL_OK;
    return eval_fail(e, EVAL_VALUE, "an expression overflows or divides by zero");
}

enum eval_status eval_exprs(struct eval *e, const struct node *n, const char *name, int64_t *out)
{
    uint32_t count;
    const expr_id *list = node_exprs(n, name, &count);
    for (uint32_t i = 0; i < count && i < RANK_MAX; i++)
        TRY(eval_expr(e, list[i], &out[i]));
    return EVAL_OK;
}

enum eval_status eval_result(struct eval *e, const struct node *n, uint32_t i, struct tensor *out)
{
    const struct type *t = value_type(e->g, n->out[i]);
    int64_t dims[RANK_MAX];
    if (t->kind != TYPE_TENSOR || t->rank < 0 || t->rank > RANK_MAX)
        return eval_fail(e, EVAL_UNSUPPORTED, "%s: the result's rank is unknown", op_name(n->op));
    for (int32_t k = 0; k < t->rank; k++)
        TRY(eval_expr(e, t->dims[k], &dims[k]));
    return eval_tensor(e, out, t->elem, t->rank, dims);
}

void eval_forget(struct eval *e)
{
    memset(e->free_blocks, 0, sizeof e->free_blocks);
    e->free_large.data = NULL;
    e->free_large.n = e->free_large.cap = 0;
}
