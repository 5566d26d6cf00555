"""What is wrong with an artifact as an ELF file, by readelf: nothing that runs when it is loaded, nothing both writable and executable,
relocated at once and read-only from then on, one symbol out, and in what every libc has."""
import re
import subprocess

# Where each libc has what an artifact takes, without a version: in libc.so.6 of glibc 2.17 (of 2.27 on RISC-V) and in musl.
OF_LIBC = set("memcpy memmove memset memcmp aligned_alloc free getauxval clock_gettime".split())
# These are in libraries of their own before glibc 2.34: weak, so that the artifact loads without them.
PERHAPS = set("pthread_create pthread_join dlopen dlsym".split())
RUN_AT_LOAD = r"\((?:PREINIT|INIT|FINI)(?:_ARRAY)?\)"


def flaws(path, prefix="", library="libc.so.6"):
    text = subprocess.run(["readelf", "-lW", "-dW", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    segments = re.findall(r"^  (\w+) +(?:0x\w+ ){5}(...) ", text, re.M)
    symbols = [row.split()[4:] for row in text.splitlines() if re.match(r" +\d+: \w+ +\d+ ", row)]
    out = {row[3] for row in symbols if row[0] != "LOCAL" and row[2] != "UND"}
    taken = {(row[3], row[0]) for row in symbols if row[0] != "LOCAL" and row[2] == "UND"}
    rules = {
        "no program headers were found": ("LOAD", "R E") in segments,
        "a segment is writable and executable": not any("W" in flags and "E" in flags for _, flags in segments),
        "its stack is executable, or not said": ("GNU_STACK", "RW ") in segments,
        "its relocated data stays writable": any(kind == "GNU_RELRO" for kind, _ in segments) and "BIND_NOW" in text,
        "text is relocated": "TEXTREL" not in text,
        "it has thread-local storage": not any(kind == "TLS" for kind, _ in segments),
        "something runs when it is loaded": not re.search(RUN_AT_LOAD, text),
        f"it exports {sorted(out)}": out == {f"{prefix}mcc_query"},
        "it needs other libraries than libc": set(re.findall(r"NEEDED.*\[(.*)\]", text)) <= {library, "libm.so.6"},
        "it names versions of symbols": not re.search("VERNEED|VERSYM", text),
        f"it takes {sorted(taken)}": all(name in OF_LIBC or (name in PERHAPS and bind == "WEAK") for name, bind in taken),
    }
    return [flaw for flaw, holds in rules.items() if not holds]
