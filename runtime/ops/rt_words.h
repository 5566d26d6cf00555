/* Elements of at most 4 bytes as words whose order is that of the elements: a 32-bit key (rt_sort.c) above the position
 * in the line. All words of a line differ, so whatever sorts them is stable.
 */
#pragma once

#include <stdint.h>

enum { RT_WORDS_STEP = 8 }; /* elements that are looked at together */

/* Smallest words so far, of those offered by ascending position. */
struct rt_words {
    uint64_t *word; /* room for `room` of them, */
    uint64_t *spare; /* and for sorting as many */
    int64_t n, keep, room; /* room: for keep and a step, or for all that will be offered */
    int bounded; /* keys from `bound` on are not among the smallest `keep` */
    uint32_t bound;
};

/* Sorts n words that differ; which half of the two holds them. ascending: they lie by ascending position now. */
uint64_t *rt_words_sort(uint64_t *word, uint64_t *spare, int64_t n, int ascending);
/* Offers the keys of positions at .. at + n - 1, below 2^32; n is at most RT_WORDS_STEP. */
void rt_words_offer(struct rt_words *, const uint32_t *keys, int64_t n, int64_t at);
/* The smallest `keep`, or all there are, in order. */
const uint64_t *rt_words_first(struct rt_words *);
