/* See shared.h. */
#include "ir/eval/shared.h"

#include <string.h>

enum { OPERANDS = 2, SHARED_BYTES = 1 << 28 };

struct shared_result {
    struct span key; /* operator, attributes, types and extents of the operands */
    struct span in[OPERANDS], out;
};
struct shared_results {
    struct arena *arena;
    size_t bytes; /* of all copies */
    VEC(struct shared_result) of;
};

struct shared_results *shared_new(struct arena *arena)
{
    struct shared_results *s = NEW(arena, struct shared_results);
    s->arena = arena;
    return s;
}

bool shared_serves(const struct eval *e, const struct node *n)
{
    const bool dear = n->op == OP_DOT || n->op == OP_CONV || n->op == OP_WINDOW || n->op == OP_REDUCE;
    return e->g->ctx->shared && dear && n->n_in <= OPERANDS && n->n_out == 1 && e->g->ctx->field;
}

static struct span bytes_of(const struct tensor *t)
{
    return (struct span){t->data, (size_t)tensor_count(t) * elem_size(t->elem)};
}

static bool equal(struct span a, struct span b)
{
    return a.size == b.size && (a.data == b.data || memcmp(a.data, b.data, a.size) == 0);
}

static void put(struct strbuf *key, int64_t x)
{
    strbuf_append(key, (const char *)&x, sizeof x);
}

/* False: it has an attribute of another kind than such nodes have. */
static bool put_attribute(struct eval *e, const struct attr *a, struct strbuf *key)
{
    strbuf_append(key, a->name, strlen(a->name) + 1);
    put(key, a->n);
    switch (a->kind) {
    case ATTR_INT: put(key, a->u.i); return true;
    case ATTR_INTS: strbuf_append(key, (const char *)a->u.ints, a->n * sizeof *a->u.ints); return true;
    case ATTR_STR: strbuf_append(key, a->u.s, strlen(a->u.s) + 1); return true;
    case ATTR_ELEM: put(key, a->u.elem); return true;
    case ATTR_EXPRS:
        for (uint32_t i = 0; i < a->n; i++) {
            int64_t x;
            if (eval_expr(e, a->u.exprs[i], &x) != EVAL_OK)
                return false;
            put(key, x);
        }
        return true;
    default: return false;
    }
}

/* Data NULL: there is none. */
static struct span key_of(struct eval *e, struct arena *arena, const struct node *n, struct tensor *const *in)
{
    struct strbuf key = strbuf_of(arena);
    put(&key, n->op);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (in[i]->kind != TYPE_TENSOR || in[i]->elem == ELEM_STR || elem_size(in[i]->elem) == 0)
            return (struct span){0};
        put(&key, in[i]->elem);
        put(&key, in[i]->rank);
        strbuf_append(&key, (const char *)in[i]->dims, (size_t)in[i]->rank * sizeof *in[i]->dims);
    }
    for (uint32_t i = 0; i < n->n_attr; i++)
        if (!put_attribute(e, &n->attr[i], &key))
            return (struct span){0};
    return (struct span){key.data, key.n};
}

enum eval_status shared_take(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out,
                             bool *found)
{
    const struct shared_results *s = e->g->ctx->shared;
    const struct span key = key_of(e, e->arena, n, in);
    *found = false;
    for (uint32_t i = 0; key.data && i < s->of.n; i++) {
        const struct shared_result *r = &s->of.data[i];
        bool same = equal(r->key, key);
        for (uint32_t k = 0; k < n->n_in; k++)
            same = same && equal(r->in[k], bytes_of(in[k]));
        if (!same)
            continue;
        TRY(eval_result(e, n, 0, out));
        if (bytes_of(out).size != r->out.size)
            return EVAL_OK;
        memcpy(out->data, r->out.data, r->out.size);
        *found = true;
        return EVAL_OK;
    }
    return EVAL_OK;
}

void shared_keep(struct eval *e, const struct node *n, struct tensor *const *in, const struct tensor *out)
{
    struct shared_results *s = e->g->ctx->shared;
    if (s->arena->ctx != e->g->ctx || s->bytes > SHARED_BYTES)
        return;
    struct shared_result r = {.key = key_of(e, s->arena, n, in)};
    if (!r.key.data)
        return;
    for (uint32_t k = 0; k < n->n_in; k++) {
        r.in[k] = bytes_of(in[k]);
        s->bytes += value_op(e->g, n->in[k]) == OP_CONSTANT ? 0 : r.in[k].size;
        e->shared[n->in[k].i] = true; /* its memory is not used again */
    }
    r.out = bytes_of(out);
    r.out.data = arena_copy(s->arena, r.out.data, r.out.size); /* it may become what the code has stored */
    s->bytes += r.out.size;
    VEC_PUSH(s->arena, &s->of, r);
}
