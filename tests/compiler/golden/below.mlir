module @below
      {
  %qkv:3 = "pisa.input"()
      {head_dim = 128 : i64, heads = 24 : i64, kv_heads = 24 : i64, mask = "none"}
      : ()
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
  %means:6 = "pisa.summarize"(%qkv#0, %qkv#1, %qkv#2) {block = 64 : i64}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"B, H, NQS, D", bf16>, !pisa.tensor<"B, Hk, NT, D", bf16>,
        !pisa.tensor<"B, Hk, NT, D", bf16>, !pisa.none, !pisa.none, !pisa.none)
  %chosen:5 = "pisa.route"(%means#0, %means#1, %means#3, %means#4)
      {always = [], budget = "density 125/1000", order = "ascending", query = 64 : i64,
       score = "mean"}
      : (!pisa.tensor<"B, H, NQS, D", bf16>, !pisa.tensor<"B, Hk, NT, D", bf16>,
        !pisa.none, !pisa.none)
      -> (!pisa.tensor<"B, H, NTq, k", i32>, !pisa.tensor<"B, H, NTq", i32>,
        !pisa.tensor<"B, H, NTq, NT", i1>, !pisa.none, !pisa.none)
  %out:2 = "pisa.attend"(%qkv#0, %qkv#1, %qkv#2, %chosen#0, %chosen#1, %chosen#2, %means#1, %means#2,
      %chosen#3, %means#5, %chosen#4) {mass = "zeroth order", rest = "taylor 0", walk = "separate"}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>, !pisa.tensor<"B, H, NTq, k", i32>,
        !pisa.tensor<"B, H, NTq", i32>, !pisa.tensor<"B, H, NTq, NT", i1>,
        !pisa.tensor<"B, Hk, NT, D", bf16>, !pisa.tensor<"B, Hk, NT, D", bf16>,
        !pisa.none, !pisa.none, !pisa.none)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
  %short:2 = "pisa.attend_below"(%qkv#0, %qkv#1, %qkv#2) {tokens = 8192 : i64}
      : (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, Hk, Nk, D", bf16>,
        !pisa.tensor<"B, Hk, Nk, D", bf16>)
      -> (!pisa.tensor<"B, H, Nq, D", bf16>, !pisa.tensor<"B, H, Nq", f32>)
}
