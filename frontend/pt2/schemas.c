/* Searching the table of schemas, and taking its texts apart. */
#include "frontend/pt2/schemas.h"

static const struct schema schemas[] = {
#define SCHEMA(domain, ops, alias, args) {domain, ops, alias, args},
#include "frontend/pt2/schemas.def"
};

bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; p; p = strchr(p, ' ')) {
        p += *p == ' ';
        if (strncmp(p, word, n) == 0 && strcspn(p, " ") == n)
            return true;
    }
    return false;
}

const struct schema *torch_schema(const char *domain, const char *op)
{
    for (size_t i = 0; i < COUNT_OF(schemas); i++)
        if (strcmp(schemas[i].domain, domain) == 0 && has_word(schemas[i].ops, op))
            return &schemas[i];
    return NULL;
}

enum schema_alias torch_schema_alias(const struct schema *s)
{
    static const char letters[] = "-svm";
    return (enum schema_alias)(strchr(letters, *s->alias) - letters);
}

/* "name:type" or "name:type=default", with a space between arguments. */
uint32_t torch_schema_args(const struct schema *s, struct schema_arg out[SCHEMA_ARGS_MAX])
{
    uint32_t n = 0;
    for (const char *p = s->args; *p; n++) {
        const char *colon = strchr(p, ':'), *end = strchr(p, ' ');
        struct schema_arg *a = &out[n];
        if (!end)
            end = p + strlen(p);
        *a = (struct schema_arg){.type = colon[1], .absent = colon[2] == '=' ? colon + 3 : ""};
        memcpy(a->name, p, (size_t)(colon - p));
        a->n_absent = *a->absent ? (uint32_t)(end - a->absent) : 0;
        p = *end ? end + 1 : end;
    }
    return n;
}
