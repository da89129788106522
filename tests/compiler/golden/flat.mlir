module @flat
      {
  %qkv:3 = "pisa.input"() {head_dim = 64 : i64, heads = 8 : i64, kv_heads = 8 : i64, mask = "causal"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
  %nodes:2 = "pisa.pyramid"(%qkv#1) {group = 2 : i64, leaf = 64 : i64}
      : (!pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"Hk, P, D", bf16>, !pisa.none)
  %chosen = "pisa.flat"(%qkv#0, %qkv#1, %nodes#0)
      {always = ["tokens first 1", "previous", "current"], below = 0 : i64, keep = 16 : i64,
       reduce = "lse", score = "mean"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"Hk, P, D", bf16>) -> !pisa.tensor<"B, Hk, Nq, K", i32>
  %csr:2 = "pisa.csr"(%chosen)
      : (!pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"Hk, NL + 1", i32>, !pisa.tensor<"Hk, K T", i32>)
  %out:2 = "pisa.attend_blocks"(%qkv#0, %qkv#1, %qkv#2, %chosen)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>, !pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
  %nodes_0 = "pisa.append"(%qkv#1) {group = 2 : i64, leaf = 64 : i64}
      : (!pisa.tensor<"B, Hk, Nk, D", bf16>) -> !pisa.tensor<"Hk, P, D", bf16>
  %chosen_1 = "pisa.decode"(%qkv#0, %qkv#1, %nodes_0)
      {always = ["tokens first 1", "previous", "current"], keep = 16 : i64, reduce = "lse",
       score = "mean", start = "leaves"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"Hk, P, D", bf16>) -> !pisa.tensor<"B, Hk, Nq, K", i32>
  %out_2:2 = "pisa.decode_attend"(%qkv#0, %qkv#1, %qkv#2, %chosen_1)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>, !pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
}
