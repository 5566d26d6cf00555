/* Writes down what is said in WAV files: two networks that mcc compiled, an encoder and a decoder with caches.
 *
 *     speech [-n TOKENS] [-j THREADS] [-i] [-v] FOLDER FILE.wav...
 *
 * FOLDER has encoder.so, decoder.so and tokenizer.json. A line of text for each file comes on standard output, token by
 * token. -n: at most so many tokens, else seven for each second of sound; -i: their numbers, no text; -v: speed and
 * memory on standard error. The networks have the inputs and outputs of the exports of Moonshine: the encoder's first
 * are samples [1, n], perhaps with a mask; the decoder's input_ids, encoder_hidden_states, use_cache_branch, caches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decoder.h"
#include "draw.h"
#include "measure.h"
#include "tokens.h"
#include "wav.h"

enum { SECOND = 7, TOKENS_MOST = SECOND * WAV_SECONDS + 8 };

static const struct decoder_cache caches[] = {{"past_key_values.%d.decoder.key", "present.%d.decoder.key", 0},
                                              {"past_key_values.%d.decoder.value", "present.%d.decoder.value", 0},
                                              {"past_key_values.%d.encoder.key", "present.%d.encoder.key", 1},
                                              {"past_key_values.%d.encoder.value", "present.%d.encoder.value", 1},
                                              {0}};
static const struct decoder_names names = {"input_ids", NULL, NULL, "logits", caches, 0};

struct speech {
    mcc_lib *lib;                              /* the encoder */
    mcc_ctx *ctx;
    struct decoder decoder;
    struct tokens tokens;
    struct draw draw;
    int64_t start, end;
    int64_t *ones;                             /* a mask of all samples */
    DLManagedTensorVersioned *heard;           /* what the encoder gave */
    long most;
    int numbers, verbose;
    double begun;
};

static int complain(const char *what, const char *text)
{
    fprintf(stderr, "speech: %s: %s\n", what, text);
    return 0;
}

/* ---- hearing ----------------------------------------------------------------------------------------------------- */

static int encoder_open(struct speech *s, const char *path, uint32_t threads, mcc_error *error)
{
    mcc_host host = {.size = sizeof host, .threads = threads};
    if (mcc_load(path, &host, &s->lib, error))
        return complain(path, error->text);
    const mcc_api *api = s->lib->api;
    const mcc_port *in = api->in, *out = api->out;
    if (api->n_in < 1 || api->n_in > 2 || api->n_out != 1 || in[0].ndim != 2 || in[0].dtype.code != kDLFloat ||
        in[0].dtype.bits != 32 || out[0].ndim != 3 ||
        (api->n_in == 2 && (in[1].ndim != 2 || in[1].dtype.code != kDLInt || in[1].dtype.bits != 64)))
        return complain(path, "no encoder of samples [1, n], f32, with a mask at most");
    return api->ctx_new(s->lib->model, NULL, 0, &s->ctx, error) == MCC_OK || complain(path, error->text);
}

static void forget(struct speech *s)
{
    if (s->heard && s->heard->deleter)
        s->heard->deleter(s->heard);
    s->heard = NULL;
}

static int hear(struct speech *s, float *sound, int64_t samples, mcc_error *error)
{
    const mcc_api *api = s->lib->api;
    int64_t shape[] = {1, samples};
    DLTensor in = {sound, {kDLCPU, 0}, 2, api->in[0].dtype, shape, NULL, 0};
    DLTensor mask = {s->ones, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, NULL, 0};
    const DLTensor *const ins[] = {&in, &mask};
    forget(s);
    return api->run_dlpack(s->ctx, ins, &s->heard, error) == MCC_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int has_input(const struct speech *s, const char *name)
{
    for (uint32_t k = 0; k < s->decoder.api->n_in; k++)
        if (strcmp(s->decoder.api->in[k].name, name) == 0)
            return 1;
    return 0;
}

/* What the decoder reads besides tokens and caches. */
static int bind(struct speech *s, int64_t samples, const uint8_t *cached, mcc_error *error)
{
    const DLTensor *heard = &s->heard->dl_tensor;
    int64_t mask[] = {1, samples}, one[] = {1};
    if (has_input(s, "encoder_attention_mask") &&
        !decoder_bind(&s->decoder, "encoder_attention_mask", s->ones, 2, mask, error))
        return 0;
    return decoder_bind(&s->decoder, "encoder_hidden_states", (const char *)heard->data + heard->byte_offset, 3,
                        heard->shape, error) &&
           decoder_bind(&s->decoder, "use_cache_branch", cached, 1, one, error);
}

static void show(struct speech *s, int64_t token, int first)
{
    size_t bytes;
    const char *text = tokens_text(&s->tokens, token, &bytes);
    size_t strip = first && bytes && text[0] == ' ';
    if (s->numbers)
        printf(first ? "%lld" : " %lld", (long long)token);
    else
        fwrite(text + strip, 1, bytes - strip, stdout);
    fflush(stdout);
}

/* The likeliest token after each, up to the end or to `most` of them. */
static int write_down(struct speech *s, int64_t samples, mcc_error *error)
{
    uint8_t cached = 0;
    int64_t token = s->start, most = s->most ? s->most : samples * SECOND / WAV_RATE + 8, told = 0;
    double first = 0;
    decoder_reset(&s->decoder);
    if (!bind(s, samples, &cached, error))
        return 0;
    for (; told < most; told++) {
        const float *logits = decoder_feed(&s->decoder, &token, 1, error);
        if (!logits)
            return 0;
        if ((token = draw_token(&s->draw, logits, (int)s->decoder.vocabulary, NULL, 0)) < 0)
            return complain("drawing", "no memory");
        first = told ? first : seconds_now();
        if (token == s->end)
            break;
        show(s, token, told == 0);
        cached = 1;
    }
    putchar('\n');
    if (s->verbose)
        fprintf(
            stderr,
            "%.1f s of sound: %.1f ms to the first token, %.1f tokens/s of %lld, %.1f ms in all, %ld kB of memory\n",
            (double)samples / WAV_RATE, 1e3 * (first - s->begun),
            told > 1 ? (double)(told - 1) / (seconds_now() - first) : 0.0, (long long)told,
            1e3 * (seconds_now() - s->begun), memory_peak_kb());
    return 1;
}

static int file_read(struct speech *s, const char *path, mcc_error *error)
{
    char why[WAV_WHY];
    int64_t samples = 0;
    float *sound = wav_read(path, &samples, why);
    if (!sound)
        return complain(path, why);
    error->text[0] = 0;
    int ok = (hear(s, sound, samples, error) && write_down(s, samples, error)) || complain(path, error->text);
    free(sound);
    return ok;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int models_open(struct speech *s, const char *folder, uint32_t threads, mcc_error *error)
{
    char path[3][4096];
    static const char *const file[] = {"encoder.so", "decoder.so", "tokenizer.json"};
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, file[i]);
    if (!tokens_read(&s->tokens, path[2]))
        return complain(folder, s->tokens.why);
    s->start = tokens_added(&s->tokens, "<s>");
    s->end = tokens_added(&s->tokens, "</s>");
    if (s->start < 0 || s->end < 0)
        return complain(path[2], "no tokens <s> and </s>");
    s->ones = malloc(WAV_RATE * WAV_SECONDS * sizeof *s->ones);
    for (int i = 0; s->ones && i < WAV_RATE * WAV_SECONDS; i++)
        s->ones[i] = 1;
    if (!s->ones)
        return complain(folder, "no memory");
    return encoder_open(s, path[0], threads, error) &&
           (decoder_open(&s->decoder, path[1], threads, &names, s->most ? s->most : TOKENS_MOST, error) ||
            complain(path[1], error->text));
}

static void models_close(struct speech *s)
{
    forget(s);
    if (s->decoder.lib)
        decoder_close(&s->decoder);
    if (s->ctx)
        s->lib->api->ctx_free(s->ctx);
    mcc_unload(s->lib);
    tokens_free(&s->tokens);
    draw_free(&s->draw);
    free(s->ones);
}

int main(int argc, char **argv)
{
    static struct speech s;
    mcc_error error = {0};
    long threads = 1;
    int ok = 1;
    s.begun = seconds_now();
    s.draw = (struct draw){.top_p = 1, .penalty = 1};
    for (int c; (c = getopt(argc, argv, "n:j:iv")) != -1;)
        switch (c) {
        case 'n': ok &= (s.most = strtol(optarg, NULL, 10)) > 0 && s.most <= TOKENS_MOST; break;
        case 'j': ok &= (threads = strtol(optarg, NULL, 10)) > 0 && threads <= 1024; break;
        case 'i': s.numbers = 1; break;
        case 'v': s.verbose = 1; break;
        default: ok = 0; break;
        }
    if (!ok || argc - optind < 2) {
        fprintf(stderr, "usage: speech [-n TOKENS] [-j THREADS] [-i] [-v] FOLDER FILE.wav...\n");
        return 2;
    }
    ok = models_open(&s, argv[optind], (uint32_t)threads, &error);
    for (int i = optind + 1; ok && i < argc; i++) {
        ok = file_read(&s, argv[i], &error);
        s.begun = seconds_now();
    }
    models_close(&s);
    return !ok;
}
