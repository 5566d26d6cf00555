/* Rows of ir/target/platform.def. */
#include "ir/target/platform.h"

const struct platform platforms[] = {
#define PLATFORM(...) {__VA_ARGS__},
#include "ir/target/platform.def"
};
const uint32_t platform_count = COUNT_OF(platforms);

const struct platform *platform_find(const char *arch, const char *system)
{
    for (uint32_t i = 0; i < platform_count; i++)
        if (!strcmp(platforms[i].arch, arch) && (!system || !strcmp(platforms[i].system, system)))
            return &platforms[i];
    return NULL;
}

const struct platform *platform_of_triple(const char *triple)
{
    for (uint32_t i = 0; i < platform_count; i++)
        if (!strcmp(platforms[i].triple, triple))
            return &platforms[i];
    return NULL;
}
