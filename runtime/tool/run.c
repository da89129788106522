/* run.c: `pisa run`. A pack and three array files in, the output's files out. */
#include "runtime/tool/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tool/args.h"
#include "runtime/tool/tool.h"

struct options {
  const char *pack, *q, *k, *v, *o, *lse, *blocks, *worth, *csr_offsets, *csr_queries, *device,
      *layout;
  struct args_list settings;
  struct run_wish wish;
  bool oracle;
  int64_t threads;
  int ordinal; /* of the CUDA device; -1: CPU */
};

static bool read_options(struct options *o, int argc, char **argv, int *code) {
  const struct args_option options[] = {
      {"--q", "FILE", "queries [B, H, Nq, D]: .npy or file.safetensors:name", ARGS_TEXT, &o->q, 0},
      {"--k", "FILE", "keys [B, Hk, Nk, D]", ARGS_TEXT, &o->k, 0},
      {"--v", "FILE", "values [B, Hk, Nk, D]; not needed without -o", ARGS_TEXT, &o->v, 0},
      {"-o", "FILE",
       "output [B, H, Nq, D], in q's type; without it packs that select blocks only do that",
       ARGS_TEXT, &o->o, 0},
      {"--lse", "FILE", "also write the log-sum-exp, float32 [B, H, Nq]", ARGS_TEXT, &o->lse, 0},
      {"--blocks", "FILE",
       "also write the blocks read exactly, int32 [B, H, NTq, kept]; of packs that select blocks "
       "[B, Hk, Nq, keep]",
       ARGS_TEXT, &o->blocks, 0},
      {"--worth", "FILE", "also write the worth of each selected block, float32 [B, Hk, Nq, keep]",
       ARGS_TEXT, &o->worth, 0},
      {"--csr-offsets", "FILE",
       "with --csr-queries: where the queries that selected a block begin, int32 [Hk, NL + 1]",
       ARGS_TEXT, &o->csr_offsets, 0},
      {"--csr-queries", "FILE",
       "numbers of these queries, block by block, int32 [Hk, B Nq keep], then -1", ARGS_TEXT,
       &o->csr_queries, 0},
      {"--blocks-in", "FILE", "the blocks to read exactly, int32 [B, H, NTq, K] or [H, NTq, K]",
       ARGS_TEXT, &o->wish.lists, 0},
      {"--k-lengths", "N,N,...", "keys of each batch, or an int32 file [B]; else Nk", ARGS_TEXT,
       &o->wish.lengths, 0},
      {"--pages", "FILE",
       "k and v are pages [pages, Hk, page, D], found by this int32 table [B, columns]; else packs "
       "with pages get those of k and v in order",
       ARGS_TEXT, &o->wish.pages, 0},
      {"--phase", "prefill|decode", "else prefill, of packs without it decode", ARGS_TEXT,
       &o->wish.phase, 0},
      {"--density", "D", "share of key blocks read exactly, up to 1; else the spec's", ARGS_NUMBER,
       &o->wish.density, 0},
      {"--keep", "K", "number of key blocks read exactly", ARGS_INT, &o->wish.keep, 1},
      {"--scale", "S", "multiplies q.k; else 1/sqrt(D)", ARGS_NUMBER, &o->wish.scale, 0},
      {"--set", "NAME=VALUE", "pick the variant with this choice; may be repeated", ARGS_MANY,
       &o->settings, 0},
      {"--layout", "bhnd|bnhd", "order of the dimensions in all four files; else bhnd", ARGS_TEXT,
       &o->layout, 0},
      {"--device", "cpu|cuda:N", "where to run; else cuda:0", ARGS_TEXT, &o->device, 0},
      {"--oracle", NULL, "on the CPU: double arithmetic, slow", ARGS_FLAG, &o->oracle, 0},
      {"--threads", "N", "on the CPU: threads, 0 for all cores", ARGS_INT, &o->threads, 0},
  };
  const struct args_command command = {"run", "PACK",
                                       "Runs a pack on arrays: float32, float16 or bfloat16 (in "
                                       ".npy files: the bits as uint16).\nInputs are rounded to "
                                       "the pack's type first.",
                                       options, sizeof options / sizeof *options};
  return args_parse(&command, argc, argv, &o->pack, code);
}

/* What args.h cannot know. */
static int check_options(struct options *o) {
  const bool only_selects = !o->o && o->blocks; /* run_host.c checks the pack */
  if (!o->csr_offsets != !o->csr_queries)
    return tool_say("run", TOOL_WRONG_INPUT, "--csr-offsets and --csr-queries go together");
  const struct {
    const char *name, *given;
    bool is_optional;
  } needed[] = {{"--q", o->q, false},
                {"--k", o->k, false},
                {"--v", o->v, only_selects},
                {"-o", o->o, only_selects}};
  for (int i = 0; i < 4; i++)
    if (!needed[i].given && !needed[i].is_optional)
      return tool_say("run", TOOL_WRONG_INPUT, "%s FILE is needed; `pisa run --help` tells more",
                      needed[i].name);
  if (only_selects && o->v)
    return tool_say("run", TOOL_WRONG_INPUT, "--v is given, but no -o that would need it");
  if (!args_device(o->device ? o->device : "cuda:0", &o->ordinal))
    return tool_say("run", TOOL_WRONG_INPUT, "--device is '%s', expected cpu or cuda:N", o->device);
  if (o->layout && strcmp(o->layout, "bhnd") != 0 && strcmp(o->layout, "bnhd") != 0)
    return tool_say("run", TOOL_WRONG_INPUT, "--layout is '%s', expected bhnd or bnhd", o->layout);
  if (o->wish.phase && strcmp(o->wish.phase, "prefill") != 0 &&
      strcmp(o->wish.phase, "decode") != 0)
    return tool_say("run", TOOL_WRONG_INPUT, "--phase is '%s', expected prefill or decode",
                    o->wish.phase);
  if (o->ordinal >= 0 && (o->oracle || o->threads))
    return tool_say("run", TOOL_WRONG_INPUT, "%s needs --device cpu",
                    o->oracle ? "--oracle" : "--threads");
  if (o->wish.scale > 0 && !(isfinite((float)o->wish.scale) && (float)o->wish.scale > 0))
    return tool_say("run", TOOL_WRONG_INPUT, "--scale is %g, which is no float", o->wish.scale);
  if (o->threads > 256)
    return tool_say("run", TOOL_WRONG_INPUT, "--threads is %lld, expected at most 256",
                    (long long)o->threads);
  o->wish.bnhd = o->layout && strcmp(o->layout, "bnhd") == 0;
  o->wish.lse = o->lse != NULL;
  o->wish.blocks = o->blocks != NULL;
  o->wish.worth = o->worth != NULL;
  o->wish.csr = o->csr_offsets != NULL;
  return TOOL_DONE;
}

static pisa_status check_outputs(const struct options *o, pisa_error *error) {
  const char *const paths[] = {o->o, o->lse, o->blocks, o->worth, o->csr_offsets, o->csr_queries};
  pisa_status status = PISA_OK;
  for (size_t i = 0; i < sizeof paths / sizeof *paths && !status; i++)
    if (paths[i])
      status = array_check_path(paths[i], error);
  return status;
}

/* ---- the call ---- */

static void show_progress(void *user, int64_t done, int64_t total) {
  int *shown = user;
  int percent = (int)(100 * done / total);
  if (percent == *shown)
    return;
  *shown = percent;
  fprintf(stderr, "\rpisa run: %3d %%%s", percent, done == total ? "\n" : "");
}

static pisa_status execute(const struct options *o, const struct run_call *c, pisa_error *error) {
  int shown = -1;
  const pisa_cpu_options cpu = {.struct_size = sizeof cpu,
                                .oracle = o->oracle,
                                .threads = (int)o->threads,
                                .progress = isatty(STDERR_FILENO) ? show_progress : NULL,
                                .user = &shown};
  if (o->ordinal < 0)
    return pisa_cpu_run(c->pack, c->variant, &c->call, &cpu, error);
  pisa_status status = run_on_device(c, o->ordinal, error);
  if (status == PISA_NO_DEVICE)
    pisa_add_context(error, status, "no GPU to run on (`--device cpu` runs on the CPU)");
  return status;
}

static pisa_status write_o(const struct options *o, const struct run_call *c, const struct array *q,
                           pisa_error *error) {
  struct array out = *q;
  out.data = malloc((size_t)c->q_size * array_item_size(q->type));
  if (!out.data)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the output");
  array_from_type(&out, c->method->type, c->o);
  pisa_status status = array_write(o->o, "o", &out, error);
  array_free(&out);
  return status;
}

/* The lists turned around: leaves, and the queries of each. */
static pisa_status write_csr(const struct options *o, const struct run_call *c, pisa_error *error) {
  const int64_t entries = c->call.batch * c->q_blocks * c->kept;
  const struct array offsets = {.type = ARRAY_I32,
                                .rank = 2,
                                .shape = {c->list_heads, c->leaves + 1},
                                .data = c->csr_offsets};
  const struct array queries = {
      .type = ARRAY_I32, .rank = 2, .shape = {c->list_heads, entries}, .data = c->csr_queries};
  pisa_status status = array_write(o->csr_offsets, "csr_offsets", &offsets, error);
  return status ? status : array_write(o->csr_queries, "csr_queries", &queries, error);
}

static pisa_status write_outputs(const struct options *o, const struct run_call *c,
                                 const struct array *q, pisa_error *error) {
  const struct array lse = {.type = ARRAY_F32,
                            .rank = 3,
                            .shape = {c->call.batch, c->call.heads, c->call.n_q},
                            .data = c->lse};
  struct array lists = {.type = ARRAY_I32,
                        .rank = 4,
                        .shape = {c->call.batch, c->list_heads, c->q_blocks, c->kept},
                        .data = c->blocks};
  pisa_status status = o->o ? write_o(o, c, q, error) : PISA_OK;
  if (!status && o->lse)
    status = array_write(o->lse, "lse", &lse, error);
  if (!status && o->blocks)
    status = array_write(o->blocks, "blocks", &lists, error);
  lists.type = ARRAY_F32;
  lists.data = c->worth;
  if (!status && o->worth)
    status = array_write(o->worth, "worth", &lists, error);
  return !status && o->csr_offsets ? write_csr(o, c, error) : status;
}

static pisa_status run_arrays(const struct options *o, struct run_call *c, struct array *q,
                              struct array *k, struct array *v, pisa_error *error) {
  pisa_status status = array_read(o->q, q, error);
  if (!status)
    status = array_read(o->k, k, error);
  if (!status && o->v)
    status = array_read(o->v, v, error);
  if (!status)
    status = run_call_init(c, q, k, o->v ? v : NULL, &o->wish, error);
  array_free(q); /* its type and shape are still needed */
  array_free(k);
  array_free(v);
  if (!status)
    status = execute(o, c, error);
  if (!status)
    status = write_outputs(o, c, q, error);
  return status;
}

static pisa_status run_pack(const struct options *o, pisa_error *error) {
  struct array q = {0}, k = {0}, v = {0};
  struct run_call c = {0};
  pisa_pack *pack = NULL;
  pisa_status status = pisa_pack_open(o->pack, &pack, error);
  if (!status)
    status = pisa_pack_find_variant(pack, o->settings.items, o->settings.n, &c.variant, error);
  c.pack = pack;
  if (!status)
    status = run_arrays(o, &c, &q, &k, &v, error);
  run_call_free(&c);
  pisa_pack_close(pack);
  return status;
}

/* Sentences of the library begin with the field of the call that is wrong: the option that set it
   is named before. */
static int report(const pisa_error *error) {
  static const struct {
    const char *field, *option;
  } words[] = {{"lse", "--lse"},
               {"blocks", "--blocks"},
               {"worth", "--worth"},
               {"csr_offsets", "--csr-offsets"},
               {"csr_queries", "--csr-queries"},
               {"lists", "--blocks-in"},
               {"n_listed", "--blocks-in"},
               {"density", "--density"},
               {"keep", "--keep"},
               {"scale", "--scale"},
               {"phase", "--phase"}};
  const size_t length = strcspn(error->message, " ");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i].field) == length && strncmp(words[i].field, error->message, length) == 0)
      return tool_say("run", tool_exit_of(error->status), "%s: %s", words[i].option,
                      error->message);
  return tool_report("run", error);
}

int tool_run(int argc, char **argv) {
  struct options o = {0};
  pisa_error error;
  int code;
  if (!read_options(&o, argc, argv, &code))
    return code;
  code = check_options(&o);
  if (code)
    return code;
  pisa_status status = check_outputs(&o, &error);
  if (!status)
    status = run_pack(&o, &error);
  return status ? report(&error) : TOOL_DONE;
}
