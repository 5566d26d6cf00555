/* choose-winograd: the convolution kernels that are computed by Winograd's form, and which m (kernel.form.winograd):
 * those with a blocked operand, by the user's choice or by cost (module/winograd_cost.c). Comes before halos are
 * planned: the operand has to reach as far as whole tiles do.
 *
 * For 3 x 3 convolutions of many channels: some in 4 of the 554 networks of ../shared/models that compile, and in 5 of
 * the 14 of `make bench`. */
#include "passes/module/choices.h"
#include "passes/module/winograd.h"

bool choose_winograd(struct module *m)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        struct kernel *k = &m->fused.kernels.data[i];
        if (k->kind != KERNEL_CONTRACT || k->form.winograd) /* a staged operand's: see fuse/stage.c */
            continue;
        const struct choice *chosen = choice_of_kernel(m, k, CHOOSE_WINOGRAD);
        k->form.winograd = m->fused.constraint[graph_node(m->g, k->anchor)->in[0].i].blocked ? winograd_wanted(m, k)
                                                                                             : 0;
        if (chosen && chosen->n[0] && !k->form.winograd)
            choice_refuse(
                m, chosen,
                "the node is no 3 x 3 convolution of floats with stride 1, constant weights and a blocked operand");
    }
    return true;
}
