/* ELF64, little-endian: the little of it that mcc writes and patches itself, without LLVM. Layouts: System V ABI,
 * chapters 4 and 5; processor supplements for the numbers.
 */
#pragma once

#include <elf.h>

#include "codegen/container/container.h"

struct elf_machine {
    const char *arch;          /* as in platform.def */
    uint16_t machine;
    uint32_t flags;            /* e_flags */
    uint32_t abs64,
        relative;  /* relocation types: a 64-bit address; one from the load address. 0: static networks only */
    const char *emulation;     /* of the linker */
};
/* By the number in an ELF header; NULL: not one of ours. That of this machine; EM_NONE: not one of ours. */
const struct elf_machine *elf_machine_by_number(uint16_t number);
const struct elf_machine *elf_machine_of(const struct platform *);
uint16_t elf_machine_here(void);

/* A shared object that only names symbols: what lld needs to write NEEDED soname. */
struct span elf_stub(struct arena *, const struct platform *, const char *const *names, uint32_t n);

/* The row of container.c. */
struct span elf_object(struct arena *, const struct platform *, const struct object *);
void elf_link(struct linking *);
bool elf_library(const struct linked *);
bool elf_merged(const struct linked *);
bool elf_network(struct context *, const struct static_network *, const struct platform *, const char *path);
