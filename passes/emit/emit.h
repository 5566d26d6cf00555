/* Emission engine: values of the graph at points, as statements of the loop IR.
 *
 * A point is one index expression per dim. Its symbols are loop variables, *lanes* or shape symbols. A lane symbol
 * stands for all of 0 .. lanes-1 at once, and a register that depends on one is a vector. So a loop is vectorised by
 * writing its index as lanes * t + lane. The engine appends a statement at the depth of the deepest symbol that it
 * depends on, which hoists loop invariants by construction. It emits equal (value, point) pairs once.
 *
 * Functions report no errors: out of memory unwinds (ir/base/base.h), and em->failed records a bug that em_finish
 * returns. All memory is from em->arena.
 */
#pragma once

#include "passes/schedule/schedule.h"

enum { EM_LEVELS = 48, EM_POINTS = 64, AHEAD_MOST = 4 };

struct em_sym {
    sym_id sym;
    int depth;
    lreg var;                /* scalar index, or a vector of indices (vector) */
    uint32_t lanes;          /* 0: scalar */
    bool vector;             /* var is an arbitrary vector (a gathered index) */
    lreg mask;               /* bool lanes: the valid ones; {0}: all are valid */
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
/* Panels that the steps of a contraction prefetch. */
struct em_ahead {
    int64_t near; /* distance in steps at which each vector prefetches its own panel line; 0: it does not */
    expr_id far; /* bytes of later panels that each step prefetches; {0}: none. The other fields say which: */
    int32_t dim; /* the anchor's dim of the lanes, along which the panels follow one another */
    uint32_t n; /* number of panels */
    expr_id panel[AHEAD_MOST]; /* their distances along dim from the panel of the first point */
    uint32_t cut; /* the reduced dim that is blocked; the panels start at index k of it and 0 of the others */
    expr_id k, now; /* `now`: number of this tile's first step */
    expr_id bytes; /* offset from there to this tile's share; other tiles prefetch the bytes before and after it */
    expr_id tile; /* of L_MATMUL alone: the tile's number, of `tiles` that read the same panels; {0}: not known */
    int64_t tiles;
};
struct em {
    struct module *m;
    struct kernel *k;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    struct lfunc *f;
    struct site site; /* the same objects, for functions that schedules and emitters share */
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
    value_id anchor; /* while the epilogue of a point is emitted: the anchor's result, ... */
    lreg anchor_value; /* ... and its value at this point */
    expr_id cond; /* of the current elementwise value: the condition under which it is needed, ... */
    struct em_point at; /* ... and its point */
    struct em_ahead ahead; /* valid while a contraction's points are emitted */
    struct em_producer *producers, *staged, *decoded; /* values in scratch (emit/producer.h): the kernel's row buffers,
                                                       * the anchor's first and second operand */
    uint32_t nesting; /* depth of em_value's recursion, which is bounded */
    bool bytes; /* kernel_has_bytes(): stored splat constants are loaded, not made immediates */
    bool rest; /* the current points are the remainder of a dynamic extent after whole tiles */
    bool failed; /* a bug, which has been reported */
};

/* Starts the emission of a kernel, in site.arena. Only the text and the arguments that em_finish stores in the kernel
 * have memory of their own. */
void em_begin(struct em *, const struct site *, const struct schedule *, const struct schedule_facts *,
              const char *name);
/* Verifies the function and prints it into kernel.text; false after a diagnostic. */
bool em_finish(struct em *);

/* Statements, placed at the depth of their operands. */
lreg em_op(struct em *, enum lop, struct ltype, const lreg *in, uint32_t n);
lreg em_op1(struct em *, enum lop, lreg);
lreg em_op2(struct em *, enum lop, lreg, lreg);
lreg em_const(struct em *, enum elem, uint32_t lanes, double f, int64_t i);
int em_depth_of(const struct em *, lreg); /* level of the block that defines it */
int em_depth(const struct em *, const lreg *, uint32_t n); /* level at which a statement over these is placed */
void em_set_depth(struct em *, lreg, int depth); /* records that the block open at that level defines it */
bool em_visible(const struct em *, lreg); /* its block is still open */
lreg em_splat(struct em *, lreg, uint32_t lanes); /* returns a vector of so many lanes unchanged */
void em_unify(struct em *, lreg *v, uint32_t n); /* splats scalars to the widest */
lreg em_select(struct em *, lreg cond, lreg a, lreg b); /* cond ? a : b, lane by lane */
/* n lanes; from[i] numbers the lanes of a, then those of b. */
lreg em_shuffle(struct em *, lreg a, lreg b, const uint8_t *from, uint32_t n);
lreg em_part(struct em *, lreg v, uint32_t first, uint32_t n); /* n lanes from lane `first` on */
lreg em_extract(struct em *, lreg v, uint32_t lane);
lreg em_insert(struct em *, lreg v, lreg x, uint32_t lane);
lreg em_hreduce(struct em *, enum lop, lreg v); /* over all lanes, whose number is a power of two */
lreg em_any(struct em *, lreg cond); /* does cond hold in any lane? As i64 */
/* The run fails with MCC_E_VALUE at the node unless cond holds in all lanes. */
void em_check(struct em *, lreg cond, uint32_t node, const char *text);

/* Index expressions as registers. */
lreg em_index(struct em *, expr_id); /* a scalar: lane symbols count as 0 */
lreg em_index_lanes(struct em *, expr_id, uint32_t lanes);
lreg em_cond(struct em *, expr_id); /* bool, or boolxN when it depends on a lane */
uint32_t em_expr_lanes(const struct em *, expr_id); /* 0: scalar */
expr_id em_symbol_new(struct em *, int64_t lo, int64_t hi, struct em_sym); /* a new symbol with values in lo .. hi */
expr_id em_lane(struct em *, uint32_t lanes, lreg mask); /* a new lane symbol */
/* base + lane for the last `left` < lanes points of a dim: masked lanes, or a scalar if left is the constant 1. */
expr_id em_tail(struct em *, expr_id base, expr_id left, uint32_t lanes);
lreg em_tail_mask(struct em *, expr_id left, uint32_t lanes); /* bool lanes: true for lanes below left */
expr_id em_bind(struct em *, lreg index, int64_t hi); /* a new symbol for a computed index in 0 .. hi */

/* loops */
struct em_for {
    lblock body;
    uint32_t n_carry;
    int parent, floor; /* levels outside */
    expr_id lo, hi;
    lreg var, inits[EM_POINTS], params[EM_POINTS];
    bool trivial; /* one iteration, emitted without a loop */
    bool is_while; /* to set after em_for_begin: the loop ends when the first carried value is false */
};
/* Opens a loop over [lo, hi) and returns its variable as an expression (the constant lo if there is one iteration).
 * inits: n <= EM_POINTS initial values; in the body the carried values are params. */
expr_id em_for_begin(struct em *, struct em_for *, expr_id lo, expr_id hi, const lreg *inits, uint32_t n);
void em_for_end(struct em *, struct em_for *, const lreg *yields, lreg *results);
expr_id em_parallel_begin(struct em *, struct em_for *, expr_id count);
void em_parallel_end(struct em *, struct em_for *);
struct em_if {
    lblock block;
    int parent, floor;
    lreg cond;
};
void em_if_begin(struct em *, struct em_if *, lreg cond);
/* Opens a conditional, unless the condition is known. Returns false if it is known to be false: then emit nothing. */
bool em_if_known(struct em *, struct em_if *, expr_id cond);
void em_if_end(struct em *, struct em_if *);
/* Closes a conditional with n results: yields if the condition holds, else otherwise, which the caller has computed
 * before em_if_begin. */
void em_if_end_or(struct em *, struct em_if *, const lreg *yields, const lreg *otherwise, uint32_t n, lreg *results);
/* Places the statements between begin and end at the depth of the point's symbols, at least at `depth`. Deeper levels
 * that are open stay open, and their blocks follow these statements. */
struct em_hoist {
    lblock level[EM_LEVELS];
    int top;
};
void em_hoist_begin(struct em *, struct em_hoist *, const expr_id *idx, int32_t rank, int depth);
void em_hoist_end(struct em *, const struct em_hoist *);
/* A new symbol for an expression, at the current level: statements that depend on it do not move out of this level. */
expr_id em_pin(struct em *, expr_id, int64_t lo, int64_t hi);

/* Interleaves equal computations at several points, statement by statement (emit/interleave.c). Call begin, then next
 * after each computation, then end. No computation may read memory that another one stores. */
struct em_interleave {
    lblock block;
    uint32_t value, n, at[EM_POINTS + 1];
};
void em_interleave_begin(struct em *, struct em_interleave *);
void em_interleave_next(struct em *, struct em_interleave *);
/* Interleaves at_once computations at a time, if each has at least `least` statements. */
void em_interleave_end(struct em *, struct em_interleave *, uint32_t at_once, uint32_t least);

/* Values at points. cond: the condition under which the value is needed; elsewhere any number may come. */
/* The value at idx, one index per dim: from a producer, from memory, or computed. */
lreg em_value(struct em *, value_id, const expr_id *idx, expr_id cond);
lreg em_compute(struct em *, value_id, const expr_id *idx, expr_id cond); /* computed, never loaded */
lreg em_load(struct em *, value_id, const expr_id *idx, expr_id cond);
lreg em_load_table(struct em *, value_id, lreg bytes); /* a constant of LOOP_TABLE bytes, indexed by lanes of u8 */
lreg em_load_memory(struct em *, value_id, const expr_id *idx); /* in the type of memory */
lreg em_to_register(struct em *, lreg, enum elem); /* converts from the type of memory to that of registers */
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
lreg em_buffer(struct em *, value_id); /* the kernel's argument for a stored value */
lreg em_size(struct em *, expr_id); /* a kernel argument: an expression without loop variables, which the program
                                     * computes */

/* Scratch of the thread, undefined at the start of each parallel index. A loop that stores into it must end before a
 * loop that loads from it begins. */
lreg em_scratch(struct em *, enum elem, int64_t elements);
/* Opens a conditional around the statements that fill a local buffer. A thread runs them once for each tag, and skips
 * them if an earlier index of the launch has filled the buffer for the same tag. keeper: another local buffer, only for
 * this. At most one in a kernel. */
void em_kept_begin(struct em *, struct em_if *, lreg keeper, expr_id tag);
/* f32 memory that all parallel indices of a launch share (kernel.shared_bytes), if the schedule has it. */
lreg em_shared(struct em *);
/* Counts the indices that arrive at one of the SHARED_COUNTERS. Gives 1 to the n-th, which sees the stores of the
 * others, and resets the counter; gives 0 to the others. */
lreg em_arrive(struct em *, expr_id counter, expr_id n);
lreg em_scratch_load(struct em *, lreg buffer, expr_id element, uint32_t lanes); /* never hoisted; lanes 1: a scalar */
void em_scratch_store(struct em *, lreg buffer, expr_id element, lreg);

/* A symbol for an index loaded from memory. A negative index counts from the end; one out of range fails the run. */
expr_id em_loaded_index(struct em *, const struct node *, lreg index, struct em_point of_index, expr_id dim,
                        expr_id cond);
/* The valid lanes of a point in a masked remainder, as bool lanes; {0}: all lanes are valid. */
lreg em_lanes_live(struct em *, const expr_id *idx, int32_t rank);
/* Loads a value that this kernel has stored. The load stays at the current level and is never reused. */
lreg em_load_fresh(struct em *, value_id, const expr_id *idx);

/* The register remembered for this value, point and condition, if it is still visible; {0}: none. group 0: the element
 * at the point; else a number that identifies a group of elements from the point on (emit/dot.c). */
lreg em_recall(struct em *, value_id, const expr_id *idx, expr_id cond, uint32_t group);
void em_remember(struct em *, value_id, const expr_id *idx, expr_id cond, uint32_t group, lreg);
/* The operands of L_DOT at a group of elements (emit/dot.c). The elements of operand o are idx[o] and the `size` - 1
 * points after it along dim[o], step[o] apart; the first `valid` of them exist. lanes: number of accumulator lanes (i32
 * or f32); 1: a scalar. */
struct em_group {
    expr_id *idx[2];
    int32_t dim[2];
    int64_t step[2];
    uint32_t size, valid, lanes;
    int32_t lane; /* position of this group of the first operand in a register of 16 bytes that holds its neighbours,
                   * too; -1: each group is loaded separately */
    bool matrix; /* for L_MATDOT: 8 bytes of one row as an i64, or the register that holds them, and 8 bytes of each
                  * column */
};
/* Are v's elements in memory or in scratch? */
bool em_is_stored(struct em *, value_id);
/* Loads one register with a group of `size` elements of v and its neighbours along dim, and returns lane `lane` of it:
 * a word of 4 bytes. For groups of 8 bytes it returns the register itself, two i64; with acc f16, one f32 element as
 * f16. {0}: the groups are not contiguous or v is not stored. */
lreg em_lane_group(struct em *, value_id v, const expr_id *idx, int32_t dim, uint32_t size, int32_t lane, enum elem acc,
                   expr_id cond);
void em_dot_group(struct em *, const struct node *, const struct em_group *, expr_id cond_a, expr_id cond_b,
                  lreg in[2]);
/* The second one alone. */
lreg em_panel_group(struct em *, const struct node *, const struct em_group *, expr_id cond);

/* Reductions. */
/* The result of a reduction at n points, in one loop nest: acc[i] at points[i]. The points share common operands. */
void em_reduce_points(struct em *, const struct node *, uint32_t n, expr_id *const *points, expr_id cond, lreg *acc);
/* The result at one point. Lanes are along the innermost reduced dim if memory is contiguous there. */
lreg em_reduce_one(struct em *, const struct node *, const expr_id *idx, expr_id cond);
/* The results of n <= 2 reductions over the same dims at a point, in one loop if memory is contiguous there for all. */
void em_reduce_siblings(struct em *, const struct node *const *, uint32_t n, const expr_id *idx, expr_id cond,
                        lreg *out);
enum lop em_monoid(const char *monoid, enum elem);
/* Is it known that the taps of a convolution along spatial dim d stay within the operand and its halo, even if the
 * number of results is rounded up to a multiple of `tile`? */
bool em_halo_covers(struct em *, const struct node *, int32_t d, int64_t tile);
expr_id em_at_lane(const struct em *, expr_id, uint32_t lane); /* the expression where its lane has that number */
expr_id em_inside(struct em *, expr_id i, expr_id size); /* 0 <= i < size */
