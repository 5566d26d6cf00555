/* The configuration file: YAML read as events, never as a document, against a grammar of its own.
 *
 *     file   = mapping of option name to value, each name once
 *     value  = scalar | list of scalars (options that may be given again) | for `input` a list of
 *              { name: x, dtype: f32, shape: [batch=1..64, 3, 224, 224] }, which means x:f32[batch=1..64,3,224,224]
 *
 * Numbers and true/false are plain scalars in the spelling of the command line; nothing is guessed: `no` is a text.
 * Anchors, aliases, tags, merge keys, several documents and nesting beyond 16 are refused. The only user of libyaml.
 */
#include <yaml.h>

#include "cli/library/compile/compile.h"

enum { CONFIG_MAX = 1 << 20, DEPTH_MAX = 16, KEYS_MAX = 4096 };

struct reader {
    struct context *ctx;
    struct options *options;
    const char *path;
    char where;
    yaml_parser_t parser;
    yaml_event_t event;          /* the current one; type YAML_NO_EVENT before the first */
    int depth;
};

static void say_place(struct reader *r, yaml_mark_t at)
{
    r->ctx->model_path = r->path;
    r->ctx->line = (uint32_t)at.line + 1;
    r->ctx->column = (uint32_t)at.column + 1;
}

/* For what is wrong with the value and only known later. */
static void keep_place(struct reader *r, const struct option *def, yaml_mark_t at)
{
    struct config_place place = {def, NULL, r->path, (uint32_t)at.line + 1, (uint32_t)at.column + 1};
    if (def->kind == OPTION_LIST) {
        const struct text_list *list = (const struct text_list *)(const void *)((const char *)r->options + def->offset);
        place.text = list->items.n ? list->items.data[list->items.n - 1] : NULL;
    }
    VEC_PUSH(&r->ctx->session, &r->options->places, place);
}

static bool config_error(struct reader *r, yaml_mark_t at, const char *fmt, const char *a, const char *b)
{
    say_place(r, at);
    struct strbuf text = strbuf_of(&r->ctx->session);
    strbuf_printf(&text, "%s%s%s", fmt, a ? a : "", b ? b : "");
    return error_at(r->ctx, FAIL_MODEL, (src_id){0}, NULL, "%s", text.data);
}

static bool event_plain(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return config_error(r, r->event.start_mark, "anchors are not supported", NULL, NULL);
    if (tag)
        return config_error(r, r->event.start_mark, "tags are not supported", NULL, NULL);
    return true;
}

/* Moves to the next event and checks what holds everywhere. */
static bool next_event(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        yaml_mark_t at = r->parser.problem_mark;
        if (r->parser.error == YAML_READER_ERROR)
            at = r->parser.mark;
        return config_error(r, at, "not YAML: ", r->parser.problem, NULL);
    }
    const yaml_event_t *e = &r->event;
    switch (e->type) {
    case YAML_ALIAS_EVENT: return config_error(r, e->start_mark, "anchors are not supported", NULL, NULL);
    case YAML_SCALAR_EVENT:
        if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
            return config_error(r, e->start_mark, "a NUL byte in a text", NULL, NULL);
        return event_plain(r, e->data.scalar.anchor, e->data.scalar.tag);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (++r->depth > DEPTH_MAX)
            return config_error(r, e->start_mark, "nested deeper than 16", NULL, NULL);
        if (e->type == YAML_MAPPING_START_EVENT)
            return event_plain(r, e->data.mapping_start.anchor, e->data.mapping_start.tag);
        return event_plain(r, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return true;
    default: return true;
    }
}

static const char *scalar_text(const struct reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

/* Sets the option from the scalar event at hand. */
static bool set_scalar(struct reader *r, const struct option *def)
{
    yaml_mark_t at = r->event.start_mark;
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool texts = def->kind == OPTION_TEXT || def->kind == OPTION_LIST || def->kind == OPTION_ONE_OF;
    if (plain && r->event.data.scalar.length == 0)
        return config_error(r, at, def->name, " needs a value", NULL);
    if (!plain && !texts)
        return config_error(r, at, def->name, " takes a plain value, not a quoted text", NULL);
    if (option_set(r->ctx, r->options, def, scalar_text(r), FAIL_MODEL)) {
        keep_place(r, def, at);
        return true;
    }
    say_place(r, at);
    return false;
}

/* { name: x, dtype: f32, shape: [..] }: appended as the text that the command line would have. */
static bool input_mapping(struct reader *r, const struct option *def)
{
    static const char *const keys[] = {"name", "dtype", "shape"};
    const char *part[COUNT_OF(keys)] = {0};
    yaml_mark_t start = r->event.start_mark;
    struct strbuf shape = strbuf_of(&r->ctx->session);
    while (next_event(r) && r->event.type != YAML_MAPPING_END_EVENT) {
        size_t k = 0;
        if (r->event.type != YAML_SCALAR_EVENT)
            return config_error(r, r->event.start_mark, "a key must be a text", NULL, NULL);
        while (k < COUNT_OF(keys) && strcmp(keys[k], scalar_text(r)) != 0)
            k++;
        if (k == COUNT_OF(keys))
            return config_error(r, r->event.start_mark, "unknown key; an input has name, dtype and shape", NULL, NULL);
        if (part[k])
            return config_error(r, r->event.start_mark, "key given twice: ", keys[k], NULL);
        if (!next_event(r))
            return false;
        bool list = k == 2 && r->event.type == YAML_SEQUENCE_START_EVENT;
        if (!list && (k == 2 || r->event.type != YAML_SCALAR_EVENT))
            return config_error(r, r->event.start_mark, keys[k], k == 2 ? " is a list" : " is a text", NULL);
        if (!list) {
            part[k] = arena_strdup(&r->ctx->session, scalar_text(r));
            continue;
        }
        while (next_event(r) && r->event.type == YAML_SCALAR_EVENT)
            strbuf_printf(&shape, "%s%s", shape.n ? "," : "", scalar_text(r));
        if (r->ctx->fail)
            return false;
        if (r->event.type != YAML_SEQUENCE_END_EVENT)
            return config_error(r, r->event.start_mark,
                                "a dimension is a number, a name, name=least..most or name<=most", NULL, NULL);
        part[k] = shape.n ? shape.data : "";
    }
    if (r->ctx->fail)
        return false;
    if (!part[0])
        return config_error(r, start, "an input needs a name", NULL, NULL);
    const char *spec = arena_printf(&r->ctx->session, part[2] ? "%s:%s[%s]" : "%s:%s", part[0], part[1] ? part[1] : "",
                                    part[2]);
    if (option_set(r->ctx, r->options, def, spec, FAIL_MODEL)) {
        keep_place(r, def, start);
        return true;
    }
    say_place(r, start);
    return false;
}

static bool set_value(struct reader *r, const struct option *def)
{
    yaml_mark_t at = r->event.start_mark;
    if (r->event.type == YAML_SCALAR_EVENT)
        return set_scalar(r, def);
    if (def->kind != OPTION_LIST || r->event.type != YAML_SEQUENCE_START_EVENT)
        return config_error(r, at, def->name, def->kind == OPTION_LIST ? " takes a list" : " takes a single value",
                            NULL);
    while (next_event(r) && r->event.type != YAML_SEQUENCE_END_EVENT) {
        bool mapping = r->event.type == YAML_MAPPING_START_EVENT && strcmp(def->name, "input") == 0;
        if (!mapping && r->event.type != YAML_SCALAR_EVENT)
            return config_error(r, r->event.start_mark, def->name, " takes a list of texts", NULL);
        if (!(mapping ? input_mapping(r, def) : set_scalar(r, def)))
            return false;
    }
    return r->ctx->fail == FAIL_NONE;
}

static bool root_mapping(struct reader *r)
{
    bool seen[KEYS_MAX] = {false};
    while (next_event(r) && r->event.type != YAML_MAPPING_END_EVENT) {
        yaml_mark_t at = r->event.start_mark;
        if (r->event.type != YAML_SCALAR_EVENT)
            return config_error(r, at, "a key must be a text", NULL, NULL);
        const char *key = arena_strdup(&r->ctx->session, scalar_text(r));
        const struct option *def = option_find(key, 'F');
        const char *gone = option_gone(key), *near = def ? NULL : option_suggest(key, 'F');
        if (!def && gone)
            return config_error(r, at, arena_printf(&r->ctx->session, "key '%s' is gone: ", key), gone, NULL);
        if (!def)
            return config_error(r, at, arena_printf(&r->ctx->session, "unknown key '%.100s'", key),
                                near ? "; did you mean " : NULL, near);
        if (seen[def - option_table])
            return config_error(r, at, "key given twice: ", key, NULL);
        seen[def - option_table] = true;
        if (!next_event(r))
            return false;
        /* One file serves every sub-command: what this one has no use for is checked and dropped. */
        struct options unused = *r->options, *mine = r->options;
        if (!strchr(def->where, r->where))
            r->options = &unused;
        bool ok = set_value(r, def);
        r->options = mine;
        if (!ok)
            return false;
    }
    return r->ctx->fail == FAIL_NONE;
}

static bool document(void *user)
{
    struct reader *r = user;
    if (!next_event(r) || !next_event(r))
        return false;
    if (r->event.type == YAML_STREAM_END_EVENT)
        return true;
    if (!next_event(r))
        return false;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return config_error(r, r->event.start_mark, "the file must be a mapping of option names to values", NULL, NULL);
    if (!root_mapping(r) || !next_event(r) || !next_event(r))
        return false;
    if (r->event.type != YAML_STREAM_END_EVENT)
        return config_error(r, r->event.start_mark, "more than one document", NULL, NULL);
    return true;
}

static void reader_end(void *user)
{
    struct reader *r = user;
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

bool config_load(struct context *ctx, struct options *o, const char *path, char where)
{
    const char *model_path = ctx->model_path;
    struct span text;
    ctx->model_path = path;
    if (!text_file_read(ctx, path, "configuration", CONFIG_MAX, &text))
        return false;
    struct reader *r = NEW(&ctx->session, struct reader);
    *r = (struct reader){.ctx = ctx, .options = o, .path = path, .where = where};
    if (!yaml_parser_initialize(&r->parser))
        return error_limit(ctx, (src_id){0}, "out of memory");
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, text.data, text.size);
    bool ok = run_guarded(ctx, document, reader_end, r);
    if (ok)
        ctx->model_path = model_path;
    return ok;
}
