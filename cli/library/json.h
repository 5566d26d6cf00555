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
void json_text(struct json *, const char *key, const char *text); /* NULL: null */
void json_int(struct json *, const char *key, int64_t);
void json_uint(struct json *, const char *key, uint64_t);
void json_real(struct json *, const char *key, double); /* 12 digits; what is not finite is null */
void json_bool(struct json *, const char *key, bool);
void json_null(struct json *, const char *key);
void json_uint_known(struct json *, const char *key, bool known, uint64_t); /* null where it is not known */
/* Texts of an object, key and text in turns and a NULL in place of the last key: all members; some of the one that is
 * open. */
void json_object(struct json *, const char *key, ...) __attribute__((sentinel));
void json_members(struct json *, ...) __attribute__((sentinel));
void json_whole(struct json *, const char *key, struct span value); /* one that is JSON already; none: null */

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
