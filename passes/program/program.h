/* The program around the kernels: shared by program.c (frame, launches, symbols), program/control.c (if, loop), program/loop_kernel.c (loops as kernels),
 * program/call.c (runtime functions) and program/values.c (sequences, optionals). */
#ifndef MCC_PASSES_PROGRAM_H
#define MCC_PASSES_PROGRAM_H

#include "passes/module/access.h"
#include "passes/module/module.h"

struct prog_sym {
    sym_id sym;
    lval v;
};
/* Where a value whose size differs from trip to trip, or between branches, is written: memory that grows (mcc_rt_grow).
 * trip: it is the row of that number, behind those before it; {0}: it is the whole. */
struct prog_grow {
    lval slot, trip;
};
struct prog {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    struct lfunc *f;
    lblock block; /* where statements go now */
    const char *suffix; /* of kernel names of this variant */
    lval *in, *out, arena_base, weights_base, constants_base;
    lval *pointer; /* by value: its bytes, where they are not at a fixed place ({0}: see storage) */
    lval *handle; /* by value: address of the runtime's value, of what is no plain tensor */
    struct prog_grow *grow; /* by value; slot {0}: it does not grow */
    uint32_t loops; /* around the block */
    int64_t local_bytes; /* of scratch that prog_local gave away */
    VEC(struct prog_sym) syms; /* bound so far; truncated when a block closes */
    bool failed;
};

lval prog_op(struct prog *, enum lop, struct ltype, const lval *in, uint32_t n);
lval prog_const(struct prog *, int64_t);
lval prog_index(struct prog *, expr_id);
lval prog_buffer(struct prog *, value_id, enum elem); /* the value's bytes as a buffer of elem */
lval prog_load(struct prog *, value_id, int64_t element); /* integer or bool element as index */
void prog_bind(struct prog *, sym_id, lval);
void prog_check(struct prog *, lval cond, int32_t code, uint32_t node, const char *text);
lval prog_call(struct prog *, const char *name, const lval *in, uint32_t n, bool may_fail);
/* A buffer of u8 whose size only the run knows; inside loops the same memory serves every trip, as far as it reaches. */
lval prog_memory(struct prog *, lval bytes);
lval prog_slot(struct prog *); /* for mcc_rt_grow; empty when the program starts */
lval prog_grow(struct prog *, lval slot, lval bytes, lval keep); /* the slot's memory as a buffer of u8 */
/* Gives v its memory, unless it has some. */
void prog_place(struct prog *, value_id);
/* Binds the symbols that elements of v define, after v was stored. */
void prog_bind_elements(struct prog *, value_id);
void prog_region(struct prog *, region_id);
bool prog_refuse(struct prog *, node_id, const char *why);

void prog_control(struct prog *, struct kernel *);
/* Makes kernel k, the loop's, of a loop statement that is complete but stands nowhere yet, and launches it; the result is the
 * number of trips made. {0}: the loop has to stay a loop of launches; nothing was placed. (program/loop_kernel.c) */
lval prog_loop_kernel(struct prog *, struct kernel *k, const struct lstmt *loop);
void prog_opaque(struct prog *, struct kernel *);

/* ---- program/values.c ---- */
bool prog_is_handle(const struct type *); /* no plain tensor: carried by its address */
lval prog_handle(struct prog *, value_id); /* a plain tensor: a copy of it as a value of the runtime */
lval prog_local(struct prog *, int64_t words); /* i64 buffer of the program */
lval prog_dims(struct prog *, const struct type *); /* the dims in a prog_local */
/* The dim is this: binds its symbol, or checks that it is equal. */
void prog_bind_dim(struct prog *, expr_id, lval, uint32_t node);
void prog_store_scalar(struct prog *, value_id, lval);
void prog_output_handles(struct prog *);
typedef void prog_call_fn(struct prog *, const struct node *);
prog_call_fn call_seq_make, call_seq_insert, call_seq_erase, call_seq_at, call_seq_length, call_seq_concat,
    call_seq_split, call_opt_make, call_opt_get, call_opt_has;

#endif
