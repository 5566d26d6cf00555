"""What a command costs: its status, its words, processor time and peak memory, those of its children included.

A child's ru_maxrss begins with the resident memory of the process that forks it, so a small interpreter of its own (this file as a
program) forks the command: its 10 MiB are the least that is ever reported.
"""
import collections
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

Usage = collections.namedtuple("Usage", "status said seconds bytes")   # a signal is minus its number; said: both outputs, bytes
OVERDUE = "overdue"   # the status of a command that was stopped after `wall` seconds


def usage(args, wall, cpu=resource.RLIM_INFINITY, space=resource.RLIM_INFINITY):
    """Runs the command with at most `wall` seconds, `cpu` seconds of each of its processes and `space` bytes of addresses."""
    own = [sys.executable, "-S", "-E", __file__, json.dumps([wall, cpu, space]), *map(str, args)]
    done = subprocess.run(own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
    figures, said = done.split(b"\n", 1)
    status, seconds, peak = json.loads(figures)
    return Usage(status, said, seconds, peak)


def main(limits, args):
    wall, cpu, space = limits

    def limited():
        os.setpgid(0, 0)
        for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, space)):
            resource.setrlimit(what, (most, most))

    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=limited)
        end, overdue, pid = time.monotonic() + wall, False, 0
        while not pid:
            pid, status, spent = os.wait4(child.pid, os.WNOHANG)
            if not pid and not overdue and time.monotonic() > end:
                os.killpg(child.pid, signal.SIGKILL)
                overdue = True
            if not pid:
                time.sleep(0.001)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        figures = [OVERDUE if overdue else child.returncode, spent.ru_utime + spent.ru_stime, spent.ru_maxrss << 10]
        sys.stdout.buffer.write(json.dumps(figures).encode() + b"\n" + out.read())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
