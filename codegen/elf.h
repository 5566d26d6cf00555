/* ELF64, little-endian: the little of it that mcc writes and patches itself, without LLVM.
 *
 * A relocatable object is built as two sections, one of plain bytes and one with pointers, and symbols in them; that
 * is all the artifact's table needs. Layouts: System V ABI, chapters 4 and 5; processor supplements for the numbers.
 */
#ifndef MCC_CODEGEN_ELF_H
#define MCC_CODEGEN_ELF_H

#include <elf.h>

#include "ir/base/base.h"

struct elf_machine {
    const char *arch;          /* first component of the triple, as in rt_objects */
    uint16_t machine;
    uint32_t flags;            /* e_flags */
    uint32_t abs64, relative;  /* relocation types: a 64-bit address; one from the load address */
    uint64_t page;             /* largest page size of its Linux kernels */
    const char *emulation;     /* of the linker */
};
/* By triple; NULL: not one of ours. */
const struct elf_machine *elf_machine(const char *triple);
/* By the number in an ELF header; NULL: not one of ours. That of this machine; EM_NONE: not one of ours. */
const struct elf_machine *elf_machine_by_number(uint16_t number);
uint16_t elf_machine_here(void);

enum elf_section { ELF_RODATA = 1, ELF_RELRO, ELF_WEIGHTS, ELF_GRAPH, ELF_SECTIONS };

struct elf_reloc {
    uint64_t at;
    uint32_t symbol;
    int64_t addend;
};
struct elf_object {
    struct arena *arena;
    const struct elf_machine *machine;
    struct strbuf bytes[ELF_SECTIONS];
    VEC(Elf64_Sym) symbols;
    struct strbuf names;
    VEC(struct elf_reloc) relocs;         /* all in ELF_RELRO */
};

void elf_object_init(struct elf_object *, struct arena *, const struct elf_machine *);
/* Appends bytes at an aligned offset of a section; the offset. */
uint64_t elf_put(struct elf_object *, enum elf_section, const void *, size_t size, size_t align);
/* Symbols: hidden and global. Sections are symbols 1..4, for elf_pointer. */
void elf_define(struct elf_object *, const char *name, enum elf_section, uint64_t offset, uint64_t size);
uint32_t elf_undefined(struct elf_object *, const char *name);
/* The 8 bytes at `at` of ELF_RELRO become the address of symbol + addend. */
void elf_pointer(struct elf_object *, uint64_t at, uint32_t symbol, uint64_t addend);
struct span elf_object_finish(struct elf_object *);

/* A copy of a relocatable object whose defined symbol `from` is called `to`. NULL: it has none, or is not such an
 * object. */
struct span elf_rename(struct arena *, struct span object, const char *from, const char *to);

/* A shared object that only names symbols: what lld needs to write NEEDED soname. */
struct span elf_stub(struct arena *, const struct elf_machine *, const char *soname, const char *const *names,
                     uint32_t n);

/* A Unix archive without index: members in order, names made here. */
struct span elf_archive(struct arena *, const struct span *members, uint32_t n);

#endif
