"""Byte-level BPE as the metadata of a GGUF file holds it (tokenizer.ggml.model gpt2, pre smollm).

Text is cut into words, digits each alone; the bytes of a word are merged, the pair of the lowest rank first. Tokens are
spelled in an alphabet that has one printable character for each byte.
"""
import re
import unicodedata

CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
# Over kinds: L letter, N number, S white space other than " ", O anything else. A space goes with the word behind it.
WORD = re.compile(r" ?L+| ?O+|N|[ S]+(?![LO])|[ S]+")


def kind(c):
    if c == " ":
        return " "
    if c.isspace() and c not in "\x1c\x1d\x1e\x1f":
        return "S"
    category = unicodedata.category(c)[0]
    return category if category in "LN" else "O"


def words(text):
    kinds = "".join(map(kind, text))
    at = 0
    while at < len(text):
        end = (CONTRACTION.match(text, at) or WORD.match(kinds, at)).end()
        yield text[at:end]
        at = end


def alphabet():
    """Byte -> character: itself where that prints in Latin-1, else the next free one from 256 on."""
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in prints]
    return {**{b: chr(b) for b in prints}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


class Tokenizer:
    def __init__(self, metadata):
        described = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if described != ("gpt2", "smollm"):
            raise ValueError(f"the tokenizer is {described}, expected ('gpt2', 'smollm')")
        self.tokens = metadata["tokenizer.ggml.tokens"]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {tuple(pair.split(" ")): i for i, pair in enumerate(metadata["tokenizer.ggml.merges"])}
        self.spelling = alphabet()
        self.bytes = {c: b for b, c in self.spelling.items()}
        self.known = {}  # word -> ids

    def _merge(self, word):
        parts = [self.spelling[b] for b in word.encode("utf-8")]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                here = tuple(parts[i:i + 2]) == best
                merged.append("".join(best) if here else parts[i])
                i += 2 if here else 1
            parts = merged
        return [self.ids[part] for part in parts]

    def encode(self, text):
        """Ids of the text; nothing is put before it, and names of control tokens in it are text."""
        ids = []
        for word in words(text):
            if word not in self.known:
                self.known[word] = self._merge(word)
            ids += self.known[word]
        return ids

    def decode(self, ids):
        spelled = "".join(self.tokens[i] for i in ids)
        return bytes(self.bytes[c] for c in spelled).decode("utf-8", "replace")
