/* RIFF chunks, read in their order without trusting a size: each is compared with what the file has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wav.h"

enum { PCM = 1, EXTENSIBLE = 0xfffe, STREAMED = -1, SAMPLES_MAX = WAV_RATE * WAV_SECONDS };

struct chunk {
    char name[4];
    uint32_t bytes;
};

static uint32_t little(const unsigned char *p, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static int chunk_read(FILE *f, struct chunk *c)
{
    unsigned char head[8];
    if (fread(head, 1, 8, f) != 8)
        return 0;
    memcpy(c->name, head, 4);
    c->bytes = little(head + 4, 4);
    return 1;
}

/* Chunks have an even number of bytes; a stream may not be able to seek. */
static int skip(FILE *f, uint64_t bytes)
{
    char room[4096];
    while (bytes > 0) {
        size_t n = bytes < sizeof room ? (size_t)bytes : sizeof room;
        if (fread(room, 1, n, f) != n)
            return 0;
        bytes -= n;
    }
    return 1;
}

static int format_read(FILE *f, const struct chunk *c, char why[WAV_WHY])
{
    unsigned char b[40] = {0};
    size_t n = c->bytes < sizeof b ? c->bytes : sizeof b;
    if (n < 16 || fread(b, 1, n, f) != n || !skip(f, (uint64_t)c->bytes - n + (c->bytes & 1))) {
        snprintf(why, WAV_WHY, "its format is cut off");
        return 0;
    }
    uint32_t kind = little(b, 2), channels = little(b + 2, 2), rate = little(b + 4, 4), bits = little(b + 14, 2);
    if (kind == EXTENSIBLE && n == sizeof b)
        kind = little(b + 24, 2);
    if (kind == PCM && channels == 1 && rate == WAV_RATE && bits == 16)
        return 1;
    snprintf(
        why, WAV_WHY,
        "%s%u bits, %u channels, %u samples a second; asked for are 16 bits of PCM, 1 channel, %d samples a second",
        kind == PCM ? "" : "not PCM, ", bits, channels, rate, WAV_RATE);
    return 0;
}

/* A size of all ones, or of 0, is that of a stream whose writer did not know it: what is there counts. */
static float *data_read(FILE *f, const struct chunk *c, int64_t *samples, char why[WAV_WHY])
{
    int64_t wanted = c->bytes / 2, most;
    if (c->bytes == 0 || c->bytes == UINT32_MAX)
        wanted = STREAMED;
    most = wanted == STREAMED || wanted > SAMPLES_MAX ? SAMPLES_MAX + 1 : wanted;
    unsigned char pair[2];
    float *sound = malloc((size_t)(most > 0 ? most : 1) * sizeof *sound);
    int64_t n = 0;
    for (; sound && n < most && fread(pair, 1, 2, f) == 2; n++)
        sound[n] = (float)(int16_t)little(pair, 2) / 32768;
    const char *wrong = !sound                           ? "no memory"
                        : n > SAMPLES_MAX                ? "more than 64 seconds"
                        : wanted != STREAMED && n < most ? "its sound is cut off"
                        : n < WAV_RATE / 10              ? "less than a tenth of a second"
                                                         : NULL;
    if (wrong) {
        snprintf(why, WAV_WHY, "%s", wrong);
        free(sound);
        return NULL;
    }
    *samples = n;
    return sound;
}

static float *sound_read(FILE *f, int64_t *samples, char why[WAV_WHY])
{
    struct chunk c;
    char form[4];
    int known = 0;
    if (!chunk_read(f, &c) || memcmp(c.name, "RIFF", 4) != 0 || fread(form, 1, 4, f) != 4 ||
        memcmp(form, "WAVE", 4) != 0) {
        snprintf(why, WAV_WHY, "no WAV file");
        return NULL;
    }
    while (chunk_read(f, &c)) {
        if (memcmp(c.name, "data", 4) == 0 && known)
            return data_read(f, &c, samples, why);
        if (memcmp(c.name, "fmt ", 4) == 0) {
            if (!format_read(f, &c, why))
                return NULL;
            known = 1;
        } else if (!skip(f, (uint64_t)c.bytes + (c.bytes & 1))) {
            break;
        }
    }
    snprintf(why, WAV_WHY, "it has no sound behind its format");
    return NULL;
}

float *wav_read(const char *path, int64_t *samples, char why[WAV_WHY])
{
    FILE *f = fopen(path, "rb");
    float *sound = NULL;
    if (f) {
        sound = sound_read(f, samples, why);
        fclose(f);
    } else {
        snprintf(why, WAV_WHY, "it cannot be opened");
    }
    return sound;
}
