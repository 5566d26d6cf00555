/* Gaps between buffers (passes/layout/lives.h) are those that a search through all buffers finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/expr/expr.h"
#include "passes/layout/lives.h"

enum { ROUNDS = 300, BUFFERS = 120 };

struct placed {
    uint32_t first, last;
    int64_t offset, size;
};

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

static bool fits(const struct placed *all, uint32_t n, const struct placed *b)
{
    for (uint32_t i = 0; i < n; i++)
        if (all[i].first <= b->last && b->first <= all[i].last && all[i].offset < b->offset + b->size &&
            b->offset < all[i].offset + all[i].size)
            return false;
    return true;
}

static int64_t lowest(const struct placed *all, uint32_t n, struct placed b)
{
    for (b.offset = 0; !fits(all, n, &b); b.offset++)
        continue;
    return b.offset;
}

static void gaps_are_the_lowest(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct context *ctx = context_new();
        struct arena arena;
        arena_init(&arena, ctx);
        struct lives lives = {.arena = &arena};
        struct placed all[BUFFERS];
        uint32_t kernels = 1 + random_below(&seed, 40), longest = 1 + random_below(&seed, kernels);
        lives_begin(&lives, kernels);
        for (uint32_t i = 0; i < BUFFERS; i++) {
            struct placed *b = &all[i];
            b->first = random_below(&seed, kernels + 1);
            b->last = b->first + random_below(&seed, longest);
            b->last = b->last < kernels ? b->last : kernels;
            b->size = random_below(&seed, 6);
            assert_true(lives_gap(&lives, b->first, b->last, b->size, &b->offset));
            assert_int_equal(b->offset, b->size ? lowest(all, i, *b) : 0);
            lives_add(&lives, b->first, b->last, b->offset, b->size);
        }
        arena_release(&arena);
        context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gaps_are_the_lowest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
