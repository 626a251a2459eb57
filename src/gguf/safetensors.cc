#include "gguf/safetensors.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/checked.h"
#include "base/json.h"
#include "base/printable.h"
#include "gguf/cursor.h"

namespace glint::gguf {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 16;

struct Dtype {
  std::string_view name;
  uint64_t bits;
};
constexpr Dtype kDtypes[] = {{"F64", 64},    {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},
                             {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
                             {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
                             {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64}};

// Bits of an element; 0 for a type glint does not know.
uint64_t BitsOf(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return known.bits;
  }
  return 0;
}

// One tensor's entry in the header, `offset` still relative to the data.
struct Entry {
  const std::string& path;
  const std::string& name;
  const Json& json;

  Status Bad(std::string_view what) const {
    return {Code::kBadFile, fmt::format("{}: tensor {}: {}", Printable(path), Quoted(name), what)};
  }

  Result<SafeTensor> Read(uint64_t data_start, uint64_t file_bytes) const {
    if (name.empty()) return Bad("an empty name");
    auto dtype = json.Get<std::string>("dtype");
    auto shape = json.Get<std::vector<uint64_t>>("shape");
    const auto offsets = json.Get<std::vector<uint64_t>>("data_offsets");
    if (!dtype.ok()) return Bad(dtype.status().message());
    if (!shape.ok()) return Bad(shape.status().message());
    if (!offsets.ok()) return Bad(offsets.status().message());
    if (shape->size() > kMaxDims)
      return Bad(fmt::format("{} dimensions; at most {} are read", shape->size(), kMaxDims));
    if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
      return Bad("'data_offsets' must be a begin and an end not before it");
    }
    SafeTensor tensor;
    tensor.name = name;
    tensor.dtype = *std::move(dtype);
    tensor.shape = *std::move(shape);
    tensor.bytes = (*offsets)[1] - (*offsets)[0];
    const auto start = CheckedAdd(data_start, (*offsets)[0]);
    if (!start || !Within(*start, tensor.bytes, file_bytes)) {
      return Bad(fmt::format(
          "{} bytes of data at offset 0x{:x} + 0x{:x} reach beyond the end of the file at 0x{:x}; is it "
          "cut short?",
          tensor.bytes, data_start, (*offsets)[0], file_bytes));
    }
    tensor.offset = *start;
    if (Status s = CheckSize(tensor); !s.ok()) return s;
    return tensor;
  }

  Status CheckSize(const SafeTensor& tensor) const {
    const uint64_t bits_each = BitsOf(tensor.dtype);
    if (bits_each == 0) return {};
    std::optional<uint64_t> bits = bits_each;
    // A zero makes the product zero, whatever stands before or after it.
    const bool none = std::find(tensor.shape.begin(), tensor.shape.end(), uint64_t{0}) != tensor.shape.end();
    if (none) bits = 0;
    for (const uint64_t n : tensor.shape) bits = bits ? CheckedMul(*bits, none ? 1 : n) : bits;
    if (!bits || *bits % 8 != 0 || *bits / 8 != tensor.bytes) {
      return Bad(fmt::format("{} bytes of data at offset 0x{:x}; {} of shape [{}] takes {}", tensor.bytes,
                             tensor.offset, tensor.dtype, Shape(tensor),
                             bits ? std::to_string(*bits / 8) : "more than 2^61"));
    }
    return {};
  }

  static std::string Shape(const SafeTensor& tensor) {
    std::string out;
    for (const uint64_t n : tensor.shape) out += (out.empty() ? "" : ", ") + std::to_string(n);
    return out;
  }
};

Status CheckDisjoint(const std::vector<SafeTensor>& tensors, const std::string& path) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) { return std::pair(tensors[i].offset, tensors[i].bytes); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  for (size_t i = 1; i < order.size(); ++i) {
    const SafeTensor &before = tensors[order[i - 1]], &tensor = tensors[order[i]];
    if (before.offset + before.bytes <= tensor.offset) continue;
    return {Code::kBadFile,
            fmt::format("{}: tensor {}: data at offset 0x{:x} overlaps that of {}, 0x{:x} to 0x{:x}",
                        Printable(path), Quoted(tensor.name), tensor.offset, Quoted(before.name),
                        before.offset, before.offset + before.bytes)};
  }
  return {};
}

Status CheckMetadata(const Json& metadata, const std::string& path) {
  const auto& members = metadata.members();
  const bool strings = std::all_of(members.begin(), members.end(),
                                   [](const auto& m) { return m.value.kind() == Json::Kind::kString; });
  if (metadata.kind() == Json::Kind::kObject && strings) return {};
  return {Code::kBadFile, fmt::format("{}: '__metadata__' must be an object of strings", Printable(path))};
}

Result<std::vector<SafeTensor>> ReadTensors(const MappedFile& file) {
  const std::string& path = file.path();
  Cursor in(file.bytes(), path);
  const auto length = in.Number<uint64_t>("the header's length");
  if (in.ok() && length > kMaxHeaderBytes) {
    in.Fail(Code::kBadFile, 0, fmt::format("{} bytes long; safetensors allows {}", length, kMaxHeaderBytes));
  }
  if (in.ok() && length > in.left()) {
    in.Fail(Code::kBadFile, 0,
            fmt::format("{} bytes long, but only {} follow in the file", length, in.left()));
  }
  if (!in.ok()) return in.status();
  const auto* const text = reinterpret_cast<const char*>(file.bytes().data()) + in.at();
  JsonLimits limits;
  limits.depth = 8;
  limits.offset = in.at();
  const auto header = ParseJson({text, static_cast<size_t>(length)}, path, limits);
  if (!header.ok()) return header.status();
  if (header->kind() != Json::Kind::kObject) {
    return Status(Code::kBadFile, fmt::format("{}: the header is {}; wanted is an object (offset 0x8)",
                                              Printable(path), Name(header->kind())));
  }
  std::vector<SafeTensor> tensors;
  for (const auto& [name, json] : header->members()) {
    if (name == "__metadata__") {
      if (Status s = CheckMetadata(json, path); !s.ok()) return s;
      continue;
    }
    auto tensor = Entry{path, name, json}.Read(in.at() + length, file.bytes().size());
    if (!tensor.ok()) return tensor.status();
    tensor->data = file.bytes().data() + tensor->offset;
    tensors.push_back(*std::move(tensor));
  }
  if (Status s = CheckDisjoint(tensors, path); !s.ok()) return s;
  return tensors;
}

bool Exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// A shard is a plain name beside the index: an index from elsewhere must not make us read other places.
bool PlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

Status SafeTensors::Add(const std::string& path) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  auto tensors = ReadTensors(*file);
  if (!tensors.ok()) return tensors.status();
  for (SafeTensor& tensor : *tensors) {
    tensor.file = static_cast<int>(paths_.size());
    const auto [there, fresh] = index_.emplace(tensor.name, tensors_.size());
    if (!fresh) {
      const auto other = static_cast<size_t>(tensors_[there->second].file);
      return {Code::kBadFile, fmt::format("{}: tensor {} is in {} too", Printable(path), Quoted(tensor.name),
                                          Printable(paths_[other]))};
    }
    tensors_.push_back(std::move(tensor));
  }
  paths_.push_back(path);
  files_.push_back(*std::move(file));
  return {};
}

Result<SafeTensors> SafeTensors::OpenFile(const std::string& path) {
  SafeTensors set;
  if (Status s = set.Add(path); !s.ok()) return s;
  return set;
}

Result<SafeTensors> SafeTensors::OpenDirectory(const std::string& directory) {
  const std::string base = directory.ends_with('/') ? directory : directory + "/";
  const std::string index_path = base + "model.safetensors.index.json";
  if (Exists(base + "model.safetensors")) return OpenFile(base + "model.safetensors");
  if (!Exists(index_path)) {
    return Status(Code::kNotFound,
                  fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json",
                              Printable(directory)));
  }
  const auto index = ReadJson(index_path);
  if (!index.ok()) return index.status();
  const auto bad = [&](std::string_view what) {
    return Status(Code::kBadFile, fmt::format("{}: {}", Printable(index_path), what));
  };
  const Json* const map = index->root().Find("weight_map");
  if (map == nullptr || map->kind() != Json::Kind::kObject) return bad("'weight_map' must be an object");

  SafeTensors set;
  std::unordered_map<std::string, int> shards;  // name to number
  for (const auto& [tensor, value] : map->members()) {
    const auto shard = value.Get<std::string>("");
    if (!shard.ok()) return bad(fmt::format("tensor {}: its file is {}", Quoted(tensor), Name(value.kind())));
    if (!PlainName(*shard)) {
      return bad(fmt::format("tensor {}: its file {} is not a plain name in this directory", Quoted(tensor),
                             Quoted(*shard)));
    }
    if (!shards.emplace(*shard, static_cast<int>(shards.size())).second) continue;
    if (Status s = set.Add(base + *shard); !s.ok()) {
      return Status(s.code(), fmt::format("{} (a shard named by {})", s.message(), Printable(index_path)));
    }
  }
  for (const auto& [name, value] : map->members()) {
    const std::string shard = *value.Get<std::string>("");
    const SafeTensor* const tensor = set.Find(name);
    if (tensor == nullptr || tensor->file != shards[shard]) {
      return bad(fmt::format("tensor {} should be in {}, but is {}", Quoted(name), Quoted(shard),
                             tensor == nullptr
                                 ? "in no shard"
                                 : "in " + Printable(set.paths_[static_cast<size_t>(tensor->file)])));
    }
  }
  if (set.tensors_.size() != map->members().size()) {
    std::unordered_set<std::string_view> named;
    for (const auto& member : map->members()) named.insert(member.key);
    for (const SafeTensor& tensor : set.tensors_) {
      if (named.contains(tensor.name)) continue;
      return Status(Code::kBadFile,
                    fmt::format("{}: tensor {} is not in {}; does the file belong to another model?",
                                Printable(set.paths_[static_cast<size_t>(tensor.file)]), Quoted(tensor.name),
                                Printable(index_path)));
    }
  }
  return set;
}

const SafeTensor* SafeTensors::Find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

}  // namespace glint::gguf
