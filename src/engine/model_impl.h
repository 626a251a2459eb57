// What a Model and its sessions share.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "glint/model.h"
#include "model/model_data.h"
#include "plan/backend.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace glint::engine {

struct ModelImpl {
  model::ModelData data;
  std::optional<Tokenizer> tokenizer;
  int64_t usable_vocab = 0;
  int threads = 1;
  std::optional<int> gpu;  // empty: the CPU
  uint64_t weight_bytes_per_token = 0;
  plan::LeverChoice choice;
  // After data: it refers to the hyper-parameters and weights in it.
  std::unique_ptr<plan::Backend> backend;

  std::string tokenizer_fingerprint;  // empty without a tokenizer
  struct Fingerprints {
    std::string trunk, mtp;
  };
  const Fingerprints& fingerprints();  // made when first asked for; from any thread

  // Held while a pass runs or a plan is looked up: sessions of one model take turns.
  std::mutex mutex;

  // The plan for a batch of exactly `rows` rows, made when first asked for. With `keep_all` nothing shares a
  // buffer, for observers. The pointer is shared so that a plan dropped from the cache outlives its pass.
  // Hold the mutex.
  Result<std::shared_ptr<const plan::Plan>> PlanFor(plan::Pass pass, int rows, bool keep_all);

 private:
  struct Cached {
    plan::Pass pass;
    int rows;
    bool keep_all;
    std::shared_ptr<const plan::Plan> plan;
  };
  std::list<Cached> plans_;  // most recently used first
  std::once_flag fingerprints_once_;
  Fingerprints fingerprints_;
};

// The same model under other options (device, threads, levers) with a backend of its own. Nothing is loaded again: weights and
// tokenizer are shared, whichever of the two goes first; only what goes to a GPU that has them not yet travels there.
Result<Model> WithOptions(const Model& model, const ModelOptions& options);

}  // namespace glint::engine
