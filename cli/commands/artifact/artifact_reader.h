/* An artifact that is being read: artifact.c, which reads it, and artifact_sizes.c, which says what its bytes are. */
#ifndef MCC_CLI_ARTIFACT_READER_H
#define MCC_CLI_ARTIFACT_READER_H

#include <elf.h>

#include "cli/commands/artifact/artifact.h"
#include "codegen/container/elf.h"

enum { TABLES_MAX = 4096 };

struct pointer {
    uint64_t at, to;
};

struct reader {
    struct context *ctx;
    struct arena *arena;
    const char *path;
    int fd;
    bool weights; /* they are checked, too */
    uint64_t base, size; /* the ELF file: an archive's member, or all of it */
    Elf64_Ehdr head;
    const struct elf_machine *machine;
    Elf64_Shdr *sections;
    const char **names; /* of sections */
    char **data; /* of sections that are in memory */
    uint32_t n;
    uint64_t held; /* bytes in memory: more than the file has only where sections overlap */
    uint64_t spent; /* bytes of rows and texts so far: mcc stores each one by itself */
    uint32_t tables[TABLES_MAX], n_tables; /* the sections that hold data, by address */
    struct span suffixes[VARIANTS_MAX]; /* of kernels' symbols, by variant */
    int n_suffixes;
    Elf64_Sym *symbols;
    uint64_t n_symbols;
    const char *text; /* names of symbols, with a NUL behind them */
    uint64_t text_size;
    VEC(struct pointer) pointers;
    struct artifact_file *out;
};

bool reader_is_weights(const struct reader *, uint32_t section);
bool reader_is_graph(const struct reader *, uint32_t section);
const char *reader_symbol_name(const struct reader *, uint64_t symbol);
/* Where a text is used; false after a diagnostic. */
bool reader_spend_text(struct reader *, const char *text);
/* Fills out->sizes, note and functions: adds up the code of every variant from the symbols; second names of shared code
 * have size 0. False after a diagnostic. */
bool reader_measure(struct reader *);

#endif
