/* Arithmetic on arrays of concrete elements: what scalar_eval, the interpreter and constant folding share. */
#pragma once

#include "ir/ops/ops.h"

/* out[k] = op(in[0][k], in[1][k], ...) for k < n. elem: type of the operands (select: of then and else); predicates
 * write bool. EVAL_VALUE: an integer divisor is zero; EVAL_UNSUPPORTED: op is not defined for elem. */
enum eval_status map_eval(enum op op, enum elem elem, size_t n, const void *const *in, void *out);

/* n elements as doubles (exact for floats) or as int64 (wrapped for u64; floats: truncated and saturated), and back:
 * storing int64 wraps; storing doubles rounds to even into floats, truncates and saturates into integers. */
void elems_to_f64(enum elem, const void *src, double *dst, size_t n);
void elems_to_i64(enum elem, const void *src, int64_t *dst, size_t n);
void elems_from_f64(enum elem, const double *src, void *dst, size_t n);
void elems_from_i64(enum elem, const int64_t *src, void *dst, size_t n);

/* The operator that combines two elements of a monoid ("sum" -> OP_ADD); OP_NONE: no such monoid. */
enum op monoid_op(const char *monoid);
/* Writes its neutral element ("min": +inf or the type's maximum). */
void monoid_identity(const char *monoid, enum elem, void *out);
