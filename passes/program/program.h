/* The program around the kernels: shared by program.c (frame), launch.c, statements.c (index expressions, buffers),
 * control.c (if, loop), loop_kernel.c (loops as kernels), call.c (runtime functions), values.c (sequences, optionals)
 * and plan_function.c. */
#pragma once

#include "passes/module/access_function.h"
#include "passes/module/module.h"

extern const struct ltype prog_i64; /* of sizes, counts and addresses (statements.c) */

/* A symbol, or an expression that is computed already, and the register that has it. */
struct prog_sym {
    uint32_t key;   /* of a symbol 2 * sym_id.i, of an expression 2 * expr_id.i + 1 */
    lreg v;
    uint32_t outer; /* the binding of the same key that this one hides, its number + 1; 0: none */
};
/* The place of a value whose size differs between trips or branches: memory that grows (mcc_rt_grow).
 * trip: it is the row of that number, after those before it; {0}: it is the whole. */
struct prog_grow {
    lreg slot, trip;
};
struct prog {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    struct lfunc *f;
    lblock block; /* where statements go now */
    struct kernel *const *levels; /* kernels by CPU level that the program serves, then by number */
    const char *const *suffixes; /* of kernel names, by level */
    uint32_t n_levels;
    lreg level, *is_level; /* the model's; is it this one? {0}: not asked for yet */
    const struct run_place *place; /* of all kernels */
    lreg *in, *out, arena_base, weights_base;
    lreg *pointer; /* by value: its bytes, where they are not at a fixed place ({0}: see storage) */
    lreg *handle; /* by value: address of the runtime's value, of what is not a plain tensor */
    struct prog_grow *grow; /* by value; slot {0}: it does not grow */
    uint32_t loops; /* around the block */
    int64_t local_bytes; /* of scratch that prog_local gave away */
    lreg shared; /* kernel.shared_bytes of all; {0}: not yet */
    lreg empty; /* of program_body: are all outputs empty? {0}: in no run */
    bool at_start; /* block is the first one for a while, although another is open */
    VEC(struct prog_sym) syms; /* bindings; those of a block go when it closes */
    VEC(uint32_t) binding; /* by key: the number in syms of the innermost binding, + 1; 0: not bound */
    struct prog_elements *elements; /* symbols by the value whose elements define them; NULL: not asked for yet */
    struct prog_values *values; /* what loop_kernel.c knows of the values; NULL: nothing yet */
    bool failed;
};

lreg prog_op(struct prog *, enum lop, struct ltype, const lreg *in, uint32_t n);
lreg prog_op2(struct prog *, enum lop, lreg a, lreg b); /* of a's type, comparisons: bool */
lreg prog_const(struct prog *, int64_t);
lreg prog_symbol(struct prog *, sym_id);
/* Each expression is computed once in a block and those inside of it. */
lreg prog_index(struct prog *, expr_id);
lreg prog_cond(struct prog *, expr_id); /* is it not 0? */
lreg prog_offset(struct prog *, lreg base, expr_id bytes, enum elem);
lreg prog_buffer(struct prog *, value_id, enum elem); /* the value's bytes as a buffer of elem */
lreg prog_load(struct prog *, value_id, int64_t element); /* integer or bool element as index */
void prog_bind(struct prog *, sym_id, lreg);
bool prog_is_bound(const struct prog *, sym_id);
/* Forgets all bindings but the first n. */
void prog_unbind(struct prog *, uint32_t n);
void prog_check(struct prog *, lreg cond, int32_t code, uint32_t node, const char *text);
lreg prog_call(struct prog *, const char *name, const lreg *in, uint32_t n, bool may_fail);
/* The same with the arguments one after another. */
#define PROG_CALL(p, name, may_fail, ...) prog_call(p, name, ARRAY(lreg, __VA_ARGS__), may_fail)
/* A buffer of u8 of dynamic size; inside loops the same memory serves every trip, as far as it
 * reaches. */
lreg prog_memory(struct prog *, lreg bytes);
/* The buffer, whose first words are 0 when the program starts. used: only in runs whose outputs are not empty. */
lreg prog_zeroed(struct prog *, lreg buffer, int64_t words, bool used);
/* Is a symbol so small that all outputs are empty? {0}: no run has that. */
lreg prog_empty(struct prog *);
/* The statement that runs one of its blocks, [0] where outputs are empty. */
struct lstmt *prog_if_empty(struct prog *, lblock in);
lreg prog_slot(struct prog *); /* for mcc_rt_grow; empty when the program starts */
lreg prog_grow(struct prog *, lreg slot, lreg bytes, lreg keep); /* the slot's memory as a buffer of u8 */
void prog_launch(struct prog *, uint32_t number); /* of a kernel (launch.c) */
/* A launch of the kernels of[i] at level i (NULL: it does not run there), their arguments and last the count; name: of
 * all, for messages. */
void prog_launch_one(struct prog *, struct kernel *const *of, const char *name, const lreg *args, uint32_t n,
                     uint32_t node);
/* Gives v its memory, unless it has some. */
void prog_place(struct prog *, value_id);
/* Binds the symbols that elements of v define, after v was stored. */
void prog_bind_elements(struct prog *, value_id);
void prog_region(struct prog *, region_id);
bool prog_plan(struct module *);
/* Checks what the symbols' bounds hold beyond those that the artifact gives: the reasons are the model's. */
void prog_check_sizes(struct prog *, lreg empty);

void prog_control(struct prog *, uint32_t number); /* of a kernel */
/* Makes kernels of that number, the loop's, of a loop statement that is complete but stands nowhere yet, and launches
 * the level's; the result is the number of trips made. {0}: the loop has to stay a loop of launches; nothing was
 * placed. (program/loop_kernel.c) */
lreg prog_loop_kernel(struct prog *, uint32_t number, const struct lstmt *loop);
void prog_opaque(struct prog *, struct kernel *);
/* Operand and result of a function of the runtime that computes with floats (call_field.c): as they are, but for mcc
 * prove a copy of numbers, and residues after the call. */
lreg prog_numbers(struct prog *, value_id);
void prog_residues(struct prog *, value_id);

/* ---- program/values.c ---- */
bool prog_is_handle(const struct type *); /* no plain tensor: carried by its address */
lreg prog_handle(struct prog *, value_id); /* a plain tensor: a copy of it as a value of the runtime */
lreg prog_local(struct prog *, int64_t words); /* i64 buffer of the program */
lreg prog_dims(struct prog *, const struct type *); /* the dims in a prog_local */
/* The dim is this: binds its symbol, or checks that it is equal. */
void prog_bind_dim(struct prog *, expr_id, lreg, uint32_t node);
void prog_store_scalar(struct prog *, value_id, lreg);
void prog_output_handles(struct prog *);
typedef void prog_call_fn(struct prog *, const struct node *);
prog_call_fn call_seq_make, call_seq_insert, call_seq_erase, call_seq_at, call_seq_length, call_seq_concat,
    call_seq_split, call_opt_make, call_opt_get, call_opt_has;
