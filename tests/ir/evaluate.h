/* Graphs of one operator from text, for the tests of inference, builder, interpreter and folding.
 *
 * A tensor is "f32 2x3: 1 2 3 4 5 6" (rank 0: "f32: 1"); attributes are "axis=1 axes=0,2 elem=f32 count=@", @ being a
 * fresh SYM_VALUE symbol. */
#ifndef MCC_TESTS_IR_EVALUATE_H
#define MCC_TESTS_IR_EVALUATE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/build/build.h"
#include "ir/eval/interpreter.h"

struct bench {
    struct context *ctx;
    struct graph *g;
    struct builder b;
    struct tensor inputs[16];
};
void bench_open(struct bench *);
void bench_close(struct bench *);

/* The tensor that a text describes; memory is the context's. */
struct tensor tensor_parse(struct context *, const char *text);
/* The same as a graph input, or as a constant. */
value_id bench_input(struct bench *, const char *text);
/* A graph input whose type has the given dims (expressions as text, as "n 2*n 3"), fed with the tensor. */
value_id bench_symbolic(struct bench *, const char *dims, const char *text);
value_id bench_const(struct bench *, const char *text);
uint32_t attrs_parse(struct bench *, enum op, const char *text, struct attr out[OP_ATTR_MAX]);
/* One node; n_out results. */
bool bench_op(struct bench *, enum op, const char *attrs, const value_id *in, uint32_t n_in, value_id *out,
              uint32_t n_out);
/* Interprets the graph and keeps the value. */
enum eval_status bench_eval(struct bench *, value_id, struct tensor *out, const char **text);
/* Fails the test unless the tensor is what the text says (floats: relative 2e-6 of f32, or the same NaN). */
void tensor_expect(struct context *, const char *what, const struct tensor *, const char *text);
void bench_expect(struct bench *, value_id, const char *text);
const char *last_error(const struct context *);

value_id b_shape_of(struct builder *, value_id); /* i64 [rank] */

#endif
