/* See queue.h. At most one large piece is under way: two buffers of the giver's are all the memory that it takes. */
#include "codegen/queue.h"

#include <pthread.h>

#include "ir/base/file.h"

enum { ENTRIES = 16 };

struct entry {
    const void *data;
    size_t size;
    char copy[QUEUE_COPY]; /* of a small piece */
};

struct queue {
    queue_take *take;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry entry[ENTRIES];
    uint64_t given, taken; /* pieces, under the lock */
    bool threaded, ends, ok;
};

static void *take_all(void *user)
{
    struct queue *q = user;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->given == q->taken && !q->ends)
            pthread_cond_wait(&q->changed, &q->lock);
        if (q->given == q->taken)
            break;
        const struct entry *e = &q->entry[q->taken % ENTRIES];
        bool ok = q->ok;
        pthread_mutex_unlock(&q->lock);
        ok = ok && q->take(q->user, e->data, e->size);
        pthread_mutex_lock(&q->lock);
        q->ok = ok;
        q->taken++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

struct queue *queue_begin(struct arena *arena, queue_take *take, void *user)
{
    struct queue *q = NEW(arena, struct queue);
    *q = (struct queue){.take = take, .user = user, .ok = true};
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->threaded = thread_begin(&q->thread, take_all, q);
    return q;
}

/* With the lock held: waits until at most that many pieces are left to take. */
static void wait_for(struct queue *q, uint64_t left)
{
    while (q->given - q->taken > left)
        pthread_cond_wait(&q->changed, &q->lock);
}

bool queue_give(struct queue *q, const void *data, size_t size)
{
    bool small = size <= QUEUE_COPY;
    if (!q->threaded)
        return q->ok = q->ok && q->take(q->user, data, size);
    pthread_mutex_lock(&q->lock);
    wait_for(q, small ? ENTRIES - 1 : 0);
    struct entry *e = &q->entry[q->given % ENTRIES];
    if (small)
        memcpy(e->copy, data, size);
    e->data = small ? e->copy : data;
    e->size = size;
    q->given++;
    bool ok = q->ok;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_wait(struct queue *q)
{
    if (!q->threaded)
        return q->ok;
    pthread_mutex_lock(&q->lock);
    wait_for(q, 0);
    bool ok = q->ok;
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_end(struct queue *q)
{
    if (!q->threaded)
        return q->ok;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    q->threaded = false;
    return q->ok;
}
