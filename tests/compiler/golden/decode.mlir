module @decode
      {
  %qkv:3 = "pisa.input"()
      {head_dim = 128 : i64, heads = 32 : i64, kv_heads = 8 : i64, mask = "causal"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
  %out:2 = "pisa.attend_all"(%qkv#0, %qkv#1, %qkv#2)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
  %out_0:2 = "pisa.decode_attend_all"(%qkv#0, %qkv#1, %qkv#2)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
}
