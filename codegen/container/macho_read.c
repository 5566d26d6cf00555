/* Reads libraries of artifacts for macOS and iOS and their objects (reading.h). A library's pointers are its chained
 * fixups. Of a universal file the first slice is read.
 */
#include "codegen/container/macho.h"
#include "codegen/container/reading.h"

enum { SLICES_MAX = 8, SLICE_BYTES = 20, FAT_BYTES = 8, COMMANDS_MAX = 1 << 16, PARTS_MORE = 16, SECTIONS_MAX = 255 };

struct macho_file {
    struct file_reading *f;
    struct macho_head head;
    const char *commands;
    struct macho_symbols symbols;
    struct macho_piece fixups;
    const char *rows, *text; /* symbols; names, followed by a NUL */
    VEC(struct macho_section) sections; /* as numbered, from 1 on: the first stands for none */
    VEC(struct macho_segment) segments;
    uint64_t chains; /* of pointers, walked so far */
};

static uint32_t big_word(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Files of Java begin as universal ones do, with a version in place of a small number. */
static bool is_fat(const unsigned char *head, size_t n)
{
    return n >= FAT_BYTES && big_word(head) == MACHO_FAT && big_word(head + 4) > 0 && big_word(head + 4) <= SLICES_MAX;
}

bool macho_begins(const unsigned char *head, size_t n)
{
    uint32_t magic;
    if (n < sizeof(struct macho_head))
        return false;
    memcpy(&magic, head, sizeof magic);
    return magic == MACHO_MAGIC || is_fat(head, n);
}

static bool take_slice(struct file_reading *f)
{
    unsigned char head[FAT_BYTES + SLICES_MAX * SLICE_BYTES];
    if (!reading_at(f, head, FAT_BYTES, 0) || !is_fat(head, FAT_BYTES))
        return true;
    uint32_t n = big_word(head + 4);
    if (!reading_at(f, head + FAT_BYTES, n * SLICE_BYTES, FAT_BYTES))
        return reading_damaged(f, "headers");
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *row = head + FAT_BYTES + i * SLICE_BYTES;
        if (big_word(row + 8) > f->size || big_word(row + 12) > f->size - big_word(row + 8))
            return reading_damaged(f, "a slice leaves the file");
    }
    f->base += big_word(head + FAT_BYTES + 8);
    f->size = big_word(head + FAT_BYTES + 12);
    f->slice = true;
    return true;
}

static bool read_head(struct macho_file *m)
{
    struct file_reading *f = m->f;
    const struct macho_head *h = &m->head;
    if (!take_slice(f))
        return false;
    if (!reading_at(f, &m->head, sizeof m->head, 0) || h->magic != MACHO_MAGIC)
        return reading_damaged(f, "headers");
    if (!macho_machine_by_cpu(h->cpu) || (h->type != MACHO_OBJECT && h->type != MACHO_LIBRARY))
        return reading_refuse(f, "not made by mcc: another kind of file or machine");
    f->linked = h->type == MACHO_LIBRARY;
    f->in_place = !f->linked;
    if (h->commands_bytes > COMMANDS_MAX)
        return reading_damaged(f, "commands");
    f->headers = sizeof *h + h->commands_bytes;
    f->parts = NEW_ARRAY(f->arena, struct file_part, h->commands_bytes / sizeof(struct macho_section) + PARTS_MORE);
    m->commands = reading_piece(f, sizeof *h, h->commands_bytes);
    VEC_PUSH(f->arena, &m->sections, (struct macho_section){0});
    return m->commands;
}

static enum part_role role_of(const struct macho_section *s)
{
    if (!s->size || (s->flags & MACHO_TYPE_BITS) == MACHO_ZERO_FILLED)
        return PART_ABSENT;
    if (macho_is_named(s->name, MACHO_WEIGHTS))
        return PART_WEIGHTS;
    if (macho_is_named(s->name, MACHO_GRAPH))
        return PART_GRAPH;
    if (macho_is_named(s->name, MACHO_BUILD))
        return PART_BUILD;
    return s->flags & MACHO_CODE ? PART_CODE : PART_DATA;
}

static bool add_part(struct file_reading *f, const struct file_part *part)
{
    if (part->role != PART_ABSENT && (part->at > f->size || part->size > f->size - part->at))
        return reading_damaged(f, "a section leaves the file");
    f->parts[f->n++] = *part;
    return true;
}

static bool read_segment(struct macho_file *m, const char *at, uint32_t bytes)
{
    struct file_reading *f = m->f;
    struct macho_segment s;
    if (bytes < sizeof s)
        return reading_damaged(f, "a command");
    memcpy(&s, at, sizeof s);
    VEC_PUSH(f->arena, &m->segments, s);
    if (m->sections.n + (uint64_t)s.n_sections > SECTIONS_MAX + 1 || m->segments.n > SECTIONS_MAX)
        return reading_damaged(f, "sections");
    if (s.n_sections > (bytes - sizeof s) / sizeof(struct macho_section) || s.at > f->size || s.bytes > f->size - s.at)
        return reading_damaged(f, "a segment leaves the file");
    if (macho_is_named(s.name, "__LINKEDIT")) {
        uint64_t place = sizeof m->head + (uint64_t)(at - m->commands);
        f->unsealed[0] = (struct file_hole){place + offsetof(struct macho_segment, room), sizeof s.room};
        f->unsealed[1] = (struct file_hole){place + offsetof(struct macho_segment, bytes), sizeof s.bytes};
    }
    for (uint32_t i = 0; i < s.n_sections; i++) {
        struct macho_section section;
        memcpy(&section, at + sizeof s + i * sizeof section, sizeof section);
        VEC_PUSH(f->arena, &m->sections, section);
        struct file_part part = {.name = arena_strndup(f->arena, section.name, strnlen(section.name, 16)),
                                 .at = section.at,
                                 .size = section.size,
                                 .address = section.address,
                                 .role = role_of(&section)};
        if (!add_part(f, &part))
            return false;
        if (part.role == PART_DATA && macho_is_named(section.name, MACHO_NOTE))
            f->note = f->n;
        if (part.role == PART_DATA && macho_is_named(section.name, MACHO_TABLE) && !f->model)
            f->model = section.address;
    }
    return true;
}

static bool read_symbols(struct macho_file *m)
{
    struct file_reading *f = m->f;
    const struct macho_symbols *s = &m->symbols;
    uint64_t bytes = (uint64_t)s->n * sizeof(struct macho_symbol);
    if (s->n > SYMBOLS_MAX)
        return reading_damaged(f, "symbol table");
    f->symbols = s->n > 0;
    m->rows = reading_piece(f, s->at, bytes);
    m->text = m->rows ? reading_piece(f, s->text_at, s->text_bytes) : NULL;
    return m->text && add_part(f, &(struct file_part){.name = "", .at = s->at, .size = bytes, .role = PART_FORMAT}) &&
           add_part(f, &(struct file_part){.name = "", .at = s->text_at, .size = s->text_bytes, .role = PART_FORMAT});
}

static bool read_piece(struct macho_file *m, const char *at, uint32_t bytes)
{
    struct file_reading *f = m->f;
    struct macho_piece p;
    if (bytes < sizeof p)
        return reading_damaged(f, "a command");
    memcpy(&p, at, sizeof p);
    if (p.command.kind == MACHO_FIXUPS)
        m->fixups = p;
    if (p.command.kind == MACHO_SIGNATURE) {
        f->sealed = p.at;
        f->unsealed[2] = (struct file_hole){
            sizeof m->head + (uint64_t)(at - m->commands) + offsetof(struct macho_piece, bytes), sizeof p.bytes};
    }
    return add_part(f, &(struct file_part){.name = "", .at = p.at, .size = p.bytes, .role = PART_TABLES});
}

static bool read_command(struct macho_file *m, struct macho_command c, const char *at, uint32_t *seen)
{
    uint32_t bit = c.kind == MACHO_SYMBOLS     ? 1
                   : c.kind == MACHO_STARTS    ? 2
                   : c.kind == MACHO_EXPORTS   ? 4
                   : c.kind == MACHO_FIXUPS    ? 8
                   : c.kind == MACHO_SIGNATURE ? 16
                                               : 0;
    if (*seen & bit)
        return reading_damaged(m->f, "a command");
    *seen |= bit;
    if (c.kind == MACHO_SEGMENT)
        return read_segment(m, at, c.bytes);
    if (bit == 1 && c.bytes < sizeof m->symbols)
        return reading_damaged(m->f, "a command");
    if (bit == 1)
        memcpy(&m->symbols, at, sizeof m->symbols);
    return bit < 2 || read_piece(m, at, c.bytes);
}

static bool read_commands(struct macho_file *m)
{
    uint32_t seen = 0, bytes = m->head.commands_bytes;
    for (uint32_t at = 0; at < bytes;) {
        struct macho_command c;
        if (bytes - at < sizeof c)
            return reading_damaged(m->f, "commands");
        memcpy(&c, m->commands + at, sizeof c);
        if (c.bytes < sizeof c || c.bytes > bytes - at)
            return reading_damaged(m->f, "commands");
        if (!read_command(m, c, m->commands + at, &seen))
            return false;
        at += c.bytes;
    }
    return true;
}

static const char *symbol_name(const struct macho_file *m, const struct macho_symbol *s)
{
    const char *name = s->name < m->symbols.text_bytes ? m->text + s->name : "";
    return *name == '_' ? name + 1 : name;
}

static struct macho_symbol symbol_at(const struct macho_file *m, uint32_t i)
{
    struct macho_symbol s;
    memcpy(&s, m->rows + (uint64_t)i * sizeof s, sizeof s);
    return s;
}

static void read_functions(struct macho_file *m)
{
    struct file_reading *f = m->f;
    for (uint32_t i = 0; i < m->symbols.n; i++) {
        const struct macho_symbol s = symbol_at(m, i);
        if ((s.type & MACHO_STAB) || (s.type & MACHO_TYPE) != MACHO_TYPE || s.section >= m->sections.n)
            continue;
        const struct macho_section *section = &m->sections.data[s.section];
        uint64_t at = s.value - section->address;
        if (role_of(section) == PART_CODE && at < section->size)
            VEC_PUSH(f->arena, &f->functions,
                     ((struct file_function){symbol_name(m, &s), s.value, section->size - at}));
    }
    reading_function_sizes(f);
}

/* ---- pointers ---- */

static const struct file_part *part_at(const struct file_reading *f, uint64_t address)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct file_part *p = &f->parts[i];
        if (p->role == PART_DATA && p->bytes && address >= p->address && address - p->address < p->size &&
            p->size - (address - p->address) >= sizeof(uint64_t))
            return p;
    }
    return NULL;
}

/* One page's chain: each pointer says how far the next one is, in units of 4 bytes. A page has bytes in the file. */
static bool read_chain(struct macho_file *m, uint64_t page, uint64_t at, uint64_t page_size)
{
    struct file_reading *f = m->f;
    const struct file_part *p = NULL;
    if (m->chains++ > f->size / 1024 + SECTIONS_MAX)
        return reading_damaged(f, "fixups");
    for (uint64_t next = 1; next && at < page_size;) {
        if (!p || page + at < p->address || page + at - p->address + 8 > p->size)
            p = part_at(f, page + at);
        uint64_t word;
        if (!p)
            break;
        memcpy(&word, p->bytes + (page + at - p->address), sizeof word);
        if (!(word >> 63)) {
            if (f->pointers.n > f->size / 4)
                return reading_damaged(f, "fixups");
            VEC_PUSH(f->arena, &f->pointers, ((struct file_pointer){page + at, word & 0xfffffffffu}));
        }
        next = word >> 51 & 0xfff;
        at += 4 * next;
    }
    return true;
}

/* Pages of a segment: size, bytes of a page, form of pointers, the segment's place, count, where each begins. */
static bool read_starts(struct macho_file *m, const char *bytes, uint64_t size)
{
    struct file_reading *f = m->f;
    uint32_t own;
    uint16_t page_size, form, n, start;
    uint64_t place;
    enum { FIRST = 22, NONE = 0xffff };
    if (size < FIRST)
        return reading_damaged(f, "fixups");
    memcpy(&own, bytes, sizeof own);
    memcpy(&page_size, bytes + 4, sizeof page_size);
    memcpy(&form, bytes + 6, sizeof form);
    memcpy(&place, bytes + 8, sizeof place);
    memcpy(&n, bytes + 20, sizeof n);
    if (n * sizeof start > size - FIRST || (form != 2 && form != 6))
        return reading_damaged(f, "fixups");
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&start, bytes + FIRST + i * sizeof start, sizeof start);
        if (start != NONE && !read_chain(m, place + (uint64_t)i * page_size, start, page_size))
            return false;
    }
    return true;
}

static bool read_fixups(struct macho_file *m)
{
    struct file_reading *f = m->f;
    uint64_t size = m->fixups.bytes;
    const char *bytes = reading_piece(f, m->fixups.at, size);
    uint32_t at, n, place;
    if (!bytes || size < 8)
        return bytes != NULL;
    memcpy(&at, bytes + 4, sizeof at);
    if (at > size || size - at < sizeof n)
        return reading_damaged(f, "fixups");
    memcpy(&n, bytes + at, sizeof n);
    if (n > m->segments.n || (size - at) / sizeof place <= n)
        return reading_damaged(f, "fixups");
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&place, bytes + at + (i + (uint64_t)1) * sizeof place, sizeof place);
        if (place && (place > size - at || !read_starts(m, bytes + at + place, size - at - place)))
            return place > size - at ? reading_damaged(f, "fixups") : false;
    }
    return true;
}

/* Of an object's table: the pointer's own bytes say what is added to the symbol's address, or the address itself. */
static bool read_relocations(struct macho_file *m, const struct macho_section *s)
{
    struct file_reading *f = m->f;
    const char *bytes = reading_piece(f, s->relocations_at,
                                      (uint64_t)s->n_relocations * sizeof(struct macho_relocation));
    for (uint32_t i = 0; bytes && i < s->n_relocations; i++) {
        struct macho_relocation r;
        memcpy(&r, bytes + (uint64_t)i * sizeof r, sizeof r);
        uint32_t number = r.info & MACHO_NUMBER;
        if (r.info >> MACHO_KIND_SHIFT != MACHO_UNSIGNED || ((r.info & MACHO_BY_SYMBOL) && number >= m->symbols.n))
            continue;
        uint64_t to = r.info & MACHO_BY_SYMBOL ? symbol_at(m, number).value : 0;
        VEC_PUSH(f->arena, &f->pointers, ((struct file_pointer){s->address + r.at, to}));
    }
    return bytes != NULL;
}

bool macho_read(struct file_reading *f)
{
    struct macho_file m = {.f = f};
    if (!read_head(&m) || !read_commands(&m) || !read_symbols(&m) || !reading_data(f))
        return false;
    read_functions(&m);
    if (f->linked)
        return !m.fixups.bytes || read_fixups(&m);
    for (uint32_t i = 1; i < m.sections.n; i++) {
        if (macho_is_named(m.sections.data[i].name, MACHO_TABLE) && !read_relocations(&m, &m.sections.data[i]))
            return false;
        f->headers += (uint64_t)m.sections.data[i].n_relocations * sizeof(struct macho_relocation);
    }
    return true;
}
