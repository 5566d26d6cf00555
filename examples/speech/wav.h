/* Sound from WAV files: 16-bit PCM, one channel, 16,000 samples a second. */
#ifndef WAV_H
#define WAV_H

#include <stdint.h>

enum { WAV_RATE = 16000, WAV_SECONDS = 64, WAV_WHY = 160 };

/* Samples from -1 to 1, from malloc; NULL: why says what is wrong. Nothing longer than WAV_SECONDS is read. */
float *wav_read(const char *path, int64_t *samples, char why[WAV_WHY]);

#endif
