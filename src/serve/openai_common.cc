#include "serve/openai_common.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "serve/api_error.h"

namespace glint::serve {
namespace {

constexpr size_t kMostStops = 4;
constexpr int64_t kMostChoices = 128;

void ReadStop(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  const Json* stop = fields.Take("stop");
  if (stop == nullptr) return;
  const std::string path = fields.PathOf("stop");
  if (const auto text = AsString(*stop)) {
    request.stop = {*text};
  } else if (stop->kind() != Json::Kind::kArray) {
    trouble.WrongType(path, "a string or an array of strings", *stop);
  } else if (stop->items().size() > kMostStops) {
    trouble.Report(path,
                   fmt::format("array too long. Expected an array with maximum length {}, but got an array "
                               "with length {} instead.",
                               kMostStops, stop->items().size()),
                   "array_above_max_length");
  } else {
    for (size_t i = 0; i < stop->items().size(); ++i) {
      const auto item = AsString(stop->items()[i]);
      if (item) {
        request.stop.push_back(*item);
      } else {
        trouble.WrongType(trouble.Item(path, i), "a string", stop->items()[i]);
      }
    }
  }
  for (const std::string& text : request.stop)
    if (text.empty()) trouble.Report(path, "a stop sequence must not be empty.");
}

void ReadBias(Fields& fields, Trouble& trouble, int32_t vocab_size, GenerationRequest& request) {
  const Json* bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  Fields members(trouble, *bias, fields.PathOf("logit_bias"));
  for (const Json::Member& member : bias->members()) {
    int32_t id = -1;
    const char* const end = member.key.data() + member.key.size();
    const auto read = std::from_chars(member.key.data(), end, id);
    if (read.ec != std::errc() || read.ptr != end || id < 0 || id >= vocab_size) {
      trouble.Report(members.path(),
                     fmt::format("'{}' is no token id; they are 0 to {}.", member.key, vocab_size - 1));
      return;
    }
    const auto value = members.Number(member.key, -100, 100);
    if (!value) continue;
    // The API's -100 is a ban.
    request.sampler.logit_bias.emplace_back(
        id, *value == -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(*value));
  }
}

void ReadStream(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  const Json* options = fields.Object("stream_options");
  if (options == nullptr) return;
  if (!request.stream) {
    trouble.Say("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    return;
  }
  Fields members(trouble, *options, fields.PathOf("stream_options"));
  request.include_usage = members.Bool("include_usage").value_or(false);
  (void)members.Bool("include_obfuscation");
  members.RefuseOthers();
}

void WriteToken(const std::string& bytes, double logprob, JsonOut& out) {
  out.String("token", ToUtf8(bytes)).Number("logprob", ClampLogprob(logprob)).Key("bytes").Begin('[');
  for (const char c : bytes) out.Integer(static_cast<uint8_t>(c));
  out.End(']');
}

}  // namespace

void ReadOpenAiSampling(Fields& fields, Trouble& trouble, const RequestLimits& limits,
                        GenerationRequest& request) {
  request.sampler = limits.sampler;
  SamplerOptions& sampler = request.sampler;
  if (const auto model = fields.RequireString("model")) request.model = *model;
  if (const auto v = fields.Number("temperature", 0, 2)) sampler.temperature = static_cast<float>(*v);
  if (const auto v = fields.Integer("top_k", -1, std::numeric_limits<int32_t>::max())) {
    sampler.top_k = std::max(0, static_cast<int32_t>(*v));  // 0 and -1 are both in use for "off"
  }
  if (const auto v = fields.Number("top_p", 0, 1)) {
    sampler.top_p = static_cast<float>(*v);
    if (sampler.top_p == 0) sampler.top_p = 1, sampler.top_k = 1;  // the least set that is not empty
  }
  if (const auto v = fields.Number("min_p", 0, std::nextafter(1.0f, 0.0f)))
    sampler.min_p = static_cast<float>(*v);
  if (const auto v = fields.Number("repetition_penalty", 0.01, 100))
    sampler.repetition_penalty = static_cast<float>(*v);
  if (const auto v = fields.Number("presence_penalty", -2, 2))
    sampler.presence_penalty = static_cast<float>(*v);
  if (const auto v = fields.Number("frequency_penalty", -2, 2))
    sampler.frequency_penalty = static_cast<float>(*v);
  if (const auto v =
          fields.Integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    sampler.seed = static_cast<uint64_t>(*v);
    request.seeded = true;
  }
  ReadBias(fields, trouble, limits.vocab_size, request);
  ReadStop(fields, trouble, request);
}

void ReadOpenAiCommon(Fields& fields, Trouble& trouble, const RequestLimits& limits,
                      GenerationRequest& request) {
  ReadOpenAiSampling(fields, trouble, limits, request);
  if (const auto v = fields.Integer("n", 1, kMostChoices)) request.n = static_cast<uint32_t>(*v);
  ReadStream(fields, trouble, request);
  (void)fields.String("user");
}

std::optional<std::string> ReadEffort(Fields& fields, std::string_view key) {
  return fields.Word(key, {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
}

void SetEffort(std::string_view effort, GenerationRequest& request) {
  request.skip_reasoning = effort == "none";
  request.chat.reasoning_effort = effort == "none" || effort == "minimal" || effort == "low" ? "low"
                                  : effort == "medium" || effort == "high"                   ? "high"
                                                                                             : "";
}

std::string DataFrame(std::string_view json) { return fmt::format("data: {}\n\n", json); }

std::string CommentFrame(const Progress& progress) {
  return fmt::format(": prefill {}/{}\n\n", progress.done, progress.total);
}

std::string OpenAiErrorFrames(const ApiError& error) {
  return DataFrame(OpenAiErrorBody(error)) + std::string(kDoneFrame);
}

void WriteUsage(const Usage& usage, JsonOut& out) {
  out.Begin('{');
  out.Integer("prompt_tokens", usage.prompt);
  out.Integer("completion_tokens", usage.completion);
  out.Integer("total_tokens", usage.prompt + usage.completion);
  out.Key("prompt_tokens_details").Begin('{').Integer("cached_tokens", usage.cached).End('}');
  out.Key("completion_tokens_details").Begin('{').Integer("reasoning_tokens", usage.reasoning).End('}');
  out.End('}');
}

void WriteTimings(const Outcome& outcome, JsonOut& out) {
  const Usage& usage = outcome.usage;
  out.Begin('{');
  out.Number("queue_ms", outcome.timings.queue_ms);
  out.Integer("prefill_tokens", usage.prompt - std::min(usage.cached, usage.prompt));
  out.Number("prefill_ms", outcome.timings.prefill_ms);
  out.Integer("cached_tokens", usage.cached);
  out.Integer("decode_tokens", usage.completion);
  out.Number("decode_ms", outcome.timings.decode_ms);
  out.End('}');
}

double ClampLogprob(double logprob) { return logprob >= -9999.0 ? logprob : -9999.0; }

std::string LogprobEntries(const std::vector<TokenLogprob>& tokens) {
  std::string all;
  for (const TokenLogprob& token : tokens) {
    JsonOut out;
    out.Begin('{');
    WriteToken(token.bytes, token.logprob.value_or(0), out);
    out.Key("top_logprobs").Begin('[');
    for (const TokenLogprob::Top& top : token.top) {
      out.Begin('{');
      WriteToken(top.bytes, top.logprob, out);
      out.End('}');
    }
    out.End(']').End('}');
    all += (all.empty() ? "" : ",") + out.Take();
  }
  return all;
}

Outcome Together(const std::vector<Outcome>& choices, size_t n) {
  Outcome all;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Outcome& one = choices[i];
    if (i % n == 0) {
      all.usage.prompt += one.usage.prompt;
      all.usage.cached += one.usage.cached;
    }
    all.usage.completion += one.usage.completion;
    all.usage.reasoning += one.usage.reasoning;
    all.timings.queue_ms = std::max(all.timings.queue_ms, one.timings.queue_ms);
    all.timings.prefill_ms = std::max(all.timings.prefill_ms, one.timings.prefill_ms);
    all.timings.decode_ms = std::max(all.timings.decode_ms, one.timings.decode_ms);
  }
  return all;
}

}  // namespace glint::serve
