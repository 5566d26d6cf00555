/* Why an attention is not one kernel, for -Rpass-missed=attention: the first obstacle on the way from the product with
 * the values back to the scores. */
#include "passes/module/attention.h"

enum { DEPTH_MOST = 32, VISITS_MOST = 512 };

struct walk {
    const struct module *m;
    uint32_t visits;
    node_list path; /* the node that is nearest to the goal first */
};

typedef bool goal_fn(const struct graph *, value_id);

static bool is_dot(const struct graph *g, value_id v)
{
    return value_op(g, v) == OP_DOT;
}

/* Does v, through views and arithmetic of sums, come from the sum of `terms`? */
static bool is_sum(const struct graph *g, value_id v, value_id terms, uint32_t depth)
{
    const struct node *n = value_node(g, v);
    if (!n || depth > 8)
        return false;
    if (n->op == OP_REDUCE)
        return n->in[0].i == terms.i && !strcmp(node_str(n, "monoid", ""), "sum");
    bool found = false;
    for (uint32_t k = 0; k < n->n_in && (op_shape(n->op) == SHAPE_VIEW || op_shape(n->op) == SHAPE_MAP); k++)
        found = found || is_sum(g, n->in[k], terms, depth + 1);
    return found;
}

/* Terms over their sum. */
static bool is_softmax(const struct graph *g, value_id v)
{
    const struct node *n = value_node(g, v);
    if (!n || (n->op != OP_MUL && n->op != OP_DIV))
        return false;
    enum op terms = value_op(g, n->in[0]);
    return (terms == OP_EXP || terms == OP_SELECT) && is_sum(g, n->in[1], n->in[0], 0);
}

/* From v back to a goal, through maps and views; {0}: there is none. */
static value_id walk_to(struct walk *w, value_id v, goal_fn *goal, uint32_t depth)
{
    const struct node *n = value_node(w->m->g, v);
    if (!n || depth > DEPTH_MOST || ++w->visits > VISITS_MOST || value_is_const(w->m->g, v))
        return (value_id){0};
    if (goal(w->m->g, v))
        return v;
    for (uint32_t k = 0; k < n->n_in && (op_shape(n->op) == SHAPE_MAP || op_shape(n->op) == SHAPE_VIEW); k++) {
        value_id found = walk_to(w, n->in[k], goal, depth + 1);
        if (found.i) {
            VEC_PUSH(w->m->arena, &w->path, graph_value(w->m->g, v)->def);
            return found;
        }
    }
    return (value_id){0};
}

static const char *label_of(const struct module *m, const struct node *n)
{
    return source_label(source_get(m->ctx, n->src));
}

/* What the node does that none on this way may; NULL: nothing. */
static const char *obstacle(const struct module *m, node_id id, bool maps, uint32_t uses)
{
    const struct node *n = graph_node(m->g, id);
    uint32_t have = graph_value(m->g, n->out[0])->n_uses;
    if (have > uses)
        return arena_printf(m->arena, "the result of %s (%s) has %u readers, %u of which are outside", label_of(m, n),
                            op_name(n->op), have, have - uses);
    if (op_shape(n->op) == SHAPE_VIEW && !view_invertible(n->op))
        return arena_printf(m->arena, "%s (%s) does more than reorder elements", label_of(m, n), op_name(n->op));
    if (op_shape(n->op) == SHAPE_MAP && !maps)
        return arena_printf(m->arena, "%s (%s) is between the softmax and the product with the values", label_of(m, n),
                            op_name(n->op));
    return NULL;
}

const char *attention_obstacle(struct module *m, node_id values, const char *why)
{
    const struct node *n = graph_node(m->g, values);
    struct walk to_p = {.m = m}, to_scores = {.m = m};
    const char *found = NULL;
    uint32_t side = 0;
    value_id p = walk_to(&to_p, n->in[0], is_softmax, 0);
    if (!p.i) {
        to_p = (struct walk){.m = m};
        p = walk_to(&to_p, n->in[side = 1], is_softmax, 0);
    }
    value_id terms = p.i ? value_node(m->g, p)->in[0] : p;
    value_id scores = p.i ? walk_to(&to_scores, terms, is_dot, 0) : p;
    if (!scores.i)
        return NULL;
    for (uint32_t i = to_p.path.n; i > 0 && !found; i--)
        found = obstacle(m, to_p.path.data[i - 1], false, 1);
    if (found)
        return found;
    if (side)
        return "the probabilities are the second operand of the product with the values";
    if (graph_value(m->g, p)->n_uses > 1)
        return obstacle(m, graph_value(m->g, p)->def, true, 1);
    if (why)
        return why;
    for (uint32_t i = to_scores.path.n; i > 0 && !found; i--)
        found = obstacle(m, to_scores.path.data[i - 1], true, 3);
    if (!found)
        found = obstacle(m, graph_value(m->g, scores)->def, true, 1);
    return found ? found : "the softmax and the scores have another form";
}
