/* Products of packed panels, for dot and conv (ir/eval/dot.c). */
#pragma once

#include <stdint.h>

enum arithmetic { INTEGERS, FLOATS, FIELD };
enum { PANEL_MOST = 8 };

union word {
    double f;
    int64_t i;
    uint64_t u;
};
/* Operands are [k][width], and so many rows of a are there; results are [width][width]. Floats are summed in double,
 * integers wrap, residues stay below 2^32. */
typedef void panel_fn(const union word *a, const union word *b, int64_t k, int64_t rows, union word *c);
struct panel {
    int64_t width;
    panel_fn *multiply;
};
/* Those of this CPU, the fastest first; returns how many. */
enum { PANELS_MOST = 3 };
uint32_t panels_of(enum arithmetic, struct panel of[PANELS_MOST]);
