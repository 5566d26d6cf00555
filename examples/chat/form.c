/* The table of forms. `none` is for models that were taught no chat: the text just goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

static const struct form form[] = {
    {.name = "none",
     .plain = 1,
     .begin = "",
     .system_open = "",
     .system_close = "",
     .user_open = "",
     .user_close = "",
     .answer_open = "",
     .answer_close = ""},
    {.name = "phi4",
     .mark = "<|im_sep|>",
     .has = {"<|im_start|>", "<|im_sep|>"},
     .begin = "",
     .system_open = "<|im_start|>system<|im_sep|>",
     .system_close = "<|im_end|>",
     .user_open = "<|im_start|>user<|im_sep|>",
     .user_close = "<|im_end|>",
     .answer_open = "<|im_start|>assistant<|im_sep|>",
     .answer_close = "<|im_end|>"},
    {.name = "chatml",
     .mark = "<|im_start|>",
     .has = {"<|im_start|>", "<|im_end|>"},
     .lacks = "<|im_sep|>",
     .begin = "",
     .system_open = "<|im_start|>system\n",
     .system_close = "<|im_end|>\n",
     .user_open = "<|im_start|>user\n",
     .user_close = "<|im_end|>\n",
     .answer_open = "<|im_start|>assistant\n",
     .answer_close = "<|im_end|>\n"},
    {.name = "llama3",
     .mark = "<|start_header_id|>",
     .has = {"<|start_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
     .system_close = "<|eot_id|>",
     .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
     .user_close = "<|eot_id|>",
     .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .answer_close = "<|eot_id|>"},
    {.name = "llama2",
     .has = {"[INST]", "<<SYS>>"},
     .lacks = "[SYSTEM_PROMPT]",
     .begin = "",
     .system_open = "<<SYS>>\n",
     .system_close = "\n<</SYS>>\n\n",
     .system_inside = 1,
     .user_open = "<s>[INST] ",
     .user_close = " [/INST]",
     .answer_open = "",
     .answer_close = " </s>"},
    {.name = "gemma",
     .mark = "<start_of_turn>",
     .has = {"<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .system_open = "",
     .system_close = "\n\n",
     .system_inside = 1,
     .user_open = "<start_of_turn>user\n",
     .user_close = "<end_of_turn>\n",
     .answer_open = "<start_of_turn>model\n",
     .answer_close = "<end_of_turn>\n"},
    {.name = "phi3",
     .has = {"<|user|>", "<|end|>"},
     .lacks = "<|im_start|>",
     .begin = "",
     .system_open = "<|system|>\n",
     .system_close = "<|end|>\n",
     .user_open = "<|user|>\n",
     .user_close = "<|end|>\n",
     .answer_open = "<|assistant|>\n",
     .answer_close = "<|end|>\n"},
};
enum { FORMS = sizeof form / sizeof *form };

const struct form *form_find(const char *name, const struct tokens *t)
{
    for (int i = 0; i < FORMS; i++)
        if (name ? strcmp(form[i].name, name) == 0 : form[i].mark && tokens_added(t, form[i].mark) >= 0)
            return &form[i];
    return name ? NULL : &form[0];
}

const struct form *form_of_template(const char *jinja)
{
    for (int i = 0; i < FORMS; i++)
        if (form[i].has[0] && strstr(jinja, form[i].has[0]) && strstr(jinja, form[i].has[1]) &&
            !(form[i].lacks && strstr(jinja, form[i].lacks)))
            return &form[i];
    return NULL;
}

const char *form_names(void)
{
    return "none, chatml, llama3, llama2, gemma, phi3, phi4";
}

char *form_turn(const struct form *f, int again, const char *system, const char *user, size_t *user_from,
                size_t *user_to)
{
    int told = !again && system && system[0] && !f->plain;
    const char *head[] = {again ? f->answer_close : f->begin, f->system_inside ? f->user_open : "",
                          told ? f->system_open : "",         told ? system : "",
                          told ? f->system_close : "",        f->system_inside ? "" : f->user_open};
    const char *tail[] = {f->user_close, f->answer_open};
    size_t bytes = strlen(user) + 1, n = 0;
    char *text;
    for (size_t i = 0; i < 6; i++)
        bytes += strlen(head[i]);
    for (size_t i = 0; i < 2; i++)
        bytes += strlen(tail[i]);
    if (!(text = malloc(bytes)))
        return NULL;
    for (size_t i = 0; i < 6; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s", head[i]);
    *user_from = n;
    *user_to = n += (size_t)snprintf(text + n, bytes - n, "%s", user);
    for (size_t i = 0; i < 2; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s", tail[i]);
    return text;
}
