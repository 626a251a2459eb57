// Hyper-parameters from the metadata of a GGUF file, whichever of the four dialects it speaks (spec/gguf.md sections 1 and 2).
#pragma once
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "glint/status.h"
#include "model/glm_flash/hparams.h"

namespace glint::model {

struct GgufModel {
  HParams hparams;      // checked; nextn_layers is what the file claims, at most 1
  std::string dialect;  // "A".."D", for display: nothing is decided by it
  std::string
      mtp_flaw;  // why the MTP block can not be used whatever tensors there are; empty: nothing known against it
  std::vector<std::string> notes;
};

// Errors name the file and the key. kUnsupported for another architecture, an MTP-only or a projector file, or a variant
// that glint does not run.
Result<GgufModel> ReadHParams(const gguf::File& file);

}  // namespace glint::model
