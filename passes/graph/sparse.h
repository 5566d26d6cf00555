/* Between the files of sparsify: constants by their non-zero elements, and what convolutions leave for one another. */
#pragma once

#include "ir/build/build.h"
#include "passes/module/module.h"

enum {
    POINTS_LEAST = 32,  /* two vectors */
    LINE_ELEMENTS = 16, /* of a line of the cache, on which results begin */
    SPATIAL_MOST = 3
};

/* Costs in multiply-adds of a dense kernel (measured, AVX-512): */
#define COST_ELEMENT 2.6   /* a non-zero element times a point, */
#define COST_SHIFTED 4.0   /* which is not aligned, since a tap reads next to its point */
#define COST_COPY 10.0     /* a point of an operand or result that is copied */
#define COST_COPY_BYTES 40.0 /* ... of bytes, whose dense multiply-adds are four times as fast */
#define COST_WINOGRAD 0.5  /* of the multiply-adds of a 3 x 3 convolution */
#define COST_DEPTHWISE 2.0 /* of a depthwise one: its points share no weights */

#define COST_GATHERED 4.0 /* an element of a column of a single row's product, of one that is read from memory */

/* A constant [n, k] by the elements of its rows that are not zero, row after row. */
struct rows {
    int64_t n, k, all; /* rows; elements of one; non-zero elements of all */
    bool by_rows;      /* the constant is [n, k], else [k, n] */
    enum elem elem;    /* of the constant: f32, or bytes, whose products are summed in i32 */
    int32_t *starts;   /* [n + 1] */
    float *values;     /* [all] */
    int32_t *places;   /* [all] */
};

/* A feature map as one line for each channel: each row of points ends with a gap, which nobody reads. */
struct lines {
    int32_t n;                   /* spatial dims */
    int64_t out[SPATIAL_MOST];   /* their extents */
    int64_t pitch[SPATIAL_MOST]; /* with the gap; pitch[0] is not used */
    int64_t points;              /* of a line, at least all rows with their gaps */
};

/* A value that is a view of a line [b, channels, points]. */
struct flat {
    value_id value, line;
    struct lines at;
    bool alone; /* nothing reads what it is computed from, back to products */
};

/* The sums of a convolution of one tap, as a line: of this operand, by these rows. */
struct product {
    value_id line, operand;
    const int64_t *strides;
    struct rows rows;
};

struct sparse {
    struct module *m;
    int64_t masks; /* bytes that constants which say where lines have gaps may still add */
    VEC(struct flat) flats;
    VEC(struct product) products;
};

/* ---- sparsify.c ---- */

/* r: n, k and by_rows; the rest is set. false: not enough zeros. */
bool rows_read(struct module *, value_id w, struct rows *r);
/* Are so many multiply-adds of a dense kernel few? */
bool is_small(const struct module *, int64_t elements, int64_t points);
/* x [..., t, l] -> [..., n, l]; places count along t. */
value_id sparse_product(struct builder *, const struct rows *, value_id x);
/* Is the sparse form of a contraction at so many points, copied: of operand and result, faster? */
bool pays(const struct rows *, double points, double copied, double each, double dense);

/* Is it a product or convolution by a constant with many zeros, by a sample of them? */
bool may_be_sparse(struct module *, node_id);

/* ---- sparse_conv.c: {0}: it stays dense ---- */

value_id sparse_conv(struct sparse *, node_id);

/* ---- sparse_lines.c ---- */

/* v as a line; NULL: it is none. */
const struct flat *flat_of(const struct sparse *, value_id v);
/* Rows of so many points for at least `points`, such that that many times these begin and end on lines of the cache. */
int64_t whole_rows(int64_t points, int64_t row, int64_t times);
/* Adds the value of these dims whose points are those of a line, without the gaps. */
value_id flat_value(struct sparse *, struct builder *, value_id line, const struct lines *, bool alone,
                    const expr_id *dims);
void product_add(struct sparse *, const struct product *);
/* The points of a product's operand that its result has: [b, channels, spatial dims]. */
value_id product_points(struct builder *, const struct product *, const expr_id *spatial);
/* A map of lines becomes a line. {0}: it stays. */
value_id flat_map(struct sparse *, node_id);
/* A line computed anew of other points: operand() makes the line [b, channels, points] that a product reads.
 * again_channels: of the widest operand of a product; -1: it can't be. */
struct again {
    value_id (*operand)(struct builder *, void *user, const struct product *);
    void *user;
    int64_t points;
};
int64_t again_channels(const struct sparse *, value_id line, int depth);
value_id flat_again(const struct sparse *, struct builder *, value_id line, const struct again *);
