/* quality_strip.c: rows of errors in, strips of coloured cells as inline SVG out. All rows share
   one logarithmic scale; long rows are cut to CELLS cells, each the RMS of its values. */
#include <math.h>

#include "runtime/tool/quality.h"

enum { LEFT = 240, WIDTH = 790, RIGHT = 8, TOP = 26, ROW = 18, GAP = 2, CELLS = 128, FOOT = 44 };

static const char *const ink = "#1f2328", *const soft = "#59636e";

struct scale {
  double low, high; /* natural logarithms */
};

static int cells_of(const struct strip_row *row) {
  return row->n < CELLS ? (int)row->n : CELLS;
}

static double cell(const struct strip_row *row, int i) {
  int64_t n = cells_of(row), begin = i * row->n / n, end = (i + 1) * row->n / n;
  double square = 0;
  for (int64_t at = begin; at < end; at++)
    square += row->values[at] * row->values[at];
  return sqrt(square / (double)(end - begin));
}

static struct scale scale_of(const struct strip_row *rows, int n) {
  struct scale s = {INFINITY, -INFINITY};
  for (int r = 0; r < n; r++)
    for (int i = 0; i < cells_of(&rows[r]); i++) {
      double value = cell(&rows[r], i);
      if (!(value > 0) || !isfinite(value))
        continue;
      s.low = fmin(s.low, log(value));
      s.high = fmax(s.high, log(value));
    }
  if (!(s.low < s.high)) /* one value, or none */
    s = (struct scale){isfinite(s.low) ? s.low - 1 : -1, isfinite(s.high) ? s.high + 1 : 0};
  return s;
}

/* From near white through orange to dark red, by linear interpolation; |t| in [0, 1]. */
static void color(double t, char out[8]) {
  static const int stops[][3] = {
      {255, 247, 236}, {253, 212, 158}, {252, 141, 89}, {215, 48, 31}, {127, 0, 0}};
  t = 4 * fmin(fmax(t, 0), 1);
  int i = t >= 4 ? 3 : (int)t;
  int rgb[3];
  for (int c = 0; c < 3; c++)
    rgb[c] = (int)lround(stops[i][c] + (t - i) * (stops[i + 1][c] - stops[i][c]));
  snprintf(out, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

static void write_row(FILE *out, const struct strip_row *row, int at, const struct scale *s) {
  int n = cells_of(row), y = TOP + at * (ROW + GAP);
  double width = (double)(WIDTH - LEFT - RIGHT) / n;
  if (row->color >= 0)
    fprintf(out, "<circle cx=\"10\" cy=\"%d\" r=\"4\" fill=\"%s\"/>", y + ROW / 2,
            chart_color(row->color));
  fprintf(out, "<text x=\"20\" y=\"%d\" fill=\"%s\">", y + ROW - 5, ink);
  page_text(out, row->name);
  fputs("</text>\n", out);
  fputs("<g shape-rendering=\"crispEdges\">", out);
  for (int i = 0; i < n; i++) {
    char fill[8];
    double value = cell(row, i);
    color(value > 0 ? (log(value) - s->low) / (s->high - s->low) : 0, fill);
    fprintf(out, "<path fill=\"%s\" d=\"M%.1f %dh%.1fv%dh-%.1fz\"/>", fill, LEFT + i * width, y,
            width, ROW, width);
  }
  fputs("</g>\n", out);
}

static void write_scale(FILE *out, const char *id, const char *x_label, int y,
                        const struct scale *s) {
  enum { BAR = 240 };
  fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT, y + 12, soft, x_label);
  fprintf(out, "<defs><linearGradient id=\"%s-scale\">", id);
  for (int i = 0; i <= 4; i++) {
    char stop[8];
    color(i / 4.0, stop);
    fprintf(out, "<stop offset=\"%d%%\" stop-color=\"%s\"/>", 25 * i, stop);
  }
  fprintf(out,
          "</linearGradient></defs>\n"
          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"10\" fill=\"url(#%s-scale)\"/>\n"
          "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"%s\">%.3g %%</text>"
          "<text x=\"%d\" y=\"%d\" fill=\"%s\">%.3g %%</text>\n",
          LEFT + 70, y + 24, BAR, id, LEFT + 62, y + 33, soft, 100 * exp(s->low), LEFT + 78 + BAR,
          y + 33, soft, 100 * exp(s->high));
}

void strip_write(FILE *out, const char *id, const char *title, const char *x_label,
                 const struct strip_row *rows, int n) {
  int height = TOP + n * (ROW + GAP) + FOOT;
  struct scale scale = scale_of(rows, n);
  fprintf(out,
          "<svg id=\"%s\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
          "height=\"%d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n"
          "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
          id, WIDTH, height, WIDTH, height, title, WIDTH, height);
  fprintf(out, "<text x=\"%d\" y=\"16\" fill=\"%s\">%s</text>\n", LEFT, soft, title);
  for (int r = 0; r < n; r++)
    write_row(out, &rows[r], r, &scale);
  write_scale(out, id, x_label, TOP + n * (ROW + GAP), &scale);
  fputs("</svg>\n", out);
}
