"""Is the machine quiet? Times of a busy one mean nothing, so every turn is between two looks at this gate.

One thread has to reach 96 % of the multiply-add peak of this run; two threads 1.84 times that peak, with less than 250 ns for
a cache line to go from one core to the other and back, because a virtual machine's two CPUs may be one core or two that
lie far apart. All is measured by mcc bench --calibrate.
"""
import os
import subprocess
import time

ONE, SEVERAL, ROUND_TRIP = 0.96, 0.92, 250.0


class Gate:
    def __init__(self, mcc, threads, looks=20):
        self.mcc, self.threads = mcc, threads
        self.peak = max(self.look(1)["flops-best"] for _ in range(looks))
        self.last = {}

    def look(self, threads):
        """{name: number} of one calibration, about 20 ms."""
        done = subprocess.run([self.mcc, "bench", "--calibrate", "--threads", str(threads)], capture_output=True, text=True, check=True)
        return {name: float(rest.split()[0]) for name, rest in (line.split(None, 1) for line in done.stdout.splitlines())}

    def open(self):
        self.last = self.look(self.threads)
        if self.threads == 1:
            return self.last["flops"] >= ONE * self.peak
        return self.last["flops"] >= SEVERAL * self.threads * self.peak and self.last["round-trip"] < ROUND_TRIP

    def describe(self):
        text = f"{self.last.get('flops', 0):.1f} of {self.threads * self.peak:.1f} GFLOP/s"
        return text + (f", round trip {self.last['round-trip']:.0f} ns" if "round-trip" in self.last else "")

    def turn(self, peer, seconds, runs, tries, gated=True):
        """Times of a quiet turn of the peer; None when there was none."""
        for _ in range(tries):
            if not gated or self.open():
                times = peer.turn(seconds, runs)
                peer.settle()
                if not gated or self.open():
                    return times
            time.sleep(0.2)
        return None


def load():
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
