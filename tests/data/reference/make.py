#!/usr/bin/env python3
"""Makes this folder from the full numeric references: make.py REFERENCE_FOLDER (needs numpy).

The references are two tiny random-weight models and what Hugging Face transformers computes with them in double precision. Here:
  micro/model.safetensors, */config.json   copied
  */reference.safetensors                  what the tests read, float64 stored as float32 (docs/testing.md)
  tile/weights.safetensors                 tile's weights (11.7 MB) as differences from their seed, 0.2 MB:
    they were drawn with torch.Generator (MT19937; rand: 24 bits; randn of 16 numbers and more: Box-Muller over groups of 16),
    which Replay below repeats in order. Where torch's float32 logarithm or cosine rounds otherwise, `corrections` holds
    the elements passed since the last one (base-128, low digits first) and the signed difference of the bit patterns.
    The tensors that were calibrated after drawing stand there whole. tests/engine/tile_weights.h is the same in C++.
"""
import json, math, os, re, shutil, struct, sys

import numpy as np

f32 = np.float32
DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "BF16": "<u2", "U8": "u1"}


def load(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    out = {}
    for k, v in json.loads(b[8 : 8 + n]).items():
        if k != "__metadata__":
            begin, end = v["data_offsets"]
            out[k] = np.frombuffer(b[8 + n + begin : 8 + n + end], DTYPES[v["dtype"]]).reshape(v["shape"])
    return out


def save(path, tensors):
    head, blobs, at = {}, [], 0
    for k in sorted(tensors):
        a = np.ascontiguousarray(tensors[k])
        dtype = {"float32": "F32", "int32": "I32", "uint16": "BF16", "uint8": "U8"}[str(a.dtype)]
        head[k] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        blobs.append(a.tobytes())
        at += a.nbytes
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(len(h).to_bytes(8, "little") + h + b"".join(blobs))
    print(path, 8 + len(h) + at, "bytes,", len(tensors), "tensors")


def kept(model, prompt, name):
    if name in ("logits", "chunked.logits", "decode.logits", "nextn.logits_pos0_zeroed", "margin.router", "margin.index", "embed"):
        return False
    if model == "micro":
        return not (prompt == "p67" and name.startswith("L0."))
    if "kda.state" in name or "kda.conv_state" in name:
        return prompt == "p200" and name.startswith("L2.")
    if name.endswith("streams"):
        return name.startswith("L3.")
    return prompt != "p67" or not name.startswith("L") or bool(re.search("selected|router.ids", name))


class Replay:
    def __init__(self, seed):
        self.raw = np.random.RandomState(seed)._bit_generator.random_raw
        self.cached = []

    def uniform(self, n):
        return (self.raw(n).astype(np.uint64) & ((1 << 24) - 1)).astype(f32) * f32(2.0**-24)

    def rand(self, shape, lo, hi):
        return self.uniform(math.prod(shape)).reshape(shape) * f32(hi - lo) + f32(lo)

    def randn(self, shape, std):
        def groups(u):
            x = u.reshape(-1, 16)
            radius = np.sqrt(f32(-2) * np.log((1 - x[:, :8]).astype(np.float64)).astype(f32))
            theta = (f32(2 * math.pi) * x[:, 8:]).astype(np.float64)
            return np.concatenate([radius * np.cos(theta).astype(f32), radius * np.sin(theta).astype(f32)], 1).reshape(-1)

        n = math.prod(shape)
        if n < 16:
            out = np.array([self.one() for _ in range(n)]).astype(f32)
        else:
            u, whole = self.uniform(n), n // 16 * 16
            out = np.empty(n, f32)
            out[:whole] = groups(u[:whole])
            if n % 16:
                out[n - 16 :] = groups(self.uniform(16))  # the last 16 are drawn anew
        return out.reshape(shape) * f32(std)

    def one(self):
        if self.cached:
            return self.cached.pop()
        u = []
        for _ in range(2):
            high, low = self.raw(2)
            u.append(((int(high) << 32 | int(low)) & ((1 << 53) - 1)) * 2.0**-53)
        radius, theta = math.sqrt(-2 * math.log1p(-u[1])), 2 * math.pi * u[0]
        self.cached.append(radius * math.sin(theta))
        return radius * math.cos(theta)


def tile_shapes():
    """Names and shapes inside transformers, where they were drawn in sorted order."""
    p = "model.language_model."
    s = {"lm_head.weight": (320, 256), p + "embed_tokens.weight": (320, 256), p + "norm.weight": (256,)}
    for layer in range(4):
        n = f"{p}layers.{layer}."
        for site in ("attn", "ffn"):
            s.update({f"{n}{site}_hc.fn": (24, 1024), f"{n}{site}_hc.base": (24,), f"{n}{site}_hc.scale": (3,)})
        s.update({n + "input_layernorm.weight": (256,), n + "post_attention_layernorm.weight": (256,)})
        a, i, m = n + "self_attn.", n + "self_attn.indexer.", n + "mlp."
        if layer < 3:
            s.update({f"{a}{x}_proj.weight": (512, 256) for x in "qkv"})
            s.update({a + "conv1d.weight": (1536, 1, 4), a + "forget_gate.f_a_proj.weight": (128, 256),
                      a + "forget_gate.f_b_proj.weight": (512, 128), a + "forget_gate.dt_bias": (512,),
                      a + "forget_gate.A_log": (4,), a + "b_proj.weight": (4, 256), a + "g_a_proj.weight": (128, 256),
                      a + "g_b_proj.weight": (512, 128), a + "o_norm.weight": (128,), a + "o_proj.weight": (256, 512),
                      m + "gate_proj.weight": (512, 256), m + "up_proj.weight": (512, 256), m + "down_proj.weight": (256, 512)})
        else:
            s.update({a + "q_a_proj.weight": (256, 256), a + "q_a_layernorm.weight": (256,), a + "q_b_proj.weight": (256, 256),
                      a + "kv_a_proj_with_mqa.weight": (256, 256), a + "kv_a_layernorm.weight": (256,),
                      a + "kv_b_proj.weight": (512, 256), a + "o_proj.weight": (256, 256), i + "wq_b.weight": (256, 256),
                      i + "wk.weight": (128, 256), i + "k_norm.weight": (128,), i + "k_norm.bias": (128,),
                      i + "weights_proj.weight": (2, 256), i + "index_kpool_compress_ape": (4, 128),
                      i + "index_kpool_compress_gate": (128, 256), m + "experts.gate_up_proj": (6, 512, 256),
                      m + "experts.down_proj": (6, 256, 256), m + "gate.weight": (6, 256), m + "gate.e_score_correction_bias": (6,)})
            s.update({f"{m}shared_experts.{x}_proj.weight": (256, 256) for x in ("gate", "up", "down")})
    return s


UNIFORM = {"input_layernorm": (0.5, 1.6), "post_attention_layernorm": (0.5, 1.6), "norm": (0.5, 1.6), "q_a_layernorm": (0.5, 1.6),
           "kv_a_layernorm": (0.5, 1.6), "o_norm": (0.5, 1.6), "A_log": (-0.6, 0.7), "dt_bias": (-8.0, 2.5), "scale": (0.6, 1.6)}
NORMAL = {"e_score_correction_bias": 0.2, "index_kpool_compress_ape": 1.0, "conv1d": 0.45}
GAIN = {"lm_head": 2.0, "fn": 0.9, "index_kpool_compress_gate": 1.5, "q_proj": 1.2, "k_proj": 1.2, "v_proj": 1.4, "f_b_proj": 0.8,
        "b_proj": 1.5, "q_b_proj": 1.6, "kv_b_proj": 1.3, "o_proj": 1.2, "gate_proj": 1.5, "up_proj": 1.5, "gate_up_proj": 1.5,
        "down_proj": 1.2, "gate": 1.2, "weights_proj": 1.2}


def draw(r, name, shape):
    parts = name.split(".")
    last = parts[-2] if parts[-1] in ("weight", "bias") else parts[-1]
    if last in UNIFORM:
        return r.rand(shape, *UNIFORM[last])
    if last == "k_norm":
        return r.rand(shape, 0.6, 1.5) if parts[-1] == "weight" else r.randn(shape, 0.3)
    if last == "embed_tokens":
        return r.randn(shape, 0.8) + r.randn((1, shape[1]), 0.5)
    if last == "base":
        out = r.randn(shape, 0.6)
        out[8:] = r.randn((16,), 1.0)
        return out
    if last in NORMAL:
        out = r.randn(shape, NORMAL[last])
        if last == "conv1d":
            out[..., -1] += f32(0.4)
        return out
    return r.randn(shape, GAIN.get(last, 1.0) / math.sqrt(shape[-1]))


def on_disk(name, w):
    """Names and parts as the checkpoint has them."""
    name = re.sub(r"(attn|ffn)_hc\.", r"hc_\1_", name.replace(".forget_gate.", "."))
    if name.endswith("conv1d.weight"):
        yield from ((name.replace("conv1d", x + "_conv1d"), part) for x, part in zip("qkv", np.split(w, 3)))
    elif ".experts." in name:
        for e, one in enumerate(w):
            if "gate_up" in name:
                for x, part in zip(("gate", "up"), np.split(one, 2)):
                    yield name.replace("gate_up_proj", f"{e}.{x}_proj.weight"), part
            else:
                yield name.replace("down_proj", f"{e}.down_proj.weight"), one
    else:
        yield name, w


def encode_tile(source, out):
    stored, r, whole, corrections, passed = load(source), Replay(2202), {}, bytearray(), 0
    shapes = tile_shapes()
    for name in sorted(shapes):
        for disk, w in on_disk(name, draw(r, name, shapes[name])):
            want, bits = stored[disk], np.ascontiguousarray(w, f32).view(np.uint32).astype(np.int64).reshape(-1)
            if "indexer.wq_b" in disk or "indexer.k_norm.bias" in disk:
                whole[disk] = want
                continue
            if want.dtype == np.uint16:
                bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
                wanted = want.astype(np.int64).reshape(-1)
            else:
                wanted = np.ascontiguousarray(want).view(np.uint32).astype(np.int64).reshape(-1)
            previous = -passed
            for i in np.nonzero(wanted != bits)[0]:
                gap, by = int(i) - previous, int(wanted[i] - bits[i])
                assert -128 <= by < 128, (disk, by)
                while gap > 127:
                    corrections.append(gap & 127 | 128)
                    gap >>= 7
                corrections += bytes([gap, by & 255])
                previous = int(i)
            passed = want.size - previous
    whole["corrections"] = np.frombuffer(bytes(corrections), np.uint8)
    save(out, whole)
    digest = 0xCBF29CE484222325  # FNV-1a, 64 bits, over all text tensors in the order of their names
    for k in sorted(k for k in stored if ".visual." not in k):
        for b in stored[k].tobytes():
            digest = (digest ^ b) * 0x100000001B3 & (2**64 - 1)
    print("tile digest", hex(digest))


def main(source):
    here = os.path.dirname(os.path.abspath(__file__))
    for model in ("micro", "tile"):
        shutil.copyfile(f"{source}/{model}/config.json", f"{here}/{model}/config.json")
        out = {}
        for k, a in load(f"{source}/{model}/reference.safetensors").items():
            if kept(model, *k.split(".", 1)):
                out[k] = a.astype(f32) if a.dtype == np.float64 else a
        save(f"{here}/{model}/reference.safetensors", out)
    shutil.copyfile(f"{source}/micro/model.safetensors", f"{here}/micro/model.safetensors")
    encode_tile(f"{source}/tile/model.safetensors", f"{here}/tile/weights.safetensors")


if __name__ == "__main__":
    main(sys.argv[1])
