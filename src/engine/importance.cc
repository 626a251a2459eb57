#include "engine/importance.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/memory.h"
#include "engine/model_impl.h"
#include "engine/session_impl.h"
#include "plan/product_inputs.h"

namespace glint::engine {
namespace {

using model::TensorId;
using plan::ProductInput;
using plan::Slot;

class Measurement {
 public:
  explicit Measurement(ModelImpl& m)
      : m_(m), hp_(m.data.hparams), mtp_(hp_.nextn_layers > 0 && !m.data.weights.nextn.empty()) {
    for (const model::Tensor& tensor : model::ListTensors(hp_))
      tensors_[{tensor.block, tensor.id()}] = tensor;
  }

  Result<ImportanceMemory> Memory(int64_t rows) {
    const std::lock_guard lock(m_.mutex);
    ImportanceMemory out;
    out.state = m_.backend->StateBytes(rows, mtp_);
    std::set<Key> counted;  // through which two matrices are reached: decoded once
    for (const plan::Pass pass : Passes()) {
      const auto plan = PlanFor(pass, static_cast<int>(std::min<int64_t>(rows, kChunkRows)));
      if (!plan.ok()) return plan.status();
      out.buffers = std::max(out.buffers, (*plan)->buffers.total_bytes);
      for (const plan::Step& step : (*plan)->steps) {
        for (const ProductInput& input : plan::ProductInputs(step)) {
          const auto tensor = tensors_.find({step.layer, input.tensor});
          if (tensor == tensors_.end()) continue;
          const model::Shape& shape = tensor->second.shape;
          out.sums += sizeof(double) * static_cast<uint64_t>((shape.columns + 1) * shape.slices);
          const Key through{step.layer, input.through};
          if (input.kind == ProductInput::Kind::kThrough && counted.insert(through).second)
            out.decoded += sizeof(float) * static_cast<uint64_t>(tensors_.at(through).shape.count());
        }
      }
    }
    return out;
  }

  Result<MeasuredImportance> Run(std::span<const int32_t> ids, int64_t context, const Progress& progress) {
    const std::lock_guard lock(m_.mutex);
    auto state = m_.backend->NewState(std::min<int64_t>(context, static_cast<int64_t>(ids.size())), mtp_);
    if (!state.ok()) return state.status();
    hidden_.resize(static_cast<size_t>(kChunkRows * hp_.hidden));
    uint64_t chunks = 0;
    for (size_t done = 0; done < ids.size(); ++chunks) {
      const auto chunk = ids.subspan(done, std::min(ids.size() - done, static_cast<size_t>(context)));
      (*state)->Clear();
      for (size_t at = 0; at < chunk.size();) {
        const size_t rows = std::min(chunk.size() - at, static_cast<size_t>(kChunkRows));
        if (Status s = Pass(**state, plan::Pass::kTrunk, chunk.subspan(at, rows)); !s.ok()) return s;
        // The MTP block gets a position's hidden state and the token after it: the chunk's last has none.
        const auto next = chunk.subspan(at + 1, std::min(rows, chunk.size() - at - 1));
        if (mtp_ && !next.empty()) {
          if (Status s = Pass(**state, plan::Pass::kMtp, next); !s.ok()) return s;
        }
        at += rows;
        if (progress && !progress(done + at, ids.size())) return Status(Code::kBadInput, "interrupted");
      }
      done += chunk.size();
    }
    return Take(chunks, context);
  }

 private:
  struct Sums {
    std::vector<double> squares, counts;  // [slices][columns], [slices]
  };
  using Key = std::pair<int, TensorId>;

  std::vector<plan::Pass> Passes() const {
    return mtp_ ? std::vector{plan::Pass::kTrunk, plan::Pass::kMtp} : std::vector{plan::Pass::kTrunk};
  }

  // tokens: the trunk's, or those after the positions whose hidden states the trunk has just left in hidden_.
  Status Pass(plan::SequenceState& state, plan::Pass pass, std::span<const int32_t> tokens) {
    const bool trunk = pass == plan::Pass::kTrunk;
    const auto rows = static_cast<int>(tokens.size());
    const auto plan = PlanFor(pass, rows);
    if (!plan.ok()) return plan.status();
    const plan::Segment segment{&state, trunk ? state.position() : state.mtp_position(), 0, rows};
    plan::Batch batch;
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    batch.hidden_in = trunk ? nullptr : hidden_.data();
    batch.final_out = trunk ? hidden_.data() : nullptr;
    return m_.backend->Run(**plan, batch, [this](const plan::StepView& view) {
      for (const ProductInput& input : plan::ProductInputs(view.step)) Look(view, input);
    });
  }

  // Levers that replace stages hide slots; those that only change how a stage is done stay.
  Result<const plan::Plan*> PlanFor(plan::Pass pass, int rows) {
    if (const auto found = plans_.find({pass, rows}); found != plans_.end()) return &found->second;
    plan::LeverChoice choice = m_.choice;
    for (const plan::Lever& lever : m_.backend->levers()) {
      if (lever.kind != plan::Lever::Kind::kReplace) continue;
      std::erase(choice.with, std::string(lever.name));
      choice.without.emplace_back(lever.name);
    }
    auto plan = plan::MakePlan({.hparams = &hp_,
                                .weights = &m_.data.weights,
                                .levers = m_.backend->levers(),
                                .choice = std::move(choice),
                                .pass = pass,
                                .rows = rows,
                                .look_inside = true,
                                .keep_all = true});
    if (!plan.ok()) return plan.status();
    return &plans_.emplace(std::pair(pass, rows), std::move(*plan)).first->second;
  }

  void Look(const plan::StepView& view, const ProductInput& input) {
    const Key key{view.step.layer, input.tensor};
    const auto tensor = tensors_.find(key);
    if (tensor == tensors_.end())
      return;  // the head after the MTP block: it is the trunk's, and its inputs count there
    const model::Shape& shape = tensor->second.shape;
    Sums& sums = sums_[key];
    sums.squares.resize(static_cast<size_t>(shape.columns * shape.slices));
    sums.counts.resize(static_cast<size_t>(shape.slices));
    const float* const slot = view.Floats(input.slot);
    const int64_t columns = shape.columns, used = hp_.experts_used;
    const auto add = [&](int64_t slice, const float* row) {
      double* const to = sums.squares.data() + slice * columns;
      for (int64_t c = 0; c < columns; ++c) to[c] += static_cast<double>(row[c]) * row[c];
      sums.counts[static_cast<size_t>(slice)] += 1;
    };
    for (int64_t r = 0; r < view.rows; ++r) {
      switch (input.kind) {
        case ProductInput::Kind::kRows:
          add(0, slot + r * columns);
          break;
        case ProductInput::Kind::kHeads:
          for (int64_t s = 0; s < shape.slices; ++s) add(s, slot + (r * shape.slices + s) * columns);
          break;
        case ProductInput::Kind::kRouted:
        case ProductInput::Kind::kExpertRows: {
          const bool own = input.kind == ProductInput::Kind::kExpertRows;
          const int32_t* const experts = view.Ints(Slot::kExpertIds) + r * used;
          for (int64_t e = 0; e < used; ++e) add(experts[e], slot + (own ? r * used + e : r) * columns);
          break;
        }
        case ProductInput::Kind::kThrough:
          add(0, Product({view.step.layer, input.through}, slot + r * hp_.hidden));
          break;
      }
    }
  }

  // W x by its own loops, summed in double precision. Valid until the next call.
  const float* Product(const Key& key, const float* x) {
    const model::Site site = model::SiteOf(m_.data.weights, hp_, key.first);
    const model::Matrix& w = *model::Kind(key.second).matrix(site);
    std::vector<float>& weights = decoded_[key];
    const auto columns = static_cast<size_t>(w.columns);
    if (weights.empty()) {
      weights.resize(columns * static_cast<size_t>(w.rows));
      for (int64_t r = 0; r < w.rows; ++r)
        quant::Find(w.type)->decode(w.Row(0, r), weights.data() + static_cast<size_t>(r) * columns, columns);
    }
    product_.resize(static_cast<size_t>(w.rows));
    for (size_t r = 0; r < product_.size(); ++r) {
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += static_cast<double>(weights[r * columns + c]) * x[c];
      product_[r] = static_cast<float>(sum * (w.scales != nullptr ? static_cast<double>(w.scales[0]) : 1.0));
    }
    return product_.data();
  }

  // "blk.3." of "blk.3.ffn_up_exps.weight".
  static std::string BlockOf(const std::string& name) {
    return name.substr(0, name.find('.', name.find('.') + 1) + 1);
  }

  Result<MeasuredImportance> Take(uint64_t chunks, int64_t context) {
    MeasuredImportance out;
    // The matrices of an expert see the same tokens: a line a block says it of all of them.
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> never_hit;
    out.matrix.chunks = chunks;
    out.matrix.chunk_tokens = static_cast<uint64_t>(context);
    for (auto& [key, collected] : sums_) {
      const Sums sums = std::exchange(collected, {});  // gone when its means are there
      const model::Tensor& tensor = tensors_.at(key);
      const std::string name = tensor.Name();
      model::Importance importance;
      importance.columns = static_cast<uint64_t>(tensor.shape.columns);
      importance.matrices = static_cast<uint64_t>(tensor.shape.slices);
      importance.mean.reserve(sums.squares.size());
      size_t unhit = 0;
      for (size_t s = 0; s < sums.counts.size(); ++s) {
        importance.counts.push_back(static_cast<float>(sums.counts[s]));
        if (sums.counts[s] == 0) ++unhit;
        for (size_t c = 0; c < importance.columns; ++c) {
          const double square = sums.squares[s * importance.columns + c];
          const auto mean = static_cast<float>(sums.counts[s] > 0 ? square / sums.counts[s] : 0);
          if (!std::isfinite(mean))
            return Status(Code::kBadFile, fmt::format("{}: input {} of {} is no number; weights are damaged",
                                                      m_.data.origin, c, name));
          importance.mean.push_back(mean);
        }
      }
      if (unhit > 0)
        never_hit[{BlockOf(name), fmt::format("{} of {} experts", unhit, sums.counts.size())}].push_back(
            name);
      out.matrix.Add(name, std::move(importance));
    }
    for (const auto& [key, names] : never_hit) {
      std::string list;
      for (const std::string& name : names)
        list += (list.empty() ? "" : ", ") + name.substr(names.size() > 1 ? key.first.size() : 0);
      out.never_hit.push_back(names.size() > 1 ? fmt::format("{}{{{}}}: {}", key.first, list, key.second)
                                               : fmt::format("{}: {}", list, key.second));
    }
    return out;
  }

  ModelImpl& m_;
  const model::HParams& hp_;
  const bool mtp_;
  std::vector<float> hidden_;  // [kChunkRows][hidden], of the trunk's last pass
  std::map<Key, model::Tensor> tensors_;
  std::map<Key, Sums> sums_;
  std::map<Key, std::vector<float>> decoded_;
  std::vector<float> product_;
  std::map<std::pair<plan::Pass, int>, plan::Plan> plans_;  // addresses stay
};

}  // namespace

Result<ImportanceMemory> MemoryForImportance(const Model& model, size_t tokens, int64_t context) {
  if (model.context_length() > 0 && context > model.context_length())
    return Status(Code::kBadInput, fmt::format("a context of {} tokens; the model was made for {}", context,
                                               model.context_length()));
  return Measurement(*model.impl())
      .Memory(std::max<int64_t>(std::min<int64_t>(context, static_cast<int64_t>(tokens)), 1));
}

Status ImportanceMemory::CheckRoom(const MemoryRoom& room) const {
  if (total() <= room.bytes) return {};
  return {Code::kNoRoom,
          fmt::format("measuring takes {} beside the model (sums {}, buffers {}, state {}, decoded weights "
                      "{}), but {} leaves {}; smaller chunks (--ctx) take less for state and buffers",
                      FormatBytes(total()), FormatBytes(sums), FormatBytes(buffers), FormatBytes(state),
                      FormatBytes(decoded), room.limited_by, FormatBytes(room.bytes))};
}

Result<MeasuredImportance> MeasureImportance(const Model& model, std::span<const int32_t> ids,
                                             int64_t context, const Progress& progress) {
  if (ids.empty()) return Status(Code::kBadInput, "the text has no tokens; nothing can be measured");
  if (context < 1)
    return Status(Code::kBadInput, fmt::format("chunks of {} tokens; 1 is the fewest", context));
  for (const int32_t id : ids) {
    if (id < 0 || id >= model.vocab_size())
      return Status(Code::kBadInput,
                    fmt::format("token id {} is not in the vocabulary of {}", id, model.vocab_size()));
  }
  const auto memory = MemoryForImportance(model, ids.size(), context);
  if (!memory.ok()) return memory.status();
  if (Status s = memory->CheckRoom(AvailableMemory()); !s.ok()) return s;
  return Measurement(*model.impl()).Run(ids, context, progress);
}

}  // namespace glint::engine
