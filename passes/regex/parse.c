/* Patterns to trees, by RE2's rules for Perl's syntax (https://github.com/google/re2/wiki/Syntax): `$` is the end of
 * the text, and not a place before its last newline; repetitions do not follow each other; a `{` that begins none
 * is a character.
 */
#include "passes/regex/internal.h"

enum { PATTERN_BYTES = 1 << 16, DEPTH_MAX = 250, REPEAT_MAX = 1000 };
enum { FLAG_FOLD = 1, FLAG_LINES = 2, FLAG_DOT_ALL = 4, FLAG_LAZY = 8 };

struct parser {
    struct arena *arena;
    const char *s;
    size_t n, at;
    uint32_t flags;
    int depth;
    bool no_named; /* there is no ":]" from here on */
    struct regex_error *error;
};

static bool fail(struct parser *p, size_t at, bool broken, const char *text)
{
    uint32_t place = 1;
    for (size_t i = 0; i < at && i < p->n; i++)
        place += ((unsigned char)p->s[i] & 0xc0) != 0x80;
    *p->error = (struct regex_error){text, place, broken};
    return false;
}

static bool at_char(const struct parser *p, char c)
{
    return p->at < p->n && p->s[p->at] == c;
}

static bool take(struct parser *p, char c)
{
    bool there = at_char(p, c);
    p->at += there;
    return there;
}

static bool at_text(const struct parser *p, const char *text)
{
    size_t n = strlen(text);
    return p->n - p->at >= n && !memcmp(p->s + p->at, text, n);
}

/* One character of UTF-8 in its shortest form, no surrogate; false: there is none. */
static bool take_rune(struct parser *p, uint32_t *rune)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p->at == p->n)
        return false;
    unsigned char c = (unsigned char)p->s[p->at];
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (n == 0 || p->n - p->at < n)
        return false;
    uint32_t value = n == 1 ? c : c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        unsigned char more = (unsigned char)p->s[p->at + i];
        if ((more & 0xc0) != 0x80)
            return false;
        value = value << 6 | (more & 0x3f);
    }
    p->at += n;
    *rune = value;
    return value >= least[n] && value <= RUNE_MAX && (value < 0xd800 || value > 0xdfff);
}

static bool check_text(struct parser *p)
{
    uint32_t rune;
    if (p->n > PATTERN_BYTES)
        return fail(p, 0, false, "it is longer than 65536 bytes");
    while (p->at < p->n) {
        size_t at = p->at;
        if (!take_rune(p, &rune))
            return fail(p, at, true, "this is not UTF-8");
    }
    p->at = 0;
    return true;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static struct tree *tree_new(struct parser *p, enum tree_kind kind)
{
    struct tree *t = NEW(p->arena, struct tree);
    t->kind = kind;
    t->copies = 1;
    return t;
}

static struct tree *tree_look(struct parser *p, enum look look)
{
    struct tree *t = tree_new(p, TREE_LOOK);
    t->look = look;
    return t;
}

static void tree_append(struct tree *to, struct tree *t)
{
    t->before = to->child;
    to->child = t;
    to->copies = t->copies > to->copies ? t->copies : to->copies;
}

/* An only child stands for its parent. */
static struct tree *tree_simple(struct tree *t, struct tree *last)
{
    return last && !last->before ? last : t;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 16;
}

/* Up to `most` digits of the base; how many there were. */
static int take_digits(struct parser *p, int base, int most, uint32_t *value)
{
    int n = 0;
    for (; n < most && p->at < p->n && digit_of(p->s[p->at]) < base; n++, p->at++)
        *value = *value * (uint32_t)base + (uint32_t)digit_of(p->s[p->at]);
    return n;
}

/* After "\x". */
static bool take_hex(struct parser *p, size_t begin, uint32_t *rune)
{
    *rune = 0;
    if (!take(p, '{'))
        return take_digits(p, 16, 2, rune) == 2 ||
               fail(p, begin, true, "two hexadecimal digits, or some in braces, must follow");
    bool good = take_digits(p, 16, 8, rune) > 0 && take(p, '}');
    if (!good || *rune > RUNE_MAX)
        return fail(p, begin, true, good ? "there is no such character" : "hexadecimal digits and '}' must follow");
    return true;
}

/* An escape that is one character, its backslash at `at`. */
static bool take_escape(struct parser *p, uint32_t *rune)
{
    static const char letters[] = "nrtfva", values[] = "\n\r\t\f\v\a";
    size_t begin = p->at++;
    if (p->at == p->n)
        return fail(p, begin, true, "nothing follows this backslash");
    char c = p->s[p->at];
    const char *known = memchr(letters, c, sizeof letters - 1);
    bool alone = p->at + 1 == p->n || digit_of(p->s[p->at + 1]) >= 8;
    if (c == 'p' || c == 'P')
        return fail(p, begin, false, "classes of Unicode (\\p, \\P) are not supported");
    if (c == 'C' || c == 'Q')
        return fail(p, begin, false, "\\C and \\Q are not supported");
    if (c >= '1' && c <= '9' && (c > '7' || alone))
        return fail(p, begin, true, "RE2 has no references to groups");
    if (digit_of(c) < 8) {
        *rune = 0;
        take_digits(p, 8, 3, rune);
        return true;
    }
    p->at++;
    if (c == 'x')
        return take_hex(p, begin, rune);
    *rune = known ? (unsigned char)values[known - letters] : (unsigned char)c;
    if (!known && ((c | 32) < 'a' || (c | 32) > 'z' ? (unsigned char)c >= 0x80 : true))
        return fail(p, begin, true, "RE2 has no such escape");
    return true;
}

static bool take_char(struct parser *p, uint32_t *rune)
{
    return at_char(p, '\\') ? take_escape(p, rune) : take_rune(p, rune);
}

/* Characters that the pattern names: of those outside ASCII the other case is not known. */
static bool add_chars(struct parser *p, struct ranges *set, uint32_t lo, uint32_t hi, size_t at)
{
    if (p->flags & FLAG_FOLD && hi >= 0x80)
        return fail(p, at, false, "characters outside ASCII are not supported where case is ignored");
    ranges_add(p->arena, set, lo, hi, (p->flags & FLAG_FOLD) != 0);
    return true;
}

/* \d and its kin; false: none is here. */
static bool take_class_escape(struct parser *p, struct ranges *set)
{
    bool there = at_char(p, '\\') && p->at + 1 < p->n &&
                 ranges_add_escape(p->arena, set, p->s[p->at + 1], (p->flags & FLAG_FOLD) != 0);
    p->at += there ? 2 : 0;
    return there;
}

static struct tree *parse_char(struct parser *p)
{
    struct tree *t = tree_new(p, TREE_CLASS);
    size_t at = p->at;
    uint32_t rune;
    if (!take_class_escape(p, &t->ranges) && (!take_char(p, &rune) || !add_chars(p, &t->ranges, rune, rune, at)))
        return NULL;
    ranges_tidy(&t->ranges);
    return t;
}

/* ---- classes in brackets ----------------------------------------------------------------------------------------- */

/* [:name:] inside of brackets. *there: whether one is here. */
static bool take_named(struct parser *p, struct ranges *set, bool *there)
{
    const char *begin = p->s + p->at, *end = NULL;
    *there = false;
    if (!p->no_named && at_text(p, "[:")) {
        end = memmem(begin + 2, p->n - p->at - 2, ":]", 2);
        p->no_named = !end;
    }
    if (!end)
        return true;
    bool negate = begin[2] == '^';
    const char *name = begin + 2 + negate;
    *there = true;
    if (end < name || !ranges_add_named(p->arena, set, (struct span){name, (size_t)(end - name)}, negate,
                                        (p->flags & FLAG_FOLD) != 0))
        return fail(p, p->at, true, "RE2 has no such class");
    p->at = (size_t)(end + 2 - p->s);
    return true;
}

static bool take_range(struct parser *p, struct ranges *set)
{
    size_t at = p->at;
    uint32_t lo, hi;
    if (!take_char(p, &lo))
        return false;
    hi = lo;
    if (p->n - p->at >= 2 && p->s[p->at] == '-' && p->s[p->at + 1] != ']') {
        p->at++;
        if (!take_char(p, &hi))
            return false;
    }
    return hi < lo ? fail(p, at, true, "this range ends before it begins") : add_chars(p, set, lo, hi, at);
}

static struct tree *parse_class(struct parser *p)
{
    struct tree *t = tree_new(p, TREE_CLASS);
    size_t begin = p->at++;
    bool negate = take(p, '^'), there;
    for (bool first = true; first || !at_char(p, ']'); first = false) {
        if (p->at == p->n) {
            fail(p, begin, true, "no ']' ends this class");
            return NULL;
        }
        if (!take_named(p, &t->ranges, &there))
            return NULL;
        if (!there && !take_class_escape(p, &t->ranges) && !take_range(p, &t->ranges))
            return NULL;
    }
    p->at++;
    if (negate)
        ranges_negate(p->arena, &t->ranges);
    ranges_tidy(&t->ranges);
    return t;
}

static struct tree *parse_dot(struct parser *p)
{
    struct tree *t = tree_new(p, TREE_CLASS);
    p->at++;
    if (!(p->flags & FLAG_DOT_ALL))
        ranges_add(p->arena, &t->ranges, '\n', '\n', false);
    ranges_negate(p->arena, &t->ranges);
    return t;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static struct tree *parse_alternatives(struct parser *p);

static uint32_t flag_of(char c)
{
    return c == 'i' ? FLAG_FOLD : c == 'm' ? FLAG_LINES : c == 's' ? FLAG_DOT_ALL : c == 'U' ? FLAG_LAZY : 0;
}

/* After "(?": flags, up to the ':' or ')' after them. */
static bool take_flags(struct parser *p)
{
    bool clear = false, any = false;
    for (; p->at < p->n; p->at++) {
        char c = p->s[p->at];
        if ((c == ':' || c == ')') && (any || !clear))
            return true;
        if (c == '-' && !clear) {
            clear = true;
            any = false;
            continue;
        }
        if (!flag_of(c))
            break;
        any = true;
        p->flags = clear ? p->flags & ~flag_of(c) : p->flags | flag_of(c);
    }
    return fail(p, p->at, true, "RE2 has no such group");
}

/* After "(?P<" or "(?<". */
static bool take_name(struct parser *p)
{
    size_t begin = p->at;
    while (p->at < p->n &&
           ((unsigned char)p->s[p->at] >= 0x80 || p->s[p->at] == '_' || flag_of(p->s[p->at]) ||
            (p->s[p->at] >= '0' && p->s[p->at] <= '9') || ((p->s[p->at] | 32) >= 'a' && (p->s[p->at] | 32) <= 'z')))
        p->at++;
    return (p->at > begin && take(p, '>')) || fail(p, begin, true, "the name of a group and '>' must follow");
}

/* After a '('. *flags_only: (?i) and the like, which enclose nothing. */
static bool take_opening(struct parser *p, bool *flags_only)
{
    *flags_only = false;
    if (!take(p, '?'))
        return true;
    if (at_char(p, '=') || at_char(p, '!') || at_text(p, "<=") || at_text(p, "<!"))
        return fail(p, p->at, true, "RE2 has no conditions on what stands before or after");
    if (at_text(p, "P<") || at_char(p, '<')) {
        p->at += at_char(p, 'P') ? 2 : 1;
        return take_name(p);
    }
    if (!take_flags(p))
        return false;
    *flags_only = p->s[p->at++] == ')';
    return true;
}

static struct tree *parse_group(struct parser *p, bool *flags_only)
{
    size_t begin = p->at++;
    uint32_t flags = p->flags;
    struct tree *t = NULL;
    if (p->depth == DEPTH_MAX) {
        fail(p, begin, false, "groups are more than 250 deep");
        return NULL;
    }
    if (!take_opening(p, flags_only))
        return NULL;
    if (*flags_only)
        return tree_new(p, TREE_EMPTY);
    p->depth++;
    t = parse_alternatives(p);
    p->depth--;
    p->flags = flags;
    if (t && !take(p, ')')) {
        fail(p, begin, true, "no ')' ends this group");
        return NULL;
    }
    return t;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

struct times {
    int32_t min, max;
    bool counted;
};

/* {m}, {m,} or {m,n}; false, and nothing taken: none is here. */
static bool take_counts(struct parser *p, struct times *times)
{
    size_t begin = p->at;
    uint32_t bound[2] = {0, 0};
    int n[2] = {0, 0};
    bool open = false;
    for (int k = 0; k < 2; k++) {
        p->at++; /* the brace, the comma */
        size_t digits = p->at;
        n[k] = take_digits(p, 10, 9, &bound[k]);
        if (n[k] > 1 && p->s[digits] == '0')
            n[0] = 0;
        open = k == 0 && at_char(p, ',');
        if (!open)
            break;
    }
    bool comma = p->s[p->at - 1] == ',' || n[1] > 0;
    if (n[0] == 0 || !take(p, '}')) {
        p->at = begin;
        return false;
    }
    uint32_t min = bound[0] > REPEAT_MAX ? REPEAT_MAX + 1 : bound[0],
             max = bound[1] > REPEAT_MAX ? REPEAT_MAX + 1 : bound[1];
    *times = (struct times){(int32_t)min, !comma ? (int32_t)min : n[1] ? (int32_t)max : -1, true};
    return true;
}

static bool take_times(struct parser *p, struct times *times)
{
    times->counted = false;
    if (at_char(p, '{'))
        return take_counts(p, times);
    bool star = at_char(p, '*'), plus = at_char(p, '+'), maybe = at_char(p, '?');
    *times = (struct times){plus ? 1 : 0, maybe ? 1 : -1, false};
    p->at += star || plus || maybe;
    return star || plus || maybe;
}

static struct tree *parse_atom(struct parser *p, bool *flags_only)
{
    char c = p->s[p->at];
    struct times times;
    size_t begin = p->at;
    *flags_only = false;
    if (c == '(')
        return parse_group(p, flags_only);
    if (c == '[')
        return parse_class(p);
    if (c == '.')
        return parse_dot(p);
    if (take(p, '^'))
        return tree_look(p, p->flags & FLAG_LINES ? LOOK_LINE_BEGIN : LOOK_BEGIN);
    if (take(p, '$'))
        return tree_look(p, p->flags & FLAG_LINES ? LOOK_LINE_END : LOOK_END);
    if (c == '\\' && p->at + 1 < p->n && memchr("AzbB", p->s[p->at + 1], 4)) {
        char look = p->s[p->at + 1];
        p->at += 2;
        return tree_look(p, look == 'A' ? LOOK_BEGIN : look == 'z' ? LOOK_END : look == 'b' ? LOOK_WORD : LOOK_NO_WORD);
    }
    if (take_times(p, &times)) {
        fail(p, begin, true, "there is nothing to repeat");
        return NULL;
    }
    return parse_char(p);
}

/* The part, as often as what stands after it says. */
static struct tree *parse_repeat(struct parser *p, struct tree *part, bool flags_only)
{
    struct times times, again;
    size_t begin = p->at;
    if (!take_times(p, &times))
        return part;
    struct tree *t = tree_new(p, TREE_REPEAT);
    bool large = times.min > REPEAT_MAX || times.max > REPEAT_MAX;
    int64_t count = !times.counted ? 1 : times.max > 0 ? times.max : times.min > 0 ? times.min : 1;
    t->child = part;
    t->min = times.min;
    t->max = times.max;
    take(p, '?');
    size_t second = p->at;
    if (flags_only)
        fail(p, begin, true, "there is nothing to repeat");
    else if (large || count * part->copies > REPEAT_MAX)
        fail(p, begin, true, "RE2 repeats a part at most 1000 times");
    else if (times.max >= 0 && times.max < times.min)
        fail(p, begin, true, "the bounds of this repetition are reversed");
    else if (take_times(p, &again))
        fail(p, second, true, "a repetition cannot follow another one");
    else {
        t->copies = (int32_t)(count * part->copies);
        return t;
    }
    return NULL;
}

static struct tree *parse_sequence(struct parser *p)
{
    struct tree *all = tree_new(p, TREE_CAT), *last = NULL;
    while (p->at < p->n && !at_char(p, '|') && !at_char(p, ')')) {
        bool flags_only;
        struct tree *part = parse_atom(p, &flags_only);
        last = part ? parse_repeat(p, part, flags_only) : NULL;
        if (!last)
            return NULL;
        tree_append(all, last);
    }
    return tree_simple(all, last);
}

static struct tree *parse_alternatives(struct parser *p)
{
    struct tree *all = tree_new(p, TREE_ALT), *last;
    do {
        last = parse_sequence(p);
        if (!last)
            return NULL;
        tree_append(all, last);
    } while (take(p, '|'));
    return tree_simple(all, last);
}

const struct tree *regex_parse(struct arena *arena, const char *pattern, size_t n, struct regex_error *error)
{
    struct parser p = {.arena = arena, .s = pattern, .n = n, .error = error};
    if (!check_text(&p))
        return NULL;
    const struct tree *t = parse_alternatives(&p);
    if (t && p.at < n) {
        fail(&p, p.at, true, "no '(' begins what this ')' ends");
        return NULL;
    }
    return t;
}
