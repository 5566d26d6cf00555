/* Serves a language model that mcc compiled over HTTP, in the chat form of OpenAI's interface.
 *
 *     server [OPTIONS] [FOLDER] MODEL.so
 *
 * FOLDER as for ../chat; a network that was made of a GGUF file needs none. Each connection has a thread
 * (libmicrohttpd), one thread runs the network for all (engine.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "measure.h"
#include "meta.h"

enum { BODY_MAX = 1 << 20, POLL = 100, STACK = 1 << 18, CLIENTS_MORE = 64 };

struct options {
    const char *form, *host;
    long port, slots, queue, context, threads, grace, idle;
    char *lora[API_LORAS]; /* NAME=FILE */
    size_t loras;
};

struct server {
    struct options o;
    struct config config;
    struct tokens tokens;
    struct engine engine;
    struct api api;
    pthread_mutex_t tokenizer;
    atomic_int draining;
    atomic_long calls, requests, refused;
};

/* A request on its way. */
struct call {
    struct server *s;
    struct MHD_Connection *connection;
    char *body;
    size_t bytes, room;
    int too_large, put, first, ended;
    struct api_request request;
    struct answer answer;
    size_t shown;
    char *event;                  /* what is left to send */
    size_t event_at;
};

static const char usage[] =
    "usage: server [OPTIONS] [FOLDER] MODEL.so\n"
    "  -H ADDRESS  127.0.0.1 unless given       -p PORT     8080; 0: a free one, which standard output names\n"
    "  -s STREAMS  answers at a time, 8         -q ANSWERS  that may wait, 64\n"
    "  -c TOKENS   of context for each, 4096 at most unless given\n"
    "  -f FORM     of the chat; else by template or vocabulary\n"
    "  -j THREADS  of the network, 1            -g SECONDS  for running answers when asked to end, 30\n"
    "  -i SECONDS  after which an idle connection is closed, 30\n"
    "  --lora=NAME=FILE    an adapter of PEFT that requests choose by its name, for a network of mcc --lora:\n"
    "              adapter_model.safetensors, its folder, or an .onnx_adapter file; several times for several\n";

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type, char *text)
{
    static char nothing[] = "";
    struct MHD_Response *r = MHD_create_response_from_buffer(text ? strlen(text) : 0, text ? text : nothing,
                                                             text ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    if (status == 503 || status == 429)
        MHD_add_response_header(r, "Retry-After", "1");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result refuse(struct call *c, int status, const char *why)
{
    atomic_fetch_add(&c->s->refused, 1);
    return reply(c->connection, (unsigned)status, "application/json", api_error(status, why));
}

/* Whether the client has closed the connection. */
static int is_gone(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    if (!info)
        return 0;
    ssize_t n = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Waits for more of the answer. 0: the client is gone. */
static int wait_more(struct call *c, size_t shown, size_t *ready, enum reason *reason)
{
    do {
        *ready = engine_wait(&c->s->engine, &c->answer, shown, POLL, reason);
        if (*ready > shown || *reason != REASON_NONE)
            return 1;
    } while (!is_gone(c->connection));
    return 0;
}

/* The next event of a stream into c->event. 0: there is none. */
static int next_event(struct call *c)
{
    enum reason reason;
    size_t ready;
    if (c->ended || !wait_more(c, c->shown, &ready, &reason) || reason == REASON_CANCELLED || reason == REASON_FAILED)
        return 0;
    char *text = malloc(ready - c->shown + 1);
    if (!text)
        return 0;
    engine_copy(&c->s->engine, &c->answer, c->shown, ready, text);
    free(c->event);
    c->event = api_event(&c->request, &c->answer, text, ready - c->shown, !c->first, reason);
    c->event_at = 0;
    c->shown = ready;
    c->first = 1;
    c->ended = reason != REASON_NONE;
    free(text);
    return c->event != NULL;
}

static ssize_t read_stream(void *user, uint64_t at, char *out, size_t most)
{
    struct call *c = user;
    (void)at;
    if ((!c->event || !c->event[c->event_at]) && !next_event(c))
        return c->ended ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = strlen(c->event + c->event_at);
    n = n > most ? most : n;
    memcpy(out, c->event + c->event_at, n);
    c->event_at += n;
    return (ssize_t)n;
}

static enum MHD_Result reply_stream(struct call *c)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, c, NULL);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    enum MHD_Result done = MHD_queue_response(c->connection, 200, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result reply_whole(struct call *c)
{
    enum reason reason;
    size_t ready;
    if (!wait_more(c, SIZE_MAX, &ready, &reason)) /* more than there ever is: until the end */
        return MHD_NO;
    if (reason == REASON_CANCELLED)
        return refuse(c, 503, "the server ends");
    if (reason == REASON_FAILED)
        return refuse(c, 500, c->answer.why);
    return reply(c->connection, 200, "application/json", api_answer(&c->request, &c->answer, reason));
}

static enum MHD_Result chat(struct call *c)
{
    char why[ANSWER_WHY] = "";
    struct server *s = c->s;
    if (c->too_large)
        return refuse(c, 413, "the body has more than 1 MiB");
    if (atomic_load(&s->draining))
        return refuse(c, 503, "the server ends");
    pthread_mutex_lock(&s->tokenizer);
    int wrong = api_read(&s->api, c->body ? c->body : "", c->bytes, &c->request, &c->answer, why);
    pthread_mutex_unlock(&s->tokenizer);
    if (wrong)
        return refuse(c, wrong, why);
    c->put = engine_put(&s->engine, &c->answer);
    if (!c->put)
        return refuse(c, 429, "too many answers wait");
    return c->request.stream ? reply_stream(c) : reply_whole(c);
}

/* ---- the other pages --------------------------------------------------------------------------------------------- */

static enum MHD_Result metrics(struct call *c)
{
    static const char format[] =
        "# TYPE chat_requests_total counter\nchat_requests_total %ld\n"
        "# TYPE chat_refused_total counter\nchat_refused_total %ld\n"
        "# TYPE chat_answers_total counter\nchat_answers_total{end=\"finished\"} %lld\n"
        "chat_answers_total{end=\"cancelled\"} %lld\nchat_answers_total{end=\"failed\"} %lld\n"
        "# TYPE chat_running gauge\nchat_running %lld\n# TYPE chat_waiting gauge\nchat_waiting %lld\n"
        "# TYPE chat_tokens_total counter\nchat_tokens_total{of=\"prompts\"} %lld\nchat_tokens_total{of=\"answers\"} %lld\n"
        "# TYPE chat_steps_total counter\nchat_steps_total %lld\n"
        "# TYPE chat_step_seconds_total counter\nchat_step_seconds_total %.6f\n";
    struct engine_figures f = engine_figures(&c->s->engine);
    char *text = malloc(2048);
    if (text)
        snprintf(text, 2048, format, atomic_load(&c->s->requests), atomic_load(&c->s->refused), (long long)f.finished,
                 (long long)f.cancelled, (long long)f.failed, (long long)f.running, (long long)f.waiting,
                 (long long)f.prompt_tokens, (long long)f.tokens, (long long)f.steps, f.seconds);
    return reply(c->connection, 200, "text/plain; version=0.0.4", text);
}

static enum MHD_Result health(struct call *c)
{
    int draining = atomic_load(&c->s->draining);
    return reply(c->connection, draining ? 503 : 200, "text/plain", strdup(draining ? "ending\n" : "ok\n"));
}

static enum MHD_Result models(struct call *c)
{
    return reply(c->connection, 200, "application/json", api_models(&c->s->api));
}

static const struct page {
    const char *method, *path;
    enum MHD_Result (*serve)(struct call *);
} pages[] = {{"POST", "/v1/chat/completions", chat},
             {"GET", "/v1/models", models},
             {"GET", "/metrics", metrics},
             {"GET", "/health", health}};

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void take_body(struct call *c, const char *data, size_t bytes)
{
    if (c->bytes + bytes > BODY_MAX) {
        c->too_large = 1;
        return;
    }
    if (c->bytes + bytes > c->room) {
        size_t room = 2 * (c->bytes + bytes);
        char *more = realloc(c->body, room);
        if (!more) {
            c->too_large = 1;
            return;
        }
        c->body = more;
        c->room = room;
    }
    memcpy(c->body + c->bytes, data, bytes);
    c->bytes += bytes;
}

/* libmicrohttpd calls this for the head of a request, for pieces of its body, and at its end. */
static enum MHD_Result serve(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *data, size_t *bytes, void **state)
{
    struct server *s = user;
    struct call *c = *state;
    const struct page *found = NULL;
    (void)version;
    if (!c) {
        if (!(c = calloc(1, sizeof *c)))
            return MHD_NO;
        *c = (struct call){.s = s, .connection = connection};
        *state = c;
        atomic_fetch_add(&s->calls, 1);
        atomic_fetch_add(&s->requests, 1);
        return MHD_YES;
    }
    if (*bytes > 0) {
        take_body(c, data, *bytes);
        *bytes = 0;
        return MHD_YES;
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(url, pages[i].path) == 0)
            found = &pages[i];
    if (!found)
        return refuse(c, 404, "no such page: POST /v1/chat/completions, GET /v1/models, /metrics, /health");
    if (strcmp(method, found->method))
        return refuse(c, 405, "another method");
    return found->serve(c);
}

/* The answer was sent, or the client is gone. */
static void completed(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    struct server *s = user;
    struct call *c = *state;
    (void)connection;
    (void)code;
    if (!c)
        return;
    if (c->put)
        engine_take(&s->engine, &c->answer);
    api_free(&c->request, &c->answer);
    free(c->event);
    free(c->body);
    free(c);
    *state = NULL;
    atomic_fetch_sub(&s->calls, 1);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int complain(const char *text)
{
    fprintf(stderr, "server: %s\n", text);
    return 0;
}

static int options_read(struct options *o, int argc, char **argv)
{
    *o = (struct options){
        .host = "127.0.0.1", .port = 8080, .slots = 8, .queue = 64, .threads = 1, .grace = 30, .idle = 30};
    const struct {
        int letter;
        long *value, least, most;
    } numbers[] = {{'p', &o->port, 0, 65535},      {'s', &o->slots, 1, 256},    {'q', &o->queue, 0, 1 << 16},
                   {'c', &o->context, 2, 1 << 24}, {'j', &o->threads, 1, 1024}, {'g', &o->grace, 0, 86400},
                   {'i', &o->idle, 1, 86400}};
    static const struct option longer[] = {{"lora", required_argument, NULL, 'l'}, {0}};
    for (int c; (c = getopt_long(argc, argv, "+H:p:s:q:c:f:j:g:i:", longer, NULL)) != -1;) {
        size_t k = 0;
        char *end;
        if (c == 'l') {
            end = strchr(optarg, '=');
            if (!end || end == optarg || !end[1] || o->loras == API_LORAS)
                return 0;
            o->lora[o->loras++] = optarg;
            continue;
        }
        if (c == 'H' || c == 'f') {
            *(c == 'H' ? &o->host : &o->form) = optarg;
            continue;
        }
        while (k < sizeof numbers / sizeof *numbers && numbers[k].letter != c)
            k++;
        if (k == sizeof numbers / sizeof *numbers)
            return 0;
        errno = 0;
        *numbers[k].value = strtol(optarg, &end, 10);
        if (end == optarg || *end || errno || *numbers[k].value < numbers[k].least ||
            *numbers[k].value > numbers[k].most)
            return 0;
    }
    return argc > optind;
}

/* What is known of the network: of the folder, or of itself. */
static int model_read(struct server *s, const char *folder, const char *meta)
{
    char path[4096];
    const char *jinja = folder ? NULL : meta_find(meta, "tokenizer.chat_template");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder ? folder : "");
    int ok = folder ? tokens_read(&s->tokens, path) : tokens_read_meta(&s->tokens, meta);
    if (!ok)
        return complain(s->tokens.why);
    ok = folder ? config_read(&s->config, folder) : config_of_meta(&s->config, meta, &s->tokens);
    if (!ok)
        return complain(s->config.why);
    if (s->o.context > 0)
        s->config.context = s->o.context < s->config.longest ? s->o.context : s->config.longest;
    s->api.form = jinja && !s->o.form ? form_of_template(jinja) : form_find(s->o.form, &s->tokens);
    if (!s->api.form)
        fprintf(stderr, "server: the chat's form is not known; -f asks for one of %s\n", form_names());
    return s->api.form != NULL;
}

/* NAME=FILE of each. */
static int loras_read(struct server *s)
{
    for (size_t i = 0; i < s->o.loras; i++) {
        struct api_lora *lora = &s->api.lora[i];
        char *end = strchr(s->o.lora[i], '=');
        *end = 0;
        lora->name = s->o.lora[i];
        for (size_t k = 0; k < i; k++)
            if (strcmp(lora->name, s->api.lora[k].name) == 0)
                return complain("two adapters have the same name");
        if (!adapter_read(&lora->adapter, &s->engine.streams.decoder, end + 1))
            return complain(lora->adapter.why);
        s->api.loras++;
    }
    return 1;
}

static int server_open(struct server *s, const char *folder, const char *network)
{
    mcc_host host = {.size = sizeof host, .threads = (uint32_t)s->o.threads};
    mcc_error error = {0};
    mcc_lib *lib = NULL;
    if (mcc_load(network, &host, &lib, &error) != MCC_OK)
        return complain(error.text);
    if (!model_read(s, folder, lib->api->meta)) {
        mcc_unload(lib);
        return 0;
    }
    const char *name = strrchr(network, '/');
    s->api.name = name ? name + 1 : network;
    s->api.config = &s->config;
    s->api.tokens = &s->tokens;
    pthread_mutex_init(&s->tokenizer, NULL);
    if (!engine_open(&s->engine, lib, &s->config, &s->tokens, s->o.slots, s->o.queue, &error))
        return complain(error.text);
    s->config.context = s->engine.streams.decoder.rows;
    s->api.words = s->engine.streams.decoder.vocabulary;
    return loras_read(s);
}

static void server_close(struct server *s)
{
    if (s->engine.begun)
        engine_close(&s->engine);
    for (size_t i = 0; i < s->api.loras; i++)
        adapter_free(&s->api.lora[i].adapter);
    tokens_free(&s->tokens);
    config_free(&s->config);
}

static struct MHD_Daemon *listen_on(struct server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->o.port)};
    if (inet_pton(AF_INET, s->o.host, &address.sin_addr) != 1)
        return NULL;
    return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL,
                            NULL, serve, s, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, completed, s,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->o.idle, MHD_OPTION_THREAD_STACK_SIZE,
                            (size_t)STACK, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)(s->o.slots + s->o.queue + CLIENTS_MORE), MHD_OPTION_END);
}

/* Until a signal comes; then no more connections, answers may end within the grace, and the rest is cancelled. */
static void run(struct server *s, struct MHD_Daemon *d, const sigset_t *signals)
{
    int which;
    const union MHD_DaemonInfo *port = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT);
    printf("listening on http://%s:%u\n", s->o.host, port ? port->port : 0u);
    fflush(stdout);
    sigwait(signals, &which);
    atomic_store(&s->draining, 1);
    MHD_socket socket = MHD_quiesce_daemon(d);
    if (socket != MHD_INVALID_SOCKET)
        close(socket);
    double until = seconds_now() + (double)s->o.grace;
    while (atomic_load(&s->calls) > 0 && seconds_now() < until)
        usleep(20000);
    engine_cancel(&s->engine);
    MHD_stop_daemon(d);
}

int main(int argc, char **argv)
{
    static struct server s;
    struct MHD_Daemon *d = NULL;
    struct stat st;
    sigset_t signals;
    int good = options_read(&s.o, argc, argv), folder = good && stat(argv[optind], &st) == 0 && S_ISDIR(st.st_mode);
    if (!good || argc - optind != 1 + folder) {
        fputs(usage, stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int ok = server_open(&s, folder ? argv[optind] : NULL, argv[argc - 1]);
    if (ok && !(d = listen_on(&s)))
        ok = complain("cannot listen on that address and port");
    if (ok)
        run(&s, d, &signals);
    server_close(&s);
    return !ok;
}
