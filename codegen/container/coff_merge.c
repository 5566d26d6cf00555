/* OUTPUT_OBJECT, OUTPUT_ARCHIVE for Windows: the model's objects and what they reach of the runtime become one object.
 *
 * No linker of COFF makes relocatable files, so sections are joined here: those that are reached from the query
 * function, one after another under their names. Everything but the query function is local, so two artifacts in one
 * program do not meet. The weights come last in the file.
 */

#include "codegen/container/bytes.h"
#include "codegen/container/coff_merge.h"
#include "codegen/names.h"
#include "codegen/table.h"
#include "runtime/rt.h"

enum { ALIGN_SHIFT = 20, ALIGN_MAX = 8192 };

/* ---- joining ---- */

static const char *section_name(struct merged *m, const struct member *o, const struct coff_section *s)
{
    char *name = arena_strndup(m->arena, s->name, strnlen(s->name, sizeof s->name));
    uint64_t at = *name == '/' ? strtoull(name + 1, NULL, 10) : o->text_size;
    if (at < o->text_size)
        name = arena_strdup(m->arena, o->text + at);
    name[strcspn(name, "$")] = 0;
    return name;
}

static int joined_for(struct merged *m, const char *name)
{
    struct joined *j = ROW_NAMED(m->joined, (size_t)m->n_joined, name);
    if (j)
        return (int)(j - m->joined);
    if (m->n_joined == COFF_JOINED_MAX)
        return COFF_UNPLACED;
    j = &m->joined[m->n_joined];
    *j = (struct joined){.name = name, .align = 1};
    strbuf_init(&j->bytes, m->arena);
    strbuf_init(&j->relocations, m->arena);
    return m->n_joined++;
}

static bool place(struct merged *m, struct member *o, uint32_t i)
{
    static const char zeros[ALIGN_MAX];
    const struct coff_section *s = &o->sections[i];
    const char *name = section_name(m, o, s);
    struct piece *piece = &o->pieces[i];
    uint32_t shift = s->flags >> ALIGN_SHIFT & 15, align = shift ? 1u << (shift - 1) : 16;
    if ((piece->to = joined_for(m, name)) == COFF_UNPLACED || align > ALIGN_MAX)
        return merged_broken(m, "a kind of section that is not used");
    struct joined *j = &m->joined[piece->to];
    uint64_t at = round_to(j->size, align);
    j->flags |= s->flags & ~(uint32_t)(COFF_COMDAT | COFF_OVERFLOWS | 15u << ALIGN_SHIFT);
    j->align = align > j->align ? align : j->align;
    if (strcmp(name, COFF_WEIGHTS) == 0) { /* a placeholder */
        j->size = m->l->weights->size;
        return true;
    }
    if (at + s->size > UINT32_MAX)
        return error_limit(m->ctx, (src_id){0}, "an object for Windows has at most 4 GiB of code and tables");
    if (!(s->flags & COFF_UNINITIALIZED)) {
        strbuf_append(&j->bytes, zeros, at - j->size);
        strbuf_append(&j->bytes, o->data + s->at, s->size);
    }
    piece->at = (uint32_t)at;
    j->size = at + s->size;
    return true;
}

/* The number + 1 of a symbol that is defined here; 0: none. */
static uint32_t inside(struct merged *m, struct member *o, uint32_t i, const struct symbol *s)
{
    const struct piece *piece = s->section > 0 ? &o->pieces[s->section - 1] : NULL;
    bool query = strcmp(s->name, "mcc_query") == 0, local = s->class == COFF_STATIC || merged_is_global(s);
    if (o->number[i] || !piece || !piece->live || !local)
        return o->number[i];
    const char *name = query ? m->l->query : s->type == COFF_FUNCTION ? names_find(m->l->names, s->name) : s->name;
    coff_put_symbol(&m->symbols, &m->names, name, piece->at + s->value, piece->to + 1, s->type,
                    query ? COFF_EXTERNAL : COFF_STATIC);
    return o->number[i] = ++m->n_symbols;
}

/* Other symbols are written where a relocation names them. */
static void put_functions(struct merged *m, struct member *o)
{
    for (uint32_t i = 0; i < o->head.n_symbols; i++) {
        struct symbol s = merged_symbol(m, o, i);
        if (s.type == COFF_FUNCTION)
            inside(m, o, i, &s);
        i += s.more;
    }
}

/* The number + 1 of a name that the program or the system defines. */
static uint32_t outside(struct merged *m, const char *name)
{
    const struct merge_name *known = ROW_NAMED(m->outside.data, m->outside.n, name);
    if (known)
        return known->symbol;
    coff_put_symbol(&m->symbols, &m->names, name, 0, 0, 0, COFF_EXTERNAL);
    VEC_PUSH(m->arena, &m->outside, ((struct merge_name){.name = name, .symbol = ++m->n_symbols}));
    return m->n_symbols;
}

static bool put_relocations(struct merged *m, uint32_t member, uint32_t section)
{
    const struct member *o = &m->members[member];
    const struct piece *piece = &o->pieces[section];
    struct joined *j = &m->joined[piece->to];
    uint64_t at;
    uint32_t n = merged_relocations(o, &o->sections[section], &at);
    for (uint32_t k = 0; k < n; k++) {
        char row[COFF_RELOCATION_BYTES];
        uint32_t place, index, to = member;
        struct symbol s;
        memcpy(row, o->data + at + (uint64_t)k * sizeof row, sizeof row);
        memcpy(&place, row, sizeof place);
        memcpy(&index, row + 4, sizeof index);
        bool defined = merged_resolve(m, &to, &index, &s);
        uint32_t number = defined                ? inside(m, &m->members[to], index, &s)
                          : merged_is_global(&s) ? outside(m, s.name)
                                                 : 0;
        if (!number)
            return merged_broken(m, "what a relocation names");
        place += piece->at;
        number--;
        memcpy(row, &place, sizeof place);
        memcpy(row + 4, &number, sizeof number);
        strbuf_append(&j->relocations, row, sizeof row);
        j->n_relocations++;
    }
    return true;
}

static bool join(struct merged *m)
{
    strbuf_init(&m->symbols, m->arena);
    strbuf_init(&m->names, m->arena);
    strbuf_append(&m->names, "\0\0\0", 4);
    for (uint32_t k = 0; k < m->from.n; k++)
        for (uint32_t i = 0; i < m->members[k].head.n_sections; i++)
            if (m->members[k].pieces[i].live && !place(m, &m->members[k], i))
                return false;
    for (uint32_t k = 0; k < m->from.n; k++)
        put_functions(m, &m->members[k]);
    for (uint32_t k = 0; k < m->from.n; k++)
        for (uint32_t i = 0; i < m->members[k].head.n_sections; i++)
            if (m->members[k].pieces[i].live && !put_relocations(m, k, i))
                return false;
    return true;
}

/* ---- the file ---- */

static struct coff_section section_head(struct merged *m, struct strbuf *out, const struct joined *j)
{
    struct coff_section h = {.size = (uint32_t)j->size, .flags = j->flags};
    uint32_t shift = 1;
    while (1u << (shift - 1) < j->align)
        shift++;
    h.flags |= shift << ALIGN_SHIFT;
    if (strlen(j->name) > sizeof h.name) {
        memcpy(h.name, arena_printf(m->arena, "/%-7u", (unsigned)m->names.n), sizeof h.name);
        for (size_t i = 0; i < sizeof h.name; i++)
            h.name[i] = h.name[i] == ' ' ? 0 : h.name[i];
        strbuf_append(&m->names, j->name, strlen(j->name) + 1);
    } else {
        memcpy(h.name, j->name, strlen(j->name));
    }
    if (j->bytes.n) {
        put_aligned(out, 16);
        h.at = (uint32_t)out->n;
        strbuf_append(out, j->bytes.data, j->bytes.n);
    }
    if (j->n_relocations) {
        bool many = j->n_relocations >= COFF_MANY;
        const uint32_t first[3] = {j->n_relocations + 1, 0, 0};
        h.relocations_at = (uint32_t)out->n;
        h.n_relocations = many ? COFF_MANY : (uint16_t)j->n_relocations;
        h.flags |= many ? COFF_OVERFLOWS : 0;
        strbuf_append(out, first, many ? COFF_RELOCATION_BYTES : 0);
        strbuf_append(out, j->relocations.data, j->relocations.n);
    }
    return h;
}

/* Everything but the weights, which come next. */
static bool make_head(struct merged *m)
{
    const struct weights_writer *w = m->l->weights;
    struct coff_section *heads = NEW_ARRAY(m->arena, struct coff_section, m->n_joined + 1);
    struct coff_head head = {
        .machine = m->machine->machine, .n_sections = (uint16_t)m->n_joined, .n_symbols = m->n_symbols};
    uint64_t all = m->symbols.n + m->names.n;
    int weights = COFF_UNPLACED;
    for (int i = 0; i < m->n_joined; i++)
        all += m->joined[i].bytes.n + m->joined[i].relocations.n;
    if (all > UINT32_MAX / 2)
        return error_limit(m->ctx, (src_id){0}, "an object for Windows has at most 2 GiB of code and tables");
    struct strbuf out = strbuf_of(m->arena);
    strbuf_append(&out, &head, sizeof head);
    strbuf_append(&out, heads, (size_t)m->n_joined * sizeof *heads);
    for (int i = 0; i < m->n_joined; i++) {
        heads[i] = section_head(m, &out, &m->joined[i]);
        if (strcmp(m->joined[i].name, COFF_WEIGHTS) == 0)
            weights = i;
    }
    head.symbols_at = (uint32_t)out.n;
    strbuf_append(&out, m->symbols.data, m->symbols.n);
    uint32_t bytes = (uint32_t)m->names.n;
    memcpy(m->names.data, &bytes, sizeof bytes);
    strbuf_append(&out, m->names.data, m->names.n);
    put_aligned(&out, 64);
    if ((w->size && !w->sidecar) != (weights != COFF_UNPLACED))
        return merged_broken(m, "weights");
    if (weights != COFF_UNPLACED)
        heads[weights].at = (uint32_t)out.n;
    memcpy(out.data, &head, sizeof head);
    memcpy(out.data + sizeof head, heads, (size_t)m->n_joined * sizeof *heads);
    const struct merge_name *d = merging_find(&m->from, TABLE_MODEL);
    const struct member *o = &m->members[d->member];
    struct symbol s = merged_symbol(m, o, d->symbol);
    const struct piece *piece = &o->pieces[s.section - 1];
    m->desc_at = heads[piece->to].at + (uint64_t)piece->at + s.value;
    if (m->desc_at % 8 || m->desc_at + sizeof *m->desc > out.n)
        return merged_broken(m, "table");
    m->desc = (struct mcc_rt_desc *)(void *)(out.data + m->desc_at);
    m->head = (struct span){out.data, out.n};
    return true;
}

bool coff_merged(const struct linked *l)
{
    struct merged *m = NEW(l->arena, struct merged);
    *m = (struct merged){.ctx = l->ctx, .arena = l->arena, .l = l, .machine = coff_machine_of(l->from->platform)};
    if (l->weights->size > COFF_IMAGE_MAX && !l->weights->sidecar)
        return error_limit(l->ctx, (src_id){0}, COFF_TOO_LARGE);
    return merged_read(m) && merged_reach(m) && join(m) && make_head(m) &&
           merging_write(l, m->desc, m->desc_at, m->head, (struct span){"", 0}, archive_head);
}
