/* fuse-partials: the kernel of a depthwise convolution computes the partial results of its rows, too.
 *
 * split-k has made a reduction of an image one of its rows' partial results [N, C, H], and fuse a kernel for these.
 * Now layouts are known: if the kernel of the image has a parallel index for each row and lanes along the channels,
 * it stores the partial results as a second value, and the kernel of their own goes. How a row is added up depends on
 * the shape alone, so results do not depend on threads.
 *
 * For squeeze and excitation behind depthwise convolutions: 3 of the 14 networks of `make bench`, none of the 554 of
 * ../shared/models that compile.
 */
#include "passes/module/access_function.h"
#include "passes/module/module.h"
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

bool fuse_partials(struct module *m)
{
    bool *gone = NEW_ARRAY(m->arena, bool, m->fused.kernels.n + 1), any = false;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *own = &m->fused.kernels.data[i];
        struct kernel *k = image_kernel(m, own);
        if (!k)
            continue;
        value_id partial = own->outs.data[0];
        VEC_PUSH(m->arena, &k->outs, partial);
        VEC_PUSH(m->arena, &k->nodes, own->anchor);
        m->fused.kernel_of[own->anchor.i] = (uint32_t)(k - m->fused.kernels.data) + 1;
        m->fused.constraint[partial.i].blocked = gone[i] = any = true;
    }
    if (any)
        kernels_remove(m, gone);
    return true;
}
