"""Reads the records of docs/results and finds the measurements that belong together.

In: a .jsonl file. Out: scenes, each what took turns at one shape in one run, so that its times may be compared.
"""

import collections
import dataclasses
import json

PACK, PEER = "pack", "peer"


class Bad(Exception):
    """A record that contradicts itself, told in one sentence."""


class Missing(Exception):
    """What a picture needs and no record has, told in one sentence."""


@dataclasses.dataclass
class Scene:
    run: str
    commit: str
    device: str
    driver: str
    bench: str
    shape: dict  # without the density, which is each pack's own
    packs: dict  # (variant, density): ms
    peers: dict  # name: ms
    code: dict  # variant: the sha256 of its PTX

    def takes(self, line):
        """Whether |line| is of this scene; the lines of one stand together in a record."""
        name, key = line["peer"], (line["variant"], line["shape"].get("density"))
        facts = ("run", "commit", "device", "driver", "bench")
        same = [getattr(self, x) for x in facts] == [line[x] for x in facts] and self.shape == shape_of(line)
        return same and self.peers.get(name, line["peer_ms"]) == line["peer_ms"] and (
            self.packs.get(key, line["ms"]) == line["ms"])

    def ms(self, kind, name, density=None):
        """Of a peer, or of the fastest variant of a pack, at |density|; None: it took no part."""
        if kind == PEER:
            return self.peers.get(name)
        found = [ms for (variant, share), ms in self.packs.items()
                 if (variant == name or variant.startswith(f"{name} ")) and density in (None, share)]
        return min(found, default=None)


def shape_of(line):
    return {name: value for name, value in line["shape"].items() if name != "density"}


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def scenes(path):
    """All scenes of a record, the newest run last (an id begins with the time)."""
    found = []
    for line in lines(path):
        if not (found and found[-1].takes(line)):
            facts = {name: line[name] for name in ("run", "commit", "device", "driver", "bench")}
            found.append(Scene(**facts, shape=shape_of(line), packs={}, peers={}, code={}))
        found[-1].packs[line["variant"], line["shape"].get("density")] = line["ms"]
        found[-1].peers[line["peer"]] = line["peer_ms"]
        found[-1].code[line["variant"]] = line["ptx_sha256"]
    check_runs(found, path)
    return sorted(found, key=lambda scene: scene.run)


def check_runs(found, path):
    """A run is of one program on one machine: were it not, its times could not be compared."""
    seen = {}
    for scene in found:
        facts = scene.device, scene.driver, scene.commit
        if seen.setdefault(scene.run, facts) != facts:
            words = " and ".join(", ".join(words) for words in (seen[scene.run], facts))
            raise Bad(f"{path}: run {scene.run} mixes machines or commits: {words}")


def matching(found, bench, **shape):
    """The scenes of |bench| whose shapes have these values."""
    return [s for s in found if s.bench == bench and all(s.shape[name] == v for name, v in shape.items())]


def of_newest_code(found, variant):
    """The scenes of the newest code of |variant|, and of the one before where that was not timed at such a shape: times
    of older kernels are no part of a line."""
    found = [scene for scene in found if variant in scene.code]
    codes = []
    for scene in sorted(found, key=lambda scene: scene.run, reverse=True):
        if scene.code[variant] not in codes:
            codes.append(scene.code[variant])
    timed = [scene.shape for scene in found if scene.code[variant] == codes[0]]
    return [s for s in found if s.code[variant] == codes[0] or s.code[variant] in codes[:2] and s.shape not in timed]


def newest(found, members):
    """The newest scene that all |members| (kind, name, density) took part in, else the newest of those that had most
    of them; None: no scene had any."""
    def rank(scene):
        return sum(scene.ms(*member) is not None for member in members), scene.run

    best = max(found, key=rank, default=None)
    return best if best and rank(best)[0] else None


def one_device(found):
    """The device of all scenes of a picture."""
    devices = sorted({scene.device for scene in found})
    if len(devices) > 1:
        raise Bad(f"one picture of several devices: {', '.join(devices)}")
    return devices[0]


def by_length(found, wanted, members):
    """{tokens: {member: (ms, the scene it is of)}} where any of |wanted| was measured: times of the newest scene of
    |wanted|, and of a member that took no part in it, of the newest scene of that length where it did."""
    table = {}
    for n in sorted({scene.shape["Nk"] for scene in found}):
        here = [scene for scene in found if scene.shape["Nk"] == n]
        main, row = newest(here, wanted), {}
        for member in members if main else []:
            scene = main if main.ms(*member) is not None else newest(here, [member])
            if scene:
                row[member] = scene.ms(*member), scene
        if row:
            table[n] = row
    return table


def main_run(found):
    """The run most of the times are of; of several, the newest. |found|: the scene of each time."""
    count = collections.Counter(scene.run for scene in found)
    return max(count, key=lambda run: (count[run], run))
