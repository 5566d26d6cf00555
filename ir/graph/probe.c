/* The list of products that a search asks about: see probe.h. */
#include "ir/graph/probe.h"

struct probed_product *probe_find(struct product_probe *probe, const char *label)
{
    return ROW_NAMED(probe->products.data, probe->products.n, label);
}

struct probed_product *probe_product(struct product_probe *probe, const char *label, const char *op)
{
    struct probed_product *known = probe_find(probe, label);
    if (known)
        return known;
    VEC_PUSH(
        probe->arena, &probe->products,
        ((struct probed_product){.label = arena_strdup(probe->arena, label), .op = arena_strdup(probe->arena, op)}));
    return &probe->products.data[probe->products.n - 1];
}
