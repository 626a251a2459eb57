#include "cli/sampling_options.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <random>

namespace glint::cli {
namespace {

constexpr double kAny = std::numeric_limits<float>::max();

Result<std::vector<std::pair<int32_t, float>>> ParseBiases(const std::vector<std::string>& given) {
  std::vector<std::pair<int32_t, float>> biases;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    std::optional<int64_t> id;
    std::optional<double> value;
    if (equals != std::string::npos) {
      id = ParseInteger(std::string_view(text).substr(0, equals));
      value = ParseNumber(std::string_view(text).substr(equals + 1));
    }
    if (!id || *id < 0 || *id > INT32_MAX || !value || *value > kAny ||
        (*value < -kAny && !std::isinf(*value))) {
      return Status(
          Code::kBadInput,
          fmt::format("--logit-bias: '{}' is not ID=VALUE, such as 42=-1.5 or 42=-inf to ban a token", text));
    }
    biases.emplace_back(static_cast<int32_t>(*id), static_cast<float>(*value));
  }
  return biases;
}

}  // namespace

void SamplingChoice::Declare(Options& options) {
  options.Group("Sampling (what is not given comes from the model file)");
  options.Value("--temp", "T", &temperature, 0, 100, "Temperature; 0 always takes the likeliest token");
  options.Value("--top-k", "K", &top_k, 0, INT32_MAX, "Only the K likeliest tokens; 0 is off");
  options.Value("--top-p", "P", &top_p, 0, 1, "Only the likeliest tokens that together reach P; 1 is off");
  options.Value("--min-p", "P", &min_p, 0, 1,
                "Only tokens at least P times as likely as the likeliest; 0 is off");
  options.Value("--repeat-penalty", "X", &repeat_penalty, 0, kAny,
                "Divides positive logits of tokens seen before; 1 is off");
  options.Value("--presence-penalty", "X", &presence_penalty, -kAny, kAny,
                "Subtracted from the logit of a token generated before");
  options.Value("--frequency-penalty", "X", &frequency_penalty, -kAny, kAny,
                "Subtracted for each time it was generated");
  options.List("--logit-bias", "ID=VALUE", &logit_bias,
               "Added to a token's logit; -inf bans it; may be repeated");
  options.Value("--seed", "N", &seed,
                "The same seed gives the same text; without it a random one, which is shown");
  options.Flag("--greedy", &greedy, "Always the likeliest token; the same as --temp 0");
  options.Check([this]() -> Status {
    if (greedy && temperature && *temperature != 0) {
      return {Code::kBadInput, "--greedy and --temp contradict each other"};
    }
    const auto biases = ParseBiases(logit_bias);
    if (!biases.ok()) return biases.status();
    // As floats, which is how they are used.
    const auto rounded = [](double value) { return static_cast<float>(value); };
    if (top_p && rounded(*top_p) == 0)
      return {Code::kBadInput, "--top-p: 0 would leave no token; use --greedy for the likeliest"};
    if (min_p && rounded(*min_p) == 1)
      return {Code::kBadInput, "--min-p: must be below 1; use --greedy for the likeliest"};
    if (repeat_penalty && rounded(*repeat_penalty) == 0)
      return {Code::kBadInput, "--repeat-penalty: must be above 0"};
    return {};
  });
}

Result<SamplerOptions> SamplingChoice::Resolve(const Model& model) const {
  const SuggestedSampling hints = model.suggested_sampling();
  const auto number = [](std::optional<double> value, float otherwise) {
    return value ? static_cast<float>(*value) : otherwise;
  };
  SamplerOptions o;
  o.temperature = greedy ? 0.0f : number(temperature, hints.temperature.value_or(1.0f));
  o.top_p = number(top_p, hints.top_p.value_or(1.0f));
  o.top_k = static_cast<int32_t>(top_k.value_or(hints.top_k.value_or(0)));
  o.min_p = number(min_p, 0.0f);
  o.repetition_penalty = number(repeat_penalty, 1.0f);
  o.presence_penalty = number(presence_penalty, 0.0f);
  o.frequency_penalty = number(frequency_penalty, 0.0f);
  auto biases = ParseBiases(logit_bias);
  if (!biases.ok()) return biases.status();
  for (const auto& [id, value] : *biases) {
    if (id >= model.usable_vocab()) {
      return Status(Code::kBadInput,
                    fmt::format("--logit-bias: id {} is not below {}, the model's vocabulary", id,
                                model.usable_vocab()));
    }
  }
  o.logit_bias = std::move(*biases);
  // Short enough to be typed again.
  o.seed = seed ? *seed : std::random_device{}() % 1000000000u;
  return o;
}

}  // namespace glint::cli
