/* Lists of words, and words of the source, as text for messages. */
#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/suggest.h"
#include "dsl/text.h"

const char *words_text(struct arena *arena, const struct ast_word *words,
                       const struct ast_word *end) {
  struct text text;
  text_init(&text);
  for (const struct ast_word *w = words; w && w != end; w = w->next)
    text_printf(&text, "%s%s", w == words ? "" : " ", w->text);
  const char *joined = arena_strndup(arena, text.data, text.size);
  text_fini(&text);
  return joined;
}

const char *list_text(struct arena *arena, const char *const *names) {
  struct text text;
  text_init(&text);
  for (const char *const *name = names; *name; name++)
    text_printf(&text, "%s%s", name == names ? "" : ", ", *name);
  const char *list = arena_strndup(arena, text.data, text.size);
  text_fini(&text);
  return list;
}

static const char **option_names(struct arena *arena, const struct option *options) {
  int n = 0;
  while (options[n].words)
    n++;
  const char **names = ARENA_ARRAY(arena, const char *, n + 1);
  for (int i = 0; i < n; i++)
    names[i] = options[i].words;
  return names;
}

const char *option_list(struct arena *arena, const struct option *options) {
  return list_text(arena, option_names(arena, options));
}

const char *hint(struct arena *arena, const char *word, const char *const *names) {
  const char *near = suggest(word, names);
  return near ? arena_printf(arena, "; did you mean '%s'?", near) : "";
}

const char *hint_option(struct arena *arena, const char *words, const struct option *options) {
  return hint(arena, words, option_names(arena, options));
}
