#include "cuda/state.h"

#include <vector>

#include "cuda/status.h"

namespace glint::cuda {
namespace {

// The floats of a state, and behind them (at a multiple of 256 bytes) room for its table of addresses.
class DeviceState final : public plan::StateMemory {
 public:
  static Result<std::unique_ptr<plan::StateMemory>> Make(std::shared_ptr<const Context> context,
                                                         int64_t count, uint64_t table_bytes) {
    const uint64_t floats = (sizeof(float) * static_cast<uint64_t>(count) + 255) / 256 * 256;
    auto memory = DeviceMemory::Take(*context, floats + table_bytes, "the state of a sequence");
    if (!memory.ok()) return memory.status();
    std::unique_ptr<DeviceState> state(
        new DeviceState(std::move(context), std::move(*memory), count, table_bytes));
    if (Status status = state->Zero(); !status.ok()) return status;
    return std::unique_ptr<plan::StateMemory>(std::move(state));
  }

  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  LayerState* table() const {
    return reinterpret_cast<LayerState*>(memory_.data() + memory_.bytes() - table_bytes_);
  }
  const Context& context() const { return *context_; }
  // On the stream, since a plain copy from pageable memory may still be under way when it returns, and the stream does not wait for it.
  Status WriteTable(const LayerState* layers) {
    if (Status status = context_->Enter(); !status.ok()) return status;
    Status status =
        Check(cudaMemcpyAsync(table(), layers, table_bytes_, cudaMemcpyHostToDevice, context_->stream()),
              "writing the addresses of a state");
    return status.ok() ? context_->Wait() : status;
  }

  int64_t floats() const override { return count_; }
  Status Read(int64_t at, int64_t count, float* out) const override {
    return Copy(out, data() + at, count, cudaMemcpyDeviceToHost, "reading");
  }
  Status Write(int64_t at, int64_t count, const float* in) override {
    return Copy(data() + at, in, count, cudaMemcpyHostToDevice, "writing");
  }
  Status CopyFrom(const StateMemory& from, int64_t from_at, int64_t at, int64_t count) override {
    const auto* other = dynamic_cast<const DeviceState*>(&from);
    if (other == nullptr) return {Code::kInternal, "state of another device"};
    return Copy(data() + at, other->data() + from_at, count, cudaMemcpyDeviceToDevice, "copying");
  }
  Status Zero() override { return Fill(0, "clearing"); }
  Status FillNan() override { return Fill(0xff, "poisoning"); }
  Result<std::unique_ptr<StateMemory>> Another(int64_t count) const override {
    return Make(context_, count, count == count_ ? table_bytes_ : 0);
  }

 private:
  DeviceState(std::shared_ptr<const Context> context, DeviceMemory memory, int64_t count,
              uint64_t table_bytes)
      : context_(std::move(context)), memory_(std::move(memory)), count_(count), table_bytes_(table_bytes) {}

  Status Copy(void* to, const void* from, int64_t count, cudaMemcpyKind kind, std::string_view doing) const {
    if (count <= 0) return {};
    if (Status status = context_->Enter(); !status.ok()) return status;
    const auto bytes = sizeof(float) * static_cast<size_t>(count);
    Status status = Check(cudaMemcpyAsync(to, from, bytes, kind, context_->stream()), doing);
    return status.ok() ? context_->Wait() : status;
  }
  Status Fill(int byte, std::string_view doing) {
    if (count_ == 0) return {};
    if (Status status = context_->Enter(); !status.ok()) return status;
    Status status =
        Check(cudaMemsetAsync(data(), byte, sizeof(float) * static_cast<size_t>(count_), context_->stream()),
              doing);
    return status.ok() ? context_->Wait() : status;
  }

  std::shared_ptr<const Context> context_;
  DeviceMemory memory_;
  int64_t count_;
  uint64_t table_bytes_;
};

std::vector<LayerState> Addresses(const plan::StateLayout& layout, float* base) {
  std::vector<LayerState> layers;
  const auto at = [&](const plan::StateLayout::Part& part) {
    return part.floats == 0 ? nullptr : base + part.offset;
  };
  for (const auto& p : layout.parts) {
    layers.push_back({at(p.s), at(p.kf), at(p.delta), at(p.g), at(p.conv), at(p.latent), at(p.pooled),
                      at(p.raw_key), at(p.raw_gate)});
  }
  return layers;
}

uint64_t TableBytes(const plan::StateLayout& layout) { return sizeof(LayerState) * layout.parts.size(); }

}  // namespace

Result<std::unique_ptr<SequenceState>> SequenceState::Create(std::shared_ptr<const Context> context,
                                                             const plan::StateLayout& layout, bool poison) {
  auto memory = DeviceState::Make(std::move(context), layout.total_floats, TableBytes(layout));
  if (!memory.ok()) return memory.status();
  auto& state = static_cast<DeviceState&>(**memory);
  const auto layers = Addresses(layout, state.data());
  if (Status status = state.WriteTable(layers.data()); !status.ok()) return status;
  return std::unique_ptr<SequenceState>(new SequenceState(layout, std::move(*memory), poison));
}

const LayerState* SequenceState::layers() const { return static_cast<const DeviceState&>(memory()).table(); }

const Context& SequenceState::context() const { return static_cast<const DeviceState&>(memory()).context(); }

// Clones get memory with a table of its own, which must hold the addresses of that memory.
std::unique_ptr<plan::GridSequence> SequenceState::Over(std::unique_ptr<plan::StateMemory> memory) const {
  auto& state = static_cast<DeviceState&>(*memory);
  const auto addresses = Addresses(layout(), state.data());
  // Fails only where every later call on the device fails too, and is reported there.
  (void)state.WriteTable(addresses.data());
  return std::unique_ptr<plan::GridSequence>(new SequenceState(layout(), std::move(memory), poison()));
}

}  // namespace glint::cuda
