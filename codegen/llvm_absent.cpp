// What LLVM's and lld's archives ask for and mcc leaves out: the initialisers of targets that mcc has no code for (lld
// initialises every target there is) and the Polly plugin. Empty functions in their place keep a statically linked
// mcc at a third of the size, and its start free of a large library's relocations.
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/WindowsManifest/WindowsManifestMerger.h>

llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo()
{
    return {};
}

// Manifests, which DLLs of mcc have not, would need libxml2.
namespace llvm::windows_manifest {
bool isAvailable()
{
    return false;
}
class WindowsManifestMerger::WindowsManifestMergerImpl {
};
WindowsManifestMerger::WindowsManifestMerger() = default;
WindowsManifestMerger::~WindowsManifestMerger() = default;
Error WindowsManifestMerger::merge(MemoryBufferRef)
{
    return Error::success();
}
std::unique_ptr<MemoryBuffer> WindowsManifestMerger::getMergedManifest()
{
    return nullptr;
}
} // namespace llvm::windows_manifest

#define NOTHING(name) \
    extern "C" void LLVMInitialize##name(); \
    extern "C" void LLVMInitialize##name() \
    { \
    }
#define ABSENT(target) \
    NOTHING(target##TargetInfo) NOTHING(target##Target) NOTHING(target##TargetMC) NOTHING(target##AsmPrinter) \
    NOTHING(target##AsmParser)

ABSENT(AMDGPU)
NOTHING(ARMAsmParser)
ABSENT(AVR)
ABSENT(BPF)
ABSENT(Hexagon)
ABSENT(Lanai)
ABSENT(LoongArch)
ABSENT(M68k)
ABSENT(MSP430)
ABSENT(Mips)
NOTHING(NVPTXTargetInfo)
NOTHING(NVPTXTarget)
NOTHING(NVPTXTargetMC)
NOTHING(NVPTXAsmPrinter)
ABSENT(PowerPC)
ABSENT(Sparc)
ABSENT(SystemZ)
ABSENT(VE)
NOTHING(XCoreTargetInfo)
NOTHING(XCoreTarget)
NOTHING(XCoreTargetMC)
NOTHING(XCoreAsmPrinter)
ABSENT(Xtensa)
