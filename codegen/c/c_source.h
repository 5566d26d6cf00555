/* Loop IR -> C11: the second code generator. It knows nothing of LLVM: each statement becomes the C that says the same,
 * bit for bit what the LLVM path computes for the same row of ir/target/target.def.
 *
 * The text needs memcpy and memset; vectors are structs of lanes, computed by small inline functions that are loops
 * over them, or GCC's and Clang's vectors (MCC_VECTORS).
 */
#pragma once

#include "codegen/codegen.h"

/* What of the row decides bits. */
struct c_machine {
    const char *row; /* its name */
    bool aarch64, fma, bf16; /* bf16: x86 instructions for it, which count subnormal numbers as 0 */
    bool bfdot; /* AArch64's, which rounds the products of a step to odd */
};

struct c_file;
struct c_file *c_begin(struct context *, struct arena *, const struct c_machine *);
/* Appends f as a C function; what it calls comes before it. False after a diagnostic: C has no such thing. */
bool c_function(struct c_file *, const struct lfunc *);
/* The file's one function for others: prototype, and the names of its arguments, which the entry takes. */
void c_export(struct c_file *, const char *entry, const char *prototype, const char *const *arguments, uint32_t n);
/* Is the text all that `weights` can be part of? False after a diagnostic (FAIL_LIMIT). */
bool c_weights(struct c_file *, const char *name, const struct weights_writer *);
/* The whole file. head: comment lines, include: of the header. */
struct strbuf c_end(struct c_file *, const char *head, const char *include);
