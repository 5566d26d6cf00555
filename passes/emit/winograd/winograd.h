/* The Winograd template's parts: the kernel (emit/winograd/winograd.c), its sizes (schedule/winograd_sizes.c),
 * transforms (emit/winograd/transform.c), matrix products (emit/winograd/product.c).
 *
 * Buffers of a chunk of tiles, which are taken in blocks of mr, a register tile; strides between points are odd numbers
 * of vectors, or all points of a tile would compete for one set of the cache. The products walk through each of them in
 * order. Strides of a dynamic number of tiles are those of the blocks that the chunk has: of small images, points as
 * far apart as a full chunk's would share a quarter of the sets. V[slice][point][block][vector of the slice's input
 * channels][tile][lane] U[point][input channel of the slice][vector][lane] M[point][block][tile][vector of a register
 * tile][lane]
 */
#pragma once

#include "passes/emit/templates.h"
#include "passes/emit/register_tile.h"
#include "passes/module/winograd.h"

struct wino {
    struct em *em;
    const struct winograd_schedule *s;
    const struct node *n;
    struct winograd_shape shape;
    const struct winograd_form *f; /* of the shape, as what follows */
    uint32_t lanes;
    int64_t ic, icv, points;
    struct even columns; /* of output channels in a group: register tiles of up to two widths */
    expr_id first, here; /* of the chunk at hand */
    expr_id v_stride, m_stride; /* of that chunk, in elements between points */
    expr_id group0; /* first vector of its output channels */
    lreg keeper; /* of V, or of U where all of it is resident: {0}: no index shares it with another */
    lreg v, m, u; /* u: all of it if resident, else of the slice at hand */
    lreg places; /* of each tile of the chunk, if divisions by dynamic extents find them; else {0} */
    lreg weights; /* panels that U is derived from; {0}: they are computed from compressed weights */
    int64_t stride[4]; /* of the panels */
    /* of the tile at hand: its place, its number in its block */
    expr_id image, y0, x0, block, tile, part, vec,
        lane; /* operand: vector vec of slice `part`; result: vec of the register tile */
    struct em_if row;
    bool row_open;
    lreg edge; /* results of a tile that may reach past the image's edge; {0}: they are tested one by one */
};

/* The register tiles at hand: column `number` of the group, n vectors of output channels from `vector` of the group on;
 * the slice of input channels; where in w->u their weights begin, if the kernel derives them. nr: n, where products are
 * written for it. */
struct product {
    expr_id number, vector, n;
    expr_id point, block, slice, next, u;
    int64_t nr;
};

/* Elements between points of V and of M where a chunk has so many blocks. */
expr_id wino_v_stride(const struct wino *, expr_id blocks);
expr_id wino_m_stride(const struct wino *, expr_id blocks);
/* Elements of V and M: `vector` of a slice, of a register tile. */
expr_id wino_v_at(const struct wino *, expr_id slice, expr_id point, expr_id block, expr_id vector, expr_id tile);
expr_id wino_m_at(const struct wino *, expr_id block, expr_id point, expr_id vector, expr_id tile);
/* The address of the plain weights of a channel and a vector of the kernel's output channels: the first tap's. */
expr_id wino_plain_at(const struct wino *, expr_id vector, expr_id channel);

/* The places of the tiles of the chunk at hand; blocks: of that chunk. */
void wino_places(struct wino *, expr_id blocks);
void wino_input(struct wino *, expr_id blocks);
void wino_weights(struct wino *, const struct product *); /* of a slice */
void wino_products(struct wino *, struct product *, expr_id blocks);
void wino_output(struct wino *, const struct product *, expr_id blocks);
/* Asks for the lines that the results of p's block will be stored to: the share of p's point. */
void wino_output_ahead(struct wino *, const struct product *);
