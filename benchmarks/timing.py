"""Shared by the benchmarks: one core, contenders in turn, medians with exact intervals.

CPU seconds are measured, so that other programs on the machine disturb less, and contenders take turns in an order that
alternates, so that what still disturbs (clock speed, caches) meets all of them. What is timed is left to the scripts.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binom
from threadpoolctl import threadpool_limits


@contextmanager
def one_core() -> Iterator[None]:
    """One core (where the system can pin) and one thread inside the block."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if before:
        os.sched_setaffinity(0, {max(before)})
    try:
        with threadpool_limits(1):
            yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def alternate(contenders: dict[str, Callable[[], float]], rounds: int) -> pd.DataFrame:
    """Seconds of every contender in every round, after a round that does not count.

    Each contender runs once and returns its own seconds; every second round goes through them backwards.
    """
    names = list(contenders)
    measured = []
    for turn in range(rounds + 1):
        order = names if turn % 2 else names[::-1]
        measured.append({name: contenders[name]() for name in order})
    return pd.DataFrame(measured[1:], columns=names)


def median_interval(values, confidence: float = 0.95) -> tuple[float, float, float]:
    """Median, and an interval between two order statistics that assumes no distribution; the range if too few."""
    values = np.sort(np.asarray(values, dtype=float))
    below = int(binom.ppf((1 - confidence) / 2, len(values), 0.5))  # P(at most below - 1 values under it) < 2.5 %
    first = max(below - 1, 0)
    return float(np.median(values)), float(values[first]), float(values[len(values) - 1 - first])


def show(seconds: pd.DataFrame, reference: str) -> None:
    """Print medians in milliseconds and, round by round, how many times the reference's time each contender takes."""
    rows = []
    for name in seconds:
        median, low, high = median_interval(1e3 * seconds[name])
        ratio = median_interval(seconds[name] / seconds[reference])
        rows.append([name, f"{median:.3g} [{low:.3g}, {high:.3g}]", "{:.2f} [{:.2f}, {:.2f}]".format(*ratio)])
    print(pd.DataFrame(rows, columns=["contender", "CPU ms", f"times {reference}"]).to_string(index=False))
    print(f"{len(seconds)} rounds; median and 95 % interval\n")


def asked_rounds(description: str, default: int = 25) -> int:
    """How many rounds the command line asks for."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=default)
    return parser.parse_args().rounds


def describe_machine() -> None:
    """Print what the numbers were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{model}, {os.cpu_count()} cores{load}; {platform.system()}, Python {platform.python_version()}\n")
