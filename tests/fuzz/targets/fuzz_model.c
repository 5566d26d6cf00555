/* An ONNX file through all of the compiler but LLVM (compile_bytes). Structure-aware: wire_mutator.c. */
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return compile_bytes(data, size, "emit");
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    struct mutation m = {.state = seed, .mutate = LLVMFuzzerMutate};
    return wire_mutate(&m, data, size, max);
}
