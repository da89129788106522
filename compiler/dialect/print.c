/* print.c: in goes a module of pisa ops; out comes its text in MLIR's generic form, broken into
   lines that fit a screen: operands and attributes, then operand types, then result types. Still
   valid MLIR. */
#include <string.h>

#include "compiler/dialect/dialect.h"

enum { WIDTH = 100 };
static const char INDENT[] = "\n      ";

struct wrapper {
  struct text *out;
  size_t line; /* where the current line began in |out| */
};

static void break_line(struct wrapper *w) {
  w->line = w->out->size + 1;
  text_puts(w->out, INDENT);
}

static bool starts(const char *s, const char *prefix) {
  return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Length of the type that starts at |s|, its comma included. */
static size_t type_length(const char *s) {
  size_t n = strcspn(s, ">)\n"); /* no type of the dialect nests */
  return n + strspn(s + n, ">),");
}

/* Length of the attribute " name = value" that starts at |s|; 0 when none does. */
static size_t attribute_length(const char *s) {
  if (*s != ' ')
    return 0;
  size_t name = 1 + strspn(s + 1, "abcdefghijklmnopqrstuvwxyz_");
  if (!starts(s + name, " = "))
    return 0;
  bool quoted = false;
  int depth = 0;
  size_t n = name;
  for (; s[n] && (quoted || depth > 0 || !strchr(",}", s[n])); n++) {
    quoted ^= s[n] == '"';
    depth += !quoted && s[n] == '[' ? 1 : !quoted && s[n] == ']' ? -1 : 0;
  }
  return n;
}

static void wrap(const char *s, struct text *out) {
  struct wrapper w = {out, out->size};
  for (; *s; s++) {
    bool wide = out->size - w.line + strcspn(s, "}") > WIDTH;
    if (starts(s, " : (") || starts(s, " -> (") || (starts(s, " {") && wide)) {
      break_line(&w);
      continue; /* the space itself */
    }
    if (starts(s, " !pisa.") && out->size - w.line + type_length(s + 1) > WIDTH) {
      break_line(&w);
      text_puts(out, "  ");
      continue;
    }
    size_t attribute = attribute_length(s);
    if (attribute > 0 && out->size - w.line + attribute > WIDTH) {
      break_line(&w);
      text_putc(out, ' ');
      continue;
    }
    if (starts(s, " %") && out->size - w.line + strcspn(s + 1, ", )") + 1 > WIDTH) {
      break_line(&w);
      continue;
    }
    text_putc(out, *s);
    if (*s == '\n')
      w.line = out->size;
  }
}

void method_print(MlirModule module, struct text *out) {
  struct text plain;
  text_init(&plain);
  MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
  mlirOpPrintingFlagsPrintNameLocAsPrefix(flags);
  mlirOperationPrintWithFlags(mlirModuleGetOperation(module), flags, text_of_mlir, &plain);
  mlirOpPrintingFlagsDestroy(flags);
  wrap(plain.data, out);
  text_fini(&plain);
}
