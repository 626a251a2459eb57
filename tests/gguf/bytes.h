// Builds GGUF and safetensors files byte by byte, from the published formats and without glint's writer.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace glint::test {

template <class T>
void Put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

inline void PutText(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

// F32, F16, Q8_0 and Q4_K: enough types to see sizes right. All others are unknown.
inline gguf::BlockSize FewTypes(uint32_t type) {
  switch (type) {
    case 0:
      return {1, 4};
    case 1:
      return {1, 2};
    case 8:
      return {32, 34};
    case 12:
      return {256, 144};
    default:
      return {0, 0};
  }
}

struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> ne;
    uint32_t type;
    std::string data;
  };
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; a key only if `alignment_key`
  bool alignment_key = false;
  uint64_t keys = 0;
  std::string metadata;  // encoded
  std::vector<Tensor> tensors;

  template <class T>
  void Key(std::string_view key, uint32_t kind, T value) {
    ++keys;
    PutText(metadata, key);
    Put(metadata, kind);
    Put(metadata, value);
  }
  void Text(std::string_view key, std::string_view value) {
    ++keys;
    PutText(metadata, key);
    Put<uint32_t>(metadata, 8);
    PutText(metadata, value);
  }
  template <class T>
  void Numbers(std::string_view key, uint32_t kind, const std::vector<T>& values) {
    ++keys;
    PutText(metadata, key);
    Put<uint32_t>(metadata, 9);
    Put(metadata, kind);
    Put<uint64_t>(metadata, values.size());
    for (const T value : values) Put(metadata, value);
  }
  void Texts(std::string_view key, const std::vector<std::string>& values) {
    ++keys;
    PutText(metadata, key);
    Put<uint32_t>(metadata, 9);
    Put<uint32_t>(metadata, 8);
    Put<uint64_t>(metadata, values.size());
    for (const auto& value : values) PutText(metadata, value);
  }
  void Split(uint16_t number, uint16_t count, int32_t total) {
    Key<uint16_t>("split.no", 2, number);
    Key<uint16_t>("split.count", 2, count);
    Key<int32_t>("split.tensors.count", 5, total);
  }

  std::string Bytes() const {
    std::string out = "GGUF";
    Put(out, version);
    Put<uint64_t>(out, tensors.size());
    std::string all_keys = metadata;
    if (alignment_key) {
      PutText(all_keys, "general.alignment");
      Put<uint32_t>(all_keys, 4);
      Put(all_keys, static_cast<uint32_t>(alignment));
    }
    Put<uint64_t>(out, keys + (alignment_key ? 1 : 0));
    out += all_keys;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      PutText(out, tensor.name);
      Put(out, static_cast<uint32_t>(tensor.ne.size()));
      for (const uint64_t n : tensor.ne) Put(out, n);
      Put(out, tensor.type);
      Put(out, offset);
      offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    for (const Tensor& tensor : tensors) {
      out.resize((out.size() + alignment - 1) / alignment * alignment);
      out += tensor.data;
    }
    // Padded after the last tensor too, as other writers do.
    if (!tensors.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out;
  }
};

// A file with a value of each kind and tensors of several types and shapes.
inline GgufBytes GoodGguf() {
  GgufBytes file;
  file.Text("general.architecture", "glm5next");
  file.Text("general.name", "fox \x1b[31m\xff");  // any bytes are legal in a value
  file.Key<uint8_t>("k.u8", 0, 200);
  file.Key<int8_t>("k.i8", 1, -100);
  file.Key<uint16_t>("k.u16", 2, 60000);
  file.Key<int16_t>("k.i16", 3, -30000);
  file.Key<uint32_t>("k.u32", 4, 4000000000u);
  file.Key<int32_t>("k.i32", 5, -2000000000);
  file.Key<float>("k.f32", 6, 1e-5f);
  file.Key<uint8_t>("k.bool", 7, 1);
  file.Key<uint64_t>("k.u64", 10, 1ull << 63);
  file.Key<int64_t>("k.i64", 11, -(1ll << 62));
  file.Key<double>("k.f64", 12, 0.1);
  file.Numbers<int32_t>("k.i32s", 5, {0, 0, 1, 0});
  file.Numbers<float>("k.f32s", 6, {1.5f, -2.0f});
  file.Numbers<uint8_t>("k.bools", 7, {1, 0, 1});
  file.Texts("k.texts", {"a", "", "狐"});
  const auto data = [](size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 37 + bytes);
    return out;
  };
  file.tensors = {{"token_embd.weight", {32, 3}, 0, data(384)},
                  {"blk.0.attn_q.weight", {64, 2}, 8, data(136)},
                  {"blk.0.ssm_conv1d_q.weight", {4, 1, 5, 1}, 0, data(80)},
                  {"blk.0.ffn_up_exps.weight", {256, 2, 3}, 12, data(864)},
                  {"output_norm.weight", {7}, 1, data(14)}};
  return file;
}

// header: the JSON text; padded with spaces to 8 bytes as the reference writer does.
inline std::string SafetensorsBytes(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out;
  PutText(out, header);
  return out += data;
}

inline std::string GoodSafetensors() {
  std::string data(96 + 12 + 6, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 41 + 7);
  return SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"model.embed.weight":{"dtype":"F32","shape":[4,6],"data_offsets":[0,96]},)"
      R"("model.norm.weight":{"dtype":"BF16","shape":[6],"data_offsets":[96,108]},)"
      R"("model.scale":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[108,114]},)"
      R"("model.none":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})",
      data);
}

}  // namespace glint::test
