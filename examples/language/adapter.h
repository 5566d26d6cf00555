/* An adapter (LoRA) as the package PEFT saves it, adapter_model.safetensors and adapter_config.json, or as ONNX Runtime
 * does (.onnx_adapter), for the inputs of a network that mcc made with --lora, or that the exporter gave it.
 * decoder_adapt gives it to the network, another one before each run if need be.
 */
#ifndef ADAPTER_H
#define ADAPTER_H

#include "decoder.h"

enum { ADAPTER_WHY = 384 };

struct adapter {
    int64_t rank; /* of all products: those of a lower one have zeros */
    void **data; /* of each input of the network; NULL: not an adapter's */
    uint32_t n;
    void *zeros; /* of inputs whose products the file leaves alone */
    char why[ADAPTER_WHY];
};

/* path: the .safetensors file, or its folder; or an .onnx_adapter file, which its first bytes tell. Matrices get the
 * type and the order of the network's inputs, B times lora_alpha / r. What would change the results and is not done
 * here is refused. 0: why says what is wrong, and nothing stays. */
int adapter_read(struct adapter *a, const struct decoder *d, const char *path);

void adapter_free(struct adapter *a);

#endif
