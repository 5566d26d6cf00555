/* A loaded artifact with its inputs: what mcc run and mcc bench share. */
#pragma once

#include "cli/commands/artifact/file_tensor.h"
#include "runtime/mcc_load.h"

struct session {
    struct context *ctx;
    const struct options *options;
    mcc_lib *lib;
    const mcc_api *api;
    struct file_tensor *in;              /* one per input port */
    DLTensor *in_tensor;
    const DLTensor **in_pointer;  /* what the api's functions take */
    mcc_ctx *run;
    mcc_error error;
};

/* Loads the artifact and makes a context; host may be NULL. False after a diagnostic. */
bool session_open(struct session *, struct context *, const struct options *, const char *path, const mcc_host *host);
/* Reads or draws the inputs. random: inputs without a feed are drawn, otherwise they are refused. */
/* Every run that is compared with others begins with the same state. */
bool session_reset(struct session *);
bool session_feed(struct session *, bool random);
void session_close(struct session *);
/* Records what the artifact answered as a diagnostic; false. */
bool session_error(struct session *, const char *doing);
/* The least multiple of the symbol's step from 1 on: its value where none is given. */
int64_t symbol_least(const mcc_symbol *);
/* The value of each symbol from --dim, else its least. */
bool session_symbols(struct session *, int64_t *out);
/* Is the symbol a size of an input that --dim does not give? Others follow from these. `given`: the command's options,
 * of which the session's may be a copy with more sizes. */
bool session_is_free(const struct session *, const struct options *given, uint32_t symbol);
uint64_t session_elements(const struct session *); /* of all inputs */
/* A port's type and shape. Long expressions stand for themselves as ?1, ?2, ...: *extents has a line for each, *n their
 * number. */
void port_describe(const mcc_api *, const mcc_port *, struct strbuf *extents, uint32_t *n, struct strbuf *out);
/* All nodes that the kernels of a leading node compute: "conv1 (Conv) + bn1 (BatchNormalization) + relu1 (Relu)", with
 * the line of the source where it is known: "up/linear (linear.default, net.py:12)". */
void node_describe(const mcc_api *, const mcc_node *, struct strbuf *out);
