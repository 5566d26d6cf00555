/* A linked image becomes the artifact's file: weights in place, note sealed, whole or not at all.
 *
 * The weights never pass through the linker. Their segment is the last one, so making it longer moves nothing that
 * code knows of: only sections after it in the file (symbols, names, the section table), whose places are numbers in
 * headers.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/elf.h"
#include "codegen/names.h"
#include "codegen/sink.h"
#include "codegen/table.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { TAIL_ALIGN = 64 };

struct image {
    const struct linked *l;
    unsigned char *data;           /* own copy, patched */
    size_t size;
    Elf64_Ehdr *head;
    Elf64_Shdr *sections;
    Elf64_Shdr *weights;           /* NULL: none */
    uint64_t desc, note;           /* file offsets of mcc_rt_model and the note */
};

static bool broken(struct image *im, const char *what)
{
    return error_internal(im->l->ctx, (src_id){0}, "the linked file is not as expected: %s", what);
}

static const char *section_name(const struct image *im, const Elf64_Shdr *s)
{
    const Elf64_Shdr *names = &im->sections[im->head->e_shstrndx];
    return (const char *)im->data + names->sh_offset + s->sh_name;
}

/* The linker is ours, but its output is still a file: every offset is checked before it is used. */
static bool check_sections(struct image *im)
{
    im->head = (Elf64_Ehdr *)(void *)im->data;
    if (im->size < sizeof *im->head || memcmp(im->data, ELFMAG, SELFMAG) != 0)
        return broken(im, "no ELF file");
    uint64_t table = im->head->e_shoff, n = im->head->e_shnum;
    if (table % 8 || table > im->size || n * sizeof(Elf64_Shdr) > im->size - table || im->head->e_shstrndx >= n)
        return broken(im, "section table");
    uint64_t programs = im->head->e_phoff;
    if (programs % 8 || programs > im->size || im->head->e_phnum * sizeof(Elf64_Phdr) > im->size - programs)
        return broken(im, "program headers");
    im->sections = (Elf64_Shdr *)(void *)(im->data + table);
    for (uint64_t i = 0; i < n; i++) {
        const Elf64_Shdr *s = &im->sections[i];
        bool stored = s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL;
        if (stored && (s->sh_offset > im->size || s->sh_size > im->size - s->sh_offset))
            return broken(im, "a section outside the file");
    }
    const Elf64_Shdr *names = &im->sections[im->head->e_shstrndx];
    if (names->sh_size == 0 || im->data[names->sh_offset + names->sh_size - 1] != 0)
        return broken(im, "section names");
    for (uint64_t i = 0; i < n; i++)
        if (im->sections[i].sh_name >= names->sh_size)
            return broken(im, "a section's name");
    return true;
}

/* File offset of an address; 0: not in the file. */
static uint64_t offset_of(const struct image *im, uint64_t address)
{
    const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(im->data + im->head->e_phoff);
    for (uint32_t i = 0; i < im->head->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && address >= p[i].p_vaddr && address - p[i].p_vaddr < p[i].p_filesz)
            return p[i].p_offset + (address - p[i].p_vaddr);
    return 0;
}

static uint64_t find_symbol(const struct image *im, const char *name)
{
    for (uint32_t k = 0; k < im->head->e_shnum; k++) {
        const Elf64_Shdr *s = &im->sections[k];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= im->head->e_shnum)
            continue;
        const Elf64_Shdr *text = &im->sections[s->sh_link];
        const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)(im->data + s->sh_offset);
        for (uint64_t i = 0; i < s->sh_size / sizeof *sym; i++)
            if (sym[i].st_name < text->sh_size &&
                strcmp((const char *)im->data + text->sh_offset + sym[i].st_name, name) == 0)
                return offset_of(im, sym[i].st_value);
    }
    return 0;
}

static bool find_parts(struct image *im, bool has_weights)
{
    for (uint32_t i = 0; i < im->head->e_shnum; i++) {
        Elf64_Shdr *s = &im->sections[i];
        if (strcmp(section_name(im, s), ".mcc.weights") == 0)
            im->weights = s;
        if (strcmp(section_name(im, s), ".note.mcc") == 0 && s->sh_size == sizeof(struct mcc_note))
            im->note = s->sh_offset;
    }
    im->desc = find_symbol(im, TABLE_MODEL);
    if (im->note == 0 || im->note % 8)
        return broken(im, "note");
    if (im->desc == 0 || im->desc > im->size - sizeof(struct mcc_rt_desc) || im->desc % 8)
        return broken(im, "table");
    if (has_weights != (im->weights != NULL))
        return broken(im, "weights");
    return true;
}

/* The names of symbols are the last thing in the file except for the section table, so longer ones move only that. */
static bool name_functions(struct image *im)
{
    uint32_t k = 0, n = im->head->e_shnum;
    while (k < n && im->sections[k].sh_type != SHT_SYMTAB)
        k++;
    if (k == n || im->sections[k].sh_link >= n || im->sections[k].sh_offset % 8)
        return broken(im, "symbol table");
    Elf64_Shdr *old = &im->sections[im->sections[k].sh_link];
    for (uint32_t i = 0; i < n; i++)
        if (im->sections[i].sh_type != SHT_NOBITS && im->sections[i].sh_offset > old->sh_offset)
            return broken(im, "something after the names");
    if (im->head->e_shoff < old->sh_offset || old->sh_size == 0 || im->data[old->sh_offset + old->sh_size - 1] != 0)
        return broken(im, "names");
    Elf64_Sym *sym = (Elf64_Sym *)(void *)(im->data + im->sections[k].sh_offset);
    struct strbuf text = strbuf_of(im->l->arena);
    strbuf_append(&text, "", 1);
    for (uint64_t i = 0; i < im->sections[k].sh_size / sizeof *sym; i++) {
        if (sym[i].st_name >= old->sh_size)
            return broken(im, "a symbol's name");
        const char *name = (const char *)im->data + old->sh_offset + sym[i].st_name;
        if (ELF64_ST_TYPE(sym[i].st_info) == STT_FUNC)
            name = names_find(im->l->names, name);
        sym[i].st_name = *name ? put_name(&text, name) : 0;
    }
    old->sh_size = text.n;
    struct strbuf out = strbuf_of(im->l->arena);
    strbuf_append(&out, im->data, old->sh_offset);
    strbuf_append(&out, text.data, text.n);
    put_aligned(&out, 8);
    uint64_t table = out.n;
    strbuf_append(&out, im->sections, n * sizeof *im->sections);
    im->data = (unsigned char *)out.data;
    im->size = out.n;
    im->head = (Elf64_Ehdr *)(void *)im->data;
    im->head->e_shoff = table;
    im->sections = (Elf64_Shdr *)(void *)(im->data + table);
    return true;
}

/* Lengthens the weights' segment and shifts what lies after it in the file by delta. */
static bool patch_headers(struct image *im, uint64_t size, uint64_t delta)
{
    Elf64_Phdr *p = (Elf64_Phdr *)(void *)(im->data + im->head->e_phoff);
    uint64_t at = im->weights->sh_offset;
    bool found = false;
    for (uint32_t i = 0; i < im->head->e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_offset == at) {
            p[i].p_filesz = p[i].p_memsz = size;
            found = true;
        } else if (p[i].p_type == PT_LOAD && p[i].p_vaddr > im->weights->sh_addr) {
            return broken(im, "a segment after the weights");
        }
    }
    for (uint32_t i = 0; i < im->head->e_shnum; i++)
        if (im->sections[i].sh_offset > at)
            im->sections[i].sh_offset += delta;
    im->weights->sh_size = size;
    im->head->e_shoff += delta;
    return found || broken(im, "no segment for the weights");
}

/* im->data becomes head, padding, tail, the file without its weights: the placeholder makes room for the padding that
 * follows them. Returns where they go, 0 after a diagnostic. */
static uint64_t cut_placeholder(struct image *im)
{
    uint64_t size = im->l->weights->size, cut = im->weights->sh_offset, hole = im->weights->sh_size;
    uint64_t pad = (TAIL_ALIGN - (cut + size) % TAIL_ALIGN) % TAIL_ALIGN;
    if (hole != TAIL_ALIGN)
        return broken(im, "placeholder");
    if (!patch_headers(im, size, size + pad - hole))
        return 0;
    memmove(im->data + cut + pad, im->data + cut + hole, im->size - cut - hole);
    memset(im->data + cut, 0, pad);
    im->size -= hole - pad;
    return cut;
}

bool elf_library(const struct linked *l)
{
    struct image im = {.l = l, .size = l->bytes.size};
    const bool embedded = embedded_size(l->weights) > 0;
    if (!note_fits(l))
        return false;
    im.data = arena_copy(l->arena, l->bytes.data, l->bytes.size);
    if (!check_sections(&im) || !name_functions(&im) || !find_parts(&im, embedded))
        return false;
    const uint64_t cut = embedded ? cut_placeholder(&im) : im.size;
    return cut && library_put(&(struct library_file){
                      .l = l, .data = im.data, .size = im.size, .cut = cut, .desc = im.desc, .note = im.note});
}
