/* See budget.h. */
#include "ir/target/budget.h"

static const struct {
    size_t kib;
    int64_t parts, of;
} shares[] = {
#define SHARE(id, cache, parts, of, what) [SHARE_##id] = {offsetof(struct machine, cache), parts, of},
#include "ir/target/budget.def"
};

int64_t budget(const struct machine *m, enum share s)
{
    uint32_t kib = *(const uint32_t *)((const char *)m + shares[s].kib);
    return (int64_t)kib * 1024 * shares[s].parts / shares[s].of;
}
