/* The chat form of OpenAI's HTTP interface: requests to answers, answers to JSON. */
#ifndef API_H
#define API_H

#include "engine.h"
#include "form.h"

enum { API_LORAS = 64 };

/* An adapter by the name that requests give it. */
struct api_lora {
    const char *name;
    struct adapter adapter;
};

struct api {
    const char *name;             /* of the model */
    struct api_lora lora[API_LORAS];
    size_t loras;
    const struct config *config;
    struct tokens *tokens;
    const struct form *form;
    int64_t words;                /* of the network, of which the tokenizer may have more */
};

struct api_request {
    json_t *json;                 /* stops live in it */
    const char *model;            /* the model's name or the adapter's */
    int stream, usage;
    char id[32];
    int64_t created;
};

/* Fills the answer with the prompt's tokens and how to draw. 0, or the HTTP status of what is wrong, and why says it.
 * The caller has the tokenizer for itself. */
int api_read(const struct api *api, const char *body, size_t bytes, struct api_request *r, struct answer *a,
             char why[ANSWER_WHY]);

/* Texts of JSON from malloc; NULL: no memory. */
char *api_error(int status, const char *why);
char *api_models(const struct api *api);
char *api_answer(const struct api_request *r, const struct answer *a, enum reason reason);

/* An event of a stream, "data: ...\n\n". What the answer says from there on, with `first` who says it; at the end the
 * reason, the usage if asked for, and [DONE]. */
char *api_event(const struct api_request *r, const struct answer *a, const char *text, size_t bytes, int first,
                enum reason reason);

void api_free(struct api_request *r, struct answer *a);

#endif
