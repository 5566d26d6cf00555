/* Element types and operators as tables, and the arithmetic of single elements, for both IRs: enum elem (elem.def),
 * enum op (ops.def), their common facts, and scalar_eval, which defines what an operator computes (ir/ops/scalar.h: on
 * arrays).
 */
#pragma once

#include "ir/base/base.h"

/* ---- element types ---------------------------------------------------------------------------------------- */

enum elem {
    ELEM_NONE,
#define ELEM(id, ...) ELEM_##id,
#include "ir/ops/elem.def"
    ELEM_COUNT
};
const char *elem_name(enum elem);
enum elem elem_by_name(const char *);        /* ELEM_NONE: unknown */
/* Floats of less than 32 bits that have a sign. */
enum float_special {
    SPECIAL_IEEE, /* infinities and NaNs in the last exponent */
    SPECIAL_FN, /* no infinity; all bits 1: NaN */
    SPECIAL_FNUZ, /* no infinity; the code of negative zero is NaN */
    SPECIAL_NONE /* finite numbers only */
};
struct float_format {
    uint32_t bits, mantissa;
    int32_t bias;
    enum float_special special;
    uint32_t max, overflow, nan; /* codes of the largest number, of an overflow, of a NaN */
};
extern const struct float_format float_formats[]; /* by enum elem; bits 0: no such float */
enum elem elem_by_onnx(int32_t data_type);   /* TensorProto.DataType */
int32_t elem_onnx(enum elem);
uint32_t elem_size(enum elem);               /* bytes per element inside the graph */
uint32_t elem_bits(enum elem);               /* bits per element in a packed tensor; 0: strings */
char elem_class(enum elem);                  /* 'B' 'I' 'U' 'F' 'C' 'S' */

/* ---- operators ---------------------------------------------------------------------------------------------- */

enum op {
    OP_NONE,
#define OP(id, ...) OP_##id,
#include "ir/ops/ops.def"
    OP_COUNT
};
enum op_shape {
    SHAPE_CONST,
    SHAPE_MAP,
    SHAPE_POINT,
    SHAPE_INDEX,
    SHAPE_VIEW,
    SHAPE_REDUCE,
    SHAPE_SCATTER,
    SHAPE_SCAN,
    SHAPE_OPAQUE,
    SHAPE_CONTROL
};
enum op_cost { COST_CHEAP, COST_SOME, COST_DEAR };               /* of one point */
enum op_memory { MEMORY_GIVEN, MEMORY_SIZED, MEMORY_OWN };       /* of a call's results */
const char *op_name(enum op);
enum op_shape op_shape(enum op);
enum op_cost op_cost(enum op);
/* Does each point of the result depend only on single points of the operands (MAP, POINT, INDEX)? */
bool op_is_pointwise(enum op);

/* The columns of ops.def that are not functions. max_in, n_out -1: any number; attrs: the text of the row. Each caller
 * of the functions has a table of them. */
struct op_info {
    const char *name;
    int32_t min_in, max_in, n_out;
    enum op_shape shape;
    enum op_cost cost;
    enum op_memory memory;
    const char *attrs;
};
const struct op_info *op_info(enum op);
enum { OP_ATTR_MAX = 8 };
struct op_attr {
    char name[16];
    char kind;
    bool optional;
}; /* kind: an enum attr_kind */
/* Writes the attributes that op declares, in print order, into out; returns how many. */
uint32_t op_attrs(enum op, struct op_attr out[OP_ATTR_MAX]);

/* ---- arithmetic of elements ------------------------------------------------------------------------------------ */

enum eval_status { EVAL_OK = 0, EVAL_SHAPE = -2, EVAL_NOMEM = -4, EVAL_VALUE = -9, EVAL_UNSUPPORTED = -100 };
/* Computes a scalar operator on elements, for constant folding and the interpreters. EVAL_VALUE: an integer is divided
 * by 0. */
enum eval_status scalar_eval(enum op, enum elem, const void *const *in, void *out);
/* Rounding of conversions. UP, DOWN, NEAREST: to f8e8m0. NORMAL, to bf16: as EVEN, subnormal results may become 0. */
enum round_mode { ROUND_EVEN, ROUND_UP, ROUND_DOWN, ROUND_NEAREST, ROUND_NORMAL };
/* NULL gives ROUND_EVEN. False: no such name; *out is unchanged. */
bool round_mode_by_name(const char *name, enum round_mode *out);
/* Conversion of n elements (rules of CONVERT). */
void elems_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n, bool saturate,
                   const char *round);
double elem_to_f64(enum elem, const void *);
void elem_from_f64(enum elem, double, void *);
int64_t elem_to_i64(enum elem, const void *);
void elem_from_i64(enum elem, int64_t, void *);
