"""The gguf package as the other side of a round trip: python referee_gguf.py rewrite|compare ...

rewrite IN OUT_STEM [split] [scalar] [trunk]
    Writes IN anew with the package's own writer, as OUT_STEM.gguf or as a set of OUT_STEM-0000i-of-0000N.gguf.
    scalar: arrays of one repeated float become that float. trunk: the MTP block and its keys are left out.
compare A B
    Reads both with the package's reader; fails unless all that both hold in common is equal: for each tensor of A, B
    has it with its shape, and, if its type is the same, its bytes; otherwise the values of B's are printed as
    "NAME RELATIVE_RMS" against A's. Metadata must be equal but for general.file_type, general.quantization_version
    and split.*.
"""
import sys

import gguf
import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter


def value_of(field):
    return field.contents()


def keys_of(reader):
    return {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}


def rewrite(source, stem, *how):
    reader = GGUFReader(source)
    arch = value_of(reader.fields["general.architecture"])
    tensors = list(reader.tensors)
    blocks = value_of(reader.fields[arch + ".block_count"])
    nextn = reader.fields.get(arch + ".nextn_predict_layers")
    mtp = value_of(nextn) if nextn else 0
    if "trunk" in how:
        tensors = [t for t in tensors if not t.name.startswith(f"blk.{blocks - mtp}.") or mtp == 0]
    split = {"split_max_tensors": max(1, len(tensors) // 3)} if "split" in how else {}
    writer = GGUFWriter(stem + ".gguf", arch, **split)
    for key, field in keys_of(reader).items():
        if key == "general.architecture" or key.startswith("split."):
            continue
        value, kind = value_of(field), field.types[0]
        if "trunk" in how:
            if key == arch + ".block_count":
                value -= mtp
            if key == arch + ".nextn_predict_layers":
                continue
            if isinstance(value, list) and len(value) == blocks:
                value = value[: blocks - mtp]
        if kind == GGUFValueType.ARRAY:
            element = field.types[-1]
            if "scalar" in how and element == GGUFValueType.FLOAT32 and len(set(value)) == 1:
                writer.add_float32(key, value[0])
                continue
            writer.add_key_value(key, value, kind, element)
        else:
            writer.add_key_value(key, value, kind)
    for t in tensors:
        shape = [int(n) for n in reversed(t.shape)]
        if t.tensor_type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            writer.add_tensor(t.name, np.ascontiguousarray(t.data).reshape(shape), raw_dtype=t.tensor_type)
        else:
            writer.add_tensor(t.name, np.ascontiguousarray(t.data), raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(a, b):
    left, right = GGUFReader(a), GGUFReader(b)
    changed = ("general.file_type", "general.quantization_version")
    keep = lambda fields: {k: f for k, f in fields.items() if k not in changed and not k.startswith("split.")}
    x, y = keep(keys_of(left)), keep(keys_of(right))
    assert list(x) == list(y), set(x) ^ set(y)
    for key in x:
        assert x[key].types == y[key].types, key
        assert value_of(x[key]) == value_of(y[key]), key
    others = {t.name: t for t in right.tensors}
    assert [t.name for t in left.tensors] == [t.name for t in right.tensors if not t.name.endswith(".scale")]
    for t in left.tensors:
        other = others[t.name]
        assert list(t.shape) == list(other.shape), t.name
        if t.tensor_type == other.tensor_type:
            assert bytes(t.data.tobytes()) == bytes(other.data.tobytes()), t.name
            continue
        want = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
        got = gguf.quants.dequantize(other.data, other.tensor_type).astype(np.float64).reshape(want.shape)
        factor = others.get(t.name.removesuffix("weight") + "scale")
        if factor is not None:
            scale = factor.data.astype(np.float64)
            got = got * scale.reshape([-1] + [1] * (got.ndim - 1) if got.ndim > 2 else [1] * got.ndim)
        error = np.sqrt(((want - got) ** 2).sum() / max((want**2).sum(), 1e-300))
        print(t.name, other.tensor_type.name.lower(), repr(float(error)))


if __name__ == "__main__":
    {"rewrite": rewrite, "compare": compare}[sys.argv[1]](*sys.argv[2:])
