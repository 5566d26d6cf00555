"""Memory of a process and its children, from /proc."""
import pathlib


def field(pid, name):
    """Bytes of a field of /proc/PID/status (VmRSS, RssAnon); 0 when the process has ended."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def words(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def family(pid):
    """pid and all below it, except for children that are about to become a program of their own: until then they have their
    parent's words and its memory, which is there once."""
    found, own = [pid], words(pid)
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if words(child) not in (own, b""):
                    found += family(child)
    except OSError:
        pass
    return found


def of_family(pid, name):
    return sum(field(p, name) for p in family(pid))
