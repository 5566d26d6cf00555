/* A GGUF file to a legal graph: keys, tensors, the numbers of the model, its layers, the rules of its operators. Later
 * stages see what other files' networks make too, and take a thousand times as long.
 */
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return compile_bytes(data, size, "settle-constants");
}
