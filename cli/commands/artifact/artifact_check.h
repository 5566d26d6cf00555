/* Is an artifact what mcc wrote? The hashes of the file and of its weights. False after a diagnostic. */
#ifndef MCC_CLI_ARTIFACT_CHECK_H
#define MCC_CLI_ARTIFACT_CHECK_H

#include "cli/commands/artifact/artifact.h"

/* All but the weights, against the file's note; field: where in the file the note has the hash, which counts as zeros.
 */
bool artifact_check_seal(struct context *, int fd, uint64_t size, const struct mcc_note *, uint64_t field);
/* The weights, in the file or in the sidecar beside `path`. */
bool artifact_check_weights(struct context *, const char *path, int fd, const struct artifact_file *);

#endif
