// What perplexity and compare share: options of scoring a text, and how divergences are shown.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/json_writer.h"
#include "cli/options.h"
#include "engine/divergence.h"
#include "glint/model.h"

namespace glint::cli {

struct ScoringChoice {
  std::optional<std::string> file, ids, bins;
  std::optional<int64_t> context, stride, first;
  bool special = false;

  // `text_option`: how a command asks for the file; perplexity has -f,--file.
  void Declare(Options& options, const std::string& text_option = "-f,--file");
  Result<std::vector<int32_t>> Ids(const Model& model) const;
  // What was given, and the rest from `defaults`; a context that was given brings its half as stride.
  engine::Windows Choose(engine::Windows defaults) const;
  engine::PositionBins Bins() const;
};

std::string DivergenceTable(const engine::DivergenceBins& divergence);
// As the next value of the document.
void WriteDivergence(JsonWriter& json, const engine::DivergenceBins& divergence);

}  // namespace glint::cli
