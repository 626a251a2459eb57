// Random models of any shape, made in memory without a file.
//
// Every number comes from a counter-based generator, SplitMix64's output function on key + counter * 0x9E3779B97F4A7C15, so any
// part can be made on its own: bits depend on seed and spec alone, not on threads or order.
//   key of a tensor  Mix(seed ^ FNV-1a(dialect A name))
//   vector entry i   from counter i of the tensor's key
//   matrix           chunk i (one block, or 32 weights of a float type) is chunk `counter i mod 256` of a pool. The pool of a
//                    (type, standard deviation) holds 256 chunks of normal-like weights, encoded as the format's own encoder
//                    does; its key is Mix(seed ^ type << 32 ^ bits of the deviation as float).
// Encoding a pool once instead of every weight makes a model at the speed of memory.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "base/address_range.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "model/arena.h"
#include "model/glm_flash/bind.h"
#include "model/glm_flash/synthetic_spec.h"
#include "model/model_data.h"
#include "text/byte_alphabet.h"

namespace glint::model {
namespace {

constexpr uint64_t kFloatChunk = 32;  // weights copied at once where blocks are single weights

uint64_t Mix(uint64_t z) { return SyntheticFill::Mix(z); }
uint64_t Draw(uint64_t key, uint64_t counter) { return SyntheticFill::Draw(key, counter); }

uint64_t Fnv(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// Near normal, mean 0, deviation 1, within 3.5: the sum of four uniform 16-bit numbers. Exact, so no library's logarithm
// decides a bit.
float Normal(uint64_t key, uint64_t counter) {
  const uint64_t bits = Draw(key, counter);
  int32_t sum = -2 * 65535;
  for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int32_t>(bits >> shift & 0xffff);
  return static_cast<float>(sum) *
         static_cast<float>(1.7320508 / 65536);  // deviation of one: 65536 / sqrt(12)
}
// In [low, high).
float Uniform(uint64_t key, uint64_t counter, float low, float high) {
  return low + (high - low) * (static_cast<float>(Draw(key, counter) >> 40) * 0x1p-24f);
}

// Deviation of a matrix's weights: rows of a normalised input then come out with entries near 1.
float Deviation(const Tensor& tensor) {
  if (tensor.id() == TensorId::kEmbedding) return 1;
  return 1 / std::sqrt(static_cast<float>(tensor.shape.columns));
}

// Ranges that trained models of this kind have: gates that neither close nor saturate, norms near one, streams that mix mildly.
float VectorEntry(const HParams& hp, const Tensor& tensor, uint64_t key, uint64_t i) {
  const float n = Normal(key, i);
  switch (tensor.id()) {
    case TensorId::kKdaA:
      return Uniform(key, i, 0.5f, 4);
    case TensorId::kKdaDt:
      return Uniform(key, i, -4, -1);
    case TensorId::kKdaConvQ:
    case TensorId::kKdaConvK:
    case TensorId::kKdaConvV:
      return 0.5f * n;
    case TensorId::kHcAttnScale:
    case TensorId::kHcFfnScale:
      return 0.5f + 0.1f * n;
    case TensorId::kHcAttnBase:
    case TensorId::kHcFfnBase: {
      const auto streams = static_cast<uint64_t>(hp.hc_mult);
      const bool diagonal = i >= 2 * streams && (i - 2 * streams) % (streams + 1) == 0;
      return 0.3f * n + (diagonal ? 2.0f : 0.0f);
    }
    case TensorId::kIndexNormBias:
      return 0.1f * n;
    case TensorId::kIndexApe:
      return 0.5f * n;
    case TensorId::kRouterBias:
      return 0.05f * n;
    default:
      return 1 + 0.1f * n;  // norms
  }
}

// Encoded chunks of one type and deviation.
SyntheticFill::Pool MakePool(const quant::Format& format, float deviation, uint64_t seed) {
  const uint64_t key =
      Mix(seed ^ uint64_t{static_cast<uint32_t>(format.type)} << 32 ^ std::bit_cast<uint32_t>(deviation));
  const size_t chunk_weights = format.block_weights == 1 ? kFloatChunk : format.block_weights;
  SyntheticFill::Pool pool;
  pool.chunk_bytes = chunk_weights / format.block_weights * format.block_bytes;
  std::vector<float> weights(SyntheticFill::kChunks * chunk_weights);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = deviation * Normal(key, i);
  pool.bytes.resize(SyntheticFill::kChunks * pool.chunk_bytes);
  format.encode(weights.data(), nullptr, pool.bytes.data(), weights.size());
  return pool;
}

// Where the weights lie, or the addresses that stand for them.
struct Memory {
  Arena arena;
  std::optional<AddressRange> elsewhere;
};
constexpr uint64_t kAlignment = 64;  // of every matrix

class Generator {
 public:
  Generator(const SyntheticSpec& spec, Memory& memory, ThreadPool& threads)
      : spec_(spec), memory_(memory), threads_(threads) {}

  Result<Matrix> MakeMatrix(const Tensor& tensor) {
    const quant::Type type = spec_.recipe.TypeFor(tensor, spec_.hparams.layers);
    const quant::Format& format = *quant::Find(type);
    auto row_bytes = quant::RowBytes(format, static_cast<uint64_t>(tensor.shape.columns));
    if (!row_bytes.ok()) return row_bytes.status();
    const uint64_t bytes = TensorBytes(tensor, type);
    const SyntheticFill::Source source{PoolFor(format, Deviation(tensor)),
                                       Mix(spec_.seed ^ Fnv(tensor.Name()))};
    Matrix matrix{type,    tensor.shape.columns,           tensor.shape.rows, tensor.shape.slices,
                  nullptr, static_cast<size_t>(*row_bytes)};
    if (memory_.elsewhere) {
      matrix.data = memory_.elsewhere->data() + reserved_;
      reserved_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      fill_.matrices.emplace(matrix.data, source);
      return matrix;
    }
    auto memory = memory_.arena.Bytes(bytes, tensor.Name());
    if (!memory.ok()) return memory.status();
    Fill(*memory, source);
    matrix.data = memory->data();
    return matrix;
  }

  Result<Vector> MakeVector(const Tensor& tensor) {
    auto values = memory_.arena.Floats(static_cast<uint64_t>(tensor.shape.count()), tensor.Name());
    if (!values.ok()) return values.status();
    const uint64_t key = Mix(spec_.seed ^ Fnv(tensor.Name()));
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = VectorEntry(spec_.hparams, tensor, key, i);
    return Vector(*values);
  }

  SyntheticFill TakeFill() { return std::move(fill_); }

 private:
  size_t PoolFor(const quant::Format& format, float deviation) {
    auto [it, fresh] = pools_.try_emplace({format.type, deviation}, fill_.pools.size());
    if (fresh) fill_.pools.push_back(MakePool(format, deviation, spec_.seed));
    return it->second;
  }

  void Fill(std::span<std::byte> out, const SyntheticFill::Source& source) {
    const size_t grain = 4096 * fill_.pools[source.pool].chunk_bytes;
    threads_.ParallelFor(out.size(), grain, [&](size_t begin, size_t end, int) {
      fill_.Read(source, begin, out.subspan(begin, end - begin));
    });
  }

  const SyntheticSpec& spec_;
  Memory& memory_;
  ThreadPool& threads_;
  SyntheticFill fill_;
  std::map<std::pair<quant::Type, float>, size_t> pools_;
  uint64_t reserved_ = 0;
};

// 256 single bytes, then the special tokens that a conversation needs; other rows are padding.
std::optional<text::TokenizerData> ByteTokenizer(int64_t vocab) {
  struct Special {
    const char* text;
    text::TokenKind kind;
    bool stops;
  };
  using text::TokenKind;
  constexpr Special kSpecials[] = {
      {"<|endoftext|>", TokenKind::kControl, true},   {"[gMASK]", TokenKind::kControl, false},
      {"<sop>", TokenKind::kControl, false},          {"<|system|>", TokenKind::kControl, false},
      {"<|user|>", TokenKind::kControl, true},        {"<|assistant|>", TokenKind::kControl, false},
      {"<|observation|>", TokenKind::kControl, true}, {"<think>", TokenKind::kUserDefined, false},
      {"</think>", TokenKind::kUserDefined, false},
  };
  constexpr int64_t kBytes = 256;
  if (vocab < kBytes + std::ssize(kSpecials)) return std::nullopt;
  text::TokenizerData data;
  for (int64_t b = 0; b < kBytes; ++b) {
    const char byte = static_cast<char>(static_cast<uint8_t>(b));
    data.tokens.push_back(text::ToAlphabet({&byte, 1}));
    data.kinds.push_back(TokenKind::kNormal);
  }
  for (const Special& special : kSpecials) {
    if (special.stops) data.stop_ids.push_back(static_cast<int32_t>(data.tokens.size()));
    data.tokens.emplace_back(special.text);
    data.kinds.push_back(special.kind);
  }
  data.pad_id = static_cast<int32_t>(kBytes);
  while (std::ssize(data.tokens) < vocab) {
    data.tokens.push_back(fmt::format("[PAD{}]", data.tokens.size()));
    data.kinds.push_back(TokenKind::kUnused);
  }
  return data;
}

Status CheckEncodable(const SyntheticSpec& spec, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    const quant::Type type = spec.recipe.TypeFor(tensor, spec.hparams.layers);
    const quant::Format* format = quant::Find(type);
    if (format != nullptr && format->encode != nullptr) continue;
    return {Code::kUnsupported,
            fmt::format("{}: the recipe wants type {}, which glint can not make; it makes {}", tensor.Name(),
                        quant::Name(type), quant::EncodableNames())};
  }
  return {};
}

}  // namespace

Result<ModelData> LoadSynthetic(const std::string& text, const LoadOptions& options) {
  auto spec = ParseSynthetic(text);
  if (!spec.ok()) return spec.status();
  if (options.require_mtp && spec->hparams.nextn_layers == 0) {
    return Status(Code::kBadInput, "the MTP block was asked for, but the synthetic model has none (mtp=0)");
  }
  if (!options.mtp && !options.require_mtp) spec->hparams.nextn_layers = 0;
  const HParams& hp = spec->hparams;
  const auto tensors = ListTensors(hp);
  if (Status s = CheckEncodable(*spec, tensors); !s.ok()) return s;

  // Stops where it can no longer fit, so that absurd shapes do not overflow the sums.
  const MemoryRoom room = AvailableMemory();
  uint64_t total = 0, elsewhere = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const uint64_t bytes = tensor.kind->vector != nullptr
                               ? static_cast<uint64_t>(tensor.shape.count()) * sizeof(float)
                               : TensorBytes(tensor, spec->recipe.TypeFor(tensor, hp.layers));
    if (options.weights_elsewhere && tensor.kind->matrix != nullptr) {
      elsewhere += std::min((bytes + kAlignment - 1) / kAlignment * kAlignment, uint64_t{1} << 62);
      if (elsewhere > uint64_t{1} << 62) break;  // AddressRange refuses it
    } else {
      total += bytes;
    }
    if (total > room.bytes && (i + 1 == tensors.size() || total > uint64_t{1} << 62)) {
      return Status(Code::kNoRoom, fmt::format("{} needs {} for its weights, but {} leaves {}", text,
                                               FormatBytes(total), room.limited_by, FormatBytes(room.bytes)));
    }
  }

  auto memory = std::make_shared<Memory>();
  if (options.weights_elsewhere) {
    auto range = AddressRange::Reserve(elsewhere);
    if (!range.ok())
      return Status(range.status().code(), fmt::format("{}: {}", text, range.status().message()));
    memory->elsewhere.emplace(std::move(*range));
  }
  ThreadPool threads(AvailableCores());
  Generator generator(*spec, *memory, threads);
  ModelData model;
  model.name = text.substr(0, text.find(','));
  model.origin = text;
  model.dialect = "synthetic";
  model.weights = EmptyWeights(hp);
  for (const Tensor& tensor : tensors) {
    if (options.progress && !options.progress(std::min(memory->arena.bytes(), total), total)) {
      return Status(Code::kBadInput, "interrupted");
    }
    const Site site = SiteOf(model.weights, hp, tensor.block);
    if (tensor.kind->matrix != nullptr) {
      auto matrix = generator.MakeMatrix(tensor);
      if (!matrix.ok()) return matrix.status();
      *tensor.kind->matrix(site) = *matrix;
    } else {
      auto vector = generator.MakeVector(tensor);
      if (!vector.ok()) return vector.status();
      *tensor.kind->vector(site) = *vector;
    }
  }
  if (options.progress && !options.progress(total, total)) return Status(Code::kBadInput, "interrupted");
  model.hparams = hp;
  model.tokenizer = ByteTokenizer(hp.vocab_size);
  if (options.weights_elsewhere) {
    model.synthetic = std::make_shared<const SyntheticFill>(generator.TakeFill());
  }
  model.memory = std::move(memory);
  return model;
}

}  // namespace glint::model
