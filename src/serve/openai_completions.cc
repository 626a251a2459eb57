#include "serve/openai_completions.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "serve/api_error.h"
#include "serve/openai_common.h"

namespace glint::serve {
namespace {

constexpr size_t kMostPrompts = 128;

std::optional<int32_t> AsId(const Json& value, int32_t vocab_size) {
  const Result<int64_t> id = value.Get<int64_t>("");
  if (value.kind() != Json::Kind::kInteger || !id.ok() || id.value() < 0 || id.value() >= vocab_size)
    return {};
  return static_cast<int32_t>(id.value());
}

std::vector<int32_t> ReadIds(const Json& list, const std::string& path, int32_t vocab_size,
                             Trouble& trouble) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.items().size(); ++i) {
    const auto id = AsId(list.items()[i], vocab_size);
    if (!id) {
      trouble.Report(trouble.Item(path, i), fmt::format("{} is no token id; they are 0 to {}.",
                                                        ToText(list.items()[i]), vocab_size - 1));
      break;
    }
    ids.push_back(*id);
  }
  return ids;
}

void ReadPrompts(Fields& fields, Trouble& trouble, int32_t vocab_size, GenerationRequest& request) {
  const Json* prompt = fields.Require("prompt");
  if (prompt == nullptr) return;
  if (const auto text = AsString(*prompt)) {
    request.prompts = {*text};
    return;
  }
  if (prompt->kind() != Json::Kind::kArray) {
    return trouble.WrongType(
        "prompt", "a string, or an array of strings, of token ids or of arrays of token ids", *prompt);
  }
  const Json::Array& items = prompt->items();
  if (items.empty()) {
    return trouble.Report(
        "prompt", "empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "empty_array");
  }
  if (items[0].kind() == Json::Kind::kInteger) {
    request.prompts.emplace_back(ReadIds(*prompt, "prompt", vocab_size, trouble));
    return;
  }
  if (items.size() > kMostPrompts) {
    return trouble.Report("prompt",
                          fmt::format("array too long. Expected an array with maximum length {}, but got an "
                                      "array with length {} instead.",
                                      kMostPrompts, items.size()),
                          "array_above_max_length");
  }
  for (size_t i = 0; i < items.size() && trouble.ok(); ++i) {
    const std::string path = trouble.Item("prompt", i);
    if (const auto text = AsString(items[i]); text && items[0].kind() == Json::Kind::kString) {
      request.prompts.emplace_back(*text);
    } else if (items[i].kind() == Json::Kind::kArray && items[0].kind() == Json::Kind::kArray) {
      request.prompts.emplace_back(ReadIds(items[i], path, vocab_size, trouble));
    } else {
      trouble.WrongType(path, items[0].kind() == Json::Kind::kString ? "a string" : "an array of token ids",
                        items[i]);
    }
  }
}

size_t Characters(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// A key of top_logprobs: parts of characters are told apart by their bytes.
std::string TokenName(const std::string& bytes) {
  std::string text = ToUtf8(bytes);
  if (text == bytes) return text;
  text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

// Four lists of the same length, each JSON without its brackets.
struct Lists {
  std::string offsets, tokens, logprobs, top;
  void Append(const Lists& more) {
    for (const auto part : {&Lists::offsets, &Lists::tokens, &Lists::logprobs, &Lists::top}) {
      this->*part += ((this->*part).empty() || (more.*part).empty() ? "" : ",") + more.*part;
    }
  }
};

struct Choice {
  std::string text;
  size_t characters = 0;
  Lists lists;
  Outcome outcome;
};

class CompletionWriter final : public ResponseWriter {
 public:
  CompletionWriter(const GenerationRequest& request, ResponseNames names)
      : names_(std::move(names)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        n_(request.n),
        choices_(request.choices()) {}

  std::string Begin(const Usage&) override { return {}; }

  std::string Event(size_t choice, const AnswerEvent& event,
                    const std::vector<TokenLogprob>& tokens) override {
    if (event.kind != AnswerEvent::Kind::kText) return {};  // there is nothing else in a continuation
    Choice& c = choices_[choice];
    Lists lists;
    size_t at = c.characters;
    for (const TokenLogprob& token : logprobs_ ? tokens : std::vector<TokenLogprob>()) {
      lists.Append(ListsOf(token, at));
      at += Characters(token.bytes);
    }
    c.text += event.text;
    c.characters += Characters(event.text);
    c.lists.Append(lists);
    if (!stream_) return {};
    return Chunk(choice, event.text, lists.tokens.empty() ? nullptr : &lists, nullptr);
  }

  std::string Finish(size_t choice, const Outcome& outcome) override {
    choices_[choice].outcome = outcome;
    return stream_ ? Chunk(choice, "", nullptr, &outcome) : "";
  }

  std::string End() override {
    std::vector<Outcome> outcomes;
    for (const Choice& c : choices_) outcomes.push_back(c.outcome);
    const Outcome all = Together(outcomes, n_);
    if (stream_ && !include_usage_) return std::string(kDoneFrame);
    JsonOut out = Head();
    out.Key("choices").Begin('[');
    for (size_t i = 0; !stream_ && i < choices_.size(); ++i) {
      WriteChoice(i, choices_[i].text, logprobs_ ? &choices_[i].lists : nullptr, &choices_[i].outcome, out);
    }
    out.End(']').Key("usage");
    WriteUsage(all.usage, out);
    if (!stream_) {
      out.Key("timings");
      WriteTimings(all, out);
    }
    std::string json = out.End('}').Take();
    return stream_ ? DataFrame(json) + std::string(kDoneFrame) : json;
  }

  std::string Fail(const ApiError& error) override {
    return stream_ ? OpenAiErrorFrames(error) : OpenAiErrorBody(error);
  }

  std::string KeepAlive(const Progress& progress) override { return stream_ ? CommentFrame(progress) : ""; }

 private:
  Lists ListsOf(const TokenLogprob& token, size_t at) const {
    const auto name = [](const std::string& bytes) { return JsonOut().String(TokenName(bytes)).Take(); };
    Lists lists{std::to_string(at), name(token.bytes), "null", "null"};
    if (!token.logprob) return lists;
    lists.logprobs = JsonOut().Number(ClampLogprob(*token.logprob)).Take();
    if (*logprobs_ == 0) return lists;
    JsonOut top;
    top.Begin('{');
    bool seen = false;
    for (const TokenLogprob::Top& one : token.top) {
      top.Number(TokenName(one.bytes), ClampLogprob(one.logprob));
      seen = seen || one.bytes == token.bytes;
    }
    if (!seen)
      top.Number(TokenName(token.bytes),
                 ClampLogprob(*token.logprob));  // the chosen one is always among them
    lists.top = top.End('}').Take();
    return lists;
  }

  JsonOut Head() const {
    JsonOut out;
    out.Begin('{').String("id", "cmpl-" + names_.id).String("object", "text_completion");
    out.Integer("created", names_.created).String("model", names_.model);
    if (names_.fingerprint.empty()) {
      out.Null("system_fingerprint");
    } else {
      out.String("system_fingerprint", names_.fingerprint);
    }
    return out;
  }

  void WriteChoice(size_t choice, std::string_view text, const Lists* lists, const Outcome* outcome,
                   JsonOut& out) const {
    out.Begin('{').String("text", text).Integer("index", uint64_t{choice});
    if (lists == nullptr) {
      out.Null("logprobs");
    } else {
      const auto list = [](const std::string& items) { return fmt::format("[{}]", items); };
      out.Key("logprobs").Begin('{');
      out.Key("tokens").Raw(list(lists->tokens)).Key("token_logprobs").Raw(list(lists->logprobs));
      if (*logprobs_ == 0) {
        out.Null("top_logprobs");
      } else {
        out.Key("top_logprobs").Raw(list(lists->top));
      }
      out.Key("text_offset").Raw(list(lists->offsets)).End('}');
    }
    if (outcome == nullptr) {
      out.Null("finish_reason");
    } else {
      out.String("finish_reason", outcome->reason == FinishReason::kLength ? "length" : "stop");
    }
    out.End('}');
  }

  std::string Chunk(size_t choice, std::string_view text, const Lists* lists, const Outcome* outcome) const {
    JsonOut out = Head();
    out.Key("choices").Begin('[');
    WriteChoice(choice, text, lists, outcome, out);
    out.End(']');
    if (include_usage_) out.Null("usage");
    if (outcome != nullptr) {
      out.Key("timings");
      WriteTimings(*outcome, out);
    }
    return DataFrame(out.End('}').Take());
  }

  ResponseNames names_;
  bool stream_, include_usage_;
  std::optional<uint32_t> logprobs_;
  size_t n_;
  std::vector<Choice> choices_;
};

}  // namespace

Parsed<GenerationRequest> ParseOpenAiCompletion(std::string_view body, const RequestLimits& limits) {
  Parsed<Json> root = ParseBody(body, Dialect::kOpenAi);
  if (auto* error = std::get_if<ApiError>(&root)) return std::move(*error);
  Trouble trouble;
  Fields fields(trouble, std::get<Json>(root), "");
  GenerationRequest request;
  ReadOpenAiCommon(fields, trouble, limits, request);
  ReadPrompts(fields, trouble, limits.vocab_size, request);
  // 16 is the API's own default.
  request.max_tokens = static_cast<uint32_t>(
      fields.Integer("max_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(16));
  request.echo = fields.Bool("echo").value_or(false);
  if (const auto logprobs = fields.Integer("logprobs", 0, 5))
    request.logprobs = static_cast<uint32_t>(*logprobs);
  if (const auto best_of = fields.Integer("best_of", 1, 20)) {
    if (*best_of < request.n) trouble.Say("best_of", "'best_of' must be greater than or equal to 'n'.");
    if (*best_of > request.n) trouble.Unsupported("best_of", "answers beyond n are not made");
  }
  fields.Refuse({"suffix"}, "this model does not fill in the middle");
  fields.RefuseOthers();
  if (!trouble.ok()) return *trouble.error;
  return request;
}

std::unique_ptr<ResponseWriter> MakeOpenAiCompletionWriter(const GenerationRequest& request,
                                                           ResponseNames names) {
  return std::make_unique<CompletionWriter>(request, std::move(names));
}

}  // namespace glint::serve
