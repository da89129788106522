"""The timing protocol, the same for every contestant (docs/results/README.md).

ms            10 back-to-back calls after 0.2 s idle, per call; the median over the rounds
ms_sustained  10 back-to-back calls right after 0.3 s of the contestant's own load; likewise

Where a call takes more than LONG_MS, 3 calls and 3 rounds do. Rounds are interleaved: every
contestant has its turn in each round, so that a warm chip meets all of them alike.
"""

import contextlib
import datetime
import math
import secrets
import statistics
import subprocess
import time

import torch

CALLS = 10
LONG_MS = 30
LONG_CALLS = 3
LONG_ROUNDS = 3
IDLE_SECONDS = 0.2
LOAD_SECONDS = 0.3


class Contestant:
    """A name, a call that enqueues one whole computation, a scope to hold around calls."""

    def __init__(self, name, call, scope=contextlib.nullcontext):
        self.name, self.call, self.scope = name, call, scope


def timed_calls(call, calls=CALLS):
    """Milliseconds per call, from device events."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def calls_of(ms):
    return LONG_CALLS if ms > LONG_MS else CALLS


def burst(contestant, expected_ms):
    torch.cuda.synchronize()
    time.sleep(IDLE_SECONDS)
    with contestant.scope():
        return timed_calls(contestant.call, calls_of(expected_ms))


def sustained(contestant, expected_ms):
    torch.cuda.synchronize()
    with contestant.scope():
        for _ in range(math.ceil(LOAD_SECONDS * 1e3 / expected_ms)):
            contestant.call()
        return timed_calls(contestant.call, calls_of(expected_ms))


def warm_up(contestant):
    """Milliseconds of a call. Module load, autotuning and caches stay out of the numbers."""
    with contestant.scope():
        contestant.call()
        return timed_calls(contestant.call, 2)


def measure(contestants, rounds):
    """{name: (ms, ms_sustained)}, medians over |rounds| interleaved rounds; names are unique."""
    about = {c.name: warm_up(c) for c in contestants}
    if max(about.values()) > LONG_MS:
        rounds = min(rounds, LONG_ROUNDS)
    bursts = {c.name: [] for c in contestants}
    loads = {c.name: [] for c in contestants}
    for _ in range(rounds):
        for c in contestants:
            bursts[c.name].append(burst(c, about[c.name]))
    for _ in range(rounds):
        for c in contestants:
            loads[c.name].append(sustained(c, about[c.name]))
    return {n: (statistics.median(bursts[n]), statistics.median(loads[n])) for n in about}


def facts_of_run(commit):
    """What every record of this run says: an id of its own, what was measured, where."""
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    return {
        "run": f"{stamp}-{secrets.token_hex(3)}",
        "commit": commit,
        "device": torch.cuda.get_device_name(0),
        "driver": driver,
    }
