/* The C text of one function while it is made: its values, and statements that are one line. */
#pragma once

#include "codegen/c/c_internal.h"

enum { ATOM = 3, PRODUCT = 2, SUM = 1 }; /* how tightly an expression's text binds */

struct c_value {
    const char *text;
    uint8_t binds;
    bool place; /* an index of sizes and places */
    bool fixed, known, is_const; /* an index that is a number; a float constant other than NaN; of const memory */
    int64_t number;
};
struct c_emit {
    struct c_file *c;
    const struct lfunc *f;
    struct strbuf *out;
    struct c_uses uses;
    struct c_value *v; /* by lreg.i */
    uint32_t depth;
    int64_t scratch; /* bytes of LOCALs so far */
};

static inline struct c_value *ce_value(struct c_emit *e, lreg r)
{
    return &e->v[r.i];
}
static inline bool ce_live(const struct c_emit *e, lreg r)
{
    return e->uses.of[r.i].live;
}
void ce_indent(struct c_emit *);
/* The text of r, in parentheses where it binds less than `binds`; of an operand. */
const char *ce_text(struct c_emit *, lreg r, int binds);
const char *ce_in(struct c_emit *, const struct lstmt *, uint32_t i);
void ce_set_text(struct c_emit *, lreg r, const char *text, int binds);
/* A variable: its C type, and a name that becomes its text. */
const char *ce_type(struct c_emit *, lreg r);
const char *ce_name(struct c_emit *, lreg r);
void ce_define(struct c_emit *, lreg r, const char *expression);
/* f(a, b, c) of the first n operands. */
const char *ce_call(struct c_emit *, const char *function, const struct lstmt *, uint32_t n);
/* Sums and products of places, written where they are used once. False: it is none. */
bool ce_place_arithmetic(struct c_emit *, const struct lstmt *);
const char *ce_arithmetic(struct c_emit *, const struct lstmt *);
/* CONST, LOADs, STOREs, LOCAL, OFFSET. */
void ce_constant(struct c_emit *, const struct lstmt *);
const char *ce_load(struct c_emit *, const struct lstmt *);
void ce_store(struct c_emit *, const struct lstmt *);
void ce_local(struct c_emit *, const struct lstmt *);
void ce_offset(struct c_emit *, const struct lstmt *);
