/* BLAKE3 of files, as b3sum prints it: which bytes an artifact was made of. LLVM's copy, which is linked already. */
#pragma once

#include "ir/base/base.h"

enum { DIGEST_BYTES = 32, DIGEST_TEXT = 2 * DIGEST_BYTES + 1 };

/* Of bytes as they come. */
struct digest;
struct digest *digest_new(struct arena *);
void digest_add(struct digest *, const void *, size_t);
void digest_end(const struct digest *, char out[DIGEST_TEXT]);
/* Of all bytes of regular files, one file after the other. False after a diagnostic. */
bool digest_files(struct context *, const char *const *paths, uint32_t n, char out[DIGEST_TEXT]);
/* Of bytes of an open file. False, without a diagnostic: they cannot be read. */
bool digest_range(int fd, uint64_t from, uint64_t bytes, char out[DIGEST_TEXT]);
