/* Reads the objects that become one for Windows, and marks what the query function reaches (coff_merge.h). */
#include "codegen/container/bytes.h"
#include "codegen/container/coff_merge.h"
#include "codegen/table.h"

enum { LEFT_OUT = 0xa00 /* what is for the linker alone */, ASSOCIATIVE = 5, WEAK = 105 };

bool merged_broken(struct merged *m, const char *what)
{
    return error_internal(m->ctx, (src_id){0}, "an object is not as expected: %s", what);
}

/* ---- reading ---- */

struct symbol merged_symbol(struct merged *m, const struct member *o, uint32_t i)
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

bool merged_is_global(const struct symbol *s)
{
    return s->class == COFF_EXTERNAL || s->class == WEAK;
}

uint32_t merged_relocations(const struct member *o, const struct coff_section *s, uint64_t *at)
{
    uint32_t n = s->n_relocations;
    *at = s->relocations_at;
    if ((s->flags & COFF_OVERFLOWS) && n == COFF_MANY && bytes_inside(o->size, *at, COFF_RELOCATION_BYTES)) {
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
        return merged_broken(m, "its head");
    memcpy(&o->head, o->data, sizeof o->head);
    uint64_t n = o->head.n_sections, symbols = (uint64_t)o->head.n_symbols * COFF_SYMBOL_BYTES;
    if (o->head.machine != m->machine->machine || o->head.optional_bytes ||
        !bytes_inside(o->size, sizeof o->head, n * sizeof *o->sections) ||
        !bytes_inside(o->size, o->head.symbols_at, symbols + sizeof size))
        return merged_broken(m, "its tables");
    o->symbols = o->data + o->head.symbols_at;
    o->text = o->symbols + symbols;
    memcpy(&size, o->text, sizeof size);
    o->text_size = size;
    if (!bytes_inside(o->size, o->head.symbols_at + symbols, size) || (size > 4 && o->text[size - 1]))
        return merged_broken(m, "its names");
    o->sections = arena_copy(m->arena, o->data + sizeof o->head, n * sizeof *o->sections);
    o->pieces = NEW_ARRAY(m->arena, struct piece, n + 1);
    o->number = NEW_ARRAY(m->arena, uint32_t, o->head.n_symbols + 1);
    for (uint64_t i = 0; i < n; i++) {
        const struct coff_section *s = &o->sections[i];
        uint64_t at, relocations = merged_relocations(o, s, &at);
        o->pieces[i].to = COFF_UNPLACED;
        if ((!(s->flags & COFF_UNINITIALIZED) && !bytes_inside(o->size, s->at, s->size)) ||
            !bytes_inside(o->size, at, relocations * COFF_RELOCATION_BYTES))
            return merged_broken(m, "a section");
    }
    for (uint32_t i = 0; i < o->head.n_symbols; i++) {
        struct symbol s = merged_symbol(m, o, i);
        if (s.section > (int)n || s.more >= o->head.n_symbols - i)
            return merged_broken(m, "a symbol");
        if (s.section > 0 && merged_is_global(&s))
            merging_define(&m->from, s.name, number, i, NULL);
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

bool merged_read(struct merged *m)
{
    merging_begin(&m->from, m->l->from, "");
    m->members = NEW_ARRAY(m->arena, struct member, m->from.n);
    for (uint32_t i = 0; i < m->from.n; i++)
        if (!read_member(m, i, m->from.objects[i]))
            return false;
    merging_define(&m->from, TABLE_STATEFUL, 0, 0, TABLE_MODEL);
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
        bool always = !o->live && !(o->sections[i].flags & COFF_COMDAT);
        if ((always || o->pieces[i].with == section + 1) && !o->pieces[i].live && !is_left_out(&o->sections[i])) {
            o->pieces[i].live = true;
            VEC_PUSH(m->arena, &m->work, (uint64_t)member << 32 | i);
        }
    }
    o->live = true;
}

bool merged_resolve(struct merged *m, uint32_t *member, uint32_t *symbol, struct symbol *s)
{
    *s = merged_symbol(m, &m->members[*member], *symbol);
    const struct merge_name *d = merged_is_global(s) ? merging_find(&m->from, s->name) : NULL;
    if (d) {
        *member = d->member;
        *symbol = d->symbol;
        *s = merged_symbol(m, &m->members[*member], *symbol);
    }
    return s->section > 0;
}

static bool reach_name(struct merged *m, const char *name)
{
    const struct merge_name *d = merging_find(&m->from, name);
    if (!d)
        return merged_broken(m, name);
    reach_section(m, d->member, (uint32_t)merged_symbol(m, &m->members[d->member], d->symbol).section - 1);
    return true;
}

bool merged_reach(struct merged *m)
{
    if (!reach_name(m, "mcc_query") || !reach_name(m, "mcc_rt_note") || !reach_name(m, TABLE_MODEL))
        return false;
    while (m->work.n) {
        uint64_t item = m->work.data[--m->work.n], at;
        uint32_t member = (uint32_t)(item >> 32);
        const struct member *o = &m->members[member];
        const struct coff_section *s = &o->sections[(uint32_t)item];
        uint32_t n = merged_relocations(o, s, &at);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t to = member, index;
            struct symbol found;
            memcpy(&index, o->data + at + (uint64_t)k * COFF_RELOCATION_BYTES + 4, sizeof index);
            if (index >= o->head.n_symbols)
                return merged_broken(m, "a relocation");
            if (merged_resolve(m, &to, &index, &found))
                reach_section(m, to, (uint32_t)found.section - 1);
        }
    }
    return true;
}
