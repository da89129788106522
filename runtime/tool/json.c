/* json.c: a cursor in a JSON text in, one value out. */
#include "runtime/tool/json.h"

#include <string.h>

static void white(struct json *json) {
  while (json->at < json->end && memchr(" \t\r\n", *json->at, 4))
    json->at++;
}

bool json_token(struct json *json, char c) {
  white(json);
  if (json->at == json->end || *json->at != c)
    return false;
  json->at++;
  return true;
}

struct sink { /* a bounded string */
  char *out;
  size_t capacity, length;
};

static void put(struct sink *sink, unsigned c) {
  if (sink->length + 1 < sink->capacity)
    sink->out[sink->length] = (char)c;
  sink->length++;
}

static void put_utf8(struct sink *sink, unsigned code) {
  if (code < 0x80) {
    put(sink, code);
  } else if (code < 0x800) {
    put(sink, 0xc0 | code >> 6);
    put(sink, 0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(sink, 0xe0 | code >> 12);
    put(sink, 0x80 | (code >> 6 & 0x3f));
    put(sink, 0x80 | (code & 0x3f));
  } else {
    put(sink, 0xf0 | code >> 18);
    put(sink, 0x80 | (code >> 12 & 0x3f));
    put(sink, 0x80 | (code >> 6 & 0x3f));
    put(sink, 0x80 | (code & 0x3f));
  }
}

/* Four hexadecimal digits. */
static bool hex4(struct json *json, unsigned *out) {
  *out = 0;
  for (int i = 0; i < 4; i++, json->at++) {
    if (json->at == json->end)
      return false;
    char c = *json->at;
    unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16;
    if (digit == 16)
      return false;
    *out = *out << 4 | digit;
  }
  return true;
}

/* Behind "\u"; a high surrogate must be followed by a low one. */
static bool unicode(struct json *json, struct sink *sink) {
  unsigned code, low;
  if (!hex4(json, &code))
    return false;
  if (code >= 0xdc00 && code < 0xe000)
    return false;
  if (code >= 0xd800 && code < 0xdc00) {
    if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u')
      return false;
    json->at += 2;
    if (!hex4(json, &low) || low < 0xdc00 || low >= 0xe000)
      return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(sink, code);
  return true;
}

static bool escape(struct json *json, struct sink *sink) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  if (json->at == json->end)
    return false;
  char c = *json->at++;
  if (c == 'u')
    return unicode(json, sink);
  const char *name = c ? strchr(names, c) : NULL;
  if (!name)
    return false;
  put(sink, (unsigned char)values[name - names]);
  return true;
}

bool json_string(struct json *json, char *out, size_t capacity, size_t *length) {
  struct sink sink = {out, capacity, 0};
  if (!json_token(json, '"'))
    return false;
  for (;;) {
    if (json->at == json->end || (unsigned char)*json->at < 0x20)
      return false;
    char c = *json->at++;
    if (c == '"')
      break;
    if (c != '\\')
      put(&sink, (unsigned char)c);
    else if (!escape(json, &sink))
      return false;
  }
  out[sink.length < capacity ? sink.length : capacity - 1] = '\0';
  if (length)
    *length = sink.length;
  return true;
}

bool json_unsigned(struct json *json, int64_t *out) {
  white(json);
  const char *start = json->at;
  *out = 0;
  for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
    int digit = *json->at - '0';
    if (*out > (INT64_MAX - digit) / 10)
      return false;
    *out = *out * 10 + digit;
  }
  return json->at > start;
}

static bool skip_value(struct json *json, int depth);

/* The rest of an array or object behind its opening bracket. */
static bool skip_members(struct json *json, char close, int depth) {
  if (json_token(json, close))
    return true;
  do {
    char key[1];
    if (close == '}' && (!json_string(json, key, sizeof key, NULL) || !json_token(json, ':')))
      return false;
    if (!skip_value(json, depth + 1))
      return false;
  } while (json_token(json, ','));
  return json_token(json, close);
}

/* A number, true, false or null: a run of the characters those are made of. */
static bool skip_word(struct json *json) {
  const char *start = json->at;
  while (json->at < json->end && *json->at &&
         strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *json->at))
    json->at++;
  return json->at > start;
}

static bool skip_value(struct json *json, int depth) {
  char text[1];
  if (depth > 64)
    return false;
  if (json_token(json, '{'))
    return skip_members(json, '}', depth);
  if (json_token(json, '['))
    return skip_members(json, ']', depth);
  if (json->at < json->end && *json->at == '"')
    return json_string(json, text, sizeof text, NULL);
  return skip_word(json);
}

bool json_skip(struct json *json) {
  return skip_value(json, 0);
}
