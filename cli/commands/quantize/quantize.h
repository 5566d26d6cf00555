/* What the files of mcc quantize share.
 *
 * The network is never rebuilt: everything is an edit of its file (struct editor). An edge is a value that some node
 * would read as bytes; a site is a node that would read bytes, as long as it is not kept in f32.
 */
#pragma once

#include "cli/commands/quantize/trial.h"
#include "frontend/frontend.h"

/* ---- ranges.c ---------------------------------------------------------------------------------------------------- */

enum { BINS = 8192, STEPS_U8 = 255, STEPS_I8 = 127 };
/* What samples were seen to be. */
struct seen {
    double least, most; /* with 0 */
    double reach; /* bins go from -reach to reach; 0: nothing was seen */
    uint64_t *bins;
    uint64_t count, zeros;
    uint32_t channels; /* 0: none are told apart */
    double *sum, *top; /* by channel: of values, the largest magnitude */
};
struct range {
    float scale;
    uint8_t zero;
};
/* axis: of the channels; -1: none. False: a value is not finite. */
bool seen_add(struct arena *, struct seen *, const float *, const int64_t *dims, int32_t rank, int32_t axis);
struct range range_choose(const struct seen *, enum option_ranges);
struct operand_range range_ends(struct range);

/* ---- quantize_plan.c --------------------------------------------------------------------------------------------- */

struct edge {
    const char *name;
    bool last_axis; /* channels are its last dim, else dim 1 */
    bool is_float;
    bool stored; /* as bytes, in an attempt */
    struct seen seen;
    struct range range;
    const char *wide; /* what readers then read; NULL: the value itself */
};
/* A constant operand, as it is by now. */
struct weights {
    const char *name;
    float *now; /* NULL: there is none, or it is not a plain one */
    int64_t dims[RANK_MAX], n;
    int32_t rank;
    bool changed, only; /* only: nothing else reads it */
};
struct site {
    uint32_t node;
    bool is_product, takes_bias;
    bool kept;
    uint32_t edges[8], n_edges;
    struct weights w, bias;
    int32_t out_axis, in_axis; /* of w */
    uint32_t groups, outs, ins; /* channels; ins: of all groups */
    float *scales; /* by output channel */
    int8_t *bytes;
    float *corrected; /* the bias, NULL: there is none */
};
struct quantizer {
    struct context *ctx;
    const struct options *options;
    const struct editor *editor;
    struct edit_file *file;
    enum option_ranges method;
    VEC(struct edge) edges;
    VEC(struct site) sites;
};
/* Finds edges and sites in q->file. */
void plan_make(struct quantizer *);
/* Sites whose operands are no floats leave. After the edges' types are known. */
void plan_settle(struct quantizer *);
/* The nodes that read the value, the first of them in *node; whatever else reads it counts as one, too. */
uint32_t plan_readers(const struct quantizer *, const char *name, uint32_t *node);
/* The edge of that name, the site of that node; NULL: there is none. */
struct edge *plan_edge(const struct quantizer *, const char *name);
struct site *plan_site(const struct quantizer *, uint32_t node);
/* Edits q->file: bytes on every edge that a site which is not kept reads, and the constants of all sites. */
void plan_apply(struct quantizer *);

/* ---- quantize_weights.c ------------------------------------------------------------------------------------------ */

/* Moves scales from wide channels of activations into the weights after them, where what lies between is homogeneous.
 * The number of pairs. */
uint32_t weights_equalize(struct quantizer *);
/* Bytes and scales of all products, their biases corrected by what rounding the weights adds on average. */
void weights_quantize(struct quantizer *);
