module @decode_pages
      {
  %qkv:3 = "pisa.input"()
      {head_dim = 64 : i64, heads = 16 : i64, kv_heads = 1 : i64, mask = "causal"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, Hk, Nk, D", f16>,
        !pisa.tensor<"B, Hk, Nk, D", f16>)
  %out:2 = "pisa.decode_attend_all"(%qkv#0, %qkv#1, %qkv#2)
      : (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, Hk, Nk, D", f16>,
        !pisa.tensor<"B, Hk, Nk, D", f16>)
      -> (!pisa.tensor<"B, H, Nq, D", f16>, !pisa.tensor<"B, H, Nq", f32>)
}
