/* messages.h: every sentence the language says about a wrong spec, in the order of
   docs/LANGUAGE.md.

   Each says what was found, what is allowed, and the clause. Literals, so that the compiler checks
   their arguments. tests/dsl/errors holds at least one golden for each (a test fails when one is
   missing). */
/* clang-format off */
#ifndef PISA_DSL_MESSAGES_H
#define PISA_DSL_MESSAGES_H

/* 1: text */
#define E_NOT_ASCII "only comments may hold other than ASCII characters (§1.1)"
#define E_CONTROL "control character 0x%02x is not allowed (§1.1)"
#define E_CHARACTER "'%s' has no meaning here; words, numbers and { } ; , + .. do (§1.1)"
#define E_HYPHEN "'%s' is not a word: words are letters, digits and '_' (§1.2)"
#define E_NUMBER \
  "'%s' is not a number: write digits, or digits '.' digits, without sign or unit (§1.3)"
#define E_SYNTAX "expected %s, found %s (§1.4)"
#define E_NO_EQUALS "no '%s' between a word and its value: write `heads 24` (§1.4)"
#define E_NO_VALUE "%s has no value; allowed: %s (§%s)"
#define E_ONE_VALUE "%s takes one value; lists of candidates belong in tune and vary (§%s)"
#define E_EXTRA_WORDS "'%s' has no meaning after %s (§%s)"
#define E_NEEDS_BLOCK "%s needs its words in { } on the same line (§%s)"
#define E_NO_BLOCK "%s takes no { } (§%s)"
#define E_TOO_DEEP "braces are nested deeper than %d (§1.5)"
#define E_EXTRA_BRACE "this '}' closes nothing (§1.5)"
#define E_OPEN_BRACE "this '{' is never closed (§1.5)"

/* 2: spec; words in general */
#define E_ONE_SPEC \
  "a file holds one spec, and 'spec' is no other word: is a '}' missing above? (§2.1)"
#define E_NO_SPEC "a file begins with `spec NAME {`, found %s (§2.1)"
#define E_AFTER_SPEC "nothing may follow the spec, found %s (§2.1)"
#define E_LONG_NAME "the name has %zu letters; at most %d are allowed (§2.1)"
#define E_UNKNOWN "'%s' is not a word of %s; allowed: %s%s (§%s)"
#define E_TWICE "%s is given twice (§%s)"
#define E_MISSING "%s needs '%s', which has no default (§%s)"
#define E_VALUE "%s cannot be '%s'; allowed: %s%s (§%s)"

/* 3: shape */
#define E_KV_HEADS \
  "kv_heads %d does not divide heads %d; each key head serves heads / kv_heads query heads (§3.2)"

/* 4: blocks, pyramid */
#define E_BLOCKS_ROUTE \
  "blocks belongs to `route top_k`; `route %s` selects for single queries, in leaves (§4.1)"
#define E_PYRAMID_ROUTE \
  "pyramid belongs to `route pyramid` and `route flat`; `route top_k` has blocks (§4.2)"

/* 5: route */
#define E_NO_ROUTE_KIND "route has no kind; allowed: %s (§5.1)"
#define E_NO_ROUTE "attend needs a route that selects blocks, or `all exact` (§5.1)"
#define E_TERM_ROUTE "term '%s' belongs to `route top_k`, not to `route %s` (§5.3)"
#define E_TERM_SCORE "term '%s' belongs to score mean, not to %s (§5.3)"
#define E_REDUCE_ROUTE \
  "reduce belongs to `route pyramid` and `route flat`; `route top_k` has a list per head (§5.4)"
#define E_LEAD "expected '%s %s' and a value (§%s)"
#define E_NO_BUDGET \
  "route does not say how many blocks; allowed: exactly one of keep, density, threshold (§5.5)"
#define E_TWO_BUDGETS \
  "%s and %s together; allowed: exactly one of keep, density, threshold (§5.5)"
#define E_KEEP_ROUTE "keep is %d; `route %s` allows at most %d (§5.5)"
#define E_DENSITY_ROUTE \
  "density does not go with `route pyramid`, which keeps a fixed number per level: use keep " \
  "(§5.6)"
#define E_THRESHOLD_ROUTE "threshold belongs to `route top_k`, not to `route %s` (§5.7)"
#define E_VARIANCE_BUDGET \
  "variance belongs to threshold, and this route has another budget (§5.7)"
#define E_ALWAYS_TOKENS "expected `tokens A..B`, `tokens first N` or `tokens last N` (§5.8)"
#define E_ALWAYS_RANGE "token range is empty or goes beyond %d; A..B is half-open, A < B (§5.8)"
#define E_ALWAYS_WINDOW "expected `window N` with N from 1 to %d (§5.8)"
#define E_ALWAYS_TWICE "always names this twice (§5.8)"
#define E_ALWAYS_ALONE "`none` stands alone in always (§5.8)"
#define E_ALWAYS_MANY "always has more than %d token ranges (§5.8)"
#define E_ALWAYS_CURRENT \
  "`always %s` belongs to single queries; for the query blocks of `route top_k` say %s (§5.8)"
#define E_ALWAYS_DIAGONAL \
  "`always %s` belongs to the query blocks of `route top_k`; for `route %s` say current, " \
  "previous (§5.8)"
#define E_ALWAYS_NONE \
  "`always none` needs `mask none`: under a causal mask a query must be sure of a block it may " \
  "read (§5.8)"
#define E_ALWAYS_LAST \
  "the last tokens lie in the future of most queries under `mask causal` (§5.8)"
#define E_KEEP_ALWAYS "keep is %d, but the always-set takes up to %lld blocks of it (§5.8)"
#define E_START_ROUTE "start belongs to `route pyramid`, not to `route %s` (§5.9)"
#define E_DECODE_START "decode_start belongs to `route pyramid` with phase decode (§5.9)"

/* 6: attend */
#define E_ALL_EXACT "`all exact` reads every block: '%s' has no meaning beside it (§6.1)"
#define E_NO_SELECTED "attend needs `selected exact` or `all exact` (§6.2)"
#define E_HYBRID_CAUSAL \
  "`rest taylor hybrid` sums over the whole sequence: under `mask causal` it would read the " \
  "future (§6.3)"
#define E_TAIL_CAUSAL \
  "a Taylor tail under `mask causal` needs the query's own block read exactly: add current or " \
  "diagonal to always (§6.3)"
#define E_MASS_TAIL \
  "`mass second_order` corrects a Taylor tail; with `rest drop` there is none (§6.4)"

/* 7: below */
#define E_BELOW "expected `below N tokens use dense` or `... use flat` (§7)"
#define E_BELOW_TOKENS "below cannot be '%s'; allowed: whole numbers from 1 to %d (§7)"
#define E_BELOW_FLAT "`use flat` belongs to `route pyramid`, not to `route %s` (§7)"

/* 8: phases, pages */
#define E_DECODE_MASK "decode appends tokens one by one: it needs `mask causal` (§8.1)"
#define E_DECODE_ROUTE \
  "decode has single queries; `route top_k` selects for blocks of them (§8.1)"
#define E_QUERY_TILE \
  "query_tile belongs to the prefill of `route pyramid` and `route flat` (§8.2)"
#define E_PAGES_DECODE "pages belong to decode: add it to phases (§8.3)"

/* 9: schedule, tune, vary */
#define E_SCHEDULE "%s belongs to %s (§9.1)"
#define E_NOT_TUNE "'%s' changes results: list it in vary, not in tune (§9.2)"
#define E_NOT_VARY "'%s' never changes a result: list it in tune, not in vary (§9.3)"
#define E_NO_CHOICE "%s cannot list '%s'; allowed: %s%s (§%s)"
#define E_CANDIDATES "%s has %d candidates; at most %d are allowed (§9.4)"
#define E_CANDIDATE_TWICE "candidate '%s' is listed twice (§9.4)"
#define E_OTHER_BUDGET "'%s' is not what the route's budget is given by (§9.4)"
#define E_VARIANTS "tune and vary together make more than %d variants (§9.4)"
#define E_NO_SET "--set cannot change '%s'; allowed: %s (§9.5)"

#endif
