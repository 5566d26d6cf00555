/* Reads ELF files of artifacts (reading.h). Pointers come from the relocations: base + addend in a shared object,
 * symbol
 * + addend in an object.
 */
#include "codegen/container/elf.h"
#include "codegen/container/reading.h"
#include "codegen/table.h"

struct elf_file {
    struct file_reading *f;
    Elf64_Ehdr head;
    const struct elf_machine *machine;
    Elf64_Shdr *sections;
    const Elf64_Sym *symbols;
    uint64_t n_symbols, text_size;
    const char *text; /* names of symbols, followed by a NUL */
};

bool elf_head(const unsigned char *head, size_t n)
{
    return n >= SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0;
}

static bool read_sections(struct elf_file *e)
{
    struct file_reading *f = e->f;
    const Elf64_Ehdr *h = &e->head;
    if (!reading_at(f, &e->head, sizeof e->head, 0))
        return reading_damaged(f, "no ELF file");
    e->machine = elf_machine_by_number(h->e_machine);
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || !e->machine ||
        (h->e_type != ET_DYN && h->e_type != ET_REL))
        return reading_refuse(f, "not made by mcc: another kind of file or machine");
    f->n = h->e_shnum;
    f->linked = h->e_type == ET_DYN;
    f->here = h->e_machine == elf_machine_here();
    f->headers = sizeof e->head + (uint64_t)h->e_phnum * sizeof(Elf64_Phdr) + f->n * sizeof(Elf64_Shdr);
    e->sections = NEW_ARRAY(f->arena, Elf64_Shdr, f->n + 1);
    f->parts = NEW_ARRAY(f->arena, struct file_part, f->n + 1);
    if (f->n &&
        (h->e_shentsize != sizeof *e->sections || !reading_at(f, e->sections, f->n * sizeof *e->sections, h->e_shoff)))
        return reading_damaged(f, "section table");
    for (uint32_t i = 0; i < f->n; i++) {
        const Elf64_Shdr *s = &e->sections[i];
        bool absent = s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL;
        if (!absent && (s->sh_offset > f->size || s->sh_size > f->size - s->sh_offset))
            return reading_damaged(f, "a section leaves the file");
        f->parts[i] = (struct file_part){.name = "",
                                         .at = s->sh_offset,
                                         .size = s->sh_size,
                                         .address = f->linked ? s->sh_addr : (uint64_t)i << PART_SHIFT,
                                         .role = absent ? PART_ABSENT : PART_FORMAT};
    }
    return true;
}

static enum part_role role_of(const struct elf_file *e, const Elf64_Shdr *s, const char *name)
{
    bool plain = s->sh_type == SHT_PROGBITS || s->sh_type == SHT_NOTE, loaded = s->sh_flags & SHF_ALLOC;
    if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS)
        return PART_ABSENT;
    if (strcmp(name, ".mcc.weights") == 0)
        return PART_WEIGHTS;
    if (strncmp(name, ".debug_", 7) == 0 || strncmp(name, ".rela.debug_", 12) == 0)
        return PART_DEBUG;
    if (strcmp(name, ".mcc.graph") == 0)
        return PART_GRAPH;
    if (strcmp(name, ".mcc.build") == 0)
        return PART_BUILD;
    if (s->sh_flags & SHF_EXECINSTR)
        return PART_CODE;
    return plain && loaded                                       ? PART_DATA
           : loaded || (!e->f->linked && s->sh_type == SHT_RELA) ? PART_TABLES
                                                                 : PART_FORMAT;
}

static bool name_parts(struct elf_file *e)
{
    struct file_reading *f = e->f;
    uint32_t at = e->head.e_shstrndx;
    const char *names = at < f->n ? part_bytes(f, &f->parts[at]) : NULL;
    if (at < f->n && !names)
        return false;
    for (uint32_t i = 0; i < f->n; i++) {
        struct file_part *p = &f->parts[i];
        const Elf64_Shdr *s = &e->sections[i];
        p->name = names && s->sh_name < f->parts[at].size ? names + s->sh_name : "";
        p->role = role_of(e, s, p->name);
        if (strcmp(p->name, ".note.mcc") == 0 && p->role == PART_DATA)
            f->note = i + 1;
    }
    return true;
}

static const char *symbol_name(const struct elf_file *e, uint64_t i)
{
    return e->symbols[i].st_name < e->text_size ? e->text + e->symbols[i].st_name : "";
}

static bool read_symbols(struct elf_file *e)
{
    struct file_reading *f = e->f;
    uint32_t k = 0;
    while (k < f->n && (e->sections[k].sh_type != SHT_SYMTAB || e->sections[k].sh_link >= f->n))
        k++;
    if (k == f->n)
        return true;
    uint32_t names = e->sections[k].sh_link;
    e->n_symbols = f->parts[k].size / sizeof *e->symbols;
    if (e->n_symbols > SYMBOLS_MAX)
        return reading_damaged(f, "symbol table");
    e->text = part_bytes(f, &f->parts[names]);
    e->text_size = f->parts[names].size;
    e->symbols = e->text ? (const Elf64_Sym *)(const void *)part_bytes(f, &f->parts[k]) : NULL;
    f->symbols = e->n_symbols > 0;
    for (uint64_t i = 0; e->symbols && i < e->n_symbols; i++) {
        const Elf64_Sym *s = &e->symbols[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC)
            VEC_PUSH(f->arena, &f->functions, ((struct file_function){symbol_name(e, i), s->st_value, s->st_size}));
        if (s->st_shndx < f->n && strcmp(symbol_name(e, i), TABLE_MODEL) == 0)
            f->model = s->st_value + (f->linked ? 0 : f->parts[s->st_shndx].address);
    }
    return e->symbols != NULL;
}

/* The pointers of one section of relocations; in an object only those into sections that are in memory. */
static bool read_relocations(struct elf_file *e, uint32_t i)
{
    struct file_reading *f = e->f;
    const Elf64_Shdr *s = &e->sections[i];
    if (!f->linked && (s->sh_info >= f->n || f->parts[s->sh_info].role != PART_DATA ||
                       !(e->sections[s->sh_info].sh_flags & SHF_WRITE)))
        return true;
    const Elf64_Rela *rela = (const Elf64_Rela *)(const void *)part_bytes(f, &f->parts[i]);
    for (uint64_t k = 0; rela && k < s->sh_size / sizeof *rela; k++) {
        struct file_pointer p = {rela[k].r_offset, (uint64_t)rela[k].r_addend};
        uint64_t type = ELF64_R_TYPE(rela[k].r_info), symbol = ELF64_R_SYM(rela[k].r_info);
        if (type != (f->linked ? e->machine->relative : e->machine->abs64))
            continue;
        if (!f->linked) {
            if (symbol >= e->n_symbols || e->symbols[symbol].st_shndx >= f->n)
                continue;
            p.at += f->parts[s->sh_info].address;
            p.to += f->parts[e->symbols[symbol].st_shndx].address + e->symbols[symbol].st_value;
        }
        VEC_PUSH(f->arena, &f->pointers, p);
    }
    return rela != NULL;
}

bool elf_read(struct file_reading *f)
{
    struct elf_file e = {.f = f};
    if (!read_sections(&e) || !name_parts(&e) || !reading_data(f) || !read_symbols(&e))
        return false;
    for (uint32_t i = 0; i < f->n; i++)
        if (e.sections[i].sh_type == SHT_RELA && !read_relocations(&e, i))
            return false;
    return true;
}
