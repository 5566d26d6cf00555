/* Memory next to pages without access: what a compiled network touches beyond an input, an output or its workspace ends
 * the process.
 */
#ifndef MCC_TESTS_FUZZ_GUARD_H
#define MCC_TESTS_FUZZ_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* alloc and release of mcc_host, user unused. A block ends as near to the next page as its alignment permits;
 * release looks at the bytes that are left on both sides. */
void *guard_alloc(void *user, size_t bytes, size_t align);
void guard_release(void *user, void *p, size_t bytes);
/* Has any release so far found that such a byte was written? */
bool guard_broken(void);

#endif
