/* The forms F(m x m, 3 x 3). A row of B' is the polynomial (over the finite points but its own) that picks its point
 * out, with leading coefficient 1; a row of G evaluates the weights there and divides by that polynomial's value; a
 * column of A' holds the point's powers. tests/fuzz/test_winograd.c derives the matrices from the points and compares.
 *
 * F(4 x 4) has 1/2 and -2 in place of the usual 2 and -2: the largest error is half as large, for two more steps. */
#include "passes/module/winograd.h"

#include <math.h>

static const struct winograd_step in2[] = {
    /* 4: 0, 5: 1, 6: -1, 7: infinity */
    {0, 2, -1},
    {1, 2, 1},
    {2, 1, -1},
    {3, 1, -1},
};
static const struct winograd_step out2[] = {
    {1, 2, 1},
    {0, 4, 1},
    {1, 2, -1},
    {6, 3, 1},
};
static const struct winograd_step in4[] = {
    {4, 2, -1},  {3, 1, -1}, /* 6, 7: even and odd part of 1/2 and -2 */
    {0, 2, -1},  {6, 7, 1.5},  {8, 9, 1}, /* 10: point 0 */
    {6, 3, 1.5}, {7, 2, 1.5},  {11, 12, 1}, {11, 12, -1}, /* 13: 1, 14: -1 */
    {6, 7, 2},   {6, 7, -0.5}, /* 15: 1/2, 16: -2 */
    {5, 3, -1},  {17, 6, 1.5}, {18, 7, -1}, /* 19: infinity */
};
static const struct winograd_step out4[] = {
    {1, 2, 1},     {1, 2, -1}, /* 6, 7: sum and difference of 1 and -1 */
    {3, 4, 1},     {0, 6, 1},   {9, 8, 1}, /* 10 */
    {7, 3, 0.5},   {11, 4, -2}, /* 12 */
    {6, 3, 0.25},  {13, 4, 4}, /* 14 */
    {7, 3, 0.125}, {15, 4, -8}, {16, 5, 1}, /* 17 */
};
static const struct winograd_step in6[] = {
    {6, 0, -1},     {2, 4, -1},     {8, 9, 5.25}, /* 10: point 0 */
    {6, 2, 1},      {11, 4, -4.25}, {5, 1, 1},
    {13, 3, -4.25}, {12, 14, 1},    {12, 14, -1}, /* 15: 1, 16: -1 */
    {6, 4, -1.25},  {17, 2, 0.25},  {5, 3, -1.25},
    {19, 1, 0.25},  {18, 20, 2},    {18, 20, -2}, /* 21: 2, 22: -2 */
    {7, 1, -1},     {3, 5, -1},     {23, 24, 5.25}, /* 25: infinity */
    {6, 4, -5},     {26, 2, 4},     {5, 3, -5},
    {28, 1, 4},     {27, 29, 0.5},  {27, 29, -0.5}, /* 30: 1/2, 31: -1/2 */
};
static const struct winograd_step out6[] = {
    {1, 2, 1},   {1, 2, -1},        {3, 4, 1},   {3, 4, -1}, {6, 7, 1}, {6, 7, -1}, /* 8 .. 13: sums and differences */
    {0, 8, 1},   {14, 10, 1},       {15, 12, 1}, /* 16 */
    {9, 11, 2},  {17, 13, 0.5}, /* 18 */
    {8, 10, 4},  {19, 12, 0.25}, /* 20 */
    {9, 11, 8},  {21, 13, 0.125}, /* 22 */
    {8, 10, 16}, {23, 12, 0.0625}, /* 24 */
    {9, 11, 32}, {25, 13, 0.03125}, {26, 5, 1}, /* 27 */
};

static const struct winograd_form forms[] = {
    {2,
     4,
     {0, 1, -1, INFINITY},
     {4, 4, in2, {4, 5, 6, 7}},
     {4, 2, out2, {5, 7}},
     {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}}},
    {4,
     6,
     {0, 1, -1, 0.5, -2, INFINITY},
     {6, 6, in4, {10, 13, 14, 15, 16, 19}},
     {6, 4, out4, {10, 12, 14, 17}},
     {{1, 0, 0},
      {1.0 / 3, 1.0 / 3, 1.0 / 3},
      {-1.0 / 3, 1.0 / 3, -1.0 / 3},
      {-16.0 / 15, -8.0 / 15, -4.0 / 15},
      {1.0 / 15, -2.0 / 15, 4.0 / 15},
      {0, 0, 1}}},
    {6,
     8,
     {0, 1, -1, 2, -2, INFINITY, 0.5, -0.5},
     {8, 8, in6, {10, 15, 16, 21, 22, 25, 30, 31}},
     {8, 6, out6, {16, 18, 20, 22, 24, 27}},
     {{-1, 0, 0},
      {-2.0 / 9, -2.0 / 9, -2.0 / 9},
      {-2.0 / 9, 2.0 / 9, -2.0 / 9},
      {1.0 / 90, 1.0 / 45, 2.0 / 45},
      {1.0 / 90, -1.0 / 45, 2.0 / 45},
      {0, 0, 1},
      {32.0 / 45, 16.0 / 45, 8.0 / 45},
      {32.0 / 45, -16.0 / 45, 8.0 / 45}}},
};

const struct winograd_form *winograd_form(uint32_t m)
{
    for (uint32_t i = 0; i < COUNT_OF(forms); i++)
        if (forms[i].m == m)
            return &forms[i];
    return NULL;
}
