/* Line tables for -g. Each statement has its line in OUTPUT.mcir, the text of all functions. The start of a function
 * and of its parallel loop have the line of the Python source, if it is known, so that a debugger can break there.
 * There is nothing but lines: the symbol table names functions after their nodes (names.h). */

#include "codegen/llvm/llvm.h"

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

static void set_line(struct emitter *e, uint32_t line, LLVMMetadataRef scope)
{
    LLVMSetCurrentDebugLocation2(e->b, LLVMDIBuilderCreateDebugLocation(e->ctx, line, 0, scope, NULL));
}

void debug_function(struct emitter *e, const char *symbol)
{
    struct debug *d = &e->debug;
    const char *colon = e->origin ? strrchr(e->origin, ':') : NULL;
    size_t n = strlen(symbol);
    LLVMMetadataRef file = d->file;
    if (!d->builder)
        return;
    if (colon)
        file = LLVMDIBuilderCreateFile(d->builder, e->origin, (size_t)(colon - e->origin), "", 0);
    d->line = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : e->line;
    d->function = LLVMDIBuilderCreateFunction(d->builder, file, symbol, n, symbol, n, file, d->line, d->type, false,
                                              true, d->line, LLVMDIFlagZero, true);
    d->scope = colon ? LLVMDIBuilderCreateLexicalBlockFile(d->builder, d->function, d->file, 0) : d->function;
    LLVMSetSubprogram(e->fn, d->function);
    set_line(e, d->line, d->function);
}

void debug_line(struct emitter *e, const struct lstmt *s)
{
    struct debug *d = &e->debug;
    bool origin = s->op == L_PARALLEL && d->scope != d->function;
    if (d->builder && s->line)
        set_line(e, origin ? d->line : e->line + s->line - 1, origin ? d->function : d->scope);
}

void debug_end(struct emitter *e)
{
    if (!e->debug.builder)
        return;
    LLVMDIBuilderFinalize(e->debug.builder);
    LLVMDisposeDIBuilder(e->debug.builder);
    e->debug.builder = NULL;
}
