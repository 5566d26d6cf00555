/* A linked DLL becomes the artifact's file (coff.h): weights in place, note sealed, whole or not at all.
 *
 * The weights' section is the last except for those that a loader may leave out, which nothing refers to: making it
 * longer moves those and the symbols, by numbers in headers.
 */
#include <stdio.h>

#include "codegen/container/bytes.h"
#include "codegen/container/coff.h"
#include "codegen/names.h"
#include "codegen/sink.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { SECTION_BYTES = sizeof(struct coff_section), PLACEHOLDER = 64, EXPORTS = 0, RELOCATIONS = 5 };

struct image {
    const struct linked *l;
    unsigned char *data;
    size_t size;
    unsigned char *head, *optional, *sections;
    uint32_t n_sections;
    unsigned char *table, *weights, *note; /* heads of sections; weights NULL: none */
};

static uint32_t word(const unsigned char *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static void set_word(unsigned char *at, uint64_t value)
{
    uint32_t x = (uint32_t)value;
    memcpy(at, &x, sizeof x);
}

/* Of a section's head. */
static unsigned char *virtual_size(unsigned char *head)
{
    return head + 8;
}
static unsigned char *address(unsigned char *head)
{
    return head + 12;
}
static unsigned char *raw_size(unsigned char *head)
{
    return head + 16;
}
static unsigned char *raw_at(unsigned char *head)
{
    return head + 20;
}

static bool broken(struct image *im, const char *what)
{
    return error_internal(im->l->ctx, (src_id){0}, "the linked file is not as expected: %s", what);
}

static bool is_named(const unsigned char *head, const char *name)
{
    return strncmp((const char *)head, name, 8) == 0;
}

/* May `bytes` at the section's start be patched? The section must lie before the weights: they grow, and what follows
 * them moves. */
static bool is_patchable(const struct image *im, unsigned char *head, size_t bytes)
{
    uint64_t end = im->weights ? word(raw_at(im->weights)) : im->size;
    return word(raw_at(head)) % 8 == 0 && word(raw_size(head)) >= bytes &&
           (uint64_t)word(raw_at(head)) + word(raw_size(head)) <= end;
}

/* Where the file has the image's heads. */
static bool find_heads(struct image *im)
{
    uint64_t pe = im->size >= COFF_PE_AT + 4 ? word(im->data + COFF_PE_AT) : im->size, at = pe + 4;
    struct coff_head head;
    if (at + sizeof head + COFF_OPTIONAL_BYTES > im->size || memcmp(im->data + pe, "PE\0\0", 4) != 0)
        return broken(im, "no PE file");
    memcpy(&head, im->data + at, sizeof head);
    im->head = im->data + at;
    im->optional = im->head + sizeof head;
    im->sections = im->optional + head.optional_bytes;
    im->n_sections = head.n_sections;
    return (at + sizeof head + head.optional_bytes + (uint64_t)head.n_sections * SECTION_BYTES <= im->size &&
            head.optional_bytes >= COFF_OPTIONAL_BYTES + 16 * 8) ||
           broken(im, "section table");
}

static unsigned char *directory(const struct image *im, int which)
{
    return im->optional + COFF_OPTIONAL_BYTES + which * 8;
}

/* A long name of a section is a number, of a place in the table of names. */
static bool keep_section_names(struct image *im, const char *text, uint64_t bytes, struct strbuf *names)
{
    for (uint32_t i = 0; i < im->n_sections; i++) {
        char *name = (char *)im->sections + i * SECTION_BYTES, old[9] = "";
        if (*name != '/')
            continue;
        memcpy(old, name, 8);
        uint64_t at = strtoull(old + 1, NULL, 10);
        if (at >= bytes || !memchr(text + at, 0, bytes - at))
            return broken(im, "a section's name");
        memset(name, 0, 8);
        memcpy(name, old, (size_t)snprintf(old, sizeof old, "/%u", (unsigned)names->n % 10000000));
        strbuf_append(names, text + at, strlen(text + at) + 1);
    }
    return true;
}

/* The symbols come last. Those of functions stay, under their names. */
static bool name_functions(struct image *im)
{
    struct coff_head head;
    if (!find_heads(im))
        return false;
    memcpy(&head, im->head, sizeof head);
    uint64_t at = head.symbols_at, text = at + (uint64_t)head.n_symbols * COFF_SYMBOL_BYTES;
    if (!at)
        return true;
    if (text + 4 > im->size || word(im->data + text) > im->size - text)
        return broken(im, "symbol table");
    uint64_t bytes = word(im->data + text);
    for (uint32_t i = 0; i < im->n_sections; i++)
        if ((uint64_t)word(raw_at(im->sections + i * SECTION_BYTES)) +
                word(raw_size(im->sections + i * SECTION_BYTES)) >
            at)
            return broken(im, "something after the names");
    struct strbuf out = strbuf_of(im->l->arena), names = strbuf_of(im->l->arena);
    strbuf_append(&names, "\0\0\0", 4);
    if (!keep_section_names(im, (const char *)im->data + text, bytes, &names))
        return false;
    strbuf_append(&out, im->data, at);
    head.n_symbols = 0;
    for (uint64_t k = at; k + COFF_SYMBOL_BYTES <= text; k += (1 + (uint64_t)im->data[k + 17]) * COFF_SYMBOL_BYTES) {
        const unsigned char *s = im->data + k;
        char inlined[9] = "";
        const char *name = memcpy(inlined, s, 8);
        uint16_t section, type;
        memcpy(&section, s + 12, sizeof section);
        memcpy(&type, s + 14, sizeof type);
        if (type != COFF_FUNCTION)
            continue;
        if (!word(s)) {
            name = (const char *)im->data + text + word(s + 4);
            if (word(s + 4) >= bytes || !memchr(name, 0, bytes - word(s + 4)))
                return broken(im, "a symbol's name");
        }
        coff_put_symbol(&out, &names, names_find(im->l->names, name), word(s + 8), section, type, s[16]);
        head.n_symbols++;
    }
    set_word((unsigned char *)names.data, names.n);
    strbuf_append(&out, names.data, names.n);
    memcpy(out.data + (im->head - im->data), &head, sizeof head);
    im->data = (unsigned char *)out.data;
    im->size = out.n;
    return true;
}

/* The linker calls the library as its output, which is "-". Its name is COFF_NAME, which lies after the note. */
static bool name_library(struct image *im)
{
    uint32_t exports = word(directory(im, EXPORTS)), n = sizeof COFF_NAME, bytes = word(virtual_size(im->note));
    if (bytes < n || bytes > word(raw_size(im->note)) ||
        memcmp(im->data + word(raw_at(im->note)) + bytes - n, COFF_NAME, n) != 0)
        return false;
    for (uint32_t i = 0; i < im->n_sections; i++) {
        unsigned char *head = im->sections + i * SECTION_BYTES;
        if (exports - word(address(head)) < word(raw_size(head)) &&
            word(raw_size(head)) - (exports - word(address(head))) >= 40) {
            set_word(im->data + word(raw_at(head)) + (exports - word(address(head))) + 12,
                     word(address(im->note)) + bytes - n);
            return true;
        }
    }
    return false;
}

/* The linker is ours, but its output is still a file: every offset is checked before it is used. */
static bool find_parts(struct image *im, bool has_weights)
{
    if (!name_functions(im) || !find_heads(im))
        return false;
    for (uint32_t i = 0; i < im->n_sections; i++) {
        unsigned char *head = im->sections + i * SECTION_BYTES;
        if ((uint64_t)word(raw_at(head)) + word(raw_size(head)) > im->size)
            return broken(im, "a section outside the file");
        im->table = is_named(head, COFF_TABLE) ? head : im->table;
        im->weights = is_named(head, COFF_WEIGHTS) ? head : im->weights;
        im->note = is_named(head, COFF_NOTE) ? head : im->note;
    }
    if (!im->note || !is_patchable(im, im->note, sizeof(struct mcc_note)))
        return broken(im, "note");
    if (!im->table || !is_patchable(im, im->table, sizeof(struct mcc_rt_desc)))
        return broken(im, "table");
    if (!name_library(im))
        return broken(im, "the library's name");
    uint32_t section_unit = word(im->optional + 32), file_unit = word(im->optional + 36);
    if (im->weights && (!section_unit || !file_unit || word(virtual_size(im->weights)) != PLACEHOLDER ||
                        word(raw_size(im->weights)) != round_to(PLACEHOLDER, file_unit)))
        return broken(im, "placeholder");
    return has_weights == (im->weights != NULL) || broken(im, "weights");
}

/* Lengthens the weights' section to `size`; the bytes of the file that follow them for padding, or UINT64_MAX after a
 * diagnostic. */
static uint64_t grow(struct image *im, uint64_t size)
{
    uint32_t section_unit = word(im->optional + 32), file_unit = word(im->optional + 36),
             at = word(address(im->weights));
    uint64_t raw = round_to(size, file_unit), old_raw = word(raw_size(im->weights));
    uint64_t moved = round_to(size, section_unit) - round_to(word(virtual_size(im->weights)), section_unit);
    if (word(im->optional + 56) + moved > COFF_IMAGE_MAX) {
        error_limit(im->l->ctx, (src_id){0}, COFF_TOO_LARGE);
        return UINT64_MAX;
    }
    for (uint32_t i = 0; i < im->n_sections; i++) {
        unsigned char *head = im->sections + i * SECTION_BYTES;
        if (word(address(head)) <= at)
            continue;
        if (!(word(head + 36) & COFF_DISCARDABLE))
            return broken(im, "a section after the weights"), UINT64_MAX;
        set_word(address(head), word(address(head)) + moved);
        set_word(raw_at(head), word(raw_at(head)) + raw - old_raw);
    }
    unsigned char *relocations = directory(im, RELOCATIONS);
    set_word(im->head + 8, word(im->head + 8) ? word(im->head + 8) + raw - old_raw : 0);
    if (word(relocations) > at)
        set_word(relocations, word(relocations) + moved);
    set_word(virtual_size(im->weights), size);
    set_word(raw_size(im->weights), raw);
    set_word(im->optional + 8, word(im->optional + 8) + raw - old_raw);
    set_word(im->optional + 56, word(im->optional + 56) + moved);
    return raw - size;
}

/* The file without its weights: padding takes the place of the placeholder. False after a diagnostic. */
static bool cut_placeholder(struct image *im, uint64_t cut)
{
    uint64_t hole = word(raw_size(im->weights)), pad = grow(im, embedded_size(im->l->weights));
    if (pad == UINT64_MAX)
        return false;
    unsigned char *whole = arena_alloc(im->l->arena, im->size + pad);
    memcpy(whole, im->data, cut);
    memset(whole + cut, 0, pad);
    memcpy(whole + cut + pad, im->data + cut + hole, im->size - cut - hole);
    im->size += pad - hole;
    im->data = whole;
    return true;
}

bool coff_library(const struct linked *l)
{
    struct image im = {.l = l, .size = l->bytes.size};
    const bool embedded = embedded_size(l->weights) > 0;
    if (!note_fits(l))
        return false;
    im.data = arena_copy(l->arena, l->bytes.data, l->bytes.size);
    if (!find_parts(&im, embedded))
        return false;
    struct library_file f = {.l = l, .desc = word(raw_at(im.table)), .note = word(raw_at(im.note))};
    f.cut = embedded ? word(raw_at(im.weights)) : im.size;
    if (embedded && !cut_placeholder(&im, f.cut))
        return false;
    f.data = im.data;
    f.size = im.size;
    return library_put(&f);
}
