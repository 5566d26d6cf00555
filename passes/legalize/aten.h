/* How rules for PyTorch's operators read their nodes.
 *
 * Operand i is argument i of the operator's schema where that is a tensor or a number of the run; the attribute of the
 * argument's name holds it where it is known (frontend/pt2/arguments.c). The file states the element type of every
 * result: what types promote to is read there, not computed.
 */
#pragma once

#include "passes/legalize/control.h"

/* The element type of result k as the file states it, of the parts if it is complex; ELEM_NONE: it does not. */
enum elem aten_elem(const struct rule *, uint32_t k);
/* The type to compute result 0 in from operands of type `own`: the stated one; `own` where the file says nothing (views
 * that the importer makes again), or what arithmetic does not give (integers of floats) and no dtype asks for. */
enum elem aten_elem_for(const struct rule *, enum elem own);
enum elem aten_elem_or(const struct rule *, value_id); /* of an operand */
bool aten_has(const struct rule *, uint32_t i, const char *name); /* is the argument given, and not None? */
/* A tensor, or a number as rank 0, of that element type (ELEM_NONE: of its own; numbers are i64 or f64). */
value_id aten_operand(struct rule *, uint32_t i, const char *name, enum elem);
/* An integer that may be the run's; {0} after a diagnostic. */
expr_id aten_int(struct rule *, uint32_t i, const char *name, int64_t absent);
/* One that must be known. */
bool aten_int_known(struct rule *, uint32_t i, const char *name, int64_t absent, int64_t *out);
double aten_float(const struct rule *, const char *name, double absent);
bool aten_flag(const struct rule *, const char *name);
/* The integers of a list, at most RANK_MAX; *n is 0 where it is absent or None. */
bool aten_ints(struct rule *, uint32_t i, const char *name, expr_id out[RANK_MAX], uint32_t *n);
bool aten_ints_known(struct rule *, uint32_t i, const char *name, int64_t out[RANK_MAX], uint32_t *n);
/* n known ones; a list of one stands for n equal ones, an empty or absent one for `absent`. */
bool aten_window(struct rule *, uint32_t i, const char *name, uint32_t n, int64_t absent, int64_t out[RANK_MAX]);
/* Operands of a list of tensors: the first of them and how many. */
uint32_t aten_list(const struct rule *, uint32_t i, uint32_t *n);
bool aten_axis(struct rule *, uint32_t i, const char *name, int64_t absent, int32_t rank, int32_t *out);
/* The type in which PyTorch computes with both arguments; either may be a number. */
enum elem aten_promoted(struct rule *, uint32_t i, const char *name, uint32_t k, const char *other);
/* A result; rules that compute in a wide float round to the one that the file states. If the file states another type,
 * that is an error (declared_result). */
void aten_out(struct rule *, uint32_t k, value_id);
bool aten_result(struct rule *, value_id); /* of result 0 */
bool aten_result_stated(struct rule *, value_id); /* the same, of operators that give any type that is asked for */
/* One that serves the gradient: an empty tensor. Refuses where something reads it. */
void aten_empty_out(struct rule *, uint32_t k);
/* Runs another operator's rule in this node's place: on these operands and attributes, with the meaning of that
 * version. */
bool aten_as(struct rule *, rule_fn *, int32_t version, int param, const value_id *in, uint32_t n_in,
             const struct attr *attrs, uint32_t n_attrs);
/* A bound of a slice: from the end if it is negative, kept within the dim. */
expr_id aten_bound(struct exprs *, expr_id, expr_id dim);
value_id aten_sizes(struct rule *, const expr_id *, uint32_t n); /* as a tensor of i64 */
