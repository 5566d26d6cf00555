/* A network that was compiled before is neither scheduled nor emitted again: the cache keeps what the stages schedule,
 * emit and codegen leave for the link.
 *
 * The key holds what decides that, and the entry's file is used only if all bytes of the key agree:
 *   - the build ids of this program, or of the libmcc in it, and of the worker (cache.h),
 *   - the hash of the bytes that were imported, hashed as they were read: weights, too, as constants decide schedules
 *     and become immediates,
 *   - each option that decides the artifact's bytes: the note from which mcc verify makes it again (build_note.h),
 *   - each CPU variant: LLVM's target, and what `open` asks of the CPU.
 * Nothing else may have an influence, so a compilation that differs in any other way does not use this (may_recall). A
 * compilation that says something in these stages leaves no record. --verify-each compares a record with what is
 * emitted.
 */
#include "cli/library/compile/backend.h"

#include "cli/library/compile/build_note.h"
#include "cli/library/options/targets.h"

#include <elf.h>

/* ---- the key ----------------------------------------------------------------------------------------------------- */

static void watch_file(void *user, const void *data, size_t size)
{
    struct compilation *c = user;
    if (!c->digest)
        c->digest = digest_new(&c->ctx->session);
    digest_add(c->digest, data, size);
    c->n_digested++;
}

void recall_watch(struct compilation *c)
{
    c->ctx->watch = (struct read_watch){c, watch_file};
}

void recall_watched(struct compilation *c)
{
    c->ctx->watch = (struct read_watch){NULL, NULL};
}

/* The image that this code is part of, as it lies in memory. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

/* False: it has no build id. */
static bool put_build(struct strbuf *out)
{
    const char *image = __ehdr_start; /* an array of no known size, as all of the image is read by it */
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)image;
    const Elf64_Phdr *part = (const Elf64_Phdr *)(const void *)(image + head->e_phoff), *first = part;
    const Elf64_Phdr *end = part + head->e_phnum;
    while (first < end && (first->p_type != PT_LOAD || first->p_offset != 0))
        first++;
    for (; first < end && part < end; part++) {
        const char *at = image + (part->p_vaddr - first->p_vaddr);
        const Elf64_Nhdr *note = (const Elf64_Nhdr *)(const void *)at;
        if (part->p_type != PT_NOTE || part->p_filesz < sizeof *note + 4 || note->n_type != NT_GNU_BUILD_ID)
            continue;
        strbuf_append(out, at, sizeof *note + 4 + note->n_descsz);
        return true;
    }
    return false;
}

/* Are schedule, emit and codegen functions of the key? Options that print or stop in between leave them as they are
 * used to be; line tables name the output. */
static bool may_recall(const struct compilation *c)
{
    const struct options *o = c->options;
    const struct module *m = c->module;
    bool prints = o->print_after_all || o->print_changed || o->print_after.items.n || o->save_temps || o->rpass ||
                  o->rpass_missed || o->rpass_analysis || o->save_record || o->stop_after;
    bool other = o->schedules || o->mutate || o->break_kernel || o->debug || o->assembly || o->emit_llvm ||
                 c->in_field || c->probe || c->machine || m->asked.always || m->asked.grain_ns;
    return c->recalls && c->output && !prints && !other && !targets_static(o) && c->n_digested > 0 &&
           c->n_digested == c->files.paths.n;
}

/* Empty: there is none. */
static struct span make_key(struct compilation *c)
{
    struct strbuf *key = NEW(&c->ctx->session, struct strbuf);
    struct span note;
    *key = strbuf_of(&c->ctx->session);
    if (!put_build(key) || !build_note_make(c, &note))
        return (struct span){0};
    strbuf_append(key, note.data, note.size);
    for (uint32_t i = 0; i < c->targets.n; i++) {
        const struct variant *v = c->targets.data[i];
        strbuf_printf(key, "%s\n%s\n%s\n%s\n%s\n%llx\n", v->row->name, v->name, v->target.triple, v->target.cpu,
                      v->target.features, (unsigned long long)v->needs);
    }
    return (struct span){key->data, key->n};
}

/* ---- the record --------------------------------------------------------------------------------------------------
 *
 * struct record, then so many units, kernels and variants, each with the texts and bytes whose sizes it gives; a
 * variant of several that share a program ends with its rows.
 */
struct record {
    uint32_t n_units, n_kernels, n_variants, first_rows, n_rows, shared;
    int64_t scratch;
};
struct record_unit {
    uint32_t target, same; /* same: unit + 1 */
    uint64_t symbol, data, object;
};
struct record_kernel {
    uint32_t name, node, arithmetic, unit;
    uint64_t flops, bytes, version;
    int64_t ns;
};

static void put_text(struct strbuf *out, const char *text)
{
    uint64_t size = strlen(text);
    strbuf_append(out, &size, sizeof size);
    strbuf_append(out, text, size);
}

static void put_unit(const struct compilation *c, const struct codegen_unit *u, struct strbuf *out)
{
    struct record_unit r = {.same = u->same ? (uint32_t)(u->same - c->units.data) + 1 : 0,
                            .symbol = strlen(u->symbol),
                            .data = u->data.size,
                            .object = u->same ? 0 : u->object.size};
    while (&c->targets.data[r.target]->target != u->target)
        r.target++;
    strbuf_append(out, &r, sizeof r);
    strbuf_append(out, u->symbol, r.symbol);
    strbuf_append(out, u->data.data, r.data);
    strbuf_append(out, u->object.data, r.object);
}

static struct span make_record(const struct compilation *c)
{
    struct strbuf *out = NEW(&c->ctx->session, struct strbuf);
    struct record head = {.n_units = c->units.n,
                          .n_kernels = c->kernel_rows.n,
                          .n_variants = c->variants.n,
                          .first_rows = c->first_rows,
                          .n_rows = c->n_rows,
                          .shared = c->base != NULL,
                          .scratch = c->scratch};
    *out = strbuf_of(&c->ctx->session);
    strbuf_append(out, &head, sizeof head);
    for (uint32_t i = 0; i < c->units.n; i++)
        put_unit(c, &c->units.data[i], out);
    for (uint32_t i = 0; i < c->kernel_rows.n; i++) {
        const struct art_kernel *k = &c->kernel_rows.data[i];
        struct record_kernel r = {
            (uint32_t)strlen(k->name), k->node, k->arithmetic, k->unit, k->flops, k->bytes, k->version, k->ns};
        strbuf_append(out, &r, sizeof r);
        strbuf_append(out, k->name, r.name);
    }
    for (uint32_t i = 0; i < c->variants.n; i++) {
        put_text(out, c->variants.data[i].program);
        if (head.shared)
            strbuf_append(out, c->variants.data[i].rows, c->n_rows * sizeof(uint32_t));
    }
    return (struct span){out->data, out->n};
}

/* ---- what was recorded ------------------------------------------------------------------------------------------- */

struct reader {
    const char *at;
    uint64_t left;
    bool ok; /* nothing was missing so far */
};

static const char *take(struct reader *r, uint64_t size)
{
    const char *at = r->at;
    r->ok = r->ok && size <= r->left;
    if (!r->ok)
        return "";
    r->at += size;
    r->left -= size;
    return at;
}

static void take_into(struct reader *r, void *to, size_t size)
{
    memset(to, 0, size);
    const char *from = take(r, size);
    if (r->ok)
        memcpy(to, from, size);
}

static const char *take_text(struct compilation *c, struct reader *r, uint64_t size)
{
    const char *from = take(r, size);
    return r->ok ? arena_strndup(&c->ctx->session, from, size) : "";
}

static void take_unit(struct compilation *c, struct reader *r, uint32_t number)
{
    struct record_unit u;
    take_into(r, &u, sizeof u);
    r->ok = r->ok && u.target < c->targets.n && u.same <= number;
    struct codegen_unit unit = {.target = r->ok ? &c->targets.data[u.target]->target : NULL,
                                .symbol = take_text(c, r, u.symbol)};
    unit.data = (struct span){take(r, u.data), u.data};
    unit.object = (struct span){take(r, u.object), u.object};
    if (r->ok && u.same) {
        unit.same = &c->units.data[u.same - 1];
        unit.object = unit.same->object;
    }
    c->units.data[number] = unit;
}

static void take_kernel(struct compilation *c, struct reader *r, uint32_t number)
{
    struct record_kernel k;
    take_into(r, &k, sizeof k);
    r->ok = r->ok && k.unit < c->units.n && k.node <= c->ctx->sources.n;
    c->kernel_rows.data[number] = (struct art_kernel){.name = take_text(c, r, k.name),
                                                      .node = k.node,
                                                      .arithmetic = k.arithmetic,
                                                      .unit = k.unit,
                                                      .flops = k.flops,
                                                      .bytes = k.bytes,
                                                      .version = k.version != 0,
                                                      .ns = k.ns};
}

static void take_variant(struct compilation *c, struct reader *r, const struct record *head, uint32_t number)
{
    const struct variant *v = c->targets.data[number];
    uint64_t size;
    take_into(r, &size, sizeof size);
    struct art_variant a = {
        .target = &v->target, .name = v->name, .features = v->needs, .program = take_text(c, r, size)};
    if (head->shared) {
        uint64_t bytes = (uint64_t)head->n_rows * sizeof *a.rows;
        const char *rows = take(r, bytes);
        a.rows = r->ok ? arena_copy(&c->ctx->session, rows, bytes) : NULL;
        for (uint32_t i = 0; r->ok && i < head->n_rows; i++)
            r->ok = a.rows[i] == ART_NO_KERNEL || a.rows[i] < c->kernel_rows.n;
    }
    c->variants.data[number] = a;
}

/* False: it is damaged, and the compilation is as it was. */
static bool read_record(struct compilation *c, struct span bytes)
{
    struct arena *arena = &c->ctx->session;
    struct reader r = {bytes.data, bytes.size, true};
    struct record head;
    take_into(&r, &head, sizeof head);
    if (!r.ok || head.n_variants != c->targets.n || head.first_rows > head.n_kernels ||
        head.n_units > r.left / sizeof(struct record_unit) || head.n_kernels > r.left / sizeof(struct record_kernel) ||
        head.n_rows > (head.shared ? r.left / sizeof(uint32_t) : 0))
        return false;
    c->units.data = NEW_ARRAY(arena, struct codegen_unit, head.n_units + 1);
    c->kernel_rows.data = NEW_ARRAY(arena, struct art_kernel, head.n_kernels + 1);
    c->variants.data = NEW_ARRAY(arena, struct art_variant, head.n_variants + 1);
    c->units.n = c->units.cap = head.n_units;
    c->kernel_rows.n = c->kernel_rows.cap = head.n_kernels;
    c->variants.n = c->variants.cap = head.n_variants;
    for (uint32_t i = 0; i < head.n_units && r.ok; i++)
        take_unit(c, &r, i);
    for (uint32_t i = 0; i < head.n_kernels && r.ok; i++)
        take_kernel(c, &r, i);
    for (uint32_t i = 0; i < head.n_variants && r.ok; i++)
        take_variant(c, &r, &head, i);
    if (!r.ok || r.left) {
        c->units.n = c->units.cap = c->kernel_rows.n = c->kernel_rows.cap = c->variants.n = c->variants.cap = 0;
        return false;
    }
    c->first_rows = head.first_rows;
    c->n_rows = head.n_rows;
    c->scratch = head.scratch;
    return true;
}

bool recall_take(struct compilation *c)
{
    if (!may_recall(c))
        return false;
    c->key = make_key(c);
    c->recall_mark = diag_mark(c->ctx);
    if (!c->key.size || !codegen_recall(codegen_of(c), c->key, &c->record) || c->options->verify_each)
        return false;
    c->recalled = read_record(c, c->record);
    c->record = c->recalled ? c->record : (struct span){0};
    return c->recalled;
}

bool recall_keep(struct compilation *c)
{
    if (!c->key.size || diag_mark(c->ctx).n != c->recall_mark.n)
        return true;
    struct span made = make_record(c);
    if (!c->record.data)
        codegen_remember(c->codegen, c->key, made);
    else if (made.size != c->record.size || memcmp(made.data, c->record.data, made.size) != 0)
        return error_internal(c->ctx, (src_id){0}, "the cache has other code for this network");
    return true;
}
