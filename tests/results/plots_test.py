"""The plots of docs/results: drawn from the records as they are, the same twice, legible, and of runs that can be compared.

usage: plots_test.py CASE, in an empty folder of its own.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
RECORDS = HERE.parents[1] / "docs/results"
sys.path.insert(0, str(HERE))
DC = "{http://purl.org/dc/elements/1.1/}"
SHAPE = {"B": 1, "H": 24, "Hk": 24, "Nq": 4096, "Nk": 4096, "D": 128, "type": "bf16"}
DENSITIES = [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2]


def plot(records, out, **environment):
    command = [sys.executable, "-B", HERE / "plot.py", "--records", records, "--out", out]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def drawn(records, out, **environment):
    done = plot(records, out, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copied():
    """A copy of the records that a test may change."""
    folder = pathlib.Path("records")
    shutil.copytree(RECORDS, folder, ignore=shutil.ignore_patterns("*.svg"))
    return folder


def line(run, variant, ms, peer="cudnn", peer_ms=1.0, n=4096, density=0.125, **changes):
    return {"run": run, "commit": f"c-{run}", "device": "NVIDIA H200", "driver": "1", "bench": "piecewise",
            "variant": variant, "shape": {**SHAPE, "Nq": n, "Nk": n, "density": density}, "ms": ms, "peer": peer,
            "peer_ms": peer_ms, "ptx_sha256": [variant], **changes}


def write(path, lines):
    path = pathlib.Path(path)
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    return path


def recorded(folder):
    path = folder / "h200/piecewise.jsonl"
    return path, [json.loads(x) for x in path.read_text().splitlines()]


# ---- the committed files ----


def facts(path):
    """(who drew it, title, data) of a picture."""
    tree = xml.fromstring(path.read_text())
    return [tree.find(f".//{DC}{name}") for name in ("creator", "title", "description")]


def words(element):
    return "".join(element.itertext()).strip()


def same(fresh, committed):
    """Byte for byte where the same matplotlib drew both, else the same title and numbers."""
    ours, theirs = ([words(x) for x in facts(path)] for path in (fresh, committed))
    if ours[0] == theirs[0]:
        return fresh.read_bytes() == committed.read_bytes()
    return ours[1] == theirs[1] and json.loads(ours[2]) == json.loads(theirs[2])


def test_committed():
    out, committed = pathlib.Path("plots"), RECORDS / "plots"
    drawn(RECORDS, out)
    names = [{path.name for path in folder.glob("*.svg")} for folder in (out, committed)]
    assert names[0] == names[1], f"docs/results/plots: {names[0] ^ names[1]}: build the target plots"
    for name in sorted(names[0]):
        assert same(out / name, committed / name), f"docs/results/plots/{name} is not of these records: build the target plots"
        assert name in (committed / "README.md").read_text(), f"docs/results/plots/README.md does not show {name}"


def test_comparison():
    """What `committed` takes as the same, and what not."""
    drawn(RECORDS, "plots")
    path, other = pathlib.Path("plots/decode-step.svg"), pathlib.Path("other.svg")
    text = path.read_text()
    creator = words(facts(path)[0])
    other.write_text(text.replace("<path d=", "<path  d=", 1))
    assert text != other.read_text() and not same(path, other)
    other.write_text(other.read_text().replace(creator, "matplotlib 9.9"))
    assert same(path, other)
    changed, count = re.subn(r"\[4096, [0-9.]+\]", "[4096, 0.5]", other.read_text(), count=1)
    other.write_text(changed)
    assert count == 1 and not same(path, other)


def test_twice():
    """The user's settings, hash seeds and languages make no difference."""
    pathlib.Path("settings").mkdir()
    pathlib.Path("settings/matplotlibrc").write_text(
        "font.family: serif\nfont.size: 20\naxes.facecolor: black\nsvg.fonttype: none\ntext.usetex: True\n")
    drawn(RECORDS, "first", PYTHONHASHSEED="1", LC_ALL="C")
    drawn(RECORDS, "second", PYTHONHASHSEED="2", MPLCONFIGDIR="settings", LC_ALL="C.UTF-8")
    for path in sorted(pathlib.Path("first").iterdir()):
        assert path.read_bytes() == (pathlib.Path("second") / path.name).read_bytes(), path.name


# ---- what is drawn looks right ----


def legible(picture, name):
    """No words over other words, none outside."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(picture.figure).draw()
    hidden = set()
    for axes in picture.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            hidden |= {t for tick in ticks for t in (tick.label1, tick.label2) if not low <= tick.get_loc() <= high}
    shown = [t for t in picture.figure.findobj(Text) if t.get_text().strip() and t.get_visible() and t not in hidden]
    # of an annotation the words alone, without the line that leads to them
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in shown]
    page = picture.figure.bbox
    for i, (text, box) in enumerate(boxes):
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
        assert inside, f"{name}: {text!r} leaves the picture: {box}"
        for other, there in boxes[i + 1:]:
            assert not box.shrunk(0.98, 0.98).overlaps(there), f"{name}: {text!r} lies over {other!r}"
    assert len(boxes) > 20, f"{name} has hardly any words"
    for axes in picture.figure.axes:
        low, high = axes.get_ylim()
        for drawn_line in axes.lines:
            assert all(low <= y <= high for y in drawn_line.get_ydata()), f"{name}: a line leaves its axes"


def several_densities(folder, device="NVIDIA H200", run="29990101T000000Z-1"):
    """Adds the scene of several densities to a copy of the records."""
    path, lines = recorded(folder)
    for n in (4608, 16384):
        lines += [line(run, variant, round(0.1 * share + ms, 5), peer_ms=0.3, n=n, density=share, device=device)
                  for variant, ms in (("hybrid", 0.012), ("taylor0", 0.011), ("keep_or_drop", 0.01)) for share in DENSITIES]
    write(path, lines)


def test_legible():
    import canvas
    import errors
    import times

    folder = copied()
    several_densities(folder)
    path, lines = recorded(folder)
    write(path, lines + [line("29990102", "hybrid", 8.1, peer_ms=81.0, n=65536), line("29990102", "dense", 200.0, peer_ms=81.0,
                                                                                     n=65536, density=1.0)])
    canvas.settle()
    for name, draw in {**times.PICTURES, **errors.PICTURES}.items():
        legible(draw(folder), name)


def test_spread():
    from canvas import spread

    assert spread([5.0, 50.0, 90.0], 10, 0, 100) == [5.0, 50.0, 90.0]
    for wanted in ([50.0, 50.0, 50.0], [100.0, 99.0, 98.0, 0.0], [1.0, 2.0, 0.0], [7.0]):
        placed = spread(wanted, 10, 0, 100)
        order = sorted(range(len(wanted)), key=lambda i: wanted[i])
        rising = [placed[i] for i in order]
        assert all(b - a >= 10 - 1e-6 for a, b in zip(rising, rising[1:])), (wanted, placed)
        assert 0 <= rising[0] and rising[-1] <= 100, (wanted, placed)


# ---- what may stand beside what ----


def test_latest():
    """A length's times are of the newest scene that has what is wanted; what it lacks is of the newest that has it."""
    from records import PACK, PEER, by_length, main_run, scenes

    hybrid, lists, dense = (PACK, "hybrid", 0.125), (PACK, "hybrid64", 0.125), (PACK, "dense", 1.0)
    cudnn, fa2 = (PEER, "cudnn", None), (PEER, "fa2", None)
    found = scenes(write("a.jsonl", [
        line("20260103", "hybrid64 lists=separate", 0.31, peer_ms=3.0), line("20260103", "hybrid", 0.3, peer_ms=3.0),
        line("20260103", "hybrid64 lists=union", 0.29, peer_ms=3.0), line("20260103", "hybrid", 0.99, peer_ms=3.5),
        line("20260101", "hybrid", 0.1), line("20260101", "hybrid", 0.1, peer="fa2", peer_ms=9.0),
        line("20260101", "hybrid64 lists=union", 0.1), line("20260101", "dense", 0.8, density=1.0),
        line("20260102", "dense", 0.7, density=1.0, peer_ms=2.0), line("20260104", "hybrid", 0.05, density=0.03125),
        line("20260102", "hybrid", 0.2, n=8192), line("20260105", "hybrid", 0.4, n=16384, bench="other"),
    ]))
    assert len(found) == 7 and [s.run for s in found] == sorted(s.run for s in found)
    table = by_length([s for s in found if s.bench == "piecewise"], [hybrid, lists], [hybrid, lists, dense, cudnn, fa2])
    assert {n: {m[1]: ms for m, (ms, _) in row.items()} for n, row in table.items()} == {
        4096: {"hybrid": 0.3, "hybrid64": 0.29, "dense": 0.7, "cudnn": 3.0, "fa2": 9.0},
        8192: {"hybrid": 0.2, "cudnn": 1.0}}
    assert table[4096][dense][1].run == "20260102" and table[4096][fa2][1].run == "20260101"
    drawn_scenes = [scene for row in table.values() for _, scene in row.values()]
    assert main_run(drawn_scenes) == "20260103" and main_run(drawn_scenes[-2:] + drawn_scenes[:2]) == "20260103"


def test_code():
    """Times of a pack's newest code, whichever runs they are of; at shapes that it has none of, of the code before."""
    from records import of_newest_code, scenes

    new, old, oldest = ({"ptx_sha256": [digest]} for digest in "ba9")
    found = scenes(write("a.jsonl", [
        line("20260100", "lm", 0.5, n=512, **oldest), line("20260100", "lm", 0.5, n=256, **oldest),
        line("20260101", "lm", 0.3, **old), line("20260101", "lm", 0.4, n=512, **old),
        line("20260102", "lm", 0.2, **new), line("20260103", "lm", 0.2, n=8192, **new),
        line("20260104", "mass", 0.1, **old)]))
    kept = [(scene.run, scene.shape["Nk"]) for scene in of_newest_code(found, "lm")]
    assert kept == [("20260101", 512), ("20260102", 4096), ("20260103", 8192)], kept
    assert [scene.run for scene in of_newest_code(found, "mass")] == ["20260104"]
    assert of_newest_code(found, "bsa") == []


def test_devices():
    """A run of two machines, a run of two commits, and a picture of two machines' runs are refused."""
    folder = copied()
    path, lines = recorded(folder)
    for name, value in (("device", "NVIDIA H100"), ("driver", "1.2.3"), ("commit", "0000000")):
        write(path, lines[:-1] + [{**lines[-1], name: value}])
        done = plot(folder, "plots")
        assert done.returncode == 2 and "mixes" in done.stderr and lines[-1]["run"] in done.stderr, done.stderr
        assert value in done.stderr and lines[-1][name] in done.stderr, done.stderr
    assert not pathlib.Path("plots").exists()
    other = [{**x, "device": "NVIDIA H100"} if x["commit"] == "8282063" else x for x in lines]
    assert other != lines
    write(path, other)
    done = plot(folder, "plots")
    assert done.returncode == 2 and "several devices: NVIDIA H100, NVIDIA H200" in done.stderr, done.stderr


def test_missing():
    """What was never measured is left out and said; what cannot be read stops."""
    folder = copied()
    path, lines = recorded(folder)
    several_densities(folder)
    assert "piecewise-speedup" not in drawn(folder, "plots")
    assert pathlib.Path("plots/piecewise-speedup.svg").exists()
    write(path, [x for x in lines if x["shape"]["density"] in (0.125, 1.0) and x["peer"] != "fa2"])
    said = drawn(folder, "plots")
    assert "piecewise-time.svg: without FlashAttention-2: " in said, said
    assert "piecewise-speedup.svg: left out: " in said and "--scenes densities" in said, said
    assert not pathlib.Path("plots/piecewise-speedup.svg").exists()
    assert len(list(pathlib.Path("plots").iterdir())) == 5
    write(path, [])
    assert "piecewise-time.svg: left out: " in drawn(folder, "plots")
    path.unlink()
    done = plot(folder, "plots")
    assert done.returncode == 2 and "piecewise.jsonl" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_no_matplotlib():
    pathlib.Path("matplotlib").mkdir()
    pathlib.Path("matplotlib/__init__.py").write_text('raise ImportError("No module named matplotlib")\n')
    done = plot(RECORDS, "plots", PYTHONPATH=os.getcwd())
    assert done.returncode == 2 and "python3-matplotlib" in done.stderr and "Traceback" not in done.stderr, done.stderr


globals()[f"test_{sys.argv[1]}"]()
