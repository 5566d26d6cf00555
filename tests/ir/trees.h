/* Random expressions over few symbols as plain trees, and their exact values: what ir/expr is compared with
 * (test_expr_random.c). Draws repeat for one seed.
 */
#ifndef MCC_TESTS_IR_TREES_H
#define MCC_TESTS_IR_TREES_H

#include "ir/expr/expr.h"

__extension__ typedef __int128 wide;

/* PLAUSIBLE: sizes and constants of networks; every value fits into 64 bits by far. HOSTILE: symbols of any range, huge
 * constants, any divisor. CHAINS: the same, with up to 60 operators one after the other. */
enum profile { PLAUSIBLE, HOSTILE, CHAINS };

enum { TREE_SYMS = 5, TREES = 4096 };

/* What a symbol may be. A bound on it is value of `below` - 1, in an earlier symbol; -1: none. */
struct tree_sym {
    int64_t lo, hi, divisor;
    int below;
};

enum tree_op {
    T_CONST,
    T_SYM,
    T_ADDC,
    T_MULC,
    T_NOT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_MOD,
    T_CEILDIV,
    T_MIN,
    T_MAX,
    T_LT,
    T_LE,
    T_EQ,
    T_AND,
    T_OR,
    T_SELECT,
    T_DOT /* arg[0] + arg[1] * arg[2] */
};

struct tree {
    enum tree_op op;
    int64_t c;
    struct tree *arg[3]; /* chains share operands */
    expr_id e; /* of tree_build */
    uint32_t built, seen; /* by the last tree_build, tree_eval */
    bool defined, fits;
    wide value;
};

struct trees {
    uint64_t state; /* of the random numbers */
    enum profile profile;
    struct tree_sym sym[TREE_SYMS];
    uint32_t n, round;
    struct tree node[TREES];
};

uint64_t tree_bits(struct trees *);
int64_t tree_int(struct trees *, int64_t lo, int64_t hi); /* both may come */

void trees_start(struct trees *, uint64_t seed, enum profile); /* draws the symbols */
void trees_clear(struct trees *); /* drops the trees, not the symbols */
struct tree *tree_draw(struct trees *, int depth);
/* Values of the symbols within their ranges, divisors and bounds; false: none was found. */
bool tree_values(struct trees *, int64_t *value);
/* ... INT64_MIN and INT64_MAX as bounds mean none, and are no values then. */
bool tree_allows(const struct trees *, const int64_t *value);

/* A context with the symbols s0, s1, ... */
struct context *tree_context(const struct trees *, sym_id *syms);
/* Through the constructors of ir/expr, which may unwind. */
expr_id tree_build(struct trees *, struct exprs *, const sym_id *, struct tree *);
/* The exact value; false: undefined, as something is divided by zero, or beyond 128 bits. *fits: it and all that it was
 * computed from are of 64 bits. */
bool tree_eval(struct trees *, struct tree *, const int64_t *value, wide *out, bool *fits);
void tree_print(const struct tree *, struct strbuf *, size_t most);

#endif
