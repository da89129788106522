// The pisa dialect: one operation per step of a method, so that a method can be read on one screen.
//
// !pisa.tensor<"shape", element>: an array in global memory. Shapes use the vocabulary of pisa.h: B batch, H query heads, Hk key heads,
// N tokens, D head dimension, NT key blocks, NTq query blocks, NQS blocks of as many query rows as a key block has
// keys, k kept blocks. Of block selection (runtime/pyramid.def): P rows of nodes, NL leaves, R = Hk Nq B rows of lists, K kept
// leaves, slots for the children of K parents, NSEG segments of |chunk| queries.
// !pisa.none: a value the method does not ask for.
//
// A constraint used twice in IRDL means twice the same type, hence one line per operand and result.
irdl.dialect @pisa {
  irdl.type @tensor {
    %shape = irdl.base "#builtin.string"
    %element = irdl.any
    irdl.parameters(shape: %shape, element: %element)
  }
  irdl.type @none

  // The caller's q, k and v.
  irdl.operation @input {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %heads = irdl.base "#builtin.integer"
    %kv_heads = irdl.base "#builtin.integer"
    %head_dim = irdl.base "#builtin.integer"
    %mask = irdl.base "#builtin.string"
    irdl.results(q: %q, k: %k, v: %v)
    irdl.attributes {
      "heads" = %heads, "kv_heads" = %kv_heads, "head_dim" = %head_dim, "mask" = %mask
    }
  }

  // One pass over q, k, v: means of blocks, H_j = (k - kbar_j)^T (v - vbar_j), variances of the key columns of a block.
  // H_j never leaves the chip; its norm and the sum over all blocks do. |block_norm| is that norm or the sum of a block's
  // variances, whichever ranks; none where residuals rank.
  irdl.operation @summarize {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %q_mean = irdl.base @pisa::@tensor
    %k_mean = irdl.base @pisa::@tensor
    %a = irdl.base @pisa::@tensor
    %b = irdl.base @pisa::@tensor
    %c = irdl.base @pisa::@tensor
    %d = irdl.base @pisa::@tensor
    %none = irdl.base @pisa::@none
    %v_mean = irdl.any_of(%a, %none)
    %block_norm = irdl.any_of(%b, %none)
    %h_part = irdl.any_of(%c, %none)
    %k_variance = irdl.any_of(%d, %none)
    %block = irdl.base "#builtin.integer"
    irdl.operands(q: %q, k: %k, v: %v)
    irdl.results(q_mean: %q_mean, k_mean: %k_mean, v_mean: %v_mean, block_norm: %block_norm, h_part: %h_part,
                 k_variance: %k_variance)
    irdl.attributes { "block" = %block }
  }

  // A second pass over k, v: the norms of H_j - Hbar, Hbar being the mean of all H_j, from the parts of their sum.
  irdl.operation @residual {
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %h_part = irdl.base @pisa::@tensor
    %block_norm = irdl.base @pisa::@tensor
    %block = irdl.base "#builtin.integer"
    irdl.operands(k: %k, v: %v, h_part: %h_part)
    irdl.results(block_norm: %block_norm)
    irdl.attributes { "block" = %block }
  }

  // Scores of block means; the blocks that every query block reads: forced ones, then the k best, or all above a threshold
  // of so many standard deviations over the mean score; Hsum from its parts. "window W" forces the blocks that a query
  // block's own rows touch, and W to each side. |order| of a list: "ascending"; "rest follows", then all other blocks;
  // "shared first", what two neighbouring query blocks both read, |shared| entries of it.
  irdl.operation @route {
    %q_mean = irdl.base @pisa::@tensor
    %k_mean = irdl.base @pisa::@tensor
    %a = irdl.base @pisa::@tensor
    %b = irdl.base @pisa::@tensor
    %c = irdl.base @pisa::@tensor
    %d = irdl.base @pisa::@tensor
    %none = irdl.base @pisa::@none
    %block_norm = irdl.any_of(%a, %none)
    %h_part = irdl.any_of(%b, %none)
    %lists = irdl.base @pisa::@tensor
    %counts = irdl.base @pisa::@tensor
    %masks = irdl.base @pisa::@tensor
    %h_sum = irdl.any_of(%c, %none)
    %shared = irdl.any_of(%d, %none)
    %query = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %budget = irdl.base "#builtin.string"
    %always = irdl.base "#builtin.array"
    %order = irdl.base "#builtin.string"
    irdl.operands(q_mean: %q_mean, k_mean: %k_mean, block_norm: %block_norm, h_part: %h_part)
    irdl.results(lists: %lists, counts: %counts, masks: %masks, h_sum: %h_sum, shared: %shared)
    irdl.attributes {
      "query" = %query, "score" = %score, "budget" = %budget, "always" = %always, "order" = %order
    }
  }

  // Blocks of the list exactly, the others as |rest| says (drop, taylor 0, taylor 1, taylor hybrid), in one online softmax.
  // |mass| (zeroth order, second order): whether the spread of a block's keys counts in its weight; none without a tail.
  // |walk|: every query block by itself (separate), or two neighbours together (union).
  irdl.operation @attend {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %lists = irdl.base @pisa::@tensor
    %counts = irdl.base @pisa::@tensor
    %masks = irdl.base @pisa::@tensor
    %a = irdl.base @pisa::@tensor
    %b = irdl.base @pisa::@tensor
    %c = irdl.base @pisa::@tensor
    %d = irdl.base @pisa::@tensor
    %e = irdl.base @pisa::@tensor
    %none = irdl.base @pisa::@none
    %k_mean = irdl.any_of(%a, %none)
    %v_mean = irdl.any_of(%b, %none)
    %h_sum = irdl.any_of(%c, %none)
    %k_variance = irdl.any_of(%d, %none)
    %shared = irdl.any_of(%e, %none)
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    %rest = irdl.base "#builtin.string"
    %mass = irdl.base "#builtin.string"
    %walk = irdl.base "#builtin.string"
    irdl.operands(q: %q, k: %k, v: %v, lists: %lists, counts: %counts, masks: %masks, k_mean: %k_mean, v_mean: %v_mean,
                  h_sum: %h_sum, k_variance: %k_variance, shared: %shared)
    irdl.results(o: %o, lse: %lse)
    irdl.attributes { "rest" = %rest, "mass" = %mass, "walk" = %walk }
  }

  // Every block exactly.
  irdl.operation @attend_all {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    irdl.operands(q: %q, k: %k, v: %v)
    irdl.results(o: %o, lse: %lse)
  }

  // In place of all steps before it where there are fewer than |tokens| keys: every block exactly.
  irdl.operation @attend_below {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    %tokens = irdl.base "#builtin.integer"
    irdl.operands(q: %q, k: %k, v: %v)
    irdl.results(o: %o, lse: %lse)
    irdl.attributes { "tokens" = %tokens }
  }

  // Block selection. The means of leaves of |leaf| keys, and of nodes of |group| children above them, up to the root; keys
  // as leaf_score reads them, where leaves are scored in clusters.
  irdl.operation @pyramid {
    %k = irdl.base @pisa::@tensor
    %means = irdl.base @pisa::@tensor
    %a = irdl.base @pisa::@tensor
    %none = irdl.base @pisa::@none
    %images = irdl.any_of(%a, %none)
    %leaf = irdl.base "#builtin.integer"
    %group = irdl.base "#builtin.integer"
    irdl.operands(k: %k)
    irdl.results(means: %means, images: %images)
    irdl.attributes { "leaf" = %leaf, "group" = %group }
  }

  // From |start| down: of each level's candidates the |keep| best by |score|, over the heads of a group as |reduce| says,
  // |always| among them. |leaf_stage| fused: down to leaves, |ids|; clustered: to their parents, |kept|.
  irdl.operation @walk {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %means = irdl.base @pisa::@tensor
    %a = irdl.base @pisa::@tensor
    %b = irdl.base @pisa::@tensor
    %none = irdl.base @pisa::@none
    %ids = irdl.any_of(%a, %none)
    %kept = irdl.any_of(%b, %none)
    %keep = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %reduce = irdl.base "#builtin.string"
    %start = irdl.base "#builtin.string"
    %always = irdl.base "#builtin.array"
    %leaf_stage = irdl.base "#builtin.string"
    irdl.operands(q: %q, k: %k, means: %means)
    irdl.results(ids: %ids, kept: %kept)
    irdl.attributes {
      "keep" = %keep, "score" = %score, "reduce" = %reduce, "start" = %start, "always" = %always,
      "leaf_stage" = %leaf_stage
    }
  }

  // The queries that kept each parent, together.
  irdl.operation @cluster {
    %kept = irdl.base @pisa::@tensor
    %clusters = irdl.base @pisa::@tensor
    irdl.operands(kept: %kept)
    irdl.results(clusters: %clusters)
  }

  // Scores of the leaves of kept parents, |query_tile| queries of a cluster at once.
  irdl.operation @leaf_score {
    %q = irdl.base @pisa::@tensor
    %images = irdl.base @pisa::@tensor
    %clusters = irdl.base @pisa::@tensor
    %scores = irdl.base @pisa::@tensor
    %query_tile = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %reduce = irdl.base "#builtin.string"
    irdl.operands(q: %q, images: %images, clusters: %clusters)
    irdl.results(scores: %scores)
    irdl.attributes { "query_tile" = %query_tile, "score" = %score, "reduce" = %reduce }
  }

  // The best leaves of those of kept parents.
  irdl.operation @pick {
    %kept = irdl.base @pisa::@tensor
    %scores = irdl.base @pisa::@tensor
    %ids = irdl.base @pisa::@tensor
    %keep = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %reduce = irdl.base "#builtin.string"
    %always = irdl.base "#builtin.array"
    irdl.operands(kept: %kept, scores: %scores)
    irdl.results(ids: %ids)
    irdl.attributes { "keep" = %keep, "score" = %score, "reduce" = %reduce, "always" = %always }
  }

  // The best of all visible leaves; |below| > 0: in place of walk to pick where there are fewer keys.
  irdl.operation @flat {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %means = irdl.base @pisa::@tensor
    %ids = irdl.base @pisa::@tensor
    %keep = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %reduce = irdl.base "#builtin.string"
    %always = irdl.base "#builtin.array"
    %below = irdl.base "#builtin.integer"
    irdl.operands(q: %q, k: %k, means: %means)
    irdl.results(ids: %ids)
    irdl.attributes {
      "keep" = %keep, "score" = %score, "reduce" = %reduce, "always" = %always, "below" = %below
    }
  }

  // The queries that list each leaf, for calls that ask for them.
  irdl.operation @csr {
    %ids = irdl.base @pisa::@tensor
    %offsets = irdl.base @pisa::@tensor
    %queries = irdl.base @pisa::@tensor
    irdl.operands(ids: %ids)
    irdl.results(offsets: %offsets, queries: %queries)
  }

  // Each query over the leaves of its list, exactly.
  irdl.operation @attend_blocks {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %ids = irdl.base @pisa::@tensor
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    irdl.operands(q: %q, k: %k, v: %v, ids: %ids)
    irdl.results(o: %o, lse: %lse)
  }

  // Phase decode: new keys enter the pyramid that earlier calls left.
  irdl.operation @append {
    %k = irdl.base @pisa::@tensor
    %means = irdl.base @pisa::@tensor
    %leaf = irdl.base "#builtin.integer"
    %group = irdl.base "#builtin.integer"
    irdl.operands(k: %k)
    irdl.results(means: %means)
    irdl.attributes { "leaf" = %leaf, "group" = %group }
  }

  // Phase decode: walk, leaf scores and choice of single queries; |start| leaves: all of them are candidates.
  irdl.operation @decode {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %means = irdl.base @pisa::@tensor
    %ids = irdl.base @pisa::@tensor
    %keep = irdl.base "#builtin.integer"
    %score = irdl.base "#builtin.string"
    %reduce = irdl.base "#builtin.string"
    %start = irdl.base "#builtin.string"
    %always = irdl.base "#builtin.array"
    irdl.operands(q: %q, k: %k, means: %means)
    irdl.results(ids: %ids)
    irdl.attributes {
      "keep" = %keep, "score" = %score, "reduce" = %reduce, "start" = %start, "always" = %always
    }
  }

  // Phase decode of dense attention: every key that a query sees, spread over several CTAs.
  irdl.operation @decode_attend_all {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    irdl.operands(q: %q, k: %k, v: %v)
    irdl.results(o: %o, lse: %lse)
  }

  // Phase decode: as attend_blocks, the leaves of a list spread over several CTAs.
  irdl.operation @decode_attend {
    %q = irdl.base @pisa::@tensor
    %k = irdl.base @pisa::@tensor
    %v = irdl.base @pisa::@tensor
    %ids = irdl.base @pisa::@tensor
    %o = irdl.base @pisa::@tensor
    %lse = irdl.base @pisa::@tensor
    irdl.operands(q: %q, k: %k, v: %v, ids: %ids)
    irdl.results(o: %o, lse: %lse)
  }
}
