module @fused
      {
  %qkv:3 = "pisa.input"() {head_dim = 64 : i64, heads = 12 : i64, kv_heads = 4 : i64, mask = "none"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, Hk, Nk, D", f16>,
        !pisa.tensor<"B, Hk, Nk, D", f16>)
  %nodes:2 = "pisa.pyramid"(%qkv#1) {group = 4 : i64, leaf = 16 : i64}
      : (!pisa.tensor<"B, Hk, Nk, D", f16>)
      -> (!pisa.tensor<"Hk, P, D", f16>, !pisa.none)
  %chosen:2 = "pisa.walk"(%qkv#0, %qkv#1, %nodes#0)
      {always = ["tokens first 1", "tokens last 1", "tokens 100..140"], keep = 12 : i64,
       leaf_stage = "fused", reduce = "max", score = "half_variance", start = "root"}
      : (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, Hk, Nk, D", f16>,
        !pisa.tensor<"Hk, P, D", f16>)
      -> (!pisa.tensor<"B, Hk, Nq, K", i32>, !pisa.none)
  %csr:2 = "pisa.csr"(%chosen#0)
      : (!pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"Hk, NL + 1", i32>, !pisa.tensor<"Hk, K T", i32>)
  %out:2 = "pisa.attend_blocks"(%qkv#0, %qkv#1, %qkv#2, %chosen#0)
      : (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, Hk, Nk, D", f16>,
        !pisa.tensor<"B, Hk, Nk, D", f16>, !pisa.tensor<"B, Hk, Nq, K", i32>)
      -> (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, H, Nq", f32>)
}
