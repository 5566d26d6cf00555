/* The table of formats (container.h). */
#include "codegen/container/container.h"

#include "codegen/container/coff.h"
#include "codegen/container/elf.h"
#include "codegen/container/macho.h"
#include "codegen/container/reading.h"
#include "codegen/container/wasm.h"

static const struct container containers[] = {
    {"coff", coff_head, coff_read, coff_object, coff_link, coff_library, coff_merged, NULL, NULL},
    {"elf", elf_head, elf_read, elf_object, elf_link, elf_library, elf_merged, elf_network, NULL},
    {"macho", macho_begins, macho_read, macho_object, macho_link, macho_library, macho_merged, NULL, NULL},
    {"wasm", wasm_head, NULL, NULL, NULL, wasm_library, NULL, NULL, wasm_link},
};

const struct container *container_of(const struct platform *platform)
{
    return platform ? ROW_NAMED(containers, COUNT_OF(containers), platform->container) : NULL;
}

const struct container *container_by_head(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < COUNT_OF(containers); i++)
        if (containers[i].begins(head, n))
            return &containers[i];
    return NULL;
}
