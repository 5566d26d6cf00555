"""Makes a wheel of an installed tree: python3 wheel.py TREE VERSION ARCH FOLDER. Nothing but the standard library; the same bytes
each time (SOURCE_DATE_EPOCH). The command is the static program, so one wheel serves glibc and musl."""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile


def main(tree, version, arch, folder):
    tree, name = pathlib.Path(tree), f"mcc-{version}"
    tags = [f"py3-none-{libc}_{arch}" for libc in ("manylinux2014", "musllinux_1_1")]
    both = f"py3-none-manylinux2014_{arch}.musllinux_1_1_{arch}"
    files = {
        "mcc/__init__.py": (tree / "share/mcc/mcc.py").read_bytes(),
        "mcc/py.typed": b"",
        f"{name}.data/scripts/mcc": (tree / "bin/mcc").read_bytes(),
        f"{name}.dist-info/METADATA": (f"Metadata-Version: 2.1\nName: mcc\nVersion: {version}\nSummary: compiler of ONNX networks to native shared "
                                       "objects that need only libc\nRequires-Python: >=3.8\nRequires-Dist: numpy\n").encode(),
        f"{name}.dist-info/WHEEL": ("Wheel-Version: 1.0\nGenerator: mcc\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {tag}\n" for tag in tags)).encode(),
    }
    record = f"{name}.dist-info/RECORD"
    rows = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}" for path, data in files.items()]
    files[record] = "".join(row + "\n" for row in [*rows, f"{record},,"]).encode()
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]      # zip begins with 1980
    target = pathlib.Path(folder) / f"{name}-{both}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for path, data in files.items():
            info = zipfile.ZipInfo(path, when)
            info.external_attr = (0o100755 if path.endswith("scripts/mcc") else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, data)
    print(target)


main(*sys.argv[1:])
