// The C++ that no C interface of LLVM covers: lld as a library, and the question whether a target machine has a
// feature. Everything else of codegen/ is C.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <lld/Common/Driver.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Target/TargetMachine.h>

LLD_HAS_DRIVER(elf)

extern "C" bool machine_has(LLVMTargetMachineRef tm, const char *feature);
extern "C" bool lld_link(const char *const *argv, unsigned argc, char **text);
extern "C" void lld_on_no_memory(void (*handler)(void));

bool machine_has(LLVMTargetMachineRef tm, const char *feature)
{
    return reinterpret_cast<llvm::TargetMachine *>(tm)->getMCSubtargetInfo()->checkFeatures(feature);
}

bool lld_link(const char *const *argv, unsigned argc, char **text)
{
    std::string out, err;
    llvm::raw_string_ostream out_stream(out), err_stream(err);
    const lld::DriverDef drivers[] = { { lld::Gnu, &lld::elf::link } };
    lld::Result result = lld::lldMain(llvm::ArrayRef<const char *>(argv, argc), out_stream, err_stream, drivers);
    out_stream.flush();
    err_stream.flush();
    *text = strdup((out + err).c_str());
    return result.retCode == 0;
}

static void (*no_memory)(void);

void lld_on_no_memory(void (*handler)(void))
{
    no_memory = handler;
    std::set_new_handler(handler);
    llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { no_memory(); });
}
