/* An artifact that is being read: artifact.c, which reads it, and artifact_sizes.c, which says what its bytes are. */
#pragma once

#include "cli/commands/artifact/artifact.h"
#include "codegen/container/reading.h"

enum { TABLES_MAX = 4096 };

struct reader {
    struct file_reading f;
    const char *path;
    bool weights; /* they are checked, too */
    uint64_t spent; /* bytes of rows and texts so far: mcc stores each one by itself */
    uint32_t tables[TABLES_MAX], n_tables; /* the parts that hold data, by address */
    struct span suffixes[VARIANTS_MAX]; /* of kernels' symbols, by variant */
    int n_suffixes;
    struct artifact_file *out;
};

bool artifact_read_wasm(struct reader *); /* all of a module (artifact_wasm.c) */
/* Where a text is used; false after a diagnostic. */
bool reader_spend_text(struct reader *, const char *text);
/* Fills out->sizes, note, graph and functions: adds up the code of every variant from the symbols; second names of
 * shared code have size 0. False after a diagnostic. */
bool reader_measure(struct reader *);
