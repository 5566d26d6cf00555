/* Connectionist temporal classification: from a row of probabilities for each step to text. */
#ifndef CTC_H
#define CTC_H

typedef struct {
    char **word;
    int n;
} alphabet;     /* word[k]: UTF-8 of class k + 1; class 0 is the blank */

/* The lines of `text` in order, and a space as the last class. */
alphabet alphabet_new(const char *text);
void alphabet_free(alphabet *a);

/* The value of `key` in a compiled model's metadata (mcc_api.meta), or NULL. */
const char *meta_find(const char *meta, const char *key);

/* probability[steps][classes] -> the text, which the caller frees, and the mean probability of its characters. */
char *ctc_decode(const alphabet *a, const float *probability, int steps, int classes, double *score);

#endif
