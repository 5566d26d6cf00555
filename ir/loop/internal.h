/* Shared by the files of the loop IR only: the statement table, limits, element classes. */
#pragma once

#include "ir/loop/loop.h"

enum lclass { LCLASS_VALUE, LCLASS_PLACE, LCLASS_LOAD, LCLASS_STORE, LCLASS_EFFECT };
enum { E_F = 1, E_I = 2, E_B = 4, E_X = 8, E_H = 16 };   /* element classes of ir/loop/loop.def */

enum {
    LOOP_DEPTH_MAX = 200,    /* nested blocks: what parser, printer and verifier recurse to */
    FRAME_LOCALS_MAX = 1 << 16   /* bytes of LOCALs outside kernels: they live in the native frame */
};

struct lop_info {
    const char *name, *form;
    int16_t min_in, max_in, n_out;
    enum lclass class;
    uint32_t elems;
};
extern const struct lop_info lop_table[L_COUNT];

static inline bool lop_has_blocks(enum lop op)
{
    return op == L_FOR || op == L_PARALLEL || op == L_IF;
}

/* The classes (E_*) that an element type belongs to; 0: not a register type. */
uint32_t loop_elem_classes(enum elem);

/* Operand positions of memory statements, -1 = absent: buffer is 0 and index 1 always. */
struct lmem {
    int stride, value, mask;
};
struct lmem lstmt_mem(const struct lstmt *);

/* Numbers of the values in the text: parameters of a statement's blocks, its results, then the statements inside;
 * arguments first. Entry i belongs to value i; UINT32_MAX: not defined anywhere. */
uint32_t *loop_numbers(const struct lfunc *, struct arena *);

/* Sets local_bytes from the LOCAL statements. */
void loop_layout_locals(struct lfunc *);

static inline bool ltype_equal(struct ltype a, struct ltype b)
{
    return a.elem == b.elem && a.lanes == b.lanes;
}
static inline bool ltype_is_index(struct ltype t)
{
    return t.elem == ELEM_I64 && t.lanes == 1;
}
