/* The sub-commands of mcc. Each is handed a context whose unwind point is set, and returns the exit code's class. */
#pragma once

#include "cli/library/compile/compile.h"
#include "cli/commands/terminal.h"

/* Records a usage error; what the command returns then. */
#define fail_usage(ctx, ...) (error_usage((ctx), __VA_ARGS__), (ctx)->fail)

/* A sub-command as manual pages and completions show it. */
struct command_row {
    const char *name;
    char where;
    const char *usage, *help;
    const char *examples;        /* lines of a command, a tab and what it does */
};
/* Candidates for "WORD" or "COMMAND,WORD"; words: those of the line before it (complete.c). */
void generate_completions(struct context *, const char *request, const struct text_list *words,
                          const struct command_row *, uint32_t n, struct strbuf *);
/* The text called `what` (the words of --generate); false: unknown (generate.c). */
bool generate_text(const char *what, const struct command_row *, uint32_t n, struct strbuf *);

/* The support matrix of --list-ops; domain "": of all. False after a diagnostic: there is no such domain. */
bool list_ops(struct context *, const char *domain, struct strbuf *);
/* The domains that it has, without repetition; NULL: there are no more. */
const char *op_domain(uint32_t i);

/* --error, --precision=auto: puts the choices that it finds (cli/commands/quantize/error.c) in its place. False after a
 * diagnostic. */
bool error_settle(struct context *, struct options *);

/* Compiles for each target of the list in options->target, to one file (universal.c). */
enum fail compile_universal(struct context *, const struct options *, const char *model);
/* May it? False after a diagnostic. */
bool universal_check(struct context *, const struct options *, const char *model);

/* A proof as a part of another command (compare/proof.c). */
struct proof {
    bool all; /* of each kernel and program, in each CPU variant */
    uint32_t proved, variants;
    const char *text; /* as mcc prove prints it */
    struct span json; /* as it is the result of mcc prove */
    struct text_list note; /* a line for each variant, where all is proved */
};
/* Proves the network of the options, in a context of its own. False after a diagnostic, which is not that something is
 * not proved. What is in *out lives as long as the context. */
bool proof_make(struct context *, const struct options *, struct proof *out);
/* Compiles a network if all is proved, and notes that in the artifact. */
enum fail compile_proved(struct context *, const struct options *, const char *model);

typedef enum fail command_fn(struct context *, struct options *);
command_fn command_compile, command_check, command_eval, command_run, command_bench, command_diff;
command_fn command_quantize, command_reduce, command_report, command_inspect, command_verify, command_prove;
