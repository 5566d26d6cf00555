"""make check-hosted: what this tree has for others' machines, carried out: the Dockerfile, and each job of .github/workflows
that is for Debian.

usage: hosted.py FOLDER [image] [JOB...]

As root, with buildah, debootstrap and python3-yaml. Both start from a Debian 12 that debootstrap makes once (FOLDER/debian.tar), which reaches packages
as this machine does. The image is built by buildah from a clean clone, then compiles the digits network in a folder that is mounted
as /work. A job's steps run in a chroot, in namespaces of their own; of the actions, a checkout is a clean clone, and an upload's
patterns must find files. A job stops at its first failing step. Ends with one line for each, status 1 where one failed."""
import os
import pathlib
import shutil
import subprocess
import sys

import yaml

from run import DIGITS, ROOT, report, run

BASE = "debian:12"
# How packages are reached from here: mirrors, proxies, certificates (and those of this machine, of which an upgrade of
# ca-certificates makes the file anew).
CLIENT = ("etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt",
          "usr/local/share/ca-certificates", "etc/resolv.conf")
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE")
INSIDE = """
for name in proc sys dev; do mkdir -p "$0/$name"; done
mount --bind "$0" "$0" && cd "$0"    # a mount of its own, as unshare in there wants it
mount --rbind /dev "$0/dev"; mount --rbind /sys "$0/sys"; mount -t proc proc "$0/proc"; exec chroot "$0" "$@"
"""


def copy_client(root):
    """The settings of this machine's package clients, links followed."""
    for name in CLIENT + tuple(os.environ.get(name, "").lstrip("/") for name in CERTIFICATES):
        source, target = pathlib.Path("/", name), root / name
        if name and source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def debian(folder, root):
    """An untouched Debian 12 in root."""
    archive = folder / "debian.tar"
    if not archive.exists():
        shutil.rmtree(folder / "debian", ignore_errors=True)
        run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", folder / "debian")
        run("tar", "-C", folder / "debian", "-cf", folder / "debian.part", ".")
        shutil.rmtree(folder / "debian")
        (folder / "debian.part").rename(archive)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    run("tar", "-C", root, "-xf", archive)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    copy_client(root)


def clone(target):
    run("git", "clone", "-q", ROOT, target)


def check_image(folder):
    """The image is built, holds one file, and that compiles what it finds in /work."""
    tree, root, shared = folder / "tree", folder / "base", folder / "shared"
    buildah = ["buildah", "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs"]
    shutil.rmtree(tree, ignore_errors=True)
    clone(tree)
    debian(folder, root)
    try:
        base = run(*buildah, "from", "scratch").strip()
        run(*buildah, "add", base, root, "/")
        run(*buildah, "commit", "-q", base, f"docker.io/library/{BASE}")
        run(*buildah, "bud", "--isolation", "chroot", "--pull-never", "-t", "mcc", tree)
        made = run(*buildah, "from", "--pull-never", "localhost/mcc").strip()
        mounted = pathlib.Path(run(*buildah, "mount", made).strip())
        files = [path for path in mounted.rglob("*") if path.is_file()]
        assert files == [mounted / "bin/mcc"], files
        shared.mkdir(exist_ok=True)
        shutil.copy(DIGITS, shared)
        run(*buildah, "run", "--isolation", "chroot", "-v", f"{shared}:/work", made, "--", "/bin/mcc", "digits.onnx", "-o", "digits.so")
        assert (shared / "digits.so").read_bytes()[:4] == b"\x7fELF"
    finally:
        subprocess.run([*buildah, "rm", "--all"], stdout=subprocess.DEVNULL)
        subprocess.run([*buildah, "rmi", "--all", "--force"], stdout=subprocess.DEVNULL)
        for path in (tree, root, shared, folder / "store", folder / "run"):
            shutil.rmtree(path, ignore_errors=True)


def carry_out(step, root, log):
    """One step of a job whose files are root/work."""
    if "run" in step:
        script = f"cd /work && export DEBIAN_FRONTEND=noninteractive CI=true HOME=/root && {{ {step['run']}\n}}"
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", INSIDE, root, "/bin/sh", "-ec", script]
        done = subprocess.run(inside, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"`{step['run']}`: status {done.returncode}, see {log.name}"
        return
    action = step["uses"].split("@")[0]
    if action == "actions/checkout":
        clone(root / "work.clone")
        shutil.copytree(root / "work.clone", root / "work", symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(root / "work.clone")
    elif action == "actions/upload-artifact":
        for pattern in step["with"]["path"].split():
            assert list((root / "work").glob(pattern)), f"{pattern}: no such file to upload"
    else:
        raise AssertionError(f"{step['uses']}: an action that this script does not know")


def check_job(name, job, folder):
    container = job["container"]
    assert (container if isinstance(container, str) else container["image"]) == BASE, container
    root = folder / name
    debian(folder, root)
    (root / "work").mkdir()
    with open(folder / f"{name}.log", "w") as log:
        for step in job["steps"]:
            carry_out(step, root, log)
    shutil.rmtree(root)


def jobs():
    return {name: job for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
            for name, job in yaml.safe_load(path.read_text())["jobs"].items() if "container" in job}


def main(folder, *only):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    checks = {"image": lambda: check_image(folder)}
    checks |= {name: lambda name=name, job=job: check_job(name, job, folder) for name, job in jobs().items()}
    for name in only:
        assert name in checks, f"{name}: not one of {', '.join(checks)}"
    return report([(name, checks[name]) for name in only or checks], lambda name: "carried out") != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
