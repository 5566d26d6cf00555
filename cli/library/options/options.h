/* Options of the command and the library: one table (options.def), one struct, three ways in: the command line
 * (cli/commands/command_line.c), the configuration file (config.c) and mccc_set().
 */
#pragma once

#include "ir/base/text_list.h"

struct option;
/* Where the configuration sets an option; text: of a list, the item, else NULL. */
struct config_place {
    const struct option *def;
    const char *text, *path;
    uint32_t line, column;
};

/* What an option that is one of several words can be, and how many there are. */
/* clang-format off */
#define W(id, word) id,
#define ONE_OF(f, n, w, words, h) enum option_##f { words };
#include "cli/library/options/options.def"
#define W(id, word) + 1
#define ONE_OF(f, n, w, words, h) enum { n_option_##f = 0 words };
#include "cli/library/options/options.def"
/* clang-format on */

struct options {
#define ONE_OF(f, n, w, words, h) enum option_##f f;
#include "cli/library/options/options.def"
    const char *output, *target, *march, *mattr, *variants, *prefix, *config, *schedules, *error, *metric,
        *save_choices, *lora;
    const char *debug_folder;
    const char *depend_file;
    const char *stop_after, *worker, *cache, *profile, *trace, *bound_threads;
    struct text_list against;
    double tolerance, bound, precision_bound, metric_drop;
    const char *break_kernel, *rpass, *rpass_missed, *rpass_analysis, *autocomplete, *generate, *list_ops;
    struct text_list samples, choices, searched, inputs, overridable, print_after, feeds, dims, dump;
    struct limits limits;
    int64_t machine_work, mutate, level, jobs, error_limit, worker_memory, cache_bytes, threads, variant, runs;
    bool strict, error_measured, require_sandbox, no_warn_sandbox;
    bool remark_if, no_remark_if, remark_loop, no_remark_loop;
    bool werror, save_record, time_trace, save_temps, print_changed, verify_each;
    bool color, no_color, last_logits;
    bool object, debug, no_cache, assembly, emit_llvm, print_config, depend, depend_phony, quiet, verbose, dry_run,
        stats, time_passes;
    bool print_after_all, print_full, dot, list_stages, hard_links, verify, prove, help, version, reference, roofline,
        in_field, calibrate, all, against_f32, bounds, json, no_run;
    struct json_document *document; /* what --json is to write; NULL: not asked for. main makes it */
    const char *self;              /* path of the running program, for workers; main sets it */
    struct text_list files;        /* arguments that are no options */
    VEC(struct config_place) places;
};

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_ONE_OF, OPTION_LIST, OPTION_INT, OPTION_SIZE, OPTION_REAL };
struct option {
    enum option_kind kind;
    const char *name;              /* without dashes */
    char letter;                   /* short spelling or 0 */
    const char *where;             /* letters of options.def */
    size_t offset, size;           /* of the field in struct options */
    int64_t least, most;
    double preset;                 /* numbers: the default */
    const char *meta, *help;       /* ONE_OF: meta is the list of words, the default first */
    uint32_t line;                 /* of options.def */
};
extern const struct option option_table[];
extern const uint32_t option_count;

/* The title of the group that the option stands in; a group's options follow each other in the table. */
const char *option_group(const struct option *);

void options_init(struct options *);
/* Gives the options without this letter of options.def their defaults. */
void options_reset(struct options *, char keep);

/* A number as REAL options take it: digits with an optional fraction and exponent, no sign. */
bool real_parse(const char *, double *out);

/* Is the option as it is where nobody gives it? */
bool option_is_preset(const struct options *, const struct option *);

/* The i-th word of a ONE_OF; empty: it has no more. */
struct span option_word(const struct option *, unsigned i);

/* Its value as a configuration has it; NULL: of a text that is not given, and of a list. */
const char *option_text(struct arena *, const struct options *, const struct option *);

/* The option called name (no dashes) for sub-command `where`; NULL when there is none. */
const struct option *option_find(const char *name, char where);
/* The most similar name among the options for `where`, or NULL when none is close. */
const char *option_suggest(const char *name, char where);
/* Of an option of an earlier version: what to do without it; NULL: there was none. */
const char *option_gone(const char *name);

/* Sets one option from text; value NULL for a flag that stands alone. Texts are copied. False after a diagnostic of
 * class `fail`. */
bool option_set(struct context *, struct options *, const struct option *, const char *value, enum fail fail);

/* Makes a diagnostic about the option (of a list: this item) point to the place in the configuration that set it, where
 * one did; false. */
bool option_blame(struct context *, const struct options *, const char *name, const char *text);

/* cli/library/options/config.c: applies the YAML file `path` to the options that `where` takes. On failure
 * ctx->model_path, line and column say where the diagnostic belongs. */
bool config_load(struct context *, struct options *, const char *path, char where);
