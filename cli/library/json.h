/* What mcc writes as JSON: the documents of --json and of reports, sidecar heads, diagnostics, traces. */
#pragma once

#include "ir/base/base.h"

/* Appends text in quotes, escaped; bytes that are not UTF-8 become \u00NN. */
void json_string(struct strbuf *out, const char *text);

/* Values one after the other, with the commas between them. */
struct json {
    struct strbuf *out;
    bool more;      /* a value stands before the next one */
    uint32_t depth; /* objects and arrays that are open */
};

/* Begins an object ('{') or an array ('['). key: of a member; NULL: an item, or the whole text. */
void json_open(struct json *, const char *key, char bracket);
/* Ends the innermost objects ('}') and arrays (']'), one for each character. */
void json_close(struct json *, const char *brackets);
void json_whole(struct json *, const char *key, struct span value); /* one that is JSON already; none: null */

/* A value: a member of an object, or without a key an item. */
struct json_item {
    const char *key;
    enum json_item_kind { ITEM_END, ITEM_NULL, ITEM_TEXT, ITEM_INT, ITEM_UINT, ITEM_REAL, ITEM_BOOL } kind;
    union {
        const char *text;
        int64_t i;
        uint64_t u;
        double x;
    } v;
};
struct json_item j_null(const char *key);
struct json_item j_text(const char *key, const char *text); /* NULL: null */
struct json_item j_int(const char *key, int64_t);
struct json_item j_uint(const char *key, uint64_t);
struct json_item j_known(const char *key, bool known, uint64_t); /* null where it is not known */
struct json_item j_real(const char *key, double);                /* 12 digits; what is not finite is null */
struct json_item j_bool(const char *key, bool);
void json_add(struct json *, const struct json_item *items); /* up to ITEM_END */
/* Values; or values in an object ("{}") or an array ("[]"). A single bracket leaves it open. */
#define JSON_ADD(j, ...) json_add(j, (const struct json_item[]){__VA_ARGS__, {0}})
#define JSON_GROUP(j, key, brackets, ...) \
    do {                                  \
        json_open(j, key, *(brackets));   \
        JSON_ADD(j, __VA_ARGS__);         \
        json_close(j, (brackets) + 1);    \
    } while (0)
#define json_null(j, key) JSON_ADD(j, j_null(key))
#define json_text(j, key, value) JSON_ADD(j, j_text(key, value))
#define json_int(j, key, value) JSON_ADD(j, j_int(key, value))
#define json_uint(j, key, value) JSON_ADD(j, j_uint(key, value))
#define json_real(j, key, value) JSON_ADD(j, j_real(key, value))
#define json_bool(j, key, value) JSON_ADD(j, j_bool(key, value))

/* A trace for Chrome's viewer and Perfetto: its head; a part of a row, in us; its end (trace.c). */
void trace_open(struct json *, const char *process);
void trace_event(struct json *, uint32_t row, const char *name, const char *detail, double start_us, double us);
void trace_close(struct json *, const char *unit);

/* The one object that a command with --json writes to standard output (docs/json.md). */
struct json_document {
    struct strbuf text, diagnostics_text;
    struct json result;      /* of the command, at the top of `text`: nothing, or one value */
    struct json diagnostics; /* items of an array */
};
struct json_document *json_document(struct context *);
/* Writes it to *out. A result that was left unfinished is none. */
void json_finish(const struct json_document *, const char *command, const char *file, int status, struct strbuf *out);
