/* An .npy file, as run and eval read their inputs. */
#include "cli/commands/artifact/file_tensor.h"
#include "tests/fuzz/targets/target.h"

static void load(struct context *ctx, const char *path)
{
    struct file_tensor packed = {0};
    file_tensor_read(ctx, path, &packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_bytes(data, size, load);
}
