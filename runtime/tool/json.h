/* json.h: reads a JSON text from left to right; just what the header of a .safetensors file needs.
 */
#ifndef PISA_TOOL_JSON_H
#define PISA_TOOL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
  const char *at, *end; /* what is left to read */
};

/* Each returns false, with |at| anywhere, when the text is not what is asked for. */
bool json_token(struct json *json, char c); /* white space, then |c| */
/* White space, then a string; its bytes, escapes resolved, cut to |capacity| - 1 and closed with
   NUL; |length| (may be NULL) gets how long it is uncut. */
bool json_string(struct json *json, char *out, size_t capacity, size_t *length);
bool json_unsigned(struct json *json, int64_t *out); /* at most 2^63 - 1 */
bool json_skip(struct json *json);                   /* any value, nested at most 64 deep */

#endif
