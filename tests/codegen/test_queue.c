/* codegen/queue.h: bytes arrive in order, small pieces are copied, of two large ones one may be refilled, and a failure
 * is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "codegen/queue.h"

enum { LARGE = 1000, PIECES = 200, ROOM = PIECES * LARGE };

struct taker {
    unsigned char data[ROOM];
    size_t size, fails_at;
    bool slow;
};

static bool take(void *user, const void *data, size_t size)
{
    struct taker *t = user;
    if (t->slow)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    if (t->size + size > t->fails_at)
        return false;
    memcpy(t->data + t->size, data, size);
    t->size += size;
    return true;
}

/* Piece i: small or large, of bytes i. Two buffers in turns; a small piece's is overwritten at once. */
static void give_all(struct context *ctx, bool slow)
{
    static struct taker t;
    unsigned char large[2][LARGE], small[QUEUE_COPY], want[ROOM];
    size_t size = 0;
    uint32_t turn = 0;
    t = (struct taker){.fails_at = ROOM, .slow = slow};
    struct queue *q = queue_begin(&ctx->session, take, &t);
    for (unsigned i = 0; i < PIECES; i++) {
        bool is_small = i % 3 == 1 || (i > 50 && i < 100);
        size_t n = is_small ? i % QUEUE_COPY + 1 : LARGE - i;
        unsigned char *to = is_small ? small : large[turn];
        memset(to, (int)i, n);
        memset(want + size, (int)i, n);
        assert_true(queue_give(q, to, n));
        size += n;
        turn ^= !is_small;
    }
    assert_true(queue_wait(q));
    assert_int_equal(t.size, size);
    assert_true(queue_end(q));
    assert_true(queue_end(q));
    assert_memory_equal(t.data, want, size);
}

static void in_order(void **state)
{
    (void)state;
    struct context *ctx = context_bare();
    give_all(ctx, false);
    give_all(ctx, true);
    context_free(ctx);
}

static void a_failure_is_told(void **state)
{
    (void)state;
    static struct taker t;
    static const unsigned char bytes[LARGE];
    struct context *ctx = context_bare();
    t = (struct taker){.fails_at = 2 * LARGE};
    struct queue *q = queue_begin(&ctx->session, take, &t);
    assert_true(queue_give(q, bytes, LARGE));
    assert_true(queue_give(q, bytes, LARGE));
    queue_give(q, bytes, LARGE);
    assert_false(queue_wait(q));
    assert_false(queue_give(q, bytes, 1));
    assert_false(queue_end(q));
    assert_int_equal(t.size, 2 * LARGE);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_order), cmocka_unit_test(a_failure_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
