/* The forms of a chat that models are taught: what stands around the words of each side. */
#ifndef FORM_H
#define FORM_H

#include "tokens.h"

struct form {
    const char *name;
    const char *mark;                           /* an added token that only this form has; NULL: must be asked for */
    const char *has[2], *lacks;                 /* of a template in Jinja that means this form */
    int plain;                                  /* no chat: what the post-processor puts before a text comes first */
    const char *begin;                          /* of the text */
    const char *system_open, *system_close;
    int system_inside;                          /* the system's words stand in the first turn */
    const char *user_open, *user_close;
    const char *answer_open, *answer_close;
};

/* By name, or NULL: by the tokens that the vocabulary has. NULL: no such form. */
const struct form *form_find(const char *name, const struct tokens *t);

/* By what stands in a template in Jinja; NULL: the template is of no form that is known here. */
const struct form *form_of_template(const char *jinja);

/* The names, for messages. */
const char *form_names(void);

/* A turn's text, from malloc: `again`: an answer was given before. user_from and user_to say where the user's words
 * are. */
char *form_turn(const struct form *f, int again, const char *system, const char *user, size_t *user_from,
                size_t *user_to);

#endif
