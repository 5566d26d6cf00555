/* Tokens, types and attributes of the text form of graphs; see docs/mcir.md. */
#include <stdlib.h>
#include <string.h>

#include "tests/text/read.h"

enum { TYPE_DEPTH_MAX = 64 };

bool read_fail(struct reader *r, const char *what)
{
    return error_model(r->ctx, (src_id){0}, "line %u: %s", scan_line(&r->s), what);
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

/* why: what is wrong, NULL: nothing. */
static bool read_ok(struct reader *r, const char *why)
{
    return !why || read_fail(r, why);
}

bool read_accept(struct reader *r, const char *token)
{
    return scan_take(&r->s, token);
}

bool read_expect(struct reader *r, const char *token)
{
    return read_ok(r, scan_need(&r->s, token, &r->g->arena));
}

const char *read_word(struct reader *r)
{
    size_t n = scan_word(&r->s);
    r->s.p += n;
    return arena_strndup(&r->g->arena, r->s.p - n, n);
}

bool read_int(struct reader *r, int64_t *out)
{
    return read_ok(r, scan_i64(&r->s, out));
}

bool read_count(struct reader *r, uint32_t *out)
{
    return read_ok(r, scan_u32(&r->s, r->size < INT32_MAX ? (uint32_t)r->size : INT32_MAX, out));
}

const char *read_string(struct reader *r, size_t *n)
{
    const char *s = NULL;
    read_ok(r, scan_quoted(&r->s, &r->g->arena, &s, n));
    return s;
}

bool read_expr(struct reader *r, expr_id *e)
{
    *e = (expr_id){0};
    if (read_accept(r, "?"))
        return true;
    *e = ex_parse(r->x, &r->s.p, false);
    return e->i || read_fail(r, "expected an expression of known symbols");
}

static bool read_double(struct reader *r, double *out)
{
    scan_blanks(&r->s);
    char *end;
    *out = strtod(r->s.p, &end);
    if (end == r->s.p)
        return read_fail(r, "expected a number");
    r->s.p = end;
    return true;
}

/* ---- types ------------------------------------------------------------------------------------------------- */

static bool read_elem(struct reader *r, enum elem *out)
{
    const char *word = read_word(r);
    *out = elem_by_name(word);
    return *out != ELEM_NONE || strcmp(word, "none") == 0 || read_fail(r, "unknown element type");
}

static bool read_dims(struct reader *r, struct type *t)
{
    VEC(expr_id) dims = {0};
    t->rank = 0;
    if (read_accept(r, "*") || read_accept(r, "-]")) {
        t->rank = r->s.p[-1] == ']' ? RANK_NONE : RANK_UNKNOWN;
        return t->rank == RANK_NONE || read_expect(r, "]");
    }
    for (bool more = !read_accept(r, "]"); more; more = !read_accept(r, "]")) {
        expr_id e;
        if ((dims.n && !read_expect(r, ",")) || !read_expr(r, &e))
            return false;
        if (dims.n == RANK_MAX)
            return read_fail(r, "a type has more than 32 dims");
        VEC_PUSH(&r->g->arena, &dims, e);
    }
    t->rank = (int32_t)dims.n;
    t->dims = dims.data;
    return true;
}

/* What stands before the innermost type: seq<, opt<, map<key, . */
static bool read_wrapper(struct reader *r, struct type *t, bool *wraps)
{
    *wraps = true;
    if (read_accept(r, "seq<"))
        t->kind = TYPE_SEQUENCE;
    else if (read_accept(r, "opt<"))
        t->kind = TYPE_OPTIONAL;
    else if (read_accept(r, "map<")) {
        t->kind = TYPE_MAP;
        return read_elem(r, &t->elem) && read_expect(r, ",");
    } else
        *wraps = false;
    return true;
}

bool read_type(struct reader *r, struct type *out)
{
    struct type *t = out;
    int depth = 0;
    for (bool wraps = true;; depth++) {
        *t = (struct type){0};
        if (!read_wrapper(r, t, &wraps))
            return false;
        if (!wraps)
            break;
        if (depth == TYPE_DEPTH_MAX)
            return read_fail(r, "a type is nested more than 64 deep");
        struct type *inner = NEW(&r->g->arena, struct type);
        t->inner = inner;
        t = inner;
    }
    if (!read_accept(r, "unknown")) {
        t->kind = TYPE_TENSOR;
        if (!read_elem(r, &t->elem) || !read_expect(r, "[") || !read_dims(r, t))
            return false;
    }
    while (depth--)
        if (!read_expect(r, ">"))
            return false;
    return true;
}

/* ---- data --------------------------------------------------------------------------------------------------- */

static bool read_hex(struct reader *r, struct span *out)
{
    if (read_accept(r, "..."))
        return read_fail(r, "the bytes of a constant were left out of this text; print it in full");
    if (!read_expect(r, "hex\""))
        return false;
    size_t n = strcspn(r->s.p, "\"");
    unsigned char *bytes = arena_alloc(&r->g->arena, n / 2);
    for (size_t i = 0; i < n / 2; i++) {
        int high = scan_hex(r->s.p[2 * i]), low = scan_hex(r->s.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return read_fail(r, "expected hexadecimal digits");
        bytes[i] = (unsigned char)(high * 16 + low);
    }
    if (n % 2 || r->s.p[n] != '"')
        return read_fail(r, "expected pairs of hexadecimal digits and a quote");
    r->s.p += n + 1;
    *out = (struct span){bytes, n / 2};
    return true;
}

static bool read_strings(struct reader *r, struct span *out)
{
    VEC(struct span) list = {0};
    if (!read_expect(r, "["))
        return false;
    while (!read_accept(r, "]")) {
        size_t n;
        const char *s;
        if ((list.n && !read_expect(r, ",")) || !(s = read_string(r, &n)))
            return false;
        VEC_PUSH(&r->g->arena, &list, ((struct span){s, n}));
    }
    *out = (struct span){list.data, list.n * sizeof *list.data};
    return true;
}

bool read_tensor(struct reader *r, struct tensor_data *t)
{
    struct type type = {0};
    if (!read_elem(r, &type.elem) || !read_expect(r, "[") || !read_dims(r, &type))
        return false;
    if (type.rank < 0)
        return read_fail(r, "a constant has a rank");
    int64_t *dims = NEW_ARRAY(&r->g->arena, int64_t, type.rank);
    for (int32_t i = 0; i < type.rank; i++)
        if (!ex_is_const(r->x, type.dims[i], &dims[i]))
            return read_fail(r, "the dims of a constant are integers");
    *t = (struct tensor_data){.elem = type.elem, .rank = type.rank, .dims = dims};
    scan_blanks(&r->s);
    if (*r->s.p == '"' && !(t->name = read_string(r, NULL)))
        return false;
    return read_accept(r, "strings") ? read_strings(r, &t->bytes) : read_hex(r, &t->bytes);
}

/* ---- attributes ------------------------------------------------------------------------------------------------ */

static bool read_list_item(struct reader *r, struct attr *a, void *item)
{
    switch (a->kind) {
    case ATTR_INTS: return read_int(r, item);
    case ATTR_FLOATS: return read_double(r, item);
    case ATTR_STRS: return (*(const char **)item = read_string(r, NULL)) != NULL;
    case ATTR_EXPRS: return read_expr(r, item);
    default: return read_tensor(r, item);
    }
}

static size_t item_size(enum attr_kind kind)
{
    switch (kind) {
    case ATTR_INTS: return sizeof(int64_t);
    case ATTR_FLOATS: return sizeof(double);
    case ATTR_STRS: return sizeof(const char *);
    case ATTR_EXPRS: return sizeof(expr_id);
    case ATTR_TENSORS: return sizeof(struct tensor_data);
    default: return 0;
    }
}

static bool read_list(struct reader *r, struct attr *a)
{
    size_t size = item_size(a->kind);
    uint32_t cap = 0;
    void *items = NULL;
    if (!read_expect(r, "["))
        return false;
    while (!read_accept(r, "]")) {
        if (a->n && !read_expect(r, ","))
            return false;
        if (a->n == cap)
            vec_grow(&r->g->arena, &items, &cap, a->n + 1, size);
        if (!read_list_item(r, a, (char *)items + a->n * size))
            return false;
        a->n++;
    }
    a->u.ints = items;   /* all members of the union that are lists share the representation of a pointer */
    return true;
}

static bool read_attr_string(struct reader *r, struct attr *a)
{
    size_t n = 0;
    a->u.s = read_string(r, &n);
    a->n = (uint32_t)n;
    return a->u.s != NULL;
}

static bool read_attr_value(struct reader *r, struct attr *a)
{
    struct tensor_data tensor;
    struct type type;
    switch (a->kind) {
    case ATTR_INT: return read_int(r, &a->u.i);
    case ATTR_FLOAT: return read_double(r, &a->u.f);
    case ATTR_STR:
    case ATTR_REF: return read_attr_string(r, a);
    case ATTR_EXPR: return read_expr(r, &a->u.e);
    case ATTR_ELEM: return read_elem(r, &a->u.elem);
    case ATTR_DATA: return read_hex(r, &a->u.data);
    case ATTR_REGION: return read_int(r, &a->u.i);
    case ATTR_TENSOR:
        if (!read_tensor(r, &tensor))
            return false;
        a->u.tensor = arena_copy(&r->g->arena, &tensor, sizeof tensor);
        return true;
    case ATTR_TYPE:
        if (!read_type(r, &type))
            return false;
        a->u.type = arena_copy(&r->g->arena, &type, sizeof type);
        return true;
    default: return item_size(a->kind) ? read_list(r, a) : read_fail(r, "unknown kind of attribute");
    }
}

static bool read_attr(struct reader *r, const struct op_attr *declared, uint32_t n, struct attr *a)
{
    *a = (struct attr){0};
    scan_blanks(&r->s);
    a->name = *r->s.p == '"' ? read_string(r, NULL) : read_word(r);
    if (!a->name)
        return false;
    if (read_accept(r, ":")) {
        a->kind = (enum attr_kind)(unsigned char)*r->s.p;
        r->s.p += *r->s.p != 0;
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(declared[i].name, a->name) == 0)
                a->kind = (enum attr_kind)(unsigned char)declared[i].kind;
        if (!a->kind)
            return read_fail(r, "the operator has no such attribute");
    }
    return read_expect(r, "=") && read_attr_value(r, a);
}

bool read_attrs(struct reader *r, enum op op, attr_list *list)
{
    struct op_attr declared[OP_ATTR_MAX];
    uint32_t n = op_attrs(op, declared);
    if (!read_accept(r, "{"))
        return true;
    while (!read_accept(r, "}")) {
        struct attr a;
        if ((list->n && !read_expect(r, ",")) || !read_attr(r, declared, n, &a))
            return false;
        VEC_PUSH(&r->g->arena, list, a);
    }
    return true;
}
