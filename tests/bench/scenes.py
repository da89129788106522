"""What `beside.py` measures when nothing else is asked for: every line of the speed list, in one run.

A scene is a set of packs that take turns with their peers at one shape; packs that are to be compared
with each other stand in the same scene. A pack is NAME or NAME:WORD=VALUE[,WORD=VALUE], the variant of
it. Packs of other types than the first one's get inputs and peers of their own. At several densities
every pack takes its turn at each of them, but for packs that take none: dense ones, thresholds.
"""

import dataclasses


@dataclasses.dataclass
class Scene:
    name: str
    packs: list
    tokens: list
    heads: int = 24
    densities: list = dataclasses.field(default_factory=lambda: [0.125])
    inputs: str = "normal"  # or "photograph": the tokens of --photograph
    asked: bool = False  # timed only when --scenes names it: not a line of the speed list


HALF_TILES = ["flux1_dev:half_tile=off", "flux1_dev:half_tile=on"]
LISTS = ["hybrid", "hybrid64:lists=separate", "hybrid64:lists=union"]

SCENES = [
    Scene("lengths", LISTS + ["dense"], [4096, 4608, 8192]),
    Scene("long", LISTS, [16384, 32768]),
    Scene(
        "tails",
        ["hybrid", "hybrid_second", "taylor0", "keep_or_drop", "taylor1", "hybrid_residual", "sol_attn"],
        [4608],
    ),
    Scene("half_tile", HALF_TILES, [4096, 4608]),
    Scene("types", ["hybrid", "hybrid_fp16"], [4608]),
    Scene("photograph", LISTS, [4608], inputs="photograph"),
    Scene("sd35_medium", ["sd35_medium"], [4429]),
    Scene("wan21_14b", ["wan21_14b"], [32760, 75600], heads=40),
    Scene("hunyuan_video", ["hunyuan_video"], [119056]),
    Scene(
        "densities",
        ["hybrid", "taylor0", "keep_or_drop"],
        [4608, 16384],
        densities=[1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2],
        asked=True,
    ),
]
