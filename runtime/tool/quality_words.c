/* quality_words.c: what tables, JSON lines and pages have in common. */
#include "runtime/tool/quality.h"

const char *const quality_style =
    "body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;max-width:1160px;margin:2rem "
    "auto;padding:0 1rem;background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}"
    "p{max-width:46rem}.soft{color:#59636e}.row{display:flex;flex-wrap:wrap;gap:8px}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}"
    "th,td{padding:3px 10px;text-align:right;border-bottom:1px solid #e4e7eb}"
    "th:first-child,td:first-child{text-align:left}figure{margin:0}"
    "svg{max-width:100%;height:auto}";

const char *quality_type_name(pisa_type type) {
  return type == PISA_BF16 ? "bf16" : "fp16";
}

void quality_json_text(FILE *out, const char *name, const char *value) {
  fprintf(out, "\"%s\": \"", name);
  for (const char *at = value; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputs("\", ", out);
}

pisa_tensor quality_tensor(void *data, int64_t n, int64_t d) {
  return (pisa_tensor){.data = data, .stride = {0, n * d, d, 1}};
}
