/* A configuration file (YAML). */
#include "cli/library/options/options.h"
#include "tests/fuzz/targets/target.h"

static void load(struct context *ctx, const char *path)
{
    struct options options;
    options_init(&options);
    config_load(ctx, &options, path, 'C');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_bytes(data, size, load);
}
