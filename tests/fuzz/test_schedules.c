/* Records of schedules with other numbers: for each network (networks.h, tests/passes/graphs, random graphs) and each
 * row of ir/target/target.def the records that the cost model makes are changed in a few fields, and so is --choose.
 * Each is refused, by a message with the name of a field, or its loops compute what the reference interpreter does.
 *
 *   test_schedules                       what `make check` runs: some hundred records
 *   test_schedules N SEED                N of them
 *   test_schedules N SEED --native       of these, those of CPUs that this machine runs, compiled
 *   test_schedules --limits EVERY        every EVERY-th of the limits of all fields, on every CPU
 *   test_schedules --show NETWORK CPU FILE    one text of records, and what becomes of it; without FILE the cost
 *                                             model's
 *
 * A text runs in a process of its own, forked where the network is ready for its records, so that a crash is a finding
 * like any other. What fails is cut to the lines that it takes.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/library/compile/compile.h"
#include "codegen/codegen.h"
#include "ir/target/target.h"
#include "passes/schedule/schedule.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/networks.h"

#define GRAPHS "tests/passes/graphs"
enum {
    TEXT_MOST = 1 << 20,
    SECONDS = 30,
    FILES_MOST = 200,
    SIZES = 3,
    RECORDS = 500,
    LIMITS = 401,
    NATIVE = 6,
    DRAWN = 12,
    REPORTS = 12
};
enum result { AGREES, REFUSED, DIFFERS, CRASHES, RESULTS };

/* What a child says. */
struct answer {
    enum result result;
    char text[TEXT_MOST];
};

struct subject {
    const char *name; /* of a network, of a file, or a seed */
    const struct network *network;
    const char *file; /* its text */
    uint64_t seed;
};

/* A subject on one CPU, as far as there are no records yet; or with some of its options still to come (fresh). */
struct bench {
    const struct subject *subject;
    struct context *ctx;
    struct draw *d;
    struct way way;
    struct compilation *c;
    struct tensor *want[SIZES];
    int64_t size[SIZES][DRAW_SYMBOLS];
    uint32_t n_sizes;
    struct answer *answer; /* shared with children */
};

/* ---- the network and what it computes ---------------------------------------------------------------------------- */

static struct draw *subject_draw(const struct subject *s, struct context *ctx)
{
    return s->network ? network_draw(ctx, s->network)
           : s->file  ? network_read(ctx, s->file)
                      : draw_graph(ctx, s->seed, 0, DRAW_VALUES);
}

/* What the reference computes, at the largest extents, at one, and between; false: not at the largest ones. */
static bool expect(struct bench *b)
{
    struct arena *arena = &b->ctx->session;
    uint32_t all = b->d->n_symbols ? SIZES : 1;
    for (uint32_t i = 0; i < all; i++) {
        const char *text = "";
        for (uint32_t k = 0; k < b->d->n_symbols; k++)
            b->size[b->n_sizes][k] = i == 0 ? b->d->extent[k] : i == 1 ? 1 : b->d->extent[k] - b->d->extent[k] / 3;
        draw_bind(b->d, b->size[b->n_sizes]);
        b->want[b->n_sizes] = NEW_ARRAY(arena, struct tensor, b->d->g->outputs.n + 1);
        if (graph_eval(b->d->g, b->d->inputs, b->want[b->n_sizes], arena, &text) == EVAL_OK)
            b->n_sizes++;
        else if (i == 0)
            return false;
    }
    return true;
}

/* Errors as a part of the largest value, where only rounding differs. */
static double bound_of(const struct bench *b, enum elem e)
{
    if (b->way.precision != OPT_PRECISION_F32 && e == ELEM_F32)
        return 5e-2;
    return e == ELEM_F64 ? 1e-11 : e == ELEM_F16 ? 1e-2 : e == ELEM_BF16 ? 5e-2 : 2e-4;
}

static bool same(const struct bench *b, uint32_t k, const struct tensor *want, const struct tensor *have,
                 struct strbuf *why)
{
    uint32_t size = elem_size(want->elem);
    double scale = 0;
    bool ok = want->elem == have->elem && want->rank == have->rank;
    for (int32_t i = 0; ok && i < want->rank; i++)
        ok = want->dims[i] == have->dims[i];
    int64_t n = ok ? tensor_count(want) : 0;
    for (int64_t i = 0; i < n && elem_class(want->elem) == 'F'; i++) {
        double x = fabs(elem_to_f64(want->elem, (const char *)want->data + i * size));
        scale = isfinite(x) && x > scale ? x : scale;
    }
    double most = scale * bound_of(b, want->elem);
    most = most < 4 * b->d->output[k].err ? 4 * b->d->output[k].err : most;
    for (int64_t i = 0; i < n && ok; i++) {
        const char *p = (const char *)want->data + i * size, *q = (const char *)have->data + i * size;
        double x = elem_to_f64(want->elem, p), y = elem_to_f64(want->elem, q);
        ok = elem_class(want->elem) != 'F' ? !memcmp(p, q, size)
             : isfinite(x)                 ? fabs(x - y) <= most
                                           : x == y || (isnan(x) && isnan(y));
        if (!ok)
            strbuf_printf(why, "output %u: element %lld is %.9g, expected %.9g (largest %.3g)", k, (long long)i, y, x,
                          scale);
    }
    if (!ok && !why->n)
        strbuf_printf(why, "output %u has another shape", k);
    return ok;
}

static bool agrees(const struct bench *b, struct loops *loops, struct native *native, struct strbuf *why)
{
    uint32_t n = b->d->g->outputs.n;
    struct tensor *have = NEW_ARRAY(&b->ctx->session, struct tensor, n + 1);
    for (uint32_t i = 0; i < b->n_sizes; i++) {
        draw_bind(b->d, b->size[i]);
        if (!(native ? native_run(native, have) : loops_run(loops, have)))
            return false;
        for (uint32_t k = 0; k < n; k++)
            if (!same(b, k, &b->want[i][k], &have[k], why)) {
                strbuf_printf(why, ", extent %lld", (long long)b->size[i][0]);
                return false;
            }
    }
    return true;
}

/* ---- in the child ------------------------------------------------------------------------------------------------ */

/* Does the message name a field and its value ("lanes is 3: ..."), or say what a line lacks to be one? */
static bool is_reason(const char *message)
{
    static const char *const others[] = {"kind",
                                         "the network has no kernel",
                                         "takes a number",
                                         "has no field",
                                         "there is no ",
                                         "schedule kN",
                                         "computes",
                                         "has no CPU",
                                         "comes after the field"};
    char name[64];
    long long value;
    for (const char *p = message; p; p = strstr(p, ": ") ? strstr(p, ": ") + 2 : NULL)
        if (sscanf(p, "%63[a-z_.0-9] is %lld: ", name, &value) == 2)
            return true;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (strstr(message, others[i]))
            return true;
    return false;
}

/* Is it no record that is refused, but the network, on a target that has static networks alone? */
static bool is_never_static(const struct bench *b, const struct strbuf *why)
{
    const char *message = why->data ? why->data : "";
    return b->ctx->fail == FAIL_MODEL && (strstr(message, "--emit=static: ") || strstr(message, "WebAssembly: "));
}

static enum result refused(const struct bench *b, struct strbuf *why)
{
    diags_append(b->ctx, why);
    if (is_never_static(b, why))
        return REFUSED;
    return b->ctx->fail == FAIL_USAGE && is_reason(why->data ? why->data : "") ? REFUSED : DIFFERS;
}

static enum result try_records(struct bench *b, const char *records, struct strbuf *why)
{
    b->c->last = "emit";
    if (!schedules_parse(b->c->module, "records", records) || !stages_run(b->c, "schedule"))
        return refused(b, why);
    struct loops *loops = loops_of(b->d, b->c, why);
    return loops && agrees(b, loops, NULL, why) ? AGREES : DIFFERS;
}

/* Artifacts, and choices: the stages from the first on. What is wrong with a choice is a usage error, or a warning. */
static enum result try_whole(struct bench *b, const char *records, const char *choice, bool native, struct strbuf *why)
{
    struct way way = b->way;
    char self[400] = "", path[64];
    way.choice = choice;
    if (records) {
        int fd = memfd_create("records", 0);
        if (fd < 0 || write(fd, records, strlen(records)) != (ssize_t)strlen(records))
            return DIFFERS;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        way.schedules = path;
    }
    way.native = native;
    way.variant = way.cpu;
    way.threads = 3;
    if (readlink("/proc/self/exe", self, sizeof self - 40) <= 0)
        return DIFFERS;
    const char *so = arena_printf(&b->ctx->session, "%s.%ld.so", self, (long)getpid());
    struct native *n = native ? native_make(b->d, &way, so, why) : NULL;
    struct loops *loops = native ? NULL : loops_make(b->d, &way, why);
    if (!n && !loops)
        return b->ctx->fail == FAIL_USAGE || is_never_static(b, why) ? REFUSED : DIFFERS;
    bool ok = agrees(b, loops, n, why);
    native_close(n);
    return ok ? AGREES : DIFFERS;
}

static enum result print_records(struct bench *b, const char *records, struct strbuf *out)
{
    b->c->last = "schedule";
    if ((records && !schedules_parse(b->c->module, "records", records)) || !stages_run(b->c, "schedule"))
        return refused(b, out);
    schedules_print(b->c->module, out);
    return AGREES;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

struct trial {
    const char *records, *choice; /* neither: the records of the cost model are printed */
    bool print; /* those that come of the records */
    bool native;
};

static enum result child(struct bench *b, const struct trial *t, struct strbuf *out)
{
    jmp_buf unwind;
    volatile enum result result = DIFFERS;
    b->ctx->unwind = &unwind;
    if (setjmp(unwind) == 0)
        result = t->choice || t->native    ? try_whole(b, t->records, t->choice, t->native, out)
                 : t->records && !t->print ? try_records(b, t->records, out)
                                           : print_records(b, t->records, out);
    else
        result = refused(b, out);
    return result;
}

static enum result try_apart(struct bench *b, const struct trial *t)
{
    int status;
    fflush(stdout);
    b->answer->text[0] = 0;
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit cpu = {SECONDS, SECONDS}, core = {0, 0};
        setrlimit(RLIMIT_CPU, &cpu);
        setrlimit(RLIMIT_CORE, &core);
        alarm(10 * SECONDS);
        struct strbuf out = strbuf_of(&b->ctx->session);
        b->answer->result = child(b, t, &out);
        snprintf(b->answer->text, sizeof b->answer->text, "%s", out.data ? out.data : "");
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return AGREES;
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return b->answer->result;
    snprintf(b->answer->text, sizeof b->answer->text, WIFSIGNALED(status) ? "signal %d" : "status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return CRASHES;
}

static bool fails(enum result r)
{
    return r == DIFFERS || r == CRASHES;
}

/* The network on one CPU, ready for its records; false: the passes fail there, or the graph is none. */
static bool bench_open(struct bench *b, const struct subject *s, const char *cpu, struct answer *answer)
{
    struct context *ctx = context_new();
    jmp_buf unwind;
    volatile bool ok = false;
    *b = (struct bench){.subject = s, .ctx = ctx, .answer = answer};
    b->way = (struct way){.level = 2, .cpu = cpu};
    if (s->network) {
        b->way.layout = s->network->layout;
        b->way.winograd = s->network->winograd;
        b->way.precision = s->network->precision;
    }
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        b->d = subject_draw(s, ctx);
        ok = b->d && graph_verify(b->d->g) && expect(b);
        if (!ok && s->network)
            printf("# %s: %s\n", s->name, ctx->diags.n ? ctx->diags.data[0].text : "the reference fails");
    }
    return ok;
}

/* From here on records can be tried, but no choices: the passes have changed the graph. */
static bool bench_ready(struct bench *b)
{
    jmp_buf unwind;
    volatile bool ok = false;
    struct strbuf why = strbuf_of(&b->ctx->session);
    b->ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        b->c = stages_of_way(b->ctx, b->d->g, &b->way, "plan", NULL, &why);
        ok = b->c != NULL;
    }
    if (!ok)
        printf("# %s on %s: %s\n", b->subject->name, b->way.cpu, why.data ? why.data : "unwound");
    return ok;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* The text without line number k, the first of which is the head; NULL: it has none such. */
static const char *without_line(struct arena *a, const char *text, uint32_t k)
{
    const char *p = text;
    while (k-- && *p)
        p += strcspn(p, "\n") + 1;
    return *p ? arena_printf(a, "%.*s%s", (int)(p - text), text, p + strcspn(p, "\n") + 1) : NULL;
}

static void report(struct bench *b, struct trial t)
{
    const char *less;
    for (uint32_t k = 1; t.records && (less = without_line(&b->ctx->session, t.records, k));) {
        struct trial one = t;
        one.records = less;
        if (fails(try_apart(b, &one)))
            t.records = less;
        else
            k++;
    }
    try_apart(b, &t);
    printf("\n%s on %s%s\n%s%s\n%s\n", b->subject->name, b->way.cpu, t.native ? ", compiled" : "",
           t.choice ? "--choose=" : "", t.choice ? t.choice : t.records, b->answer->text);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

struct totals {
    uint64_t n[RESULTS];
    uint32_t reports;
};

static void count(struct totals *all, struct bench *b, const struct trial *t)
{
    enum result r = try_apart(b, t);
    all->n[r]++;
    if (fails(r) && all->reports++ < REPORTS)
        report(b, *t);
}

/* The records of the cost model, by the child; NULL: there are none. */
static const char *default_records(struct bench *b)
{
    enum result r = try_apart(b, &(struct trial){.records = NULL});
    if (r == AGREES)
        return b->answer->text[0] ? arena_strdup(&b->ctx->session, b->answer->text) : NULL;
    printf("# %s on %s: %s\n", b->subject->name, b->way.cpu, b->answer->text);
    return NULL;
}

/* What is printed reads back, the line of -print-after=schedule in front of it included. */
static bool reads_back(struct bench *b, const char *text)
{
    const struct trial t = {.records = arena_printf(&b->ctx->session, "// after schedule\n%s", text), .print = true};
    bool ok = try_apart(b, &t) == AGREES && !strcmp(b->answer->text, text);
    if (!ok)
        printf("# %s on %s does not read back: %.2000s\n", b->subject->name, b->way.cpu, b->answer->text);
    return ok;
}

/* Each field of a record at its limits, one below and one above, alone; every `every`-th of these. */
static void try_limits(struct totals *all, struct bench *b, const struct records *records, uint32_t every,
                       uint32_t from)
{
    uint32_t number = from;
    for (uint32_t k = 0; k < records->n; k++)
        for (uint32_t i = 0; i < records->record[k].n; i++) {
            const struct record *r = &records->record[k];
            int64_t least, most;
            if (!schedule_field_limits(r->kind, r->field[i].name, &least, &most))
                continue;
            const int64_t at[] = {least - 1, least, least + 1, most - 1, most, most == INT64_MAX ? most : most + 1};
            for (uint32_t j = 0; j < COUNT_OF(at); j++) {
                if (number++ % every)
                    continue;
                struct trial t = {.records = arena_printf(&b->ctx->session, "%s: %s\n  %s %lld\n", r->head, r->kind,
                                                          r->field[i].name, (long long)at[j])};
                uint64_t agree = all->n[AGREES];
                count(all, b, &t);
                if ((at[j] < least || at[j] > most) && all->n[AGREES] > agree) { /* out of bounds, and taken */
                    printf("# %s on %s takes\n%s", b->subject->name, b->way.cpu, t.records);
                    all->n[DIFFERS]++;
                }
            }
        }
}

/* n texts for one network on one CPU. A few of them are choices, for which the passes run anew. */
struct work {
    uint64_t n, seed;
    uint32_t limits; /* a number: one of so many limits of each field; 0: none */
    bool native;
};

static void try_pair(struct totals *all, const struct subject *s, const char *cpu, struct work w, struct answer *answer)
{
    struct bench fresh = {.ctx = NULL}, ready;
    const char *text = bench_open(&ready, s, cpu, answer) && bench_ready(&ready) ? default_records(&ready) : NULL;
    if (text) {
        struct draw *d = ready.d;
        d->state = w.seed * 0x2545f4914f6cdd1du + 7;
        const struct records records = records_read(&ready.ctx->session, text);
        all->n[reads_back(&ready, text) ? AGREES : DIFFERS]++;
        if (w.limits)
            try_limits(all, &ready, &records, w.limits, (uint32_t)w.seed % w.limits);
        for (uint64_t i = 0; i < w.n; i++) {
            bool choice = draw_chance(d, 10);
            struct trial t = {.records = choice ? NULL : records_mutate(d, &records),
                              .choice = choice ? choice_mutate(d, &records) : NULL,
                              .native = w.native};
            if ((choice || w.native) && !fresh.ctx && !bench_open(&fresh, s, cpu, answer))
                break;
            count(all, choice || w.native ? &fresh : &ready, &t);
        }
    }
    if (fresh.ctx)
        context_free(fresh.ctx);
    context_free(ready.ctx);
}

static const char *read_whole(struct arena *a, const char *path)
{
    FILE *f = fopen(path, "rb");
    char part[4096];
    struct strbuf text = strbuf_of(a);
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;)
        strbuf_append(&text, part, n);
    if (f)
        fclose(f);
    return text.n ? text.data : NULL;
}

/* Is it a graph that the loop IR's interpreter takes seconds for? */
static bool is_slow(const char *file)
{
    static const char *const slow[] = {"conv.mcir", "images.mcir", "lines.mcir", "split.mcir"};
    for (size_t i = 0; i < COUNT_OF(slow); i++)
        if (!strcmp(file, slow[i]))
            return true;
    return false;
}

/* Networks, files in the order of their names, random graphs. */
static uint32_t subjects_of(struct arena *a, uint64_t seed, uint32_t drawn, struct subject *out)
{
    uint32_t n = 0;
    struct dirent **names = NULL;
    for (uint32_t i = 0; i < network_count; i++)
        out[n++] = (struct subject){.name = networks[i].name, .network = &networks[i]};
    int files = scandir(GRAPHS, &names, NULL, alphasort);
    for (int i = 0; i < files; i++) {
        const char *text = strstr(names[i]->d_name, ".mcir") && !is_slow(names[i]->d_name)
                               ? read_whole(a, arena_printf(a, GRAPHS "/%s", names[i]->d_name))
                               : NULL;
        if (text && n < FILES_MOST)
            out[n++] = (struct subject){.name = arena_strdup(a, names[i]->d_name), .file = text};
        free(names[i]);
    }
    free(names);
    for (uint32_t i = 0; i < drawn && n < FILES_MOST; i++)
        out[n++] = (struct subject){.name = arena_printf(a, "graph %llu", (unsigned long long)(seed + i)),
                                    .seed = seed + i};
    return n;
}

static bool runs_here(const struct target_row *t)
{
#if defined(__x86_64__)
    bool v4 = __builtin_cpu_supports("x86-64-v4");
    return !strcmp(t->name, "x86-64-v2") || (!strcmp(t->name, "x86-64-v3") && __builtin_cpu_supports("x86-64-v3")) ||
           (!strcmp(t->name, "x86-64-v4") && v4) ||
           (!strcmp(t->name, "x86-64-v4-vnni") && v4 && __builtin_cpu_supports("avx512vnni")) ||
           (!strcmp(t->name, "x86-64-v4-bf16") && v4 && __builtin_cpu_supports("avx512bf16"));
#else
    return t->when == TARGET_ALWAYS;
#endif
}

/* About n texts, spread evenly over networks and CPUs; how many fail. */
static uint64_t try_many(uint64_t n, uint64_t seed, bool native)
{
    struct context *ctx = context_new();
    struct totals all = {.reports = 0};
    struct answer *answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct subject *subject = NEW_ARRAY(&ctx->session, struct subject, FILES_MOST);
    uint32_t drawn = (uint32_t)(n / 100 < DRAWN ? DRAWN
                                : n / 100 < 60  ? n / 100
                                                : 60),
             n_subjects = subjects_of(&ctx->session, seed * 1000, drawn, subject), n_rows = 0;
    const struct target_row **row = NEW_ARRAY(&ctx->session, const struct target_row *, target_count);
    for (uint32_t i = 0; i < target_count; i++)
        if (!native || runs_here(&target_rows[i]))
            row[n_rows++] = &target_rows[i];
    /* Few texts: each network on some of the rows, each row with some of the networks. */
    uint64_t pairs = (uint64_t)n_subjects * n_rows, each = 4, tried = n / each < pairs ? n / each : pairs;
    each = tried ? (n + tried - 1) / tried : 0;
    for (uint64_t i = 0; i < tried; i++) {
        uint64_t pair = i * pairs / tried, s = pair / n_rows;
        const char *cpu = row[(pair + seed + s) % n_rows]->name;
        try_pair(&all, &subject[s], cpu, (struct work){.n = each, .seed = seed * pairs + pair, .native = native},
                 answer);
    }
    printf("# %llu changed records of %u networks on %u CPUs%s: %llu agree, %llu refused, %llu differ, %llu crash\n",
           (unsigned long long)(all.n[0] + all.n[1] + all.n[2] + all.n[3]), n_subjects, n_rows,
           native ? ", compiled" : "", (unsigned long long)all.n[AGREES], (unsigned long long)all.n[REFUSED],
           (unsigned long long)all.n[DIFFERS], (unsigned long long)all.n[CRASHES]);
    munmap(answer, sizeof *answer);
    context_free(ctx);
    return all.n[DIFFERS] + all.n[CRASHES];
}

/* Every network on every CPU: what is printed reads back, and one of `every` limits of the fields of each. */
static uint64_t try_all_limits(uint32_t every)
{
    struct context *ctx = context_new();
    struct totals all = {.reports = 0};
    struct answer *answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint32_t i = 0; i < network_count; i++)
        for (uint32_t t = 0; t < target_count; t++) {
            const struct subject s = {.name = networks[i].name, .network = &networks[i]};
            try_pair(&all, &s, target_rows[t].name, (struct work){.limits = every, .seed = i * target_count + t * 37},
                     answer);
        }
    printf("# %llu limits of fields and networks that read back: %llu agree, %llu refused, %llu differ, %llu crash\n",
           (unsigned long long)(all.n[0] + all.n[1] + all.n[2] + all.n[3]), (unsigned long long)all.n[AGREES],
           (unsigned long long)all.n[REFUSED], (unsigned long long)all.n[DIFFERS], (unsigned long long)all.n[CRASHES]);
    munmap(answer, sizeof *answer);
    context_free(ctx);
    return all.n[DIFFERS] + all.n[CRASHES];
}

static int show(const char *name, const char *cpu, const char *path)
{
    struct context *ctx = context_new();
    struct answer *answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct subject *subject = NEW_ARRAY(&ctx->session, struct subject, FILES_MOST), one = {.name = name};
    uint32_t n = subjects_of(&ctx->session, 0, 0, subject);
    one.seed = strtoull(name + strcspn(name, "0123456789"), NULL, 10);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(subject[i].name, name))
            one = subject[i];
    struct bench b;
    if (!bench_open(&b, &one, cpu, answer) || !bench_ready(&b))
        return 1;
    struct strbuf out = strbuf_of(&b.ctx->session);
    b.d->verbose = path != NULL;
    enum result r = child(&b, &(struct trial){.records = path ? read_whole(&b.ctx->session, path) : NULL}, &out);
    printf("%s\n%s\n", out.data ? out.data : "", (const char *const[]){"agrees", "refused", "differs", "crashes"}[r]);
    return fails(r);
}

static void test_records(void **state)
{
    (void)state;
    assert_int_equal(try_many(RECORDS, 1, false), 0);
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(try_all_limits(LIMITS), 0);
}

static void test_native(void **state)
{
    (void)state;
    assert_int_equal(try_many(NATIVE, 1, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_native)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    if (argc > 3 && strcmp(argv[1], "--show") == 0)
        return show(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    if (argc > 2 && strcmp(argv[1], "--limits") == 0)
        return try_all_limits((uint32_t)strtoul(argv[2], NULL, 10)) > 0;
    if (argc > 2)
        return try_many(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                        argc > 3 && strcmp(argv[3], "--native") == 0) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
