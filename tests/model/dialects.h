// Writes a model as a GGUF file of any dialect, whole or split: the files that others' converters make of it
// (spec/gguf.md sections 1 to 3). Independent of the code that reads and converts.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "model/model_data.h"

namespace glint::model {

enum class Dialect {
  kA,
  kB,     // block_size; no kda.* keys (so only models with a gate bound of -5)
  kC,     // as A under "glm5-next"; shared width, tail and indexer types stated its own way
  kOldC,  // the oldest vintage: kpool_ape, kpool_gate, a schedule without the MTP block, conv without trailing 1
  kD,     // DS4-native
};

struct DialectOptions {
  Dialect dialect = Dialect::kA;
  int shards = 1;         // from 2: a metadata-only first shard, the tensors in the others
  bool mtp = true;        // false: a trunk-only file
  bool a_as_row = false;  // ssm_a as [1, heads]
  bool scalar_clamp = false;
  std::set<std::string> drop = {};  // keys (without the architecture) and tensors (whole names) left out
  std::function<void(gguf::Writer&, const std::string& architecture)> more = {};  // last word on the keys
};

// All dialects, for parameterised tests.
inline constexpr Dialect kAllDialects[] = {Dialect::kA, Dialect::kB, Dialect::kC, Dialect::kOldC,
                                           Dialect::kD};
const char* Name(Dialect dialect);

// Files are `stem`.gguf, or `stem`-0000i-of-0000N.gguf; returns their paths. The model must outlive nothing: bytes are written
// before it returns. A vector with n entries is stored as F32; D stores the logarithm that gives `a` back when there is one
// (always, for models that came from A_log).
Result<std::vector<std::string>> WriteDialect(const ModelData& model, const std::string& stem,
                                              const DialectOptions& options = {});

// Every tensor of a model as (name in dialect A, shape, type, bytes): what must be equal across dialects.
struct Bytes {
  std::string name;
  quant::Type type;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};
std::vector<Bytes> AllTensors(const ModelData& model);

}  // namespace glint::model
