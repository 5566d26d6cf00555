/* Writes relocatable objects and stub libraries (elf.h). */
#include "codegen/container/bytes.h"
#include "codegen/container/elf.h"

static const struct elf_machine machines[] = {
    {"x86_64", EM_X86_64, 0, R_X86_64_64, R_X86_64_RELATIVE, "elf_x86_64"},
    {"aarch64", EM_AARCH64, 0, R_AARCH64_ABS64, R_AARCH64_RELATIVE, "aarch64linux"},
    {"thumbv7em", EM_ARM, EF_ARM_EABI_VER5, 0, 0, ""},
    {"thumbv8.1m.main+mve", EM_ARM, EF_ARM_EABI_VER5, 0, 0, ""},
    {"riscv64", EM_RISCV, EF_RISCV_RVC | EF_RISCV_FLOAT_ABI_DOUBLE, R_RISCV_64, R_RISCV_RELATIVE, "elf64lriscv"},
    {"riscv32imafc", EM_RISCV, EF_RISCV_RVC | EF_RISCV_FLOAT_ABI_SINGLE, 0, 0, ""},
    {"riscv32imac", EM_RISCV, EF_RISCV_RVC, 0, 0, ""},
};

const struct elf_machine *elf_machine_of(const struct platform *platform)
{
    return ROW_NAMED(machines, COUNT_OF(machines), platform->arch);
}

const struct elf_machine *elf_machine_by_number(uint16_t number)
{
    for (size_t i = 0; i < COUNT_OF(machines); i++)
        if (machines[i].machine == number)
            return &machines[i];
    return NULL;
}

uint16_t elf_machine_here(void)
{
#if defined(__x86_64__)
    return EM_X86_64;
#elif defined(__aarch64__)
    return EM_AARCH64;
#elif defined(__riscv)
    return EM_RISCV;
#else
    return EM_NONE;
#endif
}

static Elf64_Ehdr file_head(const struct elf_machine *m, uint16_t type)
{
    Elf64_Ehdr h = {.e_type = type, .e_machine = m->machine, .e_version = EV_CURRENT, .e_flags = m->flags};
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT;
    h.e_ehsize = sizeof h;
    h.e_shentsize = sizeof(Elf64_Shdr);
    return h;
}

/* ---- relocatable objects ---- */

/* Sections are symbols 1..5. */
enum { SEC_RELA = SECTIONS, SEC_SYMTAB, SEC_STRTAB, SEC_NAMES, SEC_STACK, SEC_COUNT };

static struct span rela_bytes(struct arena *arena, const struct elf_machine *m, const struct object *o)
{
    Elf64_Rela *rela = NEW_ARRAY(arena, Elf64_Rela, o->pointers.n + 1);
    for (uint32_t i = 0; i < o->pointers.n; i++) {
        const struct object_pointer *p = &o->pointers.data[i];
        rela[i] = (Elf64_Rela){p->at, ELF64_R_INFO((uint64_t)p->symbol, m->abs64), (int64_t)p->addend};
    }
    return (struct span){rela, o->pointers.n * sizeof *rela};
}

/* Hidden and global, except for those of the sections. */
static struct span symbol_bytes(struct arena *arena, const struct object *o, struct strbuf *names)
{
    Elf64_Sym *symbols = NEW_ARRAY(arena, Elf64_Sym, SECTIONS + o->symbols.n);
    strbuf_append(names, "", 1);
    for (uint16_t s = SECTION_RODATA; s < SECTIONS; s++) {
        symbols[s].st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
        symbols[s].st_shndx = s;
    }
    for (uint32_t i = 0; i < o->symbols.n; i++) {
        const struct object_symbol *s = &o->symbols.data[i];
        symbols[SECTIONS + i] = (Elf64_Sym){.st_name = put_name(names, s->name),
                                            .st_info = ELF64_ST_INFO(STB_GLOBAL, s->section ? STT_OBJECT : STT_NOTYPE),
                                            .st_other = STV_HIDDEN,
                                            .st_shndx = (uint16_t)s->section,
                                            .st_value = s->offset,
                                            .st_size = s->size};
    }
    return (struct span){symbols, (SECTIONS + o->symbols.n) * sizeof *symbols};
}

static const char section_names[] =
    "\0.rodata\0.data.rel.ro\0.mcc.weights\0.mcc.graph\0.mcc.build\0.rela.data.rel.ro\0.symtab\0.strtab\0"
    ".shstrtab\0.note.GNU-stack\0";

/* The file: header, the bodies of its sections 1 to n - 1 at their alignments, the n section headers. */
static struct span file_bytes(struct arena *arena, Elf64_Ehdr *head, Elf64_Shdr *sec, const struct span *body,
                              uint16_t n, uint16_t names)
{
    struct strbuf out = strbuf_of(arena);
    strbuf_append(&out, head, sizeof *head);
    for (uint16_t s = 1; s < n; s++) {
        put_aligned(&out, sec[s].sh_addralign);
        sec[s].sh_offset = out.n;
        sec[s].sh_size = body[s].size;
        if (body[s].size)
            strbuf_append(&out, body[s].data, body[s].size);
    }
    put_aligned(&out, 8);
    head->e_shoff = out.n;
    head->e_shnum = n;
    head->e_shstrndx = names;
    strbuf_append(&out, sec, n * sizeof *sec);
    memcpy(out.data, head, sizeof *head);
    return (struct span){out.data, out.n};
}

static void section_head(Elf64_Shdr *h, const char *name, uint32_t type, uint64_t flags, uint64_t align)
{
    const char *at = section_names + 1;
    while (*at && strcmp(at, name) != 0)
        at += strlen(at) + 1;
    *h = (Elf64_Shdr){.sh_name = (uint32_t)(at - section_names), .sh_type = type, .sh_flags = flags};
    h->sh_addralign = align;
}

struct span elf_object(struct arena *arena, const struct platform *platform, const struct object *o)
{
    const struct elf_machine *m = elf_machine_of(platform);
    Elf64_Ehdr head = file_head(m, ET_REL);
    Elf64_Shdr sec[SEC_COUNT] = {0};
    struct span body[SEC_COUNT] = {0};
    section_head(&sec[SECTION_RODATA], ".rodata", SHT_PROGBITS, SHF_ALLOC, 64);
    section_head(&sec[SECTION_RELRO], ".data.rel.ro", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 16);
    section_head(&sec[SECTION_WEIGHTS], ".mcc.weights", SHT_PROGBITS, SHF_ALLOC, 64);
    section_head(&sec[SECTION_GRAPH], ".mcc.graph", SHT_PROGBITS, 0, 1);
    section_head(&sec[SECTION_BUILD], ".mcc.build", SHT_PROGBITS, 0, 1);
    section_head(&sec[SEC_RELA], ".rela.data.rel.ro", SHT_RELA, SHF_INFO_LINK, 8);
    section_head(&sec[SEC_SYMTAB], ".symtab", SHT_SYMTAB, 0, 8);
    section_head(&sec[SEC_STRTAB], ".strtab", SHT_STRTAB, 0, 1);
    section_head(&sec[SEC_NAMES], ".shstrtab", SHT_STRTAB, 0, 1);
    section_head(&sec[SEC_STACK], ".note.GNU-stack", SHT_PROGBITS, 0, 1);
    for (int s = SECTION_RODATA; s < SECTIONS; s++)
        body[s] = (struct span){o->bytes[s].data, o->bytes[s].n};
    struct strbuf names = strbuf_of(arena);
    body[SEC_RELA] = rela_bytes(arena, m, o);
    body[SEC_SYMTAB] = symbol_bytes(arena, o, &names);
    body[SEC_STRTAB] = (struct span){names.data, names.n};
    body[SEC_NAMES] = (struct span){section_names, sizeof section_names};
    sec[SEC_RELA].sh_link = SEC_SYMTAB;
    sec[SEC_RELA].sh_info = SECTION_RELRO;
    sec[SEC_RELA].sh_entsize = sizeof(Elf64_Rela);
    sec[SEC_SYMTAB].sh_link = SEC_STRTAB;
    sec[SEC_SYMTAB].sh_info = SECTIONS;      /* first symbol that is not local */
    sec[SEC_SYMTAB].sh_entsize = sizeof(Elf64_Sym);
    return file_bytes(arena, &head, sec, body, SEC_COUNT, SEC_NAMES);
}

/* ---- stubs ---- */

enum { STUB_TEXT = 1, STUB_DYNSYM, STUB_DYNSTR, STUB_DYNAMIC, STUB_NAMES, STUB_COUNT };

struct span elf_stub(struct arena *arena, const struct platform *platform, const char *const *names, uint32_t n)
{
    static const char stub_names[] = "\0.text\0.dynsym\0.dynstr\0.dynamic\0.shstrtab";
    Elf64_Ehdr head = file_head(elf_machine_of(platform), ET_DYN);
    Elf64_Shdr sec[STUB_COUNT] = {0};
    Elf64_Sym *sym = NEW_ARRAY(arena, Elf64_Sym, n + 1);
    struct strbuf text = strbuf_of(arena);
    strbuf_append(&text, "", 1);
    Elf64_Dyn dynamic[2] = {{.d_tag = DT_SONAME, .d_un.d_val = put_name(&text, platform->library)}, {.d_tag = DT_NULL}};
    for (uint32_t i = 0; i < n; i++) {
        sym[i + 1].st_name = put_name(&text, names[i]);
        sym[i + 1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
        sym[i + 1].st_shndx = STUB_TEXT;
    }
    const struct span body[STUB_COUNT] = {{0},
                                          {"\0\0\0\0", 4},
                                          {sym, (n + 1) * sizeof *sym},
                                          {text.data, text.n},
                                          {dynamic, sizeof dynamic},
                                          {stub_names, sizeof stub_names}};
    static const uint32_t type[STUB_COUNT] = {0, SHT_PROGBITS, SHT_DYNSYM, SHT_STRTAB, SHT_DYNAMIC, SHT_STRTAB};
    static const uint32_t name[STUB_COUNT] = {0, 1, 7, 15, 23, 32};
    for (int s = 1; s < STUB_COUNT; s++)
        sec[s] = (Elf64_Shdr){
            .sh_name = name[s], .sh_type = type[s], .sh_addralign = 8, .sh_flags = s == STUB_NAMES ? 0 : SHF_ALLOC};
    sec[STUB_DYNSYM].sh_link = sec[STUB_DYNAMIC].sh_link = STUB_DYNSTR;
    sec[STUB_DYNSYM].sh_info = 1;
    sec[STUB_DYNSYM].sh_entsize = sizeof *sym;
    sec[STUB_DYNAMIC].sh_entsize = sizeof *dynamic;
    return file_bytes(arena, &head, sec, body, STUB_COUNT, STUB_NAMES);
}
