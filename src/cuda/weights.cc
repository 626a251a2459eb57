#include "cuda/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "cuda/retile.h"
#include "cuda/status.h"
#include "cuda/tiles.h"
#include "model/glm_flash/tensors.h"

namespace glint::cuda {
namespace {

constexpr uint64_t kAlignment = 256;  // of everything that kernels are given
// Weights share allocations of about this size: the runtime rounds each up to 2 MiB. Those of a model that is smaller than one get
// an allocation each, so that compute-sanitizer sees reads behind their ends.
constexpr uint64_t kGroupBytes = uint64_t{1} << 30;
// Staging: while the bytes of one buffer travel, the readers fill another. Large enough that starting the readers (some 20 us)
// does not count beside a buffer's time on the link (above 1 ms).
constexpr uint64_t kBufferBytes = uint64_t{64} << 20;
constexpr int kBuffers = 3;
constexpr int kMostReaders = 16;
constexpr uint64_t kRawPadding = 16;  // the kernel fetches whole words

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsPlain(quant::Type type) {
  return type == quant::Type::kF32 || type == quant::Type::kF16 || type == quant::Type::kBF16;
}

std::string UsableTypes() {
  std::string names;
  for (const quant::Format& format : quant::Formats()) {
    if (!IsPlain(format.type) && FindTileLayout(format.type) == nullptr) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  }
  return names;
}

uint64_t DeviceBytes(const model::Matrix& w) { return DeviceSliceBytes(w) * static_cast<uint64_t>(w.slices); }

struct NamedMatrix {
  std::string name;
  const model::Matrix* matrix;
};
struct NamedFloats {
  std::string name;
  std::span<const float> values;
};

// What has to lie on the device. Matrices that share their bytes are one.
struct Inventory {
  std::vector<NamedMatrix> matrices;
  std::vector<NamedFloats> vectors;  // and scales
  uint64_t matrix_bytes = 0, vector_bytes = 0, host_bytes = 0;
};

Inventory Take(const model::Weights& weights) {
  Inventory all;
  std::unordered_map<const void*, bool> seen;
  const auto add_floats = [&](std::string name, std::span<const float> values) {
    if (!seen.try_emplace(values.data()).second) return;
    all.vector_bytes += Aligned(values.size_bytes());
    all.vectors.push_back({std::move(name), values});
  };
  for (const model::BoundTensor& bound : model::ListBound(weights)) {
    if (bound.vector != nullptr) {
      add_floats(bound.Name(), *bound.vector);
      continue;
    }
    const model::Matrix& w = *bound.matrix;
    if (w.scales != nullptr) add_floats(bound.Name(), {w.scales, static_cast<size_t>(w.slices)});
    if (!seen.try_emplace(w.data).second) continue;
    all.matrix_bytes += Aligned(DeviceBytes(w));
    all.host_bytes += w.bytes();
    all.matrices.push_back({bound.Name(), &w});
  }
  return all;
}

// Copies and waits. A copy from memory that is not pinned may return while its last part is still under way on the default stream,
// which the streams here do not wait for.
Status CopyNow(void* to, const void* from, uint64_t bytes, std::string_view what) {
  const std::string doing = fmt::format("copying {} to the device", what);
  if (Status s = Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), doing);
      !s.ok())
    return s;
  return Check(cudaStreamSynchronize(nullptr), doing);
}

// Device memory for as long as a load takes.
class Temporary {
 public:
  Temporary() = default;
  Temporary(Temporary&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Temporary& operator=(Temporary&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Temporary() { cudaFree(data_); }
  Status Take(uint64_t bytes, std::string_view what) {
    return Check(cudaMalloc(&data_, static_cast<size_t>(bytes)),
                 fmt::format("taking {} of device memory for {}", FormatBytes(bytes), what));
  }
  Status TakeCopy(const void* from, uint64_t bytes, std::string_view what) {
    if (Status s = Take(bytes, what); !s.ok()) return s;
    return CopyNow(data_, from, bytes, what);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// A buffer on its way: filled by the readers, then copied and taken apart on its own stream.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);  // nothing may still read or write what is freed now
      cudaStreamDestroy(stream_);
    }
    cudaFreeHost(pinned_);
  }
  Status Create(uint64_t bytes) {
    if (Status s = Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
        !s.ok())
      return s;
    if (Status s = Check(cudaHostAlloc(&pinned_, static_cast<size_t>(bytes), cudaHostAllocDefault),
                         fmt::format("taking {} of pinned host memory", FormatBytes(bytes)));
        !s.ok())
      return s;
    return raw_.Take(bytes + kRawPadding, "weights under way");
  }
  // Until what was enqueued last is done.
  Status Wait() { return Check(cudaStreamSynchronize(stream_), doing_); }
  void SetDoing(std::string doing) { doing_ = std::move(doing); }
  std::byte* pinned() const { return static_cast<std::byte*>(pinned_); }
  uint8_t* raw() const { return raw_.as<uint8_t>(); }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  void* pinned_ = nullptr;
  Temporary raw_;
  std::string doing_ = "waiting for a stream";
};

}  // namespace

class DeviceWeights::Loader {
 public:
  Loader(const Context& context, DeviceWeights& out, const Inventory& all, const Progress& progress,
         const model::SyntheticFill* fill)
      : context_(context),
        out_(out),
        all_(all),
        progress_(progress),
        fill_(fill),
        blocks_(static_cast<uint32_t>(context.device().multiprocessors) * 8) {}

  Status Load() {
    if (Status s = CheckTypes(); !s.ok()) return s;
    if (Status s = CheckRoom(); !s.ok()) return s;
    if (Status s = Report(0); !s.ok()) return s;
    if (Status s = Allocate(); !s.ok()) return s;
    if (Status s = CopyVectors(); !s.ok()) return s;
    if (buffer_bytes_ > 0) {
      for (Buffer& buffer : buffers_)
        if (Status s = buffer.Create(buffer_bytes_); !s.ok()) return s;
    }
    for (const NamedMatrix& named : all_.matrices) {
      const auto* source = SourceOf(*named.matrix);
      if (Status s = source != nullptr ? Fill(named, *source) : Stream(named); !s.ok()) return s;
    }
    for (Buffer& buffer : buffers_) {
      if (buffer_bytes_ == 0) break;
      if (Status s = buffer.Wait(); !s.ok()) return s;
    }
    return Report(all_.host_bytes);
  }

 private:
  Status CheckTypes() const {
    for (const NamedMatrix& named : all_.matrices) {
      const quant::Type type = named.matrix->type;
      const TileLayout* const layout = FindTileLayout(type);
      if (layout == nullptr && !IsPlain(type)) {
        return {Code::kUnsupported,
                fmt::format("{}: is of type {}, which glint has no GPU kernels for; they take {}. `glint "
                            "quantize` makes a file of such types; the CPU can run this one",
                            named.name, quant::Name(type), UsableTypes())};
      }
      if (named.matrix->rows > INT32_MAX ||
          DeviceBytes(*named.matrix) >> 42 != 0)  // tiles are counted in 32 bits
        return {Code::kUnsupported,
                fmt::format("{}: {} slices of {} rows are more than glint's GPU kernels count", named.name,
                            named.matrix->slices, named.matrix->rows)};
    }
    return {};
  }

  // And settles the size of the buffers.
  Status CheckRoom() {
    for (const NamedMatrix& named : all_.matrices) {
      const model::Matrix& w = *named.matrix;
      if (SourceOf(w) != nullptr) continue;
      // At least a row tile must fit.
      buffer_bytes_ = std::max(
          buffer_bytes_, std::min(w.bytes(), std::max(kBufferBytes, uint64_t{kTileRows} * w.row_bytes)));
    }
    size_t free = 0, total = 0;
    if (Status s = Check(cudaMemGetInfo(&free, &total), "asking for free device memory"); !s.ok()) return s;
    const uint64_t staging = buffer_bytes_ * kBuffers;
    const uint64_t needed = all_.matrix_bytes + all_.vector_bytes + staging;
    if (needed <= free) return {};
    const DeviceInfo& device = context_.device();
    return {Code::kNoRoom,
            fmt::format(
                "the weights take {}{}, and GPU {} ({}) has {} free of {}: {}", FormatBytes(needed - staging),
                staging == 0 ? "" : fmt::format(" and {} more while they are loaded", FormatBytes(staging)),
                device.ordinal, device.name, FormatBytes(free), FormatBytes(total),
                needed <= total ? "close what else uses this GPU, choose another one, or run on the CPU"
                                : "take a model with fewer bits a weight (`glint quantize`), a GPU with "
                                  "more memory, or run on the CPU")};
  }

  // Memory for all, and where everything will be.
  Status Allocate() {
    const uint64_t group_bytes = all_.matrix_bytes < kGroupBytes ? 0 : kGroupBytes;
    for (size_t i = 0; i < all_.matrices.size();) {
      const size_t first = i;
      uint64_t bytes = 0;
      do bytes += Aligned(DeviceBytes(*all_.matrices[i++].matrix));
      while (i < all_.matrices.size() &&
             bytes + Aligned(DeviceBytes(*all_.matrices[i].matrix)) <= group_bytes);
      auto base = TakeMemory(bytes, all_.matrices[first].name);
      if (!base.ok()) return base.status();
      uint8_t* at = *base;
      for (size_t k = first; k < i; ++k) {
        const model::Matrix& w = *all_.matrices[k].matrix;
        out_.matrices_[w.data] = {w.type, w.columns, w.rows, w.slices, at, DeviceSliceBytes(w), nullptr};
        at += Aligned(DeviceBytes(w));
      }
    }
    auto base = TakeMemory(all_.vector_bytes, "the small vectors");
    if (!base.ok()) return base.status();
    vectors_ = *base;
    uint64_t at = 0;
    for (const NamedFloats& v : all_.vectors) {
      out_.vectors_[v.values.data()] = reinterpret_cast<const float*>(vectors_ + at);
      at += Aligned(v.values.size_bytes());
    }
    for (const NamedMatrix& named : all_.matrices) {
      const model::Matrix& w = *named.matrix;
      if (w.scales != nullptr) out_.matrices_[w.data].scales = out_.vectors_[w.scales];
    }
    return {};
  }

  Result<uint8_t*> TakeMemory(uint64_t bytes, std::string_view what) {
    if (bytes == 0) return static_cast<uint8_t*>(nullptr);
    void* memory = nullptr;
    Status s = Check(cudaMalloc(&memory, static_cast<size_t>(bytes)),
                     fmt::format("taking {} of device memory from {} on", FormatBytes(bytes), what));
    if (memory != nullptr) out_.allocations_.push_back(memory);
    if (!s.ok()) return s;
    out_.bytes_ += bytes;
    return static_cast<uint8_t*>(memory);
  }

  Status CopyVectors() {
    std::vector<std::byte> pool(static_cast<size_t>(all_.vector_bytes));
    uint64_t at = 0;
    for (const NamedFloats& v : all_.vectors) {
      std::memcpy(pool.data() + at, v.values.data(), v.values.size_bytes());
      at += Aligned(v.values.size_bytes());
    }
    if (pool.empty()) return {};
    return CopyNow(vectors_, pool.data(), pool.size(), "the small vectors");
  }

  const model::SyntheticFill::Source* SourceOf(const model::Matrix& w) const {
    if (fill_ == nullptr) return nullptr;
    const auto it = fill_->matrices.find(w.data);
    return it == fill_->matrices.end() ? nullptr : &it->second;
  }

  // `chunk_bytes`: what a block takes in the strings that the kernel is given.
  Result<TiledMatrix> Tiled(const model::Matrix& w, const TileLayout& layout, uint32_t chunk_bytes) {
    const bool recoded = layout.recoding != Recoding::kNone;
    const uint32_t block_bytes = uint32_t{layout.row_bytes} / layout.blocks;
    auto [it, fresh] = places_.try_emplace({w.type, chunk_bytes});
    if (fresh) {
      if (chunk_bytes * layout.blocks > kMostStringBytes)
        return Status(Code::kInternal, fmt::format("tiles of {} are too wide to load", quant::Name(w.type)));
      std::vector<uint16_t> places(layout.bytes());
      for (uint32_t row = 0; row < kTileRows; ++row) {
        for (uint32_t at = 0; at < layout.row_bytes; ++at) {
          const uint32_t position = recoded ? at : at / block_bytes * chunk_bytes + at % block_bytes;
          places[TileOffset(layout, static_cast<int>(row), static_cast<int>(at))] =
              static_cast<uint16_t>(row << 8 | position);
        }
      }
      if (Status s =
              it->second.TakeCopy(places.data(), places.size() * sizeof(uint16_t), "the order of a tile");
          !s.ok())
        return s;
    }
    TiledMatrix m;
    m.places = it->second.as<uint16_t>();
    m.out = const_cast<uint8_t*>(out_.matrices_[w.data].data);
    m.tile_bytes = layout.bytes();
    m.string_bytes = chunk_bytes * layout.blocks;
    m.recoding = layout.recoding;
    m.rows = static_cast<uint32_t>(w.rows);
    m.row_tiles = (m.rows + kTileRows - 1) / kTileRows;
    m.column_tiles = static_cast<uint32_t>((w.columns + layout.columns - 1) / layout.columns);
    return m;
  }

  Status Stream(const NamedMatrix& named) {
    const model::Matrix& w = *named.matrix;
    const TileLayout* const layout = FindTileLayout(w.type);
    if (layout == nullptr) {
      const uint64_t bytes = w.bytes();
      for (uint64_t at = 0; at < bytes; at += buffer_bytes_) {
        const uint64_t piece = std::min(buffer_bytes_, bytes - at);
        auto* const to = const_cast<uint8_t*>(out_.matrices_[w.data].data) + at;
        auto buffer = Send(named.name, {w.data + at, static_cast<size_t>(piece)}, to);
        if (!buffer.ok()) return buffer.status();
        if (Status s = Report(done_ += piece); !s.ok()) return s;
      }
      return {};
    }

    auto tiled = Tiled(w, *layout, static_cast<uint32_t>(quant::Find(w.type)->block_bytes));
    if (!tiled.ok()) return tiled.status();
    // Row tiles of all slices, as many at once as a buffer holds.
    const uint64_t all = uint64_t{tiled->row_tiles} * static_cast<uint64_t>(w.slices);
    const uint64_t most = std::max<uint64_t>(buffer_bytes_ / (kTileRows * w.row_bytes), 1);
    const auto first_row = [&](uint64_t tile) {
      return tile / tiled->row_tiles * tiled->rows + tile % tiled->row_tiles * kTileRows;
    };
    for (uint64_t tile = 0; tile < all; tile += most) {
      const uint64_t count = std::min(most, all - tile);
      const uint64_t from = first_row(tile) * w.row_bytes, to = first_row(tile + count) * w.row_bytes;
      auto buffer = Send(named.name, {w.data + from, static_cast<size_t>(to - from)}, nullptr);
      if (!buffer.ok()) return buffer.status();
      const RetileArgs args{
          *tiled, (*buffer)->raw(), w.row_bytes, static_cast<uint32_t>(tile), static_cast<uint32_t>(count),
          blocks_};
      if (Status s = Check(LaunchRetile(args, (*buffer)->stream()),
                           fmt::format("{}: launching its re-ordering", named.name));
          !s.ok())
        return s;
      if (Status s = Report(done_ += to - from); !s.ok()) return s;
    }
    return {};
  }

  // Bytes through the next buffer, to `to` or, if that is null, to the buffer's own device memory.
  Result<Buffer*> Send(const std::string& name, std::span<const std::byte> bytes, uint8_t* to) {
    Buffer& buffer = buffers_[next_++ % kBuffers];
    if (Status s = buffer.Wait(); !s.ok()) return s;
    buffer.SetDoing(fmt::format("{}: copying it to the device", name));
    std::atomic<bool> read{true};
    readers_.ParallelFor(bytes.size(), size_t{256} << 10, [&](size_t begin, size_t end, int) {
      if (MappedFile::Fetch(bytes.subspan(begin, end - begin)))
        std::memcpy(buffer.pinned() + begin, bytes.data() + begin, end - begin);
      else
        read = false;
    });
    if (!read)
      return Status(Code::kIo, fmt::format("{}: its bytes can't be read: the disk fails, or the file became "
                                           "shorter while it was loaded",
                                           name));
    if (Status s = Check(cudaMemcpyAsync(to != nullptr ? to : buffer.raw(), buffer.pinned(), bytes.size(),
                                         cudaMemcpyHostToDevice, buffer.stream()),
                         fmt::format("{}: copying it to the device", name));
        !s.ok())
      return s;
    return &buffer;
  }

  // Made on the device; waits for each, so that an error has a name.
  Status Fill(const NamedMatrix& named, const model::SyntheticFill::Source& source) {
    const model::Matrix& w = *named.matrix;
    const model::SyntheticFill::Pool& pool = fill_->pools[source.pool];
    const TileLayout* const layout = FindTileLayout(w.type);
    const size_t chunk_words = (pool.chunk_bytes + 3) / 4;
    auto [it, fresh] = pools_.try_emplace(source.pool);
    if (fresh) {
      std::vector<std::byte> padded(model::SyntheticFill::kChunks * chunk_words * 4);
      for (size_t i = 0; i < model::SyntheticFill::kChunks; ++i) {
        std::memcpy(padded.data() + i * chunk_words * 4, pool.bytes.data() + i * pool.chunk_bytes,
                    pool.chunk_bytes);
      }
      if (Status s = it->second.TakeCopy(padded.data(), padded.size(), "blocks to draw from"); !s.ok())
        return s;
    }
    cudaError_t launched = cudaSuccess;
    if (layout == nullptr) {
      FillRowsArgs args;
      args.out = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(out_.matrices_[w.data].data));
      args.halves = w.bytes() / 2;
      args.pool = it->second.as<uint16_t>();
      args.key = source.key;
      args.chunk_halves = static_cast<uint32_t>(pool.chunk_bytes / 2);
      args.blocks = blocks_;
      launched = LaunchFillRows(args, context_.stream());
    } else {
      auto tiled = Tiled(w, *layout, static_cast<uint32_t>(chunk_words * 4));
      if (!tiled.ok()) return tiled.status();
      FillTilesArgs args;
      args.matrix = *tiled;
      args.pool = it->second.as<uint32_t>();
      args.key = source.key;
      args.chunk_words = static_cast<uint32_t>(chunk_words);
      args.chunks = layout->blocks;
      args.row_chunks = static_cast<uint32_t>(w.row_bytes / pool.chunk_bytes);
      args.count = tiled->row_tiles * static_cast<uint32_t>(w.slices);
      args.blocks = blocks_;
      launched = LaunchFillTiles(args, context_.stream());
    }
    const std::string doing = fmt::format("{}: making it on the device", named.name);
    if (Status s = Check(launched, doing); !s.ok()) return s;
    if (Status s = Check(cudaStreamSynchronize(context_.stream()), doing); !s.ok()) return s;
    return Report(done_ += w.bytes());
  }

  Status Report(uint64_t done) const {
    if (!progress_ || progress_(done, all_.host_bytes)) return {};
    return {Code::kBadInput, "interrupted"};
  }

  const Context& context_;
  DeviceWeights& out_;
  const Inventory& all_;
  const Progress& progress_;
  const model::SyntheticFill* const fill_;
  const uint32_t blocks_;  // of a grid
  ThreadPool readers_{std::min(AvailableCores(), kMostReaders)};
  uint8_t* vectors_ = nullptr;
  std::map<std::pair<quant::Type, uint32_t>, Temporary> places_;
  std::map<size_t, Temporary> pools_;
  uint64_t buffer_bytes_ = 0;  // 0: nothing is streamed
  uint64_t done_ = 0;
  size_t next_ = 0;
  Buffer buffers_[kBuffers];  // the last member: waits for its stream before what it uses goes
};

uint64_t DeviceWeights::Bytes(const model::Weights& weights) {
  const Inventory all = Take(weights);
  return all.matrix_bytes + all.vector_bytes;
}

Result<std::unique_ptr<DeviceWeights>> DeviceWeights::Load(const Context& context, const model::HParams&,
                                                           const model::Weights& weights,
                                                           const Progress& progress,
                                                           const model::SyntheticFill* fill) {
  if (Status s = context.Enter(); !s.ok()) return s;
  std::unique_ptr<DeviceWeights> out(new DeviceWeights(context.device().ordinal));
  const Inventory all = Take(weights);
  Loader loader(context, *out, all, progress, fill);  // gone, and its streams idle, before `out` is
  if (Status s = loader.Load(); !s.ok()) return s;
  return out;
}

DeviceWeights::~DeviceWeights() {
  int current = 0;
  const bool known = cudaGetDevice(&current) == cudaSuccess;
  cudaSetDevice(device_);
  for (void* const memory : allocations_) cudaFree(memory);
  if (known) cudaSetDevice(current);
}

Matrix DeviceWeights::Find(const model::Matrix& w) const {
  const auto it = matrices_.find(w.data);
  return it == matrices_.end() ? Matrix{} : it->second;
}

const float* DeviceWeights::Find(model::Vector v) const {
  const auto it = vectors_.find(v.data());
  return it == vectors_.end() ? nullptr : it->second;
}

}  // namespace glint::cuda
