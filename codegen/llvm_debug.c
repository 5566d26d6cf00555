/* Line tables for -g: the line of each statement in the text of all functions that is written beside the output.
 * Nothing but lines: names of functions come from the symbol table, which says their nodes (names.h), and values have
 * no names worth showing. */
#include <string.h>

#include "codegen/llvm.h"

static void add_flag(struct emitter *e, const char *name, unsigned value)
{
    LLVMMetadataRef v = LLVMValueAsMetadata(LLVMConstInt(e->i32, value, false));
    LLVMAddModuleFlag(e->module, LLVMModuleFlagBehaviorWarning, name, strlen(name), v);
}

void debug_begin(struct emitter *e, const struct debug_text *text)
{
    if (!*text->file)
        return;
    struct debug *d = &e->debug;
    add_flag(e, "Dwarf Version", 4);
    add_flag(e, "Debug Info Version", LLVMDebugMetadataVersion());
    d->builder = LLVMCreateDIBuilder(e->module);
    d->file = LLVMDIBuilderCreateFile(d->builder, text->file, strlen(text->file), text->folder, strlen(text->folder));
    LLVMDIBuilderCreateCompileUnit(d->builder, LLVMDWARFSourceLanguageC11, d->file, "mcc", 3, true, "", 0, 0, "", 0,
                                   LLVMDWARFEmissionLineTablesOnly, 0, false, false, "", 0, "", 0);
    d->type = LLVMDIBuilderCreateSubroutineType(d->builder, d->file, NULL, 0, LLVMDIFlagZero);
}

static void set_line(struct emitter *e, uint32_t line)
{
    LLVMSetCurrentDebugLocation2(e->b, LLVMDIBuilderCreateDebugLocation(e->ctx, line, 0, e->debug.scope, NULL));
}

void debug_function(struct emitter *e, const char *symbol)
{
    struct debug *d = &e->debug;
    size_t n = strlen(symbol);
    if (!d->builder)
        return;
    d->scope = LLVMDIBuilderCreateFunction(d->builder, d->file, symbol, n, symbol, n, d->file, e->line, d->type, false,
                                           true, e->line, LLVMDIFlagZero, true);
    LLVMSetSubprogram(e->fn, d->scope);
    set_line(e, e->line);
}

void debug_line(struct emitter *e, const struct lstmt *s)
{
    if (e->debug.builder && s->line)
        set_line(e, e->line + s->line - 1);
}

void debug_end(struct emitter *e)
{
    if (!e->debug.builder)
        return;
    LLVMDIBuilderFinalize(e->debug.builder);
    LLVMDisposeDIBuilder(e->debug.builder);
    e->debug.builder = NULL;
}
