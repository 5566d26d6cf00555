/* Chats with a language model that mcc compiled: a text of the command line is a turn, or a line of standard input; the
 * answer streams out.
 *
 *     chat [OPTIONS] [FOLDER] MODEL.so [TEXT...]
 *
 * FOLDER is what onnxruntime-genai's builder writes: genai_config.json and tokenizer.json are read. A network that was
 * made of a GGUF file has all of that in itself. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "adapter.h"
#include "config.h"
#include "form.h"
#include "measure.h"
#include "meta.h"
#include "speculate.h"

struct options {
    const char *form, *system, *draft, *lora;
    double temperature, top_p, penalty; /* negative: as the folder says */
    int64_t top_k, seed, context;
    long tokens; /* of an answer, at most; 0: as many as fit */
    long threads;
    int numbers, verbose, speculate;
};

struct chat {
    struct config config;
    struct tokens tokens;
    struct decoder decoder;
    struct adapter adapter;
    struct speculate speculate; /* network NULL: no */
    const struct form *form;
    struct options o;
    struct bpe_ids said; /* all tokens that the caches hold, and those that come next */
    int answers;
    int file; /* all that is known comes from the network itself */
    double begun;
};

static const char usage[] =
    "usage: chat [OPTIONS] [FOLDER] MODEL.so [TEXT...]      turns are TEXTs, or lines of standard input\n"
    "  FOLDER has genai_config.json and tokenizer.json; a network of a GGUF file needs none\n"
    "  -t TEMPERATURE  -k TOP_K  -p TOP_P  -r PENALTY  -s SEED     how tokens are drawn; else as genai_config.json says,\n"
    "              or the likeliest each time\n"
    "  -n TOKENS   of an answer, at most        -c TOKENS   context, at most\n"
    "  -f FORM     of the chat: none, chatml, llama3, llama2, gemma, phi3, phi4; else by template or vocabulary\n"
    "  -S TEXT     what the system says first   -j THREADS  1 unless given\n"
    "  -i          numbers of tokens, no text   -v          speed and memory on standard error\n"
    "  --speculate         guess tokens by the text so far, verify several at once: the same tokens, sooner\n"
    "  --lora=FILE         an adapter of PEFT, for a network of mcc --lora: adapter_model.safetensors, or its folder;\n"
    "                      or an .onnx_adapter file\n"
    "  --draft=SMALL.so    guess by a smaller model with the same tokens, too\n";

/* ---- options ----------------------------------------------------------------------------------------------------- */

static int number(const char *text, double least, double most, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && !*end && !errno && *value >= least && *value <= most;
}

static int options_read(struct options *o, int argc, char **argv)
{
    static const struct option longer[] = {{"speculate", no_argument, NULL, 'x'},
                                           {"draft", required_argument, NULL, 'd'},
                                           {"lora", required_argument, NULL, 'l'},
                                           {0}};
    double v = 0;
    int ok = 1;
    *o = (struct options){.temperature = -1, .top_p = -1, .penalty = -1, .top_k = -1, .seed = -1, .threads = 1};
    for (int c; ok && (c = getopt_long(argc, argv, "+t:k:p:r:s:n:c:f:S:j:iv", longer, NULL)) != -1;)
        switch (c) {
        case 't': ok = number(optarg, 0, 1e6, &o->temperature); break;
        case 'p': ok = number(optarg, 0, 1, &o->top_p); break;
        case 'r': ok = number(optarg, 1e-3, 1e3, &o->penalty); break;
        case 'k': ok = number(optarg, 0, 1e9, &v), o->top_k = (int64_t)v; break;
        case 's': ok = number(optarg, 0, 1e15, &v), o->seed = (int64_t)v; break;
        case 'n': ok = number(optarg, 1, 1e9, &v), o->tokens = (long)v; break;
        case 'c': ok = number(optarg, 1, 1 << 24, &v), o->context = (int64_t)v; break;
        case 'j': ok = number(optarg, 1, 1024, &v), o->threads = (long)v; break;
        case 'f': o->form = optarg; break;
        case 'S': o->system = optarg; break;
        case 'i': o->numbers = 1; break;
        case 'v': o->verbose = 1; break;
        case 'l': o->lora = optarg; break;
        case 'd': o->draft = optarg; /* fall through */
        case 'x': o->speculate = 1; break;
        default: ok = 0; break;
        }
    return ok && argc > optind;
}

static void options_apply(struct chat *c)
{
    struct draw *d = &c->config.draw;
    struct timespec t;
    d->temperature = c->o.temperature >= 0 ? c->o.temperature : d->temperature;
    d->top_p = c->o.top_p >= 0 ? c->o.top_p : d->top_p;
    d->penalty = c->o.penalty > 0 ? c->o.penalty : d->penalty;
    d->top_k = c->o.top_k >= 0 ? c->o.top_k : d->top_k;
    c->config.seed = c->o.seed >= 0 ? c->o.seed : c->config.seed;
    if (c->o.context > 0)
        c->config.context = c->o.context < c->config.longest ? c->o.context : c->config.longest;
    clock_gettime(CLOCK_REALTIME, &t);
    draw_seed(d, c->config.seed >= 0 ? (uint64_t)c->config.seed : (uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 32);
}

static int complain(const char *text)
{
    fprintf(stderr, "chat: %s\n", text);
    return 0;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void show(const struct chat *c, int64_t token, int first)
{
    size_t bytes;
    const char *text = tokens_text(&c->tokens, token, &bytes);
    if (c->o.numbers) {
        printf(first ? "%lld" : " %lld", (long long)token);
    } else {
        size_t skip = first && c->tokens.strip && !c->form->plain && bytes && text[0] == ' ';
        fwrite(text + skip, 1, bytes - skip, stdout);
    }
    fflush(stdout);
}

/* How many tokens begin the first turn: those of the vocabulary, unless the form has them written out. */
static int first_count(const struct chat *c, const char *text)
{
    const char *begins = c->file && c->tokens.n_first ? c->tokens.bpe.token[c->tokens.first[0]].text : NULL;
    int written = begins && strncmp(text, begins, strlen(begins)) == 0;
    return c->form->plain || (c->file && !written) ? c->tokens.n_first : 0;
}

/* The turn's tokens behind all that was said. */
static int turn_encode(struct chat *c, const char *line)
{
    size_t from, to;
    char *text = form_turn(c->form, c->answers > 0, c->o.system, line, &from, &to);
    int ok = text != NULL, first = ok && c->answers == 0 ? first_count(c, text) : 0;
    for (int i = 0; ok && i < first; i++)
        ok = bpe_ids_put(&c->said, c->tokens.first[i]);
    ok = ok && tokens_encode(&c->tokens, text, strlen(text), from, to, &c->said);
    free(text);
    return ok || complain(c->tokens.why[0] ? c->tokens.why : "no memory");
}

/* Draws the token of a row of logits and shows it. 0: that ends the answer; -1: no memory. */
static int say(struct chat *c, const float *logits, long told, int64_t *token)
{
    int t = draw_token(&c->config.draw, logits, (int)c->decoder.vocabulary, c->said.id, (int64_t)c->said.n);
    *token = t;
    if (t < 0)
        return -1;
    if (config_ends(&c->config, t) || (int64_t)c->said.n == c->config.context)
        return 0;
    show(c, t, told == 0);
    return bpe_ids_put(&c->said, t) ? 1 : -1;
}

/* Feeds what the caches lack; tokens of all rows that follow from it, as many as are right. As say. */
static int step(struct chat *c, long *told, double *first, mcc_error *error)
{
    int64_t rows = 1, right = 0, token, n = (int64_t)c->said.n;
    const float *logits = c->speculate.network ? speculate_feed(&c->speculate, c->said.id, n, &rows, error)
                                               : decoder_feed_all(&c->decoder, c->said.id, n, error);
    int goes = logits ? 1 : -1;
    for (int64_t i = 0; goes > 0 && i < rows; i++) {
        goes = say(c, logits + i * c->decoder.vocabulary, *told, &token);
        *first = (*told)++ ? *first : seconds_now();
        if (goes > 0 && *told == c->o.tokens)
            goes = 0;
        if (goes <= 0 || !c->speculate.network || !speculate_right(&c->speculate, i, token))
            break;
        right++;
    }
    if (c->speculate.network && logits)
        speculate_keep(&c->speculate, n + right, right);
    return goes;
}

static int answer(struct chat *c, double begun)
{
    mcc_error error = {.text = "no memory"};
    const struct speculate *s = &c->speculate;
    double first = 0;
    long told = 0;
    int goes = 1;
    while (goes > 0)
        goes = step(c, &told, &first, &error);
    if (goes < 0)
        return complain(error.text);
    putchar('\n');
    if (c->o.verbose)
        fprintf(stderr, "%.2f ms to the first token, %.1f tokens/s of %ld, %ld kB of memory, caches %s\n",
                1e3 * (first - begun), told > 1 ? (double)(told - 1) / (seconds_now() - first) : 0.0, told,
                memory_peak_kb(), c->decoder.shared ? "in place" : "handed on");
    if (c->o.verbose && s->network)
        fprintf(stderr, "%lld of %lld guesses were right, %d rows together at most\n", (long long)s->right,
                (long long)s->tried, speculate_most(s));
    return 1;
}

/* Forgets what was said. */
static void anew(struct chat *c)
{
    decoder_reset(&c->decoder);
    if (c->speculate.network)
        speculate_forget(&c->speculate);
    c->said.n = 0;
    c->answers = 0;
}

static int turn(struct chat *c, const char *line)
{
    double begun = c->begun > 0 ? c->begun : seconds_now();
    c->begun = 0;
    if (!turn_encode(c, line))
        return 0;
    if ((int64_t)c->said.n > c->config.context && c->answers > 0) {
        complain("the context is full: what was said is forgotten");
        anew(c);
        if (!turn_encode(c, line))
            return 0;
    }
    if ((int64_t)c->said.n > c->config.context || c->said.n == 0) {
        anew(c);
        return complain("the turn is empty, or longer than the context");
    }
    c->answers++;
    return answer(c, begun);
}

/* 0: a turn failed. A line of its own that is empty is none. */
static int turns_read(struct chat *c)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int ok = 1, asks = isatty(STDIN_FILENO);
    while (ok) {
        if (asks)
            fputs("> ", stderr);
        if ((n = getline(&line, &room, stdin)) < 0)
            break;
        line[strcspn(line, "\r\n")] = 0;
        ok = !line[0] || turn(c, line);
    }
    free(line);
    return ok;
}

/* ---- what is known of the network -------------------------------------------------------------------------------- */

static int form_choose(struct chat *c, const char *jinja)
{
    c->form = jinja && !c->o.form ? form_of_template(jinja) : form_find(c->o.form, &c->tokens);
    if (c->form)
        return 1;
    if (c->o.form)
        fprintf(stderr, "chat: no form '%s'; there are %s\n", c->o.form, form_names());
    else
        fprintf(stderr, "chat: the file's chat template is of no form known here; -f asks for one of %s\n",
                form_names());
    return 0;
}

static int open_folder(struct chat *c, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return (config_read(&c->config, folder) || complain(c->config.why)) &&
           (tokens_read(&c->tokens, path) || complain(c->tokens.why)) && form_choose(c, NULL);
}

static int open_file(struct chat *c, const char *meta)
{
    c->file = 1;
    return (tokens_read_meta(&c->tokens, meta) || complain(c->tokens.why)) &&
           (config_of_meta(&c->config, meta, &c->tokens) || complain(c->config.why)) &&
           form_choose(c, meta_find(meta, "tokenizer.chat_template"));
}

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* folder: NULL: the network says all. */
static int chat_open(struct chat *c, const char *folder, const char *network)
{
    mcc_host host = {.size = sizeof host, .threads = (uint32_t)c->o.threads};
    mcc_error error = {0};
    mcc_lib *lib = NULL;
    if (folder && !open_folder(c, folder))
        return 0;
    if (mcc_load(network, &host, &lib, &error) != MCC_OK)
        return complain(error.text);
    if (!folder && !open_file(c, lib->api->meta)) {
        mcc_unload(lib);
        return 0;
    }
    options_apply(c);
    if (!decoder_new(&c->decoder, lib, &c->config.names, c->config.context, 1, &error))
        return complain(error.text);
    c->config.context = c->decoder.rows;
    if (c->o.lora && !adapter_read(&c->adapter, &c->decoder, c->o.lora))
        return complain(c->adapter.why);
    decoder_adapt(&c->decoder, c->o.lora ? &c->adapter : NULL);
    return !c->o.speculate ||
           speculate_open(&c->speculate, &c->decoder, c->o.draft, host.threads, &c->config.names, &error) ||
           complain(error.text);
}

int main(int argc, char **argv)
{
    static struct chat c;
    c.begun = seconds_now();
    int good = options_read(&c.o, argc, argv), folder = good && is_folder(argv[optind]);
    if (!good || argc - optind < 1 + folder) {
        fputs(usage, stderr);
        return 2;
    }
    int at = optind + folder + 1;
    int ok = chat_open(&c, folder ? argv[optind] : NULL, argv[at - 1]);
    if (ok && at == argc)
        ok = turns_read(&c);
    for (; ok && at < argc; at++)
        ok = turn(&c, argv[at]);
    speculate_close(&c.speculate);
    if (c.decoder.lib)
        decoder_close(&c.decoder);
    adapter_free(&c.adapter);
    tokens_free(&c.tokens);
    free(c.said.id);
    config_free(&c.config);
    return !ok;
}
