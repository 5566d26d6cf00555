/* Sets of characters: sorted ranges, the classes that RE2 names, and the two cases of ASCII letters. */
#include "passes/regex/internal.h"

static void add(struct arena *arena, struct ranges *set, uint32_t lo, uint32_t hi)
{
    if (lo <= hi)
        VEC_PUSH(arena, set, ((struct range){lo, hi}));
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Two letters outside ASCII have a letter of ASCII as their other case: the Kelvin sign k, the long s s. */
enum { KELVIN = 0x212a, LONG_S = 0x17f };

void ranges_add(struct arena *arena, struct ranges *set, uint32_t lo, uint32_t hi, bool fold)
{
    static const struct {
        uint32_t letter, other;
    } pairs[] = {{'K', KELVIN}, {'k', KELVIN}, {'S', LONG_S}, {'s', LONG_S}};
    add(arena, set, lo, hi);
    if (!fold)
        return;
    for (uint32_t c = larger(lo, 'A'); c <= smaller(hi, 'z'); c++)
        if ((c | 32) >= 'a' && (c | 32) <= 'z')
            add(arena, set, c ^ 32, c ^ 32);
    for (size_t i = 0; i < COUNT_OF(pairs); i++)
        if (lo <= pairs[i].letter && pairs[i].letter <= hi)
            add(arena, set, pairs[i].other, pairs[i].other);
}

ASCENDING(by_lo, struct range, lo);

void ranges_tidy(struct ranges *set)
{
    uint32_t n = 0;
    if (set->n)
        qsort(set->data, set->n, sizeof *set->data, by_lo);
    for (uint32_t i = 0; i < set->n; i++) {
        struct range r = set->data[i];
        if (n && r.lo <= set->data[n - 1].hi + 1)
            set->data[n - 1].hi = larger(set->data[n - 1].hi, r.hi);
        else
            set->data[n++] = r;
    }
    set->n = n;
}

void ranges_negate(struct arena *arena, struct ranges *set)
{
    struct ranges rest = {NULL, 0, 0};
    uint32_t lo = 0;
    ranges_tidy(set);
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->data[i].lo > lo)
            add(arena, &rest, lo, set->data[i].lo - 1);
        lo = set->data[i].hi + 1;
    }
    add(arena, &rest, lo, RUNE_MAX);
    *set = rest;
}

/* Adds the characters that the pairs of `bounds` enclose, or all others. Case folds before the complement is taken. */
static void add_bounds(struct arena *arena, struct ranges *set, const char *bounds, size_t n, bool negate, bool fold)
{
    struct ranges part = {NULL, 0, 0};
    for (size_t i = 0; i < n; i += 2)
        ranges_add(arena, &part, (unsigned char)bounds[i], (unsigned char)bounds[i + 1], fold);
    if (negate)
        ranges_negate(arena, &part);
    for (uint32_t i = 0; i < part.n; i++)
        add(arena, set, part.data[i].lo, part.data[i].hi);
}

bool ranges_add_escape(struct arena *arena, struct ranges *set, char letter, bool fold)
{
    static const struct {
        char letter;
        const char *bounds;
    } escapes[] = {{'d', "09"}, {'s', "\t\n\f\r  "}, {'w', "09AZ__az"}};
    for (size_t i = 0; i < COUNT_OF(escapes); i++)
        if ((letter | 32) == escapes[i].letter) {
            add_bounds(arena, set, escapes[i].bounds, strlen(escapes[i].bounds), letter != escapes[i].letter, fold);
            return true;
        }
    return false;
}

bool ranges_add_named(struct arena *arena, struct ranges *set, struct span name, bool negate, bool fold)
{
#define BOUNDS(text) text, sizeof(text) - 1
    static const struct {
        const char *name, *bounds;
        size_t n;
    } classes[] = {
        {"alnum", BOUNDS("09AZaz")},
        {"alpha", BOUNDS("AZaz")},
        {"ascii", BOUNDS("\0\177")},
        {"blank", BOUNDS("\t\t  ")},
        {"cntrl", BOUNDS("\0\37\177\177")},
        {"digit", BOUNDS("09")},
        {"graph", BOUNDS("!~")},
        {"lower", BOUNDS("az")},
        {"print", BOUNDS(" ~")},
        {"punct", BOUNDS("!/:@[`{~")},
        {"space", BOUNDS("\t\r  ")},
        {"upper", BOUNDS("AZ")},
        {"word", BOUNDS("09AZ__az")},
        {"xdigit", BOUNDS("09AFaf")},
    };
#undef BOUNDS
    for (size_t i = 0; i < COUNT_OF(classes); i++)
        if (strlen(classes[i].name) == name.size && !memcmp(classes[i].name, name.data, name.size)) {
            add_bounds(arena, set, classes[i].bounds, classes[i].n, negate, fold);
            return true;
        }
    return false;
}
