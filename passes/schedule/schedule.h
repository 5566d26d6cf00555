/* The schedule of a kernel on one CPU, as data: how its loops are cut, which dims lie in lanes and registers, what is
 * staged, blocked and prefetched.
 *
 * In: a kernel whose values have storages, a machine. Out: one record of decisions (struct schedule), which prints and
 * parses (schedule_text.c), is verified (verify_schedule.c) and changed by --choose and --schedules; and the facts that
 * follow from it (struct schedule_facts). The emitters (passes/emit) take both and choose nothing.
 */
#pragma once

#include "ir/target/budget.h"
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"
#include "passes/module/bounds.h"

/* What a decision sees: a kernel, a CPU, and memory for as long as the kernel is at hand. */
struct site {
    struct module *m;
    struct kernel *k;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    const struct machine *mach;
};

/* ---- the record ------------------------------------------------------------------------------------------------- */

enum schedule_kind {
    SCHEDULE_NONE, /* no kernel of its own: a call or control flow of the program */
#define KIND(id, name, what) SCHEDULE_##id,
#include "passes/schedule/fields.def"
    SCHEDULE_KINDS
};

enum { NEST_LOOPS_MOST = RANK_MAX + 4, PEELS_MOST = 4 };
/* The loop nest over the points of a value: of a map all of them, of a scan the lines along its axis, of a scatter the
 * points of the result (and of the updates, along the same dim of the lanes), of a halo images and channels.
 *
 * A dim may have several loops, the inner ones over what a trip of the next outer one takes: a parallel loop in steps
 * of several points is a split. The last loop of a dim takes single points, except for
 *
 *   vec                         vectors of so many points, and what is left over
 *   the last loop but one, if   packed points: a vector holds so many points of that dim, each with the few points of
 *   the last is vec's           vec, which the last loop takes at once
 *   the last loop, if the one   an in-register transpose: tiles of points of both, read along this dim and stored
 *   before it is vec's          along vec
 */
struct nest_schedule {
    int32_t vec; /* dim of the lanes; -1: scalars */
    uint32_t n_loops, parallel; /* the outermost so many are flattened into the parallel index */
    int32_t loop[NEST_LOOPS_MOST]; /* their dims, outermost first, */
    int64_t step[NEST_LOOPS_MOST]; /* and the points of it that a trip takes */
    uint32_t n_peels; /* peeled segments: vectors begin anew at these points of vec, or of what is packed with it,
                         ascending, where a padding ends, or an operand of a concat */
    int32_t peel[PEELS_MOST];
};

/* A reduction of the kernel, its anchor or one inside of a map: reduce, window, contraction. */
struct reduce_schedule {
    uint32_t lanes; /* along the innermost reduced dim, where memory is contiguous there and the point has no lanes; 0:
                       never */
    uint32_t sums; /* vectors of partial results then, which do not wait for one another */
    uint32_t interleave; /* statements of a step, at the least, that are interleaved with those of the other sums */
    int64_t unroll; /* steps x points of a loop's body, at most: small reduced dims are unrolled from the inside out */
    uint32_t trip; /* groups of L_DOT in a trip of their loop, if it is not unrolled */
    bool row; /* all taps of a row in one step (emit/row_taps.c) */
    bool prefetch; /* the lines of the next block of input channels while one is used */
    bool by_lane; /* a contraction: four steps (or groups of L_DOT) of the innermost dim at a time, whose first operands
                   * are the lanes of one register; the points of a vector follow one another, the next one's weights
                   * loaded before */
    bool matrix; /* by lane, and L_MATDOT of pairs of rows and of columns, two groups at a time */
    bool scaled; /* a contraction: each block of the innermost dim is summed without the factor of the second operand
                  * that all of it shares (block_factor), and its sum is multiplied */
    int64_t halves; /* a product: so many steps are summed in f16, and their sum goes into one of f32; 0: all in f32 */
};

enum { SUMS_MOST = 8 };
/* Vectors of a register tile, and sums in registers: half of what the emitter keeps track of. */
enum { TILE_VECTORS_MOST = 8, TILE_POINTS_MOST = 32 };

/* A value that the kernel computes into scratch by loops of its own (emit/producer.h): kernel.locals for the length of
 * a row, then, of a tiled record, kernel.form.staged for a chunk of tiles. */
struct producer_schedule {
    uint32_t lanes; /* of these loops */
};

/* The outermost reduced dim of a contraction or reduction, which may be done in blocks of whole units. */
struct k_dim {
    uint32_t dim;
    int64_t extent, unit, inner; /* steps inside of each index */
};

enum { SHARES_MOST = 64 /* bytes of a line */ };
/* An anchor (conv, dot, window, reduce) at ta x tb points by nr vectors at once. */
struct tile_schedule {
    int32_t vec, a, b; /* dims of the anchor's result: lanes, and up to two that are register-tiled; -1: none */
    uint32_t lanes, nr, ta, tb;
    bool flat; /* points of b and a are numbered through and tiled as one dim of ta points */
    bool lines_last; /* images and further rows are gone through inside of a block of vectors, not outside */
    uint32_t chunk; /* tiles that share a staged operand, one after another; 0: each is a parallel index */
    bool windows; /* of a chunk: they are rows of b, not flat, and what they share is rows of the operand ... */
    bool by_piece; /* ... of the piece's channels only: a depthwise convolution */
    uint32_t stage_columns; /* points of a row at a time, where that is a contraction too (kernel.form.product) */
    bool stage_ahead; /* prefetch: what the next chunk's is computed from, while this one is used */
    uint32_t interleave, interleave_least; /* results whose epilogues are computed statement by statement in turn, if
                                    they have so many each */
    uint32_t epilogue; /* rows of a tile in a trip of the loop that computes epilogues, of sums in scratch; 0: none,
                        * each result has code of its own */
    int64_t k_block; /* indices of a block of that dim, but the last one; 0: the sums stay in registers */
    int64_t k_columns; /* of a reduction: blocks of nr vectors that an index goes through at each of these; 0: one */
    int64_t split; /* tiles along tile_split_dim, or of a flat tile, that a parallel index goes through; 0: all, or one
                    * where each is an index anyway */
    int64_t decode; /* with more points (of an image) the second operand, which the kernel computes, is computed into
                     * scratch first, a block of vectors at a time; 0: where it is read */
    int64_t near; /* prefetch: each vector's own line of the panels so many steps early; 0: not */
    int64_t early; /* ... and the next block's panels during so many steps of this one; 0: not */
    uint32_t
        shares; /* tiles, at most, that prefetch these together, if the number of rows is dynamic; 0: the first does */
    bool matmul; /* L_MATMUL of up to 32 points by two vectors, whose sums go through scratch (schedule/matmul.c) */
    bool next; /* prefetch: the steps of rows that fill no tile ask for the same lines of the next block's panels,
                  scales too */
};

/* A convolution by F(m x m, 3 x 3): tiles of m x m results (emit/winograd/winograd.h has the buffers). */
struct winograd_schedule {
    uint32_t m;
    int64_t mr, nr; /* register tile: tiles x vectors of output channels */
    int64_t chunk; /* tiles of a chunk: a multiple of mr */
    int64_t group; /* vectors of output channels of a parallel index */
    int64_t span; /* chunks of a parallel index */
    int64_t slice; /* vectors of input channels whose U is derived at a time */
    int64_t early; /* taps of the next slice's plain weights that are prefetched while U of this one is derived */
    bool resident; /* U of all of them is derived first */
    uint32_t input_rows, output_rows; /* of the two transforms: results along the first dim at a time */
    int64_t near; /* prefetch: lines of V so many vectors of input channels early; 0: not */
    bool by_lane; /* the products of a vector of input channels at a time, whose tiles are lanes of one register each */
};

enum {
    ATTENTION_VECTORS = 4 /* of rows of a block, at most */,
    ATTENTION_COLUMNS = 4, /* vectors of columns of a tile */
    ATTENTION_FEW = 8, /* rows whose scores are summed along lanes, at most */
    ATTENTION_PARTS = 16 /* of all blocks together, at most */
};
struct attention_schedule {
    uint32_t lanes;
    int64_t nv; /* vectors of rows of a block */
    int64_t mr; /* register tile of the scores: keys x nv vectors */
    int64_t few, few_keys; /* rows of a block whose scores are summed along lanes, 0: none; keys at once, then */
    int64_t pr, pc; /* register tile of the results: rows x vectors */
    int64_t span; /* keys at a time; 0: all, and the softmax is exact; else with a running maximum */
    bool reach; /* spans that no row of a block can see, by causal masks and windows, are left out */
    int64_t parts; /* parallel indices that the keys of few blocks are cut into, at most; 0: they are not cut */
    int64_t part; /* keys of such a part, at least */
    uint32_t terms; /* vectors of rows whose exponentials are computed at once */
};

/* A second version of the kernel, with a record of its own, which a test in the program selects where a size lies in a
 * range. */
struct version_schedule {
    uint32_t size; /* number of the shape symbol, in the artifact's order, from 1; 0: no version */
    int64_t least, most;
};

/* Decisions alone: each member but the lengths of arrays has its row in fields.def. */
struct schedule {
    enum schedule_kind kind;
    struct nest_schedule nest; /* SCHEDULE_MAP, SCHEDULE_SCAN, SCHEDULE_SCATTER, SCHEDULE_HALO */
    struct tile_schedule tile; /* SCHEDULE_TILED */
    struct winograd_schedule winograd; /* SCHEDULE_WINOGRAD */
    struct attention_schedule attention; /* SCHEDULE_ATTENTION */
    uint32_t n_reduce, n_producer;
    struct reduce_schedule *reduce; /* of schedule_facts.reductions */
    struct producer_schedule *producer; /* of values in scratch */
    struct version_schedule version;
    int64_t ns; /* per parallel index: what the runtime cuts the work of its threads by; schedule_facts.ns, unless
                   overridden */
};

/* What follows from a kernel, its record and the CPU (schedule_facts). */
struct schedule_facts {
    const node_id *reductions; /* number i of the record's is of this node */
    struct k_dim k; /* the dim that tile.k_block cuts */
    int64_t ns; /* estimated per parallel index */
    uint64_t flops; /* of the whole kernel, as extent_counted has its extents */
    enum products arithmetic; /* of these */
};

/* The kinds that a record of this kernel may be of, as bits 1 << kind, and the one that its storages were made for:
 * contractions and reductions may be maps whose points each have a loop of their own, and a convolution whose weights
 * lie in panels tiled or, if it is 3 x 3, Winograd's. */
uint32_t schedule_kinds(const struct site *);
enum schedule_kind schedule_kind_of(const struct kernel *);
/* Decides for one kernel, after every value has its storage. Out comes in as zeros except for its kind, one of
 * schedule_kinds, and for what is given, which the rest follows: of a tiled one tb, ta and nr, chunk; of Winograd's m,
 * mr and nr, chunk, group. The rest is possible if that is, which schedule_verify says. False after a diagnostic. */
bool schedule_choose(const struct site *, struct schedule *out);
/* What --choose says of the kernel goes into the record, if schedule_verify takes it; else it is a warning. False after
 * a diagnostic. */
bool schedule_chosen(const struct site *, struct schedule *);
/* In the module's arena. */
struct schedule_facts schedule_facts(const struct site *, const struct schedule *);
/* Is the record possible for this kernel on this CPU, by the bounds and rules of its fields (fields.def)? Else *why
 * names the field, its value and what is possible; it may stay empty after a diagnostic. The cost model is not run. */
bool schedule_verify(const struct site *, const struct schedule *, struct strbuf *why);
/* The pass: a record for every kernel, for one CPU more (module.plan.schedules). What --schedules says of a kernel
 * replaces what the cost model says. False after a diagnostic. */
bool schedule(struct module *, const char *cpu, const struct machine *);
/* All records as text (schedule_text.c), and what such a text says of some kernels, into module.asked.overrides. False
 * after a diagnostic that names the file, the line and the reason. path: for messages, kept. */
void schedules_print(const struct module *, struct strbuf *);
bool schedules_parse(struct module *, const char *path, const char *text);
/* The fields of all kinds with their bounds and meanings, as sections of docs/reference/schedules.md. */
void schedules_reference(struct strbuf *);
/* Sets what module.asked.overrides has of the kernel, or of its version, on that CPU. False after a diagnostic. */
bool schedule_override(const struct site *, uint32_t kernel, bool version, const char *cpu, struct schedule *);
/* Of a kernel without a version: false, after a diagnostic, if module.asked.overrides has a record of one. */
bool schedule_no_version(const struct site *, uint32_t kernel, const char *cpu);
const char *schedule_kind_name(enum schedule_kind);
/* The kind of that name; -1: there is none. */
int schedule_kind_by_name(const char *);
/* The first CPU's record of a kernel in one sentence, for remarks, in the module's arena; NULL: there is nothing to
 * say. */
const char *schedule_words(const struct module *, uint32_t kernel);

/* The values of its size that a version is for; size {0}: there is none. */
struct size_range version_range(const struct exprs *, const struct version_schedule *);
/* The same kernel in the module in which the size is within the range (module_within). */
struct site version_site(const struct site *, const struct size_range *);
/* A value of a size, for estimates; size {0}: none is given. */
struct size_at {
    sym_id size;
    int64_t n;
};
/* The expression where the size is that. */
static inline expr_id size_at(struct exprs *x, expr_id e, const struct size_at *at)
{
    expr_id n = at->size.i ? ex_const(x, at->n) : e;
    return at->size.i ? ex_subst(x, e, &at->size, &n, 1) : e;
}
/* The number of the outermost dynamic size of the kernel's results; 0: none. */
uint32_t version_size(const struct site *);
/* Is the size one of the kernel's, and has it a value in the range? */
bool version_serves(const struct site *, const struct size_range *);
/* schedule/version.c: decides which kernels have a version, from the records of all: those that gain most, as long as
 * the code of all versions is a small part of all kernels'. By kernel. False after a diagnostic. */
bool versions_choose(struct module *, const struct machine *, struct schedule *);

/* ---- facts that decisions and emitters share --------------------------------------------------------------------- */

/* Is loop number `at` the last one of its dim? */
bool nest_is_last(const struct nest_schedule *, uint32_t at);
/* Points of vec in a vector. */
uint32_t nest_lanes(const struct nest_schedule *);
/* Points of the last loop but one that are packed into a vector, and of the last one that are transposed with vec's; 0:
 * none. */
uint32_t nest_packed(const struct nest_schedule *);
uint32_t nest_transposed(const struct nest_schedule *);

/* A loop more, inside of the others. */
void nest_add(struct nest_schedule *, int32_t dim, int64_t step);

/* n points in tiles of at most `size` as evenly as it goes: `large` of small + 1 points come first, then those of
 * small. */
struct even {
    int64_t tiles, small, large;
};
static inline struct even even_split(int64_t n, int64_t size)
{
    int64_t tiles = n > 0 ? (n + size - 1) / size : 0;
    return tiles ? (struct even){tiles, n / tiles, n % tiles} : (struct even){0, 0, 0};
}
/* An extent known only at run time has whole tiles, then smaller ones for what is left, each of the size below: one
 * point alone waits for each of its sums, so a short line of them takes as long as a tile would. */
enum tile_rest {
    REST_POINTS,
    REST_ROWS, /* of a product, whose tiles read all panels, or of a window: 8, 3 and 2 have a tile, too */
    REST_MATMUL, /* of a product by L_MATMUL: 16 rows by that, then those of REST_ROWS without it */
    REST_IMAGE, /* of a convolution, whose tiles read all panels, too: halves, as a small map fills a few */
    REST_AGAIN, /* of what may be computed twice: the last tile may overlap the one before it, which leaves less */
    REST_AGAIN_LINE /* the same where lines may be a few points long */
};
static inline int64_t tile_below(int64_t size, enum tile_rest rest)
{
    if (rest == REST_AGAIN || (rest == REST_AGAIN_LINE && size > 8))
        return size > 8 ? 4 : size > 1;
    if (rest == REST_AGAIN_LINE)
        return size > 3 ? size / 2 : size > 1;
    if (rest == REST_IMAGE)
        return size / 2;
    if (rest == REST_MATMUL && size > MATMUL_COLUMNS)
        return MATMUL_COLUMNS;
    if (rest == REST_ROWS || rest == REST_MATMUL)
        return size > 8 ? 8 : size == 8 ? 4 : size > 4 ? 3 : size - 1;
    return size >= 8 ? 4 : size >= 4 ? 2 : size > 1;
}
static inline bool tile_again(enum tile_rest rest)
{
    return rest == REST_AGAIN || rest == REST_AGAIN_LINE;
}
/* Tiles of `size` points for the last `left` of n > 0: one that overlaps others if more is left than the next size. */
static inline int64_t tile_times(int64_t left, int64_t n, int64_t size, enum tile_rest rest)
{
    bool more = tile_again(rest) && n >= size && left > 0 && left % size > tile_below(size, rest);
    return left > 0 ? left / size + more : 0;
}
/* Of all points of a flat tile's two dims, where these are of known extent (tile_flat_even). */
struct even tile_flat_split(const struct exprs *, const struct type *result, const struct tile_schedule *);
bool tile_flat_even(const struct exprs *, const struct type *result, const struct tile_schedule *);
/* The points along dim d that tiles go through: of a flat tile's dim a, those of dims a and b. */
expr_id tile_extent(struct exprs *, const struct type *result, const struct tile_schedule *, int32_t d);

/* The taps along the last spatial dim, number `dim` of the spatial ones, where they share what they broadcast
 * (emit/row_taps.c). */
enum { ROW_TAPS_MOST = 8 };
struct row_taps {
    int32_t dim;
    int64_t taps, stride, dilation;
};
struct row_taps row_taps(const struct site *,
                         const struct node *); /* dim -1: they do not, or there are too many channels */
struct row_taps row_taps_of(const struct module *, const struct node *); /* the same, whatever it costs */
int64_t row_places(const struct row_taps *, int64_t points); /* that so many points in a row read at all taps */

/* The order of a convolution's input channels. */
enum { MAX_RESIDUES = 8 };
struct channel_order {
    uint32_t residues; /* g: channels k with equal k mod g lie in one run; 1: all do */
    int64_t block; /* of the memory that they lie in; 0: no blocks, or not known where they start */
    int64_t phase[MAX_RESIDUES]; /* place of the run's first channel in its block */
};

/* What a reduction goes through, outermost first. */
enum { REDUCED_MOST = RANK_MAX };
struct rdim {
    expr_id extent;
    struct channel_order order;
    int64_t together; /* steps of one trip, where there are so many: they read parts of the same elements */
    bool unroll;
};
struct reduced {
    uint32_t n, joined; /* a reduction's last dim is so many, whose points are numbered through; at least 1 */
    struct rdim dim[REDUCED_MOST];
};
void reduced_dims(const struct site *, const struct node *, bool staged, struct reduced *);
/* The second operand of a contraction whose kernel computes it, if it is a product with one factor that is constant in
 * each block of the innermost reduced dim. `product` is that product, under views; its operand `factor` is that factor.
 * False: it is not such a product, or there are no blocks. */
struct block_factor {
    value_id product;
    uint32_t factor;
};
bool block_factor(const struct site *, const struct node *, struct block_factor *);
/* The dim that may be done in blocks; false: none. */
bool outer_k(const struct site *, const struct node *, struct k_dim *);

/* What the domain's value at idx is computed of: operand (NULL: not asked) is called once with each stored value and
 * its point, and view each view before it is walked through, if it says so. */
struct operand_walk {
    const struct site *site;
    void *user;
    bool (*view)(void *user, const struct node *, const expr_id *idx);
    void (*operand)(void *user, value_id, const expr_id *idx);
    bool *other; /* or NULL; set where something is met that is neither stored nor a map nor a view */
};
void operands_walk(const struct operand_walk *, const expr_id *idx);
/* Are dims outer and outer + 1 of v, of known extents, one dim: does all that v is computed of, and the kernel's result
 * where v is its domain, lie as if they were? */
bool dims_are_one(const struct site *, value_id v, int32_t outer);
/* A symbol for the points of an extent; one for each dim of the domain. */
expr_id point_along(const struct site *, expr_id extent);
void domain_points(const struct site *, expr_id *idx);

/* The operands of a map that transpose tiles load (schedule/transpose.c): stored values from which the domain's value
 * at idx is computed, contiguous along symbol `column`, strided along symbol `lane`, whose `columns` elements fill 16
 * bytes; returns how many. */
enum {
    TURNED_MOST = 8,
    TRANSPOSE_BYTES = 16 /* that interleaving stays within */,
    TRANSPOSE_LINE = 64 /* bytes */,
    TRANSPOSE_COLUMNS_MOST = 16,
    TRANSPOSE_LANES_MOST = 32
};
struct turned_load {
    value_id value;
    expr_id at[RANK_MAX];
};
uint32_t turned_loads(const struct site *, const expr_id *idx, sym_id lane, sym_id column, uint32_t columns,
                      struct turned_load *);

/* Registers of a tile of the products: sums; by lanes V of each tile, the vector at hand and the next; else a row of
 * vectors, and one value of V for all lanes. */
static inline int64_t winograd_registers(int64_t mr, int64_t nr, bool by_lane)
{
    return mr * nr + (by_lane ? mr + 2 : nr + 1);
}
/* Are the multiply-adds of Winograd's products by lanes (winograd_schedule.by_lane)? */
bool winograd_by_lane(const struct machine *);
/* A Winograd kernel's shape on this CPU. */
struct winograd_shape {
    const struct winograd_form *form;
    uint32_t lanes;
    int64_t ic, oc, icv, ocv; /* channels, vectors of them */
    int64_t points; /* alpha^2 */
    int64_t least_tiles; /* of the smallest input, or of a small image where its size is open */
    const int64_t *dilation; /* of rows, of columns: results of a tile, and what it reads, are that far apart */
    expr_id th, tw, tiles; /* tiles of an image's column and row; in all */
    int64_t known_tiles; /* in all; where their number is open: a guess */
};
void winograd_shape(const struct site *, uint32_t m, struct winograd_shape *);
/* Elements of U between points, whose register tiles are at most so wide; and that a kernel has at hand. */
static inline int64_t winograd_u_stride(const struct winograd_schedule *s, uint32_t lanes)
{
    struct even columns = even_split(s->group, s->nr);
    return (s->slice * lanes * (columns.small + (columns.large > 0)) | 1) * lanes;
}
int64_t winograd_held(const struct winograd_schedule *, const struct winograd_shape *);

/* An attention kernel's two contractions. False after a diagnostic. */
struct attention_shape {
    const struct node *scores, *values;
    struct dot_dims of_row, of_key, of_p, of_v; /* operands of the scores by what they are free in; of the results */
    expr_id rows, keys;
    int64_t size, columns; /* contracted and free extents of the two */
    bool widens_keys, widens_values; /* their elements are narrower in memory */
};
bool attention_shape(const struct site *, struct attention_shape *);
/* Elements of a line of a block's scores: an odd number of vectors, or a column would compete for a few sets of the
 * cache. */
static inline int64_t attention_line(const struct attention_schedule *s)
{
    return (s->nv | 1) * s->lanes;
}
/* Elements of a key or its values, widened for a block of many rows; 0: they are read as they are. */
static inline int64_t attention_wide_line(const struct attention_shape *t, const struct attention_schedule *s)
{
    int64_t keys = t->widens_keys ? t->size : 0, values = t->widens_values ? t->columns : 0;
    return ((keys > values ? keys : values) + s->lanes - 1) / s->lanes * s->lanes;
}

/* Groups of elements that the CPU has no instruction for. */
bool anchor_emulated(const struct site *, const struct node *);
/* Is dim d of an anchor's result, which the second operand does not have, gone through by whole indices rather than by
 * tiles? Of a reduction it is one that lies inside of the outermost reduced dim. */
bool tile_is_line(const struct node *anchor, const struct tile_schedule *, int32_t d);
/* Points of the result, less those along vec, that one parallel index of a kernel in blocks goes through. */
int64_t tile_block_points(const struct exprs *, const struct node *anchor, const struct type *result,
                          const struct tile_schedule *);
/* What is left of a dynamic extent. Points are computed twice unless they add to what is there, a second result or sums
 * in scratch, or what they store lies in the place of what they read. */
enum tile_rest tile_rest(const struct site *, const struct node *anchor, const struct tile_schedule *);
/* Blocks of nr vectors along vec; 1 without lanes. */
expr_id tile_blocks(struct exprs *, const struct type *result, const struct tile_schedule *);
/* Parallel indices that have these blocks, k_columns each. */
expr_id tile_block_indices(struct exprs *, const struct type *result, const struct tile_schedule *);
/* Tiles of the rows b, or of all points of a flat one. */
int64_t tile_count(const struct exprs *, const struct type *result, const struct tile_schedule *);
/* Do the rows b divide evenly into tiles, so that each tile of rows is a parallel index? */
bool tile_rows_apart(const struct exprs *, const struct type *result, const struct tile_schedule *);
/* The dim whose tiles are cut into parts where that is asked: the outermost that an index goes through; -1: none. */
int32_t tile_split_dim(const struct exprs *, const struct type *result, const struct tile_schedule *);
/* Parts of the tiles along that dim, or of a flat one's: each is a parallel index. */
expr_id tile_parts(struct exprs *, const struct type *result, const struct tile_schedule *);
/* What a block of vectors from index `base` of the lanes' dim on reads of the second operand; the scratch for that, if
 * it is computed first (tile.decode); 0: it can't be. */
bool decode_box(const struct site *, const struct tile_schedule *, expr_id base, struct box *);
int64_t decode_bytes(const struct site *, const struct tile_schedule *);
/* Points of a row of columns, or of an image, that read the same block of it. */
expr_id decode_points(struct exprs *, const struct node *, const struct type *, const struct tile_schedule *);
/* Is the second operand of a scaled product computed into scratch, in panels of groups, in front of its tiles? */
bool matmul_unpacks(const struct module *, const struct node *, const struct tile_schedule *);
/* A contraction by L_MATMUL (schedule/matmul.c): its loops, the distance of the vectors and of points along a; and
 * elements of the first operand between points along b. */
struct matmul_form {
    struct lmatmul m;
    int64_t of_row;
    int64_t blocks; /* of a scaled product: `m` is one of so many, whose sums are scaled and added in f32; else 0 */
};
/* False: the operands do not lie so, or the CPU has no tiles. */
bool matmul_form(const struct site *, const struct tile_schedule *, struct matmul_form *);
/* The product of a tile of so many points along a and along b. */
struct lmatmul matmul_tile(const struct matmul_form *, int64_t columns, int64_t rows, uint32_t vectors);
/* What tiles from result point `first` on, as many as a chunk has, read of the staged operand: points from number
 * `first` on, or rows. point: of the image and the channels. False: not known. And the scratch for that. */
bool stage_box(const struct site *, const struct tile_schedule *, const expr_id *point, expr_id first, struct box *);
int64_t stage_bytes(const struct site *, const struct tile_schedule *);
