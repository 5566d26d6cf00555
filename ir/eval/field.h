/* Randomised identity testing: graphs over a field. */
#pragma once

#include "ir/graph/graph.h"

/* Large constants of graphs that have entered, each with what it became. They live as long as these graphs. */
struct field_constant {
    enum elem elem;
    struct span floats, residues;
};
struct field_constants {
    VEC(struct field_constant) of;
    unsigned char *sieve; /* field_of_floats; NULL: not needed yet */
};
/* From here on floats are GF(q) x GF(p), in this graph and in all that its context's interpreter computes; once. Equal
 * constants of several graphs have the same residues in the same memory. */
void graph_enter_field(struct graph *, struct field_constants *);
/* The residues of `bytes` bytes of f32 or f64. */
void field_of_elements(enum elem, const char *floats, char *out, size_t bytes);
/* Before that: the residue of constant v, one float, computed of residues; floats are folded with rounding. False:
 * there is none, or v is not `folded`, the float that the code has. */
bool field_number(struct graph *, value_id, double folded, uint32_t *residue);
