// Writes a synthetic model as a GGUF file, to have one of any size and types for measuring how fast files load:
//   synthetic_file glm-5.3-flash,layers=6,experts=64,recipe=q8_0-iq3_xxs /tmp/model
// makes /tmp/model.gguf. The whole model is in memory meanwhile.
#include <cstdio>

#include "model/model_data.h"
#include "tests/model/dialects.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: synthetic_file SPEC STEM; writes STEM.gguf\n", stderr);
    return 2;
  }
  const auto model = glint::model::LoadSynthetic(argv[1], {.mtp = true});
  if (!model.ok()) {
    std::fprintf(stderr, "synthetic_file: %s\n", model.status().message().c_str());
    return 1;
  }
  const auto written = glint::model::WriteDialect(*model, argv[2]);
  if (!written.ok()) std::fprintf(stderr, "synthetic_file: %s\n", written.status().message().c_str());
  return written.ok() ? 0 : 1;
}
