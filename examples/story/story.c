/* Goes on with a story: a language model that mcc compiled, its letters, a prompt.
 *
 *     story [-t TEMPERATURE] [-p TOP_P] [-s SEED] [-n TOKENS] [-v] story.so LETTERS [PROMPT]
 *
 * The text comes on standard output, letter by letter; -v prints speed and memory on standard error. Temperature 0
 * takes the likeliest letter each time. The network has the inputs and outputs that onnxruntime-genai's builder gives
 * all decoders: input_ids, attention_mask, past_key_values.N.key and .value; logits, present.N.key and .value. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decoder.h"
#include "draw.h"
#include "measure.h"

enum { LETTERS_MAX = 1024, CONTEXT = 256, LETTER = 16, UNKNOWN = 0, START = 1, END = 2 };
static const char blank[] = "\xe2\x96\x81";          /* how the model spells a space */

static const struct decoder_cache caches[] = {
    {"past_key_values.%d.key", "present.%d.key", 0}, {"past_key_values.%d.value", "present.%d.value", 0}, {0}};
static const struct decoder_names names = {"input_ids", "attention_mask", NULL, "logits", caches, 0};

struct letters {
    char text[LETTERS_MAX][LETTER];
    int n;
};

/* The network and the tokens so far. */
struct story {
    struct decoder decoder;
    int64_t token[CONTEXT];
    int n;
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

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* Prints the prompt and what follows, up to the end of the story or of the context: its network knows 256 places. */
static int tell(struct story *s, const struct letters *l, struct draw *o, int tokens, double *first, mcc_error *error)
{
    int fresh = s->n, told = 0;
    for (int i = 2; i < s->n; i++)
        letter_print(l, s->token[i]);
    while (told < tokens) {
        const float *logits = decoder_feed(&s->decoder, s->token + s->n - fresh, fresh, error);
        if (!logits)
            return -1;
        int token = draw_token(o, logits, (int)s->decoder.vocabulary, s->token, s->n);
        *first = told++ ? *first : seconds_now();
        if (token < 0 || token == START || token == END || s->n == CONTEXT)
            break;
        letter_print(l, token);
        s->token[s->n++] = token;
        fresh = 1;
    }
    putchar('\n');
    return told;
}

int main(int argc, char **argv)
{
    static struct story s;
    static struct letters l;
    struct draw o = {.temperature = 1, .top_p = 0.9, .penalty = 1};
    mcc_error error = {0};
    double begun = seconds_now(), first = 0;
    uint64_t seed = 1;
    int tokens = 200, verbose = 0, told = -1;
    for (int c; (c = getopt(argc, argv, "t:p:s:n:v")) != -1;)
        switch (c) {
        case 't': o.temperature = strtod(optarg, NULL); break;
        case 'p': o.top_p = strtod(optarg, NULL); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 'n': tokens = (int)strtol(optarg, NULL, 10); break;
        case 'v': verbose = 1; break;
        default: argc = 0; break;
        }
    draw_seed(&o, seed);
    if (argc - optind < 2 || argc - optind > 3 || !letters_read(&l, argv[optind + 1]) ||
        !decoder_open(&s.decoder, argv[optind], 1, &names, CONTEXT, &error)) {
        fprintf(stderr,
                "usage: story [-t TEMPERATURE] [-p TOP_P] [-s SEED] [-n TOKENS] [-v] story.so LETTERS [PROMPT]   %s\n",
                error.text);
        return 2;
    }
    if (prompt_read(&s, &l, argc - optind == 3 ? argv[optind + 2] : "Once upon a time"))
        told = tell(&s, &l, &o, tokens, &first, &error);
    if (told < 0)
        fprintf(stderr, "story: %s\n", error.text[0] ? error.text : "the prompt is too long");
    else if (verbose)
        fprintf(stderr, "%.2f ms to the first letter, %.0f letters/s, %ld kB of memory\n", 1e3 * (first - begun),
                told > 1 ? (told - 1) / (seconds_now() - first) : 0.0, memory_peak_kb());
    decoder_close(&s.decoder);
    draw_free(&o);
    return told < 0;
}
