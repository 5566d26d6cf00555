/* The table of platforms, ir/target/platform.def, as rows. */
#pragma once

#include "ir/base/base.h"

struct platform {
    const char *arch, *system, *triple, *container;
    uint32_t pointer_bytes;
    uint64_t page;
    const char *library, *runtime;
};

extern const struct platform platforms[];
extern const uint32_t platform_count;

/* NULL: none. system NULL: the first of the architecture. */
const struct platform *platform_find(const char *arch, const char *system);
/* By LLVM's triple, as the rows have it. */
const struct platform *platform_of_triple(const char *triple);
