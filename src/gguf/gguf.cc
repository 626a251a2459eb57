#include "gguf/gguf.h"

#include <fmt/core.h>

#include <optional>

#include "base/printable.h"
#include "gguf/shard.h"

namespace glint::gguf {
namespace {

// PREFIX-0000i-of-0000N.gguf
struct SplitName {
  std::string prefix;
  uint64_t number = 0, count = 0;  // number from 1
};

std::optional<SplitName> ParseSplitName(const std::string& path) {
  constexpr std::string_view kShape = "-#####-of-#####.gguf";
  if (path.size() <= kShape.size()) return std::nullopt;
  SplitName name;
  name.prefix = path.substr(0, path.size() - kShape.size());
  uint64_t numbers[2] = {0, 0};
  for (size_t i = 0; i < kShape.size(); ++i) {
    const char c = path[name.prefix.size() + i];
    if (kShape[i] != '#') {
      if (c != kShape[i]) return std::nullopt;
    } else {
      if (c < '0' || c > '9') return std::nullopt;
      uint64_t& number = numbers[i < 8 ? 0 : 1];
      number = number * 10 + static_cast<uint64_t>(c - '0');
    }
  }
  name.number = numbers[0], name.count = numbers[1];
  return name;
}

Status Bad(const std::string& path, std::string_view what) {
  return {Code::kBadFile, fmt::format("{}: {}", Printable(path), what)};
}

// Whether a shard says that it is the one its name says it is.
Status CheckPlace(const Shard& shard, const std::string& path, size_t index, size_t count) {
  uint64_t stated_count = 0, stated_number = 0;
  const Value* const count_value = shard.Find("split.count");
  const Value* const number_value = shard.Find("split.no");
  if (count_value == nullptr && count == 1) return {};
  if (count_value == nullptr || !AsUint(*count_value, stated_count)) {
    return Bad(path, fmt::format("has no number 'split.count', so it is not part {} of {} as its name says",
                                 index + 1, count));
  }
  if (stated_count <= 1 && count == 1) return {};
  if (count == 1) {
    return Bad(path, fmt::format("'split.count' is {}: this is one part of a set; it must be named "
                                 "...-0000i-of-{:05}.gguf and lie beside the others",
                                 stated_count, stated_count));
  }
  if (stated_count != count) {
    return Bad(path,
               fmt::format("'split.count' is {} in a file named as one of {} parts", stated_count, count));
  }
  if (number_value == nullptr || !AsUint(*number_value, stated_number) || stated_number != index) {
    return Bad(path,
               fmt::format("'split.no' should be {}, for this is named part {}; it is {}", index, index + 1,
                           number_value == nullptr ? "missing" : std::to_string(stated_number)));
  }
  return {};
}

// Later shards may repeat keys of the first, with the same values; their alignment is their own.
Status CheckAgrees(const Shard& first, const Shard& shard, const std::string& first_path,
                   const std::string& path) {
  for (const auto& [key, value] : shard.metadata) {
    if (key.starts_with("split.") || key == "general.alignment") continue;
    const Value* const there = first.Find(key);
    if (there != nullptr && !Equal(*there, value)) {
      return Bad(path, fmt::format("key {} differs from that of {}: the files are parts of different sets",
                                   Quoted(key), Printable(first_path)));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> SplitPaths(const std::string& path) {
  const auto name = ParseSplitName(path);
  if (!name) return std::vector<std::string>{path};
  if (name->number < 1 || name->number > name->count || name->count > 65535) {
    return Status(Code::kBadInput,
                  fmt::format("{}: part {} of {} cannot be; parts are numbered from 1 to at most 65535",
                              Printable(path), name->number, name->count));
  }
  std::vector<std::string> paths;
  for (uint64_t i = 1; i <= name->count; ++i) {
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", name->prefix, i, name->count));
  }
  return paths;
}

Result<File> File::Open(const std::string& path, BlockSizeOf block_size) {
  auto paths = SplitPaths(path);
  if (!paths.ok()) return paths.status();
  File file;
  file.paths_ = *std::move(paths);
  const size_t count = file.paths_.size();
  std::vector<Shard> shards;
  for (size_t i = 0; i < count; ++i) {
    const std::string& shard_path = file.paths_[i];
    auto mapped = MappedFile::Open(shard_path);
    if (!mapped.ok()) {
      if (count == 1) return mapped.status();
      return Status(mapped.status().code(), fmt::format("{} (part {} of the {} of its set)",
                                                        mapped.status().message(), i + 1, count));
    }
    file.files_.push_back(*std::move(mapped));
    auto shard = ReadShard(file.files_.back(), block_size);
    if (!shard.ok()) return shard.status();
    if (Status s = CheckPlace(*shard, shard_path, i, count); !s.ok()) return s;
    shards.push_back(*std::move(shard));
    if (Status s = CheckAgrees(shards[0], shards[i], file.paths_[0], shard_path); !s.ok()) return s;
    for (TensorInfo& tensor : shards[i].tensors) {
      tensor.file = static_cast<int>(i);
      const auto [there, fresh] = file.tensor_index_.emplace(tensor.name, file.tensors_.size());
      if (!fresh) {
        const auto other = static_cast<size_t>(file.tensors_[there->second].file);
        return Bad(shard_path,
                   fmt::format("tensor {} is in {} too", Quoted(tensor.name), Printable(file.paths_[other])));
      }
      file.tensors_.push_back(std::move(tensor));
    }
  }
  for (size_t i = 0; i < count; ++i) {  // each part states the total of the set
    const Value* const total = shards[i].Find("split.tensors.count");
    uint64_t stated = 0;
    if (total == nullptr || (AsUint(*total, stated) && stated == file.tensors_.size())) continue;
    return Bad(
        file.paths_[i],
        fmt::format("'split.tensors.count' should be the number of tensors in all parts, {}; it is {}",
                    file.tensors_.size(), AsUint(*total, stated) ? std::to_string(stated) : "no number"));
  }
  file.version_ = shards[0].version;
  file.metadata_ = std::move(shards[0].metadata);
  for (size_t i = 0; i < file.metadata_.size(); ++i) file.metadata_index_.emplace(file.metadata_[i].first, i);
  return file;
}

uint64_t File::file_bytes() const {
  uint64_t sum = 0;
  for (const MappedFile& file : files_) sum += file.bytes().size();
  return sum;
}

const Value* File::Find(std::string_view key) const {
  const auto at = metadata_index_.find(std::string(key));
  return at == metadata_index_.end() ? nullptr : &metadata_[at->second].second;
}

const TensorInfo* File::FindTensor(std::string_view name) const {
  const auto at = tensor_index_.find(std::string(name));
  return at == tensor_index_.end() ? nullptr : &tensors_[at->second];
}

namespace {

// Conversions of one value; false if it is of another kind or does not fit.
bool As(const Value& value, uint64_t& out) { return AsUint(value, out); }
bool As(const Value& value, double& out) {
  const auto* d = std::get_if<double>(&value.data);
  if (d != nullptr) out = *d;
  return d != nullptr;
}
bool As(const Value& value, bool& out) {
  const auto* b = std::get_if<bool>(&value.data);
  if (b != nullptr) out = *b;
  return b != nullptr;
}
bool As(const Value& value, std::string& out) {
  const auto* s = std::get_if<std::string_view>(&value.data);
  if (s != nullptr) out = *s;
  return s != nullptr;
}

// What a value is, for a message; whole numbers themselves, for they may only be out of range.
std::string Describe(const Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value.data)) return fmt::format("{} {}", Name(value.kind), *i);
  if (const auto* u = std::get_if<uint64_t>(&value.data)) return fmt::format("{} {}", Name(value.kind), *u);
  if (const auto* a = std::get_if<std::shared_ptr<const Array>>(&value.data)) {
    return fmt::format("array of {}", Name((*a)->element));
  }
  return std::string(Name(value.kind));
}

Status Missing(const File& file, std::string_view key) {
  return {Code::kNotFound, fmt::format("{}: key {} is missing", Printable(file.paths()[0]), Quoted(key))};
}

Status WrongKind(const File& file, std::string_view key, const Value& value, std::string_view wanted) {
  return {Code::kBadFile, fmt::format("{}: key {} is of type {}; wanted is {}", Printable(file.paths()[0]),
                                      Quoted(key), Describe(value), wanted)};
}

template <class T>
Result<T> GetOne(const File& file, std::string_view key, std::string_view wanted) {
  const Value* const value = file.Find(key);
  if (value == nullptr) return Missing(file, key);
  T out{};
  if (!As(*value, out)) return WrongKind(file, key, *value, wanted);
  return out;
}

template <class T>
Result<std::vector<T>> GetMany(const File& file, std::string_view key, std::string_view wanted) {
  const Value* const value = file.Find(key);
  if (value == nullptr) return Missing(file, key);
  const auto* array = std::get_if<std::shared_ptr<const Array>>(&value->data);
  std::vector<T> out;
  T element{};
  if (array == nullptr) {
    if (!As(*value, element)) return WrongKind(file, key, *value, wanted);
    out.push_back(std::move(element));
    return out;
  }
  out.reserve((*array)->values.size());
  for (const Value& item : (*array)->values) {
    if (!As(item, element)) return WrongKind(file, fmt::format("{}[{}]", key, out.size()), item, wanted);
    out.push_back(element);
  }
  return out;
}

}  // namespace

Result<uint64_t> File::GetUint(std::string_view key) const {
  return GetOne<uint64_t>(*this, key, "a whole number of at least 0");
}
Result<double> File::GetFloat(std::string_view key) const { return GetOne<double>(*this, key, "f32"); }
Result<bool> File::GetBool(std::string_view key) const { return GetOne<bool>(*this, key, "bool"); }
Result<std::string> File::GetString(std::string_view key) const {
  return GetOne<std::string>(*this, key, "string");
}
Result<std::vector<uint64_t>> File::GetUints(std::string_view key) const {
  return GetMany<uint64_t>(*this, key, "whole numbers of at least 0");
}
Result<std::vector<double>> File::GetFloats(std::string_view key) const {
  return GetMany<double>(*this, key, "f32 values");
}
Result<std::vector<std::string>> File::GetStrings(std::string_view key) const {
  return GetMany<std::string>(*this, key, "strings");
}

}  // namespace glint::gguf
