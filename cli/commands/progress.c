/* See progress.h. A thread writes, so that a stage that takes long shows, too, and the compilation never waits for a
 * terminal's time. */
#include "cli/commands/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "ir/base/file.h"

enum { FIRST_MS = 1000, NEXT_MS = 100, LINE_MAX_BYTES = 80 };
#define WIPE "\r\033[K" /* to the beginning of the line, and nothing after it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;
static pthread_t writer;
static bool running, stop;
static volatile sig_atomic_t shown; /* something stands on the line */
static char line[LINE_MAX_BYTES], written[LINE_MAX_BYTES];

static bool is_wanted(void)
{
    const char *ci = getenv("CI"), *term = getenv("TERM");
    return isatty(2) && !(ci && *ci) && term && strcmp(term, "dumb") != 0;
}

static void put(const char *text)
{
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

static struct timespec after(struct timespec t, long ms)
{
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void *write_lines(void *unused)
{
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    next = after(next, FIRST_MS);
    pthread_mutex_lock(&lock);
    while (!stop) {
        if (pthread_cond_timedwait(&ended, &lock, &next) == 0)
            continue;
        if (!shown || strcmp(line, written) != 0) {
            memcpy(written, line, sizeof line);
            put(WIPE);
            put(written);
            shown = 1;
        }
        next = after(next, NEXT_MS);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

static void begin(void)
{
    pthread_condattr_t clock;
    stop = false;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ended, &clock);
    pthread_condattr_destroy(&clock);
    running = thread_begin(&writer, write_lines, NULL);
}

static void end(void)
{
    pthread_mutex_lock(&lock);
    stop = true;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    pthread_join(writer, NULL);
    pthread_cond_destroy(&ended);
    running = false;
    progress_wipe();
}

void progress_step(void *user, const char *stage, uint32_t done, uint32_t of)
{
    (void)user;
    if (!stage) {
        if (running)
            end();
        return;
    }
    if (!running && !is_wanted())
        return;
    pthread_mutex_lock(&lock);
    if (of)
        snprintf(line, sizeof line, "mcc: %s, %u of %u", stage, done, of);
    else
        snprintf(line, sizeof line, "mcc: %s", stage);
    pthread_mutex_unlock(&lock);
    if (!running)
        begin();
}

void progress_clear(void)
{
    if (!running)
        return;
    pthread_mutex_lock(&lock);
    progress_wipe();
    pthread_mutex_unlock(&lock);
}

void progress_wipe(void)
{
    if (shown)
        put(WIPE);
    shown = 0;
}
