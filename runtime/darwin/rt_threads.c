/* Threads of macOS and iOS, and what waiting on an address is where the system has no function for it yet. */
#include "runtime/os.h"

int pthread_create(uintptr_t *thread, const void *attributes, void *(*main)(void *), void *arg);
int pthread_join(uintptr_t thread, void **result);

struct rt_threads rt_threads_find(void)
{
    return (struct rt_threads){pthread_create, pthread_join};
}

/* As the system's headers have them and their initializers. */
struct darwin_mutex {
    long signature;
    char rest[56];
};
struct darwin_condition {
    long signature;
    char rest[40];
};
int pthread_mutex_lock(struct darwin_mutex *);
int pthread_mutex_unlock(struct darwin_mutex *);
int pthread_cond_wait(struct darwin_condition *, struct darwin_mutex *);
int pthread_cond_broadcast(struct darwin_condition *);

/* One pair for all words: a thread that is woken for another word returns for no reason. */
static struct darwin_mutex mutex = {.signature = 0x32AAABA7};
static struct darwin_condition changed = {.signature = 0x3CB0B1BB};

void rt_wait_before(uint32_t *word, uint32_t seen)
{
    pthread_mutex_lock(&mutex);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == seen)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* Whoever changed a word comes here afterwards: a waiter has seen the change, or is asleep. */
void rt_wake_before(void)
{
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}
