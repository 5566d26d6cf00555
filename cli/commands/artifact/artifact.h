/* An artifact as a file: its table is read from a shared object, an object or an archive for whatever CPU, and nothing
 * of it is loaded or run. */
#pragma once

#include "ir/base/base.h"
#include "runtime/mcc.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { VARIANTS_MAX = 256 };

/* Bytes of the file by what they are; the code of variants apart from that of the runtime. */
struct sizes {
    uint64_t file, weights, weights_padding, sidecar, variant[VARIANTS_MAX], code, tables, symbols, graph, debug,
        headers;
};

/* A kernel's function for a variant, as the symbol table has it: "k3_v4.conv1". */
struct code_size {
    const char *name;
    int variant;
    uint64_t bytes;
};

struct artifact_file {
    mcc_api api; /* as in mcc.h, in memory of the compiler; the functions are NULL */
    mcc_state state; /* if it has any: for mcc_state_of */
    struct mcc_rt_desc desc; /* n_kernels rows of kernels, weights_file; other pointers are NULL */
    struct mcc_note note; /* sealed 0: an object or archive, of which the linker has not made the end */
    struct sizes sizes;
    struct span graph; /* as graph_map_unpack() takes it; none: NULL, 0 */
    struct span build; /* how it was made (cli/library/compile/build_note.h); none: NULL, 0 */
    VEC(struct code_size) functions;
    bool linked, archive; /* a library or module; an archive; else an object */
    bool slice; /* the first library of a universal file */
    bool runs_here; /* a shared object for this machine's architecture and system */
    uint64_t weights_at; /* in the file */
};

enum { ARTIFACT_HEAD = 64 };
/* By the first bytes of the file: an artifact, for whatever system, or an archive. */
bool artifact_is(const char *path);
/* A WebAssembly module, which commands read and do not run. */
bool artifact_is_wasm(const char *path);
#define ARTIFACT_WASM_REFUSED "a WebAssembly module, which mcc makes and does not run: mcc.mjs does"
/* Is the file to be taken for an artifact rather than a network? By its first bytes, else by its name; what cannot be
 * read and has not the name of a network is one, so that the loader says why. */
bool artifact_meant(const char *path);

/* Reads the file, whose every offset is checked; weights: also checks the hash over them, and over the sidecar's. False
 * after a diagnostic. */
bool artifact_read(struct context *, const char *path, bool weights, struct artifact_file *out);
