/* What a search asks of a network's products: which there are, and what each one computed in another arithmetic adds to
 * the outputs (mcc --error, --precision=auto, mcc quantize).
 */
#pragma once

#include "ir/graph/graph.h"

/* How a product is computed. */
enum arithmetic {
    ARITHMETIC_F32,
    ARITHMETIC_F16, /* operands rounded to that type, sums of f32 */
    ARITHMETIC_BF16,
    ARITHMETIC_I8, /* the constant alone quantized, with a scale for each output channel */
    ARITHMETIC_I4, /* ... and for each 32 of its steps */
    ARITHMETIC_INT8, /* operands quantized, the first by a range; sums of i32 */
    ARITHMETIC_DYNAMIC, /* ... by the range that it has in each run */
    ARITHMETICS
};
struct operand_range {
    double least, most;
};
#define OPERAND_MOST 1e30 /* of what a choice takes for its ends */
/* What a product's constant becomes, with one scale for each output channel, and with it the bias. */
struct probed_weights {
    const int64_t *dims;
    int32_t rank, axis; /* of the output channels */
    const int8_t *bytes;
    const float *scales, *bias; /* bias: NULL: as it is */
};
/* The products of one label. */
struct probed_product {
    const char *label, *op;
    value_id x; /* of the legal graph, for int8: the operand that is computed */
    bool takes_int8, is_conv; /* in the top region, the only one with its label, by a constant */
    uint32_t times; /* how often legalize met the label; in a loop or a branch twice */
    bool narrows, stores; /* operands may be rounded; the constant may be stored with scales */
    bool wanted; /* by the caller: computed in the other arithmetic, too */
    bool twin; /* legalize did so for int8 */
    struct operand_range range; /* of x, by the caller, for ARITHMETIC_INT8 */
    const struct probed_weights *weights; /* by the caller: NULL: max / 127 of each output channel */
    /* Of any other node, by the caller: its first operands of floats, those of a list too, are rounded to u8. */
    const struct operand_range *ranges;
    uint32_t n_ranges;
};
/* Legalize lists the products that take int8 here, narrow-products all of them, or finds them by their labels. second:
 * they are computed in that arithmetic as well, and a run takes those results of product k if its input PROBE_INPUT is
 * k. observe: the operands x of products that take int8 become outputs of the network, after its own; PROBE_OPERAND and
 * the number of the first that reads it. */
#define PROBE_INPUT "mcc.product"
#define PROBE_OPERAND "mcc.operand."
struct product_probe {
    struct arena *arena;
    enum arithmetic second; /* ARITHMETIC_F32: none */
    bool observe;
    VEC(struct probed_product) products;
    VEC(node_id) twins; /* of one compilation: what computes them in `second`, from narrow-products on */
};
/* The products of the label; NULL: the list has none. */
struct probed_product *probe_find(struct product_probe *, const char *label);
/* The same; they become part of the list. op: what the file calls them. */
struct probed_product *probe_product(struct product_probe *, const char *label, const char *op);
