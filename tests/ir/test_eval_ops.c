/* One small exact case at least for every operator of ops.def, each in four ways: interpreted from graph inputs, and
 * with constant operands folded, read in pieces by const_read, and through the value lattice.
 *
 * An expected text that begins with '!' is a failing run (!value, !shape), with '~' an inference error that
 * contains the rest. Operators over sequences, optionals and regions have their cases in test_eval_control.c.
 */
#include "tests/ir/evaluate.h"

#include <stdio.h>
#include <string.h>

static const struct row {
    enum op op;
    const char *attrs;
    const char *in[6];
    const char *out[4];
} rows[] = {
    {OP_CONSTANT, "", {0}, {"i64 2: 4 -5"}},      /* made specially */
    {OP_NEG, "", {"f32 3: 1 -2 0"}, {"f32 3: -1 2 -0"}},
    {OP_NEG, "", {"i8 2: -128 5"}, {"i8 2: -128 -5"}},
    {OP_ABS, "", {"f32 3: 1 -2 nan"}, {"f32 3: 1 2 nan"}},
    {OP_ABS, "", {"i64 2: -7 7"}, {"i64 2: 7 7"}},
    {OP_SIGN, "", {"f32 4: -3 0 9 nan"}, {"f32 4: -1 0 1 nan"}},
    {OP_SIGN, "", {"i32 3: -3 0 9"}, {"i32 3: -1 0 1"}},
    {OP_FLOOR, "", {"f32 3: -1.5 1.5 2"}, {"f32 3: -2 1 2"}},
    {OP_CEIL, "", {"f32 3: -1.5 1.5 2"}, {"f32 3: -1 2 2"}},
    {OP_ROUND, "", {"f32 4: 0.5 1.5 2.5 -2.5"}, {"f32 4: 0 2 2 -2"}},
    {OP_TRUNC, "", {"f32 2: -1.7 1.7"}, {"f32 2: -1 1"}},
    {OP_SQRT, "", {"f32 3: 4 2 -1"}, {"f32 3: 2 1.41421356 nan"}},
    {OP_EXP, "", {"f32 2: 0 1"}, {"f32 2: 1 2.71828183"}},
    {OP_LOG, "", {"f32 3: 1 2.71828183 0"}, {"f32 3: 0 1 -inf"}},
    {OP_LOG1P, "", {"f32 1: 1e-4"}, {"f32 1: 9.9995e-5"}},
    {OP_EXPM1, "", {"f32 1: 1e-4"}, {"f32 1: 1.000050e-4"}},
    {OP_SIN, "", {"f32 1: 0.5"}, {"f32 1: 0.479425539"}},
    {OP_COS, "", {"f32 1: 0.5"}, {"f32 1: 0.877582562"}},
    {OP_TAN, "", {"f32 1: 0.5"}, {"f32 1: 0.546302490"}},
    {OP_ASIN, "", {"f32 1: 0.5"}, {"f32 1: 0.523598776"}},
    {OP_ACOS, "", {"f32 1: 0.5"}, {"f32 1: 1.04719755"}},
    {OP_ATAN, "", {"f32 1: 0.5"}, {"f32 1: 0.463647609"}},
    {OP_SINH, "", {"f32 1: 0.5"}, {"f32 1: 0.521095305"}},
    {OP_COSH, "", {"f32 1: 0.5"}, {"f32 1: 1.12762597"}},
    {OP_TANH, "", {"f32 1: 0.5"}, {"f32 1: 0.462117157"}},
    {OP_ASINH, "", {"f32 1: 0.5"}, {"f32 1: 0.481211825"}},
    {OP_ACOSH, "", {"f32 1: 2"}, {"f32 1: 1.31695790"}},
    {OP_ATANH, "", {"f32 1: 0.5"}, {"f32 1: 0.549306144"}},
    {OP_ERF, "", {"f32 1: 0.5"}, {"f32 1: 0.520499878"}},
    {OP_SIGMOID, "", {"f32 3: 0 2 -200"}, {"f32 3: 0.5 0.880797078 0"}},
    {OP_NOT, "", {"bool 2: 1 0"}, {"bool 2: 0 1"}},
    {OP_NOT, "", {"u8 2: 1 254"}, {"u8 2: 254 1"}},
    {OP_ISNAN, "", {"f32 3: nan inf 1"}, {"bool 3: 1 0 0"}},
    {OP_ISINF, "", {"f32 4: nan inf -inf 1"}, {"bool 4: 0 1 1 0"}},
    {OP_ADD, "", {"f32 2: 1 2", "f32 2: 3 inf"}, {"f32 2: 4 inf"}},
    {OP_ADD, "", {"i32 2: 2147483647 1", "i32 2: 1 1"}, {"i32 2: -2147483648 2"}},
    {OP_ADD, "", {"f16 1: 2048", "f16 1: 1"}, {"f16 1: 2048"}},
    {OP_ADD, "", {"f32 2: 1 2", "f32 3: 1 2 3"}, {"~f32[2] and f32[3]"}},
    {OP_ADD, "", {"f32 2: 1 2", "i32 2: 1 2"}, {"~different element types"}},
    {OP_SUB, "", {"u8 2: 1 5", "u8 2: 2 5"}, {"u8 2: 255 0"}},
    {OP_MUL, "", {"i64 2: 3 -4", "i64 2: 5 6"}, {"i64 2: 15 -24"}},
    {OP_MUL, "", {"i4 2: 7 2", "i4 2: 2 3"}, {"i4 2: -2 6"}},
    {OP_DIV, "", {"f32 3: 1 -1 0", "f32 3: 0 0 0"}, {"f32 3: inf -inf nan"}},
    {OP_DIV, "", {"i32 3: 7 -7 7", "i32 3: 2 2 -2"}, {"i32 3: 3 -3 -3"}},
    {OP_DIV, "", {"i64 1: -9223372036854775807", "i64 1: -1"}, {"i64 1: 9223372036854775807"}},
    {OP_DIV, "", {"i32 1: 7", "i32 1: 0"}, {"!value"}},
    {OP_DIV, "", {"u64 1: 18446744073709551615", "u64 1: 2"}, {"u64 1: 9223372036854775807"}},
    {OP_MOD, "", {"i32 4: 7 -7 7 -7", "i32 4: 3 3 -3 -3"}, {"i32 4: 1 2 -2 -1"}},
    {OP_MOD, "", {"f32 3: 5.5 -5.5 5.5", "f32 3: 2 2 -2"}, {"f32 3: 1.5 0.5 -0.5"}},
    {OP_MOD, "", {"i32 1: 7", "i32 1: 0"}, {"!value"}},
    {OP_REM, "", {"i32 4: 7 -7 7 -7", "i32 4: 3 3 -3 -3"}, {"i32 4: 1 -1 1 -1"}},
    {OP_REM, "", {"f32 2: 5.5 -5.5", "f32 2: 2 2"}, {"f32 2: 1.5 -1.5"}},
    {OP_POW, "", {"f32 2: 2 9", "f32 2: 10 0.5"}, {"f32 2: 1024 3"}},
    {OP_POW, "", {"i32 3: 3 2 -1", "i32 3: 4 -1 -3"}, {"i32 3: 81 0 -1"}},
    {OP_ATAN2, "", {"f32 1: 1", "f32 1: -1"}, {"f32 1: 2.35619449"}},
    {OP_MIN, "", {"f32 3: 1 nan 3", "f32 3: 2 1 nan"}, {"f32 3: 1 nan nan"}},
    {OP_MAX, "", {"f32 3: 1 nan 3", "f32 3: 2 1 nan"}, {"f32 3: 2 nan nan"}},
    {OP_MAX, "", {"u64 1: 18446744073709551615", "u64 1: 1"}, {"u64 1: 18446744073709551615"}},
    {OP_AND, "", {"bool 4: 0 0 1 1", "bool 4: 0 1 0 1"}, {"bool 4: 0 0 0 1"}},
    {OP_AND, "", {"u8 1: 12", "u8 1: 10"}, {"u8 1: 8"}},
    {OP_OR, "", {"bool 4: 0 0 1 1", "bool 4: 0 1 0 1"}, {"bool 4: 0 1 1 1"}},
    {OP_XOR, "", {"bool 4: 0 0 1 1", "bool 4: 0 1 0 1"}, {"bool 4: 0 1 1 0"}},
    {OP_SHL, "", {"u8 3: 3 3 3", "u8 3: 1 7 8"}, {"u8 3: 6 128 0"}},
    {OP_SHR, "", {"u8 3: 128 128 128", "u8 3: 1 7 8"}, {"u8 3: 64 1 0"}},
    {OP_SHR, "", {"i8 2: -128 -1", "i8 2: 2 9"}, {"i8 2: -32 -1"}},
    {OP_EQ, "", {"f32 3: 1 nan 0", "f32 3: 1 nan -0"}, {"bool 3: 1 0 1"}},
    {OP_NE, "", {"f32 2: 1 nan", "f32 2: 1 nan"}, {"bool 2: 0 1"}},
    {OP_LT, "", {"i32 3: 1 2 3", "i32 3: 2 2 2"}, {"bool 3: 1 0 0"}},
    {OP_LE, "", {"f32 3: 1 2 nan", "f32 3: 2 2 2"}, {"bool 3: 1 1 0"}},
    {OP_SELECT, "", {"bool 2: 1 0", "i64 2: 1 2", "i64 2: 3 4"}, {"i64 2: 1 4"}},
    {OP_FMA, "", {"f32 1: 3", "f32 1: 4", "f32 1: 5"}, {"f32 1: 17"}},
    {OP_CONVERT, "elem=i8", {"f32 5: 1.9 -1.9 300 -300 nan"}, {"i8 5: 1 -1 127 -128 0"}},
    {OP_CONVERT, "elem=u8", {"i32 3: 300 -1 7"}, {"u8 3: 44 255 7"}},
    {OP_CONVERT, "elem=bool", {"f32 3: 0 0.5 nan"}, {"bool 3: 0 1 1"}},
    {OP_CONVERT, "elem=f8e4m3fn", {"f32 2: 1000 17"}, {"f8e4m3fn 2: 448 16"}},
    {OP_CONVERT, "elem=f8e4m3fn saturate=0", {"f32 2: 1000 17"}, {"f8e4m3fn 2: nan 16"}},
    {OP_CONVERT, "elem=f32", {"i64 1: 16777217"}, {"f32 1: 16777216"}},
    {OP_BITCAST, "elem=i32", {"f32 1: 1"}, {"i32 1: 0x3f800000"}},
    {OP_IOTA, "elem=i64 dims=2,3 axis=1", {0}, {"i64 2x3: 0 1 2 0 1 2"}},
    {OP_FROM_EXPRS, "elem=i32 dims=2 exprs=7,-1", {0}, {"i32 2: 7 -1"}},
    {OP_GATHER, "axis=1", {"f32 2x3: 1 2 3 4 5 6", "i64 2: 2 -3"}, {"f32 2x2: 3 1 6 4"}},
    {OP_GATHER, "axis=0", {"i64 3: 5 6 7", "i64: 1"}, {"i64: 6"}},
    {OP_GATHER, "axis=0", {"i64 3: 5 6 7", "i64: 3"}, {"!value"}},
    {OP_GATHER, "axis=0 clamp=1", {"f32 3: 5 6 7", "i64 2: 9 -9"}, {"f32 2: 7 5"}},
    {OP_GATHER, "axis=2", {"i64 3: 5 6 7", "i64: 3"}, {"~axis 2 is outside of rank 1"}},
    {OP_GATHER_ELEMENTS, "axis=1", {"f32 2x2: 1 2 3 4", "i64 2x2: 0 0 1 0"}, {"f32 2x2: 1 1 4 3"}},
    {OP_GATHER_ND, "batch=0", {"f32 2x2: 1 2 3 4", "i64 2x2: 0 0 1 1"}, {"f32 2: 1 4"}},
    {OP_GATHER_ND, "batch=1", {"f32 2x2x2: 1 2 3 4 5 6 7 8", "i64 2x1: 1 0"}, {"f32 2x2: 3 4 5 6"}},
    /* x <= 2 goes from node 0 to node 2, else to node 1; kind 5: x >= 2 or a NaN; a node 3 that there is not */
    {OP_WALK,
     "trees=1 depth=3 kinds=0",
     {"f32 3x1: 1 3 nan",
      "i64 3x2: 0x100000000 0x4000000000000000 0x100000000 0x7ff8000000000000 0x200000000 0x7ff8000000000000"},
     {"i32 3x1: 2 1 1"}},
    {OP_WALK,
     "trees=1 depth=3 kinds=1",
     {"f32 3x1: 1 3 nan",
      "i64 3x2: 0x150000000 0x4000000000000000 0x100000000 0x7ff8000000000000 0x200000000 0x7ff8000000000000"},
     {"i32 3x1: 1 2 2"}},
    {OP_WALK, "trees=1 depth=1 kinds=0", {"f64 1x1: 1", "i64 1x2: 0x100000000 0"}, {"!value"}},
    {OP_WALK, "trees=2 depth=1 kinds=0", {"f64 1x1: 1", "i64 1x2: 0 0"}, {"~2 trees of i64[1, 2]"}},
    {OP_BROADCAST, "dims=2,2,3", {"f32 2x1: 1 2"}, {"f32 2x2x3: 1 1 1 2 2 2 1 1 1 2 2 2"}},
    {OP_BROADCAST, "dims=2,4", {"f32 3: 1 2 3"}, {"~f32[3] does not broadcast to f32[2, 4]"}},
    {OP_RESHAPE, "dims=3,2", {"i32 2x3: 1 2 3 4 5 6"}, {"i32 3x2: 1 2 3 4 5 6"}},
    {OP_RESHAPE, "dims=4", {"i32 2x3: 1 2 3 4 5 6"}, {"~i32[2, 3] has 6 elements, i32[4] has 4"}},
    {OP_TRANSPOSE, "perm=1,0", {"i64 2x3: 1 2 3 4 5 6"}, {"i64 3x2: 1 4 2 5 3 6"}},
    {OP_TRANSPOSE, "perm=2,0,1", {"f32 1x2x3: 1 2 3 4 5 6"}, {"f32 3x1x2: 1 4 2 5 3 6"}},
    {OP_SLICE, "starts=1,2 sizes=1,2 steps=1,-2", {"i64 2x3: 1 2 3 4 5 6"}, {"i64 1x2: 6 4"}},
    {OP_SLICE, "starts=2 sizes=2 steps=1", {"i64 3: 1 2 3"}, {"~outside"}},
    {OP_WINDOWS, "size=2", {"i32 2x3: 1 2 3 4 5 6"}, {"i32 2x2x2: 1 2 2 3 4 5 5 6"}},
    {OP_WINDOWS, "size=3", {"f32 3: 1 2 3"}, {"f32 1x3: 1 2 3"}},
    {OP_WINDOWS, "size=4", {"f32 3: 1 2 3"}, {"~windows of 4 in f32[3]"}},
    {OP_PAD, "lo=1 hi=2 mode=constant", {"i64 2: 5 6"}, {"i64 5: 0 5 6 0 0"}},
    {OP_PAD, "lo=1,0 hi=0,1 mode=constant", {"f32 1x2: 5 6", "f32: 9"}, {"f32 2x3: 9 9 9 5 6 9"}},
    {OP_PAD, "lo=3 hi=3 mode=reflect", {"f32 3: 1 2 3"}, {"f32 9: 2 3 2 1 2 3 2 1 2"}},
    {OP_PAD, "lo=2 hi=1 mode=edge", {"f32 2: 1 2"}, {"f32 5: 1 1 1 2 2"}},
    {OP_PAD, "lo=2 hi=3 mode=wrap", {"f32 3: 1 2 3"}, {"f32 8: 2 3 1 2 3 1 2 3"}},
    {OP_CONCAT, "axis=1", {"i64 2x1: 1 2", "i64 2x2: 3 4 5 6"}, {"i64 2x3: 1 3 4 2 5 6"}},
    {OP_CONCAT, "axis=0", {"f32 1x2: 1 2", "f32 1x3: 1 2 3"}, {"~does not fit"}},
    {OP_IDENTITY, "", {"i64 2: 1 2"}, {"i64 2: 1 2"}},
    {OP_REDUCE, "axes=1 monoid=sum", {"f32 2x3: 1 2 3 4 5 6"}, {"f32 2: 6 15"}},
    {OP_REDUCE, "axes=0 monoid=prod", {"i64 2x3: 1 2 3 4 5 6"}, {"i64 3: 4 10 18"}},
    {OP_REDUCE, "axes=0,1 monoid=max", {"f32 2x2: 1 nan 3 4"}, {"f32: nan"}},
    {OP_REDUCE, "axes=0 monoid=min", {"f32 0x2:"}, {"f32 2: inf inf"}},
    {OP_REDUCE, "axes=0 monoid=max", {"i8 0:"}, {"i8: -128"}},
    {OP_REDUCE, "axes=0 monoid=or", {"bool 3: 0 1 0"}, {"bool: 1"}},
    {OP_REDUCE, "axes=0 monoid=and", {"bool 3: 0 1 1"}, {"bool: 0"}},
    {OP_REDUCE, "axes=0 monoid=xor", {"u8 3: 1 2 7"}, {"u8: 4"}},
    {OP_REDUCE, "axes=0 monoid=avg", {"f32 1: 1"}, {"~no monoid is called \"avg\""}},
    {OP_ARGREDUCE, "axis=1 max=1 last=0", {"f32 2x3: 1 3 3 nan 5 nan"}, {"i64 2: 1 0"}},
    {OP_ARGREDUCE, "axis=0 max=0 last=1", {"i32 4: 2 1 1 3"}, {"i64: 2"}},
    {OP_SEGMENTS, "axis=0", {"f32 4x2: 1 2 3 4 5 6 7 8", "i32 4: 0 2 2 4"}, {"f32 3x2: 4 6 0 0 12 14"}},
    {OP_SEGMENTS, "axis=1", {"f32 2x3: 1 2 3 4 5 6", "i32 3: 0 1 3"}, {"f32 2x2: 1 5 4 11"}},
    {OP_SEGMENTS, "axis=0", {"f32 2: 1 2", "i32 3: 0 3 2"}, {"!value"}},
    {OP_SEGMENTS, "axis=0", {"f32 2: 1 2", "i32 1x1: 0"}, {"~segments of f32[2] from i32[1, 1]"}},
    {OP_WINDOW, "monoid=max kernel=2 strides=2 lo=1 hi=1 dilations=1", {"f32 1x1x4: 1 -2 3 -4"}, {"f32 1x1x3: 1 3 -4"}},
    {OP_WINDOW,
     "monoid=sum kernel=2,2 strides=1,1 lo=0,0 hi=0,0 dilations=1,2",
     {"f32 2x3: 1 2 3 4 5 6"},
     {"f32 1x1: 14"}},
    {OP_ARGWINDOW, "kernel=2 strides=2 lo=0 hi=0 dilations=1", {"f32 1x1x4: 1 -2 3 9"}, {"i64 1x1x2: 0 3"}},
    {OP_DOT,
     "batch_a= batch_b= contract_a=1 contract_b=0",
     {"f32 2x2: 1 2 3 4", "f32 2x2: 5 6 7 8"},
     {"f32 2x2: 19 22 43 50"}},
    {OP_DOT,
     "batch_a=0 batch_b=1 contract_a=1 contract_b=0",
     {"i64 2x2: 1 2 3 4", "i64 2x2: 5 6 7 8"},
     {"i64 2: 19 50"}},
    {OP_DOT, "batch_a= batch_b= contract_a=0 contract_b=0 acc=i32", {"u8 2: 255 255", "i8 2: -128 127"}, {"i32: -255"}},
    /* sums of blocks: 3 and 55 */
    {OP_DOT,
     "batch_a= batch_b= contract_a=0,1 contract_b=0,1",
     {"i8 2x2: 1 2 -1 1", "u8 2x2: 1 1 200 255", "f32 2x1: 2 1", "f32 2x1: 10 2"},
     {"f32: 170"}},
    {OP_DOT,
     "batch_a= batch_b= contract_a=1,2 contract_b=0,1",
     {"i8 1x2x2: 1 2 -1 1", "u8 2x2x1: 1 1 200 255", "f32 1x2x1: 2 1", "f32 2x1x1: 10 2", "f32 1x2x1: -4 1"},
     {"f32 1x1: 132"}},
    {OP_DOT,
     "batch_a= batch_b= contract_a=0,1 contract_b=0,1",
     {"i8 2x2: 1 2 -1 1", "u8 2x2: 1 1 200 255", "f32 2x1: 2 1", "f32 2x1: 10 2", "f32 2x1: -4 1", "f32 2x1: 1 5"},
     {"f32: 140"}},
    {OP_DOT,
     "batch_a= batch_b= contract_a=0,1 contract_b=0,1",
     {"i8 2x2: 1 2 -1 1", "u8 2x2: 1 1 200 255", "f32 2x2: 2 1 1 1", "f32 2x1: 10 2"},
     {"~dims of scales differ"}},
    {OP_DOT,
     "batch_a= batch_b= contract_a=0 contract_b=0",
     {"i8 2: 1 2", "u8 2: 1 1", "f32 2: 2 1", "f32 2: 10 2"},
     {"~1 contracted dims"}},
    {OP_DOT, "batch_a= batch_b= contract_a=0 contract_b=0", {"f32 2: 1 2", "f32 3: 1 2 3"}, {"~f32[2] and f32[3]"}},
    {OP_CONV,
     "strides=1 lo=1 hi=1 dilations=1 xdil=1 groups=1",
     {"f32 1x1x3: 1 2 3", "f32 1x1x3: 1 10 100"},
     {"f32 1x1x3: 210 321 32"}},
    {OP_CONV,
     "strides=1 lo=1 hi=1 dilations=1 xdil=2 groups=1",
     {"f32 1x1x2: 1 2", "f32 1x1x2: 1 10"},
     {"f32 1x1x4: 10 1 20 2"}},
    {OP_CONV,
     "strides=2 lo=0 hi=0 dilations=2 xdil=1 groups=2",
     {"i32 1x2x5: 1 2 3 4 5 6 7 8 9 10", "i32 2x1x2: 1 1 1 -1"},
     {"i32 1x2x2: 4 8 -2 -2"}},
    {OP_CONV,
     "strides=1 lo=0 hi=0 dilations=1 xdil=1 groups=1",
     {"f32 1x2x3: 1 2 3 4 5 6", "f32 1x1x3: 1 1 1"},
     {"~channels of input and weights differ"}},
    {OP_CUMULATE, "axis=1 monoid=sum exclusive=0 reverse=0", {"i64 2x3: 1 2 3 4 5 6"}, {"i64 2x3: 1 3 6 4 9 15"}},
    {OP_CUMULATE, "axis=0 monoid=prod exclusive=1 reverse=1", {"f32 3: 2 3 4"}, {"f32 3: 12 4 1"}},
    {OP_SCATTER_ELEMENTS,
     "axis=0 monoid=sum",
     {"f32 3: 1 2 3", "i64 3: 0 -1 0", "f32 3: 10 20 30"},
     {"f32 3: 41 2 23"}},
    {OP_SCATTER_ELEMENTS, "axis=1 monoid=set", {"i32 1x3: 1 2 3", "i64 1x1: 5", "i32 1x1: 9"}, {"!value"}},
    {OP_SCATTER_ND, "monoid=set", {"f32 2x2: 1 2 3 4", "i64 1x1: 1", "f32 1x2: 8 9"}, {"f32 2x2: 1 2 8 9"}},
    {OP_SCATTER_ND, "monoid=max", {"f32 3: 1 2 3", "i64 2x1: 0 2", "f32 2: 5 -5"}, {"f32 3: 5 2 3"}},
    {OP_SORT, "axis=0 descending=0", {"f32 4: nan 2 -1 2"}, {"f32 4: -1 2 2 nan", "i64 4: 2 1 3 0"}},
    {OP_SORT, "axis=1 descending=1 count=2", {"i32 2x3: 1 3 3 5 4 6"}, {"i32 2x2: 3 3 6 5", "i64 2x2: 1 2 2 0"}},
    {OP_SORT, "axis=1 descending=1", {"i32 2x3: 1 3 3 5 4 6"}, {"i32 2x3: 3 3 1 6 5 4", "i64 2x3: 1 2 0 2 0 1"}},
    {OP_NONZERO, "count=@", {"f32 2x2: 1 0 0 nan"}, {"i64 2x2: 0 1 0 1"}},
    {OP_UNIQUE,
     "axis=-1 sorted=1 count=@",
     {"i64 5: 3 1 3 2 1"},
     {"i64 3: 1 2 3", "i64 3: 1 3 0", "i64 5: 2 0 2 1 0", "i64 3: 2 1 2"}},
    {OP_UNIQUE,
     "axis=-1 sorted=0 count=@",
     {"i64 5: 3 1 3 2 1"},
     {"i64 3: 3 1 2", "i64 3: 0 1 3", "i64 5: 0 1 0 2 1", "i64 3: 2 2 1"}},
    {OP_UNIQUE,
     "axis=0 sorted=1 count=@",
     {"f32 3x2: 2 1 1 9 2 1"},
     {"f32 2x2: 1 9 2 1", "i64 2: 1 0", "i64 3: 1 0 1", "i64 2: 1 2"}},
    {OP_NMS,
     "center=0 count=@",
     {"f32 1x3x4: 0 0 1 1 0 0 1 0.9 0 2 1 3", "f32 1x1x3: 0.5 0.9 0.3", "i64: 9", "f32: 0.5", "f32: 0"},
     {"i64 2x3: 0 0 1 0 0 2"}},
    {OP_DFT, "axis=0 inverse=0 length=4 onesided=0", {"f32 4x1: 1 0 0 0"}, {"f32 4x2: 1 0 1 0 1 0 1 0"}},
    {OP_DFT, "axis=0 inverse=0 length=2 onesided=1", {"f64 2x1: 1 3"}, {"f64 2x2: 4 0 -2 0"}},
    {OP_DET, "", {"f32 2x2x2: 1 2 3 4 0 1 1 0"}, {"f32 2: -2 -1"}},
    {OP_RNG,
     "elem=f64 dims=3 axis=0 kind=uniform seed=42 a=0 b=1",
     {0},
     {"f64 3: 0.3745401188473625 0.9507143064099162 0.7319939418114051"}},
    {OP_RNG,
     "elem=f64 dims=3 axis=0 kind=normal seed=42 a=0 b=1",
     {0},
     {"f64 3: 0.4967141530112327 -0.13826430117118466 0.6476885381006925"}},
};

static value_id make_constant(struct bench *t, const struct row *r)
{
    return bench_const(t, r->out[0]);
}

static uint32_t count_texts(const char *const *list, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && list[n])
        n++;
    return n;
}

/* Builds the row's node on inputs or constants; false when inference refuses it. */
static bool build_row(struct bench *t, const struct row *r, bool constant, value_id out[4], uint32_t *n_out)
{
    value_id in[6];
    uint32_t n_in = count_texts(r->in, 6);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = constant ? bench_const(t, r->in[i]) : bench_input(t, r->in[i]);
    *n_out = (uint32_t)op_info(r->op)->n_out;
    if (r->op == OP_CONSTANT)
        return (out[0] = make_constant(t, r)).i != 0;
    return bench_op(t, r->op, r->attrs, in, n_in, out, *n_out);
}

static void run_interpreted(const struct row *r)
{
    struct bench t;
    value_id out[4];
    uint32_t n_out;
    const char *want = r->out[0];
    bench_open(&t);
    bool built = build_row(&t, r, false, out, &n_out);
    if (want[0] == '~') {
        if (built || !strstr(last_error(t.ctx), want + 1))
            fail_msg("%s: expected an error with \"%s\", got \"%s\"", op_name(r->op), want + 1, last_error(t.ctx));
    } else if (!built) {
        fail_msg("%s %s: %s", op_name(r->op), r->attrs, last_error(t.ctx));
    } else if (want[0] == '!') {
        struct tensor got;
        const char *text;
        enum eval_status status = bench_eval(&t, out[0], &got, &text);
        assert_int_equal(status, strcmp(want, "!value") == 0 ? EVAL_VALUE : EVAL_SHAPE);
        assert_true(text[0] != 0);
    } else {
        for (uint32_t i = 0; i < n_out; i++)
            bench_expect(&t, out[i], r->out[i]);
    }
    bench_close(&t);
}

static struct tensor as_tensor(const struct tensor_data *d)
{
    return (struct tensor){.kind = TYPE_TENSOR,
                           .elem = d->elem,
                           .rank = d->rank,
                           .present = true,
                           .dims = (int64_t *)(uintptr_t)d->dims,
                           .data = (void *)(uintptr_t)d->bytes.data};
}

/* Folded, read element by element, and what the lattice knows: all the same. */
static void expect_constant(struct bench *t, const char *what, value_id v, const char *want)
{
    const struct tensor_data *folded = value_fold(t->g, v);
    if (!folded)
        fail_msg("%s does not fold: %s", what, last_error(t->ctx));
    struct tensor got = as_tensor(folded);
    tensor_expect(t->ctx, what, &got, want);
    size_t size = elem_size(folded->elem);
    int64_t n = (int64_t)(folded->bytes.size / size);
    const struct value *value = graph_value(t->g, v);
    for (int64_t i = 0; i < n; i++) {
        char one[16];
        const char *at = (const char *)folded->bytes.data + (size_t)i * size;
        int64_t c;
        assert_true(const_read(t->g, v, i, 1, one));
        if (memcmp(one, at, size) != 0)
            fail_msg("%s: const_read of element %lld", what, (long long)i);
        if (value->elems && value->elems[i].i) {
            assert_true(ex_is_const(t->ctx->exprs, value->elems[i], &c));
            assert_int_equal(c, elem_to_i64(folded->elem, at));
        }
    }
}

static void run_constant(const struct row *r)
{
    struct bench t;
    value_id out[4];
    uint32_t n_out;
    bench_open(&t);
    if (r->out[0][0] != '~') {
        if (!build_row(&t, r, true, out, &n_out))
            fail_msg("%s %s: %s", op_name(r->op), r->attrs, last_error(t.ctx));
        for (uint32_t i = 0; i < n_out; i++) {
            if (!value_is_const(t.g, out[i]))
                continue;
            if (r->out[0][0] == '!')
                assert_null(value_fold(t.g, out[i]));
            else
                expect_constant(&t, op_name(r->op), out[i], r->out[i]);
        }
    }
    bench_close(&t);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        run_interpreted(&rows[i]);
}

static void test_rows_as_constants(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        run_constant(&rows[i]);
}

/* Rows of ops.def whose cases are in test_eval_control.c, or that only exist before legalize (onnx). */
static const enum op elsewhere[] = {
    OP_STRING,   OP_SEQ_MAKE, OP_SEQ_AT,  OP_SEQ_INSERT, OP_SEQ_ERASE, OP_SEQ_LENGTH, OP_SEQ_CONCAT, OP_SEQ_SPLIT,
    OP_OPT_MAKE, OP_OPT_GET,  OP_OPT_HAS, OP_IF,         OP_LOOP,      OP_ASSERT,     OP_IMPORTED,
};

static void test_every_operator_has_a_case(void **state)
{
    bool covered[OP_COUNT] = {false};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        covered[rows[i].op] = true;
    for (size_t i = 0; i < COUNT_OF(elsewhere); i++)
        covered[elsewhere[i]] = true;
    for (unsigned op = OP_NONE + 1; op < OP_COUNT; op++)
        if (!covered[op])
            fail_msg("no case for %s", op_name((enum op)op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_as_constants),
        cmocka_unit_test(test_every_operator_has_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
