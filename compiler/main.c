/* main.c: pisac. In go a command and a spec; out comes text on stdout, a pack, or messages on
   stderr. Each command is a list of stages; each stage says whether the next may run. Exit status:
   0 done, 1 the spec or the command line is wrong, 2 the world failed. */
#include <stdio.h>
#include <string.h>

#include "compiler/dialect/dialect.h"
#include "compiler/emit/process.h"
#include "compiler/explain.h"
#include "compiler/options.h"
#include "compiler/pack/pack.h"
#include "compiler/pair/pair.h"
#include "compiler/pair/symbol.h"
#include "compiler/plan/limits.h"
#include "dsl/arena.h"
#include "dsl/dsl.h"
#include "dsl/suggest.h"
#include "runtime/pisa.h"

enum { DONE = 0, WRONG = 1, WORLD = 2 };

struct run { /* one run of pisac */
  struct options options;
  struct arena arena;
  struct diag diag;
  struct text out;    /* what goes to stdout or to -o */
  struct text header; /* --format c: of the pair; |out| is its source */
  struct spec *spec;  /* --set applied */
  struct variants variants;
  struct ptxas ptxas;
  const struct code **code; /* of each variant */
  struct code **own;        /* each compiled code once */
  int n_own;
  const char *failure; /* a sentence, when the world failed */
};

/* ---- stages ---- */

static bool apply_settings(struct run *run) {
  for (int i = 0; i < run->options.n_settings; i++) {
    const struct setting *s = &run->options.settings[i];
    if (!dsl_apply(&run->arena, run->spec, s->name, s->value, (struct span){0, 0}, &run->spec,
                   &run->diag))
      return false;
  }
  return true;
}

static bool load(struct run *run) {
  run->spec = dsl_load(&run->arena, run->options.spec, &run->diag);
  return run->spec && apply_settings(run);
}

static bool plan(struct run *run) {
  return variants_plan(&run->arena, run->spec, &target_sm90a, run->options.settings,
                       run->options.n_settings, &run->diag, &run->variants);
}

static bool fail(struct run *run, const struct text *why) {
  run->failure = arena_strndup(&run->arena, why->data, why->size);
  return false;
}

/* The code of an earlier variant with the same kernels, or NULL. */
static const struct code *find_code(struct run *run, const char **kernels, int i) {
  struct text text;
  text_init(&text);
  plan_print_kernels(run->variants.plans[i], &text);
  kernels[i] = arena_strndup(&run->arena, text.data, text.size);
  text_fini(&text);
  for (int j = 0; j < i; j++)
    if (strcmp(kernels[i], kernels[j]) == 0)
      return run->code[j];
  return NULL;
}

static bool compile_variants(struct run *run, struct context *context, struct text *why) {
  const char **kernels = ARENA_ARRAY(&run->arena, const char *, run->variants.n);
  run->code = ARENA_ARRAY(&run->arena, const struct code *, run->variants.n);
  run->own = ARENA_ARRAY(&run->arena, struct code *, run->variants.n);
  for (int i = 0; i < run->variants.n; i++) {
    run->code[i] = find_code(run, kernels, i);
    if (run->code[i])
      continue;
    struct code *code = ARENA_NEW(&run->arena, struct code);
    run->code[i] = run->own[run->n_own++] = code;
    if (!code_compile(context, run->variants.plans[i], run->diag.source, &run->ptxas, &run->arena,
                      code, why))
      return fail(run, why);
  }
  return true;
}

static bool compile(struct run *run) {
  if (run->options.no_ptxas)
    run->ptxas = (struct ptxas){.why_not = "--no-ptxas"};
  else
    run->ptxas = ptxas_find(&run->arena, target_sm90a.ptx_version);
  struct context context;
  struct text why;
  text_init(&why);
  context_init(&context);
  dialect_load(&context);
  bool compiled = compile_variants(run, &context, &why);
  context_fini(&context);
  text_fini(&why);
  return compiled;
}

static const char *tool_name(struct run *run) {
  return run->ptxas.path ? arena_printf(&run->arena, "ptxas %s", run->ptxas.version) : "no ptxas";
}

static struct pack whole_pack(struct run *run) {
  return (struct pack){
      .spec = run->spec,
      .variants = &run->variants,
      .code = run->code,
      .compiler = arena_printf(&run->arena, "pisac %s, LLVM %s, %s", PISA_VERSION,
                               PISA_LLVM_VERSION, tool_name(run)),
  };
}

static void report(struct run *run, const char *files) {
  const struct pack whole = whole_pack(run);
  fprintf(stderr, "%s: %d variant%s, %s, %s\n", files, run->variants.n,
          run->variants.n == 1 ? "" : "s", tool_name(run),
          pack_is_validated(&whole) ? "validated" : "unvalidated");
}

static bool pack(struct run *run) {
  const struct pack whole = whole_pack(run);
  pack_write(&whole, &run->out);
  if (!run->options.output)
    run->options.output = arena_printf(&run->arena, "%s.pack", run->spec->name);
  return true;
}

/* ---- a pair of C files ---- */

/* What the names of a pair begin with; one that was given is good already. */
static bool name_pair(struct run *run) {
  if (run->options.name)
    return true;
  run->options.name = run->spec->name;
  const char *why_not = symbol_refused(run->spec->name);
  if (why_not)
    diag_error(&run->diag, run->spec->name_span, "'%s' %s: give the pair a name with --name",
               run->spec->name, why_not);
  return !why_not;
}

/* "folder/x" of "folder/x", "folder/x.c" or "folder/x.h"; of "folder/" x is the name. */
static const char *pair_path(struct run *run) {
  const char *path = run->options.output;
  const size_t n = path ? strlen(path) : 0;
  if (n == 0 || path[n - 1] == '/')
    return arena_printf(&run->arena, "%s%s", n ? path : "", run->options.name);
  const bool has_ending = n > 2 && path[n - 2] == '.' && strchr("ch", path[n - 1]);
  return arena_strndup(&run->arena, path, has_ending ? n - 2 : n);
}

static bool pair(struct run *run) {
  const struct pack whole = whole_pack(run);
  const char *path = pair_path(run), *slash = strrchr(path, '/');
  const struct pair_names names = {run->options.name, slash ? slash + 1 : path};
  struct text bytes;
  text_init(&bytes);
  pack_write(&whole, &bytes);
  pair_write(&whole, &bytes, &names, &run->header, &run->out);
  text_fini(&bytes);
  run->options.output = path;
  return true;
}

/* ---- emit ---- */

static bool print_tokens(struct run *run) {
  return dsl_print_tokens(&run->arena, run->options.spec, &run->diag, &run->out);
}

static bool print_ast(struct run *run) {
  return dsl_print_ast(&run->arena, run->options.spec, &run->diag, &run->out);
}

static bool print_spec(struct run *run) {
  if (load(run))
    spec_print(run->spec, &run->out);
  return run->spec != NULL;
}

static bool print_plan(struct run *run) {
  if (!load(run) || !plan(run))
    return false;
  plan_print(run->variants.plans[0], &run->out);
  return true;
}

static bool print_code(struct run *run, enum stage stage) {
  if (!load(run) || !plan(run))
    return false;
  struct context context;
  context_init(&context);
  dialect_load(&context);
  code_print_stage(&context, run->variants.plans[0], run->diag.source, stage, &run->out);
  context_fini(&context);
  return true;
}

static bool print_pisa(struct run *run) {
  return print_code(run, STAGE_PISA);
}

static bool print_mlir(struct run *run) {
  return print_code(run, STAGE_MLIR);
}

static bool print_llvm(struct run *run) {
  return print_code(run, STAGE_LLVM);
}

static bool print_ptx(struct run *run) {
  return print_code(run, STAGE_PTX);
}

static const struct {
  const char *name;
  bool (*print)(struct run *);
} STAGES[] = {
    {"tokens", print_tokens}, {"ast", print_ast},   {"spec", print_spec}, {"pisa", print_pisa},
    {"plan", print_plan},     {"mlir", print_mlir}, {"llvm", print_llvm}, {"ptx", print_ptx},
};
enum { N_STAGES = sizeof STAGES / sizeof *STAGES };

static int unknown_stage(const char *word) {
  const char *words[N_STAGES + 1] = {NULL};
  for (int i = 0; i < N_STAGES; i++)
    words[i] = STAGES[i].name;
  const char *near = suggest(word, words);
  fprintf(stderr, "pisac: unknown stage '%s'%s%s%s; see pisac emit --help\n", word,
          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
  return WRONG;
}

/* ---- ends ---- */

static int print_messages(struct run *run) {
  struct text text;
  text_init(&text);
  bool json = run->options.json;
  if (json)
    diag_print_json(&run->diag, &text);
  else
    diag_print(&run->diag, &text);
  fputs(text.data, json ? stdout : stderr);
  text_fini(&text);
  if (run->failure)
    fprintf(stderr, "pisac: %s%s", run->failure,
            run->failure[0] && run->failure[strlen(run->failure) - 1] == '\n' ? "" : "\n");
  return run->failure ? WORLD : diag_status(&run->diag);
}

static int write_output(struct run *run) {
  struct text why;
  text_init(&why);
  bool written;
  if (run->options.output) {
    written = file_write(run->options.output, run->out.data, run->out.size, &why);
  } else {
    written = fwrite(run->out.data, 1, run->out.size, stdout) == run->out.size;
    written = fflush(stdout) == 0 && written;
    if (!written)
      text_puts(&why, "standard output cannot be written");
  }
  if (!written)
    fprintf(stderr, "pisac: %s\n", why.data);
  text_fini(&why);
  return written ? DONE : WORLD;
}

static int write_pair(struct run *run) {
  const char *path = run->options.output;
  struct text why;
  text_init(&why);
  bool written =
      file_write(arena_printf(&run->arena, "%s.h", path), run->header.data, run->header.size,
                 &why) &&
      file_write(arena_printf(&run->arena, "%s.c", path), run->out.data, run->out.size, &why);
  if (!written)
    fprintf(stderr, "pisac: %s\n", why.data);
  text_fini(&why);
  return written ? DONE : WORLD;
}

/* Messages first; output only when the stages all |succeeded|. */
static int finish(struct run *run, bool succeeded) {
  int status = print_messages(run);
  return succeeded && status == DONE ? write_output(run) : status;
}

/* ---- commands ---- */

/* What no kernel exists for is worth a note: the spec is good all the same. */
static int check(struct run *run) {
  const bool loaded = load(run);
  if (loaded)
    limits_report(&run->arena, run->spec, run->options.settings, run->options.n_settings, true,
                  &run->diag);
  return finish(run, loaded);
}

static int format(struct run *run) {
  return finish(run, dsl_format(&run->arena, run->options.spec, &run->diag, &run->out));
}

static int explain_spec(struct run *run) {
  bool planned = load(run) && plan(run);
  if (planned)
    explain(&run->arena, &run->variants,
            run->options.tokens > 0 ? run->options.tokens : EXPLAIN_TOKENS, &run->out);
  return finish(run, planned);
}

static int emit(struct run *run) {
  for (int i = 0; i < N_STAGES; i++)
    if (strcmp(run->options.stage, STAGES[i].name) == 0)
      return finish(run, STAGES[i].print(run));
  return unknown_stage(run->options.stage);
}

static int build_pair(struct run *run) {
  const bool built = load(run) && name_pair(run) && plan(run) && compile(run) && pair(run);
  int status = print_messages(run);
  if (!built || status != DONE)
    return status;
  status = write_pair(run);
  if (status == DONE)
    report(run, arena_printf(&run->arena, "%s.c, %s.h", run->options.output, run->options.output));
  return status;
}

static int build(struct run *run) {
  if (run->options.format == FORMAT_C)
    return build_pair(run);
  const bool built = load(run) && plan(run) && compile(run) && pack(run);
  const int status = finish(run, built);
  if (built && status == DONE)
    report(run, run->options.output);
  return status;
}

static int print_version(struct run *run) {
  struct ptxas ptxas = ptxas_find(&run->arena, target_sm90a.ptx_version);
  printf("pisac %s\n", PISA_VERSION);
  printf("LLVM and MLIR %s\n", PISA_LLVM_VERSION);
  if (ptxas.path)
    printf("ptxas %s\n", ptxas.version);
  else
    printf("ptxas none: %s\n", ptxas.why_not);
  puts("chips: sm_90a (NVIDIA H100, H200)\n"
       "oldest driver: 565 (CUDA 12.7), for PTX 8.6");
  return DONE;
}

static int (*const COMMANDS[N_COMMANDS])(struct run *) = {
    [COMMAND_CHECK] = check, [COMMAND_FMT] = format,  [COMMAND_EXPLAIN] = explain_spec,
    [COMMAND_EMIT] = emit,   [COMMAND_BUILD] = build,
};

static int dispatch(struct run *run) {
  if (run->options.version)
    return print_version(run);
  if (run->options.help) {
    options_help(&run->options);
    return DONE;
  }
  return COMMANDS[run->options.command](run);
}

static void release(struct run *run) {
  for (int i = 0; i < run->n_own; i++)
    code_fini(run->own[i]);
  text_fini(&run->out);
  text_fini(&run->header);
  arena_fini(&run->arena);
}

int main(int argc, char **argv) {
  struct run run = {.spec = NULL};
  arena_init(&run.arena);
  diag_init(&run.diag, &run.arena);
  text_init(&run.out);
  text_init(&run.header);
  int status = WRONG;
  if (options_read(&run.arena, argc, argv, &run.options))
    status = dispatch(&run);
  release(&run);
  return status;
}
