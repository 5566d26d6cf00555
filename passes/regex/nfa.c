/* The nondeterministic automaton of a tree, built from its end: each part gets the state that comes after it. Counted
 * repetitions are written out. Characters are sequences of ranges of bytes, in their shortest UTF-8 form and without
 * the surrogates, so that a text that is not UTF-8 matches nothing.
 */
#include "passes/regex/internal.h"

enum { STATES_MAX = 1 << 16, STEPS_MAX = 1 << 18, CACHED = 256 };
static const uint32_t NOWHERE = UINT32_MAX;

struct maker {
    struct arena *arena;
    struct nfa *nfa;
    uint32_t steps;              /* parts seen, empty ones too: what bounds the time */
    uint32_t cache[CACHED];      /* states of BYTES, so that the tails of characters are shared */
    bool full;
};

static uint32_t state_add(struct maker *m, struct nfa_state s)
{
    if (m->nfa->states.n == STATES_MAX) {
        m->full = true;
        return 0;
    }
    VEC_PUSH(m->arena, &m->nfa->states, s);
    return m->nfa->states.n - 1;
}

static uint32_t bytes_add(struct maker *m, uint32_t lo, uint32_t hi, uint32_t next)
{
    uint32_t *at = &m->cache[(lo * 31 + hi * 7 + next * 131) % CACHED];
    const struct nfa_state *s = &m->nfa->states.data[*at];
    if (s->kind != NFA_BYTES || s->lo != lo || s->hi != hi || s->next != next)
        *at = state_add(m, (struct nfa_state){.kind = NFA_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .next = next});
    return *at;
}

static uint32_t split_add(struct maker *m, uint32_t a, uint32_t b)
{
    return a == NOWHERE   ? b
           : b == NOWHERE ? a
                          : state_add(m, (struct nfa_state){.kind = NFA_SPLIT, .next = a, .other = b});
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* Code points lo..hi, of n bytes each; lead: what the first of the bytes has above its bits. */
static uint32_t runes_add(struct maker *m, uint32_t lo, uint32_t hi, int n, uint32_t lead, uint32_t next)
{
    if (n == 1)
        return bytes_add(m, lead + lo, lead + hi, next);
    int shift = 6 * (n - 1);
    uint32_t mask = (1u << shift) - 1, first = lo >> shift, last = hi >> shift, all = NOWHERE;
    if (first == last)
        return bytes_add(m, lead + first, lead + first, runes_add(m, lo & mask, hi & mask, n - 1, 0x80, next));
    if (lo & mask) {
        uint32_t tail = runes_add(m, lo & mask, mask, n - 1, 0x80, next);
        all = bytes_add(m, lead + first, lead + first, tail);
        first++;
    }
    if ((hi & mask) != mask) {
        uint32_t tail = runes_add(m, 0, hi & mask, n - 1, 0x80, next);
        all = split_add(m, bytes_add(m, lead + last, lead + last, tail), all);
        last--;
    }
    if (first <= last) {
        uint32_t tail = runes_add(m, 0, mask, n - 1, 0x80, next);
        all = split_add(m, bytes_add(m, lead + first, lead + last, tail), all);
    }
    return all;
}

/* NOWHERE: a class without characters. */
static uint32_t class_add(struct maker *m, const struct ranges *set, uint32_t next)
{
    static const struct {
        uint32_t lo, hi;
        int n;
        uint32_t lead;
    } forms[] = {
        {0, 0x7f, 1, 0},           {0x80, 0x7ff, 2, 0xc0},       {0x800, 0xd7ff, 3, 0xe0},
        {0xe000, 0xffff, 3, 0xe0}, {0x10000, RUNE_MAX, 4, 0xf0},
    };
    uint32_t all = NOWHERE;
    for (uint32_t i = 0; i < set->n && !m->full; i++)
        for (size_t f = 0; f < COUNT_OF(forms); f++) {
            uint32_t lo = set->data[i].lo > forms[f].lo ? set->data[i].lo : forms[f].lo;
            uint32_t hi = set->data[i].hi < forms[f].hi ? set->data[i].hi : forms[f].hi;
            if (lo <= hi)
                all = split_add(m, runes_add(m, lo, hi, forms[f].n, forms[f].lead, next), all);
        }
    return all;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static uint32_t part_add(struct maker *m, const struct tree *t, uint32_t next);

static uint32_t repeat_add(struct maker *m, const struct tree *t, uint32_t next)
{
    uint32_t at = next;
    if (t->max < 0) {
        at = state_add(m, (struct nfa_state){.kind = NFA_SPLIT, .next = next, .other = next});
        uint32_t body = part_add(m, t->child, at);
        if (!m->full && body != NOWHERE)
            m->nfa->states.data[at].other = body;
    }
    for (int32_t i = t->min; i < t->max && !m->full; i++)
        at = split_add(m, part_add(m, t->child, at), next);
    for (int32_t i = 0; i < t->min && !m->full; i++)
        at = part_add(m, t->child, at);
    return at;
}

/* The state at which part t begins if `next` is after it; NOWHERE: it cannot match. */
static uint32_t part_add(struct maker *m, const struct tree *t, uint32_t next)
{
    uint32_t all = NOWHERE;
    m->full |= ++m->steps > STEPS_MAX;
    if (m->full || next == NOWHERE)
        return next;
    switch (t->kind) {
    case TREE_CLASS: return class_add(m, &t->ranges, next);
    case TREE_LOOK:
        m->nfa->looks |= (uint8_t)t->look;
        return state_add(m, (struct nfa_state){.kind = NFA_LOOK, .look = (uint8_t)t->look, .next = next});
    case TREE_CAT:
        for (const struct tree *c = t->child; c; c = c->before)
            next = part_add(m, c, next);
        return next;
    case TREE_ALT:
        for (const struct tree *c = t->child; c; c = c->before)
            all = split_add(m, part_add(m, c, next), all);
        return all;
    case TREE_REPEAT: return repeat_add(m, t, next);
    default: return next;
    }
}

bool nfa_build(struct arena *arena, const struct tree *tree, struct nfa *out, struct regex_error *error)
{
    struct maker m = {.arena = arena, .nfa = out};
    uint32_t accept = state_add(&m, (struct nfa_state){.kind = NFA_ACCEPT});
    out->start = part_add(&m, tree, accept);
    if (out->start == NOWHERE) /* no byte lies between these two */
        out->start = state_add(&m, (struct nfa_state){.kind = NFA_BYTES, .lo = 1, .hi = 0, .next = accept});
    if (m.full)
        *error = (struct regex_error){.text = "it becomes too large: its repetitions are written out"};
    return !m.full;
}
