// A loaded model: weights, tokenizer, and the backend that runs it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint {

namespace engine {
struct ModelImpl;
}

struct ModelOptions {
  // "cpu"; "cuda" or "cuda:N", a GPU; "auto": GPU 0 if there is one and the model can run there, else the CPU.
  std::string device = "auto";
  int threads = 0;  // 0: as many as the machine has cores for this process
  std::vector<std::string> with = {},
                           without = {};  // levers by exact name (`glint plan` lists them); "all" in without
  bool mtp = false;                       // bind the MTP block; an error if the file has none
  bool mtp_if_any = false;                // bind it where there is one
  std::function<bool(uint64_t done, uint64_t total)> progress = {};  // return false to stop
};

// What the file suggests for sampling.
struct SuggestedSampling {
  std::optional<float> temperature, top_p;
  std::optional<int32_t> top_k;
};

// Cheap to copy: a handle. Safe to share between threads; sessions of one model take turns on its backend.
class Model {
 public:
  // path: a GGUF file (any shard of a set) or a Hugging Face directory. Errors say file, tensor and offset.
  static Result<Model> Open(const std::string& path, const ModelOptions& options = {});
  // Seeded random weights of a named shape, e.g. "glm-5.3-flash,layers=6,experts=16,recipe=q4_k".
  static Result<Model> Synthetic(const std::string& spec, const ModelOptions& options = {});

  const std::string& name() const;
  int64_t vocab_size() const;      // entries of a row of logits
  int64_t usable_vocab() const;    // ids at and above are padding and never sampled
  int64_t context_length() const;  // what the model was made for
  int64_t hidden_size() const;
  bool has_mtp() const;
  bool has_tokenizer() const;
  const Tokenizer& tokenizer() const;  // only if has_tokenizer()
  SuggestedSampling suggested_sampling() const;
  uint64_t weight_bytes_per_token() const;  // bytes of weights that one decoded token reads
  int threads() const;
  std::string device() const;  // what it runs on: "cpu" or "cuda:N"

  // 32 hexadecimal digits each, the same for a file, its copies and split sets, wherever it lies; session files and records of
  // measurements name models by them. Of the trunk: hyper-parameters, tensors, and samples of their data (read when first asked
  // for: a few pages a tensor). Of the MTP block: empty if the model was opened without it. Of the vocabulary: empty without one.
  const std::string& fingerprint() const;
  const std::string& mtp_fingerprint() const;
  const std::string& tokenizer_fingerprint() const;

  explicit Model(std::shared_ptr<engine::ModelImpl> impl);
  const std::shared_ptr<engine::ModelImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<engine::ModelImpl> impl_;
};

}  // namespace glint
