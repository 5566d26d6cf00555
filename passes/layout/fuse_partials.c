/* fuse-partials: second results of kernels: the partial results of the rows of a depthwise convolution, and a second
 * reduction of an operand.
 *
 * split-k has made a reduction of an image one of its rows' partial results [N, C, H], and fuse a kernel for these.
 * Now layouts are known: if the kernel of the image has a parallel index for each row and lanes along the channels,
 * it stores the partial results as a second value, and the kernel of their own goes. How a row is added up depends on
 * the shape alone, so results do not depend on threads.
 *
 * For squeeze and excitation after depthwise convolutions: 3 of the 14 networks of `make bench`, none of the 554 of
 * ../shared/models that compile.
 */
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

enum { IMAGE_RANK = 4, COLUMNS = 3 };

/* Does the kernel of v run over its rows in parallel, and over vectors of channels? */
static bool has_rows_of_channels(const struct module *m, const struct kernel *k, value_id v)
{
    if (k->kind != KERNEL_CONTRACT || k->outs.n != 1 || k->outs.data[0].i != v.i || k->domain.i != v.i || k->piece ||
        k->path.n)
        return false;
    const struct node *n = graph_node(m->g, k->anchor);
    return conv_depthwise(m->g, n) && m->fused.constraint[v.i].blocked &&
           (m->fused.constraint[n->in[0].i].blocked || k->form.product.i);
}

/* The kernel that computes the image whose columns kernel `own` does nothing but reduce; NULL: there is none. */
static struct kernel *image_kernel(struct module *m, const struct kernel *own)
{
    uint32_t count;
    const struct node *n = own->kind == KERNEL_REDUCE ? graph_node(m->g, own->anchor) : NULL;
    const int64_t *axes = n && n->op == OP_REDUCE ? node_ints(n, "axes", &count) : NULL;
    if (!axes || count != 1 || axes[0] != COLUMNS || own->nodes.n != 1 || own->outs.data[0].i != n->out[0].i)
        return NULL;
    value_id v = n->in[0], partial = n->out[0];
    node_id def = graph_value(m->g, v)->def;
    struct kernel *k = def.i && m->fused.kernel_of[def.i] ? &m->fused.kernels.data[m->fused.kernel_of[def.i] - 1]
                                                          : NULL;
    return k && value_type(m->g, v)->rank == IMAGE_RANK && value_type(m->g, v)->elem == ELEM_F32 &&
                   !m->fused.constraint[partial.i].plain && m->fused.storage[partial.i].place == PLACE_ARENA &&
                   m->fused.stored[v.i] && k->region.i == own->region.i && has_rows_of_channels(m, k, v)
               ? k
               : NULL;
}

/* The reduction along the last dim of which the kernel is nothing but the result; NULL: it is more. */
static const struct node *plain_reduction(const struct module *m, const struct kernel *k)
{
    const struct node *n = k->kind == KERNEL_REDUCE ? graph_node(m->g, k->anchor) : NULL;
    uint32_t count;
    const int64_t *axes = n && n->op == OP_REDUCE ? node_ints(n, "axes", &count) : NULL;
    if (!axes || !count || axes[count - 1] + 1 != value_type(m->g, n->in[0])->rank || k->outs.n != 1 ||
        k->outs.data[0].i != n->out[0].i || k->domain.i != n->out[0].i || k->piece || k->path.n || k->shares ||
        m->fused.storage[n->out[0].i].place != PLACE_ARENA)
        return NULL;
    for (uint32_t i = 0; i < k->nodes.n; i++)
        if (k->nodes.data[i].i != k->anchor.i && graph_node(m->g, k->nodes.data[i])->op != OP_RESHAPE)
            return NULL;
    return n;
}

/* Have the reductions the same operand and axes? Equal reshapes are the same. */
static bool are_siblings(const struct module *m, const struct node *a, const struct node *b)
{
    const struct node *x = value_node(m->g, a->in[0]), *y = value_node(m->g, b->in[0]);
    bool same = a->in[0].i == b->in[0].i ||
                (x && y && x->op == OP_RESHAPE && y->op == OP_RESHAPE && x->in[0].i == y->in[0].i &&
                 type_equal(value_type(m->g, a->in[0]), value_type(m->g, b->in[0])));
    uint32_t n, of_b;
    const int64_t *axes = node_ints(a, "axes", &n), *others = node_ints(b, "axes", &of_b);
    return same && n == of_b && !memcmp(axes, others, n * sizeof *axes);
}

/* An earlier kernel of a reduction of the same operand, without a second result; NULL: there is none. */
static struct kernel *sibling_kernel(struct module *m, uint32_t number, const bool *gone)
{
    struct kernel *all = m->fused.kernels.data;
    const struct node *n = plain_reduction(m, &all[number]);
    for (uint32_t i = 0; n && i < m->fused.kernels.n; i++) {
        const struct node *other = i != number && !gone[i] && all[i].region.i == all[number].region.i &&
                                           all[i].order < all[number].order
                                       ? plain_reduction(m, &all[i])
                                       : NULL;
        if (other && are_siblings(m, n, other))
            return &all[i];
    }
    return NULL;
}

static void kernel_add_node(struct module *m, struct kernel *k, node_id id)
{
    for (uint32_t i = 0; i < k->nodes.n; i++)
        if (k->nodes.data[i].i == id.i)
            return;
    VEC_PUSH(m->arena, &k->nodes, id);
    m->fused.kernel_of[id.i] = (uint32_t)(k - m->fused.kernels.data) + 1;
}

bool fuse_partials(struct module *m)
{
    bool *gone = NEW_ARRAY(m->arena, bool, m->fused.kernels.n + 1), any = false;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *own = &m->fused.kernels.data[i];
        struct kernel *image = image_kernel(m, own), *k = image ? image : sibling_kernel(m, i, gone);
        if (!k)
            continue;
        value_id second = own->outs.data[0];
        VEC_PUSH(m->arena, &k->outs, second);
        for (uint32_t j = 0; j < own->nodes.n; j++)
            kernel_add_node(m, k, own->nodes.data[j]);
        gone[i] = any = true;
        m->fused.constraint[second.i].blocked |= image != NULL;
    }
    if (any)
        kernels_remove(m, gone);
    return true;
}
