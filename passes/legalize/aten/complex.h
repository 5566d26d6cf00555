/* Tensors of complex numbers, as rules of complex.c and fft.c see them. */
#pragma once

#include "passes/legalize/aten.h"
#include "passes/legalize/driver.h"

struct pair {
    value_id re, im;
};

bool complex_is(const struct rule *, uint32_t i); /* is operand i of complex numbers? */
bool complex_result(const struct rule *); /* does the file say so of a result? */
/* Operand i with parts of that type; a real one, or a number, has an imaginary part of 0 (rank 0). */
struct pair complex_in(struct rule *, uint32_t i, const char *name, enum elem);
struct pair complex_of(struct builder *, value_id parts); /* of a last dim of two */
bool complex_out(struct rule *, struct pair);
