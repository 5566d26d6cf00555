/* What this machine can do now, measured: the limits that mcc bench --roofline holds kernels against, and what tells
 * whether the machine is quiet.
 */
#pragma once

#include "ir/target/target.h"

/* Sizes of data from which reading is measured: the first levels of cache up to memory. */
enum { CALIBRATE_LEVELS = 6, CALIBRATE_THREADS = 64 };
struct calibration {
    uint32_t threads;
    double flops; /* f32 multiply-adds (2 each) a nanosecond, all threads together */
    double peak[PRODUCTS]; /* the same of each arithmetic, the best burst; 0: this CPU has no instruction for it */
    double round_trip; /* ns of a cache line between the first two threads; 0: one thread */
    uint64_t level_bytes[CALIBRATE_LEVELS]; /* rising; per thread */
    double level_read[CALIBRATE_LEVELS]; /* bytes a nanosecond, all threads together; 0: not measured, all threads hold
                                            192 MB at most */
};

/* Measures with so many threads, thread i on the i-th CPU that the process may use when there are several; about 0.1
 * s. */
void calibrate(struct calibration *, uint32_t threads);
/* Multiply-adds and the round trip alone; about 60 ms. */
void calibrate_flops(struct calibration *, uint32_t threads);

/* Least ns for what takes `compute` ns at the peak and so many bytes: the nearer of the two limits, the bytes being
 * read from the smallest level that holds them. *memory: the bytes are what limits. */
double calibration_limit(const struct calibration *, double compute, uint64_t bytes, int *memory);
