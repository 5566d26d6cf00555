/* Records of schedules (passes/schedule/schedule_text.c) with other numbers in some fields. */
#ifndef MCC_TESTS_FUZZ_MUTATE_H
#define MCC_TESTS_FUZZ_MUTATE_H

#include "tests/fuzz/draw.h"

struct record {
    const char *head; /* up to the colon */
    const char *label, *kind;
    uint32_t n;
    struct record_field {
        const char *name;
        long long value;
    } *field;
};
struct records {
    uint32_t n;
    struct record *record;
};

/* What schedules_print wrote, in the arena. */
struct records records_read(struct arena *, const char *text);
/* A text of one or several of these records that differs in a few fields, or in the kind: at the limits of the fields,
 * beside them, anywhere; now and then one that is not a record at all. Random numbers come from the draw. */
const char *records_mutate(struct draw *, const struct records *);
/* NODE:KEY=VALUE for a node of a record. */
const char *choice_mutate(struct draw *, const struct records *);

/* What a field of the kind may hold in any record. False: there is none of that name. */
bool schedule_field_limits(const char *kind, const char *name, int64_t *least, int64_t *most);

#endif
