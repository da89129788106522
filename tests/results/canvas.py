"""How every picture looks: colours, axes, labels at the ends of lines, and an SVG whose bytes depend on the data alone.

In: matplotlib. Out: a Picture, which is filled panel by panel and then written.
"""

import json
import math
import os

import matplotlib
from matplotlib import font_manager, ticker
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# One colour, one meaning, in all pictures.
OURS, OURS_TOO, OURS_PLAIN = "#0b62b0", "#3793dd", "#7b52ab"  # the method, its second form, pisa without it
CUDNN, FA2 = "#1f2328", "#8a919a"
TRITON = ("#7a4a0c", "#b8741a", "#c9a24f")
DROP, ORDER_0, ORDER_1 = "#c8402f", "#159c74", "#d178ac"
INK, QUIET, GRID = "#1f2328", "#59636e", "#e4e7eb"

SETTINGS = {
    "svg.hashsalt": "pisa",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.titlecolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}
POINT = 1 / 72  # inch
LABEL_GAP = 11.5  # points between labels at the ends of lines
MARGIN = 1.07  # of the axis along x beyond the outermost points, a factor
TICK_GAP = 27  # points between ticks along x, at least: "128K" and some air


def settle():
    """The same look whatever a user has set, and letters of matplotlib's own font file alone."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(SETTINGS)
    own = os.path.join(matplotlib.get_data_path(), "")
    manager = font_manager.fontManager
    manager.ttflist = [font for font in manager.ttflist if font.fname.startswith(own)]
    font_manager.findfont("DejaVu Sans", fallback_to_default=False)  # or it raises


def tokens(n):
    return f"{n // 1024}K" if n >= 1024 and n % 1024 == 0 else f"{n}"


def number(x):
    return f"{x:,.0f}" if x >= 10 else f"{x:g}"


def spread(wanted, gap, low, high):
    """Places near the |wanted| ones, in their order, |gap| apart and inside low..high."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [wanted[i] for i in order]
    for _ in range(200):  # neighbours that are too close part by as much each
        for i in range(len(placed) - 1):
            short = gap - (placed[i + 1] - placed[i])
            if short > 1e-9:
                placed[i] -= short / 2
                placed[i + 1] += short / 2
        placed = [min(max(p, low + i * gap), high - (len(placed) - 1 - i) * gap) for i, p in enumerate(placed)]
    return [placed[order.index(i)] for i in range(len(wanted))]


class Picture:
    """|width| and |height| in points. |data| keeps every number that is drawn and goes into the file, |absent| the lines
    that were wanted and have no points. |note|: lines at the foot; a third and further ones make the picture higher."""

    def __init__(self, title, width, height, note):
        self.lift = 11 * max(0, len(note) - 2)
        height += self.lift
        self.title, self.size, self.data, self.absent = title, (width, height), {}, []
        self.figure = Figure(figsize=(width * POINT, height * POINT), facecolor="white")
        FigureCanvasSVG(self.figure)
        self.text(14, height - self.lift - 22, title, size=11, weight="bold")
        for i, line in enumerate(reversed(note)):
            self.text(14, 10 + 11 * i - self.lift, line, size=7.5, color=QUIET)

    def text(self, x, y, words, **look):
        """At points |x|, |y| of a picture whose note has two lines; so are boxes."""
        self.figure.text(x / self.size[0], (y + self.lift) / self.size[1], words, **look)

    def panel(self, name, box, xlabel, ylabel, title=None):
        """Axes at |box|: left, bottom, width, height in points. |name| is the key of its data, and its title."""
        width, height = self.size
        axes = self.figure.add_axes([box[0] / width, (box[1] + self.lift) / height, box[2] / width, box[3] / height])
        axes.set_title(title or name)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.tick_params(length=0)
        return Panel(self, axes, name, box)

    def write(self, path):
        about = {"Title": self.title, "Date": None, "Creator": f"matplotlib {matplotlib.__version__}",
                 "Description": json.dumps(self.data, sort_keys=True)}
        self.figure.savefig(path, format="svg", metadata=about)


class Panel:
    def __init__(self, picture, axes, name, box):
        self.picture, self.axes, self.name, self.box, self.ends = picture, axes, name, box, []
        self.data = picture.data.setdefault(name, {})

    def lengths(self, values):
        """Numbers of tokens along x, a tick each where there is room for it, powers of two first, then from the longest on."""
        octave = self.box[2] / math.log2(max(values) / min(values) * MARGIN**2)
        ticks = []
        for n in sorted(values, key=lambda n: (n & (n - 1) != 0, -n)):
            if all(octave * abs(math.log2(tick / n)) >= TICK_GAP for tick in ticks):
                ticks.append(n)
        self.steps(sorted(ticks), tokens)
        self.axes.set_xlim(min(values) / MARGIN, max(values) * MARGIN)

    def steps(self, values, words):
        self.axes.set_xscale("log", base=2)
        self.axes.xaxis.set_major_locator(ticker.FixedLocator(values))
        self.axes.xaxis.set_minor_locator(ticker.NullLocator())
        self.axes.xaxis.set_major_formatter(ticker.FixedFormatter([words(v) for v in values]))
        self.axes.set_xlim(min(values) / MARGIN, max(values) * MARGIN)

    def log_y(self, low, high, ticks, words=number):
        """From |low| to |high|, further where a line needs it; |ticks| may lie beyond."""
        self.axes.set_yscale("log")
        self.axes.set_ylim(low, high)
        self.axes.yaxis.set_major_locator(ticker.FixedLocator(ticks))
        self.axes.yaxis.set_minor_locator(ticker.NullLocator())
        self.axes.yaxis.set_major_formatter(ticker.FixedFormatter([words(t) for t in ticks]))

    def line(self, label, points, color, style="-", name=True, hollow=(), marks=True):
        """|points| [(x, y)], hollow where x is in |hollow|; the label comes at the end of the line."""
        if not points:
            self.picture.absent.append(label)
            return
        points = sorted(points)
        xs, ys = zip(*points)
        self.data[label] = [list(point) for point in points]
        self.make_room(ys)
        self.axes.plot(xs, ys, style, color=color)
        for x, y in points if marks else []:
            self.axes.plot([x], [y], "o", color=color, markerfacecolor="white" if x in hollow else color)
        if name:
            self.ends.append((ys[-1], label, color, xs[-1]))

    def make_room(self, ys):
        low, high = self.axes.get_ylim()
        air = 1.15 if self.axes.get_yscale() == "log" else 1.03
        self.axes.set_ylim(low if min(ys) >= low else min(ys) / air, high if max(ys) <= high else max(ys) * air)

    def label_ends(self):
        """Writes the labels of all lines right of the axes, apart from each other."""
        height = self.box[3]
        to_axes = self.axes.transScale + self.axes.transLimits
        wanted = [to_axes.transform((x, y))[1] * height for y, _, _, x in self.ends]
        starts = [to_axes.transform((x, y))[0] * self.box[2] for y, _, _, x in self.ends]
        placed = spread(wanted, LABEL_GAP, 4, height)
        for (_, label, color, _), start, y, at in zip(self.ends, starts, wanted, placed):
            self.axes.annotate(
                label, xy=(start / self.box[2], y / height), xycoords="axes fraction",
                xytext=(1 + 14 / self.box[2], at / height), textcoords="axes fraction", color=color, size=8.5,
                va="center_baseline", annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4})
