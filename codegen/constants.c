/* One code for kernels that differ in scalar constants: scales and zero points, which are immediates of loop IR, differ
 * from node to node of a quantized network where nothing else does. A constant that differs becomes a word of the data
 * of the kernel's row: `const f32 0x1.8p-3` becomes `const f32 data 0`. All others stay immediates.
 */
#include "codegen/constants.h"

enum { CONSTANTS_MOST = 32, SLOTS = 1024 };

/* A constant's value in the text of a unit. */
struct constant {
    const char *at;
    uint32_t length, word;
};
struct constants {
    uint32_t n;
    struct constant of[CONSTANTS_MOST];
    uint64_t hash; /* of the target and of all but the values */
};
struct group {
    uint32_t first; /* unit */
    uint32_t differs; /* a bit for each constant */
    uint32_t next; /* group + 1 of the same slot */
};

static bool is_quantized(const char *text)
{
    const char *end = strstr(text, " = ");
    size_t head = end ? (size_t)(end - text) : 0;
    return memmem(text, head, ": buffer u8", 11) || memmem(text, head, ": buffer i8", 11);
}

bool constants_wait(const struct codegen_unit *u)
{
    return u->by_row && is_quantized(u->text);
}

/* The bits of a finite f32, or of an i32. */
static bool read_word(const char *at, uint32_t length, bool real, uint32_t *word)
{
    char text[48], *end;
    if (length >= sizeof text)
        return false;
    memcpy(text, at, length);
    text[length] = 0;
    double number = real ? strtod(text, &end) : 0;
    float as_float = (float)number;
    long long whole = real ? 0 : strtoll(text, &end, 10);
    if (*end || (double)as_float != number || as_float - as_float != 0 || whole != (int32_t)whole)
        return false;
    if (real)
        memcpy(word, &as_float, sizeof *word);
    else
        *word = (uint32_t)whole;
    return true;
}

/* False: more than can be told apart. */
static bool find_constants(const struct codegen_unit *u, struct constants *c)
{
    static const char *const types[] = {" = const f32 ", " = const i32 "};
    const struct target *t = u->target;
    const char *body = strchr(u->text, '\n'), *from = body;
    c->n = 0;
    c->hash = hash_bytes(t->triple, strlen(t->triple));
    c->hash = hash_mix(c->hash, hash_bytes(t->cpu, strlen(t->cpu)));
    c->hash = hash_mix(c->hash, hash_bytes(t->features, strlen(t->features)));
    for (const char *line = body; line && *line; line = strchr(line + 1, '\n')) {
        const char *sign = strstr(line, " = "), *end = line[1] ? strchr(line + 1, '\n') : NULL;
        for (int i = 0; end && sign && sign < end && i < 2; i++) {
            size_t length = strlen(types[i]);
            if (strncmp(sign, types[i], length) != 0)
                continue;
            struct constant k = {sign + length, (uint32_t)(end - (sign + length)), 0};
            if (!read_word(k.at, k.length, i == 0, &k.word))
                continue;
            if (c->n == CONSTANTS_MOST)
                return false;
            c->hash = hash_mix(c->hash, hash_bytes(from, (size_t)(k.at - from)));
            from = end;
            c->of[c->n++] = k;
        }
    }
    c->hash = from ? hash_mix(c->hash, hash_bytes(from, strlen(from))) : c->hash;
    return c->n > 0;
}

/* Are they one except for the values? */
static bool same_but_values(const struct codegen_unit *a, const struct constants *x, const struct codegen_unit *b,
                            const struct constants *y)
{
    const char *p = strchr(a->text, '\n'), *q = strchr(b->text, '\n');
    if (x->hash != y->hash || x->n != y->n || strcmp(a->target->triple, b->target->triple) != 0 ||
        strcmp(a->target->cpu, b->target->cpu) != 0 || strcmp(a->target->features, b->target->features) != 0)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        size_t length = (size_t)(x->of[i].at - p);
        if (length != (size_t)(y->of[i].at - q) || memcmp(p, q, length) != 0)
            return false;
        p = x->of[i].at + x->of[i].length;
        q = y->of[i].at + y->of[i].length;
    }
    return strcmp(p, q) == 0;
}

static void share_text(struct arena *arena, struct codegen_unit *u, const struct constants *c, uint32_t differs)
{
    struct strbuf text = strbuf_of(arena);
    const char *from = u->text;
    uint32_t *words = NEW_ARRAY(arena, uint32_t, c->n), n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (!(differs >> i & 1))
            continue;
        strbuf_append(&text, from, (size_t)(c->of[i].at - from));
        strbuf_printf(&text, "data %u", n);
        from = c->of[i].at + c->of[i].length;
        words[n++] = c->of[i].word;
    }
    strbuf_append(&text, from, strlen(from));
    u->text = text.data;
    u->data = (struct span){words, n * sizeof *words};
}

struct sharing {
    struct codegen_unit *units;
    struct constants *of; /* by unit */
    uint32_t *group_of; /* by unit: group + 1; 0: none */
    VEC(struct group) groups;
    uint32_t slots[SLOTS]; /* group + 1 by hash */
};

static void join_group(struct arena *arena, struct sharing *s, uint32_t unit)
{
    const struct constants *c = &s->of[unit];
    uint32_t *slot = &s->slots[c->hash % SLOTS], g = *slot;
    while (g && !same_but_values(&s->units[s->groups.data[g - 1].first], &s->of[s->groups.data[g - 1].first],
                                 &s->units[unit], c))
        g = s->groups.data[g - 1].next;
    if (!g) {
        VEC_PUSH(arena, &s->groups, ((struct group){.first = unit, .next = *slot}));
        g = *slot = s->groups.n;
    }
    struct group *group = &s->groups.data[g - 1];
    for (uint32_t i = 0; i < c->n; i++)
        group->differs |= (uint32_t)(c->of[i].word != s->of[group->first].of[i].word) << i;
    s->group_of[unit] = g;
}

struct codegen_unit *constants_share(struct arena *arena, const struct codegen_unit *units, uint32_t n)
{
    struct sharing *s = NEW(arena, struct sharing);
    *s = (struct sharing){.units = NEW_ARRAY(arena, struct codegen_unit, n + 1),
                          .of = NEW_ARRAY(arena, struct constants, n + 1),
                          .group_of = NEW_ARRAY(arena, uint32_t, n + 1)};
    for (uint32_t i = 0; i < n; i++) {
        s->units[i] = units[i];
        if (constants_wait(&units[i]) && find_constants(&units[i], &s->of[i]))
            join_group(arena, s, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t g = s->group_of[i], differs = g ? s->groups.data[g - 1].differs : 0;
        if (differs)
            share_text(arena, &s->units[i], &s->of[i], differs);
    }
    return s->units;
}
