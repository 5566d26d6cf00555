/* The table of formats: which one a file is of, and the way to what its frontend can do. */
#include "frontend/frontend.h"

#include "ir/base/file.h"

const struct format_hooks no_hooks = {NULL, NULL, NULL, NULL};

static const struct format formats[] = {
#define FORMAT(name, suffix, magic, at, import, hooks) {name, suffix, magic, at, import, &hooks},
#include "frontend/formats.def"
};

const struct format *format_by_suffix(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        size_t k = strlen(formats[i].suffix);
        if (n > k && strcmp(path + n - k, formats[i].suffix) == 0)
            return &formats[i];
    }
    return NULL;
}

const struct format *format_of(const char *path)
{
    char head[64];
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        size_t n = strlen(formats[i].magic), at = formats[i].magic_at;
        if (n && at + n <= sizeof head && file_head(path, head, at + n) && memcmp(head + at, formats[i].magic, n) == 0)
            return &formats[i];
    }
    const struct format *named = format_by_suffix(path);
    return named ? named : &formats[0];
}

struct graph *network_import(struct context *ctx, const char *path, const struct import_options *options,
                             struct file_list *files)
{
    return format_of(path)->import(ctx, path, options, files);
}

const struct tensor_files *tensor_files_by_suffix(const char *suffix)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (formats[i].hooks->tensors && strcmp(formats[i].hooks->tensors->suffix, suffix) == 0)
            return formats[i].hooks->tensors;
    return NULL;
}

const struct operator_facts *operator_facts(const char *domain, const char *op)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (formats[i].hooks->operators && formats[i].hooks->operators->version_after(domain, op, 0) > 0)
            return formats[i].hooks->operators;
    return NULL;
}
