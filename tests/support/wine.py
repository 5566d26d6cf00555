"""DLLs under Wine: whether it is here, and the program that runs them (tests/targets/artifacts.c, by MinGW)."""
import os
import pathlib
import platform
import shutil
import subprocess

from support.tool import BUILD, ROOT

WINE, GCC = pathlib.Path("/usr/lib/wine/wine64"), "x86_64-w64-mingw32-gcc"
TARGET = "--target=x86_64-windows"


def missing():
    """Why nothing runs here; "": it does."""
    return "" if WINE.exists() and shutil.which(GCC) and platform.machine() == "x86_64" else "no wine64, no gcc-mingw-w64"


def environment():
    """A prefix of its own, and no messages of Wine."""
    os.environ["WINEPREFIX"], os.environ["WINEDEBUG"] = str(BUILD.resolve() / "wine"), "-all"


def program():
    """The command that runs artifacts, made anew where a source is younger."""
    path = BUILD / "tests/targets/artifacts.exe"
    sources = [ROOT / "tests/targets/artifacts.c", ROOT / "runtime/mcc_load_windows.c"]
    if not path.exists() or path.stat().st_mtime < max(f.stat().st_mtime for f in [*sources, *(ROOT / "runtime").glob("*.h")]):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.exe")
        subprocess.run([GCC, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-static", f"-I{ROOT}", f"-I{ROOT}/runtime", "-o", part, *sources], check=True)
        part.rename(path)
    return [str(WINE), str(path.resolve())]
