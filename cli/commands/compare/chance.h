/* What equality on drawn values says little of: choices among elements, which few of them decide (prove.c). */
#pragma once

#include "cli/commands/compare/capture.h"

/* Why draws of floats show that only where these are often equal, 0 or infinite; NULL: others do. */
const char *chance_tells(const struct graph *, const struct node *);
/* Does it choose from windows of one element? */
bool chance_is_single(const struct node *);
/* The result that shows it. */
value_id chance_told(const struct node *);
/* Of an argreduce, argwindow or the positions of a sort of x, how often an element that was found is equal to another
 * one of its line or window. */
int64_t chance_ties(const struct graph *, const struct node *, const struct tensor *x, const struct tensor *found);
/* Adds how many elements are +inf, and how many -inf. */
void chance_infinite(const struct tensor *, double found[2]);
/* Has a value no elements at any size, by its type or by that of what it is reshaped from? */
bool chance_empty(const struct graph *, value_id);
/* How often, in the run in progress, an element that a maximum, minimum, `and` or `or` leaves out is one that decides;
 * INFINITY: the node is none of these, reads no element at any size, or all that it decides is the range of
 * exponentials. */
double chance_shows(const struct capture *, const struct node *);
/* So often or more: one that is left out stays unseen with a probability of e^-8. */
enum { CHANCE_ENOUGH = 8 };
/* May the node's result be the same though an operand is another one, as a maximum hides the smaller one? */
bool chance_hides(const struct graph *, const struct node *);
/* In the run in progress, how many elements the node chooses between two of, each by what was drawn: of comparisons,
 * `and`, selects, maxima of two. INFINITY: it does not choose, or computes no element at any size. least: it computes
 * so many, whatever the sizes say. */
double chance_choices(const struct capture *, const struct node *, int64_t least);
/* So many in all draws: code that is wrong for one side, or for one of four cases, passes with (3/4)^64. And the most
 * draws for that. */
enum { CHANCE_ELEMENTS = 64, CHANCE_DRAWS = 64 };
/* The most draws, where that many will do: for maxima of many elements, and for equal ones. */
enum { CHANCE_MOST = 256 };
