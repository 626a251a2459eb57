#!/usr/bin/env python3
"""Writes the files beside it with the formats' reference packages (gguf 0.19.0, safetensors 0.8.0, numpy 2.4.6).

tests/gguf/published_test.cc reads them. Run again only to add something; the output depends on the packages' versions.
"""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent


def arrays():
    """Value i of tensor k is (i % 11 - 5) / 4 + k: exact in half precision."""
    shapes = [("token_embd.weight", (3, 32)), ("blk.0.ffn_up_exps.weight", (2, 3, 64)), ("blk.0.conv", (8, 1, 4)),
              ("output_norm.weight", (5,))]
    for k, (name, shape) in enumerate(shapes):
        i = np.arange(np.prod(shape))
        yield name, ((i % 11 - 5) / 4 + k).astype(np.float32).reshape(shape)


def write_gguf(path, **split):
    w = gguf.GGUFWriter(path, "glm5next", **split)
    w.add_uint8("k.u8", 200)
    w.add_int8("k.i8", -100)
    w.add_uint16("k.u16", 60000)
    w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4000000000)
    w.add_int32("k.i32", -2000000000)
    w.add_uint64("k.u64", 1 << 63)
    w.add_int64("k.i64", -(1 << 62))
    w.add_float32("k.f32", 0.5)
    w.add_float64("k.f64", 0.1)
    w.add_bool("k.bool", True)
    w.add_string("k.text", "狐 fox")
    w.add_array("k.i32s", [0, 0, 1, -7])
    w.add_array("k.texts", ["a", "", "狐"])
    for name, a in arrays():
        if name.endswith("exps.weight"):
            q = gguf.quants.quantize(a, gguf.GGMLQuantizationType.Q8_0)
            w.add_tensor(name, q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        elif name == "output_norm.weight":
            w.add_tensor(name, a.astype(np.float16))
        else:
            w.add_tensor(name, a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


write_gguf(HERE / "whole.gguf")
write_gguf(HERE / "set.gguf", split_max_tensors=2, small_first_shard=True)
save_file({name: a.astype(np.float16) if k % 2 else a for k, (name, a) in enumerate(arrays())},
          HERE / "whole.safetensors", metadata={"format": "pt"})
