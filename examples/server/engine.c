/* A step: answers that wait become streams, a piece of one prompt, a token for each stream that has its prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "measure.h"

enum { PIECE = 64 };

/* ---- an answer's text -------------------------------------------------------------------------------------------- */

/* Bytes of the end that may become another letter, or the beginning of a text that ends the answer. */
static size_t held_back(const struct answer *a)
{
    size_t held = 0;
    for (size_t k = 1; k <= 3 && k <= a->bytes; k++) {
        unsigned char c = (unsigned char)a->text[a->bytes - k];
        if ((c & 0xc0) == 0x80)
            continue;
        held = (c >= 0xf0 && k < 4) || (c >= 0xe0 && k < 3) || (c >= 0xc0 && k < 2) ? k : 0;
        break;
    }
    for (int i = 0; i < a->stops; i++)
        for (size_t n = strlen(a->stop[i]) - 1; n > held; n--)
            if (n <= a->bytes && memcmp(a->text + a->bytes - n, a->stop[i], n) == 0) {
                held = n;
                break;
            }
    return held;
}

/* The text up to a stop that begins behind `from`. */
static int stopped(struct answer *a, size_t from)
{
    const char *first = NULL;
    for (int i = 0; i < a->stops; i++) {
        size_t before = strlen(a->stop[i]);
        const char *hit = strstr(a->text + (from > before ? from - before : 0), a->stop[i]);
        first = hit && (!first || hit < first) ? hit : first;
    }
    if (first)
        a->bytes = (size_t)(first - a->text);
    return first != NULL;
}

/* 0: no memory. */
static int put_text(struct answer *a, const struct tokens *tokens, int64_t token)
{
    size_t n, from = a->bytes;
    const char *text = tokens_text(tokens, token, &n);
    if (from == 0 && !a->plain && n && text[0] == ' ') {
        text++;
        n--;
    }
    if (a->bytes + n + 1 > a->room) {
        size_t room = 2 * (a->bytes + n + 1);
        char *more = realloc(a->text, room);
        if (!more)
            return 0;
        a->text = more;
        a->room = room;
    }
    for (size_t i = 0; i < n; i++) /* a NUL would end the text that stops are looked for in */
        a->text[a->bytes++] = text[i] ? text[i] : ' ';
    a->text[a->bytes] = 0;
    if (stopped(a, from))
        a->reason = REASON_STOP;
    return 1;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static struct answer *running(const struct engine *e, int64_t stream)
{
    return e->streams.of[stream].user;
}

static void fail(struct answer *a, const char *why)
{
    a->reason = REASON_FAILED;
    snprintf(a->why, sizeof a->why, "%.200s", why);
}

/* A token of an answer, drawn from its logits; the lock is held. */
static void draw_one(struct engine *e, struct answer *a, const float *logits)
{
    int token = draw_token(&a->draw, logits, (int)e->streams.decoder.vocabulary, a->ids.id, (int64_t)a->ids.n);
    e->figures.tokens++;
    if (token < 0)
        fail(a, "no memory");
    else if (config_ends(e->config, token))
        a->reason = REASON_STOP;
    else if (!bpe_ids_put(&a->ids, token) || !put_text(a, e->tokens, token))
        fail(a, "no memory");
    else if (a->reason == REASON_NONE &&
             ((int64_t)a->ids.n - a->prompt >= a->most || (int64_t)a->ids.n >= e->streams.decoder.rows))
        a->reason = REASON_LENGTH;
    a->ready = a->reason == REASON_NONE ? a->bytes - held_back(a) : a->bytes;
    pthread_cond_broadcast(&a->changed);
}

/* Streams whose answers have ended go; the lock is held. */
static void sweep(struct engine *e)
{
    for (int64_t i = e->streams.n - 1; i >= 0; i--) {
        struct answer *a = running(e, i);
        if (a->cancelled && a->reason == REASON_NONE)
            a->reason = REASON_CANCELLED;
        if (a->reason == REASON_NONE)
            continue;
        streams_remove(&e->streams, i);
        e->figures.finished += a->reason == REASON_STOP || a->reason == REASON_LENGTH;
        e->figures.cancelled += a->reason == REASON_CANCELLED;
        e->figures.failed += a->reason == REASON_FAILED;
        pthread_cond_broadcast(&a->changed);
    }
    e->figures.running = e->streams.n;
}

static void admit(struct engine *e)
{
    while (e->first && e->streams.n < e->streams.decoder.slots) {
        struct answer *a = e->first;
        e->first = a->next;
        e->last = e->first ? e->last : NULL;
        e->figures.waiting--;
        streams_add(&e->streams, a->adapter, a);
    }
    e->figures.running = e->streams.n;
}

static int has_prompt(const struct answer *a)
{
    return a->prompt - a->fed > 1;
}

/* The next piece of one prompt, without its last token, which goes in with the tokens of the others. Its answer, and
 * how many tokens; NULL: no prompt is left. */
static struct answer *feed_prompt(struct engine *e, int64_t *fed, mcc_error *error)
{
    for (int64_t k = 0; k < e->streams.n; k++) {
        int64_t i = (e->turn + k) % e->streams.n;
        struct answer *a = running(e, i);
        if (!has_prompt(a))
            continue;
        e->turn = i + 1;
        *fed = a->prompt - 1 - a->fed > PIECE ? PIECE : a->prompt - 1 - a->fed;
        if (!streams_feed(&e->streams, i, a->ids.id + a->fed, *fed, error))
            *fed = 0;
        a->fed += *fed;
        return a;
    }
    return NULL;
}

/* Runs without the lock: only this thread adds and removes streams, and what it reads of answers is its own. */
static void step(struct engine *e)
{
    mcc_error error = {0};
    double begun = seconds_now();
    int64_t fed = 0;
    int any = 0;
    const float *logits = NULL;
    pthread_mutex_unlock(&e->lock);
    struct answer *prompt = feed_prompt(e, &fed, &error);
    for (int64_t i = 0; i < e->streams.n; i++) {
        struct answer *a = running(e, i);
        int goes = !has_prompt(a);
        e->next[i] = goes ? a->ids.id[a->fed] : -1;
        any |= goes;
    }
    if (any)
        logits = streams_step(&e->streams, e->next, &error);
    pthread_mutex_lock(&e->lock);
    if (prompt && !fed)
        fail(prompt, error.text);
    e->figures.prompt_tokens += fed;
    for (int64_t i = 0; any && i < e->streams.n; i++) {
        struct answer *a = running(e, i);
        if (e->next[i] < 0)
            continue;
        a->fed++;
        if (logits)
            draw_one(e, a, logits + i * e->streams.decoder.vocabulary);
        else
            fail(a, error.text);
    }
    e->figures.steps++;
    e->figures.seconds += seconds_now() - begun;
}

static void *engine_run(void *user)
{
    struct engine *e = user;
    pthread_mutex_lock(&e->lock);
    while (!e->closing || e->streams.n || e->first) {
        sweep(e);
        admit(e);
        if (e->streams.n)
            step(e);
        else if (!e->closing && !e->first)
            pthread_cond_wait(&e->work, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- for others -------------------------------------------------------------------------------------------------- */

int engine_open(struct engine *e, mcc_lib *lib, const struct config *config, const struct tokens *tokens, int64_t slots,
                int64_t queue, mcc_error *error)
{
    *e = (struct engine){.config = config, .tokens = tokens, .queue = queue};
    if (!streams_open(&e->streams, lib, &config->names, config->context, slots, error))
        return 0;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    e->next = calloc((size_t)slots, sizeof *e->next);
    e->begun = e->next && pthread_create(&e->thread, NULL, engine_run, e) == 0;
    if (!e->begun) {
        snprintf(error->text, sizeof error->text, "no memory, or no thread, for the engine");
        engine_close(e);
        return 0;
    }
    return 1;
}

int engine_put(struct engine *e, struct answer *a)
{
    pthread_mutex_lock(&e->lock);
    int ok = !e->closing && e->figures.waiting + e->streams.n < e->queue + e->streams.decoder.slots;
    if (ok) {
        pthread_cond_init(&a->changed, NULL);
        if (e->last)
            e->last->next = a;
        else
            e->first = a;
        e->last = a;
        e->figures.waiting++;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return ok;
}

size_t engine_wait(struct engine *e, struct answer *a, size_t shown, int milliseconds, enum reason *reason)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&e->lock);
    while (a->ready <= shown && a->reason == REASON_NONE && pthread_cond_timedwait(&a->changed, &e->lock, &until) == 0)
        ;
    size_t ready = a->ready;
    *reason = a->reason;
    pthread_mutex_unlock(&e->lock);
    return ready;
}

void engine_copy(struct engine *e, struct answer *a, size_t from, size_t to, char *out)
{
    pthread_mutex_lock(&e->lock);
    if (to > from)
        memcpy(out, a->text + from, to - from);
    pthread_mutex_unlock(&e->lock);
}

/* The place of an answer that waits; NULL: it does not. */
static int leave_queue(struct engine *e, struct answer *a)
{
    struct answer *before = NULL, *w = e->first;
    for (; w && w != a; w = w->next)
        before = w;
    if (!w)
        return 0;
    if (before)
        before->next = a->next;
    else
        e->first = a->next;
    e->last = e->last == a ? before : e->last;
    e->figures.waiting--;
    e->figures.cancelled++;
    a->reason = REASON_CANCELLED;
    return 1;
}

static int runs(const struct engine *e, const struct answer *a)
{
    for (int64_t i = 0; i < e->streams.n; i++)
        if (running(e, i) == a)
            return 1;
    return 0;
}

void engine_take(struct engine *e, struct answer *a)
{
    pthread_mutex_lock(&e->lock);
    a->cancelled = 1;
    if (!leave_queue(e, a))
        while (runs(e, a))
            pthread_cond_wait(&a->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    pthread_cond_destroy(&a->changed);
}

struct engine_figures engine_figures(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct engine_figures f = e->figures;
    pthread_mutex_unlock(&e->lock);
    return f;
}

void engine_cancel(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->closing = 1;
    for (int64_t i = 0; i < e->streams.n; i++)
        running(e, i)->cancelled = 1;
    while (e->first) {
        struct answer *a = e->first;
        leave_queue(e, a);
        pthread_cond_broadcast(&a->changed);
    }
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void engine_close(struct engine *e)
{
    if (e->begun) {
        engine_cancel(e);
        pthread_join(e->thread, NULL);
    }
    streams_close(&e->streams);
    free(e->next);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    *e = (struct engine){0};
}
