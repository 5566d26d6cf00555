/* Random legal graphs, the same for one seed in every context: draw.c (choices, leaves), draw_map.c (elementwise),
 * draw_size.c (computed extents), draw_view.c (views, gathers, scatters), draw_sum.c (reductions), draw_product.c
 * (products), draw_wide.c (products of bytes and halves), draw_spatial.c (windows, convolutions), draw_control.c
 * (branches and loops).
 *
 * Every value carries what is known of its elements: their largest magnitude, how far an implementation may be off, and
 * for those that no rounding has touched the number of binary places. Sums and products of few small dyadic numbers are
 * exact, so even a convolution can be compared bit by bit, and only exact values reach discontinuous operators.
 *
 * What is drawn does not depend on the extents of symbolic dims: bounds hold for the largest ones, and draw_bind makes
 * the inputs for others, so that one graph runs at several sizes.
 */
#ifndef MCC_TESTS_FUZZ_DRAW_H
#define MCC_TESTS_FUZZ_DRAW_H

#include "ir/build/build.h"
#include "ir/eval/interpreter.h"

enum {
    DRAW_VALUES = 160,
    DRAW_ELEMENTS = 6000,
    DRAW_WORK = 400000,
    DRAW_INPUTS = 24,
    DRAW_SYMBOLS = 2,
    DRAW_SIZES = 4
};

struct drawn {
    value_id v;
    double mag;        /* no element is larger */
    double err;        /* an element may be off by so much; 0: exact */
    int places;        /* exact floats are multiples of 2^-places */
};
/* How the elements of a leaf are made: its own random numbers; indices lo..hi, or what draw_element gives. */
struct drawn_data {
    uint64_t seed;
    int places;
    bool indices;
    int64_t lo, hi;
};
struct draw {
    struct context *ctx;
    struct graph *g;
    struct exprs *x;
    struct builder b;
    uint64_t state;
    uint32_t n_symbols;
    sym_id symbol[DRAW_SYMBOLS];
    int64_t extent[DRAW_SYMBOLS];    /* the largest that these symbols get */
    uint32_t nesting;            /* of regions, where one is being drawn */
    bool verbose;                /* kernels are shown too */
    double work;                 /* multiplications so far */
    int64_t largest_leaf;        /* in elements; 0: 4 * DRAW_ELEMENTS */
    uint32_t n;
    struct drawn value[DRAW_VALUES];
    struct tensor inputs[DRAW_INPUTS];
    struct drawn_data input_data[DRAW_INPUTS];
    struct drawn output[DRAW_VALUES];    /* by graph output */
    uint32_t n_late;             /* outputs whose extents the data decides: they come last */
    struct drawn late[4];
};

/* Draws a graph of n_ops steps (0: the seed says how many) with its inputs and outputs; of these only one stays when
 * `only` is the number of one. NULL when the seed gives none (a diagnostic tells why). */
struct draw *draw_graph(struct context *, uint64_t seed, uint32_t n_ops, uint32_t only);

/* Makes the inputs for these extents of the symbols, none above the one in draw.extent. */
void draw_bind(struct draw *, const int64_t *extents);

/* ---- choices ------------------------------------------------------------------------------------------------ */

uint64_t draw_bits(struct draw *);
int64_t draw_int(struct draw *, int64_t lo, int64_t hi);       /* both may come */
bool draw_chance(struct draw *, int percent);
#define DRAW_PICK(d, list) ((list)[draw_int((d), 0, (int64_t)COUNT_OF(list) - 1)])

/* ---- values --------------------------------------------------------------------------------------------------- */

const struct type *drawn_type(struct draw *, const struct drawn *);
/* The extents of the symbols in run k of DRAW_SIZES: the largest, none, one, and something between. */
void draw_extents(const struct draw *, int k, int64_t *extents);
int64_t draw_dim(struct draw *, expr_id);                      /* the largest of these runs */
/* How many places an index has in each of these runs where there is any: the least of the extents above 0. At most 0
 * where the largest extents of the symbols give none. */
int64_t draw_places(struct draw *, expr_id);
int64_t draw_count(struct draw *, const struct drawn *);
double elem_eps(enum elem);
/* Completes what is known about a result: rounds err up where it is not exact. */
struct drawn drawn_make(struct draw *, value_id, double mag, double err, int places);
/* A result with the same elements as x. */
struct drawn drawn_like(struct draw *, value_id, const struct drawn *x);
bool drawn_exact(const struct drawn *);
void draw_keep(struct draw *, struct drawn);
/* A value of the pool whose class of elements is one of classes (and whose rank is at least rank); new where none
 * fits. */
struct drawn draw_value(struct draw *, const char *classes, int32_t rank);
struct drawn draw_leaf(struct draw *, enum elem, const expr_id *dims, int32_t rank, bool constant);
/* Integers lo..hi, as an input or a constant. */
struct drawn draw_indices(struct draw *, enum elem, const expr_id *dims, int32_t rank, int64_t lo, int64_t hi);
expr_id draw_extent(struct draw *);
expr_id draw_symbol(struct draw *); /* one of them; there must be some */
/* Of draw_size.c: any number that is computed from the symbols, and one of lo..hi. */
expr_id draw_number(struct draw *, int depth);
expr_id draw_size(struct draw *, int64_t lo, int64_t hi);
int32_t draw_shape(struct draw *, int32_t least, expr_id *dims);
/* The same values without rounding error or wide range: what follows a discontinuous operator. */
enum elem draw_float(struct draw *);

/* ---- operators: each adds values to the pool, or nothing ------------------------------------------------------ */

void draw_map(struct draw *);
void draw_view(struct draw *);
void draw_index(struct draw *);
void draw_reduce(struct draw *);
void draw_product(struct draw *);
void draw_wide(struct draw *);
void draw_rows(struct draw *);
void draw_call(struct draw *);
void draw_control(struct draw *);
void draw_op(struct draw *); /* any of these */
struct drawn draw_binary(struct draw *, enum op, struct drawn, struct drawn);
struct drawn draw_const(struct draw *, const struct drawn *like, double); /* exact: few places */

/* ---- sums: of draw_sum.c, ... ----------------------------------------------------------------------------------- */

/* A sum of n elements: magnitude and error. */
struct drawn draw_summed(struct draw *, value_id, double n, double mag, double err, int places);
/* n elements of x combined by the monoid, one that draw_monoid gives for such. */
struct drawn draw_folded(struct draw *, value_id, const char *monoid, double n, const struct drawn *x);
const char *draw_monoid(struct draw *, char class, double n, double mag);

/* ... of draw_spatial.c. */
void draw_window(struct draw *, struct drawn x, const struct type *);
void draw_conv(struct draw *);
/* An expansion, a depthwise convolution, a sum over each of its images that scales it, a projection: squeeze and
 * excitation. Some of these are left out. */
void draw_squeeze(struct draw *);

#endif
