/* Functions of a loaded artifact: the symbol table of its file, which was made a moment ago. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "cli/commands/compare/code_check.h"

enum { LIBRARY_MOST = 2000 * 1000 * 1000 };

bool code_symbols(struct code_check *m, const char *library)
{
    struct context *ctx = m->run.c.ctx;
    struct span file;
    struct link_map *map;
    if (dlinfo(m->run.s.lib->handle, RTLD_DI_LINKMAP, &map) != 0)
        return error_env(ctx, "the loader does not say where '%s' is", library);
    m->base = map->l_addr;
    if (m->symbols.n)
        return true;
    if (!text_file_read(ctx, library, "the library", LIBRARY_MOST, &file))
        return false;
    const char *bytes = file.data;
    const Elf64_Ehdr *head = (const void *)bytes;
    const Elf64_Shdr *sections = (const void *)(bytes + head->e_shoff);
    for (uint32_t k = 0; k < head->e_shnum; k++) {
        if (sections[k].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *sym = (const void *)(bytes + sections[k].sh_offset);
        const char *names = bytes + sections[sections[k].sh_link].sh_offset;
        for (uint64_t i = 0; i < sections[k].sh_size / sizeof *sym; i++)
            if (ELF64_ST_TYPE(sym[i].st_info) == STT_FUNC)
                VEC_PUSH(&ctx->session, &m->symbols, ((struct code_symbol){names + sym[i].st_name, sym[i].st_value}));
    }
    return true;
}

uintptr_t code_symbol(const struct code_check *m, const char *name)
{
    const size_t n = strlen(name);
    for (uint32_t i = 0; i < m->symbols.n; i++) {
        const char *s = m->symbols.data[i].name;
        if (strncmp(s, name, n) == 0 && (s[n] == 0 || s[n] == '.'))
            return m->base + m->symbols.data[i].at;
    }
    return 0;
}
