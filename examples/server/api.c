/* What a request may ask for is written down here; what would change the answer and is not done is refused. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api.h"

enum { MESSAGES = 512 };

__attribute__((format(printf, 2, 3))) static int refuse(char why[ANSWER_WHY], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, ANSWER_WHY, format, list);
    va_end(list);
    return 400;
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

/* A text, and which of its bytes somebody typed: no special tokens are looked for there. */
struct prompt {
    char *text, *typed;
    size_t n, room;
    int failed;
};

static void put(struct prompt *p, const char *text, int typed)
{
    size_t bytes = strlen(text);
    if (p->n + bytes > p->room) {
        size_t room = 2 * (p->n + bytes);
        char *more = realloc(p->text, room), *marks = more ? realloc(p->typed, room) : NULL;
        p->text = more ? more : p->text;
        p->typed = marks ? marks : p->typed;
        p->failed |= !marks;
        p->room = marks ? room : p->room;
    }
    if (p->failed || !bytes)
        return;
    memcpy(p->text + p->n, text, bytes);
    memset(p->typed + p->n, typed, bytes);
    p->n += bytes;
}

/* The content is a text, or parts of type text. */
static int put_content(struct prompt *p, const json_t *message, size_t at, char why[ANSWER_WHY])
{
    const json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    if (json_is_string(content)) {
        put(p, json_string_value(content), 1);
        return 0;
    }
    if (!json_is_array(content))
        return refuse(why, "messages[%zu].content is no text", at);
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!type || strcmp(type, "text") || !text)
            return refuse(why, "messages[%zu].content[%zu] is no text: only texts are understood", at, i);
        put(p, text, 1);
    }
    return 0;
}

static const char *role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role && strcmp(role, "developer") == 0 ? "system" : role ? role : "";
}

/* A system text first, if any, then user and assistant in turn, the user last. */
static int put_messages(const struct form *f, const json_t *messages, struct prompt *p, char why[ANSWER_WHY])
{
    size_t n = json_array_size(messages), i = 0;
    int wrong = 0, system = n > 0 && strcmp(role_of(messages, 0), "system") == 0;
    if (n == 0 || n > MESSAGES || (n - (size_t)system) % 2 == 0)
        return refuse(why,
                      "messages: a system text if any, then the user's and the assistant's in turn, the user's last, "
                      "%d at most",
                      MESSAGES);
    put(p, f->begin, 0);
    if (f->system_inside)
        put(p, f->user_open, 0);
    if (system && !f->plain) {
        put(p, f->system_open, 0);
        wrong = put_content(p, json_array_get(messages, 0), 0, why);
        put(p, f->system_close, 0);
    }
    for (i = (size_t)system; !wrong && i < n; i++) {
        int user = (i - (size_t)system) % 2 == 0, first = i == (size_t)system;
        if (strcmp(role_of(messages, i), user ? "user" : "assistant"))
            return refuse(why, "messages[%zu].role is '%.40s', not '%s'", i, role_of(messages, i),
                          user ? "user" : "assistant");
        if (user && !(first && f->system_inside))
            put(p, f->user_open, 0);
        wrong = put_content(p, json_array_get(messages, i), i, why);
        put(p, user ? f->user_close : f->answer_close, 0);
        if (user)
            put(p, f->answer_open, 0);
    }
    return wrong;
}

static int read_prompt(const struct api *api, const json_t *messages, struct answer *a, char why[ANSWER_WHY])
{
    struct prompt p = {0};
    int wrong = json_is_array(messages) ? put_messages(api->form, messages, &p, why) : refuse(why, "no messages");
    int ok = !wrong && !p.failed;
    const char *begins = api->tokens->n_first ? api->tokens->bpe.token[api->tokens->first[0]].text : NULL;
    size_t n = begins ? strlen(begins) : 0;
    int written = begins && !api->form->plain && p.n >= n && memcmp(p.text, begins, n) == 0;
    for (int i = 0; ok && !written && i < api->tokens->n_first; i++)
        ok = bpe_ids_put(&a->ids, api->tokens->first[i]);
    if (ok && p.n > 0 && !tokens_encode_typed(api->tokens, p.text, p.n, p.typed, &a->ids)) {
        wrong = refuse(why, "%.200s", api->tokens->why);
        ok = 0;
    }
    free(p.text);
    free(p.typed);
    a->prompt = (int64_t)a->ids.n;
    for (int64_t i = 0; ok && i < a->prompt; i++) /* else the run would fail, with the answers of others */
        if (a->ids.id[i] >= api->words)
            return refuse(why, "the network has no word for token %lld of the prompt", (long long)a->ids.id[i]);
    if (ok && a->prompt == 0)
        return refuse(why, "the prompt has no tokens");
    if (ok && a->prompt >= api->config->context)
        return refuse(why, "the prompt has %lld tokens, the context %lld", (long long)a->prompt,
                      (long long)api->config->context);
    if (!ok && !wrong) {
        refuse(why, "no memory");
        return 503;
    }
    return wrong;
}

/* ---- how to draw ------------------------------------------------------------------------------------------------- */

/* A number between the two, or none: *value stays. */
static int number(const json_t *json, const char *key, double least, double most, double *value, char why[ANSWER_WHY])
{
    const json_t *n = json_object_get(json, key);
    if (!n || json_is_null(n))
        return 0;
    if (!json_is_number(n) || !(json_number_value(n) >= least && json_number_value(n) <= most))
        return refuse(why, "%s is not a number from %g to %g", key, least, most);
    *value = json_number_value(n);
    return 0;
}

static int read_undone(const json_t *json, char why[ANSWER_WHY])
{
    static const char *const lists[] = {"tools", "functions", "logit_bias", "audio", "response_format"};
    const json_t *format = json_object_get(json, "response_format");
    double n = 1, presence = 0, frequency = 0;
    int wrong = number(json, "n", 1, 1, &n, why);
    wrong = wrong ? wrong : number(json, "presence_penalty", 0, 0, &presence, why);
    wrong = wrong ? wrong : number(json, "frequency_penalty", 0, 0, &frequency, why);
    for (size_t i = 0; !wrong && i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(json, lists[i]);
        const char *type = list == format ? json_string_value(json_object_get(format, "type")) : NULL;
        if ((json_array_size(list) || json_object_size(list)) && !(type && strcmp(type, "text") == 0))
            wrong = refuse(why, "%s is not done here", lists[i]);
    }
    return !wrong && json_is_true(json_object_get(json, "logprobs")) ? refuse(why, "logprobs is not done here") : wrong;
}

static int read_stops(const json_t *stop, struct answer *a, char why[ANSWER_WHY])
{
    size_t n = json_is_array(stop) ? json_array_size(stop) : json_is_string(stop);
    if (n > ANSWER_STOPS || (stop && !n && !json_is_null(stop) && !json_is_array(stop)))
        return refuse(why, "stop is no text or list of at most %d", ANSWER_STOPS);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        if (!text || !text[0] || strlen(text) > 256)
            return refuse(why, "a stop is a text of 1 to 256 bytes");
        a->stop[a->stops++] = text;
    }
    return 0;
}

static int read_drawing(const struct api *api, const json_t *json, struct answer *a, char why[ANSWER_WHY])
{
    double seed = -1, most = 0, k = (double)api->config->draw.top_k;
    struct timespec t;
    a->draw = api->config->draw;
    a->draw.heap = NULL;
    a->draw.room = 0;
    int wrong = number(json, "temperature", 0, 100, &a->draw.temperature, why);
    wrong = wrong ? wrong : number(json, "top_p", 0, 1, &a->draw.top_p, why);
    wrong = wrong ? wrong : number(json, "top_k", 0, 1e9, &k, why);
    wrong = wrong ? wrong : number(json, "seed", 0, 9e15, &seed, why);
    wrong = wrong ? wrong : number(json, "max_tokens", 1, 1e9, &most, why);
    wrong = wrong ? wrong : number(json, "max_completion_tokens", 1, 1e9, &most, why);
    clock_gettime(CLOCK_REALTIME, &t);
    draw_seed(&a->draw, seed >= 0 ? (uint64_t)seed : (uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 32);
    a->draw.top_k = (int64_t)k;
    a->most = most >= 1 ? (int64_t)most : api->config->context;
    return wrong ? wrong : read_stops(json_object_get(json, "stop"), a, why);
}

/* "lora": NAME, or "model": NAME where that is an adapter's name; other models' names are taken for this one's. */
static int read_lora(const struct api *api, struct api_request *r, struct answer *a, char why[ANSWER_WHY])
{
    const json_t *lora = json_object_get(r->json, "lora");
    int asked = lora && !json_is_null(lora);
    const char *name = json_string_value(asked ? lora : json_object_get(r->json, "model"));
    r->model = api->name;
    for (size_t i = 0; name && i < api->loras; i++)
        if (strcmp(name, api->lora[i].name) == 0) {
            a->adapter = &api->lora[i].adapter;
            r->model = api->lora[i].name;
        }
    return asked && !a->adapter ? refuse(why, "there is no adapter '%.100s'", name ? name : "") : 0;
}

int api_read(const struct api *api, const char *body, size_t bytes, struct api_request *r, struct answer *a,
             char why[ANSWER_WHY])
{
    static long count; /* the caller has the tokenizer for itself, and so this */
    json_error_t error;
    *a = (struct answer){0};
    *r = (struct api_request){.json = json_loadb(body, bytes, 0, &error), .created = (int64_t)time(NULL)};
    snprintf(r->id, sizeof r->id, "chatcmpl-%ld", ++count);
    if (!json_is_object(r->json))
        return refuse(why, "the body is not a JSON object: %.150s", error.text);
    r->stream = json_is_true(json_object_get(r->json, "stream"));
    r->usage = json_is_true(json_object_get(json_object_get(r->json, "stream_options"), "include_usage"));
    a->plain = api->form->plain || !api->tokens->strip;
    int wrong = read_undone(r->json, why);
    wrong = wrong ? wrong : read_lora(api, r, a, why);
    wrong = wrong ? wrong : read_drawing(api, r->json, a, why);
    return wrong ? wrong : read_prompt(api, json_object_get(r->json, "messages"), a, why);
}

void api_free(struct api_request *r, struct answer *a)
{
    json_decref(r->json);
    r->json = NULL;
    free(a->ids.id);
    free(a->text);
    draw_free(&a->draw);
    *a = (struct answer){0};
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Text as JSON wants it: bytes that are not UTF-8 become U+FFFD. */
static json_t *text_of(const char *text, size_t bytes)
{
    char *clean = malloc(3 * bytes + 1);
    size_t n = 0, used;
    for (size_t at = 0; clean && at < bytes; at += used) {
        int good = split_point(text + at, bytes - at, &used) >= 0;
        memcpy(clean + n, good ? text + at : "\xef\xbf\xbd", good ? used : 3);
        n += good ? used : 3;
    }
    json_t *json = clean ? json_stringn(clean, n) : NULL;
    free(clean);
    return json;
}

/* A file's name may be any bytes. */
static json_t *name_of(const char *model)
{
    return text_of(model, strlen(model));
}

static json_t *usage_of(const struct answer *a)
{
    json_int_t made = (json_int_t)a->ids.n - a->prompt;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)a->prompt, "completion_tokens", made,
                     "total_tokens", (json_int_t)a->ids.n);
}

static const char *reason_name(enum reason reason)
{
    return reason == REASON_LENGTH ? "length" : "stop";
}

static char *dumped(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

char *api_error(int status, const char *why)
{
    return dumped(json_pack("{s:{s:o, s:s, s:i}}", "error", "message", text_of(why, strlen(why)), "type",
                            status >= 500 ? "server_error" : "invalid_request_error", "code", status));
}

char *api_models(const struct api *api)
{
    json_t *list = json_array();
    for (size_t i = 0; i <= api->loras; i++) {
        json_t *model = json_pack("{s:o, s:s, s:i, s:s}", "id", name_of(i ? api->lora[i - 1].name : api->name),
                                  "object", "model", "created", 0, "owned_by", "mcc");
        if (i)
            json_object_set_new(model, "parent", name_of(api->name));
        json_array_append_new(list, model);
    }
    return dumped(json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static json_t *head_of(const struct api_request *r, const char *object, json_t *choice)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:[o]}", "id", r->id, "object", object, "created", (json_int_t)r->created,
                     "model", name_of(r->model), "choices", choice);
}

char *api_answer(const struct api_request *r, const struct answer *a, enum reason reason)
{
    json_t *choice = json_pack("{s:i, s:{s:s, s:o}, s:s}", "index", 0, "message", "role", "assistant", "content",
                               text_of(a->text, a->bytes), "finish_reason", reason_name(reason));
    json_t *json = choice ? head_of(r, "chat.completion", choice) : NULL;
    if (json)
        json_object_set_new(json, "usage", usage_of(a));
    return dumped(json);
}

char *api_event(const struct api_request *r, const struct answer *a, const char *text, size_t bytes, int first,
                enum reason reason)
{
    static const char object[] = "chat.completion.chunk";
    json_t *delta = json_object(), *usage = NULL;
    if (first)
        json_object_set_new(delta, "role", json_string("assistant"));
    if (bytes || first)
        json_object_set_new(delta, "content", text_of(text, bytes));
    json_t *choice = json_pack("{s:i, s:o, s:n}", "index", 0, "delta", delta, "finish_reason");
    json_t *json = choice ? head_of(r, object, choice) : NULL;
    if (json && reason != REASON_NONE) {
        json_object_set_new(choice, "finish_reason", json_string(reason_name(reason)));
        if (r->usage)
            usage = json_pack("{s:s, s:s, s:I, s:o, s:[], s:o}", "id", r->id, "object", object, "created",
                              (json_int_t)r->created, "model", name_of(r->model), "choices", "usage", usage_of(a));
    }
    char *one = dumped(json), *two = dumped(usage), *out = NULL;
    size_t room = (one ? strlen(one) : 0) + (two ? strlen(two) : 0) + 64;
    if (one && (out = malloc(room)))
        snprintf(out, room, "data: %s\n\n%s%s%s%s", one, two ? "data: " : "", two ? two : "", two ? "\n\n" : "",
                 reason != REASON_NONE ? "data: [DONE]\n\n" : "");
    free(one);
    free(two);
    return out;
}
