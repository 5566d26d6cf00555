/* --choose NODE:KEY=VALUE: from the options to the module, and a word on those that nothing asked for. */
#include "cli/library/compile/compile.h"
#include "ir/base/scan.h"
#include "passes/module/choices.h"
#include "passes/schedule/fields.h"

enum { NUMBER_MOST = 4096 };

/* words: the values, "|" between them, whose places 0, 1, ... are what they mean; else, or NULL: `count` numbers with x
 * between them; 0: only words. */
static const struct key {
    const char *name, *form, *words;
    int count;
} keys[] = {
    [CHOOSE_TILE] = {"tile", "BxAxV, rows x points x vectors, as in conv1:tile=1x6x4", NULL, 3},
    [CHOOSE_WINOGRAD] = {"winograd", "off, 2, 4 or 6", "off||2||4||6", 0},
    [CHOOSE_CHUNK] = {"chunk", "a number of tiles", NULL, 1},
    [CHOOSE_SPLIT] = {"split", "a number of parts", NULL, 1},
    [CHOOSE_LAYOUT] = {"layout", "plain or blocked", "plain|blocked", 0},
    [CHOOSE_STORE] = {"store", "yes", "|yes", 0},
    [CHOOSE_PRECISION] = {"precision",
                          "f32, bf16, f16, f16-sums, int8 or int8:LEAST,MOST, as in conv1:precision=int8:-1.5,6",
                          "f32|bf16|f16|f16-sums|int8", 0},
    [CHOOSE_WEIGHTS] = {"weights", "auto, bf16, f16, i8, f8 or i4", "auto|bf16|f16|i8|f8|i4", 0},
    [CHOOSE_VERSION] = {"version", "off, or the largest size that it is for", "off", 1},
};

/* The number of the word in a list; -1: none of them. */
static int word_number(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int n = 0; length; n++) {
        size_t part = strcspn(words, "|");
        if (part == length && memcmp(words, word, part) == 0)
            return n;
        if (!words[part])
            break;
        words += part + 1;
    }
    return -1;
}

static bool value_read(const struct key *key, const char *text, int64_t n[3])
{
    struct scan s = {.p = text, .blanks = ""};
    int word = key->words ? word_number(key->words, text) : -1;
    n[0] = word >= 0 ? word : 0;
    for (int i = 0; word < 0 && i < key->count; i++) {
        if ((i && *s.p++ != 'x') || scan_i64(&s, &n[i]) || n[i] < 1 || n[i] > NUMBER_MOST)
            return false;
    }
    return word >= 0 || (key->count && !*s.p);
}

/* "LEAST,MOST": the range of an operand, which holds more than 0. */
static bool range_read(struct arena *a, const char *text, double range[2])
{
    const char *comma = strchr(text, ',');
    const char *part[2] = {comma ? arena_strndup(a, text, (size_t)(comma - text)) : "", comma ? comma + 1 : ""};
    for (int i = 0; i < 2; i++) {
        bool below = *part[i] == '-';
        if (!real_parse(part[i] + below, &range[i]) || range[i] > OPERAND_MOST)
            return false;
        range[i] = below ? -range[i] : range[i];
    }
    return range[0] <= 0 && range[1] >= 0 && range[1] > range[0];
}

/* A field of some kind's records, and what one of them may hold there. NULL, or what is wrong. */
static const char *field_choice(struct arena *a, const char *name, const char *value, struct choice *c)
{
    struct field_value v;
    const char *why = NULL;
    c->key = CHOOSE_FIELD;
    for (int kind = 1; kind < SCHEDULE_KINDS; kind++) {
        const struct field *f = field_find((enum schedule_kind)kind, name, &v.item);
        if (!f)
            continue;
        why = field_read((enum schedule_kind)kind, name, value, a, &v);
        c->field = field_name(f, v.item, a);
        c->n[0] = v.value;
        if (!why)
            return NULL;
    }
    return why ? why
               : "the keys are tile, winograd, chunk, split, layout, store, precision, weights, version and the fields of "
                 "schedules (mcc --generate=schedules.md lists them)";
}

static bool choice_read(struct compilation *c, const char *text)
{
    struct module *m = c->module;
    const char *sign = strrchr(text, '='), *colon = sign;
    while (colon && colon > text && *colon != ':')
        colon--;
    if (!colon || colon == text)
        return error_usage(c->ctx, "--choose '%s': NODE:KEY=VALUE, as in conv1:tile=1x6x4", text);
    struct choice choice = {.text = text, .node = arena_strndup(m->arena, text, (size_t)(colon - text))};
    const char *name = arena_strndup(m->arena, colon + 1, (size_t)(sign - colon - 1));
    for (size_t k = 0; k < COUNT_OF(keys); k++) {
        if (strcmp(keys[k].name, name) != 0)
            continue;
        const char *value = sign + 1,
                   *range = k == CHOOSE_PRECISION && strncmp(value, "int8:", 5) == 0 ? value + 5 : NULL;
        if (!value_read(&keys[k], range ? "int8" : value, choice.n) ||
            (range && !range_read(m->arena, range, choice.range)))
            return error_usage(c->ctx, "--choose '%s': %s is %s", text, name, keys[k].form);
        choice.key = (enum choice_key)k;
        choice_add(m, choice);
        return true;
    }
    const char *why = field_choice(m->arena, name, sign + 1, &choice);
    if (why)
        return error_usage(c->ctx, "--choose '%s': %s", text, why);
    choice_add(m, choice);
    return true;
}

bool choices_read(struct compilation *c)
{
    for (uint32_t i = 0; i < c->options->choices.items.n; i++)
        if (!choice_read(c, c->options->choices.items.data[i]))
            return false;
    return true;
}

void choices_check(struct compilation *c)
{
    const struct module *m = c->module;
    for (uint32_t i = 0; i < m->asked.choices.n; i++) {
        const struct choice *w = &m->asked.choices.data[i];
        bool last = w->field || choice_latest(m, w->node, w->key) == w; /* else a later one counted */
        if (!w->asked && last)
            warn_at(
                c->ctx, (src_id){0}, "choose",
                "%s: no kernel of '%s' has this choice (-Rpass-analysis=layout-transform,schedule says what kernels choose)",
                w->text, w->node);
    }
}
