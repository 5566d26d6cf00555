/* NAME=VALUE items of options: --dim, -i and the like (name_value.h). */
#include "cli/library/options/name_value.h"

/* Names may hold '=', so an exact NAME is looked for, not the first '='. */
const char *feed_find(const struct text_list *list, const char *name)
{
    size_t n = strlen(name);
    for (uint32_t i = list->items.n; i-- > 0;)
        if (strncmp(list->items.data[i], name, n) == 0 && list->items.data[i][n] == '=')
            return list->items.data[i] + n + 1;
    return NULL;
}

/* The first text that begins with none of names[n] and '='; NULL: all do. */
static const char *unknown(const struct text_list *list, const char *const *names, uint32_t n)
{
    for (uint32_t i = 0; i < list->items.n; i++) {
        const char *text = list->items.data[i];
        bool found = false;
        for (uint32_t k = 0; k < n && !found; k++)
            found = names[k] && strncmp(text, names[k], strlen(names[k])) == 0 && text[strlen(names[k])] == '=';
        if (!found)
            return text;
    }
    return NULL;
}

bool feeds_known(struct context *ctx, const struct text_list *list, const char *const *names, uint32_t n)
{
    const char *text = unknown(list, names, n);
    return !text ||
           error_usage(ctx,
                       strchr(text, '=') ? "the model has nothing called '%s' (mcc inspect lists inputs and outputs)"
                                         : "'%s' needs a value: NAME=FILE",
                       text);
}

bool dims_known(struct context *ctx, const struct text_list *list, const char *const *names, uint32_t n)
{
    const char *text = unknown(list, names, n);
    return !text || error_usage(ctx,
                                strchr(text, '=') ? "--dim %s: the model has no symbolic dimension of this name"
                                                  : "--dim %s: write NAME=N",
                                text);
}

bool feed_seed(struct context *ctx, const char *feed, uint64_t otherwise, uint64_t *out)
{
    char *end;
    *out = otherwise;
    if (!feed || strncmp(feed, "random:", 7) != 0)
        return true;
    *out = strtoull(feed + 7, &end, 10);
    return (feed[7] >= '0' && feed[7] <= '9' && *end == 0) || error_usage(ctx, "'%s': a seed is a whole number", feed);
}

bool dim_find(struct context *ctx, const struct text_list *list, const char *name, int64_t *out)
{
    const char *text = feed_find(list, name);
    int64_t v = 0;
    if (!text)
        return true;
    for (const char *p = text; *p; p++)
        if (*p < '0' || *p > '9' || !mul_i64(v, 10, &v) || !add_i64(v, *p - '0', &v))
            return error_usage(ctx, "--dim %s=%s: a dimension is a whole number", name, text);
    *out = v;
    return *text || error_usage(ctx, "--dim %s= needs a number", name);
}
