#include "glint/model.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/no_room.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "engine/gpu.h"
#include "engine/model_impl.h"
#include "model/fingerprint.h"
#include "text/fingerprint.h"

namespace glint {
namespace engine {
namespace {

// A plan is some 100 kB for the released model. Decoding, verifying and the last chunk of a prompt are few shapes; a server's passes
// have as many rows as it has users, and more.
constexpr size_t kPlansKept = 64;

constexpr int kMostThreads = 1024;

}  // namespace

Result<std::shared_ptr<const plan::Plan>> ModelImpl::PlanFor(plan::Pass pass, int rows, bool keep_all) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Cached& c) {
    return c.pass == pass && c.rows == rows && c.keep_all == keep_all;
  });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return plans_.front().plan;
  }
  auto plan = plan::MakePlan({.hparams = &data.hparams,
                              .weights = &data.weights,
                              .levers = backend->levers(),
                              .choice = choice,
                              .pass = pass,
                              .rows = rows,
                              .keep_all = keep_all});
  if (!plan.ok()) return plan.status();
  if (plans_.size() == kPlansKept) plans_.pop_back();
  plans_.push_front({pass, rows, keep_all, std::make_shared<const plan::Plan>(std::move(*plan))});
  return plans_.front().plan;
}

const ModelImpl::Fingerprints& ModelImpl::fingerprints() {
  std::call_once(fingerprints_once_, [this] {
    fingerprints_ = {model::TrunkFingerprint(data.hparams, data.weights, data.synthetic.get()),
                     model::MtpFingerprint(data.hparams, data.weights, data.synthetic.get())};
  });
  return fingerprints_;
}

namespace {

Status AttachTokenizer(ModelImpl& impl) {
  const int64_t rows = impl.data.hparams.vocab_size;
  impl.usable_vocab = rows;
  if (!impl.data.tokenizer) return {};
  impl.tokenizer_fingerprint = text::Fingerprint(*impl.data.tokenizer);
  auto tokenizer = text::Tokenizer::Create(std::move(*impl.data.tokenizer));
  impl.data.tokenizer.reset();
  if (!tokenizer.ok()) {
    return {tokenizer.status().code(), impl.data.origin + ": " + tokenizer.status().message()};
  }
  const int32_t usable = (*tokenizer)->usable();
  if (usable > rows) {
    return {Code::kBadFile, fmt::format("{}: the tokenizer has {} ids, the embedding only {} rows",
                                        impl.data.origin, usable, rows)};
  }
  impl.usable_vocab = usable;
  // A template glint can't render matters only to who asks for a chat; Tokenizer says so then.
  auto chat = text::ChatTemplate::Recognise(impl.data.chat_template);
  impl.tokenizer.emplace(std::move(*tokenizer), chat.ok() ? std::move(*chat) : nullptr);
  return {};
}

// The backend on the device that was chosen. A model that the GPU can't take runs on the CPU if that is what "auto" may decide.
Status MakeBackend(ModelImpl& impl, const ModelOptions& options, const ModelImpl* other) {
  if (impl.gpu) {
    const bool there = other != nullptr && other->gpu == impl.gpu;
    auto backend = there ? ShareGpuBackend(impl.data, *other->backend)
                         : MakeGpuBackend(impl.data, *impl.gpu, options.progress);
    if (backend.ok()) {
      impl.backend = std::move(*backend);
      return {};
    }
    const Code code = backend.status().code();
    const bool can_fall_back = options.device == "auto" && !impl.data.synthetic &&
                               (code == Code::kNoRoom || code == Code::kUnsupported);
    if (!can_fall_back) return backend.status();
    impl.data.notes.push_back(fmt::format("it runs on the CPU: {}", backend.status().message()));
    impl.gpu.reset();
  }
  if (impl.data.synthetic)
    return {Code::kBadInput,
            impl.data.origin + ": its weights were made on a GPU and can't run on the CPU; open it again"};
  impl.backend = cpu::MakeBackend(impl.data.hparams, impl.data.weights, impl.threads);
  return {};
}

// What the options decide: the backend, its threads and its levers. `other`: null, or a model with the same weights.
Result<Model> Serve(std::shared_ptr<ModelImpl> impl, const ModelOptions& options, const ModelImpl* other) {
  impl->threads = options.threads == 0 ? AvailableCores() : options.threads;
  impl->choice = plan::WithEnvironment({.with = options.with, .without = options.without});
  if (Status status = MakeBackend(*impl, options, other); !status.ok()) return status;

  // A lever's name that nobody knows is an error here, not at the first token.
  const std::lock_guard lock(impl->mutex);
  const auto plan = impl->PlanFor(plan::Pass::kTrunk, 1, false);
  if (!plan.ok()) return plan.status();
  for (const auto& step : (*plan)->steps) impl->weight_bytes_per_token += step.weight_bytes;
  return Model(std::move(impl));
}

Result<Model> Finish(Result<model::ModelData> data, const ModelOptions& options, std::optional<int> gpu,
                     const std::vector<std::string>& notes) {
  if (!data.ok()) return data.status();
  auto impl = std::make_shared<ModelImpl>();
  impl->data = std::move(*data);
  impl->data.notes.insert(impl->data.notes.end(), notes.begin(), notes.end());
  impl->gpu = gpu;
  if (options.mtp && impl->data.weights.nextn.empty()) {
    return Status(Code::kNotFound, impl->data.origin + ": the model has no MTP block");
  }
  Status status = AttachTokenizer(*impl);
  if (!status.ok()) return status;
  return Serve(std::move(impl), options, nullptr);
}

Status CheckOptions(const ModelOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return {Code::kBadInput,
            fmt::format("threads is {}; it must be 0 (all cores) to {}", options.threads, kMostThreads)};
  }
  return {};
}

}  // namespace

Result<Model> WithOptions(const Model& model, const ModelOptions& options) try {
  if (Status status = CheckOptions(options); !status.ok()) return status;
  if (options.mtp && !model.has_mtp()) {
    return Status(Code::kBadInput, model.impl()->data.origin + ": it was opened without its MTP block");
  }
  auto impl = std::make_shared<ModelImpl>();
  impl->data = model.impl()->data;
  impl->tokenizer = model.impl()->tokenizer;
  impl->usable_vocab = model.impl()->usable_vocab;
  impl->tokenizer_fingerprint = model.impl()->tokenizer_fingerprint;
  const auto gpu = ChooseGpu(options.device, impl->data.notes);
  if (!gpu.ok()) return gpu.status();
  impl->gpu = *gpu;
  return Serve(std::move(impl), options, model.impl().get());
} catch (...) {
  return NoRoomOrRethrow();
}

}  // namespace engine

Result<Model> Model::Open(const std::string& path, const ModelOptions& options) try {
  Status status = engine::CheckOptions(options);
  if (!status.ok()) return status;
  std::vector<std::string> notes;
  const auto gpu = engine::ChooseGpu(options.device, notes);
  if (!gpu.ok()) return gpu.status();
  return engine::Finish(
      model::Load(path, {.mtp = options.mtp || options.mtp_if_any, .progress = options.progress}), options,
      *gpu, notes);
} catch (...) {
  return NoRoomOrRethrow();
}

Result<Model> Model::Synthetic(const std::string& spec, const ModelOptions& options) try {
  Status status = engine::CheckOptions(options);
  if (!status.ok()) return status;
  std::vector<std::string> notes;
  const auto gpu = engine::ChooseGpu(options.device, notes);
  if (!gpu.ok()) return gpu.status();
  return engine::Finish(model::LoadSynthetic(spec, {.mtp = options.mtp || options.mtp_if_any,
                                                    .progress = options.progress,
                                                    .weights_elsewhere = gpu->has_value()}),
                        options, *gpu, notes);
} catch (...) {
  return NoRoomOrRethrow();
}

Model::Model(std::shared_ptr<engine::ModelImpl> impl) : impl_(std::move(impl)) {}

const std::string& Model::name() const { return impl_->data.name; }
int64_t Model::vocab_size() const { return impl_->data.hparams.vocab_size; }
int64_t Model::usable_vocab() const { return impl_->usable_vocab; }
int64_t Model::context_length() const { return impl_->data.hparams.context_length; }
int64_t Model::hidden_size() const { return impl_->data.hparams.hidden; }
bool Model::has_mtp() const { return !impl_->data.weights.nextn.empty(); }
bool Model::has_tokenizer() const { return impl_->tokenizer.has_value(); }
const Tokenizer& Model::tokenizer() const { return *impl_->tokenizer; }
SuggestedSampling Model::suggested_sampling() const {
  const auto& hints = impl_->data.sampling;
  return {.temperature = hints.temperature, .top_p = hints.top_p, .top_k = hints.top_k};
}
uint64_t Model::weight_bytes_per_token() const { return impl_->weight_bytes_per_token; }
int Model::threads() const { return impl_->threads; }
std::string Model::device() const { return impl_->gpu ? fmt::format("cuda:{}", *impl_->gpu) : "cpu"; }
const std::string& Model::fingerprint() const { return impl_->fingerprints().trunk; }
const std::string& Model::mtp_fingerprint() const { return impl_->fingerprints().mtp; }
const std::string& Model::tokenizer_fingerprint() const { return impl_->tokenizer_fingerprint; }

}  // namespace glint
