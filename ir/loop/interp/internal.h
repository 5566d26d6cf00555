/* Between the parts of the loop IR's interpreter: values and control (interp.c), statements that compute (compute.c) by
 * the arithmetic of lanes (arith.c), and those that touch memory (memory.c). */
#pragma once

#include "ir/loop/internal.h"
#include "ir/loop/interp/interp.h"

/* Bytes of a buffer; init: one flag per byte of a local, NULL elsewhere (everything defined). */
struct memory {
    uint8_t *data, *init;
    int64_t bytes;
    double *error; /* of locals, where asked: by byte, that of the element there */
};

struct slot { /* one value */
    uint8_t *data, *undef; /* lanes * element size, lanes */
    uint8_t *spare, *spare_undef; /* block parameters: what the next trip carries */
    bool any_undef, spare_any;
    double *error, *spare_error; /* by lane, where any_error (error.c); NULL: not asked for */
    bool any_error, spare_any_error;
    uint32_t function; /* enum op: the constant that marks its result, or true made of it */
    uint32_t other; /* the value that is a marked function's second operand, this one being the first; 0: none */
    struct memory mem, spare_mem; /* buffers */
    enum elem elem;
    uint32_t lanes;
};

struct segment {
    int64_t address, bytes;
};

struct interp {
    const struct lfunc *f;
    struct arena arena;
    struct slot *slots;
    const struct linterp_host *host;
    struct linterp_result result;
    int64_t begin, end;
    int64_t work, most; /* done, allowed */
    bool stopped;
    bool vague; /* bounds are asked for, and what is off by one decides control or an address */
    VEC(uint32_t) locals; /* values that are locals: forgotten at each parallel index */
    VEC(struct segment) segments; /* memory handed out by mcc_rt_segment */
    VEC(struct linterp_arg) call_args;
};

typedef void exec_fn(struct interp *, const struct lstmt *);

/* Ends the run: a rule is broken. */
void interp_broken(struct interp *, const struct lstmt *, const char *what);
/* Are all lanes defined? Else a rule is broken. */
bool interp_defined(struct interp *, const struct lstmt *, const struct slot *, const char *as);

static inline struct slot *slot_in(struct interp *in, const struct lstmt *s, uint32_t operand)
{
    return &in->slots[s->in[operand].i];
}

static inline struct slot *slot_out(struct interp *in, const struct lstmt *s)
{
    return &in->slots[s->out[0].i];
}

/* After a statement that computes: bounds of its result (error.c). */
void loop_error(struct interp *, const struct lstmt *);
struct number {
    double x, error;
};

void slot_define(struct slot *); /* all lanes */
int64_t slot_index(const struct slot *);

/* Statements by their rule in ir/loop/loop.def: compute.c. */
exec_fn exec_const, exec_same, exec_dot, exec_matdot, exec_compare, exec_select, exec_convert, exec_bitcast, exec_splat,
    exec_extract, exec_insert, exec_shuffle, exec_hreduce;
/* memory.c */
exec_fn exec_matmul, exec_load, exec_store, exec_local, exec_offset, exec_address, exec_shared;

/* Lane arithmetic (arith.c): r[i] = op(a[i], b[i], c[i]) for n lanes of e; unused operands
 * may be NULL. A zero divisor gives 0 here: the caller checks first. */
void loop_compute(enum lop, enum elem, uint32_t n, const void *a, const void *b, const void *c, void *r);
/* L_DOT: r[i] of e = c[i] + the products of the `group` elements of a and b at i (two bf16 if e is f32, else bytes). */
void loop_dot(enum elem, enum elem of_a, uint32_t n, uint32_t group, const void *a, const void *b, const void *c,
              void *r);
/* L_MATDOT: the same of rows and columns; n is a multiple of 4, and r is not c. */
void loop_matdot(enum elem, enum elem of_a, uint32_t n, const void *a, const void *b, const void *c, void *r);
/* r[i] = 0 or 1. */
void loop_compare(enum lop, enum elem, uint32_t n, const void *a, const void *b, uint8_t *r);
/* Element i of an array of integers or bools, sign- or zero-extended. */
int64_t loop_int_lane(enum elem, const void *lanes, uint32_t i);
