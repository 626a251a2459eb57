// The reference models and the numbers that an implementation nobody here wrote computed with them (docs/testing.md).
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gguf/safetensors.h"
#include "glint/model.h"
#include "model/convert.h"
#include "tests/engine/tile_weights.h"

namespace glint::test {

// A folder of this process alone, removed at its end.
inline const std::string& ScratchFolder() {
  struct Folder {
    std::string path =
        (std::filesystem::temp_directory_path() / ("glint-test-" + std::to_string(getpid()))).string();
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

inline std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// GLINT_REFERENCE_DIR names a folder with the whole references; without it the tests read what the repository keeps of them.
inline std::string ReferenceFolder(const std::string& model) {
  const std::string whole = FromEnvironment("GLINT_REFERENCE_DIR");
  return (whole.empty() ? std::string(GLINT_TEST_DATA) + "/reference" : whole) + "/" + model;
}

// A Hugging Face directory of the model. tile's is made on the spot unless the whole reference is there.
inline std::string HfDirectory(const std::string& model) {
  const std::string folder = ReferenceFolder(model);
  if (std::filesystem::exists(folder + "/model.safetensors")) return folder;
  const std::string made = ScratchFolder() + "/" + model;
  if (std::filesystem::exists(made)) return made;
  std::filesystem::create_directory(made);
  std::filesystem::copy_file(folder + "/config.json", made + "/config.json");
  const auto differences = gguf::SafeTensors::OpenFile(folder + "/weights.safetensors");
  EXPECT_TRUE(differences.ok()) << differences.status().message();
  if (!differences.ok()) return made;
  const TileWeights weights(*differences);
  EXPECT_EQ(weights.Digest(), kTileDigest) << "the replayed weights are not those of the reference";
  weights.Write(made + "/model.safetensors");
  return made;
}

// The path of a model in the form "hf" (its directory) or "gguf" (converted to float32).
inline std::string ModelPath(const std::string& model, const std::string& form) {
  const std::string directory = HfDirectory(model);
  if (form == "hf") return directory;
  const std::string out = ScratchFolder() + "/" + model + ".gguf";
  if (!std::filesystem::exists(out)) {
    model::ConvertOptions options;
    options.type = quant::Type::kF32;
    const auto summary = model::Convert(directory, out, options);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
  }
  return out;
}

// Tensors of reference.safetensors by name ("p20.logits_f64").
class Reference {
 public:
  explicit Reference(const std::string& model) {
    auto opened = gguf::SafeTensors::OpenFile(ReferenceFolder(model) + "/reference.safetensors");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    if (opened.ok()) tensors_.emplace(std::move(*opened));
  }

  bool Has(const std::string& name) const { return tensors_->Find(name) != nullptr; }
  const std::vector<gguf::SafeTensor>& tensors() const { return tensors_->tensors(); }

  std::vector<uint64_t> Shape(const std::string& name) const {
    const auto* t = tensors_->Find(name);
    return t == nullptr ? std::vector<uint64_t>{} : t->shape;
  }

  std::vector<double> Floats(const std::string& name) const {
    const auto* t = tensors_->Find(name);
    if (t == nullptr) {
      ADD_FAILURE() << "the reference has no " << name;
      return {};
    }
    if (t->dtype == "F64") return Read<double, double>(*t);
    EXPECT_EQ(t->dtype, "F32") << name;
    return Read<float, double>(*t);
  }

  std::vector<int32_t> Ints(const std::string& name) const {
    const auto* t = tensors_->Find(name);
    if (t == nullptr) {
      ADD_FAILURE() << "the reference has no " << name;
      return {};
    }
    EXPECT_EQ(t->dtype, "I32") << name;
    return Read<int32_t, int32_t>(*t);
  }

 private:
  template <class Stored, class Out>
  static std::vector<Out> Read(const gguf::SafeTensor& t) {
    std::vector<Out> out(t.bytes / sizeof(Stored));
    for (size_t i = 0; i < out.size(); ++i) {
      Stored value;
      std::memcpy(&value, t.data + i * sizeof(Stored), sizeof(Stored));
      out[i] = static_cast<Out>(value);
    }
    return out;
  }

  std::optional<gguf::SafeTensors> tensors_;
};

inline Model MustOpen(const std::string& path, const ModelOptions& options = {}) {
  auto model = Model::Open(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) std::exit(1);  // nothing that follows would make sense
  return std::move(*model);
}

inline int32_t ArgMax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

}  // namespace glint::test
