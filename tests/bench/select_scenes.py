"""What `select_beside.py` measures when nothing else is asked for. The geometry of pyramid_lm and bsa is
the paper's: 32 query and 2 key heads, D = 64, leaves of 64 tokens, 8 of them kept.
"""

import dataclasses

SELECTION, ATTENTION, DECODE = "selection", "selection_attention", "decode"


@dataclasses.dataclass
class Scene:
    name: str
    bench: str  # what is timed: the lists; lists and attention over them; a step of one token
    packs: list
    tokens: list
    batches: list = dataclasses.field(default_factory=lambda: [1])


SCENES = [
    Scene("lists", SELECTION, ["pyramid_lm", "pyramid_mass", "bsa"], [4096, 16384, 65536, 131072, 262144]),
    Scene("attention", ATTENTION, ["pyramid_lm"], [4096, 16384, 65536, 131072]),
    Scene("llama3", ATTENTION, ["llama3_8b"], [8192, 32768, 131072]),
    Scene("step", DECODE, ["pyramid_lm", "pyramid_mass"], [4096, 16384, 32768, 65536, 131072], [1, 32]),
    Scene("llama3_step", DECODE, ["llama3_8b"], [4096, 32768, 131072], [1, 32]),
]
