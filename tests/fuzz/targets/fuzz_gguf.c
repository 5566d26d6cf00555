/* A GGUF file through all of the compiler but LLVM (compile_bytes): keys, tensors, the numbers of the model, its
 * layers. */
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return compile_bytes(data, size);
}
