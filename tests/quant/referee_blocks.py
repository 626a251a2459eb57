"""Referee for the weight formats: the gguf package's block sizes, decoder and encoder.

    referee_blocks.py FOLDER

Decodes every FOLDER/TYPE.blocks (a row of blocks) to FOLDER/TYPE.f32 (float32, little endian), and writes FOLDER/sizes: lines of
"number name weights bytes", one per type it knows.
"""
import pathlib
import sys

import gguf
import numpy


def main():
    folder = pathlib.Path(sys.argv[1])
    with open(folder / "sizes", "w") as f:
        for kind, (weights, size) in gguf.GGML_QUANT_SIZES.items():
            f.write(f"{int(kind)} {kind.name} {weights} {size}\n")
    for path in folder.glob("*.blocks"):
        kind = gguf.GGMLQuantizationType[path.stem.upper()]
        with numpy.errstate(all="ignore"):
            decoded = gguf.quants.dequantize(numpy.fromfile(path, numpy.uint8).reshape(1, -1), kind)
        decoded.astype("<f4").tofile(path.with_suffix(".f32"))


if __name__ == "__main__":
    main()
