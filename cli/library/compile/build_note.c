/* How an artifact was made (build_note.h). */
#include "cli/library/compile/build_note.h"

#include "cli/library/compile/header.h" /* and backend.h */
#include "cli/library/options/targets.h"
#include "ir/base/file.h"

static void put(struct strbuf *out, const char *name, const char *value)
{
    strbuf_printf(out, "%s=%s", name, value);
    strbuf_append(out, "", 1);
}

static void put_option(struct strbuf *out, const struct options *o, const struct option *def)
{
    const struct text_list *list = (const struct text_list *)(const void *)((const char *)o + def->offset);
    if (def->kind != OPTION_LIST)
        put(out, def->name, option_text(out->arena, o, def));
    for (uint32_t i = 0; def->kind == OPTION_LIST && i < list->items.n; i++)
        put(out, def->name, list->items.data[i]);
}

/* The CPUs by their names, as `native` is another one elsewhere; left out where they are the target's usual ones. */
static void put_variants(struct strbuf *out, const struct compilation *c)
{
    const struct options *o = c->options;
    const char *list = o->variants ? o->variants : o->march;
    if (!list || strcmp(list, "all") == 0)
        return;
    struct strbuf names = strbuf_of(out->arena);
    for (uint32_t i = 0; i < c->targets.n; i++)
        strbuf_printf(&names, "%s%s", i ? "," : "", c->targets.data[i]->row->name);
    put(out, "variants", names.data);
}

/* What the output's name decides: the names of a static network's functions, what line tables refer to, and what a
 * library for macOS or iOS is called.
 */
static void put_names(struct strbuf *out, const struct compilation *c)
{
    const struct platform *p = targets_platform(c->options);
    bool named = p && strcmp(p->container, "macho") == 0 && output_kind(c->options, c->output) == OUTPUT_SHARED;
    if (targets_static(c->options) && !c->options->prefix)
        put(out, "prefix", header_name(c));
    if (c->options->debug)
        put(out, "fdebug-compilation-dir", debug_folder(c));
    if (c->options->debug || named)
        put(out, NOTE_OUTPUT, path_name(c->output));
}

bool build_note_network(struct compilation *c, char out[DIGEST_TEXT])
{
    if (c->digest && c->n_digested == c->files.paths.n) {
        digest_end(c->digest, out);
        return true;
    }
    return digest_files(c->ctx, c->files.paths.data, c->files.paths.n, out);
}

bool build_note_make(struct compilation *c, struct span *note)
{
    const struct options *o = c->options;
    struct strbuf *out = NEW(&c->ctx->session, struct strbuf);
    char digest[DIGEST_TEXT];
    if (!build_note_network(c, digest))
        return false;
    strbuf_init(out, &c->ctx->session);
    put(out, NOTE_NETWORK, digest);
    for (uint32_t i = 0; i < option_count; i++)
        if (strchr(option_table[i].where, 'a') && !option_is_preset(o, &option_table[i]))
            put_option(out, o, &option_table[i]);
    put_variants(out, c);
    if (o->schedules) {
        if (!digest_files(c->ctx, &o->schedules, 1, digest))
            return false;
        put(out, NOTE_SCHEDULES, digest);
    }
    put_names(out, c);
    for (uint32_t i = 0; c->proof && i < c->proof->items.n; i++)
        put(out, NOTE_PROOF, c->proof->items.data[i]);
    *note = (struct span){out->data, out->n};
    return true;
}

bool build_note_next(struct arena *arena, struct span *left, const char **name, const char **value)
{
    const char *text = left->data, *end = left->size ? memchr(text, 0, left->size) : NULL;
    const char *sign = end ? memchr(text, '=', (size_t)(end - text)) : NULL;
    if (!sign)
        return false;
    *name = arena_strndup(arena, text, (size_t)(sign - text));
    *value = arena_strdup(arena, sign + 1);
    *left = (struct span){end + 1, left->size - (size_t)(end + 1 - text)};
    return true;
}

void build_note_json(struct span note, struct json *j)
{
    const char *name, *value;
    json_open(j, "build", '[');
    while (build_note_next(j->out->arena, &note, &name, &value))
        json_text(j, NULL, arena_printf(j->out->arena, "%s=%s", name, value));
    json_close(j, "]");
}

const char *build_note_find(struct arena *arena, struct span note, const char *name)
{
    const char *key, *value;
    while (build_note_next(arena, &note, &key, &value))
        if (strcmp(key, name) == 0)
            return value;
    return NULL;
}

bool build_note_apply(struct context *ctx, struct span note, struct options *o)
{
    static const char *const others[] = {"variants", "fdebug-compilation-dir"};
    const char *name, *value;
    while (build_note_next(&ctx->session, &note, &name, &value)) {
        const struct option *def = option_find(name, 'a');
        for (size_t i = 0; i < COUNT_OF(others) && !def; i++)
            def = strcmp(name, others[i]) == 0 ? option_find(name, 'C') : NULL;
        if (strcmp(name, NOTE_NETWORK) == 0 || strcmp(name, NOTE_SCHEDULES) == 0 || strcmp(name, NOTE_OUTPUT) == 0 ||
            strcmp(name, NOTE_PROOF) == 0)
            continue;
        if (!def)
            return error_model(ctx, (src_id){0}, "its note has the option '%.100s', which this mcc does not know",
                               name);
        if (!option_set(ctx, o, def, value, FAIL_MODEL))
            return false;
    }
    return note.size == 0 || error_model(ctx, (src_id){0}, "its note of how it was made is damaged");
}
