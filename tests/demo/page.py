"""One self-contained HTML page from the numbers of a demo run. Pictures are inline SVG over one copy of the photograph."""

import base64
import html

import numpy as np

import png
import tokens

SIDE = 64  # patches along an edge of the photograph
TILES = SIDE // tokens.TILE  # tiles (key blocks) along an edge
TEXT_BLOCKS = tokens.TEXT // 64
PIXELS = 512
STRIP = 44  # height of the row of text blocks above the photograph

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #d8dde6; --page: #fbfbfa; --accent: #c2410c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7e9ee; --soft: #9aa4b5; --line: #353c49; --page: #14171c; --accent: #fb923c; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page);
       max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p { max-width: 46rem; margin: .4rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; margin: .8rem 0; }
th, td { padding: .38rem 1.1rem .38rem 0; text-align: right; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums; }
th { font-weight: 600; } th:first-child, td:first-child, td.words, th.words { text-align: left; }
td { white-space: nowrap; } .wide { overflow-x: auto; }
tr.ours td { font-weight: 600; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 1.1rem; margin: .9rem 0; }
figure { margin: 0; } figure svg { width: 100%; height: auto; display: block; border-radius: 4px; }
figcaption { font-size: .88rem; margin-top: .3rem; color: var(--soft); } figcaption b { color: var(--ink); }
pre { overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace; border: 1px solid var(--line); padding: .8rem;
      border-radius: 4px; }
summary { cursor: pointer; margin-top: .8rem; }
svg text { font: 15px system-ui, sans-serif; fill: var(--soft); }
"""

# Colours of the error maps: dark blue, violet, orange, pale yellow.
RAMP = np.array([(13, 17, 60), (86, 30, 130), (187, 55, 84), (249, 142, 9), (252, 255, 200)], float)


def colour(x):
    """RGB [..., 3] of values in 0..1."""
    at = np.clip(x, 0, 1) * (len(RAMP) - 1)
    low = np.minimum(at.astype(int), len(RAMP) - 2)
    part = (at - low)[..., None]
    return np.rint(RAMP[low] * (1 - part) + RAMP[low + 1] * part).astype(np.uint8)


def data_url(png_bytes):
    return "data:image/png;base64," + base64.b64encode(png_bytes).decode()


def overlay(query_block, share):
    """The photograph with the blocks one query block reads; |share| [NT] in 0..1 says by how many heads."""
    boxes = []
    for block, part in enumerate(share):
        x, y, w, h = _box(block)
        boxes.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="#0b0e14" fill-opacity="{0.8 * (1 - part):.2f}"/>')
    for block, part in enumerate(share):
        if part >= 0.5:
            boxes.append(_outline(block, "#ffd166", 2))
    for block in (2 * query_block, 2 * query_block + 1):
        boxes.append(_outline(block, "#38bdf8", 5))
    return _svg('<use href="#photo"/>' + _text_strip() + "".join(boxes))


def _svg(body):
    return f'<svg viewBox="0 {-STRIP} {PIXELS} {PIXELS + STRIP}" role="img">{body}</svg>'


def _text_strip():
    """Text blocks are drawn as a row of boxes above the photograph."""
    drawn = []
    for block in range(TEXT_BLOCKS):
        x, y, w, h = _box(block)
        drawn.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="#e9e4d8" stroke="#8b8675"/>'
            f'<text x="{x + w / 2}" y="{y + h / 2 + 5}" text-anchor="middle" style="fill:#6b6655">text</text>'
        )
    return "".join(drawn)


def _box(block):
    """x, y, width, height of a key block in the picture."""
    if block < TEXT_BLOCKS:
        return block * 64, -STRIP, 64, STRIP - 8
    row, column = divmod(block - TEXT_BLOCKS, TILES)
    return column * 64, row * 64, 64, 64


def _outline(block, ink, width):
    x, y, w, h = _box(block)
    inset = width / 2
    return (
        f'<rect x="{x + inset}" y="{y + inset}" width="{w - width}" height="{h - width}" fill="none" '
        f'stroke="{ink}" stroke-width="{width}"/>'
    )


def error_map(error, low, high):
    """Error of every query token [N], coloured on a logarithmic scale from |low| to |high|."""
    level = (np.log(np.maximum(error, 1e-12)) - np.log(low)) / (np.log(high) - np.log(low))
    raster = np.empty(SIDE * SIDE)
    raster[tokens.tile_order(SIDE)] = level[tokens.TEXT :]
    image = data_url(png.write(colour(raster.reshape(SIDE, SIDE))))
    text = data_url(png.write(colour(level[: tokens.TEXT].reshape(4, -1))))
    place = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    return _svg(
        f'<image href="{text}" x="0" y="{-STRIP}" width="{PIXELS}" height="{STRIP - 8}" {place}/>'
        f'<image href="{image}" x="0" y="0" width="{PIXELS}" height="{PIXELS}" {place}/>'
    )


def scale_bar(low, high):
    """The colours of the error maps with their values."""
    stops = data_url(png.write(colour(np.linspace(0, 1, 256))[None]))
    marks = [m * 10.0**e for e in range(-5, 2) for m in (1, 3) if low <= m * 10.0**e <= high]
    at = [(np.log(m) - np.log(low)) / (np.log(high) - np.log(low)) * 500 for m in marks]
    ticks = "".join(f'<text x="{x:.0f}" y="34" text-anchor="middle">{100 * m:g} %</text>' for x, m in zip(at, marks))
    return (
        '<svg viewBox="-20 0 540 40" style="width:min(100%,30rem)">'
        f'<image href="{stops}" width="500" height="14" preserveAspectRatio="none"/>{ticks}</svg>'
    )


def figure(picture, title, caption):
    return f"<figure>{picture}<figcaption><b>{title}</b> {caption}</figcaption></figure>"


def table(head, rows, ours):
    """|rows| of cells; the second column is words; row |ours| is set in bold."""
    kind = lambda i: ' class="words"' if i == 1 else ""
    lines = ["<tr>" + "".join(f"<th{kind(i)}>{h}</th>" for i, h in enumerate(head)) + "</tr>"]
    for n, row in enumerate(rows):
        cells = "".join(f"<td{kind(i)}>{c}</td>" for i, c in enumerate(row))
        lines.append(f'<tr{" class=ours" if n == ours else ""}>{cells}</tr>')
    return '<div class="wide"><table>' + "".join(lines) + "</table></div>"


def write(path, photo, sections):
    """|photo| is the PNG file; |sections| are (heading, html) pairs, the first heading being the title."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{sections[0][0]}</title><style>{STYLE}</style>",
        '<svg width="0" height="0" style="position:absolute"><symbol id="photo" overflow="visible">',
        f'<image href="{data_url(photo)}" width="{PIXELS}" height="{PIXELS}"/></symbol></svg>',
        f"<h1>{sections[0][0]}</h1>{sections[0][1]}",
    ]
    parts += [f"<h2>{heading}</h2>{body}" for heading, body in sections[1:]]
    with open(path, "w", encoding="utf-8") as out:
        out.write("".join(parts) + "\n")


def listing(title, text):
    return f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>"
