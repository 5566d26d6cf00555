/* The verifier of modules. */
#include "passes/module/text.h"
bool module_verify(struct module *m) { return graph_verify(m->g); }
