/* Decimal numbers of many digits, between text and f64: exact shifts by powers of two, and rounding. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* More digits than any f64, or any number halfway between two, has. */
enum { RT_DECIMAL_DIGITS = 800 };

/* 0.DIGITS * 10^point; no zeros at either end. n = 0: zero. more: digits other than 0 were cut off. */
struct rt_decimal {
    int32_t n, point;
    bool more;
    uint8_t digit[RT_DECIMAL_DIGITS];
};

void rt_decimal_trim(struct rt_decimal *);                  /* takes zeros at both ends away */
void rt_decimal_round(struct rt_decimal *, int32_t keep);   /* to so many digits, ties to even */
double rt_decimal_f64(struct rt_decimal *,
                      bool negative);  /* the nearest; beyond all: infinity, 0. Destroys the decimal */
void rt_decimal_of_f64(struct rt_decimal *, double);        /* the absolute value, exactly; finite */
