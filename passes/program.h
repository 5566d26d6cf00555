/* The program around the kernels: shared by program.c (frame, launches, symbols), program_control.c (if, loop) and
 * program_call.c (runtime functions). */
#ifndef MCC_PASSES_PROGRAM_H
#define MCC_PASSES_PROGRAM_H

#include "passes/access.h"
#include "passes/kernel.h"

struct prog_sym { sym_id sym; lval v; };
struct prog {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct arena *arena;
    struct lfunc *f;
    lblock block;                    /* where statements go now */
    const char *suffix;              /* of kernel names of this variant */
    lval *in, *out, arena_base, weights_base;
    lval *pointer;                   /* by value: its bytes, where they are not at a fixed place ({0}: see storage) */
    VEC(struct prog_sym) syms;       /* bound so far; truncated when a block closes */
    bool failed;
};

lval prog_op(struct prog *, enum lop, struct ltype, const lval *in, uint32_t n);
lval prog_const(struct prog *, int64_t);
lval prog_index(struct prog *, expr_id);
lval prog_buffer(struct prog *, value_id, enum elem);       /* the value's bytes as a buffer of elem */
lval prog_load(struct prog *, value_id, int64_t element);   /* integer or bool element as index */
void prog_bind(struct prog *, sym_id, lval);
void prog_check(struct prog *, lval cond, int32_t code, uint32_t node, const char *text);
lval prog_call(struct prog *, const char *name, const lval *in, uint32_t n, bool may_fail);
lval prog_memory(struct prog *, lval bytes);                /* mcc_rt_segment: a buffer of u8 */
/* Binds the symbols that elements of v define, after v was stored. */
void prog_bind_elements(struct prog *, value_id);
void prog_region(struct prog *, region_id);
bool prog_refuse(struct prog *, node_id, const char *why);

void prog_control(struct prog *, struct kernel *);
void prog_opaque(struct prog *, struct kernel *);

#endif
