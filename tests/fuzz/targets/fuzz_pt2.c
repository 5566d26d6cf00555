/* A .pt2 file through all of the compiler but LLVM (compile_bytes): archive, JSON, symbols, weights, nodes. Bytes of
 * stored records have no checksum that is looked at, so changed ones reach the parsers.
 */
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return compile_bytes(data, size, "emit");
}
