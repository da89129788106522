module @dense
      {
  %qkv:3 = "pisa.input"()
      {head_dim = 128 : i64, heads = 24 : i64, kv_heads = 24 : i64, mask = "none"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
  %out:2 = "pisa.attend_all"(%qkv#0, %qkv#1, %qkv#2)
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
}
