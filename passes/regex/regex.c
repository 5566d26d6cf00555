/* The stages of a regular expression (see regex.h). */
#include "passes/regex/internal.h"

bool regex_compile(struct arena *arena, const char *pattern, size_t n, struct span *table, struct regex_error *error)
{
    struct arena scratch;
    struct nfa nfa = {.start = 0};
    arena_init(&scratch, arena->ctx);
    *error = (struct regex_error){.at = 0};
    const struct tree *tree = regex_parse(&scratch, pattern, n, error);
    bool good = tree && nfa_build(&scratch, tree, &nfa, error) && dfa_build(&scratch, arena, &nfa, table, error);
    arena_release(&scratch);
    return good;
}
