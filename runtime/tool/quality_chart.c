/* quality_chart.c: series of points in, a line chart as inline SVG out. Either axis may be
   logarithmic. Lines end in their names, pushed apart where they would overlap; every point tells
   its values. */
#include <math.h>
#include <string.h>

#include "runtime/tool/quality.h"

enum { WIDTH = 620, HEIGHT = 340, LEFT = 62, RIGHT = 210, TOP = 34, BOTTOM = 46, LINE = 15 };
enum { MAX_TICKS = 40 };

static const char *const ink = "#1f2328", *const soft = "#59636e", *const grid = "#e4e7eb";

struct axis {
  double low, high;  /* of what is drawn: logarithms when |log| */
  double begin, end; /* pixels */
  bool log, percent, fitted;
  double ticks[MAX_TICKS];
  int n_ticks;
};

const char *chart_color(int i) {
  /* Okabe and Ito's palette, without its yellow, which is too light for a line */
  static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#444444"};
  return colors[i % (int)(sizeof colors / sizeof *colors)];
}

void page_text(FILE *out, const char *text) {
  for (; *text; text++) {
    const char *escaped = *text == '<'   ? "&lt;"
                          : *text == '>' ? "&gt;"
                          : *text == '&' ? "&amp;"
                          : *text == '"' ? "&quot;"
                                         : NULL;
    if (escaped)
      fputs(escaped, out);
    else
      fputc(*text, out);
  }
}

/* ---- axes ---- */

static bool can_draw(double value) {
  return isfinite(value) && value > 0;
}

static double place(const struct axis *a, double value) {
  double at = a->log ? log10(value) : value;
  return a->begin + (at - a->low) / (a->high - a->low) * (a->end - a->begin);
}

static void add_tick(struct axis *a, double value) {
  double at = a->log ? log10(value) : value, slack = 1e-9 * (a->high - a->low);
  if (at >= a->low - slack && at <= a->high + slack && a->n_ticks < MAX_TICKS)
    a->ticks[a->n_ticks++] = value;
}

/* 1, 2, 5 of every decade; their first alone when that is too much, all nine when it is too little.
 */
static void log_ticks(struct axis *a) {
  static const bool some[9] = {true, true, false, false, true};
  bool wide = a->high - a->low > 2.5, narrow = a->high - a->low < 0.7;
  for (int decade = (int)floor(a->low); decade <= (int)ceil(a->high); decade++)
    for (int step = 1; step < 10; step++)
      if (step == 1 || narrow || (some[step - 1] && !wide))
        add_tick(a, step * pow(10, decade));
}

static void linear_ticks(struct axis *a) {
  double rough = (a->high - a->low) / 5, decade = pow(10, floor(log10(rough)));
  double step = decade * (rough < 1.5 * decade ? 1 : rough < 3.5 * decade ? 2 : 5);
  for (double at = ceil(a->low / step) * step; at <= a->high + step / 2; at += step)
    add_tick(a, at);
}

/* Spans the values from |low| to |high|, with a little room. */
static void axis_init(struct axis *a, double low, double high) {
  if (a->log) {
    a->low = log10(low) - 0.06;
    a->high = log10(high) + 0.06;
  } else if (a->fitted) {
    double room = fmax(0.06 * (high - low), 0.002 * high);
    a->low = low - room;
    a->high = high + room;
  } else {
    a->low = 0;
    a->high = high * 1.04;
  }
  if (a->log)
    log_ticks(a);
  else
    linear_ticks(a);
}

static void axes_init(const struct chart *c, struct axis *x, struct axis *y) {
  double low_x = INFINITY, high_x = 0, low_y = INFINITY, high_y = 0;
  for (int s = 0; s < c->n; s++)
    for (int i = 0; i < c->series[s].n; i++) {
      if (!can_draw(c->series[s].x[i]) || !can_draw(c->series[s].y[i]))
        continue;
      low_x = fmin(low_x, c->series[s].x[i]);
      high_x = fmax(high_x, c->series[s].x[i]);
      low_y = fmin(low_y, c->series[s].y[i]);
      high_y = fmax(high_y, c->series[s].y[i]);
    }
  if (high_x == 0) /* nothing to draw */
    low_x = low_y = 0.1, high_x = high_y = 1;
  *x = (struct axis){.log = c->log_x, .percent = c->percent_x, .begin = LEFT, .end = WIDTH - RIGHT};
  *y = (struct axis){.log = !c->linear_y,
                     .percent = true,
                     .fitted = c->fitted_y,
                     .begin = HEIGHT - BOTTOM,
                     .end = TOP};
  axis_init(x, low_x, high_x);
  axis_init(y, low_y, high_y);
}

static void value_text(const struct axis *a, double value, int digits, char *out, size_t size) {
  snprintf(out, size, "%.*g%s", digits, a->percent ? 100 * value : value, a->percent ? " %" : "");
}

static void write_axes(FILE *out, const struct chart *c, const struct axis *x,
                       const struct axis *y) {
  char label[32];
  for (int i = 0; i < y->n_ticks; i++) {
    double at = place(y, y->ticks[i]);
    value_text(y, y->ticks[i], 6, label, sizeof label);
    fprintf(out,
            "<path d=\"M%d %.1fH%d\" stroke=\"%s\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\" fill=\"%s\">%s</text>\n",
            LEFT, at, WIDTH - RIGHT, grid, LEFT - 8, at + 4, soft, label);
  }
  for (int i = 0; i < x->n_ticks; i++) {
    double at = place(x, x->ticks[i]);
    value_text(x, x->ticks[i], 6, label, sizeof label);
    fprintf(out,
            "<path d=\"M%.1f %dv5\" stroke=\"%s\"/><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
            at, HEIGHT - BOTTOM, soft, at, HEIGHT - BOTTOM + 18, soft, label);
  }
  fprintf(out, "<path d=\"M%d %dH%d\" stroke=\"%s\"/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT,
          soft);
  fprintf(out,
          "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n"
          "<text x=\"8\" y=\"18\" fill=\"%s\">%s</text>\n",
          (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, soft, c->x_label, soft, c->y_label);
}

/* ---- series ---- */

static void write_series(FILE *out, const struct chart_series *s, int color, const struct axis *x,
                         const struct axis *y) {
  const char *pen = "M";
  fputs("<g class=\"line\"><path d=\"", out);
  for (int i = 0; i < s->n; i++) {
    if (!can_draw(s->x[i]) || !can_draw(s->y[i]))
      continue;
    fprintf(out, "%s%.1f %.1f", pen, place(x, s->x[i]), place(y, s->y[i]));
    pen = "L";
  }
  fprintf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n",
          chart_color(color));
  for (int i = 0; i < s->n; i++) {
    char x_text[32], y_text[32];
    if (!can_draw(s->x[i]) || !can_draw(s->y[i]))
      continue;
    value_text(x, s->x[i], 3, x_text, sizeof x_text);
    value_text(y, s->y[i], 3, y_text, sizeof y_text);
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"#fff\"><title>",
            place(x, s->x[i]), place(y, s->y[i]), chart_color(color));
    page_text(out, s->name);
    fprintf(out, ": %s at %s</title></circle>\n", y_text, x_text);
  }
  fputs("</g>\n", out);
}

struct name {
  int series;
  double at; /* pixels */
};

/* Names in the order of their lines' last points, at least LINE apart, from the top. */
static int place_names(const struct chart *c, const struct axis *y, struct name *names) {
  int n = 0;
  for (int s = 0; s < c->n; s++) {
    int last = c->series[s].n - 1;
    while (last >= 0 && !can_draw(c->series[s].y[last]))
      last--;
    if (last < 0)
      continue;
    struct name name = {s, place(y, c->series[s].y[last])};
    int at = n++;
    for (; at > 0 && names[at - 1].at > name.at; at--)
      names[at] = names[at - 1];
    names[at] = name;
  }
  for (int i = 1; i < n; i++)
    names[i].at = fmax(names[i].at, names[i - 1].at + LINE);
  double over = n ? names[n - 1].at - y->begin : 0;
  for (int i = n - 1; over > 0 && i >= 0; i--) {
    double limit = i == n - 1 ? y->begin : names[i + 1].at - LINE;
    names[i].at = fmin(names[i].at, limit);
  }
  return n;
}

static void write_names(FILE *out, const struct chart *c, const struct axis *y) {
  struct name names[QUALITY_MAX_LINES];
  int n = place_names(c, y, names);
  for (int i = 0; i < n; i++) {
    fprintf(out,
            "<circle cx=\"%d\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%.1f\" "
            "fill=\"%s\">",
            WIDTH - RIGHT + 16, names[i].at, chart_color(names[i].series), WIDTH - RIGHT + 25,
            names[i].at + 4, ink);
    page_text(out, c->series[names[i].series].name);
    fputs("</text>\n", out);
  }
}

void chart_write(FILE *out, const struct chart *c) {
  struct axis x, y;
  axes_init(c, &x, &y);
  fprintf(out,
          "<svg id=\"%s\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
          "height=\"%d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n"
          "<title>",
          c->id, WIDTH, HEIGHT, WIDTH, HEIGHT);
  page_text(out, c->title);
  fprintf(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
  write_axes(out, c, &x, &y);
  for (int s = 0; s < c->n; s++)
    write_series(out, &c->series[s], s, &x, &y);
  write_names(out, c, &y);
  fputs("</svg>\n", out);
}
