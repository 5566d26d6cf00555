/* JSON texts as trees in an arena: strict, except for NaN and infinities as Python writes them. */
#pragma once

#include "ir/base/base.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_FLOAT, JSON_TEXT, JSON_LIST, JSON_OBJECT };
struct json {
    enum json_kind kind;
    uint32_t n; /* children, or bytes of the text */
    const char *key; /* in an object; the text is NUL-terminated and holds no NUL */
    struct json *next; /* of the same list or object */
    union {
        bool truth;
        int64_t i; /* JSON_INT: it fits */
        double f;
        const char *text;
        struct json *first;
    } u;
};

/* Parses the text, into which it writes, one byte after its end too. NULL after a diagnostic that names `what` and the
 * offset. */
struct json *json_parse(struct context *, struct arena *, char *text, size_t size, const char *what);

/* All of these take NULL, and give NULL or the absent value where the kind is another. */
struct json *json_get(const struct json *object, const char *key);
struct json *json_first(const struct json *); /* the first child */
struct json *json_only(const struct json *object); /* the one member of an object that has one: a union */
const char *json_as_text(const struct json *);
bool json_as_int(const struct json *, int64_t *out);
bool json_as_number(const struct json *, double *out); /* also "Infinity", "-Infinity" and "NaN" as texts */
bool json_is(const struct json *, enum json_kind);

/* Writing, item after item: a comma in front of each that follows another one. */
void json_put(struct strbuf *, const struct json *);
void json_key_put(struct strbuf *, const char *key);
void json_text_put(struct strbuf *, const char *);
void json_comma_put(struct strbuf *);
/* An object with some members written anew: those of that key in the object of that key ("": in the outermost one). */
struct json_member {
    const char *within, *key;
    void (*put)(void *user, const struct json *old); /* the value alone; NULL: an object, of which that holds again */
};
void json_put_with(struct strbuf *, const struct json *object, const struct json_member *, uint32_t n, void *user);
