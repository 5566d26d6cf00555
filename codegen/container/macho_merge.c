/* OUTPUT_OBJECT, OUTPUT_ARCHIVE for macOS and iOS: the model's objects and those of the runtime that they ask for
 * become one object.
 *
 * lld makes no relocatable Mach-O files, so sections are joined here, one after another under their names
 * (macho_join.c). Everything but the query function is local, so two artifacts in one program do not meet.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/macho_merge.h"
#include "codegen/table.h"
#include "runtime/rt.h"

bool macho_broken(struct macho_merged *m, const char *what)
{
    return error_internal(m->ctx, (src_id){0}, "an object is not as expected: %s", what);
}

/* ---- reading ---- */

struct macho_symbol macho_symbol_of(const struct macho_member *o, uint32_t i)
{
    struct macho_symbol s;
    memcpy(&s, o->rows + (uint64_t)i * sizeof s, sizeof s);
    return s;
}

const char *macho_name_of(const struct macho_member *o, const struct macho_symbol *s)
{
    return s->name < o->text_bytes ? o->text + s->name : "";
}

static bool is_defined(const struct macho_symbol *s)
{
    return (s->type & MACHO_TYPE) == MACHO_TYPE;
}

static bool read_sections(struct macho_merged *m, struct macho_member *o, uint64_t at, uint32_t bytes)
{
    struct macho_segment s;
    if (bytes < sizeof s || o->sections)
        return macho_broken(m, "a segment");
    memcpy(&s, o->data + at, sizeof s);
    if (s.n_sections > (bytes - sizeof s) / sizeof *o->sections)
        return macho_broken(m, "sections");
    o->n = s.n_sections;
    o->sections = arena_copy(m->arena, o->data + at + sizeof s, o->n * sizeof *o->sections);
    o->places = NEW_ARRAY(m->arena, struct macho_place, o->n + 1);
    for (uint32_t i = 0; i < o->n; i++) {
        const struct macho_section *section = &o->sections[i];
        bool filled = (section->flags & MACHO_TYPE_BITS) != MACHO_ZERO_FILLED;
        if ((filled && !bytes_inside(o->size, section->at, section->size)) || section->align > 15 ||
            !bytes_inside(o->size, section->relocations_at,
                          (uint64_t)section->n_relocations * sizeof(struct macho_relocation)))
            return macho_broken(m, "a section");
    }
    return true;
}

static bool read_symbols(struct macho_merged *m, struct macho_member *o, uint64_t at, uint32_t number)
{
    struct macho_symbols s;
    memcpy(&s, o->data + at, sizeof s);
    if (!bytes_inside(o->size, s.at, (uint64_t)s.n * sizeof(struct macho_symbol)) ||
        !bytes_inside(o->size, s.text_at, s.text_bytes) ||
        (s.text_bytes && o->data[s.text_at + (uint64_t)s.text_bytes - 1]))
        return macho_broken(m, "symbols");
    o->rows = o->data + s.at;
    o->n_symbols = s.n;
    o->text = o->data + s.text_at;
    o->text_bytes = s.text_bytes;
    o->numbers = NEW_ARRAY(m->arena, uint32_t, s.n + 1);
    for (uint32_t i = 0; i < s.n; i++) {
        const struct macho_symbol symbol = macho_symbol_of(o, i);
        if (is_defined(&symbol) ? !symbol.section || symbol.section > o->n : symbol.type & ~MACHO_EXTERNAL)
            return macho_broken(m, "a symbol");
        if (is_defined(&symbol) && (symbol.type & MACHO_EXTERNAL))
            merging_define(&m->from, macho_name_of(o, &symbol), number, i, NULL);
    }
    return true;
}

static bool read_member(struct macho_merged *m, uint32_t number, struct span object)
{
    struct macho_member *o = &m->members[number];
    struct macho_head head;
    uint64_t at = sizeof head;
    o->data = object.data;
    o->size = object.size;
    if (object.size < sizeof head)
        return macho_broken(m, "its head");
    memcpy(&head, o->data, sizeof head);
    if (head.magic != MACHO_MAGIC || head.cpu != m->machine->cpu || head.type != MACHO_OBJECT)
        return macho_broken(m, "its head");
    for (uint32_t i = 0; i < head.n_commands; i++) {
        struct macho_command c;
        if (!bytes_inside(o->size, at, sizeof(struct macho_symbols)))
            return macho_broken(m, "commands");
        memcpy(&c, o->data + at, sizeof c);
        if (c.bytes < sizeof c || !bytes_inside(o->size, at, c.bytes) ||
            (c.kind == MACHO_SEGMENT && !read_sections(m, o, at, c.bytes)) ||
            (c.kind == MACHO_SYMBOLS && !read_symbols(m, o, at, number)))
            return macho_broken(m, "a command");
        at += c.bytes;
    }
    return true;
}

static bool read_all(struct macho_merged *m)
{
    merging_begin(&m->from, m->l->from, "_");
    m->members = NEW_ARRAY(m->arena, struct macho_member, m->from.n);
    for (uint32_t i = 0; i < m->from.n; i++)
        if (!read_member(m, i, m->from.objects[i]))
            return false;
    return true;
}

/* ---- what is reached: the model's objects, and those that define what others ask for ---- */

static void reach(struct macho_merged *m, uint32_t member)
{
    if (!m->members[member].live)
        VEC_PUSH(m->arena, &m->work, member);
    m->members[member].live = true;
}

static bool reach_all(struct macho_merged *m)
{
    static const char *const first[] = {"_mcc_query", "_mcc_rt_note"};
    for (uint32_t i = 0; i < m->from.n_model; i++)
        reach(m, i);
    for (size_t i = 0; i < COUNT_OF(first); i++) {
        const struct merge_name *d = merging_find(&m->from, first[i]);
        if (!d)
            return macho_broken(m, first[i]);
        reach(m, d->member);
    }
    while (m->work.n) {
        const struct macho_member *o = &m->members[m->work.data[--m->work.n]];
        for (uint32_t i = 0; i < o->n_symbols; i++) {
            const struct macho_symbol s = macho_symbol_of(o, i);
            const struct merge_name *d = s.type & MACHO_TYPE ? NULL : merging_find(&m->from, macho_name_of(o, &s));
            if (d)
                reach(m, d->member);
        }
    }
    return true;
}

/* ---- the file ---- */

static struct macho_section section_head(const struct macho_joined *j, uint64_t first, uint64_t *relocations)
{
    struct macho_section h = {.address = j->address,
                              .size = j->size,
                              .align = j->align,
                              .flags = j->flags,
                              .n_relocations = j->n_relocations};
    memcpy(h.name, j->name, sizeof h.name);
    memcpy(h.segment, j->segment, sizeof h.segment);
    h.at = j->zeros ? 0 : (uint32_t)(first + j->address);
    h.relocations_at = j->n_relocations ? (uint32_t)*relocations : 0;
    *relocations += j->relocations.n;
    return h;
}

/* The bytes of sections, from address 0 on, up to the weights. */
static void put_sections(struct macho_merged *m, struct strbuf *out, uint64_t first)
{
    for (int i = 0; i < m->n_joined; i++) {
        const struct macho_joined *j = &m->joined[m->order[i]];
        if (j->zeros)
            continue;
        put_up_to(out, first + j->address);
        strbuf_append(out, j->bytes.data, j->bytes.n);
    }
}

static bool find_table(struct macho_merged *m, uint64_t first)
{
    const struct merge_name *d = merging_find(&m->from, "_" TABLE_MODEL);
    if (!d)
        return macho_broken(m, "table");
    const struct macho_symbol s = macho_symbol_of(&m->members[d->member], d->symbol);
    m->desc_at = first + s.value + m->members[d->member].places[s.section - 1].by;
    if (m->desc_at % 8 || m->desc_at + sizeof *m->desc > m->head.size)
        return macho_broken(m, "table");
    m->desc = (struct mcc_rt_desc *)(void *)((char *)(uintptr_t)m->head.data + m->desc_at);
    return true;
}

/* What comes before the weights, and after them. */
static bool make_parts(struct macho_merged *m)
{
    const struct macho_version version = macho_version_of(m->l->from->platform);
    struct macho_section heads[MACHO_JOINED_MAX];
    uint32_t n = (uint32_t)m->n_joined, n_symbols = m->n_local + 1 + m->n_outside;
    uint64_t weights = m->l->weights->sidecar ? 0 : m->l->weights->size, relocations = 0;
    uint64_t first = sizeof(struct macho_head) + sizeof(struct macho_segment) + n * sizeof *heads + sizeof version +
                     sizeof(struct macho_symbols) + sizeof(struct macho_order);
    first = round_to(first, 64);
    uint64_t end = first + m->stored, at = round_to(end, 8);
    for (uint32_t i = 0; i < n; i++)
        relocations += m->joined[i].relocations.n;
    put_aligned(&m->names, 8);
    uint64_t symbols = at + relocations, text = symbols + n_symbols * sizeof(struct macho_symbol);
    if (text + m->names.n > UINT32_MAX)
        return error_limit(m->ctx, (src_id){0}, MACHO_TOO_LARGE);
    for (uint32_t i = 0; i < n; i++)
        heads[i] = section_head(&m->joined[m->order[i]], first, &at);
    const struct macho_segment segment = {.command = {MACHO_SEGMENT, (uint32_t)(sizeof segment + n * sizeof *heads)},
                                          .room = m->room,
                                          .at = first,
                                          .bytes = m->stored,
                                          .most = 7,
                                          .access = 7,
                                          .n_sections = n};
    const struct macho_symbols table = {
        {MACHO_SYMBOLS, sizeof table}, (uint32_t)symbols, n_symbols, (uint32_t)text, (uint32_t)m->names.n};
    const struct macho_order order = {.command = {MACHO_ORDER, sizeof order},
                                      .n_local = m->n_local,
                                      .defined = m->n_local,
                                      .n_defined = 1,
                                      .undefined = m->n_local + 1,
                                      .n_undefined = m->n_outside};
    const struct macho_head file = {
        .magic = MACHO_MAGIC,
        .cpu = m->machine->cpu,
        .kind_of_cpu = m->machine->kind,
        .type = MACHO_OBJECT,
        .n_commands = 4,
        .commands_bytes = (uint32_t)(segment.command.bytes + sizeof version + sizeof table + sizeof order)};
    struct strbuf head = strbuf_of(m->arena), tail = strbuf_of(m->arena);
    strbuf_append(&head, &file, sizeof file);
    strbuf_append(&head, &segment, sizeof segment);
    strbuf_append(&head, heads, n * sizeof *heads);
    strbuf_append(&head, &version, sizeof version);
    strbuf_append(&head, &table, sizeof table);
    strbuf_append(&head, &order, sizeof order);
    put_sections(m, &head, first);
    put_up_to(&head, end - weights);
    put_up_to(&tail, round_to(end, 8) - end);
    for (uint32_t i = 0; i < n; i++)
        strbuf_append(&tail, m->joined[m->order[i]].relocations.data, m->joined[m->order[i]].relocations.n);
    strbuf_append(&tail, m->locals.data, m->locals.n);
    strbuf_append(&tail, &m->query, sizeof m->query);
    strbuf_append(&tail, m->outside.data, m->outside.n);
    strbuf_append(&tail, m->names.data, m->names.n);
    m->head = (struct span){head.data, head.n};
    m->tail = (struct span){tail.data, tail.n};
    return find_table(m, first);
}

/* As Apple's tools make it: an index with one symbol, then the member, at a multiple of 64. */
static struct span archive_front(struct arena *arena, const char *symbol, uint64_t member_size)
{
    enum { NAME = 20, BEFORE = 8 + 60 + NAME + 16, HEADER = 60, UNIT = 64 };
    size_t text = strlen(symbol) + 2;
    text += UNIT - 1 - (BEFORE + text + HEADER + UNIT - 1) % UNIT;
    const uint32_t words[3] = {8, 0, (uint32_t)(BEFORE + text)};
    const uint32_t bytes = (uint32_t)text;
    struct strbuf out = strbuf_of(arena);
    strbuf_printf(&out, "!<arch>\n%-16s%-12d%-6d%-6d%-8s%-10zu`\n", "#1/20", 0, 0, 0, "100644", NAME + 16 + text);
    strbuf_append(&out, "__.SYMDEF SORTED\0\0\0", NAME);
    strbuf_append(&out, words, sizeof words);
    strbuf_append(&out, &bytes, sizeof bytes);
    strbuf_printf(&out, "_%s", symbol);
    put_up_to(&out, BEFORE + text);
    strbuf_printf(&out, "%-16s%-12d%-6d%-6d%-8s%-10llu`\n", "model.o/", 0, 0, 0, "100644",
                  (unsigned long long)member_size);
    return (struct span){out.data, out.n};
}

bool macho_merged(const struct linked *l)
{
    struct macho_merged *m = NEW(l->arena, struct macho_merged);
    *m = (struct macho_merged){
        .ctx = l->ctx, .arena = l->arena, .l = l, .machine = macho_machine_of(l->from->platform)};
    return read_all(m) && reach_all(m) && macho_join(m) && make_parts(m) &&
           merging_write(l, m->desc, m->desc_at, m->head, m->tail, archive_front);
}
