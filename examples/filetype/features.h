/* What the network of the PyPI package magika looks at: the first and the last bytes of a file, white space around the
 * content stripped, as 32-bit numbers; and the answer for files that are too short for a network. */
#ifndef FEATURES_H
#define FEATURES_H

#include <stdint.h>
#include <stdio.h>

enum { BLOCK = 4096, BEGIN = 1024, END = 1024, FEATURES = BEGIN + END, SHORTEST = 8, PADDING = 256 };

/* Fills out from the `size` bytes of a file that is open for reading, and returns NULL; or returns the label of a file
 * too short for the network: "empty", "txt" (valid UTF-8) or "unknown". Bytes that cannot be read count as absent. */
const char *features_of(FILE *file, int64_t size, int32_t out[FEATURES]);

#endif
