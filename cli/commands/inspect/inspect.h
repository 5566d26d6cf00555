/* What mcc inspect is made of: an artifact's sizes (inspect_size.c), a network's kernels and weights (inspect_model.c),
 * its drawing (draw.c, graphviz.c) and the times that colour it (bench/profile.c). */
#pragma once

#include "cli/commands/artifact/artifact.h"
#include "cli/library/compile/backend.h"
#include "cli/commands/bench/bench.h"
#include "cli/library/json.h"

/* The table: a line for each part with its share of the file. sealed: the padding of weights is known. */
void sizes_print(const mcc_api *, const struct sizes *, bool sealed, struct strbuf *out);

/* What a run takes besides the file, of the code's own plan. */
struct workspace {
    const char *why; /* it cannot be asked here; NULL: it can */
    bool known; /* inputs are tensors of known rank */
    size_t bytes;
    int64_t *symbols; /* for these values */
};
/* False after a diagnostic. */
bool workspace_ask(struct context *, const struct options *, const char *path, const struct artifact_file *,
                   struct workspace *);

/* The numbers, from 1, of each node's kernels: the first by node, then the next by kernel; 0: there is none. */
uint32_t *kernels_by_node(const struct artifact_file *, struct arena *, uint32_t **next);

/* As objects (inspect_json.c, docs/json.md). verified: the hash of the weights was checked. */
void artifact_json(const struct artifact_file *, const struct workspace *, bool verified, const char *key,
                   struct json *);
void network_json(const struct compilation *, const mcc_node *, uint32_t n, struct json *);
/* The member "weights" of the object that is open: the stored constants. */
void weights_json(const struct module *, struct json *);

/* mcc inspect of a network: -o draws it, otherwise its kernels and weights are listed. */
enum fail inspect_model(struct context *, struct options *, const char *model);

/* mcc inspect --sbom (sbom.c). */
enum fail inspect_sbom(struct context *, const struct options *, const char *path);

/* mcc inspect --threads: the bound on what threads gain, by kernel (inspect_threads.c). */
enum fail inspect_threads(struct context *, struct options *);

/* The imported network as Graphviz text: kernels are boxes around the nodes that they compute. row: source_rows;
 * ns: times by source, or NULL. */
void draw_network(const struct compilation *, const mcc_node *row, uint32_t n_rows, const double *ns,
                  struct strbuf *out);
/* Runs Graphviz: text to a picture of the format ("svg") in *picture. False after a diagnostic. */
bool graphviz_run(struct context *, const struct strbuf *text, const char *format, struct strbuf *picture);
