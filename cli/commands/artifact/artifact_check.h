/* Is an artifact what mcc wrote? The hashes of the file and of its weights. False after a diagnostic. */
#pragma once

#include "cli/commands/artifact/artifact.h"
#include "codegen/container/reading.h"

/* All but the weights, against the file's note. */
bool artifact_check_seal(const struct file_reading *, const struct mcc_note *);
/* The weights, in the file or in the sidecar beside `path`. */
bool artifact_check_weights(struct context *, const char *path, int fd, const struct artifact_file *);
