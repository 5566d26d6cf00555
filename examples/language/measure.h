/* What the language examples measure of themselves. */
#ifndef MEASURE_H
#define MEASURE_H

/* Seconds of a clock that only goes on. */
double seconds_now(void);

/* The most memory that was resident, in kB; 0: the system does not say. */
long memory_peak_kb(void);

#endif
