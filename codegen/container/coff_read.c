/* Reads DLLs of artifacts and their objects (reading.h). The pointers of a DLL are those that the loader would move,
 * and what they point to lies in place.
 */

#include "codegen/container/coff.h"
#include "codegen/container/reading.h"

enum { DIR64 = 10, DLL = 0x2000, PE32_PLUS = 0x20b, IMAGE_BASE_AT = 24 };

struct coff_file {
    struct file_reading *f;
    struct coff_head head;
    const struct coff_machine *machine;
    struct coff_section *sections;
    const char *symbols, *text; /* text: names of sections and symbols, followed by a NUL */
    uint64_t text_size;
};

/* An object has no magic number: its machine, no optional header, no flags. */
bool coff_head(const unsigned char *data, size_t n)
{
    struct coff_head h;
    if (n >= 2 && memcmp(data, "MZ", 2) == 0)
        return true;
    if (n < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    return coff_machine_by_number(h.machine) && h.optional_bytes == 0 && h.flags == 0;
}

/* Where the sections' heads are; 0 after a diagnostic. */
static uint64_t read_head(struct coff_file *c)
{
    struct file_reading *f = c->f;
    char magic[4], optional[COFF_OPTIONAL_BYTES];
    uint32_t pe;
    uint16_t kind;
    if (!reading_at(f, magic, 2, 0) || memcmp(magic, "MZ", 2) != 0)
        return reading_at(f, &c->head, sizeof c->head, 0) ? sizeof c->head : reading_damaged(f, "headers");
    f->linked = true;
    if (!reading_at(f, &pe, sizeof pe, COFF_PE_AT) || !reading_at(f, magic, 4, pe) || memcmp(magic, "PE\0\0", 4) != 0 ||
        !reading_at(f, &c->head, sizeof c->head, pe + (uint64_t)4) ||
        !reading_at(f, optional, sizeof optional, pe + (uint64_t)4 + sizeof c->head))
        return reading_damaged(f, "headers");
    memcpy(&kind, optional, sizeof kind);
    memcpy(&f->origin, optional + IMAGE_BASE_AT, sizeof f->origin);
    if (kind != PE32_PLUS || !(c->head.flags & DLL))
        return reading_refuse(f, "not made by mcc: another kind of file or machine");
    return pe + (uint64_t)4 + sizeof c->head + c->head.optional_bytes;
}

/* The symbols, then the names. */
static bool read_text(struct coff_file *c)
{
    struct file_reading *f = c->f;
    uint64_t bytes = (uint64_t)c->head.n_symbols * COFF_SYMBOL_BYTES, at = c->head.symbols_at;
    uint32_t size;
    if (!at)
        return true;
    if (c->head.n_symbols > SYMBOLS_MAX || !reading_at(f, &size, sizeof size, at + bytes) || size < sizeof size)
        return reading_damaged(f, "symbol table");
    if (!(c->symbols = reading_piece(f, at, bytes + size)))
        return false;
    c->text = c->symbols + bytes;
    c->text_size = size;
    f->symbols = c->head.n_symbols > 0;
    f->parts[f->n++] = (struct file_part){.name = "", .at = at, .size = bytes + size, .role = PART_FORMAT};
    return true;
}

static const char *text_at(const struct coff_file *c, uint64_t at)
{
    return at < c->text_size ? c->text + at : "";
}

/* Eight bytes hold a name, or where it is. */
static const char *section_name(const struct coff_file *c, const struct coff_section *s)
{
    char *name = arena_strndup(c->f->arena, s->name, strnlen(s->name, sizeof s->name));
    return *name == '/' ? text_at(c, strtoull(name + 1, NULL, 10)) : name;
}

static const char *symbol_name(const struct coff_file *c, const char *symbol)
{
    uint32_t word[2];
    memcpy(word, symbol, sizeof word);
    return word[0] ? arena_strndup(c->f->arena, symbol, strnlen(symbol, 8)) : text_at(c, word[1]);
}

static enum part_role role_of(const struct coff_section *s, const char *name)
{
    if (!s->size || (s->flags & COFF_UNINITIALIZED))
        return PART_ABSENT;
    if (strcmp(name, COFF_WEIGHTS) == 0)
        return PART_WEIGHTS;
    if (strcmp(name, COFF_GRAPH) == 0)
        return PART_GRAPH;
    if (strcmp(name, COFF_BUILD) == 0)
        return PART_BUILD;
    if (strncmp(name, ".debug_", 7) == 0)
        return PART_DEBUG;
    if (strcmp(name, ".reloc") == 0)
        return PART_TABLES;
    return s->flags & COFF_CODE ? PART_CODE : s->flags & COFF_DATA ? PART_DATA : PART_FORMAT;
}

static bool read_sections(struct coff_file *c)
{
    struct file_reading *f = c->f;
    uint64_t at = read_head(c), n = c->head.n_sections;
    if (!at)
        return false;
    if (!(c->machine = coff_machine_by_number(c->head.machine)))
        return reading_refuse(f, "not made by mcc: another kind of file or machine");
    c->sections = NEW_ARRAY(f->arena, struct coff_section, n + 1);
    f->parts = NEW_ARRAY(f->arena, struct file_part, n + 2);
    f->headers = at + n * sizeof *c->sections;
    if (n && !reading_at(f, c->sections, n * sizeof *c->sections, at))
        return reading_damaged(f, "section table");
    f->n = (uint32_t)n;
    if (!read_text(c))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct coff_section *s = &c->sections[i];
        const char *name = section_name(c, s);
        struct file_part *p = &f->parts[i];
        *p = (struct file_part){.name = name,
                                .at = s->at,
                                .size = f->linked && s->virtual_size < s->size ? s->virtual_size : s->size,
                                .address = f->linked ? s->address : (i + (uint64_t)1) << PART_SHIFT,
                                .role = role_of(s, name)};
        if (p->role != PART_ABSENT && (p->at > f->size || p->size > f->size - p->at))
            return reading_damaged(f, "a section leaves the file");
        if (strcmp(name, COFF_NOTE) == 0 && p->role == PART_DATA)
            f->note = i + 1;
        if (strcmp(name, COFF_TABLE) == 0 && p->role == PART_DATA)
            f->model = p->address;
    }
    return true;
}

static void read_functions(struct coff_file *c)
{
    struct file_reading *f = c->f;
    for (uint64_t i = 0; i < c->head.n_symbols && c->symbols; i++) {
        const char *symbol = c->symbols + i * COFF_SYMBOL_BYTES;
        uint32_t value;
        uint16_t section, type;
        memcpy(&value, symbol + 8, sizeof value);
        memcpy(&section, symbol + 12, sizeof section);
        memcpy(&type, symbol + 14, sizeof type);
        i += (unsigned char)symbol[17];
        if (type != COFF_FUNCTION || section == 0 || section > c->head.n_sections)
            continue;
        const struct file_part *p = &f->parts[section - 1];
        if (p->role == PART_CODE && value < p->size)
            VEC_PUSH(f->arena, &f->functions,
                     ((struct file_function){symbol_name(c, symbol), p->address + value, p->size - value}));
    }
    reading_function_sizes(f);
}

/* Blocks of a page each: its address, the block's bytes, places in it. */
static bool read_base_relocations(struct file_reading *f, struct file_part *p)
{
    const char *bytes = part_bytes(f, p);
    for (uint64_t at = 0; bytes && p->size - at >= 8;) {
        uint32_t head[2];
        memcpy(head, bytes + at, sizeof head);
        if (head[1] < sizeof head || head[1] > p->size - at)
            break;
        for (uint64_t k = sizeof head; k + 2 <= head[1]; k += 2) {
            uint16_t place;
            memcpy(&place, bytes + at + k, sizeof place);
            if (place >> 12 == DIR64)
                VEC_PUSH(f->arena, &f->pointers, ((struct file_pointer){head[0] + (uint64_t)(place & 0xfff), 0}));
        }
        at += head[1];
    }
    return bytes != NULL;
}

/* Of an object's table. */
static bool read_relocations(struct coff_file *c, uint32_t i)
{
    struct file_reading *f = c->f;
    const struct coff_section *s = &c->sections[i];
    uint32_t n = s->n_relocations;
    if ((s->flags & COFF_OVERFLOWS) && !reading_at(f, &n, sizeof n, s->relocations_at))
        return reading_damaged(f, "relocations");
    const char *bytes = reading_piece(f, s->relocations_at, (uint64_t)n * COFF_RELOCATION_BYTES);
    for (uint32_t k = 0; bytes && k < n; k++) {
        uint32_t word[2], value;
        uint16_t type, section;
        memcpy(word, bytes + (uint64_t)k * COFF_RELOCATION_BYTES, sizeof word);
        memcpy(&type, bytes + (uint64_t)k * COFF_RELOCATION_BYTES + 8, sizeof type);
        if (type != c->machine->abs64 || word[1] >= c->head.n_symbols)
            continue;
        const char *symbol = c->symbols + (uint64_t)word[1] * COFF_SYMBOL_BYTES;
        memcpy(&value, symbol + 8, sizeof value);
        memcpy(&section, symbol + 12, sizeof section);
        if (section > 0 && section <= c->head.n_sections)
            VEC_PUSH(f->arena, &f->pointers,
                     ((struct file_pointer){f->parts[i].address + word[0], f->parts[section - 1].address + value}));
    }
    return bytes != NULL;
}

bool coff_read(struct file_reading *f)
{
    struct coff_file c = {.f = f};
    f->in_place = true;
    if (!read_sections(&c) || !reading_data(f))
        return false;
    read_functions(&c);
    for (uint32_t i = 0; i < c.head.n_sections; i++) {
        struct file_part *p = &f->parts[i];
        bool table = !f->linked && p->address == f->model;
        if ((f->linked && strcmp(p->name, ".reloc") == 0 && p->role == PART_TABLES && !read_base_relocations(f, p)) ||
            (table && c.symbols && !read_relocations(&c, i)))
            return false;
        f->headers += f->linked ? 0 : (uint64_t)c.sections[i].n_relocations * COFF_RELOCATION_BYTES;
    }
    return true;
}
