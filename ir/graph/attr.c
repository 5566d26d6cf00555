/* Attributes by name: constructors, and accessors that take an absent attribute, or one of another kind, for
 * the default. Whoever must tell the two apart asks node_attr.
 */
#include <string.h>

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
    *n = a ? a->n : 0;
    return a ? a->u.ints : NULL;
}

const expr_id *node_exprs(const struct node *node, const char *name, uint32_t *n)
{
    const struct attr *a = attr_of_kind(node, name, ATTR_EXPRS);
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

struct attr attr_data(const char *name, const void *data, size_t size)
{
    return (struct attr){.name = name, .kind = ATTR_DATA, .u.data = {data, size}};
}
