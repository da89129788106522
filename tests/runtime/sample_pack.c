/* sample_pack.c: in go lines of a manifest, out comes a signed pack. The code in it is text that
   the fake driver accepts: it only looks whether an image begins like PTX. */
#include "tests/runtime/sample_pack.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sha256.h"

static const char ptx[] = ".version 8.6\n.target sm_90a\n";
static const char cubin[] = "\177ELF of the sample pack";

struct buffer {
  char *bytes;
  size_t size, room;
};

static void append(struct buffer *b, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(b->bytes + b->size, b->room - b->size, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= b->room - b->size) {
    fprintf(stderr, "the sample manifest is too long\n");
    exit(1);
  }
  b->size += (size_t)n;
}

static const char *or_default(const char *text, const char *fallback) {
  return text ? text : fallback;
}

/* The parts, one behind the other; the size of the PTX is returned. */
static size_t append_parts(struct buffer *parts, const struct sample_spec *spec) {
  const char *code = or_default(spec->code, "");
  append(parts, "%s%s", ptx, code);
  size_t ptx_size = parts->size;
  if (!spec->no_cubin)
    append(parts, "%s%s", cubin, code);
  return ptx_size;
}

static void append_kernel(struct buffer *b, const char *name, const char *smem, int spill) {
  append(b, "kernel %s entry=pisa_%s threads=384 smem=%s registers=168 spill=%d\n", name, name,
         smem, spill);
}

/* The kernels that a selection has, each with threads and shared memory of its own. */
static void append_select_kernels(struct buffer *b, const struct sample_spec *spec) {
  const char *route = or_default(spec->select, "pyramid clustered"), *phases = spec->phases;
  bool prefill = !phases || strstr(phases, "prefill"), decode = !phases || strstr(phases, "decode");
  bool flat = !strncmp(route, "flat", 4), clustered = !flat && strstr(route, "clustered");
  bool below = prefill && spec->below, dense_below = below && strstr(spec->below, "use=dense");
  bool causal = !spec->shape || strstr(spec->shape, "mask=causal");
  const struct {
    const char *name;
    bool present;
    int threads, smem;
  } kernels[] = {
      {"pyramid", prefill, 256, 16384},
      {"pyramid_top", prefill, 256, 0},
      {"walk", prefill && !flat, 640, 4096},
      {"cluster", prefill && clustered, 1024, 512},
      {"scatter", prefill && clustered, 256, 0},
      {"leaf_score", prefill && clustered, 512, 132000},
      {"pick", prefill && clustered, 256, 0},
      {"flat", (prefill && flat) || (below && !dense_below), 128, 20000},
      {"csr_count", prefill, 1024, 65536},
      {"csr_scan", prefill, 1024, 128},
      {"csr_fill", prefill, 256, 131072},
      {"attend_blocks", prefill, 256, 0},
      {"append", decode, 128, 0},
      {"decode", decode, 512, 30000},
  };
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (kernels[i].present)
      append(b, "kernel %s entry=pisa_%s threads=%d smem=%d registers=96 spill=0\n",
             kernels[i].name, kernels[i].name, kernels[i].threads, kernels[i].smem);
  if (dense_below && !causal)
    append_kernel(b, "dense", "196672", 24);
  if (dense_below)
    append_kernel(b, "dense_edge", "196672", 24);
}

/* Phase decode of a dense pack. */
static void append_decode_kernels(struct buffer *b) {
  append(b, "kernel decode_attend entry=pisa_decode_attend threads=256 smem=1024 registers=96 "
            "spill=0\nkernel decode_merge entry=pisa_decode_merge threads=512 smem=24576 "
            "registers=96 spill=0\n");
}

/* The kernels that a variant of this route has. */
static void append_kernels(struct buffer *b, const struct sample_spec *spec, const char *route) {
  if (spec->pyramid) {
    append_select_kernels(b, spec);
    return;
  }
  if (!spec->dense)
    append_kernel(b, "statistics", "197888", 0);
  if (strstr(route, "term=log_residual"))
    append_kernel(b, "residual", "197504", 0);
  if (!spec->dense)
    append(b, "kernel route entry=pisa_route threads=512 smem=dynamic registers=64 spill=0\n");
  if (!spec->shape || !strstr(spec->shape, "mask=causal"))
    append_kernel(b, "attend", "196704", 24);
  if (!spec->phases || strstr(spec->phases, "prefill"))
    append_kernel(b, "attend_edge", "196704", 24);
  if (spec->phases && strstr(spec->phases, "decode"))
    append_decode_kernels(b);
  if (spec->below) {
    append_kernel(b, "dense", "196672", 24);
    append_kernel(b, "dense_edge", "196672", 24);
  }
}

static void append_code(struct buffer *b, const struct sample_spec *spec, const char *route) {
  char hex[PISA_SHA256_HEX + 1], text[512];
  struct buffer parts = {text, 0, sizeof text};
  size_t ptx_size = append_parts(&parts, spec);
  pisa_sha256_hex(text, ptx_size, hex);
  append(b, "part ptx 0 0 %zu %s\n", ptx_size, hex);
  pisa_sha256_hex(text + ptx_size, parts.size - ptx_size, hex);
  if (!spec->no_cubin)
    append(b, "part cubin 0 %zu %zu %s\n", ptx_size, parts.size - ptx_size, hex);
  append_kernels(b, spec, route);
}

#define TOP_K "top_k score=mean term=log_covariance budget=density density="
#define REST " keep=0 threshold=0/1 variance=diagonal"

static void append_method(struct buffer *b, const struct sample_spec *spec, const char *route) {
  const char *attend =
      spec->dense ? "all=exact"
                  : or_default(spec->attend, "selected=exact rest=taylor_hybrid mass=zeroth_order");
  append(b, "shape %s\n",
         or_default(spec->shape, "heads=4 kv_heads=4 head_dim=128 type=bf16 mask=none"));
  append(b, "blocks %s\nroute %s\n%sattend %s\n%s",
         or_default(spec->blocks, "query=128 key=64 lists=separate"), route,
         or_default(spec->always, ""), attend, or_default(spec->below, ""));
  if (spec->phases)
    append(b, "phases %s\n", spec->phases);
  append(b, "%s", or_default(spec->pages, ""));
}

static void append_selection(struct buffer *b, const struct sample_spec *spec) {
  append(b, "shape %s\npyramid %s\nroute %s\n%s",
         or_default(spec->shape, "heads=32 kv_heads=2 head_dim=64 type=bf16 mask=causal"),
         spec->pyramid,
         or_default(spec->select, "pyramid score=lse reduce=sum keep=8 start=0 "
                                  "leaf_stage=clustered query_tile=4"),
         or_default(spec->always, "always first=1\nalways previous\nalways current\n"));
  append(b, "attend selected=exact rest=drop\nphases %s\n%s",
         or_default(spec->phases, "prefill decode"), or_default(spec->below, ""));
}

static void append_manifest(struct buffer *b, const struct sample_spec *spec) {
  const char *route = spec->dense ? "none" : or_default(spec->route, TOP_K "125/1000" REST);
  append(b, "name sample\ncompiler pisac 0.1.0, by hand\ntarget %s\nptx_version 86\n",
         or_default(spec->target, "sm_90a"));
  append(b, "spec_sha256 %064d\nmethod %s\n", 0, spec->pyramid ? "pyramid" : "piecewise");
  if (spec->pyramid)
    append_selection(b, spec);
  else
    append_method(b, spec, route);
  bool is_one = spec->dense || spec->pyramid;
  append(b, "validated no\nvariants %d\nvariant 0%s\n", is_one ? 1 : 2,
         is_one ? "" : " density=0.125");
  append_code(b, spec, route);
  if (!is_one) {
    append(b, "variant 1 density=0.25\nroute " TOP_K "25/100" REST "\n");
    append_code(b, spec, TOP_K);
  }
  append(b, "end\n");
}

void sample_make(const struct sample_spec *spec, struct sample *out) {
  char text[8192], code[512];
  struct buffer manifest = {text, 0, sizeof text}, parts = {code, 0, sizeof code};
  append_manifest(&manifest, spec);
  append_parts(&parts, spec);
  sample_sign(manifest.bytes, manifest.size, parts.bytes, parts.size, out);
}

void sample_sign(const char *manifest, size_t manifest_size, const char *parts, size_t parts_size,
                 struct sample *out) {
  char header[128], hex[PISA_SHA256_HEX + 1];
  pisa_sha256_hex(manifest, manifest_size, hex);
  int n = snprintf(header, sizeof header, "PISA-PACK 3 %zu %s\n", manifest_size, hex);
  out->manifest_at = (size_t)n;
  out->manifest_size = manifest_size;
  out->size = out->manifest_at + manifest_size + parts_size;
  out->bytes = malloc(out->size);
  if (!out->bytes)
    exit(1);
  memcpy(out->bytes, header, out->manifest_at);
  memcpy(out->bytes + out->manifest_at, manifest, manifest_size);
  if (parts_size)
    memcpy(out->bytes + out->manifest_at + manifest_size, parts, parts_size);
}

void sample_edit(const struct sample *from, const char *before, const char *after,
                 struct sample *out) {
  char text[8192], edited[8192];
  size_t parts_at = from->manifest_at + from->manifest_size;
  memcpy(text, from->bytes + from->manifest_at, from->manifest_size);
  text[from->manifest_size] = '\0';
  char *at = strstr(text, before);
  if (!at) {
    fprintf(stderr, "the sample manifest has no '%s'\n", before);
    exit(1);
  }
  int n = snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, after,
                   at + strlen(before));
  sample_sign(edited, (size_t)n, from->bytes + parts_at, from->size - parts_at, out);
}

void sample_free(struct sample *sample) {
  free(sample->bytes);
  sample->bytes = NULL;
}
