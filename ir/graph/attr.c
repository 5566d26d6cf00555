/* Attributes by name: constructors, and accessors that take an absent attribute, or one of another kind, for
 * the default. Whoever must tell the two apart asks node_attr.
 */
#include "ir/graph/graph.h"

const struct attr *node_attr(const struct node *node, const char *name)
{
    for (uint32_t i = 0; i < node->n_attr; i++)
        if (strcmp(node->attr[i].name, name) == 0)
            return &node->attr[i];
    return NULL;
}

static const struct attr *attr_of_kind(const struct node *node, const char *name, enum attr_kind kind)
{
    const struct attr *a = node_attr(node, name);
    return a && a->kind == kind ? a : NULL;
}

int64_t node_int(const struct node *node, const char *name, int64_t absent)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_INT);
    return a ? a->u.i : absent;
}

double node_float(const struct node *node, const char *name, double absent)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_FLOAT);
    return a ? a->u.f : absent;
}

const char *node_str(const struct node *node, const char *name, const char *absent)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_STR);
    return a ? a->u.s : absent;
}

const int64_t *node_ints(const struct node *node, const char *name, uint32_t *n)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_INTS);
    if (n)
        *n = a ? a->n : 0;
    return a ? a->u.ints : NULL;
}

const expr_id *node_exprs(const struct node *node, const char *name, uint32_t *n)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_EXPRS);
    if (n)
        *n = a ? a->n : 0;
    return a ? a->u.exprs : NULL;
}

expr_id node_expr(const struct node *node, const char *name)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_EXPR);
    return a ? a->u.e : (expr_id){0};
}

enum elem node_elem(const struct node *node, const char *name)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_ELEM);
    return a ? a->u.elem : ELEM_NONE;
}

/* The bytes of a list or of a number. false: it holds something else. */
static bool plain_bytes(const struct attr *a, struct span *s)
{
    switch (a->kind) {
    case ATTR_INT: *s = (struct span){&a->u.i, sizeof a->u.i}; return true;
    case ATTR_FLOAT: *s = (struct span){&a->u.f, sizeof a->u.f}; return true;
    case ATTR_EXPR: *s = (struct span){&a->u.e, sizeof a->u.e}; return true;
    case ATTR_ELEM: *s = (struct span){&a->u.elem, sizeof a->u.elem}; return true;
    case ATTR_INTS: *s = (struct span){a->u.ints, a->n * sizeof *a->u.ints}; return true;
    case ATTR_FLOATS: *s = (struct span){a->u.floats, a->n * sizeof *a->u.floats}; return true;
    case ATTR_EXPRS: *s = (struct span){a->u.exprs, a->n * sizeof *a->u.exprs}; return true;
    case ATTR_STR: *s = (struct span){a->u.s, a->n}; return true;
    case ATTR_DATA: *s = a->u.data; return true;
    default: return false;
    }
}

bool attr_equal(const struct attr *a, const struct attr *b)
{
    struct span x, y;
    if (a->kind != b->kind || strcmp(a->name, b->name) != 0 || !plain_bytes(a, &x) || !plain_bytes(b, &y))
        return false;
    return x.size == y.size && (x.size == 0 || x.data == y.data || memcmp(x.data, y.data, x.size) == 0);
}

uint64_t attr_hash(const struct attr *a)
{
    struct span s;
    return plain_bytes(a, &s) ? hash_mix(a->kind, hash_spread(s.data, s.size)) : a->kind;
}

struct attr attr_int(const char *name, int64_t i)
{
    return (struct attr){.name = name, .kind = ATTR_INT, .u.i = i};
}

struct attr attr_ints(const char *name, const int64_t *ints, uint32_t n)
{
    return (struct attr){.name = name, .kind = ATTR_INTS, .n = n, .u.ints = ints};
}

struct attr attr_exprs(const char *name, const expr_id *exprs, uint32_t n)
{
    return (struct attr){.name = name, .kind = ATTR_EXPRS, .n = n, .u.exprs = exprs};
}

struct attr attr_expr(const char *name, expr_id e)
{
    return (struct attr){.name = name, .kind = ATTR_EXPR, .u.e = e};
}

struct attr attr_float(const char *name, double f)
{
    return (struct attr){.name = name, .kind = ATTR_FLOAT, .u.f = f};
}

struct attr attr_str(const char *name, const char *s)
{
    return (struct attr){.name = name, .kind = ATTR_STR, .n = (uint32_t)strlen(s), .u.s = s};
}

struct attr attr_elem(const char *name, enum elem elem)
{
    return (struct attr){.name = name, .kind = ATTR_ELEM, .u.elem = elem};
}

struct attr attr_data(const void *data, size_t size)
{
    return (struct attr){.name = "data", .kind = ATTR_DATA, .u.data = {data, size}};
}
