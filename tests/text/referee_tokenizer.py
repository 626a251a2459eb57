"""Referee for the tokenizer tests: the package `tokenizers`.

Standard input: texts, one a line, UTF-8 in hexadecimal. Modes:
  pieces                     byte lengths of the pre-tokenizer's pieces, a line for each text
  classes                    (no input) three lines: the code points of \\p{L}, \\p{N} and \\s as ranges first-last
  decode                     (input: any bytes) what Python's UTF-8 decoder with errors='replace' makes of them
  ids FILE IGNORE ADDED      ids by FILE, a tokenizer.json, with ignore_merges set to IGNORE (0 or 1) and its added tokens
                             recognised in the text or not (ADDED 1 or 0)
"""
import json
import sys

from tokenizers import Regex, Tokenizer, pre_tokenizers

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")


def texts():
    for line in sys.stdin:
        yield bytes.fromhex(line.strip())


def pieces():
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    for text in texts():
        print(*(len(piece.encode()) for piece, _ in split.pre_tokenize_str(text.decode())))


def classes():
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    for pattern in (r"\p{L}", r"\p{N}", r"\s"):
        split = pre_tokenizers.Split(Regex(pattern), behavior="removed")
        outside = set()
        for piece, _ in split.pre_tokenize_str(everything):
            outside.update(piece)
        ranges = []
        for c in sorted(set(everything) - outside):
            if ranges and ranges[-1][1] == ord(c) - 1:
                ranges[-1][1] += 1
            else:
                ranges.append([ord(c), ord(c)])
        print(*(f"{first}-{last}" for first, last in ranges))


def decode():
    for text in texts():
        print(text.decode("utf-8", errors="replace").encode().hex())


def ids(file, ignore, added):
    with open(file) as f:
        description = json.load(f)
    description["model"]["ignore_merges"] = ignore == "1"
    if added == "0":
        description["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(description))
    for encoding in tokenizer.encode_batch([text.decode() for text in texts()], add_special_tokens=False):
        print(*encoding.ids)


if __name__ == "__main__":
    {"pieces": pieces, "classes": classes, "decode": decode, "ids": ids}[sys.argv[1]](*sys.argv[2:])
