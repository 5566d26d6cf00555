/* In front of each source of the compiler that rewrite.py has given mutants: which one is on, which were reached. */
#ifndef MCC_TESTS_MUTANT_H
#define MCC_TESTS_MUTANT_H

extern int mutant_site, mutant_way;
extern unsigned char *mutant_reached; /* by site */

/* 0: the compiler as it is; else the way in which this site is changed. */
static inline int mutant(int site)
{
    mutant_reached[site] = 1;
    return site == mutant_site ? mutant_way : 0;
}

#endif
