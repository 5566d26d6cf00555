/* Emission engine: values of the graph at points, as statements of the loop IR.
 *
 * A point is one index expression per dim. Symbols in it are loop variables, *lanes* or shape symbols. A lane symbol
 * stands for 0 .. lanes-1 at once: whatever depends on one is a vector register, so vectorising a loop is no more than
 * writing its index as lanes * t + lane. Statements are appended at the depth of the deepest symbol that they depend
 * on, which hoists loop invariants by construction; equal (value, point) pairs are emitted once.
 */
#ifndef MCC_PASSES_EMIT_H
#define MCC_PASSES_EMIT_H

#include "passes/schedule/schedule.h"

enum { EM_LEVELS = 48, EM_POINTS = 64, AHEAD_MOST = 4 };

struct em_sym {
    sym_id sym;
    int depth;
    lreg var;                /* scalar index, or the vector of indices (vector) */
    uint32_t lanes;          /* 0: scalar */
    bool vector;             /* var holds an arbitrary vector (a gathered index) */
    lreg mask;               /* lanes that exist; {0}: all */
};
struct em_memo {
    uint64_t key;
    value_id value;
    expr_id *idx;
    expr_id cond;
    uint32_t group;
    lreg result;
};
struct em_const {
    enum elem elem;
    uint32_t lanes;
    double f;
    int64_t i;
    lreg v;
};
struct em_point {
    const expr_id *idx;
    int32_t rank;
};
/* Panels that the steps of a contraction ask for early. */
struct em_ahead {
    int64_t near;                /* each vector's own line so many steps later; 0: none */
    int64_t far; /* so many bytes in each step of panels that are used later; 0: none. They begin ... */
    int32_t dim; /* ... along the anchor's dim of the lanes ... */
    uint32_t n; /* ... at so many panels, ... */
    expr_id panel[AHEAD_MOST]; /* ... so far after the first point's, ... */
    uint32_t cut; /* ... at index k of this reduced dim, 0 of the others, ... */
    expr_id k, now; /* ... while this tile does the steps from number `now` on, ... */
    expr_id bytes; /* ... and so far after that, which is what other tiles ask for */
};
struct em {
    struct module *m;
    struct kernel *k;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    struct lfunc *f;
    struct site site; /* the same, for what decisions and emitters both ask */
    const struct schedule *schedule;
    const struct schedule_facts *facts;
    lblock level[EM_LEVELS];
    int top; /* current level: 0 body, 1 parallel, ... */
    VEC(struct em_sym) syms;
    VEC(int) depth; /* by lreg.i */
    VEC(lblock) home; /* by lreg.i: the block that defines it; {0}: the body */
    int floor; /* level of the innermost open conditional: nothing moves out of it */
    struct em_memo *memo; /* open addressing */
    uint32_t memo_cap, memo_n;
    VEC(struct em_index_memo {
        expr_id e;
        uint32_t lanes;
        lreg v;
    })
    index_memo;
    struct em_const consts[128]; /* a cache by hash: constants are placed at level 0 */
    VEC(struct karg) args;
    VEC(lreg) arg_lreg;
    value_id anchor; /* while the epilogue of one point is evaluated: the anchor's result ... */
    lreg anchor_value; /* ... and its value there */
    expr_id cond; /* of the elementwise value at hand: where it is wanted at all ... */
    struct em_point at; /* ... and its point */
    struct em_ahead ahead; /* while a contraction's points are emitted */
    struct em_producer *producers, *staged, *decoded; /* values in scratch (emit/producer.h): the kernel's locals, then
                                                       * the anchor's operands */
    uint32_t nesting; /* of em_value: bounded, whatever the graph */
    bool bytes; /* kernel_has_bytes(): stored numbers are loaded */
    bool rest; /* the points at hand are what whole tiles leave of a dynamic extent */
    bool failed;
};

/* In site.arena: everything but what em_finish leaves in the kernel (its text, its arguments). */
void em_begin(struct em *, const struct site *, const struct schedule *, const struct schedule_facts *,
              const char *name);
bool em_finish(struct em *); /* verifies, prints into kernel.text */

/* statements with depth */
lreg em_op(struct em *, enum lop, struct ltype, const lreg *in, uint32_t n);
lreg em_op1(struct em *, enum lop, lreg);
lreg em_op2(struct em *, enum lop, lreg, lreg);
lreg em_const(struct em *, enum elem, uint32_t lanes, double f, int64_t i);
int em_depth_of(const struct em *, lreg); /* level of the block that defines it */
int em_depth(const struct em *, const lreg *, uint32_t n); /* level at which a statement over these is placed */
void em_set_depth(struct em *, lreg, int depth); /* defined in the block now open at that level */
bool em_visible(const struct em *, lreg); /* its block is still open */
lreg em_splat(struct em *, lreg, uint32_t lanes); /* no-op when it has them */
void em_unify(struct em *, lreg *v, uint32_t n); /* splats scalars to the widest */
lreg em_select(struct em *, lreg cond, lreg a, lreg b); /* cond ? a : b, lane by lane */
lreg em_shuffle(struct em *, lreg a, lreg b, const uint8_t *from, uint32_t n); /* n lanes: numbers from a, then b */
lreg em_part(struct em *, lreg v, uint32_t first, uint32_t n); /* lanes first, first + 1 ... */
lreg em_extract(struct em *, lreg v, uint32_t lane);
lreg em_insert(struct em *, lreg v, lreg x, uint32_t lane);
void em_check(struct em *, lreg cond, int32_t code, uint32_t node, const char *text);

/* indices */
lreg em_index(struct em *, expr_id); /* lanes count as 0 */
lreg em_index_lanes(struct em *, expr_id, uint32_t lanes);
lreg em_cond(struct em *, expr_id); /* bool, or boolxN when it depends on a lane */
uint32_t em_expr_lanes(const struct em *, expr_id); /* 0: scalar */
expr_id em_symbol_new(struct em *, int64_t lo, int64_t hi, struct em_sym); /* a fresh symbol that stands for that */
expr_id em_lane(struct em *, uint32_t lanes, lreg mask); /* a fresh lane symbol */
/* base + lane for the last `left` < lanes points of a dim: masked, or a scalar when there is but one. */
expr_id em_tail(struct em *, expr_id base, expr_id left, uint32_t lanes);
lreg em_tail_mask(struct em *, expr_id left, uint32_t lanes);
expr_id em_bind(struct em *, lreg index, int64_t lo, int64_t hi); /* a symbol for a computed index */

/* loops */
struct em_for {
    lblock body;
    uint32_t n_carry;
    int parent, floor; /* levels outside */
    expr_id lo, hi;
    int64_t step;
    lreg var, inits[EM_POINTS], params[EM_POINTS];
    bool trivial; /* one trip: no loop is made */
    bool is_while; /* set behind the beginning: it ends when the first carried value is false */
};
/* Opens lo..hi; returns the variable as an expression (the constant lo when there is one trip). params: carried
 * values. */
expr_id em_for_begin(struct em *, struct em_for *, expr_id lo, expr_id hi, int64_t step, const lreg *inits, uint32_t n);
void em_for_end(struct em *, struct em_for *, const lreg *yields, lreg *results);
expr_id em_parallel_begin(struct em *, struct em_for *, expr_id count);
void em_parallel_end(struct em *, struct em_for *);
struct em_if {
    lblock block;
    int parent, floor;
    lreg cond;
};
void em_if_begin(struct em *, struct em_if *, lreg cond);
/* Opens a conditional only if it is not known whether it holds; false: it never does. */
bool em_if_known(struct em *, struct em_if *, expr_id cond);
void em_if_end(struct em *, struct em_if *);
/* The same with n results: yields, or, where the condition is false, otherwise, which were there before. */
void em_if_end_or(struct em *, struct em_if *, const lreg *yields, const lreg *otherwise, uint32_t n, lreg *results);
/* What is emitted between the two is at the depth of the point's symbols, at least at `depth`: deeper levels that are
 * open stay open, and come after it. */
struct em_hoist {
    lblock level[EM_LEVELS];
    int top;
};
void em_hoist_begin(struct em *, struct em_hoist *, const expr_id *idx, int32_t rank, int depth);
void em_hoist_end(struct em *, const struct em_hoist *);
/* A fresh symbol for an expression inside the current level, so that nothing depending on it moves out. */
expr_id em_pin(struct em *, expr_id, int64_t lo, int64_t hi);

/* Computations alike at several points, statement by statement in turn (emit/interleave.c): begin, next after each of
 * them, end. None may read what another stores. */
struct em_interleave {
    lblock block;
    uint32_t value, n, at[EM_POINTS + 1];
};
void em_interleave_begin(struct em *, struct em_interleave *);
void em_interleave_next(struct em *, struct em_interleave *);
/* at_once at a time, if they have `least` statements each. */
void em_interleave_end(struct em *, struct em_interleave *, uint32_t at_once, uint32_t least);

/* values */
lreg em_value(struct em *, value_id, const expr_id *idx, expr_id cond);
lreg em_compute(struct em *, value_id, const expr_id *idx, expr_id cond); /* not from memory, nor from scratch */
lreg em_load(struct em *, value_id, const expr_id *idx, expr_id cond);
lreg em_load_table(struct em *, value_id, lreg bytes); /* a constant of LOOP_TABLE bytes, by lanes of u8 */
lreg em_load_memory(struct em *, value_id, const expr_id *idx); /* as memory has it ... */
lreg em_to_register(struct em *, lreg, enum elem); /* ... and as registers do */
lreg em_load_at(struct em *, lreg buffer, const struct storage *, enum elem, const expr_id *idx, expr_id cond);
void em_store_at(struct em *, lreg buffer, const struct storage *, enum elem, const expr_id *idx, lreg);
void em_store(struct em *, value_id, const expr_id *idx, lreg);
void em_store_out(struct em *, const expr_id *idx, lreg); /* at a point of the kernel's domain */
void em_prefetch_out(struct em *, const expr_id *idx); /* prefetches the line where that will be, to L2 */
lreg em_map(struct em *, const struct node *, const lreg *in); /* scalar function on registers */
lreg em_walk(struct em *, const struct node *, const expr_id *idx, expr_id cond); /* OP_WALK at a point */
expr_id em_bytes(struct em *, value_id,
                 const expr_id *idx); /* the address of an element in bytes, as em_prefetch takes it */
void em_prefetch(struct em *, enum lop near_or_far, lreg buffer,
                 expr_id bytes); /* L_PREFETCH or L_PREFETCH2, here and now */
lreg em_buffer(struct em *, value_id);
lreg em_size(struct em *, expr_id); /* an argument: what depends on no loop, and the program computes */

/* Memory of the kernel's own: what one stage of a parallel index leaves for the next. A loop that stores into it must
 * have ended before one that loads is opened. */
lreg em_scratch(struct em *, enum elem, int64_t elements);
/* Opens a conditional for what makes a local buffer, once for each tag: left out where the thread has kept it from an
 * earlier index of the launch. keeper: a local buffer of its own. One for each kernel. */
void em_kept_begin(struct em *, struct em_if *, lreg keeper, expr_id tag);
/* Memory that the parallel indices of a launch share, of f32 (kernel.shared_bytes), where the record asks for it. */
lreg em_shared(struct em *);
/* 1 if n - 1 indices have come here with this one of its counters before, else 0. What they stored before can be seen
 * then, and the counter begins anew. */
lreg em_arrive(struct em *, expr_id counter, expr_id n);
lreg em_scratch_load(struct em *, lreg buffer, expr_id element, uint32_t lanes); /* here and now; lanes 1: a scalar */
void em_scratch_store(struct em *, lreg buffer, expr_id element, lreg);

/* An index that memory holds, as a symbol: negative ones count from the end, out of range fails the run. */
expr_id em_loaded_index(struct em *, const struct node *, lreg index, struct em_point of_index, expr_id dim,
                        expr_id cond);
/* Which lanes of a point exist, where a tail leaves some out; {0}: all. */
lreg em_lanes_live(struct em *, const expr_id *idx, int32_t rank);
/* Reads what this kernel itself has written: placed at the current level, never shared. */
lreg em_load_fresh(struct em *, value_id, const expr_id *idx);

/* What was computed before for this value, point and condition and is still visible; {0}: nothing. group 0: the element
 * there, else any number that says what of the elements from there on (emit/dot.c). */
lreg em_recall(struct em *, value_id, const expr_id *idx, expr_id cond, uint32_t group);
void em_remember(struct em *, value_id, const expr_id *idx, expr_id cond, uint32_t group, lreg);
/* The operands of L_DOT at a group of elements (emit/dot.c): operand o at idx[o] and the `size` - 1 points after it
 * along dim[o], step[o] apart, of which `valid` exist. lanes: of the sums, which are i32 or f32; 1: a scalar. */
struct em_group {
    expr_id *idx[2];
    int32_t dim[2];
    int64_t step[2];
    uint32_t size, valid, lanes;
    int32_t lane; /* of a register of 16 bytes that holds this group of the first operand and those beside it; -1: each
                   * is loaded alone */
    bool matrix; /* for L_MATDOT: 8 bytes of one row as an i64, or the register that holds them, and 8 bytes of each
                  * column */
};
/* Are v's elements in memory or in scratch? */
bool em_is_stored(struct em *, value_id);
/* Lane `lane` of a register that holds this group of `size` elements of v and those beside it along dim, as one word of
 * 4 bytes; of 8 bytes, the register itself, two i64; acc f16: one of f32 as f16; {0}: they do not lie together, or are
 * not stored. */
lreg em_lane_group(struct em *, value_id v, const expr_id *idx, int32_t dim, uint32_t size, int32_t lane, enum elem acc,
                   expr_id cond);
void em_dot_group(struct em *, const struct node *, const struct em_group *, expr_id cond_a, expr_id cond_b,
                  lreg in[2]);

/* reductions: the anchor's value at n points at once, sharing what they share */
void em_reduce_points(struct em *, const struct node *, uint32_t n, expr_id *const *points, expr_id cond, lreg *acc);
/* one point, lanes along the innermost reduced dim when that is where memory is contiguous */
lreg em_reduce_one(struct em *, const struct node *, const expr_id *idx, expr_id cond);
/* Of several reductions over the same dims, at most two, in one loop where all go along memory. */
void em_reduce_siblings(struct em *, const struct node *const *, uint32_t n, const expr_id *idx, expr_id cond,
                        lreg *out);
enum lop em_monoid(const char *monoid, enum elem);
/* Is it known that taps of a convolution along its spatial dim d stay within the operand and the zeros stored around
 * it, even with the number of results rounded up to a multiple of `tile`? */
bool em_halo_covers(struct em *, const struct node *, int32_t d, int64_t tile);
expr_id em_inside(struct em *, expr_id i, expr_id size); /* 0 <= i < size */

#endif
