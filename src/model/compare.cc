#include "model/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "model/glm_flash/gguf_source.h"
#include "quant/format.h"

namespace glint::model {
namespace {

constexpr size_t kLeastBlock = 32;                       // where both types keep weights alone
constexpr size_t kBatchWeights = size_t{1} << 20;        // decoded between two reports of progress
constexpr size_t kShownElements = 4, kShownBytes = 100;  // of arrays and strings

std::string Shown(const gguf::Value& value) {
  struct Show {
    std::string operator()(std::string_view text) const {
      if (text.size() <= kShownBytes) return fmt::format("\"{}\"", text);
      size_t cut = kShownBytes;  // not inside a character
      while (cut > kShownBytes - 3 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
      return fmt::format("\"{}\"...", text.substr(0, cut));
    }
    std::string operator()(const std::shared_ptr<const gguf::Array>& array) const {
      std::string out = fmt::format("{}[{}]", gguf::Name(array->element), array->values.size());
      for (size_t i = 0; i < std::min(array->values.size(), kShownElements); ++i)
        out += (i == 0 ? " " : ", ") + Shown(array->values[i]);
      return out + (array->values.size() > kShownElements ? ", ..." : "");
    }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(uint64_t x) const { return fmt::format("{}", x); }
    std::string operator()(int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return fmt::format("{}", x); }
  };
  return std::visit(Show{}, value.data);
}

void CompareKeys(const gguf::File& a, const gguf::File& b, FileComparison& out) {
  const auto counts = [](const std::string& key) { return !key.starts_with("split."); };
  for (const auto& [key, value] : a.metadata()) {
    const gguf::Value* const other = b.Find(key);
    if (!counts(key) || (other != nullptr && gguf::Equal(value, *other))) continue;
    std::string x = Shown(value), y = other == nullptr ? "" : Shown(*other);
    // Long values, and those of two kinds, can look alike.
    if (x == y)
      y = other->kind == value.kind ? "another that begins alike"
                                    : fmt::format("{} ({})", y, gguf::Name(other->kind));
    out.keys.push_back({key, std::move(x), std::move(y)});
  }
  for (const auto& [key, value] : b.metadata())
    if (counts(key) && a.Find(key) == nullptr) out.keys.push_back({key, "", Shown(value)});
}

// One tensor of one file: its format, and the factors that a second tensor gives its slices.
struct Side {
  const gguf::TensorInfo* info = nullptr;
  const quant::Format* format = nullptr;
  std::vector<float> factors;  // one, or one a slice; empty: none
  size_t row_bytes = 0;

  Side(const gguf::File& file, const gguf::TensorInfo& tensor)
      : info(&tensor), format(quant::Find(static_cast<quant::Type>(tensor.type))) {
    constexpr std::string_view kWeight = ".weight";
    if (!tensor.name.ends_with(kWeight)) return;
    const std::string stem = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    for (const std::string& name : {stem + ".scale", tensor.name + ".scale"}) {
      const gguf::TensorInfo* const scale = file.FindTensor(name);
      if (scale == nullptr || scale->type != static_cast<uint32_t>(quant::Type::kF32) ||
          (scale->elements() != 1 && scale->elements() != tensor.ne[2] * tensor.ne[3]))
        continue;
      factors.resize(static_cast<size_t>(scale->elements()));
      std::memcpy(factors.data(), scale->data, factors.size() * sizeof(float));
      return;
    }
  }
  bool Runnable() const { return format != nullptr && format->runnable(); }
  void Decode(uint64_t row, float* out) const {
    const auto columns = static_cast<size_t>(info->ne[0]);
    format->decode(info->data + row * row_bytes, out, columns);
    if (factors.empty()) return;
    const float factor = factors.size() == 1 ? factors[0] : factors[static_cast<size_t>(row / info->ne[1])];
    for (size_t c = 0; c < columns; ++c) out[c] *= factor;
  }
};

struct RowDifference {
  double error = 0, square = 0, worst = 0;
  size_t worst_column = 0;
  uint64_t not_numbers = 0;
};

RowDifference Differ(const float* a, const float* b, size_t columns, size_t block) {
  RowDifference out;
  for (size_t begin = 0; begin < columns; begin += block) {
    const size_t end = std::min(begin + block, columns);
    double error = 0;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
        ++out.not_numbers;
        continue;
      }
      const double x = a[i], off = x - b[i];
      error += off * off;
      out.square += x * x;
    }
    out.error += error;
    if (error / static_cast<double>(end - begin) > out.worst) {
      out.worst = error / static_cast<double>(end - begin);
      out.worst_column = begin;
    }
  }
  return out;
}

class Comparer {
 public:
  Comparer(const gguf::File& a, const gguf::File& b, int threads, const Progress& progress)
      : a_(a), b_(b), threads_(threads > 0 ? threads : AvailableCores()), progress_(progress) {
    for (const gguf::TensorInfo& t : a.tensors())
      if (b.FindTensor(t.name) != nullptr) total_ += t.bytes;
  }

  Status Tensor(const gguf::TensorInfo& in_a, const gguf::TensorInfo& in_b, TensorDifference& out) {
    Side a(a_, in_a), b(b_, in_b);
    const auto name = [](const Side& s) {
      return s.format != nullptr ? std::string(s.format->name) : fmt::format("type {}", s.info->type);
    };
    out.name = in_a.name;
    out.type_a = name(a), out.type_b = name(b);
    out.bytes_a = in_a.bytes, out.bytes_b = in_b.bytes;
    if (in_a.ne != in_b.ne)
      out.incomparable = fmt::format("shapes {} and {}", Shape(in_a), Shape(in_b));
    else if (in_a.type == in_b.type && !a.Runnable() && in_a.bytes > 0)
      out.same = std::memcmp(in_a.data, in_b.data, static_cast<size_t>(in_a.bytes)) == 0;
    if (out.same) return Report(in_a.bytes);
    if (out.incomparable.empty() && (!a.Runnable() || !b.Runnable()))
      out.incomparable =
          fmt::format("weights of {} can not be decoded", (a.Runnable() ? out.type_b : out.type_a));
    if (!out.incomparable.empty()) return Report(in_a.bytes);
    out.same = in_a.type == in_b.type && a.factors == b.factors;
    const uint64_t rows = in_a.elements() / std::max<uint64_t>(in_a.ne[0], 1);
    if (rows == 0 || in_a.ne[0] == 0) return {};
    a.row_bytes = static_cast<size_t>(in_a.bytes / rows),
    b.row_bytes = static_cast<size_t>(in_b.bytes / rows);
    return Weights(a, b, rows, out);
  }

 private:
  static std::string Shape(const gguf::TensorInfo& t) {
    std::string out;
    for (int i = 0; i < std::max(t.dims, 1); ++i)
      out += fmt::format("{}{}", i == 0 ? "" : "x", t.ne[static_cast<size_t>(i)]);
    return out;
  }

  Status Report(uint64_t bytes) {
    done_ += bytes;
    if (progress_ && !progress_(done_, total_)) return {Code::kBadInput, "interrupted"};
    return {};
  }

  Status Weights(const Side& a, const Side& b, uint64_t rows, TensorDifference& out) {
    const auto columns = static_cast<size_t>(a.info->ne[0]);
    const size_t block = std::max({a.format->block_weights, b.format->block_weights, kLeastBlock});
    const uint64_t batch = std::clamp<uint64_t>(kBatchWeights / columns, 1, rows);
    std::vector<RowDifference> found(static_cast<size_t>(batch));
    std::vector<float> decoded(static_cast<size_t>(threads_.threads()) * 2 * columns);
    double error = 0, square = 0, worst = 0;
    for (uint64_t first = 0; first < rows; first += batch) {
      const auto count = static_cast<size_t>(std::min(batch, rows - first));
      const std::span<const std::byte> in_a{a.info->data + first * a.row_bytes, count * a.row_bytes};
      const std::span<const std::byte> in_b{b.info->data + first * b.row_bytes, count * b.row_bytes};
      if (!out.same || std::memcmp(in_a.data(), in_b.data(), in_a.size()) != 0) out.same = false;
      threads_.ParallelFor(count, 1, [&](size_t begin, size_t end, int worker) {
        float* const x = decoded.data() + static_cast<size_t>(worker) * 2 * columns;
        for (size_t r = begin; r < end; ++r) {
          a.Decode(first + r, x);
          b.Decode(first + r, x + columns);
          found[r] = Differ(x, x + columns, columns, block);
        }
      });
      // In the order of the rows, whatever the threads did.
      for (size_t r = 0; r < count; ++r) {
        error += found[r].error, square += found[r].square;
        out.not_numbers += found[r].not_numbers;
        if (found[r].worst <= worst) continue;
        worst = found[r].worst;
        out.worst_row = first + r, out.worst_column = found[r].worst_column;
      }
      MappedFile::Release(in_a);
      MappedFile::Release(in_b);
      if (Status s = Report(in_a.size()); !s.ok()) return s;
    }
    if (error == 0) return {};
    const double infinite = std::numeric_limits<double>::infinity();
    const double mean = square / static_cast<double>(a.info->elements());
    out.relative_rms = square > 0 ? std::sqrt(error / square) : infinite;
    out.worst_block = square > 0 ? std::sqrt(worst / mean) : infinite;
    return {};
  }

  const gguf::File &a_, &b_;
  ThreadPool threads_;
  const Progress& progress_;
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

Result<FileComparison> CompareFiles(const std::string& path_a, const std::string& path_b, int threads,
                                    const Progress& progress) {
  const auto a = gguf::File::Open(path_a, BlockSizeOf);
  if (!a.ok()) return a.status();
  const auto b = gguf::File::Open(path_b, BlockSizeOf);
  if (!b.ok()) return b.status();
  FileComparison out;
  out.bytes_a = a->file_bytes(), out.bytes_b = b->file_bytes();
  CompareKeys(*a, *b, out);
  Comparer comparer(*a, *b, threads, progress);
  for (const gguf::TensorInfo& tensor : a->tensors()) {
    const gguf::TensorInfo* const other = b->FindTensor(tensor.name);
    if (other == nullptr) {
      out.only_a.push_back(tensor.name);
      continue;
    }
    if (Status s = comparer.Tensor(tensor, *other, out.tensors.emplace_back()); !s.ok()) return s;
  }
  for (const gguf::TensorInfo& tensor : b->tensors())
    if (a->FindTensor(tensor.name) == nullptr) out.only_b.push_back(tensor.name);
  return out;
}

}  // namespace glint::model
