/* See ctc.h. */
#include "ctc.h"

#include <string.h>

#include "image.h"

alphabet alphabet_new(const char *text)
{
    alphabet a = {NULL, 1};
    for (const char *c = text; *c; c++)
        a.n += *c == '\n';
    a.n += *text && text[strlen(text) - 1] != '\n';
    a.word = need(calloc((size_t)a.n, sizeof *a.word));
    for (int i = 0; i < a.n - 1; i++) {
        size_t n = strcspn(text, "\n"), shown = n && text[n - 1] == '\r' ? n - 1 : n;
        a.word[i] = need(strndup(text, shown));
        text += n + (text[n] == '\n');
    }
    a.word[a.n - 1] = need(strdup(" "));
    return a;
}

void alphabet_free(alphabet *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->word[i]);
    free(a->word);
}

const char *meta_find(const char *meta, const char *key)
{
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        if (strcmp(meta, key) == 0)
            return value;
        meta = value + strlen(value) + 1;
    }
    return NULL;
}

char *ctc_decode(const alphabet *a, const float *probability, int steps, int classes, double *score)
{
    size_t room = 1, n = 0;
    char *text = need(calloc(room, 1));
    double sum = 0;
    int before = 0, kept = 0;
    for (int t = 0; t < steps; t++) {
        const float *p = probability + (size_t)t * (size_t)classes;
        int best = 0;
        for (int k = 1; k < classes; k++)
            best = p[k] > p[best] ? k : best;
        if (best && best != before && best <= a->n) {
            const char *word = a->word[best - 1];
            room += strlen(word);
            text = need(realloc(text, room));
            strcpy(text + n, word);
            n += strlen(word);
            sum += (double)p[best];
            kept++;
        }
        before = best;
    }
    *score = kept ? sum / kept : 0;
    return text;
}
