/* A linked image becomes the artifact's file: weights in place, note sealed, whole or not at all.
 *
 * The weights never pass through the linker. Their segment is the last one, so making it longer moves nothing that
 * code knows of: only sections after it in the file (symbols, names, the section table), whose places are numbers in
 * headers.
 */
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/container/elf.h"
#include "codegen/names.h"
#include "codegen/sidecar.h"
#include "codegen/sink.h"
#include "codegen/table.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { TAIL_ALIGN = 64 };

struct image {
    struct context *ctx;
    unsigned char *data;           /* own copy, patched */
    size_t size;
    Elf64_Ehdr *head;
    Elf64_Shdr *sections;
    Elf64_Shdr *weights;           /* NULL: none */
    uint64_t desc, note;           /* file offsets of mcc_rt_model and the note */
    const struct weights_writer *writer;
    const char *query;             /* the exported symbol */
    struct arena *arena;
    struct sink *library;          /* with a sidecar: the library, while the sidecar is being written */
};

static bool broken(struct image *im, const char *what)
{
    return error_internal(im->ctx, (src_id){0}, "the linked file is not as expected: %s", what);
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

/* The names of symbols are the last thing in the file but for the section table, so longer ones move only that. */
static bool name_functions(struct image *im, const struct function_names *names)
{
    struct strbuf text, out;
    uint32_t k = 0, n = im->head->e_shnum;
    while (k < n && im->sections[k].sh_type != SHT_SYMTAB)
        k++;
    if (k == n || im->sections[k].sh_link >= n || im->sections[k].sh_offset % 8)
        return broken(im, "symbol table");
    Elf64_Shdr *old = &im->sections[im->sections[k].sh_link];
    for (uint32_t i = 0; i < n; i++)
        if (im->sections[i].sh_type != SHT_NOBITS && im->sections[i].sh_offset > old->sh_offset)
            return broken(im, "something behind the names");
    if (im->head->e_shoff < old->sh_offset || old->sh_size == 0 || im->data[old->sh_offset + old->sh_size - 1] != 0)
        return broken(im, "names");
    Elf64_Sym *sym = (Elf64_Sym *)(void *)(im->data + im->sections[k].sh_offset);
    strbuf_init(&text, im->arena);
    strbuf_append(&text, "", 1);
    for (uint64_t i = 0; i < im->sections[k].sh_size / sizeof *sym; i++) {
        if (sym[i].st_name >= old->sh_size)
            return broken(im, "a symbol's name");
        const char *name = (const char *)im->data + old->sh_offset + sym[i].st_name;
        if (ELF64_ST_TYPE(sym[i].st_info) == STT_FUNC)
            name = names_find(names, name);
        sym[i].st_name = *name ? (Elf64_Word)text.n : 0;
        if (*name)
            strbuf_append(&text, name, strlen(name) + 1);
    }
    old->sh_size = text.n;
    strbuf_init(&out, im->arena);
    strbuf_append(&out, im->data, old->sh_offset);
    strbuf_append(&out, text.data, text.n);
    while (out.n % 8)
        strbuf_append(&out, "", 1);
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
            return broken(im, "a segment behind the weights");
        }
    }
    for (uint32_t i = 0; i < im->head->e_shnum; i++)
        if (im->sections[i].sh_offset > at)
            im->sections[i].sh_offset += delta;
    im->weights->sh_size = size;
    im->head->e_shoff += delta;
    return found || broken(im, "no segment for the weights");
}

/* The note's hash covers all but the weights and itself. Fields point into im->data, which is the file without them. */
static void seal(struct image *im, uint64_t cut, uint64_t embedded, uint64_t file_size, const char *query)
{
    struct mcc_note *note = (struct mcc_note *)(void *)(im->data + im->note);
    note->sealed = 1;
    note->file_size = file_size;
    note->weights_offset = embedded ? cut : file_size;
    note->weights_size = embedded;
    note->weights_padding = im->writer->padding;
    memset(note->query, 0, sizeof note->query);
    memcpy(note->query, query, strlen(query));
    note->hash = 0;
    note->hash = XXH64(im->data, im->size, 0);
}

/* im->data becomes head, padding, tail, the file without its weights: the placeholder makes room for the padding that
 * follows them. Returns where they go, 0 after a diagnostic. */
static uint64_t cut_placeholder(struct image *im)
{
    uint64_t size = im->writer->size, cut = im->weights->sh_offset, hole = im->weights->sh_size;
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

static struct mcc_rt_desc *desc_of(struct image *im)
{
    return (struct mcc_rt_desc *)(void *)(im->data + im->desc);
}

static uint64_t embedded_size(const struct weights_writer *w)
{
    return w->sidecar ? 0 : w->size;
}

static bool write_library(struct image *im, struct sink *s)
{
    uint64_t embedded = embedded_size(im->writer), cut = embedded ? cut_placeholder(im) : im->size;
    if (cut == 0 || !sink_put(s, im->data, cut))
        return false;
    if (embedded && !sink_weights(s, im->writer, &desc_of(im)->weights_hash))
        return false;
    if (!sink_put(s, im->data + cut, im->size - cut))
        return false;
    seal(im, cut, embedded, s->written, im->query);
    return sink_fits(s, im->writer->sidecar ? im->writer->size : 0) &&
           sink_patch(s, desc_of(im), sizeof *desc_of(im), im->desc) &&
           sink_patch(s, im->data + im->note, sizeof(struct mcc_note), im->note);
}

/* The library is complete and on the disk before the sidecar takes its name: all that can fail then is a rename. */
static bool write_sidecar(void *user, struct sink *side)
{
    struct image *im = user;
    struct mcc_rt_desc *desc = desc_of(im);
    struct mcc_note *note = (struct mcc_note *)(void *)(im->data + im->note);
    if (!sidecar_put(side, im->arena, im->writer, &desc->weights_hash, &desc->sidecar_head_hash))
        return false;
    note->sidecar_size = side->written;
    return write_library(im, im->library) && sink_sync(im->library);
}

static bool write_image(void *user, struct sink *s)
{
    struct image *im = user;
    if (!im->writer->size || !im->writer->sidecar)
        return write_library(im, s);
    im->library = s;
    return sink_file(im->ctx, im->arena, im->writer->sidecar, write_sidecar, im);
}

bool elf_library(const struct linked *l)
{
    struct image im = {
        .ctx = l->ctx, .arena = l->arena, .size = l->bytes.size, .writer = l->weights, .query = l->query};
    if (strlen(l->query) >= sizeof((struct mcc_note *)0)->query)
        return error_at(l->ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'prefix' is too long for the names that it begins; give a shorter one");
    im.data = arena_copy(l->arena, l->bytes.data, l->bytes.size);
    return check_sections(&im) && name_functions(&im, l->names) && find_parts(&im, embedded_size(l->weights) > 0) &&
           sink_file(l->ctx, l->arena, l->path, write_image, &im);
}
