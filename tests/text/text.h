/* Readers of the texts of graphs and modules (docs/mcir.md, docs/reference/module-text.md), which only tests read. */
#ifndef MCC_TESTS_TEXT_H
#define MCC_TESTS_TEXT_H

#include "passes/module/module.h"

/* What graph_print wrote, with full; NULL after a diagnostic with the line. Nothing is checked beyond syntax and
 * references: that is graph_verify's part, and module_verify's of modules. */
struct graph *graph_parse(struct context *, const char *text);
/* What module_print wrote, with full, as a module of its own graph, in the context; NULL after a diagnostic with the
 * line. Printing the result gives the same text. */
struct module *module_parse(struct context *, const char *text);

/* What is printed is all that a graph or module is: its text, with all constants, reads back to the same text. */
struct read_back {
    const struct context *like; /* whose limits hold */
    uint32_t n; /* texts that did */
    char why[400]; /* what is wrong with the first that did not; "": none */
};
void read_back(struct read_back *, const char *text);
/* The same for what -print-after-all -print-constants shows: for struct report.put, with the struct as `user`. */
void read_back_put(void *user, int kind, const char *text, size_t size);

#endif
