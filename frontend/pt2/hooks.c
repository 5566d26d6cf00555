/* What .pt2 files can do besides being compiled. */
#include "frontend/pt2/pt2.h"

const struct format_hooks pt2_hooks = {.cutter = &pt2_cutter, .editor = &pt2_editor};
