/* Guesses from the text so far or by a draft model, how many of them are worth a run, and checks that rows are alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "meta.h"
#include "speculate.h"

enum { MATCH = 16, DRAFT = 0, AGAIN = 4 };
static const double start[SPECULATE_KINDS] = {0.6, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};

/* What the system does meanwhile counts little: a value is taken for twice the average at most. */
static void average(double *of, double value)
{
    if (*of > 0)
        *of += 0.1 * ((value > 2 * *of ? 2 * *of : value) - *of);
    else
        *of = value;
}

int speculate_open(struct speculate *s, struct decoder *network, const char *draft, uint32_t threads,
                   const struct decoder_names *names, mcc_error *error)
{
    *s = (struct speculate){.network = network};
    memcpy(s->hit, start, sizeof start);
    error->code = MCC_E_ARG;
    const char *strict = meta_find(network->api->meta, "mcc.strict");
    snprintf(error->text, sizeof error->text, "%s",
             !strict                  ? "speculation needs a network whose rows are alike: compile with --strict"
             : !decoder_rows(network) ? "speculation needs caches in place and logits of all rows: compile without "
                                        "--last-logits"
                                      : "no memory for speculation");
    if (!strict || !decoder_rows(network) ||
        !(s->alone = malloc(SPECULATE_ROWS * (size_t)network->vocabulary * sizeof *s->alone)) ||
        (draft && !decoder_open(&s->draft, draft, threads, names, network->rows, error)))
        return 0;
    if (draft && (s->draft.vocabulary != network->vocabulary || !s->draft.shared || s->draft.rows < network->rows)) {
        snprintf(error->text, sizeof error->text,
                 "the draft model gives %lld words in a context of %lld tokens, the model %lld in %lld",
                 (long long)s->draft.vocabulary, (long long)s->draft.rows, (long long)network->vocabulary,
                 (long long)network->rows);
        return 0;
    }
    return 1;
}

void speculate_close(struct speculate *s)
{
    if (s->draft.lib)
        decoder_close(&s->draft);
    free(s->alone);
    *s = (struct speculate){0};
}

int speculate_most(const struct speculate *s)
{
    int size = SPECULATE_SIZES - 1;
    while (size > 0 && s->checked[size] <= 0)
        size--;
    return 1 << size;
}

void speculate_forget(struct speculate *s)
{
    s->runs = 0;
    if (s->draft.lib)
        decoder_reset(&s->draft);
}

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

/* What came after the longest run of tokens, of two at least, that the last ones repeat; the latest of several. */
static int guess_by_text(struct speculate *s, const int64_t *ids, int64_t n, int most, int *kind)
{
    static const unsigned char kinds[MATCH + 1] = {0, 0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7};
    int64_t best = 1, at = 0;
    for (int64_t i = n - 2; i >= 1 && best < MATCH; i--) {
        int64_t same = 0;
        while (same < MATCH && same <= i && ids[i - same] == ids[n - 1 - same])
            same++;
        if (same > best) {
            best = same;
            at = i + 1;
        }
    }
    int count = 0;
    for (; at > 0 && count < most; count++)
        s->guess[count] = at + count < n ? ids[at + count] : s->guess[at + count - n];
    *kind = kinds[best];
    return count;
}

static int likeliest(const float *logits, int64_t n)
{
    int best = 0;
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? (int)i : best;
    return best;
}

static int guess_by_draft(struct speculate *s, const int64_t *ids, int64_t n, int most, mcc_error *error)
{
    int count = 0;
    const float *logits = decoder_feed_all(&s->draft, ids, n, error);
    while (logits) {
        double begun = seconds_now();
        s->guess[count++] = likeliest(logits, s->draft.vocabulary);
        if (count == most)
            break;
        logits = decoder_feed(&s->draft, &s->guess[count - 1], 1, error);
        average(&s->drafting, seconds_now() - begun);
    }
    return count;
}

/* ---- how many ---------------------------------------------------------------------------------------------------- */

static double cost_of(const struct speculate *s, int size)
{
    return s->seconds[size] > 0 ? s->seconds[size] : s->seconds[0] * (1 + 0.1 * (1 << size));
}

/* Seconds that a run of 2^size rows saves, on the average; each guess costs so much and is right with this chance. */
static double worth(const struct speculate *s, int size, double chance, double guess)
{
    double tokens = 1, right = 1;
    for (int i = 1; i < 1 << size; i++)
        tokens += right *= chance;
    return tokens * s->seconds[0] - cost_of(s, size) - ((1 << size) - 1) * guess;
}

/* 2^size rows with the best outlook; 0: none is worth it. */
static int best_size(const struct speculate *s, double chance, double guess, int64_t room, double *value)
{
    int best = 0;
    *value = 0;
    for (int size = 1; size < SPECULATE_SIZES && 1 << size <= room; size++)
        if (s->checked[size] >= 0 && worth(s, size, chance, guess) > *value) {
            *value = worth(s, size, chance, guess);
            best = size;
        }
    return best;
}

/* ---- whether rows are alike -------------------------------------------------------------------------------------- */

static float *alone(const struct speculate *s, int64_t token)
{
    return s->alone + token % SPECULATE_ROWS * s->network->vocabulary;
}

/* Runs the last 2^size tokens, which ran alone, together. 0: error says why; checked says what came out. */
static int check_rows(struct speculate *s, const int64_t *ids, int size, mcc_error *error)
{
    struct decoder *d = s->network;
    int64_t rows = 1 << size, begun = d->n - rows, until = d->n;
    size_t bytes = (size_t)d->vocabulary * sizeof(float);
    double from = seconds_now();
    int same = 1;
    decoder_keep(d, begun);
    if (!decoder_feed(d, ids + begun, rows, error))
        return 0;
    average(&s->seconds[size], seconds_now() - from);
    for (int64_t i = 0; i < rows; i++)
        same &= memcmp(decoder_row(d, i), alone(s, begun + i), bytes) == 0;
    s->checked[size] = same ? AGAIN * until : -1;
    if (!same)
        decoder_keep(d, begun);
    while (d->n < until)
        if (!decoder_feed(d, ids + d->n, 1, error))
            return 0;
    s->saved -= seconds_now() - from;
    s->all += seconds_now() - from;
    return 1;
}

/* The most rows up to 2^size that are alike at this length, checked now if need be. -1: error says why. */
static int checked_size(struct speculate *s, const int64_t *ids, int size, mcc_error *error)
{
    for (; size > 0 && s->checked[size] <= s->network->n; size--)
        if (s->checked[size] >= 0 && s->runs >= 1 << size) {
            if (!check_rows(s, ids, size, error))
                return -1;
            if (s->checked[size] > 0)
                break;
        }
    return size;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* 2^size rows for the next run, with guesses; 0: one row, and what the text says is only compared. */
static int choose(struct speculate *s, const int64_t *ids, int64_t n, mcc_error *error)
{
    double value = 0, by_draft = 0;
    int64_t room = s->network->rows - s->network->n;
    s->guesses = guess_by_text(s, ids, n, SPECULATE_ROWS - 1, &s->kind);
    if (s->seconds[0] == 0 || s->saved < -0.02 * s->all)
        return 0;
    int size = s->guesses ? best_size(s, s->hit[s->kind], 0, room, &value) : 0, draft = 0;
    if (s->draft.lib) {
        draft = best_size(s, s->hit[DRAFT], s->drafting, room, &by_draft);
        if (!draft && s->saved > -0.01 * s->all && room > 1 && s->checked[1] >= 0)
            draft = 1; /* now and then, to see whether it has become better */
    }
    if (draft && (!size || by_draft > value)) {
        size = checked_size(s, ids, draft, error);
        if (size > 0) {
            s->guesses = guess_by_draft(s, ids, n, (1 << size) - 1, error);
            s->kind = DRAFT;
            size = s->guesses == (1 << size) - 1 ? size : -1;
        }
        return size;
    }
    return checked_size(s, ids, size, error);
}

const float *speculate_feed(struct speculate *s, const int64_t *ids, int64_t n, int64_t *rows, mcc_error *error)
{
    struct decoder *d = s->network;
    int64_t all[SPECULATE_ROWS];
    *rows = s->rows = 1;
    s->guesses = 0;
    s->begun = n - 1;
    if (n - d->n != 1) {
        s->runs = -1;
        return decoder_feed_all(d, ids, n, error);
    }
    double begun = seconds_now();
    int size = choose(s, ids, n, error);
    if (size < 0)
        return NULL;
    *rows = s->rows = 1 << size;
    all[0] = ids[n - 1];
    memcpy(all + 1, s->guess, (size_t)(*rows - 1) * sizeof *all);
    double chosen = seconds_now();
    if (!decoder_feed(d, all, *rows, error))
        return NULL;
    average(&s->seconds[size], seconds_now() - chosen);
    s->all += seconds_now() - begun;
    s->saved -= size ? seconds_now() - begun : 0;
    return decoder_row(d, 0);
}

int speculate_right(struct speculate *s, int64_t i, int64_t token)
{
    if (i >= s->guesses)
        return 0;
    int right = s->guess[i] == token;
    s->hit[s->kind] += 0.1 * (right - s->hit[s->kind]);
    return right && i + 1 < s->rows;
}

/* Logits of the rows that stay are kept while some number of rows has to be checked. */
void speculate_keep(struct speculate *s, int64_t n, int64_t right)
{
    struct decoder *d = s->network;
    int keep = 0;
    decoder_keep(d, n);
    if (s->draft.lib)
        decoder_keep(&s->draft, n);
    for (int i = 1; i < SPECULATE_SIZES; i++)
        keep |= s->checked[i] >= 0 && s->checked[i] <= d->n + SPECULATE_ROWS;
    for (int64_t i = s->begun; keep && s->runs >= 0 && i < d->n; i++)
        memcpy(alone(s, i), decoder_row(d, i - s->begun), (size_t)d->vocabulary * sizeof *s->alone);
    s->runs = keep && s->runs >= 0 ? s->runs + d->n - s->begun : 0;
    if (s->rows > 1) {
        s->saved += (double)(right + 1) * s->seconds[0];
        s->tried += s->rows - 1;
        s->right += right;
    }
}
