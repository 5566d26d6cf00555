/* The words of a module's text, for print.c and the tests that read it (tests/text). */
#pragma once

#include "passes/module/module.h"

extern const char *const kernel_words[KERNEL_HALO + 1], *const place_words[PLACE_SEGMENT + 1],
                                                            *const layout_words[LAYOUT_NC16C + 1],
                                                                *const precision_words[PRECISION_F16_SUMS + 1],
                                                                    *const choice_words[CHOOSE_LAST + 1];
/* Facts that the text holds; what comes later has texts of its own. */
enum { TEXT_FACTS = HAS_SCHEDULES - 1 };
