/* The loop IR: kernels and programs as structured SSA over scalars, vectors and buffers.
 *
 * A function has buffer and index arguments and a body of statements. Values are immutable; loops carry values (phis)
 * and yield them. A function has one of four roles:
 *   kernel   one `parallel` loop at the end of its body, over [0, count): the unit that threads claim in chunks;
 *   program  the run function of an artifact: launches, control flow, calls, in the order of the graph;
 *   plan     derives symbols, sizes and output shapes from input shapes;
 *   entry    the C function of a static network, with C's arguments; the last one is memory, which begins with the
 *            scratch of the kernels. It checks sizes and launches the program.
 * ir/loop prints, parses, verifies and interprets it, and the interpreter checks every access. codegen translates it
 * statement by statement, without optimising. docs/loop-ir.md has the text form and every rule.
 *
 * Text form, one statement a line:
 *   kernel @k7 nodes(3, 5) {
 *     arg %0 : buffer f32 in align 64 noalias
 *     arg %1 : buffer f32 out align 64 noalias
 *     arg %2 : index
 *     %3 = const index 0
 *     parallel %4 = %3 to %2 {
 *       %5 = load f32x16 %0[%4] align 64
 *       %6 = max f32x16 %5, %5
 *       %9 = for %7 = %3 to %2 step 1 carry(%8 = %6) {
 *         %10 = fma f32x16 %8, %5, %6
 *         yield %10
 *       }
 *       store %1[%4], %9 align 64
 *     }
 *   }
 */
#pragma once

#include "ir/ops/ops.h"

INDEX_TYPE(lreg);   /* a virtual register: assigned once, by a statement, an argument or a block; 0 = none */
INDEX_TYPE(lblock); /* 0 = none */

/* Register types. elem ELEM_I64 with lanes 1 is "index". ELEM_BOOL is a predicate (one bit; one byte 0/1 in memory;
 * any non-zero byte loads as true). lanes 0: a buffer whose elements are elem. Printed "f32", "f32x16", "index",
 * "bool", "boolx8", "buffer f32". */
struct ltype {
    enum elem elem;
    uint32_t lanes;
};

enum lop {
    L_NONE,
#define LOP(id, ...) L_##id,
#include "ir/loop/loop.def"
    L_COUNT
};
enum { LOOP_TABLE = 256 }; /* elements that a u8 index can address */
enum { LOOP_LANES_MAX = 128 }; /* of a register: a byte numbers those of both operands of a shuffle */
const char *lop_name(enum lop);
enum lop lop_by_name(const char *);

enum {
    L_FLAG_WHILE = 1,
    L_FLAG_MAYFAIL = 2,
    L_FLAG_UNROLL = 4 /* FOR: unroll fully in codegen; bounds constant */,
    L_FLAG_NONTEMPORAL = 8,
    L_FLAG_INVARIANT = 16, /* LOAD from memory that the function never writes */
    L_FLAG_ROW = 32,
    L_FLAG_DATA = 64, /* CONST: imm is the number of a word of what the launch's row has, which codegen puts there */
    L_FLAG_RESIDUE = 128 /* CONST of a float: what lf_field puts in its place is imm, not what fimm alone would be */
};

struct lstmt {
    enum lop op;
    struct ltype type; /* of the result(s) that are values; stores: unused */
    uint32_t flags;
    uint32_t align; /* LOAD/STORE: bytes known; 0 = element */
    uint32_t n_in;
    lreg *in;
    uint32_t n_out;
    lreg *out;
    int64_t imm;
    double fimm;
    lblock block[2];
    const char *name; /* APPLY, CALL, LAUNCH, GLOBAL; CHECK: the text */
    uint32_t node; /* CHECK, LAUNCH: src_id.i of the source node */
    const uint8_t *aux;
    uint32_t n_aux; /* SHUFFLE */
    uint32_t line; /* of the text that it was parsed from, from 1; 0: of none */
};
struct lblk {
    VEC(struct lstmt) stmts;
    VEC(lreg) params;
};

enum larg_flags { LARG_IN = 1, LARG_OUT = 2, LARG_NOALIAS = 4 };
struct larg {
    struct ltype type;
    uint32_t flags, align;
    const char *label;
};
/* LROLE_VALUE: a part, or a function that kernels share. It computes the value that it yields from its arguments, which
 * are values, and does nothing else. */
enum lrole { LROLE_KERNEL, LROLE_PROGRAM, LROLE_PLAN, LROLE_ENTRY, LROLE_VALUE };
struct lfunc {
    struct context *ctx;
    struct arena *arena;
    enum lrole role;
    const char *name;
    VEC(uint32_t) nodes; /* src_id.i of the source nodes */
    VEC(struct larg) args; /* argument k is value %k+1's ... see lf_arg */
    VEC(struct ltype) types; /* of every value; [0] unused */
    VEC(struct lblk) blocks; /* [0] unused; [1] body */
    VEC(struct lfunc *) parts; /* what L_APPLY statements name, in it and in later parts; the text has them after it */
    struct lfunc *of; /* of a part: whose; else NULL */
    int64_t local_bytes; /* scratch that the LOCALs need, each rounded up to 64: set by lf_finish */
};

/* ---- construction (ir/loop/loop.c) ------------------------------------------------------------------------------ */

struct lfunc *lf_new(struct context *, struct arena *, enum lrole, const char *name);
lreg lf_arg(struct lfunc *, struct ltype, uint32_t flags, uint32_t align,
            const char *label); /* in order, before any statement */
/* A shuffle's list that pads a vector of n lanes to a power of two, as L_HREDUCE needs, by repeating its first lane;
 * returns the power. AND, OR, MIN and MAX of the padded vector are those of the n lanes. */
static inline uint32_t lanes_padded(uint32_t n, uint8_t from[256])
{
    uint32_t all = 1;
    while (all < n)
        all *= 2;
    for (uint32_t i = 0; i < all; i++)
        from[i] = (uint8_t)(i < n ? i : 0);
    return all;
}
/* Appends a statement to block b and returns its result; {0}: the operation has none. */
lreg lf_op(struct lfunc *, lblock b, enum lop, struct ltype, const lreg *in, uint32_t n_in);
/* Appends a statement with these operands, all else zero; the pointer is valid until the next append to b. */
struct lstmt *lf_stmt(struct lfunc *, lblock b, enum lop, const lreg *in, uint32_t n_in);
struct lstmt *lf_last(struct lfunc *, lblock b); /* the last one; valid until the next append to b */
lreg lf_value(struct lfunc *, struct ltype); /* a fresh value: for results and block params */
lblock lf_block(struct lfunc *);
lreg *lf_lregs(struct lfunc *, const lreg *, uint32_t n); /* copy into the arena */
struct ltype lf_type(const struct lfunc *, lreg);
/* The part that the function may apply; NULL: there is none. A part may apply those before it. */
struct lfunc *lf_part(const struct lfunc *, const char *name);
void lf_tidy(struct lfunc *); /* common subexpression and dead code elimination (ir/loop/tidy.c) */
/* Adds statements that choose between -0 and +0 to L_MIN and L_MAX of floats (ir/loop/extremes.c). */
void lf_settle_zeros(struct lfunc *);
/* Where mcc prove has the bytes of loops and branches that run. Before them, in a page of its own, is a u64: how often
 * functions have asked whether the run is cancelled, as each trip of a network's loop does. The last time ends the run.
 */
#define FIELD_MARKS 0x200000000000
enum { FIELD_POLLS = 4096, FIELD_POLLS_MOST = 1 << 16 };
/* The skip flag of a function is this many bytes after its first mark. If it is not 0, the body of the parallel loop
 * does not run. */
#define FIELD_SKIPS ((int64_t)1 << 30)
/* What became of a function in the field. */
struct field_facts {
    const char *why; /* the first statement without a meaning there; NULL: none */
    bool fractions; /* some constant stands for one */
    bool underflow; /* -87 is among them, which only -inf is less than */
    bool rounds; /* floats to integers or narrow floats */
    bool narrows; /* to types that have few of the numbers that stand for hashes */
    bool rounds_wide; /* f64 to another float */
    const char *shares; /* asked: what the names of parts end in, which kernels are to share; NULL: they are not */
    bool marked; /* asked: each loop and branch writes 1 to a byte of its own where it runs, from FIELD_MARKS + */
    uint32_t first, blocks; /* first (asked) on, so many */
    uint32_t later; /* the one of these that parallel indices but the first write to */
};
/* Between which numbers an index lies. */
struct loop_range {
    int64_t lo, hi;
};
/* Which loops and branches of a kernel never run if its arguments lie in these ranges (those of buffers are not read),
 * in the order in which lf_field marks them. Writes up to `room` flags; returns how many blocks there are. scratch: as
 * many as the function has types. */
uint32_t lf_never(const struct lfunc *, const struct loop_range *args, struct loop_range *scratch, bool *never,
                  uint32_t room);
/* Floats become GF(q) x GF(p) (ir/loop/field.c). False: see why. */
bool lf_field(struct lfunc *, struct field_facts *);
/* What lf_math appends for it: a hash of the operands, not a function's digits. */
lreg lf_field_function(struct lfunc *, lblock b, enum op, struct ltype, const lreg *in, uint32_t n_in);
/* Around functions of the runtime: what they get for a residue, and the residue of what they give. One float type. */
lreg lf_field_to_real(struct lfunc *, lblock b, lreg x);
lreg lf_field_from_real(struct lfunc *, lblock b, lreg x);
/* Tests: changes the statement that *site counts down to (break.c). False: it has fewer, and *site is that much less */
bool lf_mutate(struct lfunc *, int64_t *site);
/* Tests: the first sum, product or maximum of floats, else a multiply-add, becomes another operation (break.c). False:
 * there is none. */
bool lf_break(struct lfunc *);
bool lf_finish(struct lfunc *); /* assigns memory to LOCALs, then verifies */

/* The constants of L_MATMUL in their order. Row r of c is the sum over all loops of row r of a, which has `k` elements,
 * times b. b holds groups of 16 columns, [k / group][16][group]; L_DOT sums the groups in order.
 * second, place: a second set of `rows` rows of a begins `second` elements after the first and uses the same b. Its
 * results are the rows of c from `place` on, where they may overlap the first set's. place 0: there is one set.
 * apart: elements of b between two vectors of columns, which use the same rows of a. 0: there is one vector.
 * c has no gaps: a row is 16 lanes of each vector.
 * lines: for each vector, a step prefetches so many lines, from `distance` elements after its own panel on.
 * f32: the products of the first and of the second elements of the groups have separate accumulators along k, with one
 * rounding for each product; both are added to c at the end. */
enum { MATMUL_FIRST = 6, MATMUL_FIXED = 13, MATMUL_LOOPS = 4, MATMUL_COLUMNS = 16, MATMUL_BYTES = 64 };
struct lmatmul {
    int64_t rows, stride, second, place, apart, k, lines; /* stride: elements of a between rows */
    uint32_t n_loops; /* outermost first: trips, and elements of a and of b between them */
    struct {
        int64_t n, a, b;
    } loop[MATMUL_LOOPS];
};
/* Reads the constants, from operand MATMUL_FIRST on; false: they are not valid. size: bytes of an element of a. */
bool lmatmul_of(const int64_t *constants, uint32_t n, uint32_t size, struct lmatmul *);
/* The rows of c that are written. */
static inline int64_t lmatmul_rows(const struct lmatmul *m)
{
    return m->place ? m->place + m->rows : m->rows;
}

/* ---- text, verifier ---------------------------------------------------------------------------------------------- */

void lf_print(const struct lfunc *, struct strbuf *);
/* Parses one function from *text and advances it; NULL after a diagnostic. Printing the result gives the same text. */
struct lfunc *lf_parse(struct context *, struct arena *, const char **text);
bool lf_verify(struct lfunc *); /* rules numbered at the head of ir/loop/verify_loop.c; FAIL_INTERNAL diagnostics */

/* Vector math: expands OP_EXP, OP_LOG, OP_TANH, OP_ERF, OP_SIGMOID, OP_SIN ... of f32 or f64 lanes into loop-IR
 * statements appended to block b (ir/loop/math/math.c; ULP bounds in docs/numerics.md). {0}: no expansion for this
 * op/type. */
lreg lf_math(struct lfunc *, lblock b, enum op, struct ltype, const lreg *in, uint32_t n_in);
/* The same if least <= in[0] <= most or in[0] is NaN: an exponential needs no clamps then. */
lreg lf_math_within(struct lfunc *, lblock b, enum op, struct ltype, const lreg *in, uint32_t n_in, double least,
                    double most);
bool lf_math_is_long(enum op); /* does it take a hundred statements or more, through f64, for f32 lanes? */

/* The words of a and of b that lane `lane` of L_MATDOT multiplies by its first (step 0) or second L_DOT. */
static inline uint32_t matdot_row(uint32_t lane, uint32_t step)
{
    return lane / 4 * 4 + lane / 2 % 2 * 2 + step;
}
static inline uint32_t matdot_column(uint32_t lane, uint32_t step)
{
    return lane / 4 * 4 + lane % 2 * 2 + step;
}
