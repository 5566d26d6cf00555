/* Joins the live members' sections under their names, and writes their symbols and relocations anew (macho_merge.h).
 *
 * A relocation names a symbol, or a section: then the address itself lies where it points, and is moved with the
 * section. Frames of x86-64 have no relocations: how far a function is lies in them as a number.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/macho_merge.h"
#include "codegen/names.h"

enum { FRAME_FUNCTION_AT = 8 /* of an FDE: the function's address, from here */ };

/* ---- sections ---- */

static int joined_for(struct macho_merged *m, const struct macho_section *s)
{
    for (int i = 0; i < m->n_joined; i++)
        if (memcmp(m->joined[i].name, s->name, 16) == 0 && memcmp(m->joined[i].segment, s->segment, 16) == 0)
            return i;
    if (m->n_joined == MACHO_JOINED_MAX)
        return -1;
    struct macho_joined *j = &m->joined[m->n_joined];
    *j = (struct macho_joined){.flags = s->flags, .zeros = (s->flags & MACHO_TYPE_BITS) == MACHO_ZERO_FILLED};
    memcpy(j->name, s->name, 16);
    memcpy(j->segment, s->segment, 16);
    strbuf_init(&j->bytes, m->arena);
    strbuf_init(&j->relocations, m->arena);
    return m->n_joined++;
}

static bool is_weights(const struct macho_joined *j)
{
    return macho_is_named(j->segment, MACHO_WEIGHTS_SEGMENT);
}

static bool place(struct macho_merged *m, struct macho_member *o, uint32_t i)
{
    const struct macho_section *s = &o->sections[i];
    struct macho_place *p = &o->places[i];
    p->to = s->size ? joined_for(m, s) : -1;
    if (!s->size)
        return true;
    if (p->to < 0)
        return macho_broken(m, "too many kinds of sections");
    struct macho_joined *j = &m->joined[p->to];
    uint64_t unit = (uint64_t)1 << s->align;
    if (((s->flags ^ j->flags) & MACHO_TYPE_BITS) != 0)
        return macho_broken(m, "sections of one name and two kinds");
    j->align = s->align > j->align ? s->align : j->align;
    j->flags |= s->flags;
    if (is_weights(j)) { /* a placeholder */
        j->size = m->l->weights->size;
        return true;
    }
    p->offset = round_to(j->size, unit);
    if (p->offset + s->size > UINT32_MAX / 2)
        return error_limit(m->ctx, (src_id){0}, "an object for macOS has at most 2 GiB of code and tables");
    if (!j->zeros) {
        put_up_to(&j->bytes, p->offset);
        strbuf_append(&j->bytes, o->data + s->at, s->size);
    }
    j->size = p->offset + s->size;
    return true;
}

/* Weights after what is stored, and what is not stored last. */
static void order_sections(struct macho_merged *m)
{
    int n = 0;
    for (int rank = 0; rank < 3; rank++)
        for (int i = 0; i < m->n_joined; i++) {
            struct macho_joined *j = &m->joined[i];
            if ((j->zeros ? 2 : is_weights(j) ? 1 : 0) != rank)
                continue;
            j->address = round_to(m->room, (uint64_t)1 << j->align);
            m->room = j->address + j->size;
            m->stored = j->zeros ? m->stored : m->room;
            m->order[n++] = i;
            j->number = (uint32_t)n;
        }
}

static void move_sections(struct macho_merged *m, struct macho_member *o)
{
    for (uint32_t i = 0; i < o->n; i++) {
        struct macho_place *p = &o->places[i];
        if (p->to >= 0)
            p->by = m->joined[p->to].address + p->offset - o->sections[i].address;
    }
}

/* ---- symbols ---- */

/* The number of a symbol that the member defines. */
static uint32_t inside(struct macho_merged *m, struct macho_member *o, uint32_t i)
{
    struct macho_symbol s = macho_symbol_of(o, i);
    const struct macho_place *p = &o->places[s.section - 1];
    const char *name = macho_name_of(o, &s);
    if (strcmp(name, "_mcc_query") == 0)
        return m->n_local;
    if (o->numbers[i])
        return o->numbers[i] - 1;
    if (p->to >= 0 && (m->joined[p->to].flags & MACHO_CODE) && *name == '_')
        name = arena_printf(m->arena, "_%s", names_find(m->l->names, name + 1));
    s = (struct macho_symbol){.name = put_name(&m->names, name),
                              .type = MACHO_TYPE,
                              .section = p->to < 0 ? 1 : (uint8_t)m->joined[p->to].number,
                              .value = s.value + p->by};
    strbuf_append(&m->locals, &s, sizeof s);
    o->numbers[i] = ++m->n_local;
    return o->numbers[i] - 1;
}

/* The number of a name that the program or the system defines. */
static uint32_t outside(struct macho_merged *m, const char *name, uint16_t flags)
{
    uint32_t k = 0;
    while (k < m->n_outside && strcmp(m->outside_names.data[k], name) != 0)
        k++;
    if (k == m->n_outside) {
        struct macho_symbol s = {
            .name = put_name(&m->names, name), .type = MACHO_EXTERNAL, .flags = flags & MACHO_WEAK_REFERENCE};
        strbuf_append(&m->outside, &s, sizeof s);
        VEC_PUSH(m->arena, &m->outside_names, name);
        m->n_outside++;
    }
    return m->n_local + 1 + k;
}

static uint32_t number_of(struct macho_merged *m, struct macho_member *o, uint32_t i)
{
    const struct macho_symbol s = macho_symbol_of(o, i);
    const char *name = macho_name_of(o, &s);
    const struct merge_name *d = s.type & MACHO_EXTERNAL ? merging_find(&m->from, name) : NULL;
    if (d)
        return inside(m, &m->members[d->member], d->symbol);
    return s.type & MACHO_TYPE ? inside(m, o, i) : outside(m, name, s.flags);
}

/* Every function has its name; other symbols are written where a relocation names them. */
static void put_functions(struct macho_merged *m, struct macho_member *o)
{
    for (uint32_t i = 0; i < o->n_symbols; i++) {
        const struct macho_symbol s = macho_symbol_of(o, i);
        const char *name = macho_name_of(o, &s);
        if ((s.type & MACHO_TYPE) == MACHO_TYPE && !(s.type & MACHO_STAB) && *name == '_' &&
            (o->sections[s.section - 1].flags & MACHO_CODE))
            inside(m, o, i);
    }
}

/* ---- relocations ---- */

static void add_in_place(char *at, bool whole, uint64_t by)
{
    uint64_t x = 0;
    size_t n = whole ? 8 : 4;
    memcpy(&x, at, n);
    x += by;
    memcpy(at, &x, n);
}

/* An address that lies where the relocation points. */
static bool move_address(struct macho_merged *m, struct macho_member *o, uint32_t section, struct macho_relocation *r)
{
    const struct macho_place *from = &o->places[section];
    uint32_t number = r->info & MACHO_NUMBER, kind = r->info >> MACHO_KIND_SHIFT;
    uint32_t length = r->info >> MACHO_LENGTH_SHIFT & 3;
    if (!number || number > o->n || o->places[number - 1].to < 0 || length < 2 ||
        (m->machine->number < 16 && kind != MACHO_UNSIGNED && kind != m->machine->subtractor))
        return macho_broken(m, "a relocation of a section");
    const struct macho_place *to = &o->places[number - 1];
    uint64_t by = to->by - (r->info & MACHO_RELATIVE ? from->by : 0);
    char *at = m->joined[from->to].bytes.data + from->offset + r->at;
    add_in_place(at, length == 3, kind == m->machine->subtractor ? 0 - by : by);
    r->info = (r->info & ~(uint32_t)MACHO_NUMBER) | m->joined[to->to].number;
    return true;
}

/* numbers: symbols get their numbers, and nothing is written yet. */
static bool put_relocations(struct macho_merged *m, struct macho_member *o, uint32_t section, bool numbers)
{
    const struct macho_section *s = &o->sections[section];
    const struct macho_place *place = &o->places[section];
    struct macho_joined *j = &m->joined[place->to];
    for (uint32_t i = 0; i < s->n_relocations; i++) {
        struct macho_relocation r;
        memcpy(&r, o->data + s->relocations_at + (uint64_t)i * sizeof r, sizeof r);
        bool by_symbol = r.info & MACHO_BY_SYMBOL;
        if (r.at >> 31 || r.at > s->size || s->size - r.at < ((uint64_t)1 << (r.info >> MACHO_LENGTH_SHIFT & 3)) ||
            (by_symbol && (r.info & MACHO_NUMBER) >= o->n_symbols))
            return macho_broken(m, "a relocation");
        uint32_t number = by_symbol ? number_of(m, o, r.info & MACHO_NUMBER) : 0;
        if (numbers)
            continue;
        if (by_symbol)
            r.info = (r.info & ~(uint32_t)MACHO_NUMBER) | number;
        else if (r.info >> MACHO_KIND_SHIFT != m->machine->number && !move_address(m, o, section, &r))
            return false;
        r.at += (uint32_t)place->offset;
        strbuf_append(&j->relocations, &r, sizeof r);
        j->n_relocations++;
    }
    return true;
}

/* The member's section that an address lies in; -1: none. */
static int section_at(const struct macho_member *o, uint64_t address)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (address >= o->sections[i].address && address - o->sections[i].address < o->sections[i].size)
            return (int)i;
    return -1;
}

static bool move_frames(struct macho_merged *m, struct macho_member *o, uint32_t section)
{
    const struct macho_section *s = &o->sections[section];
    const struct macho_place *place = &o->places[section];
    char *bytes = m->joined[place->to].bytes.data + place->offset;
    for (uint64_t at = 0; s->size - at >= 8;) {
        uint32_t head[2];
        uint64_t distance;
        memcpy(head, bytes + at, sizeof head);
        if (head[0] < 4 || head[0] > s->size - at - 4)
            return macho_broken(m, "frames");
        if (head[1]) { /* not what frames have in common */
            uint64_t field = at + FRAME_FUNCTION_AT;
            if (head[0] < 4 + 8)
                return macho_broken(m, "a frame");
            memcpy(&distance, bytes + field, sizeof distance);
            int to = section_at(o, s->address + field + distance);
            if (to < 0)
                return macho_broken(m, "a frame's function");
            add_in_place(bytes + field, true, o->places[to].by - place->by);
        }
        at += 4 + (uint64_t)head[0];
    }
    return true;
}

/* ---- all ---- */

static bool each_section(struct macho_merged *m, bool (*act)(struct macho_merged *, struct macho_member *, uint32_t))
{
    for (uint32_t k = 0; k < m->from.n; k++)
        for (uint32_t i = 0; m->members[k].live && i < m->members[k].n; i++)
            if (!act(m, &m->members[k], i))
                return false;
    return true;
}

static bool number_symbols(struct macho_merged *m, struct macho_member *o, uint32_t section)
{
    return o->places[section].to < 0 || put_relocations(m, o, section, true);
}

static bool finish(struct macho_merged *m, struct macho_member *o, uint32_t section)
{
    const struct macho_section *s = &o->sections[section];
    if (o->places[section].to < 0)
        return true;
    if (macho_is_named(s->name, "__eh_frame") && !s->n_relocations)
        return move_frames(m, o, section);
    return put_relocations(m, o, section, false);
}

bool macho_join(struct macho_merged *m)
{
    struct strbuf *const all[] = {&m->locals, &m->outside, &m->names};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        strbuf_init(all[i], m->arena);
    strbuf_append(&m->names, " ", 2);
    if (!each_section(m, place))
        return false;
    order_sections(m);
    for (uint32_t k = 0; k < m->from.n; k++)
        if (m->members[k].live) {
            move_sections(m, &m->members[k]);
            put_functions(m, &m->members[k]);
        }
    if (!each_section(m, number_symbols) || !each_section(m, finish))
        return false;
    const struct merge_name *d = merging_find(&m->from, "_mcc_query");
    struct macho_member *o = &m->members[d->member];
    const struct macho_symbol s = macho_symbol_of(o, d->symbol);
    const struct macho_place *p = &o->places[s.section - 1];
    if (p->to < 0)
        return macho_broken(m, "the query function");
    m->query = (struct macho_symbol){.name = put_name(&m->names, arena_printf(m->arena, "_%s", m->l->query)),
                                     .type = MACHO_TYPE | MACHO_EXTERNAL,
                                     .section = (uint8_t)m->joined[p->to].number,
                                     .value = s.value + p->by};
    return true;
}
