module @walk
      {
  %qkv:3 = "pisa.input"()
      {head_dim = 128 : i64, heads = 32 : i64, kv_heads = 4 : i64, mask = "causal"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
  %nodes:2 = "pisa.pyramid"(%qkv#1) {group = 2 : i64, leaf = 32 : i64}
      : (!pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"Hk, P, D", bf16>, !pisa.tensor<"Hk, NL, leaf, D", bf16>)
  %chosen = "pisa.flat"(%qkv#0, %qkv#1, %nodes#0)
      {always = ["tokens first 40", "previous", "current"], below = 4096 : i64, keep = 16 : i64,
       reduce = "mass", score = "lse"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"Hk, P, D", bf16>) -> !pisa.tensor<"B, Hk, Nq, K", i32>
  %chosen_0:2 = "pisa.walk"(%qkv#0, %qkv#1, %nodes#0)
      {always = ["tokens first 40", "previous", "current"], keep = 16 : i64,
       leaf_stage = "clustered", reduce = "mass", score = "lse", start = "at most 8 nodes"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"Hk, P, D", bf16>)
      -> (!pisa.none, !pisa.tensor<"R, K", i32>)
  %clusters = "pisa.cluster"(%chosen_0#1)
      : (!pisa.tensor<"R, K", i32>) -> !pisa.tensor<"NSEG, K chunk", i32>
  %scores = "pisa.leaf_score"(%qkv#0, %nodes#1, %clusters)
      {query_tile = 8 : i64, reduce = "mass", score = "lse"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"Hk, NL, leaf, D", bf16>,
        !pisa.tensor<"NSEG, K chunk", i32>) -> !pisa.tensor<"R, slots, G", f32>
  %chosen_1 = "pisa.pick"(%chosen_0#1, %scores)
      {always = ["tokens first 40", "previous", "current"], keep = 16 : i64, reduce = "mass",
       score = "lse"}
      : (!pisa.tensor<"R, K", i32>, !pisa.tensor<"R, slots, G", f32>) ->
        !pisa.tensor<"B, Hk, Nq, K", i32>
  %csr:2 = "pisa.csr"(%chosen_1)
      : (!pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"Hk, NL + 1", i32>, !pisa.tensor<"Hk, K T", i32>)
  %out:2 = "pisa.attend_blocks"(%qkv#0, %qkv#1, %qkv#2, %chosen_1)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>, !pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
  %nodes_2 = "pisa.append"(%qkv#1) {group = 2 : i64, leaf = 32 : i64}
      : (!pisa.tensor<"B, Hk, Nk, D", bf16>) -> !pisa.tensor<"Hk, P, D", bf16>
  %chosen_3 = "pisa.decode"(%qkv#0, %qkv#1, %nodes_2)
      {always = ["tokens first 40", "previous", "current"], keep = 16 : i64, reduce = "mass",
       score = "lse", start = "at most 128 nodes"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"Hk, P, D", bf16>) -> !pisa.tensor<"B, Hk, Nq, K", i32>
  %out_4:2 = "pisa.decode_attend"(%qkv#0, %qkv#1, %qkv#2, %chosen_3)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>, !pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
}
