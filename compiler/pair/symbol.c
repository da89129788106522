/* symbol.c: in goes a name; out comes why C, C++ or pisa.h would not have it. */
#include "compiler/pair/symbol.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum { MAX_SYMBOL = 64 };

/* Keywords of C11 and C++20, and the macros that the generated text uses. */
static const char *const words[] = {"alignas",
                                    "alignof",
                                    "and",
                                    "and_eq",
                                    "asm",
                                    "auto",
                                    "bitand",
                                    "bitor",
                                    "bool",
                                    "break",
                                    "case",
                                    "catch",
                                    "char",
                                    "char16_t",
                                    "char32_t",
                                    "char8_t",
                                    "class",
                                    "co_await",
                                    "co_return",
                                    "co_yield",
                                    "compl",
                                    "concept",
                                    "const",
                                    "const_cast",
                                    "consteval",
                                    "constexpr",
                                    "constinit",
                                    "continue",
                                    "decltype",
                                    "default",
                                    "delete",
                                    "do",
                                    "double",
                                    "dynamic_cast",
                                    "else",
                                    "enum",
                                    "explicit",
                                    "export",
                                    "extern",
                                    "false",
                                    "float",
                                    "for",
                                    "friend",
                                    "goto",
                                    "if",
                                    "inline",
                                    "int",
                                    "int32_t",
                                    "int64_t",
                                    "long",
                                    "mutable",
                                    "namespace",
                                    "new",
                                    "noexcept",
                                    "not",
                                    "not_eq",
                                    "nullptr",
                                    "operator",
                                    "or",
                                    "or_eq",
                                    "private",
                                    "protected",
                                    "public",
                                    "register",
                                    "reinterpret_cast",
                                    "requires",
                                    "restrict",
                                    "return",
                                    "short",
                                    "signed",
                                    "size_t",
                                    "sizeof",
                                    "static",
                                    "static_assert",
                                    "static_cast",
                                    "struct",
                                    "switch",
                                    "template",
                                    "this",
                                    "thread_local",
                                    "throw",
                                    "true",
                                    "try",
                                    "typedef",
                                    "typeid",
                                    "typename",
                                    "uint64_t",
                                    "uintptr_t",
                                    "union",
                                    "unsigned",
                                    "using",
                                    "virtual",
                                    "void",
                                    "volatile",
                                    "wchar_t",
                                    "while",
                                    "xor",
                                    "xor_eq",
                                    NULL};

static int is_identifier(const char *symbol) {
  if (!isalpha((unsigned char)*symbol))
    return 0;
  for (; *symbol; symbol++)
    if (!isalnum((unsigned char)*symbol) && *symbol != '_')
      return 0;
  return 1;
}

const char *symbol_refused(const char *symbol) {
  if (!is_identifier(symbol))
    return "must be letters, digits and '_', a letter first";
  if (strlen(symbol) > MAX_SYMBOL)
    return "has more than 64 letters";
  for (const char *const *word = words; *word; word++)
    if (strcmp(symbol, *word) == 0)
      return "is a word of C or C++";
  if (strcmp(symbol, "pisa") == 0 ||
      (strncmp(symbol, "pisa_", 5) == 0 && !isdigit((unsigned char)symbol[5])))
    return "belongs to pisa.h";
  return NULL;
}
