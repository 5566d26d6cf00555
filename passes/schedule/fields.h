/* The table of a record's fields, fields.def, as rows; who reads and writes a record by the names of fields. */
#pragma once

#include "passes/schedule/decisions.h"
#include "passes/module/winograd.h"

enum { FIELD_MOST = 1 << 30 /* of a number without a limit of its own */ };

/* A record under check, and what is known of its kernel on this CPU. */
struct check {
    const struct site *site;
    const struct schedule *s;
    uint32_t item; /* of a field that occurs several times */
    const node_id *reductions;
    struct tile_facts tile; /* SCHEDULE_TILED */
    struct winograd_shape winograd; /* SCHEDULE_WINOGRAD */
    struct attention_shape attention; /* SCHEDULE_ATTENTION */
};
/* NULL, or why the field's value is impossible, and which are possible. */
typedef const char *field_rule(struct check *);

enum field_type { FIELD_BOOL, FIELD_I32, FIELD_U32, FIELD_I64 };
enum field_bits { SAME, BITS }; /* of results, if the value is another one */
struct field {
    uint32_t kinds; /* that have it, as bits 1 << kind */
    const char *name; /* with %u where there are several: the number of one */
    enum field_type type;
    size_t at;
    size_t count, each; /* several: where their number is, an uint32_t, and the bytes from one to the next */
    size_t via; /* ... and where the pointer to them is, at then being a place in one; 0: none */
    int64_t least, most;
    field_rule *rule;
    enum field_bits bits;
    const char *note;
};
extern const struct field schedule_fields[];
extern const uint32_t schedule_field_count;

/* Do records of one kernel on two CPUs give the same bits? Else *name is a field in which they differ. */
bool fields_agree(const struct schedule *, const struct schedule *, const char **name);
/* Has a record of that kind the field? */
static inline bool field_is_of(const struct field *f, enum schedule_kind kind)
{
    return f->kinds >> kind & 1;
}
/* How many there are of it in a record. */
uint32_t field_count(const struct field *, const struct schedule *);
int64_t field_get(const struct field *, const struct schedule *, uint32_t item);
/* value: within the field's bounds. */
void field_set(const struct field *, struct schedule *, uint32_t item, int64_t value);
/* With the number of the item. */
const char *field_name(const struct field *, uint32_t item, struct arena *);
/* The field of that name in records of a kind, and which item it is; NULL: there is none. */
const struct field *field_find(enum schedule_kind kind, const char *name, uint32_t *item);
/* Sets *out to a field's row, item and value; field_read reads the value from a text. Returns NULL, or what is wrong:
 * records of the kind do not have the field, or not this value. */
const char *field_value(enum schedule_kind kind, const char *name, int64_t value, struct arena *,
                        struct field_value *out);
const char *field_read(enum schedule_kind kind, const char *name, const char *value, struct arena *,
                       struct field_value *out);
/* Sets n fields of the record, one after another; the time is estimated anew, unless it is one of them. False, and the
 * record stays as it was, if it were impossible then (*why as in schedule_verify), or has fewer items of a field: *at
 * is the number of that field, else n. */
bool schedule_set(const struct site *, const struct field_value *, uint32_t n, struct schedule *, struct strbuf *why,
                  uint32_t *at);
/* "NAME is VALUE: 1 to 8 are possible" where the value is out of the field's bounds; else NULL. */
const char *field_bounds(const struct field *, uint32_t item, int64_t value, struct arena *);

/* The rules of all fields (verify_*.c). */
#define FIELD(kinds, member, name, least, most, rule, bits, note) field_rule rule_##rule;
#define ITEMS(kinds, count, array, name, least, most, rule, bits, note) field_rule rule_##rule;
#define POINTED(count, array, member, name, least, most, rule, bits, note) field_rule rule_##rule;
#include "passes/schedule/fields.def"

/* The value of the record's i-th producer. */
static inline value_id producer_value(const struct kernel *k, uint32_t i)
{
    return i < k->locals.n ? k->locals.data[i].value : k->form.staged;
}

/* What rules share. */
static inline const char *unless(bool ok, const char *why)
{
    return ok ? NULL : why;
}
/* The rule that a condition on c holds. */
#define RULE(name, ok, why)                  \
    const char *rule_##name(struct check *c) \
    {                                        \
        return (ok) ? NULL : (why);          \
    }                                        \
    field_rule rule_##name
static inline bool is_power(uint32_t n)
{
    return n && !(n & (n - 1));
}
/* Are so many lanes of elements of so many bytes a vector, of at most so many of the CPU's registers? */
bool is_vector(const struct check *, uint32_t lanes, uint32_t bytes, uint32_t registers);
