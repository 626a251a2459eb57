// The model of the session target and of its seeds: as small as the architecture allows.
#pragma once
#include <cstdlib>

#include "glint/model.h"

namespace glint::fuzz {

inline const Model& SessionModel() {
  static const auto model =
      Model::Synthetic("tiny,layers=4,kda_heads=1,heads=1,vocab=272,experts=2,dense_ffn=256,mtp=1,seed=1",
                       {.threads = 1, .mtp = true});
  if (!model.ok()) std::abort();
  return *model;
}

}  // namespace glint::fuzz
