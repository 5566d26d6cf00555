/* A compiled network with one input and one output of 32-bit floats. */
#ifndef NETWORK_H
#define NETWORK_H

#include "mcc_load.h"

typedef struct {
    mcc_lib *lib;
    mcc_ctx *ctx;
    float *out;                    /* of the last run; grows */
    int64_t shape[8];              /* its extents */
} network;

/* Both end the program with the runtime's words when something fails. */
network network_open(const char *path);
void network_run(network *n, float *in, int64_t batch, int64_t channels, int64_t height, int64_t width);
void network_close(network *n);

#endif
