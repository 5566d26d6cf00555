/* A symbol of a relocatable object under another name (elf.h): workers make every function under the same one. The
 * table of names is written again after everything else, the new name at its end. */
#include <stddef.h>
#include <string.h>

#include "codegen/container/bytes.h"
#include "codegen/container/elf.h"

/* The section's head; false: there is none such in the file. */
static bool read_head(struct span file, const Elf64_Ehdr *e, uint64_t i, Elf64_Shdr *head)
{
    uint64_t at = e->e_shoff + i * sizeof *head;
    if (i >= e->e_shnum || e->e_shoff > file.size || !bytes_inside(file.size, at, sizeof *head))
        return false;
    memcpy(head, (const char *)file.data + at, sizeof *head);
    return head->sh_type == SHT_NOBITS || bytes_inside(file.size, head->sh_offset, head->sh_size);
}

/* Where in the file the symbol `name` is that the object defines; 0: nowhere. */
static uint64_t find_symbol(struct span file, const Elf64_Shdr *symbols, const Elf64_Shdr *names, const char *name)
{
    size_t length = strlen(name) + 1;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym s;
        memcpy(&s, (const char *)file.data + symbols->sh_offset + at, sizeof s);
        if (s.st_shndx != SHN_UNDEF && s.st_name < names->sh_size && length <= names->sh_size - s.st_name &&
            memcmp((const char *)file.data + names->sh_offset + s.st_name, name, length) == 0)
            return symbols->sh_offset + at;
    }
    return 0;
}

struct span elf_rename(struct arena *arena, struct span object, const char *from, const char *to)
{
    Elf64_Ehdr e;
    Elf64_Shdr symbols = {0}, names;
    if (object.size < sizeof e)
        return (struct span){0};
    memcpy(&e, object.data, sizeof e);
    for (uint64_t i = 0; symbols.sh_type != SHT_SYMTAB; i++)
        if (!read_head(object, &e, i, &symbols))
            return (struct span){0};
    uint64_t head_at = e.e_shoff + symbols.sh_link * sizeof names;
    if (!read_head(object, &e, symbols.sh_link, &names) || names.sh_type != SHT_STRTAB)
        return (struct span){0};
    uint64_t at = find_symbol(object, &symbols, &names, from);
    if (!at)
        return (struct span){0};
    size_t length = strlen(to) + 1, size = object.size + names.sh_size + length;
    char *copy = arena_alloc(arena, size);
    memcpy(copy, object.data, object.size);
    memcpy(copy + object.size, (const char *)object.data + names.sh_offset, names.sh_size);
    memcpy(copy + object.size + names.sh_size, to, length);
    Elf64_Word name = (Elf64_Word)names.sh_size;
    memcpy(copy + at + offsetof(Elf64_Sym, st_name), &name, sizeof name);
    names.sh_offset = object.size;
    names.sh_size += length;
    memcpy(copy + head_at, &names, sizeof names);
    return (struct span){copy, size};
}
