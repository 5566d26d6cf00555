/* Records as text, and back: what -print-after=schedule writes and --schedules=FILE reads.
 *
 *   schedule k12 "features.3/Conv" x86-64-v4: tiled
 *     tile.columns     6               # points along the tiled dim a
 *     ...
 *
 * One table has every field that counts as a decision. A file may leave fields out: they stay what the cost model says.
 */
#include "passes/schedule/schedule.h"
#include "passes/schedule/winograd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 512, NUMBER_MOST = 1 << 30, ITEMS_MOST = 1 << 16 };

static const char *const kind_names[] = {
    [SCHEDULE_NONE] = "none",           [SCHEDULE_MAP] = "map",
    [SCHEDULE_TILED] = "tiled",         [SCHEDULE_WINOGRAD] = "winograd",
    [SCHEDULE_ATTENTION] = "attention", [SCHEDULE_SCAN] = "scan",
    [SCHEDULE_SCATTER] = "scatter",     [SCHEDULE_HALO] = "halo",
};

enum width { INT32, INT64, FLAG, TIME };
enum { ANY_KIND = -1 };
static const struct field {
    int kind;
    const char *name;            /* with %u where there are several: the number of one */
    size_t at;
    enum width width;
    const char *note;
    size_t count, each;          /* several: where their number is, an uint32_t, and the bytes from one to the next */
    size_t via;                  /* ... and where the pointer to them is, at then being a place in one; 0: none */
} fields[] = {
#define REDUCE(member, width, note)            \
    {ANY_KIND,                                 \
     "reduce.%u." #member,                     \
     offsetof(struct reduce_schedule, member), \
     width,                                    \
     note,                                     \
     offsetof(struct schedule, n_reduce),      \
     sizeof(struct reduce_schedule),           \
     offsetof(struct schedule, reduce)}
#define MAP(member, name, width, note) {SCHEDULE_MAP, name, offsetof(struct schedule, map.member), width, note, 0, 0, 0}
#define TILE(member, name, width, note) \
    {SCHEDULE_TILED, name, offsetof(struct schedule, tile.member), width, note, 0, 0, 0}
#define WINO(member, name, width, note) \
    {SCHEDULE_WINOGRAD, name, offsetof(struct schedule, winograd.member), width, note, 0, 0, 0}
#define ATTN(member, name, width, note) \
    {SCHEDULE_ATTENTION, name, offsetof(struct schedule, attention.member), width, note, 0, 0, 0}
    {ANY_KIND, "estimate", offsetof(struct schedule, ns), TIME,
     "ns of a parallel index, from which the runtime cuts work", 0, 0, 0},
    MAP(vec, "lanes.dim", INT32, "dim of the result whose points lie in lanes; -1: none"),
    MAP(lanes, "lanes", INT32, "points of a vector"),
    {SCHEDULE_MAP, "loop.%u", offsetof(struct schedule, map.loop), INT32, "dims, outermost first",
     offsetof(struct schedule, map.n_loops), sizeof(int32_t), 0},
    {SCHEDULE_MAP, "cut.%u", offsetof(struct schedule, map.cut), INT32,
     "points where vectors begin anew, of the lanes' dim, or of that beside it", offsetof(struct schedule, map.n_cuts),
     sizeof(int32_t), 0},
    MAP(parallel, "parallel", INT32, "loops that are flattened into the parallel index"),
    MAP(split, "split", INT64, "steps of the last of these that a parallel index does; 0: one"),
    MAP(tail, "tail", FLAG, "the vector that is not full has code of its own, the others no mask"),
    MAP(beside, "beside", INT32, "points of the last loop but one in a vector, each with the whole last one; 0: one"),
    MAP(turn.columns, "turn.columns", INT32, "of a square that registers turn, along the last loop; 0: none is"),
    MAP(turn.lanes, "turn.lanes", INT32, "points of it along the lanes' dim"),
    MAP(turn.line, "turn.squares", INT32, "side by side along the lanes' dim"),
#define LINES(kind)                                           \
    {kind,                                                    \
     "lanes.dim",                                             \
     offsetof(struct schedule, lines.vec),                    \
     INT32,                                                   \
     "dim of the result whose points lie in lanes; -1: none", \
     0,                                                       \
     0,                                                       \
     0},                                                      \
        {kind, "lanes", offsetof(struct schedule, lines.lanes), INT32, "points of a vector", 0, 0, 0}
    LINES(SCHEDULE_SCAN),
    LINES(SCHEDULE_SCATTER),
    {SCHEDULE_HALO, "lanes", offsetof(struct schedule, halo_lanes), INT32, "channels of a vector", 0, 0, 0},
    TILE(vec, "lanes.dim", INT32, "dim of the anchor's result whose points lie in lanes; -1: none"),
    TILE(lanes, "lanes", INT32, "points of a vector"),
    TILE(a, "tile.a", INT32, "dims that are register-tiled; -1: none"),
    TILE(b, "tile.b", INT32, NULL),
    TILE(flat, "tile.flat", FLAG, "points of b and a are numbered through"),
    TILE(tb, "tile.rows", INT32, "points along b"),
    TILE(ta, "tile.columns", INT32, "points along a"),
    TILE(nr, "tile.vectors", INT32, "vectors of lanes"),
    TILE(lines_last, "lines.last", FLAG, "images and further rows inside of a block of vectors"),
    TILE(chunk, "staged.tiles", INT32, "tiles that share a staged operand; 0: none does"),
    TILE(windows, "staged.rows", FLAG, "what they share is rows of the operand"),
    TILE(by_piece, "staged.piece", FLAG, "of the piece's channels only"),
    TILE(stage_lanes, "staged.lanes", INT32, "channels at a time that fill it"),
    TILE(stage_columns, "staged.columns", INT32, "points of a row of a staged contraction; 0: maps are staged"),
    TILE(stage_ahead, "prefetch.staged", FLAG, "what the next chunk's is computed from"),
    TILE(weave, "weave", INT32, "results whose epilogues are computed in turn"),
    TILE(weave_least, "weave.least", INT32, "statements of an epilogue for that; shorter ones stay in order"),
    TILE(block, "reduce.block", INT64,
         "indices of a block of the outermost reduced dim; 0: the sums stay in registers"),
    TILE(split, "split", INT64, "tiles along the rows that a parallel index goes through; 0: all of them"),
    TILE(decode, "decode.above", INT64,
         "points along a, or of an image: the second operand is computed into scratch first; 0: never"),
    TILE(near, "prefetch.near", INT64, "steps; each vector's own line of the panels"),
    TILE(early, "prefetch.early", INT64, "steps, during which the next block's panels are prefetched"),
    TILE(next, "prefetch.next", FLAG, "by the steps of few rows, the same lines of the next block's panels"),
    WINO(m, "winograd.m", INT32, "F(m x m, 3 x 3)"),
    WINO(lanes, "lanes", INT32, "channels of a vector"),
    WINO(mr, "tile.tiles", INT64, "tiles of results"),
    WINO(nr, "tile.vectors", INT64, "vectors of output channels"),
    WINO(chunk, "chunk", INT64, "tiles of a chunk, whole register tiles"),
    WINO(group, "group", INT64, "vectors of output channels of a parallel index"),
    WINO(span, "span", INT64, "chunks of a parallel index"),
    WINO(slice, "slice", INT64, "vectors of input channels of which U is at hand"),
    WINO(early, "prefetch.taps", INT64, "of the next slice's weights, while U of this one is derived"),
    WINO(source, "weights", INT32, "0: the kernel derives U, 1: open does, 2: the file has it"),
    WINO(resident, "resident", FLAG, "all of U is derived first"),
    WINO(input_rows, "input.rows", INT32, "of the operand's transform, at a time"),
    WINO(output_rows, "output.rows", INT32, "of the results' transform, at a time"),
    WINO(near, "prefetch.near", INT64, "vectors of input channels; lines of V, 0: not"),
    WINO(near_sums, "prefetch.sums", FLAG, "lines of M, where sums go through it"),
    WINO(results, "prefetch.results", FLAG, "lines that results go to"),
    WINO(by_lane, "by_lane", FLAG, "a vector of input channels at a time, whose tiles are lanes of registers"),
    ATTN(lanes, "lanes", INT32, "rows of a vector"),
    ATTN(nv, "rows", INT64, "vectors of rows of a block"),
    ATTN(mr, "scores.keys", INT64, "keys of the scores' register tile"),
    ATTN(pr, "values.rows", INT64, "rows of the results' register tile"),
    ATTN(pc, "values.vectors", INT64, "vectors of it"),
    ATTN(span, "span", INT64, "keys at a time; 0: all, the softmax is exact"),
    ATTN(reach, "reach", FLAG, "keys that no row of a block can see are left out"),
    ATTN(parts, "parts", INT64, "parallel indices that the keys of few blocks are cut into, at most; 0: not cut"),
    ATTN(part, "part.keys", INT64, "keys of such a part, at least"),
    ATTN(terms, "terms.vectors", INT32, "vectors of rows whose exponentials are computed at once"),
    REDUCE(lanes, INT32, "along the innermost reduced dim, where the point has none; 0: never"),
    REDUCE(sums, INT32, "vectors of partial results then"),
    REDUCE(unroll, INT64, "steps x points of a loop's body, at most"),
    REDUCE(row, FLAG, "all taps of a row in one step"),
    REDUCE(prefetch, FLAG, "the next block of input channels"),
    REDUCE(by_lane, FLAG, "four steps at a time, whose first operands are lanes of one register"),
    REDUCE(matrix, FLAG, "products of two rows by two columns"),
    REDUCE(scaled, FLAG, "sums of blocks are multiplied by their factor, not each operand"),
    REDUCE(halves, INT64, "steps summed in f16 before they go into f32, 0: none"),
    {ANY_KIND, "kept.%u.lanes", offsetof(struct kept_schedule, lanes), INT32, "of the loop that fills what a row keeps",
     offsetof(struct schedule, n_kept), sizeof(struct kept_schedule), offsetof(struct schedule, kept)},
};

static uint32_t field_count(const struct field *f, const struct schedule *s)
{
    return f->each ? *(const uint32_t *)((const char *)s + f->count) : 1;
}

static void *field_at(const struct field *f, const struct schedule *s, uint32_t item)
{
    char *base = f->via ? *(char *const *)((const char *)s + f->via) : (char *)(uintptr_t)s;
    return base + f->at + item * f->each;
}

static int64_t field_get(const struct field *f, const struct schedule *s, uint32_t item)
{
    const void *at = field_at(f, s, item);
    switch (f->width) {
    case FLAG: return *(const bool *)at;
    case INT32: return *(const int32_t *)at;
    default: return *(const int64_t *)at;
    }
}

static void field_set(const struct field *f, struct schedule *s, uint32_t item, int64_t n)
{
    void *at = field_at(f, s, item);
    if (f->width == FLAG)
        *(bool *)at = n;
    else if (f->width == INT32)
        *(int32_t *)at = (int32_t)n;
    else
        *(int64_t *)at = n;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static const char *field_name(const struct field *f, uint32_t item, struct arena *a)
{
    const char *number = strstr(f->name, "%u");
    return number ? arena_printf(a, "%.*s%u%s", (int)(number - f->name), f->name, item, number + 2) : f->name;
}

static void field_print(const struct field *f, const struct schedule *s, uint32_t item, struct arena *a,
                        struct strbuf *out)
{
    const char *note = item ? NULL : f->note;
    strbuf_printf(out, "  %-17s %-8lld%s%s\n", field_name(f, item, a), (long long)field_get(f, s, item),
                  note ? " # " : "", note ? note : "");
}

/* The fields of each reduction behind a line that says which one it is. */
static void reductions_print(const struct module *m, const struct schedule *s, const struct field *f, uint32_t n,
                             struct strbuf *out)
{
    for (uint32_t k = 0; k < s->n_reduce; k++) {
        const struct node *node = graph_node(m->g, s->reduce[k].node);
        strbuf_printf(out, "  # reduce.%u: %s of ", k, op_name(node->op));
        strbuf_quoted(out, source_label(source_get(m->ctx, node->src)));
        strbuf_printf(out, "\n");
        for (uint32_t i = 0; i < n; i++)
            field_print(&f[i], s, k, m->arena, out);
    }
}

static void record_print(const struct module *m, value_id staged, const struct schedule *s, struct strbuf *out)
{
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        const struct field *f = &fields[i];
        uint32_t n = 1;
        if (f->kind != (int)s->kind && f->kind != ANY_KIND)
            continue;
        if (f->via == offsetof(struct schedule, reduce)) {
            while (i + n < COUNT_OF(fields) && f[n].via == f->via)
                n++;
            reductions_print(m, s, f, n, out);
            i += n - 1;
            continue;
        }
        for (uint32_t k = 0; k < field_count(f, s); k++)
            field_print(f, s, k, m->arena, out);
    }
    if (staged.i)
        strbuf_printf(out, "  # staged: %%%u, which the kernel computes itself\n", staged.i);
    if (s->flops)
        strbuf_printf(out, "  # %llu floating-point operations\n", (unsigned long long)s->flops);
}

void schedules_print(const struct module *m, struct strbuf *out)
{
    for (uint32_t v = 0; v < m->schedules.n; v++)
        for (uint32_t i = 0; i < m->kernels.n; i++) {
            const struct schedule *s = &m->schedules.data[v].of[i];
            if (s->kind == SCHEDULE_NONE)
                continue;
            strbuf_printf(out, "schedule k%u ", i);
            strbuf_quoted(out, kernel_label(m, &m->kernels.data[i]));
            strbuf_printf(out, " %s: %s\n", m->schedules.data[v].cpu, kind_names[s->kind]);
            record_print(m, m->kernels.data[i].form.staged, s, out);
            strbuf_printf(out, "\n");
        }
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

struct reader {
    struct module *m;
    const char *path;
    uint32_t line;
};

static bool wrong(const struct reader *r, const char *what, const char *word)
{
    return error_at(r->m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: %s '%s'", r->path, r->line, what, word);
}

static bool number_read(const char *text, int64_t *n)
{
    char *end;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *n >= -1;
}

/* schedule k12 "label" CPU: KIND */
static bool head_read(struct reader *r, char *line)
{
    struct schedule_told t = {.line = r->line};
    struct strbuf label;
    char *kernel = line + strlen("schedule "), *quote = strchr(kernel, '"'), *colon = strrchr(line, ':');
    int64_t number;
    if (!quote || !colon || *kernel != 'k' || quote == kernel || quote[-1] != ' ')
        return wrong(r, "schedule kN \"NODE\" CPU: KIND, not", line);
    quote[-1] = 0;
    *colon = 0;
    if (!number_read(kernel + 1, &number) || number < 0 || number >= r->m->kernels.n)
        return wrong(r, "there is no kernel", kernel);
    t.kernel = (uint32_t)number;
    strbuf_init(&label, r->m->arena);
    strbuf_quoted(&label, kernel_label(r->m, &r->m->kernels.data[number]));
    if (strncmp(quote, label.data, label.n) != 0 || quote[label.n] != ' ')
        return wrong(r, arena_printf(r->m->arena, "%s computes %s here, not", kernel, label.data), quote);
    t.cpu = arena_strdup(r->m->arena, quote + label.n + 1);
    for (t.kind = 0; t.kind < (int)COUNT_OF(kind_names) && strcmp(kind_names[t.kind], colon + 2) != 0; t.kind++)
        ;
    if (colon[1] != ' ' || t.kind == (int)COUNT_OF(kind_names))
        return wrong(r, "no kind of schedule:", colon + 1);
    VEC_PUSH(r->m->arena, &r->m->told, t);
    return true;
}

/* Is that the field's name, of one of several? *item: its number, else 0. */
static bool is_named(const struct field *f, const char *name, uint32_t *item)
{
    const char *number = strstr(f->name, "%u");
    size_t before = number ? (size_t)(number - f->name) : 0;
    char *end;
    *item = 0;
    if (!number)
        return strcmp(f->name, name) == 0;
    if (strncmp(f->name, name, before) != 0 || name[before] < '0' || name[before] > '9')
        return false;
    unsigned long n = strtoul(name + before, &end, 10);
    *item = (uint32_t)n;
    return n < ITEMS_MOST && strcmp(end, number + 2) == 0;
}

static bool field_read(struct reader *r, char *line)
{
    char *name = line + strspn(line, " "), *value = name + strcspn(name, " ");
    struct schedule_told *t = r->m->told.n ? &r->m->told.data[r->m->told.n - 1] : NULL;
    struct schedule_field set = {.line = r->line};
    if (!t)
        return wrong(r, "a field before the first schedule:", name);
    if (*value)
        *value++ = 0;
    value += strspn(value, " ");
    for (; set.field < COUNT_OF(fields); set.field++)
        if ((fields[set.field].kind == t->kind || fields[set.field].kind == ANY_KIND) &&
            is_named(&fields[set.field], name, &set.item))
            break;
    if (set.field == COUNT_OF(fields))
        return wrong(r, arena_printf(r->m->arena, "a schedule of kind %s has no field", kind_names[t->kind]), name);
    const struct field *f = &fields[set.field];
    if (!number_read(value, &set.value) || (f->width != TIME && set.value > NUMBER_MOST) ||
        (f->width == FLAG && (set.value < 0 || set.value > 1)))
        return wrong(r, arena_printf(r->m->arena, "%s takes a number, not", name), value);
    VEC_PUSH(r->m->arena, &t->fields, set);
    return true;
}

bool schedules_parse(struct module *m, const char *path, const char *text)
{
    struct reader r = {.m = m, .path = path};
    m->told_path = path;
    for (const char *at = text; *at; at += *at == '\n') {
        char line[LINE_MOST];
        size_t n = strcspn(at, "\n");
        r.line++;
        if (n >= sizeof line)
            return wrong(&r, "a line of more than 511 bytes:", arena_strndup(m->arena, at, 40));
        memcpy(line, at, n);
        at += n;
        bool head = strncmp(line, "schedule ", strlen("schedule ")) == 0 && n > strlen("schedule ");
        for (size_t i = 0; !head && i < n; i++) /* a label may hold the sign of a comment */
            n = line[i] == '#' ? i : n;
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\r'))
            n--;
        line[n] = 0;
        if (n && !(head ? head_read(&r, line) : field_read(&r, line)))
            return false;
    }
    return true;
}

/* The estimate only, or all others. */
static bool fields_apply(const struct site *site, struct reader *r, const struct schedule_told *t, bool estimate,
                         struct schedule *s)
{
    for (uint32_t k = 0; k < t->fields.n; k++) {
        const struct schedule_field *set = &t->fields.data[k];
        const struct field *f = &fields[set->field];
        r->line = set->line;
        if (set->item >= field_count(f, s))
            return wrong(r, arena_printf(site->m->arena, "there are %u of '%s', not", field_count(f, s), f->name),
                         arena_printf(site->m->arena, "%u", set->item));
        if ((f->width == TIME) == estimate)
            field_set(f, s, set->item, set->value);
    }
    return true;
}

/* The names of some kinds. */
static const char *kinds_words(uint32_t kinds, struct arena *a)
{
    const char *words = "";
    for (uint32_t kind = 0; kind < COUNT_OF(kind_names); kind++)
        if (kinds >> kind & 1)
            words = arena_printf(a, "%s%s%s", words, *words ? ", " : "", kind_names[kind]);
    return words;
}

/* The record's own winograd.m, which the others follow; as it is where nothing is said of it. */
static uint32_t told_form(struct reader *r, const struct schedule_told *t, uint32_t form)
{
    for (uint32_t k = 0; k < t->fields.n; k++)
        if (fields[t->fields.data[k].field].at == offsetof(struct schedule, winograd.m)) {
            form = (uint32_t)t->fields.data[k].value;
            r->line = t->fields.data[k].line;
        }
    return form;
}

/* The record that the cost model would make of that kind, and of Winograd's by that form. */
static bool kind_apply(const struct site *site, struct reader *r, const struct schedule_told *t, struct schedule *s)
{
    uint32_t own = s->kind == SCHEDULE_WINOGRAD ? s->winograd.m : 0,
             form = t->kind == SCHEDULE_WINOGRAD ? told_form(r, t, own) : 0;
    if (t->kind == (int)s->kind && form == own)
        return true;
    if (t->kind == SCHEDULE_WINOGRAD && form != own && !winograd_form(form))
        return wrong(r, "winograd.m is 2, 4 or 6, not", arena_printf(site->m->arena, "%u", form));
    uint32_t kinds = schedule_kinds(site);
    if (!(kinds >> t->kind & 1))
        return wrong(r,
                     arena_printf(site->m->arena, "the kernel's schedule may be of kind %s, not",
                                  kinds_words(kinds, site->m->arena)),
                     kind_names[t->kind]);
    *s = (struct schedule){.kind = (enum schedule_kind)t->kind, .winograd.m = form};
    return schedule_choose(site, s);
}

bool schedule_told(const struct site *site, uint32_t kernel, const char *cpu, struct schedule *s)
{
    struct module *m = site->m;
    for (uint32_t i = 0; i < m->told.n; i++) {
        const struct schedule_told *t = &m->told.data[i];
        struct reader r = {m, m->told_path, t->line};
        struct strbuf why;
        if (t->kernel != kernel || strcmp(t->cpu, cpu) != 0)
            continue;
        if (!kind_apply(site, &r, t, s))
            return false;
        if (!fields_apply(site, &r, t, false, s))
            return false;
        strbuf_init(&why, m->arena);
        if (schedule_verify(site, s, &why))
            schedule_estimate(site, s);
        if (!fields_apply(site, &r, t, true, s))
            return false;
        if (s->ns < 0)
            strbuf_printf(&why, "%sthe estimate is negative", why.n ? "; " : "");
        if (why.n)
            return error_at(m->ctx, FAIL_USAGE, (src_id){0}, NULL, "%s:%u: k%u on %s: %s", m->told_path, t->line,
                            kernel, cpu, why.data);
    }
    return true;
}
