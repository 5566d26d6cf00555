/* The differences of two modules' texts, and the fields of records that are worth a line. */
#include "tests/passes/delta.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "passes/schedule/fields.h"

enum { VALUES_MOST = 4096, WORDS_MOST = 400, KNOWN_MOST = 8, HEX_MOST = 64 };

/* What the same lines of both texts share, the best first: the hash of all that a node computes, the node's text
 * without values, its name; of a kernel all but its number, and its anchor or what it stores; of other lines what they
 * are about. */
enum trait { CONE, TEXT, NAME, KEY, TRAITS };
struct row {
    const char *number; /* of a kernel, with a blank */
    const char *text; /* after tidy */
    const char *operands; /* where they begin: what is before it are definitions */
    const char *key; /* what the line is about */
    const char *trait[TRAITS]; /* NULL: it has none */
    struct row *other; /* the same line of the other text */
};
struct rows {
    struct row *at;
    uint32_t n;
    const char *name[VALUES_MOST]; /* of each value, in place of %N */
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* The quoted text that begins at p. */
static const char *quoted(struct arena *arena, const char *p)
{
    return arena_strndup(arena, p + 1, strcspn(p + 1, "\""));
}

static void names_of_sources(struct arena *arena, const char *text, const char **name)
{
    for (const char *p = text; (p = strstr(p, "\nsource "));) {
        uint32_t id = (uint32_t)strtoul(p + 8, NULL, 10);
        const char *label = strchr(p, '"'), *output = label;
        for (uint32_t quotes = 0; quotes < 6; output++)
            quotes += *output == '"';
        name[id < VALUES_MOST ? id : 0] = quoted(arena, label[1] == '"' ? strchr(output, '"') : label);
        p = output;
    }
}

/* Without numbers of sources, and long lists by their hash. */
static const char *tidy(struct arena *arena, const char *line, const char *const *sources)
{
    struct strbuf out = strbuf_of(arena);
    for (const char *p = line; *p;) {
        size_t n = 1;
        if (!strncmp(p, " @", 2)) {
            char *end;
            unsigned long id = strtoul(p + 2, &end, 10);
            n = (size_t)(end - p);
            strbuf_printf(&out, " @%s", id < VALUES_MOST && sources[id] ? sources[id] : "?");
        } else if (!strncmp(p, "hex\"", 4) && (n = strcspn(p + 4, "\"")) > HEX_MOST) {
            strbuf_printf(&out, "hex\"%.16s, %zu bytes, %08x", p + 4, n / 2, (uint32_t)hash_bytes(p + 4, n));
            n += 4;
        } else if (!strncmp(p, "known [", 7)) {
            uint32_t commas = 0;
            n = strcspn(p, "]");
            for (size_t i = 0; i < n; i++)
                commas += p[i] == ',';
            if (commas < KNOWN_MOST)
                strbuf_append(&out, p, n);
            else
                strbuf_printf(&out, "known [%.*s, %u elements, %08x", (int)strcspn(p + 7, ","), p + 7, commas + 1,
                              (uint32_t)hash_bytes(p, n));
        } else {
            strbuf_append(&out, p, n = 1);
        }
        p += n;
    }
    return out.data;
}

static uint32_t value_at(const char *p, char **end)
{
    unsigned long v = strtoul(p + 1, end, 10);
    return v < VALUES_MOST ? (uint32_t)v : 0;
}

/* The text with definitions (before `operands`) and operands under these names; a value without one keeps its own. */
static const char *renamed(struct arena *arena, const struct row *r, const char *const *defined,
                           const char *const *operand)
{
    struct strbuf out = strbuf_of(arena);
    for (const char *p = r->text; *p;) {
        char *end = (char *)(uintptr_t)p + 1;
        const char *const *names = p < r->operands ? defined : operand;
        uint32_t v = *p == '%' && isdigit((unsigned char)p[1]) ? value_at(p, &end) : 0;
        if (v && names && names[v])
            strbuf_printf(&out, "%s", names[v]);
        else if (v && !names)
            strbuf_printf(&out, "%%");
        else
            strbuf_append(&out, p, (size_t)(end - p));
        p = end;
    }
    return out.data;
}

/* The words that say what a line is about: a value, or one or two words. */
static const char *key_of(struct arena *arena, const char *text)
{
    static const char *const alone[] = {"facts", "order", "module", "workspace", "segment", "return", "region"};
    size_t n = strcspn(text, " :");
    for (size_t i = 0; i < COUNT_OF(alone); i++)
        if (!strncmp(text, alone[i], n) && !alone[i][n])
            return alone[i];
    return arena_strndup(arena, text, *text == '%' || !text[n] ? n : n + 1 + strcspn(text + n + 1, " :"));
}

static void traits_of_node(struct arena *arena, struct row *r, const char **cones)
{
    const char *all = renamed(arena, r, NULL, cones), *name = strstr(r->text, " \"");
    uint32_t k = 0;
    char *end;
    r->trait[CONE] = arena_printf(arena, "%016llx", (unsigned long long)hash_bytes(all, strlen(all)));
    r->trait[TEXT] = renamed(arena, r, NULL, NULL);
    r->trait[NAME] = *r->text == '%' && name && name < r->operands ? quoted(arena, name + 1) : NULL;
    r->trait[KEY] = NULL;
    for (const char *d = r->text; d < r->operands; d++)
        if (*d == '%' && isdigit((unsigned char)d[1]))
            cones[value_at(d, &end)] = arena_printf(arena, "%%%s.%u", r->trait[CONE], k++);
}

/* Its number is not a part of its text: others than it can go. */
static void traits_of_kernel(struct arena *arena, struct row *r)
{
    r->number = arena_printf(arena, "%s ", r->key);
    r->text = r->operands = r->text + strlen(r->number);
    const char *anchor = strstr(r->text, " anchor "), *stores = strstr(r->text, " stores ");
    const char *over = stores ? strstr(stores, " over ") : NULL;
    r->trait[TEXT] = r->text;
    if (anchor)
        r->trait[NAME] = arena_strndup(arena, anchor, strcspn(anchor + 8, " ") + 8);
    else if (stores)
        r->trait[NAME] = arena_printf(arena, "%.*s%.*s", (int)strcspn(r->text, " "), r->text,
                                      (int)(over ? (size_t)(over - stores) : strlen(stores)), stores);
}

static struct rows *rows_of(struct arena *arena, const char *text)
{
    struct rows *all = NEW(arena, struct rows);
    const char *sources[VALUES_MOST] = {0}, *cones[VALUES_MOST] = {0};
    uint32_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    all->at = NEW_ARRAY(arena, struct row, lines);
    names_of_sources(arena, text, sources);
    for (const char *p = text; *p; p += *p == '\n') {
        size_t n = strcspn(p, "\n");
        p += strspn(p, " ");
        n = strcspn(p, "\n");
        if (n > 1 && strncmp(p, "source ", 7) != 0) {
            struct row *r = &all->at[all->n++];
            r->text = tidy(arena, arena_strndup(arena, p, n), sources);
            const char *node = *r->text == '%' ? strstr(r->text, " = ") : NULL;
            r->operands = node ? node : !strncmp(r->text, "region (", 8) ? r->text + strlen(r->text) : r->text;
            r->key = key_of(arena, r->text);
            r->trait[KEY] = r->key;
            if (!strncmp(r->key, "kernel ", 7))
                traits_of_kernel(arena, r);
            if (r->operands > r->text)
                traits_of_node(arena, r, cones);
        }
        p += n;
    }
    return all;
}

/* ---- the same lines of both ----------------------------------------------------------------------------------------
 */

static void pair(struct arena *arena, struct rows *after, struct row *a, struct row *b)
{
    const char *p = b->text, *q = a->text;
    a->other = b;
    b->other = a;
    while ((p = strchr(p, '%')) && p < b->operands && (q = strchr(q, '%')) && q < a->operands) {
        char *end;
        size_t n = 1 + strspn(p + 1, "0123456789");
        uint32_t v = value_at(q, &end);
        if (!after->name[v])
            after->name[v] = arena_strndup(arena, p, n);
        p += n;
        q = end;
    }
}

static void match(struct arena *arena, struct rows *before, struct rows *after, enum trait t)
{
    for (uint32_t i = 0; i < after->n; i++) {
        struct row *r = &after->at[i], key = {.text = r->key, .operands = r->key};
        const char *want = r->other ? NULL : r->trait[t];
        if (want && t == KEY)
            want = renamed(arena, &key, after->name, after->name);
        for (uint32_t k = 0; want && k < before->n && !r->other; k++)
            if (!before->at[k].other && before->at[k].trait[t] && !strcmp(before->at[k].trait[t], want))
                pair(arena, after, r, &before->at[k]);
    }
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

struct words {
    const char *at[WORDS_MOST];
    uint32_t n;
};

/* What brackets and quotes hold is one word. */
static void split(struct arena *arena, const char *text, struct words *out)
{
    for (out->n = 0; *text && out->n < WORDS_MOST; text += *text == ' ') {
        size_t n = 0;
        bool text_of = false;
        for (int depth = 0; text[n] && (text[n] != ' ' || depth || text_of); n++) {
            text_of ^= text[n] == '"';
            depth += !text_of && strchr("([{", text[n]) ? 1 : 0;
            depth -= !text_of && strchr(")]}", text[n]) ? 1 : 0;
        }
        out->at[out->n++] = arena_strndup(arena, text, n);
        text += n;
    }
}

/* The words that a longest common part of both lines does not have. */
static void words_print(struct arena *arena, const char *was, const char *now, struct strbuf *out)
{
    struct words *a = NEW(arena, struct words), *b = NEW(arena, struct words);
    split(arena, was, a);
    split(arena, now, b);
    uint32_t w = b->n + 1, *same = NEW_ARRAY(arena, uint32_t, (size_t)(a->n + 1) * w), i = 0, j = 0;
    char sign = 0;
    for (uint32_t x = a->n; x-- > 0;)
        for (uint32_t y = b->n; y-- > 0;)
            same[x * w + y] = !strcmp(a->at[x], b->at[y])                    ? same[(x + 1) * w + y + 1] + 1
                              : same[(x + 1) * w + y] >= same[x * w + y + 1] ? same[(x + 1) * w + y]
                                                                             : same[x * w + y + 1];
    while (i < a->n || j < b->n) {
        bool old = i < a->n && (j >= b->n || same[(i + 1) * w + j] >= same[i * w + j + 1]);
        if (i < a->n && j < b->n && !strcmp(a->at[i], b->at[j])) {
            i++;
            j++;
            sign = 0;
            continue;
        }
        strbuf_printf(out, sign == (old ? '-' : '+') ? " %s" : old ? " - %s" : " + %s", old ? a->at[i] : b->at[j]);
        sign = old ? '-' : '+';
        i += old;
        j += !old;
    }
}

static void name_new_values(struct arena *arena, struct rows *after)
{
    uint32_t n = 0;
    char *end;
    for (uint32_t i = 0; i < after->n; i++)
        for (const char *d = after->at[i].text; d < after->at[i].operands; d++)
            if (*d == '%' && isdigit((unsigned char)d[1]) && !after->name[value_at(d, &end)])
                after->name[value_at(d, &end)] = arena_printf(arena, "%%+%u", ++n);
}

static void gone_print(const struct rows *before, struct strbuf *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < before->n; i++)
        if (!before->at[i].other && *before->at[i].key == '%')
            strbuf_printf(out, n++ ? " %s" : "- %s", before->at[i].key);
    strbuf_printf(out, n ? "\n" : "");
    for (uint32_t i = 0; i < before->n; i++)
        if (!before->at[i].other && *before->at[i].key != '%')
            strbuf_printf(out, "- %s%s\n", before->at[i].number ? before->at[i].number : "", before->at[i].text);
}

void delta_print(struct arena *arena, const char *before, const char *after, struct strbuf *out)
{
    struct rows *b = rows_of(arena, before), *a = rows_of(arena, after);
    for (enum trait t = 0; t < TRAITS; t++)
        match(arena, b, a, t);
    name_new_values(arena, a);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct row *r = &a->at[i];
        const char *now = renamed(arena, r, a->name, a->name);
        if (!r->other) {
            strbuf_printf(out, "+ %s%s\n", r->number ? r->number : "", now);
        } else if (strcmp(now, r->other->text) != 0) {
            strbuf_printf(out, "%s", r->other->key);
            words_print(arena, r->other->text, now, out);
            strbuf_printf(out, "\n");
        }
    }
    gone_print(b, out);
}

static bool is_asked(const char *name, const char *fields)
{
    if (!fields)
        return strcmp(name, "estimate") != 0;
    for (const char *p = fields; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (!strncmp(name, p, n))
            return true;
        p += n;
    }
    return false;
}

void fields_print(const struct module *m, const char *fields, struct strbuf *out)
{
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct schedule *s = &m->plan.schedules.data[0].of[i];
        if (s->kind == SCHEDULE_NONE)
            continue;
        strbuf_printf(out, "k%u \"%s\" %s\n", i, kernel_label(m, &m->fused.kernels.data[i]),
                      schedule_kind_name(s->kind));
        for (uint32_t k = 0; k < schedule_field_count; k++) {
            const struct field *f = &schedule_fields[k];
            for (uint32_t item = 0; field_is_of(f, s->kind) && item < field_count(f, s); item++)
                if (field_get(f, s, item) != f->least && is_asked(field_name(f, item, out->arena), fields))
                    strbuf_printf(out, "  %s %lld\n", field_name(f, item, out->arena),
                                  (long long)field_get(f, s, item));
        }
    }
}
