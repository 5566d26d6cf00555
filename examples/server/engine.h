/* The thread that runs the network: answers wait for a free stream, then all streams get their next token together, and
 * a long prompt goes in piece by piece between the steps of the others. */
#ifndef ENGINE_H
#define ENGINE_H

#include <pthread.h>

#include "config.h"
#include "streams.h"
#include "tokens.h"

enum { ANSWER_STOPS = 4, ANSWER_WHY = 256 };

enum reason { REASON_NONE, REASON_STOP, REASON_LENGTH, REASON_CANCELLED, REASON_FAILED };

struct answer {
    struct bpe_ids ids; /* of the prompt, then of the answer */
    int64_t prompt, most; /* tokens of the prompt; of the answer, at most */
    struct draw draw;
    const struct adapter *adapter; /* NULL: none */
    const char *stop[ANSWER_STOPS]; /* texts that end it and are not part of it */
    int stops, plain; /* plain: a first space is part of the text */
    /* The engine's, under its lock: */
    char *text;
    size_t bytes, room, ready; /* ready: bytes that stay as they are */
    enum reason reason; /* none: it goes on */
    int cancelled;
    char why[ANSWER_WHY]; /* of REASON_FAILED */
    int64_t fed;
    pthread_cond_t changed;
    struct answer *next;
};

struct engine_figures {
    int64_t running, waiting, finished, cancelled, failed, prompt_tokens, tokens, steps;
    double seconds; /* that the network ran */
};

struct engine {
    struct streams streams; /* their users: the answers that run */
    const struct config *config;
    const struct tokens *tokens;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct answer *first, *last; /* that wait */
    int64_t queue; /* answers that may wait */
    int64_t turn; /* the stream whose prompt goes on next */
    int64_t *next; /* each stream's token */
    int closing, begun;
    struct engine_figures figures;
};

/* lib is the engine's from now on. 0: error says why, and nothing is left open. */
int engine_open(struct engine *e, mcc_lib *lib, const struct config *config, const struct tokens *tokens, int64_t slots,
                int64_t queue, mcc_error *error);

/* 0: too many wait, or the engine closes. The answer lives until engine_take. */
int engine_put(struct engine *e, struct answer *a);

/* Waits until more than `shown` bytes are ready or the answer has ended, at most so many milliseconds. The bytes that
 * are ready; *reason: how it ended. */
size_t engine_wait(struct engine *e, struct answer *a, size_t shown, int milliseconds, enum reason *reason);

/* Copies bytes [from, to) of the answer. */
void engine_copy(struct engine *e, struct answer *a, size_t from, size_t to, char *out);

/* Ends the answer if it goes on, and waits until the engine knows it no more. */
void engine_take(struct engine *e, struct answer *a);

struct engine_figures engine_figures(struct engine *e);

/* Cancels all answers; engine_close also ends the thread: no answer may be put any more. */
void engine_cancel(struct engine *e);
void engine_close(struct engine *e);

#endif
