/* The deterministic automaton: a state is a set of states of the other one, taken before its conditions are looked at,
 * and what kind of character was the last. So a condition is decided where both of its neighbours are known.
 */
#include "passes/regex/internal.h"

enum { DFA_STATES = 1 << 14, DFA_ENTRIES = 1 << 20, WORK_MAX = 1 << 25, SLOTS = 1 << 15 };

/* What lies at one side of a place between characters. */
enum side { SIDE_OTHER, SIDE_WORD, SIDE_NEWLINE, SIDE_END, SIDES };

struct state {
    uint32_t first, n;
    enum side before;
}; /* members first..first + n of the pool, ascending */

struct maker {
    struct arena *arena;
    const struct nfa *nfa;
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* one byte of each class */
    enum side side_of[256]; /* of each class */
    uint32_t classes;
    VEC(struct state) states;
    VEC(uint32_t) pool;
    VEC(uint16_t) rows; /* for each state accepts and next[classes] */
    uint32_t *slots; /* state + 1 by hash */
    uint32_t *closure, n_closure, *stack;
    uint32_t *mark, round; /* mark[s] == round: s is in the set at work */
    uint32_t *next, n_next;
    int64_t work;
};

/* ---- classes of bytes -------------------------------------------------------------------------------------------- */

static bool is_word(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

/* Only as far as a condition asks: fewer kinds, fewer states. */
static enum side side_of_byte(const struct nfa *nfa, int c)
{
    if (c == '\n' && nfa->looks & (LOOK_LINE_BEGIN | LOOK_LINE_END))
        return SIDE_NEWLINE;
    return is_word(c) && nfa->looks & (LOOK_WORD | LOOK_NO_WORD) ? SIDE_WORD : SIDE_OTHER;
}

/* Splits each class into the bytes of a set and the others. */
static void refine(struct maker *m, const bool *set)
{
    uint16_t made[256][2];
    uint32_t n = 0;
    memset(made, 0xff, sizeof made);
    for (int c = 0; c < 256; c++) {
        uint16_t *id = &made[m->class_of[c]][set[c]];
        if (*id == UINT16_MAX)
            *id = (uint16_t)n++;
        m->class_of[c] = (uint8_t)*id;
    }
    m->classes = n;
}

static void refine_range(struct maker *m, uint32_t lo, uint32_t hi)
{
    bool set[256] = {false};
    for (uint32_t c = lo; c <= hi; c++)
        set[c] = true;
    refine(m, set);
}

/* Bytes that no state tells apart get one column of the table. */
static void make_classes(struct maker *m)
{
    bool(*seen)[256] = arena_alloc(m->arena, 256 * sizeof *seen), set[256];
    m->classes = 1;
    for (uint32_t i = 0; i < m->nfa->states.n; i++) {
        const struct nfa_state *s = &m->nfa->states.data[i];
        if (s->kind != NFA_BYTES || s->lo > s->hi || seen[s->lo][s->hi])
            continue;
        seen[s->lo][s->hi] = true;
        refine_range(m, s->lo, s->hi);
    }
    for (enum side side = SIDE_WORD; side <= SIDE_NEWLINE; side++) {
        for (int c = 0; c < 256; c++)
            set[c] = side_of_byte(m->nfa, c) == side;
        refine(m, set);
    }
    for (int c = 0; c < 256; c++) {
        m->byte_of[m->class_of[c]] = (uint8_t)c;
        m->side_of[m->class_of[c]] = side_of_byte(m->nfa, c);
    }
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static bool look_holds(uint8_t look, enum side before, enum side after)
{
    bool edge = (before == SIDE_WORD) != (after == SIDE_WORD);
    switch (look) {
    case LOOK_BEGIN: return before == SIDE_END;
    case LOOK_END: return after == SIDE_END;
    case LOOK_LINE_BEGIN: return before == SIDE_END || before == SIDE_NEWLINE;
    case LOOK_LINE_END: return after == SIDE_END || after == SIDE_NEWLINE;
    case LOOK_WORD: return edge;
    default: return !edge;
    }
}

static void visit(struct maker *m, uint32_t s, uint32_t *n_stack)
{
    if (m->mark[s] == m->round)
        return;
    m->mark[s] = m->round;
    m->stack[(*n_stack)++] = s;
}

/* The states that read a byte, and the accepting one, that can be reached without a byte. */
static void close_over(struct maker *m, struct state from, enum side after)
{
    uint32_t n_stack = 0;
    m->round++;
    m->n_closure = 0;
    for (uint32_t i = 0; i < from.n; i++)
        visit(m, m->pool.data[from.first + i], &n_stack);
    while (n_stack) {
        uint32_t at = m->stack[--n_stack];
        const struct nfa_state *s = &m->nfa->states.data[at];
        m->work++;
        if (s->kind == NFA_BYTES || s->kind == NFA_ACCEPT)
            m->closure[m->n_closure++] = at;
        else if (s->kind == NFA_SPLIT || look_holds(s->look, from.before, after))
            visit(m, s->next, &n_stack);
        if (s->kind == NFA_SPLIT)
            visit(m, s->other, &n_stack);
    }
}

ASCENDING_NUMBERS(by_number, uint32_t);

/* m->next: where a byte of the class leads from the closure. */
static void step(struct maker *m, uint32_t class)
{
    uint8_t c = m->byte_of[class];
    m->round++;
    m->n_next = 0;
    m->work += m->n_closure;
    for (uint32_t i = 0; i < m->n_closure; i++) {
        const struct nfa_state *s = &m->nfa->states.data[m->closure[i]];
        if (s->kind != NFA_BYTES || c < s->lo || c > s->hi || m->mark[s->next] == m->round)
            continue;
        m->mark[s->next] = m->round;
        m->next[m->n_next++] = s->next;
    }
    if (m->n_next > 1)
        qsort(m->next, m->n_next, sizeof *m->next, by_number);
}

/* The number of the state {m->next, before}, a new one if there is none yet. */
static uint32_t intern(struct maker *m, enum side before)
{
    if (m->n_next == 0)
        return 0;
    uint32_t at = (uint32_t)hash_mix(hash_bytes(m->next, m->n_next * sizeof *m->next), before) % SLOTS;
    for (; m->slots[at]; at = (at + 1) % SLOTS) {
        const struct state *s = &m->states.data[m->slots[at] - 1];
        if (s->n == m->n_next && s->before == before &&
            !memcmp(&m->pool.data[s->first], m->next, s->n * sizeof *m->next))
            return m->slots[at] - 1;
    }
    struct state s = {m->pool.n, m->n_next, before};
    for (uint32_t i = 0; i < m->n_next; i++)
        VEC_PUSH(m->arena, &m->pool, m->next[i]);
    VEC_PUSH(m->arena, &m->states, s);
    m->work += 8 * (int64_t)m->n_next; /* memory counts more */
    m->slots[at] = m->states.n;
    return m->states.n - 1;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool has_accept(const struct maker *m)
{
    for (uint32_t i = 0; i < m->n_closure; i++)
        if (m->nfa->states.data[m->closure[i]].kind == NFA_ACCEPT)
            return true;
    return false;
}

static void row_add(struct maker *m, uint32_t number)
{
    uint16_t row[257] = {0};
    struct state s = m->states.data[number];
    for (enum side after = SIDE_OTHER; after < SIDES; after++) {
        close_over(m, s, after);
        if (after == SIDE_END)
            row[0] = has_accept(m);
        for (uint32_t c = 0; c < m->classes && after != SIDE_END; c++)
            if (m->side_of[c] == after) {
                step(m, c);
                row[1 + c] = (uint16_t)intern(m, after);
            }
    }
    for (uint32_t c = 0; c <= m->classes; c++)
        VEC_PUSH(m->arena, &m->rows, row[c]);
}

static bool fits(const struct maker *m)
{
    return m->states.n <= DFA_STATES && (int64_t)m->states.n * (m->classes + 1) <= DFA_ENTRIES && m->work <= WORK_MAX;
}

static struct span pack(struct arena *to, const struct maker *m)
{
    const uint16_t counts[2] = {(uint16_t)m->classes, (uint16_t)m->states.n};
    size_t rows = m->rows.n * sizeof *m->rows.data, size = sizeof m->class_of + sizeof counts + rows;
    uint8_t *data = arena_alloc(to, size);
    memcpy(data, m->class_of, sizeof m->class_of);
    memcpy(data + sizeof m->class_of, counts, sizeof counts);
    memcpy(data + sizeof m->class_of + sizeof counts, m->rows.data, rows);
    return (struct span){data, size};
}

bool dfa_build(struct arena *scratch, struct arena *to, const struct nfa *nfa, struct span *table,
               struct regex_error *error)
{
    uint32_t n = nfa->states.n;
    struct maker m = {.arena = scratch,
                      .nfa = nfa,
                      .slots = NEW_ARRAY(scratch, uint32_t, SLOTS),
                      .closure = NEW_ARRAY(scratch, uint32_t, n),
                      .stack = NEW_ARRAY(scratch, uint32_t, n),
                      .mark = NEW_ARRAY(scratch, uint32_t, n),
                      .next = NEW_ARRAY(scratch, uint32_t, n)};
    make_classes(&m);
    VEC_PUSH(scratch, &m.states, ((struct state){0, 0, SIDE_OTHER}));
    m.next[0] = nfa->start;
    m.n_next = 1;
    intern(&m, nfa->looks ? SIDE_END : SIDE_OTHER);
    for (uint32_t i = 0; i < m.states.n && fits(&m); i++)
        row_add(&m, i);
    if (!fits(&m)) {
        *error = (struct regex_error){
            .text = "it becomes too large: a deterministic automaton for it has too many states"};
        return false;
    }
    *table = pack(to, &m);
    return true;
}
