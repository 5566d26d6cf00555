/* Goes on with a story: a language model that mcc compiled, its letters, a prompt.
 *
 *     story [-t TEMPERATURE] [-p TOP_P] [-s SEED] [-n TOKENS] [-v] story.so LETTERS [PROMPT]
 *
 * The text comes on standard output, letter by letter; -v prints speed and memory on standard error. Temperature 0
 * takes the likeliest letter each time. The network has the inputs and outputs that onnxruntime-genai's builder gives
 * all decoders: input_ids, attention_mask, past_key_values.N.key and .value; logits, present.N.key and .value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mcc_load.h"

enum {
    LAYERS_MAX = 64,
    PORTS_MAX = 2 + 2 * LAYERS_MAX,
    LETTERS_MAX = 1024,
    CONTEXT = 256,
    LETTER = 16,
    UNKNOWN = 0,
    START = 1,
    END = 2
};
static const char blank[] = "\xe2\x96\x81";          /* how the model spells a space */

struct options {
    double temperature, top_p;
    uint64_t seed;
    int tokens, verbose;
};

struct letters {
    char text[LETTERS_MAX][LETTER];
    int n;
};

/* The network, the tokens so far, and two sets of caches: a step reads one and writes the other. */
struct story {
    const mcc_api *api;
    mcc_ctx *ctx;
    int64_t token[CONTEXT], mask[CONTEXT];
    int n;                                           /* tokens */
    int64_t heads, size;                             /* of a cache */
    float *cache[2][2 * LAYERS_MAX], *logits;
    int64_t vocabulary;
    int full;                                        /* which set holds the past */
};

/* ---- letters ----------------------------------------------------------------------------------------------------- */

static int letters_read(struct letters *l, const char *path)
{
    char line[128];
    FILE *file = fopen(path, "r");
    while (file && l->n < LETTERS_MAX && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\t\n")] = 0;
        snprintf(l->text[l->n++], LETTER, "%.*s", LETTER - 1, line);
    }
    if (file)
        fclose(file);
    return l->n > END;
}

static int letter_find(const struct letters *l, const char *text, size_t bytes)
{
    for (int i = 0; i < l->n; i++)
        if (strlen(l->text[i]) == bytes && !memcmp(l->text[i], text, bytes))
            return i;
    return UNKNOWN;
}

static size_t utf8_bytes(const char *p)
{
    size_t n = 1;
    while (((unsigned char)p[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* The prompt's letters behind the start and a space, as the model was taught. */
static int prompt_read(struct story *s, const struct letters *l, const char *text)
{
    s->token[s->n++] = START;
    s->token[s->n++] = letter_find(l, blank, sizeof blank - 1);
    for (; *text && s->n < CONTEXT; text += utf8_bytes(text))
        s->token[s->n++] = *text == ' ' ? letter_find(l, blank, sizeof blank - 1)
                                        : letter_find(l, text, utf8_bytes(text));
    return !*text;
}

/* The model was taught without line ends: they were unknown. */
static void letter_print(const struct letters *l, int64_t token)
{
    const char *text = token < l->n ? l->text[token] : "";
    fputs(token == UNKNOWN ? "\n" : strcmp(text, blank) ? text : " ", stdout);
    fflush(stdout);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* Caches, whose heads and sizes the network's outputs tell. */
static int story_new(struct story *s, const mcc_api *api, mcc_ctx *ctx)
{
    s->api = api;
    s->ctx = ctx;
    if (api->n_out < 3 || api->n_out > 1 + 2 * LAYERS_MAX || api->n_in != api->n_out + 1 || api->out[0].ndim != 3 ||
        api->out[1].ndim != 4)
        return 0;
    s->vocabulary = api->out[0].dims[2].extent;
    s->heads = api->out[1].dims[1].extent;
    s->size = api->out[1].dims[3].extent;
    if (s->vocabulary <= END || s->heads < 1 || s->size < 1)
        return 0;
    s->logits = malloc(CONTEXT * (size_t)s->vocabulary * sizeof *s->logits);
    for (uint32_t k = 0; k < 2 * (api->n_out - 1); k++) {
        float **cache = &s->cache[k % 2][k / 2];
        *cache = malloc((size_t)(s->heads * s->size * CONTEXT) * sizeof **cache);
        if (!*cache)
            return 0;
    }
    return s->logits != NULL;
}

static DLTensor tensor(void *data, DLDataTypeCode code, int bits, int rank, int64_t *shape)
{
    return (DLTensor){data, {kDLCPU, 0}, rank, {(uint8_t)code, (uint8_t)bits, 1}, shape, NULL, 0};
}

/* Feeds the last `fresh` tokens, the caches holding all before. NULL: the run failed. */
static const float *story_step(struct story *s, int fresh)
{
    int64_t ids_shape[] = {1, fresh}, mask_shape[] = {1, s->n}, logits_shape[] = {1, fresh, s->vocabulary};
    int64_t past[] = {1, s->heads, s->n - fresh, s->size}, present[] = {1, s->heads, s->n, s->size};
    DLTensor in[PORTS_MAX], out[PORTS_MAX];
    const DLTensor *ins[PORTS_MAX];
    DLTensor *outs[PORTS_MAX];
    uint32_t caches = s->api->n_out - 1;
    mcc_error error;
    for (int i = s->n - fresh; i < s->n; i++)
        s->mask[i] = 1;
    in[0] = tensor(s->token + s->n - fresh, kDLInt, 64, 2, ids_shape);
    in[1] = tensor(s->mask, kDLInt, 64, 2, mask_shape);
    out[0] = tensor(s->logits, kDLFloat, 32, 3, logits_shape);
    for (uint32_t k = 0; k < caches; k++) {
        in[2 + k] = tensor(s->cache[s->full][k], kDLFloat, 32, 4, past);
        out[1 + k] = tensor(s->cache[!s->full][k], kDLFloat, 32, 4, present);
    }
    for (uint32_t k = 0; k < caches + 2; k++)
        ins[k] = &in[k];
    for (uint32_t k = 0; k < caches + 1; k++)
        outs[k] = &out[k];
    if (s->api->run(s->ctx, ins, outs, &error) != MCC_OK) {
        fprintf(stderr, "story: %s\n", error.text);
        return NULL;
    }
    s->full = !s->full;
    return s->logits + (fresh - 1) * s->vocabulary;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* From 0 to 1, xorshift64*. */
static double uniform(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 0x2545f4914f6cdd1dull) >> 11) / 9007199254740992.0;
}

struct chance {
    double p;
    int token;
};

static int likelier(const void *a, const void *b)
{
    const struct chance *x = a, *y = b;
    return x->p < y->p ? 1 : x->p > y->p ? -1 : x->token - y->token;
}

/* One of the likeliest tokens that together have the chance top_p. */
static int draw(const float *logits, int n, struct options *o)
{
    static struct chance chance[LETTERS_MAX];
    double sum = 0, kept = 0, at;
    int best = 0, k = 0;
    n = n < LETTERS_MAX ? n : LETTERS_MAX;
    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    if (o->temperature <= 0)
        return best;
    for (int i = 0; i < n; i++)
        sum += (chance[i] = (struct chance){exp((double)(logits[i] - logits[best]) / o->temperature), i}).p;
    qsort(chance, (size_t)n, sizeof *chance, likelier);
    while (k < n && kept < o->top_p * sum)
        kept += chance[k++].p;
    at = uniform(&o->seed) * kept;
    for (int i = 0; i < k; i++)
        if ((at -= chance[i].p) < 0)
            return chance[i].token;
    return chance[0].token;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long memory_kb(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kb = 0;
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (status)
        fclose(status);
    return kb;
}

/* Prints the prompt and what follows, up to the end of the story or of the context: its network knows 256 places. */
static int tell(struct story *s, const struct letters *l, struct options *o, double begun)
{
    int fresh = s->n, told = 0;
    double first = 0;
    for (int i = 2; i < s->n; i++)
        letter_print(l, s->token[i]);
    while (told < o->tokens) {
        const float *logits = story_step(s, fresh);
        if (!logits)
            return 0;
        int token = draw(logits, (int)s->vocabulary, o);
        first = told++ ? first : now();
        if (token == START || token == END || s->n == CONTEXT)
            break;
        letter_print(l, token);
        s->token[s->n++] = token;
        fresh = 1;
    }
    putchar('\n');
    if (o->verbose)
        fprintf(stderr, "%.2f ms to the first letter, %.0f letters/s, %ld kB of memory\n", 1e3 * (first - begun),
                told > 1 ? (told - 1) / (now() - first) : 0.0, memory_kb());
    return 1;
}

int main(int argc, char **argv)
{
    static struct story s;
    static struct letters l;
    struct options o = {1, 0.9, 1, 200, 0};
    mcc_host host = {.size = sizeof host, .threads = 1};
    mcc_error error = {0};
    mcc_lib *lib;
    mcc_ctx *ctx;
    double begun = now();
    for (int c; (c = getopt(argc, argv, "t:p:s:n:v")) != -1;)
        switch (c) {
        case 't': o.temperature = atof(optarg); break;
        case 'p': o.top_p = atof(optarg); break;
        case 's': o.seed = strtoull(optarg, NULL, 10); break;
        case 'n': o.tokens = atoi(optarg); break;
        case 'v': o.verbose = 1; break;
        default: argc = 0; break;
        }
    o.seed = o.seed * 0x9e3779b97f4a7c15ull + 1; /* never 0 */
    if (argc - optind < 2 || argc - optind > 3 || !letters_read(&l, argv[optind + 1]) ||
        mcc_load(argv[optind], &host, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error)) {
        fprintf(stderr,
                "usage: story [-t TEMPERATURE] [-p TOP_P] [-s SEED] [-n TOKENS] [-v] story.so LETTERS [PROMPT]   %s\n",
                error.text);
        return 2;
    }
    int ok = story_new(&s, lib->api, ctx);
    if (!ok)
        fprintf(stderr, "story: this is no decoder of that form\n");
    ok = ok && prompt_read(&s, &l, argc - optind == 3 ? argv[optind + 2] : "Once upon a time") &&
         tell(&s, &l, &o, begun);
    for (int k = 0; k < 4 * LAYERS_MAX; k++)
        free(s.cache[k % 2][k / 2]);
    free(s.logits);
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    return !ok;
}
