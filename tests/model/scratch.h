// A directory of its own for a test's files, and safetensors files written by hand.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "gguf/safetensors.h"

namespace glint::model {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "glint-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void WriteText(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

struct RawTensor {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  std::vector<std::byte> bytes;
};

inline std::vector<RawTensor> ReadRaw(const std::string& directory) {
  auto files = gguf::SafeTensors::OpenDirectory(directory);
  EXPECT_TRUE(files.ok()) << files.status().message();
  std::vector<RawTensor> out;
  for (const gguf::SafeTensor& t : files->tensors()) {
    out.push_back({t.name, t.dtype, t.shape, {t.data, t.data + t.bytes}});
  }
  return out;
}

inline RawTensor* FindRaw(std::vector<RawTensor>& tensors, const std::string& name) {
  for (RawTensor& t : tensors) {
    if (t.name == name) return &t;
  }
  ADD_FAILURE() << name;
  return nullptr;
}

inline void WriteRaw(const std::string& path, std::span<const RawTensor> tensors) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const RawTensor& t : tensors) {
    std::string shape;
    for (const uint64_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    header += (header.size() > 1 ? ",\"" : "\"") + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[" +
              shape + "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + t.bytes.size()) + "]}";
    offset += t.bytes.size();
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  std::ofstream out(path, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header;
  for (const RawTensor& t : tensors) {
    out.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
  }
}

inline std::vector<float> Floats(const RawTensor& t) {
  EXPECT_EQ(t.dtype, "F32");
  std::vector<float> out(t.bytes.size() / 4);
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

}  // namespace glint::model
