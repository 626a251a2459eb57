"""Referee for the weight formats: the gguf package's block sizes and decoder.

    referee_blocks.py FOLDER TYPE...

Writes FOLDER/sizes: lines of "number name weights bytes", one per type the package knows. Then writes to standard output, for every
TYPE in order, the decoded weights of FOLDER/TYPE.blocks (float32, little endian).
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
    for name in sys.argv[2:]:
        blocks = numpy.fromfile(folder / f"{name}.blocks", numpy.uint8)
        with numpy.errstate(all="ignore"):
            decoded = gguf.quants.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType[name.upper()])
        sys.stdout.buffer.write(decoded.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
