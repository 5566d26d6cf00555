/* OUTPUT_OBJECT, OUTPUT_ARCHIVE: a relocatable file merged by lld -r becomes an object that links with any other.
 *
 * Everything but the query function turns local, so two artifacts in one program do not meet: the symbol table is
 * sorted anew (locals first, as ELF wants), relocations follow. The query function takes its prefixed name. The
 * weights go after everything else: sections of a relocatable file may lie anywhere.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/elf.h"
#include "codegen/names.h"
#include "codegen/sink.h"
#include "codegen/table.h"
#include "runtime/rt.h"

#define MEMBER_MAX 9999999999u     /* ten digits are all that an archive's header has */
enum { WEIGHTS_ALIGN = 64, ADDRESS_SIGNIFICANCE = 0x6fff4c03 /* SHT_LLVM_ADDRSIG */ };

struct merged {
    const struct linked *l;
    unsigned char *data;
    size_t size;
    Elf64_Ehdr *head;
    Elf64_Shdr *sections;
    Elf64_Shdr *symtab, *strtab, *weights;
    uint64_t desc;                 /* file offset of mcc_rt_model */
    struct strbuf names;           /* the new string table */
};

static bool broken(struct merged *m, const char *what)
{
    return error_internal(m->l->ctx, (src_id){0}, "the merged object is not as expected: %s", what);
}

static bool read_sections(struct merged *m)
{
    m->head = (Elf64_Ehdr *)(void *)m->data;
    if (m->size < sizeof *m->head || memcmp(m->data, ELFMAG, SELFMAG) != 0 || m->head->e_type != ET_REL)
        return broken(m, "no relocatable file");
    uint64_t at = m->head->e_shoff, n = m->head->e_shnum;
    if (at % 8 || at > m->size || n * sizeof(Elf64_Shdr) > m->size - at || m->head->e_shstrndx >= n)
        return broken(m, "section table");
    m->sections = (Elf64_Shdr *)(void *)(m->data + at);
    for (uint64_t i = 0; i < n; i++) {
        Elf64_Shdr *s = &m->sections[i];
        if (s->sh_type != SHT_NOBITS && (s->sh_offset > m->size || s->sh_size > m->size - s->sh_offset))
            return broken(m, "a section outside the file");
        if (s->sh_type == SHT_SYMTAB)
            m->symtab = s;
    }
    if (!m->symtab || m->symtab->sh_link >= n || m->symtab->sh_offset % 8)
        return broken(m, "symbol table");
    m->strtab = &m->sections[m->symtab->sh_link];
    const Elf64_Shdr *names = &m->sections[m->head->e_shstrndx];
    for (uint64_t i = 0; i < n; i++)
        if (m->sections[i].sh_name < names->sh_size &&
            strcmp((const char *)m->data + names->sh_offset + m->sections[i].sh_name, ".mcc.weights") == 0)
            m->weights = &m->sections[i];
    return true;
}

/* ---- symbols ---- */

static const char *symbol_name(const struct merged *m, const Elf64_Sym *s)
{
    return s->st_name < m->strtab->sh_size ? (const char *)m->data + m->strtab->sh_offset + s->st_name : "";
}

/* Makes own symbols local, renames the query function, finds the table. */
static bool edit_symbols(struct merged *m, Elf64_Sym *sym, uint64_t n)
{
    bool found = false;
    for (uint64_t i = 1; i < n; i++) {
        const char *name = symbol_name(m, &sym[i]);
        uint64_t place = sym[i].st_shndx;
        if (strcmp(name, TABLE_MODEL) == 0 && place < m->head->e_shnum)
            m->desc = m->sections[place].sh_offset + sym[i].st_value;
        if (strcmp(name, "mcc_query") == 0) {
            found = true;
            sym[i].st_name = put_name(&m->names, m->l->query);
        } else if (ELF64_ST_BIND(sym[i].st_info) != STB_LOCAL && place != SHN_UNDEF) {
            const char *text = ELF64_ST_TYPE(sym[i].st_info) == STT_FUNC ? names_find(m->l->names, name) : name;
            sym[i].st_info = ELF64_ST_INFO(STB_LOCAL, ELF64_ST_TYPE(sym[i].st_info));
            sym[i].st_other = STV_DEFAULT;
            if (text != name)
                sym[i].st_name = put_name(&m->names, text);
        } else if (place == SHN_UNDEF && strncmp(name, "pthread_", 8) == 0) {
            /* Weak for shared objects (runtime/linux/rt_threads.c); a static link takes from an archive only what is
             * needed. */
            sym[i].st_info = ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(sym[i].st_info));
        }
    }
    if (!found || m->desc == 0 || m->desc % 8 || m->desc > m->size - sizeof(struct mcc_rt_desc))
        return broken(m, "table or query function");
    return true;
}

/* Sorts locals before the rest; moved[old index] = new index. */
static uint32_t *sort_symbols(struct merged *m, Elf64_Sym *sym, uint64_t n)
{
    Elf64_Sym *sorted = NEW_ARRAY(m->l->arena, Elf64_Sym, n);
    uint32_t *moved = NEW_ARRAY(m->l->arena, uint32_t, n), next = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < n; i++) {
            if ((ELF64_ST_BIND(sym[i].st_info) == STB_LOCAL) != (pass == 0))
                continue;
            sorted[next] = sym[i];
            moved[i] = next++;
        }
        if (pass == 0)
            m->symtab->sh_info = next;
    }
    memcpy(sym, sorted, n * sizeof *sym);
    return moved;
}

static bool move_references(struct merged *m, const uint32_t *moved, uint64_t n)
{
    for (uint32_t k = 0; k < m->head->e_shnum; k++) {
        Elf64_Shdr *s = &m->sections[k];
        if (s->sh_type == ADDRESS_SIGNIFICANCE)
            s->sh_type = SHT_NULL; /* symbol numbers in another form, a hint only */
        if (s->sh_type == SHT_GROUP || s->sh_type == SHT_REL)
            return broken(m, "a kind of section that is not used");
        if (s->sh_type != SHT_RELA)
            continue;
        Elf64_Rela *rela = (Elf64_Rela *)(void *)(m->data + s->sh_offset);
        if (s->sh_offset % 8)
            return broken(m, "relocations");
        for (uint64_t i = 0; i < s->sh_size / sizeof *rela; i++) {
            uint64_t old = ELF64_R_SYM(rela[i].r_info);
            if (old >= n)
                return broken(m, "a relocation's symbol");
            rela[i].r_info = ELF64_R_INFO((uint64_t)moved[old], ELF64_R_TYPE(rela[i].r_info));
        }
    }
    return true;
}

static bool localize(struct merged *m)
{
    Elf64_Sym *sym = (Elf64_Sym *)(void *)(m->data + m->symtab->sh_offset);
    uint64_t n = m->symtab->sh_size / sizeof *sym;
    strbuf_init(&m->names, m->l->arena);
    strbuf_append(&m->names, m->data + m->strtab->sh_offset, m->strtab->sh_size);
    return edit_symbols(m, sym, n) && move_references(m, sort_symbols(m, sym, n), n);
}

/* ---- the file ---- */

static bool pad_to(struct sink *s, uint64_t align)
{
    static const char zeros[WEIGHTS_ALIGN];
    return s->written % align == 0 || sink_put(s, zeros, align - s->written % align);
}

static struct mcc_rt_desc *desc_of(struct merged *m)
{
    return (struct mcc_rt_desc *)(void *)(m->data + m->desc);
}

/* Headers name places after what is written first, so they are patched in at the end. */
static bool write_body(void *user, struct sink *s)
{
    struct merged *m = user;
    struct span head = m->l->kind == OUTPUT_ARCHIVE ? archive_head(m->l->arena, m->l->query, 0) : (struct span){"", 0};
    uint64_t base = head.size, elsewhere = m->l->weights->sidecar ? m->l->weights->size : 0;
    if (!sink_put(s, head.data, head.size) || !sink_put(s, m->data, m->size))
        return false;
    m->strtab->sh_offset = s->written - base;
    m->strtab->sh_size = m->names.n;
    if (!sink_put(s, m->names.data, m->names.n))
        return false;
    if (embedded_size(m->l->weights)) {
        if (!pad_to(s, WEIGHTS_ALIGN))
            return false;
        m->weights->sh_offset = s->written - base;
        m->weights->sh_size = m->l->weights->size;
        if (!sink_weights(s, m->l->weights, &desc_of(m)->weights_hash))
            return false;
    }
    if (m->l->kind != OUTPUT_ARCHIVE)
        return sink_fits(s, elsewhere) && sink_patch(s, m->data, m->size, 0);
    uint64_t size = s->written - base;
    if (size > MEMBER_MAX)
        return error_limit(m->l->ctx, (src_id){0},
                           "an archive's members have at most 9999999999 bytes; write an object");
    head = archive_head(m->l->arena, m->l->query, size);
    return (size % 2 == 0 || sink_put(s, "\n", 1)) && sink_fits(s, elsewhere) &&
           sink_patch(s, head.data, head.size, 0) && sink_patch(s, m->data, m->size, base);
}

bool elf_merged(const struct linked *l)
{
    struct merged m = {.l = l, .size = l->bytes.size};
    m.data = arena_copy(l->arena, l->bytes.data, l->bytes.size);
    if (!read_sections(&m) || (embedded_size(l->weights) && !m.weights && !broken(&m, "weights")) || !localize(&m))
        return false;
    return artifact_put(l, desc_of(&m), NULL, write_body, &m);
}
