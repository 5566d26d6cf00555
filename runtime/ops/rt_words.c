/* Sorting and choosing words (rt_words.h): radix sort by the bytes in which they differ; the smallest of a line by a
 * bound that falls. What is below it is collected, and each time the room is full, a selection (Hoare 1961) leaves the
 * smallest. Of a line in random order the bound soon turns all but few away.
 */
#include "runtime/ops/rt_words.h"

enum { SHORT = 24, BYTE_VALUES = 256, KEY_BYTE = 4, WORD_BYTES = 8, ROUNDS = 24 };

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

static void insert_words(uint64_t *word, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t w = word[i];
        int64_t j = i;
        for (; j > 0 && word[j - 1] > w; j--)
            word[j] = word[j - 1];
        word[j] = w;
    }
}

/* By one byte, stably; count[value] words have it. */
static void scatter_words(const uint64_t *from, uint64_t *to, int64_t n, int shift, uint32_t *count)
{
    uint32_t sum = 0;
    for (int v = 0; v < BYTE_VALUES; v++) {
        uint32_t c = count[v];
        count[v] = sum;
        sum += c;
    }
    for (int64_t i = 0; i < n; i++)
        to[count[from[i] >> shift & 0xff]++] = from[i];
}

uint64_t *rt_words_sort(uint64_t *word, uint64_t *spare, int64_t n, int ascending)
{
    uint32_t count[BYTE_VALUES];
    uint64_t differ = 0;
    if (n <= SHORT) {
        insert_words(word, n);
        return word;
    }
    for (int64_t i = 1; i < n; i++)
        differ |= word[i] ^ word[0];
    for (int byte = ascending ? KEY_BYTE : 0; byte < WORD_BYTES; byte++) {
        if (!(differ >> 8 * byte & 0xff))
            continue;
        for (int v = 0; v < BYTE_VALUES; v++)
            count[v] = 0;
        for (int64_t i = 0; i < n; i++)
            count[word[i] >> 8 * byte & 0xff]++;
        scatter_words(word, spare, n, 8 * byte, count);
        uint64_t *sorted = spare;
        spare = word;
        word = sorted;
    }
    return word;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

/* The one between the other two. */
static uint64_t middle_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Words below the pivot go first; their number. */
static int64_t part_words(uint64_t *word, int64_t n, uint64_t pivot)
{
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = word[i];
        word[i] = word[below];
        word[below] = w;
        below += w < pivot;
    }
    return below;
}

/* The smallest `keep` of n words go first. The pivot is neither the smallest nor the largest word, so each round leaves
 * fewer; where chance is against it for long, what is left is sorted. */
static void choose_words(uint64_t *word, uint64_t *spare, int64_t n, int64_t keep)
{
    int rounds = 0;
    for (; n > SHORT && keep > 0 && keep < n && rounds < ROUNDS; rounds++) {
        int64_t below = part_words(word, n, middle_of(word[0], word[n / 2], word[n - 1]));
        if (below >= keep) {
            n = below;
        } else {
            word += below;
            n -= below;
            keep -= below;
        }
    }
    if (keep <= 0 || keep >= n)
        return;
    const uint64_t *sorted = rt_words_sort(word, spare, n, 0);
    for (int64_t i = 0; i < n && sorted != word; i++)
        word[i] = sorted[i];
}

/* Leaves the smallest `keep`; what comes later and equals the largest of them loses. */
static void cut_words(struct rt_words *w)
{
    uint64_t most = 0;
    choose_words(w->word, w->spare, w->n, w->keep);
    w->n = w->keep;
    for (int64_t i = 0; i < w->n; i++)
        most = w->word[i] > most ? w->word[i] : most;
    w->bounded = 1;
    w->bound = (uint32_t)(most >> 32);
}

/* Few words are kept in order at once, so that the bound is as low as it can be. */
static void insert_word(struct rt_words *w, uint64_t word)
{
    int64_t i = w->n < w->keep ? w->n++ : w->keep - 1;
    for (; i > 0 && w->word[i - 1] > word; i--)
        w->word[i] = w->word[i - 1];
    w->word[i] = word;
    w->bounded = w->n == w->keep;
    w->bound = (uint32_t)(w->word[w->n - 1] >> 32);
}

void rt_words_offer(struct rt_words *w, const uint32_t *keys, int64_t n, int64_t at)
{
    if (w->keep <= SHORT) {
        for (int64_t i = 0; i < n; i++)
            if (!w->bounded || keys[i] < w->bound)
                insert_word(w, (uint64_t)keys[i] << 32 | (uint64_t)(at + i));
        return;
    }
    if (w->n > w->room - n)
        cut_words(w);
    int64_t all = !w->bounded, count = w->n;
    uint64_t *word = w->word;
    for (int64_t i = 0; i < n; i++) {
        word[count] = (uint64_t)keys[i] << 32 | (uint64_t)(at + i);
        count += all | (keys[i] < w->bound);
    }
    w->n = count;
}

const uint64_t *rt_words_first(struct rt_words *w)
{
    if (w->n > w->keep)
        cut_words(w);
    return rt_words_sort(w->word, w->spare, w->n, 0);
}
