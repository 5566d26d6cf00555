/* Between the files of the C generator. */
#pragma once

#include "codegen/c/c_source.h"

struct c_function {
    const char *of, *name;         /* in the loop IR, in C */
    bool launches; /* what may fail */
    bool fails, counts, scratch; /* returns a code; has the count of parallel indices, the scratch as last arguments */
};
struct c_file {
    struct context *ctx;
    struct arena *arena;
    struct c_machine machine;
    struct strbuf types, helpers, weights, body;
    VEC(uint64_t) made; /* hashes of the names of helpers and types, an open table */
    uint32_t n_made;
    VEC(struct c_function) functions;
    VEC(uint64_t) shuffles; /* hashes of lists, by number */
    bool has_f64; /* arithmetic on f64 */
    const char *why; /* sticky: what C cannot say */
};

/* ---- what is used (c_uses.c) ---- */

struct c_uses {
    const struct lfunc *f;
    bool more;
    struct c_use {
        bool live;
        uint32_t n; /* times; 2 where the text would stand for more than one evaluation, or be of another time */
    } *of; /* by lreg.i */
};
struct c_uses c_uses(struct arena *, const struct lfunc *);
bool c_is_used(const struct c_uses *, const struct lstmt *); /* has it an effect, or a result that is used? */
const struct lstmt *c_yield(const struct lfunc *, lblock); /* the block's last statement, if it is one; else NULL */

/* ---- types (c_types.c) ---- */

bool c_is_float(enum elem); /* f32, f64 */
char c_class(enum elem); /* of C_OP: F I U B of what is computed; '-': bits that are only moved */
const char *c_scalar(struct c_file *, enum elem); /* of a lane of a vector, and in memory: "f32", "u8" for bool */
const char *c_type(struct c_file *, struct ltype); /* of a value: "f32", "bool", "f32x4"; declares it */
const char *c_name(struct c_file *, struct ltype); /* in names of helpers: "bool", "boolx4", "bf16x4" */

/* ---- helpers ---- */

/* True for the first one who needs `name`, who then appends its text to file->helpers. */
bool c_first(struct c_file *, const char *name);
/* Appends text with $a ... replaced: vars is pairs of a letter and a text, ended by 0. */
struct c_var {
    char letter;
    const char *text;
};
void c_text(struct strbuf *, const char *text, const struct c_var *vars, uint32_t n);
/* Names of the functions for statements (c_ops.c). no_nan: an operand of min or max is a constant; it comes first. */
const char *c_operation(struct c_file *, enum lop, struct ltype result, struct ltype operand, uint32_t n, bool no_nan);
const char *c_half_fma(struct c_file *, struct ltype);
const char *c_select(struct c_file *, struct ltype cond, struct ltype);
const char *c_bitcast(struct c_file *, struct ltype from, struct ltype to);
const char *c_splat(struct c_file *, struct ltype);
const char *c_iota(struct c_file *, struct ltype);
const char *c_insert(struct c_file *, struct ltype);
const char *c_shuffle(struct c_file *, struct ltype from, struct ltype to, const uint8_t *list);
const char *c_hreduce(struct c_file *, enum lop, struct ltype);
/* LOAD ... SCATTER of vectors, where lanes have indices those of type `by` (c_memory.c) */
const char *c_memory(struct c_file *, enum lop, struct ltype, enum elem by, bool masked);
/* The C operator of scalars that are written in place, NULL: there is none. */
const char *c_infix(const struct lstmt *, struct ltype operand);
/* f32 and f64 functions of the prologue: "f32_sqrt". */
void c_need_real(struct c_file *, const char *name, enum elem);
/* Name of the function that converts (c_convert.c). */
const char *c_conversion(struct c_file *, struct ltype from, struct ltype to, bool saturate, const char *rounding);
const char *c_dot(struct c_file *, const struct lfunc *, const struct lstmt *); /* DOT, MATDOT  */
const char *c_literal(struct c_file *, const struct lstmt *); /* a scalar constant's lane */
/* The function made of loop IR's `name`, NULL: none. A C name for it that no other has. */
const struct c_function *c_function_find(const struct c_file *, const char *name);
const char *c_function_name(struct c_file *, const char *name);
void c_fail(struct c_file *, const char *why);
/* Text in a comment: no end of comment, no trigraph, ASCII. */
void c_comment(struct strbuf *, const char *text);
