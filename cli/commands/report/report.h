/* mcc report: what is known of a network as one HTML file (report.c); its data (report_json.c). */
#pragma once

#include "cli/commands/inspect/inspect.h"

/* A file of cli/commands/report/, embedded when mcc is built (cli/embed.sh). */
struct report_file {
    const char *name;
    const unsigned char *begin, *end;
};
extern const struct report_file report_files[]; /* a NULL name ends them */

/* c: the compilation; NULL: a compiled network was given. why: nothing was measured, or NULL. proof: of --prove, as
 * mcc prove has it, or empty. False after a diagnostic. */
bool report_json(struct compilation *c, const struct artifact_file *, const struct workspace *, struct measure *,
                 const char *why, struct span proof, struct json *);
