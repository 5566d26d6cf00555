/* Dims and index expressions: one hash-consed language of 64-bit integers.
 *
 * Equal ids are provably equal; unequal ids are *unknown*, so expr_cmp answers in three values. Every node
 * carries an interval [lo, hi] and a divisibility d (the value is a multiple of d), and the constructors
 * simplify with them: (16*a + b) floordiv 16 = a when 0 <= b < 16.
 *
 * Canonical form: a sum is constant + SUM coef * term, terms being products of atoms, sorted by id; products
 * are distributed over sums while that stays small. Overflow while folding constants is a compile error
 * (context_unwind with FAIL_LIMIT): no network has sizes of 2^63 or more.
 */
#pragma once

#include "ir/base/base.h"

INDEX_TYPE(expr_id); /* 0 = none */
INDEX_TYPE(sym_id);  /* 0 = none */

enum expr_kind {
    EX_NONE,
    EX_CONST,
    EX_SYM,
    EX_SUM,      /* c + SUM coef[i] * arg[i] */
    EX_PROD,     /* product of >= 2 atoms */
    EX_DIV,      /* floor division; divisor never 0 (a symbol divisor has lo >= 1) */
    EX_MOD,      /* floor modulus, result in [0, b) */
    EX_MIN,
    EX_MAX,
    EX_LT,
    EX_EQ,          /* 0 or 1 */
    EX_AND,
    EX_NOT,        /* of 0/1 values */
    EX_SELECT              /* arg[0] ? arg[1] : arg[2] */
};

/* What a symbol stands for. */
enum sym_kind {
    SYM_SHAPE,   /* a named or anonymous dim of a graph input: bound at entry */
    SYM_VALUE,   /* an element of an integer tensor, known once that tensor is computed */
    SYM_LOOP,    /* a loop variable of a kernel under construction, or an iteration number */
    SYM_KINDS
};

/* Multiples of divisor within [lo, hi]. */
struct sym_bounds {
    int64_t lo, hi, divisor;
};
struct symbol {
    enum sym_kind kind;
    const char *name;          /* unique in the context */
    int64_t lo, hi, divisor;   /* interval and divisibility; divisor >= 1 */
    struct sym_bounds given; /* the artifact's declared bounds; graph.size_checks refuse some of these sizes */
    int64_t least, filled; /* for least to filled - 1 all outputs are empty and nothing is computed, so the bounds do
                            * not apply. filled = least: no such sizes */
    bool room; /* memory is reserved for hi: n<=hi of an input specification */
    expr_id bound; /* provable upper bound in other symbols, or {0} */
    uint32_t value,
        elem; /* SYM_VALUE: value_id.i and the flat element that defines it; UINT32_MAX: a dim of the value */
    sym_id of; /* the symbol that this one replaces in a narrower range (sym_within); {0}: none */
    sym_id next; /* the next of its kind (sym_next) */
};

/* A context with its index expressions; context_free (ir/base/base.h) frees it. NULL: out of memory. */
struct context *context_new(void);
struct exprs *exprs_new(struct context *);
uint32_t ex_count(const struct exprs *); /* all ids are below this */

sym_id sym_new(struct exprs *, enum sym_kind, const char *name, int64_t lo, int64_t hi);
/* A symbol that replaces s where s is in [lo, hi]. It has the same kind, but sym_next does not return it. The caller
 * emits the test and binds the new symbol to the value of s. */
sym_id sym_within(struct exprs *, sym_id s, int64_t lo, int64_t hi);
/* The caller may narrow lo, hi and divisor before expressions use the symbol. lo == hi makes it a constant. */
struct symbol *sym_get(struct exprs *, sym_id);
/* Narrows a symbol that expressions may use already; these keep their wider bounds, which stay valid. If lo == hi,
 * ex_sym returns a constant from now on. The caller must refuse an empty range (lo > hi). */
void sym_narrow(struct exprs *, sym_id, int64_t lo, int64_t hi, int64_t divisor);
uint32_t sym_count(const struct exprs *);
/* The next symbol of one kind in order of creation; {0} gives the first. Returns {0} after the last. */
sym_id sym_next(const struct exprs *, enum sym_kind, sym_id);
sym_id sym_find(const struct exprs *, const char *name); /* {0}: no symbol of that name */

expr_id ex_const(struct exprs *, int64_t);
expr_id ex_sym(struct exprs *, sym_id);
expr_id ex_add(struct exprs *, expr_id, expr_id);
expr_id ex_sub(struct exprs *, expr_id, expr_id);
expr_id ex_mul(struct exprs *, expr_id, expr_id);
expr_id ex_addc(struct exprs *, expr_id, int64_t);
expr_id ex_mulc(struct exprs *, expr_id, int64_t);
/* first + a[0] b[0] + ... */
expr_id ex_dot(struct exprs *, expr_id first, const expr_id *a, const expr_id *b, uint32_t n);
expr_id ex_div(struct exprs *, expr_id, expr_id); /* floor */
expr_id ex_ceildiv(struct exprs *, expr_id, expr_id);
expr_id ex_mod(struct exprs *, expr_id, expr_id);
expr_id ex_min(struct exprs *, expr_id, expr_id);
expr_id ex_max(struct exprs *, expr_id, expr_id);
expr_id ex_lt(struct exprs *, expr_id, expr_id);
expr_id ex_le(struct exprs *, expr_id, expr_id); /* a <= b as a < b + 1 */
expr_id ex_eq(struct exprs *, expr_id, expr_id);
expr_id ex_and(struct exprs *, expr_id, expr_id);
expr_id ex_or(struct exprs *, expr_id, expr_id);
expr_id ex_not(struct exprs *, expr_id);
expr_id ex_select(struct exprs *, expr_id c, expr_id t, expr_id f);

/* Queries. */
enum expr_kind ex_kind(const struct exprs *, expr_id);
bool ex_is_const(const struct exprs *, expr_id, int64_t *value);
bool ex_is(const struct exprs *, expr_id, int64_t value); /* a constant and equal to value */
sym_id ex_as_sym(const struct exprs *, expr_id); /* {0} unless a bare symbol */
int64_t ex_lo(const struct exprs *, expr_id); /* INT64_MIN: unbounded */
int64_t ex_hi(const struct exprs *, expr_id); /* INT64_MAX: unbounded */
int64_t ex_divisor(const struct exprs *, expr_id);
bool ex_uses(const struct exprs *, expr_id, sym_id);
bool ex_uses_only(const struct exprs *, expr_id, const bool *of); /* no symbol of which `of`, by symbol, is false */
sym_id ex_first_sym(const struct exprs *, expr_id); /* one that it uses; {0}: none */
bool ex_uses_kind(const struct exprs *, expr_id, enum sym_kind); /* any symbol of that kind */
uint32_t ex_n_args(const struct exprs *, expr_id);
uint32_t ex_size(const struct exprs *, expr_id); /* nodes of the expression as a tree */
expr_id ex_arg(const struct exprs *, expr_id, uint32_t i);
int64_t ex_coef(const struct exprs *, expr_id sum, uint32_t i); /* of arg i of a sum */
int64_t ex_addend(const struct exprs *, expr_id sum); /* the constant of a sum */
/* Splits e into coef * s + rest, where rest does not use s; false: e has no such form. */
bool ex_linear(struct exprs *, expr_id e, sym_id s, expr_id *coef, expr_id *rest);
/* Is a - b a constant? Then *by. False too if the difference exceeds the limits of expressions; never unwinds. */
bool ex_apart(struct exprs *, expr_id a, expr_id b, int64_t *by);

enum truth { FALSE_, TRUE_, UNKNOWN_ };
enum truth ex_truth(const struct exprs *, expr_id cond);
enum truth ex_cmp_eq(struct exprs *, expr_id, expr_id);
enum truth ex_cmp_lt(struct exprs *, expr_id, expr_id);
enum truth ex_cmp_le(struct exprs *, expr_id, expr_id);

/* Replaces symbols: from[i] becomes to[i], simultaneously. */
expr_id ex_subst(struct exprs *, expr_id, const sym_id *from, const expr_id *to, uint32_t n);
/* The same; {0}: the result is too large an expression. */
expr_id ex_subst_try(struct exprs *, expr_id, const sym_id *from, const expr_id *to, uint32_t n);
/* Replaces subexpressions that use symbols: each occurrence of from[i] becomes to[i]. */
expr_id ex_replace(struct exprs *, expr_id, const expr_id *from, const expr_id *to, uint32_t n);

/* Evaluates with sym_value[sym.i]; false on overflow or division by zero. */
bool ex_eval(const struct exprs *, expr_id, const int64_t *sym_value, int64_t *out);

/* Text: "n", "2*n + 1", "floordiv(h + 1, 2)", "min(a, b)", "select(a < b, c, d)". Parsing it gives the same id, or,
 * after sym_narrow of a symbol, an expression that is equal for the symbol's remaining values. */
void ex_print(const struct exprs *, expr_id, struct strbuf *);
/* Parses from *p, advances it; unknown names become SYM_SHAPE symbols when create is set, else failure ({0}). */
expr_id ex_parse(struct exprs *, const char **p, bool create);
