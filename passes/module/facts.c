/* The names of what holds of a module. */
#include "passes/module/module.h"

static const char *const names[] = {
    "imported",  "legal",   "results", "kernels", "places",    "constraints", "storage",
    "constants", "weights", "order",   "offsets", "schedules", "loops",       "objects",
};

void facts_print(uint32_t facts, struct strbuf *out)
{
    const char *blank = "";
    for (uint32_t i = 0; i < COUNT_OF(names); i++) {
        if (!(facts >> i & 1))
            continue;
        strbuf_printf(out, "%s%s", blank, names[i]);
        blank = " ";
    }
}
