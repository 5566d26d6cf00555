/* Shared by ir/expr*.c only: storage of the hash-consed expressions, and sums under construction. */
#pragma once

#include "ir/expr/expr.h"

enum {
    EXPR_DEPTH_MAX = 1000,     /* of nesting; what walks expressions may recurse */
    EXPR_SIZE_MAX = 20000,     /* nodes when written out as a tree: bounds every walk without memory */
    EXPR_TERMS_MAX = 1024,     /* of one sum */
    EXPR_LEVEL_MAX = 48,       /* simplifications within simplifications; deeper ones are left undone */
    EXPR_FUEL = 1024,          /* simplifications within one that is in no other; further ones are left undone */
    ASSUME_SIZE_MAX = 400,     /* arms of a choice up to which its condition is made use of in them */
    DISTRIBUTE_MAX = 64,       /* terms up to which a product of sums is multiplied out */
    RESULTS = 1 << 14,         /* of operations that are remembered */
    PROOF_SLOTS = 1 << 12,     /* of proofs that are */
    EXPR_SCRATCH = 1 << 15,    /* terms of all sums under construction at a time */
    SMALL = 64,                /* constants that are found without a look at the table */
    CHUNK = 1024
};

enum {
    F_DIV = 1,   /* the node is, or is a product with, an EX_DIV / EX_MOD */
    F_MOD = 2,
    F_KIND = 4   /* << enum sym_kind: a symbol of that kind is inside */
};

struct enode {
    uint8_t kind, flags;
    uint16_t depth;
    uint32_t n, size;
    sym_id sym;
    int64_t c;                   /* value of a constant, addend of a sum */
    const expr_id *arg;
    const int64_t *coef;         /* sums */
    int64_t lo, hi;
    int64_t div;                 /* the value is a multiple of this; 0: the value is 0 */
    double largest;              /* magnitude that it usually has: sizes without bounds count as 2^12 */
    uint64_t syms;               /* bit s % 64 for every symbol s inside */
    uint64_t hash;
};

struct term {
    int64_t coef;
    expr_id e;
};

struct exprs {
    struct context *ctx;
    struct arena *arena;
    VEC(struct enode *) chunks;
    uint32_t n;                  /* nodes; [0] is none */
    expr_id small[SMALL];        /* the constants 0, 1, ... as far as they were asked for */
    uint32_t *table, table_size; /* open addressing, power of two, 0 = free */
    VEC(struct symbol *) syms;   /* [0] unused */
    sym_id first_sym[SYM_KINDS], last_sym[SYM_KINDS];
    VEC(expr_id) sym_exprs;
    uint32_t *names, names_size; /* symbols by name */
    struct term *scratch;        /* a stack of sums under construction */
    uint32_t scratch_top;
    uint32_t level, fuel;
    uint32_t cut;                /* simplifications that were left undone for one of the limits */
    uint32_t assuming;           /* depth of assumptions, see ir/expr/choice.c */
    uint32_t speculative;        /* > 0: an overflow gives none ({0}) instead of ending the compilation */
    int64_t *tried;              /* values of symbols, for facts */
    uint32_t n_tried;
    struct proof {
        uint32_t e;
        bool holds;
    } *proofs;   /* direct-mapped memory of expr_nonneg */
    struct result {
        expr_id a, b, result;
        uint32_t op;             /* enum expr_kind */
        int64_t coef, c;
    } *results;   /* the same of sums, products, quotients and remainders */
};

static inline const struct enode *enode(const struct exprs *x, expr_id e)
{
    return &x->chunks.data[e.i / CHUNK][e.i % CHUNK];
}

/* What to intern; args and coefs are copied when the node is new. */
struct ekey {
    enum expr_kind kind;
    int64_t c;
    uint32_t n;
    const expr_id *arg;
    const int64_t *coef;
    sym_id sym;
};
/* The node of key, simplified no further than to a constant when its interval is a point. */
expr_id expr_intern(struct exprs *, const struct ekey *);
expr_id expr_intern2(struct exprs *, enum expr_kind, expr_id, expr_id);
sym_id expr_find_sym(const struct exprs *, const char *name);
/* Interval and divisibility that follow from the operands, or from the symbol. */
void expr_bounds(const struct exprs *, const struct ekey *, int64_t *lo, int64_t *hi, int64_t *div);
/* Node e into the table of nodes; the place of a name in that of symbols. */
void expr_table_insert(struct exprs *, uint32_t e);
uint32_t expr_name_slot(const struct exprs *, const char *name);

/* An overflow, or an expression past the limits. Outside of an attempt it unwinds with FAIL_LIMIT. Inside of one the
 * result is none, {0}: no number, and absorbing, since every operation on none gives none. A predicate of none is
 * "not proved". So an attempt is over when its result has been looked at. */
NODISCARD expr_id expr_overflow(struct exprs *);
PRINTF_LIKE(2, 3) NODISCARD expr_id expr_too_large(struct exprs *, const char *fmt, ...);
/* Attempts nest. */
static inline void attempt_begin(struct exprs *x)
{
    x->speculative++;
}
/* Ends an attempt and hands its result on: none when it failed. */
NODISCARD static inline expr_id attempt_end(struct exprs *x, expr_id result)
{
    x->speculative--;
    return result;
}

/* Begins a simplification, which may contain others. False: the limit of depth or of fuel is reached, and the
 * expression stays as it is. */
static inline bool simplify_begin(struct exprs *x)
{
    if (x->level == 0)
        x->fuel = EXPR_FUEL;
    if (x->level >= EXPR_LEVEL_MAX || x->fuel == 0) {
        x->cut++;
        return false;
    }
    x->fuel--;
    x->level++;
    return true;
}
static inline void simplify_end(struct exprs *x)
{
    x->level--;
}

/* The memory of operations: key->result when it holds one with the operands of key. */
bool result_recall(struct exprs *, struct result *key);
/* Enters what was computed since x->cut was `cut`, unless a limit has cut it short or it is none. */
void result_keep(struct exprs *, const struct result *, uint32_t cut);

/* c + SUM coef * e, under construction on the scratch stack; none once a part of it is. */
struct poly {
    struct exprs *x;
    struct term *t;
    uint32_t n, cap;
    uint32_t mark;               /* scratch_top before this one */
    bool none;
    int64_t c;
};
struct poly poly_open(struct exprs *);
void poly_add(struct poly *, expr_id e, int64_t coef);      /* += coef * e */
void poly_add_const(struct poly *, int64_t);
void poly_add_product(struct poly *, expr_id a, expr_id b, int64_t coef);
/* Moves p to the top of the stack with room for need terms; its old place is free again when p ends. */
void poly_reserve(struct poly *, uint32_t need);
/* Sorts by id, adds up what belongs together, drops zeros. Every coefficient that is left can be negated: INT64_MIN is
 * an overflow. */
void poly_merge(struct poly *);
int64_t poly_coef(const struct poly *, expr_id term);       /* of a merged sum; 0: it does not hold the term */
/* Joins quotients and remainders of a merged sum. */
void poly_recombine(struct poly *);
expr_id poly_finish(struct poly *);                         /* the sum, canonical */
void poly_drop(struct poly *);                              /* pops p and all that were opened after it */
expr_id poly_close(struct poly *);                          /* both; for one opened last */
/* Any expression as a sum, without copying: n terms t[i] (coefficient, term) and the constant. */
struct view {
    uint32_t n;
    int64_t c;
    const int64_t *coef;
    const expr_id *e;
    expr_id one_e;
    int64_t one_coef;
};
void view_of(const struct exprs *, expr_id, struct view *);
/* Declares v, the view of e. */
#define VIEW_OF(v, x, e) \
    struct view v;       \
    view_of(x, e, &v)

/* Finds atom k in term and gives the product of the others. False: term has no k-th atom. */
bool term_atom(struct exprs *, expr_id term, uint32_t k, expr_id *atom, expr_id *rest);
/* The product of two terms: neither is none or a constant, and a sum stands as an atom. */
expr_id term_multiply(struct exprs *, expr_id a, expr_id b);
/* term = q * by for monomials without coefficients; {0} when it does not divide. */
expr_id term_divide(struct exprs *, expr_id term, expr_id by);

/* True: e >= 0 in every valuation. False: not proved. */
bool expr_nonneg(struct exprs *, expr_id e);
bool expr_lt(struct exprs *, expr_id a, expr_id b);

/* e as 0 or 1. */
expr_id expr_to_bool(struct exprs *, expr_id e);
expr_id expr_equal_by_choice(struct exprs *, expr_id gap);

int64_t gcd_i64(int64_t a, int64_t b);                      /* of magnitudes; gcd(0, b) = |b| */
