// The C++ that no C interface of LLVM covers: lld as a library, code generation that is set up once for many modules,
// hashes of files' pages, and the question whether a target machine has a feature. Everything else of codegen/ is C.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <lld/Common/Driver.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SHA256.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

LLD_HAS_DRIVER(coff)
LLD_HAS_DRIVER(elf)
LLD_HAS_DRIVER(macho)
LLD_HAS_DRIVER(wasm)

extern "C" bool machine_has(LLVMTargetMachineRef tm, const char *feature);
extern "C" struct generator *generator_new(LLVMTargetMachineRef tm);
extern "C" const char *generator_run(struct generator *, LLVMModuleRef, size_t *size);
extern "C" bool lld_link(const char *const *argv, unsigned argc, char **text, int *failed);
extern "C" void lld_on_no_memory(void (*handler)(void));
extern "C" void sha256(const void *data, size_t size, unsigned char *digest);

void sha256(const void *data, size_t size, unsigned char *digest)
{
    auto made = llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(static_cast<const uint8_t *>(data), size));
    memcpy(digest, made.data(), made.size());
}

bool machine_has(LLVMTargetMachineRef tm, const char *feature)
{
    return reinterpret_cast<llvm::TargetMachine *>(tm)->getMCSubtargetInfo()->checkFeatures(feature);
}

struct generator {
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream{bytes};
    llvm::legacy::PassManager passes;
};

generator *generator_new(LLVMTargetMachineRef tm)
{
    auto *g = new generator;
    auto *machine = reinterpret_cast<llvm::TargetMachine *>(tm);
    if (!machine->addPassesToEmitFile(g->passes, g->stream, nullptr, llvm::CodeGenFileType::ObjectFile))
        return g;
    delete g;
    return nullptr;
}

const char *generator_run(generator *g, LLVMModuleRef module, size_t *size)
{
    g->bytes.clear();
    g->passes.run(*llvm::unwrap(module));
    *size = g->bytes.size();
    return g->bytes.data();
}

// The product goes to standard output; lld does not ask whether all of it was written. failed: the errno of a write
// that failed, or 0.
bool lld_link(const char *const *argv, unsigned argc, char **text, int *failed)
{
    std::string out, err;
    llvm::raw_string_ostream out_stream(out), err_stream(err);
    const lld::DriverDef drivers[] = { { lld::Gnu, &lld::elf::link },
                                       { lld::WinLink, &lld::coff::link },
                                       { lld::Darwin, &lld::macho::link },
                                       { lld::Wasm, &lld::wasm::link } };
    lld::Result result = lld::lldMain(llvm::ArrayRef<const char *>(argv, argc), out_stream, err_stream, drivers);
    out_stream.flush();
    err_stream.flush();
    *text = strdup((out + err).c_str());
    llvm::outs().flush();
    *failed = llvm::outs().error().value();
    llvm::outs().clear_error(); // else its destructor ends the process
    return result.retCode == 0;
}

static void (*no_memory)(void);

void lld_on_no_memory(void (*handler)(void))
{
    no_memory = handler;
    std::set_new_handler(handler);
    llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { no_memory(); });
}
