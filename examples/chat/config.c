/* Reading genai_config.json, and what a GGUF file says. What would change the answers and is not done here is refused.
 */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "meta.h"

static const char *name_of(const json_t *list, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(list, key));
    return text ? text : otherwise;
}

static double number_of(const json_t *list, const char *key, double otherwise)
{
    const json_t *n = json_object_get(list, key);
    return json_is_number(n) ? json_number_value(n) : otherwise;
}

static int64_t whole_of(const json_t *list, const char *key, int64_t otherwise)
{
    const json_t *n = json_object_get(list, key);
    return json_is_integer(n) ? json_integer_value(n) : otherwise;
}

/* A number or a list of them. */
static int read_ends(struct config *c, const json_t *ends)
{
    size_t n = json_is_array(ends) ? json_array_size(ends) : json_is_integer(ends);
    for (size_t i = 0; i < n && i < CONFIG_ENDS; i++)
        c->end[c->ends++] = json_integer_value(json_is_array(ends) ? json_array_get(ends, i) : ends);
    if (n <= CONFIG_ENDS)
        return 1;
    snprintf(c->why, sizeof c->why, "eos_token_id has more than %d numbers", CONFIG_ENDS);
    return 0;
}

static int read_search(struct config *c, const json_t *search)
{
    static const struct {
        const char *key;
        int64_t none;
    } undone[] = {{"num_beams", 1}, {"num_return_sequences", 1}, {"min_length", 0}, {"no_repeat_ngram_size", 0}};
    for (size_t i = 0; i < sizeof undone / sizeof *undone; i++)
        if (whole_of(search, undone[i].key, undone[i].none) > undone[i].none) {
            snprintf(c->why, sizeof c->why, "search.%s above %d is not done here", undone[i].key, (int)undone[i].none);
            return 0;
        }
    c->draw.temperature = json_is_true(json_object_get(search, "do_sample")) ? number_of(search, "temperature", 1) : 0;
    c->draw.top_k = whole_of(search, "top_k", 50);
    c->draw.top_p = number_of(search, "top_p", 1);
    c->draw.top_p = c->draw.top_p > 0 ? c->draw.top_p : 1;
    c->draw.penalty = number_of(search, "repetition_penalty", 1);
    c->draw.penalty = c->draw.penalty > 0 ? c->draw.penalty : 1;
    c->seed = whole_of(search, "random_seed", -1);
    return 1;
}

/* Rows of the caches of layers that see a window only: the window's, and as many more as the file wants. */
static int read_window(struct config *c, const json_t *window)
{
    int64_t size = whole_of(window, "window_size", 0), more = whole_of(window, "cache_slack", 0);
    int slides = json_is_true(json_object_get(window, "slide_key_value_cache")) ||
                 json_is_true(json_object_get(window, "slide_inputs"));
    if (slides || size < 0 || more < 0 || size > 1 << 24 || more > 1 << 24) {
        snprintf(c->why, sizeof c->why,
                 "sliding_window: a window that the program slides, or one of %lld and %lld tokens, is not done here",
                 (long long)size, (long long)more);
        return 0;
    }
    c->names.window = size ? size + more : 0;
    return 1;
}

int config_read(struct config *c, const char *folder)
{
    char path[4096];
    *c = (struct config){0};
    snprintf(path, sizeof path, "%s/genai_config.json", folder);
    c->json = json_read(path, c->why);
    if (!c->json)
        return 0;
    const json_t *model = json_object_get(c->json, "model"), *decoder = json_object_get(model, "decoder");
    const json_t *in = json_object_get(decoder, "inputs"), *out = json_object_get(decoder, "outputs");
    const json_t *search = json_object_get(c->json, "search");
    int64_t longest = whole_of(search, "max_length", 0);
    c->caches[0] = (struct decoder_cache){name_of(in, "past_key_names", "past_key_values.%d.key"),
                                          name_of(out, "present_key_names", "present.%d.key"), 0};
    c->caches[1] = (struct decoder_cache){name_of(in, "past_value_names", "past_key_values.%d.value"),
                                          name_of(out, "present_value_names", "present.%d.value"), 0};
    c->names = (struct decoder_names){name_of(in, "input_ids", "input_ids"),
                                      name_of(in, "attention_mask", "attention_mask"),
                                      name_of(in, "position_ids", "position_ids"),
                                      name_of(out, "logits", "logits"),
                                      c->caches,
                                      0};
    c->context = whole_of(model, "context_length", 0);
    if (longest > 0 && longest < c->context)
        c->context = longest;
    c->longest = c->context;
    if (c->context < 1 || !json_is_object(decoder)) {
        snprintf(c->why, sizeof c->why, "%.200s: no model.decoder, or no context_length", path);
        return 0;
    }
    return read_ends(c, json_object_get(model, "eos_token_id")) && read_search(c, search) &&
           read_window(c, json_object_get(decoder, "sliding_window"));
}

int config_of_meta(struct config *c, const char *meta, const struct tokens *t)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const char *architecture = meta_find(meta, "general.architecture");
    char key[128];
    *c = (struct config){.seed = -1, .draw = {.top_p = 1, .penalty = 1}};
    c->caches[0] = (struct decoder_cache){"past_key_values.%d.key", "present.%d.key", 0};
    c->caches[1] = (struct decoder_cache){"past_key_values.%d.value", "present.%d.value", 0};
    c->names = (struct decoder_names){"input_ids", "attention_mask", "position_ids", "logits", c->caches, 0};
    snprintf(key, sizeof key, "%.100s.context_length", architecture ? architecture : "");
    c->longest = meta_whole(meta, key, 0);
    if (c->longest < 1) {
        snprintf(c->why, sizeof c->why, "the network has no '%s' in its metadata: it is of no GGUF file", key);
        return 0;
    }
    c->context = c->longest < CONFIG_CONTEXT ? c->longest : CONFIG_CONTEXT;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = meta_whole(meta, keys[i], i == 0 && t->marks ? 2 : -1);
        if (id >= 0)
            c->end[c->ends++] = id;
    }
    for (size_t i = 0; i < t->n_added && c->ends < CONFIG_ENDS; i++)
        if (tokens_ends(t->added[i].text))
            c->end[c->ends++] = t->added[i].id;
    return 1;
}

int config_ends(const struct config *c, int64_t token)
{
    for (size_t i = 0; i < c->ends; i++)
        if (c->end[i] == token)
            return 1;
    return 0;
}

void config_free(struct config *c)
{
    json_decref(c->json);
    draw_free(&c->draw);
}
