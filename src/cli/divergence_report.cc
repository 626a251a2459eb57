#include "cli/divergence_report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/input.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

// "0,512,4096": positions, ascending from 0.
Result<std::vector<int64_t>> ParseBins(const std::string& text) {
  std::vector<int64_t> edges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const auto value = ParseInteger(std::string_view(text).substr(begin, comma - begin));
    if (!value || *value < 0 || (edges.empty() ? *value != 0 : *value <= edges.back())) {
      return Status(
          Code::kBadInput,
          fmt::format("--bins: '{}' is no list of rising positions that begins with 0, such as 0,512,4096",
                      text));
    }
    edges.push_back(*value);
    begin = comma + 1;
  }
  return edges;
}

// What would be shown as -0.000 is 0.
double NoMinusZero(double value, double half_step) { return std::fabs(value) < half_step ? 0 : value; }

}  // namespace

void ScoringChoice::Declare(Options& options, const std::string& text_option) {
  options.Value(text_option, "TEXT", &file, "The text, a file ('-' is stdin); every byte counts");
  DeclareIds(options, &ids, "Token ids instead: 1,2,3 or @FILE", 2);
  options.files().Reads(&file);
  options.Flag("--special", &special, "Control tokens spelled in the text become those tokens");
  options.Value("--ctx", "N", &context, 2, INT32_MAX,
                "Tokens of a window; without it 2048, or what the model was made for");
  options.Value("--stride", "N", &stride, 1, INT32_MAX,
                "Tokens from one window to the next; without it half of --ctx");
  options.Value("--first", "N", &first, 1, INT32_MAX,
                "First position of a window that is scored; without it 1: all but the text's first token");
  options.Value("--bins", "N,...", &bins, "Where the position bins begin; without it 0,512,4096,16384");
  options.Check([this]() -> Status {
    if (file && ids) return {Code::kBadInput, "give the text as a file or with --ids, not both"};
    if (context && stride && *stride > *context)
      return {Code::kBadInput,
              fmt::format("--stride: {} is more than --ctx, {}: tokens between windows would "
                          "be read by none",
                          *stride, *context)};
    if (context && first) {
      if (Status status = engine::CheckWindows(Choose({})); !status.ok())
        return {Code::kBadInput, "--first: " + status.message()};
    }
    if (!bins) return {};
    const auto edges = ParseBins(*bins);
    return edges.ok() ? Status() : edges.status();
  });
}

Result<std::vector<int32_t>> ScoringChoice::Ids(const Model& model) const {
  std::vector<int32_t> out;
  if (ids) {
    auto given = ParseIds(*ids);
    if (!given.ok()) return given;
    out = std::move(*given);
  } else {
    if (!file && IsTerminal(STDIN_FILENO))
      return Status(Code::kBadInput, "no text: give a file, or '-' for stdin, or token ids with --ids");
    const auto read = ReadText(std::nullopt, file, "text");
    if (!read.ok()) return read.status();
    if (!model.has_tokenizer())
      return Status(Code::kBadInput,
                    fmt::format("{} has no tokenizer: give token ids with --ids", model.name()));
    out = model.tokenizer().Encode(*read, special);
  }
  for (const int32_t id : out) {
    if (id < 0 || id >= model.vocab_size())
      return Status(Code::kBadInput, fmt::format("token id {}; ids of {} go from 0 to {}", id, model.name(),
                                                 model.vocab_size() - 1));
  }
  return out;
}

engine::Windows ScoringChoice::Choose(engine::Windows windows) const {
  if (context) windows.context = *context, windows.stride = std::max<int64_t>(*context / 2, 1);
  if (stride) windows.stride = *stride;
  if (first) windows.first = *first;
  return windows;
}

engine::PositionBins ScoringChoice::Bins() const {
  engine::PositionBins out;
  if (!bins) return out;
  const auto edges = ParseBins(*bins);
  if (edges.ok()) out.edges = *edges;  // checked when the options were
  return out;
}

std::string DivergenceTable(const engine::DivergenceBins& divergence) {
  std::string text =
      fmt::format("  {:<14}{:>9}{:>12}{:>11}{:>11}{:>11}{:>11}{:>10}{:>11}{:>10}\n", "position", "tokens",
                  "mean KLD", "+-", "median", "99 %", "largest", "same top", "mean dp", "max dp");
  const auto line = [&](const std::string& name, const engine::DivergenceSummary& s) {
    if (s.tokens == 0) {
      text += fmt::format("  {:<14}{:>9}  no data\n", name, 0);
      return;
    }
    text += fmt::format(
        "  {:<14}{:>9} {:>11.6f} {:>10.6f} {:>10.6f} {:>10.5f} {:>10.5f}{:>8.2f} %{:>+9.3f} %{:>+8.1f} %\n",
        name, Grouped(static_cast<uint64_t>(s.tokens)), s.mean, s.mean_error, s.median, s.high, s.most,
        100 * s.same_top, NoMinusZero(100 * s.mean_change, 0.0005),
        NoMinusZero(100 * s.largest_change, 0.05));
  };
  for (size_t i = 0; i < divergence.bins().edges.size(); ++i)
    line(divergence.bins().Name(i), divergence.Bin(i));
  const auto all = divergence.All();
  line("all", all);
  text += "KLD in nats; dp: change of the probability of the token that came\n";
  text += fmt::format("perplexity {:.4f}, the base's {:.4f}: ratio {:.5f}\n", std::exp(all.loss),
                      std::exp(all.base_loss), std::exp(all.loss - all.base_loss));
  return text;
}

void WriteDivergence(JsonWriter& json, const engine::DivergenceBins& divergence) {
  const auto write = [&](const std::string& name, const engine::DivergenceSummary& s) {
    json.BeginObject().Member("positions", std::string_view(name)).Member("tokens", s.tokens);
    if (s.tokens > 0) {
      json.Member("mean", s.mean).Member("mean_error", s.mean_error).Member("median", s.median);
      json.Member("quantile_99", s.high).Member("largest", s.most).Member("same_top", s.same_top);
      json.Member("mean_probability_change", s.mean_change);
      json.Member("largest_probability_change", s.largest_change);
      json.Member("loss", s.loss).Member("base_loss", s.base_loss);
    }
    json.EndObject();
  };
  json.BeginArray();
  for (size_t i = 0; i < divergence.bins().edges.size(); ++i)
    write(divergence.bins().Name(i), divergence.Bin(i));
  write("all", divergence.All());
  json.EndArray();
}

}  // namespace glint::cli
