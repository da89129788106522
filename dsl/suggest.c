/* Edit distance (optimal string alignment) to the nearest known word. */
#include "dsl/suggest.h"

#include <string.h>

enum { MAX_LENGTH = 32 }; /* longer words are no misspelling of ours */

static int min2(int a, int b) {
  return a < b ? a : b;
}

/* Three rows of the table suffice: a swap looks two rows back. */
static int distance(const char *a, const char *b) {
  int n = (int)strlen(a), m = (int)strlen(b);
  int rows[3][MAX_LENGTH + 1];
  for (int j = 0; j <= m; j++)
    rows[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = rows[i % 3];
    const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      row[j] = min2(above[j - 1] + (a[i - 1] != b[j - 1]), 1 + min2(above[j], row[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = min2(row[j], above2[j - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

const char *suggest(const char *word, const char *const *words) {
  size_t length = strlen(word);
  if (length > MAX_LENGTH)
    return NULL;
  int limit = length < 6 ? 1 : (int)length / 3;
  const char *best = NULL;
  for (; *words; words++) {
    int d = strlen(*words) > MAX_LENGTH ? limit + 1 : distance(word, *words);
    if (d <= limit) {
      best = *words;
      limit = d - 1;
    }
  }
  return best;
}
