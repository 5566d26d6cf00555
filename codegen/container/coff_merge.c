/* OUTPUT_OBJECT, OUTPUT_ARCHIVE for Windows: the model's objects and what they reach of the runtime become one object.
 *
 * No linker of COFF makes relocatable files, so sections are joined here: those that are reached from the query
 * function, one after another under their names. Everything but the query function is local, so two artifacts in one
 * program do not meet. The weights come last in the file.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/container/coff.h"
#include "codegen/names.h"
#include "codegen/sidecar.h"
#include "codegen/sink.h"
#include "codegen/table.h"
#include "runtime/rt.h"

enum {
    COMDAT = 0x1000,
    LEFT_OUT = 0xa00, /* what is for the linker alone */
    ALIGN_SHIFT = 20,
    ASSOCIATIVE = 5,
    WEAK = 105,
    ALIGN_MAX = 8192,
    JOINED_MAX = 64,
    UNPLACED = -1
};

struct joined {
    const char *name;
    uint32_t flags, align;
    struct strbuf bytes;
    uint64_t size; /* of what has no bytes, too */
    struct strbuf relocations;
    uint32_t n_relocations;
};

struct piece {
    bool live;
    int to; /* number of its joined section */
    uint32_t at;
    uint32_t with; /* associative: the section that it comes with */
};

struct member {
    const char *data;
    size_t size;
    struct coff_head head;
    struct coff_section *sections;
    struct piece *pieces;
    const char *symbols, *text;
    uint64_t text_size;
    uint32_t *number; /* of each symbol in the product, + 1 */
    bool live;
};

struct symbol {
    const char *name;
    uint32_t value;
    int16_t section;
    uint16_t type;
    uint8_t class, more;
};

struct definition {
    const char *name;
    uint32_t member, symbol; /* member UINT32_MAX: another name of `as` */
    const char *as;
    uint32_t next;
};

struct merged {
    struct context *ctx;
    struct arena *arena;
    const struct linked *l;
    const struct coff_machine *machine;
    struct member *members;
    uint32_t n_members;
    VEC(struct definition) definitions;
    uint32_t heads[1024]; /* definition + 1 by name */
    VEC(uint64_t) work; /* member << 32 | section: live, not looked at */
    struct joined joined[JOINED_MAX];
    int n_joined;
    struct strbuf symbols, names;
    uint32_t n_symbols;
    VEC(struct definition) outside; /* undefined in the product: member is the symbol's number */
    struct mcc_rt_desc *desc;
    uint64_t desc_at; /* in the file */
    struct span head; /* all of the file before the weights */
    struct sink *object;
};

static bool broken(struct merged *m, const char *what)
{
    return error_internal(m->ctx, (src_id){0}, "an object is not as expected: %s", what);
}

/* ---- reading ---- */

static struct symbol symbol_at(struct merged *m, const struct member *o, uint32_t i)
{
    const char *p = o->symbols + (uint64_t)i * COFF_SYMBOL_BYTES;
    struct symbol s = {.class = (uint8_t)p[16], .more = (uint8_t)p[17]};
    uint32_t word[2];
    memcpy(word, p, sizeof word);
    memcpy(&s.value, p + 8, 4);
    memcpy(&s.section, p + 12, 2);
    memcpy(&s.type, p + 14, 2);
    s.name = word[0] ? arena_strndup(m->arena, p, strnlen(p, 8)) : word[1] < o->text_size ? o->text + word[1] : "";
    return s;
}

static bool is_global(const struct symbol *s)
{
    return s->class == COFF_EXTERNAL || s->class == WEAK;
}

static const struct definition *find(const struct merged *m, const char *name)
{
    for (int times = 0; times < 4; times++) {
        const struct definition *d = NULL;
        for (uint32_t k = m->heads[hash_bytes(name, strlen(name)) % COUNT_OF(m->heads)]; k && !d;
             k = m->definitions.data[k - 1].next)
            if (strcmp(m->definitions.data[k - 1].name, name) == 0)
                d = &m->definitions.data[k - 1];
        if (!d || d->member != UINT32_MAX)
            return d;
        name = d->as;
    }
    return NULL;
}

/* The first definition of a name stays. */
static void define(struct merged *m, const char *name, uint32_t member, uint32_t symbol, const char *as)
{
    uint32_t *head = &m->heads[hash_bytes(name, strlen(name)) % COUNT_OF(m->heads)];
    for (uint32_t k = *head; k; k = m->definitions.data[k - 1].next)
        if (strcmp(m->definitions.data[k - 1].name, name) == 0)
            return;
    VEC_PUSH(m->arena, &m->definitions, ((struct definition){name, member, symbol, as, *head}));
    *head = m->definitions.n;
}

static bool holds(const struct member *o, uint64_t at, uint64_t bytes)
{
    return at <= o->size && bytes <= o->size - at;
}

static uint32_t n_relocations(const struct member *o, const struct coff_section *s, uint64_t *at)
{
    uint32_t n = s->n_relocations;
    *at = s->relocations_at;
    if ((s->flags & COFF_OVERFLOWS) && n == COFF_MANY && holds(o, *at, COFF_RELOCATION_BYTES)) {
        memcpy(&n, o->data + *at, sizeof n);
        n -= n > 0;
        *at += COFF_RELOCATION_BYTES;
    }
    return n;
}

static bool read_member(struct merged *m, uint32_t number, struct span object)
{
    struct member *o = &m->members[number];
    uint32_t size;
    o->data = object.data;
    o->size = object.size;
    if (object.size < sizeof o->head)
        return broken(m, "its head");
    memcpy(&o->head, o->data, sizeof o->head);
    uint64_t n = o->head.n_sections, symbols = (uint64_t)o->head.n_symbols * COFF_SYMBOL_BYTES;
    if (o->head.machine != m->machine->machine || o->head.optional_bytes ||
        !holds(o, sizeof o->head, n * sizeof *o->sections) || !holds(o, o->head.symbols_at, symbols + sizeof size))
        return broken(m, "its tables");
    o->symbols = o->data + o->head.symbols_at;
    o->text = o->symbols + symbols;
    memcpy(&size, o->text, sizeof size);
    o->text_size = size;
    if (!holds(o, o->head.symbols_at + symbols, size) || (size > 4 && o->text[size - 1]))
        return broken(m, "its names");
    o->sections = arena_copy(m->arena, o->data + sizeof o->head, n * sizeof *o->sections);
    o->pieces = NEW_ARRAY(m->arena, struct piece, n + 1);
    o->number = NEW_ARRAY(m->arena, uint32_t, o->head.n_symbols + 1);
    for (uint64_t i = 0; i < n; i++) {
        const struct coff_section *s = &o->sections[i];
        uint64_t at, relocations = n_relocations(o, s, &at);
        o->pieces[i].to = UNPLACED;
        if ((!(s->flags & COFF_UNINITIALIZED) && !holds(o, s->at, s->size)) ||
            !holds(o, at, relocations * COFF_RELOCATION_BYTES))
            return broken(m, "a section");
    }
    for (uint32_t i = 0; i < o->head.n_symbols; i++) {
        struct symbol s = symbol_at(m, o, i);
        if (s.section > (int)n || s.more >= o->head.n_symbols - i)
            return broken(m, "a symbol");
        if (s.section > 0 && is_global(&s))
            define(m, s.name, number, i, NULL);
        if (s.section > 0 && s.class == COFF_STATIC && s.more && s.value == 0) { /* what the section is */
            const char *aux = o->symbols + (i + (uint64_t)1) * COFF_SYMBOL_BYTES;
            uint16_t with;
            memcpy(&with, aux + 12, sizeof with);
            if (aux[14] == ASSOCIATIVE && with > 0 && with <= n)
                o->pieces[s.section - 1].with = with;
        }
        i += s.more;
    }
    return true;
}

static bool read_members(struct merged *m)
{
    struct linking *from = m->l->from;
    uint32_t n = 0, n_runtime;
    struct span *runtime = linking_runtime(from, &n_runtime);
    m->members = NEW_ARRAY(m->arena, struct member, from->n_units + n_runtime + 1);
    if (!read_member(m, n++, from->table))
        return false;
    for (uint32_t i = 0; i < from->n_units; i++) {
        const struct codegen_unit *same = from->units[i].same;
        if (same)
            define(m, from->units[i].symbol, UINT32_MAX, 0, same->symbol);
        else if (!read_member(m, n++, from->units[i].object))
            return false;
    }
    for (uint32_t i = 0; i < n_runtime; i++)
        if (!read_member(m, n++, runtime[i]))
            return false;
    m->n_members = n;
    define(m, TABLE_STATEFUL, UINT32_MAX, 0, TABLE_MODEL);
    return true;
}

/* ---- what is reached ---- */

static bool is_left_out(const struct coff_section *s)
{
    return !s->size || (s->flags & LEFT_OUT);
}

static void reach_section(struct merged *m, uint32_t member, uint32_t section)
{
    struct member *o = &m->members[member];
    if (o->pieces[section].live || is_left_out(&o->sections[section]))
        return;
    o->pieces[section].live = true;
    VEC_PUSH(m->arena, &m->work, (uint64_t)member << 32 | section);
    for (uint32_t i = 0; i < o->head.n_sections; i++) {
        bool always = !o->live && !(o->sections[i].flags & COMDAT);
        if ((always || o->pieces[i].with == section + 1) && !o->pieces[i].live && !is_left_out(&o->sections[i])) {
            o->pieces[i].live = true;
            VEC_PUSH(m->arena, &m->work, (uint64_t)member << 32 | i);
        }
    }
    o->live = true;
}

/* Where the symbol is defined; false: nowhere here. */
static bool resolve(struct merged *m, uint32_t *member, uint32_t *symbol, struct symbol *s)
{
    *s = symbol_at(m, &m->members[*member], *symbol);
    const struct definition *d = is_global(s) ? find(m, s->name) : NULL;
    if (d) {
        *member = d->member;
        *symbol = d->symbol;
        *s = symbol_at(m, &m->members[*member], *symbol);
    }
    return s->section > 0;
}

static bool reach_name(struct merged *m, const char *name)
{
    const struct definition *d = find(m, name);
    if (!d)
        return broken(m, name);
    reach_section(m, d->member, (uint32_t)symbol_at(m, &m->members[d->member], d->symbol).section - 1);
    return true;
}

static bool reach(struct merged *m)
{
    if (!reach_name(m, "mcc_query") || !reach_name(m, "mcc_rt_note") || !reach_name(m, TABLE_MODEL))
        return false;
    while (m->work.n) {
        uint64_t item = m->work.data[--m->work.n], at;
        uint32_t member = (uint32_t)(item >> 32);
        const struct member *o = &m->members[member];
        const struct coff_section *s = &o->sections[(uint32_t)item];
        uint32_t n = n_relocations(o, s, &at);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t to = member, index;
            struct symbol found;
            memcpy(&index, o->data + at + (uint64_t)k * COFF_RELOCATION_BYTES + 4, sizeof index);
            if (index >= o->head.n_symbols)
                return broken(m, "a relocation");
            if (resolve(m, &to, &index, &found))
                reach_section(m, to, (uint32_t)found.section - 1);
        }
    }
    return true;
}

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
    for (int i = 0; i < m->n_joined; i++)
        if (strcmp(m->joined[i].name, name) == 0)
            return i;
    if (m->n_joined == JOINED_MAX)
        return UNPLACED;
    struct joined *j = &m->joined[m->n_joined];
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
    if ((piece->to = joined_for(m, name)) == UNPLACED || align > ALIGN_MAX)
        return broken(m, "a kind of section that is not used");
    struct joined *j = &m->joined[piece->to];
    uint64_t at = (j->size + align - 1) / align * align;
    j->flags |= s->flags & ~(uint32_t)(COMDAT | COFF_OVERFLOWS | 15u << ALIGN_SHIFT);
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
    bool query = strcmp(s->name, "mcc_query") == 0, local = s->class == COFF_STATIC || is_global(s);
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
        struct symbol s = symbol_at(m, o, i);
        if (s.type == COFF_FUNCTION)
            inside(m, o, i, &s);
        i += s.more;
    }
}

/* The number + 1 of a name that the program or the system defines. */
static uint32_t outside(struct merged *m, const char *name)
{
    for (uint32_t k = 0; k < m->outside.n; k++)
        if (strcmp(m->outside.data[k].name, name) == 0)
            return m->outside.data[k].symbol;
    coff_put_symbol(&m->symbols, &m->names, name, 0, 0, 0, COFF_EXTERNAL);
    VEC_PUSH(m->arena, &m->outside, ((struct definition){.name = name, .symbol = ++m->n_symbols}));
    return m->n_symbols;
}

static bool put_relocations(struct merged *m, uint32_t member, uint32_t section)
{
    const struct member *o = &m->members[member];
    const struct piece *piece = &o->pieces[section];
    struct joined *j = &m->joined[piece->to];
    uint64_t at;
    uint32_t n = n_relocations(o, &o->sections[section], &at);
    for (uint32_t k = 0; k < n; k++) {
        char row[COFF_RELOCATION_BYTES];
        uint32_t place, index, to = member;
        struct symbol s;
        memcpy(row, o->data + at + (uint64_t)k * sizeof row, sizeof row);
        memcpy(&place, row, sizeof place);
        memcpy(&index, row + 4, sizeof index);
        bool defined = resolve(m, &to, &index, &s);
        uint32_t number = defined ? inside(m, &m->members[to], index, &s) : is_global(&s) ? outside(m, s.name) : 0;
        if (!number)
            return broken(m, "what a relocation names");
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
    for (uint32_t k = 0; k < m->n_members; k++)
        for (uint32_t i = 0; i < m->members[k].head.n_sections; i++)
            if (m->members[k].pieces[i].live && !place(m, &m->members[k], i))
                return false;
    for (uint32_t k = 0; k < m->n_members; k++)
        put_functions(m, &m->members[k]);
    for (uint32_t k = 0; k < m->n_members; k++)
        for (uint32_t i = 0; i < m->members[k].head.n_sections; i++)
            if (m->members[k].pieces[i].live && !put_relocations(m, k, i))
                return false;
    return true;
}

/* ---- the file ---- */

static void align_to(struct strbuf *out, uint32_t align)
{
    while (out->n % align)
        strbuf_append(out, "", 1);
}

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
        align_to(out, 16);
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
    struct strbuf out;
    uint64_t all = m->symbols.n + m->names.n;
    int weights = UNPLACED;
    for (int i = 0; i < m->n_joined; i++)
        all += m->joined[i].bytes.n + m->joined[i].relocations.n;
    if (all > UINT32_MAX / 2)
        return error_limit(m->ctx, (src_id){0}, "an object for Windows has at most 2 GiB of code and tables");
    strbuf_init(&out, m->arena);
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
    align_to(&out, 64);
    if ((w->size && !w->sidecar) != (weights != UNPLACED))
        return broken(m, "weights");
    if (weights != UNPLACED)
        heads[weights].at = (uint32_t)out.n;
    memcpy(out.data, &head, sizeof head);
    memcpy(out.data + sizeof head, heads, (size_t)m->n_joined * sizeof *heads);
    const struct definition *d = find(m, TABLE_MODEL);
    const struct member *o = &m->members[d->member];
    struct symbol s = symbol_at(m, o, d->symbol);
    const struct piece *piece = &o->pieces[s.section - 1];
    m->desc_at = heads[piece->to].at + (uint64_t)piece->at + s.value;
    if (m->desc_at % 8 || m->desc_at + sizeof *m->desc > out.n)
        return broken(m, "table");
    m->desc = (struct mcc_rt_desc *)(void *)(out.data + m->desc_at);
    m->head = (struct span){out.data, out.n};
    return true;
}

static bool write_body(struct merged *m, struct sink *s)
{
    const struct weights_writer *w = m->l->weights;
    bool embedded = w->size && !w->sidecar, archive = m->l->kind == OUTPUT_ARCHIVE;
    uint64_t size = m->head.size + (embedded ? w->size : 0);
    struct span head = archive ? archive_head(m->arena, m->l->query, size) : (struct span){"", 0};
    return sink_put(s, head.data, head.size) && sink_put(s, m->head.data, m->head.size) &&
           (!embedded || sink_weights(s, w, &m->desc->weights_hash)) &&
           (!archive || size % 2 == 0 || sink_put(s, "\n", 1)) && sink_fits(s, w->sidecar ? w->size : 0) &&
           sink_patch(s, m->desc, sizeof *m->desc, head.size + m->desc_at);
}

static bool write_sidecar(void *user, struct sink *side)
{
    struct merged *m = user;
    return sidecar_put(side, m->arena, m->l->weights, &m->desc->weights_hash, &m->desc->sidecar_head_hash) &&
           write_body(m, m->object) && sink_sync(m->object);
}

static bool write_object(void *user, struct sink *s)
{
    struct merged *m = user;
    const struct weights_writer *w = m->l->weights;
    if (!w->size || !w->sidecar)
        return write_body(m, s);
    m->object = s;
    return sink_file(m->ctx, m->arena, w->sidecar, write_sidecar, m);
}

bool coff_merged(const struct linked *l)
{
    struct merged *m = NEW(l->arena, struct merged);
    *m = (struct merged){.ctx = l->ctx, .arena = l->arena, .l = l, .machine = coff_machine_of(l->from->platform)};
    if (l->weights->size > COFF_IMAGE_MAX && !l->weights->sidecar)
        return error_limit(l->ctx, (src_id){0}, COFF_TOO_LARGE);
    return read_members(m) && reach(m) && join(m) && make_head(m) &&
           sink_file(l->ctx, l->arena, l->path, write_object, m);
}
