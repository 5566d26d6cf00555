/* Options as the command reads and shows them: command lines (command_line.c), help and references (help.c). */
#pragma once

#include "cli/library/options/options.h"

/* A command line. @file arguments are read in. The configuration file, when given, is applied first. Usage errors are
 * FAIL_USAGE diagnostics, those in the configuration FAIL_MODEL. */
bool options_parse(struct context *, struct options *, int argc, char **argv, char where);

/* ---- help.c ------------------------------------------------------------------------------------------------------ */

/* "-o, --output=FILE"; the help text with the default. */
void option_spelling(struct strbuf *, const struct option *);
void option_meaning(struct strbuf *, const struct option *);
/* "compile, run, configuration file": what takes it. */
void option_commands(struct strbuf *, const struct option *);
/* The options that `where` takes, by group, as --help prints them. */
void options_help(struct strbuf *, char where);
/* All options by group with all sub-commands, as Markdown (docs/commands.md). */
void options_reference(struct strbuf *);
/* Options of the configuration file that differ from their defaults, as a configuration file. */
void options_print_config(struct strbuf *, const struct options *);
