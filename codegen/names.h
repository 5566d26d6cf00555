/* What debuggers and profilers call the functions of an artifact: kernels by the node they came from. */
#pragma once

#include "codegen/codegen.h"

struct function_name {
    const char *symbol, *text;
};
struct function_names {
    const struct function_name *rows;
    size_t n;
};

/* "k10_v4" becomes "k10_v4.features.3.Conv_": the symbol, then the node's name (its operator where it has none), cut to
 * its last bytes, in letters that shells leave alone. The underscore at the end is for gdb, which takes names that end
 * in a dot and a word for Ada's and shows "features[Conv]". Only the symbol table has these names; code and tables know
 * the symbols. */
struct function_names names_make(struct arena *, const struct artifact *);
/* The text for a symbol; itself where there is none. */
const char *names_find(const struct function_names *, const char *symbol);
