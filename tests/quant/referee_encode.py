"""Referee for the encoders: the gguf package's.

    referee_encode.py FOLDER TYPE...

Encodes FOLDER/weights (float32, little endian) to every TYPE that the package can make; blocks go to FOLDER/TYPE.
"""
import pathlib
import sys

import gguf
import numpy


def main():
    folder = pathlib.Path(sys.argv[1])
    weights = numpy.fromfile(folder / "weights", "<f4").reshape(1, -1)
    for name in sys.argv[2:]:
        try:
            with numpy.errstate(all="ignore"):
                blocks = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[name.upper()])
        except NotImplementedError:
            continue
        (folder / name).write_bytes(blocks.tobytes())


if __name__ == "__main__":
    main()
