/* The cost models' numbers, ir/target/budget.def, by name. */
#pragma once

#include "ir/target/target.h"

enum share {
#define SHARE(id, ...) SHARE_##id,
#include "ir/target/budget.def"
};
enum rate {
#define RATE(id, value, ...) RATE_##id = value,
#include "ir/target/budget.def"
};

/* Bytes of that share. */
int64_t budget(const struct machine *, enum share);
/* Are rows so few that threads would idle, and so long that they share each row (passes/graph/split_k.c)? */
static inline bool rows_are_split(int64_t rows, int64_t length)
{
    return rows < RATE_ROWS_LEAST && length > RATE_ROW_LONG;
}
