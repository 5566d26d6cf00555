/* The most similar of some names, by the number of letters to change, to add and to leave out. */
#include "cli/library/options/nearest.h"

#include <string.h>

enum { NAME_MAX_BYTES = 48 };

/* Levenshtein distance of two names of at most NAME_MAX_BYTES bytes. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_BYTES + 1], n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

struct nearest nearest_to(const char *word)
{
    return (struct nearest){word, NULL, strlen(word) / 3 + 2};
}

void nearest_try(struct nearest *n, const char *name)
{
    size_t length = strlen(n->word);
    if (length > NAME_MAX_BYTES || strlen(name) > NAME_MAX_BYTES)
        return;
    size_t d = edit_distance(n->word, name);
    if (d < n->best && d < length) {
        n->best = d;
        n->found = name;
    }
}
