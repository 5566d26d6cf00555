/* What the stages ask of a kind of schedule (a KIND of fields.def): functions in the file of its decisions. */
#pragma once

#include "passes/schedule/fields.h"

/* What decides on versions (version.c). */
struct kind_versions {
    int64_t (*whole)(const struct site *, const struct size_at *, const struct schedule *); /* ns; 0: not known */
    int64_t (*code)(const struct site *, const struct schedule *); /* in sums of products of a register tile */
    bool (*is_cut)(const struct site *, const struct schedule *, sym_id); /* has the size a part in what tiles cut? */
};

struct kind {
    bool (*choose)(const struct site *, struct schedule *); /* schedule_choose */
    void (*facts)(const struct site *, const struct schedule *, struct schedule_facts *); /* ns, flops, k */
    /* NULL: there is nothing of it in the kind. */
    bool (*owns)(const struct kernel *); /* is it of the kind by default? If several own it, the last row does */
    bool (*serves)(const struct site *); /* may it be of the kind if the user says so? */
    bool (*check)(struct check *, struct strbuf *why); /* facts for the rules; false as schedule_verify */
    bool (*computes)(const struct kernel *, node_id); /* is this reduction the template's own? */
    const char *(*words)(const struct module *, const struct kernel *, const struct schedule *,
                         const struct schedule_facts *); /* schedule_words */
    const struct kind_versions *versions; /* NULL: its kernels have none by the cost model */
};

#define KIND(id, name, what) extern const struct kind name##_kind;
#include "passes/schedule/fields.def"

struct kind_row {
    const char *name, *what;
    const struct kind *kind;
};
extern const struct kind_row kind_rows[SCHEDULE_KINDS];
static inline const struct kind *kind_of(enum schedule_kind kind)
{
    return kind_rows[kind].kind;
}
/* Is the kernel a reduction or contraction with one result, whose operands more than one template computes? */
bool kernel_is_free(const struct site *);
